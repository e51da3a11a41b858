/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_fake_lease.h - lookups and leases of the daemon in the test program
 *
 * A lease is a sequence that is SWAPPED, with a copy of the content, and is never
 * restored.  Content that only a lease has is not found by a match; WILLNEED brings it
 * back at once if there is room.  A lookup may find less than it could, and then says
 * so; cookies name the ids of all pieces so far.
 */
#ifndef ENGINE_FAKE_LEASE_H
#define ENGINE_FAKE_LEASE_H

#include <kvmm/clock.h>

#include "tests/unit/engine_fake_kvmm.h"

#define FK_COOKIES	16u

/* The prompts that were looked up last. */
static struct fk_cookie {
	u64	salt;
	u64	number;
	u32	nr;
	u32	ids[FK_TABLE * FK_BT];
} fk_cookies[FK_COOKIES];

static u64 fk_nr_cookies;

/* The lease whose content begins with these ids, or NULL. */
static const struct fk_seq *fk_leased(const u32 *ids, u32 nr, u64 salt)
{
	const struct fk_seq *s;

	for (s = fk.s; s < fk.s + FK_SEQS; s++)
		if (s->lease && s->state && s->valid >= nr && s->salt == salt &&
		    !memcmp(s->ids, ids, 4 * nr))
			return s;
	return NULL;
}

static void fk_look(const struct kvmm_lookup_arg *a, struct kvmm_lookup_res *r)
{
	static struct fk_cookie was;
	struct fk_cookie *ck;
	u32 i;

	ck_assert(a->nr_ids && a->nr_ids % FK_BT == 0 && a->start % FK_BT == 0);
	ck_assert(!a->resv0 && !a->resv[0] && !a->resv[1]);
	was = fk_cookies[a->cookie[0] % FK_COOKIES];
	ck_assert(a->start ? was.number == a->cookie[0] && was.salt == a->salt &&
		  was.nr == a->start : !a->cookie[0]);
	ck = &fk_cookies[++fk_nr_cookies % FK_COOKIES];
	*ck = was;
	ck->salt = a->salt;
	ck->number = fk_nr_cookies;
	ck->nr = a->start;
	memcpy(ck->ids + a->start, a + 1, 4 * a->nr_ids);
	for (i = 0; i < a->nr_ids / FK_BT; i++, ck->nr += FK_BT) {
		if (fk_lookup(ck->ids, ck->nr + FK_BT, a->salt) == KVMM_NO_INDEX &&
		    !fk_leased(ck->ids, ck->nr + FK_BT, a->salt))
			break;
		if (i && fk_chance(100)) {
			r->flags = KVMM_LOOKUP_MORE;
			break;
		}
	}
	r->found = ck->nr - a->start;
	r->cookie[0] = ck->number;
	r->cookie[1] = ~ck->number;
	if (r->found) {
		r->hit = ck->nr;
		memcpy(r->hit_cookie, r->cookie, sizeof(r->cookie));
	}
	fk.nr_lookups++;
}

/*
 * Several groups: all ids are found, a hit ends after each fk.hit_every tokens up to
 * fk.hit_most.  The cookie of a place is the place.  No lease can be held.
 */
static void fk_look_groups(const struct kvmm_lookup_arg *a, struct kvmm_lookup_res *r)
{
	ck_assert_uint_eq(a->cookie[0], a->start);
	r->found = a->nr_ids;
	r->cookie[0] = a->start + r->found;
	r->hit = min(a->start + r->found, fk.hit_most) / fk.hit_every * fk.hit_every;
	if (r->hit <= a->start)
		r->hit = 0;
	r->hit_cookie[0] = r->hit;
	fk.nr_lookups++;
}

static void fk_lease_groups(const struct kvmm_lease_arg *a, struct kvmm_lease_res *r)
{
	ck_assert_uint_eq(a->cookie[0], a->len);
	r->status = -ENOSPC;
	r->kept = a->len;
}

/* Copy the content of a prefix into a lease. */
static void fk_hold(struct fk_seq *s, const struct fk_cookie *ck, u32 nr)
{
	const struct fk_seq *from;
	u32 i, b;

	s->lease = true;
	s->state = KVMM_SEQ_SWAPPED;
	s->salt = ck->salt;
	s->nr_blocks[0] = nr;
	s->valid = s->cover = s->prompt_len = s->nr_ids = nr * FK_BT;
	memcpy(s->ids, ck->ids, 4 * s->valid);
	s->family = ++fk.family;
	s->below = malloc(nr * FK_BLOCK_BYTES);
	s->below_b = malloc(nr * sizeof(*s->below_b));
	for (i = 0; i < nr; i++) {
		b = fk_lookup(ck->ids, (i + 1) * FK_BT, ck->salt);
		if (b != KVMM_NO_INDEX) {
			memcpy(s->below + i * FK_BLOCK_BYTES,
			       fk.pool + (size_t)b * FK_BLOCK_BYTES, FK_BLOCK_BYTES);
			s->below_b[i] = fk.b[b];
			continue;
		}
		from = fk_leased(ck->ids, (i + 1) * FK_BT, ck->salt);
		memcpy(s->below + i * FK_BLOCK_BYTES,
		       from->below + i * FK_BLOCK_BYTES, FK_BLOCK_BYTES);
		s->below_b[i] = from->below_b[i];
	}
}

/* Is each block of the prefix on the device or in a lease? */
static bool fk_is_there(const struct fk_cookie *ck)
{
	u32 nr;

	for (nr = FK_BT; nr <= ck->nr; nr += FK_BT)
		if (fk_lookup(ck->ids, nr, ck->salt) == KVMM_NO_INDEX &&
		    !fk_leased(ck->ids, nr, ck->salt))
			return false;
	return true;
}

