"""Runs whose models are also measured with their first local models alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loca.evaluation.evaluate import Evaluation
from loca.experiments.runs import ComparedModel, Run, read_evaluation, write_evaluation
from loca.paper.first_models import coverage_of_first, first_models
from loca.tuning.model_selection import Outcome
from loca.tuning.warm_start import Tuning


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CountedModel(ComparedModel):
    """Hold what one model reached, and what its first local models alone reached.

    Attributes
    ----------
    by_count : mapping of int to Evaluation
        What so many of them reached on test.
    coverage_by_count : mapping of int to float
        The share of the training users whom so many of them cover; of an ensemble nothing.
    """

    by_count: Mapping[int, Evaluation] = field(default_factory=dict)
    coverage_by_count: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, kw_only=True)
class CountedRun(Run):
    """A run of a Loca or Ensemble that is also measured with its first models.

    Parameters
    ----------
    counts
        The numbers of models with which it is measured.
    """

    counts: tuple[int, ...]

    def fingerprint(self) -> dict[str, Any]:
        """Return all that the numbers of the run depend on."""
        return {**super().fingerprint(), "counts": ", ".join(map(str, self.counts))}

    def measured(self, outcome: Outcome, tuning: Tuning | None) -> CountedModel:
        """Return what is kept of an outcome, with the evaluations of the first models."""
        by_count: dict[int, Evaluation] = {}
        for count in self.counts:
            first = first_models(outcome.model, count)
            by_count[count] = outcome.evaluation
            if first is not outcome.model:
                by_count[count] = self.protocol.evaluate(first, outcome.test)
        return CountedModel(
            **vars(super().measured(outcome, tuning)),
            by_count=by_count,
            coverage_by_count=coverage_of_first(outcome.model, self.counts),
        )

    def write(self, measured: ComparedModel) -> dict[str, Any]:
        """Return what the model and its first models reached as a state."""
        state = super().write(measured)
        assert isinstance(measured, CountedModel)
        state["by_count"] = {
            str(count): write_evaluation(evaluation)
            for count, evaluation in measured.by_count.items()
        }
        state["coverage_by_count"] = {
            str(count): share for count, share in measured.coverage_by_count.items()
        }
        return state

    def read(self, state: Mapping[str, Any]) -> CountedModel:
        """Return what `write` made a state of."""
        return CountedModel(
            **vars(super().read(state)),
            by_count={
                int(count): read_evaluation(written, state)
                for count, written in state["by_count"].items()
            },
            coverage_by_count={
                int(count): share for count, share in state["coverage_by_count"].items()
            },
        )
