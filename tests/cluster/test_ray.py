"""Shards and tasks on Ray, started here: the numbers of one machine, with processes killed on the way."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loca
from loca.data.splits import Split
from loca.errors import ConfigError, LocaError
from loca.experiments.comparison import compare
from loca.search_space import Among, Budget, Space
from loca.tuning.study import Tuner

os.environ["RAY_memory_monitor_refresh_ms"] = "0"  # noqa: SIM112  # it ends processes where others fill the machine
ray = pytest.importorskip("ray", reason="ray is an extra: pip install 'loca[cluster]'")

from loca.cluster.ray_executor import RayExecutor  # noqa: E402
from loca.cluster.tasks import recommend_to_parts, workers_on  # noqa: E402

VAE = {"latent": 8, "epochs": 12, "patience": 12, "evaluate_every": 2, "learning_rate": 5e-3}


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    begin()
    yield
    ray.shutdown()


def begin() -> None:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)


def make() -> loca.Loca:
    return loca.Loca(base=loca.MultVAE(**VAE), communities=loca.Mixtures(n=6))


def kill(name: str) -> int:
    """Kill a process of Ray's; its id, 0 where there is none."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_one = (process / "cmdline").read_bytes().startswith(name.encode())
        except OSError:
            continue
        if is_one:
            os.kill(int(process.name), signal.SIGKILL)
            return int(process.name)
    return 0


def kill_soon(name: str, killed: list[int]) -> None:
    """Kill the first process of that name that comes up."""

    def wait() -> None:
        while not killed:
            killed.extend(filter(None, [kill(name)]))
            time.sleep(0.01)

    threading.Thread(target=wait, daemon=True).start()


def test_a_killed_actor_goes_on_and_the_numbers_stay(planted_split: Split, tmp_path: Path) -> None:
    alone, killed = (
        make().fit(planted_split.train, validation=planted_split.validation),
        list[int](),
    )

    class Kill:
        def on_epoch(self, part: str, epoch: int, score: float) -> None:
            if part == "" and epoch in (10, 12):
                killed.append(kill("ray::Shard"))

    executor = RayExecutor(tmp_path / "work", shards=2)
    model = make().fit(
        planted_split.train,
        validation=planted_split.validation,
        callbacks=[Kill()],
        context=loca.FitContext(executor=executor),
    )
    assert all(killed)
    assert len(killed) == 2
    assert model.local_.models.epochs_ == alone.local_.models.epochs_
    assert model.local_.combiner == alone.local_.combiner
    rows = planted_split.test.history_matrix
    np.testing.assert_allclose(model.score(rows), alone.score(rows), atol=1e-5)


def test_without_room_for_a_shard_a_fit_ends_in_one_line(
    planted_split: Split, tmp_path: Path
) -> None:
    executor = RayExecutor(tmp_path / "work", shards=3, wait_seconds=3)
    # On a busy machine no process comes up in time.
    line = r"^shard [0-2](, [0-2])*: no process for 3 s; each needs 1 cores: add machines"
    with pytest.raises(LocaError, match=line):
        make().fit(
            planted_split.train,
            validation=planted_split.validation,
            context=loca.FitContext(executor=executor),
        )
    assert not list((tmp_path / "work").iterdir())


def test_a_cluster_that_is_not_there_is_refused_at_once(
    planted_split: Split, tmp_path: Path
) -> None:
    ray.shutdown()
    try:
        for address, line in (
            ("127.0.0.1:9", "cluster 127.0.0.1:9: nobody answers"),
            ("nowhere", "cluster nowhere: expected auto, local or an address such as host:6379"),
        ):
            with pytest.raises(LocaError, match=line):
                make().fit(
                    planted_split.train,
                    context=loca.FitContext(
                        executor=RayExecutor(tmp_path / "work", address=address)
                    ),
                )
        assert not list((tmp_path / "work").iterdir())
    finally:
        begin()


def test_a_mistake_in_a_shard_is_the_mistake_of_the_fit(
    planted_split: Split, tmp_path: Path
) -> None:
    class Emptied(RayExecutor):
        def open(self, job: Any) -> None:
            for one in job.storage().folder.iterdir():
                one.unlink()
            super().open(job)

    with pytest.raises(
        LocaError, match="the work of shard 0 is not there; does every machine see this storage"
    ):
        make().fit(
            planted_split.train,
            context=loca.FitContext(executor=Emptied(tmp_path / "work", shards=1)),
        )


def test_a_comparison_over_workers_has_the_table_of_one_process(
    planted_split: Split, tmp_path: Path
) -> None:
    models = {
        "popularity": loca.Popularity(),
        "ease": loca.EASE(),
        "mult-vae": loca.MultVAE(**VAE | {"epochs": 150}),
    }
    alone, killed = compare(models, planted_split), list[int]()
    kill_soon("ray::_live", killed)
    found = compare(
        models,
        planted_split,
        processes=2,
        start_worker=workers_on("local"),
        keep_in=tmp_path / "runs",
    )
    assert killed
    assert found.failed == {}
    for one, other in zip(found.measured, alone.measured, strict=True):
        assert one.name == other.name
        for metric, values in other.evaluation.values.items():
            np.testing.assert_allclose(one.evaluation.values[metric], values, atol=1e-6)


def test_a_study_goes_on_when_its_worker_is_killed(planted_split: Split, tmp_path: Path) -> None:
    assert planted_split.validation is not None
    data, space = (
        (planted_split.train, planted_split.validation),
        Space({"latent": Among((4, 6, 8, 10, 12, 16))}),
    )
    start, base = workers_on("local"), loca.MultVAE(**VAE | {"epochs": 60, "patience": 60})
    tuner = Tuner("mult-vae", base, *data, space, Budget(trials=4), processes=2, start_worker=start)
    with pytest.raises(ConfigError, match="workers of a cluster need a file"):
        tuner.tune()
    killed = list[int]()

    class Killing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "trial" in record.getMessage() and not killed:
                kill_soon("ray::_live", killed)

    handler, logger = Killing(), logging.getLogger("loca")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        found = tuner.tune(tmp_path / "study.db")
    finally:
        logger.removeHandler(handler)
    assert killed
    assert found.finished == 4
    assert found.failed <= 1  # the trial that was under way, if one was


def test_every_user_is_listed_once_though_a_worker_is_killed(
    planted_split: Split, tmp_path: Path
) -> None:
    import polars

    model = loca.EASE().fit(planted_split.train)
    model.save(tmp_path / "m")

    killed = list[int]()
    kill_soon("ray::_write_part", killed)
    written = recommend_to_parts(tmp_path / "m", tmp_path / "lists", 5, parts=40, address="local")
    assert killed
    assert (written.users, written.users_without_items, written.rows) == (400, 0, 2000)
    found = polars.read_parquet(tmp_path / "lists" / "*.parquet").sort("user", "rank")
    assert found.select("user", "item").equals(
        model.recommend(planted_split.train, 5)
        .to_polars()
        .sort("user", "rank")
        .select("user", "item")
    )
