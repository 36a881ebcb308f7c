"""The beginning of a report: the answer, what to be careful about, and the tiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path

from virnucpro.contracts import Json
from virnucpro.formatting import counted, is_or_are, percent
from virnucpro.report.content import Content, Tally
from virnucpro.report.document import definitions
from virnucpro.settings import DOUBTFUL

NOTEWORTHY = 0.05  # of the records or bases; a smaller share is not worth a warning
KINDS = {
    "virus": "virus",
    "region": "with viral regions",
    "undecided": "undecided",
    "nonvirus": "nonvirus",
    "unscored": "not judged",
}
"""The kinds of rows of the table and of tiles, with their names for people."""


def share(part: float, whole: float) -> str:
    """Return a share in percent, with which a small one is not mistaken for none."""
    if not part or not whole:
        return "0 %"
    return percent(part / whole, 1) if part / whole >= 0.001 else "< 0.1 %"


def answer(content: Content) -> str:
    """Return the answer of the run in one or two sentences."""
    records, bases = counted(content.records, content.noun), counted(content.bases, "base")
    virus, hosts = content.tallies["virus"], content.hosts
    if not content.records:
        return f"The input has no {content.noun}s."
    if not content.scored:
        return f"None of the {records} could be scored, so nothing is said about them."
    text = f"{virus.records:,} of {records} {is_or_are(virus.records)} called virus"
    if virus.records:
        text += f", {content.sure:,} of them surely; these are {virus.bases:,} of {bases}"
    if hosts.records:
        verb = "holds" if hosts.records == 1 else "hold"
        more = counted(hosts.records, "more record")
        text += f". {more} {verb} viral regions, such as proviruses"
    return f"{text}."


def warnings(content: Content) -> Iterator[str]:
    """Yield what a reader of the results must know, in sentences."""
    summary = content.run.summary
    if summary.notice:
        yield f"{summary.notice[0].upper()}{summary.notice[1:]}."
    if content.calibrated is False:
        yield (
            "The classifier is not calibrated: a score is not a probability, and there is no "
            "estimated false discovery rate (fdr)."
        )
    if content.highest_rate > DOUBTFUL:
        yield (
            f"Of the {content.noun}s called virus, an estimated {percent(content.highest_rate)} "
            f"are none. Take those of the tier high, or those with a small fdr."
        )
    unscored = content.tallies["unscored"]
    share_of_bases = _part(unscored.bases, content.bases)
    if max(_part(unscored.records, content.records), share_of_bases) >= NOTEWORTHY:
        yield (
            f"{counted(unscored.records, content.noun)} "
            f"({share(unscored.records, content.records)}, and "
            f"{share(unscored.bases, content.bases)} of the bases) were not judged, because "
            f"nothing of them could be scored. They may be viral."
        )
    if _part(content.short, content.records) >= NOTEWORTHY:
        yield (
            f"{counted(content.short, content.noun)} ({share(content.short, content.records)}) are "
            f"shorter than half a chunk. The model was trained with chunks of "
            f"{content.chunk_length:,} bases and knows less about such short ones."
        )
    if summary.failures:
        yield (
            f"{counted(summary.failures, content.noun)} could not be scored in full: see "
            f"failed_files.txt. The same command tries them again."
        )


def _part(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def answer_section(content: Content) -> Iterator[str]:
    """Yield the first section."""
    record, settings = content.run.record, content.run.record["settings"]["analysis"]
    cuts = content.cuts
    conditions = [f"virus score above {cuts.min_score:g}"]
    if cuts.max_fdr < 1:
        conditions.append(f"fdr of at most {cuts.max_fdr:g}")
    if cuts.min_length > 1:
        conditions.append(f"at least {cuts.min_length:,} bases")
    yield f'<p class="answer">{escape(answer(content))}</p>'
    yield definitions(
        [
            (
                "Input",
                f"{escape(_input_name(record['input']))}: "
                f"{counted(content.records, content.noun)}, {counted(content.bases, 'base')}",
            ),
            (
                "Model",
                f"{escape(str(settings['model_type']))}, chunks of {content.chunk_length:,} bases",
            ),
            ("Called virus", escape(", ".join(conditions))),
            ("Finished", escape(str(record["finished"]).replace("T", " "))),
        ]
    )
    if found := list(warnings(content)):
        yield '<div class="warnings" role="note"><strong>Please note</strong><ul>'
        yield from (f"<li>{escape(text)}</li>" for text in found)
        yield "</ul></div>"


def _input_name(files: Mapping[str, Json]) -> str:
    """Return the names of the files of an input, as the record of the run has them."""
    if files["path"] == "-":
        return "standard input"
    paths = [files["path"], *([files["mates"]["path"]] if "mates" in files else [])]
    return " and ".join(Path(str(path)).name for path in paths)


def tiles_section(content: Content) -> Iterator[str]:
    """Yield the tiles; the script makes them filter the table."""
    yield '<div class="tiles">'
    for kind, name in KINDS.items():
        tally = content.hosts if kind == "region" else content.tallies[kind]
        total = content.regions if kind == "region" else tally.records
        remark = f"{share(tally.records, content.records)} of the {content.noun}s"
        if kind == "region":
            remark = "called nonvirus or undecided; the bases are those of the regions"
        yield _tile(kind, name, tally, remark, total, content.noun)
    yield "</div>"


def _tile(kind: str, name: str, tally: Tally, remark: str, total: int, noun: str) -> str:
    records = noun if tally.records == 1 else f"{noun}s"
    return (
        f'<button type="button" class="tile {kind}" data-kind="{kind}" data-total="{total}">'
        f'<span>{name}</span><span class="number">{tally.records:,}</span>'
        f"<span>{records}, {counted(tally.bases, 'base')}</span>"
        f'<span class="muted">{remark}</span></button>'
    )
