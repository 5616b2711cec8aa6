"""The registry of data sets: how each is written, where it lies, whose it is, and what the paper does with it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeVar

from loca.data.id_map import Column
from loca.errors import ConfigError, did_you_mean

_IN_ORDER: Mapping[str, Column] = MappingProxyType({"user": 0, "item": 1, "rating": 2, "time": 3})
_ITEM_FIRST = {**_IN_ORDER, "user": 1, "item": 0}


@dataclass(frozen=True)
class Layout:
    """How a published file is written.

    Parameters
    ----------
    separators : tuple of str
        Those that the file may have; none for JSON lines.
    members : tuple of str
        The names of the table inside the published zip or folder.
    columns : mapping
        Role to column; empty where the order of the columns must be read off the ids.
    """

    name: str
    about: str
    separators: tuple[str, ...] = (",",)
    members: tuple[str, ...] = ()
    columns: Mapping[str, Column] = field(default_factory=lambda: _IN_ORDER)

    @property
    def is_json(self) -> bool:
        return not self.separators


_REVIEW = {"user": "reviewerID", "item": "asin", "rating": "overall", "time": "unixReviewTime"}
_COLONS, _CSV = "ratings.dat: user::item::rating::time", "ratings.csv: userId,movieId,rating,timestamp under a header"
LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        layout.name: layout
        for layout in (
            Layout("movielens-100k", "u.data: user, item, rating, time; tabs", ("\t",), ("ml-100k/u.data",)),
            Layout("movielens-1m", _COLONS, ("::",), ("ml-1m/ratings.dat",)),
            Layout("movielens-10m", _COLONS, ("::",), ("ml-10M100K/ratings.dat", "ml-10m/ratings.dat")),
            *(Layout(f"movielens-{n}", _CSV, members=(f"ml-{n}/ratings.csv",)) for n in ("20m", "25m", "32m")),
            Layout("amazon-ratings", "ratings only; the shapes of the ids say which of the next two", columns={}),
            Layout("amazon-ratings-2014", "ratings only, 2014: user,item,rating,time"),
            Layout("amazon-ratings-2018", "ratings only, 2018: item,user,rating,time", columns=_ITEM_FIRST),
            Layout("amazon-reviews", f"JSON lines (5-core): {', '.join(_REVIEW.values())}", (), columns=_REVIEW),
            Layout("yelp-eals", "yelp.rating: user, item, rating, time; tabs", ("\t",), ("yelp.rating",)),
            Layout(
                "loca-rating",
                "the .rating files of the paper's authors: user, item, rating, time; comma, tab or ::",
                ("::", "\t", ","),
            ),
        )
    }
)


@dataclass(frozen=True)
class Checksum:
    """The sum of a file's bytes, and who states it: the publisher, this project, or only the download itself.

    This project states those of copies that it measured. A download's own sum notices only damage that comes later.
    """

    algorithm: Literal["md5", "sha256"]
    digest: str
    origin: Literal["publisher", "project", "download"]

    @property
    def title(self) -> str:
        """MD5 or SHA-256."""
        return "MD5" if self.algorithm == "md5" else "SHA-256"


@dataclass(frozen=True)
class Licence:
    """Who made a data set, what they allow, in a few words and in a sentence, and where the terms are."""

    maker: str = ""
    short: str = ""
    terms: str = ""
    address: str = ""


@dataclass(frozen=True)
class Printed:
    """A row of the paper's Table 1; sparsity and concentration in percent."""

    users: int
    items: int
    ratings: int
    sparsity: float
    concentration: float


