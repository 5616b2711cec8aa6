"""Local EASE: both systems against dense solutions, what is kept of them, and their blended answer."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import loca.local.engines.differences.compressed_weights as weights_file
import loca.local.engines.differences.ease_differences as answers_file
import loca.local.engines.differences.engine as engine_file
import loca.local.engines.differences.solving as solving_file
from loca.data.splits import Split
from loca.errors import ConfigError, DataError, ModelFileError, NotFittedError
from loca.local.engines import engine_for
from loca.local.engines.differences.compressed_weights import (
    CompressedWeights,
    SizeBudget,
    WideRows,
)
from loca.local.engines.differences.ease_differences import EaseDifferences, dense_product
from loca.local.engines.differences.engine import Differences
from loca.local.engines.differences.solving import (
    largest_differences,
    plan_solving,
    solve_differences,
)
from loca.local.engines.engine import ManyFits
from loca.local.engines.loop import Loop
from loca.local.ensemble import Ensemble
from loca.local.local_models import SeparateModels, blend_scores
from loca.models.ease import EASE
from loca.models.ease_solver import EaseSystem, solve_systems
from loca.models.recommender import TrainingData
from loca.persistence.fit_context import NO_CONTEXT, FitContext, checkpoint_in
from loca.persistence.learned import restored, state_of
from loca.persistence.manifest import ModelState
from loca.typing import FloatArray

CPU = torch.device("cpu")
TALL, WIDE = (60, 25), (25, 60)
# What 32 bits leave open of weights up to 1: ε · √60 · a condition of about 20. A wrong weight is wrong by far more.
ROUNDING = 2e-5
SCORES = 1e-4  # the same of scores, which are sums of some weights


def random_matrix(seed: int, shape: tuple[int, int]) -> csr_array:
    return csr_array((np.random.default_rng(seed).random(shape) < 0.2).astype(np.float32))


def random_weights(seed: int, count: int) -> FloatArray:
    """Weights from 0 to 3, about a fifth of them exactly 0."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0, 3, count) * (rng.random(count) < 0.8)


def dense_solution(matrix: csr_array, weights: FloatArray, l2: float) -> FloatArray:
    """Steck's closed form, term by term, in 64 bits."""
    rows = matrix.toarray().astype(np.float64)
    inverse = np.linalg.inv(rows.T @ (weights[:, None] * rows) + l2 * np.eye(rows.shape[1]))
    solution = -inverse / np.diag(inverse)
    np.fill_diagonal(solution, 0)
    return solution


def solve_local(matrix: csr_array, weights: FloatArray, l2: float) -> torch.Tensor:
    """The weights of one local system."""
    return next(solve_systems([EaseSystem.of(matrix, weights, l2)], CPU)).weights()


def many_fits(
    base: Any,
    matrix: csr_array,
    count: int,
    weights_of: Any = None,
    context: FitContext = NO_CONTEXT,
) -> ManyFits:
    weights = np.ones(matrix.shape[0], np.float32)
    data = TrainingData(matrix, matrix, weights, None, context, device="cpu")
    return ManyFits([base] * count, data, weights_of, "local models")


def fitted_on(
    matrix: csr_array, count: int, max_bytes: int, context: FitContext = NO_CONTEXT
) -> tuple[EaseDifferences, list[EASE], EASE]:
    """The kept differences of `count` communities with random weights, the same as dense models, and the centre."""
    weights = [random_weights(number, matrix.shape[0]) for number in range(count)]
    centre = EASE(l2=3.0).fit(matrix)
    dense = [EASE(l2=3.0).fit(matrix, user_weights=one) for one in weights]
    fits = many_fits(EASE(l2=3.0), matrix, count, weights.__getitem__, context)
    kept = solve_differences(fits, centre, max_bytes)
    return kept, dense, centre


def blended_densely(
    kept: EaseDifferences, histories: csr_array, answering: csr_array
) -> torch.Tensor:
    """The answers as a GPU makes them, on the CPU."""
    shares = answering.astype(np.float64)
    shares.data /= np.repeat(np.asarray(shares.sum(axis=1)).ravel(), np.diff(shares.indptr))
    return kept.blend_dense(histories, csr_array(shares.astype(np.float32)), CPU)


