"""Make the records that `virnucpro models calibrate` scores, virnucpro/data/calibration.*.

    python examples/lite/calibration.py DATASET COLLECTIONS virnucpro/data

DATASET was made by `virnucpro train prepare` (train.sh); its validation part is taken. COLLECTIONS
is the folder of genomes_hosts and phages_new, which are in no training. Of every group some genomes
are cut into contigs with lengths as those of assemblies. Left out are contigs of hosts with
hallmark genes, or in regions of mask.tsv, and contigs of viruses with several host markers.

The column `half` says `fit` or `measure`. Others of validation are `only measured`: the last steps
of the training of lite have read them, so they look less viral to it than unknown hosts.
"""

from __future__ import annotations

import argparse
import lzma
from collections import defaultdict
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from virnucpro.io.records import Records
from virnucpro.stages.genes import GeneFinder, count_functions

BASES = {False: 450_000, True: 100_000}  # of a group, of others and of viruses
FEWER = 60_000  # of others that are only measured
MORE = {"gut MAGs": 2, "other bacteria": 2, "Acinetobacter phages": 3, "SPO1-like phages": 3}
MORE |= {"ssDNA viruses": 3, "gut phages": 3, "crAss-like phages": 3}
GROUPS = {
    "genomes_hosts/nonviral/endosymbionts.fa.gz": "endosymbionts",
    "genomes_hosts/nonviral/eukaryotes_misc.fa.gz": "eukaryotes of the sea, and Arabidopsis",
    "genomes_hosts/nonviral/gene_clusters.fa.gz": "gene clusters of actinomycetes and fungi",
    "genomes_hosts/nonviral/gut_mags_misc.fa.gz": "gut MAGs",
    "genomes_hosts/nonviral/gut_ruminococcus_mags.fa.gz": "Ruminococcus MAGs",
    "genomes_hosts/nonviral/ice_bradyrhizobium.fa.gz": "integrative elements",
    "genomes_hosts/nonviral/integrons_bacterial.fa.gz": "integrons",
    "genomes_hosts/nonviral/other_bacteria.fa.gz": "other bacteria",
    "genomes_hosts/nonviral/te_drosophila.fa.gz": "transposons of Drosophila",
    "genomes_hosts/nonviral/te_plant.fa.gz": "transposons of plants",
    "genomes_hosts/nonviral/transposons_bacterial.fa.gz": "bacterial transposons",
    "genomes_hosts/viral/phages_crass.fa.gz": "crAss-like phages",
    "genomes_hosts/viral/phages_gut_complete.fa.gz": "gut phages",
    "genomes_hosts/viral/ssdna_viruses.fa.gz": "ssDNA viruses",
    "phages_new/viral/acinetobacter_phages.fa.xz": "Acinetobacter phages",
    "phages_new/viral/spo1like_phages.fa.xz": "SPO1-like phages",
}
MEDIAN, SPREAD, SHORTEST, LONGEST = 1500, 1.2, 500, 50_000  # bases; natural logarithms
SEED = 1


class Piece(NamedTuple):
    """A record of a known genome, or what is left of it between masked regions."""

    virus: bool
    group: str
    genome: str
    source: str
    sequence: str


def pieces(dataset: Path, collections: Path) -> list[Piece]:
    """Return all records that contigs can be cut from."""
    mask = pd.read_csv(Path(__file__).with_name("mask.tsv"), sep="\t")
    masked = {name: own[["start", "end"]].to_numpy() for name, own in mask.groupby("record")}
    table = pd.read_csv(dataset / "genomes.tsv", sep="\t", quoting=3, keep_default_na=False)
    known = table[table.part == "validation"].set_index("record")
    found = []
    for record in Records(dataset / "validation_records.fa"):
        row, begin = known.loc[record.id], 0
        for start, end in [*masked.get(record.id, ()), (len(record.sequence) + 1, 0)]:
            sequence = record.sequence[begin : start - 1]
            source = f"{row.source} {record.id}:{begin + 1}"
            found.append(Piece(row.label == "virus", row.group, row.genome, source, sequence))
            begin = end
    for file, group in GROUPS.items():
        listed = collections / file.split("/")[0] / "records.tsv.gz"
        rows = pd.read_csv(listed, sep="\t", quoting=3, keep_default_na=False)
        rows = rows.reindex(columns=["file", "id", "genus"], fill_value="")
        genus = dict(zip(rows.file + " " + rows.id, rows.genus, strict=True))
        for record in Records(collections / file):
            genome = genus.get(f"{file.partition('/')[2]} {record.id}") or record.id.split(":")[0]
            source = f"{file} {record.id}"
            found.append(Piece("/viral/" in file, group, genome, source, record.sequence))
    return found


