#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kv_events.py - events of --kv-events, read with the classes of the real vLLM

usage: kv_events.py BUILD       by a Python that has vLLM, as build/peers/vllm/bin/python

A subscriber first hears vLLM's own publisher, live and by replay: so it speaks vLLM's protocol.
Then the same subscriber hears a daemon, whose client computes prompts that the pool has no room
for.  Each payload is decoded by vLLM's KVEventBatch, and the mirror must be what the daemon
says of each prompt.  At last the daemon publishes arrays, which classes of vLLM 0.23 decode.
"""
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import zmq
from vllm.distributed.kv_events import (AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch,
                                        ZmqEventPublisher)

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "python"), str(Path(__file__).parent)]
TOKENS, PROMPTS, LENGTH = 16, 60, 500
MEDIA = ("GPU", "CPU", "STORAGE")


def old(name, *fields):
    """A class of vLLM before 0.24: an array, its tag first."""
    return msgspec.defstruct(name, fields, array_like=True, omit_defaults=True, tag=True)


OPTIONAL = [(name, type_ | None, None) for name, type_ in (
    ("extra_keys", list), ("group_idx", int), ("kv_cache_spec_kind", str),
    ("kv_cache_spec_sliding_window", int))]
OLD_STORED = old("BlockStored", ("block_hashes", list[int]), ("parent_block_hash", int | None),
                 ("token_ids", list[int]), ("block_size", int), ("lora_id", int | None),
                 ("medium", str | None), ("lora_name", str | None), *OPTIONAL)
OLD_REMOVED = old("BlockRemoved", ("block_hashes", list[int]), ("medium", str | None),
                  ("group_idx", int | None, None))
OLD_CLEARED = old("AllBlocksCleared")
OLD_BATCH = msgspec.defstruct("KVEventBatch", [
    ("ts", float), ("events", list[OLD_STORED | OLD_REMOVED | OLD_CLEARED]),
    ("data_parallel_rank", int | None, None)], array_like=True, omit_defaults=True)


class Subscriber:
    def __init__(self, live, replay, batch=KVEventBatch):
        self.context, self.replay = zmq.Context(), replay
        self.live = self.context.socket(zmq.SUB)
        self.live.connect(live)
        self.live.setsockopt(zmq.SUBSCRIBE, b"")
        self.decoder = msgspec.msgpack.Decoder(batch)
        self.encoder = msgspec.msgpack.Encoder()
        self.next, self.batches, self.events, self.blocks = None, 0, 0, {}
        self.moved = dict.fromkeys(MEDIA, 0)

    def close(self):
        self.context.destroy(linger=0)

    def take(self, seq, payload):
        batch = self.decoder.decode(payload)
        assert self.decoder.decode(self.encoder.encode(batch)) == batch
        assert abs(batch.ts - time.time()) < 3600 and batch.data_parallel_rank == 0
        self.next = seq + 1
        self.batches += 1
        for event in batch.events:
            self.events += 1
            self.event(event)

    def event(self, event):
        if isinstance(event, (AllBlocksCleared, OLD_CLEARED)):
            self.blocks.clear()
        elif isinstance(event, (BlockRemoved, OLD_REMOVED)):
            for name in event.block_hashes:
                self.blocks[name][1].remove(event.medium)
                if not self.blocks[name][1]:
                    del self.blocks[name]
        else:
            assert isinstance(event, (BlockStored, OLD_STORED))
            self.stored(event)

    def stored(self, event):
        size, parent = event.block_size, event.parent_block_hash
        assert len(event.token_ids) == size * len(event.block_hashes)
        assert parent is None or parent in self.blocks
        for i, name in enumerate(event.block_hashes):
            ids = tuple(event.token_ids[i * size:(i + 1) * size])
            key = (parent, ids)
            known = self.blocks.setdefault(name, (key, set()))
            assert known[0] == key and event.medium not in known[1]
            self.moved[event.medium] += bool(known[1])
            known[1].add(event.medium)
            parent = name

    def hear(self, ms):
        while self.live.poll(ms):
            topic, seq, payload = self.live.recv_multipart()
            seq = int.from_bytes(seq, "big")
            if self.next is None or seq > self.next:
                self.ask()
            if seq == self.next:
                self.take(seq, payload)

    def ask(self):
        """Ask for the batches after the last one."""
        sock = self.context.socket(zmq.DEALER)
        sock.connect(self.replay)
        sock.send_multipart((b"", (self.next or 0).to_bytes(8, "big")))
        while True:
            assert sock.poll(10000), "no answer"
            empty, *_, seq, payload = sock.recv_multipart()
            if seq == ZmqEventPublisher.END_SEQ:
                break
            self.take(int.from_bytes(seq, "big"), payload)
        sock.close()

    def media(self, ids):
        """Tokens of a prompt on each medium."""
        index = {key: (name, on) for name, (key, on) in self.blocks.items()}
        tokens, parent = dict.fromkeys(MEDIA, 0), None
        for at in range(0, len(ids) - TOKENS + 1, TOKENS):
            name, on = index.get((parent, tuple(ids[at:at + TOKENS])), (None, ()))
            if name is None:
                break
            assert len(on) == 1
            tokens[next(iter(on))] += TOKENS
            parent = name
        return tokens


def check_vllm(folder):
    live, replay = f"ipc://{folder}/vllm", f"ipc://{folder}/vllm-replay"
    publisher = ZmqEventPublisher(0, live, replay)
    ids = list(range(32))
    stored = BlockStored(block_hashes=[1, 2], parent_block_hash=None, token_ids=ids, block_size=16,
                         lora_id=None, medium="GPU", lora_name=None)
    publisher.publish(KVEventBatch(ts=time.time(), events=[AllBlocksCleared(), stored]))
    sub = Subscriber(live, replay)
    time.sleep(0.5)
    publisher.publish(KVEventBatch(ts=time.time(), events=[
        BlockRemoved(block_hashes=[2], medium="GPU")]))
    sub.hear(1000)
    assert sub.next == 2 and sub.media(ids) == {"GPU": 16, "CPU": 0, "STORAGE": 0}
    sub.close()
    publisher.shutdown()
    print(f"vLLM's publisher: {sub.batches} batches heard, one of them by replay")


def compute(client, ids):
    seq = client.open(ids, max_tokens=0)
    cached = seq.wait_ready(timeout=20).valid_len
    with seq.step(ids[cached:]):
        pass
    seq.close()


def check_kvmm(build, folder, form, batch):
    import kvmm
    from daemon import Daemon
    live, replay = f"ipc://{folder}/live", f"ipc://{folder}/replay"
    daemon = Daemon(build, folder, "--pool-size", "1M", "--extent-size", "64K", "--min-token-bytes",
                    "64", "--host-size", "1M", "--kv-events", live, "--kv-events-replay", replay,
                    "--kv-events-format", form)
    sub = Subscriber(live, replay, batch)
    with kvmm.Client("peer", model="peer 1", layers=1, kv_heads=1, k_bytes=32, v_bytes=32) as client:
        prompts = [list(range(1000 * n, 1000 * n + LENGTH)) for n in range(PROMPTS)]
        for ids in prompts:
            compute(client, ids)
        sub.hear(1000)
        sub.ask()
        for ids in prompts:
            found, media = client.lookup(ids), sub.media(ids)
            assert (found.tokens["device"], found.tokens["host"]) == (media["GPU"], media["CPU"])
    sub.close()
    daemon.close()
    on = [sum(medium in on for _, on in sub.blocks.values()) for medium in MEDIA]
    print(f"kvmm, {form}: {sub.batches} batches of {sub.events} events decoded by {batch.__module__}."
          f"{batch.__name__}; {on[0]} blocks on GPU, {on[1]} on CPU, as the daemon says of "
          f"{PROMPTS} prompts; {sub.moved['CPU']} moved")


def main():
    build = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        check_vllm(folder)
    for form, batch in (("map", KVEventBatch), ("array", OLD_BATCH)):
        with tempfile.TemporaryDirectory() as folder:
            check_kvmm(build, Path(folder), form, batch)


if __name__ == "__main__":
    main()
