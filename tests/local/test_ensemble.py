"""Ensemble: the mean of its models, its bootstrap samples, and its one number of epochs."""

from __future__ import annotations

import numpy as np
import pytest
from small_models import RIGHT, WRONG, small_vae

from loca.data.splits import Split
from loca.errors import ConfigError, ModelFileError
from loca.local.engines.differences.engine import Differences
from loca.local.engines.engine import Engine
from loca.local.engines.loop import Loop
from loca.local.engines.stacked.engine import Stacked
from loca.local.ensemble import Ensemble
from loca.models.ease import EASE
from loca.models.popularity import Popularity
from loca.persistence.learned import restored, state_of
from loca.persistence.manifest import ModelState
from scripted_models import Scripted, scripted_split


def test_an_ensemble_answers_with_the_mean(planted_split: Split) -> None:
    histories = planted_split.test.history_matrix[:10]
    model = Ensemble(base=small_vae(epochs=2), models=3).fit(planted_split.train)
    each = [model.models_.score_with(number, histories) for number in range(3)]
    np.testing.assert_allclose(model.score(histories), np.mean(each, axis=0), atol=1e-5)
    assert np.abs(each[0] - each[1]).max() > 1e-3


@pytest.mark.parametrize("engine", [Loop(), Differences()], ids=str)
def test_an_ensemble_of_a_base_without_randomness_learns_from_bootstrap_samples(
    planted_split: Split, engine: Engine
) -> None:
    matrix = planted_split.train.matrix()
    model = Ensemble(base=EASE(l2=20.0), models=3, seed=4, engine=engine).fit(planted_split.train)
    each = [model.models_.score_with(number, matrix) for number in range(3)]
    assert np.abs(each[0] - each[1]).max() > 1e-3
    of_all = EASE(l2=20.0).fit(planted_split.train).score(matrix)
    assert np.abs(np.mean(each, axis=0) - of_all).mean() < np.abs(each[0] - of_all).mean()


def test_an_ensemble_stops_where_its_mean_is_best(planted_split: Split) -> None:
    model = Ensemble(base=small_vae(), models=2)
    model.fit(planted_split.train, validation=planted_split.validation)
    assert model.selected().base.epochs == model.epochs_
    histories = planted_split.test.history_matrix[:10]
    again = model.selected().fit(planted_split.train)
    np.testing.assert_allclose(again.score(histories), model.score(histories), atol=1e-5)


def test_the_selected_ensemble_has_the_epochs_of_validation_and_not_those_it_was_given() -> None:
    split = scripted_split()
    model = Ensemble(base=Scripted(script=(WRONG, RIGHT, WRONG, WRONG)), models=2)
    model.fit(split.train, validation=split.validation)
    assert (model.base.epochs, model.epochs_, model.selected().base.epochs) == (4, 2, 2)


def test_a_wrong_ensemble_is_refused(planted_split: Split) -> None:
    with pytest.raises(ConfigError, match="models: expected a whole number ≥ 1"):
        Ensemble(base=EASE(), models=0)
    with pytest.raises(ConfigError, match="engine: expected an engine such as Loop"):
        Ensemble(base=EASE(), engine="loop")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"Stacked trains networks such as .*, found EASE"):
        Ensemble(base=EASE(), engine=Stacked())
    model = Ensemble(base=EASE(), models=2, engine=Loop()).fit(planted_split.train)
    state = state_of(model)
    with pytest.raises(ModelFileError, match="Ensemble: models is missing"):
        restored(Ensemble, {"base": EASE()}, ModelState(facts=state.facts))
    with pytest.raises(ModelFileError, match="models: expected a LocalModels, found Popularity"):
        restored(Ensemble, {"base": EASE()}, ModelState(parts={"models": Popularity()}))
