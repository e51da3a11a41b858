// SPDX-License-Identifier: Apache-2.0
/*
 * dict.c - dicts, which keep the order of insertion
 *
 * Entries are in an array.  A dict of nine or more also has a hash table of
 * places in that array, with linear probing, at most half full.  Entries are
 * never removed.
 */
#include "runtime/template/internal.h"

#define DICT_LINEAR	8u

struct value tv_dict(struct render *r, enum value_kind kind)
{
	struct dict *d = mem_get(&r->mem, sizeof(*d));

	if (!d)
		return VALUE(V_UNDEF);
	memset(d, 0, sizeof(*d));
	return VALUE(kind, .dict = d);
}

static u32 hash_bytes(u32 h, const void *p, size_t n)
{
	const u8 *b = p;
	size_t i;

	for (i = 0; i < n; i++)
		h = (h ^ b[i]) * 16777619u;
	return h;
}

/* Equal values have equal hashes: 1, 1.0 and True */
static u32 hash_value(struct render *r, struct value v)
{
	u32 h = 2166136261u, i;
	double f;

	switch (v.kind) {
	case V_STR:
		run_bytes(r, v.len);
		return hash_bytes(h, v.s, v.len);
	case V_BOOL:
	case V_INT:
	case V_FLOAT:
		f = tv_as_float(v) + 0.0;
		return hash_bytes(h, &f, sizeof(f));
	case V_TUPLE:
		if (!run_enter(r))
			return 0;
		for (i = 0; i < v.seq->n && !r->mem.failed; i++)
			h = h * 31 + hash_value(r, v.seq->v[i]);
		run_leave(r);
		return h;
	case V_LIST:
	case V_DICT:
	case V_VIEW:
		run_fail(r, "a value of type %s cannot be a key", tv_type(v));
		return 0;
	default:
		return v.kind;
	}
}

static u32 *slot_find(const struct dict *d, u32 hash)
{
	return &d->slot[hash & (d->nr_slots - 1)];
}

static u32 *slot_next(const struct dict *d, u32 *slot)
{
	return slot + 1 == d->slot + d->nr_slots ? d->slot : slot + 1;
}

static struct dict_entry *entry_find(struct render *r, const struct dict *d,
				     struct value key, u32 hash)
{
	u32 i, *slot;

	if (!d->nr_slots) {
		for (i = 0; i < d->n; i++)
			if (d->e[i].hash == hash &&
			    tv_equal(r, d->e[i].key, key))
				return &d->e[i];
		return NULL;
	}
	for (slot = slot_find(d, hash); *slot && !r->mem.failed;
	     slot = slot_next(d, slot)) {
		run_step(r, 1);
		i = *slot - 1;
		if (d->e[i].hash == hash && tv_equal(r, d->e[i].key, key))
			return &d->e[i];
	}
	return NULL;
}

struct value *tv_dict_find(struct render *r, const struct dict *d,
			   struct value key)
{
	u32 hash = hash_value(r, key);
	struct dict_entry *e;

	if (r->mem.failed)
		return NULL;
	e = entry_find(r, d, key, hash);
	return e ? &e->val : NULL;
}

struct value *tv_dict_text(struct render *r, const struct dict *d,
			   const char *s, size_t n)
{
	return tv_dict_find(r, d, VALUE_STR(s, n));
}

static void slot_fill(struct render *r, struct dict *d, u32 i)
{
	u32 *slot = slot_find(d, d->e[i].hash);

	/* Count steps, since keys can be made to have the same hash */
	for (; *slot && !r->mem.failed; slot = slot_next(d, slot))
		run_step(r, 1);
	*slot = i + 1;
}

static bool dict_grow(struct render *r, struct dict *d)
{
	u32 cap = max(d->cap * 2, 4u), i;
	struct dict_entry *e;

	if (d->cap >= 1u << 26) {
		run_limit(r, "a dict of too many items");
		return false;
	}
	e = mem_get(&r->mem, cap * sizeof(*e));
	if (!e)
		return false;
	if (d->n)
		memcpy(e, d->e, d->n * sizeof(*e));
	d->e = e;
	d->cap = cap;
	if (cap <= DICT_LINEAR)
		return true;
	d->nr_slots = 0;
	d->slot = mem_get(&r->mem, 2 * (size_t)cap * sizeof(*d->slot));
	if (!d->slot)
		return false;
	d->nr_slots = 2 * cap;
	memset(d->slot, 0, d->nr_slots * sizeof(*d->slot));
	for (i = 0; i < d->n; i++)
		slot_fill(r, d, i);
	return true;
}

void tv_dict_set(struct render *r, struct dict *d, struct value key,
		 struct value val)
{
	u32 hash = r->mem.failed ? 0 : hash_value(r, key);
	struct dict_entry *e;

	if (r->mem.failed)
		return;
	e = entry_find(r, d, key, hash);
	if (e) {
		e->val = val;
		return;
	}
	if (d->n == d->cap && !dict_grow(r, d))
		return;
	d->e[d->n].key = key;
	d->e[d->n].val = val;
	d->e[d->n].hash = hash;
	if (d->nr_slots)
		slot_fill(r, d, d->n);
	d->n++;
}
