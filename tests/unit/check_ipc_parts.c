// SPDX-License-Identifier: Apache-2.0
/*
 * Single parts of the daemon: segments and failures of their memory, queues
 * between threads, extents of the host backend, hold's records.
 *
 * budget: 20 s
 */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <kvmm/clock.h>
#include <kvmm/fault.h>
#include <kvmm/rundir.h>

#include "kvmm/hold/store.h"
#include "kvmm/ipc/daemon.h"
#include "kvmm/ipc/mm/wait.h"
#include "tests/tmp.h"

/* ---- segments ---- */

/* Put unreadable memory behind the segment: a file that ended. */
static void segment_break(struct segment *s)
{
	int fd = memfd_create("broken", 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_ptr_eq(mmap(s->base, s->bytes, PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_FIXED, fd, 0), s->base);
	close(fd);
}

START_TEST(test_segment_fault)
{
	struct segment a = { .fd = -1 }, b = { .fd = -1 };
	u32 before = segment_fault_count();
	volatile u64 *word;

	ck_assert_int_eq(segment_guard_init(), 0);
	ck_assert_int_eq(segment_create(&a, 65536, "a", true), 0);
	ck_assert_int_eq(segment_create(&b, 65536, "b", true), 0);
	segment_break(&a);
	word = (volatile u64 *)(a.base + 40960);
	ck_assert_uint_eq(*word, 0);
	ck_assert_uint_eq(segment_fault_count(), before + 1);
	ck_assert(segment_faulted(a.guard));
	ck_assert(!segment_faulted(b.guard));
	/* The segment goes on with zeros that are private to this process. */
	*word = 7;
	ck_assert_uint_eq(*word, 7);
	ck_assert_uint_eq(segment_fault_count(), before + 1);
	segment_destroy(&a);
	segment_destroy(&b);
	ck_assert_ptr_null(a.base);
}
END_TEST

/* A fault in memory that belongs to no client ends the process. */
START_TEST(test_segment_foreign_fault)
{
	struct segment a = { .fd = -1 };
	void *p;
	int fd = memfd_create("broken", 0);

	ck_assert_int_eq(segment_guard_init(), 0);
	ck_assert_int_eq(segment_create(&a, 65536, "a", true), 0);
	p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	ck_assert_uint_eq(*(volatile u64 *)p, 0);
}
END_TEST

/* After a destroy, the entry among the guarded segments is free again. */
START_TEST(test_segment_many)
{
	struct segment s = { .fd = -1 };
	int i;

	for (i = 0; i < 2000; i++) {
		ck_assert_int_eq(segment_create(&s, 4096, "s", i & 1), 0);
		segment_destroy(&s);
	}
}
END_TEST

/* If the daemon did not refuse such a size, the kernel would, with EFBIG. */
static void no_large_files(void)
{
	struct rlimit r = { .rlim_cur = 1 << 26, .rlim_max = 1 << 26 };

	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &r), 0);
}

START_TEST(test_segment_fails)
{
	struct segment s = { .fd = -1 };
	char text[100];

	ck_assert_int_eq(kv_fault_init("segment_create:1", text, sizeof(text)),
			 0);
	ck_assert_int_eq(segment_create(&s, 4096, "s", true), -ENOMEM);
	segment_destroy(&s);
	/* More than the machine has; the file limit protects the machine. */
	no_large_files();
	ck_assert_int_eq(segment_create(&s, 1ull << 50, "s", true), -ENOMEM);
	segment_destroy(&s);
}
END_TEST

/* ---- the queue between two threads ---- */

#define NR_MSGS 200000u

static struct queue queue;

static void *produce(void *arg)
{
	struct map_msg m = { .op = 1 };

	for (m.extent = 0; m.extent < NR_MSGS; m.extent++) {
		m.generation = ~m.extent;
		while (!queue_push(&queue, &m))
			sched_yield();
	}
	return NULL;
}

START_TEST(test_queue_order)
{
	struct map_msg m;
	pthread_t t;
	u32 i;

	ck_assert_int_eq(queue_init(&queue, sizeof(struct map_msg), 60), 0);
	ck_assert_uint_eq(queue.mask, 63);
	ck_assert(queue_empty(&queue));
	pthread_create(&t, NULL, produce, NULL);
	for (i = 0; i < NR_MSGS; i++) {
		while (!queue_pop(&queue, &m))
			sched_yield();
		ck_assert_uint_eq(m.extent, i);
		ck_assert_uint_eq(m.generation, ~i);
	}
	ck_assert(!queue_pop(&queue, &m));
	pthread_join(t, NULL);
	queue_exit(&queue);
}
END_TEST

