"""The plan of every name in the catalogue; that of the competitors as they turn out, their times as scaled."""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plan_checks import Watched, part_of, plan_of
from scipy.sparse import csr_array

from loca.data.interactions import Interactions
from loca.data.synthetic import PlantedData, planted_communities
from loca.experiments import factor_paces, sparse_samples
from loca.experiments.fit_plan import Taken
from loca.experiments.planned_networks import NetworkSize
from loca.experiments.planned_setting import Setting
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.cdae import CDAE
from loca.models.item_knn import ItemKNN
from loca.models.llorma import LLORMA
from loca.models.rec_vae import RecVAE
from loca.models.recommender import Recommender
from loca.models.sglsvd import SGLSVD
from loca.models.slim import SLIM
from loca.models.wmf import WMF
from loca.registry import MODELS

QUICK: dict[str, Any] = {"epochs": 1, "batch_size": 100}
# Their folders are known to the byte: sizes follow from the data, or the sample holds all targets.
EXACT: dict[str, Callable[[], Recommender]] = {
    "item-knn": lambda: ItemKNN(neighbours=20),
    "slim": SLIM,
    "wmf": lambda: WMF(factors=8),
    "llorma": lambda: LLORMA(anchors=4, factors=6),
    "sglsvd": lambda: SGLSVD(clusters=3, global_rank=6, local_rank=3),
    "cdae": lambda: CDAE(latent=8, **QUICK),
    "rec-vae": lambda: RecVAE(latent=8, hidden=16, **QUICK),
    "loca-wmf": lambda: Loca(base=WMF(factors=8), anchors=3),
    "loca-rec-vae": lambda: Loca(base=RecVAE(latent=8, hidden=16, **QUICK), anchors=3),
    "loca of cdae": lambda: Loca(base=CDAE(latent=8, **QUICK), anchors=3),
    "loca of sglsvd": lambda: Loca(base=SGLSVD(clusters=2, global_rank=3, local_rank=2), anchors=3),
    "ensemble-wmf": lambda: Ensemble(base=WMF(factors=8), models=3),
}
# Weighted users have other weights between items than all users have.
ROUGH: dict[str, Callable[[], Recommender]] = {
    "loca-slim": lambda: Loca(base=SLIM(), anchors=3),
    "loca of item-knn": lambda: Loca(base=ItemKNN(), anchors=3),
    "ensemble-slim": lambda: Ensemble(base=SLIM(), models=3),
}
EACH = {**EXACT, **ROUGH}


@pytest.fixture(scope="module")
def wide() -> Interactions:
    """900 users and 500 items, more than a small sample of targets."""
    made = planted_communities(users=900, items=500, communities=2, groups=10, history=30, seed=1)
    return made.interactions


@pytest.mark.parametrize("name", MODELS)
def test_every_name_in_the_catalogue_has_a_plan(name: str, planted: PlantedData, gpu: Callable[[int], None]) -> None:
    plan = plan_of(MODELS[name](), planted.interactions)
    fitted = [part for part in plan.parts if not part.throughout and not part.judges]
    assert fitted
    for part in fitted:
        if not part.name.startswith("trials"):  # a row that says the budget
            assert 0 < part.in_memory.at_work >= part.in_memory.stays >= 0
            assert part.in_folder > 0
    assert plan.problems == ()
    gpu(10**9)
    on_gpu = plan_of(MODELS[name](), planted.interactions)
    assert on_gpu.in_folder == plan.in_folder
    if name not in ("popularity", "item-knn", "sglsvd"):
        assert on_gpu.peak_on_device > 0


def saved_bytes(model: Recommender, data: Interactions, folder: Path) -> tuple[int, int]:
    """The bytes of the arrays of a saved model, and how many files they lie in."""
    model.fit(data).save(folder)
    arrays = [path for path in folder.iterdir() if path.name != "model.json"]
    return sum(path.stat().st_size for path in arrays), len(arrays)


@pytest.mark.parametrize("name", EXACT)
def test_a_saved_model_takes_the_planned_bytes(name: str, planted: PlantedData, tmp_path: Path) -> None:
    planned = plan_of(EXACT[name](), planted.interactions).in_folder
    saved, files = saved_bytes(EXACT[name](), planted.interactions, tmp_path / "m")
    assert planned <= saved <= planned + 1000 * files


