"""The teacher of a flow: a finished voice, whose settings and weights the flow's run takes over."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ernie.config import differences, to_dict
from ernie.errors import UserError
from ernie.text.load import load_tokenizer
from ernie.text.pronounce import read_dictionary
from tasks.downstream.base import FinetuneTask
from tasks.downstream.changes import with_values_of
from tasks.downstream.saved import HEAD_FILE, model_of, read_task
from tasks.downstream.synthesis.settings import SynthesizeSettings

if TYPE_CHECKING:
    from ernie.model.ernie import ErnieModel
    from ernie.model.voice import VoiceHead

Task = TypeVar("Task", bound=SynthesizeSettings)

# The fields of an encoder's configuration that matter in training only.
_TRAINING_ONLY = ("dropout", "attention_dropout", "initializer_range")


def read_teacher(task: SynthesizeSettings) -> tuple[SynthesizeSettings, int]:
    """Return the teacher's task, and the id of its task embedding.  Raises UserError for a run of another kind."""
    assert task.teacher is not None
    teacher, task_id = read_task(model_of(task.teacher))
    if not isinstance(teacher, SynthesizeSettings) or teacher.vocoder != "wavenet":
        raise UserError(f"teacher: {task.teacher} is no run of the kind synthesize whose vocoder is wavenet")
    return teacher, task_id


def learns_from(task: SynthesizeSettings) -> dict[str, Path]:
    """See `TrainingFiles.learns_from`: the teacher's head."""
    return {} if task.teacher is None else {"teacher": model_of(task.teacher) / HEAD_FILE}


def check_encoder(task: SynthesizeSettings, ernie: ErnieModel, task_id: int, encoder: str) -> None:
    """Raise UserError if the encoder would give the teacher's voice other vectors than those it was trained on."""
    from ernie.model.config import EncoderConfig
    from ernie.model.inference import tokenizer_of
    from ernie.model.pretrained import CONFIG_FILE, TOKENIZER_FOLDER

    if task.teacher is None:
        return
    folder, (_, teacher_task_id) = model_of(task.teacher), read_teacher(task)
    advice = f"A flow reads as its teacher does: give --model {folder}"
    if load_tokenizer(folder / TOKENIZER_FOLDER).fingerprint != tokenizer_of(ernie).fingerprint:
        raise UserError(f"model: {encoder} has another vocabulary than the teacher, {task.teacher}. {advice}.")
    teacher_config = EncoderConfig.read(folder / CONFIG_FILE)
    for name, value in asdict(teacher_config).items():
        own = getattr(ernie.config, name)
        if name not in _TRAINING_ONLY and own != value:
            raise UserError(f"model: {encoder} has {name} {own}, the teacher, {task.teacher}, has {value}. {advice}.")
    if task_id != teacher_task_id:
        raise UserError(
            f"train.task_id: is {task_id}, and the teacher, {task.teacher}, has learned with {teacher_task_id}; "
            f"give --set train.task_id={teacher_task_id}"
        )


def with_teacher_values(task: Task) -> Task:
    """Return the task with the values that its teacher took from rows.  Raises UserError if their shapes differ."""
    teacher, _ = read_teacher(task)
    voice = replace(teacher.voice, flows=task.voice.flows, flow=task.voice.flow, pulses=task.voice.pulses)
    # A teacher may be older than these keys; what it learned from decides.
    newer = {name: getattr(teacher.features, name) for name in ("normalize_seconds", "remove_dc_offset")}
    features = replace(task.features, **newer)
    shape = to_dict({"features": features, "voice": task.voice})
    teachers = to_dict({"features": teacher.features, "voice": voice})
    for key, (own, its) in differences(shape, teachers, "task").items():
        raise UserError(f"{key}: is {own}, and the teacher, {task.teacher}, has learned with {its}; give it that value")
    if task.max_len > teacher.max_len:
        raise UserError(
            f"max_len: is {task.max_len}, and the teacher, {task.teacher}, has learned texts of {teacher.max_len} "
            "tokens at most; give it that value, or a smaller one"
        )
    derived, whose = ("mean", "deviation", "pace", "loudness", "learned"), f"the teacher, {task.teacher},"
    task = with_values_of(replace(task, features=features), teacher, derived, whose)
    return _with_dictionary_of(task, teacher, whose)


def keeping_head_of(task: Task, before: FinetuneTask, whose: str) -> Task:
    """See `HeadConditions.keeping_head_of`: a flow goes on from a flow only, and both read with one dictionary."""
    assert isinstance(before, SynthesizeSettings)
    if task.vocoder != before.vocoder:
        advice = (
            "go on from the run that taught it"
            if task.teacher is None
            else "leave head: keep out, for a flow begins with its teacher's voice"
        )
        raise UserError(f"task.vocoder: is {task.vocoder}, and {whose} has learned with {before.vocoder}; {advice}")
    return _with_dictionary_of(with_values_of(task, before, task.head_fields, whose), before, whose)


def _with_dictionary_of(task: Task, before: SynthesizeSettings, whose: str) -> Task:
    words = [read_dictionary(file) if file else {} for file in (task.dictionary, before.dictionary)]
    if task.dictionary and words[0] != words[1]:
        raise UserError(
            f"dictionary: {task.dictionary} differs from what {whose} has learned with, "
            f"{before.dictionary or 'which is no dictionary'}; leave the key out, and that one is used"
        )
    return replace(task, dictionary=before.dictionary)


def load_teacher(ernie: ErnieModel, head: VoiceHead, run: Path) -> None:
    """Load the voice of a teacher's run into an encoder and its head, and freeze all but the flow and its pitch."""
    from ernie.model.ernie import ErnieModel
    from ernie.model.weights import arrays, read_arrays, set_weights

    folder = model_of(run)
    set_weights(ernie, arrays(ErnieModel.from_pretrained(folder)), str(folder))
    assert head.flow is not None
    learned = {"flow": head.flow} | ({"pitch": head.pitch} if head.pitch is not None else {})
    own = {f"{part}.{name}": value for part, layer in learned.items() for name, value in arrays(layer).items()}
    set_weights(head, read_arrays(folder / HEAD_FILE) | own, str(folder))
    trainable = {id(parameter) for layer in learned.values() for parameter in layer.parameters()}
    for parameter in (*ernie.parameters(), *head.parameters()):
        parameter.stop_gradient = id(parameter) not in trainable
