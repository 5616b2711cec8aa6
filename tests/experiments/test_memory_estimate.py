"""The plan of a fit: memory and files as they turn out to be, what does not fit, and its words."""

from __future__ import annotations

import tracemalloc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from loca.communities.best_of import BestOf
from loca.communities.embeddings import GivenEmbeddings, TruncatedSVD
from loca.communities.kernel import Kernels
from loca.communities.mixture import Mixtures
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.data.splits import Split
from loca.data.synthetic import PlantedData, planted_communities
from loca.errors import ConfigError
from loca.experiments.memory_estimate import FitPlan, plan_fit
from loca.local.auto import Auto
from loca.local.blend import Blend
from loca.local.engines.differences.engine import Differences
from loca.local.engines.loop import Loop
from loca.local.engines.stacked.engine import Stacked
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.memory import DataSize, MemoryUse
from loca.models.cdae import CDAE
from loca.models.ease import EASE
from loca.models.item_knn import ItemKNN
from loca.models.llorma import LLORMA
from loca.models.mult_vae import MultDAE, MultVAE
from loca.models.next_ease import NextEASE
from loca.models.popularity import Popularity
from loca.models.rec_vae import RecVAE
from loca.models.recommender import Recommender, clone
from loca.models.sglsvd import SGLSVD
from loca.models.slim import SLIM
from loca.models.wmf import WMF
from loca.registry import COMPONENTS, MODELS

QUICK: dict[str, Any] = {"epochs": 2, "batch_size": 300}
FEW: dict[str, Any] = {"communities": Kernels(n=3), "engine": Differences(max_bytes=50_000)}
# Every family of models, and how many times the real peak its plan may be.
FAMILIES: dict[str, tuple[Callable[[], Recommender], float]] = {
    "ease": (lambda: EASE(), 2),
    "next-ease": (lambda: NextEASE(), 2),
    "item-knn": (lambda: ItemKNN(neighbours=50), 2.2),
    "slim": (
        lambda: SLIM(),
        3,
    ),  # every pair of items counts as a candidate, and blocks as full
    "wmf": (lambda: WMF(factors=60, frequency_scaling=0.5), 2),
    "llorma": (lambda: LLORMA(anchors=3, factors=60), 2),
    "sglsvd": (lambda: SGLSVD(clusters=3, global_rank=20, local_rank=10), 2.3),
    "cdae": (lambda: CDAE(latent=50, **QUICK), 2.2),
    "cdae of squares": (lambda: CDAE(latent=50, loss="square", **QUICK), 3),
    "rec-vae": (lambda: RecVAE(latent=50, hidden=100, **QUICK), 2),
    "mult-vae": (lambda: MultVAE(latent=50, **QUICK), 2),
    "mult-dae": (lambda: MultDAE(latent=50, hidden=80, **QUICK), 2.2),
    "loca-ease": (lambda: Loca(base=EASE(), communities=Kernels(n=3)), 2),
    "loca-ease of few bytes": (lambda: Loca(base=EASE(), **FEW), 2),
    "loca-next-ease of few bytes": (lambda: Loca(base=NextEASE(), **FEW), 2),
    "loca-vae": (lambda: Loca(base=MultVAE(latent=50, **QUICK), communities=Kernels(n=3)), 2),
    "loca-vae one by one": (
        lambda: Loca(base=MultVAE(latent=50, **QUICK), communities=Kernels(n=3), engine=Loop()),
        2,
    ),
    "loca-rec-vae": (
        lambda: Loca(base=RecVAE(latent=50, hidden=100, **QUICK), communities=Kernels(n=3)),
        2,
    ),
    "ensemble-vae": (lambda: Ensemble(base=MultVAE(latent=50, **QUICK), models=5), 2.2),
    "ensemble-ease": (lambda: Ensemble(base=EASE(), models=3), 2),
    "blend": (lambda: Blend(parts=[EASE(), NextEASE(), Popularity()]), 2),
}
# Models whose folder follows from sizes alone.
FOLDERS: dict[str, Callable[[], Recommender]] = {
    "popularity": Popularity,
    "ease": EASE,
    "item-knn": lambda: ItemKNN(neighbours=20),
    "wmf": lambda: WMF(factors=8),
    "llorma": lambda: LLORMA(anchors=4, factors=6),
    "sglsvd": lambda: SGLSVD(clusters=3, global_rank=6, local_rank=3),
    "cdae": lambda: CDAE(latent=8, **QUICK),
    "rec-vae": lambda: RecVAE(latent=8, hidden=16, **QUICK),
    "mult-vae": lambda: MultVAE(latent=30, **QUICK),
    "loca-ease": lambda: Loca(base=EASE(), communities=Kernels(n=3)),
    "loca-ease of few bytes": lambda: Loca(
        base=EASE(), communities=Kernels(n=3), engine=Differences(max_bytes=5000)
    ),
    "loca-ease around a network": lambda: Loca(
        base=EASE(), communities=Kernels(n=3), global_model=MultDAE(latent=20, **QUICK)
    ),
    "loca-ease embedded by a network": lambda: Loca(
        base=EASE(), communities=Kernels(n=3, embedding=MultVAE(latent=20, **QUICK))
    ),
    "loca-next-ease around an ease": lambda: Loca(
        base=NextEASE(),
        communities=Kernels(n=3),
        engine=Differences(max_bytes=5000),
        global_model=EASE(l2=300.0),
    ),
    "loca of popularity": lambda: Loca(
        base=Popularity(), communities=Kernels(n=3, embedding=TruncatedSVD(dimensions=5))
    ),
    "loca-dae one by one": lambda: Loca(
        base=MultDAE(latent=8, **QUICK), communities=Kernels(n=3), engine=Loop()
    ),
    "ensemble-ease": lambda: Ensemble(base=EASE(), models=3),
    "ensemble-dae": lambda: Ensemble(base=MultDAE(latent=20, **QUICK), models=3),
    "ensemble-next-ease of few bytes": lambda: Ensemble(
        base=NextEASE(), models=3, engine=Differences(max_bytes=5000)
    ),
}


