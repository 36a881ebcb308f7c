"""The end of a report: how the run was made, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from html import escape

from virnucpro.contracts import Json
from virnucpro.formatting import gibibytes, percent, rate_text, seconds_text
from virnucpro.layout import Layout
from virnucpro.report.content import Content
from virnucpro.report.document import definitions, file_link, flat, grid
from virnucpro.settings import SHIPPED_MODELS

SHORTEST_TIMED = 0.01  # seconds; of less no rate can be told
_METHOD = (
    "Li J. et al. (2025), Briefings in Bioinformatics 26 (3)",
    "https://doi.org/10.1093/bib/bbaf224",
)
# Of the released models; a shipped model needs neither.
_ENCODERS = (
    ("DNABERT-S", "Zhou Z. et al. (2024), arXiv", "https://arxiv.org/abs/2402.08777"),
    ("ESM-2", "Lin Z. et al. (2023), Science 379", "https://doi.org/10.1126/science.ade2574"),
)
_TOOLS = (
    (
        "CheckV",
        "tells how complete each viral sequence is, and cuts off what belongs to a host.",
        "checkv end_to_end {fasta} checkv_results -d CHECKV_DATABASE",
        "Nayfach S. et al. (2021), Nature Biotechnology 39, 578",
        "https://doi.org/10.1038/s41587-020-00774-7",
    ),
    (
        "geNomad",
        "is a second opinion by other means, and assigns viruses to their groups.",
        "genomad end-to-end {fasta} genomad_results GENOMAD_DATABASE",
        "Camargo A. P. et al. (2024), Nature Biotechnology 42, 1303",
        "https://doi.org/10.1038/s41587-023-01953-y",
    ),
)


def run_section(content: Content) -> Iterator[str]:
    """Yield what ran, for how long, with which settings, and from which files."""
    record = content.run.record
    seconds = {str(name): float(value) for name, value in record["seconds"].items()}
    whole = sum(seconds.values())
    versions = {"virnucpro": record["virnucpro"], **record["versions"]}
    yield "<h3>Command</h3>"
    yield f"<pre>{escape(shlex.join(map(str, record['command'])))}</pre>"
    if again := record.get("called_again"):
        words = escape(shlex.join(map(str, again["command"])))
        yield f"<p>The tables were written again by:</p><pre>{words}</pre>"
    yield definitions(
        [
            ("Finished", escape(str(record["finished"]))),
            ("Devices", escape("; ".join(str(d["name"]) for d in record["devices"]))),
            ("Precision", escape(str(record["precision"]))),
            ("Versions", escape(", ".join(f"{n} {v}" for n, v in versions.items()))),
            *_identical(record["counts"]),
        ]
    )
    yield "<h3>Stages</h3>"
    yield grid(
        ("stage", "time", "share", "bases of the input per second"),
        [
            *(
                (name.replace("_", " "), *_time(value, whole, content.bases))
                for name, value in seconds.items()
            ),
            ("all stages", *_time(whole, whole, content.bases)),
        ],
    )
    yield (
        '<p class="muted">Of the start that finished the run; what earlier starts had done took '
        "no time.</p>"
    )
    if record["workers"]:
        yield "<h3>Workers</h3>"
        yield grid(
            ("worker, device", "stage", "tasks", "opened in", "busy", "idle", "most memory"),
            [_worker(row) for row in record["workers"]],
            numeric=2,
        )
    yield "<h3>Files</h3>"
    yield grid(("what", "file", "SHA-256"), _files(record), numeric=3)
    yield "<details><summary>Settings</summary>"
    yield grid(("setting", "value"), flat(record["settings"]), numeric=2)
    yield "</details>"
    yield f"<p>All of this is also in {file_link(f'{content.run.stem}_run.json')}.</p>"


def _identical(counts: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """Yield how many open frames or chunks were not embedded: an earlier one is the same."""
    if copies := int(counts.get("identical_frames", 0)):
        frames = int(counts["frames"])
        yield (
            "Identical sequences",
            f"{copies:,} of {frames:,} ({percent(copies / frames, 1)}) are the same as an earlier "
            f"one, whose scores they share",
        )


def _time(seconds: float, whole: float, bases: int) -> tuple[str, str, str]:
    rate = rate_text(bases / seconds) if seconds >= SHORTEST_TIMED else ""
    return seconds_text(seconds), percent(seconds / whole if whole else None), rate


def _worker(row: Json) -> tuple[str, ...]:
    memory = float(row.get("peak_memory", 0))
    return (
        f"{row['worker']}, {row['device']}",
        str(row["stage"]).replace("_", " "),
        f"{row.get('tasks', 0):,}",
        seconds_text(row.get("seconds_to_open")),
        seconds_text(row.get("busy")),
        seconds_text(row.get("idle")),
        f"{gibibytes(memory)} GiB" if memory else "",
    )


def _files(record: Json) -> Iterator[tuple[str, str, str]]:
    yield "input", str(record["input"]["path"]), str(record["input"]["sha256"])
    if mates := record["input"].get("mates"):
        yield "second mates", str(mates["path"]), str(mates["sha256"])
    for name, model in record["models"].items():
        kind = name if name == "classifier" else f"{name} encoder"
        yield kind, str(model["path"]), str(model["sha256"])


def _reads(content: Content) -> str:
    """Return a sentence about the files of viral reads in the format of the input, if there are."""
    layout = Layout(content.run.folder, content.run.stem)
    links = [file_link(path.name) for path in layout.virus_reads if path.is_file()]
    if not links:
        return ""
    verb, what = ("has", "them") if len(links) == 1 else ("have", "the mates of these pairs")
    return f" {' and '.join(links)} {verb} {what} in the format of the input."


def next_section(content: Content) -> Iterator[str]:
    """Yield what to do with the results, and what to cite."""
    fasta = f"{content.run.stem}_virus.fna"
    yield (
        f"<p>{file_link(fasta)} has the records called virus and the viral regions of other "
        f"records.{_reads(content)} Scores are estimates: check what you report.</p><ul>"
    )
    for name, purpose, command, _, link in _TOOLS:
        yield (
            f'<li><a href="{link}">{name}</a> {purpose}'
            f"<pre>{escape(command.format(fasta=shlex.quote(fasta)))}</pre></li>"
        )
    yield "</ul><p>If you publish the results, please cite:</p><ul>"
    yield (
        f'<li><a href="{_METHOD[1]}">VirNucPro</a>: {_METHOD[0]}, and the version of the program, '
        f"which is {escape(str(content.run.record['virnucpro']))}</li>"
    )
    settings = content.run.record["settings"]["analysis"]
    if settings["model_type"] not in SHIPPED_MODELS:
        for name, text, link in _ENCODERS:
            yield f'<li><a href="{link}">{name}</a>: {text}</li>'
    for name, _, _, text, link in _TOOLS:
        yield f'<li>if you used it, <a href="{link}">{name}</a>: {text}</li>'
    yield "</ul>"
