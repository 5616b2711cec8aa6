"""Engines: each gives the scores of the loop, and refuses in one line what it cannot train."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from small_models import small_vae

from loca.communities.kernel import Kernels
from loca.data.splits import Split
from loca.errors import ConfigError
from loca.local.engines import engine_for
from loca.local.engines.differences.engine import Differences
from loca.local.engines.engine import Engine, ManyFits, copies_of, train
from loca.local.engines.loop import Loop
from loca.local.engines.stacked.engine import Stacked
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.local.local_models import LocalModels
from loca.models.cdae import CDAE
from loca.models.ease import EASE
from loca.models.mult_vae import MultDAE, MultVAE
from loca.models.next_ease import NextEASE
from loca.models.popularity import Popularity
from loca.models.protocols import as_learning_by_epoch, as_linear
from loca.models.rec_vae import RecVAE
from loca.models.recommender import Recommender, TrainingData, clone
from loca.models.slim import SLIM
from loca.paper.stopping import StopEach
from loca.persistence.fit_context import FitContext
from loca.testing import check_engine

SMALL: dict[str, Any] = {"latent": 6, "epochs": 3, "batch_size": 30, "learning_rate": 1e-2}
VAE = MultVAE(**SMALL)
TRAINED: list[tuple[Engine, Recommender]] = [
    (Loop(), EASE(l2=20.0)),
    (Loop(), SLIM()),
    (Loop(), VAE),
    (Loop(), CDAE(**SMALL)),
    (Loop(), RecVAE(hidden=8, **SMALL)),
    (Differences(), EASE(l2=20.0)),
    (Differences(), EASE(l2=20.0, denoising=0.3)),
    (Differences(), NextEASE(l2=20.0)),
    (Stacked(), VAE),
    (Stacked(), MultVAE(hidden=8, target="next", **SMALL)),
    (Stacked(), MultDAE(**SMALL)),
]
COARSE: list[tuple[Engine, Recommender]] = [
    (Stacked(stored="float16"), VAE),
    (Stacked(precision="bfloat16"), VAE),
    (Differences(max_bytes=5500), EASE(l2=20.0)),
]


def name_of(value: object) -> str:
    return repr(value) if isinstance(value, Engine) else type(value).__name__


@pytest.mark.parametrize(("engine", "base"), TRAINED, ids=name_of)
def test_an_engine_gives_the_scores_of_the_loop(engine: Engine, base: Recommender) -> None:
    check_engine(engine, base)


@pytest.mark.parametrize(("engine", "base"), COARSE, ids=name_of)
def test_an_engine_that_rounds_comes_near_the_loop(engine: Engine, base: Recommender) -> None:
    check_engine(engine, base, tolerance=0.1)
    with pytest.raises(AssertionError, match="other scores than in a loop"):
        check_engine(engine, base, tolerance=1e-5)


@pytest.mark.parametrize(
    ("engine", "base", "message"),
    [
        (
            Stacked(),
            EASE(),
            "engine: Stacked trains networks such as MultVAE and MultDAE, found EASE",
        ),
        (
            Stacked(),
            CDAE(),
            "engine: Stacked trains networks such as MultVAE and MultDAE, found CDAE",
        ),
        (
            StopEach(),
            EASE(),
            "engine: Stacked trains networks such as MultVAE and MultDAE, found EASE",
        ),
        (
            Differences(),
            VAE,
            "engine: Differences trains linear models such as EASE and NextEASE, found MultVAE",
        ),
        (
            Differences(),
            EASE(keep=8),
            "engine: Differences trains linear models such as EASE and NextEASE, found EASE",
        ),
    ],
    ids=name_of,
)
def test_an_unsuitable_base_is_refused_in_one_line_when_the_model_is_made(
    engine: Engine, base: Recommender, message: str
) -> None:
    makers: list[Callable[[], Recommender]] = [
        lambda: Loca(base=base, engine=engine),
        lambda: Ensemble(base=base, engine=engine),
    ]
    for make in makers:
        with pytest.raises(ConfigError) as refusal:
            make()
        assert str(refusal.value) == f"{message}; leave the engine out"


@pytest.mark.parametrize(
    ("base", "n_items", "kind"),
    [
        (VAE, 10, Stacked),
        (MultDAE(), 10, Stacked),
        (CDAE(), 10, Loop),
        (RecVAE(), 10, Loop),
        (EASE(), 10, Loop),
        (EASE(), 3000, Differences),
        (NextEASE(), 3000, Differences),
        (EASE(keep=8), 3000, Loop),
        (SLIM(), 3000, Loop),
        (Popularity(), 10, Loop),
    ],
    ids=name_of,
)
def test_the_engine_that_suits_a_base_is_taken(
    base: Recommender, n_items: int, kind: type[Engine]
) -> None:
    engine = engine_for(base, n_items)
    assert type(engine) is kind
    assert engine == kind()
    assert Loca(base=base).engine_of(n_items) == engine
    assert Ensemble(base=base).engine_of(n_items) == engine
    assert Loca(base=base, engine=Loop()).engine_of(n_items) == Loop()


@pytest.mark.parametrize("engine", [Loop(), Stacked()], ids=str)
@pytest.mark.parametrize("shared", [0, 3])
def test_in_shared_epochs_all_models_learn_from_all_users_alike(
    engine: Engine, shared: int, planted_split: Split
) -> None:
    data = TrainingData.of(planted_split.train, device="cpu")
    n_users = planted_split.train.n_users
    weights = np.random.default_rng(0).uniform(0.1, 5, (2, n_users)).astype(np.float32)
    base = small_vae(epochs=3)
    fits = ManyFits(
        models=copies_of(base, 2, seed=1, name="local model"),
        data=data,
        weights_of=weights.__getitem__,
        name="local models",
        shared_epochs=shared,
    )
    seeds = [model.seed for model in fits.models]  # type: ignore[attr-defined]
    models = train(fits, engine)
    histories = planted_split.test.history_matrix[:20]
    for number, seed in enumerate(seeds):
        alone = clone(base, seed=seed)
        # Where every epoch is shared, nothing is left for the users of a community.
        alone.fit(planted_split.train, user_weights=None if shared else weights[number])
        np.testing.assert_allclose(
            models.score_with(number, histories), alone.score(histories), atol=1e-4
        )


# -- A stranger's engine, and an executor ---------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Backwards(Loop):
    """Train the last model first."""

    def solve(self, fits: ManyFits) -> LocalModels:
        last = len(fits) - 1
        turned = replace(
            fits, models=fits.models[::-1], weights_of=lambda number: fits.weights_of(last - number)
        )
        models: Any = super().solve(turned)
        return type(models).of(models.models_[::-1])


@dataclass(frozen=True, kw_only=True)
class WithoutWeights(Loop):
    """Train all models on all users alike: broken."""

    def solve(self, fits: ManyFits) -> LocalModels:
        return super().solve(replace(fits, weights_of=lambda number: fits.data.user_weights))


@dataclass(frozen=True, kw_only=True)
class OneTooFew(Loop):
    """Forget the last model: broken."""

    def solve(self, fits: ManyFits) -> LocalModels:
        models: Any = super().solve(fits)
        return type(models).of(models.models_[:-1])


def test_a_strangers_engine_keeps_the_contract_and_a_broken_one_is_noticed() -> None:
    base = EASE(l2=20.0)
    check_engine(Backwards(), base)
    with pytest.raises(AssertionError, match="model 0: other scores than in a loop"):
        check_engine(WithoutWeights(), base)
    with pytest.raises(AssertionError, match="expected 3 models, found 2"):
        check_engine(OneTooFew(), base)


class Elsewhere:
    """Trains here, and writes down what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, Engine, bool]] = []

    def train(self, fits: ManyFits, engine: Engine, validate: Any = None) -> LocalModels:
        self.asked.append((fits.name, len(fits), engine, validate is not None))
        return engine.train(fits, validate)


