// SPDX-License-Identifier: Apache-2.0
/* ipc_daemon.c - a real kvmm in a temporary directory, and lying clients */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <kvmm/view.h>

#include "tests/armed.h"
#include "tests/unit/ipc_daemon.h"

#define MAX_ARGS	32

int ipcd_ms(int ms)
{
	const char *scale = getenv("KVMM_TIME_SCALE");

	return scale ? ms * max(atoi(scale), 1) : ms;
}

static void sleep_ms(int ms)
{
	struct timespec ts = {
		.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L,
	};

	nanosleep(&ts, NULL);
}

static s64 now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (s64)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* ---- the daemon ---- */

void ipcd_dir(struct ipcd *d)
{
	const char *tmp = getenv("TMPDIR");

	memset(d, 0, sizeof(*d));
	snprintf(d->dir, sizeof(d->dir), "%.50s/ipcXXXXXX",
		 tmp && strlen(tmp) < 50 ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(d->dir));
	snprintf(d->attach, sizeof(d->attach), "%s/attach.sock", d->dir);
	snprintf(d->view, sizeof(d->view), "%s/view.sock", d->dir);
}

/* The program of the same build: build/tests/check_x -> build/NAME. */
static void program_path(const char *prog, const char *env, char *path,
			 size_t len)
{
	char self[512];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	ck_assert_int_gt(n, 0);
	self[n] = '\0';
	slash = strrchr(self, '/');
	*slash = '\0';
	slash = strrchr(self, '/');
	*slash = '\0';
	snprintf(path, len, "%s%s/%s", self, armed_folder(env), prog);
}

static void spawn_child(const struct ipcd *d, const char *prog,
			const char *args, const char *env)
{
	char path[600], log[128], text[512], *argv[MAX_ARGS], *word;
	int n = 0, fd;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	program_path(prog, env, path, sizeof(path));
	snprintf(log, sizeof(log), "%s/log", d->dir);
	fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (fd < 0 || dup2(fd, STDERR_FILENO) < 0)
		_exit(99);
	setenv("KVMM_RUNDIR", d->dir, 1);
	/* Tests speak of pools in host memory, unless one names a driver. */
	setenv("KVMM_LIBCUDA", "/nonexistent/libcuda.so.1", 0);
	if (env)
		putenv(strdup(env));
	argv[n++] = path;
	snprintf(text, sizeof(text), "%s", args);
	for (word = strtok(text, " "); word && n < MAX_ARGS - 1;
	     word = strtok(NULL, " "))
		argv[n++] = word;
	argv[n] = NULL;
	execv(path, argv);
	_exit(98);
}

void ipcd_spawn(struct ipcd *d, const char *prog, const char *args,
		const char *env)
{
	d->pid = fork();
	ck_assert_int_ge(d->pid, 0);
	if (!d->pid)
		spawn_child(d, prog, args, env);
}

static bool still_runs(pid_t pid)
{
	siginfo_t si = { .si_pid = 0 };

	return !waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT) &&
	       !si.si_pid;
}

bool ipcd_ready(const struct ipcd *d, int ms)
{
	s64 end = now_ms() + ipcd_ms(ms);

	do {
		int s = rawc_connect(d);

		if (s >= 0) {
			close(s);
			return true;
		}
		sleep_ms(5);
	} while (now_ms() < end && still_runs(d->pid));
	return false;
}

void ipcd_start(struct ipcd *d, const char *prog, const char *args,
		const char *env)
{
	ipcd_dir(d);
	ipcd_spawn(d, prog, args, env);
	ck_assert_msg(ipcd_ready(d, 5000), "%s does not serve", prog);
}

int ipcd_wait(struct ipcd *d, int ms)
{
	s64 end = now_ms() + ipcd_ms(ms);
	int status;

	for (;;) {
		if (waitpid(d->pid, &status, WNOHANG) == d->pid)
			break;
		if (now_ms() > end)
			return -1;
		sleep_ms(2);
	}
	d->pid = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) :
				   1000 + WTERMSIG(status);
}

