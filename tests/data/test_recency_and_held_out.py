"""How much an old item counts, and questions whose histories and targets fit together."""

import numpy as np
import pytest
from event_examples import interactions_of

from loca.data.held_out import HeldOut
from loca.data.recency import Recency
from loca.data.splitting import leave_last_out
from loca.errors import ConfigError, DataError


def test_half_of_the_weight_is_lost_every_half_life():
    np.testing.assert_allclose(Recency(2).weights(np.array([0, 2, 4, 1])), [1, 0.5, 0.25, 2**-0.5], rtol=1e-6)
    np.testing.assert_allclose(Recency.per_position(0.85).weights(np.arange(4)), 0.85 ** np.arange(4), rtol=1e-6)


def test_no_weight_falls_to_zero():
    assert Recency(1).weights(np.array([10_000])).min() > 0


@pytest.mark.parametrize("half_life", [0, -1, float("inf"), float("nan"), "2"])
def test_a_half_life_that_is_no_positive_number_is_refused(half_life):
    with pytest.raises(ConfigError, match="half_life: expected a number above 0"):
        Recency(half_life)


def test_other_mistakes_in_recency_are_refused():
    with pytest.raises(ConfigError, match="expected 'positions' or 'time', found 'days'"):
        Recency(1, "days")
    for decay in (0, 1, 2):
        with pytest.raises(ConfigError, match="decay: expected a number between 0 and 1"):
            Recency.per_position(decay)


def test_recency_reaches_every_history_of_a_split():
    split = leave_last_out(interactions_of([[0, 1, 2, 3], [3, 2, 1]]), test=1, validation=1)
    weighed = split.with_recency(Recency.per_position(0.5))
    assert weighed.test.history_matrix.toarray().tolist() == [[0.25, 0.5, 1, 0], [0, 0, 1, 0.5]]
    assert weighed.validation.history_matrix.toarray().tolist() == [[0.5, 1, 0, 0], [0, 0, 0, 1]]
    assert weighed.train.recency == weighed.train_and_validation.recency == Recency.per_position(0.5)
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
