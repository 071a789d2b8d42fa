"""Rename generations to builds, and signs of life to heartbeats."""

from django.db import migrations

from django_zrank.extension import tables

RENAMED = migrations.RenameModel("Generation", "Build")

OF_JOBS = [
    migrations.RenameField("Job", "seen_at", "heartbeat_at"),
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
        bases=("zrank.build",),
    ),
]


class Migration(migrations.Migration):
    dependencies = [("zrank", "0006_traces")]

    operations = [
        # A proxy: RenameModel doesn't rename its base.
        *([migrations.DeleteModel("Ranking")] if "jobs" in tables else []),
        # Inside of another operation, so that Django doesn't rename the content type as well: nothing uses it, and
        # after an uninstallation both names may be there.
        migrations.SeparateDatabaseAndState([RENAMED], [RENAMED]),
        migrations.RenameField("Build", "generation", "build"),
        *(OF_JOBS if "jobs" in tables else []),
    ]
