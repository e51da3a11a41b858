// SPDX-License-Identifier: Apache-2.0
/*
 * it_secrets.c - secrets of tenants lie in their one place, and in no other
 *
 * Programs of two users attach, fill sequences and have them paged out.  The
 * test, as root, finds the tenants' records in kvmm's memory by their keys.
 * Then it searches all memory of kvmm, kvmm-hold, swapd and of the clients,
 * every file that operators read, the log, the swap area and /proc of kvmm for
 * the secrets, in pieces of 16 bytes.  A secret must be in kvmm's arena, once,
 * in memory that is in no core dump and is never swapped out by the system; the
 * two secrets must differ.  Without root other processes' memory is out of
 * reach.  budget: 30 s
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kvmm/core/base/records.h"
#include "tests/integration/handover.h"

#define PIECE	16u
#define CHUNK	(1u << 20)

/* A tenant's secret, and its address in kvmm. */
struct secret {
	u8	byte[CORE_SECRET_LEN];
	u64	at;
	u32	found;		/* records with the tenant's key */
};

static struct rig rig;
static struct ho_shared *sh;
static struct ho_player players[HO_TENANTS];
static pid_t pids[HO_TENANTS];
static struct secret secrets[HO_TENANTS];
static u64 searched;
static u32 files;

/* ---- the players ---- */

static void tell(u32 t, enum ho_cmd cmd, u32 arg)
{
	u64 end = now_ms() + 60000 * time_scale();

	sh->slot[t].arg = arg;
	store_release(&sh->slot[t].cmd, (u32)cmd);
	while (load_acquire(&sh->slot[t].cmd) != HO_NONE) {
		ck_assert_msg(now_ms() < end &&
			      !waitpid(pids[t], NULL, WNOHANG),
			      "tenant %u does not answer", t);
		nap_ms(1);
	}
}

static void player_start(u32 t)
{
	players[t] = (struct ho_player){
		.rig = &rig, .sh = sh, .tenant = t, .uid = 10001 + t,
	};
	fflush(stdout);
	pids[t] = fork();
	ck_assert_int_ge(pids[t], 0);
	if (!pids[t])
		ho_play(&players[t]);
	tell(t, HO_FILL, 30);
	tell(t, HO_OUT, 24);
}

/* ---- searching ---- */

static void find_records(const char *where, const u8 *p, size_t len, u64 at)
{
	const struct kv_tenant *t;
	size_t i;
	u32 n;

	for (i = 0; i + sizeof(*t) <= len; i += 8) {
		t = (const struct kv_tenant *)(p + i);
		if (t->used != 1 || t->nr_clients != 1 || t->nr_domains != 1)
			continue;
		for (n = 0; n < HO_TENANTS; n++) {
			if (t->key != 10001 + n)
				continue;
			memcpy(secrets[n].byte, t->secret, CORE_SECRET_LEN);
			secrets[n].at = at + i +
					offsetof(struct kv_tenant, secret);
			secrets[n].found++;
		}
	}
}

static bool is_its_place(const struct secret *s, const char *where, u64 at)
{
	return !strcmp(where, "kvmm") && at >= s->at &&
	       at < s->at + CORE_SECRET_LEN;
}

static void no_secret(const char *where, const u8 *p, size_t len, u64 at)
{
	u32 n, i;

	searched += len;
	for (n = 0; n < HO_TENANTS; n++) {
		for (i = 0; i + PIECE <= CORE_SECRET_LEN; i += PIECE) {
			const u8 *hit = p, *end = p + len;

			while ((hit = memmem(hit, (size_t)(end - hit),
					     secrets[n].byte + i, PIECE))) {
				u64 there = at + (u64)(hit - p);

				ck_assert_msg(is_its_place(&secrets[n], where,
							   there),
					      "%s: part of a secret at %llx",
					      where, (unsigned long long)there);
				hit++;
			}
		}
	}
}

/* In overlapping chunks, so that no secret hides on a border. */
static void range_look(const char *where, int fd, u64 from, u64 to,
		       void (*look)(const char *where, const u8 *p, size_t len,
				    u64 at))
{
	static u8 buf[CHUNK + 512];
	u64 at;
	ssize_t n;

	for (at = from; at < to; at += CHUNK) {
		n = pread(fd, buf, min(to - at, (u64)sizeof(buf)), (off_t)at);
		if (n > 0)
			look(where, buf, (size_t)n, at);
	}
}

/* All readable memory of a process. */
static void process_look(const char *where, pid_t pid,
			 void (*look)(const char *where, const u8 *p,
				      size_t len, u64 at))
{
	char path[64], *maps, *line, *save = NULL, can;
	unsigned long from, to;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_msg(fd >= 0, "%s: memory cannot be read", where);
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = slurp(path);
	for (line = strtok_r(maps, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save))
		if (sscanf(line, "%lx-%lx %c", &from, &to, &can) == 3 &&
		    can == 'r')
			range_look(where, fd, from, to, look);
	close(fd);
	free(maps);
}

