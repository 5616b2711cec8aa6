"""The laboratory: the paper's models, tables, figures and controls, and the demonstration."""

from loca.paper.presets import (
    ensemble_ease,
    ensemble_vae,
    llorma_vae,
    loca_ease,
    loca_vae,
    mult_vae,
)

__all__ = ["ensemble_ease", "ensemble_vae", "llorma_vae", "loca_ease", "loca_vae", "mult_vae"]
