"""The registry of data sets: how each is written, where it lies, whose it is, and what the paper does with it.

The records themselves stand in datasets.toml.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeVar

from loca.data.id_map import Column
from loca.errors import ConfigError, did_you_mean

_IN_ORDER: Mapping[str, Column] = {"user": 0, "item": 1, "rating": 2, "time": 3}


@dataclass(frozen=True)
class Layout:
    """How a published file is written.

    Parameters
    ----------
    separators : tuple of str
        Those that the file may have; none for JSON lines.
    members : tuple of str
        The names of the table inside the published zip or folder.
    columns : mapping
        Role to column; empty where the order of the columns must be read off the ids.
    is_lists : bool
        Whether a line is a user and then the user's items.
    """

    name: str
    about: str
    separators: tuple[str, ...] = (",",)
    members: tuple[str, ...] = ()
    columns: Mapping[str, Column] = field(default_factory=lambda: _IN_ORDER)
    is_lists: bool = False

    @property
    def is_json(self) -> bool:
        return not self.separators


@dataclass(frozen=True)
class Checksum:
    """The sum of a file's bytes, and who states it: the publisher, this project, or only the download itself.

    This project states those of copies that it measured. A download's own sum notices only damage that comes later.
    """

    algorithm: Literal["md5", "sha256"]
    digest: str
    origin: Literal["publisher", "project", "download"]

    @property
    def title(self) -> str:
        """MD5 or SHA-256."""
        return "MD5" if self.algorithm == "md5" else "SHA-256"


@dataclass(frozen=True)
class Licence:
    """Who made a data set, what they allow, in a few words and in a sentence, and where the terms are."""

    maker: str = ""
    short: str = ""
    terms: str = ""
    address: str = ""


@dataclass(frozen=True)
class Printed:
    """A row of the paper's Table 1; sparsity and concentration in percent."""

    users: int
    items: int
    ratings: int
    sparsity: float
    concentration: float


@dataclass(frozen=True)
class DataSet:
    """One data set.

    Parameters
    ----------
    name : str
        Its name for commands, and that of its folder below the data folder.
    label : str
        Its name in tables.
    files : tuple of str
        Its file below the data folder; the first that is there counts.
    layouts : tuple of str
        How these files may be written; none where the file itself says it.
    validation : int
        How many of each user's items before the test items are held out for validation.
    titles : tuple of str
        The file of titles and genres below the data folder.
    printed : Printed or None
        The paper's row of Table 1 where the paper has the data set; its treatment is then the preset `label`.
    file_name, addresses, licence, checksum, size
        What is downloaded; the addresses are tried in turn, and there are none where nobody offers the file. The
        checksum is None where nobody states one, the size where none is known before the server says it.
    """

    name: str
    label: str
    files: tuple[str, ...]
    layouts: tuple[str, ...] = ()
    about: str = ""
    validation: int = 2
    titles: tuple[str, ...] = ()
    printed: Printed | None = None
    file_name: str = ""
    addresses: tuple[str, ...] = ()
    licence: Licence = Licence()
    checksum: Checksum | None = None
    size: int | None = None

    @property
    def preset(self) -> str | None:
        """The name of the paper's treatment, in small letters; None where the paper has none."""
        return None if self.printed is None else self.label.lower()

    def reading_command(self, path: Path) -> str:
        """The command that looks at the downloaded file: by the paper's preset where there is one, else by layout."""
        how = f"--layout {self.layouts[0]}" if self.preset is None else f"--preset {self.preset}"
        return f"loca data describe {shlex.quote(str(path))} {how}"


_KINDS = {"printed": Printed, "licence": Licence, "checksum": Checksum}


def _fields(table: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a record of datasets.toml: lists become tuples, tables the records that they stand for."""
    made = {key: tuple(value) for key, value in table.items() if isinstance(value, list)}
    return {
        **table,
        **made,
        **{key: kind(**table[key]) for key, kind in _KINDS.items() if key in table},
    }


_TABLES = tomllib.loads(files("loca.data").joinpath("datasets.toml").read_text(encoding="utf-8"))
LAYOUTS = {name: Layout(name, **_fields(table)) for name, table in _TABLES["layouts"].items()}
DATA_SETS = {name: DataSet(name, **_fields(table)) for name, table in _TABLES["data_sets"].items()}
PUBLIC_SETS = {one.name: one for one in DATA_SETS.values() if one.addresses}
PRESETS = {one.label: one for one in DATA_SETS.values() if one.printed}
PRINTED = {name: one.printed for name, one in PRESETS.items() if one.printed}

Record = TypeVar("Record", Layout, DataSet)


def find_layout(name: str) -> Layout:
    """The layout of that name; an unknown one is refused with the nearest."""
    return _find(name, LAYOUTS, "layout")


def find_set(name: str) -> DataSet:
    """The public data set of that name, in any case; an unknown one is refused with the nearest."""
    return _find(name, PUBLIC_SETS, "data set")


def find_preset(name: str) -> DataSet:
    """The data set of the paper of that label, in any case; an unknown one is refused with the nearest."""
    return _find(name, PRESETS, "preset")


def _find(name: str, records: Mapping[str, Record], what: str) -> Record:
    found = next(
        (record for known, record in records.items() if known.lower() == name.lower()), None
    )
    if found is None:
        nearest = did_you_mean(name, records) or did_you_mean(name.lower(), records)
        raise ConfigError(
            f"unknown {what} {name!r}{nearest or '; known are ' + ', '.join(records)}"
        )
    return found
