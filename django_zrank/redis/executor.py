"""Run requests, and translate Redis's errors into the app's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from redis import Redis
from redis.exceptions import DataError, RedisError, ResponseError

from ..conf import get_settings, key_prefix
from ..exceptions import IndexUnavailable, IndexUnhealthy, NotBuilt
from ..pool import Dropping, guard
from ..queries.request import Call, Request, Swapped
from ..queries.steps import Once, Steps, drive, one
from .isolation import is_testing, require_redis
from .keys import Keys
from .sending import cache_client, has_several, in_trips, is_one_trip, renew, send_request, server_of

__all__ = ["Executor"]

Answer = TypeVar("Answer")

_live: dict[Keys, Keys] = {}
"""The keys of the build that this process believes to be live, by the keys of the index."""


class Executor:
    """Runs requests about one index.

    Every method raises :exc:`~django_zrank.exceptions.IndexUnavailable` if Redis can't be reached.
    """

    swaps = 3
    """Attempts at a request, each for the build that is live by then."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def keys(self) -> Keys:
        return Keys.of(key_prefix(), self.name)

    @property
    def client(self) -> Redis:
        """The raw client, looked up for each call because django-redis closes and replaces it."""
        if is_testing():
            require_redis()
        client: Redis = cache_client(get_settings().redis_alias).get_client()
        # A client of several servers has a pool for each.
        is_guarded = isinstance(getattr(client, "connection_pool", None), Dropping) or has_several(client)
        return client if is_guarded else guard(client)

    @property
    def live(self) -> Keys:
        """The keys of the build that this process believes to be live. Scripts refuse any other."""
        return self.believed or self.learn()

    @property
    def believed(self) -> Keys | None:
        """The same keys; None until they have been read."""
        return _live.get(Keys.of(key_prefix(), self.name))

    def learn(self) -> Keys:
        """Read from Redis which build is live ('' for none), and return its keys."""
        return drive(self.learning(), self.send)

    def learning(self) -> Steps[Keys]:
        """The steps of :meth:`learn`."""
        found = yield from one(Call("HGET", (self.keys.meta,), ("build",)))
        return self.believe(found.decode() if found else "")

    def believe(self, build: str) -> Keys:
        """Note that a build is the live one, and return its keys."""
        keys = self.keys
        live = _live[keys] = keys.at(build)
        return live

    def run(self, ask: Callable[[Keys], Steps[Answer]]) -> Answer:
        """Return the answer to the steps that ``ask`` returns, given the live build's keys. If another build has
        become live, it is made again."""
        return drive(self.running(ask), self.send)

    def running(self, ask: Callable[[Keys], Steps[Answer]], first: Once | None = None) -> Steps[Answer]:
        """The steps of :meth:`run`; ``first``: a step to take before them."""
        if first:
            yield first
        for _ in range(self.swaps):
            try:
                live = self.believed or (yield from self.learning())
                return (yield from ask(live))
            except Swapped:
                if not (yield from self.learning()).build:
                    raise self.not_built() from None
        raise IndexUnavailable(f"Index {self.name!r} was rebuilt too often while it was read")

    def send(self, request: Request) -> list[Any]:
        """Return the replies to a request."""
        if is_one_trip(request):
            return self.guard(send_request, request)
        calls = request.calls
        replies: dict[int, Any] = {}
        for trip in in_trips(request, partial(self.guard, server_of)):
            part = request._replace(calls=[calls[at] for at in trip])
            replies.update(zip(trip, self.guard(send_request, part), strict=True))
        return [replies[at] for at in range(len(calls))]

    def guard(self, use: Callable[..., Answer], *given: Any) -> Answer:
        """Return ``use(client, *given)``, with Redis's errors translated.

        Retries once if another server has taken over. After a planned failover behind one address, open connections
        lead to the former primary, which follows another now.
        """
        try:
            client = self.client
            try:
                return use(client, *given)
            except RedisError as error:
                if not renew(client, error):
                    raise
                return use(self.client, *given)
        except RedisError as error:
            raise self.translated(error) from error

    def translated(self, error: Exception) -> Exception:
        """Return one of the app's errors for an error of Redis."""
        if isinstance(error, DataError):  # redis-py has sent nothing
            return TypeError(f"Index {self.name!r}: {error}")
        if not isinstance(error, ResponseError):
            return IndexUnavailable(f"Index {self.name!r}: Redis can't be reached: {error}")
        match str(error).split():
            case ["SWAPPED", *_]:
                return Swapped()
            case ["NOTBUILT", *_]:
                return self.not_built()
            case ["UNHEALTHY", *_]:
                return self.not_accepted()
            case ["UNAVAILABLE", *_]:  # Redis says which line of the script has raised it
                message = str(error).partition(" ")[2].partition(" script: ")[0]
                return IndexUnavailable(f"Index {self.name!r}: {message}")
        return IndexUnavailable(f"Index {self.name!r}: Redis refused: {error}")

    def not_accepted(self) -> IndexUnhealthy:
        return IndexUnhealthy(f"Index {self.name!r}: Redis restarted or failed over")

    def lacking(self) -> IndexUnhealthy:
        return IndexUnhealthy(
            f"Index {self.name!r}: Redis was rolled back, and has lost writes; sync_zrank replays them"
        )

    def not_built(self) -> NotBuilt:
        declared = self.name.partition("/")[0]  # it may hold a part of the members of that one
        return NotBuilt(f"Index {self.name!r} is not built: run manage.py rebuild_zrank {declared}")
