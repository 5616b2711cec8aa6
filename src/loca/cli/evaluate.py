"""`loca evaluate`: measure a saved model on interactions that it has not seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from loca.cli.options import Device, Output, Reading, Recency, naming, read_part, words
from loca.cli.recommend import Folder, load_known
from loca.config import options as config
from loca.errors import ConfigError

Later = Annotated[
    str,
    typer.Argument(metavar="DATA", help="A file of later interactions, or - for standard input."),
]
At = Annotated[
    str | None, typer.Option(help="Lengths of the measured lists, comma separated (50,100).")
]
History = Annotated[
    str | None,
    typer.Option(
        help="What is known before DATA: histories of new users, newer items of known ones."
    ),
]


def evaluate_model(
    folder: Folder,
    source: Later,
    reading: Reading,
    output: Output,
    at: At = None,
    history: History = None,
    recency: Recency = None,
    device: Device = "auto",
) -> None:
    """Measure how well a saved model finds what its users took later.

    Histories are those that the model was fitted on, and what --history adds to them; the rows of
    DATA are to be found. Users and items are matched by id. Items that the model does not know, and
    users without a history, are left out and counted.

    Examples:

      loca evaluate films.loca march.csv

      loca evaluate films.loca march.csv --history february.csv --at 10,20 --json

      zcat march.csv.gz | loca evaluate films.loca - --min-rating 4
    """
    from loca.data.archives import STANDARD_INPUT
    from loca.data.splits import hold_out
    from loca.evaluation.evaluate import evaluate
    from loca.evaluation.metrics import check_lengths

    # All that can be refused is refused before the model and the data are read.
    lengths = check_lengths(config.check_value("--at", tuple[int, ...], words(at) or [50, 100]))
    data = reading.checked()
    if source == history == STANDARD_INPUT:
        raise ConfigError("--history: standard input is DATA already; give the path of a file")
    model, known, weights = load_known(folder, recency, device)
    data.check_later(known.schema)
    later = read_part(source, data, known.schema, are_targets=True)
    more = None
    if history is not None:
        with naming("--history"):
            more = read_part(history, data, known.schema)
    held_out, report = hold_out(known, later, histories=more)
    if weights != "model":
        held_out = held_out.with_recency(weights)
        model.train_data_ = known.with_recency(weights)
    evaluation = evaluate(model, held_out, at=lengths)
    document: dict[str, Any] = {
        "model": str(folder),
        "data": source,
        **evaluation.to_json(),
        "targets": len(held_out.targets),
        "left_out": {
            "users": later.n_users - held_out.n_users,
            "interactions": len(later) - len(held_out.targets),
        },
        "report": list(report),
    }
    # What was remarked stands beside the answer, and in the report.
    output.answer("\n".join([*report, str(replace(evaluation, remarks=()))]), document)
