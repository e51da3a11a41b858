// SPDX-License-Identifier: Apache-2.0
/*
 * adopt.c - adoption of the arena of a core that ended
 *
 * To the outside an event is atomic.  So there are two cases, which
 * core_head.event tells apart:
 *
 *	whole     the core ended between two events, and all records are valid.
 *	          The head is compared, fields that only the old process could
 *	          use are reset, and requests in flight are ordered again.
 *	salvaged  the core ended inside an event.  Only primary facts are
 *	          believed, and all else is made anew from them: salvage.c.
 *
 * Requests in flight (copies, I/O, memory being made) are over: the threads that
 * worked on them have ended.  A request names its source, which does not change
 * before the answer.  So the first core_tick() makes the same request again.
 *
 * After that the walkers run.  The arena is refused if they find a fault, or if
 * it is of another program, machine or configuration.  Then the shell makes a
 * new one.
 */
#include "kvmm/core/adopt/adopt.h"

/* Members of the configuration that the sizes of tables depend on. */
#define FIXED(x)							\
	x(pool_bytes) x(extent_size) x(min_token_bytes) x(max_tenants)	\
	x(max_domains) x(max_clients) x(max_seqs) x(nr_tables)		\
	x(nr_idpages) x(max_steps) x(host_bytes) x(area_bytes)		\
	x(more_bytes[0]) x(more_bytes[1]) x(more_bytes[2]) x(more_bytes[3]) \
	x(more_bytes[4]) x(more_bytes[5]) x(more_bytes[6]) x(boot[0]) x(boot[1])

/* Members taken from the new daemon; the others may have been tuned. */
#define NEW(x)								\
	x(step_deadline_ns) x(quiet_deadline_ns) x(revoke_deadline_ns)	\
	x(starve_ns) x(io_deadline_ns) x(event_work) x(named_tenants)

#define EVENT_SALVAGE	8u	/* core_head.event while salvaging; more than ever nest */

/* Is the arena of this program and this configuration? */
static int head_compare(struct walk *w, const struct core_head *h, u64 bytes,
			const struct core_config *cfg,
			const struct core_sizes *s)
{
	u32 i;

	expect(w, "adopt", "bytes of arena", 0, bytes >= sizeof(*h), 1);
	if (w->r->nr_faults)
		return -ESTALE;
	expect(w, "adopt", "magic of arena", 0, h->magic, CORE_ARENA_MAGIC);
	expect(w, "adopt", "layout of arena", 0, h->layout,
	       core_arena_layout());
#define x(name) expect(w, "adopt", #name " of arena", 0, h->cfg.name, cfg->name);
	FIXED(x)
#undef x
	if (w->r->nr_faults)
		return -ESTALE;
	expect(w, "adopt", "sizes of arena", 0,
	       memcmp(&h->sizes, s, sizeof(*s)) != 0, 0);
	expect(w, "adopt", "tunables of arena", 0, tune_is_valid(&h->cfg), 1);
	expect(w, "adopt", "bytes of arena", 0,
	       h->bytes > bytes || h->bytes != arena_layout(cfg, s, NULL), 0);
	for (i = 0; i < CORE_MAX_ZONES; i++)
		expect(w, "adopt", "what the device held is lost: state", i,
		       h->zones[i].device, h->zones[i].device == CORE_DEVICE_CUT ?
		       CORE_DEVICE_CUT : CORE_DEVICE_WORKS);
	/* Salvage changes facts, so an arena is not salvaged twice. */
	expect(w, "adopt", "events under way of arena", 0,
	       h->event >= EVENT_SALVAGE, 0);
	return w->r->nr_faults ? -EUCLEAN : 0;
}

static int adopt_head(struct core *c, struct walk *w, void *arena, u64 bytes,
		      const struct core_config *cfg)
{
	struct core_head *h = arena;
	struct core_config full;
	struct core_sizes s;
	int err;

	err = config_settle(cfg, &full, &s);
	if (!err)
		err = head_compare(w, h, bytes, &full, &s);
	if (err)
		return err;
	c->head = h;
	arena_layout(&full, &s, c);
	life_init(c);
#define x(name) h->cfg.name = full.name;
	NEW(x)
#undef x
	return 0;
}

/* ---- requests in flight ---- */

static void again_entry(struct kv_entry *e, u64 now)
{
	KV_BUG_ON(e->io > ENT_READ);
	e->again = e->flags & ENTF_BESIDE ? AGAIN_BESIDE : 0;
	/* A copy that began beside a write may have outlived it. */
	if (e->io != ENT_IDLE && !(e->io == ENT_IN && e->again))
		e->again |= AGAIN_IO;
	if (e->io != ENT_IDLE)
		e->started = now;
}

/* Mark all requests in flight, to be ordered again. */
static void again_mark(struct core *c)
{
	u32 i;

	for (i = 0; i < core_sizes(c)->nr_entries; i++)
		if (c->entries_low[i].domain != ENTRY_UNUSED)
			again_entry(&c->entries_low[i], c->now);
	for (i = 0; i < CORE_MAX_MOVES; i++)
		c->head->moves[i].again =
			c->head->moves[i].state == MOVE_COPYING;
	for (i = 0; i < core_sizes(c)->nr_extents; i++) {
		struct kv_extent *x = &c->extents[i];

		/* No run waits for it. */
		if (x->state == EXT_CREATING && x->domain == CORE_NONE)
			extent_set_state(c, i, EXT_ABSENT);
		x->again = x->state == EXT_CREATING && !x->backed;
		/* With a new generation, a late answer is ignored. */
		x->generation += x->again;
		x->deadline = c->now + core_cfg(c)->revoke_deadline_ns;
	}
	for (i = CORE_POOL_AREA; i < CORE_NR_POOLS; i++)
		core_pool(c, i)->moved = c->now;
	c->again = 1;
}

