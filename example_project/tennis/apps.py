from django.apps import AppConfig


class TennisConfig(AppConfig):
    """Tennis professionals and their ranking points: real input, loaded by ``load_atp``."""

    name = "tennis"
