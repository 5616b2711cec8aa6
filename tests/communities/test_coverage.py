"""Greedy coverage: both places where neighbourhoods are kept against brute force in 64 bits."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import loca.communities.coverage as coverage_file
from loca.communities.coverage import (
    DeviceNeighbourhoods,
    HostNeighbourhoods,
    bytes_on_device,
    cover_greedily,
    product_error_bound,
    set_bits,
)
from loca.communities.geometry import unit_rows
from loca.errors import ConfigError, DataError
from loca.models.devices import free_bytes

CPU = torch.device("cpu")
TRITON_FILE = "loca.communities.common_bits_triton"


def random_rows(seed: int, users: int, dimensions: int) -> np.ndarray:
    return unit_rows(np.random.default_rng(seed).normal(size=(users, dimensions)))


def within_by_brute_force(rows: np.ndarray, radius: float) -> np.ndarray:
    """Distances between all pairs in 64 bits, users × users."""
    cosines = np.clip(rows.astype(np.float64) @ rows.astype(np.float64).T, -1, 1)
    within = np.arccos(cosines) * 2 / np.pi < radius
    np.fill_diagonal(within, True)
    return within


def cover_by_brute_force(rows: np.ndarray, count: int, radius: float) -> list[int]:
    """The paper's procedure, word by word, over the full matrix of distances."""
    within = within_by_brute_force(rows, radius)
    covered = np.zeros(len(rows), bool)
    chosen: list[int] = []
    while len(chosen) < count:
        gains = [
            -1 if user in chosen else int((within[user] & ~covered).sum())
            for user in range(len(rows))
        ]
        chosen.append(int(np.argmax(gains)))
        covered |= within[chosen[-1]]
        if covered.all():
            covered[:] = False
    return chosen


