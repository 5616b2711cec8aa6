"""Local EASE communities on one data set: seconds and bytes per community, and the loss against dense local models.

Reads interactions from an .npz file with `offsets` and `item_rows`: user u has item_rows[offsets[u]:offsets[u + 1]],
oldest first. With --inverse it times the ways to invert a symmetric positive definite array instead.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_array

from loca.communities.kernel import Kernels
from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.splits import HeldOut, leave_last_out
from loca.evaluation.evaluate import measure
from loca.evaluation.top_n import AnyScores, as_array
from loca.local.engines.differences import MAX_BYTES, Differences
from loca.local.engines.engine import ManyFits, scaled_weights
from loca.memory import readable_bytes
from loca.models.devices import SparseRows, choose_device
from loca.models.ease import EASE
from loca.models.ease_solver import EaseSystem, invert_from_factor, solve_systems
from loca.models.recommender import TrainingData, clone
from loca.persistence.learned import learned_bytes

WeightsOf = Callable[[int], np.ndarray]


def main() -> None:
    """Reads what is asked and runs one of the two measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "data", nargs="?", type=Path, help="an .npz file with offsets and item_rows"
    )
    parser.add_argument("--communities", type=int, default=100)
    parser.add_argument("--l2", type=float, default=100.0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--max-bytes", type=int, default=MAX_BYTES)
    parser.add_argument(
        "--dense", action="store_true", help="also solve dense local models and compare NDCG@100"
    )
    parser.add_argument(
        "--inverse", action="store_true", help="time the ways to invert an array of --size"
    )
    parser.add_argument("--size", type=int, default=4000)
    parser.add_argument(
        "--batch", type=int, default=1, help="with --inverse: so many arrays at once, and in a loop"
    )
    asked = parser.parse_args()
    device = choose_device(asked.device)
    if asked.inverse:
        time_inverses(asked.size, asked.batch, device)
    elif asked.data is None:
        parser.error("name an .npz file, or ask for --inverse")
    else:
        time_communities(asked, device)


def time_communities(asked: argparse.Namespace, device: torch.device) -> None:
    """Fits the centre and all communities, answers for the test users, and compares with dense models if asked."""
    split = leave_last_out(_read(asked.data), test=5, validation=2)
    matrix = split.train.matrix()
    print(
        f"{asked.data.stem}: {matrix.shape[0]:,} users × {matrix.shape[1]:,} items, l2 {asked.l2:g}, {device}",
        flush=True,
    )
    base = EASE(l2=asked.l2)
    started = _now(device)
    centre = clone(base).fit(matrix, device=str(device))
    print(f"centre: {_now(device) - started:.2f} s")
    data = TrainingData.of(matrix, device=str(device))
    finder = Kernels(n=asked.communities)
    communities = finder.find(data, base=base, global_model=centre, seed=0)
    positions = communities.locate(data.histories)
    test_positions = communities.locate(split.test.history_matrix)
    answer_weights = communities.answer_weights(test_positions)

    def weights_of(community: int) -> np.ndarray:
        weights = communities.train_weights(positions, community)
        return scaled_weights(weights, float(matrix.shape[0]))

    started = _now(device)
    fits = ManyFits(
        models=[clone(base) for _ in range(asked.communities)],
        data=data,
        weights_of=weights_of,
        name="local models",
        global_model=centre,
    )
    local = Differences(max_bytes=asked.max_bytes).solve(fits)
    seconds = _now(device) - started
    size = learned_bytes(local.differences_)
    print(f"{len(local)} communities: {seconds:.1f} s, {seconds / len(local):.3f} s each")
    print(
        f"kept: {readable_bytes(size)}, {readable_bytes(size / len(local))} each, centre {centre.weights_.nbytes:,} B"
    )
    if device.type == "cuda":
        print(f"peak device memory {readable_bytes(torch.cuda.max_memory_allocated(device))}")
    histories = split.test.history_matrix
    started = _now(device)
    blended = _in_blocks(lambda rows: local.blend(histories[rows], answer_weights[rows]), histories)
    print(f"blended answers of {histories.shape[0]:,} users: {_now(device) - started:.2f} s")
    kept_ndcg = _ndcg(blended, split.test)
    print(
        f"NDCG@100 of the centre {_ndcg(centre.score(histories), split.test):.5f}, kept {kept_ndcg:.5f}",
        flush=True,
    )
    if asked.dense:
        dense = _ndcg(
            blend_dense(matrix, weights_of, asked.l2, histories, answer_weights, device), split.test
        )
        print(
            f"NDCG@100 dense {dense:.5f}; relative loss of the kept form {100 * (1 - kept_ndcg / dense):+.3f} %"
        )


def blend_dense(
    matrix: csr_array,
    weights_of: WeightsOf,
    l2: float,
    histories: csr_array,
    answer_weights: csr_array,
    device: torch.device,
) -> np.ndarray:
    """The blended scores of dense local solutions, one alive at a time, users × items."""
    totals = np.asarray(answer_weights.sum(axis=1)).ravel()
    blended = np.zeros(histories.shape, dtype=np.float32)
    by_community = answer_weights.tocsc()
    for community in range(by_community.shape[1]):
        part = slice(by_community.indptr[community], by_community.indptr[community + 1])
        members = by_community.indices[part]
        shares = (by_community.data[part] / totals[members]).astype(np.float32)
        system = EaseSystem.of(matrix, weights_of(community), l2)
        weights = next(solve_systems([system], device)).weights()
        for start in range(0, len(members), 1024):
            some = slice(start, start + 1024)
            scores = SparseRows.of(csr_array(histories[members[some]]), device).sum_of(weights)
            blended[members[some]] += shares[some, None] * scores.cpu().numpy()
    return blended


def time_inverses(size: int, batch: int, device: torch.device) -> None:
    """Prints the seconds of each way, factorisation included, and how far its answer is from the unit matrix."""
    generator = torch.Generator().manual_seed(0)
    tall = torch.randn(batch, size, min(size, 512), generator=generator).to(device)
    squares = tall @ tall.mT
    squares.diagonal(dim1=-2, dim2=-1).add_(100.0)
    probe = torch.randn(size, 8, generator=generator).to(device)
    ways: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "cholesky_ex alone": lambda arrays: torch.linalg.cholesky_ex(arrays).L,
        "cholesky_ex + invert_from_factor": lambda arrays: invert_from_factor(
            torch.linalg.cholesky_ex(arrays).L
        ),
        "cholesky_ex + cholesky_inverse": lambda arrays: torch.cholesky_inverse(
            torch.linalg.cholesky_ex(arrays).L
        ),
        "one matrix product": lambda arrays: arrays @ arrays,
    }
    for name, invert in ways.items():
        for together in (True, False) if batch > 1 else (True,):
            times = []
            for _ in range(3):
                started = _now(device)
                answer = (
                    invert(squares) if together else torch.stack([invert(one) for one in squares])
                )
                times.append(_now(device) - started)
            error = float((squares @ (answer @ probe) - probe).abs().max())
            del answer
            how = f"{batch} × {size:,} {'at once' if together else 'in a loop'}"
            print(f"{name:<34} {how:<24}: {min(times):9.4f} s, error {error:.1e}", flush=True)


def _read(path: Path) -> Interactions:
    with np.load(path) as arrays:
        offsets, item_rows = arrays["offsets"], arrays["item_rows"]
    users, items = (
        IdMap.numbered(len(offsets) - 1, "user"),
        IdMap.numbered(int(item_rows.max()) + 1, "item"),
    )
    return Interactions(users, items, offsets, item_rows)


def _in_blocks(answer: Callable[[slice], AnyScores], histories: csr_array) -> np.ndarray:
    blocks = [slice(start, start + 2048) for start in range(0, histories.shape[0], 2048)]
    return np.concatenate([as_array(answer(block)) for block in blocks])


def _ndcg(scores: np.ndarray, held_out: HeldOut) -> float:
    return float(
        measure(lambda user_rows: scores[user_rows], held_out, at=(100,)).values["ndcg@100"].mean()
    )


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


if __name__ == "__main__":
    main()
