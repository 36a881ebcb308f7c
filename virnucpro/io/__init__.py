"""Sequences: reading, chunking, translation and FASTA files. Imports no torch."""
