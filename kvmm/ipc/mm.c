// SPDX-License-Identifier: Apache-2.0
/*
 * mm.c - the thread that owns the core
 *
 * One turn: run the function that the control thread waits for, take what
 * the mapper, the copier and swapd finished, serve each active client a bounded
 * number of requests, go on with what the core left undone, tick when it is
 * time; then wake whom the core has news for.  A turn makes no system call that
 * can block, and allocates nothing.
 *
 * After a bounded number of idle turns the thread sleeps in epoll, on one
 * eventfd of its own and one a client.  They are edge-triggered and never
 * read: each write wakes once, and a client can do nothing with its eventfd
 * but that.  Before it sleeps the thread says so, to every client in
 * kvmm_daemon_ctl.need_doorbell and to the other threads in mm_sleeping,
 * fences and looks everywhere once more; see ring.h for why that loses no
 * wake-up.
 *
 * Commands of the core are turned into words for the other threads.  What is
 * to be sent to a client is a state (which generation of which extent), not
 * a message, so that no queue can overflow however slow the client is.
 * What is to be told to people is told by the control thread: a line on
 * stderr can block.
 */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/core/trace.h"
#include "kvmm/ipc/daemon.h"
#include "kvmm/ipc/mm_wait.h"

#define TRACE_RECORDS	8192u	/* half a MB */
#define TICK_NS		(10 * NSEC_PER_MSEC)	/* while there are clients */
#define TICK_IDLE_NS	NSEC_PER_SEC
#define MM_EVENTS	(MAX_CLIENTS + 2)

/* ---- what the core commands ---- */

static void ops_extent_create(void *arg, u32 extent, u32 generation)
{
	mapper_push(&((struct daemon *)arg)->mapper, MAP_CREATE, extent, generation);
}

static void ops_extent_release(void *arg, u32 extent)
{
	mapper_push(&((struct daemon *)arg)->mapper, MAP_RELEASE, extent, 0);
}

static void ops_extent_send(void *arg, u32 client, u32 extent, u32 generation)
{
	struct daemon *d = arg;
	struct client *c = d->mm_clients[client];

	if (!c)
		return;
	WRITE_ONCE(c->want[extent], generation);
	/* Pairs with the exchange in extents_take(). */
	__atomic_fetch_or(&c->dirty[extent / 64], BIT_ULL(extent % 64),
			  __ATOMIC_RELEASE);
	/* Pairs with the exchange in control_kicked(). */
	__atomic_fetch_or(&d->send_mask, BIT_ULL(client), __ATOMIC_RELEASE);
	d->mm_kick = true;
}

static void ops_wake(void *arg, u32 client)
{
	struct daemon *d = arg;

	d->mm_wake |= BIT_ULL(client);
}

static void ops_kill(void *arg, u32 client, int reason)
{
	struct daemon *d = arg;
	struct client *c = d->mm_clients[client];
	int err;

	if (!c)
		return;
	WRITE_ONCE(c->reason, reason);
	err = pidfd_kill(c->pidfd.fd);
	if (!err) {
		mm_note(d, c, NOTE_KILLED);
	} else if (err != -ESRCH) {
		WRITE_ONCE(c->reason, err);
		mm_note(d, c, NOTE_UNKILLABLE);
	}
}

static void ops_kill_ghosts(void *arg, u32 tenant)
{
	struct daemon *d = arg;

	WRITE_ONCE(d->ghost_ends[tenant], 1);
	/* Pairs with the exchange in ghost_kill_all(). */
	store_release(&d->ghost_any, 1u);
	d->mm_kick = true;
}

static void ops_copy(void *arg, const struct core_copy *cp)
{
	copier_push(&((struct daemon *)arg)->copier, cp);
}

static void ops_io(void *arg, const struct core_io *io)
{
	swap_push(&((struct daemon *)arg)->swap, io);
}

static void ops_trigger(void *arg, u32 trigger)
{
	struct daemon *d = arg;

	/* Pairs with the exchange in wait_take(). */
	__atomic_fetch_or(&d->trigger_fired, BIT_ULL(trigger),
			  __ATOMIC_RELEASE);
	d->mm_kick = true;
}

static void ops_trigger_gone(void *arg, u32 trigger)
{
	struct daemon *d = arg;

	/* Pairs with the exchange in wait_take(). */
	__atomic_fetch_or(&d->trigger_gone, BIT_ULL(trigger),
			  __ATOMIC_RELEASE);
	d->mm_kick = true;
}

static void ops_crash(void *arg, u32 point)
{
	kv_fault_die(KV_FAULT_crash_first + point);
}

