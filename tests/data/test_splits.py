"""Splits partition the data, keep its order, and say what happened to whom."""

from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest
from event_examples import any_interactions, histories_of, interactions_of, item_lists
from hypothesis import assume, given
from hypothesis import strategies as st

from loca.data.readers import read_interactions
from loca.data.recency import Recency
from loca.data.splits import (
    hold_last,
    hold_out,
    hold_out_users,
    leave_last_out,
    split_at_time,
    split_from,
)
from loca.errors import ConfigError, DataError


@given(any_interactions(), st.integers(1, 4), st.integers(0, 4), st.integers(1, 3))
def test_the_last_of_each_user_are_held_out_and_nothing_is_lost(
    interactions, test, validation, keep
):
    given_lists = item_lists(interactions)
    longest = max(len(one) for one in given_lists)
    assume(max(test, validation, keep + 1) <= longest)
    assume(validation == 0 or longest > keep + test)
    split = leave_last_out(interactions, test=test, validation=validation, keep=keep)
    train, known = histories_of(split.train), histories_of(split.train_and_validation)
    targets, histories = histories_of(split.test.targets), histories_of(split.test.histories)
    asked = histories_of(split.validation.targets) if split.validation else {}
    for user, items in histories_of(interactions).items():
        # Worked out by hand: serve test from the end, then validation, and never touch the first `keep`.
        spare = items[keep:]
        last = spare[max(len(spare) - test, 0) :]
        before = spare[: len(spare) - len(last)]
        middle = before[max(len(before) - validation, 0) :] if validation else []
        assert targets.get(user, []) == last
        assert asked.get(user, []) == middle
        assert train[user] == items[: len(items) - len(last) - len(middle)]
        assert known[user] == train[user] + middle
        assert (user in targets) == bool(last)
        if last:
            assert histories[user] == known[user]
        if middle:
            assert histories_of(split.validation.histories)[user] == train[user]
    assert split.test.n_items == split.train.n_items == interactions.n_items
    assert len(split.train) + sum(map(len, asked.values())) + sum(
        map(len, targets.values())
    ) == len(interactions)


def test_the_report_counts_what_happened_to_whom():
    interactions = interactions_of([[0, 1, 2, 3, 4], [0, 1, 2], [0], [0, 1, 0, 5]])
    split = leave_last_out(interactions, test=2, validation=1)
    assert split.report == (
        "train: 5 interactions of 4 users",
        "validation: the last 1 of each user, 2 interactions of 2 users",
        "validation: none from 2 users with too few interactions, who stay in train",
        "validation: 1 of the targets with items that nobody has in training, so that no model can know them",
        "test: the last 2 of each user, 6 interactions of 3 users",
        "test: none from 1 user with too few interactions, who stay in train",
        "test: 1 of the targets already in their user's history, so that no list can name them",
        "test: 3 of the targets with items that nobody has in training, so that no model can know them",
    )
    short = leave_last_out(interactions, test=3)
    assert "test: fewer than 3 from 1 user with too few interactions" in short.report
    assert short.validation is None
    assert histories_of(short.train_and_validation) == histories_of(short.train)


def test_repeated_targets_are_counted_each():
    split = leave_last_out(interactions_of([[0, 1, 0, 0, 1], [1, 0, 2]]), test=3)
    assert item_lists(split.test.targets) == [[0, 0, 1], [0, 2]]
    assert (
        "test: 3 of the targets already in their user's history, so that no list can name them"
        in split.report
    )


def test_holding_the_last_leaves_no_test():
    rest, held_out, report = hold_last(interactions_of([[0, 1, 2], [2]]), 1)
    assert histories_of(rest) == {"u0": ["i0", "i1"], "u1": ["i2"]}
    assert histories_of(held_out.targets) == {"u0": ["i2"]}
    assert histories_of(held_out.histories) == {"u0": ["i0", "i1"]}
    assert report[0] == "train: 3 interactions of 2 users"
    assert report[1] == "validation: the last 1 of each user, 1 interaction of 1 user"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"test": 4}, "test=4 is larger than every history: the longest has 3 interactions"),
        (
            {"test": 1, "validation": 4},
            "validation=4 is larger than every history: the longest has 3 interactions",
        ),
        (
            {"test": 2, "validation": 1},
            "nothing is left for validation: test=2 and keep=1 come first",
        ),
        (
            {"test": 1, "keep": 3},
            "nothing can be held out: keep=3, and the longest history has 3 interactions",
        ),
    ],
)
def test_more_held_out_than_there_is_is_refused_in_one_line(options, problem):
    with pytest.raises(DataError, match=problem) as refusal:
        leave_last_out(interactions_of([[0, 1, 2], [0]]), **options)
    assert "\n" not in str(refusal.value)


