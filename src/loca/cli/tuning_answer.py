"""What `loca tune` answers: its findings for people and programs, and as a file of settings."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loca.cli.output import Output
from loca.cli.request import Request
from loca.cli.tuning_request import TuneOptions, Words

if TYPE_CHECKING:
    from loca.experiments.tuning import Tuning


def write_settings(out: Path, request: Request[TuneOptions], words: Words, tuned: Sequence[Tuning]) -> None:
    """The settings of all models in one file, and what the other commands need to take them up."""
    from loca.experiments.tuned_settings import toml_text
    from loca.files.whole_files import write_whole

    own = request.own
    best = max(tuned, key=lambda one: one.ndcg)
    comments = [
        f"Settings tuned by loca on {request.source}: {own.budget()}, space {own.space}, seed {own.seed}",
        *(headline(one) for one in tuned),
        _command(request, words),
        f"taken by  loca fit {shlex.quote(request.source)} --config {shlex.quote(str(out))} --out MODEL  "
        "and by  loca compare",
    ]
    said = {name: words.section(name) for name in ("data", "planted", "split", "recency")}
    sections: dict[str, Any] = {
        "fit": {"model": best.name, "seed": own.seed},
        "compare": {"models": [one.name for one in tuned], "seed": own.seed},
        **{name: table for name, table in said.items() if table},
        **{one.name: one.settings for one in tuned},
    }
    write_whole(out, toml_text(comments, sections))


def _command(request: Request[TuneOptions], words: Words) -> str:
    """The command that tuned, for whoever wants to do it again."""
    own = request.own
    parts = ["loca", "tune", request.source, "--model", ",".join(request.models), "--space", own.space]
    budget = own.budget()
    parts += [] if budget.trials is None else ["--trials", str(budget.trials)]
    parts += [] if budget.seconds is None else ["--seconds", f"{budget.seconds:g}"]
    parts += [] if words.config is None else ["--config", str(words.config)]
    parts += [part for text in words.assignments for part in ("--set", text)]
    parts += [part for text in words.choices for part in ("--choose", text)]
    return f"{shlex.join(parts)} --seed {own.seed}"


def headline(one: Tuning) -> str:
    """What tuning one model came to, in one line."""
    before = "" if one.ndcg_before is None else f" ({one.ndcg_before:.4f} as it was)"
    trials = f"{one.finished} trial{'s' if one.finished != 1 else ''}"
    ended = f"{trials} finished, {one.pruned} pruned, {one.failed} failed, in {one.seconds:.1f} s"
    return f"{one.name}: NDCG@100 {one.ndcg:.4f} on validation{before}; {ended}"


def tell(tuned: Sequence[Tuning], request: Request[TuneOptions], out: Path | None, output: Output) -> None:
    """Prints what tuning came to."""
    from loca.experiments.candidates import describe_model
    from loca.experiments.report import flat_settings

    lines: list[str] = []
    for one in tuned:
        settings = ", ".join(f"{key} {value}" for key, value in flat_settings(one.settings).items())
        lines += [headline(one), f"  settings: {settings or 'there is nothing to set'}"]
        if one.importances:
            told = ", ".join(f"{key} {share:.0%}" for key, share in one.importances.items())
            lines.append(f"  what mattered, by {one.finished} trials: {told}")
    if out is not None:
        lines.append(f"written to {out}: loca fit {request.source} --config {out} --out MODEL")
    models = [
        {
            "name": one.name,
            "settings": one.settings,
            "parameters": describe_model(one.best),
            "validation_ndcg@100": one.ndcg,
            "validation_ndcg@100_before": one.ndcg_before,
            "finished": one.finished,
            "pruned": one.pruned,
            "failed": one.failed,
            "seconds": one.seconds,
            "importances": dict(one.importances),
        }
        for one in tuned
    ]
    own = request.own
    document = {"budget": str(own.budget()), "space": own.space, "seed": own.seed, "models": models}
    output.answer("\n".join(lines), {**document, "out": None if out is None else str(out)})
