"""Contract checks for models, finders, combiners and engines: for those of the package, and for yours.

Each check fits what it is given to small planted data and raises AssertionError, with a sentence that
says what was expected, where the contract is broken:

    from loca.testing import check_finder, check_recommender

    def test_my_finder() -> None:
        check_finder(MyFinder(n=4))

    def test_my_model() -> None:
        check_recommender(MyModel())
"""

from __future__ import annotations

import dataclasses
import json
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
from scipy.sparse import csr_array

from loca.communities.finder import Communities, CommunityFinder
from loca.communities.geometry import Quantile
from loca.communities.kernel import Kernels
from loca.data.interactions import Interactions
from loca.data.splits import HeldOut, hold_last
from loca.data.synthetic import planted_communities
from loca.errors import ConfigError, DataError, NotFittedError
from loca.evaluation.evaluate import evaluate
from loca.local.combiner import Combiner, LocalOnly
from loca.local.engines.engine import Engine, ManyFits, copies_of, train
from loca.local.engines.loop import Loop
from loca.local.ensemble import Ensemble
from loca.local.judge import Judge, Panel, Validation
from loca.local.loca import Loca
from loca.local.local_models import LocalModels, SeparateModels
from loca.memory import DataSize, MemoryUse
from loca.models.ease import EASE
from loca.models.recommender import Recommender, TrainingData, clone, get_params
from loca.persistence.manifest import Persistent
from loca.persistence.model_io import load_model, save_model
from loca.registry import KINDS
from loca.remarks import collect_remarks, muted_remarks
from loca.typing import FloatArray

_N_USERS = 90
_N_ITEMS = 40
_N_MODELS = 3
_EASE = EASE(l2=20.0)
_NARROW = Kernels(n=4, train_bandwidth=Quantile(0.6), answer_bandwidth=Quantile(0.1))
# Of sums in another order, relative to the largest number.
_ROUNDING = 1e-4
# A membership that is smaller may be left out.
_LEAST_MEMBERSHIP = 0.01


# -- Planted data ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Planted:
    """Planted histories of a few users, and the last items of each held out."""

    train: Interactions
    validation: HeldOut

    @property
    def histories(self) -> csr_array:
        """The users' histories, users × items."""
        return self.train.histories()

    def data(self, user_weights: Any = None) -> TrainingData:
        """Return what a finder or an engine learns from."""
        data = TrainingData.of(self.train, user_weights, "cpu")
        return replace(data, validation=self.validation)


@cache
def _planted() -> _Planted:
    interactions = planted_communities(
        users=_N_USERS,
        items=_N_ITEMS,
        communities=2,
        groups=5,
        tastes=1.0,
        favour=3.0,
        history=12,
        shortest_history=10,
        seed=3,
    ).interactions
    train, validation, _ = hold_last(interactions, 2)
    return _Planted(train, validation)


def _strangers() -> csr_array:
    """Return histories that nobody had: a weighted one, one of a single item, and an empty one."""
    histories = np.zeros((3, _N_ITEMS), np.float32)
    histories[0, [1, 5, 9, 30]] = [1.0, 0.5, 0.25, 2.0]
    histories[1, 7] = 1.0
    return csr_array(histories)


def _no_histories() -> csr_array:
    return csr_array(np.zeros((0, _N_ITEMS), np.float32))


# -- Models ---------------------------------------------------------------------------------------


def check_recommender(model: Recommender) -> None:
    """Check the contract of a model.

    It is fitted several times, so it should be a small one.

    Parameters
    ----------
    model : Recommender
        A model with parameters for a few users and items; it stays as it is.

    Raises
    ------
    AssertionError
        Where it breaks the contract.

    Examples
    --------
    >>> from loca.testing import check_recommender
    >>> check_recommender(loca.EASE(l2=20))
    """
    assert isinstance(model, Recommender), f"expected a Recommender, found {type(model).__name__}"
    with muted_remarks():
        _check_parameters(model)
        _check_before_fit(clone(model))
        fitted = _fitted(model)
        _check_scores(fitted)
        _check_refusals(fitted)
        _check_repeated_fits(model, fitted)
        _check_answers(fitted)
        _check_selected(model, fitted)
        _check_saved_model(fitted)
        _check_memory_of_fit(model)
        _check_update(fitted)


