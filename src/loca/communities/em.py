"""Expectation maximisation (EM) for mixtures of multinomials, several side by side.

Scores are log π_j + Σ_i x_i log P_ji, for a user's scaled history x, item probabilities P and
proportions π. The E step makes memberships softmax(scores), the M step new P and π from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.sparse_rows import rows_between
from loca.deferred import torch
from loca.models.devices import SparseRows
from loca.typing import FloatArray, IntArray

if TYPE_CHECKING:
    from torch import Tensor

LEAST_RISE = 1e-5  # relative; EM ends where the likelihood of no mixture rises by more
# Pseudo-counts of every component, per item. Chosen by hand; more of them gained nothing sure on
# two data sets (docs/locality.md).
_PSEUDO_COUNTS = 0.25
# Additive smoothing of the item counts, so that an unseen item has a probability. Arbitrary.
_SMOOTHING = 0.1
# Of the memberships of a block of users.
_BLOCK_BYTES = 1 << 23
_BLOCK_BYTES_ON_GPU = 1 << 30


# -- Parameters -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class HostParameters:
    """The parameters of several mixtures in main memory."""

    log_items: FloatArray  # (items, mixtures · components), log P
    log_proportions: FloatArray  # (mixtures, components), log π

    def take(self, mixtures: IntArray) -> HostParameters:
        """Return the parameters of some mixtures, in the order of their numbers."""
        n_items = len(self.log_items)
        log_items = self.log_items.reshape(n_items, *self.log_proportions.shape)[:, mixtures]
        return HostParameters(log_items.reshape(n_items, -1), self.log_proportions[mixtures])

    def to(self, device: torch.device) -> DeviceParameters:
        """Return the parameters on a device."""
        return DeviceParameters(
            log_items=torch.from_numpy(self.log_items).to(device),
            log_proportions=torch.from_numpy(self.log_proportions).to(device),
        )


@dataclass(frozen=True)
class DeviceParameters:
    """The parameters of several mixtures on a device."""

    log_items: Tensor  # (items, mixtures · components), log P
    log_proportions: Tensor  # (mixtures, components), log π

    def to_host(self) -> HostParameters:
        """Return the parameters in main memory."""
        return HostParameters(
            log_items=self.log_items.cpu().numpy(),
            log_proportions=self.log_proportions.cpu().numpy(),
        )


@dataclass(frozen=True)
class EMState:
    """Several mixtures between two rounds of EM."""

    parameters: DeviceParameters
    temperatures: Tensor  # (mixtures, 1), of the first third of the rounds
    round: int = 0  # so many are done
    log_likelihoods: npt.NDArray[np.float64] | None = None  # (mixtures,), as of the last round
    has_converged: bool = False

    @classmethod
    def begin(
        cls, parameters: HostParameters, temperatures: FloatArray, device: torch.device
    ) -> EMState:
        """Return the state before the first round, with a temperature for each mixture."""
        first = torch.from_numpy(temperatures[:, None]).to(device)
        return cls(parameters.to(device), first)

    def state_dict(self) -> dict[str, Any]:
        """Return the state as a checkpoint holds it."""
        parameters = self.parameters.to_host()
        log_likelihoods = self.log_likelihoods
        return {
            "log_items": parameters.log_items,
            "log_proportions": parameters.log_proportions,
            "temperatures": self.temperatures[:, 0].cpu().numpy(),
            "round": self.round,
            "log_likelihoods": None if log_likelihoods is None else log_likelihoods.tolist(),
            "has_converged": self.has_converged,
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any], device: torch.device) -> EMState:
        """Return the state of a checkpoint on a device."""
        # Arrays of a checkpoint may be read-only.
        parameters = HostParameters(
            np.array(state["log_items"]), np.array(state["log_proportions"])
        )
        begun = cls.begin(parameters, np.array(state["temperatures"]), device)
        log_likelihoods = state["log_likelihoods"]
        return replace(
            begun,
            round=state["round"],
            log_likelihoods=None if log_likelihoods is None else np.array(log_likelihoods),
            has_converged=state["has_converged"],
        )


# -- Steps ----------------------------------------------------------------------------------------


class Block(NamedTuple):
    """Some users on a device: their rows, the same by item, and their weights."""

    by_user: SparseRows
    by_item: SparseRows
    weights: Tensor  # (users,)

    def scores(self, parameters: DeviceParameters) -> Tensor:
        """Return log π_j + Σ_i x_i log P_ji, (users, mixtures, components)."""
        sums = self.by_user.sum_of(parameters.log_items)
        return sums.view(-1, *parameters.log_proportions.shape) + parameters.log_proportions

    def log_likelihoods(self, log_sums: Tensor) -> Tensor:
        """Return Σ_u weight · log Σ_j exp(score) of each mixture in 64 bits, from those logs."""
        return (log_sums * self.weights[:, None]).sum(dim=0, dtype=torch.float64)


@dataclass(frozen=True)
class EM:
    """EM on the scaled histories of weighted users, in blocks, for several mixtures at once."""

    blocks: Sequence[Block]
    pseudo_counts: Tensor  # (items,), of every component
    total_weight: float

    @classmethod
    def of(
        cls,
        histories: csr_array,
        weights: FloatArray,
        device: torch.device,
        *,
        users_per_block: int,
    ) -> EM:
        """Bring scaled histories to a device."""
        blocks = []
        for start in range(0, histories.shape[0], users_per_block):
            stop = start + users_per_block
            rows = rows_between(histories, start, stop)
            blocks.append(
                Block(
                    by_user=_on_device(rows, device),
                    by_item=_on_device(rows.T.tocsr(), device),
                    weights=torch.from_numpy(weights[start:stop]).to(device),
                )
            )
        counts = sum(
            (block.by_item.sum_of(block.weights[:, None])[:, 0] for block in blocks),
            torch.tensor(_SMOOTHING),
        )
        pseudo_counts = counts * (_PSEUDO_COUNTS * histories.shape[1] / counts.sum())
        return cls(blocks, pseudo_counts, float(weights.sum(dtype=np.float64)))

    def run(self, state: EMState, rounds: int) -> Iterator[EMState]:
        """Yield the state after each round, up to so many rounds in all, or to convergence.

        Memberships are softmax(scores / temperature). With T at first, the temperature is T in the
        first third of the rounds, T / 2 in the second, but at least 1, and 1 in the last. Where it
        is 1 to the end, EM ends once the likelihood no longer rises.
        """
        is_annealed = bool((state.temperatures > 1).any())
        first_round_at_1 = -(-2 * rounds // 3) if is_annealed else 0
        while state.round < rounds and not state.has_converged:
            temperatures = _temperatures_in(state.round * 3 // rounds, state.temperatures)
            parameters, log_likelihoods = self.round(state.parameters, temperatures)
            # Likelihoods at different temperatures cannot be compared.
            before = state.log_likelihoods if state.round > first_round_at_1 else None
            state = replace(
                state,
                parameters=parameters,
                round=state.round + 1,
                log_likelihoods=log_likelihoods,
                has_converged=before is not None and _is_at_rest(before, log_likelihoods),
            )
            yield state

    def round(
        self, parameters: DeviceParameters, temperatures: Tensor | float = 1.0
    ) -> tuple[DeviceParameters, npt.NDArray[np.float64]]:
        """Return new parameters, and the log-likelihood of each mixture with the old ones.

        The scores of a mixture are divided by its temperature, one for all or (mixtures, 1). The
        log-likelihoods include those of the pseudo-counts.
        """
        scores = (block.scores(parameters).div_(temperatures) for block in self.blocks)
        new_parameters, log_likelihoods = self._maximise(scores)
        return new_parameters, self._with_prior(log_likelihoods, parameters)

    def log_likelihoods(self, parameters: DeviceParameters) -> npt.NDArray[np.float64]:
        """Return the log-likelihood of each mixture, with that of the pseudo-counts."""
        n_mixtures = len(parameters.log_proportions)
        log_likelihoods = self.pseudo_counts.new_zeros(n_mixtures, dtype=torch.float64)
        for block in self.blocks:
            log_sums = torch.logsumexp(block.scores(parameters), dim=2)
            log_likelihoods += block.log_likelihoods(log_sums)
        return self._with_prior(log_likelihoods, parameters)

    def note(self, state: EMState) -> str:
        """Return what a bar of progress says of a state."""
        assert state.log_likelihoods is not None  # there was a round
        mean = state.log_likelihoods.mean() / self.total_weight
        return f"log-likelihood of a user {mean:.3f}"

    def parameters_from(self, log_memberships: Tensor) -> DeviceParameters:
        """Return the parameters that log memberships lead to, (users, mixtures, components)."""
        offsets = np.cumsum([0, *(len(block.weights) for block in self.blocks)])
        return self._maximise(log_memberships[start:stop] for start, stop in pairwise(offsets))[0]

    def m_step(self, counts: Tensor, sizes: Tensor) -> DeviceParameters:
        """Return parameters from each component's items, (items, all components), and users."""
        counts = counts + self.pseudo_counts[:, None]
        return DeviceParameters(
            log_items=torch.log(counts / counts.sum(dim=0)),
            log_proportions=torch.log(sizes / self.total_weight + 1e-9).float(),
        )

    def _maximise(self, scores: Iterable[Tensor]) -> tuple[DeviceParameters, Tensor]:
        """Return the parameters that each block's scores lead to, and their log-likelihoods."""
        counts = self.pseudo_counts.new_zeros(())
        sizes = self.pseudo_counts.new_zeros(())
        log_likelihoods = self.pseudo_counts.new_zeros(())
        for block, block_scores in zip(self.blocks, scores, strict=True):
            memberships, log_sums = e_step(block_scores)
            memberships.mul_(block.weights[:, None, None])
            log_likelihoods = log_likelihoods + block.log_likelihoods(log_sums)
            sizes = sizes + memberships.sum(dim=0, dtype=torch.float64)
            counts = counts + block.by_item.sum_of(memberships.flatten(1))
        return self.m_step(counts, sizes), log_likelihoods

    def _with_prior(
        self, log_likelihoods: Tensor, parameters: DeviceParameters
    ) -> npt.NDArray[np.float64]:
        prior = self.pseudo_counts @ parameters.log_items
        prior = prior.view(parameters.log_proportions.shape).sum(dim=1)
        return np.asarray((log_likelihoods + prior).cpu().numpy(), dtype=np.float64)


