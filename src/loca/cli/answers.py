"""`loca recommend` and `loca explain`: a saved model answers for its own users or for any history."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loca.cli import options
from loca.cli.output import Output
from loca.errors import ConfigError, DataError

if TYPE_CHECKING:
    from loca.data.interactions import Interactions
    from loca.models.recommender import Recommender

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a saved model.")]
Users = Annotated[list[str] | None, typer.Option("--user", help="A user id the model knows; may be repeated.")]
History = Annotated[
    list[str] | None,
    typer.Option(
        "--history", help="Item ids or titles, comma separated, the last one is the newest: anybody's history."
    ),
]
Count = Annotated[int, typer.Option("-n", "--count", help="How many items.")]
Only = Annotated[list[str] | None, typer.Option("--only", help="Choose from these items alone.")]
Never = Annotated[list[str] | None, typer.Option("--never", help="Leave out these items.")]


def recommend_items(
    folder: Folder,
    user: Users = None,
    history: History = None,
    count: Count = 10,
    only: Only = None,
    never: Never = None,
    recency: options.Recency = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """The best items for users that the model knows, or for anybody's history.

    Examples:

      loca recommend films.loca --user u0042 -n 5

      loca recommend films.loca --history i017,i203,i150 --never i004

      loca recommend films.loca --history "Silent Harbour,Copper Tide" --recency 4 --json
    """
    output = Output(as_json, quiet)
    model, who = _who_asks(folder, user, history, recency)
    from loca.cli.item_names import find_items
    from loca.ranking.recommendation import recommendation_table

    items = who.items
    chosen = None if only is None else items.ids(find_items(items, only, "--only"))
    left_out = None if never is None else items.ids(find_items(items, never, "--never"))
    table = recommendation_table(model, who, count, only=chosen, never=left_out)
    answers: dict[Any, list[dict[str, Any]]] = {one: [] for one in who.users.values.tolist()}
    for row in table.iter_rows(named=True):
        answers[row.pop("user")].append(row)
    document = {"model": str(folder), "answers": [{"user": one, "items": rows} for one, rows in answers.items()]}
    output.answer("\n\n".join(_list_text(one, rows) for one, rows in answers.items()), document)


def explain_answer(
    folder: Folder,
    user: Users = None,
    history: History = None,
    count: Count = 5,
    recency: options.Recency = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Which communities answer, with what weight, what each would say alone, and what each is known for.

    Of a blend: which models answer, what each adds to an item, where it ranks it, and what it would say alone.

    Examples:

      loca explain films.loca --user u0042

      loca explain films.loca --history i017,i203,i150 --json
    """
    output = Output(as_json, quiet)
    model, who = _who_asks(folder, user, history, recency)
    import numpy as np

    from loca.cli.explanation_json import blend_json, explanation_json
    from loca.local.automatic import Auto
    from loca.local.blend import Blend
    from loca.local.blend_explanation import BlendExplanation
    from loca.local.loca import Loca

    if not isinstance(model, Loca | Blend | Auto):
        kind = type(model).__name__
        raise ConfigError(f"{folder} holds {kind}, which has no communities to explain; fit a loca model for that")
    texts, documents = [], []
    for row, user_id in enumerate(who.users.values.tolist()):
        found = model.explain(who.histories(np.array([row])), count, order=who.items_of(row))
        if isinstance(found, BlendExplanation):
            document = blend_json(found, who.items)
        else:
            document = explanation_json(found, who.items)
        texts.append(f"For {user_id}\n{found}")
        documents.append({"user": user_id, **document})
    output.answer("\n\n".join(texts), {"model": str(folder), "answers": documents})


def _who_asks(
    folder: Path, users: Sequence[str] | None, history: Sequence[str] | None, recency: str | None
) -> tuple[Recommender, Interactions]:
    """The model, and those who ask: known users by id, or one history under the name `history`."""
    from loca.catalogue import load
    from loca.cli.item_names import find_items
    from loca.experiments.sections import parse_recency

    if bool(users) == bool(history):
        raise ConfigError("who asks? expected --user ID or --history a,b,c, one of the two")
    asked = None if recency is None else parse_recency(recency)
    model = load(folder)
    known = model.known_
    if known is None:
        raise DataError(f"{folder}: this model was fitted on a bare matrix and knows no ids; ask it from Python")
    if recency is not None:
        known = known.with_recency(asked)
    if users:
        return model, known.of_users(known.users.rows(list(dict.fromkeys(users))))
    return model, one_history(known, find_items(known.items, history or [], "--history"))


def one_history(known: Interactions, item_rows: list[int]) -> Interactions:
    """A history of given items, oldest first, as the interactions of a user called `history`."""
    import numpy as np

    from loca.data.id_map import IdMap
    from loca.data.interactions import Interactions

    if known.recency is not None and known.recency.unit == "time":
        raise ConfigError("a history without times cannot be weighed by time; say --recency 4 (positions) or none")
    user = IdMap(np.array(["history"], dtype=object), "user")
    return Interactions(
        user, known.items, np.array([0, len(item_rows)]), np.array(item_rows, dtype=np.int32), recency=known.recency
    )


def _list_text(user: Any, rows: list[dict[str, Any]]) -> str:
    from loca.experiments.grid import Grid

    if not rows:
        return f"For {user}: nothing is left to recommend"
    lines = tuple(
        (f"{row['rank']:>4}. {row.get('title', row['item'])}", str(row["item"]), f"{row['score']:.4f}") for row in rows
    )
    return f"For {user}\n" + Grid(("      recommended", "item", "score"), lines).plain()
