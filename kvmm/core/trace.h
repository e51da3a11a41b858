/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.h - records of decisions of the core; their events, in one list
 *
 * A shell that wants records passes memory to core_trace_attach(): a ring of
 * records of one size, and the report of the last time that reclaim found no
 * memory (oom.c).  Without that memory nothing is recorded and no event can be
 * switched on.  The tree's `trace` and `events/`, their documentation and the
 * tests are made from these lists.
 *
 * Context: as core.h.
 */
#ifndef KVMM_CORE_TRACE_H
#define KVMM_CORE_TRACE_H

#include "kvmm/core/core.h"

/* How the value of a field is printed. */
enum core_trace_kind {
	CORE_TRACE_DEC,		/* a number */
	CORE_TRACE_ID,		/* a number, or `-`: none */
	CORE_TRACE_INT,		/* a signed number */
	CORE_TRACE_SIZE,	/* a number, or `max` */
	CORE_TRACE_CAUSE,	/* a name of CORE_CAUSES */
	CORE_TRACE_OUTCOME,	/* a name of CORE_OOM_OUTCOMES */
	CORE_TRACE_LIMIT,	/* a file of CORE_LIMITS */
};

/* Every field that an event may have: name, kind, text. */
#define CORE_TRACE_FIELDS(x)						\
	x(client,  ID,	"number of a client")				\
	x(tenant,  ID,	"number of a tenant's record") \
	x(domain,  ID,	"column `id` of `domains`")			\
	x(owner,   ID,	"likewise, of the domain that loses")		\
	x(seq,	   ID,	"column `seq` of `client/ID/seqs`")		\
	x(start,   DEC,	"first token that is to be written")		\
	x(tokens,  DEC,	"tokens")					\
	x(cached,  DEC,	"of these, found in the index")			\
	x(blocks,  DEC,	"blocks of the domain")				\
	x(block,   DEC,	"number of a block in the pool")		\
	x(extent,  DEC,	"number of an extent")				\
	x(extents, DEC,	"number of extents, from there on")			\
	x(bytes,   SIZE, "bytes")					\
	x(value,   SIZE, "the new value, in the unit of the file")	\
	x(kept,	   DEC,	"1: a lower tier has the content")		\
	x(cause,   CAUSE, "label `cause` of `kvmm_domain_preemptions_total`")	\
	x(outcome, OUTCOME, "see last_oom")				\
	x(mark,	   LIMIT, "a file of `domain/NAME`")			\
	x(clients, DEC,	"how many")					\
	x(error,   INT,	"negative errno")

enum core_trace_field {
#define x(name, kind, text) CORE_TF_##name,
	CORE_TRACE_FIELDS(x)
#undef x
	NR_CORE_TF
};

/* Every event: name, text, its fields in the order of the arguments. */
#define CORE_TRACE_EVENTS(x, f)						\
	x(grant,	"a step got memory for a sequence",	\
	  f(client) f(domain) f(seq) f(start) f(tokens) f(blocks))	\
	x(refuse,	"a step got no memory for a sequence",		\
	  f(client) f(domain) f(seq) f(start) f(tokens) f(error))	\
	x(admit,	"a waiting sequence became resident",		\
	  f(client) f(domain) f(seq) f(tokens) f(cached) f(blocks))	\
	x(admit_stall,	"the first waiting sequence of a domain finds no room", \
	  f(client) f(domain) f(seq) f(tokens) f(error))		\
	x(evict,	"a cached block gave up its memory",		\
	  f(domain) f(block) f(kept))					\
	x(steal,	"unused or cached spans of one domain went to another", \
	  f(domain) f(owner) f(extent) f(extents))			\
	x(revoke,	"extents are asked back from another tenant",	\
	  f(domain) f(tenant) f(extent) f(extents))			\
	x(preempt,	"a sequence is to lose its memory",		\
	  f(client) f(domain) f(seq) f(cause) f(tokens) f(blocks))	\
	x(swap_out,	"a preempted sequence went to a lower tier",	\
	  f(client) f(domain) f(seq) f(cause) f(tokens) f(blocks))	\
	x(recompute,	"a preempted sequence is to be computed again",	\
	  f(client) f(domain) f(seq) f(cause) f(tokens))		\
	x(swap_in,	"a swapped sequence is being brought back",	\
	  f(client) f(domain) f(seq) f(tokens) f(blocks))		\
	x(oom,		"reclaim found no memory: see last_oom",	\
	  f(client) f(domain) f(seq) f(blocks) f(outcome) f(cause))	\
	x(limit_reclaim, "cache was evicted because its domain reached a limit", \
	  f(domain) f(blocks))						\
	x(seq_fail,	"a sequence was ended: it can never go on",	\
	  f(client) f(domain) f(seq) f(tokens) f(error))		\
	x(limit_set,	"an operator changed a limit",			\
	  f(domain) f(mark) f(value))					\
	x(pool_resize,	"an operator changed the size of the device pool", \
	  f(bytes))							\
	x(domain_create, "a domain was made",				\
	  f(domain) f(tenant))						\
	x(domain_drop,	"a domain without clients gave up its record and its cache", \
	  f(domain) f(tenant))						\
	x(client_attach, "a client attached",				\
	  f(client) f(domain) f(tenant))				\
	x(client_detach, "a client detached by itself",			\
	  f(client) f(domain) f(tenant))				\
	x(client_dead,	"a client died or was cut off",			\
	  f(client) f(domain) f(tenant))				\
	x(client_kill,	"a client is to be killed",	\
	  f(client) f(domain) f(error))					\
	x(client_resume, "a client of a kvmm that ended is back",	\
	  f(client) f(domain))						\
	x(adopt,	"this kvmm adopted the memory of one that ended", \
	  f(clients))							\
	x(device_fail,	"the device of the pool failed",		\
	  f(error))

