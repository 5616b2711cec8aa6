"""`loca fit` killed and resumed: finished candidates are not repeated, and the end is that of an unbroken run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command_calls import DRIFTING, TINY, Call, environment

import loca
from loca.cli.main import main
from loca.cluster.executor import ShardExecutor
from loca.models.ease import EASE
from loca.persistence.checkpoint import Checkpoint, file_name_of

NETWORK = (
    "--model",
    "mult-vae",
    "--set",
    "epochs=12",
    "--set",
    "batch_size=20",
    "--choose",
    "latent=5,9,3",
)
EASES = ("--model", "ease", "--choose", "l2=10,100,1000")


def fit(folder: Path, *more: object) -> tuple[object, ...]:
    return ("fit", "planted", *TINY, "--out", folder, "--json", *more)


def numbers(text: str) -> dict[str, Any]:
    """All that a fit says, its time and place aside."""
    said = json.loads(text)
    return {name: value for name, value in said.items() if name not in ("seconds", "folder")}


def scores(folder: Path) -> np.ndarray:
    model = loca.load(folder)
    assert model.train_data_ is not None
    return model.score(model.train_data_.histories())


def kill_once_kept(arguments: tuple[object, ...], kept: Path) -> None:
    """Runs a command in a process of its own and kills it as soon as a file is there."""
    command = [sys.executable, "-m", "loca", *(str(one) for one in arguments)]
    process = subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while not kept.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    out, err = process.communicate()
    assert process.returncode == -signal.SIGKILL, (out, err)
    assert kept.exists()


def test_a_killed_command_goes_on_where_it_was(call: Call, tmp_path: Path) -> None:
    settings = (*NETWORK, "--checkpoint-every", "0")
    unbroken = call(*fit(tmp_path / "unbroken", *settings))
    kill_once_kept(
        fit(tmp_path / "m", *settings), tmp_path / "m.unfinished" / file_name_of("candidate 0")
    )
    assert not (tmp_path / "m").exists()
    resumed = call(*fit(tmp_path / "m", *settings, "--resume"))
    assert numbers(resumed.out) == numbers(unbroken.out)
    assert np.array_equal(scores(tmp_path / "m"), scores(tmp_path / "unbroken"))
    assert [one.name for one in tmp_path.iterdir() if one.name.endswith("unfinished")] == []
    assert len({one["validation"] for one in numbers(resumed.out)["tried"]}) == 3


def run_and_kill_after(
    keeps: int, arguments: tuple[object, ...], out: Path, named: str = ""
) -> int:
    """How a forked child ended that runs a command and kills itself once it has kept its work so many times.

    Only work with a certain word in its name counts.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    real, kept = Checkpoint.save, []

    def keep(*given: Any) -> None:
        real(*given)
        if named in given[0]._prefix + given[1]:
            kept.append(given)
        if len(kept) == keeps:
            os.kill(os.getpid(), signal.SIGKILL)

    Checkpoint.save = keep  # type: ignore[method-assign]
    with open(out, "w") as sys.stdout:
        code = main([str(one) for one in arguments])
    os._exit(code)


@pytest.mark.parametrize("refit", ["--refit", "--no-refit"])
def test_a_fit_killed_again_and_again_ends_as_an_unbroken_one(
    call: Call, tmp_path: Path, refit: str
) -> None:
    settings = (*NETWORK, refit, "--checkpoint-every", "0")
    unbroken = call(*fit(tmp_path / "unbroken", *settings))
    ends = []
    for keeps in range(1, 30):
        ends.append(
            run_and_kill_after(keeps, fit(tmp_path / "m", *settings, "--resume"), tmp_path / "said")
        )
        if ends[-1] == 0:
            break
    assert len(ends) > 2
    assert ends == [-signal.SIGKILL] * (len(ends) - 1) + [0]
    assert numbers((tmp_path / "said").read_text()) == numbers(unbroken.out)
    assert np.array_equal(scores(tmp_path / "m"), scores(tmp_path / "unbroken"))


@pytest.mark.parametrize("refit", ["--refit", "--no-refit"])
def test_a_fit_that_chooses_its_recency_is_killed_and_resumed(
    call: Call, tmp_path: Path, refit: str
) -> None:
    settings = (*DRIFTING, "--model", "ease", "--choose", "l2=50,200", "--recency", "auto", refit)
    unbroken = call(*fit(tmp_path / "unbroken", *settings))
    assert (
        run_and_kill_after(1, fit(tmp_path / "m", *settings), tmp_path / "said") == -signal.SIGKILL
    )
    resumed = call(*fit(tmp_path / "m", *settings, "--resume"))
    assert numbers(resumed.out) == numbers(unbroken.out)
    assert numbers(resumed.out)["recency"] is not None
    assert np.array_equal(scores(tmp_path / "m"), scores(tmp_path / "unbroken"))


