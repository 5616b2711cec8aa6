"""Table 4: the model that is asked, the lists of one user of two tastes, and the average of all who were examined."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.id_map import Id, IdMap
from loca.data.item_metadata import Genres
from loca.data.splits import HeldOut, Split
from loca.errors import ConfigError, DataError
from loca.evaluation.top_n import ItemRows, block_rows, check_list_length, rank_top_n
from loca.local.loca import Loca
from loca.models.recommender import Recommender, clone, fitted
from loca.progress import bar
from loca.reproduction.benchmark import Benchmark, Records, Results
from loca.reproduction.measurings import Measurement, exactly
from loca.reproduction.report_items import Finding, ReportItem, ReportTable, Value
from loca.text_table import TextTable
from loca.tuning.model_selection import selection_data

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

# Pairs grow with the square of the genres; rarer ones could hardly lead in anybody's history.
_MOST_GENRES = 30


@dataclass(frozen=True)
class Sought:
    """Whom to look for: at least `history` items, a `share` of them in each of two genres, each `lift` times the usual
    share (of the catalogue and of all histories, the larger), and at most `alike` of the items in either in both.

    The `users` most promising of them are examined.
    """

    history: int = 20
    share: float = 0.2
    lift: float = 1.3
    alike: float = 1 / 3
    users: int = 300

    def __post_init__(self) -> None:
        if self.history < 1 or self.users < 1:
            raise ConfigError(f"two tastes: expected 1 or more items and users, found {self.history} and {self.users}")
        if not (0 < self.share <= 1 and 0 <= self.alike <= 1 and self.lift >= 0):
            raise ConfigError(
                f"two tastes: expected shares from 0 to 1, found share {self.share:g}, alike {self.alike:g} "
                f"and lift {self.lift:g}"
            )

    def __str__(self) -> str:
        return (
            f"at least {self.history} items in the history, at least {self.share:.0%} of them in each of two genres, "
            f"{self.lift:g} times or more the usual share of each, and at most {self.alike:.0%} of the items of either "
            "genre in both"
        )


@dataclass(frozen=True, eq=False)
class GenreTable:
    """Item row i is of the genre `names[g]` where `of_items[i, g]`; names stand in the order of the alphabet."""

    names: Genres
    of_items: npt.NDArray[np.bool_]

    def genres_of(self, item_row: int) -> Genres:
        """The genres of one item."""
        return tuple(self.names[place] for place in np.flatnonzero(self.of_items[item_row]))


@dataclass(frozen=True, eq=False)
class TwoTastes:
    """Users of two tastes, the most promising first: row, two genres (the larger share first), their shares.

    `usual` are the shares that everybody has of the two, `both` is the share of the history that is in both.
    """

    user_rows: Places
    genres: Places  # (users, 2)
    shares: Floats  # (users, 2)
    usual: Floats  # (users, 2)
    both: Floats

    def __len__(self) -> int:
        return len(self.user_rows)

    def keep(self, places: npt.NDArray[Any]) -> TwoTastes:
        """Some of them, by place or by mask."""
        return TwoTastes(
            self.user_rows[places], self.genres[places], self.shares[places], self.usual[places], self.both[places]
        )


def tabulate_genres(items: IdMap, genres: Mapping[Id, Genres]) -> GenreTable:
    """The genres of all items, items × genres; ids match as text, and an item that is not named has none."""
    by_text = {str(one): names for one, names in genres.items()}
    of_each = [by_text.get(str(one), ()) for one in items.values.tolist()]
    names = tuple(sorted({name for listed in of_each for name in listed}))
    if len(names) < 2:
        raise DataError(
            f"genres: expected at least two genres among the {len(items):,} items, found {len(names)}; "
            "are the genres those of this data set?"
        )
    place_of = {name: place for place, name in enumerate(names)}
    of_items = np.zeros((len(items), len(names)), dtype=bool)
    for row, listed in enumerate(of_each):
        of_items[row, [place_of[name] for name in listed]] = True
    return GenreTable(names, of_items)


def find_two_tastes(histories: csr_array, table: GenreTable, sought: Sought) -> TwoTastes:
    """All users of two tastes, the most promising first; of equal ones the lower row.

    Of all pairs of genres that a user's history has as `sought`, the most promising is his: the smaller of the two
    excesses over the usual share, times 1 − (items in both / items in either).
    """
    columns, usual = _usual_shares(histories, table)
    of_items = table.of_items[:, columns].astype(np.float32)
    first, second = np.triu_indices(len(columns), 1)
    in_both = of_items[:, first] * of_items[:, second]  # (items, pairs)
    rows = np.flatnonzero(np.diff(histories.indptr) >= sought.history)
    found = []
    step = block_rows(len(first), arrays=8, number_bytes=8)
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        part = csr_array(histories[block])
        sizes = np.diff(part.indptr)[:, None]
        shares, both = (part @ of_items) / sizes, (part @ in_both) / sizes  # (users, genres), (users, pairs)
        promise = _promises(shares, both, usual, (first, second), sought)
        best = promise.argmax(axis=1)
        kept = np.flatnonzero(promise[np.arange(len(block)), best] > 0)
        pair = best[kept]
        places = np.stack([first[pair], second[pair]], axis=1)  # (users, 2)
        own = shares[kept[:, None], places]
        by_share = np.argsort(-own, axis=1, kind="stable")
        places, own = np.take_along_axis(places, by_share, 1), np.take_along_axis(own, by_share, 1)
        tastes = TwoTastes(block[kept], columns[places], own, usual[places], both[kept, pair])
        found.append((tastes, promise[kept, pair]))
    return _most_promising_first(found)


def _usual_shares(histories: csr_array, table: GenreTable) -> tuple[Places, Floats]:
    """The columns of the commonest genres, and the share that each usually has: in the catalogue or in histories."""
    popularity = np.bincount(histories.indices, minlength=histories.shape[1])
    of_histories = popularity @ table.of_items / max(histories.nnz, 1)
    usual = np.maximum(table.of_items.mean(axis=0), of_histories)
    columns = np.sort(np.argsort(-usual, kind="stable")[:_MOST_GENRES])
    return columns, usual[columns]


def _promises(
    shares: Floats, both: Floats, usual: Floats, pairs: tuple[Places, Places], sought: Sought
) -> npt.NDArray[Any]:
    """How promising each pair of genres is for each user, users × pairs; 0 where it is not as sought."""
    first, second = shares[:, pairs[0]], shares[:, pairs[1]]
    usual_first, usual_second = usual[pairs[0]], usual[pairs[1]]
    either = first + second - both
    is_sought = (
        (np.minimum(first, second) >= sought.share)
        & (first >= sought.lift * usual_first)
        & (second >= sought.lift * usual_second)
        & (both <= sought.alike * either)
    )
    excess = np.minimum(first - usual_first, second - usual_second)
    return np.where(is_sought, excess * (1 - both / np.maximum(either, 1e-12)), 0.0)


def _most_promising_first(found: list[tuple[TwoTastes, npt.NDArray[Any]]]) -> TwoTastes:
    if not found:
        return TwoTastes(
            np.zeros(0, np.int64), np.zeros((0, 2), np.int64), np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0)
        )
    parts = [part for part, _ in found]
    together = TwoTastes(
        np.concatenate([part.user_rows for part in parts]),
        np.concatenate([part.genres for part in parts]),
        np.concatenate([part.shares for part in parts]),
        np.concatenate([part.usual for part in parts]),
        np.concatenate([part.both for part in parts]),
    )
    return together.keep(np.argsort(-np.concatenate([promise for _, promise in found]), kind="stable"))


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
    test = split.test.weighed_as(model.train_data_)
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


NAME = "case study"
_MARKS = ("①", "②")
_HIT = "✓ "
_BEST, _HEAVIEST = "best two, chosen by their lists", "two of greatest weight"
_AVERAGE_NOTE = (
    "Told apart: in each of the two lists the share of its own genre less that of the other is more than half. "
    "Division is the mean of that difference over both lists, 1 at most. Above the global list: one list has more of "
    "the first genre and the other more of the second than the global list has."
)
_Pair = Callable[[ExaminedUser], DividedPair]


def measurings(bench: Benchmark) -> list[Measurement]:
    """One where the items have genres and choices are made on validation."""
    if not bench.data.genres or bench.protocol != "clean":
        return []
    items = bench.split.test.histories.items
    subject = {
        "data": bench.digest,
        "genres": _digest_of(sorted(map(repr, bench.data.genres.items()))),
        "titles": _digest_of([] if items.labels is None else map(repr, items.labels.tolist())),
        **exactly(_asked_model(bench)),
    }
    return [Measurement(NAME, subject, _Case(bench))]


def _digest_of(lines: Iterable[str]) -> str:
    """A short text that changes with any line; the digest of the data knows neither genres nor titles."""
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()


def _asked_model(bench: Benchmark) -> Recommender:
    """LOCA_VAE whose covered users the local models alone answer for, as in the paper."""
    model = bench.model("loca-vae")
    return clone(model, anchors=bench.scale.sweep_models, alpha="paper") if isinstance(model, Loca) else model


@dataclass(frozen=True, eq=False)
class _Case:
    """Fits the model and looks for the user of two tastes."""

    bench: Benchmark

    def __call__(self) -> Records:
        train, questions = selection_data(self.bench.split, "clean")
        model: Any = _asked_model(self.bench)
        found = find_case(model.fit(train, validation=questions), self.bench.split, self.bench.data.genres)
        return as_records(case_exhibit(found, data=self.bench.data.label))


def make(studied: Sequence[Results]) -> ReportItem:
    """The case studies of all data sets whose items have genres."""
    found = [from_records(one.records[NAME]) for one in studied if NAME in one.records]
    if not found:
        text = (
            "No case study: it needs items with genres, as MovieLens has them (by its name, such as --data ml-1m), and "
            "the protocol clean."
        )
        title = "Table 4: what local models recommend to a user of two tastes"
        return ReportItem("table4", title, "", findings=(Finding("found", text),))
    if len(found) == 1:
        return found[0]
    return ReportItem(
        key="table4",
        title="Table 4: what local models recommend to users of two tastes",
        caption=found[0].caption,
        panels=tuple(panel for one in found for panel in one.panels),
        records=tuple(line for one in found for line in one.records),
        findings=tuple(finding for one in found for finding in one.findings),
    )


def as_records(exhibit: ReportItem) -> Records:
    """One record that holds the exhibit's words, tables and records; charts have no place in it."""
    told = {
        "key": exhibit.key,
        "title": exhibit.title,
        "caption": exhibit.caption,
        "panels": [_written(panel) for panel in exhibit.panels],
        "records": [dict(line) for line in exhibit.records],
        "findings": [[one.kind, one.text] for one in exhibit.findings],
    }
    return [{"exhibit": json.dumps(told, ensure_ascii=False)}]


