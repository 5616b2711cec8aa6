"""Large arrays stay in their files: opening a model reads next to nothing, and what is read on demand is right."""

from __future__ import annotations

import gc
import json
import os
import resource
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from loca.communities.embeddings import GivenEmbeddings, TruncatedSVD
from loca.communities.geometry import Quantile
from loca.communities.kernel import Kernels
from loca.communities.mixture import Mixtures
from loca.communities.random_groups import RandomGroups
from loca.data.splits import Split
from loca.errors import ModelFileError
from loca.local.engines.differences.engine import Differences
from loca.local.engines.loop import Loop
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.models.mult_vae import MultDAE, MultVAE
from loca.models.popularity import Popularity
from loca.models.recommender import Recommender, clone
from loca.persistence import arrays as array_files
from loca.persistence import load_model, save_model
from loca.persistence.arrays import (
    Notes,
    loads_into_memory,
    map_arrays,
    read_arrays,
    write_arrays,
)
from loca.persistence.sealed_json import seal
from loca.registry import KINDS as CATALOGUE
from saved_model_examples import (
    KINDS,
    Tree,
    example_model,
    load,
    same,
    through_a_folder,
)

ROWS = 1100
GB = 1024**3


def large_model(seed: int = 0) -> Tree:
    """A model with one array above the limit (18 MB) and a small one."""
    rng = np.random.default_rng(seed)
    model = Tree().fit(None)
    model.arrays_ = {"large": rng.random((ROWS, 4096), np.float32), "small": rng.random(5)}
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that holds the large model."""
    save_model(large_model(), tmp_path / "m")
    return tmp_path / "m"


@pytest.fixture
def all_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps every array that has any numbers in it."""
    monkeypatch.setattr(array_files, "LARGEST_READ", 0)


def array_file(folder: Path) -> Path:
    (path,) = folder.glob("arrays-*.safetensors")
    return path


