"""Held-out questions on a device, judged without ranking whole lists, and the choice of a candidate on validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.data.held_out import HeldOut
from loca.errors import DataError
from loca.models.autoencoder import SparseRows
from loca.models.ease import EASE
from loca.models.ease_systems import DeviceRows
from loca.models.network_answers import score_on
from loca.models.recommender import Recommender, fitted
from loca.random_streams import stream

LIST_LENGTH = 100
_CHUNK_BYTES = {"cuda": 2_000_000_000, "cpu": 16_000_000}
Values = npt.NDArray[np.float64]
Answer = Callable[[str], Tensor]  # the scores for the questions of one part, "validation" or "test"


class Blends(Protocol):
    """Many models that give one blended answer under any answer weights: the local models, or corrections."""

    @property
    def device(self) -> torch.device: ...

    def blend(self, histories: csr_array, answer_weights: csr_array) -> Tensor: ...


class Questions:
    """The users with a held-out item: their histories, what is to be found, and NDCG@100 of any scores for them."""

    def __init__(self, held_out: HeldOut, device: torch.device) -> None:
        targets = held_out.target_matrix
        self.user_rows = np.flatnonzero(np.diff(targets.indptr))
        self.histories = csr_array(held_out.history_matrix[self.user_rows])
        self.user_ids = held_out.histories.users.values[self.user_rows]
        self.device = device
        wanted = csr_array(targets[self.user_rows])
        counts = np.diff(wanted.indptr)
        padded = np.full((len(counts), int(counts.max())), -1, dtype=np.int64)
        owners = np.repeat(np.arange(len(counts)), counts)
        padded[owners, np.arange(wanted.nnz) - np.repeat(wanted.indptr[:-1], counts)] = wanted.indices
        self._targets = torch.from_numpy(padded).to(device)  # (users, most targets), −1 where there are fewer
        self._seen = SparseRows.of(self.histories, device)
        discounts = 1 / np.log2(np.arange(2, LIST_LENGTH + 2))
        best = np.cumsum(discounts)[np.minimum(counts, LIST_LENGTH) - 1]
        self._best = torch.from_numpy(best).to(device)

    def __len__(self) -> int:
        return len(self.user_rows)

    @torch.no_grad()
    def ndcgs(self, scores: Tensor, rows: npt.NDArray[np.int64] | None = None) -> Values:
        """NDCG@100 of each user, (users,), or of the users at `rows`, whose scores these are then.

        A target's place is the number of unseen items that score more, or as much with a lower item row: the place
        that a ranked list would give it. A target among the seen is never found.
        """
        users = torch.arange(len(self), device=self.device) if rows is None else torch.from_numpy(rows).to(self.device)
        step = max(1, _CHUNK_BYTES[self.device.type] // (4 * scores.shape[1]))
        parts = [
            self._chunk_ndcgs(scores[start : start + step].to(self.device, copy=True), users[start : start + step])
            for start in range(0, len(users), step)
        ]
        return np.asarray(torch.cat(parts).cpu().numpy(), dtype=np.float64)

    def _chunk_ndcgs(self, scores: Tensor, users: Tensor) -> Tensor:
        if bool(torch.isnan(scores.amax(dim=1)).any()):
            raise DataError("scores: found NaN (not a number); has the training of a model diverged?")
        seen = self._seen.of_users(users)
        scores[seen.owner, seen.columns] = -torch.inf
        items = torch.arange(scores.shape[1], device=self.device)
        gains = torch.zeros(len(users), dtype=torch.float64, device=self.device)
        for column in self._targets[users].T:
            own = scores.gather(1, column.clamp_min(0)[:, None])
            places = (scores > own).sum(dim=1) + ((scores == own) & (items < column[:, None])).sum(dim=1)
            found = (column >= 0) & (own[:, 0] > -torch.inf) & (places < LIST_LENGTH)
            gains += torch.where(found, 1 / torch.log2(places.double() + 2), 0.0)
        return gains / self._best[users]


def scorer_on_device(model: Recommender, device: torch.device) -> Callable[[csr_array], Tensor]:
    """What scores histories with a single model, (users, items) on the device; weights go there once."""
    if isinstance(model, EASE):
        weights = torch.from_numpy(np.array(fitted(model.weights_, model))).to(device)
        return lambda histories: DeviceRows.of(histories, device).times(weights)
    return lambda histories: score_on(model, histories).to(device)


def blend_with_global(local: Blends, histories: csr_array, weights: csr_array, global_scores: Tensor) -> Tensor:
    """The local models' blended scores, the global model's for the users whom no community answers for."""
    blended = local.blend(histories, weights).to(global_scores.device)
    rest = torch.from_numpy(np.flatnonzero(np.diff(weights.indptr) == 0)).to(global_scores.device)
    if len(rest):
        blended[rest] = global_scores[rest]
    return blended


def z_scores(scores: Tensor) -> Tensor:
    """Each user's scores with mean 0 and spread 1."""
    return (scores - scores.mean(dim=1, keepdim=True)) / scores.std(dim=1, keepdim=True).clamp_min(1e-12)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one way of answering reached: the validation NDCG@100 of its best candidate, and the test users' values.

    `shown` is how many users were shown to models while they were trained, each as often as it was shown;
    `validation_values` are the cross-validated ones of each validation user.
    """

    validation: float
    values: Values
    chosen: Mapping[str, Any] = field(default_factory=dict)
    shown: float = 0.0
    validation_values: Values | None = None

    @property
    def test(self) -> float:
        return float(self.values.mean())


def choose(
    parts: Mapping[str, Questions],
    candidates: list[tuple[dict[str, Any], Answer]],
    shown: float = 0.0,
    *,
    epochs: int | None = None,
) -> Outcome:
    """The candidate with the best mean NDCG@100 on validation; only that one is asked for the test users.

    Of equal ones the first is taken. `epochs` were chosen before, and are told with the rest.
    """
    rows = [parts["validation"].ndcgs(answer("validation")) for _, answer in candidates]
    values = np.stack(rows)  # (candidates, users)
    best = int(values.mean(axis=1).argmax())
    about, answer = candidates[best]
    told = about if epochs is None else {**about, "epochs": epochs}
    mean = float(values[best].mean())
    return Outcome(mean, parts["test"].ndcgs(answer("test")), told, shown, cross_validated(values))


def cross_validated(values: Values) -> Values:
    """What each user gets from the candidate that is best for the other half of the users, (users,).

    Unlike the mean of the best candidate it does not rise with the number of candidates.
    """
    folds = stream(0, "halves of the validation users").permutation(values.shape[1]) % 2
    judged = np.empty(values.shape[1])
    for fold in (0, 1):
        best = values[:, folds != fold].mean(axis=1).argmax()
        judged[folds == fold] = values[best, folds == fold]
    return judged
