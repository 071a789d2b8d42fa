"""A tennis professional, ranked by the points of the week."""

from django.db import models


class TennisPlayer(models.Model):
    """One line of the weekly tables."""

    atp_id = models.PositiveIntegerField()
    namesake = models.PositiveSmallIntegerField(
        default=0,
        help_text="0, except for further players whom a table lists under the same id.",
    )
    name = models.CharField(max_length=80)
    country = models.CharField(max_length=3, blank=True)
    born = models.DateField(null=True, blank=True, help_text="Empty: not known.")
    points = models.PositiveIntegerField(null=True, blank=True, help_text="Empty: not in this week's table.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["atp_id", "namesake"], name="tennis_one_row_a_player"),
        ]

    def __str__(self) -> str:
        return self.name
