"""Figures 4 to 8: accuracy by ratings of a user, number of models, base model and bandwidth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from loca.communities.geometry import Quantile
from loca.experiments.runs import ComparedModel
from loca.paper.benchmark import (
    MIXTURES,
    Benchmark,
    PaperItem,
    Part,
    Results,
    RunKey,
    Runs,
    of_size,
)
from loca.paper.charts import Chart, Curve
from loca.paper.report import Finding, ReportTable, Value
from loca.paper.seed_means import (
    MAIN,
    Floats,
    SeedMeans,
    claimed_gain,
    curve,
    interval_of,
    labelled,
    level,
)
from loca.text_table import TextTable
from loca.typing import IntArray

# The paper's units do not carry over between embeddings; quantiles of the distances between users
# do.
_WIDE = Quantile(0.9, times=1.3)
# The sweeps are not refitted; a MultVAE that is would have learned from more than they have.
_ALONE = ("mult-vae", "not refitted")
_ALONE_LABEL = "MultVAE, not refitted"
_ENSEMBLE = ("ensemble-vae", "not refitted")
_ENSEMBLE_LABEL = "Ensemble_VAE, not refitted"


class Figure4(PaperItem):
    """NDCG@100 of MultVAE, the ensemble of as many and LOCA_VAE, for five groups of users, each
    about a fifth of them, by the number of ratings that their history holds when they are
    evaluated.
    """

    key = "figure4"
    title = "Figure 4: users by their number of ratings"
    names = ("mult-vae", "ensemble-vae", "loca-vae")

    def show(self, results: Results) -> Iterator[Part]:
        """Return the bars, and the figures behind them; the paper compares groups with the base."""
        means_of = {
            name: means for name in self.names if (means := results.means(name)) is not None
        }
        if not means_of:
            return
        histories = results.benchmark.split.test.histories
        users = next(iter(means_of.values())).evaluations[0].users
        group_of, groups = group_users(histories.counts()[histories.users.rows(users)])
        is_of = {name: group_of == group for group, name in enumerate(groups)}
        curves = []
        rows = []
        for name, means in means_of.items():
            parts = [means.of_users()[is_in] for is_in in is_of.values()]
            low, high = zip(*map(interval_of, parts), strict=True)
            x = tuple(map(float, range(len(parts))))
            y = tuple(float(part.mean()) for part in parts)
            curves.append(Curve(labelled(name), x, y, low, high))
            rows.append((labelled(name), *(f"{value:.4f}" for value in y)))
            for evaluation in means.evaluations:
                for group, is_in in is_of.items():
                    yield {
                        "model": name,
                        "seed": evaluation.seed,
                        "ratings": group,
                        "users": int(is_in.sum()),
                        MAIN: float(evaluation.values[MAIN][is_in].mean()),
                    }
        yield Chart("", "ratings of a user", "NDCG@100", tuple(curves), groups=groups)
        sizes = [f"{group} ratings ({is_in.sum():,} users)" for group, is_in in is_of.items()]
        yield ReportTable("", TextTable(("NDCG@100", *sizes), tuple(rows)))
        if not {"mult-vae", "loca-vae"} <= set(means_of):
            return
        for other in ("mult-vae", "ensemble-vae"):
            if other in means_of:
                differences = means_of["loca-vae"].of_users() - means_of[other].of_users()
                of_groups = [differences[is_in] for is_in in is_of.values()]
                yield _finding_on_groups(of_groups, other)


def _finding_on_groups(differences: Sequence[Floats], other: str) -> Finding:
    """Return in how many groups LOCA_VAE is surely above another; the paper claims it of its base."""
    n_sure = sum(interval_of(of_group)[0] > 0 for of_group in differences)
    n_groups = len(differences)
    where = "in every group" if n_sure == n_groups else f"in {n_sure} of {n_groups} groups"
    text = f"LOCA_VAE is surely above {labelled(other)} {where}."
    if other == "mult-vae":
        return Finding.on(n_sure == n_groups, text)
    return Finding("found", text)


def group_users(counts: IntArray, groups: int = 5) -> tuple[IntArray, tuple[str, ...]]:
    """Return the group of each user and the groups' names, such as 10–14.

    They are about equal shares of the users, ties together.
    """
    levels = np.arange(1, groups) / groups
    bounds = np.unique(np.quantile(counts, levels, method="higher"))
    places = np.searchsorted(bounds, counts, side="right")
    used, group_of = np.unique(places, return_inverse=True)
    names = []
    for group in range(len(used)):
        members = counts[group_of == group]
        low, high = members.min(), members.max()
        names.append(f"{low}–{high}" if low < high else f"{low}")
    return group_of, tuple(names)


class CountFigure(PaperItem):
    """Models (`names`) by their number of local models, and single models (`alone`) beside them.

    `mixed` are mixtures and what stands beside them, shown with all their models alone, under
    `clean`: the first communities of a mixture are no mixture of fewer.
    """

    names: tuple[str, ...]
    alone: tuple[str, ...]
    mixed: tuple[str, ...]

    def runs(self, benchmark: Benchmark) -> Runs:
        """Return the rows of Table 2 that it shows."""
        mixed = self.mixed if benchmark.protocol == "clean" else ()
        return benchmark.rows((*self.alone, *self.names, *mixed))

    def show(self, results: Results) -> Iterator[Part]:
        """Return models by their number, and below them the bases alone, which have but one."""
        counts_of = self._counts(results)
        mixed = self._mixed(results)
        counts_of |= dict.fromkeys(mixed, (results.benchmark.sizes.local_models,))
        counts = sorted({count for own in counts_of.values() for count in own})
        curves: list[Curve] = []
        rows: list[tuple[str, ...]] = []
        for name, own in counts_of.items():
            label = results.label(name)
            points = {
                count: results.means(name, "", None if name in mixed else count) for count in own
            }
            curves.append(curve(label, own, list(points.values())))
            texts = {count: means.text() for count, means in points.items() if means is not None}
            rows.append((label, *(texts.get(count, "") for count in counts)))
        for name in self.alone:
            if results.of(name):
                label = results.label(name)
                curves += level(label, results.means(name))
                rows.append((f"{label}, one", results.text(name), *("" for _ in counts[1:])))
        if counts_of:
            yield Chart("", "number of local models", "NDCG@100", tuple(curves), is_log_x=True)
            header = ("NDCG@100 with local models", *map(str, counts))
            yield ReportTable("", TextTable(header, tuple(rows)))
        for name in (*self.names, *self.alone, *mixed):
            counted = () if name in mixed else counts_of.get(name, ())
            yield from results.record_runs(name, "", {"model": name}, counted)
        yield from self.findings(results)

    def findings(self, results: Results) -> Iterable[Finding]:
        """Return what the paper claims of the figure, and what it does not say."""
        return ()

    def _counts(self, results: Results) -> dict[str, tuple[int, ...]]:
        """Return the numbers of models that each model was measured with, where it was."""
        runs = {name: results.counted(name) for name in self.names}
        return {name: tuple(counted[0].by_count) for name, counted in runs.items() if counted}

    def _mixed(self, results: Results) -> list[str]:
        """Return what stands beside mixtures and has results; nothing without any mixture."""
        if not any(results.of(name) for name in self.mixed if name in MIXTURES):
            return []
        return [name for name in self.mixed if results.of(name)]


class Figure5(CountFigure):
    """NDCG@100 of LOCA_VAE, LLORMA_VAE (one kernel to train and to answer) and the ensemble (all
    weights 1) by the number of models, beside the one MultVAE. Points of one line are the first
    models of one run, whose epochs and global share were chosen for all of them. Under `clean`, as
    single points with all their models: communities by mixtures, and the same memberships dealt to
    other users.
    """

    key = "figure5"
    title = "Figure 5: the number of local models"
    names = ("loca-vae", "llorma-vae", "ensemble-vae")
    alone = ("mult-vae",)
    mixed = ("mixture-vae", "dealt-vae")

    def findings(self, results: Results) -> Iterator[Finding]:
        """Return what more local models bring, and what locality brings beside the controls."""
        counts = self._counts(results).get("loca-vae", ())
        all_models = results.means("loca-vae")
        if all_models is None or not counts:
            return
        if len(counts) > 1:
            # Of two numbers the middle is the larger, which is all of them.
            half = counts[min(len(counts) // 2, len(counts) - 2)]
            text = f"{counts[-1]} instead of {half} local models change NDCG@100 by {{}}."
            yield from claimed_gain(text, all_models, results.means("loca-vae", "", half))
        controls = {
            "ensemble-vae": "the ensemble of as many MultVAEs",
            "llorma-vae": "LLORMA_VAE",
        }
        for name, words in controls.items():
            if not results.lacks_seeds(name):  # fewer seeds would be held against all of LOCA_VAE's
                text = f"LOCA_VAE over {words}: {{}}."
                yield from claimed_gain(text, all_models, results.means(name))


class Figure6(CountFigure):
    """NDCG@100 of LOCA over DAE and over VAE by the number of local models; dashed, the bases
    alone. Under `clean`, as single points with all their models: communities by mixtures over VAE
    and over EASE, and the ensembles of as many.
    """

    key = "figure6"
    title = "Figure 6: other base models"
    names = ("loca-vae", "loca-dae")
    alone = ("mult-vae", "mult-dae")
    mixed = ("mixture-vae", "ensemble-vae", "mixture-ease", "ensemble-ease")

    def findings(self, results: Results) -> Iterator[Finding]:
        """Return what each Loca earns over its base, and each mixture over its ensemble."""
        for name, base in zip(self.names, self.alone, strict=True):
            text = f"{labelled(name)} over {labelled(base)}: {{}}."
            yield from claimed_gain(text, results.means(name), results.means(base))
        for name, other in zip(self.mixed[::2], self.mixed[1::2], strict=True):
            text = f"{labelled(name)} over {labelled(other)}: {{}}."
            yield from _unclaimed_gain(text, results.means(name), results.means(other))


def _unclaimed_gain(
    text: str, first: SeedMeans | None, second: SeedMeans | None
) -> Iterator[Finding]:
    """Return a difference on which the paper claims nothing."""
    return (replace(finding, kind="found") for finding in claimed_gain(text, first, second))


class BandwidthFigure(PaperItem):
    """LOCA_VAE by one bandwidth, the other the same for all; and mixtures by what is like it.

    `varied` is the parameter, `widths` its values by name, `fixed` the value of the other
    bandwidth. `share` is the fact of a run that is the x of its points. `claims` are what the paper
    says of widths: that the first is better than the second. They are the ends of the range and a
    width near the paper's, not the best of five, which would flatter itself.

    Of mixtures the parameter `mixed` is varied, with `values`; `mixed_fixed` are the same for all.
    `shown` is the value that is held against the ensemble and the dealt memberships: near the
    default, not the best.
    """

    varied: str
    widths: ClassVar[Mapping[str, Quantile]]
    fixed: ClassVar[Mapping[str, Quantile]]
    share: str
    x_label: str
    is_log_x: bool
    claims: ClassVar[Mapping[str, tuple[str, str]]]
    mixed: str
    values: tuple[float, ...]
    shown: float
    mixed_fixed: ClassVar[Mapping[str, float]]
    mixtures: tuple[str, ...]

    def runs(self, benchmark: Benchmark) -> Runs:
        """Return the sweep of a bandwidth, that of mixtures, and the models beside them."""
        runs: Runs = {}
        for name, width in self.widths.items():
            runs |= benchmark.varied(name, _thirds(benchmark), **{self.varied: width}, **self.fixed)
        for seed in benchmark.seeds_of("mult-vae"):
            key = RunKey(*_ALONE, seed)
            runs[key] = benchmark.run(key, benchmark.model(key.model, seed), refit=False)
        if benchmark.protocol != "clean":
            return runs
        size = benchmark.sizes.sweep_models
        for name in self.mixtures:
            for value in self.values:
                changes = {self.mixed: value, **self.mixed_fixed}
                runs |= benchmark.varied(self.variant(value), (size,), name, **changes)
        for seed in range(benchmark.sizes.seeds):
            key = RunKey(*_ENSEMBLE, seed)
            ensemble = of_size(benchmark.model(key.model, seed), size)
            runs[key] = benchmark.run(key, ensemble, refit=False)
        return runs

    @property
    def _mixed_label(self) -> str:
        return self.mixed.replace("_", " ")

    def variant(self, value: float) -> str:
        """Return what is varied about a run of mixtures, as the key of the run says it."""
        return f"{self._mixed_label} {value:g}"

    def show(self, results: Results) -> Iterator[Part]:
        """Return the sweep of a bandwidth, then that of mixtures."""
        yield from self._show_kernels(results)
        yield from self._show_mixtures(results)

    def _show_mixtures(self, results: Results) -> Iterator[Part]:
        """Return mixtures and their control by what is varied, and the ensemble of as many."""
        curves: list[Curve] = []
        rows: list[tuple[str, ...]] = []
        for name in self.mixtures:
            values = [value for value in self.values if results.of(name, self.variant(value))]
            points = [results.means(name, self.variant(value)) for value in values]
            if values:
                curves.append(curve(labelled(name), values, points))
            for value in values:
                rows.append(self._mixed_row(results, name, value))
                facts: dict[str, Value] = {"model": name, self.mixed: value}
                yield from results.record_runs(name, self.variant(value), facts)
        if not curves:
            return
        ensemble = results.means(*_ENSEMBLE)
        if ensemble is not None:
            epochs = _epochs(results.of(*_ENSEMBLE))
            rows.append((_ENSEMBLE_LABEL, "", "", "", epochs, ensemble.text()))
        header = (
            "model",
            self._mixed_label,
            "trains on, in effect",
            "communities a user",
            "epochs",
            "NDCG@100",
        )
        yield ReportTable("communities by mixtures", TextTable(header, tuple(rows)))
        curves += level(_ENSEMBLE_LABEL, ensemble)
        yield Chart("", self._mixed_label, "NDCG@100", tuple(curves), is_log_x=self.is_log_x)
        yield from results.record_runs(*_ENSEMBLE, {"model": " ".join(_ENSEMBLE)})
        yield from self._mixed_findings(results, ensemble)

    def _mixed_row(self, results: Results, name: str, value: float) -> tuple[str, ...]:
        runs = results.of(name, self.variant(value))
        return (
            labelled(name),
            f"{value:g}",
            f"{_mean(runs, 'effective_share'):.1%}",
            f"{_mean(runs, 'answering'):.1f}",
            _epochs(runs),
            results.text(name, self.variant(value)),
        )

    def _mixed_findings(self, results: Results, ensemble: SeedMeans | None) -> Iterator[Finding]:
        """Return what the shown mixtures earn over their control and the ensemble."""
        mixture, *controls = self.mixtures
        others = {labelled(name): results.means(name, self._shown) for name in controls}
        others[_ENSEMBLE_LABEL] = ensemble
        for label, means in others.items():
            text = f"{labelled(mixture)} over {label}, with {self._shown}: {{}}."
            yield from _unclaimed_gain(text, results.means(mixture, self._shown), means)

    @property
    def _shown(self) -> str:
        return self.variant(self.shown)

    def _show_kernels(self, results: Results) -> Iterator[Part]:
        counts = _thirds(results.benchmark)
        runs_of = {name: runs for name in self.widths if (runs := results.of("loca-vae", name))}
        rows: list[tuple[str, ...]] = []
        for name, runs in runs_of.items():
            shares = [f"{_mean(runs, fact):.1%}" for fact in (self.share, "coverage")]
            figures = [results.text("loca-vae", name, count) for count in counts]
            rows.append((results.label("loca-vae", name), *shares, _epochs(runs), *figures))
        alone = results.of(*_ALONE)
        if alone:
            empty = [""] * (len(counts) - 1)
            rows.append((_ALONE_LABEL, "", "", _epochs(alone), *empty, results.text(*_ALONE)))
        of_counts = [f"NDCG@100, {count} models" for count in counts]
        header = ("bandwidth", "share of users", "covered by all", "epochs", *of_counts)
        yield ReportTable("", TextTable(header, tuple(rows)))
        if runs_of:
            x = [float(f"{100 * _mean(runs, self.share):.3g}") for runs in runs_of.values()]
            curves: list[Curve] = []
            for count in counts:
                points = [results.means("loca-vae", name, count) for name in runs_of]
                curves.append(curve(f"{count} local models", x, points))
            curves += level(_ALONE_LABEL, results.means(*_ALONE))
            yield Chart("", self.x_label, "NDCG@100", tuple(curves), is_log_x=self.is_log_x)
        for name, width in self.widths.items():
            facts: dict[str, Value] = {"model": "loca-vae", "bandwidth": str(width)}
            yield from results.record_runs("loca-vae", name, facts, counts)
        yield from results.record_runs(*_ALONE, {"model": " ".join(_ALONE)})
        for claim, (better, worse) in self.claims.items():
            text = f"{claim} ({better} instead of {worse}) changes NDCG@100 by {{}}."
            first, second = (results.means("loca-vae", name) for name in (better, worse))
            yield from claimed_gain(text, first, second)


def _thirds(benchmark: Benchmark) -> tuple[int, ...]:
    return benchmark.sizes.thirds(benchmark.sizes.sweep_models)


def _mean(runs: Sequence[ComparedModel], fact: str) -> float:
    return float(np.mean([run.found[fact] for run in runs]))


def _epochs(runs: Sequence[ComparedModel]) -> str:
    """Return the epochs of every seed: one that stopped early has learned less than the others."""
    return ", ".join(str(run.found["epochs"]) for run in runs if "epochs" in run.found)


class Figure7(BandwidthFigure):
    """NDCG@100 of LOCA_VAE by the share of users that a local model trains on, for several numbers
    of local models; each answers for its nearest tenth of the pairs of users. h_T is a quantile of
    the distances between users. No global share for covered users; dashed, MultVAE alone. None of
    them is refitted. Under `clean`, communities by mixtures by their membership weight too: the
    share of a train weight that goes by membership. Beside them the same memberships dealt to other
    users and, dashed, the ensemble of as many.
    """

    key = "figure7"
    title = "Figure 7: the bandwidth of training, h_T"
    varied = "train_bandwidth"
    share = "train_share"
    widths: ClassVar[Mapping[str, Quantile]] = {
        **{f"h_T {width:g}": Quantile(width) for width in (0.1, 0.3, 0.6, 0.9)},
        "h_T 1.3 × 0.9": _WIDE,
    }
    fixed: ClassVar[Mapping[str, Quantile]] = {"answer_bandwidth": Quantile(0.1)}
    x_label = "users trained on, %"
    is_log_x = False
    claims: ClassVar[Mapping[str, tuple[str, str]]] = {
        "training wider than answering": ("h_T 0.9", "h_T 0.1")
    }
    mixed = "membership_weight"
    values = (0.0, 0.3, 0.5, 0.8, 1.0)
    shown = 0.8
    mixed_fixed: ClassVar[Mapping[str, float]] = {"temperature": 8.0}
    mixtures = ("mixture-vae", "dealt-vae")


class Figure8(BandwidthFigure):
    """NDCG@100 of LOCA_VAE by the share of users that a local model answers for, for several
    numbers of local models; each trains on the same wide neighbourhood. No global share for covered
    users; dashed, MultVAE alone. None of them is refitted. Under `clean`, communities by mixtures
    by the temperature of their answers too: the higher, the more alike all communities count.
    Dashed, the ensemble of as many.
    """

    key = "figure8"
    title = "Figure 8: the bandwidth of answering, h_W"
    varied = "answer_bandwidth"
    share = "answer_share"
    widths: ClassVar[Mapping[str, Quantile]] = {
        f"h_W {width:g}": Quantile(width) for width in (0.01, 0.05, 0.2, 0.5, 0.9)
    }
    fixed: ClassVar[Mapping[str, Quantile]] = {"train_bandwidth": _WIDE}
    x_label = "users answered for, %"
    is_log_x = True
    claims: ClassVar[Mapping[str, tuple[str, str]]] = {
        "answering for more than the very closest": ("h_W 0.2", "h_W 0.01"),
        "answering narrowly": ("h_W 0.2", "h_W 0.9"),
    }
    mixed = "temperature"
    values = (1.0, 4.0, 8.0, 16.0, 64.0)
    shown = 8.0
    mixed_fixed: ClassVar[Mapping[str, float]] = {"membership_weight": 0.8}
    mixtures = ("mixture-vae",)
