"""What may be tried for a model: a domain for each parameter, points in it, and a budget."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, TypeVar

from loca.communities.geometry import Quantile
from loca.data.recency import parse_age
from loca.errors import ConfigError, check_counts, did_you_mean
from loca.models.params import Strategy, allows_value
from loca.models.recommender import Recommender, clone, has_params
from loca.persistence.manifest import get_params

if TYPE_CHECKING:
    from optuna.trial import Trial

Plain = bool | int | float | str | None
Point = Mapping[str, Plain]
_DIGITS = 4

AnyModel = TypeVar("AnyModel")


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, whole ones where both ends are.

    With `log` they are drawn evenly by their logarithm.
    """

    low: float
    high: float
    log: bool = False

    @property
    def is_whole(self) -> bool:
        """Return whether only whole numbers are drawn."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def draw(self, trial: Trial, name: str) -> None:
        """Draw a value."""
        if self.is_whole:
            trial.suggest_int(name, int(self.low), int(self.high), log=self.log)
        else:
            trial.suggest_float(name, self.low, self.high, log=self.log)

    def value(self, point: Point, name: str) -> Any:
        """Return the parameter's value at a point: of a real number the digits that people read."""
        return point[name] if self.is_whole else float(f"{point[name]:.{_DIGITS}g}")

    def coordinates(self, value: Any, name: str) -> Point | None:
        """Return where a value lies; None where it is outside."""
        kinds = int if self.is_whole else (int, float)
        if (
            isinstance(value, bool)
            or not isinstance(value, kinds)
            or not self.low <= value <= self.high
        ):
            return None
        return {name: value if self.is_whole else float(value)}


def log_range(low: float, high: float) -> Range:
    """Return a range that is drawn from evenly by the logarithm."""
    return Range(low, high, log=True)


@dataclass(frozen=True)
class Among:
    """One of a few values without an order; a quantile is drawn by its text."""

    values: tuple[Plain | Quantile, ...]

    @property
    def drawn(self) -> tuple[Plain, ...]:
        """Return the values as a point holds them."""
        return tuple(
            exact_text(value) if isinstance(value, Quantile) else value for value in self.values
        )

    def draw(self, trial: Trial, name: str) -> None:
        """Draw a value."""
        trial.suggest_categorical(name, self.drawn)

    def value(self, point: Point, name: str) -> Any:
        """Return the parameter's value at a point."""
        return self.values[self.drawn.index(point[name])]

    def coordinates(self, value: Any, name: str) -> Point | None:
        """Return where a value lies; None where it is outside."""
        for possible, drawn in zip(self.values, self.drawn, strict=True):
            if type(possible) is type(value) and possible == value:
                return {name: drawn}
        return None


@dataclass(frozen=True)
class Quantiles:
    """Bandwidths as quantiles of the distances between users, times a factor if one is drawn."""

    level: Range
    times: Range | None = None

    def draw(self, trial: Trial, name: str) -> None:
        """Draw a level, and a factor."""
        self.level.draw(trial, f"{name}.level")
        if self.times is not None:
            self.times.draw(trial, f"{name}.times")

    def value(self, point: Point, name: str) -> Quantile:
        """Return the parameter's value at a point."""
        level = self.level.value(point, f"{name}.level")
        return (
            Quantile(level)
            if self.times is None
            else Quantile(level, self.times.value(point, f"{name}.times"))
        )

    def coordinates(self, value: Any, name: str) -> Point | None:
        """Return where a value lies; None where it is outside."""
        if not isinstance(value, Quantile) or (self.times is None and value.times != 1):
            return None
        level = self.level.coordinates(value.level, f"{name}.level")
        times = {} if self.times is None else self.times.coordinates(value.times, f"{name}.times")
        return None if level is None or times is None else {**level, **times}


Domain = Range | Among | Quantiles


def exact_text(quantile: Quantile) -> str:
    """Return a quantile with every digit, as a setting is written; its `str` is shorter."""
    return (
        f"{quantile.times!r}*q{quantile.level!r}" if quantile.times != 1 else f"q{quantile.level!r}"
    )


