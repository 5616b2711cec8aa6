"""The command `loca`: its commands by name, and how every end (done, a mistake, Ctrl-C) becomes an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

MISTAKE = 2
STOPPED = 130


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
            done = _app()(list(arguments) or ["--help"], prog_name="loca", standalone_mode=False)
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


def _app() -> typer.Typer:
    """All commands."""
    import typer

    import loca
    from loca.cli import compare, data, demo, doctor, fit, plan, recommend, reproduce, tune
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
    app.command("demo")(grouped(demo.demo))
    app.add_typer(data.app, name="data")
    app.command("compare")(grouped(compare.compare_models))
    app.command("tune")(grouped(tune.tune_models))
    app.command("reproduce")(grouped(reproduce.reproduce_paper))
    app.command("plan")(grouped(plan.plan))
    app.command("fit")(grouped(fit.fit))
    app.command("recommend")(grouped(recommend.recommend_items))
    app.command("explain")(grouped(recommend.explain_answer))
    app.command("doctor")(grouped(doctor.look))

    @app.callback(invoke_without_command=True)
    def top(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
        if version:
            print(f"loca {loca.__version__}")
            raise typer.Exit

    return app
