"""Figure 2: local models that answer for the closest 1 % of users, trained on ever more of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from loca.communities.embeddings import embed_users
from loca.communities.geometry import angular_distances, unit_rows
from loca.data.interactions import Interactions
from loca.data.splits import HeldOut
from loca.evaluation.evaluate import measure
from loca.evaluation.metrics import DEFAULT_METRIC
from loca.local.engines import engine_for
from loca.local.engines.engine import Engine, ManyFits, Validator, copies_of, train
from loca.local.judge import Panel
from loca.local.local_models import LocalModels
from loca.models.recommender import Scores, TrainingData
from loca.paper.benchmark import Benchmark, Measurement, PaperItem, Part, Results
from loca.paper.charts import Chart, Curve
from loca.paper.report import Finding, Records, ReportTable
from loca.paper.seed_means import (
    MAIN,
    Floats,
    interval_of,
    interval_text,
    level,
    with_spread,
)
from loca.paper.stopping import StopEach
from loca.random_streams import stream
from loca.text_table import TextTable
from loca.tuning.model_selection import selection_data
from loca.typing import FloatArray, IntArray

NAME = "training neighbourhoods"
SHARES = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
_ANSWERED = 0.01
_PAPERS_BEST = 0.2
_SCORE = "NDCG@100 of the closest 1 %"


class Figure2(PaperItem):
    """NDCG@100 of local MultVAEs on the closest 1 % of users of their anchors, by the share of
    users that they were trained on; mean over random anchors and seeds, ± the standard deviation
    over seeds. Intervals are over the anchors of all seeds: their neighbourhoods share users, which
    the intervals do not count, so that they are too narrow. Dashed, the global MultVAE on the same
    users.
    """

    key = "figure2"
    title = "Figure 2: how wide to train"

    def measurements(self, benchmark: Benchmark) -> list[Measurement]:
        """Return one for each seed, with all shares.

        The engine is that of LOCA_VAE, whose local models these are too.
        """
        return benchmark.measurements(
            NAME,
            _train_and_measure,
            models=benchmark.sizes.pilot_models,
            engine=str(_engine(benchmark)),
        )

    def show(self, results: Results) -> Iterator[Part]:
        """Return accuracy by share, the paper's two claims, and what it does not say."""
        lines = results.lines(NAME)
        if not lines:
            return
        yield from lines
        # The NDCG@100 of every anchor, seed by seed, on every share; None is the global model's.
        by_seed: dict[float | None, list[Floats]] = {}
        for share in (*SHARES, None):
            of_share = [line for line in lines if line["share"] == share]
            for seed in dict.fromkeys(line["seed"] for line in of_share):
                scores = [line[MAIN] for line in of_share if line["seed"] == seed]
                by_seed.setdefault(share, []).append(np.array(scores, np.float64))
        values = {share: np.concatenate(parts) for share, parts in by_seed.items()}
        of_seeds = {
            share: tuple(float(part.mean()) for part in parts) for share, parts in by_seed.items()
        }
        rows = []
        for share, scores_of_anchors in values.items():
            name = "the global model" if share is None else f"{share:.0%}"
            mean = with_spread(scores_of_anchors.mean(), of_seeds[share])
            rows.append((name, mean, interval_text(scores_of_anchors)))
        header = ("trained on the closest", _SCORE, "95 % over anchors")
        yield ReportTable("", TextTable(header, tuple(rows)))
        yield _chart(values, of_seeds)
        yield from _findings(values)


def _chart(
    values: Mapping[float | None, Floats], of_seeds: Mapping[float | None, tuple[float, ...]]
) -> Chart:
    low, high = zip(*(interval_of(values[share]) for share in SHARES), strict=True)
    seeds = tuple(zip(*(of_seeds[share] for share in SHARES), strict=True))
    local = Curve(
        label="local models",
        x=tuple(100 * share for share in SHARES),
        y=tuple(float(values[share].mean()) for share in SHARES),
        low=low,
        high=high,
        seeds=seeds if len(seeds) > 1 else (),
    )
    curves = (local, *level("MultVAE", float(values[None].mean())))
    return Chart("", "closest users trained on, %", _SCORE, curves, is_log_x=True)


