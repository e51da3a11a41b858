// SPDX-License-Identifier: Apache-2.0
/*
 * it_tenants.c - memory changes over between users with living programs
 *
 * One user's program has filled the pool with its KV; another user's asks for
 * its memory.min.  It gets the memory, zeroed, in three cases: the first
 * program goes on; it answers no request and is killed for that; it lies and
 * keeps the old memory mapped, but must see no word of the other user there.
 * Without root there is only one user, and no test.  budget: 40 s
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <libkvmm.h>

#include "tests/integration/harness.h"

#define OTHER_UID	65534
#define TOKENS		16u
#define TOKEN_BYTES	1024u
#define BLOCK_BYTES	(TOKENS * TOKEN_BYTES)
#define NR_SEQS		13u
#define SEQ_TOKENS	1200u
#define MIN_BYTES	(4u << 20)
#define MIN_TOKENS	3000u
#define DEADLINE_MS	1000u
#define OURS		0x5b	/* byte that the second user writes */
#define THEIRS		0xa5	/* byte that the first user has written */

enum first_kind { HONEST, STUBBORN, LIAR };

static struct rig rig;

/* For a child: it prints a failed condition and exits with 1. */
#define MUST(cond)							\
do {									\
	if (!(cond)) {							\
		fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
		_exit(1);						\
	}								\
} while (0)

/* ---- in the children ---- */

static struct kvmm *attach_as(uid_t uid, u64 min_bytes)
{
	static const u8 identity[KVMM_IDENTITY_LEN] = "it_tenants";
	char path[RIG_PATH + 32], text[256];
	const struct kvmm_params p = {
		.socket = path, .domain = "it", .identity = identity,
		.block_tokens = TOKENS,
		.group[0] = { .layers = 1, .kv_heads = 1, .k_bytes = 512,
			   .v_bytes = 512 },
		.min_bytes = min_bytes, .max_bytes = KVMM_LIMIT_MAX,
		.attach_timeout_ms = 20000,
	};
	struct kvmm *k;
	int fd;

