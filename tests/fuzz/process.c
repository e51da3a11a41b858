// SPDX-License-Identifier: Apache-2.0
/*
 * process.c - calls that have effects outside the process, under a fuzzer
 *
 * Each has a hook that a target may set; without it the real call is made.
 */
#include <setjmp.h>
#include <unistd.h>

#include "tests/fuzz/process.h"

bool (*fuzz_on_unlink)(const char *path);
bool fuzz_no_fork;
jmp_buf *fuzz_exit;

int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
pid_t __real_fork(void);
pid_t __wrap_fork(void);
void __noreturn __real_exit(int code);
void __noreturn __wrap_exit(int code);

int __wrap_unlink(const char *path)
{
	if (!fuzz_on_unlink)
		return __real_unlink(path);
	if (fuzz_on_unlink(path))
		return 0;
	errno = ENOENT;
	return -1;
}

pid_t __wrap_fork(void)
{
	if (!fuzz_no_fork)
		return __real_fork();
	errno = EAGAIN;
	return -1;
}

void __wrap_exit(int code)
{
	if (fuzz_exit)
		longjmp(*fuzz_exit, 1);
	__real_exit(code);
}
