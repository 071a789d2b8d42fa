"""Rename generations to builds, and signs of life to heartbeats."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("zrank", "0006_traces")]

    operations = [
        migrations.DeleteModel("Ranking"),  # a proxy: RenameModel doesn't rename its base
        migrations.RenameModel("Generation", "Build"),
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