@dataclass(frozen=True)
class Space:
    """A domain for each parameter that is tried, by its dotted name, such as `base.l2`.

    `fixed` are values that every point has; `same` lets one parameter have the value of another.
    `kinds` names the components of which the space speaks: a model that has others there begins
    with these, unless others were chosen.
    """

    domains: Mapping[str, Domain] = field(default_factory=dict)
    fixed: Mapping[str, Plain] = field(default_factory=dict)
    same: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{name} {domain}" for name, domain in self.domains.items()]
        lines += [f"{name} = {value!r}" for name, value in self.fixed.items()]
        return (
            "; ".join([*lines, *(f"{name} = {source}" for name, source in self.same.items())])
            or "nothing to try"
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Return all parameters that the space speaks of."""
        return (*self.domains, *self.fixed, *self.same)

    def draw(self, trial: Trial) -> None:
        """Draw a value for everything that is tried."""
        for name, domain in self.domains.items():
            domain.draw(trial, name)

    def apply(self, model: AnyModel, point: Point) -> AnyModel:
        """Return a copy of the model with the parameters of a point; all others stay."""
        values: dict[str, Any] = {
            name: domain.value(point, name) for name, domain in self.domains.items()
        }
        values |= self.fixed
        values |= {name: values[source] for name, source in self.same.items()}
        return clone(model, **{name.replace(".", "__"): value for name, value in values.items()})

    def coordinates(self, model: Recommender) -> dict[str, Plain] | None:
        """Return the point at which the model lies; None where it lies outside the space."""
        values = {name: value_at(model, name) for name in self.names}
        point: dict[str, Plain] = {}
        for name, domain in self.domains.items():
            coordinates = domain.coordinates(values[name], name)
            if coordinates is None:
                return None
            point |= coordinates
        others = {**self.fixed, **{name: values[source] for name, source in self.same.items()}}
        return point if all(values[name] == value for name, value in others.items()) else None

    def grid(self, largest: int = 10_000) -> list[dict[str, Plain]] | None:
        """Return all points, the last parameter changing first.

        None where they are endless, or more than `largest`.
        """
        values = [domain.drawn for domain in self.domains.values() if isinstance(domain, Among)]
        if len(values) < len(self.domains) or math.prod(map(len, values)) > largest:
            return None
        return [dict(zip(self.domains, point, strict=True)) for point in product(*values)]

    def of_parameters(self, model: Recommender) -> Space:
        """Return the space of those parameters that the model's strategies have.

        The space of a local model speaks of the parameters of every kind of communities; of the
        values of one those are left that it may have.
        """
        space = self.without([name for name in self.names if not _has_parameter(model, name)])
        domains = {name: _possible(domain, model, name) for name, domain in space.domains.items()}
        return replace(space, domains=domains)

    def without(self, names: Collection[str]) -> Space:
        """Return the space in which some parameters, and what belongs to them, are not tried."""
        left = [name for name in self.names if not is_named(name, names)]
        domains = {name: domain for name, domain in self.domains.items() if name in left}
        fixed = {name: value for name, value in self.fixed.items() if name in left}
        same = {
            name: source for name, source in self.same.items() if name in left and source in domains
        }
        return replace(self, domains=domains, fixed=fixed, same=same)


@dataclass(frozen=True)
class SpaceConstraints:
    """What a user has set of a model's parameters, by their dotted names.

    The `fixed` stay as the model has them, the `listed` are tried at these values alone, all others
    as the space says.
    """

    fixed: tuple[str, ...] = ()
    listed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def mentions(self, name: str) -> bool:
        """Return whether a parameter, or the component that it belongs to, was set or listed."""
        return is_named(name, (*self.fixed, *self.listed))

    def narrow(self, space: Space) -> Space:
        """Return what is left of a space; what has the value of a listed parameter follows it."""
        space = space.without(self.fixed)
        for name, values in self.listed.items():
            followers = {other: name for other, source in space.same.items() if source == name}
            left = space.without([name])
            space = replace(
                left,
                domains={**left.domains, name: Among(values)},
                same={**left.same, **followers},
            )
        return space


def value_at(model: object, name: str) -> Any:
    """Return the value of a parameter by its dotted name, such as `communities.n`.

    An unknown one is refused with the nearest right one.
    """
    head, _, rest = name.partition(".")
    params = get_params(model) if has_params(model) else {}
    if head not in params:
        kind = type(model).__name__
        raise ConfigError(
            f"space: unknown parameter {head!r} for {kind}{did_you_mean(head, params)}"
        )
    return value_at(params[head], rest) if rest else params[head]


def _has_parameter(model: object, name: str) -> bool:
    """Return whether a model has a parameter; an unknown one, not of a strategy, is refused."""
    head, _, rest = name.partition(".")
    if isinstance(model, Strategy) and head not in get_params(model):
        return False
    value = value_at(model, head)
    return not rest or _has_parameter(value, rest)


def _possible(domain: Domain, model: object, name: str) -> Domain:
    """Return the values of a domain that a parameter may have."""
    above, _, parameter = name.rpartition(".")
    owner = value_at(model, above) if above else model
    if not isinstance(domain, Among) or not isinstance(owner, Strategy):
        return domain
    return Among(tuple(value for value in domain.values if allows_value(owner, parameter, value)))


def is_named(name: str, names: Collection[str]) -> bool:
    """Return whether a dotted name, or one that it begins with, is among the names."""
    return any(name == other or name.startswith(f"{other}.") for other in names)


@dataclass(frozen=True, init=False)
class Budget:
    """Limit what a search or tuning may spend on each model; at least one limit is needed.

    Tuning ends at whichever limit comes first. For `Auto` a number of trials alone counts.

    Parameters
    ----------
    seconds : float, str or None, default None
        The most seconds that the trials of a model take together, or a time as text, such as
        `"12min"`, `"2h"` or `"600"`.
    trials : int or None, default None
        The most trials of a model, finished or pruned.

    Examples
    --------
    >>> budget = loca.Budget(trials=20, seconds=600)
    >>> print(budget)
    20 trials or 600 s per model
    >>> budget.has_room(trials=19, seconds=700)
    False
    >>> loca.Budget("12min")
    Budget(seconds=720.0, trials=None)
    """

    seconds: float | None = None
    trials: int | None = None

    def __init__(self, seconds: float | str | None = None, trials: int | None = None) -> None:
        if seconds is None and trials is None:
            raise ConfigError(
                "tuning needs a budget; expected a number of trials, of seconds, or both"
            )
        if trials is not None:
            check_counts(trials=trials)
        # A frozen dataclass lets nobody set its fields, itself included.
        object.__setattr__(self, "seconds", None if seconds is None else read_seconds(seconds))
        object.__setattr__(self, "trials", trials)

    @classmethod
    def of(cls, value: Budget | float | str | None) -> Budget | None:
        """Make a budget of what a user gives for one.

        Parameters
        ----------
        value : Budget, float, str or None
            A budget stays as it is, None is no budget; a number is one of seconds, and so is a
            text such as `"12min"`.

        Returns
        -------
        Budget or None

        Raises
        ------
        ConfigError
            Where it is anything else, or no time.

        Examples
        --------
        >>> loca.Budget.of(600)
        Budget(seconds=600, trials=None)
        >>> loca.Budget.of("2h") == loca.Budget(seconds=7200)
        True
        """
        if value is None or isinstance(value, Budget):
            return value
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ConfigError(
                "budget: expected seconds such as 600, a time such as '12min' or "
                f"loca.Budget(trials=20), found {value!r:.60}"
            )
        return cls(value)

    def __str__(self) -> str:
        limits = []
        if self.trials is not None:
            limits.append("1 trial" if self.trials == 1 else f"{self.trials} trials")
        if self.seconds is not None:
            limits.append(f"{self.seconds:g} s")
        return f"{' or '.join(limits)} per model"

    def has_room(self, trials: int, seconds: float) -> bool:
        """Say whether another trial may begin.

        Parameters
        ----------
        trials : int
            Trials so far.
        seconds : float
            Seconds so far.

        Returns
        -------
        bool
        """
        return (self.trials is None or trials < self.trials) and (
            self.seconds is None or seconds < self.seconds
        )


def read_seconds(value: float | str) -> float:
    """Return the seconds that a number or a text such as `12min` means; refuse anything else."""
    seconds = value
    if isinstance(value, str):
        age = parse_age(value)
        # Nobody knows how many seconds the steps of a time column are.
        if age is None or "step" in value.lower():
            raise ConfigError(f"seconds: expected a time such as 600, 12min or 2h, found {value!r}")
        seconds = age[0]
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not 0 < seconds < math.inf
    ):
        raise ConfigError(f"seconds: expected a number above 0, found {value!r}")
    return seconds
