"""The plan of blends and of searches: their parts, the search for weights, the budget, and recency by choice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from plan_checks import Watched, part_of, plan_of

from loca.data.recency import Recency
from loca.data.splits import Split
from loca.data.synthetic import PlantedData
from loca.errors import ConfigError
from loca.experiments import planned_models, planned_networks
from loca.local import auto as automatic
from loca.local.auto import Auto
from loca.local.blend import Blend
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.local.stacked.ops import multiplies_densely
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from loca.models.next_ease import NextEASE
from loca.models.popularity import Popularity
from loca.tuning.recency_selection import recency_candidates

SEARCH = "weights of the blend"


def blend_of_three(**settings: Any) -> Blend:
    return Blend(parts=[EASE(), NextEASE(), Loca(base=EASE(), anchors=3)], **settings)


def test_the_parts_of_a_blend_stay_one_beside_the_other(planted: PlantedData) -> None:
    plan = plan_of(blend_of_three(), planted.interactions)
    assert [part.name for part in plan.parts] == [
        "data", "EASE", "NextEASE", "Loca of EASE: global model", "Loca of EASE: embedding",
        "Loca of EASE: communities", "Loca of EASE: local models", SEARCH, "answers on validation",
    ]  # fmt: skip
    alone = [plan_of(one, planted.interactions) for one in (EASE(), NextEASE(), Loca(base=EASE(), anchors=3))]
    inside = [part for part in plan.parts if part.name not in ("data", SEARCH, "answers on validation")]
    apart = [part for one in alone for part in one.parts[1:-1]]
    assert [(part.in_memory, part.in_folder) for part in inside] == [(part.in_memory, part.in_folder) for part in apart]
    staying = sum(part.in_memory.stays for part in inside)
    others = sum(part_of(plan, name).in_memory.at_work for name in ("data", "answers on validation"))
    assert plan.peak_in_memory == others + staying + part_of(plan, SEARCH).in_memory.at_work


def test_a_blend_without_validation_searches_nothing(planted: PlantedData) -> None:
    plan = plan_of(blend_of_three(), planted.interactions, validated=False)
    assert SEARCH not in [part.name for part in plan.parts]


@pytest.mark.parametrize("made", ["blend of given columns", "auto with a chosen model"])
def test_a_saved_blend_takes_the_planned_bytes(
    made: str, planted: PlantedData, planted_split: Split, tmp_path: Path
) -> None:
    blend = blend_of_three(columns=[(0, 1.0, 0.5), (0, 2.0, 0.2), (2, 1.0, 0.3)])
    model = blend if made.startswith("blend") else Auto(chosen=blend)
    model.fit(planted.interactions, validation=planted_split.validation).save(tmp_path / "m")
    planned = plan_of(model, planted.interactions).in_folder
    arrays = [path for path in (tmp_path / "m").iterdir() if path.name != "model.json"]
    saved = sum(path.stat().st_size for path in arrays)
    assert planned <= saved <= planned + 700 * len(arrays)


def test_what_the_search_for_weights_takes_stays_below_its_plan(planted_split: Split) -> None:
    assert planted_split.validation is not None
    recency = Recency(5)
    train, questions = planted_split.train.with_recency(recency), planted_split.validation.with_recency(recency)
    models = [EASE().fit(train), NextEASE().fit(train), EASE(l2=5.0).fit(train)]
    plan = plan_of(Blend(parts=[EASE(), NextEASE(), EASE(l2=5.0)]), train)
    with Watched() as watched:
        Blend.of(models, questions)
    needed = part_of(plan, SEARCH).in_memory.at_work
    # At least the scores of all items, none of which is left out here, by three parts at five powers.
    assert 4 * 400 * 60 * 15 < watched.peak < needed


def test_a_cache_bounds_what_the_search_takes(planted: PlantedData) -> None:
    data = planted.interactions.with_recency(Recency(5))
    sizes = {
        size: part_of(plan_of(blend_of_three(cache_bytes=size), data), SEARCH).in_memory.at_work
        for size in (100_000, 1_000_000, 10**9, 10**10)
    }
    assert sizes[10**9] == sizes[10**10]
    assert 800_000 < sizes[1_000_000] - sizes[100_000] <= 1_000_000


@pytest.mark.usefixtures("second")
def test_every_column_is_scored_once_and_judged_under_many_weightings(planted: PlantedData) -> None:
    three = [EASE(), NextEASE(), EASE(l2=5.0)]
    weightings = planned_models._WEIGHTINGS_PER_COLUMN
    # All users of one part are scored in a second and ranked in another, 256 of them weighed in one.
    plain = part_of(plan_of(Blend(parts=three), planted.interactions, timed=True), SEARCH)
    assert plain.seconds == pytest.approx(3 * 2.0 + 3 * weightings * 400 / 256)
    weighed = planted.interactions.with_recency(Recency(5))
    sharpened = part_of(plan_of(Blend(parts=three, powers=(0.5, 1.0)), weighed, timed=True), SEARCH)
    assert sharpened.seconds == pytest.approx(6 * 2.0 + 6 * weightings * 400 / 256)
    given = Blend(parts=three, columns=[(0, 1.0, 0.5), (2, 1.0, 0.5)])
    assert part_of(plan_of(given, weighed, timed=True), SEARCH).seconds == pytest.approx(2 * 2.0 + 4 * 400 / 256)


@pytest.mark.usefixtures("second")
def test_the_time_of_a_search_is_its_budget_and_the_blend(planted: PlantedData) -> None:
    plan = plan_of(Auto(seconds=77.0), planted.interactions, timed=True)
    assert [part.seconds for part in plan.parts if not part.judges and part.seconds] == [77.0]
    judged = sum(part.seconds or 0.0 for part in plan.parts if part.judges)
    assert judged > 0
    assert plan.seconds_to_choose == 77.0 + judged
    assert plan.seconds_to_refit == 77.0


def test_a_search_holds_the_best_of_each_kind_and_the_one_being_fitted(planted: PlantedData) -> None:
    plan, alone = plan_of(Auto(), planted.interactions), plan_of(NextEASE(), planted.interactions)
    found, solved = part_of(plan, "NextEASE").in_memory, part_of(alone, "model").in_memory
    assert (found.at_work, found.stays) == (solved.at_work + 4 * 60**2, 4 * 60**2)
    weights = 4 * 60**2
    network = 4 * (60 * 200 + 200 + 200 * 60 + 60)
    staying = sum(part.in_memory.stays for part in plan.parts)
    # EASE, two NextEASE and 24 local EASEs.
    assert staying == 27 * weights + 3 * 8 * network
    assert plan.in_folder == staying + part_of(plan, "data").in_folder
    assert len(plan.lines) == 1


def test_a_search_is_planned_with_all_that_it_fits(
    planted_split: Split, planted: PlantedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automatic, "_plan_networks", lambda *_: {"lessons": 3, "members": 1, "epochs": 1})
    blend = Auto(seconds=60.0).fit(planted_split.train, validation=planted_split.validation).model_
    assert isinstance(blend, Blend)
    rows = [part.name for part in plan_of(Auto(), planted.interactions).parts]
    planned = ["EASE", "local EASEs", "NextEASE", "NextEASE, next items alone"]
    assert set(planned) == set(rows[2:6])
    named = [
        name.replace("MultVAE, ", "networks of ").replace("Loca of EASE", "local EASEs") for name in blend.part_names()
    ]
    assert named == [*planned, *rows[6:9]]
    for part in blend.parts[4:]:
        assert isinstance(part, Ensemble)
        assert isinstance(part.base, MultVAE)
        assert (part.base.latent, part.base.hidden) == (MultVAE().latent, MultVAE().hidden)


def test_a_search_with_a_chosen_model_is_planned_as_that_one(planted: PlantedData) -> None:
    for chosen in (NextEASE(), blend_of_three(columns=[(0, 1.0, 1.0)])):
        plan, alone = plan_of(Auto(chosen=chosen), planted.interactions), plan_of(chosen, planted.interactions)
        assert plan.parts == alone.parts
    assert plan_of(Auto(chosen=EASE()), planted.interactions, validated=False).parts[1].name == "model"
    with pytest.raises(ConfigError, match="auto: needs held-out items to choose on"):
        plan_of(Auto(), planted.interactions, validated=False)


def test_a_search_on_a_gpu_is_planned_there(planted: PlantedData, gpu: Callable[[int], None]) -> None:
    gpu(10**9)
    plan = plan_of(Auto(), planted.interactions)
    assert plan.machine.device == "cuda"
    for name in ("EASE", "NextEASE", "networks of next items", SEARCH):
        assert part_of(plan, name).on_device.at_work > 0
    assert plan_of(Blend(parts=[Popularity(), NextEASE()]), planted.interactions).machine.device == "cuda"
    gpu(1000)
    small = plan_of(NextEASE(), planted.interactions)
    assert part_of(small, "model").on_device.at_work == 0  # solved on the CPU, as the fit does


def test_full_histories_are_planned_as_the_dense_arrays_that_they_become_on_a_gpu(
    planted: PlantedData, gpu: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu(10**9)
    taken = []
    for dense in (True, False):  # 60 items, of which every user has many
        monkeypatch.setattr(planned_networks, "multiplies_densely", lambda *_, dense=dense: dense)
        plan = plan_of(Ensemble(base=MultVAE(latent=20), models=7), planted.interactions)
        taken.append(max(part.on_device.at_work for part in plan.parts))
    assert taken[0] - taken[1] == 7 * 4 * 64 * 40
    assert multiplies_densely(planted.interactions.matrix(), torch.device("cuda"), "float32")


def test_a_part_without_a_plan_is_refused_in_one_line(planted: PlantedData) -> None:
    inner = Ensemble(base=Blend(parts=[EASE()]))
    with pytest.raises(ConfigError, match=r"ensemble members: expected ease, next-ease, .* found Blend"):
        plan_of(Blend(parts=[EASE(), inner]), planted.interactions)


@pytest.mark.usefixtures("second")
def test_a_recency_by_choice_is_judged_once_for_each_that_may_be_chosen(planted: PlantedData) -> None:
    data, judged = planted.interactions, "answers on validation"
    count = len(recency_candidates(data))
    assert count > 10

    def seconds(model: Any, rule: str) -> float:
        found = part_of(plan_of(model, data, timed=True, recency=rule), judged).seconds
        assert found is not None
        return found

    # All users are scored in a second and ranked in another.
    assert seconds(EASE(), "given") == 2.0
    assert seconds(EASE(), "auto") == 2.0 * count
    # It may also choose the decay it was trained for, where that is none of the others.
    assert seconds(NextEASE(prefix_decay=0.61), "auto") == 2.0 * (count + 1)
    assert seconds(Blend(parts=[EASE()]), "auto") == seconds(Blend(parts=[EASE()]), "given")
