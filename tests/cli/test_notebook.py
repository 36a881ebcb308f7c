"""The notebook in examples: its cells print what is stored in it."""

import json
from pathlib import Path

NOTEBOOK = Path(__file__).parents[2] / "examples/python_api.ipynb"


def test_the_cells_print_what_is_stored(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), NOTEBOOK.name, "exec"), names)
            assert capsys.readouterr().out == "".join(cell["outputs"][0]["text"])
