// SPDX-License-Identifier: Apache-2.0
/*
 * check_dev_cuda.c - the CUDA backend over the stand-in for a driver
 *
 * Runs the real backend and the real copier thread.  The memory of the GPU is
 * host memory (tests/standin), so a test reads it through the descriptor of an
 * extent.  The stand-in counts resources that were made and given back, and
 * prints the counts when its process ends.  So every scene runs in a separate
 * process.  The test judges it by these counts and by its standard error.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvmm/cudrv.h>
#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/dev/cuda.h"
#include "tests/unit/tiers_fixture.h"

#define BLOCK	(24u << 10)
#define GRAN	"65536"		/* an extent of the fixture */

static char dir[128], lib[512];
static char pattern[2 * TF_EXTENT], back[2 * TF_EXTENT];

/* ---- a process and its result ---- */

/**
 * struct scene - one child process
 * @err:    its standard error
 * @count:  the stand-in's line
 * @status: as waitpid()'s
 */
struct scene {
	char	err[8192];
	char	count[1024];
	int	status;
};

static void read_whole(const char *name, char *text, size_t len)
{
	char path[256];
	size_t n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "r");
	if (f) {
		n = fread(text, 1, len - 1, f);
		fclose(f);
		unlink(path);
	}
	text[n] = '\0';
}

static void child_begin(const char *fail)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/err", dir);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || dup2(fd, STDERR_FILENO) < 0)
		_exit(99);
	snprintf(path, sizeof(path), "%s/count", dir);
	setenv("KVMM_STANDIN_COUNT", path, 1);
	setenv("KVMM_STANDIN_FAIL", fail ? fail : "", 1);
}

/* Run @fn in a child process; @fail is KVMM_STANDIN_FAIL. */
static void play(struct scene *s, const char *fail, int (*fn)(void))
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		child_begin(fail);
		/* A failed assertion ends the child, as in a test. */
		exit(fn());
	}
	ck_assert_int_eq(waitpid(pid, &s->status, 0), pid);
	read_whole("err", s->err, sizeof(s->err));
	read_whole("count", s->count, sizeof(s->count));
}

static u64 counted(const struct scene *s, const char *name)
{
	char key[64];
	const char *at;

	snprintf(key, sizeof(key), " %s=", name);
	at = strstr(s->count, key);
	ck_assert_msg(at, "no %s in '%s'; standard error: %s", name, s->count,
		      s->err);
	return strtoull(at + strlen(key), NULL, 10);
}

/* Everything that was made was given back. */
static void expect_no_leak(const struct scene *s, const char *what)
{
	static const char * const pairs[][2] = {
		{ "mapped", "unmapped" }, { "pinned", "unpinned" },
		{ "streams", "streams_gone" }, { "events", "events_gone" },
	};
	u32 i;

	ck_assert_msg(counted(s, "created") + counted(s, "imported") ==
		      counted(s, "released"), "%s: handles: %s", what,
		      s->count);
	for (i = 0; i < ARRAY_SIZE(pairs); i++)
		ck_assert_msg(counted(s, pairs[i][0]) ==
			      counted(s, pairs[i][1]), "%s: %s: %s", what,
			      pairs[i][0], s->count);
}

static void expect_end(const struct scene *s, int code, const char *what)
{
	ck_assert_msg(WIFEXITED(s->status) && WEXITSTATUS(s->status) == code,
		      "%s: status %x, not %d: %s", what, s->status, code,
		      s->err);
}

static u32 lines_with(const char *text, const char *word)
{
	u32 n = 0;

	while ((text = strstr(text, word))) {
		n++;
		text += strlen(word);
	}
	return n;
}

/* ---- the parts of a daemon that a backend needs ---- */

/* Return: 0, or -errno. */
static int scene_open(void)
{
	struct hostpool_ask ask = { .epoch = 1, .near = -1, .stop = -1 };
	char why[512];
	int err;

	tf_setup();
	td->setup.dev.ops = dev_select(KVMM_BACKEND_CUDA, why, sizeof(why));
	if (!td->setup.dev.ops) {
		pr_err("%s", why);
		return -ENODEV;
	}
	td->setup.dev.extent_size = TF_EXTENT;
	err = td->setup.dev.ops->open(&td->setup.dev);
	if (!err)
		err = td->setup.dev.ops->reserve(&td->setup.dev, td->setup.cfg.pool_bytes);
	if (!err)
		err = mapper_init(&td->mapper);
	if (err)
		return err;
	ask.bytes = td->setup.cfg.host_bytes;
	err = hostpool_create(&td->setup.host, &ask);
	if (!err)
		err = copier_init(&td->copier);
	if (!err)
		err = td->setup.dev.ops->host_open(&td->setup.dev, td->setup.host.base,
						   td->setup.host.bytes);
	return err;
}

