"""Parameters and facts of any kind come back with value and type; what cannot be written is named."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.errors import ModelFileError
from loca.persistence import load_model, save_model
from loca.persistence.learned import Learner, learned
from loca.persistence.manifest import fingerprint, get_params, is_model, parameter_names
from saved_model_examples import (
    KINDS,
    Leaf,
    Share,
    Tree,
    example_interactions,
    same,
    through_a_folder,
)

plain_values = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
number_scalars = st.one_of(
    st.floats(width=32).map(np.float32),
    st.integers(-128, 127).map(np.int8),
    st.booleans().map(np.bool_),
)
shares = st.builds(Share, st.floats(0, 1), st.text())
arrays = st.lists(st.floats()).map(np.array)
values = st.recursive(
    plain_values | number_scalars | shares | arrays,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3) | st.integers() | st.just("$map"), inner, max_size=3),
        st.builds(lambda strength, share: Leaf(strength=strength, share=share), inner, inner),
    ),
    max_leaves=8,
)


@given(values, values)
@settings(max_examples=50, deadline=None)
def test_any_parameter_and_any_fact_come_back_with_value_and_type(
    tmp_path_factory: pytest.TempPathFactory, option: Any, fact: Any
) -> None:
    model = Tree(options=option)
    model.facts_ = {"fact": fact, "$odd": fact}
    back = through_a_folder(model, tmp_path_factory.getbasetemp() / "any-value")
    assert same(back.options, option)
    assert same(back.facts_, {"fact": fact, "$odd": fact})


def test_a_fitted_model_among_the_parameters_comes_back_unfitted(tmp_path: Path) -> None:
    fitted = Leaf(strength=3).fit(example_interactions(), np.random.default_rng(0))
    back = through_a_folder(Tree(base=fitted), tmp_path / "m")
    assert (back.base.strength, back.base.weights_, back.base.train_data_) == (3, None, None)


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        len,
        object(),
        Path("x"),
        1j,
        b"x",
        np.float64,
        Point(1, 2),
        np.str_("x"),
        np.datetime64(0, "s"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_cannot_be_saved_is_named_and_nothing_is_written(
    tmp_path: Path, value: Any
) -> None:
    with pytest.raises(ModelFileError, match=r"Tree, parameter 'base' 'strength': cannot save a "):
        save_model(Tree(base=Leaf(strength=[value])), tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_facts_too_large_for_the_manifest_are_refused_when_saving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loca.persistence.model_io.MAX_JSON", 1000)
    model = Tree()
    model.facts_ = {"long": list(range(1000))}
    with pytest.raises(ModelFileError, match="hold the large ones as numpy arrays"):
        save_model(model, tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_a_state_has_names_of_text(tmp_path: Path) -> None:
    model = Tree()
    model.facts_ = {3: "x"}  # type: ignore[dict-item]
    with pytest.raises(ModelFileError, match="Tree: expected names of text, found 3"):
        save_model(model, tmp_path / "m")


def test_parameters_are_read_by_the_constructor_s_names() -> None:
    assert parameter_names(Leaf) == ("strength", "share")
    assert get_params(Leaf(strength=2)) == {"strength": 2, "share": None}
    assert is_model(Leaf())
    assert not is_model(Leaf)


def test_a_new_parameter_with_a_default_does_not_break_old_files(tmp_path: Path) -> None:
    @dataclass(kw_only=True)
    class Older(Learner):
        strength: float = 2.0
        weights_: Any = learned("rows", "columns")

    Older.__name__ = "Leaf"
    older = Older()
    older.weights_ = np.ones((2, 2), np.float32)
    save_model(older, tmp_path / "m")
    back = load_model(tmp_path / "m", KINDS)
    assert (back.strength, back.share) == (2.0, None)


def test_a_digest_changes_with_everything_that_a_model_learns_from() -> None:
    known = example_interactions()
    base = fingerprint(known)
    assert base == fingerprint(example_interactions())
    assert known.times is not None
    changed = [
        replace(known, users=IdMap(np.array(["ann", "bob", "\ud800x"], dtype=object), "user")),
        replace(known, items=IdMap(np.array([30, 10, 20, 41], dtype=np.int32), "item")),
        replace(known, items=IdMap(np.array([30, 10, 20, 40], dtype=np.int64), "item")),
        replace(known, offsets=np.array([0, 3, 4, 5])),
        replace(known, item_rows=np.array([2, 0, 1, 0, 3], np.int32)),
        replace(known, times=known.times + np.array([0, 0, 0, 0, 1])),
        replace(known, times=None),
        replace(known, recency=Recency(2.5, "positions")),
        replace(known, recency=None),
    ]
    assert len({base, *(fingerprint(one) for one in changed)}) == len(changed) + 1
    assert fingerprint(known.with_titles({30: "another title"})) == base
    none = Interactions(
        IdMap.numbered(0, "user"), IdMap.numbered(0, "item"), np.array([0]), np.array([], np.int32)
    )
    assert len(fingerprint(none)) == 32