class TorchBytes(TorchDispatchMode):
    """Counts the bytes of all tensors that torch makes and that still live."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for one in out if isinstance(out, tuple | list) else (out,):
            if isinstance(one, torch.Tensor) and one.untyped_storage().data_ptr() not in self.seen:
                self.add(one.untyped_storage())
        return out

    def add(self, storage: torch.UntypedStorage) -> None:
        place, size = storage.data_ptr(), storage.nbytes()
        self.seen.add(place)
        self.now += size
        self.peak = max(self.peak, self.now)

        def drop() -> None:
            self.seen.discard(place)
            self.now -= size

        weakref.finalize(storage, drop)


@pytest.fixture(scope="module")
def wide() -> Interactions:
    return planted_communities(
        users=900, items=500, communities=2, groups=10, history=30, seed=1
    ).interactions


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes plans believe in a GPU with so many free bytes; nothing is computed there."""

    def pretend(free: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, free))
        for name in ("memory_reserved", "memory_allocated"):
            monkeypatch.setattr(torch.cuda, name, lambda device: 0)

    return pretend


def plan_of(model: Any, data: Interactions, **options: Any) -> FitPlan:
    return plan_fit([model], data, name="model", **options)


def use_of(plan: FitPlan, name: str) -> MemoryUse:
    return plan.parts[name]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_fit_takes_what_its_plan_says(name: str, wide: Interactions) -> None:
    make, factor = FAMILIES[name]
    size = DataSize.of(wide.matrix(), validated=False, device="cpu")
    planned = make().memory_bytes(size).main
    # Each library is traced alone; the first fit also imports and warms up what the second one finds ready.
    with TorchBytes() as by_torch:
        make().fit(wide, device="cpu")
    model = make()
    tracemalloc.start()
    model.fit(wide, device="cpu")
    _, by_numpy = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert max(by_torch.peak, by_numpy) <= planned <= factor * max(by_torch.peak, by_numpy)


def test_few_users_are_planned_by_their_own_equations() -> None:
    data = planted_communities(
        users=300, items=700, communities=2, groups=10, history=30, seed=1
    ).interactions
    size = DataSize.of(data.matrix(), validated=False, device="cpu")
    planned = EASE().memory_bytes(size).main
    with TorchBytes() as by_torch:
        EASE().fit(data, device="cpu")
    assert by_torch.peak <= planned <= 2 * by_torch.peak


