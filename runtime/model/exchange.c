// SPDX-License-Identifier: Apache-2.0
/*
 * exchange.c - numbers that the ranks of a split model exchange in a step
 *
 * Each rank computes the same rows with its part of the weights.  Where it needs what
 * others computed, it writes its numbers to its room, waits until all have done so, and
 * reads the rooms of the others (struct model_link).  That happens
 *
 *	after o and after down	for sums
 *	after the embedding	for rows of ids that other ranks have
 *	after experts		for outputs of experts that other ranks have
 *	after the head		for logits, which only the first rank reads
 *	before norms of heads that several ranks have
 *
 * Sums are added in the order of ranks, and a rank's in the order of its parts, so they do
 * not depend on which rank is first, and are the same in each rank.  Rows that are too
 * many for a room are exchanged in pieces.  All ranks cut them at the same rows.
 *
 * When a rank has failed, no exchange waits any more, and the step ends with garbage and
 * an error.
 */
#include "runtime/model/internal.h"

#define ROOM_HEAD	64u	/* bytes before the numbers of a room */
#define SUM_BLOCK	4096u	/* numbers that are added at once, so that they stay in cache */

/* The most numbers that a room holds. */
static u64 room_floats(const struct model *model)
{
	return (model->link->bytes - ROOM_HEAD) / sizeof(float);
}

static float *room(struct model *model)
{
	u8 *to = model->link->room(model->link->arg);

	return (float *)(void *)(to + ROOM_HEAD);
}

static const u8 *room_head(const struct model *model, u32 rank)
{
	return model->link->of(model->link->arg, rank);
}

static const float *room_of(const struct model *model, u32 rank)
{
	return (const void *)(room_head(model, rank) + ROOM_HEAD);
}

static void share(struct model *model)
{
	if (!model->link_err)
		model->link_err = model->link->share(model->link->arg);
}

/* Rows of @n numbers that a piece has. */
static u32 piece(const struct model *model, u32 left, u64 n)
{
	return (u32)min((u64)left, max(room_floats(model) / n, (u64)1));
}

u64 exchange_least(const struct model_config *cfg)
{
	const struct config_part *p = &cfg->part;
	const u64 row = max(max((u64)cfg->hidden * p->max_parts, (u64)cfg->embed_dim),
			    max((u64)DIV_ROUND_UP(p->vocab, p->nr),
				max((u64)cfg->heads * cfg->head_dim,
				    2ull * cfg->state.heads * cfg->state.head_dim)));

	return ROOM_HEAD + row * sizeof(float);
}

/* ---- sums ---- */

/* Some numbers, which the compiler adds at once. */
typedef float adds __attribute__((vector_size(16), aligned(4), may_alias));

#define NR_ADDS	(sizeof(adds) / sizeof(float))

/* y = a + b; @y may be @a */
static void add_two(float *y, const float *a, const float *b, u64 n)
{
	u64 i;

	for (i = 0; i + NR_ADDS <= n; i += NR_ADDS)
		*(adds *)(y + i) = *(const adds *)(a + i) + *(const adds *)(b + i);
	for (; i < n; i++)
		y[i] = a[i] + b[i];
}

/* y += x */
static void add(float *y, const float *x, u64 n)
{
	add_two(y, y, x, n);
}

/* The sums of all ranks for numbers @from to @from + @n of a piece of @all numbers. */
static void sum_block(const struct model *model, u64 from, u64 n, u64 all, float *y)
{
	const float *x, *first = NULL;
	u32 rank, part, nr, seen = 0;

	for (rank = 0; rank < model->link->nr; rank++) {
		memcpy(&nr, room_head(model, rank), sizeof(nr));
		nr = min(nr, model->cfg.part.max_parts);
		x = room_of(model, rank) + from;
		for (part = 0; part < nr; part++, x += all, seen++) {
			if (!seen)
				first = x;
			else if (seen == 1)
				add_two(y, first, x, n);
			else
				add(y, x, n);
		}
	}
	/* With one sum there is nothing to add, and only a failed exchange has none. */
	if (seen == 1)
		memcpy(y, first, n * sizeof(*y));
}

