"""Trials in worker processes: they share the budget and the study, one that dies is replaced, Ctrl-C ends all."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from tuning_models import Slope

import loca.experiments.trial_workers as trial_workers
from loca.data.held_out import Split
from loca.errors import ConfigError
from loca.experiments.spaces import Reals, Space
from loca.experiments.trials import Outcome
from loca.experiments.tuning import Tuning, TuningBudget, tune


def tune_slope(split: Split, study: Path | None, trials: int = 6, **params: Any) -> Tuning:
    assert split.validation is not None
    return tune(
        "slope",
        Slope(**params),
        split.train,
        split.validation,
        budget=TuningBudget(trials=trials),
        space=Space({"share": Reals(0.0, 1.0)}),
        study=study,
        processes=2,
    )


def test_processes_share_the_trials_and_one_that_dies_fails_its_trial_and_is_replaced(
    planted_split: Split, tmp_path: Path
) -> None:
    diary = tmp_path / "diary"
    found = tune_slope(planted_split, tmp_path / "s.db", share=0.2, trouble="one death", diary=str(diary))
    assert (found.finished, found.failed) == (6, 1)
    assert len(diary.read_text().splitlines()) == 7
    assert multiprocessing.active_children() == []
    assert {one.name for one in tmp_path.iterdir()} == {"s.db", "diary"}


def test_ctrl_c_ends_all_processes_and_the_study_stays(
    planted_split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = trial_workers.Workers.wait

    def wait(self: trial_workers.Workers) -> list[tuple[int, Outcome]]:
        ended = real(self)
        if any(number >= 2 for number, _ in ended):
            raise KeyboardInterrupt
        return ended

    with monkeypatch.context() as patched:
        patched.setattr(trial_workers.Workers, "wait", wait)
        with pytest.raises(KeyboardInterrupt):
            tune_slope(planted_split, tmp_path / "s.db")
    assert multiprocessing.active_children() == []
    monkeypatch.setattr(trial_workers.Workers, "begin", lambda *given: pytest.fail("there is nothing left to do"))
    found = tune_slope(planted_split, tmp_path / "s.db", trials=1)
    assert 1 <= found.finished < 6
    assert found.failed == 0


class Ended:
    """A process that has ended before it was ready."""

    exitcode = 7

    def join(self) -> None: ...


def test_a_process_that_cannot_start_is_told_of() -> None:
    ours, theirs = multiprocessing.Pipe()
    theirs.close()
    nothing: Any = None
    several = trial_workers.Workers(nothing, nothing, 1, [trial_workers._Worker(Ended(), ours)])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"a worker process could not start \(exit code 7\)"):
        several.wait()
