"""The paper's models with its authors' own settings, to be set beside the printed tables."""

from __future__ import annotations

import loca
from loca.paper.stopping import StopEach


def mult_vae() -> loca.MultVAE:
    """Return the network of the authors' program: little noise, no KL term, a patience of 50."""
    return loca.MultVAE(dropout=0.2, noise=0.01, kl_weight=0.0, epochs=300, patience=50)


def loca_vae() -> loca.Loca:
    """Return LOCA_VAE: narrow communities, each stopped by itself, no share of the global model."""
    return loca.Loca(
        base=mult_vae(),
        communities=loca.Kernels(n=300, train_bandwidth=0.8, answer_bandwidth=0.4),
        combiner=loca.LocalOnly(),
        engine=StopEach(),
    )


def loca_ease() -> loca.Loca:
    """Return LOCA_EASE; the distances are those of MultVAE's embeddings."""
    return loca.Loca(
        base=loca.EASE(l2=100.0),
        communities=loca.Kernels(
            n=300, train_bandwidth=0.6, answer_bandwidth=0.5, embedding=mult_vae()
        ),
        combiner=loca.LocalOnly(),
    )


def ensemble_vae() -> loca.Ensemble:
    """Return the control of LOCA_VAE."""
    return loca.Ensemble(base=mult_vae(), models=300)


def ensemble_ease() -> loca.Ensemble:
    """Return the control of LOCA_EASE."""
    return loca.Ensemble(base=loca.EASE(l2=100.0), models=300)


def llorma_vae() -> loca.Loca:
    """Return what LLORMA does, over MultVAE: one kernel to train and answer, random anchors."""
    width = loca.Quantile(0.9, times=1.3)
    return loca.Loca(
        base=loca.MultVAE(),
        communities=loca.Kernels(anchors="random", train_bandwidth=width, answer_bandwidth=width),
    )