static int extent_make(u32 i)
{
	return td->setup.dev.ops->extent_create(&td->setup.dev, i, 1,
						&td->extents.table[i].fd);
}

static void scene_close(void)
{
	ck_assert(copier_stop(&td->copier));
	copier_exit(&td->copier);
	mapper_exit(&td->mapper);
	if (td->setup.dev.ops)
		td->setup.dev.ops->close(&td->setup.dev);
	hostpool_destroy(&td->setup.host);
	tf_teardown();
}

/* The content of an extent, as a holder of its descriptor sees it. */
static char *extent_look(u32 i)
{
	char *p = mmap(NULL, TF_EXTENT, PROT_READ | PROT_WRITE, MAP_SHARED,
		       td->extents.table[i].fd, 0);

	ck_assert_ptr_ne(p, MAP_FAILED);
	return p;
}

static void push(u64 id, u32 dir_, u64 dev_off, u64 to, u64 bytes)
{
	const struct core_copy cp = {
		.nr_shards = 1,
		.id = id, .to_host = dir_ == DEV_COPY_OUT,
		.within = dir_ == DEV_COPY_WITHIN, .dev_off = dev_off,
		.dev_to = dir_ == DEV_COPY_WITHIN ? to : 0,
		.host_off = dir_ == DEV_COPY_WITHIN ? 0 : to, .bytes = bytes,
	};

	copier_push(&td->copier, &cp);
}

static struct copy_done next_done(void)
{
	struct copy_done done;
	u32 tries;

	for (tries = 0; !queue_pop(&td->copier.done, &done); tries++) {
		ck_assert_uint_lt(tries, 100000);
		usleep(100);
	}
	return done;
}

static int copy(u64 id, u32 dir_, u64 dev_off, u64 to, u64 bytes)
{
	struct copy_done done;

	push(id, dir_, dev_off, to, bytes);
	done = next_done();
	ck_assert_uint_eq(done.id, id);
	return done.status;
}

/* ---- memory ---- */

static int play_extents(void)
{
	int second;
	char *p;
	u32 i;

	if (scene_open())
		return 1;
	for (i = 0; i < TF_EXTENTS; i++)
		ck_assert_int_eq(extent_make(i), 0);
	/* The stand-in fills new memory with bytes other than zero. */
	p = extent_look(3);
	for (i = 0; i < TF_EXTENT; i++)
		ck_assert_int_eq(p[i], 0);
	memset(p, 'a', TF_EXTENT);
	/* The extent changes hands: its new memory has nothing of the old one. */
	second = dup(td->extents.table[3].fd);
	ck_assert_int_eq(td->setup.dev.ops->extent_revoke(&td->setup.dev, 3,
							  td->extents.table[3].fd), 0);
	td->setup.dev.ops->extent_release(&td->setup.dev, 3, td->extents.table[3].fd);
	ck_assert_int_eq(extent_make(3), 0);
	memset(p, 'b', TF_EXTENT);
	munmap(p, TF_EXTENT);
	p = extent_look(3);
	for (i = 0; i < TF_EXTENT; i++)
		ck_assert_int_eq(p[i], 0);
	munmap(p, TF_EXTENT);
	close(second);
	ck_assert(!td->setup.dev.ops->takes_back);
	scene_close();
	return 0;
}

START_TEST(test_extents)
{
	struct scene s;

	play(&s, NULL, play_extents);
	expect_end(&s, 0, "extents");
	expect_no_leak(&s, "extents");
	ck_assert_uint_eq(counted(&s, "created"), TF_EXTENTS + 1);
	ck_assert_uint_eq(counted(&s, "exported"), TF_EXTENTS + 1);
	ck_assert_uint_eq(counted(&s, "mapped"), TF_EXTENTS + 1);
}
END_TEST

