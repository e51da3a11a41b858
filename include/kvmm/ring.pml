/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.pml - a model of ring.h: two rings, two sleepers, no lost wake-up
 *
 * A client sends REQS requests through a submission ring of N entries and takes
 * their completions from another; the daemon answers each.  Both sleep when they
 * find nothing to do.  The shapes are those of ring.h, and the steps have its
 * names; tests/scripts/spin.sh checks the model, docs in Documentation/abi.md.
 *
 * Memory is that of x86: each side's stores to shared words wait in a buffer of
 * its own, first in, first out, and reach memory at any later time.  A full
 * fence waits until the buffer is empty, a lock-free load sees memory, and a
 * system call works on memory.  (Each side keeps what it wrote privately, so it
 * never loads a word of its own.)  Time never passes: neither the daemon's tick
 * nor the client's deadline makes up for a lost wake-up.  So a lost wake-up is a
 * state in which neither side can move, and spin reports an invalid end state.
 *
 * The laws:
 *  - each request is answered once, in order, with its own number: no entry is
 *    read before it is whole, or written over before it is read (assertions);
 *  - the run ends: a side that sleeps is woken (end states);
 *  - an index never claims more than the ring holds (assertions).
 *
 * Faults to plant, one at a time, by -D; spin must find every one:
 *   NO_SLEEPER_FENCE  ring_sleep_prepare() without its fence
 *   NO_WAKER_FENCE    ring_sleeper_waits() without its fence
 *   NO_LOOK_AGAIN     sleeping without looking once more
 *   FLAG_LATE         looking once more before the flag is raised
 *   WAKE_READ_LATE    the futex word is read when the last look was over
 *   WAKE_KEPT         the daemon wakes without changing the futex word
 *   TAIL_FIRST        the index is published before the entry is written
 *   HEAD_FIRST        the slot is given back before the entry was copied
 *   FIRST_FLAG_ONLY   a sleeper that looks at its bell's flag before it publishes
 *
 * BELLS: the client too sleeps on an eventfd that remembers, as swapd does,
 * instead of the futex.
 */
#ifndef REQS
#define REQS	4
#endif
#define N	2		/* entries of the submission ring */
#define CN	4		/* of the completion ring: most requests under way */

/* Shared words, as both sides find them in memory. */
#define SQ_TAIL		0	/* the client's */
#define CQ_HEAD		1
#define NEED_WAKE	2
#define SQ_ENTRY	3	/* and the next one */
#define SQ_HEAD		5	/* the daemon's */
#define CQ_TAIL		6
#define NEED_DOORBELL	7
#define WAKE		8
#define CQ_ENTRY	9	/* and the next three */
#define WORDS		13

byte mem[WORDS];

/* Stores on their way; [0] the client's, [1] the daemon's. */
#define DEPTH	6
chan stores[2] = [DEPTH] of { byte, byte };

bool bell;		/* the daemon's eventfd: rung since it was waited for */
bool client_bell;	/* the client's, with BELLS */
bool in_futex;		/* the client is in FUTEX_WAIT */
bool done;		/* the client has all completions */

#define STORE(word, value)	stores[ME]!(word), (value)
#define FENCE			empty(stores[ME])

/* Stores in a buffer get to memory, sooner or later. */
active [2] proctype memory()
{
	byte word, value;

end:	do
	:: atomic { stores[_pid]?word, value -> mem[word] = value }
	od
}

