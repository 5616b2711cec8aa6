"""Save and load models as folders of safetensors and JSON, all at once and without running code."""

from loca.persistence.model_io import load_model, save_model

__all__ = ["load_model", "save_model"]