def e_step(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return memberships softmax(scores), and log Σ_j exp(score), (users, mixtures)."""
    log_sums = torch.logsumexp(scores, dim=2)
    return (scores - log_sums[:, :, None]).exp_(), log_sums


def _temperatures_in(third: int, first: Tensor) -> Tensor | float:
    """Return the temperatures in a third of the rounds, 0, 1 or 2."""
    return 1.0 if third == 2 else (first / 2**third).clamp(min=1)


def _is_at_rest(before: npt.NDArray[np.float64], log_likelihoods: npt.NDArray[np.float64]) -> bool:
    """Return whether no log-likelihood rises any more."""
    return bool((log_likelihoods - before <= LEAST_RISE * np.abs(log_likelihoods)).all())


# -- Blocks of users ------------------------------------------------------------------------------


def block_bytes(device: torch.device) -> int:
    """Return how much the memberships of a block of users may take."""
    return _BLOCK_BYTES if device.type == "cpu" else _BLOCK_BYTES_ON_GPU


def users_per_block(n_components: int, device: torch.device) -> int:
    """Return how many users' memberships in so many components, of all mixtures, make a block."""
    return max(block_bytes(device) // (4 * n_components), 1)


def _on_device(rows: csr_array, device: torch.device) -> SparseRows:
    columns, values, starts = (
        torch.from_numpy(array).to(device) for array in (rows.indices, rows.data, rows.indptr)
    )
    return SparseRows(columns, values, starts)


# -- Memberships and likelihoods in main memory ---------------------------------------------------


def log_memberships(histories: csr_array, parameters: HostParameters) -> FloatArray:
    """Return the log memberships of scaled histories, (users, mixtures, components)."""
    log_proportions = parameters.log_proportions
    sums = histories @ parameters.log_items
    scores = sums.reshape(-1, *log_proportions.shape) + log_proportions
    return np.asarray(scores - _log_sums(scores), dtype=np.float32)


def held_out_sums(
    histories: csr_array, held_out: csr_array, parameters: HostParameters
) -> npt.NDArray[np.float64]:
    """Return Σ value · log Σ_j membership_j P_ji over each user's held-out items.

    The memberships are those of scaled histories; the sums are (users, mixtures).
    """
    memberships = log_memberships(histories, parameters)
    log_items = parameters.log_items.reshape(-1, *parameters.log_proportions.shape)
    users = np.repeat(np.arange(held_out.shape[0]), np.diff(held_out.indptr))
    sums = np.zeros((held_out.shape[0], len(parameters.log_proportions)))
    entries_per_block = max(_BLOCK_BYTES // (4 * parameters.log_proportions.size), 1)
    for start in range(0, held_out.nnz, entries_per_block):
        block = slice(start, start + entries_per_block)
        # (entries, mixtures, components)
        log_joint = memberships[users[block]] + log_items[held_out.indices[block]]
        log_probabilities = _log_sums(log_joint)[:, :, 0]
        np.add.at(sums, users[block], held_out.data[block, None] * log_probabilities)
    return sums


def _log_sums(scores: FloatArray) -> FloatArray:
    """Return log Σ exp over the last axis, which stays."""
    largest = scores.max(axis=-1, keepdims=True)
    return np.asarray(largest + np.log(np.exp(scores - largest).sum(axis=-1, keepdims=True)))
