"""Our EASE, MultVAE and MultDAE beside others' on users never seen in training: NDCG@100, paired differences.

Run: LOCA_DATA=… .venv-rivals/bin/python benchmarks/strong_generalisation.py [planted] [ml-1m] [--models EASE …]
     [--hidden 600] [--epochs 60] [--seeds 1] [--in-time] [--out results.json]
The protocol of Liang et al. (2018): a fifth of the users is kept for validation (a tenth for a test that is never
looked at), models learn from the rest; a random 80 % of a kept user's items is folded in, the others are to be found.
All ratings are positives. With `--in-time` the oldest 80 % is folded in. Networks of a pair run the same number of
epochs, and the one best on the validation users counts: fit to compare implementations, not to quote as results.
cornac has no MultDAE, and no dropout and no scaled histories in its VAECF. For both networks there is thus a second
opinion, written below from the paper in plain dense torch: independent of the package's code, not of its authors.
A user's value is the mean over the seeds; the interval is over users and holds nothing of what another seed would give.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import cornac
import numpy as np
import torch
from cornac.models.vaecf.vaecf import VAE
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.nn import functional as F

import loca
import rivals_quality_models as models
from loca.evaluation.evaluate import measure
from loca.random_streams import stream
from rivals_libraries import Cornac
from rivals_quality import versions
from rivals_quality_models import LIST_LENGTH, Settings, Trial, Values

ML_1M = "ml-1m/ratings-ordered.csv.gz"
EASE_L2 = {"planted": 100.0, "ml-1m": 300.0}
COLUMNS = (
    "model",
    "ours",
    "rival",
    "rival's NDCG",
    "our NDCG",
    "ours − rival's, 95 % interval",
    "best epochs",
)


@dataclass(frozen=True, eq=False)
class Strangers:
    """A task with the face of `models.Task`, whose histories to answer from are those of users nobody learned."""

    train: loca.Interactions
    validation: loca.HeldOut
    seed: int

    @cached_property
    def matrix(self) -> csr_array:
        """What is folded in: validation users × items, binary."""
        return self.validation.history_matrix

    def cornac_data(self) -> cornac.data.Dataset:
        """The users to learn from; made anew, because what is hung on it to watch an epoch stays there."""
        return Cornac(self.train.matrix()).train

    def values(self, scores: models.Scores) -> Values:
        """The NDCG@100 of each validation user, folded-in items hidden, by this project's own measure."""
        measured = measure(lambda users: scores[users], self.validation, at=(LIST_LENGTH,))
        return measured.values[f"ndcg@{LIST_LENGTH}"]


Player = Callable[[Any, Settings], Trial]


@dataclass(frozen=True)
class Pairing:
    """A model in our versions and in others', all with the same settings; `drawn` where a seed changes the answer."""

    model: str
    ours: Mapping[str, Player]
    rivals: Mapping[str, Player]
    settings: Settings
    drawn: bool = True


def pairings(ease_l2: float, hidden: int | None, epochs: int) -> tuple[Pairing, ...]:
    """Who meets whom; with patience for all epochs nobody stops early, so that both choose among equally many."""
    schedule = {
        "latent": 200,
        "hidden": hidden,
        "learning_rate": 1e-3,
        "epochs": epochs,
        "patience": epochs,
    }
    noisy = schedule | {"kl_weight": 0.2}
    dropping = schedule | {"dropout": 0.5, "batch_size": 100}
    return (
        Pairing(
            "EASE",
            {"loca": models.ours(loca.EASE)},
            {"cornac": cornac_ease},
            {"l2": ease_l2},
            drawn=False,
        ),
        Pairing(
            "MultVAE",
            {
                "loca (no dropout, batches of 100, KL from the start)": models.our_network(
                    partial(loca.MultVAE, dropout=0.0, batch_size=100, anneal_steps=0)
                ),
                "loca (defaults)": our_defaults(loca.MultVAE),
            },
            {
                "cornac": models.cornac_vae,
                "cornac (histories scaled to length 1)": cornac_vae_of_unit_histories,
            },
            noisy,
        ),
        Pairing(
            "MultVAE with dropout",
            {"loca (batches of 100)": models.our_network(loca.MultVAE)},
            {"plain torch": plain_network},
            dropping | {"kl_weight": 0.2, "anneal_steps": 1000},
        ),
        Pairing(
            "MultDAE",
            {
                "loca (batches of 100)": models.our_network(loca.MultDAE),
                "loca (defaults)": our_defaults(loca.MultDAE),
            },
            {"plain torch": plain_network},
            dropping,
        ),
    )


def our_defaults(model: Callable[..., Any]) -> Player:
    """The model as one gets it without a word: its own layers, batches, annealing, epochs and patience."""

    def attempt(task: Any, settings: Settings) -> Trial:
        return models.our_network(model)(task, {})

    return attempt


