"""The contract of every model: what it learns, what it forgets, what it answers, and that it survives its file."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array

from contract_models import FOR_THESE_USERS, MADE
from loca.communities.kernel import Kernels
from loca.data.id_map import IdMap
from loca.data.recency import SMALLEST_WEIGHT, Recency
from loca.data.splits import Split
from loca.errors import ConfigError, DataError, ModelFileError, NotFittedError
from loca.evaluation.evaluate import evaluate
from loca.evaluation.recommend import recommend
from loca.local.engines.loop import Loop
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.models.item_knn import ItemKNN
from loca.models.recommender import Recommender, clone, fitted, get_params
from loca.persistence.learned import (
    learned_bytes,
    learned_fields,
    parts_of,
    restored,
    state_of,
    stored_params,
)
from loca.persistence.manifest import ModelState
from loca.random_streams import stream
from loca.registry import KINDS, MODELS, load

PERSONAL = [name for name in MADE if name != "popularity"]


@pytest.fixture(scope="module")
def fitted_models(planted_split: Split) -> dict[str, Recommender]:
    return {
        name: make().fit(planted_split.train, validation=planted_split.validation)
        for name, make in MADE.items()
    }


@pytest.mark.parametrize("name", MADE)
def test_it_keeps_the_protocol(name: str) -> None:
    assert isinstance(MADE[name](), Recommender)


@pytest.fixture(scope="module")
def neighbours_at_random(planted_split: Split) -> ItemKNN:
    """An ItemKNN of histories in which every item was exchanged for another's, so that its neighbours mean nothing."""
    matrix = planted_split.train.matrix()
    mixed = csr_array(
        (matrix.data, stream(0, "mixed").permutation(matrix.indices), matrix.indptr),
        shape=matrix.shape,
    )
    return ItemKNN(neighbours=20, shrinkage=5.0).fit(mixed)


@pytest.mark.parametrize("name", PERSONAL)
def test_a_personal_model_beats_popularity_and_random_neighbours(
    name: str,
    fitted_models: dict[str, Recommender],
    neighbours_at_random: ItemKNN,
    planted_split: Split,
) -> None:
    own = evaluate(fitted_models[name], planted_split.test, at=(10,)).means()["ndcg@10"]
    for simple in (fitted_models["popularity"], neighbours_at_random):
        assert own > 1.3 * evaluate(simple, planted_split.test, at=(10,)).means()["ndcg@10"]


@pytest.mark.parametrize("name", MADE)
def test_it_scores_every_item_for_any_history(
    name: str, fitted_models: dict[str, Recommender], planted_split: Split
) -> None:
    stranger = csr_array(([1.0, 0.5], ([0, 0], [3, 11])), shape=(1, 60), dtype=np.float32)
    scores = fitted_models[name].score(stranger)
    assert scores.shape == (1, 60)
    assert scores.dtype == np.float32
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("name", MADE)
def test_the_answer_to_one_history_does_not_depend_on_the_others(
    name: str, fitted_models: dict[str, Recommender], planted_split: Split
) -> None:
    histories = planted_split.test.history_matrix[:20]
    together = fitted_models[name].score(histories)
    alone = np.concatenate(
        [fitted_models[name].score(csr_array(histories[[row]])) for row in range(20)]
    )
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MADE)
def test_the_same_seed_gives_the_same_numbers(
    name: str, fitted_models: dict[str, Recommender], planted_split: Split
) -> None:
    again = MADE[name]().fit(planted_split.train, validation=planted_split.validation)
    histories = planted_split.test.history_matrix[:50]
    np.testing.assert_array_equal(again.score(histories), fitted_models[name].score(histories))


