// SPDX-License-Identifier: Apache-2.0
/*
 * check_probes.c - the static probes: in binaries, page and scenes of the core
 *
 * The notes of the three programs are compared with the list, both ways, and
 * the page with both.  Then scenes of the core run in a child whose probes are
 * traced (tests/usdt.h), and the expected events follow from the requests and
 * answers of the clients.
 */
#include "kvmm/core/stat.h"
#include "tests/unit/core_shell.h"
#include "tests/unit/page.h"
#include "tests/usdt.h"

#define ANY	USDT_ANY

struct probe {
	const char	*provider;
	const char	*name;
	u32		nr;
	const char	*args;
	const char	*text;
};

static const struct probe probes[] = {
#define x(name, nr, args, text) { "kvmm", #name, nr, args, text },
	KVMM_PROBES(x)
#undef x
#define x(name, nr, args, text) { "swapd", #name, nr, args, text },
	SWAPD_PROBES(x)
#undef x
#define x(name, nr, args, text) { "kvrt", #name, nr, args, text },
	KVRT_PROBES(x)
#undef x
};

static struct usdt_file file;

/* ---- lists ---- */

static void read_program(const char *name)
{
	const char *build = getenv("KVMM_BUILD");
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", build ? build : "build", name);
	ck_assert_msg(!usdt_read(path, &file), "%s cannot be read", path);
}

static const struct probe *probe_of(const struct usdt_note *n)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(probes); i++)
		if (!strcmp(probes[i].provider, n->provider) &&
		    !strcmp(probes[i].name, n->name))
			return &probes[i];
	return NULL;
}

START_TEST(test_binaries)
{
	static const char * const programs[] = { "kvmm", "swapd", "kvrt" };
	const char *name = programs[_i];
	u32 i, k;

	read_program(name);
#ifndef KV_HAVE_PROBES
	ck_assert_uint_eq(file.nr, 0);
	puts("note: built without <sys/sdt.h> (systemtap-sdt-dev): no probes");
	return;
#endif
	for (k = 0; k < file.nr; k++) {
		const struct usdt_note *n = &file.note[k];
		const struct probe *p = probe_of(n);

		ck_assert_str_eq(n->provider, name);
		ck_assert_msg(p, "%s:%s is not in the list", name, n->name);
		ck_assert_msg(n->nr_args == p->nr,
			      "%s:%s has %u arguments, the list says %u: %s",
			      name, n->name, n->nr_args, p->nr, n->args);
		ck_assert_msg(n->semaphore, "%s:%s has no semaphore", name,
			      n->name);
	}
	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		for (k = 0; k < file.nr && probe_of(&file.note[k]) != &probes[i];
		     k++)
			;
		ck_assert_msg(strcmp(probes[i].provider, name) || k < file.nr,
			      "%s:%s is in the list, not in the program", name,
			      probes[i].name);
	}
}
END_TEST

START_TEST(test_list)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(probes); i++)
		ck_assert_msg(usdt_count_args(probes[i].args) == probes[i].nr,
			      "%s: %s", probes[i].name, probes[i].args);
}
END_TEST

START_TEST(test_page)
{
	char *page = page_read("tracing.md"), row[700];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		snprintf(row, sizeof(row), "| `%s:%s` | %s | %s |\n",
			 probes[i].provider, probes[i].name, probes[i].args,
			 probes[i].text);
		ck_assert_row(page, "tracing.md", row);
	}
	ck_assert_uint_eq(page_count(page, "| `kvmm:") +
			  page_count(page, "| `swapd:") +
			  page_count(page, "| `kvrt:"), ARRAY_SIZE(probes));
#define x(name, text)							\
	snprintf(row, sizeof(row), "| %u | %s | %s |\n",		\
		 (u32)CORE_CAUSE_##name, #name, text);			\
	ck_assert_row(page, "tracing.md", row);
	CORE_CAUSES(x)
#undef x
	free(page);
}
END_TEST

