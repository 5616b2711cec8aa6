"""Saving and loading a model as a folder of safetensors and JSON: whole or not at all, never running code."""

from loca.persistence.model_io import load_model, save_model

__all__ = ["load_model", "save_model"]
