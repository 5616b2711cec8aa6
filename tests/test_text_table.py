"""Tables print aligned, and as HTML with their text escaped; a result is shown the same way everywhere."""

from __future__ import annotations

import json
import sys
import unicodedata
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

import loca
from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.data.splits import Split, leave_last_out
from loca.data.synthetic import PlantedData
from loca.data.times import TimeUnit, readable_time
from loca.errors import ConfigError
from loca.text_table import Readable, Tabular, TextTable, printable, printable_json

BIDI = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")

TABLE = TextTable(
    ("item", "title", "score"),
    (("7", "Heat", "0.5"), ("12", "<b>Ronin</b> & co", "10.25")),
    names=2,
)


class Found(Tabular):
    def shown(self) -> list[str | TextTable]:
        return ["2 items > 1", "", TABLE]

    def columns(self) -> dict[str, Any]:
        return {
            "item": np.array(["a", "b"], dtype=object),
            "score": np.array([0.5, 0.25], dtype=np.float32),
        }


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
    assert (
        found._repr_html_()
        == f'<div style="white-space: pre-wrap">2 items &gt; 1</div>\n{TABLE.html()}'
    )
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
    with pytest.raises(
        ConfigError, match=rf"^to_{package}: the package {package} is not installed; pip install"
    ):
        getattr(Found(), f"to_{package}")()


def test_interactions_print_their_sizes_dates_recency_and_first_rows() -> None:
    users, items = IdMap(np.array(["ann", "bob"]), "user"), IdMap(np.array([7, 9, 12]), "item")
    times = np.array([1_262_304_000, 1_262_307_600, 1_293_840_000])
    data = Interactions(
        users, items, np.array([0, 2, 3]), np.array([0, 2, 1]), times, Recency(half_life=2)
    )
    assert repr(data.with_titles({7: "Heat", 12: "Ronin"})).splitlines() == [
        "Interactions: 2 users, 3 items, 3 interactions (50.00 % of all pairs)",
        "2010-01-01 to 2011-01-01, recency: half-life 2 positions",
        "user  item  title              time",
        "ann   7     Heat   2010-01-01 00:00",
        "ann   12    Ronin  2010-01-01 01:00",
        "bob   9     9      2011-01-01 00:00",
    ]
    assert data.to_polars().rows() == [
        ("ann", 7, 1_262_304_000),
        ("ann", 12, 1_262_307_600),
        ("bob", 9, 1_293_840_000),
    ]
    assert (repr(data.users), repr(data.items)) == (
        "IdMap(2 users: ann, bob)",
        "IdMap(3 items: 7, 9, 12)",
    )


@pytest.mark.parametrize(
    ("time", "unit", "text"),
    [
        (1_262_304_000, "seconds", "2010-01-01 00:00"),
        (12, "seconds", "1970-01-01 00:00"),
        (1e18, "seconds", "1e+18"),
        (12, "steps", "12"),
        (0.5, "steps", "0.5"),
    ],
)
def test_a_time_is_a_date_where_it_is_seconds(time: float, unit: TimeUnit, text: str) -> None:
    assert readable_time(time, unit) == text


def test_interactions_without_anything_print_too() -> None:
    nothing = Interactions(
        IdMap.numbered(0, "user"), IdMap.numbered(0, "item"), np.zeros(1), np.zeros(0)
    )
    assert str(nothing).splitlines() == [
        "Interactions: 0 users, 0 items, 0 interactions (0.00 % of all pairs)",
        "no times, no recency",
    ]


def test_a_split_prints_the_size_of_every_part_and_what_happened_to_whom() -> None:
    data = Interactions.from_matrix(csr_array(np.array([[1, 1, 1, 0], [1, 1, 0, 1], [0, 0, 1, 0]])))
    split = leave_last_out(data, test=1, validation=1)
    lines = repr(split).splitlines()
    assert lines[:5] == [
        "Split: 3 users to learn from, 4 items; no recency",
        "            users  items  interactions  per user      time",
        "train           3      2             3         1  no times",
        "validation      2      1             2         1  no times",
        "test            2      2             2         1  no times",
    ]
    *report, unknown = split.report
    assert lines[5:] == [*report, f"note: {unknown}"]
    assert [one.kind for one in split.remarks] == ["targets-unknown"]
    assert "<td" in split._repr_html_()


RESULTS = (
    "planted interactions split held_out evaluation comparison selection statistics order".split()
)


@pytest.fixture(scope="module")
def results(planted: PlantedData, planted_split: Split) -> dict[str, Readable]:
    evaluation = loca.evaluate(loca.EASE().fit(planted_split.train), planted_split.test, at=(5, 10))
    comparison = loca.compare([loca.Popularity(), loca.EASE()], planted_split, at=(5, 10))
    selection = loca.fit(planted.interactions, [loca.EASE(), loca.EASE(l2=10.0)])
    data = planted.interactions
    found = [planted, data, planted_split, planted_split.test, evaluation, comparison, selection]
    found += [loca.describe(data), loca.check_order(data)]
    return dict(zip(RESULTS, found, strict=True))


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_prints_in_a_few_lines_that_fit_a_screen(
    results: dict[str, Readable], name: str
) -> None:
    lines = repr(results[name]).splitlines()
    assert 2 <= len(lines) <= 12
    assert max(map(len, lines)) <= 120
    assert str(results[name]) == repr(results[name])
    tree = ElementTree.fromstring(f"<body>{results[name]._repr_html_()}</body>")
    assert " ".join(tree.itertext()).split() == repr(results[name]).split()


def test_frames_hold_the_values_of_every_user_and_of_every_model(
    results: dict[str, Readable],
) -> None:
    evaluation, comparison = results["evaluation"], results["comparison"]
    assert isinstance(evaluation, loca.Evaluation)
    assert isinstance(comparison, loca.Comparison)
    frame = evaluation.to_polars()
    assert frame.columns[:2] == ["user", "recall@5"]
    assert frame["user"].to_list() == evaluation.users.tolist()
    assert frame["ndcg@10"].to_list() == evaluation.values["ndcg@10"].tolist()
    assert evaluation.to_pandas()["ndcg@10"].mean() == pytest.approx(evaluation.means()["ndcg@10"])
    table = comparison.to_polars().filter(model="EASE", metric="ndcg@10")
    mean, bounds = (
        comparison.of("EASE").evaluation.means(),
        comparison.of("EASE").evaluation.intervals(),
    )
    assert table.select("mean", "low", "high").row(0) == (mean["ndcg@10"], *bounds["ndcg@10"])
    assert comparison.to_pandas().shape == (24, 8)


@given(st.text())
def test_what_a_terminal_would_obey_is_shown_as_a_mark_and_everything_else_stays(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text)
    for before, after in zip(text, shown, strict=True):
        is_control = unicodedata.category(before) in ("Cc", "Cs", "Zl", "Zp")
        obeyed = (
            is_control
            or unicodedata.bidirectional(before) in BIDI
            or before in "\u200e\u200f\u061c"
        )
        assert after == ("\ufffd" if obeyed and before not in "\n\t" else before)
    document = printable_json(json.dumps([text], ensure_ascii=False))
    assert json.loads(document) == [text]
    assert document == printable(document)


def test_a_title_with_an_end_of_line_stays_in_its_row() -> None:
    assert TextTable(("item", "n"), (("a\nb\x1b", "1"),)).plain() == "item  n\na b\ufffd  1"
