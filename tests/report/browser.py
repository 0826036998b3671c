"""A real browser without a window, started once and driven over its debugging pipe: what a page becomes in it,
what it complains about, and what axe-core, a checker of accessibility, finds.

axe-core is a package of npm's that no test downloads: `make test` puts it beside the virtual environment where npm
is there, and the tests that need it are skipped elsewhere.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, TypeVar

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
BASH = shutil.which("bash")
AXE = Path(__file__).parents[2] / ".venv" / "node_modules" / "axe-core" / "axe.min.js"

Test = TypeVar("Test")

_no_browser = pytest.mark.skipif(CHROMIUM is None or BASH is None, reason="Chromium is not installed")
_no_axe = pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed (make test gets it by npm)")


def needs_browser(test: Test) -> Test:
    """Mark a test that opens a page in Chromium."""
    return pytest.mark.browser(_no_browser(test))


def needs_axe(test: Test) -> Test:
    """Mark a test that checks accessibility by axe-core."""
    return needs_browser(_no_axe(test))


_FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"),
]
_PATIENCE = 120  # seconds


class Browser:
    """A browser and one tab in it."""

    def __enter__(self) -> "Browser":
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # The browser reads commands from its file 3 and writes answers to its file 4; bash puts the pipes there.
        command = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out} 2>/dev/null'
        program = [str(CHROMIUM), *_FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(
            [str(BASH), "-c", command, "bash", *program],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer, self._last, self._session, self.events = b"", 0, "", list[dict[str, Any]]()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Log"):
            self.call(f"{part}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._session = ""
        try:
            self.call("Browser.close")
            self._process.wait(30)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._in)
            os.close(self._out)
            self._profile.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """What the browser answers; what it tells meanwhile is kept."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        while True:
            found = self._read()
            if found.get("id") == self._last:
                assert "error" not in found, found["error"]
                result: dict[str, Any] = found["result"]
                return result
            self.events.append(found)

    def _read(self) -> dict[str, Any]:
        end = time.monotonic() + _PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(end - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            piece = os.read(self._in, 1 << 20)
            assert piece, "the browser has ended"
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found

    def open(self, page: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a page from disk, and wait until it is there."""
        self.events.clear()
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def run(self, script: str) -> Any:
        """The value of an expression, or of the promise that it gives."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def type(self, field: str, text: str) -> None:
        """Put the cursor into a field, as a person does, and write."""
        self.run(f"document.getElementById({json.dumps(field)}).focus(); document.activeElement.select?.()")
        self.call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Press a key: a letter, or one that has a name."""
        named = {"Tab": (9, ""), "Enter": (13, "\r"), "ArrowRight": (39, "")}
        code, text = named.get(key, (ord(key[0]), key))
        keys = {"key": key, "windowsVirtualKeyCode": code, **({"code": key} if key in named else {})}
        self.call("Input.dispatchKeyEvent", type="keyDown", **keys, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **keys)

    @property
    def complaints(self) -> list[str]:
        """What went wrong since the page was opened: errors of its scripts, and all that the console was told."""
        self.run("0")  # what comes before the answer has been read, too
        bad = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self.events if event.get("method") in bad]

    def pdf(self, path: Path) -> Path:
        """Print the page."""
        found = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=False)
        path.write_bytes(base64.b64decode(found["data"]))
        return path

    def picture(self, path: Path, *, whole: bool = True) -> Path:
        """A picture of the page, or of what is seen of it without scrolling."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))
        return path

    def too_wide(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.run("document.documentElement.scrollWidth - innerWidth"))

    def faults(self) -> list[str]:
        """What axe-core calls serious or critical."""
        self.run(AXE.read_text(encoding="utf-8") + "; 0")
        found = self.run("axe.run(document, { resultTypes: ['violations'] }).then((it) => it.violations)")
        return [
            f"{each['id']}: {each['help']}: " + "; ".join(node["html"][:200] for node in each["nodes"][:3])
            for each in found
            if each["impact"] in ("serious", "critical")
        ]
