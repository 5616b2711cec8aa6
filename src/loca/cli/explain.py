"""`loca explain`: why a saved model recommends what it does, for its own users or for any history."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from loca.cli.options import Output
from loca.cli.recommend import Count, Folder, Who, load_with_histories
from loca.errors import ConfigError

if TYPE_CHECKING:
    import numpy.typing as npt

    from loca.data.id_map import IdMap
    from loca.local.explain import BlendExplanation, Explanation


def explain_answer(folder: Folder, who: Who, output: Output, count: Count = 5) -> None:
    """Which communities answer, with what weight, what each would say alone, and what each is known for.

    Of a blend: which models answer, what each adds to an item, where it ranks it, and what it would say alone.

    Examples:

      loca explain films.loca --user u0042

      loca explain films.loca --history i017,i203,i150 --json
    """
    model, known = load_with_histories(folder, who)
    import numpy as np

    if not hasattr(model, "explain"):
        kind = type(model).__name__
        raise ConfigError(f"{folder} holds {kind}, which has no communities to explain; fit a loca model for that")
    texts, documents = [], []
    for row, user_id in enumerate(known.users.values.tolist()):
        found = model.explain(known.histories(np.array([row])), count, order=known.items_of(row))
        texts.append(f"For {user_id}\n{found}")
        documents.append({"user": user_id, **explanation_json(found, known.items)})
    output.answer("\n\n".join(texts), {"model": str(folder), "answers": documents})


def explanation_json(explanation: Explanation | BlendExplanation, items: IdMap) -> dict[str, Any]:
    """The history, oldest first, the list, and what answers: communities and the global model, or a blend's parts."""
    from loca.local.explain import BlendExplanation

    document: dict[str, Any] = {
        "history": _named(explanation.history, None, items, ""),
        "items": _named(explanation.items, explanation.scores, items, "score"),
    }
    if not isinstance(explanation, BlendExplanation):
        communities = []
        for one in explanation.communities:
            about = {key: getattr(one, key) for key in ("community", "anchor", "weight", "members")}
            listed = _named(one.items, one.scores, items, "score")
            communities.append(
                {**about, "items": listed, "known_for": _named(one.distinctive, one.lifts, items, "lift")}
            )
        whole = _named(explanation.global_items, explanation.global_scores, items, "score")
        document |= {"communities": communities, "global": {"weight": explanation.alpha, "items": whole}}
        document["locality"] = None if explanation.locality is None else asdict(explanation.locality)
        return document
    document["parts"] = []
    for part in explanation.parts:
        added = _named(explanation.items, part.contributions, items, "contribution")
        for place, item in enumerate(added):
            item["share"], item["rank"] = float(part.shares[place]), int(part.ranks[place])
        own = _named(part.items, part.scores, items, "score")
        inside = {} if part.inside is None else {"inside": explanation_json(part.inside, items)}
        document["parts"].append({"part": part.name, "weight": part.weight, "items": own, "adds": added, **inside})
    return document


def _named(rows: npt.NDArray[Any], figures: npt.NDArray[Any] | None, items: IdMap, figure: str) -> list[dict[str, Any]]:
    """Each listed item with its id, title and figure; a place that could not be filled (−1) is left out."""
    listed = []
    for place, row in enumerate(rows.tolist()):
        if row >= 0:
            titled = {} if items.labels is None else {"title": items.label(row)}
            figured = {} if figures is None else {figure: float(figures[place])}
            listed.append({"item": items.ids([row])[0], **titled, **figured})
    return listed
