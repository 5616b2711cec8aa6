"""A service of saved models, and requests to it without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import httpx

from loca.serving.app import Service, Settings


class Talk:
    """A service with its scorer running, and requests to it."""

    def __init__(self, *folders: Path, **settings: Any) -> None:
        named = {folder.name.removesuffix(".loca"): str(folder) for folder in folders}
        self.service = Service(Settings(folders=named, log_requests=False, **settings))

    def __call__(self, work: Any) -> Any:
        """Run a coroutine function with a client of the service."""

        async def run() -> Any:
            inner, transport = self.service.inner, httpx.ASGITransport(app=self.service.app)
            async with (
                inner.router.lifespan_context(inner),
                httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
            ):
                found: Coroutine[Any, Any, Any] = work(client)
                return await found

        return asyncio.run(run())

    def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        """One request."""
        found: httpx.Response = self(lambda client: client.request(method, path, **more))
        return found
