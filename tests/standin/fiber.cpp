// SPDX-License-Identifier: Apache-2.0
/*
 * fiber.cpp - run a launch: blocks one by one, their threads as fibers
 *
 * A fiber is a stack and a position on it.  It runs a thread until the thread
 * waits or ends.  At the end the fiber goes on with a thread that did not begin
 * yet, on the same stack, so a kernel without barriers needs one fiber and no
 * switch.  The next thread is drawn by lot: among the ready lanes of the warp,
 * and when there are none, or now and then anyhow, among the warps.  The order of
 * blocks is an arithmetic sequence modulo their number.
 *
 * Invariant: a lane is in at most one of ready, ended, at_barrier and the
 * arrived lanes of a group; the lane that runs is in none of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/standin/shim_private.h"

#define STACK_BYTES	(128u << 10)
#define LINE_BYTES	64u
#define NOBODY		~0u

struct fiber {
	void *sp;
	struct fiber *next;
	u8 *guard;		/* the page below its stack */
};

struct shim_now shim_now;
struct shim_dim3 shim_thread, shim_block, shim_grid, shim_dim;
struct shim_warp_state shim_warps[SHIM_MAX_THREADS / 32];
u64 shim_lot;
const struct shim_launch *shim_launched;
struct shim_where shim_barrier_at;

static struct shim_kernel *kernels;
static struct fiber *current, *idle, launcher;
static struct fiber *on[SHIM_MAX_THREADS];	/* NULL: did not begin */
static u32 ready_warps;
static u32 nr_warps, nr_ended, nr_waiting;
static u32 nr_pred, result;

extern "C" void shim_switch(void **save, void *to);

#if defined(__x86_64__) && !defined(SHIM_UCONTEXT)
/* Registers that a call must preserve go on the stack that is left. */
asm(".text\n"
    ".type shim_switch, @function\n"
    "shim_switch:\n"
    "	pushq %rbp\n"
    "	pushq %rbx\n"
    "	pushq %r12\n"
    "	pushq %r13\n"
    "	pushq %r14\n"
    "	pushq %r15\n"
    "	movq %rsp, (%rdi)\n"
    "	movq %rsi, %rsp\n"
    "	popq %r15\n"
    "	popq %r14\n"
    "	popq %r13\n"
    "	popq %r12\n"
    "	popq %rbx\n"
    "	popq %rbp\n"
    "	ret\n"
    ".size shim_switch, .-shim_switch\n");

static void *first_sp(u8 *top, void (*entry)(void))
{
	void **sp = (void **)top;

	*--sp = NULL;		/* a return address, as after a call */
	*--sp = (void *)entry;
	for (int i = 0; i < 6; i++)
		*--sp = NULL;
	return sp;
}
#else
#include <ucontext.h>

static void *first_sp(u8 *top, void (*entry)(void))
{
	ucontext_t *c = (ucontext_t *)calloc(1, sizeof(*c));

	getcontext(c);
	c->uc_stack.ss_sp = top - STACK_BYTES;
	c->uc_stack.ss_size = STACK_BYTES;
	makecontext(c, entry, 0);
	return c;
}

void shim_switch(void **save, void *to)
{
	ucontext_t here;

	*save = &here;
	swapcontext(&here, (ucontext_t *)to);
}
#endif

bool shim_register(struct shim_kernel *k)
{
	k->next = kernels;
	kernels = k;
	return true;
}

const struct shim_kernel *shim_find(const char *name)
{
	const struct shim_kernel *k;

	for (k = kernels; k && strcmp(k->name, name); k = k->next)
		;
	return k;
}

u32 shim_arg_bytes(const struct shim_kernel *k)
{
	return k->arg_bytes;
}

u32 shim_max_threads(const struct shim_kernel *k)
{
	return k->max_threads;
}

const char *shim_name(const struct shim_kernel *k)
{
	return k->name;
}

u64 shim_seed(void)
{
	const char *s = getenv("KVMM_SHIM_SEED");
	const u64 n = s ? strtoull(s, NULL, 0) : 1;

	/* Neighbouring seeds start far apart. */
	return (n + 1) * 0x9e3779b97f4a7c15ull | 1;
}

/* ---- the next thread ---- */

/* Draw one of the bits of @mask. */
static u32 draw_bit(u32 mask)
{
	const u32 by = (u32)shim_draw(&shim_lot) & 31;
	const u32 turned = mask >> by | mask << ((32 - by) & 31);

	return ((u32)__builtin_ctz(turned) + by) & 31;
}

void shim_wake(u32 warp, u32 lanes)
{
	shim_warps[warp].ready |= lanes;
	if (shim_warps[warp].ready)
		ready_warps |= 1u << warp;
}

/* All threads of the block are at its barrier: open it. */
static void open_barrier(void)
{
	u32 i;

	result = nr_pred;
	nr_pred = 0;
	nr_waiting = 0;
	shim_now.epoch = ++shim_now.clock;
	for (i = 0; i < nr_warps; i++) {
		const u32 lanes = shim_warps[i].at_barrier;

		shim_warps[i].at_barrier = 0;
		shim_wake(i, lanes);
	}
}

