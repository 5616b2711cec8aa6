"""How fast this machine finds factors and spectral directions: few users of the true data, timed and scaled up."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import torch
from scipy.sparse import csr_array

from loca.experiments.calibration import FitPace
from loca.experiments.stopwatch import least_seconds, some_rows
from loca.models.recommender import clone
from loca.models.sglsvd import SGLSVD
from loca.models.wmf import WMF

_USERS_FACTORED = {"cpu": 500, "cuda": 8_000}
# Enough that a cluster of a few has its directions sought as one of many does.
_USERS_PER_CLUSTER = 800


def pace_of_wmf(model: WMF, matrix: csr_array, device: torch.device, weighted: bool) -> FitPace:
    """The pace of `fit` on a device, where users count alike or are `weighted`: one iteration with some users.

    Where the library `implicit` does it, an iteration goes with the stored entries; else with the equations.
    """
    part = some_rows(matrix, _USERS_FACTORED[device.type])
    once = clone(model, iterations=1, device=str(device))
    weights = np.linspace(0.5, 1.5, part.shape[0], dtype=np.float32) if weighted else None
    iteration = least_seconds(lambda: once.fit(part, user_weights=weights))
    elsewhere = device.type == "cpu" and model.frequency_scaling == 0 and not weighted and find_spec("implicit")
    more = matrix.nnz / part.nnz if elsewhere else _equations(matrix, model.factors) / _equations(part, model.factors)
    users = int((np.diff(matrix.indptr) > 0).sum())
    answer = least_seconds(lambda: once.score(part)) * users / part.shape[0]
    return FitPace(model.iterations * iteration * more, answer)


def pace_of_sglsvd(model: SGLSVD, matrix: csr_array) -> FitPace:
    """The pace of `fit` with some users: the beginning, and as many rounds as there are at most."""
    part = some_rows(matrix, _USERS_PER_CLUSTER * model.clusters)
    none, one = clone(model, rounds=0), clone(model, rounds=1)
    beginning = least_seconds(lambda: none.fit(part))
    a_round = max(least_seconds(lambda: one.fit(part)) - beginning, 0.0)
    more, users = matrix.nnz / part.nnz, int((np.diff(matrix.indptr) > 0).sum())
    answer = least_seconds(lambda: one.score(part)) * users / part.shape[0]
    return FitPace((beginning + model.rounds * a_round) * more, answer)


def _equations(matrix: csr_array, factors: int) -> float:
    """Multiplications to fill and solve the equations of all users and items, as many unknowns each as are needed."""
    work = 0.0
    for counts in (np.diff(matrix.indptr), np.bincount(matrix.indices, minlength=matrix.shape[1])):
        unknowns = np.minimum(counts, factors).astype(np.float64)
        work += float((counts * unknowns * factors + unknowns**3 / 3).sum())
    return work
