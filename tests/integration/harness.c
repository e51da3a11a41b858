// SPDX-License-Identifier: Apache-2.0
/*
 * harness.c - real processes for the integration tests
 *
 * Children get PR_SET_PDEATHSIG, so that a failed test leaves no process
 * running.  Output goes to files in the rig's directory and is shown when an
 * expectation about the process fails.
 */
#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/armed.h"
#include "tests/integration/harness.h"
#include "tests/tmp.h"

const char *build_path(const char *program)
{
	static char path[8][RIG_PATH];
	static u32 turn;
	const char *build = getenv("KVMM_BUILD");
	char *p = path[turn++ % 8];

	snprintf(p, RIG_PATH, "%s%s/%s", build ? build : "build",
		 armed_folder(NULL), program);
	return p;
}

const char *demo_model(void)
{
	static char path[RIG_PATH];
	const char *top = getenv("KVMM_TOP");

	snprintf(path, sizeof(path), "%s/tests/data/demo-model",
		 top ? top : ".");
	return path;
}

u32 by_level(u32 check, u32 full, u32 soak)
{
	const char *level = getenv("KVMM_TEST_LEVEL");

	if (level && !strcmp(level, "soak"))
		return soak;
	if (level && !strcmp(level, "full"))
		return full;
	return check;
}

u32 time_scale(void)
{
	const char *scale = getenv("KVMM_TIME_SCALE");
	const u32 n = scale ? (u32)atoi(scale) : 1;

	return max(n, 1u);
}

u32 random_below(u32 n)
{
	static u64 state;

	if (!state) {
		const char *seed = getenv("KVMM_TEST_SEED");

		state = seed ? strtoull(seed, NULL, 10)
			     : (u64)getpid() << 20 ^ (u64)time(NULL);
		printf("seed: KVMM_TEST_SEED=%llu\n",
		       (unsigned long long)state);
		fflush(stdout);
	}
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (u32)((state >> 33) % n);
}

void nap_ms(u32 ms)
{
	struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&ts, NULL);
}

u64 now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000 + (u64)ts.tv_nsec / 1000000;
}

char *slurp(const char *path)
{
	FILE *f = fopen(path, "r");
	char *text = calloc(1, 1);
	size_t len = 0, got;

	ck_assert_ptr_nonnull(text);
	while (f) {
		text = realloc(text, len + 4097);
		ck_assert_ptr_nonnull(text);
		got = fread(text + len, 1, 4096, f);
		len += got;
		text[len] = '\0';
		if (!got)
			break;
	}
	if (f)
		fclose(f);
	return text;
}

