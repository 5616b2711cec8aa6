"""Choose on validation how a fitted model's histories are weighted by age, or that they are not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from loca.config.model_factory import describe_model
from loca.data.interactions import Interactions
from loca.data.recency import Recency, Unit
from loca.data.splits import HeldOut
from loca.evaluation.evaluate import Scorer, value_of_each
from loca.evaluation.metrics import DEFAULT_METRIC, Metric
from loca.evaluation.top_n import BLOCK_BYTES
from loca.models.recommender import Recommender, get_params
from loca.persistence.manifest import is_model
from loca.persistence.train_data import read_recency
from loca.text_table import finite


@dataclass(frozen=True)
class Gain:
    """Hold what a recency earns over none in the mean validation score of the same users, and how sure that is.

    `low` and `high` bound the paired t interval at 1 − 0.05 / (number of candidates): whichever candidate is picked,
    a `low` above zero is by mere chance in one of twenty choices at most. A single user leaves it unbounded.
    """

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.4f} [{self.low:+.4f}, {self.high:+.4f}]"


@dataclass(frozen=True)
class RecencyChoice:
    """Hold the recency that validation speaks for, or None; prints as one line.

    Attributes
    ----------
    recency : Recency or None
        The choice.
    tried : tuple of (Recency or None, float)
        Every recency with its mean validation score, none (None) first.
    gain : Gain
        That of the chosen recency; where none was chosen, that of the best which could not be distinguished from none.
    metric : str
        What the scores are, such as `"ndcg@100"`.
    """

    recency: Recency | None
    tried: tuple[tuple[Recency | None, float], ...]
    gain: Gain
    metric: str = str(DEFAULT_METRIC)

    @property
    def score(self) -> float:
        """The mean validation score under the chosen recency."""
        return dict(self.tried)[self.recency]

    @property
    def score_without(self) -> float:
        """The mean validation score without recency."""
        return dict(self.tried)[None]

    def __str__(self) -> str:
        if self.recency is None:
            rest = f"no other is surely better (the best of {len(self.tried) - 1}: {self.gain})"
            return f"none; {self.score:.4f} on validation, {rest}"
        return f"{self.recency}; {self.score:.4f} on validation, {self.score_without:.4f} without, gain {self.gain}"

    def as_json(self) -> dict[str, Any]:
        """The choice as JSON values."""
        return {
            "recency": recency_json(self.recency),
            "metric": self.metric,
            "score": self.score,
            "score_without": self.score_without,
            "gain": finite(asdict(self.gain)),
            "tried": [{"recency": recency_json(one), "score": score} for one, score in self.tried],
        }

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> RecencyChoice:
        """The choice again that `as_json` has written; a bound that is null is not there."""
        mean, low, high = (written["gain"][name] for name in ("mean", "low", "high"))
        tried = tuple((recency_from_json(one["recency"]), one["score"]) for one in written["tried"])
        gain = Gain(mean, -math.inf if low is None else low, math.inf if high is None else high)
        return cls(recency_from_json(written["recency"]), tried, gain, written["metric"])


def choose_recency(
    model: Scorer,
    validation: HeldOut,
    candidates: Sequence[Recency | None] | None = None,
    *,
    metric: Metric | str = DEFAULT_METRIC,
) -> RecencyChoice:
    """Choose the recency under which a fitted model is best on validation, if it is surely better than none.

    Of the candidates whose gain over none has an interval above zero the one with the best mean is chosen, the
    first of equals; where there is none, no recency.

    Parameters
    ----------
    model : Recommender
        A fitted model; it is not fitted again.
    validation : HeldOut
        What the choice is made on. The recency that it carries itself is not looked at.
    candidates : sequence of (Recency or None) or None, default None
        What to try. None tries a usual set of half-lives, in positions and where the times allow it in time, and the
        recency that the model was trained for.
    metric : Metric or str, default "ndcg@100"
        What it is made by.

    Returns
    -------
    RecencyChoice
        The `recency`, None where no candidate is surely better, and what was tried.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> rest, held_out, _ = loca.hold_last(data, 2)
    >>> model = loca.EASE().fit(rest)
    >>> found = loca.choose_recency(model, held_out, [loca.Recency(half_life=5), loca.Recency(half_life=20)])
    >>> len(found.tried)
    3
    >>> found.score >= found.score_without
    True
    """
    from scipy import stats

    if candidates is None:
        candidates = (*recency_candidates(validation.histories), start_recency(model))
    rivals = [one for one in dict.fromkeys(candidates) if one is not None]

    measured = Metric.of(metric)
    users = np.flatnonzero(validation.target_counts)

    def values_under(recency: Recency | None) -> npt.NDArray[np.float64]:
        weighed = validation.with_recency(recency)
        matrix = weighed.history_matrix
        return value_of_each(
            lambda places: model.score(matrix[users[places]]),
            weighed,
            users,
            measured,
            block_bytes=BLOCK_BYTES,
        )

    reference, chosen, best = values_under(None), None, Gain(0.0, 0.0, 0.0)
    tried: list[tuple[Recency | None, float]] = [(None, float(reference.mean()))]
    for recency in rivals:
        values = values_under(recency)
        tried.append((recency, float(values.mean())))
        differences, count, reach = values - reference, len(values), math.inf
        if count > 1:
            error = float(differences.std(ddof=1)) / math.sqrt(count)
            reach = float(stats.t.ppf(1 - 0.05 / len(rivals) / 2, count - 1)) * error
        mean = float(differences.mean())
        gain = Gain(mean, mean - reach, mean + reach)
        # A sure gain stands above any that is not, however large that looks.
        if len(tried) == 2 or (gain.low > 0, gain.mean) > (best.low > 0, best.mean):
            chosen, best = (recency if gain.low > 0 else None), gain
    return RecencyChoice(chosen, tuple(tried), best, str(measured))


def recency_candidates(histories: Interactions) -> tuple[Recency | None, ...]:
    """Return None, then exponential, power and floored recencies in positions, and in time where the times allow it.

    Half-lives in time are shares of the median user's span from the first item to the last; they are left out where
    that is zero or where the median user's times hardly differ.
    """
    in_time: list[Recency] = []
    some = histories.counts() > 0
    if histories.times is not None and some.any():
        times, starts, ends = (
            histories.times,
            histories.offsets[:-1][some],
            histories.offsets[1:][some],
        )
        span = float(np.median(times[ends - 1] - times[starts]))
        distinct = float(np.median(histories.moments()[ends - 1] + 1))
        # With fewer than three distinct times the ages would say no more than first and last do.
        if span > 0 and math.isfinite(span) and distinct >= 3:
            unit: Unit = "seconds" if histories.time_unit == "seconds" else "time"
            in_time = [Recency(share * span, unit=unit) for share in (1 / 8, 1 / 3, 1.0)]
    decays = [Recency.per_position(decay) for decay in (0.95, 0.9, 0.85, 0.8, 0.7, 0.5)]
    powers = [Recency(half_life, shape="power") for half_life in (1.0, 3.0, 10.0)]
    floored = [Recency.per_position(0.85, floor=floor) for floor in (0.05, 0.1)]
    return None, *decays, *powers, *floored, *in_time


def start_recency(model: object) -> Recency | None:
    """Return the recency that a model is to be fitted and first judged under: that of the histories it is trained on.

    It is None but for models that learn from decayed prefixes (`prefix_decay`, with a `target` other than the whole
    set), by themselves or inside another model, and for `Auto`, which tries them.
    """
    if isinstance(model, Recommender) and model.role == "auto":
        decay = get_params(model)["decay"]
        return None if decay is None else Recency.per_position(decay)
    described = describe_model(model) if is_model(model) else {}
    for name, value in described.items():
        inside, _, last = name.rpartition(".")
        target = described.get(f"{inside}.target" if inside else "target")
        if (
            last == "prefix_decay"
            and target != "set"
            and isinstance(value, float)
            and 0 < value < 1
        ):
            return Recency.per_position(value)
    return None


def recency_json(recency: Recency | None) -> dict[str, Any] | None:
    """A recency as JSON values; null for none."""
    return None if recency is None else asdict(recency)


def recency_from_json(written: Mapping[str, Any] | None) -> Recency | None:
    """The recency again that `recency_json` has written."""
    return None if written is None else read_recency(written)
