// SPDX-License-Identifier: Apache-2.0
/*
 * check_proc_trace.c - trace, its switches, last_oom, kmsg and blockmap as text
 *
 * check_core_trace.c tests the recorded events.  This file tests their text, to
 * the byte if programs parse it, and that only the operator gets it.
 */
#include <unistd.h>

#include <kvmm/log.h>

#include "tests/unit/proc_fixture.h"

#include "kvmm/core/trace.h"

#define RING	512u
#define US	500ull

static struct core_trace *ring;

static void setup(void)
{
	fx_setup();
	ring = calloc(1, core_trace_bytes(RING));
	core_trace_attach(fx.core, fx.now, ring, RING);
}

static void teardown(void)
{
	fx_teardown();
	free(ring);
}

static void enable(u32 event)
{
	ck_assert_int_eq(core_trace_set(fx.core, event, 1), 0);
}

static void weigh(u32 value)
{
	ck_assert_int_eq(core_domain_set(fx.core, fx.now, 0, CORE_LIMIT_WEIGHT,
					 value), 0);
}

static const char empty[] =
	"# entries-in-buffer/entries-written: 0/0\n# lost 0\n#\n#     TIMESTAMP  EVENT\n";

START_TEST(test_trace_lines)
{
	fx_attach(&fx, US, "chat");
	fx.now = 15670000999ull;
	enable(CORE_TRACE_limit_set);
	enable(CORE_TRACE_device_fail);
	ck_assert_str_eq(fx_cat("trace"), empty);
	weigh(250);
	ck_assert_int_eq(core_domain_set(fx.core, fx.now, 0, CORE_LIMIT_MAX,
					 KVMM_LIMIT_MAX), 0);
	core_device_failed(fx.core, 1234567891234567ull, 0, CORE_DEVICE_CUT);
	ck_assert_str_eq(fx_cat("trace"),
		"# entries-in-buffer/entries-written: 3/3\n# lost 0\n#\n"
		"#     TIMESTAMP  EVENT\n"
		"   15.670000: limit_set: domain=0 mark=memory.weight value=250\n"
		"   15.670000: limit_set: domain=0 mark=memory.max value=max\n"
		"1234567.891234: device_fail: error=-5\n");
}
END_TEST

/* The text has the newest events, and the number of the missing ones. */
START_TEST(test_trace_wraps)
{
	const char *text;
	u32 i;

	fx_attach(&fx, US, "chat");
	enable(CORE_TRACE_limit_set);
	for (i = 1; i <= RING + 40; i++)
		weigh(i);
	text = fx_cat("trace");
	ck_assert(!strncmp(text, "# entries-in-buffer/entries-written: 512/552\n# lost 40\n", 53));
	ck_assert_ptr_nonnull(strstr(text, "value=41\n"));
	ck_assert_ptr_null(strstr(text, "value=40\n"));
	ck_assert_ptr_nonnull(strstr(text, "value=552\n"));
}
END_TEST

/* A storm of events between two copies of one reading. */
static void storm(struct fx *f)
{
	static u32 n;
	u32 i;

	for (i = 0; i < 300 && n < 2000; i++)
		weigh(1000 + n++);
}

START_TEST(test_trace_in_a_storm)
{
	const char *text, *p;
	u32 i, nr = 0, lost, value, last = 0;

	fx_attach(&fx, US, "chat");
	enable(CORE_TRACE_limit_set);
	for (i = 1; i <= RING; i++)
		weigh(i);
	fx.between = storm;
	text = fx_cat("trace");
	fx.between = NULL;
	ck_assert_uint_le(fx.nr_calls, 5);
	/* At most 256 lines, then the gap, then the rest of the buffer. */
	p = strstr(text, "TIMESTAMP");
	ck_assert_ptr_nonnull(p);
	for (p = strchr(p, '\n') + 1; *p; p = strchr(p, '\n') + 1) {
		if (sscanf(p, "# lost %u", &lost) == 1) {
			last += lost;
			continue;
		}
		ck_assert_int_eq(sscanf(p, " %*u.%*u: limit_set: domain=0 mark=memory.weight value=%u\n",
					&value), 1);
		if (nr++ && last)
			ck_assert_uint_eq(value < 1000 ? value : RING + value - 999,
					  last + 1);
		last = value < 1000 ? value : RING + value - 999;
	}
	ck_assert_uint_gt(nr, 200);
	ck_assert_ptr_nonnull(strstr(strstr(text, "TIMESTAMP"), "# lost "));
}
END_TEST

