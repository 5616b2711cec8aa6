"""The findings of Table 2: each claim of the paper matches or differs by itself; what it does not claim is found."""

from __future__ import annotations

import pytest
from result_examples import compared, level, results

from loca.reproduction.accuracy_table import make

VAE_BASE, VAE_ENSEMBLE = "LOCA_VAE against its base", "LOCA_VAE against the ensemble of as many"
EASE_BASE, EASE_ENSEMBLE = "LOCA_EASE against its base", "LOCA_EASE against the ensemble of as many"
DAE_BASE, DAE_ENSEMBLE = "LOCA_DAE against its base", "LOCA_DAE against the ensemble of as many"
VAE_BEST = "the better LOCA, LOCA_VAE against the best single model"
EASE_BEST = "the better LOCA, LOCA_EASE against the best single model"
# MultVAE is the best single model; every LOCA is above its base, its ensemble and MultVAE.
ABOVE = {
    "mult-vae": 0.25,
    "ensemble-vae": 0.26,
    "loca-vae": 0.30,
    "ease": 0.24,
    "ensemble-ease": 0.25,
    "loca-ease": 0.28,
    "mult-dae": 0.23,
    "ensemble-dae": 0.24,
    "loca-dae": 0.27,
}
CLAIMED = (VAE_BEST, VAE_BASE, VAE_ENSEMBLE, EASE_BASE)
FOUND = (EASE_ENSEMBLE, DAE_BASE, DAE_ENSEMBLE)
ALL_BETTER = dict.fromkeys(CLAIMED, ("matches", "better")) | dict.fromkeys(FOUND, ("found", "better"))


def told(levels: dict[str, float]) -> dict[str, tuple[str, str]]:
    """The kind and the verdict of every finding by what it is on, in their order; every user has the level."""
    cells = {name: [compared(level(value), chosen_by=float(name == "mult-vae"))] for name, value in levels.items()}
    findings = make([results(cells)]).findings
    by_text = {one.text.removeprefix("Hand, clean: ").split(" (")[0]: one for one in findings}
    assert len(by_text) == len(findings)
    return {what: (one.kind, one.text.rstrip(".").rsplit(", ", 1)[1]) for what, one in by_text.items()}


def test_findings_are_on_the_paper_s_claims_and_the_rest_is_found() -> None:
    assert list(told(ABOVE).items()) == list(ALL_BETTER.items())


@pytest.mark.parametrize(
    ("levels", "turned"),
    [
        ({"mult-vae": 0.40}, {VAE_BEST, VAE_BASE}),
        ({"ensemble-vae": 0.40}, {VAE_ENSEMBLE}),
        ({"ease": 0.40}, {EASE_BASE}),
        ({"ensemble-ease": 0.40}, {EASE_ENSEMBLE}),
        ({"mult-dae": 0.40}, {DAE_BASE}),
        ({"ensemble-dae": 0.40}, {DAE_ENSEMBLE}),
    ],
    ids=lambda one: "+".join(one) if isinstance(one, dict) else "",
)
def test_a_claim_that_does_not_hold_differs_and_what_is_only_found_stays_found(
    levels: dict[str, float], turned: set[str]
) -> None:
    expected = {what: ("differs" if what in CLAIMED else "found", "worse") for what in turned}
    assert told({**ABOVE, **levels}) == ALL_BETTER | expected


def test_the_better_of_the_two_is_held_against_the_best_single_model_and_never_the_dae() -> None:
    ease = told({**ABOVE, "loca-vae": 0.20})
    assert (ease[EASE_BEST], VAE_BEST in ease) == (("matches", "better"), False)
    neither = told({**ABOVE, "loca-vae": 0.20, "loca-ease": 0.22, "loca-dae": 0.90})
    assert (neither[EASE_BEST], VAE_BEST in neither) == (("differs", "worse"), False)
    assert told({"mult-vae": 0.25, "loca-dae": 0.90}) == {}


def test_as_good_is_not_better() -> None:
    found = told({**ABOVE, "loca-vae": 0.25, "loca-ease": 0.25, "ensemble-vae": 0.25, "ease": 0.25})
    assert [found[what] for what in CLAIMED] == [("differs", "undecided")] * 4
