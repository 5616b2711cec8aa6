"""Write the golden outputs anew, where what a user sees was meant to change; tests never run it.

    python tests/golden/write.py                    documents, scores and digests
    python tests/golden/write.py documents table2   only these documents; likewise: scores NAME …

Then read the diff: every changed line is something that a user will see changed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import golden_cases as cases
import torch

import loca


def write_documents(names: Sequence[str]) -> None:
    """Write the documents of commands, each called in an empty folder."""
    cases.DOCUMENTS.mkdir(exist_ok=True)
    for name in names or cases.COMMANDS:
        with tempfile.TemporaryDirectory() as folder:
            document = cases.document_of(name, Path(folder))
        text = json.dumps(document, ensure_ascii=False, indent=1)
        (cases.DOCUMENTS / f"{name}.json").write_text(text + "\n")


def write_scores(names: Sequence[str]) -> None:
    """Write the scores of the catalogue's models."""
    cases.SCORES.mkdir(exist_ok=True)
    for name in names or cases.CATALOGUE:
        with tempfile.TemporaryDirectory() as folder:
            scores = cases.fitted_scores(name, Path(folder))
        rows = ",\n".join(f" {json.dumps(row)}" for row in scores)
        (cases.SCORES / f"{name}.json").write_text(f"[\n{rows}\n]\n")


def write_digests(names: Sequence[str]) -> None:
    """Write the digests of the results' tables, as sha256sum writes and checks them."""
    lines = [f"{digest}  {path}\n" for path, digest in cases.digests().items()]
    cases.DIGESTS.write_text("".join(lines))


WRITERS: dict[str, Callable[[Sequence[str]], None]] = {
    "documents": write_documents,
    "scores": write_scores,
    "digests": write_digests,
}

if __name__ == "__main__":
    os.environ.pop("LOCA_DATA", None)
    torch.set_num_threads(1)
    torch.cuda.is_available = lambda: False
    loca.set_progress(False)
    kind, *names = sys.argv[1:] or ["all"]
    for writer in WRITERS if kind == "all" else (kind,):
        WRITERS[writer](names)
