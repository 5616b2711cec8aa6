"""RecTools' SASRec, a transformer that reads histories in order, trained to convergence and measured on our splits.

Run: make ordered-rival ORDERED_ARGS="ml-1m --seeds 0 1 2 --out sasrec-ml-1m.json"   (needs LOCA_DATA)
DATA is amusic, games, ml-1m (found through LOCA_DATA), planted (a check in a minute), or an .npz file with `offsets`
and `item_rows`, oldest first. The settings are RecTools' defaults and those of its public benchmark
(github.com/blondered/bert4rec_repro): softmax loss over all items, at most 200 epochs, patience 50, best epoch kept.
Learns from train alone; the epoch is chosen by our own NDCG@100 on validation; test histories are train + validation.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import logging
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from pytorch_lightning import Trainer, seed_everything
from pytorch_lightning.callbacks import LambdaCallback
from rectools import Columns
from rectools.dataset import Dataset
from rectools.models.nn.transformers.sasrec import SASRecModel

import loca
from loca.evaluation.evaluate import mean_values, measure
from loca.evaluation.metrics import Metric
from loca.evaluation.significance import bootstrap_intervals
from ordered_sets import SETS, read_data

LIST_LENGTH = 100
USERS_AT_ONCE = 1024
UserRows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Settings:
    """What the model is trained with; the defaults are RecTools' own, the last three its benchmark's."""

    factors: int = 256
    blocks: int = 2
    heads: int = 4
    dropout: float = 0.2
    session_max_len: int = 100
    learning_rate: float = 0.001
    batch_size: int = 128
    loss: str = "softmax"
    max_epochs: int = 200
    patience: int = 50
    seconds: float = float("inf")


@dataclass
class Training:
    """One training as it goes: the loss and validation NDCG of each epoch, and the weights of the best one."""

    validation: loca.HeldOut
    settings: Settings
    after_epoch: Callable[[Training], None]
    started: float = field(default_factory=time.perf_counter)
    losses: list[float] = field(default_factory=list)
    ndcgs: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    best_weights: dict[str, torch.Tensor] = field(default_factory=dict)
    stopped_by: str = ""

    @property
    def best_epoch(self) -> int:
        """The epoch of the highest validation NDCG, counted from 1."""
        return int(np.argmax(self.ndcgs)) + 1

    def end_epoch(self, trainer: Any, module: Any) -> None:
        """Measures the model on validation, keeps it if it is the best so far, and stops after enough of no gain."""
        network = module.torch_model
        network.eval()
        scores = score_users(module, self.validation.histories)
        metric = Metric("ndcg", LIST_LENGTH)
        self.ndcgs += mean_values(lambda users: (scores(users),), self.validation, metric)
        network.train()
        self.losses.append(float(trainer.callback_metrics["train_loss"]))
        self.seconds.append(time.perf_counter() - self.started)
        if self.best_epoch == len(self.ndcgs):
            self.best_weights = {
                name: value.detach().clone() for name, value in network.state_dict().items()
            }
        if len(self.ndcgs) - self.best_epoch >= self.settings.patience:
            self.stopped_by = "patience"
        elif self.seconds[-1] >= self.settings.seconds:
            self.stopped_by = "seconds"
        elif len(self.ndcgs) >= self.settings.max_epochs:
            self.stopped_by = "max_epochs"
        trainer.should_stop = bool(self.stopped_by)
        self.after_epoch(self)

    def summary(self) -> dict[str, Any]:
        """What is known of the training so far, for the results."""
        return {
            "best_epoch": self.best_epoch,
            "epochs": len(self.ndcgs),
            "stopped_by": self.stopped_by,
            "validation_ndcg": max(self.ndcgs),
            "seconds": round(self.seconds[-1], 1),
            "losses": [round(loss, 4) for loss in self.losses],
            "validation_ndcgs": [round(ndcg, 5) for ndcg in self.ndcgs],
        }


def main() -> None:
    """Trains with each seed, prints every epoch, and writes the results again after each."""
    asked = parse_arguments()
    # Lightning and RecTools tell of their own doings at every start.
    warnings.simplefilter("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    data, validation = read_data(asked.data, asked.validation)
    split = loca.leave_last_out(data, test=5, validation=validation)
    settings = Settings(
        factors=asked.factors,
        dropout=asked.dropout,
        session_max_len=asked.session_max_len,
        batch_size=asked.batch_size,
        max_epochs=asked.max_epochs,
        patience=asked.patience,
        seconds=asked.seconds,
    )
    results: dict[str, Any] = {
        "data": asked.data,
        "validation": validation,
        "users": data.n_users,
        "items": data.n_items,
        "settings": asdict(settings)
        | {"seconds": None if asked.seconds == float("inf") else asked.seconds},
        "versions": {
            name: importlib.metadata.version(name)
            for name in ("rectools", "pytorch-lightning", "torch")
        },
        "device": torch.cuda.get_device_name() if asked.device == "cuda" else asked.device,
        "runs": [],
    }
    print(
        f"{asked.data}: {data.n_users:,} users, {data.n_items:,} items; {results['device']}; {settings}",
        flush=True,
    )
    values: list[npt.NDArray[Any]] = []
    for seed in asked.seeds:
        values.append(run_one(split, settings, seed, asked.device, results, asked.out))
        # Seeds × users, the users in the order of the data: for paired intervals against other models.
        np.save(asked.out.with_suffix(".npy"), np.stack(values))


def parse_arguments() -> argparse.Namespace:
    """The command line, checked."""
    usual = Settings()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help=f"{', '.join(SETS)}, planted, or an .npz file")
    parser.add_argument(
        "--validation",
        type=int,
        help="held-out items per user to choose the epoch on; set for .npz",
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument(
        "--device", choices=["cuda", "cpu"], default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        help="results (.json); values per user go beside it (.npy)",
    )
    parser.add_argument("--session-max-len", type=int, default=usual.session_max_len)
    parser.add_argument("--factors", type=int, default=usual.factors)
    parser.add_argument("--dropout", type=float, default=usual.dropout)
    parser.add_argument("--batch-size", type=int, default=usual.batch_size)
    parser.add_argument("--max-epochs", type=int, default=usual.max_epochs)
    parser.add_argument(
        "--patience", type=int, default=usual.patience, help="epochs without a gain before the end"
    )
    parser.add_argument(
        "--seconds", type=float, default=usual.seconds, help="ends a training that takes longer"
    )
    return parser.parse_args()


def run_one(
    split: loca.Split,
    settings: Settings,
    seed: int,
    device: str,
    results: dict[str, Any],
    out: Path,
) -> npt.NDArray[Any]:
    """Trains one model and gives each user's test NDCG at its best epoch; keeps `out` up to date meanwhile."""
    run: dict[str, Any] = {"seed": seed}
    results["runs"].append(run)

    def tell(training: Training) -> None:
        run.update(training.summary())
        out.write_text(json.dumps(results, indent=1))
        print(
            f"seed {seed} epoch {run['epochs']:>3}  loss {training.losses[-1]:.4f}  validation NDCG@100 "
            f"{training.ndcgs[-1]:.5f}  best {run['validation_ndcg']:.5f} ({run['best_epoch']})  {run['seconds']} s",
            flush=True,
        )

    module = train(split, settings, seed, device, tell)
    run["items_known"] = len(module.data_preparator.get_known_item_ids())
    measured = measure(score_users(module, split.test.histories), split.test, at=(LIST_LENGTH,))
    ndcgs = measured.values[f"ndcg@{LIST_LENGTH}"]
    run["test_ndcg"] = float(ndcgs.mean())
    run["test_interval"] = bootstrap_intervals(ndcgs[:, None], seed=0)[0].tolist()
    out.write_text(json.dumps(results, indent=1))
    low, high = run["test_interval"]
    print(
        f"seed {seed} stopped by {run['stopped_by']}; test NDCG@100 {run['test_ndcg']:.5f} [{low:.4f}, {high:.4f}]"
    )
    return ndcgs


