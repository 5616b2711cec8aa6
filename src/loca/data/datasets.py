"""The public data sets that can be fetched: where each lies, whose it is, what may be done with it, how it is read."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from loca.data.archives import find_source
from loca.data.interactions import Interactions
from loca.data.readers import find_layout, known_members, read_interactions
from loca.data.recency import Recency
from loca.data.splits import Split, leave_last_out
from loca.errors import ConfigError, did_you_mean

Algorithm = Literal["md5", "sha256"]
# Who says what the bytes should be: those who publish them, this project of the copy that it measured, or nobody but
# the download itself, which notices only damage that comes later.
Origin = Literal["publisher", "project", "download"]


@dataclass(frozen=True)
class Checksum:
    """The sum of a file's bytes, and who says so."""

    algorithm: Algorithm
    digest: str
    origin: Origin

    @property
    def title(self) -> str:
        """MD5 or SHA-256."""
        return "MD5" if self.algorithm == "md5" else "SHA-256"


@dataclass(frozen=True)
class Licence:
    """Who made a data set, what they allow, in a few words and in a sentence, and where the terms are."""

    maker: str
    short: str
    terms: str
    address: str


@dataclass(frozen=True)
class PublicSet:
    """One file that the world can have; its `addresses` are tried in turn.

    `checksum` is None where nobody states one, `size` (in bytes) where none is known before the server says it.
    `preset` is the paper's treatment of it, where the paper has one; `layout` reads it as it is.
    """

    name: str
    about: str
    file_name: str
    addresses: tuple[str, ...]
    licence: Licence
    layout: str
    preset: str | None = None
    checksum: Checksum | None = None
    size: int | None = None

    def reading_command(self, path: Path) -> str:
        """The command that looks at the fetched file: by the paper's preset where there is one, else by its layout."""
        how = f"--layout {self.layout}" if self.preset is None else f"--preset {self.preset}"
        return f"loca data describe {shlex.quote(str(path))} {how}"


_GROUPLENS = "https://files.grouplens.org/datasets/movielens"
_AMAZON_HOSTS = ("https://mcauleylab.ucsd.edu/public_datasets/data", "https://jmcauley.ucsd.edu/data")
_AMAZON_TERMS = "https://cseweb.ucsd.edu/~jmcauley/datasets/amazon_v2/"


def _movielens(
    size: str, rows: str, md5: str, octets: int, readme: str, preset: str | None = None, *, may_pass_on: bool = False
) -> PublicSet:
    """A MovieLens archive; its MD5 is what GroupLens publishes beside it, in ml-….zip.md5."""
    passing_on = "may be passed on under the same terms" if may_pass_on else "not to be passed on"
    return PublicSet(
        name=f"ml-{size}",
        about=f"MovieLens {size.upper()}: {rows} ratings of films",
        file_name=f"ml-{size}.zip",
        addresses=(f"{_GROUPLENS}/ml-{size}.zip",),
        licence=Licence(
            "GroupLens, University of Minnesota",
            "research",
            f"research, with acknowledgement; {passing_on}; no commercial use without their permission",
            f"{_GROUPLENS}/{readme}",
        ),
        layout=f"movielens-{size}",
        preset=preset,
        checksum=Checksum("md5", md5, "publisher"),
        size=octets,
    )


_MOVIELENS = (
    _movielens("100k", "100,000", "0e33842e24a9c977be4e0107933c0723", 4_924_029, "ml-100k-README.txt"),
    _movielens("1m", "1,000,209", "c4d9eecfca2ab87c1945afe126590906", 5_917_549, "ml-1m-README.txt"),
    _movielens(
        "10m", "10,000,054", "ce571fd55effeba0271552578f2648bd", 65_566_137, "ml-10m-README.html", preset="ml10m"
    ),
    *(
        _movielens(size, rows, md5, octets, f"ml-{size}-README.html", preset, may_pass_on=True)
        for size, rows, md5, octets, preset in (
            ("20m", "20,000,263", "cd245b17a1ae2cc31bb14903e1204af3", 198_702_078, "ml20m"),
            ("25m", "25,000,095", "6b51fb2759a8657d3bfcbfc42b592ada", 261_978_986, None),
            ("32m", "32,000,204", "d472be332d4daa821edc399621853b57", 238_950_008, None),
        )
    ),
)

# The paper's authors keep their file in their repository; the address names one commit, so its bytes cannot change.
# It is preferred to Digital_Music_5.json.gz because it gives the counts of the paper's Table 1. They publish no
# checksum: this one is of the copy on which those counts were checked.
_AMUSIC = PublicSet(
    name="amusic",
    about="Amazon Digital Music, 5-core of 2018, as the paper's authors keep it: 169,781 ratings",
    file_name="amusic.rating",
    addresses=(
        "https://raw.githubusercontent.com/jin530/LOCA/d5b89595f7d86f993e577c347f8e0c98504b55d1/data/recsys_data/"
        "amusic/amusic.rating",
    ),
    licence=Licence(
        "Ni, Li and McAuley, UC San Diego; this file by the authors of LOCA",
        "none stated; cite",
        "no licence is stated; given to be used in research, with a citation of the EMNLP 2019 paper",
        _AMAZON_TERMS,
    ),
    layout="loca-rating",
    preset="amusic",
    checksum=Checksum("sha256", "c6626dc0f9d2204c377ce44f47d57a2c7deb4a73b3098fdf2bb19542777100b5", "project"),
    size=4_097_817,
)

