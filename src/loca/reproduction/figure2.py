"""Figure 2: local models that answer for the closest 1 % of users, trained on ever more of the next closest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.embeddings import embed_users
from loca.communities.geometry import Floats, angular_distances, unit_rows
from loca.data.interactions import Interactions
from loca.data.splits import HeldOut
from loca.evaluation.evaluate import measure
from loca.evaluation.significance import bootstrap_intervals
from loca.local.local_models import CommunityValidator, LocalModels
from loca.local.stacked.ops import PrecisionName
from loca.local.training import Engine, LocalTask, copies_of, train_together
from loca.models.recommender import Recommender, get_params
from loca.random_streams import stream
from loca.reproduction.benchmark import Benchmark, Records, Results, spread_of, with_spread
from loca.reproduction.measurings import Measurement, exactly
from loca.reproduction.report_items import Chart, Curve, Finding, ReportItem, ReportTable, Value
from loca.text_table import TextTable
from loca.tuning.model_selection import selection_data

NAME = "training neighbourhoods"
SHARES = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
_ANSWERED = 0.01
_PAPERS_BEST = 0.2
_METRIC = "ndcg@100"
Rows = npt.NDArray[np.int64]


def measurings(bench: Benchmark) -> list[Measurement]:
    """One for each seed, with all shares."""
    asked = []
    for seed in range(bench.scale.seeds):
        told = exactly(bench.model("mult-vae", seed)) | {"precision": _precision(bench)}
        subject = {"data": bench.digest, "protocol": bench.protocol, "models": bench.scale.pilot_models, **told}
        asked.append(Measurement(f"{NAME} seed {seed}", subject, _Pilot(bench, seed)))
    return asked


def _precision(bench: Benchmark) -> PrecisionName:
    """That of the bench's LOCA_VAE: these are local models too."""
    precision: PrecisionName = get_params(bench.model("loca-vae"))["precision"]
    return precision


@dataclass(frozen=True, eq=False)
class _Pilot:
    """Trains the local models of one seed on every share, and measures each on its own closest users."""

    bench: Benchmark
    seed: int

    def __call__(self) -> Records:
        bench, seed = self.bench, self.seed
        train, questions = selection_data(bench.split, bench.protocol)
        base: Any = bench.model("mult-vae", seed)
        whole: Any = bench.model("mult-vae", seed)
        whole.fit(train, validation=questions)
        embeddings = unit_rows(embed_users(whole, train.matrix()))
        count = min(bench.scale.pilot_models, len(embeddings))
        anchors = stream(seed, "pilot anchors").choice(len(embeddings), count, replace=False)
        order = np.argsort(angular_distances(embeddings, embeddings[anchors]), axis=0, kind="stable").T
        core = order[:, : max(2, round(_ANSWERED * len(embeddings)))]  # (anchors, users)
        chosen, asked = _questions(questions, core), _Question(bench.split.test, core)
        records = Records()
        of_whole = asked.values(lambda _, rows: whole.score(rows))
        records += _lines(seed, "MultVAE", None, of_whole)
        for share in SHARES:
            trained = order[:, : max(2, round(share * len(embeddings)))]
            models = self._train(base, train, trained, chosen)
            records += _lines(seed, "local", share, asked.values(models.score_with))
        return records

    def _train(self, base: Recommender, train: Interactions, trained: Rows, asked: CommunityValidator) -> LocalModels:
        def weights_of(number: int) -> Floats:
            weights = np.zeros(train.n_users, dtype=np.float32)
            weights[trained[number]] = 1
            return weights

        copies = copies_of(base, len(trained), self.seed, "pilot model")
        what = f"local models of {trained.shape[1]:,} users"
        task = LocalTask(copies, train.matrix(), weights_of, what, train=train)

        def judge(models: LocalModels) -> float:
            return float(np.mean(list(asked.score(models, range(len(trained))).values())))

        return train_together(task, Engine("auto", _precision(self.bench)), judge).models


def _questions(held_out: HeldOut, core: Rows) -> CommunityValidator:
    """The held-out questions of the closest users of every anchor, to be asked after every epoch."""
    count, size = core.shape
    places = (core.ravel(), np.repeat(np.arange(count), size))
    return CommunityValidator(held_out, csr_array((np.ones(core.size), places), (held_out.n_users, count)))


class _Question:
    """The held-out questions of the closest users of every anchor."""

    def __init__(self, held_out: HeldOut, core: Rows) -> None:
        self.parts = [_of_users(held_out, np.sort(users)) for users in core]

    def values(self, score: Any) -> list[npt.NDArray[np.float64]]:
        """The NDCG@100 of each anchor's users, by the model of that anchor."""
        found = []
        for number, part in enumerate(self.parts):
            if part is None:
                found.append(np.empty(0))
                continue
            found.append(measure(score(number, part.history_matrix).__getitem__, part, at=(100,)).values[_METRIC])
        return found


def _of_users(held_out: HeldOut, users: Rows) -> HeldOut | None:
    return held_out.of_users(users) if held_out.target_counts[users].any() else None


