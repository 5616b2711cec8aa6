"""Mixtures of multinomials: planted communities are found again, each step does its formula."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.special import logsumexp, softmax

import loca
from loca.communities.components import choose_components
from loca.communities.em import EM, DeviceParameters
from loca.communities.mixture_starts import Sample, sample_size
from loca.communities.multinomial_mixture import MultinomialMixture
from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.splits import Split
from loca.data.synthetic import PlantedData, planted_communities
from loca.errors import ConfigError, DataError, ModelFileError, NotFittedError
from loca.memory import DataSize
from loca.models.recommender import (
    get_params,
)
from loca.persistence.checkpoint import Checkpoint
from loca.persistence.fit_context import checkpoint_in
from loca.persistence.learned import restored, state_of, with_items
from loca.persistence.manifest import ModelState
from loca.persistence.model_io import load_model
from loca.progress import Bar
from loca.registry import KINDS

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def many_planted() -> PlantedData:
    return planted_communities(seed=0)


@pytest.fixture(scope="module")
def mixture(planted_split: Split) -> MultinomialMixture:
    return MultinomialMixture(components=4, mixtures=2, rounds=9).fit(
        planted_split.train, device="cpu"
    )


def some_rows(users: int = 40, items: int = 12, seed: int = 0) -> csr_array:
    rng = np.random.default_rng(seed)
    rows = (rng.random((users, items)) < 0.3) * rng.integers(1, 4, (users, items))
    return csr_array((rows + np.eye(users, items)).astype(np.float32))


def some_parameters(rows: csr_array, mixtures: int = 2, components: int = 3) -> DeviceParameters:
    rng = np.random.default_rng(1)
    log_items = np.log(rng.dirichlet(np.ones(rows.shape[1]), mixtures * components).T).astype(
        np.float32
    )
    log_proportions = np.log(rng.dirichlet(np.ones(components), mixtures)).astype(np.float32)
    return DeviceParameters(torch.from_numpy(log_items), torch.from_numpy(log_proportions))


@pytest.mark.parametrize("seed", [0, 1])
def test_planted_communities_are_found_again(many_planted: PlantedData, seed: int) -> None:
    model = MultinomialMixture(components=6, seed=seed)
    model.fit(many_planted.interactions, device="cpu")
    found = model.embed(many_planted.interactions.histories()).argmax(axis=1)
    true = many_planted.memberships.argmax(axis=1)
    most = sum(np.bincount(true[found == one]).max() for one in np.unique(found))
    assert most / len(true) >= 0.75
    assert len(np.unique(found)) == 6


def test_a_round_is_the_e_step_and_the_m_step_of_the_formula() -> None:
    rows, old = some_rows(), some_parameters(some_rows())
    weights = np.random.default_rng(2).random(40).astype(np.float32)
    new, likelihoods = EM.of(rows, weights, CPU, users_per_block=7).round(
        old, torch.tensor([[1.0], [3.0]])
    )
    dense, items = rows.toarray().astype(np.float64), rows.shape[1]
    popularity = weights @ dense + 0.1
    pseudo = items / 4 * popularity / popularity.sum()
    for one, temperature in enumerate((1.0, 3.0)):
        log_items = old.log_items.numpy().astype(np.float64)[:, 3 * one : 3 * one + 3]
        scores = (dense @ log_items + old.log_proportions[one].numpy()) / temperature
        memberships = softmax(scores, axis=1) * weights[:, None]
        counts = dense.T @ memberships + pseudo[:, None]
        expected = np.log(counts / counts.sum(axis=0))
        np.testing.assert_allclose(
            new.log_items[:, 3 * one : 3 * one + 3], expected, rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(
            new.log_proportions[one], np.log(memberships.sum(axis=0) / weights.sum()), atol=1e-5
        )
        likelihood = weights @ logsumexp(scores, axis=1) + (pseudo @ log_items).sum()
        np.testing.assert_allclose(likelihoods[one], likelihood, rtol=1e-5)


def test_the_likelihood_rises_with_every_round() -> None:
    rows = some_rows(users=200, items=30)
    steps, now = (
        EM.of(rows, np.ones(200, np.float32), CPU, users_per_block=200),
        some_parameters(rows),
    )
    likelihoods = []
    for _ in range(15):
        now, likelihood = steps.round(now)
        likelihoods.append(likelihood)
    rises = np.diff(likelihoods, axis=0)
    assert (rises > -1e-6 * np.abs(likelihoods[0])).all()  # float32
    assert rises[0].min() > 1


def test_blocks_and_threads_do_not_matter(planted_split: Split) -> None:
    rows, old = some_rows(), some_parameters(some_rows())
    weights = np.ones(40, np.float32)
    whole, small = (
        EM.of(rows, weights, CPU, users_per_block=users).round(old)[0] for users in (40, 3)
    )
    torch.testing.assert_close(whole.log_items, small.log_items, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(whole.log_proportions, small.log_proportions, rtol=1e-5, atol=1e-5)
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            found.append(
                MultinomialMixture(components=4, rounds=6).fit(planted_split.train).log_items_
            )
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_allclose(*found, rtol=1e-3, atol=1e-3)


def test_memberships_are_probabilities_by_the_formula(
    mixture: MultinomialMixture, planted_split: Split
) -> None:
    histories = planted_split.test.history_matrix[:30]
    found = mixture.embed(histories).reshape(30, 2, 4)
    np.testing.assert_allclose(np.exp(found).sum(axis=2), 1, atol=1e-5)
    dense = histories.toarray().astype(np.float64)
    scaled = dense * np.minimum(1, 20 / dense.sum(axis=1, keepdims=True))
    scores = (scaled @ mixture.log_items_ + mixture.log_proportions_).reshape(30, 2, 4)
    np.testing.assert_allclose(found, scores - logsumexp(scores, axis=2, keepdims=True), atol=1e-4)


def test_an_empty_history_has_the_sizes_of_the_communities(mixture: MultinomialMixture) -> None:
    found = mixture.embed(csr_array((2, 60), dtype=np.float32))
    np.testing.assert_allclose(found, [mixture.log_proportions_] * 2, atol=1e-5)
    np.testing.assert_allclose(
        np.exp(mixture.log_proportions_).reshape(2, 4).sum(axis=1), 1, atol=1e-5
    )


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=5),
    factor=st.sampled_from([2.0, 8.0, 3.7]),
    seed=st.integers(0, 99),
)
def test_more_of_a_long_history_is_not_more_evidence(
    mixture: MultinomialMixture, lengths: list[int], factor: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = np.zeros((len(lengths), 60), np.float32)
    for row, length in zip(rows, lengths, strict=True):
        row[rng.choice(60, length, replace=False)] = rng.uniform(0.5, 2, length)
    once, more = mixture.embed(csr_array(rows)), mixture.embed(csr_array(rows * np.float32(factor)))
    is_long = rows.sum(axis=1) >= 20
    np.testing.assert_allclose(more[is_long], once[is_long], rtol=1e-4, atol=1e-4)
    assert np.isfinite(once).all()
    # A short history is not at its cap: more of it moves the membership.
    assert (
        not len(once[~is_long]) or np.abs(more[~is_long] - once[~is_long]).max(axis=1).min() > 1e-4
    )


def of_two_tastes() -> Interactions:
    """Draw 60 users for each of two kinds of 10 items, with 8 of them in a random order.

    Another 40 begin with the second kind and end with the first.
    """
    rng = np.random.default_rng(0)
    first, second = (np.stack([rng.permutation(10)[:8] for _ in range(60)]) for _ in range(2))
    moved = [
        np.concatenate([rng.permutation(10)[:6] + 10, rng.permutation(10)[:2]]) for _ in range(40)
    ]
    histories = np.concatenate([first, second + 10, moved])
    users, items = IdMap.numbered(len(histories), "user"), IdMap.numbered(20, "item")
    return Interactions(users, items, np.arange(0, histories.size + 1, 8), histories.ravel())


def test_recency_decides_a_membership() -> None:
    data = of_two_tastes()
    for recency, with_first in ((None, False), (loca.Recency.per_position(0.3), True)):
        weighted = data.with_recency(recency)
        model = MultinomialMixture(components=2, rounds=12).fit(weighted, device="cpu")
        found = model.embed(weighted.histories()).argmax(axis=1)
        taste = np.bincount(found[:60]).argmax()
        assert (found[120:] == taste).mean() == pytest.approx(float(with_first), abs=0.1)


def test_a_user_of_weight_2_counts_as_two() -> None:
    rows, weights = some_rows(), np.ones(40, np.float32)
    weights[:5] = 2
    doubled = csr_array(np.concatenate([rows.toarray(), rows.toarray()[:5]]))
    alike = np.ones(45, np.float32)
    steps = [
        EM.of(rows, weights, CPU, users_per_block=45),
        EM.of(doubled, alike, CPU, users_per_block=45),
    ]
    first, second = (em.round(some_parameters(rows))[0] for em in steps)
    torch.testing.assert_close(first.log_items, second.log_items, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(first.log_proportions, second.log_proportions, rtol=1e-4, atol=1e-5)
    # A user without weight is left out: what such a user has taken is of no consequence.
    other = rows.toarray()
    weights[-1], other[-1] = 0, 1
    fits = [
        MultinomialMixture(components=2, rounds=3).fit(csr_array(one), user_weights=weights)
        for one in (rows, other)
    ]
    np.testing.assert_array_equal(fits[0].log_items_, fits[1].log_items_)


def test_mixtures_differ_and_the_best_starts_come_first(many_planted: PlantedData) -> None:
    data = many_planted.interactions
    model = MultinomialMixture(components=12, mixtures=2, rounds=9).fit(data, device="cpu")
    one, other = np.exp(model.embed(data.histories()).reshape(-1, 2, 12)).argmax(axis=2).T
    pairs = np.zeros((12, 12))
    np.add.at(pairs, (one, other), 1)
    assert pairs.max(axis=1).sum() < 0.95 * len(one)
    assert model.start_likelihoods_[0] >= model.start_likelihoods_[1]
    # More starts: the best of them is at least as good. The first are the same.
    more = MultinomialMixture(components=12, mixtures=2, rounds=9, starts=4).fit(data, device="cpu")
    assert (more.start_likelihoods_ >= model.start_likelihoods_ - 1e-5).all()
    again = MultinomialMixture(components=12, mixtures=2, rounds=9).fit(data, device="cpu")
    np.testing.assert_array_equal(again.log_items_, model.log_items_)


def test_about_as_many_components_are_chosen_as_were_planted(many_planted: PlantedData) -> None:
    among = (2, 4, 6, 8, 12, 24)
    choice = choose_components(many_planted.interactions, among, device="cpu")
    assert choice.components == 6
    assert {1, *among} == set(choice.log_likelihoods)
    assert choice.log_likelihoods[6] > choice.log_likelihoods[2] + 10 * choice.standard_errors[2]
    # Without structure a single component is as good as any.
    rng = np.random.default_rng(0)
    random = csr_array((rng.random((600, 40)) < 0.2).astype(np.float32))
    assert choose_components(random, (1, 4, 8), device="cpu").components == 1


def test_weights_count_in_the_choice_of_components(planted_split: Split) -> None:
    rows = planted_split.train.histories()
    weights = np.random.default_rng(0).random(rows.shape[0]).astype(np.float32) ** 4
    choice = choose_components(rows, (3,), user_weights=weights, rounds=5, starts=2, device="cpu")
    sample = Sample.draw(rows, weights, n_users=sample_size(3), evidence=20.0, seed=0)
    n_entries = np.asarray(sample.held_out.sum(axis=1)).ravel()
    means, sums = {}, {}
    for size in (1, 3):
        starts = sample.try_starts(size, 2, 5, CPU, Bar())
        sums[size] = starts.user_sums[:, starts.log_likelihoods.argmax()]
        means[size] = np.sum(weights * sums[size]) / np.sum(weights * n_entries)
        assert choice.log_likelihoods[size] == pytest.approx(means[size], rel=1e-6)
        assert means[size] == pytest.approx(starts.log_likelihoods.max(), rel=1e-5)
        assert abs(means[size] - sums[size].sum() / n_entries.sum()) > 1e-3
    # The error of a ratio of weighted sums: users count by the squares of their weights.
    residuals = sums[1] - sums[3] - (means[1] - means[3]) * n_entries
    error = np.sqrt(np.sum(weights**2 * residuals**2)) / np.sum(weights * n_entries)
    assert max(choice.standard_errors.values()) == pytest.approx(error, rel=1e-5)
    assert min(choice.standard_errors.values()) == 0


def test_impossible_choices_of_components_are_refused() -> None:
    rows = csr_array(np.eye(4, dtype=np.float32))
    with pytest.raises(ConfigError, match="among: expected at least one number of components"):
        choose_components(rows, ())
    with pytest.raises(ConfigError, match="share: expected a number from 0 to 1, found 85"):
        choose_components(rows, (2,), share=85)
    with pytest.raises(ConfigError, match=r"among\[1\]: expected a whole number"):
        choose_components(rows, (2, 0))


class Killed(BaseException):
    """Stands for a kill: nothing in the code catches it."""


def test_an_interrupted_fit_ends_as_an_unbroken_one(
    planted_split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fit(**more: object) -> MultinomialMixture:
        return MultinomialMixture(components=3, mixtures=2, rounds=12).fit(
            planted_split.train, device="cpu", **more
        )

    def fit_in(folder: Path, *, resume: bool) -> MultinomialMixture:
        with checkpoint_in(folder, fingerprint={}, resume=resume, seconds_between=0) as context:
            return fit(context=context)

    unbroken, save, rounds = fit(), Checkpoint.save, []
    one_round = EM.round
    monkeypatch.setattr(EM, "round", lambda *what: (rounds.append(1), one_round(*what))[1])
    for kills in (1, 4, 11, 12):
        saved = 0

        def save_and_die(self: Checkpoint, *what: object, kills: int = kills) -> None:
            nonlocal saved
            save(self, *what)  # type: ignore[arg-type]
            saved += 1
            if saved == kills:
                raise Killed

        folder = tmp_path / f"work {kills}"
        with monkeypatch.context() as patch:
            patch.setattr(Checkpoint, "save", save_and_die)
            with pytest.raises(Killed):
                fit_in(folder, resume=False)
        rounds.clear()
        resumed = fit_in(folder, resume=True)
        assert len(rounds) <= 13 - kills  # nothing is done twice
        for name in ("log_items_", "log_proportions_", "start_likelihoods_"):
            np.testing.assert_array_equal(getattr(resumed, name), getattr(unbroken, name))


def test_a_saved_mixture_says_the_same(
    mixture: MultinomialMixture, planted_split: Split, tmp_path: Path
) -> None:
    histories = planted_split.test.history_matrix[:20]
    mixture.save(tmp_path / "mixture")
    loaded = load_model(tmp_path / "mixture", KINDS)
    np.testing.assert_array_equal(loaded.embed(histories), mixture.embed(histories))
    kernels = loca.Kernels(n=3, embedding=loca.clone(mixture))
    inside = loca.Loca(base=loca.EASE(), communities=kernels).fit(planted_split.train)
    inside.save(tmp_path / "inside")
    np.testing.assert_array_equal(
        loca.load(tmp_path / "inside").score(histories), inside.score(histories)
    )


def test_a_file_of_other_sizes_is_refused(mixture: MultinomialMixture) -> None:
    state = state_of(mixture)
    fewer = {
        **state.arrays,
        "log_items": state.arrays["log_items"][:, :6],
        "log_proportions": state.arrays["log_proportions"][:6],
    }
    with pytest.raises(ModelFileError, match="log_proportions: expected 8 communities, found 6"):
        restored(MultinomialMixture, get_params(mixture), ModelState(fewer, state.facts))
    unknown = ModelState(state.arrays, {**state.facts, "n_fitted_items": 61})
    with pytest.raises(ModelFileError, match="n_fitted_items: expected at most 60, found 61"):
        restored(MultinomialMixture, get_params(mixture), unknown)
    with pytest.raises(ModelFileError, match="start_likelihoods"):
        restored(MultinomialMixture, {**get_params(mixture), "mixtures": 4, "components": 2}, state)


def test_new_items_do_not_move_a_membership(
    mixture: MultinomialMixture, planted_split: Split
) -> None:
    rows = planted_split.test.history_matrix[:20].toarray()
    wider = with_items(mixture, 65)
    bought = np.concatenate([rows, np.full((20, 5), 3, np.float32)], axis=1)
    np.testing.assert_allclose(
        wider.embed(csr_array(bought)), mixture.embed(csr_array(rows)), atol=1e-5
    )


def test_unseen_items_alike_users_and_single_entries_give_finite_numbers() -> None:
    for rows in (
        np.eye(6, 9, dtype=np.float32),  # one entry each: nothing can be held out
        np.ones((6, 1), np.float32),
        np.tile(np.eye(1, 9, 2, dtype=np.float32), (6, 1)),  # all alike, and most items unseen
        np.concatenate([np.eye(4, 9), np.zeros((3, 9))]).astype(np.float32) * 1e30,
    ):
        model = MultinomialMixture(components=3, rounds=6).fit(csr_array(rows))
        assert np.isfinite(model.log_items_).all()
        assert np.isfinite(model.log_proportions_).all()
        assert np.isfinite(model.start_likelihoods_).all()
        assert np.isfinite(model.embed(csr_array(rows * np.float32(1e3)))).all()


def test_what_cannot_be_is_refused_in_one_line() -> None:
    rows = csr_array(np.concatenate([np.eye(4, 6), np.zeros((9, 6))]).astype(np.float32))
    line = "components: 5 were requested, there are only 4 users with a history; take fewer"
    with pytest.raises(DataError, match=line):
        MultinomialMixture(components=5).fit(rows)
    with pytest.raises(NotFittedError, match="has not been fitted"):
        MultinomialMixture().embed(rows)
    with pytest.raises(DataError, match="expected 6 items, found 3"):
        MultinomialMixture(components=2, rounds=3).fit(rows).embed(
            csr_array(np.eye(3, dtype=np.float32))
        )


def test_memory_grows_with_users_times_components_and_not_with_users_times_items() -> None:
    model = MultinomialMixture(components=64)
    use = model.memory_bytes(DataSize(138_493, 26_744, 20_000_000, 10**9, device="cpu"))
    assert 500e6 < use.main < 2e9
    assert use.folder == use.main_after == 4 * 26_745 * 64


def test_groups_of_which_a_history_says_little_are_found() -> None:
    rng = np.random.default_rng(0)
    favours = np.where(rng.random((24, 300)) < 0.1, 8.0, 1.0)
    groups = rng.integers(0, 24, 3000)
    # The 20 of the largest log p + Gumbel noise are drawn without replacement.
    drawn = np.argpartition(np.log(favours)[groups] + rng.gumbel(size=(3000, 300)), -20, axis=1)[
        :, -20:
    ]
    rows = csr_array(
        (np.ones(drawn.size, np.float32), drawn.ravel(), np.arange(0, drawn.size + 1, 20)),
        (3000, 300),
    )
    model = MultinomialMixture(components=24).fit(rows, device="cpu")
    found = model.embed(rows).argmax(axis=1)
    together = np.zeros((24, 24))
    np.add.at(together, (found, groups), 1)
    assert together.max(axis=1).sum() / 3000 > 0.75
