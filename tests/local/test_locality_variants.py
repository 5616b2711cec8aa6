"""What the benchmark of locality is made of: quick NDCG, shrunk gains, soft cells, corrections, pooled tables."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

import loca
from loca.ranking.evaluation import measure

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _benchmarks_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def module(name: str) -> Any:
    return importlib.import_module(name)


@pytest.fixture(scope="module")
def split() -> loca.Split:
    data = loca.planted_communities(users=150, items=130, groups=6, history=18, shortest_history=12).interactions
    return loca.leave_last_out(data, test=5, validation=2)


def make_trial(split: loca.Split, base: Any) -> Any:
    questions, trial, memberships = (
        module(name) for name in ("locality_questions", "locality_trial", "locality_memberships")
    )
    parts = {name: questions.Questions(getattr(split, name), CPU) for name in ("validation", "test")}
    histories = memberships.Histories(split.train.histories(), parts["validation"].histories, parts["test"].histories)
    return trial.Trial(trial.Setting(base, split.train.matrix(), histories, split.validation, parts, 4, 0, CPU))


def small_vae() -> loca.MultVAE:
    return loca.MultVAE(latent=8, epochs=4, evaluate_every=2, patience=4, learning_rate=1e-2, device="cpu")


def test_ndcg_without_ranking_lists_is_that_of_ranked_lists(split: loca.Split) -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 40, (split.test.n_users, split.test.n_items)).astype(np.float32)  # with many ties
    expected = measure(lambda users: scores[users], split.test, at=(100,)).values["ndcg@100"]
    questions = module("locality_questions").Questions(split.test, CPU)
    found = questions.ndcgs(torch.from_numpy(scores[questions.user_rows]))
    np.testing.assert_allclose(found, expected, atol=1e-12)
    some = np.array([7, 3, 50])
    np.testing.assert_allclose(questions.ndcgs(torch.from_numpy(scores[questions.user_rows[some]]), some), found[some])


def test_more_candidates_do_not_raise_a_cross_validated_score() -> None:
    questions = module("locality_questions")
    noise = np.random.default_rng(6).normal(size=(300, 400))
    assert noise.mean(axis=1).max() > 0.1
    assert abs(questions.cross_validated(noise).mean()) < 0.1
    assert (questions.cross_validated(np.stack([noise[0], noise[0] + 1])) == noise[0] + 1).all()


def test_scores_that_are_not_numbers_are_refused(split: loca.Split) -> None:
    questions = module("locality_questions").Questions(split.test, CPU)
    scores = torch.zeros(len(questions), split.test.n_items)
    scores[3, 4] = torch.nan
    with pytest.raises(loca.DataError, match="NaN"):
        questions.ndcgs(scores)


@pytest.mark.parametrize("base", [loca.EASE(l2=50.0, device="cpu"), small_vae()], ids=["ease", "vae"])
def test_the_rows_of_loca_and_of_the_ensemble_are_what_the_models_themselves_reach(
    split: loca.Split, base: Any
) -> None:
    trial, variants = make_trial(split, base), module("locality_variants")
    model = loca.Loca(base=base, anchors=4).fit(split.train, validation=split.validation)
    row = variants.of_loca(trial)
    assert row.chosen["alpha"] == model.alpha_
    np.testing.assert_allclose(row.values, loca.evaluate(model, split.test, at=(100,)).values["ndcg@100"], atol=1e-9)
    ensemble = loca.Ensemble(base=base, models=4).fit(split.train, validation=split.validation)
    values = loca.evaluate(ensemble, split.test, at=(100,)).values["ndcg@100"]
    np.testing.assert_allclose(variants.of_ensemble(trial).values, values, atol=1e-9)


def test_gains_are_shrunk_all_the_way_where_they_differ_by_no_more_than_chance() -> None:
    gains = module("locality_gains")
    rng = np.random.default_rng(1)
    noise = rng.normal(size=8)
    even = np.where(np.abs(noise) > 1, 0.0, noise) * 0.1
    shrunk = gains.shrink_gains(0.5 + even, np.full(8, 1.0))
    np.testing.assert_allclose(shrunk, np.full(8, (0.5 + even).mean()))


def test_gains_far_above_chance_are_kept_and_an_unknown_one_takes_the_mean() -> None:
    gains = module("locality_gains")
    true = np.array([-1.0, 0.0, 1.0, 2.0, 0.0])
    variances = np.array([1e-6, 1e-6, 1e-6, 1e-6, np.inf])
    shrunk = gains.shrink_gains(true, variances)
    np.testing.assert_allclose(shrunk[:4], true[:4], atol=1e-5)
    assert shrunk[4] == pytest.approx(0.5, abs=1e-5)
    factors = gains.factors_of(shrunk)
    np.testing.assert_allclose(factors["proportional"][[0, 3]], [0, 1])
    np.testing.assert_array_equal(factors["on or off"][[0, 2, 3]], [0, 1, 1])


def test_a_weighted_gain_and_its_variance_are_those_worked_out_by_hand() -> None:
    means, variances = module("locality_gains").weighted_gains(
        np.array([[1.0, 0.0], [4.0, 0.0]]), np.array([[2.0, 0.0], [1.0, 1.0]])
    )
    assert means.tolist() == [2.0, 0.0]
    assert variances[0] == pytest.approx((4 * 1 + 1 * 4) / 9)
    assert np.isinf(variances[1])


def test_factors_of_validation_users_come_from_the_other_fold_alone() -> None:
    gains = module("locality_gains")
    rng = np.random.default_rng(2)
    differences, weights = rng.normal(0.2, 0.01, (20, 3)), np.ones((20, 3))
    folds = np.arange(20) % 2
    before = gains.cross_fitted_factors(differences, weights, folds)[0]["on or off"]
    assert (before == 1).all()
    differences[folds == 0] = -1.0 + rng.normal(0, 0.01, (10, 3))
    after = gains.cross_fitted_factors(differences, weights, folds)[0]["on or off"]
    assert (after[folds == 0] == 1).all()
    assert (after[folds == 1] == 0).all()


def test_soft_cells_give_shares_that_sum_to_one_and_a_mean_largest_share_of_a_half() -> None:
    closeness = np.random.default_rng(3).normal(size=(400, 5))
    cells = module("locality_memberships").in_soft_cells({"train": closeness, "test": closeness[:7]})
    shares = cells.answering["train"].toarray()
    assert shares.max(axis=1).mean() == pytest.approx(0.5, abs=1e-3)
    assert (np.abs(shares.sum(axis=1) - 1) < 0.04).all()  # shares below a hundredth are left out
    assert (shares.argmax(axis=1) == closeness.argmax(axis=1)).all()
    assert cells.train_weights(2).sum() == pytest.approx(400, rel=1e-5)


def test_random_signs_keep_the_cosine_of_overlap() -> None:
    rng = np.random.default_rng(4)
    histories = csr_array((rng.random((30, 200)) < 0.2).astype(np.float32))
    embedder = module("locality_memberships").RandomSigns(dimensions=8192).fit(histories)
    embedded = embedder.embed(histories)
    dense = histories.toarray() / np.linalg.norm(histories.toarray(), axis=1, keepdims=True)
    assert np.abs(embedded @ embedded.T - dense @ dense.T).max() < 0.06


def test_corrections_of_full_rank_are_the_local_models_themselves(split: loca.Split) -> None:
    corrections = module("locality_corrections")
    matrix = split.train.matrix()
    weights = np.random.default_rng(5).uniform(0, 2, (2, matrix.shape[0])).astype(np.float32)
    centre = loca.EASE(l2=20.0, device="cpu").fit(matrix)
    local = [loca.EASE(l2=20.0, device="cpu").fit(matrix, user_weights=own) for own in weights]
    low_rank = corrections.LowRankCorrections.of(centre, matrix, lambda number: weights[number], 2, 130, CPU)
    asked = csr_array(split.test.history_matrix[:6])
    answering = csr_array(np.array([[1, 0], [0, 1], [3, 1], [0, 0], [1, 1], [0, 2]], dtype=np.float32))
    found = low_rank.blend(asked, answering).numpy()
    first, second, shared = (model.score(asked) for model in (*local, centre))
    np.testing.assert_allclose(found[0], first[0], atol=1e-4)
    np.testing.assert_allclose(found[2], 0.75 * first[2] + 0.25 * second[2], atol=1e-4)
    np.testing.assert_allclose(found[3], shared[3], atol=1e-4)


def test_a_bias_is_zero_for_a_community_of_everybody_and_shows_its_own_fashion() -> None:
    matrix = csr_array(np.repeat(np.eye(2, dtype=np.float32), 100, axis=0))
    weights = np.column_stack([np.ones(200), np.repeat([1.0, 0.0], 100)])
    biases = module("locality_corrections").popularity_biases(matrix, weights)
    np.testing.assert_allclose(biases[0], 0, atol=1e-5)  # logarithms of sums of 200 in 32 bits
    assert biases[1, 0] == pytest.approx(np.log((110 / 120) / 0.5), rel=1e-5)
    assert biases[1, 1] == pytest.approx(np.log((10 / 120) / 0.5), rel=1e-5)


def test_fine_tuning_begins_with_the_weights_of_the_global_model(split: loca.Split) -> None:
    base = small_vae()
    start = loca.clone(base).fit(split.train).network_
    tuned = module("locality_corrections").FineTuned(loca.clone(base, seed=9), start)
    learning = tuned.begin(split.train.matrix(), None)
    for name, weight in learning.network.named_parameters():
        assert torch.equal(weight, start.get_parameter(name))
    assert tuned.network_ is learning.network


def test_the_command_writes_what_its_table_then_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    locality, table = module("locality"), module("locality_table")
    out = tmp_path / "planted.json"
    command = "locality planted --users 120 --anchors 3 --bases ease --worlds set --seeds 0,1 --device cpu --out"
    monkeypatch.setattr(sys, "argv", [*command.split(), str(tmp_path)])
    locality.main()
    trials = json.loads(out.read_text())["trials"]
    assert [one["seed"] for one in trials] == [0, 1]
    assert not any(one["skipped"] for one in trials)
    text = table.tables_of([tmp_path])
    assert capsys.readouterr().out == f"{text}\n"
    rows = table.pool_rows(trials)
    values = np.concatenate([table.decode_values(one["rows"]["loca"]["values"]) for one in trials])
    np.testing.assert_allclose(rows["loca"]["values"], values)  # two draws of the data: users side by side
    assert f"| LOCA as it is | {values.mean():.4f} |" in text


def test_trials_of_the_same_data_are_averaged_user_by_user() -> None:
    table = module("locality_table")

    def trial(seed: int, values: list[float]) -> dict[str, Any]:
        text = table.encode_values(np.array(values))
        row = {"values": text, "validation_values": text, "seconds": 1.0, "shown": 2.0, "chosen": {"alpha": seed}}
        return {"draw": 0, "seed": seed, "rows": {"global": row}}

    rows = table.pool_rows([trial(0, [0.0, 1.0]), trial(1, [0.5, 0.5])])
    np.testing.assert_allclose(rows["global"]["values"], [0.25, 0.75])
