/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core.h - the interface of the core: all that a shell may call
 *
 * The core is a deterministic machine.  Inputs are events: a request, a finished
 * command, a dead client, a tick; each carries the time.  Outputs are commands
 * through struct core_ops, and words written into the segments that a shell
 * passed at bind.  The daemon's mm thread is one shell, the simulator another.
 *
 * Context: everything here runs on the one thread that owns the core.  Nothing
 * sleeps, allocates, reads a clock or draws a random number.  Times are
 * CLOCK_MONOTONIC nanoseconds and never go backwards.
 */
#ifndef KVMM_CORE_H
#define KVMM_CORE_H

#include <uapi/kvmm.h>
#include <kvmm/crash.h>
#include <kvmm/tunables.h>
#include <kvmm/types.h>

#include "kvmm/core/stat.h"

#define CORE_NONE		0xffffffffu
#define CORE_SECRET_LEN		192	/* bytes of a tenant's hash secret */
#define CORE_MAX_STEP_ENTRIES	1024	/* entries of one STEP_BEGIN */
#define CORE_MAX_BATCH		1024	/* entries of any request */
#define CORE_SPAN_MAX		8	/* extents of a span, at most */
#define CORE_POOL_LIMIT		(16ull << 40)	/* bytes of a pool are less than this */
#define CORE_MAX_AREAS		4	/* swap areas at once */
#define CORE_MAX_MOVES		64	/* copies inside the device at once */
#define CORE_MAX_ZONES		8	/* device pools at once */
#define CORE_SLOT_HEADER	4096u	/* bytes of a slot before its payload */

/* Pools, in the order of their extents. */
#define CORE_POOL_DEV		0
#define CORE_POOL_HOST		1
#define CORE_POOL_AREA		2	/* the first area */
#define CORE_NR_POOLS		(CORE_POOL_AREA + CORE_MAX_AREAS)

/**
 * struct core_config - sizes, fixed for the life of the arena
 * @pool_bytes:       most bytes of all device pools; a multiple of @extent_size
 * @more_bytes:       of these, bytes of the device pools after the first, in their
 *                    order, each a multiple of @extent_size; 0: no more pools
 * @extent_size:      bytes, a power of two
 * @min_token_bytes:  the least KV bytes a token of a domain may have; sizes
 *                    the block records and the ids kept for sealed blocks
 * @max_tenants:      tenants known at once
 * @max_domains:      domains known at once
 * @max_clients:      clients attached at once, at most 64
 * @max_seqs:         sequences of one client
 * @nr_tables:        table pages of one client; 0: derived
 * @nr_idpages:       pages of 126 ids for waiting sequences, divided equally
 *                    among @max_clients; 0: derived
 * @max_steps:        open steps of one client, at most KVMM_MAX_STEPS
 * @step_deadline_ns: a client with a step open for longer is killed when a
 *                    sequence waits for memory
 * @quiet_deadline_ns: a client that hung up but lives is killed after this
 * @revoke_deadline_ns: a client that keeps a revoked extent for longer is
 *                    killed; 0: 2 s
 * @starve_ns:        after this the longest-waiting sequence may preempt other
 *                    domains; an extent stays with a tenant for as long
 * @io_deadline_ns:   a sequence that waits for a request to an area without any
 *                    answer for longer computes its tokens again; 0: it waits
 * @host_bytes:       bytes of the host pool, a multiple of @extent_size; 0: none
 * @area_bytes:       most bytes of one swap area, likewise; 0: no swap
 * @event_work:       work on waiting sequences in one event, in units of about
 *                    10 ns; the rest is left to the next event; 0: 32768
 * @boot:             id of the kernel's boot, since times are of one boot
 * @named_tenants:    records of @max_tenants that only named tenants get
 *                    (core_quota.named); less than all
 *
 * The tunables, which an operator may change, are members too: a u32 for each line
 * of KVMM_TUNABLES().
 */
