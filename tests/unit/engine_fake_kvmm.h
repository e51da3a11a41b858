/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_fake_kvmm.h - a daemon in the test program: blocks and verbs
 *
 * It keeps the daemon's promises of the ABI and checks the client's: blocks,
 * copy on write, a prefix index, families, preemption by recompute and by swap,
 * steps in order.  Grants are refused and families preempted at random; freed
 * memory is filled with garbage, and a swapped sequence comes back in other
 * blocks or not at all.  A client that breaks a rule fails the test at once.
 * A domain with a second layer group has blocks of both groups in one pool; those
 * behind the window of group 1 are freed, and overwritten, when a step has ended.
 * engine_fake_ring.h puts it behind libkvmm's names.  The daemon may die during
 * a forward and salvage, and give blocks that the forward reads to another
 * client.
 */
#ifndef ENGINE_FAKE_KVMM_H
#define ENGINE_FAKE_KVMM_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include <libkvmm.h>

#define FK_BT		4u		/* tokens of a block, with one group */
#define FK_GROUPS	2u
#define FK_SEQS		24u
#define FK_BLOCKS	512u
#define FK_TABLE	64u
#define FK_RING		64u
#define FK_BATCH	16u
#define FK_ARGS		4096u
#define FK_STARVE	400u		/* failed admissions of the first sequence */
#define FK_LAYERS	2u
#define FK_STRIDE	(FK_BT * 16u)
#define FK_BLOCK_BYTES	(fk.block_bytes)
#define FK_UNIT		32u
#define FK_PER_BLOCK	(FK_BLOCK_BYTES / FK_UNIT)

struct fk_block {
	u32	maps;			/* tables that have it */
	u32	srcs;			/* open steps that copy from it */
	bool	indexed;
	bool	shared;			/* a fork shares the tail */
	u32	group;
	u32	nr_ids;
	u64	salt;
	u32	prefix[FK_TABLE * FK_BT];	/* if full, all ids up to its end */
	u32	nr_prefix;
};

struct fk_seq {
	u32	gen, state, epoch, valid, cover, prompt_len, max_tokens;
	u32	priority, family, nr_steps, nr_ids, cached;
	u32	nr_blocks[FK_GROUPS];	/* those dropped behind the window included */
	int	reason;
	bool	matched, closing, known, preempted;
	bool	lease;			/* see engine_fake_lease.h; it stays set after its end */
	bool	pin;			/* opened with a lease */
	u64	last_step, salt, arrival;
	u32	dirty[FK_GROUPS];	/* changed entries from here on */
	u32	was;			/* valid positions before the loss */
	u32	filling;		/* rounds until a restore is READY */
	u8	*below;			/* content while SWAPPED */
	struct fk_block	*below_b;
	u32	table[FK_GROUPS][FK_TABLE];	/* KVMM_NO_INDEX: dropped */
	u32	ids[FK_TABLE * FK_BT];
};

struct fk_step_entry {
	u32	seq, start, end;
	u32	src[FK_GROUPS], dst[FK_GROUPS], tokens[FK_GROUPS];
	bool	copied[FK_GROUPS];
};

struct fk_step {
	u64	number;
	u32	nr;
	struct fk_step_entry e[FK_BATCH];
};

struct fk_req {
	struct kvmm_sqe	sqe;
	u8		args[FK_ARGS];
	struct kvmm_cqe	cqe;
	void		*results;
};

/* Settings of a test, and state that it may look at. */
static struct fk {
	u32	nr_blocks;		/* of the pool, at most FK_BLOCKS */
	bool	drained;		/* no new sequence */
	u32	seed;
	u32	again, preempt, full, lost;	/* chances in 1000 */
	u32	swap, swap_lost;	/* shares of preemptions; of swapped families */
	u32	swap_more;		/* tokens that a restore falsely adds */
	u64	die_at;			/* request at which the daemon dies, 0: none */
	u32	max_steps;
	bool	no_spc;			/* FORK finds no room */
	bool	no_forks;		/* FORK is refused for now */
	u32	remap_again;		/* chance in 1000 that REMAP is refused for now */
	bool	no_remaps;		/* REMAP finds no table pages */

	u32	salvage;		/* chance in 1000 to die in a forward */

	u32	lease_ms;		/* longest lease */
	u32	hit_every;		/* of several groups: hits have a multiple of it */
	u32	hit_most;
	u32	lease_most;		/* most blocks that one holds: then -EDQUOT */
	u32	lease_again;		/* chance in 1000 that a copy cannot begin now */
	u32	lease_gone;		/* leases whose content goes before them */
	bool	no_leases;		/* it is older: it refuses the request as a whole */
	bool	no_tier;		/* nothing is held, all is kept */
	u32	nr_leases, nr_lookups, nr_renews;	/* requests that were granted */

