"""`loca demo`: the whole walk on built-in data, in about two minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loca.cli.compare import show
from loca.cli.fit import check_folder
from loca.cli.options import Output, Recency
from loca.errors import ConfigError
from loca.progress import say

Folder = Annotated[Path, typer.Option("--out", help="The folder for all that it writes.")]
Seed = Annotated[int, typer.Option(help="The seed of the data and of all models.")]
Users = Annotated[int, typer.Option(help="Number of users in the built-in data.")]


def demo(
    output: Output,
    out: Folder = Path("loca-demo"),
    seed: Seed = 0,
    users: Users = 4000,
    recency: Recency = None,
) -> None:
    """Run the demonstration on built-in data: compare models, save one, print lists and reasons.

    Leaves a folder with the tables, a picture of the communities, the model and the next commands
    to try.

    --recency lets the newest items count most. Equal times have no order: the items of one moment
    are one place.

    Examples:

      loca demo

      loca demo --seed 1 --out another-demo

      loca demo --recency 4 --out newest-count-most
    """
    from loca.config.options import parse_recency
    from loca.experiments.report import check_file

    if users < 100:
        raise ConfigError(f"users: expected at least 100 for six communities, found {users}")
    weighting = None if recency is None else parse_recency(recency)
    check_file(out)
    check_folder(out / "model")
    from loca.paper.demo import run_demo

    demonstration = run_demo(out, seed=seed, users=users, recency=weighting, note=say)
    if output.as_json:
        output.answer("", demonstration.document())
        return
    show(demonstration.comparison, output)
    print("", *demonstration.verdicts(), sep="\n")
    print(demonstration.bound_line(), demonstration.purity_line(), sep="\n")
    print(f"\nFor {demonstration.user} the saved and reloaded model recommends")
    print(f"{demonstration.answer}\n\n{demonstration.explanation}")
    files = "comparison.txt, .md, .csv and .json, differences.csv, communities.png, model/, NEXT.md"
    print(f"\nIn {out}: {files}.")
    print("Try next:\n")
    for command, about in demonstration.next_commands:
        print(f"  {command}\n      {about}")
