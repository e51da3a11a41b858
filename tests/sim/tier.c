// SPDX-License-Identifier: Apache-2.0
/*
 * tier.c - copies and I/O of the simulated lower tiers
 *
 * Requests of the core are noted down, and carried out in three moments that are
 * drawn apart: the source is read into a stage, the target is written from the
 * stage, the core is answered.  Each may be as early as the command itself and
 * as late as the answer, in any order between requests.  So if a source is
 * reused before its copy read it, or a target is used before the late write
 * lands there, a reader finds wrong content (law 5).  Until the answer the
 * target may hold anything.
 *
 * A request that fails may write all, garbage, or nothing until it is answered.
 * When swapd dies all its requests fail that way.
 *
 * The shell plays swapd for I/O.  A write leaves a header with the content; a
 * read succeeds only if header and content are right.  The world damages slots:
 * one write never reaches the medium and leaves the old content, another one
 * rots.  If a header is wrong and the world did not damage its slot, the fault
 * is the core's.
 */
#include <stdlib.h>

#include "tests/sim/sim.h"

/* ---- memory ---- */

static void fill_garbage(u64 *cell, u64 nr, u64 seed)
{
	u64 i;

	for (i = 0; i < nr; i++)
		cell[i] = ~(mix64(seed) + i * 0x9e3779b97f4a7c15ull);
}

/* Host pool, stages and files lie one behind the other. */
void tier_alloc(struct sim *w)
{
	u64 host = w->cfg.host_bytes / w->cfg.min_token_bytes, nr, at, i;
	u64 file = w->cfg.area_bytes / w->cfg.min_token_bytes;
	u64 pages = w->cfg.area_bytes / SIM_PAGE;

	u64 dev = w->cfg.pool_bytes / w->cfg.min_token_bytes;

	nr = 2 * host + dev + w->plan.nr_files * file;
	if (nr > w->nr_low) {
		free(w->low);
		w->low = calloc(nr, sizeof(*w->low));
		w->nr_low = nr;
	}
	if (w->plan.nr_files * pages > w->nr_heads) {
		free(w->head);
		w->nr_heads = w->plan.nr_files * pages;
		w->head = calloc(w->nr_heads, sizeof(*w->head));
	}
	if ((nr && !w->low) || (w->nr_heads && !w->head))
		abort();
	fill_garbage(w->low, nr, w->seed);
	if (w->head)
		memset(w->head, 0, w->plan.nr_files * pages * sizeof(*w->head));
	w->host = w->low;
	w->stage = w->low + host;
	w->dev_stage = w->stage + host;
	for (i = 0, at = 2 * host + dev; i < w->plan.nr_files; i++, at += file) {
		w->file[i].index = CORE_NONE;
		w->file[i].cell = w->low + at;
		w->file[i].head = w->head + i * pages;
	}
}

static u64 cells(const struct sim *w, u64 bytes)
{
	return bytes / w->cfg.min_token_bytes;
}

static u64 *dev_cell(struct sim *w, const struct sim_move *m, u64 off)
{
	u64 end = off + m->bytes;
	u32 e;

	LAW(w, end <= w->cfg.pool_bytes, "a copy of %llx, outside the pool",
	    (unsigned long long)off);
	for (e = (u32)(off / w->cfg.extent_size);
	     e * w->cfg.extent_size < end; e++)
		LAW(w, w->ext[e].exists, "a copy of extent %u, which is not there",
		    e);
	return w->cell + cells(w, off);
}

/* The following find part @i of the payload. */
static u64 *host_cell(struct sim *w, const struct sim_move *m, u32 i)
{
	return w->host + cells(w, m->slot + CORE_SLOT_HEADER + i * m->bytes);
}

static u64 *stage_cell(struct sim *w, const struct sim_move *m, u32 i)
{
	if (m->within)
		return w->dev_stage + cells(w, m->dev_to + m->shard_off[i]);
	return w->stage + cells(w, m->slot + CORE_SLOT_HEADER + i * m->bytes);
}

static u64 *far_cell(struct sim *w, const struct sim_move *m, u32 i)
{
	if (m->copy)
		return dev_cell(w, m, m->dev_off + m->shard_off[i]);
	return w->file[m->file].cell + cells(w, m->area_off + CORE_SLOT_HEADER);
}

static struct sim_header *file_head(struct sim *w, const struct sim_move *m)
{
	return &w->file[m->file].head[m->area_off / SIM_PAGE];
}

/* ---- the three moments of a request ---- */

static void move_read(struct sim *w, struct sim_move *m)
{
	bool far = m->within || m->copy == m->down;
	u32 i;

	for (i = 0; i < m->nr_shards; i++)
		memcpy(stage_cell(w, m, i), far ? far_cell(w, m, i) : host_cell(w, m, i),
		       cells(w, m->bytes) * sizeof(u64));
	if (!m->copy && !m->down)
		m->head = *file_head(w, m);
	m->read = true;
}

