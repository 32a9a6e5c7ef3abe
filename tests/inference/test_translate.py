"""Translation of text that arrives word by word and line by line."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import paddle
import pytest
from support.toys import GERMAN, TOKENIZER, TOYS, tiny_encoder
from support.trained import trained

from ernie.data.batch import pack
from ernie.data.read_lines import Line, decoded
from ernie.decode.chain import Chain
from ernie.decode.stream import Stream, load_state, save_state
from ernie.decode.wait_k import WaitK
from ernie.errors import Remark, UserError
from ernie.model.translation import TranslationHead
from inference.commands.translate_lines import by_line, by_word
from inference.task_model import TaskModel
from inference.translator import TextTranslator, TextTranslatorState

LINES = "blue red green blue\n\nred red blue green red\ngreen blue blue red\n"


@pytest.fixture
def translator() -> TextTranslator:
    return TextTranslator(trained("translate").model)


def numbered(lines: Iterable[str]) -> list[Line]:
    return [Line(number, line) for number, line in enumerate(lines, 1)]


def run_interpreter(interpret, translator: TextTranslator, text: str) -> tuple[str, str]:
    out, latency = io.StringIO(), io.StringIO()
    interpret(translator, io.StringIO(text) if interpret is by_word else numbered(text.splitlines()), out, latency)
    return out.getvalue(), latency.getvalue()


@pytest.mark.parametrize("interpret", [by_word, by_line])
def test_a_line_becomes_a_line_and_an_empty_one_stays_empty(interpret, translator: TextTranslator) -> None:
    found, _ = run_interpreter(interpret, translator, LINES)
    expected = "\n".join(" ".join(GERMAN[word] for word in line.split()) for line in LINES.split("\n"))
    assert found == expected


def test_by_word_and_by_line_split_input_into_the_same_words_and_lines(translator: TextTranslator) -> None:
    for text in ("blue\rred green\r\nred\n", "blue\xa0red\u2003green\n", "blue\x85 red \x0cgreen\n", "blue\u2028red\n"):
        found = [run_interpreter(by_word, translator, text)[0], io.StringIO()]
        by_line(translator, numbered(line.removesuffix("\r") for line in text.split("\n")[:-1]), found[1])
        assert found[0] == found[1].getvalue(), repr(text)


def test_a_last_line_without_a_line_break_is_translated_too(translator: TextTranslator) -> None:
    for interpret in (by_word, by_line):
        assert run_interpreter(interpret, translator, "blue red red green")[0] == "blau rot rot gruen\n"


@pytest.mark.parametrize("beam", [2, 4])
def test_a_narrow_beam_does_not_shorten_translations(beam: int) -> None:
    """A confident model of whole words gives the same translation with any beam."""
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(list(GERMAN), rng.integers(2, 6))) for _ in range(40)]
    translations = [text for text, _ in TextTranslator(trained("translate").model, WaitK(None), beam).translate(lines)]
    assert translations == [" ".join(GERMAN[word] for word in line.split()) for line in lines]


def test_words_are_written_before_the_line_ends(translator: TextTranslator) -> None:
    stream = Stream(translator)
    early = [stream.push(word) for word in "blue red green blue".split()]
    assert "".join(early).split()[:2] == ["blau", "rot"]
    assert ("".join(early) + stream.finish()).split() == "blau rot gruen blau".split()


def test_a_stream_can_continue_from_a_kept_state(translator: TextTranslator) -> None:
    stream = Stream(translator)
    stream.push("blue red")
    kept = stream.state
    first = stream.push("green") + stream.finish()
    stream.state = kept
    assert stream.push("green") + stream.finish() == first


def test_a_stream_can_continue_from_a_file(translator: TextTranslator, tmp_path: Path) -> None:
    stream = Stream(translator)
    early = stream.push("blue red green")
    save_state(stream.state, tmp_path / "kept.npz")
    late = stream.push("blue") + stream.finish()
    other = Stream(TextTranslator(trained("translate").model))
    other.state = load_state(TextTranslator(trained("translate").model), tmp_path / "kept.npz")
    assert (early + late).split() == ["blau", "rot", "gruen", "blau"]
    assert other.push("blue") + other.finish() == late


def test_streams_without_input_can_be_saved(translator: TextTranslator, tmp_path: Path) -> None:
    save_state(translator.begin(2), tmp_path / "kept.npz")
    kept = load_state(TextTranslatorState, tmp_path / "kept.npz")
    assert translator.finish(translator.push(kept, ["blue", "red"])[0])[0].committed == ("blau", "rot")


@pytest.mark.parametrize("given", [["blue"], "blue", ["blue", "red", "red"]])
def test_push_requires_one_piece_of_text_per_stream(translator: TextTranslator, given: list[str] | str) -> None:
    with pytest.raises(UserError, match="expected a list of 2 pieces, one for each stream, found"):
        translator.push(translator.begin(2), given)


@pytest.mark.parametrize("piece", [None, 3, ["red"], b"red"])
def test_a_piece_that_is_not_text_is_an_error(translator: TextTranslator, piece: object) -> None:
    with pytest.raises(UserError, match=r"expected a piece (of text )?for each stream, found"):
        Stream(translator).push(piece)  # type: ignore[arg-type]


def test_input_that_is_not_a_list_of_texts_is_an_error(translator: TextTranslator) -> None:
    with pytest.raises(UserError, match="expected several texts, such as a list, found 'blue'"):
        translator.translate("blue")
    with pytest.raises(UserError, match=r"expected a text, found \['blue'\]"):
        translator.translate([["blue"]])  # type: ignore[list-item]


def test_a_file_without_a_state_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("no state\n")
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(UserError, match=r"other\.npz: holds no state of the kind TextTranslatorState"):
        load_state(TextTranslatorState, tmp_path / "other.npz")
    with pytest.raises(UserError, match=r"missing\.npz: there is no such file$"):
        load_state(TextTranslatorState, tmp_path / "missing.npz")
    with pytest.raises(UserError, match=r"text\.npz: is no file that save_state wrote, or was damaged since$"):
        load_state(TextTranslatorState, tmp_path / "text.npz")
    with pytest.raises(UserError, match=r"expected a decoder, such as TextTranslator\.load\(RUN\), found 'runs/it'"):
        load_state("runs/it", tmp_path / "other.npz")


def test_a_state_is_not_saved_to_a_folder_that_is_not_there(translator: TextTranslator, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no folder .*/nowhere$"):
        save_state(translator.begin(), tmp_path / "nowhere" / "kept.npz")


def test_a_state_file_with_a_missing_array_is_refused(translator: TextTranslator, tmp_path: Path) -> None:
    save_state(translator.push(translator.begin(2), ["blue red", "red"])[0], tmp_path / "kept.npz")
    with np.load(tmp_path / "kept.npz") as file:
        whole = {name: file[name] for name in file.files}
    names = [name for name in whole if name != "state.names"]
    assert {"state.version", "state.fields", "tokens/target_cache/cache/keys.0"} <= set(names)
    for missing in names:
        np.savez(tmp_path / "part.npz", **{name: value for name, value in whole.items() if name != missing})
        with pytest.raises(
            UserError, match=rf"part\.npz: holds no state of the kind TextTranslatorState \(it lacks {missing}\)"
        ):
            load_state(TextTranslatorState, tmp_path / "part.npz")


def test_the_state_of_another_model_is_refused(translator: TextTranslator, tmp_path: Path) -> None:
    """A model of the same shape, whose cache would fit but mean something else."""
    model = TaskModel(tiny_encoder(), TOYS["translate"].task)
    save_state(TextTranslator(model).begin(), tmp_path / "kept.npz")
    other = load_state(TextTranslatorState, tmp_path / "kept.npz")
    for resume in (lambda: translator.push(other, ["blue"]), lambda: translator.finish(other)):
        with pytest.raises(UserError, match="this state is of another model: only the model that began a stream"):
            resume()
    with pytest.raises(UserError, match="this state is of another model"):
        translator.begin().concat([other])


def test_latency_grows_with_the_distance(translator: TextTranslator) -> None:
    reports = [run_interpreter(by_line, TextTranslator(trained("translate").model, WaitK(k)), LINES)[1] for k in (1, 3)]
    near, far = (float(re.search(r"mean of 3 lines: AL ([\d.]+)", text)[1]) for text in reports)
    assert near < far
    for measure in ("LAAL", "DAL", "AP", "CW"):
        assert measure in reports[0]


@pytest.mark.parametrize("k", [1, 2, 20])
def test_the_end_of_a_line_does_not_count_as_a_word(k: int) -> None:
    """By line, tokens are counted; by word, a word is written once the next one has begun."""
    for interpret, lag in ((by_line, min(k, 4)), (by_word, min(k + 1, 4))):
        report = run_interpreter(
            interpret, TextTranslator(trained("translate").model, WaitK(k)), "blue red green blue\n"
        )[1]
        assert report.startswith(f"line 1: AL {lag:.2f}, "), report


def test_computation_aware_latency_is_reported_separately(translator: TextTranslator) -> None:
    lines = run_interpreter(by_word, translator, LINES)[1].splitlines()
    seconds = [float(re.search(r"; computation-aware AL (\d\.\d{3}) s", line)[1]) for line in lines]
    assert len(lines) == 4
    assert all(0 < second < 60 for second in seconds)
    assert seconds[-1] == pytest.approx(sum(seconds[:-1]) / 3, abs=0.002)


@pytest.mark.parametrize("interpret", [by_word, by_line])
def test_a_line_that_is_too_long_does_not_lose_the_lines_after_it(interpret, translator: TextTranslator) -> None:
    out, lines = io.StringIO(), ["blue red", "green " * 40, "red", "blue " * 40, "green"]
    source = io.StringIO("".join(f"{line}\n" for line in lines)) if interpret is by_word else numbered(lines)
    message = "2 lines could not be translated to the end; the first: line 2: a source has more than 14 tokens"
    with (
        pytest.warns(Remark, match="line [24]: a source has more than 14") as notes,
        pytest.raises(UserError) as caught,
    ):
        interpret(translator, source, out)
    assert str(caught.value).startswith(message)
    assert len(notes) == 2
    first, long, *others = out.getvalue().splitlines()
    assert (first, others[0], others[2]) == ("blau rot", "rot", "gruen")
    for text, word in ((long, "gruen"), (others[1], "blau")):  # word by word, as far as it goes
        assert re.fullmatch(rf"({word} ?)+" if interpret is by_word else "", text)


def test_a_model_trained_on_short_samples_refuses_longer_sources() -> None:
    model = trained("translate").model
    short = TaskModel(model.ernie, replace(model.task, max_len=8))
    short.head.set_state_dict(model.head.state_dict())
    assert TextTranslator(short).translate(["blue red green blue"])[0][0] == "blau rot gruen blau"
    with pytest.raises(UserError, match="a source has more than 6 tokens, the most that this model has learned from"):
        TextTranslator(short).translate(["blue " * 7])


def test_the_unknown_token_is_never_written(translator: TextTranslator, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = TranslationHead.scores

    def scores_that_favor_unk(head: TranslationHead, x_ND: paddle.Tensor) -> np.ndarray:
        found_NV = scores(head, x_ND)
        found_NV[:, TOKENIZER.unk_id] = 1e3
        return found_NV

    monkeypatch.setattr(TranslationHead, "scores", scores_that_favor_unk)
    assert run_interpreter(by_line, translator, LINES)[0].split("\n")[0] == "blau rot gruen blau"


@pytest.mark.parametrize("beam", [0, -1])
def test_a_beam_below_one_is_refused(beam: int) -> None:
    with pytest.raises(UserError, match=f"beam: expected at least 1, found {beam}"):
        TextTranslator(trained("translate").model, None, beam)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"wait_k": None, "catch_up": 0.2}, "catch_up: is for translations that stay behind the source"),
        ({"wait_k": None, "encoder": "prefixes"}, "encoder: is for translations that stay behind the source"),
        ({"wait_k": None, "confidence": 0.5}, "confidence: is for translations that stay behind the source"),
        ({"wait_k": None, "max_wait_k": 5}, "max_wait_k: is for translations that stay behind the source"),
        ({"wait_k": 2, "max_wait_k": 5}, "max_wait_k: is where no token waits any longer; set confidence or agreement"),
        ({"wait_k": None, "agreement": 1}, "agreement: is for translations that stay behind the source"),
        ({"wait_k": 5, "confidence": 0.5, "max_wait_k": 5}, "max_wait_k: expected more than wait_k, 5; found 5"),
        ({"wait_k": ()}, "wait_k: the list is empty"),
        ({"layers": 0}, "layers: expected at least 1, found 0"),
    ],
)
def test_settings_without_an_effect_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        replace(TOYS["translate"].task, **changes)


def test_a_model_of_another_kind_is_refused() -> None:
    model = trained("translate").model
    other = TaskModel(model.ernie, TOYS["classify"].task)
    with pytest.raises(UserError, match="of the kind classify"):
        TextTranslator(other)


def test_a_full_sentence_model_writes_nothing_before_the_end() -> None:
    model = trained("translate").model
    whole = TaskModel(model.ernie, replace(model.task, wait_k=None))
    stream = Stream(TextTranslator(whole))
    assert stream.push("blue red green") == ""


@pytest.mark.parametrize("distance", [0, -1, (3, 0)])
def test_a_distance_below_one_is_refused(distance) -> None:
    with pytest.raises(UserError, match="expected at least 1"):
        replace(TOYS["translate"].task, wait_k=distance)


def test_a_hundred_distances_have_the_same_loss_as_few() -> None:
    toy, model = TOYS["translate"], trained("translate").model

    def loss(wait_k: int | tuple[int, ...]) -> float:
        task = replace(toy.task, wait_k=wait_k)
        rows = [task.training_example(row, TOKENIZER).samples[0] for row in toy.rows(8)]
        batch = pack(rows, np.array([(0, 0, n) for n in range(8)]))
        with paddle.no_grad():
            return task.head_loss(model.head, task.encode(model.ernie, model.head, batch, 0), batch).total.item()

    assert loss((2,) * 100) == loss(2) != loss(1)


def test_a_line_that_is_not_utf_8_does_not_lose_the_lines_after_it(translator: TextTranslator) -> None:
    data = b"blue red\nblue red green blue \xff red\nred blue"
    for interpret in (by_word, by_line):
        source = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", errors="surrogateescape")
        out = io.StringIO()
        with (
            pytest.warns(Remark, match="^line 2: .* UTF-8"),
            pytest.raises(UserError, match=r"^1 line could not .* 2: "),
        ):
            interpret(translator, source if interpret is by_word else decoded(io.BytesIO(data)), out)
        lines = out.getvalue().split("\n")
        assert (lines[0], lines[2:]) == ("blau rot", ["rot blau", ""])
        assert lines[1] == ("blau rot gruen blau" if interpret is by_word else "")


def test_a_whole_sentence_model_translates_an_unusable_line_up_to_there() -> None:
    source = io.TextIOWrapper(io.BytesIO(b"blue red \xff\nred"), encoding="utf-8", errors="surrogateescape")
    out = io.StringIO()
    with pytest.warns(Remark, match="^line 1: "), pytest.raises(UserError, match=r"^1 line could not be translated to"):
        by_word(TextTranslator(trained("translate").model, WaitK(None)), source, out)
    assert out.getvalue().split("\n") == ["blau rot", "rot", ""]
    too_long, out = "blue red " * 40, io.StringIO()
    with pytest.warns(Remark, match="^line 1: "), pytest.raises(UserError, match=r"^1 line could not be translated to"):
        by_word(TextTranslator(trained("translate").model, WaitK(None)), io.StringIO(too_long), out)
    assert out.getvalue().startswith("blau rot ")


def test_any_iterable_of_texts_is_translated(translator: TextTranslator) -> None:
    assert [text for text, _ in translator.translate(word for word in ("blue", "red"))] == ["blau", "rot"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beam": 2.5}, "beam: expected a whole number, found 2.5"),
        ({"beam": 0}, "beam: expected at least 1, found 0"),
        ({"policy": ("2",)}, "wait_k: expected a whole number, found '2'"),
        ({"policy": (True,)}, "wait_k: expected a whole number, found True"),
        ({"policy": (2, "x")}, "catch_up: expected a number, found 'x'"),
        ({"policy": (2, float("nan"))}, "catch_up: expected less than 1, found nan"),
    ],
)
def test_arguments_of_another_type_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}$"):
        policy = {"policy": WaitK(*arguments["policy"])} if "policy" in arguments else arguments
        TextTranslator(trained("translate").model, **policy)


def test_a_model_answers_with_another_wait_or_beam_as_its_translator_does() -> None:
    lines = ["blue red green blue", "green blue"]
    model = copy(trained("translate").model)
    model.change_decoding(wait_k=3, beam=2)
    answers = list(model.predict(lines))
    expected = TextTranslator(trained("translate").model, WaitK(3), 2).translate(lines)
    assert [(answer["translation"], answer["delays"]) for answer in answers] == [
        (text, [*progress.source_delays]) for text, progress in expected
    ]
    assert answers[0]["delays"][0] == 3
    with pytest.raises(UserError, match=r"wait_k: expected a number; with \d+ or more whole sentences are read"):
        model.change_decoding(wait_k=None)
    with pytest.raises(UserError, match=r"task\.beam: expected a whole number, found 'x'"):
        model.change_decoding(beam="x")


def test_a_model_of_whole_sentences_that_is_made_to_wait_encodes_each_prefix_in_both_directions() -> None:
    model = TaskModel(tiny_encoder(), replace(TOYS["translate"].task, wait_k=None))
    expected = TextTranslator(model, WaitK(1)).translate(["blue red green blue"])[0][1]
    model.change_decoding(wait_k=1)
    (answer,) = model.predict(["blue red green blue"])
    assert answer["delays"] == [*expected.source_delays]
    assert answer["translation"] == model.tokenizer.decode(expected.written)


def test_half_a_surrogate_pair_is_an_error(translator: TextTranslator) -> None:
    with pytest.raises(UserError, match="half a surrogate pair"):
        Stream(translator).push("bl\udce4")


def test_characters_that_the_vocabulary_lacks_are_noted_once(translator: TextTranslator) -> None:
    fresh = TextTranslator(trained("translate").model, WaitK(1))
    with pytest.warns(Remark, match="'red ☂ blue' has characters that the vocabulary lacks") as notes:
        fresh.translate(["blue", "red ☂ blue", "☂"])
        fresh.translate(["☂"])
    assert len(notes) == 1
    with pytest.warns(Remark, match="^line 2: 'red ☂' has characters that the vocabulary lacks: here and in later"):
        by_line(TextTranslator(trained("translate").model, WaitK(1)), numbered(["blue", "red ☂"]), io.StringIO())
    with pytest.warns(Remark, match="^row 1: has a text that the vocabulary lacks characters of; later rows"):
        list(trained("translate").model.predict(["blue", "red ☂", "☂"]))
    with pytest.warns(Remark, match="'red ☂' has characters that the vocabulary lacks"):
        Stream(TextTranslator(trained("translate").model, WaitK(1))).push("red ☂")


@pytest.mark.parametrize("streams", [0, -1, 1.5, "2"])
def test_a_number_of_streams_below_one_is_refused(translator: TextTranslator, streams: object) -> None:
    with pytest.raises(UserError, match="streams: expected a number, at least 1, found"):
        translator.begin(streams)  # type: ignore[arg-type]


def test_a_stream_and_a_chain_need_decoders(translator: TextTranslator) -> None:
    with pytest.raises(UserError, match="expected a decoder, such as TextTranslator"):
        Stream("runs/de-en")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="expected a decoder, such as TextTranslator"):
        Chain(translator, TextTranslator)
    with pytest.raises(UserError, match="a chain needs at least one decoder"):
        Chain()