static void file_look(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char buf[4096];
	u64 at = 0;
	ssize_t n;

	if (fd < 0)
		return;
	files++;
	while ((n = read(fd, buf, sizeof(buf))) > 0) {
		no_secret(path, (const u8 *)buf, (size_t)n, at);
		at += (u64)n;
	}
	close(fd);
}

/* ---- the files that operators read ---- */

static void view_look(const char *path, u32 depth)
{
	struct job j = job_start(&rig, "kvctl", "ls", *path ? path : NULL,
				 NULL);
	char *text, *line, *save = NULL, sub[RIG_PATH];

	ck_assert_int_eq(job_wait(&j, 30), 0);
	text = slurp(j.out);
	for (line = strtok_r(text, "\n", &save); line && depth < 4;
	     line = strtok_r(NULL, "\n", &save)) {
		struct job c;
		size_t len = strlen(line);

		snprintf(sub, sizeof(sub), "%s%s%s", path, *path ? "/" : "",
			 line);
		if (len && line[len - 1] == '/') {
			sub[strlen(sub) - 1] = '\0';
			view_look(sub, depth + 1);
			continue;
		}
		c = job_start(&rig, "kvctl", "cat", sub, NULL);
		(void)job_wait(&c, 30);
		file_look(c.out);
	}
	free(text);
}

/* Does the kernel's entry for the mapping at that address have the flag? */
static bool mapping_has(pid_t pid, u64 addr, const char *flag)
{
	char path[64], *text, *line, *save = NULL, *flags;
	unsigned long from, to;
	bool here = false, has = false;

	snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
	text = slurp(path);
	for (line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			here = addr >= from && addr < to;
		flags = here ? strstr(line, "VmFlags:") : NULL;
		if (flags)
			has = strstr(flags, flag);
	}
	free(text);
	return has;
}

/* ---- the test ---- */

static void setup(void)
{
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE,
		  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert(sh != MAP_FAILED);
	rig_start(&rig, "--pool-size", "14M", "--extent-size", "64K",
		  "--host-size", "4M", "--area-max", "8M", "--socket-mode",
		  "0666", "--swappiness", "200", "--log-level", "debug", NULL);
}

static void area_make(char *path, size_t len)
{
	struct job j;

	snprintf(path, len, "%s/area", rig.dir);
	j = job_start(&rig, "kvctl", "swapon", path, "--size", "5M", NULL);
	ck_assert_int_eq(job_wait(&j, 60), 0);
}

static void find_secrets(pid_t kvmm)
{
	u32 n;

	process_look("kvmm", kvmm, find_records);
	for (n = 0; n < HO_TENANTS; n++) {
		/*
		 * The overlap of chunks may show a record twice, at the same
		 * address.
		 */
		ck_assert_msg(secrets[n].found, "tenant %u has no record", n);
		ck_assert_msg(mapping_has(kvmm, secrets[n].at, " dd"),
			      "the secret of tenant %u is in core dumps", n);
		ck_assert_msg(mapping_has(kvmm, secrets[n].at, " lo"),
			      "the secret of tenant %u is not locked", n);
	}
	ck_assert_mem_ne(secrets[0].byte, secrets[1].byte, 8);
}

static void proc_look(pid_t pid)
{
	static const char * const names[] = {
		"environ", "cmdline", "comm", "status", "maps", "limits",
		"auxv", "io", "stat", "syscall", "wchan",
	};
	char path[64];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "/proc/%d/%s", pid, names[i]);
		file_look(path);
	}
}

START_TEST(test_secrets)
{
	const char *san = getenv("KVMM_SANITIZER");
	char area[RIG_PATH + 16], log[RIG_PATH + 16];
	pid_t kvmm;
	u32 t;

	if (geteuid()) {
		printf("note: not tested: it takes root to read another's memory\n");
		return;
	}
	if (san && *san && strcmp(san, "ubsan")) {
		printf("note: not tested: shadow memory is too large to be searched\n");
		return;
	}
	setup();
	area_make(area, sizeof(area));
	for (t = 0; t < HO_TENANTS; t++)
		player_start(t);
	kvmm = rig_daemon(&rig);
	find_secrets(kvmm);
	process_look("kvmm", kvmm, no_secret);
	process_look("kvmm-hold", rig.hold, no_secret);
	process_look("swapd", rig_swapd(&rig), no_secret);
	for (t = 0; t < HO_TENANTS; t++)
		process_look("a client", pids[t], no_secret);
	view_look("", 0);
	proc_look(kvmm);
	file_look(area);
	snprintf(log, sizeof(log), "%s/job-0.err", rig.dir);
	file_look(log);
	printf("total: %llu MiB and %u files searched for the secrets of two tenants\n",
	       (unsigned long long)searched >> 20, files);
	ck_assert_uint_gt(searched, 16 << 20);
	ck_assert_uint_gt(files, 40);
	for (t = 0; t < HO_TENANTS; t++) {
		kill(pids[t], SIGKILL);
		waitpid(pids[t], NULL, 0);
	}
	rig_stop(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("secrets");
	TCase *tc = tcase_create("secrets");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, test_secrets);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
