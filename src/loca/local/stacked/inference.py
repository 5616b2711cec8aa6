"""Trained networks side by side, answering together: what a stack leaves behind, and what a file maps into memory."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, Self, get_args

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F

from loca.errors import ConfigError, ModelFileError, did_you_mean
from loca.local.local_models import one_for_each
from loca.local.stacked.ops import multiplies_densely, padded
from loca.models.autoencoder import Autoencoder, SparseRows
from loca.models.devices import choose_device, float32_products, free_bytes
from loca.models.recommender import Scores, check_histories
from loca.persistence.manifest import ModelState

AnswerPrecision = Literal["float32", "float16"]
_SHARE_FOR_WEIGHTS = 0.7
# What products that are joined may take, of users and of items.
_BYTES_TOGETHER = 256_000_000


def check_answer_precision(name: str) -> None:
    """Refuses a precision that does not exist, naming the nearest."""
    if name not in get_args(AnswerPrecision):
        raise ConfigError(f"unknown answer_precision {name!r}{did_you_mean(name, get_args(AnswerPrecision))}")


class StackedNetworks:
    """Networks of one shape that answer; of a variational one only what gives the mean of the code is kept.

    `weights_[name]` is (networks, …): `input_table` and `input_bias` into the first layer, `code_…` and `back_…`
    around a hidden layer where there is one, `output_table` and `output_bias` into the items.
    """

    def __init__(self, *, variational: bool) -> None:
        self.variational = variational
        self.weights_: dict[str, Tensor] = {}
        self._learning: Sequence[Autoencoder] = ()
        self._device = torch.device("cpu")
        self._quick = False
        self._last: tuple[csr_array, csr_array, Question] | None = None

    @classmethod
    def of(cls, networks: Sequence[Autoencoder], device: torch.device, *, quick: bool = False) -> StackedNetworks:
        """The networks as they are now and will be: while they learn on, their answers, given on a device, change.

        `quick` lets a GPU multiply with fewer bits (tf32), which is still more than 16-bit training has.
        """
        seen = cls(variational=networks[0].variational)
        seen._learning, seen._device = networks, device
        seen._quick = quick
        return seen

    def finished(self, precision: AnswerPrecision) -> StackedNetworks:
        """The networks as they are now, in memory of their own, side by side, in 32 or 16 bits."""
        kind = torch.float32 if precision == "float32" else torch.float16
        done = StackedNetworks(variational=self.variational)
        done._device = self._device
        first_weights = self._weights_of(0)
        size = len(self) * kind.itemsize * sum(weight.numel() for weight in first_weights.values())
        for name, first in first_weights.items():
            stack = torch.empty(len(self), *first.shape, dtype=kind, device=_home(size, self._device))
            for number in range(len(self)):
                stack[number] = self._weights_of(number)[name]
            done.weights_[name] = stack
        return done

    def _weights_of(self, number: int) -> dict[str, Tensor]:
        if self._learning:
            return _answer_weights(self._learning[number])
        return {name: stack[number] for name, stack in self.weights_.items()}

    @property
    def device(self) -> torch.device:
        """Where the answers lie."""
        return self._device

    def __len__(self) -> int:
        return len(self._learning) or len(self.weights_["output_bias"])

    def count_items(self) -> int:
        """How many items they score."""
        return self._learning[0].item_count if self._learning else self.weights_["output_bias"].shape[1]

    @torch.no_grad()
    def blend(self, histories: csr_array, answer_weights: csr_array) -> Tensor:
        """Σ_j w_j · M_j(history) / Σ_j w_j, (users, items); every network is asked once, for those it answers for."""
        with float32_products("high" if self._quick else "highest"):
            return self._blend(self._prepared(histories, answer_weights))

    def _blend(self, asked: Question) -> Tensor:
        blended = self._room(len(asked.bias_shares))
        if not asked.pairs:
            return blended.zero_()
        biases = torch.stack([self._weights_of(number)["output_bias"] for number in asked.pairs])
        torch.mm(asked.bias_shares, biases.to(self._device, torch.float32), out=blended)
        if len(blended) == 1 and self.weights_ and "code_weight" not in self.weights_:
            return self._add_for_one(blended, asked)
        answers = self._room(asked.most_users())
        everybody = JoinedProducts(blended)
        for number, own in asked.pairs.items():
            weights = self._as_computed(number)
            codes = asked.histories.codes(number, weights["input_table"])
            hidden = asked.shares[own, None] * self._hidden(codes, weights)
            if len(hidden) == len(blended):  # for everybody, in the users' order: nothing to look up
                everybody.add(hidden, weights["output_table"])
            else:
                torch.mm(hidden, weights["output_table"].T, out=answers[: len(hidden)])
                blended.index_add_(0, asked.users[own], answers[: len(hidden)])
        everybody.finish()
        return blended

    def _add_for_one(self, blended: Tensor, asked: Question) -> Tensor:
        """Adds the answers for a single user: all codes in one go, then one pass over each output table."""
        histories = asked.histories
        assert isinstance(histories, GatheredHistories)  # one user's are never laid out
        numbers = torch.tensor(list(asked.pairs), device=self._device)
        entries = next(iter(histories.entries.values()))  # the one history, the same for every network
        home = self.weights_["input_table"].device
        rows = self.weights_["input_table"][numbers.to(home)[:, None], histories.rows.columns[entries].to(home)]
        biases = self.weights_["input_bias"][numbers.to(home)]
        codes = histories.inputs[entries] @ rows.to(self._device, torch.float32)
        codes = codes + biases.to(self._device, torch.float32)
        hidden = asked.shares[:, None] * (codes if self.variational else torch.tanh(codes))  # (networks, last)
        for place, number in enumerate(asked.pairs):
            table = self.weights_["output_table"][number].to(self._device, torch.float32)
            blended.addmm_(hidden[place : place + 1], table.T)
        return blended

    def _room(self, users: int) -> Tensor:
        """Room for users × items scores, every row at a multiple of 64 numbers, where products are fastest."""
        items = self.count_items()
        return torch.empty(users, padded(items), device=self._device)[:, :items]

    def _prepared(self, histories: csr_array, answer_weights: csr_array) -> Question:
        """The question as the device sees it; while networks learn the last one is kept: validation asks it again."""
        if self._last is not None and self._last[0] is histories and self._last[1] is answer_weights:
            return self._last[2]
        self._last = None  # makes room for the new one
        rows = check_histories(histories, self.count_items())
        question = Question.of(rows, answer_weights, self._device, quick=self._quick)
        if self._learning:
            self._last = (histories, answer_weights, question)
        return question

    def score_with(self, number: int, histories: csr_array) -> Scores:
        """One network's own scores."""
        only = one_for_each(np.full(histories.shape[0], number), len(self))
        return np.asarray(self.blend(histories, only).cpu().numpy(), dtype=np.float32)

    def _as_computed(self, number: int) -> dict[str, Tensor]:
        """One network's weights as 32-bit numbers on the device."""
        return {name: weight.to(self._device, torch.float32) for name, weight in self._weights_of(number).items()}

    def _hidden(self, sums: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        """What the last layer takes, (users, last), from the sums of the input table's rows."""
        codes = sums + weights["input_bias"]
        if "code_weight" in weights:
            codes = torch.tanh(codes) @ weights["code_weight"] + weights["code_bias"]
        if not self.variational:
            codes = torch.tanh(codes)
        if "back_weight" in weights:
            codes = torch.tanh(codes @ weights["back_weight"] + weights["back_bias"])
        return codes

    def state(self) -> ModelState:
        return ModelState(arrays={name: stack.cpu().numpy() for name, stack in self.weights_.items()})

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        restored = cls(**params)
        _check_shapes(state.arrays)
        restored._device = choose_device("auto")
        home = _home(sum(array.nbytes for array in state.arrays.values()), restored._device)
        for name, array in state.arrays.items():
            restored.weights_[name] = _as_tensor(array).to(home)
        return restored


def _home(size: int, device: torch.device) -> torch.device:
    """Where weights are kept: on the device if they leave it room to work, else in main memory, copied as needed."""
    return device if size < _SHARE_FOR_WEIGHTS * free_bytes(device) else torch.device("cpu")


def _answer_weights(network: Autoencoder) -> dict[str, Tensor]:
    """Views of the weights that an answer needs: without the log-variance's half of the last layer before the code."""
    weights = {name: weight.detach() for name, weight in network.named_parameters()}
    if network.variational:
        into_code = ("code_weight", "code_bias") if network.code_weight is not None else ("input_table", "input_bias")
        weights |= {name: weights[name][..., : network.latent] for name in into_code}
    return weights


def _check_shapes(arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Refuses arrays that are not the weights of networks of one shape, all 32 or all 16 bits."""
    plain = {"input_table", "input_bias", "output_table", "output_bias"}
    hidden = {"code_weight", "code_bias", "back_weight", "back_bias"}
    if set(arrays) not in (plain, plain | hidden):
        raise ModelFileError(f"networks: expected the arrays {sorted(plain)}, found {sorted(arrays)}")
    if len({array.dtype for array in arrays.values()}) > 1 or arrays["output_bias"].dtype not in (
        np.dtype(np.float32),
        np.dtype(np.float16),
    ):
        raise ModelFileError("networks: expected all arrays in 32 bits or all in 16")
    if arrays["output_bias"].ndim != 2 or any(array.ndim < 2 for array in arrays.values()):
        raise ModelFileError("networks: expected arrays of networks × weights")
    networks, items = arrays["output_bias"].shape
    first, last = arrays["input_bias"].shape[1], arrays["output_table"].shape[-1]
    expected: dict[str, tuple[int, ...]] = {
        "input_table": (networks, items, first),
        "input_bias": (networks, first),
        "output_table": (networks, items, last),
        "output_bias": (networks, items),
    }
    if "code_weight" in arrays:
        code = arrays["code_bias"].shape[1]
        expected |= {"code_weight": (networks, first, code), "code_bias": (networks, code)}
        expected |= {"back_weight": (networks, code, last), "back_bias": (networks, last)}
    elif first != last:
        raise ModelFileError(f"networks: a code of {first} numbers does not fit a last layer of {last}")
    wrong = [name for name in expected if arrays[name].shape != expected[name]]
    if wrong or not networks or not items:
        raise ModelFileError(f"networks: the arrays do not fit each other: {', '.join(wrong) or 'they are empty'}")


def _as_tensor(array: npt.NDArray[Any]) -> Tensor:
    """The array as torch sees it, without a copy; one that is mapped from a file is only ever read."""
    with warnings.catch_warnings():
        # torch has no read-only tensors and warns; nothing here writes to weights.
        warnings.simplefilter("ignore")
        return torch.from_numpy(array)


class AskedHistories(Protocol):
    """The histories of every pair of a network and a user whom it answers for."""

    def codes(self, number: int, table: Tensor) -> Tensor:
        """Σ input · table row over the items of each of one network's users, (users, width)."""
        ...


@dataclass(frozen=True, eq=False)
class GatheredHistories:
    """Reads the rows of the table that the histories name; the history of each pair, network after network."""

    rows: SparseRows
    inputs: Tensor  # the values of the rows, each scaled to length 1
    pairs: dict[int, slice]

    @classmethod
    def of(cls, histories: csr_array, users: Tensor, pairs: dict[int, slice]) -> GatheredHistories:
        rows = SparseRows.of(histories, users.device).of_users(users)
        return cls(rows, rows.unit_values(), pairs)

    @cached_property
    def entries(self) -> dict[int, slice]:
        """The stored entries of each network's pairs."""
        ends = torch.tensor([[own.start, own.stop] for own in self.pairs.values()], device=self.inputs.device)
        return {number: slice(*ends) for number, ends in zip(self.pairs, self.rows.starts[ends].tolist(), strict=True)}

    def codes(self, number: int, table: Tensor) -> Tensor:
        entries = self.entries[number]
        return F.embedding_bag(
            self.rows.columns[entries],
            table,
            self.rows.starts[self.pairs[number]] - entries.start,
            mode="sum",
            per_sample_weights=self.inputs[entries],
        )


@dataclass(frozen=True, eq=False)
class LaidOutHistories:
    """Multiplies histories that are laid out as one users × items array, each row scaled to length 1."""

    laid: Tensor  # (users, padded items): rows are aligned, also those of a part of the users
    users: Tensor  # of all pairs
    pairs: dict[int, slice]
    items: int

    @classmethod
    def of(cls, histories: csr_array, users: Tensor, pairs: dict[int, slice]) -> LaidOutHistories:
        rows, (count, items) = SparseRows.of(histories, users.device), histories.shape
        width = padded(items)
        laid = torch.zeros(count, width, device=users.device)
        laid.view(-1)[rows.owner * width + rows.columns] = rows.unit_values()
        return cls(laid, users, pairs, items)

    def codes(self, number: int, table: Tensor) -> Tensor:
        own = self.pairs[number]
        everybody = own.stop - own.start == len(self.laid)  # in the users' order: nothing to look up
        return (self.laid if everybody else self.laid[self.users[own]])[:, : self.items] @ table


@dataclass(frozen=True, eq=False)
class Question:
    """A question on the device: every pair of a network and a user whom it answers for, network after network."""

    histories: AskedHistories
    users: Tensor  # (pairs,)
    shares: Tensor  # (pairs,)
    bias_shares: Tensor  # (users, networks that answer for anyone)
    pairs: dict[int, slice]  # those of each network that answers for anyone

    @classmethod
    def of(cls, histories: csr_array, answer_weights: csr_array, device: torch.device, *, quick: bool) -> Question:
        """The question as a device sees it; `quick` says that its products have fewer bits there."""
        pairs = answer_weights.tocsc()
        totals = np.asarray(answer_weights.sum(axis=1), dtype=np.float32).ravel()
        pairs.data = pairs.data.astype(np.float32) / totals[pairs.indices]
        users = torch.from_numpy(pairs.indices.astype(np.int64)).to(device)
        own = {
            int(number): slice(int(pairs.indptr[number]), int(pairs.indptr[number + 1]))
            for number in np.flatnonzero(np.diff(pairs.indptr))
        }
        dense = multiplies_densely(histories, device, "bfloat16" if quick else "float32")
        kind = LaidOutHistories if dense and histories.shape[0] > 1 else GatheredHistories
        shares = torch.from_numpy(pairs.data).to(device)
        bias_shares = torch.from_numpy(pairs[:, list(own)].toarray()).to(device)
        return cls(kind.of(histories, users, own), users, shares, bias_shares, own)

    def most_users(self) -> int:
        """How many users the network answers for that answers for the most."""
        return max(int(own.stop - own.start) for own in self.pairs.values())


class JoinedProducts:
    """Adds products of users × width and items × width arrays to `total`, several as one wider product.

    Then users × items numbers are read and written once for all of them.
    """

    def __init__(self, total: Tensor) -> None:
        self._total = total
        self._waiting: list[tuple[Tensor, Tensor]] = []

    def add(self, hidden: Tensor, table: Tensor) -> None:
        self._waiting.append((hidden, table))
        # What waits exists twice when it is joined.
        if 2 * len(self._waiting) * (hidden.nbytes + table.nbytes) >= _BYTES_TOGETHER:
            self.finish()

    def finish(self) -> None:
        """Adds what still waits."""
        if self._waiting:
            hidden, tables = (torch.cat(parts, dim=1) for parts in zip(*self._waiting, strict=True))
            self._total.addmm_(hidden, tables.T)
            self._waiting.clear()
