"""Parameters of models and strategies, each declared with the check that refuses a wrong value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_args

import numpy as np

from loca.errors import ConfigError
from loca.persistence.manifest import check_decorated


def param(default: Any, expected: str, is_valid: Callable[[Any], bool]) -> Any:
    """Declare a parameter with its check; the default `...` stands for a parameter without one."""
    metadata = {"param": (expected, is_valid)}
    if default is ...:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


def number(
    default: float | None,
    expected: str,
    is_valid: Callable[[float], bool],
    *,
    optional: bool = False,
) -> Any:
    """Declare a number with some property; an optional one may be None."""

    def is_such_a_number(value: Any) -> bool:
        return (optional and value is None) or (is_number(value) and is_valid(value))

    return param(default, f"{expected} or none" if optional else expected, is_such_a_number)


def whole(default: int | None, least: int = 1, *, optional: bool = False) -> Any:
    """Declare a whole number from `least` on; an optional one may be None."""

    def is_valid(value: Any) -> bool:
        return (optional and value is None) or (type(value) is int and value >= least)

    expected = f"a whole number ≥ {least}"
    return param(default, f"{expected} or none" if optional else expected, is_valid)


def positive(default: float | None, *, optional: bool = False) -> Any:
    """Declare a finite number above 0."""
    return number(default, "a number above 0", lambda n: 0 < n < math.inf, optional=optional)


def not_negative(default: float) -> Any:
    """Declare a finite number from 0 on."""
    return number(default, "a number ≥ 0", lambda n: 0 <= n < math.inf)


def share(default: float | None, *, optional: bool = False) -> Any:
    """Declare a number from 0 to 1."""
    return number(default, "a number from 0 to 1", lambda n: 0 <= n <= 1, optional=optional)


def share_below_1(default: float) -> Any:
    """Declare a number from 0 on and below 1, such as a probability to drop."""
    return number(default, "a number from 0 to below 1", lambda n: 0 <= n < 1)


def seed_param() -> Any:
    """Declare the seed of everything that a model draws."""
    return param(0, "a whole number", lambda value: type(value) is int)


def choice(default: str, words: Any) -> Any:
    """Declare one of the words of a `Literal`."""
    allowed = get_args(words)
    return param(default, " or ".join(map(repr, allowed)), lambda value: value in allowed)


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """An exchangeable part of a model's behaviour: a frozen value with parameters of its own."""

    def __post_init__(self) -> None:
        check_params(self)


def check_params(owner: Any) -> None:
    """Refuse parameters that their fields do not allow; numbers of numpy become plain ones."""
    kind: type = type(owner)
    check_decorated(kind)
    for declared in fields(owner):
        if "param" not in declared.metadata:
            continue
        expected, is_valid = declared.metadata["param"]
        value = getattr(owner, declared.name)
        if isinstance(value, np.generic):
            value = value.item()
            object.__setattr__(owner, declared.name, value)
        check_param(declared.name, value, expected, is_valid)


def allows_value(owner: Any, parameter: str, value: Any) -> bool:
    """Return whether a parameter of a model or a strategy may have a value, by its declaration."""
    declarations = {declared.name: declared.metadata for declared in fields(owner)}
    metadata: Mapping[str, Any] = declarations.get(parameter, {})
    if "param" not in metadata:
        return True
    _, is_valid = metadata["param"]
    return _is_allowed(value, is_valid)


def check_param(name: str, value: Any, expected: str, is_valid: Callable[[Any], bool]) -> None:
    """Refuse a value that is not valid, with what was expected."""
    if _is_allowed(value, is_valid):
        return
    text = " ".join(f"{value!r:.60}".split())
    if isinstance(value, type):
        text = f"the class {value.__name__}; write {value.__name__}()"
    raise ConfigError(f"{name}: expected {expected}, found {text}")


def _is_allowed(value: Any, is_valid: Callable[[Any], bool]) -> bool:
    """Return whether a value is valid; text where a number is expected, say, is not."""
    try:
        return bool(is_valid(value))
    except (TypeError, ValueError):
        return False


def is_number(value: object) -> bool:
    """Return whether a value is a number; truth values are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)
