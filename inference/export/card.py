"""The README of an exported model: what it is, how to call it, and how closely it matches the original."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ernie import __version__
from ernie.model.export.compare import Difference
from ernie.model.export.padded import INPUTS
from ernie.model.export.runtimes import Format
from ernie.report.markdown import code, fenced, prose
from ernie.terminal import shown
from inference.export.exportable import Exportable

CARD_FILE, LABELS_FILE = "README.md", "labels.json"

_FORMATS: dict[Format, str] = {"paddle": "Paddle's inference format", "onnx": "ONNX"}
_CALLS: dict[Format, str] = {
    "onnx": """\
import onnxruntime
from ernie import ErnieTokenizer

tokenizer = ErnieTokenizer.from_pretrained("tokenizer")
model = onnxruntime.InferenceSession("model.onnx")
batch = tokenizer({texts}, max_len={longest})
[{outputs}] = model.run(None, batch)""",
    "paddle": """\
import paddle
from paddle import inference
from ernie import ErnieTokenizer

tokenizer = ErnieTokenizer.from_pretrained("tokenizer")
config = inference.Config("model.json", "model.pdiparams")
config.disable_glog_info()
model = inference.create_predictor(config)
batch = tokenizer({texts}, max_len={longest})
inputs = [paddle.to_tensor(batch[name]) for name in model.get_input_names()]
[{outputs}] = [output.numpy() for output in model.run(inputs)]""",
}


def card(model: Exportable, source: str, name: str, to: Format, int8: bool, differences: Sequence[Difference]) -> str:
    """Return the README of a folder called `name` with a model exported from `source`."""
    lines = [
        f"# {prose(name)}",
        "",
        f"Exported from {code(source)} by ernie {__version__}, to {_FORMATS[to]}"
        f"{', its linear layers in int8' if int8 else ''}.",
        "",
        *_task(model),
        f"Inputs, int64 (batch, length): {_quoted(INPUTS)}. A row has at most {model.longest} tokens.",
        f"Outputs, float32: {', '.join(f'`{name}` {_shape(model, name)}' for name in model.padded.outputs)}.",
        *([f"`{LABELS_FILE}` names what the last axis of the logits stands for."] if model.labels else []),
        *([prose(model.reading)] if model.reading else []),
        "",
        fenced("python", "\n".join(filter(None, [_CALLS[to].format(**_call_values(model)), model.reading_code]))),
        "",
        "Compared with the original model:",
        "",
        *(f"- {prose(str(difference))}" for difference in differences),
    ]
    return shown("\n".join(lines) + "\n")


def _task(model: Exportable) -> list[str]:
    if not model.padded.ernie.config.task_vocab_size:
        return []
    return [f"It computes with task embedding {model.padded.task}.", ""]


def _call_values(model: Exportable) -> dict[str, str]:
    """Return the values of the placeholders in `_CALLS`."""
    texts = ", ".join(json.dumps([f"a {name}", f"another {name}"], ensure_ascii=False) for name in model.texts)
    return {"texts": texts, "longest": str(model.longest), "outputs": ", ".join(model.padded.outputs)}


def _shape(model: Exportable, output: str) -> str:
    config, classifier = model.padded.ernie.config, model.padded.classifier
    size = config.hidden_size if classifier is None else classifier.weight.shape[1]
    by_token = model.padded.per_token or output == "last_hidden_state"
    return f"(batch, {'length, ' * by_token}{size})"


def _quoted(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)
