# SPDX-License-Identifier: Apache-2.0
"""Programs that mean harm, beside honest ones: attacker.py, attacker_memory.py, victim.py.

After each scene the honest programs have all their content and were served all the time,
the daemon is the same process, the ledger is whole, and the log has one line that names an
offender.  As root the victims are of two users, and the attackers of a third.
"""
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import kvmm
from victim import BYTES, Words, words_of
from world import BIN, TOP, World, children_of, name_of, runs, until

HERE = Path(__file__).parent
ROOT = os.geteuid() == 0
VICTIM_UID, ATTACKER_UID, NEWCOMER_UID = (65533, 65534, 65532) if ROOT else [os.geteuid()] * 3
KEEP = 24               # objects of a victim
BOUND_SECONDS = 8       # the longest round of a victim, on a machine with other work
LINES = 20              # about faults that the daemon writes in PERIOD seconds
PERIOD = 5
SEED = int(os.environ.get("KVMM_SEED", time.time_ns() % 10 ** 9))
FULL = os.environ.get("KVMM_TEST_LEVEL", "check") != "check"


class Program:
    """A program in Python beside the test."""

    def __init__(self, test, file, *args):
        env = {**os.environ, "PYTHONPATH": f"{TOP}/python:{HERE}", "PYTHONWARNINGS": "ignore"}
        self.err = open(os.path.join(test.folder, f"{time.monotonic_ns()}.err"), "w+")
        self.child = subprocess.Popen([sys.executable, HERE / file, test.path, *map(str, args)],
                                      env=env, text=True, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=self.err)
        self.pid = self.child.pid
        self.said = []
        self.ended = False
        test.addCleanup(self.end)

    def line(self):
        """The next line that it says."""
        line = self.child.stdout.readline().strip()
        self.said.append(line)
        return line

    def tell(self):
        try:
            self.child.stdin.write("\n")
            self.child.stdin.flush()
        except OSError:
            pass

    def close_input(self):
        try:
            self.child.stdin.close()
        except OSError:
            pass

    def wait(self, seconds=60):
        """Its exit status, after all that it said."""
        if self.ended:
            return self.child.returncode
        self.said += self.child.stdout.read().splitlines()
        self.ended = True
        self.close_input()
        self.child.stdout.close()
        return self.child.wait(seconds)

    def errors(self):
        self.err.seek(0)
        return self.err.read()

    def end(self):
        if not self.ended:
            self.close_input()      # a child of an attacker sees it, too
            self.child.kill()
            self.wait()
        self.err.close()


class Victim:
    def __init__(self, test, name, uid, keep=KEEP, rounds=0):
        self.name = name
        path = os.path.join(test.folder, name)
        Path(path).write_bytes(bytes(ctypes.sizeof(Words)))
        self.words = words_of(path)
        self.program = Program(test, "victim.py", uid, path, keep, rounds)

    def pause(self, on):
        self.words.pause = on
        return until(lambda: self.words.paused == on or not runs(self.program.pid))

    def text(self):
        return f"{self.name}: {self.program.said} {self.program.errors()}"


