// SPDX-License-Identifier: Apache-2.0
/*
 * pack.c - weights in the order that kernels read fastest
 *
 * If the kernels can pack, matrices in bf16 can be copied into one piece of
 * memory of this process, on huge pages.  Products are then faster, but the
 * gains of mapping are lost: weights shared between processes and a start
 * without copying.  Matrices that only products read are packed, and so is a
 * tied matrix, which the embedding reads packed.  Tensors are packed one after
 * the other.  The source of each is given back before the next: its mapped
 * pages, or its transposed copy.  So there are never two copies of the weights
 * in memory.  Only made-up weights stay, since they are nowhere else.
 *
 * The walk is that of weights.c, by the tables of layout.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "runtime/model/layout.h"

#define HUGE_PAGE	(2ull << 20)

/* State of a walk; it counts, and packs if @to is not NULL. */
struct packer {
	struct model_weights		*w;
	struct ckpt			*c;
	const struct model_config	*cfg;
	const struct kern_ops		*ops;
	struct kern_ctx			*ctx;
	const struct model_progress	*progress;
	u64				total;
	u8				*to;
	struct weight_cost		cost;
};

/* Do only products read the matrix, as bf16? */
static bool pack_wanted(const struct packer *p, const struct weight_spec *s,
			const struct st_tensor *t, bool turned, bool top)
{
	if (t->dtype != ST_BF16 || !(turned || weight_in_place(t, false, false)))
		return false;
	if (!top || s->offset == offsetof(struct model_weights, head))
		return true;
	return s->offset == offsetof(struct model_weights, embed) &&
	       p->cfg->tied;
}

/* Pack all parts of one tensor. */
static void pack_tensor(struct packer *p, const struct weight_spec *s,
			const struct st_tensor *t, bool turned, void *base)
{
	struct weight_part parts[WEIGHT_PARTS];
	const u32 nr = weight_parts(p->cfg, s, parts);
	const void *from = NULL;
	struct kern_weight *m, w;
	u64 bytes;
	u32 i;

	for (i = 0; i < nr; i++) {
		w = (struct kern_weight){
			.dtype = KERN_BF16, .rows = parts[i].rows,
			.cols = weight_dim(p->cfg, s->cols),
		};
		bytes = p->ops->pack_bytes(&w);
		p->cost.packed += bytes;
		if (!p->to)
			continue;
		m = (void *)((u8 *)base + parts[i].offset);
		if (!i)
			from = m->data;
		p->ops->pack(p->ctx, m, p->to);
		p->to += bytes;
		model_progress_tell(p->progress, p->cost.packed, p->total);
	}
	*(turned ? &p->cost.owned : &p->cost.mapped) += t->nr_bytes;
	if (!p->to)
		return;
	if (weights_owned_free(p->w, from))
		p->w->owned_bytes -= t->nr_bytes;
	else
		ckpt_drop(p->c, t);
}

static void pack_walk_top(struct packer *p, const struct weight_names *names)
{
	char name[WEIGHT_NAME_MAX];
	const struct weight_spec *s;
	const struct st_tensor *t;
	u32 i;

	for (i = 0; i < names->nr_top; i++) {
		s = &names->top[i];
		if (!weight_needed(p->cfg, s->need) || s->cols == DIM_NONE)
			continue;
		weight_top_name(names, p->w->prefix, s, name);
		t = ckpt_take(p->c, name);
		if (pack_wanted(p, s, t, false, true))
			pack_tensor(p, s, t, false, p->w);
	}
	if (p->cfg->tied)
		p->w->head = p->w->embed;
}

static void pack_walk(struct packer *p)
{
	const struct weight_names *names = weight_names_of(p->cfg->layout);
	const bool turned = names->transposed;
	char name[WEIGHT_NAME_MAX];
	const struct weight_spec *s;
	const struct st_tensor *t;
	u32 layer, i;

	pack_walk_top(p, names);
	for (layer = 0; layer < p->cfg->layers; layer++) {
		for (i = 0; i < names->nr_layer; i++) {
			s = &names->layer[i];
			if (!weight_needed(p->cfg, s->need) ||
			    s->cols == DIM_NONE)
				continue;
			weight_layer_name(names, p->w->prefix, layer, s, name);
			t = ckpt_take(p->c, name);
			if (pack_wanted(p, s, t, turned, false))
				pack_tensor(p, s, t, turned,
					    &p->w->layers[layer]);
		}
	}
}

struct weight_cost weights_pack_cost(struct model_weights *w, struct ckpt *c,
				     const struct model_config *cfg,
				     const struct kern_ops *ops)
{
	struct packer p = { .w = w, .c = c, .cfg = cfg, .ops = ops };

	pack_walk(&p);
	return p.cost;
}

int weights_pack(struct model_weights *w, struct ckpt *c,
		 const struct model_config *cfg, const struct kern_ops *ops,
		 struct kern_ctx *ctx, const struct model_progress *progress)
{
	struct packer p = {
		.w = w, .c = c, .cfg = cfg, .ops = ops, .ctx = ctx,
		.progress = progress,
		.total = weights_pack_cost(w, c, cfg, ops).packed,
	};
	const u64 size = ALIGN_UP(p.total, HUGE_PAGE) + HUGE_PAGE;
	u8 *map;

	if (!p.total)
		return 0;
	map = mmap(NULL, size, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED)
		return -ENOMEM;
	w->pack_map = map;
	w->pack_size = size;
	p.to = (u8 *)ALIGN_UP((uintptr_t)map, (uintptr_t)HUGE_PAGE);
	/* A hint: without huge pages products are slower, but correct. */
	(void)!madvise(p.to, ALIGN_UP(p.total, HUGE_PAGE), MADV_HUGEPAGE);
	pack_walk(&p);
	return 0;
}

bool weights_huge_pages(void)
{
	char text[64] = "";
	FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");

	if (!f)
		return false;
	if (!fgets(text, sizeof(text), f))
		text[0] = 0;
	fclose(f);
	return strstr(text, "[always]") || strstr(text, "[madvise]");
}
