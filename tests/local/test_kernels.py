"""The Triton kernels of the stacked engine against plain torch, on a machine with a GPU."""

from __future__ import annotations

import pytest
import torch

from loca.local.stacked_arithmetic import AdamStep, Entries, Moments, decode_and_differentiate
from loca.local.stacked_inputs import DenseInputs, GatheredInputs
from loca.models.devices import has_kernels
from loca.models.draws import normal_at, uniform_at
from loca.models.training import LearningPlan

CUDA = torch.device("cuda")
pytestmark = pytest.mark.skipif(
    not (torch.cuda.is_available() and has_kernels(CUDA)), reason="no GPU with Triton on this machine"
)
PLAN = LearningPlan(0.0, 0.0, 0.0, 0, 0.1, 0.01, 8)


def question(networks: int = 3, users: int = 5, items: int = 5000, width: int = 24) -> tuple:
    draw = torch.Generator().manual_seed(0)
    lengths = torch.randint(0, 9, (networks * users,), generator=draw)
    owner = torch.repeat_interleave(torch.arange(networks * users), lengths)
    columns = torch.cat([torch.randperm(items, generator=draw)[:count] for count in lengths.tolist()])
    values = torch.rand(len(owner), generator=draw)
    starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    amounts = torch.zeros(networks * users).index_add(0, owner, values).view(networks, users)
    inputs = values * 0.7 * (torch.rand(len(owner), generator=draw) > 0.4)  # some are dropped
    entries = Entries(owner, columns, values, inputs, starts, amounts)
    hidden = torch.randn(networks, users, width, generator=draw)
    table, bias = torch.randn(networks, items, width, generator=draw), torch.randn(networks, items, generator=draw)
    scale = torch.rand(networks, users, generator=draw)
    return hidden, table, bias, entries, scale


def on_gpu(entries: Entries) -> Entries:
    return Entries(*(getattr(entries, name).cuda() for name in Entries.__dataclass_fields__))


@pytest.mark.parametrize("items", [60, 5000, 40_000])  # the last are too many to be read once
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("bfloat16", 3e-2)])
def test_loss_and_gradients_are_those_of_plain_torch(precision: str, tolerance: float, items: int) -> None:
    hidden, table, bias, entries, scale = question(items=items)
    expected = decode_and_differentiate(hidden, table, bias, entries, scale, "float32")
    found = decode_and_differentiate(
        hidden.cuda(), table.cuda(), bias.cuda(), on_gpu(entries), scale.cuda(), precision  # type: ignore[arg-type]
    )  # fmt: skip
    pairs = ((found.losses, expected.losses), (found.hidden, expected.hidden), (found.bias, expected.bias))
    for one, other in (*pairs, (found.table[:, :items], expected.table)):
        assert float((one.cpu() - other).abs().max()) < tolerance * float(other.abs().max())
    assert not found.table[:, items:].any()


@pytest.mark.parametrize("streams", [torch.tensor(-(2**40)), torch.arange(7)[:, None] * 3**30, torch.arange(999)])
def test_draws_are_those_of_plain_torch(streams: torch.Tensor) -> None:
    places = torch.arange(999)
    uniform, normal = (draw_at(streams.cuda(), places.cuda()).cpu() for draw_at in (uniform_at, normal_at))
    assert torch.equal(uniform, uniform_at(streams, places))
    torch.testing.assert_close(normal, normal_at(streams, places), rtol=1e-4, atol=1e-5)


def test_adam_with_sparse_gradients_is_that_of_plain_torch() -> None:
    hidden, table, _, entries, _ = question()
    codes = hidden.flatten(0, 1)
    moments = Moments(table.clone(), 0.1 * table, table**2)
    expected = Moments(table.clone(), 0.1 * table, table**2)
    steps = torch.tensor([0, 3, 9])
    AdamStep(PLAN, steps).on_table(expected, codes, entries)
    gpu = Moments(moments.weights.cuda(), moments.means.cuda(), moments.squares.cuda())
    AdamStep(PLAN, steps.cuda()).on_table(gpu, codes.cuda(), on_gpu(entries))
    for name in ("weights", "means", "squares"):
        torch.testing.assert_close(getattr(gpu, name).cpu(), getattr(expected, name), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("bfloat16", 3e-2)])
def test_dense_inputs_give_the_codes_and_changes_of_gathered_ones(precision: str, tolerance: float) -> None:
    hidden, table, _, entries, _ = question()
    expected_codes = GatheredInputs(entries).codes(table)
    expected, gpu = (Moments(table.clone(), 0.1 * table, table**2) for _ in range(2))
    steps = torch.tensor([0, 3, 9])
    GatheredInputs(entries).learn(AdamStep(PLAN, steps), expected, hidden)
    gpu = Moments(gpu.weights.cuda(), gpu.means.cuda(), gpu.squares.cuda())
    dense = DenseInputs(on_gpu(entries), precision)  # type: ignore[arg-type]
    codes = dense.codes(gpu.weights)
    assert float((codes.cpu() - expected_codes).abs().max()) < tolerance * float(expected_codes.abs().max())
    dense.learn(AdamStep(PLAN, steps.cuda()), gpu, hidden.cuda())
    for name in ("means", "squares"):
        found, known = getattr(gpu, name).cpu(), getattr(expected, name)
        assert float((found - known).abs().max()) < tolerance * float(known.abs().max())


def test_a_step_gives_the_same_numbers_every_time() -> None:
    _, table, _, entries, _ = question()
    codes = torch.randn(15, 24, generator=torch.Generator().manual_seed(1)).cuda()
    results = []
    for _ in range(2):
        gpu = Moments(table.cuda(), torch.zeros_like(table).cuda(), torch.zeros_like(table).cuda())
        AdamStep(PLAN, torch.zeros(3, dtype=torch.int64).cuda()).on_table(gpu, codes, on_gpu(entries))
        results.append(gpu.weights.cpu())
    assert torch.equal(*results)