def cornac_ease(task: Strangers, settings: Settings) -> Trial:
    """Its weights, with the negative ones as in the paper, applied to what is folded in."""
    model = cornac.models.EASE(lamb=settings["l2"], posB=False, verbose=False).fit(
        task.cornac_data()
    )
    return Trial(settings, task.values(np.asarray(task.matrix @ model.B)))


def cornac_vae_of_unit_histories(task: Strangers, settings: Settings) -> Trial:
    """Its network behind the one step of the paper that it leaves out: each history is scaled to length 1 first."""
    encode = VAE.encode
    with mock.patch.object(
        VAE, "encode", lambda network, rows: encode(network, F.normalize(rows, dim=1))
    ):
        return models.cornac_vae(task, settings)


class PlainNetwork(nn.Module):
    """Liang et al.'s MultVAE, or their MultDAE where `variational` is false: layer upon dense layer."""

    def __init__(
        self, items: int, latent: int, hidden: int | None, variational: bool, dropout: float
    ) -> None:
        super().__init__()
        between = [hidden] if hidden else []
        self.variational = variational
        self.dropout = nn.Dropout(dropout)
        self.encoder = _layers([items, *between, 2 * latent if variational else latent])
        self.decoder = _layers([latent, *between, items])

    def forward(self, histories: Tensor) -> tuple[Tensor, Tensor]:
        """The logits of all items, and the KL term of each user (0 without a variance)."""
        code = self.encoder(self.dropout(F.normalize(histories, dim=1)))
        if not self.variational:
            return self.decoder(torch.tanh(code)), torch.zeros(len(code))
        mean, log_variance = code.chunk(2, dim=1)
        normal = torch.distributions.Normal(mean, (log_variance / 2).exp())
        kl = torch.distributions.kl_divergence(normal, torch.distributions.Normal(0.0, 1.0)).sum(
            dim=1
        )
        return self.decoder(normal.rsample() if self.training else mean), kl


def plain_network(task: Strangers, settings: Settings) -> Trial:
    """Trains a plain network, variational where the settings weigh a KL term, and keeps its best epoch."""
    torch.manual_seed(task.seed)
    rows = task.train.matrix()
    limit = settings.get("kl_weight", 0.0)
    shape = (
        rows.shape[1],
        settings["latent"],
        settings["hidden"],
        "kl_weight" in settings,
        settings["dropout"],
    )
    network = PlainNetwork(*shape)
    optimiser = torch.optim.Adam(network.parameters(), lr=settings["learning_rate"])
    asked = torch.from_numpy(task.matrix.toarray().astype(np.float32))
    best: Trial | None = None
    step = 0
    for epoch in range(1, settings["epochs"] + 1):
        network.train()
        for users in torch.randperm(rows.shape[0]).split(settings["batch_size"]):
            histories = torch.from_numpy(rows[users.numpy()].toarray().astype(np.float32))
            logits, kl = network(histories)
            kl_weight = limit * min(1.0, step / settings.get("anneal_steps", 1))
            loss = (kl_weight * kl - (histories * F.log_softmax(logits, dim=1)).sum(dim=1)).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            step += 1
        network.eval()
        with torch.no_grad():
            trial = Trial(settings, task.values(network(asked)[0].numpy()), epoch)
        best = trial if best is None or trial.ndcg > best.ndcg else best
    if best is None:
        raise RuntimeError("no epoch was run")
    return best


def _layers(sizes: list[int]) -> nn.Sequential:
    """Linear layers with tanh between them, drawn as the paper's program does."""
    parts: list[nn.Module] = []
    for wide, narrow in pairwise(sizes):
        layer = nn.Linear(wide, narrow)
        nn.init.xavier_normal_(layer.weight)
        nn.init.normal_(layer.bias, std=0.001)
        parts += [layer, nn.Tanh()]
    return nn.Sequential(*parts[:-1])


