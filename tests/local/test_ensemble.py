"""The first models of a whole answer as a whole that has no more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from loca.data.splits import Split
from loca.errors import ConfigError
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.local.local_models import first_models
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE


def loca_of(anchors: int, **more: Any) -> Loca:
    return Loca(base=EASE(l2=20.0), anchors=anchors, answer_bandwidth=0.5, alpha=0.2, **more)


@pytest.mark.parametrize("selection", ["coverage", "farthest"])
def test_the_first_communities_answer_as_a_loca_with_no_more(
    selection: str, planted_split: Split
) -> None:
    whole = loca_of(6, anchor_selection=selection).fit(planted_split.train)
    smaller = loca_of(2, anchor_selection=selection).fit(planted_split.train)
    histories = planted_split.test.history_matrix
    np.testing.assert_allclose(
        whole.truncate(2).score(histories), smaller.score(histories), atol=1e-5
    )
    assert np.abs(whole.truncate(2).score(histories) - whole.score(histories)).max() > 1e-3


def test_the_first_networks_answer_as_a_loca_with_no_more(planted_split: Split) -> None:
    base = MultVAE(latent=8, epochs=3, batch_size=100)
    histories = planted_split.test.history_matrix
    scores = [
        Loca(base=base, anchors=n, alpha=0.0, answer_bandwidth=0.4).fit(planted_split.train)
        for n in (3, 1)
    ]
    np.testing.assert_allclose(
        scores[0].truncate(1).score(histories), scores[1].score(histories), atol=1e-4
    )


@pytest.mark.parametrize("base", [EASE(l2=20.0), MultVAE(latent=8, epochs=3, batch_size=100)])
def test_the_first_members_answer_as_a_smaller_ensemble(base: Any, planted_split: Split) -> None:
    whole, smaller = (Ensemble(base=base, models=n).fit(planted_split.train) for n in (4, 2))
    histories = planted_split.test.history_matrix
    first = whole.truncate(2)
    np.testing.assert_allclose(first.score(histories), smaller.score(histories), atol=1e-4)
    assert (first.count_items(), first.train_data_) == (60, planted_split.train)


def test_all_models_are_the_whole(planted_split: Split) -> None:
    whole = loca_of(3).fit(planted_split.train)
    histories = planted_split.test.history_matrix
    np.testing.assert_array_equal(whole.truncate(3).score(histories), whole.score(histories))


def test_who_is_left_without_a_community_gets_the_global_scores(planted_split: Split) -> None:
    whole = loca_of(4, train_bandwidth=1.0).fit(planted_split.train)
    histories = planted_split.test.history_matrix
    assert whole.communities_ is not None
    assert whole.global_ is not None
    weights = whole.communities_.answer_weights(whole.embed(histories)).toarray()
    alone = (weights[:, 0] == 0) & weights.any(axis=1)
    assert alone.any()
    rows = csr_array(histories[alone])
    np.testing.assert_allclose(whole.truncate(1).score(rows), whole.global_.score(rows), rtol=1e-6)


def test_only_the_weights_of_the_first_stay_stored() -> None:
    weights = csr_array(np.array([[0.5, 0.0, 2.0], [0.0, 0.0, 1.0]], np.float32))
    first = first_models(weights, 2)
    assert first.toarray().tolist() == [[0.5, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert (first.nnz, weights.nnz) == (1, 3)


@pytest.mark.parametrize("count", [0, 4])
def test_a_number_of_models_that_is_not_there_is_refused(count: int, planted_split: Split) -> None:
    with pytest.raises(ConfigError, match=f"from 1 to 3 of the models, found {count}"):
        loca_of(3).fit(planted_split.train).truncate(count)
