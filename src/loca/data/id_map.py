"""Map outside ids (text or numbers, as given) to row numbers and back, and find items by titles as people type them."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from loca.errors import DataError
from loca.remarks import remark

Id = str | int | float
_FIRST_ID, _LAST_ID = -(2**63), 2**63 - 1
Column = int | str  # a column by its place or its name

_ARTICLES = (
    *(
        "the",
        "a",
        "an",
        "le",
        "la",
        "les",
        "l",
        "un",
        "une",
        "der",
        "die",
        "das",
        "ein",
        "eine",
        "el",
        "los",
        "las",
    ),
    *(
        "il",
        "lo",
        "gli",
        "i",
        "uno",
        "una",
        "de",
        "het",
        "een",
        "o",
        "os",
        "as",
        "den",
        "det",
        "en",
    ),
)
_LAST_ARTICLE = re.compile(rf"(.+),\s*({'|'.join(_ARTICLES)})'?\s*", re.IGNORECASE)
_YEAR = re.compile(r"(.*\S)\s*\((\d{4})(?:\s*[-–]\s*(?:\d{4})?)?\)\s*")
_BARE_YEAR = re.compile(r"(.*\w)\W+((?:18|19|20)\d\d)")
_NO_WORD = re.compile(r"[\W_]+")
# Letters that do not come apart into a plain letter and its accent.
_PLAIN_LETTERS = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i"}
)


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
            raise DataError(
                f"{self.what} ids: expected one row of ids, found an array of shape {values.shape}"
            )
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
            raise DataError(
                f"{self.what} ids: {len(values) - len(self._row_of)} occur more than once"
            )

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

    @cached_property
    def _titles(self) -> _Titles:
        return _Titles(self)

    def __len__(self) -> int:
        return len(self.values)

    def __contains__(self, outside_id: object) -> bool:
        return self.find(outside_id) is not None

    def row(self, outside_id: Id) -> int:
        """Return the row of one id, or title; an unknown one is refused with the nearest known ids.

        Parameters
        ----------
        outside_id : str, int or float
            Text such as `"42"` also finds the number 42. A text that is no id may be a title, with or
            without its year.

        Returns
        -------
        int
        """
        row = self._find_named(outside_id)
        if row is None:
            raise DataError(f"unknown {self.what} {outside_id!r}{self._nearest(str(outside_id))}")
        return row

    def rows(
        self, outside_ids: Iterable[Id], *, missing: int | None = None, exact_titles: bool = False
    ) -> npt.NDArray[np.int64]:
        """Return the rows of many ids, or titles, in their order.

        Parameters
        ----------
        outside_ids : iterable of ids
        missing : int or None, default None
            The row given to an unknown id; None refuses it.
        exact_titles : bool, default False
            Take a text for a title only where it is one in full, as for ids that come from a table.

        Returns
        -------
        ndarray of int64
        """
        if missing is None and not exact_titles:
            return np.fromiter((self.row(one) for one in outside_ids), dtype=np.int64)
        rows = []
        for outside_id in outside_ids:
            row = self._find_named(outside_id, exact_titles=exact_titles)
            if row is None and missing is None:
                row = self.row(outside_id)
            rows.append(missing if row is None else row)
        return np.array(rows, dtype=np.int64)

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
        return IdMap(
            self.values[rows], self.what, None if self.labels is None else self.labels[rows]
        )

    def merged(self, other: IdMap) -> tuple[IdMap, npt.NDArray[np.int64]]:
        """Add the ids of another map that are not known yet, and give the row of each of its ids.

        Known ids keep their rows and labels; new ones follow in the order of `other`. Text and numbers match as in
        `row`; an id that cannot be one of this map is refused.
        """
        row_of = dict(self._row_of)
        ids = [self._own(one) for one in other.values.tolist()]
        rows = np.fromiter((row_of.setdefault(one, len(row_of)) for one in ids), np.int64, len(ids))
        added = list(row_of)[len(self) :]
        self._refuse_titles(added)
        kind = self.values.dtype if self.values.dtype.kind == "O" or not added else None
        values = np.concatenate([self.values, np.array(added, kind)])
        labels = None
        if self.labels is not None or other.labels is not None:
            labels = np.array(
                [self.label(row) for row in range(len(self))] + [str(one) for one in added],
                dtype=object,
            )
            # From the last to the first: of ids that are one here the first gives the label.
            for place in [] if other.labels is None else range(len(ids) - 1, -1, -1):
                if rows[place] >= len(self):
                    labels[rows[place]] = other.label(place)
        return IdMap(values, self.what, labels), rows

    def without_zeros(self, ids: Iterable[Id]) -> dict[str, str]:
        """Return those of some unknown ids that are known but for their leading zeros, with the known ones."""
        digits = [one for one in map(str, ids) if one.isdigit()]
        if self.values.dtype.kind != "O" or not digits:
            return {}
        bare = {str(one).lstrip("0"): str(one) for one in self.values.tolist()}
        return {one: bare[one.lstrip("0")] for one in digits if one.lstrip("0") in bare}

    def _refuse_titles(self, added: list[Id]) -> None:
        """Refuse new ids that are titles of known items: whoever gave them meant those."""
        if self.labels is None or self.values.dtype.kind != "O":
            return
        row_of_label = {label: row for row, label in enumerate(self.labels.tolist())}
        for one in added:
            if one in row_of_label:
                known = self.values[row_of_label[one]]
                raise DataError(f"{self.what} ids: {one!r:.60} is the title of {known!r}; give ids")

    def with_labels(self, label_of: dict[Any, str]) -> IdMap:
        """Give labels to ids; an id without one is shown as itself."""
        by_text = {str(key): label for key, label in label_of.items()}
        labels = np.array(
            [by_text.get(str(value), str(value)) for value in self.values.tolist()], dtype=object
        )
        return IdMap(self.values, self.what, labels)

    def _find_named(self, name: object, *, exact_titles: bool = False) -> int | None:
        """Return the row of an id, or of the one item with a title; None where there is none."""
        row = self.find(name)
        if self.labels is None or not isinstance(name, str):
            return row
        if row is None:
            titled = (
                self._titles.exact(name) if exact_titles else self._titles.search(name, parts=False)
            )
            return _only_one(self, name, titled) if titled else None
        if self.values.dtype.kind != "O":
            others = [one for one in self._titles.search(name, parts=False) if one != row]
            if others:
                remark(
                    "ambiguous-item",
                    f"{name!r} is taken as the id of {self.label(row)}; "
                    f"the title {self.label(others[0])} has the id {self.values[others[0]]}",
                )
        return row

    def find(self, outside_id: object) -> int | None:
        """Return the row of an id; None for anything else, such as a title."""
        if isinstance(outside_id, np.generic):
            outside_id = outside_id.item()
        if not isinstance(outside_id, str | int | float) or isinstance(outside_id, bool):
            return None
        try:
            return self._row_of.get(self._own(outside_id))
        except DataError:
            return None

    def _own(self, outside_id: Id) -> Id:
        """The id as one of this map would be written: text, or a number; what cannot be one is refused."""
        if self.values.dtype.kind == "O":
            return str(outside_id)
        with suppress(ValueError, OverflowError):
            # A command line hands over text; "42" means the number 42 where the ids are numbers.
            number = float(outside_id) if self.values.dtype.kind == "f" else int(outside_id)
            # 1.5 is not the id 1, nor 1_0 the id 10; large whole numbers would not survive a second look as a float.
            if "_" not in outside_id if isinstance(outside_id, str) else number == outside_id:
                if self.values.dtype.kind == "i" and not _FIRST_ID <= number <= _LAST_ID:
                    raise DataError(
                        f"{self.what} ids: expected whole numbers of 64 bits, as the known ones are, "
                        f"found {outside_id!r:.60}"
                    )
                return number
        raise DataError(
            f"{self.what} ids: expected numbers, as the known ones are, found {outside_id!r:.60}; "
            f"{_advice_on(outside_id)}"
        )

    def _nearest(self, text: str) -> str:
        names = [str(value) for value in self.values[:20_000].tolist()]
        close = difflib.get_close_matches(text, names, n=3, cutoff=0.5)
        if not close and self.labels is not None:
            labels = [str(label) for label in self.labels[:20_000].tolist()]
            titled = difflib.get_close_matches(text, labels, n=3, cutoff=0.5)
            close = [f"{names[labels.index(title)]} ({title})" for title in titled]
        if close:
            return "; close ones are " + ", ".join(close)
        return (
            f"; the {len(self):,} known {self.what}s begin with " + ", ".join(names[:3])
            if names
            else ""
        )


def _advice_on(outside_id: Id) -> str:
    """Return what to do about a text where ids are numbers."""
    whole, _, zeros = str(outside_id).partition(".")
    if whole.isdecimal() and zeros and not zeros.strip("0"):
        return f"write {whole} for it"
    return "leave such rows out, or fit again on all"


def at_rows(values: npt.NDArray[Any], rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values of rows; None for the row −1, which stands for nothing, if there is one."""
    found = values[rows] if len(values) else np.full(rows.shape, None)
    if (rows < 0).any():
        found = found.astype(object)
        found[rows < 0] = None
    return np.asarray(found)


