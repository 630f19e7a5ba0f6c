"""The parser of directive strings: what right strings mean, and where wrong ones are wrong."""

import ast
import copy
import pickle
import subprocess
import sys
import warnings

import pytest

import offload
from offload import PragmaError, UnsupportedPragmaError
from offload.pragma.parser import parse
from offload.pragma.syntax import Clause, Directive, Item, Iterator, Member, Modifier, PythonText, Subscript, Triple
from tests.pragma import right_strings, wrong_strings


def read_right(language, text):
    """Return (language, string, values) for each entry of a text of `right_strings`."""
    joined = text.strip().replace("\n    => ", " => ")
    return [(language, *line.split(" => ")) for line in joined.splitlines()]


def read_wrong(language, text):
    """Return (language, string, begin, end, is unsupported, message) for each entry of a text of `wrong_strings`."""
    found = []
    for line in text.strip().splitlines():
        marked, message = line.rsplit(" => ", 1)
        begin, end = marked.index("«"), marked.index("»") - 1
        string = marked.replace("«", "").replace("»", "")
        found.append((language, string, begin, end, message.startswith("!"), message.lstrip("!")))
    return found


RIGHT = [*read_right("omp", right_strings.OMP), *read_right("acc", right_strings.ACC)]
WRONG = [*read_wrong("omp", wrong_strings.OMP), *read_wrong("acc", wrong_strings.ACC)]


# -- the compact form of values --------------------------------------------------------------------


def shown_item(item):
    return " ".join((item.root.text, *map(shown_step, item.steps)))


def shown_step(step):
    if isinstance(step, Member):
        return f".{step.name}"
    return f"[{', '.join(map(shown_dimension, step.dimensions))}]"


def shown_dimension(dimension):
    if isinstance(dimension, Triple):
        parts = (dimension.lower, dimension.length, dimension.stride)
        return "|".join("-" if part is None else part.text for part in parts)
    return dimension.text


def shown_modifier(modifier):
    return modifier.name if modifier.argument is None else f"{modifier.name} {modifier.argument.text}"


def shown_iterator(one):
    return " ".join((one.name, one.begin.text, one.end.text, one.step.text if one.step else "-"))


def shown_clause(clause):
    parts = [f"{clause.name}:{clause.kind}" if clause.kind else clause.name]
    if clause.modifiers:
        parts.append(f"{{{', '.join(map(shown_modifier, clause.modifiers))}}}")
    if clause.iterators:
        parts.append(f"<{', '.join(map(shown_iterator, clause.iterators))}>")
    if clause.items:
        parts.append(f"({', '.join(map(shown_item, clause.items))})")
    if clause.expressions:
        parts.append(f"={', '.join(one.text for one in clause.expressions)}")
    return " ".join(parts)


def shown(directive):
    """Return the values of a directive in the compact form of `right_strings`."""
    head = directive.name
    if directive.arguments_modifiers:
        head += f" {{{', '.join(map(shown_modifier, directive.arguments_modifiers))}}}"
    if directive.arguments:
        head += f"({', '.join(map(shown_item, directive.arguments))})"
    return " / ".join((head, *map(shown_clause, directive.clauses)))


def refusal(string, language="omp"):
    """Return the error that a wrong string raises."""
    with pytest.raises(PragmaError) as caught:
        parse(string, language)
    return caught.value


def token(error):
    """Return the token that an error points at."""
    return error.text[error.offset - 1 : error.end_offset - 1]


# -- right strings ---------------------------------------------------------------------------------


def test_there_are_enough_strings():
    """Each of the two tables has at least 200 different strings."""
    assert len({entry[:2] for entry in RIGHT}) == len(RIGHT) >= 200
    assert len({entry[:2] for entry in WRONG}) == len(WRONG) >= 200


@pytest.mark.parametrize(("language", "string", "values"), RIGHT)
def test_right_strings(language, string, values):
    """A right string gives the expected values."""
    assert shown(parse(string, language)) == values


@pytest.mark.parametrize(("language", "string", "values"), RIGHT)
def test_blanks_line_breaks_and_commas_change_nothing(language, string, values):
    """Any blanks around a string, and a line break for each blank outside of Python's strings, give the same values."""
    assert shown(parse(f" \t\n{string}\r\n", language)) == values
    if '"' not in string and "'" not in string and "  " not in string:
        assert shown(parse(string.replace(" ", "\n"), language)).replace("\n", " ") == values


def spans_of(value):
    """Yield (text, span) of each value in a directive that has both."""
    if isinstance(value, (PythonText, Item)):
        yield value.text, value.span
    if isinstance(value, (Member, Iterator)):
        yield value.name, value.span
    if isinstance(value, tuple):
        for part in value:
            yield from spans_of(part)
    elif isinstance(value, (Directive, Clause, Item, Subscript, Triple, Iterator, Modifier)):
        for name in value.__slots__:
            yield from spans_of(getattr(value, name))


