/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - declarations shared by the files of the engine
 */
#ifndef RUNTIME_ENGINE_INTERNAL_H
#define RUNTIME_ENGINE_INTERNAL_H

#include <kvmm/list.h>
#include <kvmm/probes.h>
#include <libkvmm.h>

#include "runtime/engine/adapters.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/lease.h"
#include "runtime/sampler/adjust.h"

#define ENGINE_MAX_STEPS	2u	/* open steps */
#define ENGINE_STEP_SLOTS	4u	/* open steps and those with END in flight */
#define ENGINE_NO_SAMPLE	0xffffffffu
#define ENGINE_NO_DRAW		0xffffffffu
#define ENGINE_IDLE_NS		100000000ll	/* longest sleep of a loop */

struct request;
struct lane;
struct beams;

/*
 * The state of a sequence in the engine.  The daemon's own state is in the
 * status record and decides; this one is the next thing for the engine to do.
 */
enum seq_state {
	SEQ_OPENING,	/* OPEN is in flight; there is no handle yet */
	SEQ_MATCHING,	/* its ids are being sent */
	SEQ_WAITING,	/* waits until the status record says READY */
	SEQ_RUNNING,	/* resident: it may be in a step */
	SEQ_FORKING,	/* FORK is in flight */
	SEQ_OVER,	/* finished; CLOSE is sent after its last step */
	SEQ_CLOSING,	/* CLOSE is in flight */
	SEQ_CLOSED,
};

/**
 * struct seq - one sequence of the daemon and the ids in it
 * @req:       the request it belongs to
 * @handle:    the daemon's handle
 * @epoch:     seq_epoch when the engine last adopted the sequence
 * @state:     see above
 * @sample:    the sample it carries; ENGINE_NO_SAMPLE before the first token
 * @to_fork:   the first tokens are drawn, and children for the other samples
 *             are yet to be forked; @len stays at the prompt's length until
 *             then
 *             @len stays at the prompt until then
 * @held:      a beam whose logits are known; it waits for its family
 * @lost:      preempted; cleared when the sequence is READY again
 * @behind:    preempted; cleared when @computed is back at @high
 * @opened:    @handle is valid
 * @replies:   requests in flight that name it
 * @nr_open:   open steps that name it
 * @nr_draws:  entries of open steps that will draw a token for it
 * @matched:   ids sent since the last match began
 * @salvaged:  engine.salvaged when the first of these ids was sent
 * @match_err: error of the first refused piece
 * @waits:     times the engine saw the new sequence wait for memory
 * @ids:       [@cap] prompt and generated ids
 * @len:       how many of @ids are known
 * @computed:  positions whose KV is valid, by all ended steps
 * @planned:   the same if the open steps are counted as done
 * @high:      highest @computed ever: positions below it are recomputed
 * @table:     private copy of the block table of each layer group
 * @table_ok:  leading entries of @table that are current; in a group with a window those
 *             of blocks behind the window are not
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
	u32		*table[MODEL_MAX_GROUPS];
	u32		table_ok[MODEL_MAX_GROUPS];
	u32		picked;		/* positions in the step being planned */
};

/* The logprob of a token that was drawn, and its rank. */
struct drawn {
	float	logprob;
	u32	rank;
};

/**
 * struct sample - one of the n answers of a request
 * @seq:    the sequence that carries it, once there is one
 * @first:  its first token, drawn before its sequence exists, or a negative
 *          errno of the sampler
 * @lp:     logprob and rank of @first, if wanted
 * @counts: counts of its ids, if its penalties need them
 * @over:   on_done was called
 * @tokens: tokens delivered
 * @sum:    sum of their logprobs
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
 * @next:     next request in its chain of engine.chains
 * @queue:    link in its lane, while it has no sequence
 * @lane:     its lane; NULL: the request is not in the queue
 * @flow:     its flow
 * @passed:   how many younger requests overtook it in its lane
 * @first_block: hash of its first block, 0: the prompt is shorter than a block
 * @blocks:   [@nr_blocks] hashes of the prompt's blocks that may be cached,
 *            with ENGINE_PREFIX
 * @due_at:   place in engine.due, 0: none
 * @c:        the caller's request; its arrays are copies
 * @id:       ids rise with arrival
 * @width:    most sequences of it at once: its samples or beams
 * @beams:    its beam search, or NULL; with it @samples has @width entries, and
 *            the first n of them are delivered
 * @root:     the sequence that reads the prompt
 * @counts:   counts of the prompt's ids, if a penalty needs them
 * @adjusts:  its logits are edited before the draw
 * @scored:   positions whose logits have scored the token after them
 * @slot:     its adapter, or NULL
 * @holds:    it is counted in slot.alive
 * @admitted: the root was READY once
 * @cached:   tokens that the first admission found cached
 * @times:    stages of the request, see times.c
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
	struct slot		*slot;
	bool			holds;
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
 * @status: status of the grant
 * @res:    the grant, in each layer group
 * @runs:   the entry is part of the forward
 * @id:     token drawn, or a negative errno of the sampler
 * @lp:     logprob and rank of @id, if wanted
 * @nr_top: likeliest tokens, if wanted, in the entry's row of engine.top
 * @draw:   its first draw in engine.draws; ENGINE_NO_DRAW: the host draws
 * @rows:   rows of logits, of its last positions
 * @nr_scores: how many of these rows, from the first on, score prompt tokens
 * @score:  index of its first score in engine.scores
 */
