"""The case study on local models whose lists are laid out by hand, and on a small network on planted data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from examples import tiny_benchmark
from scipy.sparse import csr_array

from loca.communities.embeddings import TruncatedSVD, embed_users
from loca.communities.geometry import Quantile
from loca.communities.kernel import KernelCommunities, Kernels
from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.item_metadata import genres_of_planted
from loca.data.splits import HeldOut, Split
from loca.data.synthetic import PlantedData
from loca.errors import DataError
from loca.local.combiner import LocalOnly
from loca.local.community_description import Locality
from loca.local.community_models import CommunityDescription, CommunityModels
from loca.local.loca import Loca
from loca.local.local_models import SeparateModels
from loca.models.mult_vae import MultVAE
from loca.models.popularity import Popularity
from loca.paper.benchmark import Benchmark
from loca.paper.report import Finding, ReportItem, ReportTable
from loca.paper.table4 import (
    Case,
    Criteria,
    Table4,
    as_records,
    case_item,
    find_case,
    from_records,
    genre_matrix,
    is_above_global,
    is_separated,
    two_genre_users,
)
from loca.text_table import TextTable

# Items 0 … 9 are War, 10 … 19 are Love, 20 and 21 are both, 22 … 59 are Drama.
GENRES_OF_60 = {
    **dict.fromkeys(range(10), ("War",)),
    **dict.fromkeys(range(10, 20), ("Love",)),
    **dict.fromkeys((20, 21), ("War", "Love")),
    **dict.fromkeys(range(22, 60), ("Drama",)),
}
NAMES, OF_ITEMS = genre_matrix(IdMap.numbered(60, "item"), GENRES_OF_60)
EIGHT = Criteria(history=8)


def histories(*of_users: list[int]) -> csr_array:
    matrix = np.zeros((len(of_users), 60), np.float32)
    for row, items in enumerate(of_users):
        matrix[row, items] = 1
    return csr_array(matrix)


def drama(count: int) -> list[int]:
    return list(range(22, 22 + count))


def test_genres_are_tabled_by_name_and_ids_match_as_text() -> None:
    items = IdMap(np.array(["1", "2", "3"], dtype=object), "item")
    names, of_items = genre_matrix(items, {1: ("B", "A"), 3: ("C",), 9: ("D",)})
    assert names == ("A", "B", "C")
    assert of_items.tolist() == [[True, True, False], [False, False, False], [False, False, True]]
    with pytest.raises(DataError, match="expected at least two genres among the 60 items, found 0"):
        genre_matrix(IdMap.numbered(60, "item"), {"x": ("A", "B")})


def test_only_a_long_history_with_two_leading_genres_is_taken() -> None:
    two = [0, 1, 2, 3, 10, 11, 12, *drama(3)]
    one = [0, 1, 2, 3, 4, 5, 6, 7, *drama(2)]
    short = [0, 1, 2, 10, 11, 12]
    usual = drama(20)
    (found,) = two_genre_users(histories(usual, two, one, short, drama(30)), OF_ITEMS, EIGHT)
    # Of 76 entries 15 are War (the catalogue has 12 of 60, which is more), of Love 6 of 76 against 12 of 60.
    assert (found.row, found.both) == (1, 0)
    assert [NAMES[genre] for genre in found.genres] == ["War", "Love"]
    assert found.shares == pytest.approx((0.4, 0.3))
    assert found.usual == pytest.approx((0.2, 0.2))


def test_genres_that_are_mostly_in_the_same_items_are_not_two() -> None:
    alike = [0, 10, 20, 21, *drama(4)]  # three of eight in each, two of them in both
    assert two_genre_users(histories(alike, drama(30)), OF_ITEMS, EIGHT) == []
    (loose,) = two_genre_users(
        histories(alike, drama(30)), OF_ITEMS, Criteria(history=8, overlap=0.5)
    )
    assert (loose.row, loose.both) == (0, 0.25)


def test_the_most_promising_user_comes_first_and_equal_ones_by_row() -> None:
    weak = [0, 1, 2, 10, 11, 12, *drama(4)]
    strong = [0, 1, 2, 3, 10, 11, 12, 13, *drama(2)]
    found = two_genre_users(histories(weak, drama(38), strong, weak, drama(38)), OF_ITEMS, EIGHT)
    assert [one.row for one in found] == [2, 0, 3]


# Items 0 … 9 are War, 10 … 19 are Love, 20 … 39 are Drama.
WAR, LOVE, DRAMA = list(range(10)), list(range(10, 20)), list(range(20, 40))
GENRES = {
    one: ("War",) if one in WAR else ("Love",) if one in LOVE else ("Drama",) for one in range(40)
}
FOUR = Criteria(history=4)
MIXED = [2, 12, 20, 21, 22]
WARLIKE = [0, 2, 3, 4, 5, 20]  # 0 is seen
LOVING = [12, 13, 14, 20, 15]


class Preference:
    """Always the same order of items, for every user."""

    def __init__(self, first: list[int]) -> None:
        self.scores = np.zeros(40, np.float32)
        self.scores[first] = np.arange(len(first), 0, -1)

    def score(self, histories: csr_array) -> np.ndarray:
        return np.tile(self.scores, (histories.shape[0], 1))

    def count_items(self) -> int:
        return 40


def interactions_of(*of_users: list[int]) -> Interactions:
    offsets = np.cumsum([0, *map(len, of_users)])
    rows = csr_array(
        (np.ones(offsets[-1]), np.concatenate(of_users), offsets), shape=(len(of_users), 40)
    )
    known = Interactions.from_matrix(rows)
    return known.with_titles({one: f"Film {one}" for one in range(40)})


def laid_out(local: list[list[int]], held_out: list[list[int]]) -> tuple[Loca, Split]:
    """Three users, of whom the first two have seen War 0, 1 and Love 10, 11 and the third only Drama.

    Local model j always lists `local[j]`, the global model Drama; all answer for all users, with equal weights.
    """
    seen = [[0, 10, 1, 11], [0, 10, 1, 11], DRAMA]
    histories = interactions_of(*seen).histories()
    n = len(local)
    model = Loca(base=Popularity(), communities=Kernels(n=n), combiner=LocalOnly())
    embedder = TruncatedSVD(dimensions=2).fit(histories)
    anchors = np.zeros(n, np.int64)
    communities = KernelCommunities(
        embedder=embedder,
        anchors=anchors,
        anchor_embeddings=embed_users(embedder, histories)[anchors],
        train_radius=3.0,
        answer_radius=3.0,
        kernel="uniform",
        coverage=1.0,
    )
    model.local_ = CommunityModels(
        finder=model.communities,
        communities=communities,
        models=SeparateModels.of([Preference(items) for items in local]),  # type: ignore[misc]
        combiner=model.combiner,
        description=CommunityDescription(
            members=np.full(n, 3),
            distinctive_items=np.zeros((n, 1), np.int32),
            lifts=np.ones((n, 1), np.float32),
            locality=Locality(alpha=0.0, effective_share=1.0, answering=float(n)),
        ),
    )
    model.global_ = Preference(DRAMA)  # type: ignore[assignment]
    known = interactions_of(*seen)
    test = HeldOut(known, interactions_of(*held_out))
    return model, Split(known, None, test, known)


def divided(held_out: list[list[int]] | None = None) -> Case:
    model, split = laid_out(
        [MIXED, LOVING, WARLIKE], held_out or [[30], [3, 12, 30, 31, 32, 33], [0]]
    )
    return find_case(model, split, GENRES, criteria=FOUR)


def list_of(case: Case, model: str, column: str = "item") -> list[Any]:
    return [one[column] for one in case.shown if one["model"] == model]


def test_the_clearest_pair_of_local_models_is_found_with_all_lists() -> None:
    case = divided()
    study = case.study
    assert study is not None
    assert (study["user"], study["genre_a"], study["genre_b"]) == (1, "Love", "War")
    assert (study["share_a"], study["share_b"], case.usual) == (0.5, 0.5, (0.25, 0.25))
    assert (study["best_local_a"], study["best_local_b"]) == (1, 2)
    assert list_of(case, "Local 1") == LOVING
    assert list_of(case, "Local 2") == [2, 3, 4, 5, 20]
    assert list_of(case, "Global") == DRAMA[:5]
    assert list_of(case, "Local 2", "is_held_out") == [False, True, False, False, False]
    assert list_of(case, "Local 1", "title")[0] == "Film 12"
    assert list_of(case, "Local 1", "genres")[0] == "Love"
    assert list_of(case, "Local 1", "weight")[0] == pytest.approx(1 / 3)
    assert (list_of(case, "Global", "weight")[0], list_of(case, "LOCA", "weight")[0]) == (0, None)
    assert list_of(case, "Held out") == [3, 12, 30, 31, 32, 33]
    # The mean of three: Film 2 has 5 + 0 + 5, Film 12 has 4 + 5 + 0, and the others less.
    assert list_of(case, "LOCA")[0] == 2


def test_the_score_is_clarity_and_among_equals_the_held_out_items() -> None:
    case = divided()
    first, second = case.examined
    assert case.counts == (3, 2, 2)
    assert first["best_clarity"] == second["best_clarity"] == pytest.approx(0.8)
    assert first["best_division"] == pytest.approx(0.8)
    assert is_separated(first, "best")
    assert is_above_global(first, "best")
    assert (first["hits"], second["hits"]) == (0, 2)
    assert second["score"] == pytest.approx(0.8 + 2 / 55)
    assert case.study == second
    without_hits = divided([[30], [31], [0]])
    assert without_hits.study == without_hits.examined[0]  # of equal ones the first


def test_the_heaviest_pair_is_chosen_without_a_look_at_the_lists() -> None:
    first, _ = divided().examined  # equal weights: the two lowest numbers
    assert (first["heaviest_local_a"], first["heaviest_local_b"]) == (1, 0)
    assert (first["heaviest_a_in_a"], first["heaviest_b_in_b"]) == pytest.approx((0.8, 0.2))
    assert (first["heaviest_b_in_a"], first["heaviest_a_in_b"]) == pytest.approx((0.0, 0.2))
    assert not is_separated(first, "heaviest")


def test_local_models_that_say_the_same_divide_nothing() -> None:
    model, split = laid_out([MIXED, MIXED], [[2], [2], [0]])
    case = find_case(model, split, GENRES, criteria=FOUR)
    study = case.study
    assert study is not None
    # Two different ones, although the first is as good as the second.
    assert (study["best_local_a"], study["best_local_b"]) == (0, 1)
    assert (study["best_clarity"], study["best_division"]) == (0, 0)
    item = case_item(case)
    assert item.findings[0].kind == "differs"
    assert "are not told apart" in item.findings[0].text
    assert "Such a story is not typical" in item.findings[1].text


def test_the_table_shows_titles_genres_and_what_was_held_out() -> None:
    item = case_item(divided(), data="by hand")
    assert item.key == "table4"
    assert item.title.endswith("(by hand)")
    story, average = item.tables
    assert (
        story.heading
        == "by hand: User 1: Love ① (50% of the history, usually 25%) and War ② (50% of the history, usually 25%)"
    )
    rows = {row[0]: row[1:] for row in story.table.rows}
    assert list(rows) == ["Local 1 (33.3%)", "Local 2 (33.3%)", "Global (0.0%)", "LOCA", "Held out"]
    assert rows["Local 1 (33.3%)"][:2] == ("✓ Film 12 — Love ①", "Film 13 — Love ①")
    assert rows["Global (0.0%)"][0] == "Film 20 — Drama"
    assert rows["Held out"] == (
        "Film 3 — War ②",
        "Film 12 — Love ①",
        *(f"Film {one} — Drama" for one in (30, 31, 32)),
    )
    assert "Held-out items that are not shown: 1." in story.note
    assert all(
        len(row) == len(one.table.header) for one in (story, average) for row in one.table.rows
    )
    assert average.table.rows[1][:4] == (
        "All: best two, chosen by their lists",
        "80%",
        "0%",
        "0.80",
    )
    assert average.table.rows[1][4] == "2 of 2 (100%)"
    assert [one.kind for one in item.findings] == ["matches", "found", "found"]
    assert item.findings[0].text.startswith("by hand: The two tastes of user 1")
    assert {one["data"] for one in item.records} == {"by hand"}
    assert "of the top 5 of Local 1, 4 are Love and 0 War" in item.findings[0].text
    assert "Such a story is typical" in item.findings[1].text
    kinds = [one["record"] for one in item.records]
    assert (kinds.count("shown item"), kinds.count("examined user")) == (5 * 4 + 6, 2)


def test_a_short_truth_leaves_places_empty() -> None:
    item = case_item(divided([[30], [3], [0]]))
    assert item.tables[0].table.rows[-1] == ("Held out", "Film 3 — War ②", "", "", "", "")


def test_nobody_who_meets_the_criteria_is_said_with_what_was_looked_for() -> None:
    model, split = laid_out([MIXED, LOVING], [[30], [31], [0]])
    case = find_case(model, split, GENRES, criteria=replace(FOUR, history=21))
    assert case.study is None
    item = case_item(case)
    assert (item.tables, item.records) == ((), ())
    assert item.findings[0].text.startswith(
        "No user for a case study: 0 of 3 test users have two tastes (at least 21"
    )


def test_a_user_whom_fewer_than_two_local_models_answer_for_is_not_examined() -> None:
    model, split = laid_out([LOVING], [[30], [31], [0]])
    case = find_case(model, split, GENRES, criteria=FOUR)
    assert (case.counts, case.study) == ((3, 2, 0), None)
    assert "at least two local models answer for 0 of them" in case_item(case).findings[0].text


def test_only_the_most_promising_are_examined() -> None:
    model, split = laid_out([WARLIKE, LOVING], [[30], [3], [0]])
    case = find_case(model, split, GENRES, criteria=replace(FOUR, users=1))
    assert (case.counts[2], [one["user"] for one in case.examined]) == (2, [0])
    assert "the 1 most promising of these were examined" in case_item(case).findings[2].text


def test_genres_of_other_data_are_refused() -> None:
    model, split = laid_out([WARLIKE, LOVING], [[30], [3], [0]])
    with pytest.raises(DataError, match="expected at least two genres"):
        find_case(model, split, {})


def test_small_networks_on_planted_data_have_a_case_study(
    planted: PlantedData, planted_split: Split
) -> None:
    base = MultVAE(latent=8, learning_rate=2e-2, epochs=4, batch_size=100)
    kernels = Kernels(n=4, train_bandwidth=Quantile(0.6), answer_bandwidth=Quantile(0.4))
    model = Loca(base=base, communities=kernels)
    model.fit(planted_split.train)
    criteria = Criteria(history=7, lift=1.1, overlap=0.5, users=20)
    case = find_case(model, planted_split, genres_of_planted(planted), criteria=criteria)
    assert 0 < len(case.examined) <= 20
    study = case.study
    assert study is not None
    assert {study["genre_a"], study["genre_b"]} == {"community 1", "community 2"}
    assert study["score"] == max(float(one["score"] or 0) for one in case.examined)
    row = planted.interactions.users.row(study["user"])
    seen = set(planted_split.test.histories.items.ids(planted_split.test.histories.items_of(row)))
    explanation = model.explain(planted_split.test.history_matrix[[row]], n=5).sources
    for number in (study["best_local_a"], study["best_local_b"]):
        shown = list_of(case, f"Local {number}")
        assert not seen & set(shown)
        answer = next(one for one in explanation.communities if one.community == number)
        assert shown == planted.interactions.items.ids(answer.items)
        assert list_of(case, f"Local {number}", "weight")[0] == pytest.approx(
            answer.weight, rel=1e-5
        )
    assert find_case(model, planted_split, genres_of_planted(planted), criteria=criteria) == case


def test_a_report_item_comes_back_equal_from_its_stored_records() -> None:
    whole = ReportItem(
        key="table4",
        title="Table 4: a user's two tastes",
        caption='Titles such as "Amélie" | and ‘100 %’,\nover two lines.',
        tables=(
            ReportTable(
                "Local 70",
                TextTable(("film", "genres"), (("Alien (1979)", "Horror|Sci-Fi"), ("", ""))),
            ),
            ReportTable("", TextTable(("nothing",), ()), "No film."),
        ),
        records=({"rank": 1, "score": 1 / 3, "seen": False, "title": "Amélie", "none": None}, {}),
        findings=(
            Finding("matches", "One."),
            Finding("differs", "Two."),
            Finding("found", "Three."),
        ),
    )
    assert from_records(as_records(whole)) == whole


def case_of(on: Benchmark) -> dict[str, Any]:
    (asked,) = Table4().measurements(on)
    return dict(asked.inputs)


def test_a_corrected_genre_or_title_asks_for_another_case_study(planted: PlantedData) -> None:
    on = tiny_benchmark(planted)
    first, *others = on.data.genres
    titles = {one: f"Film {one}" for one in on.data.genres}
    named = _with_titles(on, titles)
    corrected = {**on.data.genres, first: ("Western",)}
    turned = {one: on.data.genres[one] for one in (*reversed(others), first)}

    def changed(one: Benchmark, other: Benchmark) -> set[str]:
        then, now = case_of(one), case_of(other)
        return {key for key in then if then[key] != now[key]}

    assert changed(on, replace(on, data=replace(on.data, genres=corrected))) == {"genres"}
    assert changed(on, replace(on, data=replace(on.data, genres=turned))) == set()
    assert changed(on, named) == {"titles"}
    assert changed(named, _with_titles(on, {**titles, first: "Another"})) == {"titles"}
    assert changed(named, _with_titles(on, titles)) == set()


def _with_titles(on: Benchmark, titles: dict[Any, str]) -> Benchmark:
    data = replace(on.data, interactions=on.data.interactions.with_titles(titles))
    return replace(on, data=data, split=data.split(on.protocol))
