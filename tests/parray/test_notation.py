"""PARRAY's notation: what it means, that `str` is in it, and mistakes with their place."""

from __future__ import annotations

import random

import pytest

import offload as omp
from offload.parray import ArrayType, dim, disp, func, parse, threads, wrap
from tests.parray import oracle
from tests.parray.test_types_rules import meant_by
from tests.parray.trees import Trees, library_type

A = ArrayType(((3, 3), 2))
B = ArrayType(((A[0, 1], A[0, 0]), A[1]))
f = abs


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[[n][n]][m]", A),
        ("[ [ 3 ]\n[3]]\t[2] ", A),
        ("[[#A_0_1][#A_0_0]][#A_1]", B),
        ("7#A_0", ArrayType(dim(7, A[0]))),
        ("[7#A_0]", ArrayType((dim(7, A[0]),))),
        ("7", ArrayType(7)),
        ("[7]", ArrayType((7,))),
        ("#A", ArrayType(A)),
        ("[[3][#A_1]][2]#B", ArrayType(dim(((3, A[1]), 2), B))),
        ("[2][2]#(#A_0)", ArrayType(dim((2, 2), ArrayType(A[0])))),
        ("[2][2]#([[n][n]][m])_0", ArrayType(dim((2, 2), A[0]))),
        ("[n + 2*m - 1]", ArrayType((6,))),
        ("[(n + m) * 2 % 7 / m]", ArrayType((1,))),
        ("[-n + 2 * 4 / 3 - -1]", ArrayType((0,))),
        ("[7 / 2 * 2]", ArrayType((6,))),
        ("[3#disp(-n)#wrap(m + 1)]", ArrayType((dim(3, disp(-3), wrap(3)),))),
        ("#disp(4)", ArrayType(dim(None, disp(4)))),
        ("4#func(f)", ArrayType(dim(4, func(f)))),
        ("3#func(table)", ArrayType(dim(3, func([5, 1, 2])))),
        ("[5#disp(2)#dim([5])]", ArrayType((dim(5, disp(2), wrap(5), ArrayType((5,))),))),
        ("[5#dim(#A_0)]", ArrayType((dim(5, wrap(9), ArrayType(A[0])),))),
        ("[#A_10_1]", ArrayType((ArrayType((2, 3))[1],))),
        ("[#disp_0]", ArrayType((A[0],))),
        ("[#Ärmel_1]", ArrayType((A[1],))),
    ],
)
def test_texts(text, wanted):
    """A text is the type that the constructor makes; the longest name given that fits is the type's."""
    found = parse(text, n=3, m=2, A=A, B=B, f=f, table=[5, 1, 2], A_10=ArrayType((2, 3)), disp=A, Ärmel=A)
    assert found == wanted


def test_modulo_as_the_manual_writes_it():
    """#dim(tree) reduces its index modulo the size of the tree, and then applies it."""
    assert parse("[5#disp(2)#dim([5])]").offsets().tolist() == [2, 3, 4, 0, 1]
    assert parse("[5#disp(2)#dim(4#A_0)]", A=A).offsets().tolist() == [4, 6, 0, 2, 4]


def test_names_of_thread_arrays():
    """A thread array is named; the text of a type that has one shows it."""
    M = threads((2, 3))
    K = parse("[#M_1][#A_1]", M=M, A=A)
    assert ArrayType((M[1], A[1])) == K
    assert str(K) == "[#threads([2][3])_1][#([[3][3]][2])_1]"


def test_random_types_are_their_text():
    """parse(str(T)) == T for whole types without func and thread arrays."""
    n_seen = 0
    for seed in range(600):
        trees = Trees(seed, leaves=0)
        meant = meant_by(seed) if seed % 3 else trees.type(random.Random(seed).randint(1, 4))
        try:
            made = library_type({**meant, "path": ()})
        except omp.LayoutError:
            continue
        text = str(made)
        if "func" in text or "threads" in text:
            continue
        again = parse(text)
        assert again == made
        assert hash(again) == hash(made)
        assert str(again) == text
        n_seen += oracle.size(meant) > 0
    assert n_seen > 100


MISTAKES = {
    "": 1,
    "  ": 1,
    "[": 2,
    "[3": 3,
    "3]": 2,
    "[3]]": 4,
    "[]": 2,
    "[3][": 5,
    "[3]x": 4,
    "[3#]": 4,
    "[3##A]": 4,
    "[3#B]": 4,
    "[3#A_2]": 4,
    "[3#A_0_0_0]": 4,
    "[3#A_x]": 4,
    "[3#n]": 4,
    "[3#7]": 4,
    "[A]": 2,
    "[3#(4]": 6,
    "[4#(3)]": 1,
    "[3#(3)_1]": 4,
    "[-1]": 2,
    "[3/0]": 3,
    "[3%(n-3)]": 3,
    "[3 4]": 4,
    "[3+]": 4,
    "[(3]": 4,
    "[x]": 2,
    "[ 3 $]": 5,
    "[3.5]": 3,
    "[3#wrap(0)]": 4,
    "[3#wrap]": 4,
    "[3#disp(1]": 10,
    "[3#func(g)]": 9,
    "[3#func(3)]": 9,
    "[3#func(n)]": 4,
    "#func(f)": 1,
    "[_0]": 2,
    "[3] [x]": 6,
    "[" + "9" * 5000 + "]": 2,
    "[" + "(" * 500: 101,
    "[" * 500: 101,
    "[" * 30 + "3" * 200 + "?": 231,
}


@pytest.mark.parametrize("text", MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes(text):
    """A mistake is a LayoutError that shows the place: its column, and a pointer below the text."""
    with pytest.raises(omp.LayoutError) as caught:
        parse(text, n=3, A=A, f=f)
    assert type(caught.value) is omp.LayoutError
    assert f"at column {MISTAKES[text]} of the text" in str(caught.value)
    *_, line, pointer = str(caught.value).split("\n")
    at = pointer.index("^")
    assert line[at : at + 1].strip() == text[MISTAKES[text] - 1 : MISTAKES[text]].strip()
    assert len(str(caught.value)) < 1000


def test_no_text():
    """What is no text is refused."""
    with pytest.raises(omp.LayoutError):
        parse(3)
