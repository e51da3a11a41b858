// SPDX-License-Identifier: Apache-2.0
/*
 * it_kvmm_death.c - the daemon dies under load, again and again, and each start
 * is a cold one (it_adopt.c has the others)
 *
 * budget: 60 s, full 450 s
 * from: full
 *
 * Two servers with separate domains serve clients that ask all the time, in a
 * pool so small that blocks are swapped to the host pool and to an area.  kvmm
 * is killed at random moments, also while it starts and while runtimes attach
 * to it.  Every open request must end with an error that its client
 * understands, both ports must stay open, both processes must serve again by
 * themselves, the area must be back, and complete answers must equal those of
 * an undisturbed server.  After every death the clients pause, and a census is
 * compared with the one after the first deaths: processes, descriptors, memory,
 * mounts, files.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/integration/census.h"
#include "tests/integration/serve.h"

#define NR_SERVERS	2u
#define NR_CLIENTS	8u
#define WARM		3u	/* deaths before the first census */
#define WAIT_MS		30000u
#define QUIET_MS	2000u	/* delay until kvmm checks the clients of the previous one */

#define ASK "{\"prompt\":\"In the beginning\",\"temperature\":0,\"max_tokens\":300,\"ignore_eos\":true,"

static struct rig rig;
static struct served server[NR_SERVERS];
static char *truth[NR_SERVERS];
static char area[RIG_PATH + 16];

/* ---- clients ---- */

/**
 * struct client - a thread that asks all the time and counts the results
 * @to:      index of its server
 * @parked:  it waits for the end of a pause
 * @whole:   complete answers
 * @cut:     streams that ended with an error event
 * @later:   503 with Retry-After
 * @wrong:   other results
 * @because: the first of those, in words
 */
struct client {
	pthread_t	thread;
	u32		to;
	bool		stream;
	bool		parked;
	u32		whole;
	u32		cut;
	u32		later;
	u32		wrong;
	char		because[256];
};

static struct client clients[NR_CLIENTS];
static u32 clients_pause;
static u32 clients_stop;

/* The main thread reads the count meanwhile. */
static void count(u32 *n)
{
	WRITE_ONCE(*n, *n + 1);
}

static void wrong(struct client *c, const char *what)
{
	if (!c->wrong++)
		snprintf(c->because, sizeof(c->because), "%s", what);
}

static void read_stream(struct client *c, struct web *w)
{
	bool done = false, error = false;
	char *event;

	while ((event = web_event(w))) {
		done |= !strcmp(event, "[DONE]");
		error |= web_is_error(event, "daemon_gone");
		free(event);
	}
	if (!w->over)
		wrong(c, "a stream that broke off");
	else if (done && !error)
		count(&c->whole);
	else if (error && !done)
		c->cut++;
	else
		wrong(c, "a stream without one end");
}

/* Each choice of a complete answer must have the true text. */
static bool is_truth(const char *answer, const char *text)
{
	json_t *v = json_loads(answer, 0, NULL), *c;
	json_t *choices = json_object_get(v, "choices");
	bool is = json_array_size(choices) == 2;
	const char *have;
	size_t i;

	json_array_foreach(choices, i, c) {
		have = json_string_value(json_object_get(c, "text"));
		is = is && have && !strcmp(have, text);
	}
	json_decref(v);
	return is;
}

static void read_answer(struct client *c, struct web *w, int status)
{
	char *text = web_body(w);

	if (status == 200 && text && is_truth(text, truth[c->to]))
		count(&c->whole);
	else if (status == 503 && web_is_error(text, "daemon_gone") &&
		 web_header(w, "Retry-After"))
		c->later++;
	else
		wrong(c, text ? text : "no answer");
	free(text);
}

static void client_ask(struct client *c)
{
	struct web w;
	int status;

	web_open(&w, server[c->to].port);
	if (w.fd < 0)
		wrong(c, "the port is gone");
	else if (!web_post(&w, "/v1/completions",
			   c->stream ? ASK "\"stream\":true}" : ASK "\"n\":2}"))
		wrong(c, "it could not be sent");
	status = web_status(&w);
	if (status == 200 && c->stream)
		read_stream(c, &w);
	else
		read_answer(c, &w, status);
	web_close(&w);
	if (status == 503)
		nap_ms(20);
}

static void *client_main(void *arg)
{
	struct client *c = arg;

	while (!load_acquire(&clients_stop)) {
		if (load_acquire(&clients_pause)) {
			store_release(&c->parked, true);
			nap_ms(2);
			continue;
		}
		store_release(&c->parked, false);
		client_ask(c);
	}
	return NULL;
}

static void clients_start(void)
{
	u32 i;

	for (i = 0; i < NR_CLIENTS; i++) {
		clients[i].to = i % NR_SERVERS;
		clients[i].stream = i / NR_SERVERS % 2;
		ck_assert_int_eq(pthread_create(&clients[i].thread, NULL,
						client_main, &clients[i]), 0);
	}
}