struct core_config {
	u64	pool_bytes;
	u64	more_bytes[CORE_MAX_ZONES - 1];
	u64	extent_size;
	u32	min_token_bytes;
	u32	max_tenants;
	u32	max_domains;
	u32	max_clients;
	u32	max_seqs;
	u32	nr_tables;
	u32	nr_idpages;
	u32	max_steps;
	u64	step_deadline_ns;
	u64	quiet_deadline_ns;
	u64	revoke_deadline_ns;
	u64	starve_ns;
	u64	io_deadline_ns;
	u64	host_bytes;
	u64	area_bytes;
#define x(type, name, ...) u32 name;
	KVMM_TUNABLES(x)
#undef x
	u32	event_work;
	u32	named_tenants;
	u64	boot[2];
};

/* core_config.overcommit: the kernel's values. */
#define CORE_OVERCOMMIT_GUESS	0u	/* admit by prompts and running sequences */
#define CORE_OVERCOMMIT_NEVER	2u	/* admit by prompts and max_tokens, within CommitLimit */


/**
 * struct core_copy - copy one block
 * @id:       for core_copy_done()
 * @within:   inside the device pool, to @dev_to; else between it and the host
 * @to_host:  else from the host
 * @dev_off:  bytes from the base of the device pool
 * @dev_to:   likewise
 * @host_off: bytes from the base of the host pool, of the payload
 * @bytes:    bytes of each part of the block; in the host pool the parts lie one
 *            behind another
 * @nr_shards: parts of the block, one in each device pool of the domain
 * @shard_off: bytes from the first part to each of them, in the device pool; also from
 *            @dev_to
 */
struct core_copy {
	u64	id;
	bool	within;
	bool	to_host;
	u64	dev_off;
	u64	dev_to;
	u64	host_off;
	u64	bytes;
	u32	nr_shards;
	u64	shard_off[CORE_MAX_ZONES];
};

/**
 * struct core_io - transfer one slot between the host pool and an area
 * @id:       for core_io_done()
 * @write:    else read
 * @area:     0 to CORE_MAX_AREAS - 1
 * @host_off: bytes from the base of the host pool, of the slot's header
 * @area_off: bytes from the start of the area's slots
 * @len:      bytes of header and payload, rounded up to 4096
 * @payload:  bytes of the payload
 * @domain:   the domain; this and the next two are checked on every read
 * @hash:     name of the content
 * @generation: number of the write of the slot
 */
struct core_io {
	u64	id;
	bool	write;
	u32	area;
	u64	host_off;
	u64	area_off;
	u32	len;
	u32	payload;
	u32	domain;
	u64	hash[2];
	u64	generation;
};

/**
 * struct core_ops - commands to the shell
 * @extent_create:  make memory for @extent, zeroed, never mapped by any other
 *                  tenant; answer with core_extent_created()
 * @extent_release: give the extent's memory back to the system; every client
 *                  said that it has it unmapped, which may be a lie
 * @extent_send:    pass the extent's descriptor to @client; the client
 *                  answers with EXTENT_ACK
 * @wake:           events or statuses were published for @client
 * @kill:           end the process of @client; answer with core_client_dead()
 *                  and core_client_quiet()
 * @kill_ghosts:    end the lingering processes of @tenant; answer with
 *                  core_ghost_gone() or core_client_dead() for each; NULL: they
 *                  cannot reach released memory, so past the deadline they do
 *                  not count
 * @trigger:        a trigger of core_trigger_add() fired; may be NULL
 * @trigger_gone:   a trigger ended with its domain; may be NULL
 * @copy:           answer with core_copy_done(); never refused; may be NULL
 *                  without a host pool: then no block is moved
 * @io:             answer with core_io_done(), however late; never refused
 * @crash:          for tests: the core passes CORE_CRASH_@point, and may be
 *                  ended there; NULL elsewhere
 *
 * None may call back into the core before the event that issued it returned.
 */
