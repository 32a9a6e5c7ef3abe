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
def browser(microphone: Path) -> Iterator[Any]:
    """A browser that hears a WAV file as its microphone, again and again."""
    playwright = pytest.importorskip("playwright.sync_api")
    arguments = [
        "--headless=new",  # the old headless mode has no microphone
        "--no-sandbox",
        "--autoplay-policy=no-user-gesture-required",
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-audio-capture={microphone}",
    ]
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=program(), headless=False, args=arguments)
        try:
            yield found
        finally:
            found.close()


@contextmanager
def opened(browser: Any, address: str, *, granted: bool = True, **context: Any) -> Iterator[Any]:
    """A tab at an address; `granted` lets its page use the microphone."""
    # To wait for something, playwright evaluates code, which the page's policy forbids.
    own = browser.new_context(**{"accept_downloads": True, "bypass_csp": True} | context)
    try:
        if granted:
            own.grant_permissions(["microphone"])
        page = own.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
        page.problems = problems
        page.goto(address)
        yield page
    finally:
        own.close()


def microphone_file(folder: Path, samples: np.ndarray, rate: int, silence: float = 3.0) -> Path:
    """Write a sound that ends with silence, as a file for `browser`."""
    import wave

    file = folder / "microphone.wav"
    with wave.open(str(file), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(to_pcm16(np.concatenate([samples, np.zeros(round(silence * rate), np.float32)])))
    return file
