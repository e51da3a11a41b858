/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.h - many requests, one model, one attachment to the daemon
 *
 * The engine turns prompts of token ids into streams of token ids.  It knows
 * the model, the sampler and libkvmm, and no text: tokenizers, options and
 * servers stand above it and meet it here.
 *
 * It is made for an event loop: engine_step() does one iteration and returns
 * within the time given.  An engine belongs to one thread; callbacks run in
 * engine_step() or engine_cancel(), and may submit and cancel, but not step
 * or destroy.
 */
#ifndef RUNTIME_ENGINE_H
#define RUNTIME_ENGINE_H

#include <kvmm/types.h>

#include "runtime/model/model.h"
#include "runtime/sampler/logprob.h"

struct engine;
struct kvmm_attach_rep;

/* One line for a person: what is wrong, and the remedy. */
struct engine_error {
	char text[512];
};

/**
 * struct engine_limits - what is asked for the domain, in bytes; 0: nothing
 * @min:      what no other domain takes
 * @low:      what others take last
 * @high:     above it new sequences wait
 * @max:      most KV on the device
 * @swap_max: most KV in the host pool, and in each swap area
 * @weight:   part of what nobody is promised; 0: 100
 */
struct engine_limits {
	u64		min;
	u64		low;
	u64		high;
	u64		max;
	u64		swap_max;
	u32		weight;
};

/* Which of a flow's requests is next. */
enum engine_schedule {
	ENGINE_FCFS,		/* the one that came first */
	ENGINE_PREFIX,		/* whose prompt was computed most of, lately */
};

/**
 * struct engine_opts - how to attach and how to batch; zero takes defaults
 * @socket:       of the daemon; NULL: libkvmm's default
 * @domain:       name of the domain; NULL: the last part of the model's path
 * @block_tokens: tokens of a block: 16 (default), 32 or 64
 * @limits:       of the domain's memory, see struct engine_limits
 * @max_seqs:     sequences wanted from the daemon, 0: 256
 * @max_batch:    most sequences in a step, 0: what model and daemon allow
 * @chunk:        most prompt tokens of one sequence in a step, 0: a step's
 *                token budget, which is the model's max_rows
 * @schedule:     order of a flow's requests of one priority
 * @max_flow:     most requests of a flow, in the queue or alive; 0: no bound.
 *                Flow 0 has none
 * @max_steps:    steps open at once, 1 or 2; 0: 2
 * @spin:         as in struct kvmm_params
 * @identity:     of the model, from engine_identity(): for a caller that
 *                attaches again and again; NULL: worked out from the weights
 */
struct engine_opts {
	const char	*socket;
	const char	*domain;
	u32		block_tokens;
	struct engine_limits limits;
	u32		max_seqs;
	u32		max_batch;
	u32		chunk;
	enum engine_schedule schedule;
	u32		max_flow;
	u32		max_steps;
	u32		spin;
	const u8	*identity;
};

/* Why a sample ended. */
enum engine_reason {
	ENGINE_STOP,		/* a stop id was drawn */
	ENGINE_LENGTH,		/* max_new tokens, or the model's context */
	ENGINE_CANCELLED,	/* engine_cancel() or engine_destroy() */
	ENGINE_TIMEOUT,		/* its deadline passed */
	ENGINE_ERROR,
};

/**
 * struct engine_times - when a request came to what; CLOCK_MONOTONIC, in ns
 * @queued:      engine_submit() took it
 * @scheduled:   the first step began that computed of it; 0: none did
 * @first:       its first token was there, of whichever sample; 0: none was
 * @last:        its last token so far, the id that stopped it included
 * @preempted:   ns that a sequence of it was without memory that it had had, or
 *               computed again what it had lost with it
 * @preemptions: times that one lost it
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
 * @sample:        which of the request's n, from 0
 * @reason:        why
 * @stop_id:       the id that stopped it, ENGINE_STOP only
 * @err:           negative errno, ENGINE_ERROR and ENGINE_TIMEOUT, else 0;
 *                 -ENOTRECOVERABLE: the device failed in this process, -ENODEV:
 *                 the daemon does not know what it holds
 * @text:          one line that explains @err, else ""
 * @prompt_tokens: of the request
 * @cached_tokens: of these, found in the prefix cache at the first admission
 * @tokens:        given to on_token
 * @logprob:       sum over these, if the request wants logprobs, else 0; of
 *                 beam search always, see struct engine_request
 * @times:         of the request, so far
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
 * @logprob: of the model, see logprob.h; this and what follows only if the
 *           request wants logprobs, else 0
 * @rank:    its place among all tokens, from 1
 * @nr_top:  entries of @top
 * @top:     the likeliest tokens in its place, best first, or those that the
 *           request asks for; good until the callback returns
 */
struct engine_token {
	u32				id;
	float				logprob;
	u32				rank;
	u32				nr_top;
	const struct token_logprob	*top;
};

/* Logprobs that a request wants: none, or its token's with the @k likeliest. */
#define ENGINE_NO_LOGPROBS	0u
#define ENGINE_LOGPROBS(k)	((k) + 1u)
#define ENGINE_TOP_MAX		128u	/* most of @k */

