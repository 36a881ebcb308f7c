"""Measure one model: every implementation and precision is checked, then timed in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median

import torch

from virnucpro.benchmark.clocks import ClockSampler
from virnucpro.benchmark.implementations import (
    FAIR_ESM,
    ONE_BY_ONE,
    TRANSFORMERS,
    VIRNUCPRO,
    Implementation,
    other_implementations,
    own_implementation,
)
from virnucpro.benchmark.machine import MatrixProduct, peak_memory, synchronise
from virnucpro.benchmark.measuring import (
    ROUNDS,
    Agreement,
    Notify,
    Verdict,
    compare_rows,
    time_in_turns,
)
from virnucpro.benchmark.models import (
    BenchmarkModel,
    count_work,
    linear_flops,
    timed_open,
)
from virnucpro.contracts import Json
from virnucpro.encoders.batched import BatchedEncoder


@dataclass(frozen=True)
class TimedProduct:
    """A matrix product, and what was measured of it.

    Attributes:
        flops: the operations of a call.
        seconds: of the call of each round.
        clocks: the state of the GPU during these calls.
    """

    flops: int
    seconds: Sequence[float]
    clocks: Mapping[str, Json]


Products = Mapping[str, TimedProduct]  # by precision


@dataclass(frozen=True)
class MeasurementPlan:
    """How to measure.

    Attributes:
        device: ``cpu`` or ``cuda``, the only visible one.
        budget: tokens or sequences per batch; None for the budget that predict would take.
        seconds: the least time of calls to each implementation, on average.
        peers: whether other implementations are measured too.
        compile: whether this program's model is compiled on a GPU.
    """

    device: str
    precisions: Sequence[str]
    budget: int | None
    seconds: float
    peers: bool
    compile: bool


@dataclass
class Measurement:
    """An implementation and what was measured of it.

    Attributes:
        first: the seconds of the first call, which is not among ``timed``.
        memory: the bytes of GPU memory in that call, without the weights.
        timed: the seconds of each call with all sequences; empty where it was not timed.
        waited: the seconds of these without tokens; None where that is not known.
        clocks: the state of the GPU during these; see :meth:`ClockSampler.during`.
    """

    implementation: Implementation
    verdict: Verdict
    agreement: Agreement | None
    first: float
    memory: int | None
    timed: Sequence[float] = field(default_factory=list)
    waited: float | None = None
    clocks: Mapping[str, Json] = field(default_factory=dict)


def measure_model(
    model: BenchmarkModel, sequences: Sequence[str], plan: MeasurementPlan, notify: Notify
) -> Iterator[dict[str, Json]]:
    """Yield the results of every implementation so far, when one was checked and after every round.

    An implementation that gives other rows than ours in fp32 is not timed.

    Raises:
        UsageError, ModelError: the model cannot be opened.
        torch.OutOfMemoryError: the model does not fit into the memory.
    """
    measurements: list[Measurement] = []
    about: dict[str, Json] = {}
    for measurement in _checked(model, sequences, plan, notify):
        measurements.append(measurement)
        if not about:
            about = _about(model, measurement.implementation.encoder, sequences)
        yield about | _measured(measurements, about, {})
    for products in _time(model, measurements, sequences, plan, notify):
        yield about | _measured(measurements, about, products)


def _about(
    model: BenchmarkModel, encoder: BatchedEncoder, sequences: Sequence[str]
) -> dict[str, Json]:
    """Return what holds for all implementations of a model."""
    tokens, flops = count_work(encoder, sequences)
    return {
        "model": model.name,
        "family": model.family,
        "weights": "random" if model.source is None else "real",
        "parameters": sum(p.numel() for p in encoder.network.parameters()),
        "linear_flops_per_token": linear_flops(encoder.network),
        "sequences": len(sequences),
        "tokens": tokens,
        "flops": flops,
    }


def _measured(
    measurements: Sequence[Measurement], about: Mapping[str, Json], products: Products
) -> dict[str, Json]:
    """Return the rates of the matrix product and of every implementation, as far as measured."""
    results = [_described(m) | _rates(m, about, products) for m in measurements]
    _add_ratios(results)
    return {
        "matmul_flops_per_second": {p: t.flops / median(t.seconds) for p, t in products.items()},
        "matmul_clocks": {p: t.clocks for p, t in products.items()},
        "results": results,
    }


def _implementations(
    model: BenchmarkModel, plan: MeasurementPlan, notify: Notify
) -> Iterator[Implementation]:
    """Yield the implementations in the order of their turns.

    Ours in fp32 is the first where anything is compared with it.
    """
    requested = sorted(plan.precisions, key=lambda p: p != "fp32")
    both: list[str] = ["fp32", *requested]
    for precision in dict.fromkeys(both if plan.peers else requested):
        notify(f"{model.name}: opening in {precision}")
        encoder, seconds = timed_open(model, plan.device, precision, plan.budget)
        # The peers share these weights, so they are made before the weights are packed.
        peers = []
        if plan.peers:
            asked = precision in plan.precisions
            peers = list(
                other_implementations(model, encoder, precision, asked=asked, notify=notify)
            )
        if plan.device == "cpu":
            encoder.pack()
        elif plan.compile:
            notify(f"{model.name}: compiling")
            encoder.compile()
        yield own_implementation(encoder, precision, seconds)
        yield from peers


def _checked(
    model: BenchmarkModel, sequences: Sequence[str], plan: MeasurementPlan, notify: Notify
) -> Iterator[Measurement]:
    """Call each implementation once, and compare its rows with those of the first one."""
    reference: torch.Tensor | None = None
    for implementation in _implementations(model, plan, notify):
        notify(f"{model.name}: checking {implementation.name}")
        started = time.perf_counter()
        rows, memory = peak_memory(
            implementation.encoder.device, partial(implementation.embed, sequences)
        )
        first = time.perf_counter() - started
        if reference is None:
            reference = rows
            yield Measurement(implementation, "reference", None, first, memory)
            continue
        compared = compare_rows(rows, reference)
        verdict = compared.verdict(implementation.precision)
        yield Measurement(implementation, verdict, compared, first, memory)


def _time(
    model: BenchmarkModel,
    measurements: Sequence[Measurement],
    sequences: Sequence[str],
    plan: MeasurementPlan,
    notify: Notify,
) -> Iterator[Products]:
    """Time the implementations in turns with a matrix product at each precision.

    The calls are noted in ``measurements``, and the products so far are yielded, after each round.
    """
    timed = [measurement for measurement in measurements if _is_timed(measurement, plan)]
    device = measurements[0].implementation.encoder.device
    precisions = dict.fromkeys(m.implementation.precision for m in timed)
    products = {precision: MatrixProduct(device, precision) for precision in precisions}
    least = ROUNDS * sum(measurement.first for measurement in timed)
    expected = max(least, plan.seconds * (len(timed) + len(products)))
    notify(f"{model.name}: timing {len(timed)} implementations in turns, some {expected:.0f} s")
    waited = [measurement.implementation.encoder.host_wait_seconds for measurement in timed]
    works = [_timed(partial(m.implementation.embed, sequences), device) for m in timed]
    works += [_timed(product, device) for product in products.values()]
    with ClockSampler(device) as sampler:
        for calls in time_in_turns(works, plan.seconds):
            for measurement, own_calls, before in zip(timed, calls, waited, strict=False):
                measurement.timed = [call.seconds for call in own_calls]
                measurement.clocks = sampler.during(own_calls)
                encoder = measurement.implementation.encoder
                if measurement.implementation.program in (VIRNUCPRO, ONE_BY_ONE):
                    measurement.waited = encoder.host_wait_seconds - before
            yield {
                precision: TimedProduct(
                    product.flops, [call.seconds for call in own_calls], sampler.during(own_calls)
                )
                for (precision, product), own_calls in zip(
                    products.items(), calls[len(timed) :], strict=True
                )
            }


def _is_timed(measurement: Measurement, plan: MeasurementPlan) -> bool:
    """Return whether it is timed. Ours in fp32 may only serve as the reference."""
    asked = measurement.implementation.precision in plan.precisions
    return measurement.verdict != "differs" and (
        asked or measurement.implementation.program != VIRNUCPRO
    )


def _timed(work: Callable[[], object], device: torch.device) -> Callable[[], None]:
    """Return a function that does ``work`` and returns when the device has finished it."""

    def whole() -> None:
        work()
        synchronise(device)

    return whole


def _described(measurement: Measurement) -> dict[str, Json]:
    implementation, compared = measurement.implementation, measurement.agreement
    memory = None if measurement.memory is None else measurement.memory + implementation.weights
    return {
        "implementation": implementation.program,
        "precision": implementation.precision,
        "batches": implementation.batches,
        "attention": implementation.attention,
        "check": measurement.verdict,
        "least_cosine": None if compared is None else compared.cosine,
        "largest_difference": None if compared is None else compared.difference,
        "peak_memory": memory,
        "load_seconds": implementation.load_seconds,
        **_compilation(implementation),
        "first_call_seconds": measurement.first,
        "seconds": list(measurement.timed),
    }


def _compilation(implementation: Implementation) -> dict[str, Json]:
    """Return whether it is compiled, in how many seconds, or why not. Others never are.

    ``uncompiled_calls`` of compiled blocks ran as written, because of ``uncompiled_reason``.
    """
    facts = implementation.encoder.facts() if implementation.program == VIRNUCPRO else {}
    calls = implementation.encoder.block_calls
    return {
        "compiled": facts.get("compiled", False),
        "compile_seconds": facts.get("compile_seconds", 0.0),
        "compile_failed": facts.get("compile_failed"),
        "uncompiled_calls": calls.uncompiled if facts else 0,
        "uncompiled_reason": calls.reason if facts else "",
    }


def _rates(
    measurement: Measurement, about: Mapping[str, Json], products: Products
) -> dict[str, Json]:
    """Return the rates of the median call, or nothing where it was not timed."""
    if not measurement.timed:
        return {}
    typical = median(measurement.timed)
    product = products[measurement.implementation.precision]
    beside = ratio(product.seconds, measurement.timed)
    return {
        "sequences_per_second": about["sequences"] / typical,
        "tokens_per_second": about["tokens"] / typical,
        "share_of_matmul": None if beside is None else about["flops"] / product.flops * beside,
        "host_wait": None
        if measurement.waited is None
        else measurement.waited / sum(measurement.timed),
        **measurement.clocks,
    }


def _add_ratios(results: Sequence[dict[str, Json]]) -> None:
    """Add how many times as fast each is as others.

    It is compared with the way of the original, with transformers at the same precision and, for
    this program alone, with bf16.
    """
    original = _seconds(results, (FAIR_ESM, ONE_BY_ONE), "fp32")
    half = _seconds(results, (VIRNUCPRO,), "bf16")
    for row in results:
        hub = _seconds(results, (TRANSFORMERS,), row["precision"])
        row["ratio_to_original"] = ratio(original, row["seconds"])
        row["ratio_to_transformers"] = ratio(hub, row["seconds"])
        own = row["implementation"] == VIRNUCPRO
        row["ratio_to_bf16"] = ratio(half, row["seconds"]) if own else None


def _seconds(
    results: Sequence[dict[str, Json]], names: Sequence[str], precision: str
) -> Sequence[float]:
    of = (r for r in results if r["implementation"] in names and r["precision"] == precision)
    return next((row["seconds"] for row in of), [])


def ratio(others: Sequence[float], own: Sequence[float]) -> float | None:
    """Return the median ratio over the rounds, or None where one was not timed.

    A slow moment of the machine meets both in the same round.
    """
    if not others or not own:
        return None
    return median(b / a for b, a in zip(others, own, strict=True))
