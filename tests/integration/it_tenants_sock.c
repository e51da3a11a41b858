// SPDX-License-Identifier: Apache-2.0
/*
 * it_tenants_sock.c - tenants with separate sockets
 *
 * Two programs of one user run in separate namespaces, with only the directory
 * of one tenant bound into each, and use the same names and the same prompts.
 * Each reads and tries all that it can reach, and must find no trace of the
 * other one.  Further tests have each quota at its limit, below it, and
 * afterwards; and sockets that stay when the daemon is killed.  budget: 40 s
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvmm/admin.h>
#include <kvmm/view.h>
#include <libkvmm.h>

#include "tests/integration/harness.h"
#include "tests/integration/wire.h"

#define USER		65534u		/* of both programs */
#define STRANGER	65533u
#define TOKENS		64u
#define SECRET_NAME	"name-of-"
#define BOX_PATH	(RIG_PATH + 64)

static struct rig rig;

/* Page that both programs and the test share. */
static struct stage {
	u32	step;		/* 1: blue has filled its cache, 2: green is done */
	u64	token[2];	/* of blue's attachment */
	u64	epoch;
	u32	client;
} *stage;

/* For a child: it prints a failed condition and exits with 1. */
#define MUST(cond)							\
do {									\
	if (!(cond)) {							\
		fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
		_exit(1);						\
	}								\
} while (0)

/* ---- a program in a box ---- */