START_TEST(test_switches)
{
	const char *names;
	u32 i, nr = 0;

	ck_assert_str_eq(fx_cat("events/enable"), "0\n");
	ck_assert_str_eq(fx_cat("events/grant/enable"), "0\n");
	enable(CORE_TRACE_grant);
	ck_assert_str_eq(fx_cat("events/enable"), "X\n");
	ck_assert_str_eq(fx_cat("events/grant/enable"), "1\n");
	ck_assert_str_eq(fx_cat("events/oom/enable"), "0\n");
	enable(CORE_TRACE_ALL);
	ck_assert_str_eq(fx_cat("events/enable"), "1\n");
	ck_assert_int_eq(fx_ask("cat events/grants/enable"), -ENOENT);
	ck_assert_int_eq(fx_ask("cat events/EVENT/enable"), -ENOENT);
	ck_assert_int_eq(fx_ask("cat events/grant"), -EISDIR);
	ck_assert_int_eq(fx_ask("ls events"), 0);
	names = seq_text(&fx.out);
	ck_assert(!strncmp(names, "enable\ngrant/\nrefuse/\n", 22));
	for (i = 0; names[i]; i++)
		nr += names[i] == '\n';
	ck_assert_uint_eq(nr, NR_CORE_TRACE + 1);
	ck_assert_int_eq(fx_ask("ls events/oom"), 0);
	ck_assert_str_eq(seq_text(&fx.out), "enable\n");
	ck_assert_int_eq(fx_ask("stat events/oom/enable"), 0);
	ck_assert_str_eq(seq_text(&fx.out), "100644\n");
}
END_TEST

/* A tenant cannot read files that cover all tenants. */
START_TEST(test_operator_only)
{
	static const char * const asked[] = {
		"cat trace", "cat events/enable", "cat events/grant/enable",
		"ls events", "cat last_oom", "cat kmsg", "cat blockmap",
		"stat trace", "stat kmsg",
	};
	u32 i;

	fx_attach(&fx, US, "chat");
	for (i = 0; i < ARRAY_SIZE(asked); i++) {
		ck_assert_int_eq(fx_ask(asked[i]), 0);
		ck_assert_int_eq(proc_request_as(fx.proc, US, asked[i],
						 strlen(asked[i]), &fx.out),
				 -ENOENT);
	}
	ck_assert_int_eq(proc_request_as(fx.proc, US, "ls", 2, &fx.out), 0);
	ck_assert_ptr_null(strstr(seq_text(&fx.out), "events"));
}
END_TEST

START_TEST(test_last_oom)
{
	u32 client = fx_attach(&fx, US, "cha t");
	struct kvmm_begin_arg arg = { .start = 400, .max_tokens = 1 };
	struct kvmm_begin_res res;
	const char *text;

	ck_assert_str_eq(fx_cat("last_oom"), "");
	fx_prefill(&fx, client, 400, 1);
	arg.seq = fx_prefill(&fx, client, 400, 1000);
	ck_assert_int_eq(core_domain_set(fx.core, fx.now, 0, CORE_LIMIT_MAX,
					 50 * 4608), 0);
	ck_assert_int_eq(fx_request(&fx, client, KVMM_OP_STEP_BEGIN,
				    ++fx.client[client].step, &arg, sizeof(arg),
				    &res), 0);
	ck_assert_int_eq(res.status, -EAGAIN);
	text = fx_cat("last_oom");
	ck_assert_msg(!strncmp(text, "# 1 at 15.670000, 1 of them at the same instant\n"
			       "cha\\040t: client 0, seq 1 asked for 1 blocks, 4kB: ", 98),
		      "%s", text);
	ck_assert_ptr_nonnull(strstr(text, "\ndomain cha\\040t: usage "));
	ck_assert_ptr_nonnull(strstr(text, " max 225kB weight 100\ntenant 0: usage "));
	ck_assert_ptr_nonnull(strstr(text, "\npool gpu0: total 1024kB online 1024kB "));
	ck_assert_ptr_nonnull(strstr(text, " asks      cha\\040t\noom: outcome=itself\n"));
}
END_TEST

/* The report is of one pool, and names all pools of a domain with two shards. */
START_TEST(test_last_oom_of_shards)
{
	struct kvmm_begin_arg arg = { .start = 400, .max_tokens = 1 };
	struct kvmm_attach_req req;
	struct kvmm_begin_res res;
	u32 client;

	teardown();
	fx_setup_pools(8, 4, 0, 0);
	ring = calloc(1, core_trace_bytes(RING));
	core_trace_attach(fx.core, fx.now, ring, RING);
	fx_attach_req(&req, "wide");
	req.nr_shards = 2;
	ck_assert_int_eq(fx_attach_as(&fx, US, &req, &client), 0);
	arg.seq = fx_prefill(&fx, client, 400, 1);
	ck_assert_int_eq(core_domain_set(fx.core, fx.now, 0, CORE_LIMIT_MAX,
					 25 * 4608), 0);
	ck_assert_int_eq(fx_request(&fx, client, KVMM_OP_STEP_BEGIN,
				    ++fx.client[client].step, &arg, sizeof(arg),
				    &res), 0);
	ck_assert_ptr_nonnull(strstr(fx_cat("last_oom"),
		"\npool gpu1 of gpu0-gpu1: total 256kB online 256kB "));
}
END_TEST