/* The script's names of causes are those of the core. */
START_TEST(test_causes)
{
	char *script = page_read("../kvmm/dist/bpftrace/evictions.bt"), row[64];

#define x(name, text)							\
	snprintf(row, sizeof(row), "\t@cause[%u] = \"%s\";\n",		\
		 (u32)CORE_CAUSE_##name, #name);			\
	ck_assert_row(script, "evictions.bt", row);
	CORE_CAUSES(x)
#undef x
	ck_assert_uint_eq(page_count(script, "\t@cause["), NR_CORE_CAUSES);
	free(script);
}
END_TEST

/* ---- scenes of the core ---- */

#if defined(KV_HAVE_PROBES) && defined(__x86_64__)

static struct usdt_wants *want;

static u32 dom(u32 cl)
{
	return sh.cl[cl].info.domain;
}

static u64 ready(u32 cl, u32 prompt, u32 more, u32 prio, u32 seed)
{
	struct kvmm_open_arg a = { .prompt_len = prompt, .max_tokens = more,
				   .priority = prio };
	u64 seq;

	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	usdt_want(want, "admit", cl, KVMM_SEQ_INDEX(seq), dom(cl), prompt, 0, 0);
	ck_assert_int_eq(sh_match(cl, seq, prompt, seed), 0);
	return seq;
}

/* A step with one entry that takes @ms. */
static void compute(u32 cl, u64 seq, u32 from, u32 to, u32 seed, u32 ms)
{
	u64 step = sh.cl[cl].step + 1;

	usdt_want(want, "grant", cl, KVMM_SEQ_INDEX(seq), dom(cl), step,
		  DIV_ROUND_UP(to, SH_BT) - DIV_ROUND_UP(from, SH_BT), 0);
	usdt_want(want, "step_begin", cl, step, 1, 1);
	usdt_want(want, "step_end", cl, step, 1, 1000 * ms);
	ck_assert_int_eq(sh_begin(cl, seq, from, to - from), 0);
	sh.now += ms * MS;
	ck_assert_int_eq(sh_end(cl, seq, from, to, seed), 0);
}

/* An older sequence needs a block, and a younger one is preempted. */
static void scene_preempt(void)
{
	struct kvmm_begin_arg a;
	struct kvmm_begin_res res;
	u64 old, new, late;
	u32 cl, step, i;

	sh_config(2);
	sh_start();
	cl = sh_attach(1, "a");
	old = ready(cl, 32, 64, 0, 1000);
	compute(cl, old, 0, 32, 1000, 3);
	new = ready(cl, 64, 64, 0, 2000);
	compute(cl, new, 0, 64, 2000, 7);
	compute(cl, new, 64, 96, 2000, 0);
	/* There is no room for this sequence. */
	usdt_want_among(want, "wait", cl, 2, dom(cl), EAGAIN, 2);
	late = sh_open(cl, 32, 16);
	ck_assert_int_eq(sh_match(cl, late, 32, 3000), 0);
	/* The victim's memory is enough for this sequence too. */
	sh.now += 4 * MS;
	usdt_want(want, "admit", cl, KVMM_SEQ_INDEX(late), dom(cl), 32, 0, 4000);
	a = sh_entry(cl, new, 96, 1);
	step = (u32)sh.cl[cl].step + 1;
	usdt_want(want, "mark", cl, KVMM_SEQ_INDEX(new), dom(cl),
		  CORE_CAUSE_grow, dom(cl));
	usdt_want(want, "preempt", cl, KVMM_SEQ_INDEX(new), dom(cl),
		  CORE_CAUSE_grow, 0, 96);
	usdt_want(want, "grant", cl, KVMM_SEQ_INDEX(old), dom(cl), step, 1, 0);
	usdt_want(want, "step_begin", cl, step, 1, 1);
	ck_assert_int_eq(sh_begin(cl, old, 32, 1), 0);
	ck_assert_uint_eq(sh_state(cl, new), KVMM_SEQ_RECOMPUTE);
	/* Six of eight blocks were cache; the sequence takes some of them. */
	ck_assert_uint_ge(sh_count(CORE_EV_prefix_evict), 1);
	for (i = 0; i < sh_count(CORE_EV_prefix_evict); i++)
		usdt_want(want, "evict", dom(cl), dom(cl), ANY, 0,
			  i ? ANY : 8);
	step++;
	usdt_want(want, "refuse", cl, KVMM_SEQ_INDEX(new), dom(cl), step, ESTALE, 0);
	usdt_want(want, "step_begin", cl, step, 1, 0);
	ck_assert_int_eq(sh_begin_all(cl, &a, 1, &res), 0);
	ck_assert_int_eq(res.status, -ESTALE);
}

/* One domain takes the cache of another, span by span. */
static void scene_steal(void)
{
	u64 seq, spans;
	u32 one, two, i;

	sh_config(4);
	sh_start();
	one = sh_attach(1, "one");
	two = sh_attach(1, "two");
	seq = ready(one, 16 * SH_BT, 0, 0, 1000);
	compute(one, seq, 0, 16 * SH_BT, 1000, 1);
	ck_assert_int_eq(sh_close(one, seq), 0);
	spans = sh_count(CORE_EV_span_release);
	seq = ready(two, 8 * SH_BT - 8, 8, 0, 5000);
	ck_assert_uint_eq(sh_state(two, seq), KVMM_SEQ_READY);
	/* Evicting a block evicts its successors too, so it may be more than 8. */
	ck_assert_uint_ge(sh_count(CORE_EV_prefix_evict), 8);
	for (i = 0; i < sh_count(CORE_EV_prefix_evict); i++)
		usdt_want(want, "evict", dom(one), dom(two), ANY, 0, 16 - i);
	ck_assert_uint_ge(sh_count(CORE_EV_span_release) - spans, 2);
	for (i = 0; i < sh_count(CORE_EV_span_release) - spans; i++)
		usdt_want(want, "steal", dom(one), dom(two), ANY, ANY);
}

/* memory.max and memory.high, and the cache that memory.max evicts. */
static void scene_limit(void)
{
	struct kvmm_attach_req req = sh_attach_req("one");
	u32 cl, hi, i;
	u64 seq;

	sh_config(16);
	sh.cfg.starve_ns = 1ull << 60;
	sh_start();
	req.limits[0].max = 8 * SH_BLOCK;
	cl = (u32)sh_attach_as(1, &req);
	sh_settle();
	seq = ready(cl, 6 * SH_BT, 0, 0, 1000);
	compute(cl, seq, 0, 6 * SH_BT, 1000, 1);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	/* Six blocks are cached; four more would exceed memory.max. */
	for (i = 0; i < 2; i++)
		usdt_want(want, "evict", dom(cl), dom(cl), ANY, 0, 6 - i);
	usdt_want(want, "limit_reclaim", dom(cl), 2, 4, 8);
	seq = ready(cl, 4 * SH_BT, 4 * SH_BT, 0, 9000);
	compute(cl, seq, 0, 4 * SH_BT, 9000, 1);
	/* Four blocks are in use and four are cached: five more are too many. */
	usdt_want_among(want, "limit", dom(cl), 0, 4, 5 + 1);
	usdt_want_among(want, "wait", cl, ANY, dom(cl), EAGAIN, 5);
	seq = sh_open(cl, 5 * SH_BT, 0);
	ck_assert_int_eq(sh_match(cl, seq, 5 * SH_BT, 20000), 0);

	req = sh_attach_req("two");
	req.limits[0].high = 4 * SH_BLOCK;
	hi = (u32)sh_attach_as(1, &req);
	sh_settle();
	seq = ready(hi, 3 * SH_BT, 0, 0, 1000);
	compute(hi, seq, 0, 3 * SH_BT, 1000, 1);
	usdt_want_among(want, "limit", dom(hi), 1, 3, 2);
	usdt_want_among(want, "wait", hi, ANY, dom(hi), EBUSY, 2);
	seq = sh_open(hi, 2 * SH_BT, 0);
	ck_assert_int_eq(sh_match(hi, seq, 2 * SH_BT, 30000), 0);
}

static u64 copy_ids[64];
static u32 nr_copy_ids;

static void on_copy(const struct core_copy *cp)
{
	copy_ids[nr_copy_ids++] = cp->id;
}

static void do_copies(void)
{
	while (nr_copy_ids)
		SH_CORE(core_copy_done(sh.core, sh.now,
				       copy_ids[--nr_copy_ids], 0));
	sh_settle();
}

static int advise(u32 cl, u64 seq, u32 advice)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;
	int err;

	*a = (struct kvmm_advise_arg){ .seq = seq, .advice = advice };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)),
			 0);
	err = sh_seq_res(0);
	sh_settle();
	return err;
}

