"""Join encoders of separate trainings into one, side by side or averaged, with their classifiers.

    python examples/lite/join.py OUT ENCODER ENCODER... [--average] [--calibration CLASSIFIER]
    python examples/lite/train.py DATASET -o NEW --start-from OUT/lite_encoder.safetensors --steps 0

The joined network computes each network in a group of its channels, and its embedding has theirs
one after the other. The log odds are the mean of theirs. With --average, each weight is the mean of
theirs instead, for encoders that were trained further from the same one (Wortsman et al. 2022,
"Model soups"); one that is named twice counts twice. The second command fits one linear
classifier on the whole embedding, and calibrates it; where DATASET has no validation part, the
calibration of CLASSIFIER stays. An average needs no second command.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from train import CLASSIFIER, ENCODER

from virnucpro.classifier.files import classifier_to_bytes, inspect_classifier
from virnucpro.encoders.lite import LITE, LiteNetwork, LiteShape, lite_to_bytes, read_lite
from virnucpro.encoders.weights import read_safetensors
from virnucpro.store.disk import Disk
from virnucpro.store.hashed import hashed

POOLED = 5  # kinds of means in an embedding
BLOCKS = ("out.weight", "attention.weight", "hidden_layer.weight")


def joined(networks: list[LiteNetwork]) -> LiteNetwork:
    """Return one network that computes all of these, which have the same sizes."""
    shape, count = networks[0].shape, len(networks)
    sizes = count * shape.word_width, (count * shape.channels[0], count * shape.channels[1])
    more = shape.kernel, count * shape.heads, count * shape.dim, count * shape.groups
    wide = LiteNetwork(LiteShape(*sizes, *more))
    content = side_by_side([network.state_dict() for network in networks])
    # The same kind of mean of all networks comes together.
    last = shape.channels[-1]
    order = torch.arange(count * POOLED * last).view(count, POOLED, last).transpose(0, 1).flatten()
    for name, value in content.items():
        if name.startswith("pooled_norm") and value.ndim:
            content[name] = value[order]
    content["out.weight"] = content["out.weight"][:, order]
    wide.load_state_dict(content)
    return wide.eval()


def side_by_side(states: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Return weights of which each part belongs to one of the networks."""
    content = {}
    for name, first in states[0].items():
        parts = [state[name] for state in states]
        if name in BLOCKS:
            content[name] = torch.block_diag(*parts)  # type: ignore[no-untyped-call]
        elif name.endswith("vectors.weight"):
            content[name] = torch.cat(parts, dim=1)
        else:
            content[name] = torch.cat(parts) if first.ndim else first
    return content


def average(states: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Return the mean of each weight."""
    means = {}
    for name, first in states[0].items():
        parts = torch.stack([state[name].double() for state in states])
        means[name] = parts.mean(dim=0).to(first.dtype)
    return means


def main() -> None:
    """Read, join and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("encoders", type=Path, nargs="+")
    parser.add_argument("--average", action="store_true")
    parser.add_argument("--calibration", type=Path)
    options = parser.parse_args()
    disk, paths = Disk(), options.encoders
    disk.make_folder(options.out)
    parts = {"joined": " ".join(hashed(path).sha256 for path in paths)}
    networks = [*map(read_lite, paths)]
    heads = [path.with_name(CLASSIFIER) for path in paths]
    states = [read_safetensors(head) for head in heads]
    weights = average(states)
    if options.average:
        network = networks[0]
        network.load_state_dict(average([each.state_dict() for each in networks]))
    else:
        network = joined(networks)
        bias = weights["output_layer.bias"]
        weights = side_by_side(states) | {"output_layer.bias": bias}
        outputs = [state["output_layer.weight"] / len(heads) for state in states]
        weights["output_layer.weight"] = torch.cat(outputs, dim=1)
    disk.save(options.out / ENCODER, lite_to_bytes(network, parts))
    known = inspect_classifier(options.calibration or heads[0])
    temperature, contigs = (known.temperature, known.contigs) if options.calibration else (None, {})
    extra = {**parts, "encoder_sha256": hashed(options.out / ENCODER).sha256}
    content = classifier_to_bytes(
        weights,
        encoders=(LITE.name,),
        chunk_lengths=known.chunk_lengths,
        extra=extra,
        temperature=temperature,
        contigs=contigs,
    )
    disk.save(options.out / CLASSIFIER, content)


if __name__ == "__main__":
    main()