def test_counts_that_are_no_counts_are_refused():
    data = interactions_of([[0, 1, 2]])
    for options in ({"test": 0}, {"test": 1.5}, {"test": True}, {"validation": -1}, {"keep": 0}):
        with pytest.raises(ConfigError, match="expected a whole number of at least"):
            leave_last_out(data, **options)
    with pytest.raises(
        ConfigError, match="validation: expected a whole number of at least 1, found 0"
    ):
        hold_last(data, 0)
    with pytest.raises(DataError, match="validation=5 is larger than every history"):
        hold_last(data, 5)


@given(any_interactions(smallest=2), st.integers(0, 3), st.floats(0.05, 0.95), st.integers(0, 5))
def test_held_out_users_are_never_seen_in_training(interactions, validation_users, fold_in, seed):
    assume(interactions.n_users > 1 + validation_users)
    split = hold_out_users(
        interactions, test_users=1, validation_users=validation_users, fold_in=fold_in, seed=seed
    )
    whole = histories_of(interactions)
    parts = [split.test] + ([split.validation] if validation_users else [])
    seen = histories_of(split.train)
    for part in parts:
        histories, targets = histories_of(part.histories), histories_of(part.targets)
        for user in histories:
            assert user not in seen
            assert histories[user] + targets[user] == whole[user]
            assert len(histories[user]) == min(
                max(int(np.ceil(fold_in * len(whole[user]) - 1e-9)), 1), len(whole[user]) - 1
            )
            seen[user] = whole[user]
    assert seen == whole
    assert split.test.n_users == 1
    assert (split.validation is None) == (validation_users == 0)
    known = {
        **histories_of(split.train),
        **({} if not validation_users else dict.fromkeys(histories_of(parts[1].targets))),
    }
    assert histories_of(split.train_and_validation) == {
        user: whole[user] for user in whole if user in known
    }


def test_four_fifths_of_a_history_of_five_are_four():
    split = hold_out_users(
        interactions_of([[0, 1, 2, 3, 4]] * 10), test_users=0.2, validation_users=0.1
    )
    assert item_lists(split.test.histories) == [[0, 1, 2, 3]] * 2
    assert item_lists(split.test.targets) == [[4]] * 2
    assert split.validation.n_users == 1
    assert split.report[0] == "train: 35 interactions of 7 users"
    assert split.report[1].startswith(
        "validation: 1 user never seen in training; the oldest 80% of each history is known"
    )


def test_users_are_drawn_by_the_seed_among_those_with_two_interactions():
    data = interactions_of([[0, 1]] * 30 + [[0]] * 30)
    chosen = {
        tuple(hold_out_users(data, test_users=5, seed=seed).test.histories.users.ids(range(5)))
        for seed in (1, 1, 2)
    }
    assert len(chosen) == 2
    assert all(int(user[1:]) < 30 for users in chosen for user in users)


def test_impossible_numbers_of_users_are_refused():
    data = interactions_of([[0, 1], [0, 1], [0]])
    for options, problem in (
        (
            {"test_users": 3},
            "cannot hold out 3 users and train on others: there are 3 users, 2 of them",
        ),
        ({"test_users": 2, "validation_users": 1}, "cannot hold out 3 users"),
    ):
        with pytest.raises(DataError, match=problem):
            hold_out_users(data, **options)
    for options, problem in (
        ({"test_users": 0}, "test_users: 0 of 3 users is nobody"),
        ({"test_users": 0.01}, "test_users: 0.01 of 3 users is nobody"),
        (
            {"test_users": 1, "validation_users": 0.01},
            "validation_users: 0.01 of 3 users is nobody",
        ),
        ({"test_users": 1.5}, "expected a number of users, or a share below 1, found 1.5"),
        ({"test_users": -1}, "expected a number of users"),
        ({"test_users": 1, "fold_in": 1}, "fold_in: expected a share between 0 and 1, found 1"),
    ):
        with pytest.raises(ConfigError, match=problem):
            hold_out_users(data, **options)