struct core_ops {
	void	(*extent_create)(void *arg, u32 extent, u32 generation);
	void	(*extent_release)(void *arg, u32 extent);
	void	(*extent_send)(void *arg, u32 client, u32 extent,
			       u32 generation);
	void	(*wake)(void *arg, u32 client);
	void	(*kill)(void *arg, u32 client, int reason);
	void	(*kill_ghosts)(void *arg, u32 tenant);
	void	(*trigger)(void *arg, u32 trigger);
	void	(*trigger_gone)(void *arg, u32 trigger);
	void	(*copy)(void *arg, const struct core_copy *cp);
	void	(*io)(void *arg, const struct core_io *io);
	void	(*crash)(void *arg, u32 point);
};

/**
 * struct core_bind - memory in which the core publishes for one client
 * @ctl:     the daemon's control words: state, reason, pressure, committed,
 *           event_tail (ring indices belong to the shell)
 * @seqs:    status records, @max_seqs of them
 * @extents: one record for each extent
 * @tables:  shadow pages, nr_tables of them
 * @events:  ring of @nr_events, a power of two
 */
struct core_bind {
	struct kvmm_daemon_ctl		*ctl;
	struct kvmm_seq_status		*seqs;
	struct kvmm_extent_status	*extents;
	struct kvmm_table_page		*tables;
	struct kvmm_event		*events;
	u32				nr_events;
};

/* Facts of an attachment that the shell builds the client's segments from. */
struct core_attach_info {
	u32	client;
	u32	domain;
	u32	pool;		/* first device pool of the domain */
	u32	shards;		/* device pools of the domain, from @pool on */
	u32	tenant;
	u32	unit;
	u32	max_seqs;
	u32	nr_tables;
	u32	max_steps;
	u32	nr_extents;
	u32	pool_extents;	/* of the smallest device pool of the domain */
	u32	span_extents;
	u32	span_blocks;
	u64	span_tail;
	u64	stride[KVMM_MAX_GROUPS];
	u64	shard_off[CORE_MAX_ZONES];	/* as in struct core_copy */
	u64	block_bytes;
	u32	dropped_blocks;	/* blocks that were cached under this name and are dropped */
	char	replaced[KVMM_NAME_LEN];	/* another domain, dropped with its cache */
	bool	moved;		/* of this model; it was in other device pools */
	bool	elsewhere;	/* refused: the domain is in use in the pool @old_pool */
	u32	old_pool;	/* first device pool that the domain was or is in */
	u32	old_shards;	/* number of them */
	bool	cut;		/* a limit was larger than the tenant's quota allows */
	u32	small_token;	/* refused: KV bytes of a token, less than the least; or 0 */
	const char *text;	/* reason of a refusal, or NULL */
};

/**
 * struct core_quota - limits of a tenant, which the shell gives at each attach
 * @named:       an operator named the tenant: a record is kept for it
 * @max_domains: domains, with clients or without
 * @max_min:     bytes of memory.min that its clients may ask for in all of its
 *               domains together, and as much memory.low; limits that an
 *               operator set do not count
 * @max_weight:  largest weight that its clients may ask for
 */
struct core_quota {
	u32	named;
	u32	max_domains;
	u64	max_min;
	u32	max_weight;
};

struct core;

/* core.c */
size_t core_struct_size(void);
u64 core_arena_size(const struct core_config *cfg);
int __must_check core_init(struct core *core, void *arena, u64 arena_bytes,
			   const struct core_config *cfg,
			   const struct core_ops *ops, void *ops_arg);
void core_tick(struct core *core, u64 now);
bool core_poll(struct core *core, u64 now);

struct core_report;

/*
 * adopt.c: a core goes on in the arena of a core that ended.  These are the
 * kinds of adoption; see Documentation/core.md.
 */
enum {
	CORE_ADOPT_WHOLE,	/* all state is kept */
	CORE_ADOPT_SALVAGED,	/* content is kept, sequences begin anew */
};

u64 core_arena_layout(void);
int __must_check core_adopt(struct core *core, void *arena, u64 bytes,
			    const struct core_config *cfg,
			    const struct core_ops *ops, void *ops_arg, u64 now,
			    struct core_report *report);
