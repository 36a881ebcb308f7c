"""Settings of a command: those that decide its results, and those that do not.

:class:`AnalysisSettings` decide the results. They are part of the state of a run: a run that was
begun with others is not continued. :class:`CutSettings` decide which records are called virus: they
may change at any time, and only the tables are written again. :class:`MachineSettings` decide no
result: a run may be continued with other GPUs, batch sizes and threads. :class:`DisplaySettings`
say what is shown and logged.
The configuration file replaces defaults, and the command line replaces both.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from virnucpro.errors import UsageError
from virnucpro.precision import PRECISION_CHOICES

CompileMode = Literal["auto", "always", "never"]
COMPILE_CHOICES: tuple[CompileMode, ...] = get_args(CompileMode)
ModelType = Literal["300", "500", "lite", "custom", "toy"]
MODEL_TYPES: tuple[ModelType, ...] = get_args(ModelType)
# Model type toy is for tests of the program: it is accepted, but not shown in help texts.
SHOWN_MODEL_TYPES = tuple(name for name in MODEL_TYPES if name != "toy")
DuplicateIds = Literal["error", "rename"]
DUPLICATE_ID_CHOICES: tuple[DuplicateIds, ...] = get_args(DuplicateIds)

NO_CLUSTER = "none"
Preset = Literal["default", "relaxed", "conservative"]
PRESET_CHOICES: tuple[Preset, ...] = get_args(Preset)
_DATA = Path(__file__).parent / "data"
LITE_CLASSIFIER = _DATA / "lite_classifier.safetensors"
# Part of the source code only, not of the installed package.
TOY_CLASSIFIER = Path(__file__).parents[1] / "tests" / "data" / "toy_classifier.safetensors"

CODON = 3  # bases
SHORTEST_WHOLE = 30  # bases; a shorter chunk that is read whole is not scored
MEASURED = "measured on the device"


def setting(
    default: Any, key: str, description: str, unset: str = "", *, choices: tuple[str, ...] = ()
) -> Any:
    """Declare a setting that the configuration file has a key for.

    The annotation of the setting decides what the key accepts: a count (a whole number from 1),
    a number, text, or true and false.

    Args:
        default: None has the program decide; the key then also accepts null and ``auto``.
        key: the key of the configuration file with the groups it stands in, separated by dots.
        description: a sentence for people, in the configuration file and in help texts.
        unset: what None means.
        choices: the accepted words, if not every text is accepted.
    """
    return field(
        default=default,
        metadata={"key": key, "description": description, "unset": unset, "choices": choices},
    )


@dataclass(frozen=True)
class ShippedModels:
    """A model type whose models come with this package; its encoders have the same name.

    Attributes:
        chunk_lengths: the lengths that the classifier was trained for, in bases; the first one is
            the default.
        notice: shown above the results, and written to ``STEM_run.json``.
    """

    classifier: Path
    chunk_lengths: tuple[int, ...]
    notice: str


SHIPPED_MODELS = {
    "lite": ShippedModels(
        LITE_CLASSIFIER,
        (500, 300, 150),
        "model type lite: a small model for a first look; the released ones are larger",
    ),
    "toy": ShippedModels(
        TOY_CLASSIFIER,
        (500,),
        "model type toy: these scores mean nothing; they only show that the program works",
    ),
}


@dataclass(frozen=True)
class AnalysisSettings:
    """The settings that decide the results."""

    model_type: ModelType = setting(
        "500", "prediction.default_model_type", "Models to use.", choices=MODEL_TYPES
    )
    # A bare name is looked up among the models on disk.
    classifier: str | None = setting(
        None, "prediction.model_path", "Classifier file of model type custom."
    )
    chunk_length: int | None = setting(
        None, "prediction.expected_length", "Bases per chunk.", "that of the model type"
    )
    sequences_per_file: int | None = setting(
        None,
        "prediction.sequences_per_file",
        "At most so many frames per split file; null chooses by the number of frames.",
    )
    nucleotide_model: str = setting(
        "zhihan1996/DNABERT-S",
        "features.dnabert.model_name",
        "Nucleotide encoder: name on the Hugging Face hub, or folder.",
    )
    protein_model: str = setting(
        "esm2_t36_3B_UR50D",
        "features.esm.model_name",
        "Protein encoder: name of an ESM-2 model, name on the hub, folder or file.",
    )
    truncation: int = setting(
        1024, "features.esm.truncation_seq_length", "Residues per protein to embed."
    )
    precision: str = setting(
        "auto",
        "device.precision",
        "Arithmetic of the encoders; auto is bf16 if every GPU has it, and fp32 on the CPU.",
        choices=PRECISION_CHOICES,
    )
    duplicate_ids: DuplicateIds = setting(
        "error",
        "prediction.duplicate_ids",
        "Refuse record ids that occur twice, or rename them.",
        choices=DUPLICATE_ID_CHOICES,
    )
    dedup: bool | None = setting(
        None,
        "prediction.dedup",
        "Embed identical sequences of a run once.",
        "true; a run that has begun goes on as it began",
    )
    classifier_300: str = setting(
        "300_model.pth", "prediction.models.300", "Classifier file of model type 300."
    )
    classifier_500: str = setting(
        "500_model.pth", "prediction.models.500", "Classifier file of model type 500."
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
                chunk_length=self.chunk_length or shipped.chunk_lengths[0],
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
            classifier=self.classifier or getattr(self, f"classifier_{self.model_type}"),
            chunk_length=self.chunk_length or int(self.model_type),
        )


@dataclass(frozen=True)
class Cuts:
    """What a record must have to be called virus.

    Attributes:
        min_score: its virus score is above this; -1 to 1.
        max_fdr: its estimated false discovery rate is at most this; 1 for any, or none.
        min_length: it has at least so many bases.
    """

    min_score: float = 0.3
    max_fdr: float = 1.0
    min_length: int = 1

    def met(self, length: int, score: float, fdr: float | None) -> bool:
        """Return whether a record of ``length`` bases is called virus."""
        return (
            score > self.min_score
            and (fdr is None or fdr <= self.max_fdr)
            and length >= self.min_length
        )


DEFAULT_CUTS = Cuts()
DOUBTFUL = 0.1  # a false discovery rate above this is not of a sure call, and people are told
PRESETS: dict[Preset, Cuts] = {
    "default": DEFAULT_CUTS,
    "relaxed": Cuts(min_score=0.0),
    "conservative": Cuts(min_score=0.6, max_fdr=0.05),
}


@dataclass(frozen=True)
class CutSettings:
    """The settings that decide which of the scored records are called virus.

    A number replaces that of the preset.
    """

    preset: Preset = setting(
        "default",
        "calls.preset",
        "Which records are called virus: relaxed calls more of them, conservative fewer.",
        choices=PRESET_CHOICES,
    )
    min_score: float | None = setting(
        None,
        "calls.min_score",
        "Call a record virus where its virus score, -1 to 1, is above this.",
        f"{DEFAULT_CUTS.min_score:g}, or that of the preset",
    )
    max_fdr: float | None = setting(
        None,
        "calls.max_fdr",
        "Call a record virus where its fdr, 0 to 1, is at most this.",
        "any, or that of the preset",
    )
    min_length: int | None = setting(
        None,
        "calls.min_length",
        "Call a record virus where it has at least so many bases.",
        "any length",
    )

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            UsageError: one of them is out of its range (exit 64).
        """
        if self.min_score is not None and not -1 <= self.min_score <= 1:
            raise UsageError(f"the smallest score must be from -1 to 1, not {self.min_score:g}")
        if self.max_fdr is not None and not 0 <= self.max_fdr <= 1:
            raise UsageError(f"the largest fdr must be from 0 to 1, not {self.max_fdr:g}")

    def cuts(self, *, calibrated: bool) -> Cuts:
        """Return the cuts for the scores of a classifier, ``calibrated`` or not.

        A preset has no rate where none can be estimated.

        Raises:
            UsageError: a rate was asked for, and the classifier is not calibrated (exit 64).
        """
        preset = PRESETS[self.preset]
        max_fdr = preset.max_fdr if calibrated else DEFAULT_CUTS.max_fdr
        if self.max_fdr is not None:
            if not calibrated:
                raise UsageError(
                    "--max-fdr needs a calibrated classifier, and this one is not: there are no "
                    "false discovery rates; use --min-score, or calibrate it: virnucpro "
                    "evaluate --calibrate"
                )
            max_fdr = self.max_fdr
        return Cuts(
            preset.min_score if self.min_score is None else self.min_score,
            max_fdr,
            self.min_length or preset.min_length,
        )


