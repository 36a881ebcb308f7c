"""Gzip files without a name and a time, so that equal content gives equal files."""

from __future__ import annotations

import gzip

from virnucpro.store.disk import OutputWriter

LEVEL = 4  # of 9: half of the time of the usual 6 for some percent more bytes


def gzip_into(out: OutputWriter) -> gzip.GzipFile:
    """Return a stream that compresses into ``out``; close it before ``out`` is finished."""
    return gzip.GzipFile("", "wb", compresslevel=LEVEL, fileobj=_Unseekable(out), mtime=0)


class _Unseekable:
    """The side of an output that ``gzip`` writes to."""

    def __init__(self, out: OutputWriter) -> None:
        self._out = out

    def write(self, data: bytes) -> int:
        self._out.write(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: the output is flushed when it is complete."""
