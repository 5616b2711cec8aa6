"""`loca recommend` and `loca similar`: list items for users, any history, or like other items."""

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
from loca.text_table import TextTable

if TYPE_CHECKING:
    from loca.data.histories import HistoryWeights
    from loca.data.id_map import Id, IdMap
    from loca.data.interactions import Interactions
    from loca.evaluation.recommend import Recommendations
    from loca.models.recommender import Recommender
    from loca.typing import FloatArray

_asking = in_panel("Who asks")
_listable = in_panel("What may be listed")
_cluster = in_panel("Many machines")

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a saved model.")]
Count = Annotated[int, typer.Option("-n", "--count", help="How many items.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Write a table: .parquet, .csv, .csv.gz, .jsonl or .jsonl.gz."),
]
Names = Annotated[list[str], typer.Argument(metavar="ITEM...", help="Items by id or title.")]
_STANDARD_INPUT = "-"
_PARTS = 16
_HISTORY_SHOWN = 10
_HEADERS = ("user", "users", "user_id", "userid")


@dataclass(frozen=True)
class Asking:
    """Who is answered: known users by id, or one history; and how histories fade."""

    user: Annotated[
        list[str] | None, _asking("A user id the model knows; may be repeated.", "--user")
    ] = None
    history: Annotated[
        list[str] | None,
        _asking(
            "Item ids or titles, comma separated, the last one is the newest: anybody's history."
        ),
    ] = None
    recency: Recency = None


@dataclass(frozen=True)
class AskingMany:
    """Many users who are answered at once, and what becomes of unknown ones."""

    everyone: Annotated[
        bool, _asking("All users that the model was fitted on; needs --out.", "--all")
    ] = False
    users_file: Annotated[
        str | None, _asking("A file with one user id per line; - reads standard input.")
    ] = None
    histories: Annotated[
        str | None, _asking("A file of interactions: the histories of any users.")
    ] = None
    on_unknown: Annotated[
        Literal["error", "skip", "popular"],
        _asking(
            "Unknown users, unknown items, empty histories: refuse, leave out, or list what is "
            "popular."
        ),
    ] = "error"


@dataclass(frozen=True)
class Listable:
    """Which items may be listed."""

    only: Annotated[
        list[str] | None,
        _listable("Choose from these items alone: ids or titles, or @FILE with one per line."),
    ] = None
    never: Annotated[list[str] | None, _listable("Leave out these items; written like --only.")] = (
        None
    )
    candidates: Annotated[
        str | None, _listable("A table of user and item: what each of its users may get.")
    ] = None


@dataclass(frozen=True)
class InParts:
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
            "With --all: --out is a folder of so many Parquet files (16); those that are there "
            "stay.",
            min=1,
        ),
    ] = None

    @property
    def option(self) -> str | None:
        """The first option that was given."""
        options = [f"--{name}" for name, value in asdict(self).items() if value is not None]
        return options[0] if options else None


def recommend_items(
    folder: Folder,
    asking: Asking,
    many: AskingMany,
    listable: Listable,
    in_parts: InParts,
    output: Output,
    count: Count = 10,
    out: Out = None,
    device: Device = "auto",
) -> None:
    """List the best items for users that the model knows, or for anybody's history.

    The lists are printed, or written as a table.

    Examples:

      loca recommend films.loca --user u0042 -n 5

      loca recommend films.loca --history i017,i203,i150 --never i004

      loca recommend films.loca --history "Silent Harbour,Copper Tide" --recency 4 --json

      loca recommend films.loca --all -n 20 --out recs.parquet

      loca recommend films.loca --all --cluster auto --parts 64 --out lists

      cat users.txt | loca recommend films.loca --users-file - --on-unknown popular --out recs.csv
    """
    _check_asking(asking, many, out)
    _check_parts(in_parts, many, listable, device)
    if out is not None and in_parts.option is None:
        from loca.persistence.recommendation_file import check_ending

        with naming("--out"):
            check_ending(out)
    model, known, recency = load_known(folder, asking.recency, device)
    users = _users_or_histories(known, asking, many, recency)
    conditions: dict[str, Any] = {
        "only": _item_ids(known.items, listable.only, "--only"),
        "never": _item_ids(known.items, listable.never, "--never"),
        "recency": recency,
    }
    if listable.candidates is not None:
        conditions["candidates"] = _read_candidates(listable.candidates, known.items)
    if asking.history:
        _note_history(known.items, users["history"], output)
    if out is None:
        lists = model.recommend(users, count, on_unknown=many.on_unknown, **conditions)
        output.answer(*_as_text(folder, lists, "user"))
        return
    started = time.perf_counter()
    if in_parts.option is not None:
        from loca.cluster.tasks import recommend_to_parts

        parts = in_parts.parts or _PARTS
        address = in_parts.cluster
        written = recommend_to_parts(folder, out, count, parts=parts, address=address, **conditions)
    else:
        from loca.persistence.recommendation_file import recommend_to_file

        written = recommend_to_file(
            model, users, out, count, on_unknown=many.on_unknown, **conditions
        )
    seconds = time.perf_counter() - started
    noun = "user" if written.users == 1 else "users"
    text = f"{out}: {written.rows:,} rows for {written.users:,} {noun}"
    if written.users_without_items:
        text += f", {written.users_without_items:,} of them without a list"
    output.answer(
        f"{text}, in {seconds:.1f} s",
        {"model": str(folder), **asdict(written), "path": str(out), "seconds": seconds},
    )


