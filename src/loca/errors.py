"""What can go wrong, in four kinds; every message says what was expected, what was found and what to do."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class LocaError(Exception):
    """Any mistake that a user of the library can mend; commands print it as one line and exit with code 2."""


class DataError(LocaError):
    """The interactions, or what is requested of them, are not what was expected."""


class NothingLeftError(DataError):
    """Filters left no interaction."""


class ConfigError(LocaError):
    """A parameter has an unknown name or an impossible value."""


class NotFittedError(LocaError):
    """A model was used before it was fitted."""


class ModelFileError(LocaError):
    """A model folder is missing, damaged, foreign, or could not be written."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a sentence that names the nearest known words: "; did you mean 'ease'?", or nothing."""
    close = difflib.get_close_matches(word, list(known), n=3, cutoff=0.6)
    if not close:
        return ""
    return "; did you mean " + " or ".join(repr(name) for name in close) + "?"


def check_choice(name: str, value: str, known: Iterable[str]) -> None:
    """Refuse a value that is not among the known ones, naming the nearest."""
    if value not in (choices := list(known)):
        nearest = (
            did_you_mean(str(value), choices) or f"; expected {' or '.join(map(repr, choices))}"
        )
        raise ConfigError(f"unknown {name} {value!r}{nearest}")


def check_kind(name: str, value: object, kind: type, advice: str) -> None:
    """Refuse, by its name, data of another kind."""
    if not isinstance(value, kind):
        raise DataError(f"{name}: expected {kind.__name__}, found {type(value).__name__}; {advice}")


def check_counts(**counts: object) -> None:
    """Refuse, by its name, anything but a whole number of at least 1."""
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ConfigError(f"{name}: expected a whole number ≥ 1, found {count!r}")


class ArgumentError(ConfigError, TypeError):
    """A function or a class was called with an argument that it does not have."""


def check_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse, in a decorated function, an argument with an unknown name, and name the nearest."""
    names = [name for name in inspect.signature(function).parameters if name != "self"]

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        check_argument_names(function.__name__, names, kwargs)
        return function(*args, **kwargs)

    return checked


def check_argument_names(function: str, known: Sequence[str], given: Iterable[str]) -> None:
    """Refuse the first argument that a function does not know, with the nearest that it does."""
    for name in given:
        if name not in known:
            nearest = did_you_mean(name.lower(), known) or f"; it takes {', '.join(known)}"
            raise ArgumentError(f"{function}: unknown argument {name!r}{nearest}")