static const struct core_ops mm_core_ops = {
	.extent_create	= ops_extent_create,
	.extent_release	= ops_extent_release,
	.extent_send	= ops_extent_send,
	.wake		= ops_wake,
	.kill		= ops_kill,
	.kill_ghosts	= ops_kill_ghosts,
	.trigger	= ops_trigger,
	.trigger_gone	= ops_trigger_gone,
	.copy		= ops_copy,
	.io		= ops_io,
	.crash		= ops_crash,
};

/* ---- clients come and go; on the mm thread, inside mm_call() ---- */

/* The core may name @c from now on; its rings are not served yet. */
void mm_introduce(struct daemon *d, struct client *c)
{
	d->mm_clients[c->id] = c;
	d->mm_known |= BIT_ULL(c->id);
}

void mm_activate(struct daemon *d, struct client *c)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };

	d->mm_active |= BIT_ULL(c->id);
	if (epoll_ctl(d->mm_epoll, EPOLL_CTL_ADD, c->bell, &ev))
		pr_warn("client %u has no doorbell (%s): it is served late",
			c->id, strerror(errno));
	d->mm_next_tick = 0;
}

void mm_deactivate(struct daemon *d, struct client *c)
{
	if (!(d->mm_active & BIT_ULL(c->id)))
		return;
	d->mm_active &= ~BIT_ULL(c->id);
	/* The client has a duplicate, so closing ours would not remove it. */
	epoll_ctl(d->mm_epoll, EPOLL_CTL_DEL, c->bell, NULL);
}

/* The core has forgotten @c. */
void mm_forget(struct daemon *d, struct client *c)
{
	mm_deactivate(d, c);
	d->mm_clients[c->id] = NULL;
	d->mm_known &= ~BIT_ULL(c->id);
	d->mm_wake &= ~BIT_ULL(c->id);
}

void mm_note(struct daemon *d, struct client *c, u32 note)
{
	__atomic_fetch_or(&c->notes, note, __ATOMIC_RELEASE);
	/* Pairs with the exchange in control_kicked(). */
	__atomic_fetch_or(&d->note_mask, BIT_ULL(c->id), __ATOMIC_RELEASE);
	d->mm_kick = true;
}

/* ---- one turn ---- */

static void mm_flush(struct daemon *d)
{
	while (d->mm_wake) {
		int i = __builtin_ctzll(d->mm_wake);
		struct client *c = d->mm_clients[i];

		d->mm_wake &= d->mm_wake - 1;
		if (c && c->ring.dctl)
			ring_wake_client(&c->ring.dctl->wake,
					 &c->ring.ctl->need_wake);
	}
	if (d->mm_kick || d->swap.kick) {
		d->mm_kick = false;
		d->swap.kick = false;
		bell_ring(d->kick.fd);
	}
}

static void mm_run_call(struct daemon *d)
{
	d->call_fn(d->setup.core, d->call_arg);
	mm_flush(d);
	/* Pairs with the acquire in mm_turn() of the next call. */
	store_release(&d->call_pending, 0);
	sem_post(&d->call_done);
}

/* A client's memory failed under us: the signal handler put zeros there. */
static void mm_check_guards(struct daemon *d, u64 now)
{
	u64 todo = d->mm_active;

	for (; todo; todo &= todo - 1) {
		struct client *c = d->mm_clients[__builtin_ctzll(todo)];

		if (segment_faulted(c->ring.guards[0]) ||
		    segment_faulted(c->ring.guards[1]))
			serve_expel(d, c, now, "its shared memory is gone");
	}
}

/* Clients with requests that may be served. */
static u64 mm_waiting(const struct daemon *d)
{
	u64 todo = d->mm_active, mask = 0;

	for (; todo; todo &= todo - 1) {
		const struct client_ring *r =
			&d->mm_clients[__builtin_ctzll(todo)]->ring;

		if (!r->stalled && READ_ONCE(*r->sq.shared_tail) != r->sq.head)
			mask |= todo & -todo;
	}
	return mask;
}

/*
 * Serve who is active.  @wait: those that had requests when the turn began;
 * until the last of them has its turn the thread works for others.  What comes
 * later waits at most for the rest of this turn, and counts in the next.
 */
static bool mm_serve(struct daemon *d, u64 now, u64 todo, struct mm_wait *wait)
{
	bool busy = false;

	mm_wait_serve(wait, todo);
	for (; todo; todo &= todo - 1) {
		struct client *c = d->mm_clients[__builtin_ctzll(todo)];

		mm_wait_turn(wait, todo & -todo);
		if (serve_client(d, c, now)) {
			busy = true;
			WRITE_ONCE(d->served, d->served + 1);
			mm_flush(d);
		}
	}
	if (wait->some_ns)
		core_cpu_waited(d->setup.core, wait->some_ns, wait->full_ns);
	return busy;
}

