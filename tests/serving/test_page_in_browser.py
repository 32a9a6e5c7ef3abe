"""The page of a server in a real browser: what one says, reads and hears there, and what happens when things break."""

from __future__ import annotations

import time
import wave
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.browser import browsing, microphone_file
from support.served import predictor, served, service_of_streams
from support.sessions import sound
from support.trained import trained

from inference.recognizer import SpeechRecognizer
from serving.examples import Example
from serving.service import Service
from serving.sessions import SessionLimits

RATE = 8000
COLORS = ("blue", "red", "green")


def make_service(limits: SessionLimits | None = None) -> Service:
    chains = {"interpreter": ("listen", "translate", "speak")}
    return service_of_streams(
        chains, limits, films=predictor("classify"), names=predictor("tag"), reading=predictor("extract")
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, str]]:
    service = make_service()
    service.notice = "These are toys."
    said = microphone_file(tmp_path_factory.mktemp("example"), sound(COLORS), RATE).read_bytes()
    for name, example in {"listen": Example({"text": "colors"}, said), "films": Example({"text": "Its own."})}.items():
        service.put(replace(service.models[name], examples=[example]))
    with served(service) as address:
        yield service, address


@pytest.fixture
def spoken(tmp_path: Path) -> Path:
    """A file in which somebody says three words."""
    return microphone_file(tmp_path, sound(COLORS), RATE)


def choose(page: Any, name: str) -> None:
    page.wait_for_function("document.querySelector('#stream').options.length > 0")
    page.select_option("#stream", name)


def words(page: Any) -> list[str]:
    shown: list[str] = page.evaluate(
        "[...document.querySelectorAll('#captions .word')].map((word) => word.firstChild.textContent)"
    )
    return shown


def status(page: Any) -> str:
    return str(page.text_content("#status"))


def wait_for_status(page: Any, beginning: str, seconds: float = 30) -> None:
    page.wait_for_function(
        "(text) => document.querySelector('#status').textContent.startsWith(text)",
        arg=beginning,
        timeout=1000 * seconds,
    )


def wait_until_free(service: Service) -> None:
    """Wait until the server has no session, a second at most."""
    begun = time.monotonic()
    while service.sessions.live:
        assert time.monotonic() - begun < 1
        time.sleep(0.01)


def saved(page: Any, button: str, folder: Path) -> Path:
    with page.expect_download() as waiting:
        page.click(button)
    file = folder / waiting.value.suggested_filename
    waiting.value.save_as(file)
    return file


def transcribed(file: Path) -> list[str]:
    """The words that `ernie transcribe` finds in a WAV file."""
    with wave.open(str(file)) as content:
        samples = np.frombuffer(content.readframes(content.getnframes()), "<i2").astype(np.float32) / 32768
    (answer,) = SpeechRecognizer(trained("streaming").model).predict(
        [{"audio": {"array": samples, "sampling_rate": RATE}}]
    )
    return str(answer["transcript"]).split()


def test_what_the_microphone_hears_is_transcribed_as_the_command_does(
    server: tuple[Service, str], spoken: Path, tmp_path: Path
) -> None:
    service, address = server
    with browsing(spoken) as page:
        page.goto(address)
        choose(page, "listen")
        page.click("#speak")
        wait_for_status(page, "Listening")
        page.wait_for_function("document.querySelectorAll('#captions .word').length >= 3", timeout=20_000)
        page.click("#stop")
        wait_for_status(page, "Done")
        assert words(page) == transcribed(saved(page, "#save-sent", tmp_path))
        assert not page.problems
        wait_until_free(service)


def test_final_words_never_change(server: tuple[Service, str], spoken: Path) -> None:
    with browsing(spoken) as page:
        page.goto(server[1])
        choose(page, "listen")
        page.evaluate(
            """() => {
              window.seen = [];
              const all = () => [...document.querySelectorAll('#captions .word')];
              const now = () => all().map((own) => own.firstChild.textContent);
              new MutationObserver(() => seen.push(now())).observe(
                document.querySelector('#captions'), {childList: true, subtree: true, characterData: true});
            }"""
        )
        page.click("#speak")
        page.wait_for_function("document.querySelectorAll('#captions .word').length >= 3", timeout=20_000)
        page.click("#stop")
        wait_for_status(page, "Done")
        shown: list[list[str]] = page.evaluate("seen")
        assert len(shown) > 3
        for before, after in pairwise(shown):
            assert after[: len(before)] == before


def test_a_file_goes_through_the_chain_to_words_under_words_and_a_voice(
    server: tuple[Service, str], spoken: Path, tmp_path: Path
) -> None:
    with browsing() as page:
        page.goto(server[1])
        choose(page, "interpreter")
        page.set_input_files("#file", spoken)
        wait_for_status(page, "Done")
        assert words(page) == transcribed(spoken)
        below = page.evaluate("[...document.querySelectorAll('#captions .below')].map((own) => own.textContent)")
        translated = " ".join(text for text in below if text)
        assert translated
        page.wait_for_function("document.querySelector('#latency-lag').textContent !== '–'")
        with wave.open(str(saved(page, "#save-voice", tmp_path))) as voice:
            assert voice.getnframes() > 0
        text = saved(page, "#save-text", tmp_path).read_text(encoding="utf-8").splitlines()
        assert text[0].split() == words(page)
        assert not page.problems


