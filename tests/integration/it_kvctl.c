// SPDX-License-Identifier: Apache-2.0
/*
 * it_kvctl.c - commands of an operator beside runtimes that compute
 *
 * A runtime of one tenant fills the pool; a program of another tenant takes its
 * protected memory.  kvctl explain names, for each sequence that lost memory,
 * the taker, the blocks and the reason for its wait; the tenant itself learns
 * only that another tenant took them.  Meanwhile the tenant is drained: running
 * sequences end with the same tokens as alone, and new ones are refused.  Then
 * its cache is evicted, and the operator's settings hold for its next runtime.
 * budget: 40 s
 */
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <libkvmm.h>

#include "tests/integration/harness.h"

#define TAKER_TOKENS	3900u
#define DOMAIN		"demo-model"

static struct rig rig;

#define MUST(cond)							\
do {									\
	if (!(cond)) {							\
		fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
		_exit(1);						\
	}								\
} while (0)

/* ---- kvctl ---- */

static char *err_text;		/* stderr of the last kvctl */

/* Run kvctl; it must exit with @code.  Return: its output, to be freed. */
static char *kvctl(int code, const char *a, const char *b, const char *c,
		   const char *d)
{
	struct job j = job_start(&rig, "kvctl", a, b, c, d, NULL);
	int rc = job_wait(&j, 30);
	char *out = slurp(j.out);

	free(err_text);
	err_text = slurp(j.err);
	ck_assert_msg(rc == code, "kvctl %s %s: %d: %s", a, b ? b : "", rc,
		      err_text);
	unlink(j.out);
	unlink(j.err);
	return out;
}

static void done(int code, const char *a, const char *b, const char *c,
		 const char *d)
{
	free(kvctl(code, a, b, c, d));
}

static json_t *kvctl_json(const char *a, const char *b, const char *c)
{
	char *out = kvctl(0, "--json", a, b, c);
	json_error_t e;
	json_t *v = json_loads(out, 0, &e);

	ck_assert_msg(v != NULL, "%s: %s", e.text, out);
	free(out);
	return v;
}

