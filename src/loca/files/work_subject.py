"""What unfinished work is about: written, read, and compared with what is asked for now."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loca.errors import ConfigError
from loca.files.checked_json import dump_json, parse_json, take
from loca.files.manifest import seal
from loca.files.model_folder import read_plain

_FORMAT = "loca-unfinished-work"
_VERSION = 1
_LARGEST = 32 * 1024 * 1024
_ABSENT = object()


def subject_bytes(subject: Mapping[str, Any]) -> bytes:
    """The text of subject.json, sealed with a checksum."""
    body = {"subject": dict(subject)}
    return dump_json({"format": _FORMAT, "version": _VERSION, "checksum": seal(body), **body}, indent=1) + b"\n"


def is_subject(path: Path) -> bool:
    """Whether a file is a subject.json of loca's, sound or not."""
    try:
        written = parse_json(read_plain(path, most=_LARGEST))
    except (ValueError, RecursionError):
        return False
    return type(written) is dict and written.get("format") == _FORMAT


def read_subject(path: Path) -> dict[str, Any]:
    """The subject that a subject.json tells of; a damaged one is refused."""
    written = parse_json(read_plain(path, most=_LARGEST))
    try:
        subject: dict[str, Any] = take(written, "subject", dict)
        version, checksum = take(written, "version", int), take(written, "checksum", int)
        if version != _VERSION:
            raise ValueError(f"written in format {version} by another loca")
        if checksum != seal({"subject": subject}):
            raise ValueError("changed or damaged since it was written")
    except ValueError as error:
        raise ConfigError(f"{path}: {error}; start over with --fresh") from None
    return subject


def first_difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """The first thing in which two subjects differ, as a person would say it; None where they are the same."""
    before, after = _flat(then), _flat(now)
    for name in dict.fromkeys((*after, *before)):
        old, new = before.get(name, _ABSENT), after.get(name, _ABSENT)
        # By their JSON: that is what a subject comes back as, and NaN would not even equal itself.
        if old is _ABSENT or new is _ABSENT or dump_json(old) != dump_json(new):
            return _told(name, old, new)
    return None


def _told(name: str, then: Any, now: Any) -> str:
    if name == "data":
        return "the data have changed"
    if name == "loca":
        return f"it was written by loca {then}, this is loca {now}"
    old, new = ("not set" if value is _ABSENT else f"{value}" for value in (then, now))
    return f"{name}: {old} then, {new} now"


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Every value inside nested mappings and lists by its dotted name."""
    inner = (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else None
    )
    if inner is None:
        return {name: value}
    flat: dict[str, Any] = {}
    for key, one in inner:
        flat.update(_flat(one, f"{name}.{key}" if name else str(key)))
    return flat
