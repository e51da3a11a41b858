// SPDX-License-Identifier: Apache-2.0
/*
 * keep_node.c - a daemon with small tiers, and a client that checks every word
 *
 * The client works like a runtime: SEQ_OPEN, SEQ_MATCH, wait for READY, one
 * step for all that was not found, SEQ_CLOSE.  Blocks are read and written inside
 * the step, where their places do not change.  kvmm may be killed at any moment:
 * if the next one salvaged, the prompt is looked up again.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvmm/swapd.h>

#include "tests/bench/keep.h"

#define EXTENT		65536u
#define SLOT		(KEEP_BYTES + SWAPD_HEADER_BYTES)
#define SPAN		(7u * EXTENT)	/* smallest that blocks fill: 16 of them */
#define AREA_HEAD	(1u << 20)
#define WORDS		(KEEP_BYTES / 8)
#define LIMIT_NS	60000000000ull
#define AGAIN		(~0u)		/* a salvage: look the prompt up again */
#define DOMAIN		"keep"
/*
 * A kvmm that lives shorter, or has no request, did no work.  When two in a row
 * die so, the next one starts without their memory.
 */
#define LIVES_US	300000u

_Static_assert(EXTENT % SLOT == 0, "slots fill an extent");
_Static_assert(SPAN % KEEP_BYTES == 0, "blocks fill a span");

static void must(struct keep_node *n, int err, const char *what)
{
	if (err)
		bench_die("%s: %s (%s)", what, strerror(-err),
			  n->k ? kvmm_strerror_attach(n->k) : "");
}

/* ---- the daemon's files ---- */

char *keep_vmstat(struct keep_node *n)
{
	char *text = bench_file(&n->d, "vmstat");

	if (!text)
		bench_die("there is no vmstat");
	return text;
}

bool keep_writethrough(struct keep_node *n)
{
	const char *value = getenv("WRITETHROUGH");
	char *text = bench_file(&n->d, "domain/" DOMAIN "/memory.writethrough");
	char cmd[128];

	if (!text)
		return false;
	free(text);
	snprintf(cmd, sizeof(cmd), "set domain/" DOMAIN "/memory.writethrough %s",
		 value ? value : "1");
	if (bench_kvctl(&n->d, cmd))
		bench_die("memory.writethrough cannot be set");
	return true;
}

/* ---- the daemon ---- */

static void area_add(struct keep_node *n, u32 slots)
{
	char cmd[256];

	snprintf(cmd, sizeof(cmd), "swapon '%s/area' --size %llu", n->d.dir,
		 AREA_HEAD + (unsigned long long)slots * SLOT);
	if (bench_kvctl(&n->d, cmd))
		bench_die("no area: room in %s?", n->d.dir);
}

static void attach(struct keep_node *n)
{
	static const u8 identity[KVMM_IDENTITY_LEN] = { 1, 2, 3 };
	const struct kvmm_params p = {
		.socket = n->d.socket,
		.domain = DOMAIN,
		.identity = identity,
		.block_tokens = KEEP_TOKENS,
		.group[0] = { .layers = 1, .kv_heads = KEEP_TOKEN / 256,
			   .k_bytes = 128, .v_bytes = 128 },
		.max_bytes = KVMM_LIMIT_MAX,
		.max_seqs = 8,
	};
	char text[256];

	if (kvmm_attach(&p, &n->k, text))
		bench_die("%s", text);
}

/* The sizes of the tiers: a domain cuts extents into spans, and these into blocks. */
static void look_sizes(struct keep_node *n)
{
	const struct kvmm_attach_rep *rep = kvmm_info(n->k);

	if (rep->block_bytes != KEEP_BYTES || rep->extent_size != EXTENT)
		bench_die("a block has %llu bytes, an extent %llu",
			  (unsigned long long)rep->block_bytes,
			  (unsigned long long)rep->extent_size);
	n->has.dev = rep->nr_extents / rep->span_extents * rep->span_blocks;
	n->has.host = (u32)(bench_file_value(&n->d, "meminfo", "HostTotal") * 1024 /
			    SLOT);
	n->has.area = (u32)(bench_file_value(&n->d, "meminfo", "SwapTotal") * 1024 /
			    SLOT);
}

