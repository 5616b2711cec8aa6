"""What Figures 4, 7 and 8 show beside their lines: a table of the groups, and a MultVAE on the terms of the sweeps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from result_examples import USERS, bench, compared, level, results

from loca.experiments.runs import Run
from loca.reproduction import figures as bandwidth_figures
from loca.reproduction import figures as ratings_figure
from loca.reproduction.benchmark import Benchmark

Needed = Callable[[Benchmark], dict[str, Run]]
BOTH = (bandwidth_figures.needed_by_training, bandwidth_figures.needed_by_answering)


@pytest.mark.parametrize("needed", BOTH, ids=["figure 7", "figure 8"])
def test_no_model_of_a_sweep_is_refitted_the_one_beside_it_neither(needed: Needed) -> None:
    cells = needed(bench())
    assert {cell.terms.refit for cell in cells.values()} == {False}
    assert [name for name in cells if not name.startswith("loca-vae ")] == [
        "mult-vae not refitted seed 0",
        "mult-vae not refitted seed 1",
    ]
    assert [cells[f"mult-vae not refitted seed {seed}"].fingerprint()["seed"] for seed in (0, 1)] == [0, 1]


def test_both_figures_share_the_one_beside_them_and_table_2_has_another() -> None:
    of_7, of_8 = (needed(bench()) for needed in BOTH)
    called = "mult-vae not refitted seed 0"
    assert of_7[called].fingerprint() == of_8[called].fingerprint()
    assert called not in bench().row("mult-vae")


@pytest.mark.parametrize("make", [bandwidth_figures.make_by_training, bandwidth_figures.make_by_answering])
def test_a_refitted_model_is_no_level_of_a_sweep(make: Callable[..., object]) -> None:
    exhibit = make([results({"mult-vae": [compared(level(0.3))]})])
    assert not [one for one in exhibit.charts[0].curves if one.is_level]  # type: ignore[attr-defined]
    assert "None of them is refitted" in exhibit.caption  # type: ignore[attr-defined]


def test_figure_4_has_a_table_of_each_group_with_its_number_of_users() -> None:
    group = np.arange(USERS) // 8
    base = 0.1 * (group + 1)
    cells = {"mult-vae": [compared(base)], "loca-vae": [compared(base), compared(base + 0.02, seed=1)]}
    (panel,) = ratings_figure.make([results(cells)]).panels
    assert panel.heading == "Hand, clean"
    assert panel.grid.header == ("NDCG@100", *(f"{count} ratings (8 users)" for count in range(3, 8)))
    assert panel.grid.rows == (
        ("MultVAE", "0.1000", "0.2000", "0.3000", "0.4000", "0.5000"),
        ("LOCA_VAE", "0.1100", "0.2100", "0.3100", "0.4100", "0.5100"),
    )


def test_figure_4_of_nothing_has_no_table() -> None:
    assert ratings_figure.make([results({})]).panels == ()
