"""``virnucpro.predict`` and ``virnucpro.rcl_predict``: the commands of these names, for Python.

The same code computes as for the command line, and the same files are written. torch is imported
when a function is called.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from virnucpro.configuration import Configuration, checked_value, load_configuration
from virnucpro.errors import UsageError
from virnucpro.events import Event, Notice, TaskFinished
from virnucpro.results import PredictionRun, RclRun, open_rcl_run, open_run
from virnucpro.run.request import PredictionRequest, check_request
from virnucpro.settings import SETTINGS
from virnucpro.ui.log import LogFile

logger = logging.getLogger("virnucpro")
"""Takes warnings, and what happens; Python shows warnings on standard error unless told else."""


def predict(
    source: str | PathLike[str],
    output_dir: str | PathLike[str] | None = None,
    *,
    input2: str | PathLike[str] | None = None,
    interleaved: bool = False,
    model: str | None = None,
    force: bool = False,
    config: str | PathLike[str] | None = None,
    **settings: Any,
) -> PredictionRun:
    """Decide for every record of a file whether it is viral, as ``virnucpro predict`` does.

    What is already there of the same run is not computed again. A script whose call uses several
    devices has to make it below ``if __name__ == "__main__":``.

    Args:
        source: a FASTA or FASTQ file, plain or compressed.
        output_dir: folder of the results; None is ``STEM_predictions``.
        input2: the second mates of paired reads, where ``source`` has the first mates: each pair
            gets one call.
        interleaved: whether ``source`` has both mates of paired reads, one after the other: each
            pair gets one call.
        model: ``500`` (the default), ``300``, ``lite`` or ``custom``.
        force: move existing results aside and start over.
        config: a configuration file. Arguments win over it.
        settings: any of :data:`virnucpro.settings.SETTINGS`, such as ``device``, ``gpus``,
            ``threads``, ``chunk_length``, ``classifier`` or ``min_score``; and
            ``keep_intermediate``. None leaves a setting as it is.

    Raises:
        VirNucProError: see ``virnucpro.errors``; nothing that was finished is lost.
        TypeError: there is no setting of that name.
    """
    _refuse_in_worker("predict")
    given = {"input2": input2, "interleaved": interleaved or None, "model": model, **settings}
    given = {name: os.fspath(v) if isinstance(v, PathLike) else v for name, v in given.items()}
    chosen = _settings(config, {"model_type": model, **{name: given[name] for name in settings}})
    request = PredictionRequest(
        os.fspath(source),
        None if output_dir is None else Path(output_dir),
        chosen,
        force=force,
        command=_command("predict", source, output_dir, given),
        mates=given["input2"],
        interleaved=interleaved,
    )
    log = LogFile(request.layout.log if chosen.display.auto_log else None)
    try:
        check_request(request)
        from virnucpro.run.predict import run_prediction  # it imports torch, which takes seconds

        run_prediction(request, partial(_observe, log))
    except BaseException as error:
        log.close(error)
        raise
    log.close()
    return open_run(request.layout.root, request.layout.stem)


def rcl_predict(
    source: str | PathLike[str],
    output_dir: str | PathLike[str] | None = None,
    *,
    model: str | None = None,
    force: bool = False,
    **options: Any,
) -> RclRun:
    """Find the reactive center loop (RCL) in each protein of a file, as ``rcl predict`` does.

    A script whose call uses several devices has to make it below ``if __name__ == "__main__":``.

    Args:
        source: a FASTA or FASTQ file of proteins, compressed or not.
        output_dir: folder of the results; None is ``STEM_rcl``.
        model: name of a shipped model, a model file, or the folder of a training; None is
            ``hmm``.
        force: move existing results aside and start over.
        options: ``threshold``, ``min_consecutive``, ``min_rcl_length`` and ``esm_model`` as the
            command has them; ``sequences``, ``loops`` and ``residues``, True to write these files,
            too; and the settings ``device``, ``gpus``, ``threads`` and ``duplicate_ids``.

    Raises:
        VirNucProError: see ``virnucpro.errors``; no file is left half written, and finished blocks
            of proteins are kept.
        TypeError: there is no option of that name.
    """
    _refuse_in_worker("rcl_predict")
    from virnucpro.rcl.finders import DEFAULT_MODEL, open_finder
    from virnucpro.rcl.predict import RclRequest, run_rcl_prediction

    values = {name: value for name, value in options.items() if value is not None}
    names = ("threshold", "min_consecutive", "min_rcl_length", "esm_model")
    rule = {name: values.pop(name) for name in names if name in values}
    if not 0 <= rule.get("threshold", 0) <= 1:
        raise UsageError(f"threshold must be from 0 to 1, not {rule['threshold']}")
    if min(rule.get("min_consecutive", 1), rule.get("min_rcl_length", 1)) < 1:
        raise UsageError("min_consecutive and min_rcl_length must be 1 or more")
    files = {n: values.pop(n) for n in ("sequences", "loops", "residues") if n in values}
    if others := values.keys() - {"device", "gpus", "threads", "duplicate_ids"}:
        raise TypeError(f"rcl_predict has no option {others.pop()!r}")
    settings = _settings(None, values)
    request = RclRequest(
        os.fspath(source),
        None if output_dir is None else Path(output_dir),
        open_finder(model or DEFAULT_MODEL, **rule),
        settings.machine,
        **files,
        duplicate_ids=settings.analysis.duplicate_ids,
        force=force,
        command=_command("rcl_predict", source, output_dir, {"model": model, **options}),
    )
    run_rcl_prediction(request, partial(_observe, LogFile(None)))
    return open_rcl_run(request.root, request.stem)


def _refuse_in_worker(function: str) -> None:
    """Raise UsageError in a worker process that has imported the script that started it."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # as multiprocessing asks
        raise UsageError(
            "a worker process has imported the script that started it: put the call of "
            f'virnucpro.{function} below if __name__ == "__main__":'
        )


def _settings(config: str | PathLike[str] | None, values: Mapping[str, Any]) -> Configuration:
    """Return all settings: defaults, the configuration file, and ``values`` that are not None.

    Raises:
        UsageError: the file is missing or wrong, or a value is not accepted.
    """
    settings = Configuration() if config is None else load_configuration(Path(config))
    for warning in settings.warnings:
        logger.warning(warning)
    given = {name: value for name, value in values.items() if value is not None}
    kept = given.pop("keep_intermediate", None)
    if unknown := given.keys() - SETTINGS:
        raise TypeError(f"{unknown.pop()!r} is none of {', '.join(SETTINGS)}")
    checked = {name: checked_value(name, SETTINGS[name], value) for name, value in given.items()}
    return settings.with_values({**checked, "keep_intermediate": kept})


def _command(
    name: str,
    source: str | PathLike[str],
    output_dir: str | PathLike[str] | None,
    values: Mapping[str, Any],
) -> tuple[str, ...]:
    """Return the call as it stands in the record of the run, in place of a command line."""
    places = [os.fspath(place) for place in (source, output_dir) if place is not None]
    given = [f"{name}={value!r}" for name, value in values.items() if value is not None]
    return (f"virnucpro.{name}({', '.join([*map(repr, places), *given])})",)


def _observe(log: LogFile, event: Event) -> None:
    """Take an event of a run to its log file and to the logger."""
    text = log.event(event)
    if isinstance(event, Notice):
        warns, text = event.level == "warning", event.message
    else:
        warns = isinstance(event, TaskFinished) and bool(event.failures)
    if text:
        logger.log(logging.WARNING if warns else logging.INFO, text)