@pytest.mark.parametrize("name", ["mixture-vae", "permuted vae", "groups of vae"])
def test_both_engines_give_the_scores_of_mixtures(
    name: str, fitted_models: dict[str, Recommender], planted_split: Split
) -> None:
    model = clone(MADE[name](), engine=Loop())
    one_by_one = model.fit(planted_split.train, validation=planted_split.validation)
    histories = planted_split.test.history_matrix[:50]
    expected = one_by_one.score(histories)
    stacked = fitted_models[name].score(histories)
    np.testing.assert_allclose(stacked, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("name", [name for name in MADE if name != FOR_THESE_USERS])
def test_a_second_fit_forgets_the_first(name: str, planted_split: Split) -> None:
    matrix = planted_split.train.matrix()
    first, second = csr_array(matrix[:60]), csr_array(matrix[60:180])
    twice = MADE[name]().fit(first).fit(second)
    once = MADE[name]().fit(second)
    histories = planted_split.test.history_matrix[:20]
    np.testing.assert_array_equal(twice.score(histories), once.score(histories))


@pytest.mark.parametrize("name", MADE)
def test_it_answers_the_same_after_saving_and_loading(
    name: str, fitted_models: dict[str, Recommender], planted_split: Split, tmp_path: Path
) -> None:
    model = fitted_models[name]
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert type(loaded) is type(model)
    histories = planted_split.test.history_matrix[:50]
    np.testing.assert_array_equal(loaded.score(histories), model.score(histories))
    ids, scores = recommend(model, ["u000", "u017"], n=5)
    loaded_ids, loaded_scores = recommend(loaded, ["u000", "u017"], n=5)
    np.testing.assert_array_equal(loaded_ids, ids)
    np.testing.assert_array_equal(loaded_scores, scores)


@pytest.mark.parametrize("name", MADE)
def test_it_explains_what_it_lists_and_any_single_item(
    name: str, fitted_models: dict[str, Recommender]
) -> None:
    model = fitted_models[name]
    why = model.explain("u003", n=4)
    ids, scores = model.recommend("u003", n=4)
    assert why.names.ids(why.items) == ids[0].tolist()
    np.testing.assert_allclose(why.scores, scores[0], rtol=1e-5)
    assert why.contributions.shape == (4, len(why.history))
    assert np.isfinite(why.contributions).all()
    if why.is_exact:
        together = why.contributions.sum(axis=1) + why.everyone
        np.testing.assert_allclose(together, why.scores, rtol=1e-4, atol=1e-4)
    lines = str(why).splitlines()
    assert max(map(len, lines)) <= 100
    assert (
        sum(
            any(word in line for word in ("because you", "popular with", "speaks for it"))
            for line in lines
        )
        >= 4
    )
    # A history of one item, which leaves none when it is left out, and an item that is in it.
    alone = model.explain([["i03"]], item="i03")
    assert np.isfinite(alone.contributions).all()
    assert alone.ranks.tolist() == [0]


@pytest.mark.parametrize("name", MADE)
def test_a_weighted_history_is_answered_and_the_stored_pattern_alone_is_hidden(
    name: str, fitted_models: dict[str, Recommender], planted_split: Split
) -> None:
    weighted = planted_split.test.with_recency(Recency(half_life=2))
    model = fitted_models[name]
    listed = evaluate(model, weighted, at=(20,)).lists
    for row in range(30):
        assert not set(listed[row]) & set(weighted.histories.items_of(row))
    if name != "popularity":
        changed = model.score(weighted.history_matrix[:20]) - model.score(
            planted_split.test.history_matrix[:20]
        )
        assert np.abs(changed).max() > 1e-3


RECENCIES = {
    "exponential": Recency(half_life=0.2),
    "power": Recency(half_life=0.01, shape="power"),
    "floor": Recency(half_life=0.2, floor=0.05),
    "time": Recency(half_life=1.0, unit="time"),
    "time, power, floor": Recency(half_life=86_400.0, unit="time", shape="power", floor=0.001),
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("recency", RECENCIES)
def test_however_little_an_item_weighs_it_is_hidden_and_every_score_is_finite(
    name: str, recency: str, fitted_models: dict[str, Recommender], planted_split: Split
) -> None:
    model, weighted = fitted_models[name], planted_split.test.with_recency(RECENCIES[recency])
    histories = weighted.history_matrix
    if recency in ("exponential", "time"):
        assert histories.data.min() == np.float32(SMALLEST_WEIGHT)
    assert np.isfinite(model.score(histories)).all()
    every_item = histories.shape[1]
    lists = evaluate(model, weighted, at=(every_item,)).lists
    for row, listed in enumerate(lists):
        # A list of all items shows exactly those that are not in the history.
        seen = set(planted_split.test.histories.items_of(row))
        assert {item for item in listed if item >= 0} == set(range(every_item)) - seen


# Networks learn in random batches, where a user of weight 2 is two users in expectation: their own tests hold the loss.
# LLORMA draws its anchors among stored pairs, of which repetition makes more.
@pytest.mark.parametrize(
    "name",
    [
        "popularity",
        "item-knn",
        "ease",
        "next-ease",
        "slim",
        "wmf",
        "wmf with scaled ridges",
        "sglsvd",
    ],
)
def test_integer_user_weights_equal_repetition(name: str, planted_split: Split) -> None:
    matrix = planted_split.train.matrix()
    weights = stream(1, "weights").integers(0, 4, matrix.shape[0])
    repeated = csr_array(matrix[np.repeat(np.arange(matrix.shape[0]), weights)])
    weighted = MADE[name]().fit(matrix, user_weights=weights)
    histories = planted_split.test.history_matrix[:50]
    expected = MADE[name]().fit(repeated).score(histories)
    np.testing.assert_allclose(
        weighted.score(histories), expected, rtol=2e-3, atol=2e-3 * np.abs(expected).max()
    )


@pytest.mark.parametrize(
    "name",
    [
        "ease",
        "next-ease",
        "mult-vae",
        "mult-dae",
        "popularity",
        "item-knn",
        "slim",
        "wmf",
        "cdae",
        "rec-vae",
    ],
)
def test_users_without_weight_do_not_count(name: str, planted_split: Split) -> None:
    matrix = planted_split.train.matrix()
    weights = np.zeros(matrix.shape[0])
    weights[:200] = 1
    model = MADE[name]().fit(matrix, user_weights=weights)
    reordered = csr_array(matrix[np.concatenate([np.arange(200), np.arange(400)[:199:-1]])])
    same = MADE[name]().fit(reordered, user_weights=weights)
    histories = planted_split.test.history_matrix[:20]
    np.testing.assert_array_equal(model.score(histories), same.score(histories))


@pytest.mark.parametrize("name", MADE)
def test_it_says_how_many_items_it_scores(name: str, fitted_models: dict[str, Recommender]) -> None:
    assert fitted_models[name].count_items() == 60


def test_a_model_folder_whose_names_do_not_fit_the_model_is_refused(
    planted_split: Split, tmp_path: Path
) -> None:
    model = EASE().fit(planted_split.train)
    model.weights_ = model.weights_[:7, :7]
    model.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="the model scores 7 items, 60 are named"):
        load(tmp_path / "model")
    local = MADE["loca-ease"]().fit(planted_split.train)
    assert isinstance(local, Loca)
    models = fitted(local.local_, local)
    anchors = fitted(models.communities.anchors, local)
    moved: Any = replace(models.communities, anchors=anchors + 400)  # type: ignore[type-var]
    local.local_ = replace(models, communities=moved)
    local.save(tmp_path / "local")
    with pytest.raises(ModelFileError, match="an anchor is none of the 400 users"):
        load(tmp_path / "local")


@pytest.mark.parametrize("name", MADE)
def test_it_refuses_to_answer_before_it_is_fitted(name: str) -> None:
    with pytest.raises(NotFittedError, match=r"has not been fitted; call fit\(train\) first"):
        MADE[name]().score(csr_array((1, 60), dtype=np.float32))
    with pytest.raises(NotFittedError):
        state_of(MADE[name]())


@pytest.mark.parametrize("name", ["popularity", "ease", "mult-vae", "loca-ease"])
def test_histories_over_other_items_are_refused(
    name: str, fitted_models: dict[str, Recommender]
) -> None:
    with pytest.raises(DataError, match="expected 60 items, found 7"):
        fitted_models[name].score(csr_array((2, 7), dtype=np.float32))


@pytest.mark.parametrize("name", ["ease", "mult-vae", "loca-ease"])
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), "expected 400 numbers"),
        (np.zeros(400), "not all of them zero"),
        (-np.ones(400), "finite numbers ≥ 0"),
        (np.full(400, np.nan), "finite numbers ≥ 0"),
    ],
)
def test_wrong_user_weights_are_refused(
    name: str, weights: np.ndarray, message: str, planted_split: Split
) -> None:
    with pytest.raises(DataError, match=message):
        MADE[name]().fit(planted_split.train, user_weights=weights)


