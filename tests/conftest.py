"""What many tests share: small planted data with its split, and the folder of real data where there is one."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from loca.data.held_out import HeldOut, Split
from loca.data.synthetic import PlantedData, planted_communities
from loca.progress import show_progress

torch.set_num_threads(1)
show_progress(False)


@pytest.fixture(scope="session")
def planted() -> PlantedData:
    """400 users, 60 items, 2 communities; small, and clear enough for a network to learn in a second."""
    return planted_communities(
        users=400,
        items=60,
        communities=2,
        groups=6,
        tastes=1.0,
        overlap=0.2,
        favour=3.0,
        tail=0.3,
        stray=0.05,
        history=12,
        shortest_history=10,
        seed=5,
    )


@pytest.fixture(scope="session")
def planted_split(planted: PlantedData) -> Split:
    """The last 3 of each user are test, the 2 before them validation."""
    interactions = planted.interactions
    from_the_end = np.repeat(interactions.counts(), interactions.counts()) - interactions.places()
    known = interactions.where(from_the_end > 3)
    train = interactions.where(from_the_end > 5)
    validation = interactions.where((from_the_end > 3) & (from_the_end <= 5))
    test = interactions.where(from_the_end <= 3)
    return Split(train, HeldOut(train, validation), HeldOut(known, test), known)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of public data sets named by LOCA_DATA; tests that need it are skipped where it is not set."""
    folder = os.environ.get("LOCA_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs public data sets: set LOCA_DATA to a folder with amusic/, ml-1m/, … in it")
    return Path(folder)
