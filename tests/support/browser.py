"""A real browser with a file as its microphone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ernie.audio.wave import to_pcm16

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")


def program() -> str:
    """The browser of this machine; a test is skipped where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("there is no Chromium here; Debian's package chromium has one")
    return found


@contextmanager
def browsing(microphone: Path | None = None, *, granted: bool = True, **context: Any) -> Iterator[Any]:
    """A page of the browser; `microphone` is a WAV file, which it hears again and again."""
    playwright = pytest.importorskip("playwright.sync_api")
    arguments = [
        "--no-sandbox",
        "--autoplay-policy=no-user-gesture-required",
        *(["--use-fake-device-for-media-stream", f"--use-file-for-fake-audio-capture={microphone}"] * bool(microphone)),
        *(["--use-fake-ui-for-media-stream"] * granted),
    ]
    # The new headless mode: the old one has no microphone.
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=program(), headless=False, args=["--headless=new", *arguments]
        )
        try:
            # To wait for something, playwright evaluates code, which the page's policy forbids.
            page = browser.new_context(**{"accept_downloads": True, "bypass_csp": True} | context).new_page()
            problems: list[str] = []
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
            page.problems = problems
            yield page
        finally:
            browser.close()


def microphone_file(folder: Path, samples: np.ndarray, rate: int, silence: float = 3.0) -> Path:
    """Write a sound that ends with silence, as a file for `browsing`."""
    import wave

    file = folder / "microphone.wav"
    with wave.open(str(file), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(to_pcm16(np.concatenate([samples, np.zeros(round(silence * rate), np.float32)])))
    return file
