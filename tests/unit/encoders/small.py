"""Small models with random weights, stored as the released ones are."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from benchmarks.models import write_dnabert
from virnucpro.encoders.registry import locate, open_encoder

ESM_LAYERS, ESM_WIDTH, ESM_HEADS = 2, 48, 4
LETTERS = "LAGVSERTIDPKQNFYMHWC"


def sequences(lengths, letters, seed=0):
    """Random sequences of these lengths."""
    random = torch.Generator().manual_seed(seed)
    return [
        "".join(letters[i] for i in torch.randint(len(letters), (n,), generator=random))
        for n in lengths
    ]


def quiet(sequences: int, tokens: int) -> None:
    """A report that nobody reads."""


def open_path(path, molecule="protein", precision="fp32", budget=None, truncation=1024):
    """Through the front door: find, then load onto the CPU."""
    source = locate(str(path), molecule)
    return open_encoder(source, "cpu", precision, budget=budget, truncation=truncation)


def randomised(module: torch.nn.Module, seed: int) -> torch.nn.Module:
    """Every parameter random, so that no forgotten one goes unseen; as float16 stores it."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            centre = 1.0 if "norm" in name.lower() and parameter.ndim == 1 else 0.0
            noise = torch.randn(parameter.shape, generator=random) * 0.15
            parameter.copy_((centre + noise).half())
    return module.eval()


def fair_model(layers=ESM_LAYERS, width=ESM_WIDTH, heads=ESM_HEADS, token_dropout=True):
    """fair-esm's own ESM-2, with the rotary frequencies rounded as in the released weights."""
    from esm.model.esm2 import ESM2

    model = ESM2(layers, width, heads, "ESM-1b", token_dropout)
    model = randomised(model, seed=layers * width)
    for layer in model.layers:
        frequencies = layer.self_attn.rot_emb.inv_freq
        frequencies.copy_(frequencies.half())
    return model


def save_fair(
    model, path: Path, cfg=argparse.Namespace, prefix="encoder.sentence_encoder."
) -> Path:
    """As fair-esm stores its checkpoints."""
    about = {
        "encoder_layers": model.num_layers,
        "encoder_embed_dim": model.embed_dim,
        "encoder_attention_heads": model.attention_heads,
        "token_dropout": model.token_dropout,
    }
    state = {prefix + key: value.half() for key, value in model.state_dict().items()}
    torch.save({"cfg": {"model": cfg(**about)}, "model": state}, path)
    return path


def hub_model(kind: str, **options):
    """A model of transformers, ``EsmModel`` or ``EsmForMaskedLM``."""
    import transformers

    about = {
        "vocab_size": 33,
        "hidden_size": ESM_WIDTH,
        "num_hidden_layers": ESM_LAYERS,
        "num_attention_heads": ESM_HEADS,
        "intermediate_size": 100,
        "position_embedding_type": "rotary",
        "token_dropout": True,
        "emb_layer_norm_before": False,
        "layer_norm_eps": 1e-5,
        "pad_token_id": 1,
        "mask_token_id": 32,
        "max_position_embeddings": 1026,
    }
    config = transformers.EsmConfig(**(about | options))
    return randomised(getattr(transformers, kind)(config), seed=5)


def save_hub(model, folder: Path, **options) -> Path:
    """``save_pretrained`` without its progress bar."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    model.save_pretrained(folder, **options)
    return folder


def make_dnabert(folder: Path) -> Path:
    """A folder with a DNABERT-S of 2 layers, width 48, 6 heads (no power of two).

    Its matrices are those of the benchmarks times 15: small ones would hide errors of attention.
    """
    write_dnabert(folder, "2x48x6", "cpu")
    path = folder / "pytorch_model.bin"
    state = torch.load(path, weights_only=True)
    larger = {name: value * 15 if value.dim() == 2 else value for name, value in state.items()}
    torch.save(larger, path)
    return folder
