"""Remarks: warnings with a stable kind, collected for the object that they belong to."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import loca
from loca.remarks import Remark, collect_remarks, remark, tell_remarks


def test_a_remark_is_a_warning_at_the_line_of_the_caller() -> None:
    with pytest.warns(loca.LocaWarning) as caught:
        remark("leak", "all of it")
    assert [str(one.message) for one in caught] == ["leak: all of it"]
    assert Path(caught[0].filename) == Path(__file__)


def test_one_kind_can_be_raised_and_another_ignored() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", loca.LocaWarning)
        warnings.filterwarnings("error", "leak:", loca.LocaWarning)
        remark("low-ratings", "many")
        with pytest.raises(loca.LocaWarning) as raised:
            remark("leak", "all")
    assert raised.value.kind == "leak"


def test_every_collector_around_keeps_a_remark_once() -> None:
    with collect_remarks(lambda one: None) as outer:
        remark("leak", "before")
        with collect_remarks() as inner:
            remark("minima", "inside")
            remark("minima", "inside")
    assert outer.remarks == (Remark("leak", "before"), Remark("minima", "inside"))
    assert inner.remarks == (Remark("minima", "inside"),)


def test_a_listener_hears_each_remark_once_and_python_does_not_warn() -> None:
    heard: list[Remark] = []
    with warnings.catch_warnings(), collect_remarks(heard.append):
        warnings.simplefilter("error")
        remark("leak", "all")
        tell_remarks([Remark("leak", "all"), Remark("minima", "two")])
    assert heard == [Remark("leak", "all"), Remark("minima", "two")]


def test_a_kind_has_to_be_known() -> None:
    with pytest.raises(ValueError, match="unknown kind of remark 'leek'"):
        remark("leek", "soup")
