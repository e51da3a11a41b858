// SPDX-License-Identifier: Apache-2.0
/*
 * it_kv_events.c - a subscriber of --kv-events knows the cache of a real daemon
 *
 * Prompts are computed and leave their blocks to the cache.  A subscriber keeps a mirror
 * of the events.  The daemon's own lookup then says, for each prompt, the number of its
 * tokens on each tier, and the mirror must say the same.  That holds while blocks
 * move between tiers, after a subscriber was away, after the ring was full, and after
 * kvmm was killed.
 * budget: 60 s
 */
#include <stdio.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include <libkvmm.h>
#include <zmq.h>

#include "tests/integration/events_sub.h"
#include "tests/integration/harness.h"
#include "tests/kv_read.h"
#include "tests/tmp.h"

#define TOKENS		16u		/* of a block */
#define LONG		16000u
#define NAP_MS		20
#define END_MS		20000u
#define TOPIC		"kv@here@it"

static struct rig rig;
static char dir[96], live[128], old[128];
static struct kvmm *kv;
static u64 step_number;
static struct sub sub;

/* ---- the daemon and its client ---- */

static struct kvmm *attach(const char *domain)
{
	u8 identity[KVMM_IDENTITY_LEN] = "it_kv_events";
	char path[RIG_PATH + 32], text[256];
	const struct kvmm_params p = {
		.socket = path, .domain = domain, .identity = identity,
		.block_tokens = TOKENS,
		.group[0] = { .layers = 1, .kv_heads = 1, .k_bytes = 32, .v_bytes = 32 },
		.max_bytes = KVMM_LIMIT_MAX, .attach_timeout_ms = 20000, .spin = 200,
	};
	struct kvmm *k;

	snprintf(path, sizeof(path), "%s/attach.sock", rig.dir);
	ck_assert_msg(!kvmm_attach(&p, &k, text), "%s", text);
	return k;
}

#define EVENTS	"--kv-events", live, "--kv-events-replay", old, "--kv-events-topic", TOPIC

/* A daemon whose pool has 1024 blocks; more arguments follow, NULL-terminated. */
#define start(...)							\
do {									\
	ck_assert_ptr_nonnull(mkdtemp(tmp_name(dir, sizeof(dir), "ev")));	\
	snprintf(live, sizeof(live), "ipc://%s/live", dir);		\
	snprintf(old, sizeof(old), "ipc://%s/old", dir);		\
	rig_start(&rig, "--pool-size", "1M", "--extent-size", "64K",	\
		  "--min-token-bytes", "64", EVENTS, __VA_ARGS__);	\
	kv = attach("it");						\
	step_number = 0;						\
	sub_open(&sub, live, old, TOPIC);				\
} while (0)

static void stop(void)
{
	char path[128];

	sub_close(&sub);
	kvmm_detach(kv);
	rig_walk(&rig);
	rig_stop(&rig);
	snprintf(path, sizeof(path), "%s/live", dir);
	unlink(path);
	snprintf(path, sizeof(path), "%s/old", dir);
	unlink(path);
	rmdir(dir);
}

static const u32 *prompt(u32 number)
{
	static u32 ids[LONG];
	u32 i;

	for (i = 0; i < LONG; i++)
		ids[i] = number * 20000 + i;
	return ids;
}

static u32 state_of(struct kvmm *k, u64 seq, struct kvmm_seq_status *st)
{
	ck_assert_int_eq(kvmm_seq_status(k, seq, st), 0);
	return st->state;
}