/* Leave nothing of the run directory but @name's part, as @dir. */
static bool box_make(const char *name, char *dir)
{
	char from[64], own[BOX_PATH];
	int fd;

	snprintf(own, sizeof(own), "%s/%s", rig.dir, name);
	snprintf(dir, BOX_PATH, "%s/box", rig.dir);
	if (unshare(CLONE_NEWNS) ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return false;
	fd = open(own, O_PATH | O_DIRECTORY);
	MUST(fd >= 0);
	snprintf(from, sizeof(from), "/proc/self/fd/%d", fd);
	if (mount("tmpfs", rig.dir, "tmpfs", 0, "mode=0755") ||
	    mkdir(dir, 0755) || mount(from, dir, NULL, MS_BIND, NULL))
		return false;
	close(fd);
	return true;
}

static struct kvmm *attach(const char *dir, const char *domain)
{
	static const u8 identity[KVMM_IDENTITY_LEN] = "one model";
	char path[BOX_PATH + 32], text[256];
	const struct kvmm_params p = {
		.socket = path, .domain = domain, .identity = identity,
		.block_tokens = 16,
		.group[0] = { .layers = 1, .kv_heads = 1, .k_bytes = 512,
			   .v_bytes = 512 },
		.max_bytes = KVMM_LIMIT_MAX, .attach_timeout_ms = 20000,
	};
	struct kvmm *k;

	snprintf(path, sizeof(path), "%s/attach.sock", dir);
	if (kvmm_attach(&p, &k, text)) {
		fprintf(stderr, "attach: %s\n", text);
		_exit(1);
	}
	return k;
}

/* Compute the prompt of both programs.  Return: tokens that were cached. */
static u32 compute(struct kvmm *k, u64 step)
{
	struct kvmm_open_arg arg = { .prompt_len = TOKENS };
	struct kvmm_begin_arg begin = { .max_tokens = TOKENS };
	struct kvmm_end_arg end = { .valid_len = TOKENS };
	struct kvmm_begin_res res;
	struct kvmm_end_res end_res;
	struct kvmm_seq_status st;
	struct kvmm_open_res open;
	u32 ids[TOKENS], i;

	for (i = 0; i < TOKENS; i++)
		ids[i] = 3 * i;
	MUST(!kvmm_seq_open(k, &arg, 1, &open) && !open.status);
	MUST(!kvmm_seq_match(k, open.seq, ids, TOKENS));
	do {
		MUST(kvmm_wait(k, 10000000) != -ECONNRESET);
		MUST(!kvmm_seq_status(k, open.seq, &st));
	} while (st.state != KVMM_SEQ_READY);
	begin.seq = open.seq;
	begin.start = st.valid_len;
	begin.max_tokens = TOKENS - st.valid_len;
	begin.seq_epoch = st.seq_epoch;
	MUST(!kvmm_step_begin(k, step, &begin, 1, &res) && !res.status);
	end.seq = open.seq;
	end.nr_ids = TOKENS - st.valid_len;
	MUST(!kvmm_step_end(k, step, 1000, end.nr_ids, &end, 1,
			    ids + st.valid_len, &end_res) && !end_res.status);
	return st.cached_len;
}

/* ---- all readable files ---- */

static int view(const char *dir, const char *req, struct seq_file *out)
{
	char path[BOX_PATH + 32];
	int status = 0, err;

	snprintf(path, sizeof(path), "%s/view.sock", dir);
	err = kv_view_ask(path, req, 5000, &status, out);
	return err ? err : -status;
}

/* Write every file below @dir/ of the tree to @f. */
static void read_tree(const char *dir, const char *at, FILE *f)
{
	struct seq_file m;
	char *names, *name, *save = NULL, req[512];

	seq_init(&m, KV_VIEW_TEXT_MAX);
	snprintf(req, sizeof(req), *at ? "ls %s" : "ls", at);
	MUST(!view(dir, req, &m));
	names = strdup(seq_text(&m));
	fprintf(f, "%s:\n%s", req, names);
	for (name = strtok_r(names, "\n", &save); name;
	     name = strtok_r(NULL, "\n", &save)) {
		size_t len = strlen(name);
		char path[256];

		snprintf(path, sizeof(path), "%s%s%.*s", at, *at ? "/" : "",
			 (int)(len - (name[len - 1] == '/')), name);
		if (name[len - 1] == '/') {
			read_tree(dir, path, f);
			continue;
		}
		snprintf(req, sizeof(req), "cat %s", path);
		MUST(!view(dir, req, &m));
		fprintf(f, "%s:\n%s", req, seq_text(&m));
	}
	free(names);
	seq_free(&m);
}

/* Ask for records of other tenants: all are refused, and the answers go to @f. */
static void try_others(const char *dir, const char *other, FILE *f)
{
	static const char * const reqs[] = {
		"check", "cat vmstat", "cat meminfo", "cat sys/vm/pool_bytes",
		"cat pressure/memory", "cat domain/%s/status",
		"cat domain/%s/memory.pressure", "ls domain/%s",
	};
	struct kvmm_attach_req req;
	char name[64], ask[BOX_PATH + 32];
	struct seq_file m;
	struct wire w;
	u32 i;

	seq_init(&m, KV_VIEW_TEXT_MAX);
	snprintf(name, sizeof(name), SECRET_NAME "%s", other);
	for (i = 0; i < ARRAY_SIZE(reqs); i++) {
		snprintf(ask, sizeof(ask), reqs[i], name);
		MUST(view(dir, ask, &m) < 0);
		/*
		 * The daemon may repeat the program's own words; other words go
		 * to @f.
		 */
		if (!strchr(reqs[i], '%'))
			fprintf(f, "%s", seq_text(&m));
	}
	snprintf(ask, sizeof(ask), "cat client/%u/status", stage->client);
	MUST(strcmp(other, "blue") || view(dir, ask, &m) < 0);
	seq_free(&m);
	/* Try to take over the attachment of the other program. */
	wire_request(&req, "shared");
	req.flags = KVMM_ATTACH_RESUME;
	req.resume_epoch = stage->epoch;
	memcpy(req.resume_token, stage->token, sizeof(stage->token));
	snprintf(ask, sizeof(ask), "%s/attach.sock", dir);
	MUST(strcmp(other, "blue") || wire_attach(&w, ask, &req) < 0);
}

/* Paths of other tenants and of operators are not in the box, even for root. */
static void try_paths(const char *other)
{
	static const char * const names[] = {
		"%s/attach.sock", "%s/view.sock", "%s/admin.sock",
	};
	char path[BOX_PATH + 64], dir[BOX_PATH];
	u32 i, j;

	for (i = 0; i < 2 * ARRAY_SIZE(names); i++) {
		j = i % ARRAY_SIZE(names);
		snprintf(dir, sizeof(dir), i < ARRAY_SIZE(names) ? "%s" :
			 "%s/%s", rig.dir, other);
		snprintf(path, sizeof(path), names[j], dir);
		MUST(wire_connect(path, j == 1 ? SOCK_STREAM : SOCK_SEQPACKET) ==
		     -ENOENT);
	}
}

static void wait_for(u32 step)
{
	u64 end = now_ms() + 20000 * time_scale();

	while (READ_ONCE(stage->step) < step) {
		MUST(now_ms() < end);
		nap_ms(5);
	}
}

/* It runs as pid 1 of its namespace, or as an ordinary child. */
static void program_run(const char *dir, const char *me, const char *other,
			bool boxed, FILE *f)
{
	char secret[64];
	struct kvmm *k, *own;

	snprintf(secret, sizeof(secret), SECRET_NAME "%s", me);
	/* That user may have no access to the directories above. */
	MUST(!chdir(dir));
	dir = ".";
	if (boxed)
		try_paths(other);
	MUST(!setgid(USER) && !setuid(USER));
	if (!strcmp(me, "green"))
		wait_for(1);
	k = attach(dir, "shared");
	own = attach(dir, secret);
	/* Both programs compute it, and each finds only its own blocks. */
	MUST(compute(k, 1) == 0);
	MUST(compute(k, 2) > 0);
	if (!strcmp(me, "blue")) {
		memcpy(stage->token, kvmm_info(k)->token,
		       sizeof(stage->token));
		stage->epoch = kvmm_info(k)->daemon_epoch;
		stage->client = kvmm_info(k)->client;
		WRITE_ONCE(stage->step, 1);
		wait_for(2);
	}
	read_tree(dir, "", f);
	try_others(dir, other, f);
	if (!strcmp(me, "green")) {
		WRITE_ONCE(stage->step, 2);
		/* Blue reads while green is attached. */
		wait_for(3);
	} else {
		WRITE_ONCE(stage->step, 3);
	}
	MUST(!fflush(f));
	kvmm_detach(own);
	kvmm_detach(k);
	_exit(0);
}

/* Return: pid of the child; *@boxed: whether to make namespaces. */
static pid_t program_start(const char *me, const char *other, FILE *f,
			   bool *boxed)
{
	pid_t pid, inner;
	char dir[BOX_PATH];
	int status;

	fflush(stdout);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (*boxed)
		MUST(box_make(me, dir) && !unshare(CLONE_NEWPID));
	else
		snprintf(dir, sizeof(dir), "%s/%s", rig.dir, me);
	inner = fork();
	MUST(inner >= 0);
	if (!inner)
		program_run(dir, me, other, *boxed, f);
	MUST(waitpid(inner, &status, 0) == inner);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
}

/* Does this machine allow namespaces? */
static bool box_possible(void)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		char dir[BOX_PATH];

		_exit(!box_make("blue", dir) || unshare(CLONE_NEWPID) ? errno : 0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	errno = WEXITSTATUS(status);
	return WIFEXITED(status) && !errno;
}

static void must_end(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}

static bool need_root(void)
{
	if (!geteuid())
		return true;
	printf("  not tested: it takes root to be another user\n");
	return false;
}

START_TEST(test_two_boxes)
{
	char *text[2], own[64];
	size_t len[2];
	bool boxed;
	pid_t pid[2];
	FILE *f[2];
	u32 i;

	if (!need_root())
		return;
	rig_start(&rig, "--pool-size", "16M", "--extent-size", "1M",
		  "--tenant", "blue,owner=65534", "--tenant",
		  "green,owner=65534", NULL);
	ck_assert_int_eq(chmod(rig.dir, 0711), 0);
	boxed = box_possible();
	if (!boxed)
		printf("  no namespaces here (%s): two sockets, the same user\n", strerror(errno));
	memset(stage, 0, sizeof(*stage));
	for (i = 0; i < 2; i++) {
		f[i] = tmpfile();
		ck_assert_ptr_nonnull(f[i]);
		pid[i] = program_start(i ? "green" : "blue",
				       i ? "blue" : "green", f[i], &boxed);
	}
	must_end(pid[1]);
	must_end(pid[0]);
	for (i = 0; i < 2; i++) {
		len[i] = (size_t)lseek(fileno(f[i]), 0, SEEK_END);
		text[i] = calloc(1, len[i] + 1);
		ck_assert_int_eq(pread(fileno(f[i]), text[i], len[i], 0),
				 (ssize_t)len[i]);
		snprintf(own, sizeof(own), SECRET_NAME "%s",
			 i ? "green" : "blue");
		ck_assert_ptr_nonnull(strstr(text[i], own));
		ck_assert_ptr_nonnull(strstr(text[i], "shared"));
		ck_assert_msg(!strstr(text[i], i ? "blue" : "green"),
			      "told of the other:\n%s", text[i]);
		/* The suffix would show that the name exists twice. */
		ck_assert_ptr_null(strstr(text[i], "shared@"));
		free(text[i]);
		fclose(f[i]);
	}
	printf("  %zu and %zu bytes were read by the two\n", len[0], len[1]);
	rig_walk(&rig);
	rig_stop(&rig);
}
END_TEST

/* ---- quotas ---- */

static char q_sock[RIG_PATH + 32], q_view[RIG_PATH + 32];
static char other_sock[RIG_PATH + 32];

static void quota_start(const char *spec, const char *users)
{
	rig_start(&rig, "--pool-size", "4M", "--extent-size", "65536",
		  "--socket-mode", "0666", "--tenant", spec, "--tenant",
		  "other,owner=65533", "--user-quota", users, NULL);
	ck_assert_int_eq(chmod(rig.dir, 0711), 0);
	snprintf(q_sock, sizeof(q_sock), "%s/q/attach.sock", rig.dir);
	snprintf(q_view, sizeof(q_view), "%s/q/view.sock", rig.dir);
	snprintf(other_sock, sizeof(other_sock), "%s/other/attach.sock",
		 rig.dir);
}

static int try_attach(struct wire *w, const char *sock, const char *domain)
{
	struct kvmm_attach_req req;

	wire_request(&req, domain);
	return wire_attach(w, sock, &req);
}

static void leave(struct wire *w)
{
	int err = wire_call(w, KVMM_OP_DETACH, 0, NULL, 0, NULL, 0);

	/* The state may change before the answer comes. */
	MUST(!err || READ_ONCE(w->dctl->state) == KVMM_CLIENT_DETACHED);
	wire_close(w);
}

/* Another tenant must not be affected. */
static void others_work(void)
{
	struct wire w;

	MUST(!try_attach(&w, other_sock, "o"));
	MUST(wire_seq(&w, 32, 1));
	leave(&w);
}

static void refused(int err, int want, const struct wire *w, const char *says)
{
	if (err != want || !strstr(w->rep.text, says) ||
	    !strstr(w->rep.text, "tenant"))
		fprintf(stderr, "%d, not %d: %s\n", err, want, w->rep.text);
	MUST(err == want && strstr(w->rep.text, says));
	MUST(strstr(w->rep.text, "tenant"));
}

/* Run @fn in a child, so that it leaves nothing behind. */
static void in_child(void (*fn)(void))
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fn();
		_exit(0);
	}
	must_end(pid);
}

