"""The paper's case study: a user of two tastes, found by one score, and what each of his models recommends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.genres import Genres
from loca.data.held_out import HeldOut, Split
from loca.data.id_map import Id, IdMap
from loca.errors import DataError
from loca.local.loca import Loca
from loca.models.recommender import fitted
from loca.ranking.top_n import check_list_length
from loca.reproduction.divided_tastes import AskedLists, ExaminedUser, ask_for_lists, examine_users
from loca.reproduction.two_tastes import GenreTable, Sought, TwoTastes, find_two_tastes, tabulate_genres


@dataclass(frozen=True)
class ShownItem:
    """An item of a list: its id, its title (the id where it has none), its genres, and whether it was held out."""

    item: Id
    title: str
    genres: Genres
    is_held_out: bool


@dataclass(frozen=True)
class ShownList:
    """The items that one model puts first; `weight` is its share of LOCA's answer, None where it has no part in it."""

    name: str
    items: tuple[ShownItem, ...]
    weight: float | None = None


@dataclass(frozen=True)
class CaseStudy:
    """One user of two tastes and the lists of his models: two local ones, the global one, LOCA, and the truth.

    `shares` are those of the two genres in his history of `history` items, `usual` those that everybody has.
    """

    user: Id
    genres: tuple[str, str]
    shares: tuple[float, float]
    usual: tuple[float, float]
    history: int
    examined: ExaminedUser
    first: ShownList
    second: ShownList
    global_model: ShownList
    loca: ShownList
    held_out: ShownList

    def lists(self) -> tuple[ShownList, ...]:
        """All lists, in the order of the paper's table."""
        return (self.first, self.second, self.global_model, self.loca, self.held_out)


@dataclass(frozen=True)
class Examined:
    """One examined user by name: the two genres, their shares of the history, and what the lists say."""

    user: Id
    genres: tuple[str, str]
    shares: tuple[float, float]
    both: float
    lists: ExaminedUser


@dataclass(frozen=True)
class CaseSearch:
    """What was looked for, how many users were left at each step, all examined ones, and the one that is shown.

    `study` is None where no user is as sought.
    """

    sought: Sought
    list_length: int
    asked_users: int
    with_two_tastes: int
    with_two_models: int
    examined: tuple[Examined, ...]
    study: CaseStudy | None


def find_case(
    model: Loca,
    split: Split,
    genres: Mapping[Id, Genres],
    *,
    sought: Sought | None = None,
    n: int = 5,
) -> CaseSearch:
    """The user of two tastes whose local models divide them most clearly, and what all examined ones look like.

    Test users whose history is as `sought` are taken, the most promising first, if at least two local models answer
    for them and something of theirs was held out; of these the one with the highest score (`examine_users`) is shown,
    of equal ones the most promising. Titles are those of the split's items.
    """
    check_list_length(n)
    sought = Sought() if sought is None else sought
    if model.count_items() != split.test.n_items:
        raise DataError(f"case study: the model scores {model.count_items()} items, the split has {split.test.n_items}")
    test = split.test.weighed_as(model.known_)
    table = tabulate_genres(test.histories.items, genres)
    tastes = find_two_tastes(test.histories.matrix(), table, sought)
    tastes = tastes.keep(test.targets.counts()[tastes.user_rows] > 0)
    histories = csr_array(test.history_matrix[tastes.user_rows])
    answering = _answer_weights(model, histories)
    answered = np.flatnonzero(np.diff(answering.indptr) >= 2)
    taken = answered[: sought.users]
    chosen = tastes.keep(taken)
    lists = ask_for_lists(model, csr_array(histories[taken]), csr_array(answering[taken]), n)
    examined = examine_users(chosen, table, lists, csr_array(test.target_matrix[chosen.user_rows]))
    best = max(examined, key=lambda one: one.score, default=None)  # the first of equal ones
    share = 1 - fitted(model.alpha_, model)
    return CaseSearch(
        sought=sought,
        list_length=n,
        asked_users=test.n_users,
        with_two_tastes=len(tastes),
        with_two_models=len(answered),
        examined=tuple(_named(one, chosen, table, test.histories.users) for one in examined),
        study=None if best is None else _study(best, chosen, table, lists, test, share),
    )


def _answer_weights(model: Loca, histories: csr_array) -> csr_array:
    """How much each local model's answer counts for each history, users × models; there may be no histories."""
    communities = fitted(model.communities_, model)
    if histories.shape[0] == 0:
        return csr_array(np.zeros((0, len(communities)), dtype=np.float32))
    return communities.answer_weights(model.embed(histories))


def _named(one: ExaminedUser, tastes: TwoTastes, table: GenreTable, users: IdMap) -> Examined:
    return Examined(
        user=users.ids([int(tastes.user_rows[one.place])])[0],
        genres=_genre_names(tastes, table, one.place),
        shares=_two(tastes.shares[one.place]),
        both=float(tastes.both[one.place]),
        lists=one,
    )


def _study(
    one: ExaminedUser, tastes: TwoTastes, table: GenreTable, lists: AskedLists, test: HeldOut, local_share: float
) -> CaseStudy:
    """The examined user with all lists in words."""
    place, user_row = one.place, int(tastes.user_rows[one.place])
    # Once each, in the order in which the user came to them.
    truth = np.array(list(dict.fromkeys(test.targets.items_of(user_row).tolist())), dtype=np.int32)

    def shown(name: str, item_rows: npt.NDArray[np.int32], weight: float | None = None) -> ShownList:
        items = test.histories.items
        rows = [int(row) for row in item_rows if row >= 0]
        return ShownList(
            name,
            tuple(
                ShownItem(items.ids([row])[0], items.label(row), table.genres_of(row), row in truth.tolist())
                for row in rows
            ),
            weight,
        )

    def local(number: int) -> ShownList:
        weight = local_share * float(lists.weights[place, number])
        return shown(f"Local {number}", lists.local[place, number], weight)

    return CaseStudy(
        user=test.histories.users.ids([user_row])[0],
        genres=_genre_names(tastes, table, place),
        shares=_two(tastes.shares[place]),
        usual=_two(tastes.usual[place]),
        history=len(set(test.histories.items_of(user_row).tolist())),
        examined=one,
        first=local(one.best.models[0]),
        second=local(one.best.models[1]),
        global_model=shown("Global", lists.global_[place], 1 - local_share),
        loca=shown("LOCA", lists.loca[place]),
        held_out=shown("Held out", truth),
    )


def _genre_names(tastes: TwoTastes, table: GenreTable, place: int) -> tuple[str, str]:
    first, second = tastes.genres[place]
    return table.names[first], table.names[second]


def _two(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    return float(values[0]), float(values[1])
