"""RecVAE against its parts written out by hand, and what its turns, weights, seeds, files and interruptions do."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from torch import distributions
from torch.nn import functional as F

from loca.communities.geometry import Quantile
from loca.communities.kernel import Kernels
from loca.data.splits import Split
from loca.errors import ConfigError, ModelFileError
from loca.evaluation.evaluate import mean_value
from loca.evaluation.metrics import Metric
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.devices import SparseRows
from loca.models.rec_vae import (
    AlternatingTrainer,
    RecVAE,
    RecVaeNetwork,
    log_posterior,
    log_prior,
    sample,
)
from loca.persistence.learned import restored, state_of
from loca.persistence.manifest import ModelState
from loca.registry import load
from saved_model_examples import same

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {
    "latent": 16,
    "hidden": 24,
    "learning_rate": 1e-2,
    "epochs": 12,
    "batch_size": 100,
}
NARROW = Kernels(n=3, train_bandwidth=Quantile(0.6), answer_bandwidth=Quantile(0.2))


def random_rows(users: int = 30, items: int = 20, seed: int = 0) -> csr_array:
    rng = np.random.default_rng(seed)
    dense = (rng.random((users, items)) < 0.3).astype(np.float32)
    dense[:, 0] = 1  # nobody without a history
    return csr_array(dense)


def network(items: int = 20) -> RecVaeNetwork:
    net = RecVaeNetwork(items, 4, 6, CPU)
    net.initialise(1)
    return net


def trainer(
    matrix: csr_array, weights: np.ndarray | None = None, **changes: Any
) -> AlternatingTrainer:
    usual = {"latent": 4, "hidden": 6, "learning_rate": 1e-3, "batch_size": 1000}
    return RecVAE(**usual | changes).begin(matrix, weights, device="cpu")


def halves(net: RecVaeNetwork) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Copies of the weights of the encoder and of the decoder, by name."""
    copies = {name: weight.detach().clone() for name, weight in net.named_parameters()}
    decoder = {name: copies.pop(name) for name in ("output_table", "output_bias")}
    return copies, decoder


def test_the_sparse_network_equals_the_dense_one() -> None:
    net, rows = network(), random_rows() * 0.7
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(7)))
    histories = F.normalize(torch.from_numpy(rows.toarray()))

    def normed(sums: torch.Tensor, layer: int) -> torch.Tensor:
        swish = sums * torch.sigmoid(sums)
        centred = swish - swish.mean(dim=1, keepdim=True)
        spread = (centred**2).mean(dim=1, keepdim=True)
        return centred / (spread + 0.1).sqrt() * net.norm_scales[layer] + net.norm_shifts[layer]

    w, b = net.hidden_weights, net.hidden_biases
    h1 = normed(histories @ net.input_table + net.input_bias, 0)
    h2 = normed(h1 @ w[0] + b[0] + h1, 1)
    h3 = normed(h2 @ w[1] + b[1] + h1 + h2, 2)
    h4 = normed(h3 @ w[2] + b[2] + h1 + h2 + h3, 3)
    h5 = normed(h4 @ w[3] + b[3] + h1 + h2 + h3 + h4, 4)
    code = h5 @ net.code_weight + net.code_bias
    sparse = SparseRows.of(rows, CPU)
    torch.testing.assert_close(net.encode(sparse, sparse.unit_values()), code, rtol=1e-4, atol=1e-4)
    logits = code[:, :4] @ net.output_table.T + net.output_bias
    torch.testing.assert_close(net.answer(rows), logits, rtol=1e-4, atol=1e-4)


@given(st.integers(0, 10_000), st.floats(0.1, 30.0))
@settings(max_examples=30, deadline=None)
def test_the_prior_is_the_mixture_of_three_normals_in_every_coordinate(
    seed: int, spread: float
) -> None:
    draw = torch.Generator().manual_seed(seed)
    latent = spread * torch.randn(5, 3, generator=draw)
    remembered = torch.randn(5, 6, generator=draw)
    mean, log_variance = remembered[:, :3], remembered[:, 3:]
    means = torch.stack([torch.zeros(5, 3), mean, torch.zeros(5, 3)], dim=-1).double()
    log_variances = torch.stack(
        [torch.zeros(5, 3), log_variance, torch.full((5, 3), 10.0)], dim=-1
    ).double()
    mixture = distributions.MixtureSameFamily(
        distributions.Categorical(
            torch.tensor([0.15, 0.75, 0.1], dtype=torch.float64).expand(5, 3, 3)
        ),
        distributions.Normal(means, torch.exp(0.5 * log_variances)),
    )
    expected = mixture.log_prob(latent.double()).sum(dim=1).float()
    torch.testing.assert_close(log_prior(latent, remembered), expected, rtol=1e-4, atol=1e-4)


