"""Networks of one shape that answer together: while they are trained, and as weights in files."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.errors import ModelFileError
from loca.local.engines.stacked.inference import (
    InferenceBatch,
    Weights,
    blend_for_one_user,
    blend_networks,
)
from loca.local.local_models import LocalModels, PreparedBatch
from loca.models.autoencoder import Autoencoder
from loca.models.devices import choose_device, float32_products, free_bytes
from loca.models.recommender import ItemRows, Scores, check_histories
from loca.models.similarity import cosines
from loca.models.training import AutoencoderModel
from loca.persistence.learned import declare
from loca.persistence.learned_fields import LearnedField, Sizes
from loca.persistence.manifest import ModelState
from loca.typing import StoredPrecision

_SHARE_FOR_WEIGHTS = 0.7
# Of a code whose variance is learned anew: a deviation of 0.05 from the mean that was learned.
_FIRST_LOG_VARIANCE = -6.0
_SHAPES = {
    "input_table": ("networks", "items", "first"),
    "input_bias": ("networks", "first"),
    "output_table": ("networks", "items", "last"),
    "output_bias": ("networks", "items"),
}
_SHAPES_WITH_HIDDEN = _SHAPES | {
    "code_weight": ("networks", "first", "code"),
    "code_bias": ("networks", "code"),
    "back_weight": ("networks", "code", "last"),
    "back_bias": ("networks", "last"),
}


@dataclass(frozen=True, kw_only=True)
class LearnedTensors(LearnedField):
    """Named tensors of the same networks, stored as one array each."""

    def write(self, name: str, value: Weights, state: ModelState) -> None:
        """Write the tensors as arrays."""
        for tensor_name, tensor in value.items():
            state.arrays[tensor_name] = tensor.cpu().numpy()

    def read(self, name: str, state: ModelState, sizes: Sizes, owner: Any) -> Weights:
        """Return the arrays as tensors, without a copy; refuse those that do not fit."""
        arrays = dict(state.arrays)
        state.arrays.clear()
        _check_shapes(arrays)
        with warnings.catch_warnings():
            # Arrays may be mapped from a file. torch has no read-only tensors and warns; nothing
            # here writes to them.
            warnings.simplefilter("ignore")
            return {key: torch.from_numpy(array) for key, array in arrays.items()}

    def sizes(self, value: Weights) -> Sizes:
        """Return how many items they score."""
        return {"items": value["output_bias"].shape[1]}


class NetworksInTraining(LocalModels):
    """A view of networks that are being trained: their answers change with them.

    `uses_tf32` lets a GPU multiply with fewer bits, which is still more than 16-bit training has.
    """

    def __init__(
        self, networks: Sequence[Autoencoder], device: torch.device, *, uses_tf32: bool = False
    ) -> None:
        self._networks = networks
        self._uses_tf32 = uses_tf32
        self.device: torch.device = device  # where the answers lie

    def __len__(self) -> int:
        return len(self._networks)

    def count_items(self) -> int:
        """Return how many items they score."""
        return self._networks[0].item_count

    def prepared(self, histories: csr_array, answer_weights: csr_array) -> InferenceBatch:
        """Return the batch on the device, such as that of all validation users."""
        rows = check_histories(histories, self.count_items())
        return InferenceBatch.of(rows, answer_weights, self.device, uses_tf32=self._uses_tf32)

    @torch.no_grad()
    def blend_prepared(self, batch: PreparedBatch) -> Tensor:
        """Return the blended scores of a batch, as the networks are now."""
        if not isinstance(batch, InferenceBatch):
            batch = self.prepared(batch.histories, batch.answer_weights)
        with float32_products("high" if self._uses_tf32 else "highest"):
            return blend_networks(
                batch, self._weights_of, variational=self._networks[0].variational
            )

    def blend(self, histories: csr_array, answer_weights: csr_array) -> Tensor:
        """Return Σ_j w_j · M_j(history) / Σ_j w_j, (users, items)."""
        return self.blend_prepared(self.prepared(histories, answer_weights))

    def stored(self, precision: StoredPrecision) -> StackedNetworks:
        """Return the networks as they are now, in memory of their own."""
        stacked = StackedNetworks(variational=self._networks[0].variational)
        stacked.device = self.device
        kind = torch.float32 if precision == "float32" else torch.float16
        first = self._weights_of(0)
        size = len(self) * kind.itemsize * sum(weight.numel() for weight in first.values())
        home = _home(size, self.device)
        stacked.weights_ = {}
        for name, weights in first.items():
            stack = torch.empty(len(self), *weights.shape, dtype=kind, device=home)
            for number in range(len(self)):
                stack[number] = self._weights_of(number)[name]
            stacked.weights_[name] = stack
        return stacked

    def _weights_of(self, number: int) -> Weights:
        """Return views of the weights that an answer needs.

        These do without the half before the code that gives the log-variance.
        """
        network = self._networks[number]
        weights = {name: weight.detach() for name, weight in network.named_parameters()}
        if network.variational:
            names = ("code_weight", "code_bias")
            if "code_weight" not in weights:
                names = ("input_table", "input_bias")
            weights |= {name: weights[name][..., : network.latent] for name in names}
        return weights


@dataclass(kw_only=True, eq=False, repr=False)
class StackedNetworks(LocalModels):
    """Trained networks of one shape; of a variational one only what gives the mean of the code.

    `weights_[name]` is (networks, …): `input_table` and `input_bias` into the first layer, `code_…`
    and `back_…` around a hidden layer where there is one, `output_table` and `output_bias` into the
    items.
    """

    variational: bool
    weights_: Weights = declare(LearnedTensors())

    def __post_init__(self) -> None:
        self.device: torch.device = torch.device("cpu")  # where the answers lie

    def check(self) -> None:
        """Bring the weights to where they answer."""
        self.to("auto")

    def to(self, device: str) -> Self:
        """Move the answers to a device, and the weights where they leave it room to work."""
        self.device = choose_device(device)
        size = sum(weights.nbytes for weights in self.weights_.values())
        home = _home(size, self.device)
        self.weights_ = {name: weights.to(home) for name, weights in self.weights_.items()}
        return self

    def __len__(self) -> int:
        return len(self.weights_["output_bias"])

    def count_items(self) -> int:
        """Return how many items they score."""
        return self.weights_["output_bias"].shape[1]

    def prepared(self, histories: csr_array, answer_weights: csr_array) -> InferenceBatch:
        """Return the batch on the device."""
        rows = check_histories(histories, self.count_items())
        return InferenceBatch.of(rows, answer_weights, self.device)

    @torch.no_grad()
    def blend_prepared(self, batch: PreparedBatch) -> Tensor:
        """Return the blended scores of a batch."""
        if not isinstance(batch, InferenceBatch):
            batch = self.prepared(batch.histories, batch.answer_weights)
        is_one_user = len(batch.bias_shares) == 1 and bool(batch.pairs)
        with float32_products():
            if is_one_user and "code_weight" not in self.weights_:
                return blend_for_one_user(
                    batch, self._weights_of, self.weights_, variational=self.variational
                )
            return blend_networks(batch, self._weights_of, variational=self.variational)

    def blend(self, histories: csr_array, answer_weights: csr_array) -> Tensor:
        """Return Σ_j w_j · M_j(history) / Σ_j w_j, (users, items)."""
        return self.blend_prepared(self.prepared(histories, answer_weights))

    def _weights_of(self, number: int) -> Weights:
        return {name: stack[number] for name, stack in self.weights_.items()}

    def network(self, number: int, model: AutoencoderModel) -> Autoencoder:
        """Return a copy of one network that can be trained.

        The code of a variational one varies little at first: what gave its log-variance is not
        stored.
        """
        network = model.build(self.count_items(), self.device)
        with torch.no_grad():
            for name, weight in network.named_parameters():
                stored = self.weights_[name][number]
                weight.fill_(_FIRST_LOG_VARIANCE if weight.dim() == 1 else 0.0)
                weight[..., : stored.shape[-1]] = stored
        return network

    def similarities_of(self, number: int, item_rows: ItemRows) -> Scores:
        """Return cosines of the weights by which the last layer of one network scores items."""
        table = self._weights_of(number)["output_table"].to(self.device, torch.float32)
        return cosines(table, item_rows)


def _home(size: int, device: torch.device) -> torch.device:
    """Return where weights lie: on the device if they leave it room to work, else in main memory.

    There they are copied as they are needed.
    """
    return device if size < _SHARE_FOR_WEIGHTS * free_bytes(device) else torch.device("cpu")


def _check_shapes(arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Refuse arrays that are not the weights of networks of one shape, all 32 or all 16 bits."""
    shapes = _SHAPES_WITH_HIDDEN if "code_weight" in arrays else _SHAPES
    if set(arrays) != set(shapes):
        raise ModelFileError(
            f"networks: expected the arrays {sorted(shapes)}, found {sorted(arrays)}"
        )
    if {str(array.dtype) for array in arrays.values()} not in ({"float32"}, {"float16"}):
        raise ModelFileError("networks: expected all arrays in 32 bits or all in 16")
    if any(array.ndim != len(shapes[name]) for name, array in arrays.items()):
        raise ModelFileError("networks: expected arrays of networks × weights")
    sizes = dict(zip(("networks", "items"), arrays["output_bias"].shape, strict=True))
    # Without a hidden layer the first width is the last.
    sizes["first"] = arrays["input_bias"].shape[1]
    sizes["last"] = sizes["first"]
    if "code_weight" in arrays:
        sizes["code"] = arrays["code_bias"].shape[1]
        sizes["last"] = arrays["output_table"].shape[2]
    wrong = [
        name
        for name, shape in shapes.items()
        if arrays[name].shape != tuple(sizes[size] for size in shape)
    ]
    if wrong or not arrays["output_bias"].size:
        problem = ", ".join(wrong) or "they are empty"
        raise ModelFileError(f"networks: the arrays do not fit each other: {problem}")
