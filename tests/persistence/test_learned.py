"""What a class declares is all that a folder may say of it, and everything else follows from it."""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import loca
from loca.errors import ConfigError, LocaError, ModelFileError, NotFittedError
from loca.local.community_models import CommunityModels
from loca.local.local_models import SeparateModels
from loca.models.params import Strategy, positive, share, whole
from loca.models.recommender import clone, fitted
from loca.persistence import load_model, save_model
from loca.persistence.learned import (
    Learner,
    declare,
    learned,
    learned_bytes,
    learned_fact,
    learned_part,
    learned_parts,
    learned_sparse,
    learned_value,
    move_parts,
    restored,
    selections,
    size_of,
    sizes_of,
    state_of,
    supports_new_items,
    with_items,
)
from loca.persistence.learned_fields import LearnedField, Sizes
from loca.persistence.manifest import ModelState, Persistent, SavedAt
from loca.persistence.sealed_json import seal
from loca.typing import FloatArray, IntArray
from own_parts import CLASSES, Together, own_model
from saved_model_examples import Tree


def is_fraction(value: Any) -> bool:
    return bool(0 <= value <= 1)


# -- A class with a field of every kind -----------------------------------------------------------


@dataclass(frozen=True)
class Note:
    """A value object."""

    text: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows(Persistent):
    """A part that is made of what it learned."""

    starts: IntArray = learned("items + 1", dtype=np.int64)
    values: FloatArray = learned("entries")
    _sums: list[float] = field(default_factory=list, init=False)

    def check(self) -> None:
        """Refuse starts that do not end with the values."""
        if self.starts[-1] != len(self.values):
            raise ConfigError(f"expected {self.starts[-1]} values, found {len(self.values)}")


@dataclass(kw_only=True, eq=False)
class Inner(Learner):
    """A part that learns, moves, and hands on a choice."""

    vectors_: FloatArray = learned("items", 2)
    rounds_: int | None = learned_fact("a whole number", int.__instancecheck__, optional=True)
    device_: str = field(default="cpu", init=False)

    def to(self, device: str) -> None:
        self.device_ = device


def is_round(value: object) -> bool:
    return type(value) is int and value >= 1


@dataclass(kw_only=True, eq=False)
class Hands(Learner):
    """A part that is no model by itself, and hands on what it selected."""

    rounds_: int | None = learned_fact("a whole number ≥ 1", is_round, selects="rounds")
    inner_: Inner = learned_part(Inner, "items")


@dataclass(kw_only=True, eq=False)
class Everything(Learner):
    """A field of every kind."""

    factors: int = 3
    penalty: float = 1.0
    rounds: int = 1
    finder: Note = Note("before")

    weights_: FloatArray = learned("items", "factors", selects=None)
    square_: Any = learned("items", "items", dtype=(np.float16, np.float32), optional=True)
    neighbours_: csr_array = learned_sparse(optional=True)
    share_: float = learned_fact("a number from 0 to 1", is_fraction, selects="penalty")
    note_: Note = learned_value(Note, selects="finder")
    rows_: Rows = learned_part(Rows, "items")
    hands_: Hands = learned_part(Hands, "items", optional=True)
    others_: tuple[Inner | None, ...] = learned_parts(Inner, "items", gaps=True)
    all_: tuple[Inner, ...] = learned_parts(Inner, "items")


KINDS: dict[str, type] = {
    kind.__name__: kind for kind in (Everything, Rows, Inner, Hands, Note, SeparateModels)
}


def inner(n_items: int = 4, seed: int = 0) -> Inner:
    part = Inner()
    part.vectors_ = np.random.default_rng(seed).random((n_items, 2), np.float32)
    return part


def everything(n_items: int = 4) -> Everything:
    model = Everything(factors=2)
    rng = np.random.default_rng(7)
    model.weights_ = rng.random((n_items, 2), np.float32)
    model.square_ = rng.random((n_items, n_items)).astype(np.float16)
    model.neighbours_ = csr_array(np.eye(n_items, dtype=np.float32))
    model.share_ = 0.25
    model.note_ = Note("after")
    model.rows_ = Rows(starts=np.arange(n_items + 1), values=np.ones(n_items, np.float32))
    model.hands_ = Hands()
    model.hands_.rounds_ = 3
    model.hands_.inner_ = inner(n_items)
    model.others_ = (None, inner(n_items, 1), None)
    model.all_ = (inner(n_items, 2), model.hands_.inner_)
    return model


def manifest_of(folder: Path) -> dict[str, Any]:
    written: dict[str, Any] = json.loads((folder / "model.json").read_text())
    return written


