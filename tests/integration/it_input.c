// SPDX-License-Identifier: Apache-2.0
/*
 * it_input.c - bad input to the programs: one clear line, a proper code
 *
 * budget: 40 s
 *
 * Each case is a mistake of a new user.  The answer must be one line on stderr
 * that names the thing and the remedy, with the documented exit code.  Nothing
 * may be left behind: no socket, no process, no half file, no block in use.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/harness.h"

static struct rig rig;
static char model[RIG_PATH + 16];	/* a copy to be damaged */

static void shell(const char *fmt, ...) __printf(1, 2);

static void shell(const char *fmt, ...)
{
	char cmd[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	ck_assert_msg(!system(cmd), "%s", cmd);
}

static void model_copy(void)
{
	snprintf(model, sizeof(model), "%s/model", rig.dir);
	shell("rm -rf '%s' && cp -r '%s' '%s'", model, demo_model(), model);
}

/* @j ended with @code and printed one line that has both words. */
static void expect_line(struct job *j, int code, const char *thing,
			const char *remedy)
{
	int have = job_wait(j, 30);
	char *err = slurp(j->err);

	ck_assert_msg(have == code, "ended with %d, not %d:\n%s", have, code,
		      err);
	ck_assert_msg(count_lines(err) == 1, "not one line:\n%s", err);
	ck_assert_msg(strstr(err, thing), "does not name '%s':\n%s", thing,
		      err);
	ck_assert_msg(strstr(err, remedy), "does not say '%s':\n%s", remedy,
		      err);
	free(err);
	unlink(j->out);
	unlink(j->err);
}

static struct job run_model(const char *prompt, const char *tokens)
{
	return job_start(&rig, KVRT_GENERATE, model, "--quiet",
			 "--max-tokens", tokens, prompt, NULL);
}

/* The daemon holds no memory for clients that failed. */
static void expect_idle(void)
{
	rig_walk(&rig);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "Open"), 0);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "Sealed"), 0);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "Committed"), 0);
}

static const struct {
	const char *file, *damage, *thing, *remedy;
	int code;
} damages[] = {
	{ "model.safetensors", "rm '%s'", "model.safetensors", "name a folder", 66 },
	{ "config.json", "rm '%s'", "config.json", "name a model folder", 66 },
	{ "tokenizer.json", "rm '%s'", "tokenizer.json", "name a model folder", 66 },
	{ "model.safetensors", "truncate -s 1000000 '%s'",
	  "model.safetensors", "copy", 65 },
	{ "model.safetensors",
	  "printf '\\377\\377\\377\\377\\377' | dd of='%s' conv=notrunc status=none",
	  "model.safetensors", "copy", 65 },
	{ "model.safetensors", "sed -i 's/\"BF16\"/\"ZZ16\"/' '%s'",
	  "ZZ16", "", 65 },
	{ "config.json", "sed -i s/LlamaForCausalLM/NoSuchModel/ '%s'",
	  "NoSuchModel", "", 65 },
	{ "config.json", "sed -i 's/\"hidden_size\": 256/\"hidden_size\": 320/' '%s'",
	  "", "", 65 },
	{ "config.json", "truncate -s 100 '%s'", "config.json", "", 65 },
};

START_TEST(test_model_folder)
{
	char path[RIG_PATH + 64];
	struct job j;

	rig_start(&rig, "--pool-size", "8M", "--extent-size", "256K", NULL);
	model_copy();
	snprintf(path, sizeof(path), "%s/%s", model, damages[_i].file);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	shell(damages[_i].damage, path);
#pragma GCC diagnostic pop
	j = run_model("Hello", "8");
	expect_line(&j, damages[_i].code, damages[_i].thing,
		    damages[_i].remedy);
	expect_idle();
	rig_stop(&rig);
}
END_TEST

