"""The README as the site's first page, and the changelog, with links that lead where they lead on a forge."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
"""Files of the top level, and what they are called on the site."""


def on_files(files: Files, *, config: Any) -> Files:
    for name, page in PAGES.items():
        text = (ROOT / name).read_text()
        text = re.sub(r"\]\(docs/", "](", text)
        for other, place in PAGES.items():
            text = re.sub(rf"\]\({re.escape(other)}", f"]({place}", text)
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    for name, page in PAGES.items():
        markdown = re.sub(rf"\]\(((?:\.\./)*)\.\./{re.escape(name)}", rf"](\1{page}", markdown)
    return markdown