static u64 *move_target(struct sim *w, struct sim_move *m, u32 i)
{
	if (m->within)
		return dev_cell(w, m, m->dev_to + m->shard_off[i]);
	return m->copy == m->down ? host_cell(w, m, i) : far_cell(w, m, i);
}

/* The medium may report a write that it did not make. */
static bool move_damage(struct sim *w, struct sim_move *m)
{
	if (m->copy || !m->down || !rng_chance(&w->rng, w->plan.damage))
		return false;
	if (rng_chance(&w->rng, 500)) {
		cover_note("writes that never reached the medium");
	} else {
		cover_note("slots that rotted");
		*file_head(w, m) = m->want;
		fill_garbage(far_cell(w, m, 0), cells(w, m->bytes), m->id);
	}
	file_head(w, m)->damaged = true;
	return true;
}

static void move_write(struct sim *w, struct sim_move *m)
{
	u32 i;

	m->written = true;
	if (move_damage(w, m))
		return;
	for (i = 0; i < m->nr_shards; i++)
		memcpy(move_target(w, m, i), stage_cell(w, m, i),
		       cells(w, m->bytes) * sizeof(u64));
	if (!m->copy && m->down)
		*file_head(w, m) = m->want;
}

/* No block owns the target until the answer: it may hold anything. */
static void move_scribble(struct sim *w, struct sim_move *m)
{
	u32 i;

	if (m->barred)
		return;
	for (i = 0; i < m->nr_shards; i++)
		fill_garbage(move_target(w, m, i), cells(w, m->bytes), rng_next(&w->rng));
	if (!m->copy && m->down)
		file_head(w, m)->damaged = true;
	m->written = false;
}

static void move_on(struct sim *w, struct sim_move *m)
{
	if (m->barred)
		return;
	if (!m->read)
		move_read(w, m);
	else if (!m->written)
		move_write(w, m);
	else if (m->doomed)
		move_scribble(w, m);
}

/* Was the right slot read, and the right write of it? */
static bool head_right(const struct sim_move *m)
{
	return m->head.area == m->want.area &&
	       m->head.domain == m->want.domain &&
	       m->head.hash[0] == m->want.hash[0] &&
	       m->head.hash[1] == m->want.hash[1] &&
	       m->head.generation == m->want.generation;
}

/* Do the rest of a request.  Return: the answer to the core. */
static int move_finish(struct sim *w, struct sim_move *m)
{
	if (m->doomed) {
		/* There was no swapd: the request was not even tried. */
		if (!m->copy && !m->read && !m->written &&
		    rng_chance(&w->rng, 300)) {
			cover_note("requests that no swapd took");
			return rng_chance(&w->rng, 500) ? -ENODEV : -ENXIO;
		}
		if (rng_chance(&w->rng, 500))
			move_on(w, m);
		return -EIO;
	}
	if (!m->read)
		move_read(w, m);
	if (!m->written)
		move_write(w, m);
	if (m->copy || m->down)
		return 0;
	LAW(w, head_right(m) || m->head.damaged,
	    "law 5: area %u: generation %llu is read at %llx, where %llu was written",
	    m->want.area, (unsigned long long)m->want.generation,
	    (unsigned long long)m->area_off,
	    (unsigned long long)m->head.generation);
	if (!m->head.damaged)
		return 0;
	cover_note("reads of a damaged slot");
	return -EBADMSG;
}

/* ---- commands ---- */

static u64 slot_end(const struct sim_move *m)
{
	return m->slot + CORE_SLOT_HEADER +
	       ALIGN_UP(m->bytes * m->nr_shards, (u64)SIM_PAGE);
}

/* From the host to the device or to an area: the host slot is only read. */
static bool reads_host(const struct sim_move *m)
{
	return m->copy != m->down;
}

static bool overlap(u64 a, u64 a_bytes, u64 b, u64 b_bytes)
{
	return a < b + b_bytes && b < a + a_bytes;
}

/* Does a copy name device memory from @from on? */
static bool dev_names(const struct sim_move *o, u64 from, u64 bytes)
{
	u32 i;

	for (i = 0; i < o->nr_shards; i++)
		if (overlap(o->dev_off + o->shard_off[i], o->bytes, from, bytes) ||
		    (o->within &&
		     overlap(o->dev_to + o->shard_off[i], o->bytes, from, bytes)))
			return true;
	return false;
}

