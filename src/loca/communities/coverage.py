"""Greedy coverage, the paper's way to choose anchors: exact, on the CPU or on a GPU."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from loca.communities.device_neighbourhoods import DeviceNeighbourhoods, bytes_on_device
from loca.communities.geometry import Floats
from loca.communities.neighbourhoods import HostNeighbourhoods, Neighbourhoods, words_for
from loca.memory import readable_bytes
from loca.models.devices import choose_device, free_bytes
from loca.progress import bar, say

AnchorRows = npt.NDArray[np.int64]


def cover_greedily(embeddings: Floats, count: int, bandwidth: float, device: str | torch.device = "cpu") -> AnchorRows:
    """Each step takes the user whose neighbourhood {distance < bandwidth} holds the most users not yet covered.

    All users are candidates; ties go to the lower row; when all are covered the covered set is emptied and the
    choosing goes on. Exact, and the same on every device: every candidate's gain is known at every step. A step
    counts either the newly covered, whom a gain loses, or those still uncovered, who are the gain: the fewer.
    """
    neighbourhoods = _find_neighbourhoods(embeddings, bandwidth, choose_device(str(device)))
    flags = np.zeros(words_for(len(embeddings)) * 64, dtype=np.bool_)
    flags[: len(embeddings)] = True
    everyone = np.packbits(flags).view(np.uint64)
    sizes = neighbourhoods.count_in(everyone)
    gains, uncovered = sizes.copy(), everyone
    chosen: list[int] = []
    with bar("anchors by coverage", count) as progress:
        while len(chosen) < count:
            gains[chosen] = -1
            chosen.append(int(gains.argmax()))  # the first of the largest
            fresh = uncovered & neighbourhoods.of(chosen[-1])
            uncovered = uncovered & ~fresh
            left = int(np.bitwise_count(uncovered).sum())
            if left == 0:
                gains, uncovered = sizes.copy(), everyone
            elif np.bitwise_count(fresh).sum() < left:
                gains -= neighbourhoods.count_in(fresh)
            else:
                gains = neighbourhoods.count_in(uncovered)
            progress.advance()
    return np.array(chosen, dtype=np.int64)


def _find_neighbourhoods(embeddings: Floats, bandwidth: float, device: torch.device) -> Neighbourhoods:
    """On the device where it is a GPU with room for them, else in main memory."""
    if device.type == "cuda":
        needed, free = bytes_on_device(*embeddings.shape), free_bytes(device)
        what = f"greedy coverage over {len(embeddings):,} users: {readable_bytes(needed)} needed on {device}"
        if needed <= free:
            say(what)
            try:
                return DeviceNeighbourhoods(embeddings, bandwidth, device)
            except torch.OutOfMemoryError:  # another program took it meanwhile, or it is free only in pieces
                say(f"{what}, more than there was; done on the CPU")
        else:
            say(f"{what}, {readable_bytes(free)} are free there; done on the CPU")
    return HostNeighbourhoods(embeddings, bandwidth)
