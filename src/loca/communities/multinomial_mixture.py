"""Communities by likelihood: mixtures of multinomials over the items, learned by EM, and memberships of any history."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.embeddings import TruncatedSVD
from loca.deferred import torch
from loca.errors import DataError, ModelFileError
from loca.memory import DataSize, MemoryUse, plan_memory
from loca.models.devices import SparseRows, choose_device, free_bytes, memory_on
from loca.models.params import positive, seed_param, whole
from loca.models.recommender import (
    BaseEstimator,
    TrainingData,
    check_histories,
    fitted,
)
from loca.persistence.checkpoint import Checkpoint
from loca.persistence.learned import learned
from loca.progress import Bar, bar, say
from loca.random_streams import derive_seed, stream
from loca.typing import FloatArray

if TYPE_CHECKING:
    from torch import Tensor

SAMPLE_USERS = 20_000  # starts are compared on at most so many users
_HELD_OUT = 0.1
_DIRECTIONS = 32
_ON_CLUSTER = 0.8  # of a row's first membership; the rest is spread over all components
# Of the first third of the rounds; half of it in the second, and 1 in the last. Starts take them in turn: a high one
# finds more in sparse data (Amazon), and nothing at all where a history says little of its community.
_TEMPERATURES = (5.0, 1.5, 1.0, 2.5)
LEAST_RISE = 1e-5
_PSEUDO_COUNTS = 0.25  # per item, for each component
_UNSEEN = 0.1  # what every item has been seen more often than it was
_BLOCK_BYTES, _BLOCK_BYTES_ON_GPU = 1 << 23, 1 << 30  # of the memberships of a block of users
_BEGUN: Mapping[str, Any] = {"round": 0, "likelihoods": ()}
ADVICE = "take fewer components or mixtures"


@dataclass(kw_only=True, eq=False, repr=False)
class MultinomialMixture(BaseEstimator):
    """Embed a history by its log memberships in communities, which are the components of mixtures of multinomials.

    A component has a share of the users, π_j, and takes item i with probability P_ji. The membership of a history x in
    it is softmax_j(Σ_i x'_i log P_ji + log π_j), where x' = x · min(1, `evidence` / Σx). The parameters are learned
    by EM, with n_items / 4 pseudo-counts of every component by popularity. It begins at clusters of k-means with
    soft memberships, softmax(… / temperature), and ends with those of the formula.

    Parameters
    ----------
    components : int, default 8
        Communities of one mixture; at most as many as there are users with a history.
    mixtures : int, default 1
        Independent mixtures, side by side.
    evidence : float, default 20.0
        A history counts as this many items at most, so that a long one does not make its membership certain.
    rounds : int, default 60
        Rounds of EM on all users; fewer where the likelihood no longer rises.
    starts : int, default 3
        Starts tried per mixture, each from its own clusters and one of four temperatures, with a third of the rounds,
        on a sample of users where there are many. The best by the likelihood of held-out items are taken.
    seed : int, default 0
        Seed of the starts, the sample and the held-out items.

    Attributes
    ----------
    log_items_ : ndarray of float32
        Items × communities, log P_ji. The communities of mixture m are the columns from m · `components` on.
    log_sizes_ : ndarray of float32
        One number per community, log π_j.
    held_out_ : ndarray of float32
        One number per mixture: its mean log-likelihood of a held-out item after its start, best first.

    Examples
    --------
    >>> import numpy as np
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> model = loca.MultinomialMixture(components=3, mixtures=2, rounds=9).fit(data)
    >>> memberships = np.exp(model.embed(data.histories()))
    >>> memberships.shape
    (60, 6)
    >>> bool(np.allclose(memberships[:, :3].sum(axis=1), 1))
    True
    """

    gives_memberships: ClassVar[bool] = True

    components: int = whole(8)
    mixtures: int = whole(1)
    evidence: float = positive(20.0)
    rounds: int = whole(60)
    starts: int = whole(3)
    seed: int = seed_param()
    log_items_: FloatArray | None = learned("items", "communities")
    log_sizes_: FloatArray | None = learned("communities")
    held_out_: FloatArray | None = learned("mixtures")

    def _fit(self, data: TrainingData) -> None:
        """Try starts, and go on with the best on all users; a user without weight, or without items, is left out."""
        rows, weights = with_entries(data.histories, data.user_weights)
        check_component_count(self.components, rows.shape[0])
        use = self.memory_bytes(DataSize.of(rows, validated=False, device=data.device))
        device = torch.device(use.device_name)
        what = f"{self.mixtures} × {self.components} communities of {rows.shape[0]:,} users"
        plan_memory(what, use.main, ADVICE)
        context, short = data.context, max(self.rounds // 3, 1)
        with bar("communities: rounds of EM", short + self.rounds) as progress:

            def begin() -> dict[str, Any]:
                sample = Sample.of(rows, weights, self.components, self.seed)
                found, _ = sample.try_starts(
                    self, self.starts * self.mixtures, short, device, progress
                )
                best = np.argsort(-found.held_out, kind="stable")[: self.mixtures]
                return found.of(best).as_they_are_and_heated().state_dict()

            state = context.make("mixture", begin)
            steps = EM.of(
                _scaled(rows, self.evidence), weights, 2 * self.mixtures * self.components, device
            )
            found = steps.run(
                MixtureParameters.from_state_dict(state),
                self.rounds,
                progress,
                context.checkpoint,
                state,
            )
            likelihoods = steps.likelihoods(found).reshape(2, -1)
            found = found.of(
                np.arange(self.mixtures) + self.mixtures * (likelihoods[1] > likelihoods[0])
            )
        self.log_items_, self.log_sizes_, self.held_out_ = (
            found.log_items,
            found.log_sizes.ravel(),
            found.held_out,
        )
        say(
            f"{what}: log-likelihood of a held-out item {', '.join(f'{one:.3f}' for one in found.held_out)}"
        )

    def embed(self, histories: csr_array) -> FloatArray:
        """Compute the log memberships of histories.

        Parameters
        ----------
        histories : csr_array
            Users × items; their users need not be known. An empty history has the shares of the users.

        Returns
        -------
        ndarray of float32
            Users × (mixtures · components); exp of them sums to 1 over each mixture.
        """
        log_items = fitted(self.log_items_, self)
        rows = check_histories(histories, len(log_items))
        # An item that was added after the fit has log P = 0, and is not evidence of anything.
        known = (log_items[rows.indices, 0] != 0).astype(np.float32)
        rows = csr_array((rows.data * known, rows.indices, rows.indptr), shape=rows.shape)
        log_sizes = fitted(self.log_sizes_, self).reshape(self.mixtures, self.components)
        memberships = log_memberships(_scaled(rows, self.evidence), log_items, log_sizes)
        return memberships.reshape(rows.shape[0], self.mixtures * self.components)

    def check(self) -> None:
        """Refuse another number of communities than the parameters say."""
        expected, actual = self.mixtures * self.components, len(fitted(self.log_sizes_, self))
        if actual != expected:
            raise ModelFileError(f"log_sizes: expected {expected} communities, found {actual}")

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """Rows by user and by item, the probabilities while they are found, and the memberships of a sample.

        On the CPU where a GPU has too little memory.
        """
        device, width = choose_device(data.device), self.mixtures * self.components
        stored, rows = 4 * (data.items + 1) * width, 16 * data.entries
        users = min(data.users, max(SAMPLE_USERS, 4 * self.components))
        sample = 16 * self.starts * width * (data.items + users) + 24 * data.entries * users // max(
            data.users, 1
        )

        def learning(block: int) -> int:
            return (
                rows
                + max(sample, 12 * stored)
                + 5 * min(block, 4 * self.starts * width * data.users)
            )

        peak = learning(_BLOCK_BYTES_ON_GPU)
        if device.type == "cuda" and peak > free_bytes(device):
            device = torch.device("cpu")
        histories = 24 * data.entries  # and a copy of them
        if device.type == "cpu":
            peak = histories + learning(_BLOCK_BYTES)
        main = histories + rows + sample
        return memory_on(
            device, peak, stored, main=main, after=(stored, 0), checkpoint=stored, advice=ADVICE
        )


def check_component_count(count: int, user_count: int) -> None:
    """Refuse more components than users."""
    if count > user_count:
        raise DataError(
            f"components: {count:,} were requested, there are only {user_count:,} users with a history; take fewer"
        )


class MixtureParameters(NamedTuple):
    """The parameters of several mixtures, and the log-likelihood of a held-out item after their starts."""

    log_items: FloatArray  # (items, mixtures · components)
    log_sizes: FloatArray  # (mixtures, components)
    temperatures: FloatArray  # (mixtures,), of the first rounds
    held_out: FloatArray  # (mixtures,)

    def of(self, places: npt.NDArray[np.int64]) -> MixtureParameters:
        """Some of them, in the order of their places."""
        items = self.log_items.reshape(len(self.log_items), *self.log_sizes.shape)[:, places]
        return MixtureParameters(items.reshape(len(items), -1), *(one[places] for one in self[1:]))

    def as_they_are_and_heated(self) -> MixtureParameters:
        """All at a temperature of 1, then all at their own.

        Heated again some find more, and some melt: their components become the same.
        """
        count = len(self.temperatures)
        both = self.of(np.tile(np.arange(count), 2))
        return both._replace(
            temperatures=np.concatenate([np.ones_like(self.temperatures), self.temperatures])
        )

    def state_dict(
        self, rounds: int = 0, likelihoods: npt.NDArray[np.float64] | None = None
    ) -> dict[str, Any]:
        """Return the progress of EM after so many rounds.

        The likelihoods are those of the last round, where they count.
        """
        listed = [] if likelihoods is None else likelihoods.tolist()
        return {**self._asdict(), "round": rounds, "likelihoods": listed}

    def at(self, now: Parameters) -> MixtureParameters:
        """The same with other parameters."""
        log_items, log_sizes = (one.cpu().numpy() for one in now)
        return self._replace(log_items=log_items, log_sizes=log_sizes)

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> MixtureParameters:
        """Return the mixtures that an interrupted run had so far."""
        return cls(**{name: np.array(state[name]) for name in cls._fields})


class Parameters(NamedTuple):
    """The parameters of several mixtures on a device."""

    log_items: Tensor  # (items, mixtures · components)
    log_sizes: Tensor  # (mixtures, components)


class Block(NamedTuple):
    """Some users on a device: their rows, the same by item, and their weights."""

    by_user: SparseRows
    by_item: SparseRows
    weights: Tensor  # (users,)


@dataclass(frozen=True)
class EM:
    """EM on the scaled histories of weighted users, in blocks, for several mixtures at once."""

    blocks: Sequence[Block]
    popular: Tensor  # (items,), the pseudo-counts of every component
    total: float  # of the users' weights

    @classmethod
    def of(
        cls,
        rows: csr_array,
        weights: FloatArray,
        width: int,
        device: torch.device,
        users: int | None = None,
    ) -> EM:
        """Bring the rows to a device for mixtures of `width` components in all, in blocks of so many users."""
        per_block = users or max(
            (_BLOCK_BYTES if device.type == "cpu" else _BLOCK_BYTES_ON_GPU) // (4 * width), 1
        )
        blocks = []
        for start in range(0, rows.shape[0], per_block):
            part = _rows_between(rows, start, start + per_block)
            by_user, by_item = (_on_device(one, device) for one in (part, part.T.tocsr()))
            blocks.append(
                Block(
                    by_user,
                    by_item,
                    torch.from_numpy(weights[start : start + per_block]).to(device),
                )
            )
        counts = sum(
            (block.by_item.sum_of(block.weights[:, None])[:, 0] for block in blocks),
            torch.tensor(_UNSEEN),
        )
        popular = counts * (_PSEUDO_COUNTS * rows.shape[1] / counts.sum())
        return cls(blocks, popular, float(weights.sum(dtype=np.float64)))

    def parameters(self, counts: Tensor, sizes: Tensor) -> Parameters:
        """The M step: from the items that each component has, (items, all components), and its users."""
        counts = counts + self.popular[:, None]
        return Parameters(
            torch.log(counts / counts.sum(dim=0)), torch.log(sizes / self.total + 1e-9).float()
        )

    def begin(self, log_memberships: Tensor) -> Parameters:
        """The parameters that given log memberships lead to, (users, mixtures, components)."""
        starts = np.cumsum([0, *(len(block.weights) for block in self.blocks)])
        given = [log_memberships[start:end] for start, end in pairwise(starts)]
        return self._maximise(given)[0]

    def step(
        self, old: Parameters, temperature: Tensor | float = 1.0
    ) -> tuple[Parameters, npt.NDArray[np.float64]]:
        """One round: new parameters, and each mixture's log-likelihood at the old ones with that of pseudo-counts.

        The scores of a mixture are divided by its temperature, one for all or (mixtures, 1).
        """
        scores = (
            (
                block.by_user.sum_of(old.log_items).view(-1, *old.log_sizes.shape) + old.log_sizes
            ).div_(temperature)
            for block in self.blocks
        )
        new, likelihoods = self._maximise(scores)
        prior = (self.popular @ old.log_items).view(old.log_sizes.shape).sum(dim=1)
        return new, np.asarray((likelihoods + prior).cpu().numpy(), dtype=np.float64)

    def likelihoods(self, found: MixtureParameters) -> npt.NDArray[np.float64]:
        """The log-likelihood of each mixture, with that of pseudo-counts."""
        return self.step(
            Parameters(*(torch.from_numpy(one).to(self.popular.device) for one in found[:2]))
        )[1]

    def _maximise(self, scores: Any) -> tuple[Parameters, Tensor]:
        """The parameters of the memberships softmax(scores), and each mixture's Σ_u weight · log Σ exp(scores)."""
        counts: Any = 0
        sizes: Any = 0
        likelihoods: Any = 0
        for block, found in zip(self.blocks, scores, strict=True):
            sums = torch.logsumexp(found, dim=2)  # (users, mixtures)
            weights = block.weights[:, None]
            memberships = (found - sums[:, :, None]).exp_().mul_(weights[:, :, None])
            likelihoods = likelihoods + (sums * weights).sum(dim=0, dtype=torch.float64)
            sizes = sizes + memberships.sum(dim=0, dtype=torch.float64)
            counts = counts + block.by_item.sum_of(memberships.flatten(1))
        return self.parameters(counts, sizes), likelihoods

    def run(
        self,
        begun: MixtureParameters,
        rounds: int,
        progress: Bar,
        checkpoint: Checkpoint,
        state: Mapping[str, Any] = _BEGUN,
    ) -> MixtureParameters:
        """All rounds after those done; from soft memberships to those of the formula, by thirds.

        At a temperature of 1 they end once the likelihood no longer rises.
        """
        now = Parameters(*(torch.from_numpy(one).to(self.popular.device) for one in begun[:2]))
        first = torch.from_numpy(begun.temperatures[:, None]).to(self.popular.device)
        number, before, is_hot = (
            state["round"],
            np.array(state["likelihoods"]),
            bool((first > 1).any()),
        )
        progress.advance(number)
        while number < rounds:
            third = number * 3 // rounds
            now, likelihoods = self.step(now, (first / 2**third).clamp(min=1) if third < 2 else 1.0)
            number += 1
            progress.advance(note=f"log-likelihood of a user {likelihoods.mean() / self.total:.3f}")
            if third == 2 or not is_hot:
                if len(before) and (likelihoods - before <= LEAST_RISE * np.abs(likelihoods)).all():
                    number = rounds
                before = likelihoods
            if checkpoint.due() or (number == rounds and checkpoint.saves):
                checkpoint.save("mixture", begun.at(now).state_dict(number, before))
        return begun.at(now)


@dataclass(frozen=True)
class Sample:
    """Users on whom starts are compared: a tenth of their entries is held out, of nobody all."""

    shown: csr_array
    held: csr_array
    weights: FloatArray
    embeddings: FloatArray  # by singular directions of what is shown

    @classmethod
    def of(cls, rows: csr_array, weights: FloatArray, components: int, seed: int) -> Self:
        """All users, or so many of them that they suffice for as many components."""
        rng, count = stream(seed, "mixture", "sample"), max(SAMPLE_USERS, 4 * components)
        if rows.shape[0] > count:
            users = np.sort(rng.choice(rows.shape[0], count, replace=False))
            rows, weights = csr_array(rows[users]), weights[users]
        drawn = (rng.random(rows.nnz) < _HELD_OUT) & (rows.data > 0)
        drawn &= ~np.repeat(
            np.add.reduceat(rows.data * ~drawn, rows.indptr[:-1]) <= 0, np.diff(rows.indptr)
        )
        shown, held = (_entries(rows, one) for one in (~drawn, drawn))
        embedder = TruncatedSVD(
            dimensions=_DIRECTIONS, seed=derive_seed(seed, "mixture", "directions")
        )
        return cls(shown, held, weights, embedder.fit(shown).embed(shown))

    def try_starts(
        self,
        model: MultinomialMixture,
        count: int,
        rounds: int,
        device: torch.device,
        progress: Bar,
    ) -> tuple[MixtureParameters, npt.NDArray[np.float64]]:
        """So many mixtures, each from its own clusters of k-means, and each user's log-likelihood of held-out items.

        The latter is (users, mixtures); an entry counts with its value.
        """
        components, rows = model.components, _scaled(self.shown, model.evidence)
        first = np.full(
            (rows.shape[0], count, components), (1 - _ON_CLUSTER) / components, np.float32
        )
        for start in range(count):
            clusters = _clusters(
                self.embeddings, components, derive_seed(model.seed, "mixture", "start", start)
            )
            first[np.arange(len(first)), start, clusters] += _ON_CLUSTER
        steps = EM.of(rows, self.weights, count * components, device)
        temperatures = np.resize(np.array(_TEMPERATURES, np.float32), count)
        nothing = np.zeros(0, np.float32)
        begun = MixtureParameters(nothing, nothing, temperatures, nothing)
        begun = begun.at(steps.begin(torch.from_numpy(np.log(first)).to(device)))
        found = steps.run(begun, rounds, progress, Checkpoint())
        sums = held_out_sums(rows, self.held, found)
        entries = float((self.weights * row_sums(self.held)).sum())
        return found._replace(
            held_out=(self.weights @ sums / max(entries, 1e-9)).astype(np.float32)
        ), sums


def log_memberships(rows: csr_array, log_items: FloatArray, log_sizes: FloatArray) -> FloatArray:
    """The log memberships of scaled rows, (users, mixtures, components)."""
    scores = (rows @ log_items).reshape(-1, *log_sizes.shape) + log_sizes
    return np.asarray(scores - _log_sums(scores), dtype=np.float32)


def held_out_sums(
    rows: csr_array, held: csr_array, found: MixtureParameters
) -> npt.NDArray[np.float64]:
    """Σ value · log Σ_j membership_j P_ji over each user's held-out items, given scaled rows; (users, mixtures)."""
    memberships = log_memberships(rows, found.log_items, found.log_sizes)
    log_items = found.log_items.reshape(-1, *found.log_sizes.shape)
    owners = np.repeat(np.arange(held.shape[0]), np.diff(held.indptr))
    sums = np.zeros((held.shape[0], len(found.log_sizes)))
    per_block = max(_BLOCK_BYTES // (4 * found.log_sizes.size), 1)
    for start in range(0, held.nnz, per_block):
        part = slice(start, start + per_block)
        both = (
            memberships[owners[part]] + log_items[held.indices[part]]
        )  # (entries, mixtures, components)
        np.add.at(sums, owners[part], held.data[part, None] * _log_sums(both)[:, :, 0])
    return sums


def _log_sums(scores: FloatArray) -> FloatArray:
    """Log Σ exp over the last axis, which stays."""
    largest = scores.max(axis=-1, keepdims=True)
    return np.asarray(largest + np.log(np.exp(scores - largest).sum(axis=-1, keepdims=True)))


def _clusters(embeddings: FloatArray, count: int, seed: int) -> npt.NDArray[np.int32]:
    """The cluster of each user by k-means, in one thread: several would add up in an order of their own."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different users than clusters
        return np.asarray(
            KMeans(count, n_init=1, max_iter=100, random_state=seed % 2**32).fit(embeddings).labels_
        )


def with_entries(rows: csr_array, weights: FloatArray) -> tuple[csr_array, FloatArray]:
    """The rows of the users with a weight and a history of any weight, and their weights."""
    used = (weights > 0) & (row_sums(rows) > 0)
    if not used.any():
        raise DataError(
            "expected a user with a history among those with a weight above 0, found none"
        )
    return (rows, weights) if used.all() else (csr_array(rows[used]), weights[used])


def row_sums(rows: csr_array) -> npt.NDArray[np.float64]:
    """The sum of each row in 64 bits."""
    sums, used = np.zeros(rows.shape[0]), np.diff(rows.indptr) > 0
    if used.any():
        sums[used] = np.add.reduceat(rows.data, rows.indptr[:-1][used], dtype=np.float64)
    return sums


def _scaled(rows: csr_array, evidence: float) -> csr_array:
    """Rows scaled to a sum of at most `evidence`; they share the places of their entries with the rows given."""
    factors = (evidence / np.maximum(row_sums(rows), evidence)).astype(np.float32)
    values = rows.data * np.repeat(factors, np.diff(rows.indptr))
    return csr_array((values, rows.indices, rows.indptr), shape=rows.shape)


def _entries(rows: csr_array, mask: npt.NDArray[np.bool_]) -> csr_array:
    """The rows with some of their entries."""
    offsets = np.concatenate([[0], np.cumsum(mask)])[rows.indptr]
    return csr_array((rows.data[mask], rows.indices[mask], offsets), shape=rows.shape)


def _rows_between(rows: csr_array, start: int, end: int) -> csr_array:
    """Consecutive rows, whose entries are views of the given ones."""
    offsets = rows.indptr[start : end + 1]
    part = slice(offsets[0], offsets[-1])
    shape = len(offsets) - 1, rows.shape[1]
    return csr_array((rows.data[part], rows.indices[part], offsets - offsets[0]), shape=shape)


def _on_device(rows: csr_array, device: torch.device) -> SparseRows:
    return SparseRows(
        *(torch.from_numpy(one).to(device) for one in (rows.indices, rows.data, rows.indptr))
    )
