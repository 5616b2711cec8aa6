"""`loca explore`: a page that shows a model's users, communities and lists, opened here or written as one file."""

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
    """See the users of a model as points, its communities, and anybody's list with its reasons.

    The page is served to this machine alone until Ctrl-C. An exported page is one file that needs no service and loads
    nothing.

    Examples:

      loca explore films.loca

      loca explore films.loca --export films.html --users 500
    """
    # Addresses have few signs; a folder may have any.
    name = re.sub(r"[^\w.-]+", "-", folder.resolve().name.removesuffix(".loca"))[:60] or "model"
    if export is not None:
        from loca.serving.explorer import export_page
        from loca.serving.model_store import load_version

        if export.is_dir():
            raise ConfigError(
                f"--export: expected a file such as page.html, found the folder {export}"
            )
        version = load_version(name, folder)
        shown = export_page(version.model, name, version.fingerprint, export, users)
        size = export.stat().st_size
        text = f"{export}: {shown:,} of {version.known.n_users:,} users with their lists, {size / 1e6:.1f} MB"
        output.answer(
            text, {"model": str(folder), "path": str(export), "users": shown, "bytes": size}
        )
        return
    from loca.cli.serve import announce, start

    def open_page(address: str) -> None:
        line = f"exploring {name} at {address} until Ctrl-C"
        announce(output, line, address, {name: folder})
        if not no_browser:  # a browser may take its time
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    start([f"{name}={folder}"], port=port, on_started=open_page, log_requests=False)