#define ME	0
proctype client()
{
	byte tail, head, cq_head, avail, seen, need, value;

	do
	:: cq_head == REQS -> break
	:: else ->
		/* ring_prod_look(), then entries as far as there is room, or fewer. */
		head = mem[SQ_HEAD];
		assert(tail - head <= N);
		do
		:: tail < REQS && tail - head < N && tail - cq_head < CN ->
#ifdef TAIL_FIRST
			STORE(SQ_TAIL, tail + 1);
#endif
			STORE(SQ_ENTRY + tail % N, tail + 1);
			tail++
		:: tail > cq_head -> break	/* some are under way */
		od;

#ifdef FIRST_FLAG_ONLY
		need = mem[NEED_DOORBELL];
#endif
		/* ring_prod_publish(), ring_sleeper_waits() */
		STORE(SQ_TAIL, tail);
#ifndef NO_WAKER_FENCE
		FENCE;
#endif
#ifndef FIRST_FLAG_ONLY
		need = mem[NEED_DOORBELL];
#endif
		if
		:: need -> bell = true
		:: else
		fi;
		need = 0;

		/* wait_sleep() */
#ifndef WAKE_READ_LATE
		seen = mem[WAKE];
#endif
#ifdef FLAG_LATE
		avail = mem[CQ_TAIL] - cq_head;
#endif
		STORE(NEED_WAKE, 1);
#ifndef NO_SLEEPER_FENCE
		FENCE;
#endif
#ifndef FLAG_LATE
#ifdef NO_LOOK_AGAIN
		avail = 0;
#else
		avail = mem[CQ_TAIL] - cq_head;
#endif
#endif
#ifdef WAKE_READ_LATE
		seen = mem[WAKE];
#endif
		if
		:: avail == 0 ->
#ifdef BELLS
			atomic { client_bell -> client_bell = false }
#else
			/* FUTEX_WAIT compares and sleeps in one. */
			atomic {
				if
				:: mem[WAKE] == seen -> in_futex = true
				:: else
				fi
			};
			!in_futex
#endif
		:: else
		fi;
		STORE(NEED_WAKE, 0);

		/* ring_cons_look() and what it shows */
		avail = mem[CQ_TAIL] - cq_head;
		assert(avail <= CN);
		do
		:: avail > 0 ->
			value = mem[CQ_ENTRY + cq_head % CN];
			assert(value == cq_head + 1);
			cq_head++;
			avail--
		:: else -> break
		od;
		STORE(CQ_HEAD, cq_head);
		avail = 0;
		seen = 0;
		value = 0
	od;
	done = true;
	/* DETACH: the daemon need not sleep for ever. */
	bell = true
}
#undef ME

#define ME	1
proctype daemon()
{
	byte head, tail, cq_tail, cq_head, wake, need, avail, value;

	do
	:: done -> break
	:: else ->
		/* ring_cons_look() */
		avail = mem[SQ_TAIL] - head;
		assert(avail <= N);
		if
		:: avail > 0 ->
#ifdef HEAD_FIRST
			STORE(SQ_HEAD, head + 1);
			FENCE;
#endif
			value = mem[SQ_ENTRY + head % N];
			head++;
#ifndef HEAD_FIRST
			STORE(SQ_HEAD, head);
#endif
			/* Its completion: there is room, or the client lies. */
			cq_head = mem[CQ_HEAD];
			assert(cq_tail - cq_head < CN);
			STORE(CQ_ENTRY + cq_tail % CN, value);
			cq_tail++;
			STORE(CQ_TAIL, cq_tail);

			/* ring_wake_client() */
#ifndef WAKE_KEPT
			wake++;
			STORE(WAKE, wake);
#endif
#ifndef NO_WAKER_FENCE
			FENCE;
#endif
			need = mem[NEED_WAKE];
			if
#ifdef BELLS
			:: need -> client_bell = true
#else
			:: need -> in_futex = false
#endif
			:: else
			fi;
			need = 0;
			cq_head = 0;
			value = 0
		:: else ->
			/* mm_sleep() */
#ifdef FLAG_LATE
			avail = mem[SQ_TAIL] - head;
#endif
			STORE(NEED_DOORBELL, 1);
#ifndef NO_SLEEPER_FENCE
			FENCE;
#endif
#ifndef FLAG_LATE
#ifdef NO_LOOK_AGAIN
			avail = 0;
#else
			avail = mem[SQ_TAIL] - head;
#endif
#endif
			if
			:: avail == 0 -> atomic { bell -> bell = false }
			:: else
			fi;
			STORE(NEED_DOORBELL, 0)
		fi;
		avail = 0
	od
}
#undef ME

init
{
	run client();
	run daemon()
}
