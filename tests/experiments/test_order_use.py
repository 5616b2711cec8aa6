"""Which models are said to use order, by themselves or inside others."""

import pytest

from loca.data.recency import Recency
from loca.local.blend import Blend
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.models.mult_vae import MultDAE
from loca.models.next_ease import NextEASE
from loca.registry import MODELS
from loca.tuning.model_selection import order_matters, uses_order


def test_of_the_catalogue_those_named_by_what_comes_next_and_auto_use_order():
    expected = {name for name in MODELS if "next" in name or name == "auto"}
    assert {name for name, make in MODELS.items() if uses_order(make())} == expected


def test_a_model_uses_order_where_one_inside_it_does():
    assert uses_order(MultDAE(target="following"))
    assert uses_order(Blend(parts=[EASE(), Loca(base=NextEASE())]))
    assert not uses_order(Blend(parts=[EASE(), Loca(base=EASE(), global_model=MultDAE())]))


@pytest.mark.parametrize(
    ("recency", "matters"),
    [(None, False), ("own", False), ("auto", True), (Recency(4), True), (Recency(4, unit="time"), False)],
)
def test_a_recency_in_positions_uses_order(recency, matters):
    assert order_matters([EASE()], recency) == matters
    assert order_matters([EASE(), NextEASE()], recency)
