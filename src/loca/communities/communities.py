"""Communities, by kernels around anchors or by a mixture: wide weights to train with, narrow ones to answer with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack

from loca.communities import geometry
from loca.communities.coverage import AnchorRows, cover_greedily
from loca.communities.geometry import (
    KERNELS,
    Bandwidth,
    Floats,
    KernelName,
    check_bandwidth,
    unit_rows,
)
from loca.errors import DataError, check_choice, check_counts
from loca.persistence.manifest import ModelState
from loca.progress import say
from loca.random_streams import derive_seed, stream

if TYPE_CHECKING:
    import torch

AnchorSelection = Literal["coverage", "random", "kmeans", "farthest"]
_USERS_PER_BLOCK = 8192
_USERS_PER_BATCH = 4_096
_LOWEST = -80.0  # exp of it is hardly anything, and still a number
_LEAST_SHOWN = 0.01
_HARDLY = 1e-3  # of the largest weight with which a community answers
_LEAST = 1e-6  # of a train weight, and of a mean membership


@dataclass(frozen=True)
class Locality:
    """How local the answers are.

    `alpha` is the global model's share in the answer to a covered user. `effective_share` is the share of the users
    that a local model trains on in effect, (Σt)² / Σt² over the users' train weights t, as a mean over the
    communities: it is 1 where all count the same. `answering` is how many communities answer a user, as a mean over
    the users.
    """

    alpha: float
    effective_share: float
    answering: float

    def __str__(self) -> str:
        trained = f"a local model trains on {self.effective_share:.1%} of the users in effect"
        return f"global share alpha {self.alpha:g}; {trained}; {self.answering:.3g} communities answer a user"


class Communities(Protocol):
    """Overlapping communities of users, given by the embeddings of their histories; `anchors[j]` is a user row.

    `coverage` is the share of the users they were found on that at least one community answers for.
    """

    anchors: AnchorRows
    coverage: float
    arrays: ClassVar[tuple[str, ...]]  # the names of the fields that are arrays

    def __len__(self) -> int:
        return len(self.anchors)

    def state(self) -> ModelState:
        """Its fields as arrays and facts."""
        facts = dict(vars(self))
        return ModelState({name: facts.pop(name) for name in self.arrays}, facts)

    def facts(self) -> dict[str, Any]:
        """What was chosen for them, and their coverage."""
        return dict(self.state().facts)

    def dimensions(self) -> int:
        """How many numbers embed a history."""
        ...

    def train_weights(self, embeddings: npt.NDArray[Any], community: int) -> Floats:
        """How much each user counts when the local model of one community is trained, (users,)."""
        ...

    def effective_shares(
        self, embeddings: npt.NDArray[Any], user_weights: npt.NDArray[Any]
    ) -> npt.NDArray[np.float64]:
        """The share of the users that each community trains on in effect, (Σt)² / Σt² / users, (communities,).

        t are the users' train weights times `user_weights`; 0 for a community without any.
        """
        ...

    def answer_weights(self, embeddings: npt.NDArray[Any]) -> csr_array:
        """How much each community's answer counts for each user, users × communities; empty for an uncovered user."""
        ...

    def memberships(self, embeddings: npt.NDArray[Any]) -> csr_array:
        """How much each user belongs to each community, users × communities."""
        return self.answer_weights(embeddings)

    def count_members(self, memberships: csr_array) -> npt.NDArray[np.int64]:
        """How many users each community has, given their memberships."""
        return np.bincount(memberships.indices, minlength=len(self))


def restore_communities(state: ModelState) -> Communities:
    """The communities that a state holds, perhaps among other things; they check themselves."""
    kind: Any = MixtureCommunities if "mixtures" in state.facts else KernelCommunities
    values = {
        **state.facts,
        **{name: state.arrays[name] for name in kind.arrays if name in state.arrays},
    }
    if wrong := [name for name in kind.arrays if not isinstance(values.get(name), np.ndarray)]:
        raise DataError(f"communities: the array {wrong[0]} is missing")
    if values["anchors"].dtype.kind != "i":
        raise DataError(
            f"communities: expected whole numbers as anchors, found {values['anchors'].dtype}"
        )
    if missing := [one.name for one in fields(kind) if one.name not in values]:
        raise DataError(f"communities: {missing[0]} is missing")
    found: Communities = kind(**{one.name: values[one.name] for one in fields(kind)})
    return found


