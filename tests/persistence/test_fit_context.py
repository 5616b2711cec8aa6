"""Fits that models share are made once, and a Loca is the same to the bit with and without them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix

import loca
import loca.persistence.fit_context as fit_context
from loca.communities.best_of import BestOf
from loca.communities.embeddings import TruncatedSVD
from loca.communities.geometry import Quantile
from loca.communities.kernel import Kernels
from loca.communities.mixture import Mixtures
from loca.data.splits import HeldOut, Split
from loca.local.engines.differences.engine import Differences
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from loca.models.recommender import TrainingData, fitted
from loca.persistence.fit_context import NO_CONTEXT, FitCache, FitContext
from loca.registry import KINDS


def validation_of(split: Split) -> HeldOut:
    assert split.validation is not None
    return split.validation


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The l2 of every EASE that is fitted."""
    seen: list[float] = []
    real = EASE.fit

    def fit(model: EASE, *given: Any, **more: Any) -> EASE:
        seen.append(model.l2)
        return real(model, *given, **more)

    monkeypatch.setattr(EASE, "fit", fit)
    return seen


NETWORK: dict[str, Any] = {"latent": 4, "epochs": 3, "batch_size": 100}
LOCAS: dict[str, Callable[[], Loca]] = {
    "ease": lambda: Loca(
        base=EASE(l2=20.0), communities=Kernels(n=3, embedding=TruncatedSVD(dimensions=4))
    ),
    "ease, differences": lambda: Loca(
        base=EASE(l2=20.0), communities=Kernels(n=3), engine=Differences()
    ),
    "network": lambda: Loca(
        base=MultVAE(**NETWORK), communities=Kernels(n=3, answer_bandwidth=Quantile(0.8))
    ),
    "network inside": lambda: Loca(
        base=EASE(), communities=Kernels(n=3, embedding=MultVAE(**NETWORK))
    ),
    "mixtures": lambda: Loca(base=EASE(), communities=Mixtures(n=4)),
    "the best": lambda: Loca(base=EASE(l2=20.0), communities=BestOf(n=4)),
}


def learned_of(model: Loca) -> list[Any]:
    """Return what was chosen, and whether the communities' embedder is the global model."""
    local = fitted(model.local_, model)
    embedder = getattr(local.communities, "embedder", None)
    return [local.finder, local.combiner, local.models.epochs_, embedder is model.global_]


@pytest.mark.parametrize("made", LOCAS.values(), ids=LOCAS)
def test_a_loca_is_the_same_to_the_bit_whether_it_fits_or_finds_its_parts(
    made: Callable[[], Loca], planted_split: Split, tmp_path: Path
) -> None:
    split, histories = planted_split, planted_split.train.histories()
    alone = made().fit(split.train, validation=split.validation)
    context = FitContext(cache=FitCache(tmp_path, KINDS))
    first = made().fit(split.train, validation=split.validation, context=context)
    assert any(path.is_dir() for path in tmp_path.iterdir())
    second = made().fit(split.train, validation=split.validation, context=context)
    for model in (first, second):
        assert np.array_equal(model.score(histories), alone.score(histories))
        assert str(learned_of(model)) == str(learned_of(alone))
        assert fitted(model.global_, model).train_data_ is None
        assert model.train_data_ is split.train
        assert str(model.selected()) == str(alone.selected())