def test_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(DataError, match="nothing to learn from: 3 users, 4 items, 0 pairs"):
        EASE().fit(csr_array((3, 4), dtype=np.float32))
    with pytest.raises(
        DataError,
        match="train: expected Interactions, a path, a data frame or a sparse matrix, found list",
    ):
        EASE().fit([[1, 0]])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MODELS)
def test_every_ready_model_is_a_recommender_that_can_be_copied(name: str) -> None:
    model = MODELS[name]()
    assert isinstance(model, Recommender)
    copy = clone(model)
    assert type(copy) is type(model)
    assert get_params(copy).keys() == get_params(model).keys()
    assert type(model).__name__ in KINDS


def test_every_ready_kind_keeps_this_contract() -> None:
    assert {type(make()) for make in MODELS.values()} <= {type(make()) for make in MADE.values()}


def test_a_copy_changes_only_what_is_named_and_shares_no_model() -> None:
    model = Loca(base=EASE(l2=5.0), communities=Kernels(n=7))
    copied = clone(model, communities__n=9)
    assert (copied.size, copied.base.get_params()["l2"], model.size) == (9, 5.0, 7)
    assert copied.base is not model.base
    with pytest.raises(
        ConfigError, match=r"unknown parameter 'community' for Loca; did you mean 'communities'"
    ):
        clone(model, community=3)


