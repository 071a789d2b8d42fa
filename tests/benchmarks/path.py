"""Count the functions of this app that one ``GET /recommendations/`` enters, and the changes of module between them.

``python -m tests.benchmarks.path [--list] [--json FILE]``

A warm process answers one authenticated request for members of an index without hooks, under ``sys.setprofile``:
each function of the app that is entered counts, a generator each time that it is resumed, a comprehension never. A
change is counted where the function entered is of another module than the one entered before. The numbers depend on
neither the machine nor its load.

Beside it: the same with ``get_excluded()``, and with rows of the model in place of the ranking's own values.
``--list`` prints the functions in their order.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final

from django.test.utils import override_settings

from tests.benchmarks.options import parse_options, set_up

COMPREHENSIONS: Final = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")

Way = list[tuple[str, str]]
"""The functions entered: module and name of each."""


def main() -> None:
    options = parse_options(__doc__, list=False)

    set_up()
    from tests.benchmarks.rest import get, populate
    from tests.benchmarks.rounds import save
    from tests.benchmarks.servers import redis_server, tables

    with ExitStack() as stack:
        stack.enter_context(redis_server())
        stack.enter_context(tables())
        stack.enter_context(override_settings(ROOT_URLCONF=urls(), ALLOWED_HOSTS=["*"]))
        cookies = populate(1000)
        ways = {name: way(get(f"/{name}/", cookies)) for name in ("plain", "excluding", "hydrated")}
    found = {}
    for name, functions in ways.items():
        modules = [module for module, _ in functions]
        changes = sum(one != other for one, other in pairwise(modules))
        found[name] = {"functions": len(functions), "changes": changes}
        if options.list:
            print(f"\n{name}")
            for module, function in functions:
                print(f"  {module:36} {function}")
    print(f"{'':10} functions  changes of module")
    for name, counts in found.items():
        print(f"{name:10} {counts['functions']:9}  {counts['changes']:17}")
    save(options, **found)


def way(ask: Callable[[], Any]) -> Way:
    """The functions of the app that a request enters, once others have warmed the process up; of several requests, the
    one that enters fewest, as once a second one checks the server's health."""
    import django_zrank

    root = f"{Path(django_zrank.__file__).parent}{os.sep}"
    entered: Way = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        is_ours = event == "call" and code.co_filename.startswith(root)
        if is_ours and code.co_name not in COMPREHENSIONS:
            entered.append((code.co_filename.removeprefix(root), code.co_qualname))

    for _ in range(20):
        ask()
    ways = []
    for _ in range(3):
        entered = []
        sys.setprofile(note)
        try:
            ask()
        finally:
            sys.setprofile(None)
        ways.append(entered)
    return min(ways, key=len)


def urls() -> Any:
    """The views, over one index without hooks and one with."""
    from django.urls import path
    from rest_framework import serializers
    from rest_framework.renderers import JSONRenderer

    from django_zrank import RankIndex
    from django_zrank.rest_framework import RecommendationViewSet
    from tests.testapp.models import Player
    from tests.testapp.zrank import PlayerRank

    class PlainRank(RankIndex):
        # The name and the declaration of the index with hooks: both are one index in Redis.
        name = "player"
        model = Player
        order = ("-level",)
        band = 10
        owner = "user"
        get_queryset = PlayerRank.get_queryset

    class PlayerSerializer(serializers.ModelSerializer[Player]):
        class Meta:
            model = Player
            fields = ["name", "level", "bio", "is_active"]

    class Plain(RecommendationViewSet):
        index = PlainRank
        renderer_classes = [JSONRenderer]

    class Excluding(Plain):
        index = PlayerRank

    class Hydrated(Plain):
        serializer_class = PlayerSerializer

    module: Any = ModuleType("tests.benchmarks.path_urls")
    views = {"plain": Plain, "excluding": Excluding, "hydrated": Hydrated}
    module.urlpatterns = [path(f"{name}/", view.as_view({"get": "list"})) for name, view in views.items()]
    return module


if __name__ == "__main__":
    main()
