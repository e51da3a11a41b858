// SPDX-License-Identifier: Apache-2.0
/*
 * check_libkvmm.c - how an attachment begins and ends
 *
 * The handshake with a sound daemon, with none, and with answers that are wrong
 * in one place each; the end of an attachment by detach, death and expulsion;
 * the digest of a model identity.  Every test checks that no descriptor and no
 * mapping is left.  budget: 30 s
 */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <libkvmm.h>

#include "tests/unit/fake_daemon.h"

static struct fake f;
static struct kvmm *k;
static char text[256];
static u8 identity[KVMM_IDENTITY_LEN] = { 1, 2, 3 };
static struct kvmm_params params;

static u32 nr_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	u32 n = 0;

	ck_assert_ptr_nonnull(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Mappings of files of the fake daemon, and reservations of a pool's size. */
static u32 nr_maps(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long from, to;
	char line[512];
	u32 n = 0;

	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps)) {
		ck_assert_int_eq(sscanf(line, "%lx-%lx", &from, &to), 2);
		if (strstr(line, "memfd:fake") ||
		    (strstr(line, "---p") &&
		     to - from == FAKE_EXTENTS * FAKE_EXT_SIZE))
			n++;
	}
	fclose(maps);
	return n;
}

static void setup(void)
{
	unsetenv("KVMM_SOCKET");
	unsetenv("KVMM_RUNDIR");
	fake_init(&f);
	k = NULL;
	text[0] = '\0';
	params = (struct kvmm_params) {
		.socket = f.addr.sun_path,
		.domain = "test",
		.identity = identity,
		.block_tokens = 16,
		.group[0] = { .layers = 4, .kv_heads = 2, .k_bytes = 32,
			   .v_bytes = 32 },
		.max_bytes = KVMM_LIMIT_MAX,
		.spin = 200,
		.attach_timeout_ms = 2000,
	};
}

static void attach(void)
{
	ck_assert_msg(!kvmm_attach(&params, &k, text), "%s", text);
	fake_wait_serving(&f);
}

/* Can this process read @p?  The check causes no fault. */
static bool readable(const void *p)
{
	int fds[2];
	bool yes;

	ck_assert_int_eq(pipe(fds), 0);
	yes = write(fds[1], p, 1) == 1;
	close(fds[0]);
	close(fds[1]);
	return yes;
}

START_TEST(test_attach_and_detach)
{
	const u32 fds = nr_fds(), maps = nr_maps();

	fake_start(&f);
	attach();
	ck_assert_uint_eq(kvmm_info(k)->client, 3);
	ck_assert_uint_eq(kvmm_info(k)->daemon_epoch, 7);
	ck_assert_uint_eq((uintptr_t)kvmm_pool(k) % (2 << 20), 0);
	ck_assert(!readable(kvmm_pool(k)));
	ck_assert(kvmm_alive(k));
	ck_assert_int_eq(kvmm_nop(k), 0);
	kvmm_detach(k);
	fake_stop(&f);
	ck_assert_uint_eq(fake_ops(&f, KVMM_OP_DETACH), 1);
	ck_assert_ptr_null(fake_broken(&f));
	ck_assert_uint_eq(nr_fds(), fds);
	ck_assert_uint_eq(nr_maps(), maps);
}
END_TEST

START_TEST(test_request_says_what_was_asked)
{
	params.max_bytes = 12345;
	params.max_seqs = 17;
	params.max_steps = 3;
	fake_start(&f);
	attach();
	ck_assert_uint_eq(f.req.abi_version, KVMM_ABI_VERSION);
	ck_assert(f.req.layout_hash == KVMM_LAYOUT_HASH);
	ck_assert_str_eq(f.req.domain, "test");
	ck_assert_mem_eq(f.req.identity, identity, sizeof(identity));
	ck_assert_uint_eq(f.req.block_tokens, 16);
	ck_assert_uint_eq(f.req.nr_shards, 1);
	ck_assert_uint_eq(f.req.nr_groups, 1);
	ck_assert_uint_eq(f.req.max_seqs, 17);
	ck_assert_uint_eq(f.req.max_steps, 3);
	ck_assert_uint_eq(f.req.group[0].kv_heads, 2);
	ck_assert_uint_eq(f.req.limits[0].max, 12345);
	ck_assert(f.req.limits[1].max == KVMM_LIMIT_MAX);
	ck_assert_uint_eq(f.req.step_tokens, 0);
	kvmm_detach(k);
	fake_stop(&f);
}
END_TEST