/* A figure of tenant q, from that column. */
static u64 q_figure(u32 column)
{
	struct seq_file m;
	char *p, *save = NULL;
	u64 value = ~0ull;
	int status;
	u32 i;

	seq_init(&m, KV_VIEW_TEXT_MAX);
	MUST(!kv_view_ask(q_view, "cat tenants", 5000, &status, &m) && !status);
	p = strchr(seq_text(&m), '\n') + 1;
	p = strtok_r(p, " ", &save);
	for (i = 0; p && i < column; i++)
		p = strtok_r(NULL, " ", &save);
	if (p)
		value = strtoull(p, NULL, 10);
	seq_free(&m);
	return value;
}

enum {
	COL_DOMAINS	= 0,
	COL_CLIENTS	= 2,
	COL_CONNS	= 4,
	COL_FDS		= 6,
	COL_MIN_KB	= 10,
	COL_REFUSED	= 13,
};

static void nothing_left(void)
{
	u64 end = now_ms() + 10000;

	/* The connection of this reader counts, too. */
	while (q_figure(COL_CLIENTS) || q_figure(COL_CONNS) > 1 ||
	       q_figure(COL_FDS)) {
		ck_assert(now_ms() < end);
		nap_ms(20);
	}
}

static void flood_clients(void)
{
	struct wire w[3], one_more;

	MUST(!try_attach(&w[0], q_sock, "a") && !try_attach(&w[1], q_sock, "a"));
	refused(try_attach(&one_more, q_sock, "a"), -EUSERS, &one_more,
		"tenant q has 2 clients attached");
	others_work();
	MUST(q_figure(COL_REFUSED) == 1);
	leave(&w[1]);
	nap_ms(50);
	MUST(!try_attach(&w[2], q_sock, "a"));
	leave(&w[2]);
	leave(&w[0]);
}

