// SPDX-License-Identifier: Apache-2.0
/*
 * core.c - the memory manager as a deterministic machine
 *
 * The core owns every fact about memory: the owner of each extent, the content
 * and the users of each block, and the sequences that wait, run or have lost
 * their memory.  One thread runs it.  It makes no system call, reads no clock,
 * draws no random number and allocates nothing after core_init().  Inputs are
 * events with the time in them (core.h).  Outputs are commands through struct
 * core_ops and words in the segments of the clients.  The same input gives the
 * same output, so a simulator can run it for billions of events, and a failing
 * seed replays exactly.
 *
 * Each mechanism is one file, and files are in rooms: ROOMS names the rooms from
 * the lowest to the highest, Documentation/core-files.md names the files.
 *
 * All records are in one arena and refer to each other by 32-bit indices.
 * Primary facts (a block's owner, ids, hash; a sequence's entries) are written
 * before the fields that can be computed from them (lists, counts, index).
 *
 * Invariants that other files rely on:
 *  - a domain's free blocks cover its reservations, always;
 *  - a block of one domain is in tables of that domain only;
 *  - an OPEN block is written by at most one sequence, the one that finds
 *    refcount 1; SEALED and CACHED blocks are never written again;
 *  - memory that an open step can read or write is not reused before it ends;
 *  - an error changes nothing.
 */
#include "kvmm/core/node/node.h"

_Static_assert(CORE_POOL_LIMIT == (u64)CORE_UNIT_MAX << 32,
	       "table entries are 32-bit offsets in units");

#define EVENT_WORK	32768u	/* units of core_work(): a third of a ms */

size_t core_struct_size(void)
{
	return sizeof(struct core);
}

static u64 mix(u64 h, u64 v)
{
	h = (h ^ v) * 0xff51afd7ed558ccdull;
	return h ^ (h >> 33);
}

/**
 * core_arena_layout() - a number that identifies the layout of an arena
 *
 * It is a hash of the sizes of all records and of CORE_ARENA_VERSION, which
 * stands for changes without a change of size.
 */
u64 core_arena_layout(void)
{
	u64 h = mix(CORE_ARENA_MAGIC, CORE_ARENA_VERSION);

	h = mix(h, sizeof(struct core_head));
#define x(name, type, count) h = mix(h, sizeof(type));
	CORE_ARENA(x)
#undef x
	return mix(h, NR_CORE_EVENTS);
}

/*
 * Table entries are 32-bit offsets, so a larger pool has larger units.  A block has
 * whole units, which costs it less than one.
 */
static u64 unit_shift(u64 pool_bytes)
{
	u64 shift = (u64)__builtin_ctz(CORE_UNIT);

	while (pool_bytes >> 32 >> shift)
		shift++;
	return shift;
}

/* Has each device pool an extent, and does none follow an absent one? */
static bool zones_are_sane(const struct core_config *cfg)
{
	u64 left = cfg->pool_bytes;
	u32 i;

	for (i = 0; i < CORE_MAX_ZONES - 1; i++) {
		if (cfg->more_bytes[i] % cfg->extent_size || cfg->more_bytes[i] >= left ||
		    (i && cfg->more_bytes[i] && !cfg->more_bytes[i - 1]))
			return false;
		left -= cfg->more_bytes[i];
	}
	return true;
}

/* Bytes of a device pool; 0: there is none of this number. */
u64 zone_bytes(const struct core_config *cfg, u32 zone)
{
	u64 first = cfg->pool_bytes;
	u32 i;

	if (zone)
		return cfg->more_bytes[zone - 1];
	for (i = 0; i < CORE_MAX_ZONES - 1; i++)
		first -= cfg->more_bytes[i];
	return first;
}

/* Fill in derived values, and compute the sizes of all tables. */
int config_settle(const struct core_config *in, struct core_config *cfg,
		  struct core_sizes *s)
{
	u64 blocks, extents;

