"""The tables of what locality earns, as Markdown, from the JSON files of one or more runs."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loca.ranking.significance import paired_difference
from locality_variants import ROWS

Values = npt.NDArray[np.float64]
Rows = dict[str, dict[str, Any]]
TITLES = {"ease": "EASE", "vae": "MultVAE", "set": "without order", "order": "with order"}
_ABOUT_VALIDATION = (
    "Validation figures, here and above, are cross-validated over two halves of the users: what a row chose on one "
    "half is judged on the other, so that a row with more to choose from has no advantage."
)
CONTROLS = ("ensemble", "ensemble-cost", "global", "true")


def encode_values(values: Values | None) -> str:
    """One number per user as text: 32-bit, compressed, in base 64."""
    numbers = np.zeros(0, np.float32) if values is None else values.astype(np.float32)
    return base64.b64encode(zlib.compress(numbers.tobytes())).decode()


def decode_values(text: str) -> Values:
    """The numbers again."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=np.float32).astype(np.float64)


def tables_of(paths: Iterable[Path]) -> str:
    """All tables of the files (or of the JSON files in folders), and which variants won on validation."""
    files = [file for path in paths for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]
    trials: dict[str, list[dict[str, Any]]] = {}
    anchors = {}
    for file in files:
        document = json.loads(file.read_text())
        trials.setdefault(document["data"], []).extend(document["trials"])
        anchors[document["data"]] = document["anchors"]
    blocks = []
    pooled: dict[tuple[str, str, str], Rows] = {}
    for data, of_data in trials.items():
        blocks.append(f"## {data}: {anchors[data]} communities")
        for base, world in dict.fromkeys((one["base"], one["world"]) for one in of_data):
            some = [one for one in of_data if (one["base"], one["world"]) == (base, world)]
            rows = pool_rows(some)
            pooled[data, base, world] = rows
            seeds = ", ".join(str(seed) for seed in dict.fromkeys(one["seed"] for one in some))
            blocks.append(f"### {TITLES.get(base, base)} {TITLES.get(world, world)} (seeds {seeds})")
            blocks.append(_table(rows))
    blocks.append("## Validation against LOCA as it is")
    blocks.append(_ABOUT_VALIDATION)
    blocks.append(_summary(pooled))
    return "\n\n".join(blocks)


def pool_rows(trials: list[dict[str, Any]]) -> Rows:
    """Each row over all trials: values per user averaged over the trials of one draw of the data, draws in a row.

    A row that some trial lacks is left out, because it could not be paired with the others.
    """
    kept: dict[tuple[int, int], Mapping[str, Any]] = {(one["draw"], one["seed"]): one["rows"] for one in trials}
    names = [name for name in ROWS if all(name in rows for rows in kept.values())]
    pooled: Rows = {}
    for name in names:
        rows = [one[name] for one in kept.values()]
        pooled[name] = {
            "values": _over_draws(kept, name, "values"),
            "validation_values": _over_draws(kept, name, "validation_values"),
            "seconds": float(np.mean([row["seconds"] for row in rows])),
            "shown": float(np.mean([row["shown"] for row in rows])),
            "chosen": [row["chosen"] for row in rows],
        }
    return pooled


def _over_draws(kept: Mapping[tuple[int, int], Mapping[str, Any]], name: str, kind: str) -> Values:
    draws = dict.fromkeys(draw for draw, _ in kept)
    return np.concatenate(
        [
            np.mean([decode_values(rows[name][kind]) for (own, _), rows in kept.items() if own == draw], axis=0)
            for draw in draws
        ]
    )


def _table(rows: Rows) -> str:
    lines = [
        "| | NDCG@100 | to the ensemble | to the global model | validation | users shown | seconds | chosen |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        cells = [
            ROWS[name][0],
            f"{row['values'].mean():.4f}",
            _difference(rows, name, "ensemble"),
            _difference(rows, name, "global"),
            f"{row['validation_values'].mean():.4f}",
            f"{row['shown'] / 1e6:.2f} M",
            f"{row['seconds']:.0f}",
            _chosen(row["chosen"]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _difference(rows: Rows, name: str, control: str, kind: str = "values") -> str:
    """The difference in % of the control's mean with its paired 95 % interval; bold where the interval is above 0."""
    if name == control or control not in rows:
        return "–"
    reference = rows[control][kind]
    paired = paired_difference(rows[name][kind], reference)
    scale = 100 / reference.mean()
    text = f"{paired.mean * scale:+.1f} % [{paired.low * scale:+.1f}, {paired.high * scale:+.1f}]"
    return f"**{text}**" if paired.low > 0 else text


def _chosen(of_trials: list[Mapping[str, Any]]) -> str:
    """What was chosen, the values of all trials side by side where they differ."""
    names = list(dict.fromkeys(name for one in of_trials for name in one))
    return ", ".join(
        f"{name} {' / '.join(dict.fromkeys(str(one.get(name, '–')) for one in of_trials))}" for name in names
    )


def _summary(pooled: dict[tuple[str, str, str], Rows]) -> str:
    """Every variant beside LOCA as it is, on validation, for each data set, base and world."""
    names = [name for name in ROWS if name not in CONTROLS and name != "loca"]
    cases = [(base, world) for _, base, world in pooled]
    blocks = []
    for base, world in dict.fromkeys(cases):
        sets = [data for data, *rest in pooled if tuple(rest) == (base, world)]
        lines = [
            f"| {TITLES.get(base, base)} {TITLES.get(world, world)} | " + " | ".join(sets) + " |",
            "|---|" + "---|" * len(sets),
        ]
        for name in names:
            tables = [pooled[data, base, world] for data in sets]
            if any(name in rows and "loca" in rows for rows in tables):
                cells = [
                    _difference(rows, name, "loca", "validation_values") if name in rows else "not run"
                    for rows in tables
                ]
                lines.append(f"| {ROWS[name][0]} | " + " | ".join(cells) + " |")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)
