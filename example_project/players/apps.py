from django.apps import AppConfig


class PlayersConfig(AppConfig):
    """Players with a level, and the arena's page."""

    name = "players"
