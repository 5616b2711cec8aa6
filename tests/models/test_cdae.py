"""CDAE against the same network and losses written densely, its nodes against autograd, and what weights do to it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from torch.nn import functional as F

from loca.communities.geometry import Quantile
from loca.communities.kernel import Kernels
from loca.communities.mixture import Mixtures
from loca.data.splits import Split
from loca.errors import ConfigError, DataError, ModelFileError
from loca.evaluation.evaluate import mean_value
from loca.evaluation.metrics import Metric
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.cdae import CDAE, LossName, NodeNetwork, activate
from loca.models.devices import SparseRows
from loca.models.popularity import Popularity
from loca.persistence.learned import restored, state_of
from loca.persistence.manifest import ModelState
from loca.registry import load

CPU = torch.device("cpu")
LOSSES: list[LossName] = ["logistic", "square"]
SMALL = {"latent": 8, "learning_rate": 0.05, "epochs": 6, "patience": 3}


def random_rows(users: int = 30, items: int = 20, seed: int = 0) -> csr_array:
    rng = np.random.default_rng(seed)
    dense = (rng.random((users, items)) < 0.3) * rng.uniform(0.2, 1, (users, items))
    dense[:, 0] = 1  # nobody without a history
    return csr_array(dense.astype(np.float32))


def made(loss: LossName, node_l2: float = 0.3, fold_steps: int = 4) -> NodeNetwork:
    """A network whose weights are far from their small initial ones."""
    network = CDAE(latent=5, loss=loss, node_l2=node_l2, fold_steps=fold_steps).build(20, CPU)
    network.initialise(1)
    with torch.no_grad():
        network.output_bias.fill_(np.log(0.3 / 0.7) if loss == "logistic" else 0.3)
        network.input_table *= 100
        network.output_table *= 100
        network.mean_node.copy_(torch.linspace(-1, 1, 5))
        network.node_spread.fill_(0.25)
    return network


def dense_losses(network: NodeNetwork, dense: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
    """Each user's loss by the formula, with dense inputs and targets; the squares without the targets' own."""
    hidden = (
        torch.sigmoid(F.normalize(dense) @ network.input_table + network.input_bias + nodes) - 0.5
    )
    scores = hidden @ network.output_table.T + network.output_bias
    if network.is_logistic:
        return F.binary_cross_entropy_with_logits(scores, dense, reduction="none").sum(dim=1)
    return 0.5 * ((scores - dense) ** 2 - dense**2).sum(dim=1)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_sparse_losses_equal_the_dense_ones(loss: LossName) -> None:
    network, rows = made(loss), random_rows()
    sparse = SparseRows.of(rows, CPU)
    nodes = torch.randn(30, 5, generator=torch.Generator().manual_seed(2))
    hidden = activate(network.encode(sparse, sparse.unit_values()) + nodes)
    expected = dense_losses(network, torch.from_numpy(rows.toarray()), nodes)
    torch.testing.assert_close(network.losses(hidden, sparse), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_first_step_to_a_node_follows_the_slope_of_the_users_own_loss(loss: LossName) -> None:
    network, rows = made(loss, fold_steps=1), random_rows()
    nodes = network.mean_node.repeat(30, 1).requires_grad_()
    cost = dense_losses(
        network, torch.from_numpy(rows.toarray()), nodes
    ) + 0.15 * nodes.square().sum(dim=1)
    (slope,) = torch.autograd.grad(cost.sum(), nodes)
    expected = nodes.detach() - 0.1 * slope / slope.square().mean(dim=1, keepdim=True).sqrt()
    sparse = SparseRows.of(rows, CPU)
    found = network.find_nodes(network.encode(sparse, sparse.unit_values()), sparse)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_more_steps_lower_the_loss_of_nearly_every_history(loss: LossName) -> None:
    rows = random_rows()
    sparse, dense = SparseRows.of(rows, CPU), torch.from_numpy(rows.toarray())

    def losses_after(steps: int) -> torch.Tensor:
        network = made(loss, fold_steps=steps)
        nodes = network.find_nodes(network.encode(sparse, sparse.unit_values()), sparse)
        return dense_losses(network, dense, nodes) + 0.15 * nodes.square().sum(dim=1)

    assert (losses_after(1) < losses_after(0)).float().mean() > 0.9
    assert losses_after(5).mean() < losses_after(2).mean() < losses_after(0).mean()


def test_without_steps_the_mean_node_answers_for_everybody() -> None:
    network, rows = made("logistic", fold_steps=0), random_rows()
    inputs = (
        F.normalize(torch.from_numpy(rows.toarray())) @ network.input_table + network.input_bias
    )
    torch.testing.assert_close(network.means(rows), torch.sigmoid(inputs + network.mean_node) - 0.5)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), loss=st.sampled_from(LOSSES))
def test_an_answer_depends_on_its_own_history_alone(seed: int, loss: LossName) -> None:
    network, rows = made(loss), random_rows(users=6, seed=seed)
    with torch.no_grad():
        together = network.answer(rows)
        for row in range(6):
            torch.testing.assert_close(
                network.answer(csr_array(rows[[row]])), together[[row]], rtol=1e-4, atol=1e-4
            )


@pytest.mark.parametrize("loss", LOSSES)
def test_an_empty_history_and_values_above_one_get_finite_scores(loss: LossName) -> None:
    rows = csr_array(np.array([[0, 0, 0, 0], [5, 0, 9, 0], [1, 0, 0, 1]], np.float32))
    model = CDAE(loss=loss, **SMALL).fit(rows)
    assert np.isfinite(model.score(rows)).all()
    assert model.embed(rows).shape == (3, 8)
    only_ones = CDAE(loss=loss, **SMALL, dropout=0.0).fit(
        csr_array(np.array([[1, 0, 1, 0]], np.float32))
    )
    fives = CDAE(loss=loss, **SMALL, dropout=0.0).fit(
        csr_array(np.array([[5, 0, 5, 0]], np.float32))
    )
    np.testing.assert_allclose(fives.score(rows), only_ones.score(rows), rtol=1e-5)


def test_the_initial_biases_answer_with_the_share_of_the_users_who_have_an_item() -> None:
    rows = csr_array(np.array([[1, 0, 1], [0, 1, 1], [0, 0, 4], [0, 0, 0]], np.float32))
    for loss, unlinked in (("logistic", torch.sigmoid), ("square", torch.clone)):
        network = CDAE(latent=4, loss=loss).begin(rows, np.array([2, 1, 1, 7], np.float32)).network
        torch.testing.assert_close(
            unlinked(network.output_bias.detach()), torch.tensor([0.5, 0.25, 1.0])
        )
        assert 0 < network.input_table.abs().max() < 0.05


def test_the_network_knows_the_mean_and_the_spread_of_the_nodes() -> None:
    trainer = CDAE(**SMALL).begin(csr_array(np.eye(3, dtype=np.float32)), np.array([1, 2, 1]))
    trainer.nodes.copy_(torch.tensor([[0.0], [4.0], [8.0]]).expand(3, 8))
    trainer.describe_nodes()
    torch.testing.assert_close(trainer.network.mean_node, torch.full((8,), 4.0))
    torch.testing.assert_close(trainer.network.node_spread, torch.tensor([8.0**0.5]))


@pytest.mark.parametrize("loss", LOSSES)
def test_learning_charges_each_node_by_its_square_in_the_units_of_that_user_s_loss(
    loss: LossName,
) -> None:
    rows = csr_array(np.array([[1, 0, 0, 1], [0, 1, 1, 0]], np.float32))
    settings = {
        "latent": 2,
        "loss": loss,
        "dropout": 0.0,
        "learning_rate": 0.05,
        "weight_decay": 0.0,
    }
    trainer = CDAE(node_l2=0.2, **settings).begin(rows, np.array([3.0, 1.0], np.float32))
    for weight in trainer.network.parameters():
        weight.data.zero_()  # so that every item scores 0, whatever the node
    nodes = torch.tensor([[3.0, -4.0], [1.0, 0.0]], requires_grad=True)
    found = trainer.loss_with(np.array([0, 1]), nodes)
    # Squares cost ½ · .2 · 25 and ½ · .2 · 1; of weights 3 and 1 the first counts 1½ times, the second half.
    items = 4 * np.log(2) if loss == "logistic" else 0.0
    assert found.item() == pytest.approx(items + (1.5 * 2.5 + 0.5 * 0.1) / 2, rel=1e-6)
    (slope,) = torch.autograd.grad(found, nodes)
    torch.testing.assert_close(
        slope, torch.tensor([[1.5 * 0.6 / 2, -1.5 * 0.8 / 2], [0.5 * 0.2 / 2, 0.0]])
    )
    trainer.nodes.copy_(nodes.detach())
    trainer.run_epoch()
    # The first step of Adam is one learning rate long: nothing but their cost pulls these nodes, and towards 0.
    torch.testing.assert_close(trainer.nodes, torch.tensor([[2.95, -3.95], [0.95, 0.0]]))


def test_the_dearer_nodes_are_the_smaller_the_learned_ones_become() -> None:
    rows = random_rows()

    def mean_square(node_l2: float) -> float:
        trainer = CDAE(**SMALL, node_l2=node_l2).begin(rows, None)
        for _ in range(30):
            trainer.run_epoch()
        return float(trainer.nodes.square().mean())

    free, charged, dear = (mean_square(node_l2) for node_l2 in (0.0, 1.0, 100.0))
    assert free > 2 * charged > 4 * dear


def test_nodes_step_like_adam() -> None:
    trainer = CDAE(latent=3, learning_rate=0.02).begin(csr_array(np.eye(7, dtype=np.float32)), None)
    weights = torch.nn.Parameter(torch.zeros(7, 3))
    adam = torch.optim.Adam([weights], lr=0.02)
    draws = torch.Generator().manual_seed(1)
    for epoch in range(1, 6):
        trainer.epoch = epoch
        weights.grad = torch.randn(7, 3, generator=draws)
        adam.step()
        for users in (torch.tensor([4, 0, 2]), torch.tensor([6, 5, 1, 3])):
            trainer.move_nodes(users, weights.grad[users])
    torch.testing.assert_close(trainer.nodes, weights.detach())


@pytest.mark.parametrize("loss", LOSSES)
def test_weighting_users_by_whole_numbers_equals_repeating_them(loss: LossName) -> None:
    rows = random_rows()
    times = np.random.default_rng(4).integers(0, 4, rows.shape[0])
    repeated = csr_array(rows[np.repeat(np.arange(rows.shape[0]), times)])
    model = CDAE(loss=loss, dropout=0.0, batch_size=1000, **SMALL)
    weighted = model.fit(rows, user_weights=times).score(rows)
    np.testing.assert_allclose(model.fit(repeated).score(rows), weighted, rtol=2e-3, atol=2e-3)


def test_a_user_without_weight_leaves_no_trace() -> None:
    rows = random_rows()
    weights = np.ones(30, np.float32)
    weights[10:] = 0
    whole = CDAE(seed=2, **SMALL).fit(rows, user_weights=weights)
    part = CDAE(seed=2, **SMALL).fit(csr_array(rows[:10]))
    np.testing.assert_array_equal(whole.score(rows), part.score(rows))


def test_weights_for_users_without_a_history_alone_are_refused() -> None:
    rows = csr_array(np.array([[0, 0], [1, 1]], np.float32))
    with pytest.raises(
        DataError, match="expected a user with a history among those with a weight above 0"
    ):
        CDAE(**SMALL).fit(rows, user_weights=np.array([1.0, 0.0]))


@pytest.mark.parametrize("loss", LOSSES)
def test_it_learns_who_likes_what(loss: LossName, planted_split: Split) -> None:
    model = CDAE(latent=16, loss=loss, learning_rate=0.02, batch_size=100, epochs=40, patience=8)
    model.fit(planted_split.train, validation=planted_split.validation)
    popularity = Popularity().fit(planted_split.train)
    found, popular = (
        mean_value(one.score, planted_split.test, Metric("ndcg", 10)) for one in (model, popularity)
    )
    assert found > 1.3 * popular


def test_the_best_epoch_on_validation_stays(planted_split: Split) -> None:
    model = CDAE(latent=16, learning_rate=0.05, batch_size=100, epochs=30, patience=3)
    model.fit(planted_split.train, validation=planted_split.validation)
    assert model.best_epoch_ is not None
    again = model.selected().fit(planted_split.train)
    assert again.epochs == model.best_epoch_
    histories = planted_split.test.history_matrix[:20]
    np.testing.assert_array_equal(again.score(histories), model.score(histories))


def test_learning_goes_on_from_its_state_as_if_it_had_never_stopped() -> None:
    rows = random_rows()
    whole, first, second = (CDAE(batch_size=7, **SMALL) for _ in range(3))
    through = whole.begin(rows, None)
    begun = first.begin(rows, None)
    begun.load_state_dict(second.begin(rows, None).state_dict())  # before the first step
    for _ in range(4):
        through.run_epoch()
    for _ in range(2):
        begun.run_epoch()
    continued = second.begin(rows, None)
    continued.load_state_dict(begun.state_dict())
    for _ in range(2):
        continued.run_epoch()
    np.testing.assert_array_equal(second.score(rows), whole.score(rows))


def test_a_second_fit_forgets_the_first_and_a_seed_makes_a_difference() -> None:
    rows = random_rows()
    model = CDAE(**SMALL)
    once = model.fit(rows).score(rows)
    model.fit(csr_array(rows[::2]))
    np.testing.assert_array_equal(model.fit(rows).score(rows), once)
    assert np.abs(CDAE(seed=1, **SMALL).fit(rows).score(rows) - once).max() > 1e-4


LOCALS = {
    "loca": lambda: Loca(
        base=CDAE(**SMALL),
        communities=Kernels(n=3, train_bandwidth=Quantile(0.6), answer_bandwidth=Quantile(0.2)),
    ),
    "loca of squares": lambda: Loca(
        base=CDAE(loss="square", **SMALL), communities=Mixtures(n=4, shared_epochs=1)
    ),
    "ensemble": lambda: Ensemble(base=CDAE(**SMALL), models=2),
}


@pytest.mark.parametrize("name", LOCALS)
def test_local_models_of_it_answer_the_same_after_saving_and_loading(
    name: str, planted_split: Split, tmp_path: Path
) -> None:
    model = LOCALS[name]().fit(planted_split.train, validation=planted_split.validation)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model", verify=True)
    histories = planted_split.test.history_matrix[:30]
    scores = model.score(histories)
    assert np.isfinite(scores).all()
    np.testing.assert_array_equal(loaded.score(histories), scores)


def test_a_file_that_does_not_fit_is_refused() -> None:
    model = CDAE(**SMALL).fit(random_rows())
    good = state_of(model)
    params = {"latent": 8}
    tables, biases = {"input_table", "output_table"}, {"input_bias", "output_bias"}
    assert set(good.arrays) == tables | biases | {"mean_node", "node_spread"}
    assert all(array.dtype == np.float32 for array in good.arrays.values())
    broken = {
        "arrays do not fit the parameters: input_table": {
            "input_table": np.zeros((20, 7), np.float32)
        },
        "arrays do not fit the parameters: nodes": {"nodes": np.zeros(3, np.float32)},
        "finite 32-bit numbers in the array mean_node": {
            "mean_node": np.full(8, np.nan, np.float32)
        },
        "finite 32-bit numbers in the array output_bias": {"output_bias": np.zeros(20)},
    }
    for message, changes in broken.items():
        with pytest.raises(ModelFileError, match=message):
            restored(CDAE, params, ModelState({**good.arrays, **changes}, good.facts))
    without = {name: array for name, array in good.arrays.items() if name != "output_bias"}
    with pytest.raises(ModelFileError, match="output_bias is missing"):
        restored(CDAE, params, ModelState(without, good.facts))
    with pytest.raises(ModelFileError, match="best_epoch: expected a whole number"):
        restored(CDAE, params, ModelState(good.arrays, {"best_epoch": "two"}))


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("loss", "logistc", r"unknown loss 'logistc'; did you mean 'logistic'\?"),
        ("loss", "hinge", "unknown loss 'hinge'; expected 'logistic' or 'square'"),
        ("dropout", 1.0, "dropout: expected a number from 0 to below 1"),
        ("learning_rate", 0.0, "learning_rate: expected a number above 0"),
        ("weight_decay", -1.0, "weight_decay: expected a number ≥ 0"),
        ("node_l2", float("nan"), "node_l2: expected a number ≥ 0"),
        ("fold_steps", -1, "fold_steps: expected a whole number ≥ 0"),
        ("fold_steps", True, "fold_steps: expected a whole number ≥ 0"),
        ("batch_size", 0.5, "batch_size: expected a whole number ≥ 1"),
        ("latent", 0, "latent: expected a whole number ≥ 1"),
    ],
)
def test_parameters_out_of_range_are_refused(name: str, wrong: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CDAE(**{name: wrong})
