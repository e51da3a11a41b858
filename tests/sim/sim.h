/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.h - the simulated world around the core
 *
 * One struct sim is all that one seed makes: the core in its arena, the memory
 * behind its extents, the clients with their sequences and their devices, the
 * operator, the clock.  The world keeps its own facts apart from those of the
 * core: tokens and hashes of every sequence, the valid length, the ranges that
 * steps may write, the clients that have mapped an extent.  The laws compare the
 * two.
 *
 * Words are those of the core (block, extent, span, step ...).  In addition, a
 * cell is the place of one token in the pool's memory: it holds the hash of
 * (domain, salt, token prefix) that was written there last.
 */
#ifndef SIM_H
#define SIM_H

#include <setjmp.h>
#include <stdarg.h>

#include "kvmm/core/core.h"
#include "tests/sim/rng.h"

#define SIM_CLIENTS	6
#define SIM_DOMAINS	5
#define SIM_TENANTS	3
#define SIM_SEQS	24	/* of one client */
#define SIM_TOKENS	9216	/* of one sequence */
#define SIM_BLOCKS	160	/* of one sequence, in one group */
#define SIM_GROUPS	3	/* of a domain, at most */
#define SIM_TABLES	128	/* table pages of one client */
#define SIM_EXTENTS	64
#define SIM_EVENTS	16	/* entries of an event ring */
#define SIM_BATCH	24	/* entries of one request */
#define SIM_LOG_LINES	48
#define SIM_MOVES	2048	/* copies and I/O in flight */
#define SIM_LEASES	12
#define SIM_FILES	3	/* that can be swap areas */
#define SIM_PAGE	4096u	/* of a file: the smallest slot */
#define SIM_MS		1000000ull

/* ---- clients ---- */

/**
 * struct sim_seq - a sequence as its client knows it
 * @resident:  the client saw it READY, and not yet its loss
 * @swapped:   its memory was taken, its valid tokens are not lost
 * @paged_out: its client had it paged out: only its advice brings it back
 * @marked:    at the last look at its record
 * @closing:   CLOSE was sent while a step was open
 * @target:    length at which the client closes it
 * @variant:   makes the tokens after a fork differ
 * @tok:       token at each position, all of them decided beforehand
 * @hash:      of (domain, salt, tokens up to here): expected content of a cell
 * @valid:     declared, as far as END was answered
 * @dev_len:   as far as the device has computed, in the order of steps
 * @rewind:    an END declared less than was computed: open steps are void
 * @spoiled:   the END under way declares a length that must be refused
 * @ids_sent:  ids of the next match that were sent
 * @ids_total: ids that the next match needs
 * @resv:      tokens that the last admission reserved room for
 * @refused:   its last BEGIN found no memory
 * @epoch:     as the client believes
 * @arrived:   epoch at the end of the last match
 * @table:     the client's copy, refreshed only from table_lo on
 * @stale:     the copy is behind the shadow until the next grant says from where
 * @family:    handle of the sequence that all its forks come from
 * @nr_retains: ranges that RETAIN was given for, here and in its ancestors
 * @trim_want: table indices below it are given back
 * @trim:      the present step reads no table index below it: TRIM came first
 */
struct sim_seq {
	bool	used;
	bool	resident;
	bool	swapped;
	bool	paged_out;
	bool	marked;
	bool	closing;
	bool	rewind;
	bool	spoiled;
	bool	ids_done;
	bool	refused;
	u32	slot;
	u64	handle;
	u64	salt;
	u32	flags;
	u32	priority;
	u32	nr_retains;
	u32	prompt_len;
	u32	max_tokens;
	u32	target;
	u32	variant;
	u32	valid;
	u32	dev_len;
	u32	nr_steps;
	u32	ids_sent;
	u32	ids_total;
	u32	resv;
	u32	epoch;
	u32	arrived;
	bool	stale;
	u64	family;
	u32	trim_want;
	u32	trim;
	u32	kept_at;	/* the core keeps the windows before it */
	u32	leased;		/* tokens of the lease that it was opened with */
	u32	shift[SIM_GROUPS];	/* entries of a shared record, not written */
	u32	shift_at;	/* the record behind it holds positions from here on */
	u32	nr_table[SIM_GROUPS];
	u32	table[SIM_GROUPS][SIM_BLOCKS];
	u32	*tok;
	u64	*hash;
};