struct entry {
	struct seq		*seq;
	u32			start;
	u32			nr;
	bool			draws;
	int			status;
	struct kvmm_begin_res	res[MODEL_MAX_GROUPS];
	bool			runs;
	s32			id;
	struct drawn		lp;
	u32			nr_top;
	u32			draw;
	u32			rows;
	u32			nr_scores;
	u32			score;
};

/* Score of one prompt token; see score.c. */
struct score {
	struct drawn	lp;
	u32		nr_top;
};

enum step_state {
	STEP_FREE,
	STEP_BEGUN,	/* BEGIN is in flight */
	STEP_GRANTED,	/* the daemon granted it and holds it open */
	STEP_ENDING,	/* END is in flight */
};

/**
 * struct step - from STEP_BEGIN to the answer to STEP_END
 * @number:  the client's number of the step
 * @state:   see above
 * @refused: the daemon refused the step as a whole and does not hold it open
 * @salvaged: engine.salvaged when the step was begun
 * @nr:      entries
 * @entries: [max_batch]; the sequence of a refused entry may be gone
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
 * struct flow - requests that share one turn, for example those of one user
 * @next:      next flow in queue.flows
 * @id:        the caller's id of it
 * @nr_reqs:   its requests, queued or alive
 * @nr_queued: its requests in the queue
 * @served:    tokens charged to it, or the level it was raised to; the flow
 *             with the least is next
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
 * @lanes:    one for each flow and priority, highest priority first
 * @flows:    flows that have requests, or were served more than others
 * @clock:    @served of a flow that enters the queue is at least this
 * @turn:     choices so far
 * @round:    calls of queue_open() so far
 * @nr:       requests in the queue
 * @waiting:  samples that these requests want
 * @max_flow: most requests of a flow, as in struct engine_opts
 * @ahead:    sequences that may wait for memory before another is opened
 * @freed:    handles of requests that ended since step @step
 * @rate:     recent handles freed per step, in 1/QUEUE_RATE_ONE
 * @by_prefix: ENGINE_PREFIX
 * @asked:    [@nr_asked] sequences that wait for memory, or may have to
 * @making:   [@nr_making] roots that read their prompts
 * @known:    hashes of recently computed blocks
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
 * struct draws - draws of the running step that the model does, see draw.c
 * @draw:    [@max] draws, @nr of them
 * @lists:   [@max_words] lists that the draws name, @nr_words used
 * @travels: [rows of logits] the host wants the row
 * @landing: memory that the model writes: @drawn, @top, engine.logits
 * @pinned:  @landing is from model_host_alloc()
 * @drawn:   [@max] tokens drawn
 * @top:     [@max][ENGINE_TOP_MAX] likeliest tokens, used as [@nr][@top_stride]
 * @asked:   the draws as the model takes them
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
 * struct lead - the leader of ranks that share the model
 * @ranks:    NULL: the model is whole
 * @buf:      the order that is sent, @size bytes
 * @attached: the ranks were told to attach
 * @copies:   they were told to copy, and may not have done it yet
 */
struct lead {
	struct ranks	*ranks;
	void		*buf;
	size_t		size;
	bool		attached;
	bool		copies;
};