static void sum_piece(const struct model *model, const float *bias, u32 m, u64 d, float *y)
{
	const u64 all = m * d;
	u64 at;
	u32 i;

	for (at = 0; at < all; at += SUM_BLOCK)
		sum_block(model, at, min((u64)SUM_BLOCK, all - at), all, y + at);
	for (i = 0; i < m && bias; i++)
		add(y + i * d, bias, d);
}

/* Put the sums of this rank's columns into its room. */
static void sums_put(struct model *model, const float *x, const struct kern_weight *w, u32 m)
{
	const u64 step = model->cfg.part.max_parts > 1 ? SPLIT_PART : w->cols;
	const u32 nr = (u32)DIV_ROUND_UP(w->cols, step);
	float *to = room(model);
	struct kern_weight part = *w;
	u64 first;

	memcpy((u8 *)to - ROOM_HEAD, &nr, sizeof(nr));
	for (first = 0; first < w->cols; first += step) {
		part.cols = min(step, w->cols - first);
		model->ops->gemm(model->ctx, x + first, w->cols, &part, NULL, m, to, 0);
		part.data = (const u8 *)part.data +
			    w->rows * kern_row_bytes(w->dtype, part.cols);
		to += m * w->rows;
	}
}

void project_sum(struct model *model, const float *x, const struct kern_weight *w,
		 const float *bias, u32 m, float *y)
{
	u32 at, n;

	if (!model->link) {
		project(model, x, w, bias, m, y);
		return;
	}
	for (at = 0; at < m; at += n) {
		n = piece(model, m - at, (u64)w->rows * model->cfg.part.max_parts);
		sums_put(model, x + at * w->cols, w, n);
		share(model);
		sum_piece(model, bias, n, w->rows, y + at * w->rows);
	}
	settle(model, y, (u64)m * w->rows);
}

/* ---- rows of other ranks ---- */

static u32 owner_of(const struct model *model, u32 id)
{
	const struct config_part *p = &model->cfg.part;
	struct span s;
	u32 rank;

	for (rank = 0; rank + 1 < p->nr; rank++) {
		s = split_ids(p, rank);
		if (id < s.first + s.nr)
			break;
	}
	return rank;
}

void exchange_embed(struct model *model, const u32 *ids, u32 m, float *to)
{
	const struct model_config *cfg = &model->cfg;
	const u64 d = cfg->embed_dim;
	struct model_work *w = &model->work;
	u32 at, n, i;

	for (i = 0; i < m; i++)
		w->ids_mine[i] = ids[i] - cfg->part.first_id < cfg->vocab ?
				 ids[i] - cfg->part.first_id : 0;
	for (at = 0; at < m; at += n, to += n * d) {
		n = piece(model, m - at, d);
		model->ops->embed(model->ctx, &model->w.embed, w->ids_mine + at, n,
				  room(model));
		share(model);
		for (i = 0; i < n; i++)
			memcpy(to + i * d, room_of(model, owner_of(model, ids[at + i])) + i * d,
			       d * sizeof(*to));
	}
}

void exchange_slots(struct model *model, const u32 *first)
{
	const struct model_config *cfg = &model->cfg;
	const u32 nr = cfg->part.nr, experts = cfg->moe.experts;
	const u64 d = cfg->hidden;
	struct model_work *w = &model->work;
	struct span s;
	u32 rank, at, n, most = 0;

	for (rank = 0; rank < nr; rank++) {
		s = split_span(experts, 1, rank, nr);
		most = max(most, first[s.first + s.nr] - first[s.first]);
	}
	for (at = 0; at < most; at += n) {
		n = piece(model, most - at, d);
		s = split_span(experts, 1, model->link->rank, nr);
		s = (struct span){ first[s.first], first[s.first + s.nr] - first[s.first] };
		if (at < s.nr)
			memcpy(room(model), w->made + (s.first + at) * d,
			       min((u64)n, s.nr - at) * d * sizeof(float));
		share(model);
		for (rank = 0; rank < nr; rank++) {
			s = split_span(experts, 1, rank, nr);
			s = (struct span){ first[s.first],
					   first[s.first + s.nr] - first[s.first] };
			if (rank != model->link->rank && at < s.nr)
				memcpy(w->made + (s.first + at) * d, room_of(model, rank),
				       min((u64)n, s.nr - at) * d * sizeof(float));
		}
	}
}

