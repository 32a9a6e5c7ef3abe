"""The page of a server in a real browser: what one says, reads and hears there, and what happens when things break."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
import wave
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.browser import browser, look_at, microphone_file, opened
from support.served import notes, predictor, served, service_of_streams
from support.sessions import sound
from support.slow_link import link_to
from support.trained import trained

from inference.recognizer import SpeechRecognizer
from serving.examples import Example
from serving.run_files import LatencyCurve, LatencyPoint
from serving.saved_sessions import SessionFolder
from serving.service import Service
from serving.sessions import SessionLimits

RATE = 8000
COLORS = ("blue", "red", "green")
CARD = """# Films

A **small** model.

## Scores

| split | accuracy |
|---|---|
| dev | 0.91 |

```console
ernie predict runs/films
```
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, str]]:
    chains = {"interpreter": ("listen", "translate", "speak")}
    service = service_of_streams(
        chains,
        films=predictor("classify"),
        names=predictor("tag"),
        reading=predictor("extract"),
        notes=notes(tmp_path_factory.mktemp("notes")),
    )
    service.notice = "These are toys."
    said = microphone_file(tmp_path_factory.mktemp("example"), sound(COLORS), RATE).read_bytes()
    run = tmp_path_factory.mktemp("run")
    (run / "README.md").write_text(CARD, encoding="utf-8")
    service.put(replace(service.models["films"], path=str(run)))
    for name, example in {"listen": Example({"text": "colors"}, said), "films": Example({"text": "Its own."})}.items():
        service.put(replace(service.models[name], examples=[example]))
    with served(service) as address:
        yield service, address


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in which somebody says three words."""
    return microphone_file(tmp_path_factory.mktemp("spoken"), sound(COLORS), RATE)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for pictures of the page."""
    return tmp_path_factory.mktemp("pictures")


@pytest.fixture(scope="module")
def tabs(spoken: Path) -> Iterator[Any]:
    """A browser that hears this file."""
    with browser(spoken) as found:
        yield found


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


def watch(page: Any) -> None:
    """Have the page keep what it shows after each change: the final words in `seen`, its status in `told`."""
    page.evaluate(
        """() => {
          const keep = (kept, selector, now) => new MutationObserver(() => kept.push(now())).observe(
            document.querySelector(selector), {childList: true, subtree: true, characterData: true});
          const all = () => [...document.querySelectorAll('#captions .word')];
          keep(window.seen = [], '#captions', () => all().map((own) => own.firstChild.textContent));
          keep(window.told = [], '#status', () => document.querySelector('#status').textContent);
        }"""
    )


def drain(service: Service) -> None:
    """Have a server give its sessions out, as before its end."""
    assert service._loop is not None
    asyncio.run_coroutine_threadsafe(service.lifecycle.leave(0, 5.0), service._loop).result()


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


def transcribed(file: Path, first: int = 0) -> list[str]:
    """The words that `ernie transcribe` finds in a WAV file, from a sample on."""
    with wave.open(str(file)) as content:
        samples = np.frombuffer(content.readframes(content.getnframes()), "<i2").astype(np.float32) / 32768
    (answer,) = SpeechRecognizer(trained("streaming").model).predict(
        [{"audio": {"array": samples[first:], "sampling_rate": RATE}}]
    )
    return str(answer["transcript"]).split()


def test_what_the_microphone_hears_is_transcribed_as_the_command_does(
    tabs: Any, server: tuple[Service, str], spoken: Path, tmp_path: Path
) -> None:
    service, address = server
    with opened(tabs, address) as page:
        choose(page, "listen")
        page.click("#speak")
        wait_for_status(page, "Listening")
        page.wait_for_function("document.querySelectorAll('#captions .word').length >= 3", timeout=20_000)
        page.click("#stop")
        wait_for_status(page, "Done")
        assert words(page) == transcribed(saved(page, "#save-sent", tmp_path))
        assert not page.problems
        wait_until_free(service)


