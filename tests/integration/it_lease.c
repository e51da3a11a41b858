// SPDX-License-Identifier: Apache-2.0
/*
 * it_lease.c - one process leases, another one goes on with the content
 *
 * A scheduler and a worker are two processes of one domain.  The scheduler computes
 * prompts, leases one, and floods the cache.  The worker opens a sequence with the
 * number, reads every byte, and computes the rest.  Meanwhile the scheduler dies, or
 * the daemon.  Leases of other tenants, above the quota and beyond the longest time
 * are refused; kvctl leases shows those that live.
 * budget: 60 s
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>
#include <libkvmm.h>

#include "tests/integration/adopt_scene.h"

#define TOKENS		16u		/* of a block */
#define TOKEN_BYTES	1024u
#define BLOCK_BYTES	(TOKENS * TOKEN_BYTES)
#define PROMPT		320u		/* 20 blocks */
#define MORE		72u		/* tokens that the worker computes */
#define NR_FLOOD	16u		/* prompts: more than device and host pool have */

/* For a child: it prints a failed condition and exits with 1. */
#define MUST(cond)							\
do {									\
	if (!(cond)) {							\
		fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
		_exit(1);						\
	}								\
} while (0)

enum { COMPUTE, FIND, LEASE, OPEN, GO_ON, CLOSE, ADVISE, QUIT };

/**
 * struct order - a line of the scene for a child
 * @act:  COMPUTE: prompt @seed of @len tokens, then close it; FIND: look it up; LEASE:
 *        the content that is found; OPEN: a sequence with @number; GO_ON: wait until sequence
 *        @seq of prompt @seed is READY, check its bytes, compute up to @len tokens and
 *        check them all; CLOSE: @seq; ADVISE: @advice, @number is its value; QUIT:
 *        detach and end
 */
struct order {
	u32	act;
	u32	seed;
	u32	len;
	u32	ms;
	u32	advice;
	u64	number;
	u64	seq;
	char	label[KVMM_LABEL_LEN + 1];
};

struct answer {
	int			err;
	u32			found;
	u32			valid;
	u32			on[KVMM_NR_LOOKUP_TIERS];
	u64			seq;
	struct kvmm_lease_res	lease;
};

struct child {
	pid_t	pid;
	int	to;
	int	from;
};

/* ---- in the children ---- */

static struct kvmm *kv;
static u64 step_number;

static void attach(const char *socket)
{
	static const u8 identity[KVMM_IDENTITY_LEN] = "it_lease";
	const struct kvmm_params p = {
		.socket = socket, .domain = "it", .identity = identity,
		.block_tokens = TOKENS,
		.group[0] = { .layers = 1, .kv_heads = 1, .k_bytes = 512,
			   .v_bytes = 512 },
		.max_bytes = KVMM_LIMIT_MAX, .attach_timeout_ms = 20000,
	};
	char text[256];

	if (kvmm_attach(&p, &kv, text)) {
		fprintf(stderr, "attach: %s\n", text);
		_exit(1);
	}
}

static const u32 *prompt(u32 seed)
{
	static u32 ids[PROMPT + MORE];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(ids); i++)
		ids[i] = seed * 10000 + i;
	return ids;
}

static char *bytes_at(u64 seq, u32 pos)
{
	u32 entry;

	MUST(!kvmm_seq_table(kv, seq, 0, pos / TOKENS, 1, &entry));
	MUST(entry != KVMM_NO_INDEX);
	return (char *)kvmm_pool(kv) + (u64)entry * kvmm_info(kv)->unit +
	       pos % TOKENS * TOKEN_BYTES;
}

/* The byte of a position, which no other position or prompt near it has. */
static int byte_of(u32 seed, u32 pos)
{
	return (int)((seed * 89 + pos * 7 + 3) & 0xff);
}

static void check_bytes(u64 seq, u32 seed, u32 to)
{
	u32 pos;

	for (pos = 0; pos < to; pos++) {
		const char *p = bytes_at(seq, pos);

		MUST(p[0] == (char)byte_of(seed, pos));
		MUST(!memcmp(p, p + 1, TOKEN_BYTES - 1));
	}
}

