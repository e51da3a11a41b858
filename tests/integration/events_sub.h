/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events_sub.h - a subscriber of --kv-events, with a mirror of the daemon's cache
 *
 * It knows the format alone.  A batch must have the number after the last one; if it
 * does not, the subscriber asks for those between.
 */
#ifndef TESTS_EVENTS_SUB_H
#define TESTS_EVENTS_SUB_H

#include <kvmm/types.h>

/* Media, in the order of KVMM_TIER_*. */
enum {
	SUB_GPU,
	SUB_CPU,
	SUB_STORAGE,
	SUB_MEDIA
};

/**
 * struct sub_block - a block of the mirror
 * @on: bit set of media; 0: it was removed
 */
struct sub_block {
	u64	hash;
	u64	parent;
	u32	on;
	u32	nr_ids;
	u32	first_id;
	u32	salted;
};

/**
 * struct sub - a subscriber
 * @next:    number of the next batch
 * @arrays:  answers have no topic, as with events in arrays
 * @lacks:   batches were lost to it: it takes nothing until AllBlocksCleared
 * @first:   number of the first batch since the last AllBlocksCleared
 * @child:   slots by parent and first id, as they were after @indexed events
 * @slot:    the mirror: a table of @nr_slots by hash
 * @nr:      blocks that are on a medium
 * @events, @batches, @cleared, @asked: received events and batches, AllBlocksCleared
 *           of these, requests for old batches
 * @moved:   blocks that came to a medium while they were on another
 */
struct sub {
	char		live[128];
	char		old[128];
	const char	*topic;
	void		*ctx;
	void		*sock;
	u64		next;
	bool		arrays;
	bool		lacks;
	u64		first;
	struct sub_block *slot;
	u32		nr_slots;
	u32		*child;
	u64		indexed;
	u32		used;
	u32		nr;
	u64		events;
	u64		batches;
	u64		cleared;
	u64		asked;
	u64		moved[SUB_MEDIA];
};

void sub_open(struct sub *s, const char *live, const char *old, const char *topic);
void sub_connect(struct sub *s);
void sub_leave(struct sub *s);
void sub_close(struct sub *s);
bool sub_ask(struct sub *s, u64 from);
u32 sub_hear(struct sub *s, int ms);
const struct sub_block *sub_child(struct sub *s, u64 parent, u32 first_id);

#endif /* TESTS_EVENTS_SUB_H */
