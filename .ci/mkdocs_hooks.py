"""The version in the header; the changelog as a page of the site; links to files that aren't on the site.

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