	u32	nr_groups;		/* of the domain, as the client asked for */
	u32	bt[FK_GROUPS];		/* tokens of a block */
	u32	window[FK_GROUPS];	/* 0: none */
	u32	block_bytes;
	u32	step_tokens;
	u32	hit;			/* the length of a hit is a multiple of it */
	u64	nr_dropped;		/* blocks behind a window */

	bool	gone;
	bool	away;			/* salvaged, but the client has not noticed */
	u32	nr_salvaged;
	u64	void_step;		/* steps up to this one are void */
	bool	device_failed;
	bool	jam;			/* the ring is full */
	u8	*pool;
	struct fk_block	b[FK_BLOCKS];
	struct fk_seq	s[FK_SEQS];
	struct fk_step	st[KVMM_MAX_STEPS];
	struct fk_req	req[FK_RING];
	u32	prepared, submitted, executed, reaped, released;
	u32	nr_steps, open_at_forward, family, starved;
	u64	number, last_step, arrival;
	u64	nr_marks, nr_cows, nr_evictions, nr_hits;
	u64	nr_remaps, nr_remaps_stale, nr_rematched;
	u64	nr_swapped, nr_restored, nr_swap_lost;
	u32	status_reads;
	s64	longest_wait;		/* longest wait of the client, ns */
	u32	idle_waits;		/* waits while nothing was to come */
	struct kvmm_attach_rep info;
	u8	identity[KVMM_IDENTITY_LEN];
	char	domain[KVMM_NAME_LEN];
} fk;

static u32 fk_rand(u32 below)
{
	fk.seed ^= fk.seed << 13;
	fk.seed ^= fk.seed >> 17;
	fk.seed ^= fk.seed << 5;
	return fk.seed % below;
}

static bool fk_chance(u32 in1000)
{
	return fk_rand(1000) < in1000;
}

/* ---- blocks ---- */

static void fk_spoil(u32 b)
{
	memset(fk.pool + (size_t)b * FK_BLOCK_BYTES, 0x80 + (int)fk_rand(64),
	       FK_BLOCK_BYTES);
}

static bool fk_is_free(u32 b)
{
	return !fk.b[b].maps && !fk.b[b].srcs && !fk.b[b].indexed;
}

static void fk_put(u32 b)
{
	if (fk_is_free(b)) {
		memset(&fk.b[b], 0, sizeof(fk.b[b]));
		fk_spoil(b);
	}
}

static u32 fk_count_room(void)
{
	u32 i, nr = 0;

	for (i = 0; i < fk.nr_blocks; i++)
		nr += !fk.b[i].maps && !fk.b[i].srcs;
	return nr;
}

/* Take a free block, else a cached one; fk_count_room() says that there is one. */
static u32 fk_take(void)
{
	u32 i, at = fk_rand(fk.nr_blocks), pass;

	for (pass = 0; pass < 2; pass++) {
		for (i = 0; i < fk.nr_blocks; i++) {
			u32 b = (at + i) % fk.nr_blocks;

			if (fk.b[b].maps || fk.b[b].srcs ||
			    (!pass && fk.b[b].indexed))
				continue;
			fk.nr_evictions += fk.b[b].indexed;
			fk.b[b].indexed = false;
			fk_put(b);
			fk.b[b].maps = 1;
			return b;
		}
	}
	ck_abort_msg("no block left");
	return 0;
}

static void fk_unmap(u32 b)
{
	if (b == KVMM_NO_INDEX)
		return;
	fk.b[b].maps--;
	fk_put(b);
}

/* Keep the blocks of positions before @end, in all groups. */
static void fk_unmap_from(struct fk_seq *s, u32 end)
{
	u32 g;

	for (g = 0; g < fk.nr_groups; g++)
		while (s->nr_blocks[g] > DIV_ROUND_UP(end, fk.bt[g]))
			fk_unmap(s->table[g][--s->nr_blocks[g]]);
}

/* Free the blocks that no position from @start on sees. */
static void fk_drop_behind(struct fk_seq *s, u32 start)
{
	u32 g, i;

	for (g = 0; g < fk.nr_groups; g++) {
		for (i = 0; fk.window[g] && i < s->nr_blocks[g]; i++) {
			if ((i + 1) * fk.bt[g] + fk.window[g] > start + 1)
				break;
			fk.nr_dropped += s->table[g][i] != KVMM_NO_INDEX;
			fk_unmap(s->table[g][i]);
			s->table[g][i] = KVMM_NO_INDEX;
		}
	}
}

/* The first block that a position @start sees. */
static u32 fk_first(u32 g, u32 start)
{
	return fk.window[g] && start >= fk.window[g] ?
	       (start + 1 - fk.window[g]) / fk.bt[g] : 0;
}