/* The program pages a sequence out and takes it back after 20 ms. */
static void scene_swap(void)
{
	u64 seq;
	u32 cl;

	sh_config(16);
	sh.cfg.host_bytes = 120 * 2 * SH_EXTENT;
	sh.cfg.swappiness = 200;
	sh_on_copy = on_copy;
	sh_start();
	cl = sh_attach(1, "d");
	seq = ready(cl, 3 * SH_BT, 16, 0, 1000);
	compute(cl, seq, 0, 3 * SH_BT, 1000, 1);
	usdt_want(want, "mark", cl, KVMM_SEQ_INDEX(seq), dom(cl),
		  CORE_CAUSE_advice, UINT32_MAX);
	usdt_want(want, "preempt", cl, KVMM_SEQ_INDEX(seq), dom(cl),
		  CORE_CAUSE_advice, 1, 3 * SH_BT);
	ck_assert_int_eq(advise(cl, seq, KVMM_ADV_PAGEOUT), 0);
	do_copies();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
	sh_tick(20);
	usdt_want(want, "restore", cl, KVMM_SEQ_INDEX(seq), dom(cl), ANY, ANY);
	ck_assert_int_eq(advise(cl, seq, KVMM_ADV_WILLNEED), 0);
	do_copies();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
}

/* A step stays open while another client waits. */
static void scene_kill(void)
{
	u32 slow, other;
	u64 seq;

	sh_config(2);
	sh_start();
	slow = sh_attach(1, "a");
	other = sh_attach(1, "a");
	seq = ready(slow, 7 * SH_BT, 16, 0, 1000);
	ck_assert_int_eq(sh_begin(slow, seq, 0, 7 * SH_BT), 0);
	seq = sh_open(other, 4 * SH_BT, 0);
	ck_assert_int_eq(sh_match(other, seq, 4 * SH_BT, 9000), 0);
	usdt_want(want, "kill", slow, ETIME);
	sh_tick(101);
	ck_assert_uint_eq(sh.cl[slow].killed, 1);
}