def test_final_words_never_change(tabs: Any, server: tuple[Service, str]) -> None:
    with opened(tabs, server[1]) as page:
        choose(page, "listen")
        watch(page)
        page.click("#speak")
        page.wait_for_function("document.querySelectorAll('#captions .word').length >= 3", timeout=20_000)
        page.click("#stop")
        wait_for_status(page, "Done")
        shown: list[list[str]] = page.evaluate("seen")
        assert len(shown) > 3
        assert all(after[: len(before)] == before for before, after in pairwise(shown))


def test_a_file_goes_through_the_chain_to_words_under_words_and_a_voice(
    tabs: Any, server: tuple[Service, str], spoken: Path, tmp_path: Path, pictures: Path
) -> None:
    with opened(tabs, server[1]) as page:
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
        # what screen readers read aloud
        assert page.inner_text("#log-heard").split() == words(page)
        assert page.inner_text("#log-translated").split() == translated.split()
        look_at(page, "interpreter", pictures)


def test_the_distance_is_shown_on_the_curve_of_the_run_beside_the_lagging_of_the_lines(tabs: Any) -> None:
    service, points = service_of_streams({}), [(1, 1.2, 70.0), (3, 2.6, 92.0), (5, 4.1, 96.0), (None, 6.0, 97.0)]
    curve = LatencyCurve("bleu", [LatencyPoint(k, k == 3, score, lagging) for k, lagging, score in points])
    service.put(replace(service.models["translate"], curve=curve))
    with served(service) as address, opened(tabs, address) as page:
        choose(page, "translate")
        assert page.locator("#curve circle").count() == 5
        place = page.get_attribute("#curve circle.series-1", "cx")
        page.fill("#wait-k", "4")
        assert page.get_attribute("#curve circle.series-1", "cx") != place
        assert page.locator("#curve .mark").count() == 0
        page.fill("#typing", "red blue green red")
        page.press("#typing", "Enter")
        page.wait_for_selector("#curve line.mark", state="attached")


def test_text_is_typed_and_its_translation_stands_below(tabs: Any, server: tuple[Service, str]) -> None:
    with opened(tabs, server[1]) as page:
        choose(page, "translate")
        page.fill("#typing", "red blue green")
        page.press("#typing", "Enter")
        assert page.is_hidden("#curve")  # its run has measured none
        page.wait_for_function("document.querySelector('#captions .lagging') !== null", timeout=20_000)
        assert words(page) == ["red", "blue", "green"]
        assert not page.problems


def test_the_server_is_free_a_second_after_the_tab_was_closed(
    tabs: Any, server: tuple[Service, str], spoken: Path
) -> None:
    service, address = server
    with opened(tabs, address) as page:
        choose(page, "interpreter")
        page.click("#speak")
        page.wait_for_function("document.querySelectorAll('#captions .word').length > 0", timeout=20_000)
        assert len(service.sessions.live) == 1
        page.close()
        wait_until_free(service)


def test_without_a_microphone_the_page_says_why_and_what_else_to_do(tabs: Any, server: tuple[Service, str]) -> None:
    service, address = server
    with opened(tabs, address) as page:
        choose(page, "listen")
        for error in ("NotAllowedError", "NotFoundError", "NotReadableError"):
            page.evaluate(
                "(error) => { navigator.mediaDevices.getUserMedia = () =>"
                " Promise.reject(new DOMException('as the browser says it', error)) }",
                error,
            )
            page.click("#speak")
            page.wait_for_function("document.querySelector('#status').className === 'problem'")
            assert "open a file instead" in status(page), error
            assert page.is_enabled("#speak")
            wait_until_free(service)


def test_a_refused_microphone_is_told(tabs: Any, server: tuple[Service, str]) -> None:
    with opened(tabs, server[1], granted=False) as page:
        choose(page, "listen")
        page.click("#speak")
        page.wait_for_function("document.querySelector('#status').className === 'problem'", timeout=10_000)
        assert "microphone" in status(page)


