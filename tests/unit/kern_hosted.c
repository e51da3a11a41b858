// SPDX-License-Identifier: Apache-2.0
/* kern_hosted.c - kernels of a device, with arguments in host memory */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/kern_hosted.h"

#define MAX_PIECES	256
#define MAX_POOLS	16

/* One argument: its places on the host and on the device. */
struct piece {
	void	*host;
	u64	bytes;
	u8	*mem;
	u8	*dev;
};

static struct piece pieces[MAX_PIECES];
static u32 nr_pieces;

static struct {
	const void	*base;
	u64		bytes;
} pools[MAX_POOLS];
static u32 next_pool;

/* Tables of the device, and their open contexts. */
static struct kern_ops tables[2];
static const struct kern_ops *inner[2];
static struct kern_ctx *opened[2];

/* The table that hosted_at() returned last. */
static const struct kern_ops *now;
static struct kern_ctx *ctx;

void hosted_pool(const void *base, u64 bytes)
{
	u32 i;

	for (i = 0; i < MAX_POOLS && pools[i].base != base; i++)
		;
	if (i == MAX_POOLS)
		for (i = 0; i < MAX_POOLS && pools[i].base; i++)
			;
	if (i == MAX_POOLS)
		i = next_pool++ % MAX_POOLS;
	pools[i].base = base;
	pools[i].bytes = bytes;
}

void hosted_pool_ends(const void *base)
{
	u32 i;

	for (i = 0; i < MAX_POOLS; i++)
		if (pools[i].base == base)
			pools[i].base = NULL;
}

/* Copy @bytes at @p to the device, unless they are there. */
static void *on_device(const void *p, u64 bytes)
{
	const u64 shift = (uintptr_t)p % HOSTED_ALIGN;
	struct piece *a;

	if (!p)
		return NULL;
	for (a = pieces; a < pieces + nr_pieces; a++)
		if (a->host == p && a->bytes >= bytes)
			return a->dev;
	ck_assert_uint_lt(nr_pieces, MAX_PIECES);
	a = &pieces[nr_pieces++];
	a->host = (void *)(uintptr_t)p;
	a->bytes = bytes;
	a->mem = now->mem_alloc(ctx, bytes + shift);
	ck_assert_msg(a->mem, "no memory on the device");
	a->dev = a->mem + shift;
	now->mem_put(ctx, a->dev, p, bytes);
	return a->dev;
}

/* After an op: copy all arguments back. */
static void back(void)
{
	struct piece *a;
	int err = 0;

	for (a = pieces; a < pieces + nr_pieces; a++) {
		void *got = malloc(a->bytes + 1);

		err = err ? err : now->mem_get(ctx, got, a->dev, a->bytes);
		/* Constants of a test may lie in read-only memory. */
		if (!err && memcmp(got, a->host, a->bytes))
			memcpy(a->host, got, a->bytes);
		free(got);
		now->mem_free(ctx, a->mem);
	}
	nr_pieces = 0;
	ck_assert_msg(!err, "the device failed: %s", now->failure(ctx));
}

/* Bytes of @m rows of @n floats, @ld apart. */
static u64 span(u32 m, u64 ld, u64 n)
{
	return m ? ((m - 1) * (ld ? ld : n) + n) * sizeof(float) : 0;
}

static float *floats(const float *p, u32 m, u64 ld, u64 n)
{
	return on_device(p, span(m, ld, n));
}

static struct kern_weight weight(const struct kern_weight *w)
{
	struct kern_weight d = *w;

	d.data = on_device(w->data, w->rows *
			   kern_row_bytes(w->dtype, w->cols));
	return d;
}

static struct kern_kv pool(const struct kern_kv *kv)
{
	struct kern_kv d = *kv;
	u32 i;

	for (i = 0; i < MAX_POOLS; i++)
		if (pools[i].base == kv->base)
			break;
	ck_assert_msg(i < MAX_POOLS, "a pool that nobody named");
	d.base = on_device(kv->base, pools[i].bytes);
	return d;
}

static u32 rows_of(const struct kern_attn_seq *seqs, u32 nr)
{
	u32 rows = 0, i;

	for (i = 0; i < nr; i++)
		rows = max(rows, seqs[i].first_row + seqs[i].nr_rows);
	return rows;
}

static void h_settle(struct kern_ctx *any, float *x, u64 n)
{
	now->settle(ctx, floats(x, 1, 0, n), n);
	back();
}

static void h_gather(struct kern_ctx *any, const float *x, const u32 *rows,
		     u32 m, u32 d, float *y)
{
	u32 top = 0, i;

	for (i = 0; i < m; i++)
		top = max(top, rows[i] + 1);
	now->gather(ctx, floats(x, top, 0, d), on_device(rows, m * 4ull), m, d,
		    floats(y, m, 0, d));
	back();
}

