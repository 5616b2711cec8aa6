"""Models beside each other on the same test users: what each reaches, and paired differences."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from loca.communities.finder import CommunityFinder
from loca.config.model_factory import build_models, expand_names
from loca.data.interactions import Interactions
from loca.data.later import is_table
from loca.data.splits import Split, leave_last_out
from loca.data.statistics import warn_of_file_order
from loca.errors import ConfigError, DataError, LocaError, check_arguments, did_you_mean
from loca.evaluation.metrics import DEFAULT_METRIC, Metric, Values, check_lengths
from loca.evaluation.significance import holm, paired_difference
from loca.experiments.parallel import RunPlan, execute_here, execute_parallel
from loca.experiments.report import Comparison as Comparison
from loca.experiments.report import Difference as Difference
from loca.experiments.runs import ComparedModel as ComparedModel
from loca.experiments.runs import Run, RunStore, is_control
from loca.local.many_models import ManyModels
from loca.models.devices import check_device
from loca.models.recommender import Recommender, clone, get_params
from loca.persistence.manifest import fingerprint
from loca.progress import say
from loca.registry import RECORDS, SpaceName
from loca.remarks import joined_remarks, keeps_remarks
from loca.search_space import Budget, SpaceConstraints
from loca.text_table import cut
from loca.tuning.model_selection import (
    EvaluationProtocol,
    ProtocolName,
    RecencyRule,
    as_candidates,
    order_matters,
)
from loca.tuning.warm_start import CandidateLists, plan_tuning
from loca.tuning.workers import Worker

Candidates = Recommender | Sequence[Recommender]
AnyModel = TypeVar("AnyModel", bound=Recommender)
_LONGEST_NAME = 60


@check_arguments
@keeps_remarks
def compare(
    models: Mapping[str, Candidates | str] | Sequence[Recommender | str],
    split: Any,
    *,
    protocol: ProtocolName = "clean",
    refit: bool = True,
    recency: RecencyRule = "given",
    metric: Metric | str | None = None,
    at: Iterable[int] = (50, 100),
    control: str | None = None,
    keep: Collection[str] = (),
    seed: int = 0,
    budget: Budget | str | float | None = None,
    space: SpaceName = "wide",
    narrowed: Mapping[str, SpaceConstraints] | None = None,
    processes: int = 1,
    start_worker: Callable[..., Any] | None = None,
    keep_in: str | Path | None = None,
    resume: bool = True,
    same_epochs: bool = False,
    device: str = "auto",
) -> Comparison:
    """Select, fit and evaluate several models by one protocol, and compare them user by user.

    Differences are in the metric, by default NDCG@100 where it is computed, else NDCG at the
    longest list: each Loca against its base model, the ensemble of that base and a control with
    communities of other users, that control against the ensemble, and every model against
    `control`. With a single test user there is nothing to pair, and no difference comes back.

    Parameters
    ----------
    models : mapping of str to Recommender or sequence of Recommender, or sequence of Recommender or str
        Unfitted models by name, each with one candidate or several to select from; or names such as
        `"item-knn"`. Models without names are called as Python writes them.
    split : Split, Interactions, data frame or path
        With a validation part where something is selected. Of anything but a Split the last 5 items
        of each user are test, and the 2 before them validation.
    protocol : {"clean", "paper"}, default "clean"
        `"clean"` selects on validation; `"paper"` selects on test, as the paper's program does, and
        is not a result.
    refit : bool, default True
        Fit the selected candidate once more, on train and validation.
    recency : {"given", "own", "auto"}, default "given"
        How histories are weighted by age: as the split says, with `"own"` as each model was trained
        for, or with `"auto"` as each model selects on validation.
    metric : Metric, str or None, default None
        What everything is chosen by, and what differences are in. None chooses by NDCG@100.
    at : iterable of int, default (50, 100)
        The list lengths N; that of a given metric is one of them.
    control : str or None, default None
        The model that all others are compared with; None takes the single model that was best on
        validation.
    keep : collection of str, default ()
        The names of the fitted models to return; the others are let go once evaluated.
    seed : int, default 0
        Seed of bootstrap intervals and of tuning.
    budget : Budget, str, float or None, default None
        Tune every model under this budget first; a local model and an ensemble begin with what
        their base's study chose.
    space : {"wide", "paper"}, default "wide"
        Which search space of each model is tuned in.
    narrowed : mapping of str to SpaceConstraints or None, default None
        What holds of a model's parameters while it is tuned, by its name.
    processes : int, default 1
        How many models are computed at a time; where one fails it is named in `failed`, and the
        others go on.
    start_worker : callable or None, default None
        What begins each of them: None a process of this machine, `loca.cluster.tasks.workers_on` a
        task of a cluster.
    keep_in : str, Path or None, default None
        A folder for each model's outcome as soon as it is there, and for the trials of its tuning.
    resume : bool, default True
        Do not compute again what is found there; otherwise it is dropped. What was computed for
        other data or settings is refused.
    same_epochs : bool, default False
        Of local models, ensembles and controls over one network, fit those that chose fewer epochs
        than the longest of them once more, with its number and their own other choices. Each is a
        row of its own, and local models are compared at equal numbers too, so that none is ahead by
        longer training alone.
    device : str, default "auto"
        Where it computes: `"cpu"`, `"cuda"`, `"cuda:1"`, or `"auto"`, a GPU where there is one.

    Returns
    -------
    Comparison
        What every model reached, and the differences; prints as two tables.

    Examples
    --------
    >>> data = loca.planted_communities(
    ...     users=60, items=30, groups=5, history=12, shortest_history=10
    ... ).interactions
    >>> split = loca.leave_last_out(data, test=2, validation=2)
    >>> models = {"popular": loca.Popularity(), "ease": [loca.EASE(l2=10.0), loca.EASE(l2=100.0)]}
    >>> found = loca.compare(models, split, at=[10], control="popular")
    >>> found.metric
    'ndcg@10'
    >>> len(found.of("ease").tried)
    2
    >>> found.difference("ease", "popular").paired.user_count
    60
    """
    split = _as_split(split, protocol)
    chosen_by = DEFAULT_METRIC if metric is None else Metric.of(metric)
    lengths = check_lengths(at)
    if metric is not None:
        lengths = check_lengths([*lengths, chosen_by.k])
    check_device(device)
    how = EvaluationProtocol(
        protocol=protocol,
        refit=refit,
        recency=recency,
        at=lengths,
        seed=seed,
        budget=Budget.of(budget),
        space=space,
        metric=chosen_by,
        device=device,
    )
    candidates = _named_candidates(models, seed)
    if protocol == "paper":  # without validation to choose communities on
        candidates = {
            name: [with_kernels(model) for model in choices] for name, choices in candidates.items()
        }
    for name in (*keep, *([] if control is None else [control])):
        if name not in candidates:
            raise ConfigError(f"no model {name!r} to compare with{did_you_mean(name, candidates)}")
    _check_execution(processes, start_worker, keep, same_epochs)
    plan = plan_runs(candidates, split, how, narrowed or {})
    store = None if keep_in is None else RunStore(Path(keep_in))
    execution = _Execution(split, store, processes, start_worker)
    with nullcontext() if store is None else store.opened(plan.names, resume=resume):
        weighted_by = split.train.recency if recency == "given" else recency
        if order_matters(chain(*candidates.values()), weighted_by):
            warn_of_file_order(split.train)
        measured = execution.execute(plan, keep)
        if not measured:
            raise LocaError("; ".join(f"{name}: {why}" for name, why in execution.failed.items()))
        compared = {name: candidates[name][0] for name in measured}
        longer: dict[str, ComparedModel] = {}
        if same_epochs:
            longer = execution.execute(plan_longer(compared, measured, how, fingerprint(split)))
        if store is not None and not execution.failed:
            store.finish()
    if control not in measured:
        control = _best_single(compared, measured)
    figure = str(chosen_by)
    if metric is None and chosen_by.k not in how.at:
        figure = f"{chosen_by.name}@{how.at[-1]}"
    outcomes = {**measured, **longer}
    values = {name: outcome.evaluation.values[figure] for name, outcome in outcomes.items()}
    longer_rows = {outcome.repeats: name for name, outcome in longer.items()}
    pairs = pairs_to_compare(compared, control, longer_rows)
    return Comparison(
        protocol=protocol,
        refit=refit,
        metric=figure,
        control=control,
        measured=tuple(outcomes.values()),
        differences=_differences(pairs, values, seed),
        models=execution.fitted,
        budget=how.budget,
        space=space,
        failed=execution.failed,
        remarks=joined_remarks(split.remarks, *(outcome.remarks for outcome in outcomes.values())),
    )


def _check_execution(
    processes: Any, start_worker: Any, keep: Collection[str], same_epochs: Any
) -> None:
    if not (isinstance(processes, int) and processes >= 1):
        raise ConfigError(f"processes: expected a whole number ≥ 1, found {processes!r}")
    if not isinstance(same_epochs, bool):
        raise ConfigError(f"same_epochs: expected True or False, found {same_epochs!r}")
    if keep and (processes > 1 or start_worker is not None):
        raise ConfigError(
            "keep: fitted models stay in the process that fits them; expected processes=1"
        )


@dataclass
class _Execution:
    """Where runs are executed, the fitted models that were to be kept, and why others failed."""

    split: Split
    store: RunStore | None
    processes: int
    start_worker: Callable[..., Any] | None
    fitted: dict[str, Recommender] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def execute(self, plan: RunPlan, keep: Collection[str] = ()) -> dict[str, ComparedModel]:
        """Return what all runs of a plan reached, computed now or found in the store."""
        done = plan.find_done(self.store, keep)
        if self.store is not None and len(done) < len(plan.names):
            self.store.begin()
        if self.processes > 1 or self.start_worker is not None:
            start = self.start_worker or Worker.start
            self.failed |= execute_parallel(
                plan, done, self.split, self.store, self.processes, start
            )
        else:
            self.fitted |= execute_here(plan, done, self.split, self.store, keep)
        return {name: done[name] for name in plan.names if name in done}


def _best_single(
    models: Mapping[str, Recommender], measured: Mapping[str, ComparedModel]
) -> str | None:
    """Return the best model that is not made of several, judged where choices are made."""
    singles = [name for name, model in models.items() if model.role == "single"]
    return max(singles, key=lambda name: measured[name].selected.score, default=None)


def _as_split(data: Any, protocol: ProtocolName) -> Split:
    """Return a split as it is, and hold out each user's last items of anything else."""
    if isinstance(data, Split):
        return data
    if isinstance(data, Interactions | str | Path) or is_table(data):
        return leave_last_out(data, test=5, validation=0 if protocol == "paper" else 2)
    expected = "a Split, as leave_last_out makes one, Interactions, a data frame or a path"
    raise DataError(f"split: expected {expected}, found {type(data).__name__}")