static bool fk_writable(u32 b, u32 g)
{
	return fk.b[b].nr_ids < fk.bt[g] && fk.b[b].maps == 1;
}

static u32 fk_lookup_in(u32 g, const u32 *ids, u32 nr, u64 salt)
{
	u32 i;

	for (i = 0; i < fk.nr_blocks; i++)
		if (fk.b[i].indexed && fk.b[i].nr_prefix == nr &&
		    fk.b[i].group == g &&
		    fk.b[i].salt == salt && !memcmp(fk.b[i].prefix, ids, 4 * nr))
			return i;
	return KVMM_NO_INDEX;
}

static u32 fk_lookup(const u32 *ids, u32 nr, u64 salt)
{
	return fk_lookup_in(0, ids, nr, salt);
}

/* ---- sequences ---- */

static u64 fk_handle(const struct fk_seq *s)
{
	return KVMM_SEQ((u32)(s - fk.s), s->gen);
}

static struct fk_seq *fk_find(u64 handle)
{
	struct fk_seq *s;

	ck_assert_uint_lt(KVMM_SEQ_INDEX(handle), FK_SEQS);
	s = &fk.s[KVMM_SEQ_INDEX(handle)];
	if (s->state == KVMM_SEQ_CLOSED || s->closing ||
	    s->gen != KVMM_SEQ_GEN(handle))
		return NULL;
	return s;
}

static struct fk_seq *fk_alloc(void)
{
	struct fk_seq *s;
	u32 gen;

	for (s = fk.s; s < fk.s + FK_SEQS; s++) {
		if (s->state != KVMM_SEQ_CLOSED)
			continue;
		gen = s->gen + 1;
		memset(s, 0, sizeof(*s));
		s->gen = gen;
		memset(s->dirty, 0xff, sizeof(s->dirty));
		return s;
	}
	ck_abort_msg("more sequences than were asked for");
	return NULL;
}

/* ---- lower tiers ---- */

static void fk_below_free(struct fk_seq *s)
{
	free(s->below);
	free(s->below_b);
	s->below = NULL;
	s->below_b = NULL;
}

/* Blocks in the tables of @s. */
static u32 fk_count(const struct fk_seq *s)
{
	u32 g, i, nr = 0;

	for (g = 0; g < fk.nr_groups; g++)
		for (i = 0; i < s->nr_blocks[g]; i++)
			nr += s->table[g][i] != KVMM_NO_INDEX;
	return nr;
}

static void fk_swap_out(struct fk_seq *s)
{
	u32 nr[FK_GROUPS], g, i, k = 0;

	s->below = malloc((fk_count(s) + 1) * FK_BLOCK_BYTES);
	s->below_b = malloc((fk_count(s) + 1) * sizeof(*s->below_b));
	for (g = 0; g < fk.nr_groups; g++) {
		for (i = 0; i < s->nr_blocks[g]; i++) {
			if (s->table[g][i] == KVMM_NO_INDEX)
				continue;
			memcpy(s->below + k * FK_BLOCK_BYTES,
			       fk.pool + (size_t)s->table[g][i] * FK_BLOCK_BYTES,
			       FK_BLOCK_BYTES);
			s->below_b[k++] = fk.b[s->table[g][i]];
		}
	}
	memcpy(nr, s->nr_blocks, sizeof(nr));
	fk_unmap_from(s, 0);
	memcpy(s->nr_blocks, nr, sizeof(nr));
	s->state = KVMM_SEQ_SWAPPED;
	s->cover = s->valid;
	fk.nr_swapped++;
}

/* Restore into other blocks, none of them shared. */
static void fk_swap_in(struct fk_seq *s)
{
	u32 g, i, k = 0;

	for (g = 0; g < fk.nr_groups; g++) {
		for (i = 0; i < s->nr_blocks[g]; i++) {
			u32 b;

			if (s->table[g][i] == KVMM_NO_INDEX)
				continue;
			b = s->table[g][i] = fk_take();
			memcpy(fk.pool + (size_t)b * FK_BLOCK_BYTES,
			       s->below + k * FK_BLOCK_BYTES, FK_BLOCK_BYTES);
			fk.b[b].nr_ids = s->below_b[k++].nr_ids;
		}
	}
	fk_below_free(s);
	s->valid += fk.swap_more;
	s->state = KVMM_SEQ_RESTORING;
	s->filling = fk_rand(4);
	fk.nr_restored++;
}

static void fk_lose(struct fk_seq *s)
{
	fk_below_free(s);
	s->was = s->valid;
	memset(s->nr_blocks, 0, sizeof(s->nr_blocks));
	s->state = KVMM_SEQ_RECOMPUTE;
	s->valid = s->cover = 0;
	s->preempted = true;
	s->matched = false;
	fk.nr_swap_lost++;
}