def questions(seed: int, users: int, items: int, communities: int) -> tuple[csr_array, csr_array]:
    """Weighted histories, one of them empty, and answer weights, with an uncovered user."""
    rng = np.random.default_rng(seed)
    histories = (rng.random((users, items)) < 0.2) * rng.uniform(0.1, 2, (users, items))
    answering = (rng.random((users, communities)) < 0.6) * rng.uniform(0.1, 1, (users, communities))
    histories[1], answering[2] = 0, 0
    return csr_array(histories.astype(np.float32)), csr_array(answering.astype(np.float32))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), entries=st.integers(1, 400))
def test_exactly_the_largest_differences_are_stored(seed: int, entries: int) -> None:
    matrix = random_matrix(seed, (15, 20))
    solution = next(
        solve_systems([EaseSystem.of(matrix, random_weights(seed, 15) + 0.1, 2.0)], CPU)
    )
    centre = torch.from_numpy(EASE(l2=2.0).fit(matrix).weights_)
    found = largest_differences(
        solution.weight_rows, centre, SizeBudget.of(20, 4 * 22 + 4 * entries)
    )
    wanted = (solution.weights() - centre).numpy()
    order = np.lexsort((np.arange(400), -np.abs(wanted).ravel()))[: min(entries, 380)]
    expected = np.zeros(400, np.float32)
    expected[order] = wanted.ravel()[order]
    assert len(found["columns"]) == min(min(entries, 380), np.count_nonzero(wanted))
    stored = CompressedWeights(
        offsets=np.array([0, len(found["columns"])]),
        **(found | {"row_starts": found["row_starts"][None]}),
    )
    np.testing.assert_allclose(stored.rows(np.arange(20)).toarray().ravel(), expected, rtol=1e-3)


@pytest.mark.parametrize("odd", [False, True])
def test_the_largest_are_found_in_many_blocks_and_where_the_sampled_rows_mislead(odd: bool) -> None:
    # Of 1,100 rows every second is sampled for the first threshold; where they are the large ones it is too high.
    weights = torch.from_numpy(
        np.random.default_rng(0).normal(size=(1100, 1100)).astype(np.float32)
    )
    weights[::2] *= 1000 if odd else 1
    found = largest_differences(
        weights.__getitem__, torch.zeros(1100, 1100), SizeBudget.of(1100, 4 * 1102 + 4 * 900_000)
    )
    sizes = weights.abs().flatten()
    chosen = torch.zeros_like(sizes, dtype=torch.bool)
    chosen[sizes.topk(900_000).indices] = True
    rows, columns = np.divmod(chosen.nonzero().flatten().numpy(), 1100)
    np.testing.assert_array_equal(found["columns"], columns)
    np.testing.assert_array_equal(np.diff(found["row_starts"]), np.bincount(rows, minlength=1100))


def test_among_equal_differences_the_first_are_kept() -> None:
    found = largest_differences(
        torch.ones(6, 6).__getitem__, torch.zeros(6, 6), SizeBudget.of(6, 4 * 8 + 4 * 9)
    )
    assert found["columns"].tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2]
    assert found["row_starts"].tolist() == [0, 6, 9, 9, 9, 9, 9]


def test_very_small_differences_survive_16_bits() -> None:
    weights = solve_local(random_matrix(9, (15, 20)), np.ones(15), 2.0)
    found = largest_differences(
        (weights * 1e-12).__getitem__, torch.zeros(20, 20), SizeBudget.of(20, 4 * 22 + 4 * 380)
    )
    assert found["values"].dtype == np.float16
    rows = np.repeat(np.arange(20), np.diff(found["row_starts"]))
    back = found["values"].astype(np.float64) * found["scales"][0]
    np.testing.assert_allclose(back, weights.numpy()[rows, found["columns"]] * 1e-12, rtol=1e-3)


