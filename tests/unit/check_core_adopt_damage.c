// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_adopt_damage.c - adoption of arenas with random damage
 *
 * Arenas between events, and inside one, are damaged at random: bits, bytes and
 * words, mostly in records that are in use.  With any damage the arena is refused
 * with a line that gives the reason, or adopted with the walkers content; the
 * core never crashes, fails an assertion or loops for ever.
 * budget: 15 s, full 120 s
 */
#include <unistd.h>

#include "tests/unit/adopt_scene.h"

#define MOST_LOOKS	40
#define RECORDS		24	/* of each table: most damage is done there */

static void *copy;
static u64 bytes, seed;
static struct core *next;
static u32 nr_looks, nr_taken, nr_refused, tries;

static void no_crash(void *arg, u32 point) {}
static const struct core_ops no_ops = { .crash = no_crash };

static u64 draw(u64 below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (seed >> 11) % below;
}

/* A random place in the head or in one of the tables. */
static u64 place(const struct core *c)
{
	const struct core_sizes *s = core_sizes(c);
	const struct core_config *cfg = core_cfg(c);
	u32 table = (u32)draw(24), n = 0;

#define x(name, type, count)						\
	if (++n == table)						\
		return (u64)((u8 *)c->name - (u8 *)c->head) +		\
		       draw(min((u64)(count), (u64)RECORDS) * sizeof(type));
	CORE_ARENA(x)
#undef x
	(void)s;
	return draw(sizeof(struct core_head));
}

static void damage(const struct core *c)
{
	u8 *at = (u8 *)copy + place(c);
	u64 word;

	switch (draw(4)) {
	case 0:
		*at ^= (u8)(1u << draw(8));
		return;
	case 1:
		*at = (u8)draw(256);
		return;
	case 2:			/* like an index that is nearly right */
		at = (u8 *)((uintptr_t)at & ~3ull);
		memcpy(&word, at, 4);
		word += draw(9) - 4;
		memcpy(at, &word, 4);
		return;
	}
	at = (u8 *)((uintptr_t)at & ~3ull);
	word = draw(3) ? draw(1ull << 33) : draw(64);
	memcpy(at, &word, 4);
}

static void try_one(u32 event)
{
	struct core_head *h = copy;
	struct core_report r;
	int how;
	u64 n;

	memcpy(copy, sh.arena, bytes);
	h->event = event;
	for (n = 1 + draw(3); n; n--)
		damage(sh.core);
	how = core_adopt(next, copy, bytes, &sh.cfg, &no_ops, NULL,
			 100000 * MS, &r);
	if (how >= 0) {
		nr_taken++;
		ck_assert_msg(!core_check(next, &r), "walkers: %s", r.text);
	} else {
		nr_refused++;
		ck_assert(how == -ESTALE || how == -EUCLEAN);
		ck_assert_msg(r.text[0], "refused without a word");
	}
}

static void look(void)
{
	u32 i;

	if (nr_looks++ > MOST_LOOKS)
		return;
	for (i = 0; i < tries; i++) {
		alarm(20);	/* ends a walk that does not end */
		try_one(0);
		try_one(1);
	}
	alarm(0);
}

static void setup(void)
{
	const char *level = getenv("KVMM_TEST_LEVEL");
	const char *scale = getenv("KVMM_TIME_SCALE");

	tries = level && !strcmp(level, "full") ? 2000 : 100;
	if (scale && atoi(scale) > 1)
		tries /= 5;
	scene_config();
	bytes = core_arena_size(&sh.cfg);
	copy = aligned_alloc(64, ALIGN_UP(bytes, 64ull));
	next = calloc(1, core_struct_size());
	ck_assert(copy && next);
	sh_start();
	scene_look = look;
}

static void teardown(void)
{
	scene_look = NULL;
	sh_stop();
	free(copy);
	free(next);
}

static bool thorough(void)
{
	const char *level = getenv("KVMM_TEST_LEVEL");

	return level && strcmp(level, "check");
}

START_TEST(test_damage)
{
	/* The first two were all for long, and hid what the next ones found. */
	seed = 0x9e3779b97f4a7c15ull * (u64)(1 + _i / 2) + (u64)(_i % 2);
	scene_run();
	printf("%u damaged arenas taken, %u refused\n", nr_taken, nr_refused);
	ck_assert_uint_gt(nr_taken, 100);
	ck_assert_uint_gt(nr_refused, 100);
}
END_TEST

/* The cause for which memory was taken is an index of the domain's counts. */
static void look_cause(void)
{
	const u64 at = (u64)((u8 *)sh.core->seqs - (u8 *)sh.core->head);
	struct kv_seq *s = (struct kv_seq *)((u8 *)copy + at);
	struct core_report r;
	u32 i;

	if (nr_refused)
		return;
	memcpy(copy, sh.arena, bytes);
	for (i = 0; i < core_sizes(sh.core)->nr_seqs; i++, s++) {
		if (s->state == KVMM_SEQ_CLOSED)
			continue;
		s->cause = NR_CORE_CAUSES;
		ck_assert_int_eq(core_adopt(next, copy, bytes, &sh.cfg, &no_ops,
					    NULL, 100000 * MS, &r), -EUCLEAN);
		ck_assert_msg(strstr(r.text, "facts of seq"), "%s", r.text);
		nr_refused++;
		return;
	}
}

START_TEST(test_cause)
{
	scene_look = look_cause;
	scene_run();
	ck_assert_uint_eq(nr_refused, 1);
}
END_TEST

/* The next attach divides by the weight that an operator set. */
static void look_weight(void)
{
	static const u64 bad[] = { 0, CORE_WEIGHT_MAX + 1, 1ull << 32 };
	const u64 at = (u64)((u8 *)sh.core->domains - (u8 *)sh.core->head);
	struct kv_domain *d = (struct kv_domain *)((u8 *)copy + at);
	struct core_report r;
	u32 i;

	if (nr_refused || !sh.core->domains[0].used)
		return;
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		memcpy(copy, sh.arena, bytes);
		d->by_operator |= BIT(CORE_LIMIT_WEIGHT);
		d->operator_limit[CORE_LIMIT_WEIGHT] = bad[i];
		ck_assert_int_eq(core_adopt(next, copy, bytes, &sh.cfg, &no_ops,
					    NULL, 100000 * MS, &r), -EUCLEAN);
		ck_assert_msg(strstr(r.text, "shape of domain"), "%s", r.text);
		nr_refused++;
	}
}

START_TEST(test_weight)
{
	scene_look = look_weight;
	scene_run();
	ck_assert_uint_eq(nr_refused, 3);
}
END_TEST

static Suite *damage_suite(void)
{
	Suite *s = suite_create("core_adopt_damage");
	TCase *tc = tcase_create("damage");

	tcase_set_timeout(tc, 600);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_cause);
	tcase_add_test(tc, test_weight);
	tcase_add_loop_test(tc, test_damage, 0, thorough() ? 40 : 6);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return sh_run(damage_suite());
}