static void await_ready(u64 seq, struct kvmm_seq_status *st)
{
	const u64 end = now_ms() + 20000 * time_scale();

	for (;;) {
		MUST(!kvmm_seq_status(kv, seq, st));
		if (st->state == KVMM_SEQ_READY)
			return;
		MUST(st->state != KVMM_SEQ_FAILED && st->state != KVMM_SEQ_RECOMPUTE);
		MUST(now_ms() < end);
		MUST(kvmm_wait(kv, 10000000) != -ECONNRESET);
	}
}

/* It waits until extents are mapped, and cached blocks are copied to the host pool. */
static void begin(const struct kvmm_begin_arg *b)
{
	const u64 end = now_ms() + 20000 * time_scale();
	struct kvmm_begin_res res;

	for (;;) {
		MUST(!kvmm_step_begin(kv, ++step_number, b, 1, &res));
		if (res.status != -EAGAIN)
			break;
		MUST(!kvmm_step_end(kv, step_number, 0, 0, NULL, 0, NULL, NULL));
		MUST(now_ms() < end && kvmm_wait(kv, 1000000) != -ECONNRESET);
	}
	MUST(!res.status && !res.copy_tokens);
}

/* Compute from the valid length up to @len tokens. */
static void compute(u64 seq, u32 seed, u32 len)
{
	struct kvmm_seq_status st;
	struct kvmm_begin_arg b = { .seq = seq };
	struct kvmm_end_arg e = { .seq = seq, .valid_len = len };
	struct kvmm_end_res eres;
	u32 pos;

	await_ready(seq, &st);
	b.seq_epoch = st.seq_epoch;
	b.start = st.valid_len;
	b.max_tokens = len - st.valid_len;
	e.nr_ids = b.max_tokens;
	begin(&b);
	for (pos = st.valid_len; pos < len; pos++)
		memset(bytes_at(seq, pos), byte_of(seed, pos), TOKEN_BYTES);
	MUST(!kvmm_step_end(kv, step_number, 1000, e.nr_ids, &e, 1,
			    prompt(seed) + st.valid_len, &eres) && !eres.status);
}

static void do_compute(const struct order *o, struct answer *a)
{
	const struct kvmm_open_arg arg = { .prompt_len = o->len };
	struct kvmm_open_res res;
	u64 seq;

	MUST(!kvmm_seq_open(kv, &arg, 1, &res) && !res.status);
	seq = res.seq;
	MUST(!kvmm_seq_match(kv, seq, prompt(o->seed), o->len));
	compute(seq, o->seed, o->len);
	MUST(!kvmm_seq_close(kv, &seq, 1));
}

static void do_find(const struct order *o, struct answer *a)
{
	struct kvmm_found found;

	MUST(!kvmm_lookup(kv, 0, prompt(o->seed), o->len, &found));
	a->found = found.found;
	memcpy(a->on, found.tokens, sizeof(a->on));
}

/* Copies that are in flight end soon. */
static void do_lease(const struct order *o, struct answer *a)
{
	const u64 end = now_ms() + 10000 * time_scale();
	struct kvmm_found found;

	MUST(!kvmm_lookup(kv, 0, prompt(o->seed), o->len, &found));
	a->found = found.found;
	do
		a->err = kvmm_lease(kv, 0, &found, o->ms, o->label, &a->lease);
	while (a->err == -EAGAIN && now_ms() < end &&
	       kvmm_wait(kv, 10000000) != -ECONNRESET);
}

static void do_open(const struct order *o, struct answer *a)
{
	const struct kvmm_open_arg arg = {
		.prompt_len = o->len, .max_tokens = MORE, .lease = o->number,
	};
	struct kvmm_open_res res;

	MUST(!kvmm_seq_open(kv, &arg, 1, &res));
	a->err = res.status;
	a->seq = res.seq;
}

static void do_go_on(const struct order *o, struct answer *a)
{
	struct kvmm_seq_status st;

	await_ready(o->seq, &st);
	a->valid = st.valid_len;
	check_bytes(o->seq, o->seed, st.valid_len);
	compute(o->seq, o->seed, o->len);
	check_bytes(o->seq, o->seed, o->len);
}

static void do_close(const struct order *o, struct answer *a)
{
	a->err = kvmm_seq_close(kv, &o->seq, 1);
}

static void do_advise(const struct order *o, struct answer *a)
{
	const struct kvmm_advise_arg arg = { .seq = o->seq, .advice = o->advice,
					     .value = o->number };
	struct kvmm_seq_res res;

	MUST(!kvmm_seq_advise(kv, &arg, 1, &res));
	a->err = res.status;
}