@pytest.mark.parametrize("name", ROUGH)
def test_sparse_local_models_take_about_the_planned_bytes(name: str, planted: PlantedData, tmp_path: Path) -> None:
    plan = plan_of(ROUGH[name](), planted.interactions)
    known = part_of(plan, "data").in_folder
    saved, files = saved_bytes(ROUGH[name](), planted.interactions, tmp_path / "m")
    assert (saved - known - 1000 * files) / 2 <= plan.in_folder - known <= 2 * (saved - known)


def test_a_sample_of_items_tells_how_many_weights_there_are(
    wide: Interactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse_samples, "_TARGETS_COUNTED", 100)
    matrix = wide.matrix()
    neighbours, chosen = ItemKNN(neighbours=40).fit(matrix).weights_, SLIM().fit(matrix).weights_
    assert neighbours is not None
    assert chosen is not None
    found = sparse_samples.size_of_item_knn(ItemKNN(neighbours=40), matrix).weights
    assert found == pytest.approx(neighbours.nnz, rel=0.05)
    for items in (200, 400):
        monkeypatch.setattr(sparse_samples, "_ITEMS_SOLVED", items)
        size = sparse_samples.sample_slim(SLIM(), matrix, None).size
        assert 0.5 < size.weights / chosen.nnz < 2
        assert size.weights <= size.candidates < size.pairs


def test_items_that_nobody_shares_have_no_weights() -> None:
    alone = csr_array(np.eye(7, 9, dtype=np.float32))
    assert sparse_samples.sample_slim(SLIM(), alone, None).size == sparse_samples.SparseSize(7, 0, 0)
    assert sparse_samples.size_of_item_knn(ItemKNN(), alone) == sparse_samples.SparseSize(7, 0, 0)


@pytest.mark.parametrize("shape", [(10, 20), (60, 10)], ids=["small code", "small layers"])
@pytest.mark.parametrize("kind", ["cdae", "cdae of squares", "rec-vae"])
def test_a_network_that_learns_stays_below_its_plan(kind: str, shape: tuple[int, int], wide: Interactions) -> None:
    latent, hidden = shape
    model: CDAE | RecVAE = RecVAE(latent=latent, hidden=hidden, batch_size=300, device="cpu")
    if kind != "rec-vae":
        model = CDAE(latent=latent, loss="square" if "squares" in kind else "logistic", batch_size=300, device="cpu")
    plan = plan_of(model, wide)
    size = NetworkSize.of(model, Setting(wide.matrix(), plan.machine, None))
    with Watched() as watched:
        learning = model.begin(wide.matrix(), None)
        for _ in range(2):
            learning.run_epoch()
    histories = 60 * len(wide)  # of the batch, and the draws for its dropout
    assert size.lasting * 3 // 4 < watched.peak < size.lasting + size.step + histories
    state = learning.state()
    held = sum(array.nbytes for name, array in state.arrays.items() if not name.startswith("step/"))
    best = sum(weight.nbytes for weight in learning.network.state_dict().values())
    assert held + best <= size.lasting <= held + best + 8 * (latent + 1)
    assert part_of(plan, "model").unfinished == 2 * size.lasting


@pytest.mark.parametrize("model", [WMF(factors=40, frequency_scaling=0.5), LLORMA(anchors=3, factors=20), SLIM()])
def test_what_torch_takes_stays_below_the_plan(model: Any, wide: Interactions) -> None:
    model.device = "cpu"
    plan = plan_of(model, wide, validated=False)
    with Watched() as watched:
        model.fit(wide.matrix())
    assert 0 < watched.peak < part_of(plan, "model").in_memory.at_work


@pytest.mark.parametrize("model", [ItemKNN(neighbours=50), SGLSVD(clusters=3, global_rank=20, local_rank=10)])
def test_what_numpy_takes_stays_below_the_plan(model: Any, wide: Interactions) -> None:
    plan, matrix = plan_of(model, wide, validated=False), wide.matrix()
    tracemalloc.start()
    model.fit(matrix)
    _, taken = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    part = part_of(plan, "model")
    assert part.in_memory.stays <= taken < part.in_memory.at_work


def test_local_models_are_kept_whole_beside_the_one_at_work(planted: PlantedData) -> None:
    alone = part_of(plan_of(WMF(factors=8), planted.interactions), "model")
    local = part_of(plan_of(Ensemble(base=WMF(factors=8), models=5), planted.interactions), "ensemble members")
    weights = 4 * 60 * 8
    assert alone.in_memory.stays == weights
    assert local.in_memory == Taken(5 * weights + alone.in_memory.at_work, 5 * weights)


