"""``benchmarks.encoders`` and what it rests on: the check, the turns, the lengths, the clocks."""

from __future__ import annotations

import json
import sys
import time
from types import SimpleNamespace

import pytest
import torch

from benchmarks import encoders, timing
from benchmarks.calls import main as compare_calls
from benchmarks.encoders import compared, measured_precisions
from benchmarks.models import count_work, parse_model, random_encoder, random_frames
from benchmarks.peers import fair_esm, own_embed, transformers_esm
from benchmarks.timing import ClockSampler, MatrixProduct, ratio, time_in_turns
from virnucpro.contracts import Device

PROTEINS = random_frames("500", 8)["protein"]
CPU = torch.device("cpu")
PEERS = {"fair-esm": fair_esm, "transformers": transformers_esm}


def opened(precision="fp32"):
    return random_encoder("esm2", "2x48x4", "cpu", precision)


@pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)
def test_peers_compute_with_our_weights(peer):
    encoder = opened()
    found = compared(peer(encoder)(PROTEINS), own_embed(encoder)(PROTEINS), "fp32")
    assert found["check"] == "same"
    assert found["largest_difference"] < 1e-5


@pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)
@pytest.mark.parametrize("name", ["embed.weight", "blocks.1.qkv.weight", "blocks.0.fc2.bias"])
def test_the_check_fails_where_weights_differ(peer, name):
    encoder = opened()
    exact, embed = own_embed(encoder)(PROTEINS), peer(encoder)
    weight = encoder.network.get_parameter(name)  # the peer's, too
    weight += 0.02 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    assert compared(embed(PROTEINS), exact, "fp32")["check"] == "differs"


def test_nothing_finite_is_not_the_same():
    rows = torch.ones(2, 3)
    assert compared(rows * float("nan"), rows, "bf16")["check"] == "differs"


def test_random_weights_are_the_same_in_every_precision():
    exact, other = (opened(p).network.state_dict() for p in ("fp32", "bf16"))
    for name, value in exact.items():
        assert torch.equal(other[name], value.to(other[name].dtype)), name


def test_operations_are_counted():
    tokens, flops = count_work(opened(), ["A" * 10, "A" * 10])
    assert tokens == 24
    assert flops == 24 * 2 * 2 * 12 * 48**2 + 2 * 4 * 48 * 2 * 12**2


def test_names_of_models():
    assert parse_model("DNABERT-S") == ("dnabert-s", "DNABERT-S")
    assert parse_model("esm2_t6_8M_UR50D") == ("esm2", "esm2_t6_8M_UR50D")
    assert parse_model("esm2:2x48x4") == ("esm2", "2x48x4")
    for unknown in ("esm2:", "esm1", "dnabert-s:huge", "esm2:DNABERT-S"):
        with pytest.raises(ValueError, match="neither"):
            parse_model(unknown)


