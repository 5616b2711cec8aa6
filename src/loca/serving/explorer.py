"""What the explorer shows of a fitted model: a map of its users, its communities, search, and a page in one file."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

import loca
from loca.communities.communities import MixtureCommunities
from loca.communities.embeddings import TruncatedSVD, embed_users
from loca.communities.geometry import Floats
from loca.communities.mixture import RandomGroups
from loca.data.histories import HistoryWeights, resolve_histories
from loca.data.id_map import Id, IdMap, plain_words
from loca.data.interactions import Interactions
from loca.errors import DataError, check_choice
from loca.evaluation.explain import items_json
from loca.evaluation.top_n import as_array, check_list_length, rank_top_n
from loca.local.community_choice import every_nth
from loca.local.explain import naming_items, short_title
from loca.local.loca import Loca
from loca.models.recommender import Recommender, fitted
from loca.persistence.atomic_write import write_whole
from loca.progress import bar
from loca.random_streams import stream
from loca.text_table import finite

PAGE = Path(__file__).parent / "page"
Rows = npt.NDArray[np.int64]
Places = npt.NDArray[Any]  # × 2
_MAGIC, _NO_COMMUNITY = b"LOCAMAP1", 65535
_USERS_PER_BLOCK = 8192
_SAMPLE_USERS = 20_000  # the axes of the map are found on at most so many users
_DIMENSIONS = 16  # of histories, where a model has no communities
_TYPICAL, _TYPICAL_SHOWN = (
    50,
    5,
)  # members whose mean history stands for a community, and those that are listed
# Memberships are often certain, and all members would lie in one place: the first of these temperatures is taken by
# which the largest membership is at most so large, in the mean.
_TEMPERATURES, _LARGEST = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0), 0.75
_SPREAD = 0.05  # of a user around its place, in standard deviations of the centres of communities
_FAVOUR = 0.25  # of the first mixture: where others say nearly the same, neighbours have one colour
_ROUNDS = 300  # of moving the centres of communities to their distances
_WITHIN, _OUTSIDE = (
    0.9,
    0.005,
)  # so much of the map is for all but this share of the users at each side
_MOST_TEXT = 200
_LIST, _REASONS = 10, 8  # of an exported user: items listed, and reasons of each


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
        Communities × at most 50: the rows of the users shown who belong most, −1 where there are fewer.
    memberships : ndarray of float32
        How much those belong.
    """

    points: Floats
    rows: Rows
    community: npt.NDArray[np.int32]
    centres: Floats
    typical: Rows
    memberships: Floats

    def place(self, row: int) -> int | None:
        """The number of a user's point; None for one who is not shown."""
        found = int(np.searchsorted(self.rows, row))
        return found if found < len(self.rows) and self.rows[found] == row else None

    def to_bytes(self) -> bytes:
        """The points, rows and communities as little-endian numbers, as `GET /v1/map` sends them."""
        numbers = np.array([len(self.rows), len(self.centres)], "<u4")
        communities = np.where(self.community < 0, _NO_COMMUNITY, self.community).astype("<u2")
        arrays = (numbers, self.points.astype("<f4"), self.rows.astype("<u4"), communities)
        return _MAGIC + b"".join(one.tobytes() for one in arrays)


# -- The map -----------------------------------------------------------------------------------------------------------


