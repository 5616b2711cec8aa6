"""NextEASE against ridge regressions over prefixes that are written out, and on data whose order is all there is."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from loca.data.interactions import Interactions
from loca.data.splits import HeldOut
from loca.errors import ConfigError, DataError, ModelFileError
from loca.evaluation.evaluate import evaluate
from loca.models.ease import EASE
from loca.models.next_ease import NextEASE, add_prefix_sums, plan_solving_next
from loca.models.recommender import (
    get_params,
)
from loca.persistence import load_model
from loca.persistence.learned import restored
from loca.persistence.manifest import ModelState

CPU = torch.device("cpu")
ITEMS = 9


def random_histories(seed: int, users: int = 12, items: int = ITEMS) -> list[list[int]]:
    """Distinct items in random order; some histories hold one item or none."""
    rng = np.random.default_rng(seed)
    return [rng.permutation(items)[: rng.integers(0, 8)].tolist() for _ in range(users)] + [
        [1, 0, 3, 2]
    ]


def as_rows(histories: list[list[int]], items: int = ITEMS) -> csr_array:
    """Rows whose stored order is that of the histories."""
    indptr = np.cumsum([0] + [len(one) for one in histories])
    indices = np.array([item for one in histories for item in one], dtype=np.int64)
    return csr_array(
        (np.ones(len(indices), np.float32), indices, indptr), shape=(len(histories), items)
    )


def prefix_rows(
    histories: list[list[int]],
    weights: np.ndarray,
    decay: float,
    next_count: int | None,
    items: int = ITEMS,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every prefix, what follows it, and its user's weight, as they are defined."""
    prefixes, targets, counts = [np.zeros(items)], [np.zeros(items)], [0.0]
    for history, weight in zip(histories, weights, strict=True):
        for last in range(len(history) - 1):
            prefix, target = np.zeros(items), np.zeros(items)
            for place in range(last + 1):
                prefix[history[place]] = decay ** (last - place)
            for item in history[last + 1 :][:next_count]:
                target[item] = 1
            prefixes.append(prefix)
            targets.append(target)
            counts.append(float(weight))
    return np.array(prefixes), np.array(targets), np.array(counts)


def ridge_without_own_item(
    model: NextEASE, histories: list[list[int]], weights: np.ndarray
) -> np.ndarray:
    """Each column as a weighted ridge regression over all items but its own, in 64 bits."""
    prefixes, targets, counts = prefix_rows(
        histories, weights, model.prefix_decay, model.next_count
    )
    whole = as_rows(histories).toarray().astype(np.float64)
    inputs, wanted = np.concatenate([prefixes, whole]), np.concatenate([targets, whole])
    count = np.diag(
        np.concatenate([counts, model.ordinary * np.asarray(weights, dtype=np.float64)])
    )
    gram = inputs.T @ count @ inputs
    ridge = np.diag(model.l2 + model.denoising / (1 - model.denoising) * np.diag(gram))
    solution = np.zeros((ITEMS, ITEMS))
    for item in range(ITEMS):
        others = np.delete(np.arange(ITEMS), item)
        square = (gram + ridge)[np.ix_(others, others)]
        solution[others, item] = np.linalg.solve(
            square, inputs[:, others].T @ count @ wanted[:, item]
        )
    return solution


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    decay=st.sampled_from([0.0, 0.3, 0.8, 1.0]),
    next_count=st.sampled_from([1, 2, 3, 100, None]),
    ordinary=st.sampled_from([0.0, 0.4, 1.0, 3.0]),
    denoising=st.sampled_from([0.0, 0.5, 0.9]),
    l2=st.sampled_from([0.5, 5.0]),
)
def test_every_column_is_the_ridge_regression_of_what_follows_on_all_prefixes(
    seed: int, decay: float, next_count: int | None, ordinary: float, denoising: float, l2: float
) -> None:
    histories = random_histories(seed)
    weights = np.random.default_rng(seed + 1).uniform(0.1, 3, len(histories))
    weights[seed % 12] = 0
    model = NextEASE(
        l2=l2, next_count=next_count, prefix_decay=decay, ordinary=ordinary, denoising=denoising
    )
    model.fit(as_rows(histories), user_weights=weights)
    np.testing.assert_allclose(
        model.weights_, ridge_without_own_item(model, histories, weights), atol=1e-4
    )
    assert model.weights_ is not None
    assert not model.weights_.diagonal().any()


