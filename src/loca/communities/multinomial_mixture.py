"""Mixtures of multinomials over the items, learned by EM, and memberships of any history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from loca.communities.em import EM, EMState, HostParameters, log_memberships, users_per_block
from loca.communities.memberships import is_count
from loca.communities.mixture_memory import ADVICE, MixtureWork
from loca.communities.mixture_starts import (
    Sample,
    check_component_count,
    learning_users,
    sample_size,
)
from loca.communities.sparse_rows import cap_row_sums, with_values
from loca.deferred import torch
from loca.errors import ModelFileError
from loca.memory import DataSize, MemoryUse, plan_memory
from loca.models.params import positive, seed_param, whole
from loca.models.recommender import (
    BaseEstimator,
    TrainingData,
    check_histories,
    fitted,
)
from loca.persistence.checkpoint import Checkpoint
from loca.persistence.learned import learned, learned_fact
from loca.progress import Bar, bar, say
from loca.typing import FloatArray


@dataclass(kw_only=True, eq=False, repr=False)
class MultinomialMixture(BaseEstimator):
    """Embed a history by its log memberships in the components of mixtures of multinomials.

    A component has a share of the users, π_j, and takes item i with probability P_ji. The
    membership of a history x in it is softmax_j(Σ_i x'_i log P_ji + log π_j), where
    x' = x · min(1, `evidence` / Σx).

    The parameters are learned by EM, with n_items / 4 pseudo-counts of every component by
    popularity. EM begins at clusters of k-means, with soft memberships
    softmax(… / temperature), and ends with those of the formula.

    Parameters
    ----------
    components : int, default 8
        Communities of one mixture; at most as many as there are users with a history.
    mixtures : int, default 1
        Independent mixtures, side by side.
    evidence : float, default 20.0
        A history counts as this many items at most, so that a long one does not make its membership
        certain. The default is chosen by hand.
    rounds : int, default 60
        Rounds of EM on all users; fewer where the likelihood no longer rises.
    starts : int, default 3
        Starts tried per mixture, each from its own clusters and one of four temperatures, with a
        third of the rounds, on a sample of users where there are many. Those that make held-out
        items most likely are taken.
    seed : int, default 0
        Seed of the starts, the sample and the held-out items.

    Attributes
    ----------
    log_items_ : ndarray of float32
        Items × communities, log P_ji. The communities of mixture m are the columns from
        m · `components` on.
    log_proportions_ : ndarray of float32
        One number per community, log π_j.
    start_likelihoods_ : ndarray of float32
        One number per mixture: the mean log-likelihood of a held-out item after its start, best
        first. It says nothing of the rounds after that.
    n_fitted_items_ : int
        So many items were there in the fit. Items that came later are no evidence.

    Examples
    --------
    >>> import numpy as np
    >>> planted = loca.planted_communities(
    ...     users=60, items=30, groups=5, history=12, shortest_history=10
    ... )
    >>> data = planted.interactions
    >>> model = loca.MultinomialMixture(components=3, mixtures=2, rounds=9).fit(data)
    >>> memberships = np.exp(model.embed(data.histories()))
    >>> memberships.shape
    (60, 6)
    >>> bool(np.allclose(memberships[:, :3].sum(axis=1), 1))
    True
    """

    components: int = whole(8)
    mixtures: int = whole(1)
    evidence: float = positive(20.0)
    rounds: int = whole(60)
    starts: int = whole(3)
    seed: int = seed_param()
    log_items_: FloatArray | None = learned("items", "communities")
    log_proportions_: FloatArray | None = learned("communities")
    start_likelihoods_: FloatArray | None = learned("mixtures")
    n_fitted_items_: int | None = learned_fact("a whole number ≥ 1", is_count)

    def _fit(self, data: TrainingData) -> None:
        """Try starts, and go on with the best on all users with a weight and a history."""
        histories, weights = learning_users(data.histories, data.user_weights)
        n_users = histories.shape[0]
        check_component_count(self.components, n_users)
        label = f"{self.mixtures} × {self.components} communities of {n_users:,} users"
        work = self._work(DataSize.of(histories, validated=False, device=data.device))
        device = work.fitting_device()
        plan_memory(label, work.memory(device).main, ADVICE)
        n_rounds = self._rounds_of_starts + self.rounds
        with bar("communities: rounds of EM", n_rounds) as progress:
            begun = data.context.make(
                "mixture", lambda: self._begin(histories, weights, device, progress)
            )
            parameters = self._learn(
                begun, histories, weights, device, progress, data.context.checkpoint
            )
        self.log_items_ = parameters.log_items
        self.log_proportions_ = parameters.log_proportions.ravel()
        self.start_likelihoods_ = np.array(begun["start_likelihoods"])
        self.n_fitted_items_ = histories.shape[1]
        likelihoods = ", ".join(f"{likelihood:.3f}" for likelihood in self.start_likelihoods_)
        say(f"{label}: log-likelihood of a held-out item after the starts: {likelihoods}")

    @property
    def _rounds_of_starts(self) -> int:
        return max(self.rounds // 3, 1)

    def _begin(
        self, histories: csr_array, weights: FloatArray, device: torch.device, progress: Bar
    ) -> dict[str, Any]:
        """Return the state of EM from the best starts: all at a temperature of 1, then annealed.

        Annealed again some mixtures become likelier, and in some all components become the same.
        """
        sample = Sample.draw(
            histories,
            weights,
            n_users=sample_size(self.components),
            evidence=self.evidence,
            seed=self.seed,
        )
        n_starts = self.starts * self.mixtures
        starts = sample.try_starts(
            self.components, n_starts, self._rounds_of_starts, device, progress
        )
        best = np.argsort(-starts.log_likelihoods, kind="stable")[: self.mixtures]
        temperatures = starts.temperatures[best]
        state = EMState.begin(
            starts.parameters.take(np.tile(best, 2)),
            np.concatenate([np.ones_like(temperatures), temperatures]),
            device,
        )
        return {**state.state_dict(), "start_likelihoods": starts.log_likelihoods[best]}

    def _learn(
        self,
        begun: Mapping[str, Any],
        histories: csr_array,
        weights: FloatArray,
        device: torch.device,
        progress: Bar,
        checkpoint: Checkpoint,
    ) -> HostParameters:
        """Return the parameters after all rounds on all users, of each pair the likelier ones."""
        first = EMState.from_state_dict(begun, device)
        block_size = users_per_block(first.parameters.log_items.shape[1], device)
        em = EM.of(
            cap_row_sums(histories, self.evidence), weights, device, users_per_block=block_size
        )
        progress.advance(first.round)
        state = first
        for state in em.run(first, self.rounds):
            progress.advance(note=em.note(state))
            is_last = state.has_converged or state.round == self.rounds
            if checkpoint.due() or (is_last and checkpoint.saves):
                checkpoint.save("mixture", {**begun, **state.state_dict()})
        as_it_is, annealed = em.log_likelihoods(state.parameters).reshape(2, -1)
        numbers = np.arange(self.mixtures)
        likelier = np.where(annealed > as_it_is, numbers + self.mixtures, numbers)
        return state.parameters.to_host().take(likelier)

    @property
    def embedding_size(self) -> int:
        """The number of communities of all mixtures."""
        return self.mixtures * self.components

    def embed(self, histories: csr_array) -> FloatArray:
        """Compute the log memberships of histories.

        Parameters
        ----------
        histories : csr_array
            Users × items; their users need not be known. An empty history has the shares of the
            users.

        Returns
        -------
        ndarray of float32
            Users × (mixtures · components); exp of them sums to 1 over each mixture.
        """
        log_items = fitted(self.log_items_, self)
        rows = check_histories(histories, len(log_items))
        is_fitted_item = rows.indices < fitted(self.n_fitted_items_, self)
        rows = with_values(rows, rows.data * is_fitted_item.astype(np.float32))
        log_proportions = fitted(self.log_proportions_, self)
        parameters = HostParameters(
            log_items, log_proportions.reshape(self.mixtures, self.components)
        )
        positions = log_memberships(cap_row_sums(rows, self.evidence), parameters)
        return positions.reshape(rows.shape[0], self.embedding_size)

    def check(self) -> None:
        """Refuse sizes that do not fit the parameters, or each other."""
        n_communities = len(fitted(self.log_proportions_, self))
        if n_communities != self.embedding_size:
            raise ModelFileError(
                f"log_proportions: expected {self.embedding_size} communities, "
                f"found {n_communities}"
            )
        n_items = len(fitted(self.log_items_, self))
        if fitted(self.n_fitted_items_, self) > n_items:
            raise ModelFileError(
                f"n_fitted_items: expected at most {n_items}, found {self.n_fitted_items_}"
            )

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """Estimate rows by user and by item, parameters, and the memberships of a sample.

        It is on the CPU where a GPU has too little memory.
        """
        work = self._work(data)
        return work.memory(work.fitting_device())

    def _work(self, data: DataSize) -> MixtureWork:
        return MixtureWork(
            data, components=self.components, mixtures=self.mixtures, starts=self.starts
        )
