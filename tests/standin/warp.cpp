// SPDX-License-Identifier: Apache-2.0
/*
 * warp.cpp - operations of the lanes of a warp together
 *
 * Lanes that name the same mask at the same line of the source form a group.  The
 * last lane to come serves all of them and goes on.  If a lane never comes the
 * others wait, which is found when no thread of the block can go on.
 */
#include "tests/standin/shim_private.h"

/* One operand of 16 bits out of a register with two. */
template <bool F16>
static float half_of(u32 pair, u32 i)
{
	const u16 h = (u16)(pair >> 16 * i);

	return F16 ? f16_to_f32(h) : bits_float((u32)h << 16);
}

template <bool F16>
static void serve_mma(const struct shim_give *give)
{
	float a[16][16], b[16][8], d[16][8];
	u32 l, i, k, n;

	for (l = 0; l < 32; l++) {
		const u32 g = l / 4, t = l % 4;
		const u32 *ra = (const u32 *)give[l].a;
		const u32 *rb = (const u32 *)give[l].b;
		const float *rd = (const float *)give[l].d;

		for (i = 0; i < 8; i++)
			a[g + i / 2 % 2 * 8][i / 4 * 8 + 2 * t + i % 2] =
				half_of<F16>(ra[i / 2], i % 2);
		for (i = 0; i < 4; i++) {
			b[i / 2 * 8 + 2 * t + i % 2][g] =
				half_of<F16>(rb[i / 2], i % 2);
			d[i / 2 * 8 + g][2 * t + i % 2] = rd[i];
		}
	}
	for (i = 0; i < 16; i++)
		for (k = 0; k < 16; k++)
			for (n = 0; n < 8; n++)
				d[i][n] += a[i][k] * b[k][n];
	for (l = 0; l < 32; l++)
		for (i = 0; i < 4; i++)
			((float *)give[l].d)[i] =
				d[i / 2 * 8 + l / 4][2 * (l % 4) + i % 2];
}

static void serve_mat(const struct shim_give *give, bool trans)
{
	u32 r[32][4];
	u32 l, m, lo, hi;

	for (l = 0; l < 32; l++)
		for (m = 0; m < 4; m++) {
			const u32 g = l / 4, t = 2 * (l % 4);

			if (trans) {
				lo = ((const u16 *)give[m * 8 + t].a)[g];
				hi = ((const u16 *)give[m * 8 + t + 1].a)[g];
			} else {
				lo = ((const u16 *)give[m * 8 + g].a)[t];
				hi = ((const u16 *)give[m * 8 + g].a)[t + 1];
			}
			r[l][m] = lo | hi << 16;
		}
	for (l = 0; l < 32; l++)
		memcpy(give[l].d, r[l], sizeof(r[l]));
}

static void serve_shfl(struct shim_warp_state *w, const struct shim_group *g)
{
	u32 left, l;

	for (left = g->mask; left; left &= left - 1) {
		l = (u32)__builtin_ctz(left);
		if (!(g->mask >> (w->give[l].from & 31) & 1))
			shim_die(g->at, "a shuffle of lane %u from lane %u, which is not in the mask %08x",
				 l, w->give[l].from, g->mask);
		w->got[l] = w->give[w->give[l].from & 31].value;
	}
}

static void serve_ballot(struct shim_warp_state *w, const struct shim_group *g)
{
	u32 left, votes = 0;

	for (left = g->mask; left; left &= left - 1) {
		const u32 l = (u32)__builtin_ctz(left);

		votes |= (u32)w->give[l].value << l;
	}
	for (left = g->mask; left; left &= left - 1)
		w->got[__builtin_ctz(left)] = votes;
}

void shim_warp_serve(struct shim_warp_state *w, const struct shim_group *g)
{
	switch (g->kind) {
	case SHIM_SYNC:
		shim_now.warp_sync[w - shim_warps] = ++shim_now.clock;
		break;
	case SHIM_SHFL:
		serve_shfl(w, g);
		break;
	case SHIM_BALLOT:
		serve_ballot(w, g);
		break;
	case SHIM_MMA_BF16:
		serve_mma<false>(w->give);
		break;
	case SHIM_MMA_F16:
		serve_mma<true>(w->give);
		break;
	case SHIM_MAT:
	case SHIM_MAT_TRANS:
		serve_mat(w->give, g->kind == SHIM_MAT_TRANS);
		break;
	}
}

/* The group that waits at @at for the caller; a new one, if there is none. */
static struct shim_group *group_of(struct shim_warp_state *w,
				   enum shim_kind kind, u32 mask,
				   struct shim_where at)
{
	struct shim_group *g;

	for (g = w->group; g < w->group + w->nr_groups; g++)
		if (g->kind == kind && g->mask == mask &&
		    g->at.line == at.line)
			return g;
	w->nr_groups++;
	g->kind = kind;
	g->mask = mask;
	g->arrived = 0;
	g->at = at;
	return g;
}

u64 shim_warp(enum shim_kind kind, u32 mask, const struct shim_give *give,
	      struct shim_where at)
{
	struct shim_warp_state *w = &shim_warps[shim_now.warp];
	const u32 lane = shim_now.me % 32;
	struct shim_group *g;

	if (!(mask >> lane & 1))
		shim_die(at, "mask %08x does not name the lane itself, %u",
			 mask, lane);
	if (mask & ~w->all)
		shim_die(at, "mask %08x names lanes that the block does not have: %08x are there",
			 mask, w->all);
	if (mask & w->ended)
		shim_die(at, "mask %08x names lanes that ended: %08x", mask,
			 mask & w->ended);
	g = group_of(w, kind, mask, at);
	w->give[lane] = *give;
	g->arrived |= 1u << lane;
	if (g->arrived == mask) {
		shim_warp_serve(w, g);
		shim_wake(shim_now.warp, mask & ~(1u << lane));
		*g = w->group[--w->nr_groups];
	} else {
		shim_wait();
	}
	return w->got[lane];
}
