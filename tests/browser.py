"""A headless Chromium for tests, driven over the WebDriver protocol with nothing but the standard library."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

DRIVER, BROWSER = shutil.which("chromedriver"), shutil.which("chromium") or shutil.which("google-chrome")
KEYS = {"Enter": "\ue007", "Tab": "\ue004", "Right": "\ue014", "Left": "\ue012", "Escape": "\ue00c"}
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_OPTIONS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


class Browser:
    """One window of a browser, closed at the end of a ``with``."""

    def __init__(self, width: int = 1200, height: int = 900) -> None:
        assert DRIVER is not None
        self._driver = subprocess.Popen(
            [DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._path = ""
        try:
            self._begin(width, height)
        except BaseException:
            self._end()
            raise

    def _begin(self, width: int, height: int) -> None:
        assert self._driver.stdout is not None
        port = next(
            found[1]
            for line in self._driver.stdout
            if (found := re.search(r"successfully on port (\d+)", line))
        )
        self._base = f"http://127.0.0.1:{port}"
        options = {"binary": BROWSER, "args": [*_OPTIONS, f"--window-size={width},{height}"]}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        session = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        self._path = f"/session/{session}"

    def _end(self) -> None:
        self._driver.terminate()
        self._driver.communicate(timeout=20)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        address = f"{self._base}{self._path}{path}"
        request = urllib.request.Request(
            address, data=data, method=method, headers={"Content-Type": "application/json"}
        )
        with _DIRECT.open(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def open(self, path: Path) -> None:
        """Open a file afresh, even if it is open already."""
        for address in ("about:blank", path.as_uri()):
            self._ask("POST", "/url", {"url": address})
        # A key that is pressed before the page has the focus is lost.
        self.until("return document.readyState === 'complete' && document.hasFocus()", True)

    def run(self, code: str, *values: Any) -> Any:
        """Run JavaScript in the page and give what it returns."""
        return self._ask("POST", "/execute/sync", {"script": code, "args": list(values)})

    def until(self, code: str, wanted: Any) -> Any:
        """Run JavaScript again and again until it returns what is wanted; give what it returned last."""
        found = None
        for _ in range(100):
            found = self.run(code)
            if found == wanted:
                break
            time.sleep(0.05)
        return found

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, wherever the focus is."""
        actions = [
            {"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")
        ]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def become_a_phone(self, width: int = 375, height: int = 800) -> None:
        """Make the window as small as that of a phone."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True}
        command = {"cmd": "Emulation.setDeviceMetricsOverride", "params": size}
        self._ask("POST", "/goog/cdp/execute", command)

    def complaints(self) -> list[str]:
        """Give what the page has written to the console so far."""
        return [line["message"] for line in self._ask("POST", "/se/log", {"type": "browser"})]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._ask("DELETE", "")
        finally:
            self._end()
