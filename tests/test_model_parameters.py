"""The parameters of every model: shown, read, changed, copied as scikit-learn does it, and refused in one line."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest
import sklearn.base
from sklearn.model_selection import ParameterGrid

import loca
from loca.data.splits import Split
from loca.errors import ConfigError, DataError, LocaError
from loca.models.params import Strategy
from loca.models.recommender import BaseEstimator, Recommender, get_params
from loca.registry import KINDS, MODELS

NEEDED: dict[str, dict[str, Any]] = {
    "Loca": {"base": loca.EASE()},
    "Ensemble": {"base": loca.EASE()},
    "Blend": {"parts": (loca.EASE(), loca.Popularity())},
    "GivenEmbeddings": {"embeddings": np.eye(3)},
}
DECLARED = {
    name: kind for name, kind in KINDS.items() if issubclass(kind, BaseEstimator | Strategy)
}
# Of no kind that any parameter takes.
WRONG = [..., math.nan, loca.EASE, [None], {"a": 1}, True, "a", -math.inf, 1j]


def without_doubles(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters that can be compared: models as text, arrays as lists."""
    return {
        name: one.tolist()
        if isinstance(one, np.ndarray)
        else repr(one)
        if "(" in repr(one)
        else one
        for name, one in params.items()
    }


@pytest.mark.parametrize("name", DECLARED)
def test_values_of_a_wrong_kind_are_refused_in_one_line_that_names_the_parameter(
    name: str,
) -> None:
    for parameter in inspect.signature(DECLARED[name]).parameters:
        for wrong in WRONG:
            with pytest.raises(ConfigError) as refused:
                DECLARED[name](**{**NEEDED.get(name, {}), parameter: wrong})
            line = str(refused.value)
            assert "\n" not in line
            assert parameter.split("_")[-1] in line


@pytest.mark.parametrize("name", DECLARED)
def test_none_is_refused_where_it_is_not_a_value(name: str) -> None:
    kind = DECLARED[name]
    for parameter, declaration in inspect.signature(kind).parameters.items():
        params = {**NEEDED.get(name, {}), parameter: None}
        if "None" in str(declaration.annotation):
            assert get_params(kind(**params))[parameter] is None
        else:
            with pytest.raises(ConfigError, match=parameter.split("_")[-1]):
                kind(**params)


def test_a_class_in_place_of_a_model_is_refused_with_what_to_write() -> None:
    with pytest.raises(
        ConfigError, match=r"^base: expected a model such as EASE\(\), found the class EASE; write"
    ):
        loca.Loca(base=loca.EASE)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^l2: expected a number above 0, found 'a'$"):
        loca.EASE(l2="a")  # type: ignore[arg-type]


def test_numbers_of_numpy_are_taken_as_plain_ones() -> None:
    model = loca.MultVAE(latent=np.int64(16), dropout=np.float32(0.5))  # type: ignore[arg-type]
    assert (type(model.latent), type(model.dropout), model.latent, model.dropout) == (
        int,
        float,
        16,
        0.5,
    )


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_copied_by_scikit_learn_with_equal_parameters_and_unfitted(
    name: str,
) -> None:
    model = MODELS[name]()
    copy = sklearn.base.clone(model)
    assert type(copy) is type(model)
    assert copy is not model
    assert without_doubles(copy.get_params()) == without_doubles(model.get_params())
    assert not copy.is_fitted


@pytest.mark.parametrize("name", MODELS)
def test_every_model_takes_its_own_parameters_again(name: str) -> None:
    model = MODELS[name]()
    before = repr(model)
    assert model.set_params(**model.get_params(deep=False)) is model
    assert repr(model) == before


def local_ease() -> loca.Loca:
    return loca.Loca(
        base=loca.EASE(l2=20.0), communities=loca.Kernels(n=3), combiner=loca.FixedShare(0.5)
    )


LOCAL_EASE = "Loca(base=EASE(l2=20.0), communities=Kernels(n=3), combiner=FixedShare(share=0.5))"


def test_a_copy_of_a_fitted_model_is_unfitted(planted_split: Split) -> None:
    model = local_ease().fit(planted_split.train)
    copy = sklearn.base.clone(model)
    assert model.is_fitted
    assert not copy.is_fitted
    assert repr(copy) == repr(model) == LOCAL_EASE


