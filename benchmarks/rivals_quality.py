"""Our models beside cornac's, implicit's and lenskit's on the same split: validation NDCG@100, paired differences.

Run: LOCA_DATA=… .venv-rivals/bin/python benchmarks/rivals_quality.py [ml-100k] [amusic] [ml-1m] [--models EASE SLIM …]
     [--seeds 3] [--out results.json]
Distinct pairs, at least 10 per user, the last 5 of each user are test (never looked at), those before them validation.
Both sides of a pair get the same settings, the best on validation counts for each; a network's best epoch likewise,
under the same patience. So the figures are those of a choice, fit to compare implementations, not to quote as results.
Networks and factors are drawn with each of --seeds seeds; a user's value is the mean over them.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

import loca
import rivals_quality_models as models
from loca.models.item_knn import ItemKNN
from loca.models.rec_vae import RecVAE
from loca.models.slim import SLIM
from loca.models.wmf import WMF
from rivals_libraries import start_lenskit
from rivals_quality_models import LIST_LENGTH, Implementation, Settings, Task, Trial

# File, layout, validation items of each user, l2 of EASE.
SETS: dict[str, tuple[str, str | None, int, tuple[float, ...]]] = {
    "ml-100k": ("ml-100k/u.data", "movielens-100k", 5, (100.0, 200.0, 300.0, 500.0)),
    "amusic": ("amusic/amusic.rating", "loca-rating", 2, (100.0,)),
    "ml-1m": ("ml-1m/ratings-ordered.csv.gz", "loca-ordered", 5, (300.0, 1000.0)),
}
COLUMNS = (
    "model",
    "ours",
    "rival",
    "rival's NDCG",
    "our NDCG",
    "ours − rival's, 95 % interval",
    "rival's best settings",
    "our best settings",
)
LIBRARIES = ("cornac", "implicit", "lenskit", "loca")


@dataclass(frozen=True)
class Pairing:
    """A model, our versions of it (the first by its defaults), who else has it, and the settings that all try.

    `is_drawn` says whether a seed changes what is learned.
    """

    model: str
    ours: Mapping[str, Implementation]
    rivals: Mapping[str, Implementation]
    grid: tuple[Settings, ...]
    is_drawn: bool = False

    def play(self, tasks: Sequence[Task]) -> Iterator[tuple[str, list[Trial]]]:
        """Everybody with every setting, ours first; rivals whose library is not installed are left out."""
        tasks = tasks if self.is_drawn else tasks[:1]
        for name, implementation in {**self.ours, **self.rivals}.items():
            if importlib.util.find_spec(name.split()[0]) is None:
                print(f"{self.model}: {name} is not installed and left out", file=sys.stderr)
                continue
            trials = []
            for settings in self.grid:
                started = time.perf_counter()
                trials.append(mean_of([implementation(task, settings) for task in tasks]))
                told = f"{self.model}, {name}, {as_words(settings)}: {trials[-1].ndcg:.4f}"
                print(
                    f"{told} ({time.perf_counter() - started:.0f} s)", file=sys.stderr, flush=True
                )
            yield name, trials


def pairings(ease_l2: Iterable[float]) -> dict[str, Pairing]:
    """Who meets whom, by model."""
    return {one.model: one for one in (*solved_pairings(ease_l2), *network_pairings())}


def solved_pairings(ease_l2: Iterable[float]) -> tuple[Pairing, ...]:
    """Not among them: cornac's WMF needs TensorFlow; its ItemKNN scores all items alike where all values are 1."""
    return (
        Pairing(
            "EASE",
            {"loca": models.ours(loca.EASE)},
            {"cornac": models.cornac_ease, "lenskit": models.lenskit_ease},
            settings_of(l2=ease_l2),
        ),
        Pairing(
            "SLIM",
            {"loca": models.ours(SLIM)},
            {"lenskit": models.lenskit_slim},
            settings_of(l1=(1.0, 5.0), l2=(20.0, 100.0)),
        ),
        Pairing(
            "ItemKNN",
            {"loca": models.ours(ItemKNN)},
            {
                "lenskit (k of a history)": models.lenskit_knn_of_histories,
                "lenskit (k of an item)": models.lenskit_knn_of_items,
                "implicit (k of an item)": models.implicit_knn,
            },
            settings_of(neighbours=(20, 50, 100, 200, 100_000), shrinkage=(0.0,)),
        ),
        Pairing(
            "WMF",
            {"loca": models.our_factors(WMF)},
            {"implicit": models.implicit_wmf, "lenskit": models.lenskit_wmf},
            wmf_settings(),
            is_drawn=True,
        ),
    )


def network_pairings() -> tuple[Pairing, ...]:
    """The autoencoders; our MultVAE also in cornac's batches and with its constant KL weight."""
    schedule: dict[str, Any] = {"learning_rate": 1e-3, "epochs": 200, "patience": 20}
    recvae: dict[str, Any] = {
        "hidden": 600,
        "latent": 200,
        "batch_size": 500,
        "learning_rate": 5e-4,
    }
    return (
        Pairing(
            "MultVAE",
            {
                "loca": models.our_network(loca.MultVAE),
                "loca (batches of 100, KL from the start)": models.our_network(
                    partial(loca.MultVAE, batch_size=100, anneal_steps=0)
                ),
            },
            {"cornac": models.cornac_vae},
            settings_of(
                latent=(200,), hidden=(None, 600), kl_weight=(0.2, 1.0), **in_tuples(schedule)
            ),
            is_drawn=True,
        ),
        Pairing(
            "RecVAE",
            {"loca": models.our_network(RecVAE)},
            {"cornac": models.cornac_recvae},
            settings_of(gamma=(0.005, 0.01), **in_tuples(recvae | {"epochs": 100, "patience": 30})),
            is_drawn=True,
        ),
    )


