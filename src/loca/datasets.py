"""Public data sets by name, such as `loca.datasets.ml_100k()`: a function for each that the registry has.

>>> import loca
>>> "ml_100k" in dir(loca.datasets)
True
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from loca.data.datasets import DATA_SETS, DataSet
from loca.data.download import data_folder, find_below
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.errors import DataError, check_arguments, did_you_mean

__all__ = [name.replace("-", "_") for name in DATA_SETS]


@cache
def _reader_of(data_set: DataSet) -> Callable[..., Interactions]:
    """The function that reads one data set."""

    @check_arguments
    def read(
        *,
        folder: str | Path | None = None,
        min_rating: float | None = None,
        min_user_interactions: int = 0,
        recency: Recency | None = None,
    ) -> Interactions:
        """Read the data set, as `loca data fetch` leaves it.

        Parameters
        ----------
        folder : str, Path or None, default None
            Where data lie; None takes LOCA_DATA, else the user's cache folder.
        min_rating : float or None, default None
            Leave out lower ratings; None counts all.
        min_user_interactions : int, default 0
            Leave out users with fewer interactions.
        recency : Recency or None, default None
            How a history is weighted when it is used to score.

        Returns
        -------
        Interactions
            With titles where there are such.
        """
        from loca.data.readers import layout_of, read_interactions

        below = data_folder(None if folder is None else Path(folder))
        path = find_below(below, data_set.files)
        if path is None:
            advice = (
                f"get it with  loca data fetch {data_set.name}"
                if data_set.addresses
                else "set LOCA_DATA to the folder that holds it"
            )
            raise DataError(
                f"{data_set.name}: expected {' or '.join(data_set.files)} below {below}; {advice}"
            )
        interactions = read_interactions(
            path,
            layout=layout_of(data_set, path),
            min_rating=min_rating,
            min_user_interactions=min_user_interactions,
            recency=recency,
        )
        titles = find_below(below, data_set.titles)
        return interactions if titles is None else interactions.with_titles(titles)

    read.__name__ = read.__qualname__ = data_set.name.replace("-", "_")
    read.__doc__ = (read.__doc__ or "").replace("the data set", data_set.about or data_set.label, 1)
    return read


def __getattr__(name: str) -> Callable[..., Interactions]:
    known = dict(zip(__all__, DATA_SETS.values(), strict=True))
    if name not in known:
        raise AttributeError(
            f"module 'loca.datasets' has no data set {name!r}{did_you_mean(name, known)}"
        )
    return _reader_of(known[name])


def __dir__() -> list[str]:
    return sorted(__all__)