/* A descriptor that a daemon left stands for the memory and its content. */
static int play_adopt(void)
{
	int kept, other;
	char *p;

	if (scene_open())
		return 1;
	ck_assert_int_eq(extent_make(2), 0);
	p = extent_look(2);
	memcpy(p, pattern, TF_EXTENT);
	munmap(p, TF_EXTENT);
	kept = dup(td->extents.table[2].fd);
	td->setup.dev.ops->extent_release(&td->setup.dev, 2, td->extents.table[2].fd);
	td->extents.table[2].fd = -1;
	ck_assert(td->setup.dev.ops->extent_is_ours(&td->setup.dev, kept));
	ck_assert_int_eq(td->setup.dev.ops->extent_adopt(&td->setup.dev, 2, kept), 0);
	td->extents.table[2].fd = kept;
	ck_assert_int_eq(copier_start(&td->copier), 0);
	ck_assert_int_eq(copy(1, DEV_COPY_OUT, 2 * TF_EXTENT + 4096, 8192,
			      BLOCK), 0);
	ck_assert_mem_eq(td->setup.host.base + 8192, pattern + 4096, BLOCK);
	/* A descriptor without device memory is refused, and leaves nothing. */
	other = open("/dev/null", O_RDWR);
	ck_assert(!td->setup.dev.ops->extent_is_ours(&td->setup.dev, other));
	ck_assert_int_ne(td->setup.dev.ops->extent_adopt(&td->setup.dev, 5, other), 0);
	close(other);
	scene_close();
	return 0;
}

START_TEST(test_adopt)
{
	struct scene s;

	play(&s, NULL, play_adopt);
	expect_end(&s, 0, "adopt");
	expect_no_leak(&s, "adopt");
	ck_assert_uint_eq(counted(&s, "imported"), 2);
}
END_TEST

/* ---- copies ---- */

/* Copies out, in and within the pool, each across the end of an extent. */
static int play_copies(void)
{
	const u64 end = TF_EXTENT - BLOCK / 2;
	char *p, *q;
	u32 i;

	if (scene_open())
		return 1;
	for (i = 0; i < TF_EXTENTS; i++)
		ck_assert_int_eq(extent_make(i), 0);
	ck_assert_int_eq(copier_start(&td->copier), 0);
	p = extent_look(0);
	q = extent_look(1);
	memcpy(p + end, pattern, BLOCK / 2);
	memcpy(q, pattern + BLOCK / 2, BLOCK / 2);
	memset(td->setup.host.base, 'o', 4 * BLOCK);
	ck_assert_int_eq(copy(1, DEV_COPY_OUT, end, 4096, BLOCK - 100), 0);
	ck_assert_mem_eq(td->setup.host.base + 4096, pattern, BLOCK - 100);
	/* Its last page has no other block's bytes, and no other page changed. */
	for (i = BLOCK - 100; i < BLOCK; i++)
		ck_assert_int_eq(td->setup.host.base[4096 + i], 0);
	ck_assert_int_eq(td->setup.host.base[4095], 'o');
	ck_assert_int_eq(td->setup.host.base[4096 + BLOCK], 'o');
	ck_assert_int_eq(copy(2, DEV_COPY_IN, 2 * TF_EXTENT + end, 4096,
			      BLOCK), 0);
	ck_assert_int_eq(copy(3, DEV_COPY_WITHIN, 2 * TF_EXTENT + end,
			      5 * TF_EXTENT + end + 512, BLOCK - 100), 0);
	ck_assert_int_eq(copy(4, DEV_COPY_OUT, 5 * TF_EXTENT + end + 512, 65536,
			      BLOCK - 100), 0);
	ck_assert_mem_eq(td->setup.host.base + 65536, pattern, BLOCK - 100);
	/* A copy outside of the pool or of the host pool is refused. */
	ck_assert_int_eq(copy(5, DEV_COPY_IN, td->setup.cfg.pool_bytes - 4096, 0,
			      BLOCK), -EFAULT);
	ck_assert_int_eq(copy(6, DEV_COPY_OUT, 0, td->setup.cfg.host_bytes - 4096,
			      BLOCK), -EFAULT);
	ck_assert_int_eq(copy(7, DEV_COPY_WITHIN, 0, td->setup.cfg.pool_bytes,
			      BLOCK), -EFAULT);
	munmap(p, TF_EXTENT);
	munmap(q, TF_EXTENT);
	scene_close();
	return 0;
}

