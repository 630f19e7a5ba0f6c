"""The parts of the site that the code fills, and the check of its links. `.ci/run` builds the site itself."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import offload

pytest.importorskip("sphinx.application", reason="the extra docs is not installed")
ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs"))  # where Sphinx finds the extensions of the site

from build_site import anchors, files, inventories, literals, reference, tables  # noqa: E402

MODULES = ["offload", *reference.MODULES]


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_an_entry(module):
    """The pages of the reference document each name in ``__all__`` once; a module in it has a page of its own."""
    pages = [reference.section(*section) for section in reference.sections()]
    if module != "offload":
        pages = [reference.module_page(module, reference.MODULES[module])]
    lines = [line for page in pages for line in page.splitlines() if line.startswith(".. ")]
    exports = importlib.import_module(module)
    for name in exports.__all__:
        full_name = f"{module}.{name}"
        if getattr(getattr(exports, name), "__name__", "") in reference.MODULES:
            continue
        found = [line for line in lines if line.partition(":: ")[2].partition("(")[0] == full_name]
        assert len(found) == 1, full_name


def test_signatures_show_all_clauses():
    """The entry of a construct shows its clauses, and no argument that only type checkers know."""
    shown = reference.signature(offload.target)
    assert "map: Maps = ()" in shown
    assert "nowait: bool = False" in shown
    assert "Unpack" not in shown
    assert "unknown" not in reference.signature(offload.taskwait)


def test_a_constant_has_the_sentence_that_names_it():
    """Constants have no docstring, so an entry has the sentence of the module's docstring."""
    text = reference.constant("offload", "initial_device", offload.initial_device)
    assert ":value: -1" in text
    assert "device number of the host" in text


@pytest.mark.parametrize("module", tables.CONSTRUCTS)
def test_constructs_have_their_clauses(module):
    """The table has each construct with the clauses that its signature shows."""
    found = tables.constructs(module)
    assert {clause.name for clause in found["data" if module == "offload.acc" else "target"]} >= {"device", "if_"}
    assert not {clause.name for own in found.values() for clause in own} & tables.SUBJECTS
    text = tables.clauses()
    assert all(f"<{module}.{name}>` | `{own[0].name}`" in text for name, own in found.items())


def test_each_command_has_its_options():
    """The page of commands has each command that the parser knows, with its options."""
    text = tables.command_line()
    for name in ("run", "port", "demo fft3d", "bench", "info", "cache"):
        assert f"\n## `offload {name}`\n" in text
    assert "\n| `--trace FILE` | " in text
    assert "%(default)s" not in text


def test_each_variable_has_its_description():
    """docs/reference.md describes each variable that the settings have, and the page has their defaults."""
    program = "from offload.runtime.settings import read_settings; print(*read_settings({}).variables)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    # In a process of its own: here a test may have registered a kind of device with variables.
    assert set(found.stdout.split()) <= {name for name, _ in tables.described_variables()}
    assert "| `OFFLOAD_HANG_S` | `30.0` | " in tables.environment()


@pytest.mark.parametrize(
    ("text", "page", "expected"),
    [
        ("[a](../README.md#install)", "docs/tutorial.md", "[a](index.md#install)"),
        ("[a](tasks.md#replay)", "docs/tutorial.md", "[a](tasks.md#replay)"),
        ("[a](../../CONTRIBUTING.md#test)", "docs/design/rooms.md", "[a](../generated/contributing.md#test)"),
        ("[a](../tests/conftest.py)", "docs/tasks.md", "[a](repository:tests/conftest.py)"),
        ("[a](https://numpy.org)", "docs/tasks.md", "[a](https://numpy.org)"),
        ("`[a](../tests/x.py)`", "docs/tasks.md", "`[a](../tests/x.py)`"),
    ],
)
def test_links_lead_to_pages_of_the_site(text, page, expected):
    """Links that GitHub resolves lead to a page of the site, or to a page that shows the file; code stays as it is."""
    assert files.rewritten(text, page, page) == expected


def test_an_inventory_has_whole_addresses():
    """A list abbreviates a name by a dollar, and the inventory does not."""
    _, title, names = inventories.read("cupy")
    assert title == "CuPy"
    assert ("cupy.empty", "function", "reference/generated/cupy.empty.html#cupy.empty") in names


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("omp.target_memcpy_rect(b, a)", "offload.target_memcpy_rect"),
        ("cupy.cuda.Stream", "cupy.cuda.Stream"),
        ("np.zeros(n, like=a)", "numpy.zeros"),
    ],
)
def test_a_name_in_a_text_is_known(text, name):
    """Code of a page that names something here or in another project becomes a link to it."""
    assert literals.full_name(text) == name
    assert name in literals.known_names()


def test_the_check_finds_links_that_lead_nowhere(tmp_path):
    """A missing page, a missing anchor and a missing picture are problems; links to other sites are listed."""
    (tmp_path / "a.html").write_text(
        '<p id="x"><a href="b.html#y">1</a><a href="b.html#z">2</a><a href="c.html">3</a><img src="d.svg">'
        '<a href="#x">4</a><a href="https://numpy.org">5</a></p><pre>href="none.html"</pre>'
    )
    (tmp_path / "b.html").write_text('<h1 id="y">b</h1>')
    site = anchors.Site(tmp_path)
    assert [problem.partition(": ")[2].split()[0] for problem in site.problems()] == ["b.html#z", "c.html", "d.svg"]
    assert site.external == {"https://numpy.org"}


@pytest.mark.parametrize("project", inventories.projects())
def test_names_of_other_projects_exist(project):
    """Each name of an inventory can be had from the installed package."""
    *_, names = inventories.read(project)
    if project != "python":
        pytest.importorskip(project)
    for name, *_ in names:
        module, _, attribute = name.rpartition(".")
        while module and module not in sys.modules:
            try:
                importlib.import_module(module)
            except ImportError:
                module, _, first = module.rpartition(".")
                attribute = f"{first}.{attribute}"
        thing = sys.modules[module or "builtins"]
        for part in attribute.split("."):
            assert part in {"None", "True", "False"} or hasattr(thing, part), name
            thing = getattr(thing, part, None)


def test_a_name_in_a_link_gets_no_second_link():
    """A name stays as it is in a link, also in emphasized words of one, which HTML does not allow in another."""
    from docutils import nodes

    inside, outside = nodes.literal("", "omp.target"), nodes.literal("", "omp.target")
    nodes.paragraph("", "", nodes.reference("", "", nodes.inline("", "", inside)), outside)
    assert literals.is_linked(inside)
    assert not literals.is_linked(outside)
