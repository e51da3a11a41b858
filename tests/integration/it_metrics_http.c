// SPDX-License-Identifier: Apache-2.0
/*
 * it_metrics_http.c - kvmm-proc's /metrics equals kvctl's, for all clients
 *
 * /metrics has the same families and samples as `kvctl cat metrics`.  Bad
 * requests get the proper error.  A client that sends or reads slowly, or
 * connects two hundred times, keeps no other client out and is cut off.  A
 * kvmm-proc that is killed serves at the same address again, and no other
 * process notices.  A kvmm that is stopped or killed is a 503 until it is back.
 * Threads are sandboxed, and without the mount there is no right to mount.
 * budget: 30 s
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <libkvmm.h>

#include "tests/integration/harness.h"
#include "tests/integration/http.h"

#define LIMIT_S		20
#define HEAD_MS		5000	/* limit in kvmm/procfs/http.c */
#define CONNS		32	/* the same */
#define PAGE_MS		100	/* limit in kvmm/procfs/page.c */

static struct rig rig;
static u32 port;

/* ---- a daemon with an endpoint ---- */

static char *hold_log(void)
{
	char path[RIG_PATH + 32];

	snprintf(path, sizeof(path), "%s/job-0.err", rig.dir);
	return slurp(path);
}

/* Wait for the log's line with the port. */
static void await_port(const char *log)
{
	static const char word[] = "metrics are at http://127.0.0.1:";
	const u64 end = now_ms() + LIMIT_S * 1000ull * time_scale();
	char *text = slurp(log), *p;

	while (!(p = strstr(text, word))) {
		ck_assert_msg(now_ms() < end, "%s", text);
		free(text);
		nap_ms(5);
		text = slurp(log);
	}
	port = (u32)atoi(p + strlen(word));
	free(text);
}

static void start(void)
{
	char path[RIG_PATH + 32];

	rig_start(&rig, "--pool-size", "16M", "--extent-size", "1M", "--proc",
		  "off", "--metrics", "0", NULL);
	snprintf(path, sizeof(path), "%s/job-0.err", rig.dir);
	await_port(path);
}

static struct kvmm *attach(const char *domain)
{
	static const u8 identity[KVMM_IDENTITY_LEN] = "it_metrics_http";
	char path[RIG_PATH + 16], text[256];
	const struct kvmm_params p = {
		.socket = path, .domain = domain, .identity = identity,
		.block_tokens = 16,
		.group[0] = { .layers = 1, .kv_heads = 1, .k_bytes = 2048,
			   .v_bytes = 2048 },
		.max_bytes = KVMM_LIMIT_MAX, .attach_timeout_ms = 20000,
	};
	struct kvmm *k;

	snprintf(path, sizeof(path), "%s/attach.sock", rig.dir);
	ck_assert_msg(!kvmm_attach(&p, &k, text), "%s", text);
	return k;
}

static char *kvctl_metrics(void)
{
	struct job j = job_start(&rig, "kvctl", "cat", "metrics", NULL);
	char *text;

	ck_assert_int_eq(job_wait(&j, 30 * time_scale()), 0);
	text = slurp(j.out);
	unlink(j.out);
	unlink(j.err);
	return text;
}

/* Wait until the answer to GET /metrics is @want. */
static void await_status(int want)
{
	const u64 end = now_ms() + LIMIT_S * 1000ull * time_scale();
	int status;

	while ((status = web_ask(port, "/metrics", NULL, NULL)) != want) {
		ck_assert_msg(now_ms() < end, "%d", status);
		nap_ms(20);
	}
}

/* Wait for a page that has this word. */
static void await_word(const char *word)
{
	const u64 end = now_ms() + LIMIT_S * 1000ull * time_scale();
	char *body = NULL;

	while (web_ask(port, "/metrics", NULL, &body) != 200 ||
	       !body || !strstr(body, word)) {
		ck_assert_msg(now_ms() < end, "no %s", word);
		free(body);
		body = NULL;
		nap_ms(20);
	}
	free(body);
}

/* Wait for the process that replaces @old: a kvmm or a kvmm-proc. */
static pid_t another(pid_t (*find)(struct rig *r), pid_t old)
{
	const u64 end = now_ms() + LIMIT_S * 1000ull * time_scale();
	pid_t pid;

	while (!(pid = find(&rig)) || pid == old) {
		ck_assert(now_ms() < end);
		nap_ms(5);
	}
	return pid;
}