START_TEST(test_copies)
{
	struct scene s;

	play(&s, NULL, play_copies);
	expect_end(&s, 0, "copies");
	expect_no_leak(&s, "copies");
	ck_assert_uint_eq(counted(&s, "copies"), 4);
	ck_assert_uint_eq(counted(&s, "pinned"), 1);
}
END_TEST

/* Many slow copies in both directions: all end, each direction in order. */
static int play_many(void)
{
	u32 i, next[2] = { 0, 0 }, first_in = 0;
	struct copy_counts n;
	struct copy_done done;

	setenv("KVMM_STANDIN_COPY_US", "200", 1);
	if (scene_open())
		return 1;
	for (i = 0; i < TF_EXTENTS; i++)
		ck_assert_int_eq(extent_make(i), 0);
	for (i = 0; i < 100; i++)
		push(i, DEV_COPY_OUT, 0, i % 8 * 4096, 4096);
	for (i = 0; i < 100; i++)
		push(1000 + i, DEV_COPY_IN, 4 * TF_EXTENT, 65536, 4096);
	ck_assert_int_eq(copier_start(&td->copier), 0);
	for (i = 0; i < 200; i++) {
		done = next_done();
		ck_assert_int_eq(done.status, 0);
		if (done.id == 1000)
			first_in = next[0];
		ck_assert_uint_eq(done.id % 1000, next[done.id / 1000]++);
	}
	/* The first copy in did not wait for all copies out. */
	ck_assert_msg(first_in < 50, "%u went out before", first_in);
	copier_get_counts(&td->copier, &n);
	ck_assert_uint_eq(n.copy_out_bytes, 100 * 4096);
	ck_assert_uint_eq(n.copy_in_bytes, 100 * 4096);
	/* Each copy took 200 us, and copies of both directions overlap. */
	ck_assert_uint_ge(n.copy_out_ns, 100 * 200000);
	ck_assert_uint_ge(n.copy_in_ns, 100 * 200000);
	scene_close();
	return 0;
}

START_TEST(test_both_directions)
{
	struct scene s;

	play(&s, NULL, play_many);
	expect_end(&s, 0, "both directions");
	expect_no_leak(&s, "both directions");
}
END_TEST

/* A host pool of more than 32 bits; only the pages at its last seam are used. */
static int play_seam(void)
{
	const u64 seam = 5ull << 30, bytes = seam + TF_EXTENT;
	struct dev_copy cp = { .id = 7, .dir = DEV_COPY_OUT, .bytes = BLOCK };
	u32 tries = 0;
	int status;
	char *p;
	u64 id;

	if (scene_open())
		return 1;
	td->setup.dev.ops->host_close(&td->setup.dev);
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE |
		 MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	ck_assert_int_eq(td->setup.dev.ops->host_open(&td->setup.dev, p, bytes), 0);
	ck_assert_int_eq(extent_make(0), 0);
	memcpy(p + seam - 8192, pattern, BLOCK);
	cp.host = p + seam - 8192;
	cp.dir = DEV_COPY_IN;
	ck_assert_int_eq(td->setup.dev.ops->copy_begin(&td->setup.dev, &cp), 0);
	while (!td->setup.dev.ops->copy_end(&td->setup.dev, &id, &status))
		ck_assert_uint_lt(tries++, 100000);
	ck_assert_uint_eq(id, 7);
	ck_assert_int_eq(status, 0);
	ck_assert_mem_eq(extent_look(0), pattern, BLOCK);
	td->setup.dev.ops->host_close(&td->setup.dev);
	munmap(p, bytes);
	scene_close();
	return 0;
}

/* Pinned: one segment of the earlier pool, six of this one.  One copy is two calls. */
START_TEST(test_seam)
{
	struct scene s;

	play(&s, NULL, play_seam);
	expect_end(&s, 0, "seam");
	expect_no_leak(&s, "seam");
	ck_assert_uint_eq(counted(&s, "pinned"), 7);
	ck_assert_uint_eq(counted(&s, "copies"), 2);
}
END_TEST

