// SPDX-License-Identifier: Apache-2.0
/*
 * it_isolation.c - one tenant's cached prompts are hidden from other tenants
 *
 * Two users run programs with the same model, domain name, prompts and salts.
 * The user that computed a prompt finds it cached.  The other one does not find
 * it, before, after and while it has computed the same one.  bench_isolation
 * shows that the time of an answer tells nothing either.  Without root there is
 * only one user.
 * budget: 20 s
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cache_probe.h"
#include "tests/integration/harness.h"
#include "tests/other_user.h"

#define PROMPTS		40u
#define ALL_OF_IT	(CP_LEN - 1)	/* tokens of full blocks; the last token is in none */

static struct rig rig;

/* ---- the program of a user: it reads requests and writes answers ---- */

struct user {
	pid_t	pid;
	int	ask;
	int	answer;
};

/* A request: look for a prompt with a salt, and fill it before if @fill. */
struct ask {
	u32	prompt;		/* KVMM_NO_INDEX: the end */
	u32	salt;
	u32	fill;
};

static __attribute__((noreturn)) void user_main(uid_t uid, int in, int out)
{
	char path[RIG_PATH + 32], way[64];
	struct kvmm *k;
	struct ask a;
	u32 found;

	snprintf(path, sizeof(path), "%s/attach.sock", rig.dir);
	CP_MUST(other_user(uid, path, way, sizeof(way)));
	k = cp_attach(way);
	while (read(in, &a, sizeof(a)) == sizeof(a) &&
	       a.prompt != KVMM_NO_INDEX) {
		if (a.fill)
			cp_fill(k, a.prompt, a.salt);
		found = cp_ask(k, a.prompt, a.salt);
		CP_MUST(write(out, &found, sizeof(found)) == sizeof(found));
	}
	kvmm_detach(k);
	_exit(0);
}

static struct user user_start(uid_t uid)
{
	int down[2], up[2];
	struct user u;

	ck_assert(!pipe2(down, O_CLOEXEC) && !pipe2(up, O_CLOEXEC));
	fflush(stdout);
	u.pid = fork();
	ck_assert_int_ge(u.pid, 0);
	if (!u.pid) {
		close(down[1]);
		close(up[0]);
		user_main(uid, down[0], up[1]);
	}
	close(down[0]);
	close(up[1]);
	u.ask = down[1];
	u.answer = up[0];
	return u;
}

static void user_end(struct user *u)
{
	const struct ask over = { .prompt = KVMM_NO_INDEX };
	int status;

	ck_assert_int_eq(write(u->ask, &over, sizeof(over)), sizeof(over));
	ck_assert_int_eq(waitpid(u->pid, &status, 0), u->pid);
	ck_assert_int_eq(status, 0);
	close(u->ask);
	close(u->answer);
}

static u32 found(const struct user *u, u32 prompt, u32 salt, bool fill)
{
	const struct ask a = { .prompt = prompt, .salt = salt, .fill = fill };
	u32 n;

	ck_assert_int_eq(write(u->ask, &a, sizeof(a)), sizeof(a));
	ck_assert_int_eq(read(u->answer, &n, sizeof(n)), sizeof(n));
	return n;
}

START_TEST(test_prefixes)
{
	struct user a, b;
	u32 i;

	if (geteuid()) {
		printf("note: not tested: it takes root to be two users\n");
		return;
	}
	rig_start(&rig, "--pool-size", "8M", "--extent-size", "64K",
		  "--min-token-bytes", "64", "--socket-mode", "0666", NULL);
	a = user_start(10001);
	b = user_start(10002);
	for (i = 0; i < PROMPTS; i++)
		ck_assert_uint_eq(found(&a, i, i % 3, true), ALL_OF_IT);
	for (i = 0; i < PROMPTS; i++) {
		ck_assert_uint_eq(found(&b, i, i % 3, false), 0);
		ck_assert_uint_eq(found(&a, i, i % 3, false), ALL_OF_IT);
		/* Another salt of the same user does not find it either. */
		ck_assert_uint_eq(found(&a, i, 7, false), 0);
	}
	/*
	 * A prompt that b computed is cached for b, the others are still hidden
	 * from it.
	 */
	ck_assert_uint_eq(found(&b, 0, 0, true), ALL_OF_IT);
	ck_assert_uint_eq(found(&b, 3, 0, false), 0);
	ck_assert_uint_eq(found(&a, 0, 0, false), ALL_OF_IT);
	rig_walk(&rig);
	user_end(&a);
	user_end(&b);
	/* A user that returns finds its prompts; another user does not. */
	a = user_start(10001);
	b = user_start(10003);
	ck_assert_uint_eq(found(&a, 1, 1, false), ALL_OF_IT);
	ck_assert_uint_eq(found(&b, 1, 1, false), 0);
	user_end(&a);
	user_end(&b);
	rig_stop(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("isolation");
	TCase *tc = tcase_create("isolation");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_prefixes);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