def everything_in(model: Any) -> list[tuple[str, Any]]:
    """Return a model and all that it is made of, each with the path where it stands."""
    inside = [
        (f"{name}/{path}" if path else name, part)
        for name, direct in parts_of(model).items()
        for path, part in everything_in(direct)
    ]
    return [("", model), *inside]


def is_same(first: Any, second: Any) -> bool:
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second, equal_nan=True)
    return repr(first) == repr(second)


@pytest.mark.parametrize("name", MADE)
def test_everything_that_it_learned_comes_back_to_the_bit(
    name: str, fitted_models: dict[str, Recommender], tmp_path: Path
) -> None:
    model = fitted_models[name]
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model", verify=True)
    assert repr(loaded.selected()) == repr(model.selected())
    pairs = zip(everything_in(model), everything_in(loaded), strict=True)
    for (path, before), (loaded_path, after) in pairs:
        assert (loaded_path, type(after)) == (path, type(before))
        assert repr(stored_params(after)) == repr(stored_params(before))
        state, loaded_state = state_of(before), state_of(after)
        for store in ("arrays", "facts"):
            values, again = getattr(state, store), getattr(loaded_state, store)
            assert list(values) == list(again)
            assert all(is_same(values[key], again[key]) for key in values), (path, store)
        assert learned_bytes(after) == learned_bytes(before)
    by_identity = [[id(part) for _, part in everything_in(whole)] for whole in (model, loaded)]
    alike = [[ids.index(one) for one in ids] for ids in by_identity]
    assert alike[0] == alike[1], "what is one object stays one object"


@pytest.mark.parametrize("name", MADE)
def test_every_field_that_is_missing_too_much_or_of_another_shape_is_refused(
    name: str, fitted_models: dict[str, Recommender]
) -> None:
    for path, part in everything_in(fitted_models[name]):
        params = stored_params(part)
        restored(type(part), params, state_of(part))
        accepted = [
            (path, change)
            for change, state in wrong_states(part)
            if not is_refused(type(part), params, state)
        ]
        assert accepted == []


def wrong_states(part: Any) -> Iterator[tuple[str, ModelState]]:
    """Yield states without a field, with a field too many, and with fields of another kind."""
    whole = state_of(part)
    optional = optional_names(part)
    for store in ("arrays", "facts", "parts"):
        for key, value in getattr(whole, store).items():
            if key not in optional:
                state = whole.copy()
                del getattr(state, store)[key]
                yield f"{store} without {key}", state
            for wrong in wrong_values(value):
                state = whole.copy()
                getattr(state, store)[key] = wrong
                yield f"{store}: {key} is {wrong!r:.60}", state
        state = whole.copy()
        getattr(state, store)["something else"] = np.ones(3)
        yield f"{store} with something else", state


def is_refused(kind: type, params: dict[str, Any], state: ModelState) -> bool:
    try:
        restored(kind, params, state)
    except ModelFileError:
        return True
    return False


def optional_names(part: Any) -> set[str]:
    """Return the stored names of the fields that may be None."""
    return {
        field_name.removesuffix("_")
        for field_name, learned_field in learned_fields(type(part)).items()
        if learned_field.optional
    }


