"""The settings of a command: a TOML file, the command's own options and --set key=value, joined and checked first."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loca.communities.embeddings import TruncatedSVD
from loca.communities.geometry import Quantile
from loca.errors import ConfigError, did_you_mean
from loca.models.recommender import Recommender
from loca.persistence.manifest import get_params, is_model
from loca.registry import MODELS, RECORDS
from loca.search_space import exact_text

Table = dict[str, Any]


@dataclass(frozen=True)
class Choice:
    """Several values of one parameter, to be chosen from on validation."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise ConfigError("a choice needs at least one value")


@dataclass(frozen=True)
class Given:
    """What a user gives to a command: a TOML file, options by section, and the texts of --set and of --choose."""

    config: Path | None = None
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    assignments: Sequence[str] = ()
    choices: Sequence[str] = ()

    def _entries(self) -> Iterator[tuple[str, tuple[str, ...], Any]]:
        """Where each setting comes from, its path and its value; the later ones win."""
        for name, value in flat_settings(
            {} if self.config is None else read_toml(self.config)
        ).items():
            yield str(self.config), tuple(name.split(".")), value
        for section, table in self.options.items():
            yield from (
                ("options", (section, key), value)
                for key, value in table.items()
                if value is not None
            )
        for text in self.assignments:
            path, written = _divide(text, "--set")
            yield "--set", path, parse_value(written)

    def section(self, name: str) -> Table:
        """The table of one section as `tables` joins it, without a look at the others.

        A command's own section says which models there are, and must be known before keys can be distinguished from
        models.
        """
        settings: dict[str, Table] = {name: {}}
        for _, path, value in self._entries():
            if path[0] == name and len(path) > 1:
                _put(settings, path, value)
        return settings[name]

    def tables(
        self,
        sections: Sequence[str],
        models: Sequence[str],
        elsewhere: Sequence[str] = (),
        inherit: Collection[str] = (),
    ) -> dict[str, Table]:
        """One table per section and per model; --set and --choose win over options, these over the file.

        A key without a section belongs to the only model of the command; `base.` belongs to every model that has a base
        with such a parameter. A file may also speak of the sections and models of other commands, `elsewhere`, so that
        one file serves them all; --set and --choose may not. A list is a choice where it stands for a model's
        parameter; a section's lists are lists. What --set and --choose say of a model also holds for the base of those
        of the models that `inherit`, unless they say otherwise.
        """
        known = (*sections, *models)
        settings: dict[str, Table] = {name: {} for name in known}

        def places(where: str, path: tuple[str, ...], written: str) -> list[tuple[str, ...]]:
            first, is_inside = path[0], len(path) > 1
            if is_inside and (
                first in known or (first in elsewhere and where not in ("--set", "--choose"))
            ):
                return [path]
            if is_inside and first in elsewhere:
                here = ", ".join((*models, *sections))
                raise ConfigError(
                    f"{where}: {first!r} has no part in this command; what has is {here}"
                )
            if len(models) == 1 and first not in sections:
                return [(models[0], *path)]
            if first in known:
                raise ConfigError(
                    f"{where}: {first!r} is a section; expected {first}.option = value"
                )
            inside = {name: params_at(MODELS[name](), path[:-1]) for name in models}
            takers = [name for name, params in inside.items() if path[-1] in params]
            if first == "base" and takers:
                return [(name, *path) for name in takers]
            if takers:
                said = " or ".join(f"{name}.{'.'.join(path)}{written}" for name in takers)
                raise ConfigError(f"{where}: {'.'.join(path)!r} of which model? say {said}")
            if first == "base":
                raise ConfigError(
                    f"{where}: none of {', '.join(models)} has a base with the parameter {path[-1]!r}"
                )
            options = [
                f"{name}.{'.'.join((*path[:-1], one))}"
                for name, params in inside.items()
                for one in params
            ]
            near = did_you_mean(first, known) or did_you_mean(".".join(path), options)
            raise ConfigError(
                f"{where}: unknown option {'.'.join(path)!r}{near or '; expected one of ' + ', '.join(known)}"
            )

        inherited: list[tuple[tuple[str, ...], Any]] = []
        for where, path, value in self._entries():
            for one in places(where, path, f"={value}"):
                is_choice = isinstance(value, list) and one[0] not in sections
                _put(settings, one, Choice(tuple(value)) if is_choice else value)
                inherited += (
                    [(one, Choice(tuple(value)) if is_choice else value)]
                    if where == "--set"
                    else []
                )
        for text in self.choices:
            path, written = _divide(text, "--choose")
            values = tuple(parse_value(one) for one in written.split(",") if one.strip())
            for one in places("--choose", path, f"={written}"):
                if not values or one[0] in sections:
                    expected = "expected a model's parameter and values, such as l2=30,100"
                    raise ConfigError(f"--choose: {expected}, found {text!r}")
                _put(settings, one, Choice(values))
                inherited.append((one, Choice(values)))
        for name in inherit:
            own = flat_settings(settings[name])
            for (base, *rest), value in inherited:
                path = ("base", *rest)
                if (
                    base == RECORDS[name].base
                    and not {"base", "base.model", ".".join(path)} & own.keys()
                ):
                    _put(settings, (name, *path), value)
        return settings