def map_users(model: Recommender, most: int = 200_000) -> UserMap:
    """Lay out the users with a history, all or at most so many, evenly spaced.

    Communities of mixtures are laid out by what their members have, and each user lies among them by memberships.
    Otherwise the map has the two principal axes of the embeddings: those of a Loca with kernels, else of a truncated
    SVD of the histories.
    """
    known, local = known_data(model), _with_communities(model)
    rows = np.flatnonzero(known.counts() > 0)
    rows = rows[every_nth(len(rows), most)]
    sample = rows[every_nth(len(rows), _SAMPLE_USERS)]
    if local is None:
        svd = TruncatedSVD(dimensions=_DIMENSIONS).fit(known.of_users(sample))
    embed = partial(embed_users, svd) if local is None else local.embed
    communities = None if local is None else fitted(local.communities_, local)
    count = 0 if communities is None else len(communities)
    if isinstance(communities, MixtureCommunities):
        histories = known.histories(sample)
        place, centres = _among_communities(histories, embed(histories), communities)
    else:
        place, centres = _principal_axes(embed(known.histories(sample))), np.zeros((0, 2))
        if communities is not None:
            centres = place(embed(known.histories(communities.anchors)))
    points: Places = np.zeros((len(rows), 2))
    strongest = np.full(len(rows), -1, np.int32)
    favour = np.zeros(count, np.float32)
    if isinstance(communities, MixtureCommunities):
        favour[: count // communities.mixtures] = _FAVOUR
    sums, totals = np.zeros((count, 2)), np.zeros((count, 1))
    typical, memberships = np.full((count, _TYPICAL), -1), np.zeros((count, _TYPICAL), np.float32)
    for start in range(0, len(rows), _USERS_PER_BLOCK):
        block = rows[start : start + _USERS_PER_BLOCK]
        embeddings = embed(known.histories(block))
        points[start : start + len(block)] = place(embeddings)
        if communities is None:
            continue
        held = np.asarray(
            communities.memberships(embeddings).toarray(), dtype=np.float32
        )  # (users, communities)
        place_of = (held + favour).argmax(axis=1)
        strongest[start : start + len(block)] = np.where(held.max(axis=1) > 0, place_of, -1)
        sums, totals = (
            sums + held.T @ points[start : start + len(block)],
            totals + held.sum(axis=0)[:, None],
        )
        # The most typical so far and those of the block, the strongest first.
        values = np.concatenate([memberships, held.T], axis=1)
        who = np.concatenate([typical, np.where(held.T > 0, block, -1)], axis=1)
        best = np.argpartition(-values, _TYPICAL - 1, axis=1)[:, :_TYPICAL]
        memberships, typical = (np.take_along_axis(one, best, axis=1) for one in (values, who))
        order = np.lexsort((typical, -memberships), axis=1)
        memberships, typical = (
            np.take_along_axis(one, order, axis=1) for one in (memberships, typical)
        )
    if isinstance(communities, MixtureCommunities):
        points += (
            _SPREAD * (centres.std() or 1.0) * stream(0, "map of users").normal(size=points.shape)
        )
        centres = np.divide(sums, totals, out=centres, where=totals > 0)  # where the members are
    low, high = np.quantile(points, (_OUTSIDE, 1 - _OUTSIDE), axis=0)
    middle, reach = (low + high) / 2, np.maximum((high - low) / 2, 1e-12)
    shown, marked = (_squeezed(_WITHIN * (one - middle) / reach) for one in (points, centres))
    return UserMap(shown, rows, strongest, marked, typical, memberships)


def _principal_axes(embeddings: Floats) -> Callable[[Floats], Places]:
    """What projects embeddings onto the two directions in which these vary most."""
    mean = embeddings.mean(axis=0, dtype=np.float64)
    axes = _last_two(
        np.linalg.eigh((embeddings - mean).T @ (embeddings - mean))[1]
    )  # (dimensions, 2)
    return lambda rows: np.asarray((rows - mean) @ axes)


def _last_two(vectors: npt.NDArray[Any]) -> Places:
    """The last two columns, the last one first, their largest entries above 0; zeros for a missing one."""
    axes = np.zeros((len(vectors), 2))
    axes[:, : vectors.shape[1]] = vectors[:, ::-1][:, :2]
    return axes * np.where(axes[np.abs(axes).argmax(axis=0), [0, 1]] < 0, -1, 1)


def _among_communities(
    histories: csr_array, log_memberships: Floats, communities: MixtureCommunities
) -> tuple[Callable[[Floats], Places], Places]:
    """What places users among the centres of communities by their log memberships, and these centres."""
    for temperature in _TEMPERATURES:
        soft = replace(communities, temperature=temperature, answering=len(communities))
        largest = (
            soft.answer_weights(log_memberships).max(axis=1).toarray().mean() * communities.mixtures
        )
        if largest <= _LARGEST:
            break
    held = csr_array(
        communities.memberships(log_memberships).T @ histories
    ).toarray()  # (communities, items)
    held += np.asarray(
        histories.mean(axis=0)
    ).ravel()  # also a community that nobody belongs to has a profile
    profiles = np.sqrt(held / np.maximum(held.sum(axis=1, keepdims=True), 1e-12))
    centres = _lay_out(np.sqrt(np.maximum(1 - profiles @ profiles.T, 0)))  # by Hellinger distances
    return lambda rows: np.asarray(soft.answer_weights(rows) @ centres), centres


def _lay_out(distances: npt.NDArray[Any]) -> Places:
    """Points in the plane with about these distances: classical scaling, then rounds that lower the stress."""
    count = len(distances)
    middle = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-0.5 * middle @ np.square(distances) @ middle)
    points = _last_two(vectors * np.sqrt(np.maximum(values, 0)))
    for _ in range(_ROUNDS):
        apart = np.linalg.norm(points[:, None] - points, axis=2)
        ratios = np.divide(distances, apart, out=np.zeros_like(apart), where=apart > 1e-9)
        points = (ratios.sum(axis=1)[:, None] * points - ratios @ points) / count
    return points