def test_room_is_used_in_the_shortest_types_that_hold_everything() -> None:
    whole = SizeBudget.of(100, 4 * 102 + 6 * 9900)
    assert (whole.entries, whole.value_type, whole.index_type) == (9900, np.float32, np.uint16)
    halves = SizeBudget.of(100, 4 * 102 + 6 * 9900 - 1)
    assert (halves.entries, halves.value_type) == (9900, np.float16)
    assert SizeBudget.of(100, 4 * 102 + 4 * 500 + 3).entries == 500
    assert SizeBudget.of(70_000, 4 * 70_002 + 6 * 10).entries == 10
    assert SizeBudget.of(70_000, 9_000_000).index_type == np.uint32
    with pytest.raises(
        ConfigError, match="max_bytes: expected at least 412 for 100 items, found 411"
    ):
        SizeBudget.of(100, 411)


@pytest.mark.parametrize("shape", [TALL, WIDE])
@pytest.mark.parametrize("at_once", [1, 10**7])
@pytest.mark.parametrize("users", [17, 600])
def test_everything_kept_answers_as_the_loop_of_dense_models(
    shape: tuple[int, int], at_once: int, users: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, dense, _ = fitted_on(random_matrix(10, shape), 5, 10**6)
    monkeypatch.setattr(answers_file, "ENTRIES_AT_ONCE", at_once)
    histories, answering = questions(11, users, shape[1], 5)
    expected = blend_scores(histories, answering, lambda j, rows: dense[j].score(rows))
    found = kept.blend(histories, answering)
    assert isinstance(found, np.ndarray)
    assert (found.dtype, kept.device) == (
        np.float32,
        None,
    )  # an array: torch is not needed for an answer
    np.testing.assert_allclose(found, expected, atol=SCORES)
    assert not expected[2].any()
    assert not found[2].any()
    np.testing.assert_allclose(
        kept.score_with(3, histories), dense[3].score(histories), atol=SCORES
    )
    assert (len(kept), kept.count_items()) == (5, shape[1])


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), max_bytes=st.sampled_from([400, 700, 2000, 10**6]))
def test_both_ways_to_blend_equal_the_sum_over_what_is_kept(seed: int, max_bytes: int) -> None:
    kept, _, centre = fitted_on(random_matrix(seed, (15, 40)), 3, max_bytes)
    histories, answering = questions(seed, 9, 40, 3)
    assert kept.differences_ is not None
    models = (
        kept.differences_.rows(np.arange(3 * 40)).toarray().reshape(3, 40, 40) + centre.weights_
    )
    expected = blend_scores(histories, answering, lambda j, rows: rows @ models[j])
    np.testing.assert_allclose(kept.blend(histories, answering), expected, atol=SCORES)
    dense = blended_densely(kept, histories, answering)
    np.testing.assert_allclose(dense, expected, atol=SCORES)
    assert torch.equal(dense, blended_densely(kept, histories, answering))


def test_rows_with_gaps_between_them_are_those_of_the_whole() -> None:
    kept = fitted_on(random_matrix(24, WIDE), 3, 900)[0].differences_
    assert kept is not None
    whole = kept.rows(np.arange(3 * 60)).toarray()
    assert np.count_nonzero(whole) > 100
    for keys in ([3, 7, 59, 61, 150], [60, 61, 62], [179], []):
        np.testing.assert_array_equal(
            kept.rows(np.array(keys, dtype=np.int64)).toarray(), whole[keys]
        )


@pytest.mark.parametrize("items", [1, 40])
def test_reading_all_rows_or_picking_them_gives_the_same_answer(items: int) -> None:
    kept, dense, _ = fitted_on(random_matrix(25, WIDE), 3, 10**6)
    histories = csr_array((np.ones(items, np.float32), np.arange(items), [0, items]), shape=(1, 60))
    answering = csr_array(np.array([[0.2, 0.0, 0.8]], np.float32))
    expected = blend_scores(histories, answering, lambda j, rows: dense[j].score(rows))
    np.testing.assert_allclose(kept.blend(histories, answering), expected, atol=SCORES)


