"""Equal times have no order: what learns from order sees the items of one moment as one place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from loca.communities.embeddings import TruncatedSVD
from loca.communities.kernel import Kernels
from loca.data.id_map import IdMap
from loca.data.interactions import Interactions, as_matrix, as_moments
from loca.data.recency import Recency
from loca.errors import DataError
from loca.local.blend import Blend
from loca.local.engines.differences.engine import Differences
from loca.local.engines.loop import Loop
from loca.local.engines.stacked.engine import Stacked
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.local.local_models import SeparateModels
from loca.models.counter_rng import streams_at, uniform_at
from loca.models.devices import SparseRows
from loca.models.mult_vae import MultDAE, MultVAE
from loca.models.next_ease import NextEASE, add_prefix_sums
from loca.models.recommender import Recommender
from loca.registry import load

CPU = torch.device("cpu")
ITEMS = 9
History = list[tuple[int, int]]  # (item, time), oldest first
Floats = npt.NDArray[np.float64]


def timed(histories: list[History], items: int = ITEMS) -> Interactions:
    """Interactions of (item, time) lists."""
    offsets = np.cumsum([0] + [len(one) for one in histories])
    item_rows = np.array([item for one in histories for item, _ in one], dtype=np.int32)
    times = np.array([time for one in histories for _, time in one], dtype=np.int64)
    return Interactions(
        IdMap.numbered(len(histories), "user"),
        IdMap.numbered(items, "item"),
        offsets,
        item_rows,
        times,
    )


def random_histories(
    seed: int, users: int = 12, items: int = ITEMS, longest: int = 8
) -> list[History]:
    """Distinct items with many equal times; some histories hold one moment, one item or nothing."""
    rng = np.random.default_rng(seed)
    histories = []
    for _ in range(users):
        taken = rng.permutation(items)[: rng.integers(0, longest)].tolist()
        histories.append(
            list(zip(taken, np.sort(rng.integers(0, 4, len(taken))).tolist(), strict=True))
        )
    return [*histories, [(1, 0), (0, 0), (3, 5), (2, 7)], [(4, 2), (5, 2)], [(6, 1)], []]


def shuffled(histories: list[History], seed: int) -> list[History]:
    """The same histories with the items of every moment in another order."""
    rng = np.random.default_rng(seed)
    return [
        sorted((one[place] for place in rng.permutation(len(one))), key=lambda pair: pair[1])
        for one in histories
    ]


def by_moment(history: History) -> list[list[int]]:
    """The items of every moment, oldest first."""
    return [
        [item for item, at in history if at == time]
        for time in sorted({time for _, time in history})
    ]


def prefix_rows(
    histories: list[History], weights: npt.NDArray[np.float64], decay: float, next_count: int | None
) -> tuple[Floats, Floats, Floats]:
    """Every prefix of moments, what follows it, and its user's weight, written out as they are defined."""
    prefixes, targets, counts = [np.zeros(ITEMS)], [np.zeros(ITEMS)], [0.0]
    for history, weight in zip(histories, weights, strict=True):
        moments = by_moment(history)
        for last in range(len(moments) - 1):
            prefix, target = np.zeros(ITEMS), np.zeros(ITEMS)
            for place in range(last + 1):
                prefix[moments[place]] = decay ** (last - place)
            for moment in moments[last + 1 :][:next_count]:
                target[moment] = 1
            prefixes.append(prefix)
            targets.append(target)
            counts.append(float(weight))
    return np.array(prefixes), np.array(targets), np.array(counts)


def sums_of(
    data: Interactions,
    weights: npt.NDArray[np.float64],
    decay: float,
    next_count: int | None,
    blocks: Any = None,
) -> tuple[Floats, Floats]:
    gram, cross = torch.zeros(2, ITEMS, ITEMS, dtype=torch.float64)
    add_prefix_sums(
        gram, cross, as_matrix(data), weights, decay, next_count, as_moments(data), blocks
    )
    return gram.numpy(), cross.numpy()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    decay=st.sampled_from([0.0, 0.3, 0.8, 1.0]),
    next_count=st.sampled_from([1, 2, 3, None]),
    blocks=st.sampled_from([(2**20, 2**16), (2 * ITEMS, 2**16), (2**20, 7), (1, 1)]),
)
def test_the_sums_are_those_over_prefixes_of_moments(
    seed: int, decay: float, next_count: int | None, blocks: tuple[int, int]
) -> None:
    histories = random_histories(seed)
    weights = np.random.default_rng(seed + 1).uniform(0.1, 3, len(histories))
    weights[seed % 12] = 0
    prefixes, targets, counts = prefix_rows(histories, weights, decay, next_count)
    gram, cross = sums_of(timed(histories), weights, decay, next_count, blocks)
    np.testing.assert_allclose(gram, prefixes.T @ np.diag(counts) @ prefixes, atol=1e-4)
    np.testing.assert_allclose(cross, prefixes.T @ np.diag(counts) @ targets, atol=1e-5)


