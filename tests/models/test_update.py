"""An update of a model: equal to a fit where the form is closed, from the present weights where it is not."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array

import loca
from loca.data.interactions import Interactions
from loca.data.splits import Split
from loca.errors import ConfigError, DataError, NotFittedError
from loca.models.recommender import Recommender, TrainingData

# At so small a rate weights stay as they are drawn: what follows from them shows where they come from.
RESTING = {"latent": 8, "learning_rate": 1e-12, "epochs": 1, "batch_size": 100}
NARROW = loca.Kernels(n=3, train_bandwidth=loca.Quantile(0.6), answer_bandwidth=loca.Quantile(0.4))
BY_SVD = loca.clone(NARROW, embedding=loca.TruncatedSVD(dimensions=8))

CLOSED: dict[str, Callable[[], Recommender]] = {
    "popularity": loca.Popularity,
    "popularity of a while": lambda: loca.Popularity(window=3.0),
    "item-knn": lambda: loca.ItemKNN(neighbours=20),
    "slim": lambda: loca.SLIM(l1=1.0, l2=10.0),
    "ease": lambda: loca.EASE(l2=20.0, denoising=0.2),
    "next-ease": lambda: loca.NextEASE(l2=20.0),
    "ensemble": lambda: loca.Ensemble(base=loca.EASE(l2=20.0), models=2),
    "ensemble in differences": lambda: loca.Ensemble(
        base=loca.EASE(l2=20.0), models=2, engine=loca.Differences()
    ),
    "blend": lambda: loca.Blend(
        parts=[loca.EASE(l2=20.0), loca.ItemKNN()], columns=[(0, 1.0, 0.7), (1, 0.5, 0.3)]
    ),
    "auto": lambda: loca.Auto(chosen=loca.EASE(l2=20.0)),
}
ITEMS_STAY: dict[str, Callable[[], Recommender]] = {
    "mult-vae": lambda: loca.MultVAE(**RESTING),
    "sglsvd": lambda: loca.SGLSVD(clusters=2, global_rank=4, local_rank=2),
    "loca of networks": lambda: loca.Loca(base=loca.MultVAE(**RESTING), communities=NARROW),
    "blend with a network": lambda: loca.Blend(parts=[loca.EASE(), loca.MultVAE(**RESTING)]),
}


@pytest.fixture(scope="module")
def later(planted_split: Split) -> tuple[Interactions, Interactions]:
    """Two lots of new interactions: of known users what was held out, and then a new user with a new item."""
    data = planted_split.validation.targets
    day = float(data.times.max())  # type: ignore[union-attr]
    frame = pl.DataFrame(
        {
            "user": ["n1", "n1", "n2", "n2"],
            "item": ["i01", "i02", "i01", "i99"],
            "time": [day, day + 1, day, day + 2],
        }
    )
    return data, loca.read_interactions(frame)


def scores_of(model: Recommender) -> np.ndarray:
    data = model.train_data_
    assert data is not None
    return model.score(data.histories())


@pytest.mark.parametrize("name", CLOSED)
def test_an_update_in_closed_form_is_the_fit_of_everything(
    name: str, planted_split: Split, later: tuple[Interactions, Interactions]
) -> None:
    first, second = later
    updated = CLOSED[name]().fit(planted_split.train).update(first).update(second)
    assert updated.train_data_ is not None
    everything = planted_split.train.merged(first).merged(second)
    if updated.updates_by_refit:
        everything = everything.sorted_by_id()
    refitted = CLOSED[name]().fit(everything)
    np.testing.assert_array_equal(updated.train_data_.item_rows, everything.item_rows)
    # Models of models update their parts, whose sums may round otherwise.
    error = 0 if updated.updates_by_refit else 1e-5
    np.testing.assert_allclose(scores_of(updated), scores_of(refitted), rtol=error, atol=error / 10)
    at_once = CLOSED[name]().fit(planted_split.train).update(first.merged(second))
    np.testing.assert_allclose(scores_of(updated), scores_of(at_once), rtol=error, atol=error / 10)


@pytest.mark.parametrize(
    "make",
    [
        *(
            CLOSED[name]
            for name in ("item-knn", "slim", "ease", "next-ease", "ensemble in differences", "auto")
        ),
        lambda: loca.WMF(factors=8, confidence=5.0, user_l2=5.0, item_l2=5.0),
        lambda: loca.Loca(base=loca.EASE(l2=20.0), communities=BY_SVD),
        lambda: loca.Loca(base=loca.EASE(l2=20.0), communities=BY_SVD, engine=loca.Differences()),
        lambda: loca.Loca(base=loca.EASE(l2=20.0), communities=loca.Mixtures(n=4, mixtures=2)),
        lambda: loca.Loca(base=loca.EASE(l2=20.0), communities=loca.RandomGroups(n=4)),
        lambda: loca.Loca(
            base=loca.WMF(factors=8, confidence=5.0, user_l2=5.0, item_l2=5.0),
            communities=NARROW,
        ),
    ],
)
def test_a_new_item_is_recommended_to_who_has_what_its_users_have(
    make: Callable[[], Recommender], planted_split: Split
) -> None:
    train = planted_split.train
    with_it = train.items.ids(np.unique(train.item_rows)[:3])
    new = pl.DataFrame(
        {
            "user": [f"n{user}" for user in range(40) for _ in range(4)],
            "item": [item for _ in range(40) for item in (*with_it, "novelty")],
        }
    )
    model = make().fit(train).update(new)
    assert model.recommend([with_it[:2]], n=3).items[0].tolist().count("novelty") == 1


@pytest.mark.parametrize("name", ITEMS_STAY)
def test_a_model_that_takes_no_new_items_says_what_it_leaves_out(
    name: str, planted_split: Split
) -> None:
    model = ITEMS_STAY[name]().fit(planted_split.train, validation=planted_split.validation)
    frame = pl.DataFrame({"user": ["n1", "n1", "n2"], "item": ["i01", "i99", "i99"]})
    with pytest.warns(loca.LocaWarning):
        model.update(frame, epochs=1)
    told = {one.kind: one.text for one in model.remarks_}
    left_out = f"2 interactions left out, with items that this {type(model).__name__} does not know"
    assert told["items-left-out"].startswith(left_out)
    assert "they count as newer than all known ones" in told["no-times"]
    assert model.train_data_ is not None
    assert (model.count_items(), model.train_data_.n_users) == (60, 401)  # n2 has nothing else
    with pytest.raises(
        DataError, match=r"found none: all 1 are with items that this .* knows only after a fit"
    ):
        model.update(frame[2:])


@pytest.mark.parametrize(
    "make",
    [
        lambda: loca.MultVAE(**RESTING),
        lambda: loca.MultVAE(hidden=12, **RESTING),
        lambda: loca.MultDAE(target="next", **RESTING),
        lambda: loca.CDAE(**RESTING),
        lambda: loca.RecVAE(hidden=12, **RESTING),
        lambda: loca.Ensemble(base=loca.MultVAE(**RESTING), models=2),
        lambda: loca.Ensemble(base=loca.MultVAE(**RESTING), models=2, engine=loca.Loop()),
        lambda: loca.Ensemble(
            base=loca.MultDAE(hidden=12, **RESTING),
            models=2,
            engine=loca.Stacked(stored="float16"),
        ),
        lambda: loca.Loca(base=loca.MultVAE(hidden=12, **RESTING), communities=NARROW),
        lambda: loca.Loca(base=loca.RecVAE(hidden=12, **RESTING), communities=NARROW),
    ],
)
def test_networks_go_on_from_their_present_weights(
    make: Callable[[], Recommender],
    planted_split: Split,
    later: tuple[Interactions, Interactions],
    tmp_path: Path,
) -> None:
    make().fit(planted_split.train).save(tmp_path)
    model = loca.load(tmp_path)
    rows = planted_split.test.history_matrix
    before = model.score(rows)
    model.update(later[0], epochs=2)
    # A step is 1e-12 at most; weights themselves are rounded to 16 bits in one case.
    np.testing.assert_allclose(model.score(rows), before, rtol=1e-4, atol=1e-5)


def test_a_network_learns_in_an_update(
    planted_split: Split, later: tuple[Interactions, Interactions]
) -> None:
    settings = {**RESTING, "learning_rate": 1e-2, "epochs": 2}
    model = loca.MultVAE(**settings).fit(planted_split.train)

    def ndcg() -> float:
        return loca.evaluate(model, planted_split.test, at=(10,)).means()["ndcg@10"]

    before = ndcg()
    model.update(later[0], epochs=10)
    assert ndcg() > before + 0.02
    assert model.epochs == 2  # its parameters stay


def test_the_divergence_keeps_the_weight_that_it_had_grown_to(planted_split: Split) -> None:
    model = loca.MultVAE(kl_weight=0.1, anneal_steps=100, batch_size=100)
    # 5 epochs of 4 batches are 20 steps.
    more = model.warm_started(TrainingData.of(planted_split.train), 3, 5)
    assert (more.epochs, more.anneal_steps) == (3, 0)
    assert more.kl_weight == pytest.approx(0.02)
    assert more.seed != model.seed


def test_as_many_weights_stay_as_validation_chose(
    planted_split: Split, later: tuple[Interactions, Interactions]
) -> None:
    model = loca.EASE(l2=20.0, keep="auto").fit(
        planted_split.train, validation=planted_split.validation
    )
    chosen = model.keep_
    model.update(later[1])
    assert (model.keep, model.keep_) == ("auto", chosen)
    everything = planted_split.train.merged(later[1]).sorted_by_id()
    refitted = loca.EASE(l2=20.0, keep=chosen).fit(everything)
    np.testing.assert_allclose(scores_of(model), scores_of(refitted), rtol=1e-5, atol=1e-6)


def test_communities_stay_and_new_users_join_them(
    planted_split: Split, later: tuple[Interactions, Interactions]
) -> None:
    fitted = loca.Loca(base=loca.EASE(l2=20.0), communities=BY_SVD).fit(planted_split.train)
    model = copy(fitted).update(later[1])
    data = model.train_data_
    assert data is not None
    assert model.local_.communities.anchors is fitted.local_.communities.anchors
    assert model.local_.communities.answer_radius == fitted.local_.communities.answer_radius
    assert model.local_.combiner == fitted.local_.combiner
    known = planted_split.train.histories()
    np.testing.assert_array_equal(
        model.answer_weights(data.histories())[:400].toarray(),
        fitted.answer_weights(known).toarray(),
    )
    # Who has just what a known user has belongs where that user belongs.
    twin = pl.DataFrame({"user": "twin", "item": data.items.ids(data.items_of(5))})
    model.update(twin)
    assert model.train_data_ is not None
    weights = model.answer_weights(model.train_data_.histories()).toarray()
    np.testing.assert_allclose(weights[-1], weights[5], rtol=1e-5)


def test_an_update_that_fails_leaves_the_model_as_it_was(planted_split: Split) -> None:
    data = Interactions.from_matrix(planted_split.train.matrix())
    model = loca.EASE(l2=20.0).fit(data)
    before = vars(model).copy()
    with pytest.raises(
        DataError, match="item ids: expected numbers, as the known ones are, found 'tea'"
    ):
        model.update(pl.DataFrame({"user": [1], "item": ["tea"]}))
    assert vars(model) == before


@pytest.mark.parametrize(
    ("new", "kind", "message"),
    [
        (
            csr_array(np.eye(60)),
            DataError,
            "update: expected Interactions, a path or a data frame, found a sparse matrix",
        ),
        ("new.csv", DataError, "new.csv: there is no such file"),
        ([1], DataError, "update: expected Interactions, a path or a data frame, found list"),
        (pl.DataFrame({"user": ["u000"]}), DataError, "item"),
    ],
)
def test_what_is_no_table_of_interactions_is_refused(
    new: object, kind: type[Exception], message: str, planted_split: Split
) -> None:
    model = loca.Popularity().fit(planted_split.train)
    with pytest.raises(kind, match=message):
        model.update(new)


def test_models_without_data_to_add_to_are_refused_with_what_to_do(planted_split: Split) -> None:
    new = planted_split.validation.targets
    with pytest.raises(NotFittedError):
        loca.EASE().update(new)
    bare = loca.EASE().fit(planted_split.train.matrix())
    with pytest.raises(
        DataError, match=r"this EASE has no training data to add to: .*; fit it on Interactions"
    ):
        bare.update(new)
    with pytest.raises(ConfigError, match="epochs: expected a whole number ≥ 1, found 0"):
        loca.EASE().fit(planted_split.train).update(new, epochs=0)
    nothing = new.where(np.zeros(len(new), bool))
    with pytest.raises(
        DataError, match=r"update: expected at least one new interaction, found none$"
    ):
        loca.EASE().fit(planted_split.train).update(nothing)
