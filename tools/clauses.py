"""Make the tables of directives and clauses in ``docs/directive-strings.md``: ``python tools/clauses.py``.

The tables come from `offload.pragma.tables`, which the parser reads. Without an option, the program prints the part of
the page between its two marks, and exits with status 1 if the page has another text there. ``--write`` puts the text
into the page.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from offload.pragma.tables import CLAUSE_ALIASES, CLAUSES, DIRECTIVES, OPERATORS, ClauseRow, DirectiveRow, Form, Takes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from offload.pragma.syntax import Language

PAGE = Path(__file__).resolve().parents[1] / "docs/directive-strings.md"
BEGIN, END = "<!-- clauses: begin -->\n", "<!-- clauses: end -->\n"

LANGUAGES: Mapping[Language, str] = {"omp": "OpenMP", "acc": "OpenACC"}

FORMS = {
    Form.TAKEN: "taken",
    Form.STAYS: "stays",
    Form.ALONE: "alone",
    Form.LOOP: "loop",
    Form.NEST: "nest",
    Form.INNER: "inner",
    Form.CALLED: "taken, called at once",
    Form.SECTION: "taken",
}

ARGUMENTS = {
    Takes.NOTHING: "",
    Takes.VALUE: "an expression",
    Takes.OPTIONAL_VALUE: "an expression, or nothing",
    Takes.VALUES: "expressions",
    Takes.OPTIONAL_VALUES: "expressions, or nothing",
    Takes.NAMES: "names",
    Takes.DATA: "names, attributes, sections",
    Takes.LOCATIONS: "any expressions, or `omp_all_memory`",
    Takes.WORD: "a word",
    Takes.OPERATOR: "an operator, `:`, names; sections too, but not on compiled loops",
    Takes.DEVICE_TYPE: "a type of device",
}


def code(words: Iterable[str]) -> str:
    """Return words as code of Markdown, in which a bar would end a cell of a table."""
    return " ".join(f"`{word}`".replace("|", "\\|") for word in words)


def text() -> str:
    """Return the tables."""
    parts = []
    for language, name in LANGUAGES.items():
        rows = [row for row in DIRECTIVES.values() if row.language == language]
        parts.append(f"### Directives of {name}\n\n{_directives(rows)}")
        parts.append(f"### Clauses of {name}\n\n{_clauses(CLAUSES[language], CLAUSE_ALIASES[language])}")
    operators = dict.fromkeys(OPERATORS)
    parts.append("The operators of reductions are " + " ".join(f"`{one}`" for one in operators) + ".\n")
    return "\n" + "\n".join(parts) + "\n"


def _directives(rows: Iterable[DirectiveRow]) -> str:
    """Return one line for all directives that are the same but for their names."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        is_inner = row.is_inner_too and row.form is not Form.INNER
        form = ", ".join([FORMS[row.form], *["inner"] * is_inner, *["function"] * row.makes_function])
        effective = code(name for name, clause in row.clauses.items() if clause.has_effect)
        others = code(name for name, clause in row.clauses.items() if not clause.has_effect)
        clauses = effective + ("; no effect: " if effective else "no effect: ") * bool(others) + others
        call = f"`{'acc.' if row.language == 'acc' and row.stands_for else ''}{row.stands_for.removeprefix('acc.')}`"
        alike.setdefault((form, clauses, call if row.stands_for else ""), []).append(row.name)
    lines = ["| directive | form | clauses | stands for |", "|---|---|---|---|"]
    for (form, clauses, call), names in alike.items():
        lines.append(f"| {', '.join(f'`{name}`' for name in names)} | {form} | {clauses} | {call} |")
    return "\n".join(lines) + "\n"


def _clauses(rows: Mapping[str, ClauseRow], aliases: Mapping[str, str]) -> str:
    """Return one line for all clauses that are the same but for their names."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for row in rows.values():
        spellings = [row.name, *(other for other, name in aliases.items() if name == row.name)]
        kinds = code([*row.kinds, *row.aliases]) + _other_kinds(row)
        modifiers = [*row.modifiers, *(["iterator"] if row.takes_iterator else [])]
        alike.setdefault((ARGUMENTS[row.takes], kinds, code(modifiers)), []).extend(spellings)
    lines = ["| clause | argument | word before `:`, or alone | modifiers |", "|---|---|---|---|"]
    for (argument, words, modified), names in alike.items():
        lines.append(f"| {code(names)} | {argument} | {words} | {modified} |")
    return "\n".join(lines) + "\n"


def _other_kinds(row: ClauseRow) -> str:
    """Return the words that a clause takes on some directives alone."""
    own: dict[str, tuple[str, ...]] = {}
    for directive in DIRECTIVES.values():
        found = directive.clauses.get(row.name)
        if found is not None and found.kinds != row.kinds and directive.language == "omp":
            own[directive.name] = found.kinds
    return "".join(f"; on `{name}`: {code(kinds)}" for name, kinds in own.items())


def main(argv: list[str] | None = None) -> int:
    """Print the tables, or write them; 1 if the page has others."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0] + ".")
    parser.add_argument("--write", action="store_true", help="put the tables into the page")
    options = parser.parse_args(argv)
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    old, after = rest.split(END)
    if options.write:
        PAGE.write_text(before + BEGIN + text() + END + after, encoding="utf-8")
        return 0
    sys.stdout.write(text())
    return int(old != text())


if __name__ == "__main__":
    sys.exit(main())