static void flood_conns(void)
{
	struct wire w[3], one_more;
	int mute[3], i;

	for (i = 0; i < 3; i++)
		MUST(!try_attach(&w[i], q_sock, "a"));
	/* A silent connection counts until its place is needed. */
	mute[0] = wire_connect(q_sock, SOCK_SEQPACKET);
	MUST(mute[0] >= 0);
	nap_ms(50);
	MUST(q_figure(COL_CONNS) == 5);
	/* Connections of readers count, too. */
	for (i = 1; i < 3; i++)
		mute[i] = wire_connect(q_view, SOCK_STREAM);
	nap_ms(50);
	refused(try_attach(&one_more, q_sock, "a"), -EUSERS, &one_more,
		"tenant q has 5 connections");
	others_work();
	for (i = 0; i < 3; i++) {
		close(mute[i]);
		leave(&w[i]);
	}
}

/* A process that attached, detached and does not end. */
static pid_t haunt(void)
{
	struct wire w;
	int said[2];
	pid_t pid;
	char byte;

	MUST(!pipe(said));
	pid = fork();
	MUST(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		MUST(!try_attach(&w, q_sock, "a"));
		leave(&w);
		MUST(write(said[1], "", 1) == 1);
		pause();
		_exit(0);
	}
	close(said[1]);
	MUST(read(said[0], &byte, 1) == 1);
	close(said[0]);
	return pid;
}

