"""Quick ways to what every test begins and ends with. The four round trips of each index in ``reset()`` take a sixth of
the suite's time. The signals of ``migrate``, which ``flush`` sends, take a hundred times as long as what is done here.
So does PostgreSQL's ``TRUNCATE`` of sixty tables, which makes new files for each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest import mock

from django.apps import apps
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core.management.commands import flush
from django.db import connections, router, transaction
from django_redis import get_redis_connection

from django_zrank import testing
from django_zrank.capture.dialects import DIALECTS
from django_zrank.models import Capture
from django_zrank.store import Store

__all__ = ["quick_flush", "quick_reset"]

_ROWS: Final = (ContentType, Permission, Capture)
"""The models whose rows ``migrate`` writes, in the order of their foreign keys."""


@contextmanager
def quick_reset() -> Iterator[None]:
    """Make the fixture ``zrank``, whose server is empty, send all that ``reset()`` leaves there in one round trip."""

    def reset() -> None:
        with get_redis_connection("zrank").pipeline(transaction=False) as pipeline:

            class Emptied(Store):
                def start_rebuild(self, building: str, **how: Any) -> bool:
                    live = {"build": building, "started": 1, "applied": 2, "present": "000"}
                    pipeline.hset(self.keys.meta, mapping=how | live)
                    self.believe(building)
                    return True

                def swap_rebuilt(self, building: str, noted: Any = ()) -> bool:
                    return True

                def unlink_doomed(self) -> None:
                    pass

            with mock.patch.object(testing, "Store", Emptied):
                testing.reset()
            pipeline.execute()

    with mock.patch("django_zrank.pytest_plugin.reset", reset):
        yield


@contextmanager
def quick_flush() -> Iterator[None]:
    """Make ``flush`` send the signals of ``migrate`` only if triggers have changed since the last time. Otherwise,
    put back the rows that receivers of these signals have written. PostgreSQL's tables are emptied row by row."""
    left: dict[str, tuple[Any, list[tuple[str, list[Any]]]]] = {}
    send = flush.emit_post_migrate_signal  # type: ignore[attr-defined]

    def renew(verbosity: int, interactive: bool, db: str, **kwargs: Any) -> None:
        triggers, inserts = left.get(db, (None, []))
        if _triggers(db) == triggers:
            ContentType.objects.clear_cache()
            with transaction.atomic(db), connections[db].cursor() as cursor:
                for insert, rows in inserts:
                    cursor.executemany(insert, rows)
        else:
            send(verbosity, interactive, db, **kwargs)
            models = [model for model in _ROWS if router.allow_migrate_model(db, model)]
            left[db] = _triggers(db), [_insert(model, db) for model in models]

    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(flush, "emit_post_migrate_signal", renew))
        for connection in connections.all():
            if connection.vendor == "postgresql":
                patches.enter_context(mock.patch.object(type(connection.ops), "sql_flush", _delete))
        yield


def _insert(model: Any, using: str) -> tuple[str, list[Any]]:
    """Return a statement that inserts a row as it is, and the rows that there are."""
    quote = connections[using].ops.quote_name
    columns = [field.column for field in model._meta.concrete_fields]
    names, values = ", ".join(map(quote, columns)), ", ".join(["%s"] * len(columns))
    insert = f"INSERT INTO {quote(model._meta.db_table)} ({names}) VALUES ({values})"
    rows = model._base_manager.using(using).values_list(*columns)
    return insert, [
        [json.dumps(one) if isinstance(one, (dict, list)) else one for one in row] for row in rows
    ]


def _delete(ops: Any, style: Any, tables: Iterable[str], **kwargs: Any) -> list[str]:
    """Return what empties the tables, with no trigger or foreign key in the way: for that, tests are a superuser."""
    statements = (f"DELETE FROM {ops.quote_name(table)}" for table in tables)
    return ["SET LOCAL session_replication_role = replica", "; ".join(statements)]


def _triggers(using: str) -> tuple[Any, ...]:
    """Return the triggers that are installed, True for each that is in force, their texts, and when they were made."""
    tables = {model._meta.db_table for model in apps.get_models(include_auto_created=True)}
    dialect = DIALECTS[connections[using].vendor](connections[using], tables)
    return dialect.installed(), dialect.texts(), getattr(dialect, "created", None)
