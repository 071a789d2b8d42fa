"""Writes that the database has noted leave traces in Redis."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("zrank", "0005_capture")]

    operations = [
        migrations.AddField("Batch", "nonce", models.CharField(db_default="", default="", max_length=16)),
        migrations.AddField("Generation", "traces", models.TextField(db_default="", default="")),
    ]