START_TEST(test_no_daemon)
{
	struct job j;

	rig_start(&rig, "--pool-size", "8M", "--extent-size", "256K", NULL);
	model_copy();
	j = job_start(&rig, KVRT_GENERATE, model, "--quiet", "--socket",
		      "/nowhere/attach.sock", "Hello", NULL);
	expect_line(&j, 69, "/nowhere/attach.sock", "kvmm-hold");
	j = job_start(&rig, "kvctl", "--socket", "/nowhere", "cat", "meminfo",
		      NULL);
	expect_line(&j, 69, "/nowhere", "kvmm-hold");
	rig_stop(&rig);
}
END_TEST

/* Each program finds the daemon by the run directory, and by any socket in it. */
START_TEST(test_socket_or_directory)
{
	char socket[RIG_PATH + 16];
	struct job j;

	rig_start(&rig, "--pool-size", "8M", "--extent-size", "256K", NULL);
	model_copy();
	snprintf(socket, sizeof(socket), "%s/view.sock", rig.dir);
	j = job_start(&rig, "kvrt", "generate", model, "--quiet", "--max-tokens", "2",
		      "--socket", rig.dir, "Hello", NULL);
	ck_assert_int_eq(job_wait(&j, 30), 0);
	j = job_start(&rig, "kvrt", "generate", model, "--quiet", "--max-tokens", "2",
		      "--socket", socket, "Hello", NULL);
	ck_assert_int_eq(job_wait(&j, 30), 0);
	snprintf(socket, sizeof(socket), "%s/attach.sock", rig.dir);
	j = job_start(&rig, "kvctl", "--socket", socket, "cat", "meminfo", NULL);
	ck_assert_int_eq(job_wait(&j, 30), 0);
	j = job_start(&rig, "kvtop", "--socket", socket, "--once", NULL);
	ck_assert_int_eq(job_wait(&j, 30), 0);
	j = job_start(&rig, "kvmm", "--socket", rig.dir, "--pool-size", "8M",
		      "--extent-size", "256K", NULL);
	expect_line(&j, 69, socket, "another daemon");
	rig_stop(&rig);
}
END_TEST

/* The first daemon keeps its sockets and serves on. */
START_TEST(test_second_daemon)
{
	struct job j;

	rig_start(&rig, "--pool-size", "8M", "--extent-size", "256K", NULL);
	j = job_start(&rig, "kvmm-hold", "--pool-size", "8M", "--extent-size",
		      "256K", NULL);
	expect_line(&j, 69, rig.dir, "");
	j = job_start(&rig, "kvmm", "--pool-size", "8M", "--extent-size",
		      "256K", NULL);
	expect_line(&j, 69, rig.dir, "");
	model_copy();
	j = run_model("Hello", "8");
	ck_assert_int_eq(job_wait(&j, 30), 0);
	expect_idle();
	rig_stop(&rig);
}
END_TEST

static u32 count_sockets(const char *dir)
{
	DIR *d = opendir(dir);
	char path[RIG_PATH + 300];
	struct dirent *e;
	struct stat st;
	u32 n = 0;

	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		n += !lstat(path, &st) && S_ISSOCK(st.st_mode);
	}
	closedir(d);
	return n;
}

START_TEST(test_pool_too_large)
{
	struct job j;

	memset(&rig, 0, sizeof(rig));
	snprintf(rig.dir, sizeof(rig.dir), "%s/rig.XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(rig.dir));
	j = job_start(&rig, "kvmm-hold", "--log-level", "err", "--pool-size",
		      "200G", "--extent-size", "64M", NULL);
	expect_line(&j, 78, "a pool of 200G and ",
		    "--pool-size, or a larger --min-token-bytes (now 1024)\n");
	j = job_start(&rig, "kvmm-hold", "--log-level", "err", "--pool-size",
		      "200G", "--extent-size", "64M", "--host-size", "400G",
		      "--min-token-bytes", "4096", NULL);
	expect_line(&j, 78, " of records for them do not fit the ",
		    "--area-max, or a larger --min-token-bytes (now 4096)\n");
	ck_assert_uint_eq(count_sockets(rig.dir), 0);
	shell("rm -rf '%s'", rig.dir);
}
END_TEST

/*
 * The kernel ends a process at this limit unless it ignores the signal.  The
 * first large file is that of the tables, if a next daemon may adopt them, else
 * the host pool.
 */
START_TEST(test_file_limit)
{
	const char *adopt = _i ? "on" : "off";
	struct rlimit was, low;
	struct job j;

	memset(&rig, 0, sizeof(rig));
	snprintf(rig.dir, sizeof(rig.dir), "%s/rig.XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(rig.dir));
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &was), 0);
	low = was;
	low.rlim_cur = 4u << 20;
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &low), 0);
	j = job_start(&rig, "kvmm-hold", "--log-level", "err", "--pool-size",
		      "4M", "--extent-size", "256K", "--host-size", "8M",
		      "--adopt", adopt, NULL);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &was), 0);
	expect_line(&j, 71, _i ? "tables" : "host pool: 8M", "ulimit -f");
	ck_assert_uint_eq(count_sockets(rig.dir), 0);
	shell("rm -rf '%s'", rig.dir);
}
END_TEST

