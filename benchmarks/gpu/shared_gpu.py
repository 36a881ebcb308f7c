"""Run virnucpro with the first GPU listed several times, so that several workers share it.

    python -m benchmarks.gpu.shared_gpu 2 predict contigs.fa -o results --gpus 0,1

The rates are not those of several GPUs. It shows that the pool, the scheduler and the host keep up
with several workers of CUDA, where a machine has one GPU.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from virnucpro import devices
from virnucpro.__main__ import main
from virnucpro.contracts import Device


def list_gpu_several_times(count: int) -> None:
    """Have ``virnucpro.devices.visible_gpus`` return the first GPU ``count`` times."""
    read_gpus = devices.visible_gpus

    def visible_gpus() -> list[Device]:
        return [replace(gpu, index=index) for gpu in read_gpus()[:1] for index in range(count)]

    devices.visible_gpus = visible_gpus


if __name__ == "__main__":
    list_gpu_several_times(int(sys.argv.pop(1)))
    main()
