"""Local models in shards have the numbers of one machine, however many, and whatever is lost."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import loca
from loca.cluster.executor import ShardExecutor
from loca.cluster.shards import (
    Job,
    Shard,
    dump_weights,
    kinds_of,
    plan_shards,
    read_weights,
)
from loca.cluster.storage import remove_jobs
from loca.data.splits import Split
from loca.errors import ConfigError, LocaError, ModelFileError
from loca.local.sharded_models import ShardedModels
from loca.memory import DataSize
from loca.models.early_stopping import BestWeights
from loca.models.recommender import clone
from loca.paper.stopping import StopEach
from loca.persistence.learned import parts_of, restored
from loca.persistence.manifest import ModelState, SavedAt
from loca.persistence.model_tree import FORMAT, VERSION
from loca.persistence.sealed_json import open_sealed, sealed_json

VAE = {"latent": 8, "epochs": 8, "patience": 4, "evaluate_every": 2, "learning_rate": 5e-3}
SMALL_DIFFERENCES = loca.Differences(max_bytes=8000)
CASES: dict[str, Callable[[], Any]] = {
    "networks of mixtures": lambda: loca.Loca(
        base=loca.MultVAE(**VAE), communities=loca.Mixtures(n=6)
    ),
    "networks around anchors": lambda: loca.Loca(
        base=loca.MultVAE(**VAE), communities=loca.Kernels(n=5)
    ),
    "networks one by one": lambda: loca.Loca(
        base=loca.MultVAE(**VAE), communities=loca.Kernels(n=3), engine=loca.Loop()
    ),
    "EASEs of mixtures": lambda: loca.Loca(base=loca.EASE(l2=20.0), communities=loca.Mixtures(n=6)),
    "EASEs of the best communities": lambda: loca.Loca(
        base=loca.EASE(l2=20.0), communities=loca.BestOf(n=6)
    ),
    "differences of EASEs": lambda: loca.Loca(
        base=loca.EASE(l2=20.0), communities=loca.Kernels(n=5), engine=SMALL_DIFFERENCES
    ),
    "differences to a centre of their own": lambda: loca.Loca(
        base=loca.EASE(l2=20.0),
        global_model=loca.EASE(l2=200.0),
        communities=loca.Mixtures(n=4),
        engine=SMALL_DIFFERENCES,
    ),
    "an ensemble of differences": lambda: loca.Ensemble(
        base=loca.EASE(l2=20.0), models=4, engine=SMALL_DIFFERENCES
    ),
    "an ensemble": lambda: loca.Ensemble(base=loca.MultVAE(**VAE), models=4),
}


def fit(make: Callable[[], Any], split: Split, executor: Any = None, context: Any = None) -> Any:
    context = loca.FitContext(executor=executor) if context is None else context
    return make().fit(split.train, validation=split.validation, context=context)


def assert_same(model: Any, other: Any, split: Split) -> None:
    rows = split.test.history_matrix
    np.testing.assert_allclose(model.score(rows), other.score(rows), atol=1e-5)
    assert choices(model) == choices(other)


def choices(model: Any) -> list[Any]:
    """What a fit chose on validation."""
    if isinstance(model, loca.Ensemble):
        return [model.epochs_]
    local = model.local_
    return [local.models.epochs_, local.combiner, local.finder, local.communities.shared_epochs]


@pytest.mark.parametrize("name", CASES)
def test_shards_have_the_numbers_of_one_machine(
    name: str, planted_split: Split, tmp_path: Path
) -> None:
    alone = fit(CASES[name], planted_split)
    for shards in (1, 2, 4):
        model = fit(CASES[name], planted_split, ShardExecutor(tmp_path / "work", shards=shards))
        assert_same(model, alone, planted_split)
    model.save(tmp_path / "model.loca")
    # Each shard has written its arrays once: they are linked.
    written = {file.stat().st_ino for file in (tmp_path / "work").rglob("part */arrays-*")}
    assert len(written) >= 3
    assert written <= {file.stat().st_ino for file in (tmp_path / "model.loca").iterdir()}
    del model
    gc.collect()
    assert not list((tmp_path / "work").iterdir())
    assert_same(loca.load(tmp_path / "model.loca", verify=True), alone, planted_split)


@pytest.mark.parametrize("name", ["networks of mixtures", "differences of EASEs"])
def test_shards_find_their_work_at_an_address(
    name: str, planted_split: Split, tmp_path: Path
) -> None:
    place = f"file://{tmp_path}/work"
    alone, executor = fit(CASES[name], planted_split), Losing(place, shards=3, seed=1)
    model = CASES[name]().fit(
        planted_split.train,
        validation=planted_split.validation,
        context=loca.FitContext(executor=executor),
    )
    assert executor.losses > 0
    assert_same(model, alone, planted_split)
    model.save(tmp_path / "model.loca")
    del model
    gc.collect()
    assert_same(loca.load(tmp_path / "model.loca", verify=True), alone, planted_split)
    assert not list((tmp_path / "work").iterdir())


def test_what_an_address_cannot_do_is_one_line(planted_split: Split, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in ("nothing://x", f"file://{tmp_path}/file/below", str(tmp_path / "file" / "below")):
        with pytest.raises(LocaError, match=f"storage {place}: "):
            ShardExecutor(place)
    with pytest.raises(LocaError, match="storage nothing://…@host/x: "):
        ShardExecutor("nothing://somebody:secret@host/x")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.4, 0.6, 1.0])
def test_weights_come_back_whatever_share_of_them_is_the_least(share: float) -> None:
    rng = np.random.default_rng(0)
    given = [
        np.where(rng.random(200) < share, 0.25, rng.random(200) + 0.3).astype(np.float32)
        for _ in range(3)
    ]
    state = dump_weights(iter(given))
    for number, weights in enumerate(given):
        np.testing.assert_array_equal(read_weights(state, number, 200), weights)
    if share == 1:
        assert sum(array.nbytes for array in state.values()) < 100


@pytest.mark.parametrize(
    "name", ["networks of mixtures", "networks one by one", "differences of EASEs"]
)
def test_a_shard_reads_saves_sends_and_writes_what_its_plan_says(
    name: str, planted_split: Split, tmp_path: Path
) -> None:
    found: dict[str, int] = {}

    class Measuring(ShardExecutor):
        def call(
            self, method: str, arguments: Sequence[Any], *others: Any, **named: Any
        ) -> list[Any]:
            sizes = {
                one.name: one.stat().st_size
                for one in (tmp_path / "work").rglob("*")
                if one.is_file()
            }
            if "read" not in found:
                weights = [size for one, size in sizes.items() if one.startswith("work-weights")]
                model_files = (tmp_path / "work").rglob("centre/*")
                centre = sum(file.stat().st_size for file in model_files)
                found["read"] = sizes["work-data.safetensors"] + max(weights) + centre
            answers = list(super().call(method, arguments, *others, **named))
            if method == "blend":
                found["sent"] = max(
                    found.get("sent", 0), *(one.nbytes for one in answers if one is not None)
                )
            if method == "finish":
                saved = [size for one, size in sizes.items() if one.startswith("work-shard")]
                parts = [
                    sum(file.stat().st_size for file in one.glob("arrays-*"))
                    for one in part_folders(tmp_path)
                ]
                found["saved"], found["part"] = max(saved, default=0), max(parts)
            return answers

    model = CASES[name]()
    fit(lambda: model, planted_split, Measuring(tmp_path / "work", shards=2))
    planned = plan_shards(model, DataSize.of(planted_split.train.matrix(), validated=True), 2)
    assert planned["models"] == -(-model.size // 2)
    headers = 3_000 * planned["models"] + 5_000
    for key in ("read", "saved", "part"):
        assert found[key] <= 1.05 * planned[key] + headers, key
    if name.startswith("networks"):
        assert (
            0.5 * planned["sent"] <= found["sent"] <= planned["sent"]
        )  # of the users whom a shard answers for
        assert found["part"] >= 0.3 * planned["part"]  # without the half that gives variances
        assert found["saved"] >= 0.5 * planned["saved"]


def part_folders(place: Path) -> list[Path]:
    return [one for one in (place / "work").rglob("part *") if one.is_dir()]


class Losing(ShardExecutor):
    """Loses a shard now and then, before a call or after it, and begins it anew."""

    def __init__(self, storage: str | Path, *, shards: int, seed: int, **others: Any) -> None:
        super().__init__(storage, shards=shards, **others)
        self.rng, self.losses = np.random.default_rng(seed), 0

    def call(self, method: str, arguments: Sequence[Any], *others: Any, **named: Any) -> list[Any]:
        for again in (True, False):
            for number in np.flatnonzero(self.rng.random(len(self._shards)) < 0.2).tolist():
                self._shards[number] = Shard(self._shards[number].job, number)
                self.losses += 1
            found = list(super().call(method, arguments, *others, **named))
            if not again or self.rng.random() < 0.7:
                break  # otherwise the answers were lost, and are wanted again
        return found


@pytest.mark.parametrize(
    "name", ["networks of mixtures", "differences of EASEs", "networks one by one"]
)
def test_lost_shards_go_on_where_they_were(name: str, planted_split: Split, tmp_path: Path) -> None:
    alone, executor = fit(CASES[name], planted_split), Losing(tmp_path, shards=3, seed=1)
    assert_same(fit(CASES[name], planted_split, executor), alone, planted_split)
    assert executor.losses > 0
    # Also where they save hardly ever.
    executor = Losing(tmp_path, shards=3, seed=1, checkpoint_every=1e6)
    assert_same(fit(CASES[name], planted_split, executor), alone, planted_split)
    assert executor.losses > 0
    # And where nothing is judged.
    executor = Losing(tmp_path, shards=3, seed=1, checkpoint_every=1e6)
    alone, model = (
        CASES[name]().fit(planted_split.train, context=loca.FitContext(executor=one))
        for one in (None, executor)
    )
    assert_same(model, alone, planted_split)
    assert executor.losses > 0


def test_a_lost_driver_goes_on_where_it_was(planted_split: Split, tmp_path: Path) -> None:
    make, begun = CASES["networks of mixtures"], []
    alone = fit(make, planted_split)

    class Lost(Exception):
        pass

    class Lose:
        def on_epoch(self, part: str, epoch: int, score: float) -> None:
            begun.append(epoch)
            if part == "" and len(begun) in (3, 6, 8):
                raise Lost

    for attempt in range(6):
        given = {"fingerprint": {"data": "planted"}, "resume": attempt > 0, "seconds_between": 0.0}
        if attempt == 2:  # what the shards have saved is lost too
            shutil.rmtree(tmp_path / "work")
        try:
            with loca.checkpoint_in(tmp_path / "driver", **given) as context:
                # As it was begun, whatever is wanted now.
                executor = ShardExecutor(tmp_path / "work", shards=2 + attempt)
                context = loca.FitContext(context.checkpoint, (Lose(),), executor=executor)
                model = fit(make, planted_split, context=context)
            break
        except Lost:
            assert list((tmp_path / "work").iterdir()) != []
    assert attempt > 0
    assert_same(model, alone, planted_split)


class StopAt:
    """A callback that ends the training of the model itself after some epochs, and counts them."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.epochs: list[int] = []

    def on_epoch(self, part: str, epoch: int, score: float) -> None:
        if part == "":
            self.epochs.append(epoch)
            if epoch >= self.last:
                raise loca.StopFit


