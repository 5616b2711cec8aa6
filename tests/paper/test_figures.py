"""The charts, tables and findings of the figures come from runs that are known, without any training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples import IDS, USERS, bench, compared, level, results, swaying

from loca.communities.mixture import Mixtures
from loca.experiments.runs import ComparedModel
from loca.local.combiner import LocalOnly
from loca.paper.benchmark import Benchmark, Results, RunKey, Runs, Sizes
from loca.paper.charts import Curve
from loca.paper.figures import Figure4, Figure5, Figure6, Figure7, Figure8, group_users
from loca.paper.permuted import Permuted
from loca.paper.report import ReportItem, write_item


def by_label(item: ReportItem, chart: int = 0) -> dict[str, Curve]:
    return {one.label: one for one in item.charts[chart].curves}


def counted(by_count: Mapping[int, float], whole: int, lift: float = 0.0) -> list[ComparedModel]:
    """Two seeds, of which the second is 0.02 higher, of a model measured with its first models too."""
    found = []
    for seed in (0, 1):
        values = {count: swaying(value + lift + 0.02 * seed) for count, value in by_count.items()}
        found.append(
            compared(
                values[whole],
                seed=seed,
                by_count=values,
                coverage_by_count={count: count / whole for count in by_count},
                found={"coverage": 1.0},
            )
        )
    return found


# Figure 4


@pytest.mark.parametrize(
    ("counts", "groups", "names"),
    [
        (range(1, 11), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4], ("1–2", "3–4", "5–6", "7–8", "9–10")),
        ([5] * 8 + [9, 9], [0] * 8 + [1, 1], ("5", "9")),
        ([7, 7, 7], [0, 0, 0], ("7",)),
        ([9, 3], [1, 0], ("3", "9")),
        ([4], [0], ("4",)),
    ],
    ids=["fifths", "ties together", "all the same", "fewer users than groups", "one user"],
)
def test_users_are_grouped_by_their_ratings_with_ties_together(
    counts: Sequence[int], groups: list[int], names: tuple[str, ...]
) -> None:
    found, called = group_users(np.array(counts, dtype=np.int64))
    assert (found.tolist(), called) == (groups, names)


def test_any_counts_are_put_into_rising_groups_that_do_not_overlap() -> None:
    counts = np.random.default_rng(0).geometric(0.05, 500) + 9
    group_of, names = group_users(counts)
    assert len(names) == 5
    highest = [counts[group_of == group].max() for group in range(5)]
    lowest = [counts[group_of == group].min() for group in range(5)]
    assert all(high < low for high, low in zip(highest, lowest[1:], strict=False))
    assert np.bincount(group_of).min() > 70


def grouped() -> Results:
    """The groups have 3, 4, 5, 6 and 7 ratings; LOCA_VAE gains 0.02 in all but the first, where it loses 0.01."""
    group = np.arange(USERS) // 8
    base = 0.1 * (group + 1)
    gained = base + np.where(group > 0, 0.02, -0.01)
    cells = {
        "mult-vae": [compared(base), compared(base, seed=1)],
        "loca-vae": [compared(gained - 0.01), compared(gained + 0.01, seed=1)],
        "ensemble-vae": [compared(base - 0.05)],
    }
    return results(cells)


def test_figure_4_has_the_means_of_each_group_of_users() -> None:
    item = Figure4().make([grouped()])
    (chart,) = item.charts
    assert (chart.title, chart.groups) == ("Hand, clean", ("3", "4", "5", "6", "7"))
    curves = by_label(item)
    assert list(curves) == ["MultVAE", "Ensemble_VAE", "LOCA_VAE"]
    assert curves["LOCA_VAE"].x == (0.0, 1.0, 2.0, 3.0, 4.0)
    assert curves["LOCA_VAE"].y == pytest.approx((0.09, 0.22, 0.32, 0.42, 0.52))
    for bound in (curves["MultVAE"].low, curves["MultVAE"].high):
        assert bound == pytest.approx((0.1, 0.2, 0.3, 0.4, 0.5))
    lines = [line for line in item.records if line["model"] == "loca-vae"]
    assert [(line["seed"], line["ratings"], line["users"]) for line in lines[:6]] == [
        *((0, str(count), 8) for count in range(3, 8)),
        (1, "3", 8),
    ]
    assert [line["ndcg@100"] for line in lines[:2]] == pytest.approx([0.08, 0.21])


def test_figure_4_claims_only_groups_in_which_the_gain_is_sure() -> None:
    assert [(one.kind, one.text) for one in Figure4().make([grouped()]).findings] == [
        ("differs", "Hand, clean: LOCA_VAE is surely above MultVAE in 4 of 5 groups."),
        ("found", "Hand, clean: LOCA_VAE is surely above Ensemble_VAE in every group."),
    ]


def test_figure_4_finds_users_by_their_ids_and_not_by_their_places() -> None:
    straight = grouped()
    turned = {}
    for name, one in straight.runs.items():
        values = {metric: found[::-1] for metric, found in one.evaluation.values.items()}
        backwards = replace(one.evaluation, users=np.array(IDS[::-1], dtype=object), values=values)
        turned[name] = replace(one, evaluation=backwards)
    charts = Figure4().make([Results(straight.benchmark, turned)]).charts
    for curve, same in zip(
        charts[0].curves, Figure4().make([straight]).charts[0].curves, strict=True
    ):
        assert curve.y == pytest.approx(same.y)


# Figures 5 and 6


def by_number(changed: Mapping[str, list[ComparedModel]] | None = None) -> Results:
    cells = {
        "mult-vae": [compared(level(0.18), seed=seed) for seed in (0, 1)],
        "mult-dae": [compared(swaying(0.30), seed=seed) for seed in (0, 1)],
        "loca-vae": counted({1: 0.17, 2: 0.19, 3: 0.25}, 3),
        "llorma-vae": counted({1: 0.16, 2: 0.17, 3: 0.17}, 3),
        "ensemble-vae": counted({1: 0.18, 2: 0.2, 3: 0.2}, 3),
        "loca-dae": counted({1: 0.2, 2: 0.29}, 2),
        **(changed or {}),
    }
    return results(cells)


def test_figure_5_has_a_line_for_each_way_to_join_models_and_the_one_model_as_a_level() -> None:
    item = Figure5().make([by_number()])
    curves = by_label(item)
    assert list(curves) == ["LOCA_VAE", "LLORMA_VAE", "Ensemble_VAE", "MultVAE"]
    assert curves["LOCA_VAE"].x == (1.0, 2.0, 3.0)
    assert curves["LOCA_VAE"].y == pytest.approx((0.18, 0.2, 0.26))
    assert [pytest.approx(seed) for seed in curves["LOCA_VAE"].seeds] == [
        (0.17, 0.19, 0.25),
        (0.19, 0.21, 0.27),
    ]
    for low, mean, high in zip(
        *(getattr(curves["LOCA_VAE"], name) for name in ("low", "y", "high")), strict=True
    ):
        assert low < mean < high
    assert (curves["MultVAE"].is_level, curves["MultVAE"].y) == (True, pytest.approx((0.18,)))
    (table,) = item.tables
    assert table.table.header == ("NDCG@100 with local models", "1", "2", "3")
    assert table.table.rows[0] == (
        "LOCA_VAE",
        "0.1800 ± 0.0141",
        "0.2000 ± 0.0141",
        "0.2600 ± 0.0141",
    )
    assert table.table.rows[-1] == ("MultVAE, one", "0.1800 ± 0.0000", "", "")


def test_a_model_without_all_its_seeds_says_so_and_is_held_against_nothing() -> None:
    item = Figure5().make([by_number({"llorma-vae": counted({1: 0.16, 2: 0.17, 3: 0.17}, 3)[:1]})])
    assert "LLORMA_VAE (1 of 2 seeds)" in by_label(item)
    assert item.tables[0].table.rows[1] == (
        "LLORMA_VAE (1 of 2 seeds)",
        "0.1600",
        "0.1700",
        "0.1700",
    )
    assert not any("LLORMA_VAE" in one.text for one in item.findings)


def test_figure_5_has_one_record_for_each_seed_and_number() -> None:
    records = Figure5().make([by_number()]).records
    assert len(records) == 3 * 2 * 3 + 2
    one = next(
        x for x in records if (x["model"], x["seed"], x.get("local models")) == ("loca-vae", 1, 2)
    )
    assert (one["ndcg@100"], one["found coverage"]) == (pytest.approx(0.21), pytest.approx(2 / 3))


def test_figure_5_tells_what_more_models_bring_and_what_locality_brings() -> None:
    assert [(one.kind, one.text) for one in Figure5().make([by_number()]).findings] == [
        (
            "matches",
            "Hand, clean: 3 instead of 2 local models change NDCG@100 by +30.0% [+0.0600, +0.0600].",
        ),
        (
            "matches",
            "Hand, clean: LOCA_VAE over the ensemble of as many MultVAEs: +23.8% [+0.0500, +0.0500].",
        ),
        ("matches", "Hand, clean: LOCA_VAE over LLORMA_VAE: +44.4% [+0.0800, +0.0800]."),
    ]


@pytest.mark.parametrize(
    ("name", "by_count", "kinds", "told"),
    [
        (
            "loca-vae",
            {1: 0.17, 2: 0.26, 3: 0.25},
            ["differs", "matches", "matches"],
            "2 local models change NDCG@100",
        ),
        (
            "ensemble-vae",
            {1: 0.18, 2: 0.2, 3: 0.26},
            ["matches", "differs", "matches"],
            "as many MultVAEs: -3.7%",
        ),
        (
            "llorma-vae",
            {1: 0.16, 2: 0.17, 3: 0.26},
            ["matches", "matches", "differs"],
            "over LLORMA_VAE: -3.7%",
        ),
        (
            "llorma-vae",
            {1: 0.16, 2: 0.17, 3: 0.25},
            ["matches", "matches", "differs"],
            "over LLORMA_VAE: +0.0%",
        ),
    ],
    ids=[
        "fewer are better",
        "the ensemble is better",
        "LLORMA_VAE is better",
        "LLORMA_VAE is as good",
    ],
)
def test_each_finding_of_figure_5_differs_alone_where_its_own_claim_does_not_hold(
    name: str, by_count: Mapping[int, float], kinds: list[str], told: str
) -> None:
    findings = Figure5().make([by_number({name: counted(by_count, 3)})]).findings
    assert [one.kind for one in findings] == kinds
    assert told in findings[kinds.index("differs")].text


@pytest.mark.parametrize(
    ("by_count", "told"),
    [
        ({1: 0.2, 3: 0.3}, "3 instead of 1 local models"),
        ({1: 0.1, 5: 0.2, 7: 0.3}, "7 instead of 5 local models"),
        (
            {1: 0.1, 10: 0.2, 50: 0.2, 100: 0.25, 200: 0.28, 300: 0.3},
            "300 instead of 100 local models",
        ),
    ],
)
def test_more_models_are_never_held_against_as_many(
    by_count: Mapping[int, float], told: str
) -> None:
    found = results({"loca-vae": counted(by_count, max(by_count))})
    (finding,) = Figure5().make([found]).findings
    assert (finding.kind, told in finding.text) == ("matches", True)


def test_a_single_model_is_held_against_nothing() -> None:
    assert Figure5().make([results({"loca-vae": counted({1: 0.2}, 1)})]).findings == ()


def test_figure_6_sets_both_local_models_beside_their_bases() -> None:
    item = Figure6().make([by_number()])
    assert list(by_label(item)) == ["LOCA_VAE", "LOCA_DAE", "MultVAE", "MultDAE"]
    assert by_label(item)["LOCA_DAE"].x == (1.0, 2.0)
    (table,) = item.tables
    assert table.table.rows[1] == ("LOCA_DAE", "0.2100 ± 0.0141", "0.3000 ± 0.0141", "")
    assert [row[0] for row in table.table.rows[2:]] == ["MultVAE, one", "MultDAE, one"]
    vae, dae = item.findings
    assert vae.kind == "matches"
    assert "LOCA_VAE over MultVAE: +44.4%" in vae.text
    assert dae.kind == "differs"  # 0.3 as the base itself
    assert "LOCA_DAE over MultDAE: +0.0%" in dae.text


def test_mixtures_are_points_of_figures_5_and_6_beside_their_controls() -> None:
    names = ("mixture-vae", "dealt-vae", "mixture-ease", "ensemble-ease")
    mixed = {
        name: [compared(swaying(0.3 + 0.02 * seed), seed=seed) for seed in (0, 1)] for name in names
    }
    of_5, of_6 = (figure.make([by_number(mixed)]) for figure in (Figure5(), Figure6()))
    assert list(by_label(of_5))[3:] == ["LOCA_VAE, mixture", "LOCA_VAE, dealt", "MultVAE"]
    point = by_label(of_5)["LOCA_VAE, mixture"]
    assert (point.x, point.y) == ((3.0,), pytest.approx((0.31,)))
    assert of_5.tables[0].table.rows[3] == ("LOCA_VAE, mixture", "", "", "0.3100 ± 0.0141")
    assert list(by_label(of_6))[2:6] == [
        "LOCA_VAE, mixture",
        "Ensemble_VAE",
        "LOCA_EASE, mixture",
        "Ensemble_EASE",
    ]
    assert [(one.kind, one.text) for one in of_6.findings[2:]] == [
        ("found", "Hand, clean: LOCA_VAE, mixture over Ensemble_VAE: +47.6% [+0.1000, +0.1000]."),
        ("found", "Hand, clean: LOCA_EASE, mixture over Ensemble_EASE: +0.0% [+0.0000, +0.0000]."),
    ]
    assert {line["model"] for line in of_6.records} >= {
        "mixture-vae",
        "mixture-ease",
        "ensemble-ease",
    }


@pytest.mark.parametrize("figure", [Figure5(), Figure6(), Figure7(), Figure8()])
def test_figures_have_mixtures_under_clean_alone(
    figure: Figure5 | Figure6 | Figure7 | Figure8,
) -> None:
    clean, paper = (
        {key.model for key in figure.runs(bench(protocol))} for protocol in ("clean", "paper")
    )
    assert "mixture-vae" in clean - paper
    assert not {"mixture-vae", "mixture-ease", "dealt-vae"} & paper


# Figures 7 and 8


def swept(widths: Mapping[str, object], best: str, sway: float = 0.0) -> Results:
    """Every bandwidth reaches 0.2 for every user with 1, 2 and 3 models, the best 0.05 more, but swaying."""
    alone = [compared(level(0.22), seed=seed, found={"epochs": 9 + seed}) for seed in (0, 1)]
    cells: dict[str, list[ComparedModel]] = {"mult-vae not refitted": alone}
    for place, called in enumerate(widths):
        value = 0.25 if called == best else 0.2
        facts = {
            "train_share": 0.1 * (place + 1),
            "answer_share": 0.01 * (place + 1),
            "coverage": 0.5,
            "epochs": 7,
        }
        by = sway if called == best else 0.0
        by_count = {count: swaying(value - 0.01 * (3 - count), by) for count in (1, 2, 3)}
        cells[f"loca-vae {called}"] = [
            compared(by_count[3], seed=seed, by_count=by_count, found=facts) for seed in (0, 1)
        ]
    return results(cells)


Make = Callable[[Sequence[Results]], ReportItem]


@pytest.mark.parametrize(
    ("make", "widths", "step", "best"),
    [
        (Figure7().make, Figure7().widths, 10.0, "h_T 0.6"),
        (Figure8().make, Figure8().widths, 1.0, "h_W 0.2"),
    ],
    ids=["figure 7", "figure 8"],
)
def test_figures_7_and_8_have_a_line_for_each_number_over_the_measured_share(
    make: Make, widths: Mapping[str, object], step: float, best: str
) -> None:
    item = make([swept(widths, best)])
    curves = by_label(item)
    assert list(curves) == [
        "1 local models",
        "2 local models",
        "3 local models",
        "MultVAE, not refitted",
    ]
    assert curves["3 local models"].x == pytest.approx([step * place for place in range(1, 6)])
    assert curves["3 local models"].y == pytest.approx((0.2, 0.2, 0.25, 0.2, 0.2))
    assert curves["1 local models"].y == pytest.approx((0.18, 0.18, 0.23, 0.18, 0.18))
    (table,) = item.tables
    assert [row[0] for row in table.table.rows] == [*widths, "MultVAE, not refitted"]
    assert table.table.rows[-1][3:] == ("9, 10", "", "", "0.2200 ± 0.0000")
    assert table.table.rows[2] == (
        *(best, f"{3 * step:.1f}%", "50.0%", "7, 7"),
        *("0.2300 ± 0.0000", "0.2400 ± 0.0000", "0.2500 ± 0.0000"),
    )


def mixed(figure: Figure7 | Figure8) -> Results:
    """Mixtures rise from 0.21 by 0.01 with every value; dealt ones have 0.2, the ensemble 0.22."""
    facts = {"effective_share": 0.6, "answering": 2.5, "epochs": 7}
    cells = {
        "ensemble-vae not refitted": [
            compared(level(0.22), seed=seed, found={"epochs": 9}) for seed in (0, 1)
        ]
    }
    for place, value in enumerate(figure.values):
        for name in figure.mixtures:
            reached = level(0.21 + 0.01 * place if name == "mixture-vae" else 0.2)
            cells[f"{name} {figure.variant(value)}"] = [
                compared(reached, seed=seed, found=facts) for seed in (0, 1)
            ]
    return results(cells)


def test_figure_7_shows_mixtures_by_membership_weight_beside_dealt_memberships_and_the_ensemble() -> (
    None
):
    item = Figure7().make([mixed(Figure7())])
    (chart,) = item.charts
    curves = by_label(item)
    assert (chart.x_label, chart.is_log_x) == ("membership weight", False)
    assert list(curves) == ["LOCA_VAE, mixture", "LOCA_VAE, dealt", "Ensemble_VAE, not refitted"]
    assert curves["LOCA_VAE, mixture"].x == (0.0, 0.3, 0.5, 0.8, 1.0)
    assert curves["LOCA_VAE, mixture"].y == pytest.approx((0.21, 0.22, 0.23, 0.24, 0.25))
    assert curves["LOCA_VAE, dealt"].y == pytest.approx([0.2] * 5)
    assert curves["Ensemble_VAE, not refitted"].is_level
    rows = item.tables[-1].table.rows
    assert rows[0] == ("LOCA_VAE, mixture", "0", "60.0%", "2.5", "7, 7", "0.2100 ± 0.0000")
    assert rows[-1] == ("Ensemble_VAE, not refitted", "", "", "", "9, 9", "0.2200 ± 0.0000")
    assert len(item.records) == (5 + 5 + 1) * 2
    assert [(one.kind, one.text) for one in item.findings] == [
        (
            "found",
            "Hand, clean: LOCA_VAE, mixture over LOCA_VAE, dealt, with membership weight 0.8: "
            "+20.0% [+0.0400, +0.0400].",
        ),
        (
            "found",
            "Hand, clean: LOCA_VAE, mixture over Ensemble_VAE, not refitted, "
            "with membership weight 0.8: +9.1% [+0.0200, +0.0200].",
        ),
    ]


def test_figure_8_shows_mixtures_by_temperature_beside_the_ensemble() -> None:
    item = Figure8().make([mixed(Figure8())])
    assert (item.charts[0].x_label, item.charts[0].is_log_x) == ("temperature", True)
    assert list(by_label(item)) == ["LOCA_VAE, mixture", "Ensemble_VAE, not refitted"]
    assert by_label(item)["LOCA_VAE, mixture"].x == (1.0, 4.0, 8.0, 16.0, 64.0)
    (finding,) = item.findings
    assert "with temperature 8: +4.5%" in finding.text


def test_a_sweep_of_mixtures_changes_one_parameter_and_is_as_large_as_its_ensemble() -> None:
    runs = Figure7().runs(bench(sizes=Sizes(local_models=9, sweep_models=6, seeds=1)))
    models: dict[str, Any] = {str(key): run.candidates[0] for key, run in runs.items()}
    names = [f"mixture-vae membership weight {value:g} seed 0" for value in Figure7().values]
    assert [models[name].communities for name in names] == [
        Mixtures(n=6, membership_weight=value, temperature=8.0) for value in Figure7().values
    ]
    assert {models[name].combiner for name in names} == {LocalOnly()}
    mixtures = models["mixture-vae membership weight 0.8 seed 0"].communities
    control = models["dealt-vae membership weight 0.8 seed 0"]
    assert control.communities == Permuted(finder=mixtures)
    assert models["ensemble-vae not refitted seed 0"].models == 6


def test_every_point_and_level_of_figure_7_is_in_its_records() -> None:
    records = Figure7().make([swept(Figure7().widths, "h_T 0.6")]).records
    local = [line for line in records if line["model"] == "loca-vae"]
    assert (
        len({(line["bandwidth"], line["seed"], line["local models"]) for line in local})
        == len(local)
        == 5 * 2 * 3
    )
    alone = [line["ndcg@100"] for line in records if line["model"] == "mult-vae not refitted"]
    assert alone == pytest.approx([0.22, 0.22])


TRAINING = (
    "Hand, clean: training wider than answering (h_T 0.9 instead of h_T 0.1) changes NDCG@100 by"
)
ANSWERING = "Hand, clean: answering for more than the very closest (h_W 0.2 instead of h_W 0.01) changes NDCG@100 by"
NARROWLY = "Hand, clean: answering narrowly (h_W 0.2 instead of h_W 0.9) changes NDCG@100 by"


@pytest.mark.parametrize(
    ("make", "widths", "best", "kind", "told"),
    [
        (
            Figure7().make,
            Figure7().widths,
            "h_T 0.9",
            "matches",
            f"{TRAINING} +25.0% [+0.0500, +0.0500].",
        ),
        (
            Figure7().make,
            Figure7().widths,
            "h_T 0.1",
            "differs",
            f"{TRAINING} -20.0% [-0.0500, -0.0500].",
        ),
        (
            Figure7().make,
            Figure7().widths,
            "h_T 1.3 × 0.9",
            "differs",
            f"{TRAINING} +0.0% [+0.0000, +0.0000].",
        ),
        (
            Figure8().make,
            Figure8().widths,
            "h_W 0.2",
            "matches",
            f"{ANSWERING} +25.0% [+0.0500, +0.0500].",
        ),
        (
            Figure8().make,
            Figure8().widths,
            "h_W 0.01",
            "differs",
            f"{ANSWERING} -20.0% [-0.0500, -0.0500].",
        ),
        (
            Figure8().make,
            Figure8().widths,
            "h_W 0.5",
            "differs",
            f"{ANSWERING} +0.0% [+0.0000, +0.0000].",
        ),
        (
            Figure8().make,
            Figure8().widths,
            "h_W 0.2",
            "matches",
            f"{NARROWLY} +25.0% [+0.0500, +0.0500].",
        ),
        (
            Figure8().make,
            Figure8().widths,
            "h_W 0.9",
            "differs",
            f"{NARROWLY} -20.0% [-0.0500, -0.0500].",
        ),
    ],
    ids=lambda one: one if isinstance(one, str) and one.startswith("h_") else "",
)
def test_figures_7_and_8_compare_two_widths_named_beforehand_whichever_is_best(
    make: Make, widths: Mapping[str, object], best: str, kind: str, told: str
) -> None:
    findings = make([swept(widths, best)]).findings
    assert [one.kind for one in findings if one.text == told] == [kind]


@pytest.mark.parametrize(
    ("make", "widths", "wide", "narrow"),
    [
        (Figure7().make, Figure7().widths, "h_T 0.9", "h_T 0.1"),
        (Figure8().make, Figure8().widths, "h_W 0.2", "h_W 0.01"),
    ],
    ids=["figure 7", "figure 8"],
)
def test_a_wider_one_that_is_not_surely_better_differs_and_without_either_nothing_is_said(
    make: Make, widths: Mapping[str, object], wide: str, narrow: str
) -> None:
    unsure, *_ = make([swept(widths, wide, sway=0.5)]).findings
    assert (unsure.kind, "by +25.0% [-" in unsure.text) == ("differs", True)
    for missing in (wide, narrow):
        left = {called: width for called, width in widths.items() if called != missing}
        assert not any(missing in one.text for one in make([swept(left, wide)]).findings)


# Whatever was not measured


@pytest.mark.parametrize(
    "make",
    [
        Figure4().make,
        Figure5().make,
        Figure6().make,
        Figure7().make,
        Figure8().make,
    ],
)
def test_figures_of_nothing_have_no_findings_and_can_still_be_written(
    make: Make, tmp_path: Path
) -> None:
    item = make([results({}, on=bench(sizes=Sizes(local_models=3, sweep_models=3, seeds=1)))])
    assert (item.records, item.findings) == ((), ())
    write_item(item, tmp_path)
    assert (tmp_path / f"{item.key}.md").exists()


Needed = Callable[[Benchmark], Runs]
BOTH = (Figure7().runs, Figure8().runs)


@pytest.mark.parametrize("needed", BOTH, ids=["figure 7", "figure 8"])
def test_no_model_of_a_sweep_is_refitted_the_one_beside_it_neither(needed: Needed) -> None:
    cells = needed(bench())
    assert {cell.protocol.refit for cell in cells.values()} == {False}
    alone = {key: run for key, run in cells.items() if key.model in ("mult-vae", "ensemble-vae")}
    assert [str(key) for key in alone] == [
        *("mult-vae not refitted seed 0", "mult-vae not refitted seed 1"),
        *("ensemble-vae not refitted seed 0", "ensemble-vae not refitted seed 1"),
    ]
    assert [run.fingerprint()["seed"] for run in alone.values()] == [0, 1, 0, 1]


def test_both_figures_share_the_one_beside_them_and_table_2_has_another() -> None:
    of_7, of_8 = (needed(bench()) for needed in BOTH)
    key = RunKey("mult-vae", "not refitted", 0)
    assert of_7[key].fingerprint() == of_8[key].fingerprint()
    assert key not in bench().rows(["mult-vae"])


@pytest.mark.parametrize("make", [Figure7().make, Figure8().make])
def test_a_refitted_model_is_no_level_of_a_sweep(make: Callable[..., object]) -> None:
    item = make([results({"mult-vae": [compared(level(0.3))]})])
    assert not item.charts  # type: ignore[attr-defined]
    assert "None of them is refitted" in item.caption  # type: ignore[attr-defined]


def test_figure_4_has_a_table_of_each_group_with_its_number_of_users() -> None:
    group = np.arange(USERS) // 8
    base = 0.1 * (group + 1)
    cells = {
        "mult-vae": [compared(base)],
        "loca-vae": [compared(base), compared(base + 0.02, seed=1)],
    }
    (table,) = Figure4().make([results(cells)]).tables
    assert table.heading == "Hand, clean"
    assert table.table.header == (
        "NDCG@100",
        *(f"{count} ratings (8 users)" for count in range(3, 8)),
    )
    assert table.table.rows == (
        ("MultVAE", "0.1000", "0.2000", "0.3000", "0.4000", "0.5000"),
        ("LOCA_VAE", "0.1100", "0.2100", "0.3100", "0.4100", "0.5100"),
    )


def test_figure_4_of_nothing_has_no_table() -> None:
    assert Figure4().make([results({})]).tables == ()
