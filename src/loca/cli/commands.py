"""The commands of `loca`, each by its name."""

from __future__ import annotations

from typing import Annotated

import typer

import loca
from loca.cli import data
from loca.cli.compare import compare_models
from loca.cli.demo import demo
from loca.cli.doctor import look
from loca.cli.fit import fit
from loca.cli.plan import plan
from loca.cli.recommend import explain_answer, recommend_items
from loca.cli.reproduce import reproduce_paper
from loca.cli.tune import tune_models

app = typer.Typer(
    name="loca",
    help="Local collaborative autoencoders: from a ratings file to measured, explained recommendations.\n\n"
    "Begin with  loca demo  (two minutes), then  loca compare ratings.csv,  loca plan,  loca fit,  loca recommend,  "
    "loca explain.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo)
app.add_typer(data.app, name="data")
app.command("compare")(compare_models)
app.command("tune")(tune_models)
app.command("reproduce")(reproduce_paper)
app.command("plan")(plan)
app.command("fit")(fit)
app.command("recommend")(recommend_items)
app.command("explain")(explain_answer)
app.command("doctor")(look)


@app.callback(invoke_without_command=True)
def _top(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        print(f"loca {loca.__version__}")
        raise typer.Exit