@given(any_interactions(), st.integers(-6, 6), st.integers(0, 3))
def test_a_moment_parts_what_is_known_from_what_is_asked(interactions, moment, validation_length):
    start = moment - validation_length
    whole = {
        user: list(zip(items, times, strict=True))
        for (user, items), times in zip(
            histories_of(interactions).items(),
            np.split(interactions.times, interactions.offsets[1:-1]),
            strict=True,
        )
    }

    def expected(known, asked):
        return {
            user: ([i for i, t in events if known(t)], [i for i, t in events if asked(t)])
            for user, events in whole.items()
            if any(known(t) for _, t in events) and any(asked(t) for _, t in events)
        }

    test = expected(lambda t: t < moment, lambda t: t >= moment)
    validation = expected(lambda t: t < start, lambda t: start <= t < moment)
    options = {"test_from": moment, "validation_from": start if validation_length else None}
    if not test or (validation_length and not validation):
        with pytest.raises(DataError, match="no user has interactions both before"):
            split_at_time(interactions, **options)
        return
    split = split_at_time(interactions, **options)

    def found(part):
        histories, targets = histories_of(part.histories), histories_of(part.targets)
        return {user: (histories[user], targets[user]) for user in histories}

    assert found(split.test) == test
    assert validation_length == 0 or found(split.validation) == validation
    before = start if validation_length else moment
    for part, end in ((split.train, before), (split.train_and_validation, moment)):
        kept = {user: [i for i, t in events if t < end] for user, events in whole.items()}
        assert histories_of(part) == {user: items for user, items in kept.items() if items}


def test_users_without_a_past_are_left_out_and_counted():
    split = split_at_time(
        interactions_of([[0, 1], [1, 2], [0]], [[1, 9], [8, 9], [1]]), test_from=5
    )
    assert histories_of(split.test.targets) == {"u0": ["i1"]}
    assert histories_of(split.train) == {"u0": ["i0"], "u2": ["i0"]}
    assert split.report == (
        "train: 2 interactions of 2 users",
        "test: from 5 on, 1 interaction of 1 user with a history",
        "test: 1 user with nothing before 5 left out (2 interactions)",
        "test: 1 of the targets with items that nobody has in training, so that no model can know them",
    )


def test_a_date_is_a_moment():
    noon = int(datetime(2014, 1, 2, 12, tzinfo=UTC).timestamp())
    data = interactions_of([[0, 1]], [[noon - 1, noon]])
    for moment in ("2014-01-02T12:00", "2014-01-02T13:00+01:00", noon):
        assert item_lists(split_at_time(data, test_from=moment).test.targets) == [[1]]


def test_impossible_moments_are_refused():
    data = interactions_of([[0, 1]], [[1, 2]])
    with pytest.raises(DataError, match="needs a time column"):
        split_at_time(interactions_of([[0]]), test_from=1)
    with pytest.raises(DataError, match=r"test_from: these times are bare numbers \(1 to 2\)"):
        split_at_time(data, test_from="2014-01-02")
    dated = interactions_of([[0, 1]], [[1_400_000_000, 1_400_000_001]])
    with pytest.raises(ConfigError, match="expected a number or an ISO date, found 'noon'"):
        split_at_time(dated, test_from="noon")
    with pytest.raises(
        ConfigError, match=r"validation_from \(3\) must not lie after test_from \(2\)"
    ):
        split_at_time(data, test_from=2, validation_from=3)
    with pytest.raises(DataError, match="before 9 and from it on; the times run from 1 to 2"):
        split_at_time(data, test_from=9)
    with pytest.raises(DataError, match="there are no times"):
        split_at_time(interactions_of([[]], [[]]), test_from=9)


# -- Parts that are separate already -----------------------------------------------------------------------------------


def events(rows, **more):
    """Interactions of (user, item, time) rows."""
    users, items, times = zip(*rows, strict=True)
    return read_interactions(pl.DataFrame({"user": users, "item": items, "time": times, **more}))