void core_adopt_lost(struct core *core, u64 now, u32 area);
void core_adopt_ghosts(struct core *core, u32 tenant, u32 nr);
void core_commit_begin(struct core *core);
void core_commit_end(struct core *core, u32 client);

/* resume.c: clients of an adopted arena come back */
int __must_check core_client_resume(struct core *core, u64 now, u32 client,
				    u64 seen, struct core_attach_info *info,
				    u64 *committed);

/* client.c */
int __must_check core_client_attach(struct core *core, u64 now,
				    u64 tenant_key, const u8 *secret,
				    const struct kvmm_attach_req *req,
				    struct core_attach_info *info);
int __must_check core_client_attach_within(struct core *core, u64 now,
					   u64 tenant_key, const u8 *secret,
					   const struct core_quota *quota,
					   const struct kvmm_attach_req *req,
					   struct core_attach_info *info);
void core_client_bind(struct core *core, u32 client,
		      const struct core_bind *bind);
void core_client_dead(struct core *core, u64 now, u32 client);
void core_client_quiet(struct core *core, u64 now, u32 client);
void core_ghost_gone(struct core *core, u64 now, u32 tenant);
void core_client_eproto(struct core *core, u64 now, u32 client);
void core_shutdown(struct core *core, u64 now);

/*
 * device.c: states of the pool's device, and the report that one changed
 */
enum {
	CORE_DEVICE_WORKS,
	CORE_DEVICE_CUT,	/* nothing can be copied, no memory made */
	CORE_DEVICE_LOST,	/* likewise, and the content of its memory is unknown */
};

void core_device_failed(struct core *core, u64 now, u32 pool, u32 how);
const char *core_device_name(u32 device);

/* extent.c */
void core_extent_created(struct core *core, u64 now, u32 extent, int status);

/* tier_io.c */
void core_copy_done(struct core *core, u64 now, u64 id, int status);
void core_io_done(struct core *core, u64 now, u64 id, int status);

/* stall.c */
u32 core_get_stalled(const struct core *core);
/* index.c */
int core_drop_caches(struct core *core, u64 now, u32 domain, u32 most);

/* area.c */
int __must_check core_area_add(struct core *core, u64 now, u64 bytes, int prio,
			       u32 *area);
int __must_check core_area_del(struct core *core, u64 now, u32 area);

/* area_move.c */
void core_area_lose(struct core *core, u64 now, u32 area);

/* resize.c */
int __must_check core_pool_resize(struct core *core, u64 now, u32 pool, u64 bytes);

/**
 * struct core_shrink_view - cost of a smaller device pool for a domain
 * @lost:       blocks of cache whose content is forgotten
 * @lost_below: of these, blocks that only a lower tier has: they follow lost ones
 * @kept:       evicted blocks that stay in the host pool [0], or in areas [1]
 * @moved:      blocks of sequences that move inside the device
 * @evicted:    blocks of cache in the rest of the pool that are evicted for these;
 *              part of @lost and @kept
 * @swapped:    sequences that are preempted and swapped out
 * @recomputed: sequences that are preempted and computed again
 * @tokens:     valid tokens of these
 * @too_large:  open sequences that fail, because they no longer fit alone
 * @bound:      @lost is the least number, or @swapped and @recomputed are the most
 */
struct core_shrink_view {
	u64	lost;
	u64	lost_below;
	u64	kept[2];
	u64	moved;
	u64	evicted;
	u64	swapped;
	u64	recomputed;
	u64	tokens;
	u64	too_large;
	bool	bound;
};

/* shrink.c: the cost of a smaller pool, computed in slices */
struct core_shrink;

u64 core_shrink_bytes(const struct core_config *cfg);
int __must_check core_shrink_begin(const struct core *core, struct core_shrink *s,
				   u32 pool, u64 bytes);
bool core_shrink_next(const struct core *core, struct core_shrink *s);
void core_shrink_get(const struct core_shrink *s, u32 dom, struct core_shrink_view *v);

