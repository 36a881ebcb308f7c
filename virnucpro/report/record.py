"""The end of a report: how the run was made, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from html import escape

from virnucpro.formatting import memory_size, percent, rate_text, seconds_text
from virnucpro.layout import Layout
from virnucpro.report.content import Content
from virnucpro.report.document import definitions, file_link, flat, grid
from virnucpro.settings import SHIPPED_MODELS

SHORTEST_TIMED = 0.01  # seconds; of less no rate can be told
_METHOD = "https://doi.org/10.1093/bib/bbaf224"
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
                rate_text(content.bases / value) if value >= SHORTEST_TIMED else "",
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
    fasta = layout.virus_fasta.name
    text = (
        f"{file_link(fasta)} has the records called virus and the viral regions of other records."
    )
    if reads := [file_link(path.name) for path in layout.virus_reads if path.is_file()]:
        words = "has them" if len(reads) == 1 else "have the mates of these pairs"
        text += f" {' and '.join(reads)} {words} in the format of the input."
    yield f"<p>{text} Scores are estimates: check what you report.</p><ul>"
    for name, purpose, command, _, link in _TOOLS:
        yield (
            f'<li><a href="{link}">{name}</a> {purpose}'
            f"<pre>{escape(command.format(fasta=shlex.quote(fasta)))}</pre></li>"
        )
    yield "</ul><p>If you publish the results, please cite:</p><ul>"
    record = content.run.record
    yield (
        f'<li><a href="{_METHOD}">VirNucPro</a>: Li J. et al. (2025), Briefings in Bioinformatics '
        f"26 (3), and the version of the program, which is {escape(str(record['virnucpro']))}</li>"
    )
    if record["settings"]["analysis"]["model_type"] not in SHIPPED_MODELS:
        for name, text, link in _ENCODERS:
            yield f'<li><a href="{link}">{name}</a>: {text}</li>'
    for name, _, _, text, link in _TOOLS:
        yield f'<li>if you used it, <a href="{link}">{name}</a>: {text}</li>'
    yield "</ul>"
