"""What communities earn: mixtures against an ensemble of as many networks, dealt memberships and random groups.

    python benchmarks/locality.py ml-1m --base next-vae --communities 32 --seeds 0,1,2 --longest

All choices are made on validation: epochs of each arm, temperature, global share. Figures are NDCG@100 on test, without
and with a refit on train and validation; with --longest also with the epochs of the arm that chose the most, for all.
Differences are means over seeds, paired by user, with 95 % intervals over users. It needs a GPU for the larger sets.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import loca
from loca.evaluation.evaluate import evaluate
from loca.models.devices import may_have_gpu
from loca.models.recommender import Recommender, clone
from loca.paper.permuted import Permuted
from loca.persistence.fit_context import FitCache, FitContext
from loca.registry import KINDS, MODELS
from ordered_sets import read_data

ARMS = ("ensemble", "mixture", "dealt", "random")
PAIRS = (
    ("mixture", "ensemble"),
    ("mixture", "dealt"),
    ("dealt", "ensemble"),
    ("random", "ensemble"),
)
Values = npt.NDArray[np.float64]


class Arms:
    """The arms of one seed: as many networks each, over one base and beside one global model."""

    def __init__(self, base: Any, count: int, mixtures: int, seed: int, cache: FitCache) -> None:
        self.base = clone(base, seed=seed)
        self.context = FitContext(cache=cache)  # the global model is fitted once
        settings: dict[str, Any] = {
            "base": self.base,
            "engine": loca.Stacked(precision="bfloat16" if may_have_gpu() else "float32"),
            "seed": seed,
        }
        finder = loca.Mixtures(n=count, mixtures=mixtures)
        groups = loca.RandomGroups(n=count, divisions=mixtures)
        self.arms: dict[str, Any] = {
            "ensemble": loca.Ensemble(models=count, **settings),
            "mixture": loca.Loca(communities=finder, **settings),
            "dealt": loca.Loca(communities=Permuted(finder=finder), **settings),
            "random": loca.Loca(communities=groups, **settings),
        }
        self.fitted: dict[str, Any] = {}

    def fit(self, names: Sequence[str], train: loca.Interactions, validation: loca.HeldOut) -> None:
        """Fit the arms, each with its own best number of epochs."""
        for name in names:
            model = clone(self.arms[name])
            self.fitted[name] = model.fit(train, validation=validation, context=self.context)

    def epochs(self) -> dict[str, int]:
        """What each arm chose."""
        return {
            name: model.epochs_ if name == "ensemble" else model.local_.models.epochs_
            for name, model in self.fitted.items()
        }

    def refit(self, name: str, epochs: int, train: loca.Interactions) -> Recommender:
        """An arm with the choices it made, but so many epochs; the global model has its own."""
        model = self.fitted[name].selected()
        model = clone(model, base=clone(model.base, epochs=epochs))
        return model.fit(train, context=self.context)


def ndcgs(model: Recommender, held_out: loca.HeldOut) -> Values:
    """NDCG@100 of each user."""
    return evaluate(model, held_out, at=(100,)).values["ndcg@100"]


def report(stage: str, found: dict[str, list[Values]]) -> None:
    """Print means and differences over the seeds so far."""
    means = ", ".join(f"{name} {np.mean(values):.4f}" for name, values in found.items())
    print(f"{stage}, {len(next(iter(found.values())))} seeds: {means}")
    for first, second in PAIRS:
        if first in found and second in found:
            gains, level = (
                np.mean(np.subtract(found[first], found[second]), axis=0),
                np.mean(found[second]),
            )
            width = 1.96 * gains.std() / len(gains) ** 0.5
            print(
                f"    {first} over {second}: {100 * gains.mean() / level:+.2f} ± {100 * width / level:.2f} %"
            )


def main() -> None:
    """Run the arms for each seed and print what is known after it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "data", help="ml-1m, games, amusic, planted, or an .npz file with offsets and item_rows"
    )
    parser.add_argument(
        "--base", default="next-vae", help="a network of the catalogue: next-vae or mult-vae"
    )
    parser.add_argument("--communities", type=int, default=16)
    parser.add_argument("--mixtures", type=int, default=2)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument(
        "--every", type=int, default=4, help="epochs between two looks at validation"
    )
    parser.add_argument(
        "--patience", type=int, default=17, help="epochs without a better validation score"
    )
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument(
        "--decay", type=float, default=0.9, help="recency per position, for next-vae"
    )
    parser.add_argument(
        "--longest", action="store_true", help="also give every arm the longest arm's epochs"
    )
    parser.add_argument("--validation", type=int, help="items of each user for validation")
    parser.add_argument("--json", type=Path, help="where the values of all users go")
    given = parser.parse_args()
    loca.set_progress(False)
    data, validation = read_data(given.data, given.validation)
    split = loca.leave_last_out(data, test=5, validation=validation)
    base: Any = MODELS[given.base]()
    if base.uses_order:
        split = split.with_recency(loca.Recency.per_position(given.decay))
    base = clone(base, epochs=given.epochs, patience=given.patience, evaluate_every=given.every)
    folder = tempfile.TemporaryDirectory(prefix="loca-locality-")
    cache = FitCache(Path(folder.name), KINDS)
    stages: dict[str, dict[str, list[Values]]] = {}
    for seed in map(int, given.seeds.split(",")):
        arms = Arms(base, given.communities, given.mixtures, seed, cache)
        names = given.arms.split(",")
        assert split.validation is not None
        arms.fit(names, split.train, split.validation)
        epochs, longest = arms.epochs(), max(arms.epochs().values())
        print(f"seed {seed}: epochs {epochs}")
        for name, model in arms.fitted.items():
            values = {"not refitted": ndcgs(model, split.test)}
            again = arms.refit(name, epochs[name], split.train_and_validation)
            values["refitted"] = ndcgs(again, split.test)
            if given.longest:
                if epochs[name] < longest:
                    again = arms.refit(name, longest, split.train_and_validation)
                values["refitted, the longest arm's epochs"] = ndcgs(again, split.test)
            for stage, one in values.items():
                stages.setdefault(stage, {}).setdefault(name, []).append(one)
        for stage, found in stages.items():
            report(stage, found)
        if given.json is not None:
            plain = {
                stage: {name: np.stack(one).tolist() for name, one in found.items()}
                for stage, found in stages.items()
            }
            given.json.write_text(json.dumps(plain))


if __name__ == "__main__":
    main()