/* ---- content of the page ---- */

/* Keep names and labels only: values change. */
static void strip_values(char *text)
{
	char *from = text, *to = text, *end, *cut;

	for (; *from; from = end + 1) {
		end = strchr(from, '\n');
		ck_assert_ptr_nonnull(end);
		cut = *from == '#' ? end : memrchr(from, ' ', (size_t)(end - from));
		ck_assert_ptr_nonnull(cut);
		memmove(to, from, (size_t)(cut - from));
		to += cut - from;
		*to++ = '\n';
	}
	*to = '\0';
}

START_TEST(test_same)
{
	struct kvmm *k;
	char *here, *there;
	struct web w;

	start();
	k = attach("odd \"na\\me");
	web_open(&w, port);
	ck_assert(web_get(&w, "/metrics"));
	ck_assert_int_eq(web_status(&w), 200);
	ck_assert_str_eq(web_header(&w, "Content-Type"),
			 "text/plain; version=0.0.4; charset=utf-8");
	there = web_body(&w);
	ck_assert(there && web_ended(&w));
	web_close(&w);
	here = kvctl_metrics();
	ck_assert_ptr_nonnull(strstr(there, "odd\\\\040"));
	ck_assert_ptr_nonnull(strstr(there, "\nkvmm_memory_gpu_total_bytes 16777216\n"));
	strip_values(here);
	strip_values(there);
	ck_assert_str_eq(here, there);
	free(here);
	free(there);
	kvmm_detach(k);
	rig_stop(&rig);
}
END_TEST

/* ---- requests ---- */

#define HOST	"Host: test\r\n"

static const struct {
	const char	*request;
	int		status;
	const char	*word;	/* in the answer */
} asked[] = {
	{ "GET / HTTP/1.1\r\n" HOST "\r\n", 200, "/metrics" },
	{ "GET /metrics?x=1 HTTP/1.1\r\n" HOST "\r\n", 200, "kvmm_info" },
	{ "GET /metrics HTTP/1.0\r\n\r\n", 200, "kvmm_info" },
	{ "GET /metrics/ HTTP/1.1\r\n" HOST "\r\n", 404, "" },
	{ "GET /meminfo HTTP/1.1\r\n" HOST "\r\n", 404, "" },
	{ "GET /../metrics HTTP/1.1\r\n" HOST "\r\n", 404, "" },
	{ "POST /metrics HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nab", 405, "" },
	{ "DELETE / HTTP/1.1\r\n" HOST "\r\n", 405, "" },
	{ "BREW /metrics HTTP/1.1\r\n" HOST "\r\n", 501, "" },
	{ "GET /metrics HTTP/1.1\r\n\r\n", 400, "Host" },
	{ "GET /metrics HTTP/1.1\n" HOST "\r\n\r\n", 400, "" },
	{ "GET /metrics\r\n\r\n", 400, "" },
	{ "GET  /metrics HTTP/1.1\r\n" HOST "\r\n", 400, "" },
	{ "GET /metrics HTTP/2.0\r\n" HOST "\r\n", 505, "" },
	{ "GET /metrics HTTP/1.1\r\n" HOST " folded: x\r\n\r\n", 400, "" },
	{ "GET /metrics HTTP/1.1\r\n" HOST "A: \x01\r\n\r\n", 400, "" },
	{ "\x16\x03\x01\x02\r\n\r\n", 400, "" },
	/* Bytes behind the request are ignored. */
	{ "GET / HTTP/1.1\r\n" HOST "\r\nGET /metrics HTTP/1.1\r\n" HOST "\r\n",
	  200, "/metrics" },
};

static void want_answer(const char *request, size_t len, int status,
			const char *word)
{
	struct web w;
	char *body;

	web_open(&w, port);
	ck_assert(web_send(&w, request, len));
	ck_assert_msg(web_status(&w) == status, "%.60s: %s", request, w.head);
	ck_assert_str_eq(web_header(&w, "Connection"), "close");
	if (status == 405)
		ck_assert_str_eq(web_header(&w, "Allow"), "GET, HEAD");
	body = web_body(&w);
	ck_assert_msg(body && strstr(body, word), "%.60s: %s", request, body);
	/* The server closes in order, without further bytes. */
	ck_assert_msg(web_ended(&w), "%.60s", request);
	free(body);
	web_close(&w);
}

