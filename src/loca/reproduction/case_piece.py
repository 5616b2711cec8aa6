"""Table 4: the model that is asked, the lists of one user of two tastes, and the average of all who were examined."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loca.experiments.grid import Grid
from loca.experiments.protocols import chosen_on
from loca.local.loca import Loca
from loca.models.recommender import Recommender, clone
from loca.reproduction.bench import Bench, Records, Results
from loca.reproduction.case_study import CaseSearch, CaseStudy, Examined, ShownItem, ShownList, find_case
from loca.reproduction.divided_tastes import DividedPair, ExaminedUser
from loca.reproduction.exhibit import Exhibit, Finding, Panel, Value
from loca.reproduction.measurings import Measuring, exactly

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


def measurings(bench: Bench) -> list[Measuring]:
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
    return [Measuring(NAME, subject, _Case(bench))]


def _digest_of(lines: Iterable[str]) -> str:
    """A short text that changes with any line; the digest of the data knows neither genres nor titles."""
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()


def _asked_model(bench: Bench) -> Recommender:
    """LOCA_VAE whose covered users the local models alone answer for, as in the paper."""
    model = bench.model("loca-vae")
    return clone(model, anchors=bench.scale.sweep_models, alpha="paper") if isinstance(model, Loca) else model


@dataclass(frozen=True, eq=False)
class _Case:
    """Fits the model and looks for the user of two tastes."""

    bench: Bench

    def __call__(self) -> Records:
        train, questions = chosen_on(self.bench.split, "clean")
        model: Any = _asked_model(self.bench)
        found = find_case(model.fit(train, validation=questions), self.bench.split, self.bench.data.genres)
        return as_records(case_exhibit(found, data=self.bench.data.label))


def make(studied: Sequence[Results]) -> Exhibit:
    """The case studies of all data sets whose items have genres."""
    found = [from_records(one.records[NAME]) for one in studied if NAME in one.records]
    if not found:
        text = (
            "No case study: it needs items with genres, as MovieLens has them (by its name, such as --data ml-1m), and "
            "the protocol clean."
        )
        title = "Table 4: what local models recommend to a user of two tastes"
        return Exhibit("table4", title, "", findings=(Finding("found", text),))
    if len(found) == 1:
        return found[0]
    return Exhibit(
        key="table4",
        title="Table 4: what local models recommend to users of two tastes",
        caption=found[0].caption,
        panels=tuple(panel for one in found for panel in one.panels),
        records=tuple(line for one in found for line in one.records),
        findings=tuple(finding for one in found for finding in one.findings),
    )


def as_records(exhibit: Exhibit) -> Records:
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


def from_records(records: Records) -> Exhibit:
    """The exhibit again."""
    told: dict[str, Any] = json.loads(str(records[0]["exhibit"]))
    return Exhibit(
        key=told["key"],
        title=told["title"],
        caption=told["caption"],
        panels=tuple(_read(panel) for panel in told["panels"]),
        records=tuple(told["records"]),
        findings=tuple(Finding(kind, text) for kind, text in told["findings"]),
    )


def _written(panel: Panel) -> dict[str, Any]:
    return {
        "heading": panel.heading,
        "note": panel.note,
        "header": panel.grid.header,
        "rows": panel.grid.rows,
    }


def _read(panel: dict[str, Any]) -> Panel:
    grid = Grid(tuple(panel["header"]), tuple(tuple(row) for row in panel["rows"]))
    return Panel(panel["heading"], grid, panel["note"])


def case_exhibit(search: CaseSearch, *, data: str = "") -> Exhibit:
    """Table 4: the user shown with all lists, a second table over all examined users, and whether he is typical.

    `data` names the data set in the title, in the records and before headings and findings, so that several can stand
    together. Records hold every shown item and every examined user. Where nobody is as sought there are no tables, and
    a finding says what was looked for.
    """
    study, of_data = search.study, f" ({data})" if data else ""
    panels = () if study is None else (_story_panel(study, search.list_length), _average_panel(search, study))
    records = (*_shown_records(study), *(_examined_record(one) for one in search.examined))
    before = f"{data}: " if data else ""
    return Exhibit(
        key="table4",
        title=f"Table 4: what local models recommend to a user of two tastes{of_data}",
        caption=f"Top-{search.list_length} lists of two local models, of the global model and of LOCA, for the user "
        "whose local models divide two genres most clearly; and the same over all users who were examined.",
        panels=tuple(replace(panel, heading=before + panel.heading) for panel in panels),
        records=tuple({"data": data, **record} for record in records),
        findings=tuple(replace(finding, text=before + finding.text) for finding in _findings(search)),
    )


def _story_panel(study: CaseStudy, n: int) -> Panel:
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
    return Panel(
        f"User {study.user}: {genres}",
        Grid(("Model", *(f"Top-{rank + 1}" for rank in range(n))), rows),
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


def _average_panel(search: CaseSearch, study: CaseStudy) -> Panel:
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
    return Panel(
        f"All {len(users):,} users of two tastes who were examined", Grid(header + counts, rows), _AVERAGE_NOTE
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
