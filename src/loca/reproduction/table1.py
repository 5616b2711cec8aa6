"""The paper's Table 1: the counts of each data set as read here, with the printed row beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from loca.data.datasets import Printed
from loca.data.statistics import Statistics
from loca.reproduction.report_items import Finding, ReportItem, ReportTable, Value
from loca.text_table import TextTable

_HEADER = ("Data", "Users", "Items", "Ratings", "Sparsity", "Concentration (top 5 %)", "Top 2 %")


def statistics_exhibit(described: Mapping[str, Statistics], printed: Mapping[str, Printed]) -> ReportItem:
    """Table 1 with a row for each data set that is described, and under it the paper's row where it prints one.

    Findings say of each which figures are exactly the printed ones, and by how much the others differ; percentages are
    compared as they are printed, to two decimals.
    """
    rows = [row for name, found in described.items() for row in _rows(name, found, printed.get(name))]
    panel = ReportTable(
        "Statistics of the data sets",
        TextTable(_HEADER, tuple(rows)),
        "Every rating counts, repeated ones too, as in the paper. Concentration is the share of the ratings that the "
        "most popular 5 % of the items have; the share of the top 2 % stands beside it, because the paper's figure for "
        "AMusic is nearer to that.",
    )
    return ReportItem(
        key="table1",
        title="Table 1: statistics of the data sets",
        caption="Users, items, ratings, sparsity and concentration as read here, and as the paper prints them.",
        panels=(panel,),
        records=tuple(_record(name, found, printed.get(name)) for name, found in described.items()),
        findings=tuple(_findings(described, printed)),
    )


def _rows(name: str, found: Statistics, printed: Printed | None) -> Iterator[tuple[str, ...]]:
    counts = (f"{found.users:,}", f"{found.items:,}", f"{found.ratings:,}")
    shares = (_percent(found.sparsity), _percent(found.concentration), _percent(found.narrow_concentration))
    yield (name, *counts, *shares)
    if printed is not None:
        counts = (f"{printed.users:,}", f"{printed.items:,}", f"{printed.ratings:,}")
        yield (f"{name}, the paper's", *counts, _percent(printed.sparsity), _percent(printed.concentration), "")


def _record(name: str, found: Statistics, printed: Printed | None) -> dict[str, Value]:
    record: dict[str, Value] = {
        "data": name,
        "users": found.users,
        "items": found.items,
        "ratings": found.ratings,
        "sparsity_percent": found.sparsity,
        "concentration_percent": found.concentration,
        "top_2_percent": found.narrow_concentration,
    }
    for column in ("users", "items", "ratings", "sparsity", "concentration"):
        record[f"printed_{column}"] = None if printed is None else getattr(printed, column)
    return record


def _findings(described: Mapping[str, Statistics], printed: Mapping[str, Printed]) -> Iterator[Finding]:
    for name, found in described.items():
        if name in printed:
            yield from _compared(name, found, printed[name])
    alone = [name for name in described if name not in printed]
    if alone:
        yield Finding("found", f"{_and(alone)}: not in the paper's Table 1.")
    absent = [name for name in printed if name not in described]
    if absent:
        yield Finding("found", f"{_and(absent)}: in the paper's Table 1, not read here.")


def _compared(name: str, found: Statistics, printed: Printed) -> Iterator[Finding]:
    """What is the same as in the paper in one sentence, what is not in another."""
    same, other = [], []
    for what in ("users", "items", "ratings"):
        ours, theirs = getattr(found, what), getattr(printed, what)
        difference = ours - theirs
        if difference == 0:
            same.append(f"{what} ({ours:,})")
        else:
            relative = f", {difference / theirs:+.1%}" if theirs else ""
            other.append(f"{what} {ours:,} here, {theirs:,} printed ({difference:+,}{relative})")
    if _percent(found.sparsity) == _percent(printed.sparsity):
        same.append(f"sparsity ({_percent(found.sparsity)})")
    else:
        other.append(_apart("sparsity", found.sparsity, printed.sparsity))
    if _percent(found.concentration) == _percent(printed.concentration):
        same.append(f"concentration ({_percent(found.concentration)})")
    else:
        other.append(_apart("concentration", found.concentration, printed.concentration) + _narrow(found, printed))
    if same:
        yield Finding("matches", f"{name}: {_and(same)} as printed.")
    if other:
        yield Finding("differs", f"{name}: {'; '.join(other)}.")


def _apart(what: str, ours: float, theirs: float) -> str:
    return f"{what} {_percent(ours)} here, {_percent(theirs)} printed ({ours - theirs:+.2f} points)"


def _narrow(found: Statistics, printed: Printed) -> str:
    """How the share of the top 2 % stands to the printed concentration, where it is the nearer one."""
    apart = abs(found.narrow_concentration - printed.concentration)
    if apart >= abs(found.concentration - printed.concentration):
        return ""
    return f", to which the share of the top 2 % of the items, {_percent(found.narrow_concentration)}, is nearer"


def _percent(value: float) -> str:
    return f"{value:.2f} %"


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
