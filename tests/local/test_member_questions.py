"""The questions of all communities' members at once, against one community after the other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import loca.local.local_models as validation_file
from loca.data.splits import HeldOut, Split
from loca.evaluation.evaluate import mean_ndcg
from loca.local.local_models import CommunityValidator, SeparateModels
from loca.models.ease import EASE

MODELS = 4


@pytest.fixture(scope="module")
def local(planted_split: Split) -> SeparateModels:
    """Models that differ, so that one asked in place of another would be seen."""
    return SeparateModels.of([EASE(l2=10.0**number).fit(planted_split.train) for number in range(MODELS)])


def answering(users: int) -> csr_array:
    """Model 3 answers for nobody, the others for overlapping users, with weights of their own."""
    weights = np.random.default_rng(0).uniform(0.1, 1, (users, MODELS))
    weights[np.random.default_rng(1).random((users, MODELS)) < 0.6] = 0
    weights[:, 3] = 0
    return csr_array(weights)


def expected_of(local: SeparateModels, questions: HeldOut, weights: csr_array, number: int) -> float:
    members = np.flatnonzero(weights.toarray()[:, number])
    own = HeldOut(questions.histories.of_users(members), questions.targets.of_users(members))
    return mean_ndcg(lambda rows: local.score_with(number, rows), own)


@pytest.mark.parametrize("block_bytes", [None, 50_000])
def test_each_community_is_judged_by_its_own_members(
    block_bytes: int | None, local: SeparateModels, planted_split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    if block_bytes is not None:
        monkeypatch.setattr(validation_file, "ranking_bytes", lambda device: block_bytes)
    questions = planted_split.validation
    assert questions is not None
    weights = answering(questions.n_users)
    found = CommunityValidator(questions, weights).score(local, range(MODELS))
    assert set(found) == {0, 1, 2}  # nobody judges model 3
    assert len(set(found.values())) == 3
    for number, score in found.items():
        assert score == pytest.approx(expected_of(local, questions, weights, number), abs=1e-12)


def test_only_the_communities_asked_for_are_scored(local: SeparateModels, planted_split: Split) -> None:
    questions = planted_split.validation
    assert questions is not None
    members = CommunityValidator(questions, answering(questions.n_users))
    assert members.score(local, [1]) == {1: members.score(local, [0, 1, 2])[1]}
    assert members.score(local, [3]) == {}
    assert members.score(local, []) == {}


def test_a_member_without_a_held_out_item_judges_nobody(local: SeparateModels, planted_split: Split) -> None:
    questions = planted_split.validation
    assert questions is not None
    whose = np.repeat(np.arange(questions.n_users), np.diff(questions.targets.offsets))
    fewer = HeldOut(questions.histories, questions.targets.where(whose >= questions.n_users // 2))
    weights = answering(questions.n_users)
    found = CommunityValidator(fewer, weights).score(local, [0])
    assert found[0] == pytest.approx(expected_of(local, fewer, weights, 0), abs=1e-12)
