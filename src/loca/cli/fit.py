"""`loca fit`: one model, chosen on each user's last items, refitted on everything and saved."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loca.cli import options
from loca.cli.options import FitOptions, Given, Request, check_request
from loca.cli.output import Output
from loca.errors import ConfigError, ModelFileError

if TYPE_CHECKING:
    from loca.data.interactions import Interactions
    from loca.models.recommender import Recommender
    from loca.persistence.fit_context import FitContext

_AUTO = "Fitting by itself"
Model = Annotated[str | None, typer.Option(help="Which model: auto, ease, next-ease, loca-vae, … (loca-ease).")]
Folder = Annotated[Path, typer.Option("--out", help="The folder to save the model into.")]
Validation = Annotated[
    int | None, typer.Option(help="Each user's last items, held out to choose on (2); 0 chooses nothing.")
]
Budget = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="How long --model auto may try, such as 600, 20min or 2h (12min).", rich_help_panel=_AUTO
    ),
]
Trials = Annotated[
    int | None, typer.Option(help="How many models --model auto may try (no limit).", rich_help_panel=_AUTO)
]
Refit = Annotated[bool | None, typer.Option("--refit/--no-refit", help="Refit the choice on everything.")]
_INTERRUPTION = "Interruption"
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on where an interrupted run stopped.", rich_help_panel=_INTERRUPTION)
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Drop an interrupted run and start over.", rich_help_panel=_INTERRUPTION)
]
CheckpointEvery = Annotated[
    float,
    typer.Option(metavar="SECONDS", help="How much work a kill may lose, in seconds.", rich_help_panel=_INTERRUPTION),
]


def fit(
    source: options.Data,
    out: Folder,
    model: Model = None,
    validation: Validation = None,
    refit: Refit = None,
    budget: Budget = None,
    trials: Trials = None,
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
    resume: Resume = False,
    fresh: Fresh = False,
    checkpoint_every: CheckpointEvery = 60.0,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Fit one model on all the data and save it; the model that was in the folder stays until the new one is whole.

    What can be chosen (epochs, blend, --recency auto, the values of --choose) is chosen on each user's last items, held
    out for it; then the choice is refitted on everything. --set wins over the options (fit.model over --model too), the
    options win over the file.

    What is done is kept beside the model, in OUT.unfinished, until the model is saved; after a kill the same command
    with --resume goes on from there and ends with the numbers that an unbroken run gives.

    Examples:

      loca fit planted --model loca-ease --out films.loca

      loca fit ratings.csv --titles movies.csv --model loca-ease --choose base.l2=100,300,1000 --out films.loca

      loca fit ratings.csv --model mult-vae --set latent=100 --recency 30d --out films.loca --resume

      loca fit ratings.csv --model ease --recency auto --out films.loca

      loca fit ratings.csv --model auto --budget 20min --out films.loca
    """
    output = Output(as_json, quiet)
    reading = options.reading_options(
        layout, preset, user_column, item_column, rating_column, time_column, separator, min_rating,
        min_user_interactions, min_item_interactions, keep_repeats, titles,
    )  # fmt: skip
    given: Given = {
        "fit": {"model": model, "refit": refit, "seed": seed},
        "data": reading,
        "split": {"validation": validation},
        "recency": {"half_life": recency},
    }
    if budget is not None or trials is not None:
        given = {**given, "auto": _budget(budget, trials, given, config, assignments or [])}
    request = check_request("fit", FitOptions, source, config, given, assignments or [], choices or [])
    _mind_test_items(config, assignments or [], output)
    check_folder(out)
    interruption = Interruption(_unfinished_beside(out), resume, fresh, checkpoint_every)
    _fit_and_save(request, out, interruption, output)


def _budget(
    budget: str | None, trials: int | None, given: Given, config: Path | None, assignments: list[str]
) -> dict[str, Any]:
    """The settings of the model `auto` that --budget and --trials stand for; refused for any other model."""
    from loca.config.settings import read_section
    from loca.data.recency import parse_age

    option = "--budget" if budget is not None else "--trials"
    model = read_section("fit", config, given, assignments).get("model", FitOptions.model)
    if model != "auto":
        raise ConfigError(f"{option}: is for --model auto, found --model {model}")
    if budget is None:
        return {"trials": trials}
    age = parse_age(budget)
    if age is None:
        raise ConfigError(f"--budget: expected a time such as 600, 20min or 2h, found {budget!r}")
    return {"seconds": age[0], "trials": trials}


