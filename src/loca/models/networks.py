"""What training, stopping and local engines ask of a network and of its learning, whatever its layers are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from loca.files.model_state import ModelState


class Network(Protocol):
    """Weights that answer any history, and can be copied and put back."""

    @property
    def device(self) -> torch.device: ...

    @property
    def item_count(self) -> int: ...

    def answer(self, histories: csr_array) -> Tensor:
        """A score for every item, (users, items), on the network's device."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any: ...


class Embeds(Protocol):
    """A network with a middle layer that says who a user is."""

    def means(self, histories: csr_array) -> Tensor:
        """The middle layer of any histories, (users, latent), on the network's device."""
        ...


class RunsEpochs(Protocol):
    """One or many networks that learn an epoch at a time."""

    @property
    def networks(self) -> Sequence[Network]: ...

    def run_epoch(self) -> float: ...

    def state(self) -> ModelState:
        """All that the rest of the training depends on."""
        ...

    def put_back(self, state: ModelState) -> None:
        """Goes on from a state of the same learning."""
        ...


class LearnsAlone(RunsEpochs, Protocol):
    """One network that learns from the users in `support`."""

    support: npt.NDArray[np.int64]

    @property
    def network(self) -> Network: ...

    @property
    def device(self) -> torch.device: ...
