"""Rename generations to builds, and signs of life to heartbeats."""

from django.db import migrations

RENAMED = migrations.RenameModel("Generation", "Build")


class Migration(migrations.Migration):
    dependencies = [("zrank", "0006_traces")]

    operations = [
        migrations.DeleteModel("Ranking"),  # a proxy: RenameModel doesn't rename its base
        # Inside of another operation, so that Django doesn't rename the content type as well: nothing uses it, and
        # after an uninstallation both names may be there.
        migrations.SeparateDatabaseAndState([RENAMED], [RENAMED]),
        migrations.RenameField("Build", "generation", "build"),
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