START_TEST(test_queue_full)
{
	struct map_msg m = { .op = 1 };
	u32 i;

	ck_assert_int_eq(queue_init(&queue, sizeof(struct map_msg), 4), 0);
	for (i = 0; i < 4; i++)
		ck_assert(queue_push(&queue, &m));
	ck_assert(!queue_push(&queue, &m));
	ck_assert(queue_pop(&queue, &m));
	ck_assert(queue_push(&queue, &m));
	queue_exit(&queue);
}
END_TEST

/* ---- the host backend ---- */

START_TEST(test_host_extent)
{
	struct kvmm_dev dev = { .ops = &host_dev_ops, .extent_size = 1 << 20 };
	char link[64], name[128];
	struct stat st;
	ssize_t n;
	char *p;
	int fd = -1, i;

	ck_assert_int_eq(dev.ops->extent_create(&dev, 3, 9, &fd), 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(st.st_size, 1 << 20);
	/* The pages of the extent are there, and zero. */
	ck_assert_int_ge(st.st_blocks, (1 << 20) / 512);
	p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	for (i = 0; i < 1 << 20; i += 512)
		ck_assert_int_eq(p[i], 0);
	ck_assert_int_ne(ftruncate(fd, 0), 0);
	ck_assert_int_ne(ftruncate(fd, 2 << 20), 0);
	ck_assert_int_ne(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, name, sizeof(name) - 1);
	ck_assert_int_gt(n, 0);
	name[n] = '\0';
	ck_assert_ptr_nonnull(strstr(name, "/memfd:" DEV_EXTENT_PREFIX));
	ck_assert_ptr_nonnull(strstr(name, "-3.9"));
	munmap(p, 1 << 20);
	dev.ops->extent_release(&dev, 3, fd);
}
END_TEST

START_TEST(test_host_no_memory)
{
	struct kvmm_dev dev = { .ops = &host_dev_ops, .extent_size = 1ull << 50 };
	int fd = -1;

	no_large_files();
	ck_assert_int_eq(dev.ops->extent_create(&dev, 0, 1, &fd), -ENOMEM);
	ck_assert_int_eq(fd, -1);
}
END_TEST

START_TEST(test_dev_select)
{
	char why[512];
	u64 avail = dev_memory_available();

	setenv("KVMM_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
	ck_assert_ptr_eq(dev_select(KVMM_BACKEND_HOST, why, sizeof(why)),
			 &host_dev_ops);
	ck_assert_str_eq(why, "host backend: blocks in host memory");
	/* If no backend was chosen, the reason says why it is not a GPU. */
	ck_assert_ptr_eq(dev_select(KVMM_BACKEND_AUTO, why, sizeof(why)),
			 &host_dev_ops);
	ck_assert_ptr_nonnull(strstr(why, "no CUDA driver: "));
	/* A chosen backend is used or refused. */
	ck_assert_ptr_null(dev_select(KVMM_BACKEND_CUDA, why, sizeof(why)));
	ck_assert_ptr_nonnull(strstr(why, "--backend cuda cannot be had: no CUDA driver: "));
	ck_assert_uint_gt(avail, 1 << 20);
	ck_assert_uint_lt(avail, 1ull << 50);
}
END_TEST

/* A daemon that was taken over can deposit any file, also one that can be truncated. */
START_TEST(test_memory_is_ours)
{
	char path[128];
	struct kvmm_dev dev = { .ops = &host_dev_ops, .extent_size = 65536 };
	int fd = memfd_create("ours", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int file = mkstemp(tmp_name(path, sizeof(path), "parts")), got;
	void *p;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_ge(file, 0);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(ftruncate(fd, 65536), 0);
	ck_assert_int_eq(ftruncate(file, 65536), 0);
	ck_assert(!dev_memory_is_ours(fd, 65536));
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, DEV_SEALS & ~F_SEAL_SHRINK),
			 0);
	ck_assert(!dev_memory_is_ours(fd, 65536));
	/* A file without seals, and a bad descriptor. */
	ck_assert(!dev_memory_is_ours(file, 65536));
	ck_assert(!dev_memory_is_ours(-1, 0));
	ck_assert(!host_dev_ops.extent_is_ours(&dev, file));
	p = keep_copy("copy", file, 65536, &got);
	ck_assert(!p && errno == ESTALE && got < 0);
	close(fd);
	close(file);

	p = keep_memory("ours", 65536, &fd);
	ck_assert_ptr_nonnull(p);
	ck_assert(dev_memory_is_ours(fd, 65536));
	ck_assert(!dev_memory_is_ours(fd, 65537));
	ck_assert(host_dev_ops.extent_is_ours(&dev, fd));
	munmap(p, 65536);
	close(fd);
}
END_TEST

/* ---- hold's records ---- */

static struct store st;

static int new_fd(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static struct hold_record record(u32 op, u32 kind, u32 index, u64 value)
{
	return (struct hold_record){
		.magic = HOLD_MAGIC, .op = op, .kind = kind, .index = index,
		.value = value,
	};
}

START_TEST(test_store_replaces)
{
	struct hold_record r = record(HOLD_PUT, HOLD_CLIENT, 3, 1);
	int a = new_fd(), b = new_fd();

	store_apply(&st, &r, a);
	ck_assert_uint_eq(st.nr, 1);
	r.value = 2;
	store_apply(&st, &r, b);
	ck_assert_uint_eq(st.nr, 1);
	ck_assert_uint_eq(st.kept[0].rec.value, 2);
	ck_assert_int_eq(fcntl(a, F_GETFD), -1);
	r.op = HOLD_DROP;
	store_apply(&st, &r, -1);
	ck_assert_uint_eq(st.nr, 0);
	ck_assert_int_eq(fcntl(b, F_GETFD), -1);
}
END_TEST

START_TEST(test_store_malformed)
{
	struct hold_record r = record(99, HOLD_CLIENT, 0, 0);
	int fd = new_fd();

	store_apply(&st, &r, fd);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
	r.op = HOLD_PUT;
	r.magic = 0;
	fd = new_fd();
	store_apply(&st, &r, fd);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
	ck_assert_uint_eq(st.nr, 0);
}
END_TEST

START_TEST(test_store_full)
{
	struct hold_record r;
	u32 i;

	for (i = 0; i < HOLD_RECORDS + 5; i++) {
		r = record(HOLD_PUT, HOLD_CLIENT, i, i);
		store_apply(&st, &r, new_fd());
	}
	ck_assert_uint_eq(st.nr, HOLD_RECORDS);
	store_clear(&st);
	ck_assert_uint_eq(st.nr, 0);
}
END_TEST

/* Extents have a table by number, as long as there is room. */
START_TEST(test_store_extents)
{
	struct hold_record r = record(HOLD_PUT, HOLD_EXTENT, 1000, 0);
	int a = new_fd(), b = new_fd(), c = new_fd(), d = new_fd();

	r.generation = 7;
	store_apply(&st, &r, a);
	ck_assert_uint_eq(st.nr_extents, 1);
	ck_assert_uint_eq(st.extent[1000].generation, 7);
	r.generation = 8;
	store_apply(&st, &r, b);
	ck_assert_uint_eq(st.nr_extents, 1);
	ck_assert_int_eq(fcntl(a, F_GETFD), -1);
	st.most = 1;
	r.index = 3;
	store_apply(&st, &r, c);
	ck_assert_uint_eq(st.nr_extents, 1);
	ck_assert_int_eq(fcntl(c, F_GETFD), -1);
	r.index = HOLD_EXTENTS;
	store_apply(&st, &r, d);
	ck_assert_int_eq(fcntl(d, F_GETFD), -1);
	r = record(HOLD_DROP, HOLD_EXTENT, 1000, 0);
	store_apply(&st, &r, -1);
	ck_assert_uint_eq(st.nr_extents, 0);
	ck_assert_int_eq(fcntl(b, F_GETFD), -1);
	st.most = 0;
	store_clear(&st);
}
END_TEST

/* Every record that goes in comes out, with its descriptor; END is last. */
START_TEST(test_store_hand_over)
{
	struct hold_record r;
	struct store other;
	int sv[2], i;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
				    sv), 0);
	for (i = 0; i < 5; i++) {
		r = record(HOLD_PUT, HOLD_CLIENT, (u32)i, 100 + (u64)i);
		store_apply(&st, &r, i & 1 ? new_fd() : -1);
	}
	ck_assert_int_eq(store_send(&st, sv[0], 0), 0);
	/* END is no record: the receiver reports it and drops it. */
	memset(&other, 0, sizeof(other));
	ck_assert_int_eq(store_receive(&other, sv[1]), 0);
	ck_assert_uint_eq(other.nr, 5);
	for (i = 0; i < 5; i++) {
		ck_assert_uint_eq(other.kept[i].rec.value, 100 + (u64)i);
		ck_assert_int_eq(other.kept[i].fd >= 0, i & 1);
	}
	close(sv[0]);
	ck_assert_int_eq(store_receive(&other, sv[1]), -EPIPE);
	close(sv[1]);
	store_clear(&other);
	store_clear(&st);
}
END_TEST