static void fk_mark_random(const struct fk_seq *but);

static u32 fk_count_running(void)
{
	u32 i, nr = 0;

	for (i = 0; i < FK_SEQS; i++)
		nr += fk.s[i].state == KVMM_SEQ_READY ||
		      fk.s[i].state == KVMM_SEQ_RESTORING;
	return nr;
}

/* Families that wait for their other sequences hold up others, so preempt one at times. */
static void fk_starve(const struct fk_seq *s)
{
	if (++fk.starved % FK_STARVE == 0)
		fk_mark_random(s);
}

static void fk_restore_all(void)
{
	const struct fk_seq *waits = NULL;
	struct fk_seq *s;

	for (s = fk.s; s < fk.s + FK_SEQS; s++) {
		if (s->state == KVMM_SEQ_RESTORING && !s->filling--)
			s->state = KVMM_SEQ_READY;
		if (s->state != KVMM_SEQ_SWAPPED || s->lease)
			continue;
		if (fk_chance(fk.swap_lost))
			fk_lose(s);
		else if (fk_count_room() >= fk_count(s) + fk_count_running())
			fk_swap_in(s);
		else
			waits = s;
	}
	if (waits)
		fk_starve(waits);
}

static void fk_settle(u32 family)
{
	struct fk_seq *s;

	for (s = fk.s; s < fk.s + FK_SEQS; s++)
		if (s->state && s->family == family && s->nr_steps)
			return;
	for (s = fk.s; s < fk.s + FK_SEQS; s++) {
		if (s->state != KVMM_SEQ_MARKED || s->family != family)
			continue;
		if (fk_chance(fk.swap)) {
			fk_swap_out(s);
			continue;
		}
		fk_unmap_from(s, 0);
		s->was = s->valid;
		s->state = KVMM_SEQ_RECOMPUTE;
		s->valid = s->cover = 0;
		s->preempted = true;
		s->matched = false;
	}
}

static void fk_mark(u32 family)
{
	struct fk_seq *s;

	for (s = fk.s; s < fk.s + FK_SEQS; s++) {
		if (s->state != KVMM_SEQ_READY || s->family != family)
			continue;
		s->state = KVMM_SEQ_MARKED;
		s->epoch++;
		fk.nr_marks++;
	}
	fk_settle(family);
}

static void fk_mark_random(const struct fk_seq *but)
{
	u32 i, at = fk_rand(FK_SEQS);

	for (i = 0; i < FK_SEQS; i++) {
		struct fk_seq *s = &fk.s[(at + i) % FK_SEQS];

		if (s->state == KVMM_SEQ_READY &&
		    (!but || s->family != but->family)) {
			fk_mark(s->family);
			return;
		}
	}
}

/* Are all blocks cached that a sequence of @hit tokens needs?  They are put into its tables. */
static bool fk_find_hit(struct fk_seq *s, u32 hit)
{
	u32 g, i;

	for (g = 0; g < fk.nr_groups; g++) {
		for (i = fk_first(g, hit); i < hit / fk.bt[g]; i++) {
			s->table[g][i] = fk_lookup_in(g, s->ids,
						      (i + 1) * fk.bt[g],
						      s->salt);
			if (s->table[g][i] == KVMM_NO_INDEX)
				return false;
		}
	}
	return true;
}

static bool fk_admit(struct fk_seq *s)
{
	u32 hit = (s->nr_ids - 1) / fk.hit * fk.hit, g, i, b, need = 0, room;

	while (hit && !fk_find_hit(s, hit))
		hit -= fk.hit;
	room = fk_count_room();
	for (g = 0; g < fk.nr_groups; g++) {
		need += DIV_ROUND_UP(s->nr_ids, fk.bt[g]) - hit / fk.bt[g];
		for (i = fk_first(g, hit); i < hit / fk.bt[g]; i++) {
			b = s->table[g][i];
			room -= !fk.b[b].maps && !fk.b[b].srcs;
		}
	}
	if (room < need + fk_count_running())
		return false;
	for (g = 0; g < fk.nr_groups; g++) {
		for (i = 0; i < hit / fk.bt[g]; i++) {
			if (i >= fk_first(g, hit))
				fk.b[s->table[g][i]].maps++;
			else
				s->table[g][i] = KVMM_NO_INDEX;
		}
		fk.nr_hits += i;
		s->nr_blocks[g] = i;
	}
	s->valid = s->cover = s->cached = hit;
	s->state = KVMM_SEQ_READY;
	return true;
}

