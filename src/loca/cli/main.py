"""How every end of the command `loca` (done, a mistake, Ctrl-C) becomes an exit code and one line."""

from __future__ import annotations

import sys
from collections.abc import Sequence

MISTAKE = 2
STOPPED = 130


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Runs one command and gives its exit code: 0 done, 1 found wanting, 2 a user's mistake, 130 stopped.

    A mistake is told in one line on standard error; an unexpected exception keeps its traceback.
    """
    try:
        code = _run_command(arguments)
    except KeyboardInterrupt:
        code = STOPPED
    if code == STOPPED:
        return _told("stopped; what was saved before is as it was", STOPPED)
    return code


def _run_command(arguments: Sequence[str]) -> int:
    # Loaded here and not above: loading takes a moment, and Ctrl-C in that moment is to be one line too.
    import typer

    from loca.cli.commands import app
    from loca.errors import LocaError

    try:
        code = app(list(arguments) or ["--help"], prog_name="loca", standalone_mode=False)
    except typer.TyperException as error:
        return _told(error.format_message(), MISTAKE)
    except LocaError as error:
        return _told(str(error), MISTAKE)
    except typer.Abort:
        return STOPPED
    return code if isinstance(code, int) else 0


def _told(text: str, code: int) -> int:
    line = " ".join(text.split())
    print(f"loca: {line}", file=sys.stderr)
    return code
