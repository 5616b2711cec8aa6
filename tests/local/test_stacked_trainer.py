"""The stacked engine against the loop: the same answer, whatever the stack size and whoever has fewer users."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

import loca.local.engines.stacked.decoder_loss as loss_file
import loca.local.engines.stacked.plan as plan_file
import loca.local.engines.stacked.trainer as trainer_file
from loca.communities.kernel import Kernels
from loca.data.splits import Split
from loca.errors import ConfigError
from loca.evaluation.evaluate import mean_value
from loca.local.engines.engine import ManyFits, copies_of, train
from loca.local.engines.loop import Loop
from loca.local.engines.stacked.adam import AdamStep
from loca.local.engines.stacked.adam_state import AdamState
from loca.local.engines.stacked.decoder_loss import decode_and_differentiate
from loca.local.engines.stacked.engine import Stacked
from loca.local.engines.stacked.inputs import (
    DenseInputs,
    Entries,
    GatheredInputs,
    multiplies_densely,
)
from loca.local.engines.stacked.networks import StackedNetworks
from loca.local.engines.stacked.plan import StackPlan, plan_stacks
from loca.local.engines.stacked.trainer import StackedTrainer
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.local.local_models import LocalModels
from loca.models.autoencoder import Autoencoder, multinomial_loss
from loca.models.devices import SparseRows
from loca.models.mult_vae import MultDAE, MultVAE
from loca.models.recommender import Recommender, TrainingData, clone
from loca.typing import FloatArray

BASES: dict[str, Recommender] = {
    "variational": MultVAE(
        latent=8, epochs=4, batch_size=128, kl_weight=0.2, anneal_steps=20, learning_rate=1e-2
    ),
    "with a hidden layer": MultVAE(
        latent=8, hidden=12, epochs=4, batch_size=128, noise=0.01, kl_weight=0.0
    ),
    "denoising": MultDAE(latent=8, epochs=4, batch_size=128, weight_decay=1e-3, learning_rate=1e-2),
    "without dropout": MultDAE(latent=8, hidden=12, epochs=4, batch_size=128, dropout=0.0),
    "of next items": MultVAE(
        latent=8, epochs=4, batch_size=128, target="next", next_count=3, prefix_decay=0.7
    ),
    "of all that follows": MultDAE(
        latent=8, epochs=4, batch_size=128, target="following", set_share=0.4
    ),
}
# What 32 bits leave open of scores of size 1 after some dozen steps of Adam in another order of sums.
ROUNDING = 1e-4
LOOP, STACK = Loop(), Stacked()


def weights_of(number: int) -> FloatArray:
    """Model 0 learns from all 400 users, model 1 from 300, and so on, with weights of their own."""
    weights = np.random.default_rng(number).uniform(0.1, 2, 400)
    weights[400 - 100 * number :] = 0
    return weights


def many_fits(base: Recommender, split: Split, n: int = 4) -> ManyFits:
    data = TrainingData.of(split.train.matrix())
    return ManyFits(copies_of(base, n, seed=3, name="local model"), data, weights_of, "test")


def answers(models: LocalModels, split: Split) -> FloatArray:
    """Return the scores of all models after training, (models, users, items)."""
    histories = split.test.history_matrix[:30]
    return np.stack([models.score_with(number, histories) for number in range(len(models))])


def planned(size: int, at_once: int) -> Callable[..., StackPlan]:
    return lambda *_, networks, **__: StackPlan(
        networks, min(size, networks), at_once, 64, "cpu", 0, 0
    )


@pytest.fixture(scope="module")
def of_the_loop(planted_split: Split) -> Callable[[str], FloatArray]:
    """The answers of a base's networks after the loop has trained them, which it does once for each base."""
    return cache(
        lambda name: answers(train(many_fits(BASES[name], planted_split), LOOP), planted_split)
    )


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize(("size", "at_once"), [(1, 1), (3, 2), (4, 1), (4, 4)])
def test_the_stack_answers_as_the_loop_does(
    name: str,
    size: int,
    at_once: int,
    planted_split: Split,
    of_the_loop: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan_file, "plan_stacks", planned(size, at_once))
    found = answers(train(many_fits(BASES[name], planted_split), STACK), planted_split)
    np.testing.assert_allclose(found, of_the_loop(name), atol=ROUNDING)