def _named_candidates(models: Any, seed: int) -> dict[str, list[Recommender]]:
    """Return the candidates of each model by its name; names of the registry stand for models."""
    if isinstance(models, Mapping):
        return {name: _candidates_of(choices, name, seed) for name, choices in models.items()}
    listed = [models] if isinstance(models, Recommender | str) else list(models)
    unnamed = as_candidates([model for model in listed if not isinstance(model, str)], "models")
    names = iter(_names_of(unnamed))
    candidates: dict[str, list[Recommender]] = {}
    for model in listed:
        if isinstance(model, str):
            candidates |= build_models(expand_names([model]), {}, seed)
        else:
            candidates[next(names)] = [model]
    return candidates


def _candidates_of(choices: Any, name: str, seed: int) -> list[Recommender]:
    if isinstance(choices, str):
        return build_models(expand_names([choices]), {}, seed)[choices]
    return as_candidates(choices, f"models: {name}")


def _names_of(models: Sequence[Recommender]) -> list[str]:
    """Return a name for each model: its class, with parameters where several are of one class."""
    classes = [_class_name(model) for model in models]
    names: list[str] = []
    for model, class_name in zip(models, classes, strict=True):
        written = class_name
        if classes.count(class_name) > 1:
            written = cut(repr(model).removesuffix("()"), _LONGEST_NAME)
        n_same = sum(name == written or name.startswith(f"{written} ") for name in names)
        names.append(f"{written} {n_same + 1}" if n_same else written)
    return names


