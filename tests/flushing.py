"""A quick ``flush`` after transactional tests. The signals of ``migrate``, which it leaves out, take a hundred times as
long; so does PostgreSQL's ``TRUNCATE`` of sixty tables, which makes new files for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest import mock

from django.apps import apps
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core.management.commands import flush
from django.db import connections, router

from django_zrank.sync.dialects import DIALECTS

__all__ = ["quick_flush"]

_ROWS: Final = (ContentType, Permission)
"""The models whose rows ``migrate`` writes, in the order of their foreign keys."""


@contextmanager
def quick_flush() -> Iterator[None]:
    """Make ``flush`` send the signals of ``migrate`` only if triggers have changed since the last time. Otherwise,
    put back the rows that receivers of these signals have written. PostgreSQL's tables are emptied row by row."""
    left: dict[str, tuple[Any, dict[Any, list[Any]]]] = {}
    send = flush.emit_post_migrate_signal  # type: ignore[attr-defined]

    def renew(verbosity: int, interactive: bool, db: str, **kwargs: Any) -> None:
        triggers, rows = left.get(db, (None, {}))
        if _triggers(db) == triggers:
            ContentType.objects.clear_cache()
            for model, same in rows.items():
                model._base_manager.using(db).bulk_create(same)
        else:
            send(verbosity, interactive, db, **kwargs)
            models = [model for model in _ROWS if router.allow_migrate_model(db, model)]
            left[db] = _triggers(db), {model: [*model._base_manager.using(db).all()] for model in models}

    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(flush, "emit_post_migrate_signal", renew))
        for connection in connections.all():
            if connection.vendor == "postgresql":
                patches.enter_context(mock.patch.object(type(connection.ops), "sql_flush", _delete))
        yield


def _delete(ops: Any, style: Any, tables: Iterable[str], **kwargs: Any) -> list[str]:
    """Return what empties the tables, with no trigger or foreign key in the way: for that, tests are a superuser."""
    statements = (f"DELETE FROM {ops.quote_name(table)}" for table in tables)
    return ["SET LOCAL session_replication_role = replica", "; ".join(statements)]


def _triggers(using: str) -> tuple[Any, ...]:
    """Return the triggers that are installed, True for each that is in force, and their texts."""
    tables = {model._meta.db_table for model in apps.get_models(include_auto_created=True)}
    dialect = DIALECTS[connections[using].vendor](connections[using], tables)
    return dialect.installed(), dialect.texts()
