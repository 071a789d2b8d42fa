"""The Lua scripts: one file, one constant. What each takes and returns stands at the top of its file."""

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
    "CHECK_HEALTH",
    "FINISH_REPLAY",
    "LOAD_ROWS",
    "READ_MEMBERS",
    "SAMPLE_NEARBY",
    "START_REBUILD",
    "SWAP_REBUILT",
    "Script",
]


class Script:
    """A script, sent by its digest; a server that doesn't know it yet is sent the text.

    ``preludes``: files of ``lua/lib``, which hold nothing but functions, to be put before it.
    """

    def __init__(self, name: str, *preludes: str) -> None:
        self.name = name
        self.preludes = preludes
        self.source = _read(f"{name}.lua")
        self.text = "\n".join([*(_read("lib", f"{prelude}.lua") for prelude in preludes), self.source])
        self.sha = sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def __repr__(self) -> str:
        return f"<Script {self.name}>"

    def __call__(self, client: Redis, keys: Sequence[str], args: Sequence[Any]) -> Any:
        try:
            return client.execute_command("EVALSHA", self.sha, len(keys), *keys, *args)  # type: ignore[no-untyped-call]
        except NoScriptError:
            return client.execute_command("EVAL", self.text, len(keys), *keys, *args)  # type: ignore[no-untyped-call]


def _read(*path: str) -> str:
    return files(__package__).joinpath("lua", *path).read_text(encoding="utf-8")


ABANDON_REBUILD: Final = Script("abandon_rebuild", "clear")
ADOPT_SERVER: Final = Script("adopt_server", "clear")
APPLY_CHANGES: Final = Script("apply_changes", "places")
BEGIN_WRITE: Final = Script("begin_write", "clear")
CHECK_HEALTH: Final = Script("check_health")
FINISH_REPLAY: Final = Script("finish_replay")
LOAD_ROWS: Final = Script("load_rows", "places")
READ_MEMBERS: Final = Script("read_members", "places")
SAMPLE_NEARBY: Final = Script("sample_nearby")
START_REBUILD: Final = Script("start_rebuild", "clear")
SWAP_REBUILT: Final = Script("swap_rebuilt", "clear", "move")
