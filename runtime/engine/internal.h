/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - what the files of the engine share
 */
#ifndef RUNTIME_ENGINE_INTERNAL_H
#define RUNTIME_ENGINE_INTERNAL_H

#include <libkvmm.h>

#include "runtime/engine/engine.h"

#define ENGINE_MAX_STEPS	2u	/* open at once */
#define ENGINE_STEP_SLOTS	4u	/* with those whose END is under way */
#define ENGINE_NO_SAMPLE	0xffffffffu
#define ENGINE_IDLE_NS		100000000ll	/* longest sleep of a loop */

struct request;

/*
 * The life of a sequence as the engine sees it.  The daemon's own state is in
 * the status record and decides; this says what the engine does next.
 */
enum seq_state {
	SEQ_OPENING,	/* OPEN is under way; there is no handle yet */
	SEQ_MATCHING,	/* its ids are being sent */
	SEQ_WAITING,	/* for READY in the status record */
	SEQ_RUNNING,	/* resident: it may be in a step */
	SEQ_FORKING,	/* FORK is under way */
	SEQ_OVER,	/* wants nothing more; CLOSE follows its last step */
	SEQ_CLOSING,	/* CLOSE is under way */
	SEQ_CLOSED,
};

/**
 * struct seq - one sequence of the daemon and the ids in it
 * @req:       the request it belongs to
 * @handle:    the daemon's
 * @epoch:     seq_epoch when it was last adopted
 * @state:     see above
 * @sample:    which sample it carries; ENGINE_NO_SAMPLE before the first token
 * @to_fork:   first tokens are drawn, children for the others still to come;
 *             @len stays at the prompt until then
 * @lost:      preempted; cleared when it is READY again
 * @opened:    @handle is valid
 * @replies:   requests under way that name it
 * @nr_open:   open steps that name it
 * @nr_draws:  entries of open steps that will draw a token for it
 * @matched:   ids sent since the last match began
 * @salvaged:  engine.salvaged when the first of them was
 * @match_err: first refusal of a piece
 * @ids:       [@cap] prompt and generated ids
 * @len:       known of them
 * @computed:  positions whose KV is valid, all ended steps counted
 * @planned:   the same with the open steps counted as done
 * @high:      highest @computed ever: below it, computing is recomputing
 * @table:     private copy of the block table, [@nr_table]
 * @table_ok:  entries of it that are current
 */
struct seq {
	struct request	*req;
	u64		handle;
	u32		epoch;
	enum seq_state	state;
	u32		sample;
	bool		to_fork;
	bool		lost;
	bool		opened;
	u32		replies;
	u32		nr_open;
	u32		nr_draws;
	u32		matched;
	u32		salvaged;
	int		match_err;
	u32		*ids;
	u32		cap;
	u32		len;
	u32		computed;
	u32		planned;
	u32		high;
	u32		*table;
	u32		nr_table;
	u32		table_ok;
	u32		picked;		/* by the plan being made */
};

/**
 * struct sample - one of the n answers of a request
 * @seq:    that carries it, once there is one
 * @first:  its first token, drawn before its sequence exists, or a negative
 *          errno of the sampler
 * @over:   on_done was called
 * @tokens: delivered
 */
struct sample {
	struct seq	*seq;
	s32		first;
	bool		over;
	u32		tokens;
};

/**
 * struct request - a prompt and its samples
 * @next:     in the queue, while no sequence was opened for it
 * @c:        the caller's request; ids and stops point to copies
 * @id:       rises with arrival
 * @root:     the sequence that reads the prompt
 * @admitted: the root was READY once
 * @cached:   tokens that the first admission found
 * @nr_over:  samples that are over
 * @nr_seqs:  sequences not CLOSED
 */
struct request {
	struct request		*next;
	struct engine_request	c;
	u64			id;
	struct seq		*root;
	struct sample		*samples;
	bool			admitted;
	u32			cached;
	u32			nr_over;
	u32			nr_seqs;
};

/**
 * struct entry - one sequence's part of a step
 * @start:  first position
 * @nr:     positions
 * @draws:  the last position's logits give a token
 * @status: of the grant
 * @res:    the grant
 * @runs:   is in the forward
 * @id:     token drawn, or a negative errno of the sampler
 */
struct entry {
	struct seq		*seq;
	u32			start;
	u32			nr;
	bool			draws;
	int			status;
	struct kvmm_begin_res	res;
	bool			runs;
	s32			id;
};

enum step_state {
	STEP_FREE,
	STEP_BEGUN,	/* BEGIN is under way */
	STEP_GRANTED,	/* its result is there; the daemon holds it open */
	STEP_ENDING,	/* END is under way */
};

/**
 * struct step - from STEP_BEGIN to the answer to STEP_END
 * @number:  the client's
 * @state:   see above
 * @refused: as a whole: the daemon does not hold it open
 * @salvaged: engine.salvaged when it was begun
 * @nr:      entries
 * @entries: [max_batch]; the sequence of one that was refused may be gone
 */
struct step {
	u64		number;
	enum step_state	state;
	bool		refused;
	u32		salvaged;
	u32		nr;
	struct entry	*entries;
};