	*cfg = *in;
	if (!is_power_of_2(cfg->extent_size) || cfg->extent_size < 4096 ||
	    !cfg->pool_bytes || cfg->pool_bytes % cfg->extent_size ||
	    cfg->pool_bytes >= CORE_POOL_LIMIT || !zones_are_sane(cfg))
		return -EINVAL;
	if (!is_power_of_2(cfg->min_token_bytes) ||
	    cfg->min_token_bytes * 16ull > cfg->extent_size)
		return -EINVAL;
	if (!cfg->max_clients || cfg->max_clients > 64 || !cfg->max_seqs ||
	    !cfg->max_domains || cfg->max_domains > 0xffff ||
	    cfg->named_tenants >= cfg->max_tenants || !cfg->max_steps ||
	    cfg->max_steps > KVMM_MAX_STEPS)
		return -EINVAL;
	if ((u64)cfg->max_clients * cfg->max_seqs >= BIT(BLOCK_MAP_BITS))
		return -EINVAL;
	if (cfg->host_bytes % cfg->extent_size || cfg->swappiness > 200 ||
	    cfg->area_bytes % cfg->extent_size || !tune_is_valid(cfg) ||
	    (u64)cfg->max_domains * CORE_NR_POOLS > 0xffff)
		return -EINVAL;
	if (!cfg->overcommit_ratio)
		cfg->overcommit_ratio = 100;
	if (!cfg->lease_ms)
		cfg->lease_ms = 600000;
	if (!cfg->lease_percent)
		cfg->lease_percent = 50;
	if (!cfg->event_work)
		cfg->event_work = EVENT_WORK;
	if (!cfg->host_bytes)
		cfg->area_bytes = 0;	/* all I/O goes through the host pool */

	s->nr_extents = (u32)(cfg->pool_bytes / cfg->extent_size);
	s->ids_per_extent = (u32)(cfg->extent_size / cfg->min_token_bytes);
	s->blocks_per_extent = s->ids_per_extent / 16;
	s->block_shift = (u32)__builtin_ctz(s->blocks_per_extent);
	KV_BUG_ON(BIT(s->block_shift) != s->blocks_per_extent);
	s->unit_shift = unit_shift(cfg->pool_bytes);
	extents = s->nr_extents + (cfg->host_bytes +
		  CORE_MAX_AREAS * cfg->area_bytes) / cfg->extent_size;
	blocks = extents * s->blocks_per_extent;
	if (extents >= REF_ENTRY || blocks >= REF_ENTRY)
		return -EINVAL;
	s->all_extents = (u32)extents;
	s->nr_blocks = (u32)blocks;
	s->nr_ids = (u64)s->all_extents * s->ids_per_extent;
	s->nr_buckets = (u32)(blocks - blocks / 4);
	s->nr_parts = cfg->max_domains * CORE_NR_POOLS;
	s->nr_entries = (s->all_extents - s->nr_extents) * s->blocks_per_extent;
	if (s->nr_entries >= 1u << 30)	/* ids of copies, see migrate.c */
		return -EINVAL;
	s->nr_nodes = s->nr_extents * s->blocks_per_extent + s->nr_entries;
	s->nr_holds = max(s->nr_extents * s->blocks_per_extent / 32, 64u);
	s->nr_ghosts = (u32)ALIGN_UP((u64)s->nr_extents * s->blocks_per_extent,
				     (u64)GHOST_WAYS);

	KV_BUG_ON(s->nr_nodes < s->nr_entries || s->nr_ghosts % GHOST_WAYS);
	if (!cfg->revoke_deadline_ns)
		cfg->revoke_deadline_ns = 2000000000ull;
	if (!cfg->nr_tables)
		cfg->nr_tables = 2 * cfg->max_seqs +
				 2 * (s->nr_extents * s->blocks_per_extent /
				      KVMM_TABLE_ENTRIES + 1);
	if (!cfg->nr_idpages)	/* 131,040 tokens for each client */
		cfg->nr_idpages = 1040 * cfg->max_clients;
	s->nr_idpages = cfg->nr_idpages;
	s->nr_seqs = cfg->max_clients * cfg->max_seqs;
	s->nr_tpages = cfg->max_clients * cfg->nr_tables;
	s->nr_steps = cfg->max_clients * KVMM_MAX_STEPS;
	s->nr_step_entries = (u64)s->nr_steps * CORE_MAX_STEP_ENTRIES;
	s->nr_scratch = max((u64)max(s->nr_blocks, s->nr_holds),
			    (u64)cfg->nr_tables * KVMM_TABLE_ENTRIES);
	return 0;
}