@given(any_interactions(smallest=3), st.integers(1, 2))
def test_a_split_put_together_from_its_parts_is_the_same_split(interactions, test):
    distinct = interactions.distinct()
    assume(distinct.counts().max() > test + 1)
    whole = leave_last_out(distinct, test=test, validation=1)
    again = split_from(whole.train, whole.test.targets, validation=whole.validation.targets)
    for name in ("validation", "test"):
        ours, theirs = getattr(again, name), getattr(whole, name)
        assert histories_of(ours.targets) == histories_of(theirs.targets)
        assert histories_of(ours.histories) == histories_of(theirs.histories)
    assert histories_of(again.train_and_validation) == histories_of(whole.train_and_validation)
    held = split_from(whole.train_and_validation, whole.test.targets, validation=1)
    assert histories_of(held.train) == histories_of(whole.train)


def test_parts_are_matched_by_id_and_what_does_not_match_is_counted():
    train = events([("a", 1, 1), ("a", 2, 2), ("b", 2, 1), ("c", 3, 1)])
    test = events([("b", 1, 5), ("a", 9, 6), ("new", 1, 7), ("new", 2, 8)])
    split = split_from(train, test)
    assert split.test.n_items == 4  # a list of 1, 2, 3 and 9 can name what nobody has in train
    assert histories_of(split.test.targets) == {"a": [9], "b": [1]}
    assert histories_of(split.test.histories) == {"a": [1, 2], "b": [2]}
    assert split.report == (
        "train: 4 interactions of 3 users",
        "test: 2 interactions of 2 users",
        "test: 1 user without a history, left out (2 interactions)",
        "test: 1 of the targets with items that nobody has in training, so that no model can know them",
    )


def test_later_items_are_held_out_for_a_model_that_knows_only_its_own():
    known = events([("a", 1, 1), ("a", 2, 2), ("b", 2, 1)])
    later = events([("b", 1, 5), ("a", 9, 6), ("a", 8, 6), ("new", 1, 7), ("a", 1, 9)])
    held_out, report = hold_out(known, later)
    assert held_out.n_items == 2
    assert histories_of(held_out.targets) == {"a": [1], "b": [1]}
    assert report == (
        "test: 2 interactions of 2 users",
        "test: 2 items unknown, left out (2 interactions)",
        "test: 1 user without a history, left out (1 interaction)",
        "test: 1 of the targets already in their user's history, so that no list can name them",
    )


def test_more_history_brings_new_users_and_newer_items_by_time():
    known = events([("a", 1, 1), ("a", 2, 5), ("b", 2, 1)]).with_recency(Recency(2))
    later = events([("new", 1, 9), ("a", 3, 9), ("b", 1, 9)])
    held_out, _ = hold_out(
        known, later, histories=events([("new", 2, 1), ("a", 7, 2), ("b", 1, 0)])
    )
    assert histories_of(held_out.histories) == {
        "b": [1, 2],
        "new": [2],
    }  # 7 and 3 are no items of the model
    assert histories_of(held_out.targets) == {"b": [1], "new": [1]}
    assert held_out.histories.recency == Recency(2)


def test_numbers_and_text_that_say_the_same_are_one_id():
    train, test = events([(1, 10, 1), (2, 11, 1)]), events([("1", "11", 2), ("x", "10", 3)])
    split = split_from(train, test)
    assert histories_of(split.test.targets) == {1: ["11"]}
    held_out, _ = hold_out(train, test)
    assert histories_of(held_out.targets) == {1: [11]}


def test_parts_with_nobody_in_common_are_refused():
    with pytest.raises(
        DataError, match="test: nothing is left to find; 1 of 1 user have no history, 0 of 1"
    ):
        split_from(events([("a", 1, 1)]), events([("b", 1, 1)]))
    with pytest.raises(DataError, match="1 of 1 interaction have an unknown item"):
        hold_out(events([("a", 1, 1)]), events([("a", 2, 1)]))


def test_titles_of_all_parts_are_there():
    train = events([("a", 1, 1), ("a", 2, 2)]).with_titles({1: "Heat"})
    split = split_from(train, events([("a", 3, 3)]).with_titles({3: "Ronin"}))
    assert split.train.items.labels.tolist() == ["Heat", "2", "Ronin"]
