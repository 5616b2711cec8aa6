"""Table 1's columns on cases worked by hand, and the paper's treatment of its data sets."""

import dataclasses
import json
import zipfile

import pytest
from event_examples import histories_of, interactions_of

from loca.data.datasets import PRINTED, find_preset
from loca.data.readers import read_preset
from loca.data.recency import Recency
from loca.data.splits import leave_last_out
from loca.data.statistics import describe
from loca.errors import ConfigError, DataError


def test_the_numbers_of_a_small_data_set():
    histories = [[0, 0, 1], [0, 2, 3, 4], [0]]
    found = describe(interactions_of(histories, [[5, 6, 7], [1, 2, 3, 4], [9]], n_items=40))
    assert (found.users, found.items, found.ratings) == (3, 40, 8)
    assert found.sparsity == pytest.approx(100 * (1 - 8 / 120))
    assert found.concentration == pytest.approx(100 * 5 / 8)  # two of 40 items: item 0 four times, another once
    assert found.narrow_concentration == pytest.approx(100 * 4 / 8)  # 2 % of 40 items are less than one: item 0
    assert (found.shortest_history, found.median_history, found.longest_history) == (1, 3, 4)
    assert (found.repeated_pairs, found.unused_items) == (1, 35)
    assert (found.first_time, found.last_time) == (1, 9)


def test_the_numbers_read_well():
    text = str(describe(interactions_of([[0, 1]] * 1000 + [[0]], n_items=2)))
    assert "users                                 1,001" in text
    assert "sparsity                              0.05 %" in text
    assert "history, shortest / median / longest  1 / 2 / 2" in text
    assert text.endswith("time                                  none")
    assert str(describe(interactions_of([[0, 1]], [[0.5, 2.0]]))).endswith("0.5 to 2")
    assert str(describe(interactions_of([[0]], [[1370217600]]))).endswith("1370217600 to 1370217600")


def test_data_without_interactions_have_zeros():
    found = describe(interactions_of([[]], [[]], n_items=1))
    assert (found.ratings, found.concentration, found.sparsity, found.first_time) == (0, 0, 100, None)
    assert found.narrow_concentration == 0
    nobody = describe(interactions_of([], n_items=1))
    assert (nobody.users, nobody.sparsity, nobody.longest_history) == (0, 0, 0)


ROWS = [(1, item, 5, time) for item, time in zip("abcdefghia", range(10), strict=True)] + [(2, "z", 1, 3)]


def write(path, kind):
    if kind == "json":
        names = ("reviewerID", "asin", "overall", "unixReviewTime")
        path.write_text("\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in ROWS))
        return
    separator = {"csv": ",", "named csv": ",", "tab": "\t", "colons": "::"}[kind]
    header = "userId,movieId,rating,timestamp\n" if kind == "named csv" else ""
    path.write_text(header + "\n".join(separator.join(map(str, row)) for row in ROWS))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("ML10M", kind) for kind in ("colons", "csv", "tab")),
        *(("ML20M", kind) for kind in ("named csv", "csv", "tab", "colons")),
        *(("AMusic", kind) for kind in ("csv", "tab", "colons", "json")),
        *(("agames", kind) for kind in ("csv", "json")),
        *(("Yelp", kind) for kind in ("tab", "csv")),
    ],
)
def test_each_preset_reads_its_published_and_its_authors_files(tmp_path, name, kind):
    path = tmp_path / "data"
    write(path, kind)
    found = read_preset(name, path)
    # Ten rows with a repeat are enough; user 2 goes, its item stays in the catalogue.
    assert histories_of(found) == {1: list("abcdefghia")}
    assert "z" in found.items
    split = leave_last_out(found, test=5)
    assert histories_of(split.test.targets) == {1: list("fghia")}
    assert split.validation is None


def test_a_preset_finds_the_table_in_the_published_zip(tmp_path):
    write(tmp_path / "ratings.csv", "named csv")
    path = tmp_path / "ml-20m.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ml-20m/movies.csv", "movieId,title\n")
        archive.write(tmp_path / "ratings.csv", "ml-20m/ratings.csv")
    assert len(read_preset("ML20M", path, recency=Recency(3))) == 10


def test_a_given_layout_goes_before_the_presets(tmp_path):
    path = tmp_path / "data"
    write(path, "csv")
    assert len(read_preset("Yelp", path, layout="loca-rating")) == 10
    with pytest.raises(DataError, match="one column found when split by"):
        read_preset("Yelp", path, layout="yelp-eals")
    path.write_text(path.read_text().replace(",", ";"))
    with pytest.raises(DataError, match="the file seems to be split by ';'"):
        read_preset("Yelp", path)


def test_an_unknown_preset_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="unknown preset 'AMusik'; did you mean 'AMusic'"):
        find_preset("AMusik")
    with pytest.raises(ConfigError, match="known are ML10M, ML20M, AMusic, AGames, Yelp"):
        find_preset("?")


def test_the_printed_numbers_fit_together():
    for printed in map(dataclasses.asdict, PRINTED.values()):
        sparsity = 100 * (1 - printed["ratings"] / printed["users"] / printed["items"])
        assert sparsity == pytest.approx(printed["sparsity"], abs=0.01)
