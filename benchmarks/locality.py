"""What locality earns: LOCA against ensembles of equal size and cost, with and without order, and ways to earn more.

Run: python benchmarks/locality.py amusic games ml-1m planted --seeds 0,1,2 --out results > docs/locality-table.md
     python benchmarks/locality.py --table results > docs/locality-table.md      (the table again, from what is there)
Data sets are found through LOCA_DATA, or are .npz files that hold `offsets` and `item_rows`: user u has
item_rows[offsets[u]:offsets[u + 1]], oldest first. The last 5 of each user are test, those before them validation (2;
5 on ml-1m); every choice is made on validation, nothing is refitted. Results are written after every row, so that a run
that is ended early leaves what it has; it skips rows once --budget is spent. What happens is told on stderr.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import loca
from loca.data.interactions import Interactions
from loca.models.devices import choose_device
from loca.models.recommender import Recommender
from locality_memberships import Histories
from locality_questions import Questions
from locality_table import encode_values, tables_of
from locality_trial import Setting, Trial
from locality_variants import ROWS
from ordered_sets import SETS, read_data

BASES = ("ease", "vae")
WORLDS = ("set", "order")
VAE_DECAY = 0.9


@dataclass(frozen=True)
class Preset:
    """What is known to suit a data set: l2 of EASE (chosen on validation where several), decay of its histories."""

    l2: tuple[float, ...]
    decay: float
    set_share: float
    latent: int = 200


PRESETS = {
    "amusic": Preset((100.0,), 0.8, 0.3),
    "games": Preset((300.0,), 0.85, 0.3),
    "ml1m": Preset((1000.0,), 0.85, 0.0),
    "planted": Preset((30.0, 100.0, 300.0), 0.9, 0.3, latent=64),
}
UNKNOWN = Preset((100.0, 300.0, 1000.0), 0.85, 0.3)


class Record:
    """The JSON file of a run, written again after every row."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._document: dict[str, Any] = {**about, "trials": []}

    def begin(self, **about: Any) -> None:
        """Opens the list of rows of a trial."""
        self._document["trials"].append({**about, "rows": {}, "skipped": []})

    def add(self, name: str, row: dict[str, Any]) -> None:
        """Adds a row to the trial that was opened last."""
        self._document["trials"][-1]["rows"][name] = row
        self.write()

    def skip(self, name: str) -> None:
        """Notes a row for which there was no time left."""
        self._document["trials"][-1]["skipped"].append(name)
        self.write()

    def write(self) -> None:
        """Writes all there is, whole or not at all."""
        beside = self._path.with_suffix(".part")
        beside.write_text(json.dumps(self._document, ensure_ascii=False, indent=1) + "\n")
        beside.replace(self._path)


