"""The plan of a fit: memory and files as they turn out to be, times scaled as is known beforehand, and its words."""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from plan_checks import Watched, part_of, plan_of
from scipy.sparse import csr_array

import loca.experiments.calibration as calibration
import loca.experiments.planned_networks as planned_networks
import loca.experiments.planning as planning
from loca.communities.coverage import HostNeighbourhoods
from loca.communities.embeddings import TruncatedSVD
from loca.communities.geometry import Quantile
from loca.data.splits import Split
from loca.data.synthetic import PlantedData, planted_communities
from loca.errors import ConfigError, DataError
from loca.experiments.fit_plan import FitPlan, Machine, Part, Taken, readable_seconds
from loca.experiments.planning import plan_fit
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.local.stacked.memory import bytes_of_a_loop_step, bytes_while_learning
from loca.models.ease import EASE
from loca.models.mult_vae import MultDAE, MultVAE
from loca.models.next_ease import NextEASE
from loca.models.popularity import Popularity
from loca.models.recommender import Recommender

QUICK: dict[str, Any] = {"epochs": 2, "batch_size": 100}
MODELS: dict[str, Callable[[], Recommender]] = {
    "popularity": Popularity,
    "ease": EASE,
    "mult-vae": lambda: MultVAE(latent=30, **QUICK),
    "mult-dae": lambda: MultDAE(latent=20, hidden=50, **QUICK),
    "loca-ease": lambda: Loca(base=EASE(), anchors=3),
    "loca-ease of few bytes": lambda: Loca(base=EASE(), anchors=3, local_bytes=5000),
    "loca-ease one by one": lambda: Loca(base=EASE(), anchors=3, engine="one_by_one"),
    "loca-ease around a network": lambda: Loca(base=EASE(), anchors=3, global_model=MultDAE(latent=20, **QUICK)),
    "loca-ease embedded by a network": lambda: Loca(base=EASE(), anchors=3, embedding=MultVAE(latent=20, **QUICK)),
    "loca-vae": lambda: Loca(base=MultVAE(latent=20, **QUICK), anchors=3, anchor_selection="kmeans"),
    "loca-vae stacked": lambda: Loca(base=MultVAE(latent=20, **QUICK), anchors=3, engine="stacked"),
    "loca-vae stacked in 16 bits": lambda: Loca(
        base=MultVAE(latent=20, hidden=40, **QUICK), anchors=3, engine="stacked", answer_precision="float16"
    ),
    "loca of popularity": lambda: Loca(base=Popularity(), anchors=3, embedding=TruncatedSVD(dimensions=5)),
    "next-ease": NextEASE,
    "loca-next-ease": lambda: Loca(base=NextEASE(), anchors=3),
    "loca-next-ease of few bytes": lambda: Loca(base=NextEASE(), anchors=3, local_bytes=5000),
    "loca-next-ease around an ease": lambda: Loca(
        base=NextEASE(), anchors=3, local_bytes=5000, global_model=EASE(l2=300.0)
    ),
    "ensemble-ease": lambda: Ensemble(base=EASE(), models=3),
    "ensemble-next-ease of few bytes": lambda: Ensemble(base=NextEASE(), models=3, local_bytes=5000),
    "ensemble-dae": lambda: Ensemble(base=MultDAE(latent=20, **QUICK), models=3),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_model_takes_the_planned_bytes(
    name: str, planted: PlantedData, planted_split: Split, tmp_path: Path
) -> None:
    data = planted.interactions
    MODELS[name]().fit(data, validation=planted_split.validation).save(tmp_path / "m")
    planned = plan_of(MODELS[name](), data).in_folder
    arrays = [path for path in (tmp_path / "m").iterdir() if path.name != "model.json"]
    saved = sum(path.stat().st_size for path in arrays)
    # Every array file has a header of a few hundred bytes.
    assert planned <= saved <= planned + 700 * len(arrays)


def test_a_fitted_loca_holds_what_was_to_stay(planted: PlantedData) -> None:
    plan = plan_of(MODELS["loca-ease of few bytes"](), planted.interactions)
    model = Loca(base=EASE(), anchors=3, local_bytes=5000).fit(planted.interactions)
    assert model.locals_ is not None
    held = sum(array.nbytes for array in model.locals_.state().arrays.values())
    assert held == part_of(plan, "local models").in_memory.stays + 8  # one offset more than communities
    assert part_of(plan, "global model").in_memory.stays == 4 * 60**2


@pytest.mark.parametrize(("users", "items"), [(900, 500), (300, 700)])
def test_what_ease_takes_stays_below_its_plan(users: int, items: int) -> None:
    data = planted_communities(users=users, items=items, communities=2, groups=10, history=20, seed=1).interactions
    plan = plan_of(EASE(), data, validated=False)
    matrix = data.matrix()
    if users > items:  # solved by LAPACK in an array of numpy's, which tracemalloc sees
        tracemalloc.start()
        EASE().fit(matrix)
        _, taken = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert 4 * items**2 < taken < plan.peak_in_memory
    else:
        with Watched() as watched:
            EASE().fit(matrix)
        assert 4 * items**2 < watched.peak < plan.peak_in_memory


def test_what_next_ease_takes_stays_below_its_plan() -> None:
    data = planted_communities(users=900, items=500, communities=2, groups=10, history=20, seed=1).interactions
    plan = plan_of(NextEASE(), data, validated=False)
    matrix = data.matrix()
    with Watched() as watched:
        NextEASE().fit(matrix)
    assert 3 * 4 * 500**2 < watched.peak < plan.peak_in_memory


def test_a_network_that_learns_stays_below_its_plan(planted: PlantedData) -> None:
    model = MultVAE(latent=50, batch_size=400)
    network = planned_networks.shape_of(model, 60)
    with Watched() as watched:
        learning = model.begin(planted.interactions.matrix(), None)
        for _ in range(3):
            learning.run_epoch()
    planned = bytes_while_learning(network) + bytes_of_a_loop_step(network, 400)
    histories = 60 * len(planted.interactions)  # SparseRows of the batch, and the draws for its dropout
    assert bytes_while_learning(network) < watched.peak < planned + histories
    state = learning.state()
    held = sum(array.nbytes for name, array in state.arrays.items() if not name.startswith("step/"))
    best = sum(array.nbytes for name, array in state.arrays.items() if name.startswith("weights/"))
    assert held + best == bytes_while_learning(network)


def test_greedy_coverage_is_planned_with_the_bits_that_it_makes(planted: PlantedData) -> None:
    by_coverage = part_of(plan_of(Loca(base=EASE(), anchors=3), planted.interactions), "communities")
    at_random = Loca(base=EASE(), anchors=3, anchor_selection="random")
    others = part_of(plan_of(at_random, planted.interactions), "communities")
    rows = np.eye(400, 32, dtype=np.float32)
    bits = sum(HostNeighbourhoods(rows, 0.5).of(user).nbytes for user in range(400))
    assert by_coverage.in_memory.at_work - others.in_memory.at_work == bits


def test_the_peak_is_what_stays_and_the_largest_part_at_work() -> None:
    parts = (
        Part("data", in_memory=Taken(100), throughout=True),
        Part("first", Taken(50, 20), Taken(1000, 300), in_folder=7, unfinished=40, seconds=10.0),
        Part("second", Taken(60, 0), Taken(800, 0), in_folder=5, unfinished=30, seconds=1.0, advice="take less"),
        Part("answers", Taken(4), Taken(10), seconds=2.0, throughout=True, judges=True),
    )
    plan = FitPlan("some", 1, 2, 3, Machine("cuda", 100, 1300), parts, candidates=3)
    assert plan.peak_on_device == 4 + 20 + 60
    assert plan.peak_in_memory == 100 + 10 + 300 + 800
    assert (plan.in_folder, plan.unfinished) == (12, 40)
    assert (plan.seconds_to_choose, plan.seconds_to_refit, plan.seconds) == (13.0, 11.0, 50.0)
    assert plan.problems == ()
    short = FitPlan("some", 1, 2, 3, Machine("cuda", 83, 1209), parts, free_on_disk=51)
    assert short.problems == (
        "second on cuda: 84 B needed, 83 B are free; take less",
        "second in main memory: 1 kB needed, 1 kB are free; take less",
        "files: 52 B needed, 51 B are free; free some space or choose another --out",
    )
    assert not short.document()["fits"]
    assert str(short).count("DOES NOT FIT") == 3


def test_without_validation_or_refit_there_is_one_fit_less() -> None:
    parts = (Part("model", seconds=5.0), Part("answers", seconds=2.0, judges=True))
    machine = Machine("cpu", None, 10**9)
    assert FitPlan("m", 1, 1, 1, machine, parts, refit=False, candidates=2).seconds == 14.0
    alone = FitPlan("m", 1, 1, 1, machine, parts[:1], validated=False)
    assert alone.seconds == 5.0
    assert "about 5 s for one fit on everything" in str(alone)
    unknown = FitPlan("m", 1, 1, 1, machine, (Part("model", seconds=None),))
    assert unknown.seconds is None
    assert "time: unknown" in str(unknown)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "unknown"), (0.2, "under 1 s"), (60, "about 60 s"), (240, "about 4 min"), (9000, "about 2.5 h"),
     (500_000, "about 6 days")],
)  # fmt: skip
def test_times_are_said_as_roughly_as_they_are_known(seconds: float | None, words: str) -> None:
    assert readable_seconds(seconds) == words


