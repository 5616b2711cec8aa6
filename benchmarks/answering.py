"""Answers of a saved model with 300 MultVAEs of AMusic's shape: opening, one user's latency, all users' lists."""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_array

from loca.communities.kernel import KernelCommunities, Kernels
from loca.communities.mixture import MixtureCommunities, Mixtures
from loca.communities.multinomial_mixture import MultinomialMixture
from loca.data.interactions import Interactions
from loca.data.readers import read_preset
from loca.evaluation.recommend import recommend
from loca.evaluation.top_n import block_rows, rank_top_n
from loca.local.combiner import FixedShare
from loca.local.community_models import CommunityDescription
from loca.local.engines.stacked.engine import Stacked
from loca.local.engines.stacked.networks import StackedNetworks
from loca.local.loca import Loca
from loca.memory import readable_bytes
from loca.models.mult_vae import MultVAE
from loca.models.recommender import TrainingData
from loca.random_streams import stream
from loca.registry import load


def main() -> None:
    """Makes the model (its local networks are copies: an answer takes as long), saves, opens and asks it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--communities", type=int, default=300)
    parser.add_argument(
        "--answer-bandwidth", type=float, help="in units of distance; default: as Table 3 suggests"
    )
    parser.add_argument("--alpha", type=float, default=0.0)
    parser.add_argument("--precision", default="float32", choices=["float32", "float16"])
    parser.add_argument("--questions", type=int, default=1000, help="single users to ask for")
    asked = parser.parse_args()
    data = _data()
    folder = Path(tempfile.mkdtemp(prefix="loca-answering-")) / "model.loca"
    try:
        _make_model(data, asked).save(folder)
        size = sum(file.stat().st_size for file in folder.iterdir())
        started = time.perf_counter()
        model = load(folder)
        print(f"open {readable_bytes(size)}: {time.perf_counter() - started:.2f} s", flush=True)
        _ask(model, data, asked.questions)
        _turn_to_mixtures(model, data)
        _ask(model, data, asked.questions)
    finally:
        shutil.rmtree(folder.parent)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"{torch.get_num_threads()} threads, peak memory with mapped files {readable_bytes(peak)}"
    )


def _turn_to_mixtures(model: Loca, data: Interactions) -> None:
    """Puts mixtures with default settings in the place of anchors; drawn ones, so that all communities have members."""
    local = model.local_
    finder = Mixtures(n=len(local.communities))
    components = finder.n // finder.mixtures
    mixture = MultinomialMixture(components=components, mixtures=finder.mixtures)
    draws = stream(0, "drawn mixtures").normal(size=(data.n_items, finder.n))
    mixture.log_items_ = draws.astype(np.float32)
    mixture.log_proportions_ = np.full(finder.n, -np.log(components), np.float32)
    mixture.n_fitted_items_ = data.n_items
    communities = MixtureCommunities(
        mixture=mixture,
        anchors=np.zeros(finder.n, np.int64),
        mean_memberships=np.full(finder.n, 1 / components, np.float32),
        membership_weight=0.8,  # what answers does not depend on it
        temperature=8.0,
        top_k=finder.top_k,
        shared_epochs=0,
    )
    model.local_ = replace(local, finder=finder, communities=communities)
    print(
        f"mixtures: {finder.mixtures} × {components}, at most {finder.top_k} communities answer",
        flush=True,
    )


def _ask(model: Loca, data: Interactions, count: int) -> None:
    """Prints the latency of single users and the rate of all users' lists of 100."""
    matrix, everybody = data.matrix(), list(data.users.ids(np.arange(data.n_users)))
    users = stream(0, "single users").permutation(data.n_users)[:count]
    answering = model.answer_weights(matrix)
    per_user = np.diff(answering.indptr)
    print(f"communities that answer for a user: mean {per_user.mean():.1f}, most {per_user.max()}")
    print(f"communities that answer anybody: {len(np.unique(answering.indices))}")
    started = time.perf_counter()
    recommend(model, everybody, n=100)
    seconds = time.perf_counter() - started
    print(
        f"top 100 of all {data.n_users:,} users, first time: {data.n_users / seconds:,.0f} users a second",
        flush=True,
    )
    ids = list(data.users.ids(users))
    for one in ids[:20]:
        recommend(model, [one], n=100)
    times = []
    for one in ids:
        started = time.perf_counter()
        recommend(model, [one], n=100)
        times.append(1000 * (time.perf_counter() - started))
    print(
        f"one user: p50 {np.quantile(times, 0.5):.1f} ms, p99 {np.quantile(times, 0.99):.1f} ms",
        flush=True,
    )
    rates = []
    for _ in range(3):
        started = time.perf_counter()
        recommend(model, everybody, n=100)
        rates.append(data.n_users / (time.perf_counter() - started))
    print(f"top 100 of all {data.n_users:,} users: {np.median(rates):,.0f} users a second")
    _print_parts(
        "one user", model, [csr_array(matrix[[user]]) for user in users], float(np.mean(times))
    )
    size = block_rows(data.n_items)
    blocks = [csr_array(matrix[start : start + size]) for start in range(0, data.n_users, size)]
    _print_parts("all users", model, blocks, 1000 / float(np.median(rates)))


