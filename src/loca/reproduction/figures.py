"""Figures 4 to 8: accuracy by ratings of a user, by number of local models and base model, and by bandwidth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from loca.communities.geometry import Quantile
from loca.experiments.runs import ComparedModel
from loca.reproduction.benchmark import Benchmark, PaperItem, Part, Results, RunKey, Runs
from loca.reproduction.charts import Chart, Curve
from loca.reproduction.report import Finding, ReportTable, Value
from loca.reproduction.seed_means import MAIN, claimed_gain, curve, interval_of, labelled, level
from loca.text_table import TextTable

# The paper's units do not carry over between embeddings; quantiles of the distances between users do.
_WIDE = Quantile(0.9, times=1.3)
# The sweeps are not refitted on validation; a MultVAE that is would have learned from more than they have.
_ALONE = ("mult-vae", "not refitted")
_ALONE_LABEL = "MultVAE, not refitted"


class Figure4(PaperItem):
    """NDCG@100 of MultVAE, the ensemble of as many and LOCA_VAE, for five groups of users, each about a fifth of them,
    by the number of ratings that their history holds when they are evaluated.
    """

    key = "figure4"
    title = "Figure 4: users by their number of ratings"
    names = ("mult-vae", "ensemble-vae", "loca-vae")

    def show(self, results: Results) -> Iterator[Part]:
        """The bars, and the figures behind them; the paper compares groups with the base alone."""
        found = {name: means for name in self.names if (means := results.means(name)) is not None}
        if not found:
            return
        histories = results.benchmark.split.test.histories
        users = next(iter(found.values())).evaluations[0].users
        group_of, groups = group_users(histories.counts()[histories.users.rows(users)])
        is_of = {name: group_of == group for group, name in enumerate(groups)}
        curves, rows = [], []
        for name, means in found.items():
            parts = [means.of_users()[own] for own in is_of.values()]
            low, high = zip(*map(interval_of, parts), strict=True)
            x, y = tuple(map(float, range(len(parts)))), tuple(float(part.mean()) for part in parts)
            curves.append(Curve(labelled(name), x, y, low, high))
            rows.append((labelled(name), *(f"{value:.4f}" for value in y)))
            for one in means.evaluations:
                for group, own in is_of.items():
                    facts: dict[str, Value] = {"model": name, "seed": one.seed, "ratings": group}
                    yield facts | {"users": int(own.sum()), MAIN: float(one.values[MAIN][own].mean())}
        yield Chart("", "ratings of a user", "NDCG@100", tuple(curves), groups=groups)
        header = ("NDCG@100", *(f"{group} ratings ({own.sum():,} users)" for group, own in is_of.items()))
        yield ReportTable("", TextTable(header, tuple(rows)))
        for other in ("mult-vae", "ensemble-vae"):
            if {"mult-vae", "loca-vae", other} <= set(found):
                differences = found["loca-vae"].of_users() - found[other].of_users()
                sure = sum(interval_of(differences[own])[0] > 0 for own in is_of.values())
                where = "in every group" if sure == len(groups) else f"in {sure} of {len(groups)} groups"
                text = f"LOCA_VAE is surely above {labelled(other)} {where}."
                yield Finding.on(sure == len(groups), text) if other == "mult-vae" else Finding("found", text)


def group_users(counts: npt.NDArray[np.int64], groups: int = 5) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """The group of each user and the groups' names, such as 10–14: about equal shares of the users, ties together."""
    bounds = np.unique(np.quantile(counts, np.arange(1, groups) / groups, method="higher"))
    used, group_of = np.unique(np.searchsorted(bounds, counts, side="right"), return_inverse=True)
    ends = ((part.min(), part.max()) for part in (counts[group_of == group] for group in range(len(used))))
    return group_of, tuple(f"{low}–{high}" if low < high else f"{low}" for low, high in ends)


