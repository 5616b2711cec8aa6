"""One base model in one world under one seed: the global model, its communities and the models trained for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.communities.communities import Communities
from loca.communities.embeddings import Embedder, TruncatedSVD
from loca.communities.geometry import Floats
from loca.data.held_out import HeldOut
from loca.local.engines import Engine, LocalTask, TrainedLocals, train_together
from loca.local.local_models import LocalModels
from loca.local.one_by_one import WeightsOf, copies_of
from loca.models.ease import EASE
from loca.models.recommender import Recommender, clone, get_params
from loca.random_streams import stream
from locality_memberships import Histories, Membership, around_anchors, embed_parts
from locality_questions import Questions, blend_with_global, scorer_on_device

SVD_DIMENSIONS = 32


@dataclass(frozen=True, eq=False)
class Setting:
    """What a trial is about: the base, the data of its world, and how many communities."""

    base: Recommender
    matrix: csr_array  # the training users, each row in the order of the history
    histories: Histories
    validation: HeldOut
    parts: dict[str, Questions]
    anchors: int
    seed: int
    device: torch.device
    stop_each: bool = False
    true_shares: dict[str, npt.NDArray[Any]] | None = None

    @property
    def linear(self) -> bool:
        return isinstance(self.base, EASE)


@dataclass(frozen=True, eq=False)
class Family:
    """Trained models, who they answer for, their blended scores by part, and what training them took."""

    models: LocalModels
    membership: Membership
    scores: dict[str, Tensor]
    epochs: int | None
    shown: float


class Trial:
    """Trains each thing once, when it is first asked for."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    @cached_property
    def global_model(self) -> Recommender:
        """The single model, stopped on validation where it learns by epochs."""
        return clone(self.setting.base).fit(self.setting.matrix, validation=self.setting.validation)

    @cached_property
    def global_scores(self) -> dict[str, Tensor]:
        """Its scores, users × items, by part."""
        score = scorer_on_device(self.global_model, self.setting.device)
        return {name: score(questions.histories) for name, questions in self.setting.parts.items()}

    @property
    def global_shown(self) -> float:
        """Users shown to the global model."""
        epochs = getattr(self.global_model, "best_epoch_", None)
        return float(self.setting.matrix.shape[0] * (epochs or 1))

    @cached_property
    def embedded(self) -> dict[str, Floats]:
        """All users as the global model's encoder sees them, or a truncated SVD where it has none."""
        embedder: object = self.global_model
        if not isinstance(embedder, Embedder):
            embedder = TruncatedSVD(dimensions=SVD_DIMENSIONS, seed=self.setting.seed).fit(self.setting.matrix)
        return embed_parts(embedder, self.setting.histories)

    @cached_property
    def found(self) -> tuple[Communities, Membership]:
        """Communities as Loca finds them."""
        one = self.setting
        return around_anchors(self.embedded, one.anchors, "coverage", one.seed, one.device)

    @cached_property
    def loca(self) -> Family:
        """Local models as Loca trains them: one number of epochs for all, chosen on the blended validation score."""
        return self.train(self.found[1], stop=True)

    def variant(self, membership: Membership) -> Family:
        """Local models of other communities, for the epochs that validation chose for Loca's unless told otherwise."""
        return self.train(membership, stop=self.setting.stop_each)

    def train(self, membership: Membership, *, stop: bool, models: list[Any] | None = None) -> Family:
        """A local model for each community, stopped on the blended validation score, or after Loca's epochs."""
        base = self.setting.base
        if not stop and self.loca.epochs is not None:
            base = clone(base, epochs=self.loca.epochs)
        copies = copies_of(base, membership.count, self.setting.seed, "local model") if models is None else models
        task = LocalTask(copies, self.setting.matrix, membership.train_weights, "local models", self.global_model)
        trained = self._train(task, lambda local: self.blended(local, membership.answering, "validation"), stop)
        support = sum(int((membership.train_weights(number) > 0).sum()) for number in range(membership.count))
        return self._family(trained, membership, support)

    @cached_property
    def ensemble(self) -> Family:
        """As many models as there are communities, each of all users: other seeds, or for EASE bootstrap samples."""
        return self.train_ensemble(range(self.setting.anchors), stop=True)

    def train_ensemble(self, numbers: range, *, stop: bool) -> Family:
        """The members of those numbers; without `stop` for the epochs that validation chose for the ensemble."""
        one, users = self.setting, self.setting.matrix.shape[0]
        base = one.base if stop or self.ensemble.epochs is None else clone(one.base, epochs=self.ensemble.epochs)
        copies = copies_of(base, numbers.stop, one.seed, "ensemble member")[numbers.start :]
        membership = _of_everyone(len(copies), one.parts, self._member_weights(numbers.start))
        task = LocalTask(copies, one.matrix, membership.train_weights, "ensemble", self.global_model)
        trained = self._train(task, lambda local: self.blended(local, membership.answering, "validation"), stop)
        return self._family(trained, membership, users * len(copies))

    def _member_weights(self, first: int) -> WeightsOf:
        users = self.setting.matrix.shape[0]

        def weights_of(number: int) -> npt.NDArray[Any]:
            if "seed" in get_params(self.setting.base):
                return np.ones(users, np.float32)
            rng = stream(self.setting.seed, "bootstrap sample", first + number)
            return rng.multinomial(users, np.full(users, 1 / users)).astype(np.float32)

        return weights_of

    def _train(self, task: LocalTask, answers: Callable[[LocalModels], Tensor], stop: bool) -> TrainedLocals:
        questions = self.setting.parts["validation"]
        engine = Engine("auto", "bfloat16" if self.setting.device.type == "cuda" else "float32")
        return train_together(task, engine, (lambda local: questions.ndcgs(answers(local)).mean()) if stop else None)

    def _family(self, trained: TrainedLocals, membership: Membership, support: int) -> Family:
        scores = {name: self.blended(trained.models, membership.answering, name) for name in self.setting.parts}
        return Family(trained.models, membership, scores, trained.epochs, float(support * (trained.epochs or 1)))

    def blended(self, models: Any, answering: Any, name: str) -> Tensor:
        """The blended scores of models for one part, the global ones for whom none of them answers."""
        questions = self.setting.parts[name]
        return blend_with_global(models, questions.histories, answering[name], self.global_scores[name])


def _of_everyone(count: int, parts: dict[str, Questions], weights_of: WeightsOf) -> Membership:
    answering = {
        name: csr_array(np.ones((len(questions), count), dtype=np.float32)) for name, questions in parts.items()
    }
    return Membership(count, weights_of, answering)
