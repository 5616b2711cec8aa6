"""The files of one exhibit: its records as CSV, its tables and findings as Markdown, its charts as PNG and SVG."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from loca.errors import ConfigError, DataError
from loca.experiments.grid import Grid
from loca.experiments.picture import as_png
from loca.files.whole_files import write_whole
from loca.reproduction.charts import PIXELS_PER_INCH, as_svg, draw_charts, without_warnings
from loca.reproduction.exhibit import Exhibit, Kind, Panel, Value

# How a finding stands to the paper, in words.
KIND_WORDS: Mapping[Kind, str] = {
    "matches": "matches the paper",
    "differs": "differs from the paper",
    "found": "not in the paper",
}
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,79}")
ENDINGS = ("csv", "md", "png", "svg")


def write_exhibit(exhibit: Exhibit, folder: Path) -> tuple[str, ...]:
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


def file_names(exhibit: Exhibit) -> tuple[str, ...]:
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


def as_markdown(exhibit: Exhibit) -> str:
    """The exhibit for reading in a repository: title, caption, picture, tables, findings, commands."""
    blocks = [f"# {_marked(exhibit.title)}", _prose(exhibit.caption)]
    if exhibit.charts:
        blocks.append(f"![{_marked(exhibit.title)}]({exhibit.key}.png)")
    blocks += [block for panel in exhibit.panels for block in _panel_blocks(panel)]
    if exhibit.findings:
        lines = [f"- {KIND_WORDS[finding.kind].capitalize()}: {_prose(finding.text)}" for finding in exhibit.findings]
        blocks += ["## Findings", "\n".join(lines)]
    if exhibit.missing:
        blocks += ["## Not computed", "\n".join(f"- {_prose(one)}" for one in exhibit.missing)]
    if exhibit.commands:
        # Indented, which no command can end early.
        lines = [line for command in exhibit.commands for line in command.splitlines()]
        blocks += ["## Made by", "\n".join(f"    {line}" for line in lines)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _panel_blocks(panel: Panel) -> list[str]:
    header = tuple(map(_marked, panel.grid.header))
    rows = tuple(tuple(map(_marked, row)) for row in panel.grid.rows)
    return [f"## {_marked(panel.heading)}" if panel.heading else "", Grid(header, rows).markdown(), _prose(panel.note)]


def _line(text: str) -> str:
    return " ".join(text.split())


def _marked(text: str) -> str:
    """The text as one line of Markdown that shows every sign as it is."""
    return _shown(_line(text))


def _prose(text: str) -> str:
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
