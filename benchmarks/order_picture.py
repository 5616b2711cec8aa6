"""Draws docs/order.png: one MovieLens user's history, its weights, and the lists under several half-lives.

Run: LOCA_DATA=… python benchmarks/order_picture.py [--out docs/order.png]
The user is chosen on validation as one for whom recency helps: an illustration, not evidence. Test is never looked at.
"""

from __future__ import annotations

import argparse
import os
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

import loca
from loca.data.held_out import HeldOut
from loca.data.titles import read_titles
from loca.experiments.recency_picture import draw_recencies
from loca.ranking.evaluation import measure

RECENCIES = (None, loca.Recency(20.0), loca.Recency(6.6), loca.Recency(3.0))
SHORT = 2  # of these, the one that must help
LENGTHS = range(30, 61)
LIST = 10
# From one list to the next so many items stay: enough to follow, and enough that is new.
STAY = range(4, 9)


def main() -> None:
    """Fits EASE on the train part, chooses the user, writes the picture and says what is in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "order.png")
    out = parser.parse_args().out
    folder = os.environ.get("LOCA_DATA")
    if folder is None:
        sys.exit("set LOCA_DATA to a folder with ml-1m/ in it")
    data = loca.read_interactions(Path(folder) / "ml-1m" / "ratings-ordered.csv.gz", min_user_interactions=10)
    data = data.with_titles(read_titles(Path(folder) / "ml-1m" / "movies.dat"))
    split = loca.leave_last_out(data, test=5, validation=5)
    model = loca.EASE(l2=1000.0).fit(split.train)
    questions = split.validation
    user_row = choose_user(model, questions)
    user = questions.histories.users.ids([user_row])[0]
    later = questions.targets.items.ids(questions.targets.items_of(user_row))
    found = draw_recencies(model, questions.histories, user, RECENCIES, out, later=later, n=LIST)
    print(f"{out}: user {user}, {len(found.history)} items; of the next {len(later)}, in the {LIST} best:")
    taken = questions.targets.items_of(user_row)
    for recency, row in zip(found.recencies, found.lists, strict=True):
        hits = [found.items.label(item) for item in row if item in taken]
        print(f"  {recency or 'no recency'}: {len(hits)} ({', '.join(hits)})")


def choose_user(model: loca.EASE, questions: HeldOut) -> int:
    """The user row with the largest gain in NDCG@10 on validation among those whose picture can be followed.

    Those have a middling number of items, and lists of which some items stay from one half-life to the next.
    """
    lists, values = [], []
    for recency in RECENCIES:
        asked = questions.with_recency(recency)
        measured = measure(lambda rows, asked=asked: model.score(asked.history_matrix[rows]), asked, at=(LIST,))
        lists.append(measured.lists)
        values.append(measured.values[f"ndcg@{LIST}"])
    lengths = questions.histories.counts()[measured.user_rows]
    fits = np.isin(lengths, LENGTHS)
    for before, after in pairwise(lists):
        fits &= np.isin(_shared(before, after), STAY)
    gains = np.where(fits, values[SHORT] - values[0], -np.inf)
    return int(measured.user_rows[gains.argmax()])


def _shared(before: npt.NDArray[np.int32], after: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """How many items each user's two lists have in common."""
    return (before[:, :, None] == after[:, None, :]).sum(axis=(1, 2))


if __name__ == "__main__":
    main()
