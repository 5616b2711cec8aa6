"""`loca plan`: what a fit would take (memory and files), said before anything large is allocated."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from loca.cli.fit import FitOptions, Fitting, check_folder
from loca.cli.options import (
    Data,
    Device,
    ModelSettings,
    Output,
    Reading,
    check_request,
    in_panel,
)
from loca.errors import ConfigError

Folder = Annotated[
    Path | None,
    typer.Option(
        "--out", help="The folder that the model would go into: looks for room on its disk."
    ),
]


_cluster = in_panel("Many machines")
Nodes = Annotated[
    int | None,
    _cluster("Also what each shard of a cluster of so many machines holds and sends.", min=1),
]
Gpus = Annotated[
    int, _cluster("GPUs of each machine: one shard each; without, one shard a machine.", min=0)
]


def plan(
    source: Data,
    fitting: Fitting,
    reading: Reading,
    settings: ModelSettings,
    output: Output,
    out: Folder = None,
    nodes: Nodes = None,
    gpus: Gpus = 0,
    device: Device = "auto",
) -> None:
    """Say what `loca fit` with the same settings would take at most: memory on GPU and host, and model files.

    Reads the data; fits and saves nothing. The settings are those of the fit, its section of a settings file too. A
    plan that does not fit says so, with advice; the exit code is 0 all the same.

    Examples:

      loca plan ratings.csv --model loca-vae --set communities.n=300

      loca plan ratings.csv --model loca-ease --choose base.l2=100,300,1000 --out films.loca

      loca plan planted --model mult-vae --json

      loca plan ratings.csv --model loca-vae --set communities.n=1000 --nodes 4 --gpus 8
    """
    from loca.experiments.memory_estimate import plan_fit
    from loca.models.devices import check_device

    check_device(device)
    request = check_request("fit", FitOptions, source, reading, settings, **fitting.sections())
    ((name, candidates),) = request.models.items()
    validated = request.split.validation != 0
    if not validated and len(candidates) > 1:
        raise ConfigError(
            "choosing needs held-out items; expected --validation of at least 1, found 0"
        )
    free = None if out is None else shutil.disk_usage(check_folder(out)).free
    interactions = request.read()
    found = plan_fit(
        candidates,
        interactions,
        name=name,
        validated=validated,
        device=device,
        free_on_disk=free,
    )
    text, document = str(found), found.document()
    if nodes is not None:
        from loca.cluster.shards import plan_shards
        from loca.memory import DataSize, readable_bytes

        shards = nodes * max(gpus, 1)
        size = DataSize.of(interactions.matrix(), validated=validated, device=device)
        each = plan_shards(candidates[0], size, shards)
        said = {
            "main": "main memory",
            "device": "GPU memory",
            "read": "read from the storage",
            "part": "model files",
        }
        said |= {
            "saved": "saved after every epoch",
            "sent": "sent to the driver for every validation",
        }
        lines = [f"{shards} shards, at most {each['models']} models each; each shard:"]
        lines += [
            f"  {what}: {readable_bytes(each[key])}" for key, what in said.items() if each[key]
        ]
        text, document = (
            "\n".join([text, *lines]),
            {**document, "shards": {"count": shards, **each}},
        )
    output.answer(text, document)
