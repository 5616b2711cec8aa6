"""A fit that is interrupted and goes on: bit for bit what an unbroken one gives, and nothing done twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import loca.local.loca as loca_file
from loca.communities.embeddings import TruncatedSVD
from loca.data.splits import Split
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


MIXED = {"anchors": 6, "mixtures": 3, "shared_epochs": 2}
SLOW: dict[str, Callable[[], Loca | MultVAE]] = {
    "stack of mixtures": lambda: Loca(
        base=a_vae(), communities="mixture", engine="stacked", **MIXED
    ),
    "loop of mixtures": lambda: Loca(
        base=a_vae(), communities="dealt", engine="one_by_one", **MIXED
    ),
    "the best form": lambda: Loca(
        base=EASE(l2=20.0), communities="auto", anchors=4, engine="stacked"
    ),
}
MODELS: dict[str, Callable[[], Loca | MultVAE]] = {
    "one network": a_vae,
    "loop": lambda: Loca(base=a_vae(), anchors=3, engine="one_by_one"),
    "stack": lambda: Loca(base=a_vae(), anchors=3, engine="stacked"),
    "loop, stopping apart": lambda: Loca(
        base=a_vae(patience=1), anchors=3, engine="one_by_one", stopping="community"
    ),
    "stack, stopping apart": lambda: Loca(
        base=a_vae(patience=1), anchors=3, engine="stacked", stopping="community"
    ),
    "local EASE": lambda: Loca(
        base=EASE(l2=20.0), embedding=TruncatedSVD(dimensions=6), anchors=4, engine="stacked"
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
    whole = len(epochs)
    found: list[int] = []
    find = loca_file.find_communities
    monkeypatch.setattr(
        loca_file, "find_communities", lambda *a, **b: (found.append(1), find(*a, **b))[1]
    )
    epochs.clear()
    assert fit_until(10, MODELS["stack"](), planted_split, tmp_path / "work", monkeypatch)
    assert len(epochs) <= whole + 1
    assert len(found) == 1
    solved: list[int] = []
    solve = EASE.solve_each
    monkeypatch.setattr(
        EASE, "solve_each", lambda *a: (solved.extend([1] * len(a[2])), solve(*a))[1]
    )
    assert fit_until(3, MODELS["local EASE"](), planted_split, tmp_path / "work", monkeypatch)
    assert len(solved) == 4
