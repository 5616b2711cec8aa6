"""Models beside each other on the same test users: what each reaches, and paired differences with intervals."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from loca.config.model_factory import build_models, expand_names, with_kernels
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
from loca.experiments.runs import Run, RunStore
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
_OF_MANY = ("local", "ensemble")
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

    Differences are in the metric, by default NDCG@100 where it is computed, else NDCG at the longest list: each Loca
    against its base
    model, the ensemble of that base and the dealt control of that base, the dealt control against the ensemble, and
    every model against `control`. With a single test user there is nothing to pair, and no difference comes back.

    Parameters
    ----------
    models : mapping of str to Recommender or sequence of Recommender, or sequence of Recommender or str
        Unfitted models by name, each with one candidate or several to select from; or names such as `"item-knn"`.
        Models without names are called as Python writes them.
    split : Split, Interactions, data frame or path
        With a validation part where something is selected. Of anything but a Split the last 5 items of each user are
        test, and the 2 before them validation.
    protocol : {"clean", "paper"}, default "clean"
        `"clean"` selects on validation; `"paper"` selects on test, as the paper's program does, and is not a result.
    refit : bool, default True
        Fit the selected candidate once more, on train and validation.
    recency : {"given", "own", "auto"}, default "given"
        How histories are weighted by age: as the split says, with `"own"` as each model was trained for, or with
        `"auto"` as each model selects on validation.
    metric : Metric, str or None, default None
        What everything is chosen by, and what differences are in. None chooses by NDCG@100.
    at : iterable of int, default (50, 100)
        The list lengths N; that of a given metric is one of them.
    control : str or None, default None
        The model that all others are compared with; None takes the single model that was best on validation.
    keep : collection of str, default ()
        The names of the fitted models to return; the others are let go once evaluated.
    seed : int, default 0
        Seed of bootstrap intervals and of tuning.
    budget : Budget, str, float or None, default None
        Tune every model under this budget first; a local model and an ensemble begin with what their base's study
        chose.
    space : {"wide", "paper"}, default "wide"
        Which search space of each model is tuned in.
    narrowed : mapping of str to SpaceConstraints or None, default None
        What holds of a model's parameters while it is tuned, by its name.
    processes : int, default 1
        How many models are computed at a time; where one fails it is named in `failed`, and the others go on.
    start_worker : callable or None, default None
        What begins each of them: None a process of this machine, `loca.cluster.tasks.workers_on` a task of a cluster.
    keep_in : str, Path or None, default None
        A folder for each model's outcome as soon as it is there, and for the trials of its tuning.
    resume : bool, default True
        Do not compute again what is found there; otherwise it is dropped. What was computed for other data or settings
        is refused.
    same_epochs : bool, default False
        Of local models, ensembles and dealt controls over one network, fit those that chose fewer epochs than the
        longest of them once more, with its number and their own other choices. Each is a row of its own, and local
        models are compared at equal numbers too, so that none is ahead by longer training alone.
    device : str, default "auto"
        Where it computes: `"cpu"`, `"cuda"`, `"cuda:1"`, or `"auto"`, a GPU where there is one.

    Returns
    -------
    Comparison
        What every model reached, and the differences; prints as two tables.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
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
    tuned = Budget.of(budget)
    chosen_by = DEFAULT_METRIC if metric is None else Metric.of(metric)
    lengths = check_lengths(at)
    if metric is not None:
        lengths = check_lengths([*lengths, chosen_by.k])
    check_device(device)
    how = EvaluationProtocol(
        protocol, refit, recency, lengths, seed, tuned, space, chosen_by, device
    )
    candidates = _named_candidates(models, seed)
    if protocol == "paper":  # without validation to choose communities on
        candidates = {
            name: [with_kernels(one) for one in some] for name, some in candidates.items()
        }
    for name in (*keep, *([] if control is None else [control])):
        if name not in candidates:
            raise ConfigError(f"no model {name!r} to compare with{did_you_mean(name, candidates)}")
    if not (isinstance(processes, int) and processes >= 1):
        raise ConfigError(f"processes: expected a whole number ≥ 1, found {processes!r}")
    if not isinstance(same_epochs, bool):
        raise ConfigError(f"same_epochs: expected True or False, found {same_epochs!r}")
    if keep and (processes > 1 or start_worker is not None):
        raise ConfigError(
            "keep: fitted models stay in the process that fits them; expected processes=1"
        )
    plan = plan_runs(candidates, split, how, narrowed or {})
    store = None if keep_in is None else RunStore(Path(keep_in))
    fitted: dict[str, Recommender] = {}
    failed: dict[str, str] = {}
    with nullcontext() if store is None else store.opened(plan.names, resume=resume):
        weighed_by = split.train.recency if recency == "given" else recency
        if order_matters((one for some in candidates.values() for one in some), weighed_by):
            warn_of_file_order(split.train)

        def execute_all(plan: RunPlan, keep: Collection[str] = ()) -> dict[str, ComparedModel]:
            done = plan.find_done(store, keep)
            if store is not None and len(done) < len(plan.names):
                store.begin()
            if processes > 1 or start_worker is not None:
                start = Worker.start if start_worker is None else start_worker
                failed.update(execute_parallel(plan, done, split, store, processes, start))
            else:
                fitted.update(execute_here(plan, done, split, store, keep))
            return {name: done[name] for name in plan.names if name in done}

        measured = execute_all(plan, keep)
        if not measured:
            raise LocaError("; ".join(f"{name}: {why}" for name, why in failed.items()))
        firsts = {name: candidates[name][0] for name in measured}
        longer = (
            execute_all(plan_longer(firsts, measured, how, fingerprint(split)))
            if same_epochs
            else {}
        )
        if store is not None and not failed:
            store.finish()
    # The best model that is not made of several, judged where choices are made, never by the result.
    singles = [name for name, one in firsts.items() if one.role == "single"]
    if control not in measured:
        control = max(singles, key=lambda name: measured[name].selected.score, default=None)
    figure = str(chosen_by)
    if metric is None and chosen_by.k not in how.at:
        figure = f"{chosen_by.name}@{how.at[-1]}"
    everything = {**measured, **longer}
    values = {name: one.evaluation.values[figure] for name, one in everything.items()}
    pairs = pairs_to_compare(firsts, control, {one.repeats: name for name, one in longer.items()})
    reached = tuple(everything.values()), _differences(pairs, values, seed), fitted
    remarks = joined_remarks(split.remarks, *(one.remarks for one in everything.values()))
    return Comparison(protocol, refit, figure, control, *reached, tuned, space, failed, remarks)


def _as_split(given: Any, protocol: ProtocolName) -> Split:
    """Return a split as it is, and hold out each user's last items of anything else."""
    if isinstance(given, Split):
        return given
    if isinstance(given, Interactions | str | Path) or is_table(given):
        return leave_last_out(given, test=5, validation=0 if protocol == "paper" else 2)
    expected = "a Split, as leave_last_out makes one, Interactions, a data frame or a path"
    raise DataError(f"split: expected {expected}, found {type(given).__name__}")


