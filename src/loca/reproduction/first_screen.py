"""The first screen of the page: one sentence on what is true overall, and a table of what each LOCA gains."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape

from loca.errors import DataError
from loca.reproduction.exhibit import Gain, Headline
from loca.reproduction.seed_means import with_spread

# What a LOCA is compared with, in the order of a headline's gains, and the word that names each in `Gain.over`.
_OVERS = {"base": "its base", "single": "the best single model", "ensemble": "the equal-size ensemble"}
_PROTOCOLS = {"clean": "a result", "paper": "chosen on test: not a result"}
_NARROW = {"clean": "clean", "paper": "paper, not a result"}
_CAPTION = "What LOCA gains in NDCG@100"
_NOTE = (
    "Gains in NDCG@100, in % of the mean of the model named below them, with 95 % intervals over users; better and "
    "worse where the interval and two corrected paired tests (t, Wilcoxon) agree, undecided where they do not; equal "
    "where no user's figure differs, as where the global share that was chosen is 1. Behind ± the standard deviation "
    "over seeds, in brackets the number of local models. Under clean every choice is made on validation; under paper "
    "when to stop, the global share and the best rival are chosen on test, as in the paper's program, to stand beside "
    "what it prints. The protocols do not always ask the same users."
)


def first_screen(headlines: Sequence[Headline]) -> str:
    """The sentence, the table and a note on how to read it, as HTML."""
    # A count is not torn apart at the end of a line.
    sentence = escape(overall_sentence(headlines)).replace(" of ", "&nbsp;of&nbsp;")
    lead = f'<p class="lead">{sentence}</p>\n'
    if not headlines:
        return lead
    cases = list(dict.fromkeys((one.data, one.model) for one in headlines))
    found = {(one.data, one.model, one.protocol): one for one in headlines}
    _check(headlines, len(found))
    rows = "".join(
        _row(data, model, {name: found.get((data, model, name)) for name in _PROTOCOLS}) for data, model in cases
    )
    return (
        f'{lead}<div class="scroll gains" role="region" aria-label="{_CAPTION}" tabindex="0">\n'
        f'<table role="table">\n<caption>{_CAPTION}</caption>\n'
        f'{_head()}<tbody role="rowgroup">\n{rows}</tbody>\n</table>\n</div>\n<p class="note">{escape(_NOTE)}</p>\n'
    )


def overall_sentence(headlines: Sequence[Headline]) -> str:
    """What is true overall under the clean protocol: in how many cases LOCA surely wins, loses, or cannot be told."""
    clean = [gains_in_order(one) for one in headlines if one.protocol == "clean"]
    parts: list[str] = []
    others: set[str] = set()
    for place, over in enumerate(_OVERS.values()):
        words = [gain.verdict for gains in clean if (gain := gains[place]) is not None]
        others |= {word for word in words if word not in ("better", "worse")}
        if words:
            cases = "" if parts else " cases" if len(words) > 1 else " case"
            loses = f" (and loses in {words.count('worse')})" if "worse" in words else ""
            parts.append(f"{over} in {words.count('better')} of {len(words)}{cases}{loses}")
    if not parts:
        return "No LOCA was compared under the clean protocol, so there is no gain to tell yet."
    listed = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    rest = f"; the others are {' or '.join(sorted(others, reverse=True))}" if others else ""
    return f"Where nothing is chosen on test, LOCA beats {listed}{rest}."


def gains_in_order(headline: Headline) -> tuple[Gain | None, Gain | None, Gain | None]:
    """The gains over the base, over the best single model and over the ensemble; None where one was not measured.

    Three gains are taken as they come; fewer are told apart by base, single or ensemble in what they are over, as in
    "the best single model (RecVAE)".
    """
    if len(headline.gains) == len(_OVERS):
        first, second, third = headline.gains
        return first, second, third
    named = {word: [gain for gain in headline.gains if word in gain.over.split("(")[0]] for word in _OVERS}
    if sum(map(len, named.values())) != len(headline.gains) or any(len(gains) > 1 for gains in named.values()):
        raise DataError(
            f"headline of {headline.model} on {headline.data}: expected 3 gains, or fewer that each say base, single "
            f"or ensemble in what they are over, found {', '.join(repr(gain.over) for gain in headline.gains)}"
        )
    base, single, ensemble = (next(iter(gains), None) for gains in named.values())
    return base, single, ensemble


def figures_of(gain: Gain) -> tuple[str, str]:
    """The gain and its interval in % of the mean compared with; in NDCG@100 itself where % cannot be told."""
    if gain.verdict == "equal":
        return "0 %", "for every user"
    if not (math.isfinite(gain.relative) and gain.difference):
        return f"{_signed(gain.difference, 4)}", f"{_signed(gain.low, 4)} to {_signed(gain.high, 4)}"
    scale = 100 * gain.relative / gain.difference
    digits = 2 if abs(gain.relative) < 0.01 else 1
    low, high = sorted((gain.low * scale, gain.high * scale))
    return f"{_signed(100 * gain.relative, digits)} %", f"{_signed(low, digits)} to {_signed(high, digits)} %"


def _check(headlines: Sequence[Headline], different: int) -> None:
    unknown = sorted({one.protocol for one in headlines} - set(_PROTOCOLS))
    if unknown:
        raise DataError(f"headlines: expected the protocols clean and paper, found {unknown[0]!r}")
    if different != len(headlines):
        raise DataError("headlines: expected one for each data set, model and protocol, found the same one twice")


def _head() -> str:
    overs = "".join(
        f'<th role="columnheader" scope="colgroup" colspan="2" class="over">over {over}</th>'
        for over in _OVERS.values()
    )
    protocols = "".join(
        f'<th role="columnheader" scope="col" class="{name}">{name}<small>{told}</small></th>'
        for name, told in _PROTOCOLS.items()
    )
    return (
        '<thead role="rowgroup">\n<tr role="row"><th role="columnheader" scope="col" rowspan="2">data set, model</th>'
        f'<th role="columnheader" scope="col" rowspan="2">NDCG@100</th>{overs}</tr>\n'
        f'<tr role="row">{protocols * len(_OVERS)}</tr>\n</thead>\n'
    )


def _row(data: str, model: str, by_protocol: dict[str, Headline | None]) -> str:
    cells = [
        _cell(None if headline is None else gains_in_order(headline)[place], f"over {over}", protocol)
        for place, over in enumerate(_OVERS.values())
        for protocol, headline in by_protocol.items()
    ]
    return (
        f'<tr role="row"><th role="rowheader" scope="row"><b>{escape(data)}</b>{escape(model)}</th>'
        f"{_ndcg_cell(by_protocol)}{''.join(cells)}</tr>\n"
    )


def _ndcg_cell(by_protocol: dict[str, Headline | None]) -> str:
    """The means of the model itself, and what the paper prints for the data of its own protocol."""
    measured = [one for one in by_protocol.values() if one is not None]
    told = [f"{with_spread(one.ndcg, one.spread)} {one.protocol}" for one in measured]
    paper = by_protocol["paper"]
    if paper is not None and paper.printed is not None:
        told.append(f"{paper.printed:.4f} printed")
    return (
        f'<td role="cell" class="ndcg" data-column="NDCG@100">{"".join(f"<small>{line}</small>" for line in told)}</td>'
    )


def _cell(gain: Gain | None, column: str, protocol: str) -> str:
    # A narrow screen has no head over its cells, so each says what it is.
    label = f'data-column="{escape(f"{column} ({_NARROW[protocol]})")}"'
    if gain is None:
        return f'<td role="cell" class="{protocol}" {label}>–</td>'
    figure, interval = figures_of(gain)
    named = "" if gain.over in _OVERS.values() else f"<small>{escape(_name_of(gain.over))}</small>"
    return (
        f'<td role="cell" class="{protocol} {gain.verdict}" {label}><span class="figure">{figure}</span> '
        f'<span class="word">{gain.verdict}</span><small>{interval}</small>{named}</td>'
    )


def _name_of(over: str) -> str:
    """The model itself where its part is told too: RecVAE of "the best single model (RecVAE)"."""
    found = re.fullmatch(r"[^(]+\((.+)\)", over)
    return found[1] if found else over


def _signed(value: float, digits: int) -> str:
    """A number with its sign, none for what rounds to 0, and a true minus."""
    text = f"{value:+.{digits}f}"
    return text[1:] if not float(text) else text.replace("-", "−")
