"""`loca tune`: the settings of models that answer each user's held-out items best, as a file for the other commands."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from loca.cli import options
from loca.cli.options import Given, Request, check_request
from loca.cli.output import Output
from loca.errors import ConfigError, check_choice

if TYPE_CHECKING:
    from loca.config.settings import Table
    from loca.search_space import Budget
    from loca.tuning.warm_start import Tuning, TuningPlan

TRIALS = 20
_STUDY = "The study"
Models = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="Which model, or several, comma separated: each gets the same budget, and a loca model and its ensemble "
        "begin with their base as it was tuned (loca-ease).",
    ),
]
Trials = Annotated[int | None, typer.Option(help=f"How many settings to try for each model ({TRIALS}).")]
Seconds = Annotated[float | None, typer.Option(help="How long to try for each model, in all its trials together.")]
SpaceName = Annotated[
    str | None, typer.Option("--space", help="What to try: wide, or the values that the paper tried (wide).")
]
Processes = Annotated[int | None, typer.Option(help="How many trials run side by side (1).")]
Out = Annotated[Path | None, typer.Option(help="A TOML file for the best settings, as --config takes it.")]
Study = Annotated[
    Path | None,
    typer.Option(help="An SQLite file that keeps the trials; optuna-dashboard shows it.", rich_help_panel=_STUDY),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the study in that file.", rich_help_panel=_STUDY)]
Fresh = Annotated[bool, typer.Option("--fresh", help="Drop it and start over.", rich_help_panel=_STUDY)]
Test = Annotated[int | None, typer.Option(help="Each user's last items, for test; not looked at (5).")]
Validation = Annotated[int | None, typer.Option(help="The items before them, to judge settings on (2).")]


def tune_models(
    source: options.Data,
    model: Models = None,
    trials: Trials = None,
    seconds: Seconds = None,
    space: SpaceName = None,
    processes: Processes = None,
    out: Out = None,
    study: Study = None,
    resume: Resume = False,
    fresh: Fresh = False,
    test: Test = None,
    validation: Validation = None,
    recency: options.Recency = None,
    layout: options.Layout = None,
    preset: options.Preset = None,
    user_column: options.UserColumn = None,
    item_column: options.ItemColumn = None,
    rating_column: options.RatingColumn = None,
    time_column: options.TimeColumn = None,
    separator: options.Separator = None,
    min_rating: options.MinRating = None,
    min_user_interactions: options.MinUserInteractions = None,
    min_item_interactions: options.MinItemInteractions = None,
    keep_repeats: options.KeepRepeats = None,
    titles: options.Titles = None,
    config: options.Config = None,
    assignments: options.Set = None,
    choices: options.Choose = None,
    seed: options.Seed = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Find the settings of models that answer the validation items best, and write them for loca fit and loca compare.

    The data is split as loca compare splits it; the test items are not looked at. What --set says stays as it is, what
    --choose lists is tried at these values alone, everything else in the space of the model.

    With --study the trials are kept: after a kill the same command with --resume goes on.

    Examples:

      loca tune planted --model ease --trials 30 --out best.toml

      loca tune ratings.csv --model mult-vae,loca-vae --seconds 1200 --study trials.db --out best.toml

      loca tune ratings.csv --model loca-ease --set base.l2=300 --choose anchors=20,40 --processes 4 --out best.toml

      loca fit ratings.csv --config best.toml --out films.loca
    """
    output = Output(as_json, quiet)
    reading = options.reading_options(
        layout, preset, user_column, item_column, rating_column, time_column, separator, min_rating,
        min_user_interactions, min_item_interactions, keep_repeats, titles,
    )  # fmt: skip
    names = options.words(model)
    own = {"models": names, "trials": trials, "seconds": seconds, "space": space, "processes": processes, "seed": seed}
    given: Given = {
        "tune": own,
        "data": reading,
        "split": {"test": test, "validation": validation},
        "recency": {"half_life": recency},
    }
    words = Words(config, given, assignments or [], choices or [])
    request = check_request("tune", TuneOptions, source, config, given, words.assignments, words.choices)
    plan = _plan(request)
    begun = _check_early(request, out, study, resume=resume, fresh=fresh)
    drop = [] if study is None or not fresh else [(study, name) for name in begun]
    tuned = _tune(request, plan, study, output, drop)
    if out is not None:
        write_settings(out, request, words, tuned)
    tell(tuned, request, out, output)


