// SPDX-License-Identifier: Apache-2.0
/*
 * bench_scrape.c - cost for the mm thread of one read of its state a second
 *
 * Two clients fill prompts at a fixed pace and hold sequences besides; the files
 * are mounted and metrics served.  There are three kinds of turns: no read; a
 * read of /metrics over HTTP each second; or that and the whole tree, every file
 * once, as kvmm-proc --snapshot copies it.  The figure is the CPU time of the
 * mm thread, as the kernel accounts it, as a part of one core.
 *
 * Most of that is the load, which varies with the rest of the machine.  So the
 * same is measured once more while the clients rest: there all of the difference
 * is the cost of the reads.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/cache_probe.h"

#define ROUNDS		5u
#define LOOKS		3u	/* of a turn, one a second */
#define CLIENTS		2u
#define HELD		16u	/* sequences that a client keeps */
#define PACE_US		2000u	/* between two prompts */
#define NS_S		1000000000ull
#define AIM		0.01	/* of a core */

static struct bench_daemon node;
static u32 port;
static int mm_stat;		/* schedstat of the mm thread */
static char copy[128];

enum looks {
	LOOK_NOT,
	LOOK_METRICS,
	LOOK_ALL,
	NR_LOOKS,
};

/* ---- load ---- */

/* Compute a prompt; @keep: leave its sequence open. */
static void fill(struct kvmm *k, u32 number, bool keep)
{
	static u64 step;
	u64 seq = cp_open(k, 0);
	struct kvmm_seq_status st;
	const u32 found = cp_match(k, seq, cp_prompt(number), &st);
	struct kvmm_begin_arg begin = {
		.seq = seq, .seq_epoch = st.seq_epoch, .start = found,
		.max_tokens = CP_LEN - found,
	};
	struct kvmm_end_arg end = {
		.seq = seq, .valid_len = CP_LEN, .nr_ids = CP_LEN - found,
	};
	struct kvmm_begin_res bres;
	struct kvmm_end_res eres;

	CP_MUST(!kvmm_step_begin(k, ++step, &begin, 1, &bres) && !bres.status);
	CP_MUST(!kvmm_step_end(k, step, 1000, CP_LEN, &end, 1,
			       cp_prompt(number) + found, &eres) &&
		!eres.status);
	if (!keep)
		CP_MUST(!kvmm_seq_close(k, &seq, 1));
}

/* A client; it begins when it is sent a byte. */
static void __noreturn client_main(u32 client, int up, int down)
{
	struct kvmm *k = cp_attach(node.socket);
	u32 number = client << 24;
	char byte;

	while (number < (client << 24) + HELD)
		fill(k, number++, true);
	CP_MUST(write(up, "x", 1) == 1 && read(down, &byte, 1) == 1);
	for (;;) {
		fill(k, number++, false);
		usleep(PACE_US);
	}
}

static pid_t client_start(u32 client, int down)
{
	int up[2];
	pid_t pid;
	char byte;

	CP_MUST(!pipe(up));
	pid = fork();
	CP_MUST(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		client_main(client, up[1], down);
	}
	close(up[1]);
	CP_MUST(read(up[0], &byte, 1) == 1);
	close(up[0]);
	return pid;
}

/* ---- the thread ---- */

/* The entry of @dir whose comm is @name and, for processes, parent is @parent. */
static int find_comm(const char *dir, const char *name, pid_t parent)
{
	char path[400], comm[32];
	int found = 0, ppid;
	struct dirent *e;
	DIR *d = opendir(dir);
	FILE *f;

	while (d && !found && (e = readdir(d))) {
		if (e->d_name[0] < '0' || e->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "%s/%s/stat", dir, e->d_name);
		f = fopen(path, "re");
		if (f && fscanf(f, "%*d (%31[^)]) %*c %d", comm, &ppid) == 2 &&
		    !strcmp(comm, name) && (!parent || ppid == parent))
			found = atoi(e->d_name);
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return found;
}

static void find_thread(void)
{
	const int kvmm = find_comm("/proc", "kvmm", node.pid);
	char path[96];

	snprintf(path, sizeof(path), "/proc/%d/task", kvmm);
	snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", kvmm,
		 find_comm(path, "kvmm-mm", 0));
	mm_stat = open(path, O_RDONLY | O_CLOEXEC);
	if (mm_stat < 0)
		bench_die("%s: %s: this kernel accounts no CPU time of threads",
			  path, strerror(errno));
}

/* Nanoseconds that the mm thread ran. */
static u64 mm_ns(void)
{
	char text[128] = "";

	CP_MUST(pread(mm_stat, text, sizeof(text) - 1, 0) > 0);
	return strtoull(text, NULL, 10);
}

/* ---- looking ---- */

static struct sockaddr_in address(u32 number)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET, .sin_port = htons((u16)number),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
}

/* A port that is free now. */
static u32 free_port(void)
{
	struct sockaddr_in sa = address(0);
	socklen_t len = sizeof(sa);
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CP_MUST(s >= 0 && !bind(s, (struct sockaddr *)&sa, len) &&
		!getsockname(s, (struct sockaddr *)&sa, &len));
	close(s);
	return ntohs(sa.sin_port);
}

