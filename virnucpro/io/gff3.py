"""What files in GFF3 have in common: gff3.md of github.com/The-Sequence-Ontology/Specifications."""

from __future__ import annotations

from urllib.parse import quote

HEADER = "##gff-version 3\n"


def gff3_escaped(text: str) -> str:
    """Return an id for the first column, or for the value of an attribute in the last one."""
    return quote(text, safe=".:^*$@!+_?-|")
