// SPDX-License-Identifier: Apache-2.0
/*
 * probe_share.c - two processes on one GPU
 *
 * copyshare  copies of one process, as the daemon's, while another's kernels own
 *            the multiprocessors
 * wait       words in shared host memory that streams wait for and write
 * turns      two processes that decode: the cost of the change between them
 * mps        copyshare and turns again, as clients of an MPS server of ours
 *
 * A rate is taken over a fixed amount of work, not a fixed time: a kernel that
 * waits for the clock makes progress while it is not running.
 */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/probe.h"

#define COPY_MAX	512
#define STEP_NODES	290

static const char *prefix = "";

static u32 ms_of(u32 ms)
{
	return gpu_tiny ? 20 : ms;
}

/* Read @bytes of @from once, by p_read on the whole device. */
static void put_read(struct gpu *g, CUdeviceptr from, u64 bytes, CUstream s)
{
	struct p_read_args a = {
		.from = (const u8 *)(uintptr_t)from, .quads = bytes / 16,
		.out = (u32 *)(uintptr_t)from,
	};

	gpu_launch(g, gpu_kernel(g, "p_read"), gpu_tiny ? 2 : 8 * g->sms, 1,
		   256, s, &a);
}

/* ---- a process that keeps the device busy ---- */

enum { BURN_SPIN, BURN_READ };

/*
 * Keeps two kernels queued.  arg[0]: kind; arg[1]: us of a spin or MiB of a
 * read.  Each later message is answered by v[0] kernels and v[1] us since the
 * message before.
 */
static void burner_role(int sock)
{
	struct p_spin_args spin = { 0 };
	struct role_msg m, ask;
	CUdeviceptr mem = 0;
	CUevent done[2];
	double start;
	u64 nr = 0, base = 2;
	struct gpu g;

	probe_open(&g);
	if (!role_recv(sock, &m, NULL, 60000))
		return;
	spin.ns = m.arg[1] * 1000;
	if (m.arg[0] == BURN_READ)
		mem = probe_device(&g, m.arg[1] * GPU_MIB);
	GPU_DO(g.cu->EventCreate(&done[0], CU_EVENT_DISABLE_TIMING));
	GPU_DO(g.cu->EventCreate(&done[1], CU_EVENT_DISABLE_TIMING));
	start = gpu_now_us();
	for (;;) {
		if (m.arg[0] == BURN_READ)
			put_read(&g, mem, m.arg[1] * GPU_MIB, g.stream);
		else
			probe_spin(&g, g.stream, &spin);
		GPU_DO(g.cu->EventRecord(done[nr & 1], g.stream));
		if (nr++)
			GPU_DO(g.cu->EventSynchronize(done[nr & 1]));
		if (nr == 2)
			role_send(sock, &m, -1);
		if (poll(&(struct pollfd){ sock, POLLIN, 0 }, 1, 0) <= 0)
			continue;
		if (!role_recv(sock, &ask, NULL, 0))
			return;
		ask.v[0] = (double)(nr - base);
		ask.v[1] = gpu_now_us() - start;
		role_send(sock, &ask, -1);
		base = nr;
		start = gpu_now_us();
	}
}

static double burner_rate(struct role *r, u32 ms)
{
	struct role_msg m = { 0 };

	role_ask(r, &m, -1);
	usleep(1000 * ms);
	role_ask(r, &m, -1);
	return 1e6 * m.v[0] / m.v[1];
}

/* ---- copyshare ---- */

struct copier {
	struct gpu	g;
	CUdeviceptr	dev;
	u8		*host;
};

static void copier_open(struct copier *c, u64 bytes)
{
	probe_open(&c->g);
	c->dev = probe_device(&c->g, bytes);
	c->host = probe_host(&c->g, bytes);
	probe_fill(&c->g, c->dev, bytes, 3);
}

/* Copy @bytes again and again for @ms; @us gets the microseconds of each. */
static u32 copy_for(struct copier *c, bool to_host, u64 bytes, u32 ms,
		    double *us)
{
	const double end = gpu_now_us() + 1e3 * ms;
	double t;
	u32 nr = 0;

	while (nr < COPY_MAX && (nr < 3 || gpu_now_us() < end)) {
		t = gpu_now_us();
		if (to_host)
			GPU_DO(c->g.cu->MemcpyDtoHAsync(c->host, c->dev, bytes,
							c->g.stream));
		else
			GPU_DO(c->g.cu->MemcpyHtoDAsync(c->dev, c->host, bytes,
							c->g.stream));
		GPU_DO(c->g.cu->StreamSynchronize(c->g.stream));
		us[nr++] = gpu_now_us() - t;
	}
	return nr;
}

