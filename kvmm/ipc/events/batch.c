// SPDX-License-Identifier: Apache-2.0
/*
 * batch.c - records of the ring become a batch of events
 *
 * The payload is that of vLLM: an array of the time, the events, and a rank.  An event
 * is a map with its type; in vLLM before 0.24 it was an array of the same values in
 * the same order, with the type first.
 *
 * Records that follow each other become one event: blocks of one chain that were
 * stored, blocks that were removed.  A block that moved is stored in the new medium,
 * then removed from the old one.
 */
#include "kvmm/ipc/events/events.h"

static const char * const medium[NR_CORE_PLACES] = {
	[CORE_PLACE_DEVICE]	= "GPU",
	[CORE_PLACE_HOST]	= "CPU",
	[CORE_PLACE_AREA]	= "STORAGE",
};

/* ---- the forms of an event ---- */

static void event_begin(struct ev_batch *b, const char *type, u32 nr_fields)
{
	b->nr++;
	if (b->arrays) {
		pack_array(&b->pack, 1 + nr_fields);
	} else {
		pack_map(&b->pack, 1 + nr_fields);
		pack_str(&b->pack, "type");
	}
	pack_str(&b->pack, type);
}

/* The name of the value that follows. */
static void field(struct ev_batch *b, const char *name)
{
	if (!b->arrays)
		pack_str(&b->pack, name);
}

static void field_str(struct ev_batch *b, const char *name, const char *s)
{
	field(b, name);
	if (s)
		pack_str(&b->pack, s);
	else
		pack_nil(&b->pack);
}

static void field_uint(struct ev_batch *b, const char *name, u64 n)
{
	field(b, name);
	pack_uint(&b->pack, n);
}

static void field_hashes(struct ev_batch *b)
{
	u32 i;

	field(b, "block_hashes");
	pack_array(&b->pack, b->nr_hash);
	for (i = 0; i < b->nr_hash; i++)
		pack_uint(&b->pack, b->hash[i]);
}

/* ---- events ---- */

static const char *spec_kind(const struct ev_rec *r)
{
	if (r->group_kind == KVMM_GROUP_STATE)
		return "mamba";
	return r->window ? "sliding_window" : "full_attention";
}

/*
 * vLLM gives the salt itself, in the first block.  A salt is a secret of its tenant, so
 * each block of its prompts has a word instead: their ids alone do not find them.
 */
static void field_extra_keys(struct ev_batch *b)
{
	u32 i;

	field(b, "extra_keys");
	if (!b->first.salted) {
		pack_nil(&b->pack);
		return;
	}
	pack_array(&b->pack, b->nr_hash);
	for (i = 0; i < b->nr_hash; i++) {
		pack_array(&b->pack, 1);
		pack_str(&b->pack, "salted");
	}
}

static void stored(struct ev_batch *b)
{
	const struct ev_rec *r = &b->first;
	u32 i;

	event_begin(b, "BlockStored", 10 + !!r->window);
	field_hashes(b);
	field(b, "parent_block_hash");
	if (r->parent)
		pack_uint(&b->pack, r->parent);
	else
		pack_nil(&b->pack);
	field(b, "token_ids");
	pack_array(&b->pack, b->nr_ids);
	for (i = 0; i < b->nr_ids; i++)
		pack_uint(&b->pack, b->ids[i]);
	field_uint(b, "block_size", r->nr_ids);
	field_str(b, "lora_id", NULL);
	field_str(b, "medium", medium[r->to]);
	field_str(b, "lora_name", NULL);
	field_extra_keys(b);
	field_uint(b, "group_idx", r->group);
	field_str(b, "kv_cache_spec_kind", spec_kind(r));
	if (r->window)
		field_uint(b, "kv_cache_spec_sliding_window", r->window);
}

static void removed(struct ev_batch *b)
{
	event_begin(b, "BlockRemoved", 3);
	field_hashes(b);
	field_str(b, "medium", medium[b->first.from]);
	field_uint(b, "group_idx", b->first.group);
}

/* Pack the event that was open. */
static void event_flush(struct ev_batch *b)
{
	if (b->nr_hash && b->first.to)
		stored(b);
	if (b->nr_hash && b->first.from)
		removed(b);
	b->nr_hash = 0;
	b->nr_ids = 0;
}

/* Can the record be a part of the open event? */
static bool event_takes(const struct ev_batch *b, const struct ev_rec *r)
{
	const struct ev_rec *f = &b->first;

	if (!b->nr_hash || b->nr_hash == EV_EVENT_HASHES ||
	    b->nr_ids + r->nr_ids > EV_EVENT_IDS)
		return false;
	if (r->from != f->from || r->to != f->to || r->domain != f->domain ||
	    r->group != f->group)
		return false;
	return !r->to || (r->parent == b->hash[b->nr_hash - 1] && r->salted == f->salted);
}

/* ---- the batch ---- */

/* ev_batch_begin() - a batch without events, at @seconds since 1970 */
void ev_batch_begin(struct ev_batch *b, double seconds)
{
	b->pack = (struct pack){ .buf = b->buf, .size = sizeof(b->buf) };
	b->nr = 0;
	b->nr_hash = 0;
	b->nr_ids = 0;
	pack_array(&b->pack, 3);
	pack_double(&b->pack, seconds);
	b->at = pack_array_later(&b->pack);
}

/**
 * ev_batch_add() - add a record
 * Return: false: the batch is full now, and is to be sent.
 */
bool ev_batch_add(struct ev_batch *b, const struct ev_rec *r)
{
	if (r->kind == EV_CLEAR) {
		event_flush(b);
		event_begin(b, "AllBlocksCleared", 0);
		return true;
	}
	if (!event_takes(b, r)) {
		event_flush(b);
		b->first = *r;
	}
	b->hash[b->nr_hash++] = r->hash;
	memcpy(b->ids + b->nr_ids, r->ids, 4ull * r->nr_ids);
	b->nr_ids += r->nr_ids;
	return b->pack.len + 16u * b->nr_hash + 4u * b->nr_ids < EV_BATCH_BYTES;
}

/* ev_batch_end() - complete it.  Return: false: it has no event */
bool ev_batch_end(struct ev_batch *b)
{
	event_flush(b);
	pack_array_now(&b->pack, b->at, b->nr);
	pack_uint(&b->pack, 0);
	return b->nr;
}