def arrays_of(model: Recommender, folder: Path) -> tuple[int, int]:
    """The bytes of the arrays of a saved model, and how many files they lie in."""
    model.save(folder)
    arrays = [path for path in folder.iterdir() if path.name != "model.json"]
    return sum(path.stat().st_size for path in arrays), len(arrays)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_saved_model_takes_the_planned_bytes(
    name: str, planted: PlantedData, planted_split: Split, tmp_path: Path
) -> None:
    model = FOLDERS[name]().fit(planted.interactions, validation=planted_split.validation)
    saved, files = arrays_of(model, tmp_path / "m")
    planned = plan_of(FOLDERS[name](), planted.interactions).in_folder
    assert (
        planned <= saved <= planned + 1000 * files
    )  # an array file has a header of a few hundred bytes


@pytest.mark.parametrize(
    "made",
    [
        lambda: SLIM(),
        lambda: Loca(base=MultVAE(latent=20, **QUICK), communities=Kernels(n=3)),
        lambda: Loca(
            base=MultVAE(latent=20, **QUICK),
            communities=Kernels(n=3),
            engine=Stacked(stored="float16"),
        ),
    ],
    ids=["few pairs have a weight", "only means answer", "only means answer in 16 bits"],
)
def test_where_less_is_saved_than_learned_the_folder_is_an_upper_bound(
    made: Callable[[], Any], planted: PlantedData, tmp_path: Path
) -> None:
    plan = plan_of(made(), planted.interactions)
    saved, _ = arrays_of(made().fit(planted.interactions), tmp_path / "m")
    assert saved / 2 <= plan.in_folder <= 2 * saved


@pytest.mark.parametrize("name", MODELS)
def test_every_model_by_name_has_a_plan(
    name: str, planted: PlantedData, gpu: Callable[[int], None]
) -> None:
    plan = plan_of(MODELS[name](), planted.interactions)
    assert plan.fits
    for use in plan.fits.values():
        assert 0 < use.main >= use.main_after >= 0
    assert plan.problems == ()
    gpu(10**10)
    on_gpu = plan_of(MODELS[name](), planted.interactions)
    assert on_gpu.in_folder == plan.in_folder
    if name not in ("popularity", "item-knn", "slim", "ensemble-slim", "sglsvd"):
        assert on_gpu.device == "cuda"
        assert on_gpu.peak("device")[0] > 0


def test_the_peak_is_what_stays_and_the_largest_part_being_fitted() -> None:
    first = MemoryUse(
        main=1000, main_after=300, device=50, device_after=20, folder=7, checkpoint=40
    )
    second = MemoryUse(main=800, device=60, folder=5, checkpoint=30, advice="take less")
    data = planted_communities(users=30, items=40, communities=2, groups=2).interactions
    fits = {"first": first, "second": second}
    beside = {"data": MemoryUse(main=100), "answers": MemoryUse(main=10, device=4)}
    plan = FitPlan("some", data, fits, beside, 1300, "cuda", 100)
    assert plan.peak("device") == (4 + 20 + 60, "second")
    assert plan.peak("main") == (100 + 10 + 300 + 800, "second")
    assert (plan.in_folder, plan.unfinished) == (12, 40)
    assert plan.problems == ()
    assert "it fits" in str(plan)
    short = FitPlan("some", data, fits, beside, 1209, "cuda", 83, free_on_disk=51)
    assert short.problems == (
        "second on cuda: 84 B needed, 83 B are free; take less",
        "second in main memory: 1 kB needed, 1 kB are free; take less",
        "files: 52 B needed, 51 B are free; free some space or choose another --out",
    )
    assert short.document()["fits"] is False
    assert str(short).count("DOES NOT FIT") == 3
    total = MemoryUse.in_turn(fits)
    assert (total.main, total.main_after, total.device, total.folder) == (1100, 300, 80, 12)


