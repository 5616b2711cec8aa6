"""The command `loca`: its commands by name, and how every end (done, a mistake, Ctrl-C) becomes an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

MISTAKE = 2
STOPPED = 130
# Where each command is, in the order of the help text; only the module of the command that runs is loaded.
COMMANDS = {
    "demo": "demo.demo",
    "data": "data.app",
    "compare": "compare.compare_models",
    "tune": "tune.tune_models",
    "reproduce": "reproduce.reproduce_paper",
    "plan": "plan.plan",
    "fit": "fit.fit",
    "recommend": "recommend.recommend_items",
    "explain": "explain.explain_answer",
    "doctor": "doctor.look",
}


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Runs one command and gives its exit code: 0 done, 1 found wanting, 2 a user's mistake, 130 stopped.

    A mistake is one line on standard error; an unexpected exception keeps its traceback.
    """
    line, code = "stopped; what was saved before is as it was", STOPPED
    try:
        # Loaded here and not above: loading takes a moment, and Ctrl-C in that moment is to be one line too.
        import typer

        from loca.errors import LocaError

        try:
            done = _app(arguments)(list(arguments) or ["--help"], prog_name="loca", standalone_mode=False)
            if done != STOPPED:  # typer's own word for Ctrl-C inside a command
                return done if isinstance(done, int) else 0
        except typer.TyperException as error:
            line, code = error.format_message(), MISTAKE
        except LocaError as error:
            line, code = str(error), MISTAKE
        except typer.Abort:
            pass
    except KeyboardInterrupt:
        pass
    print(f"loca: {' '.join(line.split())}", file=sys.stderr)
    return code


def _app(arguments: Sequence[str]) -> typer.Typer:
    """The command that the arguments begin with; all commands where they begin otherwise."""
    import typer

    import loca
    from loca.cli.options import grouped

    app = typer.Typer(
        name="loca",
        help="Local collaborative autoencoders: from a ratings file to measured, explained recommendations.\n\n"
        "Begin with  loca demo  (two minutes), then  loca compare ratings.csv,  loca plan,  loca fit,  "
        "loca recommend,  loca explain.",
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name in [one for one in COMMANDS if [one] == list(arguments[:1])] or COMMANDS:
        module, _, act = COMMANDS[name].partition(".")
        command = getattr(import_module(f"loca.cli.{module}"), act)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(grouped(command))

    @app.callback(invoke_without_command=True)
    def top(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
        if version:
            print(f"loca {loca.__version__}")
            raise typer.Exit

    return app
