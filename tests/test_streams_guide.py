"""The guide from CUDA streams: a pipeline by hand and its five steps, which give the same result without a GPU."""

from __future__ import annotations

import ast
import importlib.util
import io
import re
import tokenize
from pathlib import Path

import numpy as np
import pytest

from offload.port.analysis import analyse
from offload.port.running import recorded
from tests.conftest import checked
from tests.profiles import few
from tests.sanitizer.runs import findings_of

ROOT = Path(__file__).parents[1]
STREAMS = ROOT / "examples/streams"
ORIGINAL = STREAMS / "step0_by_hand.py"
STEPS = [STREAMS / f"step{number}.py" for number in range(1, 6)]
GUIDE = ROOT / "docs/from-cuda-streams.md"
MAKERS = frozenset({"Event", "Stream", "buffers", "empty", "empty_pinned", "target_alloc"})
"""Calls that make streams, events and buffers."""
WORDS = MAKERS | {"get", "n_slots", "record", "set", "slot", "stream", "synchronize", "wait_event"}
WORDS |= {
    "copy",
    "depend",
    "from_",
    "in_",
    "inout",
    "map",
    "nowait",
    "options",
    "target_data",
    "target_free",
    "taskwait",
}
"""Names of the calls, clauses and arguments that deal with streams, events and buffers, by hand and in tasks."""


def load(path):
    """Return a program as a module of its own."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def frames(n):
    """Return arguments of ``run``: frames, an empty result, and the two fields of the correction."""
    rng = np.random.default_rng(1)
    source = rng.integers(0, 1 << 16, (n, 12, 20), "u2")
    return source, np.zeros(source.shape, "f4"), rng.random((12, 20), "f4"), rng.random((12, 20), "f4")


def made_of(function):
    """Return the names of a function that hold streams, events, buffers, or lists with them."""
    found = set()
    for node in ast.walk(function):
        pairs = []
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.For):
            pairs = [(node.target, node.iter)]
        elif isinstance(node, ast.With):
            pairs = [(item.optional_vars, item.context_expr) for item in node.items if item.optional_vars]
        for target, value in pairs:
            used = {getattr(part, "attr", getattr(part, "id", None)) for part in ast.walk(value)}
            if used & (MAKERS | found) and isinstance(target, ast.Name | ast.Tuple):
                found |= {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
    return found


def managing_lines(path):
    """Return the lines of a program that deal with streams, events and buffers.

    These are the lines with a name of `WORDS`, and, in a function that makes streams, events or buffers, the lines with
    a name that holds some. Comments and docstrings do not count.
    """
    text = path.read_text(encoding="utf-8")
    words = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            words |= dict.fromkeys(range(node.lineno, node.end_lineno + 1), WORDS | made_of(node))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    names = ((token.start[0], token.string) for token in tokens if token.type == tokenize.NAME)
    return sorted({line for line, name in names if name in words.get(line, WORDS)})


# -- the original -----------------------------------------------------------------------------------


def test_the_original_runs_without_a_gpu(capsys):
    """On the stand-in of `offload port` the original corrects all frames; it has no race and no needless call."""
    with recorded(str(ORIGINAL)):
        program = load(ORIGINAL)
        for n in (0, 1, 20):
            source, result, dark, gain = frames(n)
            program.run(source, result, dark, gain)
            np.testing.assert_array_equal(result, (source - dark) * gain)
    with recorded(str(ORIGINAL)) as past:
        load(ORIGINAL).main()
    assert capsys.readouterr().out.startswith("8 frames, ")
    report = analyse(past.log, str(ORIGINAL), "sim").as_dict()
    assert (report["races"], report["uninitialised"], report["redundant"]) == ([], [], [])
    assert report["streams"] == 3


# -- the steps --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [None, *few(3, range(12))])
@pytest.mark.parametrize("path", STEPS, ids=lambda path: path.stem)
def test_a_step_gives_the_result_of_the_original(path, seed):
    """Each step corrects all frames, whatever order its dependences leave open."""
    program = load(path)
    with checked("sim", seed=seed):
        for n in (0, 1, 8):
            source, result, dark, gain = frames(n)
            program.run(source, result, dark, gain)
            np.testing.assert_array_equal(result, (source - dark) * gain)


@pytest.mark.parametrize("path", STEPS, ids=lambda path: path.stem)
def test_the_sanitizer_finds_nothing(path, capsys):
    """A step checks itself as a program; no dependence, map or wait is missing, and nothing is left allocated."""
    assert findings_of(path) == ()
    assert capsys.readouterr().out.startswith("8 frames, ")


def test_managing_lines(tmp_path):
    """The function that counts knows streams, events and buffers by their calls and by the names that hold them."""
    text = '''"""A stream."""
into = cp.cuda.Stream()  # counts


def work(buffer):
    buffer *= 2


def run(total):
    rings = [cp.empty(3) for _ in range(2)]  # counts
    for one in rings:  # counts
        work(one)  # counts
    total += 1
    # an event
    into.synchronize()  # counts
'''
    path = tmp_path / "program.py"
    path.write_text(text, encoding="utf-8")
    assert managing_lines(path) == [n for n, line in enumerate(text.splitlines(), 1) if line.endswith("# counts")]


def test_the_last_step_has_few_lines_about_streams_and_buffers():
    """The last step has at most 60 % of the original's lines that deal with streams, events and buffers."""
    counts = [len(managing_lines(path)) for path in (ORIGINAL, *STEPS)]
    assert counts[-1] <= 0.6 * counts[0]
    shown = re.search(r"^\| lines [^|]*\|(.*)\|$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [int(count) for count in shown[1].split("|")] == counts, "the table of the guide"


# -- the page ---------------------------------------------------------------------------------------


def test_the_listings_of_the_guide_are_in_the_programs():
    """Each listing that begins with the name of a step has lines of that file, in their order."""
    text = GUIDE.read_text(encoding="utf-8")
    found = re.findall(r"^```py\n# (?:examples/streams/)?(step\d\w*\.py)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert {name for name, _ in found} == {path.name for path in (ORIGINAL, *STEPS)}
    for name, listing in found:
        for part in listing.split("…\n"):
            assert part.strip("\n") in (STREAMS / name).read_text(encoding="utf-8"), (name, part)
