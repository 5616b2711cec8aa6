"""In which numbers networks are multiplied while they learn, and stored when they answer."""

from __future__ import annotations

from typing import Literal

Precision = Literal["float32", "bfloat16"]
StoredPrecision = Literal["float32", "float16"]