/* limit.c */
#define CORE_WEIGHT_DEFAULT	100u
#define CORE_WEIGHT_MAX		10000u

/* Limits of a domain that an operator may change: name, file, text. */
#define CORE_LIMITS(x)							\
	x(MIN, "memory.min", "bytes that others never take")		\
	x(LOW, "memory.low", "bytes that others take last")		\
	x(HIGH, "memory.high", "bytes above which admissions wait")	\
	x(MAX, "memory.max", "bytes that are never exceeded")		\
	x(WEIGHT, "memory.weight", "share of the surplus, 1 to 10000")	\
	x(WRITETHROUGH, "memory.writethrough", "1: full blocks are copied down at once")

enum core_limit {
#define x(name, file, text) CORE_LIMIT_##name,
	CORE_LIMITS(x)
#undef x
	CORE_NR_LIMITS
};

int __must_check core_domain_set(struct core *core, u64 now, u32 domain,
				 u32 which, u64 value);
int __must_check core_domain_begin(struct core *core, u64 now, u32 domain,
				   u32 which, u64 value);
int __must_check core_domain_unset(struct core *core, u64 now, u32 domain,
				   u32 which);

/* operate.c: levels at which new work can be refused */
enum {
	CORE_DRAIN_NODE,
	CORE_DRAIN_TENANT,
	CORE_DRAIN_CLIENT,
};

int __must_check core_evict(struct core *core, u64 now, u32 domain, u32 most);
int __must_check core_drain(struct core *core, u64 now, u32 what, u32 id,
			    bool on);
bool core_get_drain(const struct core *core);

/* tune.c */
enum core_tunable {
#define x(type, name, ...) CORE_TUNE_##name,
	KVMM_TUNABLES(x)
#undef x
	CORE_NR_TUNABLES
};

int __must_check core_tune(struct core *core, u64 now, u32 which, u64 value);

/* psi.c */
int __must_check core_trigger_add(struct core *core, u64 now, u32 domain,
				  u32 res, bool full, u64 threshold_ns,
				  u64 window_ns);
void core_trigger_del(struct core *core, u32 trigger);
void core_cpu_waited(struct core *core, u64 some_ns, u64 full_ns);

/**
 * struct core_req - a request that was checked and may be executed
 * @sqe:        the shell's own copy
 * @args:       the shell's own copy of the argument bytes, 8-byte aligned
 * @nr_results: result records that it writes
 * @result_size: bytes of one record
 */
struct core_req {
	struct kvmm_sqe	sqe;
	const void	*args;
	u32		nr_results;
	u32		result_size;
};

/* request.c */
int __must_check core_req_check(struct core *core, u32 client,
				const struct kvmm_sqe *sqe, const void *args,
				u32 args_len, struct core_req *req);
int core_req_execute(struct core *core, u64 now, u32 client,
		     const struct core_req *req, void *results);

/* check.c: the walkers */
struct core_report {
	u32	nr_faults;
	char	text[512];	/* the first fault */
};

int core_check(const struct core *core, struct core_report *report);

/* view.c: copies for the files under /proc */

/* Two of the states of a block, the index of counts in the views below. */
#define CORE_BLK_FREE	0u
#define CORE_BLK_CACHED	3u

/* The partition of law 1, in bytes; the members after @total are overlays. */
#define CORE_POOL_PARTS(x)						\
	x(free_extents,	"in no span")					\
	x(free,		"blocks of spans, in no use")			\
	x(open,		"tails: being written")				\
	x(sealed,	"full blocks of sequences")			\
	x(cached,	"full blocks that only the prefix index holds")	\
	x(quiescing,	"released, a step that saw them is open")	\
	x(quarantine,	"a dead client may still write them")		\
	x(limbo,	"named by a copy or I/O that is not over")	\
	x(revoking,	"in extents that are being taken back")		\
	x(poison,	"lost to an error of the device")		\
	x(tails,	"ends of spans that hold no block")		\
	x(offline,	"taken out of use by an operator")	\
	x(reserved,	"metadata and staging")