static void copy_figures(struct copier *c, const char *beside)
{
	static const char *const ways[] = { "H2D", "D2H" };
	const u64 big = probe_bytes(64 * GPU_MIB), small = 2 * GPU_MIB;
	static double us[COPY_MAX], gbs[COPY_MAX];
	u32 nr, i, to_host;

	for (to_host = 0; to_host < 2; to_host++) {
		nr = copy_for(c, to_host, big, ms_of(1500), us);
		for (i = 0; i < nr; i++)
			gbs[i] = big / us[i] / 1e3;
		gpu_emit(&(struct gpu_line){ .unit = "GB/s" }, gbs, nr,
			 "%scopyshare.%s.%s.64M", prefix, beside,
			 ways[to_host]);
		nr = copy_for(c, to_host, small, ms_of(500), us);
		gpu_emit(&(struct gpu_line){ .unit = "us" }, us, nr,
			 "%scopyshare.%s.%s.2M", prefix, beside, ways[to_host]);
		gpu_fact(gpu_percentile(us, nr, 99), "us", NULL,
			 "%scopyshare.%s.%s.2M.p99", prefix, beside,
			 ways[to_host]);
	}
}

static void copy_beside(struct copier *c, const char *name, u64 what, u64 much)
{
	struct role_msg m = { .arg = { what, much } };
	struct role r;
	double alone, beside;

	role_start(&r, "burner", NULL);
	role_ask(&r, &m, -1);
	alone = burner_rate(&r, ms_of(500));
	/* The rate beside copies is measured from here to the question below. */
	role_ask(&r, &m, -1);
	copy_figures(c, name);
	role_ask(&r, &m, -1);
	beside = 1e6 * m.v[0] / m.v[1];
	gpu_emit(&(struct gpu_line){ "kernels/s", "without copies", alone, NULL },
		 &beside, 1, "%scopyshare.%s.kernels", prefix, name);
	role_end(&r);
}

void part_copyshare(void)
{
	struct copier c;

	copier_open(&c, probe_bytes(64 * GPU_MIB));
	copy_figures(&c, "alone");
	copy_beside(&c, "spin_1ms", BURN_SPIN, 1000);
	copy_beside(&c, "spin_50ms", BURN_SPIN, 50000);
	copy_beside(&c, "read", BURN_READ, gpu_tiny ? 4 : 4096);
}

/* ---- wait ---- */

#define WAIT_MAX	200
#define WAIT_GEQ	0

/* Two words on separate cache lines: the asker's and the answerer's. */
struct mailbox {
	volatile u64	ask;
	u64		pad[31];
	volatile u64	answer;
};

static struct mailbox *mailbox_map(struct gpu *g, int fd, CUdeviceptr *dev)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		gpu_die("the mailbox cannot be mapped");
	/* Portable, and mapped for the device. */
	GPU_DO(g->cu->MemHostRegister(p, 4096, 1 | 2));
	GPU_DO(g->more->MemHostGetDevicePointer(dev, p, 0));
	return p;
}

static CUdeviceptr answer_at(CUdeviceptr dev)
{
	return dev + offsetof(struct mailbox, answer);
}

/* Queues arg[0] pairs of waiting for n and answering n, then reports it. */
static void answerer_role(int sock)
{
	struct role_msg m;
	CUdeviceptr dev;
	struct gpu g;
	int fd;
	u64 i;

	gpu_open(&g);
	if (!role_recv(sock, &m, &fd, 60000))
		return;
	mailbox_map(&g, fd, &dev);
	for (i = 1; i <= m.arg[0]; i++) {
		GPU_DO(g.more->StreamWaitValue64(g.stream, dev, i, WAIT_GEQ));
		GPU_DO(g.more->StreamWriteValue64(g.stream, answer_at(dev), i,
						  0));
	}
	role_send(sock, &m, -1);
	GPU_DO(g.cu->StreamSynchronize(g.stream));
	role_recv(sock, &m, NULL, 60000);
}

enum { BY_HOST, BY_STREAM, BY_HOST_BUSY };
static const char *const wait_names[] = {
	"host_to_stream", "stream_to_stream", "host_to_stream_beside_kernels",
};

/* One round trip in microseconds, or -1 after 5 s. */
static double ask_once(struct gpu *g, struct mailbox *b, CUdeviceptr dev,
		       u64 i, u32 how)
{
	const double t = gpu_now_us();

	if (how == BY_STREAM)
		GPU_DO(g->more->StreamWriteValue64(g->stream, dev, i, 0));
	else
		__atomic_store_n(&b->ask, i, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&b->answer, __ATOMIC_ACQUIRE) < i) {
		if (gpu_now_us() - t > 5e6)
			return -1;
		/* Some drivers submit the write only when the stream is queried. */
		if (how == BY_STREAM)
			(void)!g->cu->StreamQuery(g->stream);
	}
	return gpu_now_us() - t;
}

