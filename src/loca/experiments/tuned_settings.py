"""Tuned settings as a TOML file that the other commands take as it is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loca.catalogue import MODELS
from loca.communities.embeddings import TruncatedSVD
from loca.communities.geometry import Quantile
from loca.errors import ConfigError
from loca.experiments.settings import Table
from loca.files.model_state import get_params, is_model
from loca.models.recommender import Recommender

# What the settings of a command say elsewhere, or what is no choice of anybody's.
_LEFT_OUT = ("seed", "device")


def settings_of(name: str, model: Recommender, always: Collection[str]) -> Table:
    """The parameters in which a model differs from the catalogue's of that name, and those named `always`."""
    made = MODELS[name]() if name in MODELS else None
    return _differences(made, model, always)


def toml_text(comments: Iterable[str], sections: Mapping[str, Table]) -> str:
    """A TOML file: the lines of comment first, then a table for each section, in their order."""
    lines = [f"# {' '.join(line.split())}".rstrip() for line in comments]
    for name, table in sections.items():
        lines += _table_lines((name,), table)
    return "\n".join(lines) + "\n"


def refuse_unwritable(path: Path) -> None:
    """Refuses, before any trial, a file that the settings could not be written to."""
    if path.is_dir():
        raise ConfigError(f"{path}: expected a file to write settings into, found a folder; choose another name")
    parent = path.absolute().parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise ConfigError(f"{path}: cannot be written, {parent} is no folder that may be; choose another name")


def _differences(made: object | None, model: object, always: Collection[str]) -> Table:
    before = {} if made is None else get_params(made)
    table: Table = {}
    for name, value in get_params(model).items():
        if name in _LEFT_OUT:
            continue
        inside = [one.removeprefix(f"{name}.") for one in always if one.startswith(f"{name}.")]
        if is_model(value):
            inner = _inner(before.get(name), value, inside)
            if inner:
                table[name] = inner
        elif name in always or name not in before or before[name] != value:
            table[name] = _plain(value)
    return table


def _inner(before: object | None, value: object, always: Collection[str]) -> Table:
    """The settings of a model inside another; one of another kind is named first."""
    if type(before) is type(value):
        return _differences(before, value, always)
    makers: dict[str, Callable[[], object]] = {**MODELS, "svd": TruncatedSVD}
    for name, make in makers.items():
        made = make()
        if type(made) is type(value):
            return {"model": name, **_differences(made, value, always)}
    raise ConfigError(f"the settings of a {type(value).__name__} cannot be written: the catalogue has no such model")


def _plain(value: Any) -> Any:
    """A parameter as the settings of a command hold it."""
    if value is None:
        return "none"
    if isinstance(value, Quantile):
        # Every digit: the words of a quantile for people are shorter.
        return f"{value.times!r}*q{value.level!r}" if value.times != 1 else f"q{value.level!r}"
    if isinstance(value, bool | int | float | str):
        return value
    raise ConfigError(f"{value!r:.60} cannot be written as a setting; expected a number, a word or none")


def _table_lines(path: Sequence[str], table: Table) -> list[str]:
    own = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    lines = ["", f"[{'.'.join(path)}]", *(f"{key} = {_toml(value)}" for key, value in own.items())]
    for key, value in inner.items():
        lines += _table_lines((*path, key), dict(value))
    return lines


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    # JSON's text, numbers, true and false are TOML's too.
    return json.dumps(value, ensure_ascii=True, allow_nan=False)