class Attack(World):
    OPTIONS = ["--pool-size", "16M", "--extent-size", "1M", "--host-size", "16M",
               "--socket-mode", "0666", "--user-quota", "min=8M", "--step-deadline-ms", "400",
               "--quiet-deadline-ms", "700", "--revoke-deadline-ms", "700", "--resume-ms", "1500"]

    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.folder, "attach.sock")
        self.log = Path(self.folder, "hold.log")
        self.pid = self.daemon()
        self.victims = [Victim(self, "first", os.geteuid()), Victim(self, "second", VICTIM_UID)]
        self.served(2)
        self.start = self.mark()

    def tearDown(self):
        for victim in self.victims:
            victim.words.stop = 1
        for victim in self.victims:
            self.assertEqual(victim.program.wait(), 0, victim.text())

    def daemon(self):
        return next(p for p in children_of(self.hold.pid) if name_of(p) == "kvmm")

    # ---- what must be true after each scene ----

    def served(self, rounds=1):
        """Each victim does some more rounds."""
        want = [(v, v.words.rounds + rounds) for v in self.victims]
        for victim, end in want:
            self.assertTrue(until(lambda: victim.words.rounds >= end or
                                  not runs(victim.program.pid), 40), victim.text())
            self.assertGreaterEqual(victim.words.rounds, end, victim.text())

    def mark(self):
        return len(self.log.read_text()), time.monotonic()

    def lines(self):
        """Lines of the daemon in this scene."""
        return self.log.read_text()[self.start[0]:].splitlines()

    def faults(self, pid=None):
        """Those about faults of clients, or of one process."""
        found = [line for line in self.lines() if re.search(
            r"expelled|killed|refused|closed|gives way|did not come back|not resumed", line)]
        return [line for line in found if pid is None or f"pid {pid}" in line or
                f"process {pid}," in line]

    def intact(self):
        """Victims have their content, the daemon is the same, nothing of attackers is left."""
        self.served()
        for victim in self.victims:
            self.assertEqual(victim.words.bad, 0, victim.text())
            self.assertLess(victim.words.worst_us, BOUND_SECONDS * 1e6, victim.text())
            self.assertTrue(victim.pause(1))
            victim.words.worst_us = 0
        self.assertTrue(until(lambda: self.clients() == 2), kvmm.stats("clients"))
        self.assertTrue(until(lambda: not any(self.in_use().values())), self.in_use())
        used = {d["name"].split("@")[0] for d in kvmm.stats("domains")["domains"] if d["clients"]}
        self.assertEqual(used, {"victim"})
        self.assertEqual(kvmm.stats("vmstat")["vmstat"]["nr_seqs"], 2 * KEEP)
        self.assertEqual(kvmm.stats("vmstat")["vmstat"]["nr_leases"], 2 * KEEP)
        check = subprocess.run([BIN / "kvctl", "check"], capture_output=True, text=True)
        self.assertEqual((check.returncode, check.stdout), (0, "ok\n"))
        self.assertEqual(self.daemon(), self.pid)
        for victim in self.victims:
            self.assertTrue(victim.pause(0))

    def clients(self):
        return kvmm.stats("vmstat")["vmstat"]["nr_clients"]

    def in_use(self):
        """Memory that only a client that does something has."""
        m = kvmm.stats("meminfo")["meminfo"]
        return {name: m[name + "_kb"] for name in (
            "Open", "Quarantine", "Quiescing", "Limbo", "Revoking", "HostLimbo")}

    # ---- scenes ----

    def attacks(self, names, *uids):
        """Start attacks, of users in turns."""
        uids = uids or (ATTACKER_UID,)
        return {name: Program(self, "attacker_memory.py", uids[i % len(uids)], name, SEED)
                for i, name in enumerate(names)}

    def judge(self, programs, reasons):
        """None did what must be impossible; each has one line, with a reason, or none."""
        for name, program in programs.items():
            code = program.wait()
            self.assertFalse([s for s in program.said if s.startswith("BREACH")],
                             f"{name}, seed {SEED}: {program.said}")
            self.assertIn(code, (0, -signal.SIGKILL), f"{name}: {program.errors()}")
        self.intact()
        for name, program in programs.items():
            found, want = self.faults(program.pid), reasons[name]
            self.assertEqual(len(found), want is not None, f"{name}, seed {SEED}: {found}")
            if want:
                self.assertRegex(found[0], want)


EXPELLED = r"client \d+ \(python3?, pid \d+\) is expelled: .+"
RINGS = {name: EXPELLED for name in (
    "tail_ahead", "tail_back", "head_ahead", "args_outside", "number_again", "speaks", "hole",
    "scribble", "twin_rings")}
ANSWERED = dict.fromkeys(("sealed", "keys", "twice", "acks", "child_of_library"))




class Lies(Attack):
    def test_lies(self):
        for scene in (self.rings, self.answered, self.entries, self.floods):
            with self.subTest(scene.__name__):
                self.start = self.mark()
                scene()

    def rings(self):
        self.judge(self.attacks(RINGS, os.geteuid(), ATTACKER_UID), RINGS)

    def answered(self):
        self.judge(self.attacks(ANSWERED, os.geteuid(), ATTACKER_UID), ANSWERED)

    def entries(self):
        """Random requests: at most one line each, since some end the attachment."""
        for n in range(20 if FULL else 1):
            programs = [Program(self, "attacker_memory.py", uid, "entries", SEED + n)
                        for uid in (os.geteuid(), ATTACKER_UID)]
            for program in programs:
                self.assertEqual((program.wait(), program.said), (0, []), program.errors())
                self.assertLessEqual(len(self.faults(program.pid)), 1)
        self.intact()

    def floods(self):
        """Wrong requests, and thousands of connections: the log has a bounded part of them."""
        began = time.monotonic()
        for _ in range(5 if FULL else 1):
            for name in ("requests", "flood"):      # the places of one user are few
                program = self.attacks([name])[name]
                self.assertEqual((program.wait(), program.said), (0, []),
                                 f"{name}, seed {SEED}: {program.errors()}")
        found, periods = self.faults(), int((time.monotonic() - began) / PERIOD) + 2
        self.assertGreater(len(found), LINES / 2)
        self.assertLessEqual(len(found), LINES * periods)
        self.assertTrue(all(re.search(r"pid \d+, uid \d+\) .*: \S", s) for s in found), found)
        self.intact()
        self.served(3)


