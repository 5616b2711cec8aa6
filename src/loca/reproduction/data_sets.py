"""The data sets of a reproduction: by name from the folder of public data, by path, or the built-in planted one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loca.config.options import PLANTED
from loca.data.datasets import PUBLIC_SETS, read_preset
from loca.data.download import data_folder
from loca.data.id_map import Id
from loca.data.interactions import Interactions
from loca.data.item_metadata import genres_of_planted, read_genres, read_titles
from loca.data.readers import read_interactions
from loca.data.splits import Split, leave_last_out
from loca.data.synthetic import planted_communities
from loca.errors import ConfigError, did_you_mean
from loca.tuning.model_selection import ProtocolName, counted_as_paper

Genres = Mapping[Id, tuple[str, ...]]
_TEST = 5
_LEAST_HISTORY = 10


@dataclass(frozen=True)
class KnownSet:
    """A public data set: its files below the data folder, the first found counts, and how it is read.

    `printed` is its name in the paper's tables; a set that is only near one of the paper's has none.
    """

    name: str
    label: str
    files: tuple[str, ...]
    layout: str | None = None
    validation: int = 2
    printed: str | None = None
    titles: tuple[str, ...] = ()


def _movielens(size: str, label: str, zipped: str, table: str, titles: str, printed: str | None = None) -> KnownSet:
    name = f"ml-{size}"
    own = (f"{name}/{table}", f"{zipped}/{table}", f"{name}/{name}.zip")
    found_titles = (f"{name}/{titles}", f"{zipped}/{titles}", f"{name}/{name}.zip")
    return KnownSet(name, label, own, f"movielens-{size}", 5, printed, found_titles)


KNOWN: Mapping[str, KnownSet] = {
    one.name: one
    for one in (
        KnownSet(
            "amusic",
            "AMusic",
            ("amusic/amusic.rating", "amusic/Digital_Music_5.json.gz"),
            printed="AMusic",
        ),
        KnownSet("games-2018", "Games 2018", ("games-2018/interactions-ordered.csv.gz",)),
        KnownSet(
            "agames",
            "AGames",
            ("agames/agames.rating", "agames/Video_Games_5.json.gz"),
            printed="AGames",
        ),
        KnownSet("yelp", "Yelp", ("yelp/yelp.rating",), "yelp-eals", printed="Yelp"),
        KnownSet("ml-1m-ordered", "ML-1M", ("ml-1m/ratings-ordered.csv.gz",), None, 5, None, ("ml-1m/movies.dat",)),
        _movielens("100k", "ML-100K", "ml-100k", "u.data", "u.item"),
        _movielens("1m", "ML-1M", "ml-1m", "ratings.dat", "movies.dat"),
        _movielens("10m", "ML10M", "ml-10M100K", "ratings.dat", "movies.dat", "ML10M"),
        _movielens("20m", "ML20M", "ml-20m", "ratings.csv", "movies.csv", "ML20M"),
        _movielens("25m", "ML-25M", "ml-25m", "ratings.csv", "movies.csv"),
        _movielens("32m", "ML-32M", "ml-32m", "ratings.csv", "movies.csv"),
    )
}
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
    if name in KNOWN:
        return _public(KNOWN[name])
    if not Path(name).exists():
        known = [PLANTED, *(one for one in KNOWN if one not in _INSTEAD.values())]
        near = did_you_mean(name, known) or f"; known by name are {', '.join(known)}"
        raise ConfigError(f"data {name!r}: there is no such file, and no data set of that name{near}")
    interactions = read_interactions(name, min_user_interactions=_LEAST_HISTORY)
    # As text that can be written, and told apart from what is known by name.
    called = Path(name).name.encode("utf-8", "replace").decode()
    return StudiedData(f"{called} (file)" if called in (PLANTED, *KNOWN) else called, called, interactions)


def _planted(seed: int) -> StudiedData:
    planted = planted_communities(users=1000, items=150, seed=seed)
    return StudiedData(PLANTED, "planted", planted.interactions, genres=genres_of_planted(planted))


def _public(asked: KnownSet) -> StudiedData:
    path = _find(asked.files)
    if path is None and asked.name in _INSTEAD:
        other = KNOWN[_INSTEAD[asked.name]]
        asked, path = (other, _find(other.files)) if _find(other.files) is not None else (asked, None)
    if path is None:
        # Not all can be fetched: some are only near what is published.
        fetching = f", or get it with  loca data fetch {asked.name}" if asked.name in PUBLIC_SETS else ""
        raise ConfigError(
            f"data {asked.name!r}: expected {asked.files[0]} below {data_folder()}; set LOCA_DATA to the folder that "
            f"holds it{fetching}"
        )
    name = next((one for one, other in _INSTEAD.items() if other == asked.name), asked.name)
    printed = None if asked.printed is None else read_preset(asked.printed, path, layout=asked.layout)
    interactions = read_interactions(path, layout=_layout(asked, path), min_user_interactions=_LEAST_HISTORY)
    titles, genres = _find(asked.titles), dict[Id, tuple[str, ...]]()
    if titles is not None:
        genres, title_of = dict(read_genres(titles)), read_titles(titles)
        interactions = interactions.with_titles(title_of)
        printed = None if printed is None else printed.with_titles(title_of)
    return StudiedData(name, asked.label, interactions, asked.validation, asked.printed, printed, genres)


def _layout(asked: KnownSet, path: Path) -> str | None:
    if asked.layout is None and path.suffix == ".rating":
        return "loca-rating"
    return "amazon-reviews" if path.name.endswith("_5.json.gz") else asked.layout


def _find(files: Iterable[str]) -> Path | None:
    """The first of the files that is there, below the folder that `loca data fetch` puts data into."""
    return next((data_folder() / one for one in files if (data_folder() / one).exists()), None)
