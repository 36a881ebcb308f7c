"""Compute the rates to expect of a GPU. Nothing here is measured.

    python -m benchmarks.expected_rates

It prints the table of GPU_OPTIMIZATION.md. The work per frame of a 500 bp chunk is counted. The rates
of the GPUs are those of their data sheets, except for the H200, whose bf16 rate is that of a product
of 8,192 squared in torch. The shares of these rates are the goals of this program.
"""

from __future__ import annotations

ESM = 0.962e12  # operations of ESM-2 3B per frame of 168 tokens, with those of attention
DNABERT = 0.023e12  # operations of DNABERT-S per frame, some 100 tokens
RATES = {"H200": (67e12, 790e12), "A100": (19.5e12, 312e12), "RTX 4090": (82.6e12, 165e12)}
SHARE = 0.75  # of the rate that ESM-2 reaches: the goal in bf16; the original is assumed to reach it in fp32
DNABERT_SHARE = 0.29  # 10,000 sequences per second on an H200
FP8 = 1.3  # times bf16, in ESM-2
HOURS = 45  # of the sample in the original


def frames_per_second(bf16: float, gain: float = 1.0) -> float:
    """Return the rate of both encoders in turn, at ``bf16`` operations per second."""
    return 1 / (ESM / (SHARE * bf16 * gain) + DNABERT / (DNABERT_SHARE * bf16))


def main() -> None:
    """Print a row per GPU."""
    print(
        f"| GPU | original, frames/s | bf16, frames/s | fp8, frames/s | the {HOURS} h in bf16 | on 8 |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    for name, (fp32, bf16) in RATES.items():
        before, now = SHARE * fp32 / ESM, frames_per_second(bf16)
        small = "-" if name == "A100" else f"{frames_per_second(bf16, FP8):.0f}"
        hours = HOURS * before / now
        eight = f"{60 * hours / 8:.0f} min" if hours < 8 else f"{hours / 8:.1f} h"
        print(f"| {name} | {before:.0f} | {now:.0f} | {small} | {hours:.1f} h | {eight} |")


if __name__ == "__main__":
    main()
