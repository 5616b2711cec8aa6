"""The choice among kinds of communities, on validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from loca.communities.components import choose_components
from loca.communities.finder import (
    AnyTrained,
    Chooser,
    Communities,
    CommunityFinder,
    Judge,
    LocalModel,
    evenly_spaced_rows,
    users_with_history,
)
from loca.communities.kernel import Kernels
from loca.communities.mixture import Mixtures
from loca.communities.random_groups import RandomGroups
from loca.data.interactions import Interactions
from loca.data.splits import HeldOut
from loca.errors import ConfigError, DataError
from loca.evaluation.significance import is_significantly_better
from loca.memory import DataSize, MemoryUse
from loca.models.ease import EASE
from loca.models.params import param
from loca.models.recommender import Recommender, TrainingData, clone
from loca.progress import say
from loca.remarks import remark

_DEFAULT_N = 40
# The small model: so many items are nearly all interactions of the data sets in docs/locality.md,
# and kinds that differ there differ on so many users.
_N_POPULAR_ITEMS = 1000
_MOST_USERS = 20_000
_MOST_JUDGING_USERS = 2_000
_L2 = 700.0
# Sizes of a mixture and weights of membership that were the best ones somewhere in docs/locality.md.
_COMPONENTS = (4, 6, 8, 12, 16, 24)
_MEMBERSHIP_WEIGHTS = (0.5, 0.8)
_ROUNDS_PER_SIZE = 20
# In standard errors. More than usual: the best of many kinds, temperatures and shares looks better
# by chance alone.
_ERRORS_OF_THE_BEST_OF_MANY = 3.0


def _are_finders(value: Any) -> bool:
    return value is None or (
        isinstance(value, tuple)
        and len(value) > 0
        and all(isinstance(finder, CommunityFinder) for finder in value)
    )


@dataclass(frozen=True, kw_only=True)
class BestOf(CommunityFinder):
    """Take whichever kind of communities answers validation best.

    What is tried without `finders`:

    - Over networks `Kernels` and `Mixtures`, of which an EASE of the most popular items says which is
      trained; `RandomGroups` are trained beside it. Validation chooses between the two.
    - Over other models `Kernels` and `Mixtures` of several sizes, of which that EASE says which is
      trained. The global model answers alone unless the communities are better by three standard
      errors: solved models gain nothing by being many, and the best of several kinds looks better by
      chance.
    - Without validation `Mixtures`, with a remark.

    Parameters
    ----------
    n : int, default 40
        The most communities; one for each user where there are fewer. Of given finders each has its
        own.
    finders : tuple of CommunityFinder or None, default None
        The kinds to choose among, all of which are trained. Without validation it is the first.

    Examples
    --------
    >>> model = loca.Loca(base=loca.EASE(), communities=loca.BestOf(n=12))
    >>> str(model.communities)
    'the best of several kinds of at most 12 communities'
    >>> loca.BestOf(finders=(loca.Kernels(n=8), loca.Mixtures(n=12))).n
    12
    """

    finders: tuple[CommunityFinder, ...] | None = param(
        None, "finders such as (Mixtures(), Kernels()) or none", _are_finders
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.finders is None:
            return
        largest = max(finder.n for finder in self.finders)
        if self.n not in (_DEFAULT_N, largest):
            raise ConfigError("n: each of the finders has its own; leave n of BestOf out")
        object.__setattr__(self, "n", largest)

    def find(
        self, data: TrainingData, *, base: Recommender, global_model: Recommender, seed: int
    ) -> Communities:
        """Return the communities of the first kind, which are taken without validation."""
        first = self._kinds(base)[0]
        return first.find(data, base=base, global_model=global_model, seed=seed)

    def candidates(self, model: LocalModel, data: TrainingData) -> Sequence[CommunityFinder]:
        """Return the finders whose communities are trained, of which `best` takes one.

        Without given finders a mixture is fitted for each size, and a small model for each kind.
        """
        limited = self.limited_to(len(users_with_history(data)))
        kinds = limited._kinds(model.base)
        if data.validation is None:
            _remark_without_validation(kinds[0])
            return kinds[:1]
        if self.finders is not None:
            return [kind for finder in kinds for kind in finder.candidates(model, data)]
        if model.base.learns_by_epoch:
            mixtures, kernels, groups = kinds
            return [_best_by_small_model([mixtures, kernels], model, data), groups]
        sized = _mixtures_of_likely_sizes(limited.n, model.seed, data)
        return [_best_by_small_model([*sized, kinds[1]], model, data)]

    def _kinds(self, base: Recommender) -> list[CommunityFinder]:
        if self.finders is not None:
            return list(self.finders)
        divisions = min(2, self.n)
        n = self.n // divisions * divisions
        kinds: list[CommunityFinder] = [Mixtures(n=n, mixtures=divisions), Kernels(n=self.n)]
        if base.learns_by_epoch:
            kinds.append(RandomGroups(n=n, divisions=divisions))
        return kinds

    def without_choice(self) -> CommunityFinder:
        """Return the paper's kernels in place of the default choice; given finders are kept."""
        return Kernels(n=self.n) if self.finders is None else self

    def n_trained(self, base: Recommender) -> int:
        """Return how many candidates are trained."""
        if self.finders is not None:
            return sum(finder.n_trained(base) for finder in self.finders)
        return 2 if base.learns_by_epoch else 1

    def best(
        self, trained: Sequence[AnyTrained], judge: Judge | None, combiner: Chooser
    ) -> AnyTrained:
        """Return the candidate with the best value; perhaps with the global model alone."""
        if judge is None:
            return trained[0]
        values = [candidate.values(judge) for candidate in trained]
        for candidate, value in zip(trained, values, strict=True):
            say(f"{candidate.finder}: validation {value.mean():.4f}")
        chosen = int(np.argmax([value.mean() for value in values]))
        best = trained[chosen]
        say(f"communities: {best.finder}")
        if best.learned_by_epoch or not combiner.chooses_on_validation:
            return best
        alone = judge.values_of_global_model()
        if is_significantly_better(values[chosen], alone, _ERRORS_OF_THE_BEST_OF_MANY):
            return best
        remark(
            "communities",
            "the communities are not significantly better than the global model on validation "
            f"({alone.mean():.4f}), which answers alone",
        )
        only_global: AnyTrained = best.with_global_share(1.0)
        return only_global

    def with_n(self, n: int) -> Self:
        """Return the finder with at most so many communities of each kind."""
        if self.finders is None:
            return replace(self, n=n)
        fewer = tuple(finder.with_n(min(finder.n, n)) for finder in self.finders)
        return replace(self, n=_DEFAULT_N, finders=fewer)

    def memory(
        self, size: DataSize, *, base: Recommender, global_model: Recommender
    ) -> dict[str, MemoryUse]:
        """Estimate the kind that takes most."""
        uses = [
            kind.memory(size, base=base, global_model=global_model) for kind in self._kinds(base)
        ]
        return max(uses, key=lambda steps: _peak(MemoryUse.in_turn(steps)))

    def __str__(self) -> str:
        if self.finders is not None:
            return f"the best of {', '.join(map(str, self.finders))}"
        return f"the best of several kinds of at most {self.n} communities"