/**
 * struct engine - the engine
 * @k:          the attachment
 * @lead:       ranks that share the model
 * @kv:         where the blocks lie
 * @group:      layer groups, as the daemon has them
 * @hit_tokens: the length of a prefix hit is a multiple of it
 * @rows:       token budget of a step
 * @max_batch:  most sequences of a step
 * @chunk:      most prompt tokens of one sequence in a step
 * @lookahead:  most steps open at once
 * @match_ids:  most ids in one piece of a match
 * @ended:      the error that ended the engine, 0 while it lives
 * @queue:      requests without a sequence
 * @chains:     [@nr_chains] all requests by id, @nr_requests
 * @due:        [1..@nr_due] requests with a deadline, see due.c; @due_cap
 * @live:       sequences not CLOSED, by priority, then arrival; @max_seqs
 * @reserved:   handles that live requests have or may still need
 * @hints:      leases with a hint at work, @nr_hints
 * @held:       leases that have handles
 * @nr_handles: leases and pins in the daemon; with the @nr_making that it was asked
 *              for and that have no answer at most @max_handles
 * @pinned:     tokens of all pins; @pinning: of those without an answer
 * @max_blocks: most blocks on the device that the caller allows
 * @adapters:   adapters of requests, see adapters.c
 * @steps:      step n is in slot n % ENGINE_STEP_SLOTS
 * @last_step:  number of the last step begun
 * @nr_steps:   open steps; the last of them is @last_step
 * @turn:       where the choice of decodes begins when not all fit
 * @row_ns:     recent nanoseconds a row, for the step deadline
 * @lap_ns:     when the last interval counted in @stats ended
 * @busy:       the last iteration left work
 * @barren:     barren steps in a row
 * @throttle:   the daemon refused a request for lack of room: pause before the
 *              next one
 * @unread:     the record of a sequence changed with an answer, and is not read yet
 * @closing:    engine_destroy() was called
 * @ins:        arguments of a forward, [@max_batch]
 * @copy:       from, to and tokens of a step's copies, 3 x [@max_batch]
 * @max_scores: most rows of logits in a step for tokens of prompts
 * @draws:      draws that the model does
 * @logits:     [@max_batch + @max_scores][vocab]; a row that was not copied to
 *              the host holds logits of an earlier step
 * @row:        [vocab], edited copy of a row whose unedited logits are needed
 *              too
 * @top:        [@max_batch + @max_scores][ENGINE_TOP_MAX], of the step being
 *              delivered: of its entries, then of @scores
 * @scores:     [@max_scores] scores of that step, @nr_scores of them
 */
struct engine {
	struct lead			lead;
	struct model			*model;
	const struct model_info		*info;
	struct kvmm			*k;
	struct model_kv			kv;
	struct kvmm_group		group[MODEL_MAX_GROUPS];
	u32				entries[MODEL_MAX_GROUPS]; /* see engine_table_entries() */
	u32				hit_tokens;
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
	struct list			hints;
	u32				nr_hints;
	struct list			held;
	u32				nr_handles;
	u32				nr_making;
	u32				max_handles;
	u64				pinned;
	u64				pinning;
	u64				max_blocks;

