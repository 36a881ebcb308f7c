"""Check the GPU path and measure it, in two commands of ten minutes.

    python -m benchmarks.gpu facts OUT
    python -m benchmarks.gpu decisions OUT --earlier FACTS [--minutes 9.5] [--parts peers,...]
    python -m benchmarks.gpu facts OUT --device cpu --small     # a rehearsal, without a GPU

Each part is a process with its own time limit. Whatever fails, the tests among it, the other parts
follow, and the exit code is 1 at the end. OUT has three files: ``summary.json`` with the goals beside
what was measured, the machine, and the commands with all their figures; ``results.zip`` with logs; and
``kernels.zip`` with compiled code. The first two are replaced whenever a part has ended. FACTS is the
folder of an earlier command, whose figures count for the goals and whose compiled code is used; without
``--earlier``, that is OUT itself.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.gpu.parts import REAL, SMALL, Part, Scale, parts
from benchmarks.timing import machine_facts
from virnucpro.devices import visible_gpus
from virnucpro.precision import PRECISIONS

ROOT = Path(__file__).parents[2]
SUMMARY, ARCHIVE, KERNELS = "summary.json", "results.zip", "kernels.zip"
LEAST_SECONDS = 1.0  # with less, a part is not started
PACKING_SECONDS = 15.0  # are kept at the end for the compiled code
LARGEST_ARCHIVE = 15 << 20  # bytes; a machine may give back no larger file than 16 MiB
LAST_LINES = 40  # of the log of a part, which are printed
# Always the same place: what Triton stores names the files by their whole paths.
COMPILED = Path.home() / ".cache" / "virnucpro-gpu"
FULL_FRAME = 168  # tokens of ESM-2 in a full frame of a 500 bp chunk


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 where every part that was started succeeded, else 1."""
    started = time.monotonic()
    options = _options(arguments)
    scale = SMALL if options.small else _scale_of_gpu()
    out, earlier = options.out.absolute(), options.earlier or options.out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="virnucpro-gpu-") as folder:
        scratch = Path(folder)
        work, kernels = scratch / "results", scratch / "kernels" if options.small else COMPILED
        work.mkdir()
        kernels.mkdir(parents=True, exist_ok=True)
        if (earlier / KERNELS).exists():
            with zipfile.ZipFile(earlier / KERNELS) as archive:
                archive.extractall(kernels)
        chosen = parts(options.command, scale, work, scratch)
        if options.parts:
            names = options.parts.split(",")
            chosen = [part for part in chosen if part.name in names]
            if len(chosen) != len(names):
                sys.exit(f"not all of {options.parts} are parts of {options.command}")
        rows = {**earlier_rows(earlier), **earlier_rows(out)}
        deadline = started + 60 * options.minutes - PACKING_SECONDS
        return measure(chosen, rows, scale, out, work, kernels, deadline)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("facts", "decisions"), help="begin with facts")
    parser.add_argument("out", type=Path, help="folder for the results")
    parser.add_argument("--earlier", type=Path, help="folder of results of an earlier command")
    parser.add_argument("--minutes", type=float, default=9.5, help="for everything (default 9.5)")
    parser.add_argument("--parts", help="only these, separated by commas")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny models: with --device cpu")
    options = parser.parse_args(arguments)
    if options.small != (options.device == "cpu"):
        parser.error("--device cpu and --small go together")
    return options


def _scale_of_gpu() -> Scale:
    gpus = visible_gpus()
    if not gpus:
        sys.exit("no usable NVIDIA GPU: see nvidia-smi, or rehearse with --device cpu --small")
    fp8, bf16 = (gpus[0].capability >= PRECISIONS[name].capability for name in ("fp8", "bf16"))
    half, eighth = "bf16" if bf16 else "fp16", "fp8" if fp8 else "fp16" if bf16 else "fp32"
    print(f"{gpus[0].name}: measured are {half} and {eighth}", flush=True)
    return replace(REAL, half=half, eighth=eighth)


def measure(
    chosen: Sequence[Part],
    rows: dict[str, dict[str, Any]],
    scale: Scale,
    out: Path,
    work: Path,
    kernels: Path,
    deadline: float,
) -> int:
    """Run the parts until ``deadline`` (of ``time.monotonic``); return 1 where one failed.

    ``rows`` is what is known of earlier parts, by name. The parts write into ``work``, and compiled
    code goes to ``kernels``.
    """
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "TORCHINDUCTOR_CACHE_DIR": str(kernels / "inductor"),
        "TRITON_CACHE_DIR": str(kernels / "triton"),
    }
    failed = False
    try:
        for part in chosen:
            print(f"{part.name}: {shlex.join(part.command)}", flush=True)
            row = run_part(part, work, environment, deadline)
            failed |= row["state"].startswith("failed")
            rows[part.name] = row
            document = {
                "command": shlex.join(["python", "-m", "benchmarks.gpu", *sys.argv[1:]]),
                "rehearsal": scale.device == "cpu",
                "machine": machine_facts(),
                "goals": compare_with_goals(rows, scale),
                "parts": list(rows.values()),
            }
            new = out / f"{SUMMARY}.new"
            new.write_text(json.dumps(document, indent=1) + "\n")
            new.replace(out / SUMMARY)
            pack(work, out / ARCHIVE)
            log = work / f"{part.name}.log"
            lines = log.read_text(errors="replace").splitlines() if log.exists() else []
            print(*lines[-LAST_LINES:], f"{part.name}: {row['state']}", sep="\n", flush=True)
    finally:
        pack(kernels, out / KERNELS)
    for goal in compare_with_goals(rows, scale):
        measured = "-" if goal["measured"] is None else f"{goal['measured']:,.2f}"
        print(f"{goal['goal']:78} {goal['required']:9,.2f} {measured:>9}  {goal['met']}")
    if scale.device == "cpu":
        print("This is a rehearsal with tiny models: these numbers mean nothing.")
    return int(failed)


