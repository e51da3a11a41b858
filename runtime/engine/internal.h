/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - what the files of the engine share
 */
#ifndef RUNTIME_ENGINE_INTERNAL_H
#define RUNTIME_ENGINE_INTERNAL_H

#include <kvmm/list.h>
#include <kvmm/probes.h>
#include <libkvmm.h>

#include "runtime/engine/engine.h"
#include "runtime/sampler/adjust.h"

#define ENGINE_MAX_STEPS	2u	/* open at once */
#define ENGINE_STEP_SLOTS	4u	/* with those whose END is under way */
#define ENGINE_NO_SAMPLE	0xffffffffu
#define ENGINE_NO_DRAW		0xffffffffu
#define ENGINE_IDLE_NS		100000000ll	/* longest sleep of a loop */

struct request;
struct lane;
struct beams;

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
 * @held:      a beam whose logits are known; it waits for its family
 * @lost:      preempted; cleared when it is READY again
 * @behind:    likewise; cleared when it stands where it stood
 * @opened:    @handle is valid
 * @replies:   requests under way that name it
 * @nr_open:   open steps that name it
 * @nr_draws:  entries of open steps that will draw a token for it
 * @matched:   ids sent since the last match began
 * @salvaged:  engine.salvaged when the first of them was
 * @match_err: first refusal of a piece
 * @waits:    times it was seen waiting for memory, when it was new
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
	bool		held;
	bool		lost;
	bool		behind;
	bool		opened;
	u32		replies;
	u32		nr_open;
	u32		nr_draws;
	u32		matched;
	u32		salvaged;
	u32		waits;
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

/* The logprob of a token that was drawn, and its rank. */
struct drawn {
	float	logprob;
	u32	rank;
};

/**
 * struct sample - one of the n answers of a request
 * @seq:    that carries it, once there is one
 * @first:  its first token, drawn before its sequence exists, or a negative
 *          errno of the sampler
 * @lp:     of @first, if wanted
 * @counts: of its ids, if its penalties need them
 * @over:   on_done was called
 * @tokens: delivered
 * @sum:    of their logprobs
 */
struct sample {
	struct seq	*seq;
	s32		first;
	struct drawn	lp;
	struct id_counts *counts;
	bool		over;
	u32		tokens;
	double		sum;
};

/**
 * struct request - a prompt and its samples
 * @next:     in its chain of engine.chains
 * @queue:    in its lane, while no sequence was opened for it
 * @lane:     which one; NULL: it is not in the queue
 * @flow:     whose it is
 * @passed:   younger ones that overtook it in its lane
 * @first_block: hash of its first block, 0: it has none
 * @blocks:   [@nr_blocks] hashes that could be found, with ENGINE_PREFIX
 * @due_at:   place in engine.due, 0: none
 * @c:        the caller's request; its arrays are copies
 * @id:       rises with arrival
 * @width:    sequences that it may have at once: its samples or beams
 * @beams:    the search, if it is one; then samples are [@width], of which
 *            the first n are told
 * @root:     the sequence that reads the prompt
 * @counts:   of the prompt's ids, if a penalty needs them
 * @adjusts:  something is done to its logits before the draw
 * @scored:   positions whose logits told of the token after them
 * @admitted: the root was READY once
 * @cached:   tokens that the first admission found
 * @times:    when it came to what, see times.c
 * @nr_behind: sequences that are behind, since @behind_since
 * @nr_over:  samples that are over
 * @nr_seqs:  sequences not CLOSED
 */
struct request {
	struct request		*next;
	struct list		queue;
	struct lane		*lane;
	struct flow		*flow;
	u32			passed;
	u32			nr_blocks;
	u64			first_block;
	u64			*blocks;
	u32			due_at;
	struct engine_request	c;
	u64			id;
	u32			width;
	struct beams		*beams;
	struct seq		*root;
	struct sample		*samples;
	struct id_counts	*counts;
	bool			adjusts;
	u32			scored;
	bool			admitted;
	u32			cached;
	struct engine_times	times;
	u32			nr_behind;
	s64			behind_since;
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
 * @lp:     of @id, if wanted
 * @nr_top: likeliest tokens, if wanted, in the entry's row of engine.top
 * @draw:   its first of engine.draws; ENGINE_NO_DRAW: the host draws
 * @rows:   of logits: of its last positions
 * @nr_scores: of these, the first ones tell of tokens of the prompt
 * @score:  place of the first in engine.scores
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
	struct drawn		lp;
	u32			nr_top;
	u32			draw;
	u32			rows;
	u32			nr_scores;
	u32			score;
};

