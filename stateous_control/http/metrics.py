"""Prometheus text from numbers that the engine already has. The only module that knows prometheus-client.

State names are labels: there are as many as the graph has. Ids never are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from stateous_control.engine.views import QueueView

__all__ = ["CONTENT_TYPE", "exposition"]

_PREFIX: Final = "stateous_control"
_BY_STATE: Final = (
    ("queue_depth", "Tasks that could be claimed now, by state.", "depth"),
    ("queue_delayed", "Tasks that become claimable later, by state.", "delayed"),
    ("tasks_running", "Tasks that a supervisor holds, by state.", "running"),
    (
        "tasks_unroutable",
        "Tasks that wait for a supervisor that serves their state and version.",
        "unroutable",
    ),
    ("queue_oldest_seconds", "How long the oldest claimable task has waited, by state.", "oldest_wait_s"),
)

_NOW: Final = {
    "tasks_unexplained": "Parked tasks without a reason, counted up to 11: there should be none; /health names them."
}


def exposition(counters: Mapping[str, Any], queues: Sequence[QueueView] | None) -> bytes:
    """Return the text of ``/metrics``.

    Args:
        counters: what the engine has counted since its start.
        queues: waiting work by state; None where the database did not answer.
    """
    registry = CollectorRegistry()
    registry.register(_Snapshot(counters, queues))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Snapshot(Collector):
    def __init__(self, counters: Mapping[str, Any], queues: Sequence[QueueView] | None) -> None:
        self._counters = counters
        self._queues = queues

    def collect(self) -> Iterable[Metric]:
        for name, value in self._counters.items():
            if name in _NOW:
                yield GaugeMetricFamily(f"{_PREFIX}_{name}", _NOW[name], value=value)
            elif isinstance(value, int | float):
                yield CounterMetricFamily(f"{_PREFIX}_{name}", f"{name} since the start.", value=value)
        yield GaugeMetricFamily(
            f"{_PREFIX}_database_up", "1 while the database answers.", value=self._queues is not None
        )
        if self._queues is not None:
            yield from _by_state(self._queues)


def _by_state(queues: Sequence[QueueView]) -> Iterator[Metric]:
    for name, text, field in _BY_STATE:
        gauge = GaugeMetricFamily(f"{_PREFIX}_{name}", text, labels=["state"])
        for queue in queues:
            gauge.add_metric([queue.state], getattr(queue, field))
        yield gauge
    unserved = GaugeMetricFamily(
        f"{_PREFIX}_state_unserved",
        "1 where work waits and no live supervisor serves the state.",
        labels=["state"],
    )
    for queue in queues:
        unserved.add_metric([queue.state], float(queue.depth > 0 and not queue.is_served))
    yield unserved
