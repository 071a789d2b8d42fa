"""The admin's pages: the registered indexes, and each of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db.models.functions import Now
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, QueryDict
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from ..exceptions import IndexUnavailable
from ..index import RankIndex
from ..models import Job, Ranking
from ..registry import registry
from ..sync.jobs import LEASE, jobs_of, request_job
from ..sync.triggers import examine_capture
from .histograms import draw_histogram
from .states import read_servers, read_state, read_states
from .trying import Trial, TryForm

__all__ = ["RankingAdmin"]


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
        states = [(state, self._url("change", state.index)) for state in read_states(registry.all())]
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
        try:
            histogram = (
                draw.whole if draw else draw_histogram(index, index.ranking.view, is_logarithmic=is_log)
            )
        except IndexUnavailable:
            histogram = None
        return self._render(
            request,
            "change_form",
            {
                "title": index.name,
                "subtitle": None,
                "index": index,
                "state": read_state(index),
                "servers": read_servers(index),
                "capture": examine_capture(index),
                "histogram": histogram,
                "scales": [
                    (label, scale == ("log" if is_log else ""), _with_scale(request.GET, scale))
                    for label, scale in (("Linear", ""), ("Logarithmic", "log"))
                ],
                "is_log": is_log,
                "form": form,
                "draw": draw,
                "rows": draw and self._rows(request, index, draw),
                **self._jobs(request, index),
                **(extra_context or {}),
            },
        )

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
        silences = [job.now - job.seen_at if job.is_open and job.seen_at else timedelta() for job in jobs]
        return {
            "jobs": [
                (job, silence if silence > LEASE else None)
                for job, silence in zip(jobs, silences, strict=True)
            ],
            "is_open": any(job.is_open for job in jobs),
            "jobs_url": self._url("jobs", index),
            "may_request": self.has_rebuild_permission(request),
        }

    def _rows(self, request: HttpRequest, index: RankIndex, trial: Trial) -> list[tuple[Any, Any, str]]:
        """Return each member drawn, with its row and the row's page, if the user may view it: rows that the model's own
        admin hides aren't shown."""
        model_admin = self.admin_site._registry.get(index.model)
        if model_admin is None or not model_admin.has_view_permission(request):
            return [(entry, None, "") for entry in trial.drawn]
        found = model_admin.get_queryset(request).in_bulk([entry.pk for entry in trial.drawn])
        rows = {pk: row for pk, row in found.items() if model_admin.has_view_permission(request, row)}
        name = f"{self.admin_site.name}:{index.model._meta.app_label}_{index.model._meta.model_name}_change"
        return [
            (entry, rows.get(entry.pk), reverse(name, args=[quote(entry.pk)]) if entry.pk in rows else "")
            for entry in trial.drawn
        ]

    def _render(self, request: HttpRequest, page: str, context: dict[str, Any]) -> HttpResponse:
        request.current_app = self.admin_site.name
        return TemplateResponse(
            request,
            f"admin/zrank/ranking/{page}.html",
            {**self.admin_site.each_context(request), "opts": self.opts, **context},
        )


def _with_scale(query: QueryDict, scale: str) -> str:
    """Return a query string with another scale of the histogram."""
    query = query.copy()
    query.pop("scale", None)
    if scale:
        query["scale"] = scale
    return query.urlencode()
