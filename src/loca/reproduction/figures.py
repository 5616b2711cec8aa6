"""Figures 4 to 8: accuracy by ratings of a user, by number of local models and base model, and by bandwidth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from loca.communities.geometry import Quantile
from loca.experiments.runs import ComparedModel
from loca.reproduction.benchmark import (
    MAIN,
    Benchmark,
    PaperItem,
    Results,
    RunKey,
    Runs,
    SeedMeans,
    curve,
    in_words,
    interval_of,
    labelled,
    level,
)
from loca.reproduction.charts import Chart, Curve
from loca.reproduction.report import Finding, ReportTable, Value
from loca.text_table import TextTable

Groups = tuple[npt.NDArray[np.int64], tuple[str, ...]]


class Figure4(PaperItem):
    """MultVAE, the ensemble of as many and LOCA_VAE by the number of ratings of a user."""

    key = "figure4"
    title = "Figure 4: users by their number of ratings"
    caption = (
        "NDCG@100 of MultVAE, the ensemble of as many and LOCA_VAE, for five groups of users, each about a "
        "fifth of them, by the number of ratings that their history holds when they are evaluated."
    )
    names = ("mult-vae", "ensemble-vae", "loca-vae")

    def runs(self, benchmark: Benchmark) -> Runs:
        return benchmark.rows(self.names)

    def charts(self, results: Results) -> Iterator[Chart]:
        curves = []
        groups: tuple[str, ...] = ()
        for name, means in self._means(results).items():
            group_of, groups = _groups_of(results, means)
            parts = _parts(means.of_users(), group_of)
            low, high = zip(*map(interval_of, parts), strict=True)
            y = tuple(float(part.mean()) for part in parts)
            curves.append(Curve(labelled(name), tuple(map(float, range(len(groups)))), y, low, high))
        if curves:
            yield Chart("", "ratings of a user", "NDCG@100", tuple(curves), groups=groups)

    def tables(self, results: Results) -> Iterator[ReportTable]:
        """The figures behind the bars: models in rows, groups with their number of users in columns."""
        rows, header = [], tuple[str, ...]()
        for name, means in self._means(results).items():
            group_of, groups = _groups_of(results, means)
            parts = _parts(means.of_users(), group_of)
            named = zip(groups, parts, strict=True)
            header = ("NDCG@100", *(f"{group} ratings ({len(part):,} users)" for group, part in named))
            rows.append((labelled(name), *(f"{part.mean():.4f}" for part in parts)))
        if rows:
            yield ReportTable("", TextTable(header, tuple(rows)))

    def records(self, results: Results) -> Iterator[dict[str, Value]]:
        for name, means in self._means(results).items():
            group_of, groups = _groups_of(results, means)
            for one in means.evaluations:
                for group, part in zip(groups, _parts(one.values[MAIN], group_of), strict=True):
                    facts: dict[str, Value] = {"model": name, "seed": one.seed, "ratings": group}
                    yield facts | {"users": len(part), MAIN: float(part.mean())}

    def findings(self, results: Results) -> Iterator[Finding]:
        found = self._means(results)
        for other in ("mult-vae", "ensemble-vae") if {"mult-vae", "loca-vae"} <= set(found) else ():
            if other in found:
                group_of, groups = _groups_of(results, found["mult-vae"])
                differences = found["loca-vae"].of_users() - found[other].of_users()
                sure = sum(interval_of(part)[0] > 0 for part in _parts(differences, group_of))
                where = "in every group" if sure == len(groups) else f"in {sure} of {len(groups)} groups"
                text = f"LOCA_VAE is surely above {labelled(other)} {where}."
                # The paper compares groups with the base alone.
                yield Finding.on(sure == len(groups), text) if other == "mult-vae" else Finding("found", text)

    def _means(self, results: Results) -> dict[str, SeedMeans]:
        found = {name: results.means(name) for name in self.names}
        return {name: one for name, one in found.items() if one is not None}


def group_users(counts: npt.NDArray[np.int64], groups: int = 5) -> Groups:
    """The group of each user and the groups' names, such as 10–14: about equal shares of the users, ties together."""
    bounds = np.unique(np.quantile(counts, np.arange(1, groups) / groups, method="higher"))
    used, group_of = np.unique(np.searchsorted(bounds, counts, side="right"), return_inverse=True)
    ends = ((part.min(), part.max()) for part in (counts[group_of == group] for group in range(len(used))))
    return group_of, tuple(f"{low}–{high}" if low < high else f"{low}" for low, high in ends)