@dataclass(frozen=True, eq=False)
class KernelCommunities(Communities):
    """Community j is centred on the embedding of the user row `anchors[j]`; bandwidths are in units of distance."""

    anchors: AnchorRows
    anchor_embeddings: Floats
    train_bandwidth: float
    answer_bandwidth: float
    kernel: KernelName
    coverage: float

    arrays = ("anchors", "anchor_embeddings")

    def __post_init__(self) -> None:
        check_choice("kernel", self.kernel, KERNELS)
        check_bandwidth("train_bandwidth", self.train_bandwidth)
        check_bandwidth("answer_bandwidth", self.answer_bandwidth)
        found, around = self.anchors.shape, self.anchor_embeddings.shape
        if len(around) != 2 or found != around[:1]:
            raise DataError(f"communities: {found} anchors do not fit embeddings {around}")

    def dimensions(self) -> int:
        """How many numbers embed a history."""
        return int(self.anchor_embeddings.shape[1])

    def facts(self) -> dict[str, Any]:
        """Both bandwidths and the coverage."""
        return {
            name: getattr(self, name)
            for name in ("train_bandwidth", "answer_bandwidth", "coverage")
        }

    def train_weights(self, embeddings: npt.NDArray[Any], community: int) -> Floats:
        """How much each user counts when the local model of one community is trained, (users,)."""
        distances = geometry.angular_distances(
            unit_rows(embeddings), self.anchor_embeddings[[community]]
        )[:, 0]
        return KERNELS[self.kernel](distances, self.train_bandwidth)

    def effective_shares(
        self, embeddings: npt.NDArray[Any], user_weights: npt.NDArray[Any]
    ) -> npt.NDArray[np.float64]:
        """The share of the users that each community trains on in effect, (communities,)."""
        distances = self._distances(embeddings)
        weights = (
            KERNELS[self.kernel](one, self.train_bandwidth) for one in distances
        )  # (users, communities)
        return _effective_shares(weights, user_weights, len(self))

    def answer_weights(self, embeddings: npt.NDArray[Any]) -> csr_array:
        """How much each community's answer counts for each user, users × communities; empty for an uncovered user."""
        kernel = KERNELS[self.kernel]
        blocks = [
            csr_array(kernel(distances, self.answer_bandwidth))
            for distances in self._distances(embeddings)
        ]
        return csr_array(
            vstack([csr_array((0, len(self)), dtype=np.float32), *blocks], format="csr")
        )

    def _distances(self, embeddings: npt.NDArray[Any]) -> Iterator[Floats]:
        """The distances of users to all anchors, block by block of users."""
        rows = unit_rows(embeddings)
        if rows.shape[1] != self.anchor_embeddings.shape[1]:
            raise DataError(
                f"embeddings: expected {self.anchor_embeddings.shape[1]} dimensions, found {rows.shape[1]}"
            )
        for start in range(0, len(rows), _USERS_PER_BLOCK):
            yield geometry.angular_distances(
                rows[start : start + _USERS_PER_BLOCK], self.anchor_embeddings
            )


