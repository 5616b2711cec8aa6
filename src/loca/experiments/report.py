"""A comparison as people and programs read it: plain tables, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from loca.errors import ConfigError, DataError
from loca.experiments.choices import Tried
from loca.experiments.comparison import ComparedModel, Comparison, Difference
from loca.experiments.grid import Grid, finite
from loca.experiments.protocols import SELECTED_ON_TEST
from loca.experiments.recency_choice import recency_json

_LEVEL = 0.05
_DIFFERENCE_KEYS = (
    "first", "second", "mean", "relative", "low", "high",
    "t", "t_p", "t_p_holm", "wilcoxon_p", "wilcoxon_p_holm", "users",
)  # fmt: skip


def model_grid(comparison: Comparison) -> Grid:
    """One row per model: Recall and NDCG at each length, the interval of the compared metric, the seconds."""
    lengths = comparison.measured[0].evaluation.at
    names = [f"{metric}@{n}" for n in lengths for metric in ("recall", "ndcg")]
    titles = [name.replace("recall", "Recall").replace("ndcg", "NDCG") for name in names]
    header = ("model", *titles, f"95 % of {comparison.metric.upper()}", "seconds")
    return Grid(header, tuple(_model_row(one, names, comparison.metric) for one in comparison.measured))


def _model_row(one: ComparedModel, names: list[str], metric: str) -> tuple[str, ...]:
    means, (low, high) = one.evaluation.means(), one.evaluation.intervals()[metric]
    figures = (f"{means[name]:.4f}" for name in names)
    return (one.name, *figures, f"{low:.4f} – {high:.4f}", f"{one.seconds:.1f}")


def difference_grid(comparison: Comparison) -> Grid:
    """One row per difference: its size, its interval, t, and the p values of both tests, corrected by Holm."""
    first = f"difference in {comparison.metric.upper()}"
    header = (first, "mean", "relative", "95 % interval", "t", "p t (Holm)", "p Wilcoxon (Holm)", "")
    return Grid(header, tuple(_difference_row(one) for one in comparison.differences))


def _difference_row(one: Difference) -> tuple[str, ...]:
    paired = one.paired
    return (
        f"{one.first} − {one.second}",
        f"{paired.mean:+.4f}",
        f"{paired.relative:+.1%}",
        f"{paired.low:+.4f} … {paired.high:+.4f}",
        f"{paired.t:.1f}",
        _p_text(one.t_p_holm),
        _p_text(one.wilcoxon_p_holm),
        _verdict(one),
    )


def _p_text(p: float) -> str:
    """A p value is never 0: what has underflowed is called small."""
    return f"{p:.2g}" if p > 0 else "< 1e-300"


def _verdict(one: Difference) -> str:
    """A word for those who skip the figures: only what also survives the correction for many comparisons is decided."""
    if one.t_p_holm >= _LEVEL or one.paired.low <= 0 <= one.paired.high:
        return "undecided"
    return "better" if one.paired.low > 0 else "worse"


def as_text(comparison: Comparison) -> str:
    """Both tables, what was chosen, and above all the warning where choices were made on test."""
    models, differences = comparison.grids()
    parts = [heading(comparison), models.plain()]
    if comparison.differences:
        parts.append(differences.plain())
    for lines in (why_no_differences(comparison), choices_made(comparison)):
        if lines:
            parts.append("\n".join(lines))
    return "\n\n".join(parts)


def why_no_differences(comparison: Comparison) -> list[str]:
    """One line where several models were measured on too few users to be held against each other."""
    user_count = len(comparison.measured[0].evaluation.users)
    if user_count > 1 or len(comparison.measured) < 2:
        return []
    return [f"no differences between the models: they need at least 2 test users, found {user_count}"]


def choices_made(comparison: Comparison) -> list[str]:
    """One line for each model that had several candidates, and one for each that chose its recency.

    They say which was chosen, and what the others reached.
    """
    lines = []
    for one in comparison.measured:
        if len(one.tried) > 1:
            others = "; ".join(str(tried) for place, tried in enumerate(one.tried) if place != one.chosen)
            lines.append(f"{one.name} chose {one.tried[one.chosen]} (against {others})")
    for one in comparison.measured:
        recency = one.tried[one.chosen].recency
        if recency is not None:
            lines.append(f"{one.name} chose recency: {recency}")
    return lines


def as_markdown(comparison: Comparison) -> str:
    """Heading, both tables and the choices, in Markdown."""
    models, differences = comparison.grids()
    parts = [heading(comparison), models.markdown()]
    if comparison.differences:
        parts.append(differences.markdown())
    parts += [f"- {line}" for line in (*why_no_differences(comparison), *choices_made(comparison))]
    return "\n\n".join(parts) + "\n"


def heading(comparison: Comparison) -> str:
    """How the figures came about, in one line."""
    first = comparison.measured[0].evaluation
    who = f"{len(first.users):,} test users, {first.item_count:,} items"
    if comparison.protocol == "paper":
        return f"*** {SELECTED_ON_TEST} *** protocol paper: every choice was made on the test items; {who}"
    fate = "refitted on train + validation" if comparison.refit else "not refitted"
    return f"protocol clean: chosen on validation, {fate}, tested once; {who}"


def as_csv(comparison: Comparison) -> str:
    """One line per model and metric."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["model", "metric", "mean", "low", "high", "users", "seconds", "is_result"])
    for one in comparison.measured:
        intervals = one.evaluation.intervals()
        for metric, mean in one.evaluation.means().items():
            low, high = intervals[metric]
            users, seconds = len(one.evaluation.users), f"{one.seconds:.2f}"
            writer.writerow([one.name, metric, mean, low, high, users, seconds, comparison.protocol == "clean"])
    return out.getvalue()