def from_records(records: Records) -> ReportItem:
    """The exhibit again."""
    told: dict[str, Any] = json.loads(str(records[0]["exhibit"]))
    return ReportItem(
        key=told["key"],
        title=told["title"],
        caption=told["caption"],
        panels=tuple(_read(panel) for panel in told["panels"]),
        records=tuple(told["records"]),
        findings=tuple(Finding(kind, text) for kind, text in told["findings"]),
    )


def _written(panel: ReportTable) -> dict[str, Any]:
    return {
        "heading": panel.heading,
        "note": panel.note,
        "header": panel.grid.header,
        "rows": panel.grid.rows,
    }


def _read(panel: dict[str, Any]) -> ReportTable:
    grid = TextTable(tuple(panel["header"]), tuple(tuple(row) for row in panel["rows"]))
    return ReportTable(panel["heading"], grid, panel["note"])


def case_exhibit(search: CaseSearch, *, data: str = "") -> ReportItem:
    """Table 4: the user shown with all lists, a second table over all examined users, and whether he is typical.

    `data` names the data set in the title, in the records and before headings and findings, so that several can stand
    together. Records hold every shown item and every examined user. Where nobody is as sought there are no tables, and
    a finding says what was looked for.
    """
    study, of_data = search.study, f" ({data})" if data else ""
    panels = () if study is None else (_story_panel(study, search.list_length), _average_panel(search, study))
    records = (*_shown_records(study), *(_examined_record(one) for one in search.examined))
    before = f"{data}: " if data else ""
    return ReportItem(
        key="table4",
        title=f"Table 4: what local models recommend to a user of two tastes{of_data}",
        caption=f"Top-{search.list_length} lists of two local models, of the global model and of LOCA, for the user "
        "whose local models divide two genres most clearly; and the same over all users who were examined.",
        panels=tuple(replace(panel, heading=before + panel.heading) for panel in panels),
        records=tuple({"data": data, **record} for record in records),
        findings=tuple(replace(finding, text=before + finding.text) for finding in _findings(search)),
    )


