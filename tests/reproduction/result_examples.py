"""Results of a bench made by hand: forty users whose values are known, without a model behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.evaluation.evaluate import Evaluation
from loca.experiments.runs import ComparedModel
from loca.reproduction.benchmark import BASELINES, Benchmark, Records, Results, Sizes
from loca.reproduction.data_sets import StudiedData
from loca.reproduction.report_items import Headline
from loca.reproduction.table2 import differences, headlines
from loca.tuning.model_selection import CandidateResult, ProtocolName

USERS = 40
IDS = tuple(f"u{row:02d}" for row in range(USERS))
SCALE = Sizes(local_models=3, sweep_models=3, pilot_models=2, loop_models=2, seeds=2)
# What a user has of the other metrics for each 1 of NDCG@100.
SHARES = {"recall@50": 1.5, "ndcg@50": 0.5, "recall@100": 2.0, "ndcg@100": 1.0}

Values = npt.NDArray[np.float64]


def level(value: float) -> Values:
    """The same for every user."""
    return np.full(USERS, value)


def swaying(value: float, by: float = 0.05) -> Values:
    """Above and below by turns, so that the mean is the value and nothing near it is sure."""
    return value + by * np.where(np.arange(USERS) % 2, 1.0, -1.0)


def evaluation(values: npt.ArrayLike, seed: int = 0) -> Evaluation:
    """The evaluation of users with that NDCG@100."""
    given = np.asarray(values, dtype=np.float64)
    return Evaluation(
        at=(50, 100),
        users=np.array(IDS[: len(given)], dtype=object),
        lists=np.empty((len(given), 0), np.int32),
        values={metric: given * share for metric, share in SHARES.items()},
        catalogue_coverage={50: 0.5, 100: 0.7},
        novelty={50: 3.0, 100: 3.5},
        item_count=20,
        seed=seed,
    )


def compared(
    values: npt.ArrayLike,
    *,
    seed: int = 0,
    chosen_by: float = 0.0,
    seconds: float = 1.0,
    parameters: Mapping[str, Any] | None = None,
    by_count: Mapping[int, npt.ArrayLike] | None = None,
    found: Mapping[str, Any] | None = None,
) -> ComparedModel:
    """A computed cell: what its users reached on test, and the NDCG@100 by which it was chosen."""
    return ComparedModel(
        name="by hand",
        evaluation=evaluation(values, seed),
        parameters=dict(parameters or {"model": "ByHand", "seed": seed}),
        tried=(CandidateResult({}, -1.0, 0.5), CandidateResult({}, chosen_by, 0.5)),
        chosen=1,
        seconds=seconds,
        by_count={count: evaluation(one, seed) for count, one in (by_count or {}).items()},
        found=dict(found or {}),
    )


def histories() -> Interactions:
    """Users 0 to 7 have 8 items, the next eight 9, and so on up to 12."""
    lengths = 8 + np.arange(USERS) // 8
    return Interactions(
        IdMap(np.array(IDS, dtype=object), "user"),
        IdMap(np.array([f"i{row:02d}" for row in range(20)], dtype=object), "item"),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.concatenate([np.arange(length) for length in lengths]).astype(np.int32),
    )


def bench(
    protocol: ProtocolName = "clean", *, printed: str | None = None, label: str = "Hand", scale: Sizes = SCALE
) -> Benchmark:
    """The histories under a protocol; `printed` is the name of the data in the paper's tables."""
    data = StudiedData(label.lower(), label, histories(), printed=printed)
    return Benchmark(data, protocol, data.split(protocol), scale)


def with_singles(cells: Mapping[str, Sequence[ComparedModel]]) -> dict[str, Sequence[ComparedModel]]:
    """The cells, and every single model that is not among them: the worst on test and where choices are made."""
    return {name: [compared(level(0.01), chosen_by=-1.0)] for name in BASELINES} | dict(cells)


def results(
    cells: Mapping[str, Sequence[ComparedModel]],
    records: Mapping[str, Records] | None = None,
    on: Benchmark | None = None,
) -> Results:
    """The results of a bench from the cells of each name, seed after seed."""
    named = {f"{name} seed {seed}": one for name, found in cells.items() for seed, one in enumerate(found)}
    return Results(bench() if on is None else on, named, dict(records or {}))


def headlines_of(*studied: Results) -> tuple[Headline, ...]:
    """The headlines of results, with their differences."""
    return headlines(studied, [differences(one) for one in studied])


def accuracies(protocol: ProtocolName = "clean", printed: str | None = None, label: str = "Hand") -> Results:
    """EASE is best on test, MultVAE where choices are made; LOCA_VAE has 0.02 more than MultVAE for every user.

    LOCA_EASE has 0.04 less than EASE for every user, and 0.01 more than MultVAE in the mean, which is not sure. The
    other single models are the worst.
    """
    settings = {"model": "Loca", "seed": 0, "anchors": 3, "base.latent": 8, "base.seed": 5}
    cells = {
        "popularity": [compared(level(0.05), chosen_by=0.05)],
        "ease": [compared(level(0.30), chosen_by=0.20)],
        "mult-vae": [compared(swaying(0.24), chosen_by=0.27), compared(swaying(0.26), seed=1, chosen_by=0.29)],
        "loca-vae": [
            compared(
                swaying(0.25), chosen_by=0.1, parameters=settings, seconds=2.0, found={"coverage_by_count": {"3": 0.9}}
            ),
            compared(swaying(0.29), parameters=settings, seconds=4.0, seed=1),
        ],
        "loca-ease": [compared(level(0.26)), compared(level(0.26), seed=1)],
        "ensemble-vae": [compared(swaying(0.27, by=-0.05), parameters={"model": "Ensemble", "models": 3})],
    }
    return results(with_singles(cells), on=bench(protocol, printed=printed, label=label))