@dataclass(frozen=True)
class Interruption:
    """Where unfinished work is kept, how often, and what becomes of an earlier run's."""

    folder: Path
    resume: bool
    fresh: bool
    seconds_between: float

    def __post_init__(self) -> None:
        from loca.persistence.checkpoint import check_start

        if not self.seconds_between >= 0:
            raise ConfigError(f"--checkpoint-every: expected seconds ≥ 0, found {self.seconds_between:g}")
        check_start(self.folder, resume=self.resume, fresh=self.fresh)

    def keep(self, subject: Mapping[str, Any]) -> AbstractContextManager[FitContext]:
        """The place to keep work about `subject` in, while it lasts."""
        from loca.persistence.fit_context import checkpoint_in

        return checkpoint_in(
            self.folder,
            fingerprint=subject,
            resume=self.resume,
            fresh=self.fresh,
            seconds_between=self.seconds_between,
        )


def _mind_test_items(config: Path | None, assignments: list[str], output: Output) -> None:
    """Refuses split.test where it is told to this command; a file serves other commands too, so there it is noted."""
    from loca.config.settings import read_section

    if "test" in read_section("split", None, {}, assignments):
        raise ConfigError("split.test: loca fit holds out nothing for test; leave it out, or use split.validation")
    if "test" in read_section("split", config, {}, ()):
        output.note(f"{config}: split.test is for loca compare; loca fit holds out nothing for test")


def _unfinished_beside(folder: Path) -> Path:
    """`films.loca.unfinished` for `films.loca`."""
    named = folder if folder.name not in ("", "..") else folder.resolve()
    return named.with_name(f"{named.name}.unfinished")


def _fit_and_save(request: Request[FitOptions], folder: Path, interruption: Interruption, output: Output) -> None:
    from loca.config.model_factory import describe_model
    from loca.local.loca import Loca
    from loca.tuning.model_selection import fit
    from loca.tuning.recency_selection import recency_json

    ((name, candidates),) = request.models.items()
    started = time.perf_counter()
    interactions = request.read()
    with interruption.keep(_subject(name, candidates, interactions, request)) as context:
        found = fit(
            interactions,
            candidates,
            validation=_held_out(request),
            refit=request.own.refit,
            recency=request.recency,
            context=context,
        )
        found.model.save(folder)
    parameters, best = describe_model(found.model), found.best
    # Of what Auto chose, its report says more.
    shown = [key for key in parameters if "seed" not in key and key != "model" and not key.startswith("chosen.")]
    lines = [f"{name} saved to {folder}: {', '.join(f'{key} {parameters[key]}' for key in shown)}"]
    lines += [] if best is None else [str(found)]
    locality = found.model.locality_ if isinstance(found.model, Loca) else None
    lines += [] if locality is None else [str(locality)]
    document = {
        "model": name,
        "folder": str(folder),
        "parameters": parameters,
        "validation_ndcg@100": None if best is None else best.ndcg,
        "tried": [{"settings": one.settings, "ndcg@100": one.ndcg} for one in found.tried],
        "locality": None if locality is None else asdict(locality),
        "recency": recency_json(found.model.train_data_.recency if found.model.train_data_ else None),
        "recency_choice": best.recency.as_json() if best and best.recency else None,
        "refit": request.own.refit,
        "seconds": time.perf_counter() - started,
    }
    output.answer("\n".join(lines), document)


def _subject(
    name: str, candidates: list[Recommender], interactions: Interactions, request: Request[FitOptions]
) -> dict[str, Any]:
    """What a fit is about: a run with another subject would give other numbers."""
    import loca
    from loca.config.model_factory import describe_model
    from loca.models.devices import choose_device
    from loca.persistence.checkpoint import digest_of

    described = [describe_model(one) for one in candidates]
    parameters = described[0] if len(described) == 1 else {f"candidate {k}": one for k, one in enumerate(described)}
    return {
        "loca": loca.__version__,
        "fit.model": name,
        "fit.seed": request.own.seed,
        "fit.refit": request.own.refit,
        "validation": _held_out(request),
        "recency": str(request.recency),
        "device in use": choose_device("auto").type,
        "candidates": len(candidates),
        **parameters,
        "data": digest_of(interactions),
    }


def _held_out(request: Request[FitOptions]) -> int:
    return 2 if request.split.validation is None else request.split.validation


def check_folder(folder: Path) -> None:
    """Refuses, before an hour of training, a folder that the model could not be saved into."""
    from loca.persistence.model_io import check_foreign

    try:
        check_foreign(folder)
    except OSError as error:
        raise ModelFileError(f"{folder}: cannot be saved into ({error.strerror or error})") from None
    parent = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise ModelFileError(f"{folder}: cannot be saved into, {parent} may not be written; choose another folder")
