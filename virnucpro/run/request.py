"""What a user asked ``predict`` for, and every check of it that needs neither torch nor a lock.

These checks come first, so that a mistyped path is answered at once.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from virnucpro.configuration import Configuration
from virnucpro.encoders.registry import check_on_disk
from virnucpro.errors import InputError, ModelError, OutputError, UsageError
from virnucpro.io.inputs import InputFiles
from virnucpro.io.records import EMPTY, Records
from virnucpro.layout import STDIN, Layout, stem_of
from virnucpro.models.store import find_model
from virnucpro.settings import AnalysisSettings
from virnucpro.store import legacy
from virnucpro.store.disk import HOST_NAME
from virnucpro.store.work import refuse_files_of_others

# Bytes. The most of any file is 255, and a temporary one has 36 more than its stem and the host.
LONGEST_STEM = min(200, 219 - len(HOST_NAME))


@dataclass(frozen=True)
class PredictionRequest:
    """What the user asked for.

    ``source`` is a path or ``-`` for standard input, ``mates`` the path of the second mates where
    it has the first mates of pairs. Of an ``interleaved`` input, it has both mates of each pair.
    """

    source: str
    output_dir: Path | None
    settings: Configuration
    resume: bool = False
    force: bool = False
    command: tuple[str, ...] = ()
    mates: str | None = None
    interleaved: bool = False

    @cached_property
    def layout(self) -> Layout:
        """Where everything goes; the default output directory is ``STEM_predictions``."""
        length = self.settings.analysis.resolved().chunk_length
        assert length is not None
        stem = stem_of(self.source)
        root = self.output_dir or Path(f"{stem}_predictions")
        return Layout(root.absolute(), stem, length)

    @cached_property
    def input_files(self) -> InputFiles:
        """The files that the stages read; a copy of what was piped in."""
        first = self.layout.spooled if self.source == STDIN else Path(self.source).absolute()
        mates = None if self.mates is None else Path(self.mates).absolute()
        return InputFiles(first, mates, interleaved=self.interleaved)


def check_request(request: PredictionRequest) -> None:
    """Check everything that can be checked before torch is imported and a lock is taken."""
    check_input(request)
    check_models(request.settings.analysis.resolved())
    if request.source != STDIN:  # a wrong file leaves no folder, and moves no results aside
        check_not_empty(request.input_files.first)


def check_input(request: PredictionRequest) -> None:
    """Check the input and the output directory of a request."""
    layout, mates = request.layout, request.input_files.second
    if request.interleaved and mates is not None:
        raise UsageError("--interleaved and --input2 are two ways of giving pairs: leave one out")
    if mates is not None and STDIN in (request.source, request.mates):
        raise UsageError("standard input holds no pairs: name both files, with --input2 the second")
    if request.source == STDIN and sys.stdin is None:  # closed by whoever started this process
        raise UsageError("input -: standard input is closed; name a file, or pipe one in")
    files = [Path(name) for name in (request.source, request.mates) if name not in (None, STDIN)]
    for file in files:
        check_readable(file)
    if layout.stem in ("", ".", "..") or len(os.fsencode(layout.stem)) > LONGEST_STEM:
        raise UsageError(
            f"input {request.source!r} has a name after which no results can be named (they have "
            f"longer names): rename the file, or make a link with another name"
        )
    check_folder(layout)
    refuse_own_files(layout, files)
    if not request.force and not legacy.may_take_over(layout, resume=request.resume):
        refuse_files_of_others(layout)


def refuse_own_files(layout: Layout, files: Iterable[Path]) -> None:
    """Raise UsageError for an input or a model under a name that the run would write or remove."""
    owned = [path.resolve() for path in layout.owned()]
    for file in files:
        resolved = file.resolve()
        if any(path == resolved or path in resolved.parents for path in owned):
            raise UsageError(
                f"{file} is a file that this run would write: choose another --output-dir"
            )


def check_models(analysis: AnalysisSettings) -> None:
    """Check that the models of resolved settings are on this machine."""
    try:
        classifier_path(analysis)
        check_on_disk(analysis.nucleotide_model, "nucleotide")
        if analysis.model_type != "custom":  # a custom encoder of whole chunks needs none
            check_on_disk(analysis.protein_model, "protein")
    except ModelError as error:
        if analysis.model_type not in ("300", "500"):
            raise
        raise ModelError(
            f"{error}; all models of this type are fetched by: virnucpro models fetch "
            f"{analysis.model_type}; for a first look, --model-type lite needs none of them"
        ) from error


def check_writable(layout: Layout, *, force: bool) -> None:
    """Check the output directory; without ``force``, refuse files of somebody else in it."""
    check_folder(layout)
    if not force:
        refuse_files_of_others(layout)


def check_folder(layout: Layout) -> None:
    """Check what can be checked of a folder without writing; a missing one is fine."""
    for folder in (layout.root, layout.checkpoints):
        # Path.exists raises where a folder above it may not be searched.
        if not os.path.exists(folder):  # noqa: PTH110
            break
        if not folder.is_dir():
            raise UsageError(f"--output-dir {folder} is a file: name a folder")
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise OutputError(f"cannot write into {folder}: choose another --output-dir")


def check_readable(source: Path) -> None:
    """Raise UsageError where an input is not a regular file that can be read."""
    try:
        if is_regular := stat.S_ISREG(source.stat().st_mode):
            source.open("rb").close()
    except OSError as error:
        raise UsageError(
            f"input {source} cannot be read ({error.strerror}): check its path and permissions"
        ) from error
    if not is_regular:
        raise UsageError(
            f"input {source} is not a regular file: name a FASTA or FASTQ file, or pipe one to "
            f"--input -"
        )


def check_not_empty(source: Path) -> None:
    """Raise InputError where the first record of an input is missing or wrong."""
    with closing(iter(Records(source))) as records:
        if next(records, None) is None:
            raise InputError(f"{source}: {EMPTY}")


def classifier_path(analysis: AnalysisSettings) -> Path:
    """Return the file of the classifier."""
    assert analysis.classifier is not None
    path = Path(analysis.classifier)
    if path.exists():
        return path.absolute()
    if path.name != analysis.classifier or analysis.model_type not in ("300", "500"):
        raise ModelError(f"classifier {path} not found: check --model-path")
    return find_model(analysis.classifier)
