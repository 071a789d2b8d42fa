"""Jobs, and the rankings that their page shows: tables of the app, beside those of the kernel."""

from __future__ import annotations

from django.db import models

from ..models import TABLES, Build, Clock, ExactCharField, NoRows

__all__ = ["Job", "Ranking"]


class Ranking(Build):
    """An index as the admin shows it: it gives the permissions their names."""

    class Meta:
        proxy = True
        default_permissions = ("view",)
        permissions = [("rebuild_ranking", "Can rebuild and verify rankings")]

    def __str__(self) -> str:
        return str(self.index)


class Job(models.Model):
    """A verification or a rebuild that was requested in the admin. ``sync_zrank --watch`` carries it out.

    It is stored in the database of its index.
    """

    class Kind(models.TextChoices):
        VERIFY = "verify", "verification"
        REBUILD = "rebuild", "rebuild"

    id = models.BigAutoField(primary_key=True)

    index = ExactCharField(max_length=255)

    kind = models.CharField(max_length=16, choices=Kind)

    is_open = models.BooleanField(null=True, default=True)
    """Null once it is finished: at most one job of each kind is open, however often it is requested."""

    requested_by = models.CharField(max_length=255)

    requested_at = models.DateTimeField(db_default=Clock())

    runner = models.CharField(max_length=32, default="")
    """The process that carries it out, by a random name; empty while it waits."""

    attempts = models.PositiveSmallIntegerField(default=0)
    """The number of times that a process has taken it."""

    heartbeat_at = models.DateTimeField(null=True)
    """The runner's last heartbeat, by the database's clock."""

    done = models.BigIntegerField(default=0)
    """Rows so far, of about ``total``."""

    total = models.BigIntegerField(null=True)

    finished_at = models.DateTimeField(null=True)

    ok = models.BooleanField(null=True)
    """True if it succeeded: the rebuild is live, or the verification has found nothing wrong."""

    outcome = models.TextField(default="")

    fixture = NoRows()
    objects = models.Manager()

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["index", "kind", "is_open"], name="zrank_one_open_job"),
        ]

    def __str__(self) -> str:
        return f"{self.index}: {self.get_kind_display()} requested by {self.requested_by}"


TABLES["jobs"] = Job
