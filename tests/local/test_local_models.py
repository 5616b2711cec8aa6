"""Many models as one: their weighted mean, the global model's share, and the value of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

import loca.local.judge as judge_file
from loca.communities.embeddings import TruncatedSVD
from loca.data.splits import HeldOut, Split
from loca.errors import ModelFileError
from loca.evaluation.evaluate import mean_value
from loca.evaluation.metrics import DEFAULT_METRIC
from loca.local.combiner import FixedShare, combined_scores
from loca.local.judge import Panel
from loca.local.local_models import PreparedBatch, SeparateModels, blend_scores
from loca.models.ease import EASE
from loca.models.popularity import Popularity
from loca.persistence.learned import restored
from loca.persistence.manifest import ModelState
from loca.typing import FloatArray

MODELS = 4


@pytest.fixture(scope="module")
def local(planted_split: Split) -> SeparateModels:
    """Models that differ, so that one asked in place of another would be seen."""
    return SeparateModels.of(
        [EASE(l2=10.0**number).fit(planted_split.train) for number in range(MODELS)]
    )


def panel(questions: HeldOut, weights: csr_array) -> Panel:
    return Panel(questions, DEFAULT_METRIC, Popularity(), weights)


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
        monkeypatch.setattr(judge_file, "ranking_bytes", lambda device: block_bytes)
    questions = planted_split.validation
    assert questions is not None
    weights = answering(questions.n_users)
    scores = panel(questions, weights).mean_value_of_each(local, range(MODELS))
    assert set(scores) == {0, 1, 2}  # nobody judges model 3
    assert len(set(scores.values())) == 3
    for number, score in scores.items():
        assert score == pytest.approx(expected_of(local, questions, weights, number), abs=1e-12)


def test_only_the_communities_asked_for_are_scored(
    local: SeparateModels, planted_split: Split
) -> None:
    questions = planted_split.validation
    assert questions is not None
    members = panel(questions, answering(questions.n_users))
    assert members.mean_value_of_each(local, [1]) == {
        1: members.mean_value_of_each(local, [0, 1, 2])[1]
    }
    assert members.mean_value_of_each(local, [3]) == {}
    assert members.mean_value_of_each(local, []) == {}


def test_a_member_without_a_held_out_item_judges_nobody(
    local: SeparateModels, planted_split: Split
) -> None:
    questions = planted_split.validation
    assert questions is not None
    whose = np.repeat(np.arange(questions.n_users), np.diff(questions.targets.offsets))
    fewer = HeldOut(questions.histories, questions.targets.where(whose >= questions.n_users // 2))
    weights = answering(questions.n_users)
    scores = panel(fewer, weights).mean_value_of_each(local, [0])
    assert scores[0] == pytest.approx(expected_of(local, fewer, weights, 0), abs=1e-12)


class Constant:
    """Scores every item with one number, and counts the users it scored."""

    def __init__(self, number: float) -> None:
        self.number, self.users = number, 0

    def score(self, histories: csr_array) -> FloatArray:
        self.users += histories.shape[0]
        return np.full(histories.shape, self.number, np.float32)


def test_the_global_model_has_its_share_of_covered_users_and_all_of_the_others() -> None:
    models: Any = [Constant(1.0), Constant(2.0)]
    local = SeparateModels.of(models)
    weights = csr_array(np.array([[1.0, 3.0], [0, 2.0], [0, 0]], np.float32))
    histories = csr_array(np.eye(3, dtype=np.float32))
    combiners = [FixedShare(0.5), FixedShare(0.0)]
    global_model: Any = Constant(10.0)
    half, none = combined_scores(
        local,
        global_model,
        PreparedBatch(histories=histories, answer_weights=weights),
        combiners,
    )
    assert half[:, 0].tolist() == pytest.approx([0.5 * 10 + 0.5 * 1.75, 6, 10])
    assert none[:, 0].tolist() == pytest.approx([1.75, 2, 10])


@pytest.mark.parametrize(("share", "n_local", "n_global"), [(0.0, 3, 1), (0.5, 3, 3), (1.0, 0, 3)])
def test_a_model_scores_only_those_in_whose_answers_it_has_a_share(
    share: float, n_local: int, n_global: int
) -> None:
    models: Any = [Constant(1.0), Constant(2.0)]
    global_model: Any = Constant(10.0)
    weights = csr_array(np.array([[1.0, 3.0], [0, 2.0], [0, 0]], np.float32))
    histories = csr_array(np.eye(3, dtype=np.float32))
    combiners = [FixedShare(share)]
    batch = PreparedBatch(histories=histories, answer_weights=weights)
    next(combined_scores(SeparateModels.of(models), global_model, batch, combiners))
    assert sum(model.users for model in models) == n_local
    assert global_model.users == n_global


def test_blending_asks_each_model_only_for_its_members() -> None:
    asked = {}

    def score_with(community: int, histories: csr_array) -> torch.Tensor:
        asked[community] = histories.toarray().tolist()
        return torch.full(histories.shape, community + 1.0)

    histories = csr_array(np.eye(3, dtype=np.float32))
    weights = csr_array(np.array([[1.0, 3.0, 0], [0, 2.0, 0], [0, 0, 0]], np.float32))
    blended = blend_scores(histories, weights, score_with)
    assert asked == {0: [[1, 0, 0]], 1: [[1, 0, 0], [0, 1, 0]]}
    assert blended[:, 0].tolist() == [(1 * 1 + 3 * 2) / 4, 2, 0]


def test_separate_models_that_do_not_fit_together_are_refused() -> None:
    three, four = (Popularity().fit(csr_array(np.eye(size, dtype=np.float32))) for size in (3, 4))
    faults: list[tuple[Any, dict[str, Any], str]] = [
        ([True], {}, "models 0 is missing"),
        ([True], {"models 1": three}, "models 0 is missing"),
        ([True], {"models 0": TruncatedSVD()}, "expected a Recommender, found TruncatedSVD"),
        ([True, True], {"models 0": three, "models 1": four}, "expected 3 items, found 4"),
        ([False, True], {"models 1": four}, "expected all of 2 parts, found 1"),
        ([], {}, "expected at least one part, found none"),
        (-1, {"models 0": three}, "expected a list of true and false, found -1"),
    ]
    for is_there, parts, message in faults:
        state = ModelState(facts={"models": is_there}, parts=parts)
        with pytest.raises(ModelFileError, match=message):
            restored(SeparateModels, {}, state)
