"""Settings of a run, in two halves: what changes results, and what does not.

:class:`AnalysisSettings` enters the state of a run; ``--resume`` refuses when any of it differs.
:class:`MachineSettings` never does: a run may go on with other GPUs, batch sizes and threads.
Defaults < configuration file < command line.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from virnucpro.errors import UsageError

Compile = Literal["auto", "always", "never"]
ModelType = Literal["300", "500", "lite", "custom", "toy"]
# ``toy`` is for tests and trials of the machinery: accepted, but not shown in help texts.
MODEL_TYPES: tuple[ModelType, ...] = ("300", "500", "lite", "custom", "toy")
SHOWN_TYPES = tuple(name for name in MODEL_TYPES if name != "toy")
LITE_CLASSIFIER = Path(__file__).parent / "data" / "lite_classifier.safetensors"
TOY_CLASSIFIER = Path(__file__).parent / "data" / "toy_classifier.safetensors"
TOY_WARNING = "model type toy: these scores mean nothing; they only show that the program works"
# What stands at the top of the results of these model types, and in STEM_run.json.
NOTICES = {
    "toy": TOY_WARNING,
    "lite": "model type lite: small models for a first look; the released ones are more accurate",
}

CODON = 3  # bases

_S = TypeVar("_S", "AnalysisSettings", "MachineSettings")


@dataclass(frozen=True)
class AnalysisSettings:
    """Everything that changes results.

    Attributes:
        model_type: which released classifier, ``lite`` for the small models of the package, or
            ``custom`` with ``classifier``.
        classifier: its file; a bare name is looked up among the models on disk.
        chunk_length: bases; records are cut into chunks of this length.
        sequences_per_file: frames a split file. 10,000 in the original.
        nucleotide_model: DNABERT-S: hub name or folder.
        protein_model: ESM-2: released name, hub name, folder or file.
        truncation: residues of a protein that are embedded. 1024 in the original.
        precision: arithmetic of the encoders; ``auto`` is bf16 where every GPU has it.
        duplicate_ids: ``error``, or ``rename`` to make them unique.
    """

    model_type: ModelType = "500"
    classifier: str | None = None
    chunk_length: int | None = None
    sequences_per_file: int = 10_000
    nucleotide_model: str = "zhihan1996/DNABERT-S"
    protein_model: str = "esm2_t36_3B_UR50D"
    truncation: int = 1024
    precision: str = "auto"
    duplicate_ids: Literal["error", "rename"] = "error"
    classifiers: dict[str, str] = field(
        default_factory=lambda: {"300": "300_model.pth", "500": "500_model.pth"}
    )

    def resolved(self) -> AnalysisSettings:
        """Fill in what follows from the model type.

        Raises:
            UsageError: ``custom`` without a classifier or a chunk length; a length below 3.
        """
        if self.chunk_length is not None and self.chunk_length < CODON:
            raise UsageError(f"a chunk of {self.chunk_length} bases is shorter than a codon")
        if self.model_type in ("lite", "toy"):
            shipped = LITE_CLASSIFIER if self.model_type == "lite" else TOY_CLASSIFIER
            return replace(
                self,
                classifier=self.classifier or str(shipped),
                chunk_length=self.chunk_length or 500,
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
    """Everything that does not change results.

    Attributes:
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:0,2``, a number or a GPU's UUID.
        gpus: indices among the visible GPUs, or UUIDs, separated by commas.
        max_workers: use at most so many GPUs.
        cpu_workers: worker processes on the CPU; None computes in this process.
        fallback_to_cpu: whether ``auto`` may do without a GPU.
        esm_tokens: tokens an ESM-2 batch; None chooses for the device.
        dnabert_sequences: sequences a DNABERT-S batch; None chooses for the device.
        classifier_rows: rows read at a time by the classifier.
        tokenizer_threads: host threads a worker uses for tokens.
        threads: host threads in all; None takes every core this process may use.
        compile: whether a GPU's workers compile their models: ``auto`` where there is enough to do.
        keep_intermediate: keep chunks, frames and features after success.
    """

    device: str = "auto"
    gpus: str | None = None
    max_workers: int | None = None
    cpu_workers: int | None = None
    fallback_to_cpu: bool = True
    esm_tokens: int | None = None
    dnabert_sequences: int | None = None
    classifier_rows: int = 256
    tokenizer_threads: int = 4
    threads: int | None = None
    compile: Compile = "auto"
    keep_intermediate: bool = False

    def __post_init__(self) -> None:
        """Reject counts below one (exit 64)."""
        for name in (
            "max_workers",
            "cpu_workers",
            "esm_tokens",
            "dnabert_sequences",
            "classifier_rows",
            "tokenizer_threads",
            "threads",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name.replace('_', ' ')} must be 1 or more, not {value}")


@dataclass(frozen=True)
class DisplaySettings:
    """What is shown and logged.

    Attributes:
        level: ``DEBUG`` (``-v``), ``INFO``, ``WARNING`` (``-q``) or ``ERROR``.
        progress: whether a dashboard may be shown on a terminal.
        log_file: where the log goes; None is ``.checkpoints/STEM/run.log``.
        auto_log: whether that log is written at all without ``log_file``.
    """

    level: str = "INFO"
    progress: bool = True
    log_file: Path | None = None
    auto_log: bool = True

    @property
    def quiet(self) -> bool:
        """Whether only warnings and errors are shown."""
        return self.level in ("WARNING", "ERROR")


def override(settings: _S, **values: Any) -> _S:
    """``settings`` with each value that is not None."""
    return replace(settings, **{k: v for k, v in values.items() if v is not None})