/* What the logits of a position told of the prompt's next token; see score.c. */
struct score {
	struct drawn	lp;
	u32		nr_top;
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
 * struct flow - whose requests they are
 * @next:      in queue.flows
 * @id:        the caller's
 * @nr_reqs:   its requests, in the queue or alive
 * @nr_queued: of them, in the queue
 * @served:    tokens it was given, or was lifted to: the least is next
 * @turn:      queue.turn when it was last chosen
 */
struct flow {
	struct flow	*next;
	u32		id;
	u32		nr_reqs;
	u32		nr_queued;
	u64		served;
	u64		turn;
};

/**
 * struct queue - requests without a sequence, see queue.c and prefix.c
 * @lanes:    of one flow and priority each, highest priority first
 * @flows:    that have requests, or were given more than others
 * @clock:    where a flow begins that comes to the queue
 * @turn:     choices so far
 * @round:    calls of queue_open() so far
 * @nr:       requests in it
 * @waiting:  samples that they want
 * @max_flow: requests of a flow, as in struct engine_opts
 * @ahead:    sequences that may wait for memory before another is opened
 * @freed:    handles of requests that were over since step @step
 * @rate:     recent ones a step, in 1/QUEUE_RATE_ONE
 * @by_prefix: ENGINE_PREFIX
 * @asked:    [@nr_asked] sequences that wait for memory, or may
 * @making:   [@nr_making] roots that read their prompts
 * @known:    hashes of blocks computed lately
 */
struct queue {
	struct list	lanes;
	struct flow	*flows;
	u64		clock;
	u64		turn;
	u64		round;
	u32		nr;
	u32		waiting;
	u32		max_flow;
	u32		ahead;
	u32		freed;
	u32		rate;
	u64		step;
	bool		by_prefix;
	struct seq	**asked;
	u32		nr_asked;
	struct seq	**making;
	u32		nr_making;
	u64		*known;
};

/**
 * struct draws - what the model draws of the step that runs, see draw.c
 * @draw:    [@max], @nr of them
 * @lists:   [@max_words] what they name, @nr_words of it
 * @travels: [rows of logits] the host wants the row
 * @landing: what the model writes: @drawn, @top, engine.logits
 * @pinned:  it is of model_host_alloc()
 * @drawn:   [@max]
 * @top:     [@max][ENGINE_TOP_MAX], used as [@nr][@top_stride]
 * @asked:   the same for the model
 */
struct draws {
	struct kern_draw	*draw;
	u32			nr;
	u32			max;
	u32			*lists;
	u64			nr_words;
	u64			max_words;
	u8			*travels;
	u8			*landing;
	bool			pinned;
	struct kern_drawn	*drawn;
	struct kern_top		*top;
	u32			top_stride;
	struct model_draws	asked;
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
 * @queue:      requests without a sequence
 * @chains:     [@nr_chains] all requests by id, @nr_requests
 * @due:        [1..@nr_due] requests with a deadline, see due.c; @due_cap
 * @live:       sequences not CLOSED, by priority, then arrival; @max_seqs
 * @reserved:   handles that live requests may still need, theirs included
 * @steps:      step n lies in slot n % ENGINE_STEP_SLOTS
 * @last_step:  number of the last begun
 * @nr_steps:   open ones, the last of them is @last_step
 * @turn:       where the choice of decodes begins when not all fit
 * @row_ns:     recent nanoseconds a row, for the step deadline
 * @lap_ns:     when the last of the times in @stats ended
 * @busy:       the last iteration left work
 * @barren:     barren steps in a row
 * @throttle:   a request was refused for want of room: pause before another
 * @closing:    engine_destroy() was called
 * @ins:        arguments of a forward, [@max_batch]
 * @copy:       from, to and tokens of a step's copies, 3 x [@max_batch]
 * @max_scores: rows of logits in a step for tokens of prompts
 * @draws:      tokens that the model draws
 * @logits:     [@max_batch + @max_scores][vocab]; rows that did not travel are
 *              of an earlier step
 * @row:        [vocab], logits as they are changed where both are needed
 * @top:        [@max_batch + @max_scores][ENGINE_TOP_MAX], of the step being
 *              delivered: of its entries, then of @scores
 * @scores:     [@max_scores] of that step, @nr_scores of them
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

	struct queue			queue;
	struct request			**chains;
	u32				nr_chains;
	u32				nr_requests;
	struct request			**due;
	u32				nr_due;
	u32				due_cap;
	struct seq			**live;
	u32				nr_live;
	u32				reserved;

	struct step			steps[ENGINE_STEP_SLOTS];
	u32				nr_steps;
	u32				turn;
	u64				row_ns;
	s64				lap_ns;
	bool				busy;
	u32				barren;
	bool				throttle;
	bool				closing;

