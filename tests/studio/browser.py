"""A headless Chromium, driven over the DevTools protocol through two pipes: no driver and no package is needed."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# Child processes cannot choose the numbers of their files, but Chromium reads commands from 3 and answers on 4.
_LAUNCH = """
import fcntl, os, sys
commands, answers = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])
os.dup2(commands, 3), os.dup2(answers, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""
_PATIENCE = 180  # seconds
_FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--remote-debugging-pipe", "--hide-scrollbars", "--disable-dev-shm-usage",
]  # fmt: skip


def find_chromium() -> str | None:
    """The browser's command, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


class Browser:
    """One page in one browser.

    Attributes:
        errors: what the page complained about on its console, and exceptions that nobody caught.
        requests: every address that was asked for.
    """

    def __init__(self, profile: Path):
        command_end, self._commands = os.pipe()
        self._answers, answer_end = os.pipe()
        arguments = [sys.executable, "-c", _LAUNCH, str(command_end), str(answer_end), find_chromium(), *_FLAGS]
        self._process = subprocess.Popen(
            [*arguments, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(command_end, answer_end), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(command_end), os.close(answer_end)
        self._buffer, self._number, self._session = b"", 0, None
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def call(self, method: str, **parameters) -> dict[str, Any]:
        """Sends a command and waits for its answer; events on the way are noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session and not method.startswith(("Target", "Browser")):
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def run(self, script: str) -> Any:
        """The value of an expression (or a promise of one) in the page."""
        done = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"].get("exception", {}).get("description", str(done)))
        return done["result"].get("value")

    def open(self, address: str) -> None:
        """Goes to an address and waits until the studio is there."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=address)
        self.wait("window.studio && document.readyState === 'complete'")
        self.settle()

    def wait(self, condition: str, seconds: float = 60.0) -> None:
        """Until an expression is true in the page."""
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > end:
                raise TimeoutError(f"the page did not come to {condition}")
            time.sleep(0.05)

    def settle(self) -> None:
        """Until two more frames are drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def press(self, key: str, times: int = 1) -> None:
        """A key on the keyboard, as a person presses it."""
        codes = {"ArrowRight": 39, "ArrowLeft": 37, "Tab": 9, "Enter": 13, "End": 35, "Home": 36, " ": 32}
        text = {"text": "\r"} if key == "Enter" else {}
        for _ in range(times):
            for kind in ("keyDown", "keyUp"):
                self.call(
                    "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key], **text
                )
        self.settle()

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """The window, and what the system says of light and dark."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """A PNG of the page."""
        self.settle()
        done = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(done["data"]))

    def close(self) -> None:
        """Ends the browser."""
        try:
            self.call("Browser.close")
        except (RuntimeError, OSError, EOFError):
            self._process.terminate()
        self._process.wait(20)
        os.close(self._commands), os.close(self._answers)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._answers], [], [], _PATIENCE)[0]:
                raise TimeoutError(f"Chromium did not answer for {_PATIENCE} seconds")
            piece = os.read(self._answers, 1 << 20)
            if not piece:
                raise EOFError("Chromium ended")
            self._buffer += piece
        message, self._buffer = self._buffer.split(b"\0", 1)
        event = json.loads(message)
        given = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                details = given["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description", details["text"]))
            case "Runtime.consoleAPICalled" if given["type"] in ("error", "warning", "assert"):
                self.errors.append(" ".join(str(part.get("value", part.get("description"))) for part in given["args"]))
            case "Log.entryAdded" if given["entry"]["level"] in ("error", "warning"):
                self.errors.append(given["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(given["request"]["url"])
        return event
