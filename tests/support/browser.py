"""A real browser with a file as its microphone."""

from __future__ import annotations

import os
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
        "--hide-scrollbars",
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


def look_at(page: Any, view: str, folder: Path) -> None:
    """Keep pictures of a view: light and dark, wide and narrow; and have it checked for people with disabilities.

    The pictures are in `folder`, or in the one that the environment's ERNIE_SCREENSHOTS names.
    """
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    pictures = Path(os.environ.get("ERNIE_SCREENSHOTS", folder))
    size = page.viewport_size
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for name, width in {"narrow": 390, "wide": 1280}.items():
            page.set_viewport_size({"width": width, "height": 900})
            page.screenshot(path=pictures / f"{view}-{scheme}-{name}.png", full_page=True)
            assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth"), f"{view} is wider than {width}"
        found = axe.run(page).response["violations"]
        grave = [(own["id"], own["nodes"]) for own in found if own["impact"] in ("serious", "critical")]
        assert not grave, f"{view}, {scheme}"
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(size)


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
