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
    """A script, sent by its digest; a server that doesn't know it yet is sent the text."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = files(__package__).joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")
        self.sha = sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def __repr__(self) -> str:
        return f"<Script {self.name}>"

    def __call__(self, client: Redis, keys: Sequence[str], args: Sequence[Any]) -> Any:
        try:
            return client.execute_command("EVALSHA", self.sha, len(keys), *keys, *args)  # type: ignore[no-untyped-call]
        except NoScriptError:
            return client.execute_command("EVAL", self.text, len(keys), *keys, *args)  # type: ignore[no-untyped-call]


ABANDON_REBUILD: Final = Script("abandon_rebuild")
ADOPT_SERVER: Final = Script("adopt_server")
APPLY_CHANGES: Final = Script("apply_changes")
BEGIN_WRITE: Final = Script("begin_write")
CHECK_HEALTH: Final = Script("check_health")
FINISH_REPLAY: Final = Script("finish_replay")
LOAD_ROWS: Final = Script("load_rows")
READ_MEMBERS: Final = Script("read_members")
SAMPLE_NEARBY: Final = Script("sample_nearby")
START_REBUILD: Final = Script("start_rebuild")
SWAP_REBUILT: Final = Script("swap_rebuilt")
