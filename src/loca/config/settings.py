"""The settings of a command: a TOML file, the command's own options and --set key=value, joined."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loca.communities.geometry import Quantile
from loca.config.components import KIND, Kinds, exchanged, kinds_of, kinds_of_each
from loca.errors import ConfigError, did_you_mean
from loca.models.recommender import Recommender, get_params, has_params
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
    """What a user gives to a command: a TOML file, options by section, and --set and --choose."""

    config: Path | None = None
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    assignments: Sequence[str] = ()
    choices: Sequence[str] = ()

    def _entries(self) -> Iterator[tuple[str, tuple[str, ...], Any]]:
        """Yield where each setting comes from, its path and its value; the later ones win."""
        table = {} if self.config is None else read_toml(self.config)
        for name, value in flat_settings(table).items():
            yield str(self.config), tuple(name.split(".")), value
        for section, options in self.options.items():
            for key, value in options.items():
                if value is not None:
                    yield "options", (section, key), value
        for text in self.assignments:
            path, written = _divide(text, "--set")
            for name, value in flat_settings({".".join(path): parse_value(written)}).items():
                yield "--set", tuple(name.split(".")), value

    def section(self, name: str) -> Table:
        """Return the table of one section as `tables` joins it, without a look at the others.

        A command's own section says which models there are, and must be known before keys can be
        told from models.
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
        """Return a table for each section and model.

        --set and --choose win over options, these over the file. A key without a section belongs to
        the only model of the command; `base.` belongs to every model that has a base with such a
        parameter. A file may also speak of the sections and models of other commands, `elsewhere`,
        so that one file serves them all; --set and --choose may not. A list is a choice where it
        stands for a model's parameter, unless it is one of tables, which are components; a section's
        lists are lists. What --set and --choose say of a model also holds for the base of those of
        the models that `inherit`, unless they say otherwise.
        """
        places = _Places((*sections, *models), sections, models, elsewhere)
        settings: dict[str, Table] = {name: {} for name in places.known}
        inherited: list[tuple[tuple[str, ...], Any]] = []
        for where, path, value in self._entries():
            for place in places.of(where, path, f"={value}"):
                setting = value
                if place[0] not in sections and _is_choice(value):
                    setting = Choice(tuple(value))
                _put(settings, place, setting)
                if where == "--set":
                    inherited.append((place, setting))
        for text in self.choices:
            path, written = _divide(text, "--choose")
            values = tuple(parse_value(part) for part in written.split(",") if part.strip())
            for place in places.of("--choose", path, f"={written}"):
                if not values or place[0] in sections:
                    expected = "expected a model's parameter and values, such as l2=30,100"
                    raise ConfigError(f"--choose: {expected}, found {text!r}")
                _put(settings, place, Choice(values))
                inherited.append((place, Choice(values)))
        for name in inherit:
            own = flat_settings(settings[name])
            for (base, *rest), value in inherited:
                path = ("base", *rest)
                is_said = {"base", "base.kind", ".".join(path)} & own.keys()
                if base == RECORDS[name].base and not is_said:
                    _put(settings, (name, *path), value)
        return settings


@dataclass(frozen=True)
class _Places:
    """Where settings belong: which sections and models a command has, and which others have."""

    known: Sequence[str]
    sections: Sequence[str]
    models: Sequence[str]
    elsewhere: Sequence[str]

    def of(self, where: str, path: tuple[str, ...], written: str) -> list[tuple[str, ...]]:
        """Return the full paths of a setting; one that belongs nowhere is refused."""
        first = path[0]
        is_of_section = len(path) > 1
        is_in_file = where not in ("--set", "--choose")
        if is_of_section and (first in self.known or (first in self.elsewhere and is_in_file)):
            return [path]
        if is_of_section and first in self.elsewhere:
            here = ", ".join((*self.models, *self.sections))
            raise ConfigError(f"{where}: {first!r} has no part in this command; what has is {here}")
        if len(self.models) == 1 and first not in self.sections:
            return [(self.models[0], *path)]
        if first in self.known:
            raise ConfigError(f"{where}: {first!r} is a section; expected {first}.option = value")
        return self._of_several(where, path, written)

    def _of_several(self, where: str, path: tuple[str, ...], written: str) -> list[tuple[str, ...]]:
        """Return the full paths of a model's parameter; `base.` is of all that have it."""
        name = ".".join(path)
        # The kind of a component is a setting of what holds it.
        owner = path[:-2] if len(path) > 1 and path[-1] == KIND else path[:-1]
        inside = {model: params_at(MODELS[model](), owner) for model in self.models}
        takers = [model for model, params in inside.items() if path[len(owner)] in params]
        if path[0] == "base" and takers:
            return [(model, *path) for model in takers]
        if takers:
            advice = " or ".join(f"{model}.{name}{written}" for model in takers)
            raise ConfigError(f"{where}: {name!r} of which model? say {advice}")
        if path[0] == "base":
            raise ConfigError(
                f"{where}: none of {', '.join(self.models)} has a base with the parameter "
                f"{path[-1]!r}"
            )
        options = [
            ".".join((model, *owner, parameter))
            for model, params in inside.items()
            for parameter in params
        ]
        near = did_you_mean(path[0], self.known) or did_you_mean(name, options)
        near = near or f"; expected one of {', '.join(self.known)}"
        raise ConfigError(f"{where}: unknown option {name!r}{near}")


