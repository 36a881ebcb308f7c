"""Compute the rates to expect of a GPU. Nothing here is measured.

    python -m benchmarks.expected_rates

It prints the table of GPU_OPTIMIZATION.md. The work per frame of a 500 bp chunk is counted. The rates
of the GPUs are those of their data sheets, except for the H200, whose bf16 rate is that of a product
of 8,192 squared in torch. The shares of these rates are the goals of this program.
"""

from __future__ import annotations

# Operations per frame: of ESM-2 3B on 168 tokens, with those of attention, and of DNABERT-S on 100.
ESM_FLOPS, DNABERT_FLOPS = 0.962e12, 0.023e12
# Operations per second in fp32 and in bf16.
GPU_RATES = {"H200": (67e12, 790e12), "A100": (19.5e12, 312e12), "RTX 4090": (82.6e12, 165e12)}
WITHOUT_FP8 = ("A100",)
# The share of the bf16 rate that ESM-2 reaches is the goal; the original is assumed to reach the same
# share of the fp32 rate. That of DNABERT-S makes 10,000 sequences per second on an H200.
ESM_SHARE, DNABERT_SHARE = 0.75, 0.29
FP8_GAIN = 1.4  # times bf16, in ESM-2: the goal
SAMPLE_HOURS = 45  # of the sample in the original


def frames_per_second(bf16_rate: float, esm_gain: float = 1.0) -> float:
    """Return the rate of both encoders in turn; ESM-2 is ``esm_gain`` times as fast as in bf16."""
    esm_seconds = ESM_FLOPS / (ESM_SHARE * bf16_rate * esm_gain)
    return 1 / (esm_seconds + DNABERT_FLOPS / (DNABERT_SHARE * bf16_rate))


def main() -> None:
    """Print a row per GPU."""
    print("| GPU | original, frames/s | bf16, frames/s | fp8, frames/s "
          f"| the {SAMPLE_HOURS} h in bf16 | on 8 |")  # fmt: skip
    print("|---|---:|---:|---:|---:|---:|")
    for name, (fp32_rate, bf16_rate) in GPU_RATES.items():
        original, bf16 = ESM_SHARE * fp32_rate / ESM_FLOPS, frames_per_second(bf16_rate)
        fp8 = "-" if name in WITHOUT_FP8 else f"{frames_per_second(bf16_rate, FP8_GAIN):.0f}"
        hours = SAMPLE_HOURS * original / bf16
        on_eight = f"{60 * hours / 8:.0f} min" if hours < 8 else f"{hours / 8:.1f} h"
        print(f"| {name} | {original:.0f} | {bf16:.0f} | {fp8} | {hours:.1f} h | {on_eight} |")


if __name__ == "__main__":
    main()
