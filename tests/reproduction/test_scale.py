"""The scale gives the steps of the paper's figures up to its own size, and refuses what is no size."""

from __future__ import annotations

from typing import Any

import pytest

from loca.errors import ConfigError
from loca.reproduction.benchmark import SMALL, Sizes


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
