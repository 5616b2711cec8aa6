"""`loca recommend` and `loca similar`: a saved model answers for its own users, for any history, or for items."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from loca.cli.options import Device, Output, Recency, in_panel, naming, quiet_ray
from loca.errors import ConfigError, DataError, LocaError

if TYPE_CHECKING:
    from loca.data.histories import HistoryWeights
    from loca.data.id_map import Id, IdMap
    from loca.data.interactions import Interactions
    from loca.evaluation.recommend import Recommendations
    from loca.models.recommender import Recommender

_who, _choice = in_panel("Who asks"), in_panel("What may be listed")

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a saved model.")]
Count = Annotated[int, typer.Option("-n", "--count", help="How many items.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Write a table: .parquet, .csv, .csv.gz, .jsonl or .jsonl.gz."),
]
Names = Annotated[list[str], typer.Argument(metavar="ITEM...", help="Items by id or title.")]
_STANDARD_INPUT = "-"


@dataclass(frozen=True)
class Who:
    """Who is answered: known users by id, or one history; and how histories fade."""

    user: Annotated[
        list[str] | None, _who("A user id the model knows; may be repeated.", "--user")
    ] = None
    history: Annotated[
        list[str] | None,
        _who("Item ids or titles, comma separated, the last one is the newest: anybody's history."),
    ] = None
    recency: Recency = None


@dataclass(frozen=True)
class Many:
    """Who else is answered: many users at once, and what becomes of those whom the model does not know."""

    everyone: Annotated[
        bool, _who("All users that the model was fitted on; needs --out.", "--all")
    ] = False
    users_file: Annotated[
        str | None, _who("A file with one user id per line; - reads standard input.")
    ] = None
    histories: Annotated[
        str | None, _who("A file of interactions: the histories of any users.")
    ] = None
    on_unknown: Annotated[
        Literal["error", "skip", "popular"],
        _who(
            "Unknown users, unknown items, empty histories: refuse, leave out, or list what is popular."
        ),
    ] = "error"


@dataclass(frozen=True)
class Choice:
    """Which items may be listed."""

    only: Annotated[
        list[str] | None,
        _choice("Choose from these items alone: ids or titles, or @FILE with one per line."),
    ] = None
    never: Annotated[list[str] | None, _choice("Leave out these items; written like --only.")] = (
        None
    )
    candidates: Annotated[
        str | None, _choice("A table of user and item: what each of its users may get.")
    ] = None


_cluster = in_panel("Many machines")


@dataclass(frozen=True)
class Parts:
    """Whether the lists of all users are written in parts, and by what."""

    cluster: Annotated[
        str | None,
        _cluster(
            "With --all: in parts, by a Ray cluster (auto, host:6379, or local to start Ray here)."
        ),
    ] = None
    parts: Annotated[
        int | None,
        _cluster(
            "With --all: --out is a folder of so many Parquet files (16); those that are there stay.",
            min=1,
        ),
    ] = None


def recommend_items(
    folder: Folder,
    who: Who,
    many: Many,
    choice: Choice,
    cluster: Parts,
    output: Output,
    count: Count = 10,
    out: Out = None,
    device: Device = "auto",
) -> None:
    """The best items for users that the model knows, or for anybody's history; printed, or written as a table.

    Examples:

      loca recommend films.loca --user u0042 -n 5

      loca recommend films.loca --history i017,i203,i150 --never i004

      loca recommend films.loca --history "Silent Harbour,Copper Tide" --recency 4 --json

      loca recommend films.loca --all -n 20 --out recs.parquet

      loca recommend films.loca --all --cluster auto --parts 64 --out lists

      cat users.txt | loca recommend films.loca --users-file - --on-unknown popular --out recs.csv
    """
    asking = (who.user, who.history, many.everyone, many.users_file, many.histories)
    if sum(map(bool, asking)) != 1:
        expected = "--user ID, --history a,b,c, --all, --users-file FILE or --histories FILE"
        raise ConfigError(f"who asks? expected one of {expected}")
    if many.everyone and out is None:
        raise ConfigError("--all: needs --out, a file such as recs.parquet, recs.csv or recs.jsonl")
    in_parts = next((f"--{name}" for name, one in asdict(cluster).items() if one is not None), None)
    if in_parts is not None and not many.everyone:
        raise ConfigError(f"{in_parts}: is for --all, the lists of all users")
    if in_parts is not None and choice.candidates is not None:
        raise ConfigError(f"{in_parts}: takes no --candidates; say --only or --never")
    if in_parts is not None and device != "auto":
        raise ConfigError(f"{in_parts}: takes no --device; each part is computed where it can be")
    if cluster.cluster is not None:
        quiet_ray()
        import loca.cluster.ray_executor  # noqa: F401  # says what to install before a model is loaded
    if out is not None and in_parts is None:
        from loca.persistence.recommendation_file import check_ending, recommend_to_file

        with naming("--out"):
            check_ending(out)
    model, known, recency = load_known(folder, who.recency, device)
    users: Any = known
    if who.user or many.users_file:
        users = user_ids(known.users, who.user, many.users_file, many.on_unknown)
    elif who.history:
        users = one_history(known, who.history, recency, many.on_unknown)
    elif many.histories:
        users = _read_histories(many.histories, known, many.on_unknown)
    only, never = (
        None if texts is None else known.items.ids(named_items(known.items, texts, option))
        for texts, option in ((choice.only, "--only"), (choice.never, "--never"))
    )
    candidates = None
    if choice.candidates is not None:
        candidates = _read_candidates(choice.candidates, known.items)
    if who.history and known.items.labels is not None and users["history"]:
        # Titles are typed loosely: what was understood is said beside the answer.
        listed = [known.items.label(row) for row in known.items.rows(users["history"][-10:])]
        output.notes([f"history: {'… ' if len(users['history']) > 10 else ''}{', '.join(listed)}"])
    if out is None:
        found = model.recommend(
            users,
            count,
            only=only,
            never=never,
            candidates=candidates,
            on_unknown=many.on_unknown,
            recency=recency,
        )
        output.answer(*_as_text(folder, found, "user"))
        return
    started = time.perf_counter()
    conditions: dict[str, Any] = {"only": only, "never": never, "recency": recency}
    if in_parts is not None:
        from loca.cluster.tasks import recommend_to_parts

        how: dict[str, Any] = {"parts": cluster.parts or 16, "address": cluster.cluster}
        written = recommend_to_parts(folder, out, count, **how, **conditions)
    else:
        conditions |= {"candidates": candidates, "on_unknown": many.on_unknown}
        written = recommend_to_file(*(model, users, out, count), **conditions)
    empty = written.users_without_items
    without = f", {empty:,} of them without a list" if empty else ""
    took, noun = time.perf_counter() - started, "user" if written.users == 1 else "users"
    text = f"{out}: {written.rows:,} rows for {written.users:,} {noun}{without}, in {took:.1f} s"
    output.answer(
        text, {"model": str(folder), **asdict(written), "path": str(out), "seconds": took}
    )


def similar_items(folder: Folder, items: Names, output: Output, count: Count = 10) -> None:
    """The items that are most similar to each given one, with their similarities.

    What is measured, from above 0 to 1, is a matter of the model: a partial
    correlation (EASE, SLIM), a cosine (ItemKNN, factors, networks), or what
    follows (NextEASE). What goes with an item, whatever that is similar to, is
    the list for a history of it alone: loca recommend DIR --history ITEM.

    Examples:

      loca similar films.loca "Silent Harbour"

      loca similar films.loca i017 i203 -n 5 --json
    """
    model, known, _ = load_known(folder)
    rows = named_items(known.items, items, "ITEM")
    output.answer(*_as_text(folder, model.similar_items(known.items.ids(rows), count), "item"))


def _as_text(folder: Path, found: Recommendations, what: str) -> tuple[str, dict[str, Any]]:
    """Lists of items as text and as a document; without a table library, which takes a moment to load."""
    from loca.text_table import TextTable

    column, nothing = "recommended", "nothing is left to recommend"
    if what == "item":
        column, nothing = "similar", "no item is similar"
    titles, names = found.titles, found.item_ids
    texts, answers = [], []
    for place, (one, items, scores) in enumerate(
        zip(found.users.tolist(), found.items, found.scores, strict=True)
    ):
        rows: list[dict[str, Any]] = []
        for rank, (item, score) in enumerate(zip(items.tolist(), scores.tolist(), strict=True)):
            if item is not None:
                titled = {} if titles is None else {"title": titles[place, rank]}
                rows.append({"item": item, "score": score, "rank": rank + 1, **titled})
        lines = tuple(
            (
                f"{row['rank']:>4}. {row.get('title', row['item'])}",
                str(row["item"]),
                f"{row['score']:.4f}",
            )
            for row in rows
        )
        about: dict[str, Any] = {what: one}
        if what == "item" and titles is not None:
            about["title"] = names.label(names.row(one))
        head = f"Like {about.get('title', one)}" if what == "item" else f"For {one}"
        table = TextTable((f"      {column}", "item", "score"), lines).plain()
        texts.append(f"{head}\n{table}" if rows else f"{head}: {nothing}")
        answers.append({**about, "items": rows})
    return "\n\n".join(texts), {"model": str(folder), "answers": answers}


# -- Who asks ----------------------------------------------------------------------------------------------------------


def load_known(
    folder: Path, recency: str | None = None, device: str = "auto"
) -> tuple[Recommender, Interactions, HistoryWeights]:
    """The model on a device, what it was fitted on, and how histories are weighted."""
    from loca.config.options import parse_recency
    from loca.registry import load

    weights: HistoryWeights = "model" if recency is None else parse_recency(recency)
    model = load(folder)
    if device != "auto":  # where it is loaded
        model.to(device)
    if model.train_data_ is None:
        raise DataError(
            f"{folder}: this model was fitted on a bare matrix and knows no ids; ask it from Python"
        )
    return model, model.train_data_, weights


def user_ids(
    users: IdMap, given: Sequence[str] | None, file: str | None = None, on_unknown: str = "error"
) -> list[Any]:
    """The ids that --user or --users-file name, each once; numbers where the model's ids are numbers."""
    places = {} if given is None else dict.fromkeys(given, "--user")
    if file is not None:
        lines = _lines(file, "--users-file")
        first = next(iter(lines.values()))
        if first not in users and first.casefold() in ("user", "users", "user_id", "userid"):
            lines.pop(next(iter(lines)))
        name = "standard input" if file == _STANDARD_INPUT else file
        for number, line in lines.items():
            places.setdefault(line, f"{name} line {number}")
    found: list[Any] = []
    for text, place in places.items():
        if text in users:
            found.append(
                users.values[users.row(text)].item() if users.values.dtype.kind != "O" else text
            )
            continue
        if on_unknown == "error":
            with naming(place):
                try:
                    users.row(text)
                except LocaError as error:
                    more = (
                        "; --on-unknown skip or popular goes on without it"
                        if len(places) > 1
                        else ""
                    )
                    error.args = (f"{error}{more}",)
                    raise
        found.append(int(text) if users.values.dtype.kind == "i" and text.isdecimal() else text)
    return found


