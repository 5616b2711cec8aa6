"""The page of all exhibits: one HTML file that needs nothing else, from what is true overall down to what was run."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from loca.errors import ConfigError, DataError
from loca.experiments.demo import as_png
from loca.persistence.atomic_write import write_whole
from loca.reproduction.benchmark import with_spread
from loca.reproduction.charts import PIXELS_PER_INCH, as_svg, draw_charts, without_warnings
from loca.reproduction.report_items import Finding, Gain, Headline, Kind, Provenance, ReportItem, ReportTable, Value
from loca.text_table import TextTable

# How a finding stands to the paper, in words.
KIND_WORDS: Mapping[Kind, str] = {
    "matches": "matches the paper",
    "differs": "differs from the paper",
    "found": "not in the paper",
}
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,79}")
ENDINGS = ("csv", "md", "png", "svg")


def write_exhibit(exhibit: ReportItem, folder: Path) -> tuple[str, ...]:
    """Writes the files of an exhibit into a folder, which is made where it is missing, and gives back their names.

    A file that an earlier exhibit of the same key had and this one has not is removed.
    """
    names = file_names(exhibit)
    contents = {f"{exhibit.key}.md": as_markdown(exhibit).encode()}
    if exhibit.records:
        contents[f"{exhibit.key}.csv"] = as_csv(exhibit.records).encode()
    if exhibit.charts:
        figure = draw_charts(exhibit.charts)
        with without_warnings():
            contents[f"{exhibit.key}.png"] = as_png(figure, PIXELS_PER_INCH)
        contents[f"{exhibit.key}.svg"] = as_svg(figure, exhibit.key).encode()
    for name in names:
        write_whole(folder / name, contents[name])
    for ending in ENDINGS:
        if f"{exhibit.key}.{ending}" not in names:
            _remove(folder / f"{exhibit.key}.{ending}")
    return names


def file_names(exhibit: ReportItem) -> tuple[str, ...]:
    """The names of the files that the exhibit is written to: no CSV without records, no pictures without charts."""
    check_key(exhibit.key)
    endings = (["csv"] if exhibit.records else []) + ["md"] + (["png", "svg"] if exhibit.charts else [])
    return tuple(f"{exhibit.key}.{ending}" for ending in endings)


def check_key(key: str) -> None:
    """Refuses a key that cannot be the name of a file and of a place on a page."""
    if not _KEY.fullmatch(key):
        raise ConfigError(
            f"key of an exhibit: expected a letter, then up to 79 letters, digits, - and _, found {key!r:.100}"
        )


def as_csv(records: Sequence[Mapping[str, Value]]) -> str:
    """One line per record under the keys of all of them, in order of first appearance; a missing value is empty."""
    keys = list(dict.fromkeys(key for record in records for key in record))
    out = io.StringIO()
    writer = csv.DictWriter(out, keys, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def as_markdown(exhibit: ReportItem) -> str:
    """The exhibit for reading in a repository: title, caption, picture, tables, findings, commands."""
    blocks = [f"# {_marked(exhibit.title)}", _prose_exhibit(exhibit.caption)]
    if exhibit.charts:
        blocks.append(f"![{_marked(exhibit.title)}]({exhibit.key}.png)")
    blocks += [block for panel in exhibit.panels for block in _panel_blocks(panel)]
    if exhibit.findings:
        lines = [
            f"- {KIND_WORDS[finding.kind].capitalize()}: {_prose_exhibit(finding.text)}" for finding in exhibit.findings
        ]
        blocks += ["## Findings", "\n".join(lines)]
    if exhibit.missing:
        blocks += ["## Not computed", "\n".join(f"- {_prose_exhibit(one)}" for one in exhibit.missing)]
    if exhibit.commands:
        # Indented, which no command can end early.
        lines = [line for command in exhibit.commands for line in command.splitlines()]
        blocks += ["## Made by", "\n".join(f"    {line}" for line in lines)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _panel_blocks(panel: ReportTable) -> list[str]:
    header = tuple(map(_marked, panel.grid.header))
    rows = tuple(tuple(map(_marked, row)) for row in panel.grid.rows)
    return [
        f"## {_marked(panel.heading)}" if panel.heading else "",
        TextTable(header, rows).markdown(),
        _prose_exhibit(panel.note),
    ]


def _line(text: str) -> str:
    return " ".join(text.split())


def _marked(text: str) -> str:
    """The text as one line of Markdown that shows every sign as it is."""
    return _shown(_line(text))


def _prose_exhibit(text: str) -> str:
    """The text as one line of Markdown in which only backticks speak: what stands between two of them is code."""
    parts = re.split(r"(`[^`]+`)", _line(text))
    return "".join(part if place % 2 else _shown(part) for place, part in enumerate(parts))


def _shown(text: str) -> str:
    text = re.sub(r"&(?=#?\w+;)", "&amp;", text).replace("<", "&lt;")
    return re.sub(r"([\\|*`\[\]])", r"\\\1", text)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(f"{path}: an older file cannot be removed ({error.strerror or error}); remove it") from None


STYLE = """\
:root {
  color-scheme: light dark;
  --ground: #ffffff; --ink: #1c1e21; --quiet: #555b63; --line: #d9dce0; --band: #f4f5f7; --link: #0b57a4;
  --better: #0b5a8f; --worse: #a23b00;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #15171b; --ink: #e6e8eb; --quiet: #a9afb8; --line: #3a4048; --band: #1f2329; --link: #86bdff;
    --better: #7cc4ff; --worse: #ffab7a;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.5 -apple-system, "Segoe UI", Roboto, "Liberation Sans", Arial, system-ui, sans-serif;
}
main { max-width: 1180px; margin: 0 auto; padding: 1.1rem 1.25rem 4rem; overflow-wrap: break-word; }
h1 { font-size: 1.55rem; line-height: 1.25; margin: 0 0 .35rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .7rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.08rem; margin: 0 0 .4rem; }
p { margin: 0 0 .7rem; max-width: 52rem; }
a { color: var(--link); text-underline-offset: .15em; }
ul, ol { margin: 0 0 .8rem; padding-left: 1.2rem; }
li { margin-bottom: .3rem; }
pre {
  margin: .4rem 0 .8rem; padding: .55rem .7rem; overflow-x: auto; background: var(--band);
  border: 1px solid var(--line); border-radius: 4px; font-size: .86rem; line-height: 1.45;
}
code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace; }
.quiet, .note { color: var(--quiet); font-size: .9rem; }
.gains + .note { max-width: 72rem; font-size: .85rem; }
.lead { font-size: 1.06rem; max-width: none; margin-bottom: .8rem; text-wrap: pretty; }

