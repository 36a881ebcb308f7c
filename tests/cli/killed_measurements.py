"""Kill measurements at random moments, and look at what they leave: ``python FILE FOLDER``.

The parts are small scripts that save figures again and again. The process forks, because importing
torch takes longer than everything else.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import zipfile
from pathlib import Path

from benchmarks.gpu import measure
from benchmarks.gpu.measure import Measurements
from benchmarks.gpu.parts import SMALL, Part

KILLS = 8
PART = """
import json, time
from pathlib import Path
for number in range(30):
    new = Path({path!r} + ".new")
    new.write_text(json.dumps({{"points": [{{"budget": number, "tokens_per_second": 1.0}}]}}))
    new.replace({path!r})
    print(number, flush=True)
    time.sleep(0.005)
"""


def run_until_killed(folder: Path, seconds: float | None) -> float:
    """Measure in a child process, and kill it after ``seconds``; None waits for its end.

    Returns:
        the seconds that it took.
    """
    work, out = folder / "work", folder / "out"
    work.mkdir(parents=True)
    out.mkdir()
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        measure.REFRESH_SECONDS = 0.01
        scripts = ((name, PART.format(path=str(work / f"{name}.json"))) for name in "abcdef")
        parts = [Part(name, 60.0, (sys.executable, "-S", "-c", code)) for name, code in scripts]
        Measurements(SMALL, out, work, time.monotonic() + 600, {}).run(parts)
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return time.monotonic() - started


def measured(out: Path) -> tuple[int, int]:
    """Return how many parts and how many figures are left; raise where a file is not complete."""
    files = {path.name for path in out.iterdir()}
    assert files <= {"summary.json", "results.zip", "summary.json.new", "results.zip.new"}, files
    if "summary.json" not in files:
        return 0, 0
    parts = json.loads((out / "summary.json").read_bytes())["parts"]
    with zipfile.ZipFile(out / "results.zip") as archive:
        assert archive.testzip() is None
        names = [name for name in archive.namelist() if name.endswith(".json")]
        for name in names:
            json.loads(archive.read(name))
    assert len(parts) - len(names) in (0, 1), (len(parts), names)
    return len(parts), len(names)


def main() -> None:
    """Print what was left after each kill."""
    folder, draw = Path(sys.argv[1]), random.Random(5)
    sys.stdout.flush()
    left = []
    whole = run_until_killed(folder / "whole", None)  # a busy machine needs longer
    for number in range(KILLS):
        place = folder / str(number)
        run_until_killed(place, draw.uniform(0.03, 0.9) * whole)
        left.append(measured(place / "out"))
    print(json.dumps(left))


if __name__ == "__main__":
    main()