/* Return: whether there was a whole page. */
static bool read_metrics(void)
{
	static const char ask[] = "GET /metrics HTTP/1.1\r\nHost: bench\r\n\r\n";
	const struct sockaddr_in sa = address(port);
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	static char page[1 << 20];
	size_t len = 0;
	ssize_t n;

	if (!connect(s, (const struct sockaddr *)&sa, sizeof(sa)) &&
	    send(s, ask, sizeof(ask) - 1, MSG_NOSIGNAL) > 0)
		while ((n = recv(s, page + len, sizeof(page) - 1 - len, 0)) > 0)
			len += (size_t)n;
	page[len] = '\0';
	close(s);
	return !strncmp(page, "HTTP/1.1 200 ", 13) &&
	       strstr(page, "kvmm_req_refused_total ");
}

static void read_snapshot(void)
{
	const char *build = getenv("KVMM_BUILD");
	char program[512];
	int status;
	pid_t pid = fork();

	if (!pid) {
		snprintf(program, sizeof(program), "%s/kvmm-proc",
			 build ? build : "build");
		execl(program, program, "--dir", node.dir, "--snapshot", copy,
		      "--log-level", "err", (char *)NULL);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		bench_die("kvmm-proc --snapshot ended with status 0x%x", status);
}

/* ---- turns ---- */

static void sleep_until(u64 at)
{
	const u64 now = bench_now();

	if (at > now)
		usleep((useconds_t)((at - now) / 1000));
}

/*
 * CPU time of the mm thread in a turn, in ns.  @took is how long the turn was: a
 * busy machine may need more than a second for a read.
 */
static double turn(enum looks looks, double *took)
{
	const u64 begin = bench_now(), ran = mm_ns();
	u32 i;

	for (i = 0; i < LOOKS; i++) {
		if (looks != LOOK_NOT && !read_metrics())
			bench_die("no metrics at port %u", port);
		if (looks == LOOK_ALL)
			read_snapshot();
		sleep_until(begin + (i + 1) * NS_S);
	}
	*took = (double)(bench_now() - begin);
	return (double)(mm_ns() - ran);
}

static void report(const char *load, const char *looks, double without,
		   double more)
{
	const double with = without + more;
	char name[64], part[64];

	snprintf(name, sizeof(name), "scrape.%s.%s.mm", load, looks);
	snprintf(part, sizeof(part), "scrape.%s.%s.added", load, looks);
	bench_report(&(struct bench_figure){
		.name = name, .value = with, .unit = "cores",
		.peer = "nobody looks", .peer_value = without,
	});
	bench_report(&(struct bench_figure){
		.name = part, .value = more, .unit = "cores",
		.max_value = AIM,
	});
	bench_verdict(more <= AIM, "%s, %s: the mm thread takes %.3f %% of a core, %.3f %% when nobody looks: ratio %.2f, %.3f %% more",
		      load, looks, 100 * with, 100 * without, with / without,
		      100 * more);
}

static void measure(const char *load)
{
	static const char * const name[NR_LOOKS] = { "", "metrics", "all" };
	double ran[NR_LOOKS][ROUNDS], took[NR_LOOKS][ROUNDS];
	double without[ROUNDS], more[ROUNDS];
	u32 i, k, n;

	for (i = 0; i < ROUNDS; i++) {
		for (n = 0; n < NR_LOOKS; n++) {
			k = (i + n) % NR_LOOKS;
			ran[k][i] = turn(k, &took[k][i]);
		}
		without[i] = ran[LOOK_NOT][i] / took[LOOK_NOT][i];
	}
	for (k = LOOK_METRICS; k < NR_LOOKS; k++) {
		/* Cost of a read: there is one a second. */
		for (i = 0; i < ROUNDS; i++)
			more[i] = (ran[k][i] - without[i] * took[k][i]) /
				  (LOOKS * (double)NS_S);
		report(load, name[k], bench_median(without, ROUNDS),
		       bench_median(more, ROUNDS));
	}
	if (bench_median(took[LOOK_ALL], ROUNDS) > LOOKS * 1.1 * (double)NS_S)
		printf("note: to look at all takes %.1f s here: the machine is busy\n",
		       bench_median(took[LOOK_ALL], ROUNDS) / LOOKS /
		       (double)NS_S);
}

static void start(void)
{
	static char text[16];
	const char *args[] = {
		"--pool-size", "64M", "--extent-size", "1M", "--host-size",
		"32M", "--min-token-bytes", "64", "--proc", "on", "--metrics",
		text, NULL,
	};
	u32 i;

	port = free_port();
	snprintf(text, sizeof(text), "%u", port);
	bench_hold_start(&node, args);
	for (i = 0; !read_metrics(); i++) {
		if (i == 2000)
			bench_die("no metrics at port %u", port);
		usleep(10000);
	}
	snprintf(copy, sizeof(copy), "%s/copy", node.dir);
}

int main(void)
{
	pid_t client[CLIENTS];
	int down[2];
	u32 i;

	start();
	find_thread();
	CP_MUST(!pipe(down));
	for (i = 0; i < CLIENTS; i++)
		client[i] = client_start(i + 1, down[0]);
	measure("rest");
	CP_MUST(write(down[1], "xxxxxxxx", CLIENTS) == CLIENTS);
	measure("load");
	for (i = 0; i < CLIENTS; i++)
		kill(client[i], SIGKILL);
	bench_daemon_stop(&node);
	return 0;
}