def _print_parts(who: str, model: Loca, blocks: list[csr_array], whole: float) -> None:
    """Prints what the steps of an answer take, in milliseconds a user, and what is left of the whole."""
    seconds = np.zeros(3)
    for rows in blocks:
        moments = [time.perf_counter()]
        weights = model.answer_weights(rows)
        moments.append(time.perf_counter())
        scores = model.local_.models.blend(rows, weights).numpy()
        moments.append(time.perf_counter())
        rank_top_n(scores, rows, 100)
        moments.append(time.perf_counter())
        seconds += np.diff(moments)
    parts = 1000 * seconds / sum(rows.shape[0] for rows in blocks)
    named = zip(
        ("weights", "local networks", "ranking", "other"),
        [*parts, whole - parts.sum()],
        strict=True,
    )
    print(
        f"of {whole:.2f} ms a user ({who}): "
        + ", ".join(f"{name} {part:.2f}" for name, part in named),
        flush=True,
    )


def _data() -> Interactions:
    """AMusic as the paper counts it where LOCA_DATA names it, else random histories of the same shape."""
    folder = os.environ.get("LOCA_DATA")
    if folder:
        return read_preset("amusic", Path(folder) / "amusic" / "amusic.rating")
    from loca.data.id_map import IdMap

    rng = stream(0, "answering benchmark")
    lengths = np.maximum(rng.geometric(1 / 17, 4964), 10).clip(max=300)
    rows = np.concatenate([rng.choice(11_797, length, replace=False) for length in lengths]).astype(
        np.int32
    )
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Interactions(IdMap.numbered(4964, "user"), IdMap.numbered(11_797, "item"), offsets, rows)


def _find(finder: Kernels, model: Loca, train: TrainingData) -> KernelCommunities:
    """The communities of a finder by the global model of another one."""
    return finder.find(train, base=model.base, global_model=model.global_, seed=0)


def _paper_bandwidth(model: Loca, train: TrainingData, count: int) -> float:
    """The bandwidth at which random anchors cover 71 % of the users, as in the paper's Table 3."""
    low, high = 0.0, 2.0
    for _ in range(20):
        middle = (low + high) / 2
        finder = Kernels(n=count, anchors="random", train_bandwidth=2.0, answer_bandwidth=middle)
        coverage = _find(finder, model, train).coverage
        low, high = (low, middle) if coverage > 0.71 else (middle, high)
    return high


def _make_model(data: Interactions, asked: argparse.Namespace) -> Loca:
    """A fitted Loca with one local network, in which that one is replaced by many."""
    base = MultVAE(dropout=0.2, noise=0.01, kl_weight=0.0, epochs=10)
    print("fitting the global model", flush=True)
    combiner = FixedShare(asked.alpha)
    model = Loca(base=base, communities=Kernels(n=1), combiner=combiner, engine=Stacked()).fit(data)
    train = TrainingData.of(data)
    width = asked.answer_bandwidth or _paper_bandwidth(model, train, asked.communities)
    finder = Kernels(n=asked.communities, train_bandwidth=1.2, answer_bandwidth=width)
    communities = _find(finder, model, train)
    print(f"answer bandwidth {width:.3f}, coverage {communities.coverage:.1%}")
    first = model.local_.models.weights_
    many = StackedNetworks(variational=True)
    many.weights_ = {}
    kind = torch.float32 if asked.precision == "float32" else torch.float16
    for name, weights in first.items():
        stack = torch.empty(asked.communities, *weights.shape[1:], dtype=kind)
        for number in range(asked.communities):
            stack[number] = weights[0] * (1 + number * 1e-4)
        many.weights_[name] = stack
    positions = communities.locate(train.histories)
    model.communities = finder
    model.local_ = replace(
        model.local_,
        finder=finder,
        communities=communities,
        models=many,
        description=CommunityDescription.of(communities, positions, train, combiner),
    )
    return model


if __name__ == "__main__":
    main()
