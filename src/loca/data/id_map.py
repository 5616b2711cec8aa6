"""Map outside ids (text or numbers, as given) to row numbers and back; frozen, with readable labels if any."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from loca.errors import DataError

Id = str | int | float
Column = int | str  # a column by its place or its name


@dataclass(frozen=True, eq=False, repr=False)
class IdMap:
    """Map the ids of all users, or of all items, to row numbers and back.

    Parameters
    ----------
    values : ndarray
        Row r has the id `values[r]`: all text or all numbers, each once.
    what : str, default "user"
        What the rows are called in messages.
    labels : ndarray or None, default None
        What a person reads for each row, such as a title.
    """

    values: npt.NDArray[Any]
    what: str = "user"
    labels: npt.NDArray[Any] | None = field(default=None)

    def __post_init__(self) -> None:
        values = np.asarray(self.values)
        if values.ndim != 1:
            raise DataError(f"{self.what} ids: expected one row of ids, found an array of shape {values.shape}")
        kinds: dict[str, Any] = {"u": np.int64, "U": object, "S": object}
        values = values.astype(kinds.get(values.dtype.kind, values.dtype))
        values.flags.writeable = False
        if values.dtype.kind not in "ifO":
            raise DataError(f"{self.what} ids: expected text or numbers, found {values.dtype}")
        if values.dtype.kind == "O" and not all(isinstance(value, str) for value in values):
            raise DataError(f"{self.what} ids: expected all text or all numbers, found a mixture")
        object.__setattr__(self, "values", values)
        if self.labels is not None:
            labels = np.array(self.labels, dtype=object)
            labels.flags.writeable = False
            if labels.shape != values.shape:
                raise DataError(f"{self.what} labels: expected {len(values)}, found {labels.size}")
            object.__setattr__(self, "labels", labels)
        if len(self._row_of) != len(values):
            raise DataError(f"{self.what} ids: {len(values) - len(self._row_of)} occur more than once")

    def __repr__(self) -> str:
        first = ", ".join(map(str, self.values[:3].tolist())) + ", …" * (len(self) > 3)
        return f"IdMap({len(self):,} {self.what}s: {first})"

    @classmethod
    def numbered(cls, count: int, what: str) -> IdMap:
        """Number rows that came without ids (a bare matrix): 0 … count − 1."""
        return cls(np.arange(count, dtype=np.int64), what)

    @cached_property
    def _row_of(self) -> dict[Id, int]:
        return {value: row for row, value in enumerate(self.values.tolist())}

    def __len__(self) -> int:
        return len(self.values)

    def __contains__(self, outside_id: object) -> bool:
        return self._find(outside_id) is not None

    def row(self, outside_id: Id) -> int:
        """Return the row of one id; an unknown one is refused with the nearest known ids.

        Parameters
        ----------
        outside_id : str, int or float
            Text such as `"42"` also finds the number 42.

        Returns
        -------
        int
        """
        row = self._find(outside_id)
        if row is None:
            raise DataError(f"unknown {self.what} {outside_id!r}{self._nearest(str(outside_id))}")
        return row

    def rows(self, outside_ids: Iterable[Id], *, missing: int | None = None) -> npt.NDArray[np.int64]:
        """Return the rows of many ids, in their order.

        Parameters
        ----------
        outside_ids : iterable of ids
        missing : int or None, default None
            The row given to an unknown id; None refuses it.

        Returns
        -------
        ndarray of int64
        """
        if missing is None:
            return np.fromiter((self.row(one) for one in outside_ids), dtype=np.int64)
        found = (self._find(one) for one in outside_ids)
        return np.fromiter((missing if row is None else row for row in found), dtype=np.int64)

    def ids(self, rows: Sequence[int] | npt.NDArray[np.integer[Any]]) -> list[Id]:
        """Return the ids of rows, as they were given.

        Parameters
        ----------
        rows : sequence of int
            Row numbers.

        Returns
        -------
        list of ids
        """
        return list(self.values[np.asarray(rows, dtype=np.int64)].tolist())

    def label(self, row: int) -> str:
        """Return what a person reads for a row: its label, or its id where it has none."""
        return str(self.values[row]) if self.labels is None else str(self.labels[row])

    def keep(self, rows: npt.NDArray[Any]) -> IdMap:
        """Choose some rows (row numbers or a mask), renumbered from 0 in that order."""
        return IdMap(self.values[rows], self.what, None if self.labels is None else self.labels[rows])

    def with_labels(self, label_of: dict[Any, str]) -> IdMap:
        """Give labels to ids; an id without one is shown as itself."""
        by_text = {str(key): label for key, label in label_of.items()}
        labels = np.array([by_text.get(str(value), str(value)) for value in self.values.tolist()], dtype=object)
        return IdMap(self.values, self.what, labels)

    def _find(self, outside_id: object) -> int | None:
        if isinstance(outside_id, np.generic):
            outside_id = outside_id.item()
        if not isinstance(outside_id, str | int | float):
            return None
        if self.values.dtype.kind == "O":
            return self._row_of.get(str(outside_id))
        try:
            # A command line hands over text; "42" means the number 42 where the ids are numbers.
            number = float(outside_id) if self.values.dtype.kind == "f" else int(outside_id)
        except (ValueError, OverflowError):
            return None
        # 1.5 is not the id 1; text needs no second look, and large whole numbers would not survive one as a float.
        is_exact = isinstance(outside_id, str) or number == outside_id
        return self._row_of.get(number) if is_exact else None

    def _nearest(self, text: str) -> str:
        names = [str(value) for value in self.values[:20_000].tolist()]
        close = difflib.get_close_matches(text, names, n=3, cutoff=0.5)
        if not close and self.labels is not None:
            labels = [str(label) for label in self.labels[:20_000].tolist()]
            titled = difflib.get_close_matches(text, labels, n=3, cutoff=0.5)
            close = [f"{names[labels.index(title)]} ({title})" for title in titled]
        if close:
            return "; close ones are " + ", ".join(close)
        return f"; the {len(self):,} known {self.what}s begin with " + ", ".join(names[:3]) if names else ""
