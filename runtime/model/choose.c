// SPDX-License-Identifier: Apache-2.0
/*
 * choose.c - types of arithmetic and KV that fit a model
 *
 * The type of a model is that of its configuration, which names the type that it was
 * published in.  Without one it is the type of most bytes of its weights.
 */
#include "runtime/model/internal.h"

/* Blocks have scales in f16, and programs for such files have KV in f16. */
static enum kern_dtype type_of_weights(const struct model *m)
{
	static const enum kern_dtype types[] = {
		KERN_F32, KERN_BF16, KERN_F16, KERN_F16,
	};
	u64 bytes[ARRAY_SIZE(types)] = { 0 };
	u32 i, most = 0;

	for (i = 0; i < m->ckpt->nr_tensors; i++) {
		const struct st_tensor *t = m->ckpt->tensors[i];

		bytes[0] += t->dtype == ST_F32 ? t->nr_bytes : 0;
		bytes[1] += t->dtype == ST_BF16 ? t->nr_bytes : 0;
		bytes[2] += t->dtype == ST_F16 ? t->nr_bytes : 0;
		bytes[3] += t->dtype == ST_BLOCKS ? t->nr_bytes : 0;
	}
	for (i = 1; i < ARRAY_SIZE(types); i++)
		if (bytes[i] > bytes[most])
			most = i;
	return types[most];
}

/*
 * No kernel computes in f16.  A model in f16 is computed in f32, which loses
 * nothing, and its KV has the size that it has elsewhere.
 */
void model_choose_types(const struct model *m, struct model_opts *o)
{
	enum kern_dtype type = m->cfg.says_type ? m->cfg.type :
						  type_of_weights(m);

	if (o->dtype != MODEL_DTYPE_AUTO)
		return;
	o->dtype = type == KERN_BF16 ? MODEL_BF16 : MODEL_F32;
	if (type == KERN_F16 && !o->kv_type)
		o->kv_type = MODEL_KV_F16;
}
