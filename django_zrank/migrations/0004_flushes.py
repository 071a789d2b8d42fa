"""Scores that begin in Redis are flushed to their column, under numbers that the database notes."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("zrank", "0003_jobs")]

    operations = [
        migrations.AddField("Batch", "flush", models.BigIntegerField(null=True)),
        migrations.AddField("Generation", "flushed", models.BigIntegerField(default=0)),
        migrations.AddField("Generation", "flushed_term", models.BigIntegerField(default=0)),
    ]
