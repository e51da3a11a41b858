/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters.h - adapters in the memory of the daemon
 */
#ifndef RUNTIME_ENGINE_ADAPTERS_H
#define RUNTIME_ENGINE_ADAPTERS_H

#include <kvmm/list.h>
#include <libkvmm.h>

#include "runtime/engine/engine.h"
#include "runtime/model/adapter.h"

struct request;
struct step;

/* The domain of the adapters has the name of the model's, and this. */
#define ADAPTERS_SUFFIX	".lora"

/* Ids of a block: the digest of its adapter, its number, and zeros. */
#define ADAPTERS_IDS	KVMM_MIN_BLOCK_TOKENS

enum slot_state {
	SLOT_IDLE,	/* no sequence: its content is cache, or forgotten */
	SLOT_ASKED,	/* has a sequence, which waits for its memory */
	SLOT_FILLING,	/* has memory, and some blocks have no content yet */
	SLOT_HELD,	/* may be used */
};

/**
 * struct slot - an adapter that requests name
 * @list:     in adapters.slots
 * @adapter:  the caller's
 * @nr:       requests that name it
 * @alive:    of these, requests that are not in the queue
 * @wanted:   a request in the queue would be next, but for the adapter
 * @seq:      its sequence of the daemon, unless SLOT_IDLE
 * @matched:  the daemon has its ids
 * @waits:    times that it was seen waiting for memory
 * @epoch:    of that sequence, in SLOT_FILLING and SLOT_HELD
 * @ids:      [@nr_blocks][16] ids that name its blocks
 * @nr_blocks: blocks that it takes
 * @valid:    leading blocks with content
 * @place:    where its matrices are, in SLOT_HELD
 * @blocks:   [@nr_blocks] addresses
 * @table:    [@nr_blocks] entries of its table
 * @located:  @place was made of @table, and no grant has changed the table since
 * @granted:  the open step has it
 */
struct slot {
	struct list		list;
	struct adapter		*adapter;
	u32			nr;
	u32			alive;
	bool			wanted;
	enum slot_state		state;
	u64			seq;
	bool			matched;
	u32			waits;
	u32			epoch;
	u32			*ids;
	u32			nr_blocks;
	u32			valid;
	struct adapter_place	place;
	void			**blocks;
	u32			*table;
	bool			located;
	bool			granted;
};

/**
 * struct adapters - the adapters of an engine
 * @k:           their attachment; NULL: no request can have one
 * @block_bytes: size of a block
 * @drop:        as engine_opts.drop_adapters
 * @slots:       adapters that requests name, and others that are not yet given back
 * @step:        number of the last step
 * @open:        that step is open, and reads adapters
 * @salvaged:    salvages when it was begun
 * @buffer:      a block in host memory, if the pool is on a device
 * @begin, @res: arguments and answers of a step, [@max] each
 * @used:        [@max] adapters of a step
 * @max:         most adapters of a step
 */
struct adapters {
	struct kvmm			*k;
	u64				block_bytes;
	bool				drop;
	struct list			slots;
	u64				step;
	bool				open;
	u32				salvaged;
	void				*buffer;
	struct kvmm_begin_arg		*begin;
	struct kvmm_begin_res		*res;
	struct slot			**used;
	u32				max;
};

/* Attach; nothing without engine_opts.max_rank.  @domain is that of the model. */
int __must_check adapters_create(struct engine *e, const struct engine_opts *o,
				 const char *domain, struct engine_error *err);
void adapters_free(struct engine *e);

/* Has the attachment of the adapters ended? */
bool adapters_dead(const struct engine *e);

/* Does a request fit into the pool together with its adapter?  Return: 0, or -E2BIG with @err. */
int __must_check adapters_fit(const struct engine *e, const struct engine_request *c,
			      struct engine_error *err);

/* The request names an adapter: 0 or -ENOMEM.  adapters_put() undoes it. */
int __must_check adapters_get(struct engine *e, struct request *r);
void adapters_put(struct engine *e, struct request *r);

/* A request leaves the queue, and has a sequence. */
void adapters_opened(struct request *r);

/* The queue is about to say which adapters it wants. */
void adapters_look(struct engine *e);

/* The request waits for its adapter, and would be next. */
void adapters_want(struct request *r);

/* Does an adapter wait for memory? */
bool adapters_wait(const struct engine *e);

/* May the request be opened, and its sequences be in a step, as far as its adapter counts? */
bool adapters_hold(const struct request *r);

/* Where the blocks of a slot are, and its matrices: 0 or -EAGAIN. */
int slot_locate(struct adapters *a, struct slot *s);

/* Let every adapter do the next thing possible.  Return: 0 or -ECONNRESET. */
int __must_check adapters_advance(struct engine *e);

/* Does a request wait for its adapter?  Then the engine sleeps for ADAPTERS_POLL_NS at most. */
bool adapters_come(const struct engine *e);

#define ADAPTERS_POLL_NS	1000000ll

/*
 * adapters_begin() - keep the adapters of the running entries in place
 *
 * An entry does not run if its adapter has lost its memory.  Return: 0 or -ECONNRESET.
 */
int __must_check adapters_begin(struct engine *e, struct step *st);

/*
 * adapters_end() - the forward has ended
 *
 * An entry is void if its adapter may have changed meanwhile.  Return: 0 or -ECONNRESET.
 */
int __must_check adapters_end(struct engine *e, struct step *st);

#endif /* RUNTIME_ENGINE_ADAPTERS_H */
