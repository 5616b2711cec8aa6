"""A comparison and how it is written: plain tables, Markdown, CSV, JSON, and settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loca.config.settings import flat_settings, toml_text
from loca.errors import ConfigError, did_you_mean
from loca.evaluation.metrics import DEFAULT_METRIC, METRICS, Metric
from loca.evaluation.significance import PairedDifference, verdict_on
from loca.experiments.runs import ComparedModel
from loca.models.recommender import Recommender
from loca.persistence.atomic_write import write_whole
from loca.registry import MODELS, SpaceName
from loca.remarks import Remarks, shown_remarks
from loca.search_space import Budget
from loca.text_table import Tabular, TextTable, csv_text, finite
from loca.tuning.model_selection import SELECTED_ON_TEST, CandidateResult, ProtocolName
from loca.tuning.recency_selection import recency_json

# What says how a model is computed, and not what it is.
_HOW_COMPUTED = {"model", "seed", "engine"}
_DIFFERENCE_KEYS = (
    "first", "second", "mean", "relative", "low", "high",
    "t", "t_p", "t_p_holm", "wilcoxon_p", "wilcoxon_p_holm", "users",
)  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """Hold `first` minus `second` over the same users.

    Attributes
    ----------
    first, second : str
        The names of the models.
    paired : PairedDifference
        The difference and its tests.
    t_p_holm, wilcoxon_p_holm : float
        The p values of the two tests, each corrected by Holm over all differences of the
        comparison.
    """

    first: str
    second: str
    paired: PairedDifference
    t_p_holm: float
    wilcoxon_p_holm: float

    def record(self) -> dict[str, Any]:
        """Return names and figures as JSON values."""
        known = {**vars(self), **vars(self.paired), "users": self.paired.user_count}
        return {key: known[key] for key in _DIFFERENCE_KEYS}


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Tabular):
    """Hold what every model reached, in the order requested, and their differences.

    `compare` makes it, and it prints as two tables.

    Parameters
    ----------
    protocol : {"clean", "paper"}
        How models were selected.
    refit : bool
        Whether they were refitted on train and validation.
    metric : str
        What the differences are in, such as `"ndcg@100"`.
    control : str or None
        The model that all others are compared with.
    measured : tuple of ComparedModel
        What every model reached.
    differences : tuple of Difference
        Paired by user, p values corrected over all of them.
    models : mapping of str to Recommender, default {}
        The fitted models that were to be returned.
    budget : Budget or None, default None
        What each model was tuned under, where it was.
    space : str, default "wide"
        The search space in which it was tuned.
    failed : mapping of str to str, default {}
        Why other models have no place in the tables.
    remarks : tuple of Remark, default ()
        What changes the meaning of the figures.

    Examples
    --------
    >>> data = loca.planted_communities(
    ...     users=60, items=30, groups=5, history=12, shortest_history=10
    ... ).interactions
    >>> split = loca.leave_last_out(data, test=2, validation=2)
    >>> found = loca.compare([loca.Popularity(), loca.EASE()], split, at=[10])
    >>> [one.name for one in found.measured]
    ['Popularity', 'EASE']
    >>> found.of("EASE").evaluation.values["ndcg@10"].shape
    (60,)
    >>> print(found.heading)
    protocol clean: chosen on validation, refitted on train + validation, tested once; 60 test users, 30 items
    budget: 1 setting per model
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
    remarks: Remarks = ()

    def of(self, name: str) -> ComparedModel:
        """Return what one model reached.

        Parameters
        ----------
        name : str
            The name of the model.

        Returns
        -------
        ComparedModel
        """
        outcomes = {outcome.name: outcome for outcome in self.measured}
        if name not in outcomes:
            raise ConfigError(f"no model {name!r} in this comparison{did_you_mean(name, outcomes)}")
        return outcomes[name]

    def difference(self, first: str, second: str) -> Difference:
        """Return one of the differences.

        Parameters
        ----------
        first, second : str
            The names of two models that were compared, in this order.

        Returns
        -------
        Difference
        """
        differences = {(paired.first, paired.second): paired for paired in self.differences}
        if (first, second) not in differences:
            compared = ", ".join(" − ".join(pair) for pair in differences) or "none"
            raise ConfigError(
                f"{first!r} was not compared with {second!r}; compared were {compared}"
            )
        return differences[first, second]

    @property
    def heading(self) -> str:
        """How the figures came about, and what every model was chosen with, in two lines."""
        first = self.measured[0].evaluation
        sizes = f"{len(first.users):,} test users, {first.item_count:,} items"
        fate = "refitted on train + validation" if self.refit else "not refitted"
        how = f"protocol clean: chosen on validation, {fate}, tested once; {sizes}"
        if self.protocol == "paper":
            choices = "every choice was made on the test items"
            how = f"*** {SELECTED_ON_TEST} *** protocol paper: {choices}; {sizes}"
        return f"{how}\nbudget: {self._budget_text()}"

    def _budget_text(self) -> str:
        """Return what every model was tuned or chosen with, so that none has more unseen."""
        if self.budget is not None:
            text = f"{self.budget}, tuned in the space {self.space}"
            if any(outcome.size is not None for outcome in self.measured):
                text += "; local models and ensembles begin with their base's choice, "
                text += "ensembles with their size too"
                if self._controls():
                    text += ", dealt controls have all settings of their local model"
            return text
        counts = {
            outcome.name: len(outcome.tried) for outcome in self.measured if not outcome.repeats
        }
        if len(set(counts.values())) == 1:
            count = next(iter(counts.values()))
            return f"{count} setting{'s' if count > 1 else ''} per model"
        return "settings to choose from: " + ", ".join(
            f"{name} {count}" for name, count in counts.items()
        )

    def tables(self) -> tuple[TextTable, TextTable]:
        """Lay out one row per model, and one per difference.

        A model has Recall and NDCG at each length, the compared metric with its interval, the
        settings that it was chosen from and its seconds; where models were tuned, trials given up
        early and the seconds of tuning stand beside. A difference has its size, its interval, t,
        the p values of both tests, and a verdict.

        Returns
        -------
        tuple of (TextTable, TextTable)
            The models, and the differences.
        """
        names = [
            f"{metric}@{n}" for n in self.measured[0].evaluation.at for metric in ("recall", "ndcg")
        ]
        if self.metric not in names:
            names.append(self.metric)
        titles = [Metric.label_of(name) for name in names]
        metric = Metric.label_of(self.metric)
        costs = ("trials",) if self.budget is None else ("trials (pruned)", "tuning s")
        header = ("model", *titles, f"95 % of {metric}", *costs, "seconds")
        models = []
        for outcome in self.measured:
            means = outcome.evaluation.means()
            low, high = outcome.evaluation.intervals()[self.metric]
            figures = [f"{means[name]:.4f}" for name in names]
            interval = f"{low:.4f} – {high:.4f}"
            costs_of = self._costs_of(outcome)
            models.append((outcome.name, *figures, interval, *costs_of, f"{outcome.seconds:.1f}"))
        differences = []
        for difference in self.differences:
            name = f"{difference.first} − {difference.second}"
            paired = difference.paired
            p_values = difference.t_p_holm, difference.wilcoxon_p_holm
            verdict = verdict_on(paired, *p_values)
            differences.append((name, *paired_figures(paired, *p_values), verdict))
        paired_header = (
            f"difference in {metric}",
            "mean",
            "relative",
            "95 % interval",
            "t",
            "p t (Holm)",
            "p Wilcoxon (Holm)",
            "",
        )
        return TextTable(header, tuple(models)), TextTable(paired_header, tuple(differences))

    def _costs_of(self, outcome: ComparedModel) -> tuple[str, ...]:
        """Return the cells that say how many settings a model was chosen from, and at what cost."""
        if self.budget is None:
            return ("–",) if outcome.repeats else (f"{len(outcome.tried)}",)
        if outcome.repeats:
            return ("–", "–")
        tuning = outcome.tuning
        if tuning is None:
            return ("its own", "")
        failures = f", {tuning.failed} failed" if tuning.failed else ""
        return (f"{tuning.finished} ({tuning.pruned}{failures})", f"{tuning.seconds:.1f}")

    def footnotes(self) -> list[list[str]]:
        """Return the lines below the tables, in groups.

        What differences mean, or why there are none; choices; failures; remarks.
        """
        meanings = [*self._too_few_users(), *self._meanings()]
        failures = [f"{name} failed: {reason}" for name, reason in self.failed.items()]
        groups = (meanings, self._choices(), failures, shown_remarks(self.remarks))
        return [lines for lines in groups if lines]

    def _choices(self) -> list[str]:
        """Return what each model was tuned to, and what it chose."""
        lines = []
        for outcome in self.measured:
            if outcome.tuning is not None:
                settings = _in_words(flat_settings(outcome.tuning.settings)) or "nothing new"
                lines.append(f"{outcome.name} was tuned to {settings}: {outcome.tuning.score:.4f}")
            if len(outcome.tried) > 1:
                others = [
                    str(candidate)
                    for number, candidate in enumerate(outcome.tried)
                    if number != outcome.chosen
                ]
                against = "; ".join(others)
                lines.append(f"{outcome.name} chose {outcome.selected} (against {against})")
        lines += [
            f"{outcome.name} chose recency: {outcome.selected.recency}"
            for outcome in self.measured
            if outcome.selected.recency is not None
        ]
        return lines

    def _controls(self) -> list[str]:
        """Return the names of the controls with communities of other users."""
        return [
            outcome.name for outcome in self.measured if outcome.is_control and not outcome.repeats
        ]

    def _meanings(self) -> list[str]:
        """Return what the rows of controls say."""
        lines = []
        if self._controls():
            lines.append(
                f"{', '.join(self._controls())}: memberships dealt to other users at random "
                "(beside a model that chooses its communities itself: those of a mixture with its "
                "defaults). What a local model gains over the dealt form is locality; what the "
                "dealt form gains over an ensemble of as many is diversity."
            )
        lines += [
            f"{outcome.name}: {outcome.repeats} as chosen, trained as long as the longest model "
            "over the same network"
            for outcome in self.measured
            if outcome.repeats
        ]
        return lines

    def _too_few_users(self) -> list[str]:
        n_users = len(self.measured[0].evaluation.users)
        if n_users >= 2 or len(self.measured) < 2:
            return []
        needed = "they need at least 2 test users"
        return [f"no differences between the models: {needed}, found {n_users}"]

    def shown(self) -> list[str | TextTable]:
        """Return what a person reads: the heading, both tables and the remarks.

        Returns
        -------
        list of str or TextTable
        """
        models, differences = self.tables()
        lines: list[str | TextTable] = [self.heading, "", models]
        if self.differences:
            lines += ["", differences]
        for group in self.footnotes():
            lines += ["", *group]
        return lines

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return every metric of every model as a table.

        Returns
        -------
        dict of str to ndarray
            `model`, `metric`, `mean`, the `low` and the `high` end of the 95 % interval, `users`,
            `seconds`, and `is_result`, which is false where choices were made on test.
        """
        records = self._records()
        columns: dict[str, npt.NDArray[Any]] = {}
        for name, first in records[0].items():
            kind = object if isinstance(first, str) else type(first)
            columns[name] = np.array([record[name] for record in records], kind)
        return columns

    def _records(self) -> list[dict[str, Any]]:
        records = []
        for outcome in self.measured:
            facts = {
                "users": len(outcome.evaluation.users),
                "seconds": outcome.seconds,
                "is_result": self.protocol == "clean",
            }
            for metric, figures in outcome.evaluation.to_json()["metrics"].items():
                records.append({"model": outcome.name, "metric": metric, **figures, **facts})
        return records

    def to_markdown(self) -> str:
        """Write heading, budget, both tables, the choices, and all settings, in Markdown.

        Returns
        -------
        str
        """
        models, differences = self.tables()
        parts = [*self.heading.split("\n"), models.markdown()]
        if self.differences:
            parts.append(differences.markdown())
        parts += [f"- {line}" for lines in self.footnotes() for line in lines]
        settings = []
        for outcome in self.measured:
            chosen = {
                name: value
                for name, value in outcome.parameters.items()
                if not _HOW_COMPUTED & {*name.split(".")}
            }
            settings.append(f"- {outcome.name}: {_in_words(chosen) or 'nothing to set'}")
        return "\n\n".join([*parts, "Settings:\n\n" + "\n".join(settings)]) + "\n"

    def to_csv(self) -> str:
        """Write one line per model and metric: mean, interval, users, seconds, and tuning if any.

        Returns
        -------
        str
        """
        records = self._records()
        for record in records:
            record["seconds"] = f"{record['seconds']:.2f}"
            tuning = self.of(record["model"]).tuning
            if tuning is not None:
                record["finished"] = tuning.finished
                record["pruned"] = tuning.pruned
                record["tuning_seconds"] = f"{tuning.seconds:.2f}"
        names = dict.fromkeys([*records[0], "finished", "pruned", "tuning_seconds"])
        return csv_text(records, tuple(names))

    def differences_to_csv(self) -> str:
        """Write one line per difference: mean, interval, both tests and their corrected p values.

        Returns
        -------
        str
        """
        facts = {"metric": self.metric, "is_result": self.protocol == "clean"}
        records = [difference.record() | facts for difference in self.differences]
        return csv_text(records, (*_DIFFERENCE_KEYS, *facts))

    def to_json(self) -> dict[str, Any]:
        """Return all figures as JSON values; `is_result` is false where choices were made on test.

        Returns
        -------
        dict
        """
        budget: dict[str, Any] = {"text": self._budget_text()}
        if self.budget is not None:
            budget["trials"] = self.budget.trials
            budget["seconds"] = self.budget.seconds
            budget["space"] = self.space
        document: dict[str, Any] = {
            "protocol": self.protocol,
            "is_result": self.protocol == "clean",
            "refit": self.refit and self.protocol == "clean",
            "metric": self.metric,
            "control": self.control,
            "budget": budget,
            "models": [_measured_json(outcome) for outcome in self.measured],
            "differences": [difference.record() for difference in self.differences],
        }
        if self._too_few_users():
            document["no_differences"] = "".join(self._too_few_users())
        if self.failed:
            document["failed"] = dict(self.failed)
        if self.protocol == "paper":
            document["warning"] = SELECTED_ON_TEST
        clean: dict[str, Any] = finite(document)
        return clean


def _measured_json(outcome: ComparedModel) -> dict[str, Any]:
    written = {
        "name": outcome.name,
        **outcome.evaluation.to_json(),
        "parameters": outcome.parameters,
        "tried": [_candidate_json(candidate) for candidate in outcome.tried],
        "chosen": outcome.chosen,
        "recency": recency_json(outcome.recency),
        "seconds": outcome.seconds,
    }
    tuning = outcome.tuning
    if tuning is not None:
        written["tuning"] = {
            "settings": flat_settings(tuning.settings),
            "metric": tuning.metric,
            "validation": tuning.score,
            "finished": tuning.finished,
            "pruned": tuning.pruned,
            "failed": tuning.failed,
            "seconds": tuning.seconds,
        }
    return written


def _candidate_json(candidate: CandidateResult) -> dict[str, Any]:
    written = {
        "settings": candidate.settings,
        "metric": candidate.metric,
        "validation": candidate.score,
        "seconds": candidate.seconds,
    }
    if candidate.recency is not None:
        written["recency_choice"] = candidate.recency.as_json()
    return written


def paired_figures(paired: PairedDifference, t_p: float, wilcoxon_p: float) -> tuple[str, ...]:
    """Return the figures of a difference as a row of a table has them.

    These are the mean, the relative mean, the interval, t and the corrected p values.
    """
    return (
        f"{paired.mean:+.4f}",
        f"{paired.relative:+.1%}",
        f"{paired.low:+.4f} … {paired.high:+.4f}",
        f"{paired.t:.1f}",
        _p_text(t_p),
        _p_text(wilcoxon_p),
    )


def _p_text(p: float) -> str:
    """Return a p value in two digits; it is never 0: what has underflowed is called small."""
    return f"{p:.2g}" if p > 0 else "< 1e-300"


def _in_words(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def check_file(folder: Path | None) -> None:
    """Refuse, before any work is done, a folder to write into that is a file."""
    if folder is None:
        return
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise ConfigError(
                f"{path}: expected a folder to write into, found a file; choose another name"
            )


def write_tables(comparison: Comparison, folder: Path) -> None:
    """Write the comparison as text, Markdown, CSV and JSON, and differences.csv.

    Each file replaces an older one as a whole.
    """
    document = json.dumps(comparison.to_json(), ensure_ascii=False, indent=1, allow_nan=False)
    write_whole(folder / "comparison.txt", str(comparison) + "\n")
    write_whole(folder / "comparison.md", comparison.to_markdown())
    write_whole(folder / "comparison.csv", comparison.to_csv())
    write_whole(folder / "comparison.json", document + "\n")
    write_whole(folder / "differences.csv", comparison.differences_to_csv())


def settings_file(comparison: Comparison) -> str:
    """Return the chosen settings of all models of the catalogue as TOML that `--config` takes."""
    known = {
        outcome.name: outcome.settings
        for outcome in comparison.measured
        if outcome.name in MODELS and outcome.settings is not None
    }
    sections: dict[str, Any] = {}
    if known:
        sections["compare"] = {"models": list(known), "protocol": comparison.protocol}
        metric = comparison.measured[0].selected.metric
        is_named = metric.rpartition("@")[0] in METRICS  # a file cannot hold a function
        if metric != str(DEFAULT_METRIC) and is_named:
            sections["compare"]["metric"] = metric
    sections |= {name: table for name, table in known.items() if table}
    comments = comparison.heading.split("\n")
    if comparison.protocol == "paper":
        comments = [SELECTED_ON_TEST, *comments]
    return toml_text(comments, sections)