START_TEST(test_requests)
{
	char *big = malloc(16384), name[64];
	struct web w;
	size_t n;
	u32 i;

	start();
	for (i = 0; i < ARRAY_SIZE(asked); i++)
		want_answer(asked[i].request, strlen(asked[i].request),
			    asked[i].status, asked[i].word);
	n = (size_t)sprintf(big, "GET /metrics HTTP/1.1\r\n" HOST "A: ");
	memset(big + n, 'a', 8192 - n);
	want_answer(big, 8192, 431, "");
	n = (size_t)sprintf(big, "GET /metrics HTTP/1.1\r\n" HOST);
	for (i = 0; i < 120; i++)
		n += (size_t)sprintf(big + n, "A%u: b\r\n", i);
	n += (size_t)sprintf(big + n, "\r\n");
	want_answer(big, n, 431, "");
	/* HEAD has no body, and a request may come in any pieces. */
	web_open(&w, port);
	n = (size_t)snprintf(name, sizeof(name), "HEAD /metrics HTTP/1.1\r\n"
			     HOST "\r\n");
	for (i = 0; i < n; i += 13)
		ck_assert(web_send(&w, name + i, min(n - i, (size_t)13)));
	ck_assert_int_eq(web_status(&w), 200);
	ck_assert_int_gt(atoi(web_header(&w, "Content-Length")), 1000);
	ck_assert(!w.len && web_ended(&w));
	web_close(&w);
	free(big);
	rig_stop(&rig);
}
END_TEST

/* ---- hostile clients ---- */

static void want_metrics(void)
{
	char *body = NULL;

	ck_assert_int_eq(web_ask(port, "/metrics", NULL, &body), 200);
	ck_assert_ptr_nonnull(strstr(body, "\nkvmm_uptime_seconds "));
	free(body);
}

/* Number of kvmm-proc's sockets. */
static u32 nr_sockets(void)
{
	char path[64 + 256], to[64];
	struct dirent *e;
	u32 nr = 0;
	ssize_t n;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)rig_proc(&rig));
	d = opendir(path);
	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%s",
			 (int)rig_proc(&rig), e->d_name);
		n = readlink(path, to, sizeof(to) - 1);
		to[max(n, (ssize_t)0)] = '\0';
		nr += !strncmp(to, "socket:", 7);
	}
	if (d)
		closedir(d);
	return nr;
}

/* A client sends one byte now and then: it gets 408 at the limit, not before. */
START_TEST(test_slow)
{
	struct web slow, half;
	u64 since;

	start();
	web_open(&half, port);
	since = now_ms();
	web_open(&slow, port);
	ck_assert(web_puts(&slow, "GET /metrics HTTP/1.1\r\nA: "));
	slow.wait_ms = 100;
	while (!web_status(&slow)) {
		ck_assert(now_ms() - since < LIMIT_S * 1000ull * time_scale());
		ck_assert(web_puts(&slow, "a"));
		want_metrics();
	}
	ck_assert_int_eq(atoi(slow.head + 9), 408);
	ck_assert_uint_ge(now_ms() - since + 5, HEAD_MS);
	/* A client that sent no byte gets no answer. */
	ck_assert(web_ended(&half));
	web_close(&half);
	web_close(&slow);
	rig_stop(&rig);
}
END_TEST

START_TEST(test_many)
{
	static struct web w[200];
	struct web narrow[40];
	u32 i;

	start();
	for (i = 0; i < ARRAY_SIZE(w); i++) {
		web_open(&w[i], port);
		ck_assert(i % 2 || web_puts(&w[i], "GET /met"));
		if (i % 20 == 19)
			want_metrics();
	}
	for (i = 0; i < ARRAY_SIZE(narrow); i++) {
		web_open_narrow(&narrow[i], port);
		ck_assert(web_get(&narrow[i], "/metrics"));
	}
	want_metrics();
	if (!geteuid())
		ck_assert_uint_le(nr_sockets(), CONNS + 2);
	/* The newest connections are still open, the first ones are not. */
	ck_assert(web_closed(&w[0]));
	ck_assert_int_eq(web_status(&narrow[ARRAY_SIZE(narrow) - 1]), 200);
	for (i = 0; i < ARRAY_SIZE(w); i++)
		web_close(&w[i]);
	for (i = 0; i < ARRAY_SIZE(narrow); i++)
		web_close(&narrow[i]);
	rig_stop(&rig);
}
END_TEST

