"""The house rules: rooms import only from rooms above them, files tell one story, and each opens with one sentence."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Container
from pathlib import Path

import pytest

import loca

SOURCE = Path(loca.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
PROJECT = Path(__file__).parents[1]
# From the first room to the last; a room may import from itself and from those before it.
ROOMS = [
    "errors",
    "random_streams",
    "progress",
    "memory",
    "data",
    "evaluation",
    "persistence",
    "models",
    "communities",
    "local",
    "registry",
    "text_table",
    "config",
    "tuning",
    "experiments",
    "reproduction",
    "cli",
]
# What the core may load besides the standard library and itself: it must run where only these are installed.
CORE_ROOMS = {
    "errors",
    "random_streams",
    "memory",
    "evaluation",
    "persistence",
    "models",
    "communities",
    "local",
    "registry",
}
# The house may only grow by what a feature needs: a commit that makes it smaller lowers these.
MOST_FILES, MOST_LINES = 146, 30_950
CORE_PACKAGES = {"numpy", "scipy", "torch", "safetensors", "sklearn", "loca"}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path, *, at_the_top: bool = False) -> set[str]:
    """The full names of the modules that a file imports, also inside functions unless only the top is asked for."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if at_the_top else ast.walk(tree)
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


@pytest.mark.parametrize("path", [p for p in FILES if room_of(p) in ROOMS], ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_room_imports_only_from_rooms_above_it(path: Path) -> None:
    own = ROOMS.index(room_of(path))
    for name in imported(path):
        if name.startswith("loca."):
            assert ROOMS.index(name.split(".")[1]) <= own, f"{path.name} imports {name}"


def test_every_file_stands_in_a_room() -> None:
    assert {room_of(path) for path in FILES} - set(ROOMS) == {"__init__", "__main__"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_file_tells_one_story_and_opens_with_one_sentence(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 900
    sentence = ast.get_docstring(ast.parse(text)) or ""
    assert sentence.split("\n")[0].endswith("."), "the first line says in one sentence what a reader finds here"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_functions_are_short(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name != "__init__":
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            assert lines <= 45, f"{node.name} has {lines} lines"


def test_the_core_loads_only_what_a_bare_numeric_machine_has() -> None:
    for path in FILES:
        if room_of(path) in CORE_ROOMS:
            # Kernels are loaded only on a machine with a GPU, where torch brings Triton along.
            allowed = {*CORE_PACKAGES, *sys.stdlib_module_names, *(["triton"] if "kernel" in path.stem else [])}
            for name in imported(path, at_the_top=True):
                package = name.split(".")[0]
                assert package in allowed, f"{path.name} imports {name}"


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
        "model = loca.Loca(base=loca.EASE(), anchors=3).fit(split.train, validation=split.validation)\n"
        "print(loca.evaluate(model, split.test, at=(10,)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "ndcg" in done.stdout


@pytest.mark.parametrize("page", [*PROJECT.glob("*.md"), *PROJECT.glob("docs/*.md")], ids=lambda p: p.name)
def test_pages_are_finished_and_their_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    assert "@@" not in text
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("http") or (page.parent / target).exists(), target


def test_the_house_does_not_grow_unnoticed() -> None:
    assert len(FILES) <= MOST_FILES
    assert sum(len(path.read_text().splitlines()) for path in FILES) <= MOST_LINES


def test_no_file_imports_itself_by_way_of_others() -> None:
    """Also not inside functions or for types alone; the public list names everything and is left out."""
    modules = {".".join(("loca", *path.relative_to(SOURCE).with_suffix("").parts)): path for path in FILES}
    modules = {name.removesuffix(".__init__"): path for name, path in modules.items() if name != "loca.__init__"}
    graph = {name: names_from(path, modules) - {name} for name, path in modules.items()}
    while leaves := [name for name, others in graph.items() if not others & graph.keys()]:
        for name in leaves:
            del graph[name]
    assert not graph, f"in or before a cycle: {sorted(graph)}"


def names_from(path: Path, modules: Container[str]) -> set[str]:
    """The modules of the package that a file imports anywhere, also as a name from the folder that they lie in."""
    found = imported(path)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name in modules}