def test_text_is_typed_and_its_translation_stands_below(server: tuple[Service, str]) -> None:
    with browsing() as page:
        page.goto(server[1])
        choose(page, "translate")
        page.fill("#typing", "red blue green")
        page.press("#typing", "Enter")
        page.wait_for_function("document.querySelector('#captions .lagging') !== null", timeout=20_000)
        assert words(page) == ["red", "blue", "green"]
        assert not page.problems


def test_the_server_is_free_a_second_after_the_tab_was_closed(server: tuple[Service, str], spoken: Path) -> None:
    service, address = server
    with browsing(spoken) as page:
        page.goto(address)
        choose(page, "interpreter")
        page.click("#speak")
        page.wait_for_function("document.querySelectorAll('#captions .word').length > 0", timeout=20_000)
        assert len(service.sessions.live) == 1
        page.close()
        wait_until_free(service)


@pytest.mark.parametrize("error", ["NotAllowedError", "NotFoundError", "NotReadableError"])
def test_without_a_microphone_the_page_says_why_and_what_else_to_do(server: tuple[Service, str], error: str) -> None:
    service, address = server
    with browsing() as page:
        page.add_init_script(
            "navigator.mediaDevices.getUserMedia = () =>"
            f" Promise.reject(new DOMException('as the browser says it', '{error}'))"
        )
        page.goto(address)
        choose(page, "listen")
        page.click("#speak")
        page.wait_for_function("document.querySelector('#status').className === 'problem'")
        assert "open a file instead" in status(page)
        assert page.is_enabled("#speak")
        wait_until_free(service)


def test_a_refused_microphone_is_told(server: tuple[Service, str]) -> None:
    with browsing(granted=False) as page:
        page.goto(server[1])
        choose(page, "listen")
        page.click("#speak")
        page.wait_for_function("document.querySelector('#status').className === 'problem'", timeout=10_000)
        assert "microphone" in status(page)


def test_at_the_limit_of_sessions_the_page_says_so() -> None:
    service = make_service(SessionLimits(sessions=0))
    with served(service) as address, browsing() as page:
        page.goto(address)
        choose(page, "translate")
        page.fill("#typing", "red")
        page.press("#typing", "Enter")
        page.wait_for_function("document.querySelector('#status').className === 'problem'")
        assert status(page) == "This server has 0 sessions, as many as it takes."


def test_models_of_text_can_be_tried(server: tuple[Service, str]) -> None:
    with browsing() as page:
        page.goto(f"{server[1]}/#/try")
        page.wait_for_function("document.querySelector('#try-model').options.length > 2")
        assert page.text_content("#notice") == "These are toys."
        names = page.evaluate("[...document.querySelector('#try-model').options].map((own) => own.text)")
        page.select_option("#try-model", label="films: Classify")
        page.wait_for_function("document.querySelector('#try-fields textarea').value === 'Its own.'")
        for name in names:
            page.select_option("#try-model", label=name)
            page.click("#try-ask")
            page.wait_for_selector("#try-answer .hint", timeout=10_000)
            assert page.query_selector("#try-answer .problem") is None, name
        assert "curl " in page.text_content("#try-code")
        assert not page.problems


def test_the_operator_sees_synthetic_sessions_computed_together(server: tuple[Service, str]) -> None:
    service, address = server
    with browsing() as page:
        page.goto(f"{address}/#/server")
        page.select_option("#crowd-stream", "translate")
        page.click("button[data-join='8']")
        page.wait_for_function("document.querySelector('#crowd-status').textContent.startsWith('8 of 8')")
        assert len(service.sessions.live) == 8
        page.wait_for_function("document.querySelectorAll('#plots polyline').length >= 6", timeout=15_000)
        page.click("#crowd-leave")
        page.wait_for_function("document.querySelector('#crowd-status').textContent.startsWith('0 of 0')")
        assert not page.problems


def test_the_gallery_has_every_model(server: tuple[Service, str]) -> None:
    service, address = server
    with browsing() as page:
        page.goto(f"{address}/#/models")
        page.wait_for_selector("#gallery article")
        titles = page.evaluate("[...document.querySelectorAll('#gallery h3')].map((own) => own.textContent)")
        assert sorted(titles) == sorted([*service.models, *service.chains])
        assert not page.problems


def test_the_page_does_all_it_does_under_its_own_policy(server: tuple[Service, str]) -> None:
    with browsing(bypass_csp=False) as page:
        page.goto(server[1])
        page.wait_for_selector("#stream option", state="attached")
        page.select_option("#stream", "interpreter")
        page.wait_for_function("document.querySelector('#example').selectedOptions[0]?.text === 'colors'")
        page.click("#use-example")
        page.wait_for_selector("#captions .below", timeout=20_000)
        page.goto(f"{server[1]}/#/server")
        page.click("button[data-join='1']")
        page.wait_for_selector("#plots polyline", state="attached", timeout=15_000)
        assert not page.problems
