"""PARRAY's notation: a text becomes a tree; `str` of a type is the way back (`offload.parray.dimensions.text_of`).

::

    dimension  = body reference* | reference+
    body       = expression | ( "[" dimension "]" )+
    reference  = "#" ( "disp" | "wrap" ) "(" expression ")"  |  "#func" "(" name ")"  |  "#dim" "(" dimension ")"
               | "#" name ( "_" digits )*  |  "#" "(" dimension ")" ( "_" digits )*
    expression = products of literals, names and expressions in brackets, by "*", "/" (rounds down) and "%"; sums of
    these

A text is read from left to right, with one function for each line of this; a dimension may stand inside of another
one as often as in any tree.
"""

from __future__ import annotations

import operator
import re
from typing import Any, Final, NamedTuple

from offload.errors import LayoutError
from offload.parray.dimensions import MOST_LEVELS, Dimension, dim
from offload.parray.references import Reference, disp, func, wrap
from offload.parray.types import ArrayType

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>\d+)|(?P<path>(?:_\d+)+)(?!\w)|(?P<name>[^\W\d]\w*)"
    r"|(?P<sign>[\[\]()#+\-*/%]))"
)
_PATH: Final = re.compile(r"(?:_\d+)*")
_OPERATORS: Final = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.floordiv,
    "%": operator.mod,
}
_SHOWN: Final = 60  # Characters of a text that an error shows on either side of the mistake


class _Token(NamedTuple):
    kind: str  # a group of `_TOKEN`, or "end"
    text: str
    column: int  # from 0, for messages


class _MistakeError(LayoutError):
    """A mistake whose place is in the message already; raised again as a `LayoutError`."""


def parse(text: str, /, **names: Any) -> ArrayType:
    """Make a type from PARRAY's notation.

    Parameters
    ----------
    text : str
        For example ``"[[n][n]][m]#A_0"``.
    **names : int, ArrayType, or an argument of `func`
        The values of the names in the text.

    Returns
    -------
    ArrayType
        The type.

    Raises
    ------
    LayoutError
        The text is wrong, or its tree is; the message shows the place.

    Examples
    --------
    >>> A = parray.parse("[n][m]", n=2, m=3)
    >>> parray.parse("[#A_1][#A_0]", A=A).offsets()
    array([0, 3, 1, 4, 2, 5])
    """
    if not isinstance(text, str):
        raise LayoutError(f"parse({text!r}): {type(text).__name__} is not a string; pass a str in PARRAY's notation")
    try:
        return _Parser(text, names).whole()
    except _MistakeError as mistake:
        raise LayoutError(*mistake.args) from None


