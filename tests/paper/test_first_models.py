"""The first models of a fitted model answer as a model that has no more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from loca.communities.anchors import AnchorSelection
from loca.communities.geometry import Quantile
from loca.communities.kernel import Kernels
from loca.data.splits import Split
from loca.errors import ConfigError
from loca.local.combiner import FixedShare
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from loca.paper.first_models import coverage_of_first, first_columns, first_models


def loca_of(n: int, **kernels: Any) -> Loca:
    finder = Kernels(n=n, **({"answer_bandwidth": 0.5} | kernels))
    return Loca(base=EASE(l2=20.0), communities=finder, combiner=FixedShare(0.2))


def network() -> MultVAE:
    return MultVAE(latent=8, epochs=3, batch_size=100)


@pytest.mark.parametrize("selection", ["coverage", "farthest"])
def test_the_first_communities_answer_as_a_loca_with_no_more(
    selection: AnchorSelection, planted_split: Split
) -> None:
    model = loca_of(6, anchors=selection).fit(planted_split.train)
    smaller = loca_of(2, anchors=selection).fit(planted_split.train)
    histories = planted_split.test.history_matrix
    first = first_models(model, 2).score(histories)
    np.testing.assert_allclose(first, smaller.score(histories), atol=1e-5)
    assert np.abs(first - model.score(histories)).max() > 1e-3


def test_the_first_networks_answer_as_a_loca_with_no_more(planted_split: Split) -> None:
    three, one = (
        Loca(
            base=network(),
            communities=Kernels(n=n, answer_bandwidth=0.4),
            combiner=FixedShare(0.0),
        ).fit(planted_split.train)
        for n in (3, 1)
    )
    histories = planted_split.test.history_matrix
    np.testing.assert_allclose(
        first_models(three, 1).score(histories), one.score(histories), atol=1e-4
    )


@pytest.mark.parametrize("base", [EASE(l2=20.0), network()], ids=["EASE", "MultVAE"])
def test_the_first_members_answer_as_a_smaller_ensemble(base: Any, planted_split: Split) -> None:
    four, two = (Ensemble(base=base, models=n).fit(planted_split.train) for n in (4, 2))
    histories = planted_split.test.history_matrix
    first = first_models(four, 2)
    np.testing.assert_allclose(first.score(histories), two.score(histories), atol=1e-4)
    assert (first.count_items(), first.train_data_) == (60, planted_split.train)
    if base.similarity_kind is not None:
        rows = np.array([2, 9])
        np.testing.assert_allclose(first.similarities(rows), two.similarities(rows), atol=1e-5)


def test_all_models_are_the_model_itself(planted_split: Split) -> None:
    for model in (loca_of(3), Ensemble(base=EASE(), models=3)):
        fitted = model.fit(planted_split.train)
        assert first_models(fitted, 3) is fitted


def test_the_fitted_model_stays_as_it_is(planted_split: Split) -> None:
    model = loca_of(3).fit(planted_split.train)
    histories = planted_split.test.history_matrix
    before = model.score(histories)
    first = first_models(model, 1)
    assert isinstance(first, Loca)
    assert first.answer_weights(histories).shape == model.answer_weights(histories).shape
    assert first.global_ is model.global_
    np.testing.assert_array_equal(model.score(histories), before)


def test_who_is_left_without_a_community_gets_the_global_scores(planted_split: Split) -> None:
    model = loca_of(4, train_bandwidth=1.0).fit(planted_split.train)
    histories = planted_split.test.history_matrix
    assert model.global_ is not None
    weights = model.answer_weights(histories).toarray()
    is_left_out = (weights[:, 0] == 0) & weights.any(axis=1)
    assert is_left_out.any()
    rows = csr_array(histories[is_left_out])
    np.testing.assert_allclose(
        first_models(model, 1).score(rows), model.global_.score(rows), rtol=1e-6
    )


def test_coverage_rises_with_every_community_to_that_of_all(planted_split: Split) -> None:
    model = loca_of(4, answer_bandwidth=Quantile(0.05)).fit(planted_split.train)
    coverage = coverage_of_first(model, (1, 2, 4))
    assert 0 < coverage[1] < coverage[2] < coverage[4] == model.facts()["coverage"]
    weights = model.answer_weights(planted_split.train.histories()).toarray()
    assert coverage[2] == weights[:, :2].any(axis=1).mean()
    assert coverage_of_first(Ensemble(base=EASE(), models=2).fit(planted_split.train), (1,)) == {}


def test_only_the_weights_of_the_first_stay_stored() -> None:
    weights = csr_array(np.array([[0.5, 0.0, 2.0], [0.0, 0.0, 1.0]], np.float32))
    first = first_columns(weights, 2)
    assert first.toarray().tolist() == [[0.5, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert (first.nnz, weights.nnz) == (1, 3)


@pytest.mark.parametrize("count", [0, 4])
def test_a_number_of_models_that_is_not_there_is_refused(count: int, planted_split: Split) -> None:
    for model in (loca_of(3), Ensemble(base=EASE(), models=3)):
        with pytest.raises(ConfigError, match=f"from 1 to 3 of the models, found {count}"):
            first_models(model.fit(planted_split.train), count)


def test_a_single_model_has_no_first_ones(planted_split: Split) -> None:
    with pytest.raises(ConfigError, match="expected a Loca or an Ensemble, found EASE"):
        first_models(EASE().fit(planted_split.train), 1)
