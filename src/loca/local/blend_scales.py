"""What a blend asks its parts, and how their answers become comparable: histories at a power, one scale per user."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.errors import ConfigError, DataError
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.mult_dae import MultDAE
from loca.models.mult_vae import MultVAE
from loca.models.network_answers import score_on
from loca.models.recommender import Recommender

ScaleName = Literal["z-score", "log-probability"]
# Scores that differ by less than this, relative to their size, differ by rounding alone.
_ROUNDING = 1e-6


def check_scale(scale: str) -> None:
    """Refuses an unknown scale."""
    if scale not in ("z-score", "log-probability"):
        raise ConfigError(f"scale: expected 'z-score' or 'log-probability', found {scale!r}")


def ask_part(model: Recommender, histories: csr_array, power: float, scale: ScaleName) -> Tensor:
    """The part's scores for histories seen at a power, on one scale per user, (users, items) where the part answers."""
    scores = score_on(model, sharpened(histories, power))
    scaled = scores.log_softmax(dim=1) if scale == "log-probability" and gives_logits(model) else z_scores(scores)
    if not bool(torch.isfinite(scaled).all()):
        raise DataError(
            f"{type(model).__name__}: expected finite scores to blend, found others: has its training diverged?"
        )
    return scaled


def sharpened(histories: csr_array, power: float) -> csr_array:
    """The histories with every value raised to a power: 1 leaves them, 0 lets every stored item count 1."""
    if power == 1:
        return histories
    # A stored item stays seen, however little it counts.
    values = np.maximum(histories.data.astype(np.float32) ** np.float32(power), np.finfo(np.float32).tiny)
    return csr_array((values, histories.indices, histories.indptr), shape=histories.shape)


def z_scores(scores: Tensor) -> Tensor:
    """(score − mean) / standard deviation over each user's items; zeros where all scores are the same but for rounding.

    A part that multiplies all its scores by a number above 0, or adds one to them, says the same.
    """
    centred = scores - scores.mean(dim=1, keepdim=True)
    spread = centred.square().mean(dim=1, keepdim=True).sqrt_()
    flat = spread <= _ROUNDING * scores.abs().amax(dim=1, keepdim=True)
    return centred.div_(spread.masked_fill_(flat, 1.0)).masked_fill_(flat, 0.0)


def gives_logits(model: object) -> bool:
    """Whether log softmax of the scores is a log-probability: networks, and Loca and Ensemble of networks alone."""
    if isinstance(model, Loca):
        return gives_logits(model.base) and (model.global_model is None or gives_logits(model.global_model))
    if isinstance(model, Ensemble):
        return gives_logits(model.base)
    return isinstance(model, MultVAE | MultDAE)
