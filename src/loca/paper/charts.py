"""Charts drawn side by side into one picture, as PNG or SVG with the same bytes every time."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Distinguishable for colour-blind readers too (Paul Tol's bright scheme).
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
# Of other lengths than the colours, so that many labels never share both colour and marker.
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
_HATCHES = ("", "////", "\\\\\\\\", "xxxx", "----", "++++", "//", "||||")
_OFTEN = (
    "LOCA_VAE",
    "Ensemble_VAE",
    "MultVAE",
    "LLORMA_VAE",
    "LOCA_DAE",
    "MultDAE",
    "LOCA_VAE, dealt",
)
# The last has the colour of MultDAE, beside which it stands least.
_SHOWN_OFTEN = {**{label: place for place, label in enumerate(_OFTEN)}, "LOCA_VAE, mixture": 12}
_INK, _LINES = "#333333", "#e4e4e4"
_DASHED: dict[str, Any] = {"linestyle": (0, (5, 3)), "linewidth": 1.3}
_DOTS: dict[str, Any] = {"linestyle": "", "marker": ".", "markersize": 3, "alpha": 0.45}
_MOST_IN_A_ROW = 3
# Inches of one chart by how many stand in a row: a full row is printed at 7 inches with letters of
# 7.5 points.
_WIDTHS = {1: 4.0, 2: 3.6, 3: 2.9}
_HEIGHT, _LEGEND_ROW = 2.5, 0.22
_FONT, PIXELS_PER_INCH = 9.0, 200
# About how wide a letter is at the size of the picture's text, and the sign before a label with the
# gaps around it.
_LETTER, _LEGEND_SIGN = 0.076, 0.58


@dataclass(frozen=True)
class Curve:
    """One line of a chart: its points, a 95 % interval around each, and the values of single seeds.

    `low`, `high` and `seeds` may be empty. `is_level` draws a dashed level over the whole width
    instead of points.
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    seeds: tuple[tuple[float, ...], ...] = ()
    is_level: bool = False


@dataclass(frozen=True)
class Chart:
    """One pair of axes under a title: curves over a number, or bars over named groups (`groups`).

    With `groups` the x of a curve are places in it, and each curve is one colour of bars side by
    side.
    """

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    groups: tuple[str, ...] = ()
    is_log_x: bool = False
    is_log_y: bool = False


# The colour, marker and hatch of one label in every chart of a picture.
_Look = tuple[str, str, str]


@contextmanager
def without_warnings() -> Iterator[None]:
    """Suppress warnings of letters that the font has not, and of names too long for the picture."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


@without_warnings()
def draw_charts(charts: Sequence[Chart]) -> Figure:
    """Return the charts as one picture, three in a row, above a legend with a look for each label."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = math.ceil(len(charts) / _MOST_IN_A_ROW)
    columns = math.ceil(len(charts) / rows)
    looks = _looks_of(charts)
    width = columns * _WIDTHS[columns]
    per_line = _legend_columns(list(looks), width)
    legend_rows = math.ceil(len(looks) / per_line)
    figure = Figure(
        figsize=(width, rows * _HEIGHT + legend_rows * _LEGEND_ROW), layout="constrained"
    )
    FigureCanvasAgg(figure)
    handles: dict[str, Artist] = {}
    for place, chart in enumerate(charts):
        axes = figure.add_subplot(rows, columns, place + 1)
        _draw_chart(axes, chart, looks, handles)
        # Said once where the chart to the left says the same.
        if place % columns and charts[place - 1].y_label == chart.y_label:
            axes.set_ylabel("")
    if handles:
        legend = figure.legend(
            handles=list(handles.values()),
            loc="outside lower center",
            ncols=per_line,
            frameon=False,
            fontsize=_FONT,
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
    # A layout that is found once: drawing again, at another resolution, must not move anything.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def as_png(figure: Any, dpi: float | str = "figure") -> bytes:
    """Return a picture as PNG, without anything that changes from one run to the next."""
    drawn = BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi, metadata={"Software": None})
    return drawn.getvalue()


def as_svg(figure: Figure, key: str = "figure") -> str:
    """Return the picture as SVG, whose ids begin with `key`: several pictures can share a page."""
    from matplotlib import rc_context

    drawn = BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with (
        without_warnings(),
        rc_context({"svg.hashsalt": key, "svg.fonttype": "path", "svg.id": "picture"}),
    ):
        figure.savefig(drawn, format="svg", metadata=nothing)
    # Letters are paths; without comments no text from outside is left for the replacements below to
    # meet.
    text = re.sub(r"<!--.*?-->\n?", "", drawn.getvalue().decode("utf-8"), flags=re.DOTALL)
    text = re.sub(r"<!DOCTYPE.*?>\n?", "", text, flags=re.DOTALL)
    text = re.sub(r'\b(id="|href="#)|(url\(#)', lambda found: f"{found[0]}{key}.", text)
    # Its rule for lines holds in this picture alone, not in the page around it.
    return text.replace(
        '<style type="text/css">*{', f"<style type=\"text/css\">[id='{key}.picture'] *{{"
    )