@pytest.mark.parametrize(
    "model", [loca.EASE(), loca.MultVAE(latent=8, epochs=1), loca.Blend(parts=[loca.EASE()])]
)
def test_a_model_says_what_it_was_fitted_on(model: Recommender, planted_split: Split) -> None:
    assert str(model) == repr(model)
    assert not model.is_fitted
    model.fit(planted_split.train)
    assert model.is_fitted
    about = f"fitted on 400 users, 60 items, {len(planted_split.train):,} interactions"
    assert str(model).splitlines() == [*repr(model).splitlines(), about]
    assert about in model._repr_html_()
    model.fit(planted_split.train.matrix())
    assert str(model).endswith("\nfitted")


def test_a_notebook_shows_every_parameter() -> None:
    html = loca.Loca(base=loca.EASE(l2=20.0))._repr_html_()
    assert "EASE(l2=20.0)" in html
    assert all(f">{name}<" in html for name in loca.get_params(loca.Loca(base=loca.EASE())))


def test_a_model_of_many_parts_prints_a_line_for_each() -> None:
    blend = loca.Blend(
        parts=[
            loca.EASE(l2=20.0, denoising=0.25),
            loca.Loca(base=loca.EASE(l2=1.5), communities=loca.Kernels(n=70)),
            loca.MultVAE(latent=90),
        ]
    )
    assert repr(blend).splitlines() == [
        "Blend(",
        "    parts=(",
        "        EASE(l2=20.0, denoising=0.25),",
        "        Loca(base=EASE(l2=1.5), communities=Kernels(n=70)),",
        "        MultVAE(latent=90),",
        "    ),",
        ")",
    ]
    many = loca.Blend(parts=[blend, *blend.parts, loca.MultVAE(latent=90)])
    assert max(map(len, repr(many).splitlines())) <= 120
    assert (
        repr(loca.GivenEmbeddings(embeddings=np.eye(300)))
        == "GivenEmbeddings(embeddings=array of shape (300, 300))"
    )


def test_what_is_long_and_deep_inside_of_a_model_is_not_written_out() -> None:
    network = loca.MultVAE(
        latent=30, dropout=0.25, noise=0.5, kl_weight=0.1, learning_rate=0.01, epochs=30
    )
    blend = loca.Blend(
        parts=[loca.EASE(), loca.Ensemble(base=network)], columns=[(0, 1 / 3, 1 / 7)] * 9
    )
    assert (
        repr(loca.Auto(chosen=blend))
        == "Auto(chosen=Blend(parts=(EASE(), Ensemble(base=MultVAE(…))), columns=(…)))"
    )
    assert "latent=30" in repr(loca.Loca(base=network))


def test_parameters_of_inner_models_are_read_and_changed_by_two_underscores(
    planted_split: Split,
) -> None:
    kernels = loca.Kernels(n=3, embedding=loca.TruncatedSVD(dimensions=4))
    model = loca.Loca(base=loca.EASE(l2=20.0), communities=kernels)
    params = model.get_params()
    assert (params["base__l2"], params["communities__n"]) == (20.0, 3)
    assert params["communities__embedding"].get_params() == {"dimensions": 4, "seed": 0}
    assert "base__l2" not in model.get_params(deep=False)
    model.fit(planted_split.train)
    assert model.set_params(base__l2=5.0, communities__n=2) is model
    assert (model.base.get_params()["l2"], model.communities.n) == (5.0, 2)
    model.set_params(communities__embedding__dimensions=6)
    assert "communities=Kernels(n=2, embedding=TruncatedSVD(dimensions=6))" in repr(model)
    assert kernels.n == 3
    assert not model.is_fitted
    whole = loca.clone(loca.Auto(chosen=model), chosen__base__denoising=0.5)
    assert whole.get_params()["chosen__base__denoising"] == 0.5