@dataclass(frozen=True, eq=False)
class MixtureCommunities(Communities):
    """The components of mixtures, one mixture after the other; embeddings are log memberships, users × communities.

    A local model is trained on everybody, and on members more: user u weighs (1 − focus) + focus · membership / mean
    membership. A community answers with softmax(log membership / temperature) of its mixture, the mean over the
    mixtures; of these weights the `answering` largest stay. `anchors` are the surest members, `sizes` the mean
    memberships.
    """

    anchors: AnchorRows
    sizes: Floats
    mixtures: int
    focus: float
    temperature: float
    answering: int
    coverage: float = 1.0

    arrays = ("anchors", "sizes")

    def __post_init__(self) -> None:
        found = self.anchors.shape, self.sizes.shape
        check_counts(mixtures=self.mixtures, answering=self.answering)
        if (
            found[0] != found[1]
            or len(found[0]) != 1
            or not found[0][0]
            or found[0][0] % self.mixtures
        ):
            raise DataError(
                f"communities: {found[0]} anchors and {found[1]} sizes do not fit {self.mixtures} mixtures"
            )
        numbers = (self.focus, self.temperature, self.coverage)
        if not (
            all(isinstance(one, float) and np.isfinite(one) for one in numbers)
            and 0 <= self.focus <= 1
        ):
            raise DataError(
                f"communities: expected a focus from 0 to 1 and finite numbers, found {numbers}"
            )
        if self.temperature <= 0 or self.sizes.dtype != np.float32 or not (self.sizes >= 0).all():
            raise DataError(
                "communities: expected a temperature above 0 and 32-bit sizes of at least 0"
            )

    def dimensions(self) -> int:
        """How many numbers embed a history: one for each community."""
        return len(self)

    def facts(self) -> dict[str, Any]:
        """Mixtures, focus, temperature and coverage."""
        return {
            name: getattr(self, name) for name in ("mixtures", "focus", "temperature", "coverage")
        }

    def train_weights(self, embeddings: npt.NDArray[Any], community: int) -> Floats:
        """How much each user counts when the local model of one community is trained, (users,)."""
        return self._weights(np.exp(self._checked(embeddings)[:, community]), self.sizes[community])

    def _weights(self, memberships: Floats, sizes: Any) -> Floats:
        # Nobody is left out altogether: all networks visit all users in the epochs that they share.
        weights = (1 - self.focus) + self.focus * memberships / np.maximum(sizes, _LEAST)
        return np.asarray(np.maximum(weights, _LEAST), dtype=np.float32)

    def effective_shares(
        self, embeddings: npt.NDArray[Any], user_weights: npt.NDArray[Any]
    ) -> npt.NDArray[np.float64]:
        """The share of the users that each community trains on in effect, (communities,)."""
        blocks = (
            self._weights(np.exp(rows), self.sizes) for rows in _blocks(self._checked(embeddings))
        )
        return _effective_shares(blocks, user_weights, len(self))

    def answer_weights(self, embeddings: npt.NDArray[Any]) -> csr_array:
        """How much each community's answer counts for each user, users × communities; rows sum to 1."""
        found = [csr_array((0, len(self)), dtype=np.float32)]
        for rows in _blocks(self._checked(embeddings)):
            scores = rows.reshape(len(rows), self.mixtures, -1)
            scores = (scores - scores.max(axis=2, keepdims=True)).astype(
                np.float64
            ) / self.temperature
            weights = np.exp(np.maximum(scores, _LOWEST)).astype(np.float32)
            weights /= weights.sum(axis=2, keepdims=True) * self.mixtures
            found.append(csr_array(keep_strongest(weights.reshape(rows.shape), self.answering)))
        return csr_array(vstack(found, format="csr"))

    def memberships(self, embeddings: npt.NDArray[Any]) -> csr_array:
        """The probability that each user belongs to each community, where it is at least a hundredth."""
        blocks = (np.exp(rows) for rows in _blocks(self._checked(embeddings)))
        return csr_array(
            vstack(
                [csr_array(np.where(one < _LEAST_SHOWN, 0, one)) for one in blocks], format="csr"
            )
        )

    def count_members(self, memberships: csr_array) -> npt.NDArray[np.int64]:
        """How many users each community has: the sum of their probabilities, rounded."""
        return np.rint(np.asarray(memberships.sum(axis=0)).ravel()).astype(np.int64)

    def _checked(self, embeddings: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if embeddings.ndim != 2 or embeddings.shape[1] != len(self):
            raise DataError(
                f"memberships: expected {len(self)} communities, found shape {embeddings.shape}"
            )
        return embeddings


def keep_strongest(weights: Floats, count: int) -> Floats:
    """Only the `count` largest of each row, of equal ones the first, scaled so that they sum to 1.

    Those that are hardly anything beside the largest are left out too, which saves their models' answers.
    """
    if count < weights.shape[1]:
        places = np.argsort(-weights, axis=1, kind="stable")[:, :count]
        strong = np.zeros_like(weights)
        np.put_along_axis(strong, places, np.take_along_axis(weights, places, axis=1), axis=1)
        weights = strong
    weights = np.where(weights < _HARDLY * weights.max(axis=1, keepdims=True), 0, weights)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float32)