static void expect_no_wrong(void)
{
	u32 i;

	for (i = 0; i < NR_CLIENTS; i++)
		ck_assert_msg(!READ_ONCE(clients[i].wrong),
			      "client %u: %u times: %s\n%s", i,
			      clients[i].wrong, clients[i].because,
			      serve_said(&server[clients[i].to]));
}

static u32 count_whole(u32 to)
{
	u32 i, n = 0;

	for (i = 0; i < NR_CLIENTS; i++)
		n += clients[i].to == to ? READ_ONCE(clients[i].whole) : 0;
	return n;
}

/* Wait until every server serves (again): @more complete answers from each. */
static void await_whole(u32 more)
{
	const u64 end = now_ms() + WAIT_MS * time_scale();
	u32 want[NR_SERVERS], i;

	for (i = 0; i < NR_SERVERS; i++)
		want[i] = count_whole(i) + more;
	for (i = 0; i < NR_SERVERS; i++) {
		while (count_whole(i) < want[i]) {
			ck_assert_msg(now_ms() < end,
				      "server %u does not serve again:\n%s", i,
				      serve_said(&server[i]));
			nap_ms(10);
		}
	}
	expect_no_wrong();
}

/* Pause all clients, and wait until no answer is under way. */
static void clients_park(void)
{
	const u64 end = now_ms() + WAIT_MS * time_scale();
	u32 i;

	store_release(&clients_pause, 1);
	for (i = 0; i < NR_CLIENTS; i++) {
		while (!load_acquire(&clients[i].parked)) {
			ck_assert_msg(now_ms() < end, "client %u gets no answer:\n%s",
				      i, serve_said(&server[clients[i].to]));
			nap_ms(2);
		}
	}
	expect_no_wrong();
}

static void clients_go(void)
{
	u32 i;

	store_release(&clients_pause, 0);
	for (i = 0; i < NR_CLIENTS; i++)
		while (load_acquire(&clients[i].parked))
			nap_ms(1);
}

/* ---- the daemon ---- */

static pid_t daemon_await(pid_t other)
{
	const u64 end = now_ms() + WAIT_MS;
	pid_t pid;

	while (!(pid = rig_daemon(&rig)) || pid == other) {
		ck_assert_msg(now_ms() < end, "hold starts no daemon");
		nap_ms(2);
	}
	return pid;
}

/* Kill kvmm.  Return: pid of the next one. */
static pid_t daemon_kill(void)
{
	pid_t old = daemon_await(0);

	ck_assert_int_eq(kill(old, SIGKILL), 0);
	return daemon_await(old);
}

static void world_start(u32 quiet_ms)
{
	char quiet[16];
	struct job j;
	u32 i;

	snprintf(quiet, sizeof(quiet), "%u", quiet_ms * time_scale());
	rig_start(&rig, "--adopt", "off", "--pool-size", "2M",
		  "--extent-size", "256K",
		  "--host-size", "2M", "--area-max", "32M", "--swappiness",
		  "200", "--quiet-deadline-ms", quiet, NULL);
	snprintf(area, sizeof(area), "%s/area", rig.dir);
	j = job_start(&rig, "kvctl", "swapon", area, "--size", "32M", NULL);
	ck_assert_msg(!job_wait(&j, 30), "swapon: %s", slurp(j.err));
	serve_start(&server[0], &rig, "--mode", "exact", "--max-model-len",
		    "512", NULL);
	serve_start(&server[1], &rig, "--mode", "exact", "--dtype", "bf16",
		    "--domain", "other", NULL);
	for (i = 0; i < NR_SERVERS; i++) {
		json_t *v;

		serve_await(&server[i], 200, 30);
		v = complete(&server[i], ASK "\"n\":1}");
		truth[i] = strdup(choice_text(v, 0));
		json_decref(v);
	}
}

static void world_stop(void)
{
	u32 i;

	for (i = 0; i < NR_SERVERS; i++) {
		serve_stop(&server[i]);
		free(truth[i]);
	}
	rig_walk(&rig);
	rig_stop(&rig);
}

/* ---- remains of a death ---- */

static void census_print(const struct census *c, const char *when)
{
	u32 i;

	printf("  %s: %u memfds, %llu KiB;", when, c->nr_memfds,
	       (unsigned long long)c->memfd_kib);
	for (i = 0; i < c->nr_procs; i++)
		printf(" %s %u fds %llu KiB mapped %llu KiB own;",
		       c->proc[i].comm, c->proc[i].fds,
		       (unsigned long long)c->proc[i].shared,
		       (unsigned long long)c->proc[i].anon);
	printf(" %u mounts; files%s\n", c->mounts, c->files);
	fflush(stdout);
}

