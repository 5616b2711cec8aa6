"""Show a fitted model: a map of its users, its communities, search, and a page in one file."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

import loca
from loca.communities.embeddings import TruncatedSVD, embed_users
from loca.communities.finder import Communities, evenly_spaced_rows
from loca.data.histories import HistoryWeights, resolve_histories
from loca.data.id_map import Id, IdMap, plain_words
from loca.data.interactions import Interactions
from loca.errors import DataError, check_choice
from loca.evaluation.explain import items_json
from loca.evaluation.top_n import as_array, check_list_length, rank_top_n
from loca.local.community_models import CommunityModels
from loca.local.community_names import name_rows, short_title
from loca.local.loca import Loca
from loca.models.recommender import Recommender, fitted
from loca.persistence.atomic_write import write_whole
from loca.progress import bar
from loca.random_streams import stream
from loca.text_table import finite
from loca.typing import FloatArray, IntArray

PAGE = Path(__file__).parent / "page"
Points = npt.NDArray[np.float64]  # × 2
_MAGIC = b"LOCAMAP1"
_NO_COMMUNITY = 65535
_USERS_PER_BLOCK = 8192
_SAMPLE_USERS = 20_000  # the axes of the map are found on at most so many users
_DIMENSIONS = 16  # of histories, where a model has no communities
_TYPICAL = 50  # members whose mean history stands for a community
_TYPICAL_LISTED = 5
# Memberships are often certain, and all members would lie in one place: the first of these
# temperatures is taken by which the largest membership is at most so large, in the mean.
_TEMPERATURES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_TEMPERATURES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_LARGEST_MEMBERSHIP = 0.75
_SPREAD = 0.05  # of a user around its place, in standard deviations of the centres of communities
# For the first division: where others say nearly the same, neighbours have one colour.
_FAVOUR = 0.25
_ROUNDS = 300  # of moving the centres of communities to their distances
# So much of the map is for all but this share of the users at each side.
_WITHIN = 0.9
_OUTSIDE = 0.005
_LONGEST_SEARCH = 200
_LISTED_ITEMS = 10  # of an exported user
_REASONS = 8  # of each of these items


@dataclass(frozen=True, eq=False)
class UserMap:
    """Users as points: those alike lie near one another.

    Parameters
    ----------
    points : ndarray of float32
        Users shown × 2, within −1 … 1.
    rows : ndarray of int64
        The user row of each point, rising.
    community : ndarray of int32
        The strongest community of each point; −1 for none.
    centres : ndarray of float32
        Communities × 2.
    typical : ndarray of int64
        Communities × at most 50: the rows of the users shown who belong most, −1 where there are
        fewer.
    memberships : ndarray of float32
        How much those belong.
    """

    points: FloatArray
    rows: IntArray
    community: npt.NDArray[np.int32]
    centres: FloatArray
    typical: IntArray
    memberships: FloatArray

    def point_of(self, user_row: int) -> int | None:
        """Return the number of a user's point; None for a user who is not shown."""
        number = int(np.searchsorted(self.rows, user_row))
        is_shown = number < len(self.rows) and self.rows[number] == user_row
        return number if is_shown else None

    def to_bytes(self) -> bytes:
        """Return points, rows and communities as little-endian numbers, as `GET /v1/map` does."""
        counts = np.array([len(self.rows), len(self.centres)], "<u4")
        communities = np.where(self.community < 0, _NO_COMMUNITY, self.community).astype("<u2")
        arrays = (counts, self.points.astype("<f4"), self.rows.astype("<u4"), communities)
        return _MAGIC + b"".join(array.tobytes() for array in arrays)


# -- The map --------------------------------------------------------------------------------------


