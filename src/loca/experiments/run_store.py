"""A folder of cells: finished ones are found again, unfinished ones go on, and those of other settings are refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from loca.data.splits import Split
from loca.errors import ConfigError, DataError, LocaError
from loca.experiments.runs import ComparedModel, Run, execute_run, read_run, run_state
from loca.models.recommender import Recommender
from loca.persistence.checkpoint import (
    Checkpoint,
    file_name_of,
    first_difference,
    holds_work,
    locked_folder,
    open_checkpoint,
    own_files,
    put_file,
    remove_files,
    remove_work,
)
from loca.persistence.fit_context import NO_CONTEXT, FitCache, FitContext
from loca.persistence.manifest import ModelState
from loca.progress import say
from loca.registry import KINDS
from loca.tuning.study import remove_studies

_MARK = "unfinished"
_ENDING = ".unfinished"
_BEGUN = "begun"


@dataclass(frozen=True)
class RunStore:
    """The cells of a comparison: `cells/` holds one file for each finished model, `studies/` the trials of its tuning.

    A cell goes under its name. `cells/unfinished` is there from the begin of a comparison to its end. Without
    `keeps_begun` a cell that was only begun leaves nothing: what hundreds of networks have learned takes tens of
    gigabytes.
    """

    folder: Path
    keeps_begun: bool = True

    @property
    def cells(self) -> Path:
        return self.folder / "cells"

    @property
    def _parts(self) -> Path:
        """The fits that cells share, until all cells are finished."""
        return self.folder / "parts"

    def study_of(self, cell: Run) -> Path:
        """The file of the cell's trials."""
        return self.folder / "studies" / f"{_stem(cell.name)}.db"

    def check_start(self, *, resume: bool, fresh: bool = False) -> None:
        """Refuses an unfinished comparison that the caller neither goes on with nor drops."""
        if resume and fresh:
            raise ConfigError("--resume goes on with unfinished work, --fresh drops it; expected one, found both")
        if (self.cells / _MARK).exists() and not (resume or fresh):
            raise ConfigError(
                f"{self.folder} holds an unfinished comparison; add --resume to go on with it, or --fresh to start over"
            )

    @contextmanager
    def opened(self, names: Iterable[str], *, resume: bool) -> Iterator[None]:
        """While this lasts no other run may use the cells; without `resume` it begins by dropping what is there."""
        with locked_folder(self.cells) as writable:
            if not writable:
                raise ConfigError(f"{self.folder}: may not be written; choose another folder to keep the results in")
            if not resume:
                self._drop(names)
            try:
                yield
            except BaseException:
                if not self._holds_any():
                    self.finish()  # a mistake that was noticed before anything was done
                raise

    def begin(self) -> None:
        """Marks the folder as that of an unfinished comparison, until `finish`."""
        put_file(self.cells / _MARK, lambda file: file.write(b""))

    def finish(self) -> None:
        """Takes away the mark of an unfinished comparison, and the parts that its cells have shared."""
        (self.cells / _MARK).unlink(missing_ok=True)
        shutil.rmtree(self._parts, ignore_errors=True)

    def find(self, cell: Run) -> ComparedModel | None:
        """The finished cell, if there is one; one that was computed for another subject is refused."""
        state = Checkpoint(self.cells).load(cell.name)
        if state is None:
            return None
        try:
            difference = first_difference(state.facts["subject"], cell.subject())
            if difference is None:
                return read_run(cell, state)
        except (LookupError, TypeError, ValueError, AttributeError, LocaError) as error:
            say(f"{self.cells / file_name_of(cell.name)}: cannot be used ({error}); its work is done again")
            return None
        raise ConfigError(
            f"{self.folder} holds results of {cell.name} that are not those asked for: {difference}; start over with "
            "--fresh, or choose another folder"
        )

    def compute(self, cell: Run, split: Split, context: FitContext = NO_CONTEXT) -> tuple[ComparedModel, Recommender]:
        """Computes the cell, going on where an interrupted run stopped, and keeps it."""
        if cell.shares_parts:
            context = replace(context, cache=FitCache(self._parts, KINDS))
        if self.keeps_begun:
            return self._go_on(cell, split, context)
        computed = execute_run(cell, split, context=context)
        Checkpoint(self.cells).save(cell.name, run_state(cell, computed[0]))
        return computed

    def _go_on(self, cell: Run, split: Split, context: FitContext) -> tuple[ComparedModel, Recommender]:
        from loca.models.devices import choose_device

        unfinished = self.cells / f"{_stem(cell.name)}{_ENDING}"
        subject = {**cell.subject(), "device in use": choose_device("auto").type}
        resume = unfinished.is_dir() and holds_work(unfinished)
        study = self.study_of(cell)
        with open_checkpoint(unfinished, subject, resume=resume) as checkpoint:
            if cell.space is not None and not resume:
                remove_studies(study)
                study.parent.mkdir(parents=True, exist_ok=True)
                checkpoint.save(_BEGUN, ModelState())  # from here on the trials in the study are of this subject
            try:
                computed = execute_run(cell, split, study=study, context=replace(context, checkpoint=checkpoint))
            except (ConfigError, DataError):
                if cell.space is not None and not study.exists():  # no trial has learned anything: a mistake
                    checkpoint.delete(_BEGUN)
                    with suppress(OSError):
                        study.parent.rmdir()
                raise
            Checkpoint(self.cells).save(cell.name, run_state(cell, computed[0]))
        return computed

    def _holds_any(self) -> bool:
        """Whether any cell is finished or begun."""
        return bool(own_files(self.cells)) or any(self.cells.glob(f"*{_ENDING}"))

    def _drop(self, asked: Iterable[str]) -> None:
        kept = [name for name in own_files(self.cells) if name.startswith("work-")]
        begun = [one for one in self.cells.glob(f"*{_ENDING}") if one.is_dir()]
        if kept or begun:
            say(f"{self.folder}: the earlier results there are replaced")
        stems = {_stem(name) for name in asked} | {one.removeprefix("work-").split(".safetensors")[0] for one in kept}
        remove_files(self.cells, kept)
        shutil.rmtree(self._parts, ignore_errors=True)
        for one in begun:
            stems.add(one.name.removesuffix(_ENDING))
            remove_work(one)
        for stem in stems:
            remove_studies(self.folder / "studies" / f"{stem}.db")


def _stem(name: str) -> str:
    """A name as part of a file name."""
    return file_name_of(name).removeprefix("work-").removesuffix(".safetensors")
