"""Lines of invisible characters are translated like empty ones, whatever the vocabulary makes of them."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from support.toys import COLORS, GERMAN, TOYS, tiny_encoder

from ernie.data.labeled.read import Split
from ernie.data.labeled.row import Row
from ernie.data.read_lines import Line
from ernie.errors import UserError
from ernie.model.ernie import ErnieModel
from ernie.text.train import train_sentencepiece
from finetune.prepare import prepare
from inference.commands.translate_lines import by_line, by_word
from inference.task_model import TaskModel
from inference.translator import TextTranslator

INVISIBLE = ["\u200b", "\ufeff", "\xad", "\xa0", "\u2060", "\ufe0f", " \xad\u200d ", "\xad \xad"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TaskModel:
    """An untrained model, which writes something for any source that it reads."""
    texts = [" ".join([*COLORS, *GERMAN.values()])] * 20
    tokenizer = train_sentencepiece(texts, vocab_size=22, lowercase=False, folder=tmp_path_factory.mktemp("pieces"))
    ernie = ErnieModel(replace(tiny_encoder().config, vocab_size=tokenizer.vocab_size))
    ernie.tokenizer = tokenizer
    return TaskModel(ernie, TOYS["translate"].task)


@pytest.mark.parametrize("invisible", INVISIBLE)
def test_an_invisible_line_becomes_an_empty_line(model: TaskModel, invisible: str) -> None:
    translator = TextTranslator(model)
    ((text, progress),) = translator.translate([invisible])
    assert (text, progress.read[:-1]) == ("", ())
    found = []
    for lines in (f"blue\n{invisible}\n\nred\n", "blue\n\n\nred\n"):
        for by_words in (True, False):
            out = io.StringIO()
            if by_words:
                by_word(translator, io.StringIO(lines), out)
            else:
                by_line(translator, (Line(n, line) for n, line in enumerate(lines.splitlines(), 1)), out)
            found.append(out.getvalue())
    assert found == [found[0]] * 4
    assert found[0].count("\n") == 4


@pytest.mark.parametrize("invisible", INVISIBLE)
def test_invisible_sources_and_targets_count_as_empty(model: TaskModel, invisible: str) -> None:
    task, tokenizer = model.task, model.tokenizer
    rows = [Row({"source": invisible, "target": "rot"}), Row({"source": "red", "target": "rot"})]
    prepared = prepare(task, Split("train", rows), tokenizer)
    assert [example.empty for example in prepared.examples] == [True, False]
    with pytest.raises(UserError, match="column 'target': the translation is empty"):
        prepare(task, Split("train", [rows[1], Row({"source": "red", "target": invisible})]), tokenizer)
