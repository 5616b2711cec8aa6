"""`loca doctor`: whether everything that loca needs is here, and what the machine has."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import typer

from loca.cli import options
from loca.cli.output import Output
from loca.data.datasets import DATA_SETS
from loca.memory import available_bytes, readable_bytes

_NEEDED = (
    "numpy", "scipy", "torch", "safetensors", "scikit-learn", "polars", "narwhals", "pydantic", "typer", "rich",
    "matplotlib",
)  # fmt: skip
_OPTIONAL = {"pandas": "pandas frames", "pyarrow": "arrow tables"}


@dataclass(frozen=True)
class Finding:
    """One thing looked at, what was found, and whether loca can work with it."""

    what: str
    found: str
    fine: bool = True


def look(as_json: options.AsJson = False) -> None:
    """Check the installation: versions, devices, cores, memory, optional packages, data sets found by LOCA_DATA.

    Exit code 0 when all is well, 1 when something that loca needs is missing.

    Examples:

      loca doctor

      loca doctor --json
    """
    output = Output(as_json)
    findings = [*_machine(), *_packages(), *_devices(), *_data_sets()]
    well = all(one.fine for one in findings)
    width = max(len(one.what) for one in findings)
    lines = [f"{'ok ' if one.fine else 'BAD'}  {one.what:<{width}}  {one.found}" for one in findings]
    lines.append("all is well" if well else "something is missing: install it with pip install loca")
    document = {"fine": well, "findings": [{"what": f.what, "found": f.found, "fine": f.fine} for f in findings]}
    output.answer("\n".join(lines), document)
    if not well:
        raise typer.Exit(1)


def _machine() -> list[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    free = available_bytes()
    return [
        Finding("python", platform.python_version(), sys.version_info >= (3, 11)),
        Finding("loca", version_of("loca") or "run from a checkout"),
        Finding("cores", str(cores)),
        Finding("free memory", readable_bytes(free), free > 1e9),
    ]


def _packages() -> list[Finding]:
    needed = [Finding(name, version_of(name) or "missing", version_of(name) is not None) for name in _NEEDED]
    optional = [
        Finding(name, version_of(name) or f"not installed; needed for {use} only") for name, use in _OPTIONAL.items()
    ]
    return needed + optional


def _devices() -> list[Finding]:
    if importlib.util.find_spec("torch") is None:
        return []
    import torch

    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return [Finding("devices of torch", ", ".join(["cpu", *names]))]


def _data_sets() -> list[Finding]:
    folder = os.environ.get("LOCA_DATA")
    if not folder:
        return [Finding("LOCA_DATA", "not set; tests on real data are skipped")]
    found = [name for name in DATA_SETS if (Path(folder) / name).is_dir()]
    return [Finding("LOCA_DATA", f"{folder}: {', '.join(found) or 'none of the known data sets'}")]


def version_of(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
