// SPDX-License-Identifier: Apache-2.0
/*
 * prefix.c - common prefixes of prompts
 *
 * Two questions of the queue, both answered from hashes of whole blocks.  A
 * hash covers the block, all ids before it and the salt.
 *
 * In the making: is a prompt that begins with the same blocks being read?  Only
 * prompts with the same first block are compared, and few prompts are being
 * read at a time.
 *
 * Known: how many leading blocks of a prompt were computed lately?  The daemon
 * knows, but the engine does not ask it about queued requests.  Instead the
 * engine remembers the blocks that it computed itself, in a table in which a
 * newer block overwrites an older one.  The table may be wrong in both
 * directions.  That costs a place in the queue and never a token: the daemon's
 * match decides which blocks are cached.
 */
#include <stdlib.h>

#include "runtime/engine/internal.h"

#define PREFIX_KNOWN	(1u << 14)	/* blocks remembered */

static u64 mix(u64 x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

/* Never 0, which means no hash. */
static u64 hash_block(u64 before, const u32 *ids, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		before = mix(before ^ ids[i]) + i;
	return before | 1;
}

static u64 hash_begin(u64 salt)
{
	return mix(salt + 1);
}

/**
 * prefix_prepare() - compute the hashes of a prompt
 *
 * The last token is always computed, so a block that ends with it cannot be
 * shared.
 */
int prefix_prepare(const struct engine *e, struct request *r)
{
	const u32 bt = e->hit_tokens;
	const u32 nr = (r->c.nr - 1) / bt;
	u64 h = hash_begin(r->c.salt);
	u32 i;

	if (r->c.nr >= bt)
		r->first_block = hash_block(h, r->c.ids, bt);
	if (!e->queue.by_prefix || !nr)
		return 0;
	r->blocks = malloc(nr * sizeof(*r->blocks));
	if (!r->blocks)
		return -ENOMEM;
	for (i = 0; i < nr; i++)
		h = r->blocks[i] = hash_block(h, r->c.ids + i * bt, bt);
	r->nr_blocks = nr;
	return 0;
}

/* ---- in the making ---- */

/* Leading tokens that @r may one day take from the blocks of @s. */
static u32 prefix_shared(const struct engine *e, const struct request *r,
			 const struct seq *s)
{
	const struct engine_request *a = &r->c, *b = &s->req->c;
	const u32 bt = e->hit_tokens;
	const u32 most = min(a->nr - 1, b->nr) / bt * bt;
	u32 n = 0;

	if (a->salt != b->salt)
		return 0;
	while (n < most && !memcmp(a->ids + n, b->ids + n, bt * sizeof(u32)))
		n += bt;
	return n;
}

/* prefix_is_made() - @s begins to read its prompt */
void prefix_is_made(struct engine *e, struct seq *s)
{
	e->queue.making[e->queue.nr_making++] = s;
}

/* prefix_look() - find the sequences that read their prompts */
void prefix_look(struct engine *e)
{
	u32 i;

	e->queue.nr_making = 0;
	for (i = 0; i < e->nr_live; i++) {
		struct seq *s = e->live[i];

		if (s == s->req->root && !seq_is_done(s) &&
		    s->sample == ENGINE_NO_SAMPLE)
			prefix_is_made(e, s);
	}
}

/*
 * prefix_in_the_making() - is it better to wait for the blocks of another
 * prompt?
 */
bool prefix_in_the_making(const struct engine *e, const struct request *r)
{
	u32 i, n;

	for (i = 0; r->first_block && i < e->queue.nr_making; i++) {
		const struct seq *s = e->queue.making[i];

		if (s->req->first_block != r->first_block)
			continue;
		n = prefix_shared(e, r, s);
		if (s->computed < n &&
		    prefix_known(e, r) * e->hit_tokens < n)
			return true;
	}
	return false;
}

/* ---- known ---- */

int prefix_init(struct engine *e)
{
	if (!e->queue.by_prefix)
		return 0;
	e->queue.known = calloc(PREFIX_KNOWN, sizeof(*e->queue.known));
	return e->queue.known ? 0 : -ENOMEM;
}

/* prefix_add() - the KV of @ids was computed */
void prefix_add(struct engine *e, const u32 *ids, u32 nr, u64 salt)
{
	const u32 bt = e->hit_tokens;
	u64 h = hash_begin(salt);
	u32 i;

	if (!e->queue.known)
		return;
	for (i = 0; i + bt <= nr; i += bt) {
		h = hash_block(h, ids + i, bt);
		e->queue.known[h / 2 % PREFIX_KNOWN] = h;
	}
}

/* prefix_known() - leading blocks of the prompt that were computed lately */
u32 prefix_known(const struct engine *e, const struct request *r)
{
	const u64 *known = e->queue.known;
	u32 i;

	for (i = 0; i < r->nr_blocks; i++)
		if (known[r->blocks[i] / 2 % PREFIX_KNOWN] != r->blocks[i])
			break;
	return i;
}
