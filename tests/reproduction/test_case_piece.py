"""Table 4 on a bench: an exhibit without charts comes back from its records as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from exhibit_examples import FIGURE, TABLE

from loca.reproduction.measurings import Measurement, find_or_measure
from loca.reproduction.report_items import Finding, ReportItem, ReportTable
from loca.reproduction.table4 import as_records, from_records
from loca.text_table import TextTable

WHOLE = ReportItem(
    key="table4",
    title="Table 4: a user's two tastes",
    caption='Titles such as "Amélie" | and ‘100 %’,\nover two lines.',
    panels=(
        ReportTable("Local 70", TextTable(("film", "genres"), (("Alien (1979)", "Horror|Sci-Fi"), ("", "")))),
        ReportTable("", TextTable(("nothing",), ()), "No film."),
    ),
    records=({"rank": 1, "score": 1 / 3, "seen": False, "title": "Amélie", "none": None}, {}),
    findings=(Finding("matches", "One."), Finding("differs", "Two."), Finding("found", "Three.")),
)


def test_an_exhibit_comes_back_equal() -> None:
    assert from_records(as_records(WHOLE)) == WHOLE
    assert from_records(as_records(TABLE)) == TABLE


def test_it_comes_back_equal_through_the_folder_too(tmp_path: Path) -> None:
    asked = Measurement("case study", {"data": "a digest"}, lambda: as_records(WHOLE))
    find_or_measure(asked, tmp_path)
    assert from_records(find_or_measure(asked, tmp_path)) == WHOLE


def test_charts_and_commands_have_no_place_in_it() -> None:
    assert from_records(as_records(FIGURE)) == replace(FIGURE, charts=(), commands=())


def test_it_is_one_record_of_text() -> None:
    ((name, text),) = (line for record in as_records(WHOLE) for line in record.items())
    assert name == "exhibit"
    assert isinstance(text, str)
    assert "Amélie" in text
