"""Settings of a command: those that decide its results, and those that do not.

:class:`AnalysisSettings` decide the results. They are part of the state of a run: a run that was
begun with others is not continued. :class:`MachineSettings` do not: a run may be continued with
other GPUs, batch sizes and threads. :class:`DisplaySettings` say what is shown and logged.
The configuration file replaces defaults, and the command line replaces both.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from virnucpro.errors import UsageError

CompileMode = Literal["auto", "always", "never"]
COMPILE_CHOICES: tuple[CompileMode, ...] = get_args(CompileMode)
ModelType = Literal["300", "500", "lite", "custom", "toy"]
MODEL_TYPES: tuple[ModelType, ...] = get_args(ModelType)
# Model type toy is for tests of the program: it is accepted, but not shown in help texts.
SHOWN_MODEL_TYPES = tuple(name for name in MODEL_TYPES if name != "toy")
DuplicateIds = Literal["error", "rename"]
DUPLICATE_ID_CHOICES: tuple[DuplicateIds, ...] = get_args(DuplicateIds)
_DATA = Path(__file__).parent / "data"
LITE_CLASSIFIER = _DATA / "lite_classifier.safetensors"
TOY_CLASSIFIER = _DATA / "toy_classifier.safetensors"

CODON = 3  # bases


@dataclass(frozen=True)
class ShippedModels:
    """A model type whose models come with this package; its encoders have the same name.

    Attributes:
        notice: shown above the results, and written to ``STEM_run.json``.
    """

    classifier: Path
    chunk_length: int
    notice: str


SHIPPED_MODELS = {
    "lite": ShippedModels(
        LITE_CLASSIFIER,
        500,
        "model type lite: small models for a first look; the released ones are more accurate",
    ),
    "toy": ShippedModels(
        TOY_CLASSIFIER,
        500,
        "model type toy: these scores mean nothing; they only show that the program works",
    ),
}


@dataclass(frozen=True)
class AnalysisSettings:
    """The settings that decide the results.

    Attributes:
        model_type: ``300`` or ``500`` for a released classifier, ``lite`` for the small models of
            this package, or ``custom`` for the file ``classifier``.
        classifier: file of the classifier; a bare name is looked up among the models on disk.
        chunk_length: bases per chunk.
        sequences_per_file: frames per split file; 10,000 in version 1.
        nucleotide_model: encoder of nucleotide sequences: name on the hub, or folder.
        protein_model: encoder of proteins: name of an ESM-2 model, name on the hub, folder or file.
        truncation: residues per protein that are embedded; 1024 in version 1.
        precision: arithmetic of the encoders; see :mod:`virnucpro.precision`.
        duplicate_ids: ``error`` refuses record ids that occur twice; ``rename`` makes them unique.
        classifiers: classifier file of each released model type.
    """

    model_type: ModelType = "500"
    classifier: str | None = None
    chunk_length: int | None = None
    sequences_per_file: int = 10_000
    nucleotide_model: str = "zhihan1996/DNABERT-S"
    protein_model: str = "esm2_t36_3B_UR50D"
    truncation: int = 1024
    precision: str = "auto"
    duplicate_ids: DuplicateIds = "error"
    classifiers: dict[str, str] = field(
        default_factory=lambda: {"300": "300_model.pth", "500": "500_model.pth"}
    )

    def resolved(self) -> AnalysisSettings:
        """Return the settings with what follows from the model type filled in.

        Raises:
            UsageError: ``custom`` has no classifier or no chunk length, or a length is below 3.
        """
        if self.chunk_length is not None and self.chunk_length < CODON:
            raise UsageError(f"a chunk of {self.chunk_length} bases is shorter than a codon")
        if shipped := SHIPPED_MODELS.get(self.model_type):
            return replace(
                self,
                classifier=self.classifier or str(shipped.classifier),
                chunk_length=self.chunk_length or shipped.chunk_length,
                nucleotide_model=self.model_type,
                protein_model=self.model_type,
            )
        if self.model_type == "custom":
            if self.classifier is None or self.chunk_length is None:
                raise UsageError(
                    "--model-type custom needs the classifier and its chunk length: "
                    "--model-path FILE --expected-length N"
                )
            return self
        return replace(
            self,
            classifier=self.classifier or self.classifiers[self.model_type],
            chunk_length=self.chunk_length or int(self.model_type),
        )


@dataclass(frozen=True)
class MachineSettings:
    """The settings that do not decide the results.

    Attributes:
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:0,2``, a number or the UUID of a GPU.
        gpus: indices among the visible GPUs, or UUIDs, separated by commas.
        max_workers: largest number of GPUs.
        cpu_workers: worker processes on the CPU; None computes in this process.
        fallback_to_cpu: whether ``auto`` may use the CPU if there is no GPU.
        protein_batch: batch budget of the protein encoder, in the unit of its family (tokens for
            ESM-2); None chooses for the device.
        nucleotide_batch: the same for the nucleotide encoder (sequences for DNABERT-S).
        classifier_rows: rows that the classifier reads at a time.
        tokenizer_threads: host threads per worker that make tokens.
        threads: host threads in total; None takes every core that this process may use.
        compile: whether workers compile their models for a GPU: ``auto`` if the work is large
            enough to save the time that it takes.
        keep_intermediate: whether chunks, frames and features are kept after success.
    """

    device: str = "auto"
    gpus: str | None = None
    max_workers: int | None = None
    cpu_workers: int | None = None
    fallback_to_cpu: bool = True
    protein_batch: int | None = None
    nucleotide_batch: int | None = None
    classifier_rows: int = 256
    tokenizer_threads: int = 4
    threads: int | None = None
    compile: CompileMode = "auto"
    keep_intermediate: bool = False

    def __post_init__(self) -> None:
        """Check the counts.

        Raises:
            UsageError: one of them is below 1 (exit 64).
        """
        for name in (
            "max_workers",
            "cpu_workers",
            "protein_batch",
            "nucleotide_batch",
            "classifier_rows",
            "tokenizer_threads",
            "threads",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name.replace('_', ' ')} must be 1 or more, not {value}")


@dataclass(frozen=True)
class DisplaySettings:
    """The settings that say what is shown and logged.

    Attributes:
        level: ``DEBUG`` (``-v``), ``INFO``, ``WARNING`` (``-q``) or ``ERROR``.
        progress: whether a dashboard may be shown on a terminal.
        log_file: file of the log; None is ``.checkpoints/STEM/run.log``.
        auto_log: whether a log is written if there is no ``log_file``.
    """

    level: str = "INFO"
    progress: bool = True
    log_file: Path | None = None
    auto_log: bool = True

    @property
    def quiet(self) -> bool:
        """Whether only warnings and errors are shown."""
        return self.level in ("WARNING", "ERROR")