void keep_start(struct keep_node *n, const struct keep_tiers *want, u64 seed,
		double ns)
{
	char pool[32], host[32], area[32], extent[32];
	const char *const args[] = {
		"--backend", "host", "--pool-size", pool, "--extent-size", extent,
		"--host-size", host, "--area-max", area,
		"--min-token-bytes", "1024", "--max-clients", "4", NULL,
	};

	memset(n, 0, sizeof(*n));
	n->seed = seed;
	n->ns = ns;
	snprintf(pool, sizeof(pool), "%u", want->dev / (SPAN / KEEP_BYTES) *
		 SPAN);
	snprintf(extent, sizeof(extent), "%u", EXTENT);
	snprintf(host, sizeof(host), "%u", want->host * SLOT);
	snprintf(area, sizeof(area), "%u", want->area * SLOT);
	setenv("KVMM_SWAPD_LOG_LEVEL", "warn", 0);
	bench_hold_start(&n->d, args);
	if (want->area)
		area_add(n, want->area);
	attach(n);
	look_sizes(n);
}

void keep_stop(struct keep_node *n)
{
	kvmm_detach(n->k);
	bench_daemon_stop(&n->d);
}

void keep_kill(struct keep_node *n, u32 us)
{
	const pid_t pid = bench_child(n->d.pid, "kvmm");
	char cmd[64];

	snprintf(cmd, sizeof(cmd), "(sleep 0.%06u; kill -KILL %d) &", us, pid);
	if (!pid || system(cmd))
		bench_die("there is no kvmm to kill");
	n->killed++;
}

void keep_await_resumed(struct keep_node *n)
{
	const u64 end = bench_now() + LIMIT_NS;

	while (kvmm_resumed(n->k, NULL) < n->killed) {
		if (kvmm_wait(n->k, 10000000) == -ECONNRESET)
			must(n, -ECONNRESET, "a kvmm is killed");
		if (bench_now() > end)
			bench_die("kvmm is not back after 60 s");
	}
	usleep(LIVES_US);
	must(n, kvmm_nop(n->k), "NOP");
	kvmm_release(n->k);
}

/* ---- the client ---- */

static void ids_of(const struct keep_node *n, u32 prompt, u32 *ids)
{
	u32 i;

	for (i = 0; i < KEEP_IDS; i++)
		ids[i] = keep_mix(n->seed + (u64)prompt * KEEP_IDS + i) &
			 0x7fffffff;
}

/* The content of each block is made from all ids up to its end. */
static void keys_of(const u32 *ids, u64 *keys)
{
	u64 key = 0;
	u32 i;

	for (i = 0; i < KEEP_BLOCKS * KEEP_TOKENS; i++) {
		key = keep_mix(key ^ ids[i]);
		keys[i / KEEP_TOKENS] = key;
	}
}

static void fill(u64 *block, u64 key)
{
	u32 i;

	for (i = 0; i < WORDS; i++)
		block[i] = key + i * 0x9e3779b97f4a7c15ull;
}

static bool is_right(const u64 *block, u64 key)
{
	u64 wrong = 0;
	u32 i;

	for (i = 0; i < WORDS; i++)
		wrong |= block[i] ^ (key + i * 0x9e3779b97f4a7c15ull);
	return !wrong;
}

static u32 salvages(const struct keep_node *n)
{
	u32 nr;

	kvmm_resumed(n->k, &nr);
	return nr;
}

static u64 open_prompt(struct keep_node *n)
{
	const struct kvmm_open_arg arg = {
		.prompt_len = KEEP_IDS, .max_tokens = 1,
		.priority = KVMM_PRIO_NORMAL,
	};
	struct kvmm_open_res res;

	must(n, kvmm_seq_open(n->k, &arg, 1, &res), "SEQ_OPEN");
	must(n, res.status, "open");
	kvmm_release(n->k);
	return res.seq;
}

/* Return: false: its memory was lost in a salvage. */
static bool await_ready(struct keep_node *n, u64 seq,
			struct kvmm_seq_status *st)
{
	const u64 end = bench_now() + LIMIT_NS;

	for (;;) {
		/* A kvmm that dies in the middle of a change leaves no record. */
		if (kvmm_seq_status(n->k, seq, st)) {
			must(n, kvmm_confirm(n->k), "status");
			must(n, kvmm_seq_status(n->k, seq, st), "status");
		}
		if (st->state == KVMM_SEQ_READY)
			return true;
		if (st->state == KVMM_SEQ_RECOMPUTE)
			return false;
		if (st->state == KVMM_SEQ_FAILED)
			must(n, st->reason, "a prompt fails");
		if (kvmm_wait(n->k, 10000000) == -ECONNRESET)
			must(n, -ECONNRESET, "wait");
		if (bench_now() > end)
			bench_die("a prompt is not READY after 60 s");
	}
}

static u64 *block_at(const struct keep_node *n, u32 entry)
{
	return (u64 *)((char *)kvmm_pool(n->k) +
		       (u64)entry * kvmm_info(n->k)->unit);
}

