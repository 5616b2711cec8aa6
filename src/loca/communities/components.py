"""The choice of how many components a mixture has, by the likelihood of held-out items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.em import LEAST_RISE
from loca.communities.mixture_memory import ADVICE, MixtureWork
from loca.communities.mixture_starts import (
    Sample,
    check_component_count,
    learning_users,
    sample_size,
)
from loca.communities.sparse_rows import row_sums
from loca.data.interactions import Interactions, as_histories
from loca.deferred import torch
from loca.errors import ConfigError, check_counts
from loca.memory import DataSize, plan_memory
from loca.models.params import check_param, is_number
from loca.progress import bar, say
from loca.typing import FloatArray

_Sums = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ComponentChoice:
    """A number of components, and what it was chosen by.

    Attributes
    ----------
    components : int
        The number.
    log_likelihoods : mapping of int to float
        The mean log-likelihood of a held-out item with 1 component and with each number that was
        tried.
    standard_errors : mapping of int to float
        Those of the differences from the largest likelihood, over the users.
    """

    components: int
    log_likelihoods: Mapping[int, float]
    standard_errors: Mapping[int, float]


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

    The fewest are taken that reach `share` of the largest gain over a single component, to within a
    standard error over the users. The last few percent take many more components, each with fewer
    users to learn from.

    Parameters
    ----------
    train : Interactions or csr_array
        What a mixture is to be fitted on; of many users a sample is used.
    among : sequence of int, default (4, 8, 16, 32, 64)
        The numbers to try; those above the number of users are left out.
    user_weights : ndarray or None, default None
        One weight ≥ 0 per user; None weights all alike.
    share : float, default 0.85
        Of the gain in log-likelihood, from 0 to 1; 1 takes the fewest that are as good as the best.
        The default is chosen by hand.
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
    if not among:
        raise ConfigError("among: expected at least one number of components, found none")
    check_counts(**{f"among[{place}]": size for place, size in enumerate(among)})
    check_param("share", share, "a number from 0 to 1", _is_share)
    histories = as_histories(train)
    if user_weights is None:
        user_weights = np.ones(histories.shape[0], np.float32)
    histories, weights = learning_users(histories, user_weights)
    n_users = histories.shape[0]
    check_component_count(min(among), n_users)
    allowed = sorted({size for size in among if size <= n_users})
    sizes = sorted({1, *allowed})
    run_on = _planned_device(DataSize.of(histories, validated=False, device=device), sizes, starts)
    sample = Sample.draw(
        histories, weights, n_users=sample_size(sizes[-1]), evidence=evidence, seed=seed
    )
    sums: dict[int, _Sums] = {}
    with bar("components: rounds of EM", rounds * len(sizes)) as progress:
        for size in sizes:
            tried = sample.try_starts(size, starts, rounds, run_on, progress)
            best_start = int(tried.log_likelihoods.argmax())
            sums[size] = sample.weights * tried.user_sums[:, best_start]
    choice = _fewest_enough(sums, sample.weights * row_sums(sample.held_out), allowed, share)
    listed = ", ".join(f"{size}: {mean:.4f}" for size, mean in choice.log_likelihoods.items())
    say(f"components: {choice.components} by the log-likelihood of a held-out item ({listed})")
    return choice


def _is_share(value: object) -> bool:
    return is_number(value) and 0 <= value <= 1  # type: ignore[operator]


def _planned_device(data: DataSize, sizes: Sequence[int], starts: int) -> torch.device:
    """Return where the mixtures are fitted; refuse those that need more memory than is free."""
    work = MixtureWork(data, components=sizes[-1], mixtures=1, starts=starts)
    device = work.fitting_device()
    label = f"{sizes[-1]} communities of {data.users:,} users"
    plan_memory(label, work.memory(device).main, ADVICE)
    return device


def _fewest_enough(
    sums: Mapping[int, _Sums], entries: _Sums, allowed: Sequence[int], share: float
) -> ComponentChoice:
    """Return the fewest components that reach a share of the gain, to within a standard error.

    `sums` are each user's weighted log-likelihoods of held-out items by the number of components,
    `entries` the weights of these items.
    """
    n_entries = max(float(entries.sum()), 1e-9)
    means = {size: float(user_sums.sum()) / n_entries for size, user_sums in sums.items()}
    best = max(allowed, key=lambda size: means[size])
    errors = {
        size: _standard_error(user_sums - sums[best], means[size] - means[best], entries)
        for size, user_sums in sums.items()
    }
    # Less than what ends EM is no gain either.
    least_rise = LEAST_RISE * abs(means[best])
    enough = share * means[best] + (1 - share) * means[1] - least_rise
    components = next((size for size in allowed if means[size] >= enough - errors[size]), best)
    return ComponentChoice(components, means, errors)


def _standard_error(sums: _Sums, mean: float, entries: _Sums) -> float:
    """Return the standard error of a mean over entries, of users who have several: a ratio."""
    residuals = sums - mean * entries
    return float(np.sqrt(np.square(residuals).sum())) / max(float(entries.sum()), 1e-9)
