/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - records and functions that the files of kvmm/proc share
 *
 * A show function runs in two halves: it fetches views into buffers of struct
 * proc (snap.c, on the mm thread, no formatting), then prints them (on the
 * control thread, no core).  Buffers are allocated once, sized from the
 * core's configuration, and belong to the request that is being answered.
 */
#ifndef KVMM_PROC_INTERNAL_H
#define KVMM_PROC_INTERNAL_H

#include "kvmm/core/runs.h"
#include "kvmm/core/trace.h"
#include "kvmm/core/why.h"
#include "kvmm/proc/proc.h"

#define PROC_SLICE	256	/* records copied in one call */
#define PROC_RUNS	128	/* runs of a table copied in one call */
#define PROC_SLICE_BLOCKS 4096	/* table entries or blocks looked at in one call */
#define PROC_NAME_MAX	(4 * KVMM_NAME_LEN + 16)	/* escaped, with @id */
#define PROC_POOL_NAME	"gpu%u"	/* with the number of the device pool */
#define PROC_POOLS_NAME	24	/* room for proc_pools_name() */
#define PROC_HOST_NAME	"host0"
#define NSEC_PER_SEC	1000000000u

/* States in the core's views; a test holds them to the core's own. */
#define PROC_BLOCK_STATES	9

enum {
	PROC_EXTENT_ABSENT,
	PROC_EXTENT_CREATING,
	PROC_EXTENT_BACKED,
	PROC_EXTENT_SPAN,
	PROC_EXTENT_REVOKING,
	PROC_EXTENT_OFFLINE,
};

enum {
	PROC_CLIENT_FREE,
	PROC_CLIENT_ALIVE,
	PROC_CLIENT_DETACHED,
	PROC_CLIENT_DEAD,
};

/**
 * struct proc_node - one snapshot of all records but the long tables
 * @need:       NEED_*: the other members that were asked for
 * @events:     by CORE_EV_*
 * @pool:       all device pools together
 * @zone:       each device pool, @nr_zones of them
 * @pressure:   pressure of the node
 * @draining:   the node is drained: it refuses new work
 * @tier:       the lower pools by number; all zero: there is no such pool
 * @nr_domains: used entries of proc.domains
 * @nr_clients: used entries of proc.clients
 * @nr_tenants: used entries of proc.tenants
 */
struct proc_node {
	u32			need;
	u64			events[NR_CORE_EVENTS];
	struct core_pool_view	pool;
	struct core_pool_view	zone[CORE_MAX_ZONES + 1];
	u32			nr_zones;
	struct core_pressure_view pressure;
	struct core_tier_view	tier[CORE_NR_POOLS];
	u32			nr_domains;
	u32			nr_clients;
	u32			nr_tenants;
	bool			draining;
};

/* @key: the tenant that asks, or PROC_ALL */
struct proc {
	struct proc_source		src;
	u64				key;
	struct core_config		cfg;
	u32				nr_extents;
	struct proc_node		node;
	struct core_domain_view		*domains;
	struct core_life_view		*lives;		/* of the domains, with NEED_LIVES */
	u32				life_interval;
	struct core_lru_view		lru;
	struct core_client_view		*clients;
	struct core_tenant_view		*tenants;
	struct core_seq_view		*seqs;		/* PROC_SLICE */
	struct core_lease_view		*leases;	/* PROC_SLICE */
	struct core_extent_view		*extents;	/* PROC_SLICE */
	struct core_run			runs[PROC_RUNS];
	struct core_trace_rec		trace[PROC_SLICE];
	struct core_oom_view		oom;
	struct core_map_view		maps[PROC_SLICE];
	u8				*map;		/* blocks of these maps */
	struct core_why_view		why;
};

/**
 * struct proc_ctx - arguments of a show function
 * @proc:   holds the records that the file needs, fetched just now in one call
 * @m:      takes the text
 * @arg:    argument in the file's line of the table
 * @domain: domain in the path, else NULL
 * @client: client in the path, else NULL
 * @seq:    record of the sequence in the path
 * @event:  of CORE_TRACE_EVENTS, the event in the path
 * @bytes:  size in the path
 * @pool:   device pool in the path
 */
