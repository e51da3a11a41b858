// SPDX-License-Identifier: Apache-2.0
/*
 * it_run.c - kvrt run: one command to the first word
 *
 * Orphans become children of the test, so a process that is left shows.  The
 * temporary folder of the test shows a folder that is left.
 *
 * budget: 60 s, full 120 s
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/serve.h"
#include "tests/integration/terminal.h"

static struct terminal term = { .fd = -1 };
static char tmp[RIG_PATH];
static char said[RIG_PATH + 16];	/* file for output */
static char erred[RIG_PATH + 16];	/* file for messages */

static void setup(void)
{
	snprintf(tmp, sizeof(tmp), "%s/run.XXXXXX", getenv("TMPDIR"));
	ck_assert_ptr_nonnull(mkdtemp(tmp));
	ck_assert(!setenv("TMPDIR", tmp, 1) && !setenv("XDG_RUNTIME_DIR", tmp, 1));
	snprintf(said, sizeof(said), "%s/out", tmp);
	snprintf(erred, sizeof(erred), "%s/err", tmp);
	ck_assert(!prctl(PR_SET_CHILD_SUBREAPER, 1));
	setenv("KVMM_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
}

static void teardown(void)
{
	char cmd[RIG_PATH + 16];

	terminal_stop(&term);
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", tmp);
	ck_assert_int_eq(system(cmd), 0);
}

/* Number of folders of kvrt run. */
static u32 nests(void)
{
	DIR *d = opendir(tmp);
	struct dirent *e;
	u32 n = 0;

	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d)))
		n += !strncmp(e->d_name, "kvrt-run.", 9);
	closedir(d);
	return n;
}

/* Nothing may be left by a command that ended by itself. */
static void expect_nothing_left(void)
{
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	ck_assert_uint_eq(nests(), 0);
}

/* Nor, after a while, by one that was killed. */
static void await_nothing_left(void)
{
	const u64 end = now_ms() + 20000 * time_scale();

	while (waitpid(-1, NULL, WNOHANG) >= 0) {
		ck_assert_msg(now_ms() < end, "a process is left");
		nap_ms(10);
	}
	ck_assert_uint_eq(nests(), 0);
}

