"""A fit that is interrupted and goes on: bit for bit what an unbroken one gives, and nothing done twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import loca.communities.kernel as kernel_file
from loca.communities.best_of import BestOf
from loca.communities.embeddings import TruncatedSVD
from loca.communities.kernel import Kernels
from loca.communities.mixture import Mixtures
from loca.communities.random_groups import RandomGroups
from loca.data.splits import Split
from loca.local.engines.differences.engine import Differences
from loca.local.engines.loop import Loop
from loca.local.engines.stacked.engine import Stacked
from loca.local.loca import Loca
from loca.models.early_stopping import BestWeights
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from loca.persistence.checkpoint import Checkpoint
from loca.persistence.fit_context import checkpoint_in


class Killed(BaseException):
    """Stands for a kill: nothing in the code catches it."""


def a_vae(**changes: object) -> MultVAE:
    settings = {
        "latent": 6,
        "epochs": 7,
        "patience": 3,
        "batch_size": 200,
        "learning_rate": 3e-2,
        "kl_weight": 0.1,
    }
    return MultVAE(**(settings | changes))  # type: ignore[arg-type]


MIXTURES = Mixtures(n=6, mixtures=3, shared_epochs=2)
KERNELS = Kernels(n=3)
SLOW: dict[str, Callable[[], Loca | MultVAE]] = {
    "stack of mixtures": lambda: Loca(base=a_vae(), communities=MIXTURES, engine=Stacked()),
    "loop of mixtures": lambda: Loca(base=a_vae(), communities=MIXTURES, engine=Loop()),
    "best of networks": lambda: Loca(base=a_vae(), communities=BestOf(n=4)),
    "best of linear models": lambda: Loca(
        base=EASE(l2=20.0), communities=BestOf(n=4), engine=Differences()
    ),
}
MODELS: dict[str, Callable[[], Loca | MultVAE]] = {
    "one network": a_vae,
    "loop": lambda: Loca(base=a_vae(), communities=KERNELS, engine=Loop()),
    "stack": lambda: Loca(base=a_vae(), communities=KERNELS, engine=Stacked()),
    "groups": lambda: Loca(base=a_vae(), communities=RandomGroups(n=4), engine=Stacked()),
    "local EASE": lambda: Loca(
        base=EASE(l2=20.0),
        communities=Kernels(n=4, embedding=TruncatedSVD(dimensions=6)),
        engine=Differences(),
    ),
    **SLOW,
}


def fit_until(
    kills: int, model: Loca | MultVAE, split: Split, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> int:
    """Fits, is killed after `kills` keeps, and goes on; gives how often it was killed (0 where it ended before)."""
    keep = Checkpoint.save
    kept = 0

    def keep_and_die(self: Checkpoint, *what: object) -> None:
        nonlocal kept
        keep(self, *what)  # type: ignore[arg-type]
        kept += self.saves
        if kept == kills:
            raise Killed

    died = 0
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", keep_and_die)
        try:
            with checkpoint_in(
                folder, fingerprint={"a": 1}, resume=False, seconds_between=0
            ) as context:
                model.fit(split.train, validation=split.validation, context=context)
        except Killed:
            died = 1
    if died:
        with checkpoint_in(folder, fingerprint={"a": 1}, resume=True, seconds_between=0) as context:
            model.fit(split.train, validation=split.validation, context=context)
    assert not folder.exists()
    return died


@pytest.mark.parametrize("name", MODELS)
def test_an_interrupted_fit_ends_as_an_unbroken_one(
    name: str, planted_split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories = planted_split.test.history_matrix[:50]
    unbroken = (
        MODELS[name]()
        .fit(planted_split.train, validation=planted_split.validation)
        .score(histories)
    )
    died = 0
    for kills in (2, 5) if name in SLOW else (1, 3, 5, 9, 12):
        model = MODELS[name]()
        died += fit_until(kills, model, planted_split, tmp_path / "work", monkeypatch)
        np.testing.assert_array_equal(model.score(histories), unbroken)
    assert died >= 2


def test_all_epochs_without_validation_go_on_too(
    planted_split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = Split(
        planted_split.train, None, planted_split.test, planted_split.train, planted_split.report
    )
    histories = planted_split.test.history_matrix[:50]
    unbroken = MODELS["stack"]().fit(bare.train).score(histories)
    model = MODELS["stack"]()
    assert fit_until(10, model, bare, tmp_path / "work", monkeypatch)
    np.testing.assert_array_equal(model.score(histories), unbroken)


def test_finished_epochs_communities_and_local_models_are_not_computed_again(
    planted_split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs: list[str] = []
    update = BestWeights.update
    monkeypatch.setattr(
        BestWeights, "update", lambda *what: (epochs.append("epoch"), update(*what))[1]
    )
    MODELS["stack"]().fit(planted_split.train, validation=planted_split.validation)
    n_epochs = len(epochs)
    choices: list[int] = []
    choose = kernel_file.choose_anchors
    monkeypatch.setattr(
        kernel_file, "choose_anchors", lambda *what: (choices.append(1), choose(*what))[1]
    )
    epochs.clear()
    assert fit_until(10, MODELS["stack"](), planted_split, tmp_path / "work", monkeypatch)
    assert len(epochs) <= n_epochs + 1
    assert len(choices) == 1
    solved: list[int] = []
    solve = EASE.solve_each
    monkeypatch.setattr(
        EASE, "solve_each", lambda *a: (solved.extend([1] * len(a[2])), solve(*a))[1]
    )
    assert fit_until(3, MODELS["local EASE"](), planted_split, tmp_path / "work", monkeypatch)
    assert len(solved) == 4
