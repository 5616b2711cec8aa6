"""The data sets of a reproduction: by name from the folder of public data, by path, or the built-in planted one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loca.config.options import PLANTED
from loca.data.datasets import DATA_SETS, DataSet
from loca.data.download import data_folder
from loca.data.id_map import Id
from loca.data.interactions import Interactions
from loca.data.item_metadata import genres_of_planted, read_genres, read_titles
from loca.data.readers import layout_of, read_interactions, read_preset
from loca.data.splits import Split, leave_last_out
from loca.data.synthetic import planted_communities
from loca.errors import ConfigError, did_you_mean
from loca.tuning.model_selection import ProtocolName, counted_as_paper

Genres = Mapping[Id, tuple[str, ...]]
_TEST = 5
_LEAST_HISTORY = 10


# The same ratings in another file: whole timestamps are not always to be had.
_INSTEAD = {"ml-1m": "ml-1m-ordered"}


@dataclass(frozen=True, eq=False)
class StudiedData:
    """Interactions to be studied, distinct pairs of users with at least 10, and, where the paper has them, as it has.

    `printed` is the name under which the paper's tables hold the same data.
    """

    name: str
    label: str
    interactions: Interactions
    validation: int = 2
    printed: str | None = None
    as_printed: Interactions | None = None
    genres: Genres = field(default_factory=dict)

    def split(self, protocol: ProtocolName) -> Split:
        """The last 5 of each user are test; `clean` holds out some before them, `paper` nothing, and counts repeats."""
        if protocol == "paper":
            chosen = self.interactions if self.as_printed is None else self.as_printed
            return counted_as_paper(leave_last_out(chosen, test=_TEST))
        return leave_last_out(self.interactions, test=_TEST, validation=self.validation)


def open_data(name: str, *, seed: int = 0) -> StudiedData:
    """The data of that name or path, read now; one that is not there is refused with the places looked in."""
    if name == PLANTED:
        return _planted(seed)
    if name in DATA_SETS:
        return _public(DATA_SETS[name])
    if not Path(name).exists():
        known = [PLANTED, *(one for one in DATA_SETS if one not in _INSTEAD.values())]
        near = did_you_mean(name, known) or f"; known by name are {', '.join(known)}"
        raise ConfigError(f"data {name!r}: there is no such file, and no data set of that name{near}")
    interactions = read_interactions(name, min_user_interactions=_LEAST_HISTORY)
    # As text that can be written, and told apart from what is known by name.
    called = Path(name).name.encode("utf-8", "replace").decode()
    return StudiedData(f"{called} (file)" if called in (PLANTED, *DATA_SETS) else called, called, interactions)


def _planted(seed: int) -> StudiedData:
    planted = planted_communities(users=1000, items=150, seed=seed)
    return StudiedData(PLANTED, "planted", planted.interactions, genres=genres_of_planted(planted))


def _public(data_set: DataSet) -> StudiedData:
    name, path = data_set.name, _find(data_set.files)
    if path is None and name in _INSTEAD:
        other = DATA_SETS[_INSTEAD[name]]
        path = _find(other.files)
        data_set = data_set if path is None else other
    if path is None:
        # Not all can be fetched: some are only near what is published.
        fetching = f", or get it with  loca data fetch {name}" if data_set.addresses else ""
        raise ConfigError(
            f"data {name!r}: expected {data_set.files[0]} below {data_folder()}; set LOCA_DATA to the folder that "
            f"holds it{fetching}"
        )
    preset = None if data_set.printed is None else data_set.label
    printed = None if preset is None else read_preset(preset, path)
    layout = layout_of(data_set, path)
    interactions = read_interactions(path, layout=layout, min_user_interactions=_LEAST_HISTORY)
    titles, genres = _find(data_set.titles), dict[Id, tuple[str, ...]]()
    if titles is not None:
        genres, title_of = dict(read_genres(titles)), read_titles(titles)
        interactions = interactions.with_titles(title_of)
        printed = None if printed is None else printed.with_titles(title_of)
    return StudiedData(name, data_set.label, interactions, data_set.validation, preset, printed, genres)


def _find(files: Iterable[str]) -> Path | None:
    """The first of the files that is there, below the folder that `loca data fetch` puts data into."""
    return next((data_folder() / one for one in files if (data_folder() / one).exists()), None)
