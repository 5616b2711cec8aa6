"""Files and page of report items: right contents, the same bytes every time, and nothing from outside becomes a tag."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from browser import CHROMIUM, browse, measured
from examples import FIGURE, PROVENANCE, TABLE, gain, headline, many_headlines

from loca.errors import DataError
from loca.paper.charts import Chart, Curve
from loca.paper.report import (
    BASE,
    BEST,
    ENSEMBLE,
    Finding,
    Gain,
    Headline,
    Provenance,
    ReportTable,
    as_markdown,
    overall_sentence,
    page_of,
    write_item,
)
from loca.text_table import TextTable


def test_an_exhibit_becomes_four_files_and_one_without_charts_and_records_becomes_markdown(
    tmp_path: Path,
) -> None:
    for item in (FIGURE, TABLE):
        write_item(item, tmp_path / "new")
    assert FIGURE.file_names == ("figure-4.csv", "figure-4.md", "figure-4.png", "figure-4.svg")
    assert TABLE.file_names == ("table-2.md",)
    assert {path.name for path in (tmp_path / "new").iterdir()} == {
        *FIGURE.file_names,
        *TABLE.file_names,
    }
    with open(tmp_path / "new" / "figure-4.csv", newline="") as file:
        assert list(csv.DictReader(file))[1] == {"anchors": "100", "ndcg@100": "0.085", "seed": "1"}
    assert (tmp_path / "new" / "figure-4.png").read_bytes().startswith(b"\x89PNG")


def test_written_twice_the_bytes_are_the_same(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        write_item(FIGURE, tmp_path / folder)
    write_item(FIGURE, tmp_path / "two")
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_files_that_the_exhibit_no_longer_has_are_removed_and_others_stay(tmp_path: Path) -> None:
    write_item(FIGURE, tmp_path)
    write_item(TABLE, tmp_path)
    write_item(replace(FIGURE, charts=()), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "figure-4.csv",
        "figure-4.md",
        "table-2.md",
    ]


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
    table_ = TextTable(("a|b", "*"), (("<b>x</b>", "1\n2"),))
    odd = replace(
        TABLE,
        title="[x](y) &lt;",
        tables=(ReportTable("h", table_),),
        findings=(Finding("found", "`a|b` and ` *"),),
    )
    text = as_markdown(odd)
    assert "# \\[x\\](y) &amp;lt;" in text
    assert "| a\\|b | \\* |" in text
    assert "| &lt;b>x&lt;/b> | 1 2 |" in text
    assert "`a|b` and \\` \\*" in text


def test_a_place_that_cannot_be_written_is_one_clear_line_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(DataError, match=r"table-2\.md: cannot be written"):
        write_item(TABLE, tmp_path / "file")
    (tmp_path / "table-2.md").mkdir()
    with pytest.raises(DataError, match="cannot be written"):
        write_item(TABLE, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "table-2.md"]


VOID = {"meta", "link", "br"}
TITLE = "LOCA again"


class Outline(HTMLParser):
    """The tags of a page, checked to be closed in order, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, name: str) -> list[str]:
        return [value for _, attributes in self.tags if (value := attributes.get(name)) is not None]


@pytest.fixture(scope="module")
def page() -> str:
    return page_of(many_headlines(), [TABLE, FIGURE], PROVENANCE, TITLE)


