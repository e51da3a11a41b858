/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_read.h - what a subscriber of --kv-events reads: batches of vLLM's events
 *
 * A reader of MessagePack that knows no code of kvmm's encoder.  It accepts every form
 * of a value, and both forms of an event.  Wrong bytes set @bad.
 */
#ifndef TESTS_KV_READ_H
#define TESTS_KV_READ_H

#include <stdio.h>
#include <string.h>

#include <kvmm/types.h>

#define KV_MOST	8192u	/* hashes or ids of an event */

struct kv_read {
	const u8	*at;
	const u8	*end;
	bool		bad;
};

/* One event; a value that is nil or not there is 0 or empty. */
struct kv_event {
	char	type[32];
	char	medium[16];
	char	kind[32];
	u32	nr_hashes;
	u64	hash[KV_MOST];
	u64	parent;
	u32	nr_ids;
	u64	id[KV_MOST];
	u64	block_size;
	u64	group;
	u64	window;
	u32	nr_extra;
};

static u64 kv_be(struct kv_read *r, u32 bytes)
{
	u64 n = 0;

	if ((u64)(r->end - r->at) < bytes) {
		r->bad = true;
		return 0;
	}
	for (; bytes; bytes--)
		n = n << 8 | *r->at++;
	return n;
}

static bool kv_nil(struct kv_read *r)
{
	if (r->at >= r->end || *r->at != 0xc0)
		return false;
	r->at++;
	return true;
}

static u64 kv_uint(struct kv_read *r)
{
	u8 tag = (u8)kv_be(r, 1);

	if (tag < 0x80)
		return tag;
	if (tag >= 0xcc && tag <= 0xcf)
		return kv_be(r, 1u << (tag - 0xcc));
	r->bad = true;
	return 0;
}

static double kv_double(struct kv_read *r)
{
	u64 bits;
	double d;

	r->bad |= kv_be(r, 1) != 0xcb;
	bits = kv_be(r, 8);
	memcpy(&d, &bits, sizeof(d));
	return d;
}

/* The length of an array, a map or a string, by the tags of its three forms. */
static u32 kv_len(struct kv_read *r, u8 fix, u8 fix_most, u8 tag8, u8 tag16)
{
	u8 tag = (u8)kv_be(r, 1);

	if ((tag & (u8)~fix_most) == fix)
		return tag & fix_most;
	if (tag8 && tag == tag8)
		return (u32)kv_be(r, 1);
	if (tag == tag16 || tag == tag16 + 1)
		return (u32)kv_be(r, tag == tag16 ? 2 : 4);
	r->bad = true;
	return 0;
}

static u32 kv_array(struct kv_read *r)
{
	return kv_len(r, 0x90, 15, 0, 0xdc);
}

static void kv_str(struct kv_read *r, char *out, u32 size)
{
	u32 len;

	*out = '\0';
	if (kv_nil(r))
		return;
	len = kv_len(r, 0xa0, 31, 0xd9, 0xda);
	if (r->bad || (u64)(r->end - r->at) < len || len >= size) {
		r->bad = true;
		return;
	}
	memcpy(out, r->at, len);
	out[len] = '\0';
	r->at += len;
}

static u32 kv_uints(struct kv_read *r, u64 *out)
{
	u32 nr = kv_array(r), i;

	if (nr > KV_MOST)
		r->bad = true;
	for (i = 0; i < nr && !r->bad; i++)
		out[i] = kv_uint(r);
	return nr;
}

/* For each block nil, or an array of words. */
static u32 kv_extra(struct kv_read *r)
{
	char word[32];
	u32 nr, i, n;

	if (kv_nil(r))
		return 0;
	nr = kv_array(r);
	for (i = 0; i < nr && !r->bad; i++) {
		if (kv_nil(r))
			continue;
		for (n = kv_array(r); n && !r->bad; n--)
			kv_str(r, word, sizeof(word));
	}
	return nr;
}

