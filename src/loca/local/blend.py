"""Blend: any models answer together, each on one scale per user and with a weight that validation found, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.interactions import Interactions
from loca.data.splits import HeldOut
from loca.errors import ConfigError, DataError, ModelFileError
from loca.evaluation.top_n import rank_top_n
from loca.local.blend_search import Column, PartEarned, ScaleName, find_blend, scaled_scores, search_memory, sharpened
from loca.local.explain import BlendExplanation, Explainable, PartAnswer, item_order
from loca.memory import DataSize, MemoryUse
from loca.models.recommender import ModelState, Recommender, Scores, TrainingData, clone, fitted, get_params
from loca.progress import say

POWERS = (0.0, 0.5, 1.0, 1.5, 2.0)
CACHE_BYTES = 1_000_000_000


class Blend(Recommender):
    """Scores = Σ weight · scaled scores of a part that sees the histories at a power.

    `parts` are any recommenders, Loca, Ensemble and Blend among them. A part sees every value of a history raised to a
    power (1: as given, 0: every stored item counts 1, 2: half the half-life); one fitted part may answer at several
    `powers`. `columns` are (part, power, weight) triples, the part by its number; without them validation finds which
    parts answer, at which powers, with what weight. `scale` makes scores comparable, for each user over all items:
    z-scores, or log-probabilities where a part is made of networks and z-scores elsewhere. `cache_bytes` is what
    validation scores may take in memory while the weights are found: users beyond that are left out, at random.
    """

    role = "blend"

    def __init__(
        self,
        *,
        parts: Sequence[Recommender],
        columns: Sequence[Column] | None = None,
        names: Sequence[str] | None = None,
        scale: ScaleName = "z-score",
        powers: Sequence[float] = POWERS,
        cache_bytes: int = CACHE_BYTES,
        seed: int = 0,
    ) -> None:
        if scale not in ("z-score", "log-probability"):
            raise ConfigError(f"scale: expected 'z-score' or 'log-probability', found {scale!r}")
        self.parts = _check_parts(parts)
        self.columns = None if columns is None else _check_columns(columns, len(self.parts))
        self.names = None if names is None else _check_names(names, len(self.parts))
        self.scale: ScaleName = scale
        self.powers = _check_powers(powers)
        if not (isinstance(cache_bytes, int) and cache_bytes >= 1):
            raise ConfigError(f"cache_bytes: expected a whole number ≥ 1, found {cache_bytes!r}")
        self.cache_bytes = cache_bytes
        self.seed = seed
        self.models_: dict[int, Recommender] | None = None
        self.columns_: tuple[Column, ...] | None = None
        self.earned_: tuple[PartEarned, ...] = ()
        self.ndcg_: float | None = None

    def _fit(self, data: TrainingData) -> None:
        """Fits a copy of every part, then finds the columns on validation; without it all parts weigh the same.

        Where `columns` are given, only the parts in them are fitted, and validation only says what each earned.
        """
        validation = data.validation
        if validation is not None:
            validation = validation.weighed_as(self.train_data_)
        wanted = range(len(self.parts)) if self.columns is None else sorted({part for part, _, _ in self.columns})
        models = {}
        for number in wanted:
            part = data.context.inside(f"part {number}")
            model = part.fit(
                clone(self.parts[number]), data.train, user_weights=data.user_weights, validation=validation
            )
            model.train_data_ = None  # the blend keeps the data, once
            models[number] = model
        self._weigh(models, validation)

    @classmethod
    def of(
        cls,
        models: Sequence[Recommender],
        validation: HeldOut,
        *,
        names: Sequence[str] | None = None,
        scale: ScaleName = "z-score",
        powers: Sequence[float] = POWERS,
        cache_bytes: int = CACHE_BYTES,
        seed: int = 0,
    ) -> Self:
        """A blend of models that are fitted already: only the columns are still to be found on validation."""
        parts = tuple(clone(model) for model in _check_parts(models))
        blend = cls(parts=parts, names=names, scale=scale, powers=powers, cache_bytes=cache_bytes, seed=seed)
        for model in models:
            _check_other_items(model, validation)
        known = next((model.train_data_ for model in models if model.train_data_ is not None), None)
        questions = validation.weighed_as(known)
        blend._weigh(dict(enumerate(models)), questions)
        # The columns were found under this recency, so they answer under it.
        blend.train_data_ = None if known is None else known.with_recency(questions.histories.recency)
        return blend

    def _weigh(self, models: dict[int, Recommender], validation: HeldOut | None) -> None:
        """Learns the columns of fitted models, and keeps the models that are in one."""
        self.earned_, self.ndcg_ = (), None
        if validation is not None:
            found = find_blend(
                models,
                self.part_names(),
                validation,
                columns=None if self.columns is None else _shares(self.columns),
                scale=self.scale,
                powers=self.powers,
                cache_bytes=self.cache_bytes,
                seed=self.seed,
            )
            self.columns_, self.earned_, self.ndcg_ = found.columns, found.earned, found.ndcg
            say(f"blend of {len({part for part, _, _ in found.columns})}: validation NDCG@100 {found.ndcg:.4f}")
        else:
            self.columns_ = _shares(self.columns or tuple((number, 1.0, 1.0) for number in models))
        used = {part for part, _, _ in self.columns_}
        self.models_ = {number: model for number, model in models.items() if number in used}

    def part_names(self) -> tuple[str, ...]:
        """The names of the parts: those given, or what each is made of, numbered where it occurs again."""
        if self.names is not None:
            return self.names
        plain = [_describe(part) for part in self.parts]
        seen = [plain[: place + 1].count(name) for place, name in enumerate(plain)]
        return tuple(name if time == 1 else f"{name} {time}" for name, time in zip(plain, seen, strict=True))

    def score(self, histories: csr_array) -> Scores:
        """The weighted sum of the parts' scaled scores, users × items."""
        models, rows = fitted(self.models_, self), csr_array(histories)
        blended = None
        for part, power, weight in fitted(self.columns_, self):
            scaled = scaled_scores(models[part], rows, power, self.scale)
            if blended is None:
                blended = scaled.mul_(weight)
            else:
                blended.add_(scaled.to(blended.device), alpha=weight)
        return np.asarray(fitted(blended, self).cpu().numpy(), dtype=np.float32)

    def explain(
        self,
        history: csr_array,
        n: int = 10,
        *,
        order: npt.NDArray[Any] | None = None,
        data: Interactions | None = None,
    ) -> BlendExplanation:
        """What each part adds to the items of one history's list, where it ranks them, and what it would say alone.

        A sparse row stores no order; `order` gives the history's item rows, oldest first, where they are to be shown.
        `data` names users and items in place of the blend's own training data.
        """
        columns, models = fitted(self.columns_, self), fitted(self.models_, self)
        data = self.train_data_ if data is None else data
        in_order, history = item_order(history, order), csr_array(history)
        items, scores = rank_top_n(self.score(history), history, n)
        listed = items[0][items[0] >= 0]
        weights = {part: sum(weight for one, _, weight in columns if one == part) for part, _, _ in columns}
        # Σ weight · (scaled score − its mean over all items) over the part's columns, each (items,).
        lifts = {part: np.zeros(history.shape[1], dtype=np.float32) for part in weights}
        for part, power, weight in columns:
            scaled = scaled_scores(models[part], history, power, self.scale)[0].cpu().numpy()
            lifts[part] += np.float32(weight) * (scaled - scaled.mean())
        sizes = np.sum([np.abs(lift[listed]) for lift in lifts.values()], axis=0)
        answers = []
        for part in sorted(weights, key=lambda part: (-weights[part], part)):  # the heaviest first
            model, added = models[part], lifts[part][listed]
            ranking, ranked = rank_top_n(lifts[part][None] / np.float32(weights[part]), history, history.shape[1])
            places = np.zeros(history.shape[1], dtype=np.int64)
            places[ranking[0][ranking[0] >= 0]] = np.arange(1, int((ranking[0] >= 0).sum()) + 1)
            inside = None
            if isinstance(model, Explainable):  # at the power where it weighs most
                power = max((weight, power) for number, power, weight in columns if number == part)[1]
                inside = model.explain(sharpened(history, power), n, order=order, data=data)
            answers.append(
                PartAnswer(
                    name=self.part_names()[part],
                    weight=weights[part],
                    items=ranking[0][: len(listed)],
                    scores=ranked[0][: len(listed)],
                    contributions=added,
                    shares=np.divide(added, sizes, out=np.zeros_like(added), where=sizes > 0),
                    ranks=places[listed],
                    inside=inside,
                )
            )
        return BlendExplanation(
            history=in_order,
            items=listed,
            scores=scores[0][: len(listed)],
            parts=tuple(answers),
            names=None if data is None else data.items,
            ordered=order is not None,
        )

    def report(self) -> str:
        """A table of what each part earned on validation."""
        if self.ndcg_ is None:
            return "This blend was not judged on validation: its weights are equal, or as given."
        names = [one.name for one in self.earned_]
        width = max(map(len, ["the blend", *names]))
        lines = [f"{'NDCG@100 on validation':<{max(width, 22)}}   alone  weight  without it"]
        width = max(width, 22)
        for one in sorted(self.earned_, key=lambda one: -one.weight):
            lost = f"{-one.loss_without:+10.4f}" if one.weight else f"{'not used':>10}"
            lines.append(f"{one.name:<{width}}  {one.alone:6.4f}  {one.weight:6.3f}  {lost}")
        return "\n".join([*lines, f"{'the blend':<{width}}  {self.ndcg_:6.4f}   1.000"])

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """Every part in turn, and the search for weights where there is validation."""
        wanted = range(len(self.parts)) if self.columns is None else sorted({part for part, _, _ in self.columns})
        steps = {self.part_names()[number]: self.parts[number].memory_bytes(data) for number in wanted}
        columns = len(wanted) * len(self.powers) if self.columns is None else len(self.columns)
        if data.validation_users:
            answering = max(steps.values(), key=lambda step: step.device)
            steps["weights of the blend"] = search_memory(data, columns, self.cache_bytes, answering)
        return MemoryUse.in_turn(steps)

    def count_items(self) -> int:
        """How many items it scores."""
        return next(iter(fitted(self.models_, self).values())).count_items()

    def with_selected_params(self) -> Self:
        """A copy whose parts and columns are those that validation chose."""
        if self.models_ is None or self.columns_ is None:
            return clone(self)
        models = self.models_
        parts = tuple(
            models[number].with_selected_params() if number in models else clone(part)
            for number, part in enumerate(self.parts)
        )
        return clone(self, parts=parts, columns=self.columns_)

    def state(self) -> ModelState:
        models = fitted(self.models_, self)
        facts = {
            "columns": [list(column) for column in fitted(self.columns_, self)],
            "earned": [[one.name, one.alone, one.weight, one.loss_without] for one in self.earned_],
            "ndcg": self.ndcg_,
        }
        return ModelState(facts=facts, parts={f"part {number}": model for number, model in models.items()})

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        blend = cls(**params)
        try:
            columns = _check_columns(state.facts["columns"], len(blend.parts))
            earned = tuple(PartEarned(*one) for one in state.facts["earned"])
        except (ConfigError, TypeError) as problem:
            raise ModelFileError(f"blend: {problem}") from problem
        numbers = {f"part {part}": part for part, _, _ in columns}
        if set(state.parts) != set(numbers):
            expected, found = ", ".join(sorted(numbers)), ", ".join(sorted(state.parts)) or "none"
            raise ModelFileError(f"blend: expected {expected}, found {found}")
        if not all(isinstance(one, Recommender) for one in state.parts.values()):
            raise ModelFileError("blend: a part is not a recommender")
        counts = {one.count_items() for one in state.parts.values()}
        if len(counts) > 1:
            raise ModelFileError(f"blend: the parts score different numbers of items: {sorted(counts)}")
        blend.columns_, blend.earned_, blend.ndcg_ = columns, earned, state.facts["ndcg"]
        blend.models_ = {number: state.parts[name] for name, number in numbers.items()}
        return blend


