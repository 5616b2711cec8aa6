"""Keep the work of shards where they all find it: a folder that all machines see, or an address."""

from __future__ import annotations

import os
import platform
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from loca.errors import ConfigError, LocaError
from loca.persistence.atomic_write import MANIFEST
from loca.persistence.checkpoint import Checkpoint, file_name_of

_JOB = "job-"
_COPY = "loca-shard-"


class StorageError(LocaError):
    """The storage could not be read or written."""


def is_address(storage: str | Path) -> bool:
    """Return whether this is an address for fsspec, such as s3://bucket/work, and no path."""
    return "://" in str(storage)


class Storage:
    """One job's folder in the storage, as one process sees it.

    Where the storage is a path, `folder` is that folder itself. Where it is an address, `folder` is
    a temporary copy: files are fetched into it and published from it by name, each whole or not at
    all.

    Parameters
    ----------
    place : str or Path
        The storage: a path, or any address that fsspec understands.
    job : str
        The name of the job.
    """

    def __init__(self, place: str | Path, job: str) -> None:
        # In messages without user and password.
        self.address = re.sub(r"//[^/@]*@", "//…@", str(place))
        self._remote: Any = None
        self._is_address = is_address(place)
        if not self._is_address:
            self.folder = Path(place).absolute() / f"{_JOB}{job}"
            return
        with self._blaming():
            from fsspec.core import url_to_fs  # type: ignore[import-untyped]

            self._remote, root = url_to_fs(str(place))
        self._root = f"{root.rstrip('/')}/{_JOB}{job}"
        remove_copies()
        prefix = f"{_COPY}{platform.node()}-{os.getpid()}-"
        self._copy = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
        self.folder = Path(self._copy.name)

    @contextmanager
    def _blaming(self) -> Iterator[None]:
        """Turn what a file system says into one line."""
        try:
            yield
        except ImportError as error:
            raise ConfigError(f"storage {self.address}: {' '.join(str(error).split())}") from None
        except Exception as error:
            # File systems behind an address have errors of many kinds.
            if not (self._is_address or isinstance(error, OSError | ValueError)):
                raise
            text = getattr(error, "strerror", None) or str(error)
            reason = " ".join(text.split())[:200] or type(error).__name__
            raise StorageError(
                f"storage {self.address}: cannot be read or written ({reason})"
            ) from error

    def make(self) -> None:
        """Make the folder."""
        with self._blaming():
            self.folder.mkdir(parents=True, exist_ok=True)
            if self._remote is not None:
                self._remote.makedirs(self._root, exist_ok=True)

    def probe(self) -> None:
        """Refuse a storage that cannot be written."""
        was_there = self._remote is not None or self.folder.parent.exists()
        self.make()
        self.remove()
        self.close()
        if not was_there:
            self.folder.parent.rmdir()

    def fetch(self, name: str) -> None:
        """Bring a file here, if the storage has it and this copy has not."""
        path = self.folder / name
        if self._remote is None or path.exists():
            return
        fetched = self.folder / f"fetched-{secrets.token_hex(4)}"
        with self._blaming():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._remote.invalidate_cache()  # other machines write there
            try:
                with suppress(FileNotFoundError):
                    self._remote.get_file(f"{self._root}/{name}", str(fetched))
                    os.replace(fetched, path)
            finally:
                fetched.unlink(missing_ok=True)

    def publish(self, name: str) -> None:
        """Put a file of this copy into the storage, in place of what has that name."""
        if self._remote is None:
            return
        path = f"{self._root}/{name}"
        # A file that is half there is never taken for a whole one.
        new_path = f"{path}.{secrets.token_hex(4)}"
        with self._blaming():
            self._remote.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._remote.put_file(str(self.folder / name), new_path)
            self._remote.mv(new_path, path)

    def has(self, name: str) -> bool:
        """Return whether the storage has a file."""
        if self._remote is None:
            return (self.folder / name).exists()
        with self._blaming():
            self._remote.invalidate_cache()
            return bool(self._remote.exists(f"{self._root}/{name}"))

    def fetch_model(self, name: str) -> Path:
        """Return the folder of a saved model, brought here if the storage has it."""
        folder = self.folder / name
        if self._remote is None:
            return folder
        self.fetch(f"{name}/{MANIFEST}")  # published last: where it is, all is
        if (folder / MANIFEST).exists():
            with self._blaming():
                paths = self._remote.ls(f"{self._root}/{name}", detail=False)
            for path in paths:
                self.fetch(f"{name}/{str(path).rpartition('/')[2]}")
        return folder

    def publish_model(self, name: str) -> None:
        """Put a saved model into the storage, its manifest last."""
        if self._remote is None:
            return
        files = sorted(os.listdir(self.folder / name))
        for file in [*(file for file in files if file != MANIFEST), MANIFEST]:
            self.publish(f"{name}/{file}")

    def checkpoint(self, seconds_between: float = 0.0) -> Checkpoint:
        """Return where states are saved."""
        return _SharedCheckpoint(self, seconds_between)

    def remove_half_written(self, part: str) -> None:
        """Remove what killed processes have left of the states inside a part."""
        prefix = file_name_of(f"{part}/").removesuffix(".safetensors")
        for path in self.folder.glob("*.new"):
            if path.name.startswith(prefix):
                path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Drop the job; what is mapped into memory stays there."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._remote is not None:
            with suppress(Exception):  # it is gone, or out of reach
                self._remote.rm(self._root, recursive=True)

    def close(self) -> None:
        """Drop the copy that this process has, if it is one."""
        if self._remote is not None:
            self._copy.cleanup()


def remove_copies() -> None:
    """Remove the copies that killed processes of this machine have left."""
    prefix = f"{_COPY}{platform.node()}-"
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        process_id = folder.name.removeprefix(prefix).partition("-")[0]
        try:
            os.kill(int(process_id), 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)
        except (OSError, ValueError):
            continue


def remove_jobs(place: Path) -> None:
    """Remove what ended runs have left in a folder of one fit; a link is not followed."""
    if place.is_dir() and not place.is_symlink():
        for folder in place.glob(f"{_JOB}*"):
            if not folder.is_symlink():
                shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            place.rmdir()


class _SharedCheckpoint(Checkpoint):
    """A checkpoint in the storage.

    A process that is cut off may still write there beside the process that took its place.
    """

    def __init__(self, storage: Storage, seconds_between: float) -> None:
        super().__init__(storage.folder, seconds_between)
        self._storage = storage
        self._new = f".{secrets.token_hex(4)}.new"

    def load(self, name: str) -> dict[str, Any] | None:
        self._storage.fetch(file_name_of(self._prefix + name))
        return super().load(name)

    def _saved(self, path: Path) -> None:
        self._storage.publish(path.name)
