"""A clock of the database that tests set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any
from unittest import mock

from django.conf import settings
from django.utils import timezone

from django_zrank.sync import rows
from django_zrank.windows import lookup
from django_zrank.windows.lookup import DatabaseClock, DayAgo, TimeAgo, _Now

__all__ = ["database_clock"]


class _Timezone:
    """Django's module, with another time."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now

    def now(self) -> datetime:
        now = self._now()
        return now if settings.USE_TZ else timezone.make_naive(now, timezone.get_default_timezone())

    def __getattr__(self, name: str) -> Any:
        return getattr(timezone, name)


@contextmanager
def database_clock(now: Callable[[], datetime]) -> Iterator[None]:
    """Let ``now()``, which is aware, be the database's time in all that depends on it. All else of the SQL is as it is
    sent to the database."""

    def patched(method: Any) -> Any:
        def compiled(self: Any, compiler: Any, connection: Any, **extra: Any) -> tuple[str, list[Any]]:
            sql, parameters = method(self, compiler, connection, **extra)
            for function, moment in moments.items():
                if function in sql:  # before all parameters
                    return sql.replace(function, moment, 1), [_Now(utc, "now"), *parameters]
            return sql, parameters

        return compiled

    def utc() -> str:
        return now().astimezone(UTC).replace(tzinfo=None).isoformat(" ")

    moments = {
        "STATEMENT_TIMESTAMP()": "((%s || '+00')::timestamptz)",
        "UTC_TIMESTAMP(6)": "TIMESTAMP(%s)",
    }

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(lookup, "timezone", _Timezone(now)))
        stack.enter_context(mock.patch.object(rows, "_kept", rows._Kept()))  # statements of the real clock
        for expression in (DatabaseClock, TimeAgo, DayAgo):
            for name in ("as_postgresql", "as_mysql"):
                stack.enter_context(mock.patch.object(expression, name, patched(vars(expression)[name])))
        yield