def _plan(request: Request[TuneOptions]) -> TuningPlan:
    """What is tuned; a mistake in the last model's settings is told before the first is tuned."""
    from loca.registry import SpaceName
    from loca.tuning.warm_start import plan_from_settings

    plan = plan_from_settings(request.models, cast(SpaceName, request.own.space), request.tables)
    for name, space in plan.spaces.items():
        if space is None:
            why = "it searches by itself, in loca fit" if name == "auto" else "its settings are the paper's authors'"
            raise ConfigError(f"no {request.own.space} space to tune {name!r} in: {why}")
    return plan


def _check_early(
    request: Request[TuneOptions], out: Path | None, study: Path | None, *, resume: bool, fresh: bool
) -> list[str]:
    """Refuses before any data is read what could not be done at the end; the models whose studies are there."""
    from loca.config.settings import check_unwritable
    from loca.tuning.study import names_in

    if request.split.validation == 0:
        raise ConfigError("tuning is judged on validation; expected --validation of at least 1, found 0")
    if out is not None:
        check_unwritable(out)
    if resume and fresh:
        raise ConfigError("--resume goes on with a study, --fresh drops it; expected one of them, found both")
    if study is None:
        if resume or fresh:
            raise ConfigError(f"{'--resume' if resume else '--fresh'} is for a study in a file; add --study FILE.db")
        return []
    begun = [name for name in names_in(study) if name in request.models]
    if begun and not (resume or fresh):
        raise ConfigError(
            f"{study} holds a study of {', '.join(begun)} already; add --resume to go on with it, or --fresh to "
            "start over"
        )
    return begun


def _tune(
    request: Request[TuneOptions],
    plan: TuningPlan,
    study: Path | None,
    output: Output,
    drop: Sequence[tuple[Path, str]],
) -> list[Tuning]:
    """Tunes the models, each after those that it begins with; the studies to `drop` go once the data are read."""
    from loca.data.splits import leave_last_out
    from loca.tuning.study import Tuner, drop_study

    own, budget = request.own, request.own.budget()
    validation = 2 if request.split.validation is None else request.split.validation
    split = leave_last_out(request.read(), test=request.split.test, validation=validation)
    assert split.validation is not None
    output.notes(split.report)
    output.note(f"budget: {budget}{' (where nothing is said)' if own.trials is own.seconds is None else ''}")
    for path, name in drop:
        drop_study(path, name)
    tuned: dict[str, Tuning] = {}
    for name in plan.in_order():
        space = plan.spaces[name]
        assert space is not None
        template = plan.template(name, {done: one.best for done, one in tuned.items()})
        data = split.train, split.validation
        tuner = Tuner(name, template, *data, space, budget, request.recency_rule, own.seed, own.processes)
        tuned[name] = tuner.tune(study)
        if len(request.models) > 1:
            output.note(headline(tuned[name]))
    return [tuned[name] for name in request.models]


@dataclass(frozen=True)
class TuneOptions:
    """The section `tune`."""

    models: tuple[str, ...] = ("loca-ease",)
    trials: int | None = None
    seconds: float | None = None
    space: str = "wide"
    processes: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        self.budget()
        check_choice("space", self.space, ("wide", "paper"))
        if self.processes < 1:
            raise ConfigError(f"tune.processes: expected a whole number ≥ 1, found {self.processes}")

    @property
    def model_names(self) -> tuple[str, ...]:
        """The models to tune, in this order."""
        return self.models

    def budget(self) -> Budget:
        """What may be spent on each model."""
        from loca.search_space import Budget

        unsaid = self.trials is None and self.seconds is None
        return Budget(TRIALS if unsaid else self.trials, self.seconds)


