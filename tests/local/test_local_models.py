"""Blended scores with the global model's share, and the validation of each community, against the formulas."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import loca.local.local_models as validation_file
from loca.data.splits import HeldOut, Split
from loca.evaluation.evaluate import mean_value
from loca.local.local_models import SeparateModels, Validator, blended_scores
from loca.models.ease import EASE

MODELS = 4


@pytest.fixture(scope="module")
def local(planted_split: Split) -> SeparateModels:
    """Models that differ, so that one asked in place of another would be seen."""
    return SeparateModels.of(
        [EASE(l2=10.0**number).fit(planted_split.train) for number in range(MODELS)]
    )


def answering(users: int) -> csr_array:
    """Model 3 answers for nobody, the others for overlapping users, with weights of their own."""
    weights = np.random.default_rng(0).uniform(0.1, 1, (users, MODELS))
    weights[np.random.default_rng(1).random((users, MODELS)) < 0.6] = 0
    weights[:, 3] = 0
    return csr_array(weights)


def expected_of(
    local: SeparateModels, questions: HeldOut, weights: csr_array, number: int
) -> float:
    members = np.flatnonzero(weights.toarray()[:, number])
    own = HeldOut(questions.histories.of_users(members), questions.targets.of_users(members))
    return mean_value(lambda rows: local.score_with(number, rows), own)


@pytest.mark.parametrize("block_bytes", [None, 50_000])
def test_each_community_is_judged_by_its_own_members(
    block_bytes: int | None,
    local: SeparateModels,
    planted_split: Split,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if block_bytes is not None:
        monkeypatch.setattr(validation_file, "ranking_bytes", lambda device: block_bytes)
    questions = planted_split.validation
    assert questions is not None
    weights = answering(questions.n_users)
    found = Validator(questions, weights).score_each(local, range(MODELS))
    assert set(found) == {0, 1, 2}  # nobody judges model 3
    assert len(set(found.values())) == 3
    for number, score in found.items():
        assert score == pytest.approx(expected_of(local, questions, weights, number), abs=1e-12)


def test_only_the_communities_asked_for_are_scored(
    local: SeparateModels, planted_split: Split
) -> None:
    questions = planted_split.validation
    assert questions is not None
    members = Validator(questions, answering(questions.n_users))
    assert members.score_each(local, [1]) == {1: members.score_each(local, [0, 1, 2])[1]}
    assert members.score_each(local, [3]) == {}
    assert members.score_each(local, []) == {}


def test_a_member_without_a_held_out_item_judges_nobody(
    local: SeparateModels, planted_split: Split
) -> None:
    questions = planted_split.validation
    assert questions is not None
    whose = np.repeat(np.arange(questions.n_users), np.diff(questions.targets.offsets))
    fewer = HeldOut(questions.histories, questions.targets.where(whose >= questions.n_users // 2))
    weights = answering(questions.n_users)
    found = Validator(fewer, weights).score_each(local, [0])
    assert found[0] == pytest.approx(expected_of(local, fewer, weights, 0), abs=1e-12)


class Constant:
    """Scores every item with one number, and counts the users it scored."""

    def __init__(self, number: float) -> None:
        self.number, self.users = number, 0

    def score(self, histories: csr_array) -> np.ndarray:
        self.users += histories.shape[0]
        return np.full(histories.shape, self.number, np.float32)


def test_the_global_model_has_its_share_of_covered_users_and_all_of_the_others() -> None:
    local = SeparateModels.of([Constant(1.0), Constant(2.0)])  # type: ignore[list-item]
    weights = csr_array(np.array([[1.0, 3.0], [0, 2.0], [0, 0]], np.float32))
    histories = csr_array(np.eye(3, dtype=np.float32))
    both = [
        one[:, 0].tolist()
        for one in blended_scores(local, Constant(10.0), histories, weights, (0.5, 0.0))
    ]  # type: ignore[arg-type]
    assert both == [pytest.approx([0.5 * 10 + 0.5 * 1.75, 6, 10]), pytest.approx([1.75, 2, 10])]
    whole = Constant(10.0)
    (alone,) = blended_scores(local, whole, histories, weights, (0.0,))  # type: ignore[arg-type]
    assert alone[:, 0].tolist() == pytest.approx([1.75, 2, 10])
    assert whole.users == 1, "without a share it scores only whom no community answers for"