struct proc_ctx {
	struct proc			*proc;
	struct seq_file			*m;
	u32				arg;
	const struct core_domain_view	*domain;
	const struct core_client_view	*client;
	u32				seq;
	u32				event;
	u64				bytes;
	u32				pool;
};

/* Records that a file is printed from; names in its path may need more. */
#define NEED_POOL	BIT(0)	/* events and pool */
#define NEED_DOMAINS	BIT(1)
#define NEED_CLIENTS	BIT(2)
#define NEED_TIERS	BIT(3)
#define NEED_TENANTS	BIT(4)
#define NEED_SEQS	BIT(5)	/* names of sequences, asked for one by one */
#define NEED_LIVES	BIT(6)	/* lifetime histograms, with NEED_DOMAINS */
#define NEED_EVENTS	BIT(7)	/* names of events: nothing is fetched */
#define NEED_SIZES	BIT(10)	/* sizes of a pool; with the pools */
#define NEED_POOLS	BIT(11)	/* names of device pools; with the pools */
#define PSI_FILE(res)	(((res) + 1u) << 8)	/* of CORE_PSI_*; takes triggers */
#define PSI_RES(need)	((((need) >> 8) & 3) - 1)
#define FOR_TENANTS	BIT(31)	/* shown to a tenant, with its own records alone */
#define NEED_ALL	(NEED_POOL | NEED_DOMAINS | NEED_CLIENTS)

/*
 * Every file: path, mode, needs, show function, one line for people.
 * Components in capitals stand for names of records that exist when it is read.
 */