	struct adapters			adapters;
	struct step			steps[ENGINE_STEP_SLOTS];
	u32				nr_steps;
	u32				turn;
	u64				row_ns;
	s64				lap_ns;
	bool				busy;
	u32				barren;
	bool				throttle;
	bool				unread;
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

/* ---- ranked.c, lead.c ---- */

/* One line about the failure of a group of ranks. */
const char *ranks_why(struct ranks *r);

/*
 * Report @err and @text to all ranks.  Return: the same at all of them, 0 or the error of
 * the first rank that has failed, or the error of the exchange.
 */
int __must_check ranks_report(struct ranks *r, int err, const char *text,
			      struct engine_error *why);

/*
 * Wait until all ranks have loaded; @err and @why: the failure of this one.  @identity is
 * that of its part, and becomes that of all parts together.
 */
int __must_check ranks_loaded(struct ranks *r, int err, struct engine_error *why,
			      u8 *identity);

/* All of these do nothing without ranks. */
void lead_init(struct engine *e, const struct engine_opts *o);
int __must_check lead_attach(struct engine *e, struct engine_error *err);
void lead_detach(struct engine *e);
/* Have all ranks lived until now?  0 or -ENOTRECOVERABLE, with e->why. */
int __must_check lead_check(struct engine *e);
void lead_copy(struct engine *e, u32 group, const u32 *from, const u32 *to,
	       const u32 *tokens, u32 nr);
/* The first @nr of e->ins run now. */
void lead_step(struct engine *e, u32 nr);
/*
 * Wait for copies that no forward has waited for, before their step ends: 0 or
 * -ENOTRECOVERABLE, with e->why.
 */
int __must_check lead_settle(struct engine *e);

/* ---- create.c ---- */

/*
 * Fill in the parameters of an attachment but for the identity; @name has KVMM_NAME_LEN
 * bytes and must live as long as @p.  Return: as engine_groups(), with @err.
 */
int __must_check engine_params(const struct model_info *info, const struct engine_opts *o,
			       char *name, struct kvmm_group *group,
			       struct kvmm_params *p, struct engine_error *err);

static inline u32 least(u32 a, u32 b, u32 c)
{
	const u32 ab = min(a, b);

	return min(ab, c);
}

/* @v, limited to @lo and @hi. */
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

/* How many tokens the request may still draw when @len ids are known. */
static inline u32 request_room(const struct request *r, u32 len)
{
	u32 end = r->c.nr + r->c.max_new;

	return len < end ? end - len : 0;
}

/* clock.c */
s64 engine_now(void);

/* For probes: microseconds since the request was queued. */
static inline u64 request_us(const struct request *r)
{
	return (u64)(engine_now() - r->times.queued) / 1000;
}

/* engine.c: requests and how they end */
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

/* seq.c: states of a sequence */
struct seq *seq_create(struct engine *e, struct request *r);
void seq_lose(struct engine *e, struct seq *s);
bool seq_is_resident(struct engine *e, struct seq *s);
void seq_forked(struct engine *e, struct seq *s, const struct kvmm_done *done);

/* seq_tell() - tell the request's owner that a sample has a sequence */
void seq_tell(const struct seq *s);
bool fork_may_retry(const struct engine *e, const struct request *r,
		    int status);
void seqs_advance(struct engine *e);

/* queue.c: requests without a sequence */
int __must_check queue_init(struct engine *e, const struct engine_opts *o);
void queue_free(struct engine *e);
int __must_check queue_add(struct engine *e, struct request *r);
void queue_remove(struct engine *e, struct request *r);
struct request *queue_first(struct engine *e);
void queue_open(struct engine *e);
void flow_charge(struct request *r, u32 tokens);
void flow_admitted(struct engine *e, struct request *r, u32 cached);
void flow_put(struct request *r);

/* prefix.c: common prefixes of prompts */
int __must_check prefix_init(struct engine *e);
int __must_check prefix_prepare(const struct engine *e, struct request *r);
void prefix_look(struct engine *e);
void prefix_is_made(struct engine *e, struct seq *s);
bool prefix_in_the_making(const struct engine *e, const struct request *r);
void prefix_add(struct engine *e, const u32 *ids, u32 nr, u64 salt);
u32 prefix_known(const struct engine *e, const struct request *r);

/* times.c: stages of a request */
void times_scheduled(const struct engine *e, struct request *r);
void times_token(const struct engine *e, struct request *r);
void times_lost(struct seq *s);
void times_caught_up(struct seq *s, s64 now);
struct engine_times times_so_far(const struct request *r);

/* request.c: requests by their ids */
int __must_check request_remember(struct engine *e, struct request *r);
void request_forget(struct engine *e, struct request *r);
struct request *request_find(const struct engine *e, u64 id);

/* A request that names the adapter and is not over; NULL: there is none. */
struct request *request_of_slot(const struct engine *e, const struct slot *s);

/* score.c: logprobs of prompt tokens */
bool seq_scores(const struct seq *s);
void entry_want_rows(struct entry *en);
void seq_score(struct engine *e, struct entry *en, const float *logits);
void seq_deliver_scores(struct engine *e, const struct entry *en);

/* due.c: deadlines of requests */
int __must_check due_add(struct engine *e, struct request *r);
void due_remove(struct engine *e, struct request *r);
void due_expire(struct engine *e);
s64 due_limit(const struct engine *e, s64 timeout_ns);

/* draw.c: draws on the device */
const struct model_draws *draws_plan(struct engine *e, struct step *st);
void draws_take(struct engine *e, struct entry *en, struct token_logprob *top);
int __must_check draws_create(struct engine *e, size_t rows);
void draws_free(struct engine *e);

/* token.c: draws on the host, delivery of tokens */
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

/* sched.c: plan of the next step */
int __must_check sched_begin(struct engine *e);

/* run.c: a granted step */
int __must_check step_run(struct engine *e, struct step *st);
void step_granted(struct engine *e, struct step *st,
		  const struct kvmm_done *done);

/* link.c: requests to the daemon and their answers */
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

bool link_lookup(struct engine *e, struct engine_lease *l);
bool link_lease(struct engine *e, struct engine_lease *l);
bool link_advise(struct engine *e, struct engine_lease *l, u32 advice, u64 value);
bool link_pin(struct engine *e, struct engine_lease *l);
bool link_lease_close(struct engine *e, struct engine_lease *l, u64 seq);

/* lease.c: cached content that stays without a request */
void leases_advance(struct engine *e);
void leases_end(struct engine *e, int err);
void lease_answer(struct engine *e, struct engine_lease *l,
		  const struct kvmm_done *done);

/* run.c, for salvage.c */
void entry_void(struct engine *e, struct entry *en);

/* salvage.c */
bool step_is_void(const struct engine *e, const struct step *st);
void engine_look_salvage(struct engine *e);

#endif /* RUNTIME_ENGINE_INTERNAL_H */
