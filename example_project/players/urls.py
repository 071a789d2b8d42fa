from django.urls import path

from . import views

urlpatterns = [
    path("", views.arena, name="arena"),
    path("leaderboard/", views.leaderboard, name="leaderboard"),
    path("level-up/", views.level_up, name="level-up"),
    path("play-as/<str:role>/", views.play_as, name="play-as"),
    path("leave/", views.leave, name="leave"),
]
