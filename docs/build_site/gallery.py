"""The gallery: a page for each example, with its graph, its time line, its critical path and its output.

``docs/gallery/index.md`` lists the examples in sections, each with its title. Before Sphinx reads the pages, this
extension runs each example on simulated devices with ``offload run``, two at a time. It writes a page and pictures for
each into ``docs/gallery/generated/``. An example that fails ends the build. On the list, each example becomes a card
with its time line.

An example that needs a module which is not installed has a page without a run, which says so.

``python -m build_site.gallery [NAME ...]`` in ``docs/`` writes these pages, or all, without a build of the site.
"""

from __future__ import annotations

import ast
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import tokenize
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from build_site.timeline import Row, describe, read_rows, to_svg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
GALLERY = ROOT / "docs" / "gallery"
GENERATED = GALLERY / "generated"

DEVICES, DEVICES_OF_WORKER = "sim:2", "sim:1"
"""The devices of an example, and of each worker if it starts a cluster."""
N_RANKS = 2
"""Processes of an example of MPI."""
AT_A_TIME = 2
"""Examples that run together. More would spoil each other's times on two cores."""
LIMIT_S = 120
"""An example that takes longer hangs."""

ARGUMENTS = {
    "cholesky": ["--size", "128", "--tile", "32"],
    "cluster_cholesky": ["--size", "64", "--tile", "32"],
    "cluster_halo": ["--size", "64"],
    "cluster_pipeline": ["--blocks", "4", "--calm"],
    "cluster_planes": ["--planes", "4", "--edge", "32"],
    "forgotten": ["2"],
    "halo_mpi": ["--size", "32", "--steps", "4"],
    "image_pipeline": ["6", "512"],
    "interop_pipeline": ["6", "512"],
    "kmeans": ["20000", "8", "3"],
    "loops_bodies": ["48"],
    "loops_devices": ["24"],
    "loops_heat": ["24"],
    "loops_histogram": ["20000"],
    "loops_speculation": ["2000"],
    "nas_cg": ["tiny"],
    "nas_ep": ["12"],
    "nas_mg": ["tiny"],
    "out_of_core_sort": ["400000", "3"],
    "pragma_cholesky": ["--size", "128", "--tile", "32"],
}
"""Arguments that make an example quick, and its graph small enough to read."""

