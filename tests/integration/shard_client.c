// SPDX-License-Identifier: Apache-2.0
/*
 * shard_client.c - a client with a part of each block in each of two device pools
 *
 * The words of a part follow from the token, the part and the place.  The client compares
 * all words of a sequence before and after each step.  It runs in a test or in a process
 * of its own, which ends with one line where a test would fail.  The second part may be
 * that of a rank, which gets its orders by a socket.
 */
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/integration/shard_client.h"

#define TOKENS		16u
#define TOKEN_BYTES	512u	/* of each part */
#define PROMPT		TOKENS
#define GROW		20u	/* tokens of a step */
#define NR_PRESSURE	16u	/* sequences: a half more than the smaller pool holds */
#define NS_TOKEN	1000000ull	/* so that a copy costs less than computing again */
#define WAIT_MS		30000u

struct rig shard_rig;
struct kvmm *shard_kv;
bool shard_child;
u32 shard_mine, shard_leader;
int shard_rank_sock;
static u64 step;

#define MUST(cond)							\
do {									\
	if (!(cond))							\
		shard_give_up("%s:%d: %s", __FILE__, __LINE__, #cond);	\
} while (0)

void shard_give_up(const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!shard_child)
		ck_abort_msg("%s", text);
	fprintf(stderr, "%s\n", text);
	fflush(stderr);
	_exit(1);
}

int shard_attach(u32 pool, u32 shards, struct kvmm **to, char *text)
{
	static u8 identity[KVMM_IDENTITY_LEN] = "it_shards";
	char path[RIG_PATH + 32];
	const struct kvmm_params p = {
		.socket = path, .domain = "parts", .identity = identity,
		.block_tokens = TOKENS, .max_bytes = KVMM_LIMIT_MAX,
		.pool = pool, .nr_shards = shards, .shard = shard_mine,
		.leader = shard_leader,
		.group[0] = { .layers = 2, .kv_heads = 1, .k_bytes = TOKEN_BYTES / 4,
			   .v_bytes = TOKEN_BYTES / 4 },
		.attach_timeout_ms = 20000,
	};

	snprintf(path, sizeof(path), "%s/attach.sock", shard_rig.dir);
	return kvmm_attach(&p, to, text);
}

void shard_attach_both(void)
{
	char text[256];

	if (shard_attach(0, SHARD_PARTS, &shard_kv, text))
		shard_give_up("%s", text);
	MUST(kvmm_info(shard_kv)->nr_shards == SHARD_PARTS);
	MUST(kvmm_info(shard_kv)->pool == 0);
	MUST(kvmm_info(shard_kv)->shard_off[1] == 1u << 20);
	MUST(kvmm_info(shard_kv)->block_bytes == TOKENS * TOKEN_BYTES);
	MUST(!kvmm_block(shard_kv, 0, SHARD_PARTS) && !kvmm_block(shard_kv, KVMM_NO_INDEX, 0));
}

/* Write, or compare, the words of token @t in part @shard of its block. */
static void words_of(const struct shard_seq *it, u32 t, u32 entry, u32 shard, bool write)
{
	u64 *p = kvmm_block(shard_kv, entry, shard), word;
	u32 n;

	MUST(p);
	p += t % TOKENS * (TOKEN_BYTES / 8);
	for (n = 0; n < TOKEN_BYTES / 8; n++) {
		word = ((u64)(it->seed + t) << 16 | shard << 8 | n) * 0x9e3779b97f4a7c15ull;
		if (write)
			p[n] = word;
		else if (p[n] != word)
			shard_give_up("sequence %u, token %u, part %u, word %u is wrong",
				      it->seed, t, shard, n);
	}
}

/* ---- the second part, by a rank ---- */

/**
 * struct far - an order to the rank
 * @it:     the sequence
 * @from, @to: tokens; equal: copy @tokens from @entry[0] to @entry[1]; @from is larger: the
 *          end
 * @entry:  of the leader's table
 * @write:  else compare
 */
struct far {
	struct shard_seq it;
	u32	from;
	u32	to;
	u32	entry[SHARD_BLOCKS];
	u32	tokens;
	u32	write;
};