def _blocks(rows: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    return (
        rows[start : start + _USERS_PER_BLOCK] for start in range(0, len(rows), _USERS_PER_BLOCK)
    )


def _effective_shares(
    blocks: Iterator[Floats], user_weights: npt.NDArray[Any], count: int
) -> npt.NDArray[np.float64]:
    """(Σt)² / Σt² / users of each community, given its users' train weights block by block."""
    sums, squares = np.zeros(count), np.zeros(count)
    for number, weights in enumerate(blocks):
        given = np.asarray(
            user_weights[number * _USERS_PER_BLOCK :][: len(weights), None], dtype=np.float64
        )
        sums, squares = (
            sums + (weights * given).sum(axis=0),
            squares + np.square(weights * given).sum(axis=0),
        )
    return np.asarray(
        sums**2 / np.maximum(squares, np.finfo(np.float64).tiny) / max(len(user_weights), 1)
    )


def mixture_communities(
    log_memberships: npt.NDArray[Any],
    *,
    mixtures: int,
    focus: float,
    temperature: float,
    answering: int,
) -> MixtureCommunities:
    """The communities of a fitted mixture, given the log memberships of the users it was fitted on."""
    sizes = np.sum([np.exp(rows).sum(axis=0) for rows in _blocks(log_memberships)], axis=0) / len(
        log_memberships
    )
    anchors = log_memberships.argmax(axis=0).astype(np.int64)
    if found := int((sizes * len(log_memberships) < 1).sum()):
        say(f"{found} of {len(sizes)} communities have less than one member: fewer would do")
    numbers = {"focus": float(focus), "temperature": float(temperature)}
    return MixtureCommunities(
        anchors, sizes.astype(np.float32), mixtures, **numbers, answering=answering
    )


def find_communities(
    embeddings: npt.NDArray[Any],
    *,
    anchors: int,
    anchor_selection: AnchorSelection = "coverage",
    train_bandwidth: Bandwidth,
    answer_bandwidth: Bandwidth,
    kernel: KernelName = "epanechnikov",
    seed: int = 0,
    device: str | torch.device = "auto",
) -> KernelCommunities:
    """Resolves the bandwidths, chooses the anchors (on `device`) and measures how many users are covered."""
    check_bandwidth("train_bandwidth", train_bandwidth)
    check_bandwidth("answer_bandwidth", answer_bandwidth)
    rows = unit_rows(embeddings)
    train_units = geometry.resolve_bandwidth(train_bandwidth, rows, seed)
    answer_units = geometry.resolve_bandwidth(answer_bandwidth, rows, seed)
    chosen = choose_anchors(rows, anchors, anchor_selection, answer_units, seed, device)
    found = KernelCommunities(chosen, rows[chosen], train_units, answer_units, kernel, 0.0)
    coverage = float((np.diff(found.answer_weights(rows).indptr) > 0).mean())
    widths = f"train bandwidth {train_units:.3f}, answer bandwidth {answer_units:.3f}"
    say(
        f"{anchors} communities by {anchor_selection}: {widths}, {coverage:.1%} of {len(rows):,} users covered"
    )
    return replace(found, coverage=coverage)


def check_anchor_count(count: int, user_count: int) -> None:
    """Refuse more anchors than users."""
    if count > user_count:
        raise DataError(
            f"anchors: {count:,} were requested, there are only {user_count:,} users; take fewer"
        )


def choose_anchors(
    embeddings: Floats,
    count: int,
    selection: AnchorSelection,
    answer_bandwidth: float,
    seed: int,
    device: str | torch.device = "cpu",
    users_for_batches: int = 50_000,
) -> AnchorRows:
    """The rows of `count` different users, in the order in which they were chosen; embeddings are unit rows.

    `coverage` is the paper's way, and alone makes use of a GPU. `farthest` takes a random first user, then always the
    user who is farthest from the nearest anchor. `kmeans` takes the user nearest to each centre; of more than
    `users_for_batches` users it looks at a batch at a time: centres a little less tight, in a fraction of the time.
    """
    check_counts(anchors=count)
    check_anchor_count(count, len(embeddings))
    if selection == "coverage":
        return cover_greedily(embeddings, count, answer_bandwidth, device)
    if selection == "random":
        return (
            stream(seed, "random anchors")
            .choice(len(embeddings), count, replace=False)
            .astype(np.int64)
        )
    chosen: list[int] = []
    if selection == "farthest":
        chosen.append(int(stream(seed, "first farthest anchor").integers(len(embeddings))))
        nearest = (
            embeddings @ embeddings[chosen[0]]
        )  # cosine to the nearest anchor: the larger, the nearer
        while len(chosen) < count:
            nearest[chosen[-1]] = np.inf
            chosen.append(int(nearest.argmin()))
            np.maximum(nearest, embeddings @ embeddings[chosen[-1]], out=nearest)
        return np.array(chosen, dtype=np.int64)
    from sklearn.cluster import KMeans, MiniBatchKMeans

    random_state = derive_seed(seed, "k-means") % 2**32
    means = KMeans(count, n_init=1, random_state=random_state)
    if len(embeddings) > users_for_batches:
        means = MiniBatchKMeans(
            count, n_init=1, batch_size=_USERS_PER_BATCH, random_state=random_state
        )
    for centre in np.asarray(means.fit(embeddings).cluster_centers_, dtype=np.float32):
        closeness = embeddings @ centre
        closeness[chosen] = -np.inf
        chosen.append(int(closeness.argmax()))
    return np.array(chosen, dtype=np.int64)
