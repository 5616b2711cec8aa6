"""Charts drawn side by side into one picture, as PNG or SVG with the same bytes every time."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import count
from typing import TYPE_CHECKING, Any

from loca.errors import DataError
from loca.reproduction.report_items import Chart, Curve

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Told apart by colour-blind readers too (Paul Tol's bright scheme).
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
# Of other lengths than the colours, so that many labels never share both colour and marker.
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
_HATCHES = ("", "////", "\\\\\\\\", "xxxx", "----", "++++", "//", "||||")
_SHOWN_OFTEN = ("LOCA_VAE", "Ensemble_VAE", "MultVAE", "LLORMA_VAE", "LOCA_DAE", "MultDAE")
_INK, _LINES = "#333333", "#e4e4e4"
_MOST_IN_A_ROW = 3
# Inches of one chart by how many stand in a row: a full row is printed at 7 inches with letters of 7.5 points.
_WIDTHS = {1: 4.0, 2: 3.6, 3: 2.9}
_HEIGHT, _LEGEND_ROW = 2.5, 0.22
_FONT, PIXELS_PER_INCH = 9.0, 200
# About how wide a letter is at the size of the picture's text, and the sign before a label with the gaps around it.
_LETTER, _LEGEND_SIGN = 0.076, 0.58
_MOST_TICKS = 7


@dataclass(frozen=True)
class _Look:
    """What one label wears in every chart of a picture."""

    colour: str
    marker: str
    hatch: str


def draw_charts(charts: Sequence[Chart]) -> Figure:
    """The charts as one picture, at most three in a row, with one legend below in which each label has one look."""
    if not charts:
        raise DataError("expected at least one chart to draw, found none")
    for chart in charts:
        _check(chart)
    with without_warnings():
        return _drawn(charts)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Names in letters that the font has not, or too long for the picture, are no matter of the user's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def _drawn(charts: Sequence[Chart]) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = math.ceil(len(charts) / _MOST_IN_A_ROW)
    columns = math.ceil(len(charts) / rows)
    looks = _looks_of(charts)
    width = columns * _WIDTHS[columns]
    per_line = _legend_columns(list(looks), width)
    legend_rows = math.ceil(len(looks) / per_line)
    figure = Figure(figsize=(width, rows * _HEIGHT + legend_rows * _LEGEND_ROW), layout="constrained")
    FigureCanvasAgg(figure)
    for place, chart in enumerate(charts):
        axes = figure.add_subplot(rows, columns, place + 1)
        _draw_chart(axes, chart, looks)
        # Said once where the chart to the left says the same.
        if place % columns and charts[place - 1].y_label == chart.y_label:
            axes.set_ylabel("")
    handles = _legend_handles(charts, looks)
    if handles:
        legend = figure.legend(
            handles=handles, loc="outside lower center", ncols=per_line, frameon=False, fontsize=_FONT
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
    # A layout that is found once: drawing again, at another resolution, must not move anything.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def as_svg(figure: Figure, key: str = "figure") -> str:
    """The picture as an SVG file, in which every id begins with `key`: several pictures can share one page."""
    from matplotlib import rc_context

    drawn = BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with without_warnings(), rc_context({"svg.hashsalt": key, "svg.fonttype": "path", "svg.id": "picture"}):
        figure.savefig(drawn, format="svg", metadata=nothing)
    # Letters are paths; without comments no text from outside is left for the replacements below to meet.
    text = re.sub(r"<!--.*?-->\n?", "", drawn.getvalue().decode("utf-8"), flags=re.DOTALL)
    text = re.sub(r"<!DOCTYPE.*?>\n?", "", text, flags=re.DOTALL)
    text = re.sub(r'\b(id="|href="#)|(url\(#)', lambda found: f"{found[0]}{key}.", text)
    # Its rule for lines holds in this picture alone, not in the page around it.
    return text.replace('<style type="text/css">*{', f"<style type=\"text/css\">[id='{key}.picture'] *{{")


def _check(chart: Chart) -> None:
    for curve in chart.curves:
        points = 1 if curve.is_level else len(curve.x)
        asked = {"y": curve.y, "low": curve.low, "high": curve.high}
        found = {name: len(values) for name, values in asked.items() if values or name == "y"}
        found |= {f"seed {number + 1}": len(values) for number, values in enumerate(curve.seeds)}
        wrong = [f"{count} of {name}" for name, count in found.items() if count != points]
        if wrong or bool(curve.low) != bool(curve.high):
            raise DataError(
                f"chart {chart.title!r}, curve {curve.label!r}: expected {points} values each of y, of both low and "
                f"high or neither, and of each seed, found {', '.join(wrong) or 'low or high alone'}"
            )
        if chart.groups and not all(place in range(len(chart.groups)) for place in curve.x):
            raise DataError(
                f"chart {chart.title!r}, curve {curve.label!r}: expected x to be places of the {len(chart.groups)} "
                f"groups, 0 to {len(chart.groups) - 1}, found {curve.x}"
            )


def _looks_of(charts: Sequence[Chart]) -> dict[str, _Look]:
    """A model that many figures show looks the same in all; other labels take the looks that are left, in order."""
    labels = list(dict.fromkeys(curve.label for chart in charts for curve in chart.curves))
    shown_as = {label: re.split(r", | \(", label)[0] for label in labels}  # what is said behind it changes no look
    places = {label: _SHOWN_OFTEN.index(name) for label, name in shown_as.items() if name in _SHOWN_OFTEN}
    left = (place for place in count() if place not in places.values())
    places |= {label: next(left) for label in labels if label not in places}
    return {
        label: _Look(_COLOURS[place % len(_COLOURS)], _MARKERS[place % len(_MARKERS)], _HATCHES[place % len(_HATCHES)])
        for label, place in ((label, places[label]) for label in labels)
    }


def _draw_chart(axes: Axes, chart: Chart, looks: dict[str, _Look]) -> None:
    axes.set_title(chart.title, fontsize=_FONT + 1, loc="left", parse_math=False)
    axes.set_xlabel(chart.x_label, fontsize=_FONT, parse_math=False)
    axes.set_ylabel(chart.y_label, fontsize=_FONT, parse_math=False)
    axes.tick_params(labelsize=_FONT - 1, color=_LINES, labelcolor=_INK)
    axes.tick_params(which="minor", length=0)
    axes.grid(axis="y" if chart.groups else "both", color=_LINES, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color("#999999")
    if chart.is_log_y:
        axes.set_yscale("log")
    if chart.groups:
        _draw_bars(axes, chart, looks)
    else:
        _draw_lines(axes, chart, looks)
    for curve in chart.curves:
        if curve.is_level:
            _draw_level(axes, curve, looks[curve.label].colour)
    _set_ticks(axes, chart)


def _draw_lines(axes: Axes, chart: Chart, looks: dict[str, _Look]) -> None:
    if chart.is_log_x:
        axes.set_xscale("log")
    lines = [curve for curve in chart.curves if not curve.is_level]
    shade = 0.15 if len(lines) == 1 else 0.08  # several lie over each other
    for curve in lines:
        look = looks[curve.label]
        if curve.low and len(curve.x) > 1:
            axes.fill_between(curve.x, curve.low, curve.high, color=look.colour, alpha=shade, linewidth=0)
        elif curve.low:
            axes.vlines(curve.x, curve.low, curve.high, color=look.colour, linewidth=1.2)
        for seed in curve.seeds:
            axes.plot(curve.x, seed, linestyle="", marker=".", markersize=3, color=look.colour, alpha=0.45)
        axes.plot(curve.x, curve.y, color=look.colour, marker=look.marker, markersize=4.5, linewidth=1.5)


def _draw_bars(axes: Axes, chart: Chart, looks: dict[str, _Look]) -> None:
    """One bar for each group and curve, side by side within 80 % of a group's room."""
    curves = [curve for curve in chart.curves if not curve.is_level]
    width = 0.8 / max(len(curves), 1)
    for place, curve in enumerate(curves):
        look = looks[curve.label]
        x = [group + (place - (len(curves) - 1) / 2) * width for group in curve.x]
        axes.bar(
            x, curve.y, width * 0.92, color=look.colour, hatch=look.hatch, edgecolor="white", linewidth=0, label="_"
        )
        for seed in curve.seeds:
            axes.plot(x, seed, linestyle="", marker=".", markersize=3, color=_INK, alpha=0.45)
        if curve.low:
            axes.vlines(x, curve.low, curve.high, color=_INK, linewidth=1.1)
    axes.set_xlim(-0.6, len(chart.groups) - 0.4)


