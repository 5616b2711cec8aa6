"""Early stopping: patience, and a climb that is waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from loca.communities.kernel import Kernels
from loca.data.splits import HeldOut, Split
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.autoencoder import Autoencoder, Network
from loca.models.early_stopping import BestWeights, train_epochs
from loca.models.mult_vae import MultDAE
from loca.models.recommender import Recommender
from loca.persistence.fit_context import NO_CONTEXT, FitContext, StopFit
from loca.remarks import collect_remarks
from loca.tuning.model_selection import select


class Watch:
    """A callback that writes down what it sees, and raises what is said for an epoch."""

    def __init__(self, raised: Mapping[int, type[BaseException]]) -> None:
        self.seen: list[tuple[str, int, float]] = []
        self.raised = raised

    def on_epoch(self, part: str, epoch: int, score: float) -> None:
        self.seen.append((part, epoch, score))
        if epoch in self.raised:
            raise self.raised[epoch]


class ScriptedScores:
    """A training of nothing, whose scores are written down beforehand."""

    def __init__(self, scores: Sequence[float]) -> None:
        self.network = Autoencoder(2, 1, None, False, torch.device("cpu"))
        self.scores = scores
        self.epoch = 0

    @property
    def networks(self) -> list[Network]:
        return [self.network]

    def run_epoch(self) -> float:
        self.epoch += 1
        with torch.no_grad():
            self.network.output_bias.fill_(self.epoch)
        return 0.0

    def stopped(self, patience: int, context: FitContext = NO_CONTEXT) -> tuple[int, int]:
        """The epochs that were run, and the best of them."""
        schedule = MultDAE(epochs=len(self.scores), patience=patience)
        runners: list[Any] = [self]
        best = train_epochs(
            runners, schedule, "scripted", lambda: self.scores[self.epoch - 1], context
        )
        assert self.network.output_bias.tolist() == [best.epoch] * 2
        return self.epoch, best.epoch


def test_scores_that_fall_end_after_the_patience() -> None:
    assert ScriptedScores([0.1, 0.5, *(0.4 - 0.01 * k for k in range(30))]).stopped(10) == (12, 2)


def test_equal_scores_end_after_the_patience() -> None:
    assert ScriptedScores([0.3] * 40).stopped(10) == (11, 1)


def test_a_climb_out_of_a_dip_is_waited_for() -> None:
    dip = [0.30, 0.28, 0.25, 0.22, 0.20, 0.19, 0.18, 0.18]
    climb = [0.18 + 0.005 * k for k in range(1, 60)]
    falls = [0.2 - 0.001 * k for k in range(30)]
    run, best = ScriptedScores([*dip, *climb, *falls]).stopped(10)
    assert best == len(dip) + len(climb)
    assert run == best + 10


def test_a_climb_that_ends_below_the_best_ends_the_training() -> None:
    scores = [0.5, *(0.2 + 0.005 * k for k in range(12)), *([0.1] * 30)]
    assert ScriptedScores(scores).stopped(10) == (14, 1)


@pytest.mark.parametrize("patience", [1, 2, 4, 8])
def test_with_little_patience_the_last_of_few_scores_is_no_climb(patience: int) -> None:
    scores = [0.5, *(0.1 + 0.01 * k for k in range(30))]
    assert ScriptedScores(scores).stopped(patience) == (1 + patience, 1)


def test_the_history_of_scores_survives_an_interruption() -> None:
    network = Autoencoder(2, 1, None, False, torch.device("cpu"))
    first, second = BestWeights(), BestWeights()
    for epoch, score in enumerate([0.5, *(0.1 + 0.01 * k for k in range(11))], start=1):
        first.update(epoch, score, [network])
    second.load_state_dict(first.state_dict(), [network])
    assert (second.epoch, second.score, second.history) == (first.epoch, first.score, first.history)
    assert not first.is_final(12, 10)
    assert not second.is_final(12, 10)


def test_a_callback_gets_every_score_and_may_end_the_training() -> None:
    watch = Watch({3: KeyboardInterrupt})
    with pytest.raises(KeyboardInterrupt):
        ScriptedScores([0.1, 0.2, 0.3, 0.4]).stopped(10, FitContext(callbacks=[watch]))
    assert watch.seen == [("", 1, 0.1), ("", 2, 0.2), ("", 3, 0.3)]


def test_stop_fit_ends_the_training_where_it_is_and_the_best_epoch_stays() -> None:
    scores = [0.1, 0.4, 0.3, 0.5, 0.6]
    first, second = Watch({3: StopFit}), Watch({})
    context = FitContext(callbacks=[first, second])
    assert ScriptedScores(scores).stopped(10, context) == (3, 2)
    assert first.seen == second.seen == [("", 1, 0.1), ("", 2, 0.4), ("", 3, 0.3)]


def test_a_training_that_a_callback_ends_tells_of_no_limit() -> None:
    with collect_remarks() as collected:
        ScriptedScores([0.1, 0.2, 0.3]).stopped(10, FitContext(callbacks=[Watch({2: StopFit})]))
    assert collected.remarks == ()


def test_a_callback_may_end_each_training_of_a_local_model(planted_split: Split) -> None:
    watch = Watch({2: StopFit})
    model = Loca(base=MultDAE(latent=4, epochs=5, patience=5), communities=Kernels(n=3))
    model.fit(planted_split.train, validation=planted_split.validation, callbacks=[watch])
    assert [(part, epoch) for part, epoch, _ in watch.seen] == [
        ("global model", 1),
        ("global model", 2),
        ("", 1),
        ("", 2),
    ]
    assert model.local_ is not None, "the fit goes on after a training that was ended"
    assert model.local_.models.epochs_ is not None
    assert model.local_.models.epochs_ <= 2


@pytest.mark.parametrize(
    ("scores", "ending"),
    [
        (
            [0.1, 0.2, 0.3],
            "stopped at the limit of 3 epochs, while the validation score was still rising: more epochs may help",
        ),
        (
            [0.1, 0.3, 0.2],
            "stopped at the limit of 3 epochs, not by early stopping; best at epoch 2",
        ),
        ([0.3, *[0.2] * 20], ""),
    ],
)
def test_a_training_that_its_limit_of_epochs_ends_says_so(scores: list[float], ending: str) -> None:
    with collect_remarks(lambda one: None) as collected:
        ScriptedScores(scores).stopped(10)
    assert [str(one) for one in collected.remarks] == ([f"scripted {ending}"] if ending else [])


def test_the_report_of_a_network_of_a_local_model_and_of_an_ensemble_names_the_limit(
    planted_split: Split,
) -> None:
    network = MultDAE(latent=4, epochs=2, learning_rate=1e-3)
    models: dict[str, Recommender] = {
        "MultDAE": network,
        "local models": Loca(base=network, communities=Kernels(n=2)),
        "ensemble": Ensemble(base=network, models=2),
    }
    for name, model in models.items():
        report = model.fit(planted_split.train, validation=planted_split.validation).report()
        assert f"{name} stopped at the limit of 2 epochs" in report
        assert model.fit(planted_split.train).report() == ""
    assert isinstance(planted_split.validation, HeldOut)
    chosen = select([network], planted_split.train, planted_split.validation)
    assert "MultDAE stopped at the limit of 2 epochs" in str(chosen)
