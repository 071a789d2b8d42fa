"""The Lua scripts: one file, one constant. The top of each file says what it takes and returns.

Those below are the kernel's. A part keeps its own in the folder ``lua`` of its package, and their constants in the
module that calls them.

A script that calls functions of ``lua/lib`` names their libraries in its first line, ``-- uses: ties, deck``, and so
does a library. They are sent before its own text, each once; or in place of a line ``-- Libraries come here.``: calls
that return before it don't define their functions.

A script that writes by several commands calls ``require_commands()`` before the first, with a key alone: those that
are sent are the commands that follow, and those of the libraries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Final

KERNEL: Final = "django_zrank"

_HERE: Final = "-- Libraries come here.\n"

_CHECK: Final = re.compile(r"require_commands\(\w+(?=\))")
"""A check of all commands that follow."""

_COMMAND: Final = re.compile(r"\b(?:p?call|write_all|read_all)\(([^,()]*)(?:\)|,(?! '[A-Z]+'))")
"""A call of a command, with what names it; not of one with subcommands, of which accounts may use some."""


class Script:
    """A script: its name, its text, and the source that is sent.

    ``package``: the one whose folder ``lua`` it is in. Its libraries are in ``lua/lib`` there, or in the kernel's.
    ``parts``: the packages whose text in ``lua/before``, of the same name, precedes it.
    ``libraries_of``: a package whose libraries take the place of others of the same names.
    """

    def __init__(
        self, name: str, package: str = KERNEL, parts: Sequence[str] = (), libraries_of: str = ""
    ) -> None:
        self.name, self.package, self.parts, self.libraries_of = name, package, tuple(parts), libraries_of
        self.text = _read(name, package)
        own = [*((_read(f"before/{name}", part), part) for part in parts), (self.text, package)]
        texts = [(text, tuple(filter(None, (libraries_of, home)))) for text, home in own]
        # The library of a name: of the package whose text names it first.
        used = {name: home for text, home in reversed(texts) for name in _libraries(text, home)}
        self.libraries = tuple(dict.fromkeys(name for text, home in texts for name in _libraries(text, home)))
        libraries = [
            *(library_text(one, used[one]) for one in self.libraries),
            *(text for text, _ in texts[:-1]),
        ]
        first, _, rest = _checking(self.text, libraries).rpartition(_HERE)
        self.source = "\n".join(filter(None, [first, *libraries, rest]))
        self.sha = sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    def __repr__(self) -> str:
        return f"<Script {self.name}>"

    def using(self, package: str) -> Script:
        """Return the script with the libraries of a package in place of others of the same names; '' for its own."""
        return _using(self, package) if package else self


@cache
def preceded(name: str, parts: tuple[str, ...]) -> Script:
    """Return a script of the kernel, with the texts of parts that precede it."""
    return Script(name, parts=parts)


@cache
def _using(script: Script, package: str) -> Script:
    libraries = files(package).joinpath("lua", "lib")
    if not any(libraries.joinpath(f"{name}.lua").is_file() for name in script.libraries):
        return script
    return Script(script.name, script.package, script.parts, package)


def _read(name: str, package: str) -> str:
    return files(package).joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")


def _checking(text: str, libraries: list[str]) -> str:
    """Return the text of a script that passes to ``require_commands()`` all commands that follow, or are called by its
    libraries."""
    check = _CHECK.search(text)
    if not check:
        return text
    named = _COMMAND.findall("\n".join([text[check.end() :], *libraries]))
    commands = sorted(set(re.findall(r"'[A-Z]+'", "\n".join(named))))
    return text[: check.end()] + "".join(f", {command}" for command in commands) + text[check.end() :]


def library_text(name: str, packages: Sequence[str]) -> str:
    """The text of a library: of the first of these packages that has it, or of the kernel."""
    for package in packages:
        with suppress(FileNotFoundError):
            return _read(f"lib/{name}", package)
    return _read(f"lib/{name}", KERNEL)


def _libraries(text: str, packages: Sequence[str]) -> Iterator[str]:
    """The libraries that a script or a library names, each after those that it uses itself."""
    named = re.match(r"-- uses: (.+)\n", text)
    for library in named[1].split(", ") if named else ():
        yield from _libraries(library_text(library, packages), packages)
        yield library


ABANDON_REBUILD: Final = Script("abandon_rebuild")
ADOPT_SERVER: Final = Script("adopt_server")
APPLY_CHANGES: Final = Script("apply_changes")
BEGIN_WRITE: Final = Script("begin_write")
CHECK_HEALTH: Final = Script("check_health")
COUNT_FACET: Final = Script("count_facet")
DEAL: Final = Script("deal")
FINISH_REPLAY: Final = Script("finish_replay")
LOAD_ROWS: Final = Script("load_rows")
READ_PAGE: Final = Script("read_page")
READ_PLACEMENTS: Final = Script("read_placements")
READ_RANKS: Final = Script("read_ranks")
SAMPLE_NEARBY: Final = Script("sample_nearby")
START_REBUILD: Final = Script("start_rebuild")
SWAP_REBUILT: Final = Script("swap_rebuilt")
UNLINK_BUILD: Final = Script("unlink_build")