def test_a_stack_on_a_gpu_is_planned_by_the_engine(planted: PlantedData, gpu: Callable[[int], None]) -> None:
    gpu(10**9)
    plan = plan_of(Loca(base=MultVAE(latent=20), anchors=8), planted.interactions)
    assert plan.lines[0].startswith("stacked engine: 8 networks in 1 stack of 8 on cuda")
    local = part_of(plan, "local models")
    network = planned_networks.shape_of(MultVAE(latent=20), 60)
    assert 8 * bytes_while_learning(network) < local.on_device.at_work < 10**9
    # A checkpoint's copy lies in main memory; of the network only the mean's half of the encoder stays.
    assert local.in_memory.at_work >= 8 * bytes_while_learning(network)
    assert local.in_folder == local.on_device.stays == 8 * 4 * (60 * 20 + 20 + 60 * 20 + 60)
    assert part_of(plan, "communities").on_device.at_work > 0
    assert "on cuda" in str(plan)
    assert plan.document()["on_device"]["free"] == 10**9


def test_a_small_gpu_has_several_stacks_and_what_waits_lies_in_main_memory(
    planted: PlantedData, gpu: Callable[[int], None]
) -> None:
    network = planned_networks.shape_of(MultVAE(latent=20), 60)
    one = bytes_while_learning(network)
    gpu(30 * one)
    model = Loca(base=MultVAE(latent=20), anchors=40, anchor_selection="random")
    plan = plan_of(model, planted.interactions)
    assert "parked in main memory" in plan.lines[0]
    local = part_of(plan, "local models")
    assert local.on_device.at_work < 40 * one
    assert local.in_memory.at_work >= 40 * one


