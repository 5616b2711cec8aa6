"""A saved model comes back equal to the last bit, whatever its parameters, arrays, parts and interactions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.errors import ModelFileError, NotFittedError
from loca.persistence import load_model, save_model
from loca.persistence.manifest import ModelState, get_params, is_model, parameter_names
from saved_model_examples import KINDS, Leaf, Share, Tree, example_interactions, example_model, load, same

NUMBER_TYPES = [
    *(np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64),
    *(np.uint8, np.uint16, np.uint32, np.uint64, np.bool_),
]


def through_a_folder(model: Any, folder: Path) -> Any:
    save_model(model, folder)
    return load(folder)


def test_the_comparison_of_models_sees_every_difference() -> None:
    assert same(example_model(1), example_model(1))
    for change in (
        lambda model: model.arrays_["half"].__setitem__((0, 0), 9),
        lambda model: model.parts_["local/0"].parts_["deep"].weights_.__setitem__((0, 0), 9),
        lambda model: model.facts_.update(epochs=2.0),
        lambda model: setattr(model, "options", {"a": (1, None)}),
        lambda model: setattr(model, "train_data_", example_interactions("int")),
    ):
        changed = example_model(1)
        change(changed)
        assert not same(example_model(1), changed)


def test_a_tree_of_models_comes_back_equal_to_the_last_bit(tmp_path: Path) -> None:
    model = example_model()
    back = through_a_folder(model, tmp_path / "movies.loca")
    expected = example_model()
    assert back.parts_["local/0"].parts_["deep"].train_data_ is back.train_data_
    assert same(back, expected)


def test_saving_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    model = example_model()
    save_model(model, tmp_path / "m")
    assert same(model, example_model())


@pytest.mark.parametrize("kind", ["text", "int", "float"])
def test_interactions_come_back_with_ids_labels_times_and_recency(tmp_path: Path, kind: str) -> None:
    known = example_interactions(kind)
    back = through_a_folder(Tree().fit(known), tmp_path / "m").train_data_
    assert same(back, known)
    assert back.users.values.dtype == known.users.values.dtype
    assert back.items.label(1) == "ü, b"


@pytest.mark.parametrize("recency", [None, Recency(4.0), Recency(2.5, "time", "power", 0.05)])
def test_every_recency_comes_back(tmp_path: Path, recency: Recency | None) -> None:
    known = example_interactions("text").with_recency(recency)
    assert through_a_folder(Tree().fit(known), tmp_path / "m").train_data_.recency == recency


def test_interactions_without_times_labels_or_users_come_back(tmp_path: Path) -> None:
    none = np.array([], dtype=object)
    known = Interactions(IdMap(none, "user"), IdMap(none, "item"), np.array([0]), np.array([], np.int32))
    back = through_a_folder(Tree().fit(known), tmp_path / "m").train_data_
    assert same(back, known)


def test_a_label_that_is_not_text_comes_back_as_the_text_it_shows(tmp_path: Path) -> None:
    items = IdMap(np.array([1, 2]), "item", np.array([None, 3.5], dtype=object))
    known = Interactions(IdMap.numbered(0, "user"), items, np.array([0]), np.array([], np.int32))
    back = through_a_folder(Tree().fit(known), tmp_path / "m").train_data_
    assert [back.items.label(row) for row in (0, 1)] == ["None", "3.5"]


def test_a_model_fitted_on_a_bare_matrix_has_no_interactions(tmp_path: Path) -> None:
    back = through_a_folder(Tree().fit(None), tmp_path / "m")
    assert back.train_data_ is None
    assert [one.name for one in (tmp_path / "m").iterdir()] == ["model.json"]


def test_a_part_that_is_no_recommender_keeps_no_interactions(tmp_path: Path) -> None:
    model = Tree().fit(example_interactions())
    model.parts_ = {"embedder": Tree()}
    del model.parts_["embedder"].train_data_
    back = through_a_folder(model, tmp_path / "m")
    assert back.parts_["embedder"].train_data_ is None
    assert same(back.train_data_, model.train_data_)


def test_a_part_fitted_on_other_interactions_comes_back_without_them(tmp_path: Path) -> None:
    model = Tree().fit(example_interactions())
    model.parts_ = {"other": Tree().fit(example_interactions()), "same": Tree().fit(model.train_data_)}
    back = through_a_folder(model, tmp_path / "m")
    assert back.parts_["other"].train_data_ is None
    assert back.parts_["same"].train_data_ is back.train_data_


@pytest.mark.parametrize("dtype", NUMBER_TYPES)
def test_arrays_of_every_number_type_come_back_writable_and_equal(tmp_path: Path, dtype: type) -> None:
    rng = np.random.default_rng(0)
    model = Tree()
    model.arrays_ = {
        "a": (rng.random((3, 4)) * 100).astype(dtype),
        "b": np.array(3, dtype),
        "c": np.ones(0, dtype),
    }
    back = through_a_folder(model, tmp_path / "m").arrays_
    assert same(back, model.arrays_)
    back["a"][0, 0] = 0


def test_strided_transposed_and_big_endian_arrays_are_saved_by_value(tmp_path: Path) -> None:
    model = Tree()
    grid = np.arange(24, dtype=np.float32).reshape(4, 6)
    model.arrays_ = {
        "strided": grid[::2, ::-3],
        "fortran": np.asfortranarray(grid),
        "big": grid.astype(">f4"),
    }
    back = through_a_folder(model, tmp_path / "m").arrays_
    for name, array in model.arrays_.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == np.float32


def test_the_array_files_are_plain_safetensors_that_start_aligned(tmp_path: Path) -> None:
    model = example_model()
    save_model(model, tmp_path / "m")
    manifest = json.loads((tmp_path / "m" / "model.json").read_text())
    path = tmp_path / "m" / manifest["model"]["arrays"]["file"]
    by_library = load_file(path)
    assert all(same(by_library[f"state/{name}"], array) for name, array in model.arrays_.items())
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    for note in json.loads(data[8:start]).values():
        assert (start + note["data_offsets"][0]) % (int(note["dtype"].lstrip("FIUBOL") or 8) // 8) == 0


def test_the_manifest_is_readable_and_names_versions_and_sizes(tmp_path: Path) -> None:
    save_model(example_model(), tmp_path / "m")
    manifest = json.loads((tmp_path / "m" / "model.json").read_text())
    assert (manifest["format"], manifest["version"], manifest["model"]["kind"]) == ("loca-model", 1, "Tree")
    assert manifest["written_by"]["numpy"] == np.__version__
    on_disk = {one.name: one.stat().st_size for one in (tmp_path / "m").iterdir() if one.name != "model.json"}
    assert manifest["files"] == on_disk
    assert len(on_disk) == 6  # three models with arrays, users, items, the rest of the interactions


def test_files_are_made_with_the_permissions_that_the_user_asks_for(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    save_model(example_model(), tmp_path / "m")
    modes = {one.stat().st_mode for one in (tmp_path / "m").iterdir()}
    assert modes == {plain.stat().st_mode}


plain_values = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
number_scalars = st.one_of(
    st.floats(width=32).map(np.float32), st.integers(-128, 127).map(np.int8), st.booleans().map(np.bool_)
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
def test_a_value_that_cannot_be_saved_is_named_and_nothing_is_written(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ModelFileError, match=r"Tree, parameter 'base' 'strength': cannot save a "):
        save_model(Tree(base=Leaf(strength=[value])), tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("a", np.array(["x"])),
        ("a", np.array([None])),
        ("a", np.zeros(2, np.complex64)),
        ("a", [1.0]),
        ("a\n", np.zeros(2)),
        ("a", np.zeros(2, "datetime64[s]")),
    ],
)
def test_an_array_of_anything_but_numbers_is_refused(tmp_path: Path, name: str, array: Any) -> None:
    model = Tree()
    model.arrays_ = {name: array}
    with pytest.raises(ModelFileError, match=r"array 'state/a.*': expected"):
        save_model(model, tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_what_is_not_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="expected a fitted model, found str"):
        save_model("model", tmp_path / "m")
    broken = Tree()
    broken.parts_ = {"local": [Tree()]}
    with pytest.raises(ModelFileError, match="Tree, part 'local': expected a fitted model, found list"):
        save_model(broken, tmp_path / "m")
    with pytest.raises(NotFittedError):
        save_model(Leaf(), tmp_path / "m")
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


def test_a_state_has_names_of_text() -> None:
    with pytest.raises(ModelFileError, match="expected names of text, found 3"):
        ModelState(facts={3: "x"})  # type: ignore[dict-item]


def test_parameters_are_read_by_the_constructor_s_names() -> None:
    assert parameter_names(Leaf) == ("strength", "share")
    assert get_params(Leaf(strength=2)) == {"strength": 2, "share": None}
    assert is_model(Leaf())
    assert not is_model(Leaf)


def test_a_new_parameter_with_a_default_does_not_break_old_files(tmp_path: Path) -> None:
    class Older:
        fit = restore = train_data_ = None

        def __init__(self, *, strength: float = 2.0) -> None:
            self.strength = strength

        def state(self) -> ModelState:
            return ModelState(arrays={"weights": np.ones((2, 2))})

    Older.__name__ = "Leaf"
    save_model(Older(), tmp_path / "m")
    back = load_model(tmp_path / "m", KINDS)
    assert (back.strength, back.share) == (2.0, None)


def test_saving_and_loading_need_no_torch() -> None:
    code = "import sys, loca.persistence; sys.exit('torch' in sys.modules or 'polars' in sys.modules)"
    source = Path(__file__).parents[2] / "src"
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(source)}, check=False)
    assert done.returncode == 0