# -- Titles as people type them ----------------------------------------------------------------------------------------


def find_items(items: IdMap, texts: Iterable[str], *, skip_unknown: bool = False) -> list[int]:
    """Return the rows of items that are named by id or by title, in the order named.

    An exact id wins, then an exact title. Otherwise a title is found without its year, case, accents and punctuation,
    with its article in front or behind, by one of its other names in brackets, and at last by a part that begins at a
    word. Where several items fit, none is taken: they are listed with their ids.

    Parameters
    ----------
    items : IdMap
        The items, with labels where they have titles.
    texts : iterable of str
        Each is one name or several, comma separated. At each place the longest stretch that is a name counts, so
        `Godfather, The` is one title.
    skip_unknown : bool, default False
        Leave out names that fit no item; otherwise they are refused with close ones.

    Returns
    -------
    list of int
        Each row once; of an item that is named twice the last place counts.

    Examples
    --------
    >>> from loca.data.id_map import IdMap, find_items
    >>> items = IdMap([6, 2571], "item", labels=["Heat (1995)", "Matrix, The (1999)"])
    >>> find_items(items, ["the matrix,heat"])
    [1, 0]
    """
    found: list[int] = []
    for text in texts:
        pieces = [] if text.strip() in items else text.split(",")
        if all(
            not name.strip() or name.strip() in items for name in pieces
        ):  # ids alone: no need to look at titles
            found += [items.row(name.strip()) for name in pieces or [text] if name.strip()]
            continue
        while pieces:
            # The longest id or title with as many commas as any has; a single piece may also be a part of a title.
            for end in range(min(len(pieces), 1 + items._titles.most_commas), 1, -1):
                name = ",".join(pieces[:end]).strip()
                ends_in_id = (
                    pieces[end - 1].strip() in items
                )  # of `heat,a` a may be an item, not an article
                if (
                    rows := [items.row(name)]
                    if name in items
                    else items._titles.with_commas(name, exactly=ends_in_id)
                ):
                    found.append(_only_one(items, name, rows))
                    break
            else:
                end, name = 1, pieces[0].strip()
                if name and not (
                    skip_unknown and name not in items and not items._titles.search(name)
                ):
                    found.append(find_item(items, name))
            pieces = pieces[end:]
    return list(dict.fromkeys(reversed(found)))[::-1]