def test_a_changed_model_fits_as_one_made_so(planted_split: Split) -> None:
    rows = planted_split.test.history_matrix[:5]
    for model, changed in (
        (loca.EASE(l2=20.0), {"l2": 3.0}),
        (loca.MultVAE(latent=4, epochs=2), {"latent": 6}),
    ):
        expected = loca.clone(model, **changed).fit(planted_split.train).score(rows)
        found = (
            model.fit(planted_split.train)
            .set_params(**changed)
            .fit(planted_split.train)
            .score(rows)
        )
        assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"community": 3}, r"unknown parameter 'community' for Loca; did you mean 'communities'"),
        ({"base__l3": 3.0}, r"unknown parameter 'l3' for EASE; it has l2, denoising, "),
        ({"seed__l2": 3.0}, r"unknown parameter 'seed__l2' for Loca"),
        ({"communities__m": 3}, r"unknown parameter 'm' for Kernels"),
        ({"base__l2": "a"}, r"l2: expected a number above 0, found 'a'"),
        ({"communities__n": 0}, r"n: expected a whole number ≥ 1, found 0"),
        ({"communities__n": 5, "base__l2": -1.0}, r"l2: expected a number above 0, found -1.0"),
    ],
)
def test_a_refused_change_leaves_the_model_as_it_was(
    changed: dict[str, Any], line: str, planted_split: Split
) -> None:
    model = local_ease().fit(planted_split.train)
    with pytest.raises(ConfigError, match=line):
        model.set_params(**changed)
    assert repr(model) == LOCAL_EASE
    assert model.is_fitted


def test_a_grid_of_scikit_learn_gives_candidates(planted_split: Split) -> None:
    grid = ParameterGrid({"l2": np.array([1.0, 100.0]), "denoising": [0.0, 0.5]})
    candidates = [sklearn.base.clone(loca.EASE()).set_params(**one) for one in grid]
    model, tried = loca.choose_on_validation(candidates, planted_split)
    assert [one.settings for one in tried] == [
        dict(sorted(one.items(), reverse=True)) for one in grid
    ]
    assert model.is_fitted


@pytest.mark.parametrize("base", [loca.MultVAE, loca.MultDAE, loca.CDAE, loca.RecVAE])
@pytest.mark.parametrize(
    "whole", [lambda base: base, lambda base: loca.Ensemble(base=base, models=2)]
)
def test_a_network_larger_than_the_memory_is_refused_before_it_is_made(
    base: Any, whole: Any, planted_split: Split
) -> None:
    for size in (10**9, 10**18):
        with pytest.raises(DataError, match=r"for 60 items: .* memory.*; take smaller"):
            whole(base(latent=size)).fit(planted_split.train)
    with pytest.raises(DataError, match=r"1,000,000,000,000 models: .* of memory needed"):
        loca.Ensemble(base=base(), models=10**12).fit(planted_split.train)


def test_data_of_another_kind_and_classes_in_place_of_models_are_refused(
    planted_split: Split,
) -> None:
    data, model = planted_split.train, loca.EASE().fit(planted_split.train)
    wrong: list[tuple[Any, str]] = [
        (
            lambda: loca.evaluate(model, planted_split),
            "held_out: expected a part of a split, such as split.test, found a Split",
        ),  # type: ignore[arg-type]
        (
            lambda: loca.evaluate(loca.EASE, planted_split.test),
            "model: expected a fitted model, found the class EASE",
        ),
        (
            lambda: loca.recommend(loca.EASE, ["u001"]),
            "model: expected a fitted model, found the class EASE",
        ),
        (lambda: loca.recommend(3, ["u001"]), "model: expected a fitted model, found int"),  # type: ignore[arg-type]
        (
            lambda: model.fit(data, validation=planted_split),
            "validation: expected HeldOut, found Split",
        ),  # type: ignore[arg-type]
        (
            lambda: loca.fit(planted_split, loca.EASE()),
            "data: expected Interactions, a path, .* found Split",
        ),  # type: ignore[arg-type]
        (
            lambda: loca.fit(data, loca.EASE),
            "model: expected models such as EASE.*, found the class EASE; write",
        ),  # type: ignore[arg-type]
        (lambda: loca.fit(data, 3), "model: expected models such as EASE.*, found 3"),  # type: ignore[arg-type]
        (
            lambda: loca.compare([loca.EASE], planted_split),
            "models: expected models .*, found the class EASE",
        ),  # type: ignore[list-item]
        (lambda: loca.compare([loca.EASE()], 3), "split: expected a Split, .* found int"),
        (lambda: loca.choose_on_validation([loca.EASE()], data), "split: expected Split, found"),  # type: ignore[arg-type]
        (
            lambda: loca.leave_last_out(planted_split),
            "interactions: expected Interactions, a path, .* found Split",
        ),  # type: ignore[arg-type]
        (lambda: loca.clone(loca.EASE), "expected a model, found <class"),
        (lambda: loca.get_params(3), "expected a model, found 3"),
        (lambda: loca.Quantile("a"), "quantile level: expected a number, found 'a'"),  # type: ignore[arg-type]
    ]
    for call, line in wrong:
        with pytest.raises(LocaError, match=line):
            call()
