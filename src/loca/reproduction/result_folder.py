"""The folder of a reproduction: the names of what lies in it, and what must not be lost when another begins there."""

from __future__ import annotations

from pathlib import Path

from loca.errors import ConfigError
from loca.reproduction.exhibit_files import ENDINGS
from loca.reproduction.pieces import PIECES

PAGE = "report.html"
KEPT = "kept"
TUNED = "tuning"


def check_start(folder: Path, *, resume: bool, fresh: bool) -> None:
    """Refuses a folder with results of an earlier run that the caller neither goes on with nor drops.

    Nor are pieces replaced without being told to whose results lie elsewhere: they could not be made again from here.
    """
    if resume and fresh:
        raise ConfigError("--resume goes on with what is kept, --fresh drops it; expected one of them, found both")
    has_results = any((folder / one).exists() for one in (KEPT, TUNED))
    if has_results and not (resume or fresh):
        raise ConfigError(
            f"{folder} holds results of an earlier run; add --resume to take them and go on, or --fresh to start over"
        )
    made = (PAGE, *(f"{name}.{ending}" for name in PIECES for ending in ENDINGS))
    there = next((one for one in made if (folder / one).exists()), None)
    if there is not None and not has_results and not fresh:
        raise ConfigError(
            f"{folder} holds {there} without the results that it was made of, and would lose it; choose another "
            "folder with --out, or add --fresh to replace it"
        )
