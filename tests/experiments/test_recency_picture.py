"""The picture of a user's order: right weights and lists behind it, titles that fit, and a file that is whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import loca.experiments.recency_picture as picture
import loca.files.whole_files as whole_files
from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.data.synthetic import PlantedData
from loca.errors import ConfigError, DataError
from loca.experiments.recency_picture import ListsByRecency, draw_recencies, fit_text

ITEMS = ["a", "b", "c", "d", "e"]


class Neighbours:
    """Scores by a given item-to-item table, so that every list can be worked out by hand."""

    def __init__(self, table: Any) -> None:
        self.table = np.asarray(table, dtype=np.float32)

    def score(self, histories: csr_array) -> Any:
        return np.asarray(histories @ self.table, dtype=np.float32)


# a speaks for c (3) and d (1), b for d (2) and e (1): whoever has a, then b, sees c, d, e turn by the weight of a.
TABLE = [[0, 0, 3, 1, 0], [0, 0, 0, 2, 1], [0] * 5, [0] * 5, [0] * 5]


def interactions_of(*histories: str, times: list[float] | None = None) -> Interactions:
    """One user for each text, named u0, u1, …, with its letters as items, oldest first."""
    rows = np.array([ITEMS.index(letter) for history in histories for letter in history], dtype=np.int32)
    users = IdMap(np.array([f"u{number}" for number in range(len(histories))]), "user")
    offsets = np.concatenate([[0], np.cumsum([len(history) for history in histories])])
    given = None if times is None else np.array(times)
    return Interactions(users, IdMap(np.array(ITEMS), "item"), offsets, rows, given)


def test_lists_and_weights_are_those_worked_out_by_hand() -> None:
    # a counts 1, ½ and ¼: the scores of c, d, e are 3 3 1, then 1.5 2.5 1, then .75 2.25 1.
    recencies = (None, Recency(1.0), Recency(0.5))
    found = ListsByRecency.of(Neighbours(TABLE), interactions_of("ed", "ab"), "u1", recencies, n=3)
    assert found.history.tolist() == [0, 1]
    assert found.weights.tolist() == [[1, 1], [0.5, 1], [0.25, 1]]
    assert found.lists.tolist() == [[2, 3, 4], [3, 2, 4], [3, 4, 2]]
    assert found.moves() == [
        (2, 0, 0, 1), (3, 0, 1, 0), (4, 0, 2, 2),
        (3, 1, 0, 0), (2, 1, 1, 2), (4, 1, 2, 1),
    ]  # fmt: skip


def test_an_item_wears_the_first_recency_that_lists_it_and_moves_only_between_lists_that_hold_it() -> None:
    found = ListsByRecency.of(Neighbours(TABLE), interactions_of("ab"), "u0", (Recency(0.5), None, Recency(1.0)), n=1)
    assert found.lists.tolist() == [[3], [2], [3]]
    assert found.entered() == {3: 0, 2: 1}
    assert found.moves() == []


def test_a_repeated_item_stands_once_at_its_newest_place_with_that_weight() -> None:
    found = ListsByRecency.of(Neighbours(TABLE), interactions_of("abca"), "u0", (Recency(1.0),))
    assert found.history.tolist() == [1, 2, 0]
    assert found.weights.tolist() == [[0.25, 0.5, 1.0]]


def test_weights_by_time_follow_the_times_and_not_the_places() -> None:
    known = interactions_of("abc", times=[0.0, 30.0, 40.0])
    found = ListsByRecency.of(Neighbours(TABLE), known, "u0", (Recency(10.0, unit="time"),))
    assert np.allclose(found.weights, [[1 / 16, 1 / 2, 1]])


def test_seen_items_stay_hidden_however_little_they_count_and_short_lists_end_in_minus_one() -> None:
    found = ListsByRecency.of(Neighbours(np.ones((5, 5))), interactions_of("abc"), "u0", (None, Recency(1e-3)), n=4)
    assert found.lists.tolist() == [[3, 4, -1, -1]] * 2
    assert -1 not in found.entered()
    assert all(item >= 0 for item, *_ in found.moves())


def test_what_cannot_be_drawn_is_refused_in_one_line(tmp_path: Path) -> None:
    model, known, path = Neighbours(TABLE), interactions_of("ab", ""), tmp_path / "order.png"
    with pytest.raises(DataError, match=r"unknown user 'u7'; close ones are"):
        draw_recencies(model, known, "u7", (None,), path)
    with pytest.raises(DataError, match="user 'u1' has an empty history; expected at least one item"):
        draw_recencies(model, known, "u1", (None,), path)
    with pytest.raises(ConfigError, match=r"recencies: expected 1 to 6 different ones .* found 0"):
        draw_recencies(model, known, "u0", (), path)
    with pytest.raises(ConfigError, match="found 7"):
        draw_recencies(model, known, "u0", [Recency(float(half_life)) for half_life in range(1, 8)], path)
    with pytest.raises(ConfigError, match="newest: expected 1 item or more"):
        draw_recencies(model, known, "u0", (None,), path, newest=0)
    with pytest.raises(DataError, match="unknown item 'z'"):
        draw_recencies(model, known, "u0", (None,), path, later=["z"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("titles", [{}, {"a": "Cash $100 and $_{", "c": "A very long title: " + "word " * 60}])
def test_the_picture_is_a_png_with_and_without_titles(tmp_path: Path, titles: dict[str, str]) -> None:
    known = interactions_of("ab").with_titles(titles) if titles else interactions_of("ab")
    path = tmp_path / "deep" / "order.png"
    recencies = (None, Recency(1.0), Recency(2e6, shape="power", floor=0.1))
    shown = draw_recencies(Neighbours(TABLE), known, "u0", recencies, path, later=["d"])
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [one.name for one in path.parent.iterdir()] == ["order.png"]
    assert shown.recencies == recencies


def test_no_text_of_the_picture_leaves_it_or_touches_another(planted: PlantedData) -> None:
    ids = planted.interactions.items.values.tolist()
    wide = {item: f"{'W' * (3 + row % 9)} Motion-Picture, The {'mm ' * (row % 7)}" for row, item in enumerate(ids)}
    known = planted.interactions.with_titles(wide)
    table = np.random.default_rng(0).normal(size=(known.n_items, known.n_items))
    recencies = (None, Recency(9.0), Recency(3.0, floor=0.25, shape="power"), Recency(1.0))
    user = known.users.ids([3])[0]
    found = ListsByRecency.of(Neighbours(table), known, user, recencies)
    figure = picture._draw(found, frozenset(found.lists[2][:4].tolist()), 25)
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    curves, lists = figure.axes
    legend = curves.get_legend()
    assert legend is not None
    under = [curves.xaxis.label, *curves.get_xticklabels(), *legend.get_texts()]
    texts = [text for text in [*curves.texts, *curves.get_yticklabels(), *under, *lists.texts] if text.get_text()]
    boxes = [text.get_window_extent(renderer) for text in texts]
    assert legend.get_window_extent(renderer).x0 >= 0
    assert legend.get_window_extent(renderer).x1 <= lists.bbox.x0
    assert len(boxes) >= 40 + len(found.history)
    for number, box in enumerate(boxes):
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[:number]), texts[number].get_text()


def test_a_picture_that_cannot_be_written_leaves_the_old_one_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "order.png"
    path.write_bytes(b"the old one")

    def fail(*given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(whole_files.os, "replace", fail)
    with pytest.raises(DataError, match=r"order\.png: cannot be written \(No space left on device\)"):
        draw_recencies(Neighbours(TABLE), interactions_of("ab"), "u0", (None,), path)
    assert path.read_bytes() == b"the old one"
    assert len(list(tmp_path.iterdir())) == 1


def test_text_is_wrapped_shortened_and_left_alone_as_the_width_says() -> None:
    assert fit_text("Heat (1995)", 11, 1, len) == "Heat (1995)"
    assert fit_text("Dr. Strangelove or: How", 15, 2, len) == "Dr. Strangelove\nor: How"
    assert fit_text("E.T. the Extra-Terrestrial", 15, 2, len) == "E.T. the Extra-\nTerrestrial"
    assert fit_text("Escape from New York", 13, 1, len) == "Escape from…"
    assert fit_text("B000123456789", 5, 2, len) == "B0001\n2345…"
    assert fit_text("B000123456789", 5, 1, len) == "B000…"
    assert fit_text("  two   words ", 20, 1, len) == "two words"