def _squeezed(points: Places) -> Floats:
    """Points within −1 … 1: what is far outside comes near the border."""
    beyond = np.maximum(np.abs(points) - _WITHIN, 0)
    width = 1 - _WITHIN
    return np.asarray(
        np.sign(points) * (np.minimum(np.abs(points), _WITHIN) + width * np.tanh(beyond / width)),
        "f4",
    )


# -- The model and its communities -------------------------------------------------------------------------------------


def known_data(model: Recommender) -> Interactions:
    """What a model was fitted on; one that was fitted on a bare matrix is refused."""
    if model.train_data_ is None:
        raise DataError(
            "this model was fitted on a bare matrix and knows no ids; fit it on Interactions"
        )
    return model.train_data_


def local_model(model: Recommender) -> Loca | None:
    """The model as a Loca; None for other models, also where a part of one is a Loca."""
    return cast(Loca, model) if model.role == "local" else None


def _with_communities(model: Recommender) -> Loca | None:
    """The Loca of a model, unless its groups were drawn at random."""
    local = local_model(model)
    return None if local is None or isinstance(local.embedder_, RandomGroups) else local


def model_facts(model: Recommender) -> dict[str, Any]:
    """Return what kind of model it is, what it was fitted on and the remarks of its fit, as JSON values."""
    known, local, kind = known_data(model), local_model(model), type(model).__name__
    grouped = _with_communities(model)
    base = [type(one).__name__ for one in model.inner_models()]
    labels = {"local": f"LOCA over {base[0]}", "ensemble": f"Ensemble of {base[0]}"} if base else {}
    return {
        "kind": kind,
        "label": labels.get(model.role, kind),
        "users": known.n_users,
        "items": known.n_items,
        "interactions": len(known),
        "recency": None if known.recency is None else str(known.recency),
        "communities": 0 if grouped is None else len(fitted(grouped.communities_, grouped)),
        "alpha": None if local is None else local.alpha_,
        "notes": [one.to_json() for one in model.remarks_],
    }


