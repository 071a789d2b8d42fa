"""A player of the arena: a model as a project has it before adding django-zrank, which needs no change of it."""

from django.conf import settings
from django.db import models


class Region(models.TextChoices):
    """The home of a player."""

    HOKKAIDO = "hokkaido", "Hokkaido"
    TOHOKU = "tohoku", "Tohoku"
    KANTO = "kanto", "Kanto"
    CHUBU = "chubu", "Chubu"
    KANSAI = "kansai", "Kansai"
    CHUGOKU = "chugoku", "Chugoku"
    SHIKOKU = "shikoku", "Shikoku"
    KYUSHU = "kyushu", "Kyushu"


class Player(models.Model):
    """A player. Most of the demo's players have no user."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True)
    name = models.CharField(max_length=40)
    level = models.PositiveIntegerField(default=1)
    region = models.CharField(max_length=10, choices=Region)
    is_active = models.BooleanField(default=True, help_text="Only active players are ranked.")
    friends = models.ManyToManyField("self", blank=True)

    class Meta:
        indexes = [models.Index(fields=["level", "is_active"])]  # SQL counts a rank in it alone

    def __str__(self) -> str:
        return f"{self.name} (level {self.level})"