static void h_split_heads(struct kern_ctx *any, const float *qkv, u32 m,
			  u32 heads, u32 hd, float *q, float *k, float *v)
{
	const u64 n = (u64)heads * hd;

	now->split_heads(ctx, floats(qkv, m, 0, 3 * n), m, heads, hd,
			 floats(q, m, 0, n), floats(k, m, 0, n),
			 floats(v, m, 0, n));
	back();
}

static void h_embed(struct kern_ctx *any, const struct kern_weight *w,
		    const u32 *ids, u32 m, float *x)
{
	const struct kern_weight d = weight(w);

	now->embed(ctx, &d, on_device(ids, m * 4ull), m,
		   floats(x, m, 0, w->cols));
	back();
}

static void h_rmsnorm(struct kern_ctx *any, const float *x, const float *w,
		      u32 m, u32 d, float eps, float *y)
{
	now->rmsnorm(ctx, floats(x, m, 0, d), floats(w, 1, 0, d), m, d, eps,
		     floats(y, m, 0, d));
	back();
}

static void h_layernorm(struct kern_ctx *any, const float *x, const float *w,
			const float *bias, u32 m, u32 d, float eps, float *y)
{
	now->layernorm(ctx, floats(x, m, 0, d), floats(w, 1, 0, d),
		       floats(bias, 1, 0, d), m, d, eps, floats(y, m, 0, d));
	back();
}

static void h_layernorm_heads(struct kern_ctx *any, const float *x,
			      const float *w, u32 m, u32 heads, u32 d,
			      float eps, float *y)
{
	now->layernorm_heads(ctx, floats(x, m, 0, heads * d),
			     floats(w, 1, 0, heads * d), m, heads, d, eps,
			     floats(y, m, 0, heads * d));
	back();
}

static void h_gemm(struct kern_ctx *any, const float *x, u64 x_ld,
		   const struct kern_weight *w, const float *bias, u32 m,
		   float *y, u64 y_ld)
{
	const struct kern_weight d = weight(w);

	now->gemm(ctx, floats(x, m, x_ld, w->cols), x_ld, &d,
		  floats(bias, 1, 0, w->rows), m, floats(y, m, y_ld, w->rows),
		  y_ld);
	back();
}

static void h_rope_table(struct kern_ctx *any, const float *inv_freq, u32 half,
			 const u32 *positions, u32 m, float *table)
{
	now->rope_table(ctx, floats(inv_freq, 1, 0, half), half,
			on_device(positions, m * 4ull), m,
			floats(table, m, 0, 2ull * half));
	back();
}

static void h_rope(struct kern_ctx *any, float *x, u64 ld, u32 m, u32 heads,
		   u32 hd, u32 half, const float *table)
{
	now->rope(ctx, floats(x, m, ld, (u64)heads * hd), ld, m, heads, hd,
		  half, floats(table, m, 0, 2ull * half));
	back();
}

static void h_rope_pairs(struct kern_ctx *any, const struct kern_rope_pairs *r)
{
	const u64 part = 2ull * r->half;
	struct kern_rope_pairs d = *r;

	d.x = floats(r->x, r->m, r->x_ld, (r->heads - 1) * r->x_step + part);
	d.y = floats(r->y, r->m, r->y_ld, (r->heads - 1) * r->y_step + part);
	d.table = floats(r->table, r->m, 0, part);
	now->rope_pairs(ctx, &d);
	back();
}

static void h_kv_write(struct kern_ctx *any, const struct kern_kv_append *a)
{
	const u64 dense = (u64)a->kv->kv_heads * a->kv->head_dim;
	const u32 rows = rows_of(a->seqs, a->nr_seqs), rank = a->kv->rank;
	const struct kern_kv kv = pool(a->kv);
	struct kern_kv_append d = *a;

	d.kv = &kv;
	d.k = floats(a->k, rows, a->k_ld, rank ? rank : dense);
	d.v = floats(a->v, rows, a->v_ld, rank ? dense - rank : dense);
	now->kv_write(ctx, &d);
	back();
}

static void h_attention(struct kern_ctx *any, const struct kern_attn *a)
{
	const u64 dense = (u64)a->heads * a->kv->head_dim;
	const u32 rows = rows_of(a->seqs, a->nr_seqs);
	const struct kern_kv kv = pool(a->kv);
	struct kern_attn d = *a;

	d.kv = &kv;
	d.q = floats(a->q, rows, a->q_ld, dense);
	d.out = floats(a->out, rows, a->out_ld, dense);
	d.sinks = floats(a->sinks, 1, 0, a->heads);
	now->attention(ctx, &d);
	back();
}

