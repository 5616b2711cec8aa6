"""Parts that a user wrote work like ours, without a change in the package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars
import pytest

import loca
from loca.cli.main import main
from loca.registry import MODELS, RECORDS, ModelRecord, register
from own_parts import (
    CLASSES,
    FIRST_PLACE,
    Backwards,
    KMeansGroups,
    LocalWhereNear,
    Together,
    own_model,
)


@pytest.fixture(scope="module")
def split() -> loca.Split:
    data = loca.planted_communities(
        users=120, items=30, communities=2, groups=5, history=12, shortest_history=10
    ).interactions
    return loca.leave_last_out(data, test=2, validation=2)


@pytest.fixture(scope="module")
def model(split: loca.Split) -> loca.Loca:
    return own_model().fit(split.train, validation=split.validation, metric=FIRST_PLACE)


def test_answers_are_what_the_parts_say(model: loca.Loca, split: loca.Split) -> None:
    """Worked out by hand from the fitted parts."""
    histories = split.test.history_matrix
    local = model.local_
    assert local is not None
    nearest = local.communities.locate(histories).argmin(axis=1)
    by_model = [local.models.score_with(number, histories) for number in range(4)]
    of_group = np.array([by_model[group][user] for user, group in enumerate(nearest)])
    share = 0.1 + 0.9 / 2  # one community answers everybody
    expected = share * model.global_.score(histories) + (1 - share) * of_group
    np.testing.assert_allclose(model.score(histories), expected, rtol=1e-5, atol=1e-6)


def test_the_engine_gives_the_scores_of_the_loop(model: loca.Loca, split: loca.Split) -> None:
    loop = loca.clone(model, engine=loca.Loop())
    loop.fit(split.train, validation=split.validation, metric=FIRST_PLACE)
    histories = split.test.history_matrix
    np.testing.assert_array_equal(model.score(histories), loop.score(histories))


def test_a_refit_has_the_same_parts(model: loca.Loca, split: loca.Split) -> None:
    selected = model.selected()
    assert selected.communities == KMeansGroups(n=4)
    assert selected.combiner == LocalWhereNear(least=0.1)
    refitted = selected.fit(split.train_and_validation)
    assert refitted.train_data_ is not None
    assert len(refitted.train_data_) > len(split.train)


def test_networks_train_with_own_parts(split: loca.Split) -> None:
    networks = loca.Loca(
        base=loca.MultVAE(latent=4, epochs=3),
        communities=KMeansGroups(n=3),
        combiner=LocalWhereNear(),
    ).fit(split.train, validation=split.validation, metric=FIRST_PLACE)
    assert networks.selected().base.get_params()["epochs"] <= 3
    assert np.isfinite(networks.score(split.test.history_matrix)).all()


def test_an_update_takes_in_new_users_and_items(split: loca.Split) -> None:
    model = own_model().fit(split.train, validation=split.validation)
    model.update(polars.DataFrame({"user": ["new"] * 2, "item": ["i01", "unheard of"]}))
    assert model.train_data_ is not None
    assert model.train_data_.n_items == split.train.n_items + 1
    assert len(model.recommend(["new"], n=3).items) == 1


def test_a_folder_needs_the_classes(model: loca.Loca, split: loca.Split, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    with pytest.raises(loca.ModelFileError, match=r"Together|KMeansGroups|LocalWhereNear"):
        loca.load(tmp_path / "model")
    loaded = loca.load(tmp_path / "model", classes=CLASSES, verify=True)
    histories = split.test.history_matrix
    np.testing.assert_array_equal(loaded.score(histories), model.score(histories))
    assert str(loaded.selected()) == str(model.selected())


def test_a_class_with_a_name_of_ours_is_refused(model: loca.Loca, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    impostor = type("EASE", (Together,), {})
    with pytest.raises(loca.ConfigError, match="EASE is the name of a class of loca's"):
        loca.load(tmp_path / "model", classes=[*CLASSES, impostor])


def test_a_list_is_explained(model: loca.Loca) -> None:
    explanation = model.explain([["i03", "i07"]], n=3)
    text = str(explanation)
    assert "community" in text
    assert "the global model" in text


def test_memory_is_planned(split: loca.Split) -> None:
    from loca.experiments.memory_estimate import plan_fit

    plan = plan_fit([own_model()], split.train, name="own parts")
    assert {"global model", "local models"} <= set(plan.fits)
    assert plan.peak("main")[0] > 4 * 4 * split.train.n_items**2  # four local models at least


def test_models_are_compared(split: loca.Split) -> None:
    models = {"own parts": own_model(), "alone": Together()}
    comparison = loca.compare(models, split, metric=FIRST_PLACE, at=[10])
    assert {"own parts", "alone"} <= set(comparison.to_polars()["model"])


@pytest.fixture
def registered() -> str:
    register(ModelRecord("own-parts", own_model, label="Own"))
    yield "own-parts"
    del MODELS["own-parts"], RECORDS["own-parts"]


def test_parameters_are_set_by_name(registered: str) -> None:
    table = {
        "base": {"shrinkage": 7},
        "communities": {"n": 6, "rounds": 2},
        "combiner": {"least": 0.4},
    }
    from loca.config.model_factory import build_models

    (built,) = build_models([registered], {registered: table}, seed=5)[registered]
    assert built.get_params()["base__shrinkage"] == 7
    assert built.communities == KMeansGroups(n=6, rounds=2)
    assert built.combiner == LocalWhereNear(least=0.4)
    assert built.engine == Backwards()


def test_a_command_sets_own_parts(registered: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    small = ("users=120", "items=30", "groups=5", "communities=2", "history=12")
    words = [word for value in small for word in ("--set", f"planted.{value}")]
    words += ["--set", f"{registered}.communities.n=3", "--set", f"{registered}.combiner.least=0.5"]
    main(["fit", "planted", "--model", registered, *words, "--out", str(folder), "--quiet"])
    loaded = loca.load(folder, classes=CLASSES)
    assert loaded.communities == KMeansGroups(n=3)
    assert loaded.combiner == LocalWhereNear(least=0.5)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (lambda: KMeansGroups(rounds=0), "rounds: expected a whole number ≥ 1, found 0"),
        (lambda: LocalWhereNear(least=2), "least: expected a number from 0 to 1, found 2"),
    ],
)
def test_wrong_parameters_are_refused(part: object, message: str) -> None:
    with pytest.raises(loca.ConfigError, match=message):
        part()  # type: ignore[operator]
