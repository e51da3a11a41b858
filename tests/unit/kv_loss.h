/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_loss.h - how far logits may move with KV in a narrow type
 *
 * check_model_kv.c derives the bound: KV_GAIN times u, as a share of the row's
 * largest logit. u is the relative error of a number of K or V.
 */
#ifndef TESTS_KV_LOSS_H
#define TESTS_KV_LOSS_H

#include "runtime/model/model.h"

#define KV_GAIN		5.0
#define INT8_CREST	3.0

/* The lossy types, and their u. */
static const struct {
	enum model_kv_type	type;
	double			u;
} lossy[] = {
	{ MODEL_KV_F16, 0x1p-11 },
	{ MODEL_KV_BF16, 0x1p-8 },
	{ MODEL_KV_INT8, INT8_CREST * 0x1p-8 },
	{ MODEL_KV_FP8, 0x1p-4 },
};

#define NR_LOSSY	ARRAY_SIZE(lossy)

#endif /* TESTS_KV_LOSS_H */
