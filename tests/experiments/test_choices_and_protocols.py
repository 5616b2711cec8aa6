"""Choices are made on validation alone, and under `clean` the test part is asked once, after all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loca.data.held_out import Split
from loca.errors import ConfigError
from loca.experiments.choices import Tried, choose_on, choose_on_validation
from loca.experiments.protocols import check_protocol, run_clean, run_paper
from loca.models.popularity import Popularity
from loca.ranking.evaluation import evaluate, mean_ndcg


def test_the_best_candidate_on_validation_is_chosen_and_all_scores_are_kept(planted_split: Split, diary: Any) -> None:
    candidates = [diary(direction=-1), diary(direction=1), diary(direction=0)]
    best, tried = choose_on_validation(candidates, planted_split)
    assert isinstance(best, diary)
    assert best.direction == 1
    assert [one.settings for one in tried] == [{"direction": -1}, {"direction": 1}, {"direction": 0}]
    assert tried[1].ndcg == max(one.ndcg for one in tried)
    assert planted_split.validation is not None
    assert tried[1].ndcg == mean_ndcg(Popularity().fit(planted_split.train).score, planted_split.validation)
    assert candidates[1].known_ is None, "the candidates themselves stay unfitted"


def test_ties_go_to_the_first(planted_split: Split, diary: Any) -> None:
    best, tried = choose_on_validation([diary(name="first"), diary(name="second")], planted_split)
    assert isinstance(best, diary)
    assert best.name == "first"
    assert tried[0].ndcg == tried[1].ndcg


def test_choosing_needs_candidates_and_a_validation_part(planted_split: Split, diary: Any) -> None:
    with pytest.raises(ConfigError, match="needs a validation part"):
        choose_on_validation([diary()], replace(planted_split, validation=None))
    with pytest.raises(ConfigError, match="nothing to choose from"):
        choose_on([], planted_split.train, planted_split.test)


def test_what_was_tried_reads_as_a_line() -> None:
    assert str(Tried({"l2": 30.0, "anchors": 2}, 0.25, 1.0)) == "l2 30.0, anchors 2: 0.2500"
    assert str(Tried({}, 0.25, 1.0)) == "the only candidate: 0.2500"


def test_clean_asks_the_test_part_once_and_last(planted_split: Split, diary: Any) -> None:
    pages: list[Any] = []
    outcome = run_clean([diary(direction=d, name=str(d), pages=pages) for d in (-1, 1)], planted_split, at=(10,))
    train, known = len(planted_split.train), len(planted_split.train_and_validation)
    test_histories = planted_split.test.history_matrix.nnz
    assert pages == [
        ("fit", train, True, "-1"),
        ("score", train, "-1"),
        ("fit", train, True, "1"),
        ("score", train, "1"),
        ("as chosen", "1"),
        ("fit", known, False, "1"),
        ("score", test_histories, "1"),
    ]
    assert test_histories not in (train, 0)
    assert outcome.chosen == 1


def test_clean_refits_on_train_and_validation(planted_split: Split) -> None:
    outcome = run_clean([Popularity()], planted_split, at=(10,))
    expected = evaluate(Popularity().fit(planted_split.train_and_validation), planted_split.test, at=(10,))
    assert np.array_equal(outcome.evaluation.values["ndcg@10"], expected.values["ndcg@10"])


def test_without_refit_the_chosen_model_is_measured_as_it_is(planted_split: Split, diary: Any) -> None:
    pages: list[Any] = []
    outcome = run_clean([diary(pages=pages)], planted_split, refit=False, at=(10,))
    assert [page[0] for page in pages] == ["fit", "score", "score"]
    assert outcome.model.known_ is planted_split.train


def test_paper_chooses_on_test_and_trains_on_all_before_it(planted_split: Split, diary: Any) -> None:
    pages: list[Any] = []
    outcome = run_paper([diary(direction=d, pages=pages) for d in (-1, 1)], planted_split, at=(100,))
    known = len(planted_split.train_and_validation)
    fits = [page for page in pages if page[0] == "fit"]
    assert fits == [("fit", known, True, "diary")] * 2
    assert "as chosen" not in {page[0] for page in pages}
    assert outcome.tried[outcome.chosen].ndcg == pytest.approx(outcome.evaluation.means()["ndcg@100"])


def test_an_unknown_protocol_is_refused() -> None:
    check_protocol("clean")
    with pytest.raises(ConfigError, match="unknown protocol 'clen'; did you mean 'clean'"):
        check_protocol("clen")
    with pytest.raises(ConfigError, match="expected 'clean' or 'paper'"):
        check_protocol("xyz")