static void wait_figures(u32 how)
{
	const u32 nr = gpu_tiny ? 5 : WAIT_MAX;
	struct p_spin_args spin = { .ns = 20000000 };
	struct role_msg m = { .arg = { nr } };
	int fd = memfd_create("mailbox", MFD_CLOEXEC);
	static double us[WAIT_MAX];
	struct mailbox *b;
	CUdeviceptr dev;
	struct role r;
	struct gpu g;
	u32 i;

	probe_open(&g);
	if (!g.more->StreamWaitValue64 || !g.more->StreamWriteValue64 ||
	    !g.more->MemHostGetDevicePointer) {
		gpu_skipped("the driver has no stream memory operations",
			    "wait.%s", wait_names[how]);
		return;
	}
	if (ftruncate(fd, 4096))
		gpu_die("memfd");
	b = mailbox_map(&g, fd, &dev);
	role_start(&r, "answerer", NULL);
	role_ask(&r, &m, fd);
	for (i = 0; i < nr; i++) {
		if (how == BY_HOST_BUSY && i % 20 == 0)
			probe_spin(&g, g.stream, &spin);
		us[i] = ask_once(&g, b, dev, i + 1, how);
		if (us[i] < 0) {
			gpu_failed("no answer in 5 s", "wait.%s",
				   wait_names[how]);
			break;
		}
	}
	if (i == nr) {
		gpu_emit(&(struct gpu_line){ .unit = "us" }, us, nr,
			 "wait.%s.round_trip", wait_names[how]);
		gpu_fact(gpu_percentile(us, nr, 99), "us", NULL,
			 "wait.%s.round_trip.p99", wait_names[how]);
	}
	GPU_DO(g.cu->StreamSynchronize(g.stream));
	role_end(&r);
	GPU_DO(g.cu->MemHostUnregister(b));
	close(fd);
}

void part_wait(void)
{
	wait_figures(BY_HOST);
	wait_figures(BY_STREAM);
	wait_figures(BY_HOST_BUSY);
}

/* ---- turns ---- */

/* The reads of a decode step of 15 GB, a kernel each, as a graph. */
static CUgraphExec step_graph(struct gpu *g, CUdeviceptr mem, u64 bytes)
{
	const u32 nodes = gpu_tiny ? 4 : STEP_NODES;
	const u64 each = gpu_tiny ? 65536 : 52000000 / 256 * 256;
	CUgraphExec exec;
	CUgraph graph;
	u64 at = 0;
	u32 i;

	/* Load the kernel before it is recorded. */
	put_read(g, mem, each, g->stream);
	GPU_DO(g->cu->StreamSynchronize(g->stream));
	GPU_DO(g->cu->StreamBeginCapture(g->stream, CU_CAPTURE_THREAD_LOCAL));
	for (i = 0; i < nodes; i++) {
		put_read(g, mem + at, each, g->stream);
		at = at + 2 * each > bytes ? 0 : at + each;
	}
	GPU_DO(g->cu->StreamEndCapture(g->stream, &graph));
	GPU_DO(g->cu->GraphInstantiate(&exec, graph, 0));
	return exec;
}

/*
 * Runs steps: arg[0] ms of them, or one if it is 0.  Answers with v[0] steps,
 * v[1] us of all, v[2] median of a step, v[3] its p99.
 */
static void decoder_role(int sock)
{
	static double us[65536];
	const u64 bytes = probe_bytes(4 * GPU_GIB);
	struct role_msg m;
	CUgraphExec step;
	double t, start;
	struct gpu g;
	u32 nr;

	probe_open(&g);
	step = step_graph(&g, probe_device(&g, bytes), bytes);
	while (role_recv(sock, &m, NULL, 60000)) {
		start = gpu_now_us();
		nr = 0;
		do {
			t = gpu_now_us();
			GPU_DO(g.cu->GraphLaunch(step, g.stream));
			GPU_DO(g.cu->StreamSynchronize(g.stream));
			us[nr++] = gpu_now_us() - t;
		} while (nr < 65536 && gpu_now_us() - start < 1e3 * m.arg[0]);
		m.v[0] = nr;
		m.v[1] = gpu_now_us() - start;
		m.v[2] = gpu_median(us, nr);
		m.v[3] = gpu_percentile(us, nr, 99);
		role_send(sock, &m, -1);
	}
}

