"""What a fit runs with beside its data: a checkpoint, callbacks, and a cache of fits to share."""

from __future__ import annotations

import inspect
import os
import secrets
import shutil
import time
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from inspect import Parameter
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.interactions import Interactions
from loca.data.splits import HeldOut
from loca.errors import ConfigError, ModelFileError
from loca.evaluation.metrics import DEFAULT_METRIC, Metric
from loca.persistence.atomic_write import wait_for_lock
from loca.persistence.checkpoint import (
    Checkpoint,
    check_start,
    holds_work,
    remove_work,
    start,
    writable_folder,
)
from loca.persistence.manifest import Kinds, fingerprint
from loca.persistence.model_io import load_model, save_model
from loca.persistence.model_tree import one_line
from loca.progress import say
from loca.remarks import tell_remarks

AnyModel = TypeVar("AnyModel")
T = TypeVar("T")
Data = Interactions | csr_array
Weights = npt.NDArray[Any] | None
RunSettings = Mapping[str, Any]
_MOST_FITS = 4
_NEW = "new-"
_SECONDS_OF_A_DAY = 24 * 60 * 60


class StopFit(Exception):
    """Raised by a callback: end this training here, with the best epoch so far.

    Examples
    --------
    >>> class StopAtTwo:
    ...     def on_epoch(self, part: str, epoch: int, score: float) -> None:
    ...         if epoch == 2:
    ...             raise loca.StopFit
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12).interactions
    >>> rest, held_out, _ = loca.hold_last(data, 2)
    >>> model = loca.MultVAE(latent=8, epochs=9)
    >>> model.fit(rest, validation=held_out, callbacks=[StopAtTwo()]).best_epoch_ <= 2
    True
    """


class Callback(Protocol):
    """Watch a fit: anything with this method is a callback.

    Examples
    --------
    >>> class Print:
    ...     def on_epoch(self, part: str, epoch: int, score: float) -> None:
    ...         print(part or "the whole model", epoch)
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12).interactions
    >>> rest, held_out, _ = loca.hold_last(data, 2)
    >>> _ = loca.MultVAE(latent=8, epochs=2).fit(rest, validation=held_out, callbacks=[Print()])
    the whole model 1
    the whole model 2
    """

    def on_epoch(self, part: str, epoch: int, score: float) -> None:
        """Look at what a training has reached.

        Raise `StopFit` to end this training with its best epoch so far; any other exception ends
        the fit.

        Parameters
        ----------
        part : str
            The part of the model that is trained, such as `"global model"`; empty for the model
            itself.
        epoch : int
            The number of epochs so far.
        score : float
            The validation score; what is trained without validation is not reported.
        """