/* Take a census when all is quiet; it must not exceed @was, if that is given. */
static void census_quiet(struct census *now, const struct census *was)
{
	const u64 end = now_ms() + 3 * QUIET_MS * time_scale();
	char why[2200];
	u32 i;

	for (i = 0; i < NR_SERVERS; i++)
		serve_await_idle(&server[i], WAIT_MS);
	/* Recently closed connections need some time. */
	nap_ms(200);
	for (;;) {
		census_take(now, &rig);
		if (!was || !census_grew(was, now, why, sizeof(why)))
			return;
		if (now_ms() > end)
			break;
		nap_ms(50);
	}
	census_print(was, "before");
	census_print(now, "now");
	for (i = 0; i < now->nr_procs; i++)
		printf("%s:\n%s", now->proc[i].comm,
		       census_fds(now->proc[i].pid));
	ck_abort_msg("a death left something: %s", why);
}

/* ---- the campaign ---- */

/**
 * struct tally - results of the campaign
 * @starts: kills of a daemon that did not serve yet
 */
struct tally {
	u32	kills;
	u32	starts;
	s64	swapped;
	s64	area_total;
};

static void kill_round(struct tally *t)
{
	s64 swapped;

	await_whole(2);
	nap_ms(random_below(150));
	swapped = rig_value(&rig, "vmstat", "pgdemote") +
		  rig_value(&rig, "vmstat", "pswpout");
	t->swapped += max(swapped, (s64)0);
	(void)daemon_kill();
	t->kills++;
	/* Kill the next one too, in its first moments. */
	if (t->kills % 3 == 0) {
		nap_ms(random_below(40));
		(void)daemon_kill();
		t->kills++;
		t->starts++;
	}
}

static void expect_back(struct tally *t)
{
	int code;
	u32 i;

	for (i = 0; i < NR_SERVERS; i++)
		ck_assert_msg(!job_ended(&server[i].job, &code),
			      "server %u ended:\n%s", i, serve_said(&server[i]));
	await_whole(1);
	rig_await(&rig, "meminfo", "SwapTotal", t->area_total, 20);
	ck_assert_int_gt(rig_swapd(&rig), 0);
	rig_walk(&rig);
}

static void print_total(const struct tally *t, const struct census *first,
			const struct census *last)
{
	u32 i, whole = 0, cut = 0, later = 0;

	for (i = 0; i < NR_CLIENTS; i++) {
		whole += clients[i].whole;
		cut += clients[i].cut;
		later += clients[i].later;
	}
	census_print(first, "first");
	census_print(last, "last");
	ck_assert_uint_gt(cut, 0);
	ck_assert_uint_gt(later, 0);
	ck_assert_int_gt(t->swapped, 0);
	printf("total: kvmm killed %u times under load (%u while it started): %u servers served again by themselves each time; %u answers whole, %u streams ended by an error, %u told to come back, %lld blocks swapped; 0 processes, descriptors, memfds, mounts, files left\n",
	       t->kills, t->starts, NR_SERVERS, whole, cut, later,
	       (long long)t->swapped);
}

START_TEST(test_kill_daemon)
{
	const u32 kills = by_level(3, 17, 50);
	static struct census first, last;
	struct tally t = { 0 };
	u32 i;

	world_start(QUIET_MS);
	t.area_total = rig_value(&rig, "meminfo", "SwapTotal");
	ck_assert_int_gt(t.area_total, 0);
	clients_start();
	while (t.kills < kills) {
		kill_round(&t);
		expect_back(&t);
		if (t.kills < WARM)
			continue;
		clients_park();
		if (!first.nr_procs) {
			nap_ms(QUIET_MS * time_scale() + 500);
			census_quiet(&first, NULL);
		}
		census_quiet(&last, &first);
		clients_go();
	}
	store_release(&clients_stop, 1);
	for (i = 0; i < NR_CLIENTS; i++)
		pthread_join(clients[i].thread, NULL);
	expect_no_wrong();
	print_total(&t, &first, &last);
	for (i = 0; i < NR_SERVERS; i++)
		ck_assert(serve_figure(&server[i], "kvrt_attaches_total") >
			  kills / 2);
	world_stop();
}
END_TEST

/*
 * Deaths follow each other before a daemon has checked the clients of the
 * previous one: it must keep one record for each client, however many daemons
 * that client has seen.
 */
START_TEST(test_deaths_in_a_row)
{
	const u32 deaths = 6;
	struct census before, after;
	char *fds;
	u32 i;

	world_start(600000);
	census_take(&before, &rig);
	for (i = 0; i < deaths; i++) {
		(void)daemon_kill();
		rig_await(&rig, "vmstat", "client_attach", NR_SERVERS, 30);
	}
	census_take(&after, &rig);
	fds = census_fds(rig.hold);
	/*
	 * Descriptors for its clients, and for those of the previous daemon:
	 * the same ones.
	 */
	ck_assert_msg(census_proc(&after, rig.hold)->fds <=
		      census_proc(&before, rig.hold)->fds + NR_SERVERS,
		      "hold has %u descriptors after %u deaths, had %u:\n%s",
		      census_proc(&after, rig.hold)->fds, deaths,
		      census_proc(&before, rig.hold)->fds, fds);
	free(fds);
	world_stop();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kvmm-death");
	TCase *tc = tcase_create("under-load");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 900);
	tcase_add_test(tc, test_kill_daemon);
	tcase_add_test(tc, test_deaths_in_a_row);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