/* Priority, number, microseconds, flag; text that cannot forge a line. */
START_TEST(test_kmsg)
{
	unsigned int prio, seq;
	unsigned long long usec, before = 0;
	char rest[64];
	const char *p;
	u32 i;

	ck_assert_str_eq(fx_cat("kmsg"), "");
	kv_log_init("prog", KV_LOG_INFO);
	ck_assert_int_eq(kv_log_keep(4), 0);
	ck_assert_str_eq(fx_cat("kmsg"), "");
	close(STDERR_FILENO);	/* no reader: lines are kept all the same */
	pr_err("one\ntwo \\ \xff");
	pr_debug("not said, not kept");
	for (i = 0; i < 2; i++)
		pr_warn("line %u", i);
	p = fx_cat("kmsg");
	ck_assert_int_eq(sscanf(p, "%u,%u,%llu,-;%63[^\n]", &prio, &seq, &usec,
				rest), 4);
	ck_assert_uint_eq(prio, 3);
	ck_assert_uint_eq(seq, 0);
	ck_assert_str_eq(rest, "one\\x0atwo \\x5c \\xff");
	for (; i < 7; i++)
		pr_info("line %u", i);
	/* The last four lines. */
	p = fx_cat("kmsg");
	for (i = 4; i < 8; i++, p = strchr(p, '\n') + 1) {
		ck_assert_int_eq(sscanf(p, "%u,%u,%llu,-;line %63s", &prio,
					&seq, &usec, rest), 4);
		ck_assert_uint_eq(prio, 6);
		ck_assert_uint_eq(seq, i);
		ck_assert_uint_ge(usec, before);
		before = usec;
	}
	ck_assert_str_eq(rest, "6");
	ck_assert_str_eq(p, "");
}
END_TEST

/* Every block of every span, as extentinfo and blockstates count them. */
START_TEST(test_blockmap)
{
	u32 client = fx_attach(&fx, US, "chat"), i;
	static const char letters[] = "FOSCQALRP";
	u64 seen[sizeof(letters)] = { 0 };
	struct core_domain_view v;
	const char *p;
	u64 seq;

	seq = fx_prefill(&fx, client, 400, 1);
	fx_close(&fx, client, seq);
	fx_prefill(&fx, client, 40, 2);
	p = fx_cat("blockmap");
	ck_assert(!strncmp(p, "# begin ", 8));
	p = strchr(p, '\n') + 1;
	ck_assert(!strncmp(p, "extent extents state    domain blocks\n", 38));
	for (p = strchr(p, '\n') + 1; *p != '#'; p = strchr(p, '\n') + 1) {
		u32 first, nr, dom, at = 0, count;
		char state[16];

		if (sscanf(p, " %u %u %15s %u %n", &first, &nr, state, &dom,
			   (int *)&at) != 4) {
			ck_assert_int_eq(sscanf(p, " %u %u %15s - -%n", &first,
						&nr, state, (int *)&at), 3);
			ck_assert_str_ne(state, "span");
			ck_assert_int_eq(p[at], '\n');
			continue;
		}
		ck_assert_str_eq(state, "span");
		for (p += at; *p != '\n'; p++) {
			count = 1;
			if (*p >= '0' && *p <= '9')
				count = (u32)strtoul(p, (char **)&p, 10);
			ck_assert_ptr_nonnull(strchr(letters, *p));
			seen[strchr(letters, *p) - letters] += count;
		}
	}
	ck_assert_int_eq(core_get_domain(fx.core, 0, &v), 0);
	for (i = 0; letters[i]; i++)
		ck_assert_uint_eq(seen[i], v.blocks[i]);
	ck_assert_uint_eq(seen[1], 1);	/* open */
	ck_assert_uint_ge(seen[3], 24);	/* cached */
	ck_assert(!strncmp(p, "# end ", 6));
}
END_TEST

static Suite *trace_suite(void)
{
	Suite *s = suite_create("proc-trace");
	TCase *tc = tcase_create("text");

	tcase_set_tags(tc, "unit proc trace");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_trace_lines);
	tcase_add_test(tc, test_trace_wraps);
	tcase_add_test(tc, test_trace_in_a_storm);
	tcase_add_test(tc, test_switches);
	tcase_add_test(tc, test_operator_only);
	tcase_add_test(tc, test_last_oom);
	tcase_add_test(tc, test_last_oom_of_shards);
	tcase_add_test(tc, test_kmsg);
	tcase_add_test(tc, test_blockmap);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(trace_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
