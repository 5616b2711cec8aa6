"""`loca compare`: models beside each other on one data set, with paired differences."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from loca.cli import options
from loca.cli.options import Interruption, ModelSettings, Output, Reading, Recency, Tuning, words
from loca.data.archives import STANDARD_INPUT
from loca.errors import ConfigError, LocaError, check_choice, check_counts

if TYPE_CHECKING:
    from loca.experiments.comparison import Comparison
    from loca.search_space import Budget

Data = Annotated[str | None, typer.Argument(metavar="DATA", help=options.DATA_HELP)]
Models = Annotated[
    str | None,
    typer.Option(
        help="Comma separated: popularity, ease, next-ease, mult-vae, next-vae, loca-ease, loca-vae, auto, …; "
        "ensemble is the equal-size control of each loca or mixture model, dealt the one with memberships dealt to "
        "other users."
    ),
]
Protocol = Annotated[
    str | None,
    typer.Option(help="clean (choose on validation), or paper (chosen on test: not a result)."),
]
Refit = Annotated[
    bool | None, typer.Option("--refit/--no-refit", help="Refit the choice on train + validation.")
]
At = Annotated[str | None, typer.Option(help="Lengths of the measured lists (50,100).")]
Control = Annotated[
    str | None,
    typer.Option(help="The model that all others are compared with (the best single one)."),
]
SameEpochs = Annotated[
    bool | None,
    typer.Option(
        "--same-epochs/--no-same-epochs",
        help="Also fit local models and controls over one network with the epochs of the longest of them.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="A folder for the tables as text, Markdown, CSV and JSON, and for each model's results."
    ),
]


_COUNT_OR_FILE = "COUNT|FILE"


@dataclass(frozen=True)
class Parts:
    """What is held out: of each user's history, or in files of its own; and how histories fade."""

    train: Annotated[
        str | None, typer.Option(help="A file to learn from, in place of DATA.", metavar="FILE")
    ] = None
    test: Annotated[
        str | None,
        typer.Option(
            help="Each user's last items for test (5), or a file of them.", metavar=_COUNT_OR_FILE
        ),
    ] = None
    validation: Annotated[
        str | None,
        typer.Option(
            help="The items before them for validation (2), or a file of them.",
            metavar=_COUNT_OR_FILE,
        ),
    ] = None
    recency: Recency = None

    def files(self) -> dict[str, str]:
        """The parts that are files, by name."""
        given = {"test": self.test, "validation": self.validation}
        return {
            name: text for name, text in given.items() if text is not None and not _is_count(text)
        }

    def sections(self) -> dict[str, dict[str, Any]]:
        """The options by the sections of the settings that they belong to."""
        given = {"test": self.test, "validation": self.validation}
        split = {
            name: int(text) for name, text in given.items() if text is not None and _is_count(text)
        }
        return {"split": split, "recency": {"half_life": self.recency}}

    def check(self, source: str | None) -> str:
        """The file to learn from; parts that do not go together are refused."""
        files, learned = self.files(), source or self.train
        if learned is None:
            raise ConfigError("Missing argument 'DATA', or --train FILE and --test FILE")
        if source is not None and self.train is not None:
            raise ConfigError(
                f"--train: expected one file to learn from, found {source} and {self.train}"
            )
        if "test" not in files and (self.train is not None or files):
            option = "--train" if self.train is not None else "--validation"
            raise ConfigError(
                f"{option}: needs --test FILE too; one file is split by  loca compare {learned}"
            )
        if [learned, *files.values()].count(STANDARD_INPUT) > 1:
            raise ConfigError(
                "standard input (-) can be one part only; give the path of a file for the others"
            )
        return learned


def _is_count(text: str) -> bool:
    return text.strip().lstrip("+-").isdecimal()


@dataclass(frozen=True)
class CompareOptions(options.TuningOptions):
    """The section `compare`."""

    models: tuple[str, ...] = (
        "popularity",
        "ease",
        "mult-vae",
        "ensemble",
        "loca-vae",
        "loca-ease",
    )
    protocol: str = "clean"
    refit: bool = True
    at: tuple[int, ...] = (50, 100)
    control: str | None = None
    same_epochs: bool = False

    def __post_init__(self) -> None:
        from loca.evaluation.metrics import check_lengths

        check_choice("protocol", self.protocol, ("clean", "paper"))
        super().__post_init__()
        check_lengths(self.at)
        if self.budget() is None and self.space != "wide":
            raise ConfigError(
                f"space {self.space!r}: is for tuning; expected a budget too, --trials or --seconds"
            )
        check_counts(**{"compare.processes": self.processes})

    def budget(self) -> Budget | None:
        """What each model is tuned with, if anything."""
        from loca.search_space import Budget

        return Budget(seconds=self.seconds, trials=self.trials) if self.is_tuned else None