/* ---- the whole arena ---- */

static void clients_leave(struct core *c, u32 away)
{
	u32 i;

	for (i = 0; i < core_cfg(c)->max_clients; i++) {
		struct kv_client *cl = &c->clients[i];

		KV_BUG_ON(cl->state > CLI_DEAD);
		cl->killed = 0;		/* a client that was killed is dead by now */
		cl->dead_since = c->now;
		cl->away = cl->state != CLI_ALIVE ? AWAY_NOT :
			   cl->away == AWAY_SALVAGED ? AWAY_SALVAGED : away;
	}
}

/* The core may have ended inside an event: clear the scratch of events. */
static void notes_clear(struct core *c)
{
	const struct core_sizes *s = core_sizes(c);

	memset(c->span_scans, 0, s->all_extents * sizeof(*c->span_scans));
	memset(c->domain_scans, 0,
	       core_cfg(c)->max_domains * sizeof(*c->domain_scans));
	memset(c->tenant_scans, 0,
	       core_cfg(c)->max_tenants * sizeof(*c->tenant_scans));
	memset(c->seq_scans, 0, s->nr_seqs * sizeof(*c->seq_scans));
	memset(c->walked, 0, (u64)s->nr_entries * sizeof(*c->walked));
}

/**
 * core_adopt() - go on in the arena of a core that ended
 * @core:   memory of core_struct_size() bytes
 * @arena:  as the other core left it
 * @bytes:  its size
 * @cfg:    sizes and .boot must be those of the arena; tunables are taken from
 *          the arena
 * @now:    no earlier than any time that the other core was given
 * @report: gets the reason of a refusal
 *
 * No thread or process may still access a slot for the other core: its threads
 * and swapd have ended, the rings are drained, the copier is quiet.  No command
 * is issued here.  The first core_tick() issues the commands that are needed.
 * It must be the first event but for core_adopt_lost(), core_adopt_ghosts(),
 * core_client_resume(), _bind(), _dead() and _quiet().  Triggers are removed.
 * Live clients are away until core_client_resume().
 *
 * Return: CORE_ADOPT_WHOLE or CORE_ADOPT_SALVAGED; -ESTALE: the arena is
 * another program's, boot's or configuration's; -EUCLEAN: it is damaged;
 * -EINVAL: @cfg is not valid.
 */
int core_adopt(struct core *c, void *arena, u64 bytes,
	       const struct core_config *cfg, const struct core_ops *ops,
	       void *ops_arg, u64 now, struct core_report *report)
{
	struct walk w = { .c = c, .r = report };
	int how = CORE_ADOPT_WHOLE, err;
	u32 i;

	memset(c, 0, sizeof(*c));
	memset(report, 0, sizeof(*report));
	err = adopt_head(c, &w, arena, bytes, cfg);
	if (err)
		return err;
	zones_check(&w);
	if (report->nr_faults)
		return -EUCLEAN;
	c->ops = ops;
	c->ops_arg = ops_arg;
	c->now = now;
	if (c->head->event)
		how = CORE_ADOPT_SALVAGED;
	c->head->event = how == CORE_ADOPT_SALVAGED ? EVENT_SALVAGE : 1;
	core_order();
	notes_clear(c);
	if (how == CORE_ADOPT_SALVAGED ? salvage(c, &w) : adopt_ranges(c, &w))
		return -EUCLEAN;
	core_order();
	KV_BUG_ON(report->nr_faults);
	KV_BUG_ON(!c->head->nr_zones);
	c->head->event = 1;
	memset(c->head->triggers, 0, sizeof(c->head->triggers));
	again_mark(c);
	clients_leave(c, how == CORE_ADOPT_WHOLE ? AWAY_WHOLE : AWAY_SALVAGED);
	for_each_domain(c, i)
		salvage_release(c, i);
	if (core_check(c, report))
		return -EUCLEAN;
	core_order();
	KV_BUG_ON(c->head->event != 1);
	c->head->event = 0;
	return how;
}

/**
 * core_adopt_lost() - an area of the adopted core no longer exists
 *
 * As core_area_lose(); before the first tick.
 */
void core_adopt_lost(struct core *c, u64 now, u32 area)
{
	core_area_lose(c, now, area);
}

/**
 * core_adopt_ghosts() - set the number of lingering processes of a tenant
 * @nr: number of detached processes that live on, also of those that still have
 *      a client record
 *
 * The shell knows this number better than a salvaged arena.
 */
void core_adopt_ghosts(struct core *c, u32 tenant, u32 nr)
{
	core_event(c);

	if (tenant >= core_cfg(c)->max_tenants || !c->tenants[tenant].used)
		return;
	c->tenants[tenant].ghosts = nr;
	if (!nr)
		revoke_exorcise(c, tenant);
}

/**
 * core_commit_begin() - begin to check, execute and answer requests of a client
 *
 * Until core_commit_end() the arena counts as inside an event.  So in an arena
 * that is adopted whole every executed request was answered.
 */
void core_commit_begin(struct core *c)
{
	core_event_begin(c);
}

/* core_commit_end() - all checked requests of the client are answered */
void core_commit_end(struct core *c, u32 client)
{
	struct kv_client *cl = &c->clients[client];

	KV_BUG_ON(!c->head->event || cl->committed > cl->last_number);
	core_crash(c, CORE_CRASH_answered);
	cl->committed = cl->last_number;
	core_event_end(&c);
}