def _named_candidates(models: Any, seed: int) -> dict[str, list[Recommender]]:
    """Return the candidates of each model by its name; models are made of the names of the registry."""
    if isinstance(models, str):
        models = [models]
    if isinstance(models, Mapping):
        return {
            name: build_models(expand_names([one]), {}, seed)[one]
            if isinstance(one, str)
            else as_candidates(one, f"models: {name}")
            for name, one in models.items()
        }
    listed = [models] if isinstance(models, Recommender) else list(models)
    unnamed = as_candidates([one for one in listed if not isinstance(one, str)], "models")
    names = iter(_names_of(unnamed))
    candidates: dict[str, list[Recommender]] = {}
    for one in listed:
        if isinstance(one, str):
            candidates |= build_models(expand_names([one]), {}, seed)
        else:
            candidates[next(names)] = [one]
    return candidates


def _names_of(models: Sequence[Recommender]) -> list[str]:
    """Return a name for each model: its class, with the parameters where several are of one class."""
    classes = [_class_name(one) for one in models]
    names: list[str] = []
    for model, name in zip(models, classes, strict=True):
        written = name
        if classes.count(name) > 1:
            written = cut(repr(model).removesuffix("()"), _LONGEST_NAME)
        same = sum(one == written or one.startswith(f"{written} ") for one in names)
        names.append(f"{written} {same + 1}" if same else written)
    return names


def _class_name(model: Recommender) -> str:
    base = get_params(model).get("base")
    name = type(model).__name__
    return name if base is None else f"{name}({type(base).__name__})"


