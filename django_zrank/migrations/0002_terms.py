"""Servers are accepted under terms; batches are purged by the database's clock."""

import django_zrank.models
from django.db import migrations, models


def forget_servers(apps, editor):  # type: ignore[no-untyped-def]
    """Their names are longer than the column was."""
    apps.get_model("zrank", "Generation").objects.using(editor.connection.alias).update(server="")


class Migration(migrations.Migration):
    dependencies = [("zrank", "0001_initial")]

    operations = [
        migrations.RemoveIndex("Batch", "zrank_batch_place"),
        migrations.RenameField("Batch", "place", "version"),
        migrations.AddField("Batch", "term", models.BigIntegerField(default=0)),
        migrations.AddField("Batch", "at", models.DateTimeField(db_default=django_zrank.models.Clock())),
        migrations.AddIndex(
            "Batch", models.Index(fields=["index", "term", "version"], name="zrank_batch_version")
        ),
        migrations.RenameField("Generation", "run", "server"),
        migrations.AlterField("Generation", "server", models.CharField(default="", max_length=96)),
        migrations.RunPython(migrations.RunPython.noop, forget_servers),
        migrations.AddField("Generation", "owner", models.CharField(default="", max_length=32)),
        migrations.AddField("Generation", "term", models.BigIntegerField(default=0)),
        migrations.AddField("Generation", "purged_term", models.BigIntegerField(default=0)),
        migrations.AddField("Generation", "replayed_from", models.BigIntegerField(default=0)),
        migrations.AddField("Generation", "replayed_to", models.BigIntegerField(default=0)),
    ]
