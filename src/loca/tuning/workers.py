"""A worker process: it has its share of the cores, ends with whoever started it, and its death is reported."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, ClassVar

from loca.deferred import torch
from loca.errors import ConfigError, LocaError
from loca.progress import set_progress

_READY = "ready"
_SECONDS_TO_END = 5.0


class WorkerDied(LocaError):
    """The process ended without having said so."""


@dataclass(eq=False)
class Worker:
    """A process, the line to it, and whether it has said that it is ready.

    `restarts` is how often a run is begun anew whose worker died.
    """

    process: BaseProcess
    line: Connection
    is_ready: bool = False
    restarts: ClassVar[int] = 0

    @classmethod
    def start(
        cls, work: Callable[..., None], given: tuple[Any, ...], *, threads: int, what: str
    ) -> Worker:
        """A process that calls `work` with its end of the line and what it is given."""
        context = multiprocessing.get_context("spawn")
        line, far_end = context.Pipe()
        process = context.Process(target=_live, args=(work, far_end, threads, given), daemon=True)
        try:
            process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            line.close()
            raise ConfigError(
                f"{what}: cannot be handed to another process ({error}); work with one process"
            ) from None
        finally:
            far_end.close()  # so that the line ends with the worker
        return cls(process, line)

    def hear(self) -> Any:
        """The next message, None where that is only that it is ready; one that has died is an error."""
        try:
            message = self.line.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            memory = ", perhaps because the memory ran out" if code == -9 else ""
            how = f"was ended by signal {-code}{memory}" if code < 0 else f"ended with code {code}"
            if code >= 0 and not self.is_ready:
                raise WorkerDied(
                    f"a worker process could not start (exit code {code}); work with one process, or, in a program of "
                    'your own, begin under  if __name__ == "__main__":'
                ) from None
            raise WorkerDied(f"its process {how}") from None
        self.is_ready |= message == _READY
        return None if message == _READY else message

    def end(self, *, is_done: bool = False) -> None:
        """Ends the process, whatever it does; one that is done may put its things away first."""
        self.line.close()
        if is_done:
            self.process.join(_SECONDS_TO_END)
        self.process.terminate()
        self.process.join(_SECONDS_TO_END)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def threads_for(processes: int) -> int:
    """The threads that each of so many processes may use: its share of the cores, and no more than this one has."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(1, min(torch.get_num_threads(), cores // processes))


def _live(
    work: Callable[..., None], line: Connection, threads: int, given: tuple[Any, ...]
) -> None:
    """The life of a worker: it uses so many threads, and ends as soon as nobody waits for its work any more."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    def end_with_parent() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            wait([parent.sentinel])
            os._exit(1)

    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # the one who started it hears Ctrl-C too, and ends it
    threading.Thread(target=end_with_parent, daemon=True).start()
    for name in (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
    ):  # for libraries that are yet to come
        os.environ[name] = str(threads)
    torch.set_num_threads(threads)
    threadpool_limits(limits=threads)
    set_progress(False)
    line.send(_READY)
    work(line, *given)
