from django.urls import path

from . import views

urlpatterns = [
    path("", views.arena, name="arena"),
    path("comparison/", views.comparison, name="comparison"),
    path("leaderboard/", views.leaderboard, name="leaderboard"),
    path("level-up/", views.level_up, name="level-up"),
    path("match/<int:pk>/", views.match, name="match"),
    path("audience/", views.audience, name="audience"),
    path("outage/", views.outage, name="outage"),
    path("play-as/<str:role>/", views.play_as, name="play-as"),
    path("leave/", views.leave, name="leave"),
]
