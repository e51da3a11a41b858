#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the traces of this folder; README.md describes them and their format.

    make_traces.py chats TRACE.jsonl > chats.txt     from a trace of Mooncake
    make_traces.py agents > agents.txt               from a seed
"""

import heapq
import json
import math
import sys

BLOCK = 512		# tokens

# ---- the form of a trace ----


class Writer:
    """Requests as differences; a chain is a list of names of blocks."""

    def __init__(self):
        self.at = 0
        self.nr = 0
        self.last = {}		# name of a block -> the last request that has it
        self.lines = []

    def add(self, at, tokens, output, chain):
        assert len(chain) == -(-tokens // BLOCK) and chain
        shared = 0
        while shared < len(chain) and chain[shared] in self.last:
            shared += 1
        line = [at - self.at, tokens, output]
        if shared:
            line += [self.nr - self.last[chain[shared - 1]], shared]
        self.lines.append(" ".join(map(str, line)))
        for name in chain:
            self.last[name] = self.nr
        self.at = at
        self.nr += 1

    def write(self):
        print(f"# trace of {self.nr} requests, blocks of {BLOCK} tokens")
        print("\n".join(self.lines))


def chats(path):
    out = Writer()
    up = {}
    with open(path, encoding="ascii") as f:
        for line in f:
            r = json.loads(line)
            chain = r["hash_ids"]
            for i, name in enumerate(chain):
                assert up.setdefault(name, chain[:i][-1:]) == chain[:i][-1:]
            out.add(r["timestamp"], r["input_length"], r["output_length"], chain)
    out.write()


# ---- agents ----

REQUESTS = 10000
LONGEST = 160		# blocks of a context; then the agent writes a summary
KINDS = 24		# of agents
CLERKS = 6		# prompts of single calls: a classifier, a title


class Random:
    """splitmix64, so that the seed is a trace on every machine"""

    def __init__(self, seed):
        self.s = seed

    def u64(self):
        mask = (1 << 64) - 1
        self.s = x = (self.s + 0x9E3779B97F4A7C15) & mask
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    def unit(self):
        return ((self.u64() >> 11) + 0.5) / (1 << 53)

    def within(self, low, high):
        return low + self.u64() % (high - low + 1)

    def chance(self, percent):
        return self.within(1, 100) <= percent

    def pause(self, mean):
        return -math.log(self.unit()) * mean

    def normal(self):
        return (math.sqrt(-2 * math.log(self.unit())) *
                math.cos(2 * math.pi * self.unit()))

    def about(self, median, spread, most):
        """Tokens, of log-normal size."""
        return int(min(max(median * math.exp(spread * self.normal()), 1), most))

    def zipf(self, nr, exponent):
        weights = [(i + 1) ** -exponent for i in range(nr)]
        x = self.unit() * sum(weights)
        for i, w in enumerate(weights):
            x -= w
            if x < 0:
                return i
        return nr - 1


class Text:
    """A prompt: the parts that it is made of, each with a length in tokens."""

    def __init__(self, parts=()):
        self.parts = list(parts)

    def tokens(self):
        return sum(n for _, n in self.parts)

    def add(self, name, tokens):
        return Text(self.parts + [(name, tokens)])

    def chain(self):
        """A block has a name made of all parts, and places in them, up to its end."""
        names, done, end = [], (), 0
        for name, n in self.parts:
            done += (name,)
            last = end + n
            while end // BLOCK < last // BLOCK:
                end = (end // BLOCK + 1) * BLOCK
                names.append((hash_of(done), end))
            end = last
        if end % BLOCK:
            names.append((hash_of(done), end))
        return names


def hash_of(parts):
    h = 0xCBF29CE484222325
    for p in parts:
        h = ((h ^ p) * 0x100000001B3) & ((1 << 64) - 1)
        h ^= h >> 29
    return h


class Agents:
    def __init__(self, seed):
        self.r = Random(seed)
        self.out = Writer()
        self.queue = []
        self.nr_parts = 0
        self.tie = 0
        self.systems = [self.fresh(self.r.within(2500, 26000)) for _ in range(KINDS)]
        self.helpers = [self.fresh(self.r.within(1500, 6000)) for _ in range(6)]
        self.clerks = [self.fresh(self.r.within(600, 6500)) for _ in range(CLERKS)]

    def part(self):
        self.nr_parts += 1
        return self.nr_parts

    def fresh(self, tokens):
        return Text([(self.part(), tokens)])

    def at(self, when, what, *args):
        self.tie += 1
        heapq.heappush(self.queue, (when, self.tie, what, args))

    def ask(self, now, text):
        """Return: the answer's length."""
        output = self.r.about(120, 1.0, 4000)
        self.out.add(int(now), text.tokens(), output, text.chain())
        return output

    def task(self, now):
        """A new task for an agent; another one comes later."""
        self.at(now + self.r.pause(4000), self.task)
        kind = self.r.zipf(KINDS, 1.0)
        if self.r.chance(2):		# its tools or instructions change
            self.systems[kind] = self.fresh(self.r.within(2500, 26000))
        text = self.systems[kind].add(self.part(), self.r.about(900, 1.3, 30000))
        self.step(now, text, self.r.within(1, 6) * self.r.within(1, 6), None, kind)

    def step(self, now, text, left, boss, kind):
        """One call of the model.  @boss: the agent that waits for this one."""
        if text.tokens() > LONGEST * BLOCK:
            text = self.systems[kind].add(self.part(), self.r.within(1500, 6000))
        output = self.ask(now, text)
        took = 300 + 20 * output
        if self.r.chance(4):		# the call failed: the same again
            self.at(now + 1000 * self.r.within(1, 20), self.step, text, left,
                    boss, kind)
            return
        if not left:
            self.finish(now + took, boss)
            return
        before, text = text, text.add(self.part(), output)
        if boss is None and self.r.chance(9):
            self.fork(now + took, text, left, kind)
            return
        result = text.add(self.part(), self.r.about(1500, 1.2, 30000))
        if self.r.chance(3):		# back to the step before: another try
            result = before.add(self.part(), self.r.about(300, 1.0, 4000))
        pause = self.r.about(4000, 1.3, 600000)
        if self.r.chance(8):		# a person is asked
            pause += self.r.pause(400000)
        self.at(now + took + pause, self.step, result, left - 1, boss, kind)

    def fork(self, now, text, left, kind):
        """Agents below this one; it goes on when all of them are done."""
        nr = self.r.within(1, 4)
        boss = {"left": nr, "text": text, "steps": left, "kind": kind}
        whole = self.r.chance(40)	# they know all that it knows
        for _ in range(nr):
            base = text if whole else self.r_helper()
            self.at(now + self.r.within(0, 2000), self.step,
                    base.add(self.part(), self.r.about(300, 0.8, 4000)),
                    self.r.within(1, 8), boss, kind)

    def r_helper(self):
        return self.helpers[self.r.zipf(len(self.helpers), 0.8)]

    def finish(self, now, boss):
        if boss is None:
            return
        boss["left"] -= 1
        if not boss["left"]:
            text = boss["text"].add(self.part(), self.r.about(1200, 0.8, 12000))
            self.at(now, self.step, text, boss["steps"] - 1 if boss["steps"] else 0,
                    None, boss["kind"])

    def clerk(self, now):
        """A single call: a long prompt that many share, and a short text."""
        self.at(now + self.r.pause(1800), self.clerk)
        self.ask(now, self.clerks[self.r.zipf(CLERKS, 1.0)].add(
            self.part(), self.r.about(250, 0.9, 8000)))

    def timer(self, now, text, period):
        """The same prompt at fixed times, with news at its end."""
        self.at(now + period, self.timer, text, period)
        self.ask(now, text.add(self.part(), self.r.about(600, 0.7, 4000)))

    def run(self):
        self.at(0, self.task)
        self.at(0, self.clerk)
        for _ in range(12):
            self.at(self.r.within(0, 600000), self.timer,
                    self.fresh(self.r.within(4000, 30000)),
                    1000 * self.r.within(60, 900))
        while self.out.nr < REQUESTS:
            when, _, what, args = heapq.heappop(self.queue)
            what(when, *args)
        self.out.write()


if __name__ == "__main__":
    if sys.argv[1:2] == ["chats"]:
        chats(sys.argv[2])
    else:
        Agents(1).run()
