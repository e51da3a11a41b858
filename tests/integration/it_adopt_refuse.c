// SPDX-License-Identifier: Apache-2.0
/*
 * it_adopt_refuse.c - arenas that are not adopted, clients that do not resume
 *
 * budget: 60 s
 *
 * A process that writes to the arena during or after its adoption harms no
 * client: kvmm checks and uses a copy.  An arena that is damaged, belongs to
 * another kvmm or another boot, or killed the kvmm that adopted it leads to a
 * cold start, with a line that gives the reason.  A client that asks for a
 * foreign attachment is refused, with a reason.  A client that does not resume
 * is killed; one that died meanwhile is removed at once; their memory becomes
 * free.  A kvmm that dies while clients resume is adopted as any other, but not
 * for ever.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kvmm/ipc/deposit/keep.h"
#include "tests/integration/adopt_scene.h"
#include "tests/integration/wire.h"

#define OTHER_UID	65534

static char sock[RIG_PATH + 32];

static void start(const char *resume_ms, const char *fault)
{
	if (fault)
		setenv("KVMM_FAULT", fault, 1);
	adopt_world("on", resume_ms, "--socket-mode", "0666", NULL);
	unsetenv("KVMM_FAULT");
	/* A client of another user passes through this directory. */
	chmod(adopt_rig.dir, 0711);
	snprintf(sock, sizeof(sock), "%s/attach.sock", adopt_rig.dir);
}

static void expect_serves(void)
{
	struct kvmm_attach_req req;
	struct wire w;

	wire_request(&req, "after");
	ck_assert_int_eq(wire_attach(&w, sock, &req), 0);
	ck_assert_int_eq(wire_call(&w, KVMM_OP_NOP, 0, NULL, 0, NULL, 0), 0);
	/* kvmm kills a process that hangs up and lives on, however slowly. */
	ck_assert_int_eq(wire_detach(&w), 0);
	wire_close(&w);
	rig_walk(&adopt_rig);
}

static void attach(struct wire *w)
{
	struct kvmm_attach_req req;

	wire_request(&req, "mine");
	req.features = KVMM_FEAT_RESUME;
	ck_assert_int_eq(wire_attach(w, sock, &req), 0);
	ck_assert_uint_eq(w->rep.features, KVMM_FEAT_RESUME);
	wire_extents(w, true);
	ck_assert_int_eq(wire_call(w, KVMM_OP_NOP, 0, NULL, 0, NULL, 0), 0);
}

/* ---- arenas ---- */

struct damage {
	const char	*file;
	s64		off;
	u8		mask;
	u32		len;
	const char	*says;
};

static const struct damage damages[] = {
	{ "kvmm-arena", 0, 0x10, 1, "of another kvmm, or for other sizes" },
	{ "kvmm-arena", 8, 0x01, 1, "of another kvmm, or for other sizes" },
	/* core_config.pool_bytes is the first of the sizes. */
	{ "kvmm-arena", 35, 0x02, 1, "of another kvmm, or for other sizes" },
	{ "kvmm-arena", 16384, 0xff, 1 << 20, "cold start:" },
	{ "kvmm-keep", offsetof(struct keep, boot), 0x01, 1, "of another boot" },
	{ "kvmm-keep", offsetof(struct keep, layout), 0x01, 1,
	  "of another kvmm" },
	{ "kvmm-keep", offsetof(struct keep, area[0].core), 0xff, 4,
	  "records of clients and areas are damaged" },
	{ "kvmm-keep", offsetof(struct keep, ready), 0xff, 0,
	  "had not begun to serve" },
};

static void do_damage(void *arg)
{
	const struct damage *dm = arg;
	int fd = adopt_kept(dm->file);
	u8 *buf = calloc(1, dm->len + 1);
	u32 i;

	if (!dm->len) {
		ck_assert_int_eq(pwrite(fd, buf, 4 - 3, dm->off), 1);
	} else {
		ck_assert_int_eq(pread(fd, buf, dm->len, dm->off), dm->len);
		for (i = 0; i < dm->len; i++)
			buf[i] ^= dm->mask;
		ck_assert_int_eq(pwrite(fd, buf, dm->len, dm->off), dm->len);
	}
	free(buf);
	close(fd);
}

