"""What a server did and does, as Prometheus reads it.  All series exist from the start, and no label is a client's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from serving.dispatcher import Batch
from serving.engine import Computed
from serving.heartbeat import Heartbeat
from serving.models import ServedModel
from serving.service import REASONS, Observer, Service

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_TOKENS = tuple(float(1 << n) for n in range(3, 16))
_INPUTS = tuple(float(1 << n) for n in range(11))
# Statuses whose series exist from the start: of all routes, of those that ask models, and of WebSockets, whose 101 is a
# session.  499 is a client that went away before its answer.  CONNECTION are those of answers below all routes.
PLAIN = (200, 401, 404, 405, 500, 503)
ASKING = (*PLAIN, 400, 413, 422, 424, 429, 499, 504)
SOCKET = (101, 401, 403, 426, 503)
CONNECTION = (400, 408, 431, 503)


@dataclass(frozen=True)
class _Series:
    """The series of one model's operation."""

    seconds: Histogram
    tokens: Histogram
    inputs: Histogram
    waits: Histogram
    preparing: Histogram
    requests: Histogram
    values: Counter
    errors: Counter
    expired: Counter
    cancelled: Counter
    refused: dict[str, Counter]


class Metrics(Observer):
    """The metrics of a service; each model and operation is a label `work`, such as films/predict."""

    content_type = CONTENT_TYPE_LATEST.encode()

    def __init__(self, service: Service, heartbeat: Heartbeat | None = None):
        disable_created_metrics()
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._batches = self._histogram("ernie_batch_seconds", "The time of a batch.", _SECONDS)
        self._tokens = self._histogram("ernie_batch_tokens", "The tokens of a batch.", _TOKENS)
        self._inputs = self._histogram("ernie_batch_inputs", "The inputs of a batch.", _INPUTS)
        self._waits = self._histogram("ernie_wait_seconds", "From a request's arrival to its first batch.", _SECONDS)
        self._preparing = self._histogram("ernie_prepare_seconds", "From a request's arrival to its tokens.", _SECONDS)
        self._seconds = self._histogram("ernie_request_seconds", "From a request's arrival to its answer.", _SECONDS)
        self._items = self._counter("ernie_inputs", "Inputs that were computed.", "work", "outcome")
        self._expired = self._counter("ernie_expired", "Requests whose time was over.", "work")
        self._refused = self._counter("ernie_refused", "Requests that were refused.", "work", "reason")
        self._cancelled = self._counter("ernie_cancelled", "Requests that were taken back.", "work")
        self._fixed = self._gauge("ernie_cost_fixed_seconds", "The fit's a: what each batch costs.", "work")
        self._per_token = self._gauge("ernie_cost_token_seconds", "The fit's b: what each token costs.", "work")
        self._loads = self._counter("ernie_model_loads", "How often a model was loaded.", "model", "outcome")
        self._loaded_at = self._gauge("ernie_model_loaded_timestamp_seconds", "When a model was loaded.", "model")
        self._http = self._counter("ernie_http_requests", "Requests of HTTP.", "route", "status")
        self._connections = self._counter("ernie_connections_refused", "Connections without a whole request.", "status")
        for status in CONNECTION:
            self._connections.labels(status)
        engine, lifecycle, preparers = service.engine, service.lifecycle, service.preparers
        self._gauge("ernie_waiting_requests", "Requests that wait for a batch.").set_function(lambda: engine.waiting[0])
        self._gauge("ernie_sessions", "Sessions that are live.").set_function(lambda: len(service.sessions.live))
        self._gauge("ernie_waiting_tokens", "Tokens that wait for a batch.").set_function(lambda: engine.waiting[1])
        self._gauge("ernie_preparing_characters", "Characters that wait to be tokenized.").set_function(
            lambda: preparers.waiting
        )
        self._gauge("ernie_open_calls", "Requests and sessions that have not ended.").set_function(
            lambda: lifecycle.open
        )
        self._gauge("ernie_engine_alive", "Whether the engine's thread goes on.").set_function(lambda: engine.is_alive)
        if heartbeat is not None:
            self._gauge(
                "ernie_loop_lag_seconds", "How late the event loop was at most, in the last minute or two."
            ).set_function(lambda: heartbeat.largest)
        self._series: dict[str, _Series] = {}
        self._answers: dict[tuple[str, int], Counter] = {}  # by route and status
        for model in service.models.values():
            self.loaded(model)
        service.observers.append(self)

    def text(self) -> bytes:
        """Return all metrics; any thread may ask."""
        return bytes(generate_latest(self._registry))

    def add_route(self, route: str, statuses: Sequence[int]) -> None:
        """Create the series of a route, at zero; it is the template of a path, such as /models/{model}."""
        for status in statuses:
            self._answers_with(route, status)

    def loaded(self, model: ServedModel) -> None:
        """Create the series of a model, at zero, or keep those of the one that it replaces."""
        for work in model.lanes:
            self._series.setdefault(work.name, self._new_series(work.name))
            self._fixed.labels(work.name).set_function(lambda cost=work.cost: cost.fixed)  # type: ignore[misc]
            self._per_token.labels(work.name).set_function(lambda cost=work.cost: cost.per_token)  # type: ignore[misc]
        self._loads.labels(model.name, "error")
        self._loads.labels(model.name, "loaded").inc()
        self._loaded_at.labels(model.name).set(model.loaded_at)

    def failed_to_load(self, name: str) -> None:
        self._loads.labels(name, "error").inc()

    def dropped(self, model: ServedModel) -> None:
        """Forget the series of a model that is no longer served."""
        for work in model.lanes:
            if self._series.pop(work.name, None) is None:
                continue
            for metric in (self._batches, self._tokens, self._inputs, self._waits, self._preparing, self._seconds):
                metric.remove(work.name)
            for other in (self._expired, self._cancelled, self._fixed, self._per_token):
                other.remove(work.name)
            for outcome in ("value", "error"):
                self._items.remove(work.name, outcome)
            for reason in REASONS:
                self._refused.remove(work.name, reason)
        for outcome in ("loaded", "error"):
            self._loads.remove(model.name, outcome)
        self._loaded_at.remove(model.name)

    def ended(self, route: str, status: int) -> None:
        """Count a request of HTTP."""
        self._answers_with(route, status).inc()

    def answered(self, work: str, seconds: float) -> None:
        if series := self._series.get(work):
            series.requests.observe(seconds)

    def connection_refused(self, status: int) -> None:
        self._connections.labels(status).inc()

    def prepared(self, work: str, seconds: float) -> None:
        if series := self._series.get(work):
            series.preparing.observe(seconds)

    def refused(self, work: str, reason: str) -> None:
        if series := self._series.get(work):
            series.refused[reason].inc()

    def cancelled(self, work: str) -> None:
        if series := self._series.get(work):
            series.cancelled.inc()

    def computed(self, computed: Computed) -> None:
        for job in computed.expired:
            if series := self._series.get(job.work):
                series.expired.inc()
        batch = computed.batch
        if batch is None:
            return
        items: dict[str, list[int]] = {}  # the numbers of those of each work
        for number, (job, _) in enumerate(batch.items):
            items.setdefault(job.work, []).append(number)
        for work, numbers in items.items():
            if series := self._series.get(work):
                _observe(series, computed, batch, numbers)

    def _answers_with(self, route: str, status: int) -> Counter:
        """Return the counter of answers of a route with this status; to have the library find it takes longer."""
        if (route, status) not in self._answers:
            self._answers[route, status] = self._http.labels(route, status)
        return self._answers[route, status]

    def _histogram(self, name: str, what: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, what, ["work"], buckets=buckets, registry=self._registry)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(name, what, labels, registry=self._registry)

    def _gauge(self, name: str, what: str, *labels: str) -> Gauge:
        return Gauge(name, what, labels, registry=self._registry)

    def _new_series(self, work: str) -> _Series:
        return _Series(
            self._batches.labels(work),
            self._tokens.labels(work),
            self._inputs.labels(work),
            self._waits.labels(work),
            self._preparing.labels(work),
            self._seconds.labels(work),
            self._items.labels(work, "value"),
            self._items.labels(work, "error"),
            self._expired.labels(work),
            self._cancelled.labels(work),
            {reason: self._refused.labels(work, reason) for reason in REASONS},
        )


def _observe(series: _Series, computed: Computed, batch: Batch, numbers: Sequence[int]) -> None:
    """Count some of the inputs of a batch, all of one work."""
    series.seconds.observe(computed.seconds)
    own = [batch.items[number] for number in numbers]
    series.tokens.observe(sum(job.items[index].tokens for job, index in own))
    series.inputs.observe(len(own))
    for job, index in own:
        if index == 0:  # its first batch
            series.waits.observe(batch.started - job.arrived)
    errors = sum(computed.outcomes[number].error is not None for number in numbers)
    if errors:
        series.errors.inc(errors)
    series.values.inc(len(own) - errors)