def _groups_of(results: Results, means: SeedMeans) -> Groups:
    histories = results.benchmark.split.test.histories
    return group_users(histories.counts()[histories.users.rows(means.evaluations[0].users)])


def _parts(values: npt.NDArray[np.float64], group_of: npt.NDArray[np.int64]) -> list[npt.NDArray[np.float64]]:
    return [values[group_of == group] for group in range(group_of.max() + 1)]


@dataclass(frozen=True)
class CountFigure(PaperItem):
    """Figures 5 and 6: models by their number of local models, and single models (`alone`) beside them."""

    key: str
    title: str
    caption: str
    names: tuple[str, ...]
    alone: tuple[str, ...]

    def runs(self, benchmark: Benchmark) -> Runs:
        return benchmark.rows((*self.alone, *self.names))

    def charts(self, results: Results) -> Iterator[Chart]:
        curves = []
        for name, counts in self._counts(results).items():
            means = [one for count in counts if (one := results.means(name, "", count)) is not None]
            curves.append(curve(results.label(name), counts, means))
        if curves:
            for name in self.alone:
                base = results.means(name)
                curves += level(results.label(name), None if base is None else base.mean())
            yield Chart("", "number of local models", "NDCG@100", tuple(curves), is_log_x=True)

    def tables(self, results: Results) -> Iterator[ReportTable]:
        """Models by their number, and below them the bases alone, which have but one."""
        by_name = self._counts(results)
        counts = sorted({count for own in by_name.values() for count in own})
        rows = []
        for name, own in by_name.items():
            means = [results.means(name, "", count) if count in own else None for count in counts]
            rows.append((results.label(name), *("" if one is None else one.text() for one in means)))
        for name in self.alone:
            base = results.means(name)
            if base is not None:
                rows.append((f"{results.label(name)}, one", base.text(), *("" for _ in counts[1:])))
        if by_name:
            yield ReportTable("", TextTable(("NDCG@100 with local models", *map(str, counts)), tuple(rows)))

    def records(self, results: Results) -> Iterator[dict[str, Value]]:
        for name in self.names:
            yield from results.record_runs(name, "", {"model": name}, self._counts(results).get(name, ()))
        for name in self.alone:
            yield from results.record_runs(name, "", {"model": name})

    def findings(self, results: Results) -> Iterator[Finding]:
        return _more_models(results) if self.key == "figure5" else _gains_over_bases(results)

    def _counts(self, results: Results) -> dict[str, tuple[int, ...]]:
        """The numbers of models that each model was measured with, where it was."""
        runs = {name: results.of(name) for name in self.names}
        return {name: tuple(own[0].by_count) for name, own in runs.items() if own and own[0].by_count}


