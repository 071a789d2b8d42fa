"""readme_command.py HEADING: print the first ``sh`` block of README.md under ``## HEADING``.

CI runs what it prints, so the command that a reader copies is the command that is tested.
"""

import re
import sys
from pathlib import Path


def block_under(heading: str, text: str) -> str:
    """The block's lines, without the fences; LookupError if the heading or a block under it is missing."""
    section = re.search(rf"^## {re.escape(heading)}\s*$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if section is None:
        raise LookupError(f"README.md has no heading '## {heading}'")
    block = re.search(r"^```sh\n(.*?)^```\s*$", section[1], re.MULTILINE | re.DOTALL)
    if block is None:
        raise LookupError(f"README.md has no sh block under '## {heading}'")
    return block[1].strip()


if __name__ == "__main__":
    try:
        print(block_under(sys.argv[1], Path("README.md").read_text()))
    except (LookupError, OSError) as error:
        sys.exit(str(error))
