"""The one place that runs requests: what Redis refuses becomes an error of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django_redis import get_redis_connection
from redis import Redis
from redis.exceptions import RedisClusterException, RedisError, ResponseError

from ..conf import get_settings
from ..exceptions import FilterTooLarge, IndexUnavailable, IndexUnhealthy, NotBuilt, ZRankError
from ..isolation import require_redis
from ..keys import Keys
from ..requests.request import Request
from .sending import send, send_all

__all__ = ["Executor"]

Answer = TypeVar("Answer")


class Executor:
    """Runs requests about one index.

    Every method raises :exc:`~django_zrank.exceptions.IndexUnavailable` where Redis can't be reached.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def keys(self) -> Keys:
        return Keys.of(get_settings().key_prefix, self.name)

    @property
    def client(self) -> Redis:
        """The raw client, resolved per call: django-redis closes and replaces it."""
        require_redis()
        client: Redis = get_redis_connection(get_settings().redis_alias)
        return client

    def run(self, ask: Callable[[Keys], Request[Answer]]) -> Answer:
        """The answer to what ``ask`` requests of these keys: one round trip a request."""
        answer: Answer | Request[Answer] = ask(self.keys)
        while isinstance(answer, Request):
            answer = answer.parse(self.send(answer))
        return answer

    def send(self, request: Request[Any]) -> list[Any]:
        """The replies to a request."""
        try:
            client = self.client
            if len(request.calls) == 1:
                return [send(client, request.calls[0])]
            return send_all(client, request.calls, atomic=request.atomic)
        except (RedisError, RedisClusterException) as error:  # the one is no kind of the other
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> ZRankError:
        if not isinstance(error, ResponseError):
            return IndexUnavailable(f"Index {self.name!r}: Redis can't be reached: {error}")
        match str(error).split():
            case ["NOTBUILT", *_]:
                return self.not_built()
            case ["UNHEALTHY", *_]:
                return IndexUnhealthy(f"Index {self.name!r}: Redis restarted or failed over")
            case ["TOOLARGE", size, limit]:
                return FilterTooLarge(
                    f"Index {self.name!r}: no facet covers what is asked, and it would be computed from "
                    f"{int(size):,} members, more than {int(limit):,}"
                )
        return IndexUnavailable(f"Index {self.name!r}: Redis refused: {error}")

    def not_built(self) -> NotBuilt:
        return NotBuilt(f"Index {self.name!r} is not built: run manage.py rebuild_zrank {self.name}")
