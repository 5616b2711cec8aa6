"""`loca tune`: the settings of models that answer each user's held-out items best, as a file for the other commands."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from loca.cli import options
from loca.cli.options import (
    Data,
    Interruption,
    ModelSettings,
    Output,
    Reading,
    Splitting,
    Tuning,
    words,
)
from loca.errors import ConfigError, check_counts
from loca.evaluation.metrics import DEFAULT_METRIC, Metric

if TYPE_CHECKING:
    from loca.search_space import Budget
    from loca.tuning.warm_start import Tuning as Tuned

TRIALS = 20
Models = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="Which model, or several, comma separated: each gets the same budget, and a loca model and its ensemble "
        "begin with their base as it was tuned (loca-ease).",
    ),
]
Out = Annotated[
    Path | None, typer.Option(help="A TOML file for the best settings, as --config takes it.")
]
Study = Annotated[
    Path | None,
    typer.Option(help="An SQLite file that the trials are saved in; optuna-dashboard shows it."),
]


@dataclass(frozen=True)
class TuneOptions(options.TuningOptions):
    """The section `tune`."""

    models: tuple[str, ...] = ("loca-ease",)

    def __post_init__(self) -> None:
        self.budget()
        super().__post_init__()
        check_counts(**{"tune.processes": self.processes})

    @property
    def is_tuned(self) -> bool:
        """Always: without a budget one is chosen."""
        return True

    def budget(self) -> Budget:
        """What may be spent on each model."""
        from loca.search_space import Budget

        trials = TRIALS if self.trials is self.seconds is None else self.trials
        return Budget(seconds=self.seconds, trials=trials)


def tune_models(
    source: Data,
    reading: Reading,
    splitting: Splitting,
    tuning: Tuning,
    settings: ModelSettings,
    interruption: Interruption,
    output: Output,
    model: Models = None,
    out: Out = None,
    study: Study = None,
    device: options.Device = "auto",
) -> None:
    """Find the settings of models that are best on validation, and write them for loca fit and loca compare.

    The data is split as loca compare splits it; the test items are not looked at. What --set says stays as it is, what
    --choose lists is tried at these values alone, everything else in the space of the model. Of communities the
    parameters of their kind are tuned; --set communities=kernels or mixtures takes one with more of them.

    With --study the trials are saved: after a kill the same command with --resume goes on.

    Examples:

      loca tune planted --model ease --trials 30 --out best.toml

      loca tune ratings.csv --model mult-vae,loca-vae --seconds 1200 --study trials.db --out best.toml

      loca tune ratings.csv --model loca-ease --set base.l2=300 --choose communities.n=20,40 --out best.toml

      loca fit ratings.csv --config best.toml --out films.loca
    """
    from loca.config.model_factory import describe_model
    from loca.config.settings import check_unwritable, flat_settings, toml_text
    from loca.data.splits import leave_last_out
    from loca.models.devices import check_device
    from loca.persistence.atomic_write import write_whole
    from loca.registry import SpaceName
    from loca.tuning.warm_start import plan_from_settings

    options_given = {"tune": {"models": words(model), **asdict(tuning)}, **splitting.sections()}
    request = options.check_request("tune", TuneOptions, source, reading, settings, **options_given)
    from loca.tuning.study import (
        Tuner,
        drop_study,
        names_in,
    )  # loads optuna: after the names are checked

    own, budget, validation = request.own, request.own.budget(), request.split.validation
    resume, fresh, start_worker = (
        interruption.resume,
        interruption.fresh,
        options.workers_on(own.cluster),
    )
    # All that could be refused is refused before data are read.
    check_device(device)
    plan = plan_from_settings(request.models, cast(SpaceName, own.space), request.tables)
    for name, space in plan.spaces.items():
        if space is None:
            why = (
                "it searches by itself, in loca fit"
                if name == "auto"
                else "its settings are the paper's authors'"
            )
            raise ConfigError(f"no {own.space} space to tune {name!r} in: {why}")
    if validation == 0:
        raise ConfigError(
            "tuning is judged on validation; expected --validation of at least 1, found 0"
        )
    if out is not None:
        check_unwritable(out, "to write settings into")
    if resume and fresh:
        raise ConfigError(
            "--resume goes on with a study, --fresh drops it; expected one of them, found both"
        )
    if start_worker is not None and study is None:
        raise ConfigError("--cluster: needs --study FILE.db, on storage that all machines see")
    if study is None and (resume or fresh):
        raise ConfigError(
            f"{'--resume' if resume else '--fresh'} is for a study in a file; add --study FILE.db"
        )
    begun = [] if study is None else [name for name in names_in(study) if name in request.models]
    if begun and not (resume or fresh):
        advice = "add --resume to go on with it, or --fresh to start over"
        raise ConfigError(f"{study} holds a study of {', '.join(begun)} already; {advice}")
    interactions = request.read()
    validation = 2 if validation is None else validation
    split = leave_last_out(interactions, test=request.split.test, validation=validation)
    assert split.validation is not None
    unsaid = " (where nothing is said)" if own.trials is own.seconds is None else ""
    output.notes([*split.report, f"budget: {budget}{unsaid}"])
    if study is not None and fresh:
        for name in begun:
            drop_study(study, name)
    tuned: dict[str, Tuned] = {}
    for name in plan.in_order():
        space = plan.spaces[name]
        assert space is not None
        template = plan.template(name, {done: one.best for done, one in tuned.items()})
        data = split.train, split.validation
        tuner = Tuner(
            name,
            template,
            *data,
            space,
            budget,
            request.recency_rule,
            own.seed,
            own.processes,
            start_worker,
            DEFAULT_METRIC if own.metric is None else Metric.of(own.metric),
            device,
        )
        tuned[name] = tuner.tune(study)
        if len(request.models) > 1:
            output.notes([_headline(tuned[name])])
    results = [tuned[name] for name in request.models]
    if out is not None:
        command = [
            "loca",
            "tune",
            source,
            "--model",
            ",".join(request.models),
            "--space",
            own.space,
        ]
        command += [] if budget.trials is None else ["--trials", str(budget.trials)]
        command += [] if budget.seconds is None else ["--seconds", f"{budget.seconds:g}"]
        command += [] if own.metric is None else ["--metric", own.metric]
        command += [] if settings.config is None else ["--config", str(settings.config)]
        command += [part for text in settings.assignments or [] for part in ("--set", text)]
        command += [part for text in settings.choices or [] for part in ("--choose", text)]
        taken_by = f"loca fit {shlex.quote(source)} --config {shlex.quote(str(out))} --out MODEL"
        comments = [
            f"Settings tuned by loca on {source}: {budget}, space {own.space}, seed {own.seed}",
            *(_headline(one) for one in results),
            _judged_on(validation, request.split.test),
            f"{shlex.join(command)} --seed {own.seed}",
            f"taken by  {taken_by}  and by  loca compare",
        ]
        given = {name: request.section(name) for name in ("data", "planted", "split", "recency")}
        best = max(results, key=lambda one: one.score).name
        chosen_by = {} if own.metric is None else {"metric": own.metric}
        sections = {
            "fit": {"model": best, "seed": own.seed, **chosen_by},
            "compare": {"models": [one.name for one in results], "seed": own.seed, **chosen_by},
            **{name: table for name, table in given.items() if table},
            **{one.name: one.settings for one in results},
        }
        write_whole(out, toml_text(comments, sections))
    lines, documents = [], []
    for one in results:
        chosen = ", ".join(f"{key} {value}" for key, value in flat_settings(one.settings).items())
        lines += [_headline(one), f"  settings: {chosen or 'there is nothing to set'}"]
        if one.importances:
            shares = ", ".join(f"{key} {share:.0%}" for key, share in one.importances.items())
            lines.append(f"  what mattered, by {one.finished} trials: {shares}")
        document: dict[str, Any] = {
            "name": one.name,
            "settings": one.settings,
            "parameters": describe_model(one.best),
        }
        document |= {"metric": one.metric, "validation": one.score}
        document |= {"validation_before": one.score_before}
        document |= {key: getattr(one, key) for key in ("finished", "pruned", "failed", "seconds")}
        documents.append({**document, "importances": dict(one.importances)})
    lines.append(_judged_on(validation, request.split.test))
    if out is not None:
        lines.append(f"written to {out}: loca fit {source} --config {out} --out MODEL")
    found = {"budget": str(budget), "space": own.space, "seed": own.seed, "models": documents}
    output.answer("\n".join(lines), {**found, "out": None if out is None else str(out)})


def _headline(one: Tuned) -> str:
    """What tuning one model came to, in one line."""
    before = "" if one.score_before is None else f", {one.score_before:.4f} before tuning"
    trials = f"{one.finished} trial{'s' if one.finished != 1 else ''}"
    ended = f"{trials} finished, {one.pruned} pruned, {one.failed} failed, in {one.seconds:.1f} s"
    reached = f"{Metric.label_of(one.metric)} {one.score:.4f}{before}"
    return f"{one.name}: validation {reached} (used for choosing; not a test score); {ended}"


def _judged_on(validation: int, test: int) -> str:
    """Return on which items a score is, and why `loca fit` reaches another one with the same settings."""
    held_out = f"the {validation} before each user's last {test}, which are for test"
    return f"validation items: {held_out}; loca fit judges on the last {validation}, so its score differs"