class CountFigure(PaperItem):
    """Models (`names`) by their number of local models, and single models (`alone`) beside them."""

    names: tuple[str, ...]
    alone: tuple[str, ...]

    def runs(self, benchmark: Benchmark) -> Runs:
        return benchmark.rows((*self.alone, *self.names))

    def show(self, results: Results) -> Iterator[Part]:
        """Models by their number, and below them the bases alone, which have but one."""
        by_name, curves, rows = self._counts(results), list[Curve](), []
        counts = sorted({count for own in by_name.values() for count in own})
        for name, own in by_name.items():
            label = results.label(name)
            curves.append(curve(label, own, [results.means(name, "", count) for count in own]))
            rows.append((label, *(results.text(name, "", count) if count in own else "" for count in counts)))
        for name in (one for one in self.alone if results.of(one)):
            curves += level(results.label(name), results.means(name))
            rows.append((f"{results.label(name)}, one", results.text(name), *("" for _ in counts[1:])))
        if by_name:
            yield Chart("", "number of local models", "NDCG@100", tuple(curves), is_log_x=True)
            yield ReportTable("", TextTable(("NDCG@100 with local models", *map(str, counts)), tuple(rows)))
        for name in (*self.names, *self.alone):
            yield from results.record_runs(name, "", {"model": name}, by_name.get(name, ()))
        yield from self.findings(results)

    def findings(self, results: Results) -> Iterable[Finding]:
        return ()

    def _counts(self, results: Results) -> dict[str, tuple[int, ...]]:
        """The numbers of models that each model was measured with, where it was."""
        runs = {name: results.of(name) for name in self.names}
        return {name: tuple(own[0].by_count) for name, own in runs.items() if own and own[0].by_count}