def pairs_to_compare(
    models: Mapping[str, Recommender], control: str | None, longer: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Each local model with its base and its controls, a dealt one with the ensemble, and every model with `control`.

    `longer` are the rows of models that were fitted with more epochs, by the names of the models: local models are
    compared with those of their controls, and at equal numbers of epochs.
    """
    bases = {name: get_params(one)["base"] for name, one in models.items() if one.role in _OF_MANY}
    singles = {name: one for name, one in models.items() if name not in bases}
    ensembles = {name: bases[name] for name, one in models.items() if one.role == "ensemble"}
    dealt = {
        name: base
        for name, base in bases.items()
        if get_params(models[name]).get("communities") == "dealt"
    }
    pairs: list[tuple[str, str]] = []
    for name in (one for one in bases if one not in ensembles):
        others = [] if name in dealt else over_same_base(name, bases[name], singles)
        controls = over_same_base(name, bases[name], ensembles)
        controls += [] if name in dealt else over_same_base(name, bases[name], dealt)
        pairs += [(name, other) for other in (*others, *controls)]
        for other in controls:
            pairs += [(name, longer[other])] if other in longer else []
            pairs += [(longer.get(name, name), longer.get(other, other))]
    if control is not None:
        pairs += [(name, control) for name in models if name != control]
    return list(dict.fromkeys(pairs))


def over_same_base(name: str, base: Recommender, others: Mapping[str, Recommender]) -> list[str]:
    """The models, given with their bases or as bases, that share the base of one: by the registry, or by class."""
    alike = [other for other, one in others.items() if isinstance(one, type(base))]
    known = {one: RECORDS[one].base or one for one in (name, *alike) if one in RECORDS}
    if name not in known:
        return alike
    return [other for other in alike if known.get(other, known[name]) == known[name]]


def plan_longer(
    models: Mapping[str, Recommender],
    measured: Mapping[str, ComparedModel],
    how: EvaluationProtocol,
    data: str,
) -> RunPlan:
    """Plan once more, with the epochs of the longest, what chose fewer among models of many over the same network."""
    found: dict[str, Any] = {name: one.found.get("epochs") for name, one in measured.items()}
    epochs: dict[str, int] = {
        name: one for name, one in found.items() if one and models[name].role in _OF_MANY
    }
    arms = {name: get_params(models[name])["base"] for name in epochs}
    runs: dict[str, Run] = {}
    for name, base in arms.items():
        longest = max(epochs[one] for one in over_same_base(name, base, arms))
        if epochs[name] == longest:
            continue
        selected: Any = measured[name].selected_model
        if selected is None:
            raise ConfigError(
                f"same_epochs: the stored results of {name} are older than this; start over with --fresh"
            )
        model = clone(selected, base=clone(selected.base, epochs=longest))
        called = f"{name}, {longest} epochs"
        runs[called] = Run(
            called, (model,), replace(how, budget=None), data, repeats=measured[name]
        )
    if not runs:
        say("same epochs: no model over a network chose fewer than another over the same")
    return RunPlan(tuple(runs), {}, lambda name, done: runs[name])


def _differences(
    pairs: Sequence[tuple[str, str]], values: Mapping[str, Values], seed: int
) -> tuple[Difference, ...]:
    """The paired differences, p values corrected over all of them; none of a single user."""
    if min(map(len, values.values())) < 2:
        return ()
    paired = [
        paired_difference(values[first], values[second], seed=seed) for first, second in pairs
    ]
    t_p, wilcoxon_p = holm(one.t_p for one in paired), holm(one.wilcoxon_p for one in paired)
    corrected = zip(pairs, paired, t_p.tolist(), wilcoxon_p.tolist(), strict=True)
    return tuple(
        Difference(*pair, one, by_t, by_wilcoxon) for pair, one, by_t, by_wilcoxon in corrected
    )


def plan_runs(
    candidates: CandidateLists,
    split: Split,
    how: EvaluationProtocol,
    constraints: Mapping[str, SpaceConstraints],
) -> RunPlan:
    """Plan the runs; under a budget those that begin with what another's study chose come later."""
    data, budget = fingerprint(split), how.budget
    if budget is None:
        return RunPlan(
            tuple(candidates), {}, lambda name, done: Run(name, tuple(candidates[name]), how, data)
        )
    plan = plan_tuning(candidates, how.space, constraints)
    limits = {"seconds": budget.seconds, "trials": budget.trials}

    def make(name: str, done: Mapping[str, ComparedModel]) -> Run:
        model = plan.template(
            name, {other: one.tuning.best for other, one in done.items() if one.tuning is not None}
        )
        if model.role == "auto":  # has the budget of all others
            model = clone(
                model, **{limit: value for limit, value in limits.items() if value is not None}
            )
        return Run(name, (model,), how, data, plan.spaces[name])

    return RunPlan(tuple(candidates), plan.parents(), make)