/* The first of the highest priority is served first. */
static void fk_admit_all(void)
{
	for (;;) {
		struct fk_seq *s, *first = NULL;

		for (s = fk.s; s < fk.s + FK_SEQS; s++)
			if (s->state == KVMM_SEQ_WAITING && s->matched &&
			    (!first || s->priority > first->priority ||
			     (s->priority == first->priority &&
			      s->arrival < first->arrival)))
				first = s;
		if (!first)
			return;
		if (fk_admit(first)) {
			fk.starved = 0;
			continue;
		}
		fk_starve(first);
		return;
	}
}

/* ---- verbs ---- */

static int fk_open(const struct kvmm_open_arg *a, struct kvmm_open_res *r)
{
	const u32 tokens = a->prompt_len + a->max_tokens;
	struct fk_seq *s;
	u32 g, at_once, most = 0;

	ck_assert_uint_ge(a->prompt_len, 1);
	ck_assert(!a->lease);
	if (fk.drained)
		return r->status = -ESHUTDOWN;
	for (g = 0; g < fk.nr_groups; g++) {
		at_once = fk.window[g] ? min(tokens, fk.window[g] +
					     fk.step_tokens + fk.bt[g]) : tokens;
		most += DIV_ROUND_UP(at_once, fk.bt[g]);
	}
	if (most > fk.nr_blocks)
		return r->status = -E2BIG;
	s = fk_alloc();
	s->state = KVMM_SEQ_WAITING;
	s->prompt_len = a->prompt_len;
	s->max_tokens = a->max_tokens;
	s->priority = a->priority;
	s->salt = a->salt;
	s->family = ++fk.family;
	s->arrival = ++fk.arrival;
	r->seq = fk_handle(s);
	return r->status = 0;
}

static int fk_match(const struct kvmm_match_arg *a)
{
	struct fk_seq *s = fk_find(a->seq);
	const u32 total = a->start + a->nr_ids;

	ck_assert_ptr_nonnull(s);
	ck_assert(s->state == KVMM_SEQ_WAITING ||
		  s->state == KVMM_SEQ_RECOMPUTE);
	ck_assert(!s->matched);
	ck_assert_uint_eq(s->nr_steps, 0);
	if (a->start && a->start != s->nr_ids)
		return -EINVAL;
	s->nr_ids = a->start;		/* 0: a new match */
	ck_assert_uint_le(total, s->prompt_len + s->max_tokens);
	if (fk_chance(fk.again))
		return -EAGAIN;
	/* The old ids of the sequence are known: does the match change them? */
	if (s->was > a->start)
		fk.nr_rematched += !!memcmp(s->ids + a->start, a + 1,
				4 * min(a->nr_ids, s->was - a->start));
	memcpy(s->ids + a->start, a + 1, 4 * a->nr_ids);
	s->nr_ids = total;
	if (!(a->flags & KVMM_MATCH_LAST))
		return 0;
	if (s->preempted)
		ck_assert_uint_ge(total, s->prompt_len);
	else
		ck_assert_uint_eq(total, s->prompt_len);
	s->matched = true;
	s->state = KVMM_SEQ_WAITING;
	return 0;
}

/* @s maps the blocks of its tables once more. */
static void fk_share(const struct fk_seq *s)
{
	u32 g, i;

	for (g = 0; g < fk.nr_groups; g++)
		for (i = 0; i < s->nr_blocks[g]; i++)
			if (s->table[g][i] != KVMM_NO_INDEX)
				fk.b[s->table[g][i]].maps++;
}

static int fk_fork(const struct kvmm_fork_arg *a, struct kvmm_open_res *r)
{
	struct fk_seq *s = fk_find(a->seq), *c;
	int err = 0;
	u32 i, k;

	ck_assert_ptr_nonnull(s);
	ck_assert_uint_ge(a->nr_children, 1);
	if (s->nr_steps)
		ck_abort_msg("fork of a sequence in an open step");
	if (s->state != KVMM_SEQ_READY)
		err = -ESTALE;
	else if (fk.no_forks || fk_chance(fk.again))
		err = -EAGAIN;
	else if (fk.no_spc)
		err = -ENOSPC;
	for (i = 0; i < a->nr_children; i++) {
		r[i].status = err;
		if (err)
			continue;
		c = fk_alloc();
		k = c->gen;
		*c = *s;
		c->gen = k;
		c->known = false;
		c->arrival = ++fk.arrival;
		c->nr_ids = 0;
		fk_share(c);
		r[i].seq = fk_handle(c);
	}
	return err;
}