@pytest.mark.parametrize(("decay", "next_count"), [(0.5, 2), (0.9, None), (1.0, 3), (0.0, 1)])
def test_the_sums_over_pairs_are_those_over_prefixes_in_any_blocks(
    decay: float, next_count: int | None
) -> None:
    histories, weights = random_histories(3, users=40), np.arange(41) % 4
    prefixes, targets, counts = prefix_rows(histories, weights, decay, next_count)
    for blocks in (None, (2 * ITEMS, 2**16), (2**20, 7), (1, 1)):
        gram, cross = (
            torch.ones(ITEMS, ITEMS, dtype=torch.float64),
            torch.zeros(ITEMS, ITEMS, dtype=torch.float64),
        )
        add_prefix_sums(gram, cross, as_rows(histories), weights, decay, next_count, blocks=blocks)
        np.testing.assert_allclose(gram - 1, prefixes.T @ np.diag(counts) @ prefixes, atol=1e-4)
        np.testing.assert_allclose(cross, prefixes.T @ np.diag(counts) @ targets, atol=1e-5)


def test_lags_that_hardly_count_are_left_out_of_the_pairs_and_nothing_else_is() -> None:
    long = [np.random.default_rng(2).permutation(300).tolist()]
    prefixes, targets, _ = prefix_rows(long, np.ones(1), 0.8, 10, items=300)
    gram, cross = (
        torch.zeros(300, 300, dtype=torch.float64),
        torch.zeros(300, 300, dtype=torch.float64),
    )
    add_prefix_sums(gram, cross, as_rows(long, items=300), np.ones(1), 0.8, 10)
    for found, expected in ((gram, prefixes.T @ prefixes), (cross, prefixes.T @ targets)):
        assert np.count_nonzero(found) < np.count_nonzero(expected) / 2
        np.testing.assert_allclose(found, expected, atol=1.001e-4)


def test_values_of_the_matrix_weigh_their_entries() -> None:
    histories = [[0, 2, 1], [3, 0, 4, 2]]
    rows = as_rows(histories)
    rows.data[:] = [1, 2, 0.5, 3, 1, 1, 0.25]
    prefixes, targets, _ = prefix_rows(histories, np.ones(2), 0.5, 2)
    values = np.zeros((len(prefixes), ITEMS))
    values[1:3], values[3:] = rows[[0]].toarray(), rows[[1]].toarray()
    gram, cross = (
        torch.zeros(ITEMS, ITEMS, dtype=torch.float64),
        torch.zeros(ITEMS, ITEMS, dtype=torch.float64),
    )
    add_prefix_sums(gram, cross, rows, np.ones(2), 0.5, 2)
    np.testing.assert_allclose(gram, (prefixes * values).T @ (prefixes * values), atol=1e-6)
    np.testing.assert_allclose(cross, (prefixes * values).T @ (targets * values), atol=1e-6)


def test_weighting_users_by_whole_numbers_equals_repeating_them() -> None:
    histories = random_histories(7, users=30)
    times = np.random.default_rng(8).integers(0, 4, len(histories))
    weighted = NextEASE(l2=2.0).fit(as_rows(histories), user_weights=times)
    repeated = NextEASE(l2=2.0).fit(
        as_rows([one for one, n in zip(histories, times, strict=True) for _ in range(n)])
    )
    np.testing.assert_allclose(weighted.weights_, repeated.weights_, atol=2e-5)


