"""One model in several implementations: ours, cornac's, implicit's and lenskit's learn the same matrix and score it.

All read settings under our names. Where a rival means something else by its own name, its function says what is passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from unittest import mock

import cornac
import numpy as np
import numpy.typing as npt
import torch
from lenskit.als import ImplicitMFScorer
from lenskit.data import Dataset as LenskitData
from lenskit.data import ItemList, RecQuery
from lenskit.knn import EASEScorer, ItemKNNScorer, SLIMScorer
from lenskit.training import TrainingOptions
from scipy.sparse import csr_array

import loca
from loca.evaluation.evaluate import measure
from rivals_libraries import Cornac, Lenskit

Settings = Mapping[str, Any]
Scores = npt.NDArray[Any]
Values = npt.NDArray[np.float64]

LIST_LENGTH = 100
_METRIC = f"ndcg@{LIST_LENGTH}"
_USERS_AT_ONCE = 500


@dataclass(frozen=True, eq=False)
class Task:
    """What everybody is given: the same train part to learn, and the validation part to choose by; never the test."""

    train: loca.Interactions
    validation: loca.HeldOut
    seed: int

    @cached_property
    def matrix(self) -> csr_array:
        """The histories as a binary matrix, users × items."""
        return self.train.matrix()

    @cached_property
    def lenskit_data(self) -> LenskitData:
        return Lenskit(self.matrix, 1).train

    def cornac_data(self) -> cornac.data.Dataset:
        """Made anew for each training, because what is hung on it to watch an epoch stays there."""
        return Cornac(self.matrix).train

    def values(self, scores: Scores) -> Values:
        """The NDCG@100 of each user with a validation item, seen items hidden, by this project's own measure."""
        return measure(lambda users: scores[users], self.validation, at=(LIST_LENGTH,)).values[
            _METRIC
        ]


@dataclass(frozen=True, eq=False)
class Trial:
    """What one implementation reached with one setting: a value for each user, and the epoch where it was best.

    `of_seeds` are the figures that the values are the mean of.
    """

    settings: Settings
    values: Values
    epoch: int | None = None
    of_seeds: tuple[float, ...] = ()

    @property
    def ndcg(self) -> float:
        return float(self.values.mean())


Implementation = Callable[[Task, Settings], Trial]


def ours(model: Callable[..., Any]) -> Implementation:
    """This project's model, where nothing is left to chance."""

    def attempt(task: Task, settings: Settings) -> Trial:
        fitted = model(**settings).fit(task.train)
        return Trial(settings, task.values(fitted.score(task.matrix)))

    return attempt


def our_factors(model: Callable[..., Any]) -> Implementation:
    """This project's model with factors that are drawn first and then solved a set number of times."""

    def attempt(task: Task, settings: Settings) -> Trial:
        fitted = model(**settings, seed=task.seed).fit(task.train, device="cpu")
        return Trial(settings, task.values(fitted.score(task.matrix)))

    return attempt


def our_network(model: Callable[..., Any]) -> Implementation:
    """This project's network, which keeps the epoch of the best validation by itself."""

    def attempt(task: Task, settings: Settings) -> Trial:
        fitted = model(**settings, seed=task.seed).fit(
            task.train, validation=task.validation, device="cpu"
        )
        return Trial(settings, task.values(fitted.score(task.matrix)), fitted.best_epoch_)

    return attempt


def lenskit_ease(task: Task, settings: Settings) -> Trial:
    return _ask_lenskit(task, settings, EASEScorer(regularization=settings["l2"]))


def lenskit_slim(task: Task, settings: Settings) -> Trial:
    """It minimises ½‖x − Xw‖² + l1‖w‖₁ + ½ l2‖w‖² with w ≥ 0 in at most 100 rounds."""
    return _ask_lenskit(task, settings, SLIMScorer(l1_reg=settings["l1"], l2_reg=settings["l2"]))


def lenskit_knn_of_histories(task: Task, settings: Settings) -> Trial:
    """Its own meaning of k: of a history, the k items most similar to the one that is scored. It does not shrink."""
    return _ask_lenskit(
        task, settings, ItemKNNScorer(max_nbrs=settings["neighbours"], feedback="implicit")
    )


def lenskit_knn_of_items(task: Task, settings: Settings) -> Trial:
    """The k items most similar to each item of a history may gain by it; ours are the k nearest of the scored one."""
    everything = task.matrix.shape[1]
    scorer = ItemKNNScorer(
        max_nbrs=everything, save_nbrs=settings["neighbours"], feedback="implicit"
    )
    return _ask_lenskit(task, settings, scorer)


def lenskit_wmf(task: Task, settings: Settings) -> Trial:
    """A stored pair weighs 1 + weight; users' factors are solved anew from their histories, as ours."""
    scorer = ImplicitMFScorer(
        embedding_size=settings["factors"],
        epochs=settings["iterations"],
        regularization={"user": settings["user_l2"], "item": settings["item_l2"]},
        weight=settings["confidence"],
    )
    return _ask_lenskit(task, settings, scorer)


def _ask_lenskit(task: Task, settings: Settings, scorer: Any) -> Trial:
    """Trains a scorer and asks it about every user's history; an item without a score counts as 0."""
    scorer.train(task.lenskit_data, TrainingOptions(rng=task.seed))
    everything = ItemList(item_ids=np.arange(task.matrix.shape[1]))
    scores = np.empty(task.matrix.shape, np.float32)
    starts = task.matrix.indptr
    for user in range(len(scores)):
        history = ItemList(
            item_ids=task.matrix.indices[starts[user] : starts[user + 1]].astype(np.int64)
        )
        answer = scorer(RecQuery(user_id=user, user_items=history), everything)
        scores[user] = np.nan_to_num(answer.scores("numpy"), nan=0.0)
    return Trial(settings, task.values(scores))


