"""What files of features in the format GFF3 have in common.

The format: https://github.com/The-Sequence-Ontology/Specifications, gff3.md.
"""

from __future__ import annotations

from urllib.parse import quote

HEADER = "##gff-version 3\n"
_ALLOWED = ".:^*$@!+_?-|"  # beside letters and digits, in the first column


def gff3_escaped(text: str) -> str:
    """Return an id for the first column, or for the value of an attribute.

    What has a meaning in the last column is escaped in the first one, too.
    """
    return quote(text, safe=_ALLOWED)
