// SPDX-License-Identifier: Apache-2.0
/*
 * huge.c - huge pages for the time of a benchmark
 *
 * The old number is restored when the process ends, by a handler that only
 * opens, writes and closes.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/huge.h"

#define NR_FILE	"/proc/sys/vm/nr_hugepages"

static char before[32];
static pid_t taker;

static u64 meminfo(const char *key)
{
	unsigned long long pages = 0;
	char line[128], form[64];
	FILE *f = fopen("/proc/meminfo", "re");

	snprintf(form, sizeof(form), "%s: %%llu", key);
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, form, &pages) == 1)
			break;
	if (f)
		fclose(f);
	return pages;
}

/* Return: false: only root may set it. */
static bool pages_set(const char *text)
{
	int fd = open(NR_FILE, O_WRONLY | O_CLOEXEC);
	bool done;

	if (fd < 0)
		return false;
	done = write(fd, text, strlen(text)) > 0;
	close(fd);
	return done;
}

static void put_back(void)
{
	/* A forked child that failed must not restore it. */
	if (getpid() == taker)
		(void)pages_set(before);
}

static void on_signal(int sig)
{
	put_back();
	signal(sig, SIG_DFL);
	raise(sig);
}

bool huge_pages_are_free(u64 nr)
{
	return meminfo("HugePages_Free") >= nr;
}

void huge_pages_again(u64 nr)
{
	const u64 avail = meminfo("HugePages_Free");
	char text[32];

	if (avail >= nr)
		return;
	snprintf(text, sizeof(text), "%llu\n", (unsigned long long)
		 (meminfo("HugePages_Total") + nr - avail));
	(void)pages_set(text);
}

void huge_pages_take(u64 nr)
{
	if (huge_pages_are_free(nr))
		return;
	if (!taker) {
		snprintf(before, sizeof(before), "%llu\n",
			 (unsigned long long)meminfo("HugePages_Total"));
		taker = getpid();
		atexit(put_back);
		signal(SIGTERM, on_signal);
		signal(SIGINT, on_signal);
	}
	huge_pages_again(nr);
}