/* Two groups in the request, and results of a step for both. */
START_TEST(test_groups)
{
	struct kvmm_begin_arg begin[2] = {
		{ .seq = 1, .start = 40, .max_tokens = 1 },
		{ .seq = 2, .start = 50, .max_tokens = 1 },
	};
	struct kvmm_begin_res res[4];
	struct kvmm_end_res end_res;

	params.nr_groups = 2;
	params.step_tokens = 512;
	params.group[1] = (struct kvmm_group){
		.layers = 2, .kv_heads = 2, .k_bytes = 32, .v_bytes = 32,
		.window = 100, .block_tokens = 32,
	};
	params.group[2].layers = 7;
	f.rep.stride[1] = 2048;
	fake_start(&f);
	attach();
	ck_assert_uint_eq(f.req.nr_groups, 2);
	ck_assert_uint_eq(f.req.step_tokens, 512);
	ck_assert_uint_eq(f.req.group[0].layers, 4);
	ck_assert_uint_eq(f.req.group[1].window, 100);
	ck_assert_uint_eq(f.req.group[1].block_tokens, 32);
	ck_assert_uint_eq(f.req.group[2].layers, 0);
	ck_assert_uint_eq(kvmm_nr_groups(k), 2);
	ck_assert_int_eq(kvmm_step_begin(k, 1, begin, 2, res), 0);
	ck_assert_uint_eq(res[0].valid_len, 40);
	ck_assert_uint_eq(res[1].valid_len, 40);
	ck_assert_uint_eq(res[3].valid_len, 50);
	ck_assert_uint_eq(res[2].table_lo, KVMM_NO_INDEX);
	ck_assert_uint_eq(res[3].table_lo, 0);
	ck_assert_int_eq(kvmm_step_end(k, 1, 0, 0, NULL, 0, NULL, &end_res), 0);
	kvmm_detach(k);
	fake_stop(&f);
	ck_assert_ptr_null(fake_broken(&f));
}
END_TEST

START_TEST(test_too_many_groups)
{
	params.nr_groups = KVMM_MAX_GROUPS + 1;
	ck_assert_int_eq(kvmm_attach(&params, &k, text), -EINVAL);
	ck_assert_msg(strstr(text, "9 layer groups") != NULL, "%s", text);
}
END_TEST

START_TEST(test_hundred_cycles)
{
	const u32 fds = nr_fds(), maps = nr_maps();
	u32 i;

	fake_start(&f);
	for (i = 0; i < 100; i++) {
		attach();
		ck_assert_int_eq(kvmm_nop(k), 0);
		kvmm_detach(k);
	}
	fake_stop(&f);
	ck_assert_uint_eq(fake_ops(&f, KVMM_OP_DETACH), 100);
	ck_assert_uint_eq(nr_fds(), fds);
	ck_assert_uint_eq(nr_maps(), maps);
}
END_TEST

/* A detach ends open steps: hanging up in a step counts as death. */
START_TEST(test_detach_ends_steps)
{
	struct kvmm_begin_arg begin = { .seq = 1, .max_tokens = 1 };
	struct kvmm_begin_res begin_res;
	struct kvmm_end_arg end = { .seq = 1 };
	struct kvmm_end_res end_res;

	fake_start(&f);
	attach();
	ck_assert_int_eq(kvmm_step_begin(k, 10, &begin, 1, &begin_res), 0);
	ck_assert_int_eq(kvmm_step_begin(k, 11, &begin, 1, &begin_res), 0);
	ck_assert_int_eq(kvmm_step_end(k, 10, 0, 0, &end, 1, NULL, &end_res), 0);
	ck_assert_int_eq(kvmm_step_begin(k, 12, &begin, 1, &begin_res), 0);
	kvmm_detach(k);
	fake_stop(&f);
	ck_assert_uint_eq(fake_ops(&f, KVMM_OP_STEP_END), 3);
	ck_assert_uint_eq(fake_ops(&f, KVMM_OP_DETACH), 1);
	ck_assert_ptr_null(fake_broken(&f));
}
END_TEST