def _draw_level(axes: Axes, curve: Curve, colour: str) -> None:
    if curve.low:
        axes.axhspan(curve.low[0], curve.high[0], color=colour, alpha=0.08, linewidth=0)
    axes.axhline(curve.y[0], color=colour, linestyle=(0, (5, 3)), linewidth=1.3)


def _set_ticks(axes: Axes, chart: Chart) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    plain: Callable[[float, Any], str] = lambda value, _: f"{value:,.6g}"  # noqa: E731
    if chart.is_log_y:
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
        axes.yaxis.set_major_formatter(FuncFormatter(plain))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5))
    if chart.groups:
        room = sum(map(len, chart.groups)) * _LETTER > 0.8 * _WIDTHS[3]
        turned: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if room else {}
        axes.set_xticks(range(len(chart.groups)), chart.groups, parse_math=False, **turned)
        axes.tick_params(axis="x", length=0)
        return
    drawn = sorted({x for curve in chart.curves if not curve.is_level for x in curve.x})
    if chart.is_log_x or 0 < len(drawn) <= _MOST_TICKS:
        apart = _apart(drawn, is_log=chart.is_log_x)
        axes.set_xticks(apart, [plain(x, None) for x in apart])
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.xaxis.set_major_formatter(FuncFormatter(plain))


