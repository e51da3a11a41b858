// SPDX-License-Identifier: Apache-2.0
/*
 * it_ranks.c - a leader and a rank: two processes, with a part of each block each
 *
 * budget: 30 s
 *
 * The leader opens sequences, and orders the rank to write and to compare its part of
 * their blocks.  One of the two is killed, or kvmm is.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/shard_client.h"

#define POOLS	"--backend", "host", "--pool", "host:1M", "--pool", "host:512K", \
		"--extent-size", "64K", "--host-size", "1M", "--swappiness", "200", \
		"--min-token-bytes", "512"
#define WAIT_MS	30000u
#define ENDLESS	100000u		/* rounds */

static u32 *quit;		/* a page of all processes: the leader ends after its round */

/**
 * struct group - a leader and a rank
 * @pair: the socket between them, [0] of the leader
 * @tell: pipe by which the leader names itself to the rank
 */
struct group {
	pid_t	leader;
	pid_t	rank;
	int	pair[2];
	int	tell[2];
};

static void child_begins(const char *name)
{
	char path[RIG_PATH + 32];

	shard_child = true;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(path, sizeof(path), "%s/%s.err", shard_rig.dir, name);
	if (!freopen(path, "w", stderr))
		_exit(1);
}

static void attach_part(u32 part, u32 leader)
{
	char text[256];

	shard_mine = part;
	shard_leader = leader;
	if (shard_attach(0, SHARD_PARTS, &shard_kv, text))
		shard_give_up("%s", text);
}

_Noreturn static void rank_main(struct group *g)
{
	u32 leader;

	child_begins("rank");
	close(g->pair[0]);
	close(g->tell[1]);
	if (read(g->tell[0], &leader, sizeof(leader)) != sizeof(leader))
		shard_give_up("no leader");
	attach_part(2, leader + 1);
	shard_serve(g->pair[1]);
	kvmm_detach(shard_kv);
	_exit(0);
}

/* @rounds: of pressure; then a sequence is paged out and brought back */
_Noreturn static void leader_main(struct group *g, u32 rounds)
{
	struct shard_seq it;
	u32 i;

	child_begins("leader");
	close(g->pair[1]);
	attach_part(1, 0);
	i = kvmm_info(shard_kv)->client;
	if (write(g->tell[1], &i, sizeof(i)) != sizeof(i))
		shard_give_up("the rank has ended");
	shard_rank_sock = g->pair[0];
	for (i = 0; i < rounds && !READ_ONCE(*quit); i++)
		shard_pressure(i);
	it = shard_open(1000, KVMM_OPEN_NO_INDEX);
	shard_fill(&it);
	shard_page_out(&it);
	shard_page_in(&it);
	shard_close(&it);
	shard_dismiss();
	kvmm_detach(shard_kv);
	_exit(0);
}

static void group_start(struct group *g, u32 rounds)
{
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, g->pair), 0);
	ck_assert_int_eq(pipe(g->tell), 0);
	quit = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(quit, MAP_FAILED);
	g->rank = fork();
	ck_assert_int_ge(g->rank, 0);
	if (!g->rank)
		rank_main(g);
	g->leader = fork();
	ck_assert_int_ge(g->leader, 0);
	if (!g->leader)
		leader_main(g, rounds);
	close(g->pair[0]);
	close(g->pair[1]);
	close(g->tell[0]);
	close(g->tell[1]);
}

/* The status of a process that ends in time. */
static int ended(pid_t pid, const char *name)
{
	const u64 end = now_ms() + WAIT_MS * time_scale();
	char path[RIG_PATH + 32];
	int status;

	snprintf(path, sizeof(path), "%s/%s.err", shard_rig.dir, name);
	while (!waitpid(pid, &status, WNOHANG)) {
		ck_assert_msg(now_ms() < end, "the %s goes on: %s", name, slurp(path));
		nap_ms(2);
	}
	if (WIFEXITED(status))
		ck_assert_msg(!WEXITSTATUS(status), "the %s: %s", name, slurp(path));
	return status;
}

static void group_ends(struct group *g)
{
	char path[RIG_PATH + 32];

	snprintf(path, sizeof(path), "%s/job-0.err", shard_rig.dir);
	ck_assert_msg(!ended(g->leader, "leader"), "%s", slurp(path));
	ck_assert_int_eq(ended(g->rank, "rank"), 0);
}

static void await_use(void)
{
	const u64 end = now_ms() + WAIT_MS * time_scale();

	while (!rig_pool_value(&shard_rig, "gpu1", "used_kb")) {
		ck_assert_uint_lt(now_ms(), end);
		nap_ms(2);
	}
}

/*
 * Wait until this kvmm has begun a step for the leader.  An arena is not adopted again if
 * two daemons died before they did any work (150 ms, and a request).
 */
static void await_work(void)
{
	const s64 before = rig_value(&shard_rig, "vmstat", "step_begin");

	rig_await(&shard_rig, "vmstat", "step_begin", before + 1, WAIT_MS / 1000 * time_scale());
}

static void await_logged(const char *what)
{
	const u64 end = now_ms() + WAIT_MS * time_scale();
	char path[RIG_PATH + 32], *log;
	bool found;

	snprintf(path, sizeof(path), "%s/job-0.err", shard_rig.dir);
	for (found = false; !found; nap_ms(2)) {
		log = slurp(path);
		found = strstr(log, what);
		ck_assert_msg(found || now_ms() < end, "not logged: %s\n%s", what, log);
		free(log);
	}
}

/* Pages out and in, preemption: both processes find their words in their parts. */
START_TEST(test_together)
{
	struct group g;

	rig_start(&shard_rig, POOLS, NULL);
	group_start(&g, 2);
	group_ends(&g);
	ck_assert_int_gt(rig_value(&shard_rig, "domain/parts/memory.events", "preempt"), 0);
	rig_walk(&shard_rig);
	rig_stop(&shard_rig);
}
END_TEST

/* One of them is killed: kvmm kills the other one, and the next group goes on. */
START_TEST(test_killed)
{
	struct group g, next;

	rig_start(&shard_rig, POOLS, NULL);
	group_start(&g, ENDLESS);
	await_use();
	kill(_i ? g.rank : g.leader, SIGKILL);
	ck_assert(WIFSIGNALED(ended(_i ? g.rank : g.leader, "first")));
	ck_assert(WIFSIGNALED(ended(_i ? g.leader : g.rank, _i ? "leader" : "rank")));
	await_logged("is killed: another process of its group has died");
	group_start(&next, 1);
	group_ends(&next);
	rig_walk(&shard_rig);
	rig_stop(&shard_rig);
}
END_TEST

/* kvmm is killed: both come back, and find their words. */
START_TEST(test_kvmm_killed)
{
	struct group g;
	u32 i;

	rig_start(&shard_rig, POOLS, NULL);
	group_start(&g, ENDLESS);
	for (i = 0; i < 3; i++) {
		await_work();
		nap_ms(300 * time_scale());
		kill(rig_daemon(&shard_rig), SIGKILL);
	}
	WRITE_ONCE(*quit, 1);
	group_ends(&g);
	rig_walk(&shard_rig);
	rig_stop(&shard_rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ranks");
	TCase *tc = tcase_create("two");
	SRunner *sr;
	int failed;

	tcase_set_tags(tc, "integration");
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, test_together);
	tcase_add_loop_test(tc, test_killed, 0, 2);
	tcase_add_test(tc, test_kvmm_killed);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
