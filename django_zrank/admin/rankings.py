"""The admin's pages: the registered indexes, and each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db import OperationalError, connections
from django.db.models.functions import Now
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from ..capture.triggers import examine_capture
from ..exceptions import IndexUnavailable
from ..index import RankIndex
from ..jobs.models import Job, Ranking
from ..jobs.running import LEASE, jobs_of, request_job
from ..registry import registry
from ..store import Store
from ..sync.gauges import Gauges, read_gauges
from ..sync.health import Status
from ..sync.rebuild import count_rows
from ..transactions import reading
from .histograms import draw_histogram
from .trying import TryForm

__all__ = ["RankingAdmin"]

_COUNTING: Final = 0.25
"""Seconds that counting the rows may take; a verification counts them, too."""

_LOOKING: Final = 2.0
"""Seconds that all other queries may take."""


class RankingAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Pages about the registered indexes, which aren't rows: nothing can be edited.

    ``zrank.view_ranking`` lets staff see them, ``zrank.rebuild_ranking`` request verifications and rebuilds as well.
    """

    def get_urls(self) -> list[URLPattern]:
        name, view = f"{self.opts.app_label}_{self.opts.model_name}_{{}}".format, self.admin_site.admin_view
        return [
            path("", view(self.changelist_view), name=name("changelist")),
            path("<path:object_id>/change/", view(self.change_view), name=name("change")),
            path("<path:object_id>/jobs/", view(self.jobs_view), name=name("jobs")),
        ]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_rebuild_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("zrank.rebuild_ranking")

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the registered indexes and their health."""
        self._require_view(request)
        states = [(state, self._url("change", state.index)) for state in _read_states(registry.all())]
        context = {"title": "Rankings", "states": states, **(extra_context or {})}
        return self._render(request, "change_list", context)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show one index: its health, its scores, a form to try it, and its jobs. A GET, which changes nothing."""
        self._require_view(request)
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        index = self._index(object_id)
        form = TryForm(index, request.GET if "n" in request.GET else None)
        is_log = request.GET.get("scale") == "log"
        draw = form.draw(is_logarithmic=is_log) if form.is_bound and form.is_valid() else None
        histogram = None
        with suppress(IndexUnavailable):
            histogram = draw["whole"] if draw else draw_histogram(index.ranking, is_logarithmic=is_log)
        context = {
            "title": index.name,
            "subtitle": None,
            "index": index,
            "state": _read_state(index),
            "servers": _read_servers(index),
            "capture": examine_capture(index),
            "histogram": histogram,
            "is_log": is_log,
            "form": form,
            "draw": draw,
            "rows": draw and self._rows(request, index, draw["drawn"]),
        }
        context |= self._jobs(request, index) | (extra_context or {})
        return self._render(request, "change_form", context)

    def jobs_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Request a job by POST. GET returns the jobs alone, for the script that refreshes them on the page."""
        self._require_view(request)
        index = self._index(object_id)
        if request.method in ("GET", "HEAD"):
            return self._render(request, "jobs", self._jobs(request, index))
        if request.method != "POST":
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        if not self.has_rebuild_permission(request):
            raise PermissionDenied
        kind = request.POST.get("kind", "")
        if kind not in Job.Kind:
            raise Http404
        job, is_new = request_job(index, kind, request.user.get_username())
        what = f"{index.name}: {Job.Kind(kind).label}"
        if is_new:
            self.log_change(request, Ranking(index=index.name), f"Requested: {Job.Kind(kind).label}.")
            messages.success(request, f"{what} requested. sync_zrank --watch will run it.")
        else:
            messages.info(request, f"{what} was requested already, by {job.requested_by}.")
        return redirect(f"{self._url('change', index)}#jobs")

    def _require_view(self, request: HttpRequest) -> None:
        if not self.has_view_permission(request):
            raise PermissionDenied

    def _index(self, object_id: str) -> RankIndex:
        try:
            return registry.get(unquote(object_id))
        except LookupError:
            raise Http404 from None

    def _url(self, page: str, index: RankIndex) -> str:
        name = f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_{page}"
        return reverse(name, args=[quote(index.name)])

    def _jobs(self, request: HttpRequest, index: RankIndex) -> dict[str, Any]:
        jobs = list(jobs_of(index).annotate(now=Now())[:10])
        silences = [
            job.now - job.heartbeat_at if job.is_open and job.heartbeat_at else timedelta() for job in jobs
        ]
        return {
            "jobs": [
                (job, silence if silence > LEASE else None)
                for job, silence in zip(jobs, silences, strict=True)
            ],
            "is_open": any(job.is_open for job in jobs),
            "jobs_url": self._url("jobs", index),
            "may_request": self.has_rebuild_permission(request),
        }

    def _rows(self, request: HttpRequest, index: RankIndex, drawn: Any) -> list[tuple[Any, Any, str]]:
        """Return each member drawn, with its row and the row's page, if the user may view it: rows that the model's own
        admin hides aren't shown."""
        rows: dict[Any, Any] = {}
        model_admin = self.admin_site._registry.get(index.model)
        if model_admin is not None and model_admin.has_view_permission(request):
            found = model_admin.get_queryset(request).in_bulk([entry.pk for entry in drawn])
            rows = {pk: row for pk, row in found.items() if model_admin.has_view_permission(request, row)}
        name = f"{self.admin_site.name}:{index.model._meta.app_label}_{index.model._meta.model_name}_change"
        return [
            (entry, rows.get(entry.pk), reverse(name, args=[quote(entry.pk)]) if entry.pk in rows else "")
            for entry in drawn
        ]

    def _render(self, request: HttpRequest, page: str, context: dict[str, Any]) -> HttpResponse:
        request.current_app = self.admin_site.name
        return TemplateResponse(
            request,
            f"admin/zrank/ranking/{page}.html",
            {**self.admin_site.each_context(request), "opts": self.opts, **context},
        )