/* Compute a prompt, or the rest of it, and leave it to the cache. */
static void compute_with(struct kvmm *k, u32 number, u32 len, u64 salt)
{
	const struct kvmm_open_arg arg = { .prompt_len = len, .salt = salt };
	struct kvmm_open_res res;
	struct kvmm_begin_arg b = { .max_tokens = len };
	struct kvmm_end_arg e = { .valid_len = len };
	struct kvmm_seq_status st;
	struct kvmm_begin_res bres;
	struct kvmm_end_res eres;
	u64 seq;

	ck_assert_int_eq(kvmm_seq_open(k, &arg, 1, &res), 0);
	ck_assert_int_eq(res.status, 0);
	ck_assert_int_eq(kvmm_seq_match(k, res.seq, prompt(number), len), 0);
	while (state_of(k, res.seq, &st) != KVMM_SEQ_READY)
		ck_assert_int_ne(kvmm_wait(k, 1000000), -ECONNRESET);
	b.seq = e.seq = res.seq;
	b.seq_epoch = st.seq_epoch;
	b.start = st.valid_len;
	b.max_tokens = len - st.valid_len;
	ck_assert_int_eq(kvmm_step_begin(k, ++step_number, &b, 1, &bres), 0);
	ck_assert_int_eq(bres.status, 0);
	e.nr_ids = len - st.valid_len;
	ck_assert_int_eq(kvmm_step_end(k, step_number, 1000000000, len, &e, 1,
				       prompt(number) + st.valid_len, &eres), 0);
	ck_assert_int_eq(eres.status, 0);
	seq = res.seq;
	ck_assert_int_eq(kvmm_seq_close(k, &seq, 1), 0);
}

static void compute(u32 number, u32 len)
{
	compute_with(kv, number, len, 0);
}

/* ---- the mirror and the truth ---- */

/* Tokens of a prompt by medium, as the mirror says; @hash: gets that of the last block. */
static void mirror_tokens(u32 number, u32 len, u32 *tokens, u64 *hash)
{
	const struct sub_block *b;
	u64 parent = 0;
	u32 at, m;

	memset(tokens, 0, SUB_MEDIA * sizeof(*tokens));
	for (at = 0; at + TOKENS <= len; at += TOKENS) {
		b = sub_child(&sub, parent, prompt(number)[at]);
		if (!b)
			break;
		for (m = 0; m < SUB_MEDIA; m++)
			tokens[m] += b->on == BIT(m) ? b->nr_ids : 0;
		parent = b->hash;
	}
	*hash = parent;
}

/* Does the mirror say the same as the daemon about a prompt? */
static bool agrees(u32 number, u32 len, char *why, size_t size)
{
	struct kvmm_found f;
	u32 tokens[SUB_MEDIA];
	u64 hash;

	ck_assert_int_eq(kvmm_lookup(kv, 0, prompt(number), len, &f), 0);
	mirror_tokens(number, len, tokens, &hash);
	snprintf(why, size, "prompt %u: the daemon has %u, %u, %u and %u moving, the mirror %u, %u, %u",
		 number, f.tokens[KVMM_TIER_DEVICE], f.tokens[KVMM_TIER_HOST],
		 f.tokens[KVMM_TIER_AREA], f.tokens[KVMM_TIER_MOVING], tokens[SUB_GPU],
		 tokens[SUB_CPU], tokens[SUB_STORAGE]);
	return f.tokens[KVMM_TIER_DEVICE] == tokens[SUB_GPU] &&
	       f.tokens[KVMM_TIER_HOST] == tokens[SUB_CPU] &&
	       f.tokens[KVMM_TIER_AREA] == tokens[SUB_STORAGE];
}

/* Hear until the mirror agrees about prompts @first to @end - 1. */
static void await_agreement(u32 first, u32 end, u32 len)
{
	const u64 until = now_ms() + END_MS * time_scale();
	char why[200];
	u32 i = first;

	while (i < end) {
		if (agrees(i, len, why, sizeof(why))) {
			i++;
			continue;
		}
		ck_assert_msg(now_ms() < until, "%s", why);
		sub_hear(&sub, NAP_MS);
		i = first;
	}
}

/* Hear the batches that were published before the subscriber was there. */
static void catch_up(void)
{
	sub_hear(&sub, 200);
	ck_assert(sub_ask(&sub, sub.next));
}

