"""A player of the arena: what a project has before it adds django-zrank. Nothing here knows of it."""

from django.conf import settings
from django.db import models


class Region(models.TextChoices):
    """Where a player is at home."""

    HOKKAIDOU = "hokkaidou", "Hokkaidou"
    TOUHOKU = "touhoku", "Touhoku"
    KANTOU = "kantou", "Kantou"
    CHUUBU = "chuubu", "Chuubu"
    KANSAI = "kansai", "Kansai"
    CHUUGOKU = "chuugoku", "Chuugoku"
    SHIKOKU = "shikoku", "Shikoku"
    KYUUSHUU = "kyuushuu", "Kyuushuu"


class Player(models.Model):
    """Somebody who plays. Most of the demo's players are nobody's: only three have a user."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True)
    name = models.CharField(max_length=40)
    level = models.PositiveIntegerField(default=1)
    region = models.CharField(max_length=10, choices=Region)
    is_active = models.BooleanField(default=True, help_text="Only active players are ranked.")
    friends = models.ManyToManyField("self", blank=True)

    class Meta:
        indexes = [models.Index(fields=["level"])]

    def __str__(self) -> str:
        return f"{self.name} (level {self.level})"
