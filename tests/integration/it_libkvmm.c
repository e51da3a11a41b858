// SPDX-License-Identifier: Apache-2.0
/*
 * it_libkvmm.c - the client library against the real daemon
 *
 * The tests of check_libkvmm, with a real daemon instead of a thread: attach
 * and detach many times, use blocks through their tables, share a prefix
 * between two clients, and handle a daemon that is stopped, killed or ended
 * while a request is under way.  budget: 60 s
 */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <sys/resource.h>
#include <unistd.h>

#include <libkvmm.h>

#include "runtime/libkvmm/internal.h"
#include "tests/integration/census.h"

#define TOKENS		16u
#define TOKEN_BYTES	1024u		/* 2 layers, 2 heads, K and V of 128 */
#define LAYERS		2u
#define NR_IDS		100u

static struct rig rig;
static char text[256];
static u8 identity[KVMM_IDENTITY_LEN] = "it_libkvmm";
static const u32 spins[] = { 0, 200, KVMM_SPIN_FOREVER };

static void setup(void)
{
	rig_start(&rig, "--pool-size", "16M", "--extent-size", "1M",
		  "--adopt", "off", "--quiet-deadline-ms", "1000", NULL);
}

static void teardown(void)
{
	rig_walk(&rig);
	rig_stop(&rig);
}

static struct kvmm *attach_spinning(u32 spin)
{
	char path[RIG_PATH + 32];
	const struct kvmm_params p = {
		.socket = path,
		.domain = "it",
		.identity = identity,
		.block_tokens = TOKENS,
		.group[0] = { .layers = LAYERS, .kv_heads = 2, .k_bytes = 128,
			   .v_bytes = 128 },
		.max_bytes = KVMM_LIMIT_MAX,
		.spin = spin,
		.attach_timeout_ms = 20000,
	};
	struct kvmm *k;

	snprintf(path, sizeof(path), "%s/attach.sock", rig.dir);
	ck_assert_msg(!kvmm_attach(&p, &k, text), "%s", text);
	return k;
}

static struct kvmm *attach(void)
{
	return attach_spinning(200);
}

static u32 nr_entries(const char *path)
{
	DIR *d = opendir(path);
	u32 n = 0;

	ck_assert_ptr_nonnull(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static u32 daemon_fds(void)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)rig_daemon(&rig));
	return nr_entries(path);
}

/* ------------------------------------------------------------------ */

START_TEST(test_hundred_cycles)
{
	const u32 own = nr_entries("/proc/self/fd");
	struct kvmm *k = attach();
	u32 fds, i, tries;
	char *before;

	kvmm_detach(k);
	nap_ms(100);
	fds = daemon_fds();
	before = census_fds(rig_daemon(&rig));
	for (i = 0; i < 100; i++) {
		k = attach_spinning(spins[i % 3]);
		ck_assert_int_eq(kvmm_nop(k), 0);
		kvmm_detach(k);
	}
	ck_assert_uint_eq(nr_entries("/proc/self/fd"), own);
	for (tries = 0; daemon_fds() > fds && tries < 500; tries++)
		nap_ms(20);
	if (daemon_fds() > fds)
		ck_abort_msg("%u descriptors of the daemon, not %u:\n%s\nbefore:\n%s",
			     daemon_fds(), fds, census_fds(rig_daemon(&rig)),
			     before);
	free(before);
}
END_TEST

