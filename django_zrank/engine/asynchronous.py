"""Steps in coroutines, over ``redis.asyncio``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from asgiref.sync import sync_to_async
from redis.asyncio import Redis
from redis.exceptions import NoScriptError, ReadOnlyError, RedisClusterException, RedisError

from ..conf import get_settings
from ..requests.request import Call, Request
from .loops import Loop, running_loop
from .sending import words
from .steps import Blocking, Once, Step, Steps

if TYPE_CHECKING:
    from .executor import Executor

__all__ = ["adrive"]

Answer = TypeVar("Answer")


async def adrive(steps: Steps[Answer], executor: Executor) -> Answer:
    """Take the steps one by one, and return the answer. Only what queries the database takes a thread."""
    loop = await running_loop()
    try:
        step = next(steps)
        while True:
            try:
                outcome = await _take(step, executor, loop)
            except Exception as error:  # noqa: BLE001 - the steps may know what to do about it
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def _take(step: Step, executor: Executor, loop: Loop) -> Any:
    if isinstance(step, Request):
        return await _send(step, executor, loop)
    if isinstance(step, Blocking):
        return await (step.coroutine or sync_to_async(step.call))()
    await _take_together(step, executor, loop)
    return None


async def _take_together(step: Once, executor: Executor, loop: Loop) -> None:
    """Take the steps, or wait for the coroutine that is taking them, and raise what it raises. If that one was
    cancelled, another one takes them."""
    if not step.is_due(loop):
        return
    while taken := loop.together.get(step.key):
        error = await asyncio.shield(taken)
        if error is None:
            return
        if not isinstance(error, asyncio.CancelledError):
            raise error
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


async def _send(request: Request[Any], executor: Executor, loop: Loop) -> list[Any]:
    """The replies to a request, after its delay, as :meth:`Executor.send` gets them."""
    if request.delay:
        await asyncio.sleep(request.delay)
    try:
        client = await loop.client(get_settings().redis_alias, replica=request.replica)
        if (redis := client.redis) is None:
            return await asyncio.to_thread(executor.send, request._replace(delay=0.0))
        async with client.free:
            try:
                return await _send_request(redis, request)
            except ReadOnlyError:  # as in Executor.guard()
                await redis.connection_pool.disconnect(inuse_connections=False)
                return await _send_request(redis, request)
    except (RedisError, RedisClusterException) as error:
        raise executor.translated(error) from error


async def _send_request(client: Redis, request: Request[Any]) -> list[Any]:
    if request.once:
        return [await _send_once(client, request.calls[0])]
    return await _send_all(client, request.calls, atomic=request.atomic)


async def _send_once(client: Redis, call: Call) -> Any:
    """As :func:`~django_zrank.engine.sending.send_once`: never sent again after an error of the connection."""
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


async def _send_one(client: Redis, call: Call) -> Any:
    try:
        return await client.execute_command(*words(call))  # type: ignore[no-untyped-call]
    except NoScriptError:
        return await client.execute_command(*words(call, known=False))  # type: ignore[no-untyped-call]


async def _send_all(client: Redis, calls: Sequence[Call], *, atomic: bool) -> list[Any]:
    if len(calls) == 1:
        return [await _send_one(client, calls[0])]
    for known in (True, False):
        pipeline: Any = client.pipeline(transaction=atomic)
        for call in calls:
            pipeline.execute_command(*words(call, known=known))
        replies: list[Any] = await pipeline.execute(raise_on_error=False)
        errors = [reply for reply in replies if isinstance(reply, Exception)]
        if not any(isinstance(error, NoScriptError) for error in errors):
            break
    if errors:
        raise errors[0]
    return replies
