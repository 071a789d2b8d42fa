"""The documentation: every Python block runs, every command, setting, status, module and link that it names exists."""

from __future__ import annotations

import ast
import inspect
import json
import re
import runpy
import shlex
from argparse import Action
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
import redis
from django.apps import apps
from django.contrib.admin import ModelAdmin
from django.core.management import CommandError, get_commands, load_command_class
from django.core.management.base import BaseCommand, CommandParser
from django.utils.module_loading import import_string

import django_zrank
from django_zrank import extension
from django_zrank.conf import Settings
from django_zrank.erase import Erased
from django_zrank.groups import Group
from django_zrank.ranking import Ranking
from django_zrank.scores import Scores
from django_zrank.sync.gauges import Gauges
from django_zrank.sync.health import Status
from django_zrank.sync.verify import Example, Report
from django_zrank.testing import EmbeddedServer
from tests.pages import PAGES, ROOT, TESTS, blocks
from tests.projects import LIVE, SETTINGS, Project
from tests.projects import documented as documented_blocks

MODELS = """
from django.conf import settings
from django.db import models

class Guild(models.Model):
    slug = models.SlugField()

class Tag(models.Model):
    word = models.CharField(max_length=40)

class Player(models.Model):
    user = models.OneToOneField(settings.AUTH_USER_MODEL, models.CASCADE, null=True)
    name = models.CharField(max_length=40, default="")
    level = models.IntegerField(default=0)
    points = models.IntegerField(default=0)
    achieved_at = models.DateTimeField(auto_now_add=True)
    last_seen = models.DateTimeField(auto_now=True)
    is_active = models.BooleanField(default=True)
    region = models.CharField(max_length=40, default="kanto")
    platform = models.CharField(max_length=40, default="pc")
    guild = models.ForeignKey(Guild, models.CASCADE, null=True)
    tags = models.ManyToManyField(Tag)
    friends = models.ManyToManyField("self")

class Score(models.Model):
    player = models.ForeignKey(Player, models.CASCADE)
    season = models.CharField(max_length=7)
    points = models.IntegerField(default=0)

class Block(models.Model):
    player = models.ForeignKey(Player, models.CASCADE, related_name="blocks")
    blocked = models.ForeignKey(Player, models.CASCADE, related_name="+")
"""


def declared(page: str) -> str:
    """The module that declares the index of a page, by default that of the page on leaderboards."""
    found = [block.code for block in blocks(page) if block.file == "players/zrank.py"]
    return "\n".join(found) or declared("docs/leaderboards.md")


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as running:
        yield running


OWN_PROJECT = "docs/tutorial.md"
"""Run from an empty folder by ``tests/test_tutorial.py``."""


FIRST = {"README.md"}
"""Each page takes a project, a second or more: the others are left to the lane of slow tests."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=() if page in FIRST else pytest.mark.slow)
        for page in PAGES
        if any(blocks(page)) and page != OWN_PROJECT
    ],
)
def test_python_blocks_run(page: str, server: EmbeddedServer, tmp_path: Path) -> None:
    with redis.Redis.from_url(server.url) as client:
        client.flushdb()
    own = [block.code for block in blocks(page) if block.file == "players/models.py"]
    files = {"players/models.py": "\n".join([MODELS, *own]), "players/zrank.py": declared(page)}
    if page == "docs/admin.md":
        files["settings.py"] = SETTINGS.replace(
            '"django.contrib.auth"', '"django.contrib.admin", "django.contrib.auth"'
        )
    project = Project(tmp_path, server.url, files, live=False)
    said = project.run("-m", "tests.pages", page)
    run = [f"{page}:{block.line}" for block in blocks(page) if block.file not in TESTS]
    assert re.findall(rf"^{page}:\d+$", said, re.MULTILINE) == run


@pytest.mark.slow
def test_the_page_in_a_template(server: EmbeddedServer, tmp_path: Path) -> None:
    """The view, the template and the URLs of the how-to, asked by a player, by nobody, and while Redis is down."""
    page = "docs/howto/template.md"
    with redis.Redis.from_url(server.url) as client:
        client.flushdb()
    (template,) = blocks(page, "html")
    name = re.match(r"<!-- (\S+) -->", template.text)[1]  # type: ignore[index]
    installed = f"""{SETTINGS}
