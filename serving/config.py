"""The configuration of a server: what `ernie serve` reads from YAML, and what its flags change.  Imports no Paddle."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ernie.config import check_least
from ernie.errors import UserError, nearest
from ernie.kernels.precision import InferencePrecisionChoice


@dataclass(frozen=True)
class ModelConfig:
    """A model to serve: the folder of a run or of a published model, as `inference.load` takes it.

    It may also be the folder of a search index.  `decoding` changes how answers are found, such as `{beam: 4}` or
    `{all_labels: true}`, or `{rerank: runs/relevance}` for an index.

    `base` is the folder of the pretrained encoder of a run that learned an adapter of it (`train.adapt`).  Models with
    the same base and precision share its weights, and those of kinds with logits are computed in one batch.

    `examples` are rows that the page offers to try it with, named as data of a run is, such as `data/dev.tsv[:5]`.
    """

    path: str
    precision: InferencePrecisionChoice | None = None
    decoding: dict[str, Any] = field(default_factory=dict)
    trust_plugins: tuple[str, ...] = ()
    base: str = ""
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class LimitsConfig:
    """What one request, and all of them, may ask for.

    A request without a timeout of its own has `timeout` seconds, a bulk one `bulk_timeout`.  `bulk_share` is the part
    of the engine's time that bulk requests have while interactive ones are there.

    A batch has at most `batch_tokens`, or one input that is longer; a step of a session counts as one token.

    There are at most `sessions`.  In each up to `session_mb` of input wait, and as much output.  A session ends after
    `session_idle` seconds in which its client neither sends nor gets anything.  A step of a session is due
    `session_step` seconds after its input.

    A body has at most `body_mb`, or `form_mb` if it contains a file.  A client has `head_seconds` to send the head of a
    request, and `body_seconds` for the rest.  It takes some of an answer, or of a session's output, within
    `write_seconds`.  A connection without requests is closed after `idle_seconds`, which should be more than a balancer
    in front has.
    """

    timeout: float = 1.0
    bulk_timeout: float = 60.0
    longest_timeout: float = 600.0
    bulk_share: float = 0.1
    inputs: int = 1000
    body_mb: float = 10.0
    form_mb: float = 25.0
    batch_tokens: int = 16384
    waiting_mb: float = 50.0
    sessions: int = 1000
    session_mb: float = 1.0
    session_idle: float = 60.0
    session_step: float = 0.1
    connections: int = 10_000
    head_kb: float = 64.0
    head_seconds: float = 10.0
    body_seconds: float = 60.0
    write_seconds: float = 30.0
    idle_seconds: int = 75

    def __post_init__(self) -> None:
        check_least(self, timeout=0.001, bulk_timeout=0.001, longest_timeout=0.001, inputs=1, batch_tokens=1)
        check_least(self, body_mb=0.001, form_mb=0.001, waiting_mb=0.001, sessions=0, connections=1, head_kb=1)
        check_least(self, head_seconds=0.1, body_seconds=0.1, write_seconds=0.1, idle_seconds=1)
        check_least(self, session_mb=0.01, session_idle=0.1, session_step=0.001)
        if not 0 < self.bulk_share < 1:
            raise UserError(f"bulk_share: expected a fraction between 0 and 1, found {self.bulk_share:g}")


@dataclass(frozen=True)
class ServeConfig:
    """A server: its models by name, where it listens, and what it allows.

    It listens on `host` and `port`; 127.0.0.1 is reached from this machine only.  With `replicas` there are as many
    processes, on consecutive ports.  One that neither answers nor computes for `unresponsive_seconds` is started again.

    `api_key_file` has a key a line, with the client's name after it, and the word admin for whoever may reload models;
    without it everyone may ask.  `cors_origins` are the web pages that may ask from browsers.

    After SIGTERM the server is not ready, but accepts everything for `grace_seconds`, until balancers have noticed;
    after Ctrl-C it skips this.  Then it refuses what is new, and answers what waits for up to `drain_seconds`.

    A chain in `chains` is a list of models, each of which takes what the one before gives, for sessions under its name.
    Sessions that are saved, or live when the server ends, are kept in `sessions_folder` for an hour; servers that share
    the folder go on with each other's sessions.

    `notice` is a sentence about these models that the page shows to everyone.
    """

    models: dict[str, ModelConfig] = field(default_factory=dict)
    chains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 8000
    replicas: int = 1
    unresponsive_seconds: float = 60.0
    preparing_threads: int = 2
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    api_key_file: Path | None = None
    cors_origins: tuple[str, ...] = ()
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    grace_seconds: float = 3.0
    drain_seconds: float = 30.0
    log: Literal["text", "json"] = "text"
    sessions_folder: Path | None = None
    notice: str = ""

    def __post_init__(self) -> None:
        check_least(
            self, replicas=1, preparing_threads=1, grace_seconds=0, drain_seconds=0, port=0, unresponsive_seconds=2
        )
        if self.port + self.replicas > 65536:
            raise UserError(f"port: expected at most {65536 - self.replicas}, found {self.port}")
        if not self.models:
            raise UserError("models: expected at least one, such as {films: {path: runs/films}}")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise UserError("tls_certificate and tls_key: give both or neither")
        if self.port == 0 and self.replicas > 1:
            raise UserError("port: several replicas need a port from which to count, found 0")
        for name in (*self.models, *self.chains):
            if not name or "/" in name or name != name.strip():
                raise UserError(f"models: expected a name without slashes, found '{name}'")
        for name, chain in self.chains.items():
            if name in self.models:
                raise UserError(f"chains: there is a model '{name}', too; give the chain another name")
            if not chain:
                raise UserError(f"chains.{name}: expected names of models, such as [heard, german, voice]")
            for each in chain:
                if each not in self.models:
                    raise UserError(f"chains.{name}: there is no model '{each}'.{nearest(each, self.models)}")
