"""`loca plan`: what a fit would take (memory and files), said before anything large is allocated."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from loca.cli import options
from loca.cli.fit import Model, Refit, Validation, check_folder
from loca.cli.options import FitOptions, Given, check_request
from loca.cli.output import Output
from loca.errors import ConfigError

Folder = Annotated[
    Path | None, typer.Option("--out", help="The folder that the model would go into: looks for room on its disk.")
]


def plan(
    source: options.Data,
    out: Folder = None,
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
    """Say what `loca fit` with the same settings would take at most: memory on GPU and host, and model files.

    Reads the data; fits and saves nothing. The settings are those of the fit, its section of a settings file too. A
    plan that does not fit says so, with advice; the exit code is 0 all the same.

    Examples:

      loca plan ratings.csv --model loca-vae --set anchors=300

      loca plan ratings.csv --model loca-ease --choose base.l2=100,300,1000 --out films.loca

      loca plan planted --model mult-vae --json
    """
    from loca.experiments.memory_estimate import plan_fit

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
    ((name, candidates),) = request.models.items()
    validated = request.split.validation != 0
    if not validated and len(candidates) > 1:
        raise ConfigError("choosing needs held-out items; expected --validation of at least 1, found 0")
    found = plan_fit(
        candidates,
        request.read(),
        name=name,
        validated=validated,
        free_on_disk=None if out is None else _free_for(out),
    )
    output.answer(str(found), found.document())


def _free_for(folder: Path) -> int:
    """The bytes that are free where the folder is or would be; one that cannot be saved into is refused."""
    check_folder(folder)
    there = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    return shutil.disk_usage(there).free
