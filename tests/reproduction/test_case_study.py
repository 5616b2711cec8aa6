"""The case study on local models whose lists are laid out by hand, and on a small network on planted data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from loca.communities.communities import Communities
from loca.communities.embeddings import TruncatedSVD
from loca.communities.geometry import Quantile
from loca.data.interactions import Interactions
from loca.data.item_metadata import genres_of_planted
from loca.data.splits import HeldOut, Split
from loca.data.synthetic import PlantedData
from loca.errors import ConfigError, DataError
from loca.local.loca import Loca
from loca.local.local_models import SeparateModels
from loca.models.mult_vae import MultVAE
from loca.models.popularity import Popularity
from loca.reproduction.table4 import CaseSearch, Sought, case_exhibit, find_case

# Items 0 … 9 are War, 10 … 19 are Love, 20 … 39 are Drama.
WAR, LOVE, DRAMA = list(range(10)), list(range(10, 20)), list(range(20, 40))
GENRES = {one: ("War",) if one in WAR else ("Love",) if one in LOVE else ("Drama",) for one in range(40)}
SOUGHT = Sought(history=4)


class Preference:
    """Always the same order of items, whoever asks."""

    def __init__(self, first: list[int]) -> None:
        self.scores = np.zeros(40, np.float32)
        self.scores[first] = np.arange(len(first), 0, -1)

    def score(self, histories: csr_array) -> np.ndarray:
        return np.tile(self.scores, (histories.shape[0], 1))

    def count_items(self) -> int:
        return 40


def interactions_of(*of_users: list[int]) -> Interactions:
    offsets = np.cumsum([0, *map(len, of_users)])
    rows = csr_array((np.ones(offsets[-1]), np.concatenate(of_users), offsets), shape=(len(of_users), 40))
    known = Interactions.from_matrix(rows)
    return known.with_titles({one: f"Film {one}" for one in range(40)})


def laid_out(local: list[list[int]], held_out: list[list[int]]) -> tuple[Loca, Split]:
    """Three users, of whom the first two have seen War 0, 1 and Love 10, 11 and the third only Drama.

    Local model j always lists `local[j]`, the global model Drama; all answer for all users, with equal weights.
    """
    seen = [[0, 10, 1, 11], [0, 10, 1, 11], DRAMA]
    histories = interactions_of(*seen).histories()
    model = Loca(base=Popularity(), anchors=len(local), alpha="paper")
    model.embedder_ = TruncatedSVD(dimensions=2).fit(histories)
    anchors = np.zeros(len(local), np.int64)
    model.communities_ = Communities(anchors, model.embed(histories)[anchors], 3.0, 3.0, "uniform", 1.0)
    model.locals_ = SeparateModels.of([Preference(one) for one in local])  # type: ignore[list-item]
    model.global_ = Preference(DRAMA)  # type: ignore[assignment]
    model.alpha_ = 0.0
    known = interactions_of(*seen)
    test = HeldOut(known, interactions_of(*held_out))
    return model, Split(known, None, test, known)


MIXED = [2, 12, 20, 21, 22]
WARLIKE = [0, 2, 3, 4, 5, 20]  # 0 is seen
LOVING = [12, 13, 14, 20, 15]


def divided(held_out: list[list[int]] | None = None) -> CaseSearch:
    model, split = laid_out([MIXED, LOVING, WARLIKE], held_out or [[30], [3, 12, 30, 31, 32, 33], [0]])
    return find_case(model, split, GENRES, sought=SOUGHT)


def test_the_clearest_pair_of_local_models_is_found_with_all_lists() -> None:
    study = divided().study
    assert (study.user, study.genres, study.shares, study.usual) == (1, ("Love", "War"), (0.5, 0.5), (0.25, 0.25))
    assert (study.first.name, study.second.name) == ("Local 1", "Local 2")
    assert [one.item for one in study.first.items] == LOVING
    assert [one.item for one in study.second.items] == [2, 3, 4, 5, 20]
    assert [one.item for one in study.global_model.items] == DRAMA[:5]
    assert [one.is_held_out for one in study.second.items] == [False, True, False, False, False]
    assert study.first.items[0].title == "Film 12"
    assert study.first.items[0].genres == ("Love",)
    assert study.first.weight == pytest.approx(1 / 3)
    assert (study.global_model.weight, study.loca.weight) == (0, None)
    assert [one.item for one in study.held_out.items] == [3, 12, 30, 31, 32, 33]
    # The mean of three: Film 2 has 5 + 0 + 5, Film 12 has 4 + 5 + 0, and the others less.
    assert study.loca.items[0].item == 2


def test_the_score_is_clarity_and_among_equals_the_held_out_items() -> None:
    search = divided()
    first, second = (one.lists for one in search.examined)
    assert (search.asked_users, search.with_two_tastes, search.with_two_models) == (3, 2, 2)
    assert first.best.clarity == second.best.clarity == pytest.approx(0.8)
    assert first.best.division == pytest.approx(0.8)
    assert first.best.tells_apart
    assert first.best.has_more_than(first.global_shares)
    assert (first.hits, second.hits) == (0, 2)
    assert second.score == pytest.approx(0.8 + 2 / 55)
    assert search.study.examined == second
    without_hits = divided([[30], [31], [0]])
    assert without_hits.study.user == 0  # of equal ones the first


def test_the_heaviest_pair_is_chosen_without_a_look_at_the_lists() -> None:
    heaviest = divided().examined[0].lists.heaviest  # equal weights: the two lowest numbers
    assert heaviest.models == (1, 0)
    assert heaviest.own == pytest.approx((0.8, 0.2))
    assert heaviest.other == pytest.approx((0.0, 0.2))
    assert not heaviest.tells_apart


def test_local_models_that_say_the_same_divide_nothing() -> None:
    model, split = laid_out([MIXED, MIXED], [[2], [2], [0]])
    search = find_case(model, split, GENRES, sought=SOUGHT)
    best = search.study.examined.best
    assert best.models == (0, 1)  # two different ones, although the first is as good as the second
    assert (best.clarity, best.division) == (0, 0)
    exhibit = case_exhibit(search)
    assert exhibit.findings[0].kind == "differs"
    assert "are not told apart" in exhibit.findings[0].text
    assert "Such a story is not typical" in exhibit.findings[1].text


def test_the_table_shows_titles_genres_and_what_was_held_out() -> None:
    exhibit = case_exhibit(divided(), data="by hand")
    assert exhibit.key == "table4"
    assert exhibit.title.endswith("(by hand)")
    story, average = exhibit.panels
    assert (
        story.heading
        == "by hand: User 1: Love ① (50% of the history, usually 25%) and War ② (50% of the history, usually 25%)"
    )
    rows = {row[0]: row[1:] for row in story.grid.rows}
    assert list(rows) == ["Local 1 (33.3%)", "Local 2 (33.3%)", "Global (0.0%)", "LOCA", "Held out"]
    assert rows["Local 1 (33.3%)"][:2] == ("✓ Film 12 — Love ①", "Film 13 — Love ①")
    assert rows["Global (0.0%)"][0] == "Film 20 — Drama"
    assert rows["Held out"] == ("Film 3 — War ②", "Film 12 — Love ①", *(f"Film {one} — Drama" for one in (30, 31, 32)))
    assert "Held-out items that are not shown: 1." in story.note
    assert all(len(row) == len(grid.header) for grid in (story.grid, average.grid) for row in grid.rows)
    assert average.grid.rows[1][:4] == ("All: best two, chosen by their lists", "80%", "0%", "0.80")
    assert average.grid.rows[1][4] == "2 of 2 (100%)"
    assert [one.kind for one in exhibit.findings] == ["matches", "found", "found"]
    assert exhibit.findings[0].text.startswith("by hand: The two tastes of user 1")
    assert {one["data"] for one in exhibit.records} == {"by hand"}
    assert "of the top 5 of Local 1, 4 are Love and 0 War" in exhibit.findings[0].text
    assert "Such a story is typical" in exhibit.findings[1].text
    kinds = [one["record"] for one in exhibit.records]
    assert (kinds.count("shown item"), kinds.count("examined user")) == (5 * 4 + 6, 2)


def test_a_short_truth_leaves_places_empty() -> None:
    exhibit = case_exhibit(divided([[30], [3], [0]]))
    assert exhibit.panels[0].grid.rows[-1] == ("Held out", "Film 3 — War ②", "", "", "", "")


def test_nobody_as_sought_is_said_with_what_was_looked_for() -> None:
    model, split = laid_out([MIXED, LOVING], [[30], [31], [0]])
    search = find_case(model, split, GENRES, sought=replace(SOUGHT, history=21))
    assert search.study is None
    exhibit = case_exhibit(search)
    assert (exhibit.panels, exhibit.records) == ((), ())
    assert exhibit.findings[0].text.startswith(
        "No user for a case study: 0 of 3 test users have two tastes (at least 21"
    )


def test_a_user_whom_fewer_than_two_local_models_answer_for_is_not_examined() -> None:
    model, split = laid_out([LOVING], [[30], [31], [0]])
    search = find_case(model, split, GENRES, sought=SOUGHT)
    assert (search.with_two_tastes, search.with_two_models, search.study) == (2, 0, None)
    assert "at least two local models answer for 0 of them" in case_exhibit(search).findings[0].text


def test_only_the_most_promising_are_examined() -> None:
    model, split = laid_out([WARLIKE, LOVING], [[30], [3], [0]])
    search = find_case(model, split, GENRES, sought=replace(SOUGHT, users=1))
    assert (search.with_two_models, len(search.examined), search.study.user) == (2, 1, 0)
    assert "the 1 most promising of these were examined" in case_exhibit(search).findings[2].text


def test_mistakes_are_refused() -> None:
    model, split = laid_out([WARLIKE, LOVING], [[30], [3], [0]])
    with pytest.raises(ConfigError, match="n: expected a list length of 1 or more"):
        find_case(model, split, GENRES, n=0)
    with pytest.raises(DataError, match="expected at least two genres"):
        find_case(model, split, {})
    other = Interactions.from_matrix(csr_array(np.ones((1, 3))))
    with pytest.raises(DataError, match="the model scores 40 items, the split has 3"):
        find_case(model, Split(other, None, HeldOut(other, other), other), GENRES)


def test_small_networks_on_planted_data_have_a_case_study(planted: PlantedData, planted_split: Split) -> None:
    base = MultVAE(latent=8, learning_rate=2e-2, epochs=4, batch_size=100)
    model = Loca(base=base, anchors=4, train_bandwidth=Quantile(0.6), answer_bandwidth=Quantile(0.4))
    model.fit(planted_split.train)
    sought = Sought(history=7, lift=1.1, alike=0.5, users=20)
    search = find_case(model, planted_split, genres_of_planted(planted), sought=sought)
    assert 0 < len(search.examined) <= 20
    study = search.study
    assert set(study.genres) == {"community 1", "community 2"}
    assert study.examined.score == max(one.lists.score for one in search.examined)
    row = planted.interactions.users.row(study.user)
    seen = set(planted_split.test.histories.items.ids(planted_split.test.histories.items_of(row)))
    for number, shown in zip(study.examined.best.models, (study.first, study.second), strict=True):
        assert not seen & {one.item for one in shown.items}
        told = model.explain(planted_split.test.history_matrix[[row]], 5)
        answer = next(one for one in told.communities if one.community == number)
        assert [one.item for one in shown.items] == planted.interactions.items.ids(answer.items)
        assert shown.weight == pytest.approx(answer.weight, rel=1e-5)
    again = find_case(model, planted_split, genres_of_planted(planted), sought=sought)
    assert again == search
