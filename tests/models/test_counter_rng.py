"""Random numbers by counting: their distribution, their independence of order, and of each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from loca.models.counter_rng import fill_normal, normal_at, streams_at, uniform_at
from loca.random_streams import derive_seed

PLACES = torch.arange(200_000)


def stream(number: int) -> torch.Tensor:
    return torch.tensor(derive_seed(number, "test of draws"))


@pytest.mark.parametrize("number", range(5))
def test_the_numbers_have_the_distribution_they_say(number: int) -> None:
    assert stats.kstest(uniform_at(stream(number), PLACES).numpy(), "uniform").pvalue > 0.001
    assert stats.kstest(normal_at(stream(number), PLACES).numpy(), "norm").pvalue > 0.001


def test_splitmix64_gives_the_published_numbers() -> None:
    # The first outputs of the reference program for the seed 1234567; the upper 24 bits are what a uniform shows.
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    found = uniform_at(torch.tensor(1234567), torch.arange(3))
    np.testing.assert_array_equal(
        found.numpy(), [np.float32(one >> 40) * np.float32(2.0**-24) for one in published]
    )


def test_uniform_numbers_are_from_0_to_below_1() -> None:
    numbers = uniform_at(stream(1), PLACES)
    assert float(numbers.min()) >= 0
    assert float(numbers.max()) < 1


def test_a_number_depends_on_its_place_alone_not_on_what_is_drawn_with_it() -> None:
    whole = normal_at(stream(3), PLACES[:1000])
    torch.testing.assert_close(
        normal_at(stream(3), PLACES[:1000].flip(0)).flip(0), whole, rtol=0, atol=0
    )
    torch.testing.assert_close(
        normal_at(stream(3), torch.tensor([7, 500])), whole[[7, 500]], rtol=0, atol=0
    )


def test_streams_and_steps_share_nothing() -> None:
    one, other = normal_at(stream(1), PLACES), normal_at(stream(2), PLACES)
    later = normal_at(streams_at(stream(1), 1), PLACES)
    for a, b in ((one, other), (one, later), (one[1:], one[:-1]), (other, later)):
        assert abs(np.corrcoef(a.numpy(), b.numpy())[0, 1]) < 0.01
    several = streams_at(torch.stack([stream(1), stream(2)]), torch.tensor([1, 1]))
    torch.testing.assert_close(several[0], streams_at(stream(1), 1), rtol=0, atol=0)


def test_many_streams_are_drawn_from_at_once() -> None:
    together = uniform_at(torch.stack([stream(1), stream(2)])[:, None], PLACES[:10])
    torch.testing.assert_close(together[1], uniform_at(stream(2), PLACES[:10]), rtol=0, atol=0)


def test_filled_weights_are_the_stream_in_order_whatever_the_pieces() -> None:
    filled = fill_normal(torch.empty(30, 7), 5, 0.5)
    torch.testing.assert_close(filled.view(-1), normal_at(torch.tensor(5), torch.arange(210)) * 0.5)
    torch.testing.assert_close(
        fill_normal(torch.empty(30, 7), 5, 0.5, piece=16), filled, rtol=0, atol=0
    )
