"""The parser never raises anything but a PragmaError, whatever the string; and a token always lies in the string."""

import random
import time
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload import PragmaError
from offload.pragma.parser import parse
from offload.pragma.refused import CLAUSE_REMEDIES, DIRECTIVE_REMEDIES, OTHER_CLAUSES
from offload.pragma.tables import CLAUSE_ALIASES, CLAUSES, DIRECTIVES, OPERATORS
from tests.pragma.right_strings import ACC, OMP

LANGUAGES = ("omp", "acc")
RIGHT = {
    language: [line.split(" => ")[0] for line in text.strip().splitlines() if not line.startswith(" ")]
    for language, text in (("omp", OMP), ("acc", ACC))
}
WORDS = sorted(
    {
        *(word for _, name in DIRECTIVES for word in name.split()),
        *(word for remedies in DIRECTIVE_REMEDIES.values() for name in remedies for word in name.split()),
        *(word for table in (CLAUSES, CLAUSE_ALIASES, OTHER_CLAUSES) for words in table.values() for word in words),
        *(word for remedies in CLAUSE_REMEDIES.values() for _, word in remedies),
        *(word for rows in CLAUSES.values() for row in rows.values() for word in (*row.kinds, *row.modifiers)),
        *OPERATORS,
    }
)
PARTS = [
    *"()[]{},:;.'\"#\\&|^+-*/%<>=!?@$~`_ \t\n\r\0\x0b\x0c",
    *("0", "12", "1.5", "0x1f", "1if", "'''", '"""', "f'", 'rb"', "{x", "\\d", "\\N{", ":=", "::", "...", "**", "=="),
    *("x", "a", "self", "n", "None", "True", "if", "else", "for", "in", "lambda", "yield", "await", "async", "not"),
    *("x[0:n]", "a.b", "f(x)", "iterator(i=0:n)", "mapper(m)", "omp_all_memory", "omp_cur_iteration", "x y"),
    *("é", "日本", "ß", "\u2028", "\xa0", "\ud800", "😀", "ﬁ", "\ufeff", "٣"),
]


def random_string(numbers):
    """Return a string of words of the grammar, brackets, quotes and odd characters; or a right one with a change."""
    language = numbers.choice(LANGUAGES)
    if numbers.random() < 0.4:
        string = numbers.choice(RIGHT[language])
        for _ in range(numbers.randint(0, 3)):
            begin = numbers.randint(0, len(string))
            end = min(len(string), begin + numbers.choice((0, 0, 1, 1, 3)))
            string = string[:begin] + numbers.choice((*PARTS, "", numbers.choice(WORDS))) + string[end:]
        return string, language
    words = [numbers.choice((numbers.choice(WORDS), numbers.choice(PARTS))) for _ in range(numbers.randint(0, 14))]
    if numbers.random() < 0.7:
        words.insert(0, numbers.choice([name for key, name in DIRECTIVES if key == language]))
    return "".join(word + numbers.choice(("", " ", " ", "(", ")", ": ", ", ")) for word in words), language


def error_of(string, language):
    """Return the error of a string, None if it is right."""
    try:
        parse(string, language)
    except PragmaError as error:
        return error
    return None


def check(string, language):
    """Parse a string, which may be wrong; check the place of an error."""
    error = error_of(string, language)
    if error is None:
        assert parse(string, language).text == string
        return True
    assert 0 <= error.span.begin <= error.span.end <= len(string)
    assert 1 <= error.offset <= error.end_offset <= len(error.text) + 1
    shown = error.text[error.offset - 1 : error.end_offset - 1]
    assert string[error.span.begin : error.span.end].startswith(shown)
    return False


def try_strings(count, seed):
    """Try random strings; return how many of them were right."""
    numbers = random.Random(seed)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        right = sum(check(*random_string(numbers)) for _ in range(count))
    assert not seen
    return right


def test_random_strings():
    """Random strings raise nothing but a PragmaError, in the string; some of them are right."""
    right = try_strings(5_000, 1)
    assert 100 < right < 4_900


@pytest.mark.slow
@pytest.mark.timeout(600)  # a busy machine takes a multiple of the CPU time
def test_many_random_strings():
    """100,000 random strings raise nothing but a PragmaError, in less than a minute of CPU time."""
    begin_s = time.process_time()
    assert try_strings(100_000, 2) > 1_000
    assert time.process_time() - begin_s < 60


@given(st.text(), st.sampled_from(LANGUAGES))
def test_any_text(string, language):
    """Any text at all raises nothing but a PragmaError."""
    check(string, language)


@given(st.sampled_from([(language, string) for language in LANGUAGES for string in RIGHT[language]]), st.data())
def test_beginnings_of_right_strings(entry, data):
    """The beginning of a right string, and a right string without a part, raise nothing but a PragmaError."""
    language, string = entry
    begin = data.draw(st.integers(0, len(string)))
    end = data.draw(st.integers(begin, len(string)))
    check(string[:begin], language)
    check(string[:begin] + string[end:], language)


@given(st.text(alphabet="xn01.+-*/()[]{},:'\"\\ \nfbré=<>", max_size=30))
def test_any_expression(text):
    """Any text in the brackets of a clause is either an expression or a mistake."""
    for clause in ("if", "depend", "map"):
        check(f"task {clause}({'in: ' if clause == 'depend' else ''}{text})", "omp")