/* Bytes of an arena; with @c, set the addresses of its tables, too. */
u64 arena_layout(const struct core_config *cfg, const struct core_sizes *s,
		 struct core *c)
{
	u64 off = ALIGN_UP(sizeof(struct core_head), 64ul);

#define x(name, type, count)						\
	if (c)								\
		c->name = (type *)((u8 *)c->head + off);		\
	off = ALIGN_UP(off + sizeof(type) * (u64)(count), 64ull);
	CORE_ARENA(x)
#undef x
	return off;
}

/**
 * core_arena_size() - bytes of arena that a configuration needs
 * Return: 0 when the configuration is not valid.
 */
u64 core_arena_size(const struct core_config *cfg)
{
	struct core_config full;
	struct core_sizes s;

	if (config_settle(cfg, &full, &s))
		return 0;
	return arena_layout(&full, &s, NULL);
}

static void arena_init_lists(struct core *c)
{
	const struct core_sizes *s = core_sizes(c);
	u32 i;

	for (i = 0; i < s->nr_buckets; i++)
		c->buckets[i] = CORE_NONE;
	for (i = 0; i < s->all_extents; i++)
		c->extents[i].domain = CORE_NONE;
	for (i = 0; i < s->nr_idpages; i++)
		c->idpages[i].next = i + 1 < s->nr_idpages ? i + 1 : CORE_NONE;
	for (i = 0; i < s->nr_entries; i++) {
		c->entries_low[i].domain = ENTRY_UNUSED;
		c->entries_low[i].next = i + 1 < s->nr_entries ? i + 1
							       : CORE_NONE;
	}
	for (i = 0; i < s->nr_nodes; i++) {
		c->nodes[i].next = i + 1 < s->nr_nodes ? i + 1 : CORE_NONE;
		c->nodes[i].ref = CORE_NONE;
	}
	for (i = 0; i < s->nr_ghosts; i++)
		c->ghosts[i].domain = GHOST_UNUSED;
	for (i = 0; i < s->nr_holds; i++)
		c->holds[i].next = i + 1 < s->nr_holds ? i + 1 : CORE_NONE;
	c->head->free_hold = 0;
	life_init(c);
	for (i = 0; i < CORE_MAX_EVACS; i++)
		c->head->evacs[i].span = CORE_NONE;
	c->head->free_node = 0;
	c->head->nr_free_nodes = s->nr_nodes;
	c->head->free_entry = s->nr_entries ? 0 : CORE_NONE;
	c->head->nr_free_entries = s->nr_entries;
	c->head->free_idpage = 0;
	c->head->nr_free_idpages = s->nr_idpages;
	c->head->promote_head = CORE_NONE;
	c->head->promote_tail = CORE_NONE;
}

/* The extents of the device pools, one pool after another. */
static void arena_init_zones(struct core *c)
{
	u32 i, first = 0;

	for (i = 0; i < CORE_MAX_ZONES && zone_bytes(core_cfg(c), i); i++) {
		struct kv_zone *z = &c->head->zones[i];

		z->first = first;
		z->nr_extents = (u32)(zone_bytes(core_cfg(c), i) / core_cfg(c)->extent_size);
		z->nr_online = z->nr_extents;
		z->loose = z->nr_extents;
		first += z->nr_extents;
	}
	c->head->nr_zones = i;
	KV_BUG_ON(first != core_sizes(c)->nr_extents);
}