/* Each lingering client takes a descriptor of the daemon, which are limited. */
static void flood_ghosts(void)
{
	u64 end = now_ms() + 10000 * time_scale();
	struct wire one_more;
	pid_t pid[3];
	int i, err;

	for (i = 0; i < 3; i++)
		pid[i] = haunt();
	/* The daemon waits for the end of each for a second. */
	while (!(err = try_attach(&one_more, q_sock, "a")) && now_ms() < end) {
		leave(&one_more);
		nap_ms(100);
	}
	refused(err, -EUSERS, &one_more,
		"tenant q has 3 processes that detached");
	others_work();
	/* Kill two: this process has become a lingering one, too. */
	for (i = 0; i < 2; i++)
		MUST(!kill(pid[i], SIGKILL) &&
		     waitpid(pid[i], NULL, 0) == pid[i]);
	while (try_attach(&one_more, q_sock, "a"))
		MUST(now_ms() < end);
	leave(&one_more);
}

static void flood_readers(void)
{
	char answer[256] = "";
	int s[9], i;

	for (i = 0; i < 9; i++) {
		s[i] = wire_connect(q_view, SOCK_STREAM);
		MUST(s[i] >= 0);
	}
	MUST(send(s[8], "cat version\n", 12, MSG_NOSIGNAL) == 12);
	MUST(recv(s[8], answer, sizeof(answer) - 1, 0) > 0);
	MUST(strstr(answer, "error 87 tenant q has as many connections"));
	MUST(send(s[0], "cat version\n", 12, MSG_NOSIGNAL) == 12);
	MUST(recv(s[0], answer, sizeof(answer) - 1, 0) > 0);
	MUST(!strncmp(answer, "ok ", 3));
	/* The operator's socket has a separate limit. */
	MUST(rig_value(&rig, "vmstat", "nr_domains") >= 0);
	for (i = 0; i < 9; i++)
		close(s[i]);
}

