"""`loca data …`: looking at interactions before anything is learned from them."""

from __future__ import annotations

from dataclasses import asdict

import typer

from loca.cli import options
from loca.cli.output import Output
from loca.cli.request import DescribeOptions, Given, check_request

app = typer.Typer(help="Look at interactions.", no_args_is_help=False)


@app.callback()
def _group() -> None:
    """Look at interactions before anything is learned from them."""


@app.command("describe")
def describe_data(
    source: options.Data,
    layout: options.Layout = None,
    preset: options.Preset = None,
    user_column: options.UserColumn = None,
    item_column: options.ItemColumn = None,
    rating_column: options.RatingColumn = None,
    time_column: options.TimeColumn = None,
    separator: options.Separator = None,
    min_rating: options.MinRating = None,
    min_user_interactions: options.MinUserInteractions = None,
    min_item_interactions: options.MinItemInteractions = None,
    keep_repeats: options.KeepRepeats = None,
    titles: options.Titles = None,
    config: options.Config = None,
    assignments: options.Set = None,
    seed: options.Seed = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Users, items, ratings, sparsity and concentration: the columns of the paper's Table 1, and some more.

    Examples:

      loca data describe ratings.csv --min-user-interactions 10

      loca data describe amusic.rating --preset amusic

      loca data describe events.tsv --user-column 0 --item-column 2 --time-column 3 --json
    """
    from loca.data.statistics import describe

    out = Output(as_json, quiet)
    reading = options.reading_options(
        layout, preset, user_column, item_column, rating_column, time_column, separator, min_rating,
        min_user_interactions, min_item_interactions, keep_repeats, titles,
    )  # fmt: skip
    given: Given = {"data": reading, "describe": {"seed": seed}}
    request = check_request("describe", DescribeOptions, source, config, given, assignments or [])
    statistics = describe(request.read())
    out.answer(str(statistics), {"data": source, **asdict(statistics)})
