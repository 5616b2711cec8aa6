"""Each network stops at the best epoch of its own users: known scripts, interruptions, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loca.communities.geometry import Quantile
from loca.communities.kernel import Kernels
from loca.data.splits import HeldOut, Split
from loca.errors import ConfigError
from loca.evaluation.evaluate import evaluate
from loca.local.combiner import FixedShare, LocalOnly
from loca.local.engines.engine import Engine
from loca.local.engines.loop import Loop
from loca.local.engines.stacked.engine import Stacked
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from loca.models.popularity import Popularity
from loca.models.recommender import clone
from loca.paper.stopping import StopEach
from loca.persistence.checkpoint import Checkpoint
from loca.persistence.fit_context import FitContext, checkpoint_in
from loca.registry import load
from scripted_models import NEVER, ON_VALIDATION, Row, Scripted, ranked, scripted_split

RIGHT = ranked(ON_VALIDATION)
WRONG = ranked(NEVER, ON_VALIDATION)
SURELY_RIGHT = ranked(ON_VALIDATION, scale=10.0)
FOR_EVERYBODY = Kernels(n=2, kernel="uniform", train_bandwidth=3.0, answer_bandwidth=3.0)


def network(**changes: Any) -> MultVAE:
    params: dict[str, Any] = {
        "latent": 8,
        "learning_rate": 5e-2,
        "epochs": 40,
        "patience": 2,
        "batch_size": 100,
    }
    return MultVAE(**(params | changes))


def narrow_loca(engine: Engine, base: MultVAE, level: float = 0.3, n: int = 4) -> Loca:
    kernels = Kernels(n=n, answer_bandwidth=Quantile(level))
    return Loca(base=base, communities=kernels, combiner=LocalOnly(), engine=engine)


def epochs_of_each(model: Loca) -> list[int]:
    local: Any = model.local_
    return [network.best_epoch_ for network in local.models.models_]


def test_the_best_epoch_is_that_of_the_script() -> None:
    split = scripted_split()
    scripts: dict[tuple[Row, ...], int] = {
        (WRONG, RIGHT, WRONG, WRONG): 2,
        (RIGHT, WRONG, RIGHT): 1,
        (WRONG, WRONG, RIGHT): 3,
    }
    for script, expected in scripts.items():
        model = Loca(
            base=Scripted(script=script),
            communities=FOR_EVERYBODY,
            combiner=FixedShare(0.0),
            engine=StopEach(engine=Loop()),
        )
        model.fit(split.train, validation=split.validation)
        assert epochs_of_each(model) == [expected] * 2
        scores = model.score(split.test.history_matrix)
        np.testing.assert_allclose(scores, np.tile(RIGHT, (len(scores), 1)), atol=1e-6)


def test_a_refit_has_the_epochs_of_validation_and_not_those_it_was_given() -> None:
    split = scripted_split()
    model = Loca(
        base=Scripted(script=(WRONG, RIGHT, WRONG, WRONG)),
        global_model=Scripted(script=(WRONG, WRONG, SURELY_RIGHT, WRONG)),
        communities=FOR_EVERYBODY,
        combiner=FixedShare(0.0),
        engine=StopEach(engine=Loop()),
    )
    selected: Any = model.fit(split.train, validation=split.validation).selected()
    assert (selected.base.epochs, selected.global_model.epochs) == (2, 3)
    assert selected.engine == StopEach(engine=Loop())
    histories = split.test.history_matrix
    scores = selected.fit(split.train_and_validation).score(histories)
    np.testing.assert_allclose(scores, np.tile(RIGHT, (histories.shape[0], 1)), atol=1e-6)


def test_each_community_stops_on_its_own_members(planted_split: Split) -> None:
    model = narrow_loca(StopEach(engine=Loop()), network())
    model.fit(planted_split.train, validation=planted_split.validation)
    epochs = epochs_of_each(model)
    assert len(set(epochs)) > 1
    assert model.local_ is not None
    assert model.local_.models.epochs_ == int(np.median(epochs))


def test_each_network_is_best_for_its_own_members_at_the_epoch_that_it_has(
    planted_split: Split,
) -> None:
    """As trained for all other numbers of epochs, one after the other and without validation."""
    held_out = planted_split.validation
    assert held_out is not None
    base = network(epochs=6, patience=6)
    model = narrow_loca(StopEach(engine=Loop()), base)
    model.fit(planted_split.train, validation=held_out)
    assert model.global_ is not None
    chosen = epochs_of_each(model)
    weights = model.answer_weights(held_out.history_matrix).tocsc()
    for number in range(4):
        users = weights.indices[weights.indptr[number] : weights.indptr[number + 1]]
        own = held_out.of_users(np.sort(users))
        reached = []
        for epochs in range(1, 7):
            local = narrow_loca(Loop(), network(epochs=epochs))
            longer: Any = clone(local, global_model=model.global_.selected())
            longer.fit(planted_split.train)
            alone = longer.local_.models.models_[number]
            reached.append(evaluate(alone, own, at=(100,)).means()["ndcg@100"])
        assert np.argmax(reached) + 1 == chosen[number]


def test_a_community_without_validation_users_runs_all_its_epochs(planted_split: Split) -> None:
    held_out = planted_split.validation
    assert held_out is not None
    is_kept = held_out.targets.places() >= 0
    is_kept[held_out.targets.offsets[1] :] = False
    one_user = HeldOut(held_out.histories, held_out.targets.where(is_kept))
    base = network(learning_rate=2e-2, epochs=8, patience=3)
    model = narrow_loca(StopEach(engine=Loop()), base, level=0.02)
    model.fit(planted_split.train, validation=one_user)
    assert 8 in epochs_of_each(model)


def test_the_stack_stops_as_the_loop_does(planted_split: Split) -> None:
    histories = planted_split.test.history_matrix
    scores = []
    for engine in (Loop(), Stacked()):
        model = narrow_loca(StopEach(engine=engine), network())
        model.fit(planted_split.train, validation=planted_split.validation)
        scores.append(model.score(histories))
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-4)


def test_without_validation_all_epochs_are_run(planted_split: Split) -> None:
    histories = planted_split.test.history_matrix[:20]
    plain, each = (
        narrow_loca(engine, network(epochs=3)).fit(planted_split.train)
        for engine in (Loop(), StopEach(engine=Loop()))
    )
    assert each.local_ is not None
    assert each.local_.models.epochs_ == 3
    np.testing.assert_array_equal(each.score(histories), plain.score(histories))


def test_a_model_that_was_stopped_so_is_loaded_again(planted_split: Split, tmp_path: Path) -> None:
    model = narrow_loca(StopEach(), network(epochs=3))
    model.fit(planted_split.train, validation=planted_split.validation).save(tmp_path / "m")
    loaded: Any = load(tmp_path / "m")
    assert loaded.engine == StopEach()
    histories = planted_split.test.history_matrix[:20]
    np.testing.assert_array_equal(loaded.score(histories), model.score(histories))


class Killed(BaseException):
    """Stands for a kill: nothing in the code catches it."""


@pytest.mark.parametrize("engine", [Loop(), Stacked()], ids=["loop", "stack"])
def test_an_interrupted_fit_ends_as_an_unbroken_one(
    engine: Engine, planted_split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = network(epochs=7, patience=1, batch_size=200, learning_rate=3e-2)
    histories = planted_split.test.history_matrix[:50]

    def fit(context: FitContext) -> Any:
        model = narrow_loca(StopEach(engine=engine), base, n=3)
        model.fit(planted_split.train, validation=planted_split.validation, context=context)
        return model.score(histories)

    unbroken = fit(FitContext())
    save = Checkpoint.save
    n_killed = 0
    for kills_at in (3, 5, 9, 12):
        n_saved = 0

        def save_and_die(self: Checkpoint, *state: Any, kills_at: int = kills_at) -> None:
            nonlocal n_saved
            save(self, *state)
            n_saved += self.saves
            if n_saved == kills_at:
                raise Killed

        def opened(*, resume: bool) -> Any:
            return checkpoint_in(
                tmp_path / "work", fingerprint={"a": 1}, resume=resume, seconds_between=0
            )

        with monkeypatch.context() as patch:
            patch.setattr(Checkpoint, "save", save_and_die)
            try:
                with opened(resume=False) as context:
                    scores = fit(context)
            except Killed:
                n_killed += 1
        if n_saved >= kills_at:
            with opened(resume=True) as context:
                scores = fit(context)
        np.testing.assert_array_equal(scores, unbroken)
    assert n_killed >= 2


def test_what_cannot_stop_each_by_itself_is_refused(planted_split: Split) -> None:
    with pytest.raises(ConfigError, match=r"Stacked trains networks such as .*, found EASE"):
        Loca(base=EASE(), engine=StopEach())
    with pytest.raises(ConfigError, match="StopEach is for networks, found Popularity"):
        Loca(base=Popularity(), engine=StopEach(engine=Loop()))
    ensemble = Ensemble(base=network(epochs=1), models=2, engine=StopEach())
    with pytest.raises(ConfigError, match="StopEach is for the communities of a Loca"):
        ensemble.fit(planted_split.train, validation=planted_split.validation)
    with pytest.raises(ConfigError, match="engine: expected an engine such as Stacked"):
        StopEach(engine=StopEach)  # type: ignore[arg-type]


class NoShards:
    """An executor that is never asked."""

    def train(self, *parts: Any) -> Any:
        raise AssertionError("nothing can be divided here")


def test_shards_cannot_stop_each_by_itself(planted_split: Split) -> None:
    model = narrow_loca(StopEach(), network(epochs=1))
    with pytest.raises(ConfigError, match="executor: StopEach cannot be spread over shards"):
        model.fit(planted_split.train, context=FitContext(executor=NoShards()))