def test_more_room_means_a_smaller_error() -> None:
    matrix = random_matrix(12, (30, 50))
    histories, answering = questions(13, 20, 50, 4)
    errors = []
    for max_bytes in (600, 2000, 6000, 10**6):
        kept, dense, _ = fitted_on(matrix, 4, max_bytes)
        expected = blend_scores(
            histories, answering, lambda j, rows, dense=dense: dense[j].score(rows)
        )
        errors.append(float(np.abs(kept.blend(histories, answering) - expected).mean()))
        stored = kept.differences_
        assert stored.columns.nbytes + stored.values.nbytes <= 4 * max_bytes
    assert errors == sorted(errors, reverse=True)


def test_histories_without_any_item_and_no_users_at_all_are_answered() -> None:
    kept, _, _ = fitted_on(random_matrix(14, WIDE), 2, 10**6)
    nothing, ones = csr_array((3, 60), dtype=np.float32), csr_array(np.ones((3, 2), np.float32))
    assert not kept.blend(nothing, ones).any()
    assert not blended_densely(kept, nothing, ones).any()
    assert kept.blend(
        csr_array((0, 60), dtype=np.float32), csr_array((0, 2), dtype=np.float32)
    ).shape == (0, 60)


def test_finished_communities_are_saved_and_not_solved_again(tmp_path: Path) -> None:
    matrix, solved = random_matrix(15, WIDE), []

    def weights_of(number: int) -> FloatArray:
        solved.append(number)
        return random_weights(number, 25)

    with checkpoint_in(tmp_path / "work", fingerprint={"a": 1}, resume=False) as context:
        whole, _, centre = fitted_on(matrix, 4, 900, context)
        context.checkpoint.delete("local models 2")
        again = solve_differences(
            many_fits(EASE(l2=3.0), matrix, 4, weights_of, context), centre, 900
        )
    assert solved == [2]
    arrays = state_of(again.differences_).arrays
    for name, array in state_of(whole.differences_).arrays.items():
        np.testing.assert_array_equal(arrays[name], array)


def test_groups_of_communities_give_what_they_give_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matrix = random_matrix(16, TALL)
    alone, _, _ = fitted_on(matrix, 5, 10**6)
    monkeypatch.setattr(solving_file, "plan_solving", lambda *given: 2)
    together, _, _ = fitted_on(matrix, 5, 10**6)
    histories, answering = questions(17, 10, 25, 5)
    np.testing.assert_allclose(
        together.blend(histories, answering), alone.blend(histories, answering), atol=SCORES
    )


def test_the_plan_refuses_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loca.memory.available_bytes", lambda: 1000)
    with pytest.raises(
        DataError, match=r"local models: 3 local EASE models: .* take fewer communities"
    ):
        plan_solving(many_fits(EASE(), random_matrix(18, TALL), 3), SizeBudget.of(25, 5000), CPU)


def test_the_plan_of_a_gpu_takes_as_many_systems_as_half_of_its_memory_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matrix, room, gpu = random_matrix(19, TALL), SizeBudget.of(25, 5000), torch.device("cuda")
    fixed, square = 4 * (25**2 + 4 * 1024 * 25), 4 * 25**2
    for free, expected in ((2 * (fixed + 6 * square), 3), (10**9, 40), (2 * fixed, 1)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, free))
        assert plan_solving(many_fits(EASE(), matrix, 40), room, gpu) == expected
    large = csr_array(np.eye(600, dtype=np.float32))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10**9, 10**9))
    assert plan_solving(many_fits(EASE(), large, 40), SizeBudget.of(600, 5000), gpu) == 1
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 1000))
    with pytest.raises(DataError, match="of GPU memory needed, 1 kB are free; use the CPU"):
        plan_solving(many_fits(EASE(), matrix, 40), room, gpu)


def damaged(changes: Mapping[str, Any]) -> CompressedWeights:
    """Load stored differences of which some arrays are others; None leaves one out."""
    model, _, _ = fitted_on(random_matrix(20, WIDE), 3, 900)
    arrays = {**state_of(model.differences_).arrays, **changes}
    present = {name: array for name, array in arrays.items() if array is not None}
    return restored(CompressedWeights, {}, ModelState(arrays=present))


