"""A comparison and how it is written: plain tables, Markdown, CSV, JSON, settings, and the folder of all of them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loca.errors import ConfigError, did_you_mean
from loca.evaluation.significance import PairedDifference, verdict_on
from loca.experiments.runs import ComparedModel
from loca.models.recommender import Recommender
from loca.persistence.atomic_write import write_whole
from loca.registry import SpaceName
from loca.text_table import TextTable, finite
from loca.tuning.model_selection import SELECTED_ON_TEST, CandidateResult, ProtocolName
from loca.tuning.recency_selection import recency_json

if TYPE_CHECKING:
    from loca.search_space import Budget
    from loca.tuning.study import Tuning

# What says how a model is computed, and not what it is.
_NOT_TOLD = ("model", "seed", "device", "engine", "precision", "answer_precision", "local_bytes")
_DIFFERENCE_KEYS = (
    "first", "second", "mean", "relative", "low", "high",
    "t", "t_p", "t_p_holm", "wilcoxon_p", "wilcoxon_p_holm", "users",
)  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """`first` minus `second` over the same users.

    `t_p_holm` and `wilcoxon_p_holm` are the p values of the two tests, each corrected by Holm over all differences of
    the comparison.
    """

    first: str
    second: str
    paired: PairedDifference
    t_p_holm: float
    wilcoxon_p_holm: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """The models in the order asked for, and their differences in `metric`; prints as two tables.

    `models` holds the fitted models that were to be kept, `failed` why others have no place in the tables. With a
    `budget` each model was tuned in the `space` of that name.
    """

    protocol: ProtocolName
    refit: bool
    metric: str
    control: str | None
    measured: tuple[ComparedModel, ...]
    differences: tuple[Difference, ...]
    models: Mapping[str, Recommender] = field(default_factory=dict)
    budget: Budget | None = None
    space: SpaceName = "wide"
    failed: Mapping[str, str] = field(default_factory=dict)

    def of(self, name: str) -> ComparedModel:
        """What one model reached."""
        found = {one.name: one for one in self.measured}
        if name not in found:
            raise ConfigError(f"no model {name!r} in this comparison{did_you_mean(name, found)}")
        return found[name]

    def difference(self, first: str, second: str) -> Difference:
        """One of the differences."""
        for one in self.differences:
            if (one.first, one.second) == (first, second):
                return one
        raise ConfigError(f"{first!r} was not compared with {second!r}; compared were {self._pairs()}")

    def _pairs(self) -> str:
        return ", ".join(f"{one.first} − {one.second}" for one in self.differences) or "none"

    def grids(self) -> tuple[TextTable, TextTable]:
        """The two tables, of models and of differences."""
        return model_grid(self), difference_grid(self)

    def __str__(self) -> str:
        return as_text(self)

    def to_markdown(self) -> str:
        """Both tables in Markdown."""
        return as_markdown(self)

    def to_csv(self) -> str:
        """One line per model and metric: mean, interval, users and seconds."""
        return as_csv(self)

    def differences_to_csv(self) -> str:
        """One line per difference: mean, interval, both tests and their corrected p values."""
        return differences_as_csv(self)

    def to_json(self) -> dict[str, Any]:
        """Everything that was measured, as JSON values without NaN or infinity."""
        return as_json(self)


def model_grid(comparison: Comparison) -> TextTable:
    """One row per model: Recall and NDCG at each length, the interval of the compared metric, trials and seconds.

    `trials` are the settings that a model was chosen from; where models were tuned, those given up early stand beside
    them, and the seconds of tuning beside those of the protocol.
    """
    lengths = comparison.measured[0].evaluation.at
    names = [f"{metric}@{n}" for n in lengths for metric in ("recall", "ndcg")]
    titles = [name.replace("recall", "Recall").replace("ndcg", "NDCG") for name in names]
    tuned = comparison.budget is not None
    costs = ("trials (pruned)", "tuning s", "seconds") if tuned else ("trials", "seconds")
    header = ("model", *titles, f"95 % of {comparison.metric.upper()}", *costs)
    return TextTable(header, tuple(_model_row(one, names, comparison.metric, tuned) for one in comparison.measured))


def _model_row(one: ComparedModel, names: list[str], metric: str, tuned: bool) -> tuple[str, ...]:
    means, (low, high) = one.evaluation.means(), one.evaluation.intervals()[metric]
    figures = (f"{means[name]:.4f}" for name in names)
    return (one.name, *figures, f"{low:.4f} – {high:.4f}", *_trials(one, tuned), f"{one.seconds:.1f}")


def _trials(one: ComparedModel, tuned: bool) -> tuple[str, ...]:
    if not tuned:
        return (f"{len(one.tried)}",)
    if one.tuning is None:
        return "its own", ""
    failures = f", {one.tuning.failed} failed" if one.tuning.failed else ""
    return f"{one.tuning.finished} ({one.tuning.pruned}{failures})", f"{one.tuning.seconds:.1f}"


def difference_grid(comparison: Comparison) -> TextTable:
    """One row per difference: its size, its interval, t, and the p values of both tests, corrected by Holm."""
    first = f"difference in {comparison.metric.upper()}"
    header = (first, "mean", "relative", "95 % interval", "t", "p t (Holm)", "p Wilcoxon (Holm)", "")
    return TextTable(header, tuple(_difference_row(one) for one in comparison.differences))


def _difference_row(one: Difference) -> tuple[str, ...]:
    figures = paired_figures(one.paired, one.t_p_holm, one.wilcoxon_p_holm)
    return (f"{one.first} − {one.second}", *figures, verdict_on(one.paired, one.t_p_holm, one.wilcoxon_p_holm))


def paired_figures(paired: PairedDifference, t_p: float, wilcoxon_p: float) -> tuple[str, ...]:
    """Mean, relative mean, interval, t and the corrected p values of a difference, as a row of a table has them."""
    return (
        f"{paired.mean:+.4f}",
        f"{paired.relative:+.1%}",
        f"{paired.low:+.4f} … {paired.high:+.4f}",
        f"{paired.t:.1f}",
        _p_text(t_p),
        _p_text(wilcoxon_p),
    )


def _p_text(p: float) -> str:
    """A p value is never 0: what has underflowed is called small."""
    return f"{p:.2g}" if p > 0 else "< 1e-300"


def as_text(comparison: Comparison) -> str:
    """Both tables, what was chosen, and above all the warning where choices were made on test."""
    models, differences = comparison.grids()
    parts = [f"{heading(comparison)}\n{budget_line(comparison)}", models.plain()]
    if comparison.differences:
        parts.append(differences.plain())
    for lines in (why_no_differences(comparison), choices_made(comparison), failures(comparison)):
        if lines:
            parts.append("\n".join(lines))
    return "\n\n".join(parts)


def budget_line(comparison: Comparison) -> str:
    """What every model was chosen with, so that none is given more than another unseen."""
    return f"budget: {told_budget(comparison)}"


def told_budget(comparison: Comparison) -> str:
    """The budget in words: what tuning had, or how many settings each model was chosen from."""
    if comparison.budget is not None:
        inherits = any(one.parameters["model"] in ("Loca", "Ensemble") for one in comparison.measured)
        after = "; local models and ensembles begin with their base's choice, ensembles with their size too"
        return f"{comparison.budget}, tuned in the space {comparison.space}{after if inherits else ''}"
    counts = {one.name: len(one.tried) for one in comparison.measured}
    if len(set(counts.values())) == 1:
        (count,) = set(counts.values())
        return f"{count} setting{'s' if count > 1 else ''} per model"
    return "settings to choose from: " + ", ".join(f"{name} {count}" for name, count in counts.items())


def failures(comparison: Comparison) -> list[str]:
    """One line for each model that is missing from the tables."""
    return [f"{name} failed: {why}" for name, why in comparison.failed.items()]


def why_no_differences(comparison: Comparison) -> list[str]:
    """One line where several models were measured on too few users to be held against each other."""
    user_count = len(comparison.measured[0].evaluation.users)
    if user_count > 1 or len(comparison.measured) < 2:
        return []
    return [f"no differences between the models: they need at least 2 test users, found {user_count}"]


def choices_made(comparison: Comparison) -> list[str]:
    """One line for each model that was tuned or had several candidates, and one for each that chose its recency.

    They say which was chosen, and what the others reached.
    """
    lines = []
    for one in comparison.measured:
        if one.tuning is not None:
            settings = _told(flat_settings(one.tuning.settings))
            lines.append(f"{one.name} was tuned to {settings or 'nothing new'}: {one.tuning.ndcg:.4f}")
        if len(one.tried) > 1:
            others = "; ".join(str(tried) for place, tried in enumerate(one.tried) if place != one.chosen)
            lines.append(f"{one.name} chose {one.tried[one.chosen]} (against {others})")
    for one in comparison.measured:
        recency = one.tried[one.chosen].recency
        if recency is not None:
            lines.append(f"{one.name} chose recency: {recency}")
    return lines


def as_markdown(comparison: Comparison) -> str:
    """Heading, budget, both tables, the choices, and the settings that every model ended with, in Markdown."""
    models, differences = comparison.grids()
    parts = [heading(comparison), budget_line(comparison), models.markdown()]
    if comparison.differences:
        parts.append(differences.markdown())
    told = (*why_no_differences(comparison), *choices_made(comparison), *failures(comparison))
    parts += [f"- {line}" for line in told]
    parts.append("Settings:\n\n" + "\n".join(_ended_with(one) for one in comparison.measured))
    return "\n\n".join(parts) + "\n"


def _ended_with(one: ComparedModel) -> str:
    told = {name: value for name, value in one.parameters.items() if name.split(".")[-1] not in _NOT_TOLD}
    return f"- {one.name}: {_told(told) or 'nothing to set'}"


def _told(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def flat_settings(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """The values of nested tables by their dotted names."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        flat.update(
            flat_settings(value, f"{above}{name}.") if isinstance(value, Mapping) else {f"{above}{name}": value}
        )
    return flat


