"""Small models that keep the recommender's contract, to be saved and loaded, and how to compare them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.errors import ConfigError, NotFittedError
from loca.persistence import load_model, save_model
from loca.persistence.manifest import ModelState, get_params, is_model


@dataclasses.dataclass(frozen=True)
class Share:
    """A value object that checks itself, as bandwidths do."""

    of: float
    note: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.of <= 1:
            raise ConfigError(f"share: expected a number from 0 to 1, found {self.of!r}")


class Leaf:
    """A model without parts: one array and any parameter."""

    def __init__(self, *, strength: Any = 1.0, share: Any = None) -> None:
        self.strength = strength
        self.share = share
        self.train_data_: Interactions | None = None
        self.weights_: np.ndarray | None = None

    def fit(self, train: Interactions, rng: np.random.Generator) -> Self:
        self.train_data_ = train
        self.weights_ = rng.normal(size=(7, 3)).astype(np.float32)
        return self

    def state(self) -> ModelState:
        if self.weights_ is None:
            raise NotFittedError("this Leaf has not been fitted")
        return ModelState(arrays={"weights": self.weights_})

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        model = cls(**params)
        weights = state.arrays["weights"]
        if weights.ndim != 2:
            raise ValueError(f"weights:\n expected 2 axes, found {weights.ndim}")
        model.weights_ = weights
        return model


class Tree:
    """A model with arrays of all kinds, facts, and models inside it."""

    def __init__(self, *, base: Any = None, options: Any = (), anchors: int = 3) -> None:
        if not isinstance(anchors, int) or anchors < 1:
            raise ConfigError(f"anchors: expected at least 1, found {anchors!r}")
        self.base = base
        self.options = options
        self.anchors = anchors
        self.train_data_: Interactions | None = None
        self.arrays_: dict[str, np.ndarray] = {}
        self.facts_: dict[str, Any] = {}
        self.parts_: dict[str, Any] = {}

    def fit(self, train: Interactions | None) -> Self:
        self.train_data_ = train
        return self

    def state(self) -> ModelState:
        return ModelState(self.arrays_, self.facts_, self.parts_)

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        model = cls(**params)
        model.arrays_, model.facts_, model.parts_ = (
            dict(state.arrays),
            dict(state.facts),
            dict(state.parts),
        )
        return model


KINDS: dict[str, type] = {"Leaf": Leaf, "Tree": Tree, "Share": Share}


def example_interactions(kind: str = "text") -> Interactions:
    """Three users and four items with ids of a kind, titles, times and a recency."""
    user_ids: dict[str, Any] = {
        "text": ["ann", "bö\n", "\ud800x"],
        "int": [7, -1, 2**62],
        "float": [0.1, -2.0, 1e300],
    }
    users = IdMap(np.array(user_ids[kind], dtype=object if kind == "text" else None), "user")
    items = IdMap(
        np.array([30, 10, 20, 40], dtype=np.int32),
        "item",
        np.array(["a", "ü, b", "", "d"], dtype=object),
    )
    times = np.array([1.5, 1.5, 9.25, 3.0, 4.0])
    offsets, item_rows = np.array([0, 3, 3, 5]), np.array([2, 0, 1, 3, 0])
    return Interactions(users, items, offsets, item_rows, times, Recency(2.5, "time"))


def example_model(seed: int = 0, known: Interactions | None = None) -> Tree:
    """A fitted tree two levels deep; other seeds give other numbers everywhere."""
    rng = np.random.default_rng(seed)
    known = example_interactions() if known is None else known
    inner = Tree(base=None, anchors=seed + 1).fit(None)
    inner.parts_ = {"deep": Leaf(strength=np.float32(0.1)).fit(known, rng)}
    model = Tree(
        base=Leaf(strength=(1, 2.5), share=Share(0.25, "é")), options={"a": [1, None]}, anchors=5
    ).fit(known)
    model.arrays_ = {
        "half": rng.normal(size=(2, 5)).astype(np.float16),
        "single": rng.normal(size=(4, 3)).astype(np.float32),
        "double": rng.normal(size=6),
        "whole": rng.integers(-5, 5, size=(2, 3, 2)),
        "small": rng.integers(0, 255, size=5).astype(np.uint8),
        "flags": rng.random(4) > 0.5,
        "none": np.zeros((0, 4), np.float32),
        "one": np.array(seed + 0.5),
    }
    model.facts_ = {"epochs": seed, "scores": [0.25, float("inf")], "by": {3: "three", "$x": ()}}
    model.parts_ = {"global": Leaf(share=rng.normal(size=3)).fit(known, rng), "local/0": inner}
    return model


def load(folder: Path) -> Any:
    """The model of a folder, with the example kinds."""
    return load_model(folder, KINDS)


def through_a_folder(model: Any, folder: Path) -> Any:
    """The model again, saved and loaded."""
    save_model(model, folder)
    return load(folder)


def same(left: Any, right: Any) -> bool:
    """Whether two values, models or whole trees are equal to the last bit and of the same types."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray) and left.dtype != object:
        alike = left.dtype == right.dtype and left.shape == right.shape
        return bool(alike and left.tobytes() == right.tobytes())
    if isinstance(left, np.ndarray | list | tuple):
        return len(left) == len(right) and all(
            same(*pair) for pair in zip(left, right, strict=True)
        )
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, float | np.floating):
        return repr(left) == repr(right)
    if is_model(left):
        return same(get_params(left), get_params(right)) and same(_learned(left), _learned(right))
    if dataclasses.is_dataclass(left):
        return all(
            same(getattr(left, one.name), getattr(right, one.name))
            for one in dataclasses.fields(left)
        )
    return bool(left == right)


def _learned(model: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(model).items() if name.endswith("_")}