def _check_parts(parts: Sequence[Recommender]) -> tuple[Recommender, ...]:
    given = tuple(parts) if isinstance(parts, Sequence) else ()
    wrong = [type(one).__name__ for one in given if not isinstance(one, Recommender) or isinstance(one, type)]
    if not given or wrong:
        raise ConfigError(f"parts: expected at least one recommender, found {wrong[0] if wrong else repr(parts)[:60]}")
    return given


def _check_columns(columns: Sequence[Column], part_count: int) -> tuple[Column, ...]:
    wanted = "columns: expected (part, power, weight) triples"
    if not isinstance(columns, Sequence) or not columns:
        raise ConfigError(f"{wanted}, at least one, found {columns!r:.60}")
    for column in columns:
        if not (isinstance(column, Sequence) and len(column) == 3 and all(_is_number(one) for one in column)):
            raise ConfigError(f"{wanted}, found {column!r:.60}")
        if not (isinstance(column[0], int) and 0 <= column[0] < part_count):
            raise ConfigError(f"{wanted} with a part from 0 to {part_count - 1}, found part {column[0]!r}")
        if column[1] < 0 or column[2] < 0:
            raise ConfigError(f"{wanted} with a power and a weight ≥ 0, found {tuple(column)!r}")
    if not any(weight for _, _, weight in columns):
        raise ConfigError(f"{wanted}, not all weights 0")
    return tuple((part, float(power), float(weight)) for part, power, weight in columns if weight)


