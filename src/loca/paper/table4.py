"""Table 4: the lists of a user of two genres, and how far local models separate genres for all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.id_map import Id, IdMap
from loca.data.splits import HeldOut, Split
from loca.errors import DataError
from loca.evaluation.top_n import block_rows, rank_top_n
from loca.local.combiner import LocalOnly
from loca.local.loca import Loca
from loca.models.recommender import Scores, clone, fitted
from loca.paper.benchmark import Benchmark, Measurement, PaperItem, Results, of_size
from loca.paper.report import Finding, Records, ReportItem, ReportTable, Value
from loca.paper.seed_means import Floats
from loca.progress import bar
from loca.text_table import TextTable
from loca.tuning.model_selection import selection_data
from loca.typing import IntArray

if TYPE_CHECKING:
    from loca.data.item_metadata import Genres

NAME = "case study"
# Pairs grow with the square of the genres; rarer ones could hardly lead in anybody's history.
_MOST_GENRES = 30
_MARKS = ("①", "②")
_HIT = "✓ "
_PAIRS = {"best": "best two, chosen by their lists", "heaviest": "two of greatest weight"}
_NOTE = (
    "Told apart: in each of the two lists the share of its own genre less that of the other is more "
    "than half. Division is the mean of that difference over both lists, 1 at most. Above the global "
    "list: one list has more of the first genre and the other more of the second than the global "
    "list has."
)
_STORY_NOTE = (
    f"{_HIT.strip()} was held out and found. The percentage beside a model is its share of LOCA's "
    "answer. Items of the history ({history}) are left out; held-out items stand in the order in "
    "which the user came to them."
)
_STORY = (
    "The two tastes of user {user}, {genre_a} and {genre_b}, {verdict}: of the top {n} of Local "
    "{best_local_a}, {best_a_in_a} are {genre_a} and {best_b_in_a} {genre_b}; of Local "
    "{best_local_b}, {best_b_in_b} are {genre_b} and {best_a_in_b} {genre_a}; the global model lists "
    "{global_a} and {global_b}, LOCA {loca_a} and {loca_b}. {hits} held-out {found} in the two local "
    "lists."
)
_TYPICAL = (
    "even with the two local models chosen by their lists, two genres are told apart for {} examined "
    "users, and divided more than in the global list for {}; the two local models of greatest "
    "weight, chosen without a look at their lists, tell them apart for {}."
)
_HEADER = (
    "Lists",
    "Own genre",
    "Other genre",
    "Division",
    "Users told apart",
    "Users above the global list",
)
Marks = npt.NDArray[np.bool_]
Lists = npt.NDArray[np.int32]
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Criteria:
    """Who is a user of two genres.

    These are users with at least `history` items, a `share` of them in each of two genres, each
    `lift` times the usual share (of the catalogue and of all histories, the larger), and at most
    `overlap` of the items in either in both. The `users` most promising of them are examined.
    """

    history: int = 20
    share: float = 0.2
    lift: float = 1.3
    overlap: float = 1 / 3
    users: int = 300

    def __str__(self) -> str:
        return (
            f"at least {self.history} items in the history, at least {self.share:.0%} of them in "
            f"each of two genres, {self.lift:g} times or more the usual share of each, and at most "
            f"{self.overlap:.0%} of the items of either genre in both"
        )


class TwoGenreUser(NamedTuple):
    """A user of two genres (the larger share first).

    The shares are those of the history, the usual ones, and that of both. `promise` is the smaller
    of the two excesses over the usual share, times 1 − (items in both / items in either).
    """

    row: int
    genres: tuple[int, int]
    shares: tuple[float, float]
    usual: tuple[float, float]
    both: float
    promise: float


@dataclass(frozen=True)
class Case:
    """The examined users, the most promising first, and the lists of the clearest one.

    `counts` are the test users, those of two genres, and those of them whom two local models answer
    for. `examined` and `shown` are the records of Table 4: one for each examined user, and one for
    each item of each list shown. `usual` and `history` are the usual shares of the two genres of
    the user shown and the length of the history.
    """

    criteria: Criteria
    list_length: int
    counts: tuple[int, int, int]
    examined: Records
    shown: Records
    usual: tuple[float, float] = (0.0, 0.0)
    history: int = 0

    @property
    def study(self) -> Record | None:
        """The examined user of the highest score, of equal ones the most promising, if any."""
        return max(self.examined, key=lambda record: float(record["score"] or 0), default=None)


class Table4(PaperItem):
    """The case study of all data whose items have genres, where choices are made on validation."""

    key = "table4"
    title = "Table 4: what local models recommend to a user of two tastes"

    def measurements(self, benchmark: Benchmark) -> list[Measurement]:
        """Return the case study, of LOCA_VAE whose local models alone answer covered users."""
        if not benchmark.data.genres or benchmark.protocol != "clean":
            return []
        model = of_size(benchmark.model("loca-vae"), benchmark.sizes.sweep_models)
        model = clone(model, combiner=LocalOnly())
        labels = benchmark.split.test.histories.items.labels
        titles = [] if labels is None else list(map(repr, labels.tolist()))
        # The digest of the data knows neither genres nor titles.
        genres = sorted(map(repr, benchmark.data.genres.items()))
        inputs = benchmark.inputs_of(model, genres=_digest(genres), titles=_digest(titles))
        return [Measurement(NAME, inputs, partial(_study, benchmark, model))]

    def make(self, studied: Sequence[Results]) -> ReportItem:
        """Return the case studies of all benchmarks."""
        items = [from_records(lines) for results in studied if (lines := results.lines(NAME))]
        if not items:
            text = (
                "No case study: it needs items with genres, as MovieLens has them (by its name, such "
                "as --data ml-1m), and the protocol clean."
            )
            return ReportItem(self.key, self.title, "", findings=(Finding("found", text),))
        title = items[0].title if len(items) == 1 else self.title.replace("a user", "users")
        return replace(
            items[0],
            title=title,
            tables=tuple(table for item in items for table in item.tables),
            records=tuple(record for item in items for record in item.records),
            findings=tuple(finding for item in items for finding in item.findings),
        )


def _digest(lines: Sequence[str]) -> str:
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()


def _study(benchmark: Benchmark, unfitted: Loca) -> Records:
    train, validation = selection_data(benchmark.split, "clean")
    model = clone(unfitted).fit(train, validation=validation)
    case = find_case(model, benchmark.split, benchmark.data.genres)
    return as_records(case_item(case, data=benchmark.data.label))


def as_records(item: ReportItem) -> Records:
    """Return one record that holds the words, tables and records of a report item.

    Charts have no place in it.
    """
    document = {
        "key": item.key,
        "title": item.title,
        "caption": item.caption,
        "tables": [
            {"heading": table.heading, "note": table.note, **vars(table.table)}
            for table in item.tables
        ],
        "records": list(map(dict, item.records)),
        "findings": [[finding.kind, finding.text] for finding in item.findings],
    }
    return [{"report item": json.dumps(document, ensure_ascii=False)}]


def from_records(records: Records) -> ReportItem:
    """Return the report item again."""
    document: dict[str, Any] = json.loads(str(records[0]["report item"]))
    tables = []
    for written in document["tables"]:
        table = TextTable(tuple(written["header"]), tuple(map(tuple, written["rows"])))
        tables.append(ReportTable(written["heading"], table, written["note"]))
    return ReportItem(
        key=document["key"],
        title=document["title"],
        caption=document["caption"],
        tables=tuple(tables),
        records=tuple(document["records"]),
        findings=tuple(Finding(*written) for written in document["findings"]),
    )


def genre_matrix(items: IdMap, genres: Mapping[Id, Genres]) -> tuple[Genres, Marks]:
    """Return the genres in the order of the alphabet, and which item has which, items × genres.

    Ids match as text, and an item that is not named has none.
    """
    by_text = {str(item): of_item for item, of_item in genres.items()}
    of_each = [by_text.get(str(item), ()) for item in items.values.tolist()]
    names = tuple(sorted({genre for of_item in of_each for genre in of_item}))
    if len(names) < 2:
        raise DataError(
            f"genres: expected at least two genres among the {len(items):,} items, found "
            f"{len(names)}; are the genres those of this data set?"
        )
    return names, np.array([[genre in of_item for genre in names] for of_item in of_each])


def two_genre_users(
    histories: csr_array, of_items: Marks, criteria: Criteria
) -> list[TwoGenreUser]:
    """Return all users of two genres, the most promising first; of equal ones the lower row.

    Of all pairs of genres that meet the criteria in a user's history, the most promising is taken.
    """
    popularity = np.bincount(histories.indices, minlength=histories.shape[1])
    usual = np.maximum(of_items.mean(axis=0), popularity @ of_items / max(histories.nnz, 1))
    columns = np.sort(np.argsort(-usual, kind="stable")[:_MOST_GENRES])
    usual, marks = usual[columns], of_items[:, columns].astype(np.float32)
    pairs = np.stack(np.triu_indices(len(columns), 1))  # (2, pairs)
    in_both = marks[:, pairs[0]] * marks[:, pairs[1]]  # (items, pairs)
    rows = np.flatnonzero(np.diff(histories.indptr) >= criteria.history)
    users: list[TwoGenreUser] = []
    step = block_rows(pairs.shape[1], arrays=8, number_bytes=8)
    for start in range(0, len(rows), step):
        block = csr_array(histories[rows[start : start + step]])
        sizes = np.diff(block.indptr)[:, None]
        shares = (block @ marks) / sizes  # (users, genres)
        both = (block @ in_both) / sizes  # (users, pairs)
        promise = _promise(shares, both, usual, pairs, criteria)
        for user, pair in enumerate(promise.argmax(axis=1)):
            if promise[user, pair] > 0:
                first, second = sorted(pairs[:, pair].tolist(), key=lambda g: -shares[user, g])
                users.append(
                    TwoGenreUser(
                        row=int(rows[start + user]),
                        genres=(int(columns[first]), int(columns[second])),
                        shares=(float(shares[user, first]), float(shares[user, second])),
                        usual=(float(usual[first]), float(usual[second])),
                        both=float(both[user, pair]),
                        promise=float(promise[user, pair]),
                    )
                )
    return sorted(users, key=lambda user: -user.promise)


def _promise(
    shares: Floats, both: Floats, usual: Floats, pairs: IntArray, criteria: Criteria
) -> Floats:
    """Return how promising each pair of genres is for each user, 0 where it does not meet them.

    The result is (users, pairs), like `both`; `shares` is (users, genres).
    """
    first, second = shares[:, pairs[0]], shares[:, pairs[1]]
    either = first + second - both
    meets = (
        (np.minimum(first, second) >= criteria.share)
        & (first >= criteria.lift * usual[pairs[0]])
        & (second >= criteria.lift * usual[pairs[1]])
        & (both <= criteria.overlap * either)
    )
    excess = np.minimum(first - usual[pairs[0]], second - usual[pairs[1]])
    return np.where(meets, excess * (1 - both / np.maximum(either, 1e-12)), 0.0)


def find_case(
    model: Loca,
    split: Split,
    genres: Mapping[Id, Genres],
    *,
    criteria: Criteria | None = None,
    n: int = 5,
) -> Case:
    """Return the user of two genres whose local models separate them most clearly, and all others.

    Test users who meet the criteria are taken, the most promising first, if at least two local
    models answer for them and something of theirs was held out. Titles are those of the split's
    items.
    """
    criteria = criteria or Criteria()
    test = split.test.weighed_as(model.train_data_)
    names, of_items = genre_matrix(test.histories.items, genres)
    users = [
        user
        for user in two_genre_users(test.histories.matrix(), of_items, criteria)
        if test.targets.counts()[user.row] > 0
    ]
    if not users:
        return Case(criteria, n, (test.n_users, 0, 0), [], [])
    histories = csr_array(test.history_matrix[[user.row for user in users]])
    answer_weights = model.answer_weights(histories)
    answered = np.flatnonzero(np.diff(answer_weights.indptr) >= 2)
    counts = (test.n_users, len(users), len(answered))
    taken = answered[: criteria.users]
    users = [users[place] for place in taken]
    lists = _ListsOf(model, csr_array(histories[taken]), csr_array(answer_weights[taken]), n)
    targets = csr_array(test.target_matrix[[user.row for user in users]])
    held_out = targets.toarray() > 0  # (users, items)
    ids = test.histories.users.ids([user.row for user in users])
    examined: Records = []
    for place, user in enumerate(users):
        separation = _examine(lists, place, of_items[:, user.genres], held_out[place])
        examined.append({**_facts(ids[place], user, names), **separation})
    case = Case(criteria, n, counts, examined, [])
    if case.study is None:
        return case
    place = ids.index(case.study["user"])
    lists_shown = _lists_shown(model, lists, place, case.study, test, users[place])
    shown = [
        {"record": "shown item", "user": ids[place], **record}
        for record in _shown_records(lists_shown, test, users[place].row, names, of_items)
    ]
    history = len(set(test.histories.items_of(users[place].row).tolist()))
    return replace(case, shown=shown, usual=users[place].usual, history=history)


def _facts(user_id: Any, user: TwoGenreUser, names: Genres) -> dict[str, Value]:
    return {
        "record": "examined user",
        "user": user_id,
        **{f"genre_{side}": names[g] for side, g in zip("ab", user.genres, strict=True)},
        **{f"share_{side}": share for side, share in zip("ab", user.shares, strict=True)},
        "share_of_both": user.both,
    }


@dataclass(frozen=True)
class _ShownList:
    """The list of a model, by item rows, and the model's share in LOCA's answer if it has one."""

    model: str
    weight: float | None
    rows: list[int]


def _lists_shown(
    model: Loca, lists: _ListsOf, place: int, study: Record, test: HeldOut, user: TwoGenreUser
) -> list[_ShownList]:
    """Return the lists of two local models, of the global model and LOCA, and what was held out.

    Held-out items stand once each, in the order in which the user came to them.
    """
    combiner = fitted(model.local_, model).combiner
    global_share = float(combiner.global_shares(csr_array(lists.weights[[place]]))[0])
    shown = []
    for number in (study["best_local_a"], study["best_local_b"]):
        weight = (1 - global_share) * float(lists.weights[place, number])
        shown.append(_ShownList(f"Local {number}", weight, lists.local[place, number].tolist()))
    targets = list(dict.fromkeys(test.targets.items_of(user.row).tolist()))
    return [
        *shown,
        _ShownList("Global", global_share, lists.global_[place].tolist()),
        _ShownList("LOCA", None, lists.loca[place].tolist()),
        _ShownList("Held out", None, targets),
    ]


def _shown_records(
    lists: Sequence[_ShownList], test: HeldOut, user_row: int, names: Genres, of_items: Marks
) -> Records:
    """Return a record for each item of each list; a place that could not be filled has none."""
    items = test.histories.items
    targets = set(test.targets.items_of(user_row).tolist())
    records: Records = []
    for shown in lists:
        filled = [row for row in shown.rows if row >= 0]
        for rank, row in enumerate(filled, start=1):
            records.append(
                {
                    "model": shown.model,
                    "weight": shown.weight,
                    "rank": rank,
                    "item": items.ids([row])[0],
                    "title": items.label(row),
                    "genres": "|".join(names[genre] for genre in np.flatnonzero(of_items[row])),
                    "is_held_out": row in targets,
                }
            )
    return records


class _ListsOf:
    """The top n of examined users, seen items left out: of local models, the global one and LOCA.

    A local model that does not answer has −1. `weights` is the share of each local model in the
    answer of the local ones; 0 where it does not answer.
    """

    def __init__(
        self, model: Loca, histories: csr_array, answer_weights: csr_array, n: int
    ) -> None:
        self._histories = histories
        self._n = n
        n_users, n_models = answer_weights.shape
        models = fitted(model.local_, model).models
        self.local = np.full((n_users, n_models, n), -1, np.int32)
        by_model = answer_weights.tocsc()
        with bar("lists of local models", n_models) as progress:
            for number in range(n_models):
                users = by_model.indices[by_model.indptr[number] : by_model.indptr[number + 1]]
                self.local[users, number] = self._top(partial(models.score_with, number), users)
                progress.advance()
        weights = answer_weights.toarray().astype(np.float64)
        self.weights = weights / weights.sum(axis=1, keepdims=True)  # (users, models)
        everyone = np.arange(n_users)
        self.global_ = self._top(fitted(model.global_, model).score, everyone)
        self.loca = self._top(model.score, everyone)

    def _top(self, score: Callable[[csr_array], Scores], users: npt.NDArray[np.integer]) -> Lists:
        ranked = np.empty((len(users), self._n), np.int32)
        step = block_rows(self._histories.shape[1])
        for start in range(0, len(users), step):
            block = csr_array(self._histories[users[start : start + step]])
            ranked[start : start + step] = rank_top_n(score(block), block, self._n)[0]
        return ranked


def _examine(lists: _ListsOf, place: int, of_genres: Marks, held_out: Marks) -> dict[str, Value]:
    """Return what the lists of a user's local models hold of the two genres A and B.

    The best pair: for A the local model whose list has the most of A less those of B, and likewise
    for B; of equal ones that with more held-out items, then that of greater weight. The score of a
    user is the clarity of that pair, and of equal ones the held-out items in both lists count:
    clarity + hits / (n · (2n + 1)), less than a step of clarity. The heaviest pair is chosen
    without a look at the lists.
    """
    # A stable order by weight: of equal local models the heavier is taken, of equal weights the
    # lower number.
    models = np.flatnonzero(lists.weights[place])
    models = models[np.argsort(-lists.weights[place, models], kind="stable")]
    listed = lists.local[place, models]  # (models, n)
    n = listed.shape[1]
    in_a = _marked(of_genres[:, 0], listed)
    in_b = _marked(of_genres[:, 1], listed)
    is_hit = _marked(held_out, listed)
    lean = in_a.sum(axis=1) - in_b.sum(axis=1)
    hits = is_hit.sum(axis=1)
    first = int(np.argmax(lean * (n + 1) + hits))
    for_b = -lean * (n + 1) + hits
    for_b[first] = for_b.min() - 1  # two different ones
    best = [first, int(np.argmax(for_b))]
    heaviest = [0, 1] if lean[0] >= lean[1] else [1, 0]
    of_best = _separation("best", models, in_a, in_b, best)
    n_found = len(np.unique(listed[best][is_hit[best]]))
    score = float(of_best["best_clarity"] or 0) + n_found / (n * (2 * n + 1))
    record: dict[str, Value] = {"local_models": len(models), "score": score, "hits": n_found}
    for name, rows in (("global", lists.global_[place]), ("loca", lists.loca[place])):
        for genre, side in enumerate("ab"):
            record[f"{name}_{side}"] = float(_marked(of_genres[:, genre], rows).mean())
    return record | of_best | _separation("heaviest", models, in_a, in_b, heaviest)


def _separation(
    name: str, models: IntArray, in_a: Marks, in_b: Marks, pair: Sequence[int]
) -> dict[str, Value]:
    """Return the shares of the two genres in the lists of a pair of models, and how clear it is."""
    for_a, for_b = pair
    a_in_a, b_in_a = float(in_a[for_a].mean()), float(in_b[for_a].mean())
    b_in_b, a_in_b = float(in_b[for_b].mean()), float(in_a[for_b].mean())
    facts: dict[str, Value] = {
        "local_a": int(models[for_a]),
        "local_b": int(models[for_b]),
        "a_in_a": a_in_a,
        "b_in_a": b_in_a,
        "b_in_b": b_in_b,
        "a_in_b": a_in_b,
        "clarity": min(a_in_a - b_in_a, b_in_b - a_in_b),
        "division": (a_in_a + b_in_b - (b_in_a + a_in_b)) / 2,
    }
    return {f"{name}_{fact}": value for fact, value in facts.items()}


def _marked(marks: Marks, item_rows: Lists) -> Marks:
    """Return the marks of listed items; a place that could not be filled has none."""
    return np.asarray(marks[item_rows] & (item_rows >= 0))


def case_item(case: Case, *, data: str = "") -> ReportItem:
    """Return Table 4: the user shown with all lists, and a second table over all examined users.

    `data` names the data set in the title, in the records and before headings and findings, so that
    several can stand together. Where nobody meets the criteria there are no tables, and a finding
    says what was looked for.
    """
    study = case.study
    before = f"{data}: " if data else ""
    tables = () if study is None else (_story_table(case, study), _average_table(case, study))
    return ReportItem(
        key=Table4.key,
        title=Table4.title + (f" ({data})" if data else ""),
        caption=(
            f"Top-{case.list_length} lists of two local models, of the global model and of LOCA, for "
            "the user whose local models divide two genres most clearly; and the same over all users "
            "who were examined."
        ),
        tables=tuple(replace(table, heading=before + table.heading) for table in tables),
        records=tuple({"data": data, **record} for record in (*case.shown, *case.examined)),
        findings=tuple(
            replace(finding, text=before + finding.text) for finding in _findings(case, study)
        ),
    )


def _story_table(case: Case, study: Record) -> ReportTable:
    n = case.list_length
    marks: dict[str, str] = {}
    headings = []
    for side, mark, usual in zip("ab", _MARKS, case.usual, strict=True):
        genre, share = study[f"genre_{side}"], study[f"share_{side}"]
        marks[genre] = f"{genre} {mark}"
        headings.append(f"{marks[genre]} ({share:.0%} of the history, usually {usual:.0%})")
    rows: dict[str, list[str]] = {}
    for item in case.shown:
        model, weight = str(item["model"]), item["weight"]
        genres = ", ".join(marks.get(genre, genre) for genre in str(item["genres"]).split("|"))
        hit = _HIT if item["is_held_out"] and model != "Held out" else ""
        text = f"{hit}{item['title']}" + (f" — {genres}" if genres else "")
        rows.setdefault(model if weight is None else f"{model} ({weight:.1%})", []).append(text)
    note = _STORY_NOTE.format(history=case.history)
    n_hidden = len(rows["Held out"]) - n
    if n_hidden > 0:
        note += f" Held-out items that are not shown: {n_hidden}."
    filled = tuple((name, *texts[:n], *[""] * (n - len(texts))) for name, texts in rows.items())
    table = TextTable(("Model", *(f"Top-{rank + 1}" for rank in range(n))), filled)
    return ReportTable(f"User {study['user']}: {' and '.join(headings)}", table, note)


def is_separated(user: Record, pair: str) -> bool:
    """Return whether in each list more than half goes to its genre beyond what the other has.

    So it is in the paper's case study: 5 of 5 and 2 of the other, 5 of 5 and none of the other.
    """
    return bool(user[f"{pair}_clarity"] > 0.5)


def is_above_global(user: Record, pair: str) -> bool:
    """Return whether one list has more of genre A, and the other of B, than the global list."""
    return bool(
        user[f"{pair}_a_in_a"] > user["global_a"] and user[f"{pair}_b_in_b"] > user["global_b"]
    )


def _average_table(case: Case, study: Record) -> ReportTable:
    everybody: Sequence[Record] = case.examined
    name = f"User {study['user']}: {_PAIRS['best']}"
    checks = ["yes" if count else "no" for count in _counts([study], "best")]
    rows: list[tuple[str, ...]] = [(name, *_averages([study], "best"), *checks)]
    for pair, words in _PAIRS.items():
        counts = [_of(count, len(everybody)) for count in _counts(everybody, pair)]
        rows.append((f"All: {words}", *_averages(everybody, pair), *counts))
    for name, model in (("the global list", "global"), ("LOCA's list", "loca")):
        shares = [(user[f"{model}_a"], user[f"{model}_b"]) for user in everybody]
        rows.append((f"All: {name}", f"{np.mean(shares):.0%}", *[""] * 4))
    heading = f"All {len(everybody):,} users of two tastes who were examined"
    return ReportTable(heading, TextTable(_HEADER, tuple(rows)), _NOTE)


def _averages(users: Sequence[Record], pair: str) -> tuple[str, str, str]:
    """Return the mean shares of a pair's own and other genres, and its mean division."""
    own = np.mean([(user[f"{pair}_a_in_a"], user[f"{pair}_b_in_b"]) for user in users])
    other = np.mean([(user[f"{pair}_b_in_a"], user[f"{pair}_a_in_b"]) for user in users])
    division = np.mean([user[f"{pair}_division"] for user in users])
    return f"{own:.0%}", f"{other:.0%}", f"{division:.2f}"


