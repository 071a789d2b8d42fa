"""The REST API, on Django REST framework.

``path("api/", include("django_zrank.rest_framework.urls"))`` serves ``GET /api/recommendations/``.

A subclass of :class:`~django_zrank.rest_framework.viewsets.RecommendationViewSet` says what a result shows
and who may ask.
"""
