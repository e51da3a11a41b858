// SPDX-License-Identifier: Apache-2.0
/*
 * it_cuda_fails.c - a GPU that fails, in a runtime and in the daemon
 *
 * budget: 60 s, full 120 s
 * from: full
 *
 * The stand-in's $KVMM_STANDIN_FAULT ends the driver's context of one process
 * in the middle of its work, as an illegal address does: every later call
 * fails.  A runtime reports it to all its requests, answers 503 for a while and
 * ends with a special exit code.  The daemon lives on and says which of its
 * functions are gone; its clients keep their memory, unless the error says that
 * its content is damaged.  Other tests refuse memory, or have a client keep
 * memory that it claims to have given back.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/cuda_party.h"
#include "tests/integration/serve.h"
#include "tests/standin/sanitized.h"

#define EXIT_DEVICE	79

/* Wait until all clients are gone and no memory is quarantined. */
static void await_free(void)
{
	const u64 end = now_ms() + WAIT_MS * time_scale();

	while (rig_value(&rig, "vmstat", "nr_clients") ||
	       rig_value(&rig, "vmstat", "nr_blocks_quarantine")) {
		ck_assert_msg(now_ms() < end, "somebody stays:\n%s",
			      node_log());
		nap_ms(10);
	}
}

static void expect_once(const char *text, const char *what)
{
	const char *at = strstr(text, what);

	ck_assert_msg(at && !strstr(at + 1, what), "not once: %s\n%s", what,
		      text);
}

/* ---- a runtime ---- */

#define MODEL_SIZES "--backend", "cuda", "--pool-size", "16M", \
	"--extent-size", "64K"

/*
 * Count the launches of a process that loads the model and generates a few
 * tokens; the next launch is in the middle of its work.
 */
static u64 launches_of_a_run(const char *tokens)
{
	struct job j = job_start(&rig, KVRT_GENERATE, demo_model(), "In",
				 "--max-tokens", tokens, "--ignore-eos",
				 "--temperature", "0", NULL);
	char key[64], *text, *at;

	ck_assert_int_eq(job_wait(&j, 60 * time_scale()), 0);
	text = slurp(cuda_counts);
	snprintf(key, sizeof(key), "pid %d ", (int)j.pid);
	at = strstr(text, key);
	at = at ? strstr(at, " launches=") : NULL;
	ck_assert_msg(at, "%s", text);
	return strtoull(at + strlen(" launches="), NULL, 10);
}

static void fault_at(u64 launch)
{
	char fault[64];

	snprintf(fault, sizeof(fault), "launch:%llu",
		 (unsigned long long)launch);
	setenv("KVMM_STANDIN_FAULT", fault, 1);
}

START_TEST(test_generate)
{
	struct job j;
	char *err;

	rig_start(&rig, MODEL_SIZES, NULL);
	fault_at(launches_of_a_run("4"));
	j = job_start(&rig, KVRT_GENERATE, demo_model(), "In", "-n", "3",
		      "--max-tokens", "64", "--ignore-eos", "--quiet", NULL);
	unsetenv("KVMM_STANDIN_FAULT");
	ck_assert_int_eq(job_wait(&j, 60 * time_scale()), EXIT_DEVICE);
	err = slurp(j.err);
	expect_once(err, "kvrt: error: the GPU failed: ");
	expect_once(err, "error");
	free(err);
	/* No other client is harmed, and all the memory becomes free. */
	launches_of_a_run("4");
	await_free();
	rig_walk(&rig);
	rig_stop(&rig);
}
END_TEST

/* Send a POST, and do not wait for its answer. */
static void ask(struct web *w, const struct served *s, const char *more)
{
	char body[160];

	snprintf(body, sizeof(body), "{\"prompt\":\"In\",\"max_tokens\":400,\"ignore_eos\":true%s}",
		 more);
	web_open(w, s->port);
	ck_assert(web_post(w, "/v1/completions", body));
}

static void expect_503(struct web *w)
{
	char *body;

	ck_assert_int_eq(web_status(w), 503);
	ck_assert_ptr_nonnull(web_header(w, "Retry-After"));
	body = web_body(w);
	ck_assert_msg(body && web_is_error(body, "device_failed"), "%s", body);
	free(body);
	web_close(w);
}

/* Running requests get the error, and so do new ones while the server lives. */
static void expect_told(const struct served *s, struct web *stream,
			struct web *whole)
{
	char *event, *last = NULL;
	struct web w;
	json_t *v;

