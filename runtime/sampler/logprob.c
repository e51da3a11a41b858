// SPDX-License-Identifier: Apache-2.0
/*
 * logprob.c - logprobs of tokens
 *
 * The logarithm of a softmax is the logit minus one number of the row, the
 * logarithm of its sum of exponentials, so one pass over the row gives all
 * logprobs.  The sum is kept in double, in the order of ids: a row gives the
 * same bits in any batch.
 *
 * The k best are kept in a heap with the worst of them on top.  After a few
 * hundred tokens of a row hardly any token is better than that, so the pass is
 * one comparison a token.  "Better" is the strict order of keys that the draw
 * uses, so equal logits are ordered by id here too.
 */
#include <math.h>

#include "runtime/sampler/internal.h"
#include "runtime/sampler/logprob.h"

int logprob_sum(const float *logits, u32 vocab, double *out)
{
	double sum = 0;
	float best;
	int err;
	u32 i;

	if (!vocab || vocab > SAMPLER_VOCAB_MAX)
		return -EINVAL;
	err = logits_max(logits, vocab, &best);
	if (err)
		return err;
	for (i = 0; i < vocab; i++)
		sum += expf(logits[i] - best);
	*out = (double)best + log(sum);
	return 0;
}

/* Let the key at @i sink in the heap of @n; the lowest key is on top. */
static void heap_sink(struct cand *heap, u32 n, u32 i)
{
	const u64 key = heap[i].key;
	u32 child;

	for (; (child = 2 * i + 1) < n; i = child) {
		if (child + 1 < n && heap[child + 1].key < heap[child].key)
			child++;
		if (heap[child].key >= key)
			break;
		heap[i].key = heap[child].key;
	}
	heap[i].key = key;
}

static void heap_make(struct cand *heap, u32 n)
{
	u32 i;

	for (i = n / 2; i--; )
		heap_sink(heap, n, i);
}

/* Make a heap of the @k best keys of the row; returns how many there are. */
static u32 heap_fill(struct cand *heap, const float *logits, u32 vocab, u32 k)
{
	u32 i, n = 0;

	for (i = 0; i < vocab && n < k; i++)
		if (logits[i] != -INFINITY)
			heap[n++].key = cand_key(logits[i], i);
	heap_make(heap, n);
	for (; i < vocab; i++) {
		/* Ids rise, so a logit equal to the worst is worse. */
		if (logits[i] <= logits[cand_id(heap[0].key)])
			continue;
		heap[0].key = cand_key(logits[i], i);
		heap_sink(heap, k, 0);
	}
	return n;
}

u32 logprob_best(struct sampler_ws *ws, const float *logits, u32 vocab,
		 double sum, u32 k, struct token_logprob *out)
{
	struct cand *heap = ws->scratch;
	u32 i, n;

	k = min(k, vocab);
	if (!k)
		return 0;
	n = heap_fill(heap, logits, vocab, k);
	for (i = n; i--; ) {
		const u32 id = cand_id(heap[0].key);

		out[i].id = id;
		out[i].logprob = (float)((double)logits[id] - sum);
		heap[0] = heap[i];
		heap_sink(heap, i, 0);
	}
	return n;
}

u32 logprob_rank(const float *logits, u32 vocab, u32 id)
{
	const float own = logits[id];
	u32 i, better = 0;

	for (i = 0; i < vocab; i++)
		better += logits[i] > own || (logits[i] == own && i < id);
	return better + 1;
}

int logprob_top(struct sampler_ws *ws, const float *logits, u32 vocab, u32 k,
		struct token_logprob *out)
{
	double sum;
	int err;

	if (vocab > ws->vocab)
		return -EINVAL;
	err = logprob_sum(logits, vocab, &sum);
	return err ? err : (int)logprob_best(ws, logits, vocab, sum, k, out);
}

int logprob_of(struct sampler_ws *ws, const float *logits, u32 vocab, u32 id,
	       struct token_logprob *out, u32 *rank)
{
	double sum;
	int err;

	if (vocab > ws->vocab || id >= vocab)
		return -EINVAL;
	err = logprob_sum(logits, vocab, &sum);
	if (err)
		return err;
	out->id = id;
	out->logprob = (float)((double)logits[id] - sum);
	if (rank)
		*rank = logprob_rank(logits, vocab, id);
	return 0;
}
