"""What a parameter may be, by the annotations of whatever takes it, and values from text or TOML checked by that."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from loca.errors import ConfigError, did_you_mean

Section = TypeVar("Section")
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", types.NoneType: "none"}


def parameters_of(taker: Callable[..., Any]) -> dict[str, Any]:
    """The parameters of a class or function by name, each with its annotation."""
    annotated = taker.__init__ if isinstance(taker, type) else taker  # type: ignore[misc]
    hints = get_type_hints(annotated)
    return {name: hints.get(name, Any) for name in inspect.signature(taker).parameters}


def check_names(given: Iterable[str], known: Iterable[str], where: str) -> None:
    """Refuses the first name that is not known, with the nearest right one."""
    options = list(known)
    for name in given:
        if name not in options:
            nearest = did_you_mean(name, options)
            listed = ", ".join(options) if options else "none"
            raise ConfigError(f"unknown option {name!r} for {where}{nearest or f'; the options are {listed}'}")


def check_value(key: str, annotation: Any, value: Any) -> Any:
    """The value as the annotation wants it: "300" as 300, "none" as None, "q0.9" as a quantile; else refused."""
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    from loca.communities.geometry import Quantile

    kinds = union_members(annotation)
    if Any in kinds or (Quantile in kinds and isinstance(value, Quantile)):
        return value
    if isinstance(value, str) and value.lower() == "none" and types.NoneType in kinds:
        return None
    if isinstance(value, bool) and bool not in kinds:
        raise _impossible(key, kinds, value)
    plain = [kind for kind in kinds if kind is not Quantile]
    wanted: Any = Union[tuple(plain)]  # noqa: UP007
    try:
        return TypeAdapter(wanted, config=ConfigDict(allow_inf_nan=False)).validate_python(value)
    except ValidationError:
        if Quantile in kinds and isinstance(value, str):
            return _quantile(key, value)
        raise _impossible(key, kinds, value) from None


def build_section(kind: Callable[..., Section], table: Mapping[str, Any], where: str) -> Section:
    """The options of a section as an object that checks itself; an unknown or impossible one is refused."""
    annotations = parameters_of(kind)
    check_names(table, annotations, where)
    checked = {name: check_value(f"{where}.{name}", annotations[name], value) for name, value in table.items()}
    return kind(**checked)


def union_members(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the annotation alone."""
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(one for member in get_args(annotation) for one in union_members(member))
    return (annotation,)


def _quantile(key: str, text: str) -> Any:
    from loca.communities.geometry import Quantile

    try:
        return Quantile.parse(text)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from None


def _impossible(key: str, kinds: tuple[Any, ...], value: Any) -> ConfigError:
    words = [str(word) for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    expected = [_KINDS[kind] for kind in kinds if kind in _KINDS]
    expected += [repr(word) for word in words]
    expected += [_describe_many(kind) for kind in kinds if kind not in _KINDS and get_origin(kind) is not Literal]
    listed = expected[0] if len(expected) == 1 else ", ".join(expected[:-1]) + " or " + expected[-1]
    return ConfigError(f"{key}: expected {listed}, found {value!r}{did_you_mean(str(value), words)}")


def _describe_many(kind: Any) -> str:
    from loca.communities.geometry import Quantile

    if kind is Quantile:
        return "a quantile such as q0.9"
    if get_origin(kind) in (tuple, list):
        inner = _KINDS.get(get_args(kind)[0], "values")
        return f"a list, each {inner}"
    return getattr(kind, "__name__", str(kind))