def cover_on_device(
    rows: np.ndarray, count: int, radius: float, block_bytes: int = 10**9
) -> list[int]:
    """What a GPU with room would choose, its torch operations done on the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            coverage_file,
            "DeviceNeighbourhoods",
            lambda rows, radius, _: DeviceNeighbourhoods(rows, radius, CPU, block_bytes),
        )
        patch.setattr(coverage_file, "choose_device", torch.device)
        patch.setattr(coverage_file, "free_bytes", lambda _: 10**12)
        return cover_greedily(rows, count, radius, "cuda").tolist()


def flags_of(neighbourhoods: Any, users: int) -> np.ndarray:
    rows = [np.unpackbits(neighbourhoods.of(user).view(np.uint8)) for user in range(users)]
    assert not np.array(rows)[:, users:].any(), "bits behind the last user must be empty"
    return np.array(rows)[:, :users].astype(bool)


def packed(flags: np.ndarray) -> np.ndarray:
    padded = np.zeros(-(-len(flags) // 64) * 64, bool)
    padded[: len(flags)] = flags
    return np.packbits(padded).view(np.uint64)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    users=st.integers(5, 150),
    dimensions=st.integers(2, 6),
    radius=st.sampled_from([0.05, 0.3, 0.6, 0.9, 1.5, 3.0]),
)
def test_greedy_coverage_equals_brute_force(
    seed: int, users: int, dimensions: int, radius: float
) -> None:
    rows = random_rows(seed, users, dimensions)
    count = min(users, 20)
    expected = cover_by_brute_force(rows, count, radius)
    assert cover_greedily(rows, count, radius).tolist() == expected
    assert cover_on_device(rows, count, radius, block_bytes=9000) == expected


@pytest.mark.parametrize(
    "make", [HostNeighbourhoods, lambda rows, width: DeviceNeighbourhoods(rows, width, CPU, 10**7)]
)
def test_neighbourhoods_of_many_blocks_are_those_of_brute_force_and_counted_so(make: Any) -> None:
    rows = random_rows(6, 4_200, 3)
    within, neighbourhoods = within_by_brute_force(rows, 0.4), make(rows, 0.4)
    np.testing.assert_array_equal(flags_of(neighbourhoods, 4_200), within)
    for share in (0.01, 0.1, 0.7):
        members = np.random.default_rng(7).random(4_200) < share
        np.testing.assert_array_equal(
            neighbourhoods.count_in(packed(members)), within[:, members].sum(axis=1)
        )


@pytest.mark.parametrize("dimensions", [1, 8, 200])
def test_a_32_bit_product_is_wrong_by_no_more_than_the_bound(dimensions: int) -> None:
    rows = random_rows(0, 400, dimensions)
    rows[:100] = rows[0]  # products near 1
    in_32_bits = torch.mm(torch.from_numpy(rows), torch.from_numpy(rows).T).numpy()
    in_64_bits = rows.astype(np.float64) @ rows.astype(np.float64).T
    assert np.abs(in_32_bits - in_64_bits).max() < product_error_bound(dimensions)


@pytest.mark.parametrize("radius", [0.25, 0.8, 1.0])
def test_many_users_alike_are_chosen_in_the_order_of_their_rows(radius: float) -> None:
    # Copies of few directions: every gain is a tie.
    rows = np.repeat(random_rows(5, 6, 4), 30, axis=0)
    expected = cover_by_brute_force(rows, 40, radius)
    assert cover_greedily(rows, 40, radius).tolist() == expected
    assert cover_on_device(rows, 40, radius) == expected


def test_when_all_are_covered_the_choosing_starts_again() -> None:
    # Two tight groups of three and two: one anchor each covers all, then the next of the larger
    # group, and so on.
    angles = np.deg2rad([0, 1, 2, 90, 91])
    rows = unit_rows(np.column_stack([np.cos(angles), np.sin(angles)]))
    assert cover_greedily(rows, 5, 0.1).tolist() == [0, 3, 1, 4, 2]
    assert cover_on_device(rows, 5, 0.1) == [0, 3, 1, 4, 2]


@pytest.mark.parametrize(
    "make", [HostNeighbourhoods, lambda rows, width: DeviceNeighbourhoods(rows, width, CPU)]
)
def test_a_pair_at_the_very_limit_is_decided_in_64_bits(make: Any) -> None:
    rows = random_rows(1, 300, 200)
    cosines = rows.astype(np.float64) @ rows.astype(np.float64).T
    for first, second in ((0, 1), (5, 290), (17, 200), (250, 3)):
        for nudge in (-1e-10, 1e-10):
            radius = 2 / np.pi * np.arccos(cosines[first, second] + nudge)
            within = flags_of(make(rows, radius), 300)
            assert within[first, second] == within[second, first] == (nudge < 0)


@pytest.mark.parametrize(
    "make", [HostNeighbourhoods, lambda rows, width: DeviceNeighbourhoods(rows, width, CPU)]
)
def test_users_at_right_angles_are_not_within_a_radius_of_1(make: Any) -> None:
    # All pairs lie at the limit, or within rounding of it; a user without a direction is its own
    # neighbour alone.
    rows = np.concatenate(
        [np.repeat(np.eye(10, dtype=np.float32), 7, axis=0), np.zeros((2, 10), np.float32)]
    )
    alike = np.repeat(np.arange(12), [7] * 10 + [1, 1])
    np.testing.assert_array_equal(flags_of(make(rows, 1.0), 72), alike[:, None] == alike)


def test_embeddings_that_may_not_be_written_to_are_read_all_the_same() -> None:
    rows = random_rows(2, 40, 3)
    rows.flags.writeable = False
    threads = torch.get_num_threads()
    assert cover_greedily(rows, 5, 0.3).tolist() == cover_by_brute_force(rows, 5, 0.3)
    assert torch.get_num_threads() == threads


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=50))
def test_set_bits_are_those_of_the_binary_digits(words: list[int]) -> None:
    expected = [bin(word % 2**64).count("1") for word in words]
    assert set_bits(torch.tensor(words)).tolist() == expected


def test_neighbourhoods_that_do_not_fit_into_memory_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("loca.memory.available_bytes", lambda: 100)
    with pytest.raises(
        DataError,
        match="greedy coverage over 100 users: 2 kB of memory needed, 100 B are free; "
        "choose anchors by 'kmeans'",
    ):
        cover_greedily(random_rows(0, 100, 3), 2, 0.5)
    with pytest.raises(ConfigError, match="device"):
        cover_greedily(random_rows(0, 100, 3), 2, 0.5, "gpu")


def test_a_gpu_is_used_where_there_is_room_and_left_with_a_word_where_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "loca")
    rows = random_rows(0, 100, 3)
    built_on: list[torch.device] = []

    def build(embeddings: np.ndarray, radius: float, device: torch.device) -> DeviceNeighbourhoods:
        built_on.append(device)
        return DeviceNeighbourhoods(embeddings, radius, CPU)

    monkeypatch.setattr(coverage_file, "DeviceNeighbourhoods", build)
    monkeypatch.setattr(coverage_file, "choose_device", torch.device)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 70_000)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 50_000)
    for free, used in ((1000, False), (10**7, True)):
        caplog.clear()
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=free: (free, 10**9))
        assert free_bytes(torch.device("cuda")) == free + 20_000
        assert cover_greedily(rows, 7, 0.4, torch.device("cuda")).tolist() == cover_by_brute_force(
            rows, 7, 0.4
        )
        assert bool(built_on) is used
        assert "greedy coverage over 100 users: 145 kB needed on cuda" in caplog.text
        assert ("21 kB are free there; done on the CPU" in caplog.text) is not used


def test_a_gpu_that_has_less_room_than_it_said_is_left_with_a_word(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "loca")

    def refuse(*_: Any) -> None:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(coverage_file, "DeviceNeighbourhoods", refuse)
    monkeypatch.setattr(coverage_file, "choose_device", torch.device)
    monkeypatch.setattr(coverage_file, "free_bytes", lambda _: 10**9)
    rows = random_rows(0, 100, 3)
    assert cover_greedily(rows, 7, 0.4, "cuda").tolist() == cover_by_brute_force(rows, 7, 0.4)
    assert "145 kB needed on cuda, more than there was; done on the CPU" in caplog.text


def test_what_a_gpu_needs_at_the_size_of_ml_20m_is_bits_embeddings_and_a_block() -> None:
    needed = bytes_on_device(138_493, 200)
    assert 2.4e9 + 0.22e9 < needed < 2.4e9 + 0.23e9 + 1.5e9


class Pointer:
    """Where a kernel reads or writes: a flat array and places in it."""

    def __init__(self, values: torch.Tensor, places: Any = 0) -> None:
        self.values, self.places = values, places

    def __add__(self, more: Any) -> Pointer:
        return Pointer(self.values, self.places + more)


def load(pointer: Pointer, mask: torch.Tensor, other: int) -> torch.Tensor:
    places = torch.where(mask, pointer.places, 0)
    assert int(pointer.places[mask].max()) < pointer.values.numel()
    return torch.where(mask, pointer.values.ravel()[places], other)


def store(pointer: Pointer, value: torch.Tensor) -> None:
    pointer.values[pointer.places] = value


@pytest.fixture
def no_triton_file_yet() -> Iterator[None]:
    sys.modules.pop(TRITON_FILE, None)
    yield
    sys.modules.pop(TRITON_FILE, None)


@pytest.fixture
def stand_in_for_triton(no_triton_file_yet: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a kernel program after program with torch on the CPU."""
    language: Any = ModuleType("triton.language")
    language.int64, language.arange, language.zeros, language.load, language.store = (
        torch.int64, torch.arange, torch.zeros, load, store
    )  # fmt: skip
    language.sum = lambda values, axis: values.sum(dim=axis)

    def launch(kernel: Any, grid: tuple[int], *arguments: Any, **options: Any) -> None:
        for program in range(grid[0]):
            language.program_id = lambda axis, program=program: torch.tensor([program])[axis]
            given = [
                Pointer(value) if isinstance(value, torch.Tensor) else value for value in arguments
            ]
            kernel(*given, **options)

    class Kernel:
        def __init__(self, function: Any) -> None:
            self.function = function

        def __getitem__(self, grid: tuple[int]) -> Any:
            return lambda *arguments, **options: launch(self.function, grid, *arguments, **options)

    triton: Any = SimpleNamespace(jit=Kernel, language=language)
    monkeypatch.setitem(sys.modules, "triton", triton)
    monkeypatch.setitem(sys.modules, "triton.language", language)