def heading(comparison: Comparison) -> str:
    """How the figures came about, in one line."""
    first = comparison.measured[0].evaluation
    who = f"{len(first.users):,} test users, {first.item_count:,} items"
    if comparison.protocol == "paper":
        return f"*** {SELECTED_ON_TEST} *** protocol paper: every choice was made on the test items; {who}"
    fate = "refitted on train + validation" if comparison.refit else "not refitted"
    return f"protocol clean: chosen on validation, {fate}, tested once; {who}"


def check_file(folder: Path | None) -> None:
    """Refuses, before any work is done, a folder to write into that is a file."""
    for one in () if folder is None else (folder, *folder.parents):
        if one.exists() and not one.is_dir():
            raise ConfigError(f"{one}: expected a folder to write into, found a file; choose another name")


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


def settings_file(comparison: Comparison) -> str:
    """The chosen settings of all models of the catalogue as TOML that commands take with --config."""
    from loca.config.settings import toml_text
    from loca.registry import MODELS

    told = {one.name: one.settings for one in comparison.measured if one.name in MODELS and one.settings is not None}
    sections = {name: table for name, table in told.items() if table}
    named = {"compare": {"models": list(told), "protocol": comparison.protocol}} if told else {}
    warning = [SELECTED_ON_TEST] if comparison.protocol == "paper" else []
    return toml_text([*warning, heading(comparison), budget_line(comparison)], {**named, **sections})


def write_texts(folder: Path, texts: dict[str, str]) -> None:
    """Text files by name into a folder, which is made where it is missing; each replaces an older one as a whole."""
    for name, text in texts.items():
        write_whole(folder / name, text)


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


def _tried_json(one: CandidateResult) -> dict[str, Any]:
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
