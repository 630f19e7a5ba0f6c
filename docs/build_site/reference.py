"""The pages of the reference: each public name with its signature, its types and its docstring.

``docs/reference.md`` lists the names in sections. This extension writes a page for each section that has names of
`offload`, and a page for each other module. Autodoc fills the pages. On ``docs/reference.md`` the names become links.

Three things differ from autodoc's own way:

* A signature shows all clauses, as ``help`` does. Autodoc would show the overloads that type checkers read.
* Words in the types of docstrings (``list of map clauses``) are prose. `resolve` links the names among them.
* A constant has no docstring. Its text is the sentence of its module's docstring that names it.
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from typing import TYPE_CHECKING, Any

from sphinx.pycode import ModuleAnalyzer

from build_site.files import DOCS, ROOT, write
from tests.docstrings import MEMBERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docutils import nodes
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

PAGES = DOCS / "generated/api"
NAMES = DOCS / "reference.md"

MODULES = {
    "offload.acc": "OpenACC: offload.acc",
    "offload.mpi": "MPI: offload.mpi",
    "offload.parray": "Array types: offload.parray",
    "offload.atomic": "Atomic updates: offload.atomic",
    "offload.sanitizer": "The sanitizer: offload.sanitizer",
    "offload.pragma": "Directive strings: offload.pragma",
}
"""The modules with a page of their own, and the titles of the pages."""

RESULTS = {
    "offload.constructs.clauses.maps": {"MapClause": ""},
    "offload.constructs.clauses.dependences": {"Dependence": "", "DepObj": "destroy, update"},
    "offload.constructs.target": {"TargetFunction": ""},
    "offload.constructs.task": {"TaskFunction": ""},
    "offload.constructs.taskgraph": {"TaskgraphFunction": "options, records", "Record": ""},
    "offload.constructs.groups": {"Taskgroup": ""},
    "offload.constructs.data": {"TargetData": ""},
    "offload.constructs.buffers": {"Buffers": ""},
    "offload.loops.functions": {"TargetLoop": "compile, explain, options, python, source"},
    "offload.loops.host_functions": {"HostLoop": ""},
    "offload.loops.explain": {"LoopReport": ""},
    "offload.loops.proofs.dependences": {"ProfiledDependence": "", "DependenceExample": ""},
    "offload.loops.speculative.candidate_report": {"CandidateReport": "", "LoopCandidate": ""},
    "offload.tasks.states": {"TaskState": ""},
    "offload.tasks.graph": {"Node": "", "Edge": "", "Run": ""},
    "offload.views.paths": {"CriticalPath": ""},
    "offload.reports.profile": {"RunProfile": "", "ProfileRow": "", "PathStep": "", "CopyRow": ""},
    "offload.devices.base": {"Device": ""},
    "offload.devices.host": {"Host": ""},
    "offload.acc.compute": {"ComputeFunction": ""},
    "offload.acc.loops": {"ParallelLoop": ""},
    "offload.acc.clauses": {"Zero": ""},
    "offload.parray.dimensions": {"Dimension": ""},
    "offload.parray.references": {"Reference": "", "Displacement": "", "Wrap": "", "TableReference": ""},
}
"""The classes of objects that constructs and routines return, with the members that a program may use."""

MORE_MEMBERS = {"TaskGraph": "profile trace"}
"""Members that ``docs/see-your-program.md`` shows."""

TYPES = ("offload.constructs.clauses.signatures", "offload.loops.signatures", "offload.acc.signatures")
"""The modules that define the types of clauses."""

NOT_CALLED = {"Task", "Interop", "TaskGraph", "DependenceProfile", "ArrayType", "Plan", "Tile", "Box"}
"""Public classes that a program does not call. Their pages show no parameters."""

ABBREVIATED = {"np.": "numpy.", "MPI.": "mpi4py.MPI.", "omp.": "offload.", "acc.": "offload.acc."}
ABSTRACT = ("Callable", "Coroutine", "Hashable", "Iterable", "Iterator", "Mapping", "Sequence")
ELSEWHERE = {
    **{name: f"collections.abc.{name}" for name in ABSTRACT},
    "DaskClient": "distributed.Client",
    "Future": "concurrent.futures.Future",
    "MPI": "mpi4py.MPI.Request",  # "MPI request" in the type of a parameter
}
"""Names in signatures and docstrings that other projects document."""

VARIABLES = {"Function", "P", "R", "Result_co"}
"""Variables of types, which have no entry."""


PROSE = re.compile(r"^[a-z][a-z0-9_-]*$|[^\w.]")
"""A word in the type of a parameter that is not a class: a word in lower case, or several words."""


def hide_overloads() -> None:
    """Have autodoc show the signature that a page gives."""
    for path in sorted((ROOT / "offload").rglob("*.py")):
        name = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        if "@overload" in path.read_text("utf-8"):
            analyzer = ModuleAnalyzer.for_module(name)
            analyzer.analyze()
            analyzer.overloads.clear()


def write_pages(app: Sphinx) -> None:
    """Write the pages of the reference."""
    hide_overloads()
    pages = {slug(title): section(title, names) for title, names in sections()}
    pages |= {name.replace(".", "-"): module_page(name, title) for name, title in MODULES.items()}
    pages["results"] = results()
    pages["types"] = types()
    for name, text in pages.items():
        write(PAGES / f"{name}.rst", text)
    for path in PAGES.glob("*.rst"):
        if path.stem not in pages:
            path.unlink()


def list_pages(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put the pages below ``docs/reference.md`` in the navigation."""
    if docname == "reference":
        pages = [slug(title) for title, _ in sections()] + [name.replace(".", "-") for name in MODULES]
        listed = "\n".join(f"generated/api/{page}" for page in [*pages, "results", "types"])
        source[0] += f"\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"


