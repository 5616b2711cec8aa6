"""Charts: one look for each label, the same bytes every time, pictures that can share a page, and clear refusals."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from examples import BARS, LINES
from matplotlib.colors import to_hex

from loca.paper.charts import Chart, Curve, as_png, as_svg, draw_charts
from loca.paper.report import ReportItem, write_item


def legend_of(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_label_has_the_same_colour_in_every_chart_and_stands_once_in_the_legend() -> None:
    figure = draw_charts([LINES, BARS])
    lines, bars = figure.axes
    assert legend_of(figure) == ["LOCA VAE", "MultVAE"]
    first_line = next(line for line in lines.lines if line.get_linestyle() == "-")
    level = next(line for line in lines.lines if line.get_linestyle() == "--")
    # In the bars MultVAE comes first.
    colours = list(dict.fromkeys(to_hex(bar.get_facecolor()) for bar in bars.patches))
    assert [to_hex(level.get_color()), to_hex(first_line.get_color())] == colours
    assert len(set(colours)) == 2


def test_curves_differ_by_marker_too_and_many_labels_never_look_alike() -> None:
    curves = tuple(Curve(f"model {number}", (1, 2), (number, number + 1)) for number in range(14))
    axes = draw_charts([replace(LINES, curves=curves)]).axes[0]
    looks = {(line.get_color(), str(line.get_marker())) for line in axes.lines}
    assert len(looks) == 14


@pytest.mark.filterwarnings("error")
def test_letters_that_the_font_has_not_are_no_matter_of_the_user_s(tmp_path: Path) -> None:
    strange = Chart("評価", "x", "y", (Curve("評" * 60, (1.0, 2.0), (1.0, 2.0)),))
    write_item(ReportItem("strange", "A title", "", charts=(strange,)), tmp_path)
    assert {one.name for one in tmp_path.iterdir()} == {"strange.md", "strange.png", "strange.svg"}


def test_at_most_three_charts_stand_in_a_row() -> None:
    for count, rows, columns in ((1, 1, 1), (3, 1, 3), (4, 2, 2), (5, 2, 3), (7, 3, 3)):
        spec: Any = draw_charts([LINES] * count).axes[0].get_subplotspec()
        assert spec.get_gridspec().get_geometry() == (rows, columns)


def test_bars_begin_at_zero_and_reach_their_values() -> None:
    axes = draw_charts([BARS]).axes[0]
    assert sorted(round(bar.get_height(), 3) for bar in axes.patches) == [0.08, 0.081, 0.09, 0.095]  # type: ignore[attr-defined]
    assert axes.get_ylim()[0] == 0
    assert [label.get_text() for label in axes.get_xticklabels()] == ["near", "far"]


def test_the_same_charts_give_the_same_bytes_whatever_was_drawn_before() -> None:
    figure = draw_charts([LINES, BARS])
    png, svg = as_png(figure), as_svg(figure, "figure-4")
    assert (as_png(figure), as_svg(figure, "figure-4")) == (png, svg)
    again = draw_charts([LINES, BARS])
    assert (as_svg(again, "figure-4"), as_png(again)) == (svg, png)
    assert b"Software" not in png
    assert "Matplotlib" not in svg


def test_pictures_of_two_keys_share_no_id_and_every_reference_is_found() -> None:
    first, second = (as_svg(draw_charts([LINES, BARS]), key) for key in ("figure-3", "figure-4"))
    for text, key in ((first, "figure-3"), (second, "figure-4")):
        ElementTree.fromstring(text)
        ids = re.findall(r'\bid="([^"]+)"', text)
        assert len(ids) == len(set(ids))
        assert all(one.startswith(f"{key}.") for one in ids)
        assert set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', text)) <= {
            *((one, "") for one in ids), *(("", one) for one in ids)
        }  # fmt: skip
        assert f"[id='{key}.picture'] *{{" in text


def test_a_label_is_drawn_as_it_is_written() -> None:
    odd = Chart("$x", "a_$b$", "<id=\"c\"> & -->", (Curve("50 % $\\frac", (1, 2), (1, 2)),))  # fmt: skip
    figure = draw_charts([odd])
    assert figure.axes[0].get_title(loc="left") == "$x"
    assert legend_of(figure) == ["50 % $\\frac"]
    ElementTree.fromstring(as_svg(figure, "odd"))


def test_log_axes_say_plain_numbers_and_leave_room_between_them() -> None:
    curve = Curve("one", (1, 2, 100, 105), (10.0, 20.0, 1000.0, 1100.0))
    axes = draw_charts([replace(LINES, curves=(curve,), is_log_x=True, is_log_y=True)]).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "105"]
    assert "1,000" in [label.get_text() for label in axes.get_yticklabels()]


def test_a_model_of_many_figures_looks_the_same_in_all() -> None:
    def colours(*labels: str) -> dict[str, str]:
        curves = tuple(
            Curve(label, (1.0, 2.0), (place, place + 1.0)) for place, label in enumerate(labels)
        )
        (axes,) = draw_charts([Chart("a", "x", "y", curves)]).axes
        return dict(zip(labels, (str(line.get_color()) for line in axes.lines), strict=True))

    first, second = (
        colours("other", "MultVAE", "LOCA_VAE"),
        colours("LOCA_VAE", "LLORMA_VAE", "MultVAE", "one more"),
    )
    assert (first["LOCA_VAE"], first["MultVAE"]) == (second["LOCA_VAE"], second["MultVAE"])
    assert len(set(first.values())) == 3
    assert len(set(second.values())) == 4
    said = colours("LOCA_VAE (1 of 3 seeds)", "MultVAE, not refitted")
    assert list(said.values()) == [first["LOCA_VAE"], first["MultVAE"]]
    others = colours(
        "LOCA_VAE, mixture (1 of 3 seeds)",
        "LOCA_VAE, dealt",
        "LOCA_VAE",
        "Ensemble_VAE, not refitted",
    )
    assert len(set(others.values())) == 4
    assert others["LOCA_VAE"] == first["LOCA_VAE"]
