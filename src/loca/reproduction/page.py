"""The page of all exhibits: one HTML file that needs nothing else, from what is true overall down to what was run."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import quote

from loca.errors import DataError
from loca.experiments.grid import Grid
from loca.reproduction.charts import as_svg, draw_charts
from loca.reproduction.exhibit import Exhibit, Finding, Gain, Headline, Panel, Provenance, Value
from loca.reproduction.exhibit_files import KIND_WORDS, file_names
from loca.reproduction.page_style import STYLE
from loca.reproduction.seed_means import with_spread

# Nothing is loaded and nothing runs, whatever a name from outside may hold.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_POINT = 96 / 72  # pixels
_LONG = 30  # letters of a cell that holds words, and is read from its left
_SORTED_BY = (
    "A claim of the paper matches where it is surely so here, with its interval above 0 (in Table 2 with both tests "
    "too), whether or not the paper has these data; all else differs from it, also what points the same way and is not "
    "sure. Some claims stand in two pieces."
)
# What a LOCA is compared with, in the order of a headline's gains, and the word that names each in `Gain.over`.
_OVERS = {"base": "its base", "single": "the best single model", "ensemble": "the equal-size ensemble"}
_PROTOCOLS = {"clean": "a result", "paper": "chosen on test: not a result"}
_NARROW = {"clean": "clean", "paper": "paper, not a result"}
_CAPTION = "What LOCA gains in NDCG@100"
_NOTE = (
    "Gains in NDCG@100, in % of the mean of the model named below them, with 95 % intervals over users; better and "
    "worse where the interval and two corrected paired tests (t, Wilcoxon) agree, undecided where they do not; equal "
    "where no user's figure differs, as where the global share that was chosen is 1. Behind ± the standard deviation "
    "over seeds, in brackets the number of local models. Under clean every choice is made on validation; under paper "
    "when to stop, the global share and the best rival are chosen on test, as in the paper's program, to stand beside "
    "what it prints. The protocols do not always ask the same users."
)


def page_of(
    headlines: Sequence[Headline],
    exhibits: Sequence[Exhibit],
    provenance: Provenance,
    title: str,
) -> str:
    """The page as HTML; exhibits link to their files, which lie beside it."""
    keys = [exhibit.key for exhibit in exhibits]
    if len(set(keys)) != len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise DataError(f"page: expected exhibits of different keys, found {twice!r} twice")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(title)}</title>\n<link rel="icon" href="data:,">\n<style>\n{STYLE}</style>\n</head>\n'
        f"<body>\n<main>\n<h1>{escape(title)}</h1>\n{first_screen(headlines)}"
        f"{_findings_by_kind(exhibits)}{_contents(exhibits)}{_exhibits(exhibits)}"
        f"{_what_was_run(provenance, exhibits)}</main>\n</body>\n</html>\n"
    )


def _findings_by_kind(exhibits: Sequence[Exhibit]) -> str:
    told = [(exhibit, finding) for exhibit in exhibits for finding in exhibit.findings]
    if not told:
        return ""
    blocks = []
    for kind, words in KIND_WORDS.items():
        own = [(exhibit, finding) for exhibit, finding in told if finding.kind == kind]
        items = "".join(
            f'<li>{_prose(finding.text)} <small><a href="#{exhibit.key}">{escape(exhibit.title)}</a></small></li>\n'
            for exhibit, finding in own
        )
        listed = f"<ul>\n{items}</ul>\n" if own else '<p class="quiet">Nothing.</p>\n'
        blocks.append(f"<div>\n<h3>{words.capitalize()}</h3>\n{listed}</div>\n")
    return (
        f'<h2>What matches the paper, and what does not</h2>\n<p class="note">{escape(_SORTED_BY)}</p>\n'
        f'<div class="kinds">\n{"".join(blocks)}</div>\n'
    )


def _contents(exhibits: Sequence[Exhibit]) -> str:
    links = "".join(f'<li><a href="#{one.key}">{escape(one.title)}</a></li>\n' for one in exhibits)
    return (
        '<nav class="contents" aria-labelledby="_contents">\n<h2 id="_contents">Contents</h2>\n'
        f'<ul>\n{links}<li><a href="#_run">What was run</a></li>\n</ul>\n</nav>\n'
    )


def _exhibits(exhibits: Sequence[Exhibit]) -> str:
    return f"<h2>Tables and figures</h2>\n{''.join(map(_exhibit, exhibits))}" if exhibits else ""


def _exhibit(exhibit: Exhibit) -> str:
    names = file_names(exhibit)  # refuses a key that cannot be a place on a page
    files = " · ".join(f'<a href="{quote(name)}">{escape(name)}</a>' for name in names)
    caption = f"<p>{_prose(exhibit.caption)}</p>\n" if exhibit.caption else ""
    return (
        f'<article id="{exhibit.key}">\n<h3>{escape(exhibit.title)}</h3>\n{caption}{_picture(exhibit)}'
        f"{''.join(map(_panel, exhibit.panels))}{_findings(exhibit.findings)}{_missing(exhibit.missing)}"
        f"{_commands(exhibit.commands)}"
        f'<p class="quiet">Files: {files}</p>\n</article>\n'
    )


def _picture(exhibit: Exhibit) -> str:
    """The charts as an inline picture that shrinks with the screen as long as its letters can be read."""
    if not exhibit.charts:
        return ""
    svg = as_svg(draw_charts(exhibit.charts), exhibit.key)
    drawn = svg[svg.index("<svg") + len("<svg") :]
    found = re.search(r'width="([\d.]+)pt"', drawn)
    width = float(found[1]) * _POINT if found else 600.0
    label = escape(exhibit.title)
    place = drawn.index(">") + 1
    return (
        f'<div class="scroll picture" role="region" aria-label="Picture: {label}" tabindex="0">\n'
        f'<svg role="img" aria-labelledby="{exhibit.key}.title" '
        f'style="min-width:{0.85 * width:.0f}px;max-width:{1.4 * width:.0f}px"{drawn[:place]}'
        f'<title id="{exhibit.key}.title">{label}: {escape(_told_charts(exhibit))}</title>{drawn[place:]}</div>\n'
    )


def _told_charts(exhibit: Exhibit) -> str:
    """What the picture shows, for those who cannot see it."""
    return "; ".join(
        f"{chart.title}, {chart.y_label} by {chart.x_label} for {', '.join(curve.label for curve in chart.curves)}"
        for chart in exhibit.charts
    )


def _panel(panel: Panel) -> str:
    note = f'<p class="note">{_prose(panel.note)}</p>\n' if panel.note else ""
    return _table(panel.grid, panel.heading) + note


def _table(grid: Grid, heading: str) -> str:
    """A table in a box of its own, which scrolls sideways where the screen is too narrow."""
    named = escape(heading) if heading else "Table"
    look = ' class="words"' if any(len(cell) > _LONG for row in grid.rows for cell in row[1:]) else ""
    caption = f"<caption>{named}</caption>\n" if heading else ""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in grid.header)
    rows = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in row[1:])}</tr>\n'
        for row in grid.rows
    )
    return (
        f'<div class="scroll" role="region" aria-label="{named}" tabindex="0">\n<table aria-label="{named}"'
        f"{look}>\n{caption}"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>\n"
    )


def _findings(findings: Sequence[Finding]) -> str:
    items = "".join(
        f'<li class="{one.kind}"><b>{KIND_WORDS[one.kind].capitalize()}:</b> {_prose(one.text)}</li>\n'
        for one in findings
    )
    return f'<ul class="findings">\n{items}</ul>\n' if findings else ""


def _missing(missing: Sequence[str]) -> str:
    return "".join(f'<p class="note">Not computed: {_prose(one)}.</p>\n' for one in missing)


def _commands(commands: Sequence[str]) -> str:
    return f"<pre><code>{escape(chr(10).join(commands))}</code></pre>\n" if commands else ""


def _what_was_run(provenance: Provenance, exhibits: Sequence[Exhibit]) -> str:
    tables = "".join(
        _facts(values, heading)
        for heading, values in (
            ("Settings", provenance.settings),
            ("Versions", provenance.versions),
            ("Machine", provenance.machine),
        )
    )
    titles = {exhibit.key: exhibit.title for exhibit in exhibits}
    times = {titles.get(key, key): _duration(seconds) for key, seconds in provenance.seconds.items()}
    if len(times) > 1:
        times["Together"] = _duration(sum(provenance.seconds.values()))
    return (
        f'<h2 id="_run">What was run</h2>\n{_commands(provenance.commands)}'
        f'<div class="facts">\n{tables}{_facts(times, "Time taken")}</div>\n'
    )


def _facts(values: Mapping[str, Value], heading: str) -> str:
    if not values:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(_told(value))}</td></tr>\n'
        for name, value in values.items()
    )
    return f"<div>\n<table>\n<caption>{heading}</caption>\n<tbody>\n{rows}</tbody>\n</table>\n</div>\n"


def _prose(text: str) -> str:
    """The text as HTML, in which what stands between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _told(value: Value) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _duration(seconds: float) -> str:
    """Seconds below two minutes, minutes below two hours, then hours and minutes."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def first_screen(headlines: Sequence[Headline]) -> str:
    """The sentence, the table and a note on how to read it, as HTML."""
    # A count is not torn apart at the end of a line.
    sentence = escape(overall_sentence(headlines)).replace(" of ", "&nbsp;of&nbsp;")
    lead = f'<p class="lead">{sentence}</p>\n'
    if not headlines:
        return lead
    cases = list(dict.fromkeys((one.data, one.model) for one in headlines))
    found = {(one.data, one.model, one.protocol): one for one in headlines}
    _check(headlines, len(found))
    rows = "".join(
        _row(data, model, {name: found.get((data, model, name)) for name in _PROTOCOLS}) for data, model in cases
    )
    return (
        f'{lead}<div class="scroll gains" role="region" aria-label="{_CAPTION}" tabindex="0">\n'
        f'<table role="table">\n<caption>{_CAPTION}</caption>\n'
        f'{_head()}<tbody role="rowgroup">\n{rows}</tbody>\n</table>\n</div>\n<p class="note">{escape(_NOTE)}</p>\n'
    )


def overall_sentence(headlines: Sequence[Headline]) -> str:
    """What is true overall under the clean protocol: in how many cases LOCA surely wins, loses, or cannot be told."""
    clean = [gains_in_order(one) for one in headlines if one.protocol == "clean"]
    parts: list[str] = []
    others: set[str] = set()
    for place, over in enumerate(_OVERS.values()):
        words = [gain.verdict for gains in clean if (gain := gains[place]) is not None]
        others |= {word for word in words if word not in ("better", "worse")}
        if words:
            cases = "" if parts else " cases" if len(words) > 1 else " case"
            loses = f" (and loses in {words.count('worse')})" if "worse" in words else ""
            parts.append(f"{over} in {words.count('better')} of {len(words)}{cases}{loses}")
    if not parts:
        return "No LOCA was compared under the clean protocol, so there is no gain to tell yet."
    listed = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    rest = f"; the others are {' or '.join(sorted(others, reverse=True))}" if others else ""
    return f"Where nothing is chosen on test, LOCA beats {listed}{rest}."


def gains_in_order(headline: Headline) -> tuple[Gain | None, Gain | None, Gain | None]:
    """The gains over the base, over the best single model and over the ensemble; None where one was not measured.

    Three gains are taken as they come; fewer are told apart by base, single or ensemble in what they are over, as in
    "the best single model (RecVAE)".
    """
    if len(headline.gains) == len(_OVERS):
        first, second, third = headline.gains
        return first, second, third
    named = {word: [gain for gain in headline.gains if word in gain.over.split("(")[0]] for word in _OVERS}
    if sum(map(len, named.values())) != len(headline.gains) or any(len(gains) > 1 for gains in named.values()):
        raise DataError(
            f"headline of {headline.model} on {headline.data}: expected 3 gains, or fewer that each say base, single "
            f"or ensemble in what they are over, found {', '.join(repr(gain.over) for gain in headline.gains)}"
        )
    base, single, ensemble = (next(iter(gains), None) for gains in named.values())
    return base, single, ensemble


def figures_of(gain: Gain) -> tuple[str, str]:
    """The gain and its interval in % of the mean compared with; in NDCG@100 itself where % cannot be told."""
    if gain.verdict == "equal":
        return "0 %", "for every user"
    if not (math.isfinite(gain.relative) and gain.difference):
        return f"{_signed(gain.difference, 4)}", f"{_signed(gain.low, 4)} to {_signed(gain.high, 4)}"
    scale = 100 * gain.relative / gain.difference
    digits = 2 if abs(gain.relative) < 0.01 else 1
    low, high = sorted((gain.low * scale, gain.high * scale))
    return f"{_signed(100 * gain.relative, digits)} %", f"{_signed(low, digits)} to {_signed(high, digits)} %"


def _check(headlines: Sequence[Headline], different: int) -> None:
    unknown = sorted({one.protocol for one in headlines} - set(_PROTOCOLS))
    if unknown:
        raise DataError(f"headlines: expected the protocols clean and paper, found {unknown[0]!r}")
    if different != len(headlines):
        raise DataError("headlines: expected one for each data set, model and protocol, found the same one twice")


def _head() -> str:
    overs = "".join(
        f'<th role="columnheader" scope="colgroup" colspan="2" class="over">over {over}</th>'
        for over in _OVERS.values()
    )
    protocols = "".join(
        f'<th role="columnheader" scope="col" class="{name}">{name}<small>{told}</small></th>'
        for name, told in _PROTOCOLS.items()
    )
    return (
        '<thead role="rowgroup">\n<tr role="row"><th role="columnheader" scope="col" rowspan="2">data set, model</th>'
        f'<th role="columnheader" scope="col" rowspan="2">NDCG@100</th>{overs}</tr>\n'
        f'<tr role="row">{protocols * len(_OVERS)}</tr>\n</thead>\n'
    )


def _row(data: str, model: str, by_protocol: dict[str, Headline | None]) -> str:
    cells = [
        _cell(None if headline is None else gains_in_order(headline)[place], f"over {over}", protocol)
        for place, over in enumerate(_OVERS.values())
        for protocol, headline in by_protocol.items()
    ]
    return (
        f'<tr role="row"><th role="rowheader" scope="row"><b>{escape(data)}</b>{escape(model)}</th>'
        f"{_ndcg_cell(by_protocol)}{''.join(cells)}</tr>\n"
    )


def _ndcg_cell(by_protocol: dict[str, Headline | None]) -> str:
    """The means of the model itself, and what the paper prints for the data of its own protocol."""
    measured = [one for one in by_protocol.values() if one is not None]
    told = [f"{with_spread(one.ndcg, one.spread)} {one.protocol}" for one in measured]
    paper = by_protocol["paper"]
    if paper is not None and paper.printed is not None:
        told.append(f"{paper.printed:.4f} printed")
    return (
        f'<td role="cell" class="ndcg" data-column="NDCG@100">{"".join(f"<small>{line}</small>" for line in told)}</td>'
    )


def _cell(gain: Gain | None, column: str, protocol: str) -> str:
    # A narrow screen has no head over its cells, so each says what it is.
    label = f'data-column="{escape(f"{column} ({_NARROW[protocol]})")}"'
    if gain is None:
        return f'<td role="cell" class="{protocol}" {label}>–</td>'
    figure, interval = figures_of(gain)
    named = "" if gain.over in _OVERS.values() else f"<small>{escape(_name_of(gain.over))}</small>"
    return (
        f'<td role="cell" class="{protocol} {gain.verdict}" {label}><span class="figure">{figure}</span> '
        f'<span class="word">{gain.verdict}</span><small>{interval}</small>{named}</td>'
    )


def _name_of(over: str) -> str:
    """The model itself where its part is told too: RecVAE of "the best single model (RecVAE)"."""
    found = re.fullmatch(r"[^(]+\((.+)\)", over)
    return found[1] if found else over


def _signed(value: float, digits: int) -> str:
    """A number with its sign, none for what rounds to 0, and a true minus."""
    text = f"{value:+.{digits}f}"
    return text[1:] if not float(text) else text.replace("-", "−")
