"""The files of an exhibit: right contents, the same bytes every time, whole or not at all."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from exhibit_examples import FIGURE, TABLE

from loca.errors import ConfigError, DataError
from loca.reproduction.report import as_csv, as_markdown, write_exhibit
from loca.reproduction.report_items import Finding, ReportTable
from loca.text_table import TextTable


def test_the_header_is_every_key_in_order_of_first_appearance_and_missing_values_are_empty() -> None:
    records = ({"b": 1, "a": 0.1}, {"c": None, "b": 2}, {"a": 'say "x", y', "d": True})
    assert as_csv(records) == 'b,a,c,d\n1,0.1,,\n2,,,\n,"say ""x"", y",,True\n'


def test_an_exhibit_becomes_four_files_and_one_without_charts_and_records_becomes_markdown(tmp_path: Path) -> None:
    assert write_exhibit(FIGURE, tmp_path / "new") == ("figure-4.csv", "figure-4.md", "figure-4.png", "figure-4.svg")
    assert write_exhibit(TABLE, tmp_path / "new") == ("table-2.md",)
    assert len(list((tmp_path / "new").iterdir())) == 5
    with open(tmp_path / "new" / "figure-4.csv", newline="") as file:
        assert list(csv.DictReader(file))[1] == {"anchors": "100", "ndcg@100": "0.085", "seed": "1"}
    assert (tmp_path / "new" / "figure-4.png").read_bytes().startswith(b"\x89PNG")


def test_written_twice_the_bytes_are_the_same(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        write_exhibit(FIGURE, tmp_path / folder)
    write_exhibit(FIGURE, tmp_path / "two")
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_files_that_the_exhibit_no_longer_has_are_removed_and_others_stay(tmp_path: Path) -> None:
    write_exhibit(FIGURE, tmp_path)
    write_exhibit(TABLE, tmp_path)
    write_exhibit(replace(FIGURE, charts=()), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figure-4.csv", "figure-4.md", "table-2.md"]


def test_the_markdown_says_what_matches_and_what_does_not() -> None:
    assert as_markdown(TABLE) == (
        "# Table 2: accuracy\n\nAll models.\n\n## AMusic\n\n"
        "| metric | EASE | LOCA EASE |\n| --- | ---: | ---: |\n| NDCG@100 | 0.0821 | 0.0826 |\n\nOne seed.\n\n"
        "## Findings\n\n- Not in the paper: An ensemble explains half.\n"
    )
    text = as_markdown(FIGURE)
    assert "![Figure 4: anchors](figure-4.png)" in text
    assert "- Matches the paper: It rises.\n- Differs from the paper: It rises less." in text
    assert text.endswith("## Made by\n\n    loca reproduce figure-4\n")


def test_signs_of_markdown_in_a_name_are_shown_as_they_are() -> None:
    grid = TextTable(("a|b", "*"), (("<b>x</b>", "1\n2"),))
    odd = replace(
        TABLE, title="[x](y) &lt;", panels=(ReportTable("h", grid),), findings=(Finding("found", "`a|b` and ` *"),)
    )
    text = as_markdown(odd)
    assert "# \\[x\\](y) &amp;lt;" in text
    assert "| a\\|b | \\* |" in text
    assert "| &lt;b>x&lt;/b> | 1 2 |" in text
    assert "`a|b` and \\` \\*" in text


@pytest.mark.parametrize("key", ["", "../up", "a/b", "4th", "a b", 'a"b', "a.b", "x" * 81])
def test_a_key_that_cannot_be_a_file_name_is_refused(key: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="key of an exhibit"):
        write_exhibit(replace(TABLE, key=key), tmp_path / "in")
    assert not (tmp_path / "in").exists()


def test_a_place_that_cannot_be_written_is_one_clear_line_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(DataError, match=r"table-2\.md: cannot be written"):
        write_exhibit(TABLE, tmp_path / "file")
    (tmp_path / "table-2.md").mkdir()
    with pytest.raises(DataError, match="cannot be written"):
        write_exhibit(TABLE, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "table-2.md"]
