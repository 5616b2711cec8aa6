"""Which device a model computes on, and how much memory is free there."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, Literal

import torch

from loca.errors import ConfigError
from loca.evaluation.top_n import BLOCK_BYTES
from loca.memory import available_bytes
from loca.models.recommender import param

_DEVICES = "'auto', 'cpu' or 'cuda'"


def is_device(name: str) -> bool:
    """Whether models know how to use a device of that name."""
    try:
        return torch.device("cpu" if name == "auto" else name).type in ("cpu", "cuda")
    except RuntimeError:
        return False


def device_param() -> Any:
    """The parameter of a model that names the device it computes on."""
    return param("auto", _DEVICES, is_device)


def check_device(name: str) -> None:
    """Refuses a device that no model knows how to use."""
    if not is_device(name):
        raise ConfigError(f"device: expected {_DEVICES}, found {name!r}")


def choose_device(name: str) -> torch.device:
    """The device called `name`; `auto` takes a GPU where there is one."""
    check_device(name)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device {name!r}: no GPU is to be seen; use 'cpu' or 'auto'")
    return device


def free_bytes(device: torch.device) -> int:
    """Bytes that a program may still take on a device, those that torch holds without using them included."""
    if device.type != "cuda":
        return available_bytes()
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + unused


def ranking_bytes(device: torch.device) -> int:
    """What a block of users may take while its answers are ranked on a device."""
    if device.type != "cuda":
        return BLOCK_BYTES
    return max(BLOCK_BYTES, free_bytes(device) // 10)


@cache
def has_kernels(device: torch.device) -> bool:
    """Whether Triton kernels can be used on a device."""
    return device.type == "cuda" and importlib.util.find_spec("triton") is not None


def launching_on(device: torch.device) -> AbstractContextManager[Any]:
    """While it is open, kernels run on that device, where there are several; an interpreter of kernels needs none."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@contextmanager
def float32_products(precision: Literal["highest", "high"] = "highest") -> Iterator[None]:
    """Products of 32-bit numbers with all bits (`high`: fewer, on a GPU), whatever the program around has set."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
