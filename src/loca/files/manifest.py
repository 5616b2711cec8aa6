"""What model.json says: the kind of model, its parameters and facts, and every file and array beside it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from loca.files.array_files import ArrayFile
from loca.files.checked_json import dump_json, parse_json, take
from loca.files.model_folder import is_own_name

FORMAT = "loca-model"
VERSION = 1
LARGEST_MANIFEST = 32 * 1024 * 1024


@dataclass(frozen=True)
class WrittenModel:
    """One model of the tree: what its constructor takes, what it has learned, and the models inside it."""

    kind: str
    params: Mapping[str, Any]
    facts: Mapping[str, Any]
    arrays: ArrayFile | None
    shares_known: bool
    parts: Mapping[str, WrittenModel] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "params": self.params,
            "facts": self.facts,
            "arrays": None if self.arrays is None else self.arrays.as_json(),
            "shares_known": self.shares_known,
            "parts": {name: part.as_json() for name, part in self.parts.items()},
        }

    @classmethod
    def from_json(cls, written: Any) -> WrittenModel:
        arrays = take(written, "arrays", dict, type(None))
        return cls(
            kind=take(written, "kind", str),
            params=take(written, "params", dict),
            facts=take(written, "facts", dict),
            arrays=None if arrays is None else ArrayFile.from_json(arrays),
            shares_known=take(written, "shares_known", bool),
            parts={name: cls.from_json(part) for name, part in take(written, "parts", dict).items()},
        )

    def array_files(self) -> Iterator[ArrayFile]:
        """The array files of this model and of all models inside it."""
        if self.arrays is not None:
            yield self.arrays
        for part in self.parts.values():
            yield from part.array_files()


@dataclass(frozen=True)
class WrittenKnown:
    """The interactions the model was fitted on: two files of ids, one of arrays, and their recency."""

    users: str
    items: str
    checksums: tuple[int, int]
    arrays: ArrayFile
    recency: Mapping[str, Any] | None

    def __post_init__(self) -> None:
        dtypes = {name: note.dtype for name, note in self.arrays.notes.items() if name != "times"}
        if dtypes != {"offsets": "I64", "item_rows": "I32"}:
            raise ValueError(f"known interactions: expected offsets, item_rows and times, found {dtypes!r:.100}")

    def as_json(self) -> dict[str, Any]:
        return {
            "users": self.users,
            "items": self.items,
            "checksums": list(self.checksums),
            "arrays": self.arrays.as_json(),
            "recency": self.recency,
        }

    @classmethod
    def from_json(cls, written: Any) -> WrittenKnown:
        users, items = take(written, "checksums", list)
        return cls(
            users=take(written, "users", str),
            items=take(written, "items", str),
            checksums=(users, items),
            arrays=ArrayFile.from_json(take(written, "arrays", dict)),
            recency=take(written, "recency", dict, type(None)),
        )


@dataclass(frozen=True)
class Manifest:
    """The whole of model.json; `files` gives the size in bytes of each data file."""

    model: WrittenModel
    known: WrittenKnown | None
    files: Mapping[str, int]
    written_by: Mapping[str, str]

    def __post_init__(self) -> None:
        for name, size in self.files.items():
            if not is_own_name(name) or type(size) is not int:
                raise ValueError(f"{name!r:.60} with {size!r:.60} bytes is not a data file of a loca model")
        named = {one.name for one in self.array_files()} | set(self.id_files())
        if named != set(self.files):
            raise ValueError(f"{min(named ^ set(self.files))!r:.60} is not both listed and used")

    def array_files(self) -> list[ArrayFile]:
        """All array files: the models' and that of the known interactions."""
        known = [] if self.known is None else [self.known.arrays]
        return [*self.model.array_files(), *known]

    def id_files(self) -> list[str]:
        """The names of the JSON files beside model.json."""
        return [] if self.known is None else [self.known.users, self.known.items]

    def to_bytes(self) -> bytes:
        """The text of model.json, sealed with a checksum of all that it says."""
        body = {
            "written_by": dict(self.written_by),
            "files": dict(self.files),
            "known": None if self.known is None else self.known.as_json(),
            "model": self.model.as_json(),
        }
        sealed = {"format": FORMAT, "version": VERSION, "checksum": seal(body), **body}
        return dump_json(sealed, indent=1) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """What a model.json says, once its format, version and seal are right; a ValueError otherwise."""
        written = parse_json(data)
        if type(written) is not dict or written.get("format") != FORMAT:
            raise ValueError(f"not a loca model: expected the format {FORMAT!r}")
        version = take(written, "version", int)
        if version > VERSION:
            raise ValueError(
                f"written in format {version} by a newer loca, this one reads up to {VERSION}; upgrade loca"
            )
        if version < 1:
            raise ValueError(f"unknown format version {version}")
        checksum = take(written, "checksum", int)
        body = {name: value for name, value in written.items() if name not in ("format", "version", "checksum")}
        if checksum != seal(body):
            raise ValueError("changed or damaged since it was saved; copy the folder again or save the model anew")
        known = take(body, "known", dict, type(None))
        return cls(
            model=WrittenModel.from_json(take(body, "model", dict)),
            known=None if known is None else WrittenKnown.from_json(known),
            files=take(body, "files", dict),
            written_by=take(body, "written_by", dict),
        )


def seal(body: Mapping[str, Any]) -> int:
    """The CRC-32 of all that a manifest says, whatever its spaces and line ends."""
    return zlib.crc32(dump_json(body))


def is_manifest(data: bytes) -> bool:
    """Whether a model.json is one of loca's, of any version, sound or not."""
    try:
        written = parse_json(data)
    except (ValueError, RecursionError):
        return False
    return type(written) is dict and written.get("format") == FORMAT
