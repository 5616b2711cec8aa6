"""Figure 2 as it is measured: where its models stop, and what they learn from, is known by a script."""

from __future__ import annotations

from typing import Any

import pytest
from scipy.sparse import csr_array
from tiny_bench import TINY

from loca.local.loca import Loca
from loca.models.recommender import Recommender
from loca.reproduction import figure2 as pilot_figure
from loca.reproduction.benchmark import Benchmark, Records
from loca.reproduction.data_sets import StudiedData
from loca.tuning.model_selection import ProtocolName
from scripted_models import (
    ON_TEST,
    RIGHT_ON_TEST,
    RIGHT_ON_VALIDATION,
    SECOND,
    Scripted,
    scripted_interactions,
    scripted_split,
)

# The best epoch on validation is the first, the best on test the second.
SCRIPT = (RIGHT_ON_VALIDATION, RIGHT_ON_TEST)


def measured(protocol: ProtocolName) -> tuple[Records, list[csr_array]]:
    """The records of one seed with MultVAEs that go by the script, and every matrix that a model has learned from."""
    learned_from: list[csr_array] = []

    class Noting(Scripted):
        def begin(self, matrix: csr_array, user_weights: Any, moments: Any = None) -> Any:
            learned_from.append(matrix)
            return super().begin(matrix, user_weights, moments)

    class ScriptedBench(Benchmark):
        def model(self, name: str, seed: int = 0) -> Recommender:
            network = Noting(script=SCRIPT)
            return Loca(base=network) if name == "loca-vae" else network

    data = StudiedData("scripted", "scripted", scripted_interactions())
    first, *_ = pilot_figure.measurings(ScriptedBench(data, protocol, scripted_split(), TINY))
    return first.measure(), learned_from


@pytest.mark.parametrize(("protocol", "reached"), [("clean", SECOND), ("paper", 1.0)], ids=["clean", "paper"])
def test_every_model_of_figure_2_stops_where_the_protocol_chooses(protocol: ProtocolName, reached: float) -> None:
    records, _ = measured(protocol)
    found = {(line["model"], line["share"], line["anchor"]): line["ndcg@100"] for line in records}
    asked = [("MultVAE", None), *(("local", share) for share in pilot_figure.SHARES)]
    assert found == {(*model, anchor): pytest.approx(reached) for model in asked for anchor in range(TINY.pilot_models)}


def test_under_clean_no_model_of_figure_2_learns_from_what_test_asks_for() -> None:
    _, learned_from = measured("clean")
    assert len(learned_from) == 1 + len(pilot_figure.SHARES) * TINY.pilot_models
    assert [matrix[:, [ON_TEST]].nnz for matrix in learned_from] == [0] * len(learned_from)
