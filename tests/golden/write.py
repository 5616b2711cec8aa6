"""Writes the golden outputs anew, to be run only where what a user sees was meant to change; tests never run it.

    python tests/golden/write.py                    documents, scores and digests
    python tests/golden/write.py documents table2   only these documents; likewise: scores NAME …, digests
    python tests/golden/write.py models NAME …      saved models, with their scores

Then read the diff: every changed line is something that a user will see changed. Saved models stand for the folders
that users have, and must be loadable for ever: they are written only where named, which is for a new kind of model.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import golden_cases as cases
import torch

import loca


def write_documents(names: Sequence[str]) -> None:
    """The documents of commands, each called in an empty folder."""
    cases.DOCUMENTS.mkdir(exist_ok=True)
    for name in names or cases.COMMANDS:
        with tempfile.TemporaryDirectory() as folder:
            document = cases.document_of(name, Path(folder))
        text = json.dumps(document, ensure_ascii=False, indent=1)
        (cases.DOCUMENTS / f"{name}.json").write_text(text + "\n")


def write_scores(names: Sequence[str]) -> None:
    """The scores of the catalogue's models."""
    for name in names or cases.CATALOGUE:
        with tempfile.TemporaryDirectory() as folder:
            _write(cases.SCORES / f"{name}.json", cases.fitted_scores(name, Path(folder)))


def write_models(names: Sequence[str]) -> None:
    """Saved models of 40 users and 20 items, and what they score."""
    if not names:
        raise SystemExit("saved models stay as they are; name those to write anew")
    planted = loca.planted_communities(
        users=40,
        items=20,
        communities=2,
        groups=4,
        tastes=1.0,
        history=8,
        shortest_history=8,
        seed=1,
    )
    split = loca.leave_last_out(planted.interactions, test=1, validation=2)
    cases.MODELS.mkdir(exist_ok=True)
    for name in names:
        model = cases.saved_models()[name]().fit(split.train, validation=split.validation)
        shutil.rmtree(cases.MODELS / name, ignore_errors=True)
        model.save(cases.MODELS / name)
        _write(cases.MODEL_SCORES / f"{name}.json", cases.loaded_scores(name))


def write_digests(names: Sequence[str]) -> None:
    """The digests of the results' tables, as sha256sum writes and checks them."""
    lines = [f"{digest}  {path}\n" for path, digest in cases.digests().items()]
    cases.DIGESTS.write_text("".join(lines))


def _write(path: Path, scores: list[list[float]]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("[\n" + ",\n".join(f" {json.dumps(row)}" for row in scores) + "\n]\n")


WRITERS: dict[str, Callable[[Sequence[str]], None]] = {
    "documents": write_documents,
    "scores": write_scores,
    "digests": write_digests,
    "models": write_models,
}

if __name__ == "__main__":
    os.environ.pop("LOCA_DATA", None)
    torch.set_num_threads(1)
    torch.cuda.is_available = lambda: False
    loca.set_progress(False)
    what, *named = sys.argv[1:] or ["all"]
    for one in ("documents", "scores", "digests") if what == "all" else (what,):
        WRITERS[one](named)
