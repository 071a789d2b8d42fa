"""The keys of rows that tests insert together, on MySQL, which doesn't return them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from django.db import connections, models, transaction

__all__ = ["returned_keys"]


@contextmanager
def returned_keys() -> Iterator[None]:
    """Make ``bulk_create()`` set the primary keys of models that aren't the package's own, as on other databases.

    InnoDB gives the rows of one statement consecutive numbers.
    """
    insert = models.QuerySet.bulk_create

    def bulk_create(
        self: Any, objs: Iterable[Any], batch_size: int | None = None, *args: Any, **kwargs: Any
    ) -> list[Any]:
        objs = list(objs)
        features, key = connections[self.db].features, self.model._meta.auto_field
        new = [each for each in objs if each.pk is None]
        if (
            features.can_return_rows_from_bulk_insert
            or self.model._meta.app_label == "django_zrank"
            or key is None
            or not new
            or args
            or kwargs
        ):
            return insert(self, objs, batch_size, *args, **kwargs)
        self._for_write = True
        size = batch_size or len(objs)
        with transaction.atomic(using=self.db, savepoint=False), connections[self.db].cursor() as cursor:
            for start in range(0, len(objs), size):
                batch = objs[start : start + size]
                new = [each for each in batch if each.pk is None]
                insert(self, batch)
                cursor.execute("SELECT LAST_INSERT_ID()")
                for number, each in enumerate(new, cursor.fetchone()[0]):
                    each.pk = number
        return objs

    with patch.object(models.QuerySet, "bulk_create", bulk_create):
        yield
