"""Saving and loading a model as a folder of safetensors and JSON: whole or not at all, never running code."""

from loca.files.loading import load_model
from loca.files.saving import save_model

__all__ = ["load_model", "save_model"]