	ck_assert_int_eq(web_status(stream), 200);
	while ((event = web_event(stream))) {
		free(last);
		last = event;
	}
	ck_assert_msg(last && web_is_error(last, "device_failed"), "%s", last);
	free(last);
	web_close(stream);
	expect_503(whole);
	ask(&w, s, "");
	expect_503(&w);
	web_open(&w, s->port);
	ck_assert(web_get(&w, "/health"));
	ck_assert_int_eq(web_status(&w), 503);
	ck_assert_ptr_nonnull(web_header(&w, "Retry-After"));
	web_close(&w);
	v = web_json(s->port, "/ready", NULL, 503);
	ck_assert_str_eq(json_string_value(json_object_get(v, "status")),
			 "gpu_failed");
	json_decref(v);
}

/* Both requests are in the same batch, and the fault ends both. */
START_TEST(test_server)
{
	struct web stream, whole;
	struct served s;
	char *err;

	rig_start(&rig, MODEL_SIZES, NULL);
	fault_at(launches_of_a_run("12"));
	/* The server answers 503 until it gets a signal, or ends at once. */
	serve_start(&s, &rig, "--lost-timeout", _i ? "0" : "3600", NULL);
	unsetenv("KVMM_STANDIN_FAULT");
	serve_await(&s, 200, 60 * time_scale());
	ask(&stream, &s, ",\"stream\":true");
	ask(&whole, &s, "");
	if (!_i) {
		expect_told(&s, &stream, &whole);
		job_kill(&s.job, SIGTERM);
	}
	ck_assert_int_eq(job_wait(&s.job, 60 * time_scale()), EXIT_DEVICE);
	err = slurp(s.job.err);
	expect_once(err, "the GPU failed: ");
	free(err);
	await_free();
	rig_walk(&rig);
	rig_stop(&rig);
}
END_TEST

/* ---- the daemon ---- */

static void fault_of_daemon(const char *fault, struct party *p)
{
	u32 i;

	setenv("KVMM_STANDIN_FAULT", fault, 1);
	rig_start(&rig, SIZES, "--host-size", "4M", NULL);
	unsetenv("KVMM_STANDIN_FAULT");
	party_join(p, NULL, 1);
	for (i = 0; i < 8; i++)
		seq_make(p);
}

/* A new client is refused, with a clear text. */
static void expect_refused_attach(void)
{
	static u8 identity[KVMM_IDENTITY_LEN] = "it_cuda";
	char path[RIG_PATH + 64], text[256];
	const struct kvmm_params params = {
		.socket = path, .domain = "other", .identity = identity,
		.block_tokens = TOKENS, .max_bytes = KVMM_LIMIT_MAX,
		.group[0] = { .layers = 2, .kv_heads = 2, .k_bytes = 512,
			   .v_bytes = 512 },
	};
	struct kvmm *k;

	snprintf(path, sizeof(path), "%s/attach.sock", rig.dir);
	ck_assert_int_eq(kvmm_attach(&params, &k, text), -ENODEV);
	ck_assert_msg(strstr(text, "device has failed"), "%s", text);
}

static void expect_device(const char *state)
{
	struct job j = job_start(&rig, "kvctl", "cat", "zoneinfo", NULL);
	char want[64], *out;

	ck_assert_int_eq(job_wait(&j, 20 * time_scale()), 0);
	out = slurp(j.out);
	snprintf(want, sizeof(want), "        device   %s\n", state);
	ck_assert_msg(strstr(out, want), "not %s: %s", state, out);
	free(out);
}

/* The words of a sequence come back, or it has to be recomputed. */
static void expect_back(struct party *p, u32 i)
{
	const u64 end = now_ms() + WAIT_MS * time_scale();
	u32 state;

	while ((state = state_of(p, i)) != KVMM_SEQ_READY &&
	       state != KVMM_SEQ_RECOMPUTE) {
		(void)advise(p, i, KVMM_ADV_WILLNEED);
		turn(p);
		ck_assert_msg(now_ms() < end, "sequence %u is %u", i, state);
	}
	if (state == KVMM_SEQ_READY)
		words_check(p, i);
}

/*
 * An error of the daemon's own context, in the middle of copies.  Sequences
 * that need no copy go on, the others are recomputed.  The next kvmm has a new
 * context.
 */
