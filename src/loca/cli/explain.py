"""`loca explain`: say why a saved model recommends what it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from loca.cli.options import Output
from loca.cli.recommend import (
    Asking,
    Count,
    Folder,
    load_known,
    named_items,
    one_history,
    user_ids,
)
from loca.errors import ConfigError
from loca.text_table import cut

if TYPE_CHECKING:
    from loca.data.histories import HistoryWeights
    from loca.data.id_map import Id, IdMap
    from loca.data.interactions import Interactions

_LONGEST_NAME = 90

Item = Annotated[
    str | None, typer.Option("--item", help="Explain this one item, by id or title, listed or not.")
]


def explain_answer(
    folder: Folder, asking: Asking, output: Output, item: Item = None, count: Count = 5
) -> None:
    """Say which items of the history speak for each recommended item, and by how much.

    For linear models the shares are exact; for others they say how far the score falls without an
    item. Of a LOCA model also which communities answer, those that say the same as one; of a blend
    what each model adds.

    Examples:

      loca explain films.loca --user u0042

      loca explain films.loca --user u0042 --item "Copper Tide"

      loca explain films.loca --history i017,i203,i150 --json
    """
    if bool(asking.user) == bool(asking.history):
        raise ConfigError("who asks? expected --user ID or --history a,b,c, one of the two")
    model, known, recency = load_known(folder, asking.recency)
    users_or_histories = _users_or_histories(known, asking, recency)
    item_id = None if item is None else _item_id(known.items, item)
    texts = []
    answers = []
    for user_or_history in users_or_histories:
        explanation = model.explain(user_or_history, item_id, count, recency=recency)
        name = cut(str(explanation.user), _LONGEST_NAME)
        texts.append(f"For {name}\n{explanation}")
        answers.append(explanation.to_json())
    output.answer("\n\n".join(texts), {"model": str(folder), "answers": answers})


def _users_or_histories(known: Interactions, asking: Asking, recency: HistoryWeights) -> list[Any]:
    if asking.history:
        return [one_history(known, asking.history, recency)]
    return user_ids(known.users, asking.user)


def _item_id(items: IdMap, text: str) -> Id:
    """Return the id of the one item that an option names."""
    rows = named_items(items, [text], "--item")
    if len(rows) > 1:
        raise ConfigError(
            f"--item: expected one item, found {len(rows)} in {text!r}; explain them one at a time"
        )
    return items.ids(rows)[0]