INSTALLED_APPS += ["django.contrib.sessions"]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
TEMPLATES = [{{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}}]
ROOT_URLCONF = "players.urls"
ALLOWED_HOSTS = ["testserver"]
"""
    files = {"settings.py": installed, "players/models.py": MODELS, **documented_blocks(page)}
    project = Project(tmp_path, server.url, files, live=False)
    (tmp_path / "players/templates/players").mkdir(parents=True)
    (tmp_path / name).write_text(template.text)
    start = f"import django; django.setup()\n{VISIT}"
    said = project.run("-c", f"{start}{LIVE}{VISITS}")
    signed_in, region, nobody = json.loads(said.splitlines()[-1])
    assert signed_in["rank"] == 20
    assert signed_in["ranks"] == [*range(1, 26)]
    assert len(signed_in["opponents"]) == 5
    assert "player-10" not in signed_in["opponents"]
    assert region["rank"] is None
    assert region["ranks"] == [1, 2, 3]
    assert (nobody["rank"], nobody["opponents"]) == (None, [])
    assert nobody["ranks"] == [*range(26, 31)]
    said = project.run(
        "-c", f"{start}print(json.dumps(visit(Client(), '')))", PROJECT_REDIS="redis://127.0.0.1:1/0"
    )
    assert json.loads(said.splitlines()[-1])["status"] == 503


VISIT = """
import json, re
from django.test import Client

def visit(client, query):
    response = client.get(f"/leaderboard/{query}")
    text = response.content.decode()
    rank = re.search(r"Your rank is (\\d+)", text)
    return {
        "status": response.status_code,
        "rank": rank and int(rank[1]),
        "ranks": [int(found) for found in re.findall(r"<td>(\\d+)</td><td>player-", text)],
        "opponents": re.findall(r"<li>(player-\\d+), level", text),
    }
"""

VISITS = """
from django.contrib.auth.models import User
from players.models import Player

for player in Player.objects.all():
    player.name = f"player-{player.level}"
    player.user = User.objects.create(username=player.name)
    player.region = "hokkaido" if player.level < 3 else "kanto"
    player.save()

