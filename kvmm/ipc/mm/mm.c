// SPDX-License-Identifier: Apache-2.0
/*
 * mm.c - the thread that owns the core
 *
 * One turn: run the function that the control thread waits for; take answers
 * of the mapper, the copier and swapd; serve each active client a bounded
 * number of requests; let the core go on with its unfinished work; tick when it
 * is time; wake the clients of which the core has news.  A turn makes no
 * system call that can block, and allocates nothing.
 *
 * After a bounded number of idle turns the thread sleeps in epoll, on one
 * eventfd of its own and one a client.  They are edge-triggered and never
 * read: each write wakes once, and a client can do nothing else with its
 * eventfd.  Before it sleeps the thread says so, to every client in
 * kvmm_daemon_ctl.need_doorbell and to the other threads in struct sleeper,
 * fences and looks everywhere once more; ring.h says why no wake-up is lost.
 *
 * The control thread writes the log: a line on stderr can block.
 */
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/core/trace.h"
#include "kvmm/ipc/mm/mm.h"
#include "kvmm/ipc/mm/wait.h"

#define TRACE_RECORDS	8192u	/* half a MB */
#define TICK_NS		(10 * NSEC_PER_MSEC)	/* while there are clients */
#define TICK_IDLE_NS	NSEC_PER_SEC
#define MM_EVENTS	(MAX_CLIENTS + 2)

/* ---- one turn ---- */

static void mm_flush(struct mm *m)
{
	while (m->wake) {
		int i = __builtin_ctzll(m->wake);
		struct mm_client *c = m->clients[i];

		m->wake &= m->wake - 1;
		if (c && c->ring.dctl)
			ring_wake_client(&c->ring.dctl->wake,
					 &c->ring.ctl->need_wake);
	}
	if (m->kick_due || m->swap->kick) {
		m->kick_due = false;
		m->swap->kick = false;
		bell_ring(m->kick.fd);
	}
}

static u64 thread_cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (u64)ts.tv_sec * NSEC_PER_SEC + (u64)ts.tv_nsec;
}

static void mm_run_call(struct mm *m)
{
	const u64 begin = thread_cpu_ns();

	m->call_fn(m->setup->core, m->call_arg);
	m->call_ns += thread_cpu_ns() - begin;
	mm_flush(m);
	/* Pairs with the acquire in mm_turn() of the next call. */
	store_release(&m->call_pending, 0);
	sem_post(&m->call_done);
}

/* Expel clients whose memory failed: the signal handler put zeros there. */
static void mm_check_guards(struct mm *m, u64 now)
{
	u64 todo = m->active;

	for (; todo; todo &= todo - 1) {
		struct mm_client *c = m->clients[__builtin_ctzll(todo)];

		if (segment_faulted(c->ring.guards[0]) ||
		    segment_faulted(c->ring.guards[1]))
			serve_expel(m, c, now, "its shared memory is gone");
	}
}

/* Clients with requests that may be served. */
static u64 mm_waiting(const struct mm *m)
{
	u64 todo = m->active, mask = 0;

	for (; todo; todo &= todo - 1) {
		const struct client_ring *r =
			&m->clients[__builtin_ctzll(todo)]->ring;

		if (!r->stalled && READ_ONCE(*r->sq.shared_tail) != r->sq.head)
			mask |= todo & -todo;
	}
	return mask;
}

/*
 * Serve the clients @todo.  @wait: clients that had requests when the turn
 * began; until the last of them has its turn the thread works for others.  A
 * later request waits at most for the rest of this turn, and counts in the next.
 */
static bool mm_serve(struct mm *m, u64 now, u64 todo, struct mm_wait *wait)
{
	bool busy = false;

	mm_wait_serve(wait, todo);
	for (; todo; todo &= todo - 1) {
		struct mm_client *c = m->clients[__builtin_ctzll(todo)];

		mm_wait_turn(wait, todo & -todo);
		if (serve_client(m, c, now)) {
			busy = true;
			WRITE_ONCE(m->served, m->served + 1);
			mm_flush(m);
		}
	}
	if (wait->some_ns)
		core_cpu_waited(m->setup->core, wait->some_ns, wait->full_ns);
	return busy;
}