def _looks_of(charts: Sequence[Chart]) -> dict[str, _Look]:
    """Return a look for each label: models that many figures show look the same in all of them."""
    labels = list(dict.fromkeys(curve.label for chart in charts for curve in chart.curves))
    places: dict[str, int] = {}
    for label in labels:
        # What is said behind a name changes no look, unless it is part of one.
        for name in (label.split(" (")[0], re.split(r", | \(", label)[0]):
            if name in _SHOWN_OFTEN:
                places[label] = _SHOWN_OFTEN[name]
                break
    free = (place for place in count() if place not in places.values())
    for label in labels:
        if label not in places:
            places[label] = next(free)
    looks: dict[str, _Look] = {}
    for label in labels:
        place = places[label]
        colour, marker, hatch = (kind[place % len(kind)] for kind in (_COLOURS, _MARKERS, _HATCHES))
        looks[label] = (colour, marker, hatch)
    return looks


def _legend_columns(labels: list[str], width: float) -> int:
    """Return how many columns of labels fit under a picture so wide, each as wide as its longest."""
    for columns in range(len(labels), 1, -1):
        rows = math.ceil(len(labels) / columns)
        longest = [
            max(map(len, labels[begin : begin + rows])) for begin in range(0, len(labels), rows)
        ]
        if sum(longest) * _LETTER + len(longest) * _LEGEND_SIGN <= width:
            return len(longest)
    return 1


def _draw_chart(
    axes: Axes, chart: Chart, looks: dict[str, _Look], handles: dict[str, Artist]
) -> None:
    """Draw the curves; `handles` gets one sign for each label, as it is first drawn."""
    axes.set_title(chart.title, fontsize=_FONT + 1, loc="left", parse_math=False)
    axes.set_xlabel(chart.x_label, fontsize=_FONT, parse_math=False)
    axes.set_ylabel(chart.y_label, fontsize=_FONT, parse_math=False)
    axes.tick_params(labelsize=_FONT - 1, color=_LINES, labelcolor=_INK)
    axes.tick_params(which="minor", length=0)
    axes.grid(axis="y" if chart.groups else "both", color=_LINES, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color("#999999")
    axes.set_yscale("log" if chart.is_log_y else "linear")
    axes.set_xscale("log" if chart.is_log_x else "linear")
    curves = [curve for curve in chart.curves if not curve.is_level]
    for place, curve in enumerate(curves):
        if chart.groups:
            sign = _draw_bars(axes, curve, looks[curve.label], place, len(curves))
        else:
            sign = _draw_line(axes, curve, looks[curve.label], is_alone=len(curves) == 1)
        handles.setdefault(curve.label, sign)
    if chart.groups:
        axes.set_xlim(-0.6, len(chart.groups) - 0.4)
    for curve in chart.curves:
        if curve.is_level:
            colour, _, _ = looks[curve.label]
            handles.setdefault(curve.label, axes.axhline(curve.y[0], color=colour, **_DASHED))
    for label, handle in handles.items():
        handle.set_label(label)
    _set_ticks(axes, chart)


def _draw_bars(axes: Axes, curve: Curve, look: _Look, place: int, n_curves: int) -> Artist:
    """Draw a bar for each group, beside those of the other curves; return the first.

    They stand within 80 % of a group's width.
    """
    colour, _, hatch = look
    width = 0.8 / n_curves
    x = [group + (place - (n_curves - 1) / 2) * width for group in curve.x]
    bars = axes.bar(
        x, curve.y, width * 0.92, color=colour, hatch=hatch, edgecolor="white", linewidth=0
    )
    for seed in curve.seeds:
        axes.plot(x, seed, color=_INK, **_DOTS)
    if curve.low:
        axes.vlines(x, curve.low, curve.high, color=_INK, linewidth=1.1)
    return bars.patches[0]


def _draw_line(axes: Axes, curve: Curve, look: _Look, *, is_alone: bool) -> Artist:
    """Draw a line with its interval as a shade, a light one where others lie over it; return it."""
    colour, marker, _ = look
    shade = 0.15 if is_alone else 0.08
    if curve.low and len(curve.x) > 1:
        axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=shade, linewidth=0)
    elif curve.low:
        axes.vlines(curve.x, curve.low, curve.high, color=colour, linewidth=1.2)
    for seed in curve.seeds:
        axes.plot(curve.x, seed, color=colour, **_DOTS)
    (line,) = axes.plot(
        curve.x, curve.y, color=colour, marker=marker, markersize=4.5, linewidth=1.5
    )
    return line


def _set_ticks(axes: Axes, chart: Chart) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    def plain(value: float, _: Any = None) -> str:
        return f"{value:,.6g}"

    if chart.is_log_y:
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
        axes.yaxis.set_major_formatter(FuncFormatter(plain))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5))
    if chart.groups:
        is_wide = sum(map(len, chart.groups)) * _LETTER > 0.8 * _WIDTHS[3]
        turned: dict[str, Any] = (
            {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if is_wide else {}
        )
        axes.set_xticks(range(len(chart.groups)), chart.groups, parse_math=False, **turned)
        axes.tick_params(axis="x", length=0)
        return
    drawn = sorted({x for curve in chart.curves if not curve.is_level for x in curve.x})
    apart = _apart(drawn, is_log=chart.is_log_x)
    axes.set_xticks(apart, [plain(x) for x in apart])
    axes.xaxis.set_minor_formatter(NullFormatter())


def _apart(values: list[float], *, is_log: bool) -> list[float]:
    """Return the rising values whose names can stand side by side: a tenth of the axis apart.

    A log axis has no place for what is not above 0. From the right, where the whole of a curve is
    read.
    """
    places = {
        value: math.log(value) if is_log else value for value in values if value > 0 or not is_log
    }
    shown: list[float] = []
    for value in reversed(places):
        step = 0.1 * (places[max(places)] - places[min(places)])
        if not shown or places[shown[-1]] - places[value] >= step:
            shown.append(value)
    return shown[::-1]