struct core_pool_view {
#define x(name, text) u64 name;
	CORE_POOL_PARTS(x)
#undef x
	u64	total;
	u64	committed;	/* reserved for admitted prompts; part of @free */
	u64	committed_as;	/* most that running sequences could come to hold, see commit.c */
	u64	commit_limit;
	u64	wmark[3];	/* min, low, high: sums over domains */
	u64	shared;		/* mapped by more than one sequence */
	u64	indexed;	/* sealed or cached blocks in the index */
	u64	capacity_seqs;
	u32	nr_extents;
	u32	nr_free_extents;
	u32	nr_online;	/* extents in use; after a shrink: those that will be */
	u32	resizing;
	u32	device;		/* CORE_DEVICE_* */
	u32	resv;
	u64	extent_size;
};

enum { CORE_PSI_SOME, CORE_PSI_FULL, CORE_PSI_NR_KINDS };
enum { CORE_PSI_MEMORY, CORE_PSI_IO, CORE_PSI_CPU, CORE_PSI_NR_RES };
#define CORE_PSI_NR_AVGS 3
#define CORE_NR_TRIGGERS 64

/* Time lost for lack of memory, I/O and CPU, see psi.c; CPU: the node only. */
struct core_pressure_view {
	u64	total_ns[CORE_PSI_NR_RES][CORE_PSI_NR_KINDS];
	/* per cent * 100 */
	u32	avg[CORE_PSI_NR_RES][CORE_PSI_NR_KINDS][CORE_PSI_NR_AVGS];
	u32	nr_stalled;
	u32	nr_restoring;	/* waiting for I/O, part of nr_stalled */
	u32	nr_productive;
	u32	level;
};

/**
 * struct core_work - tokens that the steps of a domain computed
 * @prompt: of prompts, also those computed again
 * @output: behind prompts, without those that preemption had computed again
 * @first:  prompts computed for the first time
 * @first_ns: sum of the times from the opening of their sequences until then
 */
struct core_work {
	u64	prompt;
	u64	output;
	u64	first;
	u64	first_ns;
};

/**
 * struct core_group_view - a layer group of a domain
 * @shape:   as the clients gave it, with its block_tokens
 * @padding: bytes of a block that no token of the group uses
 * @mapped:  blocks that sequences map, a shared one once for each
 * @width:   blocks of a record; 1 where the group has none
 */
struct core_group_view {
	struct kvmm_group	shape;
	u64			padding;
	u64			mapped;
	u32			width;
};

struct core_domain_view {
	u32	id;
	u32	tenant;
	u32	pool;		/* its first device pool */
	u32	shards;		/* device pools that it is in; all bytes are those of each */
	char	name[KVMM_NAME_LEN];
	u32	block_tokens;	/* of layer group 0 */
	u64	block_bytes;	/* of each group */
	u32	nr_groups;
	u32	hit_tokens;	/* least common multiple of their block_tokens */
	struct core_group_view group[KVMM_MAX_GROUPS];
	u32	nr_clients;
	u32	nr_spans;
	u64	blocks[10];	/* by state */
	u64	reserved;
	u64	room;		/* free blocks that are not reserved */
	u64	wmark[3];	/* min, low, high, in blocks */
	u64	cache_floor;	/* blocks of cache that other domains leave it */
	u64	committed_as;	/* in blocks, like the pool's */
	u64	commit_limit;
	u32	nr_spans_full;
	u32	nr_spans_empty;
	u64	limit[CORE_NR_LIMITS];	/* as set, by CORE_LIMIT_* */
	u32	by_operator;	/* limits that an operator set, a bit each */
	u64	operator_limit[CORE_NR_LIMITS];
	u64	emin_bytes;	/* memory.min in effect */
	u64	elow_bytes;
	u64	max_bytes;
	u64	current_bytes;
	u64	peak_bytes;
	u32	nr_waiting;
	u32	nr_running;
	u32	nr_leases;
	u32	leased;		/* blocks that leases hold; one of two leases counts twice */
	u32	nr_max_events;	/* times that max_bytes refused a request */
	u32	nr_high_events;	/* times that memory.high held up a request */
	u32	demoting;	/* a request waits for copies of the domain's evicted blocks */
	u32	nr_low_events;	/* times that it lost memory below memory.low */
	u32	nr_preempted;	/* sequences that lost their memory */
	struct core_work work;
	u64	tail_bytes;	/* of blocks of running sequences, room for tokens
				 * beyond the written ones */
	struct core_pressure_view pressure;
};

