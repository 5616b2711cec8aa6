"""The best N items of each user, exact: what is hidden stays out, equal scores stand by item row."""

from __future__ import annotations

import operator
import sys
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.deferred import torch
from loca.errors import ConfigError, DataError

BLOCK_BYTES = 256_000_000
# Small enough to stay near the processor, large enough to keep its cores busy.
_CHUNK_BYTES = 16_000_000
_DEVICE_CHUNK_BYTES = 1_000_000_000
# Of more users torch's threads are worth it; so few numpy ranks in some milliseconds, and loading torch takes a second.
_MOST_USERS_FOR_NUMPY = 64
_SCORES_OF_A_MAXIMUM = 64

AnyScores: TypeAlias = "npt.NDArray[Any] | torch.Tensor"
ItemRows = npt.NDArray[np.int32]
Rows = npt.NDArray[np.integer[Any]]


def as_array(numbers: AnyScores) -> npt.NDArray[Any]:
    """An array, or what a tensor holds as an array in main memory."""
    return numbers if isinstance(numbers, np.ndarray) else numbers.cpu().numpy()


def as_tensor(numbers: AnyScores) -> torch.Tensor:
    """A tensor, or what an array holds as a tensor in main memory."""
    # Writable: torch warns of views that are not, such as one answer for every user.
    return (
        torch.from_numpy(np.require(numbers, requirements=("C", "W")))
        if isinstance(numbers, np.ndarray)
        else numbers
    )


def beside(scores: AnyScores, numbers: AnyScores) -> Any:
    """The numbers as an array where the scores are one, else as a tensor on the device of the scores."""
    return (
        as_array(numbers)
        if isinstance(scores, np.ndarray)
        else as_tensor(numbers).to(scores.device)
    )