/* Run a shell command; $KVRT and $MODEL are the program and the demo model. */
static int shell(const char *command)
{
	char cmd[1024];
	int status;

	ck_assert(!setenv("KVRT", build_path("kvrt"), 1) &&
		  !setenv("MODEL", demo_model(), 1));
	snprintf(cmd, sizeof(cmd), "exec >$TMPDIR/out 2>$TMPDIR/err; %s",
		 command);
	status = system(cmd);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void expect_text(const char *path, const char *has, const char *lacks)
{
	char *text = slurp(path);

	ck_assert_msg(!has || strstr(text, has), "no '%s' in:\n%s", has, text);
	ck_assert_msg(!lacks || !strstr(text, lacks), "'%s' in:\n%s", lacks,
		      text);
	free(text);
}

/* A private daemon answers once: the text on stdout, nothing else there. */
START_TEST(test_once)
{
	char *a, *b;

	ck_assert_int_eq(shell("$KVRT run $MODEL 'In the beginning' --temperature 0 --max-tokens 8"), 0);
	expect_nothing_left();
	expect_text(erred, "starting a daemon", NULL);
	expect_text(erred, "8 tokens", NULL);
	a = slurp(said);
	ck_assert_uint_gt(strlen(a), 1);
	/* Standard input that is no terminal is the prompt. */
	ck_assert_int_eq(shell("printf 'In the beginning\\n' | $KVRT run $MODEL --quiet --temperature 0 --max-tokens 8"), 0);
	expect_nothing_left();
	b = slurp(said);
	ck_assert_str_eq(a, b);
	free(a);
	free(b);
	b = slurp(erred);
	ck_assert_str_eq(b, "");
	free(b);
}
END_TEST

/* With a GPU, the private daemon has its pool there: a stand-in is the driver. */
START_TEST(test_gpu)
{
	setenv("KVMM_LIBCUDA", build_path("tests/standin/libcuda.so.1"), 1);
	ck_assert_int_eq(shell("$KVRT run $MODEL Hello --max-tokens 2"), 0);
	expect_text(erred, "2 tokens", NULL);
	expect_nothing_left();
	/* It is not taken if the user does not want it. */
	ck_assert_int_eq(shell("$KVRT run $MODEL Hello --max-tokens 2 --backend host"), 0);
	setenv("KVMM_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
	ck_assert_int_eq(shell("$KVRT run $MODEL Hello --max-tokens 2 --backend cuda"), 69);
	expect_text(erred, "--backend host", NULL);
	expect_nothing_left();
}
END_TEST

/* A daemon that is there is used, and stays. */
START_TEST(test_beside)
{
	struct rig rig;

	rig_start(&rig, "--pool-size", "64M", "--extent-size", "1M", NULL);
	setenv("KVMM_RUNDIR", rig.dir, 1);
	ck_assert_int_eq(shell("$KVRT run $MODEL Hello --max-tokens 4"), 0);
	expect_text(erred, "loading the model", "starting a daemon");
	ck_assert_uint_eq(nests(), 0);
	ck_assert_int_gt(rig_daemon(&rig), 0);
	/* Its prefix cache has the prompt of the first run. */
	ck_assert_int_eq(shell("$KVRT run $MODEL 'A long prompt, which fills a block of the cache and then some more' --max-tokens 4; $KVRT run $MODEL 'A long prompt, which fills a block of the cache and then some more' --max-tokens 4"), 0);
	expect_text(erred, "cached 16 of ", NULL);
	unsetenv("KVMM_RUNDIR");
	rig_stop(&rig);
}
END_TEST

/* The socket that was named must answer: no private daemon takes its place. */
START_TEST(test_no_daemon_there)
{
	ck_assert_int_eq(shell("$KVRT run --socket $TMPDIR/none.sock $MODEL Hello"), 69);
	expect_text(erred, "none.sock", "starting a daemon");
	expect_nothing_left();
}
END_TEST

/* A message of the server is shown, and its exit code is the command's. */
START_TEST(test_failure)
{
	ck_assert_int_eq(shell("$KVRT run --dtype f77 $MODEL Hello"), 64);
	expect_text(erred, "dtype", NULL);
	expect_nothing_left();
	ck_assert_int_eq(shell("$KVRT run $TMPDIR Hello"), 66);
	expect_text(erred, "config.json", "starting a daemon");
	expect_nothing_left();
	/* The daemon refuses its options. */
	ck_assert_int_eq(shell("$KVRT run --pool-size 900T $MODEL Hello"), 69);
	expect_text(erred, "pool", NULL);
	expect_text(erred, "none could be started", NULL);
	expect_nothing_left();
}
END_TEST

/* A daemon that was there refuses the model: one line has the reason. */
START_TEST(test_refused)
{
	struct rig rig;
	char *text, *at;

	rig_start(&rig, "--pool-size", "64M", "--extent-size", "1M",
		  "--min-token-bytes", "8192", NULL);
	setenv("KVMM_RUNDIR", rig.dir, 1);
	ck_assert_int_eq(shell("$KVRT run $MODEL Hello"), 69);
	unsetenv("KVMM_RUNDIR");
	text = slurp(erred);
	at = strstr(text, "start the daemon with --min-token-bytes 2048 or less");
	ck_assert_msg(at && !strstr(at + 1, "start the daemon with"), "%s", text);
	free(text);
	rig_stop(&rig);
	ck_assert_uint_eq(nests(), 0);
}
END_TEST

/* A model of the Hugging Face cache, by its name. */
START_TEST(test_hub)
{
	setenv("HF_HUB_CACHE", tmp, 1);
	ck_assert_int_eq(shell("d=$TMPDIR/models--lab--demo-1.5 && mkdir -p $d/refs $d/snapshots && printf 0123abc >$d/refs/main && ln -s $MODEL $d/snapshots/0123abc"), 0);
	ck_assert_int_eq(shell("$KVRT run hf:lab/demo-1.5 Hello --max-tokens 4"), 0);
	ck_assert_int_eq(shell("echo Hello | $KVRT chat lab/demo-1.5 --max-tokens 4"), 0);
	expect_text(erred, "4 tokens", NULL);
	ck_assert_int_eq(shell("$KVRT inspect lab/demo-1.5"), 0);
	expect_text(said, "snapshots/0123abc", NULL);
	ck_assert_int_eq(shell("$KVRT run lab/other Hello"), 66);
	expect_text(erred, "hf download lab/other", NULL);
	expect_nothing_left();
}
END_TEST

static void start_talk(const char *command, const char *model)
{
	char *const argv[] = {
		(char *)"kvrt", (char *)(uintptr_t)command,
		(char *)(uintptr_t)model, (char *)"--max-tokens", (char *)"6",
		NULL
	};

	terminal_start(&term, "kvrt", argv);
}

/* On a terminal it is a chat; `kvrt chat MODEL` is the same. */
START_TEST(test_talk)
{
	static const char * const commands[] = { "run", "chat" };

	start_talk(commands[_i], demo_model());
	terminal_see(&term, "starting a daemon");
	terminal_see(&term, "loading the model");
	terminal_see(&term, "demo-model at unix:");
	terminal_see(&term, "> ");
	terminal_type(&term, "Hello\r");
	terminal_see(&term, "6 tokens, ");
	terminal_see(&term, "> ");
	ck_assert_uint_eq(nests(), 1);
	terminal_type(&term, "\004");
	terminal_ended(&term, 0);
	expect_nothing_left();
}
END_TEST

/* The end of the command by a signal, with all started. */
START_TEST(test_killed)
{
	static const int signals[] = { SIGKILL, SIGTERM, SIGHUP };
	int status;

	start_talk("run", demo_model());
	terminal_see(&term, "> ");
	kill(term.pid, signals[_i]);
	status = terminal_wait(&term);
	ck_assert_int_eq(WTERMSIG(status), signals[_i]);
	if (signals[_i] == SIGKILL)
		await_nothing_left();
	else
		expect_nothing_left();
}
END_TEST

/* Ctrl-C at any time of the start. */
START_TEST(test_interrupted)
{
	sigset_t set;
	u32 i;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	for (i = 0; i < 10; i++) {
		pid_t pid;
		int status;

		/* Until exec the child has libcheck's handler, which kills the test. */
		sigprocmask(SIG_BLOCK, &set, NULL);
		pid = fork();
		ck_assert_int_ge(pid, 0);
		if (!pid) {
			signal(SIGINT, SIG_DFL);
			sigprocmask(SIG_UNBLOCK, &set, NULL);
			execl(build_path("kvrt"), "kvrt", "run", "--quiet",
			      demo_model(), "Hello", NULL);
			_exit(127);
		}
		sigprocmask(SIG_UNBLOCK, &set, NULL);
		nap_ms(4 + 12 * i * time_scale());
		kill(pid, SIGINT);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert(WIFSIGNALED(status) ? WTERMSIG(status) == SIGINT :
			  !WEXITSTATUS(status));
		expect_nothing_left();
	}
}
END_TEST

/* The child number @nr of a process; 0: it has fewer. */
static pid_t child_of(pid_t pid, u32 nr)
{
	char path[64], *text, *p;
	pid_t child = 0;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
	text = slurp(path);
	for (p = text; nr != UINT32_MAX; nr--)
		child = (pid_t)strtol(p, &p, 10);
	free(text);
	return child;
}

/* pid of the keeper: the only child of the command. */
static pid_t keeper_of(pid_t pid)
{
	return child_of(pid, 0);
}

/* The daemon or the server of the talk dies: the next turn says so, and is the last. */
/* Wait until a process has ended, reaped or not. */
static void await_dead(pid_t pid)
{
	u64 end = now_ms() + 20000 * time_scale();
	char path[64], state = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	while (state != 'Z') {
		ck_assert_msg(now_ms() < end, "process %d is %c", pid, state);
		f = fopen(path, "re");
		if (!f)
			return;
		if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
			state = 0;
		fclose(f);
		nap_ms(5);
	}
}

START_TEST(test_program_killed)
{
	pid_t program, kvmm;

	start_talk("run", demo_model());
	terminal_see(&term, "> ");
	program = child_of(keeper_of(term.pid), (u32)_i);
	ck_assert_int_gt(program, 0);
	kvmm = _i ? program : child_of(program, 0);
	kill(program, SIGKILL);
	/* Until kvmm has ended, too, a whole turn may be answered. */
	await_dead(program);
	await_dead(kvmm);
	terminal_type(&term, "Hello\n");
	terminal_see(&term, _i ? "the server of this command ended, with status 137: run the command again" :
			    "the daemon of this command ended, with status 137: run the command again");
	terminal_ended(&term, 69);
	expect_nothing_left();
}
END_TEST

/* A daemon that does not react is killed, with its kvmm. */
START_TEST(test_programs_stopped)
{
	pid_t keeper, hold, kvmm;
	int status;
	u64 end;

	start_talk("run", demo_model());
	terminal_see(&term, "> ");
	keeper = keeper_of(term.pid);
	hold = child_of(keeper, 0);
	kvmm = child_of(hold, 0);
	ck_assert_int_gt(kvmm, 0);
	kill(kvmm, SIGSTOP);
	kill(hold, SIGSTOP);
	/* kvmm-hold has 15 s, and kvmm 5 more. */
	end = now_ms() + 60000 * time_scale();
	terminal_type(&term, "\004");
	while (!waitpid(term.pid, &status, WNOHANG)) {
		ck_assert_msg(now_ms() < end, "it does not end");
		nap_ms(50);
	}
	term.pid = 0;
	ck_assert_int_eq(status, 0);
	ck_assert(kill(kvmm, 0));
	expect_nothing_left();
}
END_TEST

/* A model folder with the name of an option; an option that is too long. */
START_TEST(test_odd_names)
{
	ck_assert_int_eq(shell("cd $TMPDIR && ln -s $MODEL -- -dash && $KVRT run --max-tokens 3 -- -dash Hello"), 0);
	ck_assert_int_eq(shell("$KVRT run --dtype $(printf 'a%.0s' $(seq 20000)) $MODEL Hello"), 64);
	expect_text(erred, "give shorter ones", "is not one of");
	expect_nothing_left();
}
END_TEST
/* Without the keeper the programs end, and the command removes the folder. */
START_TEST(test_keeper_killed)
{
	pid_t keeper;

	start_talk("run", demo_model());
	terminal_see(&term, "> ");
	keeper = keeper_of(term.pid);
	ck_assert_int_gt(keeper, 0);
	kill(keeper, SIGKILL);
	terminal_type(&term, "\004");
	terminal_ended(&term, 0);
	expect_nothing_left();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("run");
	TCase *tc = tcase_create("run");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_once);
	tcase_add_test(tc, test_gpu);
	tcase_add_test(tc, test_beside);
	tcase_add_test(tc, test_no_daemon_there);
	tcase_add_test(tc, test_failure);
	tcase_add_test(tc, test_refused);
	tcase_add_test(tc, test_hub);
	tcase_add_loop_test(tc, test_talk, 0, 2);
	tcase_add_loop_test(tc, test_killed, 0, 3);
	tcase_add_test(tc, test_interrupted);
	tcase_add_test(tc, test_keeper_killed);
	tcase_add_loop_test(tc, test_program_killed, 0, 2);
	tcase_add_test(tc, test_odd_names);
	if (by_level(0, 1, 1))
		tcase_add_test(tc, test_programs_stopped);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
