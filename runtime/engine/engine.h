/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.h - many requests, one model, one attachment to the daemon
 *
 * The engine turns prompts of token ids into streams of token ids.  It knows
 * the model, the sampler and libkvmm, but no text.  Tokenizers, options and
 * servers are built on top of it and use this interface.
 *
 * It is made for an event loop: engine_step() does one iteration and returns
 * within the time given.  An engine belongs to one thread.  Callbacks run in
 * engine_step() or engine_cancel().  A callback may submit and cancel requests,
 * but must not step or destroy the engine.
 */
#ifndef RUNTIME_ENGINE_H
#define RUNTIME_ENGINE_H

#include <kvmm/types.h>

#include "runtime/model/model.h"
#include "runtime/sampler/logprob.h"

struct adapter;
struct engine;
struct kvmm_attach_rep;
struct kvmm_group;
struct ranks;

/* One line for a person: the error and its remedy. */
struct engine_error {
	char text[512];
};

/**
 * struct engine_limits - limits asked for the domain, in bytes; 0: none
 * @min:      memory.min: bytes that no other domain takes
 * @low:      memory.low: bytes that other domains take last
 * @high:     memory.high: above it new sequences wait
 * @max:      most KV on the device
 * @swap_max: most KV in the host pool, and in each swap area
 * @pool:     device pool of the domain, plus 1; 0: the daemon chooses
 * @weight:   share of the memory that is promised to no domain; 0: 100
 */
struct engine_limits {
	u64		min;
	u64		low;
	u64		high;
	u64		max;
	u64		swap_max;
	u32		pool;
	u32		weight;
};

/* Which request of a flow is next. */
enum engine_schedule {
	ENGINE_FCFS,		/* the oldest request */
	ENGINE_PREFIX,		/* the one with the longest recently computed prefix */
};

/**
 * struct engine_opts - how to attach and how to batch; zero takes defaults
 * @socket:       the daemon's socket; NULL: libkvmm's default
 * @block_tokens: tokens of a block of KV, a multiple of 16; 0: 16, or @state_tokens in a
 *                model with recurrent layers
 * @domain:       name of the domain; NULL: the last part of the model's path
 * @state_tokens: tokens between two records of recurrent layers, a multiple of 16; 0: 256
 * @limits:       limits of the domain, see struct engine_limits
 * @max_seqs:     sequences wanted from the daemon, 0: 256
 * @max_leases:   leases and pins (lease.h) at once, beside @max_seqs
 * @max_batch:    most sequences in a step, 0: the most that model and daemon
 *                allow
 * @chunk:        most prompt tokens of one sequence in a step, 0: the token
 *                budget of a step, which is the model's max_rows
 * @schedule:     order of requests of the same flow and priority
 * @max_flow:     most requests of one flow, queued or alive; 0: no bound.  Flow
 *                0 is never bounded
 * @max_steps:    steps open at once, 1 or 2; 0: 2
 * @spin:         as in struct kvmm_params
 * @max_rank:     largest rank of adapters; 0: no request has an adapter
 * @adapter_limits: limits of the domain that adapters are in
 * @drop_adapters: forget the content of an adapter that no request uses, for comparing
 * @ranks:        ranks that share the model, of which this one leads; NULL: none
 * @rank_timeout_ms: longest wait for a rank once all have loaded
 * @identity:     the model's identity from engine_identity(), for a caller that
 *                attaches many times; NULL: it is computed from the weights
 */
struct engine_opts {
	const char	*socket;
	const char	*domain;
	u32		block_tokens;
	u32		state_tokens;
	struct engine_limits limits;
	u32		max_seqs;
	u32		max_leases;
	u32		max_batch;
	u32		chunk;
	enum engine_schedule schedule;
	u32		max_flow;
	u32		max_steps;
	u32		spin;
	u32		max_rank;
	struct engine_limits adapter_limits;
	bool		drop_adapters;
	struct ranks	*ranks;
	u32		rank_timeout_ms;
	const u8	*identity;
};

/**
 * engine_groups() - the layer groups of a model, as the engine asks the daemon for them
 * @info:  the model
 * @o:     its block_tokens and state_tokens count
 * @group: [info->nr_groups] filled in, all block_tokens included
 *
 * With several groups the tokens of a block of each are a multiple of @o->block_tokens, such
 * that their blocks have about the same number of bytes.
 *
 * Return: the length of a prefix hit is a multiple of so many tokens; -E2BIG: a block is
 * larger than any pool.
 */
int __must_check engine_groups(const struct model_info *info,
			       const struct engine_opts *o,
			       struct kvmm_group *group);

/* engine_state_tokens() - tokens between two records of recurrent layers */
u32 engine_state_tokens(const struct engine_opts *o);