def _check_names(names: Sequence[str], part_count: int) -> tuple[str, ...]:
    given = () if isinstance(names, str) else tuple(names)
    if len(set(given)) != part_count or len(given) != part_count or not all(isinstance(one, str) for one in given):
        raise ConfigError(f"names: expected {part_count} different names, one for each part, found {names!r:.60}")
    return given


def _check_powers(powers: Sequence[float]) -> tuple[float, ...]:
    given = tuple(powers) if isinstance(powers, Sequence) else ()
    if not given or not all(_is_number(one) and one >= 0 for one in given):
        raise ConfigError(f"powers: expected numbers ≥ 0, at least one, found {powers!r:.60}")
    return tuple(float(one) for one in dict.fromkeys(given))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _shares(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns with weights that sum to 1."""
    total = math.fsum(weight for _, _, weight in columns)
    return tuple((part, power, weight / total) for part, power, weight in columns)


def _check_other_items(model: Recommender, validation: HeldOut) -> None:
    kind, items = type(model).__name__, validation.histories.items
    if model.count_items() != validation.n_items:
        raise DataError(f"{kind} scores {model.count_items()} items, validation has {validation.n_items}")
    if model.train_data_ is not None and not np.array_equal(model.train_data_.items.values, items.values):
        raise DataError(f"{kind}: its items are not those of validation in the same order; fit it on the train part")


def _describe(part: Recommender) -> str:
    """`EASE`, or `Loca of MultVAE`."""
    base = get_params(part).get("base")
    return type(part).__name__ if base is None else f"{type(part).__name__} of {type(base).__name__}"