/* Does @m write device memory that @o reads or writes? */
static bool dev_collides(const struct sim_move *m, const struct sim_move *o)
{
	u64 to = m->within ? m->dev_to : m->dev_off;
	u32 i;

	if (!m->copy || !o->copy || m->down)
		return false;
	for (i = 0; i < m->nr_shards; i++)
		if (dev_names(o, to + m->shard_off[i], m->bytes))
			return true;
	return false;
}

/*
 * Memory that one request writes must not be named by another request.  But a
 * slot that is being written to an area may be copied to the device meanwhile.
 */
static void moves_disjoint(struct sim *w, const struct sim_move *m)
{
	u32 i;

	for (i = 0; i < w->nr_moves; i++) {
		const struct sim_move *o = &w->moves[i];

		LAW(w, m->within || o->within || m->slot >= slot_end(o) || o->slot >= slot_end(m) ||
		    (reads_host(m) && reads_host(o) && m->copy != o->copy),
		    "the host slot at %llx is named by two requests",
		    (unsigned long long)m->slot);
		LAW(w, !dev_collides(m, o) && !dev_collides(o, m),
		    "the block at %llx is named by two copies",
		    (unsigned long long)m->dev_off);
		LAW(w, m->copy || o->copy || m->file != o->file ||
		    m->area_off != o->area_off, "the slot at %llx of area %u is named by two transfers",
		    (unsigned long long)m->area_off, m->want.area);
	}
}

static void move_start(struct sim *w, const struct sim_move *from)
{
	struct sim_move *m = &w->moves[w->nr_moves];

	LAW(w, w->nr_moves < SIM_MOVES, "%u requests are in flight",
	    w->nr_moves);
	LAW(w, from->within || slot_end(from) <= w->cfg.host_bytes,
	    "host slot at %llx of %llu bytes is outside",
	    (unsigned long long)from->slot, (unsigned long long)from->bytes);
	moves_disjoint(w, from);
	*m = *from;
	w->nr_moves++;
	m->until = w->now + (m->copy ? 0 : w->file[m->file].lag);
	if (rng_chance(&w->rng, w->plan.stall))
		m->until += rng_below(&w->rng, 1000) * (w->plan.stall_ns / 1000);
	m->doomed = rng_chance(&w->rng, m->copy ? w->plan.copy_fail :
						  w->plan.io_fail);
	m->barred = m->copy && w->cut_off;
	m->doomed |= m->barred;
	sim_trace(w, mix2(m->id, m->slot));
	if (rng_chance(&w->rng, w->plan.early))
		move_on(w, m);
	if (rng_chance(&w->rng, w->plan.early))
		move_on(w, m);
	if (!m->written && rng_chance(&w->rng, 300))
		move_scribble(w, m);
}

void op_copy(void *arg, const struct core_copy *cp)
{
	struct sim *w = arg;
	struct sim_move m = {
		.id = cp->id, .copy = true, .down = cp->to_host,
		.within = cp->within, .dev_to = cp->dev_to,
		.dev_off = cp->dev_off, .bytes = cp->bytes, .nr_shards = cp->nr_shards,
		.slot = cp->within ? 0 : cp->host_off - CORE_SLOT_HEADER,
	};

	LOG(w, "  copy %llx %s: device %llx, %s %llx", (unsigned long long)m.id,
	    m.within ? "over" : m.down ? "out" : "in",
	    (unsigned long long)m.dev_off, m.within ? "to" : "host",
	    (unsigned long long)(m.within ? m.dev_to : m.slot));
	LAW(w, cp->within || cp->host_off >= CORE_SLOT_HEADER,
	    "a copy into a header");
	memcpy(m.shard_off, cp->shard_off, sizeof(m.shard_off));
	if (m.nr_shards > 1)
		cover_note(m.within ? "moves of blocks with two shards" :
				      "copies of blocks with two shards");
	move_start(w, &m);
}

void op_io(void *arg, const struct core_io *io)
{
	struct sim *w = arg;
	struct sim_move m = {
		.id = io->id, .down = io->write, .slot = io->host_off,
		.area_off = io->area_off, .bytes = io->payload, .nr_shards = 1,
		.want = { .area = io->area, .domain = io->domain,
			  .hash = { io->hash[0], io->hash[1] },
			  .generation = io->generation },
	};
	const struct sim_file *f;

	LOG(w, "  %s %llx: host %llx, area %u at %llx, generation %llu",
	    m.down ? "write" : "read", (unsigned long long)m.id,
	    (unsigned long long)m.slot, io->area,
	    (unsigned long long)m.area_off, (unsigned long long)io->generation);
	for (m.file = 0; m.file < w->plan.nr_files; m.file++)
		if (w->file[m.file].index == io->area)
			break;
	LAW(w, m.file < w->plan.nr_files, "I/O to area %u, which is off",
	    io->area);
	f = &w->file[m.file];
	LAW(w, io->area_off + io->len <= min(f->bytes, w->cfg.area_bytes) &&
	    io->area_off % SIM_PAGE == 0 && io->len ==
	    CORE_SLOT_HEADER + ALIGN_UP(io->payload, SIM_PAGE),
	    "a slot of %u bytes at %llx of area %u", io->len,
	    (unsigned long long)io->area_off, io->area);
	LAW(w, !m.down || !f->leaving || w->adopting, "a write to area %u, which is to go",
	    io->area);
	move_start(w, &m);
}