def _apart(values: list[float], *, is_log: bool) -> list[float]:
    """Those of the rising values whose names can stand side by side: each at least a tenth of the axis after the last.

    A log axis has no place for what is not above 0.
    """
    values = [value for value in values if math.isfinite(value) and (value > 0 or not is_log)]
    if not values:
        return []
    place: Callable[[float], float] = math.log if is_log else float
    step = (place(values[-1]) - place(values[0])) * 0.1
    kept = [values[-1]]
    # From the right, where the whole of a curve is read.
    for value in reversed(values[:-1]):
        if place(kept[-1]) - place(value) >= step:
            kept.append(value)
    return kept[::-1]


def _legend_columns(labels: list[str], width: float) -> int:
    """The most columns of labels that fit under a picture so many inches wide; each is as wide as its longest label."""
    for columns in range(len(labels), 1, -1):
        rows = math.ceil(len(labels) / columns)
        longest = [max(map(len, labels[begin : begin + rows])) for begin in range(0, len(labels), rows)]
        if sum(longest) * _LETTER + len(longest) * _LEGEND_SIGN <= width:
            return len(longest)
    return 1


def _legend_handles(charts: Sequence[Chart], looks: dict[str, _Look]) -> list[Artist]:
    """One sign for each label, as it is first drawn."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: dict[str, Artist] = {}
    for chart in charts:
        for curve in chart.curves:
            if curve.label in handles:
                continue
            look = looks[curve.label]
            if curve.is_level:
                sign: Artist = Line2D([], [], color=look.colour, linestyle=(0, (5, 3)), linewidth=1.3)
            elif chart.groups:
                sign = Patch(facecolor=look.colour, hatch=look.hatch, edgecolor="white", linewidth=0)
            else:
                sign = Line2D([], [], color=look.colour, marker=look.marker, markersize=4.5, linewidth=1.5)
            sign.set_label(curve.label)
            handles[curve.label] = sign
    return list(handles.values())
