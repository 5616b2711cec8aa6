"""Figure 2: local models that answer for the closest 1 % of users, trained on ever more of the next closest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.embeddings import embed_users
from loca.communities.geometry import angular_distances, unit_rows
from loca.data.interactions import Interactions
from loca.data.splits import HeldOut
from loca.evaluation.evaluate import measure
from loca.local.local_models import LocalModels, LocalTask, Validator
from loca.local.training import Engine, copies_of, train_locals
from loca.models.recommender import TrainingData
from loca.paper.benchmark import Benchmark, Measurement, PaperItem, Part, Results
from loca.paper.charts import Chart, Curve
from loca.paper.report import Finding, Records, ReportTable, Value
from loca.paper.seed_means import (
    MAIN,
    Floats,
    interval_of,
    interval_text,
    level,
    with_spread,
)
from loca.random_streams import stream
from loca.text_table import TextTable
from loca.tuning.model_selection import selection_data

NAME = "training neighbourhoods"
SHARES = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
_ANSWERED = 0.01
_PAPERS_BEST = 0.2
Rows = npt.NDArray[np.int64]


class Figure2(PaperItem):
    """NDCG@100 of local MultVAEs on the closest 1 % of users of their anchors, by the share of users that they were
    trained on; mean over random anchors and seeds, ± the standard deviation over seeds. Intervals are over the anchors
    of all seeds: their neighbourhoods share users, which the intervals do not count, so that they are too narrow.
    Dashed, the global MultVAE on the same users.
    """

    key = "figure2"
    title = "Figure 2: how wide to train"

    def measurements(self, benchmark: Benchmark) -> list[Measurement]:
        """One for each seed, with all shares; the precision is that of LOCA_VAE, whose local models these are too."""
        others = {
            "models": benchmark.sizes.pilot_models,
            "precision": benchmark.model("loca-vae").precision,
        }
        return benchmark.measurements(NAME, _train_and_measure, **others)

    def show(self, results: Results) -> Iterator[Part]:
        """Findings are on the paper's two claims, at its own best share, and on what it does not say of that share."""
        lines = results.lines(NAME)
        if not lines:
            return
        yield from lines
        # The NDCG@100 of every anchor, seed by seed, on every share; None is the global model's.
        by_seed: dict[float | None, list[Floats]] = {}
        for share in (*SHARES, None):
            of_share = [line for line in lines if line["share"] == share]
            for seed in dict.fromkeys(line["seed"] for line in of_share):
                anchors = np.array(
                    [line[MAIN] for line in of_share if line["seed"] == seed], np.float64
                )
                by_seed.setdefault(share, []).append(anchors)
        values = {share: np.concatenate(parts) for share, parts in by_seed.items()}
        of_seeds = {
            share: tuple(float(part.mean()) for part in parts) for share, parts in by_seed.items()
        }
        rows = []
        for share, own in values.items():
            name = "the global model" if share is None else f"{share:.0%}"
            rows.append((name, with_spread(own.mean(), of_seeds[share]), interval_text(own)))
        header = ("trained on the closest", "NDCG@100 of the closest 1 %", "95 % over anchors")
        yield ReportTable("", TextTable(header, tuple(rows)))
        low, high = zip(*(interval_of(values[share]) for share in SHARES), strict=True)
        seeds = tuple(zip(*(of_seeds[share] for share in SHARES), strict=True))
        x, y = (
            tuple(100 * share for share in SHARES),
            tuple(float(values[share].mean()) for share in SHARES),
        )
        curves = [Curve("local models", x, y, low, high, seeds if len(seeds) > 1 else ())]
        curves += level("MultVAE", float(values[None].mean()))
        yield Chart("", "closest users trained on, %", header[1], tuple(curves), is_log_x=True)

        def compared(one: float | None, other: float | None) -> tuple[bool, str]:
            """Whether the one is surely above the other over anchors, and both figures in words."""
            low, high = interval_of(values[one] - values[other])
            interval = f"[{low:+.4f}, {high:+.4f} over anchors]"
            return (
                low > 0,
                f"NDCG@100 {values[one].mean():.4f} {interval} against {values[other].mean():.4f}",
            )

        trained_wide = f"local models trained on the closest {_PAPERS_BEST:.0%}"
        trained_narrow = f"trained on the closest {_ANSWERED:.0%} that they answer for"
        is_above, text = compared(_PAPERS_BEST, _ANSWERED)
        yield Finding.on(is_above, f"{trained_wide} have {text} {trained_narrow}.")
        is_above, text = compared(None, _ANSWERED)
        yield Finding.on(is_above, f"the global model has {text} of local models {trained_narrow}.")
        yield Finding(
            "found", f"{trained_wide} have {compared(_PAPERS_BEST, None)[1]} of the global model."
        )