/* Does a copy name memory of the extent? */
bool tier_names_extent(const struct sim *w, u32 extent)
{
	u64 from = extent * w->cfg.extent_size;
	u32 i;

	for (i = 0; i < w->nr_moves; i++)
		if (w->moves[i].copy &&
		    dev_names(&w->moves[i], from, w->cfg.extent_size))
			return true;
	return false;
}

/* ---- answers ---- */

static void move_answer(struct sim *w, u32 i)
{
	struct sim_move m = w->moves[i];
	int status = move_finish(w, &m);

	w->moves[i] = w->moves[--w->nr_moves];
	if (m.within)
		cover_move(w, m.id, status);
	LOG(w, "%s %llx is over: %d", m.copy ? "copy" : m.down ? "write" :
	    "read", (unsigned long long)m.id, status);
	/* The core ignores an answer that is repeated. */
	if (m.copy)
		core_copy_done(w->core, w->now, m.id, status);
	else
		core_io_done(w->core, w->now, m.id, status);
	if (!rng_chance(&w->rng, 30))
		return;
	if (m.copy)
		core_copy_done(w->core, w->now, m.id, status ? 0 : -EIO);
	else
		core_io_done(w->core, w->now, m.id, status ? 0 : -EIO);
}

/* All I/O in flight is going to fail; it may write until then. */
void tier_swapd_dies(struct sim *w)
{
	u32 i;

	LOG(w, "swapd dies");
	for (i = 0; i < w->nr_moves; i++)
		w->moves[i].doomed |= !w->moves[i].copy;
	cover_note("deaths of swapd");
}

/* Daemon and swapd have ended: requests stay as far as they got. */
void tier_forget_all(struct sim *w)
{
	u32 i, n;

	for (i = 0; i < w->nr_moves; i++) {
		for (n = rng_below(&w->rng, 3); n; n--)
			move_on(w, &w->moves[i]);
		if (rng_chance(&w->rng, 300))
			move_scribble(w, &w->moves[i]);
	}
	w->nr_moves = 0;
}

/*
 * tier_cut() - the device has failed, and the copies with it
 *
 * A copy that is over may have succeeded.  The others are kept at the end of the
 * array, because they still write; but not those begun after the failure.
 */
void tier_cut(struct sim *w)
{
	struct sim_move loose[SIM_MOVES];
	u32 i, n = 0;

	for (i = 0; i < w->nr_moves;) {
		if (!w->moves[i].copy) {
			i++;
			continue;
		}
		if (!w->moves[i].written || rng_chance(&w->rng, 500)) {
			w->moves[i].doomed = true;
			if (!w->moves[i].barred)
				loose[n++] = w->moves[i];
		}
		move_answer(w, i);
		world_event_done(w);
	}
	memcpy(w->moves + SIM_MOVES - n, loose, n * sizeof(*loose));
	w->nr_loose = n;
}

/* tier_cut_writes() - copies cut off write to memory that no block owns */
void tier_cut_writes(struct sim *w)
{
	u32 i;

	for (i = 0; i < w->nr_loose; i++)
		move_scribble(w, &w->moves[SIM_MOVES - 1 - i]);
	w->nr_loose = 0;
}

/**
 * tier_act_answer() - requests in flight go on, and one is answered
 *
 * Return: false: none is due, none was answered.
 */
bool tier_act_answer(struct sim *w)
{
	struct rng *r = &w->rng;
	u32 at = rng_below(r, w->nr_moves), i, n;

	if (rng_chance(r, w->plan.swapd_death))
		tier_swapd_dies(w);
	for (n = rng_below(r, 4); n; n--)
		move_on(w, &w->moves[rng_below(r, w->nr_moves)]);
	for (i = 0; i < w->nr_moves; i++) {
		n = (at + i) % w->nr_moves;
		if (w->moves[n].until <= w->now) {
			move_answer(w, n);
			return true;
		}
	}
	return false;
}

/* Answer the requests that are due, in any order; new ones may follow. */
void tier_answer_all(struct sim *w)
{
	u32 n;

	for (n = 2 * SIM_MOVES; n && w->nr_moves; n--) {
		if (!tier_act_answer(w))
			return;
		world_event_done(w);
	}
	LAW(w, n, "law 6: requests to lower tiers do not end");
}