static const char *str(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static s64 num(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

/* ---- one tenant's runtime ---- */

static struct job runtime(u32 max_tokens)
{
	char socket[RIG_PATH + 32], tokens[16];

	snprintf(socket, sizeof(socket), "%s/one/attach.sock", rig.dir);
	snprintf(tokens, sizeof(tokens), "%u", max_tokens);
	return job_start(&rig, KVRT_GENERATE, demo_model(), "--socket",
			 socket, "--mode", "exact", "--temperature", "0",
			 "--ignore-eos", "--threads", "1", "--json",
			 "--max-tokens", tokens, "In the first",
			 "A second one", "Third of all", "What is", NULL);
}

static void runtime_ends(struct job *j, struct samples *s)
{
	int code = job_wait(j, 60);

	ck_assert_msg(!code, "kvrt: %d: %s", code, slurp(j->err));
	samples_read(s, j->out);
}

/* ---- the program of the other tenant ---- */

/* Fill the protected memory, tell the test, and hold the memory until its answer. */
static void taker_main(int up, int down)
{
	static const u8 identity[KVMM_IDENTITY_LEN] = "it_kvctl";
	char path[RIG_PATH + 32], text[256], byte;
	const struct kvmm_params p = {
		.socket = path, .domain = "taker", .identity = identity,
		.block_tokens = 16,
		.group[0] = { .layers = 1, .kv_heads = 1, .k_bytes = 512,
			   .v_bytes = 512 },
		.min_bytes = 4u << 20, .max_bytes = KVMM_LIMIT_MAX,
		.attach_timeout_ms = 20000,
	};
	struct kvmm_open_arg arg = { .prompt_len = TAKER_TOKENS };
	static u32 ids[TAKER_TOKENS];
	struct kvmm_seq_status st;
	struct kvmm_open_res res;
	struct kvmm *k;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(path, sizeof(path), "%s/two/attach.sock", rig.dir);
	MUST(!kvmm_attach(&p, &k, text));
	MUST(!kvmm_seq_open(k, &arg, 1, &res) && !res.status);
	MUST(!kvmm_seq_match(k, res.seq, ids, TAKER_TOKENS));
	do {
		MUST(kvmm_wait(k, 10000000) != -ECONNRESET);
		MUST(!kvmm_seq_status(k, res.seq, &st));
	} while (st.state != KVMM_SEQ_READY);
	MUST(write(up, "x", 1) == 1);
	MUST(!fcntl(down, F_SETFL, O_NONBLOCK));
	while (read(down, &byte, 1) < 0)
		MUST(kvmm_wait(k, 5000000) != -ECONNRESET);
	kvmm_detach(k);
	_exit(0);
}

static pid_t taker_start(int *down)
{
	int up[2], dn[2];
	char byte;
	pid_t pid;

	ck_assert(!pipe(up) && !pipe(dn));
	fflush(stdout);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid)
		taker_main(up[1], dn[0]);
	close(up[1]);
	close(dn[0]);
	ck_assert_msg(read(up[0], &byte, 1) == 1, "the taker ended");
	close(up[0]);
	*down = dn[1];
	return pid;
}

/* ---- explain ---- */

/* A sequence that lost memory: the text must say the same as the JSON. */
static void same_as_text(const json_t *one)
{
	char *text = kvctl(0, "explain", str(one, "Sequence"), NULL, NULL);
	char want[64];

	snprintf(want, sizeof(want), "\nLastBlocks:\t%lld\n",
		 (long long)num(one, "LastBlocks"));
	ck_assert_msg(strstr(text, want) != NULL, "%s not in %s", want, text);
	snprintf(want, sizeof(want), "\nLastBy:\t%s\n", str(one, "LastBy"));
	ck_assert_msg(strstr(text, want) != NULL, "%s not in %s", want, text);
	free(text);
}

/* Count sequences that lost memory to @by; each must have lost some. */
static u32 taken_by(json_t *all, const char *by)
{
	json_t *one;
	u32 nr = 0;
	size_t i;

	json_array_foreach(all, i, one) {
		if (strcmp(str(one, "LastBy"), by))
			continue;
		nr++;
		ck_assert_str_eq(str(one, "LastCause"), "tenant");
		ck_assert_int_ge(num(one, "Preempted"), 1);
		ck_assert_int_gt(num(one, "LastBlocks"), 0);
		ck_assert_int_gt(num(one, "LastTokens"), 0);
		ck_assert_int_gt(num(one, "LostTokens"), 0);
		ck_assert_str_eq(str(one, "LastKept"), "dropped");
	}
	return nr;
}

/* Lines of @text that begin with blanks and @begin. */
static u32 lines_of(const char *text, const char *begin)
{
	u32 nr = 0;

	for (; text && *text; text = strchr(text, '\n')) {
		text += strspn(text, "\n ");
		nr += !strncmp(text, begin, strlen(begin));
	}
	return nr;
}

/* One line a sequence, without operand those of all clients; --long has the files. */
static void explain_table(void)
{
	char *text = kvctl(0, "explain", "0", NULL, NULL), seq[16];
	u32 rows = lines_of(text, "0/");

	ck_assert_uint_ge(rows, 1);
	ck_assert_uint_le(rows, 8);
	ck_assert_int_eq(sscanf(strstr(text, " 0/"), " 0/%15[0-9]", seq), 1);
	ck_assert_msg(strstr(text, " wait") && strstr(text, " run\n"), "%s", text);
	ck_assert_uint_eq(lines_of(text, "LastBlocks:"), 0);
	free(text);
	text = kvctl(0, "explain", NULL, NULL, NULL);
	ck_assert_uint_ge(lines_of(text, "0/"), 1);
	free(text);
	text = kvctl(0, "--long", "explain", "0", NULL);
	ck_assert_uint_ge(lines_of(text, "LastBlocks:"), 1);
	free(text);
	text = kvctl(0, "explain", "0", seq, NULL);
	ck_assert_uint_eq(lines_of(text, "LastBlocks:"), 1);
	free(text);
	done(64, "explain", "0/0", seq, NULL);
	done(64, "explain", "0", "x", NULL);
}

/* The clients of two models are told apart by their domains. */
static void clients_have_domains(void)
{
	char *text = kvctl(0, "clients", NULL, NULL, NULL);

	ck_assert_msg(strstr(text, " DOMAIN "), "%s", text);
	ck_assert_msg(strstr(text, " " DOMAIN " "), "%s", text);
	ck_assert_msg(strstr(text, " taker "), "%s", text);
	free(text);
}

/* The runtime @pid is stopped here: on a fast machine it would end before drain(). */
static void explain(pid_t pid)
{
	u64 end = now_ms() + 20000 * time_scale();
	json_t *all, *one;
	u32 waits = 0;
	size_t i;

	/* The pool is too small for all of them now: some wait for memory. */
	do {
		all = kvctl_json("explain", "0", NULL);
		json_array_foreach(all, i, one)
			waits += num(one, "WaitsMs") > 0 &&
				 (!strcmp(str(one, "Waits"), "memory") ||
				  !strcmp(str(one, "Waits"), "line") ||
				  !strcmp(str(one, "Waits"), "growth"));
		json_decref(all);
		ck_assert_msg(now_ms() < end, "nobody waits for memory");
	} while (!waits);
	ck_assert_int_eq(kill(pid, SIGSTOP), 0);
	all = kvctl_json("explain", "0", NULL);
	ck_assert_uint_ge(taken_by(all, "taker"), 1);
	json_array_foreach(all, i, one)
		if (!strcmp(str(one, "LastBy"), "taker"))
			same_as_text(one);
	json_decref(all);

	/* The tenant learns about its loss, but not the name of the taker. */
	all = kvctl_json("--tenant=one", "explain", "0");
	ck_assert_uint_ge(taken_by(all, "another tenant"), 1);
	ck_assert_uint_eq(taken_by(all, "taker"), 0);
	json_decref(all);
	done(1, "--tenant=two", "explain", "0", NULL);
	ck_assert_ptr_nonnull(strstr(err_text, "client/0/seqs: no such file"));
	done(1, "explain", "0/999", NULL, NULL);
	done(1, "explain", "77", NULL, NULL);
	done(64, "explain", "0/", NULL, NULL);
	done(1, "explain", "chat", NULL, NULL);
}

/* ---- layer groups ---- */

/* The taker has memory and no step yet; the runtime, which is stopped, has blocks. */
static void groups(void)
{
	json_t *all = kvctl_json("groups", NULL, NULL), *row;
	json_t *one = kvctl_json("groups", "taker", NULL);
	json_t *clients = kvctl_json("clients", NULL, NULL);
	char *text = kvctl(0, "groups", "taker", NULL, NULL);

	ck_assert_uint_eq(json_array_size(all), 2);
	ck_assert_str_eq(str(json_array_get(all, 0), "domain"), DOMAIN);
	ck_assert_uint_eq(json_array_size(one), 1);
	row = json_array_get(one, 0);
	ck_assert(json_equal(row, json_array_get(all, 1)));
	ck_assert_str_eq(str(row, "domain"), "taker");
	ck_assert_int_eq(num(row, "tokens"), 16);
	ck_assert_int_eq(num(row, "block_bytes"), 16 * 1024);
	ck_assert_int_eq(num(row, "padding_bytes"), 0);
	ck_assert_int_eq(num(row, "blocks"), 0);
	row = json_array_get(all, 0);
	ck_assert_int_gt(num(row, "blocks"), 0);
	ck_assert_int_eq(num(row, "blocks"), num(json_array_get(clients, 0), "blocks"));
	ck_assert_ptr_nonnull(strstr(text, "\ntaker            0    kv      1     1      0     16    16384       0   1 "));
	free(text);
	json_decref(clients);
	json_decref(one);
	json_decref(all);
}

/* ---- drain ---- */

static const char *draining(const char *client)
{
	static char word[16];
	json_t *all = kvctl_json("clients", NULL, NULL), *row;
	size_t i;

	strcpy(word, "");
	json_array_foreach(all, i, row)
		if (num(row, "id") == atoi(client))
			snprintf(word, sizeof(word), "%s", str(row, "draining"));
	json_decref(all);
	return word;
}

/* The tenant gets no new client; the running one goes on. */
static void drain(void)
{
	struct job j;
	char *said;

	done(0, "drain", "tenant/one", NULL, NULL);
	ck_assert_str_eq(draining("0"), "tenant");
	ck_assert_str_eq(draining("1"), "no");
	j = runtime(4);
	ck_assert_int_ne(job_wait(&j, 60), 0);
	said = slurp(j.err);
	ck_assert_msg(strstr(said, "drained") != NULL, "%s", said);
	free(said);
	done(1, "drain", "tenant/three", NULL, NULL);
	ck_assert_ptr_nonnull(strstr(err_text, "tenant/three: is not attached"));
	done(1, "drain", "client/63", NULL, NULL);
	done(1, "drain", "everything", NULL, NULL);
}

/* ---- the test ---- */

static void cache_is_evicted(void)
{
	s64 before, after;
	char *text;

	before = rig_value(&rig, "domain/" DOMAIN "/memory.current", "gpu0");
	text = kvctl(0, "evict", DOMAIN, "512K", NULL);
	ck_assert_msg(strstr(text, DOMAIN ": 524288 bytes evicted, 8 blocks"),
		      "%s", text);
	free(text);
	after = rig_value(&rig, "domain/" DOMAIN "/memory.current", "gpu0");
	ck_assert_int_eq(before - after, 512 << 10);
	ck_assert_int_ge(rig_value(&rig, "vmstat", "evict_asked"), 8);
	done(0, "evict", DOMAIN, NULL, NULL);
	ck_assert_int_eq(rig_value(&rig, "domain/" DOMAIN "/memory.current",
				   "gpu0"), 0);
	done(1, "evict", DOMAIN, "1M", NULL);
	ck_assert_ptr_nonnull(strstr(err_text, "0 bytes evicted and no more"));
	done(64, "evict", DOMAIN, "some", NULL);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "client_kill"), 0);
}

