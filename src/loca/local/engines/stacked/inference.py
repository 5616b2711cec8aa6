"""Histories that stacked networks answer together: their batch on a device, and its scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csc_array, csr_array
from torch import Tensor
from torch.nn import functional as F

from loca.local.engines.stacked.inputs import DENSE_SHARE_FLOAT32, DENSE_SHARE_TF32, fills_densely
from loca.local.engines.stacked.products import padded
from loca.local.local_models import PreparedBatch
from loca.models.devices import SparseRows

Weights = dict[str, Tensor]
WeightsOf = Callable[[int], Weights]

# What products that are joined may take, of users and of items.
JOINED_BYTES = 256_000_000
FEW_USERS = 64


@dataclass(frozen=True, eq=False, kw_only=True)
class InferenceBatch(PreparedBatch):
    """Histories and answer weights on a device: all pairs of a network and a user whom it answers.

    Full histories are laid out as one users × items array and multiplied; of others the rows of a
    network's table are gathered that the history of each pair names.

    Parameters
    ----------
    pairs : dict of int to slice
        The pairs of each network that answers anybody, network after network.
    users, shares : Tensor
        Of every pair the user, and the network's share in the user's answer.
    bias_shares : Tensor
        The same shares as an array, (users, networks that answer anybody).
    answering_everybody : frozenset of int
        The networks that answer all users; their pairs are in the order of the users.
    rows : SparseRows
        The history of each pair, or of each user where histories are laid out.
    inputs : Tensor
        The values of `rows`, scaled so that each row has length 1.
    entries : dict of int to slice
        Where the entries of each network's pairs stand in `rows`; empty where they are laid out.
    laid_out : Tensor or None
        The inputs as (users, padded items).
    """

    pairs: dict[int, slice]
    users: Tensor
    shares: Tensor
    bias_shares: Tensor
    answering_everybody: frozenset[int]
    rows: SparseRows
    inputs: Tensor
    entries: dict[int, slice]
    laid_out: Tensor | None

    @classmethod
    def of(
        cls,
        histories: csr_array,
        answer_weights: csr_array,
        device: torch.device,
        *,
        uses_tf32: bool = False,
    ) -> InferenceBatch:
        """Return the batch of checked histories; `uses_tf32` says that products have fewer bits."""
        n_users = histories.shape[0]
        by_network = answer_weights.tocsc()
        totals = np.asarray(answer_weights.sum(axis=1), dtype=np.float32).ravel()
        by_network.data = by_network.data.astype(np.float32) / totals[by_network.indices]
        starts = by_network.indptr.tolist()
        numbers = np.flatnonzero(np.diff(by_network.indptr)).tolist()
        pairs = {number: slice(*starts[number : number + 2]) for number in numbers}
        users = torch.from_numpy(by_network.indices.astype(np.int64)).to(device)
        rows = SparseRows.of(histories, device)
        least_share = DENSE_SHARE_TF32 if uses_tf32 else DENSE_SHARE_FLOAT32
        entries: dict[int, slice] = {}
        laid_out = None
        if n_users > 1 and fills_densely(histories, device, least_share):
            inputs = rows.unit_values()
            laid_out = _laid_out(rows, inputs, histories.shape[1])
        else:
            rows = rows.of_users(users)
            inputs = rows.unit_values()
            entries = _entries_of(pairs, rows)
        return cls(
            histories=histories,
            answer_weights=answer_weights,
            pairs=pairs,
            users=users,
            shares=torch.from_numpy(by_network.data).to(device),
            bias_shares=torch.from_numpy(by_network[:, numbers].toarray()).to(device),
            answering_everybody=_answering_everybody(by_network),
            rows=rows,
            inputs=inputs,
            entries=entries,
            laid_out=laid_out,
        )

    @property
    def device(self) -> torch.device:
        """Where it is answered."""
        return self.users.device

    @property
    def n_items(self) -> int:
        """How many items are scored."""
        return int(self.histories.shape[1])

    def codes(self, number: int, table: Tensor) -> Tensor:
        """Return Σ input · table row over the items of each user of a network, (users, width)."""
        pairs = self.pairs[number]
        if self.laid_out is not None:
            laid_out = self.laid_out
            if number not in self.answering_everybody:
                laid_out = laid_out[self.users[pairs]]
            return laid_out[:, : self.n_items] @ table
        entries = self.entries[number]
        starts = self.rows.starts[pairs] - entries.start
        return F.embedding_bag(
            self.rows.columns[entries],
            table,
            starts,
            mode="sum",
            per_sample_weights=self.inputs[entries],
        )


def _answering_everybody(by_network: csc_array) -> frozenset[int]:
    """Return the columns with an entry in each row, in the order of the rows."""
    if not by_network.has_canonical_format:
        return frozenset()
    is_full = np.diff(by_network.indptr) == by_network.shape[0]
    return frozenset(np.flatnonzero(is_full).tolist())


def _laid_out(rows: SparseRows, inputs: Tensor, n_items: int) -> Tensor:
    """Return inputs as (users, padded items): rows are aligned, also those of some users."""
    width = padded(n_items)
    laid_out = torch.zeros(rows.user_count, width, device=inputs.device)
    laid_out.view(-1)[rows.owner * width + rows.columns] = inputs
    return laid_out


def _entries_of(pairs: dict[int, slice], rows: SparseRows) -> dict[int, slice]:
    """Return where the entries of each network's pairs begin and end in the rows of all pairs."""
    bounds = [(part.start, part.stop) for part in pairs.values()]
    positions = torch.tensor(bounds, dtype=torch.int64).view(-1, 2).to(rows.starts.device)
    ends = rows.starts[positions].tolist()
    return {number: slice(*pair) for number, pair in zip(pairs, ends, strict=True)}


