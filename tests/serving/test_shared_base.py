"""Models with adapters of one base share its weights, and are computed in one batch, with the same bits as alone."""

from __future__ import annotations

import asyncio
import gc
import shutil
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.toys import TOYS, tiny_encoder

from ernie.errors import UserError
from ernie.train.adapter import Adapter
from ernie.train.adapter_config import TARGETS, AdapterConfig
from finetune.train.model import TrainingModel
from inference.operation import Addressed
from inference.predictor import Predict
from inference.task_model import Ensemble, TaskModel
from serving.config import ModelConfig
from serving.engine import Computed
from serving.models import Bases, ServedModel
from serving.reloading import Reloader, load_model
from serving.service import Answers, Asked, Observer, Service

KINDS = ("classify", "tag", "choose", "regress")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a base and, for each kind, a model with an adapter of it."""
    folder = tmp_path_factory.mktemp("models")
    tiny_encoder().save_pretrained(folder / "base")
    rng = np.random.default_rng(0)
    for kind in (*KINDS, "other"):
        model = TrainingModel(tiny_encoder(), TOYS["classify" if kind == "other" else kind].task)
        adapter = Adapter(model.ernie, AdapterConfig(rank=3, targets=tuple(TARGETS)), seed=1)
        for update in adapter.updates.values():
            update.b.set_value(rng.normal(0, 0.1, update.b.shape).astype(np.float32))
        adapter.merge()
        model.eval()
        model.save(folder / kind)
        adapter.write(folder / kind / "adapter", model.ernie.pooler, "base")
    return folder


def served(models: Path, kind: str, bases: Bases) -> ServedModel:
    return load_model(kind, config(models, kind), 1 << 14, bases=bases)


def config(models: Path, kind: str) -> ModelConfig:
    return ModelConfig(str(models / kind), "fp32", base=str(models / "base"))


def test_rows_of_several_models_have_the_same_bits_together_as_alone(models: Path) -> None:
    bases = Bases()
    operations = {kind: served(models, kind, bases).operations["predict"] for kind in KINDS}
    rows = [(kind, row) for number in range(4) for kind in KINDS for row in TOYS[kind].rows(4)[number : number + 1]]
    batch = [Addressed(operations[kind], operations[kind].prepare(dict(row))) for kind, row in rows]
    found = [outcome.get() for outcome in batch[0].operation.compute_together(batch)]
    alone = [each.operation.compute([each.prepared])[0].get() for each in batch]
    assert found == alone
    alone_on_disk = {kind: load_model(kind, ModelConfig(str(models / kind), "fp32"), 1 << 14) for kind in KINDS}
    plain = {kind: model.operations["predict"] for kind, model in alone_on_disk.items()}
    merged = [plain[kind].compute([each.prepared])[0].get() for (kind, _), each in zip(rows, batch, strict=True)]
    for one, other in zip(found, merged, strict=True):
        assert one.keys() == other.keys()
        numbers = [(value, other[key]) for key, value in one.items() if isinstance(value, float)]
        assert all(value == pytest.approx(expected, abs=1e-4) for value, expected in numbers)


def test_an_ensemble_answers_by_all_of_its_models_together_as_alone(models: Path, tmp_path: Path) -> None:
    members = [TaskModel.load(models / kind) for kind in ("classify", "other")]
    Ensemble(members, replace(TOYS["classify"].task, temperature=1.5)).save(tmp_path / "both")
    for number, kind in enumerate(("classify", "other"), 1):
        shutil.copytree(models / kind / "adapter", tmp_path / "both" / f"member-{number}" / "adapter")
    bases = Bases()
    both = load_model(
        "both", ModelConfig(str(tmp_path / "both"), "fp32", base=str(models / "base")), 1 << 14, bases=bases
    )
    ensemble, other = both.operations["predict"], served(models, "tag", bases).operations["predict"]
    assert ensemble.together == other.together
    given = [(ensemble, "classify"), (other, "tag"), (ensemble, "classify")]
    batch = [Addressed(each, each.prepare(dict(TOYS[kind].rows(2)[1]))) for each, kind in given]
    found = [outcome.get() for outcome in ensemble.compute_together(batch)]
    assert found == [each.operation.compute([each.prepared])[0].get() for each in batch]


def test_a_row_that_cannot_be_answered_harms_no_row_of_another_model(models: Path) -> None:
    bases = Bases()
    broken, whole = (served(models, kind, bases) for kind in ("classify", "regress"))
    assert isinstance(broken.operations["predict"], Predict)
    weight = broken.face.model.head.parameters()[0]
    weight.set_value(np.full(weight.shape, np.nan, np.float32))
    kinds = {"classify": broken, "regress": whole}
    batch = [
        Addressed(operation, operation.prepare(dict(TOYS[kind].rows(1)[0])))
        for kind, model in kinds.items()
        for operation in [model.operations["predict"]]
    ]
    bad, good = batch[0].operation.compute_together(batch)
    assert bad.error is not None
    assert good.get() == batch[1].operation.compute([batch[1].prepared])[0].get()


class Batches(Observer):
    """Keeps what each batch was of."""

    def __init__(self) -> None:
        self.works: list[set[str]] = []

    def computed(self, computed: Computed) -> None:
        if computed.batch is not None:
            self.works.append({job.work for job, _ in computed.batch.items})


def test_a_server_computes_requests_for_several_models_in_one_batch(models: Path) -> None:
    asked = Asked(timeout=30)

    async def run() -> tuple[Batches, Service]:
        service, observed = Service(), Batches()
        for kind in ("classify", "regress"):
            service.put(served(models, kind, service.bases))
        service.observers.append(observed)
        service.start(asyncio.get_running_loop())
        try:
            row = dict(TOYS["classify"].rows(1)[0])

            def ask(kind: str) -> Coroutine[Any, Any, Answers]:
                return service.ask(service.models[kind], "predict", [row], None, asked)

            alone = [(await ask(kind)).values() for kind in service.models]
            many = await asyncio.gather(*(ask(kind) for _ in range(20) for kind in service.models))
            assert [answers.values() for answers in many] == alone * 20
            reloader = Reloader(service, {"classify": config(models, "classify")}, 1 << 14)
            await reloader.reload("classify")
            assert [(await ask("classify")).values()] == alone[:1]
        finally:
            service.stop()
        return observed, service

    observed, service = asyncio.run(run())
    assert {"classify/predict", "regress/predict"} in observed.works
    bases = [model.face.model.ernie.base for model in service.models.values()]
    assert bases[0] is bases[1]


def test_the_base_is_freed_with_the_last_model(models: Path) -> None:
    bases = Bases()
    one = served(models, "classify", bases)
    assert len(bases.lanes) == 1
    del one
    gc.collect()
    assert not len(bases.lanes)
    assert not bases.shared


def test_a_base_that_is_another_is_an_error_of_its_model(models: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^models\.classify: .*adapter: was learned on another encoder"):
        load_model("classify", ModelConfig(str(models / "classify"), base=str(models / "tag")), 1 << 14)
    with pytest.raises(UserError, match=r"^models\.gone: .*gone: there is no such folder"):
        load_model("gone", ModelConfig(str(models / "gone"), base=str(models / "base")), 1 << 14)
    with pytest.raises(UserError, match=r"^models\.base: .* holds no fine-tuned model, and only one has a base"):
        load_model("base", ModelConfig(str(models / "base"), base=str(models / "base")), 1 << 14)
