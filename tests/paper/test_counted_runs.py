"""A counted run is also measured with its first models, is stored to the last bit, and is no other run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import loca
from loca.communities.kernel import Kernels
from loca.data.splits import Split
from loca.errors import ConfigError
from loca.experiments.runs import Run, RunStore
from loca.local.combiner import FixedShare
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.models.recommender import Recommender
from loca.paper.counted_runs import CountedModel, CountedRun
from loca.paper.first_models import first_models
from loca.persistence.manifest import fingerprint
from loca.tuning.model_selection import EvaluationProtocol

MODEL = Loca(base=EASE(), communities=Kernels(n=4, answer_bandwidth=0.5), combiner=FixedShare(0.0))


def counted_run(split: Split, model: Recommender = MODEL, *counts: int) -> CountedRun:
    return CountedRun(
        name="a model",
        candidates=(model,),
        protocol=EvaluationProtocol(at=(5, 20)),
        data=fingerprint(split),
        counts=counts or (1, 2, 4),
    )


def test_the_first_models_are_measured_too(planted_split: Split) -> None:
    measured, fitted = counted_run(planted_split).execute(planted_split)
    assert isinstance(measured, CountedModel)
    for count in (1, 2):
        first = first_models(fitted, count)
        expected = loca.evaluate(first, planted_split.test, at=(5, 20)).values["ndcg@20"]
        assert np.array_equal(measured.by_count[count].values["ndcg@20"], expected)
    assert measured.by_count[4] is measured.evaluation
    covered = measured.coverage_by_count
    assert 0 < covered[1] < covered[2] <= covered[4] == measured.found["coverage"]
    assert measured.size == 4


def test_an_ensemble_has_figures_by_number_and_no_coverage(planted_split: Split) -> None:
    run = counted_run(planted_split, Ensemble(base=EASE(), models=3), 1, 3)
    measured, _ = run.execute(planted_split)
    assert isinstance(measured, CountedModel)
    assert (list(measured.by_count), measured.coverage_by_count) == ([1, 3], {})


def test_a_single_model_cannot_be_counted(planted_split: Split) -> None:
    with pytest.raises(ConfigError, match="expected a Loca or an Ensemble, found EASE"):
        counted_run(planted_split, EASE(), 1).execute(planted_split)


def test_a_stored_run_comes_back_to_the_last_bit(planted_split: Split, tmp_path: Path) -> None:
    store, run = RunStore(tmp_path), counted_run(planted_split)
    with store.opened([run.name], resume=True):
        computed, _ = store.execute(run, planted_split)
    stored = store.find(run)
    assert isinstance(computed, CountedModel)
    assert isinstance(stored, CountedModel)
    for count in (1, 2, 4):
        ours, theirs = stored.by_count[count], computed.by_count[count]
        assert ours.values.keys() == theirs.values.keys()
        for metric, values in theirs.values.items():
            assert np.array_equal(ours.values[metric], values)
        assert (ours.catalogue_coverage, ours.novelty) == (
            theirs.catalogue_coverage,
            theirs.novelty,
        )
        assert ours.users.tolist() == theirs.users.tolist()
    assert stored.coverage_by_count == computed.coverage_by_count
    assert (stored.found, stored.parameters) == (computed.found, computed.parameters)


def test_other_numbers_or_none_are_another_run(planted_split: Split, tmp_path: Path) -> None:
    store, run = RunStore(tmp_path), counted_run(planted_split, MODEL, 1, 4)
    store.execute(run, planted_split)
    with pytest.raises(ConfigError, match="counts: 1, 4 then, 2 now"):
        store.find(replace(run, counts=(2,)))
    uncounted = {name: value for name, value in vars(run).items() if name != "counts"}
    with pytest.raises(ConfigError, match="counts: 1, 4 then, not set now"):
        store.find(Run(**uncounted))
