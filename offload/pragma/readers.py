"""The argument of a clause, read as the clause's row in `tables` says: modifiers, then list items, values or a word."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, assert_never

from offload.pragma.expressions import expression, is_reserved, item
from offload.pragma.mistakes import Mistake, listed, meant, with_article
from offload.pragma.scanner import WORD, ArgumentPiece, scan, skip_blanks
from offload.pragma.syntax import Item, Iterator, Member, Modifier, PythonText, Span
from offload.pragma.tables import MAP_KINDS, OPERATORS, TAKES_DECLARED_OPERATORS, Form, Takes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from offload.pragma.scanner import Argument
    from offload.pragma.tables import ClauseRow, DirectiveRow

ALL_MEMORY: Final = "omp_all_memory"
_CURRENT_ITERATION: Final = "omp_cur_iteration"
_DIVIDED: Final = (2, 3)  # parts of an iterator's range


class Content:
    """The content of an argument, in the terms of `Clause`."""

    __slots__ = ("expressions", "items", "iterators", "kind", "kind_span", "modifiers")

    def __init__(self) -> None:
        self.kind = ""
        self.kind_span: Span | None = None
        self.modifiers: tuple[Modifier, ...] = ()
        self.iterators: tuple[Iterator, ...] = ()
        self.items: tuple[Item, ...] = ()
        self.expressions: tuple[PythonText, ...] = ()

    def set_kind(self, kind: str, piece: ArgumentPiece, row: ClauseRow) -> None:
        """Set the word that decides, of which there is one."""
        if self.kind:
            raise Mistake(f"`{row.name}` has a second {row.noun}; write one", piece.begin, piece.end)
        self.kind = kind
        self.kind_span = Span(piece.begin, piece.end)


class ArgumentReader:
    """Reads the argument of one clause or directive."""

    __slots__ = ("_begin", "_content", "_directive", "_pieces", "_row", "_text")

    def __init__(self, text: str, directive: DirectiveRow, row: ClauseRow, argument: Argument) -> None:
        self._text = text
        self._directive = directive
        self._row = row
        self._begin = argument.begin
        self._pieces = argument.pieces
        self._content = Content()

    def read(self) -> Content:
        """Return the content of the argument."""
        match self._row.takes:
            case Takes.DATA | Takes.LOCATIONS | Takes.NAMES | Takes.OPTIONAL_NAMES:
                self._read_list()
            case Takes.VALUE | Takes.OPTIONAL_VALUE | Takes.VALUES:
                self._read_values()
            case Takes.OPERATOR:
                self._read_reduction()
            case Takes.WORD:
                self._read_word()
            case Takes.OPTIONAL_VALUES:
                self._read_queues()
            case Takes.DEVICE_TYPE:
                self._read_device_type()
            case Takes.NOTHING:
                message = f"`{self._row.name}` takes no argument; write it without brackets"
                raise Mistake(message, self._begin, self._begin + 1)
            case _ as unreachable:
                assert_never(unreachable)
        return self._content

    # -- kinds of arguments ------------------------------------------------------------------------

    def _read_values(self) -> None:
        """Read expressions: one, or any number, after modifiers."""
        pieces = self._after_head(self._read_modifier)
        values = tuple(self._value(piece) for piece in pieces[:1])
        if len(pieces) > 1 and self._row.takes not in (Takes.VALUES, Takes.OPTIONAL_VALUES):
            raise self._too_many(pieces[1], "argument")
        self._content.expressions = (*values, *(self._value(piece) for piece in pieces[1:]))

    def _read_queues(self) -> None:
        """Read OpenACC's ``devnum: d: queues: 1, 2``, each part of which may be left out."""
        pieces, modifiers = list(self._pieces), []
        while pieces[0].separator == ":":
            word = self._word(pieces[0], self._row.modifiers, "a modifier")
            first = pieces.pop(0)
            argument = None
            if self._row.modifiers[word]:
                argument = self._value(pieces[0])
                if pieces[0].separator != ":":
                    at = pieces[0].separator_at
                    raise Mistake("a colon and the queues are missing after `devnum`", at, at + 1)
                first = ArgumentPiece(first.begin, pieces.pop(0).end, ":", first.separator_at)
            modifiers.append(Modifier(word, argument, Span(first.begin, first.end)))
        self._content.modifiers = tuple(modifiers)
        self._content.expressions = tuple(self._value(piece) for piece in pieces)

    def _read_list(self) -> None:
        """Read list items after modifiers and the word that decides."""
        row = self._row
        if row.takes_size:
            self._read_aligned()
            return
        pieces = self._after_head(self._read_modifier)
        if pieces is self._pieces:
            pieces = self._pieces = self._after_modifiers()
            self._check_colon()
        if row.needs_kind and not self._content.kind:
            first = pieces[0]
            self._fail_if_empty(first, with_article(row.noun))
            example = f"write {row.name}({row.kinds[0]}: …)"
            word = self._text[first.begin : first.end]
            self._refuse(word, first)
            if word in row.kinds:
                self._fail_if_empty(ArgumentPiece(first.end, first.end, ")", first.separator_at), "a list item")
            raise Mistake(f"a {row.noun} is missing in `{row.name}`; {example}", first.begin, first.end)
        self._content.items = self._items(pieces)

    def _read_aligned(self) -> None:
        """Read names, then perhaps a colon and a number."""
        colons = [index for index, piece in enumerate(self._pieces) if piece.separator == ":"]
        names = self._pieces[: colons[0] + 1] if colons else self._pieces
        self._content.items = self._items(names)
        if colons:
            rest = _joined(self._pieces[colons[0] + 1 :])
            self._content.expressions = (self._value(rest[0]),)
            if len(rest) > 1:
                raise self._too_many(rest[1], "alignment")

    def _read_reduction(self) -> None:
        pieces = self._after_head(self._read_operator)
        if not self._content.kind:
            self._fail_if_empty(pieces[0], "an operator")
            raise Mistake(
                f"an operator is missing in `{self._row.name}`; write {self._row.name}(+: …)",
                pieces[0].begin,
                pieces[0].end,
            )
        self._content.items = self._items(pieces)

    def _read_word(self) -> None:
        """Read a word, with modifiers before it and a category or a size after it."""
        row, pieces = self._row, self._pieces
        if not row.categories:
            pieces = self._after_head(self._read_modifier)
        first, rest = pieces[0], pieces[1:]
        word = self._word(first, row.kinds, with_article(row.noun))
        self._content.set_kind(word, first, row)
        if first.separator == ":" and row.categories:
            category = self._word(rest[0], row.categories, "a category")
            self._content.modifiers = (Modifier(category, None, Span(rest[0].begin, rest[0].end)),)
            rest = rest[1:]
        elif rest and row.takes_size:
            self._content.expressions = (self._value(rest[0]),)
            rest = rest[1:]
        if rest:
            raise self._too_many(rest[0], "argument" if row.takes_size or row.categories else row.noun)

    def _read_device_type(self) -> None:
        first = self._pieces[0]
        self._fail_if_empty(first, "a type of device")
        kind = self._text[first.begin : first.end]
        if kind != "*" and not WORD.fullmatch(kind):
            raise Mistake("`device_type` takes a word, such as nvidia, or *", first.begin, first.end)
        self._content.set_kind(kind, first, self._row)
        if len(self._pieces) > 1:
            raise self._too_many(self._pieces[1], "type")

    # -- before the colon --------------------------------------------------------------------------

    def _after_head(self, read: Callable[[ArgumentPiece], None]) -> Sequence[ArgumentPiece]:
        """Read the modifiers before the first colon, if there is one; return the pieces after it."""
        for index, piece in enumerate(self._pieces):
            if piece.separator == ":":
                for head in self._pieces[: index + 1]:
                    self._fail_if_empty(head, with_article(self._row.noun or "modifier"))
                    read(head)
                return _joined(self._pieces[index + 1 :])
        return self._pieces

    def _after_modifiers(self) -> Sequence[ArgumentPiece]:
        """Read the modifiers in front of the items of a ``map`` without a type: ``map(always, x)``."""
        pieces = self._pieces
        while self._row.name == "map" and len(pieces) > 1 and self._is_modifier(pieces[0]):
            self._read_modifier(pieces[0])
            pieces = pieces[1:]
        return pieces

    def _is_modifier(self, piece: ArgumentPiece) -> bool:
        text = "" if piece.fault else self._text[piece.begin : piece.end]
        return text not in self._row.kinds and text not in MAP_KINDS and self._is_head(text)

    def _check_colon(self) -> None:
        """Refuse words that belong before a colon, in an argument without one: ``map(to a)``, ``map(to, y)``."""
        row, first = self._row, self._pieces[0]
        found = WORD.match(self._text, first.begin, first.end)
        word = found.group() if found else ""
        if not (word == "iterator" or word in row.modifiers or self._is_head(word)):
            return
        head = re.compile(
            r"([^\W\d]\w*(?:\s*\([^()]*\))?)(?:\s+(?!(?:and|for|if|in|is|not|or)\b)((?:[^\W\d]|[(*&]).*)|$)", re.DOTALL
        )
        heads: list[str] = []
        operand, place = "", first
        for piece in self._pieces:
            text = "" if piece.fault else self._text[piece.begin : piece.end]
            while (match := head.match(text)) and self._is_head(match[1]):
                heads.append(match[1])
                place, operand = piece, match[2] or ""
                text = operand
            if text:
                break
        is_list = row.needs_kind or (row.name != "map" and len(heads) == len(self._pieces))
        if not heads or (is_list and not operand):
            return
        hint = f"write {row.name}({', '.join([*self._modifiers_as_written(), *heads])}: …)"
        if row.name == "map" and heads[-1].isidentifier() and not operand:
            hint += f", or map({row.kinds[0]}: {heads[-1]}) for a variable of this name"
        raise Mistake(f"{row.name}: a `:` is missing after `{heads[-1]}`; {hint}", place.begin, place.end)

    def _modifiers_as_written(self) -> list[str]:
        return [self._text[one.span.begin : one.span.end] for one in self._content.modifiers]

    def _is_head(self, text: str) -> bool:
        """Tell whether a text belongs before the colon of an argument."""
        row = self._row
        name, bracket, _ = text.partition("(")
        name = row.aliases.get(name.rstrip(), name.rstrip())
        if bracket:
            return bool(row.modifiers.get(name)) or (name == "iterator" and row.takes_iterator)
        return name in row.kinds or row.modifiers.get(name) is False or (row.name == "map" and name in MAP_KINDS)

    def _read_modifier(self, piece: ArgumentPiece) -> None:
        row, text = self._row, self._text[piece.begin : piece.end]
        if "?" in text:
            expression(self._text, piece.begin, piece.end)  # which refuses C's ``i ? a : b``
        if row.takes_directive:
            self._add(self._directive_named(piece), None, piece)
            return
        word = row.aliases.get(text, text)
        if word in row.kinds and row.takes is not Takes.WORD:
            self._content.set_kind(word, piece, row)
            return
        self._refuse(text, piece)
        named = WORD.match(text)
        name = named.group() if named else ""
        bracket = skip_blanks(self._text, piece.begin + len(name))
        has_argument = bracket < piece.end and self._text[bracket] == "("
        if has_argument:
            self._refuse(name, ArgumentPiece(piece.begin, piece.begin + len(name), ",", bracket))
        if row.modifiers.get(text) is False:
            self._add(text, None, piece)
        elif has_argument and row.modifiers.get(name):
            self._add(name, self._argument_of(name, bracket, piece), piece)
        elif has_argument and name == "iterator" and row.takes_iterator:
            self._read_iterators(bracket, piece)
        else:
            raise self._no_modifier(piece, name if has_argument else text)

    def _add(self, name: str, argument: PythonText | None, piece: ArgumentPiece) -> None:
        if any(modifier.name == name for modifier in self._content.modifiers):
            raise Mistake(f"`{name}` appears twice", piece.begin, piece.end)
        modifier = Modifier(name, argument, Span(piece.begin, piece.end))
        self._content.modifiers = (*self._content.modifiers, modifier)

    def _read_operator(self, piece: ArgumentPiece) -> None:
        text = self._text[piece.begin : piece.end]
        language = self._directive.language
        self._refuse(text, piece)
        if text in self._row.modifiers:
            self._add(text, None, piece)
        elif text in OPERATORS:
            self._content.set_kind(OPERATORS[text], piece, self._row)
        elif language in TAKES_DECLARED_OPERATORS and text.isidentifier() and not is_reserved(text):
            self._content.set_kind(text, piece, self._row)
        else:
            hint = meant(text, OPERATORS) or f"; use one of {' '.join(dict.fromkeys(OPERATORS.values()))}"
            raise Mistake(f"`{text:.40}` is not an operator of a reduction{hint}", piece.begin, piece.end)

    def _refuse(self, word: str, piece: ArgumentPiece) -> None:
        if (remedy := self._row.refused.get(word)) is not None:
            message = f"`{word}` is not supported in `{self._row.name}`; {remedy}"
            raise Mistake(message, piece.begin, piece.end, is_unsupported=True)

    def _no_modifier(self, piece: ArgumentPiece, word: str) -> Mistake:
        row = self._row
        begin, end = piece.begin, piece.begin + len(word)
        if row.name == "map" and row.aliases.get(word, word) in MAP_KINDS:
            takes = f"`{word}` is not for this directive; it takes {listed(row.kinds)}"
            return Mistake(f"{self._directive.name} map: {takes}", begin, end)
        known = (*row.kinds, *row.modifiers, *(("iterator",) if row.takes_iterator else ()))
        words = word.split()
        if len(words) > 1 and {*words[:-1]} <= {*row.modifiers} and row.aliases.get(words[-1], words[-1]) in known:
            said = f"a comma is missing after `{words[0]}`; write {row.name}({', '.join(words)}: …)"
            return Mistake(f"{row.name}: {said}", begin, end)
        if row.needs_kind:
            said = f"is not {with_article(row.noun)}"
        elif row.kinds and row.takes is not Takes.WORD:
            said = f"is neither a {row.noun} nor a modifier"
        else:
            said = "is not a modifier"
        hint = meant(word, row.kinds if row.needs_kind else known, known)
        if not hint:
            hint = f"; it takes {listed(known)}" if known else f", and `{row.name}` takes none"
        return Mistake(f"{row.name}: `{word:.40}` {said}{hint}", begin, end)

    def _directive_named(self, piece: ArgumentPiece) -> str:
        """Return the construct that an ``if`` is for."""
        text = self._text[piece.begin : piece.end]
        word = " ".join(text.replace("_", " ").split())
        allowed = _constructs_of(self._directive)
        if word not in allowed:
            hint = f"it takes {listed(allowed)}" if allowed else "write if(…)"
            raise Mistake(f"if: `{text:.40}` is not for `{self._directive.name}`; {hint}", piece.begin, piece.end)
        return word

    def _argument_of(self, name: str, bracket: int, piece: ArgumentPiece) -> PythonText:
        """Return the one name in the brackets of ``mapper(…)``."""
        argument = scan(self._text, bracket)
        first = argument.pieces[0]
        self._fail_if_empty(first, f"the argument of `{name}`")
        found = self._text[first.begin : first.end]
        if len(argument.pieces) > 1 or argument.end != piece.end or not found.isidentifier() or is_reserved(found):
            raise Mistake(f"`{name}` takes one name; write {name}(name)", first.begin, piece.end - 1)
        return expression(self._text, first.begin, first.end)

    # -- iterators ---------------------------------------------------------------------------------

    def _read_iterators(self, bracket: int, piece: ArgumentPiece) -> None:
        if self._content.iterators:
            raise Mistake("a second `iterator`; write all of them in one", piece.begin, piece.end)
        argument = scan(self._text, bracket)
        if argument.end != piece.end:
            after = skip_blanks(self._text, argument.end)
            raise Mistake("a comma or a colon is missing after `iterator(…)`", after, piece.end)
        groups: list[list[ArgumentPiece]] = [[]]
        for part in argument.pieces:
            groups[-1].append(part)
            if part.separator == ",":
                groups.append([])
        found: list[Iterator] = []
        for group in groups:
            one = self._iterator(group)
            if any(other.name == one.name for other in found):
                raise Mistake(f"`{one.name}` is already an iterator", one.span.begin, one.span.begin + len(one.name))
            found.append(one)
        self._content.iterators = tuple(found)

    def _iterator(self, group: list[ArgumentPiece]) -> Iterator:
        first, *others = group
        self._fail_if_empty(first, "an iterator, such as i=0:n,")
        text = self._text
        name_found = WORD.match(text, first.begin)
        name = name_found.group() if name_found else ""
        equals = skip_blanks(text, first.begin + len(name))
        if not name.isidentifier() or is_reserved(name) or text[equals : equals + 1] != "=" or equals >= first.end:
            raise Mistake("an iterator is written name=begin:end, without a type", first.begin, first.end)
        if len(group) not in _DIVIDED:
            bad = group[3] if len(group) > _DIVIDED[1] else first
            raise Mistake(
                "an iterator has two or three parts: name=begin:end or name=begin:end:step", bad.begin, bad.end
            )
        begin = self._value(
            ArgumentPiece(skip_blanks(text, equals + 1), first.end, first.separator, first.separator_at)
        )
        end, *step = (self._value(other) for other in others)
        return Iterator(name, begin, end, step[0] if step else None, Span(first.begin, group[-1].end))

    # -- items, values and words -------------------------------------------------------------------

    def _items(self, pieces: Sequence[ArgumentPiece]) -> tuple[Item, ...]:
        check = self._check_of_items()
        found: list[Item] = []
        for piece in pieces:
            self._fail_if_empty(piece, "a list item")
            if found and self._row.takes_one:
                raise self._too_many(piece, "list item")
            one = item(self._text, piece.begin, piece.end)
            check(one)
            found.append(one)
        return tuple(found)

    def _value(self, piece: ArgumentPiece) -> PythonText:
        self._fail_if_empty(piece, "an argument")
        self._refuse(self._text[piece.begin : piece.end], piece)
        return expression(self._text, piece.begin, piece.end)

    def _word(self, piece: ArgumentPiece, allowed: Collection[str], noun: str) -> str:
        self._fail_if_empty(piece, noun)
        text = self._text[piece.begin : piece.end]
        self._refuse(text, piece)
        word = self._row.aliases.get(text, text)
        if self._row.takes_size and (parts := text.split(None, 1))[0] in allowed and len(parts) > 1:
            said = f"a comma is missing after `{parts[0]}`; write {self._row.name}({', '.join(parts)})"
            raise Mistake(f"{self._row.name}: {said}", piece.begin, piece.end)
        if word not in allowed:
            hint = meant(text, allowed) or f"; it takes {listed(allowed)}"
            raise Mistake(f"{self._row.name}: `{text:.40}` is not {noun}{hint}", piece.begin, piece.end)
        return word

    def _fail_if_empty(self, piece: ArgumentPiece, noun: str) -> None:
        """Raise the fault of a piece, or say what is missing in front of the separator after it."""
        if piece.fault is not None:
            raise piece.fault
        if piece.begin >= piece.end:
            raise Mistake(f"{self._row.name}: {noun} is missing", piece.separator_at, piece.separator_at + 1)

    def _too_many(self, piece: ArgumentPiece, noun: str) -> Mistake:
        self._fail_if_empty(piece, with_article(noun))
        return Mistake(f"`{self._row.name}` takes one {noun}; leave this one out", piece.begin, piece.end)

    # -- which items a clause takes ----------------------------------------------------------------

    def _check_of_items(self) -> Callable[[Item], None]:
        """Return the method that refuses list items which the clause does not take."""
        match self._row.takes:
            case Takes.DATA:
                return self._check_data
            case Takes.LOCATIONS:
                return self._check_location
            case Takes.OPERATOR if self._directive.form not in (Form.NEST, Form.INNER):
                return self._check_data
            case _:
                return self._check_name

    def _check_name(self, one: Item) -> None:
        span = one.span
        if one.is_name and one.root.span == span and one.name != ALL_MEMORY:
            return
        if is_reserved(one.text):
            raise Mistake(f"`{one.text}` is a reserved word of Python; name a variable", span.begin, span.end)
        if self._row.takes is Takes.OPERATOR and one.name and one.name != ALL_MEMORY:
            takes = f"`{self._row.name}` of a loop takes scalars and arrays of one element, by their names"
            hint = f"for elements of `{one.name}`, put `atomic` around each update, as `{one.name}[k] += 1`"
            if isinstance(one.steps[0], Member):
                hint = f"reduce into a variable, and assign it to `{one.text:.40}` after the loop"
            raise Mistake(f"{takes}; {hint}", span.begin, span.end, is_unsupported=True)
        raise Mistake(f"`{self._row.name}` takes names of variables only, not {one.text:.40}", span.begin, span.end)

    def _check_data(self, one: Item) -> None:
        if one.name and one.name != ALL_MEMORY:
            return
        takes = f"`{self._row.name}` takes a name, an attribute or a section of either"
        raise Mistake(f"{takes}, not {one.text:.40}", one.span.begin, one.span.end)

    def _check_location(self, one: Item) -> None:
        begin, end = one.root.span.begin, one.root.span.end
        if one.name == _CURRENT_ITERATION:
            message = f"`{_CURRENT_ITERATION}` is not supported; write tasks that name the element"
            raise Mistake(message, begin, end, is_unsupported=True)
        if one.name == ALL_MEMORY and (one.steps or self._content.kind not in ("out", "inout")):
            raise Mistake(f"`{ALL_MEMORY}` can stand only in depend(out: …) and depend(inout: …)", begin, end)


def _joined(pieces: Sequence[ArgumentPiece]) -> Sequence[ArgumentPiece]:
    """Join the pieces that a colon divides: after modifiers, only commas divide."""
    if not any(piece.separator == ":" for piece in pieces):
        return pieces
    found: list[ArgumentPiece] = []
    start: int | None = None
    for piece in pieces:
        start = piece.begin if start is None else start
        if piece.separator != ":" or piece.fault is not None:
            found.append(ArgumentPiece(start, max(start, piece.end), piece.separator, piece.separator_at, piece.fault))
            start = None
    return found


# The constructs with an ``if`` that can be a part of a combined construct.
_PARTS: Final = ("target", "teams", "parallel", "simd", "task", "taskloop")


def _constructs_of(directive: DirectiveRow) -> tuple[str, ...]:
    """Return the names that an ``if`` of a directive can begin with."""
    if directive.language == "acc":
        return ()
    first, *others = directive.name.split()
    if first == "cancel":
        return ("cancel",)
    if directive.form is Form.NEST or first == "parallel":
        return tuple(word for word in (first, *others) if word in _PARTS)
    return (directive.name,)