/* Fields in the order of the array form; BlockRemoved has those of the second list. */
static const char * const kv_stored[] = {
	"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium",
	"lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind",
	"kv_cache_spec_sliding_window",
};
static const char * const kv_removed[] = { "block_hashes", "medium", "group_idx" };

static void kv_field(struct kv_read *r, const char *name, struct kv_event *e)
{
	char none[32];

	if (!strcmp(name, "block_hashes"))
		e->nr_hashes = kv_uints(r, e->hash);
	else if (!strcmp(name, "parent_block_hash"))
		e->parent = kv_nil(r) ? 0 : kv_uint(r);
	else if (!strcmp(name, "token_ids"))
		e->nr_ids = kv_uints(r, e->id);
	else if (!strcmp(name, "block_size"))
		e->block_size = kv_uint(r);
	else if (!strcmp(name, "medium"))
		kv_str(r, e->medium, sizeof(e->medium));
	else if (!strcmp(name, "extra_keys"))
		e->nr_extra = kv_extra(r);
	else if (!strcmp(name, "group_idx"))
		e->group = kv_uint(r);
	else if (!strcmp(name, "kv_cache_spec_kind"))
		kv_str(r, e->kind, sizeof(e->kind));
	else if (!strcmp(name, "kv_cache_spec_sliding_window"))
		e->window = kv_uint(r);
	else if (!strcmp(name, "lora_id") || !strcmp(name, "lora_name"))
		kv_str(r, none, sizeof(none));
	else
		r->bad = true;
}

static void kv_event_map(struct kv_read *r, struct kv_event *e)
{
	u32 nr = kv_len(r, 0x80, 15, 0, 0xde);
	char name[48];

	for (; nr && !r->bad; nr--) {
		kv_str(r, name, sizeof(name));
		if (!strcmp(name, "type"))
			kv_str(r, e->type, sizeof(e->type));
		else
			kv_field(r, name, e);
	}
}

static void kv_event_array(struct kv_read *r, struct kv_event *e)
{
	u32 nr = kv_array(r), i;
	bool stored;

	kv_str(r, e->type, sizeof(e->type));
	stored = !strcmp(e->type, "BlockStored");
	for (i = 0; i + 1 < nr && !r->bad; i++) {
		if (i >= (stored ? ARRAY_SIZE(kv_stored) : ARRAY_SIZE(kv_removed)))
			r->bad = true;
		else
			kv_field(r, stored ? kv_stored[i] : kv_removed[i], e);
	}
}

static void kv_read_event(struct kv_read *r, struct kv_event *e)
{
	e->type[0] = e->medium[0] = e->kind[0] = '\0';
	e->nr_hashes = e->nr_ids = e->nr_extra = 0;
	e->parent = e->block_size = e->group = e->window = 0;
	if (r->at < r->end && (*r->at & 0xf0) == 0x80)
		kv_event_map(r, e);
	else
		kv_event_array(r, e);
	if (strcmp(e->type, "BlockStored") && strcmp(e->type, "BlockRemoved") &&
	    strcmp(e->type, "AllBlocksCleared"))
		r->bad = true;
}

/*
 * kv_read_batch() - read a payload; @fn gets each event.  Return: number of events, or
 * -1: the payload is not as it should be.
 */
static int __attribute__((unused))
kv_read_batch(const void *data, size_t len, void (*fn)(const struct kv_event *e, void *arg),
	      void *arg)
{
	static struct kv_event e;
	struct kv_read r = { .at = data, .end = (const u8 *)data + len };
	u32 nr, i;

	if (kv_array(&r) != 3 || kv_double(&r) < 1e9)
		return -1;
	nr = kv_array(&r);
	for (i = 0; i < nr && !r.bad; i++) {
		kv_read_event(&r, &e);
		if (!r.bad)
			fn(&e, arg);
	}
	r.bad |= kv_uint(&r) != 0;
	return r.bad || r.at != r.end ? -1 : (int)nr;
}

#endif /* TESTS_KV_READ_H */