def differences_as_csv(comparison: Comparison) -> str:
    """One line per difference, with the same figures as in JSON."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*_DIFFERENCE_KEYS, "metric", "is_result"])
    for one in comparison.differences:
        figures = _difference_json(one)
        writer.writerow(
            [*(figures[key] for key in _DIFFERENCE_KEYS), comparison.metric, comparison.protocol == "clean"]
        )
    return out.getvalue()


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Everything that was measured; `is_result` is false where choices were made on test."""
    written = {
        "protocol": comparison.protocol,
        "is_result": comparison.protocol == "clean",
        "refit": comparison.refit and comparison.protocol == "clean",
        "metric": comparison.metric,
        "control": comparison.control,
        "models": [_measured_json(one) for one in comparison.measured],
        "differences": [_difference_json(one) for one in comparison.differences],
    }
    for line in why_no_differences(comparison):
        written["no_differences"] = line
    if comparison.protocol == "paper":
        written["warning"] = SELECTED_ON_TEST
    clean: dict[str, Any] = finite(written)
    return clean


def _measured_json(one: ComparedModel) -> dict[str, Any]:
    evaluation = one.evaluation
    intervals = evaluation.intervals()
    return {
        "name": one.name,
        "users": len(evaluation.users),
        "metrics": {
            name: {"mean": mean, "low": intervals[name][0], "high": intervals[name][1]}
            for name, mean in evaluation.means().items()
        },
        "catalogue_coverage": {str(n): share for n, share in evaluation.catalogue_coverage.items()},
        "novelty": {str(n): bits for n, bits in evaluation.novelty.items()},
        "parameters": one.parameters,
        "tried": [_tried_json(tried) for tried in one.tried],
        "chosen": one.chosen,
        "recency": recency_json(one.recency),
        "seconds": one.seconds,
    }


def _tried_json(one: Tried) -> dict[str, Any]:
    choice = {} if one.recency is None else {"recency_choice": one.recency.as_json()}
    return {"settings": one.settings, "ndcg@100": one.ndcg, "seconds": one.seconds, **choice}


def _difference_json(one: Difference) -> dict[str, Any]:
    paired = one.paired
    return {
        "first": one.first,
        "second": one.second,
        "mean": paired.mean,
        "relative": paired.relative,
        "low": paired.low,
        "high": paired.high,
        "t": paired.t,
        "t_p": paired.t_p,
        "t_p_holm": one.t_p_holm,
        "wilcoxon_p": paired.wilcoxon_p,
        "wilcoxon_p_holm": one.wilcoxon_p_holm,
        "users": paired.user_count,
    }


def refuse_file(folder: Path | None) -> None:
    """Refuses, before any work is done, a folder to write into that is a file."""
    if folder is not None and folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: expected a folder to write into, found a file; choose another name")


def write_tables(comparison: Comparison, folder: Path) -> None:
    """The comparison as comparison.txt, .md, .csv and .json, and differences.csv, in a folder."""
    document = json.dumps(comparison.to_json(), ensure_ascii=False, indent=1, allow_nan=False)
    write_texts(
        folder,
        {
            "comparison.txt": str(comparison) + "\n",
            "comparison.md": comparison.to_markdown(),
            "comparison.csv": comparison.to_csv(),
            "comparison.json": document + "\n",
            "differences.csv": comparison.differences_to_csv(),
        },
    )


def write_texts(folder: Path, texts: dict[str, str]) -> None:
    """Text files by name into a folder, which is made where it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error.strerror or error})") from None
