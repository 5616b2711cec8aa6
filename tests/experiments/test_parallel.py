"""Models computed side by side give the numbers of one process, and one that fails does not cost the others."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import loca.experiments.comparison as comparison
from loca.communities.kernel import Kernels
from loca.data.splits import Split
from loca.errors import ConfigError, LocaError
from loca.experiments.comparison import compare
from loca.experiments.parallel import RunPlan, execute_parallel
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.models.popularity import Popularity
from loca.search_space import Budget


class Doomed(Popularity):
    """A model that ends badly in one of several ways."""

    def __init__(self, *, way: str = "dies") -> None:
        super().__init__()
        self.way = way

    def fit(self, *data: Any, **more: Any) -> Any:
        if self.way == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.way == "refuses":
            raise LocaError("this cannot\nbe done")
        raise ZeroDivisionError("a mistake in the program")


def test_two_processes_give_the_numbers_of_one(
    planted_split: Split, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models = {
        "ensemble-ease": Ensemble(base=EASE(), models=3),
        "loca-ease": Loca(base=EASE(), communities=Kernels(n=3)),
        "ease": EASE(),
    }
    given: dict[str, Any] = {"at": (5, 20), "budget": Budget(trials=3), "seed": 2}
    with threadpool_limits(limits=1):
        alone = compare(models, planted_split, **given)
        compare({"ease": EASE()}, planted_split, keep_in=tmp_path, **given)
    with caplog.at_level(logging.INFO, "loca"):
        several = compare(models, planted_split, processes=2, keep_in=tmp_path, **given)
    for ours, theirs in zip(several.measured, alone.measured, strict=True):
        assert ours.parameters == theirs.parameters
        assert ours.settings == theirs.settings
        for metric, values in theirs.evaluation.values.items():
            assert np.array_equal(ours.evaluation.values[metric], values)
    assert several.differences == alone.differences
    ease, local, control = (
        several.of(name).parameters for name in ("ease", "loca-ease", "ensemble-ease")
    )
    assert ease["l2"] == local["base.l2"] == control["base.l2"] != EASE().l2
    assert control["models"] == local["communities.n"]
    assert "ease: finished before" in caplog.text
    assert "loca-ease: trial 2: " in caplog.text
    assert "loca-ease: finished in " in caplog.text
    assert sorted(one.name for one in (tmp_path / "studies").iterdir()) == [
        "ease.db",
        "ensemble-ease.db",
        "loca-ease.db",
    ]


def test_a_process_that_fails_is_named_and_the_others_are_stored(
    planted_split: Split, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models = {
        "dying": Doomed(),
        "wrong": Doomed(way="errs"),
        "refused": Doomed(way="refuses"),
        "ease": EASE(),
    }
    stored = compare({"ease": EASE()}, planted_split, at=(5,), keep_in=tmp_path)
    with caplog.at_level(logging.INFO, "loca"):
        found = compare(
            models, planted_split, at=(5,), processes=2, keep_in=tmp_path, control="dying"
        )
    assert [one.name for one in found.measured] == ["ease"]
    assert found.of("ease").seconds == stored.of("ease").seconds, "it was not computed again"
    assert found.failed == {
        "dying": "its process was ended by signal 9, perhaps because the memory ran out",
        "wrong": "ZeroDivisionError: a mistake in the program",
        "refused": "this cannot be done",
    }
    assert "wrong: Traceback" in caplog.text
    assert found.control == "ease"
    assert "dying failed: its process was ended by signal 9" in str(found)
    assert found.to_json()["failed"] == found.failed
    assert (tmp_path / "runs" / "unfinished").exists()


def test_where_all_fail_the_reasons_are_reported_and_nothing_is_left(
    planted_split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        comparison, "execute_parallel", lambda *given: {"wrong": "this", "bad": "that"}
    )
    models = {"wrong": Doomed(), "bad": Doomed()}
    with pytest.raises(LocaError, match="wrong: this; bad: that"):
        compare(models, planted_split, at=(5,), processes=2, keep_in=tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_a_model_whose_base_has_failed_is_not_begun(planted_split: Split) -> None:
    plan = RunPlan(
        ("loca-ease",), {"loca-ease": ("ease",)}, lambda name, done: pytest.fail("begun")
    )
    failed = execute_parallel(plan, {}, planted_split, None, 2)
    assert failed == {"loca-ease": "not begun, because ease must come before it"}


def test_a_model_that_cannot_be_handed_over_is_refused(planted_split: Split) -> None:
    class Inside(Popularity):
        """Nobody else can find this class."""

    with pytest.raises(ConfigError, match="inside: cannot be handed to another process"):
        compare({"inside": Inside(), "ease": EASE()}, planted_split, at=(5,), processes=2)


@pytest.mark.parametrize("processes", [0, 1.5, "2"])
def test_an_impossible_number_of_processes_is_refused(planted_split: Split, processes: Any) -> None:
    with pytest.raises(ConfigError, match="processes: expected a whole number ≥ 1, found"):
        compare({"ease": EASE()}, planted_split, processes=processes)


def test_fitted_models_stay_where_they_are_fitted(planted_split: Split) -> None:
    with pytest.raises(ConfigError, match="keep: fitted models stay in the process that fits them"):
        compare({"ease": EASE()}, planted_split, processes=2, keep=["ease"])