def _peak(use: MemoryUse) -> int:
    return use.main + use.device


def _remark_without_validation(finder: CommunityFinder) -> None:
    text = f"the kind of communities is chosen on validation; without it they are {finder}"
    remark("no-validation", f"Loca: {text}")


def _mixtures_of_likely_sizes(n: int, seed: int, data: TrainingData) -> list[Mixtures]:
    """Return mixtures whose number of components follows from the likelihood of held-out items."""
    among = [size for size in _COMPONENTS if size <= n] or [n]
    components = choose_components(
        data.train,
        among,
        user_weights=data.user_weights,
        rounds=_ROUNDS_PER_SIZE,
        seed=seed,
        device=data.device,
    ).components
    side_by_side = min(n // components, 2)
    sized = [
        Mixtures(n=side_by_side * components, mixtures=side_by_side, membership_weight=weight)
        for weight in _MEMBERSHIP_WEIGHTS
    ]
    if n > components:
        sized.append(Mixtures(n=n, mixtures=1, membership_weight=_MEMBERSHIP_WEIGHTS[0]))
    return sized


def _best_by_small_model(
    finders: Sequence[CommunityFinder], model: LocalModel, data: TrainingData
) -> CommunityFinder:
    """Return the finder that is best over a small EASE; the first unless another is."""
    try:
        small = _small(data)
    except DataError:  # nothing held out is among the popular items
        return finders[0]
    base = clone(model.base) if model.base.is_linear else EASE(l2=_L2)
    global_model = small.fit_part("global model", clone(base))
    n_users = len(users_with_history(small))
    values = []
    for finder in finders:
        fewer = finder.with_n(min(finder.n, n_users))
        judged = model.values_with(fewer, base=base, global_model=global_model, data=small)
        values.append(float(judged.mean()))
        say(
            f"{finder}, over EASE of {small.matrix.shape[1]:,} items: "
            f"validation {small.metric.label} {values[-1]:.4f}"
        )
    return finders[int(np.argmax(values))]


def _small(data: TrainingData) -> TrainingData:
    """Return the most popular items, and some of the users where there are many."""
    matrix, held_out = data.matrix, data.validation
    assert held_out is not None
    counts = np.bincount(matrix.indices, minlength=matrix.shape[1])
    popular = np.zeros(matrix.shape[1], dtype=bool)
    popular[np.argsort(-counts, kind="stable")[:_N_POPULAR_ITEMS]] = True
    users = evenly_spaced_rows(matrix.shape[0], _MOST_USERS)
    judging = held_out.of_users(evenly_spaced_rows(held_out.n_users, _MOST_JUDGING_USERS))
    train: Any
    if isinstance(data.train, Interactions):
        train = data.train.of_users(users).of_items(popular)
    else:
        train = csr_array(csr_array(data.train[users])[:, popular])
    small_held_out = HeldOut(
        judging.histories.of_items(popular),
        judging.targets.of_items(popular),
        judging.count_repeats,
    )
    small = TrainingData.of(train, data.user_weights[users])
    return replace(small, validation=small_held_out, metric=data.metric, device=data.device)
