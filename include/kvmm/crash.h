/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash.h - places in the core where a test may end it
 *
 * A core can be ended anywhere; these are the places between two groups of
 * stores that change primary facts (adopt.c).  Each has a name, so that a test
 * can select it in a daemon or the simulator.  The core passes it to core_ops.crash.
 */
#ifndef KVMM_CRASH_H
#define KVMM_CRASH_H

#define CORE_CRASH_POINTS(x)						\
	x(tenant_make,	"a tenant has its key, and is not yet known")	\
	x(domain_make,	"a domain has its shape, and is not yet known")	\
	x(domain_drop,	"a domain has no content, and is still known")	\
	x(client_attach, "a client has its record, and is not yet known") \
	x(client_dead,	"blocks that a dead client may write are quarantined")	\
	x(client_detach, "a detached client has no sequence, and is known") \
	x(client_quiet,	"a client reaches no extent, and is still known") \
	x(extent_state,	"an extent is in another state")		\
	x(extent_made,	"an extent has memory, and is in no span")	\
	x(extent_gone,	"an extent has none, and it was not released")	\
	x(span_cut,	"extents belong to a span whose record is not there yet")	\
	x(span_release,	"extents belong to no span, whose record is still there")	\
	x(block_state,	"a block is in another state, and not counted")	\
	x(block_named,	"a full block has its name, and is not sealed")	\
	x(index_insert,	"a name has a node, and is not in the index yet")	\
	x(index_move,	"a name stands for content on another tier")	\
	x(index_drop,	"a name has gone, its content has not")		\
	x(entry_alloc,	"content has a record, and no slot")		\
	x(entry_out,	"a copy to the host begins")			\
	x(entry_fill,	"a copy to the device begins")			\
	x(entry_done,	"a slot has its content, and is not counted")	\
	x(entry_settle,	"a lower-tier entry has no slot, and is still known")	\
	x(seq_make,	"a sequence has all its facts, and is not known") \
	x(seq_made,	"a sequence is known, and in no list")		\
	x(seq_strip,	"a sequence has lost its blocks, and is as before") \
	x(seq_closed,	"a sequence is closed, and its handle is current") \
	x(lease_hold,	"a lease names a copy that begins, and is not known") \
	x(table_push,	"a table has one more entry")			\
	x(grant,	"a step entry is granted, and not answered") \
	x(advance,	"tokens are valid, and their step is open")	\
	x(step_end,	"a step is off the ring, and holds its blocks")	\
	x(area_add,	"an area has its extents, and is not added yet")	\
	x(area_del,	"an area is removed, and has its extents")	\
	x(resize,	"the pool has another size, and nothing has left") \
	x(admit,	"a sequence is mapped, and still waits")	\
	x(executed,	"a request took effect, and is not answered")	\
	x(answered,	"a request is answered, and not committed")

enum core_crash_point {
#define x(name, text) CORE_CRASH_##name,
	CORE_CRASH_POINTS(x)
#undef x
	NR_CORE_CRASH_POINTS
};

#endif /* KVMM_CRASH_H */
