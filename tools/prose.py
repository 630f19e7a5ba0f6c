"""Measure how plain the prose of this tree is: ``python tools/prose.py [PATH …]``.

Without a path, the program measures the groups of texts below, compares them with `GOALS`, and exits with status 1 if
a group misses a goal. With paths, it prints the rates of these files only. ``--worst N`` also lists the N sentences
that break the rules most.

*pages*
    ``README.md``, ``CONTRIBUTING.md`` and the pages in ``docs/``.
*design*
    The pages in ``docs/design/``.
*public*
    The docstrings of public names, with the public methods of public classes, and the messages of exceptions and
    warnings in the whole package.
*docstrings*
    All docstrings of the package.

Headings, tables, listings and interactive examples do not count. The rules are crude: they count words and patterns
that are rare in plain English. A listed sentence may be right, and a text that passes may still read oddly.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parents[1]

FACES = ("offload", "offload.acc", "offload.atomic", "offload.mpi", "offload.parray")
"""The modules whose ``__all__`` lists the public names."""

MANY_WORDS = 30
"""A sentence with more words is long."""

RULES = {
    "opener": re.compile(
        r"(?:What|Who|Whoever|Whatever|Where|Whose|Nothing|Nobody|None of"
        r"|Of (?:these|those|others|the latter|an?|what))\b"
    ),
    "what": re.compile(r"\b(?:what|whatever|whoever)\b", re.IGNORECASE),
    "beside": re.compile(r"\b(?:beside|behind)\b(?! the scenes)", re.IGNORECASE),
    "that-of": re.compile(r"\b(?:that|those|none|the one) of\b", re.IGNORECASE),
    "idiom": re.compile(
        r"\b(?:(?:is|are) told|tells? of|put off|anew|so many|as (?:of|also)|for one(?=[.,;:]))\b|\bneither\.$",
        re.IGNORECASE,
    ),
    "you": re.compile(r"\b(?:you|your|we)\b", re.IGNORECASE),
}
"""The patterns that a rule counts. ``opener`` counts only at the beginning of a sentence."""

GOALS = {
    "opener": {"pages": 0.3, "design": 0.3, "public": 0.3, "docstrings": 1.0},
    "what": {"pages": 1.5, "design": 1.5, "public": 1.5, "docstrings": 4.0},
    "beside": {"pages": 0.2, "design": 0.2, "public": 0.2},
    "that-of": {"pages": 0.4, "design": 0.4, "public": 0.4},
    "idiom": {"pages": 0.2, "design": 0.2, "public": 0.2},
    "long": {"pages": 8.0, "design": 8.0},
    "you": {"pages": 5.0},
}
"""The goal of each rule for each group: the highest rate, for ``you`` the lowest.