def map_users(model: Recommender, most: int = 200_000) -> UserMap:
    """Lay out the users with a history, all or at most so many, evenly spaced.

    Where memberships are probabilities, communities are laid out by what their members have, and
    each user lies among them by its memberships. Otherwise the map has the two principal axes of
    the positions at which communities locate histories, or, without communities, of a truncated SVD
    of the histories.
    """
    known = known_data(model)
    local = _with_communities(model)
    rows = np.flatnonzero(known.counts() > 0)
    rows = rows[evenly_spaced_rows(len(rows), most)]
    layout = _layout(known, rows, None if local is None else local.communities)
    points = np.zeros((len(rows), 2))
    strongest = np.full(len(rows), -1, np.int32)
    members = _Members(layout.communities)
    for start in range(0, len(rows), _USERS_PER_BLOCK):
        block = slice(start, start + _USERS_PER_BLOCK)
        positions = layout.locate(known.histories(rows[block]))
        points[block] = layout.place(positions)
        strongest[block] = members.add(rows[block], positions, points[block])
    centres = layout.centres
    if layout.spread:
        points += layout.spread * stream(0, "map of users").normal(size=points.shape)
    if layout.centres_are_members:
        centres = members.centres(centres)
    low, high = np.quantile(points, (_OUTSIDE, 1 - _OUTSIDE), axis=0)
    middle = (low + high) / 2
    reach = np.maximum((high - low) / 2, 1e-12)
    return UserMap(
        points=_squeezed(_WITHIN * (points - middle) / reach),
        rows=rows,
        community=strongest,
        centres=_squeezed(_WITHIN * (centres - middle) / reach),
        typical=members.typical,
        memberships=members.memberships,
    )


@dataclass(frozen=True, eq=False)
class _Layout:
    """How histories become points.

    `place` turns positions into points. `spread` is how far users are moved apart at random.
    `centres` are those of the communities; with `centres_are_members` these come to lie where their
    members are.
    """

    communities: Communities | None
    locate: Callable[[csr_array], FloatArray]
    place: Callable[[FloatArray], Points]
    centres: Points
    centres_are_members: bool = False
    spread: float = 0.0


def _layout(known: Interactions, rows: IntArray, communities: Communities | None) -> _Layout:
    """Return how the users of some rows are laid out."""
    sample = rows[evenly_spaced_rows(len(rows), _SAMPLE_USERS)]
    histories = known.histories(sample)
    if communities is None:
        svd = TruncatedSVD(dimensions=_DIMENSIONS).fit(known.of_users(sample))
        locate = partial(embed_users, svd)
        place = _principal_axes(locate(histories))
        return _Layout(communities, locate, place, centres=np.zeros((0, 2)))
    positions = communities.locate(histories)
    if communities.divisions:
        place, centres = _among_communities(histories, positions, communities)
        spread = _SPREAD * float(centres.std() or 1.0)
        return _Layout(communities, communities.locate, place, centres, True, spread)
    place = _principal_axes(positions)
    if communities.anchors is None:
        nowhere = np.zeros((len(communities), 2))
        return _Layout(communities, communities.locate, place, nowhere, True)
    centres = place(communities.locate(known.histories(communities.anchors)))
    return _Layout(communities, communities.locate, place, centres)


