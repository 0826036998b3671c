"""A real browser without a window: what a page becomes in it, and what it complains about."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: pages are not tried in it")

_FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--enable-logging=stderr", "--v=0"),
]


def browse(page: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Open a page from disk, and wait until its scripts have nothing left to do."""
    with tempfile.TemporaryDirectory() as profile:
        command = [str(CHROMIUM), *_FLAGS, f"--user-data-dir={profile}", "--virtual-time-budget=20000", *arguments]
        return subprocess.run(
            [*command, page.as_uri()], capture_output=True, text=True, encoding="utf-8", timeout=120, check=True
        )


def complaints(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What the page's scripts wrote to the console."""
    return re.findall(r"CONSOLE.*", done.stderr)


def with_script(page: Path, script: str) -> Path:
    """A copy of a page that does something at its end."""
    copy = page.with_name(f"tried-{page.name}")
    text = page.read_text(encoding="utf-8")
    head, body, tail = text.rpartition("</body>")
    copy.write_text(f"{head}<script>{script}</script>{body}{tail}", encoding="utf-8")
    return copy