void ipcd_discard(struct ipcd *d)
{
	struct dirent *e;
	char path[400];
	DIR *dir;

	if (d->pid > 0) {
		kill(d->pid, SIGKILL);
		waitpid(d->pid, NULL, 0);
	}
	dir = opendir(d->dir);
	while (dir && (e = readdir(dir))) {
		snprintf(path, sizeof(path), "%s/%s", d->dir, e->d_name);
		unlink(path);
	}
	if (dir)
		closedir(dir);
	rmdir(d->dir);
}

void ipcd_stop(struct ipcd *d)
{
	int code;

	ck_assert_int_eq(kill(d->pid, SIGTERM), 0);
	code = ipcd_wait(d, 5000);
	ck_assert_msg(code == 0, "the daemon ended with %d", code);
	ck_assert_int_ne(access(d->attach, F_OK), 0);
	ck_assert_int_ne(access(d->view, F_OK), 0);
	ipcd_discard(d);
}

bool ipcd_logged(const struct ipcd *d, const char *text)
{
	char path[128], line[1024];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "%s/log", d->dir);
	f = fopen(path, "r");
	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, text);
	if (f)
		fclose(f);
	return found;
}

/* ---- its files ---- */

void ipcd_check(const struct ipcd *d)
{
	struct seq_file out;
	int status = -1;

	seq_init(&out, 65536);
	ck_assert_int_eq(kv_view_ask(d->view, "check", (u32)ipcd_ms(5000),
				     &status, &out), 0);
	ck_assert_int_eq(status, 0);
	ck_assert_msg(!strncmp(seq_text(&out), "ok", 2), "%s", seq_text(&out));
	seq_free(&out);
}

long long ipcd_number(const struct ipcd *d, const char *file, const char *key)
{
	struct seq_file out;
	long long v = -1;
	char req[128];
	const char *p;
	int status = -1;

	seq_init(&out, 1 << 20);
	snprintf(req, sizeof(req), "cat %s", file);
	ck_assert_int_eq(kv_view_ask(d->view, req, (u32)ipcd_ms(5000), &status,
				     &out), 0);
	ck_assert_msg(!status, "%s: %s", file, seq_text(&out));
	for (p = seq_text(&out); p && *p; p = strchr(p, '\n')) {
		p += *p == '\n';
		if (!strncmp(p, key, strlen(key)) &&
		    sscanf(p + strlen(key), " %lld", &v) == 1)
			break;
	}
	seq_free(&out);
	return v;
}

bool ipcd_number_becomes(const struct ipcd *d, const char *file,
			 const char *key, long long want, int ms)
{
	s64 end = now_ms() + ipcd_ms(ms);

	while (ipcd_number(d, file, key) != want) {
		if (now_ms() > end)
			return false;
		sleep_ms(5);
	}
	return true;
}

int ipcd_nr_fds(pid_t pid)
{
	char path[64];
	int nr = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		nr++;
	closedir(dir);
	return nr - 2;
}

pid_t ipcd_child(pid_t pid)
{
	char path[64];
	int child = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid,
		 (int)pid);
	f = fopen(path, "r");
	if (f && fscanf(f, "%d", &child) != 1)
		child = 0;
	if (f)
		fclose(f);
	return child;
}

/* ---- a client by hand ---- */

void rawc_request(struct kvmm_attach_req *req)
{
	memset(req, 0, sizeof(*req));
	req->magic = KVMM_ATTACH_MAGIC;
	req->abi_version = KVMM_ABI_VERSION;
	req->layout_hash = KVMM_LAYOUT_HASH;
	strcpy(req->domain, "test");
	req->identity[0] = 7;
	req->block_tokens = 16;
	req->nr_shards = 1;
	req->nr_groups = 1;
	req->max_steps = 2;
	req->sq_entries = 64;
	req->max_seqs = 64;
	req->group[0].layers = 2;
	req->group[0].kv_heads = 2;
	req->group[0].k_bytes = 256;
	req->group[0].v_bytes = 256;
	req->limits[0].high = KVMM_LIMIT_MAX;
	req->limits[0].max = KVMM_LIMIT_MAX;
	req->limits[1].high = KVMM_LIMIT_MAX;
	req->limits[1].max = KVMM_LIMIT_MAX;
	req->limits[2].high = KVMM_LIMIT_MAX;
	req->limits[2].max = KVMM_LIMIT_MAX;
	req->weight = 100;
}