class Deaths(Attack):
    def test_deaths(self):
        for scene in (self.dies, *[self.stops_in_hold, self.hangs_up] * ROOT):
            with self.subTest(scene.__name__):
                self.start = self.mark()
                scene()

    def dies(self):
        """Leases and held objects go with it; half an object was never there."""
        with kvmm.Objects("attack-dies", BYTES, model="attack") as store:
            attacker = Program(self, "attacker_memory.py", os.geteuid(), "dies", SEED)
            self.assertEqual(attacker.line(), "ready")
            self.assertEqual(store.exists(["whole", "half 1"]), ["device", None])
            attacker.tell()
            self.assertEqual(attacker.wait(), -signal.SIGKILL)
            self.assertTrue(until(lambda: self.clients() == 3))
            self.assertEqual(store.exists(["whole", "half 1", "half 2"]), ["device", None, None])
            for name in ("half 1", "half 2"):
                with self.assertRaises(ZeroDivisionError), store.create([name]) as (item,):
                    self.assertEqual(item.status, 0)
                    raise ZeroDivisionError     # it is given up
            with store.get(["whole"]) as (item,):
                self.assertEqual(item.view, b"w" * BYTES)
            self.assertEqual(store.delete(["whole"]), [True])
        self.intact()
        self.assertEqual(self.faults(), [])
        self.assertEqual(len([s for s in self.lines() if f"pid {attacker.pid}); its mem" in s]), 2)

    def hangs_up(self):
        """It writes to all memory of its user, which may be that of victims, but for root."""
        programs = self.attacks(["hangs_up"])
        self.assertEqual(programs["hangs_up"].line(), "ready")
        self.judge(programs, {"hangs_up": "is killed: it hung up and did not end"})

    def newcomer(self):
        """Another program needs the memory, as root of another user."""
        victim = Victim(self, "newcomer", NEWCOMER_UID, keep=28, rounds=3)
        start = time.monotonic()
        self.assertEqual(victim.program.wait(), 0, victim.text())
        self.assertEqual((victim.words.bad, victim.words.rounds), (0, 3), victim.text())
        self.assertLess(victim.words.worst_us, BOUND_SECONDS * 1e6)
        self.assertLess(time.monotonic() - start, 2 * BOUND_SECONDS)

    def wait_for_memory(self, pid):
        """A stopped process is killed when others wait for memory, however much it has."""
        waits = self.attacks(["greedy"], NEWCOMER_UID)["greedy"]
        self.assertEqual(waits.line(), "ready", waits.errors())
        self.assertTrue(until(lambda: not runs(pid), 40))
        waits.tell()
        self.assertEqual((waits.wait(), waits.said), (0, ["ready"]), waits.errors())

    def stops_in_hold(self):
        """The newcomer takes memory of another user, so the program that stopped is killed."""
        programs = self.attacks(["stops_in_hold"])
        self.assertEqual(programs["stops_in_hold"].line(), "ready")
        self.newcomer()
        self.wait_for_memory(programs["stops_in_hold"].pid)
        programs["stops_in_hold"].child.send_signal(signal.SIGCONT)
        self.judge(programs, {"stops_in_hold": "is killed: it kept .* past the deadline"})


KEEPERS = {
    "stops": "is killed: it kept memory that was asked back past the deadline",
    # On the host backend no process sees these three, and they can do nothing.
    "detached": None, "liar": None, "orphan": None,
}


@unittest.skipUnless(ROOT, "memory changes hands between users, and it takes root to be two")
class Kept(Deaths):
    test_deaths = None

    def test_kept(self):
        for scene in (self.given_back, self.daemon_dies):
            with self.subTest(scene.__name__):
                self.start = self.mark()
                scene()

    def given_back(self):
        """Memory of those that keep it goes to another user, and they see and change nothing."""
        programs = self.attacks(KEEPERS)
        for program in programs.values():
            self.assertEqual(program.line(), "ready")
        self.newcomer()
        self.newcomer()
        self.wait_for_memory(programs["stops"].pid)
        for program in programs.values():
            program.tell()
        self.assertGreater(kvmm.stats("vmstat")["vmstat"]["extent_revoke"], 1)
        self.judge(programs, KEEPERS)
        for name in ("detached", "liar", "orphan"):
            self.assertIn("haunted", programs[name].said)

    def daemon_dies(self):
        """One that does not resume writes to its memory under the next daemon."""
        programs = self.attacks(["away"])
        self.assertEqual(programs["away"].line(), "ready")
        self.kill_daemon()
        self.assertTrue(until(lambda: any(name_of(p) == "kvmm" and p != self.pid
                                          for p in children_of(self.hold.pid))))
        self.pid = self.daemon()
        self.judge(programs, {"away": "did not come back in 1500 ms .* killed"})


if __name__ == "__main__":
    unittest.main()