def find_item(items: IdMap, text: str, *, suggest: bool = True) -> int:
    """Return the row of the one item that is named by its id or by its title, as in `find_items`.

    Where there is none, the error suggests close ones, which takes a while.
    """
    if text in items:
        return items.row(text)
    return find_titled_item(items, text, suggest=suggest)


def find_titled_item(items: IdMap, text: str, *, suggest: bool = True) -> int:
    """Return the row of the one item that is named by its title, as in `find_items`; ids are no titles."""
    rows = items._titles.search(text)
    if not rows:
        if not suggest:
            raise DataError(f"unknown {items.what} {text!r:.100}")
        raise DataError(
            f"unknown {items.what} {text!r}{items._titles.nearest(text) or items._nearest(text)}"
        )
    return _only_one(items, text, rows)


def _only_one(items: IdMap, text: str, rows: Sequence[int]) -> int:
    if len(rows) > 1:
        listed = ", ".join(f"{items.values[row]} ({items.label(row)})" for row in rows[:6])
        more = f" and {len(rows) - 6:,} more" if len(rows) > 6 else ""
        raise DataError(
            f"{text!r} fits {len(rows):,} {items.what}s: {listed}{more}; give the id of one"
        )
    return rows[0]


class _Titles:
    """The titles of items in the forms in which they are looked up: each form with the rows that have it."""

    def __init__(self, items: IdMap) -> None:
        self._items = items
        self._years: list[str] = []
        self._exact: dict[str, list[int]] = {}  # as given, in any case
        self._whole: dict[str, list[int]] = {}  # with everything in brackets
        self._named: dict[str, list[int]] = {}  # one name, without the year
        self._bare: dict[str, list[int]] = {}  # without its first article too
        self._commas: dict[str, list[int]] = {}  # one name in which commas count
        labels = [] if items.labels is None else [str(label) for label in items.labels.tolist()]
        names = [str(value) for value in items.values.tolist()]
        # One more than any has: `Matrix, The` is `The Matrix` too.
        self.most_commas = 1 + max((text.count(",") for text in (*labels, *names)), default=0)
        for row, title in enumerate(labels):
            main, year = _without_year(title)
            self._years.append(year)
            if title == names[row]:
                continue  # an item without a title is not found by a part of its id
            forms = [(self._exact, title.casefold()), (self._whole, plain_words(title))]
            for name in [re.sub(r"\([^()]*\)", " ", main), *re.findall(r"\(([^()]*)\)", main)]:
                moved = _article_first(re.sub(r"^\s*a\.?k\.?a\.?\s", "", name, flags=re.IGNORECASE))
                forms += [
                    (self._named, plain_words(moved)),
                    (self._bare, _without_article(plain_words(moved))),
                ]
                if "," in moved:
                    forms += [(self._commas, form) for form in _comma_forms(moved)]
            for rows_of, form in forms:
                rows = rows_of.setdefault(form, [])
                if form and row not in rows[-1:]:
                    rows.append(row)

    def exact(self, text: str) -> list[int]:
        """The rows with that title; in another case where none has it as it stands."""
        rows = self._exact.get(text.casefold(), [])
        return [row for row in rows if self._items.label(row) == text] or rows

    def search(self, text: str, *, parts: bool = True) -> list[int]:
        """The rows that fit a text best: all of the first form that any title has; parts of titles last."""
        rows = self.exact(text) or self._whole.get(plain_words(text), [])
        if rows:
            return rows
        queries = [_without_year(text)]
        if not queries[0][1] and (bare := _BARE_YEAR.fullmatch(text.strip())):
            queries.append(
                (bare[1], bare[2])
            )  # `heat 1995`; first as it stands, for `Blade Runner 2049`
        for name, year in queries:
            words = plain_words(_article_first(name))
            core = _without_article(words)
            pieces = [f" {core} ", f" {core}"]
            if not parts or core.replace(" ", "").isdigit():
                pieces = []  # a mistyped id is not to become 101 Dalmatians
            for rows_of, form in ((self._named, words), (self._bare, core)):
                if form and (rows := self._of_year(rows_of.get(form, []), year)):
                    return rows
            for part in pieces if core else []:
                rows = [
                    row for form, rows in self._named.items() if part in f" {form} " for row in rows
                ]
                if rows := self._of_year(sorted(set(rows)), year):
                    return rows
        return []

    def with_commas(self, text: str, *, exactly: bool) -> list[int]:
        """The rows of a title that is written with its commas: `Good, the Bad and the Ugly, The`."""
        rows = self._exact.get(text.casefold(), [])
        if rows or exactly:
            return rows
        name, year = _without_year(text)
        moved = _article_first(name)
        if "," not in moved:  # it stood before the article
            words = plain_words(moved)
            return self._of_year(
                self._named.get(words) or self._bare.get(_without_article(words), []), year
            )
        forms = (self._commas.get(form, []) for form in _comma_forms(moved))
        return next((rows for found in forms if (rows := self._of_year(found, year))), [])

    def nearest(self, text: str) -> str:
        """The end of a sentence that names items with a similar title, or nothing."""
        core = _without_article(plain_words(_article_first(_without_year(text)[0])))
        close = difflib.get_close_matches(
            core, [form for form in self._bare if form][:20_000], n=3, cutoff=0.6
        )
        rows = list(dict.fromkeys(row for form in close for row in self._bare[form][:2]))
        listed = ", ".join(
            f"{self._items.values[row]} ({self._items.label(row)})" for row in rows[:3]
        )
        return f"; close ones are {listed}" if listed else ""

    def _of_year(self, rows: list[int], year: str) -> list[int]:
        return [row for row in rows if year in ("", self._years[row])]


