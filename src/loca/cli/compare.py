"""`loca compare`: models beside each other on one data set, with paired differences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from loca.cli import options
from loca.cli.options import CompareOptions, Given, Request, check_request
from loca.cli.output import Output
from loca.errors import ConfigError, LocaError

if TYPE_CHECKING:
    from loca.experiments.comparison import Comparison
    from loca.tuning.warm_start import TuningPlan

Models = Annotated[
    str | None,
    typer.Option(
        help="Comma separated: popularity, ease, next-ease, mult-vae, next-vae, loca-ease, loca-vae, auto, …; "
        "ensemble is the equal-size control of each loca model."
    ),
]
Protocol = Annotated[
    str | None, typer.Option(help="clean (choose on validation), or paper (chosen on test: not a result).")
]
Refit = Annotated[bool | None, typer.Option("--refit/--no-refit", help="Refit the choice on train + validation.")]
Test = Annotated[int | None, typer.Option(help="Each user's last items for test (5).")]
Validation = Annotated[int | None, typer.Option(help="The items before them for validation (2).")]
At = Annotated[str | None, typer.Option(help="Lengths of the measured lists (50,100).")]
Control = Annotated[str | None, typer.Option(help="The model to hold all others against (the best single one).")]
Out = Annotated[
    Path | None,
    typer.Option(help="A folder for the tables as text, Markdown, CSV and JSON, and for each model's results."),
]
_TUNING = "Tuning, the same budget for every model"
Trials = Annotated[int | None, typer.Option(help="Settings to try for each model.", rich_help_panel=_TUNING)]
Seconds = Annotated[
    float | None, typer.Option(help="Seconds to try settings in, for each model.", rich_help_panel=_TUNING)
]
Space = Annotated[
    str | None,
    typer.Option(help="wide (our ranges) or paper (the values that the paper tried).", rich_help_panel=_TUNING),
]
_RUNNING = "Running"
Processes = Annotated[int | None, typer.Option(help="Models computed side by side (1).", rich_help_panel=_RUNNING)]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Take what --out holds of the same comparison.", rich_help_panel=_RUNNING),
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Drop an unfinished comparison in --out.", rich_help_panel=_RUNNING)
]


def compare_models(
    source: options.Data,
    models: Models = None,
    protocol: Protocol = None,
    refit: Refit = None,
    test: Test = None,
    validation: Validation = None,
    at: At = None,
    control: Control = None,
    recency: options.Recency = None,
    trials: Trials = None,
    seconds: Seconds = None,
    space: Space = None,
    out: Out = None,
    processes: Processes = None,
    resume: Resume = False,
    fresh: Fresh = False,
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
    """Fit models on the same split and compare them user by user, with 95 % intervals.

    Protocol clean chooses on validation, refits on train + validation, and looks at the test items once.

    Examples:

      loca compare planted --models ease,ensemble,loca-ease

      loca compare ratings.csv --models popularity,ease,loca-ease --choose ease.l2=100,300,1000

      loca compare ratings.csv --models loca-ease --set anchors=60 --set base.l2=300 --recency 4

      loca compare ratings.csv --models ease,mult-vae --recency auto

      loca compare ratings.csv --config study.toml --out results --json

      loca compare ratings.csv --models ease,mult-vae,ensemble,loca-vae --trials 30 --processes 2 --out results

    With --recency auto each model chooses on validation how its histories fade with age, or that they do not.

    With --trials or --seconds every model is tuned first, all under the same budget, where choices are made; what is
    set by --set or --config is not tuned, and of a list no other value is tried. A loca model and its ensemble begin
    with what the study of their base chose.

    --out keeps each model's results as soon as they are there; after a kill the same command with --resume goes on.

    A settings file holds tables named compare, split, data, loca-ease, loca-ease.base and so on:
    what --set writes as loca-ease.base.l2=300 stands there as l2 = 300. A list means: choose on validation.
    --set wins over the options (compare.models over --models too), the options win over the file.
    """
    from loca.experiments.report import settings_file, write_tables
    from loca.persistence.atomic_write import write_whole

    output = Output(as_json, quiet)
    reading = options.reading_options(
        layout, preset, user_column, item_column, rating_column, time_column, separator, min_rating,
        min_user_interactions, min_item_interactions, keep_repeats, titles,
    )  # fmt: skip
    own = {"models": options.words(models), "protocol": protocol, "refit": refit, "control": control}
    running = {"trials": trials, "seconds": seconds, "space": space, "processes": processes, "seed": seed}
    given: Given = {
        "compare": {**own, "at": options.words(at), **running},
        "data": reading,
        "split": {"test": test, "validation": validation},
        "recency": {"half_life": recency},
    }
    request = check_request("compare", CompareOptions, source, config, given, assignments or [], choices or [])
    _check_folder(out, resume, fresh)
    comparison = _compare(request, output, out, resume)
    show(comparison, output)
    if out is not None:
        write_tables(comparison, out)
        write_whole(out / "comparison.toml", settings_file(comparison))
        output.note(f"written to {out}: comparison.txt, .md, .csv, .json and .toml, differences.csv")
    if comparison.failed:
        advice = "" if out is None else f"; {out} keeps the others, --resume tries again"
        raise LocaError("; ".join(f"{name} failed: {why}" for name, why in comparison.failed.items()) + advice)


def _check_folder(out: Path | None, resume: bool, fresh: bool) -> None:
    """Refuses, before data are read, a folder that is a file or that holds what must be decided on."""
    from loca.experiments.report import check_file
    from loca.experiments.runs import RunStore

    check_file(out)
    if out is not None:
        RunStore(out).check_start(resume=resume, fresh=fresh)
    elif resume or fresh:
        raise ConfigError(f"--{'resume' if resume else 'fresh'}: needs --out, the folder that results are kept in")


def _plan_tuning(request: Request[CompareOptions]) -> TuningPlan | None:
    """What is tuned, if anything; refuses, before data are read, what cannot be, or that optuna is missing."""
    from loca.registry import SpaceName
    from loca.tuning.warm_start import plan_from_settings

    if request.own.budget() is None:
        return None
    return plan_from_settings(request.models, cast(SpaceName, request.own.space), request.tables)


def _compare(request: Request[CompareOptions], output: Output, out: Path | None, resume: bool) -> Comparison:
    from loca.data.splits import leave_last_out
    from loca.experiments.comparison import compare
    from loca.registry import SpaceName
    from loca.tuning.model_selection import SELECTED_ON_TEST, ProtocolName

    own, plan = request.own, _plan_tuning(request)
    if own.control is not None and own.control not in request.models:
        raise ConfigError(f"control: {own.control!r} is not among the models ({', '.join(request.models)})")
    if own.protocol == "paper":
        if request.split.validation:
            raise ConfigError("the protocol paper has no validation part; leave out --validation, or use clean")
        if request.recency_rule == "auto":
            raise ConfigError("recency: auto is chosen on validation, which the protocol paper has not; use clean")
        output.note(SELECTED_ON_TEST)
    usual = 0 if own.protocol == "paper" else 2
    validation = usual if request.split.validation is None else request.split.validation
    if own.protocol == "clean" and not validation:
        raise ConfigError("the protocol clean chooses on validation; expected --validation of at least 1, found 0")
    split = leave_last_out(request.read(), test=request.split.test, validation=validation)
    output.notes(split.report)
    return compare(
        request.models if plan is None else plan.templates,
        split,
        protocol=cast(ProtocolName, own.protocol),
        refit=own.refit,
        recency=request.recency_rule,
        at=own.at,
        control=own.control,
        seed=own.seed,
        budget=own.budget(),
        space=cast(SpaceName, own.space),
        narrowed=None if plan is None else plan.constraints,
        processes=own.processes,
        keep_in=out,
        resume=resume,
    )


def show(comparison: Comparison, output: Output) -> None:
    """Prints a comparison: as JSON, drawn on a terminal, or plain."""
    if output.as_json or not output.is_watched:
        output.answer(str(comparison), comparison.to_json())
        return
    models, differences = comparison.tables()
    print(comparison.heading)
    output.draw(models)
    if comparison.differences:
        output.draw(differences)
    for lines in comparison.remarks():
        print("\n".join(lines))