def main() -> None:
    """Reads what is asked; measures, or renders tables."""
    asked = _parser().parse_args()
    if asked.table:
        print(tables_of(asked.table))
        return
    if not asked.data:
        sys.exit("name a data set, an .npz file or `planted`, or ask for --table")
    unknown = {*asked.variants.split(",")} - {*ROWS}
    if unknown:
        sys.exit(f"--variants: expected some of {', '.join(ROWS)}, found {', '.join(sorted(unknown))}")
    logging.getLogger("loca").setLevel(logging.INFO if asked.verbose else logging.WARNING)
    logging.basicConfig(format="    %(message)s")
    for source in asked.data:
        run(source, asked)
    print(tables_of([asked.out]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", help=f"{', '.join(SETS)}, .npz files, or `planted`")
    parser.add_argument("--table", nargs="+", type=Path, help="JSON files, or folders of them, to render")
    parser.add_argument("--out", type=Path, default=Path("results"), help="a folder, one JSON file for each data set")
    parser.add_argument("--validation", type=int, help="of each user (2; 5 on ml-1m)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--anchors", type=int, default=24)
    parser.add_argument("--bases", default=",".join(BASES))
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--variants", default=",".join(ROWS))
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds after which rows are skipped")
    parser.add_argument("--stop-each", action="store_true", help="choose the epochs of each variant on validation too")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--latent", type=int)
    parser.add_argument("--users", type=int, default=4000, help="of the planted data")
    parser.add_argument("--verbose", action="store_true")
    return parser


def run(source: str, asked: argparse.Namespace) -> None:
    """All trials that are asked for on one data set, one after the other."""
    begin = time.perf_counter()
    device = choose_device(asked.device)
    name = Path(source).stem.replace("-", "")
    preset = PRESETS.get(name, UNKNOWN)
    validation = asked.validation or (5 if name == "ml1m" else 2)
    record = Record(asked.out / f"{name}.json", {"data": name, "anchors": asked.anchors, "validation": validation})
    for seed in (int(text) for text in asked.seeds.split(",")):
        interactions, shares = _read(source, asked.users, validation, seed)
        split = loca.leave_last_out(interactions, test=5, validation=validation)
        for base in asked.bases.split(","):
            for world in asked.worlds.split(","):
                record.begin(base=base, world=world, seed=seed, draw=seed if shares is not None else 0)
                print(f"{name}, {base}, {world}, seed {seed}", file=sys.stderr, flush=True)
                trial = Trial(_setting(asked, preset, split, shares, base, world, seed, device))
                _measure(trial, asked, record, begin)
                del trial
                if device.type == "cuda":
                    torch.cuda.empty_cache()


def _measure(trial: Trial, asked: argparse.Namespace, record: Record, begin: float) -> None:
    """The rows of one trial, each as it is done."""
    for name, (what, row) in ROWS.items():
        if name not in asked.variants.split(","):
            continue
        if time.perf_counter() - begin > asked.budget:
            record.skip(name)
            continue
        start = time.perf_counter()
        outcome = row(trial)
        if outcome is None:
            continue
        seconds = time.perf_counter() - start
        print(
            f"  {what:<46} validation {outcome.validation:.4f}  test {outcome.test:.4f}  {seconds:6.1f} s  "
            f"{outcome.shown / 1e6:7.2f} M shown  {_words(outcome.chosen)}",
            file=sys.stderr,
            flush=True,
        )
        record.add(
            name,
            {
                "validation": outcome.validation,
                "test": outcome.test,
                "chosen": dict(outcome.chosen),
                "seconds": round(seconds, 2),
                "shown": outcome.shown,
                "values": encode_values(outcome.values),
                "validation_values": encode_values(outcome.validation_values),
            },
        )


def _words(chosen: Any) -> str:
    return ", ".join(f"{name} {value}" for name, value in chosen.items())


def _read(source: str, users: int, validation: int, seed: int) -> tuple[Interactions, dict[Any, Any] | None]:
    """The interactions, and the true shares of each planted user by id."""
    if source == "planted":
        planted = loca.planted_communities(users=users, seed=seed)
        return planted.interactions, dict(zip(planted.interactions.users.values, planted.memberships, strict=True))
    return read_data(source, validation)[0], None


def _setting(
    asked: argparse.Namespace,
    preset: Preset,
    split: loca.Split,
    shares: dict[Any, Any] | None,
    base: str,
    world: str,
    seed: int,
    device: torch.device,
) -> Setting:
    decay = preset.decay if base == "ease" else VAE_DECAY
    ours = split.with_recency(loca.Recency.per_position(decay)) if world == "order" else split
    if ours.validation is None:
        sys.exit("--validation: expected at least 1, because every choice is made there")
    parts = {"validation": Questions(ours.validation, device), "test": Questions(ours.test, device)}
    ids = {"train": ours.train.users.values, **{name: one.user_ids for name, one in parts.items()}}
    true_shares = None if shares is None else {name: np.stack([shares[one] for one in of]) for name, of in ids.items()}
    histories = Histories(ours.train.histories(), parts["validation"].histories, parts["test"].histories)
    matrix = ours.train.matrix()
    if base == "vae":
        model: Recommender = _vae(asked, preset, world, seed, device)
    else:
        candidates = [loca.EASE(l2=l2, device=str(device)) for l2 in preset.l2]
        model = candidates[0] if len(candidates) == 1 else _best_of(candidates, matrix, ours.validation)
    return Setting(
        model, matrix, histories, ours.validation, parts, asked.anchors, seed, device, asked.stop_each, true_shares
    )


def _best_of(candidates: list[Any], matrix: Any, validation: loca.HeldOut) -> Recommender:
    """The candidate with the best validation NDCG@100."""
    scores = [
        loca.evaluate(model.fit(matrix), validation, at=(100,)).means()["ndcg@100"]
        for model in (loca.clone(one) for one in candidates)
    ]
    return candidates[int(np.argmax(scores))]


def _vae(asked: argparse.Namespace, preset: Preset, world: str, seed: int, device: torch.device) -> loca.MultVAE:
    """A MultVAE that learns whole sets, or the next items from decayed prefixes."""
    plain = loca.MultVAE(
        latent=asked.latent or preset.latent,
        dropout=0.2,
        noise=0.1,
        kl_weight=0.0,
        learning_rate=2e-3,
        epochs=asked.epochs,
        patience=10,
        evaluate_every=2,
        seed=seed,
        device=str(device),
    )
    if world == "set":
        return plain
    return loca.clone(plain, target="next", next_count=10, prefix_decay=VAE_DECAY, set_share=preset.set_share)


if __name__ == "__main__":
    main()
