"""Which proteins a model is trained on, and which ones it is measured on."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from virnucpro.errors import InputError
from virnucpro.events import StepProgress
from virnucpro.rcl.proteins import AnnotatedProtein
from virnucpro.rcl.similarity import cluster_proteins
from virnucpro.training.data.dataset import PARTS, Part

COLUMNS = ("id", "part", "cluster", "length", "rcl_start", "rcl_end")


def original_split(count: int, train_split: float, seed: int) -> list[Part]:
    """Return the part of each of ``count`` proteins, as RCL-identifier assigns it.

    It calls scikit-learn's ``train_test_split(range(count), test_size=1 - train_split,
    random_state=seed)``, which takes the first proteins of a permutation for validation.
    """
    held_out = math.ceil(count * (1 - train_split))
    order = np.random.RandomState(seed).permutation(count)
    parts: list[Part] = ["train"] * count
    for number in order[:held_out]:
        parts[number] = "validation"
    return parts


def cluster_split(
    proteins: Sequence[AnnotatedProtein],
    train_split: float,
    seed: int,
    progress: StepProgress | None = None,
) -> tuple[list[Part], npt.NDArray[np.int64]]:
    """Return part and cluster of each protein; no cluster is in two parts.

    Of the proteins with an RCL, and of those without, half of what is not for training goes to
    test and half to validation. Clusters are drawn in an order that follows from ``seed`` and
    their members. A cluster that would not fit any more is left for training.
    """
    clusters = cluster_proteins([protein.sequence for protein in proteins], progress)
    members: dict[int, list[int]] = {}
    for number, cluster in enumerate(clusters.tolist()):
        members.setdefault(cluster, []).append(number)

    def place(cluster: int) -> str:
        first = min(proteins[number].sequence for number in members[cluster])
        return hashlib.sha256(f"{seed}\t{first}".encode()).hexdigest()

    parts: list[Part] = ["train"] * len(proteins)
    for has_rcl in (True, False):
        chosen = [
            cluster
            for cluster, numbers in members.items()
            if any(proteins[number].has_rcl for number in numbers) == has_rcl
        ]
        total = sum(len(members[cluster]) for cluster in chosen)
        held_out: tuple[Part, Part] = ("test", "validation")
        for part in held_out:
            room = round(total * (1 - train_split) / 2)
            for cluster in sorted(chosen, key=place):
                numbers = members[cluster]
                if parts[numbers[0]] == "train" and len(numbers) <= room:
                    room -= len(numbers)
                    for number in numbers:
                        parts[number] = part
    return parts, clusters


def split_text(
    proteins: Sequence[AnnotatedProtein],
    parts: Sequence[Part],
    clusters: npt.NDArray[np.int64] | None,
) -> bytes:
    """Return the table ``split.tsv`` of a training: part and cluster of each protein."""
    lines = ["\t".join(COLUMNS)]
    for number, (protein, part) in enumerate(zip(proteins, parts, strict=True)):
        cluster = "" if clusters is None else proteins[int(clusters[number])].accession
        region = [str(protein.start), str(protein.end)] if protein.has_rcl else ["", ""]
        fields = [protein.accession, part, cluster, str(len(protein.sequence)), *region]
        lines.append("\t".join(fields))
    return ("\n".join(lines) + "\n").encode()


def split_of_table(
    proteins: Sequence[AnnotatedProtein], path: Path, *, missing_part: Part | None = None
) -> list[Part]:
    """Return the part that a table with the columns ``id`` and ``part`` gives each protein.

    ``missing_part`` is the part where it gives none. An id that occurs several times, as often in
    the table as among the proteins, is taken in the same order.

    Raises:
        InputError: the file cannot be read, is not such a table, or does not have a protein and
            ``missing_part`` is None.
    """
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as a table of parts: {error}") from error
    known: dict[str, Part] = {part: part for part in PARTS}
    by_id: dict[str, list[Part]] = {}
    for row in csv.DictReader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE):
        part = known.get(row.get("part") or "")
        if not row.get("id") or part is None:
            raise InputError(
                f"{path} is not a table of parts: expected the columns id and part, which is "
                f"{', '.join(PARTS)}"
            )
        by_id.setdefault(row["id"], []).append(part)
    parts: list[Part] = []
    missing: list[str] = []
    for protein in proteins:
        entries = by_id.get(protein.accession, [missing_part] if missing_part else [])
        if entries:
            parts.append(entries.pop(0) if len(entries) > 1 else entries[0])
        else:
            missing.append(protein.accession)
    if missing:
        more = f" and {len(missing) - 1:,} more proteins" if len(missing) > 1 else ""
        raise InputError(f"{path} gives no part to {missing[0]}{more}")
    return parts
