"""A saved model comes back equal to the last bit; a folder with any fault is refused in one line and runs nothing."""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.errors import LocaError, ModelFileError, NotFittedError
from loca.persistence import load_model, save_model
from loca.persistence.atomic_write import MAX_JSON
from loca.persistence.learned import Learner, learned
from loca.persistence.sealed_json import seal
from saved_model_examples import (
    KINDS,
    Leaf,
    Tree,
    example_interactions,
    example_model,
    load,
    same,
    through_a_folder,
)

MODEL = example_model()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that holds the example model."""
    save_model(MODEL, tmp_path / "m")
    return tmp_path / "m"


def refusal(folder: Path, kinds: dict[str, type] = KINDS) -> str:
    """The one line with which loading refuses the folder; any other exception fails the test."""
    with pytest.raises(ModelFileError) as caught:
        load_model(folder, kinds)
    line = str(caught.value)
    assert "\n" not in line
    assert str(folder) in line
    return line


def outcome(folder: Path) -> tuple[Any, str]:
    """The model of the folder, or None and the line with which it was refused; another exception fails the test."""
    try:
        return load(folder), ""
    except ModelFileError as error:
        return None, str(error)


def manifest_of(folder: Path) -> dict[str, Any]:
    written: dict[str, Any] = json.loads((folder / "model.json").read_text(errors="surrogatepass"))
    return written


def write_sealed(folder: Path, manifest: dict[str, Any]) -> None:
    """Writes a manifest as one would who wants it to be believed: with a right checksum."""
    body = {
        name: value
        for name, value in manifest.items()
        if name not in ("format", "version", "checksum")
    }
    manifest["checksum"] = seal(body)
    (folder / "model.json").write_text(json.dumps(manifest), errors="surrogatepass")


def refusal_after(folder: Path, change: Callable[[dict[str, Any]], Any]) -> str:
    """The refusal of a folder whose manifest was changed and sealed anew."""
    manifest = manifest_of(folder)
    change(manifest)
    write_sealed(folder, manifest)
    return refusal(folder)


def test_a_sealed_manifest_is_believed(folder: Path) -> None:
    write_sealed(folder, manifest_of(folder))
    assert same(load(folder), MODEL)


def test_a_folder_that_is_missing_empty_a_file_or_foreign_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "weights.bin").write_text("x")
    for name in ("missing", "file", "empty", "foreign"):
        assert "no loca model here; expected a folder with a model.json" in refusal(tmp_path / name)
    assert "File name too long" in refusal(tmp_path / ("x" * 300))


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '"loca-model"', '{"format": "gguf", "version": 1}', "\xff{"]
)
def test_a_foreign_model_json_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.json").write_bytes(text.encode("latin-1"))
    refusal(tmp_path)


def test_a_model_json_nested_too_deeply_is_refused(folder: Path) -> None:
    (folder / "model.json").write_text("[" * 200_000)
    assert "nested too deeply" in refusal(folder)

    def nest(manifest: dict[str, Any], depth: int) -> None:
        manifest["files"], manifest["known"] = {}, None
        leaf = {
            "kind": "Tree",
            "params": {},
            "facts": {},
            "arrays": None,
            "parts": {},
        }
        model = leaf
        for _ in range(depth):
            model = {**leaf, "parts": {"p": model}}
        manifest["model"] = model

    save_model(MODEL, folder.parent / "n")
    whole = manifest_of(folder.parent / "n")
    for depth in range(200, 480, 20):
        manifest = copy.copy(whole)
        nest(manifest, depth)
        try:
            write_sealed(folder, manifest)
        except RecursionError:
            break
        back, line = outcome(folder)
        assert back is not None or "nested too deeply" in line


def test_a_model_json_that_is_far_too_large_is_refused_unread(folder: Path) -> None:
    with open(folder / "model.json", "r+b") as file:
        file.truncate(MAX_JSON + 1)
    assert "expected at most 33,554,432 bytes" in refusal(folder)


def test_another_format_is_refused_with_what_to_do(folder: Path) -> None:
    assert "format 3 by a newer loca, this one reads format 2; upgrade loca" in refusal_after(
        folder, lambda manifest: manifest.update(version=3)
    )
    assert (
        "in format 1 by an earlier loca, this one reads format 2; make it again"
        in refusal_after(folder, lambda manifest: manifest.update(version=1))
    )
    assert "'version': expected int" in refusal_after(
        folder, lambda manifest: manifest.update(version=True)
    )


def test_an_edited_model_json_is_refused(folder: Path) -> None:
    text = (folder / "model.json").read_bytes()
    assert b'"anchors": 5' in text
    (folder / "model.json").write_bytes(text.replace(b'"anchors": 5', b'"anchors": 6'))
    assert "changed or damaged since it was saved" in refusal(folder)


def test_every_file_cut_at_any_length_is_refused(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        lengths = {*range(0, len(whole), max(len(whole) // 25, 1)), len(whole) - 1}
        # Without its last line end, model.json says all that it said.
        for length in lengths - {len(whole) - 1 if path.name == "model.json" else -1}:
            path.write_bytes(whole[:length])
            refusal(folder)
        path.write_bytes(whole + b"\0")
        refusal(folder)
        path.unlink()
        refusal(folder)
        path.write_bytes(whole)
    assert same(load(folder), MODEL)


def test_flipped_bytes_in_any_file_are_refused_or_change_nothing(folder: Path) -> None:
    rng = random.Random(7)
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        refused = 0
        for _ in range(60):
            data = bytearray(whole)
            for _ in range(rng.choice((1, 1, 2, 8))):
                # Half of them in the first bytes, where lengths and headers stand.
                place = rng.randrange(min(len(data), 100) if rng.random() < 0.5 else len(data))
                data[place] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
            back, line = outcome(folder)
            assert back is None or same(back, MODEL)
            assert "\n" not in line
            refused += back is None
        assert refused > 30
        path.write_bytes(whole)
    assert same(load(folder), MODEL)


def test_a_changed_array_is_refused_by_its_checksum(folder: Path) -> None:
    path = folder / manifest_of(folder)["model"]["arrays"]["file"]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert "has changed since it was saved" in refusal(folder)


def test_a_changed_id_is_refused_by_its_checksum(folder: Path) -> None:
    path = folder / manifest_of(folder)["known"]["users"]
    path.write_bytes(path.read_bytes().replace(b"ann", b"bob"))
    assert f"{path.name} has changed since it was saved" in refusal(folder)


def places(value: Any, trail: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where every value inside a JSON value stands."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, one in inner:
        yield (*trail, key)
        yield from places(one, (*trail, key))


def put(value: Any, trail: tuple[Any, ...], new: Any) -> None:
    """Replaces the value at a place; None of a `...` removes it."""
    for key in trail[:-1]:
        value = value[key]
    if new is ...:
        del value[trail[-1]]
    else:
        value[trail[-1]] = new


HOSTILE = [
    *(
        ...,
        None,
        True,
        -1,
        0,
        2**63,
        10**400,
        1e308,
        float("nan"),
        "",
        "x",
        "\ud800",
        "../model.json",
        "Tree",
        "$model",
    ),
    *(
        [],
        {},
        [None],
        {"a": 1},
        [[]],
        {"$array": "none"},
        {"$tuple": 3},
        {"$map": [1]},
        {"$map": [[[], 1]]},
    ),
    *(
        {"$number": "int8", "value": 300},
        {"$number": "object", "value": 1},
        {"$oops": 1},
        {"$value": "Share"},
    ),
    *(
        {"$value": "Share", "fields": {"of": 7}},
        {"$value": "Tree", "fields": {}},
        {"$value": "str", "fields": {}},
    ),
    *({"$model": "Share", "params": {}}, {"$model": "Tree", "params": {"anchors": -1}}),
    *({"$model": "Tree", "params": {"x": 1}}, {"$value": "Share", "fields": {"x": 1}}),
    *({"same_as": ""}, {"same_as": "global"}, {"same_as": "centre"}, {"same_as": 3}),
    {"same_as": "global", "kind": "Leaf"},
]


def test_a_believable_manifest_with_any_value_replaced_loads_or_is_refused_and_nothing_else(
    folder: Path,
) -> None:
    rng = random.Random(3)
    whole = manifest_of(folder)
    everywhere = [
        trail for trail in places(whole) if trail[0] not in ("format", "version", "checksum")
    ]
    refused = 0
    for trail in rng.sample(everywhere, 120):
        for new in rng.sample(HOSTILE, 3):
            manifest = copy.deepcopy(whole)
            put(manifest, trail, new)
            write_sealed(folder, manifest)
            back, line = outcome(folder)
            assert "\n" not in line
            refused += back is None
    assert refused > 150


def test_believable_ids_with_any_value_replaced_load_or_are_refused_and_nothing_else(
    folder: Path,
) -> None:
    rng = random.Random(5)
    manifest = manifest_of(folder)
    for index, what in enumerate(("users", "items")):
        whole = json.loads((folder / manifest["known"][what]).read_text(errors="surrogatepass"))
        refused = 0
        for trail in places(whole):
            for new in (*rng.sample(HOSTILE, 4), whole["ids"][0]):
                changed = copy.deepcopy(whole)
                put(changed, trail, new)
                data = json.dumps(changed).encode()
                (folder / manifest["known"][what]).write_bytes(data)
                manifest["files"][manifest["known"][what]] = len(data)
                manifest["known"]["checksums"][index] = zlib.crc32(data)
                write_sealed(folder, manifest)
                refused += outcome(folder)[0] is None
        assert refused > 20


@pytest.mark.parametrize(
    "name",
    [
        "../outside.safetensors",
        "/etc/passwd",
        "arrays-00000000-0.safetensors/../x",
        "model.json",
        "",
        ".",
        "a\0b",
    ],
)
def test_a_file_name_that_leads_elsewhere_is_refused(folder: Path, name: str) -> None:
    (folder.parent / "outside.safetensors").write_bytes(b"x" * 100)

    def rename(manifest: dict[str, Any]) -> None:
        old = manifest["model"]["arrays"]["file"]
        manifest["model"]["arrays"]["file"] = name
        manifest["files"][name] = manifest["files"].pop(old)

    assert "is not a data file of a loca model" in refusal_after(folder, rename)


def test_a_file_that_is_used_but_not_listed_is_refused(folder: Path) -> None:
    assert "is not both listed and used" in refusal_after(
        folder, lambda manifest: manifest["files"].pop(manifest["model"]["arrays"]["file"])
    )


def test_links_folders_and_pipes_in_place_of_files_are_refused(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        away = folder.parent / "away"
        path.rename(away)
        path.symlink_to(away)
        assert "expected a plain file, found a link" in refusal(folder)
        path.unlink()
        os.mkfifo(path)
        assert "expected a plain file" in refusal(folder)
        path.unlink()
        path.mkdir()
        assert "expected a plain file" in refusal(folder)
        path.rmdir()
        away.rename(path)
    assert same(load(folder), MODEL)


@pytest.mark.parametrize(
    "shape", [[10**12, 10**12], [2**62, 4], [-1], [1] * 40, [2.0, 5], ["2"], [True, 10], 10]
)
def test_a_claim_of_another_shape_is_refused_before_any_array_is_read(
    folder: Path, shape: Any
) -> None:
    def claim(manifest: dict[str, Any]) -> None:
        manifest["model"]["arrays"]["arrays"]["state/half"]["shape"] = shape

    assert "shape" in refusal_after(folder, claim) or "expected F16" in refusal(folder)


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F8_E4M3", "C64", "object", ""])
def test_a_claim_of_another_number_type_is_refused(folder: Path, dtype: str) -> None:
    def claim(manifest: dict[str, Any]) -> None:
        manifest["model"]["arrays"]["arrays"]["state/half"]["dtype"] = dtype

    assert "expected" in refusal_after(folder, claim)


def test_a_header_that_claims_more_than_the_file_holds_is_refused(folder: Path) -> None:
    manifest = manifest_of(folder)
    path = folder / manifest["model"]["arrays"]["file"]
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    for claim in (
        {"shape": [10**15]},
        {"data_offsets": [0, 10**15]},
        {"shape": [2**63, 2**63]},
        {"dtype": "F4"},
    ):
        header = json.loads(data[8:start])
        header["state/half"] |= claim
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[start:])
        manifest["files"][path.name] = path.stat().st_size
        write_sealed(folder, manifest)
        assert path.name in refusal(folder)


def test_missing_and_surplus_arrays_are_named(folder: Path) -> None:
    whole = manifest_of(folder)
    notes = whole["model"]["arrays"]["arrays"]
    assert "array 'state/half' is not in the manifest" in refusal_after(
        folder, lambda manifest: manifest["model"]["arrays"]["arrays"].pop("state/half")
    )
    write_sealed(folder, whole)
    assert "array 'state/quarter' is missing" in refusal_after(
        folder,
        lambda manifest: manifest["model"]["arrays"]["arrays"].update(
            {"state/quarter": notes["state/half"]}
        ),
    )


def test_interactions_without_their_arrays_are_refused(folder: Path) -> None:
    def rename(manifest: dict[str, Any]) -> None:
        manifest["known"]["arrays"], manifest["model"]["arrays"] = (
            manifest["model"]["arrays"],
            manifest["known"]["arrays"],
        )

    assert "expected offsets, item_rows, times and weights" in refusal_after(folder, rename)


def test_a_model_larger_than_the_memory_is_refused_before_any_array_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loca.persistence.model_io.available_bytes", lambda: 1000)
    monkeypatch.setattr("loca.persistence.model_tree.read_arrays", None)
    assert "of memory and 1 kB are free; close other programs" in refusal(folder)


def test_an_unknown_kind_is_refused_with_the_nearest_known(folder: Path) -> None:
    assert (
        "unknown kind of model 'Tree'; did you mean 'Trees'?; give a class of your own"
        in refusal(folder, {"Leaf": Leaf, "Trees": Tree, "Share": KINDS["Share"]})
    )
    assert "unknown kind of value 'Share'" in refusal(folder, {"Leaf": Leaf, "Tree": Tree})
    assert "unknown kind of model" in refusal(folder, {})


def test_a_class_that_is_not_a_model_cannot_be_named_as_one(folder: Path) -> None:
    kinds = {**KINDS, "system": os.system, "Popen": dict}
    for name in ("system", "Popen", "Share"):
        manifest = manifest_of(folder)
        manifest["model"]["kind"] = name
        write_sealed(folder, manifest)
        assert f"unknown kind of model '{name}'" in refusal(folder, kinds)  # type: ignore[arg-type]


def test_only_a_frozen_value_object_can_be_named_as_a_value(folder: Path) -> None:
    for name in ("Tree", "Popen", "date"):
        manifest = manifest_of(folder)
        manifest["model"]["params"]["options"] = {"$value": name, "fields": {}}
        write_sealed(folder, manifest)
        assert f"unknown kind of value '{name}'" in refusal(folder, {**KINDS, "Popen": dict})


def test_parameters_that_the_model_refuses_are_refused_with_its_words(folder: Path) -> None:
    line = refusal_after(folder, lambda manifest: manifest["model"]["params"].update(anchors=-3))
    assert line.startswith(f"{folder}: cannot restore Tree, saved by loca ")
    assert line.endswith("anchors: expected at least 1, found -3")
    assert "unknown parameter 'anchor' for Tree; did you mean 'anchors'?" in refusal_after(
        folder, lambda manifest: manifest["model"]["params"].update(anchor=3)
    )


def test_a_state_that_the_model_refuses_is_refused_in_one_line(tmp_path: Path) -> None:
    @dataclass(kw_only=True, eq=False)
    class OtherLeaf(Learner):
        weights_: Any = learned("rows", dtype=np.float64)

    OtherLeaf.__name__ = "Leaf"
    leaf = OtherLeaf()
    leaf.weights_ = np.zeros(3)
    save_model(leaf, tmp_path / "m")
    line = refusal(tmp_path / "m")
    assert "cannot restore Leaf, saved by loca " in line
    assert line.endswith(
        "Leaf: weights: expected shape (rows, columns), rows × columns, of float32, "
        "found (3,) of float64"
    )


def test_an_error_without_words_is_named_by_its_kind(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_out(*args: Any, **options: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("loca.persistence.model_tree.read_arrays", run_out)
    assert refusal(folder).endswith("MemoryError")


def test_a_refused_model_is_an_error_that_commands_show_as_one_line() -> None:
    assert issubclass(ModelFileError, LocaError)


def test_the_folder_is_read_again_when_it_was_replaced_meanwhile(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from loca.persistence import model_tree as loading

    real, calls = loading.map_arrays, []

    def replace_first(path: Path) -> Any:
        if not calls:
            calls.append("replaced")
            save_model(example_model(4), folder)
        return real(path)

    monkeypatch.setattr(loading, "map_arrays", replace_first)
    assert same(load(folder), example_model(4))


def test_a_folder_removed_while_it_is_read_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from loca.persistence import model_io as loading

    def remove(path: Path) -> None:
        (folder / "model.json").unlink()
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(loading, "map_arrays", remove)
    assert refusal(folder).endswith("No such file or directory")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"half_life": -1.0}, "half_life: expected a number above 0"),
        ({"half_life": "3"}, "'half_life': expected int or float"),
        ({"shape": "cubic"}, "unknown recency shape 'cubic'; expected 'exponential' or 'power'"),
        ({"shape": 3}, "'shape': expected str"),
        ({"floor": 1.0}, "recency floor: expected a number from 0 to below 1"),
        ({"floor": None}, "'floor': expected int or float"),
        ({"floor": True}, "'floor': expected int or float"),
        ({"floor": ...}, "'floor' is missing"),
        ({"shape": ...}, "'shape' is missing"),
    ],
)
def test_an_impossible_recency_is_refused(
    folder: Path, change: dict[str, Any], message: str
) -> None:
    manifest = manifest_of(folder)
    for name, value in change.items():
        put(manifest["known"]["recency"], (name,), value)
    write_sealed(folder, manifest)
    assert message in refusal(folder)


def test_the_comparison_of_models_sees_every_difference() -> None:
    assert same(example_model(1), example_model(1))
    for change in (
        lambda model: model.arrays_["half"].__setitem__((0, 0), 9),
        lambda model: model.parts_["local 0"].parts_["deep"].weights_.__setitem__((0, 0), 9),
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
    assert back.parts_["centre"] is back.parts_["global"]
    assert same(back, example_model())


def test_saving_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    model = example_model()
    save_model(model, tmp_path / "m")
    assert same(model, example_model())


@pytest.mark.parametrize("kind", ["text", "int", "float"])
def test_interactions_come_back_with_ids_labels_times_and_recency(
    tmp_path: Path, kind: str
) -> None:
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
    known = Interactions(
        IdMap(none, "user"), IdMap(none, "item"), np.array([0]), np.array([], np.int32)
    )
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


def test_only_the_whole_model_comes_back_with_its_interactions(tmp_path: Path) -> None:
    model = Tree().fit(example_interactions())
    model.parts_ = {
        "other": Tree().fit(example_interactions()),
        "same": Tree().fit(model.train_data_),
    }
    back = through_a_folder(model, tmp_path / "m")
    assert same(back.train_data_, model.train_data_)
    assert back.parts_["other"].train_data_ is None
    assert back.parts_["same"].train_data_ is None


def test_the_manifest_is_readable_and_names_versions_and_sizes(tmp_path: Path) -> None:
    save_model(example_model(), tmp_path / "m")
    manifest = json.loads((tmp_path / "m" / "model.json").read_text())
    assert (manifest["format"], manifest["version"], manifest["model"]["kind"]) == (
        "loca-model",
        2,
        "Tree",
    )
    assert manifest["written_by"]["numpy"] == np.__version__
    on_disk = {
        one.name: one.stat().st_size
        for one in (tmp_path / "m").iterdir()
        if one.name != "model.json"
    }
    assert manifest["files"] == on_disk
    assert len(on_disk) == 6  # three models with arrays, users, items, the rest of the interactions


def test_files_are_made_with_the_permissions_that_the_user_asks_for(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    save_model(example_model(), tmp_path / "m")
    modes = {one.stat().st_mode for one in (tmp_path / "m").iterdir()}
    assert modes == {plain.stat().st_mode}


def test_what_is_not_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="expected a fitted model, found str"):
        save_model("model", tmp_path / "m")
    broken = Tree()
    broken.parts_ = {"local": [Tree()]}
    with pytest.raises(
        ModelFileError, match="Tree: cannot be saved: parts: expected a Learner, found list"
    ):
        save_model(broken, tmp_path / "m")
    with pytest.raises(NotFittedError):
        save_model(Leaf(), tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_saving_and_loading_need_no_torch() -> None:
    code = (
        "import sys, loca.persistence; sys.exit('torch' in sys.modules or 'polars' in sys.modules)"
    )
    source = Path(__file__).parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(source)}, check=False
    )
    assert done.returncode == 0