mine = Client()
mine.force_login(User.objects.get(username="player-10"))
print(json.dumps([visit(mine, ""), visit(mine, "?region=hokkaido"), visit(Client(), "?page=2")]))
"""


def test_blocks_that_are_tests_are_known() -> None:
    """Those that ``tests/test_projects.py`` runs, and no others."""
    found = [(page, block.file) for page in PAGES for block in blocks(page) if block.file in TESTS]
    assert sorted(found) == sorted(("docs/testing.md", name) for name in TESTS)


def test_the_picture_is_drawn_by_its_script() -> None:
    """Of the scene that the committed picture shows, and of another one."""
    draw = runpy.run_path(str(ROOT / "docs/images/draw.py"))
    opponents = [
        {"name": f"Player <{level}>", "level": level, "rank": 60 - level} for level in range(55, 45, -1)
    ]
    me = {"name": "Ann & Bob", "level": 50, "rank": 10}
    drawn = draw["picture"]({"player": me, "opponents": opponents, "band": [10, 10], "candidates": 99}, 100)
    for svg, above in (drawn, 5), ((ROOT / "docs/images/draw.svg").read_text(), 5):
        circles = ElementTree.fromstring(svg).findall("{http://www.w3.org/2000/svg}circle")
        assert [circle.get("fill") for circle in circles].count(draw["ABOVE"]) == above
        assert len(circles) == 10


@pytest.mark.parametrize("picture", sorted((ROOT / "docs/images").glob("*.svg")), ids=lambda path: path.name)
def test_pictures_can_be_read_on_a_phone(picture: Path) -> None:
    """A page as wide as a phone leaves them 358 pixels."""
    svg = ElementTree.fromstring(picture.read_text())
    scale = min(1, 358 / float(svg.attrib["width"]))
    assert min(float(one.attrib.get("font-size", 16)) * scale for one in svg.iter()) > 11


# The reference

DETAILS = "\n".join(path.read_text() for path in sorted((ROOT / "docs/reference").glob("*.md")))

REFERENCE = re.findall(r"^::: (\S+)$", DETAILS, re.MULTILINE)


LISTED = re.findall(
    r"^::: (\S+)\n    options:\n(?:      (?:inh|fil|hea|sho).+\n)*      members: \[([^]]+)",
    DETAILS,
    re.MULTILINE,
)
"""Classes and modules, and the members that are shown of each."""


def documented() -> Iterator[tuple[str, Any]]:
    """The names in the reference: of a module, those that it exports."""
    for name in REFERENCE:
        named = resolve_name(name)
        if isinstance(named, ModuleType):
            yield from ((f"{name}.{one}", getattr(named, one)) for one in named.__all__)
        else:
            yield name, named


def test_what_pages_import_is_in_the_reference() -> None:
    imported = {
        f"{node.module}.{one.name}"
        for page in PAGES
        for block in blocks(page)
        for node in ast.walk(ast.parse(block.code))
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "django_zrank"
        for one in node.names
    }
    assert len(imported) > 12
    public = imported | {f"django_zrank.{name}" for name in django_zrank.__all__}
    known = [each for _, each in documented()]
    for name in public:
        named = resolve_name(name)
        of = type(getattr(named, "__self__", named))  # register() is a method of the registry
        assert any(one in (named, of) for one in known), name


def test_the_members_that_the_reference_lists_exist() -> None:
    """mkdocstrings leaves out what it doesn't find."""
    assert len(LISTED) > 6
    for name, members in LISTED:
        named: Any = resolve_name(name)
        known = {
            *dir(named),
            *(one for base in getattr(named, "__mro__", ()) for one in inspect.get_annotations(base)),
        }
        assert set(members.replace(",", " ").split()) <= known, name


VERBS = {
    name
    for called in (Ranking, Group, Scores)
    for name in dir(called)
    if not name.startswith("_") and inspect.isfunction(inspect.getattr_static(called, name))
}


def test_every_verb_is_in_the_reference() -> None:
    """Also on its first page, which can be read as a file. Coroutines are named there by a rule."""
    page = (ROOT / "docs/reference.md").read_text()
    assert len(VERBS) > 60
    for name in {*VERBS, *(name.split(".")[-1] for name, _ in documented())}:
        blocking = name[1:] if name.startswith("a") and name[1:] in VERBS else name
        assert re.search(rf"\b{blocking}\b", page), name
    shown = {
        name for of, members in LISTED if of.endswith(".Ranking") for name in re.findall(r"\w+", members)
    }
    assert [name for name in sorted(VERBS & {*dir(Ranking)}) if not {name, name[1:]} & shown] == []


def test_what_is_in_the_reference_has_a_docstring() -> None:
    """Or is documented elsewhere: methods that override Django's, and hooks (``get_band()``) by what they return."""
    for name, named in documented():
        ours = [base for base in getattr(named, "__mro__", ()) if base.__module__.startswith("django_zrank.")]
        known = {f"get_{attribute}" for base in ours for attribute in inspect.get_annotations(base)}
        known |= {*dir(ModelAdmin), "list", "retrieve"}  # of REST views: OpenAPI would show a docstring
        undocumented = [
            attribute
            for base in ours
            for attribute, value in vars(base).items()
            if inspect.isfunction(value) and not attribute.startswith("_") and attribute not in known
            if not inspect.getdoc(getattr(named, attribute))
        ]
        assert not undocumented, name
        assert named.__doc__, name


# Commands

OURS = sorted(name for name, app in get_commands().items() if app == "django_zrank")
PLACEHOLDERS = {"N": "1", "SECONDS": "1", "ALIAS": "default", "NAME": "player"}