/* ---- records that the daemon keeps there ---- */

/* A process that waits to be killed; its pidfd in @pidfd. */
static pid_t new_process(int *pidfd)
{
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	ck_assert_int_gt(pid, 0);
	*pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	ck_assert_int_ge(*pidfd, 0);
	return pid;
}

/* The daemon may die between two messages, so each client always has a record. */
START_TEST(test_deposit_forgets)
{
	static struct deposit p;
	const u32 first = MAX_CLIENTS;
	struct hold_record r;
	int sv[2], fd[2];
	pid_t pid[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
				    sv), 0);
	pid[0] = new_process(&fd[0]);
	pid[1] = new_process(&fd[1]);
	p.fd = sv[0];
	p.old[0] = fd[0];
	p.old[1] = fd[1];
	p.nr_old = 2;
	p.old_deadline = UINT64_MAX;
	kill(pid[0], SIGKILL);
	ck_assert_int_eq(waitpid(pid[0], NULL, 0), pid[0]);
	deposit_timers(&p, 0);
	ck_assert_uint_eq(p.nr_old, 1);
	ck_assert_int_eq(p.old[0], fd[1]);

	ck_assert_int_eq(recv(sv[1], &r, sizeof(r), 0), sizeof(r));
	ck_assert_uint_eq(r.op, HOLD_PUT);
	ck_assert_uint_eq(r.index, first);
	ck_assert_int_eq(recv(sv[1], &r, sizeof(r), 0), sizeof(r));
	ck_assert_uint_eq(r.op, HOLD_DROP);
	ck_assert_uint_eq(r.index, first + 1);

	kill(pid[1], SIGKILL);
	ck_assert_int_eq(waitpid(pid[1], NULL, 0), pid[1]);
	deposit_timers(&p, 0);
	ck_assert_uint_eq(p.nr_old, 0);
	ck_assert_int_eq(recv(sv[1], &r, sizeof(r), 0), sizeof(r));
	ck_assert_uint_eq(r.op, HOLD_DROP);
	ck_assert_uint_eq(r.index, first);
	close(sv[0]);
	close(sv[1]);
}
END_TEST

