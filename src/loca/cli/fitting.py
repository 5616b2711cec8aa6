"""`loca fit`: one model, chosen on each user's last items, refitted on everything and saved."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loca.cli import options
from loca.cli.output import Output
from loca.cli.request import FitOptions, Given, Request, check_request
from loca.errors import ConfigError, ModelFileError

if TYPE_CHECKING:
    from loca.data.interactions import Interactions
    from loca.experiments.choices import Tried
    from loca.models.recommender import Recommender

Model = Annotated[str | None, typer.Option(help="Which model: ease, mult-vae, loca-ease, … (loca-ease).")]
Folder = Annotated[Path, typer.Option("--out", help="The folder to save the model into.")]
Validation = Annotated[
    int | None, typer.Option(help="Each user's last items, held out to choose on (2); 0 chooses nothing.")
]
Refit = Annotated[bool | None, typer.Option("--refit/--no-refit", help="Refit the choice on everything.")]


def fit(
    source: options.Data,
    out: Folder,
    model: Model = None,
    validation: Validation = None,
    refit: Refit = None,
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
    """Fit one model on all the data and save it; the model that was in the folder stays until the new one is whole.

    What can be chosen (epochs, blend, the values of --choose) is chosen on each user's last items, held out for it;
    then the choice is refitted on everything. --set wins over the options (fit.model over --model too), the options
    win over the file.

    Examples:

      loca fit planted --model loca-ease --out films.loca

      loca fit ratings.csv --titles movies.csv --model loca-ease --choose base.l2=100,300,1000 --out films.loca

      loca fit ratings.csv --model mult-vae --set latent=100 --recency 30d --out films.loca
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
    request = check_request("fit", FitOptions, source, config, given, assignments or [], choices or [])
    _mind_test_items(config, assignments or [], output)
    check_folder(out)
    _fit_and_save(request, out, output)


def _mind_test_items(config: Path | None, assignments: list[str], output: Output) -> None:
    """Refuses split.test where it is told to this command; a file serves other commands too, so there it is noted."""
    from loca.experiments.settings import read_section

    if "test" in read_section("split", None, {}, assignments):
        raise ConfigError("split.test: loca fit holds out nothing for test; leave it out, or use split.validation")
    if "test" in read_section("split", config, {}, ()):
        output.note(f"{config}: split.test is for loca compare; loca fit holds out nothing for test")


def _fit_and_save(request: Request[FitOptions], folder: Path, output: Output) -> None:
    from loca.experiments.candidates import describe_model

    ((name, candidates),) = request.models.items()
    started = time.perf_counter()
    fitted, tried = _choose_and_fit(candidates, request.read(), request, output)
    fitted.save(folder)
    parameters = describe_model(fitted)
    best = max(tried, key=lambda one: one.ndcg) if tried else None
    shown = ", ".join(f"{key} {value}" for key, value in parameters.items() if "seed" not in key and key != "model")
    lines = [f"{name} saved to {folder}: {shown}"]
    if best is not None:
        when = ", before the refit" if request.own.refit else ""
        lines.append(f"NDCG@100 on the held-out last items{when}: {best.ndcg:.4f}")
        lines += [f"  tried {one}" for one in tried if len(tried) > 1]
    document = {
        "model": name,
        "folder": str(folder),
        "parameters": parameters,
        "validation_ndcg@100": None if best is None else best.ndcg,
        "tried": [{"settings": one.settings, "ndcg@100": one.ndcg} for one in tried],
        "refit": request.own.refit,
        "seconds": time.perf_counter() - started,
    }
    output.answer("\n".join(lines), document)


def _choose_and_fit(
    candidates: list[Recommender], interactions: Interactions, request: Request[FitOptions], output: Output
) -> tuple[Recommender, tuple[Tried, ...]]:
    from loca.data.splitting import hold_last
    from loca.experiments.choices import choose_on

    held = 2 if request.split.validation is None else request.split.validation
    if held == 0:
        if len(candidates) > 1:
            raise ConfigError("choosing needs held-out items; expected --validation of at least 1, found 0")
        return candidates[0].fit(interactions), ()
    rest, questions, report = hold_last(interactions, held)
    output.notes(report)
    chosen, tried = choose_on(candidates, rest, questions)
    if request.own.refit:
        output.note("refitting on everything")
        return chosen.as_chosen().fit(interactions), tried
    # Answers must hide and use the held-out items too: they are part of what the users are known to have.
    chosen.known_ = interactions
    return chosen, tried


def check_folder(folder: Path) -> None:
    """Refuses, before an hour of training, a folder that the model could not be saved into."""
    from loca.files.saving import refuse_foreign

    try:
        refuse_foreign(folder)
    except OSError as error:
        raise ModelFileError(f"{folder}: cannot be saved into ({error.strerror or error})") from None
    parent = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise ModelFileError(f"{folder}: cannot be saved into, {parent} may not be written; choose another folder")