def test_at_the_limit_of_sessions_the_page_says_so(tabs: Any) -> None:
    with served(service_of_streams({}, SessionLimits(sessions=0))) as address, opened(tabs, address) as page:
        choose(page, "translate")
        page.fill("#typing", "red")
        page.press("#typing", "Enter")
        page.wait_for_function("document.querySelector('#status').className === 'problem'")
        assert status(page) == "This server has 0 sessions, as many as it takes."


@pytest.mark.parametrize(
    ("keeps", "says"),
    [
        (True, "The session goes on where it was interrupted."),
        (False, "The server had forgotten the session. Another one goes on after the last final word."),
    ],
    ids=["kept", "forgotten"],
)
def test_the_transcript_goes_on_after_the_server_was_started_again(
    tabs: Any, keeps: bool, says: str, tmp_path: Path
) -> None:
    folder = SessionFolder(tmp_path / "sessions") if keeps else None
    service = service_of_streams({}, folder=folder)
    with contextlib.ExitStack() as stack:
        with served(service) as address:
            page = stack.enter_context(opened(tabs, address))
            choose(page, "listen")
            watch(page)
            page.set_input_files("#file", microphone_file(tmp_path, sound(8 * COLORS), RATE, silence=0.1))
            page.wait_for_selector("#captions .word")
            if keeps:
                drain(service)
        wait_for_status(page, "The connection is interrupted.")
        final, subtitles = len(words(page)), saved(page, "#save-subtitles", tmp_path).read_text(encoding="utf-8")
        assert final < len(8 * COLORS) - 3
        with served(service_of_streams({}, folder=folder), port=int(address.rpartition(":")[2])):
            wait_for_status(page, "Done")
            assert says in page.evaluate("told")
            sent = saved(page, "#save-sent", tmp_path)
            (end,) = re.findall(r"--> 00:00:(\S+)", subtitles)
            rest = transcribed(sent)[final:] if keeps else transcribed(sent, round(RATE * float(end)))
            assert words(page) == transcribed(sent)[:final] + rest
            assert all(after[: len(before)] == before for before, after in pairwise(page.evaluate("seen")))


def test_a_slow_network_is_told_and_nothing_is_lost_by_it(
    tabs: Any, server: tuple[Service, str], tmp_path: Path
) -> None:
    with link_to(server[1]) as link, opened(tabs, link.address) as page:
        choose(page, "listen")
        watch(page)
        page.set_input_files("#file", microphone_file(tmp_path, sound(COLORS), RATE, silence=4))
        wait_for_status(page, "Listening")
        link.flows.clear()
        wait_for_status(page, "The network or the server is too slow: what is said arrives ")
        link.flows.set()
        wait_for_status(page, "The network and the server are fast enough again.")
        page.click("#stop")
        wait_for_status(page, "Done")
        assert words(page) == transcribed(saved(page, "#save-sent", tmp_path))


def test_models_of_text_can_be_tried(tabs: Any, server: tuple[Service, str], pictures: Path) -> None:
    with opened(tabs, f"{server[1]}/#/try") as page:
        page.wait_for_function("document.querySelector('#try-model').options.length > 2")
        assert page.text_content("#notice") == "These are toys."
        assert page.evaluate("document.querySelector('#try-model').selectedIndex") == 0
        names = page.evaluate("[...document.querySelector('#try-model').options].map((own) => own.text)")
        page.select_option("#try-model", label="films: Classify")
        page.wait_for_function("document.querySelector('#try-fields textarea').value === 'Its own.'")
        for name in names:
            page.select_option("#try-model", label=name)
            page.click("#try-ask")
            page.wait_for_selector("#try-answer .hint", timeout=10_000)
            assert page.query_selector("#try-answer .problem") is None, name
        assert "curl " in page.text_content("#try-code")
        page.select_option("#try-model", label="notes: Search")
        page.click("#try-ask")
        page.wait_for_selector(".hits li")
        assert page.eval_on_selector_all(".hits li:first-child mark", "all => all.map((own) => own.textContent)") == [
            *("a", "river", "in", "winter")
        ]
        assert re.search(
            r"texts\.jsonl:1 · vectors .* · words .* · both .* · page: river", page.text_content(".hits li .hint")
        )
        look_at(page, "search", pictures)
        assert not page.problems
        look_at(page, "try", pictures)