/* Move all records that are there to hold's store.  Return: how many calls it took. */
static u32 take_records(int sock)
{
	u32 nr = 0;
	int got;

	do {
		got = store_receive(&st, sock);
		ck_assert_int_ge(got, 0);
		nr++;
	} while (got);
	return nr;
}

/* hold does not read for a while: then all records come, in order. */
START_TEST(test_deposit_late)
{
	static struct deposit p;
	const struct hold_record other = { .magic = HOLD_MAGIC, .op = HOLD_PUT,
					   .kind = HOLD_EPOCH, .value = 3 };
	int sv[2], pip[2];
	struct kept *k;
	char c = 0;

	memset(&st, 0, sizeof(st));
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
				    sv), 0);
	ck_assert_int_eq(pipe(pip), 0);
	p.fd = sv[0];
	while (send(sv[0], &other, sizeof(other), MSG_DONTWAIT) > 0)
		;
	ck_assert_uint_eq(deposit_late_timers(&p, 5), UINT64_MAX);
	deposit_put(&p, HOLD_CLIENT, 1, pip[1], 11);
	deposit_put(&p, HOLD_CLIENT, 2, pip[1], 21);
	deposit_drop(&p, HOLD_CLIENT, 1);
	deposit_put(&p, HOLD_CLIENT, 2, pip[1], 22);
	deposit_put(&p, HOLD_CLIENT, 3, pip[1], 31);
	/* The daemon may close a descriptor before hold gets it. */
	close(pip[1]);
	ck_assert_uint_lt(deposit_late_timers(&p, 5), UINT64_MAX);
	take_records(sv[1]);
	ck_assert_uint_eq(deposit_late_timers(&p, 5), UINT64_MAX);
	take_records(sv[1]);
	ck_assert_ptr_null(store_find(&st, HOLD_CLIENT, 1));
	k = store_find(&st, HOLD_CLIENT, 2);
	ck_assert(k && k->rec.value == 22);
	k = store_find(&st, HOLD_CLIENT, 3);
	ck_assert(k && k->rec.value == 31);
	ck_assert_int_eq(write(k->fd, "x", 1), 1);
	ck_assert_int_eq(read(pip[0], &c, 1), 1);
	ck_assert_int_eq(c, 'x');
	store_clear(&st);
	close(pip[0]);
	close(sv[0]);
	close(sv[1]);
}
END_TEST