/* Extents of the pools, one pool after another; the host pool has memory. */
static void arena_init_pools(struct core *c)
{
	const struct core_config *cfg = core_cfg(c);
	const struct core_sizes *s = core_sizes(c);
	u32 i, e, first = 0;

	for (i = 0; i < CORE_NR_POOLS; i++) {
		u64 bytes = i == CORE_POOL_DEV ? cfg->pool_bytes :
			    i == CORE_POOL_HOST ? cfg->host_bytes : 0;
		struct kv_pool *p = core_pool(c, i);

		KV_BUG_ON(first > s->all_extents);
		p->first = first;
		p->nr_extents = (u32)(bytes / cfg->extent_size);
		p->online = bytes != 0;
		p->io_head = CORE_NONE;
		p->io_tail = CORE_NONE;
		first += i < CORE_POOL_AREA ? p->nr_extents :
			 (u32)(cfg->area_bytes / cfg->extent_size);
	}
	KV_BUG_ON(first != s->all_extents);
	for (e = s->nr_extents; e < core_pool(c, CORE_POOL_AREA)->first; e++) {
		extent_set_state(c, e, EXT_BACKED);
		c->extents[e].backed = 1;
	}
}

/**
 * core_init() - make a new core in an arena
 * @arena:       zeroed memory, 64-byte aligned; stays with the core
 * @arena_bytes: at least core_arena_size(@cfg)
 *
 * Return: 0, -EINVAL for a bad configuration, -ENOSPC for a small arena.
 */
int core_init(struct core *c, void *arena, u64 arena_bytes,
	      const struct core_config *cfg, const struct core_ops *ops,
	      void *ops_arg)
{
	struct core_config full;
	struct core_sizes s;
	int err;

	err = config_settle(cfg, &full, &s);
	if (err)
		return err;
	if (arena_bytes < arena_layout(&full, &s, NULL))
		return -ENOSPC;

	memset(c, 0, sizeof(*c));
	c->head = arena;
	c->ops = ops;
	c->ops_arg = ops_arg;
	c->head->layout = core_arena_layout();
	c->head->cfg = full;
	c->head->sizes = s;
	c->head->arrival = 1;
	c->head->bytes = arena_layout(&full, &s, c);
	KV_BUG_ON(c->head->bytes > arena_bytes);
	arena_init_lists(c);
	arena_init_zones(c);
	arena_init_pools(c);
	core_order();
	c->head->magic = CORE_ARENA_MAGIC;
	return 0;
}

/**
 * core_poll() - go on with work that the last event left undone
 *
 * Call it between events, without waiting, until it returns false.  Events leave
 * work to it so that none takes long (see admit_all()).
 * Return: true when there was work left.
 */
bool core_poll(struct core *c, u64 now)
{
	core_event(c);

	if (!c->head->more)
		return false;
	c->now = now;
	admit_rest(c);
	return true;
}

/* After a failure to make memory, waiting sequences are tried again. */
static void create_again(struct core *c)
{
	u32 i;

	for (i = 0; i < c->head->nr_zones; i++) {
		struct kv_zone *z = &c->head->zones[i];

		if (!z->create_after || c->now < z->create_after)
			continue;
		z->create_after = 0;
		core_kick(c);
	}
}

/**
 * core_tick() - time passed: deadlines, the longest-waiting sequence, retries
 *
 * Call it every few milliseconds while clients are attached.
 */
void core_tick(struct core *c, u64 now)
{
	core_event(c);

	c->now = now;
	if (c->again)
		adopt_again(c);
	limit_tick(c, now - c->head->ticked);
	c->head->ticked = now;
	client_deadlines(c);
	revoke_tick(c);
	starve_check(c);
	c->taker = CORE_NONE;
	io_deadlines(c);
	psi_tick(c);
	evacuate_tick(c);
	resize_tick(c);
	create_again(c);
	device_tick(c);
	leases_expire(c);
	admit_all(c);
	wmark_background(c);
	tier_background(c);
	leases_background(c);
}
