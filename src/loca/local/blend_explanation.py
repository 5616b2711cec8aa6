"""Why a blend's list is what it is: what each part adds to an item, where it ranks it, and what it would say alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.local.blend_scales import ask_part, sharpened
from loca.local.explanation import Explanation, ItemRows, check_explained, explain_history, name_items, opening_lines
from loca.local.loca import Loca
from loca.models.recommender import Recommender, fitted
from loca.ranking.top_n import rank_top_n

if TYPE_CHECKING:
    from loca.local.blend import Blend

Figures = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class PartAnswer:
    """One part's share in a list, and its own list (`items`, `scores`).

    For each item of the blend's list: `contributions`, weight · scaled score above that of an average item; `shares`,
    the same over the sum of their sizes (below 0 where the part speaks against the item); `ranks`, its place in the
    part's own ranking of the unseen items, from 1. `inside` explains the part itself where it can be explained.
    """

    name: str
    weight: float
    items: ItemRows
    scores: Figures
    contributions: Figures
    shares: Figures
    ranks: npt.NDArray[np.int64]
    inside: Explanation | BlendExplanation | None = None


@dataclass(frozen=True, eq=False)
class BlendExplanation:
    """The answer to one history (`items`), and what each part, the heaviest first, has to do with it.

    `history` stands oldest first where it is `ordered`, else in the order of the item rows.
    """

    history: ItemRows
    items: ItemRows
    scores: Figures
    parts: tuple[PartAnswer, ...]
    names: IdMap | None = None
    ordered: bool = False

    def __str__(self) -> str:
        lines = opening_lines(self.history, self.items, self.names, self.ordered)
        labels = [name_items(self.items[[place]], self.names) for place in range(len(self.items))]
        width = max(map(len, ["its share and place by", *labels]))
        wide = [max(len(part.name), 14) for part in self.parts]
        names = "  ".join(f"{part.name:>{size}}" for part, size in zip(self.parts, wide, strict=True))
        lines.append(f"{'its share and place by':<{width}}  {names}")
        for place, label in enumerate(labels):
            cells = (f"{part.shares[place]:+.0%}, {part.ranks[place]:,}." for part in self.parts)
            line = "  ".join(f"{cell:>{size}}" for cell, size in zip(cells, wide, strict=True))
            lines.append(f"{label:<{width}}  {line}")
        for part in self.parts:
            lines.append(f"{part.weight:6.1%} {part.name}")
            lines.append(f"       says       {name_items(part.items, self.names)}")
            if part.inside is not None:
                lines += [f"       {line}" for line in str(part.inside).splitlines()[2:]]
        return "\n".join(lines)


def explain_blend(
    model: Blend, history: csr_array, n: int, order: npt.NDArray[Any] | None, known: Interactions | None
) -> BlendExplanation:
    """The top n of one history with every part's share in it; `known` names users and items."""
    columns = fitted(model.columns_, model)
    check_explained(history, order)
    items, scores = rank_top_n(model.score(history), history, n)
    listed = items[0][items[0] >= 0]
    weights = {part: sum(weight for one, _, weight in columns if one == part) for part, _, _ in columns}
    heaviest_first = sorted(weights, key=lambda part: (-weights[part], part))
    lifts = {part: _lift(model, history, part) for part in heaviest_first}  # each (items,)
    sizes = np.sum([np.abs(lift[listed]) for lift in lifts.values()], axis=0)
    answers = []
    for part in heaviest_first:
        own_items, own_scores = rank_top_n(lifts[part][None] / np.float32(weights[part]), history, n)
        filled = own_items[0] >= 0
        added = lifts[part][listed]
        answers.append(
            PartAnswer(
                name=model.part_names()[part],
                weight=weights[part],
                items=own_items[0][filled],
                scores=own_scores[0][filled],
                contributions=added,
                shares=np.divide(added, sizes, out=np.zeros_like(added), where=sizes > 0),
                ranks=_ranks(lifts[part], history)[listed],
                inside=_inside(model, history, part, n, order, known),
            )
        )
    return BlendExplanation(
        history=np.asarray(history.indices if order is None else order, dtype=np.int32),
        items=listed,
        scores=scores[0][: len(listed)],
        parts=tuple(answers),
        names=None if known is None else known.items,
        ordered=order is not None,
    )


def _lift(model: Blend, history: csr_array, part: int) -> Figures:
    """Σ weight · (scaled score − its mean over all items) over the part's columns, (items,)."""
    total = np.zeros(history.shape[1], dtype=np.float32)
    for number, power, weight in fitted(model.columns_, model):
        if number == part:
            scaled = ask_part(fitted(model.models_, model)[part], history, power, model.scale)[0].cpu().numpy()
            total += np.float32(weight) * (scaled - scaled.mean())
    return total


def _ranks(lift: Figures, history: csr_array) -> npt.NDArray[np.int64]:
    """Each item's place from 1 among the unseen; of equal ones the lower item row stands first."""
    unseen = lift.copy()
    unseen[history.indices] = -np.inf
    ranks = np.empty(len(lift), dtype=np.int64)
    ranks[np.argsort(-unseen, kind="stable")] = np.arange(1, len(lift) + 1)
    return ranks


def _inside(
    model: Blend, history: csr_array, part: int, n: int, order: npt.NDArray[Any] | None, known: Interactions | None
) -> Explanation | BlendExplanation | None:
    """How the part itself comes to its answer, at the power where it weighs most; None where it cannot say."""
    from loca.local.blend import Blend

    power = max((weight, power) for number, power, weight in fitted(model.columns_, model) if number == part)[1]
    answering: Recommender = fitted(model.models_, model)[part]
    if isinstance(answering, Loca):
        return explain_history(answering, sharpened(history, power), n, order, known)
    if isinstance(answering, Blend):
        return explain_blend(answering, sharpened(history, power), n, order, known)
    return None