int rawc_connect(const struct ipcd *d)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(s, 0);
	strcpy(sun.sun_path, d->attach);
	if (!connect(s, (struct sockaddr *)&sun, sizeof(sun)))
		return s;
	close(s);
	return -1;
}

/* Receive one message.  Return: bytes, or -errno; -EAGAIN after @ms. */
static ssize_t take_message(int sock, void *buf, size_t len, int *fds,
			    u32 *nr_fds, int ms)
{
	char control[CMSG_SPACE(KVMM_MAP_BATCH * sizeof(int))];
	struct iovec iov = { .iov_base = buf, .iov_len = len };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	struct pollfd p = { .fd = sock, .events = POLLIN };
	struct cmsghdr *cm;
	ssize_t n;

	*nr_fds = 0;
	if (!poll(&p, 1, ipcd_ms(ms)))
		return -EAGAIN;
	n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	if (n < 0)
		return -errno;
	ck_assert_int_eq(msg.msg_flags & (MSG_CTRUNC | MSG_TRUNC), 0);
	cm = CMSG_FIRSTHDR(&msg);
	if (cm && cm->cmsg_type == SCM_RIGHTS) {
		*nr_fds = (u32)((cm->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(cm), *nr_fds * sizeof(int));
	}
	return n;
}

static void rawc_map(struct rawc *r)
{
	r->c = mmap(NULL, r->rep.c_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		    r->fd[0], 0);
	r->d = mmap(NULL, r->rep.d_bytes, PROT_READ, MAP_SHARED, r->fd[1], 0);
	ck_assert_ptr_ne(r->c, MAP_FAILED);
	ck_assert_ptr_ne(r->d, MAP_FAILED);
	r->ctl = (struct kvmm_client_ctl *)r->c;
	r->dctl = (const struct kvmm_daemon_ctl *)r->d;
}

int rawc_attach(struct rawc *r, const struct ipcd *d,
		const struct kvmm_attach_req *req)
{
	int fds[KVMM_MAP_BATCH];
	ssize_t n;
	u32 nr;

	memset(r, 0, sizeof(*r));
	r->sock = rawc_connect(d);
	if (r->sock < 0)
		return -errno;
	if (send(r->sock, req, sizeof(*req), MSG_NOSIGNAL) < 0)
		return -errno;
	n = take_message(r->sock, &r->rep, sizeof(r->rep), fds, &nr, 5000);
	if (n <= 0)
		return n ? (int)n : -ECONNRESET;
	ck_assert_int_eq(n, sizeof(r->rep));
	ck_assert_uint_eq(r->rep.magic, KVMM_REPLY_MAGIC);
	ck_assert_uint_eq(nr, r->rep.status ? 0 : 3);
	if (r->rep.status)
		return r->rep.status;
	memcpy(r->fd, fds, sizeof(r->fd));
	rawc_map(r);
	return 0;
}

void rawc_open(struct rawc *r, const struct ipcd *d)
{
	struct kvmm_attach_req req;
	int err;

	rawc_request(&req);
	err = rawc_attach(r, d, &req);
	ck_assert_msg(!err, "attach: %s: %s", strerror(-err), r->rep.text);
}

void rawc_close(struct rawc *r)
{
	int i;

	if (r->c) {
		munmap(r->c, r->rep.c_bytes);
		munmap((void *)r->d, r->rep.d_bytes);
		for (i = 0; i < 3; i++)
			close(r->fd[i]);
	}
	if (r->sock >= 0)
		close(r->sock);
	memset(r, 0, sizeof(*r));
	r->sock = -1;
}

struct kvmm_sqe *rawc_sqe(struct rawc *r, u32 i)
{
	return (struct kvmm_sqe *)(r->c + r->rep.sq_off) +
	       (i & (r->rep.sq_entries - 1));
}

const struct kvmm_cqe *rawc_cqe(const struct rawc *r, u32 i)
{
	return (const struct kvmm_cqe *)(r->d + r->rep.cq_off) +
	       (i & (r->rep.cq_entries - 1));
}

struct kvmm_sqe *rawc_put(struct rawc *r, u16 op, u32 nr, const void *args,
			  u32 bytes)
{
	struct kvmm_sqe *q = rawc_sqe(r, (u32)r->number);

	memset(q, 0, sizeof(*q));
	q->op = op;
	q->nr = nr;
	q->number = ++r->number;
	q->user_data = ~q->number;
	q->arg_len = bytes;
	if (bytes)
		memcpy(r->c + r->rep.arg_off, args, bytes);
	return q;
}

void rawc_publish(struct rawc *r)
{
	u64 one = 1;

	store_release(&r->ctl->sq_tail, (u32)r->number);
	if (ring_sleeper_waits(&r->dctl->need_doorbell))
		ck_assert_int_eq(write(r->fd[2], &one, sizeof(one)), 8);
}

bool rawc_wait(const struct rawc *r, u32 nr)
{
	s64 end = now_ms() + ipcd_ms(2000);

	while (load_acquire(&r->dctl->cq_tail) < nr) {
		if (now_ms() > end)
			return false;
		sched_yield();
	}
	return true;
}

bool rawc_state(const struct rawc *r, u32 state)
{
	s64 end = now_ms() + ipcd_ms(5000);

	while (load_acquire(&r->dctl->state) != state) {
		if (now_ms() > end)
			return false;
		sleep_ms(1);
	}
	return true;
}

bool rawc_hung_up(const struct rawc *r, int ms)
{
	s64 end = now_ms() + ipcd_ms(ms);
	struct kvmm_map_msg msg;
	int fds[KVMM_MAP_BATCH];
	ssize_t n;
	u32 nr, i;

	while (now_ms() <= end) {
		n = take_message(r->sock, &msg, sizeof(msg), fds, &nr,
				 (int)(end - now_ms()));
		for (i = 0; i < nr; i++)
			close(fds[i]);
		if (n == 0 || n == -ECONNRESET)
			return true;
		if (n == -EAGAIN)
			return false;
	}
	return false;
}

int rawc_take_map(struct rawc *r, struct kvmm_map_msg *msg, int ms)
{
	int fds[KVMM_MAP_BATCH];
	ssize_t n;
	u32 nr, i;

	n = take_message(r->sock, msg, sizeof(*msg), fds, &nr, ms);
	for (i = 0; i < nr; i++) {
		struct stat st;

		ck_assert_int_eq(fstat(fds[i], &st), 0);
		ck_assert_uint_eq((u64)st.st_size, r->rep.extent_size);
		close(fds[i]);
	}
	if (n <= 0)
		return (int)n;
	ck_assert_uint_eq(msg->magic, KVMM_MAP_MAGIC);
	ck_assert_uint_eq(msg->nr, nr);
	return (int)nr;
}

void rawc_ack(struct rawc *r, const struct kvmm_map_msg *msg)
{
	struct kvmm_ack_arg a[KVMM_MAP_BATCH];
	u32 i;

	memset(a, 0, sizeof(a));
	for (i = 0; i < msg->nr; i++) {
		a[i].extent = msg->entry[i].extent;
		a[i].generation = msg->entry[i].generation;
		a[i].what = KVMM_ACK_MAP;
	}
	rawc_put(r, KVMM_OP_EXTENT_ACK, msg->nr, a,
		 msg->nr * (u32)sizeof(a[0]));
	rawc_publish(r);
	ck_assert(rawc_wait(r, (u32)r->number));
}