static u64 hash_of(u32 number, u32 len)
{
	u32 tokens[SUB_MEDIA];
	u64 hash;

	mirror_tokens(number, len, tokens, &hash);
	ck_assert_uint_ne(hash, 0);
	return hash;
}

/* ---- tests ---- */

START_TEST(test_events)
{
	struct kvmm *other;
	u32 i;

	start("--host-size", "0", "--kv-events-format", _i ? "array" : "map", NULL);
	sub.arrays = _i;
	catch_up();
	ck_assert_uint_eq(sub.cleared, 1);
	ck_assert_uint_eq(sub.nr, 0);
	for (i = 0; i < 10; i++)
		compute(i, 500);
	await_agreement(0, 10, 500);
	ck_assert_uint_eq(sub.nr, 10 * (500 / TOKENS));
	ck_assert_uint_eq(sub.cleared, 1);
	/* A prompt with a salt, and another domain: the same ids, other hashes. */
	compute_with(kv, 0, 64, 77);
	other = attach("other");
	compute_with(other, 0, 64, 0);
	while (sub.nr < 10 * (500 / TOKENS) + 8)
		ck_assert_uint_gt(sub_hear(&sub, 2000), 0);
	ck_assert_uint_eq(sub.nr, 10 * (500 / TOKENS) + 8);
	for (i = 0; i < sub.nr_slots; i++)
		ck_assert(!sub.slot[i].salted || sub.slot[i].first_id < 64);
	kvmm_detach(other);
	/* More than the pool holds: some are removed. */
	for (i = 10; i < 60; i++)
		compute(i, 500);
	await_agreement(1, 60, 500);
	ck_assert_uint_le(sub.nr, 1024);
	ck_assert_uint_eq(sub.cleared, 1);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "kv_event_lost"), 0);
	stop();
}
END_TEST

START_TEST(test_tiers)
{
	char area[RIG_PATH + 32];
	struct job j;
	u32 i;

	start("--host-size", "2M", NULL);
	snprintf(area, sizeof(area), "%s/area", rig.dir);
	j = job_start(&rig, "kvctl", "swapon", area, "--size", "6M", NULL);
	ck_assert_int_eq(job_wait(&j, 20 * time_scale()), 0);
	for (i = 0; i < 100; i++)
		compute(i, 500);
	await_agreement(0, 100, 500);
	ck_assert_uint_gt(sub.moved[SUB_CPU], 0);
	ck_assert_uint_gt(sub.moved[SUB_STORAGE], 0);
	/* The oldest come back to the device, and others leave it. */
	for (i = 0; i < 100; i += 7)
		compute(i, 516);
	await_agreement(0, 100, 500);
	ck_assert_uint_gt(sub.moved[SUB_GPU], 0);
	ck_assert_uint_eq(sub.cleared, 1);
	stop();
}
END_TEST

/* ---- topics with the name of a domain ---- */

struct by_topic {
	u32	nr[2];		/* blocks that were stored, by domain */
	u32	cleared[2];
	u32	domain;
};

static void count_event(const struct kv_event *e, void *arg)
{
	struct by_topic *b = arg;
	u32 i;

	b->cleared[b->domain] += !strcmp(e->type, "AllBlocksCleared");
	/* Prompts of domain `other` have numbers from 500 on. */
	for (i = 0; i < e->nr_ids; i++)
		ck_assert_uint_eq(e->id[i] >= 500 * 20000, b->domain);
	b->nr[b->domain] += strcmp(e->type, "BlockStored") ? 0 : e->nr_hashes;
}