def parser_of(name: str) -> CommandParser:
    commands = get_commands()
    assert name in commands, f"there is no command {name}"
    app = commands[name]
    command = app if isinstance(app, BaseCommand) else load_command_class(app, name)
    return command.create_parser("manage.py", name)


def named_commands(page: str) -> Iterator[str]:
    """The command lines that a page names, in its text and in its blocks that aren't Python."""
    text = (ROOT / page).read_text()
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"(^\| (?=`--))?`([^`]+)`", prose, re.MULTILINE)
    spans = [row + " ".join(span.split()) for row, span in found]
    lines = [
        line
        for language in ("sh", "ini", "")
        for block in blocks(page, language)
        for line in block.text.split("\n")
    ]
    last = ""
    for line in [*spans, *lines]:
        if match := re.search(r"manage\.py (\w+.*)|^((?:(?!django)\w+_zrank|zrank_status)\b.*)", line):
            command = match[1] or match[2]
            last = " ".join(word for word in command.split() if not word.startswith("-"))
            yield command
        elif line.startswith("| --"):  # a row of the table of options
            yield f"{last} {line.removeprefix('| ')}"


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist_with_these_options(page: str) -> None:
    for line in named_commands(page):
        name, *words = shlex.split(line, comments=True)
        if name in EXAMPLES:
            continue
        arguments = [PLACEHOLDERS.get(word, word) for word in words if not set("[…]") & set(word)]
        try:
            given = parser_of(name).parse_args(arguments)
            if name == "migrate" and given.app_label:
                apps.get_app_config(given.app_label)
        except (CommandError, LookupError) as error:
            pytest.fail(f"{page}: {line}: {error}")


EXAMPLES = {"demo", "drf_create_token", "load_atp", "spectacular", "tenant_command"}
"""Commands of the example project, whose own tests run them, and of what it installs; and of django-tenants."""


def test_the_page_of_commands_names_every_option() -> None:
    named = set(named_commands("docs/commands.md"))
    for name in OURS:
        base = {
            option
            for action in actions(BaseCommand().create_parser("", ""))
            for option in action.option_strings
        }
        for action in actions(parser_of(name)):
            for option in set(action.option_strings) - base:
                assert any(re.match(rf"{name} .*{option}\b", line) for line in named), f"{name} {option}"


def actions(parser: CommandParser) -> list[Action]:
    return parser._actions


# Settings, checks, statuses, modules, links


def test_the_page_of_settings_names_each_with_its_default() -> None:
    page = (ROOT / "docs/settings.md").read_text()
    rows = re.findall(r"^### `([A-Z_]+)`\n\nDefault `(.+?)`\.\n\n\S", page, re.MULTILINE)
    classes = (Settings, *map(import_string, extension.settings.values()))
    assert {key: eval(default) for key, default in rows} == {
        name.upper(): default for one in classes for name, default in asdict(one()).items()
    }


def test_every_check_is_explained() -> None:
    """Each once, with a meaning and a remedy."""
    page = (ROOT / "docs/checks.md").read_text()
    entries = re.findall(
        r"^### `(zrank\.\w+)`\n\n(?:(?!^#).)+?\*Remedy\*: \S", page, re.MULTILINE | re.DOTALL
    )
    package = "".join(path.read_text() for path in (ROOT / "django_zrank").rglob("*.py"))
    assert sorted(entries) == sorted(set(re.findall(r'"(zrank\.[EW]\d+)"', package)))


def test_every_status_is_explained() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \|", (ROOT / "docs/monitoring.md").read_text(), re.MULTILINE)
    assert rows == [*(status.name for status in Status), "UNREACHABLE"]  # zrank_status prints this, too


