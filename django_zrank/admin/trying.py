"""The form that tries out ``recommend()``."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Final

from django import forms
from django.db.models.constants import LOOKUP_SEP
from django.forms.utils import pretty_name
from django.utils.text import capfirst

from ..entries import Entry
from ..exceptions import FilterNotReady, FilterTooLarge, IndexUnavailable, NotRanked
from ..index import RankIndex
from ..recommendations import sides
from .histograms import Histogram, draw_histogram

__all__ = ["TryForm"]

_MOST: Final = 50
_CHOICES: Final = 100


class TryForm(forms.Form):
    """The parameters of ``recommend()``, with a field for each path of the facets. Nothing is changed."""

    member = forms.CharField(
        required=False, max_length=255, help_text="A primary key. Default: the member in the middle."
    )
    n = forms.IntegerField(initial=10, min_value=1, max_value=_MOST, label="Number")
    band = forms.CharField(
        required=False, max_length=100, help_text="One distance, or two, below and above: 50,100."
    )
    seed = forms.CharField(required=False, max_length=100, help_text="The same seed draws the same members.")

    def __init__(self, index: RankIndex, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.index = index
        self.ranking: Any = index.ranking
        self.paths = {f"facet_{at}": path for at, path in enumerate(index.faceting.paths)}
        band = index.get_band()
        if band is None:
            self.fields["band"].required = True
        else:
            below, above = sides(band)
            text = str(below) if below == above else f"{below},{above}"
            self.fields["band"].widget.attrs["placeholder"] = text
        for name, path in self.paths.items():
            self.fields[name] = _facet_field(index.faceting.reading(path).kind(path).field, path)

    def clean_member(self) -> Any:
        text = self.cleaned_data["member"]
        return self._valid(self.index.parse_pk, text) if text else None

    def clean_band(self) -> Any:
        parts = [part.strip() for part in self.cleaned_data["band"].split(",")]
        if parts == [""]:
            return None
        if len(parts) > 2:
            raise forms.ValidationError("One distance, or two with a comma between them.")
        distances = [self._valid(self.index.parse_band, part) for part in parts]
        return distances[0] if len(parts) == 1 else tuple(distances)

    def clean(self) -> None:
        given = {
            path: value for name, path in self.paths.items() if (value := self.cleaned_data.get(name)) != ""
        }
        self.ranking = self._valid(lambda values: self.index.ranking.filter(**values), given)

    @staticmethod
    def _valid(parse: Any, value: Any) -> Any:
        try:
            return parse(value)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None

    def draw(self, *, is_logarithmic: bool = False) -> dict[str, Any] | None:
        """Return a draw, for the template, and the histograms that show it; or add an error to the form."""
        asked, member = self.cleaned_data, self.cleaned_data["member"]
        try:
            if member is None:
                member = self._middle()
            me = self.index.ranking.entry(member)
            began = perf_counter()
            drawn = self.ranking.recommend(
                member, n=asked["n"], band=asked["band"], seed=asked["seed"] or None
            )
            # Ranks of shards are fetched when they are used: here, so that an error is shown on the form.
            list(map(tuple, drawn))
            took = 1000 * (perf_counter() - began)
            whole, near = self._histograms(me, drawn, is_logarithmic)
        except (FilterNotReady, FilterTooLarge, IndexUnavailable, NotRanked, ValueError) as error:
            self.add_error(None, str(error))
            return None
        return {"me": me, "drawn": drawn, "milliseconds": took, "whole": whole, "near": near}

    def _middle(self) -> Any:
        size = self.ranking.count()
        if not size:
            raise NotRanked("No member is ranked here.")
        return self.ranking[size // 2].pk

    def _histograms(self, me: Entry, drawn: Any, is_logarithmic: bool) -> list[Histogram | None]:
        """Histograms of the whole ranking, and of twice the band, both with those drawn."""
        kind = self.index.ordering.first.kind
        own = kind.key(me.score)
        below, above = map(kind.distance, sides(drawn.band))
        low, high = own - below, own + above
        scores = [kind.key(entry.score) for entry in drawn]
        found = (
            draw_histogram(self.ranking, is_logarithmic=is_logarithmic),
            draw_histogram(self.ranking, low - max(below, 1), high + max(above, 1)),
        )
        return [one and one.marked(own, scores, (low, high)) for one in found]


def _facet_field(field: Any, path: str) -> forms.Field:
    label = (
        capfirst(field.verbose_name) if LOOKUP_SEP not in path else pretty_name(path.replace(LOOKUP_SEP, "_"))
    )
    choices = getattr(field, "flatchoices", ())
    if 0 < len(choices) <= _CHOICES:
        return forms.ChoiceField(required=False, label=label, choices=[("", "All"), *choices])
    return forms.CharField(required=False, label=label, max_length=255)
