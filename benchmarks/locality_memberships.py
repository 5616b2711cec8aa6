"""Who belongs to which community, found in several ways: weights to train with and weights to answer with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.communities.anchors import AnchorSelection
from loca.communities.communities import Communities, find_communities
from loca.communities.embeddings import Embedder, embed_users
from loca.communities.geometry import Floats, Quantile, resolve_bandwidth, unit_rows
from loca.data.held_out import HeldOut
from loca.data.interactions import Interactions, as_matrix
from loca.files.model_state import ModelState
from loca.local.local_models import LocalModels
from loca.local.one_by_one import scaled_weights
from loca.models.recommender import UserWeights, clone, fitted
from loca.random_streams import derive_seed, stream

WIDE = Quantile(0.9, times=1.3)
NARROW = Quantile(0.5)
_LARGEST_KERNEL_VALUE = 0.75
_MEAN_LARGEST_SHARE = 0.5


@dataclass(frozen=True, eq=False)
class Histories:
    """The histories that communities are found in and asked with: of the training users, and of both questions."""

    train: csr_array
    validation: csr_array
    test: csr_array

    def parts(self) -> dict[str, csr_array]:
        """By name."""
        return {"train": self.train, "validation": self.validation, "test": self.test}


@dataclass(frozen=True, eq=False)
class Membership:
    """Train weights of each community over the training users, and answer weights (users × communities) by part."""

    count: int
    train_weights: Callable[[int], UserWeights]
    answering: Mapping[str, csr_array]


class RandomSigns:
    """Projects a history, scaled to length 1, onto random signs: cosines are those of the histories, give or take
    1 / √dimensions, so that users are near each other by what they have in common and nothing else."""

    def __init__(self, *, dimensions: int = 512, seed: int = 0) -> None:
        self.dimensions = dimensions
        self.seed = seed
        self.signs_: Floats | None = None

    def fit(
        self,
        train: Interactions | csr_array,
        *,
        user_weights: UserWeights | None = None,
        validation: HeldOut | None = None,
    ) -> Self:
        """Draws the signs; nothing is learned."""
        draws = stream(self.seed, "random signs").integers(0, 2, (as_matrix(train).shape[1], self.dimensions))
        self.signs_ = ((2 * draws - 1) / np.sqrt(self.dimensions)).astype(np.float32)
        return self

    def embed(self, histories: csr_array) -> Floats:
        """The projections, users × dimensions."""
        return unit_rows(histories @ fitted(self.signs_, self))

    def as_chosen(self) -> Self:
        """A copy: nothing is chosen on validation."""
        return clone(self)

    def state(self) -> ModelState:
        return ModelState(arrays={"signs": fitted(self.signs_, self)})


def embed_parts(embedder: Embedder, histories: Histories) -> dict[str, Floats]:
    """The embeddings of all three kinds of histories."""
    return {name: embed_users(embedder, rows) for name, rows in histories.parts().items()}


def around_anchors(
    embedded: Mapping[str, Floats], anchors: int, selection: AnchorSelection, seed: int, device: torch.device
) -> tuple[Communities, Membership]:
    """Communities as Loca finds them, around anchor users chosen in the named way."""
    found = find_communities(
        embedded["train"],
        anchors=anchors,
        anchor_selection=selection,
        train_bandwidth=WIDE,
        answer_bandwidth=NARROW,
        seed=seed,
        device=device,
    )
    return found, membership_of(found, embedded)


def membership_of(communities: Communities, embedded: Mapping[str, Floats]) -> Membership:
    """The weights of communities for the embedded users."""
    total = float(len(embedded["train"]))

    def weights_of(community: int) -> UserWeights:
        return scaled_weights(communities.train_weights(embedded["train"], community), total)

    answering = {name: communities.answer_weights(rows) for name, rows in embedded.items()}
    return Membership(len(communities), weights_of, answering)


def at_two_scales(communities: Communities, embedded: Mapping[str, Floats], seed: int) -> Membership:
    """The same communities, trained with the mean of their wide weights and of narrow ones, each with the same sum."""
    wide = membership_of(communities, embedded)
    bandwidth = resolve_bandwidth(NARROW, embedded["train"], seed)
    narrow = membership_of(replace(communities, train_bandwidth=bandwidth), embedded)

    def weights_of(community: int) -> UserWeights:
        return (wide.train_weights(community) + narrow.train_weights(community)) / 2

    return replace(wide, train_weights=weights_of)


def k_means_closeness(embedded: Mapping[str, Floats], count: int, seed: int) -> dict[str, npt.NDArray[Any]]:
    """The cosine of every user to each centre of k-means on the training users, users × centres."""
    from sklearn.cluster import KMeans

    random_state = derive_seed(seed, "k-means") % 2**32
    centres = unit_rows(KMeans(count, n_init=1, random_state=random_state).fit(embedded["train"]).cluster_centers_)
    return {name: rows @ centres.T for name, rows in embedded.items()}


@torch.no_grad()
def own_fit(
    local: LocalModels, histories: Histories, count: int, likelihood: bool, block: int
) -> dict[str, npt.NDArray[Any]]:
    """How well each local model explains each user's own history, users × models.

    Mean log-likelihood of what is stored where the scores are logits, else minus the squared error over all items.
    """
    fits = {}
    for name, rows in histories.parts().items():
        fit = np.empty((rows.shape[0], count))
        for start in range(0, rows.shape[0], block):
            asked = csr_array(rows[start : start + block])
            for number in range(count):
                scores = local.blend(asked, only_model(number, count, asked.shape[0]))
                fit[start : start + asked.shape[0], number] = _explained(scores, asked, likelihood).cpu().numpy()
        fits[name] = fit
    return fits


def _explained(scores: Tensor, histories: csr_array, likelihood: bool) -> Tensor:
    device = scores.device
    owners = torch.from_numpy(np.repeat(np.arange(histories.shape[0]), np.diff(histories.indptr))).to(device)
    values = torch.from_numpy(histories.data.astype(np.float32)).to(device)
    columns = torch.from_numpy(histories.indices.astype(np.int64)).to(device)
    totals = torch.zeros(len(scores), device=device)
    stored = totals.index_add(0, owners, values * scores[owners, columns])
    amounts = totals.index_add(0, owners, values).clamp_min(1e-12)
    if likelihood:
        return stored / amounts - torch.logsumexp(scores, dim=1)
    return 2 * stored - (scores**2).sum(dim=1)


def only_model(number: int, count: int, users: int) -> csr_array:
    """Answer weights of one model alone, for all of so many users."""
    stored = (np.ones(users, np.float32), np.full(users, number), np.arange(users + 1))
    return csr_array(stored, shape=(users, count))


def in_soft_cells(closeness: Mapping[str, npt.NDArray[Any]], outside: float = 0.2) -> Membership:
    """Each user's shares in all cells, a softmax of the closeness as sharp as makes the mean largest share one half.

    A user counts `outside` + (1 − `outside`) · share when a cell's model is trained, and is answered by the shares,
    those below a hundredth left out.
    """
    sharpness = _find_sharpness(closeness["train"])
    shares = {name: _softmax(sharpness * one) for name, one in closeness.items()}
    users, count = shares["train"].shape

    def weights_of(cell: int) -> UserWeights:
        return scaled_weights((outside + (1 - outside) * shares["train"][:, cell]).astype(np.float32), float(users))

    answering = {name: csr_array(np.where(one < 0.01, 0, one).astype(np.float32)) for name, one in shares.items()}
    return Membership(count, weights_of, answering)


def _find_sharpness(closeness: npt.NDArray[Any]) -> float:
    """By halving on a logarithmic scale: the mean largest share rises with the sharpness."""
    low, high = -10.0, 15.0
    for _ in range(40):
        middle = (low + high) / 2
        sharp_enough = _softmax(np.exp(middle) * closeness).max(axis=1).mean() >= _MEAN_LARGEST_SHARE
        low, high = (low, middle) if sharp_enough else (middle, high)
    return float(np.exp(high))


def _softmax(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def strengths_of(answering: Mapping[str, csr_array]) -> dict[str, dict[str, npt.NDArray[Any]]]:
    """How strongly each user belongs anywhere, from 0 to 1, by part, in two ways.

    `largest` is the largest answer weight against that of an anchor itself, `sum` all of them together against their
    median over the training users, no more than 1.
    """
    middle = float(np.median(np.asarray(answering["train"].sum(axis=1))))
    return {
        "largest": {name: one.max(axis=1).toarray().ravel() / _LARGEST_KERNEL_VALUE for name, one in answering.items()},
        "sum": {name: np.minimum(np.asarray(one.sum(axis=1)).ravel() / middle, 1) for name, one in answering.items()},
    }


def of_true_shares(shares: Mapping[str, npt.NDArray[Any]]) -> Membership:
    """Communities that are known: the true shares both train and answer."""
    total = float(len(shares["train"]))

    def weights_of(community: int) -> UserWeights:
        return scaled_weights(shares["train"][:, community].astype(np.float32), total)

    answering = {name: csr_array(one.astype(np.float32)) for name, one in shares.items()}
    return Membership(shares["train"].shape[1], weights_of, answering)
