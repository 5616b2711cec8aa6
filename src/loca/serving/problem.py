"""Refusals of the service: a status, and what is wrong in one line."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.responses import Response

_TITLES = {
    400: "Bad request",
    401: "Not authorised",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    413: "Body too large",
    421: "Misdirected request",
    422: "Cannot be answered",
    429: "Too many requests",
    500: "Internal error",
    503: "Busy",
}


class ProblemDocument(msgspec.Struct, rename={"kind": "type"}):
    """What is wrong with a request, as RFC 9457 has it."""

    kind: str
    title: str
    status: int
    detail: str


class Problem(Exception):
    """A request that is refused: a status and what is wrong."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})

    def document(self) -> ProblemDocument:
        """Return what is sent."""
        title = _TITLES.get(self.status, "Error")
        return ProblemDocument("about:blank", title, self.status, self.detail)

    def response(self) -> Response:
        """Return the reply."""
        body = msgspec.json.encode(self.document())
        return Response(body, self.status, self.headers, "application/problem+json")


def whole_number(parameters: Mapping[str, str], name: str) -> int:
    """Return a parameter that is a whole number; refuse anything else."""
    number = _read_whole(parameters[name])
    if number is None:
        expected = "a whole number of at most 12 digits"
        raise Problem(422, f"{name}: expected {expected}, found {parameters[name]!r:.60}")
    return number


def number_between(
    parameters: Mapping[str, str], name: str, least: int, most: int, default: int
) -> int:
    """Return a parameter that is a whole number within a range; refuse anything else."""
    text = parameters.get(name, str(default))
    number = _read_whole(text)
    if number is None or not least <= number <= most:
        shown = f"{text!r:.60}" if number is None else f"{number:,}"
        raise Problem(422, f"{name}: expected {least:,} to {most:,}, found {shown}")
    return number


def _read_whole(text: str) -> int | None:
    """Return the whole number that a text of at most 12 digits is, else None."""
    digits = text.removeprefix("-")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) <= 12
    return int(text) if is_number else None