START_TEST(test_detach_nothing)
{
	kvmm_detach(NULL);
}
END_TEST

/* ------------------------------------------------------------------ */
/* Wrong answers                                                       */

/* One way to spoil the answer, and the expected error text. */
struct refusal {
	void		(*spoil)(struct fake *fk);
	int		err;
	const char	*says;
};

#define SPOIL(name, stmt)						\
	static void spoil_##name(struct fake *fk)			\
	{								\
		struct kvmm_attach_rep *r __maybe_unused = &fk->rep;	\
									\
		stmt;							\
	}

SPOIL(magic, r->magic++)
SPOIL(abi, r->abi_version = 3; r->status = -EPROTONOSUPPORT)
SPOIL(abi_short, r->abi_version = 9; fk->rep_bytes = 16)
SPOIL(short, fk->rep_bytes = 100)
SPOIL(tiny, fk->rep_bytes = 8)
SPOIL(hash, r->layout_hash ^= 1)
SPOIL(status, r->status = -EBUSY; strcpy(r->text, "the name is taken"))
SPOIL(status_bare, r->status = -ENOSPC)
SPOIL(status_odd, r->status = 7)
SPOIL(status_wild, r->status = INT32_MIN)
SPOIL(text_open, r->status = -EBUSY; memset(r->text, 'x', sizeof(r->text)))
SPOIL(two_fds, fk->nr_fds = 2)
SPOIL(four_fds, fk->nr_fds = 4)
SPOIL(no_fds, fk->nr_fds = 0)
SPOIL(hang_up, fk->hang_up = true)
SPOIL(mute, fk->mute = true; params.attach_timeout_ms = 100)
SPOIL(sq_odd, r->sq_entries = 12)
SPOIL(sq_none, r->sq_entries = 0)
SPOIL(sq_far, r->sq_off = 1u << 31)
SPOIL(sq_long, r->sq_entries = 1u << 20)
SPOIL(sq_huge, r->sq_entries = 1u << 31)
SPOIL(sq_on_ctl, r->sq_off = 64)
SPOIL(sq_skew, r->sq_off += 8)
SPOIL(arg_far, r->arg_off = r->c_bytes - 8)
SPOIL(arg_odd, r->arg_bytes = 4001)
SPOIL(arg_on_sq, r->arg_off = r->sq_off + 64)
SPOIL(c_short, r->c_bytes = 2 << 20)
SPOIL(d_short, r->d_bytes = 2 << 20)
SPOIL(file_short, fk->keep_size = 4096)
SPOIL(cq_far, r->cq_off = 1u << 31)
SPOIL(cq_odd, r->cq_entries = 3)
SPOIL(result_far, r->result_off = r->d_bytes)
SPOIL(result_none, r->result_bytes = 0)
SPOIL(event_far, r->event_off = 0xfffffff0)
SPOIL(event_odd, r->event_entries = 7)
SPOIL(seq_far, r->max_seqs = 1u << 26)
SPOIL(seq_wild, r->max_seqs = 0xffffffff)
SPOIL(extent_rec, r->extent_off = 0xfffffff8)
SPOIL(table_far, r->nr_tables = 64)
SPOIL(table_on, r->table_off = r->seq_off)
SPOIL(ext_size, r->extent_size = 65535)
SPOIL(ext_tiny, r->extent_size = 64; r->pool_bytes = 512)
SPOIL(ext_zero, r->extent_size = 0)
SPOIL(pool_sum, r->pool_bytes += 65536)
SPOIL(pool_huge, r->extent_size = 1ull << 46; r->pool_bytes = 1ull << 49)
SPOIL(pool_none, r->nr_extents = 0; r->pool_bytes = 0)
SPOIL(unit_zero, r->unit = 0)
SPOIL(unit_odd, r->unit = 48)
SPOIL(unit_small, r->extent_size = 1ull << 40; r->pool_bytes = 1ull << 43)
SPOIL(block_none, r->block_bytes = 0)
SPOIL(block_big, r->block_bytes = r->pool_bytes + 64)
SPOIL(shards_none, r->nr_shards = 0)
SPOIL(shards_many, r->nr_shards = 9)
SPOIL(shard_first, r->shard_off[0] = 65536)
SPOIL(shard_same, r->nr_shards = 2)
SPOIL(shard_far, r->nr_shards = 2; r->shard_off[1] = r->pool_bytes)
SPOIL(shard_skew, r->nr_shards = 2; r->shard_off[1] = 100)
SPOIL(stride, r->stride[0] = 0)
SPOIL(stride_big, r->stride[0] = 1025)
SPOIL(stride_none, params.nr_groups = 2; params.group[1].layers = 2)
SPOIL(stride_second, params.nr_groups = 2; params.group[1].layers = 2; r->stride[1] = 2049)
SPOIL(batch, r->max_batch = 0)
SPOIL(steps, r->max_steps = 5)

