"""Combiners: how local answers and the global model's become one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.evaluation.metrics import Values
from loca.evaluation.significance import is_significantly_better
from loca.models.params import Strategy, share
from loca.progress import say
from loca.remarks import remark

SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
# In standard errors. More than usual: the best of many forms, temperatures and shares looks better
# by chance alone.
_ERRORS_OF_THE_BEST_OF_MANY = 3.0


@dataclass(frozen=True, kw_only=True)
class Combiner(Strategy, ABC):
    """Say how much of each user's answer is the global model's.

    Examples
    --------
    >>> class LessByMany(loca.Combiner):
    ...     def global_shares(self, answer_weights):
    ...         return 1 / (1 + answer_weights.count_nonzero(axis=1))
    >>> model = loca.Loca(base=loca.EASE(), combiner=LessByMany())
    """

    @abstractmethod
    def global_shares(self, answer_weights: csr_array) -> npt.NDArray[np.float64]:
        """Return the global model's share in each user's answer, (users,).

        `answer_weights` says how much each community counts for each user, users × communities. Who
        has none can only be answered by the global model: the share is 1.
        """

    def candidates(self, *, coarse: bool = False) -> Sequence[Combiner]:
        """Return the combiners among which validation is to choose; with `coarse` fewer of them."""
        return [self]

    def while_learning(self) -> Combiner:
        """Return the combiner by which models are judged before one is chosen."""
        return self

    def choose(self, models: Any, panel: Any) -> Combiner:
        """Return the combiner that answers; `panel` is None without validation."""
        return self

    def unless_significant(self, form: Any, values: Values, judge: Any) -> Any:
        """Return a form whose communities answer only if they are better than the global model."""
        return form


def fixed_shares(answer_weights: csr_array, global_share: float) -> npt.NDArray[np.float64]:
    """Return one share for everybody whom a community covers, and 1 for all others."""
    covered = np.diff(csr_array(answer_weights).indptr) > 0
    return np.where(covered, global_share, 1.0)


@dataclass(frozen=True)
class FixedShare(Combiner):
    """Give the global model the same share of every answer in which a community has a say.

    Parameters
    ----------
    share : float
        From 0, the communities alone, to 1, the global model alone.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> by_two_and_by_nobody = csr_array([[0.5, 0.5], [0.0, 0.0]])
    >>> loca.FixedShare(0.3).global_shares(by_two_and_by_nobody).tolist()
    [0.3, 1.0]
    """

    share: float = share(0.0)

    def global_shares(self, answer_weights: csr_array) -> npt.NDArray[np.float64]:
        """Return the share for covered users, and 1 for all others."""
        return fixed_shares(answer_weights, float(self.share))


@dataclass(frozen=True, kw_only=True)
class LocalOnly(Combiner):
    """Let the communities answer alone whom they cover: the paper's rule.

    Examples
    --------
    >>> model = loca.Loca(base=loca.EASE(), communities=loca.Kernels(), combiner=loca.LocalOnly())
    >>> model.combiner
    LocalOnly()
    """

    def global_shares(self, answer_weights: csr_array) -> npt.NDArray[np.float64]:
        """Return 0 for covered users, and 1 for all others."""
        return fixed_shares(answer_weights, 0.0)


@dataclass(frozen=True, kw_only=True)
class GlobalShare(Combiner):
    """Choose the global model's share on validation, of 0, 0.1, …, 1; without validation it is 0.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> train, held_out, _ = loca.hold_last(data, 2)
    >>> model = loca.Loca(base=loca.EASE(), communities=loca.Kernels(n=4), combiner=loca.GlobalShare())
    >>> chosen = model.fit(train, validation=held_out).selected().combiner
    >>> 0 <= chosen.share <= 1
    True
    """

    def global_shares(self, answer_weights: csr_array) -> npt.NDArray[np.float64]:
        """Return 0 for covered users: nothing has been chosen yet."""
        return fixed_shares(answer_weights, 0.0)

    def candidates(self, *, coarse: bool = False) -> Sequence[FixedShare]:
        """Return a combiner for each share, or for every third."""
        return [FixedShare(share) for share in (SHARES[::3] if coarse else SHARES)]

    def while_learning(self) -> FixedShare:
        """Return the communities alone.

        With the global model's share, local models that have learned nothing yet would look as good
        as the global one, and stop there.
        """
        return FixedShare(0.0)

    def choose(self, models: Any, panel: Any) -> FixedShare:
        """Return the share with the best value on validation."""
        if panel is None:
            remark(
                "no-validation",
                "Loca: without validation the global model has no share in the answers; "
                "give validation=, or combiner=FixedShare(0.3)",
            )
            return FixedShare(0.0)
        candidates = self.candidates()
        scores = panel.scores(models, candidates)
        best = int(np.argmax(scores))
        say(f"global share {candidates[best].share:g}: validation {scores[best]:.4f}")
        return candidates[best]

    def unless_significant(self, form: Any, values: Values, judge: Any) -> Any:
        """Return the form with the global model alone, unless it is surely better than that."""
        alone = judge.values_of_global_model()
        if is_significantly_better(values, alone, _ERRORS_OF_THE_BEST_OF_MANY):
            return form
        remark(
            "communities",
            "the communities are not significantly better than the global model on validation "
            f"({alone.mean():.4f}), which answers alone",
        )
        return form.with_combiner(FixedShare(1.0), share=1.0)
