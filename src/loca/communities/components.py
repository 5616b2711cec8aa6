"""How many components a mixture should have, by the likelihood of held-out items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.multinomial_mixture import (
    ADVICE,
    LEAST_RISE,
    MultinomialMixture,
    Sample,
    check_component_count,
    row_sums,
    with_entries,
)
from loca.data.interactions import Interactions, as_histories
from loca.deferred import torch
from loca.errors import check_counts
from loca.memory import DataSize, plan_memory
from loca.progress import bar, say
from loca.typing import FloatArray


class ComponentChoice(NamedTuple):
    """A number of components, and the log-likelihood of a held-out item with 1 and with each that was tried.

    `errors` are the standard errors, over the users, of the differences from the largest likelihood.
    """

    components: int
    likelihoods: Mapping[int, float]
    errors: Mapping[int, float]


def choose_components(
    train: Interactions | csr_array,
    among: Sequence[int] = (4, 8, 16, 32, 64),
    *,
    user_weights: FloatArray | None = None,
    share: float = 0.85,
    evidence: float = 20.0,
    rounds: int = 30,
    starts: int = 2,
    seed: int = 0,
    device: str = "auto",
) -> ComponentChoice:
    """Choose the components of a mixture by the likelihood of held-out items.

    The fewest are taken that reach `share` of the largest gain over a single component, to within a standard error over
    the users. The last few percent take many more components, each with fewer users to learn from.

    Parameters
    ----------
    train : Interactions or csr_array
        What a mixture is to be fitted on; of many users a sample is used.
    among : sequence of int, default (4, 8, 16, 32, 64)
        The numbers to try; those above the number of users are left out.
    user_weights : ndarray or None, default None
        One weight ≥ 0 per user; None weights all alike.
    share : float, default 0.85
        Of the gain in log-likelihood; 1 takes the fewest that are as good as the best.
    evidence, starts, seed
        As for `MultinomialMixture`.
    device : str, default "auto"
        Where they are fitted.
    rounds : int, default 30
        Rounds of EM for each.

    Returns
    -------
    ComponentChoice
    """
    check_counts(**{f"among[{place}]": one for place, one in enumerate(among)})
    rows = as_histories(train)
    if user_weights is None:
        user_weights = np.ones(rows.shape[0], np.float32)
    rows, weights = with_entries(rows, user_weights)
    check_component_count(min(among), rows.shape[0])
    tried = sorted({1, *(one for one in among if one <= rows.shape[0])})
    use = MultinomialMixture(components=tried[-1], starts=starts).memory_bytes(
        DataSize.of(rows, validated=False, device=device)
    )
    plan_memory(f"{tried[-1]} communities of {rows.shape[0]:,} users", use.main, ADVICE)
    sample = Sample.of(rows, weights, tried[-1], seed)
    sums: dict[int, npt.NDArray[np.float64]] = {}
    with bar("components: rounds of EM", rounds * len(tried)) as progress:
        for components in tried:
            model = MultinomialMixture(components=components, evidence=evidence, seed=seed)
            found, of_users = sample.try_starts(
                model, starts, rounds, torch.device(use.device_name), progress
            )
            sums[components] = of_users[:, int(found.held_out.argmax())]
    entries = row_sums(sample.held)
    total = max(float(entries.sum()), 1e-9)
    likelihoods = {one: float(of_users.sum()) / total for one, of_users in sums.items()}
    best = max((one for one in tried if one in among), key=lambda one: likelihoods[one])
    errors = {}
    for one, of_users in sums.items():
        differences = of_users - sums[best] - (likelihoods[one] - likelihoods[best]) * entries
        errors[one] = float(np.sqrt(np.square(differences).sum())) / total
    # Less than what ends EM is no gain either.
    enough = (
        share * likelihoods[best]
        + (1 - share) * likelihoods[1]
        - LEAST_RISE * abs(likelihoods[best])
    )
    chosen = next(
        (one for one in tried if one in among and likelihoods[one] >= enough - errors[one]), best
    )
    listed = ", ".join(f"{one}: {likelihood:.4f}" for one, likelihood in likelihoods.items())
    say(f"components: {chosen} by the log-likelihood of a held-out item ({listed})")
    return ComponentChoice(chosen, likelihoods, errors)
