"""Combiners: how local answers and the global model's become one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.evaluation.top_n import AnyScores, beside
from loca.local.local_models import LocalModels, PreparedBatch
from loca.models.devices import score_on
from loca.models.params import Strategy, share
from loca.models.recommender import Recommender
from loca.progress import say
from loca.remarks import remark

SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class Panel(Protocol):
    """Validation users who are answered by communities (`loca.local.judge`)."""

    def mean_values(self, models: LocalModels, combiners: Sequence[Combiner]) -> list[float]:
        """Return the mean value of the answers, for each combiner."""
        ...


@dataclass(frozen=True, kw_only=True)
class Combiner(Strategy, ABC):
    """Says how much of each user's answer is the global model's.

    A rule of one's own implements `global_shares`. One that leaves something to validation also says
    among which rules it chooses.

    Examples
    --------
    >>> loca.Loca(base=loca.EASE(), combiner=loca.FixedShare(0.3)).combiner
    FixedShare(share=0.3)
    """

    chooses_on_validation: ClassVar[bool] = False

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

    def choose(self, models: LocalModels, panel: Panel | None) -> Combiner:
        """Return the combiner that answers; `panel` is None without validation."""
        return self


def fixed_shares(answer_weights: csr_array, global_share: float) -> npt.NDArray[np.float64]:
    """Return one share for everybody whom a community covers, and 1 for all others."""
    covered = np.diff(csr_array(answer_weights).indptr) > 0
    return np.where(covered, global_share, 1.0)


@dataclass(frozen=True)
class FixedShare(Combiner):
    """Give the global model the same share of every answer in which a community has a say.

    Parameters
    ----------
    share : float, default 0.0
        From 0, the communities alone, to 1, the global model alone.

    Examples
    --------
    >>> loca.FixedShare(0.3).share
    0.3
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
    >>> loca.Loca(base=loca.EASE(), combiner=loca.LocalOnly()).combiner
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
    >>> [combiner.share for combiner in loca.GlobalShare().candidates(coarse=True)]
    [0.0, 0.3, 0.6, 0.9]
    """

    chooses_on_validation: ClassVar[bool] = True

    def global_shares(self, answer_weights: csr_array) -> npt.NDArray[np.float64]:
        """Return 0 for covered users, as long as nothing was chosen, and 1 for all others."""
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

    def choose(self, models: LocalModels, panel: Panel | None) -> FixedShare:
        """Return the share with the best value on validation."""
        if panel is None:
            remark(
                "no-validation",
                "Loca: without validation the global model has no share in the answers; "
                "give validation=, or combiner=FixedShare(0.3)",
            )
            return FixedShare(0.0)
        candidates = self.candidates()
        values = panel.mean_values(models, candidates)
        best = int(np.argmax(values))
        say(f"global share {candidates[best].share:g}: validation {values[best]:.4f}")
        return candidates[best]


def combined_scores(
    models: LocalModels,
    global_model: Recommender,
    batch: PreparedBatch,
    combiners: Sequence[Combiner],
) -> Iterator[AnyScores]:
    """Yield s · global + (1 − s) · local for each combiner, where s is its share for the user.

    Each is users × items. The local models score once, and only where any share is below 1; the
    global one scores once, and only the users in whose answer it has a share.
    """
    shares = [combiner.global_shares(batch.answer_weights) for combiner in combiners]
    users = np.flatnonzero(np.any([user_shares > 0 for user_shares in shares], axis=0))
    is_everybody = len(users) == batch.histories.shape[0]
    if all((user_shares == 1).all() for user_shares in shares):
        global_scores = score_on(global_model, batch.histories)
        yield from (global_scores for _ in shares)
        return
    local_scores = models.blend_prepared(batch)
    if not len(users):
        yield from (local_scores for _ in shares)
        return
    histories = batch.histories if is_everybody else csr_array(batch.histories[users])
    global_scores = beside(local_scores, score_on(global_model, histories))
    rows = beside(local_scores, users)
    for user_shares in shares:
        of_global = beside(local_scores, user_shares.astype(np.float32)[:, None])
        if is_everybody:
            yield of_global * global_scores + (1 - of_global) * local_scores
        else:
            mixed = local_scores + 0  # a copy, of an array as of a tensor
            own = of_global[rows]
            mixed[rows] = own * global_scores + (1 - own) * local_scores[rows]
            yield mixed