def params_at(model: object, path: Sequence[str]) -> dict[str, Any]:
    """The parameters of a model, or of the model inside it at a path; none where there is no such model."""
    for name in path:
        model = get_params(model).get(name) if is_model(model) else None
    return get_params(model) if is_model(model) else {}


def read_toml(path: Path) -> Table:
    """The tables of a TOML file; a file that cannot be read is refused in one line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        near = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
        raise ConfigError(f"{path}: there is no such file{did_you_mean(path.name, near)}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not TOML: {' '.join(str(error).split())}") from None


def parse_value(text: str) -> Any:
    """What a piece of text means as a TOML value (number, true, "text", [list]), or the text itself."""
    try:
        value = tomllib.loads(f"value = {text.strip()}")["value"]
    except (tomllib.TOMLDecodeError, KeyError, RecursionError):
        return text.strip()
    return value if isinstance(value, str | int | float | bool | list) else text.strip()


def _divide(text: str, option: str) -> tuple[tuple[str, ...], str]:
    key, equals, value = text.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        raise ConfigError(f"{option}: expected key=value, found {text!r}")
    return path, value


def flat_settings(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """The values of nested tables by their dotted names."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        path = f"{above}{name}"
        flat |= flat_settings(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return flat


def _put(settings: dict[str, Table], path: tuple[str, ...], value: Any) -> None:
    table, last = settings.setdefault(path[0], {}), path[-1]
    for name in path[1:-1]:
        if not isinstance(table.get(name), dict):
            # `base = "mult-dae"` says which model; what follows sets that model's own parameters.
            table[name] = {"model": table[name]} if table.get(name) is not None else {}
        table = table[name]
    if isinstance(table.get(last), dict):
        table, last = table[last], "model"
    table[last] = value


def settings_of(name: str, model: Recommender, always: Collection[str]) -> Table:
    """The parameters in which a model differs from the catalogue's of that name, and those named `always`."""
    return _differences(MODELS[name]() if name in MODELS else None, model, always)


def _differences(made: object | None, model: object, always: Collection[str]) -> Table:
    before, table = {} if made is None else get_params(made), Table()
    for name, value in get_params(model).items():
        if name == "seed":  # said elsewhere in a command's settings
            continue
        if is_model(value):
            inner, kind = before.get(name), Table()
            if type(inner) is not type(value):
                makers: dict[str, Callable[[], object]] = {**MODELS, "svd": TruncatedSVD}
                known = (
                    (one, made)
                    for one, make in makers.items()
                    if type(made := make()) is type(value)
                )
                kind["model"], inner = next(known, (None, None))
                if inner is None:
                    what = f"the settings of a {type(value).__name__} cannot be written"
                    raise ConfigError(f"{what}: the catalogue has no such model")
            inside = [one.removeprefix(f"{name}.") for one in always if one.startswith(f"{name}.")]
            if kind := kind | _differences(inner, value, inside):
                table[name] = kind
        elif name in always or name not in before or before[name] != value:
            plain = (
                "none"
                if value is None
                else exact_text(value)
                if isinstance(value, Quantile)
                else value
            )
            if not isinstance(plain, bool | int | float | str):
                raise ConfigError(
                    f"{value!r:.60} cannot be written as a setting; expected a number, a word or none"
                )
            table[name] = plain
    return table


def toml_text(comments: Iterable[str], sections: Mapping[str, Table]) -> str:
    """A TOML file: the lines of comment first, then a table for each section, in their order."""
    lines = [f"# {' '.join(line.split())}".rstrip() for line in comments]

    def write(path: str, table: Mapping[str, Any]) -> None:
        inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
        lines.extend(["", f"[{path}]"])
        # JSON's text, numbers, lists, true and false are TOML's too.
        lines.extend(
            f"{key} = {json.dumps(table[key], allow_nan=False)}"
            for key in table
            if key not in inner
        )
        for key, value in inner.items():
            write(f"{path}.{key}", value)

    for name, table in sections.items():
        write(name, table)
    return "\n".join(lines) + "\n"


def check_unwritable(path: Path, what: str) -> None:
    """Refuses, before any work is done, a place that no file could be written to; `what` says what the file is for."""
    if path.is_dir():
        raise ConfigError(f"{path}: expected a file {what}, found a folder; choose another name")
    parent = path.absolute().parent
    if not parent.is_dir():
        raise ConfigError(
            f"{path}: there is no folder {parent}; make it first, or choose another name"
        )
    if not all(os.access(place, os.W_OK) for place in (parent, path) if place.exists()):
        raise ConfigError(f"{path}: may not be written; choose another name")
