# SPDX-License-Identifier: Apache-2.0
"""The daemon's figures, as kvctl reads and parses them."""
import json
import os
import subprocess

from . import _lib
from .errors import Error, NoDaemon, Refused

FILES = ("status", "meminfo", "vmstat", "pressure/memory", "domains", "clients")
EXITS = {69: NoDaemon, 77: Refused}


def stats(*files, socket=None, tenant=None, timeout=10.0):
    """The daemon's files as a dict: {"meminfo": {"GpuTotal_kb": ..}, "domains": [{..}], ..}.

    files:  names as kvctl cat takes them; without any: status, meminfo, vmstat,
            pressure/memory, domains and clients
    socket: as of Client; None: $KVMM_SOCKET, else the usual place
    tenant: show the view of a tenant
    """
    where = socket or os.environ.get("KVMM_SOCKET")
    command = [_lib.program("kvctl"), "--json", "--timeout", str(max(1, round(timeout)))]
    command += ["--socket", str(where)] if where else []
    command += ["--tenant", tenant] if tenant else []
    got = subprocess.run([*command, "cat", *(files or FILES)], capture_output=True, text=True,
                         stdin=subprocess.DEVNULL)
    if not got.stdout.strip():
        lines = got.stderr.strip().splitlines() or [f"kvctl ended with {got.returncode}"]
        raise EXITS.get(got.returncode, Error)(lines[0])
    if got.returncode and files:
        raise Error(got.stderr.strip().splitlines()[0])
    return {entry["path"]: entry["data"] for entry in json.loads(got.stdout)}