class Pulled(Exception):
    """The plug, pulled before the fit of a given number."""


def pull_the_plug(monkeypatch: pytest.MonkeyPatch, before: int) -> list[float]:
    """Lets EASE fit so many times and then break; gives the l2 of every fit that was begun."""
    begun: list[float] = []
    real = EASE.fit

    def counted(model: EASE, *data: Any, **more: Any) -> EASE:
        if len(begun) == before:
            raise Pulled
        begun.append(model.l2)
        return real(model, *data, **more)

    monkeypatch.setattr(EASE, "fit", counted)
    return begun


@pytest.mark.parametrize("refit", ["--refit", "--no-refit"])
@pytest.mark.parametrize("finished", [1, 2, 3])
def test_no_candidate_is_fitted_twice_but_the_best_where_it_is_not_refitted(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: int, refit: str
) -> None:
    unbroken = numbers(call(*fit(tmp_path / "unbroken", *EASES, refit)).out)
    ask = fit(tmp_path / "m", *EASES, refit)
    with monkeypatch.context() as patched:
        pull_the_plug(patched, finished)
        if refit == "--no-refit" and finished == 3:
            patched.setattr(EASE, "save", pull_at_once)
        with pytest.raises(Pulled):
            call(*ask)
    with monkeypatch.context() as patched:
        begun = pull_the_plug(patched, 99)
        resumed = numbers(call(*ask, "--resume").out)
    assert resumed == unbroken
    best = unbroken["parameters"]["l2"]
    left = [10.0, 100.0, 1000.0][finished:]
    was_finished = best not in left
    assert begun == [*left, *([best] if refit == "--refit" or was_finished else [])]
    assert np.array_equal(scores(tmp_path / "m"), scores(tmp_path / "unbroken"))


def pull_at_once(*arguments: object) -> None:
    raise Pulled


