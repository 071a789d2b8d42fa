"""Steps in coroutines, over ``redis.asyncio``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from asgiref.sync import sync_to_async
from redis.asyncio import Redis
from redis.exceptions import ReadOnlyError, RedisError

from ..conf import get_settings
from ..queries.request import Blocking, Request
from ..queries.steps import Once, Step, Steps
from .loops import Client, Loop, running_loop
from .pipelines import fresh, send_all, send_once
from .sending import in_trips, is_one_trip

if TYPE_CHECKING:
    from .executor import Executor

__all__ = ["adrive", "send_by"]

Answer = TypeVar("Answer")

_LIGHT: Final = 150
"""The most microseconds that a request takes of the server to be sent together with those of other coroutines."""


async def adrive(steps: Steps[Answer], executor: Executor) -> Answer:
    """Take the steps one by one, and return the answer. Only queries of the database run in a thread."""
    loop = await running_loop()
    try:
        step = next(steps)
        while True:
            try:
                outcome = await _take(step, executor, loop)
            except Exception as error:  # noqa: BLE001 - the steps may handle it
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()  # if it was cancelled: at once, not with the traceback


async def _take(step: Step, executor: Executor, loop: Loop) -> Any:
    if isinstance(step, Request):
        return await _send(step, executor, loop)
    if isinstance(step, Blocking):
        return await (step.coroutine or sync_to_async(step.call))()
    await _take_together(step, executor, loop)
    return None


async def _take_together(step: Once, executor: Executor, loop: Loop) -> None:
    """Take the steps, or wait for the coroutine that is taking them, and raise a copy of its error. Another one takes
    them if it was cancelled."""
    if not step.is_due(loop):
        return
    while taken := loop.together.get(step.key):
        error = await asyncio.shield(taken)
        if error is None:
            return
        if not isinstance(error, asyncio.CancelledError):
            raise fresh(error)
    future = loop.together[step.key] = asyncio.get_running_loop().create_future()
    error = None
    try:
        await adrive(step.begin(loop), executor)
    except BaseException as raised:
        error = raised
        raise
    finally:
        del loop.together[step.key]
        future.set_result(error)


async def _send(request: Request, executor: Executor, loop: Loop) -> list[Any]:
    """Return the replies to a request, as :meth:`Executor.send` does."""
    try:
        client = await loop.client(get_settings().redis_alias)
        if client.redis is None:
            return await asyncio.to_thread(executor.send, request)
        if is_one_trip(request):
            return await send_by(client, request)
        replies: list[Any] = []
        for trip in in_trips(request):
            replies += await send_by(client, request._replace(calls=[request.calls[at] for at in trip]))
        return replies
    except RedisError as error:
        raise executor.translated(error) from error


async def send_by(client: Client, request: Request) -> list[Any]:
    """Return the replies of the server of a client to a request, in one round trip."""
    redis: Any = client.redis
    if client.pipelines and request.cost <= _LIGHT and not (request.writes or request.atomic):
        return await client.pipelines.send(request.calls)
    async with client.free:
        try:
            return await _send_request(redis, request)
        except ReadOnlyError:  # as in Executor.guard()
            await redis.connection_pool.disconnect(inuse_connections=False)
            return await _send_request(redis, request)


async def _send_request(client: Redis, request: Request) -> list[Any]:
    if request.once:
        return [await send_once(client, request.calls[0])]
    return await send_all(client, request.calls, atomic=request.atomic)
