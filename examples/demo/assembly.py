"""Print the assembly of ``virnucpro demo``, made of genomes that ``lite`` was not trained with.

    python examples/demo/assembly.py GENOMES > virnucpro/data/example.fa

GENOMES holds the folders of genomes that ``examples/lite/genomes.tsv`` names, ``phages_new`` and
``satellites``. ``pieces.tsv`` has a row per piece: what it is, its file, its record there, its
first and last base in the INSDC record, and its name. Records of ``genomes*`` are in the part
``test`` of that data set, those of ``phages_new`` in two groups that no model, profile or threshold
was made with. All are INSDC records but the satellites, which are contigs of the example data of
inStrain (MIT licence).
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from virnucpro.io.records import Records


def main(genomes: Path) -> None:
    """Print the pieces as FASTA, and two records that cannot be scored."""
    files: dict[str, dict[str, str]] = {}
    with Path(__file__).with_name("pieces.tsv").open(encoding="utf-8") as lines:
        pieces = list(csv.DictReader(lines, delimiter="\t"))
    for piece in pieces:
        file, (accession, _, part) = piece["file"], piece["record"].partition(":")
        if file not in files:
            records = Records(genomes / file)
            files[file] = {record.id.rpartition("|")[2]: record.sequence for record in records}
        sequence = files[file][piece["record"]]
        if piece["start"]:
            first = int(part.partition("-")[0] or 1)  # of the bases that the file has
            start, end = int(piece["start"]), int(piece["end"])
            sequence = sequence[start - first : end - first + 1]
            accession += f":{start}-{end}"
        print(f">{piece['label']}_{accession} {piece['name']}")
        print(*(sequence[i : i + 80] for i in range(0, len(sequence), 80)), sep="\n")
    print(f">unknown_bases\n{'N' * 600}\n>two_bases\nAC")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
