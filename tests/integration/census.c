// SPDX-License-Identifier: Apache-2.0
/*
 * census.c - resources that the processes of a rig hold
 *
 * All of it is read from /proc.  A process belongs to a rig when its
 * environment has the rig's directory; its parent does not matter.
 */
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/census.h"

#define ANON_SLACK_KIB	8192	/* of an allocator's caches */

/* Read a whole file, which may contain zeros, and its length; to be freed. */
static char *read_all(const char *path, size_t *len)
{
	FILE *f = fopen(path, "re");
	size_t cap = 1 << 20;
	char *text = malloc(cap);

	ck_assert_ptr_nonnull(text);
	*len = f ? fread(text, 1, cap - 1, f) : 0;
	text[*len] = '\0';
	if (f)
		fclose(f);
	return text;
}

static bool is_of(pid_t pid, const struct rig *r)
{
	char path[64], want[RIG_PATH + 32], *text;
	bool is = false;
	size_t len, at;

	snprintf(path, sizeof(path), "/proc/%d/environ", pid);
	snprintf(want, sizeof(want), "KVMM_RUNDIR=%s", r->dir);
	text = read_all(path, &len);
	for (at = 0; at < len && !is; at += strlen(text + at) + 1)
		is = !strcmp(text + at, want);
	free(text);
	return is;
}

/* ---- one process ---- */

static void memfd_add(struct census *c, u64 ino, u64 kib)
{
	u32 i;

	for (i = 0; i < c->nr_memfds; i++)
		if (c->memfd[i] == ino)
			return;
	ck_assert_uint_lt(c->nr_memfds, CENSUS_MEMFDS);
	c->memfd[c->nr_memfds++] = ino;
	c->memfd_kib += kib;
}

static void count_fds(struct census *c, struct census_proc *p)
{
	char dir[64], path[400], to[256];
	struct dirent *e;
	struct stat st;
	ssize_t n;
	DIR *d;

	snprintf(dir, sizeof(dir), "/proc/%d/fd", p->pid);
	d = opendir(dir);
	while (d && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		p->fds++;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		n = readlink(path, to, sizeof(to) - 1);
		to[max(n, (ssize_t)0)] = '\0';
		if (strncmp(to, "/memfd:", 7) || stat(path, &st))
			continue;
		/* Pages of the arena appear with their first use: they do not count. */
		memfd_add(c, st.st_ino, strncmp(to + 7, "kvmm-arena", 10) ?
			  (u64)st.st_blocks / 2 : 0);
	}
	if (d)
		closedir(d);
}

/*
 * kvmm maps an extent when it copies it, and no longer than it has the file, which is
 * among the first @nr_open memfds of the census.
 */
static bool is_copied_extent(const struct census *c, const struct census_proc *p,
			     const char *line, u64 ino, u32 nr_open)
{
	u32 i;

	if (strcmp(p->comm, "kvmm") || !strstr(line, "/memfd:kvmm-extent-"))
		return false;
	for (i = 0; i < nr_open && c->memfd[i] != ino; i++)
		;
	return i < nr_open;
}

static void count_maps(struct census *c, struct census_proc *p, u32 nr_open)
{
	unsigned long long from, to, ino;
	char path[64], *line = NULL;
	size_t cap = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", p->pid);
	f = fopen(path, "re");
	while (f && getline(&line, &cap, f) > 0) {
		if (!strstr(line, "/memfd:") ||
		    sscanf(line, "%llx-%llx %*s %*s %*s %llu", &from, &to,
			   &ino) != 3)
			continue;
		if (!is_copied_extent(c, p, line, ino, nr_open))
			p->shared += (to - from) >> 10;
		/* count_fds() has counted the open memfds before. */
		memfd_add(c, ino, 0);
	}
	free(line);
	if (f)
		fclose(f);
}

/* A number of /proc/PID/status; 0 when the key is missing. */
static u64 status_value(const char *text, const char *key)
{
	const char *at = strstr(text, key);

	return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/* Workers of io_uring do not count: the kernel starts and ends them. */
static u32 count_threads(pid_t pid)
{
	char dir[64], path[400], *name;
	struct dirent *e;
	size_t len;
	u32 n = 0;
	DIR *d;

	snprintf(dir, sizeof(dir), "/proc/%d/task", pid);
	d = opendir(dir);
	while (d && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s/comm", dir, e->d_name);
		name = read_all(path, &len);
		n += len && strncmp(name, "iou-wrk", 7);
		free(name);
	}
	if (d)
		closedir(d);
	return n;
}

static void look_at(struct census *c, pid_t pid)
{
	struct census_proc *p = &c->proc[c->nr_procs];
	char path[64], *text;
	size_t len;

	ck_assert_uint_lt(c->nr_procs, CENSUS_PROCS);
	memset(p, 0, sizeof(*p));
	p->pid = pid;
	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	text = read_all(path, &len);
	snprintf(p->comm, sizeof(p->comm), "%.*s",
		 (int)strcspn(text, "\n"), text);
	free(text);
	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	text = read_all(path, &len);
	p->anon = status_value(text, "\nRssAnon:");
	p->shmem = status_value(text, "\nRssShmem:");
	p->threads = count_threads(pid);
	free(text);
	c->nr_procs++;
}

/* ---- all of them ---- */

static int by_name_and_age(const void *a, const void *b)
{
	const struct census_proc *p = a, *q = b;
	int order = strcmp(p->comm, q->comm);

	return order ? order : p->pid - q->pid;
}

static void find_procs(struct census *c, const struct rig *r)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	u32 i, nr_open;
	pid_t pid;

	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		pid = (pid_t)strtol(e->d_name, NULL, 10);
		if (pid > 0 && is_of(pid, r))
			look_at(c, pid);
	}
	closedir(d);
	qsort(c->proc, c->nr_procs, sizeof(c->proc[0]), by_name_and_age);
	/* Descriptors of all processes first: their memfds have a known size. */
	for (i = 0; i < c->nr_procs; i++)
		count_fds(c, &c->proc[i]);
	nr_open = c->nr_memfds;
	for (i = 0; i < c->nr_procs; i++)
		count_maps(c, &c->proc[i], nr_open);
}

