"""The checks of gpu_proof.py, which runs each in a process of its own:

  python benchmarks/gpu_checks.py CHECK FOLDER

writes FOLDER/CHECK.json: what the check found.  All of them also run on a CPU, where they say what they cannot show.
"""

from __future__ import annotations

import io
import itertools
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ernie.kernels.precision import Level, Precision

HOME = Path(__file__).parents[1]
PACKAGES = ("numpy", "paddle")  # whose documentation is the text to train on
# Errors of a result, relative to its norm.  Products in float32 may use TF32 units only where someone allows it.
TOLERANCE = {"fp32": 1e-4, "bf16": 0.02, "fp16": 0.003}
STEPS, LAST = 50, 10  # of the curves, and those whose mean is compared
# Of that mean; of the norms of gradients, which tell of the backward pass, five times as much.
CURVE_TOLERANCE = {"fp32": 0.005, "bf16": 0.02, "fp16": 0.02}
LAYOUT_TOLERANCE = 1e-4  # of the losses, in float32


@dataclass
class Found:
    """What a check found.  The check has failed if anything is `wrong`; `missing` is what this machine cannot show."""

    facts: dict[str, str] = field(default_factory=dict)
    table: list[list[str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    curves: dict[str, list[float]] = field(default_factory=dict)
    text: str = ""

    def expect(self, holds: bool, sentence: str) -> None:
        """Note what is wrong, unless the condition holds."""
        if not holds:
            self.wrong.append(sentence)


@dataclass(frozen=True)
class Check:
    """A check: its title, what it shows, and the seconds after which it is stopped."""

    title: str
    shows: str
    limit: int
    run: Callable[[Path], Found]


def on_gpu() -> bool:
    """Whether Paddle computes on a GPU."""
    import paddle

    return not paddle.get_device().startswith("cpu")


def machine(folder: Path) -> Found:
    """Versions, capability, and which of Paddle's operators that we use have kernels for this device."""
    import paddle
    from paddle.base import core

    from ernie.doctor import machine as hardware

    here = hardware.find()
    found = Found(
        facts={
            "processor": f"{here.processor}, {here.cores} cores",
            "Paddle": paddle.__version__,
            "device": paddle.get_device(),
        }
    )
    for name in ("cuda", "cudnn", "nccl"):
        found.facts[name] = str(getattr(paddle.version, name)())
    if not on_gpu():
        found.missing.append(
            "Paddle computes on a CPU: "
            + (f"it sees none of {', '.join(gpu.name for gpu in here.gpus)}" if here.gpus else "there is no GPU")
        )
    for number in range(paddle.device.cuda.device_count() if on_gpu() else 0):
        known = paddle.device.cuda.get_device_properties(number)
        found.facts[f"GPU {number}"] = (
            f"{known.name}, capability {known.major}.{known.minor}, {known.total_memory / 2**30:.0f} GB"
        )
    kernels = core._get_registered_phi_kernels("function")  # type: ignore[attr-defined]
    wanted = (
        "flash_attn_unpadded",
        "flashmask_attention",
        "fused_gemm_epilogue",
        "fused_linear_param_grad_add",
        "adamw",
        "squared_l2_norm",
    )
    found.table.append(["operator", "kernels"])
    for name in wanted:
        places = sorted({str(key).strip("(").split(",")[0] for key in kernels.get(name, [])})
        found.table.append([name, ", ".join(places) or "none"])
        if on_gpu():
            found.expect(
                any("GPU" in place for place in places), f"the operator {name} has no kernel for a GPU in this wheel"
            )
    return found


def precisions() -> list[Precision]:
    """The precisions that this device has, float32 first."""
    from ernie.errors import UserError
    from ernie.kernels.precision import precision

    found: list[Precision] = ["fp32"]
    rest: tuple[Precision, ...] = ("bf16", "fp16")
    for name in rest:
        with suppress(UserError), precision(name):
            found.append(name)
    return found


def settings(kinds: Sequence[Precision]) -> Iterator[tuple[Precision, Level]]:
    """The precisions and levels to train in."""
    levels: tuple[Level, ...] = ("O1", "O2")
    for kind in kinds:
        yield from ((kind, level) for level in levels if level == "O1" or kind == "bf16")


def say_what_lacks(found: Found, kinds: Sequence[str]) -> None:
    """Note the precisions that are missing."""
    lacking = [kind for kind in ("bf16", "fp16") if kind not in kinds]
    if lacking:
        found.missing.append(f"this device does not compute in {' or '.join(lacking)}")


def results(
    kernel: Callable[..., Any], values: Sequence[np.ndarray], frozen: Sequence[int] = ()
) -> list[np.ndarray | None]:
    """The output and the gradients of sum(output * upstream), None for frozen inputs."""
    import paddle

    tensors = [paddle.to_tensor(x, stop_gradient=number in frozen) for number, x in enumerate(values)]
    out = kernel(*tensors).astype("float32")
    upstream = np.random.default_rng(1).standard_normal(out.shape).astype(np.float32)
    (out * paddle.to_tensor(upstream)).sum().backward()
    return [out.numpy(), *(None if x.grad is None else x.grad.astype("float32").numpy() for x in tensors)]


def error(found: Sequence[np.ndarray | None], wanted: Sequence[np.ndarray | None]) -> float:
    """The largest error of a result, relative to its norm; infinite if one is missing or not finite."""
    worst = 0.0
    for actual, expected in zip(found, wanted, strict=True):
        if expected is None or not expected.size:
            continue
        if actual is None or not np.isfinite(actual).all():
            return math.inf
        worst = max(worst, float(np.linalg.norm(actual - expected) / (np.linalg.norm(expected) or 1)))
    return worst


@dataclass
class Errors:
    """The largest error of each group of cases, as a table."""

    found: Found
    worst: dict[tuple[str, str], tuple[float, str, int]] = field(default_factory=dict)

    def compare(
        self,
        group: str,
        kind: Precision,
        case: str,
        kernel: Callable[..., Any],
        values: Sequence[np.ndarray],
        wanted: Sequence[np.ndarray | None],
        frozen: Sequence[int] = (),
    ) -> None:
        """Add what a kernel gives in a precision, whose frozen inputs must have no gradient."""
        from ernie.kernels.precision import precision

        with precision(kind):
            got = results(kernel, values, frozen)
        expected = [None if number - 1 in frozen else value for number, value in enumerate(wanted)]
        self.add(group, kind, case, error(got, expected))
        self.found.expect(
            all(got[number + 1] is None for number in frozen),
            f"{group} in {kind}: a frozen input of {list(frozen)} has a gradient",
        )

    def add(self, group: str, kind: str, case: str, size: float) -> None:
        """Add a case, which is wrong beyond the tolerance of its precision."""
        before, name, count = self.worst.get((group, kind), (-1.0, "", 0))
        self.worst[group, kind] = (size, case, count + 1) if size > before else (before, name, count + 1)
        limit = TOLERANCE[kind]
        self.found.expect(size <= limit, f"{group} in {kind}, {case}: the error is {size:.2g}, beyond {limit:.2g}")

    def table(self) -> list[list[str]]:
        """The groups, their number of cases, and the largest error of each."""
        rows = [
            [group, kind, f"{count}", f"{size:.1e}", case] for (group, kind), (size, case, count) in self.worst.items()
        ]
        return [["of", "precision", "cases", "largest error", "in the case"], *rows]


def normal(*shapes: tuple[int, ...], seed: int = 0) -> list[np.ndarray]:
    """Arrays of standard normal numbers."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def rounded(values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Rounded to what every precision has, so that no sum near zero changes its sign, and with it the slope of ReLU."""
    import paddle

    return [paddle.to_tensor(value).astype("bfloat16").astype("float32").numpy() for value in values]


def subsets(count: int) -> Iterator[tuple[int, ...]]:
    """The sets of frozen inputs that leave one to learn."""
    for size in range(count):
        yield from itertools.combinations(range(count), size)


def linear(folder: Path) -> Found:
    """The fused linear layer against the reference: numbers of rows, activations, frozen inputs."""
    from ernie.kernels.linear import linear as fused
    from ernie.kernels.linear import reference

    found = Found()
    errors, kinds = Errors(found), precisions()
    for kind, (rows, width, out), activation in itertools.product(
        kinds, [(1, 64, 96), (33, 64, 96), (2048, 768, 3072)], ["none", "gelu", "relu"]
    ):
        values = rounded(normal((rows, width), (width, out), (out,)))
        wanted = results(lambda x, w, b, a=activation: reference(x, w, b, a), values)
        for frozen in subsets(3) if rows == 33 else [()]:
            case = f"{rows} x {width} to {out}, {activation}, frozen {list(frozen)}"
            errors.compare(
                "linear", kind, case, lambda x, w, b, a=activation: fused(x, w, b, a), values, wanted, frozen
            )
    found.table = errors.table()
    say_what_lacks(found, kinds)
    return found


def attention(folder: Path) -> Found:
    """Attention against the reference: head sizes, lengths, masks."""
    from ernie.data.batch import Layout
    from ernie.kernels.attention import attention as fused
    from ernie.kernels.attention import reference
    from ernie.kernels.mask import Mask

    found = Found()
    errors, kinds = Errors(found), precisions()
    layouts = {
        "of many lengths": Layout.of_lengths([1, 17, 130, 5, 64]),
        "0, 1 and 512": Layout.of_lengths([0, 1, 512]),
    }
    masks: dict[str, Callable[[Layout], Mask | None]] = {
        "full": lambda layout: None,
        "causal": Mask.causal,
        "window": lambda layout: Mask.window(layout, 7, 3),
        "chunk": lambda layout: Mask.chunk(layout, 16, before=1),
        "prefix": lambda layout: Mask.prefix(layout, np.minimum(layout.lengths, 9)),
    }
    for size, (lengths, layout), (name, make) in itertools.product(
        [20, 32, 64, 80, 96, 128], layouts.items(), masks.items()
    ):
        values, mask = normal(*[(layout.tokens, 2 * size)] * 3), make(layout)
        wanted = results(lambda q, k, v, a=layout, m=mask: reference(q, k, v, a, 2, 0.0, a, m), values)
        for kind in kinds:
            case = f"heads of {size}, lengths {lengths}"
            kernel = partial(lambda q, k, v, a, m: fused(q, k, v, a, 2, mask=m), a=layout, m=mask)
            errors.compare(f"{name} attention", kind, case, kernel, values, wanted)
    found.table = errors.table()
    say_what_lacks(found, kinds)
    return found


def norm(folder: Path) -> Found:
    """Residual, dropout and norm against the reference: widths, frozen inputs, the mean of dropout."""
    import paddle

    from ernie.kernels.norm import add_norm, reference

    found = Found()
    errors, kinds = Errors(found), precisions()
    for kind, width in itertools.product(kinds, [64, 256, 768, 1024, 4096]):
        values = normal((65, width), (65, width), (width,), (width,))
        wanted = results(lambda *x: reference(x[0], x[1], x[2], x[3], 1e-5, 0.0), values)
        for frozen in subsets(4) if width == 768 else [()]:
            case = f"{width} wide, frozen {list(frozen)}"
            errors.compare(
                "residual and norm",
                kind,
                case,
                lambda *x: add_norm(x[0], x[1], x[2], x[3], 1e-5),
                values,
                wanted,
                frozen,
            )
    paddle.seed(0)
    ones, gain, offset = paddle.ones([4096, 256]), paddle.ones([256]), paddle.zeros([256])
    dropped = (
        add_norm(paddle.zeros_like(ones), ones, gain, offset, 1e-5, 0.1).numpy() < 0
    )  # below the mean of their row
    share = float(dropped.mean())
    found.facts["dropped by dropout of 0.1"] = f"{share:.4f}"
    found.expect(abs(share - 0.1) < 0.005, f"dropout of 0.1 drops {share:.4f}")
    found.table = errors.table()
    say_what_lacks(found, kinds)
    return found


def rest(folder: Path) -> Found:
    """AdamW, the sum of squares, embeddings, the loss over a vocabulary, and a whole layer, against the references."""
    import paddle

    from ernie.data.batch import Layout
    from ernie.kernels import adamw, embedding, layer, vocabulary
    from ernie.kernels.precision import precision
    from ernie.kernels.types import AdamStep, LayerSettings, LayerWeights

    found = Found()
    errors, kinds = Errors(found), precisions()
    state = {}
    for name, update in (("ours", adamw.adamw), ("reference", adamw.reference)):
        weight, gradient = (paddle.to_tensor(x) for x in normal((300, 70), (300, 70)))
        moments = paddle.zeros_like(weight), paddle.zeros_like(weight)
        for step in range(1, 21):
            update(
                AdamStep(1e-3, 0.01, 0.9, 0.98, 1e-6, 0.9**step, 0.98**step, 0.5), weight, gradient.clone(), *moments
            )
        state[name] = [weight.numpy(), *(moment.numpy() for moment in moments)]
    errors.add("AdamW", "fp32", "20 steps", error(state["ours"], state["reference"]))
    tensors = [paddle.to_tensor(x) for x in normal((300, 70), (9,), (1, 5000))]
    squares = [
        np.array(float(each)) for each in (adamw.sum_of_squares(tensors), adamw.reference_sum_of_squares(tensors))
    ]
    errors.add("sum of squares", "fp32", "3 tensors", error(squares[:1], squares[1:]))

    rng = np.random.default_rng(0)
    ids = [rng.integers(0, size, 700).astype(np.int64) for size in (5000, 512)]
    tables = normal((5000, 96), (512, 96), (96,), (96,))
    pairs = [
        results(lambda a, b, g, o, f=each: f(ids, [a, b], g, o, 1e-5, 0.0), tables)
        for each in (embedding.embed, embedding.reference)
    ]
    errors.add("embeddings", "fp32", "two tables", error(*pairs))
    labels = rng.integers(0, 5000, 300).astype(np.int64)
    values = normal((300, 96), (5000, 96), (5000,))
    wanted = results(lambda x, t, b: vocabulary.reference(x, t, b, labels), values)
    for kind in kinds:
        kernel = partial(vocabulary.vocabulary_cross_entropy, labels_P=labels)
        errors.compare("loss over a vocabulary", kind, "300 of 5,000", kernel, values, wanted)

    layout, width, inner = Layout.of_lengths([64, 1, 300, 17]), 256, 1024
    shapes = (
        [(width, width)] * 4 + [(width, inner), (inner, width)] + [(width,)] * 4 + [(inner,), (width,)] + [(width,)] * 4
    )
    weights = [0.05 * value if value.ndim == 2 else value for value in normal(*shapes, seed=2)]
    inputs, settings = [*normal((layout.tokens, width), seed=3), *weights], LayerSettings(4, "gelu", 1e-5)
    wanted = results(lambda x, *w: layer.reference(x, layout, LayerWeights(*w), settings, None, None), inputs)
    for kind in kinds:
        with precision(kind):
            got = results(lambda x, *w: layer.transformer_layer(x, layout, LayerWeights(*w), settings), inputs)
        errors.add("layer", kind, "width 256", error(got[:2], wanted[:2]))  # its output, and the gradient of its input
    found.table = errors.table()
    say_what_lacks(found, kinds)
    return found


def tests(folder: Path) -> Found:
    """The library's own tests for a GPU."""
    folders = ("tests/kernels", "tests/model/test_gpu.py", "tests/train/test_paddle_adamw.py")
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", *folders]
    if not on_gpu():
        return Found(missing=["these tests need a GPU: " + " ".join(command[1:])])
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True)
    found = Found(text=done.stdout[-20_000:])
    found.facts["result"] = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "no output"
    found.expect(done.returncode == 0, f"the tests fail: {found.facts['result']}")
    return found


def corpus(folder: Path) -> Path:
    """A small corpus of the documentation inside Python, made at the first call."""
    made, text = folder / "corpus", folder / "text"
    if (folder / "corpus.done").exists():
        return made
    subprocess.run(
        [sys.executable, str(HOME / "examples/docstrings.py"), str(text), *PACKAGES],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    run("tokenizer", "train", "--input", str(text), "--vocab-size", "2000", "--output", str(folder / "tokenizer"))
    run(
        "data",
        "build",
        "--input",
        str(text),
        "--tokenizer",
        str(folder / "tokenizer"),
        "--output",
        str(made),
        "--set",
        "held_out=0.05",
    )
    (folder / "corpus.done").touch()
    return made


def command(*words: str) -> list[str]:
    """The command line of `ernie` with these words."""
    return [sys.executable, "-m", "ernie.cli", *words]


def run(*words: str, **environment: str) -> None:
    """Run `ernie`.  Raises RuntimeError with its message if it fails."""
    done = subprocess.run(command(*words), capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"`ernie {' '.join(words[:2])}` ends with status {done.returncode}: {last}")


def configured(
    folder: Path, name: str, preset: str, steps: int, train: str, more: str = "", dropout: float = 0.0
) -> Path:
    """Write the configuration of a short run."""
    file = folder / f"{name}.yaml"
    file.write_text(
        f"corpus: {corpus(folder)}\n"
        f"schedule: {{stages: [{{knowledge_masking: {steps}}}]}}\n"
        f"model: {{preset: {preset}, dropout: {dropout}, attention_dropout: {dropout}}}\n"
        f"data: {{max_len: 64, micro_batch_tokens: 512}}\n"
        f"train: {{lr: {{peak: 1e-3, warmup: 0.1}}, {train}}}\n{more}",
        encoding="utf-8",
    )
    return file


def losses(output: Path) -> list[float]:
    """The loss of each step of a run, whose only task is masking."""
    from ernie.train.log import read_records

    return [float(record["loss"]["knowledge_masking"]) for record in read_records(output, "step")]


def gradient_norms(output: Path) -> np.ndarray:
    """The norm of the gradients of each step of a run."""
    from ernie.train.log import read_records

    return np.array([record["gradient_norm"] for record in read_records(output, "step")])


def training(folder: Path) -> Found:
    """Fifty steps in each precision and level against the same steps in float32 on the CPU."""
    found = Found()
    arms: dict[str, tuple[Precision, Level, dict[str, str]]] = {}
    arms["CPU fp32"] = ("fp32", "O1", {"CUDA_VISIBLE_DEVICES": ""})
    kinds = precisions()
    for kind, level in settings(kinds):
        if on_gpu() or kind != "fp32":
            arms[kind if kind != "bf16" else f"{kind} {level}"] = (kind, level, {})
    norms: dict[str, np.ndarray] = {}
    for name, (kind, level, environment) in arms.items():
        output = folder / "training" / name.replace(" ", "-")
        config = configured(folder, "training", "mini", STEPS, f"precision: {kind}, amp_level: {level}")
        run("pretrain", str(config), "--output", str(output), "--quiet", **environment)
        found.curves[name], norms[name] = losses(output), gradient_norms(output)
    base, *_ = arms
    found.table = [
        ["run", f"mean loss of the last {LAST} of {STEPS} steps", "beside the CPU", "difference of gradients' norms"]
    ]
    for name, curve in found.curves.items():
        limit = CURVE_TOLERANCE[arms[name][0]]
        mean, wanted = (statistics.mean(each[-LAST:]) for each in (curve, found.curves[base]))
        apart = float(np.mean(np.abs(norms[name] / norms[base] - 1)))
        found.table.append([name, f"{mean:.4f}", f"{mean / wanted - 1:+.2%}", f"{apart:.2%}"])
        found.expect(
            abs(mean / wanted - 1) <= limit, f"{name}: the loss is {mean:.4f}, not within {limit:.1%} of {wanted:.4f}"
        )
        found.expect(
            apart <= 5 * limit,
            f"{name}: the gradients' norms are {apart:.1%} apart in the mean, beyond {5 * limit:.1%}",
        )
    say_what_lacks(found, kinds)
    return found


def wait_for_step(output: Path, step: int, process: subprocess.Popen[str], seconds: float = 120) -> bool:
    """Wait until a run has recorded a step; False if it ends before."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        if (output / "metrics.jsonl").exists() and len(losses(output)) > step:
            return True
        time.sleep(0.05)
    return False


def resume(folder: Path) -> Found:
    """A run that is killed and started again has the bytes of one that was not."""
    found = Found()
    weights = {}
    for name in ("whole", "killed"):
        output = folder / "resume" / name
        config = configured(folder, "resume", "tiny", 60, "precision: auto", "save: {every: 10}\n", dropout=0.1)
        words = ("pretrain", str(config), "--output", str(output), "--quiet")
        if name == "killed":
            with subprocess.Popen(command(*words), text=True, stderr=subprocess.DEVNULL) as process:
                found.expect(wait_for_step(output, 15, process), "the run ended before it was killed")
                process.kill()
            found.facts["killed after step"] = str(len(losses(output)))
        run(*words)
        weights[name] = (output / "model/model.safetensors").read_bytes()
        found.facts[f"loss, {name}"] = repr(losses(output)[-1])
    found.expect(
        weights["whole"] == weights["killed"],
        "the weights of the run that was killed are not those of the one that was not",
    )
    return found


def speed(folder: Path) -> Found:
    """Tokens a second of a training step, the memory it takes, and what the time goes to."""
    import paddle

    from ernie.data.batch import Layout
    from ernie.kernels.precision import precision
    from ernie.model.config import EncoderConfig
    from ernie.model.encoder import Encoder

    found = Found(
        table=[["precision", "level", "tokens/s, forward and backward", "seconds of a micro-batch", "peak memory, GB"]]
    )
    preset, tokens, turns = ("base", 8192, 10) if on_gpu() else ("mini", 1024, 3)
    found.facts["encoder"] = f"{preset}, micro-batches of {tokens:,} tokens in sequences of 128"
    layout = Layout.of_lengths([128] * (tokens // 128))
    config = EncoderConfig.preset(preset)
    encoder = Encoder(config)
    vectors = paddle.randn([tokens, config.hidden_size])

    def step() -> None:
        encoder(vectors, layout).square().mean().backward()
        encoder.clear_gradients()
        if on_gpu():
            paddle.device.synchronize()

    for kind, level in settings(precisions()):
        with precision(kind, level):
            for _ in range(2):
                step()
            if on_gpu():
                paddle.device.cuda.reset_max_memory_allocated()
            seconds = []
            for _ in range(turns):
                start = time.perf_counter()
                step()
                seconds.append(time.perf_counter() - start)
            memory = f"{paddle.device.cuda.max_memory_allocated() / 1e9:.1f}" if on_gpu() else ""
        middle = statistics.median(seconds)
        found.table.append([kind, level, f"{tokens / middle:,.0f}", f"{middle:.3f}", memory])
    with (
        precision(precisions()[-1 if on_gpu() else 0]),
        paddle.profiler.Profiler(on_trace_ready=lambda _: None) as profiler,
    ):
        for _ in range(2):
            step()
    found.text = summary(profiler)
    if not on_gpu():
        found.missing.append("the speed of a GPU")
    return found


def summary(profiler: Any) -> str:
    """The table of operators that Paddle's profiler prints."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        profiler.summary(op_detail=True, thread_sep=False, time_unit="ms")
    return printed.getvalue()[:40_000]


def layouts(folder: Path) -> Found:
    """Two processes in each layout against one process; one that is killed, and one that is stopped."""
    import paddle

    found = Found(table=[["layout", "largest difference of a loss"]])
    if on_gpu() and paddle.device.cuda.device_count() < 2:
        return Found(missing=["there is one GPU: processes that share the work were not tried"])
    if not on_gpu():
        found.missing.append("NCCL: these processes share the work of a CPU over Gloo")
    arms = {
        "one process": "{}",
        "data: 2": "{data: 2}",
        "tensor: 2": "{tensor: 2}",
        "pipeline: 2": "{pipeline: 2}",
        "sharding: 2, stage 1": "{sharding: 2}",
        "sharding: 2, stage 2": "{sharding: 2, sharding_stage: 2}",
        "sharding: 2, stage 3": "{sharding: 2, sharding_stage: 3}",
    }
    base: list[float] = []
    for name, parallel in arms.items():
        output = folder / "layouts" / "".join(letter if letter.isalnum() else "-" for letter in name)
        config = configured(
            folder, "layouts", "tiny", 10, "precision: fp32, micro_batches: 4", f"parallel: {parallel}\n"
        )
        try:
            run(
                "pretrain",
                str(config),
                "--output",
                str(output),
                "--quiet",
                "--processes",
                "1" if name == "one process" else "2",
            )
        except RuntimeError as message:
            found.wrong.append(f"{name}: {message}")
            continue
        values = losses(output)
        base = base or values
        difference = max(abs(value / other - 1) for value, other in zip(values, base, strict=True))
        found.table.append([name, f"{difference:.1e}"])
        found.expect(
            difference <= LAYOUT_TOLERANCE, f"{name}: a loss differs by {difference:.1e}, beyond {LAYOUT_TOLERANCE:.0e}"
        )
    for name, sent in (("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP)):
        stop_one(found, folder, name, sent)
    return found


def stop_one(found: Found, folder: Path, name: str, sent: signal.Signals) -> None:
    """Send a signal to one of two processes: both have to end with one sentence that names it."""
    output = folder / "layouts" / name
    config = configured(
        folder, name, "tiny", 100_000, "precision: fp32, micro_batches: 2", "parallel: {data: 2, timeout: 20}\n"
    )
    words = command("pretrain", str(config), "--output", str(output), "--quiet", "--processes", "2")
    with subprocess.Popen(words, text=True, stderr=subprocess.PIPE) as process:
        if not wait_for_step(output, 3, process):
            process.kill()
            found.wrong.append(f"two processes did not come to a third step: {process.communicate()[1][-300:]}")
            return
        start = time.monotonic()
        os.kill(process_of_rank(1, str(output)), sent)
        try:
            said = process.communicate(timeout=90)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            found.wrong.append(f"one of two processes was {name}, and the other has waited for 90 s")
            return
    sentences = [line for line in said.splitlines() if line.startswith("ernie: error: ")]
    found.facts[f"rank 1 {name}"] = f"after {time.monotonic() - start:.0f} s: {' '.join(sentences) or said[-300:]}"
    found.expect(len(sentences) == 1 and "rank 1" in sentences[0], f"rank 1 was {name}, and no sentence names it")


def process_of_rank(rank: int, output: str) -> int:
    """The process of a rank of the run with this folder."""
    for place in Path("/proc").iterdir():
        if not place.name.isdigit() or int(place.name) == os.getpid():
            continue
        try:
            variables, words = (
                (place / "environ").read_bytes().split(b"\0"),
                (place / "cmdline").read_bytes().split(b"\0"),
            )
        except OSError:
            continue
        if f"PADDLE_TRAINER_ID={rank}".encode() in variables and output.encode() in words:
            return int(place.name)
    raise RuntimeError(f"there is no process of rank {rank}")


CHECKS = {
    "machine": Check("This machine", "Versions, and the operators that the library takes from Paddle.", 60, machine),
    "linear": Check(
        "Linear layers",
        "Fused products with bias and activation, forward and backward, beside plain float32.",
        120,
        linear,
    ),
    "attention": Check(
        "Attention", "FlashAttention and FlashMask, forward and backward, beside plain float32.", 180, attention
    ),
    "norm": Check("Residuals and norms", "The fused operator, forward and backward, beside plain float32.", 120, norm),
    "rest": Check(
        "The other kernels",
        "AdamW, embeddings, the loss over a vocabulary and a whole layer, beside plain float32.",
        120,
        rest,
    ),
    "tests": Check("The tests for a GPU", "What `make test-gpu` runs.", 300, tests),
    "training": Check("Training", f"{STEPS} steps in each precision, beside the same steps on the CPU.", 400, training),
    "resume": Check(
        "Killed and resumed", "A run that is killed and resumed has the bytes of one that is not.", 180, resume
    ),
    "speed": Check("Speed", "Tokens a second, memory, and what the time goes to.", 180, speed),
    "layouts": Check(
        "Several processes",
        "Each layout of two processes beside one; a process that is killed, or stopped.",
        400,
        layouts,
    ),
}


def main() -> None:
    """Run one check and write what it found."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    (folder / f"{name}.json").write_text(json.dumps(asdict(CHECKS[name].run(folder))), encoding="utf-8")


if __name__ == "__main__":
    main()