/* Run all roles at once for @ms; @m gets their answers. */
static void both(struct role *r, u32 nr, u32 ms, struct role_msg *m)
{
	u32 i;

	for (i = 0; i < nr; i++) {
		m[i] = (struct role_msg){ .arg = { ms } };
		role_send(r[i].sock, &m[i], -1);
	}
	for (i = 0; i < nr; i++) {
		if (!role_recv(r[i].sock, &m[i], NULL, 120000))
			gpu_die("a decoder ended");
	}
}

static double together(struct role *r, u32 nr, double alone)
{
	const struct gpu_line l = { "steps/s", "one alone", alone, NULL };
	struct role_msg m[4];
	double rate = 0;
	u32 i;

	both(r, nr, ms_of(4000), m);
	for (i = 0; i < nr; i++)
		rate += 1e6 * m[i].v[0] / m[i].v[1];
	gpu_emit(&l, &rate, 1, "%sturns.%u_at_once.all", prefix, nr);
	gpu_fact(m[0].v[2] / 1e3, "ms", NULL, "%sturns.%u_at_once.step", prefix,
		 nr);
	gpu_fact(m[0].v[3] / 1e3, "ms", NULL, "%sturns.%u_at_once.step_p99",
		 prefix, nr);
	return rate;
}

/* Steps of one process alone, then of two in turn. */
static void in_turn(struct role *r)
{
	static double same[100], other[100];
	const u32 nr = gpu_tiny ? 4 : 100;
	struct role_msg m;
	u32 i;

	for (i = 0; i < 2 * nr; i++) {
		m = (struct role_msg){ 0 };
		role_ask(&r[0], &m, -1);
		if (i >= nr)
			same[i - nr] = m.v[2];
	}
	for (i = 0; i < 2 * nr; i++) {
		m = (struct role_msg){ 0 };
		role_ask(&r[i & 1], &m, -1);
		other[i / 2] = m.v[2];
	}
	gpu_emit(&(struct gpu_line){ .unit = "us" }, same, nr,
		 "%sturns.step_after_own", prefix);
	gpu_emit(&(struct gpu_line){ "us", "after its own",
				     gpu_median(same, nr), NULL },
		 other, nr, "%sturns.step_after_other", prefix);
}

void part_turns(void)
{
	struct role_msg m = { 0 };
	struct role r[4];
	double alone;
	u32 i;

	for (i = 0; i < 4; i++) {
		role_start(&r[i], "decoder", NULL);
		role_ask(&r[i], &m, -1);
		m = (struct role_msg){ 0 };
	}
	alone = together(r, 1, 0);
	in_turn(r);
	together(r, 2, alone);
	together(r, 4, alone);
	for (i = 0; i < 4; i++)
		role_end(&r[i]);
}

/* ---- mps ---- */

static pid_t mps_start(const char *dir)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	execlp("nvidia-cuda-mps-control", "nvidia-cuda-mps-control", "-f",
	       (char *)NULL);
	_exit(127);
}

static void mps_stop(pid_t pid)
{
	FILE *f = popen("nvidia-cuda-mps-control >/dev/null 2>&1", "w");

	if (f) {
		fputs("quit -t 5\n", f);
		pclose(f);
	}
	usleep(300000);
	kill(pid, SIGTERM);
	waitpid(pid, NULL, 0);
}

void part_mps(void)
{
	char dir[] = "/tmp/kvmm-mps.XXXXXX", rm[64];
	pid_t pid;

	if (!gpu_is_real() ||
	    system("command -v nvidia-cuda-mps-control >/dev/null 2>&1")) {
		gpu_skipped("nvidia-cuda-mps-control is not installed", "mps");
		return;
	}
	if (!mkdtemp(dir))
		gpu_die("no directory for the MPS server");
	setenv("CUDA_MPS_PIPE_DIRECTORY", dir, 1);
	setenv("CUDA_MPS_LOG_DIRECTORY", dir, 1);
	pid = mps_start(dir);
	sleep(2);
	if (waitpid(pid, NULL, WNOHANG) == pid) {
		gpu_skipped("the MPS control process ended at once", "mps");
		return;
	}
	prefix = "mps.";
	part_turns();
	part_copyshare();
	mps_stop(pid);
	snprintf(rm, sizeof(rm), "rm -rf %s", dir);
	if (system(rm))
		gpu_die("%s is left over", dir);
}

const struct role_entry share_roles[] = {
	{ "burner", burner_role },
	{ "answerer", answerer_role },
	{ "decoder", decoder_role },
	{ 0 }
};