START_TEST(test_daemon_cut)
{
	struct party p, late;
	struct job j;
	u32 i;

	fault_of_daemon("copy:5", &p);
	for (i = 0; i < 4; i++)
		(void)advise(&p, i, KVMM_ADV_PAGEOUT);
	await_logged("the GPU failed at");
	rig_await(&rig, "vmstat", "device_fail", 1, 20);
	expect_device("cut");
	expect_refused_attach();
	for (i = 4; i < 8; i++)
		words_check(&p, i);
	for (i = 0; i < 4; i++)
		expect_back(&p, i);
	rig_walk(&rig);
	expect_once(node_log(), "the GPU failed at");
	ck_assert_msg(!strstr(node_log(), "cannot be copied"), "%s",
		      node_log());
	j = job_start(&rig, "kvctl", "upgrade", NULL);
	ck_assert_msg(!job_wait(&j, 60 * time_scale()), "%s\n%s",
		      slurp(j.err), node_log());
	turn(&p);
	expect_device("works");
	rig_await(&rig, "vmstat", "nr_blocks_poison", 0, 20);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "nr_blocks_poison"), 0);
	for (i = 4; i < 8; i++)
		words_check(&p, i);
	party_join(&late, NULL, 1);
	kvmm_detach(late.k);
	rig_walk(&rig);
	leave(&p);
	rig_stop(&rig);
}
END_TEST

/* An ECC error: the content of the memory is unknown, and every client is told. */
START_TEST(test_daemon_lost)
{
	const u64 end = now_ms() + WAIT_MS * time_scale();
	struct kvmm_seq_status st;
	struct kvmm_open_arg open = { .prompt_len = 1, .max_tokens = 1 };
	struct kvmm_open_res opened;
	struct kvmm_event ev;
	bool told = false;
	struct party p;
	u32 i;

	fault_of_daemon("copy:5=214", &p);
	for (i = 0; i < 4; i++)
		(void)advise(&p, i, KVMM_ADV_PAGEOUT);
	for (i = 0; i < 8; i++) {
		ck_assert(await_state(&p, i, KVMM_SEQ_FAILED));
		ck_assert_int_eq(kvmm_seq_status(p.k, p.seq[i], &st), 0);
		ck_assert_int_eq(st.reason, -ENODEV);
	}
	while (!told && now_ms() < end)
		if (kvmm_next_event(p.k, &ev) > 0)
			told = ev.type == KVMM_EV_POISONED;
		else
			turn(&p);
	ck_assert(told);
	expect_once(node_log(), "the GPU failed at");
	expect_device("lost");
	expect_refused_attach();
	ck_assert_int_eq(kvmm_seq_open(p.k, &open, 1, &opened), 0);
	ck_assert_int_eq(opened.status, -ENODEV);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "nr_blocks_free"), 0);
	ck_assert_int_gt(rig_value(&rig, "vmstat", "nr_blocks_poison"), 0);
	rig_walk(&rig);
	/* The next daemon does not trust the content either. */
	kvmm_detach(p.k);
	kill(rig_daemon(&rig), SIGKILL);
	await_logged("what the device held is lost");
	party_join(&p, NULL, 2);
	seq_make(&p);
	expect_device("works");
	leave(&p);
	rig_stop(&rig);
}
END_TEST

/* ---- no memory ---- */

/* None for an extent: the daemon tries again, and the waiting sequence gets it. */
START_TEST(test_no_memory_for_an_extent)
{
	struct party p;
	u32 i;

	setenv("KVMM_STANDIN_FAIL", "MemCreate:3,MemCreate:6", 1);
	rig_start(&rig, SIZES, NULL);
	unsetenv("KVMM_STANDIN_FAIL");
	party_join(&p, NULL, 1);
	for (i = 0; i < 8; i++)
		seq_make(&p);
	for (i = 0; i < 8; i++)
		words_check(&p, i);
	await_logged("cannot be made");
	expect_device("works");
	rig_walk(&rig);
	leave(&p);
	rig_stop(&rig);
}
END_TEST