static const struct refusal refusals[] = {
	{ spoil_magic,		-EPROTO, "is not kvmm" },
	{ spoil_abi,		-EPROTONOSUPPORT, "speaks ABI 3, this program 2" },
	{ spoil_abi_short,	-EPROTONOSUPPORT, "speaks ABI 9" },
	{ spoil_short,		-EPROTO, "has 100 bytes" },
	{ spoil_tiny,		-EPROTO, "is not kvmm" },
	{ spoil_hash,		-EPROTONOSUPPORT, "another kvmm.h" },
	{ spoil_status,		-EBUSY, "the name is taken" },
	{ spoil_status_bare,	-ENOSPC, "No space left" },
	{ spoil_status_odd,	-EPROTO, "" },
	{ spoil_status_wild,	-EPROTO, "" },
	{ spoil_text_open,	-EBUSY, "xxxx" },
	{ spoil_two_fds,	-EPROTO, "sent 2 descriptors" },
	{ spoil_four_fds,	-EPROTO, "sent 4 descriptors" },
	{ spoil_no_fds,		-EPROTO, "sent 0 descriptors" },
	{ spoil_hang_up,	-ECONNRESET, "hung up without an answer" },
	{ spoil_mute,		-ETIMEDOUT, "does not answer" },
	{ spoil_sq_odd,		-EPROTO, "ring is not a power of two" },
	{ spoil_sq_none,	-EPROTO, "ring is not a power of two" },
	{ spoil_sq_far,		-EPROTO, "submission ring lies outside" },
	{ spoil_sq_long,	-EPROTO, "submission ring lies outside" },
	{ spoil_sq_huge,	-EPROTO, "too long" },
	{ spoil_sq_on_ctl,	-EPROTO, "submission ring overlaps" },
	{ spoil_sq_skew,	-EPROTO, "submission ring is empty or not al" },
	{ spoil_arg_far,	-EPROTO, "argument area lies outside" },
	{ spoil_arg_odd,	-EPROTO, "multiple of 8" },
	{ spoil_arg_on_sq,	-EPROTO, "argument area overlaps" },
	{ spoil_c_short,	-EPROTO, "segment is shorter" },
	{ spoil_d_short,	-EPROTO, "segment is shorter" },
	{ spoil_file_short,	-EPROTO, "segment is shorter" },
	{ spoil_cq_far,		-EPROTO, "completion ring lies outside" },
	{ spoil_cq_odd,		-EPROTO, "ring is not a power of two" },
	{ spoil_result_far,	-EPROTO, "result area lies outside" },
	{ spoil_result_none,	-EPROTO, "result area is empty" },
	{ spoil_event_far,	-EPROTO, "event ring lies outside" },
	{ spoil_event_odd,	-EPROTO, "ring is not a power of two" },
	{ spoil_seq_far,	-EPROTO, "sequence records lies outside" },
	{ spoil_seq_wild,	-EPROTO, "sequence records lies outside" },
	{ spoil_extent_rec,	-EPROTO, "extent records lies outside" },
	{ spoil_table_far,	-EPROTO, "table area lies outside" },
	{ spoil_table_on,	-EPROTO, "table area overlaps" },
	{ spoil_ext_size,	-EPROTO, "extent_size" },
	{ spoil_ext_tiny,	-EPROTO, "extent_size" },
	{ spoil_ext_zero,	-EPROTO, "extent_size" },
	{ spoil_pool_sum,	-EPROTO, "pool_bytes" },
	{ spoil_pool_huge,	-EPROTO, "pool_bytes" },
	{ spoil_pool_none,	-EPROTO, "pool_bytes" },
	{ spoil_unit_zero,	-EPROTO, "unit" },
	{ spoil_unit_odd,	-EPROTO, "unit" },
	{ spoil_unit_small,	-EPROTO, "unit" },
	{ spoil_block_none,	-EPROTO, "block_bytes" },
	{ spoil_block_big,	-EPROTO, "block_bytes" },
	{ spoil_shards_none,	-EPROTO, "nr_shards" },
	{ spoil_shards_many,	-EPROTO, "nr_shards" },
	{ spoil_shard_first,	-EPROTO, "nr_shards" },
	{ spoil_shard_same,	-EPROTO, "shard_off" },
	{ spoil_shard_far,	-EPROTO, "shard_off" },
	{ spoil_shard_skew,	-EPROTO, "shard_off" },
	{ spoil_stride,		-EPROTO, "stride" },
	{ spoil_stride_big,	-EPROTO, "stride" },
	{ spoil_stride_none,	-EPROTO, "stride" },
	{ spoil_stride_second,	-EPROTO, "stride" },
	{ spoil_batch,		-EPROTO, "max_batch" },
	{ spoil_steps,		-EPROTO, "max_steps" },
};

