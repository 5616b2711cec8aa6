"""The Triton kernels of the networks against plain torch: on a GPU, or in Triton's interpreter (TRITON_INTERPRET=1)."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

import loca.local.engines.stacked.dispatch as dispatch_file
import loca.models.counter_rng as draws_file
from loca.local.engines.stacked.adam import AdamStep
from loca.local.engines.stacked.adam_state import AdamState
from loca.local.engines.stacked.decoder_loss import decode_and_differentiate
from loca.local.engines.stacked.inputs import DenseInputs, Entries, GatheredInputs
from loca.models.counter_rng import normal_at, uniform_at
from loca.models.mult_vae import MultDAE

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cpu" if IS_INTERPRETED else "cuda")
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or not (IS_INTERPRETED or torch.cuda.is_available()),
    reason="no Triton on this machine, or neither a GPU nor TRITON_INTERPRET=1",
)
MODEL = MultDAE(learning_rate=0.1, weight_decay=0.01)


@contextmanager
def kernels() -> Iterator[None]:
    """While it is open, kernels compute; plain torch does where both lie on a processor otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        for file in (dispatch_file, draws_file):
            patch.setattr(file, "has_kernels", lambda device: True)
        yield


def batch(networks: int = 3, users: int = 5, items: int = 5000, width: int = 24) -> tuple:
    draw = torch.Generator().manual_seed(0)
    lengths = torch.randint(0, 9, (networks * users,), generator=draw)
    owner = torch.repeat_interleave(torch.arange(networks * users), lengths)
    columns = torch.cat(
        [torch.randperm(items, generator=draw)[:count] for count in lengths.tolist()]
    )
    values = torch.rand(len(owner), generator=draw)
    starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    amounts = torch.zeros(networks * users).index_add(0, owner, values).view(networks, users)
    inputs = values * 0.7 * (torch.rand(len(owner), generator=draw) > 0.4)  # some are dropped
    entries = Entries(owner, columns, values, inputs, starts, amounts)
    hidden = torch.randn(networks, users, width, generator=draw)
    table, bias = (
        torch.randn(networks, items, width, generator=draw),
        torch.randn(networks, items, generator=draw),
    )
    scale = torch.rand(networks, users, generator=draw)
    return hidden, table, bias, entries, scale


def there(entries: Entries) -> Entries:
    return Entries(*(getattr(entries, name).to(DEVICE) for name in Entries.__dataclass_fields__))


def state_of(table: torch.Tensor) -> AdamState:
    """New averages of a table, where it lies."""
    return AdamState(table.clone(), 0.1 * table, table**2)


def take_step(
    inputs: GatheredInputs | DenseInputs, steps: torch.Tensor, state: AdamState, codes: torch.Tensor
) -> None:
    """Change tables by the gradients of the codes, (networks, users, width)."""
    AdamStep(MODEL, steps).apply(state, inputs.gradient(codes, state.weights.shape[1]))


@pytest.mark.parametrize("items", [60, 5000, 40_000])  # the last are too many to be read once
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("bfloat16", 3e-2)])
def test_loss_and_gradients_are_those_of_plain_torch(
    precision: str, tolerance: float, items: int
) -> None:
    hidden, table, bias, entries, scale = batch(items=items)
    expected = decode_and_differentiate(hidden, table, bias, entries, scale, "float32")
    given = (
        hidden.to(DEVICE),
        table.to(DEVICE),
        bias.to(DEVICE),
        there(entries),
        scale.to(DEVICE),
        precision,
    )
    with kernels():
        found = decode_and_differentiate(*given)  # type: ignore[arg-type]
    pairs = (
        (found.losses, expected.losses),
        (found.hidden, expected.hidden),
        (found.bias, expected.bias),
    )
    for one, other in (*pairs, (found.table[:, :items], expected.table)):
        assert float((one.cpu() - other).abs().max()) < tolerance * float(other.abs().max())
    assert not found.table[:, items:].any()


@pytest.mark.parametrize(
    "streams", [torch.tensor(-(2**40)), torch.arange(7)[:, None] * 3**30, torch.arange(999)]
)
def test_draws_are_those_of_plain_torch(streams: torch.Tensor) -> None:
    places = torch.arange(999)
    with kernels():
        uniform, normal = (
            draw_at(streams.to(DEVICE), places.to(DEVICE)).cpu()
            for draw_at in (uniform_at, normal_at)
        )
    assert torch.equal(uniform, uniform_at(streams, places))
    torch.testing.assert_close(normal, normal_at(streams, places), rtol=1e-4, atol=1e-5)


def test_adam_with_sparse_gradients_is_that_of_plain_torch() -> None:
    hidden, table, _, entries, _ = batch()
    steps, expected, found = (
        torch.tensor([0, 3, 9]),
        state_of(table),
        state_of(table.to(DEVICE)),
    )
    take_step(GatheredInputs(entries), steps, expected, hidden)
    with kernels():
        take_step(GatheredInputs(there(entries)), steps.to(DEVICE), found, hidden.to(DEVICE))
    for name in ("weights", "exp_avg", "exp_avg_sq"):
        torch.testing.assert_close(
            getattr(found, name).cpu(), getattr(expected, name), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("bfloat16", 3e-2)])
def test_dense_inputs_give_the_codes_and_changes_of_gathered_ones(
    precision: str, tolerance: float
) -> None:
    hidden, table, _, entries, _ = batch()
    steps, expected, found = (
        torch.tensor([0, 3, 9]),
        state_of(table),
        state_of(table.to(DEVICE)),
    )
    expected_codes = GatheredInputs(entries).codes(table)
    take_step(GatheredInputs(entries), steps, expected, hidden)
    dense = DenseInputs(there(entries), precision)  # type: ignore[arg-type]
    with kernels():
        codes = dense.codes(found.weights).cpu()
        take_step(dense, steps.to(DEVICE), found, hidden.to(DEVICE))
    assert float((codes - expected_codes).abs().max()) < tolerance * float(
        expected_codes.abs().max()
    )
    for name in ("exp_avg", "exp_avg_sq"):
        one, other = getattr(found, name).cpu(), getattr(expected, name)
        assert float((one - other).abs().max()) < tolerance * float(other.abs().max())


def test_a_step_gives_the_same_numbers_every_time() -> None:
    _, table, _, entries, _ = batch()
    codes = torch.randn(3, 5, 24, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    results = []
    for _ in range(2):
        found = state_of(table.to(DEVICE))
        with kernels():
            steps = torch.zeros(3, dtype=torch.int64).to(DEVICE)
            take_step(GatheredInputs(there(entries)), steps, found, codes)
        results.append(found.weights.cpu())
    assert torch.equal(*results)