/* A copy that the test lets fail ends in its turn, between good ones. */
static int play_faults(void)
{
	char text[128];
	u32 i;

	if (scene_open())
		return 1;
	ck_assert_int_eq(extent_make(0), 0);
	ck_assert_int_eq(kv_fault_init("copy_out_eio:3", text, sizeof(text)),
			 0);
	for (i = 0; i < 40; i++)
		push(i, DEV_COPY_OUT, 0, 0, 4096);
	ck_assert_int_eq(copier_start(&td->copier), 0);
	for (i = 0; i < 40; i++) {
		struct copy_done done = next_done();

		ck_assert_uint_eq(done.id, i);
		ck_assert_int_eq(done.status, i == 2 ? -EIO : 0);
	}
	scene_close();
	return 0;
}

START_TEST(test_copy_faults)
{
	struct scene s;

	play(&s, NULL, play_faults);
	expect_end(&s, 0, "copy faults");
	expect_no_leak(&s, "copy faults");
}
END_TEST

/*
 * A context that fails: every copy is answered, one line is logged, nothing
 * more.  The error tells whether memory of other processes is still intact.
 */
static int sticky_as(const char *fault, u32 failed)
{
	u32 i, bad = 0;

	setenv("KVMM_STANDIN_FAULT", fault, 1);
	if (scene_open())
		return 1;
	ck_assert_uint_eq(td->setup.dev.failed, DEV_WORKS);
	ck_assert_int_eq(extent_make(0), 0);
	for (i = 0; i < 60; i++)
		push(i, i % 2 ? DEV_COPY_OUT : DEV_COPY_IN, 0, 8192 * (i % 2),
		     4096);
	ck_assert_int_eq(copier_start(&td->copier), 0);
	for (i = 0; i < 60; i++)
		bad += next_done().status == -EIO;
	ck_assert_uint_ge(bad, 55);
	ck_assert_int_eq(copy(99, DEV_COPY_OUT, 0, 0, 4096), -EIO);
	ck_assert_int_eq(extent_make(1), -EIO);
	ck_assert_uint_eq(td->setup.dev.failed, failed);
	scene_close();
	/*
	 * The stand-in forgets the copies in its queues, as a driver may.  The
	 * exit without cleanup keeps them out of the count of leaks.
	 */
	_exit(0);
}

static int play_cut(void)
{
	return sticky_as("copy:5", DEV_CUT);
}

static int play_lost(void)
{
	return sticky_as("copy:5=214", DEV_LOST);
}

/* An unknown error counts as the worst one. */
static int play_unknown(void)
{
	return sticky_as("copy:5=998", DEV_LOST);
}

START_TEST(test_sticky)
{
	static int (*const scenes[])(void) = {
		play_cut, play_lost, play_unknown,
	};
	struct scene s;

	play(&s, NULL, scenes[_i]);
	expect_end(&s, 0, "sticky");
	ck_assert_msg(lines_with(s.err, "the GPU failed at") == 1, "%s", s.err);
	/* That line said all: there is none for each copy. */
	ck_assert_msg(!lines_with(s.err, "cannot be copied"), "%s", s.err);
}
END_TEST

/* One copy fails, and no other one. */
static int play_plain(void)
{
	if (scene_open())
		return 1;
	ck_assert_int_eq(extent_make(0), 0);
	ck_assert_int_eq(copier_start(&td->copier), 0);
	ck_assert_int_eq(copy(1, DEV_COPY_OUT, 0, 0, 4096), 0);
	ck_assert_int_eq(copy(2, DEV_COPY_OUT, 0, 0, 4096), -ENOMEM);
	ck_assert_int_eq(copy(3, DEV_COPY_OUT, 0, 0, 4096), 0);
	ck_assert_uint_eq(td->setup.dev.failed, DEV_WORKS);
	ck_assert_int_eq(extent_make(1), 0);
	scene_close();
	return 0;
}

START_TEST(test_plain)
{
	struct scene s;

	play(&s, "MemcpyDtoHAsync:2", play_plain);
	expect_end(&s, 0, "plain");
	expect_no_leak(&s, "plain");
	ck_assert_msg(lines_with(s.err, "cannot be copied") == 1, "%s", s.err);
	ck_assert_msg(!lines_with(s.err, "the GPU failed"), "%s", s.err);
}
END_TEST

/* ---- the Nth call fails ---- */

