// SPDX-License-Identifier: Apache-2.0
/*
 * handover_player.c - client of one tenant that distrusts all others
 *
 * Before it writes to granted memory, and on command, it searches every mapped
 * byte of kvmm's (/proc/self/maps) for a word of the other tenant: extents
 * whole, with the ends of spans and blocks of other sequences; rings, results,
 * status records and tables.  It writes its words into every token of its
 * blocks, but not into the positions of a tail that it has not reached, so that
 * bytes found there after a page-in come from the daemon.
 *
 * Its ids, salts, cookies of requests and the name of its domain are marks too.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <libkvmm.h>

#include "tests/integration/handover.h"
#include "tests/other_user.h"

#define READY_MS	20000u
#define BACK_MS		100u
#define MAPS_BYTES	(256u << 10)

static struct kvmm *kv;

/* For a child: it prints a failed condition and exits with 1. */
#define MUST(cond)							\
do {									\
	if (!(cond)) {							\
		fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__,	\
			#cond, kv ? kvmm_strerror_attach(kv) : "");	\
		_exit(1);						\
	}								\
} while (0)

struct held {
	u64	seq;		/* 0: none */
	u32	serial;
};

static const struct ho_player *me;
static struct held held[HO_SEQS];
static u32 serials;
static u64 steps;
static char sock_path[64];

static struct ho_slot *slot(void)
{
	return &me->sh->slot[me->tenant];
}

/* ---- look ---- */

static __attribute__((noreturn)) void found(const char *map, u64 off)
{
	fprintf(stderr, "tenant %u has bytes of the other: %s at %llu\n",
		me->tenant, map, (unsigned long long)off);
	_exit(2);
}

/* Count an extent that is new to this player, if the other one had it before. */
static void extent_seen(const char *name)
{
	struct ho_shared *sh = me->sh;
	u32 e, gen;

	MUST(sscanf(name, "%*x-%u.%u", &e, &gen) == 2 && e < HO_EXTENTS);
	if (sh->owner[e] == me->tenant + 1)
		return;
	if (sh->owner[e]) {
		/* It was made anew: not the memory that the other player had. */
		MUST(gen > sh->generation[e]);
		sh->count[HO_extent]++;
	}
	sh->owner[e] = me->tenant + 1;
	sh->generation[e] = gen;
}

static void map_look(const char *p, size_t len, const char *name)
{
	const u32 other = !me->tenant;
	size_t at = ho_find(other, p, len);
	char word[32];

	if (at < len)
		found(name, at);
	me->sh->looked += len;
	if (!strncmp(name, "kvmm-extent-", 12)) {
		extent_seen(name + 12);
		return;
	}
	ho_name(other, word, sizeof(word));
	if (memmem(p, len, word, strlen(word)))
		found(name, 0);
}

/* Search every byte of the daemon's that this process can read. */
static void look(void)
{
	static char text[MAPS_BYTES];
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), len = 0, n;
	unsigned long from, to;
	char *line, *save = NULL, *name, can;

	MUST(fd >= 0);
	while ((n = (int)read(fd, text + len, sizeof(text) - 1 - (u32)len)) > 0)
		len += n;
	close(fd);
	MUST(len < (int)sizeof(text) - 1);
	text[len] = '\0';
	for (line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		name = strstr(line, "/memfd:kvmm-");
		if (!name || sscanf(line, "%lx-%lx %c", &from, &to, &can) != 3 ||
		    can != 'r')
			continue;
		map_look((const char *)from, to - from, name + 7);
	}
}

/* ---- write, and read back ---- */

static u64 content(u32 serial, u32 token, u32 word)
{
	return ho_word(me->tenant, serial * 2654435761u + token * 977 + word);
}

/* Address of a token's K in its block, or of its V, which follows. */
static u64 *token_at(char *block, u32 token, bool v)
{
	u32 half = ho_half(me->tenant);

	return (u64 *)(block + (v ? HO_TOKENS * half : 0) +
		       token % HO_TOKENS * half);
}

