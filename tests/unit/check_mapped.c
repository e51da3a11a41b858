// SPDX-License-Identifier: Apache-2.0
/*
 * check_mapped.c - mapped files that are cut while they are used
 *
 * A child touches a page that its file has lost, and ends.  Its line and exit status
 * are judged.
 */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "runtime/lib/gguf.h"
#include "runtime/lib/mapped.h"
#include "runtime/model/safetensors.h"
#include "tests/tmp.h"

#define PAGES	4u

static char path[128];
static char said[1024];

static void setup(void)
{
	int fd = mkstemp(tmp_name(path, sizeof(path), "mapped"));

	ck_assert_int_ge(fd, 0);
	close(fd);
}

static void teardown(void)
{
	unlink(path);
}

/* Run @fn in a child; returns its status, and sets said. */
static int child(void (*fn)(void))
{
	int fds[2], status = 0;
	ssize_t n;
	pid_t pid;

	ck_assert_int_eq(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		dup2(fds[1], STDERR_FILENO);
		mapped_guard_init();
		fn();
		_exit(0);
	}
	close(fds[1]);
	n = read(fds[0], said, sizeof(said) - 1);
	said[n > 0 ? n : 0] = '\0';
	close(fds[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return status;
}

static const u8 *map_file(void)
{
	const u64 bytes = PAGES * 4096ull;
	int fd = open(path, O_RDWR | O_CLOEXEC);
	const u8 *map;

	if (ftruncate(fd, bytes))
		abort();
	map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (map == MAP_FAILED || truncate(path, 4096))
		abort();
	return map;
}

static u8 touch(const u8 *map)
{
	return *(volatile const u8 *)(map + (PAGES - 1) * 4096);
}

static void lose_noted(void)
{
	const u8 *map = map_file();

	mapped_add(map, PAGES * 4096ull, path);
	touch(map);
}

static void lose_removed(void)
{
	const u8 *map = map_file();

	mapped_add(map, PAGES * 4096ull, path);
	mapped_remove(map);
	touch(map);
}

static void *touch_thread(void *map)
{
	touch(map);
	return NULL;
}

static void lose_on_threads(void)
{
	const u8 *map = map_file();
	pthread_t threads[32];
	u32 i;

	mapped_add(map, PAGES * 4096ull, path);
	for (i = 0; i < ARRAY_SIZE(threads); i++)
		if (pthread_create(&threads[i], NULL, touch_thread, (void *)map))
			abort();
	for (i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
}

/* A file of @head and many zero bytes, at path. */
static void write_file(const char *head, size_t len)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (ftruncate(fd, PAGES * 4096) || write(fd, head, len) != (ssize_t)len)
		abort();
	close(fd);
}

/* A header, and one tensor "a" of 3584 numbers in F32, 14336 bytes. */
static void lose_gguf(void)
{
	static const char head[] = "GGUF\3\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
		"\1\0\0\0\0\0\0\0a\1\0\0\0\0\16\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
	char err[GGUF_ERR_MAX];
	struct gguf *g;

	write_file(head, sizeof(head) - 1);
	if (gguf_open(path, &g, err, sizeof(err)) || truncate(path, 4096))
		abort();
	touch(gguf_tensor_at(g, 0)->data);
}

static void lose_safetensors(void)
{
	static const char head[] = "\100\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"U8\","
		"\"shape\":[16312],\"data_offsets\":[0,16312]}}   ";
	struct model_error err;
	struct st_file *f;

	write_file(head, sizeof(head) - 1);
	if (st_open(path, &f, &err) || truncate(path, 4096))
		abort();
	touch(st_find(f, "a")->data);
}

static void (* const lost[])(void) = {
	lose_noted, lose_on_threads, lose_gguf, lose_safetensors,
};

START_TEST(test_lost)
{
	const int status = child(lost[_i]);

	ck_assert_msg(WIFEXITED(status), "%s, status %#x", said, status);
	ck_assert_int_eq(WEXITSTATUS(status), EX_IOERR);
	ck_assert_msg(!strncmp(said, "kvrt: error: ", 13) &&
		      !strncmp(said + 13, path, strlen(path)), "%s", said);
	ck_assert_ptr_nonnull(strstr(said, ": was cut, or cannot be read"));
	ck_assert_ptr_eq(strchr(said, '\n'), said + strlen(said) - 1);
}
END_TEST

/* Other memory: the signal ends the process, and nothing is said. */
START_TEST(test_other)
{
	const int status = child(lose_removed);

	ck_assert_msg(WIFSIGNALED(status), "status %#x", status);
	ck_assert_int_eq(WTERMSIG(status), SIGBUS);
	ck_assert_str_eq(said, "");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("mapped");
	TCase *tc = tcase_create("lost");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_lost, 0, ARRAY_SIZE(lost));
	tcase_add_test(tc, test_other);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
