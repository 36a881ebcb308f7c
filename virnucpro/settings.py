"""Settings of a command, each declared once.

From a declaration come the option of the command line, the key of the configuration file, the
keyword of :func:`virnucpro.predict`, and the line in ``docs/usage.md``. The group of a setting says
whether results depend on it. :class:`AnalysisSettings` do: they are part of the state of a run,
and a run that was begun with others is not continued. :class:`Thresholds` decide which records
are classified as viral, and whether these get genes: they may change at any time, and only the
tables are written again.
:class:`MachineSettings` decide no result: a run may be continued with other GPUs, batch sizes and
threads. :class:`DisplaySettings` say what is shown and logged.
The configuration file replaces defaults, and the command line replaces both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from msgspec import Meta

from virnucpro.errors import UsageError
from virnucpro.precision import PRECISION_CHOICES

MOST = 2**31 - 1  # torch and the system take no larger count
Count = Annotated[int, Meta(ge=1, le=MOST)]
Threads = Annotated[int, Meta(ge=1, le=4096)]  # more of them end the process or the machine
Bases = Annotated[int, Meta(ge=3, le=MOST)]  # a chunk has at least a codon
Share = Annotated[float, Meta(ge=0, le=1)]
VirusScore = Annotated[float, Meta(ge=-1, le=1)]
CompileMode = Literal["auto", "always", "never"]
ModelType = Literal["300", "500", "lite", "custom", "toy"]
DuplicateIds = Literal["error", "rename"]
NO_CLUSTER = "none"
_DATA = Path(__file__).parent / "data"
LITE_CLASSIFIER = _DATA / "lite_classifier.safetensors"
TOY_CLASSIFIER = _DATA / "toy_classifier.safetensors"  # for tests; its scores mean nothing

SHORTEST_WHOLE = 30  # bases; a shorter chunk that is read whole is not scored
MEASURED = "measured on the device"


def offered(words: Iterable[str]) -> tuple[str, ...]:
    """Return the words that texts for people list: toy models are for tests of the program."""
    return tuple(word for word in words if not word.startswith("toy"))


@dataclass(frozen=True)
class Setting:
    """A declared setting; its annotation decides which values it accepts."""

    key: str  # of the configuration file, with the groups it stands in, separated by dots
    # The names of the option, then the word for its value in help texts where the type does not
    # say it; empty where there is no option.
    options: str
    description: str  # a sentence for people
    unset: str = ""  # what None means
    choices: tuple[str, ...] = ()  # the accepted words, where not all are
    name: str = ""  # unique among all settings; the keyword of ``virnucpro.predict``
    group: type = object  # the class that it is declared in, which says what depends on it
    type: Any = str  # the annotation without None, which ``msgspec`` checks values against
    default: Any = None  # where it is None, the key also accepts null and ``auto``


def setting(default: Any, *said: Any, **more: Any) -> Any:
    """Declare a setting; its group, and the class :class:`Setting`, say what the words mean."""
    return field(default=default, metadata={"setting": Setting(*said, **more)})


class ShippedModels(NamedTuple):
    """A model type whose models come with this package; its encoders have the same name.

    The ``notice`` is shown above the results, and written to ``STEM_run.json``. The classifier
    scores chunks of ``chunk_lengths``, or of any length where there are none.
    """

    classifier: Path
    notice: str
    chunk_lengths: tuple[int, ...] = ()


SHIPPED_MODELS = {
    "lite": ShippedModels(
        LITE_CLASSIFIER,
        "model type lite: a small model for a first look; the released ones are larger",
        (150, 300, 500),
    ),
    "toy": ShippedModels(
        TOY_CLASSIFIER,
        "model type toy: these scores mean nothing; they only show that the program works",
    ),
}


def trained(length: int, lengths: Iterable[int]) -> int:
    """Return the one of the chunk lengths of a model that stands for ``length``, or ``length``.

    Chunks may have one base more: many sequencers give reads of 151 or 301 bases, which would be
    cut into two chunks of nearly the same bases.
    """
    return next((each for each in lengths if each + 1 == length), length)


@dataclass(frozen=True)
class AnalysisSettings:
    """The settings that decide the results."""

    model_type: ModelType = setting(
        "500",
        "prediction.default_model_type",
        "-m --model-type",
        "Models to use. 300 and 500 are the released ones, for chunks of that many bases; lite is "
        "less accurate, needs no GPU and no download, and takes chunks of 150, 300 or 500 bases; "
        "custom is your own.",
    )
    classifier: str | None = setting(
        None,
        "prediction.model_path",
        "-p --model-path FILE",
        "Classifier file of model type custom.",
    )
    chunk_length: Bases | None = setting(
        None,
        "prediction.expected_length",
        "-e --expected-length",
        "Bases per chunk.",
        "500; of type 300: 300; of lite: by the lengths of the records; custom needs it",
    )
    sequences_per_file: Count | None = setting(
        None, "prediction.sequences_per_file", "", "Most frames per split file.", "by their number"
    )
    nucleotide_model: str = setting(
        "zhihan1996/DNABERT-S",
        "features.dnabert.model_name",
        "",
        "Nucleotide encoder: name on the Hugging Face hub, or folder.",
    )
    protein_model: str = setting(
        "esm2_t36_3B_UR50D",
        "features.esm.model_name",
        "",
        "Protein encoder: name of an ESM-2 model, name on the hub, folder or file.",
    )
    truncation: Count = setting(
        1024, "features.esm.truncation_seq_length", "", "Residues per protein to embed."
    )
    precision: str = setting(
        "auto",
        "device.precision",
        "--precision",
        "Arithmetic of the encoders; auto is bf16 if every GPU has it, and fp32 on the CPU.",
        choices=PRECISION_CHOICES,
    )
    duplicate_ids: DuplicateIds = setting(
        "error",
        "prediction.duplicate_ids",
        "--duplicate-ids",
        "Refuse record ids that occur twice, or rename them.",
    )
    dedup: bool | None = setting(
        None,
        "prediction.dedup",
        "--dedup/--no-dedup",
        "Embed identical sequences of a run once.",
        "true; a run that has begun goes on as it began",
    )
    classifier_300: str = setting(
        "300_model.pth", "prediction.models.300", "", "Classifier file of model type 300."
    )
    classifier_500: str = setting(
        "500_model.pth", "prediction.models.500", "", "Classifier file of model type 500."
    )

    @property
    def lengths_to_choose(self) -> tuple[int, ...]:
        """The chunk lengths among which the records decide; none where one is asked for."""
        if self.model_type not in SHIPPED_MODELS or self.chunk_length or self.classifier:
            return ()
        return SHIPPED_MODELS[self.model_type].chunk_lengths

    def resolved(self) -> AnalysisSettings:
        """Return the settings with what follows from the model type filled in.

        Raises:
            UsageError: ``custom`` has no classifier or no chunk length, or ``lite`` another one.
        """
        if shipped := SHIPPED_MODELS.get(self.model_type):
            lengths, length = shipped.chunk_lengths, self.chunk_length or 500
            if lengths and trained(length, lengths) not in lengths and self.classifier is None:
                raise UsageError(
                    f"--expected-length {length}: model type {self.model_type} reads "
                    f"{', '.join(map(str, lengths[:-1]))} or {lengths[-1]} bases per chunk"
                )
            return replace(
                self,
                classifier=self.classifier or str(shipped.classifier),
                chunk_length=length,
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


# The settings that say which models to use: the identity of a run has the digests of these instead.
NAMES_OF_MODELS = (
    "model_type",
    "classifier",
    "nucleotide_model",
    "protein_model",
    "classifier_300",
    "classifier_500",
)
NONVIRUS_BELOW = -0.3  # a virus score
MOST_WRONG = 0.9  # the highest error rate of a virus
UNLIKELY = 0.1  # a record with at most this error rate may be viral with a lower score
# Bases of a record on average; a sample with so many may be one genome, whose records err together.
LONG_RECORDS = 20_000
DOUBTFUL = 0.1  # a false discovery rate above this is not of a sure call, and people are told


@dataclass(frozen=True)
class Thresholds:
    """The settings that decide which scored records are classified as viral, and their genes."""

    min_score: VirusScore = setting(
        0.3,
        "calls.min_score",
        "--min-score",
        "Classify a record as viral where its virus score, -1 to 1, is above this. The default "
        "also looks at error rates: one above 0.9 is too high, and from a score of -0.3 on one of "
        "at most 0.1 is enough, if genes support it.",
    )
    max_fdr: Share = setting(
        1.0,
        "calls.max_fdr",
        "--max-fdr",
        "Classify a record or region as viral if its fdr, 0 to 1, is at most this, or not known.",
    )
    min_length: Count = setting(
        1,
        "calls.min_length",
        "--min-length",
        "Classify a record as viral where it has at least so many bases.",
    )
    genes: bool = setting(
        True,
        "calls.genes",
        "--genes/--no-genes",
        "Predict genes of viral records and regions, and find hallmarks of viruses; not of reads.",
    )

    @property
    def takes_undecided(self) -> bool:
        """Whether the error rate of a record counts, too."""
        return self.min_score == Thresholds.min_score

    def described(self, *, calibrated: bool) -> str:
        """Return what a record must have to be classified as viral, in words.

        Without ``calibrated`` scores, no error rates are known.
        """
        words = f"virus score above {self.min_score:g}"
        if calibrated and self.takes_undecided:
            words += (
                f" and an error rate of at most {MOST_WRONG:g}, or from {NONVIRUS_BELOW:g} on with "
                f"one of at most {UNLIKELY:g} and support from genes"
            )
        words += f", and fdr at most {self.max_fdr:g}" if self.max_fdr < 1 else ""
        return words + (f", and at least {self.min_length:,} bases" if self.min_length > 1 else "")

    def options(self) -> str:
        """Return the options of the command line that are not the defaults, separated by blanks."""
        own, usual = asdict(self), asdict(Thresholds())
        names = [name for name in own if name != "genes" and own[name] != usual[name]]
        words = [f"--{name.replace('_', '-')} {own[name]}" for name in names]
        return " ".join(words + ["--no-genes"] * (not self.genes))

    def check(self, *, calibrated: bool) -> None:
        """Check that there are rates where one is asked for; a classifier that lacks them has none.

        Raises:
            UsageError: the classifier is not calibrated (exit 64).
        """
        if self.max_fdr < 1 and not calibrated:
            raise UsageError(
                "--max-fdr needs a calibrated classifier, and this one is not: there are no "
                "false discovery rates; use --min-score, or calibrate it: virnucpro "
                "models calibrate"
            )


DEFAULT_THRESHOLDS = Thresholds()


@dataclass(frozen=True)
class MachineSettings:
    """The settings that do not decide the results."""

    device: str = setting(
        "auto",
        "device.default",
        "-d --device D",
        "Device: auto, cpu, cuda, cuda:0,2, a number or the UUID of a GPU.",
    )
    gpus: str | None = setting(
        None,
        "device.gpus",
        "--gpus LIST",
        "GPUs to use, such as 0,1,2, or their UUIDs.",
        "all visible GPUs",
    )
    max_workers: Count | None = setting(
        None, "parallelization.num_workers", "", "Largest number of GPUs.", "all"
    )
    cpu_workers: Threads | None = setting(
        None,
        "device.cpu_workers",
        "--cpu-workers",
        "Number of processes that compute on the CPU.",
        "the main process computes",
    )
    fallback_to_cpu: bool = setting(
        True, "device.fallback_to_cpu", "", "Whether auto may use the CPU if there is no GPU."
    )
    # Batch budgets in the unit of the encoder's family.
    protein_batch: Count | None = setting(
        None, "features.esm.toks_per_batch", "--esm-batch-size", "Tokens per ESM-2 batch.", MEASURED
    )
    nucleotide_batch: Count | None = setting(
        None,
        "features.dnabert.batch_size",
        "--dnabert-batch-size",
        "Sequences per DNABERT-S batch.",
        MEASURED,
    )
    tokenizer_threads: Threads = setting(
        4, "prediction.num_workers", "-w --num-workers", "Host threads per worker that make tokens."
    )
    threads: Threads | None = setting(
        None, "parallelization.threads", "-t --threads", "Host threads in total.", "all cores"
    )
    compile: CompileMode = setting(
        "auto",
        "device.compile",
        "--compile",
        "Compile the models for a GPU; auto does so if there is enough to embed.",
    )
    cluster: str = setting(
        NO_CLUSTER,
        "cluster.address",
        "--cluster ADDRESS",
        "Ray cluster whose nodes embed for predict: auto for the one that this node belongs to, "
        "HOST:PORT or ray://HOST:PORT. --cpu-workers is then the number for each node.",
    )
    remove_intermediate: bool = setting(
        True,
        "files.auto_cleanup",
        "",
        "Whether chunks, frames and features are removed after success.",
    )


@dataclass(frozen=True)
class DisplaySettings:
    """The settings that say what is shown and logged.

    Attributes:
        progress: whether a dashboard may be shown on a terminal.
        log_file: file of the log; None is ``.checkpoints/runs/STEM/state/run.log``.
    """

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = setting(
        "INFO",
        "logging.default_level",
        "",
        "What is shown: DEBUG is --verbose, WARNING is --quiet.",
    )
    progress: bool = True
    log_file: Path | None = None
    auto_log: bool = setting(
        True,
        "logging.auto_log_file",
        "",
        "Whether a log is written to .checkpoints/runs/STEM/state/run.log.",
    )

    @property
    def quiet(self) -> bool:
        """Whether only warnings and errors are shown."""
        return self.level in ("WARNING", "ERROR")


def _declared() -> Iterator[Setting]:
    for group in (AnalysisSettings, Thresholds, MachineSettings, DisplaySettings):
        hints = get_type_hints(group, include_extras=True)
        for entry in fields(group):
            if said := entry.metadata.get("setting"):
                hint = hints[entry.name]
                if get_origin(hint) not in (None, Annotated, Literal):  # a value, or None
                    hint = get_args(hint)[0]
                choices = get_args(hint) if get_origin(hint) is Literal else said.choices
                hint = Literal[choices] if choices else hint
                own = {"name": entry.name, "group": group, "type": hint, "default": entry.default}
                yield replace(said, choices=choices, **own)


SETTINGS = {declared.name: declared for declared in _declared()}
