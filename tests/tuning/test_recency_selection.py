"""Recency is chosen on validation where it surely helps, and left alone where it does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_array

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.data.splits import HeldOut, Split
from loca.evaluation.evaluate import evaluate, mean_value
from loca.evaluation.significance import paired_difference
from loca.experiments.comparison import compare
from loca.local.ensemble import Ensemble
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from loca.models.popularity import Popularity
from loca.persistence.manifest import Persistent
from loca.tuning.recency_selection import (
    RecencyChoice,
    choose_recency,
    recency_candidates,
    start_recency,
)

USERS, ITEMS = 40, 12
STRONG, WEAK = Recency.per_position(0.5), Recency.per_position(0.99)


class ByWeights:
    """Scores by what `answer` makes of the weighted rows."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.answer = answer

    def score(self, histories: csr_array) -> Any:
        return np.asarray(self.answer(histories.toarray()), dtype=np.float32)


def questions(times: Any = None) -> HeldOut:
    """Everybody has the items 0, 1, 2, 3, oldest first, and is to find one of 4 … 11."""
    users, items = IdMap.numbered(USERS, "user"), IdMap.numbered(ITEMS, "item")
    rows = np.tile(np.arange(4), USERS)
    histories = Interactions(users, items, np.arange(0, 4 * USERS + 1, 4), rows, times)
    targets = Interactions(users, items, np.arange(USERS + 1), 4 + np.arange(USERS) % 8)
    return HeldOut(histories, targets)


def helped_by_fading(rows: Any) -> Any:
    """The target first, the more surely the less the oldest item weighs; else last."""
    scores = np.zeros(rows.shape)
    faded = rows[:, [0]] < np.linspace(0.05, 1.0, len(rows))[:, None]
    scores[np.arange(len(rows)), 4 + np.arange(len(rows)) % 8] = np.where(faded[:, 0], 1, -1)
    return scores


def test_the_best_recency_is_chosen_and_all_that_was_tried_is_kept() -> None:
    model, asked = ByWeights(helped_by_fading), questions()
    choice = choose_recency(model, asked, [WEAK, STRONG])
    assert choice.recency == STRONG
    assert [recency for recency, _ in choice.tried] == [None, WEAK, STRONG]
    for recency, ndcg in choice.tried:
        assert ndcg == pytest.approx(mean_value(model.score, asked.with_recency(recency)))
    assert choice.score == choice.tried[2][1] > choice.score_without == choice.tried[0][1]
    assert choice.gain.mean == pytest.approx(choice.score - choice.score_without)
    assert "half-life 1 positions" in str(choice)


def test_the_interval_is_a_paired_t_interval_corrected_for_the_number_of_candidates() -> None:
    model, asked = ByWeights(helped_by_fading), questions()
    values = [
        evaluate(model, asked.with_recency(recency), at=(100,)).values["ndcg@100"]
        for recency in (None, STRONG)
    ]
    many = [STRONG, *(Recency(1e6 + k) for k in range(4))]
    gain = choose_recency(model, asked, many).gain
    expected = stats.ttest_1samp(values[1] - values[0], 0).confidence_interval(1 - 0.05 / 5)
    assert (gain.low, gain.high) == pytest.approx((expected.low, expected.high))


def test_what_the_questions_carry_is_not_looked_at() -> None:
    model = ByWeights(helped_by_fading)
    plain = choose_recency(model, questions(), [WEAK, STRONG])
    assert choose_recency(model, questions().with_recency(Recency(0.1)), [WEAK, STRONG]) == plain


def test_a_gain_that_is_not_sure_is_not_taken() -> None:
    def lucky(rows: Any) -> Any:
        """Fading finds the target of one user more, of forty."""
        scores = np.zeros(rows.shape)
        scores[:, 4:] = -np.arange(8)
        if rows[0, 0] < 1:
            scores[7, 11] = 1
        return scores

    choice = choose_recency(ByWeights(lucky), questions(), [STRONG])
    assert choice.recency is None
    assert choice.gain.mean > 0 > choice.gain.low
    assert choice.score == choice.score_without
    assert str(choice).startswith("none; ")


def test_a_sure_gain_is_taken_though_an_unsure_one_looks_larger() -> None:
    def answer(rows: Any) -> Any:
        """WEAK helps everybody by one place; STRONG lifts a few to the top and throws the others back by one."""
        places = np.full(len(rows), 4)
        if 0.9 < rows[0, 0] < 1:
            places -= 1
        if rows[0, 0] < 0.9:
            places += 1
            places[:5] = 0
        scores = np.tile(-np.arange(ITEMS) - 100.0, (len(rows), 1))
        target = 4 + np.arange(len(rows)) % 8
        for row, place in enumerate(places):
            others = [item for item in range(4, ITEMS) if item != target[row]]
            scores[row, [*others[:place], target[row], *others[place:]]] = -np.arange(8)
        return scores

    choice = choose_recency(ByWeights(answer), questions(), [WEAK, STRONG])
    means = dict(choice.tried)
    assert means[STRONG] > means[WEAK] > means[None]
    assert choice.recency == WEAK