#define PROC_FILES(x)							\
	x("version", 0444, FOR_TENANTS, show_version,			\
	  "program, version, compiler, ABI")				\
	x("uptime", 0444, 0, show_uptime,				\
	  "seconds since start, seconds that the mm thread slept")	\
	x("status", 0444, FOR_TENANTS | NEED_DOMAINS | NEED_CLIENTS | NEED_TENANTS, show_status, \
	  "the daemon itself: process, backend, socket, epoch")		\
	x("config", 0444, NEED_DOMAINS | NEED_TIERS | NEED_TENANTS, show_config, \
	  "the running state as lines of the file of options, which kvctl save writes") \
	x("meminfo", 0444, NEED_POOL | NEED_TIERS, show_meminfo,	\
	  "where the bytes of the pools are")				\
	x("pools", 0444, NEED_ALL | NEED_TIERS, show_pools,		\
	  "one line per device pool: its size and use, its device, its domains") \
	x("vmstat", 0444, NEED_ALL, show_vmstat,			\
	  "counts of now, and counters of events")			\
	x("zoneinfo", 0444, NEED_POOL | NEED_TIERS | NEED_DOMAINS, show_zoneinfo, \
	  "the pools in pages of 4 kB, the domains in blocks, and watermarks")			\
	x("buddyinfo", 0444, NEED_POOL, show_buddyinfo,				\
	  "runs of free extents by length")				\
	x("blockmap", 0400, 0, show_blockmap,				\
	  "one line per span: the state of each of its blocks")		\
	x("extentinfo", 0444, FOR_TENANTS | NEED_TENANTS, show_extentinfo, \
	  "one line per extent: its domain, and its use")		\
	x("slabinfo", 0400, NEED_DOMAINS, show_slabinfo,		\
	  "one line per domain: its blocks and spans, as in the kernel")	\
	x("prefixcache", 0444, NEED_POOL, show_prefixcache,		\
	  "the prefix index: size, hits, evictions")			\
	x("lru_gen", 0444, NEED_DOMAINS, show_lru_gen,			\
	  "one line per domain and cache tier: the next block to evict, and its value") \
	x("swaps", 0444, NEED_TIERS, show_swaps,			\
	  "one line per swap area, as in the kernel")			\
	x("swapareas", 0444, NEED_TIERS, show_swapareas,		\
	  "one line per swap area: state, transfers, errors")		\
	x("swapstat", 0444, 0, show_swapstat,				\
	  "swapd and the requests to it")				\
	x("metrics", 0444, FOR_TENANTS | NEED_ALL | NEED_TIERS | NEED_TENANTS | NEED_LIVES, show_metrics, \
	  "all figures, in Prometheus' text format")			\
	x("last_oom", 0400, 0, show_last_oom,				\
	  "the last time that reclaim found no memory: the request, and the candidates") \
	x("kmsg", 0400, 0, show_kmsg,					\
	  "the daemon's last log lines, as in the kernel's /dev/kmsg")	\
	x("trace", 0400, 0, show_trace,					\
	  "decisions of the core, one line for each event that is switched on")	\
	x("events/enable", 0644, 0, show_events_enable,			\
	  "switches all events: 0 or 1, X where some are on")		\
	x("events/EVENT/enable", 0644, 0, show_event_enable,		\
	  "switches an event of trace: 0 or 1")				\
	x("pool/POOL/size", 0644, NEED_POOL, show_pool_size,		\
	  "bytes of a device pool that are online, or are to be")	\
	x("pool/POOL/shrink/SIZE", 0400, NEED_DOMAINS, show_shrink,	\
	  "the cost of making the pool as small as that now, one line per domain") \
	x("pressure/memory", 0666, NEED_POOL | PSI_FILE(CORE_PSI_MEMORY), show_pressure, \
	  "time lost for want of memory, as in the kernel")		\
	x("pressure/io", 0666, NEED_POOL | PSI_FILE(CORE_PSI_IO), show_pressure, \
	  "the part of this that was lost while paged-out blocks were read back")	\
	x("pressure/cpu", 0666, NEED_POOL | PSI_FILE(CORE_PSI_CPU), show_pressure, \
	  "time that requests waited while the mm thread was busy") \
	x("tenants", 0444, FOR_TENANTS | NEED_TENANTS, show_tenants,	\
	  "one line per tenant: its use, its quotas, its refusals") \
	x("domains", 0444, FOR_TENANTS | NEED_DOMAINS | NEED_TENANTS, show_domains, \
	  "one line per domain")						\
	x("domain/NAME/status", 0444, FOR_TENANTS | NEED_TENANTS, show_domain_status,		\
	  "one domain: shape, blocks, sequences")			\
	x("domain/NAME/blockstates", 0444, FOR_TENANTS, show_domain_blocks,	\
	  "its blocks by state")					\
	x("domain/NAME/groups", 0444, FOR_TENANTS, show_domain_groups,		\
	  "one line per layer group: its shape, and its blocks")	\
	x("domain/NAME/lru_gen", 0444, FOR_TENANTS, show_domain_lru,		\
	  "one line per cache tier: the next block to evict, and its value")	\
	x("domain/NAME/memory.min", 0644, FOR_TENANTS, show_memory_min,		\
	  "bytes that other domains never take")				\
	x("domain/NAME/memory.low", 0644, FOR_TENANTS, show_memory_low,		\
	  "bytes that other domains take last")				\
	x("domain/NAME/memory.high", 0644, FOR_TENANTS, show_memory_high,		\
	  "above it new sequences wait, bytes or max")			\
	x("domain/NAME/memory.max", 0644, FOR_TENANTS, show_memory_max,		\
	  "limit that is never exceeded, bytes or max")			\
	x("domain/NAME/memory.weight", 0644, FOR_TENANTS, show_memory_weight,	\
	  "its weight when domains divide unprotected memory, 100 by default")	\
	x("domain/NAME/memory.writethrough", 0644, FOR_TENANTS, show_memory_writethrough, \
	  "1: full blocks are copied to the host pool at once; 0 by default")	\
	x("domain/NAME/memory.current", 0444, FOR_TENANTS, show_memory_current,	\
	  "bytes charged now")						\
	x("domain/NAME/memory.peak", 0444, FOR_TENANTS, show_memory_peak,		\
	  "most bytes ever charged")					\
	x("domain/NAME/memory.capacity", 0444, FOR_TENANTS | NEED_POOL, show_memory_capacity, \
	  "bytes of the pool, for all domains")			\
	x("domain/NAME/memory.events", 0444, FOR_TENANTS, show_memory_events,	\
	  "how often a limit or preemption hit the domain")		\
	x("domain/NAME/memory.pressure", 0666, FOR_TENANTS | PSI_FILE(CORE_PSI_MEMORY), show_pressure, \
	  "time that its sequences lost for want of memory")		\
	x("domain/NAME/io.pressure", 0666, FOR_TENANTS | PSI_FILE(CORE_PSI_IO), show_pressure, \
	  "the part of this that they lost while paged-out blocks were read back") \
	x("clients", 0444, FOR_TENANTS | NEED_CLIENTS | NEED_TENANTS, show_clients, \
	  "one line per attached process")				\
	x("client/ID/status", 0444, FOR_TENANTS | NEED_DOMAINS | NEED_TENANTS, show_client_status, \
	  "one client: process, sequences, steps")			\
	x("client/ID/seqs", 0444, FOR_TENANTS, show_client_seqs,	\
	  "one line per sequence")					\
	x("client/ID/leases", 0444, FOR_TENANTS, show_client_leases,	\
	  "one line per lease: what it holds, and until when")		\
	x("client/ID/smaps_rollup", 0444, FOR_TENANTS | NEED_DOMAINS, show_client_rollup, \
	  "memory of its sequences, as in the kernel")			\
	x("client/ID/seq/SEQ/maps", 0444, FOR_TENANTS | NEED_DOMAINS, show_seq_maps, \
	  "one line per range of blocks, as in the kernel")			\
	x("client/ID/seq/SEQ/smaps", 0444, FOR_TENANTS | NEED_DOMAINS, show_seq_smaps, \
	  "the same, and how much of it is shared")			\
	x("client/ID/seq/SEQ/explain", 0444, FOR_TENANTS | NEED_DOMAINS, show_seq_explain, \
	  "why it waits, and its last preemption")

