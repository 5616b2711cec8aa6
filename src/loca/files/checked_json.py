"""JSON that is trusted only as far as it has been checked: every value is taken by name and type."""

from __future__ import annotations

import json
from typing import Any


def dump_json(value: Any, *, indent: int | None = None) -> bytes:
    """The JSON text of a value, readable where the text is; any text comes back, broken surrogates too."""
    separators = (",", ":") if indent is None else None
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators).encode(errors="surrogatepass")


def parse_json(data: bytes) -> Any:
    """The value of a JSON text; ValueError or RecursionError where there is none."""
    try:
        return json.loads(data.decode(errors="surrogatepass"))
    except ValueError as error:
        raise ValueError(f"not valid JSON; damaged or not a loca model ({error})") from None


def take(written: Any, name: str, *types: type) -> Any:
    """The value called `name` of a JSON object, of one of the types; a ValueError says what was found."""
    if type(written) is not dict:
        raise ValueError(f"expected an object with {name!r}, found {written!r:.60}")
    if name not in written:
        raise ValueError(f"{name!r} is missing")
    value = written[name]
    if type(value) not in types:
        expected = " or ".join(kind.__name__ for kind in types)
        raise ValueError(f"{name!r}: expected {expected}, found {value!r:.60}")
    return value