/**
 * engine_table_entries() - table entries for each block_tokens tokens of a group
 * @g:           the group
 * @block_bytes: bytes of a block
 *
 * Return: 1; of recurrent layers the blocks of a record.
 */
u32 engine_table_entries(const struct kvmm_group *g, u64 block_bytes);

/**
 * engine_group_blocks() - most blocks that a sequence has in a group at once
 * @g:           the group, with its block_tokens
 * @block_bytes: bytes of a block
 * @step:        most tokens of a sequence in a step, at least 1
 * @len:         tokens of the sequence
 */
u64 engine_group_blocks(const struct kvmm_group *g, u64 block_bytes, u32 step,
			u64 len);

/* engine_seq_blocks() - the same in all of the @nr groups */
u64 engine_seq_blocks(const struct kvmm_group *group, u32 nr, u64 block_bytes,
		      u32 step, u64 len);

/* Why a sample ended. */
enum engine_reason {
	ENGINE_STOP,		/* a stop id was drawn */
	ENGINE_LENGTH,		/* max_new tokens, or the model's context */
	ENGINE_CANCELLED,	/* engine_cancel() or engine_destroy() */
	ENGINE_TIMEOUT,		/* its deadline passed */
	ENGINE_ERROR,
};

/**
 * struct engine_times - stages of a request; CLOCK_MONOTONIC, in ns
 * @queued:      engine_submit() took it
 * @scheduled:   the first step began that computed tokens of it; 0: not yet
 * @first:       the first token of any of its samples was drawn; 0: not yet
 * @last:        its last token so far was drawn, a stop id included
 * @preempted:   ns in which one of its sequences was preempted, or recomputed
 *               the tokens that the preemption had cost
 * @preemptions: times that one of its sequences was preempted
 */
struct engine_times {
	s64	queued;
	s64	scheduled;
	s64	first;
	s64	last;
	s64	preempted;
	u32	preemptions;
};

/**
 * struct engine_done - the end of one sample
 * @sample:        index of the sample in the request, from 0
 * @reason:        why the sample ended
 * @stop_id:       the id that stopped it, ENGINE_STOP only
 * @err:           negative errno with ENGINE_ERROR and ENGINE_TIMEOUT, else 0;
 *                 -ENOTRECOVERABLE: the device failed in this process; -ENODEV:
 *                 the daemon no longer knows the content of the device's memory
 * @text:          one line that explains @err, else ""
 * @prompt_tokens: tokens of the request's prompt
 * @cached_tokens: prompt tokens found in the prefix cache at the first
 *                 admission
 * @tokens:        tokens given to on_token
 * @logprob:       sum of the logprobs of @tokens if the request wants logprobs,
 *                 else 0; beam search always sets it, see struct engine_request
 * @times:         times of the request, so far
 */
struct engine_done {
	u32			sample;
	enum engine_reason	reason;
	u32			stop_id;
	int			err;
	const char		*text;
	u32			prompt_tokens;
	u32			cached_tokens;
	u32			tokens;
	double			logprob;
	struct engine_times	times;
};

/**
 * struct engine_token - a token that was drawn
 * @id:      the token
 * @logprob: the model's logprob of it, see logprob.h; this and the following
 *           members are set only if the request wants logprobs, else 0
 * @rank:    its rank among all tokens, from 1
 * @nr_top:  entries of @top
 * @top:     the likeliest tokens at this position, best first, or the ids that
 *           the request names; valid until the callback returns
 */
struct engine_token {
	u32				id;
	float				logprob;
	u32				rank;
	u32				nr_top;
	const struct token_logprob	*top;
};

/*
 * Logprobs that a request wants: none, or those of its tokens and of the @k
 * likeliest.
 */
#define ENGINE_NO_LOGPROBS	0u
#define ENGINE_LOGPROBS(k)	((k) + 1u)
#define ENGINE_TOP_MAX		128u	/* largest @k */

