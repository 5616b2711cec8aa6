"""Figures 5 and 6: accuracy by the number of local models, beside the controls, and over two base models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loca.experiments.cells import Cell
from loca.experiments.grid import Grid
from loca.reproduction.bench import Bench, Results, labelled
from loca.reproduction.exhibit import Chart, Exhibit, Finding, Panel, Value
from loca.reproduction.seed_means import in_words, over_seeds
from loca.reproduction.sweeps import curve, level, lines_of

_FIGURE_5 = ("loca-vae", "llorma-vae", "ensemble-vae")
_FIGURE_6 = ("loca-vae", "loca-dae")


def needed_by_number(bench: Bench) -> dict[str, Cell]:
    """The cells of Figure 5, which are rows of Table 2."""
    return _rows(bench, ("mult-vae", *_FIGURE_5))


def needed_by_base(bench: Bench) -> dict[str, Cell]:
    """The cells of Figure 6, which are rows of Table 2."""
    return _rows(bench, ("mult-vae", "mult-dae", *_FIGURE_6))


def make_by_number(studied: Sequence[Results]) -> Exhibit:
    """Figure 5."""
    return Exhibit(
        key="figure5",
        title="Figure 5: the number of local models",
        caption="NDCG@100 of LOCA_VAE, LLORMA_VAE (one kernel to train and to answer) and the ensemble (all weights 1) "
        "by the number of models, beside the one MultVAE. Points of one line are the first models of one run, "
        "whose epochs and global share were chosen for all of them.",
        panels=_panels(studied, _FIGURE_5, ("mult-vae",)),
        charts=tuple(_chart(one, _FIGURE_5, ("mult-vae",)) for one in _counted(studied, _FIGURE_5)),
        records=_records(studied, _FIGURE_5, ("mult-vae",)),
        findings=tuple(_findings(studied)),
    )


def make_by_base(studied: Sequence[Results]) -> Exhibit:
    """Figure 6."""
    return Exhibit(
        key="figure6",
        title="Figure 6: other base models",
        caption="NDCG@100 of LOCA over DAE and over VAE by the number of local models; dashed, the bases alone.",
        panels=_panels(studied, _FIGURE_6, ("mult-vae", "mult-dae")),
        charts=tuple(_chart(one, _FIGURE_6, ("mult-vae", "mult-dae")) for one in _counted(studied, _FIGURE_6)),
        records=_records(studied, _FIGURE_6, ("mult-vae", "mult-dae")),
        findings=tuple(_gains_over_base(studied)),
    )


def counts_of(results: Results, name: str) -> tuple[int, ...]:
    """The numbers of models that a row was measured with."""
    measured = results.of(name)
    return tuple(measured[0].by_count) if measured else ()


def _counted(studied: Sequence[Results], names: Sequence[str]) -> list[Results]:
    """Those that any of the models was measured on by its number of models."""
    return [results for results in studied if any(counts_of(results, name) for name in names)]


def _rows(bench: Bench, names: Sequence[str]) -> dict[str, Cell]:
    return {called: cell for name in names for called, cell in bench.row(name).items()}


def _chart(results: Results, names: Sequence[str], alone: Sequence[str]) -> Chart:
    curves = []
    for name in names:
        counts = counts_of(results, name)
        if counts:
            curves.append(
                curve(
                    results.named(name, labelled(name)), counts, [over_seeds(results.of(name), one) for one in counts]
                )
            )
    for name in alone:
        curves += level(results.named(name, labelled(name)), over_seeds(results.of(name)))
    title = results.bench.title
    return Chart(title, "number of local models", "NDCG@100", tuple(curves), is_log_x=True)


def _panels(studied: Sequence[Results], names: Sequence[str], alone: Sequence[str]) -> tuple[Panel, ...]:
    """Models by their number, and below them the bases alone, which have but one."""
    panels = []
    for results in _counted(studied, names):
        counts = sorted({count for name in names for count in counts_of(results, name)})
        rows = []
        for name in (one for one in names if counts_of(results, one)):
            own = counts_of(results, name)
            means = [over_seeds(results.of(name), one) if one in own else None for one in counts]
            rows.append((results.named(name, labelled(name)), *("" if one is None else one.told() for one in means)))
        for name in alone:
            base = over_seeds(results.of(name))
            if base is not None:
                rows.append((f"{results.named(name, labelled(name))}, one", base.told(), *("" for _ in counts[1:])))
        header = ("NDCG@100 with local models", *map(str, counts))
        panels.append(Panel(results.bench.title, Grid(header, tuple(rows))))
    return tuple(panels)


def _records(studied: Sequence[Results], names: Sequence[str], alone: Sequence[str]) -> tuple[dict[str, Value], ...]:
    lines = []
    for results in studied:
        for name in names:
            lines += lines_of(results, name, {"model": name}, counts_of(results, name))
        for name in alone:
            lines += lines_of(results, name, {"model": name})
    return tuple(lines)


def _findings(studied: Sequence[Results]) -> Iterator[Finding]:
    for results in studied:
        counts = counts_of(results, "loca-vae")
        where = results.bench.title
        whole = over_seeds(results.of("loca-vae"))
        if not counts or whole is None:
            continue
        # Of two numbers the middle is the larger, which is the whole itself.
        half = counts[min(len(counts) // 2, len(counts) - 2)] if len(counts) > 1 else None
        few = None if half is None else over_seeds(results.of("loca-vae"), half)
        if few is not None:
            more = whole.minus(few)
            text = f"{where}: {counts[-1]} instead of {half} local models change NDCG@100 by"
            yield Finding.on(more.low > 0, f"{text} {in_words(more)}.")
        for name, told in (("ensemble-vae", "the ensemble of as many MultVAEs"), ("llorma-vae", "LLORMA_VAE")):
            other = over_seeds(results.of(name))
            # Fewer seeds than LOCA_VAE has would be held against all of its.
            if other is not None and not results.lacks_seeds(name):
                paired = whole.minus(other)
                yield Finding.on(paired.low > 0, f"{where}: LOCA_VAE over {told}: {in_words(paired)}.")


def _gains_over_base(studied: Sequence[Results]) -> Iterator[Finding]:
    for results in studied:
        for name, base in (("loca-vae", "mult-vae"), ("loca-dae", "mult-dae")):
            own, other = over_seeds(results.of(name)), over_seeds(results.of(base))
            if own is not None and other is not None:
                paired = own.minus(other)
                where = results.bench.title
                told = f"{labelled(name)} over {labelled(base)}"
                yield Finding.on(paired.low > 0, f"{where}: {told}: {in_words(paired)}.")
