/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backend.h - one model, its engine, and their thread
 *
 * A backend loads a model, attaches to the daemon, attaches again after the
 * daemon died, and does the work that is posted to it.  Its thread is the only
 * one that touches model and engine; other threads post work and read its
 * results.
 */
#ifndef RUNTIME_SERVER_BACKEND_H
#define RUNTIME_SERVER_BACKEND_H

#include <pthread.h>

#include "runtime/engine/engine.h"
#include "runtime/server/api.h"
#include "runtime/server/mailbox.h"
#include "runtime/server/served.h"
#include "runtime/server/session.h"

#define BACKEND_IDENTITY_LEN	32u
#define BACKEND_DUE_MAX		16u	/* mailboxes that wait for a wake */

/* States of a backend, and their names. */
#define BACKEND_STATES(x)						\
	x(LOADING,	"loading")	/* reading the model's files */	\
	x(DETACHED,	"detached")	/* looking for the daemon */	\
	x(ATTACHED,	"attached")	/* at work */			\
	x(LOST,		"gpu_failed")	/* its GPU failed: for good */	\
	x(FAILED,	"failed")	/* it cannot serve: see @why */

enum backend_state {
#define x(name, word) BACKEND_##name,
	BACKEND_STATES(x)
#undef x
};

/* Logprob of a token, if the request wants logprobs. */
struct work_told {
	float	logprob;
	u32	rank;
	u32	nr_top;
};

/**
 * struct work_tops - logprobs of the tokens of a text; all zero: not wanted
 * @told: [tokens]
 * @top:  [tokens][@k] likeliest tokens
 */
struct work_tops {
	u32			k;
	struct work_told	*told;
	struct token_logprob	*top;
};

/**
 * struct work_sample - one sample: written by the backend, read by the owner
 * @ids:      [max_new]; the first @nr are valid
 * @tops:     their logprobs, if wanted
 * @nr:       published after the id
 * @seq:      index of its sequence in the daemon plus one, 0: it has none yet
 * @over:     published last: all members are final
 * @unwanted: set by the owner: end this sample
 * @ended:    the backend has seen @unwanted (backend only)
 */
struct work_sample {
	u32			*ids;
	struct work_tops	tops;
	u32			nr;
	u64			seq;
	u32			over;
	u32			unwanted;
	bool			ended;
	enum engine_reason	reason;
	u32			stop_id;
	int			err;
	u32			cached;
};

/**
 * struct work_prompt - one prompt of a work
 * @id:       the engine's id of it, 0: the engine does not have it
 * @tops:     logprobs of its tokens, by position from 1, if wanted; complete
 *            when a sample has a token or is over
 * @times:    final when all samples are over
 * @samples:  [n]
 */
struct work_prompt {
	struct work		*work;
	const u32		*ids;
	u32			nr;
	u64			id;
	struct work_tops	tops;
	struct engine_times	times;
	struct work_sample	*samples;
};

/**
 * struct work - a request to a backend, from post to release
 * @req:      template of the engine's requests: all but prompt and callbacks
 * @to:       mailbox of the owner
 * @in:       posted to the backend: begin, or look for unwanted samples
 * @out:      posted to the owner: there is something to read
 * @done:     posted to the owner once, last: every sample is over
 * @bye:      posted to the backend once, after @done: the owner is finished
 * @cancel:   set by the owner: end the whole work
 * @release:  frees the object with the work; called by the backend's thread
 * @begun:    the work was submitted to the engine (backend only)
 * @refused:  the engine did not take all prompts (backend only)
 * @left:     samples not over (backend only)
 * @session:  remembers the request if it has a name; @session.told is final with @done
 * @why:      text of the first error, final with @done
 * @room:     memory of all tokens, @room_size bytes
 *
 * The protocol makes every free safe without a lock: @done is the last thing
 * that the backend writes, @bye the last thing that the owner posts.
 */
struct work {
	struct backend		*b;
	struct engine_request	req;
	struct work_prompt	*prompts;
	u32			nr_prompts;
	struct mailbox		*to;
	struct mail		in;
	struct mail		out;
	struct mail		done;
	struct mail		bye;
	u32			cancel;
	void			(*release)(struct work *w);
	bool			begun;
	bool			refused;
	u32			left;
	struct session_job	session;
	char			why[768];
	void			*room;
	size_t			room_size;
};