@dataclass(frozen=True)
class DataSet:
    """One data set.

    Parameters
    ----------
    name : str
        Its name for commands, and that of its folder below the data folder.
    label : str
        Its name in tables.
    files : tuple of str
        Its file below the data folder; the first that is there counts.
    layouts : tuple of str
        How these files may be written; none where the file itself says it.
    validation : int
        How many of each user's items before the test items are held out for validation.
    titles : tuple of str
        The file of titles and genres below the data folder.
    printed : Printed or None
        The paper's row of Table 1 where the paper has the data set; its treatment is then the preset `label`.
    file_name, addresses, licence, checksum, size
        What is downloaded; the addresses are tried in turn, and there are none where nobody offers the file. The
        checksum is None where nobody states one, the size where none is known before the server says it.
    """

    name: str
    label: str
    files: tuple[str, ...]
    layouts: tuple[str, ...] = ()
    about: str = ""
    validation: int = 2
    titles: tuple[str, ...] = ()
    printed: Printed | None = None
    file_name: str = ""
    addresses: tuple[str, ...] = ()
    licence: Licence = Licence()
    checksum: Checksum | None = None
    size: int | None = None

    @property
    def preset(self) -> str | None:
        """The name of the paper's treatment, in small letters; None where the paper has none."""
        return None if self.printed is None else self.label.lower()

    def reading_command(self, path: Path) -> str:
        """The command that looks at the downloaded file: by the paper's preset where there is one, else by layout."""
        how = f"--layout {self.layouts[0]}" if self.preset is None else f"--preset {self.preset}"
        return f"loca data describe {shlex.quote(str(path))} {how}"


_GROUPLENS = "https://files.grouplens.org/datasets/movielens"
_AMAZON_HOSTS = ("https://mcauleylab.ucsd.edu/public_datasets/data", "https://jmcauley.ucsd.edu/data")
_AMAZON = Licence(
    "Ni, Li and McAuley, UC San Diego",
    "none stated; cite",
    "no licence is stated; given to be used in research, with a citation of the EMNLP 2019 paper",
    "https://cseweb.ucsd.edu/~jmcauley/datasets/amazon_v2/",
)


def _movielens(
    size: str, label: str, rows: str, md5: str, octets: int, files: tuple[str, str], printed: Printed | None = None
) -> DataSet:
    """A MovieLens archive and its tables of ratings and titles; GroupLens publishes its MD5 in ml-….zip.md5."""
    name, layout = f"ml-{size}", LAYOUTS[f"movielens-{size}"]
    folders = (name, layout.members[0].split("/")[0])
    ratings, titles = ((*(f"{folder}/{file}" for folder in folders), f"{name}/{name}.zip") for file in files)
    passing_on = "may be passed on under the same terms" if files[0].endswith(".csv") else "not to be passed on"
    terms = f"research, with acknowledgement; {passing_on}; no commercial use without their permission"
    readme = f"{_GROUPLENS}/{name}-README.{'txt' if size in ('100k', '1m') else 'html'}"
    return DataSet(
        name,
        label,
        ratings,
        (layout.name,) if printed is None else (layout.name, "loca-rating"),
        f"MovieLens {size.upper()}: {rows} ratings of films",
        validation=5,
        titles=titles,
        printed=printed,
        file_name=f"{name}.zip",
        addresses=(f"{_GROUPLENS}/{name}.zip",),
        licence=Licence("GroupLens, University of Minnesota", "research", terms, readme),
        checksum=Checksum("md5", md5, "publisher"),
        size=octets,
    )


