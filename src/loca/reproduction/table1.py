"""Table 1: the counts of each data set as read here, with the printed row beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from loca.data.datasets import PRINTED, Printed
from loca.data.statistics import Statistics, describe
from loca.reproduction.benchmark import PaperItem, Results
from loca.reproduction.report import Finding, ReportItem, ReportTable, Value
from loca.text_table import TextTable

_COUNTS, _SHARES = ("users", "items", "ratings"), ("sparsity", "concentration")
_HEADER = ("Data", "Users", "Items", "Ratings", "Sparsity", "Concentration (top 5 %)", "Top 2 %")
_NOTE = (
    "Every rating counts, repeated ones too, as in the paper. Concentration is the share of the ratings that the "
    "most popular 5 % of the items have; the share of the top 2 % stands beside it, because the paper's figure for "
    "AMusic is nearer to that."
)


class Table1(PaperItem):
    """Table 1: the data as the paper treats it where it has the same, else as it is studied here."""

    key = "table1"
    title = "Table 1: statistics of the data sets"
    caption = "Users, items, ratings, sparsity and concentration as read here, and as the paper prints them."

    def make(self, studied: Sequence[Results]) -> ReportItem:
        by_label = {one.benchmark.data.label: one.benchmark.data for one in studied}
        described = {
            label: describe(data.interactions if data.as_printed is None else data.as_printed)
            for label, data in by_label.items()
        }
        printed = {label: PRINTED[data.printed] for label, data in by_label.items() if data.printed is not None}
        return statistics_item(described, printed)


def statistics_item(described: Mapping[str, Statistics], printed: Mapping[str, Printed]) -> ReportItem:
    """Table 1 with a row for each data set, and under it the paper's row where it prints one.

    Findings say of each which figures are exactly the printed ones, and by how much the others differ; percentages are
    compared as they are printed, to two decimals.
    """
    rows, records, findings = [], [], list[Finding]()
    for name, found in described.items():
        paper = printed.get(name)
        rows.append((name, *_row(found), _percent(found.narrow_concentration)))
        record: dict[str, Value] = {"data": name} | {column: getattr(found, column) for column in _COUNTS}
        record |= {f"{column}_percent": getattr(found, column) for column in _SHARES}
        record["top_2_percent"] = found.narrow_concentration
        for column in (*_COUNTS, *_SHARES):
            record[f"printed_{column}"] = None if paper is None else getattr(paper, column)
        records.append(record)
        if paper is not None:
            rows.append((f"{name}, the paper's", *_row(paper), ""))
            findings += _compared(name, found, paper)
    alone = [name for name in described if name not in printed]
    if alone:
        findings.append(Finding("found", f"{_and(alone)}: not in the paper's Table 1."))
    table = ReportTable("Statistics of the data sets", TextTable(_HEADER, tuple(rows)), _NOTE)
    item = Table1
    return ReportItem(item.key, item.title, item.caption, (table,), records=tuple(records), findings=tuple(findings))


def _row(found: Statistics | Printed) -> list[str]:
    counts = (f"{getattr(found, column):,}" for column in _COUNTS)
    return [*counts, *(_percent(getattr(found, column)) for column in _SHARES)]


def _compared(name: str, found: Statistics, printed: Printed) -> Iterator[Finding]:
    """What is the same as in the paper in one sentence, what is not in another."""
    same, other = [], []
    for column in (*_COUNTS, *_SHARES):
        ours, theirs = getattr(found, column), getattr(printed, column)
        is_count = column in _COUNTS
        texts = (f"{ours:,}", f"{theirs:,}") if is_count else (_percent(ours), _percent(theirs))
        by = f"{ours - theirs:+,}, {(ours - theirs) / theirs:+.1%}" if is_count else f"{ours - theirs:+.2f} points"
        if texts[0] == texts[1]:
            same.append(f"{column} ({texts[0]})")
        else:
            other.append(f"{column} {texts[0]} here, {texts[1]} printed ({by})")
    narrow, printed_share = found.narrow_concentration, printed.concentration
    is_apart = other and other[-1].startswith("concentration")
    if is_apart and abs(narrow - printed_share) < abs(found.concentration - printed_share):
        other[-1] += f", to which the share of the top 2 % of the items, {_percent(narrow)}, is nearer"
    if same:
        yield Finding("matches", f"{name}: {_and(same)} as printed.")
    if other:
        yield Finding("differs", f"{name}: {'; '.join(other)}.")


def _percent(value: float) -> str:
    return f"{value:.2f} %"


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
