"""What is worth knowing of a fitted model beside its figures, and what its first local models reach alone."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from loca.errors import ConfigError
from loca.experiments.protocols import Outcome, Terms
from loca.local.ensemble import Ensemble
from loca.local.first_models import FirstModels, keep_first
from loca.local.loca import Loca
from loca.models.recommender import Recommender, fitted
from loca.ranking.evaluation import Evaluation, evaluate


def measure_first(outcome: Outcome, count: int, terms: Terms) -> Evaluation:
    """What the first `count` models reach on the questions of the outcome, or all of them."""
    model = outcome.model
    if not isinstance(model, Loca | Ensemble):
        raise ConfigError(f"counts: are for local models and ensembles, found {type(model).__name__}")
    if count == (model.anchors if isinstance(model, Loca) else model.models):
        return outcome.evaluation
    return evaluate(FirstModels(model, count), outcome.asked, at=terms.at, seed=terms.seed)


def facts_of(model: Recommender, counts: Sequence[int] = ()) -> dict[str, Any]:
    """What a cell keeps of a model by name, as JSON values, and of the machine that it was computed on.

    Of a Loca: α, epochs, bandwidths in units, the share of its users that it covers, also by the first `counts`
    communities alone, the mean share that a community trains on, counted and in effect, and how many communities
    answer a user; of an ensemble the epochs.
    """
    facts: dict[str, Any] = {"machine": describe_machine(), "torch": str(torch.__version__)}
    if isinstance(model, Ensemble):
        facts["epochs"] = model.epochs_
    if isinstance(model, Loca):
        communities = fitted(model.communities_, model)
        facts |= {
            "alpha": model.alpha_,
            "epochs": model.local_epochs_,
            "train_bandwidth": communities.train_bandwidth,
            "answer_bandwidth": communities.answer_bandwidth,
            "coverage": communities.coverage,
        }
        if model.locality_ is not None:
            facts |= {"effective_share": model.locality_.effective_share, "answering": model.locality_.answering}
        facts |= _shares_of_users(model, counts)
    return facts


def _shares_of_users(model: Loca, counts: Sequence[int]) -> dict[str, Any]:
    """The shares of the users that the model knows; nothing where it knows none."""
    if model.known_ is None:
        return {}
    communities = fitted(model.communities_, model)
    embeddings = model.embed(model.known_.histories())
    answering = communities.answer_weights(embeddings)
    trained = [np.count_nonzero(communities.train_weights(embeddings, one)) for one in range(len(communities))]
    covered = {str(one): float((np.diff(keep_first(answering, one).indptr) > 0).mean()) for one in counts}
    return {
        "coverage_by_count": covered,
        "train_share": float(np.mean(trained)) / len(embeddings),
        "answer_share": answering.nnz / (len(embeddings) * len(communities)),
    }


def describe_machine() -> str:
    """The accelerator, if any, and the cores of this machine, in a few words."""
    cores = f"{os.cpu_count()} cores, {platform.machine()}"
    return f"{torch.cuda.get_device_name(0)}, {cores}" if torch.cuda.is_available() else cores