def test_the_prior_of_one_point_by_hand() -> None:
    # At 0, the code of the epoch before N(0, 1) too: (0.15 + 0.75 + 0.1 · e⁻⁵) / √(2π).
    by_hand = np.log((0.9 + 0.1 * np.exp(-5)) / np.sqrt(2 * np.pi))
    assert log_prior(torch.zeros(1, 1), torch.zeros(1, 2)).item() == pytest.approx(
        by_hand, rel=1e-6
    )


def test_a_sample_has_the_density_of_its_own_normal() -> None:
    code, noise = torch.randn(5, 8), torch.randn(5, 4)
    normal = distributions.Normal(code[:, :4], torch.exp(0.5 * code[:, 4:]))
    torch.testing.assert_close(
        log_posterior(code, noise), normal.log_prob(sample(code, noise)).sum(dim=1)
    )


def test_the_prior_counts_by_the_length_of_the_history_or_for_all_alike() -> None:
    rows = SparseRows.of(csr_array(np.array([[1, 1, 1], [0, 1, 0]], np.float32)), CPU)
    for beta, expected in ((None, [0.75, 0.25]), (0.5, [0.5, 0.5]), (0.0, [0.0, 0.0])):
        assert trainer(random_rows(), gamma=0.25, beta=beta).kl_weights(rows).tolist() == expected


def test_the_loss_of_the_encoder_by_hand() -> None:
    rows = random_rows(users=6)
    one = trainer(rows, dropout=0.0, gamma=0.02)
    prior = torch.randn(6, 8)
    users = np.array([4, 1, 0])
    code = one.codes()[users]
    latent = sample(code, one.noise(3))
    binary = torch.from_numpy(rows.toarray())[users]
    found = -(binary * torch.log_softmax(one.network.decode(latent), dim=1)).sum(dim=1)
    normal = distributions.Normal(code[:, :4], torch.exp(0.5 * code[:, 4:]))
    kl = normal.log_prob(latent).sum(dim=1) - log_prior(latent, prior[users])
    expected = (found + 0.02 * binary.sum(dim=1) * kl).mean()
    torch.testing.assert_close(one.encoder_loss(users, prior), expected)
    torch.testing.assert_close(one.decoder_loss(users, one.codes()), found.mean())


def test_each_half_rests_while_the_other_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    one = trainer(random_rows(), encoder_epochs=1)
    seen = [halves(one.network)]
    real = AlternatingTrainer.learn_from
    monkeypatch.setattr(
        AlternatingTrainer,
        "learn_from",
        lambda *given: (real(*given), seen.append(halves(one.network)))[0],
    )
    one.run_epoch()
    (encoder, decoder), (moved, rested), (at_rest, learned) = seen
    torch.testing.assert_close(rested, decoder, rtol=0, atol=0)
    assert all((moved[name] != encoder[name]).any() for name in encoder)
    torch.testing.assert_close(at_rest, moved, rtol=0, atol=0)
    assert all((learned[name] != decoder[name]).any() for name in decoder)


def test_an_epoch_takes_the_planned_turns_and_no_gradient_outlives_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns: list[str] = []
    for half in ("encoder_loss", "decoder_loss"):
        real = getattr(AlternatingTrainer, half)

        def noted(
            self: AlternatingTrainer, *given: Any, half: str = half, real: Any = real
        ) -> torch.Tensor:
            turns.append(half)
            resting = [
                name for name, weight in self.network.named_parameters() if not weight.requires_grad
            ]
            assert resting == ([] if half == "decoder_loss" else ["output_table", "output_bias"])
            return real(self, *given)

        monkeypatch.setattr(AlternatingTrainer, half, noted)
    one = trainer(random_rows(), batch_size=16, encoder_epochs=2, decoder_epochs=3)
    one.run_epoch()
    assert turns == ["encoder_loss"] * 4 + ["decoder_loss"] * 6
    assert one.step == 10
    assert all(weight.grad is None and weight.requires_grad for weight in one.network.parameters())