class Figure5(CountFigure):
    """NDCG@100 of LOCA_VAE, LLORMA_VAE (one kernel to train and to answer) and the ensemble (all weights 1) by the
    number of models, beside the one MultVAE. Points of one line are the first models of one run, whose epochs and
    global share were chosen for all of them.
    """

    key = "figure5"
    title = "Figure 5: the number of local models"
    names = ("loca-vae", "llorma-vae", "ensemble-vae")
    alone = ("mult-vae",)

    def findings(self, results: Results) -> Iterator[Finding]:
        """What more local models bring, and what locality brings beside the controls."""
        counts, whole = self._counts(results).get("loca-vae", ()), results.means("loca-vae")
        if whole is None or not counts:
            return
        # Of two numbers the middle is the larger, which is the whole itself.
        half = counts[min(len(counts) // 2, len(counts) - 2)] if len(counts) > 1 else counts[0]
        if len(counts) > 1:
            text = f"{counts[-1]} instead of {half} local models change NDCG@100 by {{}}."
            yield from claimed_gain(text, whole, results.means("loca-vae", "", half))
        for name, words in (("ensemble-vae", "the ensemble of as many MultVAEs"), ("llorma-vae", "LLORMA_VAE")):
            if not results.lacks_seeds(name):  # fewer seeds would be held against all of LOCA_VAE's
                yield from claimed_gain(f"LOCA_VAE over {words}: {{}}.", whole, results.means(name))


class Figure6(CountFigure):
    """NDCG@100 of LOCA over DAE and over VAE by the number of local models; dashed, the bases alone."""

    key = "figure6"
    title = "Figure 6: other base models"
    names = ("loca-vae", "loca-dae")
    alone = ("mult-vae", "mult-dae")

    def findings(self, results: Results) -> Iterator[Finding]:
        for name, base in zip(self.names, self.alone, strict=True):
            text = f"{labelled(name)} over {labelled(base)}: {{}}."
            yield from claimed_gain(text, results.means(name), results.means(base))


class BandwidthFigure(PaperItem):
    """LOCA_VAE by one bandwidth, the other the same for all.

    `varied` is the parameter, `widths` its values by name, `fixed` the value of the other bandwidth. `share` is the
    fact of a run that is the x of its points. `claims` are what the paper says of widths: that the first is better than
    the second. They are the ends of the range and a width near the paper's, not the best of five, which would flatter
    itself.
    """

    varied: str
    widths: ClassVar[Mapping[str, Quantile]]
    fixed: ClassVar[Mapping[str, Quantile]]
    share: str
    x_label: str
    is_log_x: bool
    claims: ClassVar[Mapping[str, tuple[str, str]]]

    def runs(self, benchmark: Benchmark) -> Runs:
        runs: Runs = {}
        for name, width in self.widths.items():
            runs |= benchmark.varied(name, _thirds(benchmark), **{self.varied: width}, **self.fixed)
        for key in (RunKey(*_ALONE, seed) for seed in benchmark.seeds_of("mult-vae")):
            runs[key] = benchmark.run(key, benchmark.model(key.model, key.seed), refit=False)
        return runs

    def show(self, results: Results) -> Iterator[Part]:
        counts, rows = _thirds(results.benchmark), []
        found = {name: runs for name in self.widths if (runs := results.of("loca-vae", name))}
        for name, runs in found.items():
            shares = (f"{_mean(runs, fact):.1%}" for fact in (self.share, "coverage"))
            figures = (results.text("loca-vae", name, count) for count in counts)
            rows.append((results.label("loca-vae", name), *shares, _epochs(runs), *figures))
        if alone := results.of(*_ALONE):
            empty = [""] * (len(counts) - 1)
            rows.append((_ALONE_LABEL, "", "", _epochs(alone), *empty, results.text(*_ALONE)))
        of_counts = (f"NDCG@100, {count} models" for count in counts)
        header = ("bandwidth", "share of users", "covered by all", "epochs", *of_counts)
        yield ReportTable("", TextTable(header, tuple(rows)))
        if found:
            x = [float(f"{100 * _mean(runs, self.share):.3g}") for runs in found.values()]
            curves = []
            for count in counts:
                points = [results.means("loca-vae", name, count) for name in found]
                curves.append(curve(f"{count} local models", x, points))
            curves += level(_ALONE_LABEL, results.means(*_ALONE))
            yield Chart("", self.x_label, "NDCG@100", tuple(curves), is_log_x=self.is_log_x)
        for name, width in self.widths.items():
            yield from results.record_runs("loca-vae", name, {"model": "loca-vae", "bandwidth": str(width)}, counts)
        yield from results.record_runs(*_ALONE, {"model": " ".join(_ALONE)})
        for claim, (better, worse) in self.claims.items():
            text = f"{claim} ({better} instead of {worse}) changes NDCG@100 by {{}}."
            yield from claimed_gain(text, results.means("loca-vae", better), results.means("loca-vae", worse))


def _thirds(benchmark: Benchmark) -> tuple[int, ...]:
    return benchmark.sizes.thirds(benchmark.sizes.sweep_models)


def _mean(runs: list[ComparedModel], fact: str) -> float:
    return float(np.mean([one.found[fact] for one in runs]))


def _epochs(runs: list[ComparedModel]) -> str:
    """The epochs of every seed: one that stopped early has learned less than the others."""
    return ", ".join(str(one.found["epochs"]) for one in runs if "epochs" in one.found)


class Figure7(BandwidthFigure):
    """NDCG@100 of LOCA_VAE by the share of users that a local model trains on, for several numbers of local models;
    each answers for its nearest tenth of the pairs of users. h_T is a quantile of the distances between users. No
    global share for covered users; dashed, MultVAE alone. None of them is refitted.
    """

    key = "figure7"
    title = "Figure 7: the bandwidth of training, h_T"
    varied, share = "train_bandwidth", "train_share"
    widths: ClassVar[Mapping[str, Quantile]] = {
        **{f"h_T {one:g}": Quantile(one) for one in (0.1, 0.3, 0.6, 0.9)},
        "h_T 1.3 × 0.9": _WIDE,
    }
    fixed: ClassVar[Mapping[str, Quantile]] = {"answer_bandwidth": Quantile(0.1)}
    x_label, is_log_x = "users trained on, %", False
    claims: ClassVar[Mapping[str, tuple[str, str]]] = {"training wider than answering": ("h_T 0.9", "h_T 0.1")}


class Figure8(BandwidthFigure):
    """NDCG@100 of LOCA_VAE by the share of users that a local model answers for, for several numbers of local models;
    each trains on the same wide neighbourhood. No global share for covered users; dashed, MultVAE alone. None of them
    is refitted.
    """

    key = "figure8"
    title = "Figure 8: the bandwidth of answering, h_W"
    varied, share = "answer_bandwidth", "answer_share"
    widths: ClassVar[Mapping[str, Quantile]] = {f"h_W {one:g}": Quantile(one) for one in (0.01, 0.05, 0.2, 0.5, 0.9)}
    fixed: ClassVar[Mapping[str, Quantile]] = {"train_bandwidth": _WIDE}
    x_label, is_log_x = "users answered for, %", True
    claims: ClassVar[Mapping[str, tuple[str, str]]] = {
        "answering for more than the very closest": ("h_W 0.2", "h_W 0.01"),
        "answering narrowly": ("h_W 0.2", "h_W 0.9"),
    }
