"""Runs of version 1 of the program, which are known by their ``pipeline_state.json``.

What is cheap in such a run is computed again. A feature file, which is expensive, is taken over if
it holds the embeddings of the sequences in the FASTA file beside it: :func:`migrate` writes its
receipt, and then the state of the run, before anything is overwritten. Then the run is one of this
version, and nothing else asks. Where a new split file has other sequences, the receipt does not
fit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from virnucpro.contracts import MOLECULES, Json, Molecule, OutputFile, Task, TaskFigures
from virnucpro.errors import NothingToResumeError, UsageError
from virnucpro.io.fasta import fasta_bytes, read_fasta
from virnucpro.layout import FEATURE_SUFFIX, Layout, receipt_beside
from virnucpro.store.disk import Disk
from virnucpro.store.documents import digest, parse_json
from virnucpro.store.hashed import hashed
from virnucpro.store.ledger import Receipt, fingerprint, save_receipt
from virnucpro.store.work import (
    RunIdentity,
    RunState,
    WorkIdentity,
    check_same,
    read_state,
    write_state,
)


def may_take_over(layout: Layout, *, resume: bool) -> bool:
    """Return whether there is a run of version 1 which was not taken over yet, and is to be.

    Raises:
        NothingToResumeError: it is finished, and nothing of it could be proved (exit 0).
        UsageError: nobody asked to ``resume`` it.
    """
    if not is_untaken(layout):
        return False
    if not resume:
        raise UsageError(
            f"{layout.root} already holds files of {layout.stem} that an earlier version of the "
            f"program made ({layout.owned()[0].name}, ...): take them over with --resume, or start "
            f"over with --force, which removes them"
        )
    if not layout.state.exists() and _is_tidied(layout):
        raise NothingToResumeError(
            f"{layout.root} holds a finished run of an earlier version of the program, without the "
            f"files that it was made from: it is left as it is, see {layout.predictions}; "
            f"to compute it anew use --force, which removes it"
        )
    return True


def is_untaken(layout: Layout) -> bool:
    """Return whether files of version 1 are there, and no state of this version that is whole."""
    if not layout.legacy_state.exists() or not layout.owned() or read_state(layout) is not None:
        return False
    try:
        files = _state(layout)["stages"]["CHUNKING"]["outputs"]["files"]
        names = [Path(str(name)).name for name in files]
    except (LookupError, TypeError):
        return True  # it does not say of which input it is
    return not names or any(name.startswith(f"{layout.stem}_chunked") for name in names)


def _is_tidied(layout: Layout) -> bool:
    """Return whether the run ended, and its features were removed."""
    try:
        rows = list(_state(layout)["stages"].values())
        ended = bool(rows) and all(row["status"] == "completed" for row in rows)
    except (LookupError, TypeError, AttributeError):
        return False
    return ended and layout.predictions.exists() and not feature_files(layout)


def _state(layout: Layout) -> dict[str, Json]:
    """Return what version 1 wrote of the run; nothing where that cannot be read."""
    try:
        document = parse_json(layout.legacy_state.read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _identity(layout: Layout, wanted: RunIdentity) -> RunIdentity:
    """Return what the run depends on: as ``wanted``, but for what is known of it.

    Version 1 knew no pairs, its split files have a fixed number of frames, and it embedded
    identical sequences, too.
    """
    config, length, frames = _state(layout).get("pipeline_config"), wanted.chunk_length, None
    if isinstance(config, dict) and isinstance(config.get("expected_length"), int):
        length = config["expected_length"]
    with suppress(OSError, ValueError):  # there is no split file
        frames = sum(1 for _ in read_fasta(layout.split("nucleotide", 1))) or None
    return replace(
        wanted,
        second_input=None,
        interleaved=False,
        chunk_length=length,
        sequences_per_file=None if frames else wanted.sequences_per_file,
        exact_frames_per_file=frames,
        dedup=False,
    )


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
    wanted: RunState,
    encoders: Iterable[tuple[Molecule, int, Callable[[int], Task]]],
) -> list[str]:
    """Make a run of version 1, which was not taken over yet, one of this version, file by file.

    Its state, which comes last, says what version 1 did not write down as the ``wanted`` one does.
    ``encoders`` have what they embed, the width of their embeddings, and what describes the task of
    a split file. Returns sentences for the user.

    Raises:
        ResumeRefusedError: the input is another kind, or the chunks have another length (exit 3).
    """
    was, texts = _identity(layout, wanted.identity), list[str]()
    names = ("second_input", "interleaved", "chunk_length")
    asked, known = (
        {name: getattr(each, name) for name in names} for each in (wanted.identity, was)
    )
    label = f"a run of {layout.stem} by an earlier version of the program"
    check_same(WorkIdentity(wanted.work.label, asked), WorkIdentity(label, known), layout.root)
    state = replace(wanted, decided_by=asdict(was))
    for molecule, width, task_of in encoders:
        texts += _take_over(layout, disk, digest(state.decided_by), task_of, molecule, width)
    write_state(layout, disk, state)
    return texts


def _take_over(
    layout: Layout,
    disk: Disk,
    identity: str,
    task_of: Callable[[int], Task],
    molecule: Molecule,
    width: int,
) -> list[str]:
    """Write receipts for the feature files that prove right, and return sentences for the user.

    ``identity`` is the digest of what the run depends on, ``width`` the one of the encoder's
    embeddings. ``task_of`` returns the task of a split file.
    """
    # Imported here, because what checks a request needs this module before torch.
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
            decided_by = fingerprint(task, [sha.hexdigest()], identity)
            receipt = Receipt(task.stage, decided_by, (output,), TaskFigures(), "legacy", 0.0)
            save_receipt(disk, task.receipt, receipt, layout.root)
            taken += 1
        except (OSError, ValueError) as reason:
            texts.append(f"{path.name} of an earlier version is computed again: {reason}")
    if taken:
        texts.append(
            f"{taken} {FEATURE_SUFFIX[molecule]} feature files were taken over from an earlier "
            f"version of the program: the precision they were computed in is unknown"
        )
    return texts