def test_the_prior_of_an_epoch_is_the_encoder_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[torch.Tensor] = []
    real = AlternatingTrainer.encoder_loss

    def noted(self: AlternatingTrainer, users: np.ndarray, prior: torch.Tensor) -> torch.Tensor:
        seen.append(prior.clone())
        return real(self, users, prior)

    monkeypatch.setattr(AlternatingTrainer, "encoder_loss", noted)
    one = trainer(random_rows())
    first = one.codes()
    one.run_epoch()
    second = one.codes()
    one.run_epoch()
    for prior, codes in zip(seen, [first] * 3 + [second] * 3, strict=True):
        torch.testing.assert_close(prior, codes, rtol=0, atol=0)
    assert (first - second).abs().max() > 1e-4


def gradients(matrix: csr_array, weights: np.ndarray, gamma: float) -> dict[str, torch.Tensor]:
    """Gradients of both halves in one full batch, where codes are so narrow that noise moves nothing."""
    one = trainer(matrix, weights, dropout=0.0, gamma=gamma)
    with torch.no_grad():
        one.network.code_bias[4:] = -40.0
    users = np.arange(len(one.support))
    (
        one.encoder_loss(users, torch.zeros(len(users), 8)) + one.decoder_loss(users, one.codes())
    ).backward()
    return {
        name: weight.grad
        for name, weight in one.network.named_parameters()
        if weight.grad is not None
    }


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.05]))
@settings(max_examples=10, deadline=None)
def test_weighting_users_by_whole_numbers_equals_repeating_them_in_the_gradient(
    seed: int, gamma: float
) -> None:
    rows = random_rows(seed=seed)
    times = np.random.default_rng(seed).integers(0, 4, 30)
    times[0] = 2
    repeated = csr_array(rows[np.repeat(np.arange(30), times)])
    weighted = gradients(rows, times.astype(np.float32), gamma)
    plain = gradients(repeated, np.ones(repeated.shape[0], np.float32), gamma)
    assert weighted.keys() == dict(network().named_parameters()).keys()
    for name, gradient in weighted.items():
        torch.testing.assert_close(gradient, plain[name], rtol=1e-3, atol=1e-5)


def test_a_user_without_weight_leaves_no_trace() -> None:
    rows = random_rows()
    weights = np.ones(30, np.float32)
    weights[10:] = 0
    whole = RecVAE(latent=4, hidden=6, epochs=2, seed=2).fit(rows, user_weights=weights)
    part = RecVAE(latent=4, hidden=6, epochs=2, seed=2).fit(csr_array(rows[:10]))
    np.testing.assert_array_equal(whole.score(rows), part.score(rows))


def test_training_lowers_the_loss(planted_split: Split) -> None:
    one = RecVAE(**SMALL).begin(planted_split.train.matrix(), None)
    losses = [one.run_epoch() for _ in range(15)]
    assert losses[-1] < 0.97 * losses[0]


def test_the_best_epoch_on_validation_stays(planted_split: Split) -> None:
    model = RecVAE(**SMALL | {"epochs": 60, "patience": 3}).fit(
        planted_split.train, validation=planted_split.validation
    )
    best = mean_value(model.score, planted_split.validation, Metric("ndcg", 100))
    assert model.best_epoch_ is not None
    assert model.best_epoch_ < 57
    again = model.selected()
    assert again.epochs == model.best_epoch_
    again.fit(planted_split.train)
    assert mean_value(again.score, planted_split.validation, Metric("ndcg", 100)) == pytest.approx(
        best, abs=1e-6
    )


def test_interrupted_learning_goes_on_with_the_same_numbers(planted_split: Split) -> None:
    matrix = planted_split.train.matrix()
    whole = RecVAE(**SMALL).begin(matrix, None)
    losses = [whole.run_epoch() for _ in range(4)]
    first = RecVAE(**SMALL).begin(matrix, None)
    assert [first.run_epoch() for _ in range(2)] == losses[:2]
    saved = copy.deepcopy(first.state_dict())
    first.run_epoch()
    second = RecVAE(**SMALL).begin(matrix, None)
    second.run_epoch()
    second.load_state_dict(saved)
    assert [second.run_epoch() for _ in range(2)] == losses[2:]
    assert (whole.step, whole.epoch) == (4 * 4 * 4, 4)
    assert same(second.state_dict(), whole.state_dict())