def _story_panel(study: CaseStudy, n: int) -> ReportTable:
    genres = " and ".join(
        f"{genre} {mark} ({share:.0%} of the history, usually {usual:.0%})"
        for genre, mark, share, usual in zip(study.genres, _MARKS, study.shares, study.usual, strict=True)
    )
    rows = tuple(
        (
            _row_name(shown),
            *(_cell(item, study.genres, shown is not study.held_out) for item in shown.items[:n]),
            *[""] * (n - len(shown.items)),
        )
        for shown in study.lists()
    )
    hidden = len(study.held_out.items) - n
    more = f" Held-out items that are not shown: {hidden}." if hidden > 0 else ""
    return ReportTable(
        f"User {study.user}: {genres}",
        TextTable(("Model", *(f"Top-{rank + 1}" for rank in range(n))), rows),
        f"{_HIT.strip()} was held out and found. The percentage beside a model is its share of LOCA's answer. Items of "
        f"the history ({study.history}) are left out; held-out items stand in the order in which the user came to "
        f"them.{more}",
    )


def _row_name(shown: ShownList) -> str:
    return shown.name if shown.weight is None else f"{shown.name} ({shown.weight:.1%})"


def _cell(item: ShownItem, genres: tuple[str, str], with_hit: bool) -> str:
    marks = dict(zip(genres, _MARKS, strict=True))
    listed = ", ".join(f"{genre} {marks[genre]}" if genre in marks else genre for genre in item.genres)
    return (_HIT if with_hit and item.is_held_out else "") + item.title + (f" — {listed}" if listed else "")