A rate is the number of hits in 1,000 words; for ``long``, the per cent of sentences. Never raise a goal.
"""


class Text(NamedTuple):
    """A paragraph, a docstring or a message, and the place where it begins."""

    path: Path
    line: int
    text: str


class Sentence(NamedTuple):
    """A sentence, its place, its number of words, and its hits by rule."""

    path: Path
    line: int
    text: str
    n_words: int
    hits: Counter[str]


# ---------------------------------------------------------------- texts


def paragraphs(path: Path) -> Iterator[Text]:
    """Yield the paragraphs and list items of a Markdown file."""
    block: list[str] = []
    first, is_listing = 1, False
    for number, line in enumerate([*path.read_text(encoding="utf-8").splitlines(), ""], 1):
        stripped = line.strip()
        is_fence = stripped.startswith("```")
        is_listing ^= is_fence
        is_prose = bool(stripped) and not (is_fence or is_listing or stripped.startswith(("|", "#", "<!--", "![")))
        item = re.match(r"(?:[*-]|\d+\.)\s+", stripped)
        if block and (item or not is_prose):
            yield Text(path, first, "\n".join(block))
            block = []
        if is_prose:
            first = first if block else number
            block.append(stripped[item.end() :] if item else stripped)


def docstring(path: Path, node: ast.AST) -> Iterator[Text]:
    """Yield the prose of the docstring of a definition, if there is one."""
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return
    text = ast.get_docstring(node)
    if text is None:
        return
    text = re.sub(r"^>>> .*\n(?:.+\n?)*", "", text, flags=re.MULTILINE)  # examples, with their output
    text = re.sub(r"^[^\n]+\n-{3,}$", "", text, flags=re.MULTILINE)  # headings of sections
    text = re.sub(r"^[\w*, ]+ : .*$", "", text, flags=re.MULTILINE)  # parameters and their types
    yield Text(path, node.body[0].lineno, text)


def messages(path: Path, tree: ast.Module) -> Iterator[Text]:
    """Yield the texts with which a module raises exceptions and issues warnings."""
    for node in ast.walk(tree):
        call = node.exc if isinstance(node, ast.Raise) else node
        if not isinstance(call, ast.Call) or not call.args:
            continue
        function = call.func
        name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        if not (isinstance(node, ast.Raise) or name == "warn"):
            continue
        message = call.args[0]
        parts = message.values if isinstance(message, ast.JoinedStr) else [message]
        if all(isinstance(part, ast.Constant | ast.FormattedValue) for part in parts):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in parts)
            yield Text(path, call.lineno, text)


class Package:
    """The syntax trees of a package, by the names of its modules."""

    def __init__(self, folder: Path) -> None:
        self.paths: dict[str, Path] = {}
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            self.paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        self.trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in self.paths.items()}

    def docstrings(self) -> Iterator[Text]:
        """Yield all docstrings."""
        for name, tree in self.trees.items():
            for node in ast.walk(tree):
                yield from docstring(self.paths[name], node)

    def messages(self) -> Iterator[Text]:
        """Yield the messages of all modules."""
        for name, tree in self.trees.items():
            yield from messages(self.paths[name], tree)

    def public_docstrings(self, faces: Iterable[str]) -> Iterator[Text]:
        """Yield the docstrings that ``help`` shows for the modules ``faces`` and the names in their ``__all__``."""
        seen: set[ast.AST] = set()
        for face in faces:
            yield from docstring(self.paths[face], self.trees[face])
            for name in self._exported(face):
                yield from self._docstrings_of(face, name, seen)

    def _exported(self, module: str) -> list[str]:
        for node in self.trees[module].body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                return list(ast.literal_eval(node.value))
        return []

    def _docstrings_of(self, module: str, name: str, seen: set[ast.AST]) -> Iterator[Text]:
        for node in self.trees[module].body if module in self.trees else []:
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                for alias in node.names:
                    is_module = f"{node.module}.{alias.name}" in self.trees
                    if (alias.asname or alias.name) == name and not is_module:
                        yield from self._docstrings_of(node.module, alias.name, seen)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                if node.name != name or node in seen:
                    continue
                seen.add(node)
                yield from docstring(self.paths[module], node)
                if isinstance(node, ast.ClassDef):
                    for member in node.body:
                        if not getattr(member, "name", "_").startswith("_"):
                            yield from docstring(self.paths[module], member)
                    for base in node.bases:
                        if isinstance(base, ast.Name):
                            yield from self._docstrings_of(module, base.id, seen)


def groups_of(root: Path) -> dict[str, list[Text]]:
    """Return the texts of a tree by group."""
    package = Package(root / "offload")
    pages = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]
    return {
        "pages": [text for path in pages for text in paragraphs(path)],
        "design": [text for path in sorted((root / "docs" / "design").glob("*.md")) for text in paragraphs(path)],
        "public": [*package.public_docstrings(FACES), *package.messages()],
        "docstrings": list(package.docstrings()),
    }


# ---------------------------------------------------------------- rates


def sentences_of(text: Text) -> Iterator[Sentence]:
    """Split a text into sentences of four words or more, with their hits. Code counts as one word."""
    plain = re.sub(r"``[^`]*``|`[^`]*`", "X", text.text)
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", plain)
    plain = re.sub(r"\*\*|(?<!\w)[*_]|[*_](?!\w)", "", plain)  # bold and italics
    for part in re.split(r"(?<=[.!?:;])\s+(?=[A-Z\"'(])|\n\s*\n", plain):
        words = part.split()
        if len(words) >= 4:
            sentence = " ".join(words)
            hits = Counter({name: len(rule.findall(sentence)) for name, rule in RULES.items()})
            hits["opener"] = RULES["opener"].match(sentence) is not None
            hits["long"] = len(words) > MANY_WORDS
            yield Sentence(text.path, text.line, sentence, len(words), hits)


def rates_of(sentences: Iterable[Sentence]) -> dict[str, float]:
    """Return the rate of each rule: hits in 1,000 words, or for ``long`` the per cent of sentences."""
    n_words, n_sentences, hits = 0, 0, Counter[str]()
    for sentence in sentences:
        n_words += sentence.n_words
        n_sentences += 1
        hits.update(sentence.hits)
    return {
        name: 100 * hits[name] / max(1, n_sentences) if name == "long" else 1000 * hits[name] / max(1, n_words)
        for name in GOALS
    }


def is_met(rule: str, rate: float, goal: float) -> bool:
    """Tell whether a rate meets a goal."""
    return rate >= goal if rule == "you" else rate <= goal


def badness(sentence: Sentence) -> float:
    """Return how much a sentence breaks the rules."""
    hits = sentence.hits
    patterns = 3 * hits["opener"] + hits["what"] + hits["beside"] + hits["that-of"] + 2 * hits["idiom"]
    return patterns + max(0, sentence.n_words - MANY_WORDS) / 10


# ---------------------------------------------------------------- the command


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="Markdown or Python files")
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="list the N worst sentences")
    options = parser.parse_args(arguments)

    groups = {}
    for path in options.paths:
        tree = ast.parse(path.read_text(encoding="utf-8")) if path.suffix == ".py" else None
        groups[str(path)] = (
            [*(text for node in ast.walk(tree) for text in docstring(path, node)), *messages(path, tree)]
            if tree
            else list(paragraphs(path))
        )
    sentences = {
        group: [sentence for text in texts for sentence in sentences_of(text)]
        for group, texts in (groups or groups_of(ROOT)).items()
    }

    missed = []
    print(f"{'':24}{'words':>9}" + "".join(f"{name:>10}" for name in GOALS))
    for group, found in sentences.items():
        rates = rates_of(found)
        n_words = sum(sentence.n_words for sentence in found)
        print(f"{group:24}{n_words:9,}" + "".join(f"{rate:10.2f}" for rate in rates.values()))
        for rule, rate in rates.items():
            goal = GOALS[rule].get(group)
            if goal is not None and not is_met(rule, rate, goal):
                missed.append(f"{group}: {rule} is {rate:.2f}; the goal is {'≥' if rule == 'you' else '≤'} {goal}")

    worst = sorted((each for found in sentences.values() for each in found), key=badness, reverse=True)
    for sentence in dict.fromkeys(each[:4] for each in worst[: options.worst]):
        print(f"{sentence[0]}:{sentence[1]}: {sentence[2][:200]}")
    if missed:
        print(*missed, "List the sentences with --worst 40, and rewrite them.", sep="\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