def train(
    split: loca.Split, settings: Settings, seed: int, device: str, tell: Callable[[Training], None]
) -> Any:
    """RecTools' fitted module with the weights of its best epoch, on `device`."""
    seed_everything(seed, workers=True, verbose=False)
    if split.validation is None:
        sys.exit(
            "validation: expected 1 or more items per user, found 0; the epoch is chosen on them"
        )
    training = Training(split.validation, settings, tell)
    # A function, not a method: RecTools copies its trainer in depth, and the copy must report to this training.
    watch = LambdaCallback(
        on_train_epoch_end=lambda trainer, module: training.end_epoch(trainer, module)
    )

    def make_trainer() -> Trainer:
        return Trainer(
            max_epochs=settings.max_epochs,
            accelerator="gpu" if device == "cuda" else "cpu",
            devices=1,
            callbacks=[watch],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )

    model = SASRecModel(
        n_factors=settings.factors,
        n_blocks=settings.blocks,
        n_heads=settings.heads,
        dropout_rate=settings.dropout,
        session_max_len=settings.session_max_len,
        lr=settings.learning_rate,
        batch_size=settings.batch_size,
        loss=settings.loss,
        get_trainer_func=make_trainer,
    )
    model.fit(as_dataset(split.train))
    model.torch_model.load_state_dict(training.best_weights)
    model.torch_model.to(device).eval()
    return model.lightning_model