def test_ease_on_a_gpu_leaves_its_weights_in_main_memory(planted: PlantedData, gpu: Callable[[int], None]) -> None:
    gpu(10**9)
    plan = plan_of(Loca(base=EASE(), anchors=3, engine="stacked"), planted.interactions)
    for name in ("global model", "local models"):
        found = part_of(plan, name)
        assert found.on_device.at_work > 4 * 60**2
        assert found.on_device.stays == 0
        assert found.in_memory.stays == found.in_folder
    gpu(1000)  # too small: solved on the CPU, which the local models will not do by themselves
    plan = plan_of(Loca(base=EASE(), anchors=3, engine="stacked"), planted.interactions)
    assert part_of(plan, "global model").on_device == Taken()
    assert part_of(plan, "communities").on_device == Taken()
    (problem,) = plan.problems
    assert problem.startswith("local models on cuda: ")


def test_a_plan_that_does_not_fit_names_the_part_and_is_not_timed(
    planted: PlantedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "available_bytes", lambda: 100_000)
    plan = plan_of(MultVAE(latent=500), planted.interactions, timed=True)
    (problem,) = plan.problems
    assert problem.startswith("model in main memory: ")
    assert problem.endswith("100 kB are free; take fewer or smaller models")
    assert plan.seconds is None
    assert plan.document()["fits"] is False