def main() -> int:
    """Prints a table for each data set; 1 where ours is surely worse than a rival."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sets", nargs="*", choices=[[], *EASE_L2], help="data sets (default: planted)"
    )
    parser.add_argument(
        "--models", nargs="+", choices=[one.model for one in pairings(1.0, None, 1)]
    )
    parser.add_argument(
        "--hidden", type=int, help="size of the layer between items and code (default: no layer)"
    )
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument(
        "--seeds", type=int, default=1, help="how many draws of each network are averaged (1)"
    )
    parser.add_argument(
        "--in-time", action="store_true", help="fold in the oldest 80 %% of a history"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a JSON file for all figures")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")  # rivals warn of their own doings
    torch.set_num_threads(asked.threads)
    told = {name: str(value) for name, value in vars(asked).items()}
    written: dict[str, Any] = {"versions": versions(), "asked": told, "sets": {}}
    with threadpool_limits(asked.threads):
        for name in asked.sets or ["planted"]:
            task = read_task(name, asked.in_time)
            print_head(name, task, asked)
            rows = written["sets"][name] = []
            for pairing in pairings(EASE_L2[name], asked.hidden, asked.epochs):
                if asked.models is None or pairing.model in asked.models:
                    rows += play(pairing, task, asked.seeds)
    if asked.out is not None:
        asked.out.write_text(json.dumps(written, indent=1) + "\n")
    lost = [
        (name, row) for name, rows in written["sets"].items() for row in rows if row["high"] < 0
    ]
    worse = "; ".join(
        f"{row['model']}, {row['ours']}, than {row['rival']} on {name}" for name, row in lost
    )
    print(f"\nours is surely worse: {worse}" if worse else "\nours is nowhere surely worse")
    return 1 if worse else 0


def read_task(name: str, in_time: bool) -> Strangers:
    """The data set, with the users held out who are the same in every run."""
    if name == "planted":
        data = loca.planted_communities(users=4000, items=300).interactions
    elif folder := os.environ.get("LOCA_DATA"):
        data = loca.read_interactions(Path(folder) / ML_1M, time="rank", min_user_interactions=10)
    else:
        sys.exit(f"set LOCA_DATA to a folder with {ML_1M} in it")
    split = loca.hold_out_users(
        data if in_time else shuffled(data), test_users=0.1, validation_users=0.2
    )
    if split.validation is None:
        sys.exit(f"{name}: no validation part")
    return Strangers(split.train, split.validation, seed=0)


def shuffled(data: loca.Interactions) -> loca.Interactions:
    """The same histories in an order without meaning, so that the part that comes first is a random one."""
    order = np.lexsort((stream(0, "fold-in").random(len(data)), data.user_rows()))
    return replace(data, item_rows=data.item_rows[order], times=None)


def play(pairing: Pairing, task: Strangers, seeds: int) -> list[dict[str, Any]]:
    """Prints a row for each of ours beside each rival, as soon as both are known, and gives the rows."""
    tried = {name: list(trials(pairing, name, task, seeds)) for name in pairing.rivals}
    rows = []
    for our_name in pairing.ours:
        tried[our_name] = list(trials(pairing, our_name, task, seeds))
        for rival in pairing.rivals:
            ours, theirs = (
                np.mean([one.values for one in tried[name]], axis=0) for name in (our_name, rival)
            )
            difference = loca.paired_difference(ours, theirs)
            epochs = [
                ", ".join(str(one.epoch or "–") for one in tried[name])
                for name in (our_name, rival)
            ]
            row = {
                "model": pairing.model,
                "ours": our_name,
                "rival": rival,
                "our_ndcg": [one.ndcg for one in tried[our_name]],
                "rival_ndcg": [one.ndcg for one in tried[rival]],
                "difference": difference.mean,
                "low": difference.low,
                "high": difference.high,
                "users": difference.user_count,
                "settings": dict(pairing.settings),
            }
            sure = f"{difference.mean:+.4f} [{difference.low:+.4f}, {difference.high:+.4f}]"
            means = (f"{theirs.mean():.4f}", f"{ours.mean():.4f}")
            words = (
                pairing.model,
                our_name,
                rival,
                *means,
                sure,
                f"ours {epochs[0]}; rival {epochs[1]}",
            )
            print("| " + " | ".join(words) + " |", flush=True)
            rows.append(row)
    return rows


def trials(pairing: Pairing, name: str, task: Strangers, seeds: int) -> Iterator[Trial]:
    """One implementation's answers, one for each seed where it is drawn by one."""
    implementation = {**pairing.ours, **pairing.rivals}[name]
    for seed in range(seeds if pairing.drawn else 1):
        started = time.perf_counter()
        trial = implementation(replace(task, seed=seed), pairing.settings)
        told = f"{pairing.model}, {name}, seed {seed}: {trial.ndcg:.4f} at epoch {trial.epoch}"
        print(f"{told} ({time.perf_counter() - started:.0f} s)", file=sys.stderr, flush=True)
        yield trial


def print_head(name: str, task: Strangers, asked: argparse.Namespace) -> None:
    users, items = task.train.n_users, task.train.n_items
    size = f"{users:,} users, {items:,} items, {len(task.train):,} to learn from"
    known = "the oldest" if asked.in_time else "a random"
    layers = f"{asked.hidden}-200-{asked.hidden}" if asked.hidden else "200"
    print(
        f"\n{name}: {size}; {task.validation.n_users:,} other users, of whom {known} 80 % is folded in;"
    )
    print(f"layers {layers}, {asked.epochs} epochs, {asked.seeds} seed(s); NDCG@{LIST_LENGTH}\n")
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))


if __name__ == "__main__":
    sys.exit(main())