/* The error is one line that contains @says. */
static void check_text(const char *says)
{
	ck_assert_uint_gt(strlen(text), 5);
	ck_assert_uint_lt(strlen(text), 256);
	ck_assert_ptr_null(strchr(text, '\n'));
	ck_assert_msg(strstr(text, says), "said '%s', not '%s'", text, says);
}

START_TEST(test_wrong_answer)
{
	const struct refusal *r = &refusals[_i];
	const u32 fds = nr_fds(), maps = nr_maps();

	r->spoil(&f);
	fake_start(&f);
	ck_assert_int_eq(kvmm_attach(&params, &k, text), r->err);
	ck_assert_ptr_null(k);
	check_text(r->says);
	fake_stop(&f);
	ck_assert_uint_eq(nr_fds(), fds);
	ck_assert_uint_eq(nr_maps(), maps);
}
END_TEST

/* ------------------------------------------------------------------ */
/* No daemon                                                           */

static void refused(int err, const char *says)
{
	ck_assert_int_eq(kvmm_attach(&params, &k, text), err);
	ck_assert_ptr_null(k);
	check_text(says);
}

START_TEST(test_no_daemon)
{
	char path[600];
	int fd;

	refused(-ENOENT, "start it with kvmm-hold");
	ck_assert_ptr_nonnull(strstr(text, f.addr.sun_path));

	/* A socket that has no listener any more. */
	fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&f.addr, sizeof(f.addr)),
			 0);
	close(fd);
	refused(-ECONNREFUSED, "start it with kvmm-hold");
	unlink(f.addr.sun_path);

	/* A socket of another kind. */
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&f.addr, sizeof(f.addr)),
			 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	refused(-EPROTOTYPE, "is no socket of kvmm");
	close(fd);
	unlink(f.addr.sun_path);

	memset(path, 'p', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	params.socket = path;
	refused(-ENAMETOOLONG, "too long");
	path[200] = '\0';
	refused(-ENAMETOOLONG, "longer than 107 bytes");
}
END_TEST

START_TEST(test_bad_parameters)
{
	char name[KVMM_NAME_LEN + 1];

	params.domain = NULL;
	refused(-EINVAL, "name of a domain");
	params.domain = "";
	refused(-EINVAL, "name of a domain");
	memset(name, 'n', KVMM_NAME_LEN);
	name[KVMM_NAME_LEN] = '\0';
	params.domain = name;
	refused(-EINVAL, "name of a domain");
	params.domain = "test";
	params.identity = NULL;
	refused(-EINVAL, "identity");
}
END_TEST

