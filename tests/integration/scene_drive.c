// SPDX-License-Identifier: Apache-2.0
/*
 * scene_drive.c - run a scene of swap_scenes.h under a real kvmm-hold
 *
 * The driver's program is also the fake kvmm: kvmm-hold starts it again under
 * that name, in a new directory of the test, and ends with its exit code.
 */
#include <check.h>
#include <liburing.h>

#include "tests/integration/harness.h"
#include "tests/integration/scene_drive.h"
#include "tests/integration/swap_scenes.h"
#include "tests/integration/throttle.h"

char scene_dir[128];
static pid_t run_id;		/* pid of the driver, in the names of its tests' files */

void scene_setup(void)
{
	const char *tmp = getenv("TMPDIR");
	const char *build = getenv("KVMM_BUILD");

	snprintf(scene_dir, sizeof(scene_dir), "%.80s/swapd.%d.XXXXXX",
		 tmp ? tmp : "/tmp", (int)run_id);
	ck_assert_ptr_nonnull(mkdtemp(scene_dir));
	sc_prepare(scene_dir, build ? build : "build");
}

void scene_teardown(void)
{
	char cmd[300];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", scene_dir);
	ck_assert_int_eq(system(cmd), 0);
}

/* The end of the log, as long as a message of libcheck may be; to be freed. */
char *scene_log(void)
{
	char path[300], *all;
	size_t len;

	snprintf(path, sizeof(path), "%s/log", scene_dir);
	all = slurp(path);
	len = strlen(all);
	if (len > 6000)
		memmove(all, all + len - 6000, 6001);
	return all;
}

bool scene_logged(const char *text)
{
	char *log = scene_log();
	bool found = strstr(log, text);

	free(log);
	return found;
}

static const char * const engine_word[] = { "auto", "uring", "sync" };

pid_t scene_spawn(const char *scene, u32 engine, u32 n)
{
	char number[16], seed[16], log[300];
	char *argv[] = {
		NULL, (char *)SCENE_OPTION, (char *)scene, scene_dir,
		(char *)engine_word[engine], number, seed, NULL,
	};

	snprintf(number, sizeof(number), "%u", n);
	snprintf(seed, sizeof(seed), "%u", random_below(1000000000));
	snprintf(log, sizeof(log), "%s/log", scene_dir);
	return sc_spawn(scene_dir, argv, log);
}

/* Return: exit code of hold. */
int scene_wait(pid_t pid)
{
	int status = 0;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void scene_run(const char *scene, u32 engine, u32 n)
{
	int code = scene_wait(scene_spawn(scene, engine, n));
	char *log = scene_log();

	ck_assert_msg(code == 0, "%s (%s) ended with %d:\n%s", scene,
		      engine_word[engine], code, log);
	/* A report of a sanitizer is a failure, even if all processes ended with 0. */
	ck_assert_msg(!strstr(log, "Sanitizer") && !strstr(log, "runtime error"),
		      "%s", log);
	free(log);
}

bool have_uring(void)
{
	struct io_uring ring;

	if (io_uring_queue_init(4, &ring, 0))
		return false;
	io_uring_queue_exit(&ring);
	return true;
}

/* Engine by the index of a loop test; threads on a machine without io_uring. */
u32 scene_engine(int i)
{
	if (i == 0 && !have_uring()) {
		printf("note: this machine has no io_uring\n");
		return SWAPD_ENGINE_SYNC;
	}
	return i == 0 ? SWAPD_ENGINE_URING : SWAPD_ENGINE_SYNC;
}

/* Remove mounts, loop devices and files of failed tests. */
void scene_sweep(void)
{
	const char *tmp = getenv("TMPDIR");
	char cmd[700];
	int id = (int)run_id;

	snprintf(cmd, sizeof(cmd),
		 "for m in $(grep -o '[^ ]*/swapd\\.%d\\.[^ ]*' /proc/mounts); do umount -l $m; done; for l in $(losetup -nO NAME,BACK-FILE 2>/dev/null | grep '/swapd\\.%d\\.' | cut -d' ' -f1); do umount $l 2>/dev/null; losetup -d $l; done; rm -rf '%.200s'/swapd.%d.*",
		 id, id, tmp ? tmp : "/tmp", id);
	if (system(cmd))
		printf("note: something of the tests is left behind\n");
	throttle_sweep();
}

void scene_drive_init(void)
{
	run_id = getpid();
}
