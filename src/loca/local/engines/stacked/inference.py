"""Trained networks that answer together: what a stack leaves behind, and what a file maps into memory."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F

from loca.errors import ModelFileError
from loca.local.engines.stacked.ops import multiplies_densely, padded
from loca.local.local_models import LocalModels
from loca.models.autoencoder import Autoencoder
from loca.models.devices import SparseRows, choose_device, float32_products, free_bytes
from loca.models.recommender import ItemRows, Scores, check_histories
from loca.models.similarity import cosines
from loca.models.training import AutoencoderModel
from loca.persistence.learned import declare
from loca.persistence.learned_fields import LearnedField, Sizes
from loca.persistence.manifest import ModelState

_SHARE_FOR_WEIGHTS = 0.7
FEW_USERS = 64
# Of a code whose variance is learned anew: a spread of 0.05 around the mean that was learned.
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

    def write(self, name: str, value: dict[str, Tensor], state: ModelState) -> None:
        for tensor_name, tensor in value.items():
            state.arrays[tensor_name] = tensor.cpu().numpy()

    def read(self, name: str, state: ModelState, sizes: Sizes, owner: Any) -> dict[str, Tensor]:
        arrays = dict(state.arrays)
        state.arrays.clear()
        _check_shapes(arrays)
        with warnings.catch_warnings():
            # Arrays may be mapped from a file. torch has no read-only tensors and warns; nothing
            # here writes to them.
            warnings.simplefilter("ignore")
            return {key: torch.from_numpy(array) for key, array in arrays.items()}

    def sizes(self, value: dict[str, Tensor]) -> Sizes:
        return {"items": value["output_bias"].shape[1]}


@dataclass(kw_only=True, eq=False, repr=False)
class StackedNetworks(LocalModels):
    """Networks of one shape that answer; of a variational one only what gives the mean of the code.

    `weights_[name]` is (networks, …): `input_table` and `input_bias` into the first layer, `code_…`
    and `back_…` around a hidden layer where there is one, `output_table` and `output_bias` into the
    items.
    """

    variational: bool
    weights_: dict[str, Tensor] = declare(LearnedTensors())
    # What products that are joined may take, of users and of items.
    joined_bytes: ClassVar[int] = 256_000_000

    def __post_init__(self) -> None:
        self.device: torch.device = torch.device("cpu")  # where the answers lie
        self._in_training: Sequence[Autoencoder] = ()
        self._uses_tf32 = False
        self._last: tuple[csr_array, csr_array, InferenceBatch] | None = None

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

    @classmethod
    def of(
        cls, networks: Sequence[Autoencoder], device: torch.device, *, quick: bool = False
    ) -> StackedNetworks:
        """The networks as they are now and will be: while they are trained, their answers, given on a device, change.

        `quick` lets a GPU multiply with fewer bits (tf32), which is still more than 16-bit training has.
        """
        seen = cls(variational=networks[0].variational)
        seen._in_training, seen.device, seen._uses_tf32 = networks, device, quick
        return seen

    def copied(self, precision: str) -> StackedNetworks:
        """The networks as they are now, in memory of their own, in 32 or 16 bits."""
        kind = torch.float32 if precision == "float32" else torch.float16
        done = StackedNetworks(variational=self.variational)
        done.device = self.device
        done.weights_ = {}
        weights = self._weights_of(0)
        home = _home(
            len(self) * kind.itemsize * sum(weight.numel() for weight in weights.values()),
            self.device,
        )
        for name, first in weights.items():
            stack = torch.empty(len(self), *first.shape, dtype=kind, device=home)
            for number in range(len(self)):
                stack[number] = self._weights_of(number)[name]
            done.weights_[name] = stack
        return done

    def _weights_of(self, number: int) -> dict[str, Tensor]:
        """Views of the weights that an answer needs: without the half before the code that gives the log-variance."""
        if not self._in_training:
            return {name: stack[number] for name, stack in self.weights_.items()}
        network = self._in_training[number]
        weights = {name: weight.detach() for name, weight in network.named_parameters()}
        if network.variational:
            before_code = (
                ("code_weight", "code_bias")
                if "code_weight" in weights
                else ("input_table", "input_bias")
            )
            weights |= {name: weights[name][..., : network.latent] for name in before_code}
        return weights

    def network(self, number: int, model: AutoencoderModel) -> Autoencoder:
        """A copy of one network that can be trained; the code of a variational one varies little at first.

        What gave its log-variance is not stored.
        """
        network = model.build(self.count_items(), self.device)
        with torch.no_grad():
            for name, weight in network.named_parameters():
                stored = self.weights_[name][number]
                weight.fill_(_FIRST_LOG_VARIANCE if weight.dim() == 1 else 0.0)
                weight[..., : stored.shape[-1]] = stored
        return network

    def similarities_of(self, number: int, item_rows: ItemRows) -> Scores:
        """Cosines of the weights by which the last layer of one network makes the items' scores."""
        table = self._weights_of(number)["output_table"].to(self.device, torch.float32)
        return cosines(table, item_rows)

    def __len__(self) -> int:
        return len(self._in_training) or len(self.weights_["output_bias"])

    def count_items(self) -> int:
        """How many items they score."""
        return (
            self._in_training[0].item_count
            if self._in_training
            else self.weights_["output_bias"].shape[1]
        )

    @torch.no_grad()
    def blend(self, histories: csr_array, answer_weights: csr_array) -> Tensor:
        """Σ_j w_j · M_j(history) / Σ_j w_j, (users, items); every network runs once, for those it answers for."""
        if (
            self._last is not None
            and self._last[0] is histories
            and self._last[1] is answer_weights
        ):
            batch = self._last[2]
        else:
            self._last = None  # makes room for the new one
            rows = check_histories(histories, self.count_items())
            batch = InferenceBatch(rows, answer_weights, self.device, self._uses_tf32)
            if self._in_training:  # validation comes back with the same one
                self._last = (histories, answer_weights, batch)
        with float32_products("high" if self._uses_tf32 else "highest"):
            return self._blend(batch)

    def _blend(self, batch: InferenceBatch) -> Tensor:
        items = self.count_items()
        room = self._room(len(batch.bias_shares))
        blended = room[:, :items]
        if not batch.pairs:
            return blended.zero_()
        biases = torch.stack([self._weights_of(number)["output_bias"] for number in batch.pairs])
        torch.mm(batch.bias_shares, biases.to(self.device, torch.float32), out=blended)
        if len(blended) == 1 and not self._in_training and "code_weight" not in self.weights_:
            return self._add_for_one(blended, batch)
        answers = self._room(max(own.stop - own.start for own in batch.pairs.values()))
        # Products for everybody wait and are joined: then users × items numbers are read and written once for several.
        waiting: list[tuple[Tensor, Tensor]] = []

        def add_waiting() -> None:
            hidden, tables = (torch.cat(parts, dim=1) for parts in zip(*waiting, strict=True))
            blended.addmm_(hidden, tables.T)
            waiting.clear()

        for number, own in batch.pairs.items():
            weights = {
                name: one.to(self.device, torch.float32)
                for name, one in self._weights_of(number).items()
            }
            codes = batch.codes(number, weights["input_table"]) + weights["input_bias"]
            if "code_weight" in weights:
                codes = torch.tanh(codes) @ weights["code_weight"] + weights["code_bias"]
            if not self.variational:
                codes = torch.tanh(codes)
            if "back_weight" in weights:
                codes = torch.tanh(codes @ weights["back_weight"] + weights["back_bias"])
            hidden, table = (
                batch.shares[own, None] * codes,
                weights["output_table"],
            )  # (users, last), (items, last)
            if len(hidden) < len(blended):
                own_answers = answers[: len(hidden)]
                _multiply(hidden, table, own_answers[:, :items])
                room.index_add_(
                    0, batch.users[own], own_answers
                )  # with the padding: whole rows are added fastest
                continue
            waiting.append(
                (hidden, table)
            )  # for everybody, in the users' order: nothing to look up
            # What waits exists twice when it is joined.
            if 2 * len(waiting) * (hidden.nbytes + table.nbytes) >= self.joined_bytes:
                add_waiting()
        if waiting:
            add_waiting()
        return blended

    def _add_for_one(self, blended: Tensor, batch: InferenceBatch) -> Tensor:
        """Add the answers for a single user: all codes in one go, then one pass over each output table."""
        numbers = torch.tensor(list(batch.pairs), device=self.weights_["input_table"].device)
        entries = next(iter(batch.entries.values()))  # the one history, the same for every network
        columns = batch.rows.columns[entries].to(numbers.device)
        rows = self.weights_["input_table"][numbers[:, None], columns].to(
            self.device, torch.float32
        )
        biases = self.weights_["input_bias"][numbers].to(self.device, torch.float32)
        codes = batch.inputs[entries] @ rows + biases
        hidden = batch.shares[:, None] * (
            codes if self.variational else torch.tanh(codes)
        )  # (networks, last)
        answer = torch.empty_like(blended)
        for place, number in enumerate(batch.pairs):
            table = self.weights_["output_table"][number].to(self.device, torch.float32)
            _multiply(hidden[place : place + 1], table, answer)
            blended += answer
        return blended

    def _room(self, users: int) -> Tensor:
        """Room for users × items scores, every row padded to a multiple of 64 numbers, where products are fastest."""
        return torch.zeros(users, padded(self.count_items()), device=self.device)


