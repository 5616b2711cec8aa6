"""The page: the first screen tells the truth, all is escaped and linked, and the HTML is well formed."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from exhibit_examples import FIGURE, PROVENANCE, TABLE, gain, headline, many_headlines

from loca.errors import ConfigError, DataError
from loca.reproduction.report import figures_of, gains_in_order, overall_sentence, page_of
from loca.reproduction.report_items import Chart, Curve, Finding, Gain, Headline, ReportTable
from loca.text_table import TextTable

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


def test_a_gain_is_told_in_percent_of_the_model_compared_with() -> None:
    # 0.002 over a mean of 0.1, give or take 0.001.
    assert figures_of(gain()) == ("+2.0 %", "+1.0 to +3.0 %")
    assert figures_of(gain(difference=-0.0005)) == ("−0.50 %", "−1.50 to +0.50 %")


def test_a_gain_of_nothing_and_one_without_a_percentage_are_told_in_ndcg() -> None:
    assert figures_of(gain(difference=0.0)) == ("0.0000", "−0.0010 to +0.0010")
    assert figures_of(replace(gain(), relative=math.nan)) == ("+0.0020", "+0.0010 to +0.0030")


def test_a_cell_says_the_verdict_whatever_the_figures_would_say() -> None:
    sure, unsure = gain("its base"), replace(gain("the best single model"), verdict="undecided")
    told = cells_of(page_of([headline("ML1M", "clean", "LOCA VAE", sure, unsure)], [], PROVENANCE, TITLE))
    assert ["better" in cell for cell in told] == [True, False, False, False, False, False]
    assert ["undecided" in cell for cell in told] == [False, False, True, False, False, False]


def test_what_differs_for_nobody_is_called_equal() -> None:
    same = replace(gain(difference=0.0), low=0.0, high=0.0, verdict="equal")
    assert figures_of(same) == ("0 %", "for every user")
    told = overall_sentence([headline("ML1M", "clean", "LOCA EASE", replace(same, over="its base"))])
    assert told == "Where nothing is chosen on test, LOCA beats its base in 0 of 1 case; the others are equal."


def test_the_sentence_counts_clean_cases_alone() -> None:
    assert overall_sentence([headline(), headline("ML1M"), headline("ML1M", "paper")]) == (
        "Where nothing is chosen on test, LOCA beats its base in 2 of 2 cases, the best single model in 0 of 2 and "
        "the equal-size ensemble in 0 of 2 (and loses in 2); the others are undecided."
    )
    assert overall_sentence([headline("ML1M", "clean", "LOCA VAE", gain("its base"))]) == (
        "Where nothing is chosen on test, LOCA beats its base in 1 of 1 case."
    )
    assert overall_sentence([headline(protocol="paper")]).startswith("No LOCA was compared under the clean protocol")


def test_a_missing_comparison_leaves_its_own_cell_empty() -> None:
    only = headline("ML1M", "clean", "LOCA VAE", gain("the ensemble of as many (40 single MultVAE)"))
    assert [one is None for one in gains_in_order(only)] == [True, True, False]
    cells = cells_of(page_of([only], [], PROVENANCE, TITLE))
    assert cells == ["–", "–", "–", "–", "+2.0 % better +1.0 to +3.0 % 40 single MultVAE", "–"]


def test_a_gain_that_could_stand_in_any_column_is_refused() -> None:
    with pytest.raises(DataError, match="each say base, single or ensemble"):
        gains_in_order(headline("ML1M", "clean", "LOCA VAE", gain("RecVAE")))


@pytest.mark.parametrize(
    ("headlines", "said"),
    [([headline(protocol="cheap")], "clean and paper, found 'cheap'"), ([headline(), headline()], "same one twice")],
)
def test_headlines_that_have_no_place_are_refused(headlines: list[Headline], said: str) -> None:
    with pytest.raises(DataError, match=said):
        page_of(headlines, [], PROVENANCE, TITLE)


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
    assert "0.1020 clean" in text
    assert text.count("0.1059 printed") == 6


def test_the_spread_over_seeds_stands_behind_the_mean() -> None:
    assert "0.1020 ± 0.0003 clean" in page_of([replace(headline(), spread=0.0003)], [], PROVENANCE, TITLE)


def test_a_printed_figure_stands_beside_the_protocol_that_it_is_printed_for_alone() -> None:
    clean, paper = headline(), headline(protocol="paper")
    assert "0.1059 printed" in page_of([clean, paper], [], PROVENANCE, TITLE)
    assert "printed" not in Outline(page_of([replace(clean, printed=0.1059)], [], PROVENANCE, TITLE)).text


def test_without_a_best_single_model_its_cells_are_empty_and_the_sentence_leaves_it_out() -> None:
    both = gain("its base (MultVAE)"), gain("the ensemble of as many (Ensemble_VAE)")
    lines = [headline("ML1M", protocol, "LOCA VAE", *both) for protocol in ("clean", "paper")]
    cells = cells_of(page_of(lines, [], PROVENANCE, TITLE))
    assert [cell == "–" for cell in cells] == [False, False, True, True, False, False]
    assert overall_sentence(lines) == (
        "Where nothing is chosen on test, LOCA beats its base in 1 of 1 case and the equal-size ensemble in 1 of 1."
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
    assert sections == ["What matches the paper, and what does not", "Contents", "Tables and figures", "What was run"]
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
    assert '<h3>Matches the paper</h3> <ul> <li>It rises. <small><a href="#figure-4">Figure 4: anchors' in text
    assert "<h3>Differs from the paper</h3>" in text
    assert "<h3>Not in the paper</h3>" in text


def test_a_picture_has_a_name_for_those_who_cannot_see_it(page: str) -> None:
    assert page.count('<svg role="img" aria-labelledby="figure-4.title"') == 1
    assert (
        '<title id="figure-4.title">Figure 4: anchors: (a) AMusic, NDCG@100 by anchors for LOCA VAE, MultVAE; '
        "(b) Groups, NDCG@100 by users for MultVAE, LOCA VAE</title>"
    ) in page


def test_words_between_backticks_are_code_and_nothing_else_is() -> None:
    page = page_of([], [replace(TABLE, caption="`paper` <b> ` end")], PROVENANCE, TITLE)
    assert "<p><code>paper</code> &lt;b&gt; ` end</p>" in page


def test_a_table_of_words_is_read_from_the_left() -> None:
    for cell, has_words in (("0.0951 ± 0.0003", False), ("X-Files: Fight the Future, The (1998)", True)):
        table = replace(TABLE, panels=(ReportTable("a", TextTable(("model", "Top-1"), (("LOCA", cell),))),))
        assert ('class="words"' in page_of([], [table], PROVENANCE, TITLE)) == has_words


def test_what_was_run_is_told(page: str) -> None:
    text = Outline(page).text
    for words in ("loca reproduce all", "1, 2", "2 cores", "12.3 s", "2 h 13 min", "yes"):
        assert words in text
    assert re.search(r"Together\s*2 h 14 min", text)


def test_names_from_outside_are_shown_and_never_become_tags() -> None:
    bad = '<script>alert("x")</script>&"\'>'
    chart = Chart(bad, bad, bad, (Curve(bad, (1, 2), (1.0, 2.0)),))
    grid = replace(TABLE.panels[0].grid, header=(bad, bad, bad), rows=((bad, bad, bad),))
    exhibit = replace(
        FIGURE, title=bad, caption=bad, panels=(ReportTable(bad, grid, bad),), charts=(chart,), commands=(bad,),
        findings=(Finding("found", bad),), records=({bad: bad},),
    )  # fmt: skip
    told = replace(
        PROVENANCE, commands=(bad,), settings={bad: bad}, versions={bad: bad}, machine={bad: bad}, seconds={bad: 1.0}
    )
    over = Gain(bad, 0.002, 0.001, 0.003, 0.02, "better")
    page = page_of([Headline(bad, "clean", bad, 0.1, None, (over, over, over))], [exhibit], told, bad)
    outline = Outline(page)
    assert "script" not in {tag for tag, _ in outline.tags}
    assert not [name for _, attributes in outline.tags for name in attributes if name.startswith("on")]
    assert outline.text.count(bad) >= 20


def test_keys_are_checked_and_stand_once() -> None:
    with pytest.raises(DataError, match="'table-2' twice"):
        page_of([], [TABLE, TABLE], PROVENANCE, TITLE)
    with pytest.raises(ConfigError, match="key of an exhibit"):
        page_of([], [replace(TABLE, key='x" onclick="y')], PROVENANCE, TITLE)


def test_the_same_contents_give_the_same_page_and_an_empty_page_is_one_too(page: str) -> None:
    assert page_of(many_headlines(), [TABLE, FIGURE], PROVENANCE, TITLE) == page
    empty = page_of([], [], replace(PROVENANCE, commands=(), settings={}, versions={}, machine={}, seconds={}), TITLE)
    assert "No LOCA was compared" in Outline(empty).text
