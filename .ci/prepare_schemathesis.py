"""For the demo's shell: rank tennis players too, and print the session of somebody who has signed in, and the token of
a match server."""

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client
from rest_framework.authtoken.models import Token

from tennis.models import TennisPlayer

TennisPlayer.objects.bulk_create(
    TennisPlayer(
        atp_id=number,
        name=f"Player {number}",
        country=("SUI", "ESP", "")[number % 3],
        points=number * 7 % 900,
    )
    for number in range(300)
)
call_command("rebuild_zrank", "atp", "atp-age", verbosity=0, no_progress=True)
client, users = Client(), get_user_model().objects
client.force_login(users.get(username="middle"))
token, _ = Token.objects.get_or_create(user=users.get(username="admin"))
print(client.session.session_key, token.key)