def one_history(
    known: Interactions, texts: Sequence[str], recency: HistoryWeights, on_unknown: str = "error"
) -> dict[str, list[Id]]:
    """The item ids of --history, oldest first, under the name `history`."""
    weights = known.recency if recency == "model" else recency
    if weights is not None and weights.unit != "positions":
        raise ConfigError(
            "--history: has no times to be weighed by; say --recency 4 (positions) or none"
        )
    return {"history": known.items.ids(named_items(known.items, texts, "--history", on_unknown))}


def named_items(
    items: IdMap, texts: Sequence[str], option: str, on_unknown: str = "error"
) -> list[int]:
    """The item rows that an option names by id or title, comma separated, or line by line in @FILE; at least one."""
    from loca.data.id_map import find_item, find_items

    found: list[int] = []
    for text in texts:
        if text.startswith("@") and text[1:] and text not in items and option != "--history":
            for number, line in _lines(text[1:], option).items():
                with naming(f"{text[1:]} line {number}"):
                    found.append(find_item(items, line))
            continue
        with naming(option):
            found += find_items(items, [text], skip_unknown=on_unknown != "error")
    if not found and on_unknown == "error":
        raise DataError(
            f"{option}: expected at least one item id or title, found {','.join(texts)!r}"
        )
    return list(dict.fromkeys(reversed(found)))[::-1]