_DAT, _TABLES = ("ratings.dat", "movies.dat"), ("ratings.csv", "movies.csv")
_ML10M = Printed(69_878, 10_677, 10_000_054, 98.66, 48.04)
_ML20M = Printed(138_493, 26_744, 20_000_263, 99.46, 66.43)
DATA_SETS: Mapping[str, DataSet] = MappingProxyType(
    {
        one.name: one
        for one in (
            _movielens(
                "100k", "ML-100K", "100,000", "0e33842e24a9c977be4e0107933c0723", 4_924_029, ("u.data", "u.item")
            ),
            _movielens("1m", "ML-1M", "1,000,209", "c4d9eecfca2ab87c1945afe126590906", 5_917_549, _DAT),
            _movielens("10m", "ML10M", "10,000,054", "ce571fd55effeba0271552578f2648bd", 65_566_137, _DAT, _ML10M),
            _movielens("20m", "ML20M", "20,000,263", "cd245b17a1ae2cc31bb14903e1204af3", 198_702_078, _TABLES, _ML20M),
            _movielens("25m", "ML-25M", "25,000,095", "6b51fb2759a8657d3bfcbfc42b592ada", 261_978_986, _TABLES),
            _movielens("32m", "ML-32M", "32,000,204", "d472be332d4daa821edc399621853b57", 238_950_008, _TABLES),
            # The paper's authors have their file in their repository; the address names one commit, so its bytes
            # cannot change. It is preferred to Digital_Music_5.json.gz because it gives the counts of the paper's
            # Table 1. They publish no checksum: this one is of the copy on which those counts were checked.
            DataSet(
                "amusic",
                "AMusic",
                ("amusic/amusic.rating", "amusic/Digital_Music_5.json.gz"),
                ("loca-rating", "amazon-reviews"),
                "Amazon Digital Music, 5-core of 2018, as the paper's authors keep it: 169,781 ratings",
                printed=Printed(4_964, 11_797, 97_439, 99.83, 14.93),
                file_name="amusic.rating",
                addresses=(
                    "https://raw.githubusercontent.com/jin530/LOCA/d5b89595f7d86f993e577c347f8e0c98504b55d1/data/"
                    "recsys_data/amusic/amusic.rating",
                ),
                licence=replace(_AMAZON, maker=f"{_AMAZON.maker}; this file by the authors of LOCA"),
                checksum=Checksum(
                    "sha256", "c6626dc0f9d2204c377ce44f47d57a2c7deb4a73b3098fdf2bb19542777100b5", "project"
                ),
                size=4_097_817,
            ),
            # The group has moved its files more than once: the present host first, then the one that most links name.
            DataSet(
                "agames",
                "AGames",
                ("agames/agames.rating", "agames/Video_Games_5.json.gz"),
                ("amazon-reviews", "loca-rating"),
                "Amazon Video Games, 5-core of 2018: 497,577 reviews with their texts",
                printed=Printed(13_063, 17_408, 236_415, 99.90, 16.40),
                file_name="Video_Games_5.json.gz",
                addresses=tuple(f"{host}/amazon_v2/categoryFilesSmall/Video_Games_5.json.gz" for host in _AMAZON_HOSTS),
                licence=_AMAZON,
            ),
            DataSet(
                "yelp",
                "Yelp",
                ("yelp/yelp.rating",),
                ("yelp-eals", "loca-rating"),
                "Yelp 2015, as the authors of eALS published it: 731,671 ratings",
                printed=Printed(25_677, 25_815, 731_671, 99.89, 22.78),
                file_name="yelp.rating",
                addresses=("https://github.com/hexiangnan/sigir16-eals/raw/master/data/yelp.rating",),
                licence=Licence(
                    "He, Zhang, Kan and Chua, from the Yelp Dataset Challenge",
                    "Yelp's; academic",
                    "the file states no licence; Yelp's own terms allow academic use only",
                    "https://www.yelp.com/dataset",
                ),
            ),
            # Near to what is published, in the order of each user's history.
            DataSet("games-2018", "Games 2018", ("games-2018/interactions-ordered.csv.gz",)),
            DataSet(
                "ml-1m-ordered",
                "ML-1M",
                ("ml-1m/ratings-ordered.csv.gz",),
                validation=5,
                titles=("ml-1m/movies.dat",),
            ),
        )
    }
)
PUBLIC_SETS: Mapping[str, DataSet] = MappingProxyType({one.name: one for one in DATA_SETS.values() if one.addresses})
PRESETS: Mapping[str, DataSet] = MappingProxyType({one.label: one for one in DATA_SETS.values() if one.printed})
PRINTED: Mapping[str, Printed] = MappingProxyType({name: one.printed for name, one in PRESETS.items() if one.printed})

Record = TypeVar("Record", Layout, DataSet)


def find_layout(name: str) -> Layout:
    """The layout of that name; an unknown one is refused with the nearest."""
    return _find(name, LAYOUTS, "layout")


def find_set(name: str) -> DataSet:
    """The public data set of that name, in any case; an unknown one is refused with the nearest."""
    return _find(name, PUBLIC_SETS, "data set")


def find_preset(name: str) -> DataSet:
    """The data set of the paper of that label, in any case; an unknown one is refused with the nearest."""
    return _find(name, PRESETS, "preset")


def _find(name: str, records: Mapping[str, Record], what: str) -> Record:
    found = next((record for known, record in records.items() if known.lower() == name.lower()), None)
    if found is None:
        nearest = did_you_mean(name, records) or did_you_mean(name.lower(), records)
        raise ConfigError(f"unknown {what} {name!r}{nearest or '; known are ' + ', '.join(records)}")
    return found