static void count_children(struct census *c, const struct rig *r)
{
	char path[64], *text, *word, *save = NULL;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", r->hold,
		 r->hold);
	text = slurp(path);
	for (word = strtok_r(text, " ", &save); word;
	     word = strtok_r(NULL, " ", &save))
		c->children++;
	free(text);
}

static void count_mounts(struct census *c, const struct rig *r)
{
	char path[64], *line = NULL;
	size_t cap = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/mountinfo", r->hold);
	f = fopen(path, "re");
	/* Mounts of other runs come and go meanwhile. */
	while (f && getline(&line, &cap, f) > 0)
		c->mounts += strstr(line, r->dir) != NULL;
	free(line);
	if (f)
		fclose(f);
}

static void list_files(struct census *c, const struct rig *r)
{
	struct dirent **e;
	int n = scandir(r->dir, &e, NULL, alphasort), i;
	size_t at = 0;

	for (i = 0; i < n; i++) {
		if (strncmp(e[i]->d_name, "job-", 4) && at < sizeof(c->files))
			at += (size_t)snprintf(c->files + at,
					       sizeof(c->files) - at, " %s",
					       e[i]->d_name);
		free(e[i]);
	}
	if (n >= 0)
		free(e);
}

void census_take(struct census *c, struct rig *r)
{
	memset(c, 0, sizeof(*c));
	find_procs(c, r);
	count_children(c, r);
	count_mounts(c, r);
	list_files(c, r);
}

const struct census_proc *census_proc(const struct census *c, pid_t pid)
{
	u32 i;

	for (i = 0; i < c->nr_procs; i++)
		if (c->proc[i].pid == pid)
			return &c->proc[i];
	ck_abort_msg("process %d is not of the rig", pid);
}

/* ---- two of them ---- */

/* A sanitizer keeps freed memory for a while. */
static bool is_sanitized(void)
{
	const char *scale = getenv("KVMM_TIME_SCALE");

	return scale && atoi(scale) > 1;
}

static bool proc_grew(const struct census_proc *was,
		      const struct census_proc *now, char *why, size_t len)
{
	if (strcmp(was->comm, now->comm))
		snprintf(why, len, "%s instead of %s", now->comm, was->comm);
	else if (now->fds > was->fds)
		snprintf(why, len, "%s has %u descriptors, not %u", now->comm,
			 now->fds, was->fds);
	else if (now->shared > was->shared)
		snprintf(why, len, "%s maps %llu KiB of memfds, not %llu",
			 now->comm, (unsigned long long)now->shared,
			 (unsigned long long)was->shared);
	else if (now->anon > was->anon + ANON_SLACK_KIB && !is_sanitized())
		snprintf(why, len, "%s has %llu KiB of its own, not %llu",
			 now->comm, (unsigned long long)now->anon,
			 (unsigned long long)was->anon);
	else
		return false;
	return true;
}

bool census_grew(const struct census *was, const struct census *now, char *why,
		 size_t len)
{
	u32 i;

	if (now->nr_procs != was->nr_procs)
		snprintf(why, len, "%u processes, not %u", now->nr_procs,
			 was->nr_procs);
	else if (now->children != was->children)
		snprintf(why, len, "hold has %u children, not %u",
			 now->children, was->children);
	else if (now->nr_memfds > was->nr_memfds)
		snprintf(why, len, "%u memfds, not %u", now->nr_memfds,
			 was->nr_memfds);
	else if (now->memfd_kib > was->memfd_kib)
		snprintf(why, len, "%llu KiB in memfds, not %llu",
			 (unsigned long long)now->memfd_kib,
			 (unsigned long long)was->memfd_kib);
	else if (now->mounts != was->mounts)
		snprintf(why, len, "%u mounts, not %u", now->mounts,
			 was->mounts);
	else if (strcmp(now->files, was->files))
		snprintf(why, len, "files:%s, not:%s", now->files, was->files);
	else
		why[0] = '\0';
	for (i = 0; i < now->nr_procs && !why[0]; i++)
		(void)proc_grew(&was->proc[i], &now->proc[i], why, len);
	return why[0];
}

char *census_fds(pid_t pid)
{
	char dir[64], path[400], to[256], *text = NULL;
	struct dirent *e;
	size_t len;
	ssize_t n;
	FILE *f = open_memstream(&text, &len);
	DIR *d;

	snprintf(dir, sizeof(dir), "/proc/%d/fd", pid);
	d = opendir(dir);
	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		n = readlink(path, to, sizeof(to) - 1);
		to[max(n, (ssize_t)0)] = '\0';
		if (n > 0)
			fprintf(f, "%s -> %s\n", e->d_name, to);
	}
	if (d)
		closedir(d);
	fclose(f);
	return text;
}