def write_sealed(folder: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest as somebody would who wants it to be believed: with a right checksum."""
    outside = ("format", "version", "checksum")
    body = {name: value for name, value in manifest.items() if name not in outside}
    manifest["checksum"] = seal(body)
    (folder / "model.json").write_text(json.dumps(manifest))


def refusal(folder: Path, kinds: Any = KINDS) -> str:
    with pytest.raises(ModelFileError) as caught:
        load_model(folder, kinds, verify=True)
    line = str(caught.value)
    assert "\n" not in line
    assert str(folder) in line
    return line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(everything(), tmp_path / "m")
    return tmp_path / "m"


# -- Saving and loading ---------------------------------------------------------------------------


def test_every_kind_of_field_comes_back(folder: Path) -> None:
    model, back = everything(), load_model(folder, KINDS, verify=True)
    assert (back.factors, back.penalty, back.rounds, back.finder) == (2, 1.0, 1, Note("before"))
    assert (back.share_, back.note_, back.hands_.rounds_) == (0.25, Note("after"), 3)
    for name in ("weights_", "square_"):
        np.testing.assert_array_equal(getattr(back, name), getattr(model, name))
    np.testing.assert_array_equal(back.neighbours_.toarray(), np.eye(4))
    np.testing.assert_array_equal(back.rows_.starts, [0, 1, 2, 3, 4])
    assert [part is None for part in back.others_] == [True, False, True]
    np.testing.assert_array_equal(back.others_[1].vectors_, inner(seed=1).vectors_)
    assert back.all_[1] is back.hands_.inner_


def test_optional_fields_may_be_missing(tmp_path: Path) -> None:
    model = everything()
    model.square_ = None
    model.neighbours_ = None  # type: ignore[assignment]
    model.hands_ = None  # type: ignore[assignment]
    save_model(model, tmp_path / "m")
    back = load_model(tmp_path / "m", KINDS)
    assert (back.square_, back.neighbours_, back.hands_) == (None, None, None)


@pytest.mark.parametrize("name", ["weights_", "share_", "note_", "rows_", "others_"])
def test_a_required_field_that_is_none_is_not_fitted(name: str, tmp_path: Path) -> None:
    model = everything()
    setattr(model, name, None)
    with pytest.raises(NotFittedError, match="this Everything has not been fitted"):
        save_model(model, tmp_path / "m")
    assert not (tmp_path / "m").exists()


WRONG_STATES: dict[str, tuple[str, Any, str]] = {
    "fewer rows": (
        "arrays",
        {"weights": np.ones((3, 2), np.float32)},
        r"square: expected shape \(3, 3\)",
    ),
    "more factors": (
        "arrays",
        {"weights": np.ones((4, 3), np.float32)},
        r"weights: expected shape \(4, 2\), items × factors, of float32, found \(4, 3\)",
    ),
    "other numbers": ("arrays", {"weights": np.ones((4, 2))}, "found .* of float64"),
    "no matrix": ("arrays", {"weights": np.ones(4, np.float32)}, r"shape \(items, 2\)"),
    "a NaN": ("arrays", {"weights": np.full((4, 2), np.nan, np.float32)}, "expected finite"),
    "an infinity": ("arrays", {"weights": np.full((4, 2), np.inf, np.float32)}, "expected finite"),
    "not square": ("arrays", {"square": np.ones((4, 5), np.float32)}, "square: expected shape"),
    "no type of its own": ("arrays", {"square": np.ones((4, 4))}, "of float16 or float32"),
    "sparse of 5 items": (
        "arrays",
        {"neighbours_indptr": np.arange(6), "neighbours_data": np.ones(5, np.float32)}
        | {"neighbours_indices": np.arange(5)},
        "neighbours: expected 4 items, found 5",
    ),
    "sparse and beyond": (
        "arrays",
        {"neighbours_indices": np.array([0, 1, 2, 4])},
        "an item lies outside 0 … 3",
    ),
    "sparse and falling": (
        "arrays",
        {"neighbours_indptr": np.array([0, 3, 2, 3, 4])},
        "its rows do not rise from 0 to 4",
    ),
    "half of a sparse matrix": (
        "arrays",
        {"neighbours_indices": ..., "neighbours_indptr": ...},
        "neighbours_indices is missing",
    ),
    "a share above 1": ("facts", {"share": 1.5}, "share: expected a number from 0 to 1, found 1.5"),
    "a share of text": ("facts", {"share": "x"}, "share: expected a number from 0 to 1, found 'x'"),
    "another value": ("facts", {"note": 3}, "note: expected a Note, found 3"),
    "no list of parts": ("facts", {"others": 10**18}, "expected a list of true and false"),
    "a list of others": ("facts", {"others": [True, 1]}, "expected a list of true and false"),
    "no part at all": ("facts", {"others": [False]}, "expected at least one part, found none"),
    "more parts than there are": ("facts", {"all": [True] * 3}, "'?all 2'? is missing"),
    "fewer parts than there are": (
        "facts",
        {"all": [True]},
        "'all 1' is nothing that it learns; did you mean 'all'",
    ),
    "gaps where none may be": ("facts", {"all": [True, False]}, "all of 2 parts, found 1"),
    "a part of another kind": ("parts", {"rows": inner()}, "rows: expected a Rows, found Inner"),
    "a part of 5 items": ("parts", {"all 1": inner(5)}, "all: expected 4 items, found 5"),
    "a deep part of 5 items": ("parts", {"hands": ...}, ""),
    "an array too many": (
        "arrays",
        {"weight": np.ones(3)},
        "'weight' is nothing that it learns; did you mean 'weights'",
    ),
    "a fact too many": ("facts", {"shares": 1}, "'shares' is nothing that it learns"),
    "a part too many": ("parts", {"rows 0": inner()}, "'rows 0' is nothing that it learns"),
}


@pytest.mark.parametrize("name", WRONG_STATES)
def test_a_state_that_is_not_what_was_declared_is_refused(name: str) -> None:
    store, changes, message = WRONG_STATES[name]
    state = state_of(everything()).copy()
    for key, value in changes.items():
        if value is ...:
            del getattr(state, store)[key]
        else:
            getattr(state, store)[key] = value
    if not message:
        assert restored(Everything, {"factors": 2}, state).hands_ is None
        return
    with pytest.raises(ModelFileError, match=message) as caught:
        restored(Everything, {"factors": 2}, state)
    assert str(caught.value).startswith("Everything: ")


@pytest.mark.parametrize("store", ["arrays", "facts", "parts"])
def test_every_field_that_is_missing_is_named(store: str) -> None:
    optional = ("square", "hands")
    whole_state = state_of(everything())
    for name in getattr(whole_state, store):
        state = whole_state.copy()
        del getattr(state, store)[name]
        if name in optional:
            restored(Everything, {"factors": 2}, state)
        else:
            with pytest.raises(ModelFileError, match=f"{name} is missing|'{name} .* is nothing"):
                restored(Everything, {"factors": 2}, state)


def test_a_check_of_several_fields_is_made_when_loading(tmp_path: Path) -> None:
    rows = Rows(starts=np.array([0, 2]), values=np.ones(3, np.float32))
    save_model(rows, tmp_path / "m")
    assert "cannot restore Rows, saved by loca" in refusal(tmp_path / "m")
    assert refusal(tmp_path / "m").endswith("Rows: expected 2 values, found 3")


def test_the_place_of_a_wrong_part_is_named(folder: Path) -> None:
    manifest = manifest_of(folder)
    manifest["model"]["parts"]["hands"]["parts"]["inner"]["facts"]["rounds"] = "x"
    write_sealed(folder, manifest)
    assert "cannot restore Inner (part 'hands/inner'), saved by" in refusal(folder)


def test_a_learned_field_is_no_parameter(tmp_path: Path) -> None:
    save_model(everything().rows_, tmp_path / "m")
    manifest = manifest_of(tmp_path / "m")
    manifest["model"]["params"]["starts"] = [0, 4]
    write_sealed(tmp_path / "m", manifest)
    assert "starts is learned, and no parameter" in refusal(tmp_path / "m")


def test_what_was_learned_is_no_parameter_and_no_fact(tmp_path: Path, folder: Path) -> None:
    model = everything()
    model.finder = model.rows_  # type: ignore[assignment]
    with pytest.raises(ModelFileError, match=r"a Rows was learned, .* with `learned_part`"):
        save_model(model, tmp_path / "n")
    whole_manifest = manifest_of(folder)
    for value, message in (
        ({"$value": "Rows", "fields": {}}, "unknown kind of value 'Rows'"),
        ({"$model": "Rows", "params": {}}, "a Rows is learned, and no parameter and no fact"),
    ):
        manifest = copy.deepcopy(whole_manifest)
        manifest["model"]["params"]["finder"] = value
        write_sealed(folder, manifest)
        assert message in refusal(folder)


def test_an_array_that_no_parameter_and_no_fact_names_is_refused(tmp_path: Path) -> None:
    model = everything()
    model.finder = np.ones(3)  # type: ignore[assignment]
    model.penalty = np.zeros(2)  # type: ignore[assignment]
    save_model(model, tmp_path / "m")
    assert load_model(tmp_path / "m", KINDS).finder.tolist() == [1, 1, 1]
    manifest = manifest_of(tmp_path / "m")
    params = manifest["model"]["params"]
    kept = params["penalty"]
    params["penalty"] = 1.0
    write_sealed(tmp_path / "m", manifest)
    assert f"array '{kept['$array']}' is in no parameter and no fact" in refusal(tmp_path / "m")
    params["penalty"] = {"$array": "state/weights"}
    write_sealed(tmp_path / "m", manifest)
    assert "unknown kind of array 'state/weights'" in refusal(tmp_path / "m")


# -- What is stored elsewhere ---------------------------------------------------------------------


def test_a_part_is_stored_once_however_often_it_stands_in_a_model(folder: Path) -> None:
    assert manifest_of(folder)["model"]["parts"]["all 1"] == {"same_as": "hands/inner"}
    back = load_model(folder, KINDS)
    save_model(back, folder)
    assert manifest_of(folder)["model"]["parts"]["all 1"] == {"same_as": "hands/inner"}


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"same_as": "all 1"}, "part 'all 1' is said to be 'all 1', which is not there"),
        ({"same_as": ""}, "is said to be '', which is not there"),
        ({"same_as": "nowhere"}, "is said to be 'nowhere', which is not there"),
        ({"same_as": "hands/inner/deeper"}, "which is not there"),
        ({"same_as": "rows"}, "all: expected a Inner, found Rows"),
        ({"same_as": 3}, "'same_as': expected str, found 3"),
        ({"same_as": None}, "'same_as': expected str, found None"),
        ({"same_as": ["hands"]}, "'same_as': expected str"),
        ({"same_as": "hands/inner", "kind": "Inner"}, "unknown entry 'kind' of a model"),
    ],
)
def test_a_part_that_is_said_to_be_elsewhere_must_be_there(
    folder: Path, written: Any, message: str
) -> None:
    manifest = manifest_of(folder)
    manifest["model"]["parts"]["all 1"] = written
    write_sealed(folder, manifest)
    assert message in refusal(folder)


def test_a_part_cannot_be_the_whole_or_what_it_stands_in(folder: Path) -> None:
    whole_manifest = manifest_of(folder)
    for path in ("", "hands"):
        manifest = copy.deepcopy(whole_manifest)
        manifest["model"]["parts"]["hands"]["parts"]["inner"] = {"same_as": path}
        # Its array file must go too, or it would be refused as one that nobody uses.
        inner_file = whole_manifest["model"]["parts"]["hands"]["parts"]["inner"]["arrays"]["file"]
        del manifest["files"][inner_file]
        write_sealed(folder, manifest)
        assert "part 'hands/inner' is said to be" in refusal(folder)
    manifest["model"] = {"same_as": ""}
    manifest["files"] = {}
    write_sealed(folder, manifest)
    assert "which is not there" in refusal(folder)


def test_an_unknown_entry_of_a_model_is_refused(folder: Path) -> None:
    manifest = manifest_of(folder)
    manifest["model"]["parts"]["rows"]["path"] = "/etc/passwd"
    write_sealed(folder, manifest)
    assert "unknown entry 'path' of a model" in refusal(folder)


def test_a_model_that_is_a_part_of_itself_is_not_saved(tmp_path: Path) -> None:
    tree = Tree()
    tree.parts_ = {"same": tree}
    with pytest.raises(ModelFileError, match="'same': a model cannot be saved that is a part"):
        save_model(tree, tmp_path / "m")
    assert not (tmp_path / "m").exists()


# -- Classes that are not declared as they should be ----------------------------------------------


class Undecorated(loca.EASE):
    """A class whose author forgot the decorator."""

    bias_: FloatArray = learned("items")


class UndecoratedFinder(loca.Kernels):
    """A strategy whose author forgot the decorator."""

    rounds: int = whole(3)


class Plain(Persistent):
    """A class that declares nothing."""

    def __init__(self) -> None:
        self.weights_ = np.ones(3)


@dataclass(kw_only=True, eq=False)
class Twins(Learner):
    """Two fields that a folder cannot tell apart."""

    weights: FloatArray = learned("items")
    weights_: FloatArray = learned("items")


def test_a_class_without_its_decorator_is_refused_when_it_is_used() -> None:
    for make in (Undecorated, partial(Undecorated, l2=3.0)):
        with pytest.raises(ConfigError, match="Undecorated: the field 'bias_' needs a decorator"):
            make()
    with pytest.raises(ConfigError, match="'rounds' needs a decorator; write @dataclass"):
        UndecoratedFinder()


def test_what_would_not_come_back_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="Plain: cannot be saved, as it is no dataclass"):
        save_model(Plain(), tmp_path / "m")
    model = everything()
    model.bias_ = np.ones(4)  # type: ignore[attr-defined]
    with pytest.raises(ModelFileError, match=r"Everything: .* 'bias_' is not declared; write"):
        save_model(model, tmp_path / "m")
    with pytest.raises(ModelFileError, match="Plain: expected a dataclass"):
        restored(Plain, {}, ModelState())


def test_a_value_object_has_the_types_that_it_declares(folder: Path, tmp_path: Path) -> None:
    model = everything()
    model.note_ = Note(3)  # type: ignore[arg-type]
    with pytest.raises(ModelFileError, match="cannot save a Note: text: expected str, found 3"):
        save_model(model, tmp_path / "n")
    manifest = manifest_of(folder)
    manifest["model"]["facts"]["note"]["fields"]["text"] = None
    write_sealed(folder, manifest)
    assert "Note: text: expected str, found None" in refusal(folder)


def test_two_fields_of_one_stored_name_are_not_saved(tmp_path: Path) -> None:
    twins = Twins()
    twins.weights = np.ones(3, np.float32)
    twins.weights_ = np.ones(3, np.float32)
    with pytest.raises(ModelFileError, match="two learned fields are stored as 'weights'"):
        save_model(twins, tmp_path / "m")


# -- What else follows ----------------------------------------------------------------------------


def test_sizes_are_those_of_the_fields_and_of_shared_parts() -> None:
    model = everything(5)
    assert sizes_of(model) == {"items": 5, "factors": 2}
    assert (size_of(model, "items"), size_of(model.rows_, "entries")) == (5, 5)
    assert size_of(model, "entries") is None
    assert sizes_of(model.rows_) == {"items": 5, "entries": 5}


def test_what_was_selected_becomes_parameters() -> None:
    model = everything()
    assert selections(model) == {"penalty": 0.25, "finder": Note("after"), "rounds": 3}
    model.hands_.rounds_ = None
    assert "rounds" not in selections(model)


def test_more_items_get_zeros_and_what_was_made_of_arrays_goes() -> None:
    model = everything(3).hands_.inner_
    larger = with_items(model, 5)
    np.testing.assert_array_equal(larger.vectors_[:3], model.vectors_)
    np.testing.assert_array_equal(larger.vectors_[3:], np.zeros((2, 2)))
    assert model.vectors_.shape == (3, 2)
    hands = with_items(everything(3).hands_, 5)
    assert size_of(hands, "items") == 5
    rows = Rows(starts=np.arange(4), values=np.ones(3, np.float32))
    rows._sums.append(1.0)
    assert with_items(rows, 3)._sums == []
    with pytest.raises(NotImplementedError, match="LearnedSparse cannot grow"):
        with_items(everything(3), 5)
    assert not supports_new_items(everything())
    assert supports_new_items(everything().hands_)
    with pytest.raises(NotImplementedError, match=r"'items \+ 1',\) cannot grow"):
        with_items(rows, 4)
    assert not supports_new_items(rows)
    assert not supports_new_items(loca.EASE().fit(csr_array(np.eye(3, dtype=np.float32))))


def test_all_parts_move() -> None:
    model = everything()
    move_parts(model, "elsewhere")
    parts = (model.hands_.inner_, model.all_[0], model.others_[1])
    assert [fitted(part, model).device_ for part in parts] == ["elsewhere"] * 3


def test_bytes_are_those_of_the_arrays_without_the_parts() -> None:
    model = everything(4)
    neighbours = model.neighbours_
    sparse = sum(getattr(neighbours, name).nbytes for name in ("data", "indices", "indptr"))
    assert learned_bytes(model) == 4 * 2 * 4 + 4 * 4 * 2 + sparse


# -- Models of the package ------------------------------------------------------------------------

VAE = {"latent": 4, "epochs": 2, "batch_size": 100}
WIDE = {"train_bandwidth": loca.Quantile(0.6), "answer_bandwidth": loca.Quantile(0.5)}


@pytest.fixture(scope="module")
def split() -> loca.Split:
    data = loca.planted_communities(
        users=80, items=30, communities=2, groups=5, history=12, shortest_history=10
    ).interactions
    return loca.leave_last_out(data, test=2, validation=2)


def fit(model: loca.Loca, split: loca.Split) -> loca.Loca:
    return model.fit(split.train, validation=split.validation)


def local_of(model: loca.Loca) -> CommunityModels:
    return fitted(model.local_, model)


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("arrays-*"))


def test_the_global_model_that_embeds_users_is_stored_once(
    split: loca.Split, tmp_path: Path
) -> None:
    base = loca.MultVAE(**VAE)
    model = fit(loca.Loca(base=base, communities=loca.Kernels(n=3, **WIDE)), split)
    assert local_of(model).communities.embedder is model.global_  # type: ignore[attr-defined]
    model.save(tmp_path / "shared")
    loaded = loca.load(tmp_path / "shared", verify=True)
    assert isinstance(loaded, loca.Loca)
    assert local_of(loaded).communities.embedder is loaded.global_  # type: ignore[attr-defined]
    apart = copy.copy(model)
    apart.global_ = copy.copy(model.global_)
    apart.save(tmp_path / "apart")
    model.global_.save(tmp_path / "global")  # type: ignore[union-attr]
    more = bytes_in(tmp_path / "apart") - bytes_in(tmp_path / "shared")
    assert more == bytes_in(tmp_path / "global")


def test_the_global_model_that_local_ones_differ_from_is_stored_once(
    split: loca.Split, tmp_path: Path
) -> None:
    communities = loca.Mixtures(n=4)
    model = loca.Loca(base=loca.EASE(l2=20.0), communities=communities, engine=loca.Differences())
    models = local_of(fit(model, split)).models
    assert models.centre_ is model.global_  # type: ignore[attr-defined]
    model.save(tmp_path / "shared")
    loaded = loca.load(tmp_path / "shared", verify=True)
    assert isinstance(loaded, loca.Loca)
    assert local_of(loaded).models.centre_ is loaded.global_  # type: ignore[attr-defined]
    apart = copy.copy(model)
    apart.global_ = copy.copy(model.global_)
    apart.save(tmp_path / "apart")
    assert bytes_in(tmp_path / "apart") - bytes_in(tmp_path / "shared") > 4 * 30 * 30


def test_communities_of_other_items_than_the_models_are_refused(
    split: loca.Split, tmp_path: Path
) -> None:
    fewer = split.train.matrix()[:, :20]
    groups = loca.RandomGroups(n=3)
    model = fit(loca.Loca(base=loca.EASE(), communities=groups), split)
    other = loca.Loca(base=loca.EASE(), communities=groups).fit(csr_array(fewer))
    local = local_of(model)
    mixed = copy.copy(model)
    mixed.local_ = CommunityModels(
        finder=local.finder,
        communities=local_of(other).communities,
        models=local.models,
        combiner=local.combiner,
        description=local.description,
    )
    with pytest.raises(ModelFileError, match="cannot be saved: local: expected 30 items, found 20"):
        mixed.save(tmp_path / "m")
    state = state_of(local)
    state.parts["communities"] = local_of(other).communities
    with pytest.raises(ModelFileError, match="models: expected 20 items, found 30"):
        restored(CommunityModels, {}, state)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("weights_", np.full((4, 2), np.nan, np.float32), "weights: expected finite numbers"),
        ("weights_", np.ones((4, 2)), "weights: expected shape .*, found .* of float64"),
        ("weights_", np.ones((5, 2), np.float32), "square: expected shape"),
        ("weights_", [[1.0]], "weights: expected a numpy array, found list"),
        ("neighbours_", csr_array(np.full((4, 4), np.inf, "f4")), "neighbours: expected finite"),
        ("neighbours_", np.eye(4, dtype=np.float32), "neighbours: expected a csr_array"),
        ("share_", 2.0, "share: expected"),
        ("all_", (), "all: expected at least one part, found none"),
        ("all_", (None, inner(4)), "all: expected all of 2 parts, found 1"),
        ("all_", (inner(3),), "all: expected 4 items, found 3"),
        ("hands_", inner(4), "hands: expected a Hands, found Inner"),
    ],
)
def test_what_no_load_would_accept_is_not_saved(
    name: str, value: Any, problem: str, tmp_path: Path
) -> None:
    model = everything()
    setattr(model, name, value)
    with pytest.raises(ModelFileError, match=f"Everything: cannot be saved: {problem}"):
        save_model(model, tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("size", ["items+1", "items - 1", "items + n", ""])
def test_a_size_of_another_form_is_refused_where_it_is_declared(size: str) -> None:
    with pytest.raises(ValueError, match="expected a size such as 'items' or"):
        learned(size)


@dataclass(frozen=True, kw_only=True)
class LearnedPair(LearnedField):
    """Two parts, as another module may declare them."""

    tells: bool = True

    def write(self, name: str, value: Any, state: ModelState) -> None:
        state.parts.update({f"{name} left": value[0], f"{name} right": value[1]})

    def parts(self, name: str, value: Any) -> dict[str, Any]:
        return {f"{name} left": value[0], f"{name} right": value[1]} if self.tells else {}

    def read(self, name: str, state: ModelState, sizes: Sizes, owner: Any) -> Any:
        return state.parts.pop(f"{name} left"), state.parts.pop(f"{name} right")


@dataclass(kw_only=True, eq=False)
class Pair(Learner):
    """A model with two parts in one field."""

    pair_: Any = declare(LearnedPair())


@dataclass(kw_only=True, eq=False)
class SilentPair(Learner):
    """A model whose field does not tell of its parts."""

    pair_: Any = declare(LearnedPair(tells=False))


def test_the_parts_of_a_field_of_another_module_are_saved(tmp_path: Path) -> None:
    model = Pair()
    model.pair_ = (inner(3, 0), inner(3, 1))
    save_model(model, tmp_path / "m")
    loaded = load_model(tmp_path / "m", {"Pair": Pair, "Inner": Inner})
    for part, loaded_part in zip(model.pair_, loaded.pair_, strict=True):
        np.testing.assert_array_equal(loaded_part.vectors_, part.vectors_)
    silent = SilentPair()
    silent.pair_ = model.pair_
    with pytest.raises(ModelFileError, match="parts does not return the parts"):
        save_model(silent, tmp_path / "silent")


# -- Parts that a folder holds already ------------------------------------------------------------


def test_only_what_a_folder_still_holds_is_linked(tmp_path: Path) -> None:
    kinds = {"Pair": Pair, "Inner": Inner, "Hands": Hands}
    hands = Hands()
    hands.rounds_ = 3
    hands.inner_ = inner(4)
    save_model(hands, tmp_path / "old")
    loaded = load_model(tmp_path / "old", kinds)
    loaded.saved_in_ = SavedAt.of(tmp_path / "old")
    whole = Pair()
    whole.pair_ = (loaded, loaded.inner_)
    save_model(whole, tmp_path / "linked")
    assert len(list((tmp_path / "linked").glob("arrays-*"))) == 1  # the inner one, once
    again = load_model(tmp_path / "linked", kinds)
    assert again.pair_[0].inner_ is again.pair_[1]
    np.testing.assert_array_equal(again.pair_[1].vectors_, hands.inner_.vectors_)
    other = Hands()
    other.rounds_ = 5
    other.inner_ = inner(4, 9)
    save_model(other, tmp_path / "old")
    save_model(loaded, tmp_path / "written")
    written = load_model(tmp_path / "written", kinds)
    assert written.rounds_ == 3
    np.testing.assert_array_equal(written.inner_.vectors_, hands.inner_.vectors_)
    assert with_items(loaded, 5).saved_in_ is None


def test_a_model_that_stands_on_every_level_twice_is_read_in_no_time(
    split: loca.Split, tmp_path: Path
) -> None:
    """Who asks both branches on each of n levels asks 2ⁿ times."""
    groups = loca.RandomGroups(n=2)
    innermost = loca.Loca(base=loca.EASE(), communities=groups, engine=loca.Loop())
    model = fit(innermost, split)
    local = local_of(model)
    for _ in range(25):
        outer = copy.copy(model)
        outer.global_ = model
        outer.local_ = CommunityModels(
            finder=local.finder,
            communities=local.communities,
            models=SeparateModels.of([model, model]),
            combiner=local.combiner,
            description=local.description,
        )
        model = outer
    started = time.perf_counter()
    model.save(tmp_path / "m")
    loca.load(tmp_path / "m")
    assert time.perf_counter() - started < 20
    assert len(list((tmp_path / "m").glob("arrays-*"))) < 10


def hostile_changes(value: Any, rng: random.Random) -> list[tuple[list[Any], Any]]:
    """Return trails of keys into a JSON value, each with something hostile to put there."""
    trails: list[list[Any]] = []

    def collect(inside: Any, trail: list[Any]) -> None:
        keys = inside if isinstance(inside, dict) else range(len(inside))
        for key in keys:
            trails.append([*trail, key])
            if isinstance(inside[key], dict | list):
                collect(inside[key], [*trail, key])

    collect(value, [])
    hostile = [
        *(..., None, True, -1, 10**30, 0.5, float("nan"), "", "x", [], {}, [[]], [True, True]),
        *({"same_as": "global"}, {"same_as": "local/models"}, {"$value": "Loop", "fields": {}}),
        *({"$model": "EASE", "params": {}}, {"$array": "state/weights"}, "EASE", "SeparateModels"),
        *({"$value": "KernelCommunities", "fields": {}}, {"$tuple": [1]}, {"$number": "int8"}),
    ]
    return [(trail, rng.choice(hostile)) for trail in trails]


def refused_line(folder: Path) -> str:
    """Return the line with which a folder is refused; nothing where it loads."""
    try:
        loca.load(folder)
    except ModelFileError as error:
        return str(error)
    return ""


FUZZED: dict[str, Callable[[], loca.Loca]] = {
    "networks": lambda: loca.Loca(base=loca.MultVAE(**VAE), communities=loca.Kernels(n=3, **WIDE)),
    "differences": lambda: loca.Loca(
        base=loca.EASE(), communities=loca.Mixtures(n=4), engine=loca.Differences()
    ),
    "loop": lambda: loca.Loca(
        base=loca.EASE(), communities=loca.RandomGroups(n=3), engine=loca.Loop()
    ),
}


@pytest.mark.parametrize("name", FUZZED)
def test_a_believable_manifest_with_any_value_replaced_is_refused_or_loads(
    name: str, split: loca.Split, tmp_path: Path
) -> None:
    folder = tmp_path / "m"
    model = fit(FUZZED[name](), split)
    model.save(folder)
    manifest = manifest_of(folder)
    rng = random.Random(3)
    changes = hostile_changes(manifest["model"], rng)
    refused = 0
    for trail, new in rng.sample(changes, min(120, len(changes))):
        changed = copy.deepcopy(manifest)
        owner = changed["model"]
        for key in trail[:-1]:
            owner = owner[key]
        if new is ...:
            del owner[trail[-1]]
        else:
            owner[trail[-1]] = new
        write_sealed(folder, changed)
        line = refused_line(folder)
        assert "\n" not in line
        assert not line or str(folder) in line
        refused += line != ""
    assert refused > 60


# -- Classes of a user's own ----------------------------------------------------------------------


def test_parts_of_a_users_own_come_back_with_their_classes(
    split: loca.Split, tmp_path: Path
) -> None:
    model = fit(own_model(), split)
    model.save(tmp_path / "m")
    loaded = loca.load(tmp_path / "m", classes=CLASSES, verify=True)
    assert isinstance(loaded, loca.Loca)
    assert str(loaded) == str(model)
    assert loaded.get_params(deep=False)["engine"] == model.engine
    assert type(local_of(loaded).communities) is type(local_of(model).communities)
    assert local_of(loaded).combiner == local_of(model).combiner
    histories = split.test.history_matrix
    np.testing.assert_array_equal(loaded.score(histories), model.score(histories))


@pytest.mark.parametrize("missing", CLASSES, ids=lambda kind: kind.__name__)
def test_a_class_that_is_not_given_is_refused_by_name(
    missing: type, split: loca.Split, tmp_path: Path
) -> None:
    fit(own_model(), split).save(tmp_path / "m")
    classes = [kind for kind in CLASSES if kind is not missing]
    with pytest.raises(ModelFileError) as caught:
        loca.load(tmp_path / "m", classes=classes)
    line = str(caught.value)
    assert f"'{missing.__name__}'" in line
    assert "give a class of your own as load(…, classes=[…])" in line


def test_the_nearest_known_class_is_named(split: loca.Split, tmp_path: Path) -> None:
    Together().fit(split.train).save(tmp_path / "m")
    renamed = type("Togethers", (Together,), {})
    with pytest.raises(ModelFileError, match="'Together'; did you mean 'Togethers'"):
        loca.load(tmp_path / "m", classes=[renamed])


@dataclass(frozen=True, kw_only=True)
class Halves(Strategy):
    """A strategy with parameters."""

    share: float = share(0.5)
    times: float = positive(1.0)


def test_a_strategy_is_a_value_that_refuses_wrong_parameters(tmp_path: Path) -> None:
    model = everything()
    model.finder = Halves(share=0.25)  # type: ignore[assignment]
    save_model(model, tmp_path / "m")
    kinds = {**KINDS, "Halves": Halves}
    assert load_model(tmp_path / "m", kinds).finder == Halves(share=0.25)
    assert clone(Halves(), share=1.0) == Halves(share=1.0)
    manifest = manifest_of(tmp_path / "m")
    manifest["model"]["params"]["finder"]["fields"]["share"] = 1.5
    write_sealed(tmp_path / "m", manifest)
    assert "share: expected a number from 0 to 1, found 1.5" in refusal(tmp_path / "m", kinds)
    manifest["model"]["params"]["finder"]["fields"]["share"] = True
    write_sealed(tmp_path / "m", manifest)
    assert "Halves: share: expected float, found True" in refusal(tmp_path / "m", kinds)
    with pytest.raises(LocaError, match="times: expected a number above 0, found 'x'"):
        Halves(times="x")  # type: ignore[arg-type]
