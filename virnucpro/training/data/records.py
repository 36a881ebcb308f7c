"""The parts of a data set of whole records: one FASTA file each, and their counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack

from virnucpro.contracts import Json
from virnucpro.events import StepProgress
from virnucpro.store.disk import Disk
from virnucpro.training.data.dataset import LABELS, PARTS, Dataset, Label, Part
from virnucpro.training.data.genomes import GenomeSurvey, SurveyedRecord, records_of_parts

_LETTERS = bytearray(b"N" * 256)  # what is written for each letter of a genome file
for _base in b"ACGT":
    _LETTERS[_base] = _LETTERS[_base + 32] = _base  # upper and lower case


def write_records(
    dataset: Dataset, survey: GenomeSurvey, disk: Disk, progress: StepProgress
) -> dict[str, Json]:
    """Write the FASTA file of each part that has records, and return ``parts``.

    A record has two lines: its unique name, and its sequence in upper case, with ``N`` for every
    letter other than ``A``, ``C``, ``G`` and ``T``.

    Raises:
        InputError: a genome file changed since the survey.
        OutputError: the disk is full or unwritable.
    """
    groups = _records_by_part_and_label(survey.records)
    parts = [part for part in PARTS if any(groups[part, label] for label in LABELS)]
    total = sum(record.bases for group in groups.values() for record in group)
    progress.begin("writing records", total)
    with ExitStack() as stack:
        files = {
            part: stack.enter_context(disk.create(dataset.records_file(part))) for part in parts
        }
        for number, record in records_of_parts(survey):
            surveyed = survey.records[number]
            assert surveyed.part is not None
            out = files[surveyed.part]
            out.write(f">{surveyed.name}\n".encode())
            out.write(record.sequence.encode("ascii").translate(_LETTERS))
            out.write(b"\n", 1)
            progress.advance(surveyed.bases)
    sizes: dict[str, Json] = {}
    for part in parts:
        numbers = {label: len(groups[part, label]) for label in LABELS}
        bases = sum(record.bases for label in LABELS for record in groups[part, label])
        sizes[part] = {"records": sum(numbers.values()), **numbers, "bases": bases}
    return sizes


def record_counts(records: Sequence[SurveyedRecord]) -> list[dict[str, Json]]:
    """Return genomes, records and bases by part and label."""
    groups = _records_by_part_and_label(records)
    return [
        {
            "part": part,
            "label": label,
            "genomes": len({record.genome for record in groups[part, label]}),
            "records": len(groups[part, label]),
            "bases": sum(record.bases for record in groups[part, label]),
        }
        for part in PARTS
        for label in LABELS
    ]


def _records_by_part_and_label(
    records: Sequence[SurveyedRecord],
) -> dict[tuple[Part, Label], list[SurveyedRecord]]:
    groups: dict[tuple[Part, Label], list[SurveyedRecord]] = defaultdict(list)
    for record in records:
        if record.part and record.row:
            groups[record.part, record.row.label].append(record)
    return groups
