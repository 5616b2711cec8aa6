"""Small models for planted data: an EASE, a network, and a Loca around narrow neighbourhoods."""

from __future__ import annotations

from typing import Any

from loca.communities.embeddings import TruncatedSVD
from loca.communities.geometry import Quantile
from loca.communities.kernel import Kernels
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from scripted_models import NEVER, ON_VALIDATION, ranked

RIGHT = ranked(ON_VALIDATION)
WRONG = ranked(NEVER, ON_VALIDATION)
SURELY_RIGHT = ranked(ON_VALIDATION, scale=10.0)
# Two communities of which everybody is a member alike.
FOR_EVERYBODY = Kernels(n=2, kernel="uniform", train_bandwidth=3.0, answer_bandwidth=3.0)


def small_kernels(**changes: Any) -> Kernels:
    params: dict[str, Any] = {
        "n": 6,
        "embedding": TruncatedSVD(dimensions=8),
        "train_bandwidth": Quantile(0.6),
        "answer_bandwidth": Quantile(0.2),
    }
    return Kernels(**(params | changes))


def small_loca(**changes: Any) -> Loca:
    return Loca(**({"base": EASE(l2=20.0), "communities": small_kernels()} | changes))


def small_vae(**changes: Any) -> MultVAE:
    params: dict[str, Any] = {
        "latent": 8,
        "learning_rate": 2e-2,
        "epochs": 8,
        "patience": 3,
        "batch_size": 100,
    }
    return MultVAE(**(params | changes))