def _average_panel(search: CaseSearch, study: CaseStudy) -> ReportTable:
    users = [one.lists for one in search.examined]
    header = ("Lists", "Own genre", "Other genre", "Division")
    counts = ("Users told apart", "Users above the global list")
    rows = (
        _pair_row(f"User {study.user}: {_BEST}", [study.examined], _best, is_one=True),
        _pair_row(f"All: {_BEST}", users, _best),
        _pair_row(f"All: {_HEAVIEST}", users, _heaviest),
        _single_row("All: the global list", [one.global_shares for one in users]),
        _single_row("All: LOCA's list", [one.loca_shares for one in users]),
    )
    return ReportTable(
        f"All {len(users):,} users of two tastes who were examined", TextTable(header + counts, rows), _AVERAGE_NOTE
    )


def _pair_row(name: str, users: Sequence[ExaminedUser], pair_of: _Pair, *, is_one: bool = False) -> tuple[str, ...]:
    pairs = [pair_of(one) for one in users]
    marks = (
        [pair.tells_apart for pair in pairs],
        [pair.has_more_than(one.global_shares) for one, pair in zip(users, pairs, strict=True)],
    )
    return (
        name,
        f"{np.mean([pair.own for pair in pairs]):.0%}",
        f"{np.mean([pair.other for pair in pairs]):.0%}",
        f"{np.mean([pair.division for pair in pairs]):.2f}",
        *(("yes" if mark[0] else "no") if is_one else _of(sum(mark), len(users)) for mark in marks),
    )


def _single_row(name: str, shares: Sequence[tuple[float, float]]) -> tuple[str, ...]:
    """A model with one list for both genres: the mean share of either."""
    return (name, f"{np.mean(shares):.0%}", *[""] * 4)


