"""The report: what a table or figure of the paper holds, its files, and an HTML page of all."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from loca.errors import DataError
from loca.evaluation.significance import PairedDifference, Verdict, verdict_on
from loca.paper.charts import (
    PIXELS_PER_INCH,
    Chart,
    as_png,
    as_svg,
    draw_charts,
    without_warnings,
)
from loca.persistence.atomic_write import write_whole
from loca.text_table import TextTable, csv_text

Value = str | int | float | bool | None
Records = list[dict[str, Value]]
# How a finding stands to the paper: the same here, not the same here, or a thing that the paper
# does not say.
FindingKind = Literal["matches", "differs", "found"]
KIND_WORDS: Mapping[FindingKind, str] = {
    "matches": "matches the paper",
    "differs": "differs from the paper",
    "found": "not in the paper",
}
# What a LOCA is compared with, as the columns of the first screen say it.
BASE, BEST, ENSEMBLE = "its base", "the best single model", "the equal-size ensemble"
# And what communities by mixtures are.
DEALT = "the same memberships dealt to other users"
ENDINGS = ("csv", "md", "png", "svg")
_LONG = 30  # letters of a field that holds words, and is read from its left


@dataclass(frozen=True)
class Finding:
    """One sentence on a result, and how it stands to the paper."""

    kind: FindingKind
    text: str

    @classmethod
    def on(cls, claim_holds: bool, text: str) -> Finding:
        """A finding on something that the paper claims."""
        return cls("matches" if claim_holds else "differs", text)


@dataclass(frozen=True)
class ReportTable:
    """A table under its heading; `note` says what must be known to read it."""

    heading: str
    table: TextTable
    note: str = ""

    @property
    def holds_words(self) -> bool:
        """Whether the table holds words, which are read from the left, and not figures."""
        return any(len(text) > _LONG for row in self.table.rows for text in row[1:])


@dataclass(frozen=True)
class ReportItem:
    """A table or figure of the paper: what a reader sees, and the records that it comes from.

    Parameters
    ----------
    key
        The name of its files and its place on the page.
    title, caption
        What it shows.
    tables, charts
        Charts are drawn side by side into one picture.
    records
        The lines of its CSV file: every seed, every setting.
    findings
        What matches the paper and what does not.
    command
        The command that makes it.
    missing
        What was not computed, a line for each benchmark.
    """

    key: str
    title: str
    caption: str
    tables: tuple[ReportTable, ...] = ()
    charts: tuple[Chart, ...] = ()
    records: tuple[Mapping[str, Value], ...] = ()
    findings: tuple[Finding, ...] = ()
    command: str = ""
    missing: tuple[str, ...] = ()

    @property
    def file_names(self) -> tuple[str, ...]:
        """The files that it is written to: no CSV without records, no pictures without charts."""
        endings = ["md"]
        if self.records:
            endings = ["csv", *endings]
        if self.charts:
            endings += ["png", "svg"]
        return tuple(f"{self.key}.{ending}" for ending in endings)


@dataclass(frozen=True)
class Gain:
    """What one model gains over another in NDCG@100; p values are corrected over a benchmark.

    `over` says what the other model is to the first, such as its base.
    """

    model: str
    other: str
    over: str
    paired: PairedDifference
    t_p: float
    wilcoxon_p: float

    @property
    def verdict(self) -> Verdict:
        """What the difference is: better, worse, undecided or equal."""
        return verdict_on(self.paired, self.t_p, self.wilcoxon_p)

    @property
    def figure(self) -> str:
        """The gain in % of the mean compared with; in NDCG@100 itself where that mean is 0."""
        return "0 %" if self.verdict == "equal" else self._texts()[0]

    @property
    def interval(self) -> str:
        """The 95 % interval in the same unit."""
        if self.verdict == "equal":
            return "for every user"
        _, low, high, unit = self._texts()
        return f"{low} to {high}{unit}"

    def _texts(self) -> tuple[str, str, str, str]:
        """Return the gain, both ends of its interval, and the unit of these."""
        paired = self.paired
        if not (math.isfinite(paired.relative) and paired.mean):
            return signed(paired.mean, 4), signed(paired.low, 4), signed(paired.high, 4), ""
        scale = 100 * paired.relative / paired.mean
        digits = 2 if abs(paired.relative) < 0.01 else 1
        low, high = sorted((paired.low * scale, paired.high * scale))
        return (
            f"{signed(100 * paired.relative, digits)} %",
            signed(low, digits),
            signed(high, digits),
            " %",
        )


@dataclass(frozen=True)
class Headline:
    """A line of the first screen: what one LOCA gains on one data set under one protocol.

    `ndcg` is its NDCG@100 with the spread over seeds, `gains` are by what they are over; one that
    was not measured is left out. `printed` is the paper's figure, under the protocol `paper` alone:
    others have other data.
    """

    data: str
    protocol: str
    model: str
    ndcg: str
    printed: float | None
    gains: Mapping[str, Gain]


@dataclass(frozen=True)
class Provenance:
    """What was run: the command, and facts by name under headings such as Versions."""

    command: str
    facts: Mapping[str, Mapping[str, Value]]


def signed(value: float, digits: int) -> str:
    """Return a number with its sign, none for what rounds to 0, and a true minus."""
    text = f"{value:+.{digits}f}"
    return text[1:] if not float(text) else text.replace("-", "−")


def write_item(item: ReportItem, folder: Path) -> None:
    """Write the files of a report item; remove files that only an earlier one had."""
    contents = {"md": as_markdown(item).encode()}
    if item.records:
        contents["csv"] = csv_text(item.records).encode()
    if item.charts:
        figure = draw_charts(item.charts)
        with without_warnings():
            contents["png"] = as_png(figure, PIXELS_PER_INCH)
        contents["svg"] = as_svg(figure, item.key).encode()
    for ending, content in contents.items():
        write_whole(folder / f"{item.key}.{ending}", content)
    for ending in set(ENDINGS) - set(contents):
        path = folder / f"{item.key}.{ending}"
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise DataError(
                f"{path}: an older file cannot be removed ({error.strerror or error}); remove it"
            ) from None


def as_markdown(item: ReportItem) -> str:
    """Return the item for reading in a repository: title, caption, picture, tables, findings."""
    blocks = [f"# {_markdown(item.title)}", _markdown(item.caption, has_code=True)]
    if item.charts:
        blocks.append(f"![{_markdown(item.title)}]({item.key}.png)")
    for shown in item.tables:
        rows = tuple(tuple(map(_markdown, row)) for row in shown.table.rows)
        table = TextTable(tuple(map(_markdown, shown.table.header)), rows)
        note = _markdown(shown.note, has_code=True)
        blocks += [f"## {_markdown(shown.heading)}", table.markdown(), note]
    if item.findings:
        lines = [
            f"- {KIND_WORDS[finding.kind].capitalize()}: {_markdown(finding.text, has_code=True)}"
            for finding in item.findings
        ]
        blocks += ["## Findings", "\n".join(lines)]
    if item.missing:
        lines = [f"- {_markdown(words, has_code=True)}" for words in item.missing]
        blocks += ["## Not computed", "\n".join(lines)]
    if item.command:
        # Indented, which no command can end early.
        lines = [f"    {line}" for line in item.command.splitlines()]
        blocks += ["## Made by", "\n".join(lines)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _markdown(text: str, *, has_code: bool = False) -> str:
    """Return the text as a line of Markdown that shows every sign; `has_code` leaves backticks."""
    code = r"(`[^`]+`)" if has_code else r"(?!)"
    parts = re.split(code, " ".join(text.split()))
    for place in range(0, len(parts), 2):
        shown = re.sub(r"&(?=#?\w+;)", "&amp;", parts[place]).replace("<", "&lt;")
        parts[place] = re.sub(r"([\\|*`\[\]])", r"\\\1", shown)
    return "".join(parts)


def page_of(
    headlines: Sequence[Headline], items: Sequence[ReportItem], provenance: Provenance, title: str
) -> str:
    """Return the page as HTML that needs no other file; items link to their files beside it."""
    from jinja2 import Environment, PackageLoader
    from markupsafe import Markup, escape

    def prose(text: str) -> Markup:
        """Return the text as HTML, in which what stands between backticks is code."""
        return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))

    def draw(charts: Sequence[Chart], key: str) -> dict[str, Any]:
        figure = draw_charts(charts)
        svg = as_svg(figure, key)
        return {"svg": Markup(svg[svg.index("<svg") :]), "width": 96 * figure.get_size_inches()[0]}

    cases: dict[tuple[str, str], dict[str, Headline]] = {}
    for headline in headlines:
        case = cases.setdefault((headline.data, headline.model), {})
        case[headline.protocol] = headline
    loader = PackageLoader("loca.paper")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"prose": prose, "draw": draw}
    return environment.get_template("report.html").render(
        title=title,
        # A count is not torn apart at the end of a line.
        sentence=overall_sentence(headlines).replace(" of ", "\u00a0of\u00a0"),
        cases=cases,
        overs=(BASE, BEST, ENSEMBLE),
        items=items,
        kinds=KIND_WORDS,
        provenance=provenance,
    )


def overall_sentence(headlines: Sequence[Headline]) -> str:
    """Return in how many cases LOCA surely wins, loses or is undecided, under the clean protocol."""
    parts: list[str] = []
    others: set[str] = set()
    for over in (BASE, BEST, ENSEMBLE):
        verdicts = [
            headline.gains[over].verdict
            for headline in headlines
            if headline.protocol == "clean" and over in headline.gains
        ]
        others |= set(verdicts) - {"better", "worse"}
        if verdicts:
            part = f"{over} in {verdicts.count('better')} of {len(verdicts)}"
            if not parts:
                part += " cases" if len(verdicts) > 1 else " case"
            if "worse" in verdicts:
                part += f" (and loses in {verdicts.count('worse')})"
            parts.append(part)
    if not parts:
        return "No LOCA was compared under the clean protocol, so there is no gain to report yet."
    sentence = "Where nothing is chosen on test, LOCA beats "
    sentence += " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    if others:
        sentence += f"; the others are {' or '.join(sorted(others, reverse=True))}"
    return f"{sentence}."