static void child_main(int in, int out, const char *socket)
{
	static void (*const run[])(const struct order *o, struct answer *a) = {
		[COMPUTE] = do_compute, [FIND] = do_find, [LEASE] = do_lease,
		[OPEN] = do_open, [GO_ON] = do_go_on, [CLOSE] = do_close,
		[ADVISE] = do_advise,
	};
	struct pollfd p = { .fd = in, .events = POLLIN };
	struct answer a = { 0 };
	struct order o;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	attach(socket);
	MUST(write(out, &a, sizeof(a)) == sizeof(a));
	for (;;) {
		/* It maps extents, and resumes after a death of the daemon. */
		while (!poll(&p, 1, 0))
			MUST(kvmm_wait(kv, 5000000) != -ECONNRESET);
		MUST(read(in, &o, sizeof(o)) == sizeof(o));
		if (o.act == QUIT)
			break;
		memset(&a, 0, sizeof(a));
		run[o.act](&o, &a);
		MUST(write(out, &a, sizeof(a)) == sizeof(a));
	}
	kvmm_detach(kv);
	_exit(0);
}

/* ---- children, seen from the test ---- */

static struct answer hear(const struct child *c)
{
	struct answer a;

	ck_assert_msg(read(c->from, &a, sizeof(a)) == sizeof(a),
		      "a child ended: its line is above");
	return a;
}

static struct answer tell(const struct child *c, struct order o)
{
	ck_assert_int_eq(write(c->to, &o, sizeof(o)), sizeof(o));
	return hear(c);
}

/* A client of the daemon's own tenant, or of the one named. */
static struct child start(const char *tenant)
{
	char path[RIG_PATH + 64];
	int in[2], out[2];
	struct child c;

	snprintf(path, sizeof(path), "%s%s%s/attach.sock", adopt_rig.dir,
		 tenant ? "/" : "", tenant ? tenant : "");
	ck_assert(!pipe2(in, O_CLOEXEC) && !pipe2(out, O_CLOEXEC));
	c.pid = fork();
	ck_assert_int_ge(c.pid, 0);
	if (!c.pid)
		child_main(in[0], out[1], path);
	close(in[0]);
	close(out[1]);
	c.to = in[1];
	c.from = out[0];
	(void)hear(&c);
	return c;
}

/* End a child; it must not have failed. */
static void end(const struct child *c)
{
	const struct order o = { .act = QUIT };
	int status;

	ck_assert_int_eq(write(c->to, &o, sizeof(o)), sizeof(o));
	ck_assert_int_eq(waitpid(c->pid, &status, 0), c->pid);
	ck_assert_int_eq(status, 0);
	close(c->to);
	close(c->from);
}

static struct answer lease(const struct child *c, u32 seed, u32 ms, const char *label)
{
	struct order o = { .act = LEASE, .seed = seed, .len = PROMPT, .ms = ms };

	strcpy(o.label, label);
	return tell(c, o);
}

static struct answer find(const struct child *c, u32 seed)
{
	return tell(c, (struct order){ .act = FIND, .seed = seed, .len = PROMPT });
}

static void compute_prompt(const struct child *c, u32 seed)
{
	(void)tell(c, (struct order){ .act = COMPUTE, .seed = seed, .len = PROMPT });
}

static struct answer open_leased(const struct child *c, u64 number)
{
	return tell(c, (struct order){ .act = OPEN, .len = PROMPT + MORE / 2,
				       .number = number });
}

/* Read the leased tokens of prompt @seed, and compute the rest. */
static void go_on(const struct child *c, u64 seq, u32 seed)
{
	struct answer a = tell(c, (struct order){ .act = GO_ON, .seq = seq,
						  .seed = seed, .len = PROMPT + MORE });

	ck_assert_uint_eq(a.valid, PROMPT);
	a = tell(c, (struct order){ .act = CLOSE, .seq = seq });
	ck_assert_int_eq(a.err, 0);
}

/* Prompts that push everything else out of the device and the host pool. */
static void flood(const struct child *c)
{
	u32 i;

	for (i = 0; i < NR_FLOOD; i++)
		compute_prompt(c, 100 + i);
}

/* ---- the operator's view ---- */

