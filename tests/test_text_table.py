"""Tables print aligned, and as HTML with their text escaped; a result is shown the same way everywhere."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from loca.errors import ConfigError
from loca.text_table import Readable, Tabular, TextTable

TABLE = TextTable(("item", "title", "score"), (("7", "Heat", "0.5"), ("12", "<b>Ronin</b> & co", "10.25")), names=2)


class Found(Tabular):
    def shown(self) -> list[str | TextTable]:
        return ["2 items > 1", "", TABLE]

    def columns(self) -> dict[str, Any]:
        return {"item": np.array(["a", "b"], dtype=object), "score": np.array([0.5, 0.25], dtype=np.float32)}


def test_names_stand_to_the_left_and_figures_to_the_right() -> None:
    assert TABLE.plain() == (
        "item  title              score\n"
        "7     Heat                 0.5\n"
        "12    <b>Ronin</b> & co  10.25"
    )  # fmt: skip
    assert TABLE.markdown().split("\n")[1] == "| --- | --- | ---: |"


def test_a_table_as_html_escapes_its_text() -> None:
    html = TABLE.html()
    assert '<td style="text-align: left">&lt;b&gt;Ronin&lt;/b&gt; &amp; co</td>' in html
    assert '<th style="text-align: right">score</th>' in html
    assert "<b>" not in html


def test_a_table_without_headings_has_no_head_in_html() -> None:
    assert "<thead>" not in TextTable(("", ""), (("users", "3"),)).html()


def test_a_result_prints_its_lines_and_a_notebook_shows_the_same_as_html() -> None:
    found = Found()
    assert str(found) == repr(found) == "2 items > 1\n\n" + TABLE.plain()
    assert found._repr_html_() == f'<div style="white-space: pre-wrap">2 items &gt; 1</div>\n{TABLE.html()}'
    assert isinstance(found, Readable)


def test_a_result_is_a_polars_and_a_pandas_frame() -> None:
    frame, other = Found().to_polars(), Found().to_pandas()
    assert frame.to_dict(as_series=False) == {"item": ["a", "b"], "score": [0.5, 0.25]}
    assert other.to_dict("list") == {"item": ["a", "b"], "score": [0.5, 0.25]}
    assert str(frame["score"].dtype) == "Float32"
    assert other["score"].dtype == np.float32


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_frame_of_a_package_that_is_not_installed_is_refused_in_one_line(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"^to_{package}: the package {package} is not installed; pip install"):
        getattr(Found(), f"to_{package}")()
