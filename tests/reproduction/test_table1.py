"""Table 1 against a printed row that is known: what is the same, and by how much the rest differs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from loca.data.datasets import PRINTED as PRINTED_ROWS
from loca.data.datasets import Printed
from loca.data.interactions import Interactions
from loca.data.readers import read_preset
from loca.data.statistics import Statistics, describe
from loca.reproduction.table1 import statistics_item

PRINTED = Printed(users=2, items=100, ratings=10, sparsity=95.0, concentration=60.0)


def ten_ratings() -> Statistics:
    """2 users and 100 items, of which both have 0 … 2 and each two more: the top 5 have 8 of 10, the top 2 have 4."""
    dense = np.zeros((2, 100))
    dense[:, :3] = 1
    dense[0, [10, 11]] = dense[1, [20, 21]] = 1
    return describe(Interactions.from_matrix(csr_array(dense)))


def test_the_printed_row_stands_under_ours() -> None:
    item = statistics_item({"Tiny": ten_ratings(), "Other": ten_ratings()}, {"Tiny": PRINTED})
    rows = item.tables[0].table.rows
    assert item.key == "table1"
    assert rows[0] == ("Tiny", "2", "100", "10", "95.00 %", "80.00 %", "40.00 %")
    assert rows[1] == ("Tiny, the paper's", "2", "100", "10", "95.00 %", "60.00 %", "")
    assert [row[0] for row in rows] == ["Tiny", "Tiny, the paper's", "Other"]
    assert len({len(row) for row in (item.tables[0].table.header, *rows)}) == 1
    assert item.records[0]["printed_concentration"] == 60.0
    assert item.records[1]["printed_users"] is None
    assert item.records[0].keys() == item.records[1].keys()


def test_findings_tell_exact_matches_from_differences_and_say_how_large_they_are() -> None:
    printed = replace(PRINTED, users=4, concentration=50.0)
    findings = statistics_item({"Tiny": ten_ratings(), "Other": ten_ratings()}, {"Tiny": printed})
    told = [(one.kind, one.text) for one in findings.findings]
    assert told[0] == ("matches", "Tiny: items (100), ratings (10) and sparsity (95.00 %) as printed.")
    assert told[1] == (
        "differs",
        "Tiny: users 2 here, 4 printed (-2, -50.0%); concentration 80.00 % here, 50.00 % printed (+30.00 points), "
        "to which the share of the top 2 % of the items, 40.00 %, is nearer.",
    )
    assert told[2] == ("found", "Other: not in the paper's Table 1.")


def test_a_row_that_is_the_printed_one_has_nothing_that_differs() -> None:
    item = statistics_item({"Tiny": ten_ratings()}, {"Tiny": replace(PRINTED, concentration=80.0)})
    assert [one.kind for one in item.findings] == ["matches"]
    assert "users (2), items (100), ratings (10), sparsity" in item.findings[0].text


@pytest.mark.real_data
def test_amusic_has_the_printed_counts_and_another_concentration(real_data) -> None:
    printed = dict(PRINTED_ROWS)
    found = describe(read_preset("AMusic", real_data / "amusic" / "amusic.rating"))
    item = statistics_item({"AMusic": found}, printed)
    matches, differs = item.findings[:2]
    assert "users (4,964), items (11,797), ratings (97,439) and sparsity (99.83 %)" in matches.text
    assert "concentration 26.14 % here, 14.93 % printed" in differs.text
    assert "is nearer" in differs.text
