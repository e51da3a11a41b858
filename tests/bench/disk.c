// SPDX-License-Identifier: Apache-2.0
/*
 * disk.c - the kind of disk that a benchmark ran on
 *
 * A rate of writes says little if they end in memory.  A virtual machine cannot
 * look into its host, but two signs are visible.  The driver tells that the disk
 * is virtual.  A disk that reports a write on stable storage within some tens of
 * microseconds has not written it, or has memory for that.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/bench/disk.h"

#define WRITES		200
#define WRITE_BYTES	(64u << 10)
#define CACHE_US	200.0	/* no flash is faster */

static void read_word(const char *dir, const char *file, char *word,
		      size_t len)
{
	char path[400];
	FILE *f;

	snprintf(word, len, "?");
	snprintf(path, sizeof(path), "%s/%s", dir, file);
	f = fopen(path, "re");
	if (!f)
		return;
	if (fgets(word, (int)len, f))
		word[strcspn(word, "\n")] = '\0';
	fclose(f);
}

/* Last part of the target of a link. */
static void read_name(const char *path, char *name, size_t len)
{
	char target[512];
	ssize_t n = readlink(path, target, sizeof(target) - 1);
	const char *last;

	target[max(n, (ssize_t)0)] = '\0';
	last = strrchr(target, '/');
	snprintf(name, len, "%s", last ? last + 1 : "?");
}

/* p50 of a write and its fdatasync, us; 0 if O_DIRECT is not available. */
static double stable_write_us(const char *dir)
{
	struct bench_series s = { .name = "fdatasync" };
	void *buf = aligned_alloc(4096, WRITE_BYTES);
	struct bench_samples lat;
	char path[300];
	u64 start;
	int fd, i;

	snprintf(path, sizeof(path), "%s/stable.XXXXXX", dir);
	fd = mkostemp(path, O_DIRECT | O_CLOEXEC);
	if (fd < 0 || !buf)
		return 0;
	unlink(path);
	memset(buf, 0x5a, WRITE_BYTES);
	bench_samples_init(&lat, WRITES);
	for (i = 0; i < WRITES; i++) {
		start = bench_ticks();
		if (pwrite(fd, buf, WRITE_BYTES, (off_t)i % 16 *
			   WRITE_BYTES) != WRITE_BYTES || fdatasync(fd))
			bench_die("%s: %s", path, strerror(errno));
		/* Writes that make the file longer do not count. */
		if (i >= 16)
			bench_add(&lat, bench_ticks() - start);
	}
	bench_round(&s, &lat);
	bench_samples_free(&lat);
	close(fd);
	free(buf);
	return s.p50[0];
}

void disk_tell(const char *dir)
{
	char sys[256], path[300], name[64], driver[64], cache[64], turns[16];
	struct stat st;
	double us;

	if (stat(dir, &st))
		bench_die("%s: %s", dir, strerror(errno));
	snprintf(sys, sizeof(sys), "/sys/dev/block/%u:%u",
		 major(st.st_dev), minor(st.st_dev));
	read_name(sys, name, sizeof(name));
	/* A partition has the attributes of its disk. */
	snprintf(path, sizeof(path), "%s/partition", sys);
	if (!access(path, F_OK))
		strcat(sys, "/..");
	snprintf(path, sizeof(path), "%s/device/driver", sys);
	read_name(path, driver, sizeof(driver));
	read_word(sys, "queue/write_cache", cache, sizeof(cache));
	read_word(sys, "queue/rotational", turns, sizeof(turns));
	us = stable_write_us(dir);
	fprintf(stderr, "note: disk %s, driver %s, %s, rotational %s: 64 KiB are written and synced in %.0f us (p50)\n",
		name, driver, cache, turns, us);
	if (strstr(driver, "virtio") || !strcmp(driver, "?") ||
	    (us > 0 && us < CACHE_US))
		fprintf(stderr, "note: writes may end in the host's or the controller's memory, and reads of what was just written come from there: the rates are of that, the ratios count\n");
}