def test_a_model_that_does_not_look_at_the_history_chooses_none(planted_split: Split) -> None:
    assert planted_split.validation is not None
    choice = choose_recency(Popularity().fit(planted_split.train), planted_split.validation)
    assert choice.recency is None
    assert len({ndcg for _, ndcg in choice.tried}) == 1


def test_a_single_user_proves_nothing() -> None:
    asked = questions()
    alone = HeldOut(
        asked.histories.of_users(np.array([39])), asked.targets.of_users(np.array([39]))
    )
    choice = choose_recency(
        ByWeights(lambda rows: -rows.min(axis=1)[:, None] * np.arange(ITEMS)), alone, [STRONG]
    )
    assert choice.recency is None
    assert (choice.gain.low, choice.gain.high) == (-np.inf, np.inf)


def test_a_choice_comes_back_from_its_json() -> None:
    choices = [
        choose_recency(
            ByWeights(helped_by_fading), questions(), [Recency(0.3, "positions", "power", 0.1)]
        ),
        choose_recency(ByWeights(lambda rows: 0 * rows), questions(), [STRONG]),
    ]
    assert [one.recency is None for one in choices] == [False, True]
    for one in choices:
        assert RecencyChoice.from_json(json.loads(json.dumps(one.as_json()))) == one


def test_without_times_the_candidates_are_in_positions() -> None:
    candidates = recency_candidates(questions().histories)
    assert candidates[0] is None
    assert {one.unit for one in candidates if one is not None} == {"positions"}
    assert {one.shape for one in candidates if one is not None} == {"exponential", "power"}
    assert Recency.per_position(0.85, floor=0.05) in candidates
    assert len(set(candidates)) == len(candidates) == 12


def test_half_lives_in_time_are_shares_of_the_median_users_span() -> None:
    times = np.concatenate(
        [np.array([0, 1, 5, 24]) * (1 if user < 30 else 1000) for user in range(USERS)]
    )
    in_time = [
        one
        for one in recency_candidates(questions(times).histories)
        if one is not None and one.unit == "time"
    ]
    assert [one.half_life for one in in_time] == pytest.approx([3, 8, 24])


@pytest.mark.parametrize("times", [[7, 7, 7, 7], [0, 0, 9, 9]])
def test_times_that_hardly_differ_make_no_candidates(times: list[int]) -> None:
    candidates = recency_candidates(questions(np.tile(times, USERS)).histories)
    assert {one.unit for one in candidates if one is not None} == {"positions"}


class Prefixed(Persistent):
    """A model with the parameters of one that learns from decayed prefixes."""

    def __init__(self, *, target: str = "next", prefix_decay: float | None = 0.9) -> None:
        self.target = target
        self.prefix_decay = prefix_decay


def test_a_model_trained_on_decayed_prefixes_starts_under_their_decay() -> None:
    assert start_recency(Prefixed()) == Recency.per_position(0.9)
    ensemble = Ensemble(base=MultVAE(target="next", prefix_decay=0.8))
    assert start_recency(ensemble) == Recency.per_position(0.8)
    for plain in (
        Prefixed(target="set"),
        Prefixed(prefix_decay=None),
        Prefixed(prefix_decay=1.0),
        EASE(),
        object(),
    ):
        assert start_recency(plain) is None


@pytest.mark.parametrize("orderless_split", range(4), indirect=True)
def test_where_the_order_is_without_meaning_none_is_chosen_and_nothing_is_lost(
    orderless_split: Split,
) -> None:
    chosen = compare({"ease": EASE()}, orderless_split, recency="auto").of("ease")
    without = compare({"ease": EASE()}, orderless_split).of("ease")
    assert chosen.recency is None
    difference = paired_difference(
        chosen.evaluation.values["ndcg@100"], without.evaluation.values["ndcg@100"]
    )
    assert difference.low <= 0 <= difference.high


def test_where_tastes_drift_a_recency_is_chosen_and_earns_on_test(drifting_split: Split) -> None:
    chosen = compare({"ease": EASE()}, drifting_split, recency="auto").of("ease")
    without = compare({"ease": EASE()}, drifting_split).of("ease")
    assert chosen.recency is not None
    difference = paired_difference(
        chosen.evaluation.values["ndcg@100"], without.evaluation.values["ndcg@100"]
    )
    assert difference.low > 0