u32 count_lines(const char *text)
{
	u32 n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

/* ---- jobs ---- */

static void child_exec(struct rig *r, const char *path, char *const argv[],
		       const struct job *j)
{
	int out = open(j->out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	int err = open(j->err, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	int in = open("/dev/null", O_RDONLY);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (out < 0 || err < 0 || in < 0)
		_exit(127);
	dup2(in, 0);
	dup2(out, 1);
	dup2(err, 2);
	closefrom(3);
	setenv("KVMM_RUNDIR", r->dir, 1);
	/* Ignore the configuration that this machine has for its daemon. */
	setenv("KVMM_CONFIG", "none", 1);
	/* Tests expect pools in host memory, unless they name a backend. */
	setenv("KVMM_LIBCUDA", "/nonexistent/libcuda.so.1", 0);
	execv(path, argv);
	_exit(127);
}

struct job job_startv(struct rig *r, const char *program, char *const argv[])
{
	struct job j;

	snprintf(j.out, sizeof(j.out), "%s/job-%u.out", r->dir, r->nr_jobs);
	snprintf(j.err, sizeof(j.err), "%s/job-%u.err", r->dir, r->nr_jobs++);
	fflush(stdout);
	j.pid = fork();
	ck_assert_int_ge(j.pid, 0);
	if (!j.pid)
		child_exec(r, build_path(program), argv, &j);
	return j;
}

struct job job_start(struct rig *r, const char *program, ...)
{
	char *argv[RIG_ARGS + 1] = { (char *)program };
	va_list ap;
	u32 n = 1;

	va_start(ap, program);
	while (n < RIG_ARGS && (argv[n] = va_arg(ap, char *)))
		n++;
	va_end(ap);
	argv[n] = NULL;
	return job_startv(r, program, argv);
}

static int code_of(int status)
{
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status)
				   : WEXITSTATUS(status);
}

bool job_ended(struct job *j, int *code)
{
	int status;

	if (waitpid(j->pid, &status, WNOHANG) != j->pid)
		return false;
	*code = code_of(status);
	return true;
}

int job_wait(struct job *j, u32 seconds)
{
	u64 end = now_ms() + seconds * 1000ull;
	int code;

	while (!job_ended(j, &code)) {
		if (now_ms() > end) {
			char *err = slurp(j->err);

			kill(j->pid, SIGKILL);
			waitpid(j->pid, NULL, 0);
			ck_abort_msg("no end after %u s; stderr:\n%s", seconds,
				     err);
		}
		nap_ms(2);
	}
	return code;
}

void job_kill(struct job *j, int sig)
{
	kill(j->pid, sig);
}

/* ---- the daemon ---- */

bool rig_on_gpu(void)
{
	const char *backend = getenv("KVMM_TEST_BACKEND");

	return backend && !strcmp(backend, "cuda");
}

/* Arguments for the backend of a test that names none.  Return: arguments in @argv. */
static u32 backend_args(char **argv, u32 n)
{
	if (!rig_on_gpu())
		return n;
	setenv("KVMM_LIBCUDA", build_path("tests/standin/libcuda.so.1"), 0);
	/* Tests have tiny pools, so the device gets a small granule. */
	setenv("KVMM_STANDIN_GRAN", "65536", 0);
	argv[n++] = (char *)"--backend";
	argv[n++] = (char *)"cuda";
	return n;
}

void rig_start(struct rig *r, ...)
{
	char *argv[RIG_ARGS + 1] = { (char *)"kvmm-hold" };
	const char *tmp = getenv("TMPDIR");
	struct job hold, wait;
	va_list ap;
	u32 n = backend_args(argv, 1);

	memset(r, 0, sizeof(*r));
	snprintf(r->dir, sizeof(r->dir), "%s/rig.XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(r->dir));
	va_start(ap, r);
	while (n < RIG_ARGS && (argv[n] = va_arg(ap, char *)))
		n++;
	va_end(ap);
	argv[n] = NULL;
	hold = job_startv(r, "kvmm-hold", argv);
	r->hold = hold.pid;

	wait = job_start(r, "kvctl", "wait", "--timeout", "20", NULL);
	if (job_wait(&wait, 30))
		ck_abort_msg("the daemon does not answer:\n%s",
			     slurp(hold.err));
}

/* No socket may be left once the daemon has ended; removes the files of jobs. */
static void rig_expect_clean(struct rig *r)
{
	DIR *dir = opendir(r->dir);
	struct dirent *e;
	struct stat st;
	char path[RIG_PATH + 300];

	ck_assert_ptr_nonnull(dir);
	while ((e = readdir(dir))) {
		snprintf(path, sizeof(path), "%s/%s", r->dir, e->d_name);
		if (!lstat(path, &st) && S_ISSOCK(st.st_mode))
			ck_abort_msg("left behind: %s", path);
		if (!strncmp(e->d_name, "job-", 4))
			unlink(path);
	}
	closedir(dir);
}

void rig_stop(struct rig *r)
{
	struct job hold = { .pid = r->hold };
	char path[RIG_PATH + 32];

	snprintf(hold.err, sizeof(hold.err), "%s/job-0.err", r->dir);
	kill(r->hold, SIGTERM);
	ck_assert_int_eq(job_wait(&hold, 20), 0);
	rig_expect_clean(r);
	snprintf(path, sizeof(path), "rm -rf '%s'", r->dir);
	ck_assert_int_eq(system(path), 0);
}

void rig_walk(struct rig *r)
{
	struct job j = job_start(r, "kvctl", "check", NULL);
	int code = job_wait(&j, 30);

	if (code)
		ck_abort_msg("walkers: %d: %s%s", code, slurp(j.out),
			     slurp(j.err));
	unlink(j.out);
	unlink(j.err);
}

s64 rig_value(struct rig *r, const char *file, const char *key)
{
	struct job j = job_start(r, "kvctl", "cat", file, NULL);
	size_t len = strlen(key);
	s64 value = -1;
	char *text, *line;

	if (job_wait(&j, 30))
		ck_abort_msg("kvctl cat %s: %s", file, slurp(j.err));
	text = slurp(j.out);
	for (line = text; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, key, len) &&
		    (line[len] == ' ' || line[len] == ':')) {
			value = strtoll(line + len + 1, NULL, 10);
			break;
		}
	}
	free(text);
	unlink(j.out);
	unlink(j.err);
	return value;
}

u64 rig_pool_value(struct rig *r, const char *pool, const char *column)
{
	struct job j = job_start(r, "kvctl", "cat", "pools", NULL);
	char *text, *head, *line, *h, *v, *hs, *vs;
	u64 value = ~0ull;

	ck_assert_int_eq(job_wait(&j, 20), 0);
	text = slurp(j.out);
	head = strtok_r(text, "\n", &line);
	do {
		v = strtok_r(NULL, "\n", &line);
		ck_assert_msg(v, "no pool %s", pool);
	} while (strncmp(v, pool, strlen(pool)));
	h = strtok_r(head, " ", &hs);
	for (v = strtok_r(v, " ", &vs); h && v; v = strtok_r(NULL, " ", &vs)) {
		if (!strcmp(h, column))
			value = strtoull(v, NULL, 10);
		h = strtok_r(NULL, " ", &hs);
	}
	ck_assert_msg(value != ~0ull, "no column %s", column);
	free(text);
	unlink(j.out);
	unlink(j.err);
	return value;
}

void rig_await(struct rig *r, const char *file, const char *key, s64 want,
	       u32 seconds)
{
	u64 end = now_ms() + seconds * 1000ull;
	s64 have;

	while ((have = rig_value(r, file, key)) < want) {
		if (now_ms() > end)
			ck_abort_msg("%s %s is %lld, not %lld, after %u s",
				     file, key, (long long)have,
				     (long long)want, seconds);
		nap_ms(20);
	}
}

static bool process_is(pid_t pid, const char *comm)
{
	char path[64], *text;
	bool is;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	text = slurp(path);
	text[strcspn(text, "\n")] = '\0';
	is = !strcmp(text, comm);
	free(text);
	return is;
}

/* The child of hold with that name, 0 if there is none. */
static pid_t rig_child(struct rig *r, const char *comm)
{
	char path[64], *text, *word, *save = NULL;
	pid_t pid = 0;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", r->hold,
		 r->hold);
	text = slurp(path);
	for (word = strtok_r(text, " ", &save); word && !pid;
	     word = strtok_r(NULL, " ", &save)) {
		pid = (pid_t)strtol(word, NULL, 10);
		if (!process_is(pid, comm))
			pid = 0;
	}
	free(text);
	return pid;
}