def block_rows(
    item_count: int, *, arrays: int = 3, number_bytes: int = 4, budget: int = BLOCK_BYTES
) -> int:
    """How many users to score at once, at least 1, so that `arrays` users × items arrays fit the `budget`."""
    return max(1, budget // max(arrays * number_bytes * item_count, 1))


def check_list_length(n: Any) -> int:
    """Return the length of a list; refuse anything but a whole number of 1 or more."""
    try:
        length = operator.index(n)
    except TypeError:
        length = 0
    if isinstance(n, bool) or length < 1:
        raise ConfigError(f"n: expected a list length of 1 or more, found {n!r}")
    return length


def rank_top_n(
    scores: AnyScores,
    hidden: csr_array | None,
    n: int,
    *,
    only: Rows | None = None,
    never: Rows | None = None,
    chunk_bytes: int | None = None,
) -> tuple[ItemRows, npt.NDArray[np.float32]]:
    """The item rows of each user's n best items, best first, and their scores: two users × n arrays.

    Items stored in `hidden` (users × items) stay out, so do the item rows in `never`, and all but those in
    `only`. Of equal scores the lower item row stands first, also at the cut. A score of −inf means never; NaN
    is refused. A place that cannot be filled holds the item row −1 and the score −inf. Scores that lie on a device
    (a torch tensor) are ranked there; an array of many users is ranked by torch, one of few by numpy: the same lists.
    """
    check_list_length(n)
    table: Any = scores
    if "torch" not in sys.modules or not isinstance(scores, torch.Tensor):
        array = np.asarray(scores)
        if array.dtype.kind not in "fiub":
            raise DataError(
                f"scores: expected users × items numbers, found {array.dtype} of shape {array.shape}"
            )
        # 16-bit and whole numbers become 32- or 64-bit floats, so that −inf and every score stay distinct. A copy where
        # torch could not take the array as it is: read-only, or with other strides than torch knows.
        table = np.require(
            array, dtype=np.result_type(array.dtype, np.float32), requirements=("C", "W")
        )
        if array.ndim == 2 and len(array) > _MOST_USERS_FOR_NUMPY:
            table = torch.from_numpy(table)
    if table.ndim != 2:
        raise DataError(f"scores: expected users × items numbers, found shape {tuple(table.shape)}")
    if hidden is not None and hidden.shape != tuple(table.shape):
        raise DataError(
            f"hidden items: expected the scores' shape {tuple(table.shape)}, found {hidden.shape}"
        )
    user_count, item_count = table.shape
    banned = np.full(item_count, only is not None)
    for name, chosen, mark in (("only", only, False), ("never", never, True)):
        given = np.asarray(() if chosen is None else chosen, dtype=np.int64)
        if len(given) and (given.min() < 0 or given.max() >= item_count):
            raise DataError(f"{name}: expected item rows within 0 … {item_count - 1}, found others")
        banned[given] = mark
    item_rows = np.full((user_count, n), -1, np.int32)
    best = np.full((user_count, n), -np.inf, np.float32)
    if chunk_bytes is None:
        chunk_bytes = _CHUNK_BYTES if str(table.device) == "cpu" else _DEVICE_CHUNK_BYTES
    step = block_rows(item_count, arrays=1, number_bytes=table.itemsize, budget=chunk_bytes)
    width = min(n, item_count)
    for start in range(0, user_count if width else 0, step):
        part = table[start : start + step]
        chunk = (
            part.copy() if isinstance(part, np.ndarray) else part.clone()
        )  # the caller's scores stay as they are
        # The largest of a row is NaN where any of the row is.
        largest = chunk.max(axis=1) if isinstance(chunk, np.ndarray) else chunk.amax(dim=1)
        broken = np.flatnonzero(np.isnan(as_array(largest)))
        if len(broken):
            raise DataError(
                f"scores: found NaN (not a number) for the user in row {start + broken[0]}; "
                "expected numbers: has the model's training diverged?"
            )
        if hidden is not None:
            seen = hidden[start : start + step]
            users = np.repeat(np.arange(len(chunk)), np.diff(seen.indptr))
            chunk[beside(chunk, users), beside(chunk, seen.indices.astype(np.int64))] = -np.inf
        if banned.any():
            chunk[:, beside(chunk, banned)] = -np.inf
        rows, values = _best_of(chunk, width)
        item_rows[start : start + step, :width] = np.where(values > -np.inf, rows, -1)
        best[start : start + step, :width] = values
    return item_rows, best


def _best_of(scores: AnyScores, n: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """The n best of each row in final order; where fewer are above −inf, any items of −inf fill the end."""
    if isinstance(scores, np.ndarray):
        items = _best_by_numpy(scores, n)
        return items, np.take_along_axis(scores, items, axis=1)
    # One more than wanted shows whether the cut falls between equal scores. (users, n + 1)
    values, items = map(as_array, torch.topk(scores, min(n + 1, scores.shape[1])))
    if n < scores.shape[1]:
        tied = np.flatnonzero((values[:, n - 1] == values[:, n]) & (values[:, n] > -np.inf))
        values, items = values[:, :n], items[:, :n]  # (users, n)
        if len(tied):
            # Of all that score exactly the last value the lowest item rows stand in its places.
            rows = as_array(scores[beside(scores, tied)])
            cut = values[tied, -1:]
            equal = np.flatnonzero(
                rows == cut
            )  # all places at the cut, user after user, item rows rising
            first = np.searchsorted(equal, np.arange(len(rows)) * rows.shape[1])
            at_cut = values[tied] == cut
            nth = np.maximum(np.cumsum(at_cut, axis=1) - 1, 0)
            items[tied] = np.where(at_cut, equal[first[:, None] + nth] % rows.shape[1], items[tied])
    # topk's order is final but for equal scores, which few users have.
    unordered = np.flatnonzero((values[:, 1:] == values[:, :-1]).any(axis=1))
    if len(unordered):
        order = np.lexsort((items[unordered], -values[unordered]), axis=1)
        items[unordered] = np.take_along_axis(items[unordered], order, axis=1)
    return items, values


def _best_by_numpy(scores: npt.NDArray[Any], n: int) -> npt.NDArray[np.int64]:
    """The items of the n best of each row in final order, (users, n).

    The n-th largest of the maxima of short stretches is a score that at least n reach, and that few are above; unlike
    numpy's partition this does not mind that most scores are equal, as those of a sparse model are.
    """
    users, count = scores.shape
    width = max(1, min(_SCORES_OF_A_MAXIMUM, count // (2 * n)))
    whole = count // width * width
    maxima = scores[:, :whole].reshape(users, -1, width).max(axis=2)
    reached = np.sort(np.concatenate([maxima, scores[:, whole:]], axis=1), axis=1)[
        :, -n, None
    ]  # (users, 1)
    chosen = scores >= reached
    # Where many reach it exactly, those with the lowest item rows are enough.
    for row in np.flatnonzero(chosen.sum(axis=1) > 4 * n).tolist():
        equal = np.flatnonzero(scores[row] == reached[row])
        chosen[row, equal[max(0, n - int((scores[row] > reached[row]).sum())) :]] = False
    rows, items = np.nonzero(chosen)
    order = np.lexsort((items, -scores[rows, items], rows))
    first = np.searchsorted(rows, np.arange(users))
    return np.asarray(items[order[first[:, None] + np.arange(n)]])
