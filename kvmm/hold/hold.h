/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hold.h - what kvmm and kvmm-hold say to each other
 *
 * A seqpacket socketpair joins them; the child finds its end in the
 * environment.  Every message is one struct hold_record, with at most one
 * file descriptor.  kvmm puts records; hold keeps them for the next kvmm and
 * hands them over at its start, HOLD_END last.  Hold looks at nothing but
 * the op, and at the name of listening sockets when it must unlink them.
 */
#ifndef KVMM_HOLD_HOLD_H
#define KVMM_HOLD_HOLD_H

#include <kvmm/types.h>

#define HOLD_ENV	"KVMM_HOLD_FD"
#define HOLD_MAGIC	0x31444c4f484d4d56ull
#define HOLD_RECORDS	256		/* kept at most */

enum hold_op {
	HOLD_PUT = 1,	/* keep; replaces a record of the same kind and index */
	HOLD_DROP,	/* forget it */
	HOLD_END,	/* hold to kvmm: this was the last record */
};

enum hold_kind {
	HOLD_LOCK = 1,		/* the instance lock */
	HOLD_LISTEN,		/* listening socket; index 0 attach, 1 view */
	HOLD_CLIENT,		/* pidfd of a client */
	HOLD_EPOCH,		/* no descriptor; value: last daemon epoch */
};

/**
 * struct hold_record - one message
 * @kind:       enum hold_kind
 * @index:      among its kind
 * @generation: of the index
 * @value:      a number, where the kind has one
 */
struct hold_record {
	u64	magic;
	u32	op;
	u32	kind;
	u32	index;
	u32	generation;
	u64	value;
};

#endif /* KVMM_HOLD_HOLD_H */
