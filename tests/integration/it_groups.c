// SPDX-License-Identifier: Apache-2.0
/*
 * it_groups.c - members of --read-group and --admin-group, and other users
 *
 * Each user is a process of its own, with a user and groups that no file of the
 * machine names.  It reaches the sockets and the mounted files by descriptors, since
 * directories above them may be closed to it.  Only root can change its user: without
 * that the suite says so and tries nothing.
 */
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <kvmm/admin.h>
#include <kvmm/view.h>

#include "tests/integration/harness.h"

#define READ_GROUP	"4701"
#define ADMIN_GROUP	"4702"
#define USER		4646
#define ASK_MS		20000

static struct rig rig;
static bool mounts;

/* A user of the tests, and the answers that it gets. */
struct user {
	const char	*what;
	gid_t		gid;		/* its own group */
	gid_t		more;		/* a supplementary one; 0: none */
	bool		reads;
	bool		changes;
};

static const struct user users[] = {
	{ "a user of neither group", 4646, 4700, false, false },
	{ "a reader", 4646, 4701, true, false },
	{ "a reader by its own group", 4701, 0, true, false },
	{ "an admin", 4646, 4702, true, true },
	{ "an admin by its own group", 4702, 0, true, true },
};

#define MUST(cond)							\
do {									\
	if (!(cond)) {							\
		fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__,	\
			u->what, #cond);				\
		_exit(1);						\
	}								\
} while (0)

/* Ask the view socket.  Return: its status; @words: the answer must have them. */
static int ask(const struct user *u, int dir, const char *req, const char *words)
{
	struct seq_file text;
	int status = -1;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d/view.sock", dir);
	seq_init(&text, 1 << 20);
	MUST(!kv_view_ask(path, req, ASK_MS, &status, &text));
	if (!strstr(seq_text(&text), words)) {
		fprintf(stderr, "%s: '%s': %s\n", u->what, req, seq_text(&text));
		_exit(1);
	}
	seq_free(&text);
	return status;
}

static void view(const struct user *u, int dir)
{
	char words[RIG_PATH + 128];

	if (!u->reads) {
		snprintf(words, sizeof(words), "a daemon runs at %s; you may not ask it: join group "
			 READ_GROUP " (reading) or " ADMIN_GROUP " (changes)", rig.dir);
		MUST(ask(u, dir, "cat meminfo", words) == EACCES);
		MUST(ask(u, dir, "as 0 cat meminfo", words) == EACCES);
		return;
	}
	MUST(!ask(u, dir, "cat meminfo", "GpuTotal"));
	MUST(!ask(u, dir, "ls", "vmstat"));
	MUST(ask(u, dir, "as 0 set sys/vm/swappiness 1", "as: only kvmm-proc") == EPERM);
	if (u->changes) {
		MUST(!ask(u, dir, "check", "ok"));
		MUST(!ask(u, dir, "set sys/vm/swappiness 7", "is set to 7"));
	} else {
		MUST(ask(u, dir, "check", "check: root and") == EPERM);
		MUST(ask(u, dir, "set sys/vm/swappiness 7", "set: root and") == EPERM);
	}
}

static void admin(const struct user *u, int dir)
{
	struct kv_admin a = { .timeout_ms = ASK_MS, .fd = -1 };
	char path[64];
	int err;

	snprintf(path, sizeof(path), "/proc/self/fd/%d/admin.sock", dir);
	a.path = path;
	err = kv_admin_ask(&a, "tune 8 swappiness");
	if (u->changes)
		MUST(!err && !a.status);
	else
		MUST(err == -EACCES);
}

/* The same rights in the mounted files; nothing is written there. */
static void files(const struct user *u, int dir)
{
	char text[16] = "";
	int fd = openat(dir, "proc/meminfo", O_RDONLY);

	MUST((fd >= 0) == u->reads);
	if (fd >= 0) {
		MUST(read(fd, text, sizeof(text)) == sizeof(text));
		MUST(pread(fd, text, sizeof(text), 0) == sizeof(text));
		close(fd);
	}
	MUST(openat(dir, "proc/sys/vm/swappiness", O_WRONLY) < 0);
	fd = openat(dir, "proc/clients", O_RDONLY);
	MUST(fd >= 0);
	close(fd);
}

static void __attribute__((noreturn)) user_main(const struct user *u)
{
	const int dir = open(rig.dir, O_PATH | O_DIRECTORY);

	MUST(dir >= 0 && !setgroups(u->more ? 1 : 0, &u->more) && !setgid(u->gid) &&
	     !setuid(USER));
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_DUMPABLE, 1);
	view(u, dir);
	admin(u, dir);
	if (mounts)
		files(u, dir);
	_exit(0);
}

static u32 mode_of(const char *name, gid_t *gid)
{
	char path[RIG_PATH + 16];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", rig.dir, name);
	ck_assert_int_eq(stat(path, &st), 0);
	*gid = st.st_gid;
	return st.st_mode & 0777;
}

