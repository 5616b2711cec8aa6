"""A comparison as programs read it: CSV and JSON."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from loca.experiments.choices import Tried
from loca.experiments.comparison import ComparedModel, Comparison, Difference
from loca.experiments.grid import finite
from loca.experiments.protocols import SELECTED_ON_TEST
from loca.experiments.recency_choice import recency_json
from loca.experiments.report import flat_settings, told_budget, why_no_differences

if TYPE_CHECKING:
    from loca.experiments.tuning import Tuning

_DIFFERENCE_KEYS = (
    "first", "second", "mean", "relative", "low", "high",
    "t", "t_p", "t_p_holm", "wilcoxon_p", "wilcoxon_p_holm", "users",
)  # fmt: skip


def as_csv(comparison: Comparison) -> str:
    """One line per model and metric; the last three are empty where nothing was tuned."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    costs = ["finished", "pruned", "tuning_seconds"]
    writer.writerow(["model", "metric", "mean", "low", "high", "users", "seconds", "is_result", *costs])
    for one in comparison.measured:
        intervals = one.evaluation.intervals()
        for metric, mean in one.evaluation.means().items():
            low, high = intervals[metric]
            users, seconds = len(one.evaluation.users), f"{one.seconds:.2f}"
            tuned = ["", "", ""]
            if one.tuning is not None:
                tuned = [f"{one.tuning.finished}", f"{one.tuning.pruned}", f"{one.tuning.seconds:.2f}"]
            writer.writerow([one.name, metric, mean, low, high, users, seconds, comparison.protocol == "clean", *tuned])
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
        "budget": _budget_json(comparison),
        "models": [_measured_json(one) for one in comparison.measured],
        "differences": [_difference_json(one) for one in comparison.differences],
    }
    for line in why_no_differences(comparison):
        written["no_differences"] = line
    if comparison.failed:
        written["failed"] = dict(comparison.failed)
    if comparison.protocol == "paper":
        written["warning"] = SELECTED_ON_TEST
    clean: dict[str, Any] = finite(written)
    return clean


def _budget_json(comparison: Comparison) -> dict[str, Any]:
    text, budget = told_budget(comparison), comparison.budget
    if budget is None:
        return {"text": text}
    return {"text": text, "trials": budget.trials, "seconds": budget.seconds, "space": comparison.space}


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
        **({} if one.tuning is None else {"tuning": _tuning_json(one.tuning)}),
    }


def _tuning_json(tuning: Tuning) -> dict[str, Any]:
    return {
        "settings": flat_settings(tuning.settings),
        "ndcg@100": tuning.ndcg,
        "finished": tuning.finished,
        "pruned": tuning.pruned,
        "failed": tuning.failed,
        "seconds": tuning.seconds,
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