/* @s becomes a copy of @o; fk_remap() releases its old blocks at the end. */
static void fk_become(struct fk_seq *s, const struct fk_seq *o)
{
	u32 g, i;

	for (g = 0; g < fk.nr_groups; g++) {
		for (i = 0; i < o->nr_blocks[g]; i++) {
			if (i >= s->nr_blocks[g] ||
			    s->table[g][i] != o->table[g][i])
				s->dirty[g] = min(s->dirty[g], i);
			s->table[g][i] = o->table[g][i];
		}
		s->nr_blocks[g] = o->nr_blocks[g];
	}
	s->valid = s->cover = o->valid;
	s->nr_ids = o->nr_ids;
	memcpy(s->ids, o->ids, sizeof(s->ids));
	fk.nr_remaps++;
}

static int fk_remap_check(const struct kvmm_remap_arg *a, u32 nr)
{
	int err = 0;
	u32 i, k;

	for (i = 0; i < nr; i++) {
		const struct fk_seq *s = fk_find(a[i].child);
		const struct fk_seq *o = fk_find(a[i].other);

		ck_assert_ptr_nonnull(s);
		ck_assert_ptr_nonnull(o);
		ck_assert_ptr_ne(s, o);
		ck_assert_uint_eq(s->family, o->family);
		ck_assert_msg(!s->nr_steps && !o->nr_steps,
			      "remap of a sequence in an open step");
		for (k = 0; k < i; k++)
			ck_assert_uint_ne(a[k].child, a[i].child);
		if (s->state != KVMM_SEQ_READY || o->state != KVMM_SEQ_READY)
			err = -ESTALE;
	}
	return err;
}

/* All pairs are simultaneous: each sees the state before the call. */
static int fk_remap(const struct kvmm_remap_arg *a, u32 nr,
		    struct kvmm_seq_res *r)
{
	static struct fk_seq was[FK_SEQS];
	int err = fk_remap_check(a, nr);
	u32 i, g, k;

	fk.nr_remaps_stale += err == -ESTALE;
	if (!err && fk.no_remaps)
		err = -ENOSPC;
	if (fk_chance(fk.remap_again))
		return -EAGAIN;
	memcpy(was, fk.s, sizeof(was));
	for (i = 0; i < nr && !err; i++) {
		const struct fk_seq *o = &was[KVMM_SEQ_INDEX(a[i].other)];

		fk_share(o);
		fk_become(fk_find(a[i].child), o);
	}
	for (i = 0; i < nr; i++) {
		const struct fk_seq *s = &was[KVMM_SEQ_INDEX(a[i].child)];

		r[i] = (struct kvmm_seq_res){ err, fk_find(a[i].child)->valid };
		for (g = 0; g < fk.nr_groups && !err; g++)
			for (k = 0; k < s->nr_blocks[g]; k++)
				fk_unmap(s->table[g][k]);
	}
	return 0;
}

static void fk_close_now(struct fk_seq *s)
{
	if (s->state == KVMM_SEQ_SWAPPED) {
		fk_below_free(s);
		memset(s->nr_blocks, 0, sizeof(s->nr_blocks));
	}
	fk_unmap_from(s, 0);
	s->state = KVMM_SEQ_CLOSED;
	s->closing = false;
}

static int fk_close(const struct kvmm_seq_arg *a)
{
	struct fk_seq *s = fk_find(a->seq);

	if (!s && fk.s[KVMM_SEQ_INDEX(a->seq)].lease)
		return -ENOENT;		/* it ended by itself */
	ck_assert_ptr_nonnull(s);
	if (s->nr_steps)
		s->closing = true;
	else
		fk_close_now(s);
	return 0;
}

/* If there is no room, another family may be preempted. */
static int fk_make_room(struct fk_seq *s, u32 need)
{
	if (fk_count_room() >= need)
		return 0;
	fk_mark_random(s);
	if (fk_count_room() >= need)
		return 0;
	if (fk_chance(100))
		fk_mark(s->family);
	return -EAGAIN;
}

/* Would a step from @start on write a block of the group that it must not write? */
static bool fk_must_copy(const struct fk_seq *s, u32 g, u32 start)
{
	const u32 first = start / fk.bt[g];

	return first < s->nr_blocks[g] && !fk_writable(s->table[g][first], g);
}

static void fk_copy(struct fk_seq *s, const struct kvmm_begin_arg *a, u32 g,
		    struct fk_step_entry *e, struct kvmm_begin_res *r)
{
	const u32 first = a->start / fk.bt[g], tokens = a->start % fk.bt[g];
	const u32 from = s->table[g][first], to = fk_take();

	s->table[g][first] = to;
	r->table_lo = first;
	fk.nr_cows++;
	fk.b[to].nr_ids = tokens;
	if (tokens) {
		r->copy_from = from * FK_PER_BLOCK;
		r->copy_to = to * FK_PER_BLOCK;
		r->copy_tokens = tokens;
		e->src[g] = from;
		e->dst[g] = to;
		e->tokens[g] = tokens;
		fk.b[from].srcs++;
	}
	fk_unmap(from);
}