/* A granted entry of an open step. */
struct sim_entry {
	u32	slot;
	u32	start;
	u32	end;
	u32	copy_from[SIM_GROUPS];
	u32	copy_to[SIM_GROUPS];
	u32	copy_tokens[SIM_GROUPS];
	u32	trim;		/* whole blocks before this position are not read */
	u32	accepted;	/* length that the run reached, 0: no progress */
};

/* Progress of the device with a step. */
enum sim_phase {
	STEP_QUEUED,
	STEP_COPIED,		/* copies are done */
	STEP_RAN,		/* reads and appends are done */
};

struct sim_step {
	u64	number;
	u64	begun;
	u32	nr;
	enum sim_phase phase;
	struct sim_entry e[SIM_BATCH];
};

enum sim_client_state {
	SIM_NONE,
	SIM_ALIVE,
	SIM_DETACHED,
	SIM_DEAD,		/* for the core too; its device may still write */
};

/*
 * A status record at the last look; @lost: tokens that were valid before its
 * memory was last taken.
 */
struct sim_seen {
	u32	seqcount;
	u32	generation;
	u32	state;
	u32	epoch;
	u32	valid;
	u32	lost;
	u32	ready_events;
	u32	preempt_events;
};

struct sim_ack {
	u32	extent;
	u32	generation;
};

/**
 * struct sim_client - one process; its place is the core's client id
 * @hung:      does nothing until it wakes
 * @mute:      never acknowledges an extent until the end
 * @lazy:      acknowledges late
 * @stubborn:  gives no revoked extent back
 * @liar:      acknowledges a revocation, and keeps the extent mapped
 * @killed:    ops->kill was called
 * @expelled:  the core expelled it
 * @mapped:    generation of each extent that it acknowledged, 0: none
 * @acks:      extents to be mapped and acknowledged
 * @revoked_at: when it was asked for each extent
 * @again_at:  when a grant was last refused for want of memory
 * @away:      the daemon ended, and the client did not come back to the next one yet
 * @is_void:   its open steps have no effect: the arena was salvaged
 * @was_salvaged: the arena was salvaged since it went away
 * @answered:  number of the last request whose answer it has
 * @op:        of the last request that it sent
 * @asking:    its last request has no answer yet
 * @unbound:   the core publishes no records for it, since the daemon ended
 */
struct sim_client {
	enum sim_client_state state;
	bool	hung;
	bool	mute;
	bool	lazy;
	bool	stubborn;
	bool	liar;
	bool	killed;
	bool	expelled;
	bool	away;
	bool	is_void;
	bool	was_salvaged;
	bool	asking;
	bool	unbound;
	bool	broken;		/* a client of its group has died */
	bool	unsure;		/* its rank died and perhaps mapped nothing: is it killed? */
	u32	group;		/* clients with one number map a shard each; 0: all shards */
	u32	shard;		/* of the group's; the client with shard 0 leads */
	u64	stopped_at;	/* when it was back after a salvage: steps from before ended */
	u16	op;
	u64	answered;
	u32	id;
	u32	dom;
	u32	nr_seqs;
	u32	nr_leases;	/* they take records of sequences, too */
	u32	nr_steps;
	u32	step_head;
	u32	depth;
	u64	number;
	u64	step_number;
	u64	dead_at;
	u64	again_at;
	u32	event_head;
	u32	nr_acks;
	struct core_attach_info info;
	struct sim_ack	acks[SIM_EXTENTS];
	u32	mapped[SIM_EXTENTS];
	u64	revoked_at[SIM_EXTENTS];
	struct sim_seen	seen[SIM_SEQS];
	struct sim_seq	seqs[SIM_SEQS];
	struct sim_step	steps[KVMM_MAX_STEPS];

	struct kvmm_daemon_ctl ctl;
	struct kvmm_seq_status status[SIM_SEQS];
	struct kvmm_extent_status extents[SIM_EXTENTS];
	struct kvmm_table_page tables[SIM_TABLES];
	struct kvmm_event events[SIM_EVENTS];
};