@pytest.mark.parametrize(("mix", "longest"), [("500", (166, 499)), ("300", (100, 300))])
def test_lengths_are_those_of_full_chunks(mix, longest):
    frames = random_frames(mix, 300)
    proteins, nucleotides = (sorted(map(len, frames[m])) for m in ("protein", "nucleotide"))
    assert (proteins[-1], nucleotides[-1]) == longest
    assert proteins[len(proteins) // 2] >= longest[0] - 1  # most are full
    assert proteins[0] < 0.9 * longest[0]  # some are not
    assert frames == random_frames(mix, 300)


def test_work_takes_turns():
    order: list[str] = []
    works = {
        "slow": lambda: order.append("slow") or time.sleep(0.02),
        "fast": lambda: order.append("fast"),
    }
    rounds = [len(figures["fast"]["seconds"]) for figures in time_in_turns(works, CPU, 3)]
    assert order == ["slow", "fast"] * 3
    assert rounds == [1, 2, 3]
    *_, figures = time_in_turns(works, CPU, 3, 0.05)  # 0.1 s in all
    assert len(figures["slow"]["seconds"]) == len(figures["fast"]["seconds"]) > 3
    assert figures["slow"]["milliseconds"] >= 20
    assert ratio([2.0, 40.0, 4.0], [1.0, 10.0, 2.0]) == 2
    assert ratio([], [1.0]) is None


def test_a_slow_product_is_a_small_one(monkeypatch):
    """bf16 on a processor that emulates it: 13 seconds for matrices of 1,024."""
    seconds = {128: 0.001, 256: 0.14, 512: 1.9, 1024: 13.3}
    monkeypatch.setattr(MatrixProduct, "_seconds", lambda self, _: seconds[len(self._a)])
    assert MatrixProduct(CPU, "bf16").flops == 2 * 256**3


@pytest.mark.parametrize(
    ("capability", "names"),
    [((9, 0), ("fp32", "bf16", "fp16", "fp8")), ((8, 0), ("fp32", "bf16", "fp16")),
     ((7, 0), ("fp32", "fp16"))],
)  # fmt: skip
def test_precisions_that_are_measured_on_a_gpu(capability, names):
    assert measured_precisions(Device("cuda", 0, capability=capability)) == names


@pytest.mark.parametrize(("emulated", "names"), [((), ("fp32", "bf16")), (("bf16",), ("fp32",))])
def test_precisions_that_are_measured_on_a_cpu(monkeypatch, emulated, names):
    monkeypatch.setattr(encoders, "emulated_on_cpu", lambda name: name in emulated)
    assert measured_precisions(Device("cpu")) == names


def test_the_document(monkeypatch, tmp_path, capsys):
    saved = tmp_path / "figures.json"
    words = ["esm2:2x48x4", "dnabert-s:2x48x6", "--sequences", "6", "--seconds", "0"]
    words += ["--device", "cpu", "--precision", "fp32,bf16", "--json", str(saved)]
    monkeypatch.setattr(sys, "argv", ["encoders", *words])
    assert encoders.main() == 0
    esm, dnabert = json.loads(saved.read_bytes())["models"]
    names = [f"{row['implementation']} {row['precision']}" for row in esm["results"]]
    assert names == ["virnucpro fp32", "fair-esm fp32", "transformers fp32", "virnucpro bf16",
                     "transformers bf16"]  # fmt: skip
    names = [f"{row['implementation']} {row['precision']}" for row in dnabert["results"]]
    assert names == ["virnucpro fp32", "one by one fp32", "virnucpro bf16"]
    for model in (esm, dnabert):
        assert model["matmul_clocks"]["bf16"]["power_watts"] is None  # only a GPU tells it
        for row in model["results"]:
            assert row["check"] in ("reference", "same")
            typical = sorted(row["seconds"])[1]
            assert row["sequences_per_second"] == pytest.approx(6 / typical, rel=1e-3)
            assert row["tokens_per_second"] == pytest.approx(model["tokens"] / typical, rel=1e-3)
            assert row["share_of_matmul"] > 0
            assert (row["compile_seconds"], row["peak_memory"]) == (0, None)
    ours, fair, hub = esm["results"][:3]
    for other, name in ((fair, "original"), (hub, "transformers")):
        rounds = [b / a for a, b in zip(ours["seconds"], other["seconds"], strict=True)]
        assert ours[f"ratio_to_{name}"] == sorted(rounds)[1]
        assert other[f"ratio_to_{name}"] == 1
    assert dnabert["results"][0]["ratio_to_transformers"] is None
    assert "virnucpro bf16" in capsys.readouterr().out


def test_a_peer_that_cannot_be_imported_is_left_out(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "esm.data", None)
    words = ["esm2:2x48x4", "--sequences", "6", "--seconds", "0", "--precision", "fp32"]
    monkeypatch.setattr(sys, "argv", ["encoders", *words, "--device", "cpu"])
    assert encoders.main() == 0
    said = capsys.readouterr().out
    assert "fair-esm is left out, because it cannot be imported" in said
    assert "transformers fp32" in said


class DriverError(Exception):
    """What the driver raises for a value that it does not have."""


def test_a_gpu_is_read_while_it_computes(monkeypatch):
    def no_power(gpu):
        raise DriverError

    driver = SimpleNamespace(
        NVMLError=DriverError, NVML_CLOCK_SM=1, nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid, nvmlDeviceGetPowerUsage=no_power,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda gpu: 0x4 | 0x20,
        nvmlDeviceGetClockInfo=lambda gpu, kind: 1980 if gpu == "GPU-1234" else 0,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    monkeypatch.setattr(timing, "READ_SECONDS", 0.001)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="1234")
    )
    started = time.perf_counter()
    with ClockSampler(torch.device("cuda")) as sampler:
        while len(sampler.readings) < 3:
            time.sleep(0.001)
    assert sampler.during([(started, time.perf_counter())]) == {
        "sm_clock_mhz": 1980, "power_watts": None,
        "throttle_reasons": ["power limit", "temperature limit of the driver"],
    }  # fmt: skip


def test_only_readings_during_the_calls_count():
    sampler = ClockSampler(CPU)
    unknown = {"sm_clock_mhz": None, "power_watts": None, "throttle_reasons": []}
    assert sampler.during([(0.0, 9.0)]) == unknown
    sampler.readings = [(1.0, 1000, 300e3, 0), (2.0, 1200, 500e3, 4), (3.0, 1400, 600e3, 0),
                        (9.0, 100, 50e3, 8)]  # fmt: skip
    assert sampler.during([(0.5, 2.5), (2.9, 3.1)]) == {
        "sm_clock_mhz": 1200, "power_watts": 500, "throttle_reasons": ["power limit"],
    }  # fmt: skip
    assert sampler.during([(5.0, 6.0)]) == unknown


def test_calls_of_two_runs(call, tmp_path, monkeypatch, capfd):
    source = tmp_path / "in.fa"
    source.write_text("".join(f">r{n}\n{'GCAGGC' * (60 + 20 * n)}\n" for n in range(3)))
    for name in ("one", "two"):
        options = ("-o", tmp_path / name, "-m", "toy", "--device", "cpu", "-q")
        assert call("predict", source, *options).code == 0
    chunks = tmp_path / "two/in_chunks.tsv"
    lines = [line.split("\t") for line in chunks.read_text().splitlines()]
    columns = [lines[0].index(f"max_score_{n}") for n in (0, 1)]
    for line in lines[1:2]:  # the scores of one chunk change their places
        line[columns[0]], line[columns[1]] = line[columns[1]], line[columns[0]]
    chunks.write_text("".join("\t".join(line) + "\n" for line in lines))
    monkeypatch.setattr(sys, "argv", ["calls", str(tmp_path / "one"), str(tmp_path / "two")])
    compare_calls()
    said = capfd.readouterr().out.splitlines()
    count = len(lines) - 1
    assert said[-2].startswith(f"chunks: {count - 1} of {count} calls are the same")
    assert said[-1] == "contigs: 3 of 3 calls are the same: 100.000%"
