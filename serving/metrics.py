"""What a server did and does, as Prometheus reads it.  All series exist from the start, and no label is a client's."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from serving.engine import Computed
from serving.service import Service

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_TOKENS = tuple(float(1 << n) for n in range(3, 16))


class Metrics:
    """The metrics of a service; each model and operation is a label `work`, such as films/predict."""

    content_type = CONTENT_TYPE_LATEST.encode()

    def __init__(self, service: Service):
        self._service, self._registry = service, CollectorRegistry()
        self._batches = self._histogram("ernie_batch_seconds", "The time of a batch.", _SECONDS)
        self._tokens = self._histogram("ernie_batch_tokens", "The tokens of a batch.", _TOKENS)
        self._waits = self._histogram("ernie_wait_seconds", "From a request's arrival to its batch.", _SECONDS)
        self._items = Counter("ernie_items", "Inputs that were computed.", ["work", "outcome"], registry=self._registry)
        self._expired = self._counter("ernie_expired", "Requests whose time was over.")
        self._refused = self._counter("ernie_refused", "Requests that were refused.")
        self._cancelled = self._counter("ernie_cancelled", "Requests that were taken back.")
        self._http = Counter("ernie_http_requests", "Requests of HTTP.", ["route", "status"], registry=self._registry)
        self._fixed = Gauge("ernie_cost_fixed_seconds", "The fit's a.", ["work"], registry=self._registry)
        self._per_token = Gauge("ernie_cost_token_seconds", "The fit's b.", ["work"], registry=self._registry)
        jobs = Gauge("ernie_waiting_requests", "Requests that wait for a batch.", registry=self._registry)
        tokens = Gauge("ernie_waiting_tokens", "Tokens that wait for a batch.", registry=self._registry)
        jobs.set_function(lambda: service.engine.waiting[0])
        tokens.set_function(lambda: service.engine.waiting[1])
        service.observers.append(self)

    def text(self) -> bytes:
        """Return all metrics."""
        for model in self._service.models.values():
            for work in model.work.values():
                self._register(work.name)
                self._fixed.labels(work.name).set(work.cost.fixed)
                self._per_token.labels(work.name).set(work.cost.per_token)
        return bytes(generate_latest(self._registry))

    def _histogram(self, name: str, what: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, what, ["work"], buckets=buckets, registry=self._registry)

    def _counter(self, name: str, what: str) -> Counter:
        return Counter(name, what, ["work"], registry=self._registry)

    def _register(self, work: str) -> None:
        """Create the series of a model's operation, at zero."""
        for metric in (self._batches, self._tokens, self._waits, self._expired, self._refused, self._cancelled):
            metric.labels(work)
        for outcome in ("value", "error"):
            self._items.labels(work, outcome)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request of HTTP."""
        self._http.labels(route, status).inc()

    def refused(self, work: str) -> None:
        self._refused.labels(work).inc()

    def cancelled(self, work: str) -> None:
        self._cancelled.labels(work).inc()

    def computed(self, computed: Computed) -> None:
        for job in computed.expired:
            self._expired.labels(job.lane.name).inc()
        batch = computed.batch
        if batch is None:
            return
        name = batch.lane.name
        self._batches.labels(name).observe(computed.seconds)
        self._tokens.labels(name).observe(batch.tokens)
        for job in {job: None for job, _ in batch.items}:
            self._waits.labels(name).observe(batch.started - job.arrived)
        errors = sum(outcome.error is not None for outcome in computed.outcomes)
        self._items.labels(name, "error").inc(errors)
        self._items.labels(name, "value").inc(len(computed.outcomes) - errors)
