"""Reference scores: do two commits give the same numbers, for an explicit configuration of each class and kind?

    python benchmarks/reference_scores.py write FOLDER        # the scores of this checkout
    python benchmarks/reference_scores.py compare A B          # of two commits, on this machine

`compare` checks both commits out beside the tree, runs the `write` of each with this environment, and
compares scores and lists. A commit that has no such program is run with this one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

HERE = Path(__file__)
RTOL = 1e-6
# Scores of 32 bits near 0 are as right as the largest of their row.
ATOL_OF_LARGEST = 1e-6


def configurations() -> dict[str, Callable[[], object]]:
    """Return what makes each model; nothing is left to a default that may change."""
    import loca

    vae = {
        "latent": 16,
        "hidden": None,
        "dropout": 0.5,
        "noise": 1.0,
        "kl_weight": 0.2,
        "anneal_steps": 100,
        "learning_rate": 1e-2,
        "batch_size": 100,
        "epochs": 6,
        "patience": 3,
    }
    dae = {name: vae[name] for name in vae if name not in ("noise", "kl_weight", "anneal_steps")}
    communities = {
        "kernels": loca.Kernels(
            n=4,
            train_bandwidth=loca.Quantile(0.6),
            answer_bandwidth=loca.Quantile(0.2),
            embedding=loca.TruncatedSVD(dimensions=8),
        ),
        "mixtures": loca.Mixtures(n=6, mixtures=3),
        "random groups": loca.RandomGroups(n=6, divisions=3),
    }
    kernels = communities["kernels"]
    made: dict[str, Callable[[], object]] = {
        "popularity": loca.Popularity,
        "ease": lambda: loca.EASE(l2=20.0, denoising=0.3),
        "sparse ease": lambda: loca.EASE(l2=20.0, keep=8),
        "next-ease": lambda: loca.NextEASE(l2=20.0),
        "item-knn": lambda: loca.ItemKNN(neighbours=20, shrinkage=5.0),
        "slim": lambda: loca.SLIM(l1=1.0, l2=10.0),
        "wmf": lambda: loca.WMF(factors=8, confidence=5.0, user_l2=5.0, item_l2=5.0),
        "llorma": lambda: loca.LLORMA(anchors=4, factors=6, confidence=5.0),
        "sglsvd": lambda: loca.SGLSVD(clusters=3, global_rank=6, local_rank=3),
        "mult-vae": lambda: loca.MultVAE(**vae),
        "mult-vae, next items": lambda: loca.MultVAE(target="next", set_share=0.5, **vae),
        "mult-dae, hidden layer": lambda: loca.MultDAE(**{**dae, "hidden": 24}),
        "cdae": lambda: loca.CDAE(latent=16, learning_rate=2e-2, epochs=6, batch_size=100),
        "rec-vae": lambda: loca.RecVAE(latent=16, hidden=32, epochs=4, batch_size=100),
        "ensemble of ease": lambda: loca.Ensemble(base=loca.EASE(l2=20.0), models=3),
        "ensemble of mult-vae": lambda: loca.Ensemble(base=loca.MultVAE(**vae), models=2),
        "blend": lambda: loca.Blend(
            parts=[loca.EASE(l2=20.0), loca.MultVAE(**vae), loca.Popularity()]
        ),
    }
    for kind, finder in communities.items():
        made[f"ease, {kind}"] = lambda finder=finder: loca.Loca(
            base=loca.EASE(l2=20.0), communities=finder
        )
        made[f"mult-vae, {kind}"] = lambda finder=finder: loca.Loca(
            base=loca.MultVAE(**vae), communities=finder
        )
    made["ease, the best"] = lambda: loca.Loca(
        base=loca.EASE(l2=20.0), communities=loca.BestOf(n=6)
    )
    made["mult-vae, the best"] = lambda: loca.Loca(
        base=loca.MultVAE(**vae), communities=loca.BestOf(n=6)
    )
    made["next-ease, kernels"] = lambda: loca.Loca(base=loca.NextEASE(l2=20.0), communities=kernels)
    made["wmf, kernels"] = lambda: loca.Loca(base=loca.WMF(factors=8), communities=kernels)
    made["mult-vae one by one, kernels"] = lambda: loca.Loca(
        base=loca.MultVAE(**vae), engine=loca.Loop(), communities=kernels
    )
    made["ease, kernels, share .3"] = lambda: loca.Loca(
        base=loca.EASE(l2=20.0), combiner=loca.FixedShare(0.3), communities=kernels
    )
    return made


def write(folder: Path) -> None:
    """Fit every configuration on planted data and write what it scores."""
    import loca

    warnings.simplefilter("ignore")
    data = loca.planted_communities(
        users=400, items=60, communities=2, groups=6, history=12, shortest_history=10, seed=5
    ).interactions
    split = loca.leave_last_out(data, test=3, validation=2)
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in configurations().items():
        fitted = make().fit(split.train, validation=split.validation)
        weights = np.random.default_rng(0).choice([0.5, 1.0, 2.0], split.train.n_users)
        recent = split.train.with_recency(loca.Recency.per_position(0.9))
        weighed = make().fit(recent, user_weights=weights, validation=split.validation)
        rows = split.test.history_matrix
        np.savez(folder / f"{name}.npz", plain=fitted.score(rows), weighted=weighed.score(rows))
        print(name, flush=True)


def scores_of(commit: str, folder: Path) -> Path:
    """Check a commit out and write its scores; return where they are."""
    tree, scores = folder / f"tree {commit}", folder / f"scores {commit}"
    subprocess.run(["git", "worktree", "add", "--detach", str(tree), commit], check=True)
    try:
        program = tree / "benchmarks" / HERE.name
        run = [sys.executable, str(program if program.exists() else HERE), "write", str(scores)]
        subprocess.run(run, check=True, env={**os.environ, "PYTHONPATH": str(tree / "src")})
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(tree)], check=True)
    return scores


def compare(first: str, second: str) -> int:
    """Print a line for each configuration, and return how many differ."""
    with tempfile.TemporaryDirectory() as folder:
        one, other = (scores_of(commit, Path(folder)) for commit in (first, second))
        names = {path.stem for path in (*one.iterdir(), *other.iterdir())}
        different = 0
        for name in sorted(names):
            paths = [scores / f"{name}.npz" for scores in (one, other)]
            if not all(path.exists() for path in paths):
                print(f"{name:32} only in one of the commits")
                continue
            before, after = (np.load(path) for path in paths)
            for part in before.files:
                a, b = before[part], after[part]
                largest = np.abs(a).max(axis=1, keepdims=True)
                error = np.abs(a - b) - RTOL * np.abs(a) - ATOL_OF_LARGEST * largest
                is_equal = bool((error <= 0).all())
                different += not is_equal
                verdict = "equal" if is_equal else "DIFFERENT"
                relative = float((np.abs(a - b) / largest).max())
                print(f"{name:32} {part:9} {verdict:10} {relative:.1e} of the largest score")
    print(f"{different} of {2 * len(names)} differ")
    return different


def main() -> None:
    """Write the scores of this checkout, or compare those of two commits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("write").add_argument("folder", type=Path)
    both = commands.add_parser("compare")
    both.add_argument("first")
    both.add_argument("second")
    given = parser.parse_args()
    if given.command == "write":
        write(given.folder)
    else:
        sys.exit(compare(given.first, given.second) > 0)


if __name__ == "__main__":
    main()
