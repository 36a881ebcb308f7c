"""Runs of the program before receipts: what is taken over from them, and on what evidence.

Such a run is known by its ``pipeline_state.json``. What is cheap in it is derived again; a feature
file, which is expensive, is taken over where it is proved to belong to the sequences of this run:

1. Before anything is overwritten, :func:`survey` notes the digest of each feature file and of the
   records of the FASTA file beside it.
2. When the split files are there again, :func:`adopt` compares their records with that note, then
   the ids, width and values of the feature file; the engine writes a receipt with
   ``origin: legacy``.

Each file is decided by itself and its receipt is the only thing written, so that a kill between
two files loses nothing. With which model and precision a file was made is nowhere recorded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from virnucpro.contracts import Json, OutputFile, Task, TaskResult
from virnucpro.errors import NothingToResumeError
from virnucpro.io.fasta import fasta_bytes, read_fasta
from virnucpro.layout import FEATURE_SUFFIX, MOLECULES, Layout, Molecule, OutputFolder
from virnucpro.store.disk import Disk, sha256_of

COMPLETED = "completed"


class NotAdoptedError(ValueError):
    """A feature file that is computed again; the message says why."""


@dataclass(frozen=True)
class Left:
    """A feature file as it was found: its SHA-256 and that of the records beside it (hex)."""

    sha256: str
    records: str | None


# What the state file says


def found(layout: Layout) -> bool:
    """Whether an earlier version of the program worked on this STEM in this directory."""
    state = _state(layout)
    if state is None:
        return False
    names = [Path(name).name for name in _chunk_files(state)]
    return not names or any(name.startswith(f"{layout.stem}_chunked") for name in names)


def stems(folder: OutputFolder) -> list[str]:
    """The STEMs that an earlier version worked on, as far as its state file in ``folder`` says."""
    names = [Path(name).name for name in _chunk_files(_state(folder) or {})]
    return sorted({name.rsplit("_chunked", 1)[0] for name in names if "_chunked" in name})


def finished(layout: Layout) -> bool:
    """Whether it came to its end and its features were removed, and nothing has gone on since."""
    if layout.state.exists() or not found(layout):
        return False
    stages = (_state(layout) or {}).get("stages")
    rows = list(stages.values()) if isinstance(stages, dict) else []
    ended = bool(rows) and all(isinstance(r, dict) and r.get("status") == COMPLETED for r in rows)
    return ended and layout.predictions.exists() and not feature_files(layout)


def leave_alone(layout: Layout) -> None:
    """Refuse to go on with a finished run: nothing of it could be proved or used.

    Raises:
        LeftAlone: there is such a run (exit 0).
    """
    if finished(layout):
        raise NothingToResumeError(
            f"{layout.root} holds a finished run of an earlier version of the program, without the "
            f"files that it was made from: it is left as it is, see {layout.predictions}; "
            f"to compute it anew use --force, which moves it aside"
        )


def differences(layout: Layout, analysis: Mapping[str, Json]) -> list[tuple[str, str, str]]:
    """(name, was, is) of what the run is known to have done otherwise than ``analysis`` says."""
    rows = []
    config = (_state(layout) or {}).get("pipeline_config")
    length = config.get("expected_length") if isinstance(config, dict) else None
    wanted = analysis["chunk length"]
    if isinstance(length, int) and length != wanted:
        rows.append(("chunk length", str(length), str(wanted)))
    first, wanted = _count(layout.split("nucleotide", 1)), analysis["sequences per file"]
    several = layout.split("nucleotide", 2).exists()
    if first > wanted or (several and 0 < first < wanted):
        rows.append(("sequences per file", str(first), str(wanted)))
    return rows


def _state(layout: OutputFolder) -> dict[str, Json] | None:
    """The state file; empty where it cannot be read, None where there is none."""
    try:
        document = json.loads(layout.legacy_state.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _chunk_files(state: Mapping[str, Json]) -> list[str]:
    try:
        return [str(name) for name in state["stages"]["CHUNKING"]["outputs"]["files"]]
    except (KeyError, TypeError):
        return []


def _count(path: Path) -> int:
    try:
        return sum(1 for _ in read_fasta(path))
    except (OSError, ValueError):
        return 0


# What it left


def feature_files(layout: Layout) -> dict[Path, tuple[Molecule, int]]:
    """The feature files without a receipt that exist, with their molecule and number."""
    files: dict[Path, tuple[Molecule, int]] = {}
    for molecule in MOLECULES:
        suffix = f"_{FEATURE_SUFFIX[molecule]}.pt"
        for path in sorted(layout.folder(molecule).glob(f"output_*{suffix}")):
            number = path.name[len("output_") : -len(suffix)]
            receipt = path.with_name(path.name + ".done")
            if number.isdecimal() and path.is_file() and not receipt.exists():
                files[path] = (molecule, int(number))
    return files


def survey(layout: Layout, disk: Disk) -> str:
    """Note what the run left, durably, and return a sentence about it.

    A note that is there already is kept, and none is made once a stage of this version has written
    here: the FASTA files may then be ours and prove nothing.

    Raises:
        OutputError: the note cannot be written.
    """
    files = feature_files(layout)
    if not layout.legacy_survey.exists() and not any(layout.state.glob("*.done")):
        note = {
            path.relative_to(layout.root).as_posix(): {
                "sha256": sha256_of(path),
                "records": _digest_or_none(layout.split(molecule, number)),
            }
            for path, (molecule, number) in files.items()
        }
        disk.save(layout.legacy_survey, (json.dumps(note, indent=1) + "\n").encode())
    return (
        f"going on with a run of an earlier version of the program in {layout.root}: its "
        f"{len(files)} feature files are taken over where they prove right, the rest is done again"
    )


def surveyed(layout: Layout) -> dict[Path, Left]:
    """What :func:`survey` noted; empty where there is no note, or none that can be read."""
    try:
        note = json.loads(layout.legacy_survey.read_bytes())
        return {
            layout.root / name: Left(str(row["sha256"]), row["records"])
            for name, row in note.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _digest_or_none(path: Path) -> str | None:
    try:
        return _read(path)[0]
    except (OSError, ValueError):
        return None


def _read(path: Path) -> tuple[str, list[str]]:
    """Digest (hex) of the records of a FASTA file, however its lines are wrapped; their ids."""
    sha, ids = hashlib.sha256(), []
    for name, sequence in read_fasta(path):
        sha.update(fasta_bytes([(name, sequence)]))
        ids.append(name)
    return sha.hexdigest(), ids


# Taking it over


def adopt(
    layout: Layout, tasks: Sequence[Task], molecule: Molecule, dim: int
) -> Iterator[TaskResult | str]:
    """Yield the ``tasks`` whose feature files prove right, and warnings for the user.

    ``dim`` is the width of the encoder's embeddings.
    """
    noted, adopted = surveyed(layout), 0
    for task in tasks:
        path = task.outputs[0]
        if path not in noted or not path.exists():
            continue
        try:
            output = _examined(task, noted[path], molecule, dim)
        except NotAdoptedError as reason:
            yield f"{path.name} of an earlier version is computed again: {reason}"
            continue
        yield TaskResult(task, (output,))
        adopted += 1
    if adopted:
        yield (
            f"{adopted} {FEATURE_SUFFIX[molecule]} feature files were taken over from an earlier "
            f"version of the program: the precision they were computed in is unknown"
        )


def _examined(task: Task, left: Left, molecule: Molecule, width: int) -> OutputFile:
    """The feature file of ``task``, proved to hold the embeddings of its sequences.

    Raises:
        NotTakenOver: it does not, or it is not the file that was noted.
    """
    # Here and not above: `status` and the admission of a run ask this module without torch.
    from virnucpro.store.features import DamagedFeaturesError, load_features

    path, source = task.outputs[0], task.inputs[0]
    if left.records is None:
        raise NotAdoptedError(f"the {source.name} it was made from was missing or unreadable")
    digest, ids = _read(source)
    if digest != left.records:
        raise NotAdoptedError(f"the {source.name} it was made from had other sequences")
    try:
        if sha256_of(path) != left.sha256:
            raise NotAdoptedError("it has changed since this version first saw it")
        features = load_features(path, molecule)
        size = path.stat().st_size
    except OSError as error:
        raise NotAdoptedError(f"it cannot be read ({error.strerror})") from error
    except DamagedFeaturesError as error:
        raise NotAdoptedError(str(error)) from error
    if features.ids != ids:
        raise NotAdoptedError(f"its ids are not those of {source.name}, in the same order")
    if features.data.shape[1] != width:
        raise NotAdoptedError(
            f"its rows have {features.data.shape[1]} numbers, the model's {width}"
        )
    return OutputFile(path, size, left.sha256, len(ids))
