"""Every public name explains itself: each parameter, what comes back, and an example that runs."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path

import pytest

import loca

NAMES = [name for name in loca.__all__ if name != "__version__"]
PLAIN = {
    name
    for name in NAMES
    if isinstance(getattr(loca, name), type) and issubclass(getattr(loca, name), Exception)
}
# A protocol is explained by the classes that keep it.
ABSTRACT = {"Recommender"}


def section(text: str, title: str) -> str:
    """The lines under a numpydoc heading, up to the next one."""
    found = re.search(rf"^{title}\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", text, re.M | re.S)
    return "" if found is None else found[1]


@pytest.mark.parametrize("name", sorted({*NAMES} - PLAIN))
def test_a_public_name_explains_its_parameters_and_shows_an_example(name: str) -> None:
    value = getattr(loca, name)
    text = inspect.getdoc(value) or ""
    takes = [one for one in inspect.signature(value).parameters if name not in ABSTRACT]
    described = section(text, "Parameters") or section(text, "Attributes")
    missing = [
        one
        for one in takes
        if not re.search(rf"^[\w*, ]*\b{one}\b[\w*, ]*( : |$)", described, re.M)
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
    page = (Path(__file__).parents[1] / "docs" / "api.md").read_text()
    blocks = re.findall(
        r"^::: loca\.(\w+)$(?:\n    options:\n      members: \[(.*)\]$)?", page, re.M
    )
    assert sorted(name for name, _ in blocks) == sorted(NAMES)
    for name, members in blocks:
        assert not [
            one for one in members.split(", ") if one and not hasattr(getattr(loca, name), one)
        ], name
