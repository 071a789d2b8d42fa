from django_zrank import RankIndex, register

from .models import TennisPlayer


@register
class AtpRank(RankIndex):
    """The players of the week, the most points first."""

    model = TennisPlayer
    name = "atp"
    order = ("-points",)
    band = 100

    def get_queryset(self):
        return TennisPlayer.objects.filter(points__isnull=False)
