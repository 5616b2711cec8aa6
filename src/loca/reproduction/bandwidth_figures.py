"""Figures 7 and 8: accuracy by the bandwidth that local models train with, and by the one that they answer with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from loca.communities.geometry import Quantile
from loca.experiments.cells import Cell, ComparedModel
from loca.experiments.grid import Grid
from loca.reproduction.bench import Bench, Records, Results
from loca.reproduction.exhibit import Chart, Exhibit, Finding, Panel, Value
from loca.reproduction.seed_means import in_words, over_seeds
from loca.reproduction.sweeps import curve, level, lines_of, varied_cells

# The paper's units do not carry over between embeddings; quantiles of the distances between users do.
_NARROW = Quantile(0.1)
_WIDE = Quantile(0.9, times=1.3)
TRAIN_WIDTHS: Mapping[str, Quantile] = {
    "h_T 0.1": _NARROW,
    "h_T 0.3": Quantile(0.3),
    "h_T 0.6": Quantile(0.6),
    "h_T 0.9": Quantile(0.9),
    "h_T 1.3 × 0.9": _WIDE,
}
ANSWER_WIDTHS: Mapping[str, Quantile] = {
    "h_W 0.01": Quantile(0.01),
    "h_W 0.05": Quantile(0.05),
    "h_W 0.2": Quantile(0.2),
    "h_W 0.5": Quantile(0.5),
    "h_W 0.9": Quantile(0.9),
}
# What the paper says of widths: that the first is better than the second. They are the ends of the range and a width
# near the paper's, not the best of five, which would flatter itself.
_ON_TRAINING = {"training wider than answering": ("h_T 0.9", "h_T 0.1")}
_ON_ANSWERING = {
    "answering for more than the very closest": ("h_W 0.2", "h_W 0.01"),
    "answering narrowly": ("h_W 0.2", "h_W 0.9"),
}
# The sweeps are not refitted on validation; a MultVAE that is would have learned from more than they have.
_ALONE = "mult-vae not refitted"
_ALONE_LABEL = "MultVAE, not refitted"


def needed_by_training(bench: Bench) -> dict[str, Cell]:
    """The cells of Figure 7: all answer for the same narrow neighbourhood."""
    cells: dict[str, Cell] = {}
    for called, width in TRAIN_WIDTHS.items():
        cells |= varied_cells(
            bench, f"loca-vae {called}", _counts(bench), train_bandwidth=width, answer_bandwidth=_NARROW
        )
    return cells | _alone(bench)


def needed_by_answering(bench: Bench) -> dict[str, Cell]:
    """The cells of Figure 8: all train on the same wide neighbourhood."""
    cells: dict[str, Cell] = {}
    for called, width in ANSWER_WIDTHS.items():
        cells |= varied_cells(
            bench, f"loca-vae {called}", _counts(bench), train_bandwidth=_WIDE, answer_bandwidth=width
        )
    return cells | _alone(bench)


def make_by_training(studied: Sequence[Results]) -> Exhibit:
    """Figure 7."""
    return Exhibit(
        key="figure7",
        title="Figure 7: the bandwidth of training, h_T",
        caption="NDCG@100 of LOCA_VAE by the share of users that a local model trains on, for several numbers of local "
        "models; each answers for its nearest tenth of the pairs of users. h_T is a quantile of the distances "
        "between users. No global share for covered users; dashed, MultVAE alone. None of them is refitted.",
        panels=_panels(studied, TRAIN_WIDTHS, "train_share"),
        charts=tuple(_chart(one, TRAIN_WIDTHS, "train_share", "users trained on, %") for one in studied),
        records=_records(studied, TRAIN_WIDTHS),
        findings=_findings(studied, _ON_TRAINING),
    )


def make_by_answering(studied: Sequence[Results]) -> Exhibit:
    """Figure 8."""
    return Exhibit(
        key="figure8",
        title="Figure 8: the bandwidth of answering, h_W",
        caption="NDCG@100 of LOCA_VAE by the share of users that a local model answers for, for several numbers of "
        "local models; each trains on the same wide neighbourhood. No global share for covered users; dashed, "
        "MultVAE alone. None of them is refitted.",
        panels=_panels(studied, ANSWER_WIDTHS, "answer_share"),
        charts=tuple(
            _chart(one, ANSWER_WIDTHS, "answer_share", "users answered for, %", is_log_x=True) for one in studied
        ),
        records=_records(studied, ANSWER_WIDTHS),
        findings=_findings(studied, _ON_ANSWERING),
    )


def _alone(bench: Bench) -> dict[str, Cell]:
    """MultVAE on the same terms as the sweeps, once for each seed."""
    cells = (
        bench.cell(_ALONE, bench.model("mult-vae", seed), seed, refit=False) for seed in bench.seeds_of("mult-vae")
    )
    return {cell.name: cell for cell in cells}


def _counts(bench: Bench) -> tuple[int, ...]:
    return bench.scale.thirds(bench.scale.sweep_models)


def _share(results: Results, called: str, fact: str) -> float:
    return float(np.mean([one.found[fact] for one in results.of(f"loca-vae {called}")]))


def _chart(
    results: Results, widths: Mapping[str, Quantile], fact: str, x_label: str, *, is_log_x: bool = False
) -> Chart:
    found = [called for called in widths if results.of(f"loca-vae {called}")]
    x = [float(f"{100 * _share(results, called, fact):.3g}") for called in found]
    curves = []
    for count in _counts(results.bench):
        means = [over_seeds(results.of(f"loca-vae {called}"), count) for called in found]
        curves.append(curve(f"{count} local models", x, means))
    curves += level(_ALONE_LABEL, over_seeds(results.of(_ALONE)))
    return Chart(results.bench.title, x_label, "NDCG@100", tuple(curves), is_log_x=is_log_x)


def _panels(studied: Sequence[Results], widths: Mapping[str, Quantile], fact: str) -> tuple[Panel, ...]:
    panels = []
    for results in studied:
        counts = _counts(results.bench)
        rows = []
        for called in widths:
            measured = results.of(f"loca-vae {called}")
            if not measured:
                continue
            means = [over_seeds(measured, count) for count in counts]
            covered = float(np.mean([one.found["coverage"] for one in measured]))
            figures = ("" if one is None else one.told() for one in means)
            named = results.named(f"loca-vae {called}", called)
            told = (f"{_share(results, called, fact):.1%}", f"{covered:.1%}", _epochs(measured))
            rows.append((named, *told, *figures))
        alone = over_seeds(results.of(_ALONE))
        if alone is not None:
            rows.append((_ALONE_LABEL, "", "", _epochs(results.of(_ALONE)), *("" for _ in counts[1:]), alone.told()))
        header = (
            "bandwidth",
            "share of users",
            "covered by all",
            "epochs",
            *(f"NDCG@100, {count} models" for count in counts),
        )
        panels.append(Panel(results.bench.title, Grid(header, tuple(rows))))
    return tuple(panels)


def _epochs(measured: Sequence[ComparedModel]) -> str:
    """The epochs of every seed: one that stopped early has learned less than the others."""
    return ", ".join(str(one.found["epochs"]) for one in measured if "epochs" in one.found)


def _records(studied: Sequence[Results], widths: Mapping[str, Quantile]) -> tuple[dict[str, Value], ...]:
    lines = Records()
    for results in studied:
        for called, width in widths.items():
            told: dict[str, Value] = {"model": "loca-vae", "bandwidth": str(width)}
            lines += lines_of(results, f"loca-vae {called}", told, _counts(results.bench))
        lines += lines_of(results, _ALONE, {"model": _ALONE})
    return tuple(lines)


def _findings(studied: Sequence[Results], claims: Mapping[str, tuple[str, str]]) -> tuple[Finding, ...]:
    """One width against another, for each claim on each bench."""
    found = []
    for results in studied:
        for claim, (better, worse) in claims.items():
            first, second = (over_seeds(results.of(f"loca-vae {called}")) for called in (better, worse))
            if first is not None and second is not None:
                paired = first.minus(second)
                text = f"{results.bench.title}: {claim} ({better} instead of {worse}) changes NDCG@100 by"
                found.append(Finding.on(paired.low > 0, f"{text} {in_words(paired)}."))
    return tuple(found)