def test_the_order_of_a_history_matters_here_and_not_to_ease() -> None:
    histories = random_histories(9, users=30)
    forward, backward = as_rows(histories), as_rows([one[::-1] for one in histories])
    difference = NextEASE(l2=2.0).fit(forward).weights_ - NextEASE(l2=2.0).fit(backward).weights_
    assert np.abs(difference).max() > 0.05
    np.testing.assert_allclose(
        EASE(l2=2.0).fit(forward).weights_, EASE(l2=2.0).fit(backward).weights_, atol=1e-6
    )


@pytest.mark.parametrize("denoising", [0.0, 0.5])
def test_the_more_the_ordinary_aim_counts_the_nearer_it_comes_to_ease(denoising: float) -> None:
    rows = as_rows(random_histories(11, users=30))
    apart = []
    for ordinary in (1.0, 10.0, 1000.0):
        found = (
            NextEASE(l2=2.0 * ordinary, ordinary=ordinary, denoising=denoising).fit(rows).weights_
        )
        apart.append(
            float(np.abs(found - EASE(l2=2.0, denoising=denoising).fit(rows).weights_).max())
        )
    assert apart[0] > 3 * apart[1] > 9 * apart[2]
    assert apart[2] < 0.01


def test_users_of_one_item_count_through_the_ordinary_aim_alone() -> None:
    histories = random_histories(13)
    more = [*histories, [5], [5], [8]]
    alone = NextEASE(l2=1.0, ordinary=0.0)
    np.testing.assert_array_equal(
        alone.fit(as_rows(histories)).weights_, alone.fit(as_rows(more)).weights_
    )
    mixed = NextEASE(l2=1.0, ordinary=1.0)
    assert (
        np.abs(mixed.fit(as_rows(histories)).weights_ - mixed.fit(as_rows(more)).weights_).max()
        > 1e-4
    )
    with pytest.raises(
        DataError, match="no user has an item that follows another; take ordinary above 0"
    ):
        alone.fit(as_rows([[5], [5], [8]]))
    assert not mixed.fit(as_rows([[5], [5], [8]])).weights_.any()


def cyclic_walks(users: int, items: int, known: int, wanted: int) -> HeldOut:
    """Walks on a circle of items in steps of +1 from random starts: every set is also that of a walk backwards."""
    starts = np.random.default_rng(17).integers(0, items, users)
    walks = (starts[:, None] + np.arange(known + wanted)) % items
    whole = Interactions.from_matrix(as_rows(walks.tolist(), items))
    is_known = whole.places() < known
    return HeldOut(whole.where(is_known), whole.where(~is_known))


def test_where_one_item_leads_to_the_next_it_finds_what_ease_cannot_know() -> None:
    held_out = cyclic_walks(users=300, items=40, known=8, wanted=4)
    ndcg = {
        type(model).__name__: evaluate(model.fit(held_out.histories), held_out, at=(4,)).means()[
            "ndcg@4"
        ]
        for model in (
            EASE(l2=5.0),
            NextEASE(l2=5.0, next_count=4),
            NextEASE(l2=5.0, next_count=4, ordinary=0.0),
        )
    }
    assert ndcg["NextEASE"] > 0.95
    assert ndcg["EASE"] < 0.7


def test_it_answers_the_same_after_saving_and_loading(tmp_path: Path) -> None:
    rows = as_rows(random_histories(19))
    model = NextEASE(l2=3.0, next_count=None, prefix_decay=0.5, ordinary=0.3, denoising=0.2).fit(
        rows
    )
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model", {"NextEASE": NextEASE})
    assert get_params(loaded) == get_params(model)
    np.testing.assert_array_equal(loaded.score(rows), model.score(rows))
    np.testing.assert_array_equal(model.selected().fit(rows).weights_, model.weights_)


def test_a_second_fit_forgets_the_first() -> None:
    first, second = as_rows(random_histories(20)), as_rows(random_histories(21))
    model = NextEASE(l2=3.0).fit(first).fit(second)
    np.testing.assert_array_equal(model.weights_, NextEASE(l2=3.0).fit(second).weights_)
    assert model.train_data_ is None


