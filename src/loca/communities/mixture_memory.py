"""What fitting mixtures takes, and the device on which there is room for it."""

from __future__ import annotations

from dataclasses import dataclass

from loca.communities.em import block_bytes
from loca.communities.mixture_starts import sample_size
from loca.deferred import torch
from loca.memory import DataSize, MemoryUse
from loca.models.devices import choose_device, free_bytes, memory_on

ADVICE = "take fewer components or mixtures"


@dataclass(frozen=True)
class MixtureWork:
    """The size of a fit of mixtures: of its data, and of what is learned from them."""

    data: DataSize
    components: int  # of each mixture
    mixtures: int
    starts: int  # of each mixture

    def fitting_device(self) -> torch.device:
        """Return where mixtures are fitted: on the CPU where a GPU has too little memory."""
        device = choose_device(self.data.device)
        if device.type == "cuda" and self._learning_bytes(device) > free_bytes(device):
            return torch.device("cpu")
        return device

    def memory(self, device: torch.device) -> MemoryUse:
        """Estimate the memory that a fit on a device takes."""
        histories = 24 * self.data.entries  # and a copy of them
        peak = self._learning_bytes(device)
        if device.type == "cpu":
            peak += histories
        return memory_on(
            device,
            peak,
            self._parameter_bytes,
            main=histories + self._row_bytes + self._sample_bytes,
            after=(self._parameter_bytes, 0),
            checkpoint=self._parameter_bytes,
            advice=ADVICE,
        )

    def _learning_bytes(self, device: torch.device) -> int:
        """Return the rows, parameters before and after a round, and the memberships of a block."""
        memberships = 4 * self.starts * self._n_components * self.data.users
        block = min(block_bytes(device), memberships)
        return self._row_bytes + max(self._sample_bytes, 12 * self._parameter_bytes) + 5 * block

    @property
    def _n_components(self) -> int:
        return self.components * self.mixtures

    @property
    def _parameter_bytes(self) -> int:
        return 4 * (self.data.items + 1) * self._n_components

    @property
    def _row_bytes(self) -> int:
        """Rows by user and by item."""
        return 16 * self.data.entries

    @property
    def _sample_bytes(self) -> int:
        """Parameters and memberships of all starts, and the rows of the sample."""
        n_users = min(self.data.users, sample_size(self.components))
        parameters = 16 * self.starts * self._n_components * (self.data.items + n_users)
        return parameters + 24 * self.data.entries * n_users // max(self.data.users, 1)