static void (*const scenes[])(void) = {
	scene_preempt, scene_steal, scene_limit, scene_swap, scene_kill,
};

START_TEST(test_scene)
{
	struct usdt_hit *hits = calloc(USDT_HITS, sizeof(*hits));
	u32 nr;
	int err;

	want = usdt_wants_make();
	ck_assert(want && hits && !usdt_read("/proc/self/exe", &file));
	err = usdt_trace(&file, scenes[_i], hits, &nr);
	if (err == -EPERM) {
		puts("note: ptrace is forbidden here: no probe of the core was traced");
		return;
	}
	ck_assert_int_eq(err, 0);
	ck_assert_uint_gt(want->nr, 0);
	ck_assert(usdt_compare(want, hits, nr));
	munmap(want, sizeof(*want));
	free(hits);
}
END_TEST
#endif

int main(void)
{
	Suite *s = suite_create("probes");
	TCase *tc = tcase_create("probes");

	tcase_add_loop_test(tc, test_binaries, 0, 3);
	tcase_add_test(tc, test_list);
	tcase_add_test(tc, test_page);
	tcase_add_test(tc, test_causes);
#if defined(KV_HAVE_PROBES) && defined(__x86_64__)
	tcase_add_loop_test(tc, test_scene, 0, ARRAY_SIZE(scenes));
#endif
	suite_add_tcase(s, tc);
	return sh_run(s);
}