/* The thread of process @pid with that name. */
static pid_t thread_named(pid_t pid, const char *name)
{
	char path[300], comm[32];
	struct dirent *e;
	pid_t tid = 0;
	DIR *d;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	ck_assert_ptr_nonnull(d);
	while (!tid && (e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", (int)pid, e->d_name);
		f = fopen(path, "re");
		if (f && fgets(comm, sizeof(comm), f) && !strncmp(comm, name, strlen(name)))
			tid = (pid_t)atoi(e->d_name);
		if (f)
			fclose(f);
	}
	closedir(d);
	return tid;
}

/*
 * The daemon's mm thread does not run while a client detaches: it finds DETACH and the
 * end of the connection together.  The process lives on, past the quiet deadline.
 */
START_TEST(test_late_daemon)
{
	const pid_t mm = thread_named(rig_daemon(&rig), "kvmm-mm");
	struct kvmm *k = attach();
	int status;

	ck_assert_int_eq(kvmm_nop(k), 0);
	if (!mm || ptrace(PTRACE_SEIZE, mm, 0, 0)) {
		printf("note: no thread can be stopped here: not tried\n");
		kvmm_detach(k);
		return;
	}
	ck_assert_int_eq((int)ptrace(PTRACE_INTERRUPT, mm, 0, 0), 0);
	ck_assert_int_eq(waitpid(mm, &status, __WALL), mm);
	kvmm_detach(k);
	nap_ms(300);
	ck_assert_int_eq((int)ptrace(PTRACE_DETACH, mm, 0, 0), 0);
	nap_ms(2500);
	/* Another attachment of this process is served. */
	k = attach();
	ck_assert_int_eq(kvmm_nop(k), 0);
	kvmm_detach(k);
}
END_TEST

START_TEST(test_several_at_once)
{
	struct kvmm *k[8];
	u32 i, j;

	for (i = 0; i < 8; i++)
		k[i] = attach_spinning(0);
	for (j = 0; j < 200; j++) {
		for (i = 0; i < 8; i++)
			ck_assert_int_eq(kvmm_nop(k[i]), 0);
	}
	for (i = 0; i < 8; i++)
		kvmm_detach(k[i]);
}
END_TEST

/* ------------------------------------------------------------------ */
/* Memory through the tables                                           */

static struct kvmm_seq_status await_ready(struct kvmm *k, u64 seq)
{
	struct kvmm_seq_status st;
	u32 tries;

	for (tries = 0; tries < 1000; tries++) {
		ck_assert_int_eq(kvmm_seq_status(k, seq, &st), 0);
		if (st.state == KVMM_SEQ_READY)
			return st;
		/* RESTORING ends at once, but a client may see it. */
		if (st.state != KVMM_SEQ_RESTORING)
			ck_assert_uint_eq(st.state, KVMM_SEQ_WAITING);
		ck_assert_int_ne(kvmm_wait(k, 10000000), -ECONNRESET);
	}
	ck_abort_msg("it is never ready");
	return st;
}

static u64 open_seq(struct kvmm *k, const u32 *ids, u32 nr)
{
	struct kvmm_open_arg arg = { .prompt_len = nr, .max_tokens = 400 };
	struct kvmm_open_res res;

	ck_assert_int_eq(kvmm_seq_open(k, &arg, 1, &res), 0);
	ck_assert_int_eq(res.status, 0);
	ck_assert_int_eq(kvmm_seq_match(k, res.seq, ids, nr), 0);
	return res.seq;
}

/* Address of layer @layer of position @pos. */
static char *kv_at(struct kvmm *k, u64 seq, u32 pos, u32 layer)
{
	const struct kvmm_attach_rep *r = kvmm_info(k);
	u64 off;
	u32 entry;

	ck_assert_int_eq(kvmm_seq_table(k, seq, 0, pos / TOKENS, 1, &entry), 0);
	ck_assert_uint_ne(entry, KVMM_NO_INDEX);
	off = (u64)entry * r->unit + layer * r->stride[0] +
	      pos % TOKENS * (TOKEN_BYTES / LAYERS);
	ck_assert_uint_le(off + TOKEN_BYTES / LAYERS, r->pool_bytes);
	return (char *)kvmm_pool(k) + off;
}

static void write_kv(struct kvmm *k, u64 seq, u32 pos, u32 id)
{
	u32 layer;

	for (layer = 0; layer < LAYERS; layer++)
		memset(kv_at(k, seq, pos, layer), (int)(id * 7 + layer),
		       TOKEN_BYTES / LAYERS);
}

static void check_kv(struct kvmm *k, u64 seq, u32 pos, u32 id)
{
	u32 layer, i;

	for (layer = 0; layer < LAYERS; layer++) {
		const char *p = kv_at(k, seq, pos, layer);

		for (i = 0; i < TOKEN_BYTES / LAYERS; i++)
			ck_assert_int_eq(p[i], (char)(id * 7 + layer));
	}
}

/* Make the copy that a grant asks for. */
static void run_copy(struct kvmm *k, const struct kvmm_begin_res *res)
{
	const struct kvmm_attach_rep *r = kvmm_info(k);
	char *pool = kvmm_pool(k);
	u32 layer;

	for (layer = 0; res->copy_tokens && layer < LAYERS; layer++)
		memcpy(pool + (u64)res->copy_to * r->unit +
		       layer * r->stride[0],
		       pool + (u64)res->copy_from * r->unit +
		       layer * r->stride[0],
		       res->copy_tokens * (TOKEN_BYTES / LAYERS));
}

static u64 step_number;

/* Write @ids at @start and declare them, after a wait for memory. */
static u32 extend(struct kvmm *k, u64 seq, u32 epoch, u32 start, const u32 *ids,
		  u32 nr)
{
	struct kvmm_begin_arg begin = {
		.seq = seq, .seq_epoch = epoch, .start = start,
		.max_tokens = nr,
	};
	struct kvmm_end_arg end = { .seq = seq, .valid_len = start + nr,
				    .nr_ids = nr };
	struct kvmm_begin_res res;
	struct kvmm_end_res end_res;
	u32 i;

	for (;;) {
		ck_assert_int_eq(kvmm_step_begin(k, ++step_number, &begin, 1,
						 &res), 0);
		if (!res.status)
			break;
		ck_assert_int_eq(res.status, -EAGAIN);
		ck_assert_int_eq(kvmm_step_end(k, step_number, 0, 0, NULL, 0,
					       NULL, NULL), 0);
		ck_assert_int_ne(kvmm_wait(k, 10000000), -ECONNRESET);
	}
	run_copy(k, &res);
	for (i = 0; i < nr; i++)
		write_kv(k, seq, start + i, ids[i]);
	ck_assert_int_eq(kvmm_step_end(k, step_number, 1000, nr, &end, 1, ids,
				       &end_res), 0);
	ck_assert_int_eq(end_res.status, 0);
	ck_assert_uint_eq(end_res.valid_len, start + nr);
	return res.copy_tokens;
}

static void make_ids(u32 *ids, u32 seed)
{
	u32 i;

	for (i = 0; i < NR_IDS; i++)
		ids[i] = seed * 1000 + i;
}

/* Remap the child to its parent, truncate it, and trim its first block. */
static void share_and_shorten(struct kvmm *k, u64 seq, u64 child)
{
	const struct kvmm_remap_arg pair = { .child = child, .other = seq };
	struct kvmm_len_arg len = { .seq = child, .len = NR_IDS };
	struct kvmm_seq_res res;
	u32 entry;

	ck_assert_int_eq(kvmm_seq_remap(k, &pair, 1, &res), 0);
	ck_assert_int_eq(res.status, 0);
	ck_assert_uint_eq(res.valid_len, NR_IDS + 1);
	check_kv(k, child, NR_IDS, 78);
	ck_assert_int_eq(kvmm_seq_truncate(k, &len, 1, &res), 0);
	ck_assert_int_eq(res.status, 0);
	ck_assert_uint_eq(res.valid_len, NR_IDS);
	len.len = TOKENS;
	ck_assert_int_eq(kvmm_seq_trim(k, &len, 1, &res), 0);
	ck_assert_int_eq(res.status, 0);
	ck_assert_int_eq(kvmm_seq_table(k, child, 0, 0, 1, &entry), 0);
	ck_assert_uint_eq(entry, KVMM_NO_INDEX);
	ck_assert_int_eq(kvmm_seq_table(k, seq, 0, 0, 1, &entry), 0);
	ck_assert_uint_ne(entry, KVMM_NO_INDEX);
}

/* Fork, write different tails, and check that each sequence kept its own. */
static void fork_and_diverge(struct kvmm *k, u64 seq, u32 epoch, const u32 *ids)
{
	const u32 other[2] = { 77, 78 };
	struct kvmm_open_res res;
	u32 copied, i;
	u64 child;

	ck_assert_int_eq(kvmm_seq_fork(k, seq, 1, &res), 0);
	ck_assert_int_eq(res.status, 0);
	child = res.seq;
	copied = extend(k, child, epoch, NR_IDS, &other[0], 1);
	ck_assert_uint_eq(copied, NR_IDS % TOKENS);
	copied = extend(k, seq, epoch, NR_IDS, &other[1], 1);
	ck_assert_uint_eq(copied, 0);
	for (i = 0; i < NR_IDS; i++) {
		check_kv(k, seq, i, ids[i]);
		check_kv(k, child, i, ids[i]);
	}
	check_kv(k, child, NR_IDS, 77);
	check_kv(k, seq, NR_IDS, 78);
	share_and_shorten(k, seq, child);
	ck_assert_int_eq(kvmm_seq_close(k, &child, 1), 0);
}

/* A client finds the blocks of another client in the same memory. */
START_TEST(test_prefix_is_shared)
{
	struct kvmm *a = attach(), *b = attach();
	struct kvmm_seq_status st;
	u32 ids[NR_IDS], i;
	u64 seq, twin;

	make_ids(ids, 1);
	seq = open_seq(a, ids, NR_IDS);
	st = await_ready(a, seq);
	ck_assert_uint_eq(st.valid_len, 0);
	extend(a, seq, st.seq_epoch, 0, ids, NR_IDS);
	fork_and_diverge(a, seq, st.seq_epoch, ids);

	twin = open_seq(b, ids, NR_IDS);
	st = await_ready(b, twin);
	ck_assert_uint_eq(st.cached_len, NR_IDS / TOKENS * TOKENS);
	ck_assert_uint_eq(st.valid_len, st.cached_len);
	for (i = 0; i < st.valid_len; i++)
		check_kv(b, twin, i, ids[i]);
	ck_assert_int_eq(kvmm_seq_close(a, &seq, 1), 0);
	kvmm_detach(a);
	for (i = 0; i < st.valid_len; i++)
		check_kv(b, twin, i, ids[i]);
	ck_assert_int_eq(kvmm_seq_close(b, &twin, 1), 0);
	ck_assert_int_eq(kvmm_seq_close(b, &twin, 1), -ENOENT);
	kvmm_detach(b);
}
END_TEST

/* A detach in the middle of a step counts as a detach, not as a death. */
START_TEST(test_detach_in_a_step)
{
	struct kvmm *k = attach();
	const s64 before = rig_value(&rig, "vmstat", "client_detach");
	struct kvmm_begin_arg begin = { .max_tokens = 1 };
	struct kvmm_begin_res res;
	u32 ids[NR_IDS];

	make_ids(ids, 3);
	begin.seq = open_seq(k, ids, NR_IDS);
	begin.seq_epoch = await_ready(k, begin.seq).seq_epoch;
	ck_assert_int_eq(kvmm_step_begin(k, ++step_number, &begin, 1, &res), 0);
	ck_assert_int_eq(res.status, 0);
	kvmm_detach(k);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "client_detach"), before + 1);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "client_death"), 0);
}
END_TEST

