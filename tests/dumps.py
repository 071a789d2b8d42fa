"""All that a server holds, put back while it runs: as if the machine were rolled back with its memory."""

from __future__ import annotations

from redis import Redis

__all__ = ["dump", "restore"]


def dump(client: Redis) -> dict[bytes, tuple[bytes, int]]:
    """Return each key's contents, and the milliseconds that it has left, 0 for ever."""
    return {key: (client.dump(key), max(0, client.pttl(key))) for key in client.scan_iter()}


def restore(client: Redis, held: dict[bytes, tuple[bytes, int]]) -> None:
    client.flushdb()
    for key, (contents, left) in held.items():
        client.restore(key, left, contents)
