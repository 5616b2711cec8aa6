"""The command `loca`: its commands by name, and how every end (done, a mistake, Ctrl-C) becomes an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

MISTAKE = 2
STOPPED = 130
CLOSED = 141
# Where each command is, in the order of the help text; only the module of the command that runs is loaded.
COMMANDS = {
    "demo": "demo.demo",
    "data": "data.app",
    "compare": "compare.compare_models",
    "tune": "tune.tune_models",
    "reproduce": "reproduce.reproduce_paper",
    "plan": "plan.plan",
    "fit": "fit.fit",
    "update": "fit.update",
    "evaluate": "evaluate.evaluate_model",
    "recommend": "recommend.recommend_items",
    "similar": "recommend.similar_items",
    "explain": "explain.explain_answer",
    "explore": "explore.explore",
    "serve": "serve.serve",
    "doctor": "doctor.look",
}


def run() -> None:
    """The console script."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(
            errors="replace"
        )  # a title that the terminal cannot show is no reason to fail
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # `loca … | head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = CLOSED
    sys.exit(code)


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
            done = _app(arguments)(
                list(arguments) or ["--help"], prog_name="loca", standalone_mode=False
            )
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
    from loca.text_table import printable

    print(printable(f"loca: {' '.join(line.split())}"), file=sys.stderr)
    return code


def _app(arguments: Sequence[str]) -> typer.Typer:
    """The command that the arguments begin with; all commands where they begin otherwise."""
    import typer

    import loca

    app = typer.Typer(
        name="loca",
        help="Local collaborative autoencoders: from a ratings file to measured, explained recommendations.\n\n"
        "Begin with  loca demo  (two minutes), then  loca compare ratings.csv,  loca plan,  loca fit,  "
        "loca recommend,  loca explain.",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    words = _words_to_complete()
    chosen = [one for one in COMMANDS if [one] == list((arguments if words is None else words)[:1])]
    for name in chosen or COMMANDS:
        if words is not None and not chosen:
            app.command(name)(lambda: None)  # a name is enough to complete it
            continue
        from loca.cli.options import OnceCommand, grouped

        module, _, act = COMMANDS[name].partition(".")
        command = getattr(import_module(f"loca.cli.{module}"), act)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name, cls=OnceCommand)(grouped(command))

    @app.callback(invoke_without_command=True)
    def top(
        version: bool = typer.Option(False, "--version", help="Print the version and stop."),
    ) -> None:
        if version:
            print(f"loca {loca.__version__}")
            raise typer.Exit

    return app


def _words_to_complete() -> list[str] | None:
    """The words after `loca` where a shell wants their completion, None where a command is to run."""
    if "_LOCA_COMPLETE" not in os.environ:
        return None
    return os.environ.get("COMP_WORDS", os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()[1:]
