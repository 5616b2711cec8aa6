"""The paper's models are made by name, and nothing of the product knows the laboratory."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import loca
import loca.paper
from loca.communities.geometry import Quantile
from loca.communities.kernel import Kernels
from loca.local.combiner import GlobalShare, LocalOnly
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from loca.paper.stopping import StopEach
from loca.registry import MODELS

SOURCE = Path(loca.__file__).parent
# The commands that make the paper's tables and the demonstration.
COMMANDS = {SOURCE / "cli" / "reproduce.py", SOURCE / "cli" / "demo.py"}
AUTHORS_VAE = MultVAE(dropout=0.2, noise=0.01, kl_weight=0.0, epochs=300, patience=50)


def test_loca_vae_is_that_of_the_authors() -> None:
    model = loca.paper.loca_vae()
    assert repr(model.base) == repr(AUTHORS_VAE)
    assert model.communities == Kernels(n=300, train_bandwidth=0.8, answer_bandwidth=0.4)
    assert (model.combiner, model.engine) == (LocalOnly(), StopEach())


def test_loca_ease_has_the_distances_of_the_authors_network() -> None:
    model = loca.paper.loca_ease()
    finder = model.communities
    assert isinstance(finder, Kernels)
    assert repr(model.base) == repr(EASE(l2=100.0))
    assert (finder.n, finder.train_bandwidth, finder.answer_bandwidth) == (300, 0.6, 0.5)
    assert repr(finder.embedding) == repr(AUTHORS_VAE)
    assert (model.combiner, model.engine) == (LocalOnly(), None)


def test_llorma_vae_trains_and_answers_with_one_kernel_around_random_anchors() -> None:
    model = loca.paper.llorma_vae()
    width = Quantile(0.9, times=1.3)
    expected = Kernels(anchors="random", train_bandwidth=width, answer_bandwidth=width)
    assert model.communities == expected
    assert model.combiner == GlobalShare()


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("paper-loca-vae", loca.paper.loca_vae),
        ("paper-loca-ease", loca.paper.loca_ease),
        ("paper-ensemble-vae", loca.paper.ensemble_vae),
        ("paper-ensemble-ease", loca.paper.ensemble_ease),
        ("llorma-vae", loca.paper.llorma_vae),
    ],
)
def test_commands_make_the_same_models_by_name(name: str, make: object) -> None:
    assert callable(make)
    assert repr(MODELS[name]()) == repr(make())
    assert MODELS[name]().get_params().keys() == make().get_params().keys()


def test_an_ensemble_is_as_large_as_its_loca() -> None:
    for name in ("vae", "ease"):
        local, control = (MODELS[f"paper-{kind}-{name}"]() for kind in ("loca", "ensemble"))
        assert control.size == local.size == 300  # type: ignore[attr-defined]


def test_the_papers_models_are_there_without_loading_networks_pictures_or_pages() -> None:
    program = "import loca.paper, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "loca.paper.presets" in loaded
    assert not loaded & {"matplotlib", "jinja2", "torch", "polars", "loca.paper.benchmark"}


def test_only_the_laboratory_and_its_commands_import_it() -> None:
    for path in SOURCE.rglob("*.py"):
        if path.is_relative_to(SOURCE / "paper") or path in COMMANDS:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not any(name.startswith("loca.paper") for name in names), path