static void far_order(const struct far *f)
{
	char done;

	if (send(shard_rank_sock, f, sizeof(*f), MSG_NOSIGNAL) == sizeof(*f) &&
	    read(shard_rank_sock, &done, 1) == 1)
		return;
	nap_ms(WAIT_MS);	/* kvmm kills this process meanwhile */
	shard_give_up("the rank has ended");
}

static void part_words(const struct far *f, u32 shard)
{
	u32 t;

	for (t = f->from; t < f->to; t++)
		words_of(&f->it, t, f->entry[t / TOKENS], shard, f->write);
	if (f->from == f->to)
		memcpy(kvmm_block(shard_kv, f->entry[1], shard),
		       kvmm_block(shard_kv, f->entry[0], shard), f->tokens * TOKEN_BYTES);
}

void shard_serve(int sock)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	struct far f;

	for (;;) {
		/* Extents are mapped meanwhile. */
		if (!poll(&p, 1, 0)) {
			if (kvmm_wait(shard_kv, 1000000) == -ECONNRESET)
				shard_give_up("%s", kvmm_strerror_attach(shard_kv));
			continue;
		}
		if (read(sock, &f, sizeof(f)) != sizeof(f))
			break;
		if (f.from > f.to)
			return;
		part_words(&f, shard_mine - 1);
		if (send(sock, "", 1, MSG_NOSIGNAL) != 1)
			break;
	}
	nap_ms(WAIT_MS);	/* as in far_order() */
	shard_give_up("the leader has ended");
}

void shard_dismiss(void)
{
	const struct far f = { .from = 1 };

	MUST(send(shard_rank_sock, &f, sizeof(f), MSG_NOSIGNAL) == sizeof(f));
}

/* Do the work of @f in each part, here or by the rank. */
static void both_parts(const struct far *f)
{
	part_words(f, 0);
	if (shard_rank_sock)
		far_order(f);
	else
		part_words(f, 1);
}

void shard_words(const struct shard_seq *it, u32 from, u32 to, bool write)
{
	struct far f = { .it = *it, .from = from, .to = to, .write = write };

	MUST(!kvmm_seq_table(shard_kv, it->seq, 0, 0, DIV_ROUND_UP(to, TOKENS), f.entry));
	if (from < to)
		both_parts(&f);
}

static const u32 *ids_of(const struct shard_seq *it)
{
	static u32 ids[SHARD_LEN];
	u32 i;

	for (i = 0; i < SHARD_LEN; i++)
		ids[i] = it->seed + i;
	return ids;
}

/* Match the first @nr ids; a sequence that failed since says why in its record. */
static int seq_match(const struct shard_seq *it, u32 nr)
{
	int err = kvmm_seq_match(shard_kv, it->seq, ids_of(it), nr);

	return err == -ESTALE ? 0 : err;
}

struct shard_seq shard_open(u32 number, u32 flags)
{
	const struct kvmm_open_arg open = {
		.prompt_len = PROMPT, .max_tokens = SHARD_LEN - PROMPT,
		.flags = KVMM_OPEN_WHOLE_BLOCKS | flags,
	};
	struct shard_seq it = { .seed = 1000 * (number + 1) };
	struct kvmm_open_res res;
	int err = kvmm_seq_open(shard_kv, &open, 1, &res);

	if (!err)
		err = res.status;
	it.seq = res.seq;
	if (!err)
		err = seq_match(&it, PROMPT);
	if (err)
		shard_give_up("a sequence is refused: %s", strerror(-err));
	return it;
}

void shard_close(struct shard_seq *it)
{
	MUST(!kvmm_seq_close(shard_kv, &it->seq, 1));
	it->seq = 0;
}

void shard_sleep(void)
{
	if (kvmm_wait(shard_kv, 2000000) == -ECONNRESET)
		shard_give_up("%s", kvmm_strerror_attach(shard_kv));
}

/* The state; a sequence that is to be matched again is matched, one that failed ends all. */
static u32 seq_state(const struct shard_seq *it, struct kvmm_seq_status *st)
{
	MUST(!kvmm_seq_status(shard_kv, it->seq, st));
	if (st->state == KVMM_SEQ_FAILED)
		shard_give_up("a sequence failed: %s", strerror(-st->reason));
	if (st->state == KVMM_SEQ_RECOMPUTE)
		MUST(!seq_match(it, max(it->len, PROMPT)));
	return st->state;
}

