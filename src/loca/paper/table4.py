"""Table 4: the lists of one user of two genres, and how far local models separate genres for all such users."""

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
from loca.data.splits import Split
from loca.errors import DataError
from loca.evaluation.top_n import block_rows, rank_top_n
from loca.local.combiner import LocalOnly
from loca.local.loca import Loca
from loca.models.recommender import clone, fitted
from loca.paper.benchmark import Benchmark, Measurement, PaperItem, Results, of_size
from loca.paper.report import Finding, Records, ReportItem, ReportTable
from loca.progress import bar
from loca.text_table import TextTable
from loca.tuning.model_selection import selection_data

if TYPE_CHECKING:
    from loca.data.item_metadata import Genres

NAME = "case study"
# Pairs grow with the square of the genres; rarer ones could hardly lead in anybody's history.
_MOST_GENRES = 30
_MARKS = ("①", "②")
_HIT = "✓ "
_PAIRS = {"best": "best two, chosen by their lists", "heaviest": "two of greatest weight"}
_NOTE = (
    "Told apart: in each of the two lists the share of its own genre less that of the other is more than half. "
    "Division is the mean of that difference over both lists, 1 at most. Above the global list: one list has more of "
    "the first genre and the other more of the second than the global list has."
)
_STORY_NOTE = (
    f"{_HIT.strip()} was held out and found. The percentage beside a model is its share of LOCA's answer. Items of the "
    "history ({history}) are left out; held-out items stand in the order in which the user came to them."
)
_STORY = (
    "The two tastes of user {user}, {genre_a} and {genre_b}, {verdict}: of the top {n} of Local {best_local_a}, "
    "{best_a_in_a} are {genre_a} and {best_b_in_a} {genre_b}; of Local {best_local_b}, {best_b_in_b} are {genre_b} and "
    "{best_a_in_b} {genre_a}; the global model lists {global_a} and {global_b}, LOCA {loca_a} and {loca_b}. {hits} "
    "held-out {found} in the two local lists."
)
_TYPICAL = (
    "even with the two local models chosen by their lists, two genres are told apart for {} examined users, and "
    "divided more than in the global list for {}; the two local models of greatest weight, chosen without a look at "
    "their lists, tell them apart for {}."
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
    """Users of two genres: at least `history` items, a `share` of them in each of two genres, each `lift` times the
    usual share (of the catalogue and of all histories, the larger), and at most `overlap` of the items in either in
    both.

    The `users` most promising of them are examined.
    """

    history: int = 20
    share: float = 0.2
    lift: float = 1.3
    overlap: float = 1 / 3
    users: int = 300

    def __str__(self) -> str:
        return (
            f"at least {self.history} items in the history, at least {self.share:.0%} of them in each of two genres, "
            f"{self.lift:g} times or more the usual share of each, and at most {self.overlap:.0%} of the items of "
            "either genre in both"
        )


class TwoGenreUser(NamedTuple):
    """A user of two genres (the larger share first): the shares of the history, the usual ones, and that of both.

    `promise` is the smaller of the two excesses over the usual share, times 1 − (items in both / items in either).
    """

    row: int
    genres: tuple[int, int]
    shares: tuple[float, float]
    usual: tuple[float, float]
    both: float
    promise: float


@dataclass(frozen=True)
class Case:
    """The examined users, the most promising first, and the lists of the one whose genres are separated best.

    `counts` are the test users, those of two genres, and those of them whom two local models answer for. `examined` and
    `shown` are the records of Table 4: one for each examined user, and one for each item of each list shown.
    `usual` and `history` are the usual shares of the two genres of the user shown and the length of the history.
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
        """The examined user of the highest score, of equal ones the most promising; None where nobody was examined."""
        return max(self.examined, key=lambda one: float(one["score"] or 0), default=None)


class Table4(PaperItem):
    """The case study of every data set whose items have genres, where choices are made on validation."""

    key = "table4"
    title = "Table 4: what local models recommend to a user of two tastes"

    def measurements(self, benchmark: Benchmark) -> list[Measurement]:
        if not benchmark.data.genres or benchmark.protocol != "clean":
            return []
        # LOCA_VAE whose covered users the local models alone answer for, as in the paper.
        model = of_size(benchmark.model("loca-vae"), benchmark.sizes.sweep_models)
        model = clone(model, combiner=LocalOnly())
        labels = benchmark.split.test.histories.items.labels
        titles = [] if labels is None else list(map(repr, labels.tolist()))
        # The digest of the data knows neither genres nor titles.
        lines = {"genres": sorted(map(repr, benchmark.data.genres.items())), "titles": titles}
        digests = {
            name: hashlib.blake2b("\n".join(own).encode(), digest_size=16).hexdigest()
            for name, own in lines.items()
        }

        def study() -> Records:
            train, validation = selection_data(benchmark.split, "clean")
            fitted = clone(model).fit(train, validation=validation)
            case = find_case(fitted, benchmark.split, benchmark.data.genres)
            return as_records(case_item(case, data=benchmark.data.label))

        return [Measurement(NAME, benchmark.inputs_of(model, **digests), study)]

    def make(self, studied: Sequence[Results]) -> ReportItem:
        found = [from_records(lines) for one in studied if (lines := one.lines(NAME))]
        if not found:
            text = (
                "No case study: it needs items with genres, as MovieLens has them (by its name, such as --data ml-1m), "
                "and the protocol clean."
            )
            return ReportItem(self.key, self.title, "", findings=(Finding("found", text),))
        return replace(
            found[0],
            title=found[0].title if len(found) == 1 else self.title.replace("a user", "users"),
            tables=tuple(table for one in found for table in one.tables),
            records=tuple(line for one in found for line in one.records),
            findings=tuple(finding for one in found for finding in one.findings),
        )


def as_records(item: ReportItem) -> Records:
    """One record that holds the words, tables and records of a report item; charts have no place in it."""
    facts: dict[str, Any] = {"key": item.key, "title": item.title, "caption": item.caption}
    facts["tables"] = [
        {"heading": one.heading, "note": one.note, **vars(one.table)} for one in item.tables
    ]
    facts |= {
        "records": list(map(dict, item.records)),
        "findings": [[one.kind, one.text] for one in item.findings],
    }
    return [{"report item": json.dumps(facts, ensure_ascii=False)}]


def from_records(records: Records) -> ReportItem:
    """The report item again."""
    found: dict[str, Any] = json.loads(str(records[0]["report item"]))
    tables = []
    for one in found.pop("tables"):
        table = TextTable(tuple(one["header"]), tuple(map(tuple, one["rows"])))
        tables.append(ReportTable(one["heading"], table, one["note"]))
    findings = tuple(Finding(*one) for one in found.pop("findings"))
    return ReportItem(
        tables=tuple(tables), findings=findings, records=tuple(found.pop("records")), **found
    )


def genre_matrix(items: IdMap, genres: Mapping[Id, Genres]) -> tuple[Genres, Marks]:
    """The genres in the order of the alphabet, and which item has which, items × genres.

    Ids match as text, and an item that is not named has none.
    """
    by_text = {str(one): names for one, names in genres.items()}
    of_each = [by_text.get(str(one), ()) for one in items.values.tolist()]
    names = tuple(sorted({name for listed in of_each for name in listed}))
    if len(names) < 2:
        raise DataError(
            f"genres: expected at least two genres among the {len(items):,} items, found {len(names)}; "
            "are the genres those of this data set?"
        )
    return names, np.array([[name in listed for name in names] for listed in of_each])


def two_genre_users(
    histories: csr_array, of_items: Marks, criteria: Criteria
) -> list[TwoGenreUser]:
    """All users of two genres, the most promising first; of equal ones the lower row.

    Of all pairs of genres that meet the criteria in a user's history, the most promising is taken.
    """
    popularity = np.bincount(histories.indices, minlength=histories.shape[1])
    usual = np.maximum(of_items.mean(axis=0), popularity @ of_items / max(histories.nnz, 1))
    columns = np.sort(np.argsort(-usual, kind="stable")[:_MOST_GENRES])
    usual, marks = usual[columns], of_items[:, columns].astype(np.float32)
    pairs = np.stack(np.triu_indices(len(columns), 1))  # (2, pairs)
    in_both = marks[:, pairs[0]] * marks[:, pairs[1]]  # (items, pairs)
    rows = np.flatnonzero(np.diff(histories.indptr) >= criteria.history)
    found = []
    step = block_rows(pairs.shape[1], arrays=8, number_bytes=8)
    for start in range(0, len(rows), step):
        part = csr_array(histories[rows[start : start + step]])
        sizes = np.diff(part.indptr)[:, None]
        shares, both = (
            (part @ marks) / sizes,
            (part @ in_both) / sizes,
        )  # (users, genres), (users, pairs)
        first, second = shares[:, pairs[0]], shares[:, pairs[1]]
        either = first + second - both
        is_sought = (
            (np.minimum(first, second) >= criteria.share)
            & (first >= criteria.lift * usual[pairs[0]])
            & (second >= criteria.lift * usual[pairs[1]])
            & (both <= criteria.overlap * either)
        )
        excess = np.minimum(first - usual[pairs[0]], second - usual[pairs[1]])
        promise = np.where(is_sought, excess * (1 - both / np.maximum(either, 1e-12)), 0.0)
        for user, pair in enumerate(promise.argmax(axis=1)):
            if promise[user, pair] > 0:
                ordered = sorted(pairs[:, pair].tolist(), key=lambda genre: -shares[user, genre])
                of_pair = (columns[ordered], shares[user, ordered], usual[ordered])
                genres, own, everybody = (tuple(values.tolist()) for values in of_pair)
                row, scores = (
                    int(rows[start + user]),
                    (float(both[user, pair]), float(promise[user, pair])),
                )
                found.append(TwoGenreUser(row, genres, own, everybody, *scores))
    return sorted(found, key=lambda one: -one.promise)


def find_case(
    model: Loca,
    split: Split,
    genres: Mapping[Id, Genres],
    *,
    criteria: Criteria | None = None,
    n: int = 5,
) -> Case:
    """The user of two genres whose local models separate them most clearly, and all examined ones.

    Test users who meet the criteria are taken, the most promising first, if at least two local models answer for them
    and something of theirs was held out. Titles are those of the split's items.
    """
    criteria = Criteria() if criteria is None else criteria
    test = split.test.weighed_as(model.train_data_)
    names, of_items = genre_matrix(test.histories.items, genres)
    users = two_genre_users(test.histories.matrix(), of_items, criteria)
    users = [one for one in users if test.targets.counts()[one.row] > 0]
    if not users:
        return Case(criteria, n, (test.n_users, 0, 0), [], [])
    histories = csr_array(test.history_matrix[[one.row for one in users]])
    answering = model.answer_weights(histories)
    answered = np.flatnonzero(np.diff(answering.indptr) >= 2)
    counts, taken = (test.n_users, len(users), len(answered)), answered[: criteria.users]
    users = [users[place] for place in taken]
    lists = _ListsOf(model, csr_array(histories[taken]), csr_array(answering[taken]), n)
    held_out = (
        csr_array(test.target_matrix[[one.row for one in users]]).toarray() > 0
    )  # (users, items)
    ids = test.histories.users.ids([one.row for one in users])
    examined: Records = []
    for place, user in enumerate(users):
        facts: dict[str, Any] = {"record": "examined user", "user": ids[place]}
        facts |= {
            f"genre_{side}": names[genre] for side, genre in zip("ab", user.genres, strict=True)
        }
        facts |= {f"share_{side}": share for side, share in zip("ab", user.shares, strict=True)}
        found = _examine(lists, place, of_items[:, user.genres], held_out[place])
        examined.append({**facts, "share_of_both": user.both, **found})
    case = Case(criteria, n, counts, examined, [])
    if (study := case.study) is None:
        return case
    place = ids.index(study["user"])
    user, items = users[place], test.histories.items
    combiner = fitted(model.local_, model).combiner
    global_share = float(combiner.global_shares(csr_array(lists.weights[[place]]))[0])
    # Once each, in the order in which the user came to them.
    targets = list(dict.fromkeys(test.targets.items_of(user.row).tolist()))
    shown: list[tuple[str, float | None, list[int]]] = []
    for number in (study["best_local_a"], study["best_local_b"]):
        weight = (1 - global_share) * float(lists.weights[place, number])
        shown.append((f"Local {number}", weight, lists.local[place, number].tolist()))
    shown.append(("Global", global_share, lists.global_[place].tolist()))
    shown += [("LOCA", None, lists.loca[place].tolist()), ("Held out", None, targets)]
    records: Records = []
    for name, share, rows in shown:
        for rank, row in enumerate((row for row in rows if row >= 0), start=1):
            facts = {
                "record": "shown item",
                "user": study["user"],
                "model": name,
                "weight": share,
                "rank": rank,
            }
            facts |= {"item": items.ids([row])[0], "title": items.label(row)}
            facts["genres"] = "|".join(names[genre] for genre in np.flatnonzero(of_items[row]))
            records.append({**facts, "is_held_out": row in targets})
    return replace(
        case,
        shown=records,
        usual=user.usual,
        history=len(set(test.histories.items_of(user.row).tolist())),
    )


class _ListsOf:
    """The top n of examined users, seen items left out: of each local model that answers (else −1), global, of LOCA.

    `weights` is the share of each local model in the answer of the local ones; 0 where it does not answer.
    """

    def __init__(self, model: Loca, histories: csr_array, answering: csr_array, n: int) -> None:
        user_count, model_count = answering.shape
        step = block_rows(histories.shape[1])

        def top(score: Callable[[csr_array], Any], users: npt.NDArray[np.integer]) -> Lists:
            ranked = np.empty((len(users), n), np.int32)
            for start in range(0, len(users), step):
                block = csr_array(histories[users[start : start + step]])
                ranked[start : start + step] = rank_top_n(score(block), block, n)[0]
            return ranked

        self.local = np.full((user_count, model_count, n), -1, np.int32)
        models = fitted(model.local_, model).models
        by_model = answering.tocsc()
        with bar("lists of local models", model_count) as progress:
            for number in range(model_count):
                members = by_model.indices[by_model.indptr[number] : by_model.indptr[number + 1]]
                self.local[members, number] = top(partial(models.score_with, number), members)
                progress.advance()
        weights = answering.toarray().astype(np.float64)
        self.weights = weights / weights.sum(axis=1, keepdims=True)  # (users, models)
        everyone = np.arange(user_count)
        self.global_ = top(fitted(model.global_, model).score, everyone)
        self.loca = top(model.score, everyone)


def _examine(lists: _ListsOf, place: int, of_genres: Marks, held_out: Marks) -> dict[str, Any]:
    """What the lists of a user's local models hold of the two genres A and B.

    The best pair: for A the local model whose list has the most of A less those of B, and likewise for B; of equal
    ones that with more held-out items, then that of greater weight. The score of a user is the clarity of that pair,
    and of equal ones the held-out items in both lists count: clarity + hits / (n · (2n + 1)), less than a step of
    clarity. The heaviest pair is chosen without a look at the lists.
    """
    # A stable order by weight: of equal local models the heavier is taken, of equal weights the lower number.
    models = np.flatnonzero(lists.weights[place])
    models = models[np.argsort(-lists.weights[place, models], kind="stable")]
    chosen = lists.local[place, models]  # (models, n)
    n = chosen.shape[1]
    in_a, in_b = (_marked(of_genres[:, genre], chosen) for genre in (0, 1))
    is_hit = _marked(held_out, chosen)
    lean, hits = in_a.sum(axis=1) - in_b.sum(axis=1), is_hit.sum(axis=1)
    first = int(np.argmax(lean * (n + 1) + hits))
    for_b = -lean * (n + 1) + hits
    for_b[first] = for_b.min() - 1  # two different ones
    pairs = {
        "best": [first, int(np.argmax(for_b))],
        "heaviest": [0, 1] if lean[0] >= lean[1] else [1, 0],
    }
    of_pairs: dict[str, Any] = {}
    for name, (a, b) in pairs.items():
        aa, ba, bb, ab = (float(one.mean()) for one in (in_a[a], in_b[a], in_b[b], in_a[b]))
        facts: dict[str, float] = {"local_a": int(models[a]), "local_b": int(models[b])}
        facts |= {"a_in_a": aa, "b_in_a": ba, "b_in_b": bb, "a_in_b": ab}
        facts |= {"clarity": min(aa - ba, bb - ab), "division": (aa + bb - (ba + ab)) / 2}
        of_pairs |= {f"{name}_{fact}": value for fact, value in facts.items()}
    found = len(np.unique(chosen[pairs["best"]][is_hit[pairs["best"]]]))
    record = {
        "local_models": len(models),
        "score": of_pairs["best_clarity"] + found / (n * (2 * n + 1)),
        "hits": found,
    }
    for name, rows in (("global", lists.global_[place]), ("loca", lists.loca[place])):
        for genre, side in enumerate("ab"):
            record[f"{name}_{side}"] = float(_marked(of_genres[:, genre], rows).mean())
    return record | of_pairs


def _marked(marks: Marks, item_rows: Lists) -> Marks:
    """The marks of listed items; a place that could not be filled has none."""
    return np.asarray(marks[item_rows] & (item_rows >= 0))


def case_item(case: Case, *, data: str = "") -> ReportItem:
    """Table 4: the user shown with all lists, a second table over all examined users, and whether the user is typical.

    `data` names the data set in the title, in the records and before headings and findings, so that several can stand
    together. Where nobody meets the criteria there are no tables, and a finding says what was looked for.
    """
    study, before = case.study, f"{data}: " if data else ""
    tables = () if study is None else (_story_table(case, study), _average_table(case, study))
    return ReportItem(
        key=Table4.key,
        title=Table4.title + (f" ({data})" if data else ""),
        caption=f"Top-{case.list_length} lists of two local models, of the global model and of LOCA, for the user "
        "whose local models divide two genres most clearly; and the same over all users who were examined.",
        tables=tuple(replace(one, heading=before + one.heading) for one in tables),
        records=tuple({"data": data, **record} for record in (*case.shown, *case.examined)),
        findings=tuple(replace(one, text=before + one.text) for one in _findings(case, study)),
    )


def _story_table(case: Case, study: Record) -> ReportTable:
    n, marks, headings = case.list_length, dict[str, str](), []
    for side, mark, usual in zip("ab", _MARKS, case.usual, strict=True):
        genre, share = study[f"genre_{side}"], study[f"share_{side}"]
        marks[genre] = f"{genre} {mark}"
        headings.append(f"{marks[genre]} ({share:.0%} of the history, usually {usual:.0%})")
    rows: dict[str, list[str]] = {}
    for item in case.shown:
        model, weight = str(item["model"]), item["weight"]
        genres = ", ".join(marks.get(one, one) for one in str(item["genres"]).split("|"))
        hit = _HIT if item["is_held_out"] and model != "Held out" else ""
        text = f"{hit}{item['title']}" + (f" — {genres}" if genres else "")
        rows.setdefault(model if weight is None else f"{model} ({weight:.1%})", []).append(text)
    hidden = len(rows["Held out"]) - n
    more = f" Held-out items that are not shown: {hidden}." if hidden > 0 else ""
    filled = tuple((name, *texts[:n], *[""] * (n - len(texts))) for name, texts in rows.items())
    table = TextTable(("Model", *(f"Top-{rank + 1}" for rank in range(n))), filled)
    note = _STORY_NOTE.format(history=case.history) + more
    return ReportTable(f"User {study['user']}: {' and '.join(headings)}", table, note)


def is_separated(user: Record, pair: str) -> bool:
    """Whether in each list more than half of the places go to its own genre beyond those of the other genre.

    So it is in the paper's case study: 5 of 5 and 2 of the other, 5 of 5 and none of the other.
    """
    return bool(user[f"{pair}_clarity"] > 0.5)


def is_above_global(user: Record, pair: str) -> bool:
    """Whether the first list has more of genre A and the second more of B than the global list."""
    return bool(
        user[f"{pair}_a_in_a"] > user["global_a"] and user[f"{pair}_b_in_b"] > user["global_b"]
    )


def _average_table(case: Case, study: Record) -> ReportTable:
    rows, everybody = [], list[Record](case.examined)
    shown = [
        (f"User {study['user']}", [study], "best"),
        *(("All", everybody, pair) for pair in _PAIRS),
    ]
    for name, users, pair in shown:
        own = np.mean([(one[f"{pair}_a_in_a"], one[f"{pair}_b_in_b"]) for one in users])
        other = np.mean([(one[f"{pair}_b_in_a"], one[f"{pair}_a_in_b"]) for one in users])
        division = np.mean([one[f"{pair}_division"] for one in users])
        counts = (
            sum(check(one, pair) for one in users) for check in (is_separated, is_above_global)
        )
        checked = (
            _of(one, len(users)) if name == "All" else "yes" if one else "no" for one in counts
        )
        rows.append(
            (f"{name}: {_PAIRS[pair]}", f"{own:.0%}", f"{other:.0%}", f"{division:.2f}", *checked)
        )
    for name, model in (("the global list", "global"), ("LOCA's list", "loca")):
        shares = [(one[f"{model}_a"], one[f"{model}_b"]) for one in everybody]
        rows.append((f"All: {name}", f"{np.mean(shares):.0%}", *[""] * 4))
    heading = f"All {len(everybody):,} users of two tastes who were examined"
    return ReportTable(heading, TextTable(_HEADER, tuple(rows)), _NOTE)


def _findings(case: Case, study: Record | None) -> Iterator[Finding]:
    """On the user shown; whether that holds for more than half of all examined users; and who was examined."""
    tested, with_two_genres, with_two_models = case.counts
    steps = (
        f"{with_two_genres:,} of {tested:,} test users have two tastes ({case.criteria}), "
        f"at least two local models answer for {with_two_models:,} of them"
    )
    if study is None:
        yield Finding("found", f"No user for a case study: {steps}.")
        return
    shares = {name: value for name, value in study.items() if isinstance(value, float)}
    facts = {**study, **{name: round(value * case.list_length) for name, value in shares.items()}}
    is_clear = is_separated(study, "best")
    facts["verdict"] = (
        "are told apart"
        if is_clear
        else "are not told apart, though no examined user's are clearer"
    )
    facts |= {"n": case.list_length, "found": "item is" if study["hits"] == 1 else "items are"}
    yield Finding.on(is_clear, _STORY.format_map(facts))
    count = len(case.examined)
    best, heaviest = (sum(is_separated(one, pair) for one in case.examined) for pair in _PAIRS)
    more = sum(is_above_global(one, "best") for one in case.examined)
    text = f"Such a story is {'typical' if 2 * best > count else 'not typical'}: {_TYPICAL}"
    yield Finding("found", text.format(*(_of(one, count) for one in (best, more, heaviest))))
    who = "all of these" if count == with_two_models else f"the {count:,} most promising of these"
    yield Finding("found", f"Who was looked at: {steps}; {who} were examined.")


def _of(count: int, total: int) -> str:
    return f"{count:,} of {total:,} ({count / max(total, 1):.0%})"
