"""Calls on their way to a server: scripts by their digests, several calls in one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis import Redis
from redis.exceptions import NoScriptError

from ..requests.request import Call
from ..scripts import Script

__all__ = ["send", "send_all"]


def send(client: Redis, call: Call) -> Any:
    """The reply to one call. A server that doesn't know a script yet is sent its text."""
    command, keys, arguments = call
    if isinstance(command, str):
        return client.execute_command(command, *keys, *arguments)  # type: ignore[no-untyped-call]
    try:
        return client.execute_command("EVALSHA", command.sha, len(keys), *keys, *arguments)  # type: ignore[no-untyped-call]
    except NoScriptError:
        return client.execute_command("EVAL", command.source, len(keys), *keys, *arguments)  # type: ignore[no-untyped-call]


def send_all(client: Redis, calls: Sequence[Call], *, atomic: bool = False) -> list[Any]:
    """The replies to several calls, in one round trip; ``atomic`` lets nothing come between them.

    A client of a cluster is asked one after the other. Raises the first error that one of them raised.
    """
    if not isinstance(client, Redis):
        return [send(client, call) for call in calls]
    for known in (True, False):
        pipeline: Any = client.pipeline(transaction=atomic)
        for command, keys, arguments in calls:
            pipeline.execute_command(*_words(command, len(keys), known), *keys, *arguments)
        replies: list[Any] = pipeline.execute(raise_on_error=False)
        errors = [reply for reply in replies if isinstance(reply, Exception)]
        if not any(isinstance(error, NoScriptError) for error in errors):
            break
    if errors:
        raise errors[0]
    return replies


def _words(command: Script | str, keys: int, known: bool) -> tuple[Any, ...]:
    if isinstance(command, str):
        return (command,)
    return ("EVALSHA", command.sha, keys) if known else ("EVAL", command.source, keys)
