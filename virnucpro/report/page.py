"""The report of one run: its sections, and the page of all of them in their order."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from virnucpro.errors import InputError
from virnucpro.formatting import (
    counted,
    memory_size,
    part_of,
    percent,
    regions_text,
    seconds_text,
    short_number,
)
from virnucpro.layout import Layout, picture_name
from virnucpro.report.content import Content, read_content
from virnucpro.report.document import KINDS, definitions, file_link, flat, grid, page, share
from virnucpro.report.figures import FEWEST_RECORDS, draw_figures, page_style, page_svg
from virnucpro.report.table import table_section
from virnucpro.report.tracks import draw_track, read_tracks
from virnucpro.results import PredictionRun
from virnucpro.settings import DOUBTFUL, SHIPPED_MODELS

SHORTEST_TIMED = 0.01  # seconds; of less no rate can be told
_METHOD = "https://doi.org/10.1093/bib/bbaf224"
# Of the released models; a shipped model needs neither.
_ENCODERS = (
    ("DNABERT-S", "Zhou Z. et al. (2024), arXiv", "https://arxiv.org/abs/2402.08777"),
    ("ESM-2", "Lin Z. et al. (2023), Science 379", "https://doi.org/10.1126/science.ade2574"),
)
_CHECKV = "Nayfach S. et al. (2021), Nature Biotechnology 39, 578"
_GENOMAD = "Camargo A. P. et al. (2024), Nature Biotechnology 42, 1303"
_TOOLS = (
    ("CheckV", _CHECKV, "https://doi.org/10.1038/s41587-020-00774-7"),
    ("geNomad", _GENOMAD, "https://doi.org/10.1038/s41587-023-01953-y"),
)
MOST_HOVER_CHUNKS = 60_000  # of all tracks; of more, the page would be too large
NOTEWORTHY = 0.05  # of the records or bases; a smaller share is not worth a warning


def report_page(run: PredictionRun) -> str:
    """Return the report of a run as one HTML page; InputError for a damaged file of the run."""
    sections = {
        "answer": ("The answer", answer_section),
        "counts": ("Records and bases", tiles_section),
        "table": ("Viruses and regions", table_section),
        "figures": ("Figures", _figures_section),
        "tracks": ("Tracks", _tracks_section),
        "run": ("The run", run_section),
        "next": ("What next", next_section),
    }
    body = [f"<header><h1>VirNucPro: {escape(run.stem)}</h1>", "<nav>"]
    body += (f'<a href="#{name}">{title}</a>' for name, (title, _) in sections.items())
    body.append("</nav></header>\n<main>")
    try:
        content = read_content(run)
        for name, (title, lines) in sections.items():
            body += [f'<section id="{name}"><h2>{title}</h2>', *lines(content), "</section>"]
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"the files of the run {run.folder / run.stem} were changed ({error!r}); the command "
            f"that made them restores them"
        ) from error
    body.append("</main>")
    return page(f"VirNucPro: {run.stem}", body, with_script=True)


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
    elif content.scored and not content.rated:
        yield (
            f"No false discovery rate (fdr) is known: nearly all {content.noun}s look viral, so "
            f"most are viruses, or their hosts are of an unknown kind."
        )
    highest_rate = np.fmax.reduce(content.of_call("virus")["fdr"], initial=0)
    if highest_rate > DOUBTFUL:
        advice = " Rely on the tier high, or on a small fdr."
        yield (
            f"About {percent(highest_rate)} of the {content.noun}s classified as viral are "
            f"probably not viruses.{advice if content.counts['sure'] else ''}"
        )
    if unfamiliar := int(content.run.record["counts"].get("unfamiliar_viruses", 0)):
        yield (
            f"Unlike all that lite was trained on: {counted(unfamiliar, content.noun)} classified "
            f"as viral ({share(unfamiliar, content.tallies['virus'][0])}). Calls of such "
            f"{content.noun}s are wrong more often."
        )
    records, bases = content.tallies["unscored"]
    if max(records / max(content.records, 1), bases / max(content.bases, 1)) >= NOTEWORTHY:
        yield (
            f"Not judged: {counted(records, content.noun)} ({share(records, content.records)}, "
            f"and {share(bases, content.bases)} of the bases), because nothing of them could be "
            f"scored. They may be viral."
        )
    short = int((2 * content.figures["length"] < content.chunk_length).sum())
    if short > NOTEWORTHY * content.records:
        yield (
            f"Shorter than half a chunk: {counted(short, content.noun)} "
            f"({share(short, content.records)}). The model was trained with chunks of "
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
    records, bases = counted(content.records, content.noun), counted(content.bases, "base")
    (virus, virus_bases), counts = content.tallies["virus"], content.counts
    text = f"{part_of(virus, content.records, content.noun)} classified as viral"
    if virus:
        text += f", {counts['sure']:,} with high confidence; these are {virus_bases:,} of {bases}"
    if counts["regions"]:
        numbers = (counts["regions"], counts["more_regions"], counts["hosts"])
        text += f". {regions_text(*numbers)}"
    if not content.scored:
        nothing = part_of(0, content.records, content.noun)
        text = f"{nothing} scored, so there are no calls"
    yield f'<p class="answer">{escape(text)}.</p>'
    yield definitions(
        {
            "Input": f"{' and '.join(names)}: {records}, {bases}",
            "Model": f"{model}, chunks of {content.chunk_length:,} bases",
            "Classified as viral": ", ".join(conditions),
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
            remark = "not classified as viral; bases of their regions only"
        yield (
            f'<button type="button" class="tile {kind}" data-kind="{kind}" data-total="{total}">'
            f'<span>{name}</span><span class="number"><b>{records:,}</b> '
            f"{noun if records == 1 else f'{noun}s'}</span>"
            f'<span class="number">{counted(bases, "base")}</span>'
            f'<span class="muted">{remark}</span></button>'
        )
    yield "</div>"


def _figures_section(content: Content) -> Iterator[str]:
    if content.scored < FEWEST_RECORDS:
        yield (
            f"<p>Figures are drawn from {FEWEST_RECORDS} scored records on; this run has "
            f"{content.scored:,}.</p>"
        )
        return
    yield '<div class="figures">'
    for title, drawing, words in draw_figures(content):
        words = escape(words)
        yield f"<figure><h3>{title}</h3>{drawing}<figcaption>{words}</figcaption></figure>"
    yield "</div>"
    if not content.rated:
        yield "<p>There is no figure of errors, because no false discovery rate is known.</p>"


def _tracks_section(content: Content) -> Iterator[str]:
    if not content.tracked:
        yield "<p>No record has enough chunks for a track.</p>"
        return
    yield """\