def _names(model: Recommender) -> list[str]:
    """What its communities are called; none where it has none."""
    local = _with_communities(model)
    if local is None:
        return []
    known, communities = known_data(model), fitted(local.communities_, local)
    if not isinstance(communities, MixtureCommunities):
        return [f"around {one}" for one in known.users.ids(communities.anchors)]
    items, lifts = fitted(local.distinctive_, local)
    order = np.argsort(
        -fitted(local.members_, local), kind="stable"
    ).tolist()  # of equal names that of the smaller
    naming = naming_items({number: (items[number], lifts[number]) for number in order})
    return [
        ", ".join(short_title(known.items, row) for row in naming[number])
        or "nothing beyond what is popular"
        for number in range(len(communities))
    ]


def _about(model: Recommender, number: int, name: str) -> dict[str, Any]:
    """What is said of a community wherever it is named."""
    local = cast(Loca, local_model(model))
    communities, mixture = fitted(local.communities_, local), None
    if isinstance(communities, MixtureCommunities):
        mixture = number * communities.mixtures // len(communities)
    anchor = known_data(model).users.ids(communities.anchors[[number]])[0]
    members = int(fitted(local.members_, local)[number])
    return {
        "community": number,
        "name": name,
        "members": members,
        "mixture": mixture,
        "anchor": anchor,
    }


def list_communities(model: Recommender, users: UserMap) -> dict[str, Any]:
    """All communities with their names, sizes and places on the map; an empty list where the model has none."""
    local, names = local_model(model), _names(model)
    kind = "none" if local is None else "random"
    if names:
        kind = "mixture" if _about(model, 0, "")["mixture"] is not None else "kernel"
    listed = [
        {
            **_about(model, number, name),
            "x": float(users.centres[number, 0]),
            "y": float(users.centres[number, 1]),
        }
        for number, name in enumerate(names)
    ]
    alpha = None if local is None else local.alpha_
    return {"kind": kind, "alpha": alpha, "users": known_data(model).n_users, "communities": listed}


def describe_community(
    model: Recommender, number: int, n: int = 10, users: UserMap | None = None
) -> dict[str, Any]:
    """One community: what its members have beyond others, typical users, its own list and the global model's.

    Both lists are for the mean history of its most typical members on the map `users`, which is made where it is not
    given; nothing is hidden.
    """
    check_list_length(n)
    known, names = known_data(model), _names(model)
    if not 0 <= number < len(names):
        there = f"communities 0 to {len(names) - 1}" if names else "no communities"
        raise DataError(f"unknown community {number}; this model has {there}")
    local, users = cast(Loca, local_model(model)), map_users(model) if users is None else users
    about = {**_about(model, number, names[number]), "users": known.n_users}
    items, lifts = (one[number] for one in fitted(local.distinctive_, local))
    beyond = np.flatnonzero(lifts > 1)[:n]
    found = users.typical[number] >= 0
    typical, memberships = users.typical[number][found], users.memberships[number][found]
    about["known_for"] = items_json(known.items, items[beyond], lift=lifts[beyond])
    shown = list(
        zip(known.users.ids(typical), typical.tolist(), memberships.tolist(), strict=True)
    )[:_TYPICAL_SHOWN]
    about["typical_users"] = [
        {"user": user, "row": row, "membership": share} for user, row, share in shown
    ]
    history = mean_history(known, typical, memberships)
    about["items"] = _listed(
        known.items, fitted(local.locals_, local).score_with(number, history), n
    )
    about["global"] = _listed(known.items, fitted(local.global_, local).score(history), n)
    return about


def mean_history(known: Interactions, rows: Rows, weights: Floats) -> csr_array:
    """The weighted mean of the histories of some users, 1 × items; empty without any."""
    if not len(rows):
        return csr_array(np.zeros((1, known.n_items), np.float32))
    # Rows rise: interactions are chosen in their order.
    order = np.argsort(rows)
    shares = csr_array((weights[order] / weights.sum())[None].astype(np.float32))  # (1, users)
    mean: csr_array = cast(Any, shares @ known.histories(rows[order]))
    mean.sort_indices()
    return mean