def compare_models(
    reading: Reading,
    parts: Parts,
    tuning: Tuning,
    settings: ModelSettings,
    interruption: Interruption,
    output: Output,
    source: Data = None,
    models: Models = None,
    protocol: Protocol = None,
    refit: Refit = None,
    at: At = None,
    control: Control = None,
    same_epochs: SameEpochs = None,
    out: Out = None,
    device: options.Device = "auto",
) -> None:
    """Fit models on the same split and compare them user by user, with 95 % intervals.

    Protocol clean chooses on validation, refits on train + validation, and looks at the test items once.

    Examples:

      loca compare planted --models ease,ensemble,loca-ease

      loca compare ratings.csv --models popularity,ease,loca-ease --choose ease.l2=100,300,1000

      loca compare ratings.csv --models loca-ease --set communities.n=60 --set base.l2=300 --recency 4

      loca compare ratings.csv --models ease,mult-vae --recency auto

      loca compare --train january.csv --test february.csv --models popularity,ease

      loca compare ratings.csv --config study.toml --out results --json

      loca compare ratings.csv --models ease,mult-vae,ensemble,loca-vae --trials 30 --processes 2 --out results

    A local model is compared with its base, and with two controls: what it gains over `dealt`, the same memberships
    dealt to other users at random, is locality; what `dealt` gains over `ensemble` is diversity. With --same-epochs
    models that chose fewer epochs are also trained as long as the longest, so that none wins by longer training.

      loca compare ratings.csv --models mult-vae,ensemble,dealt,mixture-vae --same-epochs

    What --set and --choose say of a model holds for loca and ensemble models over it too, unless they say otherwise:
    ease.l2=100,300 is loca-ease.base.l2=100,300 as well. base.l2=300 is for every model with such a base.

    With --test FILE its rows are the test items, and DATA or --train is all to learn from; users and items are matched
    by id. Validation is --validation FILE, or held out of what there is to learn from.

    With --recency auto each model chooses on validation how its histories fade with age, or that they do not.

    With --trials or --seconds every model is tuned first, all under the same budget, where choices are made; what is
    set by --set or --config is not tuned, and of a list no other value is tried. A loca model and its ensemble begin
    with what the study of their base chose.

    --out saves each model's results as soon as they are there; after a kill the same command with --resume goes on.

    A settings file holds tables named compare, split, data, loca-ease, loca-ease.base, loca-ease.communities and so on:
    what --set writes as loca-ease.base.l2=300 stands there as l2 = 300. A list means: choose on validation. A part of a
    model is exchanged by its kind: loca-ease.communities.kind=mixtures, or loca-ease.communities=mixtures for short.
    --set wins over the options (compare.models over --models too), the options win over the file.
    """
    from loca.data.splits import leave_last_out, plain_lines, split_from
    from loca.experiments.comparison import compare
    from loca.experiments.report import check_file, settings_file, write_tables
    from loca.experiments.runs import RunStore
    from loca.models.devices import check_device
    from loca.persistence.atomic_write import write_whole
    from loca.registry import SpaceName
    from loca.tuning.model_selection import SELECTED_ON_TEST
    from loca.tuning.warm_start import plan_from_settings

    given = {
        "models": words(models),
        "protocol": protocol,
        "refit": refit,
        "control": control,
        "at": words(at),
    }
    given["same_epochs"] = same_epochs
    sections = {"compare": {**given, **asdict(tuning)}, **parts.sections()}
    files, learned = parts.files(), parts.check(source)
    request = options.check_request(
        "compare", CompareOptions, learned, reading, settings, **sections
    )
    own, validation = request.own, request.split.validation
    # All that could be refused is refused before data are read.
    check_file(out)
    check_device(device)
    start_worker = options.workers_on(own.cluster)
    if out is not None:
        RunStore(out).check_start(**asdict(interruption))
    for option in [
        name for name, is_given in asdict(interruption).items() if is_given and out is None
    ]:
        raise ConfigError(f"--{option}: needs --out, the folder that results are saved in")
    plan = None
    if own.budget() is not None:
        plan = plan_from_settings(request.models, cast(SpaceName, own.space), request.tables)
    if own.control is not None and own.control not in request.models:
        raise ConfigError(
            f"control: {own.control!r} is not among the models ({', '.join(request.models)})"
        )
    if own.protocol == "paper":
        if validation or "validation" in files:
            raise ConfigError(
                "the protocol paper has no validation part; leave out --validation, or use clean"
            )
        if request.recency_rule == "auto":
            raise ConfigError(
                "recency: auto is chosen on validation, which the protocol paper has not; use clean"
            )
        output.notes([SELECTED_ON_TEST])
    elif validation == 0:
        raise ConfigError(
            "the protocol clean chooses on validation; expected --validation of at least 1, found 0"
        )
    held_out = 0 if own.protocol == "paper" else 2 if validation is None else validation
    if "test" in files:
        test = options.read_part(files["test"], request.data, are_targets=True)
        chosen_on = (
            options.read_part(files["validation"], request.data)
            if "validation" in files
            else held_out
        )
        split = split_from(request.read(), test, validation=chosen_on)
    else:
        split = leave_last_out(request.read(), test=request.split.test, validation=held_out)
    output.notes(plain_lines(split.report, split.remarks))
    shared = ("protocol", "refit", "at", "control", "seed", "space", "processes", "same_epochs")
    comparison = compare(
        request.models if plan is None else plan.templates,
        split,
        **{name: getattr(own, name) for name in shared},
        recency=request.recency_rule,
        budget=own.budget(),
        narrowed=None if plan is None else plan.constraints,
        keep_in=out,
        resume=interruption.resume,
        start_worker=start_worker,
        metric=own.metric,
        device=device,
    )
    show(comparison, output)
    if out is not None:
        write_tables(comparison, out)
        write_whole(out / "comparison.toml", settings_file(comparison))
        output.notes(
            [f"written to {out}: comparison.txt, .md, .csv, .json and .toml, differences.csv"]
        )
    if comparison.failed:
        advice = "" if out is None else f"; {out} keeps the others, --resume tries again"
        raise LocaError(
            "; ".join(f"{name} failed: {why}" for name, why in comparison.failed.items()) + advice
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
    for lines in comparison.footnotes():
        print("\n".join(lines))