def _check_asking(asking: Asking, many: AskingMany, out: Path | None) -> None:
    """Refuse a request that does not say once who asks, or writes all lists nowhere."""
    ways = (asking.user, asking.history, many.everyone, many.users_file, many.histories)
    if sum(map(bool, ways)) != 1:
        expected = "--user ID, --history a,b,c, --all, --users-file FILE or --histories FILE"
        raise ConfigError(f"who asks? expected one of {expected}")
    if many.everyone and out is None:
        raise ConfigError("--all: needs --out, a file such as recs.parquet, recs.csv or recs.jsonl")


def _check_parts(in_parts: InParts, many: AskingMany, listable: Listable, device: str) -> None:
    """Refuse what lists in parts do not take, and a cluster without Ray."""
    option = in_parts.option
    if option is None:
        return
    if not many.everyone:
        raise ConfigError(f"{option}: is for --all, the lists of all users")
    if listable.candidates is not None:
        raise ConfigError(f"{option}: takes no --candidates; say --only or --never")
    if device != "auto":
        raise ConfigError(f"{option}: takes no --device; each part is computed where it can be")
    if in_parts.cluster is not None:
        quiet_ray()
        # It says what to install, before a model is loaded.
        import loca.cluster.ray_executor  # noqa: F401


def _users_or_histories(
    known: Interactions, asking: Asking, many: AskingMany, recency: HistoryWeights
) -> Any:
    """Return who is answered, as `recommend` takes it."""
    if asking.user or many.users_file:
        return user_ids(known.users, asking.user, many.users_file, many.on_unknown)
    if asking.history:
        return one_history(known, asking.history, recency, many.on_unknown)
    if many.histories:
        return _read_histories(many.histories, known, many.on_unknown)
    return known


def _item_ids(items: IdMap, texts: list[str] | None, option: str) -> list[Id] | None:
    return None if texts is None else items.ids(named_items(items, texts, option))


def _note_history(items: IdMap, history: list[Id], output: Output) -> None:
    """Print what was understood of a history beside the answer, as titles are typed loosely."""
    if items.labels is None or not history:
        return
    titles = [items.label(row) for row in items.rows(history[-_HISTORY_SHOWN:])]
    earlier = "… " if len(history) > _HISTORY_SHOWN else ""
    output.notes([f"history: {earlier}{', '.join(titles)}"])


