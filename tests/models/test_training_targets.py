"""Inputs and targets of a network: by hand, against all prefixes written out, and what it learns from order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.data.splits import leave_last_out
from loca.errors import ConfigError
from loca.evaluation.evaluate import mean_value
from loca.evaluation.metrics import Metric
from loca.models.counter_rng import streams_at, uniform_at
from loca.models.devices import unit_rows_of
from loca.models.mult_vae import MultDAE, MultVAE
from loca.models.training import TargetSpec


def ordered(histories: list[list[int]], items: int) -> csr_array:
    """Rows whose stored order is the order of the histories."""
    lengths = [len(one) for one in histories]
    columns = np.concatenate([np.array(one, dtype=np.int32) for one in histories])
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return csr_array(
        (np.ones(len(columns), np.float32), columns, starts), shape=(len(histories), items)
    )


def test_a_prefix_is_decayed_and_the_next_items_are_targets() -> None:
    spec = TargetSpec("next", next_count=2, prefix_decay=0.5)
    places = torch.arange(6)
    inputs, targets = spec.inputs_and_targets(torch.ones(6), places, torch.full((6,), 3))
    assert inputs.tolist() == [0.25, 0.5, 1, 0, 0, 0]
    assert targets.tolist() == [0, 0, 0, 1, 1, 0]
    _, all_targets = TargetSpec("following", prefix_decay=0.5).inputs_and_targets(
        torch.ones(6), places, torch.full((6,), 3)
    )
    assert all_targets.tolist() == [0, 0, 0, 1, 1, 1]


def test_a_history_that_is_not_cut_is_input_and_target_as_a_set() -> None:
    values = torch.tensor([1.0, 0.5, 2.0])
    inputs, targets = TargetSpec("next").inputs_and_targets(
        values, torch.arange(3), torch.zeros(3, dtype=torch.int64)
    )
    assert torch.equal(inputs, values)
    assert torch.equal(targets, values)


@given(
    length=st.integers(0, 50),
    draw=st.floats(0, 1, exclude_max=True, width=32),
    share=st.floats(0, 1, width=32),
)
def test_a_cut_leaves_something_on_both_sides(length: int, draw: float, share: float) -> None:
    spec = TargetSpec("next", set_share=share)
    cut = int(spec.cut(torch.tensor([length]), torch.tensor([[draw, 0.5]]))[0])
    if length < 2 or share > 0.5:
        assert cut == 0
    else:
        assert 1 <= cut <= length - 1


def test_every_cut_is_equally_likely_and_the_stated_share_is_whole() -> None:
    draws = uniform_at(torch.tensor(7), torch.arange(40_000)).view(-1, 2)
    cuts = TargetSpec("following", set_share=0.25).cut(torch.full((20_000,), 5), draws).numpy()
    counts = np.bincount(cuts, minlength=5)
    assert abs(counts[0] / 20_000 - 0.25) < 0.01
    np.testing.assert_allclose(counts[1:] / 15_000, 0.25, atol=0.015)


def test_the_loss_of_a_batch_is_that_of_the_prefixes_written_out() -> None:
    histories = [[4, 1, 3, 0], [2, 5, 1], [3], [5, 4, 3, 2, 1, 0]]
    model = MultDAE(latent=3, dropout=0.0, target="next", next_count=2, prefix_decay=0.8, seed=5)
    trainer = model.begin(ordered(histories, 6), None)
    net = trainer.network
    draws = uniform_at(streams_at(torch.tensor(trainer.prefix_stream), 0), torch.arange(8)).view(
        -1, 2
    )
    losses = []
    for history, draw in zip(histories, draws[:, 0].tolist(), strict=True):
        cut = 1 + int(np.float32(draw) * np.float32(len(history) - 1)) if len(history) > 1 else None
        inputs, wanted = torch.zeros(6), history if cut is None else history[cut : cut + 2]
        for age, item in enumerate(reversed(history[:cut])):
            inputs[item] = 0.8**age
        codes = torch.tanh(inputs / inputs.norm() @ net.input_table + net.input_bias)
        log_shares = torch.log_softmax(net.output_table @ codes + net.output_bias, dim=0)
        losses.append(-log_shares[wanted].sum().item())
    assert trainer.batch_loss(np.arange(4)).item() == pytest.approx(np.mean(losses), rel=1e-5)


def test_the_order_of_a_history_does_not_matter_to_a_set() -> None:
    rng = np.random.default_rng(0)
    histories = [rng.choice(30, 8, replace=False).tolist() for _ in range(40)]
    backwards = [one[::-1] for one in histories]
    base = {"latent": 4, "epochs": 3, "batch_size": 16}
    scores = [
        MultVAE(**base).fit(ordered(one, 30)).score(ordered(histories, 30))
        for one in (histories, backwards)
    ]
    np.testing.assert_array_equal(*scores)
    of_order = [
        MultVAE(**base, target="next").fit(ordered(one, 30)).score(ordered(histories, 30))
        for one in (histories, backwards)
    ]
    assert np.abs(of_order[0] - of_order[1]).max() > 1e-3


def pairs_of_neighbours(users: int = 300, items: int = 40) -> Interactions:
    """Everybody takes a random item, then the one after it, then another random one, and so on; no item twice."""
    rng = np.random.default_rng(1)
    histories = []
    for _ in range(users):
        starts = rng.permutation(items // 2)[:6] * 2 + rng.integers(2)
        histories.append(np.stack([starts, (starts + 1) % items], axis=1).ravel())
    offsets = np.arange(users + 1) * 12
    item_rows = np.concatenate(histories).astype(np.int32)
    return Interactions(
        IdMap.numbered(users, "user"), IdMap.numbered(items, "item"), offsets, item_rows
    )


@pytest.mark.parametrize("kind", [MultVAE, MultDAE])
def test_a_network_of_next_items_tells_before_from_after_where_one_of_sets_cannot(
    kind: type,
) -> None:
    split = leave_last_out(pairs_of_neighbours(), test=1).with_recency(Recency.per_position(0.3))
    base = {
        "latent": 24,
        "epochs": 80,
        "dropout": 0.1,
        "learning_rate": 1e-2,
        "next_count": 1,
        "prefix_decay": 0.3,
    }
    found = {
        target: mean_value(
            kind(**base, target=target).fit(split.train).score, split.test, Metric("ndcg", 10)
        )
        for target in ("set", "next")
    }
    assert found["next"] > 0.8
    assert found["next"] > 1.15 * found["set"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"target": "nxt"}, "did you mean 'next'"),
        ({"next_count": 0}, "next_count: expected a whole number"),
        ({"prefix_decay": 0.0}, "prefix_decay: expected a number above 0"),
        ({"set_share": 1.5}, "set_share: expected a number from 0 to 1"),
    ],
)
def test_impossible_targets_are_refused(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        MultDAE(**wrong)  # type: ignore[arg-type]


def test_rows_are_scaled_to_length_one_and_a_row_of_zeros_stays_one() -> None:
    scaled = unit_rows_of(torch.tensor([3.0, 4.0, 0.0]), torch.tensor([0, 0, 1]), 2)
    assert scaled.tolist() == pytest.approx([0.6, 0.8, 0.0])