/* Check blocks below @found, write the others.  Return: false: the step is void. */
static bool use_blocks(struct keep_node *n, u64 seq, u32 found, const u64 *keys,
		       u32 salvaged)
{
	u32 table[KEEP_BLOCKS + 1], i, wrong = KEEP_BLOCKS;

	while (salvages(n) == salvaged &&
	       kvmm_seq_table(n->k, seq, 0, 0, KEEP_BLOCKS + 1, table))
		must(n, kvmm_confirm(n->k), "table");
	if (salvages(n) != salvaged)
		return false;
	for (i = 0; i < found && wrong == KEEP_BLOCKS; i++)
		if (!is_right(block_at(n, table[i]), keys[i]))
			wrong = i;
	for (i = found; i < KEEP_BLOCKS; i++)
		fill(block_at(n, table[i]), keys[i]);
	must(n, kvmm_confirm(n->k), "kvmm lives");
	if (salvages(n) != salvaged)
		return false;
	if (wrong < KEEP_BLOCKS)
		bench_die("WRONG: block %u of a prompt of which %u were found has other content",
			  wrong, found);
	return true;
}

/*
 * One step for all that was not found.  A step that a salvage made void is ended
 * without progress: it may have begun after the salvage.
 * Return: 0, or the first error.
 */
static int compute(struct keep_node *n, u64 seq, const struct kvmm_seq_status *st,
		   const u32 *ids, const u64 *keys)
{
	const u32 from = st->valid_len, salvaged = salvages(n);
	const u64 ns = (u64)(n->ns * (KEEP_IDS - from));
	struct kvmm_begin_arg b = { .seq = seq, .start = from,
				    .seq_epoch = st->seq_epoch,
				    .max_tokens = KEEP_IDS - from };
	struct kvmm_end_arg e = { .seq = seq, .valid_len = KEEP_IDS,
				  .nr_ids = KEEP_IDS - from };
	struct kvmm_begin_res br;
	struct kvmm_end_res er;
	bool ok;
	int err;

	n->doing = "STEP_BEGIN";
	err = kvmm_step_begin(n->k, ++n->step, &b, 1, &br);
	kvmm_release(n->k);
	if (err)
		return err;
	if (br.copy_tokens)
		bench_die("a copy is ordered, but no block was found in part");
	if (getenv("COMPUTE"))
		usleep((u32)(ns / 1000));
	ok = !br.status && use_blocks(n, seq, from / KEEP_TOKENS, keys, salvaged);
	n->doing = "STEP_END";
	err = kvmm_step_end(n->k, n->step, ns, KEEP_IDS - from, &e, ok,
			    ids + from, &er);
	kvmm_release(n->k);
	if (!ok)
		return br.status ? br.status : -ESTALE;
	return err ? err : er.status;
}

/* The same; where kvmm has no memory now, ask again for up to a minute. */
static int compute_patiently(struct keep_node *n, u64 seq,
			     const struct kvmm_seq_status *st, const u32 *ids,
			     const u64 *keys)
{
	const u64 end = bench_now() + LIMIT_NS;
	int err;

	while ((err = compute(n, seq, st, ids, keys)) == -EAGAIN &&
	       bench_now() < end)
		(void)kvmm_wait(n->k, 1000000);
	return err;
}

/* Return: blocks found, or AGAIN. */
static u32 serve(struct keep_node *n, const u32 *ids, const u64 *keys)
{
	const u32 salvaged = salvages(n);
	struct kvmm_seq_status st = { 0 };
	const u64 seq = open_prompt(n);
	int err;

	n->doing = "SEQ_MATCH";
	err = kvmm_seq_match(n->k, seq, ids, KEEP_IDS);
	kvmm_release(n->k);
	if (!err)
		err = await_ready(n, seq, &st) ?
		      compute_patiently(n, seq, &st, ids, keys) : -ESTALE;
	if (err && salvages(n) == salvaged)
		must(n, err, n->doing);
	must(n, kvmm_seq_close(n->k, &seq, 1), "SEQ_CLOSE");
	kvmm_release(n->k);
	return err ? AGAIN : st.valid_len / KEEP_TOKENS;
}

u32 keep_serve(struct keep_node *n, u32 prompt)
{
	u32 ids[KEEP_IDS], found;
	u64 keys[KEEP_BLOCKS];

	ids_of(n, prompt, ids);
	keys_of(ids, keys);
	while ((found = serve(n, ids, keys)) == AGAIN)
		n->redone++;
	return found;
}