def _fitted(model: Any, **arguments: Any) -> Any:
    planted = _planted()
    arguments = {"validation": planted.validation, "device": "cpu"} | arguments
    return clone(model).fit(planted.train, **arguments)


def _check_parameters(model: Recommender) -> None:
    name = type(model).__name__
    copy = clone(model)
    assert type(copy) is type(model), f"a clone of {name} is a {type(copy).__name__}"
    assert repr(copy) == repr(model), f"a clone of {name} has other parameters: {copy!r}"
    assert get_params(copy).keys() == get_params(model).keys(), "a clone has other parameters"
    assert repr(model), "repr() is empty"


def _check_before_fit(model: Recommender) -> None:
    assert not model.is_fitted, "an unfitted model says that it is fitted"
    try:
        model.score(_strangers())
    except NotFittedError:
        return
    raise AssertionError("score() before fit() is to raise NotFittedError")


def _check_scores(model: Recommender) -> None:
    planted = _planted()
    for histories in (planted.histories, _strangers(), _no_histories()):
        before = histories.copy()
        scores = model.score(histories)
        assert np.array_equal(histories.data, before.data), "score() changes the histories"
        expected = (histories.shape[0], _N_ITEMS)
        assert isinstance(scores, np.ndarray), f"scores are a {type(scores).__name__}, no ndarray"
        assert scores.shape == expected, f"scores: expected shape {expected}, found {scores.shape}"
        assert scores.dtype == np.float32, f"scores: expected float32, found {scores.dtype}"
        assert np.isfinite(scores).all(), "a score is NaN or infinite"
    together = model.score(csr_array(planted.histories[:8]))
    alone = [model.score(csr_array(planted.histories[[row]])) for row in range(8)]
    _assert_close(together, np.concatenate(alone), "the answer to a history depends on the others")
    assert model.count_items() == _N_ITEMS, f"count_items(): expected {_N_ITEMS}"


def _check_refusals(model: Recommender) -> None:
    _assert_refused(
        DataError,
        lambda: model.score(csr_array(np.zeros((2, _N_ITEMS + 1), np.float32))),
        "score() is to refuse histories over other items with DataError",
    )
    for weights in (np.zeros(_N_USERS), -np.ones(_N_USERS), np.ones(_N_USERS + 1)):
        _assert_refused(
            DataError,
            partial(_fitted, model, user_weights=weights),
            "fit() is to refuse user weights that are all 0, below 0, or not one a user",
        )