def test_the_state_of_a_training_that_has_not_begun_can_be_loaded() -> None:
    one, other = trainer(random_rows()), trainer(random_rows())
    with torch.no_grad():
        other.network.output_table.zero_()
    other.load_state_dict(one.state_dict())
    assert other.run_epoch() == one.run_epoch()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Loca(base=RecVAE(**SMALL | {"epochs": 3}), communities=NARROW),
        lambda: Ensemble(base=RecVAE(**SMALL | {"epochs": 3}), models=2),
    ],
    ids=["loca", "ensemble"],
)
def test_many_of_them_learn_side_by_side_and_answer_the_same_after_saving(
    make: Any, planted_split: Split, tmp_path: Path
) -> None:
    model = make().fit(planted_split.train, validation=planted_split.validation)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model", verify=True)
    histories = planted_split.test.history_matrix
    np.testing.assert_array_equal(loaded.score(histories), model.score(histories))
    assert np.isfinite(model.score(histories)).all()


def test_scores_are_decoded_from_the_embedding() -> None:
    rows = random_rows()
    model = RecVAE(latent=4, hidden=6, epochs=2).fit(rows)
    assert model.network_ is not None
    with torch.no_grad():
        decoded = model.network_.decode(torch.from_numpy(model.embed(rows))).numpy()
    np.testing.assert_allclose(model.score(rows), decoded, atol=1e-5)


def test_an_empty_history_and_a_longer_one_of_the_same_taste_are_answered() -> None:
    model = RecVAE(latent=4, hidden=6, epochs=2).fit(random_rows())
    rows = random_rows(seed=5)
    np.testing.assert_allclose(model.score(rows), model.score(rows * 3), atol=1e-5)
    assert np.isfinite(model.score(csr_array((2, 20), dtype=np.float32))).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"latent": 0}, "latent: expected a whole number ≥ 1, found 0"),
        ({"hidden": 0}, "hidden: expected a whole number ≥ 1, found 0"),
        ({"hidden": None}, "hidden: expected a whole number ≥ 1, found None"),
        ({"epochs": 1.5}, "epochs: expected"),
        ({"dropout": 1.0}, "dropout: expected a number from 0 to below 1, found 1.0"),
        ({"gamma": -0.1}, "gamma: expected a number ≥ 0, found -0.1"),
        ({"beta": float("nan")}, "beta: expected a number ≥ 0 or none, found nan"),
        ({"learning_rate": 0.0}, "learning_rate: expected a number above 0"),
        ({"batch_size": 0}, "batch_size: expected a whole number ≥ 1"),
        ({"encoder_epochs": 0}, "encoder_epochs: expected a whole number ≥ 1"),
        ({"decoder_epochs": 1.0}, "decoder_epochs: expected a whole number ≥ 1"),
    ],
)
def test_impossible_parameters_are_refused_when_the_model_is_made(
    wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        RecVAE(**wrong)


def test_weights_of_another_shape_are_refused_on_loading() -> None:
    model = RecVAE(latent=4, hidden=6, epochs=1).fit(random_rows())
    arrays = dict(state_of(model).arrays)
    for wrong in ({"latent": 5, "hidden": 6}, {"latent": 4, "hidden": 7}):
        with pytest.raises(ModelFileError, match="do not fit the parameters"):
            restored(RecVAE, wrong, ModelState(arrays=arrays, facts={"best_epoch": 1}))
    del arrays["output_bias"]
    with pytest.raises(ModelFileError, match="output_bias is missing"):
        restored(
            RecVAE, {"latent": 4, "hidden": 6}, ModelState(arrays=arrays, facts={"best_epoch": 1})
        )


def test_a_model_trained_on_a_gpu_opens_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = random_rows()
    model = RecVAE(latent=4, hidden=6, epochs=1).fit(rows, device="cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    opened = restored(RecVAE, {"latent": 4, "hidden": 6}, state_of(model))
    np.testing.assert_array_equal(opened.score(rows), model.score(rows))
