"""Blend: any models score together, each on one scale per user and with a weight that validation found."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from scipy.sparse import csr_array

from loca.data.interactions import Interactions
from loca.data.splits import HeldOut
from loca.errors import ConfigError, DataError, ModelFileError
from loca.evaluation.explain import ranks_of
from loca.evaluation.metrics import DEFAULT_METRIC, Metric
from loca.evaluation.top_n import rank_top_n
from loca.local.blend_search import (
    Column,
    PartEarned,
    ScaleName,
    ScoreCache,
    powers_to_try,
    scaled_scores,
    sharpened,
    spreads,
)
from loca.local.explain import AnswersOfParts, PartAnswer
from loca.memory import DataSize, MemoryUse
from loca.models.params import param, seed_param, whole
from loca.models.recommender import (
    ItemRows,
    Recommender,
    Scores,
    SimilarityKind,
    TrainingData,
    clone,
    fitted,
)
from loca.persistence.learned import learned_fact, learned_parts
from loca.progress import say
from loca.remarks import remark

POWERS = (0.0, 0.5, 1.0, 1.5, 2.0)
CACHE_BYTES = 1_000_000_000
_SCALES = ("z-score", "log-probability")


def _is_tuple(value: object) -> bool:
    return isinstance(value, tuple)


def _is_earned(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(part, PartEarned) for part in value)


def _is_text(value: object) -> bool:
    return type(value) is str


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(kw_only=True, eq=False, repr=False)
class Blend(Recommender):
    """Add up the scaled scores of several models, with weights that validation finds.

    scores = Σ weight · scale(part's scores of the histories at a power). A part sees every value of a history raised to
    a power (1: as given, 0: every stored item counts 1, 2: half the half-life); one fitted part may answer at several.

    Parameters
    ----------
    parts : sequence of Recommender
        Any models, Loca, Ensemble and Blend among them.
    columns : sequence of (int, float, float) or None, default None
        (part, power, weight) triples, the part by its number. None finds on validation which parts answer, at which
        powers, with what weight; without validation data all parts weigh the same.
    names : sequence of str or None, default None
        What the parts are called in reports; None names them by their classes.
    scale : {"z-score", "log-probability"}, default "z-score"
        What makes scores comparable, for each user over all items: z-scores; or log-probabilities where a part is made
        of networks, and z-scores elsewhere.
    powers : sequence of float, default (0.0, 0.5, 1.0, 1.5, 2.0)
        The powers that are tried where histories are weighted by recency.
    cache_bytes : int, default 1000000000
        What validation scores may take in memory while the weights are found; users beyond that are left out at random.
    seed : int, default 0
        Seed of that choice of users.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> rest, held_out, _ = loca.hold_last(data, 2)
    >>> model = loca.Blend(parts=[loca.EASE(), loca.ItemKNN()]).fit(rest, validation=held_out)
    >>> model.part_names()
    ('EASE', 'ItemKNN')
    >>> round(sum(weight for part, power, weight in model.columns_), 6)
    1.0
    """

    role = "blend"

    parts: Sequence[Recommender]
    columns: Sequence[Column] | None = None
    names: Sequence[str] | None = None
    scale: ScaleName = param("z-score", " or ".join(map(repr, _SCALES)), _SCALES.__contains__)
    powers: Sequence[float] = POWERS
    cache_bytes: int = whole(CACHE_BYTES)
    seed: int = seed_param()

    # None stands for a part that does not answer.
    models_: tuple[Recommender | None, ...] | None = learned_parts(
        Recommender, "items", selects="parts", gaps=True
    )
    columns_: tuple[Column, ...] | None = learned_fact(
        "(part, power, weight) triples", _is_tuple, selects="columns"
    )
    earned_: tuple[PartEarned, ...] | None = learned_fact("what each part earned", _is_earned)
    validation_score_: float | None = learned_fact("a number", _is_number, optional=True)
    metric_: str | None = learned_fact("the name of a metric", _is_text)

    def __post_init__(self) -> None:
        super().__post_init__()
        parts, powers, names = _items(self.parts), _items(self.powers), _items(self.names)
        wrong = [type(one).__name__ for one in parts if not isinstance(one, Recommender)]
        if not parts or wrong:
            raise ConfigError(
                f"parts: expected at least one recommender, found {[*wrong, repr(self.parts)[:60]][0]}"
            )
        if not powers or not all(_is_number(one) and one >= 0 for one in powers):
            raise ConfigError(
                f"powers: expected numbers ≥ 0, at least one, found {self.powers!r:.60}"
            )
        if self.names is not None and not len({one for one in names if type(one) is str}) == len(
            names
        ) == len(parts):
            wanted = f"{len(parts)} different names, one for each part"
            raise ConfigError(f"names: expected {wanted}, found {self.names!r:.60}")
        self.parts, self.powers = parts, tuple(float(one) for one in dict.fromkeys(powers))
        self.names = None if self.names is None else names
        self.columns = None if self.columns is None else _check_columns(self.columns, len(parts))

    def _fit(self, data: TrainingData) -> None:
        """Fit a copy of every part, then find the columns on validation; without it all parts weigh the same.

        Where `columns` are given, only the parts in them are fitted, and validation only says what each earned.
        """
        validation = (
            None if data.validation is None else data.validation.weighed_as(self.train_data_)
        )
        judged = replace(data, validation=validation)
        models = {
            number: judged.fit_part(f"part {number}", clone(self.parts[number]))
            for number in self._wanted_parts()
        }
        self._weigh(models, validation, data.metric)

    def _update(self, data: TrainingData, epochs: int) -> None:
        """Update the parts; the columns stay."""
        remark("kept", "Blend: the weights of its parts stay as validation found them")
        self.models_ = tuple(
            None if model is None else model.updated(data, epochs)
            for model in fitted(self.models_, self)
        )

    def answering(self) -> dict[int, Recommender]:
        """Return the fitted parts that answer, by their numbers.

        Returns
        -------
        dict of int to Recommender
        """
        models = fitted(self.models_, self)
        return {number: model for number, model in enumerate(models) if model is not None}

    @property
    def takes_new_items(self) -> bool:
        """Whether all parts that answer take in new items."""
        return all(model.takes_new_items for model in self.answering().values())

    def _wanted_parts(self) -> Sequence[int]:
        return (
            range(len(self.parts))
            if self.columns is None
            else sorted({part for part, _, _ in self.columns})
        )

    @classmethod
    def of(
        cls,
        models: Sequence[Recommender],
        validation: HeldOut,
        *,
        metric: Metric | str = DEFAULT_METRIC,
        **params: Any,
    ) -> Self:
        """Blend models that are fitted already: only the columns are found on validation.

        Parameters
        ----------
        models : sequence of Recommender
            Fitted models of the same items.
        validation : HeldOut
            What the columns are found on.
        metric : Metric or str, default "ndcg@100"
            What they are found by.
        **params : Any
            The parameters of the class: `names`, `scale`, `powers`, `cache_bytes` and `seed`.

        Returns
        -------
        Blend
            A fitted blend that holds the models themselves.
        """
        blend = cls(parts=models, **params)
        blend.parts = tuple(clone(model) for model in models)
        for model in models:
            kind, data = type(model).__name__, model.train_data_
            if model.count_items() != validation.n_items:
                raise DataError(
                    f"{kind} scores {model.count_items()} items, validation has {validation.n_items}"
                )
            if data is not None and not np.array_equal(
                data.items.values, validation.histories.items.values
            ):
                problem = "its items are not those of validation in the same order; fit it on the train part"
                raise DataError(f"{kind}: {problem}")
        train = next((model.train_data_ for model in models if model.train_data_ is not None), None)
        weighed = validation.weighed_as(train)
        parts = {number: _without_data(model) for number, model in enumerate(models)}
        blend._weigh(parts, weighed, Metric.of(metric))
        # The columns were found under this recency, so they answer under it.
        blend.train_data_ = None if train is None else train.with_recency(weighed.histories.recency)
        return blend

    def _weigh(
        self, models: dict[int, Recommender], validation: HeldOut | None, metric: Metric
    ) -> None:
        """Find the columns of fitted models on validation, or judge those given, and store the models in one."""
        given = None if self.columns is None else _shares(self.columns)
        self.columns_ = given or _shares([(number, 1.0, 1.0) for number in models])
        self.earned_, self.metric_ = (), str(metric)
        if validation is None and given is None and len(models) > 1:
            text = "Blend: without validation all parts weigh the same; give validation="
            remark("no-validation", text)
        if validation is not None:
            tried = [(number, power) for number, power, _ in given or ()] or [
                (number, power)
                for number in models
                for power in powers_to_try(models[number], validation, self.powers)
            ]
            cache = ScoreCache.of(
                models, tried, validation, self.scale, self.cache_bytes, self.seed, metric
            )
            alone = cache.score_alone()
            weights = (
                cache.find_weights(alone)
                if given is None
                else np.array([weight for _, _, weight in given])
            )
            self.columns_ = tuple(
                (*one, float(weight)) for one, weight in zip(tried, weights, strict=True) if weight
            )
            self.validation_score_ = cache.value(weights)
            part_of = np.array([number for number, _ in tried])
            for number in dict.fromkeys(part_of.tolist()):
                own = part_of == number
                weight, others = float(weights[own].sum()), np.where(own, 0.0, weights)
                # Nothing is found by a blend of nothing.
                whole = self.validation_score_
                left = whole if not weight else cache.value(others) if others.any() else 0.0
                name, best = self.part_names()[number], float(alone[own].max())
                self.earned_ += (PartEarned(name, best, weight, whole - left),)
        used = {part for part, _, _ in self.columns_}
        self.models_ = tuple(
            models[number] if number in used else None for number in range(len(self.parts))
        )
        if self.validation_score_ is not None:
            say(f"blend of {len(used)}: validation {metric.label} {self.validation_score_:.4f}")

    def part_names(self) -> tuple[str, ...]:
        """Name the parts.

        Returns
        -------
        tuple of str
            The names given, or what each part is made of, numbered where it occurs again.
        """
        if self.names is not None:
            return tuple(self.names)
        plain = []
        for part in self.parts:
            base = part.get_params().get("base")
            plain.append(
                type(part).__name__ + ("" if base is None else f" of {type(base).__name__}")
            )
        seen = [plain[: place + 1].count(name) for place, name in enumerate(plain)]
        return tuple(
            name if time == 1 else f"{name} {time}" for name, time in zip(plain, seen, strict=True)
        )

    def score(self, histories: csr_array) -> Scores:
        """Add up the parts' scaled scores.

        Parameters
        ----------
        histories : csr_array
            Users × items, each entry with its weight; their users need not be known.

        Returns
        -------
        ndarray of float32
            Users × items.
        """
        models, rows = self.answering(), csr_array(histories)
        blended = None
        for part, power, weight in fitted(self.columns_, self):
            scaled = scaled_scores(models[part], rows, power, self.scale)
            if blended is None:
                blended = scaled.mul_(weight)
            else:
                blended.add_(scaled.to(blended.device), alpha=weight)
        return np.asarray(fitted(blended, self).cpu().numpy(), dtype=np.float32)

    @property
    def similarity_kind(self) -> SimilarityKind | None:
        """`"directed"` where a part is, None where no part knows similarities."""
        kinds = {model.similarity_kind for model in self.answering().values()}
        known = kinds - {None}
        return "directed" if "directed" in known else next(iter(known), None)

    def _similarities(self, item_rows: ItemRows) -> Scores:
        """The mean over the parts that know similarities, weighted as their scores are."""
        models = self.answering()
        weights = {part: 0.0 for part, model in models.items() if model.similarity_kind is not None}
        for part, _, weight in fitted(self.columns_, self):
            if part in weights:
                weights[part] += weight
        mean = np.zeros((len(item_rows), self.count_items()), np.float32)
        for part, weight in weights.items():
            mean += np.float32(weight / sum(weights.values())) * models[part].similarities(
                item_rows
            )
        return mean

    def additive_at(self, history: csr_array) -> Callable[[csr_array], Scores] | None:
        """What scores rows as a sum over their items, on the scale of this history; None where a part is no such sum.

        The scale, one standard deviation of a part's scores of the history, is as it is.
        """
        models, columns = self.answering(), []
        for part, power, weight in fitted(self.columns_, self):
            score = models[part].additive_at(sharpened(history, power))
            if score is None or (self.scale == "log-probability" and models[part].gives_logits):
                return None
            whole_row = torch.from_numpy(np.array(score(sharpened(history, power))))
            spread = float(spreads(whole_row, whole_row - whole_row.mean(dim=1, keepdim=True)))
            columns.append((score, power, np.float32(weight / spread)))

        def score_rows(rows: csr_array) -> Scores:
            blended = np.zeros(rows.shape, dtype=np.float32)
            for score, power, factor in columns:
                scores = score(sharpened(rows, power))
                blended += factor * (scores - scores.mean(axis=1, keepdims=True))
            return blended

        return score_rows

    def sources_of(
        self, history: csr_array, items: Any, n: int, known: Interactions | None
    ) -> AnswersOfParts:
        """What each part adds to the listed items, where it ranks them, and what it would list alone.

        Parameters
        ----------
        history : csr_array
            One row, 1 × items.
        items : ndarray
            The rows of the listed items.
        n : int
            Length of the parts' own lists.
        known : Interactions or None
            What names users.

        Returns
        -------
        AnswersOfParts
            The heaviest first.
        """
        columns, models = fitted(self.columns_, self), self.answering()
        weights = {
            part: sum(weight for one, _, weight in columns if one == part) for part, _, _ in columns
        }
        # Σ weight · (scaled score − its mean over all items) over the part's columns, each (items,).
        lifts = {part: np.zeros(history.shape[1], dtype=np.float32) for part in weights}
        for part, power, weight in columns:
            scaled = scaled_scores(models[part], history, power, self.scale)[0].cpu().numpy()
            lifts[part] += np.float32(weight) * (scaled - scaled.mean())
        sizes = np.sum([np.abs(lift[items]) for lift in lifts.values()], axis=0)
        answers = []
        for part in sorted(weights, key=lambda part: (-weights[part], part)):  # the heaviest first
            added, own = lifts[part][items], lifts[part] / np.float32(weights[part])
            listed, scores = rank_top_n(own[None], history, n)
            # What answers inside it, at the power where it weighs most.
            power = max((weight, power) for number, power, weight in columns if number == part)[1]
            inside = models[part].sources_of(sharpened(history, power), items, n, known)
            shares = np.divide(added, sizes, out=np.zeros_like(added), where=sizes > 0)
            ranks, name = ranks_of(own, history, items), self.part_names()[part]
            answers.append(
                PartAnswer(name, weights[part], listed[0], scores[0], added, shares, ranks, inside)
            )
        return AnswersOfParts(items, tuple(answers))

    def _report(self) -> str:
        """Tabulate the validation score of each part alone, its weight, and what the blend loses without it."""
        if self.validation_score_ is None:
            return "This fit of the blend was not judged on validation: its weights are equal, or as given."
        title = f"{Metric.label_of(fitted(self.metric_, self))} on validation"
        earned = fitted(self.earned_, self)
        width = max(len(title), *(len(one.name) for one in earned))
        lines = [f"{title:<{width}}   alone  weight  without it"]
        for one in sorted(earned, key=lambda one: -one.weight):
            lost = f"{-one.loss_without:+10.4f}" if one.weight else f"{'not used':>10}"
            lines.append(f"{one.name:<{width}}  {one.alone:6.4f}  {one.weight:6.3f}  {lost}")
        return "\n".join([*lines, f"{'the blend':<{width}}  {self.validation_score_:6.4f}   1.000"])

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """Estimate the memory of every part in turn, and of the search for weights where there is validation data."""
        wanted = self._wanted_parts()
        steps = {
            self.part_names()[number]: self.parts[number].memory_bytes(data) for number in wanted
        }
        columns = len(wanted) * len(self.powers) if self.columns is None else len(self.columns)
        if data.validation_users:
            answering = max(steps.values(), key=lambda step: step.device)
            steps["weights of the blend"] = ScoreCache.memory_bytes(
                data, columns, self.cache_bytes, answering
            )
        return MemoryUse.in_turn(steps)

    def check(self) -> None:
        """Refuse columns of other parts than there are."""
        n_models = len(fitted(self.models_, self))
        if n_models != len(self.parts):
            raise ModelFileError(f"expected {len(self.parts)} parts, found {n_models}")
        self.columns_ = _check_columns(fitted(self.columns_, self), len(self.parts))
        expected = sorted({part for part, _, _ in self.columns_})
        if expected != sorted(self.answering()):
            raise ModelFileError(f"expected parts {expected}, found {sorted(self.answering())}")


def _without_data(model: Recommender) -> Recommender:
    """Return the same fitted model without the training data, which the blend holds once."""
    part = copy.copy(model)
    part.train_data_ = None
    return part


def _check_columns(columns: Sequence[Column], part_count: int) -> tuple[Column, ...]:
    wanted = "columns: expected (part, power, weight) triples"
    if not isinstance(columns, Sequence) or not columns:
        raise ConfigError(f"{wanted}, at least one, found {columns!r:.60}")
    for column in columns:
        if not (
            isinstance(column, Sequence)
            and len(column) == 3
            and all(_is_number(one) for one in column)
        ):
            raise ConfigError(f"{wanted}, found {column!r:.60}")
        if not (isinstance(column[0], int) and 0 <= column[0] < part_count):
            raise ConfigError(
                f"{wanted} with a part from 0 to {part_count - 1}, found part {column[0]!r}"
            )
        if column[1] < 0 or column[2] < 0:
            raise ConfigError(f"{wanted} with a power and a weight ≥ 0, found {tuple(column)!r}")
    if not any(weight for _, _, weight in columns):
        raise ConfigError(f"{wanted}, not all weights 0")
    return tuple((part, float(power), float(weight)) for part, power, weight in columns if weight)


def _items(given: Any) -> tuple[Any, ...]:
    """What a sequence holds; nothing of anything else."""
    return tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else ()


def _shares(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Scale the weights of columns to the sum 1."""
    total = math.fsum(weight for _, _, weight in columns)
    return tuple((part, power, weight / total) for part, power, weight in columns)
