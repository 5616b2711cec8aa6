"""Small interactions for tests: by hand, and drawn by hypothesis."""

import numpy as np
import pytest
from hypothesis import strategies as st

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.readers import read_interactions
from loca.errors import LocaError


def interactions_of(histories, times=None, n_items=None):
    """Interactions with user ids u0, u1, … and item ids i0, i1, … from lists of item rows, oldest first."""
    counts = [len(one) for one in histories]
    item_rows = np.array([item for one in histories for item in one], dtype=np.int32)
    n_items = n_items or int(item_rows.max(initial=-1)) + 1
    return Interactions(
        IdMap(np.array([f"u{n}" for n in range(len(histories))], dtype=object), "user"),
        IdMap(np.array([f"i{n}" for n in range(n_items)], dtype=object), "item"),
        np.concatenate([[0], np.cumsum(counts)]),
        item_rows,
        None if times is None else np.array([time for one in times for time in one]),
    )


def histories_of(interactions):
    """User id to item ids, oldest first."""
    return {
        user: interactions.items.ids(interactions.items_of(row))
        for row, user in enumerate(interactions.users.ids(range(interactions.n_users)))
    }


def item_lists(interactions):
    """The item rows of each user."""
    return [interactions.items_of(row).tolist() for row in range(interactions.n_users)]


@st.composite
def any_interactions(draw, timed=True, smallest=0):
    """Interactions with repeated pairs, ties in time and (where `smallest` is 0) empty histories."""
    histories = draw(
        st.lists(st.lists(st.integers(0, 6), min_size=smallest, max_size=9), min_size=1, max_size=7)
    )
    times = None
    if timed:
        times = [
            sorted(draw(st.lists(st.integers(-5, 5), min_size=len(one), max_size=len(one))))
            for one in histories
        ]
    return interactions_of(histories, times, n_items=7)


def table(tmp_path, text, name="ratings.csv"):
    """The path of a file with that text, or those bytes."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(source, kind=LocaError, **options):
    """The one line with which a source is refused."""
    with pytest.raises(kind) as caught:
        read_interactions(source, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message
