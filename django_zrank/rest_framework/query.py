"""Parsers of query strings.

A parser is made once for what a view allows, and serves all requests. What it refuses is a 400 whose body names the
parameter. Unknown parameters are refused, too: if a misspelt filter were ignored, the response would show everybody.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, ClassVar, Final, Self

from django.core.exceptions import ImproperlyConfigured
from django.http import QueryDict
from django.utils.translation import gettext_lazy as _
from rest_framework.serializers import ValidationError

from ..index import Band, RankIndex
from .bands import BandParameter, RanksParameter, StepsParameter
from .filters import FacetParameter, ParsedFilter, filter_parameters
from .parameters import (
    MemberParameter,
    MembersParameter,
    NumberParameter,
    PageParameter,
    Parameter,
    RefusedParameter,
)

__all__ = [
    "AroundQuery",
    "CountsQuery",
    "Limits",
    "ListQuery",
    "Query",
    "RecommendationQuery",
]


@dataclass(frozen=True)
class Limits:
    """The parameters that a view allows. Hashable, so that a parser is made once for each."""

    index: RankIndex
    max_n: int
    filters: tuple[tuple[str, str], ...] = ()
    allow_groups: bool = False
    others: frozenset[str] = frozenset()
    """Parameters that something else parses: pages, filter backends, renderers."""

    allow_unknown: bool = False
    pages: tuple[tuple[str, int | None], ...] = ()
    """Parameters of the paginator, with the lowest number of each; None for one that it parses itself."""

    max_excluded: int = 1000
    allow_seed: bool = False
    allow_band: bool = True
    max_band: Band | None = None
    max_ranks: int | tuple[int, int] | None = None


class Query:
    """The query string of an action: filters, and in subclasses further parameters."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        own = self.get_parameters()
        filters = dict(filter_parameters(limits.index, dict(limits.filters), groups=limits.allow_groups))
        if clash := filters.keys() & (own.keys() | limits.others):
            raise ImproperlyConfigured(
                f"The filter {min(clash)!r} has the name of another parameter: get_filters() of the view must "
                "give it another one."
            )
        self.parameters: dict[str, Parameter] = {**own, **filters}
        self.required: list[tuple[str, ...]] = [
            (name,) for name, parameter in own.items() if parameter.required
        ]
        """Groups of parameters: a request must have one of each."""

    @classmethod
    @lru_cache(maxsize=1024)
    def of(cls, limits: Limits) -> Self:
        """Return the parser for what a view allows."""
        return cls(limits)

    def get_parameters(self) -> dict[str, Parameter]:
        """Return the parameters other than filters, by name."""
        return {}

    def read(self, data: QueryDict) -> tuple[dict[str, Any], dict[str, ParsedFilter]]:
        """Parse a query string. Returns the values given, by name, and the filters.

        Raises ``ValidationError`` with all that is wrong.
        """
        arguments: dict[str, Any] = {}
        conditions: dict[str, ParsedFilter] = {}
        wrong: dict[str, Any] = {}
        for name in data:
            parameter = self.get_parameter(name, data)
            try:
                if parameter is None:
                    self.check_other(name, data)
                    continue
                texts = data.getlist(name)
                if len(texts) > 1 and not parameter.repeatable:
                    # Proxies and frameworks differ in which of them counts.
                    raise ValidationError([_("Give this parameter once.")], code="repeated")
                value = parameter.read(texts)
                if isinstance(value, ParsedFilter):
                    conditions[name] = value
                else:
                    arguments[name] = value
            except ValidationError as error:
                wrong[name] = error.detail
        for names in self.required:
            if not any(name in data for name in names):
                wrong[names[0]] = [_("This field is required.")]
        if wrong:
            raise ValidationError(wrong, code="invalid")
        return arguments, conditions

    def get_parameter(self, name: str, data: QueryDict) -> Parameter | None:
        """Return the parameter ``name``."""
        return self.parameters.get(name)

    def check_other(self, name: str, data: QueryDict) -> None:
        """Raise ``ValidationError`` for an unknown parameter, naming those with similar names."""
        if name in self.limits.others or self.limits.allow_unknown:
            return
        known = {
            one for one, parameter in self.parameters.items() if not parameter.hidden
        } | self.limits.others
        by_lower = {one.lower(): one for one in known}
        # Comparing long names would cost time.
        close = get_close_matches(name.lower(), by_lower) if len(name) <= _LONGEST and len(data) <= 20 else []
        message: Any = _("There is no such parameter.")
        if close:
            similar = ", ".join(by_lower[one] for one in close)
            message = _("There is no such parameter. Did you mean {names}?").format(names=similar)
        raise ValidationError([message], code="unknown")


_LONGEST: Final = 50


_PAGES: Final = {1: _("The number of results on a page."), 0: _("The number of results to skip.")}


class ListQuery(Query):
    """The query string of a leaderboard. Pages are parsed by the paginator; here they only have to be numbers."""

    def get_parameters(self) -> dict[str, Parameter]:
        return {
            name: PageParameter() if lowest is None else NumberParameter(lowest, help_text=_PAGES[lowest])
            for name, lowest in self.limits.pages
        }


class AroundQuery(Query):
    """The query string of ``GET /leaderboard/<pk>/around/``."""

    def get_parameters(self) -> dict[str, Parameter]:
        return {"n": NumberParameter(1, self.limits.max_n, _("The number of members."))}


class CountsQuery(Query):
    """The query string of ``GET /leaderboard/counts/``."""

    def get_parameters(self) -> dict[str, Parameter]:
        return {
            "n": NumberParameter(1, self.limits.max_n, _("The number of values.")),
            "facet": FacetParameter(
                self.limits.index,
                dict(self.limits.filters),
                _("What to count by: a facet, or the parts of one, separated by commas."),
            ),
        }


class RecommendationQuery(Query):
    """The query string of ``GET /recommendations/``."""

    no_band: ClassVar[Any] = _("No band can be given here.")

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        if limits.index.get_band() is None:
            self.required.append(("band", "ranks"))

    def get_parameters(self) -> dict[str, Parameter]:
        limits = self.limits
        band = BandParameter(
            limits.index,
            limits.max_band,
            _("How far a score may lie from mine: one distance, or two as “below,above”."),
        )
        ranks = RanksParameter(
            limits.max_ranks,
            _("How far a rank may lie from mine, instead of a band: “below,above”."),
        )
        steps = _(
            "A wider band to try if the band holds too few members. Repeat it for further steps, in order."
        )
        self._ranks_steps = StepsParameter(ranks, steps)
        bands: dict[str, Parameter] = {"band": band, "ranks": ranks, "widen": StepsParameter(band, steps)}
        if not limits.allow_band:
            bands = dict.fromkeys(bands, RefusedParameter(self.no_band))
        seed: Parameter = RefusedParameter(_("No seed can be given here."))
        if limits.allow_seed:
            seed = NumberParameter(help_text=_("The same seed draws the same members."))
        return {
            "n": NumberParameter(1, limits.max_n, _("The number of members.")),
            **bands,
            "exclude": MembersParameter(
                limits.index, limits.max_excluded, _("Ids of members to leave out, separated by commas.")
            ),
            "seed": seed,
            "member": MemberParameter(limits.index, _("The id of the member to ask as. Default: mine.")),
        }

    def get_parameter(self, name: str, data: QueryDict) -> Parameter | None:
        if name == "widen" and "ranks" in data and self.limits.allow_band:
            return self._ranks_steps
        return super().get_parameter(name, data)