/* Return: whether anything was done. */
static bool mm_turn(struct daemon *d)
{
	u64 now = clock_ns(), todo = d->mm_active;
	struct mm_wait wait = { .mask = mm_waiting(d), .since = now };
	u32 faults = segment_fault_count();
	bool busy = false;

	device_look(&d->setup, now);
	/* Pairs with the release in mm_call(). */
	if (load_acquire(&d->call_pending)) {
		mm_run_call(d);
		busy = true;
		todo = d->mm_active;
		/* It told the core the time: the core's never goes back. */
		now = clock_ns();
	}
	busy |= mapper_collect(&d->mapper, now);
	busy |= copier_collect(&d->copier, now);
	busy |= swap_collect(&d->swap, now);
	busy |= mm_serve(d, now, todo, &wait);
	busy |= core_poll(d->setup.core, now);
	if (now >= d->mm_next_tick) {
		core_tick(d->setup.core, now);
		d->mm_next_tick = now +
			(d->mm_known ? TICK_NS : TICK_IDLE_NS);
	}
	if (segment_fault_count() != faults)
		mm_check_guards(d, now);
	busy |= swap_pump(&d->swap, now);
	swap_note_stalls(&d->swap);
	mm_flush(d);
	return busy;
}

/* ---- sleeping ---- */

static bool mm_work_waits(struct daemon *d)
{
	u64 todo;

	if (load_acquire(&d->call_pending) || READ_ONCE(d->mm_stop) ||
	    !queue_empty(&d->mapper.done) || copier_waits(&d->copier) ||
	    swap_waits(&d->swap))
		return true;
	for (todo = d->mm_active; todo; todo &= todo - 1) {
		if (serve_due(d->mm_clients[__builtin_ctzll(todo)]))
			return true;
	}
	return false;
}

static void mm_say_asleep(struct daemon *d, u32 asleep)
{
	u64 todo;

	for (todo = d->mm_active; todo; todo &= todo - 1) {
		struct client *c = d->mm_clients[__builtin_ctzll(todo)];

		WRITE_ONCE(c->ring.dctl->need_doorbell, asleep);
	}
	if (d->swap.ctl)
		WRITE_ONCE(d->swap.ctl->kvmm_sleeps, asleep);
	if (asleep)
		ring_sleep_prepare(&d->mm_sleeper.asleep);
	else
		ring_sleep_finish(&d->mm_sleeper.asleep);
}

static void mm_sleep(struct daemon *d)
{
	struct epoll_event ev[MM_EVENTS];
	u64 began = clock_ns();
	int ms;

	if (began >= d->mm_next_tick)
		return;
	ms = (int)DIV_ROUND_UP(d->mm_next_tick - began, NSEC_PER_MSEC);

	/* Its fence pairs with the ones of the clients and of mm_wake_up(). */
	mm_say_asleep(d, 1);
	if (!mm_work_waits(d)) {
		epoll_wait(d->mm_epoll, ev, MM_EVENTS, ms);
		WRITE_ONCE(d->idle_ns, d->idle_ns + clock_ns() - began);
	}
	mm_say_asleep(d, 0);
}

static void *mm_main(void *arg)
{
	struct daemon *d = arg;
	u32 idle = 0;

	pthread_setname_np(pthread_self(), "kvmm-mm");
	while (!READ_ONCE(d->mm_stop)) {
		if (mm_turn(d)) {
			idle = 0;
		} else if (idle < d->mm_spin) {
			idle++;
			cpu_relax();
		} else {
			mm_sleep(d);
			idle = 0;
		}
	}
	return NULL;
}

/* ---- for the other threads ---- */

/**
 * mm_call() - run a function on the mm thread, between two requests
 * @fn:  short; may not block
 * @arg: its argument
 *
 * Context: control thread.  Waits for the rest of a turn and for @fn.
 * Return: 0, or -ESHUTDOWN when the mm thread runs no longer.
 */
int mm_call(struct daemon *d, void (*fn)(struct core *core, void *arg),
	    void *arg)
{
	if (READ_ONCE(d->mm_stop))
		return -ESHUTDOWN;
	d->call_fn = fn;
	d->call_arg = arg;
	/* Pairs with the acquire in mm_turn(). */
	store_release(&d->call_pending, 1);
	sleeper_wake(&d->mm_sleeper);
	while (sem_wait(&d->call_done) && errno == EINTR)
		;
	return 0;
}