def flip(path: Path, place: int) -> None:
    with open(path, "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))


def place_of(path: Path, name: str) -> int:
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    return start + int(json.loads(data[8:start])[name]["data_offsets"][0])


def test_a_large_array_is_a_read_only_view_of_its_file_and_a_small_one_is_not(folder: Path) -> None:
    back = load(folder).arrays_
    assert same(back, large_model().arrays_)
    assert not back["large"].flags.owndata
    assert back["large"].ctypes.data % 64 == 0
    with pytest.raises(ValueError, match="read-only"):
        back["large"][0, 0] = 0
    back["small"][0] = 0


def test_a_mapped_model_stays_itself_when_others_are_saved_over_it_or_its_folder_goes(
    folder: Path,
) -> None:
    back = load(folder)
    save_model(large_model(1), folder)
    save_model(large_model(2), folder)
    assert same(back, large_model())
    assert same(load(folder), large_model(2))
    for one in folder.iterdir():
        one.unlink()
    assert same(back, large_model())


def test_a_mapped_model_can_be_saved_over_itself(folder: Path) -> None:
    save_model(load(folder), folder)
    assert same(load_model(folder, KINDS, verify=True), large_model())


@pytest.mark.parametrize("cut", [1, 4096, 18_000_000])
def test_a_large_file_that_was_cut_is_refused(folder: Path, cut: int) -> None:
    path = array_file(folder)
    os.truncate(path, path.stat().st_size - cut)
    with pytest.raises(
        ModelFileError, match=r"expected 18,022,.* bytes, found .*; damaged, copy the folder again"
    ):
        load(folder)


def test_a_flipped_bit_of_a_mapped_array_is_noticed_by_verify(folder: Path) -> None:
    flip(array_file(folder), place_of(array_file(folder), "state/large") + 9_000_000)
    assert not same(load(folder), large_model()), (
        "the contents of mapped arrays are not read at opening"
    )
    with pytest.raises(
        ModelFileError, match="'state/large' has changed since it was saved; copy the folder again"
    ):
        load_model(folder, KINDS, verify=True)


def test_a_flipped_bit_of_a_small_array_is_noticed_without_verify(folder: Path) -> None:
    flip(array_file(folder), place_of(array_file(folder), "state/small") + 7)
    with pytest.raises(ModelFileError, match="'state/small' has changed since it was saved"):
        load(folder)


def test_verify_accepts_what_is_sound(folder: Path) -> None:
    assert same(load_model(folder, KINDS, verify=True), large_model())


def make_huge(folder: Path, rows: int) -> None:
    """Makes the large array `rows` long, by a believable manifest and a file that is one hole."""
    path = array_file(folder)
    with open(path, "r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header["state/large"] |= {"shape": [rows, 4096], "data_offsets": [0, rows * 4096 * 4]}
        header["state/small"]["data_offsets"] = [rows * 4096 * 4, rows * 4096 * 4 + 40]
        text = json.dumps(header).encode()
        text += b" " * (-(8 + len(text)) % 64)
        file.seek(0)
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + rows * 4096 * 4)
        file.seek(0, os.SEEK_END)
        file.write(large_model().arrays_["small"].tobytes())
    manifest = json.loads((folder / "model.json").read_text())
    manifest["files"][path.name] = path.stat().st_size
    manifest["model"]["arrays"]["arrays"]["state/large"]["shape"] = [rows, 4096]
    sealed = ("written_by", "model", "known", "files", "report", "remarks")
    manifest["checksum"] = seal({name: manifest[name] for name in sealed})
    (folder / "model.json").write_text(json.dumps(manifest))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_opening_a_model_of_many_gigabytes_takes_next_to_no_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 12 * GB // (4096 * 4)
    make_huge(folder, rows)
    monkeypatch.setattr("loca.persistence.model_io.available_bytes", lambda: 1_000_000)
    gc.collect()
    before = resident_bytes()
    back = load(folder).arrays_
    assert resident_bytes() - before < 20_000_000
    assert back["large"].nbytes == 12 * GB
    assert not back["large"][rows - 1].any()
    assert same(back["small"], large_model().arrays_["small"])


def test_what_must_be_read_at_once_still_counts_as_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loca.persistence.model_io.available_bytes", lambda: 39)
    with pytest.raises(ModelFileError, match="the model needs 40 B of memory and 39 B are free"):
        load(folder)


def test_every_array_of_a_tree_can_be_mapped(tmp_path: Path, all_mapped: None) -> None:
    save_model(example_model(), tmp_path / "m")
    for verify in (False, True):
        assert same(load_model(tmp_path / "m", KINDS, verify=verify), example_model())


NARROW = Kernels(n=2, train_bandwidth=Quantile(0.6), answer_bandwidth=Quantile(0.2))
SMALL = {"latent": 4, "epochs": 2, "batch_size": 200}
EMBEDDINGS = np.random.default_rng(0).random((400, 4), np.float32)


MADE: dict[str, Callable[[], Recommender]] = {
    "popularity": Popularity,
    "ease": EASE,
    "mult-vae": lambda: MultVAE(hidden=6, **SMALL),
    "mult-dae": lambda: MultDAE(**SMALL),
    "loca-ease": lambda: Loca(
        base=EASE(), communities=clone(NARROW, embedding=TruncatedSVD(dimensions=4))
    ),
    "loca-given": lambda: Loca(
        base=EASE(), communities=clone(NARROW, embedding=GivenEmbeddings(embeddings=EMBEDDINGS))
    ),
    "loca-vae": lambda: Loca(base=MultVAE(**SMALL), communities=NARROW),
    "loca-mixtures": lambda: Loca(base=EASE(), communities=Mixtures(n=4)),
    "loca-groups": lambda: Loca(base=MultVAE(**SMALL), communities=RandomGroups(n=4)),
    "loca-loop": lambda: Loca(base=MultVAE(**SMALL), communities=NARROW, engine=Loop()),
    "loca-differences": lambda: Loca(
        base=EASE(), communities=Mixtures(n=4), engine=Differences(max_bytes=5000)
    ),
    "ensemble-dae": lambda: Ensemble(base=MultDAE(**SMALL), models=2),
}


@pytest.mark.filterwarnings("error", "ignore:training")
@pytest.mark.parametrize("name", MADE)
def test_every_kind_of_model_answers_from_mapped_arrays_and_can_be_fitted_again(
    name: str, tmp_path: Path, planted_split: Split, all_mapped: None
) -> None:
    model = MADE[name]().fit(planted_split.train, validation=planted_split.validation)
    model.save(tmp_path / "m")
    back: Recommender = load_model(tmp_path / "m", CATALOGUE)
    histories = planted_split.train.histories(np.arange(20))
    assert np.array_equal(back.score(histories), model.score(histories))
    back.save(tmp_path / "m")
    again = load_model(tmp_path / "m", CATALOGUE, verify=True)
    assert np.array_equal(again.score(histories), model.score(histories))
    back.fit(planted_split.train, validation=planted_split.validation)
    assert np.array_equal(back.score(histories), model.score(histories))


def write(path: Path, arrays: dict[str, Any], **sizes: int) -> Notes:
    with open(path, "wb") as file:
        return write_arrays(file, arrays, **sizes)[0]


def test_arrays_written_in_many_pieces_are_the_same(tmp_path: Path) -> None:
    grid = np.arange(240, dtype=np.float32).reshape(4, 6, 10)
    arrays = {
        "plain": grid,
        "turned": grid.T,
        "strided": grid[::2, :, ::-3],
        "big": grid.astype(">f4"),
        "one": grid[0, 0, 0:1],
    }
    arrays |= {
        "none": grid[:0],
        "number": np.array(3.0),
        "halves": grid.T.astype(np.float16),
        "flags": grid > 7,
    }
    whole = write(tmp_path / "whole", arrays)
    notes = write(tmp_path / "pieces", arrays, piece_bytes=64)
    assert notes == whole
    assert (tmp_path / "pieces").read_bytes() == (tmp_path / "whole").read_bytes()
    back = read_arrays(map_arrays(tmp_path / "pieces"), notes, verify=True)
    assert all(np.array_equal(back[name], array) for name, array in arrays.items())


def test_a_large_array_is_written_without_a_second_copy(tmp_path: Path) -> None:
    grid = np.ones((3000, 2000), np.float32)
    for array in (grid, grid.T, grid.astype(">f4")):
        tracemalloc.start()
        write(tmp_path / "a", {"a": array}, piece_bytes=1_000_000)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 3_000_000


def test_arrays_start_at_multiples_of_64_where_their_sizes_allow_it(tmp_path: Path) -> None:
    arrays = {
        "a": np.ones(3, np.int8),
        "b": np.ones(64, np.float16),
        "c": np.ones(5),
        "d": np.ones((32, 4), np.float32),
    }
    write(tmp_path / "a", arrays)
    starts = {name: place_of(tmp_path / "a", name) for name in arrays}
    assert starts["b"] % 64 == starts["d"] % 64 == starts["c"] % 64 == 0
    assert min(starts.values()) % 64 == 0


def test_an_array_that_a_foreign_program_left_unaligned_is_copied(
    tmp_path: Path, all_mapped: None
) -> None:
    header = {"a": {"dtype": "F64", "shape": [6], "data_offsets": [0, 48]}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8 + 1)
    (tmp_path / "a").write_bytes(len(text).to_bytes(8, "little") + text + np.arange(6.0).tobytes())
    views = map_arrays(tmp_path / "a")
    assert loads_into_memory(views["a"])
    note = {"dtype": "F64", "shape": [6], "checksum": zlib.crc32(np.arange(6.0).tobytes())}
    (back,) = read_arrays(views, {"a": note}, verify=False).values()
    assert back.flags.aligned
    assert back.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_model_of_many_parts_takes_few_file_handles(tmp_path: Path) -> None:
    model = Tree().fit(None)
    model.parts_ = {f"part {number}": example_model().parts_["global"] for number in range(60)}
    save_model(model, tmp_path / "m")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 20, hard))
    try:
        assert len(load(tmp_path / "m").parts_) == 60
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


NUMBER_TYPES = [
    *(np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64),
    *(np.uint8, np.uint16, np.uint32, np.uint64, np.bool_),
]


@pytest.mark.parametrize("dtype", NUMBER_TYPES)
def test_arrays_of_every_number_type_come_back_writable_and_equal(
    tmp_path: Path, dtype: type
) -> None:
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
        assert (start + note["data_offsets"][0]) % (
            int(note["dtype"].lstrip("FIUBOL") or 8) // 8
        ) == 0


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