START_TEST(test_damaged)
{
	const struct damage *dm = &damages[_i];

	start("60000", NULL);
	expect_serves();
	adopt_kill_and(do_damage, (void *)dm);
	adopt_await_logged(dm->says, 0);
	ck_assert_uint_ge(adopt_logged("cold start:"), 1);
	expect_serves();
	adopt_world_stop();
}
END_TEST

/* A client with an answer may write: its memory must not go to another client. */
START_TEST(test_client_unknown)
{
	struct wire w;

	start("60000", "deposit_client");
	attach(&w);
	/* The client has its answer before kvmm deposits its record. */
	adopt_await_logged("client 0 attached", 0);
	adopt_kill();
	adopt_await_logged("cold start: the record of client 0 is missing", 0);
	wire_close(&w);
	expect_serves();
	adopt_world_stop();
}
END_TEST

/* An arena that kills every kvmm that adopts it is not adopted for ever. */
START_TEST(test_poison)
{
	start("60000", "adopt_die");
	expect_serves();
	ck_assert_int_eq(kill(adopt_daemon(0), SIGKILL), 0);
	adopt_await_logged("adopted before and led to nothing", 0);
	adopt_await_logged("kvmm: ready:", 1);
	/* The first kvmm, and two that adopted. */
	ck_assert_uint_eq(adopt_logged("kvmm was ended by signal 9"), 3);
	expect_serves();
	adopt_world_stop();
}
END_TEST

/* ---- arenas that other processes have mapped ---- */

/* Memory that the scribbling process and the test share. */
static struct scribble {
	u32	go;
	u32	rounds;
} *scribble;

/* A descriptor of the kept arena, from before its adoption. */
static int old_fd = -1;

static char *old_map(u64 *bytes)
{
	struct stat s;
	char *p;

	ck_assert_int_eq(fstat(old_fd, &s), 0);
	*bytes = (u64)s.st_size;
	p = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, old_fd, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	return p;
}

/*
 * Change indices and counts, and change half of them back, most of them where
 * the arena has records.
 */
static void __noreturn scribble_main(u32 seed)
{
	u64 bytes, x = seed * 2654435761u + 1;
	u32 *p = (u32 *)old_map(&bytes);
	const u64 nr = bytes / sizeof(*p);

	for (;;) {
		const u64 at = x % (x & 3 << 20 ? nr : min(nr, (u64)1 << 16));
		const u32 was = p[at];

		x = x * 6364136223846793005ull + 1442695040888963407ull;
		if (!load_acquire(&scribble->go) || !was)
			continue;
		WRITE_ONCE(p[at], (u32)(x >> 32));
		WRITE_ONCE(scribble->rounds, scribble->rounds + 1);
		if (x >> 63)
			WRITE_ONCE(p[at], was);
	}
}

/* Scribble before the next kvmm reads the arena; scribble_later(): meanwhile. */
static void scribble_go(void *arg)
{
	store_release(&scribble->go, 1u);
}

static void scribble_later(void *arg)
{
	const u32 us = *(const u32 *)arg;

	fflush(stdout);
	if (!fork()) {
		usleep(us);
		store_release(&scribble->go, 1u);
		_exit(0);
	}
}

static pid_t scribble_fork(u32 seed)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid)
		scribble_main(seed);
	return pid;
}

/* kvmm ended by a signal only where the test killed it. */
static void expect_no_crash(u32 kills)
{
	const u32 ends = adopt_logged("kvmm was ended by signal");

	ck_assert_msg(ends == kills &&
		      adopt_logged("ended by signal 9") == kills,
		      "%u killed, %u ended by a signal", kills, ends);
}