static void strange_send(int sock, u32 op, u32 kind, u32 index, int fd)
{
	struct hold_record r = record(op, kind, index, UINT32_MAX);

	ck_assert_int_eq(store_send_record(sock, &r, fd, 0), 0);
}

/*
 * A daemon that was taken over left strange records for the next one.  They
 * must not pass for records of hold, use a place twice or beyond its range, or
 * set how much the daemon adopts.
 */
START_TEST(test_deposit_strange)
{
	static const u32 strange[][2] = {
		{ HOLD_LIFE, 0 }, { HOLD_ARENA, 1 }, { HOLD_KEEP, 7 },
		{ HOLD_CLIENT, UINT32_MAX - 1 }, { HOLD_GHOST, MAX_GHOSTS },
		{ HOLD_LISTEN, MAX_LISTEN }, { 77, 0 },
	};
	struct daemon *d = daemon_alloc();
	struct hold_record r;
	int sv[2], pip[2];
	char text[16];
	u32 i;

	ck_assert_ptr_nonnull(d);
	ck_assert_int_eq(pipe(pip), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
				    sv), 0);
	snprintf(text, sizeof(text), "%d", sv[0]);
	ck_assert_int_eq(setenv(HOLD_ENV, text, 1), 0);
	r = record(HOLD_TELL, HOLD_LIFE, HOLD_LIFE_NEXT |
		   HOLD_LIFE_IN_FLIGHT, 3);
	ck_assert_int_eq(store_send_record(sv[1], &r, -1, 0), 0);
	strange_send(sv[1], HOLD_PUT, HOLD_ARENA, 0, pip[1]);
	strange_send(sv[1], HOLD_PUT, HOLD_CLIENT, 3, pip[1]);
	for (i = 0; i < ARRAY_SIZE(strange); i++)
		strange_send(sv[1], HOLD_PUT, strange[i][0], strange[i][1],
			     new_fd());
	strange_send(sv[1], HOLD_END, 0, 0, -1);
	ck_assert_int_eq(deposit_init(&d->deposit), 0);

	ck_assert_uint_eq(d->deposit.life, HOLD_LIFE_NEXT |
			  HOLD_LIFE_IN_FLIGHT);
	ck_assert_int_eq(write(d->deposit.left_arena, "x", 1), 1);
	ck_assert_int_eq(d->deposit.left_keep, -1);
	ck_assert_uint_eq(d->deposit.nr_kept, 4);
	ck_assert_uint_eq(d->deposit.nr_ghosts, 0);
	for (i = 0; i < ARRAY_SIZE(strange); i++) {
		ck_assert_int_eq(recv(sv[1], &r, sizeof(r), MSG_DONTWAIT),
				 sizeof(r));
		ck_assert_uint_eq(r.op, HOLD_DROP);
		ck_assert_uint_eq(r.kind, strange[i][0]);
		ck_assert_uint_eq(r.index, strange[i][1]);
	}
	ck_assert_int_eq(recv(sv[1], &r, sizeof(r), MSG_DONTWAIT), -1);
	deposit_exit(&d->deposit);
	free(d);
	close(sv[1]);
	close(pip[0]);
	close(pip[1]);
}
END_TEST