/**
 * struct engine_request - a request
 * @ids:      the prompt, @nr of them, at least one; copied
 * @max_new:  most tokens to generate, at least 1; reduced where the model's
 *            context ends
 * @stops:    ids that end a sample, @nr_stops of them; copied.  on_token does
 *            not get the stop id
 * @sampling: how tokens are drawn
 * @n:        samples that share the prompt, 0: 1
 * @priority: sequences of priority 0 are preempted first
 * @flow:     the flow of the request.  Flows take turns, and the requests of a
 *            flow share its turn.  Flow 0 is treated like the others
 * @deadline_ns: CLOCK_MONOTONIC time at which the request ends with
 *            ENGINE_TIMEOUT, complete or not; 0: none
 * @salt:     prompts share cached blocks only under the same salt and the same adapter
 * @adapter:  the adapter of all its tokens; it must live until engine_adapter_forget();
 *            NULL: none
 * @beam_width: beams of a beam search, 0: no beam search.  The @n best texts
 *            are delivered when the search ends, best first.  @sampling must be
 *            greedy, no likeliest tokens are reported, and engine_done.logprob
 *            includes the logprob of the stop id
 * @length_penalty: the score of a text of n tokens is the sum of its logprobs /
 *            n ^ @length_penalty; from -10 to 10
 * @early_stopping: when the search ends once it has as many texts as beams: 0:
 *            when no beam would score better if it ended now; 1: at once; 2:
 *            when no beam can reach a better score
 * @logprobs: ENGINE_NO_LOGPROBS or ENGINE_LOGPROBS(k)
 * @logprob_ids: with ENGINE_LOGPROBS(k): report these k ids, in this order,
 *            instead of the likeliest; copied; NULL: the likeliest
 * @prompt_logprobs: like @logprobs, but for the tokens of the prompt, reported
 *            to @on_prompt; the whole prompt is then computed, cached or not
 * @on_prompt: a token of the prompt, from position 1 on, in order, before the
 *            first @on_token
 * @on_seq:   a sample has this sequence of the daemon from now on; until it has
 *            one, it shares that of sample 0; never after @on_done of the sample
 * @on_token: one more token of a sample
 * @on_done:  called exactly once a sample, after its last token
 * @arg:      passed to the callbacks
 */
struct engine_request {
	const u32		*ids;
	u32			nr;
	u32			max_new;
	const u32		*stops;
	u32			nr_stops;
	struct sampling_params	sampling;
	u32			n;
	u32			priority;
	u32			flow;
	s64			deadline_ns;
	u64			salt;
	struct adapter		*adapter;
	u32			beam_width;
	float			length_penalty;
	u32			early_stopping;
	u32			logprobs;
	const u32		*logprob_ids;
	u32			prompt_logprobs;
	void			(*on_prompt)(void *arg, u32 position,
					     const struct engine_token *t);
	void			(*on_seq)(void *arg, u32 sample, u64 seq);
	void			(*on_token)(void *arg, u32 sample,
					    const struct engine_token *t);
	void			(*on_done)(void *arg,
					   const struct engine_done *done);
	void			*arg;
};

/*
 * Counters since the engine was created: name and meaning.  The times are
 * disjoint parts of the time of the engine's thread while it has work.
 */
#define ENGINE_STATS(x)							\
	x(requests,		"requests accepted")			\
	x(timeouts,		"samples ended since their deadline passed") \
	x(steps,		"steps with a result")		\
	x(barren_steps,		"steps in which nothing could run")	\
	x(prompt_tokens,	"tokens of the prompts admitted")	\
	x(cached_tokens,	"of these, found in the prefix cache")	\
	x(prefilled_tokens,	"tokens of prompts computed, first time") \
	x(decoded_tokens,	"tokens after prompts computed, first time") \
	x(recomputed_tokens,	"tokens computed again after preemption") \
	x(generated_tokens,	"tokens drawn and delivered")		\
	x(drawn_device,		"tokens drawn on the GPU, without logits for the host") \
	x(drawn_host,		"tokens drawn on the host; without those of beam searches") \
	x(forks,		"sequences made by fork")		\
	x(remaps,		"beams that became another of their search") \
	x(copies,		"blocks copied because they were shared") \
	x(preemptions,		"times a sequence lost its memory")	\
	x(restored,		"times a sequence got its memory back as it was") \
	x(readmitted_cached,	"tokens found cached when readmitted")	\
	x(retries,		"entries refused for want of memory")	\
	x(rolled_back,		"entries begun and ended without progress") \
	x(adapter_blocks_found,	"blocks of adapters found in the daemon's memory") \
	x(adapter_blocks_read,	"blocks of adapters read from their files") \
	x(forward_ns,		"nanoseconds in the model")		\
	x(draw_ns,		"nanoseconds drawing tokens")		\
	x(copy_ns,		"nanoseconds copying blocks")		\
	x(collect_ns,		"nanoseconds taking answers and opening sequences") \
	x(plan_ns,		"nanoseconds planning steps and asking for them") \
	x(end_ns,		"nanoseconds ending steps")		\
	x(deliver_ns,		"nanoseconds handing out tokens")	\
	x(wait_ns,		"nanoseconds that steps waited for their grant") \
	x(idle_ns,		"nanoseconds without a step: for memory, or an answer") \
	x(away_ns,		"nanoseconds between iterations, while there was work")

