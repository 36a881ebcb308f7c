"""Genes by pyrodigal-gv, and which of them are hallmarks or markers of viruses, or of their hosts.

Pyrodigal-gv is Prodigal (Hyatt et al. 2010, BMC Bioinformatics 11:119) as a library (Larralde 2022,
J Open Source Softw 7:4296), with more models of viruses (Camargo et al. 2024, Nat Biotechnol
42:1303). Their proteins are compared with profiles of proteins that nearly only viruses have, such
as the large subunit of the terminase, and of proteins that nearly all bacteria and archaea have and
viruses hardly ever, such as those of the ribosome, by HMMER 3 (Eddy 2011, PLoS Comput Biol
7:e1002195) as a library (Larralde and Zeller 2023, Bioinformatics 39:btad214).
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast

import numpy as np

from virnucpro.columns import gff3_escaped
from virnucpro.store.disk import OutputWriter

# What examples/hallmarks/build.sh has made: profiles of HMMER 3 (ASCII), each with the function of
# its proteins as its description, and with the least score of a hit as its gathering cutoff.
_DATA = Path(__file__).parents[1] / "data"
HALLMARKS = _DATA / "hallmarks.hmm.gz"
HOST_MARKERS = _DATA / "hostmarkers.hmm.gz"
VIRUS_MARKERS = _DATA / "virusmarkers.hmm.gz"
MOST_RESIDUES = 100_000  # of a protein that HMMER compares
# The first filters of HMMER let this share of random proteins pass, instead of 0.02 and 0.001. The
# search takes a quarter less time, and lost none of 138 hits in 0.8 million bases of a host, and
# one of 60 in 1.6 million bases of phages.
FILTER, NEXT_FILTER = 0.005, 1e-5
# Bases in which genes are found at a time: that takes 100 bytes of memory for each. No virus is
# longer (Pandoravirus salinus: 2.5 million, Philippe et al. 2013, Science 341:281-286); the genes
# of longer records are found part by part.
MOST_BASES = 3_000_000


Kind = Literal["hallmark", "host marker", "virus marker"]
Span = tuple[int, int]
"""A first base, 0-based, and the one after the last."""


class Hit(NamedTuple):
    """A gene whose protein looks like a profile."""

    begin: int  # its first base in the record, 0-based
    end: int  # the base after its last one
    function: str  # or the name of a virus marker, whose function is not known
    kind: Kind


class Genes(NamedTuple):
    """The genes of a record or of a region, as results have them."""

    gff3: bytes  # lines without those of the record, compressed with zlib, as the next field is
    proteins: bytes
    number: int  # of genes
    density: float  # the share of the bases that are in genes
    hits: list[Hit]  # in the order of the genes

    def functions(self, kind: Kind) -> list[str]:
        """Return the functions of the hallmarks, or of other hits, gene by gene."""
        return [hit.function for hit in self.hits if hit.kind == kind]


FoundGenes = dict[tuple[str, Span | None], Genes]
"""Genes by the name of their record, and by the first base of a region and the one after it."""


class Predicted(NamedTuple):
    """The genes of a record: what pyrodigal-gv has found in its parts, and the hit of each gene."""

    parts: list[tuple[int, Any]]  # the first base of a part, and its pyrodigal.Genes
    found: list[Hit | None]

    @property
    def hits(self) -> list[Hit]:
        """All hallmarks and markers that were looked for."""
        return [hit for hit in self.found if hit]

    def described(self, record: str, length: int, region: Span | None = None) -> Genes:
        """Return the genes of the record of ``length`` bases, or those inside a region of it.

        ``region`` is its first base, 0-based, and the one after its last.
        """
        start, stop = region or (0, length)
        name = region_id(record, start, stop) if region else record
        covered, hits = np.zeros(stop - start, bool), []
        lines: list[str] = []
        proteins: list[str] = []
        found = iter(self.found)
        for before, genes in self.parts:
            texts = zip(genes, _entries(genes), islice(found, len(genes)), strict=True)
            for gene, (line, protein), hit in texts:
                first, last = before + gene.begin - 1, before + gene.end
                if first < start or last > stop:
                    continue
                covered[first - start : last - start] = True
                hits += [hit] if hit else []
                id_ = f"{name}_{len(lines) + 1}"
                _, source, kind, _, _, *more, attributes = line.split("\t")
                attributes = f"ID={gff3_escaped(id_)};{attributes.partition(';')[2]}"
                attributes += f"product={hit.function};" if hit else ""
                cells = gff3_escaped(record), source, kind, first + 1, last, *more, attributes
                lines.append("\t".join(map(str, cells)) + "\n")
                # FASTA knows no escapes: only the attribute ID, as in the table, has them.
                _, _, _, strand, rest = protein.split(" # ", 4)
                rest = f"ID={gff3_escaped(id_)};{rest.partition(';')[2]}"
                proteins.append(f">{id_} # {first + 1} # {last} # {strand} # {rest}")
        return Genes(
            gff3=zlib.compress("".join(lines).encode()),
            proteins=zlib.compress("".join(proteins).encode()),
            number=len(lines),
            density=float(covered.mean()),
            hits=hits,
        )


def count_functions(hits: Sequence[Hit]) -> tuple[int, int, int]:
    """Return how many functions hallmarks and host markers have, and how many virus markers."""
    kinds: tuple[Kind, ...] = ("hallmark", "host marker", "virus marker")
    hallmarks, hosts, viruses = (
        len({hit.function for hit in hits if hit.kind == kind}) for kind in kinds
    )
    return hallmarks, hosts, viruses


class GeneFinder:
    """Finds genes with the models of pyrodigal-gv, each with its own genetic code."""

    def __init__(self) -> None:
        """Read all models and profiles."""
        from pyhmmer.plan7 import Background, HMMFile  # many runs have no record to search
        from pyrodigal_gv import ViralGeneFinder

        self._finder = ViralGeneFinder(meta=True, mask=True)  # no genes across gaps
        # As the search wants them; to make them takes longer than to search a few proteins.
        self._profiles: dict[Kind, list[Any]] = {}
        files: dict[Kind, Path] = {
            "hallmark": HALLMARKS,
            "host marker": HOST_MARKERS,
            "virus marker": VIRUS_MARKERS,
        }
        for kind, path in files.items():
            with gzip.open(path) as stream, HMMFile(cast(BinaryIO, stream)) as file:
                hmms = list(file)
            self._alphabet = hmms[0].alphabet
            background = Background(self._alphabet)
            self._profiles[kind] = [hmm.to_profile(background).to_optimized() for hmm in hmms]

    def find(self, sequences: Sequence[str]) -> list[Predicted]:
        """Return the genes of each record; they do not depend on the other records.

        Hallmarks and host markers are among their hits, virus markers are not.
        """
        starts = [range(0, len(sequence) or 1, MOST_BASES) for sequence in sequences]
        parts = [
            sequence[start : start + MOST_BASES]
            for sequence, own in zip(sequences, starts, strict=True)
            for start in own
        ]
        # Python's lock is free meanwhile. A pool of multiprocessing would need /dev/shm.
        with _threads() as pool:
            genes = list(pool.map(self._finder.find_genes, parts))
            every = [gene for own in genes for gene in own]
            functions = iter(self._functions(every, pool, ("hallmark", "host marker")))
        rest = iter(genes)
        predicted = []
        for own in starts:
            found = list(zip(own, rest, strict=False))
            known = zip(_placed(found), functions, strict=False)
            hits = [Hit(*place, *function) if function else None for (place, _), function in known]
            predicted.append(Predicted(found, hits))
        return predicted

    def find_virus_markers(self, shown: Sequence[tuple[Predicted, Sequence[Span | None]]]) -> None:
        """Add virus markers to the hits of those genes in some spans that have none.

        None stands for the whole record.
        """
        wanted = [
            (found, number, place, gene)
            for (parts, found), spans in shown
            for number, (place, gene) in enumerate(_placed(parts))
            if not found[number]
            and any(not span or span[0] <= place[0] < span[1] for span in spans)
        ]
        if not wanted:
            return
        with _threads() as pool:
            known = self._functions([gene for *_, gene in wanted], pool, ("virus marker",))
        for (found, number, place, _), function in zip(wanted, known, strict=True):
            found[number] = Hit(*place, *function) if function else None

    def _functions(
        self, genes: Sequence[Any], pool: ThreadPoolExecutor, kinds: Sequence[Kind]
    ) -> list[tuple[str, Kind] | None]:
        """Return of each gene the function of the best profile of some ``kinds``, and its kind."""
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

        def search(profile: tuple[Kind, Any]) -> TopHits[Any]:
            pipeline = Pipeline(self._alphabet, bit_cutoffs="gathering", F1=FILTER, F2=NEXT_FILTER)
            return pipeline.search_hmm(profile[1], block)

        best: list[tuple[float, tuple[str, Kind] | None]] = [(0.0, None)] * len(genes)
        # A profile is for one thread at a time.
        profiles = [(kind, profile) for kind in kinds for profile in self._profiles[kind]]
        for (kind, profile), hits in zip(profiles, pool.map(search, profiles), strict=True):
            for hit in hits.reported:
                number = int(hit.name)
                if hit.score > best[number][0]:
                    best[number] = hit.score, (profile.description, kind)
        return [function for _, function in best]


def _threads() -> ThreadPoolExecutor:
    """Return as many threads as torch computes with."""
    import torch  # is there, for the kinds of viruses

    return ThreadPoolExecutor(torch.get_num_threads())


def _placed(parts: Sequence[tuple[int, Any]]) -> Iterator[tuple[Span, Any]]:
    """Yield the genes of a record, each with its place in the record before it."""
    for before, genes in parts:
        for gene in genes:
            yield (before + gene.begin - 1, before + gene.end), gene


def _entries(genes: Any) -> Iterator[tuple[str, str]]:
    """Yield the line of GFF3 and the entry of FASTA of each gene."""
    table, proteins = StringIO(), StringIO()
    genes.write_gff(table, "_", header=False, include_translation_table=True)
    genes.write_translations(proteins, "_", full_id=True)
    # Two comments come first, with the order in which threads have found genes.
    lines = table.getvalue().splitlines()[2:]
    yield from zip(lines, re.split("^>", proteins.getvalue(), flags=re.M)[1:], strict=True)


def region_id(record: str, start: int, stop: int) -> str:
    """Return the name of a region, ``start`` to ``stop`` (0-based, half-open), in all files."""
    return f"{record}|region_{start + 1}_{stop}"


def gene_columns(genes: Genes | None) -> dict[str, object]:
    """Return the columns that tell of genes; None stands for genes that were not looked for."""
    columns: dict[str, object] = dict.fromkeys(("coding_density", "genes"))
    if genes:
        columns = {"coding_density": genes.density, "genes": genes.number}
    kinds: tuple[Kind, ...] = ("hallmark", "host marker")
    for kind in kinds:
        names = genes.functions(kind) if genes else []
        column = kind.replace(" ", "_")
        columns[f"{column}s"] = len(names) if genes else None
        columns[f"{column}_genes"] = ";".join(dict.fromkeys(names)) or None  # each name once
    columns["virus_markers"] = len(genes.functions("virus marker")) if genes else None
    return columns


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