def similar_items(folder: Folder, items: Names, output: Output, count: Count = 10) -> None:
    """List the items that are most similar to each given one, with their similarities.

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


def _as_text(
    folder: Path, lists: Recommendations, what: Literal["user", "item"]
) -> tuple[str, dict[str, Any]]:
    """Return lists of items as text and as a document.

    This does without a table library, which takes a moment to load.
    """
    names = lists.item_ids
    titles = lists.titles
    texts = []
    answers = []
    all_lists = zip(lists.users.tolist(), lists.items, lists.scores, strict=True)
    for number, (user_or_item, items, scores) in enumerate(all_lists):
        about: dict[str, Any] = {what: user_or_item}
        if what == "item" and titles is not None:
            about["title"] = names.label(names.row(user_or_item))
        rows = _listed(items, scores, None if titles is None else titles[number])
        texts.append(_text_of(about, rows, what))
        answers.append({**about, "items": rows})
    return "\n\n".join(texts), {"model": str(folder), "answers": answers}


def _listed(items: Any, scores: FloatArray, titles: Any) -> list[dict[str, Any]]:
    """Return the items of one list, as a document has them."""
    rows: list[dict[str, Any]] = []
    for rank, (item, score) in enumerate(zip(items.tolist(), scores.tolist(), strict=True)):
        if item is None:
            continue
        row = {"item": item, "score": score, "rank": rank + 1}
        if titles is not None:
            row["title"] = titles[rank]
        rows.append(row)
    return rows


def _text_of(
    about: dict[str, Any], rows: list[dict[str, Any]], what: Literal["user", "item"]
) -> str:
    """Return one list as text."""
    if what == "item":
        head = f"Like {about.get('title', about['item'])}"
        column = "similar"
        nothing = "no item is similar"
    else:
        head = f"For {about['user']}"
        column = "recommended"
        nothing = "nothing is left to recommend"
    if not rows:
        return f"{head}: {nothing}"
    lines = tuple(
        (
            f"{row['rank']:>4}. {row.get('title', row['item'])}",
            str(row["item"]),
            f"{row['score']:.4f}",
        )
        for row in rows
    )
    return f"{head}\n{TextTable((f'      {column}', 'item', 'score'), lines).plain()}"


# -- Who asks -------------------------------------------------------------------------------------


def load_known(
    folder: Path, recency: str | None = None, device: str = "auto"
) -> tuple[Recommender, Interactions, HistoryWeights]:
    """Return the model on a device, what it was fitted on, and how histories are weighted."""
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
    users: IdMap, texts: Sequence[str] | None, file: str | None = None, on_unknown: str = "error"
) -> list[Any]:
    """Return the ids that --user or --users-file name, each once.

    They are numbers where the model's ids are numbers.
    """
    sources = dict.fromkeys(texts or (), "--user")
    if file is not None:
        name = "standard input" if file == _STANDARD_INPUT else file
        for number, line in _user_lines(users, file).items():
            sources.setdefault(line, f"{name} line {number}")
    if on_unknown == "error":
        _check_users(users, sources)
    return [_user_id(users, text) for text in sources]


def _user_lines(users: IdMap, file: str) -> dict[int, str]:
    """Return the lines of a file of users, without a header."""
    lines = _lines(file, "--users-file")
    first = next(iter(lines))
    if lines[first] not in users and lines[first].casefold() in _HEADERS:
        del lines[first]
    return lines


def _check_users(users: IdMap, sources: dict[str, str]) -> None:
    """Refuse users whom the model does not know, and say where they were named."""
    for text, source in sources.items():
        with naming(source):
            try:
                users.row(text)
            except LocaError as error:
                if len(sources) > 1:
                    advice = "--on-unknown skip or popular goes on without it"
                    error.args = (f"{error}; {advice}",)
                raise


def _user_id(users: IdMap, text: str) -> Any:
    """Return a user's id as the model has it; an unknown id as it would have it."""
    if text in users and users.values.dtype.kind != "O":
        return users.values[users.row(text)].item()
    is_number = users.values.dtype.kind == "i" and text.isdecimal()
    return int(text) if is_number else text


def one_history(
    known: Interactions, texts: Sequence[str], recency: HistoryWeights, on_unknown: str = "error"
) -> dict[str, list[Id]]:
    """Return the item ids of --history, oldest first, under the name `history`."""
    weights = known.recency if recency == "model" else recency
    if weights is not None and weights.unit != "positions":
        raise ConfigError(
            "--history: has no times to be weighed by; say --recency 4 (positions) or none"
        )
    return {"history": known.items.ids(named_items(known.items, texts, "--history", on_unknown))}


def named_items(
    items: IdMap, texts: Sequence[str], option: str, on_unknown: str = "error"
) -> list[int]:
    """Return the item rows that an option names, at least one, each where it is named last.

    Items have ids or titles, comma separated, or line by line in @FILE.
    """
    from loca.data.id_map import find_item, find_items

    rows: list[int] = []
    for text in texts:
        is_file = text.startswith("@") and text[1:] and text not in items
        if is_file and option != "--history":
            for number, line in _lines(text[1:], option).items():
                with naming(f"{text[1:]} line {number}"):
                    rows.append(find_item(items, line))
        else:
            with naming(option):
                rows += find_items(items, [text], skip_unknown=on_unknown != "error")
    if not rows and on_unknown == "error":
        raise DataError(
            f"{option}: expected at least one item id or title, found {','.join(texts)!r}"
        )
    return list(dict.fromkeys(reversed(rows)))[::-1]


def _lines(file: str, option: str) -> dict[int, str]:
    """Return the lines of a file that hold something, by their numbers."""
    text = _text(file, option)
    lines = {
        number: line.strip().strip('"')
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip()
    }
    if not lines:
        raise DataError(f"{option}: {file}: expected one per line, found nothing")
    return lines


def _text(file: str, option: str) -> str:
    try:
        if file == _STANDARD_INPUT:
            return sys.stdin.read()
        return Path(file).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"{option}: {file}: there is no such file") from None
    except UnicodeDecodeError:
        raise DataError(f"{option}: {file}: cannot be read (not a text in UTF-8)") from None
    except OSError as error:
        raise DataError(f"{option}: {file}: cannot be read ({error.strerror})") from None


def _read_histories(file: str, known: Interactions, on_unknown: str) -> Interactions:
    """Return a table of histories, read as the model's own rows.

    Unknown items are refused unless they are left out.
    """
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