START_TEST(test_default_sockets)
{
	params.socket = NULL;
	setenv("XDG_RUNTIME_DIR", "/nowhere/xdg", 1);
	refused(-ENOENT, "/nowhere/xdg/kvmm/attach.sock");
	setenv("KVMM_RUNDIR", "/nowhere/run", 1);
	refused(-ENOENT, "/nowhere/run/attach.sock");
	setenv("KVMM_SOCKET", "/nowhere/socket", 1);
	refused(-ENOENT, " /nowhere/socket:");
	unsetenv("KVMM_SOCKET");
	unsetenv("KVMM_RUNDIR");
	unsetenv("XDG_RUNTIME_DIR");
	/* The default socket is refused only if this machine has no daemon there. */
	if (!geteuid() && access("/run/kvmm/attach.sock", F_OK))
		refused(-ENOENT, "/run/kvmm/attach.sock");

	fake_start(&f);
	setenv("KVMM_SOCKET", f.addr.sun_path, 1);
	attach();
	kvmm_detach(k);
	fake_stop(&f);
}
END_TEST

/* The daemon is there but accepts no client: its queue is full. */
START_TEST(test_full_queue)
{
	int fd, i, clients[8], nr = 0;

	fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&f.addr, sizeof(f.addr)),
			 0);
	ck_assert_int_eq(listen(fd, 0), 0);
	for (i = 0; i < 8; i++) {
		clients[nr] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
		if (connect(clients[nr++], (struct sockaddr *)&f.addr,
			    sizeof(f.addr)))
			break;
	}
	params.attach_timeout_ms = 100;
	refused(-ETIMEDOUT, "accepts no client");
	while (nr--)
		close(clients[nr]);
	close(fd);
	unlink(f.addr.sun_path);
}
END_TEST

/* ------------------------------------------------------------------ */
/* The end                                                             */

static const u32 spins[] = { 0, 200, KVMM_SPIN_FOREVER };

static s64 now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (s64)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void *killer(void *arg)
{
	usleep(50000);
	fake_die(&f);
	return NULL;
}

/* From now on every call returns -ECONNRESET, and the text gives the reason. */
static void check_ended(const char *says)
{
	struct kvmm_done done;
	struct kvmm_open_arg open_arg = { .prompt_len = 1 };
	struct kvmm_open_res open_res;
	void *args;

	ck_assert(!kvmm_alive(k));
	ck_assert_int_eq(kvmm_wait(k, -1), -ECONNRESET);
	ck_assert_int_eq(kvmm_reap(k, &done), -ECONNRESET);
	ck_assert_int_eq(kvmm_submit(k), -ECONNRESET);
	ck_assert_int_eq(kvmm_poll_extents(k), -ECONNRESET);
	ck_assert_int_eq(kvmm_nop(k), -ECONNRESET);
	ck_assert_int_eq(kvmm_seq_open(k, &open_arg, 1, &open_res),
			 -ECONNRESET);
	ck_assert_ptr_null(kvmm_prep(k, KVMM_OP_NOP, 0, 0, &args));
	snprintf(text, sizeof(text), "%s", kvmm_strerror_attach(k));
	check_text(says);
}

START_TEST(test_death_while_waiting)
{
	const u32 fds = nr_fds(), maps = nr_maps();
	pthread_t thread;
	s64 start;
	void *args;

	params.spin = spins[_i];
	fake_start(&f);
	attach();
	fake_hold(&f, 1);
	ck_assert_ptr_nonnull(kvmm_prep(k, KVMM_OP_NOP, 0, 0, &args));
	ck_assert_int_eq(kvmm_submit(k), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, killer, NULL), 0);
	start = now_ns();
	ck_assert_int_eq(kvmm_wait(k, -1), -ECONNRESET);
	ck_assert_int_lt(now_ns() - start, 2000000000);
	pthread_join(thread, NULL);
	check_ended("the kvmm daemon died");
	kvmm_detach(k);
	fake_stop(&f);
	ck_assert_uint_eq(nr_fds(), fds);
	ck_assert_uint_eq(nr_maps(), maps);
}
END_TEST

START_TEST(test_death_during_a_call)
{
	pthread_t thread;

	params.spin = spins[_i];
	fake_start(&f);
	attach();
	fake_hold(&f, 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, killer, NULL), 0);
	ck_assert_int_eq(kvmm_nop(k), -ECONNRESET);
	pthread_join(thread, NULL);
	check_ended("the kvmm daemon died");
	kvmm_detach(k);
	fake_stop(&f);
}
END_TEST

