"""Figures 4 to 8: accuracy by ratings of a user, by number of local models and base model, by bandwidth and focus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

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
    SeedMeans,
    claimed_gain,
    curve,
    interval_of,
    labelled,
    level,
)
from loca.text_table import TextTable

# The paper's units do not carry over between embeddings; quantiles of the distances between users do.
_WIDE = Quantile(0.9, times=1.3)
# The sweeps are not refitted on validation; a MultVAE that is would have learned from more than they have.
_ALONE = ("mult-vae", "not refitted")
_ALONE_LABEL = "MultVAE, not refitted"
_ENSEMBLE = ("ensemble-vae", "not refitted")
_ENSEMBLE_LABEL = "Ensemble_VAE, not refitted"


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
                    yield facts | {
                        "users": int(own.sum()),
                        MAIN: float(one.values[MAIN][own].mean()),
                    }
        yield Chart("", "ratings of a user", "NDCG@100", tuple(curves), groups=groups)
        header = (
            "NDCG@100",
            *(f"{group} ratings ({own.sum():,} users)" for group, own in is_of.items()),
        )
        yield ReportTable("", TextTable(header, tuple(rows)))
        for other in ("mult-vae", "ensemble-vae"):
            if {"mult-vae", "loca-vae", other} <= set(found):
                differences = found["loca-vae"].of_users() - found[other].of_users()
                sure = sum(interval_of(differences[own])[0] > 0 for own in is_of.values())
                where = (
                    "in every group"
                    if sure == len(groups)
                    else f"in {sure} of {len(groups)} groups"
                )
                text = f"LOCA_VAE is surely above {labelled(other)} {where}."
                yield (
                    Finding.on(sure == len(groups), text)
                    if other == "mult-vae"
                    else Finding("found", text)
                )


def group_users(
    counts: npt.NDArray[np.int64], groups: int = 5
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """The group of each user and the groups' names, such as 10–14: about equal shares of the users, ties together."""
    bounds = np.unique(np.quantile(counts, np.arange(1, groups) / groups, method="higher"))
    used, group_of = np.unique(np.searchsorted(bounds, counts, side="right"), return_inverse=True)
    ends = (
        (part.min(), part.max())
        for part in (counts[group_of == group] for group in range(len(used)))
    )
    return group_of, tuple(f"{low}–{high}" if low < high else f"{low}" for low, high in ends)


class CountFigure(PaperItem):
    """Models (`names`) by their number of local models, and single models (`alone`) beside them.

    `whole` are mixtures and what stands beside them, shown with all their models alone, under `clean`: the first
    communities of a mixture are no mixture of fewer.
    """

    names: tuple[str, ...]
    alone: tuple[str, ...]
    whole: tuple[str, ...]

    def runs(self, benchmark: Benchmark) -> Runs:
        whole = self.whole if benchmark.protocol == "clean" else ()
        return benchmark.rows((*self.alone, *self.names, *whole))

    def show(self, results: Results) -> Iterator[Part]:
        """Models by their number, and below them the bases alone, which have but one."""

        def means(name: str, count: int) -> SeedMeans | None:
            return results.means(name, "", None if name in self.whole else count)

        by_name, curves, rows = self._counts(results), list[Curve](), []
        is_mixed = any(results.of(name) for name in self.whole if name in MIXTURES)
        whole = [name for name in self.whole if is_mixed and results.of(name)]
        by_name |= dict.fromkeys(whole, (results.benchmark.sizes.local_models,))
        counts = sorted({count for own in by_name.values() for count in own})
        for name, own in by_name.items():
            label = results.label(name)
            points = {count: means(name, count) for count in own}
            curves.append(curve(label, own, list(points.values())))
            texts = {count: one.text() for count, one in points.items() if one is not None}
            rows.append((label, *(texts.get(count, "") for count in counts)))
        for name in (one for one in self.alone if results.of(one)):
            curves += level(results.label(name), results.means(name))
            rows.append(
                (f"{results.label(name)}, one", results.text(name), *("" for _ in counts[1:]))
            )
        if by_name:
            yield Chart("", "number of local models", "NDCG@100", tuple(curves), is_log_x=True)
            yield ReportTable(
                "", TextTable(("NDCG@100 with local models", *map(str, counts)), tuple(rows))
            )
        for name in (*self.names, *self.alone, *whole):
            counted = () if name in whole else by_name.get(name, ())
            yield from results.record_runs(name, "", {"model": name}, counted)
        yield from self.findings(results)

    def findings(self, results: Results) -> Iterable[Finding]:
        return ()

    def _counts(self, results: Results) -> dict[str, tuple[int, ...]]:
        """The numbers of models that each model was measured with, where it was."""
        runs = {name: results.of(name) for name in self.names}
        return {
            name: tuple(own[0].by_count) for name, own in runs.items() if own and own[0].by_count
        }


