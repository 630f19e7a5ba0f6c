"""The notebooks of the documentation run, and the site shows them with their outputs."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("nbclient", reason="the extra docs is not installed")

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def notebooks():
    """Return the extension of the site."""
    sys.path.insert(0, str(DOCS))
    try:
        from build_site import notebooks
    finally:
        sys.path.remove(str(DOCS))
    return notebooks


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of nbclient's libraries
@pytest.mark.parametrize("name", ["first-steps", "graphs-and-traces", pytest.param("cluster", marks=pytest.mark.slow)])
def test_a_notebook_runs(notebooks, name):
    """Each cell runs and shows an object once; the page has outputs, pictures with texts, and no dead link."""
    notebook = notebooks.executed(notebooks.NOTEBOOKS / f"{name}.ipynb")
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert {output.output_type for cell in cells for output in cell.outputs} <= {"execute_result", "stream"}
    assert not [output for cell in cells for output in cell.outputs if output.get("name") == "stderr"]
    text, pictures = notebooks.page_of(notebook, name)
    assert text.count("```text\n") + text.count("```{image}") >= 3
    assert set(re.findall(r"\{image\} (\S+)", text)) == set(pictures)
    assert not re.findall(r":alt: (?:A picture)?\n", text)
    pages = {f"{path.stem}.md" for path in notebooks.NOTEBOOKS.glob("*.ipynb")}
    for link in set(re.findall(r"\]\(([^)#:]+)[)#]", text)) - pages:
        assert (notebooks.GENERATED / link).resolve().exists()


def test_notebooks_are_committed_without_outputs():
    """A notebook has no outputs and no numbers of executions, so that a change of it can be read."""
    paths = sorted(DOCS.glob("notebooks/*.ipynb"))
    assert [path.stem for path in paths] == ["cluster", "first-steps", "graphs-and-traces"]
    for path in paths:
        cells = json.loads(path.read_text("utf-8"))["cells"]
        assert cells[0]["source"][0].startswith("# ")
        assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]