/*
 * A hold that reads nothing for a while, then everything, and answers the
 * question at the end.
 */
static void __noreturn slow_hold(int sock)
{
	struct hold_record r;
	u32 drops = 0;

	alarm(20);
	usleep(600000);
	while (recv(sock, &r, sizeof(r), 0) == sizeof(r)) {
		drops += r.op == HOLD_DROP && r.kind == HOLD_EXTENT;
		if (r.op != HOLD_ASK)
			continue;
		r.op = HOLD_TELL;
		(void)!send(sock, &r, sizeof(r), 0);
		_exit(drops == 1000 ? 0 : 1);
	}
	_exit(2);
}

/* A cold start that drops more records than fit the socket gets its answer. */
START_TEST(test_deposit_cold)
{
	struct daemon *d = daemon_alloc();
	int sv[2], status;
	pid_t pid;
	u32 i;

	ck_assert_ptr_nonnull(d);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
				    sv), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		close(sv[0]);
		slow_hold(sv[1]);
	}
	close(sv[1]);
	d->deposit.fd = sv[0];
	d->deposit.extent = calloc(1000, sizeof(*d->deposit.extent));
	ck_assert_ptr_nonnull(d->deposit.extent);
	d->deposit.nr_extents = 1000;
	for (i = 0; i < 1000; i++)
		d->deposit.extent[i].fd = new_fd();
	deposit_cold(&d->deposit, "it was taken over");
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	deposit_exit(&d->deposit);
	free(d);
}
END_TEST

/* ---- the directory of the sockets ---- */

START_TEST(test_rundir)
{
	char dir[64];

	setenv("KVMM_RUNDIR", "/a/b", 1);
	setenv("XDG_RUNTIME_DIR", "/c", 1);
	ck_assert_int_eq(kv_rundir(dir, sizeof(dir)), 0);
	ck_assert_str_eq(dir, "/a/b");
	ck_assert_int_eq(kv_rundir(dir, 4), -ENAMETOOLONG);
	setenv("KVMM_RUNDIR", "", 1);
	ck_assert_int_eq(kv_rundir(dir, sizeof(dir)), 0);
	ck_assert_str_eq(dir, "/c/kvmm");
	unsetenv("XDG_RUNTIME_DIR");
	ck_assert_int_eq(kv_rundir(dir, sizeof(dir)), 0);
	ck_assert_ptr_nonnull(strstr(dir, "kvmm"));
}
END_TEST

static int bound(const char *path)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	strcpy(sun.sun_path, path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
	return fd;
}

/* A user without a daemon of its own finds the machine's, unless it names another. */
START_TEST(test_rundir_found)
{
	char top[48], system[64], own[64], got[108];
	int fd, mine;

	ck_assert_ptr_nonnull(mkdtemp(tmp_name(top, sizeof(top), "r")));
	snprintf(system, sizeof(system), "%s/view.sock", top);
	snprintf(own, sizeof(own), "%s/kvmm", top);
	setenv("XDG_RUNTIME_DIR", top, 1);
	unsetenv("KVMM_RUNDIR");
	ck_assert_int_eq(kv_rundir_find(top, KV_VIEW_SOCKET, got, sizeof(got)), 0);
	ck_assert_str_eq(got, own);	/* none is in either */
	fd = bound(system);
	ck_assert_int_eq(kv_rundir_find(top, KV_VIEW_SOCKET, got, sizeof(got)), 0);
	ck_assert_str_eq(got, top);
	ck_assert_int_eq(kv_rundir_find(top, KV_ATTACH_SOCKET, got, sizeof(got)), 0);
	ck_assert_str_eq(got, own);
	setenv("KVMM_RUNDIR", "/named", 1);
	ck_assert_int_eq(kv_rundir_find(top, KV_VIEW_SOCKET, got, sizeof(got)), 0);
	ck_assert_str_eq(got, "/named");
	unsetenv("KVMM_RUNDIR");
	ck_assert_int_eq(mkdir(own, 0700), 0);
	strcat(own, "/view.sock");
	mine = bound(own);
	ck_assert_int_eq(kv_rundir_find(top, KV_VIEW_SOCKET, got, sizeof(got)), 0);
	*strrchr(own, '/') = '\0';
	ck_assert_str_eq(got, own);
	close(fd);
	close(mine);
	strcat(own, "/view.sock");
	unlink(own);
	*strrchr(own, '/') = '\0';
	rmdir(own);
	unlink(system);
	rmdir(top);
}
END_TEST