def test_items_of_one_moment_do_not_follow_each_other_but_stand_together() -> None:
    # Moments {0, 1}, {2}, {3}: the prefixes are {0, 1} and then {2} with {0, 1} at a half.
    gram, cross = sums_of(timed([[(0, 5), (1, 5), (2, 6), (3, 9)]]), np.ones(1), 0.5, 1)
    np.testing.assert_allclose(
        gram[:4, :4], [[1.25, 1.25, 0.5, 0], [1.25, 1.25, 0.5, 0], [0.5, 0.5, 1, 0], [0] * 4]
    )
    np.testing.assert_allclose(
        cross[:4, :4], [[0, 0, 1, 0.5], [0, 0, 1, 0.5], [0, 0, 0, 1], [0] * 4]
    )


def test_lags_that_hardly_count_are_left_out_by_moments_too() -> None:
    rng = np.random.default_rng(2)
    times = np.sort(rng.integers(0, 120, 300)).tolist()
    long = list(zip(rng.permutation(300).tolist(), times, strict=True))
    data = timed([long], items=300)
    gram, cross = torch.zeros(2, 300, 300, dtype=torch.float64)
    add_prefix_sums(gram, cross, as_matrix(data), np.ones(1), 0.8, 10, as_moments(data))
    inputs, wanted, moments = [], [], by_moment(long)
    for last in range(len(moments) - 1):
        prefix, target = np.zeros(300), np.zeros(300)
        for place in range(last + 1):
            prefix[moments[place]] = 0.8 ** (last - place)
        target[[item for moment in moments[last + 1 : last + 11] for item in moment]] = 1
        inputs.append(prefix)
        wanted.append(target)
    for found, expected in (
        (gram, np.array(inputs).T @ inputs),
        (cross, np.array(inputs).T @ wanted),
    ):
        assert np.count_nonzero(found) < np.count_nonzero(expected) * 0.8
        np.testing.assert_allclose(found, expected, atol=1.001e-4)


def test_moments_of_one_item_each_give_the_same_bits_as_an_order_without_times() -> None:
    data = timed(
        [[(item, place) for place, (item, _) in enumerate(one)] for one in random_histories(4)]
    )
    assert as_moments(data) is None
    matrix, weights = as_matrix(data), np.random.default_rng(0).uniform(0, 2, data.n_users)
    moments = csr_array(
        (data.places().astype(np.int32), matrix.indices, matrix.indptr), shape=matrix.shape
    )
    for decay, next_count in ((0.5, 2), (0.9, None), (0.0, 1), (1.0, 3)):
        plain, numbered = torch.zeros(2, 2, ITEMS, ITEMS, dtype=torch.float64)
        add_prefix_sums(plain[0], plain[1], matrix, weights, decay, next_count)
        add_prefix_sums(numbered[0], numbered[1], matrix, weights, decay, next_count, moments)
        assert torch.equal(plain, numbered)


def test_a_history_of_one_moment_teaches_next_ease_nothing_about_order() -> None:
    with pytest.raises(DataError, match="no user has an item that follows another"):
        NextEASE(ordinary=0).fit(timed([[(0, 1), (1, 1), (2, 1)], [(3, 4)]]))


def test_the_loss_of_a_batch_is_that_of_prefixes_cut_between_moments() -> None:
    histories = random_histories(5)[:-1]
    histories = [one for one in histories if one]
    data = timed(histories)
    model = MultDAE(latent=3, dropout=0.0, target="next", next_count=2, prefix_decay=0.8, seed=5)
    learning = model.begin(as_matrix(data), None, as_moments(data))
    net = learning.network
    places = torch.arange(2 * len(histories))
    draws = uniform_at(streams_at(torch.tensor(learning.prefix_stream), 0), places).view(-1, 2)
    losses = []
    for history, draw in zip(map(by_moment, histories), draws[:, 0].tolist(), strict=True):
        cut = 1 + int(np.float32(draw) * np.float32(len(history) - 1)) if len(history) > 1 else None
        inputs = torch.zeros(ITEMS)
        for age, moment in enumerate(reversed(history[:cut])):
            inputs[moment] = 1.0 if cut is None else 0.8**age
        wanted = [
            item
            for moment in (history if cut is None else history[cut : cut + 2])
            for item in moment
        ]
        codes = torch.tanh(inputs / inputs.norm() @ net.input_table + net.input_bias)
        log_shares = torch.log_softmax(net.output_table @ codes + net.output_bias, dim=0)
        losses.append(-log_shares[wanted].sum().item())
    assert learning.batch_loss(np.arange(len(histories))).item() == pytest.approx(
        np.mean(losses), rel=1e-5
    )


def test_rows_know_the_places_of_their_entries_and_how_many_there_are() -> None:
    data = timed([[(0, 1), (1, 1), (2, 3)], [], [(4, 9)], [(5, 2), (6, 2)]])
    rows = SparseRows.of(as_matrix(data), CPU, as_moments(data))
    assert rows.places().tolist() == [0, 0, 1, 0, 0, 0]
    assert rows.place_counts().tolist() == [2, 0, 1, 1]
    some = rows.of_users(torch.tensor([3, 0]))
    assert some.places().tolist() == [0, 0, 0, 0, 1]
    assert some.place_counts().tolist() == [1, 2]
    plain = SparseRows.of(as_matrix(data), CPU)
    assert plain.places().tolist() == [0, 1, 2, 0, 0, 1]
    assert plain.place_counts().tolist() == [3, 0, 1, 2]


