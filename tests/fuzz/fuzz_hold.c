// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_hold.c - records of a compromised kvmm, to the real hold
 *
 * kvmm starts as it should and deposits its lock and its sockets.  From then on
 * it is compromised.  An input is a list of messages: records with any fields,
 * and bytes that are no record, each with some of the descriptors such a process
 * could have, its own and an operator's.  After each message hold does its work.
 * At the end kvmm is gone, and hold hands over its records, or removes its names.
 *
 * Laws: hold, which is root, removes only names that the honest start brought; it
 * keeps no more records than it has room for; it closes descriptors that it does
 * not keep.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

/* Two of its names are the daemon's too; these definitions are used. */
#include "kvmm/hold/swap.c"
#include "kvmm/hold/store.c"

#include "tests/fuzz/process.h"
#include "tests/tmp.h"

#define MESSAGES	48u
#define KINDS		8u

static char dir[64];
static char names[4][108];		/* the lock, then the sockets */
static int own[4] = { -1, -1, -1, -1 };
static int others[KINDS] = { -1, -1, -1, -1, -1, -1, -1, -1 };

static int bind_at(const char *path)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", path);
	FUZZ_LAW(s >= 0 && !bind(s, (struct sockaddr *)&sun, sizeof(sun)),
		 "%s", path);
	return s;
}

static int file_at(const char *name)
{
	char path[108];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	FUZZ_LAW(fd >= 0, "%s", path);
	return fd;
}

static void leave(void)
{
	char cmd[96];

	fuzz_on_unlink = NULL;
	fuzz_no_fork = false;
	fuzz_exit = NULL;
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	if (dir[0] && system(cmd))
		fprintf(stderr, "%s is left\n", dir);
}

static void make_names(void)
{
	static const char * const name[] = {
		"run/attach.sock.lock", "run/attach.sock", "run/view.sock",
		"run/admin.sock",
	};
	char path[108];
	u32 i;

	FUZZ_LAW(mkdtemp(tmp_name(dir, sizeof(dir), "fuzz-hold")), "%s", dir);
	atexit(leave);
	snprintf(path, sizeof(path), "%s/run", dir);
	FUZZ_LAW(!mkdir(path, 0700), "%s", path);
	for (i = 0; i < ARRAY_SIZE(own); i++) {
		snprintf(names[i], sizeof(names[i]), "%s/%s", dir, name[i]);
		own[i] = i ? bind_at(names[i]) : file_at(name[i]);
	}
	/* Descriptors that a daemon may have been given, or could make for itself. */
	others[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
	others[1] = file_at("swapfile");
	others[2] = file_at("run/attach.sock.lock2");
	snprintf(path, sizeof(path), "%s/elsewhere.sock", dir);
	others[3] = bind_at(path);
	others[4] = memfd_create("fuzz", MFD_CLOEXEC);
	others[5] = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	others[6] = own[0];
	others[7] = own[1];
}

static bool on_unlink(const char *path)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(path, names[i]))
			return true;
	FUZZ_LAW(false, "hold removes %s", path);
	return false;
}

/* Send one message with @nr descriptors; the kernel may refuse it. */
static void say(int sock, const void *buf, size_t len, const int *fds, u32 nr)
{
	union {
		char		buf[CMSG_SPACE(8 * sizeof(int))];
		struct cmsghdr	align;
	} control;
	struct iovec iov = { .iov_base = (void *)buf, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (nr) {
		memset(&control, 0, sizeof(control));
		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE(nr * sizeof(int));
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(nr * sizeof(int));
		memcpy(CMSG_DATA(&control.align), fds, nr * sizeof(int));
	}
	(void)!sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void put(int sock, u32 kind, u32 index, int fd)
{
	const struct hold_record r = {
		.magic = HOLD_MAGIC, .op = HOLD_PUT, .kind = kind,
		.index = index,
	};

	say(sock, &r, sizeof(r), &fd, 1);
}

static void start_honest(int sock)
{
	u32 i;

	put(sock, HOLD_LOCK, 0, own[0]);
	for (i = 1; i < ARRAY_SIZE(own); i++)
		put(sock, HOLD_LISTEN, i - 1, own[i]);
}

static void ev_message(struct fuzz *f, int sock)
{
	struct hold_record r = { .magic = HOLD_MAGIC };
	u8 how = fuzz_u8(f), buf[2 * sizeof(r)];
	size_t len = sizeof(r);
	int fds[8];
	u32 nr, i;

	r.op = how & 7 ? HOLD_PUT : HOLD_DROP;
	r.kind = fuzz_u8(f) % (HOLD_SIZE + 2);
	r.index = fuzz_number(f) & (how & 8 ? 3u : UINT32_MAX);
	r.generation = fuzz_u8(f);
	/* No io_uring: root makes it, and it costs time. */
	r.value = (fuzz_u64(f) & ~0xff0000ull) | SWAPD_ENGINE_SYNC << 16;
	nr = how >> 4;
	nr = nr < 4 ? 0 : nr < 13 ? 1 : nr - 11;
	for (i = 0; i < nr; i++)
		fds[i] = others[fuzz_u8(f) % KINDS];
	fuzz_scar(f, &r, sizeof(r));
	memset(buf, 0, sizeof(buf));
	memcpy(buf, &r, sizeof(r));
	if (fuzz_u8(f) >= 240)
		len = fuzz_u8(f) % sizeof(buf);
	say(sock, buf, len, fds, nr);
}

static void hand_over(struct store *st)
{
	char buf[sizeof(struct hold_record)];
	int sv[2], fd;
	u32 i;

	FUZZ_LAW(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC |
			     SOCK_NONBLOCK, 0, sv), "socketpair");
	(void)!store_send(st, sv[0], 0);
	for (;;)
		if (recv(sv[1], buf, sizeof(buf), MSG_DONTWAIT) <= 0)
			break;
	for (i = 0; i < 2; i++) {
		fd = sv[i];
		close(fd);
	}
}

static void play(struct fuzz *f, struct store *st, struct swap *sw, int *sv)
{
	u32 i;

	start_honest(sv[1]);
	FUZZ_LAW(store_receive(st, sv[0]) >= 0, "kvmm is there");
	for (i = 0; f->left && i < MESSAGES; i++) {
		ev_message(f, sv[1]);
		/* hold takes an empty message as the end of kvmm. */
		if (store_receive(st, sv[0]) < 0)
			break;
		FUZZ_LAW(st->nr <= HOLD_RECORDS, "%u records", st->nr);
		swap_work(sw, st);
	}
	swap_kvmm_gone(sw, st);
	hand_over(st);
	store_unlink(st);
	swap_exit(sw);
	store_clear(st);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct fuzz f = { .p = data, .left = min(size, (size_t)FUZZ_MAX) };
	static struct store st;
	static struct swap sw;
	static sigset_t mask;
	u32 before;
	int sv[2];

	if (!dir[0])
		make_names();
	memset(&st, 0, sizeof(st));
	swap_init(&sw, "/nonexistent/swapd", &mask);
	fuzz_on_unlink = on_unlink;
	fuzz_no_fork = true;
	before = fuzz_count_fds(3);
	FUZZ_LAW(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC |
			     SOCK_NONBLOCK, 0, sv), "socketpair");
	swap_kvmm_up(&sw, sv[0]);
	play(&f, &st, &sw, sv);
	close(sv[0]);
	close(sv[1]);
	FUZZ_LAW(fuzz_count_fds(3) == before, "%u descriptors, not %u",
		 fuzz_count_fds(3), before);
	fuzz_on_unlink = NULL;
	fuzz_no_fork = false;
	return 0;
}
