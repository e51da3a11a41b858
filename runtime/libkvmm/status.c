// SPDX-License-Identifier: Apache-2.0
/*
 * status.c - consistent copies of the daemon's records
 *
 * Records and table pages are in segment D and change while they are read.  A
 * record is copied under its sequence count.  A table is a chain of pages.
 * Each page carries its owner's handle, so the reader notices a page that was
 * given to another sequence meanwhile.  The chain is followed for at most as
 * many pages as there are.  The record is compared before and after, because a
 * sequence that was preempted in between has another table.
 *
 * A count that stays odd means that the daemon stopped in the middle of a
 * change: after a while the reader gives up instead of spinning for ever.
 */
#include <sched.h>
#include <sys/socket.h>

#include "runtime/libkvmm/internal.h"

#define READ_SPINS	1000		/* spins before the processor is yielded */
#define READ_GIVE_UP_NS	1000000000ll
#define TABLE_RETRIES	100

/* Has the socket ended?  Nothing is removed from it. */
static bool daemon_gone(const struct kvmm *k)
{
	char c;
	ssize_t n = recv(k->sock, &c, 1, MSG_PEEK | MSG_DONTWAIT);

	if (k->away)
		return true;
	return !n || (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* Copy record @index.  Return: 0, -EAGAIN or -ECONNRESET. */
static int read_record(const struct kvmm *k, u32 index,
		       struct kvmm_seq_status *out)
{
	const struct kvmm_seq_status *st = &k->seq[index];
	union {
		struct kvmm_seq_status	st;
		u64			word[sizeof(*st) / 8];
	} copy;
	s64 start = 0;
	u32 begin, tries = 0;

	for (;;) {
		begin = ring_read_begin(&st->seqcount);
		shared_copy_in(&copy, st, sizeof(copy));
		if (!ring_read_retry(&st->seqcount, begin))
			break;
		cpu_relax();
		if (++tries % READ_SPINS)
			continue;
		if (!start)
			start = lk_now();
		if (daemon_gone(k))
			return -ECONNRESET;
		if (lk_now() - start > READ_GIVE_UP_NS)
			return -EAGAIN;
		sched_yield();
	}
	*out = copy.st;
	return 0;
}

int kvmm_seq_status(const struct kvmm *k, u64 seq, struct kvmm_seq_status *st)
{
	int ret;

	if (KVMM_SEQ_INDEX(seq) >= k->info.max_seqs)
		return -ENOENT;
	ret = read_record(k, KVMM_SEQ_INDEX(seq), st);
	if (ret)
		return ret;
	if (st->generation != KVMM_SEQ_GEN(seq) ||
	    st->state == KVMM_SEQ_CLOSED)
		return -ENOENT;
	return 0;
}

/* A page of a chain, copied. */
union table_copy {
	struct kvmm_table_page	page;
	u64			word[sizeof(struct kvmm_table_page) / 8];
};

/*
 * Follow once the chain that begins at @page.
 * Return: 0; -ERANGE: it ends too early; -EAGAIN: it changed meanwhile.
 */
static int read_chain(const struct kvmm *k, u64 seq, u32 group, u32 page,
		      u32 first, u32 nr, u32 *out)
{
	const size_t head = offsetof(struct kvmm_table_page, entry);
	union table_copy c;
	u32 index = 0, done = 0, hops, from, n;

	for (hops = 0; done < nr; hops++) {
		if (page == KVMM_NO_INDEX)
			return -ERANGE;
		if (page >= k->info.nr_tables || hops >= k->info.nr_tables)
			return -EAGAIN;
		shared_copy_in(&c, &k->table[page], head);
		/* Trimmed entries at the front have no page any more. */
		if (!hops)
			index = c.page.first;
		if (c.page.seq != seq || c.page.group != group ||
		    c.page.first != index)
			return -EAGAIN;
		if (!hops && first < index)
			return -ERANGE;
		if (first + done < index + KVMM_TABLE_ENTRIES) {
			from = first + done - index;
			n = min(nr - done, KVMM_TABLE_ENTRIES - from);
			shared_copy_in(&c, &k->table[page], head +
				       (from + n) * sizeof(u32));
			memcpy(out + done, &c.page.entry[from],
			       n * sizeof(u32));
			done += n;
		}
		index += KVMM_TABLE_ENTRIES;
		page = c.page.next;
	}
	return 0;
}

int kvmm_seq_table(const struct kvmm *k, u64 seq, u32 group, u32 first, u32 nr,
		   u32 *out)
{
	struct kvmm_seq_status a, b;
	int ret, chain, tries;

	if (group >= KVMM_MAX_GROUPS || first + (u64)nr > KVMM_NO_INDEX)
		return -ERANGE;
	ret = kvmm_seq_status(k, seq, &a);
	for (tries = 0; !ret && tries < TABLE_RETRIES; tries++) {
		chain = read_chain(k, seq, group, a.table[group], first, nr,
				   out);
		/*
		 * The entries were read; check that they were valid all the
		 * time.
		 */
		ring_fence_acquire();
		ret = kvmm_seq_status(k, seq, &b);
		if (ret)
			break;
		if (a.table[group] == b.table[group] &&
		    a.seq_epoch == b.seq_epoch && chain != -EAGAIN)
			return chain;
		a = b;
		sched_yield();
	}
	return ret ? ret : -EAGAIN;
}