/*
 * Times of at most each bound and more than the bound before; last: all longer.
 */
struct core_hist {
	u64	count[CORE_LIFE_BOUNDS + 1];
	u64	sum_ns;
};

/* Counts of a domain, see life.c. */
struct core_life_view {
	struct core_hist	hist[NR_CORE_LIVES];
	u64			preempted[NR_CORE_CAUSES][2]; /* 1: swapped */
	u64			lost_tokens[NR_CORE_CAUSES];
};

/* The memory of a tenant; the shell knows its name. */
struct core_tenant_view {
	u32	id;
	u64	key;
	u32	nr_clients;	/* attached, or dead and not quiet yet */
	u32	nr_domains;
	u32	nr_ghosts;	/* lingering processes of detached clients */
	u64	backed_bytes;	/* bytes of its extents */
	u64	current_bytes;	/* used by its domains, in all of their device pools */
	u64	min_bytes;	/* memory.min that its clients asked for, as granted */
	u32	drain;		/* bit set of CORE_DRAIN_* */
	u32	resv;
};

struct core_client_view {
	u32	id;
	u32	domain;
	u32	tenant;
	u32	state;
	u32	nr_seqs;	/* with leases */
	u32	nr_running;
	u32	nr_waiting;
	u32	nr_leases;
	u32	open_steps;
	u32	away;		/* adopted, not resumed yet: 1, or 2: salvaged */
	u32	begun;		/* steps that it began since it attached, modulo 2^32 */
	u32	drain;		/* as in core_tenant_view */
	u32	leader;		/* client that opens the sequences; CORE_NONE: it has gone */
	u32	shards;		/* bit set of the domain's shards that it maps */
	u64	pinned_since;	/* begin of the oldest open step, or 0 */
	u64	blocks;		/* that its sequences map, a shared one once for each */
	u64	mapped[KVMM_MAX_GROUPS];	/* of these, in each layer group */
	u64	tail_bytes;	/* as in core_domain_view */
};

/* State of a lease in the views; its client sees KVMM_SEQ_SWAPPED. */
#define CORE_SEQ_LEASED	KVMM_NR_SEQ_STATES

struct core_seq_view {
	u32	client;
	u32	domain;
	u64	seq;
	u32	state;		/* KVMM_SEQ_*, CORE_SEQ_LEASED */
	u32	family;
	u32	priority;
	u32	valid_len;
	u32	prompt_len;
	u32	max_tokens;
	u32	nr_blocks;
	u32	nr_shared;
	u32	seq_epoch;
	u32	nr_preempted;
	u64	arrival;
};

/**
 * struct core_lease_view - a lease
 * @seq:      its handle
 * @number:   names it to all clients of the domain
 * @until:    CLOCK_MONOTONIC ns at which it ends
 * @nr_blocks: blocks that it holds
 * @tokens:   tokens of these
 * @on:       of these, tokens on each KVMM_TIER_*; the highest tier of a block counts,
 *            and with several groups the slowest of the blocks that have the tokens
 * @lost:     of these, tokens whose copy failed
 * @promoted: its content is being brought to the device
 * @label:    of its client, with a NUL
 */
struct core_lease_view {
	u32	client;
	u32	domain;
	u64	seq;
	u64	number;
	u64	until;
	u32	nr_blocks;
	u32	tokens;
	u32	on[KVMM_NR_LOOKUP_TIERS];
	u32	lost;
	u32	promoted;
	char	label[KVMM_LABEL_LEN + 1];
};