@pytest.mark.parametrize(
    "page", [*(f"docs/{name}.md" for name in ("design", "protocol", "how-it-works")), "tests/model/README.md"]
)
def test_the_modules_that_are_named_exist(page: str) -> None:
    files = [
        f"/{path.relative_to(ROOT)}"
        for folder in ("django_zrank", "tests")
        for path in (ROOT / folder).rglob("*.*")
    ]
    for name in re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.(?:py|lua))`", (ROOT / page).read_text()):
        assert any(file.endswith(f"/{name}") for file in files), name


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        name, _, anchor = target.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), target
        if anchor:
            assert anchor in set(map(slug, re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE))), target


FOR_CONTRIBUTORS = {"CONTRIBUTING.md", "docs/design.md", "docs/protocol.md"}

FOR_USERS = [page for page in PAGES if page not in FOR_CONTRIBUTORS and not page.startswith("tests/")]


def test_every_page_is_linked_from_the_index() -> None:
    index = (ROOT / "docs/index.md").read_text() + DETAILS_INDEX
    linked = {f"docs/{target}" for target in re.findall(r"\]\(([\w/-]+\.md)", index)}
    pages = {page for page in FOR_USERS if page.startswith("docs/")}
    assert pages - linked == {"docs/index.md"}


DETAILS_INDEX = (ROOT / "docs/reference.md").read_text()
"""The index links the first page of the reference, and that one the others."""


OTHERS = re.compile(
    r"(?<![a-z])(?:generations?|verdicts?|intersect[a-z]*|fenc(?:e|ed|ing)|tie bytes|cards?|decks?|swe(?:eps?|pt)"
    r"|memberships?|terms?|batch(?:es)?(?![-_]size)|roots?(?! access)|beg[ia]ns? in Redis(?! first)"
    r"|accepted server)(?![a-z_(])",
    re.IGNORECASE,
)
"""Words that have another one in the glossary, or are for authors."""


@pytest.mark.parametrize("page", FOR_USERS)
def test_pages_for_users_have_one_word_for_each_thing(page: str) -> None:
    """Those of the glossary, except for names of a key in Redis and of methods of other packages."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"`[^`]*:memberships`|\]\([^)]*\)", "", text)
    assert not OTHERS.findall(prose)


def spoken(module: Path) -> Iterator[str]:
    """What a module may say: its texts of several words; any of its texts, if it is there to speak."""
    tree = ast.parse(module.read_text())
    docstrings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    speaks = {"admin", "commands", "rest_framework", "erase"} & {*module.parts} or module.name == "metrics.py"
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and node not in docstrings else None
        if isinstance(text, str) and (speaks or " " in text):
            yield text


def test_commands_metrics_and_messages_use_the_words_of_the_pages() -> None:
    modules = [path for path in (ROOT / "django_zrank").rglob("*.py") if "migrations" not in path.parts]
    said = {(str(path.relative_to(ROOT)), text) for path in modules for text in spoken(path)}
    said |= {
        (of.__name__, name)
        for of in (Gauges, Erased, Report, Example)
        for name in inspect.get_annotations(of)
    }
    said |= {(name, inspect.getdoc(named) or "") for name, named in documented()}
    said |= {
        (f"{name}.{member}", inspect.getdoc(value) or "")
        for name, named in documented()
        for member, value in getattr(named, "__dict__", {}).items()
        if inspect.isfunction(value) and not member.startswith("_")
    }
    for page in (
        page for part in ("django_zrank", "example_project") for page in (ROOT / part).rglob("*.html")
    ):
        shown = re.sub(r"(?s)<(style|script)\b.*?</\1>|{[{%#].*?[}%#]}|<[^>]*>", " ", page.read_text())
        said.add((str(page.relative_to(ROOT)), shown))
    assert len(said) > 600
    assert [(where, text) for where, text in said if OTHERS.search(text)] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_row_is_in_a_table(page: str) -> None:
    """A row after a blank line is shown as text. A table begins with its header and a line of dashes."""
    text = (ROOT / page).read_text()
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for table in re.findall(r"(?:^ *\|.*\n)+", prose, re.MULTILINE):
        assert re.match(r".+\n *\|(?: -+ \|)+\n", table), table


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