/* The rows of kvctl leases, or of those of a tenant; to be released. */
static json_t *rows(const char *tenant)
{
	struct job j = tenant ? job_start(&adopt_rig, "kvctl", "--json", "leases",
					  "--tenant", tenant, NULL) :
				job_start(&adopt_rig, "kvctl", "--json", "leases", NULL);
	json_t *v;
	char *text;

	ck_assert_msg(!job_wait(&j, 30), "%s", slurp(j.err));
	text = slurp(j.out);
	v = json_loads(text, 0, NULL);
	ck_assert_msg(json_is_array(v), "%s", text);
	free(text);
	return v;
}

static s64 num(const json_t *row, const char *key)
{
	ck_assert_msg(json_is_integer(json_object_get(row, key)), "no %s", key);
	return json_integer_value(json_object_get(row, key));
}

static void expect_rows(const char *tenant, u32 nr)
{
	json_t *v = rows(tenant);

	ck_assert_uint_eq(json_array_size(v), nr);
	json_decref(v);
}

static void await_no_rows(void)
{
	const u64 until = now_ms() + 10000 * time_scale();
	size_t nr;

	do {
		json_t *v = rows(NULL);

		nr = json_array_size(v);
		json_decref(v);
		ck_assert(now_ms() < until);
	} while (nr);
}

/* The only lease is the one of @a, under @label, with all of its tokens somewhere. */
static s64 expect_row(const char *tenant, const struct answer *a, const char *label)
{
	json_t *v = rows(tenant), *row = json_array_get(v, 0);
	char number[24];
	s64 left;

	ck_assert_uint_eq(json_array_size(v), 1);
	snprintf(number, sizeof(number), "0x%016llx", (unsigned long long)a->lease.number);
	ck_assert_str_eq(json_string_value(json_object_get(row, "number")), number);
	ck_assert_str_eq(json_string_value(json_object_get(row, "label")), label);
	ck_assert_int_eq(num(row, "tokens"), a->lease.held);
	ck_assert_int_eq(num(row, "lost"), 0);
	ck_assert_int_eq(num(row, "device") + num(row, "host") + num(row, "area") +
			 num(row, "moving"), a->lease.held);
	left = num(row, "ends_ms");
	json_decref(v);
	return left;
}

/* The table for people has the same lease. */
static void expect_line(const char *label)
{
	struct job j = job_start(&adopt_rig, "kvctl", "leases", NULL);
	char *text, client[8], name[32];
	u32 tokens, nr;

	ck_assert_int_eq(job_wait(&j, 30), 0);
	text = slurp(j.out);
	nr = (u32)sscanf(text, "%*[^\n]\n%7s %31s %u", client, name, &tokens);
	ck_assert_msg(nr == 3 && !strcmp(name, label) && tokens == PROMPT, "%s", text);
	free(text);
}

/* ---- scenes ---- */

static struct child scheduler, worker;

/* 128 blocks on the device, fewer slots in the host pool, and no area at first. */
static void setup_with(const char *percent)
{
	rig_start(&adopt_rig, "--backend", "host", "--pool-size", "2M",
		  "--extent-size", "256K", "--host-size", "2M", "--min-token-bytes",
		  "1024", "--lease-ms", "60000", "--lease-percent", percent,
		  "--area-max", "32M", "--tenant", "blue", "--resume-ms", "60000",
		  NULL);
	scheduler = start(NULL);
	worker = start(NULL);
}

static void setup(void)
{
	setup_with("50");
}

static void setup_little(void)
{
	setup_with("10");
}

static void teardown(void)
{
	rig_walk(&adopt_rig);
	rig_stop(&adopt_rig);
}

/* Lease prompt 1 of two that were computed, and flood the cache. */
static struct answer lease_and_flood(void)
{
	struct answer a;

	compute_prompt(&scheduler, 1);
	compute_prompt(&scheduler, 2);
	a = lease(&scheduler, 1, 30000, "chat-1");
	ck_assert_int_eq(a.err, 0);
	ck_assert_uint_eq(a.lease.held, PROMPT);
	ck_assert_int_eq(a.lease.reason, 0);
	flood(&scheduler);
	/* The flood took the content that was not leased. */
	ck_assert_uint_eq(find(&scheduler, 2).found, 0);
	ck_assert_uint_eq(find(&scheduler, 1).found, PROMPT);
	ck_assert_uint_eq(find(&scheduler, 1).on[KVMM_TIER_HOST], PROMPT);
	return a;
}