def test_what_32_bits_cannot_solve_is_solved_in_64(caplog: pytest.LogCaptureFixture) -> None:
    # The last item is in no prefix: all it has on the diagonal is an l2 that is 0 in 32 bits.
    histories = [[*one, 8] for one in random_histories(22, users=60, items=8)]
    model = NextEASE(l2=1e-60, ordinary=0.0, denoising=0.0)
    with caplog.at_level(logging.INFO, "loca"):
        model.fit(as_rows(histories))
    assert "once more in 64 bits" in caplog.text
    np.testing.assert_allclose(
        model.weights_, ridge_without_own_item(model, histories, np.ones(len(histories))), atol=1e-3
    )


def test_an_l2_too_small_for_the_data_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"l2: 4.94066e-324 is too small for these data"):
        NextEASE(l2=5e-324, ordinary=0.0, denoising=0.0).fit(as_rows([[0, 1, 2]] * 5))


def test_blocks_of_columns_change_nothing() -> None:
    """An item that nobody has adds a column of zeros and nothing else, also where that makes a second block."""
    rows = as_rows(random_histories(23))
    wide = csr_array(
        (rows.data, rows.indices + 1020, rows.indptr), shape=(rows.shape[0], 1020 + ITEMS)
    )
    whole, blocks = (NextEASE(l2=3.0).fit(one).weights_ for one in (rows, wide))
    np.testing.assert_allclose(blocks[1020:, 1020:], whole, atol=2e-5)
    assert not blocks[:1020].any()
    assert not blocks[:, :1020].any()


def test_a_catalogue_that_does_not_fit_into_memory_is_refused_before_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("loca.memory.available_bytes", lambda: 1000)
    with pytest.raises(
        DataError,
        match=r"NextEASE for 9 items: \d+ kB of memory needed, 1 kB are free; filter rare",
    ):
        NextEASE().fit(as_rows(random_histories(1)))


def test_a_gpu_with_too_little_memory_leaves_the_work_to_the_cpu() -> None:
    gpu = torch.device("cuda")
    device, needed = plan_solving_next(1000, 50_000, gpu, 10**9)
    assert (device, needed > 12 * 1000**2) == (gpu, True)
    device, on_cpu = plan_solving_next(1000, 50_000, gpu, needed - 1)
    assert (device, on_cpu) == plan_solving_next(1000, 50_000, CPU, 0)


def test_a_community_is_solved_as_a_fit_with_its_weights() -> None:
    rows, model = as_rows(random_histories(25)), NextEASE(l2=3.0)
    weights = np.linspace(0, 2, rows.shape[0])
    (rows_of,) = model.solve_each(rows, [weights], CPU, None)
    found = rows_of(torch.arange(ITEMS))
    np.testing.assert_array_equal(found, model.fit(rows, user_weights=weights).weights_)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"l2": 0}, "l2: expected a number above 0, found 0"),
        ({"next_count": 0}, "next_count: expected a whole number ≥ 1 or none, found 0"),
        ({"next_count": 2.5}, "next_count: expected a whole number ≥ 1 or none, found 2.5"),
        ({"next_count": True}, "next_count: expected a whole number ≥ 1 or none, found True"),
        ({"prefix_decay": 1.1}, "prefix_decay: expected a number from 0 to 1, found 1.1"),
        ({"ordinary": -1}, "ordinary: expected a number ≥ 0, found -1"),
        ({"ordinary": float("nan")}, "ordinary: expected a number ≥ 0, found nan"),
        ({"denoising": 1.0}, "denoising: expected a number from 0 to below 1, found 1.0"),
    ],
)
def test_parameters_outside_their_range_are_refused(
    parameters: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        NextEASE(**parameters)  # type: ignore[arg-type]


def test_weights_that_are_not_square_are_refused_on_loading() -> None:
    with pytest.raises(ModelFileError, match="items × items"):
        restored(NextEASE, {}, ModelState(arrays={"weights": np.zeros((2, 3), np.float32)}))
