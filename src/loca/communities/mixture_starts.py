"""Starts of mixtures: from clusters of users, compared by the likelihood of held-out items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.clusters import k_means
from loca.communities.em import EM, EMState, HostParameters, held_out_sums, users_per_block
from loca.communities.embeddings import TruncatedSVD
from loca.communities.sparse_rows import (
    cap_row_sums,
    keep_entries,
    per_entry,
    row_sums,
    with_values,
)
from loca.deferred import torch
from loca.errors import DataError
from loca.progress import Bar
from loca.random_streams import derive_seed, stream
from loca.typing import FloatArray

# The numbers up to the temperatures are arbitrary: no others were measured.
_MOST_USERS = 20_000  # whose held-out items compare starts
_USERS_PER_COMPONENT = 4  # at least
_HELD_OUT = 0.1  # of the entries
_DIMENSIONS = 32  # in which users are clustered
_IN_CLUSTER = 0.8  # of a user's first membership; the rest is spread over all components
# Annealing: T, T / 2 and 1 in the three thirds of the rounds. Starts take these T in turn: a high
# one finds more in sparse data (Amazon), and nothing where a history says little of its community.
_TEMPERATURES = (5.0, 1.5, 1.0, 2.5)


def sample_size(components: int) -> int:
    """Return on how many users starts with so many components are compared, at most."""
    return max(_MOST_USERS, _USERS_PER_COMPONENT * components)


def learning_users(histories: csr_array, user_weights: FloatArray) -> tuple[csr_array, FloatArray]:
    """Return the histories and weights of the users from whom a mixture learns.

    They have a weight above 0, and a history of any weight: entries of value 0 are no evidence.
    """
    is_used = (user_weights > 0) & (row_sums(histories) > 0)
    if not is_used.any():
        raise DataError(
            "expected a user with a history among those with a weight above 0, found none"
        )
    if is_used.all():
        return histories, user_weights
    return csr_array(histories[is_used]), user_weights[is_used]


def check_component_count(components: int, n_users: int) -> None:
    """Refuse more components than users."""
    if components > n_users:
        raise DataError(
            f"components: {components:,} were requested, there are only {n_users:,} users with a "
            "history; take fewer"
        )


@dataclass(frozen=True)
class Starts:
    """Mixtures after first rounds of EM on a sample, and how likely they make held-out items."""

    parameters: HostParameters
    temperatures: FloatArray  # (mixtures,), of the first third of the rounds
    log_likelihoods: FloatArray  # (mixtures,), of a held-out item
    user_sums: npt.NDArray[np.float64]  # (users, mixtures), over a user's held-out items


@dataclass(frozen=True)
class Sample:
    """Users on whom starts are compared: a tenth of their entries is held out, of nobody all."""

    shown: csr_array  # scaled as EM sees them
    held_out: csr_array
    weights: FloatArray
    embeddings: FloatArray  # of what is shown, by which users are clustered
    seed: int

    @classmethod
    def draw(
        cls, histories: csr_array, weights: FloatArray, *, n_users: int, evidence: float, seed: int
    ) -> Self:
        """Draw users, all or so many of them, and the entries that are held out."""
        rng = stream(seed, "mixture", "sample")
        if histories.shape[0] > n_users:
            users = np.sort(rng.choice(histories.shape[0], n_users, replace=False))
            histories = csr_array(histories[users])
            weights = weights[users]
        is_held_out = (rng.random(histories.nnz) < _HELD_OUT) & (histories.data > 0)
        rest = with_values(histories, histories.data * ~is_held_out)
        is_held_out &= per_entry(rest, row_sums(rest) > 0)
        shown = keep_entries(histories, ~is_held_out)
        embedder = TruncatedSVD(
            dimensions=_DIMENSIONS, seed=derive_seed(seed, "mixture", "directions")
        )
        return cls(
            shown=cap_row_sums(shown, evidence),
            held_out=keep_entries(histories, is_held_out),
            weights=weights,
            embeddings=embedder.fit(shown).embed(shown),
            seed=seed,
        )

    def try_starts(
        self, components: int, n_starts: int, rounds: int, device: torch.device, progress: Bar
    ) -> Starts:
        """Learn mixtures, each from its own clusters of users and at its own temperature."""
        block_size = users_per_block(n_starts * components, device)
        em = EM.of(self.shown, self.weights, device, users_per_block=block_size)
        memberships = self._first_memberships(components, n_starts)
        first = em.parameters_from(torch.from_numpy(np.log(memberships)).to(device))
        temperatures = np.resize(np.array(_TEMPERATURES, np.float32), n_starts)
        begun = EMState(first, torch.from_numpy(temperatures[:, None]).to(device))
        state = begun
        for state in em.run(begun, rounds):
            progress.advance(note=em.note(state))
        parameters = state.parameters.to_host()
        user_sums = held_out_sums(self.shown, self.held_out, parameters)
        n_entries = float((self.weights * row_sums(self.held_out)).sum())
        log_likelihoods = self.weights @ user_sums / max(n_entries, 1e-9)
        return Starts(parameters, temperatures, log_likelihoods.astype(np.float32), user_sums)

    def _first_memberships(self, components: int, n_starts: int) -> FloatArray:
        """Return memberships by the clusters of each start, (users, starts, components)."""
        n_users = self.shown.shape[0]
        spread = (1 - _IN_CLUSTER) / components
        memberships = np.full((n_users, n_starts, components), spread, np.float32)
        for start in range(n_starts):
            seed = derive_seed(self.seed, "mixture", "start", start)
            clusters = k_means(self.embeddings, components, seed, max_iter=100)
            memberships[np.arange(n_users), start, clusters.labels] += _IN_CLUSTER
        return memberships