def test_the_operator_sees_synthetic_sessions_computed_together(
    tabs: Any, server: tuple[Service, str], pictures: Path
) -> None:
    service, address = server
    with opened(tabs, f"{address}/#/server") as page:
        page.select_option("#crowd-stream", "translate")
        page.click("button[data-join='8']")
        page.wait_for_function("document.querySelector('#crowd-status').textContent.startsWith('8 of 8')")
        assert len(service.sessions.live) == 8
        page.wait_for_function("document.querySelectorAll('#plots polyline').length >= 6", timeout=15_000)
        look_at(page, "server", pictures)
        page.click("#crowd-leave")
        page.wait_for_function("document.querySelector('#crowd-status').textContent.startsWith('0 of 0')")
        assert not page.problems


def test_the_gallery_has_every_model(tabs: Any, server: tuple[Service, str], pictures: Path) -> None:
    service, address = server
    with opened(tabs, f"{address}/#/models") as page:
        page.wait_for_selector("#gallery article")
        titles = page.evaluate("[...document.querySelectorAll('#gallery h3')].map((own) => own.textContent)")
        assert sorted(titles) == sorted([*service.models, *service.chains])
        page.click("#gallery article:has(h3:text-is('films')) summary")
        page.wait_for_selector("#gallery table")
        assert not page.problems
        look_at(page, "models", pictures)


@pytest.mark.parametrize("view", ["interpreter", "try", "server", "models"])
def test_the_keyboard_reaches_everything_in_order_and_shows_where_it_is(
    tabs: Any, server: tuple[Service, str], view: str
) -> None:
    with opened(tabs, f"{server[1]}/#/{view}") as page:
        page.wait_for_function("document.querySelector('#stream').options.length > 0")
        page.wait_for_function("document.querySelector('#offered').hidden === false")
        expected = page.evaluate(
            """() => {
              const all = 'a[href], button, select, input, textarea, summary, [tabindex="0"]';
              window.own = [...document.querySelectorAll(all)].filter((one) => !one.disabled && one.checkVisibility());
              return own.length;
            }"""
        )
        reached = []
        for _ in range(expected):
            page.keyboard.press("Tab")
            reached.append(
                page.evaluate(
                    """() => {
                      const at = document.activeElement;
                      const style = getComputedStyle(at.type === 'file' ? at.parentElement : at);
                      return [own.indexOf(at), style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2];
                    }"""
                )
            )
        assert reached == [[n, True] for n in range(expected)]
        page.keyboard.press("Tab")
        assert page.evaluate("own.indexOf(document.activeElement)") in (-1, 0)  # out of the page, or at its begin again


def test_the_link_past_the_navigation_stays_in_its_view(tabs: Any, server: tuple[Service, str]) -> None:
    with opened(tabs, f"{server[1]}/#/try") as page:
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_function("document.activeElement.id === 'main'")
        assert page.is_visible("#try-title")


def test_the_page_does_all_it_does_under_its_own_policy(tabs: Any, server: tuple[Service, str]) -> None:
    with opened(tabs, server[1], bypass_csp=False) as page:
        page.wait_for_selector("#stream option", state="attached")
        page.select_option("#stream", "interpreter")
        page.wait_for_function("document.querySelector('#example').selectedOptions[0]?.text === 'colors'")
        page.click("#use-example")
        page.wait_for_selector("#captions .below", timeout=20_000)
        page.goto(f"{server[1]}/#/server")
        page.click("button[data-join='1']")
        page.wait_for_selector("#plots polyline", state="attached", timeout=15_000)
        assert not page.problems
