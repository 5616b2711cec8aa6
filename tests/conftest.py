"""What many tests share: small planted data with its split, and the folder of real data where there is one."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings
from scipy.sparse import csr_array

from loca.data.interactions import Interactions
from loca.data.splits import HeldOut, Split, leave_last_out
from loca.data.synthetic import PlantedData, planted_communities
from loca.progress import set_progress
from machine import all_bytes, usable_cores, warn_of_small_machine
from scripted_models import Diary

torch.set_num_threads(1)
set_progress(False)
# The same examples every time, however busy the machine is; a test that needs more or fewer says so.
settings.register_profile("suite", max_examples=40, deadline=None, derandomize=True)
settings.load_profile("suite")


def pytest_configure(config: pytest.Config) -> None:
    """Caveats are no news in tests: those that look for one catch it."""
    config.addinivalue_line("filterwarnings", "ignore::loca.remarks.LocaWarning")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Says once, where all is begun, that the machine is too small."""
    warning = warn_of_small_machine(usable_cores(), all_bytes())
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if warning and reporter is not None and not hasattr(session.config, "workerinput"):
        reporter.write_line(warning, yellow=True)


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
def grouped_split() -> Split:
    """400 users of four communities that like different items, and nothing else.

    Inside a community items are alike: only who belongs to it knows what comes next.
    """
    rng = np.random.default_rng(0)
    n_users, n_items, n_taken = 400, 80, 14
    groups = rng.integers(0, 4, n_users)
    is_liked = np.arange(n_items) % 4 == groups[:, None]
    tastes = np.where(is_liked, 3.0, 0.0) + rng.gumbel(size=(n_users, n_items))
    taken = np.argsort(-tastes, axis=1)[:, :n_taken]
    starts = np.arange(0, taken.size + 1, n_taken)
    matrix = csr_array((np.ones(taken.size), taken.ravel(), starts))
    return leave_last_out(Interactions.from_matrix(matrix), test=3, validation=3)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of public data sets named by LOCA_DATA; tests that need it are skipped where it is not set."""
    folder = os.environ.get("LOCA_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip(
            "needs public data sets: set LOCA_DATA to a folder with amusic/, ml-1m/, … in it"
        )
    return Path(folder)


@pytest.fixture
def diary() -> type[Diary]:
    return Diary


def planted_split_with(drift: float, seed: int = 0) -> Split:
    """600 users, 80 items, the last 3 of each user for test and the 3 before them for validation."""
    planted = planted_communities(
        users=600, items=80, communities=2, groups=8, tastes=1.0, history=24, drift=drift, seed=seed
    )
    return leave_last_out(planted.interactions, test=3, validation=3)


@pytest.fixture
def orderless_split(request: pytest.FixtureRequest) -> Split:
    """Data whose order is without meaning; the seed is the fixture's parameter."""
    return planted_split_with(drift=0.0, seed=request.param)


@pytest.fixture(scope="session")
def drifting_split() -> Split:
    """Tastes change midway, so that a recency earns."""
    return planted_split_with(drift=1.0)