def test_what_was_fitted_before_is_not_fitted_again(
    planted_split: Split, tmp_path: Path, fits: list[float]
) -> None:
    train, questions = planted_split.train, validation_of(planted_split)
    context = FitContext(cache=FitCache(tmp_path, KINDS))
    first = context.fit_part("part", EASE(l2=3.0), train, validation=questions)
    again = context.fit_part("part", EASE(l2=3.0), train, validation=questions)
    assert fits == [3.0]
    assert again.train_data_ is train is first.train_data_
    assert np.array_equal(fitted(first.weights_, first), fitted(again.weights_, again))
    context.fit_part("part", EASE(l2=4.0), train, validation=questions)
    context.fit_part("part", EASE(l2=3.0), planted_split.train_and_validation, validation=questions)
    context.fit_part("part", EASE(l2=3.0), train, validation=planted_split.test)
    context.fit_part("part", EASE(l2=3.0), train)
    context.fit_part("part", EASE(l2=3.0), csr_array(train.matrix()))
    assert fits == [3.0, 4.0, 3.0, 3.0, 3.0, 3.0]
    context.fit_part("part", EASE(l2=3.0), csr_matrix(train.matrix()[:, ::-1]))
    assert len(fits) == 7, "other matrices are other data, of whatever kind"
    fits.pop()
    NO_CONTEXT.fit_part("part", EASE(l2=3.0), train, validation=questions)
    assert len(fits) == 7, "without a cache, a fit is a fit"


def test_a_fit_with_user_weights_is_not_shared(
    planted_split: Split, tmp_path: Path, fits: list[float]
) -> None:
    weights = np.ones(planted_split.train.n_users, np.float32)
    context = FitContext(cache=FitCache(tmp_path, KINDS))
    for _ in range(2):
        context.fit_part("part", EASE(l2=3.0), planted_split.train, user_weights=weights)
    assert fits == [3.0, 3.0]
    assert list(tmp_path.iterdir()) == []


def test_the_fits_that_were_not_asked_for_longest_go(
    planted_split: Split, tmp_path: Path, fits: list[float]
) -> None:
    context = FitContext(cache=FitCache(tmp_path, KINDS))
    for place, l2 in enumerate((1.0, 2.0, 3.0, 4.0, 1.0, 5.0)):
        context.fit_part("part", EASE(l2=l2), planted_split.train)
        for one in tmp_path.iterdir():
            # Times apart by more than any clock's step: each use makes a fit the newest.
            if one.is_dir() and one.stat().st_mtime > 1e9:
                os.utime(one, (place, place))
    assert fits == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert sum(one.is_dir() for one in tmp_path.iterdir()) == 4
    context.fit_part("part", EASE(l2=1.0), planted_split.train)
    assert len(fits) == 5
    context.fit_part("part", EASE(l2=2.0), planted_split.train)
    assert len(fits) == 6


def test_a_damaged_fit_is_made_anew(
    planted_split: Split, tmp_path: Path, fits: list[float]
) -> None:
    context = FitContext(cache=FitCache(tmp_path, KINDS))
    for _ in range(2):
        context.fit_part("part", EASE(l2=3.0), planted_split.train)
        (kept,) = (one for one in tmp_path.iterdir() if one.is_dir())
        (kept / "model.json").write_text("{}")
    assert fits == [3.0, 3.0]


def test_a_fit_that_cannot_be_kept_is_a_fit_all_the_same(
    planted_split: Split, tmp_path: Path, fits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fit_context, "save_model", full)
    context = FitContext(cache=FitCache(tmp_path, KINDS))
    model = context.fit_part("part", EASE(l2=3.0), planted_split.train)
    assert model.train_data_ is planted_split.train
    assert model.weights_ is not None
    assert not any(one.is_dir() for one in tmp_path.iterdir())


def test_what_a_killed_process_had_begun_goes_after_a_day(
    planted_split: Split, tmp_path: Path
) -> None:
    begun_today, abandoned = tmp_path / "new-1", tmp_path / "new-2"
    for path in (begun_today, abandoned):
        path.mkdir()
    os.utime(abandoned, (1.0, 1.0))
    context = FitContext(cache=FitCache(tmp_path, KINDS))
    context.fit_part("part", EASE(l2=3.0), planted_split.train)
    assert begun_today.exists()
    assert not abandoned.exists()


class TakesAll:
    """A model whose `fit` takes any options."""

    def fit(self, train: Any, **options: Any) -> None:
        self.options = options