/* What tells of tenants what they do: it is in no core dump. */
static void *mm_map(u64 bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	(void)madvise(p, bytes, MADV_DONTDUMP);
	return p;
}

static void mm_unmap(void *p, u64 bytes)
{
	if (p)
		munmap(p, bytes);
}

/* Nor do secrets go where the system swaps to, unless the limit is too low. */
static void mm_lock_secrets(const struct daemon *d)
{
	u64 bytes;
	const void *p = core_get_secrets(d->setup.core, &bytes);

	if (mlock(p, bytes))
		pr_info("the secrets of tenants cannot be locked in memory: %s: raise the limit (ulimit -l), or have the system's swap encrypted",
			strerror(errno));
}

/* mm_ready_core() - room for the core, and what it commands */
int mm_ready_core(struct daemon *d)
{
	if (!d->setup.core)
		d->setup.core = calloc(1, core_struct_size());
	d->core_ops = mm_core_ops;
	/* Nobody is ended for having what is of no use any more. */
	if (d->setup.dev.ops->takes_back)
		d->core_ops.kill_ghosts = NULL;
	return d->setup.core ? 0 : -ENOMEM;
}

/* A fresh one, in an arena that hold keeps, if there may be a next daemon. */
static int mm_make_core(struct daemon *d)
{
	int err = mm_ready_core(d);

	if (err)
		return err;
	if (deposit_wanted(&d->deposit))
		d->setup.arena = keep_memory("kvmm-arena", d->setup.arena_bytes,
					     &d->setup.arena_fd);
	else
		d->setup.arena = mm_map(d->setup.arena_bytes);
	if (!d->setup.arena)
		return errno == EFBIG ? -EFBIG : -ENOMEM;
	err = core_init(d->setup.core, d->setup.arena, d->setup.arena_bytes, &d->setup.cfg,
			&d->core_ops, d);
	if (!err && d->setup.arena_fd >= 0)
		deposit_put(&d->deposit, HOLD_ARENA, 0, d->setup.arena_fd, 0);
	return err;
}

/* Without it there are no events to be switched on, and no last_oom. */
static void mm_lend_trace(struct daemon *d)
{
	d->trace = mm_map(core_trace_bytes(TRACE_RECORDS));
	if (d->trace)
		core_trace_attach(d->setup.core, clock_ns(), d->trace, TRACE_RECORDS);
	else
		pr_warn("no memory for a trace: it will be empty");
}

/**
 * mm_init() - make the core and what its thread needs
 * Context: before threads exist.
 * Return: 0; -EINVAL: the core refuses the configuration; -ENOMEM.
 */
int mm_init(struct daemon *d)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	int err;

	d->mm_args = mm_map(ARG_BYTES);
	if (!d->mm_args)
		return -ENOMEM;
	err = d->setup.adopted >= 0 ? 0 : mm_make_core(d);
	if (err)
		return err;
	mm_lend_trace(d);
	mm_lock_secrets(d);
	d->mm_epoll = epoll_create1(EPOLL_CLOEXEC);
	d->mm_sleeper.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (d->mm_epoll < 0 || d->mm_sleeper.bell < 0 ||
	    epoll_ctl(d->mm_epoll, EPOLL_CTL_ADD, d->mm_sleeper.bell, &ev))
		return -errno;
	sem_init(&d->call_done, 0, 0);
	d->mm_stop = 1;
	return 0;
}

int mm_start(struct daemon *d)
{
	int err;

	if (kv_fault(KV_FAULT_thread_create))
		return -EAGAIN;
	d->mm_stop = 0;
	err = pthread_create(&d->mm_thread, NULL, mm_main, d);
	if (err)
		d->mm_stop = 1;
	return -err;
}

void mm_stop(struct daemon *d)
{
	if (d->mm_stop)
		return;
	WRITE_ONCE(d->mm_stop, 1);
	sleeper_wake(&d->mm_sleeper);
	pthread_join(d->mm_thread, NULL);
}

void mm_exit(struct daemon *d)
{
	if (d->mm_epoll >= 0)
		close(d->mm_epoll);
	if (d->mm_sleeper.bell >= 0)
		close(d->mm_sleeper.bell);
	mm_unmap(d->setup.arena, d->setup.arena_bytes);
	if (d->setup.arena_fd >= 0)
		close(d->setup.arena_fd);
	mm_unmap(d->mm_args, ARG_BYTES);
	mm_unmap(d->trace, core_trace_bytes(TRACE_RECORDS));
	free(d->setup.core);
}
