"""One model: ours and its peers at every precision, checked, then timed in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median

import torch

from virnucpro.benchmark.contenders import (
    FAIR,
    HUB,
    ONE_BY_ONE,
    OURS,
    Contender,
    fair_esm,
    hub_esm,
    one_by_one,
    ours,
)
from virnucpro.benchmark.machine import Product, peak_memory, synchronise
from virnucpro.benchmark.measuring import ROUNDS, Agreement, Verdict, agreement, in_turns
from virnucpro.benchmark.models import Model, frequencies, linear_flops, timed_open, work_of
from virnucpro.contracts import Json
from virnucpro.encoders.batched import BatchedEncoder
from virnucpro.encoders.esm2 import Esm2Encoder
from virnucpro.precision import PRECISIONS

Say = Callable[[str], None]
# By precision: operations of a matrix product, and the seconds it took in each round.
Products = Mapping[str, tuple[int, Sequence[float]]]


@dataclass(frozen=True)
class Plan:
    """How to measure.

    Attributes:
        device: ``cpu`` or ``cuda``, the only one visible.
        budget: tokens or sequences a batch; None as predict finds it.
        seconds: of calls to each implementation, on average and at least.
        peers: whether other implementations are measured too.
        compile: whether ours are compiled on a GPU.
    """

    device: str
    precisions: Sequence[str]
    budget: int | None
    seconds: float
    peers: bool
    compile: bool


@dataclass
class Entry:
    """A contender and what was found out about it.

    Attributes:
        first: seconds of the first call, which is not timed among the others.
        memory: bytes of GPU memory in that call, without its weights.
        timed: seconds of each call of all ``sequences``; empty where it was not timed.
        waited: seconds of them in which there were no tokens; None where that is not known.
    """

    contender: Contender
    verdict: Verdict
    agreement: Agreement | None
    first: float
    memory: int | None
    timed: Sequence[float] = field(default_factory=list)
    waited: float | None = None


def measure_model(model: Model, sequences: Sequence[str], plan: Plan, say: Say) -> dict[str, Json]:
    """Figures of every contender; one that gives other rows than ours in fp32 is not timed.

    Raises:
        UsageError, ModelError: the model cannot be opened.
        torch.OutOfMemoryError: it does not fit.
    """
    entries = _checked(model, sequences, plan, say)
    encoder = entries[0].contender.encoder
    tokens, flops = work_of(encoder, sequences)
    products = _time(model, entries, sequences, plan, say)
    results = [_described(entry) | _figures(entry, len(sequences), tokens, flops, products)
               for entry in entries]  # fmt: skip
    _add_ratios(results)
    return {
        "model": model.name,
        "family": model.family,
        "weights": "random" if model.source is None else "real",
        "parameters": sum(p.numel() for p in encoder.network.parameters()),
        "linear_flops_a_token": linear_flops(encoder.network),
        "sequences": len(sequences),
        "tokens": tokens,
        "flops": flops,
        "matmul_flops_a_second": {p: done / median(s) for p, (done, s) in products.items()},
        "results": results,
    }


def _contenders(model: Model, plan: Plan, say: Say) -> Iterator[Contender]:
    """In the order of their turns; ours in fp32 first where anything is compared with it."""
    wanted = sorted(plan.precisions, key=lambda p: p != "fp32")
    both: list[str] = ["fp32", *wanted]
    for precision in dict.fromkeys(both if plan.peers else wanted):
        say(f"{model.name}: opening in {precision}")
        encoder, seconds = timed_open(model, plan.device, precision, plan.budget)
        peers = list(_peers(model, plan, encoder, precision))  # lent weights that are not packed
        if plan.device == "cpu":
            encoder.pack()
        elif plan.compile:
            say(f"{model.name}: compiling")
            encoder.compile()
        yield ours(encoder, precision, seconds)
        yield from peers


def _peers(
    model: Model, plan: Plan, encoder: BatchedEncoder, precision: str
) -> Iterator[Contender]:
    """Other implementations with the weights of ``encoder``."""
    if not plan.peers:
        return
    if isinstance(encoder, Esm2Encoder):
        lent = frequencies(model, encoder)
        peers = [fair_esm(encoder, lent)] if precision == "fp32" else []
        if precision in plan.precisions and PRECISIONS[precision].linear_layers == "cast":
            peers.append(hub_esm(encoder, lent, precision))
        yield from (peer for peer in peers if peer is not None)
    elif precision == "fp32":
        yield one_by_one(encoder)


def _checked(model: Model, sequences: Sequence[str], plan: Plan, say: Say) -> list[Entry]:
    """The first call of each contender, and whether its rows are those of the first one."""
    entries: list[Entry] = []
    reference: torch.Tensor | None = None
    for contender in _contenders(model, plan, say):
        say(f"{model.name}: checking {contender.name}")
        started = time.perf_counter()
        rows, memory = peak_memory(contender.encoder.device, partial(contender.embed, sequences))
        first = time.perf_counter() - started
        if reference is None:
            reference = rows
            entries.append(Entry(contender, "reference", None, first, memory))
            continue
        compared = agreement(rows, reference)
        verdict = compared.verdict(contender.precision)
        entries.append(Entry(contender, verdict, compared, first, memory))
    return entries


def _time(
    model: Model, entries: Sequence[Entry], sequences: Sequence[str], plan: Plan, say: Say
) -> Products:
    """Time what is to be timed, and a matrix product at each precision between."""
    due = [entry for entry in entries if _is_due(entry, plan)]
    device = entries[0].contender.encoder.device
    products = {p: Product(device, p) for p in dict.fromkeys(e.contender.precision for e in due)}
    for product in products.values():
        _timed(product, device)()  # warm
    least = ROUNDS * sum(entry.first for entry in due)
    expected = max(least, plan.seconds * (len(due) + len(products)))
    say(f"{model.name}: timing {len(due)} implementations in turns, some {expected:.0f} s")
    waited = [entry.contender.encoder.host_wait_seconds for entry in due]
    works = [_timed(partial(entry.contender.embed, sequences), device) for entry in due]
    works += [_timed(product, device) for product in products.values()]
    spent = in_turns(works, plan.seconds)
    for entry, seconds, before in zip(due, spent, waited, strict=False):
        entry.timed = seconds
        if entry.contender.implementation in (OURS, ONE_BY_ONE):
            entry.waited = entry.contender.encoder.host_wait_seconds - before
    measured = zip(products.items(), spent[len(due) :], strict=True)
    return {precision: (product.flops, seconds) for (precision, product), seconds in measured}


def _is_due(entry: Entry, plan: Plan) -> bool:
    """Ours in fp32 may be there for the others alone."""
    asked = entry.contender.precision in plan.precisions
    return entry.verdict != "differs" and (asked or entry.contender.implementation != OURS)


def _timed(work: Callable[[], object], device: torch.device) -> Callable[[], None]:
    """``work`` that returns when the device has done it."""

    def whole() -> None:
        work()
        synchronise(device)

    return whole


def _described(entry: Entry) -> dict[str, Json]:
    contender, compared = entry.contender, entry.agreement
    memory = None if entry.memory is None else entry.memory + contender.weights
    return {
        "implementation": contender.implementation,
        "precision": contender.precision,
        "batches": contender.batches,
        "attention": contender.attention,
        "check": entry.verdict,
        "least_cosine": None if compared is None else compared.cosine,
        "largest_difference": None if compared is None else compared.difference,
        "peak_memory": memory,
        "load_seconds": contender.load_seconds,
        **_compilation(contender),
        "first_call_seconds": entry.first,
        "seconds": list(entry.timed),
    }


def _compilation(contender: Contender) -> dict[str, Json]:
    """Whether it is compiled, in how many seconds, or why not; the others never are."""
    facts = contender.encoder.facts() if contender.implementation == OURS else {}
    return {
        "compiled": facts.get("compiled", False),
        "compile_seconds": facts.get("compile_seconds", 0.0),
        "compile_failed": facts.get("compile_failed"),
    }


def _figures(
    entry: Entry, sequences: int, tokens: int, flops: int, products: Products
) -> dict[str, Json]:
    """Of the median call; empty where it was not timed."""
    if not entry.timed:
        return {}
    typical = median(entry.timed)
    product, seconds = products[entry.contender.precision]
    beside = ratio(seconds, entry.timed)
    return {
        "sequences_a_second": sequences / typical,
        "tokens_a_second": tokens / typical,
        "share_of_matmul": None if beside is None else flops / product * beside,
        "host_wait": None if entry.waited is None else entry.waited / sum(entry.timed),
    }


def _add_ratios(results: Sequence[dict[str, Json]]) -> None:
    """How many times as fast as the original's way, as transformers at the same precision, as bf16.

    The last is for ours alone.
    """
    original = _seconds(results, (FAIR, ONE_BY_ONE), "fp32")
    half = _seconds(results, (OURS,), "bf16")
    for row in results:
        hub = _seconds(results, (HUB,), row["precision"])
        row["ratio_to_original"] = ratio(original, row["seconds"])
        row["ratio_to_transformers"] = ratio(hub, row["seconds"])
        own = row["implementation"] == OURS
        row["ratio_to_bf16"] = ratio(half, row["seconds"]) if own else None


def _seconds(
    results: Sequence[dict[str, Json]], names: Sequence[str], precision: str
) -> Sequence[float]:
    of = (r for r in results if r["implementation"] in names and r["precision"] == precision)
    return next((row["seconds"] for row in of), [])


def ratio(others: Sequence[float], ours: Sequence[float]) -> float | None:
    """Median over the rounds: a slow moment meets both; None where one was not timed."""
    if not others or not ours:
        return None
    return median(other / own for other, own in zip(others, ours, strict=True))
