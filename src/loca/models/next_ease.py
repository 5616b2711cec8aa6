"""NextEASE: EASE's closed form from the decayed prefixes of a history to the items that follow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.data.held_out import HeldOut
from loca.data.interactions import Interactions, as_matrix, as_moments
from loca.errors import ConfigError, DataError, ModelFileError
from loca.files import save_model
from loca.memory import plan_memory
from loca.models.conditioning import LARGEST_ERROR, inverse_error
from loca.models.devices import check_device, choose_device, float32_products, free_bytes
from loca.models.ease import check_ridge
from loca.models.ease_systems import EaseSystem, fill_gram, invert_from_factor
from loca.models.prefix_grams import add_prefix_sums, bytes_to_sum, count_places
from loca.models.recommender import (
    ModelState,
    Scores,
    UserWeights,
    check_histories,
    check_user_weights,
    clone,
    fitted,
)
from loca.progress import say

_BLOCK = 1024  # columns that are solved at once


class NextEASE:
    """Scores = history · B, where B carries every prefix of a history to what comes next in it.

    B minimises Σ_u w_u (Σ_t ‖y_t − x_t B‖² + ordinary · ‖x_u − x_u B‖²) + ‖B‖² with a zero diagonal, over the users'
    weights w. Prefix x_t holds the first t + 1 items of a history, the newest with weight 1, the one before with
    `prefix_decay`, then its square, …; y_t the `next_count` items after them (None: all that follow). Items of one
    moment (equal times) are one place: a prefix has all or none of them, and they do not follow each other. `ordinary`
    is the share of EASE's own aim, the whole history x_u from itself; 0 learns from the order alone. The squares of
    the weights of item i count l2 + p / (1 − p) · (what i has on the diagonal of the Gram matrix), p being `denoising`.
    """

    def __init__(
        self,
        *,
        l2: float = 300.0,
        next_count: int | None = 10,
        prefix_decay: float = 0.8,
        ordinary: float = 1.0,
        denoising: float = 0.5,
        device: str = "auto",
    ) -> None:
        check_ridge(l2, denoising)
        whole = isinstance(next_count, int) and not isinstance(next_count, bool)
        if next_count is not None and not (whole and next_count >= 1):
            raise ConfigError(f"next_count: expected a whole number ≥ 1 or none, found {next_count!r}")
        if not 0 <= prefix_decay <= 1:
            raise ConfigError(f"prefix_decay: expected a number from 0 to 1, found {prefix_decay!r}")
        if not 0 <= ordinary < float("inf"):
            raise ConfigError(f"ordinary: expected a number ≥ 0, found {ordinary!r}")
        check_device(device)
        self.l2 = l2
        self.next_count = next_count
        self.prefix_decay = prefix_decay
        self.ordinary = ordinary
        self.denoising = denoising
        self.device = device
        self.weights_: npt.NDArray[np.float32] | None = None
        self.known_: Interactions | None = None

    def fit(
        self,
        train: Interactions | csr_array,
        *,
        user_weights: UserWeights | None = None,
        validation: HeldOut | None = None,
    ) -> Self:
        """Solves once; validation is accepted and not needed. A user with weight 2 counts as two equal users.

        The stored order of a matrix's row is the order of the history, oldest first. A user with one item, or with
        items of one moment, counts through `ordinary` alone.
        """
        matrix = as_matrix(train)
        weights = check_user_weights(user_weights, matrix.shape[0])
        self.weights_ = None  # what an earlier fit learned makes room
        self.known_ = train if isinstance(train, Interactions) else None
        items, wanted = matrix.shape[1], choose_device(self.device)
        device, needed = plan_solving_next(items, matrix.nnz, wanted, free_bytes(wanted))
        in_main_memory = needed if device.type == "cpu" else 4 * items**2
        plan_memory(f"NextEASE for {items:,} items", in_main_memory, "filter rare items")
        self.weights_ = solve_next(self, matrix, weights, device, as_moments(train)).cpu().numpy()
        return self

    def score(self, histories: csr_array) -> Scores:
        """Weighted history times item-to-item weights."""
        weights = fitted(self.weights_, self)
        rows = check_histories(histories, len(weights))
        return np.asarray(rows @ weights, dtype=np.float32)

    def count_items(self) -> int:
        """How many items it scores."""
        return len(fitted(self.weights_, self))

    def as_chosen(self) -> Self:
        """A copy: nothing is chosen on validation."""
        return clone(self)

    def state(self) -> ModelState:
        return ModelState(arrays={"weights": fitted(self.weights_, self)})

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        model = cls(**params)
        weights = state.arrays["weights"]
        if weights.ndim != 2 or weights.shape[0] != weights.shape[1]:
            raise ModelFileError(f"NextEASE: expected items × items weights, found shape {weights.shape}")
        model.weights_ = weights
        return model

    def save(self, folder: str | Path) -> None:
        """Writes the model into a folder, whole or not at all."""
        save_model(self, folder)


def bytes_to_solve_next(items: int, stored: int, device: torch.device) -> int:
    """What a solution takes in 32 bits: Gram matrix, its factor, the other side, and blocks of them."""
    return 4 * (3 * items**2 + 4 * min(_BLOCK, items) * items) + bytes_to_sum(items, stored, device)


def plan_solving_next(items: int, stored: int, device: torch.device, free: int) -> tuple[torch.device, int]:
    """Where the equations are solved, the CPU where the device has too little memory, and what that takes there."""
    needed = bytes_to_solve_next(items, stored, device)
    if needed <= free:
        return device, needed
    return torch.device("cpu"), bytes_to_solve_next(items, stored, torch.device("cpu"))


def solve_next(
    model: NextEASE,
    matrix: csr_array,
    user_weights: UserWeights,
    device: torch.device,
    moments: csr_array | None = None,
) -> Tensor:
    """B as a dense (items, items) array in 32 bits on the device: what `model.fit` finds with those weights."""
    weights = check_user_weights(user_weights, matrix.shape[0])
    if model.ordinary == 0 and count_places(matrix, moments)[weights > 0].max() < 2:
        raise DataError("NextEASE: no user has an item that follows another; take ordinary above 0")
    solution = _try_to_solve(model, matrix, moments, weights, device, torch.float32)
    if solution is None:
        say("NextEASE: 32 bits do not hold these equations; once more in 64 bits")
        if device.type == "cpu":
            plan_memory(f"NextEASE for {matrix.shape[1]:,} items", 24 * matrix.shape[1] ** 2, "filter rare items")
        solution = _try_to_solve(model, matrix, moments, weights, device, torch.float64)
    if solution is None:
        raise ConfigError(
            f"l2: {model.l2:g} is too small for these data, the equations have no solution; take a larger"
        )
    return solution.to(torch.float32)


def _try_to_solve(
    model: NextEASE,
    matrix: csr_array,
    moments: csr_array | None,
    weights: npt.NDArray[np.float32],
    device: torch.device,
    kind: torch.dtype,
) -> Tensor | None:
    """B from the inverse of the regularised Gram matrix, in place of the equations' other side; None where that fails.

    With that inverse P and the other side R, B = PR − P · diag(c), where c_j = (PR)_jj / P_jj makes the diagonal 0.
    """
    gram, cross = _equations(model, matrix, moments, weights, device, kind)
    ridges = model.l2 + model.denoising / (1 - model.denoising) * gram.diagonal()
    gram.diagonal().add_(ridges)
    regularised = gram.diagonal().clone()
    inverse, problem = torch.linalg.cholesky_ex(gram)
    del gram
    if int(problem):
        return None
    with float32_products():
        invert_from_factor(inverse)
        if inverse_error(inverse, regularised, ridges, max(matrix.shape)) > LARGEST_ERROR:
            return None
        diagonal = inverse.diagonal()
        for start in range(0, len(cross), _BLOCK):
            block = slice(start, min(start + _BLOCK, len(cross)))
            solved = inverse @ cross[:, block]  # (items, block)
            own = solved[block].diagonal()
            solved -= inverse[:, block] * (own / diagonal[block])
            cross[:, block] = solved
    return cross.fill_diagonal_(0)


def _equations(
    model: NextEASE,
    matrix: csr_array,
    moments: csr_array | None,
    weights: npt.NDArray[np.float32],
    device: torch.device,
    kind: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """The Gram matrix without regularisation, and the other side of the equations."""
    gram = torch.zeros(matrix.shape[1], matrix.shape[1], dtype=kind, device=device)
    if model.ordinary:
        fill_gram(EaseSystem.of(matrix, weights, model.l2).columns, gram)
        gram *= model.ordinary
    cross = gram.clone()
    add_prefix_sums(gram, cross, matrix, weights, model.prefix_decay, model.next_count, moments)
    return gram, cross