struct engine_stats {
#define x(name, text) u64 name;
	ENGINE_STATS(x)
#undef x
};

/**
 * struct engine_load - the work at hand
 * @waiting: sequences without memory: of requests in the queue, not yet
 *           admitted, or preempted
 * @running: sequences that may be in the next step
 * @extents: extents of the pool that this engine has, cached blocks included
 * @all_extents: extents of the device pool that its domain is in
 * @client:  number of this client of the daemon
 * @drained: the daemon refuses new sequences: an operator has drained it
 */
struct engine_load {
	u32	waiting;
	u32	running;
	u32	extents;
	u32	all_extents;
	u32	client;
	bool	drained;
};

/**
 * engine_identity() - compute the model's identity; reads all weights once
 * @out: KVMM_IDENTITY_LEN bytes
 *
 * Return: 0 or -ENOMEM.
 */
int __must_check engine_identity(const struct model *model, u8 *out);

/**
 * engine_create() - attach to the daemon and get ready for requests
 * @model: loaded; the engine is its only user until engine_destroy()
 * @opts:  NULL: defaults
 * @out:   the engine
 * @err:   filled on failure
 *
 * Without @opts->identity the function hashes the model, which reads all
 * weights.  After engine_destroy() another engine may use the same model.
 *
 * Return: 0; -ENOENT or -ECONNREFUSED: no daemon; -EINVAL: a bad option; else
 * the answer of kvmm_attach().
 */
int __must_check engine_create(struct model *model,
			       const struct engine_opts *opts,
			       struct engine **out, struct engine_error *err);

/**
 * engine_destroy() - cancel all requests, detach, free
 * @e: may be NULL
 *
 * Open steps are ended first, so that the daemon knows the state of every
 * block.
 */
void engine_destroy(struct engine *e);

/**
 * engine_submit() - queue a request
 * @e:   the engine
 * @req: copied
 * @id:  id of the request for engine_cancel(); may be NULL
 * @err: filled on failure
 *
 * Return: 0; -EINVAL: a bad parameter; -E2BIG: the prompt is longer than the
 * model's context; -EBUSY: its flow has as many requests as allowed; -ENOMEM;
 * -ECONNRESET: the attachment has ended; -ENOTRECOVERABLE: the device failed.
 */
int __must_check engine_submit(struct engine *e,
			       const struct engine_request *req, u64 *id,
			       struct engine_error *err);

/**
 * engine_cancel() - end all samples of a request
 *
 * Its blocks are freed when the steps that are open now have ended.  Return: 0,
 * or -ENOENT when the request has already ended.
 */
int engine_cancel(struct engine *e, u64 id);

/**
 * engine_cancel_sample() - end one sample of a request and keep the others
 *
 * Return: 0, or -ENOENT when the sample has already ended.
 */
int engine_cancel_sample(struct engine *e, u64 id, u32 sample);

/**
 * engine_step() - one iteration
 * @e:          the engine
 * @timeout_ns: longest wait for the daemon; the model's time is added to it
 *
 * Return: 1 while there are requests, 0 when there are none; -ECONNRESET when
 * the attachment ended; -ENOTRECOVERABLE when the device failed and this
 * process cannot use it any more.  After an error every sample has got its end.
 */
int __must_check engine_step(struct engine *e, s64 timeout_ns);

/**
 * engine_run_until_idle() - step until there are no requests
 * @stop: polled between steps when not NULL: return when it is not zero
 *
 * Return: 0, or the error of engine_step().
 */
int __must_check engine_run_until_idle(struct engine *e,
				       const volatile int *stop);

/**
 * engine_adapter_forget() - the caller wants to free an adapter
 *
 * Its content may stay in the daemon's memory as cache.
 *
 * Return: 0, also for an adapter that the engine does not know; -EBUSY: a request uses it.
 */
int __must_check engine_adapter_forget(struct engine *e, struct adapter *a);

/* engine_get_stats() - read the counters */
void engine_get_stats(const struct engine *e, struct engine_stats *st);

/* engine_get_load() - how many sequences wait and run */
void engine_get_load(const struct engine *e, struct engine_load *load);

/* engine_attach_info() - the daemon's answer at attach */
const struct kvmm_attach_rep *engine_attach_info(const struct engine *e);

/* engine_max_prompt() - longest prompt that leaves room for one token */
u32 engine_max_prompt(const struct engine *e);

/* engine_strerror() - why the engine ended, one line; "" while it lives */
const char *engine_strerror(const struct engine *e);

/* engine_reason_name() - "stop", "length", "cancelled", "timeout", "error" */
const char *engine_reason_name(enum engine_reason reason);

#endif /* RUNTIME_ENGINE_H */