static void h_attn_latent(struct kern_ctx *any, const struct kern_attn *a)
{
	const u32 rows = rows_of(a->seqs, a->nr_seqs);
	const struct kern_kv kv = pool(a->kv);
	struct kern_attn d = *a;

	d.kv = &kv;
	d.q = floats(a->q, rows, a->q_ld, (u64)a->heads * kv.head_dim);
	d.out = floats(a->out, rows, a->out_ld, (u64)a->heads * kv.rank);
	now->attn_latent(ctx, &d);
	back();
}

static void h_kv_copy(struct kern_ctx *any, const struct kern_kv *kv,
		      const struct kern_kv_copy *copies, u32 nr)
{
	const struct kern_kv d = pool(kv);

	now->kv_copy(ctx, &d, copies, nr);
	back();
}

static void h_silu_mul(struct kern_ctx *any, const float *gate,
		       const float *up, u64 ld, u32 m, u32 d, float *y)
{
	now->silu_mul(ctx, floats(gate, m, ld, d), floats(up, m, ld, d), ld, m,
		      d, floats(y, m, 0, d));
	back();
}

static void h_act(struct kern_ctx *any, enum kern_act act, const float *gate,
		  const float *up, u64 ld, u32 m, u32 d, float *y)
{
	now->act(ctx, act, floats(gate, m, ld, d), floats(up, m, ld, d), ld, m,
		 d, floats(y, m, 0, d));
	back();
}

static void h_swiglu(struct kern_ctx *any, const float *gate, const float *up,
		     u64 ld, u32 m, u32 d, float alpha, float limit, float *y)
{
	now->swiglu(ctx, floats(gate, m, ld, d), floats(up, m, ld, d), ld, m,
		    d, alpha, limit, floats(y, m, 0, d));
	back();
}

static void h_route(struct kern_ctx *any, const struct kern_route *r)
{
	struct kern_route d = *r;

	d.logits = floats(r->logits, r->m, 0, r->experts);
	d.ids = on_device(r->ids, (u64)r->m * r->chosen * sizeof(*r->ids));
	d.shares = floats(r->shares, r->m, 0, r->chosen);
	now->route(ctx, &d);
	back();
}

static void h_blend(struct kern_ctx *any, const struct kern_blend *b)
{
	struct kern_blend d = *b;
	u32 top = 0, i;

	for (i = 0; i < b->m * b->chosen; i++)
		top = max(top, b->slots[i] + 1);
	d.y = floats(b->y, top, 0, b->d);
	d.slots = on_device(b->slots, (u64)b->m * b->chosen * sizeof(*b->slots));
	d.shares = floats(b->shares, b->m, 0, b->chosen);
	d.base = floats(b->base, b->m, 0, b->d);
	d.gates = floats(b->gates, b->m, 0, 1);
	d.out = floats(b->out, b->m, 0, b->d);
	now->blend(ctx, &d);
	back();
}

/* Rows of y of @p, with those of other parts that have the same y. */
static u32 adapt_rows(const struct kern_adapt *a, const struct kern_adapt_part *p)
{
	const struct kern_adapt_part *q;
	u32 top = 0;

	for (q = a->parts; q < a->parts + a->nr; q++)
		if (!p || q->y == p->y)
			top = max(top, q->rows[q->m - 1] + 1);
	return top;
}

static void h_adapt(struct kern_ctx *any, const struct kern_adapt *a)
{
	const u64 size = kern_dtype_size(a->dtype);
	struct kern_adapt_part parts[HOSTED_PARTS];
	struct kern_adapt d = *a;
	u32 i;

	ck_assert_uint_le(a->nr, HOSTED_PARTS);
	for (i = 0; i < a->nr; i++) {
		const struct kern_adapt_part *p = &a->parts[i];

		parts[i] = *p;
		parts[i].a = on_device(p->a, p->rank * a->cols * size);
		parts[i].b = on_device(p->b, p->rank * p->outs * size);
		parts[i].y = floats(p->y, adapt_rows(a, p), p->y_ld, p->outs);
	}
	d.parts = parts;
	d.x = floats(a->x, adapt_rows(a, NULL), a->x_ld, a->cols);
	d.t = floats(a->t, 1, 0, a->t_len);
	now->adapt(ctx, &d);
	back();
}

static void h_add(struct kern_ctx *any, float *x, const float *y, u64 n)
{
	now->add(ctx, floats(x, 1, 0, n), floats(y, 1, 0, n), n);
	back();
}

static void h_scale(struct kern_ctx *any, float *x, float by, u64 n)
{
	now->scale(ctx, floats(x, 1, 0, n), by, n);
	back();
}

static void h_softcap(struct kern_ctx *any, float *x, float cap, u64 n)
{
	now->softcap(ctx, floats(x, 1, 0, n), cap, n);
	back();
}

/* The states' pool on the device. */
static struct kern_state states(const struct kern_state *s)
{
	const struct kern_kv kv = { .base = s->base };
	struct kern_state d = *s;