/* Return: whether anything was done. */
static bool mm_turn(struct mm *m)
{
	struct core *core = m->setup->core;
	u64 now = kv_now_ns(), todo = m->active;
	struct mm_wait wait = { .mask = mm_waiting(m), .since = now };
	u32 faults = segment_fault_count();
	bool busy = false;

	device_look(m->setup, now);
	/* Pairs with the release in mm_call(). */
	if (load_acquire(&m->call_pending)) {
		mm_run_call(m);
		busy = true;
		todo = m->active;
		/* The call told the core the time, which may not go back. */
		now = kv_now_ns();
	}
	busy |= mapper_collect(m->mapper, now);
	busy |= copier_collect(m->copier, now);
	busy |= swap_collect(m->swap, now);
	busy |= mm_serve(m, now, todo, &wait);
	busy |= core_poll(core, now);
	if (now >= m->next_tick) {
		core_tick(core, now);
		m->next_tick = now + (m->known ? TICK_NS : TICK_IDLE_NS);
	}
	if (segment_fault_count() != faults)
		mm_check_guards(m, now);
	busy |= swap_pump(m->swap, now);
	swap_note_stalls(m->swap);
	busy |= events_turn(m->events);
	mm_flush(m);
	return busy;
}

/* ---- sleeping ---- */

static bool mm_work_waits(struct mm *m)
{
	u64 todo;

	if (load_acquire(&m->call_pending) || READ_ONCE(m->stop) ||
	    !queue_empty(&m->mapper->done) || copier_waits(m->copier) ||
	    swap_waits(m->swap) || events_waits(m->events))
		return true;
	for (todo = m->active; todo; todo &= todo - 1) {
		if (serve_due(m->clients[__builtin_ctzll(todo)]))
			return true;
	}
	return false;
}

static void mm_say_asleep(struct mm *m, u32 asleep)
{
	u64 todo;

	for (todo = m->active; todo; todo &= todo - 1) {
		struct mm_client *c = m->clients[__builtin_ctzll(todo)];

		WRITE_ONCE(c->ring.dctl->need_doorbell, asleep);
	}
	if (m->swap->ctl)
		WRITE_ONCE(m->swap->ctl->kvmm_sleeps, asleep);
	if (asleep)
		ring_sleep_prepare(&m->sleeper.asleep);
	else
		ring_sleep_finish(&m->sleeper.asleep);
}

static void mm_sleep(struct mm *m)
{
	struct epoll_event ev[MM_EVENTS];
	u64 began = kv_now_ns();
	int ms;

	if (began >= m->next_tick)
		return;
	ms = (int)DIV_ROUND_UP(m->next_tick - began, NSEC_PER_MSEC);

	/* Its fence pairs with the ones of the clients and of sleeper_wake(). */
	mm_say_asleep(m, 1);
	if (!mm_work_waits(m)) {
		epoll_wait(m->epoll, ev, MM_EVENTS, ms);
		WRITE_ONCE(m->idle_ns, m->idle_ns + kv_now_ns() - began);
	}
	mm_say_asleep(m, 0);
}

static void *mm_main(void *arg)
{
	struct mm *m = arg;
	u32 idle = 0;

	pthread_setname_np(pthread_self(), "kvmm-mm");
	while (!READ_ONCE(m->stop)) {
		if (mm_turn(m)) {
			idle = 0;
		} else if (idle < m->spin) {
			idle++;
			cpu_relax();
		} else {
			mm_sleep(m);
			idle = 0;
		}
	}
	return NULL;
}

/* ---- control thread ---- */

/**
 * mm_call() - run a function on the mm thread, between two requests
 * @fn:  short; may not block
 * @arg: its argument
 *
 * Context: control thread.  Waits for the rest of a turn and for @fn.
 * Return: 0, or -ESHUTDOWN when the mm thread runs no longer.
 */
