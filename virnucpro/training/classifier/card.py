"""The model card: what a classifier was trained on, how, and how good it is. Facts only."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from virnucpro import __version__
from virnucpro.contracts import Json
from virnucpro.metrics.classification import metric_text
from virnucpro.training.classifier.recipe import Recipe
from virnucpro.training.data.dataset import PARTS, Dataset


@dataclass(frozen=True)
class Facts:
    """What is known of a finished classifier.

    Attributes:
        digest: SHA-256 (hex) of the data set's ``dataset.json``.
        models: ``nucleotide`` and ``protein`` encoder, as in the record of embedding.
        devices: what the classifier was trained on, one name a process.
        precision: arithmetic of the encoders.
        temperature: what logits are divided by.
        best_epoch: the epoch whose weights were kept, of ``epochs``.
        left_out: frames without features, by part.
        figures: of :func:`virnucpro.training.classifier.assessment.assess`, by part.
    """

    dataset: Dataset
    digest: str
    recipe: Recipe
    command: str
    devices: Sequence[str]
    models: Mapping[str, Mapping[str, Json]]
    precision: str
    width: int
    temperature: float
    best_epoch: int
    epochs: int
    left_out: Mapping[str, int]
    figures: Mapping[str, Mapping[str, float | None]]


def card_text(facts: Facts, name: str) -> str:
    """The card of the classifier file ``name``, in Markdown."""
    sections = [
        [f"# {_cell(name)}", "", *_purpose(facts, name)],
        ["## Training data", "", *_data(facts)],
        ["## Training", "", *_training(facts)],
        ["## How good it is", "", *_figures(facts)],
        ["## Limits", "", *_limits(facts)],
    ]
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def _purpose(facts: Facts, name: str) -> list[str]:
    lengths = facts.dataset.lengths()
    nucleotide, protein = (facts.models[role] for role in ("nucleotide", "protein"))
    return [
        "Scores open reading frames of DNA as viral or not, from two embeddings of each frame.",
        "",
        f"- Input: the {nucleotide['dim']} numbers of {_cell(nucleotide['name'])} "
        f"({_cell(nucleotide['family'])}), then the {protein['dim']} of {_cell(protein['name'])} "
        f"({_cell(protein['family'])}); {facts.width} in all.",
        f"- Chunk length: {_listed(lengths)} bases.",
        f"- Use: `virnucpro predict INPUT -m custom -p {_cell(name)} -e {lengths[0]}`, with a "
        "configuration that names these encoders.",
        f"- Made by virnucpro {__version__}.",
    ]


def _data(facts: Facts) -> list[str]:
    said = facts.dataset.description()
    lines = ["Sources:", ""]
    for source in said.get("sources", ()):
        file, digest = _cell(Path(str(source["file"])).name), str(source["sha256"])[:16]
        lines.append(f"- {file} (sha256 {digest}...)")
    genomes: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    frames: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for part in PARTS:
        for row in facts.dataset.frames(part) if facts.dataset.shards(part) else ():
            genomes[row.label, row.group][part].add(row.genome)
            frames[row.label, row.group][part] += 1
    cells = [
        (
            label,
            group,
            *(_amount(len(genomes[label, group][p]), frames[label, group][p]) for p in PARTS),
        )
        for label, group in sorted(frames)
    ]
    totals = (
        _amount(
            sum(len(by_part[part]) for by_part in genomes.values()),
            sum(by_part[part] for by_part in frames.values()),
        )
        for part in PARTS
    )
    lines += ["", "Genomes (open frames), by part; no genome is in two parts:", ""]
    lines += _table(("class", "group", *PARTS), [*cells, ("all", "", *totals)])
    if lost := sum(facts.left_out.values()):
        lines += ["", f"{lost:,} of these frames could not be embedded and were left out."]
    lines += ["", f"Data set (sha256 of dataset.json): {facts.digest}"]
    return lines


def _amount(genomes: int, frames: int) -> str:
    return f"{genomes:,} ({frames:,})" if frames else "-"


def _training(facts: Facts) -> list[str]:
    recipe = asdict(facts.recipe)
    rows = [(name.replace("_", " "), str(value)) for name, value in recipe.items()]
    return [
        f"Best of {facts.epochs} epochs by validation loss: epoch {facts.best_epoch}. "
        f"Trained on {_machine(facts.devices)}. The encoders computed in {facts.precision}.",
        "",
        f"    {facts.command}",
        "",
        *_table(("setting", "value"), rows),
    ]


def _machine(devices: Sequence[str]) -> str:
    counts = Counter(devices)
    text = " and ".join(f"{n} x {_cell(name)}" for name, n in counts.items())
    return f"{text} ({len(devices)} process{'es' if len(devices) > 1 else ''})"


def _figures(facts: Facts) -> list[str]:
    lines = [
        "Figures are of single frames, called virus where that is the likelier class.",
        "",
    ]
    parts = list(facts.figures)
    rows = [
        (figure.replace("_", " "), *(_number(facts.figures[part][figure]) for part in parts))
        for figure in next(iter(facts.figures.values()))
    ]
    lines += _table(("", *parts), rows)
    lines += [
        "",
        f"Scores are calibrated: logits are divided by a temperature of {facts.temperature:.4g}, "
        "fitted on the validation part (Guo et al. 2017).",
        "The validation part also chose the epoch, so its figures are somewhat flattering.",
    ]
    if "test" in parts:
        lines.append("The test part was used for nothing but this table.")
    else:
        lines.append("There was no test part.")
    return lines


def _limits(facts: Facts) -> list[str]:
    lengths = facts.dataset.lengths()
    return [
        f"- Nothing is known about chunks of other lengths than {_listed(lengths)} bases.",
        "- Only chunks with an open reading frame get a score.",
        "- Groups of organisms that are not in the table above were not seen in training.",
        "- Scores are calibrated for the share of viral frames in the validation part; a sample "
        "with another share shifts them.",
        "- `virnucpro predict` calls a record by all of its chunks: these figures are not those "
        "of records.",
    ]


def _listed(lengths: Sequence[int]) -> str:
    return " or ".join(map(str, lengths))


def _number(value: float | None) -> str:
    return f"{value:,}" if isinstance(value, int) else metric_text(value)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines]


def _cell(text: Json) -> str:
    """Names that users gave, without a meaning in Markdown."""
    plain = " ".join(str(text).split())
    return "".join(f"\\{c}" if c in "\\`*[]<>|#" else c for c in plain)