/* The next daemon answers, but sends useless segments. */
START_TEST(test_resume_without_segments)
{
	const u32 maps = nr_maps();
	struct kvmm_done done;
	void *args;

	f.rep.features = KVMM_FEAT_RESUME;
	fake_start(&f);
	attach();
	ck_assert_ptr_nonnull(kvmm_prep(k, KVMM_OP_NOP, 0, 0, &args));
	ck_assert_int_eq(kvmm_submit(k), 0);
	ck_assert_int_eq(kvmm_wait(k, 1000000000), 0);
	ck_assert_int_eq(kvmm_reap(k, &done), 1);
	pthread_mutex_lock(&f.lock);
	f.rep.resumed = KVMM_RESUMED_WHOLE;
	f.rep.committed = done.number;
	f.rep.ring_index = 1;
	f.keep_size = 4096;
	shutdown(f.sock, SHUT_RDWR);
	pthread_mutex_unlock(&f.lock);
	while (kvmm_alive(k))
		usleep(1000);
	/* The client lost its state, but kept its mappings until the detach. */
	kvmm_release(k);
	check_ended("segment");
	kvmm_detach(k);
	fake_stop(&f);
	ck_assert_uint_eq(nr_maps(), maps);
}
END_TEST

/* The text of each state; some states include the reason. */
static const struct {
	u32		state;
	int		reason;
	const char	*says;
} ends[] = {
	{ KVMM_CLIENT_SHUTDOWN, -ESHUTDOWN, "shutting down" },
	{ KVMM_CLIENT_EXPELLED, -EPROTO, "broke the protocol" },
	{ KVMM_CLIENT_EXPELLED, -ETIME, "past its deadline" },
	{ KVMM_CLIENT_EXPELLED, -EIO, "Input/output error" },
	{ KVMM_CLIENT_DETACHED, 0, "has detached" },
	{ 99, 0, "a state that is none" },
};

START_TEST(test_ended_by_the_daemon)
{
	fake_start(&f);
	attach();
	ck_assert_str_eq(kvmm_strerror_attach(k), "the attachment stands");
	fake_set_state(&f, ends[_i].state, ends[_i].reason);
	check_ended(ends[_i].says);
	/* The first reason stays. */
	fake_die(&f);
	check_ended(ends[_i].says);
	kvmm_detach(k);
	fake_stop(&f);
}
END_TEST

/* A client can detach from a daemon that does not answer DETACH. */
START_TEST(test_detach_from_a_stuck_daemon)
{
	s64 start;

	fake_start(&f);
	attach();
	fake_hold(&f, 1);
	start = now_ns();
	kvmm_detach(k);
	ck_assert_int_lt(now_ns() - start, 3000000000);
	fake_stop(&f);
}
END_TEST

/* Extents that arrive while the client detaches are only closed. */
START_TEST(test_map_while_detaching)
{
	const u32 fds = nr_fds(), maps = nr_maps();
	struct kvmm_map_entry e = { 3, 1 };
	int fd = fake_memfd(FAKE_EXT_SIZE);

	fake_start(&f);
	attach();
	fake_hold(&f, 1);
	fake_send_map(&f, KVMM_MAP_MAGIC, 1, &e, &fd, 1);
	fake_event(&f, KVMM_EV_MAP, 3);
	close(fd);
	kvmm_detach(k);
	fake_stop(&f);
	ck_assert_uint_eq(nr_fds(), fds);
	ck_assert_uint_eq(nr_maps(), maps);
}
END_TEST

/* ------------------------------------------------------------------ */
/* Identity                                                            */

/* Fields as "tag=data;tag=data"; the digest lands in @out. */
static void digest(const char *fields, u8 *out)
{
	struct kvmm_identity id;
	const char *eq, *end;
	char tag[64];

	kvmm_identity_init(&id);
	for (; *fields; fields = *end ? end + 1 : end) {
		eq = strchr(fields, '=');
		end = strchrnul(eq, ';');
		snprintf(tag, sizeof(tag), "%.*s", (int)(eq - fields), fields);
		kvmm_identity_add(&id, tag, eq + 1, (size_t)(end - eq - 1));
	}
	kvmm_identity_final(&id, out);
}

