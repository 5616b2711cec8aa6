"""The named public formats: MovieLens, Amazon, Yelp as eALS published it, and the files of the paper's authors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from loca.data.columns import Columns
from loca.errors import ConfigError, did_you_mean

_IN_ORDER = Columns(user=0, item=1, rating=2, time=3)
_ITEM_FIRST = Columns(user=1, item=0, rating=2, time=3)
# Amazon's own shapes: a reviewer is A and at least nine more signs, a product an ASIN or an ISBN of ten signs.
_AMAZON_USER = re.compile(r"A[0-9A-Z]{9,20}")
_AMAZON_ITEM = re.compile(r"B[0-9A-Z]{9}|[0-9]{9}[0-9X]")


@dataclass(frozen=True)
class Layout:
    """How one public data set is written; `members` are the names of its table inside the published zip.

    `columns` is None where the order of the columns must be read off the ids; `separators` is empty for JSON lines.
    """

    name: str
    about: str
    columns: Columns | None = _IN_ORDER
    separators: tuple[str, ...] = (",",)
    members: tuple[str, ...] = ()

    @property
    def is_json(self) -> bool:
        return not self.separators


LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        layout.name: layout
        for layout in (
            Layout("movielens-100k", "u.data: user, item, rating, time; tabs", _IN_ORDER, ("\t",), ("ml-100k/u.data",)),
            Layout("movielens-1m", "ratings.dat: user::item::rating::time", _IN_ORDER, ("::",), ("ml-1m/ratings.dat",)),
            Layout(
                "movielens-10m",
                "ratings.dat: user::item::rating::time",
                _IN_ORDER,
                ("::",),
                ("ml-10M100K/ratings.dat", "ml-10m/ratings.dat"),
            ),
            *(
                Layout(
                    f"movielens-{size}",
                    "ratings.csv: userId,movieId,rating,timestamp under a header",
                    members=(f"ml-{size}/ratings.csv",),
                )
                for size in ("20m", "25m", "32m")
            ),
            Layout("amazon-ratings", "ratings only; which of the next two is told by the shapes of the ids", None),
            Layout("amazon-ratings-2014", "ratings only, 2014: user,item,rating,time", _IN_ORDER),
            Layout("amazon-ratings-2018", "ratings only, 2018: item,user,rating,time", _ITEM_FIRST),
            Layout(
                "amazon-reviews",
                "JSON lines (5-core): reviewerID, asin, overall, unixReviewTime",
                Columns("reviewerID", "asin", "overall", "unixReviewTime"),
                separators=(),
            ),
            Layout("yelp-eals", "yelp.rating: user, item, rating, time; tabs", _IN_ORDER, ("\t",), ("yelp.rating",)),
            Layout(
                "loca-rating",
                "the .rating files of the paper's authors: user, item, rating, time; comma, tab or ::",
                _IN_ORDER,
                ("::", "\t", ","),
            ),
        )
    }
)


def find_layout(name: str) -> Layout:
    """The layout of that name; an unknown one is refused with the nearest."""
    if name not in LAYOUTS:
        listed = ", ".join(LAYOUTS)
        raise ConfigError(f"unknown layout {name!r}{did_you_mean(name, LAYOUTS) or '; known are ' + listed}")
    return LAYOUTS[name]


def known_members() -> tuple[str, ...]:
    """The tables of all published zips, to find one where no layout is named."""
    return tuple(member for layout in LAYOUTS.values() for member in layout.members)


def amazon_layout(sample: Sequence[Sequence[str]]) -> Layout | None:
    """The 2014 or the 2018 order, by which of the first two columns holds reviewers and which products; else None."""

    def share(user: int, item: int) -> float:
        alike = [
            bool(_AMAZON_USER.fullmatch(row[user]) and _AMAZON_ITEM.fullmatch(row[item]))
            for row in sample
            if len(row) > 1
        ]
        return sum(alike) / max(len(alike), 1)

    if share(0, 1) > 0.5:
        return LAYOUTS["amazon-ratings-2014"]
    return LAYOUTS["amazon-ratings-2018"] if share(1, 0) > 0.5 else None
