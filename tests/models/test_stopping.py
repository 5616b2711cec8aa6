"""When learning ends: patience, and a climb that is waited for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from loca.models.autoencoder import Autoencoder
from loca.models.early_stopping import BestWeights, Network, learn_until_best, watched_by


class ToldScores:
    """A learning of nothing, whose scores are written down beforehand."""

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

    def stopped(self, patience: int) -> tuple[int, int]:
        """The epochs that were run, and the best of them."""
        best = learn_until_best(
            [self],  # type: ignore[list-item]
            lambda: self.scores[self.epoch - 1],
            epochs=len(self.scores),
            patience=patience,
            evaluate_every=1,
            what="told",
        )
        assert self.network.output_bias.tolist() == [best.epoch] * 2
        return self.epoch, best.epoch


def test_scores_that_fall_end_after_the_patience() -> None:
    assert ToldScores([0.1, 0.5, *(0.4 - 0.01 * k for k in range(30))]).stopped(10) == (12, 2)


def test_equal_scores_end_after_the_patience() -> None:
    assert ToldScores([0.3] * 40).stopped(10) == (11, 1)


def test_a_climb_out_of_a_dip_is_waited_for() -> None:
    dip = [0.30, 0.28, 0.25, 0.22, 0.20, 0.19, 0.18, 0.18]
    climb = [0.18 + 0.005 * k for k in range(1, 60)]
    falls = [0.2 - 0.001 * k for k in range(30)]
    run, best = ToldScores([*dip, *climb, *falls]).stopped(10)
    assert best == len(dip) + len(climb)
    assert run == best + 10


def test_a_climb_that_ends_below_the_best_ends_the_learning() -> None:
    scores = [0.5, *(0.2 + 0.005 * k for k in range(12)), *([0.1] * 30)]
    assert ToldScores(scores).stopped(10) == (14, 1)


@pytest.mark.parametrize("patience", [1, 2, 4, 8])
def test_with_little_patience_the_last_of_few_scores_is_no_climb(patience: int) -> None:
    scores = [0.5, *(0.1 + 0.01 * k for k in range(30))]
    assert ToldScores(scores).stopped(patience) == (1 + patience, 1)


def test_what_was_told_survives_an_interruption() -> None:
    network = Autoencoder(2, 1, None, False, torch.device("cpu"))
    first, second = BestWeights(), BestWeights()
    for epoch, score in enumerate([0.5, *(0.1 + 0.01 * k for k in range(11))], start=1):
        first.offer(epoch, score, [network])
    second.put_back(first.state(), [network])
    assert (second.epoch, second.score, second.told) == (first.epoch, first.score, first.told)
    assert not first.is_final(12, 10)
    assert not second.is_final(12, 10)


def test_a_watcher_is_told_every_score_and_may_end_the_learning() -> None:
    told = []

    def watch(epoch: int, score: float) -> None:
        told.append((epoch, score))
        if epoch == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), watched_by(watch):
        ToldScores([0.1, 0.2, 0.3, 0.4]).stopped(10)
    assert told == [(1, 0.1), (2, 0.2), (3, 0.3)]