enum core_trace_event {
#define f(name)
#define x(name, text, fields) CORE_TRACE_##name,
	CORE_TRACE_EVENTS(x, f)
#undef x
#undef f
	NR_CORE_TRACE
};

/* Number of fields of each event. */
enum {
#define f(name) + 1
#define x(name, text, fields) CORE_TRACE_NR_##name = 0 fields,
	CORE_TRACE_EVENTS(x, f)
#undef x
#undef f
};

#define CORE_TRACE_ARGS		6	/* fields of an event, at most */
#define CORE_TRACE_ALL		NR_CORE_TRACE	/* for core_trace_set() */

/**
 * struct core_trace_rec - one record
 * @ns:    time of the event, the core's
 * @event: CORE_TRACE_*
 * @arg:   its fields
 */
struct core_trace_rec {
	u64	ns;
	u32	event;
	u32	resv;
	u64	arg[CORE_TRACE_ARGS];
};

/* Outcomes for a sequence that asked when nothing could be reclaimed. */
#define CORE_OOM_OUTCOMES(x)						\
	x(victim,	"another sequence loses its memory for it")	\
	x(itself,	"it loses its own")				\
	x(refused,	"it is to ask again")				\
	x(failed,	"it is ended: it can never have so much")

enum core_oom_outcome {
#define x(name, text) CORE_OOM_##name,
	CORE_OOM_OUTCOMES(x)
#undef x
	NR_CORE_OOM_OUTCOMES
};

/* Reasons to take the best candidate of a domain, or not to. */
#define CORE_OOM_WHYS(x)						\
	x(taken,	"its family is the victim")			\
	x(none,		"its domain has no running sequence that is not marked already") \
	x(asks,		"it is the one that asks, or of its family")	\
	x(own,		"of the domain that asks, which would gain nothing") \
	x(size,		"would not help: more is asked for than the domain can ever have") \
	x(max,		"would not help: memory.max of the domain that asks is in the way") \
	x(foreign,	"of another tenant: its memory comes in whole extent runs") \
	x(before,	"comes before the one that asks")		\
	x(protected,	"memory.min of its domain protects it")		\
	x(recent,	"has had its memory for too short a time")				\
	x(later,	"could be preempted, and others are preempted first")

enum core_oom_why {
#define x(name, text) CORE_OOM_WHY_##name,
	CORE_OOM_WHYS(x)
#undef x
	NR_CORE_OOM_WHYS
};

#define CORE_OOM_ROWS	32u	/* domains in a report */

/**
 * struct core_oom_row - a domain, and its best candidate for preemption
 * @blocks:  by state, as in struct core_domain_view
 * @client:  client of the candidate; CORE_NONE: there is no candidate
 * @seq:     its number in that client
 * @why:     CORE_OOM_WHY_*
 */
struct core_oom_row {
	char	name[KVMM_NAME_LEN];
	u64	block_bytes;
	u64	limit[CORE_NR_LIMITS];
	u32	domain;
	u32	tenant;
	u32	blocks[10];
	u32	reserved;
	u32	emin;		/* blocks, in effect */
	u32	elow;
	u32	cache_floor;
	u32	nr_running;
	u32	nr_waiting;
	u32	client;
	u32	seq;
	u32	priority;
	u32	tokens;
	u32	seq_blocks;
	u32	why;
	u64	arrival;
};

/**
 * struct core_oom_view - the last time that nothing could be reclaimed
 * @nr:      number of such times, this one included; 0: none
 * @same:    number of those that followed at the same instant
 * @ns:      time
 * @client:  client of the sequence that asked
 * @seq:     number of that sequence in its client
 * @want:    blocks that it asked for
 * @outcome: CORE_OOM_*
 * @cause:   CORE_CAUSE_*, if @outcome is a preemption
 * @victim:  row of the victim's domain; CORE_NONE: none
 * @pool:    of the pools of the domain that asked, one that lacks memory; the numbers of
 *           extents are of it
 * @first_pool: the first of the @nr_pools device pools of that domain
 * @nr_free: extents in no span, and not out of use
 * @row:     @nr_rows of the @nr_domains domains, that of the sequence first
 */
struct core_oom_view {
	u64	nr;
	u64	same;
	u64	ns;
	u32	client;
	u32	seq;
	u32	family;
	u32	priority;
	u64	arrival;
	u32	want;
	u32	outcome;
	u32	cause;
	u32	victim;
	u32	nr_extents;
	u32	nr_online;
	u32	nr_free;
	u32	nr_domains;
	u64	extent_size;
	u32	nr_rows;
	u32	pool;
	u32	first_pool;
	u32	nr_pools;
	struct core_oom_row row[CORE_OOM_ROWS];
};

/**
 * struct core_trace - the memory that a shell lends
 * @written: records written since it was attached
 * @nr:      records that fit, a power of two
 */
struct core_trace {
	u64			written;
	u32			nr;
	u32			resv;
	struct core_oom_view	oom;
	struct core_trace_rec	rec[];
};

/* trace.c */
u64 core_trace_bytes(u32 nr);
void core_trace_attach(struct core *core, u64 now, void *mem, u32 nr);
int __must_check core_trace_set(struct core *core, u32 which, u64 on);
u32 core_trace_enabled(const struct core *core);
u32 core_trace_read(const struct core *core, u64 *at, u64 *written,
		    struct core_trace_rec *rec, u32 nr);

/* oom.c */
int core_get_oom(const struct core *core, struct core_oom_view *v);

#endif /* KVMM_CORE_TRACE_H */
