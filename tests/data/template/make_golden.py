#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write golden.json: what Jinja2 makes of templates.

usage: make_golden.py [--jobs N] OUTPUT [TEMPLATE..]

With the names of TEMPLATE files, those; without, the *.jinja beside this script
and the lines of snippets.txt (a line that begins with a blank continues the one
before it).  Each template is rendered with each conversation of chats.py, each
snippet with the variables below.  Needs jinja2 3.1.6 from PyPI.
"""
import argparse
import collections
import glob
import json
import multiprocessing
import os

import chats
import render

HERE = os.path.dirname(os.path.abspath(__file__))

VARIABLES = {
    "user": {"name": "Ada", "tags": ["x", "y"], "n": 1},
    "shadow": {"items": "mine", "pop": 1},
    "numbers": [1, 2, 3, 4, 5],
    "people": [
        {"name": "Al", "age": 30, "team": "b", "tags": ["q"]},
        {"name": "Bo", "age": 20, "team": "a", "tags": []},
        {"name": "Cy", "age": 30, "team": "a", "tags": ["r", "s"]}],
    "big": 9007199254740993, "real": 1.25, "flag": True, "nil": None,
    "deep": {"a": {"b": {"c": [{"d": "found"}]}}},
}


def snippets():
    with open(os.path.join(HERE, "snippets.txt"), encoding="utf8") as f:
        found = []
        for line in f.read().split("\n"):
            if found and (line[:1] in (" ", "\t", "") or
                          line.startswith("b' }}")):
                found[-1] += "\n" + line
            else:
                found.append(line)
    return [s.rstrip("\n") for s in found]


def render_all(source):
    return render.outcomes(render.environment(), source,
                           [chats.variables(name) for name in chats.CHATS])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("output")
    parser.add_argument("template", nargs="*")
    args = parser.parse_args()
    files = args.template or sorted(glob.glob(os.path.join(HERE, "*.jinja")))
    out = {"now": render.NOW, "templates": {}, "want": {}, "snippets": [],
           "chats": {n: chats.variables(n) for n in chats.CHATS},
           "variables": VARIABLES}
    for name in files:
        with open(name, encoding="utf8", newline="") as f:
            out["templates"][os.path.basename(name)] = f.read()
    with multiprocessing.Pool(args.jobs) as pool:
        wants = pool.map(render_all, out["templates"].values(), 4)
    out["want"] = dict(zip(out["templates"], wants))
    env = render.environment()
    if not args.template:
        out["snippets"] = [[s] + render.outcomes(env, s, [VARIABLES])[0]
                           for s in snippets()]
    with open(args.output, "w", encoding="utf8") as f:
        json.dump(out, f, ensure_ascii=True, indent=0)
        f.write("\n")
    kinds = collections.Counter(w[0] for want in wants for w in want)
    print("%d templates, %d conversations: %s; %d snippets: %s" % (
        len(wants), len(chats.CHATS), dict(kinds), len(out["snippets"]),
        dict(collections.Counter(s[1] for s in out["snippets"]))))


if __name__ == "__main__":
    main()
