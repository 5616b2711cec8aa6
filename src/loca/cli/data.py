"""`loca data …`: getting interactions and looking at them before anything is learned from them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from loca.cli.options import (
    CommandOptions,
    Data,
    OnceCommand,
    Output,
    Reading,
    Settings,
    check_request,
    grouped,
)
from loca.errors import ConfigError
from loca.remarks import tell_remarks
from loca.text_table import TextTable

app = typer.Typer(help="Fetch public data and look at interactions.", no_args_is_help=False)

Name = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="A public data set, such as ml-20m; see --list."),
]
Listed = Annotated[
    bool, typer.Option("--list", help="List the names, sizes and licences, and stop.")
]
To = Annotated[
    Path | None,
    typer.Option("--to", help="The folder for it (LOCA_DATA, else the user's cache folder)."),
]
Again = Annotated[bool, typer.Option("--again", help="Download anew what is there already.")]
_LISTED = (
    "name",
    "about",
    "file_name",
    "addresses",
    "licence",
    "layout",
    "preset",
    "checksum",
    "size",
    "is_here",
)
# Kinds of caveats that `describe` says among its figures.
_SHOWN_AS_LINES = ("low-ratings",)


@app.callback()
def _group() -> None:
    """Fetch public data, and look at interactions before anything is learned from them."""


@app.command("describe", cls=OnceCommand)
@grouped
def describe_data(source: Data, reading: Reading, settings: Settings, output: Output) -> None:
    """Users, items, ratings, sparsity and concentration: the columns of the paper's Table 1, and some more.

    The first lines say which columns were taken, which were not used, and how the ratings lie on their scale. The last
    ones say how far the order of the items can be trusted; docs/order.md explains them.

    Examples:

      loca data describe ratings.csv --min-user-interactions 10

      loca data describe amusic.rating --preset amusic

      loca data describe events.tsv --user-column 0 --item-column 2 --time-column 3 --json

      zcat ratings.csv.gz | loca data describe -
    """
    from loca.data.statistics import check_order, describe

    request = check_request("describe", CommandOptions, source, reading, settings)
    interactions, table = request.read_described()
    statistics, order = describe(interactions), check_order(interactions)
    found = {**asdict(order), "looks_like_file_order": order.looks_like_file_order}
    document = {"data": source, **asdict(statistics), "dates": statistics.dates(), "order": found}
    lines = [*statistics.lines(), *order.lines()]
    if table is not None:
        notes = table.remarks(interactions.schema)
        tell_remarks(note for note in notes if note.kind not in _SHOWN_AS_LINES)
        lines = [*table.lines(), *lines]
        document["columns"] = table.columns.to_json()
        document["repeated_rows"] = table.joined_rows
        document["rating_values"] = None if table.ratings is None else asdict(table.ratings)
    output.answer(TextTable(("", ""), tuple(lines), names=2).plain(), document)


@app.command("fetch", cls=OnceCommand)
@grouped
def fetch_data(
    output: Output, name: Name = None, listed: Listed = False, to: To = None, again: Again = False
) -> None:
    """Download a public data set, check it, and say which command reads it.

    The licence is shown first. A cut download goes on where it stopped; a file that is there and sound stays.

    Examples:

      loca data fetch --list

      loca data fetch ml-20m

      loca data fetch amusic --to data
    """
    from loca.data.datasets import PUBLIC_SETS, find_set
    from loca.data.download import data_folder, fetch, megabytes

    folder = data_folder(to)
    if listed == (name is not None):
        raise ConfigError("expected either the name of a data set, such as ml-20m, or --list")
    if name is not None:
        data_set = find_set(name)
        found = fetch(data_set, folder, again=again)
        command = data_set.reading_command(found.path)
        text = f"{found.path}\n{megabytes(found.size)}; {found.assurance}\nNext: {command}"
        about = {
            "name": data_set.name,
            **asdict(found),
            "path": str(found.path),
            "assurance": found.assurance,
        }
        output.answer(text, {**about, "licence": asdict(data_set.licence), "next": command})
        return
    lines, documents = [], []
    for one in PUBLIC_SETS.values():
        is_here = (folder / one.name / one.file_name).is_file()
        size = "?" if one.size is None else megabytes(one.size)
        lines.append(
            f"{one.name:8} {size:>9}  {one.licence.short:18} {one.about}{' [here]' if is_here else ''}"
        )
        document = {
            **asdict(one),
            "layout": one.layouts[0],
            "preset": one.preset,
            "is_here": is_here,
        }
        documents.append({key: document[key] for key in _LISTED})
    output.answer("\n".join(lines), {"folder": str(folder), "sets": documents})
    output.notes([f"loca data fetch NAME puts one into {folder}"])