/* The operator's settings stay when the next runtime sets nothing. */
static void marks_hold(void)
{
	const char *file = "domain/" DOMAIN "/memory.min";
	struct samples s;
	struct job j;

	done(0, "pin", DOMAIN, "1M", NULL);
	j = runtime(4);
	runtime_ends(&j, &s);
	samples_free(&s);
	ck_assert_int_eq(rig_value(&rig, file, "gpu0"), 1 << 20);
	done(0, "unpin", DOMAIN, NULL, NULL);
	ck_assert_int_eq(rig_value(&rig, file, "gpu0"), 0);
	done(1, "unpin", DOMAIN, NULL, NULL);
	ck_assert_ptr_nonnull(strstr(err_text, "is not pinned"));
	done(1, "pin", "nowhere", NULL, NULL);
	done(64, "pin", DOMAIN, "0", NULL);
}

START_TEST(test_two_tenants)
{
	struct samples truth, s;
	struct job j;
	pid_t taker;
	int down, status;

	rig_start(&rig, "--pool-size", "6M", "--extent-size", "256K",
		  "--tenant", "one", "--tenant", "two,min=4M", NULL);
	j = runtime(450);
	runtime_ends(&j, &truth);
	done(0, "drop_caches", NULL, NULL, NULL);

	j = runtime(450);
	rig_await(&rig, "domain/" DOMAIN "/memory.current", "gpu0", 5 << 19, 30);
	taker = taker_start(&down);
	explain(j.pid);
	explain_table();
	clients_have_domains();
	groups();
	drain();
	ck_assert_int_eq(kill(j.pid, SIGCONT), 0);
	ck_assert_int_eq(write(down, "x", 1), 1);
	ck_assert_int_eq(waitpid(taker, &status, 0), taker);
	ck_assert_int_eq(status, 0);
	close(down);
	runtime_ends(&j, &s);
	samples_equal(&truth, &s);
	done(0, "--off", "drain", "tenant/one", NULL);
	cache_is_evicted();
	marks_hold();
	ck_assert_int_eq(rig_value(&rig, "vmstat", "client_kill"), 0);
	samples_free(&s);
	samples_free(&truth);
	rig_walk(&rig);
	rig_stop(&rig);
}
END_TEST

