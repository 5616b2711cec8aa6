"""`loca explore`: show a model's users, communities and lists on a page, served or as one file."""

from __future__ import annotations

import re
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from loca.cli.options import Output
from loca.cli.recommend import Folder
from loca.errors import ConfigError

_LONGEST_NAME = 60

Port = Annotated[
    int, typer.Option("--port", help="The port; 0 takes a free one.", min=0, max=65535)
]
NoBrowser = Annotated[
    bool, typer.Option("--no-browser", help="Print the address and open nothing.")
]
Export = Annotated[
    Path | None,
    typer.Option("--export", help="Write the page into this file instead, with its data."),
]
Users = Annotated[
    int, typer.Option("--users", help="How many users have their lists in the file.", min=1)
]


def explore(
    folder: Folder,
    output: Output,
    port: Port = 0,
    no_browser: NoBrowser = False,
    export: Export = None,
    users: Users = 200,
) -> None:
    """Show the users of a model as points, its communities, and anybody's list with its reasons.

    The page is served to this machine alone until Ctrl-C. An exported page is one file that needs
    no service and loads nothing.

    Examples:

      loca explore films.loca

      loca explore films.loca --export films.html --users 500
    """
    # Addresses have few signs; a folder may have any.
    plain = re.sub(r"[^\w.-]+", "-", folder.resolve().name.removesuffix(".loca"))
    name = plain[:_LONGEST_NAME] or "model"
    if export is not None:
        _export(folder, name, export, users, output)
        return
    from loca.cli.serve import announce, start

    def open_page(address: str) -> None:
        line = f"exploring {name} at {address} until Ctrl-C"
        announce(output, line, address, {name: folder})
        if not no_browser:  # a browser may take its time
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    start([f"{name}={folder}"], port=port, on_started=open_page, log_requests=False)


def _export(folder: Path, name: str, path: Path, users: int, output: Output) -> None:
    """Write the page with its data into one file."""
    from loca.serving.explorer import export_page
    from loca.serving.model_store import load_version

    if path.is_dir():
        raise ConfigError(f"--export: expected a file such as page.html, found the folder {path}")
    version = load_version(name, folder)
    n_listed = export_page(version.model, name, version.fingerprint, path, users)
    size = path.stat().st_size
    n_users = version.known.n_users
    text = f"{path}: {n_listed:,} of {n_users:,} users with their lists, {size / 1e6:.1f} MB"
    document = {"model": str(folder), "path": str(path), "users": n_listed, "bytes": size}
    output.answer(text, document)
