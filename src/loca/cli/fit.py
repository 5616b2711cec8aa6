"""`loca fit` chooses a model on each user's last items and saves it; `loca update` takes in new interactions."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loca.cli import options
from loca.cli.options import Data, Interruption, ModelSettings, Output, Reading, Recency
from loca.errors import ConfigError, ModelFileError
from loca.evaluation.metrics import DEFAULT_METRIC, Metric
from loca.models.recommender import Recommender, fitted
from loca.remarks import remark

if TYPE_CHECKING:
    from loca.local.community_description import Locality

_auto, _stopping = options.in_panel("Fitting by itself"), options.in_panel("Interruption")
Folder = Annotated[Path, typer.Option("--out", help="The folder to save the model into.")]
Budget = Annotated[
    str | None,
    _auto("How long --model auto may try, such as 600, 20min or 2h (12min).", metavar="TIME"),
]
Trials = Annotated[int | None, _auto("How many models --model auto may try (no limit).")]
CheckpointEvery = Annotated[
    float | None,
    _stopping(
        "How much work a kill may lose, in seconds (60; of a shard an epoch).", metavar="SECONDS"
    ),
]


@dataclass(frozen=True)
class Fitting:
    """Which model is fitted, and how."""

    model: Annotated[
        str | None,
        typer.Option(help="Which model: auto, ease, next-ease, loca-vae, … (loca-ease)."),
    ] = None
    validation: Annotated[
        int | None,
        typer.Option(help="Each user's last items, held out to choose on (2); 0 chooses nothing."),
    ] = None
    refit: Annotated[
        bool | None, typer.Option("--refit/--no-refit", help="Refit the choice on everything.")
    ] = None
    metric: options.MetricName = None
    recency: Recency = None

    def sections(self) -> dict[str, dict[str, Any]]:
        """The options by the sections of the settings that they belong to."""
        return {
            "fit": {"model": self.model, "refit": self.refit, "metric": self.metric},
            "split": {"validation": self.validation},
            "recency": {"half_life": self.recency},
        }


_cluster = options.in_panel("Many machines")


@dataclass(frozen=True)
class Cluster:
    """Whether local models are trained in shards on a Ray cluster, and how."""

    cluster: Annotated[
        str | None,
        _cluster(
            "Train local models on a Ray cluster: auto, host:6379, or local to start Ray here."
        ),
    ] = None
    shards: Annotated[int | None, _cluster("In so many parts, an actor each (2).", min=1)] = None
    storage: Annotated[
        str | None,
        _cluster(
            "What all machines see: a folder (OUT.cluster) or an address such as s3://bucket/work."
        ),
    ] = None
    shard_cpus: Annotated[float | None, _cluster("Cores of each shard (1).", min=0.01)] = None
    shard_gpus: Annotated[float | None, _cluster("GPUs of each shard (0).", min=0)] = None
    wait: Annotated[
        float | None, _cluster("Seconds to wait for a machine that can hold a shard (300).", min=0)
    ] = None

    def executor(self, storage: Path, checkpoint_every: float | None) -> Any:
        """What trains the shards; None without a cluster."""
        given = {name: one for name, one in asdict(self).items() if one is not None}
        if self.cluster is None:
            for name in given:
                raise ConfigError(f"--{name.replace('_', '-')}: is for --cluster")
            return None
        options.quiet_ray()
        from loca.cluster.ray_executor import RayExecutor

        names = {
            "shards": "shards",
            "shard_cpus": "cpus",
            "shard_gpus": "gpus",
            "wait": "wait_seconds",
        }
        executor = RayExecutor(
            storage if self.storage is None else self.storage,
            address=self.cluster,
            checkpoint_every=checkpoint_every or 0.0,
            **{names[name]: one for name, one in given.items() if name in names},
        )
        executor.join()
        return executor


@dataclass(frozen=True)
class FitOptions(options.CommandOptions):
    """The section `fit`."""

    model: str = "loca-ease"
    refit: bool = True
    metric: str = str(DEFAULT_METRIC)

    def __post_init__(self) -> None:
        Metric.of(self.metric)

    @property
    def model_names(self) -> tuple[str, ...]:
        """The one model to fit."""
        return (self.model,)


def fit(
    source: Data,
    out: Folder,
    fitting: Fitting,
    reading: Reading,
    settings: ModelSettings,
    interruption: Interruption,
    cluster: Cluster,
    output: Output,
    budget: Budget = None,
    trials: Trials = None,
    checkpoint_every: CheckpointEvery = None,
    device: options.Device = "auto",
) -> None:
    """Fit one model on all the data and save it; the model that was in the folder stays until the new one is whole.

    What can be chosen (epochs, blend, --recency auto, the values of --choose) is chosen on each user's last items, held
    out for it; then the choice is refitted on everything. --set wins over the options (fit.model over --model too), the
    options win over the file.

    What is done is saved beside the model, in OUT.unfinished, until the model is saved; after a kill the same command
    with --resume goes on from there and ends with the numbers that an unbroken run gives.

    Examples:

      loca fit planted --model loca-ease --out films.loca

      loca fit ratings.csv --titles movies.csv --model loca-ease --choose base.l2=100,300,1000 --out films.loca

      loca fit ratings.csv --model loca-ease --set communities=kernels --set communities.n=60 --out films.loca

      loca fit ratings.csv --model mult-vae --set latent=100 --recency 30d --out films.loca --resume

      loca fit ratings.csv --model ease --recency auto --out films.loca

      loca fit ratings.csv --model auto --budget 20min --out films.loca

      loca fit ratings.csv --model loca-vae --cluster auto --shards 8 --storage /shared/work --out films.loca
    """
    import loca
    from loca.cluster.storage import remove_jobs
    from loca.config.model_factory import describe_model
    from loca.config.settings import Given
    from loca.models.devices import check_device, choose_device
    from loca.persistence.checkpoint import check_start
    from loca.persistence.fit_context import checkpoint_in
    from loca.persistence.manifest import fingerprint
    from loca.search_space import read_seconds
    from loca.tuning.model_selection import fit as fit_model
    from loca.tuning.recency_selection import recency_json

    sections = fitting.sections()
    if budget is not None or trials is not None:
        given = Given(settings.config, sections, settings.assignments or ())
        model = given.section("fit").get("model", FitOptions.model)
        if model != "auto":
            option = "--budget" if budget is not None else "--trials"
            raise ConfigError(f"{option}: is for --model auto, found --model {model}")
        with options.naming("--budget"):
            seconds = None if budget is None else read_seconds(budget)
        sections["auto"] = {"seconds": seconds, "trials": trials}
    request = options.check_request("fit", FitOptions, source, reading, settings, **sections)
    if "test" in Given(assignments=settings.assignments or ()).section("split"):
        raise ConfigError(
            "split.test: loca fit holds out nothing for test; leave it out, or use split.validation"
        )
    if "test" in Given(settings.config).section("split"):
        remark(
            "setting-ignored",
            f"{settings.config}: split.test is for loca compare; loca fit holds out nothing for test",
        )
    check_folder(out)
    check_device(device)
    if checkpoint_every is not None and not checkpoint_every >= 0:
        raise ConfigError(f"--checkpoint-every: expected seconds ≥ 0, found {checkpoint_every:g}")
    named = out if out.name not in ("", "..") else out.resolve()
    unfinished = named.with_name(f"{named.name}.unfinished")
    check_start(unfinished, **asdict(interruption))
    storage = named.with_name(f"{named.name}.cluster")
    own, ((name, candidates),) = request.own, request.models.items()
    if cluster.cluster is not None and candidates[0].role == "single":
        raise ConfigError(
            f"--cluster: {name} is one model; take loca-… or ensemble-…, or leave it out"
        )
    executor = cluster.executor(storage, checkpoint_every)
    validation = 2 if request.split.validation is None else request.split.validation
    started = time.perf_counter()
    interactions = request.read()
    described = [describe_model(one) for one in candidates]
    # What the numbers of a fit depend on: progress of a fit with another fingerprint is refused.
    depends_on = {
        "loca": loca.__version__,
        "fit.model": name,
        "fit.seed": own.seed,
        "fit.refit": own.refit,
        "fit.metric": own.metric,
        "validation": validation,
        "recency": str(request.recency),
        "device in use": choose_device(device).type,
        "candidates": len(candidates),
        **(
            described[0]
            if len(described) == 1
            else {f"candidate {k}": one for k, one in enumerate(described)}
        ),
        "data": fingerprint(interactions),
    }
    with checkpoint_in(
        unfinished,
        fingerprint=depends_on,
        seconds_between=60.0 if checkpoint_every is None else checkpoint_every,
        **asdict(interruption),
    ) as context:
        if not interruption.resume:
            remove_jobs(storage)
        context = replace(context, executor=executor)
        found = fit_model(
            interactions,
            candidates,
            validation=validation,
            refit=own.refit,
            recency=request.recency,
            metric=own.metric,
            device=device,
            context=context,
        )
        found.model.save(out)
    remove_jobs(storage)
    parameters, best = describe_model(found.model), found.best
    # Of what Auto chose, its report says more.
    shown = [
        key
        for key in parameters
        if "seed" not in key and key != "model" and not key.startswith("chosen.")
    ]
    lines = [f"{name} saved to {out}: {', '.join(f'{key} {parameters[key]}' for key in shown)}"]
    # What was remarked stands beside the answer.
    lines += replace(found, remarks=()).shown()[1:]
    locality = _locality_of(found.model)
    lines += [] if locality is None else [str(locality)]
    document = {
        "model": name,
        "folder": str(out),
        "parameters": parameters,
        "metric": own.metric,
        "validation": None if best is None else best.score,
        "tried": [{"settings": one.settings, "validation": one.score} for one in found.tried],
        "locality": None if locality is None else asdict(locality),
        "recency": recency_json(
            found.model.train_data_.recency if found.model.train_data_ else None
        ),
        "recency_choice": best.recency.as_json() if best and best.recency else None,
        "refit": own.refit,
        "seconds": time.perf_counter() - started,
    }
    output.answer("\n".join(lines), document)


def _locality_of(model: Recommender) -> Locality | None:
    """Return how local the answers of a local model are; None of any other model."""
    if model.role != "local":
        return None
    local_model: Any = model
    locality: Locality | None = local_model.locality_
    return locality


Updated = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a saved model.")]
New = Annotated[
    str,
    typer.Argument(metavar="DATA", help="A file of the new interactions; - reads standard input."),
]
NewFolder = Annotated[
    Path | None, typer.Option("--out", help="The folder to save into (that of the model itself).")
]
Epochs = Annotated[
    int, typer.Option(help="Epochs of networks from their present weights, rounds of WMF.")
]


def update(
    folder: Updated,
    source: New,
    reading: Reading,
    output: Output,
    out: NewFolder = None,
    epochs: Epochs = 5,
) -> None:
    """Take new interactions into a saved model without a full fit; the model stays until the new one is whole.

    Known users' histories grow and new users enter. Linear models, popularity and WMF take in new items too; networks,
    LLORMA, sGLSVD and what is made of them leave such interactions out. Settings, communities and the weights of a
    blend stay: fit again from time to time.

    The new rows are read by the rules of the fit: its minimum rating, event weights, unit of times and rule for
    repeats are stored with the model.

    Examples:

      loca update films.loca new.csv

      loca update films.loca new.csv --time-column when --out films-today.loca
    """
    from loca.config.options import read_data
    from loca.data.readers import tell_about
    from loca.persistence.atomic_write import MANIFEST, read_plain
    from loca.registry import load

    started = time.perf_counter()
    how = reading.checked()
    model = load(folder)
    out = folder if out is None else out
    check_folder(out)
    manifest, known = read_plain(folder / MANIFEST), model.train_data_
    if known is None:
        raise ModelFileError(
            f"{folder}: holds no training data to add to; fit a model on a file of interactions"
        )
    how.check_later(known.schema)
    new = tell_about(*read_data(source, how, like=known.schema))
    entering = known.entering(new, new_items=model.takes_new_items)
    model.update(new, epochs=epochs)
    if out == folder and read_plain(folder / MANIFEST) != manifest:
        raise ModelFileError(
            f"{folder}: the model was replaced meanwhile and stays so; update it again"
        )
    model.save(out)
    now, seconds = fitted(model.train_data_, model), time.perf_counter() - started
    before, after = (
        {"interactions": len(one), "users": one.n_users, "items": one.n_items}
        for one in (known, now)
    )
    added = {what: after[what] - before[what] for what in after}
    left_out = len(new) - len(entering)
    repeated = len(known) + len(entering) - len(now)
    lines = [f"{type(model).__name__} saved to {out} after {seconds:.1f} s"]
    lines.append(f"new: {_counted(added)}")
    if repeated:
        lines.append(f"known already: interactions {repeated:,}; they count at their newest time")
    if left_out:
        lines.append(f"left out: interactions {left_out:,}, with items that only a fit takes in")
    lines.append(f"now: {_counted(after)}; settings stay as they were")
    document = {
        "model": type(model).__name__,
        "folder": str(out),
        "new": added,
        "known_already": repeated,
        "left_out": left_out,
        "now": after,
        "seconds": seconds,
    }
    output.answer("\n".join(lines), document)


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{what} {count:,}" for what, count in counts.items())


def check_folder(folder: Path) -> Path:
    """The nearest folder that is there; one that a model cannot be saved into is refused before an hour of training."""
    from loca.persistence.model_io import check_foreign

    try:
        check_foreign(folder)
    except OSError as error:
        raise ModelFileError(
            f"{folder}: cannot be saved into ({error.strerror or error})"
        ) from None
    there = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise ModelFileError(
            f"{folder}: cannot be saved into, {there} may not be written; choose another folder"
        )
    try:
        with tempfile.TemporaryDirectory(
            prefix=".loca-", dir=there
        ):  # some file systems are written by nobody
            return there
    except OSError as error:
        problem = f"cannot be written: {error.strerror or error}"
        raise ModelFileError(f"{folder}: {problem}; choose another folder") from None
