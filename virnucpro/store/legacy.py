"""Runs of version 1 of the program: what is taken over from them, and on what evidence.

Such a run is known by its ``pipeline_state.json``. What is cheap in it is computed again; a feature
file, which is expensive, is taken over if it is proved to belong to the sequences of this run:

1. Before anything is overwritten, :func:`note_features` notes the digest of each feature file and
   of the records of the FASTA file beside it.
2. When the split files are there again, :func:`take_over` compares their records with that note,
   then the ids, width and values of the feature file; the engine writes a receipt with
   ``origin: legacy``.

Each file is decided by itself and its receipt is the only thing written, so that a kill between
two files loses nothing. No file says with which model and precision it was made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from virnucpro.contracts import Json, OutputFile, Task, TaskResult
from virnucpro.errors import NothingToResumeError
from virnucpro.io.fasta import fasta_bytes, read_fasta
from virnucpro.layout import FEATURE_SUFFIX, MOLECULES, Layout, Molecule, OutputFolder
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.documents import parse_json, sealed, unsealed
from virnucpro.store.ledger import has_receipts

COMPLETED = "completed"


class NotTakenOverError(ValueError):
    """A feature file that is computed again; the message says why."""


Noted = tuple[str, str | None]
"""SHA-256 (hex) of a feature file that version 1 left, and of the records beside it, if any."""


# --- what the state file says


def is_legacy_run(layout: Layout) -> bool:
    """Return whether an earlier version of the program worked on this STEM in this directory."""
    names = _chunk_files(layout)
    began = any(name.startswith(f"{layout.stem}_chunked") for name in names)
    return began or (not names and layout.legacy_state.exists())


def has_run(layout: Layout) -> bool:
    """Return whether files of this STEM are there that version 1 began to make.

    This version may have taken them over since, or moved them aside and started over.
    """
    moved = layout.previous / layout.legacy_state.name
    return bool(layout.owned()) and (is_legacy_run(layout) or moved.exists())


def legacy_stems(folder: OutputFolder) -> list[str]:
    """Return the STEMs that an earlier version worked on, as its state file in ``folder`` says."""
    names = _chunk_files(folder)
    return sorted({name.rsplit("_chunked", 1)[0] for name in names if "_chunked" in name})


def is_finished(layout: Layout) -> bool:
    """Return whether the run ended, its features were removed, and no later run went on with it."""
    if layout.state.exists() or not is_legacy_run(layout):
        return False
    try:
        rows = list(_state(layout)["stages"].values())
        ended = bool(rows) and all(row["status"] == COMPLETED for row in rows)
    except (LookupError, TypeError, AttributeError):
        return False
    return ended and layout.predictions.exists() and not feature_files(layout)


def refuse_finished(layout: Layout) -> None:
    """Refuse to go on with a finished run: nothing of it could be proved or used.

    Raises:
        NothingToResumeError: there is such a run (exit 0).
    """
    if is_finished(layout):
        raise NothingToResumeError(
            f"{layout.root} holds a finished run of an earlier version of the program, without the "
            f"files that it was made from: it is left as it is, see {layout.predictions}; "
            f"to compute it anew use --force, which moves it aside"
        )


def changed_settings(layout: Layout, analysis: Mapping[str, Json]) -> dict[str, int]:
    """Return the settings of the run that are known to differ from ``analysis``, by name."""
    config = _state(layout).get("pipeline_config")
    length = config.get("expected_length") if isinstance(config, dict) else None
    if not isinstance(length, int) or length == analysis["chunk length"]:
        return {}
    return {"chunk length": length}


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


# --- what the run left


def feature_files(layout: Layout) -> dict[Path, tuple[Molecule, int]]:
    """Return the feature files that have no receipt, with their molecule and number."""
    files: dict[Path, tuple[Molecule, int]] = {}
    for molecule in MOLECULES:
        suffix = f"_{FEATURE_SUFFIX[molecule]}.pt"
        for path in sorted(layout.folder(molecule).glob(f"output_*{suffix}")):
            number = path.name[len("output_") : -len(suffix)]
            receipt = path.with_name(path.name + ".done")
            if number.isdecimal() and path.is_file() and not receipt.exists():
                files[path] = (molecule, int(number))
    return files


def note_features(layout: Layout, disk: Disk) -> str:
    """Note the feature files that the run left, durably, and return a sentence about them.

    An existing note is kept. None is made once a stage of this version has written here, because
    the FASTA files may then be its own and prove nothing.

    Raises:
        OutputError: the note cannot be written.
    """
    files = feature_files(layout)
    if not layout.legacy_note.exists() and not has_receipts(layout):
        note = {
            path.relative_to(layout.root).as_posix(): {
                "sha256": sha256_of(path),
                "records": _digest_or_none(layout.split(molecule, number)),
            }
            for path, (molecule, number) in files.items()
        }
        disk.save(layout.legacy_note, sealed(note))
    return (
        f"going on with a run of an earlier version of the program in {layout.root}: its "
        f"{len(files)} feature files are taken over where they prove right, the rest is done again"
    )


def noted_features(layout: Layout) -> dict[Path, Noted]:
    """Return what :func:`note_features` noted; empty without a note that can be read."""
    try:
        note = unsealed(layout.legacy_note.read_bytes())
        return {
            layout.root / name: (str(row["sha256"]), row["records"]) for name, row in note.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _digest_or_none(path: Path) -> str | None:
    try:
        return _read(path)[0]
    except (OSError, ValueError):
        return None


def _read(path: Path) -> tuple[str, list[str]]:
    """Return SHA-256 (hex) and ids of the records of a FASTA file, however lines are wrapped."""
    sha, ids = hashlib.sha256(), []
    for name, sequence in read_fasta(path):
        sha.update(fasta_bytes([(name, sequence)]))
        ids.append(name)
    return sha.hexdigest(), ids


# --- taking it over


def take_over(
    layout: Layout, tasks: Sequence[Task], molecule: Molecule, dim: int
) -> Iterator[TaskResult | str]:
    """Yield the ``tasks`` whose feature files prove right, and warnings for the user.

    ``dim`` is the width of the encoder's embeddings.
    """
    noted, count = noted_features(layout), 0
    for task in tasks:
        path = task.outputs[0]
        if path not in noted or not path.exists():
            continue
        try:
            output = _examined(task, noted[path], molecule, dim)
        except NotTakenOverError as reason:
            yield f"{path.name} of an earlier version is computed again: {reason}"
            continue
        yield TaskResult(task, (output,))
        count += 1
    if count:
        yield (
            f"{count} {FEATURE_SUFFIX[molecule]} feature files were taken over from an earlier "
            f"version of the program: the precision they were computed in is unknown"
        )


def _examined(task: Task, noted: Noted, molecule: Molecule, width: int) -> OutputFile:
    """Return the feature file of ``task``, proved to hold the embeddings of its sequences.

    Raises:
        NotTakenOverError: it does not, or it is not the file that was noted.
    """
    # Imported here, because `status` and the state of a run use this module without torch.
    from virnucpro.store.features import DamagedFeaturesError, load_features

    path, source = task.outputs[0], task.inputs[0]
    noted_digest, noted_records = noted
    if noted_records is None:
        raise NotTakenOverError(f"the {source.name} it was made from was missing or unreadable")
    digest, ids = _read(source)
    if digest != noted_records:
        raise NotTakenOverError(f"the {source.name} it was made from had other sequences")
    try:
        if sha256_of(path) != noted_digest:
            raise NotTakenOverError("it has changed since this version first saw it")
        features = load_features(path, molecule)
        size = path.stat().st_size
    except OSError as error:
        raise NotTakenOverError(f"it cannot be read ({error.strerror})") from error
    except DamagedFeaturesError as error:
        raise NotTakenOverError(str(error)) from error
    if features.ids != ids:
        raise NotTakenOverError(f"its ids are not those of {source.name}, in the same order")
    if features.data.shape[1] != width:
        raise NotTakenOverError(
            f"its rows have {features.data.shape[1]} numbers, the model's {width}"
        )
    return OutputFile(path, size, noted_digest, len(ids))
