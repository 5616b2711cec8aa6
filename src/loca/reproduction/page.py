"""The page of all exhibits: one HTML file that needs nothing else, from what is true overall down to what was run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import quote

from loca.errors import DataError
from loca.experiments.grid import Grid
from loca.reproduction.charts import as_svg, draw_charts
from loca.reproduction.exhibit import Exhibit, Finding, Headline, Panel, Provenance, Value
from loca.reproduction.exhibit_files import KIND_WORDS, file_names
from loca.reproduction.first_screen import first_screen
from loca.reproduction.page_style import STYLE

# Nothing is loaded and nothing runs, whatever a name from outside may hold.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_POINT = 96 / 72  # pixels
_LONG = 30  # letters of a cell that holds words, and is read from its left
_SORTED_BY = (
    "A claim of the paper matches where it is surely so here, with its interval above 0 (in Table 2 with both tests "
    "too), whether or not the paper has these data; all else differs from it, also what points the same way and is not "
    "sure. Some claims stand in two pieces."
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