@pytest.mark.parametrize(("language", "string", "values"), RIGHT)
def test_spans(language, string, values):
    """Each expression, item, member and iterator stands where its span says."""
    directive = parse(string, language)
    assert directive.text == string
    for text, span in spans_of(directive):
        assert string[span.begin : span.end].startswith(text)
    for clause in directive.clauses:
        whole = string[clause.span.begin : clause.span.end]
        assert whole.startswith(string[clause.word.begin : clause.word.end])
        assert whole.isidentifier() or whole.endswith(")")
        if clause.kind_span:
            assert string[clause.kind_span.begin : clause.kind_span.end] in whole


def test_spans_of_steps_and_sections():
    """Steps and sections have the places of their own brackets and colons, also after characters of several bytes."""
    string = "task depend(in: é.ñ [i][ü:n, 0:n:2].x)"
    (item,) = parse(string, "omp").clauses[0].items
    assert [string[step.span.begin : step.span.end] for step in item.steps] == ["ñ", "[i]", "[ü:n, 0:n:2]", "x"]
    assert [string[one.span.begin : one.span.end] for one in item.steps[2].dimensions] == ["ü:n", "0:n:2"]
    assert item.name == item.root.text == "é"


def test_spans_in_several_lines():
    """Places count characters of the whole string, in whichever line they are."""
    string = "task\n  depend(in: f(\n  é,\r\n  b)[ü:\n  n])\n  priority(1\n  + 2)"
    directive = parse(string, "omp")
    (item,) = directive.clauses[0].items
    (section,) = item.steps[0].dimensions
    assert string[section.length.span.begin : section.length.span.end] == "n"
    assert directive.clauses[1].expressions[0].text == "1\n  + 2"


def test_equal_strings_give_the_same_directive():
    """A string is parsed once; each error is a new one."""
    assert parse("target nowait", "omp") is parse("target nowait", "omp")
    assert refusal("target nowit") is not refusal("target nowit")


def test_nodes_are_those_of_python():
    """The node of an expression is the tree that Python's parser makes of it."""
    for string in ("x", "3", "0", "é", "a[1:2]", "f(x)", "1.5", "x if y else z", "None"):
        (expression,) = parse(f"task if({string})", "omp").clauses[0].expressions
        assert ast.dump(expression.node) == ast.dump(ast.parse(string, mode="eval").body)


def test_names_are_normalised_as_in_python():
    """A name is the identifier that Python makes of it, while its text is as it is written."""
    (item,) = parse("task shared(\ufb01x)", "omp").clauses[0].items
    assert (item.name, item.text) == ("fix", "\ufb01x")
    assert token(refusal("task shared(\ufb01x) private(fix)")) == "fix"


# -- wrong strings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("language", "string", "begin", "end", "is_unsupported", "message"), WRONG)
def test_wrong_strings(language, string, begin, end, is_unsupported, message):
    """A wrong string raises its class, at its token, with its message, each time."""
    for _ in range(2):
        error = refusal(string, language)
        assert type(error) is (UnsupportedPragmaError if is_unsupported else PragmaError)
        assert (error.span.begin, error.span.end) == (begin, end)
        assert token(error) == string[begin:end]
        assert (error.filename, error.lineno, error.end_lineno, error.text) == ("<directive>", 1, 1, string)
        assert message in error.msg
        assert len(error.msg) < 200


@pytest.mark.parametrize(
    ("string", "expected", "line", "column"),
    [
        ("target\n  map(to:\r\n x,\n  , y)", ",", 4, 3),
        ("\n\ntagret", "tagret", 3, 1),
        ("task if(n\n >\n)", ")", 3, 1),
        ("task depend(in: é,\n b c)", "c", 2, 4),
        ("task depend(in: é + é é,\n b)", "é", 1, 23),
        ("task\rdpend(in: x)", "dpend", 2, 1),
        ("task\x0cdpend(in: x)", "dpend", 1, 6),
        ("task depend(in: (é\n  if x))", "é", 1, 18),
        ("task depend(in: '''a\nb''', x y)", "y", 2, 9),
    ],
)
def test_places_in_several_lines(string, expected, line, column):
    """The line and the column of a token count in the string, and the error's text is this line."""
    error = refusal(string)
    assert (error.lineno, error.offset, token(error)) == (line, column, expected)
    assert expected in error.text
    assert "\n" not in error.text