static void fk_grant(struct fk_seq *s, const struct kvmm_begin_arg *a,
		     struct fk_step_entry *e, struct kvmm_begin_res *r)
{
	u32 g, want;

	*e = (struct fk_step_entry){ .seq = (u32)(s - fk.s),
		.start = a->start, .end = a->start + a->max_tokens };
	memset(e->src, 0xff, sizeof(e->src));
	for (g = 0; g < fk.nr_groups; g++) {
		want = DIV_ROUND_UP(e->end, fk.bt[g]);
		if (fk_must_copy(s, g, a->start))
			fk_copy(s, a, g, e, &r[g]);
		if (want > s->nr_blocks[g] && r[g].table_lo == KVMM_NO_INDEX)
			r[g].table_lo = s->nr_blocks[g];
		r[g].table_lo = min(r[g].table_lo, s->dirty[g]);
		s->dirty[g] = KVMM_NO_INDEX;
		while (s->nr_blocks[g] < want)
			s->table[g][s->nr_blocks[g]++] = fk_take();
	}
	s->cover = max(s->cover, e->end);
	s->nr_steps++;
}

/* Is the entry right, and is its sequence there? */
static int fk_begin_check(u64 step, const struct kvmm_begin_arg *a,
			  struct fk_seq *s)
{
	ck_assert_ptr_nonnull(s);
	ck_assert_uint_ge(a->max_tokens, 1);
	if (s->state == KVMM_SEQ_FAILED)
		return s->reason;
	if (s->state != KVMM_SEQ_READY || s->epoch != a->seq_epoch)
		return -ESTALE;
	ck_assert(s->last_step != step);
	s->last_step = step;
	ck_assert_uint_ge(a->start, s->valid);
	ck_assert_uint_le(a->start, s->cover);
	ck_assert_uint_le(a->start + a->max_tokens, s->prompt_len + s->max_tokens);
	return fk_chance(fk.again) ? -EAGAIN : 0;
}

/* @r: results of all groups. */
static int fk_begin_entry(u64 step, const struct kvmm_begin_arg *a,
			  struct fk_step_entry *e, struct kvmm_begin_res *r)
{
	struct fk_seq *s = fk_find(a->seq);
	u32 g, want, need = 0;
	int err = fk_begin_check(step, a, s);

	for (g = 0; g < fk.nr_groups; g++) {
		r[g] = (struct kvmm_begin_res){
			.table_lo = KVMM_NO_INDEX, .seq_epoch = s->epoch,
		};
		want = DIV_ROUND_UP(a->start + a->max_tokens, fk.bt[g]);
		need += fk_must_copy(s, g, a->start);
		need += want > s->nr_blocks[g] ? want - s->nr_blocks[g] : 0;
	}
	if (!err)
		err = fk_make_room(s, need);
	if (!err)
		fk_grant(s, a, e, r);
	for (g = 0; g < fk.nr_groups; g++) {
		r[g].status = err;
		r[g].valid_len = err ? 0 : s->valid;
	}
	return err;
}

static int fk_begin(const struct kvmm_sqe *sqe, const struct kvmm_begin_arg *a,
		    struct kvmm_begin_res *r)
{
	struct fk_step *st = &fk.st[fk.nr_steps];
	u32 i;

	ck_assert_uint_gt(sqe->step, fk.last_step);
	ck_assert_uint_lt(fk.nr_steps, fk.max_steps);
	ck_assert_uint_ge(sqe->nr, 1);
	ck_assert_uint_le(sqe->nr, FK_BATCH);
	fk.last_step = st->number = sqe->step;
	fk.nr_steps++;
	st->nr = 0;
	if (fk_chance(fk.preempt))
		fk_mark_random(NULL);
	for (i = 0; i < sqe->nr; i++) {
		st->nr += !fk_begin_entry(sqe->step, &a[i], &st->e[st->nr],
					  &r[i * fk.nr_groups]);
	}
	return 0;
}

static void fk_seal(struct fk_seq *s, u32 g, u32 idx)
{
	struct fk_block *b = &fk.b[s->table[g][idx]];
	const u32 nr = (idx + 1) * fk.bt[g];

	if (fk_lookup_in(g, s->ids, nr, s->salt) != KVMM_NO_INDEX)
		return;
	b->group = g;
	memcpy(b->prefix, s->ids, 4 * nr);
	b->nr_prefix = nr;
	b->salt = s->salt;
	b->indexed = true;
}

