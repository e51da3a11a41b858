# SPDX-License-Identifier: Apache-2.0
"""texts.py - texts that tokenizers find hard, from a seed

Words of many languages, emoji sequences, code, bytes taken for text, runs of
spaces, digits and punctuation, any code point, marks in any order, tokens of
the vocabulary side by side, and added tokens with and without space around.
"""
import random

WORDS = (
    "the of and to in is that it was for don't I'LL we've you're it's o'clock "
    "Die Größe Straße Übermaß naïve café façade l'été où ça Noël señor niño "
    "¿Qué ¡Hola! corazón São Paulo não ação Łódź żółć Příliš žluťoučký kůň "
    "Ελληνικά γλώσσα Привет мир Ёлка не́бо Київ їжак Հայերեն ქართული עברית "
    "שָׁלוֹם العربية السَّلَامُ فارسی می‌خواهم हिन्दी क्षत्रिय தமிழ் తెలుగు "
    "ภาษาไทย ที่นี่ ພາສາລາວ မြန်မာ ភាសាខ្មែរ 한국어 안녕하세요 각 日本語 "
    "こんにちは カタカナ ﾊﾝｶｸ 漢字 中文 你好世界 繁體 𠮷野家 Tiếng Việt đường "
    "ﬁn ﬂow Ａｂｃ ①②③ ½ ㎏ ㍿ Å Å é é ǆ ﷺ ẛ̣ ͅ ö̲ a̐éö̲").split()
EMOJI = ("😀 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 ❤️ ☺ 🧑🏿‍🚀 #️⃣ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🫠 🤌🏻 ⚕️ ✈️ ™ © "
         "𝒜𝓑 𝕏 ㊗️").split()
CODE = [
    "def f(x):\n\treturn x**2 + 0x1F  # été\n", "for (i = 0; i < n; i++) {\n",
    "    if (!p)\n        return -ENOMEM;\n", "#include <stdio.h>\r\n",
    "SELECT * FROM t WHERE a='b' AND c>=3.14;", "https://a.b/c?d=e&f=%20g#h",
    "{\"k\": [1, 2, null, true], \"s\": \"\\u00e9\\n\"}", "a->b.c::d<T&&>",
    "<div class=\"x\">&nbsp;</div>", "\\frac{\\alpha}{2}$$", "@media{}/*!*/",
    "192.168.0.1:8080", "2024-02-29T23:59:60Z", "1,234,567.89e-10", "~/.x_y",
    "==========", "----", "...", "!?!?", "\t\t", "___init__", "camelCaseWord"]
SPACES = " \t\n\r\x0b\x0c\x85\xa0\u1680\u2003\u2028\u3000\u200b\u200d\ufeff"
MARKS = "\u0300\u0301\u0316\u0323\u0334\u0345\u05b0\u064b\u0e38\u302a\u3099"


def any_point(rnd):
    while True:
        c = rnd.choice((rnd.randrange(0x80), rnd.randrange(0x800),
                        rnd.randrange(0x10000), rnd.randrange(0x30000),
                        rnd.randrange(0x110000)))
        if not 0xd800 <= c < 0xe000:
            return chr(c)


def run(rnd):
    c = rnd.choice(" \n\t0123456789aA.-=_é你▁\u0301")
    return c * int(2 ** rnd.uniform(0, 7))


def piece(rnd, names, added):
    """One of the kinds of text above."""
    kind = rnd.randrange(14)
    if kind < 4:
        return rnd.choice(("", " ", " ", "  ")) + rnd.choice(WORDS)
    if kind == 4:
        return rnd.choice(EMOJI)
    if kind == 5:
        return rnd.choice(CODE)
    if kind == 6:
        return rnd.randbytes(rnd.randrange(1, 12)).decode(
            rnd.choice(("latin-1", "utf-8")), "replace")
    if kind == 7:
        return run(rnd)
    if kind == 8:
        return "".join(rnd.choice(SPACES)
                       for _ in range(rnd.randrange(1, 5)))
    if kind == 9:
        return str(rnd.randrange(10 ** rnd.randrange(1, 20)))
    if kind == 10:
        return "".join(any_point(rnd) for _ in range(rnd.randrange(1, 6)))
    if kind == 11:
        return rnd.choice("aeoé나か") + "".join(
            rnd.choice(MARKS) for _ in range(rnd.randrange(1, 6)))
    if kind == 12 and names:
        return "".join(rnd.choice(names) for _ in range(rnd.randrange(1, 4)))
    if added and not rnd.randrange(3):
        return rnd.choice(("", " ", "  ", "\n")) + rnd.choice(added) + \
            rnd.choice(("", " ", " \n", "x"))
    return rnd.choice("abcdefghijklmnopqrstuvwxyzABC") * rnd.randrange(1, 4)


def texts(seed, count, names=(), added=()):
    """@count texts; @names and @added are tokens to make some of."""
    rnd = random.Random(seed)
    names, added = sorted(names), sorted(added)
    for _ in range(count):
        n = rnd.randrange(1, 4 + rnd.randrange(16))
        yield "".join(piece(rnd, names, added) for _ in range(n))