def _multiply(hidden: Tensor, table: Tensor, out: Tensor) -> None:
    """hidden @ table.T, (users, items), into `out`.

    On a CPU the product for few users is several times faster as items × users, and for one user as that for two.
    """
    if out.device.type != "cpu" or len(hidden) > FEW_USERS:
        torch.mm(hidden, table.T, out=out)
        return
    columns = torch.cat([hidden, hidden]) if len(hidden) == 1 else hidden
    out.copy_(torch.mm(table, columns.T)[:, : len(hidden)].T)


def _home(size: int, device: torch.device) -> torch.device:
    """Where weights lie: on the device if they leave it room to work, else in main memory, copied as needed."""
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
    sizes["first"] = sizes["last"] = arrays["input_bias"].shape[
        1
    ]  # without a hidden layer one is the other
    if "code_weight" in arrays:
        sizes |= {"code": arrays["code_bias"].shape[1], "last": arrays["output_table"].shape[2]}
    wrong = [
        name
        for name, shape in shapes.items()
        if arrays[name].shape != tuple(sizes[size] for size in shape)
    ]
    if wrong or not arrays["output_bias"].size:
        raise ModelFileError(
            f"networks: the arrays do not fit each other: {', '.join(wrong) or 'they are empty'}"
        )


class InferenceBatch:
    """Histories and answer weights on the device: every pair of a network and a user, network after network.

    Full histories are laid out as one users × items array and multiplied; of others the rows of a network's table are
    gathered that the history of each pair names.
    """

    def __init__(
        self, histories: csr_array, answer_weights: csr_array, device: torch.device, uses_tf32: bool
    ) -> None:
        """The batch as a device sees it; `uses_tf32` says that its products have fewer bits there."""
        by_network, (count, self.items) = answer_weights.tocsc(), histories.shape
        totals = np.asarray(answer_weights.sum(axis=1), dtype=np.float32).ravel()
        by_network.data = by_network.data.astype(np.float32) / totals[by_network.indices]
        starts, some = (
            by_network.indptr.tolist(),
            np.flatnonzero(np.diff(by_network.indptr)).tolist(),
        )
        self.pairs = {
            number: slice(*starts[number : number + 2]) for number in some
        }  # where a network answers at all
        self.users = torch.from_numpy(by_network.indices.astype(np.int64)).to(device)  # (pairs,)
        self.shares = torch.from_numpy(by_network.data).to(device)  # (pairs,)
        self.bias_shares = torch.from_numpy(by_network[:, some].toarray()).to(
            device
        )  # (users, those networks)
        # The history of each pair, or of each user where they are laid out, and its values scaled to length 1.
        self.rows = SparseRows.of(histories, device)
        self.entries: dict[int, slice] = {}  # the stored entries of each network's pairs
        self.laid_out: Tensor | None = (
            None  # (users, padded items): rows are aligned, also those of some users
        )
        if count > 1 and multiplies_densely(
            histories, device, "bfloat16" if uses_tf32 else "float32"
        ):
            self.inputs, width = self.rows.unit_values(), padded(self.items)
            self.laid_out = torch.zeros(count, width, device=device)
            self.laid_out.view(-1)[self.rows.owner * width + self.rows.columns] = self.inputs
        else:
            self.rows = self.rows.of_users(self.users)
            self.inputs = self.rows.unit_values()
            bounds = torch.tensor(
                [starts[number : number + 2] for number in some], dtype=torch.int64
            ).view(-1, 2)
            ends = self.rows.starts[bounds.to(device)].tolist()
            self.entries = {number: slice(*pair) for number, pair in zip(some, ends, strict=True)}

    def codes(self, number: int, table: Tensor) -> Tensor:
        """Σ input · table row over the items of each of one network's users, (users, width)."""
        own = self.pairs[number]
        if self.laid_out is not None:
            everybody = own.stop - own.start == len(
                self.laid_out
            )  # in the users' order: nothing to look up
            return (self.laid_out if everybody else self.laid_out[self.users[own]])[
                :, : self.items
            ] @ table
        entries = self.entries[number]
        starts = self.rows.starts[own] - entries.start
        columns, inputs = self.rows.columns[entries], self.inputs[entries]
        return F.embedding_bag(columns, table, starts, mode="sum", per_sample_weights=inputs)
