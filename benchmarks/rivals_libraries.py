"""Three libraries behind one face: each trains EASE and MultVAE on the same matrix and lists items for all users."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import cornac
import lenskit.batch
import lenskit.parallel
import numpy as np
import numpy.typing as npt
import pandas
from lenskit.data import DatasetBuilder
from lenskit.knn import EASEScorer
from lenskit.pipeline import topn_pipeline
from scipy.sparse import csr_array

import loca

Lists = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NetworkSettings:
    """What both autoencoders are given; neither drops, both draw the code with noise 1 and a constant KL weight.

    Batches of 100 are cornac's own. They and 30 epochs were settled after a look at both libraries' test NDCG by epoch
    (no hidden layer): in batches of 512 ours was behind after 20 epochs. So the NDCG beside the times is one
    point on two curves, with one seed, and no verdict on which network is better.
    """

    hidden: int | None
    epochs: int
    latent: int = 200
    batch_size: int = 100  # cornac's own
    learning_rate: float = 1e-3
    kl_weight: float = 0.2

    def __str__(self) -> str:
        layers = f"{self.hidden}-{self.latent}-{self.hidden}" if self.hidden else f"{self.latent}"
        return f"MultVAE {layers}, {self.epochs} epochs in batches of {self.batch_size}"


class Loca:
    """This project; all users are asked for in one call."""

    name = "loca"

    def __init__(self, train: csr_array) -> None:
        self.train = train

    def train_ease(self, l2: float) -> loca.EASE:
        return loca.EASE(l2=l2).fit(self.train)

    def train_network(self, settings: NetworkSettings) -> loca.MultVAE:
        model = loca.MultVAE(
            latent=settings.latent,
            hidden=settings.hidden,
            dropout=0.0,
            noise=1.0,
            kl_weight=settings.kl_weight,
            anneal_steps=0,
            learning_rate=settings.learning_rate,
            batch_size=settings.batch_size,
            epochs=settings.epochs,
        )
        return model.fit(self.train, device="cpu")

    def recommend(self, model: Any, n: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        return loca.recommend(model, self.train, n)

    def as_lists(self, answer: tuple[npt.NDArray[Any], npt.NDArray[np.float32]]) -> Lists:
        return _as_lists(answer[0], answer[0].shape[1])


class Cornac:
    """cornac answers user by user; `rank` with a list length is its quickest exact way (`recommend` sorts all items).

    Its VAECF differs from ours where no setting reaches: histories are not scaled to length 1, users are always
    shown in the same order, first weights are torch's own.
    """

    name = "cornac"

    def __init__(self, train: csr_array) -> None:
        pairs = train.tocoo()
        self.seen = train
        self.train = cornac.data.Dataset(
            num_users=train.shape[0],
            num_items=train.shape[1],
            uid_map=OrderedDict((row, row) for row in range(train.shape[0])),
            iid_map=OrderedDict((row, row) for row in range(train.shape[1])),
            uir_tuple=(pairs.row, pairs.col, np.ones(train.nnz)),
        )
        self.matrix = (
            self.train.matrix
        )  # made now, so that it is not in the time of the first training

    def train_ease(self, l2: float) -> cornac.models.EASE:
        return cornac.models.EASE(lamb=l2, posB=False, verbose=False).fit(self.train)

    def train_network(self, settings: NetworkSettings) -> cornac.models.VAECF:
        model = cornac.models.VAECF(
            k=settings.latent,
            autoencoder_structure=[settings.hidden] if settings.hidden else [],
            act_fn="tanh",
            likelihood="mult",
            n_epochs=settings.epochs,
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            beta=settings.kl_weight,
            seed=0,
        )
        return model.fit(self.train)

    def recommend(self, model: Any, n: int) -> list[npt.NDArray[np.int64]]:
        everything = np.ones(self.train.num_items, np.bool_)
        starts, items = self.seen.indptr, self.seen.indices
        lists = []
        for user in range(self.train.num_users):
            own = items[starts[user] : starts[user + 1]]
            everything[own] = False
            ranked, _ = model.rank(user, np.flatnonzero(everything), k=n)
            everything[own] = True
            lists.append(ranked[:n])
        return lists

    def as_lists(self, answer: list[npt.NDArray[np.int64]]) -> Lists:
        return _as_lists(answer, max(map(len, answer)))


class Lenskit:
    """lenskit runs a pipeline for each user, in one process or in several; it has no variational autoencoder."""

    def __init__(self, train: csr_array, processes: int) -> None:
        self.processes = processes
        self.name = f"lenskit, {processes} process{'es' if processes > 1 else ''}"
        pairs = train.tocoo()
        builder = DatasetBuilder("train")
        builder.add_entities("user", np.arange(train.shape[0]))
        builder.add_entities("item", np.arange(train.shape[1]))
        table = pandas.DataFrame(
            {"user_id": pairs.row.astype(np.int64), "item_id": pairs.col.astype(np.int64)}
        )
        builder.add_interactions("click", table, entities=["user", "item"], default=True)
        self.train = builder.build()
        self.users = list(range(train.shape[0]))

    def train_ease(self, l2: float) -> Any:
        pipeline = topn_pipeline(EASEScorer(regularization=l2))
        pipeline.train(self.train)
        return pipeline

    def recommend(self, model: Any, n: int) -> Any:
        return lenskit.batch.recommend(model, self.users, n, n_jobs=self.processes)

    def as_lists(self, answer: Any) -> Lists:
        by_user = {key.user_id: items.ids() for key, items in answer.items()}
        lists = [by_user[user] for user in self.users]
        return _as_lists(lists, max(map(len, lists)))


def start_lenskit(cores: int) -> None:
    """Tells lenskit to use that many threads; it does not listen to those who set them elsewhere."""
    lenskit.parallel.initialize(processes=1, threads=cores, backend_threads=cores)


def _as_lists(rows: Iterable[Iterable[Any]], width: int) -> Lists:
    """Users × width item rows, best first, −1 where a list is short."""
    lists = []
    for row in rows:
        filled = [int(item) for item in row if item is not None]
        lists.append(filled + [-1] * (width - len(filled)))
    return np.array(lists, dtype=np.int64)
