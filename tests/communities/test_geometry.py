"""Distances, kernels and bandwidths against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loca.communities import geometry
from loca.communities.geometry import (
    KERNELS,
    Quantile,
    angular_distances,
    check_bandwidth,
    cosine_within,
    resolve_bandwidth,
    resolve_bandwidths,
    unit_rows,
)
from loca.errors import ConfigError, DataError

# Arccosines of 32 bits are right to 4 units in the last place of π, and the cosine to one.
ROUNDING = 1e-5


def test_same_direction_is_0_a_right_angle_1_and_opposite_2() -> None:
    rows = unit_rows(np.array([[1.0, 0.0], [5.0, 0.0], [0.0, 2.0], [-3.0, 0.0], [1.0, 1.0]]))
    distances = angular_distances(rows, rows[:1])[:, 0]
    np.testing.assert_allclose(distances, [0, 0, 1, 2, 0.5], atol=ROUNDING)


def test_rounding_past_a_cosine_of_1_is_no_nan() -> None:
    rows = unit_rows(np.random.default_rng(0).normal(size=(500, 200)))
    assert np.isfinite(angular_distances(rows, rows)).all()


def test_a_zero_embedding_is_at_a_right_angle_to_everybody() -> None:
    rows = unit_rows(np.array([[0.0, 0.0], [1.0, 0.0]]))
    np.testing.assert_allclose(angular_distances(rows[:1], rows[1:]), 1.0, atol=ROUNDING)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("epanechnikov", [0.75, 0.75 * 0.75, 0.0, 0.0]),
        ("paper", [1.0, 0.84, 0.0, 0.0]),
        ("uniform", [1.0, 1.0, 0.0, 0.0]),
        ("triangular", [1.0, 0.5, 0.0, 0.0]),
    ],
)
def test_kernels_at_distances_0_half_the_radius_the_radius_and_beyond(
    kernel: str, expected: list[float]
) -> None:
    weights = KERNELS[kernel](np.array([0.0, 0.4, 0.8, 1.7], np.float32), 0.8)
    np.testing.assert_allclose(weights, expected, atol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
@given(distance=st.floats(0, 2), radius=st.floats(0.01, 5))
def test_a_kernel_is_never_negative_and_zero_from_the_radius_on(
    kernel: str, distance: float, radius: float
) -> None:
    weight = float(KERNELS[kernel](np.array([distance], np.float32), radius)[0])
    assert weight >= 0
    if np.float32(distance) >= np.float32(radius):
        assert weight == 0


@given(radius=st.floats(0.01, 2))
def test_a_distance_is_below_the_radius_where_the_cosine_is_above_its_own(
    radius: float,
) -> None:
    assert 2 / math.pi * math.acos(max(-1.0, cosine_within(radius))) == pytest.approx(
        radius, abs=1e-6
    )
    assert cosine_within(2.5) < -1


def test_a_quantile_is_read_off_all_pairs_of_few_users() -> None:
    angles = np.deg2rad([0, 90, 135])
    rows = unit_rows(np.column_stack([np.cos(angles), np.sin(angles)]))
    # The pairs are at 90, 135 and 45 degrees: distances 1, 1.5 and 0.5.
    assert resolve_bandwidth(Quantile(0.5), rows, 0) == pytest.approx(1.0, abs=ROUNDING)
    assert resolve_bandwidth(Quantile(1.0, times=2.0), rows, 0) == pytest.approx(3.0, abs=ROUNDING)
    assert resolve_bandwidth(0.3, rows, 0) == 0.3


def test_a_sample_of_pairs_comes_near_the_quantile_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = unit_rows(np.random.default_rng(1).normal(size=(300, 5)))
    exact = resolve_bandwidth(Quantile(0.3), rows, 0)
    monkeypatch.setattr(geometry, "MOST_PAIRS", 20_000)
    sampled = resolve_bandwidth(Quantile(0.3), rows, 0)
    assert sampled != exact
    assert sampled == pytest.approx(exact, rel=0.02)
    assert resolve_bandwidth(Quantile(0.3), rows, 0) == sampled


def test_bandwidths_are_resolved_together_as_each_by_itself() -> None:
    rows = unit_rows(np.random.default_rng(1).normal(size=(50, 5)))
    bandwidths = [Quantile(0.3), 0.7, Quantile(0.9, times=1.3)]
    alone = [resolve_bandwidth(bandwidth, rows, 0) for bandwidth in bandwidths]
    assert resolve_bandwidths(bandwidths, rows, 0) == alone
    # Numbers need no pairs of users.
    assert resolve_bandwidths([0.3, 1], rows[:1], 0) == [0.3, 1.0]


def test_quantiles_are_read_and_written_as_text() -> None:
    assert Quantile.parse("q0.5") == Quantile(0.5)
    assert Quantile.parse(" 1.3*q0.9 ") == Quantile(0.9, times=1.3)
    assert [str(Quantile.parse(text)) for text in ("q0.5", "1.3*q0.9")] == ["q0.5", "1.3*q0.9"]
    for text in ("0.5", "0.5q", "q", "qq", "1.3q0.9", "q1.2.3"):
        with pytest.raises(ConfigError, match=r"quantile: expected text such as q0\.9"):
            Quantile.parse(text)


@pytest.mark.parametrize("level", [0.0, -1.0, 1.1, float("nan")])
def test_a_level_outside_0_to_1_is_refused(level: float) -> None:
    with pytest.raises(ConfigError, match="expected a level above 0 and up to 1"):
        Quantile(level)


@pytest.mark.parametrize("bandwidth", [0, -1.0, float("nan"), "wide", True])
def test_a_bandwidth_that_is_not_above_zero_is_refused(bandwidth: object) -> None:
    with pytest.raises(
        ConfigError, match="train_bandwidth: expected a number above 0 or a quantile"
    ):
        check_bandwidth("train_bandwidth", bandwidth)  # type: ignore[arg-type]


def test_nan_in_embeddings_is_refused_with_its_row() -> None:
    rows = np.ones((4, 2))
    rows[2, 1] = np.nan
    with pytest.raises(DataError, match="1 of 4 rows hold NaN or infinity, the first is row 2"):
        unit_rows(rows)
    with pytest.raises(DataError, match="expected users × dimensions"):
        unit_rows(np.ones(3))


def test_equal_embeddings_have_no_quantile_to_speak_of() -> None:
    with pytest.raises(DataError, match="that quantile of the distances is 0"):
        resolve_bandwidth(Quantile(0.5), np.ones((5, 1), np.float32), 0)
    with pytest.raises(DataError, match="expected at least 2 users, found 1"):
        resolve_bandwidth(Quantile(0.5), np.ones((1, 1), np.float32), 0)