@dataclass(frozen=True)
class State:
    """The state of an index in Redis and in the database, at a cost independent of the number of members."""

    index: RankIndex

    gauges: Gauges | None = None
    """None if the database did not answer in time, or Redis had not answered for another index."""

    rows: int | None = None
    """The number of rows that the database ranks; None if counting them takes too long."""

    has_open_jobs: bool = False

    @property
    def model(self) -> str:
        return str(self.index.model._meta.label)

    @property
    def is_healthy(self) -> bool:
        return self.gauges is not None and self.gauges.status is Status.HEALTHY

    @property
    def label(self) -> str:
        if self.gauges is None:
            return "not checked"
        return self.gauges.status.value if self.gauges.status else "Redis can't be reached"


def _read_states(indexes: Iterable[RankIndex]) -> Iterator[State]:
    """Yield the state of each index. If Redis doesn't answer for one, it isn't asked about the others."""
    is_there = True
    for index in indexes:
        state = _read_state(index) if is_there else State(index)
        yield state
        is_there = is_there and (state.gauges is None or state.gauges.status is not None)


def _read_state(index: RankIndex) -> State:
    gauges, rows, has_open_jobs = None, None, False
    connection = connections[index.get_using()]
    with suppress(OperationalError):
        with reading(connection, _LOOKING):
            has_open_jobs = jobs_of(index).filter(is_open=True).exists()
            gauges = read_gauges(index)
        with reading(connection, _COUNTING):
            rows = count_rows(index)
    return State(index, gauges, rows, has_open_jobs)


def _read_servers(index: RankIndex) -> list[dict[str, Any]]:
    """Return the INFO of each server that holds the index, or some of its shards; none if Redis can't be reached.
    ``own``: bytes that the index takes there without its facet rankings, as Redis estimates them; 0 if unknown. It
    takes two round trips a shard."""
    found: dict[Any, dict[str, Any]] = {}
    try:
        for holder in index.holders:
            store = Store.of(holder)
            info = store.server_info()
            server = found.setdefault(info["run_id"], {**info, "own": 0})
            with suppress(IndexUnavailable):  # refused: MEMORY is forbidden to many accounts
                server["own"] += store.memory()
    except IndexUnavailable:
        return []
    return list(found.values())
