"""The kernel's tables, and those of the part ``jobs`` where it is."""

import django_zrank.models
from django.db import migrations, models
from django_zrank.extension import tables

MANAGERS: list[tuple[str, models.Manager[models.Model]]] = [("fixture", models.Manager())]

OF_JOBS = [
    migrations.CreateModel(
        name="Ranking",
        fields=[],
        options={
            "proxy": True,
            "default_permissions": ("view",),
            "permissions": [("rebuild_ranking", "Can rebuild and verify rankings")],
            "indexes": [],
            "constraints": [],
        },
        bases=("zrank.build",),
        managers=MANAGERS,
    ),
    migrations.CreateModel(
        name="Job",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            ("index", django_zrank.models.ExactCharField(max_length=255)),
            (
                "kind",
                models.CharField(choices=[("verify", "verification"), ("rebuild", "rebuild")], max_length=16),
            ),
            ("is_open", models.BooleanField(default=True, null=True)),
            ("requested_by", models.CharField(max_length=255)),
            ("requested_at", models.DateTimeField(db_default=django_zrank.models.Clock())),
            ("runner", models.CharField(default="", max_length=32)),
            ("attempts", models.PositiveSmallIntegerField(default=0)),
            ("heartbeat_at", models.DateTimeField(null=True)),
            ("done", models.BigIntegerField(default=0)),
            ("total", models.BigIntegerField(null=True)),
            ("finished_at", models.DateTimeField(null=True)),
            ("ok", models.BooleanField(null=True)),
            ("outcome", models.TextField(default="")),
        ],
        options={
            "default_permissions": (),
            "constraints": [
                models.UniqueConstraint(fields=["index", "kind", "is_open"], name="zrank_one_open_job")
            ],
        },
        managers=MANAGERS,
    ),
]


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Build",
            fields=[
                (
                    "index",
                    django_zrank.models.ExactCharField(max_length=255, primary_key=True, serialize=False),
                ),
                ("build", models.CharField(default="", max_length=32)),
                ("building", models.CharField(default="", max_length=32)),
                ("owner", models.CharField(default="", max_length=32)),
                ("server", models.CharField(default="", max_length=96)),
                ("term", models.BigIntegerField(default=0)),
                ("traces", models.TextField(db_default="", default="")),
                ("purged_term", models.BigIntegerField(default=0)),
                ("purged", models.BigIntegerField(default=0)),
                ("replayed_from", models.BigIntegerField(default=0)),
                ("replayed_to", models.BigIntegerField(default=0)),
                ("flushed", models.BigIntegerField(default=0)),
                ("flushed_term", models.BigIntegerField(default=0)),
            ],
            options={"default_permissions": ()},
            managers=MANAGERS,
        ),
        migrations.CreateModel(
            name="Capture",
            fields=[
                (
                    "index",
                    django_zrank.models.ExactCharField(max_length=255, primary_key=True, serialize=False),
                ),
                ("declaration", models.CharField(default="", max_length=32)),
                ("tables", models.JSONField(default=dict)),
                ("left", models.JSONField(default=list)),
            ],
            options={"default_permissions": ()},
            managers=MANAGERS,
        ),
        migrations.CreateModel(
            name="Mark",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("index", django_zrank.models.ExactCharField(max_length=255)),
                ("via", django_zrank.models.ExactTextField(null=True)),
                ("member", django_zrank.models.ExactTextField(null=True)),
                ("at", models.DateTimeField(db_default=django_zrank.models.Clock())),
            ],
            options={"default_permissions": ()},
            managers=MANAGERS,
        ),
        migrations.CreateModel(
            name="Batch",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("index", django_zrank.models.ExactCharField(max_length=255)),
                ("term", models.BigIntegerField(default=0)),
                ("version", models.BigIntegerField()),
                ("at", models.DateTimeField(db_default=django_zrank.models.Clock())),
                ("nonce", models.CharField(db_default="", default="", max_length=16)),
                ("flush", models.BigIntegerField(null=True)),
                ("marks", models.JSONField()),
            ],
            options={
                "default_permissions": (),
                "indexes": [models.Index(fields=["index", "term", "version"], name="zrank_batch_version")],
            },
            managers=MANAGERS,
        ),
        *(OF_JOBS if "jobs" in tables else []),
    ]
