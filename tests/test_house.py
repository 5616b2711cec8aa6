"""The rules of the code: folders import only from those above them, and the core runs alone."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import loca

SOURCE = Path(loca.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
PROJECT = Path(__file__).parents[1]
# From the first folder to the last; a folder may import from itself and from those before it.
ROOMS = [
    "errors",
    "deferred",
    "text_table",
    "random_streams",
    "progress",
    "remarks",
    "typing",
    "memory",
    "data",
    "datasets",
    "evaluation",
    "persistence",
    "models",
    "communities",
    "search_space",
    "local",
    "registry",
    "config",
    "tuning",
    "experiments",
    "paper",
    "testing",
    "serving",
    "cluster",
    "cli",
]
# What the core may load besides the standard library and itself: it must run where only these are installed.
CORE_ROOMS = {
    "errors",
    "deferred",
    "text_table",
    "random_streams",
    "remarks",
    "typing",
    "memory",
    "evaluation",
    "persistence",
    "models",
    "communities",
    "search_space",
    "local",
    "registry",
}
CORE_PACKAGES = {"numpy", "scipy", "torch", "safetensors", "sklearn", "loca"}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def module_of(path: Path) -> str:
    return ".".join(("loca", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(
        ".__init__"
    )


MODULES = {module_of(path): path for path in FILES}


def imported(path: Path, *, at_the_top: bool = False) -> set[str]:
    """The full names of what a file imports, also inside functions unless only the top counts."""
    tree = ast.parse(path.read_text())
    names: set[str] = set()
    for node in tree.body if at_the_top else ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in MODULES else node.module for name in whole}
    return names


@pytest.mark.parametrize(
    "path", [p for p in FILES if room_of(p) in ROOMS], ids=lambda p: str(p.relative_to(SOURCE))
)
def test_a_folder_imports_only_from_those_above_it(path: Path) -> None:
    own = ROOMS.index(room_of(path))
    for name in imported(path):
        if name.startswith("loca."):
            assert ROOMS.index(name.split(".")[1]) <= own, f"{path.name} imports {name}"


def test_every_file_stands_in_a_folder() -> None:
    assert {room_of(path) for path in FILES} - set(ROOMS) == {"__init__", "__main__"}


def test_no_file_imports_itself_by_way_of_others() -> None:
    """Also not inside functions or for types alone; the public list names everything and is left out."""
    graph = {
        name: (imported(path) & MODULES.keys()) - {name, "loca"}
        for name, path in MODULES.items()
        if name != "loca"
    }
    while leaves := [name for name, others in graph.items() if not others & graph.keys()]:
        for name in leaves:
            del graph[name]
    assert not graph, f"in or before a cycle: {sorted(graph)}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_file_opens_with_one_sentence(path: Path) -> None:
    sentence = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert sentence.split("\n")[0].endswith("."), (
        "the first line says in one sentence what a reader finds here"
    )


def test_the_core_loads_only_what_a_bare_numeric_machine_has() -> None:
    for path in FILES:
        if room_of(path) in CORE_ROOMS:
            # Kernels are loaded only on a machine with a GPU, where torch brings Triton along.
            allowed = {
                *CORE_PACKAGES,
                *sys.stdlib_module_names,
                *(["triton"] if re.search("kernel|triton", path.stem) else []),
            }
            for name in imported(path, at_the_top=True):
                package = name.split(".")[0]
                assert package in allowed, f"{path.name} imports {name}"


def test_no_test_patches_a_private_name() -> None:
    for path in (PROJECT / "tests").rglob("*.py"):
        found = re.findall(
            r"""(?:setattr|patch)\([^)]*["'][\w.]*\b_[a-zA-Z]\w*["']""", path.read_text()
        )
        assert not found, f"{path.name}: {found}"


def test_the_core_runs_without_readers_commands_and_plots() -> None:
    program = (
        "import importlib.abc, sys\n"
        "class Absent(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name.split('.')[0] in {'polars', 'pydantic', 'typer', 'rich', 'matplotlib', 'pandas', 'pyarrow'}:\n"
        "            raise ModuleNotFoundError(f'no module named {name}')\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import loca\n"
        "data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions\n"
        "split = loca.leave_last_out(data, test=2, validation=2)\n"
        "model = loca.Loca(base=loca.EASE()).fit(split.train, validation=split.validation)\n"
        "print(loca.evaluate(model, split.test, at=(10,)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "ndcg" in done.stdout


@pytest.mark.parametrize(
    "page", [*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")], ids=lambda p: p.name
)
def test_pages_are_finished_and_their_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    assert "@@" not in text
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("http") or (page.parent / target).exists(), target


def test_the_stub_has_the_types_of_every_public_name() -> None:
    typed = re.findall(
        r"^from (loca[\w.]*) import (\w+) as \2$", (SOURCE / "__init__.pyi").read_text(), re.M
    )
    assert sorted(name for _, name in typed) == sorted({*loca.__all__} - {"__version__"})
    assert all(
        hasattr(sys.modules[module], name)
        for module, name in typed
        if getattr(loca, name) is not None
    )