def _is_choice(value: Any) -> bool:
    """Return whether a value is a list of values to choose from, and no list of components."""
    return isinstance(value, list) and not any(isinstance(item, Mapping) for item in value)


def params_at(model: object, path: Sequence[str]) -> dict[str, Any]:
    """Return the parameters of the component at a path in a model; none where there is none."""
    component: object = model
    for name in path:
        component = get_params(component).get(name) if has_params(component) else None
    return get_params(component) if has_params(component) else {}


def read_toml(path: Path) -> Table:
    """Return the tables of a TOML file; a file that cannot be read is refused in one line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        near = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
        raise ConfigError(f"{path}: there is no such file{did_you_mean(path.name, near)}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not TOML: {' '.join(str(error).split())}") from None


def parse_value(text: str) -> Any:
    """Return a text as the TOML value that it is (number, true, "text", [list]), or as it is."""
    try:
        value = tomllib.loads(f"value = {text.strip()}")["value"]
    except (tomllib.TOMLDecodeError, KeyError, RecursionError):
        return text.strip()
    return value if isinstance(value, str | int | float | bool | list | dict) else text.strip()


def _divide(text: str, option: str) -> tuple[tuple[str, ...], str]:
    key, equals, value = text.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        raise ConfigError(f"{option}: expected key=value, found {text!r}")
    return path, value


def flat_settings(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return the values of nested tables by their dotted names."""
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
            table[name] = {KIND: table[name]} if table.get(name) is not None else {}
        table = table[name]
    if isinstance(table.get(last), dict):
        table, last = table[last], KIND
    table[last] = value


def settings_of(name: str, model: Recommender, always: Collection[str]) -> Table:
    """Return the parameters in which a model differs from the catalogue's of that name.

    Those named `always` are among them.
    """
    return _differences(MODELS[name]() if name in MODELS else None, model, always)


def _differences(before: object | None, component: object, always: Collection[str]) -> Table:
    """Return the parameters in which a component differs from another of its class, as settings."""
    params = {} if before is None else get_params(before)
    table = Table()
    for name, value in get_params(component).items():
        if name == "seed":  # said elsewhere in a command's settings
            continue
        kinds = kinds_of(component, name)
        inside = [path.removeprefix(f"{name}.") for path in always if path.startswith(f"{name}.")]
        if has_params(value):
            settings = _component_settings(params.get(name), value, kinds, inside)
            if settings:
                table[name] = settings
        elif name in always or name not in params or params[name] != value:
            table[name] = _plain(value, component, name)
    return table


def _component_settings(
    before: object | None, component: object, kinds: Kinds, always: Collection[str]
) -> Table:
    """Return what sets a component apart from the one that a model has without settings."""
    if type(before) is type(component):
        return _differences(before, component, always)
    for kind, make in kinds.items():
        if type(make()) is type(component):
            other = exchanged(before, kind, kinds)
            return {KIND: kind, **_differences(other, component, always)}
    problem = f"the settings of a {type(component).__name__} cannot be written"
    raise ConfigError(f"{problem}: nothing of that class has a name")


def _plain(value: Any, owner: object, parameter: str) -> Any:
    """Return a value as a settings file holds it."""
    if value is None:
        return "none"
    if isinstance(value, Quantile):
        return exact_text(value)
    if isinstance(value, bool | int | float | str):
        return value
    kinds = kinds_of_each(owner, parameter)
    if kinds and isinstance(value, tuple):
        return [_component_settings(None, part, kinds, ()) for part in value]
    raise ConfigError(
        f"{value!r:.60} cannot be written as a setting; expected a number, a word or none"
    )


def toml_text(comments: Iterable[str], sections: Mapping[str, Table]) -> str:
    """Return a TOML file: the comments first, then a table for each section, in their order."""
    lines = [f"# {' '.join(line.split())}".rstrip() for line in comments]

    def write(path: str, table: Mapping[str, Any]) -> None:
        inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
        lines.extend(["", f"[{path}]"])
        lines.extend(f"{key} = {_toml_value(table[key])}" for key in table if key not in inner)
        for key, value in inner.items():
            write(f"{path}.{key}", value)

    for name, table in sections.items():
        write(name, table)
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    """Return a value as TOML writes it; JSON's text, numbers, true and false are TOML's too."""
    if isinstance(value, Mapping):
        pairs = (f"{key} = {_toml_value(inner)}" for key, inner in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    return json.dumps(value, allow_nan=False)


def check_unwritable(path: Path, what: str) -> None:
    """Refuse a place that no file could be written to; `what` says what the file is for."""
    if path.is_dir():
        raise ConfigError(f"{path}: expected a file {what}, found a folder; choose another name")
    parent = path.absolute().parent
    if not parent.is_dir():
        raise ConfigError(
            f"{path}: there is no folder {parent}; make it first, or choose another name"
        )
    if not all(os.access(place, os.W_OK) for place in (parent, path) if place.exists()):
        raise ConfigError(f"{path}: may not be written; choose another name")