	struct sampler_ws		*sampler;
	struct model_seq_in		*ins;
	u32				*copy;
	u32				max_scores;
	u32				nr_scores;
	struct score			*scores;
	struct draws			draws;
	float				*logits;
	float				*row;
	struct token_logprob		*top;
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

/* clock.c */
s64 engine_now(void);

/* For probes: microseconds since the engine had the request. */
static inline u64 request_us(const struct request *r)
{
	return (u64)(engine_now() - r->times.queued) / 1000;
}

/* engine.c: requests and their ends */
u64 engine_lap(struct engine *e, u64 *sum);
int engine_refuse(struct engine_error *err, int code, const char *fmt, ...)
	__printf(3, 4);
void engine_cancel_all(struct engine *e, const struct engine_done *why);
void engine_die(struct engine *e, int err);
void request_free(struct engine *e, struct request *r);
void request_over(struct engine *e, struct request *r,
		  const struct engine_done *why);
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
bool fork_may_retry(const struct engine *e, const struct request *r,
		    int status);
void seqs_advance(struct engine *e);

/* queue.c: requests that have no sequence yet */
int __must_check queue_init(struct engine *e, const struct engine_opts *o);
void queue_free(struct engine *e);
int __must_check queue_add(struct engine *e, struct request *r);
void queue_remove(struct engine *e, struct request *r);
struct request *queue_first(struct engine *e);
void queue_open(struct engine *e);
void flow_charge(struct request *r, u32 tokens);
void flow_admitted(struct engine *e, struct request *r, u32 cached);
void flow_put(struct request *r);

/* prefix.c: what prompts have in common */
int __must_check prefix_init(struct engine *e);
int __must_check prefix_prepare(const struct engine *e, struct request *r);
void prefix_look(struct engine *e);
void prefix_is_made(struct engine *e, struct seq *s);
bool prefix_in_the_making(const struct engine *e, const struct request *r);
void prefix_add(struct engine *e, const u32 *ids, u32 nr, u64 salt);
u32 prefix_known(const struct engine *e, const struct request *r);

/* times.c: when a request came to what */
void times_scheduled(const struct engine *e, struct request *r);
void times_token(const struct engine *e, struct request *r);
void times_lost(struct seq *s);
void times_caught_up(struct seq *s, s64 now);
struct engine_times times_so_far(const struct request *r);

/* request.c: requests by their ids */
int __must_check request_remember(struct engine *e, struct request *r);
void request_forget(struct engine *e, struct request *r);
struct request *request_find(const struct engine *e, u64 id);

/* score.c: tokens of prompts */
bool seq_scores(const struct seq *s);
void entry_want_rows(struct entry *en);
void seq_score(struct engine *e, struct entry *en, const float *logits);
void seq_deliver_scores(struct engine *e, const struct entry *en);

/* due.c: requests that must end by a certain time */
int __must_check due_add(struct engine *e, struct request *r);
void due_remove(struct engine *e, struct request *r);
void due_expire(struct engine *e);
s64 due_limit(const struct engine *e, s64 timeout_ns);

/* draw.c: tokens that the model draws */
const struct model_draws *draws_plan(struct engine *e, struct step *st);
void draws_take(struct engine *e, struct entry *en, struct token_logprob *top);
int __must_check draws_create(struct engine *e, size_t rows);
void draws_free(struct engine *e);

/* token.c: tokens that were drawn */
struct sampler_text seq_so_far(const struct seq *s);
struct drawn drawn_lp(const struct engine *e, const float *logits, double sum,
		      u32 id);
void seq_draw(struct engine *e, struct entry *en, float *logits,
	      struct token_logprob *top);
void seq_deliver(struct engine *e, struct entry *en,
		 const struct token_logprob *top);

/* beam.c: beam search */
const char *beams_check(const struct engine_request *c);
int __must_check beams_create(struct request *r);
void beams_free(struct request *r);
void beams_over(struct engine *e, struct request *r,
		const struct engine_done *why);
void beam_draw(struct engine *e, struct seq *s, const float *logits);
void beam_deliver(struct engine *e, struct seq *s);
bool beam_is_leaving(const struct seq *s);
void beam_rematch(struct seq *s);
void beams_advance(struct engine *e, struct request *r);
void beams_fill(struct request *r, struct kvmm_remap_arg *a, u32 nr);
void beams_moved(struct engine *e, struct request *r,
		 const struct kvmm_done *done);

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
u32 link_remap(struct engine *e, struct request *r, u32 nr);
int __must_check link_begin(struct engine *e, struct step *st);
int __must_check link_end(struct engine *e, struct step *st, u64 ns,
			  u64 prefill);

/* run.c, for salvage.c */
void entry_void(struct engine *e, struct entry *en);

/* salvage.c */
bool step_is_void(const struct engine *e, const struct step *st);
void engine_look_salvage(struct engine *e);

#endif /* RUNTIME_ENGINE_INTERNAL_H */
