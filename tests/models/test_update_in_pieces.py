"""An update in any number of pieces equals the fit on everything: repeats, weights, units, minimum rating."""

from __future__ import annotations

import warnings
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loca
from loca.data.interactions import Interactions
from loca.errors import NothingLeftError
from loca.models.recommender import Recommender

FIRST = 1_600_000_000
CLOSED = {
    "popularity": loca.Popularity(),
    "ease": loca.EASE(l2=1.0),
    "sparse ease": loca.EASE(l2=1.0, keep=2),
    "next-ease": loca.NextEASE(l2=1.0),
    "item-knn": loca.ItemKNN(neighbours=3, shrinkage=1.0),
    "slim": loca.SLIM(l1=0.1, l2=1.0),
}
# How times may be written, in one piece or another: all of them are moments.
WRITTEN = {
    "s": lambda second: second,
    "ms": lambda second: second * 1000,
    "iso": lambda second: datetime.fromtimestamp(second, UTC).isoformat(),
}
READ = {
    "plainly": {},
    "above a rating": {"min_rating": 3},
    "weighted by plays": {"weight": "plays"},
    "weighted by log1p of plays": {"weight": "log1p(plays)"},
    "weighted by ratings": {"weight": "rating", "min_rating": 2},
    "weighted by events": {"weight": "view=1,buy=3,return=0"},
    "with recency": {"recency": loca.Recency("1min")},
    "with repeats": {"distinct": False, "recency": loca.Recency(2)},
}


@st.composite
def events(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Rows of user, item, rating, plays, event and second, with repeated pairs and equal times."""
    row = st.tuples(
        st.sampled_from("abcdefg"),
        st.sampled_from("uvwxyz"),
        st.integers(1, 5),
        st.sampled_from([0.1, 1.0, 2.5, 40.0]),
        st.sampled_from(["view", "buy", "return"]),
        st.integers(FIRST, FIRST + 300),
    )
    # The first rows let every way of reading learn something, before and after any cut.
    begin = [(user, item, 5, 1.0, "buy", FIRST) for user in "ab" for item in "uv"]
    return begin + draw(st.lists(row, min_size=12, max_size=40))


def frame_of(rows: list[tuple[Any, ...]], unit: str = "s") -> pl.DataFrame:
    names = ["user", "item", "rating", "plays", "event", "time"]
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    columns["time"] = [WRITTEN[unit](second) for second in columns["time"]]
    return pl.DataFrame(columns)


def pieces_of(rows: list[tuple[Any, ...]], count: int) -> list[list[tuple[Any, ...]]]:
    """The first rows, and the others in so many pieces that follow each other."""
    known = 8
    later = rows[known:]
    size = -(-len(later) // count)
    return [rows[:known], *(later[start : start + size] for start in range(0, len(later), size))]


def updated(
    model: Recommender, rows: list[tuple[Any, ...]], how: dict[str, Any], count: int
) -> Any:
    first, *others = pieces_of(rows, count)
    fitted = loca.clone(model).fit(loca.read_interactions(frame_of(first), **how))
    for number, piece in enumerate(others):
        unit = list(WRITTEN)[number % len(WRITTEN)]
        # Of a piece every row may be below the minimum, or of a kind that counts nothing.
        with suppress(NothingLeftError):
            fitted.update(frame_of(piece, unit))
    return fitted


def assert_same_data(one: Interactions, other: Interactions) -> None:
    for name in ("users", "items"):
        assert getattr(one, name).values.tolist() == getattr(other, name).values.tolist()
    np.testing.assert_array_equal(one.offsets, other.offsets)
    np.testing.assert_array_equal(one.item_rows, other.item_rows)
    np.testing.assert_array_equal(one.times, other.times)
    np.testing.assert_array_equal(one.values(), other.values())
    np.testing.assert_array_equal(one.histories().toarray(), other.histories().toarray())


def learned(model: Recommender) -> np.ndarray:
    weights = model.shares_ if isinstance(model, loca.Popularity) else model.weights_
    return weights if isinstance(weights, np.ndarray) else weights.toarray()


@pytest.mark.parametrize("how", READ)
@settings(max_examples=8)
@given(rows=events())
def test_closed_forms_learn_the_same_bits_in_1_2_and_10_pieces(
    how: str, rows: list[tuple[Any, ...]]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", loca.LocaWarning)
        everything = loca.read_interactions(frame_of(rows), **READ[how])
        for number, model in enumerate(CLOSED.values()):
            fitted = loca.clone(model).fit(everything)
            # Each count of pieces with some of the models, and all models with each.
            for count in ((1, 2, 10)[number % 3], 10):
                other = updated(model, rows, READ[how], count)
                assert_same_data(other.train_data_, everything)
                np.testing.assert_array_equal(learned(other), learned(fitted))


@pytest.mark.parametrize("how", READ)
@settings(max_examples=3)
@given(rows=events())
def test_models_that_go_on_have_the_same_histories(how: str, rows: list[tuple[Any, ...]]) -> None:
    model = loca.WMF(factors=2, iterations=1)  # takes in new items too
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", loca.LocaWarning)
        everything = loca.read_interactions(frame_of(rows), **READ[how])
        other = updated(model, rows, READ[how], 2).train_data_.sorted_by_id()
    assert_same_data(other, everything)


@pytest.mark.parametrize("model", [loca.MultVAE(latent=2, epochs=1), loca.CDAE(latent=2, epochs=1)])
def test_networks_have_the_same_histories_of_the_items_that_they_know(model: Recommender) -> None:
    rng = np.random.default_rng(0)
    items = "uvwxyz"
    rows = [("a", item, 4, 1.0, "buy", FIRST) for item in items] + [
        (user, item, 4, float(plays), "buy", FIRST + int(second))
        for user, item, plays, second in zip(
            rng.choice(list("abcde"), 40),
            rng.choice(list(items), 40),
            rng.integers(1, 9, 40),
            rng.integers(0, 300, 40),
            strict=True,
        )
    ]
    how = {"weight": "plays"}
    everything = loca.read_interactions(frame_of(rows), **how)
    assert_same_data(updated(model, rows, how, 3).train_data_.sorted_by_id(), everything)


def test_a_repeat_counts_at_its_newest_time_in_a_fit_and_in_an_update() -> None:
    old = pl.DataFrame(
        {
            "user": ["ann"] * 2 + ["bob"] * 2 + ["cid"] * 2,
            "item": ["tea", "milk", "tea", "salt", "milk", "salt"],
            "time": [1, 2] * 3,
        }
    )
    new = pl.DataFrame({"user": ["ann"], "item": ["tea"], "time": [9]})
    recency = loca.Recency(1)
    model = loca.EASE().fit(loca.read_interactions(old, recency=recency)).update(new)
    fitted = loca.EASE().fit(loca.read_interactions(pl.concat([old, new]), recency=recency))
    assert model.train_data_ is not None
    # Items in the order milk, salt, tea: the tea of moment 9 counts 1, the milk before it a half.
    assert model.train_data_.histories().toarray()[0].tolist() == [0.5, 0, 1]
    np.testing.assert_array_equal(model.weights_, fitted.weights_)