@dataclass(frozen=True, repr=False)
class FitContext:
    """Hold what a fit runs with beside its data; the default saves, reports and shares nothing.

    Parameters
    ----------
    checkpoint : Checkpoint, default Checkpoint()
        Where the fit saves its progress, and finds that of an interrupted run; `checkpoint_in`
        makes one.
    callbacks : sequence of Callback, default ()
        What looks at the score after each evaluation on validation, and may end a training by
        `StopFit`.
    cache : FitCache or None, default None
        Fits of parts that several models have in common.
    part : str, default ""
        The part of the model that is fitted, such as `"global model"`; empty for the model itself.
    order_checked : bool, default False
        Whether the caller has warned of an order that looks like the file's; a model then does not
        warn again.
    executor : object or None, default None
        What trains many local models in shards, such as `loca.cluster.RayExecutor`; None trains
        them here.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12).interactions
    >>> rest, held_out, _ = loca.hold_last(data, 2)
    >>> class Epochs(list[int]):
    ...     def on_epoch(self, part: str, epoch: int, score: float) -> None:
    ...         self.append(epoch)
    >>> epochs = Epochs()
    >>> context = loca.FitContext(callbacks=[epochs])
    >>> model = loca.MultVAE(latent=8, epochs=3).fit(rest, validation=held_out, context=context)
    >>> epochs
    [1, 2, 3]
    """

    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    callbacks: Sequence[Callback] = ()
    cache: FitCache | None = None
    part: str = ""
    order_checked: bool = False
    executor: Any = None

    def __post_init__(self) -> None:
        for callback in self.callbacks:
            if not hasattr(callback, "on_epoch"):
                expected = "objects with on_epoch(part, epoch, score)"
                raise ConfigError(f"callbacks: expected {expected}, found {callback!r:.60}")

    def __repr__(self) -> str:
        is_default = not (self.checkpoint.saves or self.callbacks or self.cache)
        return "FitContext()" if is_default else "FitContext(…)"

    def inside(self, name: str) -> FitContext:
        """Return the same context with a checkpoint whose names stand inside `name`.

        Parameters
        ----------
        name : str
            The name of a part of the work.

        Returns
        -------
        FitContext
        """
        return replace(self, checkpoint=self.checkpoint.inside(name))

    def make(self, name: str, make: Callable[[], T]) -> T:
        """Load what an interrupted run saved under the name; else make it and save it.

        Parameters
        ----------
        name : str
            The name of a piece of the work.
        make : callable
            Makes a numpy array, a plain value, or a dictionary, list or tuple of these.

        Returns
        -------
        object
            What was saved, with read-only arrays where they are large, or what was made.
        """
        return self.checkpoint.load_or_make(name, make)

    def of_part(self, name: str) -> FitContext:
        """Return the context of a part of the model, whose checkpoint stands inside its name too.

        Parameters
        ----------
        name : str
            The name of the part; inside another part it stands behind that one's, and a slash.

        Returns
        -------
        FitContext
        """
        part = f"{self.part}/{name}" if self.part else name
        return replace(self.inside(name), part=part)

    def report(self, epoch: int, score: float) -> None:
        """Report to each callback what was reached.

        Parameters
        ----------
        epoch : int
            The number of epochs so far.
        score : float
            The validation score.

        Raises
        ------
        StopFit
            Where a callback raised it, after all of them were called.
        """
        stop: StopFit | None = None
        for callback in self.callbacks:
            try:
                callback.on_epoch(self.part, epoch, score)
            except StopFit as request:
                stop = request
        if stop is not None:
            raise stop

    def fit(
        self,
        model: AnyModel,
        train: Data,
        *,
        user_weights: Weights = None,
        validation: HeldOut | None = None,
        metric: Metric = DEFAULT_METRIC,
        device: str = "auto",
    ) -> AnyModel:
        """Fit a model in this context; a user's own model may leave out context, metric and device.

        Parameters
        ----------
        model : Recommender
            The model that is fitted.
        train : Interactions or csr_array
            What it learns from.
        user_weights : ndarray or None, default None
            One weight ≥ 0 per user; None gives every user the weight 1.
        validation : HeldOut or None, default None
            What early stopping and other choices look at.
        metric : Metric, default ndcg@100
            What they are made by.
        device : str, default "auto"
            Where it computes.

        Returns
        -------
        Recommender
            The same model, fitted.
        """
        learner: Any = model
        options: dict[str, Any] = {"context": self, "metric": metric, "device": device}
        known = inspect.signature(learner.fit).parameters
        takes_any = any(known[name].kind is Parameter.VAR_KEYWORD for name in known)
        if not takes_any:
            options = {name: value for name, value in options.items() if name in known}
        learner.fit(train, user_weights=user_weights, validation=validation, **options)
        return model

    def fit_part(
        self,
        name: str,
        model: AnyModel,
        train: Data,
        *,
        user_weights: Weights = None,
        validation: HeldOut | None = None,
        metric: Metric = DEFAULT_METRIC,
        device: str = "auto",
    ) -> AnyModel:
        """Fit a part of a model, or take it from the cache of fits on the same data.

        The cache is not used where user weights are given: they belong to one model alone.

        Parameters
        ----------
        name : str
            The name of the part, for the checkpoint.
        model : Recommender
            An unfitted model with the parameters of the part.
        train, user_weights, validation, metric, device
            As for `fit`.

        Returns
        -------
        Recommender
            The fitted part.
        """
        part = self.of_part(name)
        if self.cache is not None and user_weights is None:
            return self.cache.fit(model, train, validation, metric, device, part)
        return part.fit(
            model,
            train,
            user_weights=user_weights,
            validation=validation,
            metric=metric,
            device=device,
        )