START_TEST(test_scribble)
{
	const u32 nr = by_level(4, 30, 1000);
	u32 i, us, wrote = 0;
	pid_t pid;

	scribble = mmap(NULL, sizeof(*scribble), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(scribble, MAP_FAILED);
	start("60000", NULL);
	for (i = 0; i < nr; i++) {
		expect_serves();
		scribble->go = 0;
		old_fd = adopt_kept("kvmm-arena");
		pid = scribble_fork(i);
		us = i * 7919 % 20000;
		adopt_kill_and(i % 2 ? scribble_go : scribble_later, &us);
		scribble_go(NULL);
		/* The process goes on scribbling, without effect. */
		expect_serves();
		kill(pid, SIGKILL);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		close(old_fd);
		expect_no_crash(i + 1);
		wrote += scribble->rounds > 0;
	}
	printf("  %u adoptions with a writer: %u of %u were cold\n", wrote,
	       adopt_logged("cold start:"), nr);
	adopt_world_stop();
	munmap(scribble, sizeof(*scribble));
}
END_TEST

/* kvmm dies with a copy that hold does not have yet: hold's arena is still good. */
START_TEST(test_dies_with_copy)
{
	start("60000", "adopt_die_copied");
	expect_serves();
	ck_assert_int_eq(kill(adopt_daemon(0), SIGKILL), 0);
	adopt_await_logged("kvmm: ready:", 1);
	ck_assert_uint_eq(adopt_logged("kvmm was ended by signal 9"), 2);
	ck_assert_uint_eq(adopt_logged(": whole,"), 1);
	ck_assert_uint_eq(adopt_logged("cold start:"), 0);
	expect_serves();
	adopt_world_stop();
}
END_TEST

/* The next kvmm has new memory files, and they are sealed. */
START_TEST(test_copies)
{
	static const char * const name[] = { "kvmm-arena", "kvmm-keep" };
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	struct stat old, new;
	int fd[2], now;
	u32 i;

	start("60000", NULL);
	expect_serves();
	for (i = 0; i < 2; i++)
		fd[i] = adopt_kept(name[i]);
	adopt_kill();
	ck_assert_uint_eq(adopt_logged(": whole,"), 1);
	for (i = 0; i < 2; i++) {
		ck_assert_int_eq(fstat(fd[i], &old), 0);
		now = adopt_kept_after(name[i], old.st_ino);
		ck_assert_int_eq(fstat(now, &new), 0);
		ck_assert_uint_eq((u64)old.st_size, (u64)new.st_size);
		ck_assert_int_eq(fcntl(now, F_GET_SEALS), seals);
		/* Unused parts of the arena take no memory. */
		ck_assert_uint_le((u64)new.st_blocks,
				  (u64)old.st_blocks + 4096);
		close(fd[i]);
		close(now);
	}
	adopt_world_stop();
}
END_TEST

/* ---- clients ---- */

static int ask(const struct kvmm_attach_req *req, struct kvmm_attach_rep *rep)
{
	struct wire w;
	int err = wire_attach(&w, sock, req);

	*rep = w.rep;
	wire_close(&w);
	return err;
}

static void resume_of(const struct wire *w, struct kvmm_attach_req *req)
{
	wire_request(req, "x");
	req->flags = KVMM_ATTACH_RESUME;
	req->features = KVMM_FEAT_RESUME;
	req->resume_epoch = w->rep.daemon_epoch;
	memcpy(req->resume_token, w->rep.token, sizeof(req->resume_token));
	req->resume_client = w->rep.client;
	req->resume_seen = w->number;
	req->resume_index = w->taken;
}

/* Ask as another process, of user @uid.  Return: its answer from kvmm. */
static int ask_as(uid_t uid, const struct kvmm_attach_req *req)
{
	struct kvmm_attach_rep rep;
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		/* That user may have no access to the directories above. */
		strcpy(sock, "attach.sock");
		if (chdir(adopt_rig.dir) || (uid && setuid(uid)))
			_exit(255);
		_exit(-ask(req, &rep) & 0xff);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	return -WEXITSTATUS(status);
}

static void expect_ask(const struct kvmm_attach_req *req, int err,
		       const char *says)
{
	struct kvmm_attach_rep rep;
	int got = ask(req, &rep);

	ck_assert_msg(got == err, "%d, not %d: %s", got, err, rep.text);
	ck_assert_msg(strstr(rep.text, says), "says: %s", rep.text);
}

START_TEST(test_hostile)
{
	struct kvmm_attach_req good, bad;
	struct kvmm_attach_rep rep;
	struct wire w;

	start("60000", NULL);
	attach(&w);
	resume_of(&w, &good);
	expect_ask(&good, -EALREADY, "is attached");
	adopt_kill();

	bad = good;
	bad.resume_token[1] ^= 1;
	expect_ask(&bad, -ENOENT, "no such attachment");
	bad = good;
	bad.resume_client = 63;
	expect_ask(&bad, -ENOENT, "no such attachment");
	bad.resume_client = KVMM_NO_INDEX;
	expect_ask(&bad, -ENOENT, "no such attachment");
	bad = good;
	bad.resume_epoch--;
	expect_ask(&bad, -ESTALE, "another daemon");
	bad = good;
	bad.flags |= 2;
	expect_ask(&bad, -EINVAL, "newer than this kvmm");
	bad = good;
	bad.resv = 1;
	expect_ask(&bad, -EINVAL, "newer than this kvmm");
	bad = good;
	bad.pool = 1;
	expect_ask(&bad, -EINVAL, "newer than this kvmm");
	bad = good;
	bad.layout_hash ^= 1;
	expect_ask(&bad, -EPROTONOSUPPORT, "another uapi/kvmm.h");
	bad = good;
	bad.resume_seen += 5;
	expect_ask(&bad, -EPROTO, "never was");
	ck_assert_int_eq(ask_as(0, &good), -EPERM);
	if (!geteuid())
		ck_assert_int_eq(ask_as(OTHER_UID, &good), -ENOENT);
	else
		printf("  not root: no other user asks\n");

	ck_assert_int_eq(ask(&good, &rep), 0);
	ck_assert_uint_eq(rep.resumed, KVMM_RESUMED_WHOLE);
	ck_assert_uint_eq(rep.ring_index, w.taken);
	ck_assert_uint_eq(rep.committed, w.number);
	/*
	 * That connection is closed again: its client hung up, though its
	 * process lives.
	 */
	adopt_await_logged("resumed", 0);
	expect_ask(&good, -ESTALE, "has ended");
	wire_close(&w);
	rig_walk(&adopt_rig);
	/* kvmm would kill this process after a while: stop the node before. */
	rig_stop(&adopt_rig);
}
END_TEST

/* ---- a kvmm that dies while it resumes ---- */

/* Resume the attachment.  Return: the answer. */
static int resume(struct wire *w)
{
	const u64 number = w->number, step = w->step;
	struct kvmm_attach_req req;
	struct wire next;
	int err;

	resume_of(w, &req);
	err = wire_attach(&next, sock, &req);
	if (err) {
		wire_close(&next);
		return err;
	}
	ck_assert_uint_eq(next.rep.resumed, KVMM_RESUMED_WHOLE);
	ck_assert_uint_eq(next.rep.committed, number);
	ck_assert_uint_eq(next.rep.client, w->rep.client);
	wire_close(w);
	*w = next;
	w->tail = w->rep.ring_index;
	w->taken = w->rep.ring_index;
	w->number = number;
	w->step = step;
	return 0;
}

/* Attach, and open a sequence with an open step. */
static u64 work_begin(struct wire *w, u32 salt)
{
	u64 seq;

	attach(w);
	seq = wire_seq(w, 40, salt);
	ck_assert_uint_ne(seq, 0);
	ck_assert_int_eq(wire_step(w, seq), 0);
	return seq;
}

/* All is unchanged: the step ends, and another one begins. */
static void work_goes_on(struct wire *w, u64 seq)
{
	struct kvmm_sqe *q = wire_put(w, KVMM_OP_STEP_END, 0, NULL, 0);
	int status;

	q->step = w->step;
	wire_publish(w);
	wire_take(w, ADOPT_WAIT_MS, &status);
	ck_assert_int_eq(status, 0);
	store_release(&w->ctl->cq_head, w->taken);
	ck_assert_int_eq(wire_step(w, seq), 0);
}

/*
 * kvmm dies when the last of three clients resumes.  That client's answer is
 * lost, and the other two have to resume twice: each finds its sequence
 * unchanged.
 */
START_TEST(test_dies_resuming)
{
	struct wire w[3];
	u64 seq[3];
	u32 i, ready;

	start("60000", "resume_die:3");
	for (i = 0; i < 3; i++)
		seq[i] = work_begin(&w[i], i);
	adopt_kill();
	for (i = 0; i < 2; i++) {
		ck_assert_int_eq(resume(&w[i]), 0);
		work_goes_on(&w[i], seq[i]);
	}
	ready = adopt_logged("kvmm: ready:");
	ck_assert_int_eq(resume(&w[2]), -ECONNRESET);
	adopt_await_logged("kvmm: ready:", ready);
	ck_assert_uint_eq(adopt_logged("3 clients, 3 sequences"), 2);
	for (i = 2; i; i--) {
		ck_assert_int_eq(resume(&w[i]), 0);
		work_goes_on(&w[i], seq[i]);
	}
	ck_assert_uint_eq(adopt_logged(": whole,"), 2);
	rig_walk(&adopt_rig);
	/* Client 0 is away: stop the node before kvmm has this process killed. */
	rig_stop(&adopt_rig);
}
END_TEST

/* An arena that kills kvmm at every resume is not adopted for ever. */
START_TEST(test_dies_of_resuming)
{
	struct kvmm_attach_req req;
	struct wire w;
	u32 i;

	start("60000", "resume_die");
	work_begin(&w, 0);
	adopt_kill();
	for (i = 1; i <= KEEP_TRIES; i++) {
		/*
		 * Waiting for an absent client, however long, does not count as
		 * work.
		 */
		nap_ms(300 * time_scale());
		ck_assert_int_eq(resume(&w), -ECONNRESET);
		adopt_await_logged("kvmm: ready:", i);
	}
	adopt_await_logged("adopted before and led to nothing", 0);
	adopt_await_logged("kvmm: ready:", KEEP_TRIES + 1);
	resume_of(&w, &req);
	expect_ask(&req, -ESTALE, "another daemon");
	wire_close(&w);
	expect_serves();
	rig_stop(&adopt_rig);
}
END_TEST

/* A client in another process, with one sequence and no more work. */
static pid_t client_fork(void)
{
	int ready[2];
	struct wire w;
	pid_t pid;
	char c;

	ck_assert_int_eq(pipe(ready), 0);
	fflush(stdout);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		attach(&w);
		if (!wire_seq(&w, 40, 1) || write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	ck_assert_int_eq(read(ready[0], &c, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void await_clients(s64 nr)
{
	const u64 end = now_ms() + ADOPT_WAIT_MS * time_scale();

	while (rig_value(&adopt_rig, "status", "Clients") != nr) {
		ck_assert_msg(now_ms() < end, "clients are left:\n%s",
			      adopt_log_end());
		nap_ms(20);
	}
}

START_TEST(test_not_back)
{
	const u64 end = now_ms() + ADOPT_WAIT_MS * time_scale();
	int status;
	pid_t pid;

	start("500", NULL);
	pid = client_fork();
	adopt_kill();
	ck_assert_uint_eq(adopt_logged("1 client, 1 sequence"), 1);
	while (waitpid(pid, &status, WNOHANG) != pid) {
		ck_assert_msg(now_ms() < end, "it lives on:\n%s",
			      adopt_log_end());
		nap_ms(5);
	}
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	ck_assert_uint_eq(adopt_logged("did not come back in 500 ms"), 1);
	await_clients(0);
	ck_assert_int_eq(rig_value(&adopt_rig, "meminfo", "Quarantine"), 0);
	expect_serves();
	adopt_world_stop();
}
END_TEST

/* The first kvmm dies before it answers; the next one keeps the attachment. */
static void __noreturn try_again(void)
{
	struct kvmm_attach_req req;
	struct wire w;
	u32 i;

	wire_request(&req, "again");
	req.features = KVMM_FEAT_RESUME;
	if (wire_attach(&w, sock, &req) != -ECONNRESET)
		_exit(1);
	wire_close(&w);
	if (wire_attach(&w, sock, &req))
		_exit(2);
	for (i = 0; i < 30; i++) {
		wire_extents(&w, true);
		if (wire_call(&w, KVMM_OP_NOP, 0, NULL, 0, NULL, 0))
			_exit(3);
		nap_ms(50);
	}
	_exit(0);
}

/*
 * A client that never had the answer to its attach is not killed because the
 * attachment is not resumed.
 */
START_TEST(test_dies_attaching)
{
	struct wire w;
	int status;
	pid_t pid;

	start("500", "control_die:2");
	attach(&w);
	ck_assert_int_eq(wire_detach(&w), 0);
	wire_close(&w);
	fflush(stdout);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid)
		try_again();
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(!status, "ended with %d, signal %d:\n%s",
		      WEXITSTATUS(status), WTERMSIG(status), adopt_log_end());
	await_clients(0);
	adopt_world_stop();
}
END_TEST

static void end_client(void *arg)
{
	const pid_t pid = *(const pid_t *)arg;

	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

START_TEST(test_dead_meanwhile)
{
	pid_t pid;

	start("60000", NULL);
	pid = client_fork();
	adopt_kill_and(end_client, &pid);
	ck_assert_uint_eq(adopt_logged(": whole,"), 1);
	await_clients(0);
	expect_serves();
	adopt_world_stop();
}
END_TEST

/* ---- processes that outlive their DETACH ---- */

/* A process that attaches and detaches for each byte on a pipe. */
static pid_t ghost_fork(int *ask, int *told)
{
	int go[2], done[2];
	struct wire w;
	pid_t pid;
	char c;

	ck_assert_int_eq(pipe(go), 0);
	ck_assert_int_eq(pipe(done), 0);
	fflush(stdout);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		close(go[1]);
		while (read(go[0], &c, 1) == 1) {
			attach(&w);
			wire_call(&w, KVMM_OP_DETACH, 0, NULL, 0, NULL, 0);
			if (load_acquire(&w.dctl->state) !=
			    KVMM_CLIENT_DETACHED)
				_exit(1);
			wire_close(&w);
			if (write(done[1], "x", 1) != 1)
				_exit(1);
		}
		_exit(0);
	}
	close(go[0]);
	close(done[1]);
	*ask = go[1];
	*told = done[0];
	return pid;
}

/* Let it attach and detach, and wait until its slot is free. */
static void ghost_comes(int ask, int told)
{
	char c;

	ck_assert_int_eq(write(ask, "x", 1), 1);
	ck_assert_int_eq(read(told, &c, 1), 1);
	await_clients(0);
}

/* Does hold keep a descriptor of the process? */
static bool hold_keeps(pid_t pid)
{
	char dir[64], path[400], want[32];
	bool found = false;
	struct dirent *e;
	DIR *d;

	snprintf(want, sizeof(want), "\nPid:\t%d\n", (int)pid);
	snprintf(dir, sizeof(dir), "/proc/%d/fdinfo", (int)adopt_rig.hold);
	d = opendir(dir);
	ck_assert_ptr_nonnull(d);
	while (!found && (e = readdir(d))) {
		char *text;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		text = slurp(path);
		found = strstr(text, want);
		free(text);
	}
	closedir(d);
	return found;
}

/* hold keeps the descriptors of both lingering clients, whatever their order. */
START_TEST(test_ghosts)
{
	int ask[2], told[2], status;
	pid_t pid[2];
	u32 i;

	start("60000", NULL);
	pid[0] = ghost_fork(&ask[0], &told[0]);
	pid[1] = ghost_fork(&ask[1], &told[1]);
	ghost_comes(ask[0], told[0]);
	ghost_comes(ask[1], told[1]);
	/* Its record is deposited anew, so it is hold's last one now. */
	ghost_comes(ask[0], told[0]);
	adopt_kill();
	for (i = 0; i < 2; i++)
		ck_assert_msg(hold_keeps(pid[i]), "process %u is forgotten",
			      i);
	/* The second process has a duplicate of the pipe that the first one reads. */
	close(ask[1]);
	close(ask[0]);
	for (i = 0; i < 2; i++) {
		close(told[i]);
		ck_assert_int_eq(waitpid(pid[i], &status, 0), pid[i]);
		ck_assert_int_eq(status, 0);
	}
	nap_ms(100);
	ck_assert(!hold_keeps(pid[0]) && !hold_keeps(pid[1]));
	adopt_world_stop();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("adopt-refuse");
	TCase *a = tcase_create("arena"), *c = tcase_create("client");
	SRunner *sr;
	int failed;

	tcase_set_timeout(a, 300);
	tcase_add_loop_test(a, test_damaged, 0, ARRAY_SIZE(damages));
	tcase_add_test(a, test_client_unknown);
	tcase_add_test(a, test_poison);
	tcase_add_test(a, test_scribble);
	tcase_add_test(a, test_dies_with_copy);
	tcase_add_test(a, test_copies);
	suite_add_tcase(s, a);
	tcase_set_timeout(c, 300);
	tcase_add_test(c, test_hostile);
	tcase_add_test(c, test_dies_resuming);
	tcase_add_test(c, test_dies_of_resuming);
	tcase_add_test(c, test_not_back);
	tcase_add_test(c, test_dies_attaching);
	tcase_add_test(c, test_dead_meanwhile);
	tcase_add_test(c, test_ghosts);
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