def _check_repeated_fits(model: Recommender, fitted: Recommender) -> None:
    planted = _planted()
    expected = fitted.score(planted.histories)
    again = clone(model)
    others = csr_array(planted.train.matrix()[::-1])
    assert again.fit(others, device="cpu") is again, "fit() is to return the model itself"
    again.fit(planted.train, validation=planted.validation, device="cpu")
    scores = again.score(planted.histories)
    _assert_equal(scores, expected, "a second fit does not give what a first one gives")
    weights = np.ones(_N_USERS)
    weights[: _N_USERS // 3] = 0.5
    scores = _fitted(model, user_weights=weights).score(planted.histories)
    assert np.isfinite(scores).all(), "with user weights a score is NaN or infinite"


def _check_answers(model: Recommender) -> None:
    planted = _planted()
    users = planted.train.users.ids(range(5))
    listed = model.recommend(users, n=6)
    scores = model.score(csr_array(planted.histories[:5]))
    for row in range(5):
        seen = set(planted.train.items_of(row).tolist())
        rows = [planted.train.items.row(item) for item in listed.items[row] if item is not None]
        assert not seen & set(rows), "recommend() lists an item that the user has"
        assert len(set(rows)) == len(rows), "recommend() lists an item twice"
        _assert_close(listed.scores[row], scores[row, rows], "a list has other scores than score()")
        assert (np.diff(listed.scores[row]) <= 0).all(), "a list is not sorted by its scores"
    explanation = model.explain(users[0], n=3)
    names = planted.train.items.ids(explanation.items)
    assert names == listed.items[0][:3].tolist(), "explain() explains another list"
    assert np.isfinite(explanation.contributions).all(), "a contribution is NaN or infinite"
    values = evaluate(model, planted.validation).values
    assert all(np.isfinite(each).all() for each in values.values()), "a value is not finite"


def _check_selected(model: Recommender, fitted: Recommender) -> None:
    selected = fitted.selected()
    assert type(selected) is type(model), f"selected() is a {type(selected).__name__}"
    assert not selected.is_fitted, "selected() is fitted"
    planted = _planted()
    with collect_remarks(lambda remark: None) as collected:
        again = clone(selected).fit(planted.train, device="cpu")
    kinds = [remark.kind for remark in collected.remarks]
    assert "no-validation" not in kinds, "a refit of selected() chooses again"
    _assert_close(
        again.score(planted.histories),
        fitted.score(planted.histories),
        "a refit of selected() to the same data gives other scores",
        tolerance=1e-2,
    )


def _check_saved_model(model: Recommender) -> None:
    histories = _planted().histories
    loaded = _saved_and_loaded(model)
    assert type(loaded) is type(model), f"a saved model is loaded as a {type(loaded).__name__}"
    assert repr(loaded) == repr(model), "a saved model is loaded with other parameters"
    _assert_equal(
        loaded.score(histories), model.score(histories), "a saved model answers otherwise"
    )


def _check_memory_of_fit(model: Recommender) -> None:
    size = DataSize.of(_planted().train.matrix(), device="cpu")
    with suppress(ConfigError):  # it is not known, and says so
        _assert_memory(model.memory_bytes(size))


def _check_update(model: Recommender) -> None:
    """Check that what users did later enters, and that a copy of the model stays as it was."""
    planted = _planted()
    updated = _saved_and_loaded(model)
    updated.update(planted.validation.targets, epochs=1)
    known = updated.train_data_
    expected = len(planted.train) + len(planted.validation.targets)
    assert known is not None, "an update loses the training data"
    assert len(known) == expected, f"after an update: expected {expected} pairs, found {len(known)}"
    assert repr(clone(updated)) == repr(clone(model)), "an update changes parameters"
    scores = updated.score(known.histories())
    assert np.isfinite(scores).all(), "after an update a score is NaN or infinite"


def _saved_and_loaded(model: Any) -> Any:
    """Return a fitted model, or a part of one, that was saved and loaded."""
    kinds = {kind.__name__: kind for kind in _classes_in(model)}
    with TemporaryDirectory() as parent:
        folder = Path(parent, "model")
        save_model(model, folder)
        return load_model(folder, ChainMap(kinds, cast(Any, KINDS)), verify=True)


def _classes_in(value: Any) -> Iterator[type]:
    """Yield the classes of a value, of its parameters, and of all that it has learned."""
    if isinstance(value, tuple | list):
        for part in value:
            yield from _classes_in(part)
    elif dataclasses.is_dataclass(value):
        yield type(value)
        for declared in dataclasses.fields(value):
            yield from _classes_in(getattr(value, declared.name))


# -- Finders --------------------------------------------------------------------------------------


def check_finder(finder: CommunityFinder) -> None:
    """Check the contract of a finder, and of the communities that it finds.

    Parameters
    ----------
    finder : CommunityFinder
        With parameters for 90 users and 40 items.

    Raises
    ------
    AssertionError
        Where it breaks the contract.

    Examples
    --------
    >>> from loca.testing import check_finder
    >>> check_finder(loca.Mixtures(n=4))
    """
    assert isinstance(finder, CommunityFinder), f"no CommunityFinder: {finder!r}"
    _check_strategy(finder)
    with muted_remarks():
        _check_number_of_communities(finder)
        _check_memory_of_finder(finder)
        candidates = _candidates(finder, _planted().data())
        for candidate in candidates:
            communities = _communities_of(candidate)
            _check_found(candidate, communities)
            _check_positions(communities)
            _check_weights(communities)
            _check_alternatives(communities)
            _check_saved_communities(communities)
            _check_more_items(communities)
            _check_repeated_search(candidate, communities)
            _check_users_without_weight(candidate)
        check_recommender(Loca(base=_EASE, communities=finder))


def _candidates(finder: CommunityFinder, data: TrainingData) -> Sequence[CommunityFinder]:
    candidates = finder.candidates(Loca(base=_EASE, communities=finder), data)
    assert len(candidates) > 0, "candidates() is empty"
    for candidate in candidates:
        assert isinstance(candidate, CommunityFinder), f"a candidate is {candidate!r}"
    return candidates


def _communities_of(finder: CommunityFinder, user_weights: Any = None) -> Communities:
    data = _planted().data(user_weights)
    global_model = clone(_EASE).fit(data.train, device="cpu")
    return finder.find(data, base=_EASE, global_model=global_model, seed=5)


def _check_number_of_communities(finder: CommunityFinder) -> None:
    """Check that a finder takes at most one community a user, and says so."""
    for n in (1, 2, 5):
        actual = finder.with_n(n).n
        assert 1 <= actual <= n, f"with_n({n}): expected at most {n} communities, found {actual}"
    for n_users in (finder.n, finder.n - 1):
        if n_users < 1:
            continue
        with collect_remarks(lambda remark: None) as collected:
            limited = finder.limited_to(n_users)
        kinds = [remark.kind for remark in collected.remarks]
        expected = ["communities"] if n_users < finder.n else []
        assert limited.n <= n_users, f"limited_to({n_users}) leaves {limited.n} communities"
        assert kinds == expected, f"limited_to({n_users}): expected {expected}, found {kinds}"


def _check_memory_of_finder(finder: CommunityFinder) -> None:
    size = DataSize.of(_planted().train.matrix(), device="cpu")
    steps = finder.memory(size, base=_EASE, global_model=_EASE)
    assert steps, "memory() has no steps"
    for name, use in steps.items():
        assert isinstance(name, str), f"memory(): the name of a step is {name!r}"
        _assert_memory(use)


def _check_found(finder: CommunityFinder, communities: Communities) -> None:
    n = len(communities)
    assert isinstance(communities, Communities), f"find() gives {type(communities).__name__}"
    assert 1 <= n <= finder.n, f"expected 1 to {finder.n} communities, found {n}"
    assert communities.divisions >= 0, "divisions is below 0"
    assert communities.shared_epochs >= 0, "shared_epochs is below 0"
    anchors = communities.anchors
    if anchors is not None:
        assert anchors.shape == (n,), f"anchors: expected one a community, found {anchors.shape}"
        assert ((anchors >= 0) & (anchors < _N_USERS)).all(), "an anchor is no training user"
    json.dumps(communities.facts())
    assert isinstance(finder.selected(communities), CommunityFinder), "selected() gives no finder"


def _check_positions(communities: Communities) -> None:
    """Check that a history has one position, whoever is asked for with it."""
    histories = _planted().histories
    positions = communities.locate(histories)
    assert positions.ndim == 2, f"locate() gives {positions.ndim} dimensions"
    assert len(positions) == _N_USERS, f"locate(): {_N_USERS} users, {len(positions)} positions"
    assert np.isfinite(positions).all(), "a position is NaN or infinite"
    _assert_equal(communities.locate(histories), positions, "locate() is not repeatable")
    alone = [communities.locate(csr_array(histories[[row]])) for row in range(8)]
    _assert_close(np.concatenate(alone), positions[:8], "a position depends on the other users")
    others = communities.locate(_strangers())
    assert np.isfinite(others).all(), "the position of an unknown history is NaN or infinite"
    nobody = communities.locate(_no_histories())
    assert nobody.shape == (0, positions.shape[1]), f"no histories: positions of {nobody.shape}"


def _check_weights(communities: Communities) -> None:
    """Check shapes and signs of wide and narrow weights and of memberships."""
    n = len(communities)
    for histories in (_planted().histories, _strangers()):
        positions = communities.locate(histories)
        n_users = histories.shape[0]
        for community in range(n):
            weights = communities.train_weights(positions, community)
            assert weights.shape == (n_users,), f"train weights: found shape {weights.shape}"
            assert (np.isfinite(weights) & (weights >= 0)).all(), "a train weight is below 0"
            assert weights.any() or n_users < _N_USERS, "a community has nobody to learn from"
        _assert_sparse_weights("answer weights", communities.answer_weights(positions), n_users, n)
        memberships = communities.memberships(positions)
        _assert_sparse_weights("memberships", memberships, n_users, n)
        members = communities.count_members(memberships)
        assert members.shape == (n,), f"count_members(): found shape {members.shape}"
        assert np.issubdtype(members.dtype, np.integer), f"members are {members.dtype}"
        flat = communities.flattened(positions, 8.0)
        assert flat.shape == (n_users, n), f"flattened(): found shape {flat.shape}"
        if communities.divisions:
            sums = memberships.toarray().reshape(n_users, communities.divisions, -1).sum(axis=2)
            most_left_out = _LEAST_MEMBERSHIP * n / communities.divisions
            _assert_close(sums, np.ones_like(sums), "memberships sum to 1", most_left_out)


def _assert_sparse_weights(name: str, weights: csr_array, n_users: int, n: int) -> None:
    assert weights.shape == (n_users, n), f"{name}: expected ({n_users}, {n}): {weights.shape}"
    assert np.isfinite(weights.data).all(), f"{name}: one is NaN or infinite"
    assert (weights.data > 0).all(), f"{name}: expected stored numbers above 0"


def _check_alternatives(communities: Communities) -> None:
    histories = _planted().histories
    positions = communities.locate(histories)
    alternatives = communities.alternatives()
    assert len(alternatives) > 0, "alternatives() is empty"
    for other in (*alternatives, communities.while_learning()):
        assert len(other) == len(communities), "an alternative has other communities"
        _assert_equal(other.locate(histories), positions, "an alternative locates otherwise")
        _assert_equal(
            other.train_weights(positions, 0),
            communities.train_weights(positions, 0),
            "an alternative has other train weights",
        )
    for chosen in alternatives:
        assert len(chosen.alternatives()) == 1, "what was chosen has alternatives again"


def _check_saved_communities(communities: Communities) -> None:
    assert isinstance(communities, Persistent)
    _assert_same_communities(_saved_and_loaded(communities), communities, "saved communities")


def _check_more_items(communities: Communities) -> None:
    """Check that items which came later move nobody, also not those who have them."""
    if not communities.supports_new_items:
        return
    n_items = _N_ITEMS + 3
    wider = communities.with_items(n_items)
    histories = _planted().histories
    positions = communities.locate(histories)
    for value in (0.0, 1.0):
        later = np.full((_N_USERS, 3), value, np.float32)
        longer = csr_array(np.concatenate([histories.toarray(), later], axis=1))
        _assert_close(wider.locate(longer), positions, "with_items() moves somebody")
    _assert_equal(communities.locate(histories), positions, "with_items() changes what it is of")


def _check_repeated_search(finder: CommunityFinder, communities: Communities) -> None:
    again = _communities_of(finder)
    _assert_same_communities(again, communities, "a second search with the same seed")
    again = _communities_of(finder.selected(communities))
    _assert_same_communities(again, communities, "a search by what selected() gives")


def _check_users_without_weight(finder: CommunityFinder) -> None:
    """Check that a user of weight 0 stands for no community, and moves none."""
    weights = np.ones(_N_USERS, np.float32)
    weights[: _N_USERS // 3] = 0
    communities = _communities_of(finder.with_n(min(finder.n, _N_USERS // 3)), weights)
    anchors = communities.anchors
    if anchors is not None and not finder.is_control:
        assert (weights[anchors] > 0).all(), "a user of weight 0 is an anchor"


def _assert_same_communities(some: Communities, others: Communities, what: str) -> None:
    histories = _planted().histories
    assert len(some) == len(others), f"{what}: expected {len(others)}, found {len(some)}"
    positions = some.locate(histories)
    _assert_equal(positions, others.locate(histories), f"{what}: other positions")
    for community in range(len(some)):
        _assert_equal(
            some.train_weights(positions, community),
            others.train_weights(positions, community),
            f"{what}: other train weights",
        )
    _assert_equal(
        some.answer_weights(positions).toarray(),
        others.answer_weights(positions).toarray(),
        f"{what}: other answer weights",
    )


# -- Combiners ------------------------------------------------------------------------------------


def check_combiner(combiner: Combiner) -> None:
    """Check the contract of a combiner.

    Parameters
    ----------
    combiner : Combiner
        Any combiner.

    Raises
    ------
    AssertionError
        Where it breaks the contract.

    Examples
    --------
    >>> from loca.testing import check_combiner
    >>> check_combiner(loca.FixedShare(share=0.3))
    """
    assert isinstance(combiner, Combiner), f"no Combiner: {combiner!r}"
    _check_strategy(combiner)
    with muted_remarks():
        for candidate in (*combiner.candidates(), *combiner.candidates(coarse=True)):
            _check_shares(candidate)
        _check_shares(combiner)
        _check_shares(combiner.while_learning())
        _check_choice(combiner)
        _check_combined_scores(combiner)
        check_recommender(Loca(base=_EASE, communities=_NARROW, combiner=combiner))


def _check_shares(combiner: Combiner) -> None:
    """Check that each user's share is from 0 to 1, is that user's own, and 1 for the uncovered."""
    assert isinstance(combiner, Combiner), f"no Combiner: {combiner!r}"
    rng = np.random.default_rng(0)
    dense = rng.uniform(0.1, 1, (20, 4)) * (rng.random((20, 4)) < 0.5)
    dense[:3] = 0
    weights = csr_array(dense.astype(np.float32))
    shares = combiner.global_shares(weights)
    assert shares.shape == (20,), f"global_shares(): expected one a user, found {shares.shape}"
    assert ((shares >= 0) & (shares <= 1)).all(), "a global share is not from 0 to 1"
    uncovered = ~dense.any(axis=1)
    assert (shares[uncovered] == 1).all(), "who has no community is to get the global answer"
    rows = np.array([19, 4, 1])
    alone = combiner.global_shares(csr_array(weights[rows]))
    _assert_close(alone, shares[rows], "a user's share depends on the others")
    nobody = combiner.global_shares(csr_array(np.zeros((0, 4), np.float32)))
    assert nobody.shape == (0,), f"global_shares() of nobody: found shape {nobody.shape}"


def _check_choice(combiner: Combiner) -> None:
    """Check that the best candidate is chosen, and that the choice is final."""
    models, panel = _models_and_panel()
    for data in (None, panel):
        chosen = combiner.choose(models, data)
        _check_shares(chosen)
        assert chosen.choose(models, data) == chosen, "what was chosen chooses again"
        assert len(chosen.candidates()) == 1, "what was chosen has several candidates"
    values = panel.mean_values(models, combiner.candidates())
    value = panel.mean_values(models, [chosen])[0]
    assert value >= max(values) - 1e-9, f"chosen {value}, the best candidate has {max(values)}"


def _models_and_panel() -> tuple[LocalModels, Panel]:
    planted = _planted()
    communities = _communities_of(_NARROW)
    positions = communities.locate(planted.histories)
    models = [
        clone(_EASE).fit(
            planted.train, user_weights=communities.train_weights(positions, community)
        )
        for community in range(len(communities))
    ]
    judge = Judge.of(planted.data(), clone(_EASE).fit(planted.train))
    assert judge is not None
    return SeparateModels.of(models), judge.locate(communities).panel()


def _check_combined_scores(combiner: Combiner) -> None:
    """Check that scores, explanations and values are those by the combiner's shares."""
    planted = _planted()
    model = _fitted(Loca(base=_EASE, communities=_NARROW, combiner=combiner))
    local_model = model.local_
    histories = planted.histories
    weights = model.answer_weights(histories)
    shares = local_model.combiner.global_shares(weights)
    scores = model.score(histories)
    global_scores = model.global_.score(histories)
    local_scores = np.asarray(local_model.models.blend(histories, weights))
    uncovered = np.flatnonzero(np.diff(weights.indptr) == 0)
    assert len(uncovered), "the planted data covers everybody"
    _assert_equal(scores[uncovered], global_scores[uncovered], "who is not covered")
    expected = shares[:, None] * global_scores + (1 - shares[:, None]) * local_scores
    _assert_close(scores, expected, "scores are not those by the global shares")
    for row in (int(np.argmin(shares)), int(uncovered[0])):
        sources = model.explain(csr_array(histories[[row]])).sources
        _assert_close(sources.alpha, shares[row], "an explanation has another global share")


# -- Engines --------------------------------------------------------------------------------------


def check_engine(engine: Engine, base: Recommender, *, tolerance: float = 1e-3) -> None:
    """Check that an engine trains copies of a model as the loop does.

    Parameters
    ----------
    engine : Engine
        Any engine.
    base : Recommender
        A small model that it trains.
    tolerance : float, default 1e-3
        How far scores may be from those of the loop, relative to the largest.

    Raises
    ------
    AssertionError
        Where it breaks the contract.

    Examples
    --------
    >>> from loca.testing import check_engine
    >>> check_engine(loca.Differences(), loca.EASE(l2=20))
    """
    assert isinstance(engine, Engine), f"no Engine: {engine!r}"
    _check_strategy(engine)
    engine.check_base(base)
    with muted_remarks():
        size = DataSize.of(_planted().train.matrix(), device="cpu")
        steps = engine.memory(base, _N_MODELS, size, "local models")
        assert steps, "memory() has no steps"
        for use in steps.values():
            _assert_memory(use)
        for validated in (False, True):
            _check_trained(engine, base, validated, tolerance)
        models: list[Any] = [
            Loca(base=base, communities=_NARROW, engine=engine),
            Ensemble(base=base, models=_N_MODELS, engine=engine),
        ]
        for model in models:
            scores = _fitted(model).score(_planted().histories)
            expected = _fitted(clone(model, engine=Loop())).score(_planted().histories)
            kind = type(model).__name__
            _assert_close(scores, expected, f"{kind}: other scores than in a loop", tolerance)
            check_recommender(model)


def _check_trained(engine: Engine, base: Recommender, validated: bool, tolerance: float) -> None:
    histories = _planted().histories
    fits = partial(_many_fits, base, shared_epochs=1 if validated else 0)
    models = train(fits(), engine, _validation() if validated else None)
    loop = train(fits(), Loop(), _validation() if validated else None)
    assert isinstance(models, LocalModels), f"train() gives {type(models).__name__}"
    assert len(models) == _N_MODELS, f"expected {_N_MODELS} models, found {len(models)}"
    assert models.count_items() == _N_ITEMS, f"expected {_N_ITEMS} items"
    assert models.epochs_ == loop.epochs_, f"epochs: expected {loop.epochs_}, not {models.epochs_}"
    for number in range(_N_MODELS):
        scores = models.score_with(number, histories)
        expected = loop.score_with(number, histories)
        _assert_close(scores, expected, f"model {number}: other scores than in a loop", tolerance)
    weights = np.random.default_rng(0).uniform(0.1, 1, (_N_USERS, _N_MODELS)).astype(np.float32)
    weights[: _N_USERS // 2, 1] = 0
    weights[0] = 0
    answer_weights = csr_array(weights)
    blended = np.asarray(models.blend(histories, answer_weights))
    assert not blended[0].any(), "blend(): expected zeros for who has no model"
    by_hand = np.asarray(loop.blend(histories, answer_weights))
    _assert_close(blended, by_hand, "blend(): other scores than in a loop", tolerance)
    loaded = _saved_and_loaded(models)
    again = np.asarray(loaded.blend(histories, answer_weights))
    _assert_equal(again, blended, "saved models answer otherwise")
    assert loaded.epochs_ == models.epochs_, "saved models have other epochs"


def _many_fits(base: Recommender, shared_epochs: int) -> ManyFits:
    def weights_of(number: int) -> FloatArray:
        weights = np.random.default_rng(number).uniform(0.1, 2, _N_USERS)
        weights[_N_USERS - 20 * number :] = 0
        return weights.astype(np.float32)

    models = copies_of(base, _N_MODELS, seed=3, name="local model")
    data = replace(_planted().data(), validation=None)
    return ManyFits(models, data, weights_of, "local models", shared_epochs=shared_epochs)


def _validation() -> Validation:
    """Return what judges models that answer everybody alike."""
    planted = _planted()
    judge = Judge.of(planted.data(), clone(_EASE).fit(planted.train))
    assert judge is not None
    everybody = csr_array(np.ones((_N_USERS, _N_MODELS), np.float32))
    panel = Panel(judge.validation, judge.metric, judge.global_model, everybody)
    return Validation(panel, LocalOnly())


# -- What all have in common ----------------------------------------------------------------------


def _check_strategy(strategy: Any) -> None:
    """Check that a strategy is a frozen value that a person can read."""
    assert str(strategy), "str() is empty"
    assert "\n" not in str(strategy), "str() has several lines"
    for declared in dataclasses.fields(strategy):
        try:
            setattr(strategy, declared.name, getattr(strategy, declared.name))
        except dataclasses.FrozenInstanceError:
            continue
        raise AssertionError(f"{type(strategy).__name__} is not frozen: {declared.name} can be set")


def _assert_memory(use: MemoryUse) -> None:
    assert isinstance(use, MemoryUse), f"memory: expected a MemoryUse, found {use!r}"
    sizes = (use.main, use.device, use.main_after, use.device_after, use.folder)
    assert all(isinstance(size, int) and size >= 0 for size in sizes), f"memory: found {sizes}"


def _assert_refused(error: type[Exception], call: Callable[[], object], message: str) -> None:
    try:
        call()
    except error:
        return
    raise AssertionError(message)


def _assert_equal(actual: Any, expected: Any, message: str) -> None:
    assert np.array_equal(actual, expected), f"{message}: {_difference(actual, expected)}"


def _assert_close(actual: Any, expected: Any, message: str, tolerance: float = _ROUNDING) -> None:
    """Check numbers, up to a difference relative to the largest of them."""
    scale = float(np.abs(expected).max(initial=0))
    is_close = np.shape(actual) == np.shape(expected) and np.allclose(
        actual, expected, rtol=0, atol=tolerance * max(scale, 1e-9)
    )
    assert is_close, f"{message}: {_difference(actual, expected)}"


def _difference(actual: Any, expected: Any) -> str:
    if np.shape(actual) != np.shape(expected):
        return f"shape {np.shape(actual)}, expected {np.shape(expected)}"
    largest = np.abs(np.asarray(actual) - np.asarray(expected)).max(initial=0)
    return f"differs by {largest:.3g}"
