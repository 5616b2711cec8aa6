"""What communities earn: mixtures against an ensemble of as many networks, dealt memberships and random groups.

    python benchmarks/locality.py ml-1m --base next-vae --communities 32 --seeds 0,1,2 --longest

All choices are made on validation: epochs of each arm, temperature, global share. Figures are NDCG@100 on test, without
and with a refit on train and validation; with --longest also with the epochs of the arm that chose the most, for all.
Differences are means over seeds, paired by user, with 95 % intervals over users. It needs a GPU for the larger sets.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import loca
from loca.evaluation.evaluate import evaluate
from loca.models.devices import may_have_gpu
from loca.models.recommender import Recommender, TrainingData, clone
from loca.registry import MODELS
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

    def __init__(self, base: Any, count: int, mixtures: int, seed: int) -> None:
        self.base, self.count, self.mixtures, self.seed = (
            clone(base, seed=seed),
            count,
            mixtures,
            seed,
        )
        self.precision = "bfloat16" if may_have_gpu() else "float32"
        self.fitted: dict[str, Any] = {}

    def fit(self, names: Sequence[str], train: loca.Interactions, validation: loca.HeldOut) -> None:
        """Fit the arms, each with its own best number of epochs."""
        whole = clone(self.base).fit(train, validation=validation)
        for name in names:
            settings: dict[str, Any] = {
                "base": self.base,
                "seed": self.seed,
                "precision": self.precision,
            }
            if name == "ensemble":
                model: Any = loca.Ensemble(models=self.count, **settings).fit(
                    train, validation=validation
                )
            else:
                model = loca.Loca(
                    anchors=self.count, mixtures=self.mixtures, communities=name, **settings
                )
                fit_beside(model, whole, replace(TrainingData.of(train), validation=validation))
            self.fitted[name] = model

    def epochs(self) -> dict[str, int]:
        """What each arm chose."""
        return {
            name: one.epochs_ if name == "ensemble" else one.local_epochs_
            for name, one in self.fitted.items()
        }

    def refit(
        self, name: str, epochs: int, train: loca.Interactions, whole: Recommender
    ) -> Recommender:
        """An arm with the choices it made, but so many epochs."""
        model = self.fitted[name].selected()
        model = clone(model, base=clone(model.base, epochs=epochs))
        return (
            model.fit(train)
            if name == "ensemble"
            else fit_beside(model, whole, TrainingData.of(train))
        )


def fit_beside(model: Any, whole: Any, data: TrainingData) -> Any:
    """Fit the local models of a Loca beside a global model that several arms share."""
    model.global_ = whole
    whole.train_data_ = None
    model.fit_local(data)
    return model


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
    stages: dict[str, dict[str, list[Values]]] = {}
    for seed in map(int, given.seeds.split(",")):
        arms, names = Arms(base, given.communities, given.mixtures, seed), given.arms.split(",")
        assert split.validation is not None
        arms.fit(names, split.train, split.validation)
        epochs, longest = arms.epochs(), max(arms.epochs().values())
        print(f"seed {seed}: epochs {epochs}")
        locals_ = [one for name, one in arms.fitted.items() if name != "ensemble"]
        whole = (
            locals_[0].global_.selected().fit(split.train_and_validation)
            if locals_
            else None
        )
        for name, model in arms.fitted.items():
            values = {"not refitted": ndcgs(model, split.test)}
            again = arms.refit(name, epochs[name], split.train_and_validation, whole)
            values["refitted"] = ndcgs(again, split.test)
            if given.longest:
                if epochs[name] < longest:
                    again = arms.refit(name, longest, split.train_and_validation, whole)
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
