"""The version in the header; the changelog as a page of the site; links to files that aren't on the site; where code
may be broken into lines.

Such links lead to the repository, ``repo_url``, from ``ZRANK_REPOSITORY_URL``. Without it, they become plain text.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]

LINK = re.compile(r"(?<!!)\[([^]]*)\]\((?![a-z]+:|#)([^)#]+)(#[^)]*)?\)")
"""A link to a file; its groups are the text, the file and the anchor."""


CODE = re.compile(r"(?<!</span>)<code>([^<]+)</code>")
"""Code within a sentence or a cell."""

HYPHENATED = re.compile(r"\S*[-?]\S*")
"""A word that a browser would break."""

PATH = re.compile(r"(?<=doc-object-name )[^<>]+>[\w.]+")
"""The path of what a section of the reference is about."""


def on_config(config: Any) -> Any:
    config.site_name += f" {tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['version']}"
    return config


def on_files(files: Files, *, config: Any) -> Files:
    text = re.sub(r"\]\((?!docs/|[a-z]+:|#)", "](../", (ROOT / "CHANGELOG.md").read_text()).replace(
        "](docs/", "]("
    )
    files.append(File.generated(config, "changelog.md", content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    def rewrite(link: re.Match[str]) -> str:
        text, target, anchor = link.groups()
        path = normpath(join("docs", page.file.src_uri, "..", target))
        if path == "CHANGELOG.md":
            return f"[{text}]({relpath('changelog.md', dirname(page.file.src_uri))})"
        listed = files.get_file_from_path(path.removeprefix("docs/"))
        if listed is not None and not listed.inclusion.is_excluded():
            return link[0]
        if not (ROOT / path).exists():  # mkdocs reports what leads nowhere
            return link[0]
        return f"[{text}]({config.repo_url}/blob/HEAD/{path}{anchor or ''})" if config.repo_url else text

    return LINK.sub(rewrite, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Keep short words of code whole, and let paths in headings break before their dots."""

    def whole(word: re.Match[str]) -> str:
        return f'<span class="word">{word[0]}</span>' if len(word[0]) < 30 else word[0]

    html = CODE.sub(lambda code: f"<code>{HYPHENATED.sub(whole, code[1])}</code>", html)
    return PATH.sub(lambda path: path[0].replace(".", "<wbr>."), html)