START_TEST(test_hand_over)
{
	struct answer a = lease_and_flood(), b;
	s64 left = expect_row(NULL, &a, "chat-1");

	ck_assert_int_gt(left, 0);
	ck_assert_int_le(left, 30000);
	expect_line("chat-1");
	ck_assert_int_eq(rig_value(&adopt_rig, "vmstat", "nr_leases"), 1);
	ck_assert_int_eq(rig_value(&adopt_rig, "vmstat", "nr_seqs_waiting"), 0);
	b = open_leased(&worker, a.lease.number);
	ck_assert_int_eq(b.err, 0);
	go_on(&worker, b.seq, 1);
	/* The lease holds on, and a second sequence has the same bytes. */
	(void)expect_row(NULL, &a, "chat-1");
	b = open_leased(&scheduler, a.lease.number);
	ck_assert_int_eq(b.err, 0);
	b = tell(&scheduler, (struct order){ .act = CLOSE, .seq = b.seq });
	ck_assert_int_eq(b.err, 0);
	b = tell(&scheduler, (struct order){ .act = CLOSE, .seq = a.lease.seq });
	ck_assert_int_eq(b.err, 0);
	expect_rows(NULL, 0);
	ck_assert_int_eq(open_leased(&worker, a.lease.number).err, -ENOENT);
	end(&scheduler);
	end(&worker);
}
END_TEST

/* The lease ends with its client; a sequence that was opened with it goes on. */
START_TEST(test_scheduler_dies)
{
	struct answer a = lease_and_flood(), b;

	b = open_leased(&worker, a.lease.number);
	ck_assert_int_eq(b.err, 0);
	kill(scheduler.pid, SIGKILL);
	ck_assert_int_eq(waitpid(scheduler.pid, NULL, 0), scheduler.pid);
	await_no_rows();
	ck_assert_int_eq(open_leased(&worker, a.lease.number).err, -ENOENT);
	flood(&worker);
	go_on(&worker, b.seq, 1);
	end(&worker);
}
END_TEST

/* Did kvmm die inside an event?  Then its arena is salvaged, and no lease is. */
static bool died_inside(void)
{
	if (!adopt_logged(": salvaged,"))
		return false;
	printf("note: kvmm died inside an event: the rest of the test is not tried\n");
	end(&scheduler);
	end(&worker);
	return true;
}

/* The next daemon has the lease with its number, its content and its deadline. */
START_TEST(test_daemon_dies)
{
	struct answer a = lease_and_flood(), b;
	s64 left = expect_row(NULL, &a, "chat-1");

	adopt_kill();
	if (died_inside())
		return;
	ck_assert_uint_eq(adopt_logged(": whole,"), 1);
	rig_walk(&adopt_rig);
	ck_assert_int_lt(expect_row(NULL, &a, "chat-1"), left);
	b = open_leased(&worker, a.lease.number);
	ck_assert_int_eq(b.err, 0);
	adopt_kill();
	if (died_inside())
		return;
	ck_assert_uint_eq(adopt_logged(": whole,"), 2);
	go_on(&worker, b.seq, 1);
	flood(&worker);
	(void)expect_row(NULL, &a, "chat-1");
	/* It can be renewed, and ends at its new deadline. */
	b = tell(&scheduler, (struct order){ .act = ADVISE, .seq = a.lease.seq,
		.advice = KVMM_ADV_KEEP_UNTIL, .number = a.lease.until + 60000000000ull });
	ck_assert_int_eq(b.err, -ERANGE);
	b = tell(&scheduler, (struct order){ .act = ADVISE, .seq = a.lease.seq,
		.advice = KVMM_ADV_KEEP_UNTIL,
		.number = (now_ms() + 500 * time_scale()) * 1000000 });
	ck_assert_int_eq(b.err, 0);
	await_no_rows();
	ck_assert_int_eq(rig_value(&adopt_rig, "vmstat", "lease_expired"), 1);
	end(&scheduler);
	end(&worker);
}
END_TEST

