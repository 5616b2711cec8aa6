"""A service of small models, and a client that talks to it without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest

import loca
from loca.data.synthetic import PlantedData
from loca.serving.app import Service, Settings


@pytest.fixture(scope="session")
def model_folder(planted: PlantedData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A local EASE with communities of a mixture."""
    folder = tmp_path_factory.mktemp("served") / "films.loca"
    local = loca.Loca(base=loca.EASE(l2=20.0), communities="mixture", anchors=4, mixtures=1, alpha=0.3)
    local.fit(planted.interactions).save(folder)
    return folder


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
