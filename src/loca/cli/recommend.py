"""`loca recommend`: a saved model answers for its own users or for any history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import loca
from loca.cli.options import Output, Recency, naming
from loca.errors import ConfigError, DataError

if TYPE_CHECKING:
    from loca.data.id_map import IdMap
    from loca.data.interactions import Interactions
    from loca.models.recommender import Recommender

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a saved model.")]
Count = Annotated[int, typer.Option("-n", "--count", help="How many items.")]
Only = Annotated[list[str] | None, typer.Option("--only", help="Choose from these items alone.")]
Never = Annotated[list[str] | None, typer.Option("--never", help="Leave out these items.")]


@dataclass(frozen=True)
class Who:
    """Who is answered: known users by id, or one history; and how histories fade."""

    user: Annotated[list[str] | None, typer.Option("--user", help="A user id the model knows; may be repeated.")] = None
    history: Annotated[
        list[str] | None,
        typer.Option(help="Item ids or titles, comma separated, the last one is the newest: anybody's history."),
    ] = None
    recency: Recency = None


def recommend_items(
    folder: Folder, who: Who, output: Output, count: Count = 10, only: Only = None, never: Never = None
) -> None:
    """The best items for users that the model knows, or for anybody's history.

    Examples:

      loca recommend films.loca --user u0042 -n 5

      loca recommend films.loca --history i017,i203,i150 --never i004

      loca recommend films.loca --history "Silent Harbour,Copper Tide" --recency 4 --json
    """
    model, known = load_with_histories(folder, who)
    from loca.text_table import TextTable

    items = known.items
    chosen = None if only is None else items.ids(named_items(items, only, "--only"))
    left_out = None if never is None else items.ids(named_items(items, never, "--never"))
    answers: dict[Any, list[dict[str, Any]]] = {one: [] for one in known.users.values.tolist()}
    # Columns and not a frame: loading polars takes longer than the answer.
    columns = loca.recommend(model, known, count, only=chosen, never=left_out).columns()
    for values in zip(*(one.tolist() for one in columns.values()), strict=True):
        row = dict(zip(columns, values, strict=True))
        answers[row.pop("user")].append(row)
    texts = []
    for user, rows in answers.items():
        named = [(f"{row['rank']:>4}. {row.get('title', row['item'])}", str(row["item"])) for row in rows]
        lines = tuple((*names, f"{row['score']:.4f}") for names, row in zip(named, rows, strict=True))
        table = TextTable(("      recommended", "item", "score"), lines).plain()
        texts.append(f"For {user}\n{table}" if rows else f"For {user}: nothing is left to recommend")
    document = {"model": str(folder), "answers": [{"user": one, "items": rows} for one, rows in answers.items()]}
    output.answer("\n\n".join(texts), document)


def load_with_histories(folder: Path, who: Who) -> tuple[Recommender, Interactions]:
    """The model, and the histories of known users by id, or one history under the name `history`."""
    import numpy as np

    from loca.config.options import parse_recency
    from loca.data.id_map import IdMap
    from loca.data.interactions import Interactions
    from loca.registry import load

    if bool(who.user) == bool(who.history):
        raise ConfigError("who asks? expected --user ID or --history a,b,c, one of the two")
    recency = None if who.recency is None else parse_recency(who.recency)
    model = load(folder)
    known = model.train_data_
    if known is None:
        raise DataError(f"{folder}: this model was fitted on a bare matrix and knows no ids; ask it from Python")
    if who.recency is not None:
        known = known.with_recency(recency)
    if who.user:
        with naming("--user"):
            return model, known.of_users(known.users.rows(list(dict.fromkeys(who.user))))
    rows = np.array(named_items(known.items, who.history or [], "--history"), dtype=np.int32)
    if known.recency is not None and known.recency.unit == "time":
        raise ConfigError("a history without times cannot be weighed by time; say --recency 4 (positions) or none")
    user = IdMap(np.array(["history"], dtype=object), "user")
    return model, Interactions(user, known.items, np.array([0, len(rows)]), rows, recency=known.recency)


def named_items(items: IdMap, texts: Sequence[str], option: str) -> list[int]:
    """The item rows that an option names by id or title, comma separated; at least one."""
    from loca.data.id_map import find_items

    with naming(option):
        found = find_items(items, texts)
        if not found:
            raise DataError(f"expected at least one item id or title, found {','.join(texts)!r}")
    return found
