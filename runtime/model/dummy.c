// SPDX-License-Identifier: Apache-2.0
/*
 * dummy.c - made-up weights for any configuration
 *
 * A configuration alone is enough to measure speed and memory, and to test.
 * Every tensor of the configuration is filled with numbers that depend only on
 * the tensor's name and the element's index.  They are multiples of a power of
 * two with 7 bits, so bf16, f16 and f32 hold the same values, and another
 * program can make the same model (tests/data/families/make_families.py does).
 *
 *	k(i)   = top 7 bits of mix(fnv1a(name) + i), less 64: -64 .. 63
 *	matrix   k / 64 * the power of two at or below 2 * initializer_range
 *	norm     k rounded down to even / 256, around 1 (around 0 if the
 *		 decoder adds 1)
 *	bias     k / 512
 *	taps     k / 128, of a convolution
 *	state    k / 32, any other vector of a recurrent layer
 *
 * So a matrix has the spread of the configuration's own initial weights.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "runtime/model/dummy.h"
#include "runtime/model/error.h"
#include "runtime/model/weights.h"

/* State of a walk over all tensors. */
struct dummy {
	struct ckpt	*c;
	u32		nr;
	u64		bytes;
	u64		elem;		/* bytes of an element */
	u64		done;
	float		range;		/* spread of matrices */
	bool		judge;
	const struct model_progress *progress;
};

static u64 name_hash(const char *name)
{
	u64 h = 0xcbf29ce484222325ull;

	for (; *name; name++)
		h = (h ^ (u8)*name) * 0x100000001b3ull;
	return h;
}

/* The finaliser of splitmix64. */
static u64 mix(u64 x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

/* The value of one step of k in a matrix. */
static float matrix_unit(float range)
{
	int exp;

	frexpf(2 * range, &exp);
	return ldexpf(1.0f / 64, exp - 1);
}

static float unit_of(const struct weight_place *p, float range)
{
	if (p->cols)
		return matrix_unit(range);
	return p->is_norm ? 1.0f / 256 : p->taps ? 1.0f / 128 :
	       p->is_state ? 1.0f / 32 : 1.0f / 512;
}

static void fill(const struct st_tensor *t, const struct weight_place *p,
		 float range)
{
	const u64 seed = name_hash(p->name);
	const float unit = unit_of(p, range);
	const float base = p->is_norm && !p->plus_one ? 1.0f : 0.0f;
	const u32 mask = p->is_norm ? ~1u : ~0u;
	u16 *half = (u16 *)t->data;
	float v;
	u32 bits;
	s32 k;
	u64 i;

	for (i = 0; i < t->nr_elems; i++) {
		k = (s32)((u32)(mix(seed + i) >> 57) & mask) - 64;
		v = base + (float)k * unit;
		if (t->dtype == ST_F32) {
			((float *)t->data)[i] = v;
			continue;
		}
		memcpy(&bits, &v, sizeof(bits));
		half[i] = bits >> 16;
	}
}

static u64 elems_of(const struct weight_place *p)
{
	return (p->stack ? p->stack : 1) * p->rows * (p->cols ? p->cols : 1) *
	       (p->taps ? p->taps : 1);
}

static void set_shape(struct st_tensor *t, const struct weight_place *p)
{
	if (p->stack)
		t->shape[t->nr_dims++] = p->stack;
	t->shape[t->nr_dims++] = p->rows;
	if (p->cols)
		t->shape[t->nr_dims++] = p->cols;
	if (p->taps) {
		t->shape[t->nr_dims++] = 1;
		t->shape[t->nr_dims++] = p->taps;
	}
	t->nr_elems = elems_of(p);
}

static int count_one(void *arg, const struct weight_place *p)
{
	struct dummy *d = arg;

	d->nr++;
	d->bytes += ALIGN_UP(elems_of(p) * d->elem, 64ull);
	return 0;
}

/* Place one tensor after the others and fill it. */
static int make_one(void *arg, const struct weight_place *p)
{
	struct dummy *d = arg;
	struct ckpt *c = d->c;
	struct st_tensor *t = &c->made[d->nr++];

	t->name = strdup(p->name);
	if (!t->name)
		return -ENOMEM;
	t->path = c->dir;
	t->dtype = d->elem == 4 ? ST_F32 : ST_BF16;
	set_shape(t, p);
	t->nr_bytes = t->nr_elems * d->elem;
	t->begin = d->done;
	/*
	 * With @judge the tensors are never read: any aligned address will do.
	 */
	t->data = (void *)((uintptr_t)c->made_map + d->done);
	d->done += ALIGN_UP(t->nr_bytes, 64ull);
	if (!d->judge)
		fill(t, p, d->range);
	c->tensors[c->nr_tensors++] = t;
	c->nr_made = d->nr;
	model_progress_tell(d->progress, d->done, d->bytes);
	return 0;
}

static int dummy_map(struct dummy *d, struct model_error *err)
{
	void *map = mmap(NULL, d->bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		return model_fail(err, -ENOMEM, "%s: no memory for %llu MB of "
				  "made-up weights: use a smaller "
				  "configuration", d->c->dir,
				  (unsigned long long)(d->bytes >> 20));
	d->c->made_map = map;
	d->c->made_bytes = d->bytes;
	return 0;
}

static int dummy_make(struct dummy *d, const struct model_config *cfg,
		      struct model_error *err)
{
	struct ckpt *c = d->c;

	d->elem = kern_dtype_size(cfg->file_type);
	d->range = cfg->init_range;
	weights_each(cfg, count_one, d);
	c->tensors = calloc(d->nr + 1, sizeof(*c->tensors));
	c->used = calloc(d->nr + 1, sizeof(*c->used));
	c->made = calloc(d->nr + 1, sizeof(*c->made));
	if (!c->tensors || !c->used || !c->made)
		return model_fail_errno(err, -ENOMEM, c->dir, "tensors");
	if (!d->judge && dummy_map(d, err))
		return -ENOMEM;
	d->nr = 0;
	if (weights_each(cfg, make_one, d))
		return model_fail_errno(err, -ENOMEM, c->dir, "tensors");
	ckpt_sort(c);
	return 0;
}

int dummy_open(const char *dir, const struct model_config *cfg,
	       const struct model_progress *progress, bool judge,
	       struct ckpt **out, struct model_error *err)
{
	struct dummy d = { .progress = progress, .judge = judge };
	int ret;

	d.c = calloc(1, sizeof(*d.c));
	if (!d.c)
		return model_fail_errno(err, -ENOMEM, dir, "open");
	d.c->dir = strdup(dir);
	ret = d.c->dir ? dummy_make(&d, cfg, err) :
			 model_fail_errno(err, -ENOMEM, dir, "open");
	if (ret) {
		ckpt_close(d.c);
		return ret;
	}
	*out = d.c;
	return 0;
}