def test_many_models_hold_what_each_has_fitted_or_trains_with() -> None:
    solved = MemoryUse(main=100, main_after=30, folder=30).times(5)
    assert (solved.main, solved.main_after, solved.folder) == (4 * 30 + 100, 150, 150)
    trained = MemoryUse(main=100, main_after=10, folder=10, training=60, checkpoint=120).times(5)
    assert (trained.main, trained.main_after, trained.checkpoint) == (4 * 60 + 100, 50, 600)


def test_the_parts_of_a_blend_stay_one_beside_the_other(planted: PlantedData) -> None:
    parts = [EASE(), NextEASE(), Loca(base=EASE(), communities=Kernels(n=3))]
    plan = plan_of(Blend(parts=parts), planted.interactions)
    assert list(plan.parts) == [
        "data", "EASE", "NextEASE", "Loca of EASE: global model", "Loca of EASE: embedding",
        "Loca of EASE: communities", "Loca of EASE: local models", "weights of the blend", "answers on validation",
    ]  # fmt: skip
    alone = [use for one in parts for use in plan_of(one, planted.interactions).fits.values()]
    assert list(plan.fits.values())[:6] == alone
    without = plan_of(Blend(parts=parts), planted.interactions, validated=False)
    assert list(without.parts) == list(plan.parts)[:7]


def test_what_the_search_for_weights_takes_is_planned(planted_split: Split) -> None:
    assert planted_split.validation is not None
    recency = Recency(5)
    train, validation = (
        planted_split.train.with_recency(recency),
        planted_split.validation.with_recency(recency),
    )
    models = [EASE(), NextEASE(), EASE(l2=5.0)]
    plan = plan_of(Blend(parts=models), train, device="cpu")
    fitted = [clone(model).fit(train, device="cpu") for model in models]
    with TorchBytes() as by_torch:
        Blend.of(fitted, validation)
    # At least the scores of all items, none of which is left out here, by three parts at five powers.
    assert (
        4 * 400 * 60 * 15
        < by_torch.peak
        < use_of(plan, "weights of the blend").main
        < 2 * by_torch.peak
    )


def test_a_cache_bounds_what_the_search_takes(planted: PlantedData) -> None:
    sizes = {
        size: use_of(
            plan_of(Blend(parts=[EASE()], cache_bytes=size), planted.interactions),
            "weights of the blend",
        ).main
        for size in (100_000, 300_000, 10**9, 10**10)
    }
    assert sizes[10**9] == sizes[10**10]
    assert 150_000 < sizes[300_000] - sizes[100_000] <= 201_000


def test_a_search_is_planned_with_all_that_it_fits(planted: PlantedData) -> None:
    plan = plan_of(Auto(), planted.interactions)
    names = list(plan.parts)
    assert names[1:5] == ["EASE", "local EASEs", "NextEASE", "NextEASE, next items alone"]
    assert [name for name in names if name.startswith("networks of")] == names[5:8]
    weights = 4 * 60**2
    alone = use_of(plan_of(NextEASE(), planted.interactions), "model").main
    assert (
        use_of(plan, "NextEASE").main == alone + weights
    )  # the best so far stays while the next is fitted
    assert plan.in_folder >= 27 * weights  # EASE, two NextEASE and 24 local EASEs
    for chosen in (NextEASE(), Blend(parts=[EASE(), NextEASE()], columns=[(0, 1.0, 1.0)])):
        assert (
            plan_of(Auto(chosen=chosen), planted.interactions).parts
            == plan_of(chosen, planted.interactions).parts
        )
    with pytest.raises(ConfigError, match="auto: needs held-out items to choose on"):
        plan_of(Auto(), planted.interactions, validated=False)