/**
 * struct sim_lease - a lease that a client made, and whose end it did not see
 * @held:    tokens
 * @late:    ticks since its deadline
 */
struct sim_lease {
	bool	used;
	u32	client;
	u32	slot;
	u64	handle;
	u64	number;
	u64	until;
	u64	salt;
	u32	held;
	u32	late;
	u32	tok[SIM_TOKENS];
};

/* ---- the rest of the world ---- */

/* A (tenant, name) that clients attach to. */
struct sim_domain {
	u32	tenant;
	u64	uid;		/* enters every hash */
	struct kvmm_attach_req req;
};

/**
 * struct sim_extent - memory behind an extent
 * @holders: bit for each client that was sent it and is not quiet yet
 * @ghosts:  lingering clients have it mapped
 * @tenant:  that it was sent to since it was made, or CORE_NONE
 */
struct sim_extent {
	bool	exists;
	bool	creating;
	bool	ghosts;
	u32	generation;
	u32	tenant;
	u64	holders;
};

/* Header of a slot: which content it has, and which write put it there. */
struct sim_header {
	u32	area;
	u32	domain;
	u64	hash[2];
	u64	generation;
	bool	damaged;	/* by the world: its reads may fail */
};

/**
 * struct sim_file - file of a swap area
 * @index:   of the area, CORE_NONE when it is switched off
 * @leaving: swapoff was tried, the area still has content
 * @lag:     ns that a transfer takes at least
 * @cell:    content, as in the pool's memory
 * @head:    header of the slot that begins there, for each page
 */
struct sim_file {
	u32	index;
	bool	leaving;
	u64	bytes;
	u64	lag;
	u64	*cell;
	struct sim_header *head;
};

/**
 * struct sim_move - a copy or a transfer that the core has no answer to yet
 * @copy:    between the device and the host, else I/O
 * @down:    to the host, or from it to an area
 * @read:    the source was read, into the stage
 * @written: the target was written
 * @doomed:  it is going to fail
 * @barred:  begun on a device that had failed: it touches no memory
 * @file:    of the area
 * @within:  inside the device, to @dev_to, copies only
 * @dev_off: bytes, copies only
 * @slot:    bytes from the start of the host pool to the header
 * @bytes:   of the payload, of one part of it in copies
 * @nr_shards: parts, @shard_off apart on the device; 1 in I/O
 * @until:   earliest time of the answer
 * @want:    I/O: the right header
 * @head:    I/O: the header that was read
 */
struct sim_move {
	u64	id;
	bool	copy;
	bool	within;
	bool	down;
	bool	read;
	bool	written;
	bool	doomed;
	bool	barred;
	u32	file;
	u64	dev_off;
	u64	dev_to;
	u64	area_off;
	u64	slot;
	u64	bytes;
	u32	nr_shards;
	u64	shard_off[CORE_MAX_ZONES];
	u64	until;
	struct sim_header want;
	struct sim_header head;
};

/* Draws of a seed before its first event. */
struct sim_plan {
	bool	wide;		/* large blocks in large extents, see plan.c */
	u32	whole;		/* permille of sequences that want whole blocks */
	u32	nr_events;
	u32	nr_domains;
	u32	max_live;	/* clients at once */
	u32	nr_roots;	/* of the tree of prefixes */
	u32	branch_every;
	u32	nr_salts;
	u32	max_prompt;
	u32	max_gen;
	u32	create_fail;	/* permille */
	u32	death;		/* permille of events */
	u32	hang;
	u32	bad;
	u32	fork;
	u32	cancel;		/* permille of ENDs without progress */
	u32	flags;		/* permille of NO_MATCH, NO_INDEX */
	u32	ghost;		/* permille of detached clients that live on */
	u32	quantum;	/* ns that an event takes at most */
	u32	nr_files;	/* that can be swap areas */
	u32	prefill_ns;	/* that a token takes, as clients report it */
	u32	advise;		/* permille of acts */
	u32	lease;		/* permille of acts */
	u32	answer;		/* permille of events, while any is due */
	u32	early;		/* permille of requests that begin at once */
	u32	copy_fail;	/* permille */
	u32	io_fail;
	u32	damage;		/* permille of writes that damage their slot */
	u32	swapd_death;	/* permille of answers */
	u32	areas;		/* permille of events that switch an area on or off */
	u32	operator;	/* permille of events */
	u32	stall;		/* permille of requests not answered for up to stall_ns */
	u64	stall_ns;
	u32	crash;		/* permille of events in which the daemon ends */
	bool	prios;
};

