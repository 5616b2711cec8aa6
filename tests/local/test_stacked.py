"""The stacked engine against the loop: the same answer, whatever the stack size and whoever has fewer users."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import loca.local.stacked as stacked_file
from loca.data.held_out import Split
from loca.errors import ConfigError
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.local.one_by_one import copies_of, train_together
from loca.local.stacked import in_stacks, stack_size
from loca.models.mult_dae import MultDAE
from loca.models.mult_vae import MultVAE
from loca.models.recommender import Recommender
from loca.ranking.evaluation import mean_ndcg

BASES: dict[str, Recommender] = {
    "variational": MultVAE(latent=8, epochs=4, batch_size=64, kl_weight=0.2, anneal_steps=20, learning_rate=1e-2),
    "with a hidden layer": MultVAE(latent=8, hidden=12, epochs=4, batch_size=64, noise=0.01, kl_weight=0.0),
    "denoising": MultDAE(latent=8, epochs=4, batch_size=64, weight_decay=1e-3, learning_rate=1e-2),
    "without dropout": MultDAE(latent=8, hidden=12, epochs=4, batch_size=64, dropout=0.0),
}


def weights_of(number: int) -> np.ndarray:
    """Model 0 learns from all 400 users, model 1 from 300, and so on, with weights of their own."""
    weights = np.random.default_rng(number).uniform(0.1, 2, 400)
    weights[400 - 100 * number :] = 0
    return weights


def trained(base: Recommender, split: Split, arrange: object, count: int = 4) -> np.ndarray:
    """The scores of all models after training, (models, users, items)."""
    models = copies_of(base, count, seed=3, name="local model")
    matrix = split.train.matrix()
    train_together(models, matrix, weights_of, None, "test", arrange)  # type: ignore[arg-type]
    return np.stack([model.score(split.test.history_matrix[:30]) for model in models])


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("size", [1, 3, 4])
def test_the_stack_answers_as_the_loop_does(
    name: str, size: int, planted_split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacked_file, "stack_size", lambda one: size)
    expected = trained(BASES[name], planted_split, list)
    np.testing.assert_allclose(trained(BASES[name], planted_split, in_stacks), expected, atol=2e-4)


def test_the_best_epoch_is_the_same_in_both_engines(planted_split: Split) -> None:
    chosen = {}
    base = MultVAE(latent=8, epochs=12, patience=3, batch_size=64, learning_rate=3e-2, kl_weight=0.1)
    for name, arrange in (("loop", list), ("stack", in_stacks)):
        models = copies_of(base, 3, seed=1, name="local model")
        done = train_together(
            models,
            planted_split.train.matrix(),
            lambda number: np.ones(400),
            lambda fitted: mean_ndcg(fitted[1].score, planted_split.validation),
            "test",
            arrange,  # type: ignore[arg-type]
        )
        chosen[name] = (done.epochs, models[0].score(planted_split.test.history_matrix[:5]))
    assert chosen["loop"][0] == chosen["stack"][0]
    np.testing.assert_allclose(chosen["loop"][1], chosen["stack"][1], atol=1e-3)


def test_the_loss_of_a_stack_is_the_mean_of_the_losses(planted_split: Split) -> None:
    losses = []
    for arrange in (list, in_stacks):
        models = copies_of(BASES["variational"], 3, seed=3, name="local model")
        learning = [model.begin(planted_split.train.matrix(), weights_of(j)) for j, model in enumerate(models)]  # type: ignore[attr-defined]
        losses.append([np.mean([one.run_epoch() for one in arrange(learning)]) for _ in range(1)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_stack_is_as_large_as_half_of_the_free_memory_allows(
    planted_split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = MultVAE(latent=8, batch_size=64).begin(csr_array(planted_split.train.matrix()), None)
    weights = 60 * 16 + 16 + 60 * 8 + 60
    needed = 4 * (6 * weights + 3 * 64 * 60)
    for count in (1, 5):
        monkeypatch.setattr(stacked_file, "available_bytes", lambda count=count: 2 * count * needed)
        assert stack_size(one) == count
    monkeypatch.setattr(stacked_file, "available_bytes", lambda: 10)
    assert stack_size(one) == 1


def test_a_loca_and_an_ensemble_answer_the_same_with_both_engines(planted_split: Split) -> None:
    histories = planted_split.test.history_matrix[:10]
    for kind in (Loca, Ensemble):
        answers = []
        for engine in ("one_by_one", "stacked", "auto"):
            model = kind(
                base=BASES["variational"], engine=engine, **({"anchors": 3} if kind is Loca else {"models": 3})
            )
            answers.append(model.fit(planted_split.train, validation=planted_split.validation).score(histories))
        np.testing.assert_allclose(answers[1], answers[0], atol=1e-3)
        np.testing.assert_allclose(answers[2], answers[0], atol=1e-3)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown engine 'staked'; did you mean 'stacked'"):
        Ensemble(base=BASES["variational"], engine="staked")  # type: ignore[arg-type]