def _more_models(results: Results) -> Iterator[Finding]:
    """Figure 5: what more local models bring, and what locality brings beside the controls."""
    runs, whole = results.of("loca-vae"), results.means("loca-vae")
    counts = tuple(runs[0].by_count) if runs else ()
    if not counts or whole is None:
        return
    # Of two numbers the middle is the larger, which is the whole itself.
    half = counts[min(len(counts) // 2, len(counts) - 2)] if len(counts) > 1 else None
    few = None if half is None else results.means("loca-vae", "", half)
    if few is not None:
        more = whole.minus(few)
        text = f"{counts[-1]} instead of {half} local models change NDCG@100 by {in_words(more)}."
        yield Finding.on(more.low > 0, text)
    for name, words in (("ensemble-vae", "the ensemble of as many MultVAEs"), ("llorma-vae", "LLORMA_VAE")):
        other = results.means(name)
        # Fewer seeds than LOCA_VAE has would be held against all of its.
        if other is not None and not results.lacks_seeds(name):
            paired = whole.minus(other)
            yield Finding.on(paired.low > 0, f"LOCA_VAE over {words}: {in_words(paired)}.")


def _gains_over_bases(results: Results) -> Iterator[Finding]:
    """Figure 6: each local model against its base."""
    for name, base in (("loca-vae", "mult-vae"), ("loca-dae", "mult-dae")):
        own, other = results.means(name), results.means(base)
        if own is not None and other is not None:
            paired = own.minus(other)
            yield Finding.on(paired.low > 0, f"{labelled(name)} over {labelled(base)}: {in_words(paired)}.")


FIGURE_5 = CountFigure(
    "figure5",
    "Figure 5: the number of local models",
    "NDCG@100 of LOCA_VAE, LLORMA_VAE (one kernel to train and to answer) and the ensemble (all weights 1) "
    "by the number of models, beside the one MultVAE. Points of one line are the first models of one run, "
    "whose epochs and global share were chosen for all of them.",
    names=("loca-vae", "llorma-vae", "ensemble-vae"),
    alone=("mult-vae",),
)
FIGURE_6 = CountFigure(
    "figure6",
    "Figure 6: other base models",
    "NDCG@100 of LOCA over DAE and over VAE by the number of local models; dashed, the bases alone.",
    names=("loca-vae", "loca-dae"),
    alone=("mult-vae", "mult-dae"),
)

# The paper's units do not carry over between embeddings; quantiles of the distances between users do.
_WIDE = Quantile(0.9, times=1.3)
# The sweeps are not refitted on validation; a MultVAE that is would have learned from more than they have.
_ALONE = ("mult-vae", "not refitted")
_ALONE_LABEL = "MultVAE, not refitted"


@dataclass(frozen=True)
class BandwidthFigure(PaperItem):
    """Figures 7 and 8: LOCA_VAE by one bandwidth, the other the same for all.

    `varied` is the parameter and `fixed` the value of the other, `widths` the values by name. `share` is the fact of a
    run that is the x of its points. `claims` are what the paper says of widths: that the first is better than the
    second. They are the ends of the range and a width near the paper's, not the best of five, which would flatter
    itself.
    """

    key: str
    title: str
    caption: str
    varied: str
    fixed: Mapping[str, Quantile]
    widths: Mapping[str, Quantile]
    share: str
    x_label: str
    is_log_x: bool = False
    claims: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def runs(self, benchmark: Benchmark) -> Runs:
        runs: Runs = {}
        for name, width in self.widths.items():
            runs |= benchmark.varied(name, _thirds(benchmark), **{self.varied: width, **self.fixed})
        for key in (RunKey(*_ALONE, seed) for seed in benchmark.seeds_of("mult-vae")):
            runs[key] = benchmark.run(key, benchmark.model(key.model, key.seed), refit=False)
        return runs

    def charts(self, results: Results) -> Iterator[Chart]:
        found = [name for name in self.widths if results.of("loca-vae", name)]
        if not found:
            return
        x = [float(f"{100 * _mean(results.of('loca-vae', name), self.share):.3g}") for name in found]
        curves = []
        for count in _thirds(results.benchmark):
            means = [one for name in found if (one := results.means("loca-vae", name, count)) is not None]
            curves.append(curve(f"{count} local models", x, means))
        alone = results.means(*_ALONE)
        curves += level(_ALONE_LABEL, None if alone is None else alone.mean())
        yield Chart("", self.x_label, "NDCG@100", tuple(curves), is_log_x=self.is_log_x)

    def tables(self, results: Results) -> Iterator[ReportTable]:
        counts, rows = _thirds(results.benchmark), []
        for name in self.widths:
            if runs := results.of("loca-vae", name):
                shares = (f"{_mean(runs, fact):.1%}" for fact in (self.share, "coverage"))
                means = (results.means("loca-vae", name, count) for count in counts)
                figures = ("" if one is None else one.text() for one in means)
                rows.append((results.label("loca-vae", name), *shares, _epochs(runs), *figures))
        alone = results.means(*_ALONE)
        if alone is not None:
            rows.append((_ALONE_LABEL, "", "", _epochs(results.of(*_ALONE)), *[""] * (len(counts) - 1), alone.text()))
        of_counts = (f"NDCG@100, {count} models" for count in counts)
        header = ("bandwidth", "share of users", "covered by all", "epochs", *of_counts)
        yield ReportTable("", TextTable(header, tuple(rows)))

    def records(self, results: Results) -> Iterator[dict[str, Value]]:
        for name, width in self.widths.items():
            facts: dict[str, Value] = {"model": "loca-vae", "bandwidth": str(width)}
            yield from results.record_runs("loca-vae", name, facts, _thirds(results.benchmark))
        yield from results.record_runs(*_ALONE, {"model": " ".join(_ALONE)})

    def findings(self, results: Results) -> Iterator[Finding]:
        """One width against another, for each claim."""
        for claim, (better, worse) in self.claims.items():
            first, second = (results.means("loca-vae", name) for name in (better, worse))
            if first is not None and second is not None:
                paired = first.minus(second)
                text = f"{claim} ({better} instead of {worse}) changes NDCG@100 by {in_words(paired)}."
                yield Finding.on(paired.low > 0, text)


def _thirds(benchmark: Benchmark) -> tuple[int, ...]:
    return benchmark.sizes.thirds(benchmark.sizes.sweep_models)


def _mean(runs: Sequence[ComparedModel], fact: str) -> float:
    return float(np.mean([one.found[fact] for one in runs]))


def _epochs(runs: Iterable[ComparedModel]) -> str:
    """The epochs of every seed: one that stopped early has learned less than the others."""
    return ", ".join(str(one.found["epochs"]) for one in runs if "epochs" in one.found)


FIGURE_7 = BandwidthFigure(
    "figure7",
    "Figure 7: the bandwidth of training, h_T",
    "NDCG@100 of LOCA_VAE by the share of users that a local model trains on, for several numbers of local "
    "models; each answers for its nearest tenth of the pairs of users. h_T is a quantile of the distances "
    "between users. No global share for covered users; dashed, MultVAE alone. None of them is refitted.",
    varied="train_bandwidth",
    fixed={"answer_bandwidth": Quantile(0.1)},
    widths={**{f"h_T {one:g}": Quantile(one) for one in (0.1, 0.3, 0.6, 0.9)}, "h_T 1.3 × 0.9": _WIDE},
    share="train_share",
    x_label="users trained on, %",
    claims={"training wider than answering": ("h_T 0.9", "h_T 0.1")},
)
FIGURE_8 = BandwidthFigure(
    "figure8",
    "Figure 8: the bandwidth of answering, h_W",
    "NDCG@100 of LOCA_VAE by the share of users that a local model answers for, for several numbers of "
    "local models; each trains on the same wide neighbourhood. No global share for covered users; dashed, "
    "MultVAE alone. None of them is refitted.",
    varied="answer_bandwidth",
    fixed={"train_bandwidth": _WIDE},
    widths={f"h_W {one:g}": Quantile(one) for one in (0.01, 0.05, 0.2, 0.5, 0.9)},
    share="answer_share",
    x_label="users answered for, %",
    is_log_x=True,
    claims={
        "answering for more than the very closest": ("h_W 0.2", "h_W 0.01"),
        "answering narrowly": ("h_W 0.2", "h_W 0.9"),
    },
)