def _listed(names: IdMap, scores: Any, n: int) -> list[dict[str, Any]]:
    """The n best items of one row of scores, as replies have them."""
    items, best = rank_top_n(as_array(scores), None, min(n, len(names)))
    listed = items_json(names, items[0], score=best[0])
    return [{**one, "rank": rank} for rank, one in enumerate(listed, 1)]


def describe_user(model: Recommender, users: UserMap, row: int) -> dict[str, Any]:
    """A user's id, place on the map and strongest community; nulls for one who is not on it."""
    known = known_data(model)
    if not 0 <= row < known.n_users:
        raise DataError(f"unknown user row {row}; this model has rows 0 to {known.n_users - 1}")
    about: dict[str, Any] = {
        "user": known.users.ids([row])[0],
        "row": row,
        "x": None,
        "y": None,
        "community": None,
    }
    if (place := users.place(row)) is not None:
        x, y = users.points[place].tolist()
        community = int(users.community[place])
        about |= {"x": x, "y": y, "community": None if community < 0 else community}
    return about


def history_counts(model: Recommender, who: Any, recency: HistoryWeights = "model") -> list[float]:
    """What each item of one history counts, by its recency, in the order of `Explanation.history`."""
    found = resolve_histories(who, model.train_data_, model.count_items(), recency=recency)
    weights = found.matrix(np.zeros(1, np.int64)).toarray()[0]
    return [float(one) for one in weights[found.order(0)]]


# -- Search ------------------------------------------------------------------------------------------------------------


class _Sorted:
    """Texts in alphabetical order with the rows that they stand in, to be found by how they begin."""

    def __init__(self, texts: Iterable[tuple[str, int]]) -> None:
        pairs = sorted(texts)
        self.texts, self.rows = (
            [text for text, _ in pairs],
            np.array([row for _, row in pairs], np.int64),
        )

    def beginning(self, text: str) -> Rows:
        """The rows of all that begin with a text."""
        return self.rows[
            bisect_left(self.texts, text) : bisect_left(self.texts, text + chr(sys.maxunicode))
        ]


class _Index:
    """Ids and titles, to be searched as somebody types."""

    def __init__(self, names: IdMap) -> None:
        titles = (
            [] if names.labels is None else [plain_words(str(one)) for one in names.labels.tolist()]
        )
        self.count = len(titles)
        self.ids = _Sorted(
            (_folded(str(one)), row) for row, one in enumerate(names.values.tolist())
        )
        self.titles = _Sorted((title, row) for row, title in enumerate(titles))
        self.words = _Sorted(
            (word, row) for row, title in enumerate(titles) for word in title.split()
        )

    def search(self, text: str, n: int) -> list[int]:
        """The rows of n ids that begin with the text, then titles that do, then those that have all its words."""
        found = [self.ids.beginning(_folded(text))[:n]]
        if words := plain_words(text).split():
            having = np.ones(self.count, bool)
            for word in words:
                with_word = np.zeros(self.count, bool)
                with_word[self.words.beginning(word)] = True
                having &= with_word
            found += [self.titles.beginning(" ".join(words))[:n], np.flatnonzero(having)[: 2 * n]]
        return list(dict.fromkeys(np.concatenate(found).tolist()))[:n]


_INDEXES: WeakKeyDictionary[IdMap, _Index] = WeakKeyDictionary()


def _folded(text: str) -> str:
    """Text without case and accents."""
    if text.isascii():
        return text.lower()
    return "".join(
        one
        for one in unicodedata.normalize("NFKD", text.casefold())
        if not unicodedata.combining(one)
    )


def search(known: Interactions, text: str, what: str = "all", n: int = 20) -> dict[str, Any]:
    """Users and items whose id begins with a text, then those whose title has all its words, each from its beginning.

    Case and accents do not count, nor what is beyond 200 characters. Titles that begin with the text come first.
    """
    check_choice("what", what, ("users", "items", "all"))
    n, text = check_list_length(n), text[:_MOST_TEXT].strip()
    found: dict[str, list[int]] = {}
    for name, names in (("users", known.users), ("items", known.items)):
        if names not in _INDEXES:
            _INDEXES[names] = _Index(names)
        found[name] = _INDEXES[names].search(text, n) if text and what in (name, "all") else []
    rows = found["users"]
    users = [
        {"user": user, "row": row} for user, row in zip(known.users.ids(rows), rows, strict=True)
    ]
    return {"users": users, "items": items_json(known.items, np.array(found["items"], np.int64))}