/* Take a batch of frames: topic, number, payload.  False: none came, or the end did. */
static bool take_by_topic(void *sock, struct by_topic *b)
{
	static char frame[3][1 << 16];
	zmq_pollitem_t item = { .socket = sock, .events = ZMQ_POLLIN };
	int len[3], i;

	if (zmq_poll(&item, 1, 1000) <= 0)
		return false;
	for (i = 0; i < 3; i++)
		ck_assert_int_ge(len[i] = zmq_recv(sock, frame[i], sizeof(frame[i]) - 1, 0), 0);
	frame[0][len[0]] = '\0';
	b->domain = !strcmp(frame[0], "kv@here@other");
	ck_assert_msg(b->domain || !strcmp(frame[0], "kv@here@it") ||
		      !strcmp(frame[0], "kv@here@"), "topic %s", frame[0]);
	ck_assert_int_gt(kv_read_batch(frame[2], (size_t)len[2], count_event, b), 0);
	return true;
}

START_TEST(test_domains)
{
	struct by_topic b = { .domain = 0 };
	struct kvmm *other;
	void *sock;
	u32 i;

	setenv("KVMM_FAULT", "events_full:300", 1);
	start("--host-size", "0", "--kv-events-topic", "kv@here@{domain}", NULL);
	unsetenv("KVMM_FAULT");
	sock = zmq_socket(sub.ctx, ZMQ_SUB);
	zmq_setsockopt(sock, ZMQ_SUBSCRIBE, "kv@here@", 8);
	ck_assert_int_eq(zmq_connect(sock, live), 0);
	other = attach("other");
	while (take_by_topic(sock, &b))
		;
	/* The record that finds no room makes a snapshot of both domains. */
	for (i = 0; i < 6; i++) {
		compute_with(kv, i, 320, 0);
		compute_with(other, 500 + i, 320, 0);
	}
	while (take_by_topic(sock, &b))
		;
	ck_assert_uint_ge(b.nr[0], 120);
	ck_assert_uint_ge(b.nr[1], 120);
	for (; i < 12; i++) {
		compute_with(kv, i, 320, 0);
		compute_with(other, 500 + i, 320, 0);
	}
	while (take_by_topic(sock, &b))
		;
	ck_assert_int_eq(rig_value(&rig, "vmstat", "kv_event_lost") > 0, 1);
	ck_assert_uint_eq(b.cleared[1], 1);
	ck_assert_uint_ge(b.nr[0], 240);
	ck_assert_uint_ge(b.nr[1], 240);
	zmq_close(sock);
	kvmm_detach(other);
	stop();
}
END_TEST

/* A subscriber that was away asks for the batches after its last one. */
START_TEST(test_reconnect)
{
	u32 i;

	start("--host-size", "1M", NULL);
	catch_up();
	for (i = 0; i < 60; i++) {
		if (i % 10 == 3) {
			sub_hear(&sub, 1);
			sub_leave(&sub);
		}
		compute(i, 500);
		if (i % 10 == 7) {
			sub_connect(&sub);
			nap_ms(5);
		}
	}
	catch_up();
	await_agreement(0, 60, 500);
	ck_assert_uint_gt(sub.asked, 1);
	ck_assert_uint_eq(sub.cleared, 1);
	stop();
}
END_TEST

/* Batches that are not kept any more: a new snapshot comes, and that once in a while. */
START_TEST(test_not_kept)
{
	u32 i;

	start("--host-size", "1M", "--kv-events-keep", "2", NULL);
	sub_leave(&sub);
	for (i = 0; i < 60; i++) {
		compute(i, 500);
		nap_ms(5);
	}
	sub_connect(&sub);
	nap_ms(200);
	ck_assert(!sub_ask(&sub, 0));
	ck_assert(sub.lacks);
	while (sub.lacks)
		ck_assert_uint_gt(sub_hear(&sub, 1000), 0);
	await_agreement(0, 60, 500);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "kv_event_snapshot"), 2);
	(void)sub_ask(&sub, 0);
	nap_ms(200);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "kv_event_snapshot"), 2);
	stop();
}
END_TEST

