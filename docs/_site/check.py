"""Check a built site: every link leads somewhere, and nothing is fetched from another place.

    python docs/_site/check.py site

Links between pages must name a file of the site and, after a #, something that is there. Only a link that a reader
may click leads elsewhere: scripts, styles, fonts and pictures are the site's own, so that it opens from disk.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page links to, what it loads, and what can be linked to in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Sort what a tag refers to."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        if "href" in values:
            (self.links if tag in ("a", "area") else self.loads).append(values["href"])
        if "src" in values:
            self.loads.append(values["src"])


def problems(site: Path) -> list[str]:
    """A line for everything that is wrong."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        for target in page.links + page.loads:
            wrong = _wrong(path, target, target in page.loads, pages)
            if wrong:
                found.append(f"{path.relative_to(site)}: {target[:100]}: {wrong}")
    return found + [
        f"{path.relative_to(site)}: loads from another place"
        for path in sorted(site.rglob("*.css"))
        if re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", path.read_text(encoding="utf-8"))
    ]


def _wrong(path: Path, target: str, loaded: bool, pages: dict[Path, Page]) -> str | None:
    parts = urlsplit(target)
    if parts.scheme == "data" or (parts.scheme in ("http", "https", "mailto") and not loaded):
        return None
    if parts.scheme or parts.netloc:
        return "is loaded from another place"
    file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not file.is_file():
        return "no such file"
    anchor = unquote(parts.fragment)
    if anchor and file in pages and anchor not in pages[file].anchors:
        return "no such place in the page"
    return None


if __name__ == "__main__":
    folder = Path(sys.argv[1]).resolve()
    wrong = problems(folder)
    for line in wrong:
        print(line)
    pages = len(list(folder.rglob("*.html")))
    print(f"{pages} pages, {len(wrong)} dead or foreign links")
    sys.exit(bool(wrong) or not pages)
