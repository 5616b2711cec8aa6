"""A benchmark gives out models and sizes; over seeds each user has a mean, and differences are paired."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from examples import compared, evaluation, level, results, swaying, tiny_benchmark

import loca.reproduction.benchmark as benchmark_file
from loca.config.model_factory import build_models
from loca.data.synthetic import PlantedData
from loca.errors import ConfigError
from loca.evaluation.significance import bootstrap_intervals, paired_difference
from loca.models.recommender import get_params
from loca.reproduction.benchmark import SMALL, SeedMeans, Sizes


def test_models_are_made_once_for_each_seed_and_given_out_as_copies(
    planted: PlantedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(
        benchmark_file, "build_models", lambda *asked: (seeds.append(asked[-1]), build_models(*asked))[1]
    )
    bench = tiny_benchmark(planted)
    first, again, other = bench.model("mult-vae"), bench.model("mult-vae"), bench.model("mult-vae", 1)
    bench.model("loca-vae")
    assert seeds == [0, 1]
    assert first is not again
    assert get_params(first) == get_params(again)
    assert (get_params(first)["latent"], get_params(first)["seed"], get_params(other)["seed"]) == (8, 0, 1)
    first.latent = 99  # type: ignore[attr-defined]
    assert get_params(bench.model("mult-vae"))["latent"] == 8
    inside, next_inside = bench.model("loca-vae"), bench.model("loca-vae")
    assert get_params(inside)["base"] is not get_params(next_inside)["base"]


@pytest.mark.parametrize(
    ("whole", "expected"),
    [
        (300, (1, 10, 50, 100, 200, 300)),
        (100, (1, 10, 50, 100)),
        (500, (1, 10, 50, 100, 200, 300, 500)),
        (50, (1, 2, 5, 10, 20, 50)),
        (12, (1, 2, 5, 10, 12)),
        (2, (1, 2)),
        (1, (1,)),
    ],
)
def test_counts_are_the_paper_s_or_fewer_below_the_whole_and_the_whole(whole: int, expected: tuple[int, ...]) -> None:
    assert Sizes().counts(whole) == expected


@pytest.mark.parametrize(
    ("whole", "expected"), [(300, (100, 200, 300)), (100, (33, 66, 100)), (6, (2, 4, 6)), (2, (1, 2)), (1, (1,))]
)
def test_thirds_are_the_paper_s_steps_at_300_and_rise_at_any_size(whole: int, expected: tuple[int, ...]) -> None:
    assert Sizes().thirds(whole) == expected


@pytest.mark.parametrize(
    ("local_models", "expected"),
    [(300, (1, 2, 5, 10, 15, 20, 50, 100, 300)), (20, (1, 2, 5, 10, 15, 20)), (12, (1, 2, 5, 10)), (1, (1,))],
)
def test_timed_are_the_steps_of_table_5_up_to_the_local_models(local_models: int, expected: tuple[int, ...]) -> None:
    assert Sizes(local_models=local_models).timed() == expected


@pytest.mark.parametrize("name", ["local_models", "sweep_models", "pilot_models", "loop_models", "seeds"])
@pytest.mark.parametrize("wrong", [0, -3])
def test_a_size_below_one_is_refused_in_one_line(name: str, wrong: int) -> None:
    sizes: dict[str, Any] = {name: wrong}
    with pytest.raises(ConfigError, match=rf"^{name}: expected a whole number ≥ 1, found {wrong}$"):
        Sizes(**sizes)


@pytest.mark.parametrize("wrong", [0, -1.5, float("nan")])
def test_no_seconds_for_auto_are_refused_in_one_line(wrong: float) -> None:
    with pytest.raises(ConfigError, match=rf"^auto_seconds: expected a number above 0, found {wrong}$"):
        Sizes(auto_seconds=wrong)
    assert Sizes(auto_seconds=0.5).auto_seconds == 0.5


def test_the_built_in_data_has_a_small_scale_with_as_many_seeds() -> None:
    whole = Sizes()
    assert SMALL.seeds == whole.seeds == 3
    for name in ("local_models", "sweep_models", "pilot_models", "loop_models", "auto_seconds"):
        assert getattr(SMALL, name) < getattr(whole, name)


def two_seeds() -> SeedMeans:
    """Three users: 0.1, 0.2, 0.6 with one seed, 0.3, 0.2, 0.1 with the other."""
    return SeedMeans((evaluation([0.1, 0.2, 0.6]), evaluation([0.3, 0.2, 0.1], seed=1)))


def test_each_user_has_the_mean_over_the_seeds() -> None:
    assert two_seeds().of_users() == pytest.approx([0.2, 0.2, 0.35])
    assert two_seeds().of_users("recall@100") == pytest.approx([0.4, 0.4, 0.7])


def test_the_mean_is_that_of_all_users_and_seeds() -> None:
    assert two_seeds().mean() == pytest.approx(0.25)
    assert two_seeds().mean("ndcg@50") == pytest.approx(0.125)


def test_each_seed_has_the_mean_over_the_users_and_the_spread_is_over_them() -> None:
    assert two_seeds().of_seeds() == pytest.approx((0.3, 0.2))
    # Divided by one less than the seeds: √(2 · 0.05² / 1).
    assert two_seeds().text() == f"0.2500 ± {0.1 / np.sqrt(2):.4f}"
    three = SeedMeans((*two_seeds().evaluations, evaluation([0.4, 0.4, 0.4], seed=2)))
    assert three.text() == "0.3000 ± 0.1000"


def test_one_seed_has_no_spread() -> None:
    assert SeedMeans((evaluation([0.1, 0.2, 0.6]),)).text() == "0.3000"


def test_the_interval_is_over_users_not_over_seeds() -> None:
    # The seeds are far apart, but every user has the same mean over them.
    alike = SeedMeans((evaluation(level(0.1)), evaluation(level(0.5), seed=1)))
    assert alike.interval() == pytest.approx((0.3, 0.3))
    # The seeds agree, but the users do not.
    apart = SeedMeans((evaluation(swaying(0.3)), evaluation(swaying(0.3), seed=1)))
    low, high = apart.interval()
    assert 0.26 < low < 0.3 < high < 0.34
    assert (low, high) == pytest.approx(tuple(bootstrap_intervals(swaying(0.3)[:, None], seed=0)[0]))


def test_differences_are_paired_user_by_user() -> None:
    other = SeedMeans((evaluation([0.1, 0.1, 0.25]),))
    found = two_seeds().minus(other)
    assert (found.mean, found.user_count) == (pytest.approx(0.1), 3)
    assert (found.low, found.high) == pytest.approx((0.1, 0.1))
    assert found.relative == pytest.approx(0.1 / 0.15)
    assert found == paired_difference(two_seeds().of_users(), other.of_users(), seed=0)


def test_a_difference_that_every_user_has_is_sure_whatever_the_users_themselves_do() -> None:
    better, worse = SeedMeans((evaluation(swaying(0.31)),)), SeedMeans((evaluation(swaying(0.3)),))
    found = better.minus(worse)
    assert (found.low, found.high) == pytest.approx((0.01, 0.01))
    assert max(found.t_p, found.wilcoxon_p) < 1e-6
    assert better.interval()[0] < worse.mean()


def test_computed_cells_become_means_of_all_or_of_their_first_models() -> None:
    measured = [
        compared([0.4, 0.6], by_count={1: [0.1, 0.1], 3: [0.4, 0.6]}),
        compared([0.6, 0.8], seed=1, by_count={1: [0.3, 0.3], 3: [0.6, 0.8]}),
    ]
    found = results({"loca-vae h_T 0.1": measured})
    whole, first = found.means("loca-vae", "h_T 0.1"), found.means("loca-vae", "h_T 0.1", 1)
    assert whole is not None
    assert first is not None
    assert (whole.mean(), first.mean()) == pytest.approx((0.6, 0.2))
    assert found.means("loca-vae") is None
    assert found.means("ease", count=3) is None
