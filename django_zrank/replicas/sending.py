"""Sending requests to replicas."""

from __future__ import annotations

import asyncio
from typing import Any

from redis.exceptions import RedisError

from ..conf import get_settings
from ..pool import guard
from ..queries.request import Request
from ..redis.asynchronous import send_by
from ..redis.executor import Executor
from ..redis.loops import running_loop
from ..redis.sending import cache_client, has_several, send_all

__all__ = ["asend", "send"]


def send(executor: Executor, request: Request) -> list[Any]:
    """Return the replies of a replica to a request, in one round trip; of a cluster, one of each node."""
    try:
        client: Any = executor.client
        if has_several(client):
            replies: list[Any] = client.ask_replicas(request)
            return replies
        replica = cache_client(get_settings().redis_alias).get_client(write=False)
        return send_all(guard(replica), request.calls)
    except RedisError as error:
        raise executor.translated(error) from error


async def asend(executor: Executor, request: Request) -> list[Any]:
    """Return the same in a coroutine."""
    try:
        loop = await running_loop()
        client = await loop.client(get_settings().redis_alias, write=False)
        if client.redis is None:
            return await asyncio.to_thread(send, executor, request)
        return await send_by(client, request)
    except RedisError as error:
        raise executor.translated(error) from error