def cells_of(page: str) -> list[str]:
    """The words of the cells of the first screen, without the means."""
    found = re.findall(r'<td role="cell" class="(?:clean|paper)[^>]*>(.*?)</td>', page)
    return [" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in found]


def figures_of(one: Gain) -> tuple[str, str]:
    return one.figure, one.interval


def test_a_gain_is_told_in_percent_of_the_model_compared_with() -> None:
    # 0.002 over a mean of 0.1, give or take 0.001.
    assert figures_of(gain()) == ("+2.0 %", "+1.0 to +3.0 %")
    assert figures_of(gain(difference=-0.0005)) == ("−0.50 %", "−1.50 to +0.50 %")


def test_a_gain_of_nothing_and_one_without_a_percentage_are_told_in_ndcg() -> None:
    assert figures_of(gain(difference=0.0)) == ("0.0000", "−0.0010 to +0.0010")
    assert figures_of(replace(gain(), paired=replace(gain().paired, relative=math.nan))) == (
        "+0.0020",
        "+0.0010 to +0.0030",
    )


def test_a_cell_says_the_verdict_whatever_the_figures_would_say() -> None:
    sure, unsure = gain(), replace(gain(BEST), wilcoxon_p=0.2)
    told = cells_of(
        page_of([headline("ML1M", "clean", "LOCA VAE", sure, unsure)], [], PROVENANCE, TITLE)
    )
    assert ["better" in cell for cell in told] == [True, False, False, False, False, False]
    assert ["undecided" in cell for cell in told] == [False, False, True, False, False, False]


def test_what_differs_for_nobody_is_called_equal() -> None:
    same = gain(difference=0.0, reach=0.0)
    assert figures_of(same) == ("0 %", "for every user")
    told = overall_sentence([headline("ML1M", "clean", "LOCA EASE", same)])
    assert (
        told
        == "Where nothing is chosen on test, LOCA beats its base in 0 of 1 case; the others are equal."
    )


def test_the_sentence_counts_clean_cases_alone() -> None:
    assert overall_sentence([headline(), headline("ML1M"), headline("ML1M", "paper")]) == (
        "Where nothing is chosen on test, LOCA beats its base in 2 of 2 cases, the best single model in 0 of 2 and "
        "the equal-size ensemble in 0 of 2 (and loses in 2); the others are undecided."
    )
    assert overall_sentence([headline("ML1M", "clean", "LOCA VAE", gain())]) == (
        "Where nothing is chosen on test, LOCA beats its base in 1 of 1 case."
    )
    assert overall_sentence([headline(protocol="paper")]).startswith(
        "No LOCA was compared under the clean protocol"
    )


def test_a_missing_comparison_leaves_its_own_cell_empty() -> None:
    only = headline("ML1M", "clean", "LOCA VAE", gain(ENSEMBLE, "40 single MultVAE"))
    cells = cells_of(page_of([only], [], PROVENANCE, TITLE))
    assert cells == ["–", "–", "–", "–", "+2.0 % better +1.0 to +3.0 % 40 single MultVAE", "–"]


def test_each_row_shows_both_protocols_side_by_side_under_three_comparisons(page: str) -> None:
    cells = cells_of(page)
    assert len(cells) == 6 * 6
    assert cells[:6:2] == [
        "+2.0 % better +1.0 to +3.0 % MultVAE",
        "+0.50 % undecided −0.50 to +1.50 % RecVAE",
        "−3.0 % worse −4.0 to −2.0 % 40 MultVAE",
    ]
    text = Outline(page).text
    assert text.count("chosen on test: not a result") == 3
    assert "0.1020 ± 0.0003 clean" in text
    assert text.count("0.1059 printed") == 6


def test_a_printed_figure_stands_beside_the_protocol_that_it_is_printed_for_alone() -> None:
    clean, paper = headline(), headline(protocol="paper")
    assert "0.1059 printed" in page_of([clean, paper], [], PROVENANCE, TITLE)
    assert (
        "printed"
        not in Outline(page_of([replace(clean, printed=0.1059)], [], PROVENANCE, TITLE)).text
    )


def test_the_page_is_well_formed_and_its_headings_are_in_order(page: str) -> None:
    outline = Outline(page)
    levels = [int(tag[1]) for tag, _ in outline.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert not [one for one, count in Counter(outline.values("id")).items() if count > 1]
    assert all(attributes.get("scope") for tag, attributes in outline.tags if tag == "th")
    assert page.count("<table") == page.count("<caption>")
    sections = re.findall(r"<h2[^>]*>(.*?)</h2>", page)
    assert sections == [
        "What matches the paper, and what does not",
        "Contents",
        "Tables and figures",
        "What was run",
    ]
    assert page.index("What LOCA gains") < page.index("<h2")


def test_nothing_is_asked_from_outside_and_links_lead_somewhere(page: str) -> None:
    outline = Outline(page)
    assert not {"script", "img", "iframe", "object"} & {tag for tag, _ in outline.tags}
    ids = set(outline.values("id"))
    links = [attributes["href"] or "" for tag, attributes in outline.tags if tag == "a"]
    assert {link[1:] for link in links if link.startswith("#")} <= ids
    assert [link for link in links if not link.startswith("#")] == [
        "table-2.md", "figure-4.csv", "figure-4.md", "figure-4.png", "figure-4.svg",
    ]  # fmt: skip
    assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", page)
    assert "@import" not in page


def test_findings_are_collected_by_kind_and_linked_to_their_exhibit(page: str) -> None:
    text = re.sub(r"\s+", " ", page)
    assert (
        '<h3>Matches the paper</h3> <ul> <li>It rises. <small><a href="#figure-4">Figure 4: anchors'
        in text
    )
    assert "<h3>Differs from the paper</h3>" in text
    assert "Nothing." not in text
    assert page_of([], [TABLE], PROVENANCE, TITLE).count('<p class="quiet">Nothing.</p>') == 2
    assert "<h3>Not in the paper</h3>" in text


def test_a_picture_has_a_name_for_those_who_cannot_see_it(page: str) -> None:
    assert page.count('<div role="img"') == page.count("<svg") == 1
    assert (
        'aria-label="Figure 4: anchors: (a) AMusic, NDCG@100 by anchors for LOCA VAE, MultVAE; '
        '(b) Groups, NDCG@100 by users for MultVAE, LOCA VAE"'
    ) in page


def test_words_between_backticks_are_code_and_nothing_else_is() -> None:
    page = page_of([], [replace(TABLE, caption="`paper` <b> ` end")], PROVENANCE, TITLE)
    assert "<p><code>paper</code> &lt;b&gt; ` end</p>" in page


def test_a_table_of_words_is_read_from_the_left() -> None:
    for cell, has_words in (
        ("0.0951 ± 0.0003", False),
        ("X-Files: Fight the Future, The (1998)", True),
    ):
        table = replace(
            TABLE, tables=(ReportTable("a", TextTable(("model", "Top-1"), (("LOCA", cell),))),)
        )
        assert ('class="words"' in page_of([], [table], PROVENANCE, TITLE)) == has_words


def test_names_from_outside_are_shown_and_never_become_tags() -> None:
    bad = '<script>alert("x")</script>&"\'>'
    chart = Chart(bad, bad, bad, (Curve(bad, (1, 2), (1.0, 2.0)),))
    table_ = replace(TABLE.tables[0].table, header=(bad, bad, bad), rows=((bad, bad, bad),))
    item = replace(
        FIGURE, title=bad, caption=bad, tables=(ReportTable(bad, table_, bad),), charts=(chart,), command=bad,
        findings=(Finding("found", bad),), records=({bad: bad},),
    )  # fmt: skip
    gains = {over: gain(over, bad) for over in (BASE, BEST, ENSEMBLE)}
    page = page_of(
        [Headline(bad, "clean", bad, bad, None, gains)],
        [item],
        Provenance(bad, {bad: {bad: bad}}),
        bad,
    )
    outline = Outline(page)
    assert "script" not in {tag for tag, _ in outline.tags}
    assert not [
        name for _, attributes in outline.tags for name in attributes if name.startswith("on")
    ]
    assert outline.text.count(bad) >= 20


def test_the_same_contents_give_the_same_page_and_an_empty_page_is_one_too(page: str) -> None:
    assert page_of(many_headlines(), [TABLE, FIGURE], PROVENANCE, TITLE) == page
    empty = page_of([], [], Provenance("", {}), TITLE)
    assert "No LOCA was compared" in Outline(empty).text


needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="needs the command chromium, which is not on the PATH"
)


@needs_browser
def test_on_a_phone_every_picture_is_seen_and_the_page_does_not_scroll_sideways(
    page: str, tmp_path: Path
) -> None:
    sizes = measured(tmp_path, page, 390, 844)
    assert sizes["window"] == 390
    assert sizes["page"] <= 390
    assert sizes["body"] == "16px"
    assert len(sizes["pictures"]) == 1
    assert all(width > 300 and height > 100 for width, height, _ in sizes["pictures"])
    content, room = sizes["wide"]
    assert content <= room


@needs_browser
def test_the_first_screen_holds_three_data_sets_and_two_models(page: str, tmp_path: Path) -> None:
    sizes = measured(tmp_path, page, 1280, 800)
    assert sizes["page"] <= 1280
    assert sizes["gains"][2] <= 800
    content, room = sizes["wide"]
    assert content <= room
    assert all(width > 500 and height > 150 for width, height, _ in sizes["pictures"])


@needs_browser
def test_the_page_as_it_is_opens_without_errors_and_can_be_pictured(
    page: str, tmp_path: Path
) -> None:
    picture = tmp_path / "picture.png"
    browse(tmp_path, page, "--window-size=1280,800", f"--screenshot={picture}")
    assert picture.read_bytes().startswith(b"\x89PNG")


@needs_browser
def test_an_error_in_a_page_would_have_been_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="CONSOLE"):
        browse(tmp_path, "<!DOCTYPE html><title>x</title><script>missing()</script>", "--dump-dom")
