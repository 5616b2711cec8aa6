"""What a network is shown of a history, and what it must find: the whole set, or what follows a decayed prefix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from loca.errors import ConfigError, did_you_mean

TargetName = Literal["set", "next", "following"]


@dataclass(frozen=True)
class Lesson:
    """`"set"` shows the whole history and asks for it, as the paper does; the others show a random prefix.

    `"next"` asks for the `next_count` places after it, `"following"` for all of them. In a prefix the newest place
    counts 1, the one before it `prefix_decay`, and so on. `set_share` of the users are shown as whole sets all the
    same, drawn anew in every epoch. A place is an item, or all items of one moment: those are never cut apart.
    """

    target: TargetName = "set"
    next_count: int = 10
    prefix_decay: float = 0.9
    set_share: float = 0.0

    def __post_init__(self) -> None:
        if self.target not in get_args(TargetName):
            nearest = did_you_mean(self.target, get_args(TargetName)) or "; expected 'set', 'next' or 'following'"
            raise ConfigError(f"unknown target {self.target!r}{nearest}")
        whole = isinstance(self.next_count, int) and not isinstance(self.next_count, bool)
        if not (whole and self.next_count >= 1):
            raise ConfigError(f"next_count: expected a whole number ≥ 1, found {self.next_count!r}")
        if not 0 < self.prefix_decay <= 1:
            raise ConfigError(f"prefix_decay: expected a number above 0 up to 1, found {self.prefix_decay!r}")
        if not 0 <= self.set_share <= 1:
            raise ConfigError(f"set_share: expected a share from 0 to 1, found {self.set_share!r}")

    @property
    def ordered(self) -> bool:
        """Whether the order of a history matters."""
        return self.target != "set"

    def cut(self, lengths: Tensor, draws: Tensor) -> Tensor:
        """How many places of each history are the prefix, 1 to length − 1; 0 for a history shown as a whole set.

        `draws` holds two uniform numbers for each history, (histories, 2). A single place cannot be cut.
        """
        prefix = 1 + (draws[:, 0] * (lengths - 1)).long().clamp(max=lengths - 2)
        whole = (draws[:, 1] < self.set_share) | (lengths < 2)
        return torch.where(whole, 0, prefix)

    def shown_and_asked(self, values: Tensor, places: Tensor, cuts: Tensor) -> tuple[Tensor, Tensor]:
        """What each stored entry counts in the input, and what as a target; no entry moves, most become 0.

        `places` is an entry's place in its history, `cuts` the cut of that history, one of each for every entry.
        """
        whole = cuts == 0
        ages = cuts - 1 - places
        decayed = values * torch.pow(self.prefix_decay, ages.clamp(min=0).float())
        shown = torch.where(whole, values, torch.where(ages >= 0, decayed, 0.0))
        asked = ages < 0
        if self.target == "next":
            asked &= ages >= -self.next_count
        return shown, torch.where(whole | asked, values, 0.0)


def unit_rows_of(values: Tensor, owner: Tensor, rows: int) -> Tensor:
    """Entries with each row scaled to length 1; a row of zeros stays one."""
    squares = torch.zeros(rows, device=values.device).index_add_(0, owner, values**2)
    return values / squares.sqrt().clamp_min(1e-12)[owner]