# The group has moved its files more than once: the present host first, then the one that most links name.
_AGAMES = PublicSet(
    name="agames",
    about="Amazon Video Games, 5-core of 2018: 497,577 reviews with their texts",
    file_name="Video_Games_5.json.gz",
    addresses=tuple(f"{host}/amazon_v2/categoryFilesSmall/Video_Games_5.json.gz" for host in _AMAZON_HOSTS),
    licence=Licence(
        "Ni, Li and McAuley, UC San Diego",
        "none stated; cite",
        "no licence is stated; given to be used in research, with a citation of the EMNLP 2019 paper",
        _AMAZON_TERMS,
    ),
    layout="amazon-reviews",
    preset="agames",
)

_YELP = PublicSet(
    name="yelp",
    about="Yelp 2015, as the authors of eALS published it: 731,671 ratings",
    file_name="yelp.rating",
    addresses=("https://github.com/hexiangnan/sigir16-eals/raw/master/data/yelp.rating",),
    licence=Licence(
        "He, Zhang, Kan and Chua, from the Yelp Dataset Challenge",
        "Yelp's; academic",
        "the file states no licence; Yelp's own terms allow academic use only",
        "https://www.yelp.com/dataset",
    ),
    layout="yelp-eals",
    preset="yelp",
)

PUBLIC_SETS: Mapping[str, PublicSet] = MappingProxyType(
    {one.name: one for one in (*_MOVIELENS, _AMUSIC, _AGAMES, _YELP)}
)


def find_set(name: str) -> PublicSet:
    """The public data set of that name, in any case; an unknown one is refused with the nearest."""
    if name.lower() not in PUBLIC_SETS:
        close = did_you_mean(name.lower(), PUBLIC_SETS) or "; known are " + ", ".join(PUBLIC_SETS)
        raise ConfigError(f"unknown data set {name!r}{close}")
    return PUBLIC_SETS[name.lower()]


@dataclass(frozen=True)
class Printed:
    """A row of the paper's Table 1; sparsity and concentration in percent."""

    users: int
    items: int
    ratings: int
    sparsity: float
    concentration: float


@dataclass(frozen=True)
class Preset:
    """The paper's treatment: all ratings positive, repeats kept, users with at least 10 rows, the last 5 for test.

    Items whose users all went stay in the catalogue, because the paper counts them: AMusic's 11,797 are all items of
    the raw file, of which 11,586 are left with a rating.
    """

    name: str
    about: str
    layouts: tuple[str, ...]
    printed: Printed
    min_user_interactions: int = 10
    distinct: bool = False
    keep_unused_items: bool = True
    test: int = 5

    def split(self, interactions: Interactions, *, validation: int = 0) -> Split:
        """The paper's split: the last 5 of each user are test; it has no validation unless one is asked for."""
        return leave_last_out(interactions, test=self.test, validation=validation)


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        preset.name: preset
        for preset in (
            Preset(
                "ML10M",
                "MovieLens 10M, as published",
                ("movielens-10m", "loca-rating"),
                Printed(69_878, 10_677, 10_000_054, 98.66, 48.04),
            ),
            Preset(
                "ML20M",
                "MovieLens 20M, as published",
                ("movielens-20m", "loca-rating"),
                Printed(138_493, 26_744, 20_000_263, 99.46, 66.43),
            ),
            Preset(
                "AMusic",
                "Amazon Digital Music, 5-core of 2018",
                ("loca-rating", "amazon-reviews"),
                Printed(4_964, 11_797, 97_439, 99.83, 14.93),
            ),
            Preset(
                "AGames",
                "Amazon Video Games, 5-core of 2018",
                ("loca-rating", "amazon-reviews"),
                Printed(13_063, 17_408, 236_415, 99.90, 16.40),
            ),
            Preset(
                "Yelp",
                "Yelp 2015, as the authors of eALS published it",
                ("yelp-eals", "loca-rating"),
                Printed(25_677, 25_815, 731_671, 99.89, 22.78),
            ),
        )
    }
)


def find_preset(name: str) -> Preset:
    """The preset of that name, in any case; an unknown one is refused with the nearest."""
    by_lower = {known.lower(): preset for known, preset in PRESETS.items()}
    if name.lower() not in by_lower:
        close = did_you_mean(name, PRESETS) or "; known are " + ", ".join(PRESETS)
        raise ConfigError(f"unknown preset {name!r}{close}")
    return by_lower[name.lower()]


def read_preset(
    name: str, source: str | Path, *, layout: str | None = None, recency: Recency | None = None
) -> Interactions:
    """The interactions of one of the paper's data sets, treated as the paper did; the layout is told by the file."""
    preset = find_preset(name)
    return read_interactions(
        source,
        layout=layout or _choose_layout(preset, source),
        distinct=preset.distinct,
        min_user_interactions=preset.min_user_interactions,
        keep_unused_items=preset.keep_unused_items,
        recency=recency,
    )


def _choose_layout(preset: Preset, path: str | Path) -> str:
    """The first of the preset's layouts with the file's form and separator; else the first, whose reader will tell."""
    from loca.data.readers import looks_like_json
    from loca.data.text_tables import as_text, guess_separator

    head = find_source(path, known_members()).head(4096)
    is_json = looks_like_json(head)
    separator = guess_separator(as_text(head).split("\n")[:10])
    layouts = [find_layout(one) for one in preset.layouts]
    fitting = [one.name for one in layouts if one.is_json == is_json and (is_json or separator in one.separators)]
    return fitting[0] if fitting else preset.layouts[0]