def implicit_wmf(task: Task, settings: Settings) -> Trial:
    """A stored pair weighs alpha. It has one regularisation for both sides: the users' is passed."""
    from implicit.cpu.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(
        factors=settings["factors"],
        regularization=settings["user_l2"],
        alpha=1.0 + settings["confidence"],
        iterations=settings["iterations"],
        use_cg=False,
        num_threads=1,
        random_state=task.seed,
    )
    matrix = task.matrix.astype(np.float32)
    model.fit(matrix, show_progress=False)
    users = model.recalculate_user(np.arange(matrix.shape[0]), matrix)
    return Trial(settings, task.values(users @ model.item_factors.T))


def implicit_knn(task: Task, settings: Settings) -> Trial:
    """The k items most similar to each item of a history may gain by it; it counts the item itself among them."""
    from implicit.nearest_neighbours import CosineRecommender

    model = CosineRecommender(K=settings["neighbours"] + 1, num_threads=1)
    model.fit(task.matrix.astype(np.float64), show_progress=False)
    return Trial(settings, task.values((task.matrix @ csr_array(model.similarity)).toarray()))


def cornac_ease(task: Task, settings: Settings) -> Trial:
    """With negative weights too, as in the paper; its default drops them."""
    model = cornac.models.EASE(lamb=settings["l2"], posB=False, verbose=False).fit(
        task.cornac_data()
    )
    return Trial(
        settings,
        task.values(np.vstack([model.score(user) for user in range(task.matrix.shape[0])])),
    )


def cornac_vae(task: Task, settings: Settings) -> Trial:
    """It has no dropout, no annealing and no early stopping: validation is looked at after each of its epochs."""
    model = cornac.models.VAECF(
        k=settings["latent"],
        autoencoder_structure=[settings["hidden"]] if settings["hidden"] else [],
        likelihood="mult",
        n_epochs=settings["epochs"],
        batch_size=100,  # its own
        learning_rate=settings["learning_rate"],
        beta=settings["kl_weight"],
        seed=task.seed,
    )

    def answer(histories: torch.Tensor) -> torch.Tensor:
        return model.vae.decode(model.vae.encode(histories)[0])

    watch = EpochWatch(task, settings, answer, passes_per_epoch=1)
    return watch.follow(model)


def cornac_recvae(task: Task, settings: Settings) -> Trial:
    """Asked without the dropout that its own `score` leaves on; the NDCG on train that it prints is not computed."""
    model = cornac.models.RecVAE(
        hidden_dim=settings["hidden"],
        latent_dim=settings["latent"],
        batch_size=settings["batch_size"],
        gamma=settings["gamma"],
        lr=settings["learning_rate"],
        n_epochs=settings["epochs"],
        seed=task.seed,
        use_gpu=False,
    )

    def answer(histories: torch.Tensor) -> torch.Tensor:
        model.recvae_model.eval()
        scores = model.recvae_model(histories, calculate_loss=False)
        model.recvae_model.train()
        return scores

    watch = EpochWatch(
        task, settings, answer, passes_per_epoch=model.n_enc_epochs + model.n_dec_epochs
    )
    with mock.patch("cornac.eval_methods.ranking_eval", return_value=([0.0], [])):
        return watch.follow(model)


class _EnoughEpochsError(Exception):
    """Ends a rival's training where validation has not risen for long."""


class EpochWatch:
    """Early stopping for a network of cornac's: validation after each epoch, the best one kept, the same patience.

    cornac asks its data for the users once for each pass over them; that is where an epoch is seen to end.
    """

    def __init__(
        self,
        task: Task,
        settings: Settings,
        answer: Callable[[torch.Tensor], torch.Tensor],
        passes_per_epoch: int,
    ) -> None:
        self.task = task
        self.settings = settings
        self.answer = answer
        self.passes_per_epoch = passes_per_epoch
        self.passes = 0
        self.best: Trial | None = None

    def follow(self, model: Any) -> Trial:
        """Trains the model to the end or until patience is lost, and gives its best epoch."""
        data = self.task.cornac_data()
        users_of = data.user_iter

        def watched_users(*args: Any, **options: Any) -> Iterator[Any]:
            if self.passes and self.passes % self.passes_per_epoch == 0:
                self._end_epoch()
            self.passes += 1
            return users_of(*args, **options)

        data.user_iter = watched_users
        try:
            model.fit(data)
            self._end_epoch()
        except _EnoughEpochsError:
            pass
        if self.best is None:
            raise RuntimeError("cornac ran no epoch")
        return self.best

    @torch.no_grad()
    def _end_epoch(self) -> None:
        epoch = self.passes // self.passes_per_epoch
        matrix = self.task.matrix
        parts = []
        for start in range(0, matrix.shape[0], _USERS_AT_ONCE):
            histories = matrix[start : start + _USERS_AT_ONCE].toarray().astype(np.float32)
            parts.append(self.answer(torch.from_numpy(histories)).numpy())
        trial = Trial(self.settings, self.task.values(np.vstack(parts)), epoch)
        if self.best is None or self.best.epoch is None or trial.ndcg > self.best.ndcg:
            self.best = trial
        elif epoch - self.best.epoch >= self.settings["patience"]:
            raise _EnoughEpochsError