def _train_and_measure(benchmark: Benchmark, seed: int) -> Records:
    """Trains the local models of one seed on every share, and measures each on its own closest users."""
    train, validation = selection_data(benchmark.split, benchmark.protocol)
    whole = benchmark.model("mult-vae", seed).fit(train, validation=validation)
    embeddings = unit_rows(embed_users(whole, train.matrix()))
    count = min(benchmark.sizes.pilot_models, len(embeddings))
    anchors = stream(seed, "pilot anchors").choice(len(embeddings), count, replace=False)
    order = np.argsort(angular_distances(embeddings, embeddings[anchors]), axis=0, kind="stable").T
    core = order[:, : max(2, round(_ANSWERED * len(embeddings)))]  # (anchors, users)
    # The validation data of the closest users of every anchor, scored after every epoch.
    places = (core.ravel(), np.repeat(np.arange(count), core.shape[1]))
    closest = csr_array((np.ones(core.size), places), (validation.n_users, count))
    validator = Validator(validation, closest)
    records = _measured(
        benchmark.split.test, core, lambda _, rows: whole.score(rows), seed, "MultVAE", None
    )
    for share in SHARES:
        trained = order[:, : max(2, round(share * len(embeddings)))]
        models = _train(benchmark, seed, train, trained, validator)
        records += _measured(benchmark.split.test, core, models.score_with, seed, "local", share)
    return records


def _train(
    benchmark: Benchmark, seed: int, train: Interactions, trained: Rows, validator: Validator
) -> LocalModels:
    def weights_of(number: int) -> npt.NDArray[np.float32]:
        weights = np.zeros(train.n_users, dtype=np.float32)
        weights[trained[number]] = 1
        return weights

    def judge(models: LocalModels) -> float:
        return float(np.mean(list(validator.score_each(models, range(len(trained))).values())))

    copies = copies_of(benchmark.model("mult-vae", seed), len(trained), seed, "pilot model")
    data = TrainingData(train, train.matrix(), np.ones(train.n_users, dtype=np.float32))
    task = LocalTask(copies, data, weights_of, f"local models of {trained.shape[1]:,} users")
    return train_locals(task, Engine("auto", benchmark.model("loca-vae").precision), judge)[0]


def _measured(
    test: HeldOut,
    core: Rows,
    score: Callable[[int, csr_array], Any],
    seed: int,
    model: str,
    share: float | None,
) -> Records:
    """The NDCG@100 of each anchor's closest users by its model; anchors whose users have no test items are left out."""
    records: Records = []
    for anchor, users in enumerate(core):
        if test.target_counts[users].any():
            part = test.of_users(np.sort(users))
            values = measure(
                score(anchor, part.history_matrix).__getitem__, part, at=(100,)
            ).values[MAIN]
            facts: dict[str, Value] = {
                "seed": seed,
                "model": model,
                "share": share,
                "anchor": anchor,
            }
            records.append({**facts, "users": len(values), MAIN: float(values.mean())})
    return records