static void fk_progress(struct fk_seq *s, const struct kvmm_end_arg *a,
			const u32 *ids)
{
	const u32 old = s->valid;
	u32 p, g;

	ck_assert_uint_eq(a->nr_ids, a->valid_len - old);
	for (p = old; p < a->valid_len; p++) {
		for (g = 0; g < fk.nr_groups; g++)
			ck_assert(fk_writable(s->table[g][p / fk.bt[g]], g));
		/* Computed ids equal the matched ones. */
		if (p < s->nr_ids)
			ck_assert_uint_eq(s->ids[p], ids[p - old]);
		s->ids[p] = ids[p - old];
		s->valid = p + 1;
		for (g = 0; g < fk.nr_groups; g++) {
			fk.b[s->table[g][p / fk.bt[g]]].nr_ids = p % fk.bt[g] + 1;
			if (s->valid % fk.bt[g] == 0)
				fk_seal(s, g, p / fk.bt[g]);
		}
	}
}

static void fk_release_entry(struct fk_step_entry *e)
{
	struct fk_seq *s = &fk.s[e->seq];
	u32 i, n, g;

	for (g = 0; g < fk.nr_groups; g++) {
		if (e->src[g] == KVMM_NO_INDEX)
			continue;
		ck_assert_msg(e->copied[g], "a granted copy was not run");
		fk.b[e->src[g]].srcs--;
		fk_put(e->src[g]);
	}
	s->nr_steps--;
	s->cover = s->valid;
	for (i = 0; i < fk.nr_steps; i++)
		for (n = 0; n < fk.st[i].nr; n++)
			if (fk.st[i].e[n].seq == e->seq)
				s->cover = max(s->cover, fk.st[i].e[n].end);
	fk_unmap_from(s, s->cover);
	fk_drop_behind(s, s->valid);
	if (s->nr_steps)
		return;
	if (s->closing)
		fk_close_now(s);
	fk_settle(s->family);
}

static int fk_end(const struct kvmm_sqe *sqe, const struct kvmm_end_arg *a,
		  struct kvmm_end_res *r)
{
	const u32 *ids = (const u32 *)(a + sqe->nr);
	struct fk_step st = fk.st[0];
	u32 i, n;

	if (sqe->step <= fk.void_step) {
		memset(r, 0, sqe->nr * sizeof(*r));
		return -EINVAL;
	}
	ck_assert_uint_ge(fk.nr_steps, 1);
	ck_assert_uint_eq(st.number, sqe->step);
	for (i = 0; i < sqe->nr; i++) {
		struct fk_seq *s = fk_find(a[i].seq);

		ck_assert_ptr_nonnull(s);
		for (n = 0; n < st.nr; n++)
			if (&fk.s[st.e[n].seq] == s)
				break;
		ck_assert_msg(n < st.nr, "the end of what was not granted");
		ck_assert_uint_le(a[i].valid_len, st.e[n].end);
		ck_assert_uint_ge(s->valid, st.e[n].start);
		fk_progress(s, &a[i], ids);
		ids += a[i].nr_ids;
		r[i] = (struct kvmm_end_res){ .valid_len = s->valid,
					      .seq_epoch = s->epoch };
	}
	memmove(fk.st, fk.st + 1, sizeof(fk.st) - sizeof(fk.st[0]));
	fk.nr_steps--;
	for (n = 0; n < st.nr; n++)
		fk_release_entry(&st.e[n]);
	return 0;
}

/* ---- death ---- */

/* The next daemon gave the block to another client, proven or not. */
static void fk_steal(u32 b)
{
	memset(&fk.b[b], 0, sizeof(fk.b[b]));
	fk_spoil(b);
}

/*
 * The daemon dies, and the next one salvages: steps are void, sequences have
 * only cached blocks, and half of these go to another client.
 */
static void fk_salvage(void)
{
	struct fk_seq *s;
	u32 i;

	fk.away = true;
	fk.void_step = fk.last_step;
	fk.nr_steps = 0;
	for (s = fk.s; s < fk.s + FK_SEQS; s++) {
		if (s->state == KVMM_SEQ_CLOSED)
			continue;
		s->nr_steps = 0;
		s->last_step = 0;
		s->was = max(s->was, s->valid);
		fk_below_free(s);
		memset(s->nr_blocks, 0, sizeof(s->nr_blocks));
		s->valid = s->cover = s->nr_ids = 0;
		s->state = s->closing || s->lease ? KVMM_SEQ_CLOSED :
						    KVMM_SEQ_RECOMPUTE;
		s->closing = s->matched = false;
		s->preempted = true;
		s->epoch++;
	}
	for (i = 0; i < fk.nr_blocks; i++) {
		fk.b[i].maps = fk.b[i].srcs = 0;
		if (!fk.b[i].indexed || fk_chance(500))
			fk_steal(i);
	}
}

#endif /* ENGINE_FAKE_KVMM_H */
