"""Interactions from whatever a caller has, and rows that come later than a fit, read by its rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scipy.sparse import issparse

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.schema import Schema, no_ratings
from loca.errors import DataError
from loca.remarks import tell_remarks

# Of unknown ids so many must be known ones but for their leading zeros to be taken for a mistake.
_MANY_ALIKE = 0.1


def is_table(data: Any) -> bool:
    """Return whether data is a frame, of pandas, polars, arrow or another library."""
    return hasattr(data, "columns") or hasattr(data, "column_names")


def as_interactions(data: Any, name: str = "data") -> Interactions:
    """Return interactions as they are, and a frame, a path or a sparse matrix as interactions."""
    if isinstance(data, Interactions):
        return data
    if issparse(data):
        return Interactions.from_matrix(data)
    if is_table(data) or isinstance(data, str | Path):
        # Reads with polars, which the rest does without.
        from loca.data.readers import read_interactions

        return read_interactions(data)
    expected = "Interactions, a path, a data frame or a sparse matrix"
    raise DataError(f"{name}: expected {expected}, found {type(data).__name__}")


def read_later(
    source: Any, known: Interactions, name: str = "data", *, are_targets: bool = False
) -> Interactions:
    """Return rows that come later than known ones, read by their rules; Interactions are checked against these.

    Of targets that are to be found nobody needs the weights.
    """
    if isinstance(source, Interactions):
        check_later(source, known.schema, are_targets=are_targets)
        return source
    if issparse(source):
        found = "a sparse matrix, which has no ids"
        raise DataError(f"{name}: expected Interactions, a path or a data frame, found {found}")
    if is_table(source) or isinstance(source, str | Path):
        from loca.data.readers import ReadRequest, read_with_remarks

        request = ReadRequest(are_targets=are_targets).like(known.schema)
        return read_with_remarks(source, request)
    expected = "Interactions, a path or a data frame"
    raise DataError(f"{name}: expected {expected}, found {type(source).__name__}")


def check_ids(later: Interactions, known: Interactions, name: str) -> None:
    """Refuse later rows whose ids are surely not meant as they stand.

    These are rows with users and items exchanged, and ids that have lost their leading zeros.
    """
    users, items = later.users.values.tolist(), later.items.values.tolist()
    new_users, new_items = _unknown(users, known.users), _unknown(items, known.items)
    straight = 2 - len(new_users) / max(len(users), 1) - len(new_items) / max(len(items), 1)
    # Two shares: where most ids are known as they stand, no exchange can explain them better.
    crossed = 0.0
    if straight < 1:
        crossed = _share_in(users, known.items) + _share_in(items, known.users)
    if crossed > straight + 1:
        found = f"{100 * _share_in(users, known.items):.0f} % of the users are known items"
        raise DataError(
            f"{name}: {found}, and hardly any is a known user; exchange the two columns"
        )
    for ids, unknown in ((known.users, new_users), (known.items, new_items)):
        alike = ids.without_zeros(unknown)
        if alike and len(alike) >= _MANY_ALIKE * len(unknown):
            new, old = next(iter(alike.items()))
            raise DataError(
                f"{name}: {len(alike):,} unknown {ids.what} ids are known ones but for leading zeros, such "
                f"as {new!r} and {old!r}; read these ids as text"
            )


def _unknown(values: list[Any], ids: IdMap) -> list[Any]:
    return [one for one in values if one not in ids]


def _share_in(values: list[Any], ids: IdMap) -> float:
    return sum(one in ids for one in values) / max(len(values), 1)


def check_later(later: Interactions, known: Schema, *, are_targets: bool = False) -> None:
    """Refuse interactions that were read by other rules than known ones, where that changes an answer."""
    found = later.schema
    if known.min_rating is not None and found.min_rating != known.min_rating:
        if found.has_ratings:
            read = "all" if found.min_rating is None else f"those of at least {found.min_rating:g}"
            raise DataError(
                f"ratings: the model was fitted on those of at least {known.min_rating:g}, and here "
                f"are {read}; read them with min_rating={known.min_rating:g}, or give the table itself"
            )
        tell_remarks([no_ratings("these interactions", known)])
    if known.weighting is not None and found.weighting != known.weighting and not are_targets:
        read = "without" if found.weighting is None else f"with weight={str(found.weighting)!r}"
        raise DataError(
            f"weights: the model was fitted with weight={str(known.weighting)!r}, and these rows were "
            f"read {read}; read them with the same, or give the table itself"
        )
