# SPDX-License-Identifier: Apache-2.0
"""kubernetes_run.py - containers of kubernetes.py as processes of this machine

Each container is a process in namespaces of its own, with the arguments, the user, the
capabilities and the mounts of its manifest.  The root file system is that of the machine,
read-only.
"""
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

TOP = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
MODEL = f"{TOP}/tests/data/demo-model"
PROMPT = "Once upon a time there was a little house in the wood, and in it"


def privileges(container, pod):
    """The words of setpriv for the securityContext of a container."""
    context = {**pod.get("securityContext", {}), **container["securityContext"]}
    added = context["capabilities"].get("add", [])
    caps = ",".join(["-all"] + [f"+{c.lower()}" for c in added])
    words = ["setpriv", f"--bounding-set={caps}", "--inh-caps=-all", "--no-new-privs"]
    if context["runAsUser"]:
        words += [f'--reuid={context["runAsUser"]}', f'--regid={context["runAsGroup"]}',
                  "--clear-groups"]
    return words


def mounts(container, pod, host):
    """Commands that make the mounts; @host: the folder for each path of a hostPath."""
    volumes = {v["name"]: v for v in pod["volumes"]}
    lines = []
    for m in container["volumeMounts"]:
        v, path = volumes[m["name"]], m["mountPath"]
        if "emptyDir" in v:
            limit = v["emptyDir"]["sizeLimit"].rstrip("i")
            lines.append(f"mount -t tmpfs -o mode=1777,size={limit} tmpfs {path}")
            continue
        # A claim, too, is a folder of the machine here.
        source = host[v["hostPath"]["path"]] if "hostPath" in v else host[path]
        path = path if path.startswith("/run/") else "/run" + path
        lines.append(f"mkdir -p {path} && mount --bind {source} {path}")
        if m.get("readOnly"):
            lines.append(f"mount -o remount,bind,ro {path}")
    return lines


def start(container, pod, args, build, host, work, log):
    """Start a container.  Programs lie in /run/image, which is BUILD."""
    env = {e["name"]: e.get("value", "secret") for e in container["env"]}
    env["PATH"] = "/run/image:" + os.environ["PATH"]
    lines = ["set -e", "mount -t tmpfs tmpfs /run", "mkdir /run/image",
             f"mount --bind {build} /run/image"]
    # Folders of the machine are below /tmp perhaps, so a new /tmp comes last.
    lines += sorted(mounts(container, pod, host), key=lambda l: "tmpfs" in l)
    lines += ["mount -o remount,ro /run", "mount -o remount,bind,ro /", "cd /run/image"]
    command = privileges(container, pod) + ["env", "-i"]
    command += [f"{k}={v}" for k, v in env.items()] + container["command"] + args
    lines.append("exec " + shlex.join(command))
    unshare = ["unshare", "--mount", "--propagation=private"]
    if not pod.get("hostPID"):
        unshare += ["--pid", "--fork", "--kill-child", "--mount-proc", "--ipc", "--uts"]
    return subprocess.Popen(unshare + ["bash", "-c", "\n".join(lines)], stdout=log, stderr=log)


def first_of(p):
    """The process id, here, of process 1 of a container."""
    with open(f"/proc/{p.pid}/task/{p.pid}/children") as f:
        return int(f.read().split()[0])


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(url, body=None, key="secret"):
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    data = json.dumps(body).encode() if body else None
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as r:
            return r.status, r.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()
    except OSError as e:
        return 0, str(e)


def complete(url, tokens, key="secret", samples=1):
    code, text = get(f"{url}/v1/completions", {
        "prompt": PROMPT, "max_tokens": tokens, "n": samples, "temperature": 0, "ignore_eos": True}, key)
    return code, json.loads(text) if code else {}


def wait(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def stop_at_work(server, url, check):
    """SIGTERM to process 1, as a kubelet does, while a long request runs."""
    answers = []
    t = threading.Thread(target=lambda: answers.append(complete(url, 900, samples=8)))
    t.start()
    busy = r"^kvrt_num_requests_running\{.*\} [1-9]"
    check("the server works", wait(lambda: re.search(busy, get(f"{url}/metrics")[1], re.M), 10))
    os.kill(first_of(server), signal.SIGTERM)
    t.join()
    code, body = answers[0]
    check("the request that runs is whole",
          code == 200 and body["usage"]["completion_tokens"] == 7200)
    check("exit code of the server", server.wait(30) == 0)


def serve_once(part, build, host, work, log, warm, check):
    """One pod of the server, from its start to its drain."""
    pod, container = part
    port = free_port()
    args = [re.sub("^/models/model$", "/run/models", a) for a in container["args"]]
    args = [f"--port={port}" if a.startswith("--port=") else a for a in args]
    args = ["--threads=1" if a.startswith("--threads=") else a for a in args]
    server = start(container, pod, args, build, host, work, log)
    url = f"http://127.0.0.1:{port}"
    try:
        check("ready", wait(lambda: get(f"{url}/ready", key=None)[0] == 200))
        check("alive", get(f"{url}/health", key=None)[0] == 200)
        check("no key, no answer", complete(url, 1, None)[0] == 401)
        code, body = complete(url, 32)
        check("an answer", code == 200 and len(body["choices"][0]["text"]) > 20)
        cached = body["usage"]["prompt_tokens_details"]["cached_tokens"]
        check("cached prefix of the last pod" if warm else "nothing is cached", (cached > 0) == warm)
        shm = os.statvfs(f"/proc/{first_of(server)}/root/dev/shm")
        print(f"run: /dev/shm has {(shm.f_blocks - shm.f_bfree) * shm.f_frsize >> 20} of "
              f"{shm.f_blocks * shm.f_frsize >> 20} MiB in use")
        stop_at_work(server, url, check)
    finally:
        server.kill()
        server.wait()


def run(parts, build, work, check):
    daemon_pod, kvmm, server_pod, kvrt = parts
    socket_dir = f"{work}/kvmm"
    os.mkdir(socket_dir)
    os.chmod(work, 0o755)
    host = {"/run/kvmm": socket_dir, "/run/kvmm/kvrt": f"{socket_dir}/kvrt", "/models": MODEL}
    with open(f"{work}/log", "w+") as log:
        args = [re.sub("=host:.*", "=host:64M", a) for a in kvmm["args"]]
        daemon = start(kvmm, daemon_pod, args, build, host, work, log)
        try:
            probe = [f"{build}/kvctl"] + kvmm["readinessProbe"]["exec"]["command"][1:]
            env = {**os.environ, "KVMM_RUNDIR": socket_dir}
            env.pop("KVMM_SOCKET", None)
            check("the daemon is ready",
                  wait(lambda: subprocess.run(probe, env=env, capture_output=True).returncode == 0))
            for warm in (False, True):
                serve_once((server_pod, kvrt), build, host, work, log, warm, check)
            daemon.terminate()
            check("exit code of the daemon", daemon.wait(30) == 0)
        except Exception as e:
            check(f"run: {e!r}", False)
        finally:
            daemon.terminate()
            daemon.wait()
        log.seek(0)
        lines = log.read()
        check("both drains", lines.count("kvrt: finishing 1 request") == 2)
        check("no warning", not re.search("(error|warning):", lines))
        if os.environ.get("SHOW"):
            print(lines)
