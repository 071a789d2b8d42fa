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
    """Equal points rank by age, the youngest first. Equal or unknown dates of birth share a rank."""

    name = "atp-age"
    order = ("-points", "-born")
    ranking_method = "competition"
