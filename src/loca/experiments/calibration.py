"""How fast this machine is: small pieces of the work of a fit, timed now and scaled to the whole; rough."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array

from loca.communities.communities import AnchorSelection, choose_anchors
from loca.communities.coverage import DeviceNeighbourhoods, HostNeighbourhoods, words_for
from loca.communities.embeddings import TruncatedSVD
from loca.communities.geometry import Bandwidth, resolve_bandwidth, unit_rows
from loca.evaluation.top_n import block_rows, rank_top_n
from loca.experiments.stopwatch import least_seconds as _seconds
from loca.experiments.stopwatch import some_rows, spread
from loca.local.blend_search import CachedBlock
from loca.local.local_ease import EaseDifferences, ItemToItem, fit_ease_differences
from loca.local.local_models import LocalModels
from loca.local.stacked.inference import StackedNetworks
from loca.local.stacked.ops import PrecisionName
from loca.local.stacked.trainer import StackedLearning
from loca.local.training import StackedKind
from loca.models.cdae import CDAE
from loca.models.ease_solver import EaseSystem, solve_systems
from loca.models.network_base import score_on
from loca.models.next_ease import LagWeights, NextEASE
from loca.models.rec_vae import RecVAE
from loca.models.recommender import clone
from loca.random_streams import stream

Network = StackedKind | CDAE | RecVAE
# Large enough to keep a device as busy as the real work does, small enough to be done at once.
_EQUATIONS = {"cpu": 1_000, "cuda": 6_000}
_USERS_COVERED = {"cpu": 4_096, "cuda": 16_384}
_USERS_EMBEDDED = 4_000
_USERS_RANKED = 512
_USERS_WEIGHED, _TARGETS_WEIGHED = 256, 5


@dataclass(frozen=True)
class NetworkPace:
    """Seconds of one network: for its steps with one batch in an epoch, and for the answer to one user."""

    step: float
    answer: float


@dataclass(frozen=True)
class FitPace:
    """Seconds of one model: to fit it, and to answer all users."""

    fit: float
    answer: float


def pace_of_network(base: Network, matrix: csr_array) -> NetworkPace:
    """The pace of one network in a loop: a few steps of a network of the true shape with users of the true data."""
    model, part = clone(base), some_rows(matrix, base.batch_size)
    learning = model.begin(part, None)
    # An epoch of so few users is one step, or as many as RecVAE takes with one batch.
    step = _seconds(learning.run_epoch)
    return NetworkPace(step, _seconds(lambda: float(score_on(model, part).sum())) / part.shape[0])


def pace_of_stack(base: StackedKind, matrix: csr_array, networks: int, precision: PrecisionName) -> NetworkPace:
    """The pace of one network in a stack of so many that go through a step at once."""
    part = some_rows(matrix, base.batch_size)
    learning = [clone(base).begin(part, None) for _ in range(networks)]
    stack = StackedLearning(learning, precision=precision, at_once=networks)
    step = _seconds(stack.run_epoch) / networks
    answering = StackedNetworks.of(stack.networks, learning[0].device, quick=precision == "bfloat16")
    return NetworkPace(step, _seconds_to_blend(answering, part) / (networks * part.shape[0]))


def pace_of_ease(model: ItemToItem, matrix: csr_array, device: torch.device) -> FitPace:
    """The pace of `fit` on a device, from a share of the users and the same share of the items."""
    if isinstance(model, NextEASE):
        return _pace_of_next_ease(model, matrix, device)
    part, growth = _smaller(matrix, device)
    here = clone(model, device=str(device))
    fit = solve = _seconds(lambda: here.fit(part))
    if device.type == "cuda" or part.shape[0] < part.shape[1]:
        solve = _seconds_to_solve(EaseSystem.of(part, np.ones(part.shape[0]), model.l2), device)
    answer = _seconds(lambda: here.score(part))
    return FitPace(_grown(solve, fit, growth), answer * _work_of_answers(matrix) / _work_of_answers(part))


def _pace_of_next_ease(model: NextEASE, matrix: csr_array, device: torch.device) -> FitPace:
    """The pace of `NextEASE.fit` on a device.

    Equations go with the third power of the items, sums over prefixes with the pairs of places that are added up.
    """
    part, growth = _fewer_items(matrix, device)
    here = clone(model, device=str(device))
    fit = _seconds(lambda: here.fit(part))
    answer = _seconds(lambda: here.score(part))
    # Of pairs that are neighbours alone there is next to nothing to sum: what is left are the equations.
    neighbours = clone(here, next_count=1, prefix_decay=0.0, ordinary=1.0)
    solve = min(_seconds(lambda: neighbours.fit(part)), fit)
    more_pairs = _count_pairs(model, matrix) / max(_count_pairs(model, part), 1)
    whole = solve * growth**3 + (fit - solve) * more_pairs
    return FitPace(whole, answer * _work_of_answers(matrix) / _work_of_answers(part))


def pace_of_local_ease(base: ItemToItem, matrix: csr_array, local_bytes: int, device: torch.device) -> FitPace:
    """The pace of one local EASE or NextEASE that is solved on a device and kept as differences."""
    if isinstance(base, NextEASE):
        return _pace_of_local_next_ease(base, matrix, local_bytes, device)
    part, growth = _smaller(matrix, device)
    solve = _seconds_to_solve(EaseSystem.of(part, np.linspace(0.5, 1.5, part.shape[0]), base.l2), device)
    local = _time_one_local(base, part, int(local_bytes / growth**2), device)
    fit = _grown(solve, local.fit, growth)
    return FitPace(fit, local.answer * _work_of_answers(matrix) / _work_of_answers(part))


def _pace_of_local_next_ease(base: NextEASE, matrix: csr_array, local_bytes: int, device: torch.device) -> FitPace:
    part, growth = _fewer_items(matrix, device)
    here = clone(base, device=str(device))
    local = _time_one_local(here, part, int(local_bytes / growth**2), device)
    keeping = max(local.fit - _seconds(lambda: here.fit(part)), 0.0)
    fit = _pace_of_next_ease(base, matrix, device).fit + keeping * growth**2
    return FitPace(fit, local.answer * _work_of_answers(matrix) / _work_of_answers(part))


def _time_one_local(base: ItemToItem, part: csr_array, local_bytes: int, device: torch.device) -> FitPace:
    """Seconds of one local model of a small problem: to solve and keep it, and to answer beyond its centre."""
    weights = np.linspace(0.5, 1.5, part.shape[0], dtype=np.float32)
    centre = clone(base).fit(part)
    room = max(local_bytes, 16 * (part.shape[1] + 1))

    def fit() -> EaseDifferences:
        return fit_ease_differences(base, centre, part, lambda _: weights, 1, device=device, local_bytes=room)

    extra = max(_seconds_to_blend(fit(), part) - _seconds(lambda: centre.score(part)), 0.0)
    return FitPace(_seconds(fit), extra)


def seconds_to_embed(embedder: TruncatedSVD, matrix: csr_array) -> float:
    """How long a truncated SVD of all users takes: that of some, times how many times more there are."""
    part = some_rows(matrix, _USERS_EMBEDDED)
    return _seconds(lambda: clone(embedder).fit(part)) * matrix.shape[0] / part.shape[0]


def seconds_to_cover(users: int, dimensions: int, anchors: int, bandwidth: Bandwidth, device: torch.device) -> float:
    """How long greedy coverage takes: neighbourhoods of fewer users, and one count in them for each anchor."""
    rows = _random_embeddings(min(users, _USERS_COVERED[device.type]), dimensions)
    within = resolve_bandwidth(bandwidth, rows, 0)
    members = np.full(words_for(len(rows)), np.uint64(0x5555555555555555))

    def find() -> HostNeighbourhoods | DeviceNeighbourhoods:
        on_host = device.type == "cpu"
        found = HostNeighbourhoods(rows, within) if on_host else DeviceNeighbourhoods(rows, within, device)
        found.of(0)  # waits for the device
        return found

    build, found = _seconds(find), find()
    return (build + anchors * _seconds(lambda: found.count_in(members))) * (users / len(rows)) ** 2


def seconds_to_choose_anchors(users: int, dimensions: int, anchors: int, selection: AnchorSelection) -> float:
    """How long the other ways to choose anchors take, which go with the users."""
    rows = _random_embeddings(min(users, max(_USERS_COVERED["cpu"], 2 * anchors)), dimensions)
    return _seconds(lambda: choose_anchors(rows, anchors, selection, 1.0, 0)) * users / len(rows)


def seconds_to_rank(matrix: csr_array, device: torch.device) -> float:
    """How long the best 100 items of one user take to find."""
    part = some_rows(matrix, min(_USERS_RANKED, block_rows(matrix.shape[1])))
    scores = torch.rand(part.shape, device=device)
    return _seconds(lambda: rank_top_n(scores, part, 100)) / part.shape[0]


def seconds_to_weigh(candidates: int, device: torch.device) -> float:
    """How long the NDCG@100 of one user takes under one weighting of a blend, who has so many candidates."""
    rng = stream(0, "weightings to time")
    scores = torch.from_numpy(rng.random((1, _USERS_WEIGHED, candidates), dtype=np.float32)).to(device)
    places = torch.from_numpy(rng.integers(0, candidates, (_USERS_WEIGHED, _TARGETS_WEIGHED))).to(device)
    counts = np.full(_USERS_WEIGHED, _TARGETS_WEIGHED)
    block = CachedBlock(scores, torch.zeros_like(scores[0]), places, counts)
    return _seconds(lambda: block.sum_ndcg(block.unseen + block.scores[0])) / _USERS_WEIGHED


def _seconds_to_solve(system: EaseSystem, device: torch.device) -> float:
    return _seconds(lambda: float(next(solve_systems([system], device)).shares.sum()))


def _grown(solve: float, fit: float, growth: float) -> float:
    """Seconds of a fit with so many times more users and items, of which `solve` goes into the equations.

    Filling and solving them goes with the third power, what follows passes over items × items numbers.
    """
    return min(solve, fit) * growth**3 + max(fit - solve, 0.0) * growth**2


def _work_of_answers(matrix: csr_array) -> float:
    """Scores are as many passes over the items as there are stored entries, and a few more for each user."""
    return float((matrix.nnz + 3 * matrix.shape[0]) * matrix.shape[1])


def _seconds_to_blend(local: LocalModels, histories: csr_array) -> float:
    """Seconds in which all models answer all these users, asked anew."""
    weights = csr_array(np.ones((histories.shape[0], len(local)), dtype=np.float32))
    return _seconds(lambda: float(local.blend(histories.copy(), weights.copy()).sum()))


def _smaller(matrix: csr_array, device: torch.device) -> tuple[csr_array, float]:
    """A share of the users and the same share of the items, and how many times more equations the whole has."""
    equations = min(int((np.diff(matrix.indptr) > 0).sum()), matrix.shape[1])
    part = _share_of(matrix, min(1.0, _EQUATIONS[device.type] / equations))
    return part, 1.0 if part is matrix else equations / min(part.shape)


def _fewer_items(matrix: csr_array, device: torch.device) -> tuple[csr_array, float]:
    """A share of the items and the same share of the users, and how many times more items the whole has."""
    part = _share_of(matrix, min(1.0, _EQUATIONS[device.type] / matrix.shape[1]))
    return part, matrix.shape[1] / part.shape[1]


def _share_of(matrix: csr_array, share: float) -> csr_array:
    """A share of the items, and the same share of the users among those who have one of them; all where it is 1."""
    if share == 1:
        return matrix
    able = int((np.diff(matrix.indptr) > 0).sum())
    part = csr_array(matrix[:, spread(np.unique(matrix.indices), int(share * matrix.shape[1]))])
    # Only users who have one of those items: of many short histories nothing would be left.
    return some_rows(part, int(share * able))


def _count_pairs(model: NextEASE, matrix: csr_array) -> int:
    """How many pairs of places of one history are added up: those whose lag counts."""
    lengths = np.diff(matrix.indptr).astype(np.int64)
    weights = LagWeights.of(int(lengths.max()), model.prefix_decay, model.next_count)
    most = max(len(weights.decays), len(weights.follows), 1) - 1
    lags = np.minimum(most, np.maximum(lengths - 1, 0))
    return int((lags * lengths - lags * (lags + 1) // 2).sum())


def _random_embeddings(users: int, dimensions: int) -> npt.NDArray[np.float32]:
    return unit_rows(stream(0, "embeddings to time").standard_normal((users, dimensions), dtype=np.float32))