def test_a_callback_ends_the_training_of_shards_as_that_of_one_machine(
    planted_split: Split, tmp_path: Path
) -> None:
    make, found = CASES["networks around anchors"], []
    for executor in (None, ShardExecutor(tmp_path / "work", shards=2)):
        stop = StopAt(4)
        context = loca.FitContext(executor=executor, callbacks=(stop,))
        found.append(fit(make, planted_split, context=context))
        assert stop.epochs == [2, 4]
    assert_same(*found, planted_split)
    assert found[0].local_.models.epochs_ in (2, 4)


def test_shards_compute_on_the_device_of_the_fit(
    planted_split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices: list[str] = []
    real = Job.fits

    def fits(job: Job, *arguments: Any) -> Any:
        fits = real(job, *arguments)
        devices.append(fits.data.device)
        return fits

    monkeypatch.setattr(Job, "fits", fits)
    executor = ShardExecutor(tmp_path / "work", shards=2)
    model = CASES["an ensemble"]().fit(
        planted_split.train, device="cpu", context=loca.FitContext(executor=executor)
    )
    assert devices == ["cpu", "cpu"]
    assert [str(part.device) for part in model.models_.parts_] == ["cpu", "cpu"]


def test_a_fit_that_nobody_can_go_on_with_leaves_nothing(
    planted_split: Split, tmp_path: Path
) -> None:
    class Broken(ShardExecutor):
        def call(self, method: str, *others: Any, **named: Any) -> list[Any]:
            if method == "finish":
                raise ConfigError("broken")
            return super().call(method, *others, **named)

    for name in CASES:
        with pytest.raises(ConfigError, match="broken"):
            fit(CASES[name], planted_split, Broken(tmp_path / "work"))
        assert not list((tmp_path / "work").iterdir())


def test_the_best_weights_are_learned_again_where_they_are_lost(
    planted_split: Split, tmp_path: Path
) -> None:
    class Forgetful(ShardExecutor):
        def call(self, method: str, *others: Any, **named: Any) -> list[Any]:
            if method == "finish":
                for shard in self._shards:
                    shard.best = BestWeights()
            return super().call(method, *others, **named)

    def make() -> Any:
        base = loca.MultVAE(**VAE | {"epochs": 20, "learning_rate": 0.1})
        return loca.Loca(base=base, communities=loca.Mixtures(n=4))

    alone = fit(make, planted_split)
    assert alone.local_.models.epochs_ < 20
    assert_same(fit(make, planted_split, Forgetful(tmp_path / "work")), alone, planted_split)


class Personal(loca.EASE):
    """A model of a user's own."""


@pytest.mark.parametrize("engine", [loca.Loop(), SMALL_DIFFERENCES])
def test_models_of_a_user_can_be_trained_in_shards(
    engine: loca.Engine, planted_split: Split, tmp_path: Path
) -> None:
    def make() -> Any:
        base = Personal(l2=20.0)
        return loca.Loca(base=base, communities=loca.Mixtures(n=4), engine=engine)

    model = fit(make, planted_split, ShardExecutor(tmp_path))
    assert_same(model, fit(make, planted_split), planted_split)
    for part in model.local_.models.parts_:
        for name, inner in parts_of(part).items():
            assert name == "differences" or type(inner) is Personal


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """A value of a user's own."""

    factor: float = 2.0


@dataclass(kw_only=True, eq=False, repr=False)
class Around(loca.EASE):
    """A model of a user's own with another model and a value among its parameters."""

    inner: Any = field(default_factory=Personal)
    values: tuple[Scaled, ...] = (Scaled(),)


def test_the_kinds_of_a_job_are_all_those_that_a_model_is_made_of() -> None:
    kinds = kinds_of(Around())
    assert [kinds[name] for name in ("Around", "Personal", "Scaled")] == [Around, Personal, Scaled]
    assert kinds["SeparateModels"].__name__ == "SeparateModels"


@dataclass(frozen=True, kw_only=True)
class Sharper(loca.Loop):
    """An engine of a user's own, with a centre that it looks at."""

    has_centre: ClassVar[bool] = True

    def prepared(self, fits: loca.ManyFits) -> loca.ManyFits:
        return fits if fits.centre is not None else replace(fits, centre=fits.global_model)

    def solve(self, fits: loca.ManyFits) -> Any:
        centre: Any = self.prepared(fits).centre
        factor = float(np.abs(centre.weights_).max())
        models = [clone(model, l2=model.l2 * (1 + factor)) for model in fits.models]
        return super().solve(replace(fits, models=models))


@dataclass(frozen=True, kw_only=True)
class InItsOwnWay(loca.Loop):
    """An engine of a user's own, which trains in another way."""

    def train(self, fits: loca.ManyFits, validate: Any = None) -> Any:
        return super().train(fits, validate)


def test_an_engine_of_a_user_trains_in_shards_what_it_begins_and_solves(
    planted_split: Split, tmp_path: Path
) -> None:
    def make(engine: loca.Engine) -> Any:
        base = loca.EASE(l2=20.0)
        return loca.Loca(base=base, communities=loca.Mixtures(n=4), engine=engine)

    model = fit(lambda: make(Sharper()), planted_split, ShardExecutor(tmp_path / "work"))
    assert_same(model, fit(lambda: make(Sharper()), planted_split), planted_split)
    line = "executor: InItsOwnWay trains in a way of its own, which cannot be spread over shards"
    with pytest.raises(ConfigError, match=line):
        fit(lambda: make(InItsOwnWay()), planted_split, ShardExecutor(tmp_path / "work"))


def test_finished_shards_stay_until_the_work_has_ended_well(
    planted_split: Split, tmp_path: Path
) -> None:
    """A model that could not be saved need not be trained again."""
    make, given = (
        CASES["networks of mixtures"],
        {"fingerprint": {"data": "planted"}, "seconds_between": 0.0},
    )
    calls: list[str] = []

    class Counting(ShardExecutor):
        def call(self, method: str, *others: Any, **named: Any) -> Any:
            calls.append(method)
            return super().call(method, *others, **named)

    for resume in (False, True):
        calls.clear()
        with (
            pytest.raises(OSError, match="full") if not resume else nullcontext(),
            loca.checkpoint_in(tmp_path / "driver", resume=resume, **given) as context,
        ):
            model = make().fit(
                planted_split.train,
                validation=planted_split.validation,
                context=replace(context, executor=Counting(tmp_path / "work")),
            )
            if not resume:
                del model
                raise OSError("the disk is full")
            model.save(tmp_path / "m")
    assert calls == ["finish"]
    assert not list((tmp_path / "work").iterdir())
    assert_same(loca.load(tmp_path / "m", verify=True), fit(make, planted_split), planted_split)


def test_a_saved_model_takes_over_no_other_file(planted_split: Split, tmp_path: Path) -> None:
    model = fit(CASES["EASEs of mixtures"], planted_split, ShardExecutor(tmp_path / "work"))
    shard = model.local_.models.parts_[0]
    part = shard.saved_in_.folder
    manifest = (part / "model.json").read_bytes()
    (tmp_path / "secret.safetensors").write_bytes(b"secret")
    body = open_sealed(manifest, FORMAT, VERSION)
    arrays = next(one["arrays"] for one in body["model"]["parts"].values())
    arrays["file"] = "../../../secret.safetensors"
    (part / "model.json").write_bytes(sealed_json(FORMAT, VERSION, body))
    shard.saved_in_ = SavedAt.of(part)
    with pytest.raises(ModelFileError, match="is not a data file of a loca model"):
        model.save(tmp_path / "m")


def test_only_jobs_of_a_folder_are_removed(tmp_path: Path) -> None:
    (tmp_path / "work" / "job-1").mkdir(parents=True)
    (tmp_path / "work" / "thesis").mkdir()
    (tmp_path / "elsewhere" / "job-2").mkdir(parents=True)
    (tmp_path / "work" / "job-3").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for one in ("work", "link", "nothing"):
        remove_jobs(tmp_path / one)
    assert (tmp_path / "elsewhere" / "job-2").exists()
    assert sorted(one.name for one in (tmp_path / "work").iterdir()) == ["job-3", "thesis"]


def test_what_cannot_be_spread_is_refused(planted_split: Split, tmp_path: Path) -> None:
    engine = StopEach()
    local = loca.Loca(base=loca.MultVAE(**VAE), communities=loca.Kernels(n=3), engine=engine)
    with pytest.raises(ConfigError, match="executor: StopEach cannot be spread over shards"):
        fit(lambda: local, planted_split, ShardExecutor(tmp_path))
    with pytest.raises(ConfigError, match="shards: expected a whole number"):
        ShardExecutor(tmp_path, shards=0)
    size = DataSize.of(planted_split.train.matrix())
    with pytest.raises(ConfigError, match="shards: EASE is one model"):
        plan_shards(loca.EASE(), size, 2)


def test_parts_of_a_stranger_are_refused() -> None:
    for parts, count in (
        ({}, 1),
        ({"parts 1": loca.EASE()}, 1),
        ({"parts 0": loca.EASE()}, 1),
    ):
        with pytest.raises(ModelFileError, match=r"^ShardedModels: parts"):
            restored(ShardedModels, {}, ModelState(facts={"parts count": count}, parts=parts))
