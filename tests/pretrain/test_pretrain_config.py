"""The configuration of a pretraining run: an entry for every scheduled task, and errors with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.cli import main
from ernie.config import ConfigError, dump
from ernie.errors import UserError
from pretrain.config import PretrainConfig, load
from tasks.base import pretrain_tasks
from tasks.pretraining.knowledge_masking import KnowledgeMasking
from tasks.pretraining.sentence_reordering import SentenceReordering

PLAIN = "corpus: c\nschedule: {stages: [{capitalization: 1}]}\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_scheduled_task_has_an_entry_in_order_of_arrival(tmp_path: Path) -> None:
    text = """
        corpus: c
        schedule: {stages: [{phrases: 2}, {phrases: 1, capitalization: 3}]}
        tasks:
          words: {task: knowledge_masking, units: [word]}
          phrases: {task: knowledge_masking, units: [word, phrase], head_of: words}
        data: {max_len: 64}
    """
    config = load(write(tmp_path, text))
    assert list(config.tasks) == [
        "phrases",
        "words",
        "capitalization",
    ]  # the owner of a head comes after the task that trains it
    assert config.tasks["phrases"] == KnowledgeMasking(units=("word", "phrase"), head_of="words", max_len=64)
    assert {task.length for task in config.tasks.values()} == {64}


def test_tasks_may_stand_in_a_file_of_another_folder(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "mine").mkdir()
    text = "tasks: {words: {task: knowledge_masking, units: [word]}, capitalization: {max_len: 40}}\n"
    (tmp_path / "shared" / "base.yaml").write_text(text, encoding="utf-8")
    text = "include: ../shared/base.yaml\ncorpus: c\nschedule: {steps_per_task: 1, tasks: [words, capitalization]}\n"
    config = load(write(tmp_path / "mine", text))
    assert isinstance(config.tasks["words"], KnowledgeMasking) and config.tasks["words"].units == ("word",)
    assert config.tasks["capitalization"].length == 40


def test_a_task_that_is_misspelled_in_a_file_of_another_folder_is_reported_without_its_name(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "base.yaml").write_text("tasks:\n  secret: {task: hidden}\n", encoding="utf-8")
    path = write(tmp_path / "mine", "include: ../base.yaml\n" + PLAIN)
    message = r"base\.yaml:2: tasks\.\.\.\.: names nothing known; it is not shown"
    with pytest.raises(ConfigError, match=message) as caught:
        load(path)
    assert "secret" not in str(caught.value) and "hidden" not in str(caught.value)


def test_a_task_keeps_its_own_max_len(tmp_path: Path) -> None:
    text = "corpus: c\nschedule: {steps_per_task: 1, tasks: [sentence_reordering]}\n"
    text += "tasks: {sentence_reordering: {max_len: 40, segments: 4}}"
    assert load(write(tmp_path, text)).tasks == {"sentence_reordering": SentenceReordering(segments=4, max_len=40)}


@settings(max_examples=30)
@given(
    st.lists(st.sampled_from(list(pretrain_tasks)), min_size=1, unique=True),
    st.sampled_from(["runs/a", "2024", "1e5", "~"]),
    st.integers(0, 2**32 - 1),
)
def test_a_dumped_configuration_loads_as_the_same_run(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], output: str, seed: int
) -> None:
    folder = tmp_path_factory.getbasetemp()
    first = load(
        write(folder, f"corpus: c\nschedule: {{steps_per_task: 9, tasks: [{', '.join(names)}]}}"),
        [f"output='{output}'", f"seed={seed}"],
    )
    assert load(write(folder, dump(first))) == first


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("model: {layers: 0}", "model: layers: expected at least 1, found 0"),
        ("model: {heads: 7}", "model: hidden_size 512 is not divisible by heads 7"),
        ("data: {max_len: 7}", "data: max_len: expected at least 8, found 7"),
        (
            "data: {max_len: 512, micro_batch_tokens: 256}",
            "data: micro_batch_tokens: 256 cannot hold one sample of max_len 512",
        ),
        ("data: {workers: -1}", "data: workers: expected at least 0, found -1"),
        ("data: {data_shards: 0}", "data: data_shards: expected at least 1, found 0"),
        ("data: {data_shards: 2}", "data.data_shards: the 1 train.micro_batches of a step are no multiple of 2"),
        (
            "data: {data_shards: 4}\ntrain: {micro_batches: 6}",
            "data.data_shards: the 6 train.micro_batches of a step are no multiple of 4",
        ),
        ("train: {micro_batches: 0}", "train: micro_batches: expected at least 1, found 0"),
        ("train: {max_bad_steps: 0}", "train: max_bad_steps: expected at least 1, found 0"),
        ("train: {clip: -1}", "train: clip: expected at least 0, found -1"),
        ("save: {every: 0}", "save: every: expected at least 1, found 0"),
        ("save: {keep_last: 0}", "save: keep_last: expected at least 1, found 0"),
        ("probe: {batches: 0}", "probe: batches: expected at least 1, found 0"),
        ("tasks: {capitalization: {max_len: 2}}", "tasks.capitalization.max_len: expected at least 8 tokens"),
        (
            "tasks: {capitalization: {max_len: 9000}}",
            "tasks.capitalization.max_len: 9000 tokens do not fit into data.micro_batch_tokens 8192",
        ),
        (
            "tasks: {capitalization: {head_of: capitalisation}}",
            "tasks.capitalization.head_of: no task 'capitalisation'. Did you mean 'capitalization'?",
        ),
        (
            "tasks: {capitalization: {head_of: capitalization}}",
            "tasks.capitalization.head_of: 'capitalization' has no head of its own",
        ),
        (
            "tasks: {capitalization: {head_of: token_document}, token_document: }",
            "tasks.capitalization.head_of: 'token_document' is the task token_document, this one capitalization",
        ),
        (
            "tasks: {replaced_token_detection: , b: {task: replaced_token_detection, head_of: "
            "replaced_token_detection, generator_width: 0.5}}",
            "tasks.b.generator_width: is 0.5, and the head of 'replaced_token_detection', which it shares, is made "
            "with 0.25; give both the same",
        ),
        ("tasks: {capitalization: {task: [a]}}", "tasks.capitalization: no pretraining task is called '['a'"),
        ("tasks: {capitalization: {task: 5}}", "tasks.capitalization: no pretraining task is called '5'."),
        ("tasks: {capitalization: {clases: 5}}", "tasks.capitalization.clases: unknown key."),
        (
            "tasks: {capitalization: {}, ir_relevance: {queries: q.tsv}}",
            "tasks.ir_relevance: queries: belongs to judgements",
        ),
        ("train: {moments: each}", "train.moments: expected one of shared, each_task, found 'each'"),
        ("train: {lr: {decay: noam, floor: 0.1}}", "train.lr: floor: has no effect with `decay: noam`"),
        ("plugins: my_lab", "plugins: expected a list, found 'my_lab'"),
        ("plugins: 5", "plugins: expected a list, found 5"),
    ],
)
def test_an_error_is_reported_with_its_line(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, PLAIN + more))
    (mistake,) = caught.value.mistakes
    assert mistake.startswith(f"{tmp_path}/run.yaml:3: {message}")


def test_a_task_misspelled_in_the_schedule_is_reported_with_its_line(tmp_path: Path) -> None:
    text = "corpus: c\nschedule:\n  stages:\n  - {knowledge_masking: 3}\n  - {capitalisation: 3}\n"
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, text))
    assert caught.value.mistakes == [
        f"{tmp_path}/run.yaml:5: tasks.capitalisation: no pretraining task is called 'capitalisation'. "
        "Did you mean 'capitalization'? For one of your own, list its module under `plugins`."
    ]


def test_moments_per_task_require_steps_of_one_task(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.moments: each_task needs steps of one task each"):
        load(write(tmp_path, PLAIN), ["schedule.draw=mix", "train.moments=each_task"])
    with pytest.raises(UserError, match=r"schedule\.draw: mix divides a step's micro-batches .*micro_batches is 1"):
        load(write(tmp_path, PLAIN), ["schedule.draw=mix"])


@pytest.mark.parametrize("name", ["en/words", "training"])
def test_names_of_tasks_that_cannot_name_weights_are_rejected(tmp_path: Path, name: str) -> None:
    text = PLAIN + f"tasks:\n  '{name}': {{task: knowledge_masking}}\n"
    with pytest.raises(ConfigError, match=f"tasks.{name}: expected another name than 'training', without '/'"):
        load(write(tmp_path, text), [f"schedule.stages=[{{'{name}': 3}}]"])


def test_data_shards_require_steps_of_one_task(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.data_shards: several need steps of one task each"):
        load(write(tmp_path, PLAIN), ["schedule.draw=mix", "data.data_shards=2", "train.micro_batches=2"])


def test_a_method_for_explicit_stages_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="schedule: method: joint is a rule for steps_per_task"):
        load(write(tmp_path, PLAIN), ["schedule.method=joint"])


def test_a_missing_plugin_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="plugins: the module 'no_such_lab' cannot be imported"):
        load(write(tmp_path, PLAIN + "plugins: [no_such_lab]"))


def test_the_output_folder_may_have_a_number_as_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, PLAIN)
    assert main(["pretrain", "run.yaml", "--output", "2024"]) == 2
    assert capsys.readouterr().err.startswith("ernie: error: c: ")  # only the corpus is missing


def test_defaults_are_defined_in_the_schema_only(tmp_path: Path) -> None:
    config = load(write(tmp_path, PLAIN))
    written_out = PretrainConfig(corpus=Path("c"), schedule=config.schedule, tasks=dict(config.tasks))
    assert config == written_out