@pytest.mark.parametrize(("rows", "words"), [(5, 1), (3, 512), (4, 1100)])
def test_the_triton_program_counts_the_bits_in_common(
    stand_in_for_triton: None, rows: int, words: int
) -> None:
    triton_file = importlib.import_module(TRITON_FILE)
    rng = np.random.default_rng(words)
    bits = rng.integers(0, 2**64, (rows, words), dtype=np.uint64)
    members = rng.integers(0, 2**64, words, dtype=np.uint64)
    found = triton_file.count_common(
        torch.tensor(bits.view(np.int64)), torch.tensor(members.view(np.int64))
    )
    assert found.tolist() == np.bitwise_count(bits & members).sum(axis=1).tolist()


def test_the_triton_program_is_used_where_it_can_be(
    stand_in_for_triton: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coverage_file, "has_kernels", lambda _: True)
    rows = random_rows(3, 90, 4)
    neighbourhoods = DeviceNeighbourhoods(rows, 0.6, CPU)
    monkeypatch.setattr(coverage_file, "set_bits", None)  # plain torch would need it
    members = np.random.default_rng(0).random(90) < 0.4
    expected = within_by_brute_force(rows, 0.6)[:, members].sum(axis=1)
    assert neighbourhoods.count_in(packed(members)).tolist() == expected.tolist()


def test_without_triton_plain_torch_counts_and_says_so(
    no_triton_file_yet: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "loca")
    monkeypatch.setitem(sys.modules, "triton", None)  # type: ignore[arg-type]
    monkeypatch.setattr(coverage_file, "has_kernels", lambda _: True)
    rows = random_rows(3, 90, 4)
    neighbourhoods = DeviceNeighbourhoods(rows, 0.6, CPU)
    members = np.random.default_rng(0).random(90) < 0.4
    expected = within_by_brute_force(rows, 0.6)[:, members].sum(axis=1)
    for _ in range(2):
        assert neighbourhoods.count_in(packed(members)).tolist() == expected.tolist()
    assert (
        caplog.text.count("no Triton program (ModuleNotFoundError); plain torch counts instead")
        == 1
    )