class _Members:
    """Who belongs to each community, and where they are on the map, block by block of users."""

    def __init__(self, communities: Communities | None) -> None:
        n = 0 if communities is None else len(communities)
        self._communities = communities
        self._sums = np.zeros((n, 2))
        self._totals = np.zeros((n, 1))
        self._favour = np.zeros(n, np.float32)
        if communities is not None and communities.divisions:
            self._favour[: n // communities.divisions] = _FAVOUR
        self.typical = np.full((n, _TYPICAL), -1)
        self.memberships = np.zeros((n, _TYPICAL), np.float32)

    def add(self, rows: IntArray, positions: FloatArray, points: Points) -> npt.NDArray[np.int32]:
        """Add users, and return the strongest community of each; −1 for none."""
        if self._communities is None:
            return np.full(len(rows), -1, np.int32)
        sparse = self._communities.memberships(positions)
        memberships = np.asarray(sparse.toarray(), dtype=np.float32)  # (users, communities)
        self._sums = self._sums + memberships.T @ points
        self._totals = self._totals + memberships.sum(axis=0)[:, None]
        # The most typical so far and those of the block, the strongest first.
        values = np.concatenate([self.memberships, memberships.T], axis=1)
        users = np.concatenate([self.typical, np.where(memberships.T > 0, rows, -1)], axis=1)
        best = np.argpartition(-values, _TYPICAL - 1, axis=1)[:, :_TYPICAL]
        values, users = _taken(best, values, users)
        order = np.lexsort((users, -values), axis=1)
        self.memberships, self.typical = _taken(order, values, users)
        strongest = (memberships + self._favour).argmax(axis=1)
        return np.where(memberships.max(axis=1) > 0, strongest, -1).astype(np.int32)

    def centres(self, otherwise: Points) -> Points:
        """Return where the members are; `otherwise` for communities without any."""
        return np.divide(self._sums, self._totals, out=otherwise, where=self._totals > 0)


def _taken(columns: IntArray, values: FloatArray, users: IntArray) -> tuple[FloatArray, IntArray]:
    """Return some columns of two arrays, others in each row."""
    return np.take_along_axis(values, columns, axis=1), np.take_along_axis(users, columns, axis=1)


def _principal_axes(positions: FloatArray) -> Callable[[FloatArray], Points]:
    """Return what projects positions onto the two directions in which these vary most."""
    mean = positions.mean(axis=0, dtype=np.float64)
    covariance = (positions - mean).T @ (positions - mean)
    axes = _last_two(np.linalg.eigh(covariance)[1])  # (dimensions, 2)
    return lambda rows: np.asarray((rows - mean) @ axes)


def _last_two(vectors: npt.NDArray[Any]) -> Points:
    """Return the last two columns, the last one first, with their largest entries above 0.

    A missing column is zeros.
    """
    axes = np.zeros((len(vectors), 2))
    axes[:, : vectors.shape[1]] = vectors[:, ::-1][:, :2]
    return axes * np.where(axes[np.abs(axes).argmax(axis=0), [0, 1]] < 0, -1, 1)


def _among_communities(
    histories: csr_array, positions: FloatArray, communities: Communities
) -> tuple[Callable[[FloatArray], Points], Points]:
    """Return what places users among communities by memberships, and the communities' centres."""
    for temperature in _TEMPERATURES:
        memberships = communities.flattened(positions, temperature)
        if memberships.max(axis=1).mean() * communities.divisions <= _LARGEST_MEMBERSHIP:
            break
    items = csr_array(communities.memberships(positions).T @ histories).toarray()
    # Also a community that nobody belongs to has a profile.
    items += np.asarray(histories.mean(axis=0)).ravel()
    profiles = np.sqrt(items / np.maximum(items.sum(axis=1, keepdims=True), 1e-12))
    hellinger = np.sqrt(np.maximum(1 - profiles @ profiles.T, 0))
    centres = _points_apart(hellinger)
    return lambda rows: np.asarray(communities.flattened(rows, temperature) @ centres), centres


def _points_apart(distances: npt.NDArray[Any]) -> Points:
    """Return points in the plane with about these distances.

    They come from classical scaling, and from rounds that lower the stress.
    """
    n = len(distances)
    centring = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(-0.5 * centring @ np.square(distances) @ centring)
    points = _last_two(vectors * np.sqrt(np.maximum(values, 0)))
    for _ in range(_ROUNDS):
        apart = np.linalg.norm(points[:, None] - points, axis=2)
        ratios = np.divide(distances, apart, out=np.zeros_like(apart), where=apart > 1e-9)
        points = (ratios.sum(axis=1)[:, None] * points - ratios @ points) / n
    return points


def _squeezed(points: Points) -> FloatArray:
    """Return points within −1 … 1: what is far outside comes near the border."""
    distances = np.abs(points)
    width = 1 - _WITHIN
    beyond = np.maximum(distances - _WITHIN, 0)
    squeezed = np.minimum(distances, _WITHIN) + width * np.tanh(beyond / width)
    return np.asarray(np.sign(points) * squeezed, np.float32)


# -- The model and its communities ----------------------------------------------------------------


def known_data(model: Recommender) -> Interactions:
    """Return what a model was fitted on; refuse a model that was fitted on a bare matrix."""
    if model.train_data_ is None:
        raise DataError(
            "this model was fitted on a bare matrix and knows no ids; fit it on Interactions"
        )
    return model.train_data_


def local_model(model: Recommender) -> Loca | None:
    """Return the model as a Loca; None for other models, also where a part of one is a Loca."""
    return cast(Loca, model) if model.role == "local" else None


def _with_communities(model: Recommender) -> CommunityModels | None:
    """Return all that is local in a model; None where no community can be shown."""
    loca_model = local_model(model)
    if loca_model is None:
        return None
    local = fitted(loca_model.local_, loca_model)
    return local if local.communities.members_are_alike else None


def _alpha(model: Recommender) -> float | None:
    """Return the global model's share of an answer; None for a model without local ones."""
    loca_model = local_model(model)
    if loca_model is None:
        return None
    return fitted(loca_model.local_, loca_model).description.locality.alpha


def model_facts(model: Recommender) -> dict[str, Any]:
    """Return a model's kind, what it was fitted on and the remarks of its fit, as JSON values."""
    known = known_data(model)
    local = _with_communities(model)
    kind = type(model).__name__
    base = [type(inner).__name__ for inner in model.inner_models()]
    labels = {"local": f"LOCA over {base[0]}", "ensemble": f"Ensemble of {base[0]}"} if base else {}
    return {
        "kind": kind,
        "label": labels.get(model.role, kind),
        "users": known.n_users,
        "items": known.n_items,
        "interactions": len(known),
        "recency": None if known.recency is None else str(known.recency),
        "communities": 0 if local is None else len(local.communities),
        "alpha": _alpha(model),
        "notes": [note.to_json() for note in model.remarks_],
    }


def _names(known: Interactions, local: CommunityModels) -> list[str]:
    """Return what communities are called: around an anchor, or by what their members have."""
    communities = local.communities
    if communities.anchors is not None and not communities.divisions:
        return [f"around {anchor}" for anchor in known.users.ids(communities.anchors)]
    description = local.description
    # Of equal names that of the smaller community changes.
    by_size = np.argsort(-description.members, kind="stable").tolist()
    naming = name_rows(
        {
            number: (description.distinctive_items[number], description.lifts[number])
            for number in by_size
        }
    )
    return [
        ", ".join(short_title(known.items, row) for row in naming[number])
        or "nothing beyond what is popular"
        for number in range(len(communities))
    ]


def _about(known: Interactions, local: CommunityModels, number: int, name: str) -> dict[str, Any]:
    """Return what is said of a community wherever it is named."""
    communities = local.communities
    mixture = None
    if communities.divisions:
        mixture = number * communities.divisions // len(communities)
    anchor = None
    if communities.anchors is not None:
        anchor = known.users.ids(communities.anchors[[number]])[0]
    return {
        "community": number,
        "name": name,
        "members": int(local.description.members[number]),
        "mixture": mixture,
        "anchor": anchor,
    }


def _kind(local: CommunityModels | None) -> str:
    """Return what tells communities apart: mixtures with memberships, or anchors."""
    if local is None:
        return "none"
    if local.communities.divisions:
        return "mixtures"
    return "members" if local.communities.anchors is None else "anchors"


def list_communities(model: Recommender, users: UserMap) -> dict[str, Any]:
    """Return all communities with their names, sizes and places on the map, as JSON values.

    The list is empty where the model has none.
    """
    known = known_data(model)
    local = _with_communities(model)
    names = [] if local is None else _names(known, local)
    communities = [
        {**_about(known, cast(CommunityModels, local), number, name), "x": x, "y": y}
        for number, (name, (x, y)) in enumerate(zip(names, users.centres.tolist(), strict=True))
    ]
    return {
        "kind": _kind(local),
        "alpha": _alpha(model),
        "users": known.n_users,
        "communities": communities,
    }


def describe_community(
    model: Recommender, number: int, n: int = 10, users: UserMap | None = None
) -> dict[str, Any]:
    """Return what a community's members have beyond others, typical users, and two lists.

    Its own list and the global model's are for the mean history of its most typical members on the
    map `users`, which is made where it is None; nothing is hidden.
    """
    check_list_length(n)
    known = known_data(model)
    local = _with_communities(model)
    count = 0 if local is None else len(local.communities)
    if local is None or not 0 <= number < count:
        there = f"communities 0 to {count - 1}" if count else "no communities"
        raise DataError(f"unknown community {number}; this model has {there}")
    users = map_users(model) if users is None else users
    items = local.description.distinctive_items[number]
    lifts = local.description.lifts[number]
    beyond = np.flatnonzero(lifts > 1)[:n]
    is_member = users.typical[number] >= 0
    typical = users.typical[number][is_member]
    memberships = users.memberships[number][is_member]
    history = mean_history(known, typical, memberships)
    global_model = cast(Loca, model).global_
    return {
        **_about(known, local, number, _names(known, local)[number]),
        "users": known.n_users,
        "known_for": items_json(known.items, items[beyond], lift=lifts[beyond]),
        "typical_users": _typical_users(known, typical, memberships),
        "items": _listed(known.items, local.models.score_with(number, history), n),
        "global": _listed(known.items, fitted(global_model, model).score(history), n),
    }


def _typical_users(
    known: Interactions, rows: IntArray, memberships: FloatArray
) -> list[dict[str, Any]]:
    triples = zip(known.users.ids(rows), rows.tolist(), memberships.tolist(), strict=True)
    listed = [
        {"user": user, "row": row, "membership": membership} for user, row, membership in triples
    ]
    return listed[:_TYPICAL_LISTED]


def mean_history(known: Interactions, rows: IntArray, weights: FloatArray) -> csr_array:
    """Return the weighted mean of the histories of some users, 1 × items; empty without any."""
    if not len(rows):
        return csr_array(np.zeros((1, known.n_items), np.float32))
    # Rows rise: interactions are chosen in their order.
    order = np.argsort(rows)
    shares = csr_array((weights[order] / weights.sum())[None].astype(np.float32))  # (1, users)
    mean: csr_array = cast(Any, shares @ known.histories(rows[order]))
    mean.sort_indices()
    return mean


def _listed(names: IdMap, scores: Any, n: int) -> list[dict[str, Any]]:
    """Return the n best items of one row of scores, as replies have them."""
    items, best = rank_top_n(as_array(scores), None, min(n, len(names)))
    listed = items_json(names, items[0], score=best[0])
    return [{**item, "rank": rank} for rank, item in enumerate(listed, 1)]


def describe_user(model: Recommender, users: UserMap, row: int) -> dict[str, Any]:
    """Return a user's id, place on the map and strongest community.

    The last two are None for a user who is not on the map.
    """
    known = known_data(model)
    if not 0 <= row < known.n_users:
        raise DataError(f"unknown user row {row}; this model has rows 0 to {known.n_users - 1}")
    about = {
        "user": known.users.ids([row])[0],
        "row": row,
        "x": None,
        "y": None,
        "community": None,
    }
    number = users.point_of(row)
    if number is None:
        return about
    x, y = users.points[number].tolist()
    community = int(users.community[number])
    return {**about, "x": x, "y": y, "community": None if community < 0 else community}


def history_counts(
    model: Recommender, user_or_history: Any, recency: HistoryWeights = "model"
) -> list[float]:
    """Return what each item of one history counts by its recency, as in `Explanation.history`."""
    histories = resolve_histories(
        user_or_history, model.train_data_, model.count_items(), recency=recency
    )
    weights = histories.matrix(np.zeros(1, np.int64)).toarray()[0]
    return [float(weights[item]) for item in histories.order(0)]


# -- Search ---------------------------------------------------------------------------------------


class _SortedTexts:
    """Texts in alphabetical order with the rows that they stand in, found by how they begin."""

    def __init__(self, texts: Iterable[tuple[str, int]]) -> None:
        pairs = sorted(texts)
        self.texts = [text for text, _ in pairs]
        self.rows = np.array([row for _, row in pairs], np.int64)

    def beginning_with(self, text: str) -> IntArray:
        """Return the rows of all texts that begin with one."""
        first = bisect_left(self.texts, text)
        end = bisect_left(self.texts, text + chr(sys.maxunicode))
        return self.rows[first:end]


class _Index:
    """Ids and titles, to be searched as somebody types."""

    def __init__(self, names: IdMap) -> None:
        labels = [] if names.labels is None else names.labels.tolist()
        titles = [plain_words(str(label)) for label in labels]
        self.n_titles = len(titles)
        self.ids = _SortedTexts(
            (_folded(str(value)), row) for row, value in enumerate(names.values.tolist())
        )
        self.titles = _SortedTexts((title, row) for row, title in enumerate(titles))
        self.words = _SortedTexts(
            (word, row) for row, title in enumerate(titles) for word in title.split()
        )

    def search(self, text: str, n: int) -> list[int]:
        """Return n rows: ids that begin with a text, titles that do, then titles with its words."""
        rows = [self.ids.beginning_with(_folded(text))[:n]]
        words = plain_words(text).split()
        if words:
            has_words = np.ones(self.n_titles, bool)
            for word in words:
                has_word = np.zeros(self.n_titles, bool)
                has_word[self.words.beginning_with(word)] = True
                has_words &= has_word
            rows.append(self.titles.beginning_with(" ".join(words))[:n])
            rows.append(np.flatnonzero(has_words)[: 2 * n])
        return list(dict.fromkeys(np.concatenate(rows).tolist()))[:n]


_INDEXES: WeakKeyDictionary[IdMap, _Index] = WeakKeyDictionary()


def _folded(text: str) -> str:
    """Return text without case and accents."""
    if text.isascii():
        return text.lower()
    letters = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def search(known: Interactions, text: str, what: str = "all", n: int = 20) -> dict[str, Any]:
    """Return users and items whose id begins with a text, then those whose title has all its words.

    A word is found by its beginning. Case and accents do not count, nor what is beyond 200
    characters. Titles that begin with the text come first.
    """
    check_choice("what", what, ("users", "items", "all"))
    n = check_list_length(n)
    text = text[:_LONGEST_SEARCH].strip()

    def search_among(name: str, names: IdMap) -> list[int]:
        if names not in _INDEXES:
            _INDEXES[names] = _Index(names)
        return _INDEXES[names].search(text, n) if text and what in (name, "all") else []

    user_rows = search_among("users", known.users)
    item_rows = search_among("items", known.items)
    users = zip(known.users.ids(user_rows), user_rows, strict=True)
    return {
        "users": [{"user": user, "row": row} for user, row in users],
        "items": items_json(known.items, np.array(item_rows, np.int64)),
    }


# -- The exported page ----------------------------------------------------------------------------


def export_page(
    model: Recommender, name: str, fingerprint: str, path: Path, users: int = 200, page: Path = PAGE
) -> int:
    """Write the explorer with all that it shows of a model into one HTML file.

    The file needs no service and loads nothing. Each listed item has its 8 strongest reasons.

    Returns
    -------
    int
        How many users have a list in it: at most `users` of those on the map, evenly spaced.
    """
    check_list_length(users)
    html, script = _in_one_file(page)
    shown = map_users(model)
    about = {"model": name, "fingerprint": fingerprint}
    communities = list_communities(model, shown)
    described = {
        number: {**about, **describe_community(model, number, _LISTED_ITEMS, shown)}
        for number in range(len(communities["communities"]))
    }
    exported = _exported_users(model, shown, users, about)
    data = {
        "models": _exported_models(model, name, fingerprint),
        "communities": {**about, **communities},
        "map": base64.b64encode(shown.to_bytes()).decode(),
        "community": described,
        "users": exported,
    }
    text = json.dumps(finite(data), ensure_ascii=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c")
    end = f'<script type="application/json" id="loca-data">{text}</script>\n{script}\n</body>'
    write_whole(path, html.replace("</body>", end, 1))
    return len(exported)


def _exported_models(model: Recommender, name: str, fingerprint: str) -> dict[str, Any]:
    """Return what `GET /v1/models` would say of the model."""
    entry = {
        "name": name,
        **model_facts(model),
        "fingerprint": fingerprint,
        "folder": name,
        "error": None,
        "loaded_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return {
        "models": [entry],
        "default": name,
        "requests": 0,
        "p50_ms": None,
        "p99_ms": None,
        "queue": 0,
        "version": loca.__version__,
    }


def _exported_users(
    model: Recommender, shown: UserMap, most: int, about: dict[str, str]
) -> dict[int, Any]:
    """Return the lists of some users, with the strongest reasons of each item."""
    known = known_data(model)
    rows = shown.rows[evenly_spaced_rows(len(shown.rows), most)].tolist()
    exported: dict[int, Any] = {}
    with bar("explaining lists", len(rows)) as progress:
        for row in rows:
            user: Id = known.users.ids([row])[0]
            explanation = model.explain(user, n=_LISTED_ITEMS).to_json()
            for item in explanation["items"]:
                item["because"] = sorted(item["because"], key=_strength)[:_REASONS]
            explanation["counts"] = history_counts(model, user)
            exported[row] = {
                "user": {**about, **describe_user(model, shown, row)},
                "explain": {**about, **explanation},
            }
            progress.advance(1)
    return exported


def _strength(reason: dict[str, Any]) -> float:
    return -abs(float(reason["contribution"]))


def _in_one_file(page: Path) -> tuple[str, str]:
    """Return the built page with its style inside, and its script for the end of it.

    Nothing is allowed to come from elsewhere.
    """
    try:
        html, script, style = (
            (page / name).read_text("utf-8")
            for name in ("index.html", "explorer.js", "explorer.css")
        )
    except OSError as error:
        raise DataError(
            f"{page}: the explorer's page cannot be read ({error.strerror}); install loca anew"
        ) from None
    # The script may not end its element: `<\/` and `<\!` are the same to it.
    script = re.sub(r"<(/script|!--)", r"<\\\1", script, flags=re.IGNORECASE)
    rules = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    policy = f'<meta http-equiv="Content-Security-Policy" content="{rules}">'
    html = re.sub(r"<script\b[^>]*\bsrc=[^>]*>\s*</script>\s*|<link\b[^>]*>\s*", "", html)
    html = re.sub(r"<meta charset[^>]*>", lambda meta: f"{meta[0]}\n{policy}", html, count=1)
    html = html.replace("</head>", f"<style>{style}</style>\n</head>", 1)
    return html, f"<script>{script}</script>"


def _hash(text: str) -> str:
    """Return the hash by which a content policy allows a script or a style."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