def _findings(values: Mapping[float | None, Floats]) -> Iterator[Finding]:
    trained_wide = f"local models trained on the closest {_PAPERS_BEST:.0%}"
    trained_narrow = f"trained on the closest {_ANSWERED:.0%} that they answer for"
    is_above, text = _compared(values, _PAPERS_BEST, _ANSWERED)
    yield Finding.on(is_above, f"{trained_wide} have {text} {trained_narrow}.")
    is_above, text = _compared(values, None, _ANSWERED)
    yield Finding.on(is_above, f"the global model has {text} of local models {trained_narrow}.")
    _, text = _compared(values, _PAPERS_BEST, None)
    yield Finding("found", f"{trained_wide} have {text} of the global model.")


def _compared(
    values: Mapping[float | None, Floats], share: float | None, other: float | None
) -> tuple[bool, str]:
    """Return whether one share is surely above another over anchors, and both figures in words."""
    low, high = interval_of(values[share] - values[other])
    interval = f"[{low:+.4f}, {high:+.4f} over anchors]"
    figures = f"{values[share].mean():.4f} {interval} against {values[other].mean():.4f}"
    return low > 0, f"NDCG@100 {figures}"


def _engine(benchmark: Benchmark) -> Engine | None:
    """Return the engine of LOCA_VAE, which stops all models together here."""
    engine: Engine | None = benchmark.model("loca-vae").engine
    return engine.engine if isinstance(engine, StopEach) else engine


def _train_and_measure(benchmark: Benchmark, seed: int) -> Records:
    """Train the local models of one seed on every share; measure each on its own closest users."""
    interactions, validation = selection_data(benchmark.split, benchmark.protocol)
    model = benchmark.model("mult-vae", seed).fit(interactions, validation=validation)
    embeddings = unit_rows(embed_users(model, interactions.matrix()))
    n_users = len(embeddings)
    count = min(benchmark.sizes.pilot_models, n_users)
    anchors = stream(seed, "pilot anchors").choice(n_users, count, replace=False)
    distances = angular_distances(embeddings, embeddings[anchors])
    order = np.argsort(distances, axis=0, kind="stable").T  # (anchors, users)
    closest = order[:, : max(2, round(_ANSWERED * n_users))]
    # The validation data of the closest users of every anchor, scored after every epoch.
    places = (closest.ravel(), np.repeat(np.arange(count), closest.shape[1]))
    answer_weights = csr_array((np.ones(closest.size), places), (validation.n_users, count))
    panel = Panel(validation, DEFAULT_METRIC, model, answer_weights)
    test = benchmark.split.test
    records = _measured(test, closest, lambda _, rows: model.score(rows), seed, "MultVAE", None)
    for share in SHARES:
        trained = order[:, : max(2, round(share * n_users))]
        models = _train(benchmark, seed, interactions, trained, panel)
        records += _measured(test, closest, models.score_with, seed, "local", share)
    return records


def _train(
    benchmark: Benchmark, seed: int, interactions: Interactions, trained: IntArray, panel: Panel
) -> LocalModels:
    """Return the models of all anchors, each trained on the users of its row of `trained`."""

    def weights_of(number: int) -> FloatArray:
        weights = np.zeros(interactions.n_users, dtype=np.float32)
        weights[trained[number]] = 1
        return weights

    base = benchmark.model("mult-vae", seed)
    fits = ManyFits(
        models=copies_of(base, len(trained), seed, "pilot model"),
        data=TrainingData.of(interactions),
        weights_of=weights_of,
        name=f"local models of {trained.shape[1]:,} users",
    )
    engine = _engine(benchmark) or engine_for(base, fits.n_items)
    return train(fits, engine, _MeanOfAnchors(panel, len(trained)))


@dataclass(frozen=True, eq=False)
class _MeanOfAnchors(Validator):
    """The mean value of the models, each on the closest users of its anchor."""

    panel: Panel
    n_models: int

    def __call__(self, models: LocalModels) -> float:
        """Return the mean value of the models as they are now."""
        values = self.panel.mean_value_of_each(models, range(self.n_models))
        return float(np.mean(list(values.values())))


def _measured(
    test: HeldOut,
    closest: IntArray,
    score: Callable[[int, csr_array], Scores],
    seed: int,
    model: str,
    share: float | None,
) -> Records:
    """Return the NDCG@100 of each anchor's closest users by its model.

    Anchors whose users have no test items are left out.
    """
    records: Records = []
    for anchor, users in enumerate(closest):
        if not test.target_counts[users].any():
            continue
        part = test.of_users(np.sort(users))
        scores = score(anchor, part.history_matrix)
        values = measure(scores.__getitem__, part, at=(100,)).values[MAIN]
        records.append(
            {
                "seed": seed,
                "model": model,
                "share": share,
                "anchor": anchor,
                "users": len(values),
                MAIN: float(values.mean()),
            }
        )
    return records
