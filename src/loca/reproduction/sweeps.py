"""What the sweeps over one choice of LOCA_VAE share: the varied model, and the lines of a figure and of its CSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loca.communities.anchors import AnchorSelection
from loca.communities.geometry import Bandwidth
from loca.experiments.cells import Cell, ComparedModel
from loca.local.loca import Loca
from loca.models.recommender import clone
from loca.reproduction.bench import Bench, Records, Results, as_value
from loca.reproduction.exhibit import Curve, Value
from loca.reproduction.seed_means import METRICS, SeedMeans, over_seeds


def varied_cells(
    bench: Bench,
    called: str,
    counts: Sequence[int],
    *,
    anchor_selection: AnchorSelection = "coverage",
    train_bandwidth: Bandwidth | None = None,
    answer_bandwidth: Bandwidth | None = None,
) -> dict[str, Cell]:
    """LOCA_VAE with one choice varied, as many models as the largest of `counts`, once for each seed.

    The global model has no share in the answers of covered users, as in the paper, so that what is varied shows. A
    sweep is not refitted on validation: it is there to be compared with itself. The cells of a seed have one global
    model, which is fitted once.
    """
    cells = {}
    for seed in range(bench.scale.seeds):
        model = bench.model("loca-vae", seed)
        if not isinstance(model, Loca):
            raise TypeError(f"loca-vae: expected a Loca, found {type(model).__name__}")
        varied = clone(
            model,
            anchors=max(counts),
            anchor_selection=anchor_selection,
            train_bandwidth=model.train_bandwidth if train_bandwidth is None else train_bandwidth,
            answer_bandwidth=model.answer_bandwidth if answer_bandwidth is None else answer_bandwidth,
            alpha="paper",
        )
        cell = bench.cell(called, varied, seed, counts=counts, refit=False, shares_parts=True)
        cells[cell.name] = cell
    return cells


def curve(label: str, x: Sequence[float], means: Sequence[SeedMeans | None]) -> Curve:
    """A line of NDCG@100 with intervals over users and the single seeds; points without figures are left out."""
    points = [(place, one) for place, one in zip(x, means, strict=True) if one is not None]
    intervals = [one.interval() for _, one in points]
    seeds = min((len(one.evaluations) for _, one in points), default=0)
    return Curve(
        label=label,
        x=tuple(float(place) for place, _ in points),
        y=tuple(one.mean() for _, one in points),
        low=tuple(low for low, _ in intervals),
        high=tuple(high for _, high in intervals),
        seeds=tuple(tuple(one.of_seeds()[seed] for _, one in points) for seed in range(seeds if seeds > 1 else 0)),
    )


def level(label: str, means: SeedMeans | None) -> tuple[Curve, ...]:
    """A dashed level at the NDCG@100 of a model; nothing where it was not measured."""
    return () if means is None else (Curve(label, (), (means.mean(),), is_level=True),)


def lines_of(
    results: Results, called: str, told: dict[str, Value], counts: Sequence[int] = ()
) -> list[dict[str, Value]]:
    """The lines of CSV of cells of one name: one for each seed and number of local models."""
    bench, lines = results.bench, Records()
    for measured in results.of(called):
        for count in counts or (None,):
            means = over_seeds([measured], count)
            if means is None:
                continue
            line: dict[str, Value] = {"data": bench.data.name, "protocol": bench.protocol, **told}
            line |= {"seed": measured.evaluation.seed}
            line |= {} if count is None else {"local models": count}
            lines.append(line | {metric: means.mean(metric) for metric in METRICS} | _found(measured, count))
    return lines


def _found(measured: ComparedModel, count: int | None) -> dict[str, Value]:
    found: dict[str, Any] = dict(measured.found)
    covered = found.pop("coverage_by_count", {})
    if count is not None and str(count) in covered:
        found["coverage"] = covered[str(count)]
    return {f"found {key}": as_value(value) for key, value in found.items()} | {"seconds": measured.seconds}
