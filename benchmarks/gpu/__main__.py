"""``python -m benchmarks.gpu facts OUT`` and ``python -m benchmarks.gpu decisions OUT``."""

from __future__ import annotations

import signal
import sys

from benchmarks.gpu.measure import main, stop_on_sigterm

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop_on_sigterm)
    sys.exit(main())
