/* SPDX-License-Identifier: Apache-2.0 */
/*
 * orders.h - messages of the leader to its ranks
 *
 * A message is a struct order and then words of 32 bits:
 *
 *	ATTACH	nothing
 *	DETACH	nothing
 *	COPY	@nr entries to copy from, @nr to copy to, and, if @tokens, @nr counts of tokens
 *	SYNC	nothing; answered by a report
 *	STEP	for each of @nr sequences a struct order_seq; then their tokens; then, sequence
 *		after sequence and group after group, their table entries
 *	END	nothing
 */
#ifndef RUNTIME_ENGINE_ORDERS_H
#define RUNTIME_ENGINE_ORDERS_H

#include "runtime/model/model.h"

enum order_kind {
	ORDER_ATTACH,
	ORDER_DETACH,
	ORDER_COPY,
	ORDER_SYNC,
	ORDER_STEP,
	ORDER_END,
};

/**
 * struct order - the head of a message
 * @kind:   enum order_kind
 * @nr:     see above
 * @value:  ATTACH: the leader's client number; COPY: the layer group
 * @tokens: STEP: tokens of all sequences; COPY: there are counts of tokens
 */
struct order {
	u32	kind;
	u32	nr;
	u32	value;
	u32	tokens;
};

/**
 * struct order_seq - a sequence of a STEP, as struct model_seq_in
 * @entries: table entries of each layer group
 */
struct order_seq {
	u32	nr_tokens;
	u32	start;
	u32	want_logits;
	u32	entries[MODEL_MAX_GROUPS];
};

#endif /* RUNTIME_ENGINE_ORDERS_H */
