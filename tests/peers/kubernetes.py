#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kubernetes.py - the manifests of kvmm/dist/kubernetes, without a cluster

    python3 tests/peers/kubernetes.py [BUILD]

It needs kubernetes-validate of PyPI, which has the schemas of Kubernetes and needs no
network.  Three parts:

schemas  each object, strictly, by the schemas of each version from 1.28 on
sense    numbers and names of the manifests agree with each other and with the source
run      started by root with a BUILD: both containers as processes of this machine, with the
         arguments, users, capabilities, read-only files and mounts of the manifests, and small
         pools.  A namespace of process ids makes kvrt process 1.  Limits of memory, seccomp,
         networks and probes of a kubelet are not part of it.
"""
import glob
import os
import re
import sys
import tempfile

import kubernetes_validate
import yaml

TOP = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
FOLDER = os.path.join(TOP, "kvmm/dist/kubernetes")
ROOM = 48 << 20     # shared memory of a rank: three rooms of 16 MiB

checks = 0
failures = 0


def check(name, ok):
    global checks, failures
    checks += 1
    if not ok:
        failures += 1
        print(f"FAILED: {name}")


def objects():
    found = {}
    for path in sorted(glob.glob(f"{FOLDER}/*.yaml")):
        with open(path) as f:
            for o in yaml.safe_load_all(f):
                found[f'{o["kind"]}/{o["metadata"]["name"]}'] = o
    return found


# ---- schemas

def versions():
    names = {re.sub("-strict$", "", v) for v in kubernetes_validate.utils.all_versions()}
    pairs = {tuple(int(n) for n in v.split(".")[:2]) for v in names}
    return [f"{a}.{b}" for a, b in sorted(pairs) if (a, b) >= (1, 28)]


def complaint(o, version):
    try:
        kubernetes_validate.validate(o, version, strict=True)
    except Exception as e:
        return getattr(e, "message", str(e))
    return None


def schemas(found):
    known = versions()
    check("there are versions", len(known) >= 5)
    for version in known:
        for name, o in found.items():
            why = complaint(o, version)
            check(f"{name} by the schemas of {version}: {why}", not why)
    # The check must be able to fail.
    wrong = yaml.safe_load(yaml.safe_dump(found["StatefulSet/kvrt"]))
    wrong["spec"]["template"]["spec"]["containers"][0]["readyProbe"] = {}
    check("a field that does not exist is found", complaint(wrong, known[-1]))
    print(f"schemas: {len(found)} objects, versions {known[0]} to {known[-1]}")


# ---- sense

def size(text):
    units = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "M": 1 << 20, "G": 1 << 30}
    number, unit = re.fullmatch(r"(\d+)([A-Za-z]*)", str(text)).groups()
    return int(number) * units.get(unit, 1)


def option(container, name):
    """All values of an option in the arguments of a container."""
    return [a.split("=", 1)[1] for a in container["args"] if a.startswith(f"--{name}=")]


def pod_of(o):
    return o["spec"]["template"]["spec"]


def parts(found):
    daemon = pod_of(found["DaemonSet/kvmm"])
    server = pod_of(found["StatefulSet/kvrt"])
    return daemon, daemon["containers"][0], server, server["containers"][0]


def volume(pod, name):
    return next(v for v in pod["volumes"] if v["name"] == name)


def capabilities():
    with open(f"{TOP}/include/kvmm/sandbox.h") as f:
        return set(re.findall(r"^\s*x\(([A-Z_]+),", f.read(), re.M))


def names_agree(found):
    for name in ("DaemonSet/kvmm", "StatefulSet/kvrt"):
        o, pod = found[name], pod_of(found[name])
        labels = o["spec"]["template"]["metadata"]["labels"]
        check(f"{name} selects its pods", o["spec"]["selector"]["matchLabels"] == labels)
        volumes = {v["name"] for v in pod["volumes"]}
        mounts = {m["name"] for m in pod["containers"][0]["volumeMounts"]}
        check(f"{name}: volumes and mounts", volumes == mounts)
        resources = pod["containers"][0]["resources"]
        check(f"{name} is Guaranteed", resources["requests"] == resources["limits"])
    service = found["Service/kvrt"]["spec"]
    server = found["StatefulSet/kvrt"]
    check("the Service selects the server", service["selector"].items() <=
          server["spec"]["template"]["metadata"]["labels"].items())
    check("the Service of the StatefulSet", server["spec"]["serviceName"] == "kvrt")
    ports = {p["name"]: p["containerPort"] for p in pod_of(server)["containers"][0]["ports"]}
    check("the port of the Service", service["ports"][0]["targetPort"] in ports)
    check("the port of kvrt", option(pod_of(server)["containers"][0], "port") ==
          [str(ports["http"])])


def sense(found):
    names_agree(found)
    daemon, kvmm, server, kvrt = parts(found)
    pools = option(kvmm, "pool")
    ranks = int(option(kvrt, "tensor-parallel")[0])
    check("a pool for each rank", len(pools) == ranks)
    tenant, owner = re.fullmatch(r"([a-z]+),owner=(\d+)", option(kvmm, "tenant")[0]).groups()
    check("the server is the owner of the tenant",
          int(owner) == server["securityContext"]["runAsUser"])
    run = volume(daemon, "run")["hostPath"]["path"]
    check("the server has the directory of the tenant",
          volume(server, "run")["hostPath"]["path"] == f"{run}/{tenant}")
    check("the daemon sees the processes of clients", daemon["hostPID"])
    given = kvmm["securityContext"]["capabilities"]
    check("the capabilities of the source, without that of the mount",
          given["drop"] == ["ALL"] and set(given["add"]) == capabilities() - {"SYS_ADMIN"} and
          option(kvmm, "proc") == ["off"])
    memory = size(kvmm["resources"]["limits"]["memory"])
    total = sum(size(p.split(":")[1]) for p in pools)
    check("memory of the daemon: pools, host pool, records",
          memory >= total + min(total // 16, 1 << 30) + total // 16)
    shm = size(volume(server, "shm")["emptyDir"]["sizeLimit"])
    check("shared memory of the ranks", shm >= ranks * ROOM + (64 << 20))
    pause = int(kvrt["lifecycle"]["preStop"]["exec"]["command"][1])
    check("time for the drain", server["terminationGracePeriodSeconds"] >=
          pause + int(option(kvrt, "drain-timeout")[0]) + 10)
    cores = int(kvrt["resources"]["limits"]["cpu"])
    check("cores of the ranks", cores == ranks * int(option(kvrt, "threads")[0]))
    probes = [kvrt[p]["httpGet"]["path"] for p in ("livenessProbe", "readinessProbe")]
    check("the probes", probes == ["/health", "/ready"])


def main():
    found = objects()
    schemas(found)
    sense(found)
    if len(sys.argv) > 1 and os.geteuid() == 0:
        import kubernetes_run
        with tempfile.TemporaryDirectory() as work:
            kubernetes_run.run(parts(found), os.path.realpath(sys.argv[1]), work, check)
    else:
        print("run: left out, it needs root and a BUILD")
    print(f"Checks: {checks}, Failures: {failures}")
    sys.exit(failures > 0)


main()