/* Silent connections keep no other client out, not even of their own tenant. */
static void flood_mute(void)
{
	u64 began = now_ms();
	struct wire w;
	int s[40], i;

	for (i = 0; i < 40; i++)
		s[i] = wire_connect(q_sock, SOCK_SEQPACKET);
	MUST(!try_attach(&w, q_sock, "a"));
	MUST(now_ms() - began < 1500 * time_scale());
	leave(&w);
	for (i = 0; i < 40; i++)
		close(s[i]);
}

static void flood_domains(void)
{
	struct wire w[3], one_more;

	MUST(!try_attach(&w[0], q_sock, "a") && !try_attach(&w[1], q_sock, "b"));
	refused(try_attach(&one_more, q_sock, "c"), -EDQUOT, &one_more,
		"domains");
	others_work();
	leave(&w[1]);
	nap_ms(1500);
	/* An unused domain makes room. */
	MUST(!try_attach(&w[2], q_sock, "c"));
	MUST(q_figure(COL_DOMAINS) == 2);
	leave(&w[2]);
	leave(&w[0]);
}

/* A client that does not acknowledge descriptors gets only so many. */
static void flood_fds(void)
{
	u64 end = now_ms() + 10000;
	struct wire one, two;
	u32 all;

	MUST(!try_attach(&one, q_sock, "a"));
	MUST(wire_seq(&one, 256, 1));
	all = one.nr_ext;
	MUST(all >= 6);
	MUST(!try_attach(&two, q_sock, "a"));
	/* Some extents may reach the first client after its sequence is ready. */
	while (two.nr_ext < 3) {
		MUST(now_ms() < end);
		wire_extents(&one, true);
		nap_ms(20);
		wire_extents(&two, false);
	}
	nap_ms(200);
	wire_extents(&one, true);
	wire_extents(&two, false);
	MUST(two.nr_ext == 3);
	MUST(q_figure(COL_FDS) == 3);
	others_work();
	/* It goes on with each acknowledgement; here they are sent by hand. */
	while (two.nr_ext < all) {
		struct kvmm_ack_arg a[WIRE_EXTENTS];
		u32 i;

		MUST(now_ms() < end);
		memset(a, 0, sizeof(a));
		for (i = 0; i < two.nr_ext; i++) {
			a[i].extent = two.ext[i].extent;
			a[i].generation = two.ext[i].generation;
			a[i].what = KVMM_ACK_MAP;
		}
		wire_call(&two, KVMM_OP_EXTENT_ACK, two.nr_ext, a,
			  two.nr_ext * (u32)sizeof(a[0]), NULL, 0);
		nap_ms(20);
		wire_extents(&two, false);
	}
	leave(&two);
	leave(&one);
}

/* A tenant's request is cut to its limit; users get no memory.min at all. */
static void ask_min(void)
{
	struct kvmm_attach_req req;
	struct wire w, user;

	wire_request(&req, "a");
	req.limits[0].min = 3u << 20;
	req.weight = 5000;
	MUST(!wire_attach(&w, q_sock, &req));
	MUST(q_figure(COL_MIN_KB) == 1024);
	MUST(!chdir(rig.dir) && !setgid(STRANGER) && !setuid(STRANGER));
	wire_request(&req, "user");
	req.limits[0].min = 3u << 20;
	MUST(!wire_attach(&user, "attach.sock", &req));
	leave(&user);
	leave(&w);
}

