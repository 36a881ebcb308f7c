"""The record of a run: ``STEM_run.json``, with what ran where, how long it took, and the counts."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping, Sequence

from virnucpro.contracts import Device, Json
from virnucpro.results import INCOMPLETE
from virnucpro.run.run import Run
from virnucpro.stages.embedding import EncoderSetup
from virnucpro.store.documents import parse_json
from virnucpro.version import __version__


def write_record(
    run: Run,
    encoders: EncoderSetup,
    devices: Sequence[Device],
    command: Sequence[str],
    lasting: Sequence[str],
    details: Mapping[str, Json],
) -> None:
    """Write ``STEM_run.json``: what any record holds, and the ``details`` of this kind of run.

    Not where nothing was computed and what is ``lasting`` is the same.
    """
    import numpy
    import torch

    sources = {
        molecule: {
            "family": source.family,
            "name": source.name,
            "path": str(source.path),
            "sha256": source.sha256,
            "dim": source.dim,
            "reads": source.reading,
        }
        for molecule, source in encoders.sources.items()
    }
    shown = ("kind", "index", "name", "uuid", "memory", "threads")
    document: dict[str, Json] = {
        "virnucpro": __version__,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
        },
        "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": list(command),
        **details,
        "models": {**sources, **details.get("models", {})},
        "precision": encoders.precision,
        "devices": [
            {name: getattr(each, name) for name in (*shown, *(["host"] * bool(each.host)))}
            for each in devices
        ],
        "workers": run.workers,
        "seconds": {name: round(s, 3) for name, s in run.seconds.items()},
        "seconds_waited_for_tokens": {name: round(s, 3) for name, s in run.host_wait.items()},
    }
    path = run.layout.run_json
    try:
        earlier = parse_json(path.read_bytes())
        unchanged = INCOMPLETE not in earlier and all(earlier[n] == document[n] for n in lasting)
    except (OSError, ValueError, KeyError, TypeError):
        unchanged = False
    if run.computed or not unchanged:
        run.disk.save(path, (json.dumps(document, indent=1) + "\n").encode())
