// SPDX-License-Identifier: Apache-2.0
/*
 * it_procfs.c - the mounted files equal kvctl's, and disturb no other process
 *
 * kvmm-hold starts kvmm and kvmm-proc.  Every file is read through the mount
 * and by kvctl.  meminfo adds up and pressure has PSI's form while a runtime
 * works; limits are written; another user sees its own records only.  All other
 * processes survive a reader that hangs, a kvmm-proc or a kvmm that is killed,
 * a kvmm that is stopped, and a stale mount.  Copies of the files are made
 * where mounting is impossible.  Without /dev/fuse, the right to mount, or
 * root's rights, the rest is skipped with the reason.
 * budget: 30 s, full 240 s, soak 3600 s
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <libkvmm.h>

#include "kvmm/core/core.h"
#include "kvmm/proc/keys.h"
#include "tests/integration/harness.h"

#define PROC_UID	"4545"
#define OTHER_UID	4646
#define LIMIT_S		20
#define FILES_USER	64	/* limit in kvmm/procfs/fs.c */

static struct rig rig;
static char proc_dir[RIG_PATH + 16];

static u64 deadline(void)
{
	return now_ms() + LIMIT_S * 1000ull * time_scale();
}

/* ---- reading ---- */

static const char *proc_path(const char *name)
{
	static char path[4][3 * RIG_PATH];
	static u32 turn;
	char *p = path[turn++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", proc_dir, name);
	return p;
}

/* The text of a file below @dir, to be freed; NULL with errno. */
static char *read_at(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	char *text = calloc(1, 1);
	size_t len = 0;
	ssize_t n = -1;
	int err;

	ck_assert_ptr_nonnull(text);
	while (fd >= 0) {
		text = realloc(text, len + 4097);
		ck_assert_ptr_nonnull(text);
		n = read(fd, text + len, 4096);
		len += n > 0 ? (size_t)n : 0;
		text[len] = '\0';
		if (n <= 0)
			break;
	}
	err = errno;
	if (fd >= 0)
		close(fd);
	if (!n)
		return text;
	free(text);
	errno = err;
	return NULL;
}

static char *read_proc(const char *name)
{
	return read_at(AT_FDCWD, proc_path(name));
}

/* Wait until the file is readable: a process is being started again. */
static void await_file(const char *name)
{
	const u64 end = deadline();
	char *text;

	while (!(text = read_proc(name))) {
		ck_assert_msg(now_ms() < end, "%s: %s", name, strerror(errno));
		nap_ms(5);
	}
	free(text);
}

static char *kvctl(const char *verb, const char *path)
{
	struct job j = job_start(&rig, "kvctl", verb, path, NULL);
	int code = job_wait(&j, 30 * time_scale());
	char *text = slurp(j.out);

	ck_assert_msg(!code, "kvctl %s %s: %s", verb, path, slurp(j.err));
	unlink(j.out);
	unlink(j.err);
	return text;
}

/* Number of mounts at the mount point. */
static u32 nr_mounts(void)
{
	char *text = slurp("/proc/self/mountinfo"), *p, word[RIG_PATH + 32];
	u32 nr = 0;

	snprintf(word, sizeof(word), " %s ", proc_dir);
	for (p = strstr(text, word); p; p = strstr(p + 1, word))
		nr++;
	free(text);
	return nr;
}

/* ---- a daemon with a client ---- */

static struct kvmm *client;

static struct kvmm *attach(const char *path, const char *domain)
{
	static const u8 identity[KVMM_IDENTITY_LEN] = "it_procfs";
	const struct kvmm_params p = {
		.socket = path, .domain = domain, .identity = identity,
		.block_tokens = 16,
		.group[0] = { .layers = 1, .kv_heads = 1, .k_bytes = 2048,
			   .v_bytes = 2048 },
		.max_bytes = KVMM_LIMIT_MAX, .attach_timeout_ms = 20000,
	};
	struct kvmm_open_arg arg = { .prompt_len = 64 };
	struct kvmm_open_res res;
	char text[256];
	struct kvmm *k;

	if (kvmm_attach(&p, &k, text) || kvmm_seq_open(k, &arg, 1, &res))
		return NULL;
	return k;
}

static void attach_own(const char *domain)
{
	char path[RIG_PATH + 16];

	snprintf(path, sizeof(path), "%s/attach.sock", rig.dir);
	client = attach(path, domain);
	ck_assert_ptr_nonnull(client);
}

static void start(void)
{
	rig_start(&rig, "--pool-size", "16M", "--extent-size", "1M",
		  "--socket-mode", "0666", "--proc", "on", "--proc-user",
		  PROC_UID, NULL);
	snprintf(proc_dir, sizeof(proc_dir), "%s/proc", rig.dir);
	await_file("version");
	client = NULL;
}

static void stop(void)
{
	if (client)
		kvmm_detach(client);
	rig_stop(&rig);
	ck_assert_uint_eq(nr_mounts(), 0);
}

/* ---- content of the files ---- */

/* Ages and times differ between two readings: mask their digits. */
static void blur(const char *name, char *text)
{
	const char *last = strrchr(name, '/');

	/* In explain, the times since an event. */
	if (strcmp(name, "metrics") && (!last || strcmp(last, "/explain")))
		return;
	for (; *text; text++)
		if (*text >= '0' && *text <= '9')
			*text = '0';
}

/* Read again until both texts are of one moment. */
static void want_same_text(const char *name)
{
	const u64 end = deadline();
	char *a, *b;
	bool same;

	do {
		a = read_proc(name);
		ck_assert_msg(a != NULL, "%s: %s", name, strerror(errno));
		b = kvctl("cat", name);
		if (!strcmp(name, "uptime")) {
			ck_assert_uint_gt(strlen(a), 8);
			same = sscanf(a, "%*f %*f") == sscanf(b, "%*f %*f");
		} else {
			blur(name, a);
			blur(name, b);
			same = !strcmp(a, b);
		}
		ck_assert_msg(same || now_ms() < end, "%s: '%.1500s' '%.1500s'", name, a,
			      b);
		free(a);
		free(b);
	} while (!same);
}

static u32 nr_entries(const char *dir)
{
	DIR *d = opendir(proc_path(dir));
	struct dirent *e;
	u32 nr = 0;

	ck_assert_msg(d != NULL, "%s: %s", dir, strerror(errno));
	while ((e = readdir(d)))
		nr += e->d_name[0] != '.';
	closedir(d);
	return nr;
}

/* Compare all files below @dir with kvctl's list.  Return: number of files. */
static u32 want_same_tree(const char *dir)
{
	char *names = kvctl("ls", *dir ? dir : "/"), *name, *save = NULL;
	u32 nr = 0, listed = 0;
	char path[RIG_PATH];
	struct stat st;

	for (name = strtok_r(names, "\n", &save); name;
	     name = strtok_r(NULL, "\n", &save)) {
		const size_t len = strlen(name);

		listed++;
		snprintf(path, sizeof(path), "%s%s", dir, name);
		ck_assert_msg(!lstat(proc_path(path), &st), "%s: %s", path,
			      strerror(errno));
		ck_assert_int_eq(st.st_size, 0);
		ck_assert_uint_eq(st.st_uid, geteuid());
		if (name[len - 1] == '/') {
			ck_assert_uint_eq(st.st_mode, S_IFDIR | 0555);
			nr += want_same_tree(path);
			continue;
		}
		ck_assert(S_ISREG(st.st_mode));
		ck_assert(st.st_mode & 0400);
		want_same_text(path);
		nr++;
	}
	ck_assert_uint_eq(nr_entries(dir), listed);
	free(names);
	return nr;
}

START_TEST(test_same_tree)
{
	start();
	attach_own("it");
	ck_assert_uint_gt(want_same_tree(""), 40);
	ck_assert_ptr_null(read_proc("nothing"));
	ck_assert_int_eq(errno, ENOENT);
	ck_assert_ptr_null(read_proc("domain/other/status"));
	ck_assert_int_eq(errno, ENOENT);
	ck_assert_ptr_null(read_proc("mem\ninfo"));
	ck_assert_int_eq(errno, ENOENT);
	stop();
}
END_TEST

/* An open file has one text; a read from offset 0 makes a new one. */
START_TEST(test_one_text)
{
	char a[64], b[64];
	int fd;

	start();
	fd = open(proc_path("uptime"), O_RDONLY);
	ck_assert_int_ge(fd, 0);
	memset(a, 0, sizeof(a));
	memset(b, 0, sizeof(b));
	ck_assert_int_eq(pread(fd, a, 3, 0), 3);
	ck_assert_int_gt(pread(fd, a + 3, 60, 3), 3);
	do {
		ck_assert_int_gt(pread(fd, b, 60, 0), 6);
	} while (!strcmp(a, b));
	ck_assert_int_eq(pread(fd, b, 60, 1000), 0);
	close(fd);
	stop();
}
END_TEST

/*
 * Freeing much memory makes the C library shrink a heap, if the thread has a
 * separate one, and look into /proc for that, which the sandbox's list lacks.
 */
START_TEST(test_much_memory)
{
	static char buf[65536];
	int fd[64], i, k;
	pid_t proc;

	start();
	proc = rig_proc(&rig);
	for (i = 0; i < 4; i++) {
		for (k = 0; k < 64; k++) {
			fd[k] = open(proc_path("metrics"), O_RDONLY | O_CLOEXEC);
			ck_assert_int_ge(fd[k], 0);
			ck_assert_int_gt(read(fd[k], buf, sizeof(buf)), 0);
		}
		for (k = 0; k < 64; k++)
			close(fd[k]);
	}
	ck_assert_int_eq(rig_proc(&rig), proc);
	stop();
}
END_TEST

/* ---- under load ---- */

/* Value of a line `KEY:   N kB`. */
static u64 meminfo_value(const char *text, const char *key)
{
	const size_t len = strlen(key);
	unsigned long long kb;
	const char *p;

	for (p = text; p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
		if (!strncmp(p, key, len) && p[len] == ':' &&
		    sscanf(p + len + 1, "%llu kB\n", &kb) == 1)
			return kb;
	ck_abort_msg("no %s in %s", key, text);
	return 0;
}

/* The parts of the pool must add up to its total. */
static void want_partition(const char *text)
{
	u64 sum = 0;

#define x(name, ...) sum += meminfo_value(text, MEMINFO_KEY_##name);
	CORE_POOL_PARTS(x)
#undef x
	ck_assert_msg(sum == meminfo_value(text, "GpuTotal"), "%llu: %s",
		      (unsigned long long)sum, text);
}

/* Two lines, in the form that readers of PSI parse. */
static u64 want_pressure(const char *text, u64 *full)
{
	unsigned long long total[2];
	float avg[6];
	int end = 0;
	u32 i;

	ck_assert_msg(sscanf(text, "some avg10=%f avg60=%f avg300=%f total=%llu\nfull avg10=%f avg60=%f avg300=%f total=%llu\n%n",
			     &avg[0], &avg[1], &avg[2], &total[0], &avg[3],
			     &avg[4], &avg[5], &total[1], &end) == 8 &&
		      end && !text[end], "'%s'", text);
	for (i = 0; i < 6; i++)
		ck_assert(avg[i] >= 0 && avg[i] <= 100);
	ck_assert(total[1] <= total[0] && total[1] >= *full);
	*full = total[1];
	return total[0];
}

START_TEST(test_under_load)
{
	u32 reads = by_level(200, 5000, 100000), nr, jobs = 0;
	u64 some = 0, full = 0, now;
	struct job j = { .pid = 0 };
	int code = 0;
	char *text;

	rig_start(&rig, "--pool-size", "2M", "--extent-size", "256K", "--proc",
		  "on", "--proc-user", PROC_UID, NULL);
	snprintf(proc_dir, sizeof(proc_dir), "%s/proc", rig.dir);
	await_file("version");
	/* Go on until there was a lack of memory, too. */
	for (nr = 0; nr < reads || !jobs || !some; nr++) {
		if (!j.pid || job_ended(&j, &code)) {
			ck_assert_int_eq(code, 0);
			jobs += j.pid != 0;
			ck_assert_uint_lt(jobs, 50 + reads);
			j = job_start(&rig, KVRT_GENERATE, demo_model(),
				      "-n", "6", "--max-tokens", "200",
				      "In the beginning", "Holmes leaned", NULL);
		}
		text = read_proc("meminfo");
		ck_assert_ptr_nonnull(text);
		want_partition(text);
		free(text);
		text = read_proc("pressure/memory");
		ck_assert_ptr_nonnull(text);
		now = want_pressure(text, &full);
		ck_assert_uint_ge(now, some);
		some = now;
		free(text);
	}
	ck_assert_int_eq(job_wait(&j, 120 * time_scale()), 0);
	rig_walk(&rig);
	rig_stop(&rig);
}
END_TEST

/* ---- writing ---- */

static int write_proc(const char *name, const char *value, off_t at)
{
	int fd = open(proc_path(name), O_WRONLY | O_TRUNC);
	ssize_t n;
	int err;

	if (fd < 0)
		return -errno;
	n = pwrite(fd, value, strlen(value), at);
	err = n < 0 ? -errno : 0;
	close(fd);
	return err;
}

static void want_value(const char *name, const char *value)
{
	char *text = read_proc(name);

	ck_assert_msg(text && !strcmp(text, value), "%s: %s", name, text);
	free(text);
}

START_TEST(test_write)
{
	static const char * const bad[] = {
		"", " ", "x", "-1", "1", "4M 4M", "99999999999999999999999",
		"99T", "gpu0 4M",
	};
	u32 i;

	start();
	attach_own("it");
	ck_assert_int_eq(write_proc("pool/gpu0/size", "8M\n", 0), 0);
	want_value("pool/gpu0/size", "8388608\n");
	for (i = 1; i < ARRAY_SIZE(bad); i++)
		ck_assert_msg(write_proc("pool/gpu0/size", bad[i], 0) < 0,
			      "'%s'", bad[i]);
	ck_assert_int_eq(write_proc("pool/gpu0/size", "x", 0), -EINVAL);
	ck_assert_int_eq(write_proc("pool/gpu0/size", "6M", 1), -EINVAL);
	want_value("pool/gpu0/size", "8388608\n");
	ck_assert_int_eq(write_proc("domain/it/memory.max", "4M", 0), 0);
	want_value("domain/it/memory.max", "gpu0 4194304\n");
	/* Write a value in the form in which it is read. */
	ck_assert_int_eq(write_proc("domain/it/memory.max", "gpu0 5M\n", 0), 0);
	want_value("domain/it/memory.max", "gpu0 5242880\n");
	ck_assert_int_eq(write_proc("domain/it/memory.max", "gpu1 5M\n", 0),
			 -EINVAL);
	ck_assert_int_eq(write_proc("domain/it/memory.max", "max\n", 0), 0);
	want_value("domain/it/memory.max", "gpu0 max\n");
	ck_assert_int_eq(write_proc("domain/it/memory.weight", "0", 0),
			 -EINVAL);
	want_value("domain/it/memory.weight", "100\n");
	stop();
}
END_TEST

/* ---- other users ---- */

#define MUST(cond)							\
do {									\
	if (!(cond)) {							\
		fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__,	\
			#cond, strerror(errno));			\
		_exit(1);						\
	}								\
} while (0)

/* Another user, with a client, looks at the files. */
static void other_main(int up, int down)
{
	char path[RIG_PATH + 16], byte, *text;
	int dir = open(proc_dir, O_PATH | O_DIRECTORY), fd;

	snprintf(path, sizeof(path), "%s/attach.sock", rig.dir);
	fd = open(path, O_PATH);
	MUST(dir >= 0 && fd >= 0 && !setgid(OTHER_UID) && !setuid(OTHER_UID));
	prctl(PR_SET_DUMPABLE, 1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	/* Before it has a client. */
	MUST(faccessat(dir, "domain/secret", F_OK, 0) < 0 && errno == ENOENT);
	MUST(attach(path, "mine"));
	MUST(!faccessat(dir, "domain/mine", F_OK, 0));
	MUST(faccessat(dir, "domain/secret", F_OK, 0) < 0 && errno == ENOENT);
	text = read_at(dir, "domains");
	MUST(text && strstr(text, "mine") && !strstr(text, "secret"));
	free(text);
	text = read_at(dir, "clients");
	MUST(text && count_lines(text) == 2);
	free(text);
	MUST(!read_at(dir, "meminfo") && errno == ENOENT);
	MUST(!read_at(dir, "sys/vm/max_seqs") && errno == ENOENT);
	MUST(!read_at(dir, "client/0/status") && errno == ENOENT);
	MUST(read_at(dir, "client/1/status"));
	fd = openat(dir, "domain/mine/memory.max", O_WRONLY);
	MUST(fd < 0 && errno == EACCES);
	MUST(write(up, "x", 1) == 1 && read(down, &byte, 1) == 0);
	_exit(0);
}

START_TEST(test_other_user)
{
	int up[2], down[2], status;
	char byte, *text;
	pid_t pid;

	start();
	attach_own("secret");
	/* Root's reading makes this name known to the kernel. */
	text = read_proc("domain/secret/status");
	ck_assert_ptr_nonnull(text);
	free(text);
	ck_assert(!pipe(up) && !pipe(down));
	fflush(stdout);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		close(down[1]);
		other_main(up[1], down[0]);
	}
	close(up[1]);
	close(down[0]);
	ck_assert_int_eq(read(up[0], &byte, 1), 1);
	/* root sees the domains of both users, and their files. */
	text = read_proc("domains");
	ck_assert(strstr(text, "mine") && strstr(text, "secret"));
	free(text);
	text = read_proc("domain/mine/status");
	ck_assert_ptr_nonnull(text);
	free(text);
	close(down[1]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	close(up[0]);
	stop();
}
END_TEST

/* A user opens as many files as possible, and hangs. */
static void hog_main(int up, int down)
{
	int dir = open(proc_dir, O_PATH | O_DIRECTORY), fd;
	char byte;
	u32 nr = 0;

	MUST(dir >= 0 && !setgid(OTHER_UID) && !setuid(OTHER_UID));
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while ((fd = openat(dir, "version", O_RDONLY)) >= 0)
		nr++;
	MUST(errno == ENFILE && nr == FILES_USER);
	MUST(write(up, "x", 1) == 1 && read(down, &byte, 1) == 0);
	_exit(0);
}

START_TEST(test_hog)
{
	int up[2], down[2], status, fd;
	char byte;
	pid_t pid;

	start();
	ck_assert(!pipe(up) && !pipe(down));
	fflush(stdout);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		close(down[1]);
		hog_main(up[1], down[0]);
	}
	close(up[1]);
	close(down[0]);
	ck_assert_int_eq(read(up[0], &byte, 1), 1);
	kill(pid, SIGSTOP);
	await_file("vmstat");
	fd = open(proc_path("vmstat"), O_RDONLY);
	ck_assert_int_ge(fd, 0);
	close(fd);
	rig_walk(&rig);
	kill(pid, SIGCONT);
	close(down[1]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	close(up[0]);
	stop();
}
END_TEST

#define GREEDY		4u	/* processes of one user */
#define GREEDY_MS	3000ull
/* As kvmm/ipc/view/spend.c counts: a burst, a fiftieth of the time, 20 us a request. */
#define GREEDY_MOST	(5000u + GREEDY_MS * 1000 / 50 / 20)

/* A user that looks up a name as fast as it can.  Each look is a request. */
static void greedy_main(int up)
{
	int dir = open(proc_dir, O_PATH | O_DIRECTORY);
	u64 begin, now, nr = 0;

	MUST(dir >= 0 && !setgid(OTHER_UID) && !setuid(OTHER_UID));
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	begin = now_ms();
	do {
		if (!faccessat(dir, "version", F_OK, 0))
			nr++;
		else
			MUST(errno == EBUSY);
		now = now_ms();
	} while (now - begin < GREEDY_MS);
	MUST(write(up, &nr, sizeof(nr)) == sizeof(nr));
	_exit(0);
}

START_TEST(test_greedy_user_is_held_back)
{
	u64 nr, sum = 0, root = 0, end;
	int up[2], status;
	pid_t pid[GREEDY];
	u32 i;

	start();
	ck_assert(!pipe(up));
	fflush(stdout);
	for (i = 0; i < GREEDY; i++) {
		pid[i] = fork();
		ck_assert_int_ge(pid[i], 0);
		if (!pid[i])
			greedy_main(up[1]);
	}
	for (end = now_ms() + GREEDY_MS; now_ms() < end; root++) {
		char *text = read_proc("vmstat");

		ck_assert_ptr_nonnull(text);
		free(text);
		nap_ms(5);
	}
	for (i = 0; i < GREEDY; i++) {
		ck_assert_int_eq(waitpid(pid[i], &status, 0), pid[i]);
		ck_assert_int_eq(status, 0);
		ck_assert_int_eq(read(up[0], &nr, sizeof(nr)), sizeof(nr));
		sum += nr;
	}
	printf("total: a user asked %llu times in 3 s, of at most %llu; root read vmstat %llu times meanwhile\n",
	       (unsigned long long)sum, (unsigned long long)GREEDY_MOST,
	       (unsigned long long)root);
	ck_assert_uint_ge(sum, GREEDY_MOST / 10);
	/* A tenth more: the last requests of each process, and the time to start them. */
	ck_assert_uint_le(sum, GREEDY_MOST * 11 / 10);
	ck_assert_uint_ge(root, 10);
	close(up[0]);
	close(up[1]);
	stop();
}
END_TEST

/* ---- deaths ---- */

START_TEST(test_proc_dies)
{
	struct kvmm_open_arg arg = { .prompt_len = 16 };
	struct kvmm_open_res res;
	pid_t kvmm, proc;
	char byte;
	int fd, i;

	start();
	attach_own("it");
	kvmm = rig_daemon(&rig);
	for (i = 0; i < 3; i++) {
		const u64 end = deadline();

		proc = rig_proc(&rig);
		ck_assert_int_gt(proc, 0);
		fd = open(proc_path("vmstat"), O_RDONLY);
		ck_assert_int_ge(fd, 0);
		kill(proc, SIGKILL);
		while (!rig_proc(&rig) || rig_proc(&rig) == proc) {
			ck_assert(now_ms() < end);
			nap_ms(5);
		}
		await_file("vmstat");
		/* Files that were open before are dead. */
		ck_assert_int_lt(read(fd, &byte, 1), 0);
		close(fd);
		ck_assert_uint_eq(nr_mounts(), 1);
		/* kvmm and its client did not notice. */
		ck_assert(!kvmm_seq_open(client, &arg, 1, &res) && !res.status);
		ck_assert_int_eq(rig_daemon(&rig), kvmm);
	}
	stop();
}
END_TEST

START_TEST(test_kvmm_dies)
{
	pid_t kvmm, proc;
	char *text;
	int i;

	start();
	kvmm = rig_daemon(&rig);
	proc = rig_proc(&rig);
	kill(kvmm, SIGKILL);
	await_file("vmstat");
	ck_assert_int_ne(rig_daemon(&rig), kvmm);
	kvmm = rig_daemon(&rig);
	/* kvmm is stopped: readers get an error after a bounded wait. */
	kill(kvmm, SIGSTOP);
	for (i = 0; i < 20; i++) {
		text = read_proc("vmstat");
		ck_assert_ptr_null(text);
		ck_assert_int_eq(errno, EAGAIN);
	}
	ck_assert_uint_eq(nr_mounts(), 1);
	kill(kvmm, SIGCONT);
	await_file("vmstat");
	ck_assert_int_eq(rig_proc(&rig), proc);
	stop();
}
END_TEST

static bool log_has(const char *word)
{
	char path[RIG_PATH + 32], *text;
	bool has;

	snprintf(path, sizeof(path), "%s/job-0.err", rig.dir);
	text = slurp(path);
	has = strstr(text, word) != NULL;
	free(text);
	return has;
}

/* All processes are killed; the next kvmm-hold cleans up. */
START_TEST(test_stale)
{
	const pid_t none = 0;
	struct job j;
	pid_t kvmm;
	u64 end;

	start();
	kvmm = rig_daemon(&rig);
	kill(rig.hold, SIGKILL);
	ck_assert_int_eq(waitpid(rig.hold, NULL, 0), rig.hold);
	end = deadline();
	/* The mount remains, without a server. */
	while (read_proc("version") || errno != ENOTCONN) {
		ck_assert_msg(now_ms() < end, "%s", strerror(errno));
		nap_ms(5);
	}
	ck_assert_uint_eq(nr_mounts(), 1);
	while (kill(kvmm, none) == 0 && now_ms() < end)
		nap_ms(5);
	j = job_start(&rig, "kvmm-hold", "--pool-size", "16M", "--proc", "on",
		      "--proc-user", PROC_UID, NULL);
	rig.hold = j.pid;
	await_file("version");
	ck_assert_uint_eq(nr_mounts(), 1);
	stop();
}
END_TEST

/* An operator's umount ends kvmm-proc for good. */
START_TEST(test_unmounted)
{
	const u64 end = deadline();

	start();
	ck_assert(!umount2(proc_dir, MNT_DETACH));
	while (rig_proc(&rig) || !log_has("was unmounted: ended")) {
		ck_assert(now_ms() < end);
		nap_ms(5);
	}
	rig_walk(&rig);
	ck_assert_int_eq(rig_proc(&rig), 0);
	ck_assert_uint_eq(nr_mounts(), 0);
	stop();
}
END_TEST

/* ---- hostile directories ---- */

/* Return: exit code of kvmm-proc for @dir. */
static int mount_in(const char *dir, const char *option)
{
	struct job j = job_start(&rig, "kvmm-proc", "--dir", dir, option, NULL);
	int code = job_wait(&j, LIMIT_S * time_scale());

	unlink(j.out);
	unlink(j.err);
	return code;
}

/* Root must not be lured into mounting over the target of a foreign link. */
START_TEST(test_lured)
{
	char victim[RIG_PATH + 16], sock[RIG_PATH + 32];
	struct stat st;
	int code;

	rig_start(&rig, "--pool-size", "16M", NULL);
	snprintf(proc_dir, sizeof(proc_dir), "%s/proc", rig.dir);
	snprintf(victim, sizeof(victim), "%s/victim", rig.dir);
	ck_assert(!mkdir(victim, 0755) && !symlink(victim, proc_dir));
	code = mount_in(rig.dir, "--sandbox=on");
	umount2(victim, MNT_DETACH);
	ck_assert_int_eq(code, EX_UNAVAILABLE);
	ck_assert(!unlink(proc_dir) && !rmdir(victim));
	/* Others could make such a link in this directory at any time. */
	ck_assert(!chmod(rig.dir, 0777));
	code = mount_in(rig.dir, "--sandbox=on");
	umount2(proc_dir, MNT_DETACH);
	ck_assert_int_eq(code, EX_UNAVAILABLE);
	ck_assert(!chmod(rig.dir, 0700));
	/* A plain file with the socket's name must keep its owner and mode. */
	snprintf(sock, sizeof(sock), "%s/victim/view.sock", rig.dir);
	snprintf(proc_dir, sizeof(proc_dir), "%s/victim/proc", rig.dir);
	ck_assert(!mkdir(victim, 0755) && !mknod(sock, S_IFREG | 0600, 0));
	code = mount_in(victim, "--sandbox=on");
	umount2(proc_dir, MNT_DETACH);
	ck_assert_int_eq(code, EX_UNAVAILABLE);
	ck_assert(!stat(sock, &st) && (st.st_mode & 07777) == 0600);
	ck_assert(!unlink(sock) && access(proc_dir, F_OK) && !rmdir(victim));
	rig_stop(&rig);
}
END_TEST

/* The stale mount of a dead kvmm-proc is found below any name. */
START_TEST(test_odd_name)
{
	char dir[RIG_PATH + 10], from[RIG_PATH + 32], to[RIG_PATH + 64];
	const u64 end = deadline();
	struct job j;

	rig_start(&rig, "--pool-size", "16M", NULL);
	snprintf(dir, sizeof(dir), "%s/\xc3\xbc \\#\x01", rig.dir);
	snprintf(from, sizeof(from), "%s/view.sock", rig.dir);
	snprintf(to, sizeof(to), "%s/view.sock", dir);
	ck_assert(!mkdir(dir, 0755) && !link(from, to));
	snprintf(proc_dir, sizeof(proc_dir), "%s/proc", dir);
	j = job_start(&rig, "kvmm-proc", "--dir", dir, NULL);
	await_file("version");
	kill(j.pid, SIGKILL);
	job_wait(&j, LIMIT_S);
	unlink(j.out);
	unlink(j.err);
	ck_assert_int_eq(mount_in(dir, "--unmount"), 0);
	while (!access(proc_dir, F_OK) || errno != ENOENT) {
		ck_assert_msg(now_ms() < end, "%s", strerror(errno));
		nap_ms(5);
	}
	ck_assert(!unlink(to) && !rmdir(dir));
	rig_stop(&rig);
}
END_TEST

/* ---- copies ---- */

static int snapshot(const char *dir)
{
	struct job j = job_start(&rig, "kvmm-proc", "--snapshot", dir, NULL);
	int code = job_wait(&j, 30 * time_scale());

	unlink(j.out);
	unlink(j.err);
	return code;
}

START_TEST(test_snapshot)
{
	char dir[RIG_PATH + 32], path[RIG_PATH + 128], *text;
	static const char * const there[] = {
		"meminfo", "domain/it/memory.max", "client/0/seqs",
		"pressure/memory", "sys/vm/max_seqs",
	};
	struct stat st;
	u32 i;

	rig_start(&rig, "--pool-size", "16M", "--extent-size", "1M", NULL);
	attach_own("it");
	snprintf(dir, sizeof(dir), "%s/copy", rig.dir);
	ck_assert_int_eq(snapshot(dir), 0);
	for (i = 0; i < ARRAY_SIZE(there); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, there[i]);
		text = slurp(path);
		ck_assert_msg(*text, "%s", path);
		free(text);
	}
	kvmm_detach(client);
	/* A domain name that would lead out of the directory. */
	attach_own("..");
	rig_await(&rig, "vmstat", "nr_clients", 1, LIMIT_S);
	while (rig_value(&rig, "vmstat", "nr_clients") != 1)
		nap_ms(5);
	ck_assert_int_eq(snapshot(dir), 0);
	snprintf(path, sizeof(path), "%s/domain/\\056\\056/memory.max", dir);
	ck_assert(!stat(path, &st));
	snprintf(path, sizeof(path), "%s/meminfo", dir);
	ck_assert(!stat(path, &st));
	/* No copy is made in a directory that has other content. */
	ck_assert_int_eq(snapshot(rig.dir), EX_CANTCREAT);
	kvmm_detach(client);
	client = NULL;
	text = kvctl("ls", "client");
	while (*text) {
		free(text);
		nap_ms(5);
		text = kvctl("ls", "client");
	}
	free(text);
	ck_assert_int_eq(snapshot(dir), 0);
	snprintf(path, sizeof(path), "%s/client/0", dir);
	ck_assert(stat(path, &st) && errno == ENOENT);
	snprintf(path, sizeof(path), "rm -rf '%s'", dir);
	ck_assert_int_eq(system(path), 0);
	rig_stop(&rig);
}
END_TEST

int main(void)
{
	const char *why = mount_hindrance();
	Suite *s = suite_create("procfs");
	TCase *tc = tcase_create("procfs");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, by_level(60, 150, 3000));
	tcase_add_test(tc, test_snapshot);
	if (why) {
		printf("note: %s: the mount is not tried\n", why);
	} else {
		tcase_add_test(tc, test_same_tree);
		tcase_add_test(tc, test_one_text);
		tcase_add_test(tc, test_much_memory);
		tcase_add_test(tc, test_under_load);
		tcase_add_test(tc, test_write);
		tcase_add_test(tc, test_other_user);
		tcase_add_test(tc, test_hog);
		tcase_add_test(tc, test_greedy_user_is_held_back);
		tcase_add_test(tc, test_proc_dies);
		tcase_add_test(tc, test_kvmm_dies);
		tcase_add_test(tc, test_stale);
		tcase_add_test(tc, test_unmounted);
		tcase_add_test(tc, test_lured);
		tcase_add_test(tc, test_odd_name);
	}
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