/*
 * The files below sys/vm, each a member of struct core_config: these, which are fixed at
 * start, and KVMM_TUNABLES(), which can be written.
 */
#define PROC_SYS_VM_FIXED(x)						\
	x(pool_bytes,	     "bytes of the device pool")		\
	x(extent_size,	     "bytes of an extent")			\
	x(min_token_bytes,   "least KV bytes of a token")		\
	x(max_tenants,	     "tenants known at once")			\
	x(max_domains,	     "domains known at once")			\
	x(max_clients,	     "clients attached at once")		\
	x(max_seqs,	     "sequences of one client")			\
	x(nr_tables,	     "table pages of one client")		\
	x(nr_idpages,	     "pages of token ids for waiting sequences") \
	x(max_steps,	     "steps open for one client")		\
	x(step_deadline_ns,  "age at which an open step is fatal while a sequence waits") \
	x(quiet_deadline_ns, "time from hanging up to being killed")	\
	x(revoke_deadline_ns, "time to give an extent back before being killed") \
	x(starve_ns,	     "wait after which other domains are preempted") \
	x(host_bytes,	     "bytes of the host pool")			\
	x(area_bytes,	     "most bytes used of one swap area")

/* Several files may have the same show function. */
#define x(path, mode, need, show, text)				\
	int __must_check show(const struct proc_ctx *ctx);
PROC_FILES(x)
#undef x
int __must_check show_sys_vm(const struct proc_ctx *ctx);

/* snap.c: these call the mm thread by proc.src.call */
int __must_check proc_fetch_config(struct proc *proc);
int __must_check proc_fetch_node(struct proc *proc, u32 need);
int __must_check proc_fetch_lru(struct proc *proc, u32 domain);
int __must_check proc_fetch_check(struct proc *proc, struct core_report *rep);

/*
 * struct proc_slice - a slice of a long table
 * @next:       first record that was not visited
 * @nr:         records found, in proc.seqs, proc.leases or proc.extents
 * @generation: sum of all event counters when the slice was copied
 */
struct proc_slice {
	u32	next;
	u32	nr;
	u64	generation;
};

int __must_check proc_fetch_seqs(struct proc *proc, u32 client,
				 struct proc_slice *slice);
int __must_check proc_fetch_leases(struct proc *proc, u32 client,
				   struct proc_slice *slice);
int __must_check proc_fetch_extents(struct proc *proc,
				    struct proc_slice *slice);

/**
 * struct proc_trace - a slice of the ring
 * @at:      number of the first record that was not copied
 * @nr:      records found, in proc.trace
 * @lost:    records before them that were overwritten before they could be copied
 * @written: records written when the slice was copied
 */
