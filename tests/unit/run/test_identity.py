"""What a run depends on: every setting that decides results is part of every fingerprint."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from virnucpro.configuration import Configuration
from virnucpro.contracts import Task
from virnucpro.run.prepare import Models, identity
from virnucpro.run.request import PredictionRequest
from virnucpro.settings import NAMES_OF_MODELS, SETTINGS, AnalysisSettings
from virnucpro.stages.embedding import EncoderSetup
from virnucpro.store.documents import digest
from virnucpro.store.ledger import fingerprint
from virnucpro.store.work import RunIdentity

FASTA = Mock(sha256="of the input")
OTHERS = {"duplicate_ids": "rename", "precision": "bf16", "dedup": False}


@dataclass(frozen=True)
class MoreSettings(AnalysisSettings):
    """Settings with one that a developer has just added."""

    ambiguous: str = "skip"


def _identity(analysis: AnalysisSettings) -> RunIdentity:
    settings = Configuration(replace(analysis, model_type="toy"))
    request = PredictionRequest("in.fa", Path("out"), settings)
    encoders = EncoderSetup(
        {"nucleotide": Mock(sha256="n")}, analysis.precision, analysis.truncation
    )
    models = Models(encoders, Mock(file=Mock(sha256="c")), {})
    return identity(request, models, [FASTA], None)


@pytest.mark.parametrize("name", [field.name for field in fields(AnalysisSettings)])
def test_each_setting_is_part_of_every_fingerprint_but_names_of_models(name):
    usual = AnalysisSettings()
    other = OTHERS.get(name, 77 if SETTINGS[name].type is not str else "other")
    task = Task("any", 1, (), (), Path("receipt"))
    before, after = (
        fingerprint(task, [], digest(asdict(_identity(each))))
        for each in (usual, replace(usual, **{name: other}))
    )
    assert (before == after) is (name in NAMES_OF_MODELS)


def test_a_setting_that_no_fingerprint_has_ends_the_first_run():
    with pytest.raises(TypeError, match="ambiguous"):
        _identity(MoreSettings())