def test_a_saved_state_comes_back_without_a_copy_and_answers_the_same() -> None:
    model, _, centre = fitted_on(random_matrix(20, WIDE), 3, 900)
    state = state_of(model.differences_)
    differences = restored(CompressedWeights, {}, state)
    for name, array in state.arrays.items():
        assert np.shares_memory(getattr(differences, name), array)
    histories, answering = questions(21, 9, 60, 3)
    # In the files of a shard the centre is missing.
    parts: dict[str, Any] = {"differences": differences}
    again = restored(EaseDifferences, {}, ModelState(parts=parts))
    with pytest.raises(NotFittedError):
        again.blend(histories, answering)
    frozen = EASE(l2=3.0)
    frozen.weights_ = centre.weights_.copy()
    frozen.weights_.flags.writeable = False
    again = restored(EaseDifferences, {}, ModelState(parts={**parts, "centre": frozen}))
    expected = model.blend(histories, answering)
    np.testing.assert_array_equal(again.blend(histories, answering), expected)
    dense = blended_densely(again, histories, answering)
    np.testing.assert_allclose(dense, expected, atol=SCORES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": np.zeros(3, np.uint16)}, r"values: expected shape \(3\), entries"),
        ({"columns": np.zeros(3, np.int64)}, "columns: .* of uint16 or uint32, found .* of int64"),
        ({"values": np.zeros(3, np.float64)}, "values: .* of float16 or float32, found .* float64"),
        ({"columns": None}, "columns is missing"),
        ({"row_starts": np.zeros((3, 61), np.uint32)}, "row starts that rise"),
        (
            {"row_starts": np.zeros((4, 61), np.uint32)},
            r"offsets: expected shape \(5\), communities \+ 1",
        ),
        ({"offsets": np.arange(5)}, r"offsets: expected shape \(4\), communities \+ 1"),
        ({"offsets": np.array([0, 5, 4, 9])}, "row starts that rise"),
        ({"row_starts": np.zeros((3, 1), np.uint32)}, "are those of no items"),
        ({"scales": np.array([1, 0, 1], np.float32)}, "expected scales above 0"),
        ({"scales": np.array([1, np.inf, 1], np.float32)}, "scales: expected finite numbers"),
        ({"scales": np.array([1, 1], np.float32)}, r"scales: expected shape \(3\)"),
    ],
)
def test_a_damaged_state_is_refused(changes: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        damaged(changes)


def test_columns_beyond_the_catalogue_and_too_few_entries_are_refused() -> None:
    arrays = state_of(damaged({})).arrays
    beyond = arrays["columns"].copy()
    beyond[5] = 60
    with pytest.raises(ModelFileError, match="expected columns below 60"):
        damaged({"columns": beyond})
    with pytest.raises(ModelFileError, match=r"expected \d+ entries, found"):
        damaged({"columns": arrays["columns"][:-1], "values": arrays["values"][:-1]})


def test_a_centre_of_other_items_and_questions_of_other_shapes_are_refused() -> None:
    model, _, _ = fitted_on(random_matrix(20, WIDE), 3, 900)
    parts: dict[str, Any] = {
        "differences": model.differences_,
        "centre": EASE().fit(random_matrix(1, TALL)),
    }
    with pytest.raises(ModelFileError, match="centre: expected 60 items, found 25"):
        restored(EaseDifferences, {}, ModelState(parts=parts))
    histories, answering = questions(21, 9, 60, 3)
    with pytest.raises(DataError, match="answer_weights: expected 9 users × 3 communities"):
        model.blend(histories, csr_array(answering[:5]))
    with pytest.raises(DataError, match="histories: expected 60 items"):
        model.blend(csr_array(histories[:, :30]), answering)
    with pytest.raises(ConfigError, match="max_bytes: expected a whole number ≥ 1, found 0"):
        Differences(max_bytes=0)


def test_dense_models_are_stored_where_they_take_no_more_bytes(
    planted_split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_60_items = 4 * 60**2
    for most, kind in ((of_60_items, Loop), (of_60_items - 1, Differences)):
        monkeypatch.setattr(engine_file, "MAX_BYTES", most)
        assert type(engine_for(EASE(), 60)) is kind
    models = {
        engine: Ensemble(base=EASE(), models=2, engine=engine).fit(planted_split.train).models_
        for engine in (Loop(), Differences(max_bytes=of_60_items), Differences())
    }
    kinds = [type(model) for model in models.values()]
    assert kinds == [SeparateModels, EaseDifferences, EaseDifferences]


def test_a_fit_stores_no_more_than_max_bytes_of_a_model(planted_split: Split) -> None:
    few = Ensemble(base=EASE(), models=2, engine=Differences(max_bytes=2000))
    stored = few.fit(planted_split.train).models_.differences_
    n_bytes = sum(array.nbytes for array in state_of(stored).arrays.values())
    n_offsets = 3
    assert n_bytes - 8 * n_offsets <= 2 * 2000
    assert n_bytes == 2 * SizeBudget.of(60, 2000).stored_bytes + 8


def test_all_rows_are_widened_once_they_have_been_read_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept, dense, _ = fitted_on(random_matrix(30, WIDE), 3, 10**6)
    widened: list[int] = []
    all_rows = CompressedWeights.all_rows
    monkeypatch.setattr(
        CompressedWeights, "all_rows", lambda self: (widened.append(1), all_rows(self))[1]
    )
    histories, answering = questions(31, 20, 60, 3)
    expected = blend_scores(histories, answering, lambda j, rows: dense[j].score(rows))
    n_widened = []
    for _ in range(6):
        np.testing.assert_allclose(kept.blend(histories, answering), expected, atol=SCORES)
        n_widened.append(len(widened))
    assert n_widened[0] == 0
    assert n_widened[-1] == 1
    copied = copy.deepcopy(kept)  # a copy counts anew
    np.testing.assert_allclose(copied.blend(histories, answering), expected, atol=SCORES)
    assert len(widened) == 1


def test_all_rows_are_not_widened_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = fitted_on(random_matrix(30, WIDE), 3, 10**6)[0].differences_
    n_stored = len(stored.values)
    for available, is_wide in ((4 * 8 * n_stored, True), (4 * 8 * n_stored - 4, False)):
        monkeypatch.setattr(weights_file, "available_bytes", lambda available=available: available)
        rows = WideRows().after_reading(stored, 2 * n_stored)
        assert (rows is not None) == is_wide
    assert WideRows().after_reading(stored, 2 * n_stored - 1) is None


def test_large_products_by_mkl_are_those_of_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = random_matrix(32, (7, 40)), random_matrix(33, (40, 30))
    expected = (first @ second).toarray()
    np.testing.assert_array_equal(dense_product(first, second), expected)
    monkeypatch.setattr(answers_file, "USERS_FOR_MKL", 7)
    monkeypatch.setattr(answers_file, "MULTIPLICATIONS_FOR_MKL", 0)
    np.testing.assert_allclose(dense_product(first, second), expected, rtol=1e-6)


def test_the_models_of_a_shard_share_no_cache_with_those_around_a_centre() -> None:
    kept, _, centre = fitted_on(random_matrix(34, WIDE), 3, 900)
    histories, answering = questions(35, 9, 60, 3)
    blended_densely(kept, histories, answering)
    alone = kept.without_centre()
    with pytest.raises(NotFittedError):
        blended_densely(alone, histories, answering)
    doubled = EASE(l2=3.0)
    doubled.weights_ = 2 * centre.weights_
    around = blended_densely(alone.with_centre(doubled), histories, answering)
    difference = around - blended_densely(kept, histories, answering)
    covered = np.diff(answering.indptr) > 0
    expected = centre.score(histories) * covered[:, None]
    np.testing.assert_allclose(difference, expected, atol=SCORES)