def _lines(file: str, option: str) -> dict[int, str]:
    """The lines of a file that hold something, by their numbers."""
    try:
        text = (
            sys.stdin.read()
            if file == _STANDARD_INPUT
            else Path(file).read_text(encoding="utf-8-sig")
        )
    except FileNotFoundError:
        raise DataError(f"{option}: {file}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        why = "not a text in UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise DataError(f"{option}: {file}: cannot be read ({why})") from None
    lines = {
        number: line.strip().strip('"')
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip()
    }
    if not lines:
        raise DataError(f"{option}: {file}: expected one per line, found nothing")
    return lines


def _read_histories(file: str, known: Interactions, on_unknown: str) -> Interactions:
    """Return a table of histories, read as the model's own rows; unknown items are refused unless left out."""
    from loca.data.later import read_later

    with _reading_table("--histories"):
        histories = read_later(file, known)
        if on_unknown == "error":
            known.items.rows(histories.items.values.tolist())
    return histories


def _read_candidates(file: str, items: IdMap) -> dict[Id, list[Id]]:
    """Return the items that each user of a table may get; unknown items are refused."""
    from loca.data.readers import ReadRequest, read_table

    with _reading_table("--candidates"):
        table, _ = read_table(file, ReadRequest())
        items.rows(table.items.values.tolist())
    return {
        user: table.items.ids(table.items_of(row))
        for row, user in enumerate(table.users.values.tolist())
    }


@contextmanager
def _reading_table(option: str) -> Iterator[None]:
    """Name the option in errors; there are none for the columns of its file."""
    with naming(option):
        try:
            yield
        except DataError as error:
            text = re.sub("; say (user|item)=…", r"; call one of them \1", str(error))
            text = re.sub("; say header=.*", "; give it a first line of column names", text)
            raise DataError(text) from None