/* The ring is full, or a record is lost by a fault: all is told anew. */
START_TEST(test_ring_is_full)
{
	u32 i;

	if (_i)
		setenv("KVMM_FAULT", "events_full:100", 1);
	start("--host-size", "1M", "--kv-events-ring", "64K", NULL);
	unsetenv("KVMM_FAULT");
	catch_up();
	/* 750 blocks in one event of the core: more than the ring holds. */
	for (i = 0; i < 3; i++)
		compute(i, 12000);
	await_agreement(0, 3, 12000);
	for (i = 10; i < 20; i++)
		compute(i, 500);
	await_agreement(0, 3, 12000);
	await_agreement(10, 20, 500);
	ck_assert_int_gt(rig_value(&rig, "vmstat", "kv_event_lost"), 0);
	ck_assert_uint_gt(sub.cleared, 1);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "kv_event_snapshot"), (s64)sub.cleared);
	stop();
}
END_TEST

/* kvmm is killed: the next one adopts the cache and publishes all of it. */
START_TEST(test_killed)
{
	u64 hash[20], cleared;
	struct sub new;
	pid_t was;
	u32 i;

	start("--host-size", "1M", NULL);
	catch_up();
	for (i = 0; i < 40; i++)
		compute(i, 500);
	await_agreement(0, 40, 500);
	for (i = 0; i < 20; i++)
		hash[i] = hash_of(39 - i, 500);
	was = rig_daemon(&rig);
	cleared = sub.cleared;
	ck_assert_int_eq(kill(was, SIGKILL), 0);
	kvmm_detach(kv);
	kv = attach("it");
	step_number = 0;
	/* Its connection was lost: it asks, as it would after a gap. */
	ck_assert(sub_ask(&sub, sub.next));
	ck_assert_uint_eq(sub.cleared, cleared + 1);
	await_agreement(0, 40, 500);
	for (i = 0; i < 20; i++)
		ck_assert_uint_eq(hash_of(39 - i, 500), hash[i]);
	ck_assert_int_ne(rig_daemon(&rig), was);
	/* One that was not there hears the snapshot, too. */
	sub_open(&new, live, old, TOPIC);
	ck_assert(sub_ask(&new, 0));
	ck_assert_uint_eq(new.nr, sub.nr);
	ck_assert_uint_eq(new.cleared, 1);
	sub_close(&new);
	stop();
}
END_TEST

/* Wrong requests, and peers that read no answer: the others get theirs. */
START_TEST(test_wrong_requests)
{
	static u8 large[1 << 20];
	const int none = 0, one = 1;
	void *peer[20];
	u64 first = 0;
	u32 i, n;

	start("--host-size", "1M", NULL);
	for (i = 0; i < 20; i++)
		compute(i, 500);
	for (i = 0; i < ARRAY_SIZE(peer); i++) {
		peer[i] = zmq_socket(sub.ctx, ZMQ_DEALER);
		zmq_setsockopt(peer[i], ZMQ_LINGER, &none, sizeof(none));
		zmq_setsockopt(peer[i], ZMQ_RCVHWM, &one, sizeof(one));
		ck_assert_int_eq(zmq_connect(peer[i], old), 0);
		for (n = 0; n < i % 5; n++)
			(void)zmq_send(peer[i], n % 2 ? "abc" : "", n % 2 ? 3 : 0, ZMQ_SNDMORE);
		(void)zmq_send(peer[i], large, i % 7 ? i % 11 : sizeof(large), 0);
		/* A right one after it, and its answer is not read. */
		(void)zmq_send(peer[i], "", 0, ZMQ_SNDMORE);
		(void)zmq_send(peer[i], &first, sizeof(first), 0);
	}
	catch_up();
	await_agreement(0, 20, 500);
	for (i = 0; i < ARRAY_SIZE(peer); i++)
		zmq_close(peer[i]);
	stop();
}
END_TEST

/* ---- refused at start ---- */

