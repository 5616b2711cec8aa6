"""Where two documents differ, as far as processors may not."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

# What a closed form may differ by between processors, and a network after training.
EXACT = 1e-5
TRAINED = 5e-3
# Values that tell of the machine, the hour or the version; their keys and kinds are compared all
# the same. So are the weights of Auto's blend: of a grid, where neighbours are nearly equal.
UNCERTAIN = {
    "seconds",
    "free",
    "found",
    "found machine",
    "found torch",
    "is_here",
    "chosen.columns",
}
# Of differences between networks: one exchanged pair of items changes them at will.
CHANCES = {"t", "t_p", "t_p_holm"}
# Of all differences: it ranks users, and users whose differences are equal but for the last bit
# change places.
RANKED = "wilcoxon"
RANKED_TOLERANCE = 0.02
_NUMBER = re.compile(r"[-+]?\d+\.\d+(?:e[-+]?\d+)?")


def differences(actual: Any, golden: Any, *, at: str = "", loose: bool = False) -> list[str]:
    """Return a line for each place where two documents differ.

    Keys, kinds and words are compared exactly, numbers (in texts too) within what processors do;
    `loose` compares what networks have learned.
    """
    if isinstance(actual, dict) and isinstance(golden, dict):
        return _differences_of_objects(actual, golden, at, loose)
    if isinstance(actual, list) and isinstance(golden, list):
        if len(actual) != len(golden):
            return [f"{at}: {len(actual)} entries, not {len(golden)}"]
        return [
            line
            for number, (value, expected) in enumerate(zip(actual, golden, strict=True))
            for line in differences(value, expected, at=f"{at}[{number}]", loose=loose)
        ]
    if isinstance(golden, str) and isinstance(actual, str):
        return _differences_of_texts(actual, golden, at, loose)
    if isinstance(golden, float) and isinstance(actual, float):
        return [] if _is_near(actual, golden, loose) else [f"{at}: {actual}, not {golden}"]
    if type(actual) is type(golden) and actual == golden:
        return []
    return [f"{at}: {actual!r}, not {golden!r}"]


def _differences_of_objects(
    actual: dict[str, Any], golden: dict[str, Any], at: str, loose: bool
) -> list[str]:
    if list(actual) != list(golden):
        return [f"{at}: keys {list(actual)}, not {list(golden)}"]
    loose = loose or _is_of_networks(golden)
    lines: list[str] = []
    for key, expected in golden.items():
        inside = f"{at}.{key}"
        if loose and key in CHANCES:
            continue
        if key in UNCERTAIN:
            lines += _differences_of_kinds(actual[key], expected, inside)
        elif key.startswith(RANKED):
            lines += _differences_of_ranks(actual[key], expected, inside, loose)
        else:
            lines += differences(actual[key], expected, at=inside, loose=loose)
    return lines


def _is_of_networks(document: dict[str, Any]) -> bool:
    names = [document.get(key) for key in ("name", "model", "first", "second")]
    return any(isinstance(name, str) and ("vae" in name or "dae" in name) for name in names)


def _differences_of_kinds(actual: Any, golden: Any, at: str) -> list[str]:
    numbers = (int, float)
    both_numbers = isinstance(actual, numbers) and isinstance(golden, numbers)
    is_alike = type(actual) is type(golden) or both_numbers
    if is_alike and isinstance(golden, dict):
        is_alike = list(actual) == list(golden)
    if is_alike:
        return []
    return [f"{at}: a {type(actual).__name__}, not a {type(golden).__name__}"]


def _differences_of_ranks(actual: Any, golden: Any, at: str, loose: bool) -> list[str]:
    lines = _differences_of_kinds(actual, golden, at)
    if lines or loose or not golden or abs(float(actual) - float(golden)) <= RANKED_TOLERANCE:
        return lines
    return [f"{at}: {actual}, not {golden}"]


def _is_near(actual: float, golden: float, loose: bool, step: float = 0.0) -> bool:
    relative, absolute = (TRAINED, TRAINED / 2) if loose else (EXACT, EXACT / 10)
    absolute += 1.01 * step
    return bool(np.isclose(actual, golden, rtol=relative, atol=absolute, equal_nan=True))


def _differences_of_texts(actual: str, golden: str, at: str, loose: bool) -> list[str]:
    """Compare texts but for numbers with a point, whose last digit may be rounded the other way."""
    line = f"{at}: {actual!r}, not {golden!r}"
    if _NUMBER.sub("…", actual) != _NUMBER.sub("…", golden):
        return [line]
    pairs = zip(_NUMBER.findall(actual), _NUMBER.findall(golden), strict=True)
    is_near = all(
        _is_near(float(number), float(expected), loose, _last_digit(expected))
        for number, expected in pairs
    )
    return [] if is_near else [line]


def _last_digit(number: str) -> float:
    digits, _, power = number.partition("e")
    return float(10.0 ** (int(power or 0) - len(digits.partition(".")[2])))
