"""Genes of viruses and of regions by pyrodigal-gv, and which of them are hallmarks of viruses.

Pyrodigal-gv is Prodigal (Hyatt et al. 2010, BMC Bioinformatics 11:119) as a library (Larralde 2022,
J Open Source Softw 7:4296), with more models of viruses (Camargo et al. 2024, Nat Biotechnol
42:1303). Their proteins are compared with profiles of proteins that nearly only viruses have, such
as the large subunit of the terminase, by HMMER 3 (Eddy 2011, PLoS Comput Biol 7:e1002195) as a
library (Larralde and Zeller 2023, Bioinformatics 39:btad214).
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np

from virnucpro.columns import gff3_escaped
from virnucpro.store.disk import OutputWriter

# What examples/hallmarks/build.sh has made: profiles of HMMER 3 (ASCII), each with the function of
# its proteins as its description, and with the least score of a hit as its gathering cutoff.
HALLMARKS = Path(__file__).parents[1] / "data/hallmarks.hmm.gz"
MOST_RESIDUES = 100_000  # of a protein that HMMER compares


class Searched(NamedTuple):
    """A record, or a region of it, whose genes are asked for."""

    record: str  # its name in results
    sequence: str  # of the whole record
    region: tuple[int, int] | None = None  # its first base, 0-based, and the one after the last


class Genes(NamedTuple):
    """The genes of a record or of a region."""

    gff3: bytes  # lines without those of the record, compressed with zlib, as the next field is
    proteins: bytes
    number: int  # of genes
    density: float  # the share of the bases that are in genes
    hallmarks: list[str]  # the functions of those genes that are hallmarks, in their order


FoundGenes = dict[tuple[str, tuple[int, int] | None], Genes]
"""Genes by the first and the last field of what was :class:`Searched`."""


class GeneFinder:
    """Finds genes with the models of pyrodigal-gv, each with its own genetic code."""

    def __init__(self) -> None:
        """Read all models and profiles."""
        from pyhmmer.plan7 import Background, HMMFile  # many runs have no virus
        from pyrodigal_gv import ViralGeneFinder

        self._finder = ViralGeneFinder(meta=True, mask=True)  # no genes across gaps
        with gzip.open(HALLMARKS) as stream, HMMFile(cast(BinaryIO, stream)) as file:
            hmms = list(file)
        self._alphabet = hmms[0].alphabet
        background = Background(self._alphabet)
        # As the search wants them; to make them takes longer than to search a few proteins.
        self._profiles = [hmm.to_profile(background).to_optimized() for hmm in hmms]

    def find(self, parts: Sequence[Searched]) -> list[Genes]:
        """Return the genes of each part; they do not depend on the other parts."""
        import torch  # is there, for the kinds of these records, and knows how many threads

        # Python's lock is free meanwhile. A pool of multiprocessing would need /dev/shm.
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            found = list(pool.map(lambda part: self._finder.find_genes(_bases(part)), parts))
            functions = iter(self._functions([g for genes in found for g in genes], pool))
            own = [[next(functions) for _ in genes] for genes in found]
            return list(pool.map(_written, parts, found, own))

    def _functions(self, genes: Sequence[Any], pool: ThreadPoolExecutor) -> list[str | None]:
        """Return the function of each gene that is a hallmark: that of the highest score."""
        from pyhmmer.easel import DigitalSequenceBlock, TextSequence
        from pyhmmer.plan7 import Pipeline, TopHits

        texts = [gene.translate(include_stop=False) for gene in genes]
        block = DigitalSequenceBlock(
            self._alphabet,
            (
                TextSequence(name=str(number), sequence=text).digitize(self._alphabet)
                for number, text in enumerate(texts)
                if len(text) <= MOST_RESIDUES
            ),
        )

        def search(profile: Any) -> TopHits[Any]:
            return Pipeline(self._alphabet, bit_cutoffs="gathering").search_hmm(profile, block)

        best: list[tuple[float, str | None]] = [(0.0, None)] * len(genes)
        # A profile is for one thread at a time.
        for profile, hits in zip(self._profiles, pool.map(search, self._profiles), strict=True):
            for hit in hits.reported:
                best[int(hit.name)] = max(
                    best[int(hit.name)], (hit.score, profile.description), key=lambda each: each[0]
                )
        return [function for _, function in best]


def _bases(part: Searched) -> str:
    return part.sequence[slice(*part.region)] if part.region else part.sequence


def _written(part: Searched, genes: Any, functions: Sequence[str | None]) -> Genes:
    """Return the genes of a part of a record, with their places in the record."""
    name = region_id(part.record, *part.region) if part.region else part.record
    before = part.region[0] if part.region else 0
    id_, table, proteins = gff3_escaped(name), StringIO(), StringIO()
    genes.write_gff(table, id_, header=False, include_translation_table=True)
    genes.write_translations(proteins, id_, full_id=True)
    lines = []
    # Two comments come first, with the order in which threads have found genes.
    for line, function in zip(table.getvalue().splitlines()[2:], functions, strict=True):
        _, source, kind, begin, end, rest = line.split("\t", 5)
        place = (str(int(base) + before) for base in (begin, end))
        product = f"product={function};" if function else ""
        cells = gff3_escaped(part.record), source, kind, *place, rest + product
        lines.append("\t".join(cells) + "\n")

    def header(found: re.Match[str]) -> str:
        # FASTA knows no escapes: only the attribute ID, as in the table, has them.
        begin, end = int(found[2]) + before, int(found[3]) + before
        return f">{name}_{found[1]} # {begin} # {end}"

    fasta = re.sub(r"^>.*?_(\d+) # (\d+) # (\d+)", header, proteins.getvalue(), flags=re.MULTILINE)
    coding = np.zeros(len(_bases(part)), bool)
    for gene in genes:
        coding[gene.begin - 1 : gene.end] = True
    return Genes(
        gff3=zlib.compress("".join(lines).encode()),
        proteins=zlib.compress(fasta.encode()),
        number=len(genes),
        density=float(coding.mean()),
        hallmarks=[function for function in functions if function],
    )


def region_id(record: str, start: int, stop: int) -> str:
    """Return the name of a region, ``start`` to ``stop`` (0-based, half-open), in all files."""
    return f"{record}|region_{start + 1}_{stop}"


def gene_columns(genes: Genes | None) -> dict[str, object]:
    """Return the columns that tell of genes; None stands for genes that were not looked for."""
    if genes is None:
        return dict.fromkeys(("coding_density", "hallmarks", "hallmark_genes", "genes"))
    return {
        "coding_density": genes.density,
        "hallmarks": len(genes.hallmarks),
        "hallmark_genes": ";".join(dict.fromkeys(genes.hallmarks)) or None,  # each name once
        "genes": genes.number,
    }


def write_genes(
    files: Sequence[OutputWriter], name: str, length: int, circular: bool, found: Sequence[Genes]
) -> None:
    """Write the genes of a record of ``length`` bases, or of its regions, as GFF3 and proteins."""
    id_ = gff3_escaped(name)
    head = f"##sequence-region {id_} 1 {length}\n"
    if circular:
        place = f"{id_}\tvirnucpro\tregion\t1\t{length}\t.\t+\t.\t"
        head += f"{place}ID={id_}:1..{length};Is_circular=true\n"
    files[0].write(head.encode())
    for genes in found:
        for file, content in zip(files, (genes.gff3, genes.proteins), strict=True):
            file.write(zlib.decompress(content), genes.number)
