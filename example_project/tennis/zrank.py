from django_zrank import RankIndex, register

from .models import TennisPlayer


@register
class AtpRank(RankIndex):
    """The players of the week, the most points first: in the world, and inside each country."""

    model = TennisPlayer
    name = "atp"
    order = ("-points",)
    facets = ("country",)
    band = 100

    def get_queryset(self):
        return TennisPlayer.objects.filter(points__isnull=False)


@register
class AtpAgeRank(AtpRank):
    """Of those with the same points the younger first; who was born on one day, or on a day not known, share a rank."""

    name = "atp-age"
    order = ("-points", "-born")
    ranking_method = "competition"