#define SIM_PSI_RES	CORE_PSI_CPU	/* resources before it: the core's own accounts */

/**
 * struct sim_pressure - a domain's stalls, from outside
 * @tasks: states of its sequences since @since
 * @last: the core's totals at the last look
 * @core, @truth: added up over the seed, in ns, of memory and of I/O
 */
struct sim_pressure {
	u32	tasks;
	u64	since;
	u64	last[SIM_PSI_RES][CORE_PSI_NR_KINDS];
	u64	core[SIM_PSI_RES][CORE_PSI_NR_KINDS];
	u64	truth[SIM_PSI_RES][CORE_PSI_NR_KINDS];
};

/* Use of a domain at the last look, and the bytes that others must leave it. */
struct sim_limit {
	u64	use;
	u64	kept;
	u64	slack;
};

struct sim {
	u64	seed;
	u64	now;
	u32	event;
	u32	stop_at;
	bool	verbose;
	bool	logging;
	struct rng rng;
	struct rng crash_rng;	/* its own, so that other seeds stay the same */
	u32	crash_in;	/* passed points until the daemon ends, 0: never */
	bool	crash_armed;	/* at the next passing of: */
	u32	crash_point;
	u32	crash_until;	/* and not after that event */
	u32	asked;		/* entries of the request under way */
	u64	asked_step;	/* the step that it names */
	u32	crash_more;	/* permille, for all seeds */
	jmp_buf	crashed;
	bool	cut;		/* the device failed, before an adoption */
	bool	cut_off;	/* it has failed, and the next daemon did not start yet */
	bool	lost;		/* the device is lost, and all clients know */
	u32	nr_loose;	/* copies cut off, at the end of ->moves: see tier.c */
	bool	adopting;	/* the core repeats its orders */
	struct sim_plan plan;
	struct core_config cfg;

	struct core *core;
	void	*arena;
	size_t	arena_bytes;
	u32	nr_blocks_max;

	u32	nr_extents;
	u32	zone_extents[2];	/* of each device pool; [1] is 0: there is one */
	u32	zone_online[2];	/* of these, as the operator said */
	u32	nr_groups;	/* groups of clients that attached */
	u32	nr_creating;
	u64	*cell;
	u64	nr_cells;
	struct sim_extent ext[SIM_EXTENTS];
	u64	*low;		/* cells of the host pool, the stages, files */
	u64	nr_low;
	struct sim_header *head;
	u64	nr_heads;
	u64	*host;
	u64	*stage;		/* data in flight, at the place of its slot */
	u64	*dev_stage;	/* the same, at the place of its block */
	u32	nr_moves;
	struct sim_file file[SIM_FILES];
	struct sim_move moves[SIM_MOVES];
	struct sim_domain dom[SIM_DOMAINS];
	u32	haunted[SIM_TENANTS];	/* lingering clients */
	u32	haunts[SIM_TENANTS];	/* the same tenant in the core */
	bool	exorcised[SIM_TENANTS];	/* they were told to end */
	struct sim_client cl[SIM_CLIENTS];
	struct sim_lease lease[SIM_LEASES];
	u32	actor_tenant;	/* of the client that asks in this event */
	u32	actor_domain;
	struct sim_pressure pressure[SIM_DOMAINS];
	struct sim_limit limit[SIM_DOMAINS];
	bool	draining;
	u32	nr_finished;

	bool	recording;	/* the core's own trace, see record.c */
	u64	trace;
	u64	counts[NR_CORE_EVENTS];

	bool	failed;
	char	why[640];
	jmp_buf	out;
	u32	log_next;
	char	log[SIM_LOG_LINES][160];

	u64	args[SIM_BATCH * SIM_TOKENS / 2 + 4096];
	u64	results[4096];
	u32	tok[SIM_CLIENTS][SIM_SEQS][SIM_TOKENS];
	u64	hash[SIM_CLIENTS][SIM_SEQS][SIM_TOKENS];
};

