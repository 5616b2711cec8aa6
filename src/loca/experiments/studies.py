"""A study: the trials of one model on one data set, kept in memory or in an SQLite file that optuna's tools read."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from loca.errors import ConfigError
from loca.files.model_folder import lock_folder
from loca.files.work_subject import first_difference

if TYPE_CHECKING:
    from optuna.storages import RDBStorage
    from optuna.study import Study
    from optuna.trial import FrozenTrial

SECONDS, REASON, STOPPED, TEMPLATE, ENDED = "seconds", "reason", "stopped", "template", "ended"
_SUBJECT = "subject"
_HEADER = b"SQLite format 3\x00"
_SECONDS_FOR_A_LOCK = 120
_BESIDE = ("", "-journal", "-wal", "-shm")


@dataclass(frozen=True)
class Account:
    """How many trials ended how, and the seconds that all of them took; those of a killed run are not told."""

    finished: int
    pruned: int
    failed: int
    stopped: int
    running: int
    seconds: float

    @property
    def counted(self) -> int:
        """The trials that a budget counts."""
        return self.finished + self.pruned


def import_optuna() -> ModuleType:
    """optuna, which is an extra."""
    try:
        import optuna
    except ImportError:
        raise ConfigError('tuning needs optuna; install it with  pip install "loca[tune]"') from None
    return optuna


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """While this lasts, optuna says nothing but what went wrong: the trials are told here."""
    optuna = import_optuna()
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


@contextmanager
def open_study(path: Path | None, name: str, subject: Mapping[str, Any]) -> Iterator[Study]:
    """The study called `name` in a file, made where it is missing; one with another subject is refused.

    Trials that a killed process left running are marked as failed. The file is locked against a second run.
    """
    optuna = import_optuna()
    if path is None:
        yield optuna.create_study(direction="maximize", study_name=name)
        return
    with _blaming(path), open_storage(path) as storage, _locked(path):
        study = optuna.create_study(direction="maximize", study_name=name, storage=storage, load_if_exists=True)
        kept = study.user_attrs.get(_SUBJECT)
        if kept is None:
            study.set_user_attr(_SUBJECT, dict(subject))
        elif (difference := first_difference(kept, subject)) is not None:
            raise ConfigError(
                f"{path}: its study of {name} is another one: {difference}; go on with what it was begun with, "
                "start over with --fresh, or choose another file"
            )
        give_up_running(study)
        yield study


@contextmanager
def open_storage(path: Path) -> Iterator[RDBStorage]:
    """The SQLite file as optuna's storage, closed at the end."""
    optuna = import_optuna()
    refuse_foreign(path)
    waiting = {"connect_args": {"timeout": _SECONDS_FOR_A_LOCK}}
    try:
        storage = optuna.storages.RDBStorage(f"sqlite:///{quote(str(path.absolute()))}", engine_kwargs=waiting)
    except RuntimeError as error:
        raise ConfigError(f"{path}: a study of another optuna ({' '.join(str(error).split())[:200]})") from None
    _write_ahead(storage)
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _write_ahead(storage: RDBStorage) -> None:
    """Lets the file take writes without waiting for the disk: a kill loses nothing, a crash the last of them."""
    from sqlalchemy import event

    def set_up(connection: Any, record: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    event.listen(storage.engine, "connect", set_up)
    storage.engine.dispose()  # the connections made so far are without


def give_up_running(study: Study) -> None:
    """Marks the trials that nobody runs any more as failed; they count for nothing, and are tried again."""
    optuna = import_optuna()
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)


def is_stopped(trial: FrozenTrial) -> bool:
    """Whether a trial ended with its run, by Ctrl-C or a kill, and says nothing about its settings."""
    attributes = trial.user_attrs
    return trial.state.name == "FAIL" and (bool(attributes.get(STOPPED)) or SECONDS not in attributes)


def account_of(trials: list[FrozenTrial]) -> Account:
    """The trials of a study, counted."""
    states = [trial.state.name for trial in trials]
    stopped = sum(map(is_stopped, trials))
    return Account(
        finished=states.count("COMPLETE"),
        pruned=states.count("PRUNED"),
        failed=states.count("FAIL") - stopped,
        stopped=stopped,
        running=states.count("RUNNING"),
        seconds=sum(float(trial.user_attrs.get(SECONDS, 0.0)) for trial in trials),
    )


def names_in(path: Path) -> list[str]:
    """The names of the studies in a file; none where there is no file."""
    refuse_foreign(path)
    if not path.exists() or path.stat().st_size == 0:
        return []
    with _blaming(path), closing(sqlite3.connect(_read_only(path), uri=True)) as connection:
        if "studies" not in _tables_of(connection):
            return []
        return [name for (name,) in connection.execute("SELECT study_name FROM studies ORDER BY study_id")]


def drop_study(path: Path, name: str) -> None:
    """Removes a study from a file; the others stay, and without any the file goes."""
    optuna = import_optuna()
    with quiet_optuna(), _blaming(path), open_storage(path) as storage, _locked(path):
        optuna.delete_study(study_name=name, storage=storage)
        left = storage.get_all_studies()
    if not left:
        remove_studies(path)


def remove_studies(path: Path) -> None:
    """Removes a file of studies, and what SQLite and the trials of a killed run have left beside it."""
    for ending in _BESIDE:
        with suppress(OSError):
            path.with_name(path.name + ending).unlink(missing_ok=True)
    shutil.rmtree(shared_fits_of(path), ignore_errors=True)


def shared_fits_of(path: Path) -> Path:
    """The folder beside a file of studies for what its trials share: there is room where the study is."""
    return path.absolute().with_name(f"{path.name}.shared-fits")


def _tables_of(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")}


def refuse_foreign(path: Path) -> None:
    """Refuses a place that is no SQLite file of studies, or that cannot be written."""
    if path.is_dir():
        raise ConfigError(f"{path}: expected a file for the study, found a folder; choose another name")
    place = path if path.exists() else path.absolute().parent
    if not place.exists():
        raise ConfigError(f"{path}: there is no folder {place}; make it first, or choose another name")
    if not os.access(place, os.W_OK) or not os.access(path.absolute().parent, os.W_OK):
        raise ConfigError(f"{path}: may not be written; choose another name for the study")
    if not path.exists() or path.stat().st_size == 0:
        return
    with suppress(sqlite3.Error, OSError):
        with open(path, "rb") as file:
            is_sqlite = file.read(len(_HEADER)) == _HEADER
        if is_sqlite:
            with closing(sqlite3.connect(_read_only(path), uri=True)) as connection:
                tables = _tables_of(connection)
            if not tables or {"studies", "trials"} <= tables:
                return
    raise ConfigError(f"{path}: not an SQLite file of studies; choose another name for the study")


def _read_only(path: Path) -> str:
    return f"file:{quote(str(path.absolute()))}?mode=ro"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds the file against a second run that would take the trials of the first for left behind."""
    if sys.platform == "win32":
        yield
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        lock_folder(handle, path, "another run is tuning there")
        yield
    finally:
        os.close(handle)


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Turns what goes wrong with the file into one line."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (StorageInternalError, SQLAlchemyError, sqlite3.Error) as error:
        cause = error.__cause__ or error
        reason = " ".join(str(getattr(cause, "orig", cause)).split())[:200]
        raise ConfigError(f"{path}: the study cannot be read or written ({reason})") from error