/* Write, or compare, all tokens of a sequence. */
static void tokens(const struct held *h, u32 len, bool write)
{
	u32 nr = ho_half(me->tenant) / 8, t, w, entry[HO_BLOCKS];
	u64 *k, *v;
	char *p;

	MUST(!kvmm_seq_table(kv, h->seq, 0, 0, DIV_ROUND_UP(len, HO_TOKENS),
			     entry));
	for (t = 0; t < len; t++) {
		p = (char *)kvmm_pool(kv) +
		    (u64)entry[t / HO_TOKENS] * kvmm_info(kv)->unit;
		k = token_at(p, t, false);
		v = token_at(p, t, true);
		for (w = 0; w < nr; w++) {
			if (write) {
				k[w] = content(h->serial, t, w);
				v[w] = content(h->serial, t, w + nr);
				continue;
			}
			MUST(k[w] == content(h->serial, t, w));
			MUST(v[w] == content(h->serial, t, w + nr));
		}
	}
}

/* ---- sequences ---- */

static const u32 *prompt(u32 serial)
{
	static u32 ids[HO_LEN];
	u32 i;

	for (i = 0; i < HO_LEN; i++)
		ids[i] = (u32)ho_word(me->tenant, 1 + i % 200);
	/* No two prompts begin alike. */
	for (i = 0; i < 4; i++)
		ids[i] = (u32)ho_word(me->tenant, serial >> (8 * i));
	return ids;
}

static struct held *seq_new(void)
{
	struct kvmm_open_arg arg = {
		.prompt_len = HO_LEN,
		.max_tokens = 1,
		.salt = ho_word(me->tenant, 0x5a17),
		/* A few leave cache behind, most do not. */
		.flags = serials % 8 ? KVMM_OPEN_NO_INDEX : 0,
	};
	u64 end = now_ms() + READY_MS * time_scale();
	struct kvmm_open_res res = { 0 };
	struct held *h = held;
	int err;

	while (h->seq)
		h++;
	MUST(h < held + HO_SEQS);
	/* The rings have no room, or closed sequences still hold their slots. */
	while ((err = kvmm_seq_open(kv, &arg, 1, &res)) == -EBUSY ||
	       (!err && res.status == -ENOSPC)) {
		MUST(kvmm_wait(kv, 1000000) != -ECONNRESET);
		MUST(now_ms() < end);
	}
	if (err || res.status)
		fprintf(stderr, "tenant %u: SEQ_OPEN: %d, %d\n", me->tenant,
			err, res.status);
	MUST(!err && !res.status);
	h->seq = res.seq;
	h->serial = ++serials;
	MUST(!kvmm_seq_match(kv, h->seq, prompt(h->serial), HO_LEN));
	return h;
}

static bool seq_is(const struct held *h, u32 state, struct kvmm_seq_status *st)
{
	return h->seq && !kvmm_seq_status(kv, h->seq, st) && st->state == state;
}

static void await_ready(const struct held *h, struct kvmm_seq_status *st)
{
	u64 end = now_ms() + READY_MS * time_scale();

	while (!seq_is(h, KVMM_SEQ_READY, st)) {
		/* It lost its memory before it had any content. */
		if (st->state == KVMM_SEQ_RECOMPUTE)
			(void)!kvmm_seq_match(kv, h->seq, prompt(h->serial),
					      HO_LEN);
		MUST(kvmm_wait(kv, 1000000) != -ECONNRESET);
		if (now_ms() < end)
			continue;
		fprintf(stderr, "tenant %u waits: state %u, reason %d, pool %u\n",
			me->tenant, st->state, st->reason, st->limiting_pool);
		_exit(1);
	}
}

static void count_held(void)
{
	struct kvmm_seq_status st;
	u32 i, ready = 0, out = 0;

	for (i = 0; i < HO_SEQS; i++) {
		if (!held[i].seq)
			continue;
		MUST(!kvmm_seq_status(kv, held[i].seq, &st));
		ready += st.state == KVMM_SEQ_READY;
		out += st.state != KVMM_SEQ_READY;
	}
	WRITE_ONCE(slot()->nr_ready, ready);
	WRITE_ONCE(slot()->nr_out, out);
}