struct core_extent_view {
	u32	extent;
	u32	pool;		/* device pool */
	u32	state;
	u32	tenant;
	u32	domain;
	u32	span_blocks;
	u32	span_free;
	u32	span_open;
	u32	span_cached;
	u32	span_pinned;	/* quiescing, or named by a copy or I/O */
	u32	span_quarantine;
	u32	span_poison;
	u32	looked;		/* blocks that were counted for these three */
	u32	generation;	/* number of times that its memory was made */
	u32	backed;		/* it has memory */
	u64	mapped;		/* bit set of clients */
};

/**
 * struct core_map_view - a span, or a row of extents in no span, all alike
 * @first:     first extent
 * @nr:        number of extents
 * @state:     as in core_extent_view
 * @domain:    owner of the span, else CORE_NONE
 * @nr_blocks: blocks of the span, else 0
 */
struct core_map_view {
	u32	first;
	u32	nr;
	u32	state;
	u32	domain;
	u32	nr_blocks;
};

#define CORE_MAP_SHARED	0x80u	/* flag beside a block's state: several sequences map it */

/* The host pool or an area; all in bytes. */
struct core_tier_view {
	u32	online;
	s32	prio;
	u64	total;
	u64	used;		/* slots that hold content */
	u64	needed;		/* slots whose content sequences need, filled or not */
	u64	limbo;		/* slots named by unfinished requests */
	u64	poison;		/* slots that failed */
	u64	errors;
	u32	bad[2];		/* recent failures of reads and writes */
	u64	rate[2];	/* measured, bytes a second; 0: not known yet */
	u32	nr_ios;		/* requests in flight */
	u32	nr_overdue;	/* part of nr_ios, not answered in time */
	u32	readonly;
	u32	resv;
};

#define CORE_LRU_TIERS	16

/* The cache of a domain by tier, see lru.c. */
struct core_lru_view {
	struct {
		u32	found;	/* times that its names were found, at least */
		u32	class;	/* class of the interval, or of the tokens that came in */
		u32	nr;	/* candidates for eviction */
		u32	low;	/* of these, with low retention */
		u32	high;
		u32	oldest;	/* age of the next one, in per cent of the capacity */
		u32	worth;	/* its expected hits by 1000 blocks in the time in
				 * which as many blocks are entered as fit */
	} tier[CORE_LRU_TIERS];
};

int core_get_lru(const struct core *core, u32 dom, struct core_lru_view *v);
int core_get_pressure(const struct core *core, u32 domain,
		      struct core_pressure_view *v);
int core_get_tier(const struct core *core, u32 pool, struct core_tier_view *v);
void core_get_events(const struct core *core, u64 *counts);
void core_get_pool(const struct core *core, struct core_pool_view *v);
int core_get_zone(const struct core *core, u32 pool, struct core_pool_view *v);
u32 core_zone_of(const struct core *core, u32 extent);
int core_get_domain(const struct core *core, u32 i, struct core_domain_view *v);
int core_get_life(const struct core *core, u32 dom, struct core_life_view *v);
u32 core_life_interval(const struct core *core);
int core_get_client(const struct core *core, u32 i, struct core_client_view *v);
int core_get_tenant(const struct core *core, u32 i, struct core_tenant_view *v);
u32 core_find_tenant(const struct core *core, u64 key);
int core_get_seq(const struct core *core, u32 i, struct core_seq_view *v);
int core_get_lease(const struct core *core, u32 i, struct core_lease_view *v);
int core_get_extent(const struct core *core, u32 i, struct core_extent_view *v);
u32 core_map_room(const struct core_config *cfg);
int core_get_map(const struct core *core, u32 i, struct core_map_view *v,
		 u8 *blocks);
const char *core_block_state_name(u32 state);
const char *core_seq_state_name(u32 state);
const struct core_config *core_get_config(const struct core *core);
const void *core_get_secrets(const struct core *core, u64 *bytes);

#endif /* KVMM_CORE_H */