def _class_name(model: Recommender) -> str:
    base = get_params(model).get("base")
    name = type(model).__name__
    return name if base is None else f"{name}({type(base).__name__})"


def with_kernels(model: AnyModel) -> AnyModel:
    """Return a model whose kind of communities would be chosen on validation with the paper's."""
    finder = get_params(model).get("communities")
    if isinstance(finder, CommunityFinder):
        return clone(model, communities=finder.without_choice())
    return model


def pairs_to_compare(
    models: Mapping[str, Recommender], control: str | None, longer: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return the pairs of models whose differences are shown, by their names.

    Each local model is compared with its base, the ensembles and the controls over that base; a
    control with the ensembles; and every model with `control`. `longer` are the rows of models that
    were fitted with more epochs, by the names of the models: local models are compared with those
    of their controls, and at equal numbers of epochs.
    """
    bases = {name: model.base for name, model in models.items() if isinstance(model, ManyModels)}
    singles = {name: model for name, model in models.items() if name not in bases}
    ensembles = {name: base for name, base in bases.items() if models[name].role == "ensemble"}
    permuted = {name: base for name, base in bases.items() if is_control(models[name])}
    pairs: list[tuple[str, str]] = []
    for name, base in bases.items():
        if name in ensembles:
            continue
        controls = over_same_base(name, base, ensembles)
        if name not in permuted:
            pairs += [(name, other) for other in over_same_base(name, base, singles)]
            controls += over_same_base(name, base, permuted)
        pairs += [(name, other) for other in controls]
        for other in controls:
            if other in longer:
                pairs.append((name, longer[other]))
            pairs.append((longer.get(name, name), longer.get(other, other)))
    if control is not None:
        pairs += [(name, control) for name in models if name != control]
    return list(dict.fromkeys(pairs))


def over_same_base(name: str, base: Recommender, others: Mapping[str, Recommender]) -> list[str]:
    """Return the names of others with the same base: by the registry, or by its class.

    `others` are given with their bases, or are bases.
    """
    alike = [other for other, model in others.items() if isinstance(model, type(base))]
    known = {model: RECORDS[model].base or model for model in (name, *alike) if model in RECORDS}
    if name not in known:
        return alike
    return [other for other in alike if known.get(other, known[name]) == known[name]]


def plan_longer(
    models: Mapping[str, Recommender],
    measured: Mapping[str, ComparedModel],
    how: EvaluationProtocol,
    data: str,
) -> RunPlan:
    """Plan longer runs of what chose fewer epochs than another model of many over its network."""
    epochs: dict[str, int] = {}
    bases: dict[str, Recommender] = {}
    for name, outcome in measured.items():
        model = models[name]
        if isinstance(model, ManyModels) and outcome.found.get("epochs"):
            epochs[name] = outcome.found["epochs"]
            bases[name] = model.base
    runs: dict[str, Run] = {}
    for name, base in bases.items():
        longest = max(epochs[other] for other in over_same_base(name, base, bases))
        if epochs[name] == longest:
            continue
        selected: Any = measured[name].selected_model
        longer = f"{name}, {longest} epochs"
        runs[longer] = Run(
            name=longer,
            candidates=(clone(selected, base=clone(selected.base, epochs=longest)),),
            protocol=replace(how, budget=None),
            data=data,
            repeats=measured[name],
        )
    if not runs:
        say("same epochs: no model over a network chose fewer than another over the same")
    return RunPlan(tuple(runs), {}, lambda name, done: runs[name])


def _differences(
    pairs: Sequence[tuple[str, str]], values: Mapping[str, Values], seed: int
) -> tuple[Difference, ...]:
    """Return the paired differences, p values corrected over all of them; none of a single user."""
    if min(map(len, values.values())) < 2:
        return ()
    paired = [
        paired_difference(values[first], values[second], seed=seed) for first, second in pairs
    ]
    t_p = holm(difference.t_p for difference in paired).tolist()
    wilcoxon_p = holm(difference.wilcoxon_p for difference in paired).tolist()
    corrected = zip(pairs, paired, t_p, wilcoxon_p, strict=True)
    return tuple(
        Difference(first, second, difference, by_t, by_wilcoxon)
        for (first, second), difference, by_t, by_wilcoxon in corrected
    )


def plan_runs(
    candidates: CandidateLists,
    split: Split,
    how: EvaluationProtocol,
    constraints: Mapping[str, SpaceConstraints],
) -> RunPlan:
    """Plan the runs; under a budget those that begin with what another's study chose come later."""
    data, budget = fingerprint(split), how.budget

    def make_plain(name: str, done: Mapping[str, ComparedModel]) -> Run:
        return Run(name=name, candidates=tuple(candidates[name]), protocol=how, data=data)

    if budget is None:
        return RunPlan(tuple(candidates), {}, make_plain)
    plan = plan_tuning(candidates, how.space, constraints)
    limits = {name: limit for name, limit in vars(budget).items() if limit is not None}

    def make_tuned(name: str, done: Mapping[str, ComparedModel]) -> Run:
        tuned = {
            other: outcome.tuning.best
            for other, outcome in done.items()
            if outcome.tuning is not None
        }
        model = plan.template(name, tuned)
        if model.role == "auto":  # has the budget of all others
            model = clone(model, **limits)
        return Run(name=name, candidates=(model,), protocol=how, data=data, space=plan.spaces[name])

    return RunPlan(tuple(candidates), plan.parents(), make_tuned)
