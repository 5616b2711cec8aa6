"""Communities by kernels: anchor users, and a wide and a narrow neighbourhood around each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from loca.communities import geometry
from loca.communities.anchors import AnchorSelection, choose_anchors
from loca.communities.coverage import bytes_of_bits, bytes_on_device
from loca.communities.embeddings import (
    Embedder,
    TruncatedSVD,
    embed_users,
)
from loca.communities.finder import (
    Communities,
    CommunityFinder,
    memory_of_weights,
    users_with_history,
)
from loca.communities.geometry import (
    KERNELS,
    Bandwidth,
    KernelName,
    Quantile,
    check_bandwidth,
    quantile_bytes,
    unit_rows,
)
from loca.communities.memberships import is_positive, row_blocks
from loca.errors import DataError
from loca.memory import DataSize, MemoryUse
from loca.models.devices import choose_device, free_bytes
from loca.models.params import choice, param
from loca.models.recommender import Recommender, TrainingData, clone
from loca.persistence.learned import learned, learned_fact, learned_part, sizes_of
from loca.progress import say
from loca.typing import FloatArray, IntArray

_ADVICE = "take Kernels(anchors='kmeans'), 'farthest' or 'random'"


def _is_embedder(value: object) -> bool:
    return value is None or (isinstance(value, Embedder) and not isinstance(value, type))


def _is_kernel(value: object) -> bool:
    return isinstance(value, str) and value in KERNELS


@dataclass(frozen=True, kw_only=True)
class Kernels(CommunityFinder):
    """Find anchor users, and take a kernel around each (sections 3.3 and 3.4 of the paper).

    Parameters
    ----------
    n : int, default 40
        Number of communities; one for each user where there are fewer.
    anchors : {"coverage", "random", "kmeans", "farthest"}, default "coverage"
        How anchors are chosen. `"coverage"` covers as many users as it can, greedily.
    train_bandwidth : float or Quantile, default Quantile(0.9, times=1.3)
        Radius of the wide neighbourhood that a local model learns from, in units of distance or as a
        quantile of the distances between users.
    answer_bandwidth : float or Quantile, default Quantile(0.5)
        Radius of the narrow neighbourhood that a local model scores for.
    kernel : {"epanechnikov", "paper", "uniform", "triangular"}, default "epanechnikov"
        How a weight falls with the distance to the anchor.
    embedding : Embedder or None, default None
        What embeds the users: `TruncatedSVD`, `GivenEmbeddings`, or a model with an encoder. None
        takes the global model where it has an encoder, else a truncated SVD.

    Examples
    --------
    >>> model = loca.Loca(base=loca.EASE(), communities=loca.Kernels(n=4, anchors="kmeans"))
    >>> model.communities.n
    4
    """

    anchors: AnchorSelection = choice("coverage", AnchorSelection)
    train_bandwidth: Bandwidth = Quantile(0.9, times=1.3)
    answer_bandwidth: Bandwidth = Quantile(0.5)
    kernel: KernelName = choice("epanechnikov", KernelName)
    embedding: Embedder | None = param(
        None, "an embedder such as TruncatedSVD() or none", _is_embedder
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bandwidth("train_bandwidth", self.train_bandwidth)
        check_bandwidth("answer_bandwidth", self.answer_bandwidth)

    def find(
        self, data: TrainingData, *, base: Recommender, global_model: Recommender, seed: int
    ) -> KernelCommunities:
        """Return the communities around anchors, which are users with a history."""
        embedder = self._fit_embedder(data, global_model, seed)
        users = users_with_history(data)
        embeddings = unit_rows(embed_users(embedder, csr_array(data.histories[users])))
        bandwidths = (self.train_bandwidth, self.answer_bandwidth)
        train_radius, answer_radius = geometry.resolve_bandwidths(bandwidths, embeddings, seed)
        anchors = data.context.make(
            "anchors",
            lambda: choose_anchors(
                embeddings, self.n, self.anchors, answer_radius, seed, data.device
            ),
        )
        coverage = _share_covered(embeddings, embeddings[anchors], answer_radius, self.kernel)
        say(
            f"{self.n} communities by {self.anchors}: train bandwidth {train_radius:.3f}, answer "
            f"bandwidth {answer_radius:.3f}, {coverage:.1%} of {len(users):,} users covered"
        )
        return KernelCommunities(
            embedder=embedder,
            anchors=users[anchors],
            anchor_embeddings=embeddings[anchors],
            train_radius=train_radius,
            answer_radius=answer_radius,
            kernel=self.kernel,
            coverage=coverage,
        )

    def _fit_embedder(self, data: TrainingData, global_model: Recommender, seed: int) -> Embedder:
        if self.embedding is not None:
            return data.fit_part("embedding", clone(self.embedding))
        if isinstance(global_model, Embedder):
            return global_model
        return data.fit_part("embedding", TruncatedSVD(seed=seed))

    def selected(self, communities: KernelCommunities) -> Kernels:
        """Return the finder with the embedder's own choices, where it was given one."""
        if self.embedding is None:
            return self
        return replace(self, embedding=communities.embedder.selected())

    def memory(
        self, size: DataSize, *, base: Recommender, global_model: Recommender
    ) -> dict[str, MemoryUse]:
        """Estimate the embedder, and the neighbourhoods among which anchors are chosen."""
        steps: dict[str, MemoryUse] = {}
        embedder: Any = self.embedding
        if embedder is None and not isinstance(global_model, Embedder):
            embedder = TruncatedSVD()
        if embedder is not None:
            steps["embedding"] = embedder.memory_bytes(size)
        fitted_first: Any = embedder or global_model
        dimensions = fitted_first.embedding_size
        share = 1.0
        if isinstance(self.answer_bandwidth, Quantile) and self.answer_bandwidth.times <= 1:
            share = self.answer_bandwidth.level
        on_host, device, on_device = self._memory_of_coverage(size, dimensions)
        use = memory_of_weights(
            size,
            self.n,
            dimensions=dimensions,
            share=share,
            main=max(on_host, quantile_bytes(size.users, dimensions)),
        )
        steps["communities"] = replace(use, device=on_device, device_name=device)
        if self.anchors == "coverage":
            steps["communities"] = replace(steps["communities"], advice=_ADVICE)
        return steps

    def _memory_of_coverage(self, size: DataSize, dimensions: int) -> tuple[int, str, int]:
        """Return the bytes of all neighbourhoods: in main memory, or on a device where they fit."""
        device = choose_device(size.device)
        if self.anchors != "coverage":
            return 0, str(device), 0
        needed = bytes_on_device(size.users, dimensions)
        if device.type == "cuda" and needed <= free_bytes(device):
            return 0, str(device), needed
        return bytes_of_bits(size.users), str(device), 0

    def __str__(self) -> str:
        return f"{self.n} kernels"


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelCommunities(Communities):
    """Communities around anchor users in an embedding space; radii are in units of distance.

    `coverage` is the share of the training users whom at least one community answers for.
    """

    embedder: Embedder = learned_part(Embedder, "items")
    anchors: IntArray = learned("communities", dtype=np.int64)
    anchor_embeddings: FloatArray = learned("communities", "dimensions")
    train_radius: float = learned_fact("a number above 0", is_positive)
    answer_radius: float = learned_fact("a number above 0", is_positive)
    kernel: KernelName = learned_fact("the name of a kernel", _is_kernel)
    coverage: float = learned_fact("a share", lambda value: isinstance(value, float))

    def check(self) -> None:
        """Refuse anchors of other embeddings than the embedder gives."""
        n_items = sizes_of(self.embedder).get("items")
        if (self.anchors < 0).any():
            raise DataError("an anchor has a row below 0")
        if n_items is None:
            return
        nobody = csr_array(np.zeros((1, n_items), dtype=np.float32))
        dimensions = self.embedder.embed(nobody).shape[1]
        if dimensions != self.anchor_embeddings.shape[1]:
            raise DataError(
                f"the embedder gives {dimensions} dimensions, "
                f"the anchors have {self.anchor_embeddings.shape[1]}"
            )

    def __len__(self) -> int:
        return len(self.anchors)

    def locate(self, histories: csr_array) -> FloatArray:
        """Return the embedding of each history, rows of length 1."""
        return embed_users(self.embedder, histories)

    def train_weights(self, positions: FloatArray, community: int) -> FloatArray:
        """Return the kernel of the train radius around one anchor."""
        anchor = self.anchor_embeddings[[community]]
        distances = geometry.angular_distances(unit_rows(positions), anchor)[:, 0]
        return KERNELS[self.kernel](distances, self.train_radius)

    def answer_weights(self, positions: FloatArray) -> csr_array:
        """Return the kernels of the answer radius around all anchors."""
        rows = unit_rows(positions)
        dimensions = self.anchor_embeddings.shape[1]
        if rows.shape[1] != dimensions:
            raise DataError(f"embeddings: expected {dimensions} dimensions, found {rows.shape[1]}")
        return _kernel_weights(rows, self.anchor_embeddings, self.answer_radius, self.kernel)

    def facts(self) -> dict[str, Any]:
        """Return both bandwidths in units of distance, and the coverage."""
        return {
            "train_bandwidth": self.train_radius,
            "answer_bandwidth": self.answer_radius,
            "coverage": self.coverage,
        }


def _kernel_weights(
    embeddings: FloatArray, anchor_embeddings: FloatArray, radius: float, kernel: KernelName
) -> csr_array:
    """Return the kernel around each anchor, users × anchors, found block by block of users."""
    parts = [csr_array((0, len(anchor_embeddings)), dtype=np.float32)]
    for block in row_blocks(embeddings):
        distances = geometry.angular_distances(block, anchor_embeddings)
        parts.append(csr_array(KERNELS[kernel](distances, radius)))
    return csr_array(vstack(parts, format="csr"))


def _share_covered(
    embeddings: FloatArray, anchor_embeddings: FloatArray, radius: float, kernel: KernelName
) -> float:
    """Return the share of users for whom at least one community answers."""
    weights = _kernel_weights(embeddings, anchor_embeddings, radius, kernel)
    return float((np.diff(weights.indptr) > 0).mean())
