"""MultVAE and MultDAE against the same network written densely, and what weights, seeds and validation do to them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from loca.data.splits import Split
from loca.errors import ConfigError, ModelFileError
from loca.evaluation.evaluate import mean_value
from loca.evaluation.metrics import Metric
from loca.models.autoencoder import Autoencoder, divergence, multinomial_loss
from loca.models.devices import SparseRows, choose_device
from loca.models.mult_vae import MultDAE, MultVAE
from loca.persistence.learned import restored, state_of
from loca.persistence.manifest import ModelState

CPU = torch.device("cpu")


def random_rows(users: int = 30, items: int = 20, seed: int = 0) -> csr_array:
    rng = np.random.default_rng(seed)
    dense = (rng.random((users, items)) < 0.3) * rng.uniform(0.2, 1, (users, items))
    dense[:, 0] = 1  # nobody without a history
    return csr_array(dense.astype(np.float32))


def network(hidden: int | None, variational: bool, items: int = 20) -> Autoencoder:
    net = Autoencoder(items, 4, hidden, variational, CPU)
    net.initialise(1)
    return net


def dense_forward(net: Autoencoder, rows: csr_array) -> tuple[torch.Tensor, torch.Tensor]:
    """The same network with a dense input: mean (or activations) and logits."""
    inputs = torch.nn.functional.normalize(torch.from_numpy(rows.toarray()))
    codes = inputs @ net.input_table + net.input_bias
    if net.code_weight is not None:
        codes = torch.tanh(codes) @ net.code_weight + net.code_bias
    mean = codes[:, : net.latent] if net.variational else torch.tanh(codes)
    back = mean if net.back_weight is None else torch.tanh(mean @ net.back_weight + net.back_bias)
    return mean, back @ net.output_table.T + net.output_bias


@pytest.mark.parametrize("hidden", [None, 6])
@pytest.mark.parametrize("variational", [True, False])
def test_the_sparse_network_equals_the_dense_one(hidden: int | None, variational: bool) -> None:
    net, rows = network(hidden, variational), random_rows()
    sparse = SparseRows.of(rows, CPU)
    mean, _ = net.encode(sparse, sparse.unit_values())
    dense_mean, dense_logits = dense_forward(net, rows)
    torch.testing.assert_close(mean, dense_mean)
    torch.testing.assert_close(net.decode(mean), dense_logits)


def test_the_multinomial_loss_equals_the_written_out_one() -> None:
    rows = random_rows()
    logits = torch.randn(30, 20, generator=torch.Generator().manual_seed(3))
    expected = -(torch.from_numpy(rows.toarray()) * torch.log_softmax(logits, dim=1)).sum(dim=1)
    torch.testing.assert_close(multinomial_loss(logits, SparseRows.of(rows, CPU)), expected)


def test_the_divergence_equals_that_of_torch() -> None:
    mean, log_variance = torch.randn(5, 4), torch.randn(5, 4)
    code = torch.distributions.Normal(mean, torch.exp(0.5 * log_variance))
    expected = torch.distributions.kl_divergence(code, torch.distributions.Normal(0.0, 1.0)).sum(
        dim=1
    )
    torch.testing.assert_close(divergence(mean, log_variance), expected)


@pytest.mark.parametrize(
    "model",
    [
        MultVAE(latent=4, dropout=0.0, noise=0.0, kl_weight=0.3, anneal_steps=0),
        MultDAE(latent=4, dropout=0.0),
    ],
    ids=["variational", "denoising"],
)
def test_weighting_users_by_whole_numbers_equals_repeating_them_in_the_gradient(
    model: MultVAE | MultDAE,
) -> None:
    rows = random_rows()
    times = np.random.default_rng(4).integers(0, 4, rows.shape[0]).astype(np.float32)
    repeated = csr_array(rows[np.repeat(np.arange(rows.shape[0]), times.astype(int))])
    gradients = []
    for matrix, weights in ((rows, times), (repeated, np.ones(repeated.shape[0], np.float32))):
        trainer = model.begin(matrix, weights)
        trainer.batch_loss(np.arange(int((weights > 0).sum()))).backward()
        gradients.append([weight.grad.clone() for weight in trainer.network.parameters()])
    for weighted, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(weighted, plain, rtol=1e-4, atol=1e-5)


def test_a_user_without_weight_leaves_no_trace() -> None:
    rows = random_rows()
    weights = np.ones(30, np.float32)
    weights[10:] = 0
    whole = MultVAE(latent=4, epochs=3, seed=2).fit(rows, user_weights=weights)
    part = MultVAE(latent=4, epochs=3, seed=2).fit(csr_array(rows[:10]))
    np.testing.assert_array_equal(whole.score(rows), part.score(rows))


def test_dropout_keeps_the_expected_sum_and_drops_whole_entries() -> None:
    dropped = MultDAE(latent=4, dropout=0.4).begin(random_rows(), None).dropped(torch.ones(200_000))
    assert dropped.unique().tolist() == pytest.approx([0.0, 1 / 0.6])
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.01)


def test_the_kl_weight_grows_in_a_line_and_stays() -> None:
    steps = torch.tensor([0, 50, 100, 1000])
    grown = MultVAE(kl_weight=0.2, anneal_steps=100).kl_weights_at(steps)
    torch.testing.assert_close(grown, torch.tensor([0.0, 0.1, 0.2, 0.2]))
    torch.testing.assert_close(
        MultVAE(kl_weight=0.3, anneal_steps=0).kl_weights_at(steps), torch.full((4,), 0.3)
    )


@pytest.mark.parametrize("kind", [MultVAE, MultDAE])
def test_training_lowers_the_loss(kind: type, planted_split: Split) -> None:
    model = kind(latent=16, learning_rate=5e-3, dropout=0.0)
    trainer = model.begin(planted_split.train.matrix(), None)
    losses = [trainer.run_epoch() for _ in range(30)]
    assert losses[-1] < 0.97 * losses[0]


@pytest.mark.parametrize("kind", [MultVAE, MultDAE])
def test_the_best_epoch_on_validation_stays(kind: type, planted_split: Split) -> None:
    model = kind(latent=8, learning_rate=4e-2, epochs=120, patience=5, seed=3)
    model.fit(planted_split.train, validation=planted_split.validation)
    best = mean_value(model.score, planted_split.validation, Metric("ndcg", 100))
    assert model.best_epoch_ < 115
    again = model.selected()
    assert again.epochs == model.best_epoch_
    again.fit(planted_split.train)
    assert mean_value(again.score, planted_split.validation, Metric("ndcg", 100)) == pytest.approx(
        best, abs=1e-6
    )
    one_more = kind(latent=8, learning_rate=4e-2, epochs=model.best_epoch_ + 1, seed=3).fit(
        planted_split.train
    )
    assert mean_value(one_more.score, planted_split.validation, Metric("ndcg", 100)) <= best


def test_scores_are_decoded_from_the_embedding() -> None:
    rows = random_rows()
    model = MultVAE(latent=4, hidden=6, epochs=2).fit(rows)
    with torch.no_grad():
        decoded = model.network_.decode(torch.from_numpy(model.embed(rows))).numpy()
    np.testing.assert_allclose(model.score(rows), decoded, atol=1e-5)


def test_a_longer_history_of_the_same_taste_scales_nothing() -> None:
    model = MultVAE(latent=4, epochs=2).fit(random_rows())
    rows = random_rows(seed=5)
    np.testing.assert_allclose(model.score(rows), model.score(rows * 3), atol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"latent": 0}, "latent: expected a whole number ≥ 1, found 0"),
        ({"hidden": 0}, "hidden: expected"),
        ({"epochs": 1.5}, "epochs: expected"),
        ({"dropout": 1.0}, "dropout: expected a number from 0 to below 1, found 1.0"),
        ({"noise": -1.0}, "noise: expected a number ≥ 0"),
        ({"learning_rate": 0.0}, "learning_rate: expected a number above 0"),
        ({"batch_size": 0}, "batch_size: expected a whole number ≥ 1"),
    ],
)
def test_impossible_parameters_are_refused_when_the_model_is_made(
    wrong: dict[str, float], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        MultVAE(**wrong)


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected 'auto', 'cpu' or 'cuda', found 'gpu'"):
        choose_device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="no GPU is to be seen"):
            choose_device("cuda")


def test_weights_of_another_shape_are_refused_on_loading() -> None:
    model = MultVAE(latent=4, epochs=1).fit(random_rows())
    arrays = dict(state_of(model).arrays)
    with pytest.raises(ModelFileError, match="do not fit the parameters"):
        restored(MultVAE, {"latent": 5}, ModelState(arrays=arrays, facts={"best_epoch": 1}))
    del arrays["output_bias"]
    with pytest.raises(ModelFileError, match="output_bias is missing"):
        restored(MultVAE, {"latent": 4}, ModelState(arrays=arrays, facts={"best_epoch": 1}))
