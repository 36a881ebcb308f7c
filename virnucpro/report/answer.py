"""The beginning of a report: the answer, what to be careful about, and the tiles."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

import numpy as np

from virnucpro.formatting import counted, is_or_are, percent
from virnucpro.report.content import Content
from virnucpro.report.document import KINDS, definitions, share
from virnucpro.settings import DOUBTFUL

NOTEWORTHY = 0.05  # of the records or bases; a smaller share is not worth a warning


def answer(content: Content) -> str:
    """Return the answer of the run in one or two sentences."""
    records, bases = counted(content.records, content.noun), counted(content.bases, "base")
    virus, hosts = content.tallies["virus"], content.tallies["region"].records
    if not content.scored:
        return f"None of the {records} could be scored, so nothing is said about them."
    text = f"{virus.records:,} of {records} {is_or_are(virus.records)} called virus"
    if virus.records:
        text += f", {content.counts['sure']:,} of them surely; these are {virus.bases:,} of {bases}"
    if hosts:
        verb = "holds" if hosts == 1 else "hold"
        text += f". {counted(hosts, 'more record')} {verb} viral regions, such as proviruses"
    return f"{text}."


def warnings(content: Content) -> Iterator[str]:
    """Yield what a reader of the results must know, in sentences."""
    summary = content.run.summary
    if summary.notice:
        yield f"{summary.notice[0].upper()}{summary.notice[1:]}."
    if content.scored and not content.calibrated:
        yield (
            "The classifier is not calibrated: a score is not a probability, and there is no "
            "estimated false discovery rate (fdr)."
        )
    rates = content.of_call("virus")["fdr"]
    highest_rate = np.fmax.reduce(rates, initial=0)
    if content.calibrated and len(rates) and np.isnan(rates).all():
        yield (
            f"No false discovery rate (fdr) is known: nearly all {content.noun}s look viral, so "
            f"most are viruses, or their hosts are of an unknown kind."
        )
    if highest_rate > DOUBTFUL:
        yield (
            f"Of the {content.noun}s called virus, an estimated {percent(highest_rate)} "
            f"are none. Take those of the tier high, or those with a small fdr."
        )
    records, bases = content.tallies["unscored"]
    if max(records / max(content.records, 1), bases / max(content.bases, 1)) >= NOTEWORTHY:
        yield (
            f"{counted(records, content.noun)} ({share(records, content.records)}, and "
            f"{share(bases, content.bases)} of the bases) were not judged, because "
            f"nothing of them could be scored. They may be viral."
        )
    short = int((2 * content.figures["length"] < content.chunk_length).sum())
    if short > NOTEWORTHY * content.records:
        yield (
            f"{counted(short, content.noun)} ({share(short, content.records)}) are "
            f"shorter than half a chunk. The model was trained with chunks of "
            f"{content.chunk_length:,} bases and knows less about such short ones."
        )
    if summary.failures:
        yield (
            f"{counted(summary.failures, content.noun)} could not be scored in full: see "
            f"failed_files.txt. The same command tries them again."
        )


def answer_section(content: Content) -> Iterator[str]:
    """Yield the first section."""
    record, cuts = content.run.record, content.cuts
    model = record["settings"]["analysis"]["model_type"]
    conditions = [f"virus score above {cuts.min_score:g}"]
    if cuts.max_fdr < 1:
        conditions.append(f"fdr of at most {cuts.max_fdr:g}")
    if cuts.min_length > 1:
        conditions.append(f"at least {cuts.min_length:,} bases")
    files = record["input"]
    paths = [files["path"], *([files["mates"]["path"]] if "mates" in files else [])]
    names = ["standard input" if path == "-" else Path(str(path)).name for path in paths]
    amount = f"{counted(content.records, content.noun)}, {counted(content.bases, 'base')}"
    yield f'<p class="answer">{escape(answer(content))}</p>'
    yield definitions(
        {
            "Input": f"{' and '.join(names)}: {amount}",
            "Model": f"{model}, chunks of {content.chunk_length:,} bases",
            "Called virus": ", ".join(conditions),
            "Finished": str(record["finished"]).replace("T", " "),
        }
    )
    if found := list(warnings(content)):
        yield '<div class="warnings" role="note"><strong>Please note</strong><ul>'
        yield from (f"<li>{escape(text)}</li>" for text in found)
        yield "</ul></div>"


def tiles_section(content: Content) -> Iterator[str]:
    """Yield the tiles; the script makes them filter the table."""
    yield '<div class="tiles">'
    for kind, name in KINDS.items():
        records, bases = content.tallies[kind]
        total, noun = records, content.noun
        remark = f"{share(records, content.records)} of the {noun}s"
        if kind == "region":
            total = content.counts["regions"]
            remark = "called nonvirus or undecided; the bases are those of the regions"
        yield (
            f'<button type="button" class="tile {kind}" data-kind="{kind}" data-total="{total}">'
            f'<span>{name}</span><span class="number">{records:,}</span>'
            f"<span>{noun if records == 1 else f'{noun}s'}, {counted(bases, 'base')}</span>"
            f'<span class="muted">{remark}</span></button>'
        )
    yield "</div>"
