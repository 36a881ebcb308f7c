"""The genes of records that are classified as viral, by pyrodigal-gv.

That is Prodigal (Hyatt et al. 2010, BMC Bioinformatics 11:119) as a library (Larralde 2022, J Open
Source Softw 7:4296), with more models of viruses (Camargo et al. 2024, Nat Biotechnol 42:1303).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from io import StringIO

import numpy as np

from virnucpro.columns import GFF3_HEADER, gff3_escaped
from virnucpro.store.disk import OutputWriter

ViralRecord = tuple[str, str, bool]
"""The name of a record, its sequence, and whether it is circular."""


class VirusGenes:
    """Finds genes with the models of pyrodigal-gv, each with its own genetic code."""

    def __init__(self, gff3: OutputWriter, proteins: OutputWriter) -> None:
        """Begin both files."""
        from pyrodigal_gv import ViralGeneFinder  # it reads its models; many runs find no virus

        self._finder = ViralGeneFinder(meta=True, mask=True)  # no genes across gaps
        self._gff3, self._proteins = gff3, proteins
        gff3.write(GFF3_HEADER.encode())

    def write(self, records: Sequence[ViralRecord]) -> list[float]:
        """Write the genes of records; returns the share of the bases of each that are in genes."""
        import torch  # is there, for the kinds of the same records, and knows how many threads

        densities = []
        # Python's lock is free meanwhile. A pool of multiprocessing would need /dev/shm.
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            for gff3, proteins, count, density in pool.map(self._found, records):
                self._gff3.write(gff3.encode(), count)
                self._proteins.write(proteins.encode(), count)
                densities.append(density)
        return densities

    def _found(self, record: ViralRecord) -> tuple[str, str, int, float]:
        """Return the genes as GFF3 and as proteins, their number, and the share of bases."""
        name, sequence, circular = record
        genes, length = self._finder.find_genes(sequence), len(sequence)
        id_, table, proteins = gff3_escaped(name), StringIO(), StringIO()
        genes.write_gff(table, id_, header=False, include_translation_table=True)
        genes.write_translations(proteins, id_, full_id=True)
        # Two comments come first, with the order in which threads have found genes.
        lines = table.getvalue().split("\n", 2)[2]
        region = f"##sequence-region {id_} 1 {length}\n"
        if circular:
            place = f"{id_}\tvirnucpro\tregion\t1\t{length}\t.\t+\t.\t"
            region += f"{place}ID={id_}:1..{length};Is_circular=true\n"
        coding = np.zeros(length, bool)
        for gene in genes:
            coding[gene.begin - 1 : gene.end] = True
        # FASTA knows no escapes: only the attribute ID, as in the table, has them.
        fasta = proteins.getvalue().replace(f">{id_}_", f">{name}_")
        return region + lines, fasta, len(genes), float(coding.mean())
