"""The measure of plain prose, `tools/prose.py`: its rules, and the texts that it reads."""

from pathlib import Path

import pytest

from tools import prose

SENTENCES = {
    "opener": ("What is mapped to the device is copied back.", "The mapped array is copied back."),
    "what": ("The call returns what the body returns.", "The call returns the result of the body."),
    "beside": ("The copy runs beside the kernel.", "The copy runs at the same time as the kernel."),
    "that-of": ("The rate is that of a contiguous copy.", "The rate equals the rate of a contiguous copy."),
    "idiom": ("The table is made anew at each call.", "Each call makes the table again."),
    "long": (" ".join(["word"] * 31) + ".", " ".join(["word"] * 30) + "."),
    "you": ("You pass the array by its name.", "The program passes the array by its name."),
}
"""For each rule a sentence that it counts, and one that it does not."""


def hits(text: str) -> dict[str, int]:
    """Return the hits in a text, by rule, without zeros."""
    found = [+sentence.hits for sentence in prose.sentences_of(prose.Text(Path("page.md"), 1, text))]
    return dict(sum(found, prose.Counter()))


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_each_rule_has_sentences():
    """No rule of the table of goals is without an example."""
    assert list(SENTENCES) == list(prose.GOALS)


@pytest.mark.parametrize("rule", prose.GOALS)
def test_a_rule_counts_the_first_sentence_and_not_the_second(rule):
    """Each rule finds its own fault, and nothing in the plain sentence."""
    counted, other = SENTENCES[rule]
    assert hits(counted)[rule] == 1
    assert rule not in hits(other)


def test_an_opener_stands_at_the_beginning():
    """The rule looks at the first word of each sentence only."""
    assert hits("The task waits. Nothing else is ordered here.") == {"opener": 1}
    assert hits("The task waits where nothing else is ordered.") == {}


def test_code_is_a_word_without_hits():
    """Inline code counts as one word, so that its names break no rule."""
    assert hits("The call ``what(behind)`` and `whoever` return you.") == {"you": 1}


def test_pages_are_read_without_listings_tables_and_headings(tmp_path):
    """Only paragraphs and list items count, each by itself, with the line where it begins."""
    page = "# What\n\nFirst line\nand second.\n\n```py\nwhat\n```\n\n| what |\n\n* one item\n  goes on\n* other item\n"
    texts = list(prose.paragraphs(write(tmp_path / "page.md", page)))
    assert [(text.line, text.text) for text in texts] == [
        (3, "First line\nand second."),
        (12, "one item\ngoes on"),
        (14, "other item"),
    ]


def test_docstrings_are_read_without_examples_and_types(tmp_path):
    """Headings of sections, parameters' types and examples with their output do not count."""
    source = (
        'def f():\n    """Do it.\n\n    Parameters\n    ----------\n    x : int\n        Its size.\n\n'
        '    >>> f(1)\n    what\n\n    Then stop.\n    """\n'
    )
    write(tmp_path / "pack/__init__.py", source)
    (text,) = prose.Package(tmp_path / "pack").docstrings()
    assert text.text.split() == ["Do", "it.", "Its", "size.", "Then", "stop."]


def test_public_docstrings_follow_imports(tmp_path):
    """A public class has its public methods, also those of its bases; other names do not count."""
    write(tmp_path / "pack/__init__.py", '"""Face."""\nfrom pack.room import C, g\n__all__ = ["C"]\n')
    write(
        tmp_path / "pack/room.py",
        'class B:\n    """Base."""\n    def up(self):\n        """Up."""\n'
        'class C(B):\n    """Class."""\n    def run(self):\n        """Run."""\n'
        '    def _run(self):\n        """Not."""\n'
        'def g():\n    """Not."""\n',
    )
    texts = prose.Package(tmp_path / "pack").public_docstrings(["pack"])
    assert [text.text for text in texts] == ["Face.", "Class.", "Run.", "Base.", "Up."]


def test_messages_are_what_is_raised_and_warned(tmp_path):
    """The text of an exception or a warning is read, with a word for each value."""
    source = (
        'raise E(f"{x} is {y!r} here")\nwarnings.warn("Look out", W)\nwarn("Again", W)\nprint("Not this")\nraise E(x)\n'
    )
    write(tmp_path / "pack/__init__.py", source)
    assert [text.text for text in prose.Package(tmp_path / "pack").messages()] == ["X is X here", "Look out", "Again"]


@pytest.mark.parametrize(("rate", "most", "least"), [(1, True, False), (2, True, True), (3, False, True)])
def test_a_goal_is_the_highest_rate_and_for_you_the_lowest(rate, most, least):
    """A rate that equals its goal meets it."""
    assert prose.is_met("what", rate, 2) is most
    assert prose.is_met("you", rate, 2) is least


def test_rates_are_in_a_thousand_words_and_in_per_cent():
    """``long`` is a share of sentences, every other rate a share of words."""
    text = "What comes first is read. " + SENTENCES["long"][0].capitalize()
    rates = prose.rates_of(prose.sentences_of(prose.Text(Path("page.md"), 1, text)))
    assert rates["long"] == 50
    assert rates["opener"] == rates["what"] == pytest.approx(1000 / 36)


def test_the_command_misses_a_goal(tmp_path, monkeypatch, capsys):
    """A tree that misses a goal gives status 1 and names group, rule, rate and goal; worst sentences are listed."""
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    monkeypatch.setattr(prose, "FACES", ("offload",))
    write(tmp_path / "offload/__init__.py", "__all__ = []\n")
    write(tmp_path / "README.md", "You call the function with an array.\n")
    write(tmp_path / "CONTRIBUTING.md", "Run the tests before you commit.\n")
    assert prose.main([]) == 0
    write(tmp_path / "docs/page.md", "What comes behind is for you.\n")
    assert prose.main(["--worst", "1"]) == 1
    output = capsys.readouterr().out
    assert "pages: beside is 52.63; the goal is ≤ 0.2" in output
    assert "page.md:1: What comes behind is for you." in output


def test_the_command_measures_single_files(tmp_path, capsys):
    """With paths there are rates and no goals."""
    page = write(tmp_path / "page.md", "What comes behind is for you.\n")
    module = write(tmp_path / "module.py", '"""Say a few plain words."""\n')
    assert prose.main([str(page), str(module)]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[1:]] == ["6", "5"]