	snprintf(path, sizeof(path), "%s/attach.sock", rig.dir);
	if (uid) {
		fd = open(path, O_PATH);
		MUST(fd >= 0 && !setgid(uid) && !setuid(uid));
		prctl(PR_SET_DUMPABLE, 1);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (kvmm_attach(&p, &k, text)) {
		fprintf(stderr, "attach: %s\n", text);
		_exit(1);
	}
	return k;
}

/* Open a sequence of @nr tokens and wait until it is READY. */
static u64 ready(struct kvmm *k, u32 nr, u32 seed, struct kvmm_seq_status *st)
{
	struct kvmm_open_arg arg = { .prompt_len = nr };
	u64 end = now_ms() + 30000 * time_scale();
	static u32 ids[MIN_TOKENS];
	struct kvmm_open_res res;
	u32 i;

	for (i = 0; i < nr; i++)
		ids[i] = seed + i;
	MUST(!kvmm_seq_open(k, &arg, 1, &res) && !res.status);
	MUST(!kvmm_seq_match(k, res.seq, ids, nr));
	do {
		MUST(kvmm_wait(k, 10000000) != -ECONNRESET);
		MUST(!kvmm_seq_status(k, res.seq, st));
		MUST(now_ms() < end);
	} while (st->state != KVMM_SEQ_READY);
	return res.seq;
}

static bool all_are(const char *p, size_t len, int byte)
{
	return p[0] == (char)byte && !memcmp(p, p + 1, len - 1);
}

/* Check that its memory is zero (@fresh), write @byte to it, declare it. */
static void fill(struct kvmm *k, u64 seq, const struct kvmm_seq_status *st,
		 u32 nr, int byte, bool fresh, u64 step)
{
	struct kvmm_begin_arg begin = { .seq = seq, .max_tokens = nr,
					.seq_epoch = st->seq_epoch };
	struct kvmm_end_arg end = { .seq = seq, .valid_len = nr, .nr_ids = nr };
	static u32 ids[MIN_TOKENS];
	struct kvmm_begin_res res;
	struct kvmm_end_res end_res;
	u32 i, entry;

	MUST(!kvmm_step_begin(k, step, &begin, 1, &res) && !res.status);
	for (i = 0; i < DIV_ROUND_UP(nr, TOKENS); i++) {
		char *p = kvmm_pool(k);

		MUST(!kvmm_seq_table(k, seq, 0, i, 1, &entry));
		p += (u64)entry * kvmm_info(k)->unit;
		MUST(!fresh || all_are(p, BLOCK_BYTES, 0));
		memset(p, byte, BLOCK_BYTES);
	}
	for (i = 0; i < nr; i++)
		ids[i] = (u32)step * 10000 + i;
	MUST(!kvmm_step_end(k, step, 1000, nr, &end, 1, ids, &end_res) &&
	     !end_res.status);
}

static void say(int fd)
{
	MUST(write(fd, "x", 1) == 1);
}

static bool was_mapped[64];

/* The kept mapping must have no byte of the other user; some extents must be gone. */
static void check_kept(struct kvmm *k, const char *kept)
{
	const u64 size = kvmm_info(k)->extent_size;
	u32 i, gone = 0;

	for (i = 0; i < kvmm_info(k)->nr_extents; i++) {
		if (!was_mapped[i])
			continue;
		MUST(!memchr(kept + i * size, OURS, size));
		gone += all_are(kept + i * size, size, 0);
	}
	/* Punched out: the memory is free although it is still mapped. */
	MUST(gone >= 2);
}

/* Map the current pool a second time. */
static char *keep_pool(struct kvmm *k)
{
	const u64 size = kvmm_info(k)->extent_size;
	const u32 nr = kvmm_info(k)->nr_extents;
	char *kept = mmap(NULL, nr * size, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	u32 i;

	MUST(kept != MAP_FAILED);
	/* An extent that is not mapped yet cannot be kept. */
	for (i = 0; i < nr; i++)
		was_mapped[i] = mremap((char *)kvmm_pool(k) + i * size, 0, size,
				       MREMAP_MAYMOVE | MREMAP_FIXED,
				       kept + i * size) != MAP_FAILED;
	return kept;
}

/* Fill the pool, write to @up, and go on until there is a byte in @down. */
static void first_main(enum first_kind kind, int up, int down)
{
	struct kvmm *k = attach_as(0, 0);
	struct kvmm_seq_status st;
	char *kept = NULL, byte;
	u32 i;
	u64 seq;

	for (i = 0; i < NR_SEQS; i++) {
		seq = ready(k, SEQ_TOKENS, 100000 * i, &st);
		fill(k, seq, &st, SEQ_TOKENS, THEIRS, false, i + 1);
	}
	if (kind == LIAR)
		kept = keep_pool(k);
	say(up);
	if (kind == STUBBORN)
		for (;;)
			pause();
	fcntl(down, F_SETFL, O_NONBLOCK);
	while (read(down, &byte, 1) < 0)
		MUST(kvmm_wait(k, 5000000) != -ECONNRESET);
	MUST(!kvmm_nop(k));
	if (kept)
		check_kept(k, kept);
	kvmm_detach(k);
	_exit(0);
}

/* Ask for the protected memory, and use it. */
static void second_main(void)
{
	struct kvmm *k = attach_as(OTHER_UID, MIN_BYTES);
	struct kvmm_seq_status st;
	u64 seq = ready(k, MIN_TOKENS, 7, &st);

	fill(k, seq, &st, MIN_TOKENS, OURS, true, 1);
	kvmm_detach(k);
	_exit(0);
}

/* ---- the test ---- */

static pid_t start_first(enum first_kind kind, int *down)
{
	int up[2], dn[2];
	char byte;
	pid_t pid;

	ck_assert(!pipe(up) && !pipe(dn));
	fflush(stdout);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid)
		first_main(kind, up[1], dn[0]);
	close(up[1]);
	close(dn[0]);
	ck_assert_msg(read(up[0], &byte, 1) == 1, "the first user's program ended");
	close(up[0]);
	*down = dn[1];
	return pid;
}

static int ended(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return status;
}

static void tenants(enum first_kind kind)
{
	u64 began;
	pid_t one, two;
	int down;

	if (geteuid()) {
		printf("  not tested: it takes root to be two users\n");
		return;
	}
	rig_start(&rig, "--pool-size", "16M", "--extent-size", "1M",
		  "--socket-mode", "0666", "--user-quota", "min=4M",
		  "--revoke-deadline-ms",
		  kind == STUBBORN ? "1000" : "20000", NULL);
	one = start_first(kind, &down);
	began = now_ms();
	two = fork();
	ck_assert_int_ge(two, 0);
	if (!two)
		second_main();
	ck_assert_int_eq(ended(two), 0);
	printf("  %s: %llu ms until it had what it was promised, and used it\n",
	       kind == HONEST ? "honest" : kind == LIAR ? "a liar" : "stubborn",
	       (unsigned long long)(now_ms() - began));
	ck_assert_int_ge(rig_value(&rig, "vmstat", "extent_revoke"), 2);
	ck_assert_int_ge(rig_value(&rig, "vmstat", "revoke_preempt"), 1);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "revoke_kill"),
			 kind == STUBBORN);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "client_kill"),
			 kind == STUBBORN);
	if (kind == STUBBORN) {
		int status = ended(one);

		ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		ck_assert_uint_ge(now_ms() - began, DEADLINE_MS);
	} else {
		ck_assert_int_eq(write(down, "x", 1), 1);
		ck_assert_int_eq(ended(one), 0);
	}
	close(down);
	rig_walk(&rig);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "Revoking"), 0);
	rig_stop(&rig);
}

START_TEST(test_honest)
{
	tenants(HONEST);
}
END_TEST

START_TEST(test_stubborn)
{
	tenants(STUBBORN);
}
END_TEST

START_TEST(test_liar)
{
	tenants(LIAR);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tenants");
	TCase *tc = tcase_create("tenants");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, test_honest);
	tcase_add_test(tc, test_stubborn);
	tcase_add_test(tc, test_liar);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
