"""The options that several commands share, each described once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_READING = "Reading the data"
_SETTINGS = "Settings"

Data = Annotated[str, typer.Argument(metavar="DATA", help="A file of interactions, or the word planted.")]
Layout = Annotated[
    str | None, typer.Option(help="A named public format, such as movielens-1m.", rich_help_panel=_READING)
]
Preset = Annotated[
    str | None,
    typer.Option(help="The paper's treatment of a data set: amusic, agames, ml10m, …", rich_help_panel=_READING),
]
UserColumn = Annotated[
    str | None, typer.Option(help="Column of the user ids, a name or a place from 0.", rich_help_panel=_READING)
]
ItemColumn = Annotated[str | None, typer.Option(help="Column of the item ids.", rich_help_panel=_READING)]
RatingColumn = Annotated[str | None, typer.Option(help="Column of the ratings.", rich_help_panel=_READING)]
TimeColumn = Annotated[
    str | None, typer.Option(help="Column of the times; a bare order will do.", rich_help_panel=_READING)
]
Separator = Annotated[str | None, typer.Option(help="What parts the columns of a text.", rich_help_panel=_READING)]
MinRating = Annotated[
    float | None, typer.Option(help="Leave out lower ratings; all count otherwise.", rich_help_panel=_READING)
]
MinUserInteractions = Annotated[int | None, typer.Option(help="Leave out users with fewer.", rich_help_panel=_READING)]
MinItemInteractions = Annotated[int | None, typer.Option(help="Leave out items with fewer.", rich_help_panel=_READING)]
KeepRepeats = Annotated[
    bool | None,
    typer.Option("--keep-repeats", help="Keep repeated pairs, as the paper does.", rich_help_panel=_READING),
]
Titles = Annotated[
    str | None, typer.Option(help="A file of item titles, such as movies.dat.", rich_help_panel=_READING)
]

Config = Annotated[
    Path | None, typer.Option(help="A TOML file of settings; see the examples.", rich_help_panel=_SETTINGS)
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="One setting; wins over options and --config.", rich_help_panel=_SETTINGS
    ),
]
Choose = Annotated[
    list[str] | None,
    typer.Option(
        "--choose", metavar="KEY=A,B,C", help="Values to choose from on validation.", rich_help_panel=_SETTINGS
    ),
]
Seed = Annotated[int | None, typer.Option(help="The seed of everything random (0).", rich_help_panel=_SETTINGS)]
Recency = Annotated[
    str | None,
    typer.Option(
        help="How a history's items fade: their half-life, 4 (positions) or 30d (time); with shape and floor "
        "30d:power:0.1; none; auto chooses on validation (fit, compare).",
        metavar="AGE[:SHAPE[:FLOOR]]",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes.")]


def words(text: str | None) -> list[str] | None:
    """The words of an option that takes several, comma separated."""
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def reading_options(
    layout: str | None,
    preset: str | None,
    user_column: str | None,
    item_column: str | None,
    rating_column: str | None,
    time_column: str | None,
    separator: str | None,
    min_rating: float | None,
    min_user_interactions: int | None,
    min_item_interactions: int | None,
    keep_repeats: bool | None,
    titles: str | None,
) -> dict[str, str | float | bool | None]:
    """The reader options of a command as the table of the section `data`; None where an option was not given."""
    return {
        "layout": layout,
        "preset": preset,
        "user_column": user_column,
        "item_column": item_column,
        "rating_column": rating_column,
        "time_column": time_column,
        "separator": separator,
        "min_rating": min_rating,
        "min_user_interactions": min_user_interactions,
        "min_item_interactions": min_item_interactions,
        "keep_repeats": keep_repeats,
        "titles": titles,
    }
