/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backend.h - one model, its engine, and the thread they live on
 *
 * A backend loads a model, attaches to the daemon, attaches again when the
 * daemon went away, and works off what is posted to it.  Its thread is the
 * only one that touches model and engine; everybody else posts work and reads
 * what the work says.
 */
#ifndef RUNTIME_SERVER_BACKEND_H
#define RUNTIME_SERVER_BACKEND_H

#include <pthread.h>

#include "runtime/engine/engine.h"
#include "runtime/server/api.h"
#include "runtime/server/mailbox.h"

#define BACKEND_IDENTITY_LEN	32u
#define BACKEND_DUE_MAX		16u	/* mailboxes that wait to be woken */

/* What a backend is doing, and the word for it. */
#define BACKEND_STATES(x)						\
	x(LOADING,	"loading")	/* reading the model's files */	\
	x(DETACHED,	"detached")	/* looking for the daemon */	\
	x(ATTACHED,	"attached")	/* at work */			\
	x(LOST,		"gpu_failed")	/* its GPU failed: for good */	\
	x(FAILED,	"failed")	/* it cannot be: see why */

enum backend_state {
#define x(name, word) BACKEND_##name,
	BACKEND_STATES(x)
#undef x
};

/* What was told of a token, if the request wants logprobs. */
struct work_told {
	float	logprob;
	u32	rank;
	u32	nr_top;
};

/**
 * struct work_tops - what was told of the tokens of a text; all zero: nothing
 * @told: of each
 * @top:  [@k] likeliest of each
 */
struct work_tops {
	u32			k;
	struct work_told	*told;
	struct token_logprob	*top;
};

/**
 * struct work_sample - one sample: written by the backend, read by the owner
 * @ids:      [max_new]; the first @nr are there
 * @tops:     of the same, if wanted
 * @nr:       published after the id
 * @over:     published last: all of this is final
 * @unwanted: set by the owner: end it
 * @ended:    the backend has seen @unwanted (backend only)
 */
struct work_sample {
	u32			*ids;
	struct work_tops	tops;
	u32			nr;
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
 * @id:       of the engine, 0: it does not have it
 * @tops:     of its tokens, by position from 1, if wanted; whole when a sample
 *            has a token or is over
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
 * struct work - what is asked of a backend, from post to release
 * @req:      template of the engine's requests: all but prompt and callbacks
 * @to:       mailbox of the owner
 * @in:       posted to the backend: begin, or look at what is unwanted
 * @out:      posted to the owner: there is something to read
 * @done:     posted to the owner once, last: every sample is over
 * @bye:      posted to the backend once, after @done: nobody looks any more
 * @cancel:   set by the owner: end all of it
 * @release:  frees what holds the work; called by the backend's thread
 * @begun, @refused, @left: whether the engine has it, could not have all of
 *            it, and samples not over (backend only)
 * @why:      text of the first error, final with @done
 * @room:     memory of all tokens, @room_size bytes
 *
 * The protocol makes every free safe without a lock: @done is the last that
 * the backend writes, @bye the last that the owner posts.
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
	char			why[512];
	void			*room;
	size_t			room_size;
};

/**
 * struct backend_opts - how to load and attach
 * @notify: posted to @to whenever the state changed
 */
struct backend_opts {
	const char		*dir;
	const char		*name;
	struct model_opts	model;
	struct engine_opts	engine;
	u32			priority;
	u32			max_samples;
	const char		*chat_template;
	struct mailbox		*to;
	struct mail		*notify;
};

/**
 * struct backend - a model being served
 * @api:      for requests; valid once the state is past LOADING
 * @state:    enum backend_state
 * @beat_ns:  when a step last ended, or there was none to make
 * @stop:     set to end the thread
 * @exit_err: with FAILED: negative errno
 * @lock:     for what follows it
 * @why:      what it waits for, or why it failed; one line
 * @stats:    of all engines so far
 * @attaches: times it attached
 */
struct backend {
	struct backend_opts	o;
	struct api_model	api;
	struct mailbox		inbox;
	u32			state;
	s64			beat_ns;
	u32			stop;
	int			exit_err;
	pthread_t		thread;

	pthread_mutex_t		lock;
	char			why[512];
	struct engine_stats	stats;
	struct engine_load	load;
	u64			attaches;

	/* Only the thread looks at these. */
	struct model		*model;
	struct tokenizer	*tok;
	struct chat		*chat;
	struct engine		*engine;
	u8			identity[BACKEND_IDENTITY_LEN];
	struct engine_stats	past;		/* of engines that are gone */
	struct mailbox		*due[BACKEND_DUE_MAX];	/* to be woken */
	u32			nr_due;
	bool			was_attached;
	int			last_err;
};

/* backend_start() - begin to load, on a thread of its own; 0 or -errno */
int __must_check backend_start(struct backend *b, const struct backend_opts *o);

/**
 * backend_join() - detach and end the thread
 * @wait_ms: longest wait; the thread may be loading or attaching
 *
 * Return: true when it ended; else the backend must be left alone.
 */
bool backend_join(struct backend *b, u32 wait_ms);

/* backend_free() - after backend_join(), and when its last @done was handled */
void backend_free(struct backend *b);

/* backend_get_state() - enum backend_state, now */
enum backend_state backend_get_state(const struct backend *b);

/* backend_state_name() - "attached" */
const char *backend_state_name(enum backend_state state);

/* backend_why() - copy the line that explains the state */
void backend_why(struct backend *b, char *text, size_t len);

/**
 * struct backend_view - figures of one instant
 * @silent_ns: since a step ended, or there was none to make
 */
struct backend_view {
	enum backend_state	state;
	struct engine_stats	stats;
	struct engine_load	load;
	u64			attaches;
	s64			silent_ns;
};

void backend_look(struct backend *b, struct backend_view *v);

/**
 * work_init() - prepare the samples; the rest of @w is filled in already
 *
 * Return: 0 or -ENOMEM; work_free() is due in every case.
 */
int __must_check work_init(struct work *w);
void work_free(struct work *w);

/* work_post() - hand it to its backend, or have it look again */
void work_post(struct work *w);

#endif /* RUNTIME_SERVER_BACKEND_H */
