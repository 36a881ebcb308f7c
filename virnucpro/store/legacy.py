"""Runs of version 1 of the program, which are known by their ``pipeline_state.json``.

What is cheap in such a run is computed again. A feature file, which is expensive, is taken over if
it holds the embeddings of the sequences in the FASTA file beside it: :func:`take_over` writes its
receipt, before anything is overwritten. Then the run is one of this version, and where a new split
file has other sequences, the receipt does not fit. No file says with which model and precision it
was made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

from virnucpro.contracts import MOLECULES, Json, Molecule, OutputFile, Task, TaskFigures
from virnucpro.errors import NothingToResumeError, UsageError
from virnucpro.io.fasta import fasta_bytes, read_fasta
from virnucpro.layout import FEATURE_SUFFIX, Layout, OutputFolder, receipt_beside
from virnucpro.store.disk import Disk
from virnucpro.store.documents import parse_json, sealed
from virnucpro.store.hashed import hashed
from virnucpro.store.ledger import Receipt, fingerprint, receipt_document


def is_legacy_run(layout: Layout) -> bool:
    """Return whether version 1 of the program worked on this STEM in this directory."""
    if not layout.legacy_state.exists():
        return False
    names = _chunk_files(layout)
    return not names or any(name.startswith(f"{layout.stem}_chunked") for name in names)


def is_new_legacy_run(layout: Layout) -> bool:
    """Return whether there is such a run, which was not taken over yet."""
    return not layout.run_state.exists() and is_legacy_run(layout)


def has_run(layout: Layout) -> bool:
    """Return whether files of this STEM are there that version 1 began to make.

    This version may have taken them over since, or removed them and started over.
    """
    was_one = is_legacy_run(layout) or layout.former_legacy_state.exists()
    return bool(layout.owned()) and was_one


def refuse_untaken(layout: Layout) -> None:
    """Raise UsageError where a run of version 1 is there, which nobody asked to take over."""
    if is_new_legacy_run(layout) and (owned := layout.owned()):
        raise UsageError(
            f"{layout.root} already holds files of {layout.stem} that an earlier version of the "
            f"program made ({owned[0].name}, ...): take them over with --resume, or start over "
            f"with --force, which removes them"
        )


def legacy_stems(folder: OutputFolder) -> list[str]:
    """Return the STEMs that version 1 worked on, as its state file in ``folder`` says."""
    names = _chunk_files(folder)
    return sorted({name.rsplit("_chunked", 1)[0] for name in names if "_chunked" in name})


def is_finished(layout: Layout) -> bool:
    """Return whether the run ended, its features were removed, and no later run went on with it."""
    if layout.state.exists() or not is_legacy_run(layout):
        return False
    try:
        rows = list(_state(layout)["stages"].values())
        ended = bool(rows) and all(row["status"] == "completed" for row in rows)
    except (LookupError, TypeError, AttributeError):
        return False
    return ended and layout.predictions.exists() and not feature_files(layout)


def refuse_finished(layout: Layout) -> None:
    """Raise NothingToResumeError (exit 0) for a finished run, of which nothing could be proved."""
    if is_finished(layout):
        raise NothingToResumeError(
            f"{layout.root} holds a finished run of an earlier version of the program, without the "
            f"files that it was made from: it is left as it is, see {layout.predictions}; "
            f"to compute it anew use --force, which removes it"
        )


def chunk_length(layout: Layout) -> int | None:
    """Return the chunk length of the run; None where it does not say."""
    config = _state(layout).get("pipeline_config")
    length = config.get("expected_length") if isinstance(config, dict) else None
    return length if isinstance(length, int) else None


def _state(layout: OutputFolder) -> dict[str, Json]:
    """Return the state file; empty if there is none, or if it cannot be read."""
    try:
        document = parse_json(layout.legacy_state.read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _chunk_files(layout: OutputFolder) -> list[str]:
    """Return the names of the files of chunks that the state file names."""
    try:
        files = _state(layout)["stages"]["CHUNKING"]["outputs"]["files"]
        return [Path(str(name)).name for name in files]
    except (LookupError, TypeError):
        return []


def legacy_frames_per_file(layout: Layout) -> int | None:
    """Return how many frames a split file of the run has; None where there is none."""
    try:
        return sum(1 for _ in read_fasta(layout.split("nucleotide", 1))) or None
    except (OSError, ValueError):
        return None


def feature_files(layout: Layout) -> dict[Path, tuple[Molecule, int]]:
    """Return the feature files that have no receipt, with their molecule and number."""
    files: dict[Path, tuple[Molecule, int]] = {}
    for molecule in MOLECULES:
        suffix = f"_{FEATURE_SUFFIX[molecule]}.pt"
        for path in sorted(layout.folders[molecule].glob(f"output_*{suffix}")):
            number = path.name[len("output_") : -len(suffix)]
            done = receipt_beside(path).exists()
            if number.isdecimal() and path.is_file() and not done:
                files[path] = (molecule, int(number))
    return files


def migrate(
    layout: Layout,
    disk: Disk,
    encoders: Iterable[tuple[Molecule, int, Callable[[int], Task]]],
) -> list[str]:
    """Make a run of version 1 one of this version, file by file; nothing happens to others.

    ``encoders`` have what they embed, the width of their embeddings, and what describes the task of
    a split file. Returns sentences for the user.
    """
    if not is_new_legacy_run(layout):
        return []
    texts = list[str]()
    for molecule, width, task_of in encoders:
        texts += take_over(layout, disk, task_of, molecule, width)
    return texts


def take_over(
    layout: Layout, disk: Disk, task_of: Callable[[int], Task], molecule: Molecule, width: int
) -> list[str]:
    """Write receipts for the feature files that prove right, and return sentences for the user.

    ``task_of`` returns the task of a split file; ``width`` is that of the encoder's embeddings.
    """
    # Imported here, because `status` and the state of a run use this module without torch.
    from virnucpro.store.features import load_features

    texts, taken = [], 0
    for path, (kind, number) in feature_files(layout).items():
        if kind != molecule:
            continue
        task = task_of(number)
        sha, ids = hashlib.sha256(), []
        try:
            # Its lines were wrapped, as those of a new file are not.
            for record in read_fasta(task.inputs[0]):
                sha.update(fasta_bytes([record]))
                ids.append(record[0])
            digest, features = hashed(path).sha256, load_features(path, molecule)
            if features.ids != ids:
                raise ValueError("its ids are not those of its FASTA file, in the same order")
            if features.data.shape[1] != width:
                rows = features.data.shape[1]
                raise ValueError(f"its rows have {rows} numbers, the model's {width}")
            output = OutputFile(path, path.stat().st_size, digest, len(ids))
            proof = task.stage, fingerprint(task, [sha.hexdigest()]), (output,), TaskFigures()
            receipt = Receipt(*proof, "legacy", 0.0)
            disk.save(task.receipt, sealed(receipt_document(receipt, layout.root)))
            taken += 1
        except (OSError, ValueError) as reason:
            texts.append(f"{path.name} of an earlier version is computed again: {reason}")
    if taken:
        texts.append(
            f"{taken} {FEATURE_SUFFIX[molecule]} feature files were taken over from an earlier "
            f"version of the program: the precision they were computed in is unknown"
        )
    return texts