static void fk_lease(const struct kvmm_lease_arg *a, struct kvmm_lease_res *r)
{
	const struct fk_cookie *ck = &fk_cookies[a->cookie[0] % FK_COOKIES];
	u32 nr = a->len / FK_BT, most = fk.lease_most;
	struct fk_seq *s;

	ck_assert(a->len && a->ms && !a->flags && !a->resv0);
	if (fk.nr_groups > 1) {
		fk_lease_groups(a, r);
		return;
	}
	ck_assert(ck->number == a->cookie[0] && a->cookie[1] == ~a->cookie[0]);
	ck_assert(ck->salt == a->salt && ck->nr == a->len);
	if (a->ms > fk.lease_ms) {
		r->status = -ERANGE;
		r->until = (u64)kv_now_ns() + fk.lease_ms * 1000000ull;
	}
	else if (fk.lease_gone || !fk_is_there(ck))
		r->status = -ENOENT;
	else if (fk.no_tier)
		r->status = -ENOSPC;
	else if (fk_chance(fk.lease_again))
		r->status = -EAGAIN;
	else if (!most)
		r->status = -EDQUOT;
	fk.lease_gone -= fk.lease_gone && r->status == -ENOENT;
	if (r->status != -ERANGE && r->status != -ENOENT)
		r->kept = (r->status ? nr : nr - min(nr, most)) * FK_BT;
	if (r->status)
		return;
	r->reason = nr > most ? -EDQUOT : 0;
	nr = min(nr, most);
	if (nr > 1 && fk_chance(fk.lease_again)) {
		nr--;			/* its last copy cannot begin now */
		r->kept += FK_BT;
		r->reason = -EAGAIN;
	}
	s = fk_alloc();
	s->lease = false;
	fk_hold(s, ck, nr);
	r->held = s->valid;
	r->seq = r->number = fk_handle(s);
	r->until = kv_now_ns() + a->ms * 1000000ull;
	fk.nr_leases++;
}

/* Take a block of the lease from the device, or bring it there.  Return: it moved. */
static bool fk_move(const struct fk_seq *s, u32 i, bool out)
{
	u32 b = fk_lookup(s->ids, (i + 1) * FK_BT, s->salt);

	if (out == (b == KVMM_NO_INDEX))
		return false;
	if (out) {
		if (fk.b[b].maps || fk.b[b].srcs)
			return false;
		fk.b[b].indexed = false;
		fk_put(b);
		return true;
	}
	if (!fk_count_room())
		return false;
	b = fk_take();
	memcpy(fk.pool + (size_t)b * FK_BLOCK_BYTES, s->below + i * FK_BLOCK_BYTES,
	       FK_BLOCK_BYTES);
	fk.b[b] = s->below_b[i];
	fk.b[b].indexed = true;
	fk.b[b].maps = fk.b[b].srcs = 0;
	return true;
}

static void fk_advise(const struct kvmm_advise_arg *a, struct kvmm_seq_res *r)
{
	const struct fk_seq *s = fk_find(a->seq);
	u32 i;

	ck_assert(!a->retain && !a->value == (a->advice != KVMM_ADV_KEEP_UNTIL));
	r->status = s ? 0 : -ENOENT;
	if (!s)
		return;
	ck_assert(s->lease);
	if (a->advice == KVMM_ADV_KEEP_UNTIL) {
		r->status = a->value > kv_now_ns() + fk.lease_ms * 1000000ull ?
			    -ERANGE : 0;
		fk.nr_renews += !r->status;
		return;
	}
	for (i = 0; i < s->nr_blocks[0]; i++)
		r->valid_len += FK_BT * fk_move(s, i, a->advice == KVMM_ADV_PAGEOUT);
}

/* The sequence begins SWAPPED, and fk_restore_all() brings it back. */
static void fk_open_leased(const struct kvmm_open_arg *a, struct kvmm_open_res *r)
{
	const struct fk_seq *from = fk_find(a->lease);
	struct fk_seq *s;
	u32 gen;

	if (!from) {
		r->status = -ENOENT;
		return;
	}
	ck_assert(from->lease && a->salt == from->salt && a->prompt_len >= from->valid);
	s = fk_alloc();
	gen = s->gen;
	*s = *from;
	s->gen = gen;
	s->lease = false;
	s->pin = true;
	s->priority = a->priority;
	s->family = ++fk.family;
	s->below = malloc(s->nr_blocks[0] * FK_BLOCK_BYTES);
	s->below_b = malloc(s->nr_blocks[0] * sizeof(*s->below_b));
	memcpy(s->below, from->below, s->nr_blocks[0] * FK_BLOCK_BYTES);
	memcpy(s->below_b, from->below_b, s->nr_blocks[0] * sizeof(*s->below_b));
	r->seq = fk_handle(s);
}

/* Leases and pins end with the client, or leases at their deadline. */
static void fk_end_some(bool pins)
{
	struct fk_seq *s;

	for (s = fk.s; s < fk.s + FK_SEQS; s++)
		if (s->state && (s->lease || (pins && s->pin)))
			fk_close_now(s);
}

static void fk_end_leases(void)
{
	fk_end_some(true);
}

/* Leases in the daemon. */
static inline u32 fk_count_leases(void)
{
	u32 i, nr = 0;

	for (i = 0; i < FK_SEQS; i++)
		nr += fk.s[i].state && fk.s[i].lease;
	return nr;
}

#endif /* ENGINE_FAKE_LEASE_H */
