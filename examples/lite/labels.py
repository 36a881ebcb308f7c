"""Look at the genes of the viral records of a data set, and list those that are bacteria.

    python examples/lite/labels.py DATASET [--groups "phage genomes,..."] > doubtful.tsv

DATASET was made by `virnucpro train prepare --content records`. A record is listed where it has two
host markers or more, and more than three for each hallmark, as `predict` calls it `nonvirus` then.
Giant viruses have host markers of their own, and are left out. This takes 5 s of a core per Mbp.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from virnucpro.classifier.evidence import no_evidence
from virnucpro.stages.calls import is_host
from virnucpro.stages.genes import GeneFinder, count_functions
from virnucpro.training.data.dataset import PARTS, Dataset

OWN_MARKERS = re.compile("giant viruses")
SHORTEST = 2000  # bases


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--groups", help="only these, with commas between them")
    options = parser.parse_args()
    finder, wanted = GeneFinder(), set((options.groups or "").split(",")) - {""}
    print("record\tgroup\tbases\thallmarks\thost_markers\thost_marker_genes")
    for part in PARTS:
        for record in Dataset(options.dataset).records(part):
            if record.label != "virus" or OWN_MARKERS.search(record.group):
                continue
            if len(record.sequence) < SHORTEST or (wanted and record.group not in wanted):
                continue
            (genes,) = finder.find([record.sequence])
            evidence = no_evidence(1)
            evidence.put(0, *count_functions(genes.hits))
            if is_host(evidence)[0]:
                names = sorted({hit.function for hit in genes.hits if hit.kind == "host marker"})
                about = record.record, record.group, len(record.sequence)
                found = evidence.hallmarks[0], evidence.markers[0], ";".join(names)
                print(*about, *found, sep="\t", flush=True)


if __name__ == "__main__":
    main()
