// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_adopt_step.c - adoption after an end at any instruction
 *
 * A core goes through events of every kind one instruction at a time: the
 * processor's trap flag is set, and a handler counts.  After every few
 * instructions the arena is copied, as the next daemon would find it if the
 * process had been killed there, and another core adopts the copy.  The
 * adoption must succeed, the walkers must find nothing wrong, and a tick must
 * fail no assertion.  The distance between looks is a prime, so that all kinds
 * of places are met in time.  Only a part of an event is stepped through, from
 * its begin or from one of the points of crash.h on; at full level a longer
 * part.
 *
 * Without a trap flag (not x86) the test says so and does nothing.
 * budget: 15 s, full 240 s
 */
#include <signal.h>
#include <ucontext.h>

#include <kvmm/types.h>

#ifdef __x86_64__
#define TRAP_FLAG	0x100
/* Step over the red zone, which the compiler may use below the stack's end. */
#define trap_set(how)							\
	__asm__ __volatile__("lea -128(%%rsp), %%rsp; pushfq; " how	\
			     " (%%rsp); popfq; lea 128(%%rsp), %%rsp"	\
			     ::: "memory", "cc")
#define trap_on()	trap_set("orl $0x100,")
#define trap_off()	trap_set("andl $~0x100,")
#else
#define TRAP_FLAG	0
#define trap_on()	do { } while (0)
#define trap_off()	do { } while (0)
#endif

/* Instructions of this event that are still to be stepped through. */
static u64 may_step, most_steps;
/* Points of crash.h before stepping begins; 0: it begins with the event. */
static u32 begin_at, event_nr;

#define SH_CORE(call)							\
do {									\
	may_step = most_steps;						\
	begin_at = event_nr++ % 12;					\
	sh_in_core = true;						\
	if (!begin_at)							\
		trap_on();						\
	call;								\
	trap_off();							\
	sh_in_core = false;						\
} while (0)

#include "tests/unit/adopt_scene.h"

static void *copy;
static u64 bytes;
static struct core *next;
static struct core_ops ops;
static u64 nr_looks, nr_steps, nr_whole;
static u32 distance, left;

/* Orders of the adopting core are ignored. */
static void no_extent(void *arg, u32 extent) {}
static void no_create(void *arg, u32 extent, u32 generation) {}
static void no_send(void *arg, u32 cl, u32 extent, u32 generation) {}
static void no_kill(void *arg, u32 cl, int reason) {}
static void no_copy(void *arg, const struct core_copy *cp) {}
static void no_io(void *arg, const struct core_io *io) {}

static const struct core_ops no_ops = {
	.extent_create	= no_create,
	.extent_release	= no_extent,
	.extent_send	= no_send,
	.wake		= no_extent,
	.kill		= no_kill,
	.kill_ghosts	= no_extent,
	.copy		= no_copy,
	.io		= no_io,
};

/*
 * The interrupted instruction may be one of malloc(): the test lists orders of
 * the core.  An assertion that holds allocates, too.  So look() makes only
 * assertions that fail, with ck_abort_msg(), which does not return.
 */
static void look(void)
{
	const struct core_head *h = sh.arena;
	struct core_report r;
	bool inside = h->event;
	u64 now = 100000 * MS;
	int how;

	memcpy(copy, sh.arena, bytes);
	how = core_adopt(next, copy, bytes, &sh.cfg, &no_ops, NULL, now, &r);
	if (how != (inside ? CORE_ADOPT_SALVAGED : CORE_ADOPT_WHOLE))
		ck_abort_msg("look %llu, instruction %llu: %d: %s",
			     (unsigned long long)nr_looks,
			     (unsigned long long)nr_steps, how, r.text);
	core_tick(next, now + MS);
	if (core_check(next, &r))
		ck_abort_msg("after a tick: %s", r.text);
	nr_looks++;
	nr_whole += !inside;
}

/* Called after each instruction. */
static void on_trap(int sig, siginfo_t *info, void *context)
{
	const struct core_head *h = sh.arena;
	ucontext_t *uc = context;

	nr_steps++;
	if (!--may_step) {
#ifdef __x86_64__
		uc->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
#endif
		return;
	}
	if (!h->event || --left)
		return;
	left = distance;
	look();
}

/* The core passes a point: does stepping begin here? */
static void on_point(void *arg, u32 point)
{
	if (sh_in_core && begin_at && !--begin_at)
		trap_on();
}

static void setup(void)
{
	const char *level = getenv("KVMM_TEST_LEVEL");
	const char *scale = getenv("KVMM_TIME_SCALE");
	struct sigaction sa = { .sa_sigaction = on_trap,
				.sa_flags = SA_SIGINFO };

	distance = 101;
	most_steps = 1200;
	if (level && strcmp(level, "check")) {
		distance = 13;
		most_steps = 12000;
	}
	if (scale && atoi(scale) > 1)
		distance *= 5;
	left = 1;
	scene_config();
	bytes = core_arena_size(&sh.cfg);
	copy = aligned_alloc(64, ALIGN_UP(bytes, 64ull));
	next = calloc(1, core_struct_size());
	ck_assert(copy && next);
	sh_start();
	ops = *sh.core->ops;
	ops.crash = on_point;
	sh.core->ops = &ops;
	ck_assert_int_eq(sigaction(SIGTRAP, &sa, NULL), 0);
	scene_look = look;
}

static void teardown(void)
{
	scene_look = NULL;
	sh_stop();
	free(copy);
	free(next);
}

START_TEST(test_any_instruction)
{
	if (!TRAP_FLAG) {
		printf("SKIP: this processor is not stepped through\n");
		return;
	}
	scene_run();
	printf("%llu instructions, %llu arenas adopted, %llu of them whole\n",
	       (unsigned long long)nr_steps, (unsigned long long)nr_looks,
	       (unsigned long long)nr_whole);
	ck_assert_uint_gt(nr_looks - nr_whole, 100);
	ck_assert_uint_gt(nr_whole, 20);
}
END_TEST

static Suite *step_suite(void)
{
	Suite *s = suite_create("core_adopt_step");
	TCase *tc = tcase_create("step");

	tcase_set_timeout(tc, 600);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_any_instruction);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return sh_run(step_suite());
}