def _findings(search: CaseSearch) -> Iterator[Finding]:
    steps = (
        f"{search.with_two_tastes:,} of {search.asked_users:,} test users have two tastes ({search.sought}), "
        f"at least two local models answer for {search.with_two_models:,} of them"
    )
    if search.study is None:
        yield Finding("found", f"No user for a case study: {steps}.")
        return
    yield _story(search.study, search.list_length)
    yield _typical(search)
    count = len(search.examined)
    who = "all of these" if count == search.with_two_models else f"the {count:,} most promising of these"
    yield Finding("found", f"Who was looked at: {steps}; {who} were examined.")


def _story(study: CaseStudy, n: int) -> Finding:
    pair, (first, second) = study.examined.best, study.genres
    global_a, global_b = (round(share * n) for share in study.examined.global_shares)
    loca_a, loca_b = (round(share * n) for share in study.examined.loca_shares)
    told = "are told apart" if pair.tells_apart else "are not told apart, though no examined user's are clearer"
    hits = study.examined.hits
    return Finding(
        "matches" if pair.tells_apart else "differs",
        f"The two tastes of user {study.user}, {first} and {second}, {told}: of the top {n} of {study.first.name}, "
        f"{round(pair.own[0] * n)} are {first} and {round(pair.other[0] * n)} {second}; of {study.second.name}, "
        f"{round(pair.own[1] * n)} are {second} and {round(pair.other[1] * n)} {first}; the global model lists "
        f"{global_a} and {global_b}, LOCA {loca_a} and {loca_b}. {hits} held-out "
        f"{'item is' if hits == 1 else 'items are'} in the two local lists.",
    )


def _typical(search: CaseSearch) -> Finding:
    """Whether what the one user shows holds for more than half of all examined users."""
    users = [one.lists for one in search.examined]
    apart = sum(one.best.tells_apart for one in users)
    heaviest = sum(one.heaviest.tells_apart for one in users)
    more = sum(one.best.has_more_than(one.global_shares) for one in users)
    word = "typical" if 2 * apart > len(users) else "not typical"
    count = len(users)
    return Finding(
        "found",
        f"Such a story is {word}: even with the two local models chosen by their lists, two genres are told apart for "
        f"{_of(apart, count)} examined users, and divided more than in the global list for "
        f"{_of(more, count)}; the two local models of greatest weight, chosen without a look at their lists, tell them "
        f"apart for {_of(heaviest, count)}.",
    )


def _shown_records(study: CaseStudy | None) -> Iterator[dict[str, Value]]:
    for shown in () if study is None else study.lists():
        for rank, item in enumerate(shown.items):
            yield {
                "record": "shown item",
                "user": None if study is None else study.user,
                "model": shown.name,
                "weight": shown.weight,
                "rank": rank + 1,
                "item": item.item,
                "title": item.title,
                "genres": "|".join(item.genres),
                "is_held_out": item.is_held_out,
            }


def _examined_record(one: Examined) -> dict[str, Value]:
    record: dict[str, Value] = {
        "record": "examined user",
        "user": one.user,
        "genre_a": one.genres[0],
        "genre_b": one.genres[1],
        "share_a": one.shares[0],
        "share_b": one.shares[1],
        "share_of_both": one.both,
        "local_models": one.lists.model_count,
        "score": one.lists.score,
        "hits": one.lists.hits,
        "global_a": one.lists.global_shares[0],
        "global_b": one.lists.global_shares[1],
        "loca_a": one.lists.loca_shares[0],
        "loca_b": one.lists.loca_shares[1],
    }
    for name, pair in (("best", one.lists.best), ("heaviest", one.lists.heaviest)):
        record |= {
            f"{name}_local_a": pair.models[0],
            f"{name}_local_b": pair.models[1],
            f"{name}_a_in_a": pair.own[0],
            f"{name}_b_in_a": pair.other[0],
            f"{name}_b_in_b": pair.own[1],
            f"{name}_a_in_b": pair.other[1],
            f"{name}_clarity": pair.clarity,
            f"{name}_division": pair.division,
        }
    return record


def _best(one: ExaminedUser) -> DividedPair:
    return one.best


def _heaviest(one: ExaminedUser) -> DividedPair:
    return one.heaviest


def _of(count: int, total: int) -> str:
    return f"{count:,} of {total:,} ({count / max(total, 1):.0%})"
