#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write runtime/tokenizer/unicode_newer.h.

usage: python3 make_unicode_newer.py > ../../runtime/tokenizer/unicode_newer.h

Asks two libraries for the general category of every code point: PCRE2 of
Debian 12 (Unicode 14), and Oniguruma inside of Hugging Face's `tokenizers`
from PyPI, whose splits are the measure.  What they disagree on goes into the
table.  Needs libpcre2-32-0 and `tokenizers`.
"""
import ctypes
import sys

from tokenizers import Regex, __version__, pre_tokenizers

CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po "
              "Sm Sc Sk So Zs Zl Zp").split()
UTF_UCP = 0x00080000 | 0x00020000
POINTS = [c for c in range(0x110000) if not 0xd800 <= c < 0xe000]


def by_tokenizers():
    """Code point -> category, as Oniguruma has it."""
    got = {}
    for cat in CATEGORIES:
        split = pre_tokenizers.Split(Regex(r"\p{%s}+" % cat), "removed",
                                     invert=True)
        for at in range(0, len(POINTS), 65536):
            text = "".join(map(chr, POINTS[at:at + 65536]))
            for run, _ in split.pre_tokenize_str(text):
                got.update((ord(c), cat) for c in run)
    return got


def by_pcre2():
    """Code point -> category, as PCRE2 has it."""
    lib = ctypes.CDLL("libpcre2-32.so.0")
    lib.pcre2_compile_32.restype = ctypes.c_void_p
    lib.pcre2_match_data_create_32.restype = ctypes.c_void_p
    lib.pcre2_get_ovector_pointer_32.restype = ctypes.POINTER(ctypes.c_size_t)
    text = (ctypes.c_uint32 * len(POINTS))(*POINTS)
    data = ctypes.c_void_p(lib.pcre2_match_data_create_32(1, None))
    got = {}
    for cat in CATEGORIES:
        src = r"\p{%s}+" % cat
        pattern = (ctypes.c_uint32 * len(src))(*map(ord, src))
        err, off = ctypes.c_int(), ctypes.c_size_t()
        code = ctypes.c_void_p(lib.pcre2_compile_32(
            pattern, ctypes.c_size_t(len(src)), UTF_UCP, ctypes.byref(err),
            ctypes.byref(off), None))
        at = 0
        while lib.pcre2_match_32(code, text, ctypes.c_size_t(len(POINTS)),
                                 ctypes.c_size_t(at), 0, data, None) > 0:
            bounds = lib.pcre2_get_ovector_pointer_32(data)
            got.update((c, cat) for c in POINTS[bounds[0]:bounds[1]])
            at = bounds[1]
    return got


def main():
    theirs, ours = by_tokenizers(), by_pcre2()
    ranges = []
    for c in sorted(theirs):
        if theirs[c] == ours.get(c):
            continue
        if ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == theirs[c]:
            ranges[-1][1] = c
        else:
            ranges.append([c, c, theirs[c]])
    print("""\
/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unicode_newer.h - code points younger than PCRE2's Unicode
 *
 * Made by tests/data/make_unicode_newer.py with tokenizers %s.
 * x(first, last, category)
 */
#ifndef KVRT_TOKENIZER_UNICODE_NEWER_H
#define KVRT_TOKENIZER_UNICODE_NEWER_H

#define UNICODE_NEWER(x)	\\""" % __version__)
    for i, (lo, hi, cat) in enumerate(ranges):
        end = "\t\\" if i + 1 < len(ranges) else ""
        print('\tx(0x%05x, 0x%05x, "%s")%s' % (lo, hi, cat, end))
    print("\n#endif /* KVRT_TOKENIZER_UNICODE_NEWER_H */")
    return 0


if __name__ == "__main__":
    sys.exit(main())
