#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write runtime/tokenizer/unicode_forms.h.

usage: python3 make_unicode_forms.py > ../../runtime/tokenizer/unicode_forms.h

Asks two libraries about every code point: utf8proc of Debian 12 (Unicode 15),
and Hugging Face's `tokenizers` from PyPI, whose results are the measure: its
normal forms, marks and punctuation are those of Unicode 9 and 8, its lower
case and digits those of 17.  What they disagree on goes into the tables.
Tables for patterns have their digits alone.  Needs libutf8proc2 and
`tokenizers`.
"""
import ctypes
import sys

from tokenizers import Regex, __version__, normalizers, pre_tokenizers

STABLE, COMPAT, COMPOSE, DECOMPOSE = 2, 4, 8, 16
MARKS = (6, 7, 8)
POINTS = [c for c in range(1, 0x110000) if not 0xd800 <= c < 0xe000]
LIB = ctypes.CDLL("libutf8proc.so.2")
LIBC = ctypes.CDLL(None)


def mapped(text, options):
    """@text in a normal form, as utf8proc has it."""
    out, raw = ctypes.c_void_p(), text.encode()
    n = LIB.utf8proc_map(raw, ctypes.c_ssize_t(len(raw)), ctypes.byref(out),
                         options)
    got = ctypes.string_at(out, n).decode()
    LIBC.free(out)
    return got


def unknown_points():
    """What `tokenizers` has no decomposition and no combining class for."""
    forms = [(normalizers.NFD(), STABLE | DECOMPOSE),
             (normalizers.NFKD(), STABLE | DECOMPOSE | COMPAT)]
    for c in POINTS:
        for text in (chr(c), "a%c\u0334" % c, "a\u0345%c" % c):
            if any(form.normalize_str(text) != mapped(text, options)
                   for form, options in forms):
                yield c
                break


def removed(splitter):
    """Code points that a splitter takes away."""
    return {c for c in POINTS
            if chr(c) not in [p for p, _ in splitter.pre_tokenize_str(chr(c))]}


def regex(pattern):
    return removed(pre_tokenizers.Split(Regex(pattern), "removed"))


def lower_pairs():
    """(code point, its lower case) where utf8proc has another."""
    form = normalizers.Lowercase()
    for c in POINTS:
        low = form.normalize_str(chr(c))
        if len(low) == 1 and ord(low) != LIB.utf8proc_tolower(c):
            yield c, ord(low)


def flipped_marks():
    form = normalizers.StripAccents()
    return [c for c in POINTS
            if (not form.normalize_str(chr(c))) !=
            (LIB.utf8proc_category(c) in MARKS)]


def ranges(points):
    got = []
    for c in sorted(points):
        if got and got[-1][1] == c - 1:
            got[-1][1] = c
        else:
            got.append([c, c])
    return got


def table(name, what, rows, digits="0x%05x"):
    print("\n/* %s */\n#define %s(x)\t\\" % (what, name))
    for i, row in enumerate(rows):
        print("\tx(%s)%s" % (", ".join(digits % c for c in row),
                             "\t\\" if i + 1 < len(rows) else ""))


def main():
    print("""\
/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unicode_forms.h - where the Unicode of utf8proc is not that of the measure
 *
 * Made by tests/data/make_unicode_forms.py with tokenizers %s.
 */
#ifndef KVRT_TOKENIZER_UNICODE_FORMS_H
#define KVRT_TOKENIZER_UNICODE_FORMS_H""" % __version__)
    table("UNICODE_UNKNOWN", "No decomposition, no combining class: x(first, "
          "last)", ranges(unknown_points()))
    table("UNICODE_FLIPPED_MARKS", "A mark for one, none for the other: "
          "x(first, last)", ranges(flipped_marks()))
    table("UNICODE_LOWER", "Another lower case: x(code point, lower)",
          list(lower_pairs()))
    punctuation = removed(pre_tokenizers.Punctuation("removed"))
    table("UNICODE_NOT_PUNCTUATION", "Of category P, but younger: x(first, "
          "last)", ranges(regex(r"\p{P}") - punctuation), "%05x")
    table("UNICODE_PUNCTUATION", "Not of category P, but taken for it: "
          "x(first, last)", ranges(punctuation - regex(r"\p{P}")), "%05x")
    digits = {c for c in POINTS if len(pre_tokenizers.Digits(
        ).pre_tokenize_str("a%cb" % c)) == 3}
    table("UNICODE_DIGITS", "Numeric, but of no category N: x(first, last)",
          ranges(digits - regex(r"\p{N}")), "%05x")
    table("UNICODE_WORD", "Alphabetic, but not of category L, M, Nd, Nl, Pc: "
          "x(first, last)", ranges(
              {c for c in regex(r"\w") if c > 0xff} -
              regex(r"[\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}]")), "%05x")
    print("\n#endif /* KVRT_TOKENIZER_UNICODE_FORMS_H */")
    return 0


if __name__ == "__main__":
    sys.exit(main())
