"""Pages that the code fills: the clauses of each construct, the command line, and the environment variables.

* The clauses come from the signatures, which ``help`` shows.
* The command line comes from the parser of `offload.cli`.
* The variables and their defaults come from `offload.runtime.settings`. ``docs/reference.md`` describes each of them.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
from typing import TYPE_CHECKING, Any

from sphinx.util.logging import getLogger

from build_site.files import DOCS, write
from build_site.reference import sections
from offload.cli import command, port, run
from offload.runtime.settings import format_env, read_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

logger = getLogger(__name__)

LANGUAGES = {"OpenMP": "offload", "OpenACC": "offload.acc"}
CONSTRUCTS = {
    "offload": dict(sections())["Constructs"],
    "offload.acc": (
        *("data", "enter_data", "exit_data", "update", "host_data", "declare"),
        *("parallel", "serial", "kernels", "parallel_loop", "kernels_loop", "loop", "wait"),
    ),
}
"""The constructs of each module. The rest of a module are routines, which have parameters and no clauses."""

OLDER = re.compile(r"p(?:resent_or_)?(?:copy|copyin|copyout|create)$")
"""OpenACC's older spellings of data clauses."""

SUBJECTS = {
    *("array", "body", "class_", "cls", "combiner", "construct", "fn", "function", "initializer", "iterable"),
    *("iterations", "queues", "unknown", "use_device"),
}
"""The parameters for the subject of a construct, which are no clauses."""


def write_pages(app: Sphinx) -> None:
    """Write the three pages."""
    write(DOCS / "generated/clauses.md", clauses())
    write(DOCS / "generated/command-line.md", command_line())
    write(DOCS / "generated/environment.md", environment())


# ---------------------------------------------------------------- clauses


def constructs(module: str) -> dict[str, list[inspect.Parameter]]:
    """Return the clauses of each construct of a module by its name."""
    exports = importlib.import_module(module)
    found = {}
    for name in CONSTRUCTS[module]:
        thing = getattr(exports, name)
        if inspect.isroutine(thing):
            parameters = inspect.signature(thing).parameters.values()
            own = [one for one in parameters if one.name not in SUBJECTS and not OLDER.match(one.name)]
            if own:
                found[name] = own
    return found


def clauses() -> str:
    """Return the page of clauses: by construct, and by clause."""
    text = (
        "# Clauses by construct\n\nThe site's build makes these tables from the signatures of the constructs. "
        "[Directive strings](../directive-strings.md) has the same tables for directives.\n"
    )
    for language, module in LANGUAGES.items():
        found = constructs(module)
        text += f"\n## {language}\n\n| construct | clauses |\n|---|---|\n"
        for name, parameters in found.items():
            text += f"| {link(module, name)} | {', '.join(f'`{parameter.name}`' for parameter in parameters)} |\n"
        text += f"\n### Clauses of {language}\n\n| clause | type | default | constructs |\n|---|---|---|---|\n"
        for clause, parameter in sorted(first_of_each(found).items()):
            owners = [link(module, name) for name, own in found.items() if clause in {one.name for one in own}]
            kind = type_of(parameter).replace("|", "\\|")
            default = "" if parameter.default is parameter.empty else f"`{parameter.default!r}`"
            text += f"| `{clause}` | `{kind}` | {default} | {', '.join(owners)} |\n"
    return text + "\nThe {doc}`types <api/types>` have their own page.\n"


def first_of_each(found: dict[str, list[inspect.Parameter]]) -> dict[str, inspect.Parameter]:
    """Return the parameters of all constructs, each name once."""
    return {parameter.name: parameter for own in reversed(found.values()) for parameter in own}


def type_of(parameter: inspect.Parameter) -> str:
    """Return the type of a parameter as its signature spells it."""
    return str(parameter.annotation).strip("'\"")


def link(module: str, name: str) -> str:
    """Return a link to the entry of a name."""
    shown = name if module == "offload" else f"acc.{name}"
    return f"{{py:obj}}`{shown} <{module}.{name}>`"


# ---------------------------------------------------------------- command line