/* All that a daemon does with a device; a failure is reported and leaves nothing. */
static int play_whole(void)
{
	int err = scene_open();

	if (!err)
		err = extent_make(0);
	if (!err)
		err = extent_make(1);
	if (!err)
		err = copier_start(&td->copier);
	if (!err)
		err = copy(1, DEV_COPY_OUT, 0, 0, BLOCK);
	if (!err)
		err = copy(2, DEV_COPY_IN, TF_EXTENT, 0, BLOCK);
	if (!err)
		err = copy(3, DEV_COPY_WITHIN, 0, TF_EXTENT, BLOCK);
	scene_close();
	return err ? 3 : 0;
}

/* Not the calls that free: there a failure is a leak by definition. */
static const char * const calls[] = {
	"Init", "DeviceGetCount", "DeviceGet", "DevicePrimaryCtxRetain",
	"CtxSetCurrent", "DeviceGetUuid", "MemAddressReserve",
	"StreamCreateWithPriority", "EventCreate", "MemHostRegister",
	"MemCreate", "MemMap", "MemSetAccess", "MemsetD8Async",
	"StreamSynchronize", "MemExportToShareableHandle", "MemcpyDtoHAsync",
	"MemcpyHtoDAsync", "MemcpyDtoDAsync", "EventRecord",
};

START_TEST(test_nth_call)
{
	char fail[96];
	struct scene s;
	u32 n, failed = 0;

	for (n = 1; n < 100; n++) {
		snprintf(fail, sizeof(fail), "%s:%u", calls[_i], n);
		play(&s, fail, play_whole);
		if (WIFEXITED(s.status) && !WEXITSTATUS(s.status))
			break;
		expect_end(&s, 3, fail);
		failed++;
		/* A process that made no context prints no counts. */
		if (strcmp(calls[_i], "Init"))
			expect_no_leak(&s, fail);
		ck_assert_msg(lines_with(s.err, "kvmm: error") <= 1, "%s: %s",
			      fail, s.err);
	}
	ck_assert_msg(failed, "%s is never called", calls[_i]);
	expect_no_leak(&s, "after the last");
}
END_TEST

/* The same with a failure after which no later call can be believed. */
START_TEST(test_nth_fatal)
{
	char fail[96];
	struct scene s;
	u32 n, failed = 0;

	for (n = 1; n < 100; n++) {
		snprintf(fail, sizeof(fail), "%s:%u=700", calls[_i], n);
		play(&s, fail, play_whole);
		if (WIFEXITED(s.status) && !WEXITSTATUS(s.status))
			break;
		expect_end(&s, 3, fail);
		failed++;
		ck_assert_msg(lines_with(s.err, "kvmm: error") == 1, "%s: %s",
			      fail, s.err);
	}
	ck_assert_msg(failed, "%s is never called", calls[_i]);
}
END_TEST

/* ---- a driver that answers nonsense ---- */

static struct cu_api *api;	/* the table of this process, for tests to change */
static struct cu_api truth;

static CUresult lie_range(CUdeviceptr *at, size_t bytes, size_t align,
			  CUdeviceptr hint, unsigned long long flags)
{
	*at = 0;
	return CUDA_SUCCESS;
}

static CUresult lie_range_end(CUdeviceptr *at, size_t bytes, size_t align,
			      CUdeviceptr hint, unsigned long long flags)
{
	*at = UINT64_MAX / 4096 * 4096;
	return CUDA_SUCCESS;
}

static CUresult lie_range_odd(CUdeviceptr *at, size_t bytes, size_t align,
			      CUdeviceptr hint, unsigned long long flags)
{
	*at = (1ull << 40) + 8;
	return CUDA_SUCCESS;
}

static CUresult lie_stream(CUstream *s, unsigned int flags, int priority)
{
	*s = NULL;
	return CUDA_SUCCESS;
}

/* The first stream, which clears extents, is a real one. */
static CUresult lie_second_stream(CUstream *s, unsigned int flags, int priority)
{
	static u32 n;

	if (!n++)
		return truth.StreamCreateWithPriority(s, flags, priority);
	return lie_stream(s, flags, priority);
}

static CUresult lie_event(CUevent *e, unsigned int flags)
{
	*e = NULL;
	return CUDA_SUCCESS;
}