struct proc_trace {
	u64	at;
	u32	nr;
	u64	lost;
	u64	written;
};

int __must_check proc_fetch_trace(struct proc *proc, struct proc_trace *t);
int __must_check proc_fetch_enabled(struct proc *proc, u32 *events);
int __must_check proc_fetch_oom(struct proc *proc);
int __must_check proc_fetch_map(struct proc *proc, struct proc_slice *slice);
int __must_check proc_fetch_shrink(struct proc *proc, u32 pool, struct core_shrink *s,
				   u64 bytes, int *answer, struct proc_slice *first,
				   struct proc_slice *last);
int __must_check proc_fetch_runs(struct proc *proc, u32 seq, u32 *at);
u32 proc_seq_record(const struct proc *proc, const struct core_seq_view *v);

/* tree.c */
int __must_check proc_tree_cat(struct proc *proc, const char *path,
			       struct seq_file *out);
int __must_check proc_tree_ls(struct proc *proc, const char *path,
			      struct seq_file *out);
int __must_check proc_tree_stat(struct proc *proc, const char *path,
				struct seq_file *out);
int __must_check proc_tree_trigger(struct proc *proc, const char *path,
				   struct proc_trigger *t);

/* domain.c, client.c: names in paths; these search the last node that was fetched */
void proc_domain_name(const struct proc *proc,
		      const struct core_domain_view *d, struct seq_file *m);
const struct core_domain_view *proc_domain_by_name(const struct proc *proc,
						   const char *name,
						   size_t len);
const struct core_domain_view *proc_domain_by_id(const struct proc *proc,
						 u32 id);
/* @nr device pools from @first on: gpu0, or gpu0-gpu1 if they are several. */
void proc_pools_name(u32 first, u32 nr, char *name);
bool proc_domain_is_in(const struct core_domain_view *d, u32 pool);
const struct core_client_view *proc_client_by_name(const struct proc *proc,
						   const char *name,
						   size_t len);

/* tenant.c: one word for the cause of a drain, such as core_client_view.drain */
const char *proc_drain_name(u32 drain);

/* Sums over clients. */
struct proc_client_sum {
	u64	seqs;
	u64	running;
	u64	waiting;
	u64	leases;
	u64	steps;
};

/* Estimate of the memory for new sequences without preemption. */
static inline u64 pool_available(const struct core_pool_view *p)
{
	u64 have = p->free_extents + p->free + p->cached;

	return have > p->committed ? have - p->committed : 0;
}

static inline u64 tier_free(const struct core_tier_view *v)
{
	return v->total - v->used - v->limbo - v->poison;
}

/* node.c */
void proc_areas_sum(const struct proc_node *n, struct core_tier_view *sum);
void proc_clients_sum(const struct proc *proc, struct proc_client_sum *sum);

/* swap.c */
bool proc_area_get(const struct proc_ctx *ctx, u32 i,
		   const struct core_tier_view **v,
		   struct proc_swap_area *info);
void proc_swap_get(const struct proc_ctx *ctx, struct proc_swap_info *info);

/* tenant.c */
void proc_tenant_info(const struct proc *proc, u64 key,
		      struct proc_tenant_info *info);
const char *proc_tenant_name(const struct proc *proc, u32 tenant,
			     struct proc_tenant_info *info);

/* shrink.c */
void proc_shrink_ls(const struct proc_ctx *ctx);

/* extent.c */
const char *proc_extent_state(u32 state);

/* trace.c */
int proc_event_by_name(const char *name, size_t len);
const char *proc_event_name(u32 event);

/* format.c: the kernel's ways to print a line */
void proc_show_kb(struct seq_file *m, const char *key, u64 bytes);
void proc_show_limit(struct seq_file *m, u64 bytes, u32 shift, int width);
void proc_show_count(struct seq_file *m, const char *key, u64 count);
void proc_show_begin(const struct proc_ctx *ctx, const struct proc_slice *slice);
void proc_show_end(const struct proc_ctx *ctx, const struct proc_slice *slice);
u64 proc_now(const struct proc *proc);

#endif /* KVMM_PROC_INTERNAL_H */
