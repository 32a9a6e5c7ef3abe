"""Low-rank adaptation (`train.adapt`): what is learned, what stays, and what a run keeps of it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import paddle
import pytest
from safetensors.numpy import load_file
from support.toys import TOKENIZER, TOYS, packed_for, tiny_encoder

from ernie import ErnieModel
from ernie.audio.recurrent_config import RecurrentConfig
from ernie.cli import main
from ernie.data.labeled.read import Split
from ernie.errors import UserError
from ernie.model.adapted import base_fingerprint
from ernie.model.weights import arrays
from ernie.parallel.layout import ParallelConfig
from ernie.train.adam_config import AdamConfig
from ernie.train.adapter import Adapter, LowRankUpdate
from ernie.train.adapter_config import TARGETS, AdapterConfig
from ernie.train.adversarial_config import AdversarialConfig
from ernie.train.lr_schedule import LRScheduleConfig
from ernie.train.trainer import Trainer
from finetune.config import FinetuneConfig, TrainConfig
from finetune.prepare import prepare
from finetune.train.loop import finetune
from finetune.train.model import TrainingModel
from finetune.train.training import layer_factors
from inference.task_model import TaskModel

ALL = AdapterConfig(rank=3, alpha=6, targets=tuple(TARGETS))


def adapted(kind: str, config: AdapterConfig) -> TrainingModel:
    model = TrainingModel(tiny_encoder(), TOYS[kind].task)
    model.adapter = Adapter(model.ernie, config, seed=1)
    return model


def test_an_update_is_added_to_the_weight_and_no_gradient_of_that_is_made() -> None:
    rng = np.random.default_rng(0)
    weight = paddle.create_parameter([7, 5], "float64")
    weight.set_value(rng.normal(size=(7, 5)))
    weight.stop_gradient = True
    pretrained = weight.numpy()
    update = LowRankUpdate(weight, rank=3, scale=1.5, generator=rng)
    update.b.set_value(rng.normal(size=(3, 5)))
    update.merge()
    np.testing.assert_allclose(weight.numpy(), pretrained + 1.5 * update.a.numpy() @ update.b.numpy(), rtol=1e-12)
    assert weight.stop_gradient


@pytest.mark.parametrize("kind", ["classify", "tag", "translate", "transcribe"])
def test_only_factors_pooler_and_head_are_trained_and_the_saved_model_is_an_ordinary_one(
    kind: str, tmp_path: Path
) -> None:
    toy = TOYS[kind]
    model = adapted(kind, ALL)
    adapter, before = model.adapter, arrays(model.ernie)
    assert adapter is not None
    trainer = Trainer(model, AdamConfig(), clip=1.0, max_bad_steps=1, seed=0, adapter=adapter)
    rows = toy.rows(12)
    samples = [sample for row in rows for sample in toy.task.training_example(row, TOKENIZER).samples]
    packed = packed_for(toy.task, samples)
    for step in range(2):  # the second has gradients for all factors
        trainer.step(step, [("task", packed)], lambda _, batch: model.loss(batch), 1e-2)
    learned = {name.partition("/")[0] for name in trainer.state().optimizer}
    factors = {name for name in learned if name.startswith("adapter.")}
    assert factors == {f"adapter.{name}" for name, _ in adapter.named_parameters()}
    assert all(name.startswith(("head.", "ernie.pooler.")) for name in learned - factors)
    for name, values in arrays(model.ernie).items():
        update = adapter.updates.get(name.removesuffix(".weight"))
        if update is not None:
            product = 2 * update.a.numpy().astype(np.float64) @ update.b.numpy()
            assert np.abs(product).max() > 1e-4
            np.testing.assert_allclose(values, before[name] + product, rtol=1e-5, atol=1e-6)
        elif not name.startswith("pooler."):
            np.testing.assert_array_equal(values, before[name], err_msg=name)
    model.eval()
    model.save(tmp_path)
    loaded = TaskModel.load(tmp_path, precision="fp32")
    assert list(loaded.predict(rows)) == list(model.predict(rows))
    assert loaded.state_dict().keys() == TaskModel(tiny_encoder(), toy.task).state_dict().keys()


def test_an_untrained_adapter_changes_nothing() -> None:
    model = adapted("classify", ALL)
    before = arrays(model.ernie)
    assert model.adapter is not None
    model.adapter.merge()
    for name, values in arrays(model.ernie).items():
        np.testing.assert_array_equal(values, before[name])


def test_the_fingerprint_of_a_base_is_that_of_its_weights_as_they_are_now() -> None:
    ernie = tiny_encoder()
    before = base_fingerprint(ernie)
    assert before == base_fingerprint(ernie) == base_fingerprint(tiny_encoder())
    weight = ernie.encoder.layers[0].weights().q
    optimizer = paddle.optimizer.AdamW(parameters=[weight])
    found = [before]
    for _ in range(2):
        weight.sum().backward()
        optimizer.step()
        found.append(base_fingerprint(ernie))
    weight.set_value(weight + 1.0)
    assert len({*found, base_fingerprint(ernie)}) == 4


def test_averages_are_of_the_factors_and_the_kept_weights_follow_from_them() -> None:
    task = TOYS["classify"].task
    train, dev = (prepare(task, Split(name, TOYS["classify"].rows(40)), TOKENIZER) for name in ("train", "dev"))
    settings = TrainConfig(epochs=2, batch=8, lr=LRScheduleConfig(peak=1e-2), adapt=replace(ALL, rank=2), ema=0.8)
    start = arrays(tiny_encoder())
    model, _ = finetune(tiny_encoder(), task, train, dev, settings)
    assert model.adapter is not None
    for name, update in model.adapter.updates.items():
        product = 3 * update.a.numpy() @ update.b.numpy()
        assert np.abs(product).max() > 1e-3
        np.testing.assert_allclose(update.weight.numpy() - start[f"{name}.weight"], product, atol=1e-5)


def test_the_factors_of_a_layer_learn_at_the_rate_of_the_layer() -> None:
    factors = layer_factors(adapted("classify", ALL), 0.5)
    rates = {name: factor for name, factor in factors.items() if name.startswith("adapter.")}
    assert set(rates.values()) == {factors["ernie.encoder.layers.0.q.weight"]} == {0.5}


def test_few_weights_are_trained_and_check_says_how_many(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "task.yaml", "--set", "train.adapt={rank: 2, targets: [query]}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shape = ErnieModel.from_pretrained("encoder")
    D = shape.config.hidden_size
    total = sum(each.size for each in shape.parameters()) + 2 * (D + 1)
    trained = 2 * 2 * D + D * (D + 1) + 2 * (D + 1)  # factors, pooler, head
    assert f"ok: {trained:,} of {total:,} weights are trained ({trained / total:.2%})" in lines


def test_a_run_keeps_the_adapter_from_which_the_encoder_follows(work: Path) -> None:
    settings = ["--set", "train={epochs: 1, lr: {peak: 1e-2}, adapt: {rank: 2, targets: [value, outer]}}"]
    assert main(["finetune", "task.yaml", "--output", "run", "--quiet", *settings]) == 0
    folder = work / "run" / "model" / "adapter"
    described = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    assert described["base_model_name_or_path"] == "encoder"
    assert described["target_modules"] == ["encoder.layer.0.attention.self.value", "encoder.layer.0.output.dense"]
    kept = {
        name.removeprefix("base_model.model."): array
        for name, array in load_file(folder / "adapter_model.safetensors").items()
    }
    wanted, merged = (arrays(ErnieModel.from_pretrained(place)) for place in ("encoder", "run/model"))
    for ours, theirs in zip(("v", "outer"), described["target_modules"], strict=True):
        first, second = (kept.pop(f"{theirs}.lora_{part}.weight") for part in "AB")
        assert len(first) == second.shape[1] == 2
        change = (second @ first).T * (described["lora_alpha"] / described["r"])
        assert np.abs(change).max() > 1e-4
        wanted[f"encoder.layers.0.{ours}.weight"] += change
    wanted["pooler.dense.weight"] = kept.pop("pooler.dense.weight").T
    wanted["pooler.dense.bias"] = kept.pop("pooler.dense.bias")
    assert not kept
    for name, values in wanted.items():
        np.testing.assert_allclose(merged[name], values, atol=1e-6, err_msg=name)

    _loads_beside_its_base(work)


def _loads_beside_its_base(work: Path) -> None:
    rows = TOYS["classify"].rows(5)
    merged = TaskModel.load("run", precision="fp32")
    wanted = list(merged.predict(rows))
    slim = work / "slim"
    shutil.copytree(work / "run" / "model", slim)
    for name in ("model.safetensors", "config.json", "sha256.json"):
        (slim / name).unlink()
    shared = ErnieModel.from_pretrained("encoder")
    before = arrays(shared)
    for base in ("encoder", shared):
        model = TaskModel.load(slim, precision="fp32", base=base)
        for found, expected in zip(model.predict(rows), wanted, strict=True):
            assert found["label"] == expected["label"]
            assert found["probability"] == pytest.approx(expected["probability"], abs=2e-6)
    assert all((values == before[name]).all() for name, values in arrays(shared).items())
    with pytest.raises(UserError, match=r"slim.adapter: was learned on another encoder, which its run calls 'encoder'"):
        TaskModel.load(slim, base="run")
    shutil.rmtree(slim / "adapter")
    with pytest.raises(UserError, match=r"slim: has no adapter/, which runs with train.adapt have"):
        TaskModel.load(slim, base="encoder")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rank": 0}, "rank: expected at least 1, found 0; without `adapt` all weights are trained"),
        ({"alpha": 0}, "alpha: expected more than 0, found 0"),
        ({"targets": ()}, "targets: expected at least one of query, key"),
        ({"targets": ("querry",)}, "targets: there is no matrix 'querry'. Did you mean 'query'?"),
        ({"targets": ("key", "key")}, "targets: a matrix is listed twice"),
    ],
)
def test_an_adapter_that_cannot_be_is_an_error(given: dict[str, object], message: str) -> None:
    with pytest.raises(UserError) as caught:
        AdapterConfig(**given)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)


def test_a_rank_above_the_width_of_the_encoder_is_an_error() -> None:
    with pytest.raises(UserError, match=r"train\.adapt\.rank: expected at most 32, .* are 32 x 32, found 33"):
        adapted("classify", AdapterConfig(rank=33))


def test_settings_that_exclude_an_adapter_are_refused() -> None:
    with pytest.raises(UserError, match=r"^adapt: keeps all of the encoder .*; leave freeze out"):
        TrainConfig(adapt=ALL, freeze="embeddings")
    with pytest.raises(UserError, match="adversarial: moves the embeddings of words, which adapt keeps"):
        TrainConfig(adapt=ALL, adversarial=AdversarialConfig(epsilon=1.0))
    train = TrainConfig(adapt=ALL)
    for layout in (ParallelConfig(tensor=2), ParallelConfig(pipeline=2), ParallelConfig(sharding=2)):
        with pytest.raises(UserError, match=r"train\.adapt: .* parallel\.[a-z]+ spreads them over processes"):
            FinetuneConfig(TOYS["classify"].task, train=train, parallel=layout)
    recurrent = replace(TOYS["transcribe"].task, recurrent=RecurrentConfig(layers=1, units=8))
    with pytest.raises(UserError, match=r"train\.adapt: changes the encoder's layers, which task\.recurrent replaces"):
        FinetuneConfig(recurrent, train=train)
    flow = replace(TOYS["synthesize"].task, vocoder="flow", teacher=Path("teacher"))
    with pytest.raises(UserError, match=r"train\.adapt: synthesize leaves the encoder as it is with these settings"):
        FinetuneConfig(flow, train=train)
