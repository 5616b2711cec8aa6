"""Local EASE: seconds and bytes of each community, and what answers take.

    python benchmarks/local_ease.py DATA.npz      # fit communities, answer the test users
    python benchmarks/local_ease.py --wide        # answers of a service, with all rows wide or not
    python benchmarks/local_ease.py --inverse     # ways to invert a positive definite array

DATA.npz has `offsets` and `item_rows`: user u has item_rows[offsets[u]:offsets[u + 1]], oldest
first.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_array

import loca
from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.splits import HeldOut, leave_last_out
from loca.evaluation.evaluate import mean_values
from loca.evaluation.metrics import DEFAULT_METRIC
from loca.evaluation.top_n import as_array
from loca.local.engines.differences.compressed_weights import CompressedWeights
from loca.local.engines.differences.ease_differences import EaseDifferences
from loca.local.engines.differences.engine import MAX_BYTES, Differences
from loca.local.engines.engine import ManyFits, copies_of, scaled_weights
from loca.memory import readable_bytes
from loca.models.devices import SparseRows, choose_device
from loca.models.ease import EASE
from loca.models.ease_solver import EaseSystem, invert_from_factor, solve_systems
from loca.models.recommender import TrainingData, clone
from loca.persistence.learned import learned_bytes
from loca.typing import FloatArray

WeightsOf = Callable[[int], FloatArray]
USERS_AT_ONCE = 2048


def main() -> None:
    """Run one of the three measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", type=Path, help="an .npz file of interactions")
    parser.add_argument("--communities", type=int, default=100)
    parser.add_argument("--l2", type=float, default=100.0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--max-bytes", type=int, default=MAX_BYTES)
    parser.add_argument("--dense", action="store_true", help="also solve dense local models")
    parser.add_argument("--wide", action="store_true", help="time answers with all rows wide")
    parser.add_argument("--answering", type=int, default=10, help="communities of a user (--wide)")
    parser.add_argument("--inverse", action="store_true", help="time the ways to invert")
    parser.add_argument("--size", type=int, default=4000, help="of the array to invert")
    parser.add_argument("--batch", type=int, default=1, help="so many arrays at once to invert")
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    if arguments.inverse:
        time_inverses(arguments.size, arguments.batch, device)
    elif arguments.wide:
        time_wide_rows(arguments.communities, arguments.answering)
    elif arguments.data is None:
        parser.error("name an .npz file, or ask for --wide or --inverse")
    else:
        time_communities(arguments, device)


# -- Communities of a data set --------------------------------------------------------------------


def time_communities(arguments: argparse.Namespace, device: torch.device) -> None:
    """Fit the centre and all communities, answer for the test users, and compare with dense ones."""
    split = leave_last_out(_read(arguments.data), test=5, validation=2)
    matrix = split.train.matrix()
    data = TrainingData.of(matrix, device=str(device))
    n_users, n_items = matrix.shape
    print(f"{arguments.data.stem}: {n_users:,} users × {n_items:,} items, {device}", flush=True)
    base = EASE(l2=arguments.l2)
    finder = loca.Kernels(
        n=arguments.communities,
        train_bandwidth=loca.Quantile(0.9, times=1.3),
        answer_bandwidth=loca.Quantile(0.5),
        embedding=loca.TruncatedSVD(),
    )
    started = _now(device)
    centre = clone(base).fit(matrix, device=str(device))
    print(f"centre: {_now(device) - started:.2f} s")
    communities = finder.find(data, base=base, global_model=centre, seed=0)
    positions = communities.locate(data.histories)

    def weights_of(number: int) -> FloatArray:
        return scaled_weights(communities.train_weights(positions, number), float(n_users))

    models = copies_of(base, len(communities), 0, "local model")
    fits = ManyFits(models, data, weights_of, "local models", global_model=centre)
    started = _now(device)
    local = Differences(max_bytes=arguments.max_bytes).train(fits)
    assert isinstance(local, EaseDifferences)
    seconds = _now(device) - started
    print(f"{len(local)} communities: {seconds:.1f} s, {seconds / len(local):.3f} s each")
    size = learned_bytes(local.differences_)
    print(f"stored: {readable_bytes(size)}, {readable_bytes(size / len(local))} each")
    if device.type == "cuda":
        print(f"peak device memory {readable_bytes(torch.cuda.max_memory_allocated(device))}")
    histories = split.test.history_matrix
    answer_weights = communities.answer_weights(communities.locate(histories))
    started = _now(device)
    blended = _in_blocks(lambda rows: local.blend(histories[rows], answer_weights[rows]), histories)
    print(f"blended answers of {histories.shape[0]:,} users: {_now(device) - started:.2f} s")
    stored_value = _value(blended, split.test)
    centre_value = _value(centre.score(histories), split.test)
    print(f"{DEFAULT_METRIC.label}: centre {centre_value:.5f}, stored {stored_value:.5f}")
    if arguments.dense:
        dense = blend_dense(matrix, weights_of, arguments.l2, histories, answer_weights, device)
        dense_value = _value(dense, split.test)
        loss = 100 * (1 - stored_value / dense_value)
        print(f"dense {dense_value:.5f}; relative loss of the stored form {loss:+.3f} %")


def blend_dense(
    matrix: csr_array,
    weights_of: WeightsOf,
    l2: float,
    histories: csr_array,
    answer_weights: csr_array,
    device: torch.device,
) -> FloatArray:
    """Return the blended scores of dense local solutions, one alive at a time, users × items."""
    totals = np.asarray(answer_weights.sum(axis=1)).ravel()
    blended = np.zeros(histories.shape, dtype=np.float32)
    by_community = answer_weights.tocsc()
    for number in range(by_community.shape[1]):
        part = slice(by_community.indptr[number], by_community.indptr[number + 1])
        members = by_community.indices[part]
        shares = (by_community.data[part] / totals[members]).astype(np.float32)
        system = EaseSystem.of(matrix, weights_of(number), l2)
        weights = next(solve_systems([system], device)).weights()
        for start in range(0, len(members), 1024):
            block = slice(start, start + 1024)
            rows = SparseRows.of(csr_array(histories[members[block]]), device)
            blended[members[block]] += shares[block, None] * rows.sum_of(weights).cpu().numpy()
    return blended


# -- Answers of a service -------------------------------------------------------------------------


def time_wide_rows(n_communities: int, n_answering: int) -> None:
    """Time answers with the rows that are needed made wide for each, and with all wide at once."""
    models = _drawn_models(n_communities, n_items=3000, entries_of_row=700)
    histories, answer_weights = _drawn_questions(USERS_AT_ONCE, models, n_answering)
    stored = models.differences_
    size = readable_bytes(8 * len(stored.values))
    print(f"{n_communities} communities, {n_answering} answer a user; all rows wide take {size}")
    for n_users in (1, 32, 512):

        def answer(n_users: int = n_users) -> None:
            for start in range(0, 4 * n_users, n_users):
                rows = slice(start, start + n_users)
                models.blend(csr_array(histories[rows]), csr_array(answer_weights[rows]))

        milliseconds = []
        for is_wide in (False, True):
            all_rows = stored.all_rows() if is_wide else None
            models._wide_rows.after_reading = lambda *_, rows=all_rows: rows
            milliseconds.append(250 * _best_of(3, answer))
        needed, wide = milliseconds
        print(
            f"{n_users:3d} users at once: {needed:7.1f} ms by the rows that are needed, "
            f"{wide:7.1f} ms by all: {needed / wide:.1f} times as fast",
            flush=True,
        )


def _drawn_models(n_communities: int, n_items: int, entries_of_row: int) -> EaseDifferences:
    """Return models with drawn weights, in 16 bits."""
    rng = np.random.default_rng(0)
    order = np.argsort(rng.random((n_items, n_items)), axis=1)[:, :entries_of_row]
    columns = np.sort(order, axis=1).astype(np.uint16).ravel()
    starts = (np.arange(n_items + 1) * entries_of_row).astype(np.uint32)
    models = EaseDifferences()
    models.differences_ = CompressedWeights(
        columns=np.tile(columns, n_communities),
        values=rng.normal(size=n_communities * len(columns)).astype(np.float16),
        row_starts=np.tile(starts, (n_communities, 1)),
        offsets=np.arange(n_communities + 1) * len(columns),
        scales=np.full(n_communities, 1e-3, np.float32),
    )
    centre = EASE()
    centre.weights_ = rng.normal(size=(n_items, n_items)).astype(np.float32)
    models.centre_ = centre
    return models.to("cpu")


def _drawn_questions(
    n_users: int, models: EaseDifferences, n_answering: int
) -> tuple[csr_array, csr_array]:
    rng = np.random.default_rng(1)
    histories = (rng.random((n_users, models.count_items())) < 0.02).astype(np.float32)
    weights = np.zeros((n_users, len(models)), np.float32)
    for row in weights:
        row[rng.choice(len(models), n_answering, replace=False)] = rng.random(n_answering)
    return csr_array(histories), csr_array(weights)


# -- Inverses -------------------------------------------------------------------------------------


def time_inverses(size: int, batch: int, device: torch.device) -> None:
    """Print the seconds of each way with its factorisation, and how far the answer is off."""
    generator = torch.Generator().manual_seed(0)
    tall = torch.randn(batch, size, min(size, 512), generator=generator).to(device)
    squares = tall @ tall.mT
    squares.diagonal(dim1=-2, dim2=-1).add_(100.0)
    probe = torch.randn(size, 8, generator=generator).to(device)
    for name, invert in _ways_to_invert().items():
        for is_together in (True, False) if batch > 1 else (True,):
            times = []
            for _ in range(3):
                started = _now(device)
                parts = [squares] if is_together else squares[:, None]
                inverses = torch.cat([invert(part) for part in parts])
                times.append(_now(device) - started)
            error = float((squares @ (inverses @ probe) - probe).abs().max())
            del inverses
            how = f"{batch} × {size:,} {'at once' if is_together else 'in a loop'}"
            print(f"{name:<34} {how:<24}: {min(times):9.4f} s, error {error:.1e}", flush=True)


def _ways_to_invert() -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    def factor(arrays: torch.Tensor) -> torch.Tensor:
        return torch.linalg.cholesky_ex(arrays).L

    return {
        "cholesky_ex alone": factor,
        "cholesky_ex + invert_from_factor": lambda arrays: invert_from_factor(factor(arrays)),
        "cholesky_ex + cholesky_inverse": lambda arrays: torch.cholesky_inverse(factor(arrays)),
        "one matrix product": lambda arrays: arrays @ arrays,
    }


# -- Data and time --------------------------------------------------------------------------------


def _read(path: Path) -> Interactions:
    with np.load(path) as arrays:
        offsets = arrays["offsets"]
        item_rows = arrays["item_rows"]
    users = IdMap.numbered(len(offsets) - 1, "user")
    items = IdMap.numbered(int(item_rows.max()) + 1, "item")
    return Interactions(users, items, offsets, item_rows)


def _in_blocks(answer: Callable[[slice], object], histories: csr_array) -> FloatArray:
    starts = range(0, histories.shape[0], USERS_AT_ONCE)
    return np.concatenate(
        [as_array(answer(slice(start, start + USERS_AT_ONCE))) for start in starts]
    )


def _value(scores: FloatArray, held_out: HeldOut) -> float:
    return mean_values(lambda user_rows: [scores[user_rows]], held_out, DEFAULT_METRIC)[0]


def _best_of(n: int, work: Callable[[], None]) -> float:
    seconds = []
    for _ in range(n):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


if __name__ == "__main__":
    main()
