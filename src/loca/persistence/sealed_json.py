"""JSON files that say their format and version, with a checksum of all that they say."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from loca.persistence.arrays import check_types, dump_json, parse_json
from loca.persistence.atomic_write import read_plain


def sealed_json(form: str, version: int, body: dict[str, Any]) -> bytes:
    """Return the text of a JSON file of a format and version."""
    sealed = {"format": form, "version": version, "checksum": seal(body), **body}
    return dump_json(sealed, indent=1) + b"\n"


def seal(body: Mapping[str, Any]) -> int:
    """Return the CRC-32 of all that a JSON file says, whatever its spaces and line ends."""
    return zlib.crc32(dump_json(body))


def open_sealed(data: bytes, form: str, version: int, advice: str = "") -> Any:
    """Return what a sealed JSON file says; ValueError where format, version or seal is wrong."""
    body = parse_json(data)
    if type(body) is not dict or body.pop("format", None) != form:
        raise ValueError(f"not a loca model: expected the format {form!r}")
    check_types(body, {"version": int, "checksum": int})
    written_version = body.pop("version")
    checksum = body.pop("checksum")
    if written_version > version:
        raise ValueError(
            f"written in format {written_version} by a newer loca, this one reads format "
            f"{version}; upgrade loca"
        )
    if written_version < version:
        raise ValueError(
            f"written in format {written_version} by an earlier loca, this one reads format "
            f"{version}; make it again"
        )
    if checksum != seal(body):
        raise ValueError(f"changed or damaged since it was saved{advice}")
    return body


def holds_format(path: Path, form: str) -> bool:
    """Return whether a file is JSON of a format of loca's, in any version, sound or not."""
    with suppress(ValueError, RecursionError):
        body = parse_json(read_plain(path))
        return type(body) is dict and body.get("format") == form
    return False
