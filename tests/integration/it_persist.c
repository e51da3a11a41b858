// SPDX-License-Identifier: Apache-2.0
/*
 * it_persist.c - areas, limits and tunables that outlive a restart
 *
 * kvmm-hold is started with a file that has areas, domains and tunables, changed by an
 * operator, killed, saved, started again and told to reload.  budget: 30 s
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvmm/admin.h>
#include <kvmm/rundir.h>
#include <libkvmm.h>

#include "tests/integration/harness.h"

#define SIZES	"pool-size = 16M   # small\n"				\
		"extent-size = 1M\n"					\
		"min-token-bytes = 1024\n"				\
		"host-size = 8M\n"					\
		"proc = off\n"

static struct rig rig;
static char place[RIG_PATH];	/* of the file of options and the areas */

static void setup(void)
{
	const char *tmp = getenv("TMPDIR");

	/* The file has the size. */
	unsetenv("KVMM_HOST_SIZE");
	snprintf(place, sizeof(place), "%s/persist.XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(place));
}

static void teardown(void)
{
	char text[RIG_PATH + 32];

	snprintf(text, sizeof(text), "rm -rf '%s'", place);
	ck_assert_int_eq(system(text), 0);
}

/* ---- the file ---- */

/* A path in the place of this test; of the last four calls. */
static const char *at(const char *name)
{
	static char path[4][RIG_PATH + 32];
	static u32 turn;
	char *p = path[turn++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", place, name);
	return p;
}

/* Write the file of options; each @ stands for the place. */
static void conf(const char *text)
{
	FILE *f = fopen(at("kvmm.conf"), "w");

	ck_assert_ptr_nonnull(f);
	for (; *text; text++)
		if (*text == '@')
			fputs(place, f);
		else
			fputc(*text, f);
	ck_assert_int_eq(fclose(f), 0);
}

/* The file is @want, in which each @ stands for the place. */
static void conf_is(const char *want)
{
	char *is = slurp(at("kvmm.conf")), *saved;

	rename(at("kvmm.conf"), at("is"));
	conf(want);
	saved = slurp(at("kvmm.conf"));
	ck_assert_str_eq(is, saved);
	rename(at("is"), at("kvmm.conf"));
	free(is);
	free(saved);
}

static void start(void)
{
	rig_start(&rig, "--config", at("kvmm.conf"), NULL);
}

/* ---- kvctl ---- */

/*
 * Run kvctl with at most @bytes a file, without the right of root to write any file.
 * Return: its output and errors, to be freed.
 */
static char *kvctl_poor(int code, long bytes, const char *a, const char *b,
			const char *c)
{
	const struct rlimit files = { (rlim_t)bytes, (rlim_t)bytes };
	char *text;
	int status, fd;
	pid_t pid;

	pid = fork();
	if (!pid) {
		fd = open(at("says"), O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setenv("KVMM_RUNDIR", rig.dir, 1);
		dup2(fd, STDOUT_FILENO);
		dup2(fd, STDERR_FILENO);
		if (bytes && setrlimit(RLIMIT_FSIZE, &files))
			_exit(99);
		if (!geteuid() && prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE))
			_exit(99);
		execl(build_path("kvctl"), "kvctl", a, b, c, NULL);
		_exit(98);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	text = slurp(at("says"));
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == code,
		      "kvctl %s: %x: %s", a, (u32)status, text);
	return text;
}

static char *kvctl(int code, const char *a, const char *b, const char *c)
{
	return kvctl_poor(code, 0, a, b, c);
}

static void done(const char *a, const char *b, const char *c)
{
	free(kvctl(0, a, b, c));
}

static bool says(const char *file, const char *want)
{
	char *text = kvctl(0, "cat", file, NULL);
	bool there = strstr(text, want);

	free(text);
	return there;
}

static void await(const char *file, const char *want)
{
	const u64 end = now_ms() + 20000 * time_scale();

	while (!says(file, want)) {
		ck_assert_msg(now_ms() < end, "%s: no %s: %s", file, want,
			      kvctl(0, "cat", file, NULL));
		nap_ms(20);
	}
}

static void await_log(const char *want)
{
	const u64 end = now_ms() + 20000 * time_scale();
	char path[RIG_PATH + 32], *text;
	bool there;

	snprintf(path, sizeof(path), "%s/job-0.err", rig.dir);
	do {
		text = slurp(path);
		there = strstr(text, want);
		ck_assert_msg(there || now_ms() < end, "no %s in: %s", want, text);
		free(text);
		nap_ms(there ? 0 : 20);
	} while (!there);
}

/* Occurrences of a text in the log. */
static u32 log_count(const char *what)
{
	char path[RIG_PATH + 32], *text, *p;
	u32 nr = 0;

	snprintf(path, sizeof(path), "%s/job-0.err", rig.dir);
	text = slurp(path);
	for (p = text; (p = strstr(p, what)); p++)
		nr++;
	free(text);
	return nr;
}

static void limit_is(const char *file, const char *want)
{
	char path[128];

	snprintf(path, sizeof(path), "domain/%s", file);
	ck_assert_msg(says(path, want), "%s: %s", path, kvctl(0, "cat", path, NULL));
}

static void config_is(const char *want)
{
	char *text = kvctl(0, "cat", "config", NULL), *file;

	file = strchr(text, '\n');
	ck_assert_ptr_nonnull(file);
	ck_assert_str_eq(file + 1, want);
	free(text);
}

/* ---- a client ---- */

static struct kvmm *attach(const char *domain)
{
	static const u8 identity[KVMM_IDENTITY_LEN] = "it_persist";
	char path[RIG_PATH + 32], text[256];
	const struct kvmm_params p = {
		.socket = path, .domain = domain, .identity = identity,
		.block_tokens = 16,
		.group[0] = { .layers = 1, .kv_heads = 1, .k_bytes = 512,
			   .v_bytes = 512 },
		.max_bytes = KVMM_LIMIT_MAX, .attach_timeout_ms = 20000,
	};
	struct kvmm *k;

	snprintf(path, sizeof(path), "%s/attach.sock", rig.dir);
	if (kvmm_attach(&p, &k, text))
		ck_abort_msg("attach: %s", text);
	return k;
}

/* Make the domain; it stays when its client has gone. */
static void make_domain(const char *domain)
{
	kvmm_detach(attach(domain));
}

static void kill_kvmm(void)
{
	const pid_t pid = rig_daemon(&rig);

	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	await_log("started again");
	await("status", "adopted whole");
	ck_assert_int_ne(rig_daemon(&rig), pid);
}

static void hang_up(void)
{
	ck_assert_int_eq(kill(rig.hold, SIGHUP), 0);
}

/* ---- tests ---- */

/* The file counts at the start, and not again when kvmm dies. */
START_TEST(test_file)
{
	conf(SIZES
	     "area = @/one,size=4M,priority=3\n"
	     "area = @/no/such/folder,size=4M\n"
	     "area = @\n"
	     "domain = chat,min=2M,weight=200\n"
	     "domain = late,max=3M\n"
	     "domain = nobody-knows/it,max=3M\n"
	     "swappiness = 120\n");
	start();
	await("swaps", "/one");
	await_log("/no/such/folder: no such file");
	await_log(": is a directory: name a file or a block device. Mend this, then give kvctl swapon");
	await_log("domain = nobody-knows/it,max=3M: there is no tenant nobody-knows: add tenant");
	make_domain("chat");
	limit_is("chat/memory.min", "gpu0 2097152\n");
	limit_is("chat/memory.weight", "200\n");
	limit_is("chat/memory.max", "gpu0 max\n");
	ck_assert(says("sys/vm/swappiness", "120\n"));

	done("set", "domain/chat/memory.weight", "300");
	done("set", "sys/vm/swappiness", "50");
	done("swapon", at("two"), "--size=4M");
	done("swapoff", at("one"), NULL);
	kill_kvmm();
	await("swaps", "/two");
	limit_is("chat/memory.min", "gpu0 2097152\n");
	limit_is("chat/memory.weight", "300\n");
	ck_assert(says("sys/vm/swappiness", "50\n"));
	ck_assert(!says("swaps", "/one"));
	/* A domain that is made by the next kvmm gets its limits, too. */
	make_domain("late");
	limit_is("late/memory.max", "gpu0 3145728\n");
	make_domain("chat");
	limit_is("chat/memory.weight", "300\n");
	ck_assert_uint_eq(log_count("/one: swap area of"), 1);
	ck_assert_uint_eq(log_count("/no/such/folder: no such file"), 1);
	ck_assert_uint_eq(log_count("domain = chat,min=2M,weight=200: has these limits"), 1);
	rig_walk(&rig);
	rig_stop(&rig);
}
END_TEST

/* kvctl save, and a start with the file that it wrote. */
START_TEST(test_save)
{
	char want[1024], *text;
	struct stat st;

	conf("# mine\n"
	     SIZES
	     "swappiness = 120  # slow disk\n"
	     "\n"
	     "[swapd]\n"
	     "slow-ms = 500\n");
	ck_assert_int_eq(chmod(at("kvmm.conf"), 0640), 0);
	start();
	make_domain("chat");
	make_domain("other");
	done("set", "domain/chat/memory.min", "2M");
	done("set", "domain/chat/memory.high", "max");
	done("set", "sys/vm/swappiness", "60");
	done("set", "sys/vm/cache_floor", "9");
	done("swapon", at("one"), "--size=4M");
	snprintf(want, sizeof(want), "area = %s/one,size=4M\n"
		 "domain = chat,min=2M,high=max\nswappiness = 60\ncache-floor = 9\n",
		 place);
	config_is(want);

	text = kvctl(0, "save", NULL, NULL);
	ck_assert_ptr_nonnull(strstr(text, "- swappiness = 120\n+ swappiness = 60\n"));
	ck_assert_ptr_nonnull(strstr(text, "kvmm.conf: is written\n"));
	free(text);
	conf_is("# mine\n"
		SIZES
		"swappiness = 60  # slow disk\n"
		"area = @/one,size=4M\n"
		"domain = chat,min=2M,high=max\n"
		"cache-floor = 9\n"
		"\n"
		"[swapd]\n"
		"slow-ms = 500\n");
	ck_assert_int_eq(stat(at("kvmm.conf"), &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0640);
	text = kvctl(0, "save", NULL, NULL);
	ck_assert_ptr_nonnull(strstr(text, "kvmm.conf: says all of this already\n"));
	free(text);
	/* A reload finds that all of it runs. */
	text = kvctl(1, "swapon", at("one"), NULL);
	ck_assert_ptr_nonnull(strstr(text, "/one: it is area 0 already: see kvctl cat swaps"));
	free(text);
	hang_up();
	await_log("domain = chat,min=2M,high=max: has these limits");
	config_is(want);
	ck_assert_uint_eq(log_count("is not in use"), 0);
	rig_stop(&rig);

	start();
	await("swaps", "/one");
	ck_assert(says("sys/vm/swappiness", "60\n"));
	ck_assert(says("sys/vm/cache_floor", "9\n"));
	make_domain("chat");
	limit_is("chat/memory.min", "gpu0 2097152\n");
	config_is(want);
	rig_stop(&rig);
}
END_TEST

/* A file that may not be written, or cannot be, stays as it is, and alone. */
START_TEST(test_save_fails)
{
	char *text;

	conf(SIZES);
	ck_assert_int_eq(chmod(at("kvmm.conf"), 0444), 0);
	start();
	done("set", "sys/vm/swappiness", "60");
	text = kvctl(77, "save", NULL, NULL);
	ck_assert_ptr_nonnull(strstr(text, "kvmm.conf: cannot be written: Permission denied: nothing is changed\n"));
	ck_assert_ptr_nonnull(strstr(text, "kvctl save --print shows the text"));
	free(text);
	text = kvctl(0, "save", "--print", NULL);
	ck_assert_ptr_nonnull(strstr(text, "swappiness = 60\n"));
	free(text);

	ck_assert_int_eq(chmod(at("kvmm.conf"), 0644), 0);
	ck_assert_int_eq(chmod(place, 0500), 0);
	ck_assert_int_eq(close(open(at("says"), O_RDWR | O_CREAT, 0600)), 0);
	text = kvctl(77, "save", NULL, NULL);
	ck_assert_ptr_nonnull(strstr(text, "no file can be made beside it: Permission denied"));
	free(text);
	ck_assert_int_eq(chmod(place, 0700), 0);

	/* As on a full disk: the text does not fit. */
	text = kvctl_poor(1, 40, "save", NULL, NULL);
	free(text);
	conf_is(SIZES);
	text = kvctl(0, "save", NULL, NULL);
	free(text);
	conf_is(SIZES "swappiness = 60\n");
	rig_stop(&rig);
	ck_assert_int_eq(unlink(at("kvmm.conf")), 0);
	ck_assert_int_eq(unlink(at("says")), 0);
	/* No other file was left. */
	ck_assert_int_eq(rmdir(place), 0);
	ck_assert_int_eq(mkdir(place, 0700), 0);
}
END_TEST

/* Root writes no file for a daemon whose directory or socket another user has. */
START_TEST(test_save_for_whom)
{
	static const char want[] = "save trusts no daemon";
	char sock[RIG_PATH + 32];
	char *text;

	if (geteuid()) {
		printf("  note: only root gives a directory away\n");
		return;
	}
	conf(SIZES);
	start();
	done("set", "sys/vm/swappiness", "60");
	ck_assert_int_eq(chown(rig.dir, 65534, 65534), 0);
	text = kvctl(77, "save", NULL, NULL);
	ck_assert_msg(strstr(text, want), "%s", text);
	free(text);
	ck_assert_int_eq(chown(rig.dir, 0, 0), 0);
	ck_assert_int_eq(chmod(rig.dir, 01777), 0);
	snprintf(sock, sizeof(sock), "%s/view.sock", rig.dir);
	ck_assert_int_eq(chown(sock, 65534, 65534), 0);
	text = kvctl(77, "save", "--print", NULL);
	ck_assert_msg(strstr(text, want), "%s", text);
	free(text);
	ck_assert_int_eq(chown(sock, 0, 0), 0);
	ck_assert_int_eq(chmod(rig.dir, 0755), 0);

	/* Nor a file that another user could replace. */
	ck_assert_int_eq(chown(at("kvmm.conf"), 65534, 65534), 0);
	text = kvctl(77, "save", NULL, NULL);
	ck_assert_msg(strstr(text, want), "%s", text);
	free(text);
	ck_assert_int_eq(chown(at("kvmm.conf"), 0, 0), 0);
	conf_is(SIZES);
	done("save", NULL, NULL);
	conf_is(SIZES "swappiness = 60\n");
	rig_stop(&rig);
}
END_TEST

/*
 * The daemon calls an area by the kernel's name of its file, not by the word of the
 * operator: with the saved word root would open another file at the next start.
 */
START_TEST(test_word_for_a_file)
{
	struct kv_admin admin = { .timeout_ms = 20000 };
	char sock[RIG_PATH + 32];

	conf(SIZES);
	start();
	snprintf(sock, sizeof(sock), "%s/%s", rig.dir, KV_ADMIN_SOCKET);
	admin.path = sock;
	admin.fd = open(at("a"), O_RDWR | O_CREAT, 0600);
	ck_assert_int_ge(admin.fd, 0);
	ck_assert_int_eq(kv_admin_ask(&admin, "swapon 4194304 0 0 /etc/nologin"), 0);
	ck_assert_msg(!admin.status, "%s", admin.text);
	close(admin.fd);
	ck_assert(says("swaps", "/a "));
	ck_assert(!says("config", "nologin"));
	rig_stop(&rig);
}
END_TEST

/* Root opens no area at a start that another user could replace. */
START_TEST(test_area_of_another_user)
{
	if (geteuid()) {
		printf("  note: only root gives a directory away\n");
		return;
	}
	ck_assert_int_eq(mkdir(at("theirs"), 0755), 0);
	ck_assert_int_eq(chown(at("theirs"), 65534, 65534), 0);
	conf(SIZES "area = @/theirs/a,size=4M\n");
	start();
	await_log("theirs belongs to another user");
	ck_assert_int_eq(access(at("theirs/a"), F_OK), -1);
	rig_stop(&rig);

	/* Nor one that another user made, where all users may make files. */
	ck_assert_int_eq(mkdir(at("shared"), 0700), 0);
	ck_assert_int_eq(chmod(at("shared"), 01777), 0);
	ck_assert_int_eq(close(open(at("shared/a"), O_RDWR | O_CREAT, 0600)), 0);
	ck_assert_int_eq(chown(at("shared/a"), 65534, 65534), 0);
	conf(SIZES "area = @/shared/a,size=4M\n");
	start();
	await_log("shared/a belongs to another user");
	rig_stop(&rig);
}
END_TEST

/* Root makes no file that a daemon alone names, and follows no link that leads nowhere. */
START_TEST(test_save_makes_no_file)
{
	char *text;

	if (geteuid()) {
		printf("  note: a user may make his own files\n");
		return;
	}
	conf(SIZES);
	start();
	done("set", "sys/vm/swappiness", "60");
	ck_assert_int_eq(unlink(at("kvmm.conf")), 0);
	text = kvctl(66, "save", NULL, NULL);
	ck_assert_ptr_nonnull(strstr(text, "is not there: make it as an empty file"));
	free(text);
	ck_assert_int_eq(access(at("kvmm.conf"), F_OK), -1);
	ck_assert_int_eq(symlink(at("nowhere"), at("kvmm.conf")), 0);
	text = kvctl(66, "save", NULL, NULL);
	ck_assert_ptr_nonnull(strstr(text, "is not there"));
	free(text);
	ck_assert_int_eq(access(at("nowhere"), F_OK), -1);
	rig_stop(&rig);
}
END_TEST

/* SIGHUP: keys that can change do, of the others each is a line. */
START_TEST(test_reload)
{
	conf(SIZES
	     "area = @/one,size=4M\n"
	     "domain = chat,min=2M,weight=200\n"
	     "swappiness = 120\n");
	start();
	await("swaps", "/one");
	make_domain("chat");
	done("set", "domain/chat/memory.min", "1M");
	done("set", "sys/vm/cache_floor", "9");

	conf(SIZES
	     "spin = 7\n"
	     "tenant = blue\n"
	     "area = @/two,size=4M\n"
	     "domain = chat,min=2M,weight=300\n"
	     "domain = late,max=3M\n"
	     "log-level = debug\n"
	     "swappiness = 130\n");
	hang_up();
	await_log("spin = 7: takes a restart: 200 stays");
	await_log("tenant: has changed, which takes a restart: the old lines stay");
	await_log("/one,size=4M: the line is gone");
	await("swaps", "/two");
	await("sys/vm/swappiness", "130\n");
	await("status", "LogLevel:\tdebug\n");
	await("domain/chat/memory.weight", "300\n");
	ck_assert(says("swaps", "/one"));
	/* These lines have not changed, so the operator's values stay. */
	limit_is("chat/memory.min", "gpu0 1048576\n");
	ck_assert(says("sys/vm/cache_floor", "9\n"));
	make_domain("late");
	limit_is("late/memory.max", "gpu0 3145728\n");
	kill_kvmm();
	ck_assert(says("sys/vm/swappiness", "130\n"));
	await("swaps", "/two");
	rig_stop(&rig);
}
END_TEST

/* A file with a mistake changes nothing, and SIGHUP never ends the service. */
START_TEST(test_reload_broken)
{
	pid_t kvmm;

	conf(SIZES "swappiness = 120\n");
	start();
	kvmm = rig_daemon(&rig);
	conf(SIZES "swappiness = 130\nswapiness = 3\n");
	hang_up();
	await_log("kvmm.conf:7: 'swapiness' is not a key of [kvmm]: did you mean swappiness?: nothing is changed");
	ck_assert(says("sys/vm/swappiness", "120\n"));
	ck_assert_int_eq(unlink(at("kvmm.conf")), 0);
	hang_up();
	await_log("kvmm.conf: cannot be read: No such file or directory: nothing is changed");
	ck_assert_int_eq(kill(kvmm, SIGHUP), 0);
	await_log("SIGHUP: nothing is read: send it to kvmm-hold");
	conf(SIZES "swappiness = 130\n");
	hang_up();
	await("sys/vm/swappiness", "130\n");
	ck_assert_int_eq(rig_daemon(&rig), kvmm);
	rig_stop(&rig);
}
END_TEST

/* A kvmm that begins anew has the options of the last reload, not of the start. */
START_TEST(test_reload_cold)
{
	conf(SIZES "adopt = off\nswappiness = 120\narea = @/one,size=4M\n");
	start();
	await("swaps", "/one");
	conf(SIZES "adopt = off\nswappiness = 130\narea = @/one,size=4M\n"
	     "domain = chat,min=2M\n");
	hang_up();
	await("sys/vm/swappiness", "130\n");
	ck_assert_int_eq(kill(rig_daemon(&rig), SIGKILL), 0);
	await_log("started again");
	await("swaps", "/one");
	ck_assert(says("sys/vm/swappiness", "130\n"));
	make_domain("chat");
	limit_is("chat/memory.min", "gpu0 2097152\n");
	rig_stop(&rig);
}
END_TEST

/* Without host-size there is a small host pool, so an area needs no restart. */
START_TEST(test_default_pool)
{
	char *text;

	conf("pool-size = 32M\nextent-size = 1M\nmin-token-bytes = 1024\nproc = off\n");
	start();
	await_log("--host-size is not given, and comes to 2M");
	ck_assert_int_eq(rig_value(&rig, "meminfo", "HostTotal"), 2048);
	done("swapon", at("one"), "--size=4M");
	kill_kvmm();
	ck_assert_int_eq(rig_value(&rig, "meminfo", "HostTotal"), 2048);
	await("swaps", "/one");
	rig_stop(&rig);

	rig_start(&rig, "--config", at("kvmm.conf"), "--host-size", "0", NULL);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "HostTotal"), 0);
	text = kvctl(1, "swapon", at("two"), "--size=4M");
	ck_assert_ptr_nonnull(strstr(text, "without a host pool"));
	free(text);
	rig_stop(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("persist");
	TCase *tc = tcase_create("persist");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60 * time_scale());
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_file);
	tcase_add_test(tc, test_save);
	tcase_add_test(tc, test_save_fails);
	tcase_add_test(tc, test_save_for_whom);
	tcase_add_test(tc, test_save_makes_no_file);
	tcase_add_test(tc, test_word_for_a_file);
	tcase_add_test(tc, test_area_of_another_user);
	tcase_add_test(tc, test_reload);
	tcase_add_test(tc, test_reload_broken);
	tcase_add_test(tc, test_reload_cold);
	tcase_add_test(tc, test_default_pool);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
