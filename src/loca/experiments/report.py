"""A comparison and how it is written: plain tables, Markdown, CSV, JSON, settings, and the folder of all of them."""

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
from loca.tuning.model_selection import SELECTED_ON_TEST, ProtocolName
from loca.tuning.recency_selection import recency_json

# What says how a model is computed, and not what it is.
_HOW_COMPUTED = (
    "model",
    "seed",
    "engine",
    "precision",
    "answer_precision",
    "local_bytes",
)
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
        The p values of the two tests, each corrected by Holm over all differences of the comparison.
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
    """Hold what every model reached, in the order requested, and their differences; prints as two tables.

    `compare` makes it.

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
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
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
        found = {one.name: one for one in self.measured}
        if name not in found:
            raise ConfigError(f"no model {name!r} in this comparison{did_you_mean(name, found)}")
        return found[name]

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
        found = {(one.first, one.second): one for one in self.differences}
        if (first, second) not in found:
            compared = ", ".join(" − ".join(pair) for pair in found) or "none"
            raise ConfigError(
                f"{first!r} was not compared with {second!r}; compared were {compared}"
            )
        return found[first, second]

    @property
    def heading(self) -> str:
        """How the figures came about, and what every model was chosen with, in two lines."""
        first = self.measured[0].evaluation
        who = f"{len(first.users):,} test users, {first.item_count:,} items"
        fate = "refitted on train + validation" if self.refit else "not refitted"
        how = f"protocol clean: chosen on validation, {fate}, tested once; {who}"
        if self.protocol == "paper":
            how = f"*** {SELECTED_ON_TEST} *** protocol paper: every choice was made on the test items; {who}"
        return f"{how}\nbudget: {self._budget_text()}"

    def _budget_text(self) -> str:
        """What tuning had, or how many settings each model was chosen from, so that none is given more unseen."""
        if self.budget is not None:
            inherits = any(one.parameters["model"] in ("Loca", "Ensemble") for one in self.measured)
            after = "; local models and ensembles begin with their base's choice, ensembles with their size too"
            after += (
                ", dealt controls have all settings of their local model" if self._dealt() else ""
            )
            return f"{self.budget}, tuned in the space {self.space}{after if inherits else ''}"
        counts = {one.name: len(one.tried) for one in self.measured if not one.repeats}
        if len(set(counts.values())) == 1:
            count = next(iter(counts.values()))
            return f"{count} setting{'s' if count > 1 else ''} per model"
        return "settings to choose from: " + ", ".join(
            f"{name} {count}" for name, count in counts.items()
        )

    def tables(self) -> tuple[TextTable, TextTable]:
        """Lay out one row per model, and one per difference.

        A model has Recall and NDCG at each length, the compared metric with its interval, the settings that it was
        chosen from and its seconds; where models were tuned, trials given up early and the seconds of tuning stand
        beside. A difference has its size, its interval, t, the p values of both tests, and a verdict.

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
        costs = ("trials",) if self.budget is None else ("trials (pruned)", "tuning s")
        models = []
        for one in self.measured:
            means, (low, high) = one.evaluation.means(), one.evaluation.intervals()[self.metric]
            trials: tuple[str, ...] = (
                (f"{len(one.tried)}",) if self.budget is None else ("its own", "")
            )
            if one.repeats:
                trials = ("–",) * len(costs)
            if self.budget is not None and one.tuning is not None:
                failures = f", {one.tuning.failed} failed" if one.tuning.failed else ""
                trials = (
                    f"{one.tuning.finished} ({one.tuning.pruned}{failures})",
                    f"{one.tuning.seconds:.1f}",
                )
            figures = (f"{means[name]:.4f}" for name in names)
            models.append(
                (one.name, *figures, f"{low:.4f} – {high:.4f}", *trials, f"{one.seconds:.1f}")
            )
        differences, metric = [], Metric.label_of(self.metric)
        for other in self.differences:
            corrected = other.paired, other.t_p_holm, other.wilcoxon_p_holm
            name = f"{other.first} − {other.second}"
            differences.append((name, *paired_figures(*corrected), verdict_on(*corrected)))
        header = "model", *titles, f"95 % of {metric}", *costs, "seconds"
        figures_of = "mean", "relative", "95 % interval", "t", "p t (Holm)", "p Wilcoxon (Holm)", ""
        compared = TextTable((f"difference in {metric}", *figures_of), tuple(differences))
        return TextTable(header, tuple(models)), compared

    def footnotes(self) -> list[list[str]]:
        """Return lines below the tables, in groups: what differences mean, or why there are none; choices; failures."""
        meanings, choices = [*self._too_few_users(), *self._meanings()], []
        for one in self.measured:
            if one.tuning is not None:
                settings = _in_words(flat_settings(one.tuning.settings)) or "nothing new"
                choices.append(f"{one.name} was tuned to {settings}: {one.tuning.score:.4f}")
            if len(one.tried) > 1:
                others = "; ".join(
                    str(other) for place, other in enumerate(one.tried) if place != one.chosen
                )
                choices.append(f"{one.name} chose {one.selected} (against {others})")
        for one in self.measured:
            choices += (
                []
                if one.selected.recency is None
                else [f"{one.name} chose recency: {one.selected.recency}"]
            )
        failures = [f"{name} failed: {why}" for name, why in self.failed.items()]
        notes = shown_remarks(self.remarks)
        return [lines for lines in (meanings, choices, failures, notes) if lines]

    def _dealt(self) -> list[str]:
        """The names of the dealt controls."""
        return [
            one.name
            for one in self.measured
            if one.parameters.get("communities") == "dealt" and not one.repeats
        ]

    def _meanings(self) -> list[str]:
        """What the rows of controls say."""
        lines = []
        if self._dealt():
            lines.append(
                f"{', '.join(self._dealt())}: memberships dealt to other users at random (beside a model that chooses "
                "its communities itself: those of a mixture with its defaults). What a local model gains over the "
                "dealt form is locality; what the dealt form gains over an ensemble of as many is diversity."
            )
        for one in (one for one in self.measured if one.repeats):
            lines.append(
                f"{one.name}: {one.repeats} as chosen, trained as long as the longest model over the same network"
            )
        return lines

    def _too_few_users(self) -> list[str]:
        users = len(self.measured[0].evaluation.users)
        reason = (
            f"no differences between the models: they need at least 2 test users, found {users}"
        )
        return [reason] if users < 2 <= len(self.measured) else []

    def shown(self) -> list[str | TextTable]:
        """Return what a person reads: the heading, both tables and the remarks.

        Returns
        -------
        list of str or TextTable
        """
        models, differences = self.tables()
        lines: list[str | TextTable] = [
            self.heading,
            "",
            models,
            *(("", differences) if self.differences else ()),
        ]
        return [*lines, *(line for group in self.footnotes() for line in ("", *group))]

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return every metric of every model as a table.

        Returns
        -------
        dict of str to ndarray
            `model`, `metric`, `mean`, the `low` and the `high` end of the 95 % interval, `users`, `seconds`, and
            `is_result`, which is false where choices were made on test.
        """
        records = self._records()
        kinds = {
            name: object if isinstance(one, str) else type(one) for name, one in records[0].items()
        }
        return {
            name: np.array([one[name] for one in records], kind) for name, kind in kinds.items()
        }

    def _records(self) -> list[dict[str, Any]]:
        records = []
        for one in self.measured:
            own = {
                "users": len(one.evaluation.users),
                "seconds": one.seconds,
                "is_result": self.protocol == "clean",
            }
            records += [
                {"model": one.name, "metric": metric, **figures, **own}
                for metric, figures in one.evaluation.to_json()["metrics"].items()
            ]
        return records

    def to_markdown(self) -> str:
        """Write heading, budget, both tables, the choices, and the settings that every model ended with, in Markdown.

        Returns
        -------
        str
        """
        models, differences = self.tables()
        parts = [*self.heading.split("\n"), models.markdown()]
        parts += [differences.markdown()] if self.differences else []
        parts += [f"- {line}" for lines in self.footnotes() for line in lines]
        settings = []
        for one in self.measured:
            own = {
                name: value
                for name, value in one.parameters.items()
                if name.split(".")[-1] not in _HOW_COMPUTED
            }
            settings.append(f"- {one.name}: {_in_words(own) or 'nothing to set'}")
        return "\n\n".join([*parts, "Settings:\n\n" + "\n".join(settings)]) + "\n"

    def to_csv(self) -> str:
        """Write one line per model and metric: mean, interval, users, seconds, and what tuning took if any.

        Returns
        -------
        str
        """
        records, costs = self._records(), ("finished", "pruned", "tuning_seconds")
        for record in records:
            record["seconds"] = f"{record['seconds']:.2f}"
            if (tuning := self.of(record["model"]).tuning) is not None:
                record |= zip(
                    costs, (tuning.finished, tuning.pruned, f"{tuning.seconds:.2f}"), strict=True
                )
        return csv_text(records, (*records[0], *costs))

    def differences_to_csv(self) -> str:
        """Write one line per difference: mean, interval, both tests and their corrected p values.

        Returns
        -------
        str
        """
        own = {"metric": self.metric, "is_result": self.protocol == "clean"}
        return csv_text([one.record() | own for one in self.differences], (*_DIFFERENCE_KEYS, *own))

    def to_json(self) -> dict[str, Any]:
        """Return all figures as JSON values; `is_result` is false where choices were made on test.

        Returns
        -------
        dict
        """
        budget: dict[str, Any] = {"text": self._budget_text()}
        if self.budget is not None:
            budget |= {
                "trials": self.budget.trials,
                "seconds": self.budget.seconds,
                "space": self.space,
            }
        written = {
            "protocol": self.protocol,
            "is_result": self.protocol == "clean",
            "refit": self.refit and self.protocol == "clean",
            "metric": self.metric,
            "control": self.control,
            "budget": budget,
            "models": [_measured_json(one) for one in self.measured],
            "differences": [one.record() for one in self.differences],
        }
        reasons = {
            "no_differences": "".join(self._too_few_users()),
            "failed": dict(self.failed),
            "warning": SELECTED_ON_TEST if self.protocol == "paper" else "",
        }
        clean: dict[str, Any] = finite(
            written | {name: reason for name, reason in reasons.items() if reason}
        )
        return clean


def _measured_json(one: ComparedModel) -> dict[str, Any]:
    evaluation, tuning = one.evaluation, one.tuning
    tried = []
    for other in one.tried:
        choice = {} if other.recency is None else {"recency_choice": other.recency.as_json()}
        tried.append(
            {
                "settings": other.settings,
                "metric": other.metric,
                "validation": other.score,
                "seconds": other.seconds,
                **choice,
            }
        )
    written = {
        "name": one.name,
        **evaluation.to_json(),
        "parameters": one.parameters,
        "tried": tried,
        "chosen": one.chosen,
        "recency": recency_json(one.recency),
        "seconds": one.seconds,
    }
    if tuning is not None:
        written["tuning"] = {
            "settings": flat_settings(tuning.settings),
            "metric": tuning.metric,
            "validation": tuning.score,
            **{name: vars(tuning)[name] for name in ("finished", "pruned", "failed", "seconds")},
        }
    return written


def paired_figures(paired: PairedDifference, t_p: float, wilcoxon_p: float) -> tuple[str, ...]:
    """Mean, relative mean, interval, t and the corrected p values of a difference, as a row of a table has them."""
    # A p value is never 0: what has underflowed is called small.
    t_text, wilcoxon_text = (f"{p:.2g}" if p > 0 else "< 1e-300" for p in (t_p, wilcoxon_p))
    interval = f"{paired.low:+.4f} … {paired.high:+.4f}"
    return (
        f"{paired.mean:+.4f}",
        f"{paired.relative:+.1%}",
        interval,
        f"{paired.t:.1f}",
        t_text,
        wilcoxon_text,
    )


def _in_words(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def check_file(folder: Path | None) -> None:
    """Refuse, before any work is done, a folder to write into that is a file."""
    for one in () if folder is None else (folder, *folder.parents):
        if one.exists() and not one.is_dir():
            raise ConfigError(
                f"{one}: expected a folder to write into, found a file; choose another name"
            )


def write_tables(comparison: Comparison, folder: Path) -> None:
    """Write comparison.txt, .md, .csv and .json, and differences.csv; each replaces an older one as a whole."""
    document = json.dumps(comparison.to_json(), ensure_ascii=False, indent=1, allow_nan=False)
    write_whole(folder / "comparison.txt", str(comparison) + "\n")
    write_whole(folder / "comparison.md", comparison.to_markdown())
    write_whole(folder / "comparison.csv", comparison.to_csv())
    write_whole(folder / "comparison.json", document + "\n")
    write_whole(folder / "differences.csv", comparison.differences_to_csv())


def settings_file(comparison: Comparison) -> str:
    """The chosen settings of all models of the catalogue as TOML that commands take with --config."""
    known = {
        one.name: one.settings
        for one in comparison.measured
        if one.name in MODELS and one.settings is not None
    }
    sections = {name: table for name, table in known.items() if table}
    named: dict[str, Any] = {}
    if known:
        named["compare"] = {"models": list(known), "protocol": comparison.protocol}
        chosen_by = comparison.measured[0].selected.metric
        is_named = chosen_by.rpartition("@")[0] in METRICS  # a file cannot hold a function
        if chosen_by != str(DEFAULT_METRIC) and is_named:
            named["compare"]["metric"] = chosen_by
    warning = [SELECTED_ON_TEST] if comparison.protocol == "paper" else []
    return toml_text([*warning, *comparison.heading.split("\n")], {**named, **sections})
