"""A fitted Loca as arrays, facts and parts, and back; what does not fit together is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.communities import Communities, Locality
from loca.communities.embeddings import Embedder
from loca.errors import LocaError, ModelFileError
from loca.local.ease_differences import EaseDifferences
from loca.local.local_models import LocalModels
from loca.local.local_solutions import ItemToItem
from loca.models.recommender import ModelState, Recommender, fitted

if TYPE_CHECKING:
    from loca.local.loca import Loca


def loca_state(model: Loca) -> ModelState:
    """Everything that the fitted model has learned."""
    communities, (items, lifts) = fitted(model.communities_, model), fitted(model.distinctive_, model)
    parts: dict[str, Any] = {"global": model.global_}
    if not model.embeds_itself():
        parts["embedder"] = model.embedder_
    local = fitted(model.locals_, model)
    parts["local models"] = local
    if isinstance(local, EaseDifferences) and local.centre_ is not model.global_:
        parts["centre"] = local.centre_
    own = communities_state(communities)
    learned: dict[str, npt.NDArray[Any]] = {
        "members": fitted(model.members_, model),
        "distinctive_items": items,
        "distinctive_lifts": lifts,
    }
    chosen: dict[str, Any] = {"alpha": model.alpha_, "local_epochs": model.local_epochs_}
    if model.locality_ is not None:
        chosen["locality"] = {
            "effective_share": model.locality_.effective_share,
            "answering": model.locality_.answering,
        }
    return ModelState({**own.arrays, **learned}, {**own.facts, **chosen}, parts)


def communities_state(communities: Communities) -> ModelState:
    """Communities as arrays and facts."""
    return ModelState(
        arrays={"anchors": communities.anchors, "anchor_embeddings": communities.anchor_embeddings},
        facts={
            "train_bandwidth": communities.train_bandwidth,
            "answer_bandwidth": communities.answer_bandwidth,
            "coverage": communities.coverage,
            "kernel": communities.kernel,
        },
    )


def communities_from(state: ModelState) -> Communities:
    """The communities that a state holds; they check themselves."""
    return Communities(
        anchors=state.arrays["anchors"],
        anchor_embeddings=state.arrays["anchor_embeddings"],
        train_bandwidth=state.facts["train_bandwidth"],
        answer_bandwidth=state.facts["answer_bandwidth"],
        kernel=state.facts["kernel"],
        coverage=state.facts["coverage"],
    )


def restore_loca(model: Loca, state: ModelState) -> None:
    """Gives an unfitted model what `state` holds."""
    arrays, facts = state.arrays, state.facts
    try:
        communities = communities_from(state)
    except LocaError as problem:
        raise ModelFileError(str(problem)) from problem
    count = len(communities)
    local = state.parts.get("local models")
    if set(state.parts) - {"embedder", "centre"} != {"global", "local models"} or not isinstance(local, LocalModels):
        raise ModelFileError(f"loca: expected a global and local models, found {', '.join(sorted(state.parts))}")
    if not isinstance(state.parts["global"], Recommender):
        raise ModelFileError("loca: the global model is not a recommender")
    if isinstance(local, EaseDifferences):
        put_centre(local, state.parts.get("centre", state.parts["global"]))
    if len(local) != count:
        raise ModelFileError(f"loca: expected {count} local models, found {len(local)}")
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
    _refuse_other_items(state.parts["global"], local, communities, embedder, int(items.max(initial=0)))
    model.global_ = state.parts["global"]
    model.embedder_ = embedder
    model.communities_ = communities
    model.locals_ = local
    model.local_epochs_ = facts["local_epochs"]
    model.alpha_ = float(facts["alpha"])
    model.locality_ = _locality(model.alpha_, facts.get("locality"))
    model.members_ = members
    model.distinctive_ = (items, lifts)


def _locality(alpha: float, written: Any) -> Locality | None:
    """How local the model is; None for one that was saved before this was measured."""
    if written is None:
        return None
    figures = written if isinstance(written, dict) else {}
    share, answering = figures.get("effective_share"), figures.get("answering")
    for one in (share, answering):
        if not isinstance(one, int | float) or not 0 <= one < float("inf"):
            raise ModelFileError(f"loca: expected the figures of its locality as numbers ≥ 0, found {written!r}")
    return Locality(alpha, float(share or 0), float(answering or 0))


def put_centre(local: EaseDifferences, centre: Any) -> None:
    """Gives differences of EASE models the model that they are differences to."""
    if not isinstance(centre, ItemToItem):
        raise ModelFileError(
            f"expected an EASE or NextEASE that the local models differ from, found {type(centre).__name__}"
        )
    local.around(centre)


def _refuse_other_items(
    global_model: Recommender, local: LocalModels, communities: Communities, embedder: Embedder, largest: int
) -> None:
    """Refuses parts that score other items than the global model, or embed into another space than the anchors'."""
    item_count = global_model.count_items()
    if local.count_items() != item_count or largest >= item_count:
        raise ModelFileError(f"loca: expected parts that all score the same {item_count} items")
    try:
        dimensions = embedder.embed(csr_array(np.zeros((1, item_count), dtype=np.float32))).shape[1]
    except LocaError as problem:
        raise ModelFileError(f"loca: the embedder does not fit: {problem}") from problem
    if dimensions != communities.anchor_embeddings.shape[1]:
        raise ModelFileError(f"loca: the embedder gives {dimensions} dimensions, the anchors have others")