/* Returns the same memory again. */
static CUresult lie_create(CUmemGenericAllocationHandle *h, size_t bytes,
			   const struct cu_mem_prop *prop,
			   unsigned long long flags)
{
	static CUmemGenericAllocationHandle first;
	CUresult r = 0;

	if (!first)
		r = truth.MemCreate(&first, bytes, prop, flags);
	*h = first;
	return r;
}

static CUresult lie_export(void *fd, CUmemGenericAllocationHandle h, int type,
			   unsigned long long flags)
{
	*(int *)fd = 1 << 20;
	return CUDA_SUCCESS;
}

static CUresult lie_granule(size_t *bytes, const struct cu_mem_prop *prop,
			    int which)
{
	*bytes = 0;
	return CUDA_SUCCESS;
}

static CUresult lie_free(size_t *free_, size_t *total)
{
	*free_ = SIZE_MAX;
	*total = SIZE_MAX / 2;
	return CUDA_SUCCESS;
}

static CUresult lie_count(int *nr)
{
	*nr = -1;
	return CUDA_SUCCESS;
}

/**
 * struct lie - a wrong answer of the driver
 * @says: part of the one line that is logged
 */
struct lie {
	void		(*tell)(void);
	const char	*says;
};

static u32 lie_nr;

#define LIE(name, fn, lie) static void tell_##name(void) { api->fn = lie; }
LIE(range, MemAddressReserve, lie_range)
LIE(range_end, MemAddressReserve, lie_range_end)
LIE(range_odd, MemAddressReserve, lie_range_odd)
LIE(stream, StreamCreateWithPriority, lie_stream)
LIE(second_stream, StreamCreateWithPriority, lie_second_stream)
LIE(event, EventCreate, lie_event)
LIE(create, MemCreate, lie_create)
LIE(export, MemExportToShareableHandle, lie_export)
LIE(granule, MemGetAllocationGranularity, lie_granule)
LIE(count, DeviceGetCount, lie_count)

static const struct lie lies[] = {
	{ tell_range,		"has no range of addresses" },
	{ tell_range_end,	"has no range of addresses" },
	{ tell_range_odd,	"has no range of addresses" },
	{ tell_stream,		"makes no stream" },
	{ tell_second_stream,	"makes no streams for copies" },
	{ tell_event,		"makes no streams for copies" },
	{ tell_create,		"handing memory out a second time" },
	{ tell_export,		"a descriptor that it did not open" },
	{ tell_granule,		"in no power of two bytes" },
	{ tell_count,		"has no device" },
};

static void lies_begin(void)
{
	api = (struct cu_api *)(uintptr_t)cudrv_open(NULL, 0);
	ck_assert_ptr_nonnull(api);
	truth = *api;
}

static int play_lie(void)
{
	int err;

	lies_begin();
	lies[lie_nr].tell();
	err = scene_open();
	if (!err)
		err = td->setup.dev.ops->granule(&td->setup.dev) ? 0 : -EIO;
	if (!err)
		err = extent_make(0);
	if (!err)
		err = extent_make(1);
	*api = truth;
	scene_close();
	return err ? 3 : 0;
}

START_TEST(test_lies)
{
	const struct lie *l = &lies[_i];
	struct scene s;

	lie_nr = (u32)_i;
	play(&s, NULL, play_lie);
	expect_end(&s, 3, l->says);
	ck_assert_msg(lines_with(s.err, "kvmm: error") == 1 &&
		      strstr(s.err, l->says), "%s: %s", l->says, s.err);
	expect_no_leak(&s, l->says);
}
END_TEST

/* No more than the device has, less the reserve for contexts. */
static int play_free(void)
{
	u64 total, avail;

	if (scene_open())
		return 1;
	lies_begin();
	total = td->setup.dev.ops->total(&td->setup.dev);
	avail = td->setup.dev.ops->available(&td->setup.dev);
	ck_assert_uint_gt(avail, 0);
	api->MemGetInfo = lie_free;
	ck_assert_uint_eq(td->setup.dev.ops->available(&td->setup.dev),
			  total - CUDA_RESERVE);
	*api = truth;
	ck_assert_uint_le(avail, total - CUDA_RESERVE);
	scene_close();
	return 0;
}

START_TEST(test_free)
{
	struct scene s;

	play(&s, NULL, play_free);
	expect_end(&s, 0, "what is free");
	expect_no_leak(&s, "what is free");
}
END_TEST

/* ---- which backend ---- */