static void refused(int code, const char *says, const char *a, const char *b)
{
	char path[RIG_PATH + 32], *err;
	struct job j;

	snprintf(path, sizeof(path), "%s/other", rig.dir);
	ck_assert(!mkdir(path, 0700) || errno == EEXIST);
	j = job_start(&rig, "kvmm", "--pool-size", "1M", "--extent-size", "64K", "--host-size",
		      "0", "--socket", path, a, b, NULL);
	ck_assert_int_eq(job_wait(&j, 20 * time_scale()), code);
	err = slurp(j.err);
	ck_assert_msg(strstr(err, says), "%s", err);
	free(err);
}

START_TEST(test_refused)
{
	char path[128];
	FILE *f;

	start("--host-size", "0", NULL);
	refused(EX_USAGE, "--kv-events: 'localhost:5' is no endpoint", "--kv-events",
		"localhost:5");
	refused(EX_USAGE, "--kv-events-replay answers for batches", "--kv-events-replay",
		"tcp://127.0.0.1:0");
	refused(EX_CANTCREAT, "--kv-events: ipc:///proc/none cannot be bound", "--kv-events",
		"ipc:///proc/none");
	/* A file that is no socket stays. */
	f = fopen(tmp_name(path + 6, sizeof(path) - 6, "events"), "w");
	ck_assert(f && !fclose(f));
	memcpy(path, "ipc://", 6);
	refused(EX_CANTCREAT, "cannot be bound: Socket operation on non-socket", "--kv-events", path);
	ck_assert(!access(path + 6, F_OK));
	unlink(path + 6);
	stop();
}
END_TEST

/* ---- the soak: nothing is lost to a subscriber that comes and goes ---- */

START_TEST(test_soak)
{
	const u64 want = by_level(20000, 200000, 10000000);
	u64 changes = 0;
	u32 i = 0, n;

	start("--host-size", "2M", "--kv-events-keep", "100000", NULL);
	catch_up();
	while (changes < want) {
		for (n = 0; n < 50; n++, i++)
			compute(100 + i % 150, 200 + 16 * (i * 7 % 40));
		sub_hear(&sub, 0);
		if (random_below(3) == 0) {
			sub_leave(&sub);
			for (n = random_below(40); n; n--, i++)
				compute(100 + i % 150, 600);
			sub_connect(&sub);
		}
		changes = (u64)rig_value(&rig, "vmstat", "kv_event");
	}
	catch_up();
	await_agreement(100, 250, 600);
	ck_assert_uint_eq(sub.cleared, 1);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "kv_event_lost"), 0);
	ck_assert_uint_eq(sub.next - sub.first, sub.batches);
	printf("  %llu changes of blocks in %llu events of %llu batches; away and back %llu times; %u blocks in the mirror, as in the daemon\n",
	       (unsigned long long)changes, (unsigned long long)sub.events,
	       (unsigned long long)sub.batches, (unsigned long long)sub.asked, sub.nr);
	stop();
}
END_TEST

static Suite *kv_events_suite(void)
{
	Suite *s = suite_create("kv_events");
	TCase *t = tcase_create("kv_events");

	tcase_set_timeout(t, 14400);
	tcase_add_loop_test(t, test_events, 0, 2);
	tcase_add_test(t, test_tiers);
	tcase_add_test(t, test_domains);
	tcase_add_test(t, test_reconnect);
	tcase_add_test(t, test_not_kept);
	tcase_add_loop_test(t, test_ring_is_full, 0, 2);
	tcase_add_test(t, test_killed);
	tcase_add_test(t, test_wrong_requests);
	tcase_add_test(t, test_refused);
	suite_add_tcase(s, t);
	t = tcase_create("soak");
	tcase_set_timeout(t, 14400);
	tcase_add_test(t, test_soak);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	SRunner *r = srunner_create(kv_events_suite());
	int failed;

	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
