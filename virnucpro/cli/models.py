"""``virnucpro models``: lists, fetches and checks the models on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

import virnucpro.cli.shared as shared
from virnucpro.cli.shared import FILE, command, option
from virnucpro.errors import EXIT_OK, UsageError
from virnucpro.formatting import aligned, byte_size
from virnucpro.models.catalogue import KNOWN, SETS, model_named, models_for
from virnucpro.settings import Share


@command(name="list", common="json")
def list_models(as_json: bool) -> None:
    """Show the known models, their sizes and where they are.

    Examples:
      virnucpro models list --json
    """
    from virnucpro.models.store import model_files, recorded, resolve_model

    rows: list[dict[str, Any]] = []
    for model in KNOWN:
        row: dict[str, Any] = {"name": model.name, "what": model.what, "bytes": None}
        row |= {"state": "missing", "path": None, "recorded": recorded(model.name) is not None}
        located = resolve_model(model)
        if located and located[0] == model:  # not its twin, which has a row of its own
            row["bytes"] = sum(file.stat().st_size for file in model_files(*located).values())
            row |= {"state": "here", "path": str(located[1])}
        rows.append(row | {"address": model.address})
    if as_json:
        return shared.tell(json.dumps(rows, indent=1), always=True)
    cells = [
        (row["name"], byte_size(row["bytes"]), row["state"], row["what"], row["path"] or "")
        for row in rows
    ]
    return shared.tell(
        *aligned([("name", "size", "state", "what", "where"), *cells]),
        f"Fetch what a model type needs: virnucpro models fetch {' | '.join(SETS)}",
        "Model type lite needs nothing: its models are part of the package.",
        always=True,
    )


@command(
    click.Argument(["names"], nargs=-1, required=True, metavar="NAME..."),
    option("--update", bool, "Fetch the newest version and record its checksum."),
)
def fetch(names: tuple[str, ...], update: bool) -> None:
    """Fetch the models that predict needs.

    NAME is a model, or a model type, 300 or 500, for all models that it needs. Files that exist
    are compared with the checksum that was recorded when they were first fetched; a damaged file
    is replaced.

    Examples:
      virnucpro models fetch 500
      virnucpro models fetch esm2_t36_3B_UR50D zhihan1996/DNABERT-S
    """
    from virnucpro.models.fetch import fetch_model

    for model in dict.fromkeys(model for name in names for model in models_for(name)):
        shared.say(f"{model.name}: {model.address}")
        path, outcome = fetch_model(model, update=update)
        shared.tell(f"{model.name}: {outcome}, and its checksum is right: {path}", always=True)


@command(click.Argument(["name"]))
def path(name: str) -> None:
    """Print where a model is on this machine.

    Nothing else is printed; the exit code is 64 if the model NAME is not here.

    Example:
      ls -l $(virnucpro models path esm2_t36_3B_UR50D)
    """
    from virnucpro.models.store import find_model

    click.echo(find_model(name))


@command(
    click.Argument(["names"], nargs=-1, metavar="[NAME...]"),
    option("--renew", bool, "Record the present files as the right version."),
)
def verify(names: tuple[str, ...], renew: bool) -> None:
    """Compare models with their recorded checksums.

    Without NAME, all models on this machine are compared. A model that was copied here by hand is
    recorded at the first call.

    Examples:
      virnucpro models verify 500_model.pth
    """
    if renew and not names:
        raise UsageError("--renew needs names: virnucpro models verify --renew 500_model.pth")
    from virnucpro.models.store import (
        record_model,
        recorded_names,
        require_model,
        resolve_model,
        verify_model,
    )

    if names:
        chosen = [require_model(model) for name in names for model in models_for(name)]
    else:
        known = [*KNOWN, *map(model_named, recorded_names())]
        chosen = [located for model in known if (located := resolve_model(model))]
    for model, path in dict.fromkeys(chosen):
        if renew:
            record_model(model, path)
            state = "checksum recorded again"
        else:
            state = "intact" if verify_model(model) == "verified" else "checksum recorded now"
        shared.tell(f"{model.name}: {state}: {path}", always=True)
    if not chosen:
        text = "There are no models on this machine. Fetch them: virnucpro models fetch 500"
        shared.tell(text, always=True)


@command(
    click.Argument(["name"], metavar="NAME", type=click.Choice(("300", "500", "lite", "custom"))),
    option("-o --output", FILE, "File of the result.  [default: in the own folder of models]"),
    option("--fraction", Share, "Part of the records of each group.", default=1.0),
    common="classifier chunk_length device gpus cpu_workers compile precision protein_batch "
    "nucleotide_batch tokenizer_threads threads force no_progress",
)
def calibrate(name: str, output: Path | None, fraction: float, **options: Any) -> int:
    """Measure models on records of known origin, so that their results have error rates.

    NAME is a model type of predict, or custom. Contigs of many kinds of viruses and others, which
    are part of the package, are scored as by predict. One half of them is measured with the error
    rates that the other half gives; both halves give those that predict and call state from then
    on. The released models may know relatives of these genomes, and look too good here.

    Examples:
      virnucpro models calibrate 500
      virnucpro models calibrate custom --model-path my.safetensors -e 500 --config my.yaml
    """
    settings = shared.configuration({**options, "model_type": name})
    analysis = settings.analysis.resolved()
    from virnucpro.classifier.calibration import SUFFIX
    from virnucpro.cli.predict import carry_out
    from virnucpro.devices import choose_devices
    from virnucpro.evaluation.calibrate import (
        calibrate_run,
        calibration_page,
        calibration_text,
        known_records,
    )
    from virnucpro.models.store import own_folder
    from virnucpro.run.request import PredictionRequest, check_models

    assert analysis.classifier is not None
    stem = f"{Path(analysis.classifier).stem}_{analysis.chunk_length}"
    output = output or own_folder() / f"{stem}{SUFFIX}"
    if not output.name.endswith(SUFFIX):
        raise UsageError(f"--output {output}: name a file whose name ends in {SUFFIX}")
    check_models(analysis)
    folder = output.with_suffix("")
    if output.exists() and not folder.exists() and not options["force"]:
        raise UsageError(f"{output} exists: choose another --output, or replace it with --force")
    table, sequences = known_records(fraction)
    if "t36_3B" in analysis.protein_model and choose_devices(settings.machine)[0].kind == "cpu":
        shared.tell(
            "ESM-2 3B takes hours on a CPU for these records, and a tenth of that with --fraction "
            "0.1. The same command goes on with an interrupted start."
        )
    lines = (f">{record}\n{bases}\n" for record, bases in zip(table.record, sequences, strict=True))
    source = folder / "records.fa"
    shared.save_output(source, "".join(lines).encode(), force=options["force"])
    values = {"chunk_length": analysis.chunk_length, "genes": False}
    request = PredictionRequest(
        str(source),
        folder,
        settings.with_values(values),
        force=options["force"],
        command=shared.command_line(),
    )
    if code := carry_out(request):
        return code
    with shared.screen(settings) as screen:
        found = calibrate_run(table, sequences, request.layout, screen.show)
        page = output.with_suffix(".md")
        text = calibration_page(found, Path(analysis.classifier).name)
        for path, content in ((page, text.encode()), (output, found.to_bytes())):
            shared.save_output(path, content, force=True)
    shared.tell(*calibration_text(found), f"Calibration: {output}; the same as a page: {page}")
    return EXIT_OK


models = click.Group(
    "models",
    commands=[list_models, fetch, path, verify, calibrate],
    help="List, fetch, check and calibrate the models on this machine.",
)
