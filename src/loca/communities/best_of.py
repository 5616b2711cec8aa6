"""The choice among kinds of communities, on validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from loca.communities.components import choose_components
from loca.communities.finder import (
    Communities,
    CommunityFinder,
    count_users,
    evenly_spaced_rows,
)
from loca.communities.kernel import Kernels
from loca.communities.mixture import Mixtures
from loca.communities.random_groups import RandomGroups
from loca.data.interactions import Interactions
from loca.data.splits import HeldOut
from loca.errors import ConfigError, DataError
from loca.memory import DataSize, MemoryUse
from loca.models.ease import EASE
from loca.models.params import param
from loca.models.recommender import Recommender, TrainingData, clone
from loca.progress import say
from loca.remarks import remark

# Kinds are first compared by an EASE of the most popular items, on some of the users.
_N_POPULAR_ITEMS = 1000
_MOST_USERS = 20_000
_MOST_JUDGING_USERS = 2_000
_L2 = 700.0
_COMPONENTS = (4, 6, 8, 12, 16, 24)
_MEMBERSHIP_WEIGHTS = (0.5, 0.8)


def _are_finders(value: Any) -> bool:
    return value is None or (
        isinstance(value, tuple)
        and len(value) > 0
        and all(isinstance(finder, CommunityFinder) for finder in value)
    )


@dataclass(frozen=True, kw_only=True)
class BestOf(CommunityFinder):
    """Take whichever kind of communities answers validation best.

    By itself it looks at kernels and at mixtures of several sizes, by way of a small linear model;
    networks may have random groups too. Solved models must be better than the global model alone by
    more than chance; else that answers by itself. Without validation it takes mixtures, and says so.

    Parameters
    ----------
    n : int, default 40
        The most communities; one for each user where there are fewer.
    finders : tuple of CommunityFinder or None, default None
        The kinds to choose among, each with its own parameters; all are fitted and judged. None
        takes those above.

    Examples
    --------
    >>> model = loca.Loca(base=loca.EASE(), communities=loca.BestOf(n=12))
    >>> str(model.communities)
    'the best of several kinds of at most 12 communities'
    """

    holds_forms: ClassVar[int] = 2

    finders: tuple[CommunityFinder, ...] | None = param(
        None, "finders such as (Mixtures(), Kernels()) or none", _are_finders
    )

    def find(
        self, data: TrainingData, *, base: Recommender, global_model: Recommender, seed: int
    ) -> Communities:
        """Refuse: this finder only chooses among others."""
        raise ConfigError("BestOf chooses among finders: it is for Loca(communities=…)")

    def candidates(self, model: Any, data: TrainingData) -> Sequence[CommunityFinder]:
        """Return the finders whose communities are all trained, of which `best` takes one."""
        n_users = count_users(data)
        if self.finders is not None:
            if data.validation is None:
                _remark_without_validation(self.finders[0])
                return [self.finders[0].limited_to(n_users)]
            return [finder.limited_to(n_users) for finder in self.finders]
        n = self.limited_to(n_users).n
        kernels = Kernels(n=n)
        mixtures = Mixtures(n=n, mixtures=min(2, n)).with_n(n)
        if data.validation is None:
            _remark_without_validation(mixtures)
            return [mixtures]
        if model.base.learns_by_epoch:
            groups = RandomGroups(n=n, divisions=mixtures.mixtures).with_n(n)
            return [_best_by_small_model([mixtures, kernels], model, data), groups]
        sized = _mixtures_of_likely_sizes(n, model.seed, data)
        return [_best_by_small_model([*sized, kernels], model, data)]

    def best(self, forms: Sequence[Any], judge: Any, combiner: Any) -> Any:
        """Return the form with the best value on validation."""
        if judge is None:
            return forms[0]
        values = [form.values(judge) for form in forms]
        for form, value in zip(forms, values, strict=True):
            say(f"{form.finder}: validation {value.mean():.4f}")
        chosen = int(np.argmax([value.mean() for value in values]))
        form = forms[chosen]
        if form.models.epochs_ is None:
            form = combiner.unless_significant(form, values[chosen], judge)
        say(f"communities: {form.finder}")
        return form

    def memory(
        self, size: DataSize, *, base: Recommender, global_model: Recommender
    ) -> dict[str, MemoryUse]:
        """Estimate the kind that takes most."""
        kinds: Sequence[CommunityFinder] = self.finders or (
            Mixtures(n=self.n).with_n(self.n),
            Kernels(n=self.n),
        )
        uses = [kind.memory(size, base=base, global_model=global_model) for kind in kinds]
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
        rounds=20,
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
    finders: Sequence[CommunityFinder], model: Any, data: TrainingData
) -> CommunityFinder:
    """Return the finder that is best over a small EASE; the first unless another is."""
    try:
        small = _small(data)
    except DataError:  # nothing held out is among the popular items
        return finders[0]
    base = clone(model.base) if model.base.is_linear else EASE(l2=_L2)
    global_model = small.fit_part("global model", clone(base))
    n_users = count_users(small)
    values = []
    for finder in finders:
        linear = clone(
            model,
            base=base,
            global_model=None,
            communities=finder.with_n(min(finder.n, n_users)),
            engine=None,
        )
        values.append(float(linear.judged_around(global_model, small).mean()))
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