/**
 * struct backend_opts - how to load and attach
 * @index:    number of the model in @adapters
 * @adapters: [@nr_adapters] to load with the models
 * @notify:   posted to @to after every change of state, or of its reason
 */
struct backend_opts {
	const char		*dir;
	const char		*name;
	struct model_opts	model;
	struct engine_opts	engine;
	u32			priority;
	u32			max_samples;
	const char		*chat_template;
	u32			index;
	const struct adapter_wish *adapters;
	u32			nr_adapters;
	struct mailbox		*to;
	struct mail		*notify;
};

/**
 * struct backend_kv - the use of the pool
 * @block_tokens: tokens of a block of layer group 0
 * @blocks: of the pool; 0: not attached
 * @tokens: prompts and answers of samples that have a token and are not over
 */
struct backend_kv {
	u32	block_tokens;
	u64	blocks;
	u64	tokens;
};

/**
 * struct backend - a model being served
 * @api:      model data for requests; valid once the state is past LOADING
 * @adapters: the adapters of the model, by name; they stay when the engine ends
 * @state:    enum backend_state
 * @beat_ns:  when a step last ended, or there was no work for one
 * @stop:     set to end the thread
 * @exit_err: with FAILED: negative errno
 * @lock:     protects the members after it, up to @attaches
 * @why:      the reason of the state or of a failure; one line
 * @stats:    sums over all engines so far
 * @counts:   of the model, which stays
 * @kv:       as published
 * @attaches: number of attachments so far
 */
struct backend {
	struct backend_opts	o;
	struct api_model	api;
	struct served_adapters	adapters;
	struct mailbox		inbox;
	u32			state;
	s64			beat_ns;
	u32			stop;
	int			exit_err;
	pthread_t		thread;

	pthread_mutex_t		lock;
	char			why[768];
	struct engine_stats	stats;
	struct engine_load	load;
	struct model_stats	counts;
	struct backend_kv	kv;
	u64			attaches;

	/* Only the thread uses the members below; the loader reads @model. */
	struct model		*model;
	struct tokenizer	*tok;
	struct chat		*chat;
	struct engine		*engine;
	struct sessions		sessions;
	u8			identity[BACKEND_IDENTITY_LEN];
	bool			loaded;		/* model, tokenizer and template */
	u32			hit_tokens;	/* see engine_groups() */
	u32			block_tokens;	/* of layer group 0 */
	u64			kv_tokens;	/* see struct backend_kv */
	struct engine_stats	past;		/* sums over former engines */
	struct mailbox		*due[BACKEND_DUE_MAX];	/* mailboxes to wake */
	u32			nr_due;
	bool			was_attached;
};

/* backend_start() - start the thread, which loads the model; 0 or -errno */
int __must_check backend_start(struct backend *b, const struct backend_opts *o);

/**
 * backend_join() - detach and end the thread
 * @wait_ms: longest wait; the thread may be loading or attaching
 *
 * Return: true when it has ended; else the backend must not be touched.
 */
bool backend_join(struct backend *b, u32 wait_ms);

/*
 * backend_free() - after backend_join(), and after its last @done was handled
 */
void backend_free(struct backend *b);

/* backend_get_state() - the state now */
enum backend_state backend_get_state(const struct backend *b);

/* backend_state_name() - "attached" */
const char *backend_state_name(enum backend_state state);

/* backend_why() - copy the line that explains the state */
void backend_why(struct backend *b, char *text, size_t len);

/**
 * struct backend_view - counters at one moment
 * @silent_ns: time since a step ended, or since there was no work for one
 */
struct backend_view {
	enum backend_state	state;
	struct engine_stats	stats;
	struct engine_load	load;
	struct model_stats	counts;
	struct backend_kv	kv;
	u64			attaches;
	s64			silent_ns;
};

void backend_look(struct backend *b, struct backend_view *v);

/**
 * work_init() - allocate the samples; the caller has filled in the rest of @w
 *
 * Return: 0 or -ENOMEM; call work_free() in both cases.
 */
int __must_check work_init(struct work *w);
void work_free(struct work *w);

/* work_post() - give @w to its backend, or make the backend look again */
void work_post(struct work *w);

#endif /* RUNTIME_SERVER_BACKEND_H */