# -- The exported page -------------------------------------------------------------------------------------------------


def export_page(
    model: Recommender, name: str, fingerprint: str, path: Path, users: int = 200, page: Path = PAGE
) -> int:
    """Write the explorer and what it shows of a model into one HTML file; return how many users have a list in it.

    These are at most so many of those on the map, evenly spaced. The file needs no service and loads nothing. Each
    listed item has its 8 strongest reasons.
    """
    check_list_length(users)
    html, script = _in_one_file(page)
    known, shown, about = (
        known_data(model),
        map_users(model),
        {"model": name, "fingerprint": fingerprint},
    )
    entry = {
        "name": name,
        **model_facts(model),
        "fingerprint": fingerprint,
        "folder": name,
        "error": None,
    }
    entry["loaded_at"] = datetime.now(UTC).isoformat(timespec="seconds")
    health = {
        "requests": 0,
        "p50_ms": None,
        "p99_ms": None,
        "queue": 0,
        "version": loca.__version__,
    }
    communities = list_communities(model, shown)
    each: dict[int, Any] = {}
    chosen = shown.rows[every_nth(len(shown.rows), users)].tolist()
    with bar("explaining lists", len(chosen)) as progress:
        for row in chosen:
            user: Id = known.users.ids([row])[0]
            why = model.explain(user, n=_LIST).to_json() | {"counts": history_counts(model, user)}
            for item in why["items"]:
                item["because"] = sorted(
                    item["because"], key=lambda one: -abs(one["contribution"])
                )[:_REASONS]
            each[row] = {
                "user": {**about, **describe_user(model, shown, row)},
                "explain": {**about, **why},
            }
            progress.advance(1)
    data = {
        "models": {"models": [entry], "default": name, **health},
        "communities": {**about, **communities},
        "map": base64.b64encode(shown.to_bytes()).decode(),
        "community": {
            number: {**about, **describe_community(model, number, _LIST, shown)}
            for number in range(len(communities["communities"]))
        },
        "users": each,
    }
    held = json.dumps(finite(data), ensure_ascii=False, separators=(",", ":")).replace(
        "<", "\\u003c"
    )
    end = f'<script type="application/json" id="loca-data">{held}</script>\n{script}\n</body>'
    write_whole(path, html.replace("</body>", end, 1))
    return len(each)


def _in_one_file(page: Path) -> tuple[str, str]:
    """The built page with its style inside and nothing allowed from elsewhere, and its script for the end of it."""
    try:
        html, script, style = (
            (page / one).read_text("utf-8") for one in ("index.html", "explorer.js", "explorer.css")
        )
    except OSError as error:
        raise DataError(
            f"{page}: the explorer's page cannot be read ({error.strerror}); install loca anew"
        ) from None
    # The script may not end its element: `<\/` and `<\!` are the same to it.
    script = re.sub(r"<(/script|!--)", r"<\\\1", script, flags=re.IGNORECASE)
    hashes = (
        base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in (script, style)
    )
    rules = "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'"
    policy = f'<meta http-equiv="Content-Security-Policy" content="{rules.format(*hashes)}">'
    html = re.sub(r"<script\b[^>]*\bsrc=[^>]*>\s*</script>\s*|<link\b[^>]*>\s*", "", html)
    html = re.sub(r"<meta charset[^>]*>", lambda found: f"{found[0]}\n{policy}", html, count=1)
    return html.replace(
        "</head>", f"<style>{style}</style>\n</head>", 1
    ), f"<script>{script}</script>"