@dataclass(frozen=True)
class MachineSettings:
    """The settings that do not decide the results."""

    device: str = setting(
        "auto",
        "device.default",
        "Device: auto, cpu, cuda, cuda:0,2, a number or the UUID of a GPU.",
    )
    gpus: str | None = setting(
        None, "device.gpus", "GPUs to use, such as 0,1,2, or their UUIDs.", "all visible GPUs"
    )
    max_workers: int | None = setting(
        None, "parallelization.num_workers", "Largest number of GPUs.", "all"
    )
    cpu_workers: int | None = setting(
        None,
        "device.cpu_workers",
        "Number of processes that compute on the CPU.",
        "the main process computes",
    )
    fallback_to_cpu: bool = setting(
        True, "device.fallback_to_cpu", "Whether auto may use the CPU if there is no GPU."
    )
    # Batch budgets in the unit of the encoder's family.
    protein_batch: int | None = setting(
        None, "features.esm.toks_per_batch", "Tokens per ESM-2 batch.", MEASURED
    )
    nucleotide_batch: int | None = setting(
        None, "features.dnabert.batch_size", "Sequences per DNABERT-S batch.", MEASURED
    )
    classifier_rows: int = setting(
        256, "prediction.batch_size", "Rows that the classifier reads at a time."
    )
    tokenizer_threads: int = setting(
        4, "prediction.num_workers", "Host threads per worker that make tokens."
    )
    threads: int | None = setting(
        None, "parallelization.threads", "Host threads in total.", "all cores"
    )
    compile: CompileMode = setting(
        "auto",
        "device.compile",
        "Compile the models for a GPU; auto does so if there is enough to embed.",
        choices=COMPILE_CHOICES,
    )
    cluster: str = setting(
        NO_CLUSTER,
        "cluster.address",
        "Ray cluster whose nodes embed for predict: auto for the one that this node belongs to, "
        "HOST:PORT or ray://HOST:PORT. --cpu-workers is then the number for each node.",
    )
    no_features: bool = setting(
        False,
        "files.no_features",
        "Remove the features of a part of the frames before the next part is embedded.",
    )
    remove_intermediate: bool = setting(
        True, "files.auto_cleanup", "Whether chunks, frames and features are removed after success."
    )

    def __post_init__(self) -> None:
        """Check the counts, and that features are not to be kept and removed.

        Raises:
            UsageError: a count is below 1, or that is asked for (exit 64).
        """
        if self.no_features and not self.remove_intermediate:
            raise UsageError(
                "--no-features removes features, and --keep-intermediate keeps them: leave one of "
                "them out"
            )
        for name, value in vars(self).items():
            if isinstance(value, int) and value < 1 and not isinstance(value, bool):
                raise UsageError(f"{name.replace('_', ' ')} must be 1 or more, not {value}")


@dataclass(frozen=True)
class DisplaySettings:
    """The settings that say what is shown and logged.

    Attributes:
        progress: whether a dashboard may be shown on a terminal.
        log_file: file of the log; None is ``.checkpoints/runs/STEM/state/run.log``.
    """

    level: str = setting(
        "INFO",
        "logging.default_level",
        "What is shown: DEBUG is --verbose, WARNING is --quiet.",
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
    )
    progress: bool = True
    log_file: Path | None = None
    auto_log: bool = setting(
        True,
        "logging.auto_log_file",
        "Whether a log is written to .checkpoints/runs/STEM/state/run.log.",
    )

    @property
    def quiet(self) -> bool:
        """Whether only warnings and errors are shown."""
        return self.level in ("WARNING", "ERROR")