def test_a_stack_that_a_gpu_does_not_hold_waits_in_main_memory(
    planted: PlantedData, gpu: Callable[[int], None]
) -> None:
    gpu(10**9)
    model = Loca(base=MultVAE(latent=20), communities=Kernels(n=40, anchors="random"))
    ample = use_of(plan_of(model, planted.interactions), "local models")
    assert ample.device < 10**9
    assert ample.main >= ample.training  # a checkpoint's copy
    gpu(ample.device // 3)
    small = use_of(plan_of(model, planted.interactions), "local models")
    assert small.device == ample.device // 3
    assert small.main == ample.main


def test_equations_that_a_gpu_does_not_hold_are_solved_on_the_cpu(
    planted: PlantedData, gpu: Callable[[int], None]
) -> None:
    gpu(10**9)
    model = Loca(base=EASE(), communities=Kernels(n=3))
    for name in ("global model", "local models"):
        use = use_of(plan_of(model, planted.interactions), name)
        assert use.device > 4 * 60**2
        assert (use.device_after, use.main_after) == (0, use.folder)
    assert use_of(plan_of(model, planted.interactions), "communities").device > 0
    factors = use_of(plan_of(WMF(factors=8), planted.interactions), "model")
    assert factors.device_after == factors.main_after == 4 * 60 * 8
    gpu(1000)
    for name in ("global model", "communities"):
        assert use_of(plan_of(model, planted.interactions), name).device == 0
    assert use_of(plan_of(WMF(factors=8), planted.interactions), "model").device == 0
    gpu(20_000_000)
    network = plan_of(MultVAE(latent=50_000), planted.interactions)
    assert [line.split(":")[0] for line in network.problems] == ["model on cuda"]
    assert network.document()["on_device"]["free"] == 20_000_000


def test_what_does_not_fit_into_main_memory_says_so(
    planted: PlantedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loca.experiments.memory_estimate.available_bytes", lambda: 100_000)
    (problem,) = plan_of(MultVAE(latent=500), planted.interactions).problems
    assert problem.startswith("model in main memory: ")
    assert problem.endswith("100 kB are free; take fewer or smaller models")


def test_the_largest_candidate_is_the_one_that_is_shown(planted: PlantedData) -> None:
    candidates = [MultVAE(latent=latent) for latent in (10, 70, 30)]
    plan = plan_fit(candidates, planted.interactions, name="mult-vae")
    assert plan.candidates == 3
    assert "the largest of 3 candidates" in str(plan)
    assert use_of(plan, "model").folder == 4 * (60 * (140 + 70 + 1) + 140)
    with pytest.raises(ConfigError, match="nothing to plan"):
        plan_fit([], planted.interactions, name="none")


def test_given_embeddings_are_planned_as_a_parameter(planted: PlantedData) -> None:
    given = GivenEmbeddings(embeddings=torch.eye(400, 7).numpy())
    use = use_of(
        plan_of(Loca(base=EASE(), communities=Kernels(n=3, embedding=given)), planted.interactions),
        "embedding",
    )
    assert use.folder == 4 * 7 * (400 + 60)


def test_what_no_fit_could_do_is_refused_in_one_line(planted: PlantedData) -> None:
    data = planted.interactions
    with pytest.raises(ConfigError, match="Diary: what a fit takes is not known"):
        plan_of(type("Diary", (Recommender,), {})(), data)
    with pytest.raises(
        ConfigError,
        match=r"embedding: expected an embedder such as TruncatedSVD\(\) or none, found",
    ):
        plan_of(Loca(base=EASE(), communities=Kernels(embedding=EASE())), data)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="max_bytes: expected at least"):
        plan_of(Loca(base=EASE(), engine=Differences(max_bytes=7)), data)


@pytest.mark.parametrize("finder", [Kernels, Mixtures, BestOf])
def test_more_communities_than_users_are_planned_as_one_for_each_user(
    planted: PlantedData, finder: Any
) -> None:
    few, many = (
        use_of(
            plan_of(Loca(base=EASE(), communities=finder(n=n)), planted.interactions),
            "local models",
        )
        for n in (400, 4000)
    )
    assert few == many


@pytest.mark.parametrize("kind", COMPONENTS["CommunityFinder"])
@pytest.mark.parametrize("base", [EASE(), MultVAE(latent=20, **QUICK)], ids=["ease", "network"])
def test_every_kind_of_communities_has_a_plan(
    kind: str, base: Recommender, planted: PlantedData
) -> None:
    finder = COMPONENTS["CommunityFinder"][kind]()
    plan = plan_of(Loca(base=base, communities=finder), planted.interactions)
    assert {"global model", "communities", "local models"} <= set(plan.fits)
    use = use_of(plan, "communities")
    assert 0 < use.main_after <= use.main