/* kvmm makes the page ten times a second at most, however often clients ask. */
START_TEST(test_seldom)
{
	char *body, *p, last[32] = "", seen[32];
	u64 since;
	u32 i, nr = 0;

	start();
	since = now_ms();
	for (i = 0; i < 200; i++) {
		body = NULL;
		ck_assert_int_eq(web_ask(port, "/metrics", NULL, &body), 200);
		p = strstr(body, "\nkvmm_uptime_seconds ");
		ck_assert(p && sscanf(p, "\nkvmm_uptime_seconds %31s", seen) == 1);
		nr += strcmp(seen, last) != 0;
		strcpy(last, seen);
		free(body);
	}
	ck_assert_uint_le(nr, (now_ms() - since) / PAGE_MS + 1);
	rig_stop(&rig);
}
END_TEST

/* ---- deaths ---- */

START_TEST(test_proc_dies)
{
	struct kvmm_open_arg arg = { .prompt_len = 16 };
	struct kvmm_open_res res;
	char text[16], path[RIG_PATH + 32];
	struct kvmm *k;
	pid_t kvmm, proc;

	start();
	/* A port that was free a moment ago: each kvmm-proc binds it anew. */
	rig_stop(&rig);
	snprintf(text, sizeof(text), "%u", port);
	rig_start(&rig, "--pool-size", "16M", "--extent-size", "1M", "--proc",
		  "off", "--metrics", text, NULL);
	snprintf(path, sizeof(path), "%s/job-0.err", rig.dir);
	await_port(path);
	k = attach("it");
	kvmm = rig_daemon(&rig);
	proc = rig_proc(&rig);
	ck_assert(kvmm > 0 && proc > 0);
	want_metrics();
	kill(proc, SIGKILL);
	ck_assert_int_gt(another(rig_proc, proc), 0);
	await_status(200);
	ck_assert(!kvmm_seq_open(k, &arg, 1, &res) && !res.status);
	ck_assert_int_eq(rig_daemon(&rig), kvmm);
	kvmm_detach(k);
	rig_stop(&rig);
}
END_TEST

START_TEST(test_kvmm_dies)
{
	pid_t kvmm, proc;
	struct web w;
	char *body;
	u32 i;

	start();
	kvmm = rig_daemon(&rig);
	proc = rig_proc(&rig);
	ck_assert(kvmm > 0 && proc > 0);
	kill(kvmm, SIGSTOP);
	for (i = 0; i < 10; i++) {
		web_open(&w, port);
		ck_assert(web_get(&w, "/metrics"));
		ck_assert_int_eq(web_status(&w), 503);
		ck_assert_str_eq(web_header(&w, "Retry-After"), "1");
		body = web_body(&w);
		ck_assert_ptr_nonnull(strstr(body, "kvmm does not answer"));
		free(body);
		web_close(&w);
	}
	ck_assert_int_eq(web_ask(port, "/", NULL, NULL), 200);
	kill(kvmm, SIGCONT);
	await_status(200);
	kill(kvmm, SIGKILL);
	ck_assert_int_gt(another(rig_daemon, kvmm), 0);
	/* Wait for a page of the next kvmm: the old one's does not count. */
	await_word("start=\"adopted");
	ck_assert_int_eq(rig_proc(&rig), proc);
	rig_stop(&rig);
}
END_TEST

/* ---- rights, addresses ---- */

static u64 status_value(const char *path, const char *key, int base)
{
	char *text = slurp(path), *p = strstr(text, key);
	u64 value;

	ck_assert_msg(p != NULL, "%s in %s", key, path);
	value = strtoull(p + strlen(key), NULL, base);
	free(text);
	return value;
}