/* A run directory and every socket in it name the same daemon. */
START_TEST(test_rundir_socket)
{
	static const char * const names[] = {
		"/r/attach.sock", "/r/view.sock", "/r/admin.sock",
	};
	char got[108];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(names); i++) {
		ck_assert_int_eq(kv_rundir_socket(names[i], KV_ATTACH_SOCKET, got,
						  sizeof(got)), 0);
		ck_assert_str_eq(got, "/r/attach.sock");
	}
	ck_assert_int_eq(kv_rundir_socket("view.sock", KV_ADMIN_SOCKET, got,
					  sizeof(got)), 0);
	ck_assert_str_eq(got, "admin.sock");
	ck_assert_int_eq(kv_rundir_socket("/tmp", KV_VIEW_SOCKET, got, sizeof(got)), 0);
	ck_assert_str_eq(got, "/tmp/view.sock");
	ck_assert_int_eq(kv_rundir_socket("/tmp//", KV_VIEW_SOCKET, got, sizeof(got)), 0);
	ck_assert_str_eq(got, "/tmp/view.sock");
	ck_assert_int_eq(kv_rundir_socket("/r/other", KV_VIEW_SOCKET, got,
					  sizeof(got)), 0);
	ck_assert_str_eq(got, "/r/other");
	ck_assert_int_eq(kv_rundir_socket("/tmp", KV_VIEW_SOCKET, got, 8),
			 -ENAMETOOLONG);
}
END_TEST

/* Directories of services are for all users, and have proc/ without an option. */
START_TEST(test_rundir_of_the_system)
{
	ck_assert(kv_rundir_is_system("/run/kvmm"));
	ck_assert(kv_rundir_is_system("/run/kvmm-0"));
	ck_assert(kv_rundir_is_system("/run/kvmm-15"));
	ck_assert(!kv_rundir_is_system("/run/kvmm-"));
	ck_assert(!kv_rundir_is_system("/run/kvmm-a"));
	ck_assert(!kv_rundir_is_system("/run/kvmm-1/kvrt"));
	ck_assert(!kv_rundir_is_system("/run/kvmm/kvrt"));
	ck_assert(!kv_rundir_is_system("/run/kvmmx"));
	ck_assert(!kv_rundir_is_system("/tmp/kvmm-0"));
}
END_TEST

/* A directory in /tmp that other users may write is not used. */
START_TEST(test_rundir_judged)
{
	char dir[] = "/tmp/kvmm-XXXXXX";

	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(kv_rundir_make(dir), 0);
	ck_assert_int_eq(chmod(dir, 0777), 0);
	ck_assert_int_eq(kv_rundir_make(dir), -EPERM);
	rmdir(dir);
	ck_assert_int_eq(symlink("/", dir), 0);
	ck_assert_int_eq(kv_rundir_make(dir), -ENOTDIR);
	unlink(dir);
	ck_assert_int_eq(kv_rundir_make("/nonexistent/kvmm"), -ENOENT);
	ck_assert_int_eq(kv_rundir_make(dir), 0);
	rmdir(dir);
}
END_TEST

/* Clients do not trust a directory that another user made first. */
START_TEST(test_rundir_trusted)
{
	char dir[64];

	snprintf(dir, sizeof(dir), "/tmp/kvmm-%u", (u32)geteuid());
	ck_assert_int_eq(kv_rundir_trust("/tmp"), 0);
	if (mkdir(dir, 0700)) {
		printf("note: %s is in use: not tried\n", dir);
		return;
	}
	ck_assert_int_eq(kv_rundir_trust(dir), 0);
	ck_assert_int_eq(chmod(dir, 0777), 0);
	ck_assert_int_eq(kv_rundir_trust(dir), -EPERM);
	ck_assert_int_eq(rmdir(dir), 0);
	ck_assert_int_eq(kv_rundir_trust(dir), 0);
	ck_assert_int_eq(symlink("/", dir), 0);
	ck_assert_int_eq(kv_rundir_trust(dir), -EPERM);
	ck_assert_int_eq(unlink(dir), 0);
}
END_TEST

