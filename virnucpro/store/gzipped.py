"""Gzip files without a name and a time, so that equal content gives equal files."""

from __future__ import annotations

import gzip

from virnucpro.store.disk import OutputWriter

LEVEL = 4  # of 9: half of the time of the usual 6 for some percent more bytes


def gzip_into(out: OutputWriter) -> gzip.GzipFile:
    """Return a stream that compresses into ``out``; close it before ``out`` is finished."""
    return gzip.GzipFile("", "wb", compresslevel=LEVEL, fileobj=out, mtime=0)