def contigs_of(group: list[Piece], most: int, chance: np.random.Generator) -> list[Piece]:
    """Cut contigs from the genomes of a group, and take up to ``most`` bases, genomes by turns."""
    found: dict[str, list[Piece]] = defaultdict(list)
    for piece in group:
        begin = 0
        while len(piece.sequence) - begin >= SHORTEST:
            length = int(np.exp(chance.normal(np.log(MEDIAN), SPREAD)))
            if not SHORTEST <= length <= LONGEST:
                continue
            sequence = piece.sequence[begin : begin + length].upper()
            if len(sequence) >= SHORTEST and sequence.count("N") < len(sequence) / 10:
                place = f"{piece.source}+{begin}"
                found[piece.genome].append(piece._replace(sequence=sequence, source=place))
            begin += length
    contigs: list[Piece] = []
    mixed = [[own[i] for i in chance.permutation(len(own))] for own in found.values()]
    mixed = [mixed[i] for i in chance.permutation(len(mixed))]
    for turn in zip_longest(*mixed):
        contigs += [contig for contig in turn if contig]
    ends = np.cumsum([len(contig.sequence) for contig in contigs])
    return contigs[: int((ends < most).sum()) + 1]


def with_halves(contigs: list[Piece]) -> list[tuple[Piece, str]]:
    """Return contigs with ``fit`` or ``measure``: whole genomes, about as many bases of each."""
    bases: dict[str, int] = defaultdict(int)
    for contig in contigs:
        bases[contig.genome] += len(contig.sequence)
    if len(bases) == 1:  # one genome: its contigs are far apart
        return [(contig, ("fit", "measure")[i % 2]) for i, contig in enumerate(contigs)]
    halves, total = dict[str, str](), {"fit": 0, "measure": 0}
    for genome in sorted(bases, key=lambda name: (-bases[name], name)):
        half = min(total, key=lambda name: total[name])
        halves[genome], total[half] = half, total[half] + bases[genome]
    return [(contig, halves[contig.genome]) for contig in contigs]


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("dataset", "collections", "out"):
        parser.add_argument(name, type=Path)
    args = parser.parse_args()
    groups: dict[tuple[bool, str], list[Piece]] = defaultdict(list)
    for piece in pieces(args.dataset, args.collections):
        groups[piece.virus, piece.group].append(piece)
    chance, finder = np.random.default_rng(SEED), GeneFinder()
    rows: list[tuple[str, ...]] = []
    sequences = []
    for (virus, name), group in sorted(groups.items()):
        is_read = not virus and name not in GROUPS.values()
        most = FEWER if is_read else BASES[virus] * MORE.get(name, 1)
        contigs = contigs_of(group, most, chance)
        counts = [count_functions(g.hits) for g in finder.find([c.sequence for c in contigs])]
        kept = [
            contig
            for contig, (hallmarks, markers) in zip(contigs, counts, strict=True)
            if (markers < 2 + hallmarks if virus else not hallmarks)
        ]
        print(name, len(contigs), len(kept), sum(len(c.sequence) for c in kept), flush=True)
        for contig, half in with_halves(kept):
            record = f"record_{len(rows) + 1}"
            label = "virus" if virus else "others"
            part = "only measured" if is_read else half
            rows.append((record, label, name, contig.genome, contig.source, part))
            sequences.append(f">{record}\n{contig.sequence}\n")
    columns = ["record", "label", "group", "genome", "source", "half"]
    table = pd.DataFrame(rows, columns=columns)
    table.to_csv(args.out / "calibration.tsv", sep="\t", index=False, lineterminator="\n")
    packed = lzma.compress("".join(sequences).encode(), preset=9 | lzma.PRESET_EXTREME)
    (args.out / "calibration.fa.xz").write_bytes(packed)


if __name__ == "__main__":
    main()
