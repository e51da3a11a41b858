// SPDX-License-Identifier: Apache-2.0
/*
 * pack.c - weights in the order that kernels read fastest
 *
 * If the kernels can pack, matrices in bf16 and in blocks can be copied into one piece of
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

bool weight_is_embed(const struct weight_at *at)
{
	return at->layer == WEIGHT_TOP &&
	       at->spec->offset == offsetof(struct model_weights, embed);
}

bool weight_is_packed(const struct weight_at *at, const struct st_tensor *t,
		      const struct model_config *cfg, const struct kern_ops *ops)
{
	const struct kern_weight w = {
		.dtype = weight_type_used(at, t, ops->weight_types),
		.rows = at->rows, .cols = at->cols,
	};

	/* The matrices of latent attention are used a head at a time. */
	if (!at->cols || at->spec->how == HOW_KV_B ||
	    at->spec->cols == DIM_NOPE || at->spec->cols == DIM_RANK ||
	    !ops->pack_bytes(&w))
		return false;
	if (at->layer != WEIGHT_TOP || (weight_is_embed(at) && cfg->tied))
		return true;
	return at->spec->offset == offsetof(struct model_weights, head);
}

/*
 * The place of a matrix for products.  The embedding of a tied matrix reads bf16 as it is
 * packed, but blocks as they are stored, so that there are two places.
 */
static struct kern_weight *pack_place(struct packer *p, const struct weight_at *at,
				      u32 i, const struct weight_part *part)
{
	struct kern_weight *place = weight_place_of(p->w, at, i, part);

	if (!weight_is_embed(at) || !kern_is_blocks(place->dtype))
		return place;
	p->w->head = *place;
	return &p->w->head;
}

/* Pack some rows of a tensor, those of matrix number @i. */
static void pack_part(struct packer *p, const struct weight_at *at,
		      enum kern_dtype type, u32 i,
		      const struct weight_part *part)
{
	const struct kern_weight w = {
		.dtype = type, .rows = part->rows, .cols = at->cols,
	};
	const u64 bytes = p->ops->pack_bytes(&w);

	p->cost.packed += bytes;
	if (!p->to)
		return;
	p->ops->pack(p->ctx, pack_place(p, at, i, part), p->to);
	p->to += bytes;
	model_progress_tell(p->progress, p->cost.packed, p->total);
}

/* Pack all parts of one tensor. */
static int pack_tensor(void *arg, const struct weight_at *at)
{
	struct packer *p = arg;
	const struct st_tensor *t = ckpt_take(p->c, at->name);
	struct weight_part parts[WEIGHT_PARTS];
	const u32 nr = weight_parts(p->cfg, at->spec, parts);
	const struct kern_weight *first;
	const void *from = NULL;
	enum kern_dtype type;
	bool stays;
	u32 i, j;

	if (!weight_is_packed(at, t, p->cfg, p->ops))
		return 0;
	type = weight_type_used(at, t, p->ops->weight_types);
	stays = weight_is_embed(at) && kern_is_blocks(type);
	p->cost.blocks |= kern_is_blocks(type);
	first = weight_place_of(p->w, at, 0, &parts[0]);
	if (p->to)
		from = first->data;
	for (i = 0; i < at->stack; i++)
		for (j = 0; j < nr; j++)
			pack_part(p, at, type, i, &parts[j]);
	if (at->turned || t->straight)
		p->cost.owned += stays ? 0 : t->nr_bytes;
	else if (!stays && !(p->c->gguf && ckpt_is_made(p->c, t)))
		p->cost.mapped += t->nr_bytes;	/* sorted tensors of a GGUF file stay as copies */
	if (!p->to || stays)
		return 0;
	if (weights_owned_free(p->w, from))
		p->w->owned_bytes -= t->nr_bytes;
	else
		ckpt_drop(p->c, t);
	return 0;
}

static void pack_walk(struct packer *p)
{
	weights_walk(p->cfg, p->w->prefix, pack_tensor, p);
	if (p->cfg->tied && !kern_is_blocks(p->w->embed.dtype))
		p->w->head = p->w->embed;
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