def blend_networks(batch: InferenceBatch, weights_of: WeightsOf, *, variational: bool) -> Tensor:
    """Return Σ_j w_j · M_j(history) / Σ_j w_j, (users, items); every network runs once."""
    if not batch.pairs:
        return _blank_scores(len(batch.bias_shares), batch)[:, : batch.n_items]
    padded_scores = _blended_biases(batch, weights_of)
    scores = padded_scores[:, : batch.n_items]
    most_users = max(part.stop - part.start for part in batch.pairs.values())
    padded_answers = _blank_scores(most_users, batch)
    # Products for everybody wait and are joined: then users × items numbers are read and written
    # once for several.
    waiting = _WaitingProducts(scores)
    for number, pairs in batch.pairs.items():
        weights = {
            name: tensor.to(batch.device, torch.float32)
            for name, tensor in weights_of(number).items()
        }
        hidden = batch.shares[pairs, None] * _last_codes(batch, number, weights, variational)
        table = weights["output_table"]  # (items, last width)
        if number in batch.answering_everybody:
            waiting.add(hidden, table)
            continue
        answers = padded_answers[: len(hidden)]
        _multiply(hidden, table, answers[:, : batch.n_items])
        # With the padding: whole rows are added fastest.
        padded_scores.index_add_(0, batch.users[pairs], answers)
    waiting.add_up()
    return scores


def _last_codes(batch: InferenceBatch, number: int, weights: Weights, variational: bool) -> Tensor:
    """Return what the last layer of a network takes, (users, last width)."""
    codes = batch.codes(number, weights["input_table"]) + weights["input_bias"]
    if "code_weight" in weights:
        codes = torch.tanh(codes) @ weights["code_weight"] + weights["code_bias"]
    if not variational:
        codes = torch.tanh(codes)
    if "back_weight" in weights:
        codes = torch.tanh(codes @ weights["back_weight"] + weights["back_bias"])
    return codes


class _WaitingProducts:
    """Products for everybody that are added to the scores together."""

    def __init__(self, scores: Tensor) -> None:
        self._scores = scores
        self._hidden: list[Tensor] = []
        self._tables: list[Tensor] = []

    def add(self, hidden: Tensor, table: Tensor) -> None:
        """Let a product wait, and add all up where they are as large as they may be."""
        self._hidden.append(hidden)
        self._tables.append(table)
        # What waits exists twice when it is joined.
        if 2 * len(self._hidden) * (hidden.nbytes + table.nbytes) >= JOINED_BYTES:
            self.add_up()

    def add_up(self) -> None:
        """Add what waits to the scores."""
        if not self._hidden:
            return
        hidden = torch.cat(self._hidden, dim=1)
        tables = torch.cat(self._tables, dim=1)
        self._scores.addmm_(hidden, tables.T)
        self._hidden.clear()
        self._tables.clear()


def blend_for_one_user(
    batch: InferenceBatch, weights_of: WeightsOf, stacks: Weights, *, variational: bool
) -> Tensor:
    """Return the same for a single user, by networks without a hidden layer, (1, items).

    `stacks` are the weights of all networks. All codes are made in one go, then there is one pass
    over each output table.
    """
    scores = _blended_biases(batch, weights_of)[:, : batch.n_items]
    home = stacks["input_table"].device
    numbers = torch.tensor(list(batch.pairs), device=home)
    entries = next(iter(batch.entries.values()))  # the one history, the same for every network
    columns = batch.rows.columns[entries].to(home)
    rows = stacks["input_table"][numbers[:, None], columns].to(batch.device, torch.float32)
    biases = stacks["input_bias"][numbers].to(batch.device, torch.float32)
    codes = batch.inputs[entries] @ rows + biases
    if not variational:
        codes = torch.tanh(codes)
    hidden = batch.shares[:, None] * codes  # (networks, last width)
    answer = torch.empty_like(scores)
    for row, number in enumerate(batch.pairs):
        table = weights_of(number)["output_table"].to(batch.device, torch.float32)
        _multiply(hidden[row : row + 1], table, answer)
        scores += answer
    return scores


def _blended_biases(batch: InferenceBatch, weights_of: WeightsOf) -> Tensor:
    """Return the blended biases of the items, in rows that are padded."""
    padded_scores = _blank_scores(len(batch.bias_shares), batch)
    biases = torch.stack([weights_of(number)["output_bias"] for number in batch.pairs])
    torch.mm(
        batch.bias_shares,
        biases.to(batch.device, torch.float32),
        out=padded_scores[:, : batch.n_items],
    )
    return padded_scores


def _blank_scores(n_users: int, batch: InferenceBatch) -> Tensor:
    """Return zeros for users × items, rows padded to where products are fastest."""
    return torch.zeros(n_users, padded(batch.n_items), device=batch.device)


def _multiply(hidden: Tensor, table: Tensor, out: Tensor) -> None:
    """Write hidden · tableᵀ, (users, items), into `out`.

    On a CPU the product for few users is several times faster as items × users, and for one user as
    that for two.
    """
    if out.device.type != "cpu" or len(hidden) > FEW_USERS:
        torch.mm(hidden, table.T, out=out)
        return
    columns = torch.cat([hidden, hidden]) if len(hidden) == 1 else hidden
    out.copy_(torch.mm(table, columns.T)[:, : len(hidden)].T)