static const struct {
	const char	*spec;
	void		(*flood)(void);
} quotas[] = {
	{ "q,clients=2", flood_clients },
	{ "q,conns=5", flood_conns },
	{ "q,conns=3", flood_ghosts },
	{ "q", flood_readers },
	{ "q", flood_mute },
	{ "q,domains=2", flood_domains },
	{ "q,fds=3", flood_fds },
	{ "q,min=1M", ask_min },
};

START_TEST(test_quota)
{
	if (!need_root())
		return;
	quota_start(quotas[_i].spec, "clients=4");
	in_child(quotas[_i].flood);
	nothing_left();
	if (quotas[_i].flood == ask_min) {
		ck_assert_int_eq(rig_value(&rig, "domain/user/memory.min",
					   "gpu0"), 0);
		ck_assert_int_eq(rig_value(&rig, "domain/a/memory.min",
					   "gpu0"), 1 << 20);
	}
	in_child(others_work);
	rig_walk(&rig);
	rig_stop(&rig);
}
END_TEST

/* ---- owners and modes ---- */

static void as_stranger(void)
{
	struct kv_admin adm = { .path = "admin.sock", .timeout_ms = 3000,
				.fd = -1 };

	MUST(!chdir(rig.dir) && !setgid(STRANGER) && !setuid(STRANGER));
	/* It may use the socket of its own tenant, and no other. */
	MUST(wire_connect("other/attach.sock", SOCK_SEQPACKET) >= 0);
	MUST(wire_connect("q/attach.sock", SOCK_SEQPACKET) == -EACCES);
	MUST(wire_connect("q/view.sock", SOCK_STREAM) == -EACCES);
	MUST(wire_connect("view.sock", SOCK_STREAM) == -EACCES);
	/* That socket was opened by mistake: the daemon checks the user, too. */
	MUST(kv_admin_ask(&adm, "drop_caches") == -ECONNABORTED);
}

START_TEST(test_doors)
{
	char path[RIG_PATH + 32];
	struct stat st;

	if (!need_root())
		return;
	quota_start("q,owner=65534:65532,mode=0640", "clients=4");
	ck_assert_int_eq(stat(q_sock, &st), 0);
	ck_assert_uint_eq(st.st_uid, 65534);
	ck_assert_uint_eq(st.st_gid, 65532);
	ck_assert_uint_eq(st.st_mode & 07777, 0640);
	ck_assert_int_eq(stat(q_view, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0640);
	snprintf(path, sizeof(path), "%s/q", rig.dir);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_uid, 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0755);
	snprintf(path, sizeof(path), "%s/admin.sock", rig.dir);
	ck_assert_int_eq(chmod(path, 0666), 0);
	in_child(as_stranger);
	rig_stop(&rig);
}
END_TEST

static void come_back(void)
{
	struct wire w;

	MUST(!try_attach(&w, q_sock, "a"));
	MUST(wire_seq(&w, 32, 1));
	leave(&w);
}

/* The daemon is killed: its sockets stay, and new connections wait. */
START_TEST(test_killed)
{
	struct stat before, after;
	pid_t pid;

	if (!need_root())
		return;
	quota_start("q,owner=65534", "clients=4");
	ck_assert_int_eq(stat(q_sock, &before), 0);
	pid = rig_daemon(&rig);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	in_child(come_back);
	ck_assert_int_ne(rig_daemon(&rig), pid);
	ck_assert_int_eq(stat(q_sock, &after), 0);
	ck_assert_uint_eq(before.st_ino, after.st_ino);
	in_child(others_work);
	nothing_left();
	rig_stop(&rig);
	ck_assert_int_eq(access(q_sock, F_OK), -1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tenants-sock");
	TCase *tc = tcase_create("sockets");
	SRunner *sr;
	int failed;

	stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_two_boxes);
	tcase_add_loop_test(tc, test_quota, 0, ARRAY_SIZE(quotas));
	tcase_add_test(tc, test_doors);
	tcase_add_test(tc, test_killed);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
