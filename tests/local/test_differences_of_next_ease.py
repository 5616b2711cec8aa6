"""Local NextEASE: in the loop and as kept differences, both what a fit with the community's weights finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from loca.communities.embeddings import TruncatedSVD
from loca.communities.geometry import Quantile
from loca.communities.kernel import Kernels
from loca.data.splits import Split
from loca.errors import DataError
from loca.local.combiner import FixedShare
from loca.local.engines.differences.compressed_weights import SizeBudget
from loca.local.engines.differences.ease_differences import EaseDifferences
from loca.local.engines.differences.engine import Differences, is_centre_for
from loca.local.engines.differences.solving import plan_solving, solve_differences
from loca.local.engines.engine import Engine, ManyFits
from loca.local.engines.loop import Loop
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.local.local_models import SeparateModels, blend_scores
from loca.models.ease import EASE
from loca.models.next_ease import NextEASE
from loca.models.popularity import Popularity
from loca.models.recommender import TrainingData, clone

CPU = torch.device("cpu")
NARROW = Kernels(
    n=4,
    train_bandwidth=Quantile(0.6),
    answer_bandwidth=Quantile(0.2),
    embedding=TruncatedSVD(dimensions=8),
)


def ordered_rows(seed: int, users: int = 30, items: int = 20) -> csr_array:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, users)
    indices = np.concatenate([rng.permutation(items)[:length] for length in lengths])
    return csr_array(
        (np.ones(len(indices), np.float32), indices, np.cumsum([0, *lengths])), shape=(users, items)
    )


def many_fits(base: NextEASE | EASE, matrix: csr_array, weights_of: Any = None) -> ManyFits:
    data = TrainingData(matrix, matrix, np.ones(matrix.shape[0], np.float32), device="cpu")
    return ManyFits([base] * 3, data, weights_of, "local models")


@pytest.mark.parametrize("base", [NextEASE(l2=3.0), EASE(l2=3.0, denoising=0.6)])
def test_kept_differences_answer_as_the_loop_of_dense_models(base: NextEASE | EASE) -> None:
    matrix, rng = ordered_rows(0), np.random.default_rng(1)
    weights = [rng.uniform(0, 2, 30) * (rng.random(30) < 0.7) for _ in range(3)]
    dense = [base.selected().fit(matrix, user_weights=one) for one in weights]
    centre = base.selected().fit(matrix)
    kept = solve_differences(many_fits(clone(base), matrix, weights.__getitem__), centre, 10**6)
    histories = ordered_rows(2, users=9)
    answering = csr_array(rng.uniform(0, 1, (9, 3)).astype(np.float32))
    expected = blend_scores(histories, answering, lambda number, rows: dense[number].score(rows))
    np.testing.assert_allclose(kept.blend(histories, answering), expected, atol=1e-5)
    assert np.abs(expected - centre.score(histories)).max() > 1e-3


@pytest.mark.parametrize(
    ("engine", "kind"), [(Loop(), SeparateModels), (Differences(), EaseDifferences)], ids=str
)
def test_loca_takes_it_as_a_base_in_both_forms(
    engine: Engine, kind: type, planted_split: Split
) -> None:
    model = Loca(
        base=NextEASE(l2=20.0), communities=NARROW, engine=engine, combiner=FixedShare(0.5)
    )
    model.fit(planted_split.train)
    assert isinstance(model.local_.models, kind)
    histories = planted_split.test.history_matrix[:20]
    loop = clone(model, engine=Loop()).fit(planted_split.train)
    np.testing.assert_allclose(model.score(histories), loop.score(histories), atol=1e-5)


def test_an_ensemble_of_kept_differences_has_a_centre_of_its_own_kind(planted_split: Split) -> None:
    model = Ensemble(base=NextEASE(l2=20.0, next_count=3), models=2, engine=Differences())
    model.fit(planted_split.train)
    assert isinstance(model.models_, EaseDifferences)
    assert isinstance(model.models_.centre_, NextEASE)
    loop = clone(model, engine=Loop()).fit(planted_split.train)
    histories = planted_split.test.history_matrix[:20]
    np.testing.assert_allclose(model.score(histories), loop.score(histories), atol=1e-5)


def test_only_the_same_model_is_a_centre() -> None:
    assert is_centre_for(EASE(l2=5.0), EASE(l2=5.0))
    assert not is_centre_for(EASE(l2=5.0), EASE(l2=6.0))
    assert not is_centre_for(EASE(l2=5.0, denoising=0.1), EASE(l2=5.0))
    assert not is_centre_for(NextEASE(next_count=3), NextEASE())
    assert not is_centre_for(EASE(), Popularity())
    assert not is_centre_for(EASE(), None)


def test_the_plan_refuses_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loca.memory.available_bytes", lambda: 1000)
    with pytest.raises(
        DataError, match=r"local models: 3 local NextEASE models: .* take fewer communities"
    ):
        plan_solving(many_fits(NextEASE(), ordered_rows(3)), SizeBudget.of(20, 5000), CPU)


def test_a_gpu_solves_one_at_a_time_or_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, gpu = ordered_rows(4), torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10**9, 10**9))
    assert plan_solving(many_fits(NextEASE(), matrix), SizeBudget.of(20, 5000), gpu) == 1
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 1000))
    with pytest.raises(DataError, match="of GPU memory needed, 1 kB are free; use the CPU"):
        plan_solving(many_fits(NextEASE(), matrix), SizeBudget.of(20, 5000), gpu)
