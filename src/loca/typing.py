"""Names for types that pass between modules."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

# The numbers that networks are multiplied in while they learn, and stored in when they answer.
Precision = Literal["float32", "bfloat16"]
StoredPrecision = Literal["float32", "float16"]