table { border-collapse: collapse; font-size: .875rem; line-height: 1.4; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .1rem 0 .35rem; white-space: nowrap; }
th, td { padding: .28rem .6rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: .2rem; }
table.words th, table.words td { text-align: left; vertical-align: top; white-space: normal; min-width: 8.5rem; }
thead th { font-weight: 600; vertical-align: bottom; border-bottom: 1px solid var(--quiet); }
tbody th { font-weight: 400; }
tbody tr:hover { background: var(--band); }
.scroll { overflow-x: auto; max-width: 100%; margin: 0 0 .7rem; }
.scroll:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }

.gains table { width: 100%; line-height: 1.32; }
.gains caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.gains th, .gains td { text-align: left; vertical-align: top; padding: .32rem .55rem; }
.gains tbody th:first-child, .gains thead tr:first-child th:first-child { padding-left: .2rem; }
.gains thead th { vertical-align: bottom; }
.gains thead .clean, .gains thead .paper { vertical-align: top; }
.gains thead .over { border-bottom-color: var(--line); }
.gains tbody th b { display: block; font-size: 1.08em; }
.gains .clean { border-left: 1px solid var(--line); }
.gains .over { border-left: 1px solid var(--line); }
.gains thead small { font-weight: 400; white-space: normal; max-width: 6.5rem; }
.gains small { display: block; font-size: .915em; color: var(--quiet); }
.gains .figure { font-size: 1.08em; }
.gains td.paper { background: var(--band); }
.gains td.clean .figure { font-weight: 600; }
.better .word { color: var(--better); font-weight: 600; }
.worse .word { color: var(--worse); font-weight: 600; }
.undecided .word, .equal .word { color: var(--quiet); }