/**
 * struct engine_request - what to generate
 * @ids:      the prompt, @nr of them, at least one; copied
 * @max_new:  most tokens to generate, at least 1; cut where the model's
 *            context ends
 * @stops:    ids that end a sample, @nr_stops of them; copied.  The id
 *            itself is not given to on_token
 * @sampling: how tokens are drawn
 * @n:        samples that share the prompt, 0: 1
 * @priority: 0 is the first to lose its memory
 * @flow:     whose it is: requests of one flow share its turn, 0 like others
 * @deadline_ns: CLOCK_MONOTONIC when it ends whatever it has, with
 *            ENGINE_TIMEOUT; 0: none
 * @salt:     prompts share cached blocks only under the same salt
 * @beam_width: beams of a beam search, 0: none.  The @n best texts are told
 *            at its end, best first; @sampling is greedy, no likeliest tokens
 *            are told, and engine_done.logprob has that of a stop id, too
 * @length_penalty: what a text of n tokens is worth is the sum of its logprobs
 *            / n ^ this; from -10 to 10
 * @early_stopping: with as many texts as beams the search ends 0: when no beam
 *            would be better if it ended now; 1: at once; 2: when no beam can
 *            become better
 * @logprobs: ENGINE_NO_LOGPROBS or ENGINE_LOGPROBS(k)
 * @logprob_ids: with ENGINE_LOGPROBS(k): tell of these k ids, in their order,
 *            instead of the likeliest; copied; NULL: the likeliest
 * @prompt_logprobs: the same of the tokens of the prompt, for @on_prompt; all
 *            of it is computed then, whatever the cache has
 * @on_prompt: a token of the prompt, from position 1 on, in order, before the
 *            first @on_token
 * @on_token: one more token of a sample
 * @on_done:  exactly once a sample, after its last token
 * @arg:      for both
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
	u32			beam_width;
	float			length_penalty;
	u32			early_stopping;
	u32			logprobs;
	const u32		*logprob_ids;
	u32			prompt_logprobs;
	void			(*on_prompt)(void *arg, u32 position,
					     const struct engine_token *t);
	void			(*on_token)(void *arg, u32 sample,
					    const struct engine_token *t);
	void			(*on_done)(void *arg,
					   const struct engine_done *done);
	void			*arg;
};

/*
 * Counters since the engine was made: name and what it counts.  The times are
 * parts of the thread's, without overlap, while there is work.
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
 * struct engine_load - what there is to do
 * @waiting: sequences wanted or made that have no memory: in the queue, not
 *           admitted yet, or preempted
 * @running: sequences that may be in the next step
 */
struct engine_load {
	u32	waiting;
	u32	running;
};

/**
 * engine_identity() - the model's identity, which reads all weights once
 * @out: KVMM_IDENTITY_LEN bytes
 *
 * Return: 0 or -ENOMEM.
 */
int __must_check engine_identity(const struct model *model, u8 *out);

/**
 * engine_create() - attach to the daemon, ready to take requests
 * @model: loaded; the engine is its only user until engine_destroy()
 * @opts:  NULL: defaults
 * @out:   the engine
 * @err:   filled on failure
 *
 * Without @opts->identity it hashes the model's, which reads all weights.
 * After engine_destroy() another engine may be made of the same model.
 *
 * Return: 0; -ENOENT or -ECONNREFUSED: no daemon; -EINVAL: an option; else
 * what kvmm_attach() answered.
 */
int __must_check engine_create(struct model *model,
			       const struct engine_opts *opts,
			       struct engine **out, struct engine_error *err);

/**
 * engine_destroy() - cancel what is left, detach, free
 * @e: may be NULL
 *
 * Open steps are ended first, so that the daemon has no doubt about any
 * block.
 */
void engine_destroy(struct engine *e);

/**
 * engine_submit() - queue a request
 * @e:   the engine
 * @req: copied
 * @id:  names it for engine_cancel(); may be NULL
 * @err: filled on failure
 *
 * Return: 0; -EINVAL: the request makes no sense; -E2BIG: it is longer than
 * the model's context; -EBUSY: its flow has as many requests as it may have;
 * -ENOMEM; -ECONNRESET: the attachment is over; -ENOTRECOVERABLE: the device
 * failed.
 */
int __must_check engine_submit(struct engine *e,
			       const struct engine_request *req, u64 *id,
			       struct engine_error *err);

/**
 * engine_cancel() - end all samples of a request
 *
 * Its blocks are free when the steps open now have ended.
 * Return: 0, or -ENOENT when it is over already.
 */
int engine_cancel(struct engine *e, u64 id);

/**
 * engine_cancel_sample() - end one sample of a request, the others go on
 *
 * Return: 0, or -ENOENT when it is over already.
 */
int engine_cancel_sample(struct engine *e, u64 id, u32 sample);

/**
 * engine_step() - one iteration
 * @e:          the engine
 * @timeout_ns: longest wait for the daemon; the model's time comes on top
 *
 * Return: 1 while requests are left, 0 when there are none, -ECONNRESET when
 * the attachment ended, -ENOTRECOVERABLE when the device failed, which this
 * process cannot use any more: every sample has then been told.
 */
int __must_check engine_step(struct engine *e, s64 timeout_ns);

/**
 * engine_run_until_idle() - step until nothing is left
 * @stop: polled between steps when not NULL: leave when it is not zero
 *
 * Return: 0, or what engine_step() answered.
 */
int __must_check engine_run_until_idle(struct engine *e,
				       const volatile int *stop);

/* engine_get_stats() - the counters, now */
void engine_get_stats(const struct engine *e, struct engine_stats *st);

/* engine_get_load() - how many sequences wait and run, now */
void engine_get_load(const struct engine *e, struct engine_load *load);

/* engine_attach_info() - what the daemon answered at attach */
const struct kvmm_attach_rep *engine_attach_info(const struct engine *e);

/* engine_max_prompt() - longest prompt that leaves room for one token */
u32 engine_max_prompt(const struct engine *e);

/* engine_strerror() - why it ended, one line; "" while it lives */
const char *engine_strerror(const struct engine *e);

/* engine_reason_name() - "stop", "length", "cancelled", "timeout", "error" */
const char *engine_reason_name(enum engine_reason reason);

#endif /* RUNTIME_ENGINE_H */
