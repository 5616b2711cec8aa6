"""Devices belong to a fit and to a fitted model, never to its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import loca
from loca.data.splits import Split
from loca.errors import ConfigError
from loca.local.engines.differences.ease_differences import EaseDifferences
from loca.local.engines.stacked.networks import StackedNetworks
from loca.local.local_models import SeparateModels
from loca.local.sharded_models import ShardedModels
from loca.models.recommender import BaseEstimator, Recommender, fitted
from loca.registry import KINDS

SMALL = {"latent": 4, "epochs": 2, "batch_size": 100}
MADE: dict[str, Callable[[], Recommender]] = {
    "popularity": loca.Popularity,
    "item-knn": loca.ItemKNN,
    "ease": loca.EASE,
    "next-ease": loca.NextEASE,
    "slim": loca.SLIM,
    "wmf": lambda: loca.WMF(factors=4),
    "llorma": lambda: loca.LLORMA(anchors=2, factors=3),
    "sglsvd": lambda: loca.SGLSVD(clusters=2, global_rank=3, local_rank=2),
    "cdae": lambda: loca.CDAE(**SMALL),
    "rec-vae": lambda: loca.RecVAE(hidden=6, **SMALL),
    "mult-vae": lambda: loca.MultVAE(**SMALL),
    "loca-ease": lambda: loca.Loca(base=loca.EASE(), communities=loca.BestOf(n=3)),
    "loca-ease, differences": lambda: loca.Loca(
        base=loca.EASE(), communities=loca.Kernels(n=3), engine=loca.Differences()
    ),
    "loca-vae": lambda: loca.Loca(base=loca.MultVAE(**SMALL), communities=loca.BestOf(n=4)),
    "loca-vae, loop": lambda: loca.Loca(
        base=loca.MultVAE(**SMALL), communities=loca.Kernels(n=3), engine=loca.Loop()
    ),
    "ensemble-ease": lambda: loca.Ensemble(base=loca.EASE(), models=2, engine=loca.Differences()),
    "ensemble-vae": lambda: loca.Ensemble(base=loca.MultVAE(**SMALL), models=2),
    "blend": lambda: loca.Blend(parts=[loca.EASE(), loca.MultVAE(**SMALL)]),
    "auto": lambda: loca.Auto(trials=3),
}


@pytest.fixture
def a_gpu_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets torch say that there is a GPU: whoever computes on it, as "auto" would, fails."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU that does not fail")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.mark.parametrize("name", MADE)
def test_a_fit_on_the_cpu_asks_no_gpu(
    name: str, planted_split: Split, a_gpu_that_fails: None
) -> None:
    model = MADE[name]().fit(planted_split.train, validation=planted_split.validation, device="cpu")
    assert np.isfinite(model.score(planted_split.train.histories())).all()
    assert np.isfinite(model.to("cpu").score(planted_split.train.histories())).all()
    model.update(fitted(planted_split.validation, model).targets, epochs=1)
    assert np.isfinite(model.score(fitted(model.train_data_, model).histories())).all()


@pytest.mark.parametrize("name", MADE)
def test_the_device_is_in_no_file(name: str, planted_split: Split, tmp_path: Path) -> None:
    model = MADE[name]().fit(planted_split.train, validation=planted_split.validation, device="cpu")
    assert model.device_ == "cpu"
    model.save(tmp_path / "model")
    loaded = loca.load(tmp_path / "model")
    assert loaded.device_ == "auto"
    assert '"device' not in (tmp_path / "model" / "model.json").read_text()
    histories = planted_split.train.histories()
    np.testing.assert_allclose(
        loaded.to("cpu").score(histories), model.score(histories), rtol=1e-5, atol=1e-5
    )


def test_no_model_has_a_device_as_a_parameter() -> None:
    models = [kind for kind in KINDS.values() if issubclass(kind, BaseEstimator)]
    assert len(models) > 15
    for kind in models:
        assert "device" not in inspect.signature(kind).parameters, kind.__name__
    with pytest.raises(ConfigError, match="device"):
        loca.EASE(device="cpu")  # type: ignore[call-arg]


@pytest.mark.parametrize("wrong", ["gpu", "abacus", "cuda:x", ""])
def test_an_unknown_device_is_refused_before_anything_is_fitted(
    wrong: str, planted_split: Split
) -> None:
    message = f"device: expected 'auto', 'cpu' or 'cuda', found '{wrong}'"
    model = loca.Popularity()
    with pytest.raises(ConfigError, match=message):
        model.fit(planted_split.train, device=wrong)
    assert not model.is_fitted
    model.fit(planted_split.train)
    with pytest.raises(ConfigError, match=message):
        model.to(wrong)
    with pytest.raises(ConfigError, match=message):
        loca.compare([model], planted_split, device=wrong)
    assert model.device_ == "auto"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(planted_split: Split) -> None:
    model = loca.MultVAE(**SMALL).fit(planted_split.train)
    for asked in (
        lambda: model.to("cuda"),
        lambda: loca.EASE().fit(planted_split.train, device="cuda:1"),
    ):
        with pytest.raises(ConfigError, match="no GPU is to be seen; use 'cpu' or 'auto'"):
            asked()
    assert model.device_ == "auto"
    assert np.isfinite(model.score(planted_split.train.histories())).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("name", MADE)
def test_a_fitted_model_moves_with_all_its_parts(name: str, planted_split: Split) -> None:
    histories = planted_split.test.history_matrix
    model = MADE[name]().fit(
        planted_split.train, validation=planted_split.validation, device="cuda"
    )
    there = model.score(histories)
    for device in ("cpu", "cuda", "cpu"):
        np.testing.assert_allclose(model.to(device).score(histories), there, rtol=1e-3, atol=1e-3)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    model.score(histories)
    assert torch.cuda.max_memory_allocated() >= before
    assert torch.cuda.memory_allocated() <= before


def test_local_models_move_themselves(planted_split: Split) -> None:
    meta = torch.device("meta")
    vae = loca.Ensemble(base=loca.MultVAE(**SMALL), models=2)
    stacked = fitted(vae.fit(planted_split.train, device="cpu").models_, vae)
    assert isinstance(stacked, StackedNetworks)
    stacked.device = meta
    assert ShardedModels.of([stacked]).to("cpu").parts_[0] is stacked
    assert stacked.device == torch.device("cpu")

    ease = loca.Ensemble(base=loca.EASE(), models=2, engine=loca.Differences())
    differences = fitted(ease.fit(planted_split.train, device="cpu").models_, ease)
    assert isinstance(differences, EaseDifferences)
    differences.device = meta
    assert differences.to("cpu").device is None

    network = loca.MultVAE(**SMALL).fit(planted_split.train)
    separate = SeparateModels.of([network, loca.EASE().fit(planted_split.train)])
    assert separate.to("cpu").device == fitted(network.network_, network).device
    assert [model.device_ for model in separate.models_] == ["cpu", "cpu"]