.kinds { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 1rem 2rem; }
.kinds ul { padding-left: 1rem; }
.kinds li { margin-bottom: .55rem; }
.kinds small { display: block; }
.findings { list-style: none; padding: 0; max-width: 52rem; }
.findings b { font-weight: 600; }
.matches b { color: var(--better); }
.differs b { color: var(--worse); }
.found b { color: var(--quiet); }
article { margin: 0 0 2.6rem; }
.picture { background: #ffffff; border: 1px solid var(--line); border-radius: 4px; padding: .6rem; }
.picture svg { display: block; width: 100%; height: auto; margin: 0 auto; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 1rem 2.5rem; }
.facts table { width: 100%; }
.facts th, .facts td { white-space: normal; vertical-align: top; }

@media screen and (max-width: 860px) {
  main { padding: .8rem 1rem 3rem; }
  h1 { font-size: 1.35rem; }
  .gains thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .gains table, .gains tbody { display: block; }
  .gains tbody tr { display: grid; grid-template-columns: 1fr 1fr; padding: .5rem 0; }
  .gains tbody tr:hover { background: none; }
  .gains tbody th:first-child { grid-column: 1 / -1; padding: .2rem 0; border-bottom: 0; }
  .gains tbody th b { display: inline; font-size: 1rem; margin-right: .4rem; }
  .gains tbody td { white-space: normal; border-left: 0; padding: .3rem .5rem; }
  .gains tbody td.ndcg { grid-column: 1 / -1; padding: 0 0 .35rem; }
  .gains td[data-column]::before {
    content: attr(data-column); display: block; font-size: .75rem; color: var(--quiet);
  }
  .gains td.ndcg small, .gains td.ndcg::before { display: inline; margin-right: .6rem; font-size: .8rem; }
}
@media print {
  :root { --ground: #fff; --ink: #000; --quiet: #444; --line: #bbb; --band: #f4f4f4; --link: #000;
    --better: #0b5a8f; --worse: #a23b00; }
  html, body { font-size: 10pt; }
  main { max-width: none; padding: 0; }
  .contents { display: none; }
  .scroll { overflow: visible; }
  table { font-size: 8pt; }
  th, td { padding: .15rem .35rem; }
  .gains table { font-size: 7pt; }
  .gains th, .gains td { padding: .2rem .3rem; }
  pre { white-space: pre-wrap; }
  .picture { border: 0; padding: 0; }
  .picture svg { min-width: 0 !important; }
  h2, h3, caption { break-after: avoid; }
  tr, .picture, .gains, li { break-inside: avoid; }
}
"""


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
    exhibits: Sequence[ReportItem],
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


def _findings_by_kind(exhibits: Sequence[ReportItem]) -> str:
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


def _contents(exhibits: Sequence[ReportItem]) -> str:
    links = "".join(f'<li><a href="#{one.key}">{escape(one.title)}</a></li>\n' for one in exhibits)
    return (
        '<nav class="contents" aria-labelledby="_contents">\n<h2 id="_contents">Contents</h2>\n'
        f'<ul>\n{links}<li><a href="#_run">What was run</a></li>\n</ul>\n</nav>\n'
    )


def _exhibits(exhibits: Sequence[ReportItem]) -> str:
    return f"<h2>Tables and figures</h2>\n{''.join(map(_exhibit, exhibits))}" if exhibits else ""


def _exhibit(exhibit: ReportItem) -> str:
    names = file_names(exhibit)  # refuses a key that cannot be a place on a page
    files = " · ".join(f'<a href="{quote(name)}">{escape(name)}</a>' for name in names)
    caption = f"<p>{_prose(exhibit.caption)}</p>\n" if exhibit.caption else ""
    return (
        f'<article id="{exhibit.key}">\n<h3>{escape(exhibit.title)}</h3>\n{caption}{_picture(exhibit)}'
        f"{''.join(map(_panel, exhibit.panels))}{_findings(exhibit.findings)}{_missing(exhibit.missing)}"
        f"{_commands(exhibit.commands)}"
        f'<p class="quiet">Files: {files}</p>\n</article>\n'
    )


def _picture(exhibit: ReportItem) -> str:
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


def _told_charts(exhibit: ReportItem) -> str:
    """What the picture shows, for those who cannot see it."""
    return "; ".join(
        f"{chart.title}, {chart.y_label} by {chart.x_label} for {', '.join(curve.label for curve in chart.curves)}"
        for chart in exhibit.charts
    )


def _panel(panel: ReportTable) -> str:
    note = f'<p class="note">{_prose(panel.note)}</p>\n' if panel.note else ""
    return _table(panel.grid, panel.heading) + note


def _table(grid: TextTable, heading: str) -> str:
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


def _what_was_run(provenance: Provenance, exhibits: Sequence[ReportItem]) -> str:
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
