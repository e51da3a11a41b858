# SPDX-License-Identifier: Apache-2.0
"""The state of a sequence of llama.cpp, cut into blocks of tokens and put together again.

llama.cpp gives the state as one piece: a head, the cells with their positions, a tensor of each
layer for K, and one for V.  A tensor of K has the tokens one after the other.  So has one of V
with flash attention; without it, it has the tokens of each channel one after the other.  A block
has the tokens of a range of all tensors, so the blocks of one prefix are those of each longer one.

The form is no promise of llama.cpp.  parse() refuses what it does not know in full.
"""
import struct
from array import array
from dataclasses import dataclass

MAGIC = 0xaf143cd8
HEAD = struct.Struct("=IiII")       # magic, sequence, streams, cells
LAYERS = struct.Struct("=II")       # is V in channels?, layers
ROWS = struct.Struct("=iQ")         # of a tensor: type, bytes of a token
CHANNELS = struct.Struct("=iII")    # type, bytes of a token in a channel, channels
CELL = 12
MOST_LAYERS = 4096
UNITS = ((8, "Q"), (4, "I"), (2, "H"), (1, "B"))


class Unknown(Exception):
    """The state has another form."""


@dataclass(frozen=True)
class Tensor:
    head: bytes
    rows: int           # channels; 1: a token is in one piece
    item: int           # bytes of a token in a row


def _cells(nr, seq):
    """The cells of the first @nr tokens: position, number of sequences, sequence."""
    cells = array("i", bytes(CELL * nr))
    cells[0::3] = array("i", range(nr))
    cells[1::3] = array("i", [1]) * nr
    cells[2::3] = array("i", [seq]) * nr
    return cells.tobytes()


def _copy(to, to_at, to_step, source, at, step, rows, size):
    """Copy @size bytes of each of @rows rows, which begin @step bytes after each other."""
    if rows == 1:
        to[to_at:to_at + size] = source[at:at + size]
        return
    # A loop over the units of a row, since a slice with a step is copied at once.
    unit, code = next(u for u in UNITS if not (size % u[0] or to_step % u[0] or step % u[0]))
    to = to[to_at:to_at + (rows - 1) * to_step + size].cast(code)
    source = source[at:at + (rows - 1) * step + size].cast(code)
    for i in range(size // unit):
        to[i::to_step // unit] = source[i::step // unit]


@dataclass(frozen=True)
class Form:
    """All of a state but its length and its content."""
    channels: int       # is V in channels?
    layers: int
    tensors: tuple

    @property
    def token_bytes(self):
        return sum(t.rows * t.item for t in self.tensors)

    def size(self, nr):
        """The bytes of the state of @nr tokens."""
        heads = sum(len(t.head) for t in self.tensors)
        return HEAD.size + LAYERS.size + heads + (CELL + self.token_bytes) * nr

    def empty(self, nr):
        """The state of @nr tokens without content."""
        state = memoryview(bytearray(self.size(nr)))
        HEAD.pack_into(state, 0, MAGIC, 0, 1, nr)
        at = HEAD.size
        state[at:at + CELL * nr] = _cells(nr, 0)
        LAYERS.pack_into(state, at + CELL * nr, self.channels, self.layers)
        for t, start in self._places(nr):
            state[start - len(t.head):start] = t.head
        return state

    def _places(self, nr):
        """Each tensor, and where its content begins."""
        at = HEAD.size + CELL * nr + LAYERS.size
        for t in self.tensors:
            at += len(t.head)
            yield t, at
            at += t.rows * t.item * nr

    def take(self, state, nr, block, tokens, out):
        """Copy block number @block, of @tokens tokens, of the state of @nr tokens to @out."""
        at = 0
        for t, start in self._places(nr):
            run = tokens * t.item
            _copy(out, at, run, state, start + block * run, nr * t.item, t.rows, run)
            at += t.rows * run

    def give(self, state, nr, block, tokens, source):
        """Likewise from @source to the state."""
        at = 0
        for t, start in self._places(nr):
            run = tokens * t.item
            _copy(state, start + block * run, nr * t.item, source, at, run, t.rows, run)
            at += t.rows * run


def parse(state):
    """(the form of @state, the number of its tokens)"""
    try:
        return _parse(state)
    except struct.error:
        raise Unknown("the state is too short") from None


def _parse(state):
    magic, seq, streams, nr = HEAD.unpack_from(state)
    if magic != MAGIC:
        raise Unknown(f"the state has the mark {magic:#x}")
    if streams != 1:
        raise Unknown(f"the cache has {streams} streams")
    at = HEAD.size + CELL * nr
    if nr == 0 or state[HEAD.size:at] != _cells(nr, seq):
        raise Unknown("the cells are not those of the tokens from the first on")
    channels, layers = LAYERS.unpack_from(state, at)
    if channels > 1 or not 1 <= layers <= MOST_LAYERS:
        raise Unknown(f"{layers} layers, and {channels} for the order of V")
    at += LAYERS.size
    tensors = []
    while at < len(state):
        t = _tensor(state, at, channels and len(tensors) >= layers)
        at += len(t.head) + t.rows * t.item * nr
        tensors.append(t)
    if at != len(state) or not layers <= len(tensors) <= 2 * layers:
        raise Unknown("the tensors do not fill the state: several caches, or another kind")
    return Form(channels, layers, tuple(tensors)), nr


def _tensor(state, at, in_channels):
    if in_channels:
        _, item, rows = CHANNELS.unpack_from(state, at)
        size = CHANNELS.size
    else:
        _, item = ROWS.unpack_from(state, at)
        rows, size = 1, ROWS.size
    if not item or not rows:
        raise Unknown("a tensor without content")
    return Tensor(bytes(state[at:at + size]), rows, item)


def check(state, tokens):
    """Parse @state, cut it into blocks of @tokens tokens, and put them together again.

    Return: the form and a state that is equal.  Raise Unknown if it is not.
    """
    form, nr = parse(state)
    again = form.empty(nr)
    HEAD.pack_into(again, 0, *HEAD.unpack_from(state))
    again[HEAD.size:HEAD.size + CELL * nr] = state[HEAD.size:HEAD.size + CELL * nr]
    block = memoryview(bytearray(form.token_bytes * tokens))
    for i in range(nr // tokens):
        form.take(state, nr, i, tokens, block)
        form.give(again, nr, i, tokens, block)
    if nr % tokens or again != state:
        raise Unknown("the state could not be put together again")
    return form, again
