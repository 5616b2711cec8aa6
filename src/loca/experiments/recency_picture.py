"""A picture of what recency does for one user: the history, its weights, and how the list changes with them."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from loca.data.id_map import Id, IdMap
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.errors import ConfigError, DataError
from loca.experiments.picture import as_png
from loca.files.whole_files import write_whole
from loca.ranking.evaluation import Scorer
from loca.ranking.top_n import ItemRows, check_list_length, rank_top_n

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Width in inches of a text in a font size and weight.
Ruler = Callable[[str, float, str], float]

# Told apart by colour-blind readers too (from Paul Tol's bright scheme), and the curves by their marks as well.
_COLOURS = ("#4477aa", "#ccbb44", "#aa3377", "#228833", "#66ccee", "#ee6677")
_NO_RECENCY = "#666666"
_MARKS = "os^DvP"
_MOST = len(_COLOURS)

# In inches, but for the font.
_TITLES, _CURVES, _GAP, _BOX, _BETWEEN, _EDGE = 2.25, 1.5, 0.32, 1.5, 0.42, 0.12
_HEADER, _FOOTER, _LEGEND_ROW, _LEGEND_NAME, _HISTORY_ROW, _LIST_ROW = 0.95, 0.6, 0.19, 1.45, 0.24, 0.6
_FONT, _DPI = 9.0, 150


@dataclass(frozen=True, eq=False)
class ListsByRecency:
    """One user's history and lists under several recencies; all items by their rows in `items`.

    `history` holds the distinct items, oldest first, a repeated one at its newest place. `weights` is recencies ×
    history, `lists` is recencies × places, best first, −1 where a list is short.
    """

    user: Id
    items: IdMap
    recencies: tuple[Recency | None, ...]
    history: ItemRows
    weights: npt.NDArray[np.float32]
    lists: ItemRows

    @classmethod
    def of(cls, model: Scorer, known: Interactions, user: Id, recencies: Sequence[Recency | None], n: int = 10) -> Self:
        """What a fitted model lists for a user of `known` under each recency (None: every item counts 1)."""
        check_list_length(n)
        asked = tuple(dict.fromkeys(recencies))
        if not 1 <= len(asked) <= _MOST:
            raise ConfigError(f"recencies: expected 1 to {_MOST} different ones (None among them), found {len(asked)}")
        one = known.of_users(np.array([known.users.row(user)]))
        newest_first = one.item_rows[::-1]
        history = newest_first[np.sort(np.unique(newest_first, return_index=True)[1])][::-1]
        if not len(history):
            raise DataError(f"user {user!r} has an empty history; expected at least one item to weigh")
        weights, lists = [], []
        for recency in asked:
            row = one.with_recency(recency).histories()
            weights.append(row.toarray()[0, history])
            lists.append(rank_top_n(model.score(row), row, n)[0][0])
        return cls(user, known.items, asked, history, np.array(weights, dtype=np.float32), np.array(lists))

    def entered(self) -> dict[int, int]:
        """The number of the recency under which each listed item first stands in the list."""
        return {int(item): number for number, row in reversed([*enumerate(self.lists)]) for item in row if item >= 0}

    def moves(self) -> list[tuple[int, int, int, int]]:
        """(item row, number of a recency, place in its list, place in the next recency's list), for items in both."""
        pairs = zip(self.lists[:-1].tolist(), self.lists[1:].tolist(), strict=True)
        return [
            (item, number, place, after.index(item))
            for number, (before, after) in enumerate(pairs)
            for place, item in enumerate(before)
            if item >= 0 and item in after
        ]


def draw_recencies(
    model: Scorer,
    known: Interactions,
    user: Id,
    recencies: Sequence[Recency | None],
    path: Path,
    *,
    later: Iterable[Id] | None = None,
    n: int = 10,
    newest: int = 25,
) -> ListsByRecency:
    """Writes a PNG of a user's history and lists under each recency, and gives back what it shows.

    On the left stand the `newest` items with what each counts, on the right the n best items under each recency; lines
    follow an item from list to list, and a box wears the colour of the recency that first brought its item in. The
    items in `later`, which the user took after this history, get a star and a frame.
    """
    if newest < 1:
        raise ConfigError(f"newest: expected 1 item or more to show, found {newest}")
    found = ListsByRecency.of(model, known, user, recencies, n)
    taken = None if later is None else frozenset(known.items.rows(later).tolist())
    write_whole(path, as_png(_draw(found, taken, newest)))
    return found


def fit_text(text: str, width: float, lines: int, measure: Callable[[str], float]) -> str:
    """The text in at most so many lines, none wider than `width`, shortened to an ellipsis where it must be."""
    words = " ".join(text.split())

    def wrapped(kept: int) -> list[str]:
        short = words if kept == len(words) else words[:kept].rstrip(" ,.:;-(") + "…"
        return _wrap(short, width, measure)

    kept = _largest(len(words), lambda count: len(wrapped(count)) <= lines)
    return "\n".join(wrapped(kept)[:lines])


def _wrap(text: str, width: float, measure: Callable[[str], float]) -> list[str]:
    """Lines broken at spaces and after hyphens, and inside a word only where it is wider than a line."""
    lines = [""]
    for word in re.findall(r"\s*[^\s-]*-?", text):
        if measure(lines[-1] + word) <= width:
            lines[-1] += word
            continue
        rest = word.lstrip()
        while measure(rest) > width and len(rest) > 1:
            cut = _largest(len(rest) - 1, partial(_fits, rest, width, measure))
            lines, rest = [*lines, rest[:cut]], rest[cut:]
        lines.append(rest)
    return [line for line in lines if line]


def _fits(text: str, width: float, measure: Callable[[str], float], count: int) -> bool:
    return measure(text[:count]) <= width


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number from 1 to `most` that fits, where all below it do; 1 where none does."""
    return max(1, bisect_left(range(1, most + 1), True, key=lambda count: not fits(count)))


def _draw(found: ListsByRecency, taken: frozenset[int] | None, newest: int) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

    shown = min(newest, len(found.history))
    columns, places = found.lists.shape
    body = max(_HISTORY_ROW * shown, _LIST_ROW * max(places, 6))
    width = 2 * _EDGE + _TITLES + _CURVES + _GAP + columns * _BOX + (columns - 1) * _BETWEEN
    footer = _FOOTER + _LEGEND_ROW * ((columns + 1) // 2)
    height = _HEADER + body + footer
    figure = Figure(figsize=(width, height), dpi=_DPI)
    canvas: Any = FigureCanvasAgg(figure)  # its methods have no types
    renderer = canvas.get_renderer()

    def measure(text: str, size: float, weight: str) -> float:
        font = FontProperties(size=size, weight=weight)
        return float(renderer.get_text_width_height_descent(text, font, ismath=False)[0]) / _DPI

    left = _EDGE + _TITLES
    curves = figure.add_axes((left / width, footer / height, _CURVES / width, body / height))
    _draw_history(curves, found, shown, measure)
    begin = left + _CURVES + _GAP
    lists = figure.add_axes((begin / width, 0, (width - begin) / width, 1))
    lists.set(xlim=(0, width - begin), ylim=(height, 0))  # inches, from the top left corner
    lists.axis("off")
    _draw_lists(lists, found, taken, body, measure)
    return figure


def _draw_history(axes: Axes, found: ListsByRecency, shown: int, measure: Ruler) -> None:
    """What each of the newest items counts, oldest at the top."""
    rows = np.arange(shown)
    titles = [
        fit_text(found.items.label(int(item)), _TITLES - 0.15, 1, lambda text: measure(text, _FONT, "normal"))
        for item in found.history[-shown:]
    ]
    for number, (recency, weights) in enumerate(zip(found.recencies, found.weights, strict=True)):
        name = fit_text(_name_of(recency), _LEGEND_NAME, 1, lambda text: measure(text, _FONT, "normal"))
        axes.plot(
            weights[-shown:], rows, color=_colour_of(found, number), marker=_MARKS[number], markersize=4, linewidth=1.5,
            label=name, clip_on=False,
        )  # fmt: skip
    axes.set(xlim=(0, 1.03), ylim=(shown - 0.4, -0.6), xticks=(0, 0.5, 1), xticklabels=("0", "½", "1"))
    axes.set_yticks(rows, titles, fontsize=_FONT, parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=_FONT)
    axes.set_xlabel("what the item counts", fontsize=_FONT)
    axes.grid(color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    count = len(found.history)
    of_all = f"all {count}" if shown == count else f"the newest {shown} of {count}"
    user = fit_text(str(found.user), 1.5, 1, lambda text: measure(text, _FONT, "bold"))
    axes.annotate(
        f"History of user {user}\n{of_all} items, oldest at the top",
        (-_TITLES / _CURVES, 1.0), xycoords="axes fraction", xytext=(4, 12), textcoords="offset points",
        va="bottom", fontsize=_FONT + 1, weight="bold", linespacing=1.4, parse_math=False,
    )  # fmt: skip
    below = (-_TITLES / _CURVES, -0.45 * _DPI / axes.bbox.height)
    axes.legend(
        loc="upper left", bbox_to_anchor=below, borderaxespad=0, frameon=False, fontsize=_FONT, ncols=2,
        handlelength=1.6, columnspacing=1.2,
    )  # fmt: skip


def _draw_lists(axes: Axes, found: ListsByRecency, taken: frozenset[int] | None, body: float, measure: Ruler) -> None:
    """The lists side by side, the best item at the top, with lines between the places of an item."""
    pitch, step = body / found.lists.shape[1], _BOX + _BETWEEN
    middle = [_HEADER + (place + 0.5) * pitch for place in range(found.lists.shape[1])]
    entered = found.entered()
    for item, number, before, after in found.moves():
        x = number * step + _BOX
        axes.plot(
            (x, x + 0.12, x + _BETWEEN - 0.12, x + _BETWEEN), np.repeat((middle[before], middle[after]), 2),
            color=_colour_of(found, entered[item]), linewidth=1.6, solid_joinstyle="round",
        )  # fmt: skip
    for number, row in enumerate(found.lists):
        hits = None if taken is None else len(taken & set(row.tolist()))
        _draw_heading(axes, found, number, hits, number * step, measure)
        for place, item in enumerate(row.tolist()):
            if item >= 0:
                title, is_taken = found.items.label(item), taken is not None and item in taken
                lines = 2 if pitch >= 0.5 else 1
                colour = _colour_of(found, entered[item])
                _draw_box(axes, number * step, middle[place], title, colour, is_taken, lines, measure)
    legend = "box and line: colour of the weighting that first lists the item"
    legend += "" if taken is None else "\n★ and frame: an item that the user took next"
    axes.text(0, _HEADER + body + 0.2, legend, fontsize=_FONT, va="top", linespacing=1.5)


def _draw_heading(axes: Axes, found: ListsByRecency, number: int, hits: int | None, x: float, measure: Ruler) -> None:
    name = fit_text(_name_of(found.recencies[number]), _BOX, 3, lambda text: measure(text, _FONT + 1, "bold"))
    colour = _colour_of(found, number)
    axes.plot((x, x + _BOX), (_HEADER - 0.08, _HEADER - 0.08), color=colour, linewidth=3, solid_capstyle="butt")
    axes.plot(x + _BOX - 0.05, _HEADER - 0.08, color=colour, marker=_MARKS[number], markersize=8)
    axes.text(x, _HEADER - 0.33, name, fontsize=_FONT + 1, weight="bold", va="bottom", linespacing=1.2)
    found_of = f"{found.lists.shape[1]} best" if hits is None else f"{found.lists.shape[1]} best, {hits} taken next"
    axes.text(x, _HEADER - 0.14, found_of, fontsize=_FONT, va="bottom", color="#333333")


def _draw_box(
    axes: Axes, x: float, middle: float, title: str, colour: str, is_taken: bool, lines: int, measure: Ruler
) -> None:
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    height = 0.42 if lines == 2 else 0.22
    tint = 0.82 + 0.18 * np.array(to_rgb(colour))
    ground = Rectangle((x, middle - height / 2), _BOX, height, facecolor=tint, zorder=3)
    ground.set(edgecolor="black" if is_taken else "none", linewidth=1.6 if is_taken else 0.0)
    axes.add_patch(ground)
    axes.add_patch(Rectangle((x, middle - height / 2), 0.06, height, color=colour, linewidth=0, zorder=4))
    weight = "bold" if is_taken else "normal"
    text = fit_text(f"★ {title}" if is_taken else title, _BOX - 0.15, lines, lambda part: measure(part, _FONT, weight))
    axes.text(
        x + 0.11, middle, text, fontsize=_FONT, weight=weight, va="center_baseline", linespacing=1.15, zorder=5,
        parse_math=False,
    )  # fmt: skip


def _colour_of(found: ListsByRecency, number: int) -> str:
    """Grey for no recency, and the colours in their order for the others."""
    if found.recencies[number] is None:
        return _NO_RECENCY
    return _COLOURS[sum(one is not None for one in found.recencies[:number])]


def _name_of(recency: Recency | None) -> str:
    return "no recency" if recency is None else str(recency)
