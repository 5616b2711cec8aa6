"""Figures on public data that are known beforehand: EASE with and without the order of histories."""

from __future__ import annotations

from pathlib import Path

import pytest

import loca

pytestmark = pytest.mark.real_data


def ndcg(model: loca.EASE, test: loca.HeldOut) -> float:
    return loca.evaluate(model, test, at=(100,)).means()["ndcg@100"]


def test_ease_on_movielens_1m_with_and_without_decay(real_data: Path) -> None:
    data = loca.read_interactions(
        real_data / "ml-1m" / "ratings-ordered.csv.gz", time="rank", min_user_interactions=10
    )
    split = loca.leave_last_out(data, test=5, validation=5)
    model = loca.EASE(l2=1000.0).fit(split.train)
    assert ndcg(model, split.test) == pytest.approx(0.1873, abs=0.0003)
    decayed = split.test.with_recency(loca.Recency.per_position(0.85))
    assert ndcg(model, decayed) == pytest.approx(0.2783, abs=0.0005)


def test_ease_on_amazon_music_with_ties_in_time_in_the_order_of_the_file(real_data: Path) -> None:
    source = real_data / "amusic" / "amusic.rating"
    data = loca.read_interactions(source, layout="loca-rating", min_user_interactions=10)
    assert (data.n_users, data.n_items, len(data)) == (3951, 11_483, 75_044)
    split = loca.leave_last_out(data, test=5, validation=2)
    assert ndcg(loca.EASE(l2=100.0).fit(split.train), split.test) == pytest.approx(
        0.0825, abs=0.0003
    )