class Figure5(CountFigure):
    """NDCG@100 of LOCA_VAE, LLORMA_VAE (one kernel to train and to answer) and the ensemble (all weights 1) by the
    number of models, beside the one MultVAE. Points of one line are the first models of one run, whose epochs and
    global share were chosen for all of them. Under `clean`, as single points with all their models: communities by
    mixtures, and the same memberships dealt to other users.
    """

    key = "figure5"
    title = "Figure 5: the number of local models"
    names = ("loca-vae", "llorma-vae", "ensemble-vae")
    alone = ("mult-vae",)
    whole = ("mixture-vae", "dealt-vae")

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
        for name, words in (
            ("ensemble-vae", "the ensemble of as many MultVAEs"),
            ("llorma-vae", "LLORMA_VAE"),
        ):
            if not results.lacks_seeds(name):  # fewer seeds would be held against all of LOCA_VAE's
                yield from claimed_gain(f"LOCA_VAE over {words}: {{}}.", whole, results.means(name))


class Figure6(CountFigure):
    """NDCG@100 of LOCA over DAE and over VAE by the number of local models; dashed, the bases alone. Under `clean`, as
    single points with all their models: communities by mixtures over VAE and over EASE, and the ensembles of as many.
    """

    key = "figure6"
    title = "Figure 6: other base models"
    names = ("loca-vae", "loca-dae")
    alone = ("mult-vae", "mult-dae")
    whole = ("mixture-vae", "ensemble-vae", "mixture-ease", "ensemble-ease")

    def findings(self, results: Results) -> Iterator[Finding]:
        for name, base in zip(self.names, self.alone, strict=True):
            text = f"{labelled(name)} over {labelled(base)}: {{}}."
            yield from claimed_gain(text, results.means(name), results.means(base))
        for name, other in zip(self.whole[::2], self.whole[1::2], strict=True):
            text = f"{labelled(name)} over {labelled(other)}: {{}}."
            yield from _found_gain(text, results.means(name), results.means(other))


def _found_gain(text: str, first: SeedMeans | None, second: SeedMeans | None) -> Iterator[Finding]:
    """A difference on which the paper claims nothing."""
    return (replace(one, kind="found") for one in claimed_gain(text, first, second))


