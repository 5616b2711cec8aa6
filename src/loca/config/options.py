"""The sections of a command's settings: how data is read, split and weighed, and what is done with it."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from loca.communities.geometry import Quantile
from loca.data.id_map import Column
from loca.data.interactions import Interactions
from loca.data.recency import Recency, Shape, parse_age
from loca.data.schema import Schema
from loca.data.synthetic import PlantedData
from loca.data.times import SourceUnit, check_unit
from loca.data.weighting import Weighting
from loca.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from loca.data.readers import ReadRequest, TableRead

PLANTED = "planted"
AUTO: Literal["auto"] = "auto"
OWN: Literal["own"] = "own"
# One recency, none, the one that each model was trained for (where nothing is said), or one chosen on validation.
RecencyRequest = Recency | Literal["auto", "own"] | None


@dataclass(frozen=True)
class DataOptions:
    """How the interactions are read; what is not given is found in the file itself."""

    layout: str | None = None
    preset: str | None = None
    user_column: Column | None = None
    item_column: Column | None = None
    rating_column: Column | None = None
    time_column: Column | None = None
    event_column: Column | None = None
    separator: str | None = None
    header: bool | None = None
    time_unit: str | None = None
    weight: str | None = None
    min_rating: float | None = None
    min_user_interactions: int = 0
    min_item_interactions: int = 0
    repeat_filter: bool = False
    keep_repeats: bool = False
    titles: str | None = None

    def __post_init__(self) -> None:
        from loca.data.datasets import find_layout, find_preset

        if self.layout is not None:
            find_layout(self.layout)
        check_unit(self.time_unit)
        Weighting.of(self.weight)
        if self.preset is not None:
            find_preset(self.preset)
            if fixed := ", ".join(
                name for name in self._given() if name not in ("preset", "layout", "titles")
            ):
                raise ConfigError(
                    f"data.preset {self.preset!r} says how the data is read; leave out {fixed}"
                )

    def _given(self) -> list[str]:
        return [one.name for one in fields(self) if getattr(self, one.name) != one.default]

    def read_request(self) -> ReadRequest:
        """Return the request that a reader takes."""
        from loca.data.readers import ReadRequest

        columns = {
            "user": self.user_column,
            "item": self.item_column,
            "rating": self.rating_column,
            "time": self.time_column,
            "event": self.event_column,
        }
        return ReadRequest(
            columns={role: column for role, column in columns.items() if column is not None},
            schema=Schema(
                min_rating=self.min_rating,
                weighting=Weighting.of(self.weight),
                source_unit=cast(SourceUnit | None, self.time_unit),
                repeats="all" if self.keep_repeats else "newest",
                min_user_interactions=self.min_user_interactions,
                min_item_interactions=self.min_item_interactions,
            ),
            layout=self.layout,
            separator=self.separator,
            header=self.header,
            repeat_filter=self.repeat_filter,
        )

    def check_later(self, known: Schema) -> None:
        """Refuse options that contradict how the rows of a model were read."""
        stored = {"min_rating": known.min_rating, "weight": known.weighting}
        for name, value in stored.items():
            given = getattr(self, name)
            is_free = value is None and name == "min_rating"
            if given is None or is_free or str(given) == str(value):
                continue
            option = f"--{name.replace('_', '-')}"
            was = "without it" if value is None else f"with {option} {value}"
            raise ConfigError(
                f"{option}: the model was fitted {was}, and later rows are read alike"
            )
        for name in ("min_user_interactions", "min_item_interactions"):
            if getattr(self, name):
                option = f"--{name.replace('_', '-')}"
                raise ConfigError(f"{option}: is for a fit; later rows are taken as they are")

    def check_source(self, source: str) -> None:
        """Refuses reader options for the built-in data."""
        if source == PLANTED and self._given():
            raise ConfigError(
                f"the data {PLANTED!r} is made, not read; leave out {', '.join(self._given())}"
            )


@dataclass(frozen=True)
class SplitOptions:
    """How many of each user's last items are for test, and how many before them for validation."""

    test: int = 5
    validation: int | None = None

    def __post_init__(self) -> None:
        for name, value, least in (("test", self.test, 1), ("validation", self.validation, 0)):
            if value is not None and value < least:
                raise ConfigError(f"split.{name}: expected a whole number ≥ {least}, found {value}")


@dataclass(frozen=True)
class RecencyOptions:
    """How fast a history's items lose weight: a half-life (`4` positions, `30d` of time) or a decay per position.

    `half_life` may also be `auto` (chosen on validation), `none`, `own` (what each model was trained for: the default),
    or say everything at once: `30d:power:0.1`.
    """

    half_life: float | str = OWN
    decay: float | None = None
    shape: str | None = None
    floor: float | None = None

    def __post_init__(self) -> None:
        self.recency()

    def recency(self) -> RecencyRequest:
        """The recency that these options request: one, `auto`, None, or each model's own where nothing is said."""
        given: dict[str, Any] = {"shape": self.shape, "floor": self.floor}
        given = {name: value for name, value in given.items() if value is not None}
        text, name = str(self.half_life), next(iter(given), "")
        if self.decay is not None:
            if text != OWN:
                raise ConfigError("recency: expected a half_life or a decay, found both")
            if self.shape not in (None, "exponential"):
                raise ConfigError(
                    f"recency.decay: is exponential; for the shape {self.shape!r} say a half_life"
                )
            return Recency.per_position(self.decay, floor=self.floor or 0.0)
        request = OWN if text == OWN else parse_recency_request(text)
        if not given or request is None:
            return request
        if request == OWN:
            raise ConfigError(
                f"recency.{name}: needs a half_life too; expected recency.half_life=4, say"
            )
        if request == AUTO:
            raise ConfigError(f"recency.{name}: auto chooses it; leave it out, or say a half_life")
        if ":" in text:
            raise ConfigError(
                f"recency.{name}: half_life says it all in {text!r}; leave one of them out"
            )
        return replace(request, **given)


