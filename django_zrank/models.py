"""The database's side of the mirror: marks, written by triggers, batches, and the current builds."""

from __future__ import annotations

from typing import Any, Final

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.functions import Now

__all__ = [
    "SEVERAL",
    "TABLES",
    "Batch",
    "Build",
    "Capture",
    "Clock",
    "ExactCharField",
    "ExactTextField",
    "Mark",
    "NoRows",
]


class _Exact:
    """Text that only equals itself, in any script: MySQL's default collations treat ``Bob`` and ``bob`` as equal, and
    its default character set may refuse a primary key that another table's column accepts."""

    def db_parameters(self, connection: BaseDatabaseWrapper) -> dict[str, Any]:
        parameters: dict[str, Any] = super().db_parameters(connection)  # type: ignore[misc]
        if connection.vendor == "mysql":
            parameters["collation"] = "utf8mb4_bin"
        return parameters


class ExactCharField(_Exact, models.CharField):  # type: ignore[type-arg]
    pass


class ExactTextField(_Exact, models.TextField):  # type: ignore[type-arg]
    pass


class Clock(Now):
    """The database's clock: on SQLite by the second, since a finer one costs it as much as all else of a mark."""

    def as_sqlite(self, compiler: Any, connection: BaseDatabaseWrapper, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, **extra)


class NoRows(models.Manager):  # type: ignore[type-arg]
    """The default manager of the app's tables, which ``dumpdata`` uses: fixtures don't contain their rows. A mark in a
    fixture would have the id of a mark that ``loaddata`` inserts, and a build is known to one database only."""

    def get_queryset(self) -> models.QuerySet[Any]:
        return super().get_queryset().none()


SEVERAL: Final = "[]"
"""``via`` of a mark that names several members: ``member`` is a JSON array of their primary keys as text. Triggers of
PostgreSQL leave such marks for statements that change many rows, because a row for each would take longer than the
change itself."""


class Mark(models.Model):
    """A row of the transactional outbox: a note that a member has changed, added in the transaction that changed it,
    whichever program wrote. It waits until it is processed, and then becomes part of a :class:`Batch`.

    The table is needed in every database that holds a ranked model: ``migrate --database`` creates it there unless a
    router's ``allow_migrate()`` returns False, which fails ``manage.py check``. Rows are written by triggers, so each
    column has its default in the database. The table has no index besides its primary key, as every save pays for it.
    """

    id = models.BigAutoField(primary_key=True)
    """Rises, but is no version: transactions commit in another order than they get it. Never used twice."""

    index = ExactCharField(max_length=255)
    """The name of the index."""

    via = ExactTextField(null=True)
    """Null where ``member`` is the primary key of a member. Else a column that leads from a member to the row
    that changed, such as ``club_id`` or ``club__league_id``, and ``member`` is its value: members that lead
    there when the mark is read may have moved (see :meth:`WatchedTable.members_at
    <django_zrank.capture.watched_tables.WatchedTable.members_at>`). ``SEVERAL``: ``member`` lists several."""

    member = ExactTextField(null=True)
    """The primary key, as the database casts it to text. Null means any member: a table was truncated, or
    written while no trigger watched it."""

    at = models.DateTimeField(db_default=Clock())
    """The time by the database's clock. Compare it with the same clock: ``Now() - F("at")``."""

    fixture = NoRows()
    objects = models.Manager()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        via = "pk" if self.via in (None, SEVERAL) else self.via
        what = "any member" if self.member is None else f"{via}={self.member}"
        return f"{self.index}: {what}"


class Batch(models.Model):
    """Marks that were processed together, kept for a while: to become marks again if Redis loses that write."""

    id = models.BigAutoField(primary_key=True)

    index = ExactCharField(max_length=255)

    term = models.BigIntegerField(default=0)
    """The term of the server that they were written to."""

    version = models.BigIntegerField()

    at = models.DateTimeField(db_default=Clock())
    """The time by the database's clock."""

    nonce = models.CharField(max_length=16, default="", db_default="")
    """With ``version``, the trace that the write has left in Redis."""

    flush = models.BigIntegerField(null=True)
    """The number of the flush that carried these members to their column; null where marks were processed."""

    marks = models.JSONField()
    """``via`` and ``member`` of each mark, without duplicates: ``[[null, "17"], …]``."""

    fixture = NoRows()
    objects = models.Manager()

    class Meta:
        default_permissions = ()
        indexes = [models.Index(fields=["index", "term", "version"], name="zrank_batch_version")]

    def __str__(self) -> str:
        return f"{self.index}: {len(self.marks)} marks at {self.term}.{self.version}"


class Build(models.Model):
    """The build of an index: Redis is trusted only if it holds this one."""

    index = ExactCharField(max_length=255, primary_key=True)

    build = models.CharField(max_length=32, default="")
    """The build in force; empty before the first build."""

    building = models.CharField(max_length=32, default="")
    """The build that a rebuild is about to put in place."""

    owner = models.CharField(max_length=32, default="")
    """A random name of this database's side of the index. Redis holds it, too: only ``rebuild_zrank`` replaces a
    build that another database made."""

    server = models.CharField(max_length=96, default="")
    """The identity of the server that holds it: ``run_id/master_replid``."""

    term = models.BigIntegerField(default=0)
    """Rises with every server, or history of one, that is trusted, as in Raft. Writes under another term don't
    process marks."""

    traces = models.TextField(default="", db_default="")
    """The traces of noted writes of this term that no later one has required, with spaces between them: Redis is
    trusted only if it has them (``lua/lib/traces.lua``)."""

    purged_term = models.BigIntegerField(default=0)
    """With ``purged`` the highest term and version of a batch that was deleted: a server that has lost it can't be
    replayed."""

    purged = models.BigIntegerField(default=0)

    replayed_from = models.BigIntegerField(default=0)
    """With ``replayed_to`` the ids between which the marks lie that the last replay set waiting."""

    replayed_to = models.BigIntegerField(default=0)

    flushed = models.BigIntegerField(default=0)
    """The number of the last flush, noted in the transaction that wrote it. Read together with rows, it tells what of
    their scores Redis alone knows."""

    flushed_term = models.BigIntegerField(default=0)
    """The term of that flush."""

    fixture = NoRows()
    objects = models.Manager()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.index}: {self.build}"


class Capture(models.Model):
    """A database's record of the triggers of an index."""

    index = ExactCharField(max_length=255, primary_key=True)

    declaration = models.CharField(max_length=32, default="")
    """The declaration whose triggers belong here, with a digest of their texts (none with ``CAPTURE = "signals"``):
    that of the last release to run ``migrate``, ``capture_zrank`` or ``rebuild_zrank``. Workers of other releases drop
    no triggers, and don't replace its build."""

    tables = models.JSONField(default=dict)
    """The states of its tables, as of when every change left a mark (see :meth:`Dialect.state
    <django_zrank.capture.dialects.Dialect.state>`). In another state, rows may have come or gone without one."""

    left = models.JSONField(default=list)
    """The aliases of the databases that a build of this one replaced: the index has moved, and its triggers there are
    dropped once the build is live."""

    fixture = NoRows()
    objects = models.Manager()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.index}: {self.declaration}"


TABLES: Final[dict[str, Any]] = {
    "builds": Build,
    "applied writes": Batch,
    "marks": Mark,
}
"""The tables whose rows belong to one index, by what commands call them, in the plural; parts add theirs. They are
cleared from the last to the first: an index that is gone is found by its builds."""
