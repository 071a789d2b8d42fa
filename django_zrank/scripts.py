"""The Lua scripts: one file, one constant. What each takes and returns stands at the top of its file.

Functions that several of them need are in ``lua/lib``, and are sent before the text of those that name them here.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from importlib.resources import files
from typing import Any, Final

from redis import Redis
from redis.exceptions import NoScriptError

__all__ = [
    "ABANDON_REBUILD",
    "ADOPT_SERVER",
    "APPLY_CHANGES",
    "BEGIN_WRITE",
    "CHECK_COUNTS",
    "CHECK_HEALTH",
    "CHECK_NAMES",
    "COUNT_FACET",
    "FIND_STRAYS",
    "FINISH_REPLAY",
    "LOAD_ROWS",
    "NARROW",
    "READ_MEMBERS",
    "READ_PAGE",
    "READ_RANKS",
    "SAMPLE_ANYWHERE",
    "SAMPLE_NEARBY",
    "START_REBUILD",
    "SWAP_REBUILT",
    "Script",
    "run_all",
]


class Script:
    """A script, sent by its digest; a server that doesn't know it yet is sent the text."""

    def __init__(self, name: str, *libraries: str) -> None:
        self.name = name
        self.libraries = libraries
        self.text = _read(name)
        self.source = "\n".join([*(_read(f"lib/{library}") for library in libraries), self.text])
        self.sha = sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    def __repr__(self) -> str:
        return f"<Script {self.name}>"

    def __call__(self, client: Redis, keys: Sequence[str], args: Sequence[Any]) -> Any:
        try:
            return client.execute_command("EVALSHA", self.sha, len(keys), *keys, *args)  # type: ignore[no-untyped-call]
        except NoScriptError:
            return client.execute_command("EVAL", self.source, len(keys), *keys, *args)  # type: ignore[no-untyped-call]


Call = tuple[Script, Sequence[str], Sequence[Any]]


def run_all(client: Redis, calls: Sequence[Call], *, together: bool = False) -> list[Any]:
    """What several scripts answer, in one round trip; ``together`` lets nothing come between them.

    A client of a cluster asks one after the other. Raises the first error that one of them raised.
    """
    if not isinstance(client, Redis):
        return [script(client, keys, args) for script, keys, args in calls]
    for loaded in (True, False):
        pipeline: Any = client.pipeline(transaction=together)
        for script, keys, args in calls:
            command = ("EVALSHA", script.sha) if loaded else ("EVAL", script.source)
            pipeline.execute_command(*command, len(keys), *keys, *args)
        replies: list[Any] = pipeline.execute(raise_on_error=False)
        errors = [reply for reply in replies if isinstance(reply, Exception)]
        if not any(isinstance(error, NoScriptError) for error in errors):
            break
    if errors:
        raise errors[0]
    return replies


def _read(name: str) -> str:
    return files(__package__).joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")


ABANDON_REBUILD: Final = Script("abandon_rebuild", "clear")
ADOPT_SERVER: Final = Script("adopt_server", "server", "clear")
APPLY_CHANGES: Final = Script("apply_changes", "server", "ties", "standing")
BEGIN_WRITE: Final = Script("begin_write", "server", "clear")
CHECK_COUNTS: Final = Script("check_counts", "server", "ties", "standing", "places")
CHECK_HEALTH: Final = Script("check_health", "server")
CHECK_NAMES: Final = Script("check_names", "server")
COUNT_FACET: Final = Script("count_facet", "built", "ties", "places")
FIND_STRAYS: Final = Script("find_strays", "server", "ties", "standing")
FINISH_REPLAY: Final = Script("finish_replay")
LOAD_ROWS: Final = Script("load_rows", "server", "ties", "standing")
NARROW: Final = Script("narrow", "ties", "places", "tests")
READ_MEMBERS: Final = Script("read_members", "server", "ties", "standing")
READ_PAGE: Final = Script("read_page", "built", "ties", "places")
READ_RANKS: Final = Script("read_ranks", "built", "ties", "places")
SAMPLE_ANYWHERE: Final = Script("sample_anywhere", "built", "exclusions", "deck", "ties", "places", "tests")
SAMPLE_NEARBY: Final = Script("sample_nearby", "built", "exclusions", "deck")
START_REBUILD: Final = Script("start_rebuild", "server", "clear")
SWAP_REBUILT: Final = Script("swap_rebuilt", "server", "clear", "move")
