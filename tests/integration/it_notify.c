// SPDX-License-Identifier: Apache-2.0
/*
 * it_notify.c - messages of kvrt serve to a service manager
 *
 * The test is the manager: it has the socket that $NOTIFY_SOCKET names.  A
 * server is started without a daemon, beside a daemon that has no tenant for
 * it, and beside one that has.  Each must be told in STATUS=, and READY=1 may
 * only come with the last.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/integration/harness.h"

static struct rig rig;		/* a directory, without a daemon of its own */
static char node[RIG_PATH + 16], tenant[RIG_PATH + 32];
static int manager;
static char said[8192];		/* all messages until now, a line each */

static void setup(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	snprintf(rig.dir, sizeof(rig.dir), "%s/rig.XXXXXX", getenv("TMPDIR"));
	ck_assert_ptr_nonnull(mkdtemp(rig.dir));
	snprintf(node, sizeof(node), "%s/node", rig.dir);
	ck_assert_int_eq(mkdir(node, 0755), 0);
	snprintf(tenant, sizeof(tenant), "%s/lab/attach.sock", node);
	ck_assert_int_lt(snprintf(a.sun_path, sizeof(a.sun_path), "%s/notify",
				  rig.dir), (int)sizeof(a.sun_path));
	manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(manager, (struct sockaddr *)&a, sizeof(a)), 0);
	setenv("NOTIFY_SOCKET", a.sun_path, 1);
}

static void teardown(void)
{
	char line[RIG_PATH + 16];

	close(manager);
	snprintf(line, sizeof(line), "rm -rf '%s'", rig.dir);
	ck_assert_int_eq(system(line), 0);
}

/* Wait for a message with @part; fails after 30 s, or when @job ends. */
static void await(struct job *job, const char *part)
{
	const u64 end = now_ms() + 30000ull * time_scale();
	struct pollfd p = { .fd = manager, .events = POLLIN };
	size_t len = strlen(said);
	ssize_t n;
	int code;

	while (!strstr(said, part)) {
		if (now_ms() > end || job_ended(job, &code))
			ck_abort_msg("no message '%s', but:\n%s\nstderr:\n%s",
				     part, said, slurp(job->err));
		if (poll(&p, 1, 20) <= 0)
			continue;
		n = recv(manager, said + len, sizeof(said) - len - 2, 0);
		ck_assert_int_gt(n, 0);
		said[len + n] = '\n';
		len += (size_t)n + 1;
		said[len] = '\0';
	}
}

/* A daemon at the node's directory, which is no child of the manager. */
static struct job daemon_start(const char *option, const char *value)
{
	char path[RIG_PATH + 32];
	struct job hold, wait;

	unsetenv("NOTIFY_SOCKET");
	snprintf(path, sizeof(path), "%s/attach.sock", node);
	hold = job_start(&rig, "kvmm-hold", "--backend", "host", "--socket", path,
			 "--pool-size", "8M", "--extent-size", "512K", option,
			 value, NULL);
	wait = job_start(&rig, "kvctl", "--socket", node, "wait", "--timeout",
			 "20", NULL);
	ck_assert_int_eq(job_wait(&wait, 30 * time_scale()), 0);
	return hold;
}

static void end(struct job *j)
{
	job_kill(j, SIGTERM);
	ck_assert_int_eq(job_wait(j, 30 * time_scale()), 0);
}

START_TEST(test_a_start)
{
	struct job server, hold;

	server = job_start(&rig, "kvrt", "serve", demo_model(), "--port", "0",
			   "--threads", "1", "--socket", tenant, NULL);
	await(&server, "STATUS=demo-model: the model is being loaded\n");
	/* The wait for a daemon has a time of its own. */
	await(&server, "EXTEND_TIMEOUT_USEC=");
	await(&server, "STATUS=demo-model waits for kvmm: no daemon at ");

	hold = daemon_start("--log-level", "warn");
	await(&server, "/node has no tenant lab: write the line `tenant = lab,");
	end(&hold);
	ck_assert_ptr_null(strstr(said, "READY=1"));

	hold = daemon_start("--tenant", "lab");
	await(&server, "READY=1\nSTATUS=serves demo-model at http://127.0.0.1:");
	said[0] = '\0';
	end(&hold);
	await(&server, "STATUS=demo-model waits for kvmm: ");
	end(&server);
}
END_TEST

/* With a daemon a start says nothing of waiting. */
START_TEST(test_at_once)
{
	struct job hold = daemon_start("--tenant", "lab"), server;
	char path[RIG_PATH + 32];

	snprintf(path, sizeof(path), "%s/notify", rig.dir);
	setenv("NOTIFY_SOCKET", path, 1);
	server = job_start(&rig, "kvrt", "serve", demo_model(), "--port", "0",
			   "--threads", "1", "--socket", tenant, NULL);
	await(&server, "READY=1\nSTATUS=serves demo-model at ");
	ck_assert_ptr_nonnull(strstr(said, "STATUS=demo-model: "));
	ck_assert_ptr_null(strstr(said, "no daemon"));
	end(&server);
	end(&hold);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("notify");
	TCase *tc = tcase_create("notify");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_a_start);
	tcase_add_test(tc, test_at_once);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