def wrong_values(value: Any) -> list[Any]:
    """Return values of another shape, type or kind than a learned one."""
    if isinstance(value, np.ndarray):
        return [value[None], value.astype(np.complex64)]
    return [object()]


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("recency", [None, Recency.per_position(0.7)])
def test_the_same_list_by_id_and_by_the_same_history_in_any_form(
    name: str,
    recency: Recency | None,
    fitted_models: dict[str, Recommender],
    planted_split: Split,
    tmp_path: Path,
) -> None:
    model = fitted_models[name]
    train = replace(planted_split.train, recency=recency)
    before, model.train_data_ = model.train_data_, train
    try:
        model.save(tmp_path / "model")
        users, wanted = train.users.ids(range(12)), train.of_users(np.arange(12))
        other_items = IdMap(train.items.values[::-1].copy(), "item")
        reversed_items = replace(
            wanted, items=other_items, item_rows=train.n_items - 1 - wanted.item_rows, recency=None
        )
        histories = [train.items.ids(train.items_of(row)) for row in range(12)]
        frame = wanted.user_rows(), wanted.item_rows
        forms: list[Any] = [
            users,
            histories,
            dict(zip(users, histories, strict=True)),
            pl.DataFrame({"user": train.users.ids(frame[0]), "item": train.items.ids(frame[1])}),
            wanted.with_recency(None),
            reversed_items,
            csr_array(train.matrix()[:12]),
            csr_array(train.histories()[:12]),
        ]
        for answering in (model, load(tmp_path / "model")):
            by_id = answering.recommend(users, 5)
            for who in forms if recency is not None else forms[:-1]:
                found = answering.recommend(who, 5)
                np.testing.assert_allclose(found.scores, by_id.scores, rtol=1e-5, atol=1e-6)
                assert found.items.tolist() == by_id.items.tolist()
    finally:
        model.train_data_ = before


@pytest.mark.parametrize("name", MADE)
def test_it_does_not_answer_before_it_is_fitted(name: str) -> None:
    with pytest.raises(NotFittedError, match="has not been fitted"):
        MADE[name]().recommend(["u1"])


@pytest.mark.parametrize("name", MADE)
def test_an_update_takes_in_what_users_did_since_and_who_is_new(
    name: str, fitted_models: dict[str, Recommender], planted_split: Split, tmp_path: Path
) -> None:
    before, known = copy(fitted_models[name]), planted_split.train
    answers = before.score(known.histories(np.arange(5)))
    regular, taken = (
        known.users.ids([3])[0],
        before.recommend(known.users.ids([3]), n=2).items[0].tolist(),
    )
    liked = known.items.ids(known.items_of(7))[:4]
    new = pl.DataFrame(
        {
            "user": [regular, regular, *["newcomer"] * 4, *["explorer"] * 3],
            "item": [*taken, *liked, *liked[:2], "novelty"],
            "time": [float(known.times.max()) + place for place in range(9)],  # type: ignore[union-attr]
        }
    )
    model = copy(before).update(new, epochs=1)
    data = model.train_data_
    assert data is not None
    assert (data.n_users, data.n_items) == (402, 60 + model.takes_new_items)
    row = data.users.row(regular)
    assert data.items.ids(data.items_of(row)) == [*known.items.ids(known.items_of(3)), *taken]
    assert len(data) == len(known) + 8 + model.takes_new_items
    listed = model.recommend([regular, "newcomer", "explorer"], n=20)
    by_items = model.recommend({"newcomer": liked}, n=20)
    np.testing.assert_array_equal(listed.items[1], by_items.items[0])
    assert not {*taken} & {*listed.items[0].tolist()}
    assert not {*liked} & {*listed.items[1].tolist()}
    assert repr(get_params(model)) == repr(get_params(before))
    assert before.train_data_ is not None  # a copy that was not updated is as it was
    assert before.train_data_.n_users == 400
    np.testing.assert_array_equal(before.score(known.histories(np.arange(5))), answers)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model", verify=True)
    np.testing.assert_array_equal(
        loaded.recommend([regular, "newcomer", "explorer"], n=20).items, listed.items
    )
    assert loaded.update(new, epochs=1).train_data_ is not None  # and can be updated again