def settings_of(**choices: Iterable[Any]) -> tuple[Settings, ...]:
    """All combinations of the choices."""
    return tuple(dict(zip(choices, values, strict=True)) for values in product(*choices.values()))


def in_tuples(settings: Settings) -> dict[str, tuple[Any, ...]]:
    """Each setting as the only choice."""
    return {name: (value,) for name, value in settings.items()}


def wmf_settings() -> tuple[Settings, ...]:
    """The same regularisation for users and items, because implicit has but one."""
    return tuple(
        {
            "factors": factors,
            "confidence": confidence,
            "user_l2": l2,
            "item_l2": l2,
            "iterations": 15,
        }
        for factors, confidence, l2 in product((32, 64), (1.0, 4.0), (1.0, 10.0))
    )


def main() -> int:
    """Prints a table for each data set; 1 where ours is surely worse than a rival."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="*", choices=[[], *SETS], help="data sets (default: ml-100k)")
    parser.add_argument(
        "--models", nargs="+", choices=list(pairings(())), help="which models (default: all)"
    )
    parser.add_argument(
        "--seeds", type=int, default=1, help="how many draws of networks and factors (1)"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a JSON file for all settings and figures")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")  # rivals warn of their own doings
    torch.set_num_threads(asked.threads)
    start_lenskit(asked.threads)
    written: dict[str, Any] = {"versions": versions(), "seeds": asked.seeds, "sets": {}}
    worse: list[str] = []
    with threadpool_limits(asked.threads):
        for name in asked.sets or ["ml-100k"]:
            tasks = read_tasks(name, asked.seeds)
            rows = written["sets"][name] = []
            print_head(name, tasks[0])
            for model, pairing in pairings(SETS[name][3]).items():
                if asked.models is None or model in asked.models:
                    rows += play(pairing, tasks)
            worse += [
                f"{row['model']} than {row['rival']} on {name}" for row in rows if row["high"] < 0
            ]
    if asked.out is not None:
        asked.out.write_text(json.dumps(written, indent=1) + "\n")
    print(
        "\nours is surely worse: " + "; ".join(worse) if worse else "\nours is nowhere surely worse"
    )
    return 1 if worse else 0


def read_tasks(name: str, seeds: int) -> list[Task]:
    """The data set found through LOCA_DATA, split as everywhere, once for each seed."""
    folder = os.environ.get("LOCA_DATA")
    if folder is None:
        sys.exit(f"set LOCA_DATA to a folder with {SETS[name][0]} in it")
    file, layout, validation, _ = SETS[name]
    data = loca.read_interactions(Path(folder) / file, min_user_interactions=10, layout=layout)
    split = loca.leave_last_out(data, test=5, validation=validation)
    if split.validation is None:
        sys.exit(f"{name}: no validation part")
    return [Task(split.train, split.validation, seed) for seed in range(max(1, seeds))]


def mean_of(trials: Sequence[Trial]) -> Trial:
    """One trial in place of those of several seeds: each user's mean, and the figure of every seed."""
    values = np.mean([one.values for one in trials], axis=0)
    return replace(trials[0], values=values, of_seeds=tuple(one.ndcg for one in trials))


def play(pairing: Pairing, tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """Prints a row for each rival and gives the rows with all that was tried."""
    tried = dict(pairing.play(tasks))
    best = {name: max(trials, key=lambda trial: trial.ndcg) for name, trials in tried.items()}
    rows = []
    for our_name, rival in product(
        pairing.ours, (name for name in tried if name not in pairing.ours)
    ):
        ours, theirs = best[our_name], best[rival]
        difference = loca.paired_difference(ours.values, theirs.values)
        cells = (
            pairing.model,
            our_name,
            rival,
            f"{theirs.ndcg:.4f}",
            f"{ours.ndcg:.4f}",
            f"{difference.mean:+.4f} [{difference.low:+.4f}, {difference.high:+.4f}]",
            as_words(theirs.settings, theirs.epoch),
            as_words(ours.settings, ours.epoch),
        )
        print("| " + " | ".join(cells) + " |", flush=True)
        rows.append(
            {
                "model": pairing.model,
                "ours": our_name,
                "rival": rival,
                "difference": difference.mean,
                "low": difference.low,
                "high": difference.high,
                "users": difference.user_count,
                "tried": {
                    name: [as_record(trial) for trial in tried[name]] for name in (our_name, rival)
                },
            }
        )
    return rows


def print_head(name: str, task: Task) -> None:
    shape = task.matrix.shape
    size = f"{shape[0]:,} users, {shape[1]:,} items, {task.matrix.nnz:,} to learn from"
    print(f"\n{name}: {size}; validation NDCG@{LIST_LENGTH}\n")
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))


def as_words(settings: Settings, epoch: int | None = None) -> str:
    words = [f"{name} {value}" for name, value in settings.items()]
    return ", ".join(words if epoch is None else [*words, f"best epoch {epoch}"])


def as_record(trial: Trial) -> dict[str, Any]:
    figures = {"ndcg": trial.ndcg, "ndcg of seeds": list(trial.of_seeds)}
    return {"settings": dict(trial.settings), **figures, "epoch of the first seed": trial.epoch}


def versions() -> dict[str, str]:
    """Of all that took part."""
    return {
        name: importlib.metadata.version(name)
        for name in LIBRARIES
        if importlib.util.find_spec(name)
    }


if __name__ == "__main__":
    sys.exit(main())
