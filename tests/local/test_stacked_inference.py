"""Trained networks that answer side by side: against the formula, in half precision, from files, and damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

import loca
import loca.local.engines.stacked.inference as inference_file
import loca.persistence.arrays as array_files
from loca.communities.kernel import Kernels
from loca.communities.memberships import top_k_weights
from loca.data.splits import Split
from loca.errors import DataError, ModelFileError
from loca.local.engines.engine import ManyFits, copies_of
from loca.local.engines.stacked.engine import Stacked
from loca.local.engines.stacked.networks import StackedNetworks
from loca.local.loca import Loca
from loca.local.local_models import PreparedBatch, blend_scores
from loca.models.mult_vae import MultDAE, MultVAE
from loca.models.recommender import Recommender, TrainingData
from loca.persistence.learned import learned_bytes, restored, state_of
from loca.persistence.manifest import ModelState
from loca.typing import StoredPrecision

BASES: dict[str, Recommender] = {
    "variational": MultVAE(latent=8, epochs=3),
    "variational, hidden": MultVAE(latent=8, hidden=12, epochs=3),
    "denoising": MultDAE(latent=8, epochs=3),
    "denoising, hidden": MultDAE(latent=8, hidden=12, epochs=3),
}


def a_loca(split: Split, name: str, stored: StoredPrecision = "float32") -> Loca:
    kernels = Kernels(n=4, answer_bandwidth=0.6)
    model = Loca(base=BASES[name], communities=kernels, engine=Stacked(stored=stored))
    return model.fit(split.train)


@pytest.mark.parametrize("name", BASES)
def test_the_blend_is_the_formula_over_each_network_alone(name: str, planted_split: Split) -> None:
    model = a_loca(planted_split, name)
    histories = planted_split.test.history_matrix[:60]
    weights = model.answer_weights(histories)
    covered = np.diff(weights.indptr) > 0
    expected = blend_scores(
        histories,
        weights,
        lambda j, rows: torch.from_numpy(model.local_.models.score_with(j, rows)),
    )
    found = model.local_.models.blend(histories, weights).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert 0 < covered.mean() < 1
    assert not found[~covered].any()
    # One user alone takes the short way through the code.
    user = int(np.argmax(np.diff(weights.indptr)))
    alone = model.local_.models.blend(csr_array(histories[[user]]), csr_array(weights[[user]]))
    np.testing.assert_allclose(alone.numpy()[0], expected[user], atol=1e-5)


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("name", BASES)
def test_few_communities_for_each_user_give_the_same_by_every_product(
    name: str, precision: StoredPrecision, planted_split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = a_loca(planted_split, name, stored=precision)
    histories = csr_array(planted_split.test.history_matrix[:60])
    weights = csr_array(
        top_k_weights(np.random.default_rng(0).uniform(0.1, 1, (60, 4)).astype(np.float32), 2)
    )
    expected = blend_scores(
        histories,
        weights,
        lambda j, rows: torch.from_numpy(model.local_.models.score_with(j, rows)),
    )
    assert np.abs(expected).max() > 0.1
    for few in (0, 2, 100):  # of no, some and all networks' users the products are those for few
        monkeypatch.setattr(inference_file, "FEW_USERS", few)
        for users in (60, 3, 1):
            found = model.local_.models.blend(
                csr_array(histories[:users]), csr_array(weights[:users])
            )
            np.testing.assert_allclose(found.numpy(), expected[:users], atol=1e-5)


@pytest.mark.parametrize("at_once", [1, 3, 100])
@pytest.mark.parametrize("name", BASES)
def test_networks_that_answer_for_everybody_are_multiplied_together(
    name: str, at_once: int, planted_split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = a_loca(planted_split, name)
    table = model.local_.models.weights_["output_table"][0]
    one = 2 * (table.nbytes + 4 * 60 * table.shape[1])  # of 60 users
    monkeypatch.setattr(inference_file, "JOINED_BYTES", at_once * one)
    joined: list[int] = []
    cat = torch.cat
    monkeypatch.setattr(
        torch, "cat", lambda parts, dim: (joined.append(len(parts)), cat(parts, dim))[1]
    )
    weights = np.random.default_rng(0).uniform(0.1, 1, (60, 4)).astype(np.float32)
    weights[7:, 2] = 0  # one of them answers for some alone
    histories = planted_split.test.history_matrix[:60]
    expected = blend_scores(
        histories,
        csr_array(weights),
        lambda j, rows: torch.from_numpy(model.local_.models.score_with(j, rows)),
    )
    joined.clear()
    np.testing.assert_allclose(
        model.local_.models.blend(histories, csr_array(weights)).numpy(), expected, atol=1e-5
    )
    assert (
        joined == {1: [1] * 6, 3: [3] * 2, 100: [3] * 2}[at_once]
    )  # users and items of the three for everybody


@pytest.mark.parametrize("name", BASES)
def test_histories_that_are_laid_out_give_the_same_answers(
    name: str, planted_split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = a_loca(planted_split, name)
    histories = csr_array(planted_split.test.history_matrix[:60])
    weights = np.random.default_rng(0).uniform(0.1, 1, (60, 4)).astype(np.float32)
    weights[7:, 2] = 0  # one of them answers for some alone, the others for everybody
    weights[:, 3] = 0  # and one for nobody
    expected = model.local_.models.blend(histories, csr_array(weights)).numpy()
    monkeypatch.setattr(inference_file, "fills_densely", lambda *_: True)
    left: list[torch.Tensor] = []
    multiply = torch.Tensor.__matmul__
    monkeypatch.setattr(
        torch.Tensor, "__matmul__", lambda *both: (left.append(both[0]), multiply(*both))[1]
    )
    found = model.local_.models.blend(csr_array(histories), csr_array(weights))
    laid = [one for one in left if one.shape[1] == histories.shape[1]]
    assert [len(one) for one in laid] == [60, 60, 7]
    assert all(one.stride(0) % 64 == 0 for one in laid)  # 60 items in rows of 64
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)
    alone = model.local_.models.blend(csr_array(histories[[3]]), csr_array(weights[[3]]))
    np.testing.assert_allclose(alone.numpy()[0], expected[3], atol=1e-5)


def test_histories_of_any_format_give_the_same_answers(planted_split: Split) -> None:
    model = a_loca(planted_split, "variational")
    histories = csr_array(planted_split.test.history_matrix[:60])  # as many users as items
    weights = csr_array(np.full((60, 4), 0.25, dtype=np.float32))
    expected = model.local_.models.blend(histories, weights).numpy()
    for other in (
        histories.tocsc(),
        histories.tocoo(),
        histories.toarray(),
        histories.astype(np.float64),
    ):
        np.testing.assert_array_equal(model.local_.models.blend(other, weights).numpy(), expected)


def test_nobody_covered_gives_zeros(planted_split: Split) -> None:
    model = a_loca(planted_split, "variational")
    nobody = csr_array((3, 4), dtype=np.float32)
    assert (
        not model.local_.models.blend(planted_split.test.history_matrix[:3], nobody).numpy().any()
    )


def test_histories_over_other_items_are_refused(planted_split: Split) -> None:
    model = a_loca(planted_split, "variational")
    with pytest.raises(DataError, match="expected 60 items, found 7"):
        model.local_.models.blend(
            csr_array((1, 7), dtype=np.float32), csr_array(np.ones((1, 4), np.float32))
        )


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_saved_stack_answers_as_before_also_from_mapped_files(
    name: str,
    precision: StoredPrecision,
    planted_split: Split,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(array_files, "LARGEST_READ", 64)
    model = a_loca(planted_split, name, stored=precision)
    model.save(tmp_path / "model")
    opened = loca.load(tmp_path / "model")
    histories = planted_split.test.history_matrix[:40]
    np.testing.assert_array_equal(opened.score(histories), model.score(histories))
    assert str(opened.local_.models.weights_["output_table"].dtype) == f"torch.{precision}"


def test_half_precision_loses_little_and_takes_half(planted_split: Split) -> None:
    full = a_loca(planted_split, "variational", "float32")
    half = a_loca(planted_split, "variational", "float16")
    histories = planted_split.test.history_matrix[:40]
    difference = np.abs(half.score(histories) - full.score(histories)).max()
    assert 0 < difference < 0.01 * np.abs(full.score(histories)).max()
    assert learned_bytes(full.local_.models) == 2 * learned_bytes(half.local_.models)


def test_a_variational_stack_stores_only_the_mean(planted_split: Split) -> None:
    assert a_loca(planted_split, "variational").local_.models.weights_["input_table"].shape == (
        4,
        60,
        8,
    )
    assert a_loca(planted_split, "variational, hidden").local_.models.weights_[
        "code_weight"
    ].shape == (
        4,
        12,
        8,
    )


def test_arrays_that_do_not_fit_are_refused(planted_split: Split) -> None:
    arrays = dict(state_of(a_loca(planted_split, "variational, hidden").local_.models).arrays)
    plain = dict(state_of(a_loca(planted_split, "variational").local_.models).arrays)
    broken = [
        (
            {name: array for name, array in arrays.items() if name != "back_bias"},
            "expected the arrays",
        ),
        (arrays | {"more": arrays["back_bias"]}, "expected the arrays"),
        (
            arrays | {"output_table": arrays["output_table"].astype(np.float16)},
            "32 bits or all in 16",
        ),
        (
            {name: array.astype(np.float64) for name, array in arrays.items()},
            "32 bits or all in 16",
        ),
        (arrays | {"output_bias": arrays["output_bias"][0]}, "networks × weights"),
        (
            arrays | {"input_bias": arrays["input_bias"][:, :5]},
            "do not fit each other: input_table",
        ),
        (
            arrays | {"output_table": arrays["output_table"][:, :, :5]},
            "do not fit each other: back_weight",
        ),
        (
            plain
            | {
                "input_table": plain["input_table"][..., :5],
                "input_bias": plain["input_bias"][:, :5],
            },
            "do not fit each other: output_table",
        ),
        ({name: array[:0] for name, array in plain.items()}, "they are empty"),
    ]
    for change, message in broken:
        with pytest.raises(ModelFileError, match=message):
            restored(StackedNetworks, {"variational": True}, ModelState(change))


def test_a_part_of_a_model_is_not_a_model(planted_split: Split, tmp_path: Path) -> None:
    from loca.persistence import save_model

    save_model(a_loca(planted_split, "variational").local_.models, tmp_path / "part")
    with pytest.raises(
        ModelFileError, match="expected a recommender, found a part of one, StackedNetworks"
    ):
        loca.load(tmp_path / "part")


def test_networks_in_training_answer_a_prepared_batch_as_they_are_now(
    planted_split: Split,
) -> None:
    models = copies_of(BASES["variational"], 3, seed=0, name="local model")
    data = TrainingData.of(planted_split.train.matrix())
    fits = ManyFits(models, data, lambda number: data.user_weights, "test")
    (stack,), networks = Stacked().begin(fits)
    histories = planted_split.test.history_matrix[:30]
    weights = csr_array(np.random.default_rng(0).uniform(0.1, 1, (30, 3)).astype(np.float32))
    batch = networks.prepared(histories, weights)
    before = networks.blend_prepared(batch).clone()
    stack.run_epoch()
    after = networks.blend_prepared(batch)
    assert not torch.equal(after, before)
    assert torch.equal(after, networks.blend(histories, weights))
    plain = PreparedBatch(histories=histories, answer_weights=weights)
    assert torch.equal(after, networks.blend_prepared(plain))
    finished = Stacked().finish(networks, 1)
    answered = finished.blend(histories, weights).clone()
    assert torch.equal(answered, after)
    stack.run_epoch()
    assert torch.equal(finished.blend(histories, weights), answered)  # in memory of their own