def test_the_largest_candidate_is_the_one_that_is_shown(planted: PlantedData) -> None:
    candidates = [MultVAE(latent=latent) for latent in (10, 70, 30)]
    plan = plan_fit(candidates, planted.interactions, name="mult-vae", timed=False)
    assert plan.candidates == 3
    assert part_of(plan, "model").in_folder == 4 * (60 * (140 + 70 + 1) + 140)
    with pytest.raises(ConfigError, match="nothing to plan"):
        plan_fit([], planted.interactions, name="none")


@pytest.mark.usefixtures("second")
def test_a_network_takes_its_epochs_times_its_steps(planted: PlantedData) -> None:
    model = MultVAE(latent=5, epochs=7, evaluate_every=3, batch_size=150)
    plan = plan_of(model, planted.interactions, timed=True)
    assert part_of(plan, "model").seconds == 7 * 3 * 1.0  # 400 users are 3 batches
    # Judged after epochs 3, 6 and 7 and at the end: 150 users were answered in a second, all 400 ranked in one.
    assert part_of(plan, "answers on validation").seconds == pytest.approx(4 * 400 * (1 / 150 + 1 / 400))
    assert plan.epochs == 7


@pytest.mark.usefixtures("second")
@pytest.mark.parametrize("engine", ["one_by_one", "stacked"])
def test_local_networks_take_as_many_times_longer(engine: Any, planted: PlantedData) -> None:
    base = MultDAE(latent=5, epochs=2, batch_size=400)
    model = Loca(base=base, anchors=6, answer_bandwidth=Quantile(0.5), alpha=0.1, engine=engine)
    plan = plan_of(model, planted.interactions, timed=True)
    assert part_of(plan, "local models").seconds == 6 * 2 * 1.0
    # Half of the communities answer for a user; the global network is judged too.
    assert part_of(plan, "answers on validation").seconds == pytest.approx(3 * (3 * 1.0 + 1.0) + 3 * (1.0 + 1.0))


