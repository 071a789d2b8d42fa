"""The index, which is autodiscovered."""

from django_zrank import RankIndex, register

from .models import Player


@register
class PlayerRank(RankIndex):
    """Active players, the highest level first."""

    model = Player
    order = ("-level",)
    band = 10
    facets = ("region",)
    owner = "user"
    write_behind = "increment"

    def get_queryset(self):
        return Player.objects.filter(is_active=True)

    def get_excluded(self, player):
        """Exclude friends."""
        return Player.objects.filter(friends=player).values_list("pk", flat=True)