class _Parser:
    """Reads one text."""

    def __init__(self, text: str, names: dict[str, Any]) -> None:
        self.text = text  # for messages
        self.names = names  # values of the names in the text
        self.level = 0  # of brackets
        self.tokens: list[_Token] = []  # the last one is the end, so there always is a next one
        self.at = 0  # the next token
        column = 0
        end = len(text.rstrip())
        while column < end:
            found = _TOKEN.match(text, column)
            if found is None:
                column += len(text[column:]) - len(text[column:].lstrip())
                raise self.wrong(f"{text[column]!r} is not part of the notation", column)
            kind = str(found.lastgroup)
            self.tokens.append(_Token(kind, found[kind], found.start(kind)))
            column = found.end()
        self.tokens.append(_Token("end", "the end", end))

    # -- tokens -----------------------------------------------------------------------------------
    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def take(self, text: str) -> bool:
        """Go past a sign or word if it comes next."""
        if self.token.text != text or self.token.kind == "end":
            return False
        self.at += 1
        return True

    def expect(self, text: str, after: str) -> None:
        if not self.take(text):
            raise self.wrong(f"found {self.token.text!r}, but {text!r} has to {after}")

    def wrong(self, what: str, column: int | None = None) -> _MistakeError:
        """Return a mistake at a column, by default where the next token is."""
        at = self.token.column if column is None else column
        start = max(0, at - _SHOWN)
        line = re.sub(r"\s", " ", self.text[start : at + _SHOWN])
        pointer = f"    {line}\n    {'^':>{at - start + 1}}"
        return _MistakeError(f"{what}, at column {at + 1} of the text; see the notation of array types\n{pointer}")

    # -- trees ------------------------------------------------------------------------------------
    def whole(self) -> ArrayType:
        found = self.type(0)
        if self.token.kind != "end":
            raise self.wrong(f"found {self.token.text!r} after the end of the type")
        return found

    def type(self, column: int) -> ArrayType:
        root = self.dimension()
        return self.made(column, lambda: ArrayType(root))  # type: ignore[no-any-return]

    def made(self, column: int, make: Any) -> Any:
        """Call a constructor; show its error at a column."""
        try:
            return make()
        except LayoutError as error:
            raise self.wrong(str(error), column) from None

    def dimension(self) -> Dimension:
        """Read a dimension, up to a bracket or the end."""
        column = self.token.column
        self.level += 1
        if self.level > MOST_LEVELS:
            raise self.wrong(f"a tree of more than {MOST_LEVELS} levels is too deep")
        body: Any = None
        if self.token.text == "[":
            subs = []
            while self.take("["):
                subs.append(self.dimension())
                self.expect("]", "end a dimension")
            body = tuple(subs)
        elif self.token.text != "#":
            body = self.expression()
        references: list[Reference] = []
        while self.take("#"):
            references += self.reference()
        self.level -= 1
        return self.made(column, lambda: dim(body, *references))  # type: ignore[no-any-return]

    def reference(self) -> list[Reference]:
        """Read the part after a ``#``."""
        column, word = self.token.column, self.token.text
        if self.take("("):
            found = self.type(column)
            self.expect(")", "end a type")
            return [self.sub(found, self.path(), column)]
        if self.token.kind != "name":
            raise self.wrong(f"found {word!r}, but a type or reference has to follow '#'")
        self.at += 1
        if word not in {"disp", "wrap", "func", "dim"} or not self.take("("):
            return [self.named(word, column)]
        made: list[Reference]
        if word == "func":
            name = self.token.text
            if self.token.kind != "name" or name not in self.names:
                raise self.wrong(f"{name!r} is not defined; func takes a name that stands for a function or a sequence")
            self.at += 1
            made = [self.made(column, lambda: func(self.names[name]))]
        elif word == "dim":
            inner = self.type(self.token.column)
            made = [self.made(column, lambda: wrap(inner.size)), inner]  # PARRAY's dim takes any index, modulo the size
        else:
            number = self.expression()
            made = [self.made(column, lambda: disp(number) if word == "disp" else wrap(number))]
        self.expect(")", f"end {word}")
        return made

    def path(self) -> str:
        """Read the numbers of sub-dimensions, if they follow."""
        if self.token.kind != "path":
            return ""
        self.at += 1
        return self.tokens[self.at - 1].text

    def named(self, word: str, column: int) -> ArrayType:
        """Return the type, or the sub-dimension of one, that a name means: the longest one given that fits."""
        for end in range(len(word), 0, -1):  # `A_1` may be a name, or sub-dimension 1 of `A`
            if word[:end] in self.names and _PATH.fullmatch(word, end):
                found = self.names[word[:end]]
                if not isinstance(found, ArrayType):
                    raise self.wrong(f"{word[:end]!r} stands for {found!r}, which is not an array type", column)
                return self.sub(found, word[end:], column)
        raise self.wrong(f"{word!r} is not defined; name the type when you call parse: parse(text, {word}=…)", column)

    def sub(self, found: ArrayType, path: str, column: int) -> ArrayType:
        try:
            return found[tuple(int(j) for j in path.split("_")[1:])] if path else found
        except IndexError as error:
            raise self.wrong(str(error), column) from None

    # -- numbers ----------------------------------------------------------------------------------
    def expression(self) -> int:
        value = self.product()
        while self.token.text in {"+", "-"}:
            value = self.operate(value, self.product)
        return value

    def product(self) -> int:
        value = self.atom()
        while self.token.text in {"*", "/", "%"}:
            value = self.operate(value, self.atom)
        return value

    def operate(self, left: int, right_of: Any) -> int:
        sign, column = self.token.text, self.token.column
        self.at += 1
        right = right_of()
        if sign in {"/", "%"} and not right:
            raise self.wrong("a division by zero", column)
        return int(_OPERATORS[sign](left, right))

    def atom(self) -> int:
        """Read a literal, a name, or an expression in brackets."""
        sign = 1  # of all signs before the number
        while self.token.text in {"+", "-"}:
            sign = -sign if self.token.text == "-" else sign
            self.at += 1
        kind, word, column = self.token
        if self.take("("):
            self.level += 1
            if self.level > MOST_LEVELS:
                raise self.wrong(f"brackets are nested more than {MOST_LEVELS} deep; use fewer")
            value = self.expression()
            self.expect(")", "end an expression")
            self.level -= 1
            return sign * value
        if kind == "number":
            self.at += 1
            try:
                return sign * int(word)
            except ValueError:  # longer than sys.get_int_max_str_digits()
                raise self.wrong(f"a number of {len(word)} digits is too long", column) from None
        if kind == "name" and word in self.names:
            self.at += 1
            try:
                return sign * operator.index(self.names[word])
            except TypeError:
                raise self.wrong(
                    f"{word!r} is {self.names[word]!r}, not an integer; to refer to a type, write #{word}", column
                ) from None
        if kind == "name":
            raise self.wrong(f"{word!r} is not defined; name it when you call parse: parse(text, {word}=…)")
        raise self.wrong(f"found {word!r}, but a size, '[' or '#' has to follow")