def test_tokens_of_several_lines():
    """A token that goes over lines is marked up to the end of its first line, and its span is whole."""
    error = refusal("target\nupdate nowait")
    assert (token(error), error.lineno, error.span.begin, error.span.end) == ("target", 1, 0, 13)


@pytest.mark.parametrize(
    "string",
    [
        "\0",
        "task\0",
        "task if(\0)",
        'task if("\0")',
        "task\ud800",
        "task if(\ud800)",
        "task if('\ud800')",
        "task if(x\ud800[0])",
        "task\xa0nowait",
        "task\u2028nowait",
        "\ufefftask",
        "task if(" + "(" * 100_000,
        "task if(" + "(" * 100 + ")" * 100 + ")",
        "task if(" + "[" * 100_000 + "]" * 100_000 + ")",
        "task if(" + "not " * 100_000 + "x)",
        "task if(" + "-" * 5_000 + "1)",
        "task if(" + "a." * 3_000 + "b)",
        "task if(" + "x+" * 200 + "x)",
        "task if(" + "9" * 5_000 + ")",
        "task if(" + "f'{" * 1_000 + ")",
        "task if(" + "f'{x:" * 1_000 + ")",
        "task if(" + "f'{x:{" * 1_000 + ")",
        "task if('" + "\\'" * 100_000 + ")",
        "task " + "x" * 100_000,
        "x" * 100_000,
        "target_" * 20_000,
        "task if(" + "lambda: " * 500 + "0)",
        "task if(" + "x if y else " * 500 + "0)",
        "task if(f(*a, **b, *c))",
        "task if({**a for a in b})",
        "task if(x = 3)",
        "task if(f(x.y=3))",
        "task if(del x)",
        "task if(import x)",
        "task if(x\\\n+ 1)",
        "task if(b'é')",
        "task if('\\N{NO SUCH NAME}')",
        "task if('\\xZZ')",
        "task if(1ifx else 2)",
        "task if(.5if x else 2)",
        "task if(0777)",
        "task if(1__0)",
        "task if(1e)",
        "task if(f'{}')",
        "task if(f'{x!z}')",
        "task if(f'{x')",
        "task if(f'}')",
        "task if('a' b'b')",
    ],
)
def test_odd_strings_raise_pragma_errors(string):
    """Strings with odd characters, or far too long or too deep, raise a PragmaError, without a warning."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        error = refusal(string)
    assert not seen
    assert len(error.msg) < 300
    assert 0 <= error.span.begin <= error.span.end <= len(string)


@pytest.mark.parametrize(
    "string",
    ["task if(1.0.is_integer())", "task if(x is 3)", "task if((1)[0])", "task if('a' 'b')", "task if(f'{x!r}')"],
)
def test_doubtful_expressions_are_right(string):
    """An expression that Python's compiler would only warn of is right, and parsing it does not warn."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        parse(string, "omp")
    assert not seen


def test_every_parsed_expression_compiles():
    """Python's compiler takes each expression that the parser takes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        for language, string, _ in RIGHT:
            for clause in parse(string, language).clauses:
                for expression in (*clause.expressions, *(item.root for item in clause.items)):
                    compile(ast.fix_missing_locations(ast.Expression(expression.node)), "<directive>", "eval")


@pytest.mark.parametrize("string", ["f(" * 49 + ")" * 49, "-" * 49 + "x", "x[" * 49 + "0" + "]" * 49, "x+" * 49 + "x"])
def test_the_deepest_expressions_can_be_copied(string):
    """A tree that the parser takes is not too deep for a program that copies it by recursion."""
    (expression,) = parse(f"task if({string})", "omp").clauses[0].expressions
    assert ast.dump(copy.deepcopy(expression.node)) == ast.dump(expression.node)


def test_errors_pickle():
    """A pickled error keeps its class, message, place and span."""
    for string in ("target nowit", "threadprivate(x)"):
        error = refusal(string)
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.span) == (type(error), str(error), error.span)
        assert (again.offset, again.end_offset, again.text) == (error.offset, error.end_offset, error.text)


def test_parser_imports_no_numpy_of_its_own():
    """The parser and the tables import neither NumPy nor threads nor `difflib`."""
    program = (
        "import sys, types\n"
        "package = types.ModuleType('offload'); package.__path__ = [sys.argv[1]]\n"
        "sys.modules['offload'] = package\n"
        "pragma = types.ModuleType('offload.pragma'); pragma.__path__ = [sys.argv[1] + '/pragma']\n"
        "sys.modules['offload.pragma'] = pragma\n"
        "from offload.pragma.parser import parse\n"
        "parse('target nowait depend(in: x[0:n])', 'omp')\n"
        "print(*sorted({'numpy', 'threading', 'difflib', 'time'} & set(sys.modules) - {'time'}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program, offload.__path__[0]], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
