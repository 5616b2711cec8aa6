"""Models beside each other on the same test users: what each reaches, and paired differences with intervals."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loca.data.held_out import Split
from loca.data.recency import Recency
from loca.errors import ConfigError, did_you_mean
from loca.experiments.candidates import describe_model
from loca.experiments.choices import RecencyRule, Tried
from loca.experiments.grid import Grid
from loca.experiments.protocols import Outcome, ProtocolName, check_protocol, run_clean, run_paper
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.recommender import Recommender
from loca.progress import say
from loca.ranking.evaluation import Evaluation
from loca.ranking.metrics import check_lengths
from loca.ranking.significance import PairedDifference, holm, paired_difference

Candidates = Recommender | Sequence[Recommender]


@dataclass(frozen=True, eq=False)
class ComparedModel:
    """One model of a comparison: what it reached on test, the parameters it ended with, and what was tried.

    `recency` is what its test histories were weighed by.
    """

    name: str
    evaluation: Evaluation
    parameters: dict[str, Any]
    tried: tuple[Tried, ...]
    chosen: int
    seconds: float
    recency: Recency | None = None


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

    `models` holds the fitted models that were to be kept.
    """

    protocol: ProtocolName
    refit: bool
    metric: str
    control: str | None
    measured: tuple[ComparedModel, ...]
    differences: tuple[Difference, ...]
    models: Mapping[str, Recommender] = field(default_factory=dict)

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

    def grids(self) -> tuple[Grid, Grid]:
        """The two tables, of models and of differences."""
        from loca.experiments.report import difference_grid, model_grid

        return model_grid(self), difference_grid(self)

    def __str__(self) -> str:
        from loca.experiments.report import as_text

        return as_text(self)

    def to_markdown(self) -> str:
        """Both tables in Markdown."""
        from loca.experiments.report import as_markdown

        return as_markdown(self)

    def to_csv(self) -> str:
        """One line per model and metric: mean, interval, users and seconds."""
        from loca.experiments.report import as_csv

        return as_csv(self)

    def differences_to_csv(self) -> str:
        """One line per difference: mean, interval, both tests and their corrected p values."""
        from loca.experiments.report import differences_as_csv

        return differences_as_csv(self)

    def to_json(self) -> dict[str, Any]:
        """Everything that was measured, as JSON values without NaN or infinity."""
        from loca.experiments.report import as_json

        return as_json(self)


def compare(
    models: Mapping[str, Candidates] | Sequence[Recommender],
    split: Split,
    *,
    protocol: ProtocolName = "clean",
    refit: bool = True,
    recency: RecencyRule = "given",
    at: Iterable[int] = (50, 100),
    control: str | None = None,
    keep: Collection[str] = (),
    seed: int = 0,
) -> Comparison:
    """Chooses, fits and measures every model by the protocol, then compares them user by user.

    Differences (NDCG@100 where it is measured, else NDCG at the longest list): each Loca against its base model and
    against the ensemble of that base, and every model against `control`, by default the single model that was best on
    validation. With a single test user there is nothing to pair, and no difference comes back.
    `keep` names the fitted models to hold on to; the others are let go once measured.
    Histories are weighed as the split says; with `recency="own"` as each model was trained for, with `"auto"` as each
    chooses for itself on validation.
    """
    check_protocol(protocol)
    if protocol == "paper" and recency == "auto":
        raise ConfigError("recency: auto is chosen on validation, which the protocol paper has not; use clean")
    lengths = check_lengths(at)
    candidates = _named(models)
    for name in (*keep, *([] if control is None else [control])):
        if name not in candidates:
            raise ConfigError(f"no model {name!r} to compare with{did_you_mean(name, candidates)}")
    measured, kept = [], {}
    for name, offered in candidates.items():
        say(f"{name}: {len(offered)} candidate{'s' if len(offered) > 1 else ''}")
        outcome = _run(offered, split, protocol, refit, recency, lengths, seed)
        measured.append(_compared(name, outcome))
        if name in keep:
            kept[name] = outcome.model
    metric = f"ndcg@{100 if 100 in lengths else lengths[-1]}"
    control = control or _best_single(candidates, measured)
    pairs = _pairs(candidates, control) if len(measured[0].evaluation.users) > 1 else []
    differences = _differences(pairs, measured, metric, seed)
    return Comparison(protocol, refit, metric, control, tuple(measured), differences, kept)


def _compared(name: str, outcome: Outcome) -> ComparedModel:
    return ComparedModel(
        name=name,
        evaluation=outcome.evaluation,
        parameters=describe_model(outcome.model),
        tried=outcome.tried,
        chosen=outcome.chosen,
        seconds=outcome.seconds,
        recency=outcome.recency,
    )


def _run(
    offered: Sequence[Recommender],
    split: Split,
    protocol: ProtocolName,
    refit: bool,
    recency: RecencyRule,
    lengths: tuple[int, ...],
    seed: int,
) -> Outcome:
    if protocol == "paper":
        return run_paper(offered, split, recency=recency, at=lengths, seed=seed)
    return run_clean(offered, split, refit=refit, recency=recency, at=lengths, seed=seed)


def _named(models: Mapping[str, Candidates] | Sequence[Recommender]) -> dict[str, list[Recommender]]:
    if isinstance(models, Mapping):
        return {name: [one] if isinstance(one, Recommender) else list(one) for name, one in models.items()}
    named: dict[str, list[Recommender]] = {}
    for model in models:
        name = _name_of(model)
        same = sum(one == name or one.startswith(f"{name} ") for one in named)
        named[f"{name} {same + 1}" if same else name] = [model]
    return named


def _name_of(model: Recommender) -> str:
    kind = type(model).__name__
    return f"{kind}({type(model.base).__name__})" if isinstance(model, Loca | Ensemble) else kind


def _best_single(candidates: Mapping[str, Sequence[Recommender]], measured: Sequence[ComparedModel]) -> str | None:
    """The best model that is neither local nor an ensemble, judged where choices are made, never by the result."""
    singles = [one for one in measured if not isinstance(candidates[one.name][0], Loca | Ensemble)]
    return max(singles, key=lambda one: one.tried[one.chosen].ndcg).name if singles else None


def _pairs(candidates: Mapping[str, Sequence[Recommender]], control: str | None) -> list[tuple[str, str]]:
    pairs = []
    for name, (model, *_) in candidates.items():
        if isinstance(model, Loca):
            base = type(model.base)
            pairs += [(name, other) for other, (one, *_) in candidates.items() if isinstance(one, base)]
            pairs += [(name, other) for other, (one, *_) in candidates.items() if _is_ensemble_of(one, base)]
    if control is not None:
        pairs += [(name, control) for name in candidates if name != control]
    return list(dict.fromkeys(pairs))


def _is_ensemble_of(model: Recommender, base: type) -> bool:
    return isinstance(model, Ensemble) and isinstance(model.base, base)


def _differences(
    pairs: Sequence[tuple[str, str]], measured: Sequence[ComparedModel], metric: str, seed: int
) -> tuple[Difference, ...]:
    values = {one.name: one.evaluation.values[metric] for one in measured}
    paired = [paired_difference(values[first], values[second], seed=seed) for first, second in pairs]
    t_p, wilcoxon_p = holm(one.t_p for one in paired), holm(one.wilcoxon_p for one in paired)
    return tuple(
        Difference(*pair, one, float(t_p[place]), float(wilcoxon_p[place]))
        for place, (pair, one) in enumerate(zip(pairs, paired, strict=True))
    )