def test_factors_stay_on_a_gpu_that_has_room_for_them(planted: PlantedData, gpu: Callable[[int], None]) -> None:
    gpu(10**9)
    model = Loca(base=WMF(factors=8), anchors=3)
    local = part_of(plan_of(model, planted.interactions), "local models")
    assert local.on_device.stays == local.in_memory.stays == 3 * 4 * 60 * 8
    gpu(1_000_000)  # not even for a block of rows
    small = part_of(plan_of(WMF(factors=8), planted.interactions), "model")
    assert small.on_device == Taken()
    assert small.in_memory.at_work > 1_000_000


def test_weights_between_items_lie_in_main_memory(planted: PlantedData, gpu: Callable[[int], None]) -> None:
    gpu(10**9)
    part = part_of(plan_of(SLIM(), planted.interactions), "model")
    assert part.on_device.at_work > 4 * 60**2
    assert part.on_device.stays == 0
    assert part.in_memory.stays == part.in_folder


@pytest.mark.usefixtures("second")
def test_networks_take_their_epochs_times_their_steps(planted: PlantedData) -> None:
    for model in (CDAE(latent=5, epochs=7, batch_size=150), RecVAE(latent=5, hidden=8, epochs=7, batch_size=150)):
        plan = plan_of(model, planted.interactions, timed=True)
        # 400 users are 3 batches; what is timed of RecVAE is all passes over one.
        assert part_of(plan, "model").seconds == 7 * 3 * 1.0
        assert plan.epochs == 7
        local = plan_of(Loca(base=model, anchors=4), planted.interactions, timed=True)
        assert part_of(local, "local models").seconds == 4 * 7 * 3 * 1.0


@pytest.mark.usefixtures("second")
def test_factors_take_their_iterations(planted: PlantedData, monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(model: Recommender, name: str = "model") -> float:
        found = part_of(plan_of(model, planted.interactions, timed=True), name).seconds
        assert found is not None
        return found

    assert seconds(WMF(factors=8, iterations=6)) == 6.0
    assert seconds(Ensemble(base=WMF(factors=8, iterations=6), models=3), "ensemble members") == 18.0
    assert seconds(LLORMA(anchors=4, factors=8, iterations=6)) == (1 + 4) * 6.0
    assert seconds(SGLSVD(clusters=2, global_rank=4, local_rank=2)) == 1.0  # a round took no time beyond its beginning
    monkeypatch.setitem(factor_paces._USERS_FACTORED, "cpu", 100)
    # With one factor an entry has a multiplication on either side, and every user and item a third of one.
    stored = len(planted.interactions)
    part = factor_paces.some_rows(planted.interactions.matrix(), 100)
    works = [2 * count + (users + 60) / 3 for count, users in ((stored, 400), (part.nnz, 100))]
    found = seconds(WMF(factors=1, iterations=6, frequency_scaling=1.0))
    assert found == pytest.approx(6 * works[0] / works[1])


@pytest.mark.usefixtures("second")
def test_models_of_items_take_longer_by_the_items_and_pairs(
    planted: PlantedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seconds(model: Recommender) -> float:
        found = part_of(plan_of(model, planted.interactions, timed=True), "model").seconds
        assert found is not None
        return found

    assert seconds(ItemKNN()) == 1.0
    assert seconds(SLIM()) == 1.0
    # Half of 20 items took as long as all of them: so do three times as many items three times as long.
    monkeypatch.setattr(sparse_samples, "_ITEMS_SOLVED", 20)
    assert seconds(SLIM()) == pytest.approx(60 / 20)
    assert sparse_samples._power(8.0, 3.0) == pytest.approx(np.log2(8 / 3))
    assert (sparse_samples._power(8.0, 1.0), sparse_samples._power(0.0, 0.0)) == (2.0, 2.0)
    monkeypatch.setattr(sparse_samples, "_PAIRS_COUNTED", sparse_samples.count_pairs(planted.interactions.matrix()) / 9)
    assert 6 < seconds(ItemKNN()) < 13  # a third of the items have about a ninth of the pairs


@pytest.mark.parametrize("name", EACH)
def test_a_plan_is_timed_in_silence(name: str, planted: PlantedData, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "loca"):
        plan = plan_of(EACH[name](), planted.interactions, timed=True)
    assert caplog.messages == []
    assert plan.seconds is not None
    assert plan.seconds > 0


def test_what_does_not_fit_is_not_timed(planted: PlantedData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loca.experiments.planning.available_bytes", lambda: 100_000)
    for model in (WMF(), SLIM(), LLORMA(), SGLSVD(), RecVAE(), CDAE(), ItemKNN()):
        plan = plan_of(model, planted.interactions, timed=True)
        assert len(plan.problems) == 1
        assert plan.seconds is None
