"""`loca explain`: why a saved model recommends what it does, to its own users or for any history."""

from __future__ import annotations

from typing import Annotated

import typer

from loca.cli.options import Output
from loca.cli.recommend import Count, Folder, Who, load_known, named_items, one_history, user_ids
from loca.errors import ConfigError
from loca.text_table import cut

Item = Annotated[
    str | None, typer.Option("--item", help="Explain this one item, by id or title, listed or not.")
]


def explain_answer(
    folder: Folder, who: Who, output: Output, item: Item = None, count: Count = 5
) -> None:
    """Which items of the history speak for each recommended item, and by how much.

    For linear models the shares are exact; for others they say how far the score falls without an item. Of a LOCA
    model also which communities answer, those that say the same as one; of a blend what each model adds.

    Examples:

      loca explain films.loca --user u0042

      loca explain films.loca --user u0042 --item "Copper Tide"

      loca explain films.loca --history i017,i203,i150 --json
    """
    if bool(who.user) == bool(who.history):
        raise ConfigError("who asks? expected --user ID or --history a,b,c, one of the two")
    model, known, recency = load_known(folder, who.recency)
    one_by_one = (
        [one_history(known, who.history, recency)]
        if who.history
        else user_ids(known.users, who.user)
    )
    chosen = None
    if item is not None:
        rows = named_items(known.items, [item], "--item")
        if len(rows) > 1:
            raise ConfigError(
                f"--item: expected one item, found {len(rows)} in {item!r}; explain them one at a time"
            )
        chosen = known.items.ids(rows)[0]
    texts, answers = [], []
    for one in one_by_one:
        found = model.explain(one, chosen, count, recency=recency)
        texts.append(f"For {cut(str(found.user), 90)}\n{found}")
        answers.append(found.to_json())
    output.answer("\n\n".join(texts), {"model": str(folder), "answers": answers})
