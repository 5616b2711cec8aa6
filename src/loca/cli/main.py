"""The command `loca`: its commands, and how every end (done, a mistake, Ctrl-C) becomes an exit code and one line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import loca
from loca.cli import data
from loca.cli.answers import explain_answer, recommend_items
from loca.cli.comparing import compare_models
from loca.cli.demonstration import demo
from loca.cli.doctor import look
from loca.cli.fitting import fit
from loca.errors import LocaError

MISTAKE = 2
STOPPED = 130

app = typer.Typer(
    name="loca",
    help="Local collaborative autoencoders: from a ratings file to measured, explained recommendations.\n\n"
    "Begin with  loca demo  (two minutes), then  loca compare ratings.csv,  loca fit,  loca recommend,  loca explain.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo)
app.add_typer(data.app, name="data")
app.command("compare")(compare_models)
app.command("fit")(fit)
app.command("recommend")(recommend_items)
app.command("explain")(explain_answer)
app.command("doctor")(look)


@app.callback(invoke_without_command=True)
def _top(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        print(f"loca {loca.__version__}")
        raise typer.Exit


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Runs one command and gives its exit code: 0 done, 1 found wanting, 2 a user's mistake, 130 stopped.

    A mistake is told in one line on standard error; an unexpected exception keeps its traceback.
    """
    try:
        code = app(list(arguments) or ["--help"], prog_name="loca", standalone_mode=False)
    except typer.TyperException as error:
        return _told(error.format_message(), MISTAKE)
    except LocaError as error:
        return _told(str(error), MISTAKE)
    except (KeyboardInterrupt, typer.Abort):
        code = STOPPED
    if code == STOPPED:
        return _told("stopped; what was saved before is as it was", STOPPED)
    return code if isinstance(code, int) else 0


def _told(text: str, code: int) -> int:
    line = " ".join(text.split())
    print(f"loca: {line}", file=sys.stderr)
    return code