int mm_call(struct mm *m, void (*fn)(struct core *core, void *arg), void *arg)
{
	if (READ_ONCE(m->stop))
		return -ESHUTDOWN;
	m->call_fn = fn;
	m->call_arg = arg;
	/* Pairs with the acquire in mm_turn(). */
	store_release(&m->call_pending, 1);
	sleeper_wake(&m->sleeper);
	while (sem_wait(&m->call_done) && errno == EINTR)
		;
	return 0;
}

static void call_shutdown(struct core *core, void *arg)
{
	struct mm *m = arg;

	core_shutdown(core, kv_now_ns());
	/* A client that sleeps learns its state. */
	m->wake |= m->active;
}

/* mm_shutdown() - tell all clients that the daemon ends */
void mm_shutdown(struct mm *m)
{
	if (mm_call(m, call_shutdown, m))
		pr_debug("nobody could be told of the end");
}

/* mm_map() - memory that is in no core dump: it shows the activity of tenants */
void *mm_map(u64 bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	(void)madvise(p, bytes, MADV_DONTDUMP);
	return p;
}

void mm_unmap(void *p, u64 bytes)
{
	if (p)
		munmap(p, bytes);
}

/* Keep secrets out of the system's swap, unless the limit is too low. */
static void mm_lock_secrets(const struct mm *m)
{
	u64 bytes;
	const void *p = core_get_secrets(m->setup->core, &bytes);

	if (mlock(p, bytes))
		pr_info("the secrets of tenants cannot be locked in memory: %s: raise the limit (ulimit -l), or have the system's swap encrypted",
			strerror(errno));
}

/* Without a trace there are no events to be switched on, and no last_oom. */
static void mm_lend_trace(struct mm *m)
{
	m->trace = mm_map(core_trace_bytes(TRACE_RECORDS));
	if (m->trace)
		core_trace_attach(m->setup->core, kv_now_ns(), m->trace,
				  TRACE_RECORDS);
	else
		pr_warn("no memory for a trace: it will be empty");
}

/**
 * mm_init() - state of the thread; the core has been made
 * Context: before threads exist.
 * Return: 0 or a negative errno.
 */
int mm_init(struct mm *m)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };

	m->args = mm_map(ARG_BYTES);
	m->ghost_ends = calloc(m->setup->cfg.max_tenants,
			       sizeof(*m->ghost_ends));
	if (!m->args || !m->ghost_ends)
		return -ENOMEM;
	mm_lend_trace(m);
	mm_lock_secrets(m);
	m->epoll = epoll_create1(EPOLL_CLOEXEC);
	m->sleeper.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (m->epoll < 0 || m->sleeper.bell < 0 ||
	    epoll_ctl(m->epoll, EPOLL_CTL_ADD, m->sleeper.bell, &ev))
		return -errno;
	m->spin = sysconf(_SC_NPROCESSORS_ONLN) > 1 ? m->setup->opt.spin : 0;
	sem_init(&m->call_done, 0, 0);
	m->stop = 1;
	return 0;
}

int mm_start(struct mm *m)
{
	int err;

	if (kv_fault(KV_FAULT_thread_create))
		return -EAGAIN;
	m->stop = 0;
	err = pthread_create(&m->thread, NULL, mm_main, m);
	if (err)
		m->stop = 1;
	return -err;
}

void mm_stop(struct mm *m)
{
	if (m->stop)
		return;
	WRITE_ONCE(m->stop, 1);
	sleeper_wake(&m->sleeper);
	pthread_join(m->thread, NULL);
}

/* mm_exit() - the core and its arena go too */
void mm_exit(struct mm *m)
{
	struct setup *s = m->setup;

	if (m->epoll >= 0)
		close(m->epoll);
	if (m->sleeper.bell >= 0)
		close(m->sleeper.bell);
	mm_unmap(s->arena, s->arena_bytes);
	if (s->arena_fd >= 0)
		close(s->arena_fd);
	mm_unmap(m->args, ARG_BYTES);
	mm_unmap(m->trace, core_trace_bytes(TRACE_RECORDS));
	free(m->ghost_ends);
	free(s->core);
}