/**
 * struct engine - the engine
 * @k:          the attachment
 * @kv:         where blocks lie
 * @rows:       token budget of a step
 * @max_batch:  sequences of a step
 * @chunk:      prompt tokens of one sequence in a step
 * @lookahead:  steps open at once
 * @match_ids:  ids in one piece of a match
 * @ended:      -ECONNRESET once the attachment is over
 * @queue:      requests without a sequence, by priority, then arrival
 * @live:       sequences not CLOSED, by priority, then arrival; @max_seqs
 * @reserved:   handles that live requests may still need, theirs included
 * @steps:      step n lies in slot n % ENGINE_STEP_SLOTS
 * @last_step:  number of the last begun
 * @nr_steps:   open ones, the last of them is @last_step
 * @turn:       where the choice of decodes begins when not all fit
 * @row_ns:     recent nanoseconds a row, for the step deadline
 * @barren:     barren steps in a row
 * @throttle:   a request was refused for want of room: pause before another
 * @closing:    engine_destroy() was called
 * @ins:        arguments of a forward, [@max_batch]
 * @copy:       from, to and tokens of a step's copies, 3 x [@max_batch]
 * @logits:     [@max_batch][vocab]
 */
struct engine {
	struct model			*model;
	const struct model_info		*info;
	struct kvmm			*k;
	struct model_kv			kv;
	u32				rows;
	u32				max_batch;
	u32				max_seqs;
	u32				chunk;
	u32				lookahead;
	u32				match_ids;
	u32				salvaged;	/* see salvage.c */
	int				ended;
	char				why[512];
	u64				last_id;
	u64				last_step;

	struct request			*queue;
	struct seq			**live;
	u32				nr_live;
	u32				reserved;

	struct step			steps[ENGINE_STEP_SLOTS];
	u32				nr_steps;
	u32				turn;
	u64				row_ns;
	u32				barren;
	bool				throttle;
	bool				closing;

	struct sampler_ws		*sampler;
	struct model_seq_in		*ins;
	u32				*copy;
	float				*logits;
	struct engine_stats		stats;
};

static inline u32 least(u32 a, u32 b, u32 c)
{
	const u32 ab = min(a, b);

	return min(ab, c);
}

/* @v, but not below @lo nor above @hi. */
static inline u32 within(u32 v, u32 lo, u32 hi)
{
	if (v < lo)
		return lo;
	return v > hi ? hi : v;
}

static inline struct step *engine_step_at(struct engine *e, u64 number)
{
	return &e->steps[number % ENGINE_STEP_SLOTS];
}

static inline bool seq_is_done(const struct seq *s)
{
	return s->state >= SEQ_OVER;
}

/* Number of tokens that the request may still draw after @len are known. */
static inline u32 request_room(const struct request *r, u32 len)
{
	u32 end = r->c.nr + r->c.max_new;

	return len < end ? end - len : 0;
}

/* engine.c: requests and their ends */
s64 engine_now(void);
int engine_refuse(struct engine_error *err, int code, const char *fmt, ...)
	__printf(3, 4);
void engine_cancel_all(struct engine *e, const struct engine_done *why);
void engine_die(struct engine *e, int err);
void request_free(struct request *r);
void sample_over(struct engine *e, struct request *r, u32 sample,
		 const struct engine_done *why);
void seq_over(struct engine *e, struct seq *s,
	      const struct engine_done *why);
void seq_fail(struct engine *e, struct seq *s, int err, const char *fmt, ...)
	__printf(4, 5);
void seq_refused(struct engine *e, struct seq *s, int err);

/* seq.c: the life of a sequence */
struct seq *seq_create(struct engine *e, struct request *r);
void seq_lose(struct engine *e, struct seq *s);
bool seq_is_resident(struct engine *e, struct seq *s);
void seq_forked(struct engine *e, struct seq *s, const struct kvmm_done *done);
void seqs_advance(struct engine *e);
void queue_open(struct engine *e);

/* token.c: tokens that were drawn */
void seq_draw(struct engine *e, struct entry *en, const float *logits);
void seq_deliver(struct engine *e, struct entry *en);

/* sched.c: what the next step holds */
int __must_check sched_begin(struct engine *e);

/* run.c: a granted step */
int __must_check step_run(struct engine *e, struct step *st);
void step_granted(struct engine *e, struct step *st,
		  const struct kvmm_done *done);

/* link.c: requests to the daemon, and its answers */
int __must_check link_collect(struct engine *e);
int __must_check link_wait(struct engine *e, s64 timeout_ns);
bool link_open(struct engine *e, struct seq *s);
bool link_match(struct engine *e, struct seq *s);
bool link_fork(struct engine *e, struct seq *s, u32 nr);
bool link_close(struct engine *e, struct seq *s);
int __must_check link_begin(struct engine *e, struct step *st);
int __must_check link_end(struct engine *e, struct step *st, u64 ns,
			  u64 prefill);

/* run.c, for salvage.c */
void entry_void(struct engine *e, struct entry *en);

/* salvage.c */
bool step_is_void(const struct engine *e, const struct step *st);
void engine_look_salvage(struct engine *e);

#endif /* RUNTIME_ENGINE_INTERNAL_H */