def _counts(users: Sequence[Record], pair: str) -> tuple[int, int]:
    """Return for how many users a pair separates genres, and for how many it is above global."""
    n_separated = sum(is_separated(user, pair) for user in users)
    return n_separated, sum(is_above_global(user, pair) for user in users)


def _findings(case: Case, study: Record | None) -> Iterator[Finding]:
    """Return findings on the user shown, on how typical that is, and on who was examined."""
    n_tested, n_two_genres, n_two_models = case.counts
    steps = (
        f"{n_two_genres:,} of {n_tested:,} test users have two tastes ({case.criteria}), "
        f"at least two local models answer for {n_two_models:,} of them"
    )
    if study is None:
        yield Finding("found", f"No user for a case study: {steps}.")
        return
    yield _finding_on_study(study, case.list_length)
    count = len(case.examined)
    n_best, n_heaviest = (
        sum(is_separated(user, pair) for user in case.examined) for pair in _PAIRS
    )
    n_above = sum(is_above_global(user, "best") for user in case.examined)
    shares = (_of(number, count) for number in (n_best, n_above, n_heaviest))
    typical = "typical" if 2 * n_best > count else "not typical"
    yield Finding("found", f"Such a story is {typical}: {_TYPICAL.format(*shares)}")
    examined = f"the {count:,} most promising of these"
    if count == n_two_models:
        examined = "all of these"
    yield Finding("found", f"Who was looked at: {steps}; {examined} were examined.")


def _finding_on_study(study: Record, n: int) -> Finding:
    """Return the story of the user shown, with shares of a list as numbers of its items."""
    facts = dict(study)
    for name, value in study.items():
        if isinstance(value, float):
            facts[name] = round(value * n)
    is_clear = is_separated(study, "best")
    unclear = "are not told apart, though no examined user's are clearer"
    facts["verdict"] = "are told apart" if is_clear else unclear
    facts["n"] = n
    facts["found"] = "item is" if study["hits"] == 1 else "items are"
    return Finding.on(is_clear, _STORY.format_map(facts))


def _of(count: int, total: int) -> str:
    return f"{count:,} of {total:,} ({count / max(total, 1):.0%})"
