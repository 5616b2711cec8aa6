"""`loca plan`: what a fit would take (memory and files), said before anything large is allocated."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from loca.cli.fit import FitOptions, Fitting, check_folder
from loca.cli.options import Data, ModelSettings, Output, Reading, check_request
from loca.errors import ConfigError

Folder = Annotated[
    Path | None, typer.Option("--out", help="The folder that the model would go into: looks for room on its disk.")
]


def plan(
    source: Data, fitting: Fitting, reading: Reading, settings: ModelSettings, output: Output, out: Folder = None
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

    request = check_request("fit", FitOptions, source, reading, settings, **fitting.sections())
    ((name, candidates),) = request.models.items()
    validated = request.split.validation != 0
    if not validated and len(candidates) > 1:
        raise ConfigError("choosing needs held-out items; expected --validation of at least 1, found 0")
    free = None if out is None else shutil.disk_usage(check_folder(out)).free
    found = plan_fit(candidates, request.read(), name=name, validated=validated, free_on_disk=free)
    output.answer(str(found), found.document())
