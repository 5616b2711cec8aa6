"""`loca serve`: answer requests to saved models over HTTP, with a page to explore them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from loca.cli.options import Output, in_panel
from loca.errors import ConfigError
from loca.text_table import printable_json

_where = in_panel("Where, and for whom")
_limits = in_panel("Limits")
# Requests a second of one client that is not on this machine.
_RATE = 100.0

Models = Annotated[
    list[str],
    typer.Argument(
        metavar="[NAME=]DIR...", help="Folders of saved models; the first answers by default."
    ),
]


def serve(
    models: Models,
    output: Output,
    host: Annotated[
        str, _where("The address to listen on; others than this machine's own need a token.")
    ] = "127.0.0.1",
    port: Annotated[int, _where("The port; 0 takes a free one.", min=0, max=65535)] = 8000,
    token_file: Annotated[
        Path | None, _where("A file with the token that every request must bring.")
    ] = None,
    no_auth: Annotated[
        bool, _where("Answer everybody who can reach the address.", "--no-auth")
    ] = False,
    workers: Annotated[
        int, _limits("Processes; they share the mapped model files.", min=1, max=64)
    ] = 1,
    batch: Annotated[
        int, _limits("The most requests that are answered together.", min=1, max=4096)
    ] = 64,
    queue: Annotated[int, _limits("The most requests that wait; more get 503.", min=1)] = 1024,
    most_items: Annotated[int, _limits("The longest list.", min=1)] = 1000,
    most_history: Annotated[int, _limits("The longest history.", min=1)] = 10_000,
    body_bytes: Annotated[int, _limits("The largest body.", min=1000)] = 1_000_000,
    rate: Annotated[
        float | None,
        _limits(
            "Requests a second of one client; 0 has no limit (on this machine no limit, else 100).",
            min=0,
        ),
    ] = None,
    log: Annotated[bool, _limits("A line of JSON for each request on standard error.")] = True,
) -> None:
    """Answer requests for lists and explanations over HTTP, and show a page to explore the models.

    A new version that is saved into a folder takes over by itself, once it is checked. Ctrl-C or a
    TERM signal answers what came in, then ends. With --json one line on standard output says where
    it serves, once it does.

    Examples:

      loca serve films.loca

      loca serve films=films.loca books=books.loca --port 9000

      loca serve films.loca --host 0.0.0.0 --token-file token.txt --workers 2
    """

    def say_where(address: str) -> None:
        folders = _folders(models)
        announce(output, f"serving {', '.join(folders)} at {address}", address, folders)

    start(
        models,
        host=host,
        port=port,
        token_file=token_file,
        no_auth=no_auth,
        workers=workers,
        batch=batch,
        queue=queue,
        most_items=most_items,
        most_history=most_history,
        body_bytes=body_bytes,
        rate=rate,
        log_requests=log,
        on_started=say_where,
    )


def announce(output: Output, line: str, address: str, folders: Mapping[str, Path]) -> None:
    """Print that requests are answered: a line, or with --json the address and the models."""
    if output.as_json:
        models = {name: str(folder) for name, folder in folders.items()}
        document = {"address": address, "models": models}
        print(printable_json(json.dumps(document)), flush=True)
    else:
        print(line, file=sys.stderr)


def start(
    models: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token_file: Path | None = None,
    no_auth: bool = False,
    workers: int = 1,
    rate: float | None = None,
    on_started: Callable[[str], None],
    **limits: Any,
) -> None:
    """Check the options, then serve; call `on_started` with the address once it answers."""
    folders = _folders(models)
    try:
        from loca.serving.app import Settings, is_loopback
        from loca.serving.server import read_token
        from loca.serving.server import serve as run
    except ImportError as error:
        raise ConfigError(f"the service needs {error.name}: pip install 'loca[serve]'") from None
    is_local = is_loopback(host)
    token = None if token_file is None else read_token(token_file)
    if token is not None and no_auth:
        raise ConfigError("--no-auth: expected this or --token-file, found both")
    if not is_local and token is None and not no_auth:
        raise ConfigError(
            f"--host {host}: others can reach it; say --token-file FILE, or --no-auth to let all in"
        )
    if rate is None:
        rate = 0.0 if is_local else _RATE
    settings = Settings(
        folders={name: str(folder) for name, folder in folders.items()},
        token=token,
        # With a token, a proxy on this machine may pass on other names.
        local_only=is_local and token is None,
        rate=rate,
        **limits,
    )
    run(settings, host=host, port=port, workers=workers, on_started=on_started)


def _folders(models: Sequence[str]) -> dict[str, Path]:
    """Return the folders by name; one without is called as the folder, without its ending."""
    folders: dict[str, Path] = {}
    for text in models:
        name, path = _named_folder(text)
        if not re.fullmatch(r"[\w.-]{1,60}", name):
            raise ConfigError(
                f"{text}: expected a name of letters, digits, _, . and -, found {name!r:.60}"
            )
        if name in folders:
            raise ConfigError(
                f"{text}: there is a model {name!r} already; name them, as in NAME=DIR"
            )
        folders[name] = path
    return folders


def _named_folder(text: str) -> tuple[str, Path]:
    """Return the parts of NAME=DIR; a path that is there may have a = in it."""
    if "=" in text and not Path(text).exists():
        name, _, folder = text.partition("=")
        path = Path(folder)
    else:
        name = ""
        path = Path(text)
    return name or path.resolve().name.removesuffix(".loca"), path
