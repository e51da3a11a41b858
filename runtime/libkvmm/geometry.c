// SPDX-License-Identifier: Apache-2.0
/*
 * geometry.c - is the daemon's answer plausible?
 *
 * A client trusts the daemon with its KV, but not with its own address space:
 * the answer of a broken daemon, or of another program, must not make the
 * library index outside a mapping.  Every area that the answer names must lie
 * inside its segment, aligned, apart from the others; every ring must be a
 * power of two; the pool must be the sum of its extents.
 */
#include <stdio.h>

#include "runtime/libkvmm/internal.h"

#define POOL_MAX	(1ull << 46)	/* half of the address space of a process */

/* One area of a segment, as the answer describes it. */
struct lk_area {
	const char	*name;
	u64		off;
	u64		bytes;
	u32		align;
};

static int area_bad(char *text, const char *name, const char *what)
{
	snprintf(text, LK_TEXT_LEN,
		 "the answer of kvmm is broken: %s %s: install kvmm and this program from one build",
		 name, what);
	return -EPROTO;
}

/* Check all of @area in a segment of @size bytes; none may be empty. */
static int check_areas(const struct lk_area *area, u32 nr, u64 size,
		       char *text)
{
	const struct lk_area *a, *b;

	for (a = area; a < area + nr; a++) {
		if (!a->bytes || a->off % a->align)
			return area_bad(text, a->name, "is empty or not aligned");
		if (a->off > size || a->bytes > size - a->off)
			return area_bad(text, a->name, "lies outside its segment");
		for (b = area; b < a; b++) {
			if (a->off < b->off + b->bytes &&
			    b->off < a->off + a->bytes)
				return area_bad(text, a->name,
						"overlaps another area");
		}
	}
	return 0;
}

static int check_segments(const struct kvmm_attach_rep *r, char *text)
{
	const struct lk_area c[] = {
		{ "the control page", 0, sizeof(struct kvmm_client_ctl), 8 },
		{ "the submission ring", r->sq_off,
		  (u64)r->sq_entries * sizeof(struct kvmm_sqe), 64 },
		{ "the argument area", r->arg_off, r->arg_bytes, 8 },
	};
	const struct lk_area d[] = {
		{ "the daemon's page", 0, sizeof(struct kvmm_daemon_ctl), 8 },
		{ "the completion ring", r->cq_off,
		  (u64)r->cq_entries * sizeof(struct kvmm_cqe), 32 },
		{ "the result area", r->result_off, r->result_bytes, 8 },
		{ "the event ring", r->event_off,
		  (u64)r->event_entries * sizeof(struct kvmm_event), 16 },
		{ "the sequence records", r->seq_off,
		  (u64)r->max_seqs * sizeof(struct kvmm_seq_status), 64 },
		{ "the extent records", r->extent_off,
		  (u64)r->nr_extents * sizeof(struct kvmm_extent_status), 8 },
		{ "the table area", r->table_off,
		  (u64)r->nr_tables * sizeof(struct kvmm_table_page), 64 },
	};
	int ret;

	ret = check_areas(c, ARRAY_SIZE(c), r->c_bytes, text);
	if (ret)
		return ret;
	return check_areas(d, ARRAY_SIZE(d), r->d_bytes, text);
}

static int check_pool(const struct kvmm_attach_rep *r, char *text)
{
	u32 i;

	if (!is_power_of_2(r->extent_size) || r->extent_size < 4096 ||
	    r->extent_size > POOL_MAX)
		return area_bad(text, "extent_size", "is not a power of two pages");
	if (!r->nr_extents || r->nr_extents > POOL_MAX / r->extent_size ||
	    r->pool_bytes != r->nr_extents * r->extent_size)
		return area_bad(text, "pool_bytes", "is not the sum of the extents");
	if (!r->pool_extents || r->pool_extents > r->nr_extents)
		return area_bad(text, "pool_extents", "is not a part of the extents");
	if (!is_power_of_2(r->unit) || r->pool_bytes / r->unit > KVMM_NO_INDEX)
		return area_bad(text, "unit", "cannot express the pool");
	if (!r->block_bytes || r->block_bytes % r->unit ||
	    r->block_bytes > r->pool_bytes)
		return area_bad(text, "block_bytes", "does not fit the pool");
	if (!r->nr_shards || r->nr_shards > KVMM_MAX_SHARDS || r->shard_off[0])
		return area_bad(text, "nr_shards", "is not 1 to 8, the first part at 0");
	for (i = 1; i < r->nr_shards; i++)
		if (r->shard_off[i] <= r->shard_off[i - 1] ||
		    r->shard_off[i] >= r->pool_bytes ||
		    r->shard_off[i] % r->extent_size)
			return area_bad(text, "shard_off", "is not in the pool");
	return 0;
}

/* The layers of each group, or a unit of its records, must lie inside a block. */
static int check_strides(const struct kvmm *k, char *text)
{
	const struct kvmm_attach_rep *r = &k->info;
	u32 g;

	for (g = 0; g < k->nr_groups; g++)
		if (!r->stride[g] ||
		    r->stride[g] > r->block_bytes / max(k->layers[g], 1u))
			return area_bad(text, "stride", "does not fit a block");
	return 0;
}

/**
 * lk_check_reply() - check an answer with status 0
 * @k:      has the answer, and the layers of the request
 * @c_size: bytes of the file that came as segment C
 * @d_size: bytes of the file that came as segment D
 * @text:   LK_TEXT_LEN bytes for the first error
 *
 * Return: 0 or -EPROTO.
 */
int lk_check_reply(const struct kvmm *k, u64 c_size, u64 d_size, char *text)
{
	const struct kvmm_attach_rep *rep = &k->info;
	int ret;

	if (!is_power_of_2(rep->sq_entries) || !is_power_of_2(rep->cq_entries) ||
	    !is_power_of_2(rep->event_entries))
		return area_bad(text, "a ring", "is not a power of two long");
	if (rep->sq_entries > BIT(30) || rep->cq_entries > BIT(30))
		return area_bad(text, "a ring", "is too long");
	if (rep->arg_bytes % 8 || rep->result_bytes % 8)
		return area_bad(text, "an area", "is not a multiple of 8 long");
	if (rep->c_bytes > c_size || rep->d_bytes > d_size)
		return area_bad(text, "a segment", "is shorter than it says");
	if (!rep->max_batch || !rep->max_steps ||
	    rep->max_steps > KVMM_MAX_STEPS)
		return area_bad(text, "max_batch or max_steps", "is out of range");
	ret = check_pool(rep, text);
	if (!ret)
		ret = check_strides(k, text);
	if (ret)
		return ret;
	return check_segments(rep, text);
}