@dataclass(frozen=True)
class Words:
    """What a person said of settings: kept to be told in the file."""

    config: Path | None
    given: Given
    assignments: Sequence[str]
    choices: Sequence[str]

    def section(self, name: str) -> Table:
        """One section as it was said."""
        from loca.config.settings import read_section

        return read_section(name, self.config, self.given, self.assignments)


def write_settings(out: Path, request: Request[TuneOptions], words: Words, tuned: Sequence[Tuning]) -> None:
    """The settings of all models in one file, and what the other commands need to take them up."""
    from loca.config.settings import toml_text
    from loca.persistence.atomic_write import write_whole

    own = request.own
    best = max(tuned, key=lambda one: one.ndcg)
    comments = [
        f"Settings tuned by loca on {request.source}: {own.budget()}, space {own.space}, seed {own.seed}",
        *(headline(one) for one in tuned),
        _command(request, words),
        f"taken by  loca fit {shlex.quote(request.source)} --config {shlex.quote(str(out))} --out MODEL  "
        "and by  loca compare",
    ]
    said = {name: words.section(name) for name in ("data", "planted", "split", "recency")}
    sections: dict[str, Any] = {
        "fit": {"model": best.name, "seed": own.seed},
        "compare": {"models": [one.name for one in tuned], "seed": own.seed},
        **{name: table for name, table in said.items() if table},
        **{one.name: one.settings for one in tuned},
    }
    write_whole(out, toml_text(comments, sections))


def _command(request: Request[TuneOptions], words: Words) -> str:
    """The command that tuned, for whoever wants to do it again."""
    own = request.own
    parts = ["loca", "tune", request.source, "--model", ",".join(request.models), "--space", own.space]
    budget = own.budget()
    parts += [] if budget.trials is None else ["--trials", str(budget.trials)]
    parts += [] if budget.seconds is None else ["--seconds", f"{budget.seconds:g}"]
    parts += [] if words.config is None else ["--config", str(words.config)]
    parts += [part for text in words.assignments for part in ("--set", text)]
    parts += [part for text in words.choices for part in ("--choose", text)]
    return f"{shlex.join(parts)} --seed {own.seed}"


def headline(one: Tuning) -> str:
    """What tuning one model came to, in one line."""
    before = "" if one.ndcg_before is None else f" ({one.ndcg_before:.4f} as it was)"
    trials = f"{one.finished} trial{'s' if one.finished != 1 else ''}"
    ended = f"{trials} finished, {one.pruned} pruned, {one.failed} failed, in {one.seconds:.1f} s"
    return f"{one.name}: NDCG@100 {one.ndcg:.4f} on validation{before}; {ended}"


def tell(tuned: Sequence[Tuning], request: Request[TuneOptions], out: Path | None, output: Output) -> None:
    """Prints what tuning came to."""
    from loca.config.model_factory import describe_model
    from loca.experiments.report import flat_settings

    lines: list[str] = []
    for one in tuned:
        settings = ", ".join(f"{key} {value}" for key, value in flat_settings(one.settings).items())
        lines += [headline(one), f"  settings: {settings or 'there is nothing to set'}"]
        if one.importances:
            told = ", ".join(f"{key} {share:.0%}" for key, share in one.importances.items())
            lines.append(f"  what mattered, by {one.finished} trials: {told}")
    if out is not None:
        lines.append(f"written to {out}: loca fit {request.source} --config {out} --out MODEL")
    models = [
        {
            "name": one.name,
            "settings": one.settings,
            "parameters": describe_model(one.best),
            "validation_ndcg@100": one.ndcg,
            "validation_ndcg@100_before": one.ndcg_before,
            "finished": one.finished,
            "pruned": one.pruned,
            "failed": one.failed,
            "seconds": one.seconds,
            "importances": dict(one.importances),
        }
        for one in tuned
    ]
    own = request.own
    document = {"budget": str(own.budget()), "space": own.space, "seed": own.seed, "models": models}
    output.answer("\n".join(lines), {**document, "out": None if out is None else str(out)})