<p>The score of each chunk along the record, from 1 (like a virus) to -1 (like others). \
Records with viral regions come first, then the longest. Point at a track, or select it \
with the tab key and use the arrow keys, to read the scores.</p>
<ul class="legend">
<li class="virus"><i></i>more like virus</li>
<li class="nonvirus"><i></i>more like others</li>
<li class="unscored"><i class="bar"></i>not scored, in the lane below the scores</li>
<li class="region"><i class="area"></i>viral region</li>
</ul>"""
    # Places of chunks, and thousandths of their scores, -1 for no score.
    hover, left = list[list[Any] | None](), MOST_HOVER_CHUNKS
    tracks = read_tracks(content.run, content.tracked)
    for track in tracks:
        hover.append(None)
        if len(track.starts) <= left:
            left -= len(track.starts)
            scores = np.nan_to_num(np.round(np.multiply(1000, [track.virus, track.others])), nan=-1)
            hover[-1] = [track.row.length, track.starts, track.ends, *scores.astype(int).tolist()]
        id, words = track.row.record, track.description
        with page_style(id):
            drawing = page_svg(draw_track(track), words)
        yield (
            f'<figure class="track-box"><div class="head"><div><h3>{escape(id)}</h3>'
            f'<p class="muted">{KINDS[track.row.call]}, {track.score_text}</p></div>'
            f'<button type="button" class="plain" hidden data-name="'
            f'{escape(picture_name(id, "svg"))}">Save as SVG</button></div>'
            f'<div class="wide">{drawing}</div><output></output>'
            f"<figcaption>{escape(words)}</figcaption></figure>"
        )
    data = json.dumps(hover, separators=(",", ":"))
    yield f'<script type="application/json" id="track-data">{data}</script>'
    yield (
        f"<p>{counted(len(tracks), 'track')} of {counted(content.records, 'record')}. Any other is "
        f"drawn by: <code>virnucpro plot DIR --record ID</code></p>"
    )


def run_section(content: Content) -> Iterator[str]:
    """Yield what ran, for how long, with which settings, and from which files."""
    record = content.run.record
    seconds = {str(name): float(value) for name, value in record["seconds"].items()}
    yield f"<h3>Command</h3><pre>{escape(shlex.join(map(str, record['command'])))}</pre>"
    if again := record.get("called_again"):
        words = escape(shlex.join(map(str, again["command"])))
        yield f"<p>The tables were written again by:</p><pre>{words}</pre>"
    versions = {"virnucpro": record["virnucpro"], **record["versions"]}.items()
    facts = {
        "Finished": str(record["finished"]),
        "Devices": "; ".join(str(device["name"]) for device in record["devices"]),
        "Precision": str(record["precision"]),
        "Versions": ", ".join(f"{name} {version}" for name, version in versions),
    }
    if copies := int(record["counts"].get("identical_frames", 0)):
        frames = int(record["counts"]["frames"])
        facts["Identical sequences"] = (
            f"{copies:,} of {frames:,} ({percent(copies / frames, 1)}) are the same as an earlier "
            f"one, whose scores they share"
        )
    yield f"{definitions(facts)}<h3>Stages</h3>"
    whole = sum(seconds.values())
    yield grid(
        ("stage", "time", "share", "bases of the input per second"),
        [
            (
                stage.replace("_", " "),
                seconds_text(value),
                percent(value / whole if whole else None),
                f"{short_number(content.bases / value)}/s" if value >= SHORTEST_TIMED else "",
            )
            for stage, value in (*seconds.items(), ("all stages", whole))
        ],
    )
    yield (
        '<p class="muted">Of the start that finished the run; what earlier starts had done took '
        "no time.</p>"
    )
    if record["workers"]:
        heads = ("worker, device", "stage", "tasks", "opened in", "busy", "idle", "most memory")
        rows = [
            (
                f"{row['worker']}, {row['device']}",
                str(row["stage"]).replace("_", " "),
                f"{row.get('tasks', 0):,}",
                *(seconds_text(row.get(name)) for name in ("seconds_to_open", "busy", "idle")),
                memory_size(row.get("peak_memory") or None),
            )
            for row in record["workers"]
        ]
        yield f"<h3>Workers</h3>{grid(heads, rows, numeric=2)}"
    files = {"input": record["input"], "mates": record["input"].get("mates"), **record["models"]}
    rows = [(name, str(f["path"]), str(f["sha256"])) for name, f in files.items() if f]
    yield f"<h3>Files</h3>{grid(('what', 'file', 'SHA-256'), rows, numeric=3)}"
    settings = grid(("setting", "value"), flat(record["settings"]), numeric=2)
    yield f"<details><summary>Settings</summary>{settings}</details>"
    yield f"<p>All of this is also in {file_link(f'{content.run.stem}_run.json')}.</p>"


def next_section(content: Content) -> Iterator[str]:
    """Yield what to do with the results, and what to cite."""
    layout = Layout(content.run.folder, content.run.stem)
    text = (
        f"{file_link(layout.virus_fasta.name)} has the records classified as viral and the viral "
        f"regions of other records."
    )
    if reads := [file_link(path.name) for path in layout.virus_reads if path.is_file()]:
        words = "has them" if len(reads) == 1 else "have the mates of these pairs"
        text += f" {' and '.join(reads)} {words} in the format of the input."
    yield f"<p>{text} Scores are estimates: check what you report.</p>"
    if content.run.paired:
        yield "<p>For taxonomy and completeness, assemble these pairs first.</p>"
    else:
        name = escape(shlex.quote(layout.virus_fasta.name))
        yield (
            "<p>geNomad assigns viruses to taxa, and CheckV tells how complete each is:</p>"
            f"<pre>genomad annotate {name} genomad GENOMAD_DATABASE\n"
            f"checkv end_to_end -d CHECKV_DATABASE {name} checkv</pre>"
        )
    yield "<p>If you publish the results, please cite:</p><ul>"
    record = content.run.record
    yield (
        f'<li><a href="{_METHOD}">VirNucPro</a>: Li J. et al. (2025), Briefings in Bioinformatics '
        f"26 (3), and the version of the program, which is {escape(str(record['virnucpro']))}</li>"
    )
    if record["settings"]["analysis"]["model_type"] not in SHIPPED_MODELS:
        for name, text, link in _ENCODERS:
            yield f'<li><a href="{link}">{name}</a>: {text}</li>'
    for name, text, link in _TOOLS:
        yield f'<li>if you used it, <a href="{link}">{name}</a>: {text}</li>'
    yield "</ul>"
