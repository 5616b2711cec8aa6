"""`loca recommend` and `loca explain`: a saved model answers for its own users or for any history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loca.cli import options
from loca.cli.output import Output
from loca.errors import ConfigError, DataError

if TYPE_CHECKING:
    import numpy.typing as npt

    from loca.data.id_map import IdMap
    from loca.data.interactions import Interactions
    from loca.local.explain import BlendExplanation, Explanation, PartAnswer
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
    from loca.evaluation.recommend import recommendation_table

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

    from loca.local.explain import BlendExplanation, Explainable

    if not isinstance(model, Explainable):
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
    from loca.config.options import parse_recency
    from loca.registry import load

    if bool(users) == bool(history):
        raise ConfigError("who asks? expected --user ID or --history a,b,c, one of the two")
    asked = None if recency is None else parse_recency(recency)
    model = load(folder)
    known = model.train_data_
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
    from loca.text_table import TextTable

    if not rows:
        return f"For {user}: nothing is left to recommend"
    lines = tuple(
        (f"{row['rank']:>4}. {row.get('title', row['item'])}", str(row["item"]), f"{row['score']:.4f}") for row in rows
    )
    return f"For {user}\n" + TextTable(("      recommended", "item", "score"), lines).plain()


def find_items(items: IdMap, texts: Sequence[str], option: str) -> list[int]:
    """The item rows named by the texts of an option, in their order; an unknown name is refused with close ones.

    At each place the longest stretch that is an id or a title counts, so `Godfather, The` is one title.
    """
    by_title = _rows_by_title(items)
    found: list[int] = []
    for text in texts:
        pieces = text.split(",")
        place = 0
        while place < len(pieces):
            if not pieces[place].strip():
                place += 1
                continue
            row, place = _longest(items, by_title, pieces, place)
            found.append(row)
    if not found:
        raise DataError(f"{option}: expected at least one item id or title, found {','.join(texts)!r}")
    return list(dict.fromkeys(reversed(found)))[::-1]


def _longest(items: IdMap, by_title: dict[str, list[int]], pieces: list[str], place: int) -> tuple[int, int]:
    for end in range(len(pieces), place, -1):
        name = ",".join(pieces[place:end]).strip()
        if name in items:
            return items.row(name), end
        rows = by_title.get(name.casefold(), [])
        if len(rows) > 1:
            ids = ", ".join(str(one) for one in items.ids(rows[:5]))
            raise DataError(f"the title {name!r} names {len(rows)} items: {ids}; give the id")
        if rows:
            return rows[0], end
    return items.row(pieces[place].strip()), place  # refuses, naming close ones


def _rows_by_title(items: IdMap) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    if items.labels is not None:
        for row, title in enumerate(items.labels.tolist()):
            rows.setdefault(str(title).casefold(), []).append(row)
    return rows


def blend_json(explanation: BlendExplanation, items: IdMap) -> dict[str, Any]:
    """The list, and each part with its own list and what it adds to the items of the blend's."""
    return {
        "history": _named(explanation.history, None, items, ""),
        "items": _named(explanation.items, explanation.scores, items, "score"),
        "parts": [_part_json(part, explanation, items) for part in explanation.parts],
    }


def _part_json(part: PartAnswer, explanation: BlendExplanation, items: IdMap) -> dict[str, Any]:
    from loca.local.explain import BlendExplanation

    added = _named(explanation.items, part.contributions, items, "contribution")
    for place, one in enumerate(added):
        one["share"], one["rank"] = float(part.shares[place]), int(part.ranks[place])
    document: dict[str, Any] = {
        "part": part.name,
        "weight": part.weight,
        "items": _named(part.items, part.scores, items, "score"),
        "adds": added,
    }
    if isinstance(part.inside, BlendExplanation):
        document["inside"] = blend_json(part.inside, items)
    elif part.inside is not None:
        document["inside"] = explanation_json(part.inside, items)
    return document


def explanation_json(explanation: Explanation, items: IdMap) -> dict[str, Any]:
    """The list, the communities that answer and the global model, each item with its id, title and figure.

    The history stands oldest first.
    """
    return {
        "history": _named(explanation.history, None, items, ""),
        "items": _named(explanation.items, explanation.scores, items, "score"),
        "communities": [
            {
                "community": part.community,
                "anchor": part.anchor,
                "weight": part.weight,
                "members": part.members,
                "items": _named(part.items, part.scores, items, "score"),
                "known_for": _named(part.distinctive, part.lifts, items, "lift"),
            }
            for part in explanation.communities
        ],
        "global": {
            "weight": explanation.alpha,
            "items": _named(explanation.global_items, explanation.global_scores, items, "score"),
        },
        "locality": None if explanation.locality is None else asdict(explanation.locality),
    }


def _named(rows: npt.NDArray[Any], figures: npt.NDArray[Any] | None, items: IdMap, figure: str) -> list[dict[str, Any]]:
    """Each listed item; a place that could not be filled (−1) is left out."""
    listed = []
    for place, row in enumerate(rows.tolist()):
        if row >= 0:
            named: dict[str, Any] = {"item": items.ids([row])[0]}
            if items.labels is not None:
                named["title"] = items.label(row)
            if figures is not None:
                named[figure] = float(figures[place])
            listed.append(named)
    return listed