static void clear_store(void)
{
	memset(&st, 0, sizeof(st));
}

/* ---- clients that wait for the mm thread ---- */

/* Clients @mask wait since @seconds ago. */
static struct mm_wait turn(u64 mask, u64 seconds)
{
	return (struct mm_wait){
		.mask = mask, .since = kv_now_ns() - seconds * NSEC_PER_SEC,
	};
}

/* A test takes less than half a second, so that whole seconds are exact. */
static void expect_s(const struct mm_wait *w, u64 some, u64 full)
{
	ck_assert_uint_ge(w->some_ns, some * NSEC_PER_SEC);
	ck_assert_uint_lt(w->some_ns, (some + 1) * NSEC_PER_SEC);
	ck_assert_uint_ge(w->full_ns, full * NSEC_PER_SEC);
	ck_assert_uint_lt(w->full_ns, (full + 1) * NSEC_PER_SEC);
}

START_TEST(test_mm_wait)
{
	struct mm_wait w = turn(0, 100);

	/* No client waits: nothing is counted. */
	mm_wait_serve(&w, 7);
	mm_wait_turn(&w, 1);
	mm_wait_turn(&w, 2);
	ck_assert_uint_eq(w.some_ns + w.full_ns, 0);
	/* The first client waits only for the time before all turns. */
	w = turn(1, 100);
	mm_wait_serve(&w, 7);
	mm_wait_turn(&w, 1);
	w.since -= 100 * NSEC_PER_SEC;
	mm_wait_turn(&w, 2);
	expect_s(&w, 100, 100);
	ck_assert_uint_eq(w.some_ns, w.full_ns);
	/*
	 * The last client waits for the turns of others too, whether these
	 * waited or not.
	 */
	w = turn(5, 100);
	mm_wait_serve(&w, 7);
	mm_wait_turn(&w, 1);
	mm_wait_turn(&w, 2);
	ck_assert_uint_eq(w.some_ns, 0);
	w.since -= 200 * NSEC_PER_SEC;
	mm_wait_turn(&w, 4);
	expect_s(&w, 300, 100);
	/* A client that has gone meanwhile counts no wait. */
	w = turn(6, 100);
	mm_wait_serve(&w, 1);
	mm_wait_turn(&w, 1);
	ck_assert_uint_eq(w.some_ns + w.full_ns, 0);
	/* A clock that another CPU read, and that is ahead of this one. */
	w = turn(1, 0);
	w.since += 100 * NSEC_PER_SEC;
	mm_wait_serve(&w, 1);
	mm_wait_turn(&w, 1);
	ck_assert_uint_eq(w.some_ns + w.full_ns, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ipc-parts");
	TCase *tc = tcase_create("parts");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 20);
	tcase_add_checked_fixture(tc, clear_store, NULL);
	tcase_add_test(tc, test_segment_fault);
	tcase_add_test_raise_signal(tc, test_segment_foreign_fault, SIGKILL);
	tcase_add_test(tc, test_segment_many);
	tcase_add_test(tc, test_segment_fails);
	tcase_add_test(tc, test_queue_order);
	tcase_add_test(tc, test_queue_full);
	tcase_add_test(tc, test_host_extent);
	tcase_add_test(tc, test_host_no_memory);
	tcase_add_test(tc, test_dev_select);
	tcase_add_test(tc, test_memory_is_ours);
	tcase_add_test(tc, test_store_replaces);
	tcase_add_test(tc, test_store_malformed);
	tcase_add_test(tc, test_store_full);
	tcase_add_test(tc, test_store_extents);
	tcase_add_test(tc, test_store_hand_over);
	tcase_add_test(tc, test_deposit_forgets);
	tcase_add_test(tc, test_deposit_late);
	tcase_add_test(tc, test_deposit_strange);
	tcase_add_test(tc, test_deposit_cold);
	tcase_add_test(tc, test_rundir_found);
	tcase_add_test(tc, test_rundir_socket);
	tcase_add_test(tc, test_rundir);
	tcase_add_test(tc, test_rundir_of_the_system);
	tcase_add_test(tc, test_rundir_judged);
	tcase_add_test(tc, test_rundir_trusted);
	tcase_add_test(tc, test_mm_wait);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