pid_t rig_daemon(struct rig *r)
{
	return rig_child(r, "kvmm");
}

pid_t rig_swapd(struct rig *r)
{
	return rig_child(r, "swapd");
}

pid_t rig_proc(struct rig *r)
{
	return rig_child(r, "kvmm-proc");
}

/* ---- output of kvrt ---- */

static void sample_read(struct sample *s, json_t *o)
{
	json_t *ids = json_object_get(o, "ids");
	const char *why = json_string_value(json_object_get(o,
							    "finish_reason"));
	u32 i;

	s->prompt = (u32)json_integer_value(json_object_get(o, "prompt"));
	s->sample = (u32)json_integer_value(json_object_get(o, "sample"));
	s->cached = (u32)json_integer_value(json_object_get(o,
							    "cached_tokens"));
	snprintf(s->reason, sizeof(s->reason), "%s", why ? why : "");
	s->nr_ids = (u32)json_array_size(ids);
	s->ids = calloc(s->nr_ids + 1, sizeof(*s->ids));
	ck_assert_ptr_nonnull(s->ids);
	for (i = 0; i < s->nr_ids; i++)
		s->ids[i] = (u32)json_integer_value(json_array_get(ids, i));
}

void samples_read(struct samples *all, const char *path)
{
	char *text = slurp(path), *line, *save = NULL;
	json_error_t err;
	json_t *o;

	memset(all, 0, sizeof(*all));
	all->s = calloc(count_lines(text) + 1, sizeof(*all->s));
	ck_assert_ptr_nonnull(all->s);
	for (line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		o = json_loads(line, JSON_ALLOW_NUL, &err);
		if (!o)
			ck_abort_msg("not JSON: %s: %s", err.text, line);
		sample_read(&all->s[all->nr++], o);
		json_decref(o);
	}
	free(text);
}

void samples_free(struct samples *all)
{
	u32 i;

	for (i = 0; i < all->nr; i++)
		free(all->s[i].ids);
	free(all->s);
}

static const struct sample *sample_find(const struct samples *all, u32 prompt,
					u32 sample)
{
	u32 i;

	for (i = 0; i < all->nr; i++)
		if (all->s[i].prompt == prompt && all->s[i].sample == sample)
			return &all->s[i];
	return NULL;
}

static void ids_equal(const struct sample *a, const struct sample *b)
{
	u32 i;

	for (i = 0; i < a->nr_ids && i < b->nr_ids; i++)
		if (a->ids[i] != b->ids[i])
			ck_abort_msg("prompt %u sample %u differs at token %u: %u and %u",
				     a->prompt, a->sample, i, a->ids[i],
				     b->ids[i]);
	if (a->nr_ids != b->nr_ids)
		ck_abort_msg("prompt %u sample %u: %u and %u tokens", a->prompt,
			     a->sample, a->nr_ids, b->nr_ids);
}

void samples_equal(const struct samples *a, const struct samples *b)
{
	u32 i;

	ck_assert_uint_eq(a->nr, b->nr);
	for (i = 0; i < a->nr; i++) {
		const struct sample *s = sample_find(b, a->s[i].prompt,
						     a->s[i].sample);

		if (!s)
			ck_abort_msg("prompt %u sample %u is missing",
				     a->s[i].prompt, a->s[i].sample);
		ids_equal(&a->s[i], s);
	}
}

const char *mount_hindrance(void)
{
	char dir[128], opts[96];
	const char *why = NULL;
	int fd;

	if (geteuid())
		return "not root";
	fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return "no /dev/fuse here";
	if (!mkdtemp(tmp_name(dir, sizeof(dir), "fuse")))
		return "no directory for a mount";
	snprintf(opts, sizeof(opts), "fd=%d,rootmode=40000,user_id=0,group_id=0",
		 fd);
	if (mount("it", dir, "fuse.it", MS_NOSUID | MS_NODEV, opts))
		why = "nothing may be mounted here";
	else
		umount2(dir, MNT_DETACH);
	close(fd);
	rmdir(dir);
	return why;
}
