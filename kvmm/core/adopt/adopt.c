// SPDX-License-Identifier: Apache-2.0
/*
 * adopt.c - a core goes on in the arena of one that ended
 *
 * An event is atomic to everybody outside, so there are two cases, told apart
 * by core_head.event:
 *
 *	whole     the other one ended between two events.  All is there: the
 *	          head is compared, what cannot be seen from outside is reset,
 *	          what was in flight is ordered again.
 *	salvaged  it ended inside an event.  Only primary facts are believed, all
 *	          else is made anew from them: salvage.c.
 *
 * What was in flight (copies, I/O, memory being made) is over, whoever did it
 * has ended.  A request names its source, and that stays as it was until the
 * answer, so the same request is simply made again, by the first core_tick().
 *
 * Afterwards the walkers run.  An arena in which they find something, or that
 * is not of this program, machine and configuration, is refused: then a fresh
 * one is made.
 */
#include "kvmm/core/adopt/adopt.h"

/* Members of the configuration that the tables' sizes depend on. */
#define FIXED(x)							\
	x(pool_bytes) x(extent_size) x(min_token_bytes) x(max_tenants)	\
	x(max_domains) x(max_clients) x(max_seqs) x(nr_tables)		\
	x(nr_idpages) x(max_steps) x(host_bytes) x(area_bytes)		\
	x(boot[0]) x(boot[1])

/* Those that are the new daemon's; the rest may have been tuned. */
#define NEW(x)								\
	x(step_deadline_ns) x(quiet_deadline_ns) x(revoke_deadline_ns)	\
	x(starve_ns) x(io_deadline_ns) x(event_work) x(named_tenants)

#define EVENT_SALVAGE	8u	/* of core_head.event: more than are ever nested */

/* Is it of this program, and of this configuration? */
static int head_compare(struct walk *w, const struct core_head *h, u64 bytes,
			const struct core_config *cfg,
			const struct core_sizes *s)
{
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
	expect(w, "adopt", "what the device held is lost: state", 0, h->device,
	       h->device == CORE_DEVICE_CUT ? CORE_DEVICE_CUT :
					      CORE_DEVICE_WORKS);
	/* Facts are moved while it is salvaged: no second time. */
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

/* ---- what was in flight ---- */

static void again_entry(struct kv_entry *e, u64 now)
{
	e->again = e->flags & ENTF_BESIDE ? AGAIN_BESIDE : 0;
	/* A copy may have outlived the write that it began beside. */
	if (e->io != ENT_IDLE && !(e->io == ENT_IN && e->again))
		e->again |= AGAIN_IO;
	if (e->io != ENT_IDLE)
		e->started = now;
}

/* All that somebody was doing is to be done anew. */
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

		/* It was to land, and nobody waits for it. */
		if (x->state == EXT_CREATING && x->domain == CORE_NONE)
			extent_set_state(c, i, EXT_ABSENT);
		x->again = x->state == EXT_CREATING && !x->backed;
		/* What comes late is of no use. */
		x->generation += x->again;
		x->deadline = c->now + core_cfg(c)->revoke_deadline_ns;
	}
	for (i = CORE_POOL_AREA; i < CORE_NR_POOLS; i++)
		core_pool(c, i)->moved = c->now;
	c->again = 1;
}

/* ---- all of it ---- */

static void clients_leave(struct core *c, u32 away)
{
	u32 i;

	for (i = 0; i < core_cfg(c)->max_clients; i++) {
		struct kv_client *cl = &c->clients[i];

		cl->killed = 0;		/* if that was done it is dead */
		cl->dead_since = c->now;
		cl->away = cl->state != CLI_ALIVE ? AWAY_NOT :
			   cl->away == AWAY_SALVAGED ? AWAY_SALVAGED : away;
	}
}

/* The dead core may have ended inside an event, with notes of it. */
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
 * @arena:  as the other one left it
 * @bytes:  its size
 * @cfg:    sizes and .boot must be those of the arena; what can be tuned is
 *          taken from there
 * @now:    no earlier than any time that the other core was given
 * @report: why it is refused
 *
 * Nobody may be able any more to touch a slot on behalf of the other core:
 * its threads and swapd have ended, the rings are drained, the copier is
 * quiet.  No command is issued here; those that have become necessary are by
 * the first core_tick(), which must be the first event but for
 * core_adopt_lost(), core_adopt_ghosts(), core_client_resume(), _bind(),
 * _dead() and _quiet().  Triggers are gone.  Clients that are alive are away
 * until core_client_resume().
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
	c->head->event = 1;
	memset(c->head->triggers, 0, sizeof(c->head->triggers));
	again_mark(c);
	clients_leave(c, how == CORE_ADOPT_WHOLE ? AWAY_WHOLE : AWAY_SALVAGED);
	for_each_domain(c, i)
		salvage_release(c, i);
	if (core_check(c, report))
		return -EUCLEAN;
	core_order();
	c->head->event = 0;
	return how;
}

/**
 * core_adopt_lost() - an area of the adopted core is not there any more
 *
 * As core_area_lose(); before the first tick.
 */
void core_adopt_lost(struct core *c, u64 now, u32 area)
{
	core_area_lose(c, now, area);
}

/**
 * core_adopt_ghosts() - how many processes live on that had detached
 * @nr: of the tenant, those whose client record is still there included
 *
 * The shell knows it better than an arena that was salvaged.
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
 * core_commit_begin() - a request is judged, executed and answered from here on
 *
 * Up to core_commit_end() the arena counts as inside an event: so in one that
 * is adopted whole every request that was executed was answered.
 */
void core_commit_begin(struct core *c)
{
	core_event_begin(c);
}

/* core_commit_end() - all requests of the client that were judged are answered */
void core_commit_end(struct core *c, u32 client)
{
	struct kv_client *cl = &c->clients[client];

	core_crash(c, CORE_CRASH_answered);
	cl->committed = cl->last_number;
	core_event_end(&c);
}
