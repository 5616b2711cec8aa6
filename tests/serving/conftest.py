"""A service of small models."""

from __future__ import annotations

from pathlib import Path

import pytest

import loca
from loca.data.synthetic import PlantedData


@pytest.fixture(scope="session")
def model_folder(planted: PlantedData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A local EASE with communities of a mixture."""
    folder = tmp_path_factory.mktemp("served") / "films.loca"
    local = loca.Loca(
        base=loca.EASE(l2=20.0),
        communities=loca.Mixtures(n=4, mixtures=1),
        combiner=loca.FixedShare(0.3),
    )
    local.fit(planted.interactions).save(folder)
    return folder
