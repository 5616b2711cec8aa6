"""Which column says what: the user, the item, the rating and the time, as asked for or guessed from usual names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loca.errors import DataError, did_you_mean

Column = str | int

# Usual names of each role, without case and marks; the first that is found is taken.
_USUAL_NAMES = {
    "user": (
        *("user", "userid", "uid", "usernumber", "username", "reviewerid", "reviewer", "customerid", "customer"),
        *("visitorid", "memberid", "playerid", "listenerid", "readerid"),
    ),
    "item": (
        *("item", "itemid", "iid", "movieid", "movie", "parentasin", "asin", "businessid", "business", "productid"),
        *("product", "bookid", "isbn", "gameid", "gmapid", "trackid", "songid", "artistid", "venueid", "articleid"),
    ),
    "title": ("title", "movietitle", "name", "itemname", "productname", "label"),
    "rating": ("rating", "ratings", "overall", "stars", "score", "rate"),
    "time": (
        *("timestamp", "time", "ts", "unixreviewtime", "unixtime", "eventtime", "datetime", "createdat", "date"),
        *("rank", "order", "position"),
    ),
}


@dataclass(frozen=True)
class Columns:
    """The column of each role by name or by position counted from 0; None where it is not given.

    Ratings are read only where `rating_needed`: without a threshold every interaction counts the same.
    """

    user: Column | None = None
    item: Column | None = None
    rating: Column | None = None
    time: Column | None = None
    rating_needed: bool = False

    def by_role(self) -> dict[str, Column | None]:
        """Role to column, in the order user, item, rating, time."""
        return {"user": self.user, "item": self.item, "rating": self.rating, "time": self.time}

    def filled_from(self, other: Columns) -> Columns:
        """The same, with what is not given here taken from `other`."""
        first = {role: other.by_role()[role] if column is None else column for role, column in self.by_role().items()}
        return Columns(**first, rating_needed=self.rating_needed)

    def names(self) -> list[str]:
        """The columns given by name."""
        return [column for column in self.by_role().values() if isinstance(column, str) and not column.isdigit()]


@dataclass(frozen=True)
class Places:
    """The position of each role's column in the table; rating and time may be absent."""

    user: int
    item: int
    rating: int | None = None
    time: int | None = None

    def by_role(self) -> dict[str, int]:
        """Role to position, in the order user, item, rating, time, without the absent ones."""
        found = {"user": self.user, "item": self.item, "rating": self.rating, "time": self.time}
        return {role: place for role, place in found.items() if place is not None}


def is_usual_name(name: str) -> bool:
    """Whether a table's first row that holds this text is likely to be a header."""
    return any(_plain(name) in names for names in _USUAL_NAMES.values())


def place_named(asked: Columns, names: Sequence[str], where: str) -> Places:
    """The places of the asked columns among named ones; a role that was not asked for is guessed by its usual names."""
    found = {
        role: guess_place(role, names) if column is None else place_of(column, names, where)
        for role, column in asked.by_role().items()
    }
    return _settled({role: place for role, place in found.items() if place is not None}, asked, names, where)


def place_unnamed(asked: Columns, width: int, where: str) -> Places:
    """The places of the asked columns in a table without a header.

    What was not asked for is taken from the usual order (user, item, rating, time) where that leaves no doubt:
    two columns, four columns, or three of which the third is asked for.
    """
    names = [str(place) for place in range(width)]
    given = {role: column for role, column in asked.by_role().items() if column is not None}
    places = {role: place_of(column, names, where) for role, column in given.items()}
    clear = width in (2, 4) or (width == 3 and ("rating" in places or "time" in places))
    if not clear and not {"user", "item"} <= places.keys():
        raise DataError(
            f"{where}: {width} columns without names, so user, item, rating and time cannot be told apart; "
            "give their positions, such as user=0, item=1, time=2"
        )
    for place, role in enumerate(("user", "item", "rating", "time")[: 4 if width == 4 else 2]):
        if clear and role not in places and place not in places.values():
            places[role] = place
    return _settled(places, asked, names, where)


def _settled(places: dict[str, int], asked: Columns, names: Sequence[str], where: str) -> Places:
    needed = ("user", "item", "rating") if asked.rating_needed else ("user", "item")
    missing = [role for role in needed if role not in places]
    if missing:
        raise DataError(
            f"{where}: cannot tell which column holds the {missing[0]}s; the columns are {', '.join(names)}; "
            f"say {missing[0]}=…"
        )
    if len(set(places.values())) < len(places):
        listed = ", ".join(f"{role}={names[place]}" for role, place in places.items())
        raise DataError(f"{where}: one column cannot hold two things, found {listed}")
    rating = places.get("rating") if asked.rating_needed else None
    return Places(places["user"], places["item"], rating, places.get("time"))


def place_of(column: Column, names: Sequence[str], where: str) -> int:
    """The place of a column given by name or position; an unknown one is refused with the columns found."""
    if isinstance(column, str) and column in names:
        return list(names).index(column)
    # A command line hands over text; "0" means the first column where no column has that name.
    if isinstance(column, str) and not column.isdigit():
        listed = ", ".join(names)
        raise DataError(f"{where}: no column {column!r}; the columns are {listed}{did_you_mean(column, names)}")
    place = int(column)
    if not 0 <= place < len(names):
        raise DataError(f"{where}: no column {place}; there are {len(names)}, counted from 0")
    return place


def guess_place(role: str, names: Sequence[str]) -> int | None:
    """The place of the first usual name of a role (user, item, rating, time or title), or None."""
    plain = [_plain(name) for name in names]
    return next((plain.index(usual) for usual in _USUAL_NAMES[role] if usual in plain), None)


def _plain(name: str) -> str:
    # RecBole writes "user_id:token"; what stands behind the colon is a type.
    return "".join(letter for letter in name.split(":")[0].lower() if letter.isalnum())