/* The members before this one are cleared for a new seed. */
#define SIM_CLEAR_END	offsetof(struct sim, args)

/* ---- main.c: failing, logging ---- */
void sim_fail(struct sim *w, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), noreturn));
void sim_log(struct sim *w, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
#define LOG(w, ...)							\
do {									\
	if ((w)->logging)						\
		sim_log(w, __VA_ARGS__);				\
} while (0)
/* The core broke its own law or the world's. */
#define LAW(w, cond, ...)						\
do {									\
	if (__builtin_expect(!(cond), 0))				\
		sim_fail(w, __VA_ARGS__);				\
} while (0)

static inline void sim_trace(struct sim *w, u64 what)
{
	w->trace = mix2(w->trace, what);
}

static inline u32 pick(struct rng *r, const u32 *from, u32 nr)
{
	return from[rng_below(r, nr)];
}

#define PICK(r, ...)							\
	pick(r, (const u32[]){ __VA_ARGS__ },				\
	     sizeof((const u32[]){ __VA_ARGS__ }) / sizeof(u32))

/* ---- plan.c: draws of a seed ---- */
void plan_draw(struct sim *w);
void plan_quota(const struct sim *w, u32 tenant, struct core_quota *quota);

/* ---- world.c: the life of a seed ---- */
void world_run(struct sim *w);
void world_event_done(struct sim *w);
void client_act_ack(struct sim *w, struct sim_client *cl, u32 most);
void client_act_detach(struct sim *w, struct sim_client *cl);

/* ---- drain.c: the end of a seed, laws 6 and 7 ---- */
void world_drain(struct sim *w);

/* ---- shell.c: the core's other side ---- */
extern const struct core_ops sim_ops;
int shell_attach(struct sim *w, u32 dom);
int shell_attach_alone(struct sim *w, u32 dom);
struct sim_client *shell_member(struct sim *w, const struct sim_client *cl, u32 shard);
int shell_submit(struct sim *w, struct sim_client *cl, u16 op, u32 nr,
		 u64 step, u32 len);
int shell_send(struct sim *w, struct sim_client *cl, struct kvmm_sqe *sqe,
	       u32 len);
void shell_dead(struct sim *w, struct sim_client *cl);
void shell_quiet(struct sim *w, struct sim_client *cl);
void shell_tick(struct sim *w, u64 ns);
void shell_extent_cut(struct sim *w);
void shell_extent_done(struct sim *w, bool may_fail);

/* ---- device.c: the device fails ---- */
void device_cut(struct sim *w);
void device_lost(struct sim *w);

/* ---- record.c: the core's own trace, which decides nothing ---- */
void record_start(struct sim *w);
void record_check(struct sim *w);

/* names.c */
void names_start(struct sim *w);
void names_event(struct sim *w);
void names_check(struct sim *w);

/* ---- crash.c: the daemon ends, and another one adopts the arena ---- */
void crash_draw(struct sim *w);
void op_crash(void *arg, u32 point);
void crash_event(struct sim *w, void (*event)(struct sim *w));
bool crash_back(struct sim *w);
void crash_all_back(struct sim *w);
void crash_between(struct sim *w);
void client_segments(struct sim *w, struct sim_client *cl);

/* ---- revoke.c: memory that is asked back ---- */
bool client_act_unmap(struct sim *w, struct sim_client *cl);
void revoke_check_send(struct sim *w, const struct sim_client *to, u32 extent,
		       u32 generation);
void revoke_check_kill(struct sim *w, const struct sim_client *cl);
void ghost_ends(struct sim *w, u32 tenant);
bool ghosts_end(struct sim *w);
bool ghost_dies(struct sim *w);
void op_kill_ghosts(void *arg, u32 tenant);

/* ---- memory.c: cells ---- */
void mem_garbage(struct sim *w, u32 extent);
void mem_put(struct sim *w, const struct sim_client *cl, u64 *cell, u64 value);
bool mem_has(struct sim *w, const struct sim_client *cl, const u64 *cell, u64 value);
void mem_copy(struct sim *w, const struct sim_client *cl, u64 *to, const u64 *from,
	      u32 nr);
u64 *mem_block(struct sim *w, const struct sim_client *cl, u32 entry,
	       const char *why);

/* ---- tier.c: copies and I/O ---- */
void tier_alloc(struct sim *w);
void op_copy(void *arg, const struct core_copy *cp);
void op_io(void *arg, const struct core_io *io);
bool tier_act_answer(struct sim *w);
void tier_answer_all(struct sim *w);
bool tier_names_extent(const struct sim *w, u32 extent);
void tier_swapd_dies(struct sim *w);
void tier_forget_all(struct sim *w);
void tier_cut(struct sim *w);
void tier_cut_writes(struct sim *w);

/* ---- pressure.c: stalls, measured from outside ---- */
void pressure_start(struct sim *w);
void pressure_account(struct sim *w);
void laws_pressure(struct sim *w);

/* ---- limit.c: promises to domains ---- */
void limit_draw(struct sim *w, struct kvmm_attach_req *req);
void limit_act(struct sim *w);
void limit_lift_all(struct sim *w);
void laws_limits(struct sim *w);

/* ---- operator.c: events that come from neither clients nor devices ---- */
void operator_act(struct sim *w);
void operator_shutdown(struct sim *w);

/* ---- area.c: files that are swap areas at times ---- */
void areas_start(struct sim *w);
void area_act(struct sim *w);
void area_try_off(struct sim *w, struct sim_file *f);
void laws_tiers(struct sim *w);
void laws_tiers_final(struct sim *w);

/* ---- seq.c: sequences and their tokens ---- */
struct sim_seq *seq_begin_leased(struct sim *w, struct sim_client *cl, u64 handle,
				 const struct kvmm_open_arg *a,
				 const struct sim_lease *l);
u64 seq_tokens_most(const struct sim *w, const struct sim_client *cl);
void seq_fork_tokens(const struct sim_seq *from, struct sim_seq *q);
void seq_act_open(struct sim *w, struct sim_client *cl);
u32 seq_cover(const struct sim_client *cl, const struct sim_seq *q);
u32 seq_entry_now(struct sim *w, struct sim_client *cl, struct sim_seq *q,
		  u32 g, u32 pos);
u32 seq_blocks(const struct sim *w, const struct sim_client *cl, const struct sim_seq *q,
	       u32 g, u32 tokens);
void seq_verify(struct sim *w, struct sim_client *cl, struct sim_seq *q,
		u32 upto, const char *why);
void seq_refresh_group(struct sim *w, struct sim_client *cl, struct sim_seq *q,
		       u32 g, u32 from, u32 nr);
void seq_refresh(struct sim *w, struct sim_client *cl, struct sim_seq *q, u32 tokens);
void seq_cut(struct sim *w, struct sim_client *cl, struct sim_seq *q, u32 tokens);
void seq_compare(struct sim *w, struct sim_client *cl, struct sim_seq *q,
		 u32 from, u32 upto);

/* ---- groups.c: layer groups of domains ---- */
u32 groups_of(const struct sim *w, const struct sim_client *cl);
u32 group_tokens(const struct sim *w, const struct sim_client *cl, u32 g);
u32 group_width(const struct sim *w, const struct sim_client *cl, u32 g);
bool group_is_state(const struct sim *w, const struct sim_client *cl, u32 g);
bool groups_have_state(const struct sim *w, const struct sim_client *cl);
u32 group_at(const struct sim *w, const struct sim_client *cl, const struct sim_seq *q,
	     u32 g, u32 pos);
u32 group_part(u32 g, u32 part);
void groups_verify_state(struct sim *w, struct sim_client *cl, const struct sim_seq *q,
			 u32 g, u32 upto, const char *why);
void groups_grant_state(struct sim *w, struct sim_client *cl, struct sim_seq *q, u32 g,
			const struct kvmm_begin_arg *a, const struct kvmm_begin_res *res);
void groups_settle(const struct sim *w, struct sim_client *cl, struct sim_seq *q);
u32 groups_least(const struct sim *w, const struct sim_client *cl);
u32 groups_unit(const struct sim *w, const struct sim_client *cl);
u64 group_value(u64 hash, u32 g);
u32 group_low(const struct sim *w, const struct sim_client *cl, u32 g, u32 at);
u32 groups_step(const struct sim *w, const struct sim_client *cl);
u64 groups_most(const struct sim *w, const struct sim_client *cl, u64 tokens);
u64 groups_pages(const struct sim *w, const struct sim_client *cl, u64 tokens);
bool groups_reserve(const struct sim *w, const struct sim_client *cl, u32 tokens);
bool groups_reach(const struct sim *w, const struct sim_client *cl,
		  const struct sim_seq *q, u32 len);
void groups_trim(struct sim_client *cl, struct sim_seq *q);
void groups_draw(struct sim *w, u32 dom);

const struct kvmm_seq_status *seq_look(struct sim *w, struct sim_client *cl,
				       struct sim_seq *q);
struct sim_seq *seq_random(struct sim *w, struct sim_client *cl);
void seq_gone(struct sim *w, struct sim_client *cl, struct sim_seq *q);
void seq_lost(struct sim_seq *q);

/* ---- verbs.c: requests for sequences ---- */
bool seq_act_match(struct sim *w, struct sim_client *cl, bool all);
bool seq_act_match_whole(struct sim *w, struct sim_client *cl, struct sim_seq *q);
bool seq_act_fork(struct sim *w, struct sim_client *cl);
bool seq_act_close(struct sim *w, struct sim_client *cl, bool only_done);
bool seq_act_setprio(struct sim *w, struct sim_client *cl);
bool seq_act_advise(struct sim *w, struct sim_client *cl, bool back);

/* ---- lookup.c: LOOKUP ---- */
bool lookup_act(struct sim *w, struct sim_client *cl);
void lookup_area(struct sim *w, struct sim_client *cl);

/* ---- lease.c: leases ---- */
bool lease_act(struct sim *w, struct sim_client *cl);
bool lease_idle(struct sim *w, struct sim_client *cl);
u64 lease_wrong(struct sim *w, const struct sim_client *cl);
bool lease_begins(const struct sim *w, const struct sim_client *cl, u32 slot);
void lease_tick(struct sim *w);
void lease_laws(struct sim *w);
void lease_forget(struct sim *w, struct sim_client *cl);

/* ---- share.c: REMAP, TRUNCATE, TRIM ---- */
bool share_act(struct sim *w, struct sim_client *cl);

/* ---- step.c: steps and the device ---- */
bool step_act_begin(struct sim *w, struct sim_client *cl, bool all);
bool step_act_run(struct sim *w, struct sim_client *cl);
bool step_act_end(struct sim *w, struct sim_client *cl);
void step_dead_writes(struct sim *w, struct sim_client *cl);
bool step_is_oldest(struct sim_client *cl, u64 number);
void step_rank_writes(struct sim *w, struct sim_client *leader, u64 since);
void step_end_done(struct sim *w, struct sim_client *cl, u32 nr);
void step_all_void(struct sim_client *cl);

/* ---- bad.c: requests that must be refused and change nothing ---- */
void bad_act(struct sim *w, struct sim_client *cl);

/* ---- laws.c ---- */
void laws_after_event(struct sim *w);
void laws_final(struct sim *w);
bool laws_promise_kept(struct sim *w);
void laws_event_posted(struct sim *w, struct sim_client *cl);
void laws_check_kill(struct sim *w, struct sim_client *cl, int reason);
u64 laws_digest(struct sim *w);
u64 laws_settled_digest(struct sim *w, struct sim_client *cl);

/* ---- wake.c ---- */
void laws_no_forgotten_wait(struct sim *w);

/* ---- cover.c: how often each thing happened, over all seeds ---- */
void cover_request(u16 op, int status);
void cover_entry(u16 op, int status);
void cover_counts(const u64 *counts);
void cover_note(const char *what);
void cover_crash(u32 point);
/* resize.c */
void resize_act(struct sim *w);
bool resize_goes_on(const struct sim *w);
void resize_restore(struct sim *w);
void resize_to_least(struct sim *w);
void resize_check_done(struct sim *w);

void move_act(struct sim *w);
void cover_move(const struct sim *w, u64 id, int status);
void cover_pressure(u32 res, u32 kind, u64 core, u64 truth);
void cover_switch(bool on);
size_t cover_bytes(void);
void cover_save(void *to);
void cover_add(const void *from);
u32 cover_report(bool judge);

#endif /* SIM_H */