@pytest.mark.parametrize("base", [EASE(l2=20.0), small_vae(epochs=2)], ids=name_of)
def test_an_executor_trains_in_place_of_this_machine(
    base: Recommender, planted_split: Split
) -> None:
    executor = Elsewhere()
    models: list[Any] = [
        Loca(base=base, communities=Kernels(n=3)),
        Ensemble(base=base, models=2),
    ]
    histories = planted_split.test.history_matrix
    for model in models:
        validation = planted_split.validation
        here = model.fit(planted_split.train, validation=validation).score(histories)
        model.fit(planted_split.train, validation=validation, context=FitContext(executor=executor))
        np.testing.assert_array_equal(model.score(histories), here)
    engine = engine_for(base, 60)
    assert executor.asked == [
        ("local models", 3, engine, True),
        ("ensemble", 2, engine, True),
    ]


def test_an_update_is_not_spread_over_shards(planted_split: Split) -> None:
    data = TrainingData.of(planted_split.train)
    fits = ManyFits(
        models=[EASE()],
        data=replace(data, context=FitContext(executor=Elsewhere())),
        weights_of=lambda number: data.user_weights,
        name="local models",
        present=Ensemble(base=EASE(), models=1).fit(planted_split.train).models_,
    )
    with pytest.raises(ConfigError, match="executor: an update cannot be spread over shards"):
        train(fits, Loop())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda fits: Stacked().solve(fits),
            "engine: Stacked cannot train EASE, which does not learn by epoch",
        ),
        (
            lambda fits: Differences().begin(replace(fits, models=[VAE])),
            "engine: Differences cannot train MultVAE, which learns by epoch",
        ),
    ],
)
def test_what_an_engine_does_not_do_is_refused(
    call: Callable[[ManyFits], object], message: str, planted_split: Split
) -> None:
    data = TrainingData.of(planted_split.train.matrix())
    fits = ManyFits([EASE()], data, lambda number: data.user_weights, "test")
    with pytest.raises(ConfigError) as refusal:
        call(fits)
    assert str(refusal.value) == f"{message}; leave the engine out"


def test_engines_see_only_models_that_can_do_what_they_ask_for() -> None:
    assert as_linear(EASE()) is not None
    assert as_learning_by_epoch(VAE) is VAE
    with pytest.raises(ConfigError, match="expected a linear model, found MultVAE"):
        as_linear(VAE)
    with pytest.raises(ConfigError, match="expected a model that learns by epoch, found EASE"):
        as_learning_by_epoch(EASE())