def as_dataset(train: loca.Interactions) -> Dataset:
    """The interactions for RecTools; the place in the history is the time."""
    columns = {
        Columns.User: train.user_rows(),
        Columns.Item: train.item_rows.astype(np.int64),
        Columns.Weight: np.ones(len(train)),
        Columns.Datetime: train.places(),
    }
    return Dataset.construct(pd.DataFrame(columns))


def score_users(module: Any, histories: loca.Interactions) -> Callable[[UserRows], Any]:
    """A function from user rows to their scores of all items; −inf for the items that the model does not know.

    As in RecTools' own `recommend`: unknown items leave the history, the newest `session_max_len` of the rest are
    read, and the state after the last of them is multiplied with the embeddings of the items.
    """
    network, preparator = module.torch_model, module.data_preparator
    device = network.item_model.device
    known = np.asarray(
        preparator.get_known_item_ids(), np.int64
    )  # item rows in the model's order, which has 0 to pad
    numbers = np.zeros(histories.n_items, np.int64)
    numbers[known] = np.arange(len(known)) + preparator.n_item_extra_tokens
    sessions = padded_sessions(histories, numbers, preparator.session_max_len)
    known_on_device = torch.from_numpy(known).to(device)

    @torch.no_grad()
    def scores(user_rows: UserRows) -> torch.Tensor:
        embeddings = network.item_model.get_all_embeddings()
        items = network.similarity_module.item_tower_forward(embeddings)[
            preparator.n_item_extra_tokens :
        ]
        table = torch.full((len(user_rows), histories.n_items), -torch.inf, device=device)
        for start in range(0, len(user_rows), USERS_AT_ONCE):
            batch = torch.from_numpy(sessions[user_rows[start : start + USERS_AT_ONCE]]).to(device)
            states = network.encode_sessions({"x": batch}, embeddings)[:, -1, :]  # (users, factors)
            states = network.similarity_module.session_tower_forward(states)
            table[start : start + USERS_AT_ONCE, known_on_device] = states @ items.T
        return table

    return scores


def padded_sessions(
    histories: loca.Interactions, numbers: npt.NDArray[np.int64], length: int
) -> npt.NDArray[np.int64]:
    """The model's numbers of each user's newest `length` known items, oldest first, 0 before them: users × length."""
    known = histories.where(numbers[histories.item_rows] > 0)
    ages = np.repeat(known.counts(), known.counts()) - 1 - known.places()
    recent = ages < length
    sessions = np.zeros((histories.n_users, length), np.int64)
    sessions[known.user_rows()[recent], length - 1 - ages[recent]] = numbers[
        known.item_rows[recent]
    ]
    return sessions


if __name__ == "__main__":
    main()