def slug(title: str) -> str:
    """Return the name of the page of a section."""
    return re.sub(r"\W+", "-", title.lower()).strip("-")


def sections() -> list[tuple[str, list[str]]]:
    """Return the sections of ``docs/reference.md`` that list names of `offload`, each name where it comes first."""
    offload = importlib.import_module("offload")
    left, found = set(offload.__all__), []
    for part in re.split(r"^## ", NAMES.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        title, _, text = part.partition("\n")
        text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        rows = re.findall(r"^\| ([^|]*) \|", text, re.MULTILINE) or [text]
        names = [name for row in rows for name in re.findall(r"`(\w+)`", row) if name in left]
        names = [name for name in dict.fromkeys(names) if not inspect.ismodule(getattr(offload, name))]
        left -= set(names)
        if names:
            found.append((title, names))
    return found


def heading(title: str, module: str) -> str:
    """Return the title of a page, and the module that its names belong to."""
    return f"{title}\n{'=' * len(title)}\n\n.. py:currentmodule:: {module}\n\n"


def section(title: str, names: list[str]) -> str:
    """Return the page of a section."""
    return heading(title, "offload") + "\n".join(entry("offload", name) for name in names)


def module_page(name: str, title: str) -> str:
    """Return the page of a module."""
    module = importlib.import_module(name)
    text = f"{title}\n{'=' * len(title)}\n\n.. automodule:: {name}\n   :no-members:\n\n"
    return text + "\n".join(entry(name, export) for export in module.__all__)


def entry(module: str, name: str) -> str:
    """Return the directive that documents a public name."""
    thing = getattr(importlib.import_module(module), name)
    if inspect.isclass(thing):
        return class_entry(module, name, thing)
    if inspect.ismodule(thing):
        return f"`{thing.__name__}`\n"
    if inspect.isroutine(thing):
        return f".. autofunction:: {module}.{name}{signature(thing)}\n"
    return constant(module, name, thing)


def class_entry(module: str, name: str, kind: type) -> str:
    """Return the directive that documents a class with its members."""
    shown = ""
    if name not in NOT_CALLED and not issubclass(kind, Warning) and "__init__" in vars(kind):
        shown = signature(kind)
    text = f".. autoclass:: {module}.{name}{shown or '()'}\n"
    if issubclass(kind, Exception):
        return text + "\n   See :doc:`the program that raises it </errors>`.\n"
    members = next((names for owner, names in MEMBERS.values() if owner is kind), "")
    return text + options(", ".join(sorted([*members.split(), *MORE_MEMBERS.get(name, "").split()])))


def options(members: str) -> str:
    """Return the options of a directive that documents a class with these members."""
    return f"   :members: {members}\n" if members else ""


def signature(thing: Any) -> str:
    """Return the parameters and the result of a function as ``help`` shows them, on one line."""
    found = inspect.signature(thing)
    parameters = [
        parameter.replace(default=Shown("…")) if "object at" in repr(parameter.default) else parameter
        for parameter in found.parameters.values()
        if parameter.annotation != "Never"
    ]
    result = found.return_annotation
    if result in {"Any", "None"} or inspect.isclass(thing):
        result = inspect.Signature.empty
    text = str(found.replace(parameters=parameters, return_annotation=result))
    text = re.sub(r"<class '(\w+)'>", r"\1", text)
    text = re.sub(r"<(\w+\.\w+): [^>]*>", r"\1", text)
    return re.sub(r": (['\"])(.*?)\1(?=[,)]| = )", r": \2", re.sub(r"-> (['\"])(.*)\1$", r"-> \2", text))


class Shown(str):
    """A default that a signature shows as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def constant(module: str, name: str, value: object) -> str:
    """Return the entry of a constant: its value, and the sentence of its module's docstring that names it."""
    docstring = inspect.getdoc(importlib.import_module(module)) or ""
    sentences = re.split(r"(?<=\.)\s+", docstring)
    text = next((sentence for sentence in sentences if f"`{name}`" in sentence), "")
    shown = f"   :value: {value!r}\n" if isinstance(value, int) else ""
    return f".. py:data:: {module}.{name}\n{shown}\n{textwrap.indent(text, '   ')}\n"


def results() -> str:
    """Return the page of the objects that constructs return."""
    text = heading("Results of constructs", "offload")
    for module, classes in RESULTS.items():
        for name, members in classes.items():
            text += f".. autoclass:: {module}.{name}()\n{options(members)}\n"
    return text


def types() -> str:
    """Return the page of the types in signatures."""
    title = "Types in signatures"
    text = f"{title}\n{'=' * len(title)}\n\nThe signatures in this reference use these types.\n\n"
    for module in TYPES:
        tree = importlib.import_module(module)
        analyzer = ModuleAnalyzer.for_module(module)
        for (_, name), lines in analyzer.find_attr_docs().items():
            if name[0].isupper() and not name.isupper():
                value = vars(tree)[name]
                shown = value if isinstance(value, str) else re.sub(r"typing\.", "", str(value))
                body = "\n".join(lines).strip()
                text += f".. py:type:: {name}\n   :canonical: {shown}\n\n{textwrap.indent(body, '   ')}\n\n"
    return text


# ---------------------------------------------------------------- links


def public_names() -> Iterator[tuple[str, str]]:
    """Yield the public names of all modules, by their full name and by the name of their definition."""
    for module in ("offload", *MODULES):
        exports = importlib.import_module(module)
        for name in exports.__all__:
            thing = getattr(exports, name)
            yield f"{module}.{name}", f"{module}.{name}"
            if hasattr(thing, "__qualname__"):
                yield f"{thing.__module__}.{thing.__qualname__}", f"{module}.{name}"
    for module, names in RESULTS.items():
        for name in names:
            yield name, f"{module}.{name}"


def resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element) -> nodes.Node | None:
    """Resolve a reference of a docstring or a signature that Sphinx did not find.

    Short names stand for full ones. A word in quotes in a docstring that is no public name is a parameter, and a word
    in the type of a parameter that is no public name is prose. Both are shown without a link.
    """
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    for name in candidates(app, target, node.get("py:module") or "offload"):
        found = env.domains["py"].resolve_xref(env, node["refdoc"], app.builder, "obj", name, node, content)
        if found is not None:
            return found
    for short, name in ABBREVIATED.items():
        if target.startswith(short):
            node["reftarget"] = name + target.removeprefix(short)
    node["reftarget"] = ELSEWHERE.get(node["reftarget"], node["reftarget"])
    return content if target.rpartition(".")[2] in VARIABLES else None


def candidates(app: Sphinx, target: str, module: str) -> Iterator[str]:
    """Yield the full names that a name in a docstring may stand for."""
    known = app.env.offload_public_names  # type: ignore[attr-defined]
    for name in (target, f"{module}.{target}", f"offload.{target}"):
        if name in known and known[name] != target:
            yield known[name]
    for short, name in ABBREVIATED.items():
        if target.startswith(short):
            yield name + target.removeprefix(short)


def note_names(app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """Note the public names once before Sphinx reads."""
    env.offload_public_names = dict(public_names())  # type: ignore[attr-defined]
    return []


def prose(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element) -> nodes.Node | None:
    """Show a reference that nothing resolved without a link if it is a parameter or a word of a type."""
    if node.get("refdomain") != "py":
        return None
    if node.get("reftype") == "obj" or PROSE.search(node["reftarget"]):
        return content
    return None


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension."""
    app.connect("builder-inited", write_pages)
    app.connect("env-get-outdated", note_names)
    app.connect("source-read", list_pages)
    app.connect("missing-reference", resolve, priority=300)  # before intersphinx
    app.connect("missing-reference", prose, priority=900)  # after it
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": True}