QUIET = {
    "latent": 6,
    "epochs": 4,
    "batch_size": 16,
    "dropout": 0.0,
    "learning_rate": 0.01,
}
NEXT = {"target": "next", "next_count": 2, "set_share": 0.3, "seed": 1}


def vae(**changes: object) -> MultVAE:
    return MultVAE(**{**QUIET, **NEXT, "noise": 0.0, **changes})  # type: ignore[arg-type]


def next_ease() -> NextEASE:
    return NextEASE(l2=3.0, next_count=2)


BY_SVD = Kernels(n=3, embedding=TruncatedSVD(dimensions=4))
MADE: dict[str, Callable[[], Recommender]] = {
    "NextEASE": next_ease,
    "MultVAE": vae,
    "MultVAE of all that follows": lambda: vae(target="following"),
    "MultDAE": lambda: MultDAE(**{**QUIET, **NEXT}),  # type: ignore[arg-type]
    "Loca, loop": lambda: Loca(base=vae(), communities=Kernels(n=3), engine=Loop()),
    "Loca, stack": lambda: Loca(base=vae(), communities=Kernels(n=3), engine=Stacked()),
    "Ensemble, loop": lambda: Ensemble(base=vae(), models=2, engine=Loop()),
    "Ensemble, stack": lambda: Ensemble(base=vae(), models=2, engine=Stacked()),
    "Loca of NextEASE, dense": lambda: Loca(base=next_ease(), communities=BY_SVD, engine=Loop()),
    "Loca of NextEASE, differences": lambda: Loca(
        base=next_ease(), communities=BY_SVD, engine=Differences()
    ),
    "Ensemble of NextEASE, dense": lambda: Ensemble(base=next_ease(), models=2, engine=Loop()),
    "Ensemble of NextEASE, differences": lambda: Ensemble(
        base=next_ease(), models=2, engine=Differences()
    ),
    "Blend": lambda: Blend(parts=[next_ease(), vae()]),
}


@pytest.mark.parametrize("name", MADE)
def test_the_order_of_items_inside_moments_does_not_matter(name: str) -> None:
    histories = random_histories(11, users=60, items=20, longest=16)
    recency = Recency.per_position(0.8)
    first, second = (
        timed(one, items=20).with_recency(recency) for one in (histories, shuffled(histories, 3))
    )
    assert (first.item_rows != second.item_rows).any()
    asked = first.histories()
    scores = [MADE[name]().fit(one).score(asked) for one in (first, second)]
    np.testing.assert_allclose(scores[0], scores[1], atol=2e-4)
    # Without times the stored order is taken as given, and says something else.
    given_order = MADE[name]().fit(
        Interactions(first.users, first.items, first.offsets, first.item_rows)
    )
    assert np.abs(scores[0] - given_order.score(asked)).max() > 5e-3


@pytest.mark.parametrize("name", MADE)
def test_times_that_never_tie_change_nothing(name: str) -> None:
    histories = [
        [(item, place) for place, (item, _) in enumerate(one)] for one in random_histories(7, 40)
    ]
    with_times = timed(histories)
    without = Interactions(
        with_times.users, with_times.items, with_times.offsets, with_times.item_rows
    )
    asked = without.histories()
    np.testing.assert_array_equal(
        MADE[name]().fit(with_times).score(asked), MADE[name]().fit(without.matrix()).score(asked)
    )


@pytest.mark.parametrize(
    ("loop", "stack"), [("Loca, loop", "Loca, stack"), ("Ensemble, loop", "Ensemble, stack")]
)
def test_both_engines_cut_between_the_same_moments(loop: str, stack: str) -> None:
    data = timed(random_histories(21, users=60, items=20, longest=16), items=20)
    asked = data.histories()
    np.testing.assert_allclose(
        MADE[loop]().fit(data).score(asked), MADE[stack]().fit(data).score(asked), atol=2e-4
    )


def test_a_saved_model_weighs_its_histories_by_moments_as_before(tmp_path: Path) -> None:
    data = timed(random_histories(2)).with_recency(Recency.per_position(0.7))
    model = next_ease().fit(data)
    model.save(tmp_path / "model")
    known = load(tmp_path / "model").train_data_
    assert known is not None
    np.testing.assert_array_equal(known.histories().toarray(), data.histories().toarray())
    np.testing.assert_array_equal(known.moments(), data.moments())


def test_dense_local_models_learn_from_the_moments_and_keep_no_data_of_their_own() -> None:
    data = timed(random_histories(2))
    ensemble = Ensemble(base=next_ease(), models=2, engine=Loop()).fit(data)
    assert isinstance(ensemble.models_, SeparateModels)
    assert [one.train_data_ for one in ensemble.models_.models_] == [None, None]
    assert ensemble.train_data_ is data