/* Draw the next thread and make it the running one.  Return: it, or NOBODY. */
static u32 draw(void)
{
	u32 w = shim_now.warp, lane;

	if (!ready_warps) {
		if (nr_ended == shim_launched->threads)
			return NOBODY;
		if (nr_waiting < shim_launched->threads)
			shim_stuck();
		open_barrier();
	}
	if (!shim_warps[w].ready || !(shim_lot >> 40 & 31))
		w = draw_bit(ready_warps);
	lane = draw_bit(shim_warps[w].ready);
	shim_warps[w].ready &= ~(1u << lane);
	if (!shim_warps[w].ready)
		ready_warps &= ~(1u << w);
	shim_now.warp = w;
	shim_now.me = shim_thread.x = w * 32 + lane;
	return shim_now.me;
}

/* ---- fibers ---- */

static void leave_to(struct fiber *to)
{
	struct fiber *from = current;

	current = to;
	shim_switch(&from->sp, to->sp);
}

/*
 * A fiber runs threads that have no fiber.  If the next thread has its own, or
 * the block is at its end, the fiber lies idle until a thread needs one.
 */
static void fiber_main(void)
{
	for (;;) {
		struct fiber *next;
		u32 t = shim_now.me;

		on[t] = current;
		shim_launched->kernel->call(shim_launched->args);
		shim_warps[shim_now.warp].ended |= 1u << shim_now.me % 32;
		nr_ended++;
		t = draw();
		if (t != NOBODY && !on[t])
			continue;
		next = t == NOBODY ? &launcher : on[t];
		current->next = idle;
		idle = current;
		leave_to(next);
	}
}

static struct fiber *new_fiber(void)
{
	static u32 nr;
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	/* Offsets in the pages differ, since caches have few places for equal ones. */
	const size_t off = nr++ * 5 % 61 * LINE_BYTES;
	struct fiber *f = (struct fiber *)calloc(1, sizeof(*f));
	u8 *m;

	m = (u8 *)mmap(NULL, page + STACK_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!f || m == MAP_FAILED || mprotect(m, page, PROT_NONE)) {
		fprintf(stderr, "standin: no memory for stacks\n");
		abort();
	}
	f->guard = m;
	f->sp = first_sp(m + page + STACK_BYTES - off, fiber_main);
	return f;
}

bool shim_stack_full(u64 addr)
{
	const u64 guard = (u64)current->guard;

	return addr >= guard && addr < guard + (u64)sysconf(_SC_PAGESIZE);
}

/* The fiber for the drawn thread. */
static struct fiber *fiber_of(u32 t)
{
	struct fiber *f = on[t];

	if (f)
		return f;
	f = idle;
	if (!f)
		return new_fiber();
	idle = f->next;
	return f;
}

void shim_wait(void)
{
	struct fiber *f;

	f = fiber_of(draw());
	if (f != current)
		leave_to(f);
}

u32 shim_barrier(u32 pred, struct shim_where at)
{
	if (!nr_waiting)
		shim_barrier_at = at;
	else if (shim_barrier_at.line != at.line ||
		 strcmp(shim_barrier_at.file, at.file))
		shim_die(at, "a barrier that others pass by: they wait at %s:%u",
			 shim_barrier_at.file, shim_barrier_at.line);
	nr_waiting++;
	nr_pred += pred;
	shim_warps[shim_now.warp].at_barrier |= 1u << shim_now.me % 32;
	shim_wait();
	return result;
}

/* ---- launches ---- */

static void run_block(u64 nr)
{
	u32 i;

	shim_block.x = (u32)(nr % shim_grid.x);
	shim_block.y = (u32)(nr / shim_grid.x % shim_grid.y);
	shim_block.z = (u32)(nr / shim_grid.x / shim_grid.y);
	nr_ended = 0;
	nr_waiting = 0;
	nr_pred = 0;
	ready_warps = 0;
	memset(on, 0, shim_launched->threads * sizeof(on[0]));
	for (i = 0; i < nr_warps; i++) {
		struct shim_warp_state *w = &shim_warps[i];
		const u32 left = shim_launched->threads - 32 * i;

		w->all = left < 32 ? (1u << left) - 1 : ~0u;
		w->ended = 0;
		w->at_barrier = 0;
		w->nr_groups = 0;
		w->ready = 0;
		shim_wake(i, w->all);
	}
	shim_now.warp = draw_bit(ready_warps);
	shim_watch_block();
	current = &launcher;
	leave_to(fiber_of(draw()));
}

static u64 gcd(u64 a, u64 b)
{
	return b ? gcd(b, a % b) : a;
}

void shim_run(const struct shim_launch *l)
{
	const u64 n = (u64)l->grid[0] * l->grid[1] * l->grid[2];
	u64 i, nr, step;

	if (!shim_lot)
		shim_lot = shim_seed();
	shim_launched = l;
	nr_warps = (l->threads + 31) / 32;
	shim_grid = { l->grid[0], l->grid[1], l->grid[2] };
	shim_dim = { l->threads, 1, 1 };
	shim_now.kernel = (struct shim_kernel *)l->kernel;
	shim_guard_begin(l);
	nr = shim_draw(&shim_lot) % n;
	do
		step = shim_draw(&shim_lot) % n + 1;
	while (gcd(step, n) != 1);
	for (i = 0; i < n; i++, nr = (nr + step) % n)
		run_block(nr);
	shim_guard_end();
	shim_now.kernel = NULL;
}
