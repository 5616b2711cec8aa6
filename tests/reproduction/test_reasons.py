"""Why a table is as it is, from figures that are known."""

from __future__ import annotations

import pytest
from result_examples import SCALE, bench, compared, histories, level, results, swaying, with_singles

from loca.data.interactions import Interactions
from loca.experiments.protocols import ProtocolName
from loca.reproduction.accuracy_differences import differences
from loca.reproduction.bench import Bench, Results
from loca.reproduction.data_sets import StudiedData
from loca.reproduction.reasons import reasons


def told(*studied: Results) -> tuple[str, ...]:
    return reasons(studied, [differences(one) for one in studied])


@pytest.mark.parametrize(
    ("ensemble", "left"),
    [
        (0.22, "+9.09% over the ensemble is what locality earns"),
        (0.24, "nothing is left that is local"),
        (0.25, "locality itself loses (-4.00%)"),
    ],
)
def test_a_gain_is_divided_into_that_of_an_ensemble_and_the_rest(ensemble: float, left: str) -> None:
    levels = {"mult-vae": 0.20, "ensemble-vae": ensemble, "loca-vae": 0.24}
    (line,) = told(results({name: [compared(level(value))] for name, value in levels.items()}))
    gained = f"{ensemble / 0.20 - 1:+.2%}"
    assert line == (
        "Hand, clean: LOCA_VAE changes NDCG@100 by +20.00% from MultVAE, and the ensemble of as many that see all "
        f"users by {gained}: {left}."
    )


def test_under_paper_a_gain_over_the_ensemble_may_come_of_choosing_on_test() -> None:
    levels = {"mult-vae": 0.20, "ensemble-vae": 0.22, "loca-vae": 0.24}
    cells = {name: [compared(level(value))] for name, value in levels.items()}
    (line,) = told(results(cells, on=bench("paper")))
    assert line.endswith("+9.09% over the ensemble is locality, or comes of choosing more on the test items.")


def test_an_ensemble_that_loses_measures_nothing_and_that_of_ease_sees_samples() -> None:
    levels = {"ease": 0.20, "ensemble-ease": 0.19, "loca-ease": 0.21}
    (line,) = told(results({name: [compared(level(value))] for name, value in levels.items()}))
    assert line == (
        "Hand, clean: LOCA_EASE changes NDCG@100 by +5.00% from EASE, and the ensemble of as many on samples of the "
        "users by -5.00%: averaging earns nothing here."
    )


def test_an_undecided_rest_is_called_so() -> None:
    cells = {"mult-vae": level(0.20), "ensemble-vae": swaying(0.21), "loca-vae": level(0.22)}
    (line,) = told(results({name: [compared(values)] for name, values in cells.items()}))
    assert line.endswith("by +5.00%: nothing sure is left that is local (+4.76%).")


@pytest.mark.parametrize("missing", ["mult-vae", "ensemble-vae", "loca-vae"])
def test_nothing_is_told_of_what_is_not_there(missing: str) -> None:
    levels = {"mult-vae": 0.20, "ensemble-vae": 0.22, "loca-vae": 0.24}
    cells = {name: [compared(level(value))] for name, value in levels.items() if name != missing}
    assert told(results(cells)) == ()


def test_a_global_share_of_one_with_every_seed_is_told_and_one_with_some_is_not() -> None:
    both = {"ease": [compared(level(0.2))], "ensemble-ease": [compared(level(0.2))]}
    ones = [compared(level(0.2), seed=seed, found={"alpha": 1.0}) for seed in (0, 1)]
    (line,) = told(results({**both, "loca-ease": ones}))
    assert line == (
        "Hand, clean: LOCA_EASE answers as EASE does: the global share that was chosen is 1 with every seed, so that "
        "no local model is asked, and Ensemble_EASE has the same."
    )
    (line,) = told(results({**both, "ensemble-ease": [compared(level(0.3))], "loca-ease": ones}))
    assert line.endswith("no local model is asked, though Ensemble_EASE gains.")
    (line,) = told(results({"ease": both["ease"], "loca-ease": ones}))
    assert line.endswith("no local model is asked.")
    some = [ones[0], compared(level(0.2), seed=1, found={"alpha": 0.9})]
    (line,) = told(results({**both, "loca-ease": some}))
    assert "no local model is asked" not in line


def test_rivals_above_what_is_printed_are_named_by_how_much() -> None:
    cells = with_singles({"llorma": [compared(level(0.09))], "slim": [compared(level(0.08))]})
    (line,) = told(results(cells, on=bench("paper", printed="AMusic")))
    assert line.startswith(
        "Hand, paper: 2 of 8 rivals have more NDCG@100 here than is printed for them, with the settings below, most of "
        "all LLORMA 0.0900 (printed 0.0638), SLIM 0.0800 (printed 0.0656)"
    )
    assert told(results(cells, on=bench("clean", printed="AMusic"))) == ()


def test_protocols_that_ask_different_users_are_told_not_to_compare() -> None:
    def of(protocol: ProtocolName, users: int) -> Results:
        some = Interactions.from_matrix(histories().matrix()[:users])
        data = StudiedData("hand", "Hand", some)
        return results({}, on=Bench(data, protocol, data.split(protocol), SCALE))

    assert told(of("clean", 40), of("paper", 40)) == ()
    (line,) = told(of("clean", 30), of("paper", 40))
    assert line.startswith("Hand: `paper` asks 40 users and `clean` 30,")