/* A prompt of more tokens than a piece of the argument area holds. */
START_TEST(test_long_prompt)
{
	const u32 nr = 12000;
	struct kvmm *k = attach();
	u32 *ids, i;
	u64 seq;

	ids = calloc(nr, sizeof(*ids));
	ck_assert_ptr_nonnull(ids);
	for (i = 0; i < nr; i++)
		ids[i] = i;
	k->info.arg_bytes = 4096;	/* less than the real size, for more pieces */
	seq = open_seq(k, ids, nr);
	await_ready(k, seq);
	ck_assert_int_eq(kvmm_seq_close(k, &seq, 1), 0);
	free(ids);
	kvmm_detach(k);
}
END_TEST

/* Fill the rings with requests of several kinds, all in flight. */
START_TEST(test_pipeline)
{
	struct kvmm *k = attach();
	struct kvmm_open_arg *open_arg;
	struct kvmm_done done;
	struct kvmm_sqe *sqe;
	u64 sent = 0, got = 0;
	void *args;
	int ret;

	while (got < 20000) {
		while ((sqe = sent % 7 ?
			kvmm_prep(k, KVMM_OP_NOP, 0, 0, &args) :
			kvmm_prep(k, KVMM_OP_SEQ_OPEN, 1, sizeof(*open_arg),
				  &args))) {
			open_arg = args;
			/*
			 * It never fits: it is refused and leaves no sequence
			 * behind.
			 */
			if (sent % 7 == 0)
				*open_arg = (struct kvmm_open_arg) {
					.prompt_len = 1u << 30,
				};
			sqe->user_data = sent++;
		}
		ck_assert_int_eq(kvmm_submit(k), 0);
		ck_assert_int_eq(kvmm_wait(k, -1), 0);
		while ((ret = kvmm_reap(k, &done)) > 0) {
			ck_assert_uint_eq(done.user_data, got);
			ck_assert_int_eq(done.status, 0);
			if (got++ % 7 == 0)
				ck_assert_int_eq(((const struct kvmm_open_res *)
						  done.results)->status, -E2BIG);
		}
		ck_assert_int_eq(ret, 0);
		kvmm_release(k);
	}
	kvmm_detach(k);
}
END_TEST