void shard_await(const struct shard_seq *it, u32 state)
{
	const u64 end = now_ms() + WAIT_MS * time_scale();
	struct kvmm_seq_status st;

	while (seq_state(it, &st) != state) {
		if (now_ms() >= end)
			shard_give_up("a sequence is %u, not %u", st.state, state);
		shard_sleep();
	}
}

/* Make the copy that a grant asks for, in each part. */
static void run_copy(const struct kvmm_begin_res *res)
{
	const struct far f = { .entry = { res->copy_from, res->copy_to },
			       .tokens = res->copy_tokens };

	if (res->copy_tokens)
		both_parts(&f);
}

/* Compare what a READY sequence has, and let it grow.  Return: did it? */
static bool shard_grow(struct shard_seq *it)
{
	struct kvmm_end_arg end = { .seq = it->seq };
	struct kvmm_begin_arg begin = { .seq = it->seq };
	struct kvmm_seq_status st;
	struct kvmm_begin_res res;
	struct kvmm_end_res ended;

	if (seq_state(it, &st) != KVMM_SEQ_READY)
		return false;
	begin.seq_epoch = st.seq_epoch;
	begin.start = st.valid_len;
	end.valid_len = min(max(it->len, st.valid_len) + GROW, SHARD_LEN);
	end.nr_ids = begin.max_tokens = end.valid_len - st.valid_len;
	MUST(!kvmm_step_begin(shard_kv, ++step, &begin, 1, &res));
	if (res.status) {
		MUST(res.status == -EAGAIN || res.status == -ESTALE || res.status == -ENODEV);
		MUST(!kvmm_step_end(shard_kv, step, 0, 0, NULL, 0, NULL, NULL));
		return false;
	}
	run_copy(&res);
	shard_words(it, 0, st.valid_len, false);
	shard_words(it, st.valid_len, end.valid_len, true);
	shard_words(it, 0, end.valid_len, false);
	MUST(!kvmm_step_end(shard_kv, step, end.nr_ids * NS_TOKEN, end.nr_ids, &end, 1,
			    ids_of(it) + st.valid_len, &ended) && !ended.status);
	it->len = end.valid_len;
	return true;
}

void shard_fill(struct shard_seq *it)
{
	const u64 end = now_ms() + WAIT_MS * time_scale();

	while (it->len < SHARD_LEN) {
		MUST(now_ms() < end);
		if (!shard_grow(it))
			shard_sleep();
	}
}

static int advise(const struct shard_seq *it, u32 advice)
{
	const struct kvmm_advise_arg arg = { .seq = it->seq, .advice = advice };
	struct kvmm_seq_res res;
	int err = kvmm_seq_advise(shard_kv, &arg, 1, &res);

	return err ? err : res.status;
}

void shard_page_out(const struct shard_seq *it)
{
	const u64 end = now_ms() + WAIT_MS * time_scale();

	while (advise(it, KVMM_ADV_PAGEOUT)) {
		MUST(now_ms() < end);
		shard_sleep();
	}
	shard_await(it, KVMM_SEQ_SWAPPED);
}

void shard_page_in(const struct shard_seq *it)
{
	MUST(!advise(it, KVMM_ADV_WILLNEED));
	shard_await(it, KVMM_SEQ_READY);
	shard_words(it, 0, it->len, false);
}

/* Let all sequences grow, a step each in turn.  Return: all have their full length. */
static bool grow_all(struct shard_seq *it, u32 nr)
{
	bool full = true, any = false;
	u32 i;

	for (i = 0; i < nr; i++) {
		if (!it[i].seq)
			continue;
		full = false;
		any |= shard_grow(&it[i]);
		if (it[i].len == SHARD_LEN)
			shard_close(&it[i]);
	}
	if (!any)
		shard_sleep();
	return full;
}

void shard_pressure(u32 round)
{
	const u64 end = now_ms() + WAIT_MS * time_scale();
	struct shard_seq it[NR_PRESSURE];
	u32 i;

	for (i = 0; i < NR_PRESSURE; i++)
		it[i] = shard_open(round * NR_PRESSURE + i, 0);
	/* All run before one grows, so that some must lose their memory. */
	for (i = 0; i < NR_PRESSURE; i++)
		shard_await(&it[i], KVMM_SEQ_READY);
	while (!grow_all(it, NR_PRESSURE))
		if (now_ms() >= end)
			shard_give_up("the sequences do not end");
}