	d.base = pool(&kv).base;
	return d;
}

static void h_conv(struct kern_ctx *any, const struct kern_conv *a)
{
	const u32 rows = rows_of(a->seqs, a->nr_seqs);
	const u64 all = kern_state_channels(a->state);
	const struct kern_state s = states(a->state);
	struct kern_conv d = *a;

	d.state = &s;
	d.x = floats(a->x, rows, 0, all);
	d.w = floats(a->w, s.conv, 0, all);
	d.bias = floats(a->bias, 1, 0, all);
	d.y = floats(a->y, rows, 0, all);
	now->conv(ctx, &d);
	back();
}

static void h_scan(struct kern_ctx *any, const struct kern_scan *a)
{
	const u32 rows = rows_of(a->seqs, a->nr_seqs);
	const struct kern_state s = states(a->state);
	struct kern_scan d = *a;

	d.state = &s;
	d.x = floats(a->x, rows, 0, kern_state_channels(a->state));
	d.dt = floats(a->dt, rows, 0, s.heads);
	d.dt_bias = floats(a->dt_bias, 1, 0, s.heads);
	d.a_log = floats(a->a_log, 1, 0, s.heads);
	d.d = floats(a->d, 1, 0, s.heads);
	d.y = floats(a->y, rows, 0, (u64)s.heads * s.head_dim);
	now->scan(ctx, &d);
	back();
}

static void h_gated_norm(struct kern_ctx *any, const struct kern_gated_norm *a)
{
	struct kern_gated_norm d = *a;

	d.x = floats(a->x, a->m, 0, a->d);
	d.z = floats(a->z, a->m, 0, a->d);
	d.w = floats(a->w, 1, 0, a->d);
	d.y = floats(a->y, a->m, 0, a->d);
	now->gated_norm(ctx, &d);
	back();
}

static const struct kern_ops hosted = {
	.settle = h_settle, .gather = h_gather, .split_heads = h_split_heads,
	.embed = h_embed, .rmsnorm = h_rmsnorm, .layernorm = h_layernorm,
	.layernorm_heads = h_layernorm_heads,
	.gemm = h_gemm, .rope_table = h_rope_table,
	.rope = h_rope, .rope_pairs = h_rope_pairs,
	.kv_write = h_kv_write, .attention = h_attention,
	.attn_latent = h_attn_latent,
	.kv_copy = h_kv_copy, .silu_mul = h_silu_mul, .act = h_act,
	.swiglu = h_swiglu, .route = h_route, .blend = h_blend,
	.add = h_add, .scale = h_scale, .softcap = h_softcap,
	.adapt = h_adapt,
	.conv = h_conv, .scan = h_scan, .gated_norm = h_gated_norm,
};

bool hosted_driver(void)
{
	static bool told;
	const char *build = getenv("KVMM_BUILD");
	char path[4096];

	if (getenv("KVMM_LIBCUDA"))
		return true;
	snprintf(path, sizeof(path), "%s/tests/standin/libcuda.so.1",
		 build ? build : "build");
	/* NVIDIA's library is of no use on a CPU. */
	if (!access(path, R_OK))
		return !setenv("KVMM_LIBCUDA", path, 1) &&
		       !setenv("KVMM_CUBLASLT", "none", 0);
	if (!told)
		printf("no %s and no $KVMM_LIBCUDA: kernels of GPUs are not tested\n",
		       path);
	told = true;
	return false;
}

/* Once for each process: tests are separate processes. */
static void open_device(u32 d)
{
	static const char * const names[] = { "cuda", "cuda-fast" };
	char why[256];

	if (opened[d])
		return;
	inner[d] = kern_get(names[d]);
	ck_assert_ptr_nonnull(inner[d]);
	ck_assert_msg(!kern_open(inner[d], 0, NULL, &opened[d], why,
				 sizeof(why)), "%s", why);
	tables[d] = hosted;
	tables[d].name = inner[d]->name;
	tables[d].variant = inner[d]->variant;
	tables[d].version = inner[d]->version;
	tables[d].mode = inner[d]->mode;
	tables[d].weight_types = inner[d]->weight_types;
	tables[d].kv_types = inner[d]->kv_types;
}

const struct kern_ops *hosted_at(u32 i)
{
	const struct kern_ops *ops = kern_at(i);
	u32 nr = 0, d;

	if (ops)
		return ops;
	while (kern_at(nr))
		nr++;
	d = i - nr;
	if (d >= ARRAY_SIZE(tables) || !hosted_driver())
		return NULL;
	open_device(d);
	now = inner[d];
	ctx = opened[d];
	return &tables[d];
}

bool hosted_is_device(const struct kern_ops *ops)
{
	return ops == &tables[0] || ops == &tables[1];
}
