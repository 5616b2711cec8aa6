"""Figure 4: accuracy by how many ratings a user has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from loca.experiments.cells import Cell
from loca.experiments.grid import Grid
from loca.ranking.significance import bootstrap_intervals
from loca.reproduction.bench import Bench, Results, labelled
from loca.reproduction.exhibit import Chart, Curve, Exhibit, Finding, Panel, Value
from loca.reproduction.seed_means import MAIN, SeedMeans, over_seeds

_NAMES = ("mult-vae", "ensemble-vae", "loca-vae")
_GROUPS = 5


def needed(bench: Bench) -> dict[str, Cell]:
    """The cells of the figure, which are rows of Table 2."""
    return {called: cell for name in _NAMES for called, cell in bench.row(name).items()}


def make(studied: Sequence[Results]) -> Exhibit:
    """The figure as it came out on every bench."""
    return Exhibit(
        key="figure4",
        title="Figure 4: users by their number of ratings",
        caption="NDCG@100 of MultVAE, the ensemble of as many and LOCA_VAE, for five groups of users, each about a "
        "fifth of them, by the number of ratings that their history holds when they are asked.",
        panels=tuple(panel for results in studied for panel in _panel(results)),
        charts=tuple(chart for results in studied for chart in _chart(results)),
        records=tuple(line for results in studied for line in _records(results)),
        findings=tuple(finding for results in studied for finding in _findings(results)),
    )


def group_users(counts: npt.NDArray[np.int64], groups: int = _GROUPS) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """The group of each user and the groups' names, such as 10–14: about equal shares of the users, ties together."""
    bounds = np.unique(np.quantile(counts, np.arange(1, groups) / groups, method="higher"))
    group_of = np.searchsorted(bounds, counts, side="right")
    used, group_of = np.unique(group_of, return_inverse=True)
    names = []
    for group in range(len(used)):
        inside = counts[group_of == group]
        names.append(f"{inside.min()}–{inside.max()}" if inside.min() < inside.max() else f"{inside.min()}")
    return group_of.astype(np.int64), tuple(names)


def _groups_of(results: Results, means: SeedMeans) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    asked = results.bench.split.test.histories
    rows = asked.users.rows(means.evaluations[0].users)
    return group_users(asked.counts()[rows])


def _found(results: Results) -> dict[str, SeedMeans]:
    found = {name: over_seeds(results.of(name)) for name in _NAMES}
    return {name: one for name, one in found.items() if one is not None}


def _chart(results: Results) -> Iterator[Chart]:
    found = _found(results)
    if not found:
        return
    group_of, names = _groups_of(results, next(iter(found.values())))
    curves = []
    for name, means in found.items():
        values = means.of_users()
        parts = [values[group_of == group] for group in range(len(names))]
        intervals = [bootstrap_intervals(part[:, None], seed=0)[0] for part in parts]
        curves.append(
            Curve(
                labelled(name),
                tuple(map(float, range(len(names)))),
                tuple(float(part.mean()) for part in parts),
                tuple(float(low) for low, _ in intervals),
                tuple(float(high) for _, high in intervals),
            )
        )
    title = results.bench.title
    yield Chart(title, "ratings of a user", "NDCG@100", tuple(curves), groups=names)


def _panel(results: Results) -> Iterator[Panel]:
    """The figures behind the bars: models in rows, groups with their number of users in columns."""
    found = _found(results)
    if not found:
        return
    group_of, names = _groups_of(results, next(iter(found.values())))
    sizes = np.bincount(group_of, minlength=len(names))
    header = ("NDCG@100", *(f"{name} ratings ({size:,} users)" for name, size in zip(names, sizes, strict=True)))
    rows = []
    for name, means in found.items():
        values = means.of_users()
        rows.append((labelled(name), *(f"{values[group_of == group].mean():.4f}" for group in range(len(names)))))
    yield Panel(results.bench.title, Grid(header, tuple(rows)))


def _records(results: Results) -> Iterator[dict[str, Value]]:
    bench = results.bench
    for name, means in _found(results).items():
        group_of, names = _groups_of(results, means)
        for evaluation in means.evaluations:
            for group, called in enumerate(names):
                inside = evaluation.values[MAIN][group_of == group]
                yield {
                    "data": bench.data.name,
                    "protocol": bench.protocol,
                    "model": name,
                    "seed": evaluation.seed,
                    "ratings": called,
                    "users": len(inside),
                    MAIN: float(inside.mean()),
                }


def _findings(results: Results) -> Iterator[Finding]:
    found = _found(results)
    if not {"mult-vae", "loca-vae"} <= set(found):
        return
    group_of, names = _groups_of(results, found["mult-vae"])
    where = results.bench.title
    for other in ("mult-vae", "ensemble-vae"):
        if other not in found:
            continue
        differences = found["loca-vae"].of_users() - found[other].of_users()
        lows = [
            float(bootstrap_intervals(differences[group_of == group][:, None], seed=0)[0][0])
            for group in range(len(names))
        ]
        sure = [name for name, low in zip(names, lows, strict=True) if low > 0]
        told = "in every group" if len(sure) == len(names) else f"in {len(sure)} of {len(names)} groups"
        text = f"{where}: LOCA_VAE is surely above {labelled(other)} {told}."
        # The paper compares groups with the base alone.
        yield Finding.on(len(sure) == len(names), text) if other == "mult-vae" else Finding("found", text)