/* Lines of swapd about areas: the log level applies to swapd, too. */
static u32 swapd_told(void)
{
	char path[RIG_PATH + 32], *text, *p;
	u32 nr = 0;

	snprintf(path, sizeof(path), "%s/job-0.err", rig.dir);
	text = slurp(path);
	for (p = text; (p = strstr(p, "swapd: area ")); p++)
		nr++;
	free(text);
	return nr;
}

static void swapon(const char *name)
{
	char path[RIG_PATH + 32];

	snprintf(path, sizeof(path), "%s/%s", rig.dir, name);
	done(0, "--size=8M", "swapon", path, NULL);
}

static void swapoff(const char *name)
{
	char path[RIG_PATH + 32];

	snprintf(path, sizeof(path), "%s/%s", rig.dir, name);
	done(0, "swapoff", path, NULL, NULL);
	unlink(path);
}

START_TEST(test_log_level)
{
	u32 nr;

	rig_start(&rig, "--pool-size", "4M", "--extent-size", "256K",
		  "--host-size", "1M", "--area-max", "8M", NULL);
	swapon("a");
	nr = swapd_told();
	ck_assert_uint_ge(nr, 1);
	done(0, "log_level", "err", NULL, NULL);
	swapon("b");
	ck_assert_uint_eq(swapd_told(), nr);
	done(0, "log_level", "info", NULL, NULL);
	swapon("c");
	ck_assert_uint_gt(swapd_told(), nr);
	done(1, "log_level", "loud", NULL, NULL);
	swapoff("a");
	swapoff("b");
	swapoff("c");
	rig_stop(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kvctl");
	TCase *tc = tcase_create("kvctl");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, test_two_tenants);
	tcase_add_test(tc, test_log_level);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
