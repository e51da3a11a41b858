// SPDX-License-Identifier: Apache-2.0
/*
 * mapped.c - model files that are mapped, and the end of a process that loses one
 *
 * Weights are used where files are mapped.  If another program cuts such a file, there
 * is nothing to go on with, on any thread.  So the handler of SIGBUS only says which
 * file it was.
 *
 * A range is published by its length and withdrawn before it is unmapped.  The handler
 * takes no lock.
 */
#include <pthread.h>
#include <signal.h>
#include <sysexits.h>
#include <unistd.h>

#include "runtime/lib/mapped.h"

#define MAPPED_MAX	1024u	/* files; large models have a few hundred */

struct mapped {
	const void	*map;
	const char	*path;
	u64		bytes;	/* 0: unused */
};

static struct mapped files[MAPPED_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static u32 nr_lost;		/* threads that lost a file */

/* Append @text to @line of @size bytes; control characters become '?'. */
static size_t append(char *line, size_t len, size_t size, const char *text)
{
	for (; *text && len < size; text++)
		line[len++] = (u8)*text < 0x20 || *text == 0x7f ? '?' : *text;
	return len;
}

static const char *path_at(const void *addr)
{
	u32 i;

	for (i = 0; i < MAPPED_MAX; i++) {
		/* Pairs with the release in mapped_add(). */
		const u64 bytes = load_acquire(&files[i].bytes);

		if ((u64)((uintptr_t)addr - (uintptr_t)files[i].map) < bytes)
			return files[i].path;
	}
	return NULL;
}

static void on_lost(int sig, siginfo_t *si, void *ctx)
{
	const char *path = path_at(si->si_addr);
	char line[512];
	size_t len;

	if (!path) {
		/* The instruction runs again, and ends the process. */
		signal(sig, SIG_DFL);
		return;
	}
	/* Several threads read one file: one of them tells. */
	while (__atomic_fetch_add(&nr_lost, 1, __ATOMIC_RELAXED))
		pause();
	len = append(line, 0, 300, "kvrt: error: ");
	len = append(line, len, 300, path);
	len = append(line, len, sizeof(line) - 1, ": was cut, or cannot be read, "
		     "while it is used: copy it again, and replace models by "
		     "rename");
	line[len++] = '\n';
	(void)!write(STDERR_FILENO, line, len);
	_exit(EX_IOERR);
}

void mapped_guard_init(void)
{
	struct sigaction sa = {
		.sa_sigaction	= on_lost,
		.sa_flags	= SA_SIGINFO,
	};

	sigemptyset(&sa.sa_mask);
	sigaction(SIGBUS, &sa, NULL);
}

void mapped_add(const void *map, u64 bytes, const char *path)
{
	u32 i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < MAPPED_MAX && files[i].bytes; i++)
		;
	if (i < MAPPED_MAX) {
		files[i].map = map;
		files[i].path = path;
		store_release(&files[i].bytes, bytes);
	}
	pthread_mutex_unlock(&lock);
}

void mapped_remove(const void *map)
{
	u32 i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < MAPPED_MAX; i++)
		if (files[i].bytes && files[i].map == map)
			store_release(&files[i].bytes, 0);
	pthread_mutex_unlock(&lock);
}