@pytest.mark.parametrize("name", BASES)
def test_histories_multiplied_as_dense_arrays_give_what_the_loop_gives(
    name: str, planted_split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_file, "multiplies_densely", lambda *_: True)
    called: list[str] = []
    for part in ("codes", "gradient"):
        really = getattr(DenseInputs, part)

        def counted(
            self: DenseInputs, *rest: object, part: str = part, really: Callable = really
        ) -> object:
            called.append(part)
            return really(self, *rest)

        monkeypatch.setattr(DenseInputs, part, counted)
    expected = answers(train(many_fits(BASES[name], planted_split), LOOP), planted_split)
    assert not called
    found = answers(train(many_fits(BASES[name], planted_split), STACK), planted_split)
    np.testing.assert_allclose(found, expected, atol=ROUNDING)
    assert called.count("codes") == called.count("gradient") > 0


def test_dense_arrays_are_for_full_histories_on_a_gpu() -> None:
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    for precision, share in (("bfloat16", 0.01), ("float32", 0.03)):
        full, thin = (
            csr_array(np.arange(10_000).reshape(100, 100) < 10_000 * part)
            for part in (share, share / 2)
        )
        assert multiplies_densely(full, cuda, precision)
        assert not multiplies_densely(thin, cuda, precision)
        assert not multiplies_densely(full, cpu, precision)
    unsorted = csr_array((np.ones(3), [2, 0, 1], [0, 3]), shape=(1, 3))
    twice = csr_array((np.ones(3), [2, 0, 2], [0, 3]), shape=(1, 3))
    assert multiplies_densely(unsorted, cuda, "float32")
    assert not multiplies_densely(twice, cuda, "float32")  # an array has one place for the item
    assert twice.indices.tolist() == [2, 0, 2]


def test_dense_arrays_are_planned_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_file, "free_bytes", lambda device: 10**9)
    network = Autoencoder(1000, 20, None, True, torch.device("meta"))
    sizes = [
        plan_stacks(
            network,
            512,
            networks=10,
            users=512,
            device=torch.device("cuda"),
            dense=dense,
        )
        for dense in (False, True)
    ]
    assert (
        sizes[1].device_bytes - sizes[0].device_bytes == 10 * 4 * 1024 * 40
    )  # 1,000 items in aligned rows


def test_the_best_epoch_is_the_same_in_both_engines(planted_split: Split) -> None:
    base = MultVAE(
        latent=8, epochs=12, patience=3, batch_size=64, learning_rate=3e-2, kl_weight=0.1
    )

    def validate(models: LocalModels) -> float:
        assert planted_split.validation is not None
        return mean_value(lambda rows: models.score_with(1, rows), planted_split.validation)

    loop, stack = (
        train(many_fits(base, planted_split, 3), engine, validate) for engine in (LOOP, STACK)
    )
    assert loop.epochs_ == stack.epochs_
    np.testing.assert_allclose(
        answers(stack, planted_split), answers(loop, planted_split), atol=ROUNDING
    )


def test_the_loss_of_a_stack_is_the_mean_of_the_losses(planted_split: Split) -> None:
    def trainers() -> list:
        models = copies_of(BASES["variational"], 3, seed=3, name="local model")
        return [
            model.begin(planted_split.train.matrix(), weights_of(j))
            for j, model in enumerate(models)
        ]  # type: ignore[attr-defined]

    loop = np.mean([one.run_epoch() for one in trainers()])
    assert StackedTrainer(trainers()).run_epoch() == pytest.approx(loop, rel=1e-5)