/* Take this rank's logits of @n rows, and those of the others, to @logits. */
static void logits_take(const struct model *model, u32 n, float *logits)
{
	const struct config_part *p = &model->cfg.part;
	struct span s;
	u32 rank, i;

	for (rank = 0; rank < p->nr && !p->rank; rank++) {
		s = split_ids(p, rank);
		for (i = 0; i < n; i++)
			memcpy(logits + (u64)i * p->vocab + s.first,
			       room_of(model, rank) + i * s.nr, s.nr * sizeof(*logits));
	}
}

void exchange_logits(struct model *model, const float *x, u32 m, float *logits,
		     void (*fill)(struct model *model, const float *x, u32 m, float *to))
{
	const struct config_part *p = &model->cfg.part;
	const u64 d = model->w.head.cols;
	u32 at, n;

	for (at = 0; at < m; at += n) {
		n = piece(model, m - at, DIV_ROUND_UP(p->vocab, p->nr));
		fill(model, x + at * d, n, room(model));
		share(model);
		logits_take(model, n, p->rank ? NULL : logits + (u64)at * p->vocab);
	}
}

/* ---- norms of all heads together ---- */

/* Where head @head of the whole model is: the first rank that has it, and its place there. */
static const float *head_of(const struct model *model, u32 head, u32 heads, u32 all, u32 row)
{
	const u32 nr = model->link->nr;
	const u32 rank = all % nr ? head * (nr / all) : head / heads;
	const u64 hd = model->cfg.head_dim;

	return room_of(model, rank) + (row * heads + head % heads) * hd;
}

void exchange_norm(struct model *model, float *x, const float *weights, u32 heads, u32 all,
		   u32 m)
{
	const u64 hd = model->cfg.head_dim, mine = heads * hd;
	const u32 nr = model->link->nr, rank = model->link->rank;
	const u64 first = all % nr ? rank / (nr / all) : rank * heads;
	float *whole = model->work.all_heads;
	u32 at, n, i, h;

	for (at = 0; at < m; at += n, x += n * mine) {
		n = piece(model, m - at, mine);
		memcpy(room(model), x, n * mine * sizeof(*x));
		share(model);
		for (i = 0; i < n; i++)
			for (h = 0; h < all; h++)
				memcpy(whole + (i * all + h) * hd,
				       head_of(model, h, heads, all, i), hd * sizeof(*x));
		normalise(model, whole, weights, NULL, n, (u32)(all * hd), whole);
		for (i = 0; i < n; i++)
			memcpy(x + i * mine, whole + (i * all + first) * hd, mine * sizeof(*x));
	}
}

void exchange_gated_norm(struct model *model, const struct kern_gated_norm *norm)
{
	const struct config_part *p = &model->cfg.part;
	const u64 mine = norm->d, d = mine * p->nr;
	struct kern_gated_norm all = *norm;
	float *x = model->work.all_states, *z, *to;
	u32 at, n, i, rank;

	for (at = 0; at < norm->m; at += n) {
		n = piece(model, norm->m - at, 2 * mine);
		z = x + n * d;
		to = room(model);
		memcpy(to, norm->x + at * mine, n * mine * sizeof(*to));
		memcpy(to + n * mine, norm->z + at * mine, n * mine * sizeof(*to));
		share(model);
		for (i = 0; i < n; i++) {
			for (rank = 0; rank < p->nr; rank++) {
				const float *from = room_of(model, rank) + i * mine;

				memcpy(x + i * d + rank * mine, from, mine * sizeof(*x));
				memcpy(z + i * d + rank * mine, from + n * mine,
				       mine * sizeof(*x));
			}
		}
		all.x = all.y = x;
		all.z = z;
		all.m = n;
		all.d = (u32)d;
		all.groups = p->state_groups;
		model->ops->gated_norm(model->ctx, &all);
		for (i = 0; i < n; i++)
			memcpy(norm->y + (at + i) * mine, x + i * d + p->rank * mine,
			       mine * sizeof(*x));
	}
}
