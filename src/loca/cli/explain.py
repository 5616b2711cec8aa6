"""`loca explain`: why a saved model recommends what it does, to its own users or for any history."""

from __future__ import annotations

from typing import Annotated

import typer

from loca.cli.options import Output
from loca.cli.recommend import Count, Folder, Who, load_with_histories, named_items
from loca.errors import ConfigError
from loca.text_table import cut

Item = Annotated[str | None, typer.Option("--item", help="Explain this one item, by id or title, listed or not.")]


def explain_answer(folder: Folder, who: Who, output: Output, item: Item = None, count: Count = 5) -> None:
    """Which items of the history speak for each recommended item, and by how much.

    For linear models the shares are exact; for others they say how far the score falls without an item. Of a LOCA
    model also which communities answer, those that say the same as one; of a blend what each model adds.

    Examples:

      loca explain films.loca --user u0042

      loca explain films.loca --user u0042 --item "Copper Tide"

      loca explain films.loca --history i017,i203,i150 --json
    """
    import numpy as np

    model, known = load_with_histories(folder, who)
    chosen = None
    if item is not None:
        rows = named_items(known.items, [item], "--item")
        if len(rows) > 1:
            raise ConfigError(f"--item: expected one item, found {len(rows)} in {item!r}; explain them one at a time")
        chosen = known.items.ids(rows)[0]
    texts, answers = [], []
    for row, user in enumerate(known.users.values.tolist()):
        found = model.explain(known.of_users(np.array([row])), chosen, count, recency=known.recency)
        texts.append(f"For {cut(str(user), 90)}\n{found}")
        answers.append(found.to_json())
    output.answer("\n\n".join(texts), {"model": str(folder), "answers": answers})
