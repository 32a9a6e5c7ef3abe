"""Running a checkpoint in its own framework, if that is installed, for comparison."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from ernie.model.published.formats import Kind, read_object
from ernie.model.published.probe import EMBEDDINGS, LOGITS, MASKED, POOLER, Probe, States, layer_name


def framework(kind: Kind) -> str | None:
    """Return the name and version of a format's framework; None if it is not installed or the format has none."""
    needed = {"hf": ("transformers", "torch"), "paddlenlp": ("paddlenlp",)}.get(kind, ())
    if not needed or any(importlib.util.find_spec(name) is None for name in needed):
        return None
    return " on ".join(f"{name} {metadata.version(name)}" for name in needed)


def framework_states(folder: Path, kind: Kind, probe: Probe, head: bool, task_head: str = "") -> States:
    """Compute the layers' outputs in the format's own framework; with `head`, also the masked-token logits.

    `task_head` names the class with the head of a fine-tuned model, whose logits are computed too.
    """
    run = _transformers if kind == "hf" else _paddlenlp
    return run(folder, probe, head, task_head)


def _transformers(folder: Path, probe: Probe, head: bool, task_head: str) -> States:
    import torch
    import transformers

    transformers.logging.set_verbosity_error()  # it reports every weight that the loaded class does not use
    transformers.logging.disable_progress_bar()
    batch = {"input_ids": probe.ids, "token_type_ids": probe.segments, "attention_mask": probe.mask}
    if read_object(folder / "config.json").get("use_task_id"):
        batch["task_type_ids"] = probe.tasks
    inputs = {name: torch.tensor(values) for name, values in batch.items()}
    # In float32, as this library computes, even if the file holds half precision.
    options: dict[str, Any] = {"dtype": torch.float32, "local_files_only": True}
    model = transformers.AutoModel.from_pretrained(str(folder), **options).eval()
    with torch.no_grad():
        output = model(**inputs, output_hidden_states=True)
        states = _by_layer([probe.tokens(state.numpy()) for state in output.hidden_states])
        states[POOLER] = output.pooler_output.numpy()
        if task_head:
            classifier = getattr(transformers, task_head).from_pretrained(str(folder), **options).eval()
            states[LOGITS] = _logits(lambda **given: classifier(**given), inputs, probe, task_head)
        if head:
            lm = transformers.AutoModelForMaskedLM.from_pretrained(str(folder), **options).eval()
            states[MASKED] = probe.tokens(lm(**inputs).logits.numpy())
    return states


def _paddlenlp(folder: Path, probe: Probe, head: bool, task_head: str) -> States:
    import paddle
    from paddlenlp import transformers

    settings = read_object(folder / "config.json")
    family = "Bert" if settings.get("model_type") == "bert" else "Ernie"
    # An additive mask, since the meaning of 0 and 1 in PaddleNLP's masks depends on the version.
    mask = paddle.to_tensor((1.0 - probe.mask[:, None, None, :]) * -1e9).astype("float32")
    inputs = {"input_ids": paddle.to_tensor(probe.ids), "token_type_ids": paddle.to_tensor(probe.segments)}
    if settings.get("use_task_id"):
        inputs["task_type_ids"] = paddle.to_tensor(probe.tasks)
    model = getattr(transformers, f"{family}Model").from_pretrained(str(folder))
    model.eval()
    with paddle.no_grad():
        output = model(**inputs, attention_mask=mask, output_hidden_states=True, return_dict=True)
        states = _by_layer([probe.tokens(state.numpy()) for state in output.hidden_states])
        states[POOLER] = output.pooler_output.numpy()
        if task_head:
            classifier = getattr(transformers, task_head).from_pretrained(str(folder))
            classifier.eval()
            call = functools.partial(classifier, return_dict=True)
            states[LOGITS] = _logits(call, {**inputs, "attention_mask": mask}, probe, task_head)
        if head:
            lm = getattr(transformers, f"{family}ForMaskedLM").from_pretrained(str(folder))
            lm.eval()
            # The head alone, since the model around it takes no task ids.
            states[MASKED] = probe.tokens(lm.cls(output.last_hidden_state).numpy())
    return states


def _logits(call: Callable[..., Any], inputs: dict[str, Any], probe: Probe, task_head: str) -> np.ndarray:
    """Return the logits of a fine-tuned model as our heads give them: of each sequence, or of each token."""
    if task_head.endswith("ForMultipleChoice"):  # each sequence is the only choice of its row
        # transformers' ERNIE forgets to flatten the tasks.
        rows = {name: values.unsqueeze(1) for name, values in inputs.items() if name != "task_type_ids"}
        inputs = {**inputs, **rows}
    output = call(**inputs)
    if task_head.endswith("ForQuestionAnswering"):
        return probe.tokens(np.stack([output.start_logits.numpy(), output.end_logits.numpy()], -1))
    logits: np.ndarray = output.logits.numpy()
    return probe.tokens(logits) if task_head.endswith("ForTokenClassification") else logits


def _by_layer(hidden: list[Any]) -> dict[str, Any]:
    return {EMBEDDINGS: hidden[0], **{layer_name(i): state for i, state in enumerate(hidden[1:])}}
