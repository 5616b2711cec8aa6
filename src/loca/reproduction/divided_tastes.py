"""How clearly local models divide two tastes of a user, by their own top lists, beside the global model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.local.loca import Loca
from loca.models.recommender import fitted
from loca.progress import bar
from loca.ranking.top_n import ItemRows, block_rows, rank_top_n
from loca.reproduction.two_tastes import GenreTable, TwoTastes


@dataclass(frozen=True)
class DividedPair:
    """Two local models of one user, the first for genre A and the second for B, by what their top lists hold.

    `own` is the share of A in the first list and of B in the second, `other` that of B in the first and of A in the
    second.
    """

    models: tuple[int, int]
    own: tuple[float, float]
    other: tuple[float, float]

    @property
    def clarity(self) -> float:
        """How clearly the less clear of both speaks of its genre: own share − share of the other, from −1 to 1."""
        return min(own - other for own, other in zip(self.own, self.other, strict=True))

    @property
    def division(self) -> float:
        """How far both lists lie apart: the mean of own share − share of the other; 1 where both are clear."""
        return (sum(self.own) - sum(self.other)) / 2

    @property
    def tells_apart(self) -> bool:
        """Whether in each list more than half of the places go to its own genre beyond those of the other genre.

        So it is in the paper's case study: 5 of 5 and 2 of the other, 5 of 5 and none of the other.
        """
        return self.clarity > 0.5

    def has_more_than(self, shares: tuple[float, float]) -> bool:
        """Whether the first list has more of A and the second more of B than one list with these shares of A and B."""
        return self.own[0] > shares[0] and self.own[1] > shares[1]


@dataclass(frozen=True)
class ExaminedUser:
    """One user of two tastes: the best pair of his local models by their lists, and the pair of greatest weight.

    `hits` are the held-out items in the lists of the best pair; `score` is the one number by which users are chosen.
    """

    place: int
    model_count: int
    best: DividedPair
    heaviest: DividedPair
    global_shares: tuple[float, float]
    loca_shares: tuple[float, float]
    hits: int
    score: float


@dataclass(frozen=True, eq=False)
class AskedLists:
    """The top lists of examined users: of each local model that answers (else −1), of the global one, of LOCA.

    `weights` is what each local model has of the answer of the local ones; 0 where it does not answer.
    """

    weights: npt.NDArray[np.float64]  # (users, models)
    local: ItemRows  # (users, models, n)
    global_: ItemRows  # (users, n)
    loca: ItemRows  # (users, n)


def ask_for_lists(model: Loca, histories: csr_array, answering: csr_array, n: int) -> AskedLists:
    """The top n of every model that answers for the histories, seen items left out."""
    user_count, model_count = answering.shape
    local = np.full((user_count, model_count, n), -1, np.int32)
    by_model = answering.tocsc()
    by_model.sort_indices()
    locals_, step = fitted(model.locals_, model), block_rows(histories.shape[1])
    with bar("asking local models", model_count) as progress:
        for number in range(model_count):
            members = by_model.indices[by_model.indptr[number] : by_model.indptr[number + 1]]
            for start in range(0, len(members), step):
                rows = members[start : start + step]
                asked = csr_array(histories[rows])
                local[rows, number] = rank_top_n(locals_.score_with(number, asked), asked, n)[0]
            progress.advance()
    weights = answering.toarray().astype(np.float64)
    global_, together = np.empty((user_count, n), np.int32), np.empty((user_count, n), np.int32)
    for start in range(0, user_count, step):
        asked = csr_array(histories[start : start + step])
        global_[start : start + step] = rank_top_n(fitted(model.global_, model).score(asked), asked, n)[0]
        together[start : start + step] = rank_top_n(model.score(asked), asked, n)[0]
    return AskedLists(weights / weights.sum(axis=1, keepdims=True), local, global_, together)


def examine_users(
    tastes: TwoTastes, table: GenreTable, lists: AskedLists, truth: csr_array
) -> tuple[ExaminedUser, ...]:
    """What the lists of each user's local models say of his two genres; `truth` is users × items.

    The best pair: for A the local model whose list has the most of A less those of B, and likewise for B; of equal
    ones that with more held-out items, then that of greater weight. The score of a user is the clarity of that pair,
    and of equal ones the held-out items in both lists count: clarity + hits / (n · (2n + 1)), less than a step of
    clarity. The heaviest pair is chosen without a look at the lists.
    """
    held_out = truth.toarray() > 0  # (users, items)
    examined = []
    for place in range(len(tastes)):
        # A stable order by weight: of equal local models the heavier is taken, of equal weights the lower number.
        own = np.flatnonzero(lists.weights[place])
        own = own[np.argsort(-lists.weights[place, own], kind="stable")]
        genre_a, genre_b = tastes.genres[place]
        chosen = lists.local[place, own]  # (models, n)
        in_a, in_b = _marked(table.of_items[:, genre_a], chosen), _marked(table.of_items[:, genre_b], chosen)
        is_hit = _marked(held_out[place], chosen)
        best = _best_pair(in_a, in_b, is_hit)
        lean = in_a.sum(axis=1) - in_b.sum(axis=1)
        heaviest = (0, 1) if lean[0] >= lean[1] else (1, 0)
        best_pair = _pair(best, own, in_a, in_b)
        hits = len(np.unique(chosen[list(best)][is_hit[list(best)]]))
        n = chosen.shape[1]
        examined.append(
            ExaminedUser(
                place=place,
                model_count=len(own),
                best=best_pair,
                heaviest=_pair(heaviest, own, in_a, in_b),
                global_shares=_shares(table, genre_a, genre_b, lists.global_[place]),
                loca_shares=_shares(table, genre_a, genre_b, lists.loca[place]),
                hits=hits,
                score=best_pair.clarity + hits / (n * (2 * n + 1)),
            )
        )
    return tuple(examined)


def _marked(marks: npt.NDArray[np.bool_], item_rows: ItemRows) -> npt.NDArray[np.bool_]:
    """The marks of listed items; a place that could not be filled has none."""
    return np.asarray(marks[item_rows] & (item_rows >= 0))


def _best_pair(
    in_a: npt.NDArray[np.bool_], in_b: npt.NDArray[np.bool_], is_hit: npt.NDArray[np.bool_]
) -> tuple[int, int]:
    """The places of the list that speaks most of A and of the one that speaks most of B, two different ones."""
    lean = in_a.sum(axis=1) - in_b.sum(axis=1)  # (models,)
    hits, n = is_hit.sum(axis=1), in_a.shape[1]
    first = int(np.argmax(lean * (n + 1) + hits))
    for_b = -lean * (n + 1) + hits
    for_b[first] = for_b.min() - 1
    return first, int(np.argmax(for_b))


def _pair(
    places: tuple[int, int],
    own: npt.NDArray[np.int64],
    in_a: npt.NDArray[np.bool_],
    in_b: npt.NDArray[np.bool_],
) -> DividedPair:
    first, second = places
    return DividedPair(
        models=(int(own[first]), int(own[second])),
        own=(float(in_a[first].mean()), float(in_b[second].mean())),
        other=(float(in_b[first].mean()), float(in_a[second].mean())),
    )


def _shares(table: GenreTable, genre_a: int, genre_b: int, item_rows: ItemRows) -> tuple[float, float]:
    in_a, in_b = (_marked(table.of_items[:, genre], item_rows) for genre in (genre_a, genre_b))
    return float(in_a.mean()), float(in_b.mean())