static void start(const char *read_group, const char *admin_group)
{
	rig_start(&rig, "--pool-size", "16M", "--extent-size", "1M", "--proc",
		  mounts ? "on" : "off", "--proc-user", "4545", "--read-group",
		  read_group, "--admin-group", admin_group, NULL);
	ck_assert_int_eq(chmod(rig.dir, 0755), 0);
	if (mounts)
		rig_await(&rig, "status", "Pid", 1, 20);
}

/* kvmm-proc mounts a moment after the daemon answers. */
static void await_mount(void)
{
	char path[RIG_PATH + 32];
	u32 i;

	snprintf(path, sizeof(path), "%s/proc/version", rig.dir);
	for (i = 0; mounts && access(path, R_OK) && i < 4000; i++)
		nap_ms(5);
}

START_TEST(test_users)
{
	int status;
	gid_t gid;
	pid_t pid;
	u32 i;

	start(READ_GROUP, ADMIN_GROUP);
	await_mount();
	ck_assert_uint_eq(mode_of("view.sock", &gid), 0666);
	ck_assert_uint_eq(mode_of("admin.sock", &gid), 0660);
	ck_assert_uint_eq(gid, 4702);
	fflush(stdout);
	for (i = 0; i < sizeof(users) / sizeof(*users); i++) {
		pid = fork();
		ck_assert_int_ge(pid, 0);
		if (!pid)
			user_main(&users[i]);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_msg(!status, "%s: see the lines above", users[i].what);
	}
	rig_walk(&rig);
	rig_stop(&rig);
}
END_TEST

/* kvctl as another user, by descriptors: its directory may be closed to that user. */
static void __attribute__((noreturn)) kvctl_main(int out, const char *const args[3])
{
	const struct user *u = &users[0];
	const int dir = open(rig.dir, O_PATH | O_DIRECTORY);
	const int program = open(build_path("kvctl"), O_RDONLY);
	char socket[64];
	char *argv[] = { (char *)"kvctl", (char *)"--socket", socket, (char *)args[0],
			 (char *)args[1], (char *)args[2], NULL };

	snprintf(socket, sizeof(socket), "/proc/self/fd/%d", dir);
	MUST(dir >= 0 && program >= 0 && dup2(out, STDERR_FILENO) >= 0);
	MUST(!setgroups(0, NULL) && !setgid(USER) && !setuid(USER));
	fexecve(program, argv, environ);
	_exit(127);
}

static void want_refused(const char *const args[3], const char *words)
{
	FILE *f = tmpfile();
	char said[512] = "";
	int status;
	pid_t pid;

	ck_assert_ptr_nonnull(f);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid)
		kvctl_main(fileno(f), args);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	rewind(f);
	ck_assert_ptr_nonnull(fgets(said, sizeof(said), f));
	fclose(f);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == EX_NOPERM, "%s", said);
	ck_assert_msg(strstr(said, words) != NULL, "%s", said);
}

/* kvctl says which groups there are, and has an exit code for it. */
START_TEST(test_kvctl)
{
	start(READ_GROUP, ADMIN_GROUP);
	want_refused((const char *const[3]){ "status" }, "you may not ask it: join group "
		     READ_GROUP " (reading) or " ADMIN_GROUP " (changes)");
	want_refused((const char *const[3]){ "set", "sys/vm/swappiness", "5" },
		     "you may not change it: join group " ADMIN_GROUP "\n");
	rig_stop(&rig);
}
END_TEST

/* Without a group both sockets are closed; a group that is not there is a line. */
START_TEST(test_no_groups)
{
	char path[RIG_PATH + 16], *log;
	gid_t gid;

	start("no-such-group-here", "none");
	snprintf(path, sizeof(path), "%s/job-0.err", rig.dir);
	log = slurp(path);
	ck_assert_msg(strstr(log, "warning: --read-group: there is no group no-such-group-here, and only root and the daemon's own user may read") != NULL, "%s", log);
	ck_assert_ptr_null(strstr(log, "--admin-group"));
	free(log);
	ck_assert_uint_eq(mode_of("admin.sock", &gid), 0600);
	ck_assert_uint_eq(mode_of("view.sock", &gid) & 0007, 0);
	rig_stop(&rig);
}
END_TEST

int main(void)
{
	const char *why = mount_hindrance();
	Suite *s = suite_create("groups");
	TCase *tc = tcase_create("groups");
	SRunner *sr;
	int failed;

	if (geteuid()) {
		printf("note: only root can be another user: groups are not tried\n");
		return EXIT_SUCCESS;
	}
	mounts = !why;
	if (why)
		printf("note: %s: members do not read the mounted files\n", why);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_users);
	tcase_add_test(tc, test_kvctl);
	tcase_add_test(tc, test_no_groups);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
