"""One seed in, named independent random streams out: the same seed and name give the same numbers."""

from __future__ import annotations

import hashlib

import numpy as np


def derive_seed(seed: int, *names: str | int) -> int:
    """A 63-bit seed for the stream called `names`, independent of every other name under the same seed."""
    text = "/".join([str(seed), *(f"{type(name).__name__}:{name}" for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The numpy generator of the stream called `names`."""
    return np.random.default_rng(derive_seed(seed, *names))
