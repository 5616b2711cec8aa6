"""Trials in worker processes: they share the budget and the study, one that dies is replaced, Ctrl-C ends all."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from tuning_models import Slope

import loca.tuning.study as trial_workers
from loca.data.splits import Split
from loca.errors import ConfigError
from loca.search_space import Range, Space
from loca.tuning.study import Budget, Outcome, Tuning, tune
from loca.tuning.workers import Worker


def tune_slope(split: Split, study: Path | None, trials: int = 6, **params: Any) -> Tuning:
    assert split.validation is not None
    return tune(
        "slope",
        Slope(**params),
        split.train,
        split.validation,
        budget=Budget(trials=trials),
        space=Space({"share": Range(0.0, 1.0)}),
        study=study,
        processes=2,
    )


def test_one_that_dies_is_replaced_and_ctrl_c_ends_all_and_the_study_stays(
    planted_split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, ends = trial_workers.Workers.wait, list[Outcome]()

    def wait(self: trial_workers.Workers) -> list[tuple[int, Outcome]]:
        ended = real(self)
        ends.extend(outcome for _, outcome in ended)
        if sum(one.state == "finished" for one in ends) >= 4:
            raise KeyboardInterrupt
        return ended

    study, diary = tmp_path / "s.db", tmp_path / "diary"
    given = {"share": 0.2, "trouble": "one death", "diary": str(diary)}
    with monkeypatch.context() as patched:
        patched.setattr(trial_workers.Workers, "wait", wait)
        with pytest.raises(KeyboardInterrupt):
            tune_slope(planted_split, study, **given)
    assert multiprocessing.active_children() == []
    assert [one.reason for one in ends if one.state == "failed"] == ["its process ended with code 3"]
    assert len(diary.read_text().splitlines()) >= 5
    assert {one.name for one in tmp_path.iterdir()} == {"s.db", "diary"}
    monkeypatch.setattr(trial_workers.Workers, "begin", lambda *given: pytest.fail("there is nothing left to do"))
    found = tune_slope(planted_split, study, trials=1, **given)
    assert 3 <= found.finished < 6
    assert found.failed == 1


class Ended:
    """A process that has ended before it was ready."""

    exitcode = 7

    def join(self, seconds: float | None = None) -> None: ...

    def terminate(self) -> None: ...

    def is_alive(self) -> bool:
        return False


def test_a_process_that_cannot_start_is_told_of() -> None:
    ours, theirs = multiprocessing.Pipe()
    theirs.close()
    nothing: Any = None
    worker = Worker(Ended(), ours)  # type: ignore[arg-type]
    several = trial_workers.Workers(nothing, nothing, 1, [trial_workers._Busy(worker)])
    with pytest.raises(ConfigError, match=r"a worker process could not start \(exit code 7\)"):
        several.wait()
