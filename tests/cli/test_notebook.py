"""The notebook in examples: its cells print what is stored in it."""

from __future__ import annotations

import json
import os
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

NOTEBOOK = Path(__file__).parents[2] / "examples/python_api.ipynb"


def run_cells(document: dict, folder: Path) -> list[str]:
    """Run the code cells in ``folder``, and return what each prints."""
    names: dict[str, object] = {}
    printed = []
    before = Path.cwd()
    os.chdir(folder)
    try:
        for cell in document["cells"]:
            if cell["cell_type"] == "code":
                with redirect_stdout(StringIO()) as out:
                    exec(compile("".join(cell["source"]), NOTEBOOK.name, "exec"), names)
                printed.append(out.getvalue())
    finally:
        os.chdir(before)
    return printed


def test_the_cells_print_what_is_stored(tmp_path):
    document = json.loads(NOTEBOOK.read_text())
    outputs = [cell["outputs"] for cell in document["cells"] if cell["cell_type"] == "code"]
    assert run_cells(document, tmp_path) == ["".join(o[0]["text"]) for o in outputs]