/* Make the next job's stderr a full pipe.  Return: a descriptor for both ends. */
static int full_stderr(void)
{
	char path[RIG_PATH + 32], fill[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/job-%u.err", rig.dir, rig.nr_jobs);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	memset(fill, 'x', sizeof(fill));
	while (write(fd, fill, sizeof(fill)) > 0)
		;
	return fd;
}

/*
 * The log is not read, as on a paused terminal: the daemon serves, starts swapd
 * again, and ends.
 */
START_TEST(test_log_not_read)
{
	struct job j;
	pid_t first;
	int fd, i;

	memset(&rig, 0, sizeof(rig));
	snprintf(rig.dir, sizeof(rig.dir), "%s/rig.XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(rig.dir));
	fd = full_stderr();
	j = job_start(&rig, "kvmm-hold", "--pool-size", "4M", "--extent-size",
		      "256K", "--host-size", "4M", "--area-max", "16M", NULL);
	rig.hold = j.pid;
	j = job_start(&rig, "kvctl", "wait", "--timeout", "20", NULL);
	ck_assert_int_eq(job_wait(&j, 30), 0);
	j = job_start(&rig, KVRT_GENERATE, demo_model(), "--quiet",
		      "--max-tokens", "4", "In the beginning", NULL);
	ck_assert_int_eq(job_wait(&j, 30), 0);
	first = rig_swapd(&rig);
	ck_assert_int_gt(first, 0);
	ck_assert_int_eq(kill(first, SIGKILL), 0);
	for (i = 0; i < 100; i++) {
		const pid_t pid = rig_swapd(&rig);

		if (pid && pid != first)
			break;
		usleep(100000);
	}
	ck_assert_msg(i < 100, "swapd is not started again");
	rig_stop(&rig);
	close(fd);
}
END_TEST

START_TEST(test_never_fits)
{
	char *text = calloc(1, 8001);
	struct job j;
	u32 i;

	ck_assert_ptr_nonnull(text);
	for (i = 0; i < 8000; i += 8)
		memcpy(text + i, "zebra q ", 8);
	/* 16 blocks of 16 tokens */
	rig_start(&rig, "--pool-size", "1M", "--extent-size", "256K", NULL);
	model_copy();
	j = run_model(text, "8");	/* longer than the context */
	expect_line(&j, 65, "1024", "");
	j = run_model("Hello", "900");	/* more blocks than the pool has */
	expect_line(&j, 65, "", "pool");
	expect_idle();
	rig_stop(&rig);
	free(text);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("input");
	TCase *tc = tcase_create("first-evening");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_model_folder, 0,
			    (int)ARRAY_SIZE(damages));
	tcase_add_test(tc, test_socket_or_directory);
	tcase_add_test(tc, test_no_daemon);
	tcase_add_test(tc, test_second_daemon);
	tcase_add_test(tc, test_pool_too_large);
	tcase_add_loop_test(tc, test_file_limit, 0, 2);
	tcase_add_test(tc, test_log_not_read);
	tcase_add_test(tc, test_never_fits);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