ITEM = re.compile(r"^\* \[(?P<title>[^\]]+)\]\(\.\./\.\./examples/(?P<path>[\w/]+\.py)\)$", re.MULTILINE)
ITEMS = re.compile(rf"(?:{ITEM.pattern}\n)+".replace("?P<title>", "").replace("?P<path>", ""), re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Example:
    """An example of the gallery."""

    path: Path
    title: str  # from the list

    @property
    def name(self) -> str:
        """The name of the page."""
        return self.path.stem

    @property
    def by_hand(self) -> Path | None:
        """The same job without the library, if there is one."""
        stem = "step0" if self.path.parent.name == "streams" else self.name
        found = [self.path.with_name(f"{stem}_{ending}.py") for ending in ("by_hand", "cupy")]
        return next((path for path in found if path.exists()), None)

    @property
    def devices(self) -> str:
        """The value of the option ``--devices``."""
        return DEVICES_OF_WORKER if self.name.startswith("cluster_") else DEVICES

    @property
    def command(self) -> str:
        """The command that runs the example, as a reader types it."""
        ranks = f"mpiexec -n {N_RANKS} " if self.uses_mpi else ""
        words = " ".join([shown(self.path), *ARGUMENTS.get(self.name, [])])
        return f"{ranks}offload run --devices {self.devices} --profile {words}"

    @property
    def uses_mpi(self) -> bool:
        """Whether the example runs on ranks."""
        return self.name.endswith("_mpi")


@dataclass(frozen=True, slots=True)
class Run:
    """The output and the files of a run of an example."""

    output: str  # stdout
    profile: str  # as text
    graph: str  # SVG
    rows: list[Row]  # of the time line


class ExampleError(Exception):
    """An example has failed, or has left no output, graph, trace or profile."""


# ---------------------------------------------------------------- the examples


def listed() -> list[Example]:
    """Return the examples that ``docs/gallery/index.md`` lists."""
    text = (GALLERY / "index.md").read_text("utf-8")
    return [Example(EXAMPLES / item["path"], item["title"]) for item in ITEM.finditer(text)]


def programs() -> list[Path]:
    """Return the files of examples that the list must have: those that are programs, and not the form by hand."""
    return [
        path
        for path in sorted(EXAMPLES.rglob("*.py"))
        if "__main__" in path.read_text("utf-8") and not path.stem.endswith(("_by_hand", "_cupy"))
    ]


def shown(path: Path) -> str:
    """Return a file's path as pages show it."""
    return path.relative_to(ROOT).as_posix()


def code_lines(text: str) -> int:
    """Return how many lines of a program have code: without blank lines, comments and docstrings."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            lines.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def first_sentence(text: str) -> str:
    """Return the first sentence of a program's docstring, as Markdown."""
    docstring = ast.get_docstring(ast.parse(text)) or ""
    sentence = re.split(r"(?<=\.)\s", " ".join(docstring.split("\n\n")[0].split()))[0]
    return sentence.replace("``", "`")


def parts(example: Example) -> list[Path]:
    """Return the files of the same folder that an example imports, other than the form by hand."""
    found = [example.path.with_name(f"{name}.py") for name in sorted(imported(example.path))]
    return [path for path in found if path.exists() and path != example.by_hand]


def imported(path: Path) -> set[str]:
    """Return the names of the modules that a program imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


def missing(example: Example) -> list[str]:
    """Return the modules that an example needs and that are not installed."""
    found = [
        name for name in sorted(imported(example.path) & {"torch", "mpi4py"}) if importlib.util.find_spec(name) is None
    ]
    return found or (["mpiexec"] if example.uses_mpi and not mpiexec().exists() else [])


def mpiexec() -> Path:
    """Return the launcher of the wheel next to this Python."""
    return Path(sys.executable).with_name("mpiexec")


# ---------------------------------------------------------------- running


def run(example: Example) -> Run:
    """Run an example, and return what it has left."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        launcher = [str(mpiexec()), "-n", str(N_RANKS)] if example.uses_mpi else []
        options = ["--devices", example.devices, "--profile", "--graph", "graph-%p.svg", "--trace", "trace-%p.json"]
        words = [sys.executable, "-m", "offload", "run", *options, str(example.path), *ARGUMENTS.get(example.name, [])]
        done = subprocess.run(  # noqa: S603  # our own programs
            [*launcher, *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "88", "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        graphs, traces = sorted(folder.glob("graph-*.svg")), sorted(folder.glob("trace-*.json"))
        profiles = re.split(r"^(?=The run took)", done.stderr, flags=re.MULTILINE)[1:]
        # On ranks, the first files and the first profile are shown.
        rows = read_rows(json.loads(traces[0].read_text("utf-8"))["traceEvents"]) if traces else []
        if done.returncode or not done.stdout or not graphs or not profiles or not rows:
            raise ExampleError(f"{example.command} ends with status {done.returncode}\n{done.stdout}{done.stderr}")
        return Run(done.stdout, profiles[0], graphs[0].read_text("utf-8"), rows)


def write_pages(examples: Iterable[Example]) -> None:
    """Run examples, and write their pages."""
    GENERATED.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for _ in pool.map(write_page, examples):  # raises the first failure
            pass


def write_page(example: Example) -> None:
    """Run an example, and write its page and its pictures."""
    lacks = missing(example)
    if lacks:
        text = f"This example has not run here: the machine that built this page does not have `{lacks[0]}`.\n"
        write(GENERATED / f"{example.name}.md", page(example, text))
        return
    left = run(example)
    for look, is_dark in (("light", False), ("dark", True)):
        write(GENERATED / f"{example.name}-graph-{look}.svg", recoloured(left.graph, is_dark=is_dark))
        write(GENERATED / f"{example.name}-trace-{look}.svg", to_svg(left.rows, is_dark=is_dark))
    write(GENERATED / f"{example.name}.md", page(example, results(example, left)))


def recoloured(graph: str, *, is_dark: bool) -> str:
    """Return the picture of a graph for light or for dark pages only, whatever the reader's system is set to."""
    media = re.compile(r"<style>@media \(prefers-color-scheme:dark\)\{(.*)\}</style>")
    return media.sub(r"<style>\1</style>" if is_dark else "", graph, count=1)


def write(path: Path, text: str) -> None:
    """Write a file if it has another text, so that Sphinx reads only pages that have changed."""
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")


# ---------------------------------------------------------------- pages


def page(example: Example, body: str) -> str:
    """Return a page: the title, the program and the form by hand, and the rest."""
    text = example.path.read_text("utf-8")
    lines = [f"# {example.title}", "", first_sentence(text), ""]
    tabs = [(example.path, "With offload")]
    tabs += [(path, path.name) for path in parts(example)]
    if example.by_hand:
        tabs.append((example.by_hand, "By hand"))
        by_hand = example.by_hand.read_text("utf-8")
        also = "" if "__main__" in by_hand else ", with the comparison of both"
        lines += [
            f"The program has {code_lines(text)} lines of code{also}.",
            f"The same job by hand, in `{shown(example.by_hand)}`, has {code_lines(by_hand)}.",
            "Blank lines, comments and docstrings do not count.",
            "",
        ]
    lines += ["## Program", ""]
    if len(tabs) == 1:
        lines += [*source(example.path), ""]
    else:
        lines.append("::::{tab-set}")
        for path, label in tabs:
            count = code_lines(path.read_text("utf-8"))
            lines += [f":::{{tab-item}} {label}: {count} lines", *source(path), ":::"]
        lines += ["::::", ""]
    return "\n".join(lines) + "\n" + body


def source(path: Path) -> list[str]:
    """Return the directive that shows a program."""
    return [
        f"```{{literalinclude}} {os.path.relpath(path, GENERATED)}",
        ":language: python",
        f":caption: {shown(path)}",
        "```",
    ]


def results(example: Example, left: Run) -> str:
    """Return the part of a page that a run gives."""
    where = f" They show one of {N_RANKS} ranks." if example.uses_mpi else ""
    title = re.search(r"<title[^>]*>(.*?)</title>", left.graph, re.DOTALL)
    return "\n".join(
        [
            "## Output",
            "",
            "```console",
            f"$ {example.command}",
            left.output.rstrip(),
            "```",
            "",
            f"The pictures and the profile below are of the same run.{where} Click on a picture to enlarge it.",
            "",
            "## Task graph",
            "",
            *picture(example, "graph", (title[1] if title else "Task graph").replace("\n", " ")),
            "## Time line",
            "",
            *picture(example, "trace", describe(left.rows)),
            "## Profile and critical path",
            "",
            "[Where the time went](../../see-your-program.md#where-the-time-went) explains the tables.",
            "",
            "```text",
            left.profile.rstrip(),
            "```",
            "",
        ]
    )


def picture(example: Example, kind: str, alternative: str) -> list[str]:
    """Return a picture in its two colours, each with a link to its file."""
    found = []
    for look in ("light", "dark"):
        file = f"{example.name}-{kind}-{look}.svg"
        found += [
            f"```{{image}} {file}",
            f":alt: {example.title}. {alternative}",
            f":class: only-{look}",
            f":target: ../../_images/{file}",
            "```",
            "",
        ]
    return found


def make_cards(app: Sphinx, docname: str, text: list[str]) -> None:
    """Turn the lists of ``docs/gallery/index.md`` into cards with pictures."""
    if docname == "gallery/index":
        text[0] = ITEMS.sub(lambda found: "\n".join(_cards(found[0])), text[0])


def _cards(items: str) -> Iterator[str]:
    examples = [Example(EXAMPLES / item["path"], item["title"]) for item in ITEM.finditer(items)]
    yield "\n".join(["```{toctree}", ":hidden:", "", *(f"generated/{example.name}" for example in examples), "```\n"])
    yield "::::::{grid} 1 2 2 2\n:gutter: 3\n"
    for example in examples:
        yield f":::::{{grid-item-card}} {example.title}\n:link: generated/{example.name}\n:link-type: doc\n"
        for look in ("light", "dark"):
            file = f"generated/{example.name}-trace-{look}.svg"
            if (GALLERY / file).exists():
                yield f"```{{image}} {file}\n:alt: Time line of {example.name}\n:class: only-{look}\n```\n"
        yield first_sentence(example.path.read_text("utf-8")) + "\n:::::\n"
    yield "::::::\n"


def forget_old(examples: Sequence[Example]) -> None:
    """Remove the pages and pictures of examples that are gone."""
    names = {example.name for example in examples}
    for path in GENERATED.glob("*"):
        if re.sub(r"-(graph|trace)-(light|dark)$", "", path.stem) not in names:
            path.unlink()


def build(app: Sphinx) -> None:
    """Write all pages, at the beginning of a build of the site."""
    from sphinx.errors import ExtensionError

    examples = listed()
    forget_old(examples)
    try:
        write_pages(examples)
    except (ExampleError, subprocess.TimeoutExpired) as error:
        raise ExtensionError(str(error), error, modname=__name__) from error


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension."""
    app.connect("builder-inited", build)
    app.connect("source-read", make_cards, priority=400)  # before the links are rewritten
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def main(names: Sequence[str]) -> None:
    """Write the pages of some examples, or of all."""
    write_pages(example for example in listed() if not names or example.name in names)


if __name__ == "__main__":
    main(sys.argv[1:])