START_TEST(test_boxed)
{
	const char *san = getenv("KVMM_SANITIZER");
	char path[64 + 256];
	struct dirent *e;
	u32 nr = 0;
	DIR *d;

	start();
	want_metrics();
	snprintf(path, sizeof(path), "/proc/%d/status", (int)rig.hold);
	ck_assert(geteuid() || !(status_value(path, "\nCapPrm:", 16) &
				 BIT_ULL(CAP_SYS_ADMIN)));
	snprintf(path, sizeof(path), "/proc/%d/task", (int)rig_proc(&rig));
	d = opendir(path);
	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%s/status",
			 (int)rig_proc(&rig), e->d_name);
		nr++;
		if (san && *san && strcmp(san, "ubsan"))
			continue;
		ck_assert_uint_eq(status_value(path, "\nSeccomp:", 10), 2);
		ck_assert_uint_eq(status_value(path, "\nNoNewPrivs:", 10), 1);
		ck_assert_uint_eq(status_value(path, "\nCapPrm:", 16), 0);
	}
	closedir(d);
	ck_assert_uint_ge(nr, 1);
	rig_stop(&rig);
}
END_TEST

/*
 * Run kvmm-proc alone with this option.  Return: its log, once it has @word or
 * ended.
 */
static char *proc_alone(const char *metrics, const char *word, int *code)
{
	struct job j = job_start(&rig, "kvmm-proc", "--dir", rig.dir,
				 "--mount", "off", "--metrics", metrics, NULL);
	char *text = slurp(j.err);
	bool ended = false;

	while (!strstr(text, word) && !(ended = job_ended(&j, code))) {
		free(text);
		nap_ms(5);
		text = slurp(j.err);
	}
	if (ended) {
		free(text);
		text = slurp(j.err);
	} else {
		*code = -1;
		job_kill(&j, SIGKILL);
		job_wait(&j, LIMIT_S);
	}
	unlink(j.out);
	unlink(j.err);
	return text;
}

static void want_refused(const char *program, const char *metrics)
{
	struct job j = job_start(&rig, program, "--metrics", metrics, NULL);
	char *text;

	ck_assert_msg(job_wait(&j, LIMIT_S * time_scale()) == EX_USAGE,
		      "%s %s", program, metrics);
	text = slurp(j.err);
	ck_assert_msg(count_lines(text) == 1 && strstr(text, "--metrics: '"),
		      "%s", text);
	free(text);
	unlink(j.out);
	unlink(j.err);
}

START_TEST(test_addresses)
{
	static const char * const wrong[] = {
		"", "on", "localhost:80", "127.0.0.1", "127.0.0.1:",
		"127.0.0.1:65536", "::1:80", "[::1]", "[127.0.0.1]:80", "-1",
	};
	char text[16], *log;
	int code;
	u32 i;

	start();
	for (i = 0; i < ARRAY_SIZE(wrong); i++)
		want_refused(i % 2 ? "kvmm" : "kvmm-proc", wrong[i]);
	/* The port is in use: an error says so. */
	snprintf(text, sizeof(text), "%u", port);
	log = proc_alone(text, "metrics are at", &code);
	ck_assert_int_eq(code, EX_UNAVAILABLE);
	ck_assert_ptr_nonnull(strstr(log, "cannot listen at 127.0.0.1:"));
	free(log);
	log = proc_alone("[::1]:0", "metrics are at", &code);
	if (strstr(log, "Cannot assign") || strstr(log, "not supported"))
		printf("note: no IPv6 here: not tried\n");
	else
		ck_assert_msg(strstr(log, "at http://[::1]:"), "%s", log);
	free(log);
	/* All hosts can connect, and a warning says so. */
	log = proc_alone("0.0.0.0:0", "metrics are at", &code);
	ck_assert_msg(strstr(log, "figures of all tenants"), "%s", log);
	free(log);
	log = hold_log();
	ck_assert_ptr_null(strstr(log, "figures of all tenants"));
	free(log);
	/* Others could replace the daemon's socket in this directory. */
	ck_assert(!chmod(rig.dir, 0777));
	log = proc_alone("0", "metrics are at", &code);
	ck_assert(!chmod(rig.dir, 0700));
	ck_assert_msg(geteuid() || code == EX_UNAVAILABLE, "%s", log);
	free(log);
	want_metrics();
	rig_stop(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("metrics_http");
	TCase *tc = tcase_create("metrics_http");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_same);
	tcase_add_test(tc, test_requests);
	tcase_add_test(tc, test_slow);
	tcase_add_test(tc, test_many);
	tcase_add_test(tc, test_seldom);
	tcase_add_test(tc, test_proc_dies);
	tcase_add_test(tc, test_kvmm_dies);
	tcase_add_test(tc, test_boxed);
	tcase_add_test(tc, test_addresses);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