static const char * const identities[] = {
	"", "a=", "=a", "a=b", "a=bc", "ab=c", "a=b;c=d", "c=d;a=b", "a=bc;=d",
	"a=b;=", "a=b;=;=", "a=b;c=",
};

START_TEST(test_identity_tells_fields_apart)
{
	u8 seen[ARRAY_SIZE(identities)][KVMM_IDENTITY_LEN], again[32];
	u32 i, j;

	for (i = 0; i < ARRAY_SIZE(identities); i++) {
		digest(identities[i], seen[i]);
		digest(identities[i], again);
		ck_assert_mem_eq(seen[i], again, 32);
		ck_assert_mem_ne(seen[i], seen[i] + 16, 16);
		for (j = 0; j < i; j++)
			ck_assert_msg(memcmp(seen[i], seen[j], 32),
				      "'%s' and '%s' are one", identities[i],
				      identities[j]);
	}
}
END_TEST

/* No file stores the digest, but two builds must agree on it. */
START_TEST(test_identity_is_stable)
{
	static const char want[] =
		"d145d029e420a46c25e3d3b54dbb9e7860996938c46e4be52d7d1d5c5fd611ac";
	char got[65];
	u8 out[32];
	u32 i;

	digest("config=llama;weights=abc", out);
	for (i = 0; i < 32; i++)
		sprintf(got + 2 * i, "%02x", out[i]);
	ck_assert_str_eq(got, want);
}
END_TEST

START_TEST(test_identity_of_much_data)
{
	const size_t len = 1000003;
	struct kvmm_identity id[2];
	u8 *data, out[2][32];
	size_t i;

	data = malloc(len);
	ck_assert_ptr_nonnull(data);
	for (i = 0; i < len; i++)
		data[i] = (u8)(i * 7 + (i >> 8));
	for (i = 0; i < 2; i++) {
		kvmm_identity_init(&id[i]);
		kvmm_identity_add(&id[i], "weights", data, len);
		kvmm_identity_final(&id[i], out[i]);
		data[len - 1] ^= 1;
	}
	ck_assert_mem_ne(out[0], out[1], 32);
	ck_assert_mem_ne(out[0], out[1], 16);
	ck_assert_mem_ne(out[0] + 16, out[1] + 16, 16);
	free(data);
}
END_TEST

static Suite *libkvmm_suite(void)
{
	Suite *s = suite_create("libkvmm");
	TCase *tc = tcase_create("attach");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_set_timeout(tc, 10);
	tcase_add_test(tc, test_attach_and_detach);
	tcase_add_test(tc, test_request_says_what_was_asked);
	tcase_add_test(tc, test_groups);
	tcase_add_test(tc, test_too_many_groups);
	tcase_add_test(tc, test_hundred_cycles);
	tcase_add_test(tc, test_detach_ends_steps);
	tcase_add_test(tc, test_detach_nothing);
	tcase_add_loop_test(tc, test_wrong_answer, 0, ARRAY_SIZE(refusals));
	tcase_add_test(tc, test_no_daemon);
	tcase_add_test(tc, test_bad_parameters);
	tcase_add_test(tc, test_default_sockets);
	tcase_add_test(tc, test_full_queue);
	suite_add_tcase(s, tc);

	tc = tcase_create("end");
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_set_timeout(tc, 10);
	tcase_add_loop_test(tc, test_death_while_waiting, 0, ARRAY_SIZE(spins));
	tcase_add_loop_test(tc, test_death_during_a_call, 0, ARRAY_SIZE(spins));
	tcase_add_test(tc, test_resume_without_segments);
	tcase_add_loop_test(tc, test_ended_by_the_daemon, 0, ARRAY_SIZE(ends));
	tcase_add_test(tc, test_detach_from_a_stuck_daemon);
	tcase_add_test(tc, test_map_while_detaching);
	suite_add_tcase(s, tc);

	tc = tcase_create("identity");
	tcase_add_test(tc, test_identity_tells_fields_apart);
	tcase_add_test(tc, test_identity_is_stable);
	tcase_add_test(tc, test_identity_of_much_data);
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