@pytest.mark.usefixtures("second")
def test_equations_take_the_third_power_of_their_number(planted: PlantedData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(calibration._EQUATIONS, "cpu", 20)
    plan = plan_of(EASE(), planted.interactions, timed=True)
    assert part_of(plan, "model").seconds == pytest.approx((60 / 20) ** 3)
    wide = planted_communities(users=30, items=90, communities=2, groups=5, history=12, shortest_history=10)
    growth = 30 / calibration._smaller(wide.interactions.matrix(), torch.device("cpu"))[0].shape[0]
    assert part_of(plan_of(EASE(), wide.interactions, timed=True), "model").seconds == pytest.approx(growth**3)
    looped = plan_of(Ensemble(base=EASE(), models=4, engine="one_by_one"), planted.interactions, timed=True)
    assert part_of(looped, "ensemble members").seconds == pytest.approx(4 * (60 / 20) ** 3)


@pytest.mark.usefixtures("second")
def test_equations_of_next_items_take_the_third_power_of_the_items(
    planted: PlantedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(calibration._EQUATIONS, "cpu", 20)
    plan = plan_of(NextEASE(), planted.interactions, timed=True)
    assert part_of(plan, "model").seconds == pytest.approx((60 / 20) ** 3)
    # Fewer users than items change nothing: there is no system of the users.
    wide = planted_communities(users=30, items=90, communities=2, groups=5, history=12, shortest_history=10)
    plan = plan_of(NextEASE(), wide.interactions, timed=True)
    assert part_of(plan, "model").seconds == pytest.approx((90 / 20) ** 3)
    looped = plan_of(Ensemble(base=NextEASE(), models=4), planted.interactions, timed=True)
    assert part_of(looped, "ensemble members").seconds == pytest.approx(4 * (60 / 20) ** 3)
    kept = plan_of(Ensemble(base=NextEASE(), models=4, local_bytes=5000), planted.interactions, timed=True)
    assert part_of(kept, "ensemble members").seconds == pytest.approx(4 * (60 / 20) ** 3)


def test_sums_over_prefixes_take_longer_by_the_pairs_that_they_add(
    planted: PlantedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(calibration._EQUATIONS, "cpu", 20)
    # A fit takes 5 seconds, answers 1, and a fit with hardly any pairs 2.
    timed = iter([5.0, 1.0, 2.0])

    def take(work: Callable[[], Any]) -> float:
        work()
        return next(timed)

    monkeypatch.setattr(calibration, "_seconds", take)
    model, matrix = NextEASE(next_count=2, prefix_decay=0.0), planted.interactions.matrix()
    part, _ = calibration._fewer_items(matrix, torch.device("cpu"))

    def pairs(rows: csr_array) -> int:  # without decay, the two that follow an item
        return sum(min(2, int(length) - 1 - place) for length in np.diff(rows.indptr) for place in range(int(length)))

    pace = calibration.pace_of_ease(model, matrix, torch.device("cpu"))
    assert pace.fit == pytest.approx(2 * 3**3 + 3 * pairs(matrix) / pairs(part))


def test_the_smaller_problem_has_the_same_share_of_users_and_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(calibration._EQUATIONS, "cpu", 10)
    rng = np.random.default_rng(0)
    matrix = csr_array((rng.random((100, 50)) < 0.05).astype(np.float32))
    part, growth = calibration._smaller(matrix, torch.device("cpu"))
    assert part.shape[1] == 10
    assert 0 < part.shape[0] <= 20
    assert (np.diff(part.indptr) > 0).all()
    assert growth == 50 / min(part.shape)


@pytest.mark.usefixtures("second")
def test_coverage_takes_the_square_of_the_users(planted: PlantedData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(calibration._USERS_COVERED, "cpu", 100)
    plan = plan_of(Loca(base=EASE(), anchors=9), planted.interactions, timed=True)
    assert part_of(plan, "communities").seconds == (1 + 9) * 4.0**2
    at_random = Loca(base=EASE(), anchors=9, anchor_selection="farthest")
    assert part_of(plan_of(at_random, planted.interactions, timed=True), "communities").seconds == 4.0


@pytest.mark.parametrize(
    "name", ["popularity", "loca-ease", "loca-vae", "loca-vae stacked", "ensemble-ease", "loca-next-ease of few bytes"]
)
def test_a_plan_is_timed_in_silence(
    name: str, planted: PlantedData, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loca.memory._WORTH_SAYING", 0)
    with caplog.at_level(logging.INFO, "loca"):
        plan = plan_of(MODELS[name](), planted.interactions, timed=True)
    assert caplog.messages == []
    assert plan.seconds is not None
    assert plan.seconds > 0


def test_what_no_fit_could_do_is_refused_in_one_line(planted: PlantedData) -> None:
    data = planted.interactions
    inner = Loca(base=EASE())
    with pytest.raises(ConfigError, match=r"local models: expected ease, .* found Loca; no plan is known for that"):
        plan_of(Loca(base=inner, global_model=EASE(), anchors=2), data)
    with pytest.raises(ConfigError, match=r"model: expected ease, .* found Diary"):
        plan_of(type("Diary", (), {"device": "cpu"})(), data)
    with pytest.raises(ConfigError, match=r"embedding: expected svd, mult-vae, .* or wmf, found EASE"):
        plan_of(Loca(base=EASE(), embedding=EASE()), data)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="anchors: 401 were requested, there are only 400 users"):
        plan_of(Loca(base=EASE(), anchors=401), data)
    with pytest.raises(ConfigError, match="local_bytes: expected at least"):
        plan_of(Loca(base=EASE(), local_bytes=7), data)