@dataclass(frozen=True)
class FitCache:
    """Share a folder of fitted models, at most a few, between processes.

    `kinds` names the classes that the models may be made of.
    """

    folder: Path
    kinds: Kinds

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def fit(
        self,
        model: AnyModel,
        train: Data,
        validation: HeldOut | None,
        metric: Metric,
        device: str,
        context: FitContext,
    ) -> AnyModel:
        """Return a fitted model with the parameters of `model`: what a fit gives.

        It is the same to the bit where the fit was made on the same kind of device; a fit of a CPU
        and one of a GPU differ by rounding, and each is taken for the other.
        """
        name = self._name_of(model, train, validation, metric)
        if name is None:
            return context.fit(model, train, validation=validation, metric=metric, device=device)
        path = self.folder / name
        # Whoever comes second waits for the first: to fit the same twice would earn nothing.
        with wait_for_lock(path.with_name(f"{name}.lock")):
            fitted = self._load(type(model), path)
            if fitted is None:
                fitted = context.fit(
                    model, train, validation=validation, metric=metric, device=device
                )
                self._save(fitted, path)
            else:
                self._complete(fitted, train, device)
        return fitted

    def _complete(self, fitted: Any, train: Data, device: str) -> None:
        """Give a fit from the folder what it has after a fit here: its device, data and remarks."""
        if hasattr(fitted, "to"):
            fitted.to(device)
        if hasattr(fitted, "train_data_"):
            fitted.train_data_ = train if isinstance(train, Interactions) else None
        tell_remarks(getattr(fitted, "remarks_", ()))

    def _name_of(
        self, model: Any, train: Data, validation: HeldOut | None, metric: Metric
    ) -> str | None:
        """Return the name of a fit; None where no fingerprint tells it from another."""
        import loca

        data = train if isinstance(train, Interactions) else csr_array(train)
        parts = [loca.__version__, fingerprint(model), fingerprint(data), fingerprint(validation)]
        if metric != DEFAULT_METRIC:
            parts.append(str(metric))
        if None in parts or metric.function is not None:
            return None
        return str(fingerprint(parts))

    def _load(self, kind: type[AnyModel], path: Path) -> AnyModel | None:
        """Return the fit of a folder, or None."""
        kinds = ChainMap({kind.__name__: kind}, cast(Any, self.kinds))
        with suppress(ModelFileError, OSError):
            fitted = load_model(path, kinds)
            os.utime(path)
            return fitted if isinstance(fitted, kind) else None
        return None

    def _save(self, model: Any, path: Path) -> None:
        """Save a fit beside its place and move it there; where that fails it is just not shared."""
        new_path = self.folder / f"{_NEW}{secrets.token_hex(8)}"
        try:
            # The data is at hand wherever the fit is loaded.
            save_model(model, new_path, with_train_data=False)
            shutil.rmtree(path, ignore_errors=True)
            os.rename(new_path, path)
        except (ModelFileError, OSError) as error:
            say(f"{type(model).__name__}: its fit cannot be shared ({one_line(error):.200})")
            shutil.rmtree(new_path, ignore_errors=True)
            return
        self._remove_oldest()

    def _remove_oldest(self) -> None:
        """Remove the fits that nobody has used for longest, but for a few.

        What a killed process had begun goes after a day. The locks stay, they are empty: whoever
        waits for one must not be left with a file that has lost its name.
        """
        used: dict[Path, float] = {}
        for path in self.folder.iterdir():
            with suppress(OSError):  # another process has just removed it
                if path.is_dir():
                    used[path] = path.stat().st_mtime
        begun = [path for path in used if path.name.startswith(_NEW)]
        fits = sorted(used.keys() - begun, key=used.__getitem__)
        abandoned = [path for path in begun if time.time() - used[path] > _SECONDS_OF_A_DAY]
        for path in (*fits[:-_MOST_FITS], *abandoned):
            shutil.rmtree(path, ignore_errors=True)


NO_CONTEXT = FitContext()


@contextmanager
def checkpoint_in(
    folder: str | Path,
    *,
    fingerprint: RunSettings,
    resume: bool,
    fresh: bool = False,
    seconds_between: float = 60.0,
) -> Iterator[FitContext]:
    """Save the progress of a fit in a folder, which goes when the work ends well.

    After an error or a kill the folder stays, and a later run resumes from it.

    Parameters
    ----------
    folder : str or Path
        Made when missing.
    fingerprint : mapping of JSON values
        All that the outcome depends on (`loca` is the version, `data` a digest). Progress of work
        with another fingerprint is refused, never mixed.
    resume : bool
        Go on from the progress in the folder.
    fresh : bool, default False
        Drop the progress in the folder. With neither `resume` nor `fresh` it is refused.
    seconds_between : float, default 60.0
        How much work a kill may lose.

    Yields
    ------
    FitContext
        To be given to `fit` as `context`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12).interactions
    >>> fingerprint = {"data": "planted", "seed": 0}
    >>> with TemporaryDirectory() as parent:
    ...     work = Path(parent, "work")
    ...     with loca.checkpoint_in(work, fingerprint=fingerprint, resume=True) as context:
    ...         model = loca.MultVAE(latent=8, epochs=2).fit(data, context=context)
    ...     work.exists()
    False
    """
    path = Path(folder)
    if not seconds_between >= 0:
        raise ConfigError(
            f"seconds between two checkpoints: expected a number ≥ 0, found {seconds_between}"
        )
    check_start(path, resume=resume, fresh=fresh)
    with writable_folder(path) as writable:
        if not writable:
            yield NO_CONTEXT
            return
        start(path, fingerprint, resume=resume, fresh=fresh)
        checkpoint = Checkpoint(path, seconds_between)
        try:
            yield FitContext(checkpoint)
        except BaseException:
            if holds_work(path):
                say(f"{path} keeps what is done; the same command with --resume goes on from there")
            else:
                remove_work(path)
            raise
        for end in checkpoint.at_end:
            end()
        remove_work(path)