def run_part(
    part: Part, work: Path, environment: Mapping[str, str], deadline: float
) -> dict[str, Any]:
    """Run a part in a process of its own; return its state and its figures."""
    started = time.monotonic()
    limit = min(part.seconds, deadline - started)
    row: dict[str, Any] = {"part": part.name, "command": shlex.join(part.command)}
    if limit < LEAST_SECONDS:
        return row | {"state": "not started: the time was over"}
    with (work / f"{part.name}.log").open("wb") as log:
        # In a session of its own, it can be ended with everything it has started.
        process = subprocess.Popen(
            part.command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log,
            stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(limit)
            state = f"failed (exit {code})" if code else "done"
        except subprocess.TimeoutExpired:
            state = f"ended after {limit:.0f} s: its time was over"
        finally:
            with suppress(ProcessLookupError):  # all of them have ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    figures: dict[str, Any] = {}
    with suppress(OSError, ValueError):  # it has saved nothing, or was ended as it did
        figures = json.loads((work / f"{part.name}.json").read_bytes())
    seconds = round(time.monotonic() - started, 1)
    return row | {"state": state, "seconds": seconds, "figures": figures}


def earlier_rows(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the parts of an earlier command, if the folder has its summary."""
    if not (folder / SUMMARY).exists():
        return {}
    return {row["part"]: row for row in json.loads((folder / SUMMARY).read_bytes())["parts"]}


def pack(folder: Path, archive: Path) -> None:
    """Write the files of a folder into an archive, as far as it stays small: small files first."""
    new = archive.with_name(f"{archive.name}.new")
    files = sorted((p.stat().st_size, p) for p in folder.rglob("*") if p.is_file())
    with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as packed:
        for size, path in files:
            # Its compressed size is not known before; code and logs shrink to a fourth and less.
            if new.stat().st_size + size / 4 > LARGEST_ARCHIVE:
                print(f"{path} is left out of {archive.name}, which would be too large")
            else:
                packed.write(path, path.relative_to(folder))
    new.replace(archive)


def compare_with_goals(rows: Mapping[str, Mapping[str, Any]], scale: Scale) -> list[dict[str, Any]]:
    """Return the goals of the models alone, and of the same models in a whole run."""
    half, eighth, esm = scale.half, scale.eighth, f"ESM-2 {scale.esm}"
    figures = {name: row.get("figures", {}) for name, row in rows.items()}
    rate, tokens, matmul = "sequences_per_second", "tokens_per_second", "share_of_matmul"

    def own(part: str, precision: str, key: str) -> float:
        """Return a figure of this program, or NaN where it was not measured."""
        for model in figures.get(part, {}).get("models", ()):
            for row in model["results"]:
                if row["implementation"] == "virnucpro" and row["precision"] == precision:
                    return float(row.get(key, math.nan))
        return math.nan

    def pool(precision: str, key: str) -> float:
        stage = figures.get(f"pool-{precision}", {}).get("rates", {}).get("protein_embeddings", {})
        return float(stage.get(f"{key}_of_worker", math.nan))

    alone, in_pool = own("esm2", half, tokens), pool(half, tokens)
    fp8_esm, fp8_dnabert = (
        own(part, eighth, rate) / own(part, half, rate) for part in ("esm2-fp8", "dnabert-s-fp8")
    )
    goals = (
        (f"{esm} {half}, share of the matrix product", 0.75, own("esm2", half, matmul)),
        (f"{esm} {half}, sequences of 168 tokens per second", 600, alone / FULL_FRAME),
        (f"{esm} {eighth}, times {half}", 1.4, fp8_esm),
        (f"{scale.dnabert} {half}, sequences per second", 10_000, own("dnabert-s", half, rate)),
        # The random tokenizer makes some 130 tokens of 499 bases, where the real one makes 100.
        (f"{scale.dnabert} {half}, sequences of 100 tokens per second", 10_000,
         own("dnabert-s", half, tokens) / 100),
        (f"{scale.dnabert} {eighth}, times {half}", 1.4, fp8_dnabert),
        (f"{esm} {half} through the pool, share of the matrix product", 0.75,
         own("esm2", half, matmul) * in_pool / alone),
        (f"{esm} {half} through the pool, sequences of 168 tokens per second", 600,
         in_pool / FULL_FRAME),
        (f"{esm} {eighth} through the pool, times {half}", 1.4, pool(eighth, rate) / pool(half, rate)),
    )  # fmt: skip
    return [
        {
            "goal": name,
            "required": required,
            "measured": None if math.isnan(measured) else measured,
            "met": "not measured"
            if math.isnan(measured)
            else ("yes" if measured >= required else "no"),
        }
        for name, required, measured in goals
    ]


def stop_on_sigterm(*_: object) -> None:
    """Handle SIGTERM as Ctrl-C: end the part that is running and remove the scratch files."""
    sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop_on_sigterm)
    sys.exit(main())
