"""Pipelines that send the calls of several coroutines together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from copy import copy
from itertools import islice
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from ..queries.request import Call
from .sending import words

__all__ = ["Pipelines", "fresh", "send_all", "send_once"]

_CALLS: Final = 16
"""The most requests in one pipeline, which the server then answers in 2 ms, about."""

_AT_ONCE: Final = 4
"""The most pipelines under way at once, so that the server has work while the replies to one travel."""


class Pipelines:
    """Light requests of several coroutines, sent together: a pipeline takes those that came while others were under
    way. Sending each by itself would cost a client more than the rest of a read."""

    def __init__(self, redis: Redis, free: asyncio.Semaphore) -> None:
        self._redis, self._free = redis, free
        self._waiting: deque[tuple[Sequence[Call], asyncio.Future[list[Any]]]] = deque()
        self._senders: set[asyncio.Task[None]] = set()
        self._is_alone = False
        """True while a request is sent by itself, as there were no others."""

    async def send(self, calls: Sequence[Call]) -> list[Any]:
        """As :func:`send_all`. Cancelling one coroutine doesn't disturb the others."""
        if not self._senders and not self._is_alone:  # nothing to wait for
            try:
                self._is_alone = True
                async with self._free:
                    return await send_all(self._redis, calls)
            finally:
                self._is_alone = False
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((calls, future))
        if len(self._senders) < _AT_ONCE and len(self._senders) * _CALLS < len(self._waiting):
            self._begin()
        return await future

    def _begin(self) -> None:
        sender = asyncio.create_task(self._send_waiting())
        self._senders.add(sender)
        sender.add_done_callback(self._end)

    async def _send_waiting(self) -> None:
        """Send the waiting requests until there are none."""
        together: list[tuple[Sequence[Call], asyncio.Future[list[Any]]]] = []
        try:
            while self._waiting:
                async with self._free:
                    together = list(islice(self._waiting, _CALLS))
                    for _ in together:  # interrupted anywhere, each is still in one of the two
                        self._waiting.popleft()
                    replies = iter(await self._replies([call for calls, _ in together for call in calls]))
                for calls, future in together:
                    _settle(future, list(islice(replies, len(calls))))
        except asyncio.CancelledError:  # the loop ends
            for _, future in together:
                future.cancel()
            raise
        except BaseException as error:  # the handler of a signal has raised it here
            for _, future in together:
                if not future.done():
                    future.set_exception(fresh(error))
            raise
        finally:
            self._senders.discard(asyncio.current_task())

    def _end(self, sender: asyncio.Task[None]) -> None:
        """Cancel the waiting requests of a sender that was cancelled, perhaps before it began. Leave those of one that
        failed to another."""
        self._senders.discard(sender)
        if sender.cancelled():
            for _, future in self._waiting:
                future.cancel()
            self._waiting.clear()
        elif sender.exception() and self._waiting and not self._senders:
            self._begin()

    async def _replies(self, calls: Sequence[Call]) -> list[Any]:
        try:
            return await _replies(self._redis, calls)
        except Exception as error:  # noqa: BLE001 - each coroutine raises a copy
            return [error] * len(calls)


def _settle(future: asyncio.Future[list[Any]], replies: list[Any]) -> None:
    if future.done():  # its coroutine was cancelled
        return
    if errors := [reply for reply in replies if isinstance(reply, Exception)]:
        future.set_exception(fresh(errors[0]).with_traceback(errors[0].__traceback__))
    else:
        future.set_result(replies)


def fresh(error: BaseException) -> BaseException:
    """Return a copy of an error that several coroutines raise: each adds its own traceback."""
    try:
        copied = copy(error)
    except Exception:  # noqa: BLE001 - a class may take other arguments than it stores
        return error
    copied.__cause__ = error.__cause__
    return copied


async def send_once(client: Redis, call: Call) -> Any:
    """As :func:`~django_zrank.redis.sending.send_once`: never sent again after an error of the connection."""
    pool: Any = client.connection_pool
    connection = await pool.get_connection()
    try:
        try:
            await connection.send_command(*words(call))
            return await connection.read_response()
        except NoScriptError:
            await connection.send_command(*words(call, known=False))
            return await connection.read_response()
    finally:
        await pool.release(connection)


async def send_all(client: Redis, calls: Sequence[Call], *, atomic: bool = False) -> list[Any]:
    """As :func:`~django_zrank.redis.sending.send_all`."""
    if len(calls) == 1:
        return [await _send_one(client, calls[0])]
    replies = await _replies(client, calls, atomic=atomic)
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


async def _send_one(client: Redis, call: Call) -> Any:
    try:
        return await client.execute_command(*words(call))  # type: ignore[no-untyped-call]
    except NoScriptError:
        return await client.execute_command(*words(call, known=False))  # type: ignore[no-untyped-call]


async def _replies(client: Redis, calls: Sequence[Call], *, atomic: bool = False) -> list[Any]:
    """Return the replies to several calls, errors included."""
    replies: list[Any] = []
    for known in (True, False):
        pipeline: Any = client.pipeline(transaction=atomic)
        for call in calls:
            pipeline.execute_command(*words(call, known=known))
        replies = await pipeline.execute(raise_on_error=False)
        if not any(isinstance(reply, NoScriptError) for reply in replies):
            break
    return replies