def parse_recency(text: str) -> Recency | None:
    """`4` as four positions, `30d` as thirty days, either with shape and floor (`30d:power:0.1`), `none` as None."""
    request = parse_recency_request(text)
    if isinstance(request, str):
        raise ConfigError(
            "recency: auto is chosen by loca fit and loca compare; say an age such as 4 or 30d, or none"
        )
    return request


def parse_recency_request(text: str) -> RecencyRequest:
    """As `parse_recency`, and `auto` as itself: to be chosen on validation."""
    word = text.strip().lower()
    if word in ("none", AUTO):
        return AUTO if word == AUTO else None
    age, shape, floor, *more = (*(part.strip() for part in word.split(":")), "", "")
    parsed = parse_age(age)
    if parsed is None:
        raise ConfigError(
            f"recency: expected positions such as 4, a time such as 30d or 5steps, none or auto, found {text!r}"
        )
    if any(more):
        raise ConfigError(
            f"recency: expected at most AGE:SHAPE:FLOOR, such as 30d:power:0.1, found {text!r}"
        )
    try:
        # Recency checks the word itself: it is still a person's.
        return Recency(*parsed, cast(Shape, shape or "exponential"), float(floor or 0.0))
    except ValueError:
        raise ConfigError(
            f"recency floor: expected a number from 0 to below 1, found {floor!r}"
        ) from None


def read_data(
    source: str,
    options: DataOptions,
    planted: PlantedData | None = None,
    like: Schema | None = None,
    are_targets: bool = False,
) -> tuple[Interactions, TableRead | None]:
    """Return the interactions of a path, read by the options, or the planted ones; and what was read of a table.

    With `like` they are rows that come later than those of that schema, and are read by it. Of targets
    that are to be found nobody needs the weights.
    """
    from loca.data.readers import read_preset, read_table

    if planted is not None:
        return planted.interactions, None
    if options.preset is not None:
        interactions, table = read_preset(options.preset, source, layout=options.layout), None
    else:
        request = replace(options.read_request(), are_targets=are_targets)
        if like is not None:
            request = request.like(like)
        interactions, table = read_table(source, request)
    return interactions if options.titles is None else interactions.with_titles(
        options.titles
    ), table


Section = TypeVar("Section")
_EXPECTED: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    types.NoneType: "none",
    Quantile: "a quantile such as q0.9",
}


def parameters_of(taker: Callable[..., Any]) -> dict[str, Any]:
    """The parameters of a class or function by name, each with its annotation."""
    # Of a dataclass its fields, whose annotations belong to the modules of the classes that declare them.
    is_class = isinstance(taker, type) and not is_dataclass(taker)
    hints = get_type_hints(taker.__init__ if is_class else taker)
    return {name: hints.get(name, Any) for name in inspect.signature(taker).parameters}


def check_names(given: Iterable[str], known: Iterable[str], where: str) -> None:
    """Refuses the first name that is not known, with the nearest right one."""
    options = list(known)
    for name in given:
        if name not in options:
            nearest = (
                did_you_mean(name, options) or f"; the options are {', '.join(options) or 'none'}"
            )
            raise ConfigError(f"unknown option {name!r} for {where}{nearest}")


def check_value(key: str, annotation: Any, value: Any) -> Any:
    """The value as the annotation wants it: "300" as 300, "none" as None, "q0.9" as a quantile; else refused."""
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    kinds = union_members(annotation)
    if Any in kinds or (Quantile in kinds and isinstance(value, Quantile)):
        return value
    if isinstance(value, str) and value.lower() == "none" and types.NoneType in kinds:
        return None
    wanted: Any = Union[tuple(kind for kind in kinds if kind is not Quantile)]  # noqa: UP007
    with suppress(ValidationError):
        if bool in kinds or not isinstance(value, bool):
            return TypeAdapter(wanted, config=ConfigDict(allow_inf_nan=False)).validate_python(
                value
            )
    if Quantile in kinds and isinstance(value, str):
        try:
            return Quantile.parse(value)
        except ConfigError as error:
            also = "; a number above 0 will do too" if float in kinds else ""
            raise ConfigError(f"{key}: {error}{also}") from None
    expected, words = list[str](), list[str]()
    for kind in kinds:
        if get_origin(kind) is Literal:
            words += map(str, get_args(kind))
            expected += map(repr, get_args(kind))
        elif get_origin(kind) in (tuple, list):
            expected.append(f"a list, each {_EXPECTED.get(get_args(kind)[0], 'values')}")
        else:
            expected.append(_EXPECTED.get(kind, getattr(kind, "__name__", str(kind))))
    listed = " or ".join(
        [", ".join(expected[:-1]), expected[-1]] if len(expected) > 1 else expected
    )
    raise ConfigError(f"{key}: expected {listed}, found {value!r}{did_you_mean(str(value), words)}")


def build_section(kind: Callable[..., Section], table: Mapping[str, Any], where: str) -> Section:
    """The options of a section as an object that checks itself; an unknown or impossible one is refused."""
    annotations = parameters_of(kind)
    check_names(table, annotations, where)
    return kind(
        **{
            name: check_value(f"{where}.{name}", annotations[name], value)
            for name, value in table.items()
        }
    )


def union_members(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the annotation alone."""
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(one for member in get_args(annotation) for one in union_members(member))
    return (annotation,)