def plain_words(text: str) -> str:
    """Words in lower case without accents, apostrophes and punctuation, one space apart."""
    text = re.sub(r"['’‘`´]", "", text.casefold()).replace("&", " and ")
    if text.isascii():
        return " ".join(_NO_WORD.split(text)).strip()
    # Only marks above and below a letter go; the vowel signs of other scripts stay.
    apart = (one for one in unicodedata.normalize("NFKD", text) if unicodedata.combining(one) < 200)
    is_part = (
        one if one.isalnum() or unicodedata.category(one)[0] == "M" else " " for one in apart
    )
    return " ".join("".join(is_part).translate(_PLAIN_LETTERS).split())


def _comma_forms(name: str) -> tuple[str, str]:
    """The words between the commas of a name, with its first article and without."""
    form = ",".join(plain_words(piece) for piece in name.split(","))
    return form, _without_article(form)


def _article_first(name: str) -> str:
    """`The Matrix` for `Matrix, The`."""
    behind = _LAST_ARTICLE.fullmatch(name.strip())
    return f"{behind[2]} {behind[1]}" if behind else name


def _without_article(words: str) -> str:
    first, _, rest = words.partition(" ")
    return rest if first in _ARTICLES and rest else words


def _without_year(title: str) -> tuple[str, str]:
    """A title and the year behind it; an empty text where there is none."""
    dated = _YEAR.fullmatch(title)
    return (dated[1], dated[2]) if dated else (title, "")
