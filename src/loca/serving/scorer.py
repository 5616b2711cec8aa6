"""Score in one thread, which answers those of the waiting requests together that are alike."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from loca.data.histories import HistoryWeights, OnUnknown
from loca.data.id_map import Id
from loca.errors import LocaError
from loca.evaluation.recommend import Recommendations, recommend
from loca.remarks import collect_remarks
from loca.serving.notes import no_warning


class QueueFullError(Exception):
    """As many requests are waiting as may."""


@dataclass(frozen=True)
class ListOptions:
    """What lists must have in common to be found together; `model` is compared by identity."""

    model: Any
    is_history: bool
    hide_seen: bool = True
    only: tuple[Id, ...] | None = None
    never: tuple[Id, ...] | None = None
    candidates: tuple[Id, ...] | None = None
    on_unknown: OnUnknown = "error"
    recency: HistoryWeights = "model"

    @property
    def key(self) -> tuple[Any, ...]:
        """What is equal where lists may be found together."""
        ids = (self.only, self.never, self.candidates)
        return id(self.model), self.is_history, self.hide_seen, *ids, self.on_unknown, self.recency

    @property
    def is_plain(self) -> bool:
        """Whether nothing but what a user has is left out of a list."""
        return (
            self.hide_seen and self.only is None and self.never is None and self.candidates is None
        )

    def find(self, who: Sequence[Any], n: int) -> Recommendations:
        """Return the lists of users by id, or of histories."""
        # Histories are named by numbers, and candidates are of a user: both are passed by name.
        named: Any = dict(enumerate(who)) if self.is_history else list(who)
        candidates = None if self.candidates is None else dict.fromkeys(named, self.candidates)
        return recommend(
            self.model,
            named,
            n,
            hide_seen=self.hide_seen,
            only=self.only,
            never=self.never,
            candidates=candidates,
            on_unknown=self.on_unknown,
            recency=self.recency,
        )


@dataclass(eq=False)
class _Job:
    """A request for a list (`options`, `who`, `n`), or any other call."""

    answer: asyncio.Future[Any]
    call: Callable[[], Any] | None = None
    options: ListOptions | None = None
    who: Any = None
    n: int = 0
    key: tuple[Any, ...] = field(default=())


@dataclass
class Scorer:
    """A thread with a bounded queue.

    It never waits for a second request: batches grow with the load alone. Lists do not wait for
    more than one other call at a time: after each batch of lists comes one of the others.

    Parameters
    ----------
    batch
        The most lists that are found together.
    queue
        The most requests that wait; more are refused with `QueueFullError`.
    on_batch
        Is called in the event loop with the size of each batch.
    """

    batch: int = 64
    queue: int = 1024
    on_batch: Callable[[int], None] = lambda size: None

    def __post_init__(self) -> None:
        self._lists: deque[_Job] = deque()
        self._calls: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to answer, for the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="loca-scorer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Answer what is waiting, then end."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def __len__(self) -> int:
        return len(self._lists) + len(self._calls)

    async def find_list(
        self, options: ListOptions, who: Any, n: int
    ) -> tuple[Recommendations, int]:
        """Return lists of at least n items, and the number of the requested one among them."""
        job = _Job(self._loop.create_future(), options=options, who=who, n=n, key=options.key)
        return await self._put(job)  # type: ignore[no-any-return]

    async def call(self, function: Callable[[], Any]) -> Any:
        """Return what any other function of a model gives, in the thread of the scorer.

        What it remarks is told to the collectors of the request.
        """
        in_request = partial(copy_context().run, function)
        return await self._put(_Job(self._loop.create_future(), call=in_request))

    def _put(self, job: _Job) -> asyncio.Future[Any]:
        with self._changed:
            if len(self) >= self.queue or self._is_stopped:
                raise QueueFullError
            (self._lists if job.call is None else self._calls).append(job)
            self._changed.notify()
        return job.answer

    def _run(self) -> None:
        while True:
            with self._changed:
                while not len(self):
                    if self._is_stopped:
                        return
                    self._changed.wait()
                jobs = [self._lists.popleft() for _ in range(min(len(self._lists), self.batch))]
                jobs += [self._calls.popleft()] if self._calls else []
            groups: dict[Any, list[_Job]] = {}
            for job in jobs:
                groups.setdefault(job.key or id(job), []).append(job)
            for group in groups.values():
                # Remarks on lists found together belong to no request: each has told its own.
                with collect_remarks(no_warning):
                    answers = answer_together(group)
                self._loop.call_soon_threadsafe(self._deliver, group, answers)

    def _deliver(self, jobs: Sequence[_Job], answers: Sequence[Any]) -> None:
        self.on_batch(len(jobs))
        for job, answer in zip(jobs, answers, strict=True):
            if job.answer.done():  # its client is gone
                continue
            if isinstance(answer, BaseException):
                job.answer.set_exception(answer)
            else:
                job.answer.set_result(answer)


def answer_together(jobs: Sequence[_Job]) -> list[Any]:
    """Return the answer or the exception of each job.

    Jobs that cannot be answered together are answered alone.
    """
    try:
        options = jobs[0].options
        if options is None:
            assert jobs[0].call is not None
            return [jobs[0].call()]
        lists = options.find([job.who for job in jobs], max(job.n for job in jobs))
        return [(lists, number) for number in range(len(jobs))]
    except Exception as error:
        if len(jobs) == 1 or not isinstance(error, LocaError):
            return [error] * len(jobs)
        return [answer for job in jobs for answer in answer_together([job])]