/* Leased content goes on to an area, and comes back from there. */
START_TEST(test_area)
{
	const u64 until = now_ms() + 20000 * time_scale();
	char path[RIG_PATH + 16];
	struct answer a, b;
	struct job j;
	json_t *v;

	snprintf(path, sizeof(path), "%s/area", adopt_rig.dir);
	j = job_start(&adopt_rig, "kvctl", "swapon", path, "--size", "32M", NULL);
	ck_assert_int_eq(job_wait(&j, 30), 0);
	compute_prompt(&scheduler, 1);
	a = lease(&scheduler, 1, 60000, "chat-1");
	ck_assert_uint_eq(a.lease.held, PROMPT);
	do {
		flood(&scheduler);
		b = find(&scheduler, 1);
		ck_assert_uint_eq(b.found, PROMPT);
		ck_assert(now_ms() < until);
	} while (b.on[KVMM_TIER_AREA] < PROMPT / 2);
	(void)expect_row(NULL, &a, "chat-1");
	v = rows(NULL);
	ck_assert_int_ge(num(json_array_get(v, 0), "area"), PROMPT / 2);
	json_decref(v);
	b = open_leased(&worker, a.lease.number);
	ck_assert_int_eq(b.err, 0);
	go_on(&worker, b.seq, 1);
	(void)expect_row(NULL, &a, "chat-1");
	end(&scheduler);
	end(&worker);
}
END_TEST

/* A tenant can neither use nor see the lease of another one, but its own. */
START_TEST(test_tenants)
{
	struct child blue = start("blue");
	struct answer a, b;

	compute_prompt(&scheduler, 1);
	a = lease(&scheduler, 1, 30000, "ours");
	ck_assert_int_eq(a.err, 0);
	ck_assert_int_eq(open_leased(&blue, a.lease.number).err, -ENOENT);
	ck_assert_uint_eq(find(&blue, 1).found, 0);
	expect_rows("blue", 0);
	compute_prompt(&blue, 3);
	b = lease(&blue, 3, 30000, "theirs");
	ck_assert_int_eq(b.err, 0);
	(void)expect_row("blue", &b, "theirs");
	ck_assert_int_eq(open_leased(&worker, b.lease.number).err, -ENOENT);
	expect_rows(NULL, 2);
	end(&blue);
	(void)expect_row(NULL, &a, "ours");
	end(&scheduler);
	end(&worker);
	await_no_rows();
}
END_TEST

/* Leases hold a tenth of the slots: the second one gets less, the third one none. */
START_TEST(test_quota)
{
	struct answer a;

	compute_prompt(&scheduler, 1);
	a = lease(&scheduler, 1, 30000, "");
	ck_assert_int_eq(a.err, 0);
	ck_assert_uint_gt(a.lease.held, 0);
	ck_assert_uint_lt(a.lease.held, PROMPT);
	ck_assert_int_eq(a.lease.reason, -EDQUOT);
	ck_assert_int_eq(lease(&worker, 1, 30000, "").err, -EDQUOT);
	expect_rows(NULL, 1);
	end(&scheduler);
	end(&worker);
}
END_TEST

START_TEST(test_times)
{
	struct answer a;

	compute_prompt(&scheduler, 1);
	a = lease(&scheduler, 1, 60001, "long");
	ck_assert_int_eq(a.err, -ERANGE);
	ck_assert_uint_eq(a.lease.held, 0);
	expect_rows(NULL, 0);
	a = lease(&scheduler, 1, 60000, "full");
	ck_assert_int_eq(a.err, 0);
	(void)expect_row(NULL, &a, "full");
	ck_assert_int_eq(tell(&scheduler, (struct order){ .act = CLOSE,
							  .seq = a.lease.seq }).err, 0);
	a = lease(&scheduler, 1, 200, "short");
	ck_assert_int_eq(a.err, 0);
	await_no_rows();
	ck_assert_int_eq(open_leased(&worker, a.lease.number).err, -ENOENT);
	ck_assert_int_eq(rig_value(&adopt_rig, "vmstat", "lease_expired"), 1);
	end(&scheduler);
	end(&worker);
}
END_TEST

static void add(Suite *s, const char *name, void (*setup_fn)(void), const TTest *test)
{
	TCase *tc = tcase_create(name);

	tcase_add_checked_fixture(tc, setup_fn, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test);
	suite_add_tcase(s, tc);
}

int main(void)
{
	Suite *s = suite_create("lease-real");
	SRunner *sr;
	int failed;

	add(s, "hand over", setup, test_hand_over);
	add(s, "scheduler dies", setup, test_scheduler_dies);
	add(s, "daemon dies", setup, test_daemon_dies);
	add(s, "area", setup, test_area);
	add(s, "tenants", setup, test_tenants);
	add(s, "quota", setup_little, test_quota);
	add(s, "times", setup, test_times);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
