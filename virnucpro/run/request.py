"""What a user asked ``predict`` for, and every check of it that needs neither torch nor a lock.

These checks come first, so that a mistyped path is answered at once.
"""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from virnucpro.encoders.registry import check_on_disk
from virnucpro.errors import ModelError, OutputError, UsageError
from virnucpro.io.pairs import InputFiles
from virnucpro.layout import MOLECULES, STDIN, Layout, RunLayout, stem_of
from virnucpro.models.store import find_model
from virnucpro.settings import AnalysisSettings, Cuts, MachineSettings
from virnucpro.store import legacy
from virnucpro.store.disk import refuse_links
from virnucpro.store.work import refuse_early

LONGEST_STEM = 200  # bytes; the names of results are longer, and 255 is the most of any file


@dataclass(frozen=True)
class PredictionRequest:
    """What the user asked for.

    ``source`` is a path or ``-`` for standard input, ``mates`` the path of the second mates where
    it has the first mates of pairs. Of an ``interleaved`` input, it has both mates of each pair.
    """

    source: str
    output_dir: Path | None
    analysis: AnalysisSettings
    machine: MachineSettings
    resume: bool = False
    force: bool = False
    command: tuple[str, ...] = ()
    cuts: Cuts = field(default_factory=Cuts)
    mates: str | None = None
    interleaved: bool = False

    @cached_property
    def layout(self) -> RunLayout:
        """Where everything goes; the default output directory is ``STEM_predictions``.

        A run of version 1 keeps its STEM, also after this version has taken it over.
        """
        length = self.analysis.resolved().chunk_length
        assert length is not None
        present, earlier = (
            RunLayout((self.output_dir or Path(f"{stem}_predictions")).absolute(), stem, length)
            for stem in (stem_of(self.source), stem_of(self.source, version_1=True))
        )
        if earlier.stem != present.stem and legacy.has_run(earlier):
            return earlier
        return present

    @property
    def input_files(self) -> InputFiles:
        """The files that the stages read; a copy of what was piped in."""
        first = self.layout.spooled if self.source == STDIN else Path(self.source).absolute()
        mates = None if self.mates is None else Path(self.mates).absolute()
        return InputFiles(first, mates, interleaved=self.interleaved)


def check_request(request: PredictionRequest) -> None:
    """Check everything that can be checked before torch is imported and a lock is taken.

    Raises:
        UsageError: the input or the output directory cannot be used.
        OutputError: the output directory cannot be written.
        ModelError: a model is not on this machine.
        NothingToResumeError: there is a finished run of version 1 to resume.
        ResumeRefusedError: a newer version wrote the run that is there.
    """
    check_input(request)
    check_models(request.analysis.resolved())


def check_input(request: PredictionRequest) -> None:
    """Check the input and the output directory of a request; raises as :func:`check_request`."""
    layout = request.layout
    _check_name(request.source, layout)
    check_writable(layout)
    if request.interleaved and request.mates is not None:
        raise UsageError(
            "--interleaved and --input2 are two ways of giving pairs: leave one of them out"
        )
    if request.mates is not None and STDIN in (request.source, request.mates):
        raise UsageError("standard input holds no pairs: name both files, with --input2 the second")
    if request.source == STDIN and sys.stdin is None:  # closed by whoever started this process
        raise UsageError("input -: standard input is closed; name a file, or pipe one in")
    owned = [path.resolve() for path in layout.owned()]
    for name in filter(None, (request.source, request.mates)):
        if name == STDIN:
            continue
        check_readable(Path(name))
        resolved = Path(name).resolve()
        if any(path == resolved or path in resolved.parents for path in owned):
            raise UsageError(
                f"input {name} is a file that this run would write: choose another --output-dir"
            )
    if request.resume:
        legacy.refuse_finished(layout)
    if not request.force:
        refuse_early(layout, resume=request.resume)


def check_models(analysis: AnalysisSettings) -> None:
    """Check that the models of resolved settings are on this machine."""
    if analysis.model_type in ("300", "500"):
        missing = []
        for name in (analysis.nucleotide_model, analysis.protein_model, str(analysis.classifier)):
            try:
                if not Path(name).exists():
                    find_model(name)
            except ModelError:
                missing.append(name)
        if len(missing) > 1:
            raise ModelError(
                f"--model-type {analysis.model_type} needs models that are not on this machine: "
                f"{', '.join(missing)}; fetch them with: virnucpro models fetch "
                f"{analysis.model_type} (without internet: see virnucpro models fetch --help). "
                f"For a first look, --model-type lite needs none of them"
            )
    classifier_path(analysis)
    check_on_disk(analysis.nucleotide_model, "nucleotide")
    if analysis.model_type != "custom":  # a custom encoder of whole chunks needs none
        check_on_disk(analysis.protein_model, "protein")


def _check_name(source: str, layout: Layout) -> None:
    """Raise UsageError where no file can be named after the input."""
    if layout.stem in ("", ".", ".."):
        check_readable(Path(source))  # a folder such as . is named as one
        raise UsageError(
            f"input {source!r} has a name after which no results can be named: rename the file"
        )
    if len(os.fsencode(layout.stem)) > LONGEST_STEM:
        raise UsageError(
            f"input {source} has a name of more than {LONGEST_STEM} bytes, after which no results "
            f"can be named: rename the file, or make a link with a shorter name"
        )


def check_writable(layout: Layout) -> None:
    """Check what can be checked without writing; a missing folder is fine."""
    for folder in (layout.root, layout.checkpoints):
        # Path.exists raises where a folder above it may not be searched.
        if not os.path.exists(folder):  # noqa: PTH110
            break
        if not folder.is_dir():
            raise UsageError(f"--output-dir {folder} is a file: name a folder")
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise OutputError(f"cannot write into {folder}: choose another --output-dir")
    if os.path.exists(layout.root):  # noqa: PTH110
        refuse_links(layout.state, layout.merged_folder, *map(layout.folder, MOLECULES))


def check_readable(source: Path) -> None:
    """Raise UsageError where an input is not a regular file that can be read."""
    try:
        mode = source.stat().st_mode
        if stat.S_ISREG(mode):
            source.open("rb").close()
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"input {source} not found: check its path") from None
    except OSError as error:
        raise UsageError(
            f"input {source} cannot be read ({error.strerror}): check its path and permissions"
        ) from error
    if stat.S_ISDIR(mode):
        raise UsageError(f"input {source} is a folder: name a FASTA or FASTQ file")
    if not stat.S_ISREG(mode):
        raise UsageError(
            f"input {source} is not a regular file, and it is read more than once: pipe it to "
            f"--input - instead"
        )


def classifier_path(analysis: AnalysisSettings) -> Path:
    """Return the file of the classifier."""
    assert analysis.classifier is not None
    path = Path(analysis.classifier)
    if path.exists():
        return path.absolute()
    if analysis.model_type == "toy":
        raise ModelError("model type toy is for tests of the program: choose another --model-type")
    if path.name != analysis.classifier or analysis.model_type not in ("300", "500"):
        raise ModelError(f"classifier {path} not found: check --model-path")
    return find_model(analysis.classifier)
