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
from collections.abc import Iterator
from contextlib import suppress
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
    ``pending``: it takes scores from the database, for an index whose scores begin in Redis. The text in ``lua/before``
    precedes it, and is neither sent nor run for other indexes.
    """

    def __init__(self, name: str, package: str = KERNEL, *, pending: bool = False) -> None:
        self.name = name
        self.text = _read(name, package)
        before = _read(f"before/{name}", package) if pending else ""
        used = [*_libraries(before, package), *_libraries(self.text, package)]
        self.libraries = tuple(dict.fromkeys(used))
        libraries = [*(_library(one, package) for one in self.libraries), before]
        first, _, rest = _checking(self.text, libraries).rpartition(_HERE)
        parts = [first, *libraries, rest]
        self.source = "\n".join(filter(None, parts))
        self.sha = sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    def __repr__(self) -> str:
        return f"<Script {self.name}>"


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


def _library(name: str, package: str) -> str:
    with suppress(FileNotFoundError):
        return _read(f"lib/{name}", package)
    return _read(f"lib/{name}", KERNEL)


def _libraries(text: str, package: str) -> Iterator[str]:
    """The libraries that a script or a library names, each after those that it uses itself."""
    named = re.match(r"-- uses: (.+)\n", text)
    for library in named[1].split(", ") if named else ():
        yield from _libraries(_library(library, package), package)
        yield library


ABANDON_REBUILD: Final = Script("abandon_rebuild")
ADOPT_SERVER: Final = Script("adopt_server")
APPLY_CHANGES: Final = Script("apply_changes")
BEGIN_WRITE: Final = Script("begin_write")
CHANGE_SCORES: Final = Script("change_scores")
CHECK_COUNTS: Final = Script("check_counts")
CHECK_HEALTH: Final = Script("check_health")
CONFIRM_FLUSH: Final = Script("confirm_flush")
COUNT_BEFORE: Final = Script("count_before")
COUNT_FACET: Final = Script("count_facet")
DEAL: Final = Script("deal")
DROP_PENDING: Final = Script("drop_pending")
FINISH_REPLAY: Final = Script("finish_replay")
LOAD_ROWS: Final = Script("load_rows")
INCREMENT_SCORES: Final = Script("increment_scores")
READ_PAGE: Final = Script("read_page")
READ_RANKS: Final = Script("read_ranks")
READ_VALUES: Final = Script("read_values")
RECONCILE_PENDING: Final = Script("reconcile_pending")
REMEMBER_MEMBERS: Final = Script("remember_members")
SAMPLE_NEARBY: Final = Script("sample_nearby")
SETTLE_FLUSH: Final = Script("settle_flush")
START_REBUILD: Final = Script("start_rebuild")
SWAP_REBUILT: Final = Script("swap_rebuilt")
TAKE_PENDING: Final = Script("take_pending")
UNLINK_GENERATION: Final = Script("unlink_generation")