/* ------------------------------------------------------------------ */
/* No descriptor is left                                               */

#define NR_FILES	80	/* more than the attachment uses */

/* Extents arrive although the process has no free descriptor. */
START_TEST(test_no_descriptors)
{
	struct rlimit few = { NR_FILES, NR_FILES };
	struct kvmm *k = attach();
	const u32 mapped = k->nr_mapped;
	static u32 ids[900];
	u32 i, n, seed, nr = 0;
	int fds[NR_FILES];

	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	while ((fds[nr] = dup(STDIN_FILENO)) >= 0)
		nr++;
	ck_assert_int_eq(errno, EMFILE);
	for (seed = 0; seed < 8; seed++) {
		for (i = 0, n = ARRAY_SIZE(ids); i < n; i++)
			ids[i] = (i * 7 + seed) % 5000;
		await_ready(k, open_seq(k, ids, n));
	}
	ck_assert_uint_ge(k->nr_mapped, mapped + 6);
	while (nr)
		close(fds[--nr]);
	kvmm_detach(k);
}
END_TEST

/* ------------------------------------------------------------------ */
/* A daemon that stops, dies, ends                                     */

struct signal_later {
	pid_t	pid;
	int	sig;
	u32	ms;
};

static void *send_signal(void *arg)
{
	const struct signal_later *s = arg;

	nap_ms(s->ms);
	kill(s->pid, s->sig);
	return NULL;
}

