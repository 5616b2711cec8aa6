"""`loca doctor`: whether everything that loca needs is here, and what the machine has."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import typer

from loca.cli.options import Output
from loca.data.datasets import DATA_SETS
from loca.memory import available_bytes, readable_bytes

_NEEDED = "numpy scipy torch safetensors scikit-learn polars narwhals pydantic typer rich matplotlib".split()
_OPTIONAL = {"pandas": "pandas frames", "pyarrow": "arrow tables"}


def look(output: Output) -> None:
    """Check the installation: versions, devices, cores, memory, optional packages, data sets found by LOCA_DATA.

    Exit code 0 when all is well, 1 when something that loca needs is missing.

    Examples:

      loca doctor

      loca doctor --json
    """
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    free = available_bytes()
    # What was looked at, what was found, and whether loca can work with it.
    findings = [
        ("python", platform.python_version(), sys.version_info >= (3, 11)),
        ("loca", version_of("loca") or "run from a checkout", True),
        ("cores", str(cores), True),
        ("free memory", readable_bytes(free), free > 1e9),
        *((name, version_of(name) or "missing", version_of(name) is not None) for name in _NEEDED),
    ]
    for name, use in _OPTIONAL.items():
        findings.append((name, version_of(name) or f"not installed; needed for {use} only", True))
    if importlib.util.find_spec("torch") is not None:
        import torch

        names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
        findings.append(("devices of torch", ", ".join(["cpu", *names]), True))
    folder = os.environ.get("LOCA_DATA")
    found = ", ".join(name for name in DATA_SETS if folder and (Path(folder) / name).is_dir())
    missing = "not set; tests on real data are skipped"
    findings.append(
        (
            "LOCA_DATA",
            f"{folder}: {found or 'none of the known data sets'}" if folder else missing,
            True,
        )
    )
    well = all(fine for _, _, fine in findings)
    width = max(len(what) for what, _, _ in findings)
    lines = [
        f"{'ok ' if fine else 'BAD'}  {what:<{width}}  {found}" for what, found, fine in findings
    ]
    lines.append(
        "all is well" if well else "something is missing: install it with pip install loca"
    )
    documents = [{"what": what, "found": found, "fine": fine} for what, found, fine in findings]
    output.answer("\n".join(lines), {"fine": well, "findings": documents})
    if not well:
        raise typer.Exit(1)


def version_of(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