/* Begin one step with all of them.  Return: granted sequences. */
static u32 step_begin(struct held **h, u32 nr, u32 start, bool *granted)
{
	struct kvmm_begin_arg arg[HO_SEQS] = { 0 };
	struct kvmm_begin_res res[HO_SEQS];
	struct kvmm_seq_status st;
	u32 i, got = 0;

	for (i = 0; i < nr; i++) {
		MUST(!kvmm_seq_status(kv, h[i]->seq, &st));
		arg[i].seq = h[i]->seq;
		arg[i].seq_epoch = st.seq_epoch;
		arg[i].start = start;
		arg[i].max_tokens = start ? 1 : HO_LEN;
	}
	MUST(!kvmm_step_begin(kv, ++steps, arg, nr, res));
	for (i = 0; i < nr; i++) {
		granted[i] = !res[i].status;
		got += granted[i];
	}
	return got;
}

static void step_end(struct held **h, u32 nr, const bool *granted, bool progress)
{
	struct kvmm_end_arg arg[HO_SEQS] = { 0 };
	struct kvmm_end_res res[HO_SEQS];
	static u32 ids[HO_SEQS * HO_LEN];
	u32 i, n = 0;

	for (i = 0; i < nr && progress; i++) {
		if (!granted[i])
			continue;
		arg[n].seq = h[i]->seq;
		arg[n].valid_len = HO_LEN;
		arg[n].nr_ids = HO_LEN;
		memcpy(ids + n * HO_LEN, prompt(h[i]->serial), 4 * HO_LEN);
		n++;
	}
	MUST(!kvmm_step_end(kv, steps, 1000, n * HO_LEN, arg, n, ids, res));
	for (i = 0; i < n; i++)
		MUST(!res[i].status);
}

/* ---- commands of the driver ---- */

static void do_fill(u32 nr, bool end)
{
	struct kvmm_seq_status st = { 0 };
	struct held *h[HO_SEQS];
	bool granted[HO_SEQS];
	u32 i;

	for (i = 0; i < nr; i++)
		h[i] = seq_new();
	/* One granted sequence is enough: the others may have lost their memory. */
	for (;;) {
		for (i = 0; i < nr; i++)
			await_ready(h[i], &st);
		if (step_begin(h, nr, 0, granted))
			break;
		step_end(h, nr, granted, false);
	}
	/* The blocks are pinned, and not written yet. */
	look();
	for (i = 0; i < nr; i++)
		if (granted[i])
			tokens(h[i], HO_LEN, true);
	if (end)
		step_end(h, nr, granted, true);
}

static void do_close(void)
{
	u64 seqs[HO_SEQS];
	u32 i, nr = 0;

	for (i = 0; i < HO_SEQS; i++)
		if (held[i].seq)
			seqs[nr++] = held[i].seq;
	if (nr)
		MUST(!kvmm_seq_close(kv, seqs, nr));
	memset(held, 0, sizeof(held));
}

/* Pin and compare the sequences in the device pool; leave them unchanged. */
static void do_verify(void)
{
	struct kvmm_seq_status st;
	struct held *h[HO_SEQS];
	bool granted[HO_SEQS];
	u32 i, nr = 0;

	for (i = 0; i < HO_SEQS; i++)
		if (seq_is(&held[i], KVMM_SEQ_READY, &st) &&
		    st.valid_len == HO_LEN)
			h[nr++] = &held[i];
	if (!nr)
		return;
	(void)step_begin(h, nr, HO_LEN, granted);
	look();
	for (i = 0; i < nr; i++) {
		if (!granted[i])
			continue;
		tokens(h[i], HO_LEN, false);
		me->sh->verified[me->tenant] += HO_LEN * 2ull * ho_half(me->tenant);
	}
	step_end(h, nr, granted, false);
}

/* Advise up to @nr sequences; no tier may have room for all of them. */
static void advise(u32 nr, u32 advice)
{
	const struct kvmm_advise_arg none = { .advice = advice };
	struct kvmm_seq_status st;
	struct kvmm_advise_arg *a;
	struct kvmm_done done;
	void *args;
	u32 i;

	for (i = 0; i < HO_SEQS && nr; i++) {
		if (!seq_is(&held[i], advice == KVMM_ADV_PAGEOUT ?
			    KVMM_SEQ_READY : KVMM_SEQ_SWAPPED, &st))
			continue;
		MUST(kvmm_prep(kv, KVMM_OP_SEQ_ADVISE, 1, sizeof(*a), &args));
		a = args;
		*a = none;
		a->seq = held[i].seq;
		MUST(!kvmm_submit(kv));
		while (kvmm_reap(kv, &done) != 1)
			MUST(kvmm_wait(kv, 1000000) != -ECONNRESET);
		kvmm_release(kv);
		nr--;
	}
}

