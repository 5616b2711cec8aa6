"""The printed figures are those of the paper's Tables 2, 3 and 5, and nothing is made up where it prints none."""

from __future__ import annotations

import pytest

from loca.data.datasets import PRINTED
from loca.paper.benchmark import ALL_NAMES
from loca.paper.published import printed_accuracy, printed_seconds, printed_selection
from loca.paper.seed_means import METRICS

IN_TABLE_2 = {
    *("wmf", "slim", "cdae", "mult-vae", "ease", "rec-vae", "llorma", "sglsvd", "loca-vae", "loca-ease"),
    *("paper-loca-vae", "paper-loca-ease"),  # the same two rows, with the settings that they are printed for
}  # fmt: skip


@pytest.mark.parametrize(
    ("data", "model", "metric", "expected"),
    [
        ("ML10M", "wmf", "recall@50", 0.3035),
        ("ML10M", "loca-vae", "ndcg@50", 0.1661),
        ("ML20M", "llorma", "recall@100", 0.3355),
        ("ML20M", "loca-ease", "ndcg@100", 0.2024),
        ("AMusic", "mult-vae", "ndcg@100", 0.0822),
        ("AMusic", "ease", "ndcg@100", 0.0821),
        ("AMusic", "loca-vae", "ndcg@100", 0.0893),
        ("AMusic", "loca-ease", "recall@50", 0.1138),
        ("AGames", "cdae", "ndcg@100", 0.0808),
        ("AGames", "slim", "recall@50", 0.1182),
        ("Yelp", "rec-vae", "ndcg@100", 0.0975),
        ("Yelp", "sglsvd", "ndcg@50", 0.0672),
    ],
)
def test_table_2_has_the_paper_s_figure(
    data: str, model: str, metric: str, expected: float
) -> None:
    assert printed_accuracy(data, model, metric) == expected


def test_table_2_prints_ten_models_on_five_data_sets_and_no_other() -> None:
    for data in PRINTED:
        for metric in METRICS:
            assert {
                name for name in ALL_NAMES if printed_accuracy(data, name, metric) is not None
            } == IN_TABLE_2


@pytest.mark.parametrize(
    ("data", "model", "metric"),
    [
        (None, "ease", "ndcg@100"),
        ("ML-1M", "ease", "ndcg@100"),
        ("AMusic", "ensemble-vae", "ndcg@100"),
        ("AMusic", "unheard-of", "ndcg@100"),
        ("AMusic", "ease", "ndcg@10"),
    ],
)
def test_table_2_prints_nothing_for_anything_else(
    data: str | None, model: str, metric: str
) -> None:
    assert printed_accuracy(data, model, metric) is None


def test_table_3_has_ndcg_and_coverage_as_a_share() -> None:
    assert printed_selection("AMusic", "random", 300) == (0.0878, pytest.approx(0.713))
    assert printed_selection("AMusic", "coverage", 300) == (0.0893, pytest.approx(0.886))
    assert printed_selection("AMusic", "farthest", 100) == (0.0835, pytest.approx(0.133))
    assert printed_selection("ML10M", "kmeans", 200) == (0.2061, pytest.approx(0.971))


def test_table_3_prints_nothing_for_other_data_counts_and_ways() -> None:
    assert printed_selection("Yelp", "random", 300) is None
    assert printed_selection(None, "random", 300) is None
    assert printed_selection("AMusic", "random", 12) is None
    assert printed_selection("AMusic", "by hand", 300) is None


def test_table_5_has_the_seconds_of_multvae_and_of_so_many_local_models() -> None:
    assert printed_seconds("AMusic", None) == 46
    assert printed_seconds("AMusic", 20) == 82
    assert printed_seconds("ML20M", None) == 2514
    assert printed_seconds("Yelp", 2) == 111


def test_table_5_prints_nothing_for_other_data_and_counts() -> None:
    assert printed_seconds(None, None) is None
    assert printed_seconds("ML-1M", 1) is None
    assert printed_seconds("AMusic", 50) is None