/* None in a client, for its range or for a later mapping; other clients go on. */
START_TEST(test_no_memory_in_a_client)
{
	static u8 identity[KVMM_IDENTITY_LEN] = "it_cuda";
	char path[RIG_PATH + 64], text[256];
	const struct kvmm_params params = {
		.socket = path, .domain = "it", .identity = identity,
		.block_tokens = TOKENS, .max_bytes = KVMM_LIMIT_MAX,
		.group[0] = { .layers = 2, .kv_heads = 2, .k_bytes = 512,
			   .v_bytes = 512 },
	};
	struct party p;
	struct kvmm *k;
	pid_t pid;
	int status;

	rig_start(&rig, SIZES, NULL);
	snprintf(path, sizeof(path), "%s/attach.sock", rig.dir);
	fflush(NULL);
	pid = fork();
	if (!pid) {
		setenv("KVMM_STANDIN_FAIL", _i ? "MemMap:1" :
		       "MemAddressReserve:1", 1);
		status = kvmm_attach(&params, &k, text);
		if (!_i) {
			MUST(status == -ENOMEM);
			MUST(strstr(text, "device addresses"));
			_exit(0);
		}
		MUST(!status);
		memset(&p, 0, sizeof(p));
		p.k = k;
		p.byte = 3;
		MUST(seq_open(&p));
		while (!kvmm_wait(k, 2000000) || kvmm_alive(k))
			;
		MUST(strstr(kvmm_strerror_attach(k), "cannot map extent"));
		/* Its context is intact: it detaches in order. */
		MUST(!kvmm_device_failed(k));
		kvmm_detach(k);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	await_free();
	party_join(&p, NULL, 1);
	seq_make(&p);
	words_check(&p, 0);
	rig_walk(&rig);
	leave(&p);
	rig_stop(&rig);
}
END_TEST

/* ---- a client that lies ---- */

/*
 * A client says that it unmapped an extent, but keeps a mapping and writes to
 * it as long as it lives.  The next owner gets other memory, which never held a
 * word of that client and which that client cannot reach.
 */
START_TEST(test_kept_against_its_word)
{
	struct party a, b;
	char *kept = NULL;
	u64 size, end, n, have = 0;
	u32 i;

	rig_start(&rig, SIZES, "--tenant", "a", "--tenant", "b", "--starve-ms",
		  "50", "--revoke-deadline-ms", "20000", NULL);
	party_join(&a, "a", 5);
	for (i = 0; i < ALL; i++)
		seq_make(&a);
	/* A second mapping of the pool, unknown to the library. */
	size = kvmm_info(a.k)->extent_size;
	kept = mmap(NULL, kvmm_info(a.k)->pool_bytes, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(kept, MAP_FAILED);
	for (i = 0; i < kvmm_info(a.k)->nr_extents; i++)
		if (mremap((char *)kvmm_pool(a.k) + i * size, 0, size,
			   MREMAP_MAYMOVE | MREMAP_FIXED, kept + i * size) !=
		    MAP_FAILED)
			have |= BIT_ULL(i);
	ck_assert_int_ge(__builtin_popcountll(have), ALL);
	ck_assert_int_eq(kvmm_seq_close(a.k, a.seq + 4, ALL - 4), 0);
	a.nr = 4;
	party_join(&b, "b", 6);
	for (i = 0; i < 8; i++) {
		MUST(seq_open(&b));
		end = now_ms() + WAIT_MS * time_scale();
		while (state_of(&b, i) != KVMM_SEQ_READY) {
			ck_assert_msg(now_ms() < end, "b waits:\n%s",
				      node_log());
			turn(&a);
			turn(&b);
		}
		/* seq_fill() checks that no word of a is in it. */
		seq_fill(&b, i, true);
	}
	ck_assert_int_gt(rig_value(&rig, "vmstat", "extent_revoke"), 0);
	for (i = 0; i < kvmm_info(a.k)->nr_extents; i++)
		for (n = 0; n < size / 8 && (have & BIT_ULL(i)); n++)
			((volatile u64 *)(kept + i * size))[n] = 0xbadull;
	for (i = 0; i < 8; i++)
		words_check(&b, i);
	rig_walk(&rig);
	leave(&a);
	leave(&b);
	rig_stop(&rig);
}
END_TEST

/* ---- main ---- */

int main(void)
{
	SRunner *sr;
	TCase *tc;
	Suite *s;
	int failed;

	if (standin_forgets("all of it_cuda_fails"))
		return 77;
	s = suite_create("cuda_fails");
	tc = tcase_create("runtime");
	tcase_add_checked_fixture(tc, cuda_setup, cuda_teardown);
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, test_generate);
	tcase_add_loop_test(tc, test_server, 0, 2);
	suite_add_tcase(s, tc);
	tc = tcase_create("daemon");
	tcase_add_checked_fixture(tc, cuda_setup, cuda_teardown);
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, test_daemon_cut);
	tcase_add_test(tc, test_daemon_lost);
	tcase_add_test(tc, test_no_memory_for_an_extent);
	tcase_add_loop_test(tc, test_no_memory_in_a_client, 0, 2);
	tcase_add_test(tc, test_kept_against_its_word);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
