"""The parameters of a roll that a visitor may set."""

from __future__ import annotations

from urllib.parse import urlencode

from django import forms

from .models import Region


class RollForm(forms.Form):
    """The parameters of a roll, all optional: an empty form uses the index's defaults."""

    band = forms.IntegerField(required=False, min_value=0, max_value=5000, label="Max. level gap")
    region = forms.ChoiceField(required=False, choices=[("", "Any"), *Region.choices])
    seed = forms.CharField(required=False, max_length=40)
    audience = forms.BooleanField(required=False, label="Audience only")
    exclude = forms.TypedMultipleChoiceField(required=False, coerce=int)

    def __init__(self, data=None) -> None:
        super().__init__(data or {}, auto_id="roll-%s", label_suffix="")
        given = data.getlist("exclude") if data else []
        self.fields["exclude"].choices = [(pk, pk) for pk in given if pk.isdecimal() and len(pk) < 19][:100]
        self.fields["band"].widget.attrs |= {"placeholder": "10", "inputmode": "numeric"}
        self.fields["seed"].widget.attrs |= {"placeholder": "none", "autocomplete": "off"}
        self.is_valid()

    def given(self, name: str):
        """A cleaned value; None if it is missing or invalid."""
        return self.cleaned_data.get(name) or None

    def as_query(self) -> str:
        """The valid parameters as a query string."""
        given = {name: self.given(name) for name in self.fields} | {"band": self.cleaned_data.get("band")}
        return urlencode({name: value for name, value in given.items() if value is not None}, doseq=True)
