"""Small fitted objects with declared state, to be saved and loaded, and how to compare them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.errors import ConfigError
from loca.persistence import load_model, save_model
from loca.persistence.learned import LearnedPart, Learner, declare, learned
from loca.persistence.learned_fields import LearnedField, Sizes
from loca.persistence.manifest import ModelState, get_params, is_model


@dataclass(frozen=True)
class Share:
    """A value object that checks itself, as bandwidths do."""

    of: float
    note: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.of <= 1:
            raise ConfigError(f"share: expected a number from 0 to 1, found {self.of!r}")


@dataclass(frozen=True, kw_only=True)
class LearnedStore(LearnedField):
    """All arrays, or all facts, of any names."""

    store: str

    def write(self, name: str, value: dict[str, Any], state: ModelState) -> None:
        getattr(state, self.store).update(value)

    def read(self, name: str, state: ModelState, sizes: Sizes, owner: Any) -> dict[str, Any]:
        values = dict(getattr(state, self.store))
        getattr(state, self.store).clear()
        return values


@dataclass(frozen=True, kw_only=True)
class LearnedPartStore(LearnedPart):
    """All parts, of any names."""

    def parts(self, name: str, value: dict[str, Any]) -> dict[str, Any]:
        return value

    def read(self, name: str, state: ModelState, sizes: Sizes, owner: Any) -> dict[str, Any]:
        parts = dict(state.parts)
        state.parts.clear()
        return parts

    def validate(self, value: dict[str, Any], sizes: Sizes, owner: Any) -> None:
        for part in value.values():
            super().validate(part, sizes, owner)


@dataclass(kw_only=True, eq=False)
class Leaf(Learner):
    """A model without parts: one array and any parameter."""

    strength: Any = 1.0
    share: Any = None
    train_data_: Interactions | None = field(default=None, init=False)
    weights_: Any = learned("rows", "columns")

    def fit(self, train: Interactions | None, rng: np.random.Generator) -> Self:
        self.train_data_ = train
        self.weights_ = rng.normal(size=(7, 3)).astype(np.float32)
        return self


@dataclass(kw_only=True, eq=False)
class Tree(Learner):
    """A model with arrays of all kinds, facts, and models inside it, of any names."""

    base: Any = None
    options: Any = ()
    anchors: int = 3
    train_data_: Interactions | None = field(default=None, init=False)
    arrays_: dict[str, Any] = declare(LearnedStore(store="arrays"))
    facts_: dict[str, Any] = declare(LearnedStore(store="facts"))
    parts_: dict[str, Any] = declare(LearnedPartStore(kind=Learner))

    def __post_init__(self) -> None:
        if not isinstance(self.anchors, int) or self.anchors < 1:
            raise ConfigError(f"anchors: expected at least 1, found {self.anchors!r}")
        self.arrays_ = {}
        self.facts_ = {}
        self.parts_ = {}

    def fit(self, train: Interactions | None) -> Self:
        self.train_data_ = train
        return self


KINDS: dict[str, type] = {"Leaf": Leaf, "Tree": Tree, "Share": Share}


def example_interactions(kind: str = "text") -> Interactions:
    """Return three users and four items with ids of a kind, titles, times and a recency."""
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
    """Return a fitted tree two levels deep; other seeds give other numbers everywhere."""
    rng = np.random.default_rng(seed)
    known = example_interactions() if known is None else known
    inner = Tree(base=None, anchors=seed + 1).fit(None)
    inner.parts_ = {"deep": Leaf(strength=np.float32(0.1)).fit(None, rng)}
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
    shared = Leaf(share=rng.normal(size=3)).fit(None, rng)
    model.parts_ = {"global": shared, "local 0": inner, "centre": shared}
    return model


def load(folder: Path) -> Any:
    """Return the model of a folder, with the example kinds."""
    return load_model(folder, KINDS)


def through_a_folder(model: Any, folder: Path) -> Any:
    """Return the model again, saved and loaded."""
    save_model(model, folder)
    return load(folder)


def same(left: Any, right: Any) -> bool:
    """Return whether values, models or trees are equal to the last bit and of the same types."""
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
            same(getattr(left, attribute.name), getattr(right, attribute.name))
            for attribute in dataclasses.fields(left)
        )
    return bool(left == right)


def _learned(model: Any) -> dict[str, Any]:
    names = [declared.name for declared in dataclasses.fields(model)]
    return {name: getattr(model, name) for name in names if name.endswith("_")}
