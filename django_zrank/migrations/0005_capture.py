"""The database notes whose triggers belong in it, and the states of their tables; fixtures leave the app's rows out."""

import django.db.models.manager
import django_zrank.models
from django.db import migrations, models
from django_zrank.extension import tables


class Migration(migrations.Migration):
    dependencies = [("zrank", "0004_flushes")]

    operations = [
        migrations.CreateModel(
            "Capture",
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
            managers=[("fixture", django.db.models.manager.Manager())],
        ),
        *(
            migrations.AlterModelManagers(name, [("fixture", django.db.models.manager.Manager())])
            for name in ("batch", "generation", *(["job"] if "jobs" in tables else []), "mark")
        ),
    ]