def _lines(seed: int, model: str, share: float | None, values: Sequence[npt.NDArray[np.float64]]) -> Records:
    return [
        {"seed": seed, "model": model, "share": share, "anchor": place, "users": len(one), _METRIC: float(one.mean())}
        for place, one in enumerate(values)
        if len(one)
    ]


def make(studied: Sequence[Results]) -> ReportItem:
    """The figure as it came out on every bench."""
    return ReportItem(
        key="figure2",
        title="Figure 2: how wide to train",
        caption="NDCG@100 of local MultVAEs on the closest 1 % of users of their anchors, by the share of users that "
        "they were trained on; mean over random anchors and seeds, ± the standard deviation over seeds. Intervals are "
        "over the anchors of all seeds: their neighbourhoods share users, which the intervals do not count, so that "
        "they are too narrow. Dashed, the global MultVAE on the same users.",
        panels=tuple(panel for results in studied for panel in _panel(results)),
        charts=tuple(chart for results in studied for chart in _chart(results)),
        records=tuple(line for results in studied for line in _records(results)),
        findings=tuple(finding for results in studied for finding in _findings(results)),
    )


def _by_seed(results: Results, model: str, share: float | None) -> list[npt.NDArray[np.float64]]:
    """The NDCG@100 of every anchor, seed by seed; nothing where it was not measured."""
    return [
        np.array(
            [line[_METRIC] for line in records if line["model"] == model and line["share"] == share], dtype=np.float64
        )
        for name, records in results.records.items()
        if name.startswith(NAME)
    ]


def _by_anchor(results: Results, model: str, share: float | None) -> npt.NDArray[np.float64]:
    """The NDCG@100 of every anchor of every seed, one after the other."""
    return np.concatenate([np.empty(0), *_by_seed(results, model, share)])


def _told(results: Results, model: str, share: float | None) -> tuple[str, str]:
    """The mean, with the spread of the seeds' own means, and the interval over anchors."""
    seeds, whole = [one.mean() for one in _by_seed(results, model, share)], _by_anchor(results, model, share)
    low, high = bootstrap_intervals(whole[:, None], seed=0)[0].tolist()
    return with_spread(whole.mean(), spread_of(seeds)), f"{low:.4f} – {high:.4f}"


def _chart(results: Results) -> Iterator[Chart]:
    whole, parts = _by_anchor(results, "MultVAE", None), [_by_anchor(results, "local", share) for share in SHARES]
    if not len(whole):
        return
    intervals = [bootstrap_intervals(part[:, None], seed=0)[0] for part in parts]
    of_seeds = list(zip(*(_by_seed(results, "local", share) for share in SHARES), strict=True))  # (seeds, shares)
    local = Curve(
        "local models",
        tuple(100 * share for share in SHARES),
        tuple(float(part.mean()) for part in parts),
        tuple(float(low) for low, _ in intervals),
        tuple(float(high) for _, high in intervals),
        tuple(tuple(float(one.mean()) for one in shares) for shares in of_seeds if len(of_seeds) > 1),
    )
    level = Curve("MultVAE", (), (float(whole.mean()),), is_level=True)
    title = results.bench.title
    yield Chart(title, "closest users trained on, %", "NDCG@100 of the closest 1 %", (local, level), is_log_x=True)


def _panel(results: Results) -> Iterator[ReportTable]:
    whole = _by_anchor(results, "MultVAE", None)
    if len(whole):
        rows = [(f"{share:.0%}", *_told(results, "local", share)) for share in SHARES]
        rows.append(("the global model", *_told(results, "MultVAE", None)))
        header = ("trained on the closest", "NDCG@100 of the closest 1 %", "95 % over anchors")
        yield ReportTable(results.bench.title, TextTable(header, tuple(rows)))


def _records(results: Results) -> Iterator[dict[str, Value]]:
    for name, records in results.records.items():
        if name.startswith(NAME):
            for line in records:
                yield {"data": results.bench.data.name, "protocol": results.bench.protocol, **line}


def _findings(results: Results) -> Iterator[Finding]:
    """On the paper's two claims, at its own best share, and on what it does not say of that share."""
    whole, wide = _by_anchor(results, "MultVAE", None), _by_anchor(results, "local", _PAPERS_BEST)
    narrow = _by_anchor(results, "local", _ANSWERED)
    if not len(whole):
        return
    where = results.bench.title
    trained_wide = f"local models trained on the closest {_PAPERS_BEST:.0%}"
    trained_narrow = f"trained on the closest {_ANSWERED:.0%} that they answer for"
    low, told = _difference(wide, narrow)
    yield Finding.on(low > 0, f"{where}: {trained_wide} have NDCG@100 {told} {trained_narrow}.")
    low, told = _difference(whole, narrow)
    yield Finding.on(low > 0, f"{where}: the global model has NDCG@100 {told} of local models {trained_narrow}.")
    _, told = _difference(wide, whole)
    yield Finding("found", f"{where}: {trained_wide} have NDCG@100 {told} of the global model.")


def _difference(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> tuple[float, str]:
    """The lower bound of the difference over anchors, and both figures in words."""
    low, high = bootstrap_intervals((one - other)[:, None], seed=0)[0].tolist()
    return low, f"{one.mean():.4f} [{low:+.4f}, {high:+.4f} over anchors] against {other.mean():.4f}"
