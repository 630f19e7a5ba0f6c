"""The parser of directive strings: a string becomes a `Directive`, or a `PragmaError` at the first wrong token.

It reads from left to right: the words of the directive, as many as make a directive of `tables`; its argument; then
clause after clause. `scanner` finds where an argument ends, `readers` reads it as its row in the tables says, and
Python's own parser reads the expressions. Everything is checked where it is read, so the first mistake in reading order
is reported. Only a missing clause shows at the end.

A generated grammar was rejected: its import costs more than everything else here, and its messages are lists of tokens.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

from offload.pragma.mistakes import Mistake, error_of, listed, meant
from offload.pragma.readers import ArgumentReader, Content
from offload.pragma.refused import DIRECTIVE_REMEDIES, OTHER_CLAUSES
from offload.pragma.scanner import WORD, scan, skip_blanks
from offload.pragma.syntax import Clause, Directive, Item, Span
from offload.pragma.tables import CLAUSE_ALIASES, CLAUSES, DIRECTIVES, WORD_ALIASES, Takes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload.pragma.syntax import Language, Modifier
    from offload.pragma.tables import ClauseRow, DirectiveRow

_MOST_CACHED: Final = 4096
_STANDARDS: Final[dict[Language, str]] = {"omp": "OpenMP", "acc": "OpenACC"}
_NO_ARGUMENT: Final = (Takes.NOTHING, Takes.OPTIONAL_VALUE, Takes.OPTIONAL_VALUES, Takes.OPTIONAL_NAMES)


def parse(text: str, language: Language) -> Directive:
    """Parse the string of a directive.

    Parameters
    ----------
    text : str
        The string, as `offload.pragma.omp` and `offload.pragma.acc` receive it.
    language : {"omp", "acc"}
        Which of the two.

    Returns
    -------
    Directive
        The values of the string. Equal strings give the same object.

    Raises
    ------
    PragmaError
        The string is wrong. The attribute ``span`` tells where in the string.
    UnsupportedPragmaError
        The string has a directive, a clause or a word of the standard that offload does not support.

    Examples
    --------
    >>> from offload.pragma.parser import parse
    >>> directive = parse("target nowait depend(out: x[0:n])", "omp")
    >>> directive.name, directive.clauses[1].kind, directive.clauses[1].items[0].text
    ('target', 'out', 'x[0:n]')
    """
    found = _parsed(text, language)
    if isinstance(found, Mistake):
        raise error_of(found, text)
    return found


@lru_cache(maxsize=_MOST_CACHED)
def _parsed(text: str, language: Language) -> Directive | Mistake:
    try:
        return _StringReader(text, language).read()
    except Mistake as mistake:
        return mistake.with_traceback(None)


@cache
def _words_of(language: Language) -> dict[str, Any]:
    """Return the words of all directives: what may follow a word, and under "" the directive that ends there."""
    tree: dict[str, Any] = {}
    for name in (*(name for key, name in DIRECTIVES if key == language), *DIRECTIVE_REMEDIES[language]):
        spellings = {name}
        for alias, word in WORD_ALIASES[language].items():
            spellings.add(" ".join(alias if one == word else one for one in name.split()))
        for spelling in spellings:
            node = tree
            for word in spelling.split():
                node = node.setdefault(word, {})
            node[""] = name
    return tree


class _StringReader:
    """Reads one string."""

    __slots__ = ("_clauses", "_language", "_names", "_position", "_row", "_span", "_text")

    def __init__(self, text: str, language: Language) -> None:
        self._text = text
        self._language = language
        self._position = skip_blanks(text, 0)
        self._clauses: list[Clause] = []
        self._names: dict[str, list[str]] = {}  # the clauses of data-sharing that have a name
        self._row: DirectiveRow
        self._span: Span

    def read(self) -> Directive:
        """Read all of the string."""
        self._row = self._read_words()
        arguments, modifiers = self._read_argument()
        while self._find_clause():
            self._read_clause()
        self._check_needs()
        return Directive(
            self._language, self._text, self._row.name, self._span, arguments, modifiers, tuple(self._clauses)
        )

    # -- the directive -----------------------------------------------------------------------------

    def _read_words(self) -> DirectiveRow:
        text, begin = self._text, self._position
        node: dict[str, Any] = _words_of(self._language)
        name, end, last_begin = "", begin, begin
        position = begin
        while (found := WORD.match(text, position)) and (after := _after(node, found.group())) is not None:
            node = after
            if "" in node:
                name, end, last_begin = node[""], found.end(), found.start()
            position = skip_blanks(text, found.end())
        if position > skip_blanks(text, end):
            raise self._half(Span(begin, end), position)
        if not name:
            raise self._no_directive()
        if (remedy := DIRECTIVE_REMEDIES[self._language].get(name)) is not None:
            token = last_begin if name.startswith("cancel") else begin
            raise Mistake(f"`{name}` is not supported; {remedy}", token, end, is_unsupported=True)
        self._position = end
        self._span = Span(begin, end)
        return DIRECTIVES[self._language, name]

    def _no_directive(self) -> Mistake:
        """Return the mistake of a string that does not begin with a directive."""
        text, begin = self._text, self._position
        found = WORD.match(text, begin)
        if found is None:
            said = "leave out the sentinel" if text.startswith("#", begin) else "a directive is missing"
            return Mistake(f"{said}; write for example `target`", begin, min(begin + 1, len(text)))
        word = found.group()
        return Mistake(f"`{word:.40}` is not a directive{self._hint(word)}", begin, found.end())

    def _half(self, span: Span, position: int) -> Mistake:
        """Return the mistake of words that begin a directive and do not end it.

        The span is that of the words before them, which are a directive or nothing.
        """
        text = self._text
        whole = Span(span.begin, span.begin + len(text[span.begin : position].rstrip()))
        words = text[whole.begin : whole.end].replace("_", " ").split()
        supported = _names_of(self._language)
        known = [*supported, *DIRECTIVE_REMEDIES[self._language]]
        longer = [name for name in known if name.split()[: len(words)] == words]
        hint = f"write {listed([name for name in longer if name in supported][:4] or longer[:4], 'or')}"
        after = WORD.match(text, position)
        if after and after.group() not in CLAUSES[self._language]:
            words.append(after.group())
            return Mistake(f"`{' '.join(words):.60}` is not a directive; {hint}", after.start(), after.end())
        message = f"`{' '.join(words)}` is not a whole directive; {hint}"
        return Mistake(message, skip_blanks(text, span.end), whole.end)

    def _hint(self, word: str) -> str:
        """Return the end of a message on a first word that no directive of this language has."""
        language = self._language
        other: Language = "acc" if language == "omp" else "omp"
        parts = word.replace("_", " ")
        if longer := [name for name in _names_of(language) if parts in name.split()]:
            return f"; did you mean `{longer[0]}`?"
        if word in (language, "pragma"):
            return "; a string begins with the directive, without the sentinel"
        if hint := meant(parts, _words_of(language)):
            return hint
        if _after(_words_of(other), word) is not None:
            return f"; {_STANDARDS[other]} has it: write {other}(…)"
        return meant(parts, [*_names_of(language), *DIRECTIVE_REMEDIES[language]])

    def _read_argument(self) -> tuple[tuple[Item, ...], tuple[Modifier, ...]]:
        row = self._row
        bracket = skip_blanks(self._text, self._position)
        if not self._text.startswith("(", bracket):
            if row.needs_argument:
                raise Mistake(f"`{row.name}` takes an argument; write {row.name}(x)", self._span.begin, self._span.end)
            return (), ()
        if row.argument is None:
            raise Mistake(f"`{row.name}` takes no argument in brackets", bracket, bracket + 1)
        argument = scan(self._text, bracket)
        content = ArgumentReader(self._text, row, row.argument, argument).read()
        self._position = argument.end
        return content.items or _as_items(content), content.modifiers

    # -- clauses -----------------------------------------------------------------------------------

    def _find_clause(self) -> bool:
        """Go to the next clause, behind blanks and at most one comma; tell whether there is one."""
        text = self._text
        position = skip_blanks(text, self._position)
        if text.startswith(",", position):
            comma, position = position, skip_blanks(text, position + 1)
            if position == len(text):
                raise Mistake("a clause is missing after the comma", comma, comma + 1)
            if text.startswith(",", position):
                raise Mistake("a clause is missing between two commas", position, position + 1)
        self._position = position
        return position < len(text)

    def _read_clause(self) -> None:
        text, begin = self._text, self._position
        found = WORD.match(text, begin)
        if found is None:
            end = begin + 1
            while end < len(text) and text[begin].isdigit() and (text[end].isalnum() or text[end] == "_"):
                end += 1
            raise Mistake(f"a clause is expected here, not `{text[begin:end]:.40}`", begin, end)
        row = self._clause_row(found.group(), Span(begin, found.end()))
        self._check_place(row, begin, found.end())
        end = found.end()
        bracket = skip_blanks(text, end)
        content = Content()
        if text.startswith("(", bracket):
            argument = scan(text, bracket)
            content = ArgumentReader(text, self._row, row, argument).read()
            end = argument.end
        elif row.takes not in _NO_ARGUMENT:
            raise Mistake(f"`{row.name}` takes an argument; write {row.name}(…)", begin, end)
        clause = Clause(
            row.name,
            Span(begin, found.end()),
            Span(begin, end),
            content.kind,
            content.kind_span,
            content.modifiers,
            content.iterators,
            content.items,
            content.expressions,
        )
        self._check_clause(row, clause)
        self._clauses.append(clause)
        self._position = end

    def _clause_row(self, word: str, place: Span) -> ClauseRow:
        """Return the row of a clause, or raise the mistake that this directive does not take it."""
        row, language = self._row, self._language
        name = CLAUSE_ALIASES[language].get(word, word)
        if (found := row.clauses.get(name)) is not None:
            return found
        if (remedy := row.refused.get(name)) is not None:
            message = f"`{word}` is not supported on `{row.name}`; {remedy}"
            raise Mistake(message, place.begin, place.end, is_unsupported=True)
        if not row.clauses:
            raise Mistake(f"`{row.name}` has no clauses", place.begin, place.end)
        every = (*CLAUSES[language], *CLAUSE_ALIASES[language], *OTHER_CLAUSES[language])
        joined = [one for one in _names_of(language) if one == f"{row.name}{word}"]
        hint = "" if word in every else meant(word, row.clauses, _next_words(language, row.name), every)
        if longer := [*joined, *(one for one in row.clauses if one.endswith(f"_{word}"))]:
            hint = f"; did you mean `{longer[0]}`?"  # ``task wait``, ``taskgroup reduction``
        elif row.name == "critical" and not hint:
            hint = f"; write critical ({word:.40})"
        raise Mistake(f"`{word:.40}` is not a clause of `{row.name}`{hint}", place.begin, place.end)

    def _check_place(self, row: ClauseRow, begin: int, end: int) -> None:
        """Check that a clause may stand with the clauses before it."""
        present = {clause.name for clause in self._clauses}
        # Several clauses that are for different constructs or categories differ in their modifiers, read later.
        if row.name in present and not (row.is_repeatable or row.takes_directive):
            raise Mistake(f"`{row.name}` appears twice; write it once", begin, end)
        for group in self._row.exclusive:
            if row.name in group and (others := present.intersection(group) - {row.name}):
                raise Mistake(f"{listed((min(others), row.name), 'and')} contradict each other; write one", begin, end)

    def _check_clause(self, row: ClauseRow, clause: Clause) -> None:
        if row.takes_directive or row.categories:
            words = [modifier.name for modifier in clause.modifiers]
            for other in self._clauses:
                if other.name == clause.name and [modifier.name for modifier in other.modifiers] == words:
                    raise Mistake(f"`{row.name}` appears twice; write it once", clause.word.begin, clause.word.end)
        if row.is_sharing or (row.name == "map" and self._row.name == "target"):
            for item in clause.items:
                self._check_sharing(row, item)

    def _check_sharing(self, row: ClauseRow, item: Item) -> None:
        """Check that a name is in one clause of data-sharing; on `target`, ``map`` counts as one."""
        if not (item.is_name or row.name == "map"):
            return
        clauses = self._names.setdefault(item.name, [])
        for other in clauses:
            if {other, row.name} != {"firstprivate", "lastprivate"} and not other == row.name == "map":
                raise Mistake(f"`{item.name}` is already in `{other}`", item.span.begin, item.span.end)
        clauses.append(row.name)

    def _check_needs(self) -> None:
        """Check at the end that no clause is missing."""
        row = self._row
        present = {clause.name for clause in self._clauses}
        if row.needs and present.isdisjoint(row.needs):
            raise Mistake(f"`{row.name}` needs {listed(row.needs, 'or')}", self._span.begin, self._span.end)
        for clause in self._clauses:
            if (needed := row.clause_needs.get(clause.name)) and needed not in present:
                message = f"`{clause.name}` of `{row.name}` needs `{needed}`"
                raise Mistake(message, clause.word.begin, clause.word.end)


def _after(node: dict[str, Any], word: str) -> dict[str, Any] | None:
    """Return what may follow a word; underscores join words."""
    if not word:
        return None
    if (found := node.get(word)) is not None or "_" not in word:
        return found
    for part in word.split("_"):
        if not part or (after := node.get(part)) is None:
            return None
        node = after
    return node


def _names_of(language: Language) -> list[str]:
    return [name for key, name in DIRECTIVES if key == language]


def _next_words(language: Language, name: str) -> Iterable[str]:
    """Return the words that make a longer directive of a directive."""
    node = _words_of(language)
    for word in name.split():
        node = node[word]
    return [word for word in node if word]


def _as_items(content: Content) -> tuple[Item, ...]:
    """Return the queues of ``wait(…)`` as items, which the arguments of a directive are."""
    return tuple(Item(one.text, one.span, one, (), "") for one in content.expressions)
