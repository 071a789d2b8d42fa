from django.apps import AppConfig


class PlayersConfig(AppConfig):
    """People with a level, and the arena's page."""

    name = "players"
