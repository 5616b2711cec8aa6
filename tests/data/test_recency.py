"""How much an old item counts, and questions whose histories and targets fit together."""

import numpy as np
import pytest
from event_examples import interactions_of

from loca.data.recency import Recency, parse_age
from loca.data.splits import HeldOut, leave_last_out
from loca.errors import ConfigError, DataError


def test_half_of_the_weight_is_lost_every_half_life():
    np.testing.assert_allclose(
        Recency(2).weights(np.array([0, 2, 4, 1])), [1, 0.5, 0.25, 2**-0.5], rtol=1e-6
    )
    np.testing.assert_allclose(
        Recency.per_position(0.85).weights(np.arange(4)), 0.85 ** np.arange(4), rtol=1e-6
    )


def test_the_power_shape_falls_as_one_over_age():
    np.testing.assert_allclose(
        Recency(3, shape="power").weights(np.array([0, 3, 6, 27])),
        [1, 1 / 2, 1 / 3, 1 / 10],
        rtol=1e-6,
    )


def test_all_that_is_above_the_floor_fades_and_the_floor_stays():
    np.testing.assert_allclose(
        Recency(2, floor=0.2).weights(np.array([0, 2, 4, 10_000])), [1, 0.6, 0.4, 0.2], rtol=1e-6
    )
    np.testing.assert_allclose(
        Recency.per_position(0.5, floor=0.1).weights(np.array([0, 1])), [1, 0.55], rtol=1e-6
    )


@pytest.mark.parametrize("unit", ["positions", "time"])
@pytest.mark.parametrize("shape", ["exponential", "power"])
@pytest.mark.parametrize("floor", [0, 0.1, 0.3, 0.999])
def test_weights_begin_at_one_never_rise_with_age_and_never_fall_to_zero(unit, shape, floor):
    weights = Recency(0.7, unit, shape, floor).weights(np.array([0, 0.1, 1, 5, 1e4, 1e15]))
    assert weights.dtype == np.float32
    assert weights[0] == 1
    assert (np.diff(weights) <= 0).all()
    assert weights.min() >= max(np.float32(floor), np.float32(1e-12)) > 0


@pytest.mark.parametrize("half_life", [0, -1, float("inf"), float("nan"), "two"])
def test_a_half_life_that_is_no_positive_number_is_refused(half_life):
    with pytest.raises(ConfigError, match="half_life: expected a number above 0"):
        Recency(half_life)


def test_other_mistakes_in_recency_are_refused():
    with pytest.raises(
        ConfigError,
        match="unknown recency unit 'days'; expected 'positions' or 'time' or 'seconds'",
    ):
        Recency(1, "days")
    with pytest.raises(ConfigError, match="unknown recency shape 'powr'; did you mean 'power'"):
        Recency(1, shape="powr")
    for floor in (-0.1, 1, 2, float("nan"), "0.5", True):
        with pytest.raises(ConfigError, match="recency floor: expected a number from 0 to below 1"):
            Recency(1, floor=floor)
    for decay in (0, 1, 2, None):
        with pytest.raises(ConfigError, match="decay: expected a number between 0 and 1"):
            Recency.per_position(decay)


def test_a_recency_reads_as_a_person_would_say_it():
    assert str(Recency(4)) == "half-life 4 positions"
    assert (
        str(Recency(2_592_000, "time", "power", 0.05))
        == "half-life 2,592,000 steps of time, power, floor 0.05"
    )
    assert str(Recency("30d", shape="power")) == "half-life 30 days, power"
    assert str(Recency("90min")) == "half-life 1.5 hours"


def test_an_age_is_positions_or_a_time_in_seconds():
    assert parse_age(" 2.5 ") == (2.5, "positions")
    assert [parse_age(text) for text in ("90s", "2min", "1H", ".5d", "1 w", "1y")] == [
        (seconds, "seconds") for seconds in (90, 120, 3600, 43_200, 604_800, 31_557_600)
    ]
    assert parse_age("5steps") == (5, "time")
    assert [
        parse_age(text) for text in ("", ".", "d", "1.2.3", "-1", "1e3", "nan", "3 days", "٣")
    ] == [None] * 9


def test_recency_reaches_every_history_of_a_split():
    split = leave_last_out(interactions_of([[0, 1, 2, 3], [3, 2, 1]]), test=1, validation=1)
    weighed = split.with_recency(Recency.per_position(0.5))
    assert weighed.test.history_matrix.toarray().tolist() == [[0.25, 0.5, 1, 0], [0, 0, 1, 0.5]]
    assert weighed.validation.history_matrix.toarray().tolist() == [[0.5, 1, 0, 0], [0, 0, 0, 1]]
    assert (
        weighed.train.recency == weighed.train_and_validation.recency == Recency.per_position(0.5)
    )
    assert weighed.test.target_matrix.toarray().tolist() == [[0, 0, 0, 1], [0, 1, 0, 0]]
    assert leave_last_out(interactions_of([[0, 1]]), test=1).with_recency(None).validation is None
    given = interactions_of([[0, 1, 2]]).with_recency(Recency.per_position(0.5))
    assert leave_last_out(given, test=1).test.history_matrix.toarray().tolist() == [[0.5, 1, 0]]


def test_questions_that_do_not_fit_their_answers_are_refused():
    histories, targets = interactions_of([[0], [1]]), interactions_of([[1], [0]])
    assert (HeldOut(histories, targets).n_users, HeldOut(histories, targets).n_items) == (2, 2)
    with pytest.raises(DataError, match="the same users and items"):
        HeldOut(histories, interactions_of([[1]]))
    with pytest.raises(DataError, match="the same users in the same order"):
        HeldOut(histories, targets.of_users(np.array([1, 0])))
    with pytest.raises(DataError, match="no item is held out"):
        HeldOut(histories, interactions_of([[], []], n_items=2))
