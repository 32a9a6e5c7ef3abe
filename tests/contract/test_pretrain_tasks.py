"""The contract of pretraining tasks.  Runs over every registered task; a new one is tested without further code."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import pickle
import random
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, get_origin, get_type_hints

import numpy as np
import pytest
from support.helpers import articles, document, document_from

from ernie.config import build, from_dict, to_dict
from ernie.data.batch import Packed, pack
from ernie.data.document import IGNORE, Document, Mark, Sample
from ernie.metrics import METRICS
from pretrain.config import SHORTEST_MAX_LEN
from tasks import pretraining  # noqa: F401 - registers the tasks
from tasks.base import ClassifierTask, PretrainTask, pretrain_tasks

TOKENIZER, DOCUMENTS = articles()
LENGTHS = (SHORTEST_MAX_LEN, 16, 40, 128)
UNKNOWN = document_from(TOKENIZER, ["xyzzy plugh qux ."] * 6)
DEGENERATE = {
    "empty": document([], vocab_size=TOKENIZER.vocab_size),
    "one token": document([1], vocab_size=TOKENIZER.vocab_size),
    "one sentence": document([12], vocab_size=TOKENIZER.vocab_size),
    "two sentences": document([3, 4], vocab_size=TOKENIZER.vocab_size),
    "title only": document([4], marks=[Mark.TITLE], vocab_size=TOKENIZER.vocab_size),
    "headings only": document([4, 3, 2], marks=[Mark.TITLE, Mark.HEADING, Mark.HEADING], vocab_size=40),
    "heading at the end": document([5, 6, 2], marks=[0, 0, Mark.HEADING], vocab_size=40),
    "sentences of one token": document([1] * 50, vocab_size=TOKENIZER.vocab_size),
    "a sentence of 10,000 tokens": document([10_000], vocab_size=TOKENIZER.vocab_size),
    "a title of 10,000 tokens": document([10_000, 5, 5, 5], marks=[Mark.TITLE], vocab_size=TOKENIZER.vocab_size),
    "unknown words": UNKNOWN,
}

every_task = pytest.mark.parametrize("name", list(pretrain_tasks))
every_length = pytest.mark.parametrize("max_len", LENGTHS)


def samples(task: PretrainTask, documents: Sequence[Document], seed: int = 0) -> list[Sample]:
    """All samples of these documents, with windows that wrap around at the end as in a stream."""
    items = task.items(documents, held_out=False)
    all_samples: list[Sample] = []
    for i in range(len(items)):
        window = [items[(i + k) % len(items)] for k in range(task.window)]
        all_samples += task.samples(window, TOKENIZER, np.random.default_rng((seed, i)))
    return all_samples


def check(task: PretrainTask, sample: Sample) -> None:
    """Assert what holds for any sample of any task."""
    assert 2 < len(sample) <= task.length
    assert sample.ids[0] == TOKENIZER.cls_id
    assert sample.ids[-1] == TOKENIZER.sep_id
    assert sample.ids.min() >= 0
    assert sample.ids.max() < TOKENIZER.vocab_size
    assert sample.segments.shape == sample.ids.shape
    assert (np.diff(sample.segments) >= 0).all()
    assert set(sample.segments.tolist()) <= {0, 1}
    assert sample.labels
    classes = task.class_count() if isinstance(task, ClassifierTask) else TOKENIZER.vocab_size
    for label in sample.labels.values():
        if isinstance(label, np.ndarray):
            assert label.shape == sample.ids.shape
            assert label[0] == label[-1] == IGNORE
            assert (label != IGNORE).any(), "a sample from which nothing can be learned"
        values = np.atleast_1d(label)
        values = values[values != IGNORE]
        assert ((values >= 0) & (values < classes)).all()


def plain(sample: Sample) -> list[Any]:
    return [
        sample.ids.tolist(),
        sample.segments.tolist(),
        {k: np.asarray(v).tolist() for k, v in sample.labels.items()},
    ]


# ------------------------------------------------------------------------------------------------- samples


@every_task
@every_length
def test_samples_are_well_formed(name: str, max_len: int) -> None:
    task = pretrain_tasks[name](max_len=max_len)
    for sample in samples(task, DOCUMENTS):
        check(task, sample)


@every_task
def test_articles_give_samples(name: str) -> None:
    assert len(samples(pretrain_tasks[name](), DOCUMENTS)) >= len(DOCUMENTS)


@every_task
@every_length
@pytest.mark.parametrize("kind", DEGENERATE)
def test_degenerate_documents_give_well_formed_samples_or_none(name: str, max_len: int, kind: str) -> None:
    task = pretrain_tasks[name](max_len=max_len)
    odd = DEGENERATE[kind]
    for documents in ([odd, DOCUMENTS[0]], [odd, odd]):
        for sample in samples(task, documents):
            check(task, sample)


@every_task
def test_every_class_occurs(name: str) -> None:
    task = pretrain_tasks[name]()
    if isinstance(task, ClassifierTask):
        labels = [
            np.atleast_1d(sample.labels["label"]) for seed in range(8) for sample in samples(task, DOCUMENTS, seed)
        ]
        classes = set(np.concatenate(labels).tolist()) - {IGNORE}
        assert classes == set(range(task.class_count()))


@every_task
def test_samples_depend_only_on_the_items_and_the_generator(name: str) -> None:
    task = pretrain_tasks[name]()
    before = (random.getstate(), np.random.get_state()[1].tolist())  # type: ignore[index]
    first = [plain(sample) for sample in samples(task, DOCUMENTS)]
    assert [plain(sample) for sample in samples(task, DOCUMENTS)] == first
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # type: ignore[index]


@every_task
def test_a_task_that_uses_random_numbers_gives_different_samples_per_seed(name: str) -> None:
    task = pretrain_tasks[name]()
    rng = np.random.default_rng(0)
    window = DOCUMENTS[: task.window]
    state = rng.bit_generator.state
    list(task.samples(window, TOKENIZER, rng))
    draws = rng.bit_generator.state != state
    variants = {str([plain(sample) for sample in samples(task, DOCUMENTS, seed)]) for seed in range(5)}
    assert len(variants) == (5 if draws else 1)


@every_task
def test_documents_are_not_modified(name: str) -> None:
    def content() -> list[Any]:
        return [[field.tolist() for field in (d.ids, d.flags, d.ends, d.marks)] for d in DOCUMENTS]

    before = content()
    for sample in samples(pretrain_tasks[name](), DOCUMENTS):
        sample.ids[:] = 0
        for label in sample.labels.values():
            if isinstance(label, np.ndarray):
                label[:] = 0
    assert content() == before


# ------------------------------------------------------------------------------------- the class itself


def own_fields(cls: type) -> list[str]:
    hints = get_type_hints(cls)
    return [name for name in inspect.get_annotations(cls) if get_origin(hints[name]) is not ClassVar]


@every_task
def test_every_field_is_documented_where_it_is_defined(name: str) -> None:
    for cls in pretrain_tasks[name].__mro__:
        for field in own_fields(cls) if dataclasses.is_dataclass(cls) else []:
            assert f"`{field}`" in (cls.__doc__ or ""), f"{cls.__name__}.{field}"


@every_task
def test_the_class_docstring_begins_with_a_summary(name: str) -> None:
    first = (inspect.getdoc(pretrain_tasks[name]) or "").splitlines()[0]
    assert first.endswith((".", "?"))
    assert len(first) > 20


@every_task
def test_metrics_exist(name: str) -> None:
    metrics = pretrain_tasks[name].metrics
    assert metrics
    assert set(metrics) <= set(METRICS)


@every_task
def test_a_task_can_be_pickled(name: str) -> None:
    task = pretrain_tasks[name](max_len=40)
    assert pickle.loads(pickle.dumps(task)) == task


@every_task
def test_a_task_survives_a_round_trip_through_its_configuration(name: str) -> None:
    task = pretrain_tasks[name](max_len=40)
    serialized = from_dict({"task": to_dict(task)})
    assert build(Holder, serialized).task == task


@dataclasses.dataclass(frozen=True)
class Holder:
    task: PretrainTask


@every_task
def test_making_samples_needs_no_paddle(name: str) -> None:
    """Paddle, and modules that need it, are imported only inside `head` and `loss`, or under TYPE_CHECKING."""
    tree = ast.parse(inspect.getsource(inspect.getmodule(pretrain_tasks[name])))  # type: ignore[arg-type]
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            assert "paddle" not in ast.unparse(node)
            assert "ernie.model" not in ast.unparse(node)


# ----------------------------------------------------------------------------------------- head and loss


@pytest.fixture(scope="module")
def batches() -> dict[str, Packed]:
    return {name: pack(samples(pretrain_tasks[name](max_len=40), DOCUMENTS)[:60]) for name in pretrain_tasks}


@pytest.fixture(scope="module")
def model() -> Iterator[Any]:
    import paddle

    from ernie.model.config import EncoderConfig
    from ernie.model.ernie import ErnieModel
    from pretrain.model import MultiTaskModel

    paddle.seed(0)
    shape = EncoderConfig(TOKENIZER.vocab_size, 32, 1, 2, 64, dropout=0.0, attention_dropout=0.0, max_positions=40)
    ernie = ErnieModel(shape)
    ernie.tokenizer = TOKENIZER  # as build_model does
    yield MultiTaskModel(ernie, {name: pretrain_tasks[name](max_len=40) for name in pretrain_tasks})


@every_task
def test_the_loss_of_an_untrained_model_is_that_of_random_guessing(
    name: str, model: Any, batches: dict[str, Packed]
) -> None:
    import paddle

    task, batch = pretrain_tasks[name](), batches[name]
    loss = model.loss(name, batch)
    classes = task.class_count() if isinstance(task, ClassifierTask) else TOKENIZER.vocab_size
    assert loss.count == batch.targets == len(loss.labels)
    with paddle.no_grad():
        logits = model.loss(name, batch).logits
    assert logits.shape == [batch.targets, classes]
    assert float(loss.total) / loss.count == pytest.approx(math.log(classes), abs=0.15)


@every_task
def test_the_loss_from_selected_tokens_equals_that_from_all_tokens(
    name: str, model: Any, batches: dict[str, Packed]
) -> None:
    import paddle

    batch = batches[name]
    with paddle.no_grad():
        from_all_tokens = float(model.loss(name, batch, of_all=True).total)
        found = float(model.loss(name, batch).total)
    assert found == pytest.approx(from_all_tokens, rel=1e-5)


@every_task
def test_the_loss_has_gradients_for_the_whole_head_and_the_encoder(
    name: str, model: Any, batches: dict[str, Packed]
) -> None:
    model.clear_gradients()
    model.loss(name, batches[name]).total.backward()
    with_gradient = {key for key, p in model.named_parameters() if p.grad is not None and float(p.grad.abs().sum()) > 0}
    own = {f"heads.{name}.{key}" for key, _ in model.heads[name].named_parameters()}
    assert own
    assert own <= with_gradient
    assert not {key for key in with_gradient if key.startswith("heads.")} - own
    assert {
        "ernie.embedding.token.weight",
        "ernie.embedding.task.weight",
        "ernie.encoder.layers.0.v.weight",
    } <= with_gradient
    model.clear_gradients()