static void check_ended(struct kvmm *k, const char *says)
{
	ck_assert_int_eq(kvmm_nop(k), -ECONNRESET);
	ck_assert(!kvmm_alive(k));
	ck_assert_msg(strstr(kvmm_strerror_attach(k), says),
		      "said '%s', not '%s'", kvmm_strerror_attach(k), says);
	ck_assert_ptr_null(strchr(kvmm_strerror_attach(k), '\n'));
}

/* The client has a sequence and waits, without a request, until the daemon dies. */
START_TEST(test_killed_while_waiting)
{
	struct kvmm *k = attach_spinning(spins[_i]);
	struct signal_later s = { rig_daemon(&rig), SIGKILL, 100 };
	const u64 epoch = kvmm_info(k)->daemon_epoch;
	u32 ids[NR_IDS];
	pthread_t thread;
	u64 start;

	make_ids(ids, 2);
	await_ready(k, open_seq(k, ids, NR_IDS));
	ck_assert_int_eq(pthread_create(&thread, NULL, send_signal, &s), 0);
	start = now_ms();
	while (!kvmm_wait(k, 10000000000))
		;
	ck_assert_uint_lt(now_ms() - start, 1500);
	pthread_join(thread, NULL);
	check_ended(k, "the kvmm daemon died");
	kvmm_detach(k);

	/* The next daemon starts cold, with a later epoch. */
	k = attach_spinning(spins[_i]);
	ck_assert_uint_gt(kvmm_info(k)->daemon_epoch, epoch);
	ck_assert_int_eq(kvmm_nop(k), 0);
	kvmm_detach(k);
}
END_TEST

START_TEST(test_killed_during_calls)
{
	struct kvmm *k = attach_spinning(spins[_i]);
	struct signal_later s = { rig_daemon(&rig), SIGKILL, 50 };
	pthread_t thread;
	int ret;

	ck_assert_int_eq(pthread_create(&thread, NULL, send_signal, &s), 0);
	while (!(ret = kvmm_nop(k)))
		;
	ck_assert_int_eq(ret, -ECONNRESET);
	pthread_join(thread, NULL);
	check_ended(k, "the kvmm daemon died");
	kvmm_detach(k);
	kvmm_detach(attach());
}
END_TEST