def command_line() -> str:
    """Return the page of commands: the usage of each, and its options."""
    text = (
        "# Command line\n\n`offload` and `python -m offload` are the same command. The site's build makes this page "
        "from the parser, so it agrees with `--help`.\n"
    )
    for parser in parsers():
        first, *rest = parser.format_usage().removeprefix("usage: ").splitlines(keepends=True)
        usage = first + "".join(" " * (len(parser.prog) + 1) + line.lstrip() for line in rest)
        text += f"\n## `{parser.prog}`\n\n"
        if parser.description:
            text += sentence(parser.description) + "\n\n"
        text += f"```text\n{usage}```\n"
        rows = list(options(parser))
        if rows:
            text += "\n| argument | meaning |\n|---|---|\n" + "".join(
                f"| {words} | {meaning} |\n" for words, meaning in rows
            )
    return text


def parsers() -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers of all commands."""
    for name, part in {"run": run, "port": port}.items():
        description = {"run": command._RUN, "port": command._PORT}[name]  # noqa: SLF001  # they have no other name
        parser = argparse.ArgumentParser(prog=f"offload {name}", description=description)
        part.add_arguments(parser)
        yield parser
    for parser in leaves(command._parser()):  # noqa: SLF001
        if parser.prog not in {"offload run", "offload port"}:
            yield parser


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers of commands that have no further commands."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]  # noqa: SLF001
    if not groups:
        yield parser
    for group in groups:
        for child in group.choices.values():
            yield from leaves(child)


def options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Yield the arguments of a command: their spelling, and their help."""
    formatter = parser._get_formatter()  # noqa: SLF001  # the only place that expands %(default)s
    for action in parser._actions:  # noqa: SLF001
        if action.help is argparse.SUPPRESS or "--help" in action.option_strings:
            continue
        value = "" if action.nargs == 0 else formatter._format_args(action, placeholder(action))  # noqa: SLF001
        names = [f"`{name} {value}`".replace(" `", "`") for name in action.option_strings] or [f"`{value}`"]
        meaning = sentence(formatter._expand_help(action)) if action.help else ""  # noqa: SLF001
        yield ", ".join(names).replace("|", "\\|"), meaning.replace("|", "\\|")


def placeholder(action: argparse.Action) -> str:
    """Return the name that stands for the value of an argument."""
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.dest.upper() if action.option_strings else action.dest


def sentence(text: str) -> str:
    """Return a text of the parser as Markdown, with options and variables as code."""
    words = " ".join(text.split())
    if "`" in words:
        return words
    return re.sub(r"(--[a-z][\w-]*|\b[A-Z]+_[A-Z_]+\b)", r"`\1`", re.sub(r"([<>*])", r"\\\1", words))


# ---------------------------------------------------------------- environment


def environment() -> str:
    """Return the page of variables: the default of each, and its description."""
    settings = read_settings({})
    described = dict(described_variables())
    missing = set(settings.variables) - set(described)
    if missing:
        logger.warning("docs/reference.md describes no variable %s", ", ".join(sorted(missing)))
    text = (
        "# Environment variables\n\noffload reads these variables when it makes a runtime. The site's build takes the "
        "names and the defaults from the code.\n\n| variable | default | value |\n|---|---|---|\n"
    )
    for name, meaning in described.items():
        default = settings.variables.get(name)
        text += f"| `{name}` | {'' if default is None else f'`{default}`'} | {meaning} |\n"
    shown = format_env(settings, 0, verbose=True)
    return f"{text}\nWithout any of them, `OMP_DISPLAY_ENV=verbose` prints:\n\n```text\n{shown}```\n"


def described_variables() -> Iterator[tuple[str, str]]:
    """Yield the variables of ``docs/reference.md`` and their descriptions."""
    text = (DOCS / "reference.md").read_text("utf-8")
    part = text.partition("\n## Environment variables\n")[2].partition("\n## ")[0]
    for names, meaning in re.findall(r"^\| (`[A-Z].*?) \| (.*) \|$", part, re.MULTILINE):
        for name in re.findall(r"`(\w+)`", names):
            yield name, re.sub(r"\]\((?!\w+:)", "](../", meaning)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension."""
    app.connect("builder-inited", write_pages)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