class BandwidthFigure(PaperItem):
    """LOCA_VAE by one bandwidth, the other the same for all; and communities by mixtures by what is like it.

    `varied` is the parameter, `widths` its values by name, `fixed` the value of the other bandwidth. `share` is the
    fact of a run that is the x of its points. `claims` are what the paper says of widths: that the first is better than
    the second. They are the ends of the range and a width near the paper's, not the best of five, which would flatter
    itself.

    Of mixtures the parameter `mixed` is varied, with `values`; `mixed_fixed` are the same for all. `shown` is the value
    that is held against the ensemble and the dealt memberships: near the default, not the best.
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
        runs: Runs = {}
        for name, width in self.widths.items():
            runs |= benchmark.varied(name, _thirds(benchmark), **{self.varied: width}, **self.fixed)
        for key in (RunKey(*_ALONE, seed) for seed in benchmark.seeds_of("mult-vae")):
            runs[key] = benchmark.run(key, benchmark.model(key.model, key.seed), refit=False)
        if benchmark.protocol == "clean":
            size = (benchmark.sizes.sweep_models,)
            for name in self.mixtures:
                for value in self.values:
                    changes = {self.mixed: value, **self.mixed_fixed}
                    runs |= benchmark.varied(self._variant(value), size, name, **changes)
            for key in (RunKey(*_ENSEMBLE, seed) for seed in range(benchmark.sizes.seeds)):
                runs[key] = benchmark.run(
                    key, of_size(benchmark.model(key.model, key.seed), *size), refit=False
                )
        return runs

    def _variant(self, value: float) -> str:
        return f"{self.mixed} {value:g}"

    def show(self, results: Results) -> Iterator[Part]:
        yield from self._show_kernels(results)
        yield from self._show_mixtures(results)

    def _show_mixtures(self, results: Results) -> Iterator[Part]:
        """Communities by mixtures and dealt ones by what is varied, and the ensemble of as many."""
        found = {
            name: [one for one in self.values if results.of(name, self._variant(one))]
            for name in self.mixtures
        }
        ensemble, curves, rows = results.means(*_ENSEMBLE), list[Curve](), []
        for name, values in found.items():
            points = [results.means(name, self._variant(value)) for value in values]
            curves += [curve(labelled(name), values, points)] if values else []
            for value in values:
                runs = results.of(name, self._variant(value))
                facts = (
                    f"{_mean(runs, 'effective_share'):.1%}",
                    f"{_mean(runs, 'answering'):.1f}",
                    _epochs(runs),
                )
                rows.append(
                    (labelled(name), f"{value:g}", *facts, results.text(name, self._variant(value)))
                )
                yield from results.record_runs(
                    name, self._variant(value), {"model": name, self.mixed: value}
                )
        if not curves:
            return
        if ensemble is not None:
            rows.append(
                (_ENSEMBLE_LABEL, "", "", "", _epochs(results.of(*_ENSEMBLE)), ensemble.text())
            )
        header = (
            "model",
            self.mixed,
            "trains on, in effect",
            "communities a user",
            "epochs",
            "NDCG@100",
        )
        yield ReportTable("communities by mixtures", TextTable(header, tuple(rows)))
        yield Chart(
            "",
            self.mixed,
            "NDCG@100",
            (*curves, *level(_ENSEMBLE_LABEL, ensemble)),
            is_log_x=self.is_log_x,
        )
        yield from results.record_runs(*_ENSEMBLE, {"model": " ".join(_ENSEMBLE)})
        shown = self._variant(self.shown)
        first, *controls = [(labelled(name), results.means(name, shown)) for name in self.mixtures]
        for label, other in (*controls, (_ENSEMBLE_LABEL, ensemble)):
            text = f"{first[0]} over {label}, with {self.mixed} {self.shown:g}: {{}}."
            yield from _found_gain(text, first[1], other)

    def _show_kernels(self, results: Results) -> Iterator[Part]:
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
            yield from results.record_runs(
                "loca-vae", name, {"model": "loca-vae", "bandwidth": str(width)}, counts
            )
        yield from results.record_runs(*_ALONE, {"model": " ".join(_ALONE)})
        for claim, (better, worse) in self.claims.items():
            text = f"{claim} ({better} instead of {worse}) changes NDCG@100 by {{}}."
            yield from claimed_gain(
                text, results.means("loca-vae", better), results.means("loca-vae", worse)
            )


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
    global share for covered users; dashed, MultVAE alone. None of them is refitted. Under `clean`, communities by
    mixtures by their focus too: the share of a train weight that goes by membership. Beside them the same memberships
    dealt to other users and, dashed, the ensemble of as many.
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
    claims: ClassVar[Mapping[str, tuple[str, str]]] = {
        "training wider than answering": ("h_T 0.9", "h_T 0.1")
    }
    mixed, values, shown = "focus", (0.0, 0.3, 0.5, 0.8, 1.0), 0.8
    mixed_fixed: ClassVar[Mapping[str, float]] = {"temperature": 8.0}
    mixtures = ("mixture-vae", "dealt-vae")


class Figure8(BandwidthFigure):
    """NDCG@100 of LOCA_VAE by the share of users that a local model answers for, for several numbers of local models;
    each trains on the same wide neighbourhood. No global share for covered users; dashed, MultVAE alone. None of them
    is refitted. Under `clean`, communities by mixtures by the temperature of their answers too: the higher, the more
    alike all communities count. Dashed, the ensemble of as many.
    """

    key = "figure8"
    title = "Figure 8: the bandwidth of answering, h_W"
    varied, share = "answer_bandwidth", "answer_share"
    widths: ClassVar[Mapping[str, Quantile]] = {
        f"h_W {one:g}": Quantile(one) for one in (0.01, 0.05, 0.2, 0.5, 0.9)
    }
    fixed: ClassVar[Mapping[str, Quantile]] = {"train_bandwidth": _WIDE}
    x_label, is_log_x = "users answered for, %", True
    claims: ClassVar[Mapping[str, tuple[str, str]]] = {
        "answering for more than the very closest": ("h_W 0.2", "h_W 0.01"),
        "answering narrowly": ("h_W 0.2", "h_W 0.9"),
    }
    mixed, values, shown = "temperature", (1.0, 4.0, 8.0, 16.0, 64.0), 8.0
    mixed_fixed: ClassVar[Mapping[str, float]] = {"focus": 0.8}
    mixtures = ("mixture-vae",)