/* A stopped daemon delays requests, and a new client gets a clear error. */
START_TEST(test_stopped)
{
	struct kvmm *k = attach_spinning(spins[_i]), *other;
	struct signal_later s = { rig_daemon(&rig), SIGCONT, 700 };
	struct kvmm_params p = {
		.domain = "it", .identity = identity, .block_tokens = TOKENS,
		.attach_timeout_ms = 200,
	};
	char path[RIG_PATH + 32];
	pthread_t thread;
	u64 start = now_ms();

	snprintf(path, sizeof(path), "%s/attach.sock", rig.dir);
	p.socket = path;
	kill(s.pid, SIGSTOP);
	ck_assert_int_eq(pthread_create(&thread, NULL, send_signal, &s), 0);
	ck_assert_int_eq(kvmm_attach(&p, &other, text), -ETIMEDOUT);
	ck_assert_ptr_nonnull(strstr(text, "does not answer"));
	ck_assert_int_eq(kvmm_nop(k), 0);
	ck_assert_uint_ge(now_ms() - start, 600);
	pthread_join(thread, NULL);
	kvmm_detach(k);
}
END_TEST

/* kvmm-hold gets SIGTERM: clients learn it before the socket closes. */
START_TEST(test_ended)
{
	struct kvmm *k = attach_spinning(spins[_i]);
	struct signal_later s = { rig.hold, SIGTERM, 100 };
	struct job hold = { .pid = rig.hold };
	pthread_t thread;

	snprintf(hold.err, sizeof(hold.err), "%s/job-0.err", rig.dir);
	ck_assert_int_eq(pthread_create(&thread, NULL, send_signal, &s), 0);
	while (!kvmm_wait(k, -1))
		;
	pthread_join(thread, NULL);
	check_ended(k, "shutting down");
	ck_assert_int_eq(job_wait(&hold, 10), 0);
	kvmm_detach(k);
	setup();
}
END_TEST

/* ------------------------------------------------------------------ */
/* A client that breaks the rules is told, and the others go on        */

static void forge_tail(struct kvmm *k)
{
	store_release(&k->ctl->sq_tail, 0x40000000u);
}

static void forge_head(struct kvmm *k)
{
	store_release(&k->ctl->cq_head, 0x40000000u);
}

static void forge_args(struct kvmm *k)
{
	struct kvmm_sqe *sqe = kvmm_prep(k, KVMM_OP_SEQ_OPEN, 1, 32, NULL);

	sqe->arg_off = k->info.arg_bytes - 8;
	ring_prod_publish(&k->sub);
}

/* Use a request number again. */
static void forge_number(struct kvmm *k)
{
	ck_assert_int_eq(kvmm_nop(k), 0);
	k->number--;
	ck_assert_ptr_nonnull(kvmm_prep(k, KVMM_OP_NOP, 0, 0, NULL));
	ring_prod_publish(&k->sub);
}

static void (*const forgeries[])(struct kvmm *k) = {
	forge_tail, forge_head, forge_args, forge_number,
};

START_TEST(test_expelled)
{
	static const u64 one = 1;
	struct kvmm *good = attach(), *bad = attach();
	u32 tries;

	forgeries[_i](bad);
	ck_assert_int_eq(write(bad->bell, &one, sizeof(one)), sizeof(one));
	for (tries = 0; kvmm_alive(bad) && tries < 200; tries++)
		nap_ms(10);
	check_ended(bad, "broke the protocol");
	ck_assert_int_eq(kvmm_nop(good), 0);
	kvmm_detach(bad);
	kvmm_detach(good);
}
END_TEST

static Suite *libkvmm_suite(void)
{
	Suite *s = suite_create("libkvmm-real");
	TCase *tc = tcase_create("work");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, test_hundred_cycles);
	tcase_add_test(tc, test_late_daemon);
	tcase_add_test(tc, test_several_at_once);
	tcase_add_test(tc, test_prefix_is_shared);
	tcase_add_test(tc, test_detach_in_a_step);
	tcase_add_test(tc, test_long_prompt);
	tcase_add_test(tc, test_pipeline);
	tcase_add_test(tc, test_no_descriptors);
	tcase_add_loop_test(tc, test_expelled, 0, ARRAY_SIZE(forgeries));
	suite_add_tcase(s, tc);

	tc = tcase_create("death");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, test_killed_while_waiting, 0, ARRAY_SIZE(spins));
	tcase_add_loop_test(tc, test_killed_during_calls, 0, ARRAY_SIZE(spins));
	tcase_add_loop_test(tc, test_stopped, 0, ARRAY_SIZE(spins));
	tcase_add_loop_test(tc, test_ended, 0, ARRAY_SIZE(spins));
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(libkvmm_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
