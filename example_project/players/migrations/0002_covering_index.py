from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("players", "0001_initial"),
    ]

    operations = [
        migrations.RemoveIndex(
            model_name="player",
            name="players_pla_level_b39c04_idx",
        ),
        migrations.AddIndex(
            model_name="player",
            index=models.Index(fields=["level", "is_active"], name="players_pla_level_ef7adf_idx"),
        ),
    ]
