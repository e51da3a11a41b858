# SPDX-License-Identifier: Apache-2.0
"""The counters of the connector, in vLLM's log and among its metrics."""
from collections import Counter

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics, KVConnectorStats)

# name: what is counted; the metric is vllm:kvmm_NAME_total
COUNTERS = {
    "lookups": "Lookups of the blocks of a request.",
    "late_lookups": "Lookups that were not answered in time.",
    "loaded_blocks": "Blocks that were loaded.",
    "loaded_bytes": "Bytes that were loaded.",
    "load_seconds": "Seconds from the order of a load to its end, over all loads.",
    "failed_loads": "Loads of which at least one block could not be had; vLLM computes it.",
    "saved_blocks": "Blocks that were saved.",
    "saved_bytes": "Bytes that were saved.",
    "save_seconds": "Seconds from the order of a save to its end, over all saves.",
    "dropped_blocks": "Blocks that were not saved: no memory, no time, or no daemon.",
}


class KvmmStats(KVConnectorStats):
    """data: {name of a counter: what was added since the last report}"""

    def reset(self):
        self.data = {}

    def aggregate(self, other):
        self.data = dict(Counter(self.data) + Counter(other.data))
        return self

    def reduce(self):
        return {f"kvmm_{name}": round(self.data[name], 6)
                for name in COUNTERS if name in self.data}

    def is_empty(self):
        return not self.data


class KvmmMetrics(KVConnectorPromMetrics):
    """vllm:kvmm_*_total, with the labels of vLLM's other metrics."""

    def __init__(self, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._children = {}
        for name, text in COUNTERS.items():
            counter = self._counter_cls(name=f"vllm:kvmm_{name}", documentation=text,
                                        labelnames=labelnames)
            for engine, values in per_engine_labelvalues.items():
                self._children[engine, name] = counter.labels(*values)

    def observe(self, transfer_stats_data, engine_idx=0):
        for name, value in transfer_stats_data.items():
            self._children[engine_idx, name].inc(value)
