"""Models beside each other on the same test users: what each reaches, and paired differences with intervals."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from loca.data.splits import Split
from loca.data.statistics import warn_of_file_order
from loca.errors import ConfigError, LocaError, did_you_mean
from loca.evaluation.metrics import check_lengths
from loca.evaluation.significance import holm, paired_difference
from loca.experiments.parallel import RunPlan, compute_here, execute_parallel
from loca.experiments.report import Comparison as Comparison
from loca.experiments.report import Difference as Difference
from loca.experiments.run_store import RunStore
from loca.experiments.runs import ComparedModel as ComparedModel
from loca.experiments.runs import Run, digest_of_split
from loca.local.auto import Auto
from loca.local.blend import Blend
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.recommender import Recommender, clone
from loca.registry import SpaceName
from loca.search_space import SpaceConstraints
from loca.tuning.model_selection import EvaluationProtocol, ProtocolName, RecencyRule, order_matters
from loca.tuning.warm_start import CandidateLists, plan_tuning

if TYPE_CHECKING:
    from loca.search_space import Budget

Candidates = Recommender | Sequence[Recommender]


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
    budget: Budget | None = None,
    space: SpaceName = "wide",
    narrowed: Mapping[str, SpaceConstraints] | None = None,
    processes: int = 1,
    keep_in: str | Path | None = None,
    resume: bool = True,
) -> Comparison:
    """Chooses, fits and measures every model by the protocol, then compares them user by user.

    Differences (NDCG@100 where it is measured, else NDCG at the longest list): each Loca against its base model and
    against the ensemble of that base, and every model against `control`, by default the single model that was best on
    validation. With a single test user there is nothing to pair, and no difference comes back.
    `keep` names the fitted models to hold on to; the others are let go once measured.
    Histories are weighed as the split says; with `recency="own"` as each model was trained for, with `"auto"` as each
    chooses for itself on validation.

    With a `budget` every model is tuned under it first, in the `space` of its name, where choices are made; what
    `narrowed` says of its parameters holds. A local model and an ensemble begin with what their base's study chose.
    With `processes` above 1 as many models are computed side by side, and one that fails does not stop the others: it
    is named in `failed`. The folder `keep_in` keeps each model's outcome as soon as it is there, and the trials of its
    tuning; what is found there is not computed again (`resume`), or dropped, and what was computed for other data or
    settings is refused.
    """
    terms = EvaluationProtocol(protocol, refit, recency, check_lengths(at), seed, budget, space)
    candidates = _named(models)
    for name in (*keep, *([] if control is None else [control])):
        if name not in candidates:
            raise ConfigError(f"no model {name!r} to compare with{did_you_mean(name, candidates)}")
    if not (isinstance(processes, int) and processes >= 1):
        raise ConfigError(f"processes: expected a whole number ≥ 1, found {processes!r}")
    if keep and processes > 1:
        raise ConfigError("keep: fitted models stay in the process that fits them; expected processes=1")
    plan = plan_cells(candidates, split, terms, narrowed or {})
    store = None if keep_in is None else RunStore(Path(keep_in))
    kept: dict[str, Recommender] = {}
    failed: dict[str, str] = {}
    asked = split.train.recency if recency == "given" else recency
    in_use = order_matters((one for some in candidates.values() for one in some), asked)
    kept_in = nullcontext() if store is None else store.opened(plan.names, resume=resume)
    with kept_in:
        if in_use:
            warn_of_file_order(split.train)
        done = plan.find_done(store, keep)
        if store is not None and len(done) < len(candidates):
            store.begin()
        if processes > 1:
            failed = execute_parallel(plan, done, split, store, processes)
        else:
            kept = compute_here(plan, done, split, store, keep)
        if not done:
            raise LocaError("; ".join(f"{name}: {why}" for name, why in failed.items()))
        if store is not None and not failed:
            store.finish()
    measured = [done[name] for name in candidates if name in done]
    return _compared({name: candidates[name] for name in done}, measured, terms, control, kept, failed)


def _compared(
    candidates: Mapping[str, Sequence[Recommender]],
    measured: Sequence[ComparedModel],
    terms: EvaluationProtocol,
    control: str | None,
    kept: Mapping[str, Recommender],
    failed: Mapping[str, str],
) -> Comparison:
    metric = f"ndcg@{100 if 100 in terms.at else terms.at[-1]}"
    control = control if control in candidates else _best_single(candidates, measured)
    pairs = _pairs(candidates, control) if len(measured[0].evaluation.users) > 1 else []
    return Comparison(
        protocol=terms.protocol,
        refit=terms.refit,
        metric=metric,
        control=control,
        measured=tuple(measured),
        differences=_differences(pairs, measured, metric, terms.seed),
        models=kept,
        budget=terms.budget,
        space=terms.space,
        failed=failed,
    )


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
    """The best model that is not made of several, judged where choices are made, never by the result."""
    singles = [one for one in measured if not isinstance(candidates[one.name][0], Loca | Ensemble | Blend | Auto)]
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


def plan_cells(
    candidates: CandidateLists, split: Split, terms: EvaluationProtocol, said: Mapping[str, SpaceConstraints]
) -> RunPlan:
    """The cells of the named candidates; under a budget those that begin with what another's study chose come later."""
    data = digest_of_split(split)
    if terms.budget is None:
        return RunPlan(tuple(candidates), {}, lambda name, done: Run(name, tuple(candidates[name]), terms, data))
    plan = plan_tuning(candidates, terms.space, said)

    def make(name: str, done: Mapping[str, ComparedModel]) -> Run:
        tuned = {other: one.tuning.best for other, one in done.items() if one.tuning is not None}
        return Run(name, (_within(plan.template(name, tuned), terms),), terms, data, plan.spaces[name])

    return RunPlan(tuple(candidates), plan.parents(), make)


def _within(model: Recommender, terms: EvaluationProtocol) -> Recommender:
    """The model, and Auto with the budget that all others have."""
    budget = terms.budget
    if budget is None or not isinstance(model, Auto):
        return model
    seconds = model.seconds if budget.seconds is None else budget.seconds
    return clone(model, seconds=seconds, trials=model.trials if budget.trials is None else budget.trials)
