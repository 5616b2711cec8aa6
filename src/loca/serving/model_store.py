"""Keep the models of a service by name; a new version of a folder is checked, then takes over."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

from loca.data.id_map import Id, IdMap, find_titled_item
from loca.data.interactions import Interactions
from loca.errors import ConfigError, DataError, LocaError, did_you_mean
from loca.models.recommender import Recommender
from loca.persistence.atomic_write import MANIFEST
from loca.registry import load
from loca.remarks import collect_remarks
from loca.serving.explorer import UserMap, map_users
from loca.serving.notes import no_warning

log = logging.getLogger("loca.service")


@dataclass(frozen=True, eq=False)
class ModelVersion:
    """One saved state of a model, loaded.

    Its fingerprint is that of the manifest, which has checksums of all files.
    """

    name: str
    folder: Path
    fingerprint: str
    model: Recommender
    loaded_at: str

    @property
    def known(self) -> Interactions:
        """What it was fitted on."""
        assert self.model.train_data_ is not None
        return self.model.train_data_

    @cached_property
    def item_ids(self) -> list[Id]:
        """The ids of the items by row."""
        ids: list[Id] = self.known.items.values.tolist()
        return ids

    @cached_property
    def titles(self) -> list[str] | None:
        """The titles of the items by row."""
        labels = self.known.items.labels
        return None if labels is None else [str(label) for label in labels.tolist()]

    @cached_property
    def find_title(self) -> Callable[[str], int | None]:
        """What finds the row of the item that a title names.

        It returns None where no item has the title, and refuses a title that several have. What it
        found before it knows, as long as this version.
        """
        return lru_cache(maxsize=8192)(partial(_titled_row, self.known.items))

    @cached_property
    def with_global_share(self) -> Callable[[float], Any] | None:
        """What returns the model with another share of its global one, the same for the same share.

        None for a model without communities.
        """
        change = getattr(self.model, "with_global_share", None)
        return None if change is None else lru_cache(maxsize=64)(change)

    @cached_property
    def user_map(self) -> UserMap:
        """The users as points."""
        return map_users(self.model)

    def about(self) -> dict[str, str]:
        """Return which version answers, for every reply."""
        return {"model": self.name, "fingerprint": self.fingerprint}


def load_version(name: str, folder: Path) -> ModelVersion:
    """Load the model in a folder, check all of it, and let it answer once: the next is quick."""
    while True:
        fingerprint = fingerprint_of(folder)
        try:
            with collect_remarks(no_warning):
                model = load(folder, verify=True)
        except LocaError:
            if fingerprint_of(folder) == fingerprint:
                raise
            continue
        if fingerprint_of(folder) == fingerprint:  # otherwise another version was saved meanwhile
            break
    if model.train_data_ is None:
        raise DataError(
            f"{folder}: this model was fitted on a bare matrix and knows no ids; it cannot be "
            "served"
        )
    loaded_at = datetime.now(UTC).isoformat(timespec="seconds")
    version = ModelVersion(name, folder, fingerprint, model, loaded_at)
    with collect_remarks(no_warning):
        model.recommend(version.known.users.values[:1].tolist(), 1, on_unknown="popular")
        for title in (version.titles or [])[:1]:  # makes the index of titles
            with suppress(DataError):  # two items may have it
                version.find_title(title)
    return version


def _titled_row(items: IdMap, title: str) -> int | None:
    try:
        return find_titled_item(items, title, suggest=False)
    except DataError as error:
        if str(error).startswith("unknown"):
            return None
        raise


def fingerprint_of(folder: Path) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a model's manifest.

    They are empty where it cannot be read: `load` says what is wrong.
    """
    try:
        return hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()[:16]
    except OSError:
        return ""


@dataclass
class ModelStore:
    """The served models; the first is the default.

    Parameters
    ----------
    folders
        The folder of each model by its name.
    """

    folders: Mapping[str, Path]
    versions: dict[str, ModelVersion] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    _seen: dict[str, Any] = field(default_factory=dict)

    def load(self) -> None:
        """Load every model; refuse one that cannot be loaded."""
        if not self.folders:
            raise ConfigError("expected at least one model folder to serve")
        for name, folder in self.folders.items():
            self._seen[name] = _state_of(folder)
            self.versions[name] = load_version(name, folder)

    def reload(self) -> dict[str, bool]:
        """Load what was saved since the last look, and return whether that went well, by name.

        A version that is broken leaves the old one serving; `errors` says what is wrong with it.
        """
        went_well = {}
        for name, folder in self.folders.items():
            state = _state_of(folder)
            if state == self._seen[name]:
                continue
            self._seen[name] = state
            is_same = fingerprint_of(folder) == self.versions[name].fingerprint
            if is_same and name not in self.errors:
                continue
            try:
                self.versions[name] = load_version(name, folder)
            except Exception as error:  # whatever is wrong with it, the other models are looked at
                self.errors[name] = _refusal(name, folder, error)
                went_well[name] = False
            else:
                self.errors.pop(name, None)
                went_well[name] = True
        return went_well

    def find(self, name: str | None) -> ModelVersion:
        """Return the model of a name, or the default model."""
        if name is None:
            return next(iter(self.versions.values()))
        if name not in self.versions:
            expected = f"; expected {' or '.join(map(repr, self.versions))}"
            advice = did_you_mean(name, self.versions) or expected
            raise KeyError(f"unknown model {name!r:.60}{advice}")
        return self.versions[name]


def _refusal(name: str, folder: Path, error: Exception) -> str:
    """Return why a newer version does not serve; what was not foreseen is logged."""
    if isinstance(error, LocaError):
        reason = str(error).replace(str(folder), folder.name)
    else:
        reason = "it fails"
        log.error("a newer version of %s cannot be loaded", name, exc_info=error)
    return f"a newer version cannot be loaded: {reason}"


def _state_of(folder: Path) -> tuple[int, ...] | None:
    """Return what changes when a model is saved into a folder."""
    try:
        manifest = (folder / MANIFEST).stat()
    except OSError:
        return None
    return manifest.st_mtime_ns, manifest.st_size, manifest.st_ino