def test_a_fit_that_takes_any_options_gets_them_all(planted_split: Split) -> None:
    context = FitContext()
    model = context.fit(TakesAll(), planted_split.train, device="cpu")
    assert model.options["context"] is context
    assert model.options["device"] == "cpu"
    assert {"metric", "validation", "user_weights"} <= model.options.keys()


def test_one_that_is_removed_while_it_is_used_stays_readable(
    planted_split: Split, tmp_path: Path
) -> None:
    context = FitContext(cache=FitCache(tmp_path, KINDS))
    for _ in range(2):
        model = context.fit_part("part", EASE(l2=3.0), planted_split.train)
    expected = EASE(l2=3.0).fit(planted_split.train)
    shutil.rmtree(tmp_path)
    assert np.array_equal(fitted(model.weights_, model), fitted(expected.weights_, expected))


def test_a_fit_that_is_found_lies_where_it_was_asked_for(
    planted_split: Split, tmp_path: Path
) -> None:
    context = FitContext(cache=FitCache(tmp_path, KINDS))
    for device in ("auto", "cpu"):
        part = context.fit_part("part", MultVAE(**NETWORK), planted_split.train, device=device)
        assert part.device_ == device
    assert sum(one.is_dir() for one in tmp_path.iterdir()) == 1
    assert fitted(part.network_, part).device.type == "cpu"


class Epochs(list[tuple[str, int]]):
    """A callback that writes down parts and epochs."""

    def on_epoch(self, part: str, epoch: int, score: float) -> None:
        self.append((part, epoch))


def test_a_callback_is_told_which_part_is_trained(planted_split: Split, tmp_path: Path) -> None:
    seen = Epochs()
    context = FitContext(callbacks=[seen], cache=FitCache(tmp_path, KINDS))
    network, questions = MultVAE(**NETWORK), validation_of(planted_split)
    context.fit_part("part", network, planted_split.train, validation=questions)
    assert seen == [("part", 1), ("part", 2), ("part", 3)]
    context.fit(network, planted_split.train, validation=questions)
    assert seen[3:] == [("", 1), ("", 2), ("", 3)]


def test_what_is_no_callback_is_refused_before_anything_is_fitted(planted_split: Split) -> None:
    network = MultVAE(**NETWORK)
    with pytest.raises(loca.ConfigError, match="callbacks: expected objects with on_epoch"):
        network.fit(planted_split.train, callbacks=[print])  # type: ignore[list-item]
    assert not network.is_fitted


def test_parts_of_parts_are_named_by_both(planted_split: Split) -> None:
    seen = Epochs()
    part = Loca(base=MultVAE(**NETWORK | {"epochs": 1}), communities=Kernels(n=3))
    loca.Blend(parts=[EASE(), part]).fit(
        planted_split.train, validation=planted_split.validation, callbacks=[seen]
    )
    assert seen == [("part 1/global model", 1), ("part 1", 1)]


def test_data_inside_a_part_keep_all_but_the_context(planted_split: Split) -> None:
    data = TrainingData.of(planted_split.train, device="cpu").inside("form 0").inside("inner")
    assert (data.context.part, data.device) == ("form 0/inner", "cpu")
    assert data.train is planted_split.train
    decayed = TrainingData.of(planted_split.train.with_recency(loca.Recency(3)))
    np.testing.assert_array_equal(decayed.histories.toarray(), decayed.train.histories().toarray())
    assert decayed.matrix.max() == 1 > decayed.histories.min()


class Foreign:
    """A model of a user's own, which knows of no context."""

    def fit(self, train: Any, *, user_weights: Any = None, validation: Any = None) -> Foreign:
        self.train_data_ = train
        return self


def test_a_model_that_knows_of_no_context_is_fitted_without_one(planted_split: Split) -> None:
    assert NO_CONTEXT.fit(Foreign(), planted_split.train).train_data_ is planted_split.train
