"""Lists for many users as a file of Parquet, CSV or JSON lines, written block by block."""

from __future__ import annotations

import gzip
import queue
import threading
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from loca.data.histories import HistoryWeights, OnUnknown
from loca.errors import DataError
from loca.evaluation.evaluate import Scorer
from loca.evaluation.recommend import Candidates, Ids, Request, ids_of_one_type
from loca.persistence.atomic_write import whole_file

if TYPE_CHECKING:
    import polars

# The format that each ending of a file name stands for.
_FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".jsonl": "jsonl",
    ".jsonl.gz": "jsonl",
}


@dataclass(frozen=True)
class RecommendationFile:
    """Where lists were written, and how many.

    `users` counts the users who were answered, `users_without_items` those of them who got nothing,
    and `rows` the rows of the file.
    """

    path: Path
    users: int
    users_without_items: int
    rows: int


def recommend_to_file(
    model: Scorer,
    who: Any,
    path: str | Path,
    n: int = 10,
    *,
    hide_seen: bool = True,
    only: Ids = None,
    never: Ids = None,
    candidates: Candidates = None,
    on_unknown: OnUnknown = "error",
    recency: HistoryWeights = "model",
) -> RecommendationFile:
    """Find the n best items for each user and write them into a file, block by block.

    The columns are user, item, score, rank (from 1), and title where items have titles. The lists
    are never in memory all at once. The file appears when it is complete; after an error or Ctrl-C
    what was there before stays.

    Parameters
    ----------
    model : Recommender
        A fitted model, or anything else with a method `score`.
    who : user id, list of ids, list or dict of histories, data frame, Interactions or sparse matrix
        As for `recommend`; `model.train_data_` takes all users that the model was fitted on.
    path : str or Path
        The file; its name ends in .parquet, .csv, .csv.gz, .jsonl or .jsonl.gz, which chooses the
        format.
    n : int, default 10
        How many items to list for each user; at most as many as there are.
    hide_seen : bool, default True
        Leave out the items of a user's history.
    only : iterable of ids or None, default None
        The items to choose from; None takes all.
    never : iterable of ids or None, default None
        Items to leave out.
    candidates : dict or None, default None
        The items to choose from for each user id; a user who is not in it may get any.
    on_unknown : {"error", "skip", "popular"}, default "error"
        What becomes of unknown users and items and of empty histories, as for `recommend`.
    recency : Recency, None or "model", default "model"
        How the items of a history are weighted, as for `recommend`.

    Returns
    -------
    RecommendationFile
        The path, and how many users and rows were written.

    Examples
    --------
    >>> import tempfile
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12).interactions
    >>> model = loca.EASE().fit(data)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = loca.recommend_to_file(model, data, f"{folder}/recs.csv", n=3)
    ...     print(written.path.read_text().splitlines()[0])
    user,item,score,rank,title
    >>> written.users, written.rows
    (60, 180)
    """
    path = check_ending(path)
    request = Request(
        model,
        who,
        n,
        known=None,
        hide_seen=hide_seen,
        only=only,
        never=never,
        candidates=candidates,
        on_unknown=on_unknown,
        recency=recency,
    )
    table = _Table(request)
    with whole_file(path) as file:
        _write(table.frames(), table.schema, _ending_of(path), file)
    counts = table.counts
    return RecommendationFile(path, len(counts), counts.count(0), sum(counts))


class _Table:
    """The table of a request, made block by block; `counts` says how many items each user got."""

    def __init__(self, request: Request) -> None:
        import polars

        histories = request.histories
        # Ids and titles as polars has them, in which those of a whole block are looked up at once.
        self._users = _series(ids_of_one_type(histories.users))
        self._items = _series(histories.items.values)
        self._titles = None
        self.schema: dict[str, Any] = {
            "user": self._users.dtype,
            "item": self._items.dtype,
            "score": polars.Float32(),
            "rank": polars.Int64(),
        }
        if histories.items.labels is not None:
            self._titles = _series(histories.items.labels)
            self.schema["title"] = self._titles.dtype
        self._request = request
        self.counts: list[int] = []

    def frames(self) -> Iterator[polars.DataFrame]:
        """Yield the rows of each block of users."""
        import polars

        for block, lists in self._request.blocks():
            is_filled = lists.item_rows >= 0
            self.counts.extend(is_filled.sum(axis=1).tolist())
            users, ranks = np.nonzero(is_filled)
            item_rows = lists.item_rows[is_filled]
            columns: list[Any] = [
                self._users.gather(block[users]),
                self._items.gather(item_rows),
                lists.scores[is_filled],
                ranks + 1,
            ]
            if self._titles is not None:
                columns.append(self._titles.gather(item_rows))
            data = dict(zip(self.schema, columns, strict=True))
            yield polars.DataFrame(data, schema=self.schema)


def check_ending(path: str | Path) -> Path:
    """Return the path of a file of lists; refuse an ending that stands for no format."""
    path = Path(path)
    if not _ending_of(path) or path.name.lower() in _FORMATS:
        *endings, last = _FORMATS
        raise DataError(f"{path}: expected a file name that ends in {', '.join(endings)} or {last}")
    if path.is_dir():
        raise DataError(f"{path}: expected a file, found a folder")
    return path


def _ending_of(path: Path) -> str:
    """Return the ending that chooses the format of a file; empty where there is none."""
    name = path.name.lower()
    return next((ending for ending in _FORMATS if name.endswith(ending)), "")


def _series(values: npt.NDArray[Any]) -> polars.Series:
    """Return ids or titles as polars has them, which takes text from lists only."""
    import polars

    return polars.Series(values.tolist() if values.dtype == object else values)


def _write(
    frames: Iterator[polars.DataFrame], schema: dict[str, Any], ending: str, file: BinaryIO
) -> None:
    """Write frames as they come.

    Polars writes in a thread of its own, so that Ctrl-C and errors end the work here.
    """
    waiting: queue.Queue[polars.DataFrame | None] = queue.Queue(maxsize=2)
    problems: list[BaseException] = []

    def handed_over() -> Iterator[polars.DataFrame]:
        while (frame := waiting.get()) is not None:
            yield frame

    def write() -> None:
        try:
            _sink(handed_over(), schema, ending, file)
        except BaseException as problem:  # polars raises KeyboardInterrupt where it runs
            problems.append(problem)

    def hand_over(frame: polars.DataFrame | None) -> None:
        while thread.is_alive():
            with suppress(queue.Full):
                waiting.put(frame, timeout=0.1)
                break

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        for frame in frames:
            hand_over(frame)
            if problems:
                break
    finally:
        hand_over(None)
        thread.join()
    if problems:
        raise problems[0]


def _sink(
    frames: Iterator[polars.DataFrame], schema: dict[str, Any], ending: str, file: BinaryIO
) -> None:
    """Write all frames in the format of an ending.

    Polars says in one error class of its own what the disk refused: it becomes an OSError.
    """
    import polars
    from polars.io.plugins import register_io_source

    table = register_io_source(lambda *_: frames, schema=schema)
    compressed: Any = nullcontext(file)
    if ending.endswith(".gz"):
        compressed = gzip.GzipFile(fileobj=file, mode="wb")
    try:
        with compressed as target:
            if _FORMATS[ending] == "parquet":
                table.sink_parquet(target)
            elif _FORMATS[ending] == "csv":
                table.sink_csv(target)
            else:
                table.sink_ndjson(target)
    except polars.exceptions.PolarsError as error:
        raise OSError(str(error)) from error
