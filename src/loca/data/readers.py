"""Any file, data frame or sparse matrix becomes Interactions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scipy.sparse import issparse

from loca.data.columns import Column, Columns, place_named, place_unnamed
from loca.data.events import Events
from loca.data.filtering import keep_active, keep_distinct, keep_ratings_of_at_least
from loca.data.interactions import Interactions
from loca.data.layouts import Layout, amazon_layout, find_layout, known_members
from loca.data.recency import Recency
from loca.data.sources import Source, find_source
from loca.errors import ConfigError, DataError
from loca.progress import say

if TYPE_CHECKING:
    import polars as pl


def read_interactions(
    source: Any,
    *,
    user: Column | None = None,
    item: Column | None = None,
    rating: Column | None = None,
    time: Column | None = None,
    layout: str | None = None,
    separator: str | None = None,
    header: bool | None = None,
    minimum_rating: float | None = None,
    distinct: bool = True,
    min_user_interactions: int = 0,
    min_item_interactions: int = 0,
    repeat_filter: bool = False,
    keep_unused_items: bool = False,
    recency: Recency | None = None,
) -> Interactions:
    """Interactions from a path, a data frame or a scipy sparse matrix.

    A path leads to CSV, TSV, Parquet, JSON lines or MovieLens' `::` text, plain, gzipped or in a zip. Columns are
    given by name or by position from 0, by a named `layout`, or guessed from usual names. Ids stay as given; time is
    numbers, ISO dates or a bare order. Left out are, in this order: ratings under `minimum_rating`, all but the first
    of repeated pairs (unless `distinct=False`), items and users with too few interactions.
    """
    asked = Columns(user, item, rating, time, rating_needed=minimum_rating is not None)
    plan = None if layout is None else find_layout(layout)
    events = _read_events(source, asked, plan, separator, header)
    if minimum_rating is not None:
        events = keep_ratings_of_at_least(events, minimum_rating)
    interactions = events.interactions()
    del events  # 20 million of them are half a gigabyte
    if distinct:
        interactions = keep_distinct(interactions)
    if minimum_rating is not None or min_user_interactions or min_item_interactions:
        interactions = keep_active(
            interactions,
            min_user_interactions=min_user_interactions,
            min_item_interactions=min_item_interactions,
            repeat_filter=repeat_filter,
            keep_unused_items=keep_unused_items,
        )
    return interactions.with_recency(recency)


def _read_events(
    source: Any, asked: Columns, plan: Layout | None, separator: str | None, header: bool | None
) -> Events:
    if isinstance(source, str | Path):
        found = find_source(source, known_members() if plan is None else plan.members)
        return Events.from_table(_read_file(found, asked, plan, separator, header))
    if plan is not None:
        raise ConfigError(f"layout {plan.name!r} says how a file is written; it cannot be asked of a {_kind(source)}")
    if not issparse(source):
        from loca.data.tables import read_frame

        return Events.from_table(read_frame(source, asked))
    if any(column is not None for column in asked.by_role().values()):
        raise ConfigError("a sparse matrix has no columns; give it without user, item, rating and time")
    return Events.from_matrix(source)


def _read_file(
    source: Source, asked: Columns, plan: Layout | None, separator: str | None, header: bool | None
) -> pl.DataFrame:
    from loca.data.json_lines import looks_like_json, read_json_lines
    from loca.data.tables import PARQUET_MARK, read_parquet

    head = source.head()
    form = "Parquet" if head.startswith(PARQUET_MARK) else "JSON" if looks_like_json(head) else "text"
    if plan is not None and form != ("JSON" if plan.is_json else "text"):
        raise DataError(f"{source.name}: expected the layout {plan.name} ({plan.about}), found {form}")
    if form == "text":
        return _read_text(source, asked, plan, separator, header)
    if form == "JSON":
        return read_json_lines(source, asked.filled_from(_columns(plan)))
    return read_parquet(source, asked)


def _read_text(
    source: Source, asked: Columns, plan: Layout | None, separator: str | None, header: bool | None
) -> pl.DataFrame:
    from loca.data.delimited import read_delimited
    from loca.data.text_shape import SEPARATORS, find_shape

    usual = SEPARATORS if plan is None else plan.separators
    separators = usual if separator is None else (separator,)
    shape = find_shape(source, separators=separators, header=header, known_names=asked.names())
    order = plan
    if plan is None and shape.names is None and asked.user is None and asked.item is None:
        order = amazon_layout(shape.sample)
    elif plan is not None and plan.columns is None:
        order = amazon_layout(shape.sample)
        if order is None:
            raise DataError(
                f"{source.name}: the first two columns do not look like Amazon's reviewers and products; "
                "name the layout amazon-ratings-2014 (user first) or amazon-ratings-2018 (item first)"
            )
    if order is not None and order is not plan:
        say(f"{source.name}: read as {order.name}, by the shapes of its ids ({order.about})")
    asked = asked.filled_from(_columns(order))
    if shape.names is None:
        places = place_unnamed(asked, shape.width, source.name)
    else:
        places = place_named(asked, shape.names, source.name)
    return read_delimited(source, shape, places)


def _columns(plan: Layout | None) -> Columns:
    return Columns() if plan is None or plan.columns is None else plan.columns


def _kind(source: Any) -> str:
    return "sparse matrix" if issparse(source) else type(source).__name__
