"""The last words of a run: what was found, what was not scored and why, where the files are."""

from __future__ import annotations

from pathlib import Path

from virnucpro.run.accounting import Summary

REASONS = {
    "no_open_frame": "no frame without a stop codon",
    "ambiguous": "only ambiguous letters",
    "too_short": "shorter than a codon",
    "failed": "could not be embedded",
}


def summary_text(summary: Summary, root: Path) -> str:
    """Plain sentences; file names relative to where the user stands."""
    lines = [summary.notice] if summary.notice else []
    if summary.computed == 0:
        lines.append("Nothing to compute: this run was already finished, its results are intact.")
    lines += _records(summary)
    lines += _chunks(summary)
    if summary.failed_records:
        lines.append(
            f"{summary.failed_records:,} records could not be scored in full: see "
            f"failed_files.txt; the same command with --resume tries them again."
        )
    lines.append(f"Results in {_relative(root)}:")
    lines += [f"  {path.relative_to(root)}" for path in summary.files]
    return "\n".join(lines)


def _records(summary: Summary) -> list[str]:
    calls = summary.calls
    if summary.scored == 0:
        lines = [f"None of the {summary.records:,} records could be scored."]
    else:
        lines = [
            f"{calls.get('virus', 0):,} of {summary.records:,} records are called virus, "
            f"{calls.get('nonvirus', 0):,} nonvirus, {calls.get('undecided', 0):,} undecided; "
            f"{sum(summary.unscored.values()):,} could not be scored."
        ]
    for reason, count in summary.unscored.items():
        lines.append(f"  {count:,} unscored: {REASONS[reason]}")
    return lines


def _chunks(summary: Summary) -> list[str]:
    total, scored = sum(summary.chunks.values()), summary.chunks.get("scored", 0)
    if not total:
        return []
    lines = [f"{scored:,} of {total:,} chunks were scored, from {summary.frames:,} open frames."]
    closed = summary.chunks.get("no_open_frame", 0)
    if closed:
        lines.append(
            f"  {closed:,} have a stop codon in every frame and cannot be scored: usual for "
            f"non-coding DNA, nothing is lost."
        )
    return lines


def _relative(root: Path) -> str:
    here = Path.cwd()
    return str(root.relative_to(here)) if root.is_relative_to(here) else str(root)
