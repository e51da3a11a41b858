// SPDX-License-Identifier: Apache-2.0
/*
 * log_keep.c - the last lines of the log, in memory
 *
 * A ring of whole lines for the file kmsg.  Every thread writes lines.  A writer may
 * not wait long for another, nor for itself if a process is forked while a line is
 * being kept.  So if the lock is not free after LOCK_TRIES, the line is not kept,
 * and the gap in the numbers shows that.  A reader takes the lock for one line at a
 * time.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include <kvmm/clock.h>
#include <kvmm/ring.h>

#include "lib/log_keep.h"

#define LOCK_TRIES	1000

static struct kv_log_line *kept;
static u32 nr_kept;
static u64 next_seq;
static u32 locked;

int kv_log_keep(u32 nr)
{
	kept = calloc(nr, sizeof(*kept));
	if (!kept)
		return -ENOMEM;
	nr_kept = nr;
	return 0;
}

static bool keep_lock(void)
{
	u32 i;

	for (i = 0; i < LOCK_TRIES; i++) {
		/* Pairs with the release in keep_unlock(). */
		if (!__atomic_exchange_n(&locked, 1, __ATOMIC_ACQUIRE))
			return true;
		cpu_relax();
	}
	return false;
}

static void keep_unlock(void)
{
	__atomic_store_n(&locked, 0, __ATOMIC_RELEASE);
}

void log_keep(enum kv_log_level level, const char *text)
{
	struct kv_log_line *l;
	u64 now, seq;

	if (!nr_kept)
		return;
	now = kv_now_us();
	seq = __atomic_fetch_add(&next_seq, 1, __ATOMIC_RELAXED);
	if (!keep_lock())
		return;
	l = &kept[seq % nr_kept];
	/* A later line may have this place already. */
	if (l->seq <= seq) {
		l->seq = seq;
		l->usec = now;
		l->level = level;
		strncpy(l->text, text, sizeof(l->text) - 1);
	}
	keep_unlock();
}

bool kv_log_kept(u64 seq, struct kv_log_line *line)
{
	u64 end = __atomic_load_n(&next_seq, __ATOMIC_RELAXED);
	bool found = false;

	if (!nr_kept)
		return false;
	if (end > nr_kept)
		seq = max(seq, end - nr_kept);
	for (; seq < end && !found; seq++) {
		while (!keep_lock())
			cpu_relax();
		*line = kept[seq % nr_kept];
		keep_unlock();
		/* The line was kept, and is not overwritten. */
		found = line->seq == seq && line->text[0];
	}
	return found;
}
