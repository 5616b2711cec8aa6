"""How much the lists of the communities that answer a user have in common, for a saved model: 1 where all say the same.

    loca fit ratings.csv --titles movies.dat --model mixture-ease --out films.loca
    python benchmarks/community_lists.py films.loca --users 5

Overlap is the share of the items that two lists of 10 share, as a mean over the pairs of communities that answer and
over the users, who are drawn at random. A model of the same size with membership weight 0 shows what chance in
networks does alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path

import numpy as np

import loca
from loca.local.explain import AnswersOfCommunities
from loca.random_streams import stream


def main() -> None:
    """Prints the overlap of own lists, between communities and with the global model, and of what they raise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a saved Loca")
    parser.add_argument("--users", type=int, default=5)
    parser.add_argument("--count", type=int, default=10, help="length of the lists")
    parser.add_argument("--show", action="store_true", help="print the explanations too")
    given = parser.parse_args()
    model = loca.load(given.folder)
    known = model.train_data_
    rows = np.sort(stream(0, "explained users").permutation(known.n_users)[: given.users])
    figures = []
    for user in known.users.ids(rows):
        explanation = model.explain(user, n=given.count)
        if given.show:
            print(f"For {user}\n{explanation}\n")
        inside = explanation.sources
        if isinstance(inside, AnswersOfCommunities) and len(inside.communities) > 1:
            own = [set(one.items.tolist()) for one in inside.communities]
            everybody = [(one, set(inside.global_items.tolist())) for one in own]
            raised = [
                set(one.raised.tolist()) for one in inside.communities if one.raised is not None
            ]
            pairs = combinations(own, 2), everybody, combinations(raised, 2)
            figures.append([_overlap(one) for one in pairs])
    means = np.nanmean(figures, axis=0)
    names = ("between communities", "with the global model", "of what they raise")
    print(
        f"{len(figures)} users: overlap "
        + ", ".join(f"{name} {mean:.3f}" for name, mean in zip(names, means, strict=True))
    )


def _overlap(pairs: Iterable[tuple[set[int], set[int]]]) -> float:
    """The mean over pairs of lists of the items in both, by the length of the longer."""
    shares = [len(one & other) / max(len(one), len(other), 1) for one, other in pairs]
    return float(np.mean(shares)) if shares else float("nan")


if __name__ == "__main__":
    main()