static void do_back(void)
{
	u64 end = now_ms() + BACK_MS;
	u32 i, out;

	advise(HO_SEQS, KVMM_ADV_WILLNEED);
	do {
		struct kvmm_seq_status st;

		MUST(kvmm_wait(kv, 1000000) != -ECONNRESET);
		for (i = 0, out = 0; i < HO_SEQS; i++)
			out += seq_is(&held[i], KVMM_SEQ_SWAPPED, &st) ||
			       seq_is(&held[i], KVMM_SEQ_RESTORING, &st);
	} while (out && now_ms() < end);
}

static void attach(u32 model)
{
	char name[32], text[256];
	u64 identity[KVMM_IDENTITY_LEN / 8];
	const struct kvmm_params p = {
		.socket = sock_path, .domain = name,
		.identity = (const u8 *)identity, .block_tokens = HO_TOKENS,
		.group[0] = { .layers = 1, .kv_heads = 1,
			   .k_bytes = ho_half(me->tenant),
			   .v_bytes = ho_half(me->tenant) },
		.min_bytes = HO_EXTENTS / 2 * HO_EXTENT,
		.max_bytes = KVMM_LIMIT_MAX, .swap_max_bytes = KVMM_LIMIT_MAX,
		/* A closed sequence keeps its slot until its copies have ended. */
		.max_seqs = 3 * HO_SEQS, .attach_timeout_ms = 20000,
	};
	u64 end = now_ms() + READY_MS * time_scale();
	struct ho_shared *sh = me->sh;
	u32 i;
	int err;

	for (i = 0; i < ARRAY_SIZE(identity); i++)
		identity[i] = ho_word(me->tenant, model << 8 | i);
	ho_name(me->tenant, name, sizeof(name));
	/* Attaching as another model waits for copies of the last one's blocks. */
	while ((err = kvmm_attach(&p, &kv, text)) == -EEXIST && now_ms() < end)
		nap_ms(2);
	if (err) {
		fprintf(stderr, "tenant %u: attach: %s\n", me->tenant, text);
		_exit(1);
	}
	i = kvmm_info(kv)->client;
	MUST(i < HO_CLIENTS && kvmm_info(kv)->nr_extents == HO_EXTENTS);
	/* Two segments: its rings, and the one that the daemon writes. */
	sh->count[HO_segment] += sh->client[i] &&
				 sh->client[i] != me->tenant + 1 ? 2 : 0;
	sh->client[i] = me->tenant + 1;
	steps = 0;
	look();
}

static void do_renew(u32 model)
{
	do_close();
	kvmm_detach(kv);
	attach(model);
}

static void obey(enum ho_cmd cmd, u32 arg)
{
	switch (cmd) {
	case HO_FILL:
	case HO_OPEN_STEP:
		do_fill(arg, cmd == HO_FILL);
		break;
	case HO_CLOSE:
		do_close();
		break;
	case HO_VERIFY:
		do_verify();
		break;
	case HO_OUT:
		advise(arg, KVMM_ADV_PAGEOUT);
		break;
	case HO_BACK:
		do_back();
		break;
	case HO_RENEW:
		do_renew(arg);
		break;
	case HO_QUIT:
		kvmm_detach(kv);
		_exit(0);
	default:
		look();
	}
	count_held();
}

void ho_play(const struct ho_player *p)
{
	char path[RIG_PATH + 32];
	enum ho_cmd cmd;

	me = p;
	snprintf(path, sizeof(path), "%s/attach.sock", p->rig->dir);
	MUST(other_user(p->uid, path, sock_path, sizeof(sock_path)));
	attach(p->model);
	count_held();
	for (;;) {
		/* Pairs with the release in the driver. */
		cmd = load_acquire(&slot()->cmd);
		if (cmd != HO_NONE) {
			obey(cmd, slot()->arg);
			store_release(&slot()->cmd, (u32)HO_NONE);
			continue;
		}
		count_held();
		MUST(kvmm_wait(kv, 300000) != -ECONNRESET);
	}
}