static int play_select(void)
{
	char why[512];

	if (dev_select(KVMM_BACKEND_CUDA, why, sizeof(why))) {
		fprintf(stderr, "taken: %s\n", why);
		return 0;
	}
	fprintf(stderr, "refused: %s\n", why);
	if (dev_select(KVMM_BACKEND_AUTO, why, sizeof(why)) != &host_dev_ops)
		return 2;
	fprintf(stderr, "auto: %s\n", why);
	return 1;
}

START_TEST(test_select)
{
	struct scene s;

	play(&s, NULL, play_select);
	expect_end(&s, 0, "a GPU");
	ck_assert_msg(strstr(s.err, "taken: cuda backend: blocks on "), "%s",
		      s.err);
	setenv("KVMM_STANDIN_ARCH", "75", 1);
	play(&s, NULL, play_select);
	expect_end(&s, 1, "an old one");
	ck_assert_msg(strstr(s.err, "compute capability 7.5, less than 8.0") &&
		      strstr(s.err, "auto: host backend: "), "%s", s.err);
	unsetenv("KVMM_STANDIN_ARCH");
	setenv("KVMM_STANDIN_DEVICES", "0", 1);
	play(&s, NULL, play_select);
	expect_end(&s, 1, "none");
	ck_assert_msg(strstr(s.err, "has no device"), "%s", s.err);
	unsetenv("KVMM_STANDIN_DEVICES");
	play(&s, "Init:1=100", play_select);
	expect_end(&s, 1, "no start");
	ck_assert_msg(strstr(s.err, "CUDA_ERROR_NO_DEVICE"), "%s", s.err);
	setenv("KVMM_LIBCUDA", "/dev/null", 1);
	play(&s, NULL, play_select);
	expect_end(&s, 1, "no library");
	ck_assert_msg(strstr(s.err, "refused: --backend cuda cannot be had: no CUDA driver: "),
		      "%s", s.err);
}
END_TEST

/* Only the time since the end of the process counts. */
START_TEST(test_quiet)
{
	struct kvmm_dev dev = { .ops = &cuda_dev_ops };

	ck_assert(!dev.ops->quiet(&dev, 1000, 1000));
	ck_assert(!dev.ops->quiet(&dev, 1000, 1000 + 50000000));
	ck_assert(dev.ops->quiet(&dev, 1000, 1000 + 200000000));
}
END_TEST

/* ---- main ---- */

static void setup(void)
{
	const char *build = getenv("KVMM_BUILD"), *tmp = getenv("TMPDIR");
	u32 i;

	snprintf(lib, sizeof(lib), "%s/tests/standin/libcuda.so.1",
		 build ? build : "build");
	setenv("KVMM_LIBCUDA", lib, 0);
	setenv("KVMM_STANDIN_GRAN", GRAN, 1);
	snprintf(dir, sizeof(dir), "%.90s/dev-cuda.XXXXXX",
		 tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	/* Holds the account of the device, which no other test may fill. */
	setenv("TMPDIR", dir, 1);
	for (i = 0; i < sizeof(pattern); i++)
		pattern[i] = (char)(i * 7 + i / 251 + 1);
	memset(back, 0, sizeof(back));
}

static void teardown(void)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/kvmm-standin", dir);
	unlink(path);
	ck_assert_int_eq(rmdir(dir), 0);
}

int main(void)
{
	SRunner *sr;
	TCase *tc;
	Suite *s;
	int failed;

	s = suite_create("dev-cuda");
	tc = tcase_create("cuda");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_extents);
	tcase_add_test(tc, test_adopt);
	tcase_add_test(tc, test_copies);
	tcase_add_test(tc, test_both_directions);
	tcase_add_test(tc, test_seam);
	tcase_add_test(tc, test_copy_faults);
	tcase_add_loop_test(tc, test_sticky, 0, 3);
	tcase_add_test(tc, test_plain);
	tcase_add_loop_test(tc, test_nth_call, 0, ARRAY_SIZE(calls));
	tcase_add_loop_test(tc, test_nth_fatal, 0, ARRAY_SIZE(calls));
	tcase_add_loop_test(tc, test_lies, 0, ARRAY_SIZE(lies));
	tcase_add_test(tc, test_free);
	tcase_add_test(tc, test_select);
	tcase_add_test(tc, test_quiet);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