@pytest.fixture
def unfinished(call: Call, tmp_path: Path, ratings: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fit of the ratings, interrupted after two of three candidates."""
    with monkeypatch.context() as patched:
        pull_the_plug(patched, 2)
        with pytest.raises(Pulled):
            call("fit", ratings, *EASES, "--quiet", "--out", tmp_path / "m")
    return tmp_path / "m.unfinished"


def contents(folder: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in folder.iterdir()}


def test_unfinished_work_is_refused_resumed_or_dropped(
    call: Call, ratings: Path, unfinished: Path
) -> None:
    ask = ("fit", ratings, *EASES, "--out", unfinished.with_name("m"))
    before = contents(unfinished)
    assert call(*ask).mistake == (
        f"{unfinished} holds unfinished work of an earlier run; add --resume to go on with it, or --fresh to start over"
    )
    assert contents(unfinished) == before
    done = call(*ask, "--resume")
    assert f"going on with the unfinished work in {unfinished}" in done.err
    assert not unfinished.exists()
    again = call(*ask, "--resume")
    assert "no unfinished work to go on with; this run starts from the beginning" in again.err
    assert again.out == done.out


def test_fresh_starts_over(call: Call, ratings: Path, unfinished: Path) -> None:
    done = call(
        "fit",
        ratings,
        "--model",
        "popularity",
        "--quiet",
        "--out",
        unfinished.with_name("m"),
        "--fresh",
    )
    assert done.code == 0
    assert not unfinished.exists()


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        (("--choose", "l2=10,100,300"), "candidate 2.l2: 1000.0 then, 300.0 now"),
        (("--set", "l2=10"), "candidates: 3 then, 1 now"),
        (("--model", "popularity"), "fit.model: ease then, popularity now"),
        (("--validation", "3"), "validation: 2 then, 3 now"),
        (("--no-refit",), "fit.refit: True then, False now"),
        (("--seed", "5"), "fit.seed: 0 then, 5 now"),
        (("--recency", "auto"), "recency: own then, auto now"),
        (("--recency", "4"), "recency: own then, half-life 4 positions now"),
    ],
)
def test_a_changed_setting_is_refused_and_nothing_is_lost(
    call: Call, ratings: Path, unfinished: Path, changes: tuple[str, ...], difference: str
) -> None:
    before = contents(unfinished)
    settings = {
        "--model": "ease",
        "--choose": "l2=10,100,1000",
        **dict(zip(changes[::2], changes[1::2], strict=False)),
    }
    if "--set" in changes or settings["--model"] != "ease":
        del settings["--choose"]
    flags = changes if len(changes) == 1 else ()
    asked = [word for pair in settings.items() for word in pair]
    mistake = call(
        "fit", ratings, *asked, *flags, "--quiet", "--out", unfinished.with_name("m"), "--resume"
    ).mistake
    assert mistake == (
        f"{unfinished} holds unfinished work that cannot go on: {difference}; finish it with the settings and data it "
        "was begun with, or start over with --fresh"
    )
    assert contents(unfinished) == before


def test_one_candidate_is_named_without_its_number(
    call: Call, tmp_path: Path, ratings: Path
) -> None:
    ask = (
        "fit",
        ratings,
        "--model",
        "loca-ease",
        "--set",
        "communities.n=2",
        "--quiet",
        "--out",
        tmp_path / "m",
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loca.Loca, "save", pull_at_once)
        with pytest.raises(Pulled):
            call(*ask, "--set", "base.l2=100")
    assert (
        "cannot go on: base.l2: 100.0 then, 300.0 now;"
        in call(*ask, "--set", "base.l2=300", "--resume").mistake
    )


def test_changed_data_are_refused_and_nothing_is_lost(
    call: Call, ratings: Path, unfinished: Path
) -> None:
    before = contents(unfinished)
    ratings.write_text(ratings.read_text().replace("u3,", "u33,"))
    mistake = call(
        "fit", ratings, *EASES, "--quiet", "--out", unfinished.with_name("m"), "--resume"
    ).mistake
    assert "cannot go on: the data have changed; finish it with" in mistake
    assert contents(unfinished) == before


def test_another_version_of_loca_is_refused(
    call: Call, ratings: Path, unfinished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = loca.__version__
    monkeypatch.setattr(loca, "__version__", "99.0", raising=False)
    mistake = call(
        "fit", ratings, *EASES, "--quiet", "--out", unfinished.with_name("m"), "--resume"
    ).mistake
    assert f"it was written by loca {now}, this is loca 99.0" in mistake


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--resume", "--fresh"), "expected one of them, found both"),
        (("--checkpoint-every", "-1"), "--checkpoint-every: expected seconds ≥ 0, found -1"),
        (("--checkpoint-every", "nan"), "--checkpoint-every: expected seconds ≥ 0, found nan"),
        (("--checkpoint-every", "often"), "Invalid value for '--checkpoint-every'"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_data_are_read(
    call: Call, tmp_path: Path, options: tuple[str, ...], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "loca.cli.options.planted_communities", lambda **given: pytest.fail("data was read")
    )
    assert line in call("fit", "planted", "--out", tmp_path / "m", *options).mistake
    assert os.listdir(tmp_path) == []


def test_a_folder_of_something_else_in_the_place_of_unfinished_work_is_not_touched(
    call: Call, tmp_path: Path
) -> None:
    (tmp_path / "m.unfinished").mkdir()
    (tmp_path / "m.unfinished" / "thesis.tex").write_text("years of work")
    for option in ("--resume", "--fresh", "--quiet"):
        mistake = call("fit", "planted", "--out", tmp_path / "m", option).mistake
        assert (
            "not unfinished work of loca's (it holds 'thesis.tex'); nothing was touched" in mistake
        )
    assert (tmp_path / "m.unfinished" / "thesis.tex").read_text() == "years of work"


def test_a_mistake_leaves_no_folder_of_unfinished_work(
    call: Call, tmp_path: Path, ratings: Path
) -> None:
    ask = ("fit", ratings, "--model", "ease", "--quiet", "--out", tmp_path / "m")
    assert call(*ask, "--validation", "0", "--choose", "l2=1,2").code == 2
    assert call(*ask, "--validation", "20").code == 2
    assert call(*ask).code == 0
    assert {one.name for one in tmp_path.iterdir()} == {"m", "ratings.csv"}


def test_a_folder_named_by_dots_has_its_unfinished_work_beside_it(
    call: Call, tmp_path: Path, ratings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    ratings.rename(tmp_path / "other.csv")
    monkeypatch.chdir(tmp_path / "deep" / "er")
    with monkeypatch.context() as patched:
        patched.setattr(EASE, "save", pull_at_once)
        with pytest.raises(Pulled):
            call("fit", tmp_path / "other.csv", "--model", "ease", "--quiet", "--out", ".")
    assert (tmp_path / "deep" / "er.unfinished" / "fingerprint.json").exists()
    assert (
        call(
            "fit", tmp_path / "other.csv", "--model", "ease", "--quiet", "--out", ".", "--resume"
        ).code
        == 0
    )
    assert sorted(one.name for one in (tmp_path / "deep").iterdir()) == ["er"]


NETWORKS = (
    "--model",
    "mixture-vae",
    "--set",
    "communities.n=4",
    "--set",
    "base.epochs=6",
    "--set",
    "base.latent=4",
)
IN_SHARDS = ("--cluster", "local", "--shards", "2")


@pytest.fixture
def threads_for_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards in threads of this process where a command would have Ray's."""

    class Threads(ShardExecutor):
        def __init__(
            self, storage: str, *, shards: int = 2, checkpoint_every: float = 0.0, **_: Any
        ) -> None:
            super().__init__(storage, shards=shards, checkpoint_every=checkpoint_every)

    monkeypatch.setitem(
        sys.modules, "loca.cluster.ray_executor", SimpleNamespace(RayExecutor=Threads)
    )


@pytest.mark.usefixtures("threads_for_ray")
@pytest.mark.parametrize("refit", ["--refit", "--no-refit"])
def test_a_fit_in_shards_killed_again_and_again_ends_as_one_of_one_process(
    refit: str, call: Call, tmp_path: Path
) -> None:
    alone = call(*fit(tmp_path / "alone", *NETWORKS, refit))
    out, ends = tmp_path / "m", []
    for keeps in (1, 2, 3, 4, 5, 99):
        asked = fit(
            out,
            *NETWORKS,
            refit,
            *IN_SHARDS,
            "--checkpoint-every",
            "0",
            *(("--resume",) if ends else ()),
        )
        ends.append(run_and_kill_after(keeps, asked, tmp_path / "said", "shard"))
    assert ends == [-signal.SIGKILL] * 5 + [0]
    assert numbers((tmp_path / "said").read_text()) == numbers(alone.out)
    np.testing.assert_allclose(scores(out), scores(tmp_path / "alone"), atol=1e-5)
    assert sorted(one.name for one in tmp_path.iterdir() if one.name.startswith("m")) == ["m"]


@pytest.mark.usefixtures("threads_for_ray")
def test_a_fit_in_shards_may_be_begun_afresh_or_go_on_without_them(
    call: Call, tmp_path: Path
) -> None:
    alone = call(*fit(tmp_path / "alone", *NETWORKS))
    for number, then in enumerate((["--fresh", *IN_SHARDS], ["--resume"])):
        out = tmp_path / f"m{number}"
        asked = fit(out, *NETWORKS, *IN_SHARDS, "--checkpoint-every", "0")
        assert run_and_kill_after(5, asked, tmp_path / "said", "shard") == -signal.SIGKILL
        assert len(list((tmp_path / f"m{number}.cluster").iterdir())) == 1
        assert numbers(call(*fit(out, *NETWORKS, *then)).out) == numbers(alone.out)
        assert not (tmp_path / f"m{number}.cluster").exists()
    # And the other way round: what one process has learned is learned again by shards.
    asked = fit(tmp_path / "m2", *NETWORKS, "--checkpoint-every", "0")
    assert run_and_kill_after(2, asked, tmp_path / "said", "local models") == -signal.SIGKILL
    assert numbers(call(*fit(tmp_path / "m2", *NETWORKS, "--resume", *IN_SHARDS)).out) == numbers(
        alone.out
    )


@pytest.mark.usefixtures("threads_for_ray")
def test_what_is_one_model_is_not_spread(call: Call, tmp_path: Path) -> None:
    refused = call("fit", "planted", "--model", "ease", "--out", tmp_path / "m", *IN_SHARDS)
    assert (
        refused.mistake
        == "--cluster: ease is one model; take loca-… or ensemble-…, or leave it out"
    )
    refused = call(
        "fit",
        "planted",
        "--model",
        "loca-ease",
        "--out",
        tmp_path / "m",
        *IN_SHARDS,
        "--storage",
        "no://x",
    )
    assert refused.mistake == "storage no://x: cannot be read or written (Protocol not known: no)"
    (tmp_path / "file").touch()
    refused = call(
        "fit", "planted", "--out", tmp_path / "m", *IN_SHARDS, "--storage", tmp_path / "file" / "x"
    )
    assert (
        refused.mistake
        == f"storage {tmp_path / 'file' / 'x'}: cannot be read or written (Not a directory)"
    )
    refused = call(
        "fit", "planted", "--model", "loca-ease", "--out", tmp_path / "m", "--shards", "3"
    )
    assert refused.mistake == "--shards: is for --cluster"
    assert not [one for one in tmp_path.iterdir() if one.name != "file"]
