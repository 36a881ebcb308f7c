"""DNABERT-S on the disk: its sizes, the names of its weights, its tokenizer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from virnucpro.encoders.weights import counts, number, read_json
from virnucpro.errors import ModelError

_COUNTS = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "type_vocab_size",
)
# Our parameter names and the stored ones.
_ENDS = {
    "embed": "embeddings.word_embeddings",
    "kind": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
}
_LAYER = {
    "qkv": "attention.self.Wqkv",
    "out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "gated": "mlp.gated_layers",
    "wo": "mlp.wo",
    "mlp_norm": "mlp.layernorm",
}


@dataclass(frozen=True)
class Sizes:
    """What a model is built from; ``eps`` is that of its layer norms, ``kinds`` of token types."""

    layers: int
    width: int
    heads: int
    feed_forward: int
    eps: float
    vocabulary: int
    kinds: int


def read_sizes(folder: Path) -> Sizes:
    """Sizes from ``config.json``. Raises ModelError where one is missing or impossible."""
    path = folder / "config.json"
    config = read_json(path)
    layers, width, heads, feed_forward, vocabulary, kinds = counts(config, _COUNTS, path)
    if width % heads:
        raise ModelError(f"{path}: hidden_size {width} does not divide by {heads} heads")
    return Sizes(
        layers,
        width,
        heads,
        feed_forward,
        number(config, "layer_norm_eps", path),
        vocabulary,
        kinds,
    )


def stored_names(state: Iterable[str]) -> dict[str, tuple[str]]:
    """Stored name of each parameter that a model's ``state_dict`` has."""
    names: dict[str, tuple[str]] = {}
    for name in state:
        *outer, part, kind = name.split(".")
        stored = f"encoder.layer.{outer[1]}.{_LAYER[part]}" if outer else _ENDS[part]
        names[name] = (f"{stored}.{kind}",)
    return names


def read_tokenizer(path: Path, vocabulary: int) -> Tokenizer:
    """The byte-pair tokenizer, without padding or truncation.

    Raises:
        ModelError: damaged, without ``[CLS] ... [SEP]``, or of more than ``vocabulary`` tokens.
    """
    content = read_json(path)
    # The library raises a bare Exception on a file it does not understand: look before.
    if not isinstance(content.get("model"), dict) or "vocab" not in content["model"]:
        raise ModelError(f"{path} has no vocabulary: it is no tokenizer file, fetch it again")
    tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if tokenizer.get_vocab_size() > vocabulary:
        raise ModelError(
            f"{path} has {tokenizer.get_vocab_size()} tokens, the model {vocabulary}: the two do "
            f"not belong together"
        )
    if len(tokenizer.encode("").ids) != 2:
        raise ModelError(f"{path} does not put [CLS] and [SEP] around a sequence: fetch it again")
    return tokenizer