def test_sixteen_bit_products_come_near_and_keep_32_bit_weights(planted_split: Split) -> None:
    exact = answers(train(many_fits(BASES["variational"], planted_split), STACK), planted_split)
    rounded = train(many_fits(BASES["variational"], planted_split), Stacked(precision="bfloat16"))
    difference = np.abs(answers(rounded, planted_split) - exact).max()
    assert 1e-6 < difference < 0.05 * np.abs(exact).max()
    assert isinstance(rounded, StackedNetworks)
    assert rounded.weights_["output_table"].dtype == torch.float32


def test_a_step_that_runs_out_of_memory_goes_on_with_half_as_many_networks(
    planted_split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = answers(train(many_fits(BASES["variational"], planted_split), STACK), planted_split)
    monkeypatch.setattr(plan_file, "plan_stacks", planned(4, 4))
    seen: list[int] = []

    def small_memory(hidden: torch.Tensor, *rest: object) -> object:
        seen.append(len(hidden))
        if len(hidden) > 1:
            raise torch.OutOfMemoryError("not that much")
        return decode_and_differentiate(hidden, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(loss_file, "decode_and_differentiate", small_memory)
    found = answers(train(many_fits(BASES["variational"], planted_split), STACK), planted_split)
    assert seen[:3] == [4, 2, 1]
    np.testing.assert_allclose(found, expected, atol=ROUNDING)


@pytest.mark.parametrize("name", ["variational", "denoising", "of next items"])
def test_memory_that_runs_out_late_changes_no_network_twice(
    name: str, planted_split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradient of the input table is the last that is made."""
    expected = answers(train(many_fits(BASES[name], planted_split), STACK), planted_split)
    monkeypatch.setattr(plan_file, "plan_stacks", planned(4, 4))
    really = GatheredInputs.gradient
    failures: list[int] = []

    def small_memory(self: GatheredInputs, codes: torch.Tensor, n_items: int) -> object:
        if len(codes) > 1:
            failures.append(len(codes))
            raise torch.OutOfMemoryError("not that much")
        return really(self, codes, n_items)

    monkeypatch.setattr(GatheredInputs, "gradient", small_memory)
    found = answers(train(many_fits(BASES[name], planted_split), STACK), planted_split)
    assert failures == [4, 2]
    np.testing.assert_allclose(found, expected, atol=ROUNDING)


def test_one_network_that_does_not_fit_is_an_error(
    planted_split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: object) -> None:
        raise torch.OutOfMemoryError("not that much")

    monkeypatch.setattr(loss_file, "decode_and_differentiate", no_memory)
    with pytest.raises(torch.OutOfMemoryError):
        train(many_fits(BASES["variational"], planted_split), STACK, None)


def test_a_stack_that_cannot_be_built_is_built_in_halves(
    planted_split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = answers(train(many_fits(BASES["variational"], planted_split), STACK), planted_split)
    sizes: list[int] = []

    def small_memory(trainers: list, **how: object) -> StackedTrainer:
        sizes.append(len(trainers))
        if len(trainers) > 2:
            raise torch.OutOfMemoryError("not that much")
        return StackedTrainer(trainers, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(trainer_file, "StackedTrainer", small_memory)
    found = answers(train(many_fits(BASES["variational"], planted_split), STACK), planted_split)
    assert sizes == [4, 2, 2]
    np.testing.assert_allclose(found, expected, atol=ROUNDING)


def test_a_plan_fills_the_device_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_file, "free_bytes", lambda device: 140 * 10**9)
    device = torch.device("cuda")
    network = Autoencoder(11_797, 200, None, True, torch.device("meta"))
    whole = plan_stacks(
        network,
        512,
        networks=300,
        users=4000,
        device=device,
        precision="bfloat16",
    )
    assert (whole.stacks, whole.stack_size, whole.parked_bytes) == (1, 300, 0)
    assert 35e9 < whole.device_bytes < 50e9
    for free in (80, 24, 8, 2):
        monkeypatch.setattr(plan_file, "free_bytes", lambda device, free=free: free * 10**9)
        plan = plan_stacks(network, 512, networks=300, users=4000, device=device)
        assert plan.device_bytes <= free * 10**9
        assert 1 <= plan.at_once <= plan.stack_size
        assert bool(plan.parked_bytes) == (plan.stacks > 1)
    assert "stacks" in plan.description()
    assert "parked" in plan.description()
    assert "parked" not in whole.description()


def test_loss_and_gradients_are_those_of_automatic_differentiation() -> None:
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(2, 3, 4, generator=draw)
    table, bias = torch.randn(2, 7, 4, generator=draw), torch.randn(2, 7, generator=draw)
    columns = torch.tensor([0, 3, 6, 1, 2, 5, 0, 4])
    starts = torch.tensor([0, 2, 3, 3, 5, 7, 8])
    values = torch.rand(8, generator=draw)
    rows = SparseRows(columns, values, starts)
    scale = torch.rand(2, 3, generator=draw)
    amounts = torch.zeros(6).index_add(0, rows.owner, values).view(2, 3)
    entries = Entries(rows.owner, columns, values, values, starts, amounts)
    found = decode_and_differentiate(hidden, table, bias, entries, scale, "float32")
    leaves = [one.clone().requires_grad_() for one in (hidden, table, bias)]
    losses = multinomial_loss(
        torch.baddbmm(leaves[2][:, None], leaves[0], leaves[1].mT).flatten(0, 1), rows
    )
    (losses * scale.view(-1)).sum().backward()
    torch.testing.assert_close(found.losses.view(-1), losses.detach())
    for one, leaf in zip((found.hidden, found.table, found.bias), leaves, strict=True):
        torch.testing.assert_close(one, leaf.grad, rtol=1e-4, atol=1e-6)


def test_the_only_network_of_a_trainer_cannot_be_removed(planted_split: Split) -> None:
    model: Any = clone(BASES["variational"])
    trainer = model.begin(planted_split.train.matrix(), None)
    with pytest.raises(ValueError, match="drop the trainer"):
        trainer.remove(trainer.networks)


def test_adam_counts_the_steps_of_each_network() -> None:
    model = MultDAE(learning_rate=0.1, weight_decay=0.01)
    weights = torch.tensor([[1.0, -2.0], [3.0, 0.5]])
    gradients = torch.tensor([[0.3, -0.1], [0.2, 0.4]])
    state = AdamState(
        weights.clone(),
        torch.tensor([[0.0, 0.0], [0.1, 0.1]]),
        torch.tensor([[0.0, 0.0], [0.2, 0.3]]),
    )
    AdamStep(model, torch.tensor([0, 4])).apply(state, gradients)
    for number, steps in ((0, 0), (1, 4)):
        parameter = torch.nn.Parameter(weights[number].clone())
        optimiser = torch.optim.Adam([parameter], lr=0.1, weight_decay=0.01)
        if steps:
            optimiser.state[parameter] = {
                "step": torch.tensor(4.0), "exp_avg": torch.tensor([0.1, 0.1]), "exp_avg_sq": torch.tensor([0.2, 0.3])
            }  # fmt: skip
        parameter.grad = gradients[number].clone()
        optimiser.step()
        torch.testing.assert_close(state.weights[number], parameter.detach())


@pytest.mark.parametrize(
    "model",
    [
        Loca(base=BASES["variational"], communities=Kernels(n=3)),
        Ensemble(base=BASES["variational"], models=3),
    ],
    ids=["loca", "ensemble"],
)
def test_a_loca_and_an_ensemble_answer_the_same_with_both_engines(
    model: Recommender, planted_split: Split
) -> None:
    histories = planted_split.test.history_matrix[:10]
    scores = []
    for engine in (Loop(), Stacked(), None):
        fitted = clone(model, engine=engine)
        fitted.fit(planted_split.train, validation=planted_split.validation)
        scores.append(fitted.score(histories))
    np.testing.assert_allclose(scores[1], scores[0], atol=ROUNDING)
    np.testing.assert_array_equal(scores[2], scores[1])


@pytest.mark.parametrize("name", ["precision", "stored"])
def test_an_unknown_precision_is_refused(name: str) -> None:
    params: dict[str, Any] = {name: "float8"}
    with pytest.raises(ConfigError, match=f"{name}: expected 'float32' or .*, found 'float8'"):
        Stacked(**params)
