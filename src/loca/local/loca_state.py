"""A fitted Loca as arrays, facts and parts, and back; what does not fit together is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from loca.communities.communities import Communities
from loca.communities.embeddings import Embedder
from loca.errors import LocaError, ModelFileError
from loca.models.recommender import ModelState, Recommender, fitted

if TYPE_CHECKING:
    from loca.local.loca import Loca


def loca_state(model: Loca) -> ModelState:
    """Everything that the fitted model has learned."""
    communities, (items, lifts) = fitted(model.communities_, model), fitted(model.distinctive_, model)
    parts: dict[str, Any] = {"global": model.global_}
    if not model.embeds_itself():
        parts["embedder"] = model.embedder_
    parts |= {f"local {number}": local for number, local in enumerate(fitted(model.locals_, model))}
    return ModelState(
        arrays={
            "anchors": communities.anchors,
            "anchor_embeddings": communities.anchor_embeddings,
            "members": fitted(model.members_, model),
            "distinctive_items": items,
            "distinctive_lifts": lifts,
        },
        facts={
            "train_bandwidth": communities.train_bandwidth,
            "answer_bandwidth": communities.answer_bandwidth,
            "coverage": communities.coverage,
            "kernel": communities.kernel,
            "alpha": model.alpha_,
            "local_epochs": model.local_epochs_,
        },
        parts=parts,
    )


def restore_loca(model: Loca, state: ModelState) -> None:
    """Gives an unfitted model what `state` holds."""
    arrays, facts = state.arrays, state.facts
    try:
        communities = Communities(
            anchors=arrays["anchors"],
            anchor_embeddings=arrays["anchor_embeddings"],
            train_bandwidth=facts["train_bandwidth"],
            answer_bandwidth=facts["answer_bandwidth"],
            kernel=facts["kernel"],
            coverage=facts["coverage"],
        )
    except LocaError as problem:
        raise ModelFileError(str(problem)) from problem
    count = len(communities)
    expected = {"global", *(f"local {number}" for number in range(count))}
    if set(state.parts) - {"embedder"} != expected:
        raise ModelFileError(f"loca: expected a global model and {count} local models, found {len(state.parts)} parts")
    items, lifts, members = arrays["distinctive_items"], arrays["distinctive_lifts"], arrays["members"]
    if members.shape != (count,) or items.ndim != 2 or len(items) != count or lifts.shape != items.shape:
        raise ModelFileError(f"loca: the arrays do not fit {count} communities")
    if not (items.dtype.kind == "i" and (items >= 0).all() and (communities.anchors >= 0).all()):
        raise ModelFileError("loca: an item or an anchor has a row below 0")
    if not np.isfinite(communities.anchor_embeddings).all():
        raise ModelFileError("loca: the anchor embeddings hold NaN or infinity")
    if not isinstance(facts["alpha"], int | float) or not 0 <= facts["alpha"] <= 1:
        raise ModelFileError(f"loca: expected alpha from 0 to 1, found {facts['alpha']!r}")
    embedder = state.parts.get("embedder", state.parts["global"])
    if not isinstance(embedder, Embedder):
        raise ModelFileError(f"loca: {type(embedder).__name__} cannot embed histories")
    if not all(isinstance(state.parts[name], Recommender) for name in expected):
        raise ModelFileError("loca: a part is not a recommender")
    _refuse_other_items(
        [state.parts[name] for name in sorted(expected)], communities, embedder, int(items.max(initial=0))
    )
    model.global_ = state.parts["global"]
    model.embedder_ = embedder
    model.communities_ = communities
    model.locals_ = [state.parts[f"local {number}"] for number in range(count)]
    model.local_epochs_ = facts["local_epochs"]
    model.alpha_ = float(facts["alpha"])
    model.members_ = members
    model.distinctive_ = (items, lifts)


def _refuse_other_items(models: list[Recommender], communities: Communities, embedder: Embedder, largest: int) -> None:
    """Asks every part for an empty history: all must score the same items, and embed into the anchors' space."""
    item_count = models[0].count_items()
    if any(model.count_items() != item_count for model in models) or largest >= item_count:
        raise ModelFileError(f"loca: expected parts that all score the same {item_count} items")
    try:
        dimensions = embedder.embed(csr_array(np.zeros((1, item_count), dtype=np.float32))).shape[1]
    except LocaError as problem:
        raise ModelFileError(f"loca: the embedder does not fit: {problem}") from problem
    if dimensions != communities.anchor_embeddings.shape[1]:
        raise ModelFileError(f"loca: the embedder gives {dimensions} dimensions, the anchors have others")
