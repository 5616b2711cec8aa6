"""What a user sees is what it was: documents of commands, scores of models, tables of results.

Where a change is meant, `python tests/golden/write.py` writes the files anew; the diff then shows
what has changed.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from document_differences import differences
from golden_cases import (
    CATALOGUE,
    COMMANDS,
    DIGESTS,
    DOCUMENTS,
    SCORES,
    catalogue_names,
    digests,
    document_of,
    fitted_scores,
    tolerances,
)

GOLDEN_SCORES = {path.stem: json.loads(path.read_text()) for path in sorted(SCORES.glob("*.json"))}


@pytest.fixture(autouse=True)
def _without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The golden numbers are a CPU's, wherever the tests run."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("LOCA_DATA", raising=False)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_answers_as_it_did(name: str, tmp_path: Path) -> None:
    golden = json.loads((DOCUMENTS / f"{name}.json").read_text())
    document = document_of(name, tmp_path)
    assert differences(document, golden, loose=COMMANDS[name].is_trained) == []


@pytest.mark.parametrize("name", GOLDEN_SCORES)
def test_a_model_fitted_at_seed_0_scores_as_it_did(name: str, tmp_path: Path) -> None:
    golden = np.array(GOLDEN_SCORES[name])
    np.testing.assert_allclose(fitted_scores(name, tmp_path), golden, **tolerances(name, golden))


def test_every_model_of_the_catalogue_has_golden_scores() -> None:
    assert set(GOLDEN_SCORES) == set(CATALOGUE)
    assert {name.partition("@")[0] for name in CATALOGUE} == catalogue_names()


def test_the_tables_of_the_results_are_byte_for_byte_what_they_were() -> None:
    golden = dict(reversed(line.split("  ", 1)) for line in DIGESTS.read_text().splitlines())
    assert digests() == golden
