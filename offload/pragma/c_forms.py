"""Operators and forms of C in an expression: what Python has in their place.

Python's parser stops at such a form. Its own message says only that the syntax is invalid.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_OPERAND: Final = r"(?<![\w)\]])(?<![\w)\]] )"  # what follows begins an operand
_TYPE: Final = r"(?:(?:const|unsigned|signed|long|short|int|float|double|char|bool|size_t|u?int\d+_t)\b\s*)+"

# Each form with its advice, from the match. The first form whose match holds the place of the error counts.
_FORMS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...]] = (
    (re.compile(r"&&"), lambda _: "in Python, `&&` is `and`"),
    (re.compile(r"\|\|"), lambda _: "in Python, `||` is `or`"),
    (
        re.compile(r"([^\W\d]\w*)?\s*->\s*([^\W\d]\w*)?"),
        lambda found: "in Python, `{0}->{1}` is `{0}.{1}`".format(found[1] or "p", found[2] or "x"),
    ),
    (
        re.compile(r"([^\W\d]\w*)?\s*(?:\+\+|--)\s*"),
        lambda found: f"an expression cannot change `{found[1] or 'i'}`; change it on a line of its own",
    ),
    (
        re.compile(r"!(?!=)\s*([^\W\d]\w*)?"),
        lambda found: "in Python, `!{0}` is `not {0}`".format(found[1] or "x"),
    ),
    (re.compile(r"\?"), lambda _: "in Python, `i ? a : b` is `a if i else b`"),
    (
        re.compile(rf"\(\s*(?:{_TYPE}|void\s*|struct\s+\w+\s*)\*+\s*\)\s*([^\W\d]\w*)?"),
        lambda found: f"Python has no casts of pointers; write `{found[1] or 'p'}`",
    ),
    (
        re.compile(rf"\(\s*({_TYPE})\)\s*(\w+)?"),
        lambda found: "in Python, `({0}){2}` is `{1}({2})`".format(
            found[1].strip(), "float" if re.search("float|double", found[1]) else "int", found[2] or "x"
        ),
    ),
    (
        re.compile(rf"{_OPERAND}&\s*([^\W\d]\w*)?"),
        lambda found: "in Python, `&{0}` is `{0}`".format(found[1] or "x"),
    ),
    (
        re.compile(rf"{_OPERAND}\*+\s*([^\W\d]\w*)?"),
        lambda found: "in Python, `*{0}` is `{0}[0]`, or the whole array `{0}`".format(found[1] or "p"),
    ),
    (re.compile(r"(?<![\w.])[0-9.]+[uUlLfF]+(?!\w)"), lambda _: "a number in Python has no suffix"),
)


def advice_for(source: str, at: int) -> str:
    """Return what to write for the form of C on which Python's parser has stopped; empty if there is none.

    Parameters
    ----------
    source : str
        The text that the parser has read.
    at : int
        The index at which the parser stopped.

    Returns
    -------
    str
        A clause of a sentence.

    Examples
    --------
    >>> advice_for("n > 10 && m", 8)
    'in Python, `&&` is `and`'
    """
    for form, advice in _FORMS:
        for found in form.finditer(source):
            if found.start() <= at <= found.end():
                return advice(found)
    return ""
