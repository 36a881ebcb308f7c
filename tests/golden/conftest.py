"""The models that the original program ran with, as options of ours."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def options(reference: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options that make ``predict`` use the reference models, as the original run did."""
    models = reference / "models"
    config = tmp_path_factory.mktemp("config") / "reference.yaml"
    config.write_text(
        f"prediction:\n  sequences_per_file: 25\n"
        f"features:\n  dnabert:\n    model_name: {models / 'dnabert-s-tiny'}\n"
        f"  esm:\n    model_name: {models / 'esm2_t3_tiny_UR50D.pt'}\n"
    )
    classifier = str(models / "mlp_160_24.pth")
    return ["-c", str(config), "-m", "custom", "-p", classifier, "-e", "500"]
