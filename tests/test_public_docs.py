"""Every public name explains itself: each parameter, what comes back, and an example that runs."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path

import pytest

import loca
from loca.cli.main import COMMANDS, main
from loca.remarks import KINDS

PROJECT = Path(__file__).parents[1]
NAMES = [name for name in loca.__all__ if name != "__version__"]
PLAIN = {
    name
    for name in NAMES
    if isinstance(getattr(loca, name), type) and issubclass(getattr(loca, name), Exception)
}
# A protocol is explained by the classes that keep it.
ABSTRACT = {"Callback", "Recommender"}


def section(text: str, title: str) -> str:
    """Return the lines under a numpydoc heading, up to the next one."""
    match = re.search(rf"^{title}\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", text, re.M | re.S)
    return "" if match is None else match[1]


@pytest.mark.parametrize("name", sorted({*NAMES} - PLAIN))
def test_a_public_name_explains_its_parameters_and_shows_an_example(name: str) -> None:
    value = getattr(loca, name)
    text = inspect.getdoc(value) or ""
    parameters = [
        parameter for parameter in inspect.signature(value).parameters if name not in ABSTRACT
    ]
    described = section(text, "Parameters") or section(text, "Attributes")
    missing = [
        parameter
        for parameter in parameters
        if not re.search(rf"^[\w*, ]*\b{parameter}\b[\w*, ]*( : |$)", described, re.M)
    ]
    assert not missing, f"{name} does not explain {missing}"
    if not isinstance(value, type) and inspect.signature(value).return_annotation != "None":
        assert section(text, "Returns") or section(text, "Yields"), (
            f"{name} does not say what comes back"
        )
    assert ">>>" in section(text, "Examples") or name in ABSTRACT, f"{name} has no example"


@pytest.mark.parametrize("name", sorted({*NAMES} - PLAIN))
def test_the_example_of_a_public_name_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    value = getattr(loca, name)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    runner = doctest.DocTestRunner(optionflags=flags)
    for example in doctest.DocTestFinder(recurse=False).find(value, name, globs={"loca": loca}):
        runner.run(example)
    assert runner.failures == 0


def test_the_reference_has_every_public_name_and_its_methods_exist() -> None:
    page = (PROJECT / "docs" / "api.md").read_text()
    blocks = re.findall(
        r"^::: loca\.(\w+)$(?:\n    options:\n      members: \[(.*)\]$)?", page, re.M
    )
    assert sorted(name for name, _ in blocks) == sorted(NAMES)
    for name, members in blocks:
        assert not [
            member
            for member in members.split(", ")
            if member and not hasattr(getattr(loca, name), member)
        ], name


def test_the_page_of_caveats_has_every_kind_with_its_meaning() -> None:
    page = (PROJECT / "docs" / "how-to" / "logging.md").read_text()
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (.*) \|$", section_of(page, "Kinds"), re.M))
    assert rows == KINDS
    assert list(rows) == sorted(rows)


def section_of(page: str, heading: str) -> str:
    """Return the text under a heading of a page, up to the next heading."""
    match = re.search(rf"^#+ {heading}$(.*?)(?=^#|\Z)", page, re.M | re.S)
    assert match is not None, heading
    return match[1]


@pytest.mark.parametrize(
    "command", [*(name for name in COMMANDS if name != "data"), "data describe", "data fetch"]
)
def test_every_command_has_examples_and_a_json_answer_as_the_readme_says(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert "Examples" in text
    assert "--json" in text


def test_commands_on_files_ordered_by_a_rank_name_that_column() -> None:
    pages = [
        PROJECT / "README.md",
        *(PROJECT / "docs").rglob("*.md"),
        *PROJECT.glob("results/*.md"),
    ]
    texts = [page.read_text().replace("\\\n", " ") for page in pages]
    commands = [line for text in texts for line in re.findall(r"^loca .*$", text, re.M)]
    commands += [
        " ".join(command.split())
        for text in texts
        for command in re.findall(r"`(loca\s[^`]+)`", text)
    ]
    of_ranks = [command for command in commands if "-ordered.csv" in command]
    assert len(of_ranks) >= 3
    assert [command for command in of_ranks if "--time-column rank" not in command] == []
