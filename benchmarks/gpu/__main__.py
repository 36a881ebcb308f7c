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
REAL_TOKENS = 100  # of 499 bases with the real tokenizer; the random one makes some 130
# The goals: share of the matrix product, sequences per second of both encoders, fp8 over bf16.
MATMUL_SHARE, ESM_RATE, DNABERT_RATE, FP8_GAIN = 0.75, 600.0, 10_000.0, 1.4


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 where every part that was started succeeded, else 1."""
    started = time.monotonic()
    options = _options(arguments)
    scale = SMALL if options.small else _scale_of_gpu()
    out, earlier = options.out.absolute(), options.earlier or options.out
    out.mkdir(parents=True, exist_ok=True)
    if options.scratch is not None:
        options.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="virnucpro-gpu-", dir=options.scratch) as folder:
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
    parser.add_argument("--scratch", type=Path, help="folder for models of 6 GB, for a while")
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
    if gpus[0].capability < PRECISIONS["fp8"].capability:
        print(f"{gpus[0].name} has no fp8: fp16 is measured in its place", flush=True)
        return replace(REAL, eighth="fp16")
    return REAL


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
        print(f"{goal['goal']:78} {goal['required']:9,.2f} {goal['measured']}  {goal['met']}")
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


Row = Mapping[str, Any]


def compare_with_goals(rows: Mapping[str, Row], scale: Scale) -> list[dict[str, Any]]:
    """Return the goals of the models alone, and of the same models in a whole run."""
    half, eighth, esm_name = scale.half, scale.eighth, f"ESM-2 {scale.esm}"
    esm, dnabert = (_own(rows, part, half) for part in ("esm2", "dnabert-s"))
    pool, other_pool = (
        _figures(rows, f"pool-{p}").get("rates", {}).get("protein_embeddings", {})
        for p in (half, eighth)
    )
    model = (_figures(rows, "esm2").get("models") or [{}])[0]
    rate, tokens = "sequences_per_second", "tokens_per_second"
    per_token = _quotient(model, "flops", model, "tokens")
    pool_tokens = pool.get(f"{tokens}_of_worker")
    in_pool = {"flops": pool_tokens * per_token} if pool_tokens and per_token else {}
    frame, real = {"one": FULL_FRAME}, {"one": REAL_TOKENS}
    eighth_esm, half_esm = (_own(rows, "esm2-fp8", p) for p in (eighth, half))
    eighth_dnabert, half_dnabert = (_own(rows, "dnabert-s-fp8", p) for p in (eighth, half))
    matmul = model.get("matmul_flops_per_second", {})
    goals = (
        (f"{esm_name} {half}, share of the matrix product", MATMUL_SHARE,
         esm.get("share_of_matmul")),
        (f"{esm_name} {half}, sequences of {FULL_FRAME} tokens per second", ESM_RATE,
         _quotient(esm, tokens, frame, "one")),
        (f"{esm_name} {eighth}, times {half}", FP8_GAIN, _quotient(eighth_esm, rate, half_esm, rate)),
        (f"{scale.dnabert} {half}, sequences per second", DNABERT_RATE, dnabert.get(rate)),
        (f"{scale.dnabert} {half}, sequences of {REAL_TOKENS} tokens per second", DNABERT_RATE,
         _quotient(dnabert, tokens, real, "one")),
        (f"{scale.dnabert} {eighth}, times {half}", FP8_GAIN,
         _quotient(eighth_dnabert, rate, half_dnabert, rate)),
        (f"{esm_name} {half} through the pool, share of the matrix product", MATMUL_SHARE,
         _quotient(in_pool, "flops", matmul, half)),
        (f"{esm_name} {half} through the pool, sequences of {FULL_FRAME} tokens per second",
         ESM_RATE, _quotient(pool, f"{tokens}_of_worker", frame, "one")),
        (f"{esm_name} {eighth} through the pool, times {half}", FP8_GAIN,
         _quotient(other_pool, f"{rate}_of_worker", pool, f"{rate}_of_worker")),
    )  # fmt: skip
    return [
        {"goal": goal, "required": required, "measured": measured,
         "met": "not measured" if measured is None else "yes" if measured >= required else "no"}
        for goal, required, measured in goals
    ]  # fmt: skip


def _figures(rows: Mapping[str, Row], part: str) -> Row:
    figures: Row = rows.get(part, {}).get("figures", {})
    return figures


def _own(rows: Mapping[str, Row], part: str, precision: str) -> Row:
    """Return what was measured of this program in the first model of a part."""
    for model in _figures(rows, part).get("models", ()):
        for row in model["results"]:
            if row["implementation"] == "virnucpro" and row["precision"] == precision:
                found: Row = row
                return found
    return {}


def _quotient(one: Row, key: str, other: Row, other_key: str) -> float | None:
    """Divide two figures. The result is None where either was not measured."""
    dividend, divisor = one.get(key), other.get(other_key)
    return dividend / divisor if dividend is not None and divisor else None


def stop_on_sigterm(*_: object) -> None:
    """Handle SIGTERM as Ctrl-C: end the part that is running and remove the scratch files."""
    sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop_on_sigterm)
    sys.exit(main())
