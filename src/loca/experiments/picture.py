"""A picture of the communities: users in two dimensions, coloured by community, anchors marked."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from loca.files.whole_files import write_whole
from loca.local.loca import Loca
from loca.models.recommender import fitted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Labels = npt.NDArray[np.int64]
Places = npt.NDArray[np.float32]

# Told apart by colour-blind readers too (Paul Tol's bright scheme).
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")
_UNCOVERED = "#dddddd"
_MOST_USERS = 1500


def draw_communities(model: Loca, community_of: Labels, path: Path) -> None:
    """Writes a PNG of the users that the model knows: by their true community, and by the anchor that answers most.

    On the right an anchor's users wear the colour of the anchor's own true community, so that the two halves are
    alike where the communities were found; users that no anchor answers for are grey.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    communities = fitted(model.communities_, model)
    drawn = choose_users(len(community_of), communities.anchors)
    embeddings = model.embed(fitted(model.known_, model).histories(drawn))
    answering = communities.answer_weights(embeddings).toarray()  # (users, communities)
    found = np.where(answering.any(axis=1), community_of[communities.anchors][answering.argmax(axis=1)], -1)
    places = lay_out(embeddings)
    anchor_places = places[np.searchsorted(drawn, communities.anchors)]
    figure = Figure(figsize=(13, 6.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for axes in (left, right):
        _mark_anchors(axes, anchor_places, community_of[communities.anchors])
    _draw_users(left, places, community_of[drawn], "by true community")
    _draw_users(right, places, found, f"by the anchor that answers ({communities.coverage:.0%} of users covered)")
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside lower center", ncols=7, markerscale=1.5, frameon=False
    )
    figure.suptitle(f"{len(drawn):,} users and {len(communities)} anchors, laid out by what they have in common")
    write_whole(path, as_png(figure, dpi=110))


def choose_users(user_count: int, anchors: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The user rows to draw, rising: all anchors, and others evenly up to a number that the eye and t-SNE can take."""
    others = np.linspace(0, user_count - 1, min(user_count, _MOST_USERS)).astype(np.int64)
    return np.union1d(others, anchors)


def lay_out(embeddings: npt.NDArray[Any]) -> Places:
    """Two dimensions for each embedding, near where the embeddings are near (t-SNE with a fixed seed)."""
    from sklearn.manifold import TSNE

    if len(embeddings) < 4:
        return np.zeros((len(embeddings), 2), dtype=np.float32)
    perplexity = min(50.0, (len(embeddings) - 1) / 3)
    layout = TSNE(2, perplexity=perplexity, metric="cosine", init="pca", random_state=0, max_iter=500)
    return np.asarray(layout.fit_transform(embeddings), dtype=np.float32)


def _draw_users(axes: Axes, places: Places, community_of: Labels, title: str) -> None:
    for community in np.unique(community_of):
        members = community_of == community
        colour = _UNCOVERED if community < 0 else _COLOURS[community % len(_COLOURS)]
        label = "nobody answers" if community < 0 else f"community {community + 1}"
        axes.scatter(places[members, 0], places[members, 1], s=9, color=colour, alpha=0.75, linewidths=0, label=label)
    axes.set_title(title, fontsize=11)
    axes.set_xticks([])
    axes.set_yticks([])


def _mark_anchors(axes: Axes, places: Places, community_of: Labels) -> None:
    colours = [_COLOURS[community % len(_COLOURS)] for community in community_of]
    axes.scatter(
        places[:, 0],
        places[:, 1],
        s=130,
        marker="*",
        c=colours,
        edgecolors="black",
        linewidths=1.0,
        zorder=3,
        label="anchor",
    )


def as_png(figure: Any, dpi: float | str = "figure") -> bytes:
    """A picture as PNG, without anything that changes from one run to the next."""
    drawn = BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi, metadata={"Software": None})
    return drawn.getvalue()
