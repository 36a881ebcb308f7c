"""The models that the original program ran with, as options of ours."""

from __future__ import annotations

from pathlib import Path

import pytest


def reference_options(reference: Path, folder: Path, *, dedup: str = "false") -> list[str]:
    """Return options that make ``predict`` use them; the configuration is written to ``folder``.

    Every frame is embedded, as the original does, so that split files and features can be compared.
    """
    models = reference / "models"
    config = folder / "reference.yaml"
    config.write_text(
        f"prediction:\n  sequences_per_file: 25\n  dedup: {dedup}\n"
        f"features:\n  dnabert:\n    model_name: {models / 'dnabert-s-tiny'}\n"
        f"  esm:\n    model_name: {models / 'esm2_t3_tiny_UR50D.pt'}\n"
    )
    classifier = str(models / "mlp_160_24.pth")
    return ["-c", str(config), "-m", "custom", "-p", classifier, "-e", "500"]


@pytest.fixture(scope="session")
def options(reference: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options that make ``predict`` use the reference models, as the original run did."""
    return reference_options(reference, tmp_path_factory.mktemp("config"))
