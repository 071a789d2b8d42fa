"""Jobs that are requested in the admin, and the permissions for its page."""

import django_zrank.models
from django.db import migrations, models
from django_zrank.extension import tables

OPERATIONS = [
    migrations.CreateModel(
        "Ranking",
        fields=[],
        options={
            "proxy": True,
            "default_permissions": ("view",),
            "permissions": [("rebuild_ranking", "Can rebuild and verify rankings")],
            "indexes": [],
            "constraints": [],
        },
        bases=("zrank.generation",),
    ),
    migrations.CreateModel(
        "Job",
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
            ("seen_at", models.DateTimeField(null=True)),
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
    ),
]


class Migration(migrations.Migration):
    dependencies = [("zrank", "0002_terms")]

    operations = OPERATIONS if "jobs" in tables else []
